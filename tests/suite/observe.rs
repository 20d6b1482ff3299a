//! The operator's view: `/metrics`, and a log that cannot be flooded.

use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;

use crate::support::{Bystander, Home, Player, Publisher, RtmpPeer, Server, secs, wait_for};

/// Returns the value of a metric with these labels; 0 if there is none.
fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    page.lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

#[test]
fn the_page_counts_what_every_worker_has_done() {
    let server = Server::start(&["server.workers=2", "metrics.per_stream=true"]);
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    let players: Vec<_> = (0..8).map(|_| Player::start(server.rtmp, "live", "s1")).collect();
    wait_for("the video", secs(20), || players.iter().all(|player| player.units() > 100));
    let reply = server.api().get("/metrics");
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("text/plain; version=0.0.4"), "{}", reply.head);
    let page = &reply.body;
    assert!(page.contains("le=\"+Inf\"") && !page.contains("# EOF"));
    let accept =
        [("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")];
    let reply = server.api().call_with("GET", "/metrics", &accept, None);
    assert!(reply.head.contains("application/openmetrics-text; version=1.0.0"), "{}", reply.head);
    assert!(reply.head.contains("Vary: Accept") && reply.body.ends_with("# EOF\n"));
    // The number of viewers is from a report that may be a second old. The other values are current.
    wait_for("the viewers", secs(5), || {
        metric(&server.api().get("/metrics").body, "millstream_viewers", &[]) == 8.0
    });
    assert_eq!(metric(page, "millstream_live_streams", &[]), 1.0);
    let (disk, left) =
        (metric(page, "millstream_disk_bytes", &[]), metric(page, "millstream_disk_usable_bytes", &[]));
    assert!(left > 0.0 && left <= disk, "{left} of {disk}");
    // The server's self-signed certificate is valid until the end of 2049.
    assert_eq!(metric(page, "millstream_certificate_expiry_timestamp_seconds", &[]), 2_524_521_600.0);
    assert_eq!(metric(page, "millstream_sessions", &["protocol=\"rtmp\""]), 9.0);
    assert_eq!(metric(page, "millstream_worker_subscribers", &[]), 8.0);
    assert_eq!(metric(page, "millstream_stream_subscribers", &["stream=\"s1\""]), 8.0);
    let video = ["ingest=\"rtmp\"", "egress=\"rtmp\"", "kind=\"video\""];
    let forwarded = metric(page, "millstream_forwarding_seconds_count", &video);
    assert!(forwarded > 8.0 * 20.0, "{forwarded}");
    let mean = metric(page, "millstream_forwarding_seconds_sum", &video) / forwarded;
    assert!(mean > 0.0 && mean < 5.0, "{mean}");
    let turns = metric(page, "millstream_worker_turn_seconds_count", &[]);
    assert!(turns > 100.0 && metric(page, "millstream_worker_busy_seconds_total", &[]) > 0.0);
    let sent = metric(page, "millstream_sent_bytes_total", &["protocol=\"rtmp\""]);
    assert!(sent > metric(page, "millstream_received_bytes_total", &["protocol=\"rtmp\""]), "{sent}");
}

#[test]
fn the_page_is_for_those_whom_the_operator_names() {
    let server = Server::start(&["metrics.allowed_CIDR=10.0.0.0/8"]);
    assert_eq!(server.api().get("/metrics").status, 403);
    assert_eq!(server.api().post("/metrics", "{}").status, 403);
    let server = Server::start(&[]);
    assert_eq!(server.api().post("/metrics", "{}").status, 405);
    assert_eq!(server.api().get("/metrics").status, 200);
    let spoofed = crate::support::raw_exchange(
        server.http,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.1.1.1\r\nConnection: close\r\n\r\n",
    );
    assert!(spoofed.starts_with(b"HTTP/1.1 403"), "a proxy that nobody has named is not this machine");
}

#[test]
fn q_06_a_flood_of_one_kind_of_line_is_cut_to_a_hundred_a_second() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let began = Instant::now();
    for _ in 0..3000 {
        // Each of these sessions would log a line about its end.
        TcpStream::connect(server.rtmp).unwrap().write_all(b"\x09 no RTMP").unwrap();
    }
    wait_for("the lines", secs(20), || server.log().matches("session ended").count() >= 100);
    let rows = |server: &Server| server.log().matches("session ended").count();
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!(rows(&server) <= 100 * seconds, "{} lines in {seconds} s", rows(&server));
    bystander.finish(&mut server);
    if rows(&server) < 3000 {
        // The next line of this kind reports that lines were left out.
        std::thread::sleep(secs(1));
        TcpStream::connect(server.rtmp).unwrap().write_all(b"\x09 no RTMP").unwrap();
        wait_for("the note", secs(10), || {
            server.log().contains("more lines like the next one were left out")
        });
    }
}

#[test]
fn q_06_a_log_that_cannot_be_written_harms_nothing() {
    let home = Home::new();
    let log = home.path().join("home/log");
    std::fs::create_dir_all(&log).unwrap();
    std::os::unix::fs::symlink("/dev/full", log.join("millstream.log")).unwrap();
    let mut server = Server::start_in(&home.path().join("home"), &[]);
    let _publisher = Publisher::start(server.rtmp, "live", "s1");
    let player = Player::start(server.rtmp, "live", "s1");
    for _ in 0..500 {
        TcpStream::connect(server.rtmp).unwrap().write_all(b"\x09 no RTMP").unwrap();
    }
    assert_eq!(server.api().get("/live/rest/v2/version").status, 200);
    wait_for("the video", secs(20), || player.units() > 100);
    assert!(player.finish().is_clean());
    assert!(server.terminate().success());
}

#[test]
fn a_log_of_objects_is_one_object_per_line() {
    let server = Server::start(&["logFormat=json", "logLevel=DEBUG"]);
    let publisher = Publisher::start(server.rtmp, "live", "s1");
    let player = Player::start(server.rtmp, "live", "s1");
    wait_for("the video", secs(20), || player.units() > 10);
    drop((player, publisher));
    wait_for("the end of the sessions", secs(20), || {
        server.log().matches("\"protocol\":\"rtmp\"").count() >= 2
    });
    let log = server.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 3);
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["target"].is_string());
    }
}

#[test]
fn r_43_what_peers_choose_cannot_break_a_line_of_the_log() {
    let server = Server::start(&["logLevel=DEBUG"]);
    let odd = "x\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}[31m\u{85}\u{2028}";
    for (app, name) in [(odd, "s"), ("live", odd), ("live", "s?token=\r\n\u{1b}]0;t\u{7}")] {
        // Most of these names are refused. The text after a question mark is not a part of the name.
        drop((RtmpPeer::publish(server.rtmp, app, name), RtmpPeer::play(server.rtmp, app, name)));
    }
    let target = "/live/x%0d%0a%1b[31mERROR.flv?a=%0a%1b";
    for line in [format!("GET {target} HTTP/1.1"), "GET /\x1b[31m HTTP/1.1".to_owned()] {
        let agent = "User-Agent: a\x1b[31m\u{85}b";
        let request = format!("{line}\r\nHost: localhost\r\n{agent}\r\nConnection: close\r\n\r\n");
        crate::support::raw_exchange(server.http, request.as_bytes());
    }
    let body = serde_json::json!({ "email": odd, "password": odd, "streamId": odd, "name": odd }).to_string();
    for path in ["/rest/v2/users/authenticate", "/rest/v2/users/initial", "/live/rest/v2/broadcasts/create"] {
        server.api().post(path, &body);
    }
    let endpoint = serde_json::json!({ "rtmpUrl": format!("rtmp://h/a/{odd}") }).to_string();
    server.api().post("/live/rest/v2/broadcasts/s/rtmp-endpoint", &endpoint);
    wait_for("the sessions in the log", secs(20), || server.log().matches("session ended").count() >= 6);
    for line in server.log().lines() {
        let is_stamped = line.len() > 23 && line.as_bytes()[4] == b'-' && line.as_bytes()[19] == b',';
        assert!(is_stamped && !line.starts_with("2026-01-01T00:00:00Z ERROR forged"), "{line:?}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
}

#[test]
fn a_stream_and_its_viewer_are_in_the_log_from_start_to_end() {
    let server = Server::start(&["app.publisherGraceMs=200"]);
    let publisher = Publisher::start(server.rtmp, "live", "told");
    let player = Player::start(server.rtmp, "live", "told");
    wait_for("the viewer", secs(10), || player.media() > 0);
    // The connection is lost without an end of the publish, so the stream waits for the publisher.
    drop(RtmpPeer::publish(server.rtmp, "live", "lost"));
    publisher.stop();
    wait_for("both ends", secs(10), || server.log().matches("stream ended").count() == 2);
    player.finish();
    wait_for("all sessions", secs(10), || server.log().matches("session ended").count() == 3);
    let log = server.log();
    let said =
        |words: &[&str]| log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    assert_eq!(
        said(&["stream started", "key=live/told", "protocol=\"rtmp\"", "peer=127.0.0.1:"]),
        1,
        "{log}"
    );
    assert_eq!(said(&["viewer started", "key=live/told", "protocol=\"rtmp\""]), 1, "{log}");
    assert_eq!(said(&["stream ended", "key=live/told", "the publisher ended it"]), 1, "{log}");
    assert_eq!(said(&["publisher lost", "key=live/lost", "grace_ms=200"]), 1, "{log}");
    assert_eq!(said(&["stream ended", "key=live/lost", "was lost and did not return"]), 1, "{log}");
    assert_eq!(said(&["session ended", "key=live/told", "the peer closed the connection"]), 1, "{log}");
    assert_eq!(said(&["session ended", "key=live/told"]), 2, "{log}");
    assert_eq!(said(&["session ended", "key=live/lost"]), 1, "{log}");
}

#[test]
fn the_audit_log_has_a_file_of_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start(&["logLevel=ERROR"]);
    let path = server.home().join("home/log/audit.log");
    let publisher = Publisher::start(server.rtmp, "live", "told");
    server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"made"}"#);
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_for("both lines", secs(10), || read().lines().count() == 2);
    let text = read();
    let said = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(said(&[" audit - Publish ", "who=\"anybody\"", "from=127.0.0.1", "object=live/told"]), "{text}");
    assert!(said(&[" audit - Create a broadcast ", "who=\"address\"", "made=\"made\""]), "{text}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!server.log().contains(" audit - "), "{}", server.log());
    publisher.stop();
}

#[test]
fn r_41_a_callback_changes_nothing() {
    let server = Server::start(&[]);
    let plain = server.api().get("/live/rest/v2/broadcasts/count");
    let asked = server.api().get("/live/rest/v2/broadcasts/count?callback=alert");
    assert_eq!((plain.status, &plain.body), (200, &asked.body));
    assert!(asked.head.contains("application/json"), "{}", asked.head);
}
