//! Log lines that an operator looks for: who was refused and why, why a session ended, and which ports are open to
//! which addresses.

use std::io::{Read, Write};
use std::net::TcpStream;

use sdp::Direction;

use crate::support::{
    Home, Knock, Player, Publisher, RtmpPeer, Server, connect_from, h264_section, offer_to, rtc_peer, secs,
    wait_for,
};

/// Returns the lines of the log that contain all of these words.
fn said<'a>(log: &'a str, words: &[&str]) -> Vec<&'a str> {
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).collect()
}

/// Sends an RTSP request, and returns the head of the answer.
fn rtsp(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.rtsp.unwrap()).unwrap();
    stream.set_read_timeout(Some(secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut block) = (Vec::new(), [0; 4096]);
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut block).unwrap();
        assert!(read > 0, "closed behind {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&block[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asks to publish or to play `app/id` over each protocol.
fn ask_all(server: &Server, app: &str) {
    let key = |id: &str| format!("{app}/{id}");
    assert!(RtmpPeer::publish(server.rtmp, app, "rtmp-pub").is_err());
    assert!(RtmpPeer::play(server.rtmp, app, "rtmp-play").is_err());
    let srt = server.srt.unwrap();
    assert!(Knock::new(&key("srt-pub")).connect(srt).is_err());
    assert!(Knock::new(&format!("#!::r={},m=request", key("srt-play"))).connect(srt).is_err());
    let body = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                a=control:streamid=0\r\n";
    let announce = format!(
        "ANNOUNCE rtsp://h/{} RTSP/1.0\r\nCSeq: 1\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        key("rtsp-pub"),
        body.len()
    );
    let describe = format!("DESCRIBE rtsp://h/{} RTSP/1.0\r\nCSeq: 1\r\n\r\n", key("rtsp-play"));
    for request in [announce, describe] {
        let answer = rtsp(server, &request);
        assert!(answer.starts_with("RTSP/1.0 40"), "{answer}");
    }
    assert_ne!(server.api().get(&format!("/{}.flv", key("flv-play"))).status, 200);
    for (path, direction) in [("whip/whip-pub", Direction::SendOnly), ("whep/whep-play", Direction::RecvOnly)]
    {
        let offer = rtc_peer().offer(&h264_section(direction)).unwrap().write();
        assert!(offer_to(server, &format!("/{app}/{path}"), &offer).status >= 400, "{path}");
    }
}

#[test]
fn a_refusal_names_stream_peer_and_reason_over_every_protocol() {
    let server = Server::start(&["app.publishTokenControlEnabled=true", "app.playTokenControlEnabled=true"]);
    ask_all(&server, "live");
    server.api().get("/live/streams/hls-play.m3u8");
    server.wait_for_line("key=live/hls-play");
    server.wait_for_line("key=live/whep-play");
    for protocol in ["rtmp", "srt", "rtsp", "whip"] {
        let (key, peer) = (format!("key=live/{protocol}-pub "), "peer=127.0.0.1:");
        let log = server.log_with(key.trim_end());
        let words = ["publisher refused", &key, peer, "the one-time token is not valid"];
        assert_eq!(said(&log, &words).len(), 1, "{protocol}: {log}");
    }
    for protocol in ["rtmp", "srt", "rtsp", "flv", "whep", "hls"] {
        let (key, peer) = (format!("key=live/{protocol}-play "), "peer=127.0.0.1:");
        let log = server.log_with(key.trim_end());
        let name = if protocol == "flv" { "http" } else { protocol };
        let name = if protocol == "whep" { "webrtc" } else { name };
        let name = format!("protocol=\"{name}\"");
        let words = ["viewer refused", &key, &name, peer, "the one-time token is not valid"];
        assert_eq!(said(&log, &words).len(), 1, "{protocol}: {log}");
    }
    // The line about the end of the session states the same reason.
    let ends = || said(&server.log(), &["session ended", "refused: the one-time token is not valid"]).len();
    wait_for("the ends", secs(10), || ends() >= 6);
    assert!(!server.log().contains("a request was refused"), "{}", server.log());
}

#[test]
fn a_refusal_by_a_session_alone_is_told_too() {
    let server = Server::start(&[]);
    ask_all(&server, "nowhere");
    let url = "rtsp://h/live/.hidden";
    rtsp(&server, &format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n"));
    let offer = rtc_peer().offer(&h264_section(Direction::RecvOnly)).unwrap().write();
    assert_eq!(offer_to(&server, "/live/whip/whip-bad", &offer).status, 400);
    rtsp(&server, "DESCRIBE rtsp://h/live/.other/canary RTSP/1.0\r\nCSeq: 1\r\n\r\n");
    assert!(Knock::new("no stream id").connect(server.srt.unwrap()).is_err());
    let reason = "no such application";
    for words in [
        &["peer refused", "protocol=\"rtmp\"", "key=nowhere ", reason][..],
        &["publisher refused", "nowhere/srt-pub", reason],
        &["viewer refused", "nowhere/srt-play", reason],
        &["publisher refused", "nowhere/rtsp-pub", reason],
        &["viewer refused", "nowhere/rtsp-play", "no such stream is live"],
        &["publisher refused", "nowhere/whip-pub", reason],
        &["viewer refused", "nowhere/whep-play", "no such stream is live"],
        &["publisher refused", "live/whip-bad", "no section goes the right way"],
        &["viewer refused", "live/.hidden", "is not that of a stream"],
        &["peer refused", "protocol=\"srt\"", "no stream id", "cannot be read"],
    ] {
        let words: Vec<&str> = words.iter().copied().chain(["peer=127.0.0.1:"]).collect();
        // Over RTMP, the application is refused both to the publisher and to the player, so there are two lines.
        let lines = if words.contains(&"key=nowhere ") { 2 } else { 1 };
        wait_for(&words.join(" "), secs(10), || said(&server.log(), &words).len() == lines);
    }
    server.wait_for_line("live/.other");
    assert!(!server.log().contains("canary"), "behind the id there may be a credential");
}

#[test]
fn a_stop_and_the_end_of_the_server_are_reasons_of_their_own() {
    let mut server = Server::start(&[]);
    let begin = |id: &str| {
        let publisher = Publisher::start(server.rtmp, "live", id);
        let player = Player::start(server.rtmp, "live", id);
        wait_for("the video", secs(20), || player.units() > 5);
        (publisher, player)
    };
    let stopped = begin("stopped");
    server.api().post("/live/rest/v2/broadcasts/stopped/stop", "");
    let ends = |id: &str, reason: &str| {
        let key = format!("key=live/{id}");
        said(&server.log(), &["session ended", &key, &format!("reason=\"{reason}\"")]).len()
    };
    wait_for("both ends", secs(10), || ends("stopped", "stopped on request") == 2);
    let drained = begin("drained");
    drop(stopped);
    let home = server.home().join("home/log/millstream.log");
    assert!(server.terminate().success());
    let log = std::fs::read_to_string(home).unwrap();
    let words = ["session ended", "key=live/drained", "reason=\"the server is shutting down\""];
    assert_eq!(said(&log, &words).len(), 2, "{log}");
    drop(drained);
}

#[test]
fn viewers_of_hls_have_a_peer_and_sessions_within_the_server_have_none() {
    // Uses one worker, because each worker counts viewers separately.
    let server = Server::start(&["server.workers=1"]);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    let path = "/live/streams/s.m3u8";
    wait_for("the playlist", secs(30), || server.api().get(path).status == 200);
    server.api().get(path);
    server.wait_for_line("protocol=\"hls\" peer=127.0.0.1:");
    let log = server.log();
    assert_eq!(said(&log, &["viewer started", "key=live/s", "protocol=\"hls\""]).len(), 1, "{log}");
    server.wait_for_line("viewer ended key=live/s");
    let log = server.log();
    let ended = ["viewer ended", "protocol=\"hls\"", "peer=127.0.0.1", "reason=\"no request for 10 s\""];
    assert_eq!(said(&log, &ended).len(), 1, "{log}");
    server.api().get(path);
    publisher.stop();
    wait_for("the ends", secs(10), || said(&server.log(), &["session ended", "key=live/s"]).len() >= 2);
    let ended = ["viewer ended", "key=live/s", "reason=\"the stream has ended\""];
    wait_for("the viewer's end", secs(10), || said(&server.log(), &ended).len() == 1);
    assert!(!server.log().contains("peer=0.0.0.0"), "{}", server.log());
}

/// The status of a request from an address of this machine.
fn status_from(server: &Server, address: &str, path: &str) -> String {
    let mut stream = connect_from(address, server.http);
    let host = server.http;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn a_refused_address_is_told_once_with_the_setting_that_admits_it() {
    let server = Server::start(&["server.allowed_dashboard_CIDR=127.0.0.1"]);
    let api = "/live/rest/v2/broadcasts/count";
    for _ in 0..3 {
        for (address, path, status) in [
            ("127.0.0.1", api, "200"),
            ("127.0.0.2", api, "403"),
            ("127.0.0.3", api, "403"),
            ("127.0.0.2", "/LiveApp/rest/v2/broadcasts/count", "403"),
            ("127.0.0.2", "/rest/v2/applications", "403"),
        ] {
            assert_eq!(status_from(&server, address, path), status, "{address} {path}");
        }
    }
    server.wait_for_line("server.allowed_dashboard_CIDR does not contain");
    let log = server.log();
    let refused = said(&log, &[" WARN ", "API ", "refused"]);
    assert_eq!(refused.len(), 4, "{log}");
    for words in [
        &["application=\"live\"", "client=127.0.0.2", "remoteAllowedCIDR"][..],
        &["application=\"live\"", "client=127.0.0.3", "remoteAllowedCIDR"],
        &["application=\"LiveApp\"", "client=127.0.0.2", "remoteAllowedCIDR"],
        &["client=127.0.0.2", "server.allowed_dashboard_CIDR"],
    ] {
        assert_eq!(said(&log, words).len(), 1, "{words:?} {log}");
    }
}

/// Checks a home that was an installation of another server.
#[test]
fn keys_of_another_server_are_one_line_and_a_bad_application_stops_alone() {
    let home = Home::new();
    let folder = home.path().join("home");
    let foreign = |many: usize| (0..many).map(|n| format!("rtmpt.some_{n}=1\n")).collect::<String>();
    let write = |path: &str, text: String| {
        let file = folder.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    // The old configuration has many keys that this server does not know.
    write("conf/red5.properties", foreign(46) + "rtmp.port=1935\nrtmpt.port=8088\n");
    write("webapps/LiveApp/WEB-INF/red5-web.properties", foreign(44) + "gopCache=true\ngopCache=false\n");
    write("webapps/old/WEB-INF/red5-web.properties", "remoteAllowedCIDR=nonsense\n".to_owned());
    let server = Server::start_in(&folder, &[]);
    let log = || std::fs::read_to_string(folder.join("log/millstream.log")).unwrap_or_default();
    wait_for("the log", secs(10), || log().contains("listening"));
    let text = log();
    let warnings: Vec<&str> = text.lines().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(said(&text, &["91 keys of the settings files are unknown here"]).len(), 1, "{warnings:#?}");
    assert_eq!(
        said(&text, &["LiveApp/WEB-INF/red5-web.properties, line 46: gopCache was given"]).len(),
        1,
        "{text}"
    );
    assert!(warnings.len() <= 3 && said(&text, &["did you mean"]).is_empty(), "{warnings:#?}");
    assert_eq!(
        said(&text, &[" ERROR ", "old", "remoteAllowedCIDR", "application not started"]).len(),
        1,
        "{text}"
    );
    let count = |app: &str| server.api().get(&format!("/{app}/rest/v2/broadcasts/count")).status;
    assert_eq!((count("LiveApp"), count("old")), (200, 404));
    // The home remembers the bad application, because without its settings file it would run with open defaults.
    let known = std::fs::read_to_string(folder.join("conf/applications.txt")).unwrap();
    assert!(known.ends_with("\nLiveApp\nold\n"), "{known}");
}
