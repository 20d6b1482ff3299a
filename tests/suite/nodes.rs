//! API calls and viewer counts in a cluster: every node gives the same answers as the node that has the stream.

use std::thread;

use millstream::control::{Route, routes};
use serde_json::Value;

use crate::cluster::Redis;
use crate::publish_play::is_broadcasting;
use crate::support::{Api, Player, Publisher, RtcClient, Server, secs, wait_for};

fn node(redis: &Redis, name: &str) -> Server {
    start(redis.settings(name))
}

fn start(mut settings: Vec<String>) -> Server {
    settings.push("relay.secret=a secret of all nodes".to_owned());
    settings.push("app.dataChannelEnabled=true".to_owned());
    Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())
}

fn broadcasts(rest: &str) -> String {
    format!("/live/rest/v2/broadcasts{rest}")
}

/// Publishes at the first node, and waits until the other nodes know the streams.
fn publish<const N: usize>(nodes: &[&Server], ids: [&str; N]) -> [Publisher; N] {
    let publishers = ids.map(|id| Publisher::start(nodes[0].rtmp, "live", id));
    for server in nodes {
        for id in ids {
            wait_for("the stream", secs(20), || is_broadcasting(server, id));
        }
    }
    publishers
}

/// Returns an example call of a route for a stream: path with query, and body.
fn example(route: &Route, id: &str) -> (String, Option<String>) {
    let subtrack = format!("{id}-sub");
    let values = [
        ("{id}", id),
        ("{sid}", subtrack.as_str()),
        ("{on}", "true"),
        ("{offset}", "0"),
        ("{size}", "10"),
        ("{viewer}", "0-0-0-0"),
        ("{ms}", "1000"),
    ];
    let path =
        values.into_iter().fold(route.path.to_owned(), |path, (name, value)| path.replace(name, value));
    let query = match route.path {
        "/broadcasts/{id}/recording/{on}" => "?recordType=mp4",
        "/broadcasts/{id}/subtrack" => &format!("?id={subtrack}"),
        "/broadcasts/conference-rooms/{id}/add" | "/broadcasts/conference-rooms/{id}/delete" => {
            "?streamId=other"
        }
        "/broadcasts/{id}/endpoint" | "/broadcasts/{id}/rtmp-endpoint" if route.takes.is_empty() => {
            "?endpointServiceId=none"
        }
        "/broadcasts/playlists/{id}/next" => "?index=1",
        "/broadcasts/{id}/clip" => "?fileName=clip",
        _ => "",
    };
    let body = match route.takes {
        "Endpoint" => Some(r#"{"rtmpUrl":"rtmp://127.0.0.1:1/live/t","type":"generic"}"#.to_owned()),
        "Broadcast" => Some(r#"{"name":"another name"}"#.to_owned()),
        "NewConferenceRoom" => Some(format!(r#"{{"roomId":"{id}"}}"#)),
        "" if route.path.ends_with("/data") => Some("a message".to_owned()),
        _ => None,
    };
    (format!("/live/rest/v2{path}{query}"), body)
}

/// Returns the answer without the id, and without values that depend on time or chance.
fn shape(value: Value, id: &str) -> Value {
    match value {
        Value::String(text) if text.starts_with("custom") => "random".into(),
        Value::String(text) if text.len() > 12 && text.chars().all(char::is_alphanumeric) => "random".into(),
        Value::String(text) => text.replace(id, "ID").into(),
        Value::Number(_) => 0.into(),
        Value::Array(list) => list.into_iter().map(|item| shape(item, id)).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, shape(value, id)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}

fn answer(api: &Api, route: &Route, id: &str) -> (u16, Value) {
    let (path, body) = example(route, id);
    let reply = api.call(route.method.as_str(), &path, body.as_deref());
    let value = serde_json::from_str(&reply.body).unwrap_or_else(|_| Value::String(reply.body.clone()));
    (reply.status, shape(value, id))
}

/// Returns the members of the record that calls may change, as stored at the stream's own node.
fn outcome(origin: &Server, id: &str) -> Option<Value> {
    let record = origin.api().broadcast("live", id)?;
    let members =
        ["status", "name", "endPointList", "mp4Enabled", "subTrackStreamIds", "publishKey", "virtual"];
    let of = |name: &str| (name.to_owned(), record[name].clone());
    Some(shape(members.into_iter().map(of).collect::<serde_json::Map<_, _>>().into(), id))
}

/// Makes each call about a live stream twice: at the stream's own node, and at another node.
#[test]
fn n_18_every_call_of_a_live_stream_is_answered_at_any_node_as_at_its_own() {
    let redis = Redis::start();
    let (a, b) = (node(&redis, "a"), node(&redis, "b"));
    let mut asked = 0;
    for (number, route) in routes().filter(|route| route.at_origin).enumerate() {
        let (x, y) = (format!("x{number}"), format!("y{number}"));
        for id in [&x, &y] {
            let body = format!(r#"{{"streamId":"{id}-sub"}}"#);
            assert_eq!(a.api().post(&broadcasts("/create"), &body).status, 200);
        }
        let _publishers = publish(&[&a, &b], [&x, &y]);
        let name = format!("{} {}", route.method, route.path);
        let (here, there) = (answer(&a.api(), route, &x), answer(&b.api(), route, &y));
        assert_eq!(here, there, "{name}");
        let is_equal = || outcome(&a, &x) == outcome(&a, &y);
        wait_for(&format!("the same of {name}"), secs(10), is_equal);
        asked += 1;
    }
    assert!(asked >= 28, "{asked} calls belong to the origin");
    // The audit log of the stream's node also contains the calls that were made at the other node.
    let audit = std::fs::read_to_string(a.home().join("home/log/audit.log")).unwrap();
    let of_other = audit.lines().filter(|line| line.contains("live/broadcasts/y")).count();
    assert!(of_other > 10, "{audit}");
}

/// Checks that a call is answered in time if the stream's node hangs, and if it dies during the call.
#[test]
fn n_19_calls_for_a_node_that_dies_are_answered() {
    let redis = Redis::start();
    // With a lease of 8 s, the hanging node keeps its claim for longer than the call takes.
    let [mut a, b] = ["a", "b"].map(|name| {
        let mut settings = redis.settings(name);
        settings.retain(|setting| !setting.starts_with("cluster.lease"));
        settings.push("cluster.lease=8".to_owned());
        start(settings)
    });
    let [publisher] = publish(&[&a, &b], ["s"]);
    a.signal("STOP");
    let api = b.api();
    let under_way = thread::spawn(move || api.call("POST", &broadcasts("/s/stop"), Some("")));
    let relay = format!(":{:04X} 01 ", a.relay.unwrap().port());
    let is_connected = || std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&relay);
    wait_for("a connection to the relay", secs(5), is_connected);
    a.kill();
    publisher.stop();
    let reply = under_way.join().unwrap();
    assert!(reply.status == 503 && reply.head.to_ascii_lowercase().contains("retry-after"), "{}", reply.head);
    // After the lease has expired, node b carries out the call itself.
    wait_for("an answer of this node", secs(20), || b.api().delete(&broadcasts("/s")).status == 200);
}

fn count(server: &Server, id: &str, name: &str) -> i64 {
    server.api().broadcast("live", id).map_or(-1, |record| record[name].as_i64().unwrap())
}

#[test]
fn n_20_viewers_of_all_nodes_are_counted_at_each_and_a_dead_node_s_are_gone() {
    let redis = Redis::start();
    let [a, b, mut c] = ["a", "b", "c"].map(|name| node(&redis, name));
    let _publisher = publish(&[&a, &b, &c], ["s"]);
    let players: Vec<Player> = [&a, &b, &b, &c].map(|server| Player::start(server.rtmp, "live", "s")).into();
    let hls = |server: &Server| server.api().get("/live/streams/s.m3u8").status;
    for server in [&a, &b, &c] {
        wait_for("the sum", secs(30), || {
            assert_eq!([hls(&a), hls(&b)], [200, 200]);
            count(server, "s", "rtmpViewerCount") == 4 && count(server, "s", "hlsViewerCount") >= 2
        });
        let statistics = server.api().get(&broadcasts("/s/broadcast-statistics")).json();
        assert_eq!(statistics["totalRTMPWatchersCount"], 4, "{statistics}");
        let live = server.api().get(&broadcasts("/active-live-stream-count")).json();
        assert_eq!(live["number"], 1);
    }
    c.kill();
    for server in [&a, &b] {
        wait_for("the others", secs(20), || count(server, "s", "rtmpViewerCount") == 3);
    }
    drop(players);
    for server in [&a, &b] {
        wait_for("nobody", secs(20), || count(server, "s", "rtmpViewerCount") == 0);
    }
}

#[test]
fn n_21_limits_of_viewers_hold_over_nodes() {
    let redis = Redis::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| node(&redis, name));
    let _publisher = publish(&[&a, &b, &c], ["s"]);
    assert_eq!(b.api().put(&broadcasts("/s"), r#"{"hlsViewerLimit":2}"#).status, 200);
    for server in [&a, &b, &c] {
        wait_for("the limit", secs(10), || count(server, "s", "hlsViewerLimit") == 2);
    }
    let hls = |server: &Server, viewer: &str| {
        server.api().get(&format!("/live/streams/s.m3u8?subscriberId={viewer}")).status
    };
    for (server, viewer) in [(&a, "1"), (&b, "2")] {
        wait_for("the first two", secs(20), || hls(server, viewer) == 200);
    }
    wait_for("the sum", secs(20), || {
        let _ = (hls(&a, "1"), hls(&b, "2"));
        count(&c, "s", "hlsViewerCount") == 2
    });
    assert_eq!([hls(&c, "3"), hls(&a, "3"), hls(&b, "3")], [403; 3]);
    assert_eq!([hls(&a, "1"), hls(&b, "2")], [200; 2], "those who watch stay");
}

/// Returns the status of an answer, and the URL to which it redirects; empty if there is none.
fn sent_to(server: &Server, method: &str, path: &str, body: Option<(&str, &str)>) -> (u16, String) {
    let fields: Vec<(&str, &str)> = body.iter().map(|(kind, _)| ("Content-Type", *kind)).collect();
    let reply = server.api().call_with(method, path, &fields, body.map(|(_, body)| body));
    let lines = reply.head.lines().filter_map(|line| line.split_once(": "));
    let mut location = lines.filter(|(name, _)| name.eq_ignore_ascii_case("location"));
    (reply.status, location.next().map(|(_, value)| value.to_owned()).unwrap_or_default())
}

#[test]
fn clients_are_sent_to_the_node_that_has_their_stream() {
    let redis = Redis::start();
    let [a, b] = ["a", "b"].map(|name| {
        let mut settings = redis.settings(name);
        settings.extend(["cluster.redirect=true".to_owned(), "app.mp4MuxingEnabled=true".to_owned()]);
        if name == "a" {
            settings.push("cluster.public_address=https://a.example:5443".to_owned());
        }
        start(settings)
    });
    let publishers = publish(&[&a, &b], ["s"]);
    let to_a = |path: &str| format!("https://a.example:5443{path}");
    for path in [
        "/live/s.flv",
        "/live/streams/s.m3u8?token=a%26b",
        "/live/streams/s_adaptive.m3u8",
        "/live/streams/ll-hls/s/s__master.m3u8",
    ] {
        assert_eq!(sent_to(&b, "GET", path, None), (302, to_a(path)), "{path}");
    }
    let offer = Some(("application/sdp", "v=0"));
    for path in ["/live/whep/s", "/live/whip/s"] {
        assert_eq!(sent_to(&b, "POST", path, offer), (307, to_a(path)), "{path}");
    }
    // These requests are not redirected: at the stream's own node, for streams that no node has, for segments, and for
    // pages.
    for (server, path, status) in [
        (&a, "/live/streams/s.m3u8", 200),
        (&b, "/live/streams/none.m3u8", 404),
        (&b, "/live/none.flv", 404),
        (&b, "/live/streams/s000000001.ts", 404),
        (&b, "/live/play.html?id=s", 200),
    ] {
        assert_eq!(sent_to(server, "GET", path, None), (status, String::new()), "{path}");
    }
    // A recording is served by the node that had the stream.
    drop(publishers);
    let vods = || b.api().get("/live/rest/v2/vods/list/0/10").json();
    wait_for("the recording", secs(20), || vods().as_array().is_some_and(|list| !list.is_empty()));
    let vod = vods()[0].clone();
    assert_eq!(vod["node"], "a", "{vod}");
    let path = format!("/live/{}", vod["filePath"].as_str().unwrap());
    assert_eq!(sent_to(&b, "GET", &path, None), (302, to_a(&path)));
    assert_eq!(sent_to(&a, "GET", &path, None).0, 200);
    // If the operator has set no public URL, the redirection contains the node's own address.
    let _publisher = publish(&[&b, &a], ["t"]);
    let path = "/live/t.flv";
    assert_eq!(sent_to(&a, "GET", path, None), (302, format!("http://{}{path}", b.http)));
}

/// A node without a copy of a stream sends clients to the node that can make its picture; a node with a copy makes it
/// itself. The stream is synthetic, so it has no picture, and the node that would make it answers 404.
#[test]
fn a_picture_of_a_stream_is_answered_at_any_node() {
    let redis = Redis::start();
    let (a, b) = (node(&redis, "a"), node(&redis, "b"));
    let _publisher = publish(&[&a, &b], ["s"]);
    let paths =
        ["/live/previews/s.png", "/live/previews/s.jpg?token=a", "/live/rest/v2/broadcasts/s/snapshot"];
    for path in paths {
        assert_eq!(sent_to(&b, "GET", path, None), (302, format!("http://{}{path}", a.http)), "{path}");
        assert_eq!(sent_to(&a, "GET", path, None), (404, String::new()), "{path}");
    }
    assert_eq!(sent_to(&b, "GET", "/live/previews/none.png", None), (404, String::new()));
    let player = Player::start(b.rtmp, "live", "s");
    wait_for("a copy", secs(20), || player.media() > 10);
    for path in paths {
        assert_eq!(sent_to(&b, "GET", path, None), (404, String::new()), "{path}");
    }
}

/// Messages of a publisher and of the API reach the data channels of viewers at another node, text as text and bytes as
/// bytes.
#[test]
fn messages_reach_the_data_channels_of_viewers_at_another_node() {
    let redis = Redis::start();
    let (a, b) = (node(&redis, "a"), node(&redis, "b"));
    let mut publisher = RtcClient::publish_with_data(&a, "cam");
    publisher.run_until("the keys", secs(20), |publisher| publisher.connected);
    publisher.run_until("the stream", secs(20), |_| is_broadcasting(&b, "cam"));
    let mut viewers = [&a, &b].map(|server| RtcClient::play_with_data(server, "cam"));
    publisher.run_until("viewers", secs(40), |_| {
        viewers.iter_mut().all(|viewer| {
            viewer.step();
            viewer.frames > 10 && viewer.is_open()
        })
    });
    let long = vec![b'x'; 200_000];
    assert!(publisher.say(true, b"a text") && publisher.say(false, &long));
    publisher.run_until("the publisher's messages", secs(40), |_| {
        viewers.iter_mut().all(|viewer| {
            viewer.step();
            viewer.talk.messages.len() >= 2
        })
    });
    // The call is made at the node that has a copy.
    assert_eq!(b.api().post(&broadcasts("/cam/data"), "of the api").json()["success"], true);
    publisher.run_until("the message of the API", secs(40), |_| {
        viewers.iter_mut().all(|viewer| {
            viewer.step();
            viewer.talk.messages.len() >= 3
        })
    });
    for viewer in &viewers {
        let messages: Vec<(bool, &[u8])> =
            viewer.talk.messages.iter().map(|(is_text, message)| (*is_text, &message[..])).collect();
        assert!(messages == [(true, &b"a text"[..]), (false, &long[..]), (true, &b"of the api"[..])]);
    }
}
