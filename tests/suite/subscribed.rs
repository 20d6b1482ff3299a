//! Tests subscribers in a cluster: limits, blocks and kicks apply on all nodes.

use crate::cluster::Redis;
use crate::publish_play::is_broadcasting;
use crate::support::{Player, Publisher, RtmpPeer, Server, secs, wait_for};

const SUBSCRIBERS: &str = "/live/rest/v2/broadcasts/s/subscribers";
const ALICE: &str = "s?subscriberId=alice";

fn node(redis: &Redis, name: &str) -> Server {
    let mut settings = redis.settings(name);
    settings.push("relay.secret=a secret of all nodes".to_owned());
    Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the number of the subscriber's connections according to a node.
fn connections(server: &Server) -> i64 {
    let list = server.api().get(&format!("{SUBSCRIBERS}/list/0/10")).json();
    list[0]["currentConcurrentConnections"].as_i64().unwrap()
}

#[test]
fn n_24_a_subscriber_is_there_as_often_as_its_limit_says_over_nodes_and_a_block_ends_it_everywhere() {
    let redis = Redis::start();
    let (a, mut b, c) = (node(&redis, "a"), node(&redis, "b"), node(&redis, "c"));
    let _publisher = Publisher::start(a.rtmp, "live", "s");
    let body = r#"{"subscriberId":"alice","type":"play","concurrentConnectionsLimit":2}"#;
    assert_eq!(a.api().post(SUBSCRIBERS, body).json()["success"], true);
    for server in [&b, &c] {
        wait_for("the stream", secs(20), || is_broadcasting(server, "s"));
        wait_for("the subscriber", secs(10), || {
            server.api().get(&format!("{SUBSCRIBERS}/list/0/10")).body.contains("alice")
        });
    }
    let players = [&a, &b].map(|server| Player::start(server.rtmp, "live", ALICE));
    for server in [&a, &b, &c] {
        wait_for("both connections", secs(10), || connections(server) == 2);
        assert!(RtmpPeer::play(server.rtmp, "live", ALICE).is_err(), "the limit is that of all nodes");
        assert!(RtmpPeer::play(server.rtmp, "live", "s?subscriberId=bob").is_ok());
    }
    // When a player leaves, or its node dies, another one is allowed.
    let [at_a, at_b] = players;
    drop(at_a);
    wait_for("room", secs(10), || connections(&c) == 1);
    let at_c = Player::start(c.rtmp, "live", ALICE);
    wait_for("no room", secs(10), || connections(&a) == 2);
    assert!(RtmpPeer::play(a.rtmp, "live", ALICE).is_err());
    b.kill();
    drop(at_b);
    wait_for("room behind a dead node", secs(20), || connections(&a) == 1);
    let at_a = Player::start(a.rtmp, "live", ALICE);

    wait_for("media", secs(20), || at_a.media() > 30 && at_c.media() > 30);
    let blocked = a.api().put(&format!("{SUBSCRIBERS}/alice/block/60/play"), "");
    assert_eq!(blocked.json()["success"], true, "{blocked:?}");
    wait_for("the end of its sessions at each node", secs(10), || !at_a.is_playing() && !at_c.is_playing());
    assert!(RtmpPeer::play(c.rtmp, "live", ALICE).is_err());
}
