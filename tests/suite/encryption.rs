//! Encrypted segments of HLS: players can play them, and clients without permission get neither keys nor media.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::management::Panel;
use crate::publish_play::{assert_track_within, is_broadcasting};
use crate::support::{
    Home, Packet, Program, Server, coded_file, ffmpeg9, frame_md5_by, media_file, raw_exchange, secs,
    unit_md5, wait_for,
};

const PLAYLIST: &str = "/live/streams/cam.m3u8";

fn publish(server: &Server, file: &Path) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    let publisher = Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]));
    wait_for("the stream", secs(20), || is_broadcasting(server, "cam"));
    publisher
}

/// Returns the URIs of keys in a playlist.
fn keys(text: &str) -> Vec<String> {
    let of = |line: &str| {
        Some(line.strip_prefix("#EXT-X-KEY:")?.split_once("URI=\"")?.1.split_once('"')?.0.to_owned())
    };
    text.lines().filter_map(of).collect()
}

#[test]
fn an_encrypted_stream_is_played_to_its_end_through_several_keys() {
    for (form, ending) in [("mpegts", ".ts"), ("fmp4", ".m4s")] {
        plays_through_several_keys(form, ending);
    }
}

fn plays_through_several_keys(form: &str, ending: &str) {
    let file = media_file(false, 12);
    let server = Server::start(&[
        "app.hls.encryption=aes-128",
        "app.hls.key_segments=2",
        "app.hlsTime=1",
        &format!("app.hlsSegmentType={form}"),
    ]);
    let mut publisher = publish(&server, &file);
    let played = unit_md5(&format!("http://{}{PLAYLIST}", server.http), None);
    assert!(publisher.wait(secs(20)).is_some());
    let source = unit_md5(file.to_str().unwrap(), None);
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &played));
    }
    let text = server.api().get(PLAYLIST).body;
    let mut keys = keys(&text);
    let segments: Vec<_> = text.lines().filter(|line| line.ends_with(ending)).collect();
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
        assert!(reply.head.contains("Cache-Control: no-store\r\n"), "{}", reply.head);
    }
    // The segment shows nothing of its content but the length.
    let segment = server.api().get(&format!("/live/streams/{}", segments[0]));
    assert_eq!(segment.status, 200);
    assert!(!segment.body.starts_with('G') && !segment.body.contains("styp"), "it begins in the clear");
    assert!(!segment.body.contains("mdat") && !segment.body.contains("FFmpeg"), "it is in the clear");
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

/// Writes a key, and the key info file that refers to it, as an operator does.
fn write_key(folder: &Path, name: &str, key: [u8; 16]) {
    std::fs::write(folder.join(name), key).unwrap();
    // A path in the key info file is relative to the folder of that file.
    std::fs::write(folder.join("new.keyinfo"), format!("/live/{name}\n{name}\n")).unwrap();
    std::fs::rename(folder.join("new.keyinfo"), folder.join("hls.keyinfo")).unwrap();
}

/// Requests a path, and returns the body of the answer as bytes.
fn fetch(server: &Server, path: &str) -> Vec<u8> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = raw_exchange(server.http, request.as_bytes());
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}");
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    answer[head + 4..].to_vec()
}

/// Decrypts a segment with OpenSSL.
fn opened(sealed: &[u8], key: [u8; 16], vector: &str) -> Vec<u8> {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut openssl = Command::new("openssl")
        .args(["enc", "-d", "-aes-128-cbc", "-K", &key, "-iv", vector])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = openssl.stdin.take().unwrap();
    let sealed = sealed.to_vec();
    let writing = std::thread::spawn(move || input.write_all(&sealed).unwrap());
    let output = openssl.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success(), "the key does not fit");
    output.stdout
}

#[test]
fn a_key_of_the_operators_file_is_used_and_changed_with_it() {
    let home = Home::new();
    // Players fetch the key from the folder with the application's pages.
    let folder = home.path().join("home/webapps/live");
    let mut command = Server::command(
        &home.path().join("home"),
        &[
            &format!("app.hlsEncryptionKeyInfoFile={}", folder.join("hls.keyinfo").display()),
            "app.hls.begin=stream",
            "app.hlsTime=1",
            "app.hlsListSize=40",
            "app.hlsPlayListType=vod",
        ],
    );
    let server = Server::spawn(&mut command).with_home(home);
    let mut publisher = Command::new("ffmpeg");
    publisher.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    publisher.arg(media_file(false, 12)).args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]);
    let _publisher = Program::start(&mut publisher);
    server.wait_for_line("HLS key file unusable; the stream has no HLS");
    assert_eq!(server.log().matches("HLS key file unusable").count(), 1);
    let streams = folder.join("streams");
    let files = || std::fs::read_dir(&streams).into_iter().flatten().count();
    assert_eq!(files(), 0, "nothing is made while there is no key");
    let (first, second) = (*b"0123456789abcdef", *b"fedcba9876543210");
    write_key(&folder, "a.key", first);
    let mut text = String::new();
    let mut has = |uri: &str| {
        let reply = server.api().try_call("GET", PLAYLIST, None).filter(|reply| reply.status == 200);
        text = reply.map(|reply| reply.body).unwrap_or_default();
        text.contains(uri)
    };
    wait_for("the first key", secs(40), || has("URI=\"/live/a.key\""));
    write_key(&folder, "b.key", second);
    wait_for("the second key", secs(40), || has("URI=\"/live/b.key\""));
    server.wait_for_line("HLS key changed");
    let log = server.log();
    let changed: Vec<&str> = log.lines().filter(|line| line.contains("HLS key changed")).collect();
    assert!(
        changed.len() == 1 && changed[0].contains("live/cam") && changed[0].contains("/live/b.key"),
        "{changed:?}"
    );
    let (mut tag, mut count) = ((first, String::new()), 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("#EXT-X-KEY:METHOD=AES-128,URI=\"/live/") {
            let vector = rest.split_once("IV=0x").unwrap().1.to_owned();
            tag = (if rest.starts_with('a') { first } else { second }, vector);
        } else if line.ends_with(".ts") {
            let sealed = fetch(&server, &format!("/live/streams/{line}"));
            let clear = opened(&sealed, tag.0, &tag.1);
            assert!(clear.chunks(188).all(|packet| packet.len() == 188 && packet[0] == 0x47), "{line}");
            // The copy on the disk is the same.
            wait_for("the file", secs(10), || streams.join(line).exists());
            assert_eq!(std::fs::read(streams.join(line)).unwrap(), sealed);
            count += 1;
        }
    }
    assert!(count >= 4, "{text}");
    let played = unit_md5(&format!("http://{}{PLAYLIST}", server.http), Some(3));
    assert!(!played.is_empty(), "ffmpeg plays over the change of keys");
    assert!(!server.log().contains("0123456789abcdef"));
}

/// Returns the value of an attribute in the first line of a playlist that begins with `tag`.
fn attribute<'t>(text: &'t str, tag: &str, name: &str) -> &'t str {
    let line = text.lines().find(|line| line.starts_with(tag)).unwrap();
    line.split_once(&format!("{name}=\"")).unwrap().1.split_once('"').unwrap().0
}

/// Returns the hashes of a track's samples, which ffmpeg decrypts with `key` if there is one.
fn samples(file: &Path, key: Option<&str>, track: u32) -> Vec<String> {
    let options = key.map(|key| vec!["-decryption_key", key]).unwrap_or_default();
    let packets: Vec<Packet> = frame_md5_by(&ffmpeg9(), &options, file.to_str().unwrap(), None);
    packets.into_iter().filter(|packet| packet.0 == track).map(|packet| packet.4).collect()
}

#[test]
fn samples_are_encrypted_and_ffmpeg_opens_them_with_the_key_alone() {
    let hevc = ["-c:v", "libx265", "-g", "30", "-x265-params", "log-level=none:slices=2", "-c:a", "aac"];
    for source in [media_file(true, 6), coded_file("cbcs-hevc", &hevc)] {
        let home = Home::new();
        let server = Server::start(&[
            "app.hls.encryption=cbcs",
            "app.hlsSegmentType=fmp4",
            "app.hlsEnableLowLatency=true",
            "app.dashMuxingEnabled=true",
            "app.hls.begin=stream",
            "app.hlsTime=1",
            "app.hlsListSize=60",
        ]);
        let mut command = Command::new(ffmpeg9());
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&source);
        let mut publisher =
            Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        assert!(publisher.wait(secs(30)).is_some());
        let published = [0, 1].map(|track| samples(&source, None, track));
        let playlists = ["cam.m3u8", "ll-hls/cam/cam__video.m3u8", "ll-hls/cam/cam__audio.m3u8"];
        for playlist in playlists {
            let path = format!("/live/streams/{playlist}");
            let mut text = String::new();
            wait_for("the end", secs(20), || {
                text = server.api().get(&path).body;
                text.contains("#EXT-X-ENDLIST")
            });
            let folder = path.rsplit_once('/').unwrap().0;
            let file_of = |uri: &str| fetch(&server, &format!("{folder}/{uri}"));
            let key = file_of(attribute(&text, "#EXT-X-KEY:METHOD=SAMPLE-AES,", "URI"));
            let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut media = file_of(attribute(&text, "#EXT-X-MAP:", "URI"));
            text.lines().filter(|line| line.ends_with(".m4s")).for_each(|uri| media.extend(file_of(uri)));
            let file = home.path().join("media.mp4");
            std::fs::write(&file, media).unwrap();
            for track in if playlist == "cam.m3u8" { 0..2 } else { 0..1 } {
                let opened = samples(&file, Some(&key), track);
                assert!(opened.len() > 100, "{playlist}");
                let is_published = |all: &Vec<String>| all.windows(opened.len()).any(|some| some == opened);
                assert!(published.iter().any(is_published), "{source:?} {playlist} {track}");
                let other = samples(&file, Some(&"00".repeat(16)), track);
                assert!(other.iter().zip(&opened).filter(|(other, own)| other == own).count() < 10);
            }
        }
        let manifest = server.api().get("/live/streams/cam/cam.mpd").body;
        assert_eq!(manifest.matches("value=\"cbcs\"").count(), 2, "{manifest}");
        assert_eq!(manifest.matches("value=\"ClearKey1.0\"").count(), 2, "{manifest}");
    }
}

/// Returns the playlist; empty while there is none.
fn playlist(server: &Server) -> String {
    let reply = server.api().try_call("GET", PLAYLIST, None).filter(|reply| reply.status == 200);
    reply.map(|reply| reply.body).unwrap_or_default()
}

/// Returns the names of the segments in a playlist.
fn segments(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn t_15_a_change_of_the_encryption_counts_at_once_for_streams_that_are_live() {
    let server = Server::start(&["server.workers=2", "app.hls.begin=stream", "app.hlsTime=1"]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/cam"));
    let of_segments = |text: &str, count| segments(text).len() >= count;
    wait_for("segments in the clear", secs(40), || of_segments(&playlist(&server), 2));
    let clear = playlist(&server);
    assert_eq!(keys(&clear), Vec::<String>::new());
    let panel = Panel::first(&server);
    let path = "/applications/settings/live";
    let mut settings = panel.get(path);
    // Eight requests, because any worker may get a request.
    let get = |name: &str| [(); 8].map(|()| server.api().get(&format!("/live/streams/{name}")));
    for encryption in ["aes-128", "none"] {
        let former = playlist(&server);
        settings["hls.encryption"] = encryption.into();
        assert_eq!(panel.post(path, &settings)["success"], true);
        server.wait_for_line("sinks restarted: the encryption has changed");
        let is_sealed = |text: &str| keys(text).is_empty() == (encryption == "none");
        let mut text = String::new();
        wait_for("segments in the new form", secs(40), || {
            text = playlist(&server);
            is_sealed(&text) && of_segments(&text, 2)
        });
        for name in segments(&former) {
            assert!(!segments(&text).contains(&name), "the name {name} has two contents");
            get(name).iter().for_each(|reply| assert_eq!(reply.status, 404, "{name} is still there"));
        }
        for name in segments(&text) {
            for _ in 0..8 {
                let segment = fetch(&server, &format!("/live/streams/{name}"));
                let is_clear = segment.chunks(188).all(|packet| packet.starts_with(b"G"));
                assert_eq!(is_clear, encryption == "none", "{name}");
            }
        }
    }
}
