//! Streams of nodes that share a directory: each node can play them, each node fetches a single copy, and viewers stay
//! connected when a node dies.

use crypto::Seed;
use netsim::MediaSource;

use crate::cluster::Redis;
use crate::management::Panel;
use crate::publish_play::{assert_equal_from_first_key_frame, is_broadcasting};
use crate::support::{
    Player, Program, Publisher, RtmpPeer, Server, frame_md5, media_file, ms, publish_synthetic, secs,
    source_packets, wait_for,
};

fn node(redis: &Redis, name: &str) -> Server {
    let mut settings = redis.settings(name);
    settings.push("relay.secret=a secret of all nodes".to_owned());
    Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A node of a region; `tier` is its `cluster.tier`.
fn node_of(redis: &Redis, name: &str, region: &str, tier: &str) -> Server {
    let mut settings = redis.settings(name);
    settings.extend([
        "relay.secret=a secret of all nodes".to_owned(),
        format!("cluster.region={region}"),
        format!("cluster.tier={tier}"),
    ]);
    Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

fn flv(server: &Server) -> String {
    format!("http://{}/live/s.flv", server.http)
}

/// Starts a publisher that tries again until the server accepts it, as encoders do.
fn publish(server: &Server) -> Publisher {
    // Each try closes its connection immediately, after which the stream waits for the next publisher.
    wait_for("to be let in", secs(20), || RtmpPeer::publish(server.rtmp, "live", "s").is_ok());
    server.wait_for_line("publisher lost");
    Publisher::start(server.rtmp, "live", "s")
}

#[test]
fn what_is_published_at_one_node_is_played_at_the_others() {
    let redis = Redis::start();
    let nodes = ["a", "b", "c"].map(|name| node(&redis, name));
    let file = media_file(true, 120);
    let _publisher = Program::ffmpeg_publish(&file, &nodes[0].rtmp_url("live/s"));
    for server in &nodes {
        wait_for("the stream", secs(20), || is_broadcasting(server, "s"));
    }
    let source = source_packets(&file);
    for server in &nodes {
        assert_equal_from_first_key_frame(&source, &frame_md5(&flv(server), Some(3)));
        assert_equal_from_first_key_frame(&source, &frame_md5(&server.rtmp_url("live/s"), Some(3)));
    }
    let copies =
        |server: &Server| server.log().matches(r#"viewer started key=live/s protocol="relay""#).count();
    assert_eq!(nodes.each_ref().map(copies), [2, 0, 0], "{}", nodes[0].log());
    // At every node, a record contains the values of the stream's origin.
    let record = nodes[2].api().broadcast("live", "s").unwrap();
    assert_eq!((&record["status"], &record["publishType"]), (&"broadcasting".into(), &"RTMP".into()));
}

#[test]
fn n_14_viewers_of_a_copy_stay_when_its_origin_dies_and_the_publisher_goes_elsewhere() {
    let redis = Redis::start();
    let [mut a, b, c] = ["a", "b", "c"].map(|name| node(&redis, name));
    let publisher = Publisher::start(a.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&b, "s"));
    let player = Player::start(b.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 60);
    a.kill();
    publisher.stop();
    let _publisher = publish(&c);
    let before = player.media();
    wait_for("media from the other node", secs(20), || player.media() > before + 60);
    assert!(player.is_playing());
    // A copy ends when it has no viewers any more.
    drop(player);
    wait_for("the end of the copy", secs(30), || b.log().contains("copy of a stream ended key=live/s"));
}

/// Checks that viewers at two nodes of a region cost the origin one copy, are all counted in the record, and stay when
/// the region's relay dies.
#[test]
fn n_27_a_region_fetches_a_stream_once_through_its_relay() {
    let redis = Redis::start();
    let origin = node_of(&redis, "origin", "us", "node");
    let mut relay = node_of(&redis, "relay", "eu", "relay");
    let edges = ["edge-1", "edge-2"].map(|name| node_of(&redis, name, "eu", "node"));
    let listed = |server: &Server| Panel::again(server).get("/cluster/nodes/0/10");
    Panel::first(&origin);
    wait_for("the nodes", secs(20), || edges.iter().all(|edge| listed(edge).as_array().unwrap().len() == 4));
    let tier_of = |name: &str| {
        let nodes = listed(&origin);
        nodes.as_array().unwrap().iter().find(|node| node["id"] == name).unwrap()["tier"].clone()
    };
    assert_eq!((tier_of("relay"), tier_of("edge-1")), ("relay".into(), "node".into()));
    let _publisher = Publisher::start(origin.rtmp, "live", "s");
    for edge in &edges {
        wait_for("the stream", secs(20), || is_broadcasting(edge, "s"));
    }
    let players = edges.each_ref().map(|edge| Player::start(edge.rtmp, "live", "s"));
    for player in &players {
        wait_for("media", secs(20), || player.media() > 60);
    }
    let copies =
        |server: &Server| server.log().matches(r#"viewer started key=live/s protocol="relay""#).count();
    assert_eq!([&origin, &relay].map(copies), [1, 2], "{}", origin.log());
    wait_for("the viewers in the record", secs(20), || {
        origin.api().broadcast("live", "s").is_some_and(|record| record["rtmpViewerCount"] == 2)
    });
    // Without the relay, the nodes fetch the stream from its own node.
    relay.kill();
    let before = players.each_ref().map(Player::media);
    for (player, before) in players.iter().zip(before) {
        wait_for("media without the relay", secs(20), || player.media() > before + 120);
        assert!(player.is_playing());
    }
    assert_eq!(copies(&origin), 3, "{}", origin.log());
}

/// Checks an encoder whose connection breaks and that reconnects to another node.
#[test]
fn n_16_a_publisher_that_was_lost_may_come_back_at_another_node() {
    let redis = Redis::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| node(&redis, name));
    let mut first = RtmpPeer::publish(a.rtmp, "live", "lost").unwrap();
    first.send_configs().unwrap();
    publish_synthetic(&mut first, &mut MediaSource::new(&Seed::from_number(1)), 100).unwrap();
    wait_for("the stream", secs(20), || a.log().contains("stream started key=live/lost"));
    let players = [&a, &c].map(|server| {
        wait_for("the record", secs(20), || server.api().broadcast("live", "lost").is_some());
        let player = Player::start(server.rtmp, "live", "lost");
        wait_for("media", secs(20), || player.media() > 2);
        (player.media(), player)
    });
    drop(first);
    a.wait_for_line("publisher lost");
    wait_for("to be let in", secs(20), || RtmpPeer::publish(b.rtmp, "live", "lost").is_ok());
    b.wait_for_line("publisher lost");
    let _publisher = Publisher::start(b.rtmp, "live", "lost");
    for (before, player) in &players {
        wait_for("media from the other node", secs(20), || player.media() > before + 120);
        assert!(player.is_playing());
    }
}

/// Checks two publishers of the same id that were accepted while the directory was unreachable. One of them remains,
/// and the viewers of both get its stream.
#[test]
fn n_15_viewers_of_a_publisher_that_loses_are_sent_the_other_one() {
    let mut redis = Redis::start();
    let (a, b) = (node(&redis, "a"), node(&redis, "b"));
    // Makes each node learn the address of the other's relay.
    for (id, from, to) in [("of_a", &a, &b), ("of_b", &b, &a)] {
        let _publisher = Publisher::start(from.rtmp, "live", id);
        wait_for("a copy", secs(20), || RtmpPeer::play(to.rtmp, "live", id).is_ok());
    }
    redis.kill();
    for server in [&a, &b] {
        wait_for("the absence", secs(20), || server.log().contains("directory unreachable"));
    }
    let _publishers = [&a, &b].map(|server| Publisher::start(server.rtmp, "live", "s"));
    let players = [&a, &b].map(|server| {
        wait_for("the stream", secs(20), || is_broadcasting(server, "s"));
        Player::start(server.rtmp, "live", "s")
    });
    for player in &players {
        wait_for("media", secs(20), || player.media() > 60);
    }
    redis.begin();
    let gave_up = |server: &Server| server.log().contains("copying it from there");
    wait_for("one publisher", secs(30), || gave_up(&a) || gave_up(&b));
    std::thread::sleep(ms(500));
    let before = players.each_ref().map(Player::media);
    for (player, before) in players.iter().zip(before) {
        wait_for("media of the one that remains", secs(20), || player.media() > before + 60);
        assert!(player.is_playing());
    }
    assert!(!(gave_up(&a) && gave_up(&b)));
}

/// Checks a node that hangs for longer than its lease while another node admits a publisher of the same id. When it
/// continues, its publisher is closed, and its viewers get the other stream.
#[test]
fn n_15_of_a_node_that_hung_and_its_successor_one_publisher_remains() {
    let redis = Redis::start();
    let (a, b) = (node(&redis, "a"), node(&redis, "b"));
    let mut first = RtmpPeer::publish(a.rtmp, "live", "s").unwrap();
    first.send_configs().unwrap();
    let mut media = MediaSource::new(&Seed::from_number(2));
    publish_synthetic(&mut first, &mut media, 100).unwrap();
    wait_for("the stream", secs(20), || is_broadcasting(&b, "s"));
    let player = Player::start(a.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 2);
    a.signal("STOP");
    let _second = publish(&b);
    let other = Player::start(b.rtmp, "live", "s");
    wait_for("media of the other publisher", secs(20), || other.media() > 60);
    a.signal("CONT");
    a.wait_for_line("copying it from there");
    let mut is_told = || publish_synthetic(&mut first, &mut media, 10).is_err();
    wait_for("the end of the first publisher", secs(20), &mut is_told);
    let before = [&player, &other].map(Player::media);
    for (player, before) in [&player, &other].into_iter().zip(before) {
        wait_for("media of the one that remains", secs(30), || player.media() > before + 60);
        assert!(player.is_playing());
    }
    assert!(RtmpPeer::publish(a.rtmp, "live", "s").is_err(), "the id is in use");
    assert!(!b.log().contains("copying it from there"), "{}", b.log());
}

/// Checks a node that dies while a stream waits for its publisher there: no claim names the node then.
#[test]
fn b_22_a_stream_that_waits_at_a_dead_node_ends() {
    let redis = Redis::start();
    let (mut a, b) = (node(&redis, "a"), node(&redis, "b"));
    let made = b.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#);
    assert_eq!(made.status, 200);
    for id in ["s", "made"] {
        wait_for("the record", secs(20), || id == "made" || a.api().broadcast("live", id).is_some());
        let mut encoder = RtmpPeer::publish(a.rtmp, "live", id).unwrap();
        encoder.send_configs().unwrap();
        publish_synthetic(&mut encoder, &mut MediaSource::new(&Seed::from_number(3)), 60).unwrap();
        wait_for("the stream", secs(20), || is_broadcasting(&b, id));
    }
    wait_for("the losses", secs(20), || a.log().matches("publisher lost").count() == 2);
    a.kill();
    wait_for("the end", secs(60), || {
        b.api().broadcast("live", "s").unwrap()["status"] == "terminated_unexpectedly"
            && b.api().broadcast("live", "made").is_none()
    });
    wait_for("its line", secs(5), || {
        b.log().matches("stream ended: its node has died while it waited for the publisher").count() == 2
    });
}
