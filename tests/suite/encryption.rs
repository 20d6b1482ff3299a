//! Segments of HLS that are encrypted: players play them, and who may not play has neither key nor media.

use crate::publish_play::{assert_track_within, is_broadcasting};
use crate::support::{Program, Server, media_file, secs, unit_md5, wait_for};

const PLAYLIST: &str = "/live/streams/cam.m3u8";

fn publish(server: &Server, file: &std::path::Path) -> Program {
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    let publisher = Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]));
    wait_for("the stream", secs(20), || is_broadcasting(server, "cam"));
    publisher
}

/// The URIs of keys in a playlist.
fn keys(text: &str) -> Vec<String> {
    let of = |line: &str| {
        Some(line.strip_prefix("#EXT-X-KEY:")?.split_once("URI=\"")?.1.split_once('"')?.0.to_owned())
    };
    text.lines().filter_map(of).collect()
}

#[test]
fn an_encrypted_stream_is_played_to_its_end_through_several_keys() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.hls.encryption=aes-128", "app.hls.key_segments=2", "app.hlsTime=1"]);
    let mut publisher = publish(&server, &file);
    let played = unit_md5(&format!("http://{}{PLAYLIST}", server.http), None);
    assert!(publisher.wait(secs(20)).is_some());
    let source = unit_md5(file.to_str().unwrap(), None);
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &played));
    }
    let text = server.api().get(PLAYLIST).body;
    let mut keys = keys(&text);
    let segments: Vec<_> = text.lines().filter(|line| line.ends_with(".ts")).collect();
    assert_eq!(keys.len(), segments.len(), "each segment has a vector of its own: {text}");
    keys.dedup();
    assert!(keys.len() >= segments.len() / 2 && keys.len() <= segments.len() / 2 + 1, "{text}");
    for key in &keys {
        let reply = server.api().get(&format!("/live/streams/{key}"));
        assert_eq!(
            (reply.status, reply.head.contains("Content-Length: 16\r\n")),
            (200, true),
            "{}",
            reply.head
        );
        assert!(reply.head.contains("Cache-Control: no-cache\r\n"), "{}", reply.head);
    }
    // Nothing but its length shows that it is a transport stream.
    let segment = server.api().get(&format!("/live/streams/{}", segments[0]));
    assert_eq!(segment.status, 200);
    assert!(!segment.body.starts_with('G'), "it begins in the clear");
    let log = std::fs::read_dir(server.home().join("home/log")).into_iter().flatten();
    for file in log.map(|entry| entry.unwrap().path()) {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(".key"), "{text}");
    }
}

#[test]
fn a_key_is_given_to_who_may_play_and_where_the_prefix_says() {
    let secret = "0123456789abcdef0123456789abcdef";
    let server = Server::start(&[
        "app.hls.encryption=aes-128",
        "app.hls.begin=stream",
        "app.hlsTime=1",
        "app.hls.key_prefix=https://keys.example/live/",
        "app.hashControlPlayEnabled=true",
        &format!("app.tokenHashSecret={secret}"),
    ]);
    let _publisher = publish(&server, &media_file(false, 12));
    let text = format!("camplay{secret}");
    let hash: String = crypto::sha256(&[text.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect();
    let reply = server.api().get(&format!("{PLAYLIST}?token={hash}"));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let key = keys(&reply.body).remove(0);
    let path = key.strip_prefix("https://keys.example").unwrap().replacen("/live/", "/live/streams/", 1);
    assert_eq!(server.api().get(&path).status, 200, "the other server passes it on");
    let bare = path.split('?').next().unwrap();
    assert_eq!(server.api().get(bare).status, 403);
}
