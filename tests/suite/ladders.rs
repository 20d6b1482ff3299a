//! Ladders: several streams that are renditions of one programme, with real players.

use std::process::Command;

use crate::publish_play::is_broadcasting;
use crate::support::{Program, Server, media_file, run, secs, wait_for};

const MASTER: &str = "/live/streams/cam_adaptive.m3u8";

/// Publishes the file unchanged, again and again, as a rendition of `cam`.
fn publish(server: &Server, id: &str, query: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(media_file(false, 12));
    let url = server.rtmp_url(&format!("live/{id}?mainTrack=cam{query}"));
    let publisher = Program::start(command.args(["-c", "copy", "-f", "flv", &url]));
    wait_for("the stream", secs(20), || is_broadcasting(server, id));
    publisher
}

/// Returns the URIs in the multivariant playlist, which lists all renditions.
fn uris(server: &Server) -> Vec<String> {
    let reply = server.api().get(MASTER);
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns the numbers of the segments in a media playlist.
fn numbers(server: &Server, uri: &str) -> Vec<u64> {
    let reply = server.api().get(&format!("/live/streams/{uri}"));
    let of = |line: &str| line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:").and_then(|text| text.parse().ok());
    let first: u64 = reply.body.lines().find_map(of).unwrap();
    let count = reply.body.lines().filter(|line| line.starts_with("#EXTINF:")).count() as u64;
    (first..first + count).collect()
}

/// Plays all renditions for some seconds with ffprobe. Returns the number of streams and the error output.
fn play(url: &str) -> (usize, String) {
    let mut player = Command::new("ffprobe");
    player.args(["-v", "error", "-read_intervals", "%+4", "-show_entries", "stream=codec_type"]);
    let (status, out, err) = run(player.args(["-of", "csv=p=0", url]));
    assert!(status.success(), "{err}");
    (out.lines().filter(|line| line.contains("video")).count(), err)
}

#[test]
fn streams_of_one_main_track_are_renditions_that_come_and_go() {
    let server = Server::start(&["app.hls.group=renditions", "app.hlsTime=1"]);
    assert_eq!(server.api().get(MASTER).status, 404, "there is no such stream");
    let first = publish(&server, "cam_high", "");
    assert_eq!(server.api().get(MASTER).status, 404, "with one rendition players take its own playlist");
    let second = publish(&server, "cam_low", "");
    let both = uris(&server);
    assert_eq!(both.len(), 2, "{both:?}");
    let url = format!("http://{}{MASTER}", server.http);
    let (videos, errors) = play(&url);
    assert_eq!((videos >= 2, errors.as_str()), (true, ""), "{videos}");
    let common = |uris: &[String]| {
        let of_first = numbers(&server, &uris[0]);
        numbers(&server, &uris[1]).into_iter().filter(|number| of_first.contains(number)).count()
    };
    wait_for("the same numbers", secs(20), || common(&both) >= 3);
    // When a rendition ends, it is removed from the multivariant playlist, and its own playlist is no longer served.
    drop(second);
    wait_for("the end of a rendition", secs(60), || uris(&server).len() == 1);
    let left = uris(&server);
    let gone = both.iter().find(|uri| !left.contains(uri)).unwrap();
    assert_eq!(server.api().get(&format!("/live/streams/{gone}")).status, 404);
    let _second = publish(&server, "cam_low", "");
    wait_for("its return", secs(30), || uris(&server).len() == 2);
    drop(first);
}

/// Publishes the file as two renditions of `cam`. The same pictures are key frames in both.
fn publish_both(server: &Server) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(media_file(false, 12));
    for id in ["cam_high", "cam_low"] {
        let url = server.rtmp_url(&format!("live/{id}?mainTrack=cam"));
        command.args(["-map", "0", "-c", "copy", "-f", "flv", &url]);
    }
    let publisher = Program::start(&mut command);
    for id in ["cam_high", "cam_low"] {
        wait_for("the stream", secs(20), || is_broadcasting(server, id));
    }
    publisher
}

const APART: [&str; 4] = [
    "app.hls.group=renditions",
    "app.hlsTime=1",
    "app.hlsEnableLowLatency=true",
    "app.dashMuxingEnabled=true",
];
const LIST: &str = "/live/streams/ll-hls/cam/cam__master_adaptive.m3u8";
const MANIFEST: &str = "/live/streams/cam/cam_adaptive.mpd";

/// Returns the dates of the segments in a playlist, in milliseconds, by segment number.
fn dates(text: &str) -> std::collections::BTreeMap<u64, i64> {
    let Ok(hls::Playlist::Media(list)) = hls::Playlist::read(text.as_bytes()) else { panic!("{text}") };
    (list.media_sequence..).zip(list.segments.iter().filter_map(|one| one.program_date_time)).collect()
}

#[test]
fn t_12_streams_of_one_main_track_are_played_with_low_latency_and_dash() {
    let server = Server::start(&APART);
    let only = publish(&server, "cam_high", "");
    for name in [LIST, MANIFEST] {
        assert_eq!(server.api().get(name).status, 404, "one rendition is no ladder: {name}");
    }
    drop(only);
    wait_for("its end", secs(20), || !is_broadcasting(&server, "cam_high"));
    let _publisher = publish_both(&server);
    let list = server.api().get(LIST);
    assert_eq!(list.status, 200, "{}", list.body);
    let uris: Vec<&str> = list.body.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!((uris.len(), list.body.matches("TYPE=AUDIO").count()), (2, 1), "{}", list.body);
    // The segments of both renditions begin at the same dates, except for rounding of the streams' clocks.
    let of = |uri: &str| dates(&server.api().get(&format!("/live/streams/ll-hls/cam/{uri}")).body);
    let apart_ms = || {
        let (high, low) = (of(uris[0]), of(uris[1]));
        let common = high.iter().filter_map(|(number, date)| Some((date - low.get(number)?).abs()));
        let common: Vec<i64> = common.collect();
        (common.len() >= 4).then(|| common.into_iter().max()).flatten()
    };
    wait_for("common segments", secs(20), || apart_ms().is_some());
    let apart_ms = apart_ms().unwrap();
    println!("boundaries are {apart_ms} ms apart");
    assert!(apart_ms <= 1, "{apart_ms}");
    for name in [LIST, MANIFEST] {
        let (videos, errors) = play(&format!("http://{}{name}", server.http));
        assert_eq!((videos >= 2, errors.as_str()), (true, ""), "{name}: {videos}");
    }
    let text = server.api().get(MANIFEST).body;
    assert_eq!(
        (text.matches("<Period ").count(), text.matches("<Representation ").count()),
        (1, 3),
        "{text}"
    );
    assert!(!text.contains("segmentAlignment=\"false\""), "{text}");
}

#[test]
fn the_recipe_with_ffmpeg_makes_a_ladder_of_a_stream() {
    let server = Server::start(&["app.hls.group=renditions", "app.hlsTime=1"]);
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(media_file(false, 12));
    let _publisher = Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let url = server.rtmp_url("live/cam");
    let mut recipe = Command::new("sh");
    recipe.args([concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/ladder/ladder.sh"), "cam"]);
    recipe.env("SERVER", url.strip_suffix("/cam").unwrap()).env("RENDITIONS", "180:300k");
    let _transcoder = Program::start(&mut recipe);
    wait_for("the rendition", secs(40), || is_broadcasting(&server, "cam_180"));
    wait_for("both renditions", secs(60), || uris(&server).len() == 2);
    let both = uris(&server);
    assert!(both[0].starts_with("cam_360p") && both[1].starts_with("cam_180p"), "{both:?}");
}

#[test]
fn who_may_play_the_main_track_may_play_its_renditions() {
    let secret = "app.tokenHashSecret=0123456789abcdef0123456789abcdef";
    let server = Server::start(&[
        "app.hls.group=renditions",
        "app.hlsTime=1",
        "app.hashControlPlayEnabled=true",
        secret,
    ]);
    let _publishers = ["cam_high", "cam_low"].map(|id| publish(&server, id, ""));
    let hash = |id: &str| {
        let text = format!("{id}play0123456789abcdef0123456789abcdef");
        crypto::sha256(&[text.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(server.api().get(MASTER).status, 403);
    let reply = server.api().get(&format!("{MASTER}?token={}", hash("cam")));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let uri = reply.body.lines().find(|line| !line.starts_with('#')).unwrap().to_owned();
    assert!(uri.ends_with(&hash("cam")), "{uri}");
    assert_eq!(server.api().get(&format!("/live/streams/{uri}")).status, 200);
    let path = uri.split('?').next().unwrap();
    assert_eq!(server.api().get(&format!("/live/streams/{path}")).status, 403);
    let other = format!("/live/streams/{path}?token={}", hash("cam_low"));
    assert_eq!(server.api().get(&other).status, 403);
}

#[test]
fn who_may_play_the_main_track_may_play_its_tracks_with_low_latency_and_dash() {
    let secret = "app.tokenHashSecret=0123456789abcdef0123456789abcdef";
    let server = Server::start(&[&APART[..], &["app.hashControlPlayEnabled=true", secret]].concat());
    let _publisher = publish_both(&server);
    let token = crypto::sha256(&[b"camplay0123456789abcdef0123456789abcdef"]);
    let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let get = |path: &str| server.api().get(&format!("/live/streams/{path}"));
    assert_eq!((server.api().get(LIST).status, server.api().get(MANIFEST).status), (403, 403));
    let list = server.api().get(&format!("{LIST}?token={token}"));
    let sound = list.body.split("URI=\"").nth(1).unwrap().split('"').next().unwrap();
    let video = list.body.lines().find(|line| !line.starts_with('#')).unwrap();
    for uri in [sound, video] {
        assert!(uri.ends_with(&token), "{uri}");
        assert_eq!(get(&format!("ll-hls/cam/{uri}")).status, 200);
        assert_eq!(get(&format!("ll-hls/cam/{}", uri.split('?').next().unwrap())).status, 403);
    }
    let manifest = server.api().get(&format!("{MANIFEST}?token={token}"));
    assert_eq!(manifest.status, 200);
    let init = manifest.body.split("initialization=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(init.ends_with(&token), "{init}");
    assert_eq!(get(&format!("ll-hls/cam/{}", init.replace("&amp;", "&"))).status, 200);
    assert_eq!(get(&format!("ll-hls/cam/{}", init.split('?').next().unwrap())).status, 403);
}
