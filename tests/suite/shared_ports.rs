//! Tests `http.shared_ports`: the ports of HTTP and HTTPS also accept RTMP and RTSP, and HTTP clients still work.

use std::process::Command;

use crate::support::{Program, Server, frame_md5, media_file, secs, source_packets, unit_md5, wait_for};

/// Requests a URL with curl and these options, and returns the HTTP version and status.
fn status(options: &[&str], url: &str) -> String {
    let options =
        [&["-s", "-k", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"], options];
    let output = Command::new("curl").args(options.concat()).arg(url).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn streams_are_published_and_played_at_the_ports_of_http_and_https() {
    let file = media_file(true, 8);
    let server = Server::start(&["http.shared_ports=true", "server.workers=2"]);
    let (plain, tls) = (server.http, server.https.unwrap());
    let source: std::collections::HashSet<_> =
        source_packets(&file).into_iter().map(|packet| packet.4).collect();
    for (id, url, plays) in [
        (
            "plain",
            format!("rtmp://{plain}/live/plain"),
            [format!("rtmp://{plain}/live/plain"), format!("rtsp://{plain}/live/plain")],
        ),
        (
            "safe",
            format!("rtmps://{tls}/live/safe"),
            [format!("rtmps://{tls}/live/safe"), format!("rtsps://{tls}/live/safe")],
        ),
    ] {
        let _publisher = Program::ffmpeg_publish(&file, &url);
        wait_for("the stream", secs(20), || server.api().broadcast("live", id).is_some());
        let [rtmp, rtsp] = plays;
        let played = frame_md5(&rtmp, Some(3));
        assert!(played.len() > 100 && played.iter().all(|packet| source.contains(&packet.4)), "{rtmp}");
        assert!(unit_md5(&rtsp, Some(3)).len() > 100, "{rtsp}");
    }
    let path = "/live/rest/v2/version";
    assert_eq!(status(&[], &format!("http://{plain}{path}")), "1.1 200");
    assert_eq!(status(&["--http2"], &format!("https://{tls}{path}")), "2 200");
    assert_eq!(status(&["--http1.1"], &format!("https://{tls}{path}")), "1.1 200");
    assert_eq!(status(&["--no-alpn"], &format!("https://{tls}{path}")), "1.1 200");
}

#[test]
fn without_the_setting_other_protocols_are_no_http() {
    let file = media_file(true, 8);
    let server = Server::start(&[]);
    let mut publisher = Program::ffmpeg_publish(&file, &format!("rtmp://{}/live/x", server.http));
    assert!(publisher.wait(secs(20)).is_some(), "it is still there");
    assert!(server.api().broadcast("live", "x").is_none());
}
