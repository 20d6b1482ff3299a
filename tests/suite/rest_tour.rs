//! Tests the REST API as its clients use it: the calls of the seed document that this server supports, over real
//! connections, with a real stream whose statistics are checked.

use serde_json::{Value, json};

use crate::support::{Player, Publisher, Server, secs, wait_for};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn result(success: bool, message: &Value, data_id: &Value) -> Value {
    json!({"success": success, "message": message, "dataId": data_id, "errorId": 0})
}

#[test]
fn create_read_change_list_and_delete() {
    let server = Server::start(&["server.name=stream.example.org"]);
    let api = server.api();
    let generated = api.post(&format!("{BROADCASTS}/create"), "").json();
    assert_eq!((&generated["status"], &generated["type"]), (&json!("created"), &json!("liveStream")));
    assert!(generated["streamId"].as_str().unwrap().len() >= 16);
    let named =
        api.post(&format!("{BROADCASTS}/create"), r#"{"streamId":"one","name":"First","unknown":1}"#).json();
    assert_eq!((&named["streamId"], &named["name"]), (&json!("one"), &json!("First")));
    let port = server.rtmp.port();
    assert_eq!(named["rtmpURL"], format!("rtmp://stream.example.org:{port}/live/one"));
    assert_eq!(named["originAdress"], named["originAddress"]);

    let again = api.post(&format!("{BROADCASTS}/create"), r#"{"streamId":"one"}"#);
    let taken = "Stream id is already being used. Please change stream id or keep it empty";
    assert_eq!((again.status, again.json()), (400, result(false, &taken.into(), &"".into())));

    assert_eq!(
        api.put(&format!("{BROADCASTS}/one"), r#"{"name":"Changed"}"#).json(),
        result(true, &"".into(), &"".into())
    );
    let read = api.get(&format!("{BROADCASTS}/one"));
    assert_eq!((read.status, &read.json()["name"]), (200, &json!("Changed")));
    assert!(read.head.to_ascii_lowercase().contains("content-type: application/json"), "{}", read.head);
    assert_eq!(api.get(&format!("{BROADCASTS}/nobody")).status, 404);
    assert_eq!(api.get("/nowhere/rest/v2/broadcasts/one").status, 404);
    assert_eq!(api.get(&format!("{BROADCASTS}/count")).json(), json!({"number": 2}));
    let found = api.get(&format!("{BROADCASTS}/list/0/10?search=CHANG")).json();
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(api.get("/live/rest/v2/version").json()["versionName"], env!("CARGO_PKG_VERSION"));

    let gone = api.delete(&format!("{BROADCASTS}/one")).json();
    assert_eq!(gone, result(true, &"broadcast is deleted but could not stopped ".into(), &"".into()));
    assert_eq!(api.delete(&format!("{BROADCASTS}/one")).json(), result(false, &"".into(), &"".into()));
}

#[test]
fn figures_and_counts_follow_the_stream() {
    let server = Server::start(&["server.workers=2"]);
    let api = server.api();
    api.post(&format!("{BROADCASTS}/create"), r#"{"streamId":"live1"}"#);
    let statistics = format!("{BROADCASTS}/live1/broadcast-statistics");
    assert_eq!(api.get(&statistics).json()["totalRTMPWatchersCount"], -1, "not live");
    let publisher = Publisher::start(server.rtmp, "live", "live1");
    let viewers: Vec<_> = (0..5).map(|_| Player::start(server.rtmp, "live", "live1")).collect();
    wait_for("the viewers to be counted", secs(5), || {
        api.get(&statistics).json()["totalRTMPWatchersCount"] == 5
    });
    wait_for("the figures", secs(15), || {
        let broadcast = server.api().broadcast("live", "live1").unwrap();
        broadcast["bitrate"].as_i64().unwrap() > 100_000
            && broadcast["receivedBytes"].as_i64().unwrap() > 100_000
            && (broadcast["width"] == 640 && broadcast["height"] == 360)
            && broadcast["rtmpViewerCount"] == 5
            && broadcast["anyoneWatching"] == true
            && broadcast["publishType"] == "RTMP"
            && broadcast["remoteIp"] == "127.0.0.1"
            && (0.8..1.2).contains(&broadcast["speed"].as_f64().unwrap())
    });
    assert_eq!(api.get(&format!("{BROADCASTS}/active-live-stream-count")).json(), json!({"number": 1}));
    let total = api.get(&format!("{BROADCASTS}/total-broadcast-statistics")).json();
    assert_eq!(total["activeLiveStreamCount"], 1);
    drop(viewers);
    wait_for("the viewers to be gone", secs(5), || {
        api.get(&statistics).json()["totalRTMPWatchersCount"] == 0
    });
    publisher.stop();
    wait_for("the end", secs(5), || server.api().broadcast("live", "live1").unwrap()["status"] == "finished");
}

#[test]
fn stop_and_delete_end_a_live_stream_at_once() {
    let server = Server::start(&[]);
    let api = server.api();
    for (id, end) in [("stopped", "stop"), ("deleted", "delete")] {
        api.post(&format!("{BROADCASTS}/create"), &format!(r#"{{"streamId":"{id}"}}"#));
        let _publisher = Publisher::start(server.rtmp, "live", id);
        let viewer = Player::start(server.rtmp, "live", id);
        wait_for("the video", secs(10), || viewer.units() > 10);
        let reply = if end == "stop" {
            api.post(&format!("{BROADCASTS}/{id}/stop"), "")
        } else {
            api.delete(&format!("{BROADCASTS}/{id}"))
        };
        assert_eq!(reply.json()["success"], true);
        wait_for("the viewer to be told", secs(3), || !viewer.is_playing());
        // Another publisher may use the id immediately.
        let next = Publisher::start(server.rtmp, "live", id);
        next.stop();
    }
    let reply = api.post(&format!("{BROADCASTS}/stopped/stop"), "");
    assert_eq!(reply.json(), result(false, &"".into(), &"".into()));
}

#[test]
fn the_address_filter_is_on_by_default_and_refuses_with_its_words() {
    let server = Server::start(&["app.remoteAllowedCIDR=10.0.0.0/8"]);
    for path in [
        format!("{BROADCASTS}/count"),
        format!("{BROADCASTS}/x;rest/v2/acm"),
        format!("{BROADCASTS}/count?a=rest/v2/acm"),
    ] {
        let refused = server.api().get(&path);
        assert!(matches!(refused.status, 400 | 403), "{path}: {refused:?}");
        assert!(refused.status == 400 || refused.body.contains("Not allowed IP"), "{path}: {refused:?}");
    }
}
