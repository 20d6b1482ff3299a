//! Hooks with real receivers: order, retries, and receivers that misbehave.

use serde_json::Value;

use crate::publish_play::is_broadcasting;
use crate::support::{
    Bystander, Manner, Program, Publisher, Receiver, RtmpPeer, Server, media_file, secs, wait_for,
};

#[test]
fn a_stream_of_a_real_encoder_is_told_from_its_start_to_its_end() {
    let receiver = Receiver::start(Manner::Status(200));
    let server = Server::start(&[
        &format!("app.listenerHookURL={}", receiver.url("hook")),
        "app.webhookStreamStatusUpdatePeriodMs=500",
        "app.publisherGraceMs=500",
    ]);
    server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s","name":"N","maxIdleTime":1}"#);
    let encoder =
        Program::ffmpeg_publish(&media_file(false, 2), &server.rtmp_url("live/s?subscriberId=cam&x=1"));
    receiver.wait_for("hook", "liveStreamStarted s");
    let started = receiver.told("hook").remove(0);
    assert_eq!(started["streamName"], "N");
    assert_eq!((started["subscriberId"].as_str(), started["x"].as_str()), (Some("cam"), Some("1")));
    assert!(started["timestamp"].is_string() && started["app"] == "live");
    let viewer = RtmpPeer::play(server.rtmp, "live", "s?subscriberId=alice").unwrap();
    receiver.wait_for("hook", "playStarted s");
    drop(viewer);
    receiver.wait_for("hook", "playStopped s");
    receiver.wait_for("hook", "liveStreamStatus s");
    let status = receiver.told("hook").into_iter().find(|told| told["action"] == "liveStreamStatus").unwrap();
    assert!(status["timestamp"].is_i64() && status["app"] == Value::Null, "{status}");
    drop(encoder);
    receiver.wait_for("hook", "liveStreamEnded s");
    receiver.wait_for("hook", "idleTimeIsExpired s");
    let mut actions = receiver.actions("hook");
    actions.retain(|action| action != "liveStreamStatus s");
    assert_eq!(
        actions,
        ["liveStreamStarted s", "playStarted s", "playStopped s", "liveStreamEnded s", "idleTimeIsExpired s"]
    );
}

#[test]
fn u_36_order_is_kept_through_refusals() {
    let receiver = Receiver::start(Manner::Status(503));
    let server = Server::start(&[
        &format!("app.listenerHookURL={}", receiver.url("hook")),
        "app.webhookRetryCount=100",
        "app.webhookRetryAttemptDelay=50",
    ]);
    for round in 0..3 {
        let publisher = Publisher::start(server.rtmp, "live", "s");
        wait_for("the start to be told", secs(10), || metric(&server, "hooks_waiting") == 2 * round + 1);
        publisher.stop();
        wait_for("the end to be told", secs(10), || metric(&server, "hooks_waiting") == 2 * round + 2);
    }
    wait_for("some tries", secs(20), || receiver.told("hook").len() > 3);
    receiver.behave(Manner::Status(200));
    wait_for("all", secs(30), || metric(&server, "hooks_waiting") == 0);
    let mut actions = receiver.actions("hook");
    actions.dedup();
    let life = ["liveStreamStarted s", "liveStreamEnded s"];
    assert_eq!(actions, [life, life, life].concat());
    assert!(metric(&server, "hooks_total{result=\"sent\"}") >= 6);
}

#[test]
fn u_36_bad_receivers_hold_up_nothing() {
    let silent = Receiver::start(Manner::Silent);
    let huge = Receiver::start(Manner::Huge);
    let away = Receiver::start(Manner::Redirect);
    let good = Receiver::start(Manner::Status(200));
    let mut server = Server::start(&["app.publisherGraceMs=0"]);
    let bystander = Bystander::start(&server);
    let urls = [
        silent.url("hook"),
        huge.url("hook"),
        away.url("hook"),
        "http://127.0.0.1:1/".into(),
        good.url("hook"),
    ];
    for (n, url) in urls.iter().enumerate() {
        let body = format!(r#"{{"streamId":"s{n}","listenerHookURL":"{url}"}}"#);
        assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", &body).status, 200);
    }
    let publishers: Vec<_> =
        (0..5).map(|n| Publisher::start(server.rtmp, "live", &format!("s{n}"))).collect();
    good.wait_for("hook", "liveStreamStarted s4");
    wait_for("all to be live", secs(20), || (0..5).all(|n| is_broadcasting(&server, &format!("s{n}"))));
    wait_for("all to be told", secs(20), || {
        let told =
            ["sent", "failed"].map(|result| metric(&server, &format!("hooks_total{{result=\"{result}\"}}")));
        told.iter().sum::<u64>() + metric(&server, "hooks_waiting") >= 5
    });
    publishers.into_iter().for_each(Publisher::stop);
    good.wait_for("hook", "liveStreamEnded s4");
    // The silent one is given up after 5 s, for each of its two hooks; the huge one is not read to its end.
    wait_for("the rest", secs(40), || metric(&server, "hooks_waiting") == 0);
    assert_eq!(metric(&server, "hooks_total{result=\"sent\"}"), 4, "the good one's and the huge one's");
    assert_eq!(metric(&server, "hooks_total{result=\"failed\"}"), 6);
    assert!(away.told("elsewhere").is_empty());
    bystander.finish(&mut server);
}

#[test]
fn r_42_keys_of_receivers_are_not_in_the_log() {
    let server = Server::start(&[
        "app.listenerHookURL=http://127.0.0.1:1/hook/canary?key=canary",
        "app.webhookPlayAuthUrl=http://127.0.0.1:1/play/canary",
    ]);
    let publisher = Publisher::start(server.rtmp, "live", "s?token=canary");
    wait_for("a line about it", secs(20), || server.log().contains("hook lost"));
    assert!(RtmpPeer::play(server.rtmp, "live", "s?token=canary").is_err());
    wait_for("a line about it", secs(20), || server.log().contains("viewer refused"));
    publisher.stop();
    let log = server.log();
    assert!(!log.contains("canary") && log.contains("http://127.0.0.1:1/hook/***"), "{log}");
}

fn metric(server: &Server, name: &str) -> u64 {
    let page = server.api().get("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("millstream_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse::<f64>().unwrap() as u64
}
