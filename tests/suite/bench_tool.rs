//! The load generator against the server: `docs/bench.md`.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Server, secs, wait_for};

/// A generator that publishes until it is dropped.
struct Publisher(Child);

impl Publisher {
    fn start(server: &Server, url: &str, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(["bench", "publish", "--url", url, "--duration", "60", "--json"]).args(options);
        let publisher = Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        // The generator begins its streams one after another, and players of the last one do not try again.
        let count =
            options.windows(2).find(|pair| pair[0] == "--count").map_or(1, |pair| pair[1].parse().unwrap());
        wait_for("the publishers", secs(30), || {
            let list = server.api().get("/live/rest/v2/broadcasts/list/0/50").body;
            list.matches(r#""status":"broadcasting""#).count() >= count
        });
        publisher
    }

    /// Ends the generator with SIGINT, and returns its report.
    fn stop(self) -> Value {
        let status = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Plays for three seconds. Returns the report, and true if the exit code was 0.
fn play(url: &str, options: &[&str]) -> (Value, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.args(["bench", "play", "--url", url, "--duration", "3", "--json"]).args(options);
    let output = command.stderr(Stdio::null()).output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (report, output.status.success())
}

fn check_players(report: &Value, count: u64) {
    assert_eq!(report["connections"]["ready"], count, "{report}");
    for (object, member) in [("connections", "lost"), ("connections", "failed"), ("units", "lost")] {
        assert_eq!(report[object][member], 0, "{object}.{member} in {report}");
    }
    assert_eq!(report["ok"], true);
    let units = |kind: &str| report["units"][kind].as_u64().unwrap();
    // Of 30 video and 47 audio frames per second, two seconds must arrive within the three seconds of playing. On a
    // busy machine, units are late, but none are missing.
    assert!(units("video") > count * 60 && units("audio") > count * 90, "{report}");
    assert_eq!(units("stamped"), units("video") + units("audio"), "{report}");
    for member in ["first_frame_ms", "latency_video_ms", "latency_audio_ms"] {
        assert!(report[member]["p50"].as_f64().unwrap() > 0.0, "{member} in {report}");
    }
}

#[test]
fn publishers_and_players_of_rtmp_lose_nothing() {
    let server = Server::start(&[]);
    let url = server.rtmp_url("live/s{n}");
    let publisher = Publisher::start(&server, &url, &["--count", "2", "--bitrate", "1000"]);
    let pid = server.pid().to_string();
    let (report, ok) =
        play(&url, &["--count", "6", "--streams", "2", "--threads", "2", "--server-pid", &pid]);
    assert!(ok);
    check_players(&report, 6);
    assert!(report["server"]["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{report}");
    // Six players of 1 Mb/s each, with headers.
    let rate = report["bits_per_second"].as_f64().unwrap();
    assert!((5e6..8e6).contains(&rate), "{report}");
    let published = publisher.stop();
    assert_eq!(published["connections"]["ready"], 2, "{published}");
    assert!(published["behind_ms"]["p50"].is_number() && published["latency_video_ms"].is_null());
    assert!(!published.to_string().contains("s{n}"), "the stream's name may be a key");
}

#[test]
fn players_of_flv_over_http_tls_and_websocket_lose_nothing() {
    let server = Server::start(&[]);
    let publisher = Publisher::start(&server, &server.rtmp_url("live/s0"), &[]);
    let https = server.https.unwrap();
    for (url, protocol) in [
        (format!("http://{}/live/s{{n}}.flv", server.http), "flv"),
        (format!("https://{https}/live/s{{n}}.flv"), "flv"),
        (format!("ws://{}/live/s{{n}}.flv", server.http), "ws-flv"),
        (format!("wss://{https}/live/s{{n}}.flv"), "ws-flv"),
    ] {
        let (report, ok) = play(&url, &["--count", "4", "--insecure"]);
        assert!(ok, "{url}: {report}");
        assert_eq!(report["protocol"], protocol);
        check_players(&report, 4);
    }
    let (report, ok) = play(&format!("http://{}/live/nobody.flv", server.http), &["--duration", "1"]);
    assert!(!ok && report["reasons"][0]["reason"].as_str().unwrap().contains("404"), "{report}");
    // The server's certificate is not signed by a known authority.
    let (report, ok) = play(&format!("https://{https}/live/s0.flv"), &["--duration", "1"]);
    assert!(!ok && report["reasons"][0]["reason"].as_str().unwrap().contains("certificate"), "{report}");
    publisher.stop();
}

#[test]
fn publishers_of_whip_and_players_of_whep_lose_nothing_and_leave_nothing() {
    let server = Server::start(&[]);
    let url = |way: &str| format!("http://{}/live/{way}/s{{n}}", server.http);
    let publisher = Publisher::start(&server, &url("whip"), &["--count", "2", "--bitrate", "1000"]);
    let (report, ok) = play(&url("whep"), &["--count", "4", "--streams", "2"]);
    assert!(ok, "{report}");
    assert_eq!((&report["protocol"], &report["connections"]["ready"]), (&"whep".into(), &4.into()));
    // WebRTC does not carry AAC, so the players get 30 video frames per second and no audio.
    let units = &report["units"];
    assert!(units["video"].as_u64().unwrap() > 4 * 60 && units["audio"] == 0, "{report}");
    assert_eq!(
        (&units["stamped"], &units["lost"], &units["repeated"]),
        (&units["video"], &0.into(), &0.into())
    );
    assert!(report["first_frame_ms"]["p50"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["latency_video_ms"]["p50"].as_f64().unwrap() > 0.0, "{report}");
    // Four players of 1 Mb/s each, minus the audio: padding within the video is sent, too.
    assert!((3e6..5e6).contains(&report["bits_per_second"].as_f64().unwrap()), "{report}");
    let viewers = || {
        let broadcast = server.api().get("/live/rest/v2/broadcasts/s0").json();
        broadcast["webRTCViewerCount"].as_i64().unwrap()
    };
    wait_for("the players' sessions to be deleted", secs(10), || viewers() == 0);
    let published = publisher.stop();
    assert_eq!((&published["protocol"], &published["connections"]["lost"]), (&"whip".into(), &0.into()));
    wait_for("the publishers' sessions to be deleted", secs(10), || {
        !server.api().get("/live/rest/v2/broadcasts/list/0/50").body.contains("\"broadcasting\"")
    });
    let (report, ok) = play(&url("whep"), &["--duration", "1"]);
    assert!(!ok && report["reasons"][0]["reason"].as_str().unwrap().contains("HTTP 409"), "{report}");
}

#[test]
fn participants_of_a_room_see_each_other_or_who_speaks() {
    let room = |settings: &[&str], url: &str, count: u64, turn: &str| {
        let server = Server::start(settings);
        let url = format!("ws://{}/live/websocket?room=r&streamId=p{{n}}{url}", server.http);
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(["bench", "room", "--url", &url, "--count", &count.to_string(), "--json"]);
        command.args(["--duration", "14", "--turn", turn, "--server-pid", &server.pid().to_string()]);
        let output = command.stderr(Stdio::null()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert!(output.status.success(), "{report}");
        assert_eq!((&report["role"], &report["protocol"]), (&"room".into(), &"room".into()));
        assert_eq!(report["connections"]["ready"], 2 * count, "{report}");
        assert_eq!((&report["units"]["lost"], &report["units"]["repeated"]), (&0.into(), &0.into()));
        let [units, packets] = [&report["units"]["video"], &report["packets"]].map(|n| n.as_u64().unwrap());
        assert!(packets > units && report["server"]["cpu_us_per_packet"].is_number(), "{report}");
        assert!(report["room"]["rss_bytes_per_participant"].as_f64().unwrap() > 0.0, "{report}");
        report
    };
    // Without a limit, each participant gets 30 frames per second from each of the two others, whoever speaks.
    let report = room(&[], "", 3, "1");
    assert!(report["units"]["video"].as_u64().unwrap() > 3 * 2 * 250, "{report}");
    assert!(report["room"]["seen_before"].as_u64().unwrap() >= 3 && report["room"]["switches"] == 0);
    // With a limit of one video, each new speaker causes a switch for the participants that do not see it yet.
    let one = ["app.maxVideoTrackCount=1", "app.maxAudioTrackCount=1"];
    let report = room(&one, "", 3, "4");
    assert!(report["units"]["video"].as_u64().unwrap() < 3 * 2 * 300, "{report}");
    assert!(report["room"]["switches"].as_u64().unwrap() >= 1, "{report}");
    assert!(report["room"]["switch_ms"]["p50"].is_number(), "{report}");
    // The players request the same limit themselves.
    let report = room(&[], "&loudest=1", 3, "0");
    assert!(report["units"]["video"].as_u64().unwrap() < 3 * 2 * 300, "{report}");
    assert_eq!((&report["room"]["switches"], &report["room"]["seen_before"]), (&0.into(), &0.into()));
    let server = Server::start(&["app.webRTCEnabled=false"]);
    let url = format!("ws://{}/live/websocket?room=r&streamId=p", server.http);
    let (report, ok) = play(&url, &["--duration", "1"]);
    assert!(!ok && report["reasons"][0]["reason"] == "the server: no_stream_exist", "{report}");
}

#[test]
fn publishers_and_players_of_rtsp_lose_nothing_over_the_connection_and_over_datagrams() {
    let server = Server::start(&[]);
    for (way, options) in [("tcp", &[][..]), ("udp", &[]), ("tls", &["--insecure"])] {
        let url = match way {
            "tls" => format!("rtsps://{}/live/tls{{n}}", server.rtsps.unwrap()),
            _ => server.rtsp_url(&format!("live/{way}{{n}}?{way}")),
        };
        let publish = [&["--count", "2", "--bitrate", "1000"], options].concat();
        let publisher = Publisher::start(&server, &url, &publish);
        wait_for("both publishers", secs(10), || {
            server.api().broadcast("live", &format!("{way}1")).is_some()
        });
        let (report, ok) = play(&url, &[&["--count", "4", "--streams", "2"], options].concat());
        assert!(ok, "{way}: {report}");
        assert_eq!(report["protocol"], "rtsp");
        check_players(&report, 4);
        let published = publisher.stop();
        assert_eq!(published["connections"]["ready"], 2, "{way}: {published}");
    }
}

#[test]
fn viewers_of_hls_get_every_segment_and_with_low_latency_every_part() {
    let server = Server::start(&["app.hlsEnableLowLatency=true"]);
    let _publisher = Publisher::start(&server, &server.rtmp_url("live/s0"), &["--bitrate", "500"]);
    let options = ["--count", "20", "--late", "10000", "--connect-timeout", "20"];
    for (name, protocol, parts_of_three_seconds) in
        [("s{n}.m3u8", "hls", None), ("ll-hls/s{n}/s{n}__master.m3u8", "ll-hls", Some(20 * 5))]
    {
        let url = format!("http://{}/live/streams/{name}", server.http);
        let (report, ok) = play(&url, &options);
        assert!(ok, "{report}");
        assert_eq!((&report["protocol"], &report["connections"]["ready"]), (&protocol.into(), &20.into()));
        let units = &report["units"];
        assert_eq!((&units["lost"], &units["repeated"], &units["late"]), (&0.into(), &0.into(), &0.into()));
        let [video, audio] = ["video", "audio"].map(|kind| units[kind].as_u64().unwrap());
        assert_eq!(units["stamped"], video + audio, "{report}");
        // A segment lasts two seconds, and a part a third of a second.
        assert!(video >= parts_of_three_seconds.unwrap_or(20), "{report}");
        assert_eq!(audio >= parts_of_three_seconds.unwrap_or(1), protocol == "ll-hls", "{report}");
        for member in ["first_frame_ms", "playlist_ms", "latency_video_ms"] {
            assert!(report[member]["p50"].as_f64().unwrap() > 0.0, "{member} in {report}");
        }
    }
}

#[test]
fn publishers_of_rtmps_and_of_a_file() {
    let server = Server::start(&[]);
    let file = server.home().join("clip.flv");
    std::fs::write(&file, millstream::bench::SAMPLE).unwrap();
    let url = format!("rtmps://{}/live/safe", server.rtmps.unwrap());
    let publisher = Publisher::start(&server, &url, &["--insecure", "--file", file.to_str().unwrap()]);
    let (report, ok) = play(&url, &["--insecure"]);
    assert!(ok, "{report}");
    check_players(&report, 1);
    publisher.stop();
}

#[test]
fn what_cannot_be_played_is_a_failure_with_its_reason() {
    let server = Server::start(&[]);
    let (report, ok) = play(&server.rtmp_url("live/nobody"), &["--count", "3", "--duration", "1"]);
    assert!(!ok);
    assert_eq!(report["connections"]["failed"], 3, "{report}");
    let reason = report["reasons"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("StreamNotFound"), "{reason}");
    let (report, ok) = play("rtmp://127.0.0.1:1/live/a", &["--duration", "1"]);
    assert!(!ok && report["reasons"][0]["reason"].as_str().unwrap().contains("refused"), "{report}");
}

#[test]
fn a_server_that_goes_is_a_lost_connection() {
    let mut server = Server::start(&[]);
    let url = server.rtmp_url("live/gone");
    let publisher = Publisher::start(&server, &url, &[]);
    let viewer = std::thread::spawn(move || play(&url, &["--duration", "5"]));
    std::thread::sleep(secs(3));
    server.kill();
    let (report, ok) = viewer.join().unwrap();
    assert!(!ok);
    assert_eq!(
        (&report["connections"]["ready"], &report["connections"]["lost"]),
        (&1.into(), &1.into()),
        "{report}"
    );
    let mut publisher = publisher;
    let _ = publisher.0.kill();
    let _ = publisher.0.wait();
}

#[test]
fn a_certificate_replaced_under_200_tls_viewers_drops_none_of_them() {
    let server = Server::start(&[]);
    let _publisher = Publisher::start(&server, &server.rtmp_url("live/s"), &["--bitrate", "300"]);
    let https = server.https.unwrap();
    let url = format!("https://{https}/live/s.flv");
    let viewers = std::thread::spawn(move || {
        play(&url, &["--count", "200", "--insecure", "--duration", "8", "--late", "60000"])
    });
    wait_for("the viewers", secs(30), || {
        server.api().broadcast("live", "s").is_some_and(|broadcast| broadcast["rtmpViewerCount"] == 200)
    });
    let conf = server.home().join("home/conf");
    for round in 1..=2 {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![format!("round-{round}.example")]).unwrap();
        std::fs::write(conf.join("fullchain.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(conf.join("privkey.pem"), key.serialize_pem()).unwrap();
        server.signal("HUP");
        wait_for("the new certificate", secs(10), || {
            server.log().matches("certificate loaded").count() >= round
        });
    }
    // A new client gets the new certificate.
    let (report, ok) = play(&format!("https://{https}/live/s.flv"), &["--count", "5", "--insecure"]);
    assert!(ok, "{report}");
    let (report, ok) = viewers.join().unwrap();
    assert!(ok, "{report}");
    let connections = &report["connections"];
    assert_eq!((&connections["ready"], &connections["lost"]), (&200.into(), &0.into()), "{report}");
    assert_eq!(report["units"]["lost"], 0, "{report}");
}
