//! Hooks with real receivers: the order of hooks, retries, and receivers that misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use crate::publish_play::is_broadcasting;
use crate::support::{
    Bystander, Knock, Manner, Over, Program, Publisher, Receiver, RtcClient, RtmpPeer, Server, goodbye,
    media_file, secs, wait_for,
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

/// Sends a request, waits for the beginning of the answer, and returns the open connection.
fn get(server: &Server, path: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_read_timeout(Some(secs(20))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    stream
}

/// Starts to watch `live/s` over a protocol. The returned function stops watching; over HLS and DASH it does nothing,
/// because a viewer is gone when it sends no more requests.
fn viewer<'a>(server: &'a Server, protocol: &str) -> Box<dyn FnOnce() + 'a> {
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    match protocol {
        "RTMP" => {
            let peer = RtmpPeer::play(server.rtmp, "live", "s").unwrap();
            Box::new(move || drop(peer))
        }
        "HTTP-FLV" | "WS-FLV" => {
            let fields = if protocol == "WS-FLV" { upgrade } else { "" };
            let stream = get(server, "/live/s.flv", fields);
            Box::new(move || drop(stream))
        }
        "SRT" => {
            let (socket, id) = Knock::new("#!::r=live/s,m=request").open(server.srt.unwrap());
            Box::new(move || {
                socket.send(&goodbye(id)).unwrap();
            })
        }
        "RTSP" => {
            let mut command = Command::new("ffmpeg");
            command.args(["-nostdin", "-rtsp_transport", "tcp", "-i", &server.rtsp_url("live/s")]);
            let program = Program::start(command.args(["-f", "null", "-"]));
            Box::new(move || drop(program))
        }
        "WebRTC" => {
            let client = RtcClient::play(server, "s", Over::Udp);
            Box::new(move || drop(server.api().call("DELETE", &client.path_of_session(), None)))
        }
        "HLS" => watch(server, "/live/streams/s.m3u8"),
        "DASH" => watch(server, "/live/streams/s/s.mpd"),
        other => panic!("{other}"),
    }
}

/// Requests a playlist or manifest until it is available.
fn watch<'a>(server: &'a Server, path: &str) -> Box<dyn FnOnce() + 'a> {
    wait_for(path, secs(30), || server.api().get(path).status == 200);
    Box::new(|| ())
}

#[test]
fn viewers_are_told_over_every_protocol() {
    let receiver = Receiver::start(Manner::Status(200));
    let server = Server::start(&[
        &format!("app.listenerHookURL={}", receiver.url("hook")),
        "app.dashMuxingEnabled=true",
    ]);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    receiver.wait_for("hook", "liveStreamStarted s");
    let count = |action: &str| {
        let action = format!("{action} s");
        receiver.actions("hook").iter().filter(|told| **told == action).count()
    };
    let protocols = ["RTMP", "HTTP-FLV", "WS-FLV", "SRT", "RTSP", "WebRTC", "HLS", "DASH"];
    for (protocol, before) in protocols.iter().zip(0..) {
        let stop = viewer(&server, protocol);
        wait_for(&format!("{protocol}: the start"), secs(30), || count("playStarted") == before + 1);
        assert_eq!(count("playStopped"), before, "{protocol}");
        stop();
        // Over HLS and DASH a viewer is gone ten seconds after its last request.
        wait_for(&format!("{protocol}: the end"), secs(40), || count("playStopped") == before + 1);
    }
    assert_eq!(count("playStarted"), protocols.len());
    publisher.stop();
}

/// Publishes `live/NAME` until the returned value is dropped.
fn publisher(server: &Server, protocol: &str, name: &str) -> Program {
    let key = format!("live/{name}");
    let (format, url) = match protocol {
        "RTMP" => ("flv", server.rtmp_url(&key)),
        "SRT" => ("mpegts", format!("srt://{}?streamid={key}", server.srt.unwrap())),
        "RTSP" => ("rtsp", server.rtsp_url(&key)),
        other => panic!("{other}"),
    };
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-re", "-stream_loop", "-1", "-i"]).arg(media_file(false, 2));
    Program::start(command.args(["-c", "copy", "-f", format, &url]))
}

#[test]
fn publishers_are_told_over_every_protocol() {
    let receiver = Receiver::start(Manner::Status(200));
    let server = Server::start(&[
        &format!("app.listenerHookURL={}", receiver.url("hook")),
        "app.publisherGraceMs=200",
    ]);
    for protocol in ["RTMP", "SRT", "RTSP"] {
        let encoder = publisher(&server, protocol, protocol);
        receiver.wait_for("hook", &format!("liveStreamStarted {protocol}"));
        encoder.signal("INT");
        drop(encoder);
        receiver.wait_for("hook", &format!("liveStreamEnded {protocol}"));
    }
    let mut browser = RtcClient::publish(&server, "WebRTC", Over::Udp);
    let is_told = |action: &str| receiver.actions("hook").contains(&format!("{action} WebRTC"));
    browser.run_until("the start", secs(30), |_| is_told("liveStreamStarted"));
    server.api().call("DELETE", &browser.path_of_session(), None);
    receiver.wait_for("hook", "liveStreamEnded WebRTC");
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
    // The silent receiver times out after 5 s for each of its two hooks. The huge answer is not read to its end.
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
    wait_for("a line about it", secs(20), || server.log().contains("hook call lost"));
    assert!(RtmpPeer::play(server.rtmp, "live", "s?token=canary").is_err());
    wait_for("a line about it", secs(20), || server.log().contains("viewer refused"));
    publisher.stop();
    let log = server.log_with("http://127.0.0.1:1/hook/***");
    assert!(!log.contains("canary"), "{log}");
}

fn metric(server: &Server, name: &str) -> u64 {
    let page = server.api().get("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("millstream_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse::<f64>().unwrap() as u64
}
