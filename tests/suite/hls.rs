//! HLS with real players: until the end of a stream, and across a reconnection of its publisher.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::publish_play::{assert_track_within, is_broadcasting};
use crate::support::{Home, Program, Server, media_file, run, secs, unit_md5, wait_for};

const PLAYLIST: &str = "/live/streams/cam.m3u8";

fn url(server: &Server) -> String {
    format!("http://{}{PLAYLIST}", server.http)
}

/// Publishes the file once.
fn publish(server: &Server, file: &std::path::Path) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    let publisher = Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]));
    wait_for("the stream", secs(20), || is_broadcasting(server, "cam"));
    publisher
}

#[test]
fn what_is_published_is_played_to_its_end() {
    for bframes in [false, true] {
        let file = media_file(bframes, 12);
        let server = Server::start(&[]);
        let mut publisher = publish(&server, &file);
        let played = unit_md5(&url(&server), None);
        assert!(publisher.wait(secs(20)).is_some());
        let source = unit_md5(file.to_str().unwrap(), None);
        for track in 0..2 {
            assert_track_within(1, (track, &source), (track, &played));
        }
        let videos = |packets: &[crate::support::Packet]| packets.iter().filter(|p| p.0 == 0).count();
        assert!(videos(&played) + 60 >= videos(&source), "from near its beginning to its end");
        // The playlist is available for a while after the end, and says that the stream is over.
        let text = server.api().get(PLAYLIST).body;
        assert!(text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
    }
}

#[test]
fn gstreamer_plays_it_too() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let _publisher = publish(&server, &file);
    let mut player = Command::new("gst-launch-1.0");
    player.args(["-q", "souphttpsrc", &format!("location={}", url(&server)), "!", "hlsdemux", "!"]);
    player.args(["tsdemux", "!", "h264parse", "!", "avdec_h264", "!"]);
    player.args(["identity", "eos-after=150", "!", "fakesink"]);
    let (status, _, err) = run(&mut player);
    assert!(status.success() && !err.contains("ERROR"), "{err}");
}

#[test]
fn who_fetches_is_a_viewer_and_who_stops_is_none() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let reply = server.api().get(PLAYLIST);
    assert_eq!(reply.status, 200);
    for field in ["Content-Type: application/vnd.apple.mpegurl\r\n", "Cache-Control: no-cache\r\n"] {
        assert!(reply.head.contains(field), "{}", reply.head);
    }
    let viewers = || server.api().broadcast("live", "cam").unwrap()["hlsViewerCount"].clone();
    wait_for("a viewer", secs(10), || viewers() == 1);
    wait_for("nobody", secs(30), || viewers() == 0);
}

#[test]
fn a_publisher_that_comes_back_is_a_discontinuity() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.publisherGraceMs=20000"]);
    let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let first = server.api().get(PLAYLIST).body;
    publisher.signal("KILL");
    drop(publisher);
    let _again = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    let text = || server.api().get(PLAYLIST).body;
    wait_for("the discontinuity", secs(30), || text().contains("#EXT-X-DISCONTINUITY\n"));
    let now = text();
    assert!(!now.contains("ENDLIST") && sequence(&now) == sequence(&first), "{now}");
}

/// Returns the number of the first segment in the playlist, and the names of all segments.
fn segments(server: &Server) -> (u64, Vec<String>) {
    let text = server.api().get(PLAYLIST).body;
    (sequence(&text), text.lines().filter(|line| line.ends_with(".ts")).map(str::to_owned).collect())
}

#[test]
fn numbers_go_on_over_a_stop_and_a_restart_of_the_server_and_no_name_has_two_contents() {
    let file = media_file(false, 12);
    let home = Home::new();
    let mut before: Option<(u64, Vec<String>)> = None;
    for run in 0..3 {
        let server =
            Server::start_in(&home.path().join("home"), &["app.publisherGraceMs=0", "app.hlsTime=1"]);
        for _ in 0..if run == 0 { 2 } else { 1 } {
            let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
            wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
            let now = segments(&server);
            if let Some((sequence, names)) = &before {
                assert!(now.0 > *sequence + names.len() as u64, "{} behind {sequence}", now.0);
                assert!(names.iter().all(|name| !now.1.contains(name)));
            }
            before = Some(now);
            drop(publisher);
            wait_for("the end", secs(20), || !is_broadcasting(&server, "cam"));
        }
    }
}

#[test]
fn an_application_may_have_none_and_one_that_is_secured_gives_none_without_credentials() {
    let file = media_file(false, 12);
    for (setting, status) in [("app.hlsMuxingEnabled=false", 404), ("app.playTokenControlEnabled=true", 403)]
    {
        let server = Server::start(&[setting]);
        let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        assert_eq!(server.api().get(PLAYLIST).status, status, "{setting}");
        assert_eq!(server.api().get("/live/streams/none.m3u8").status, status, "{setting}");
    }
}

#[test]
fn a_request_starts_a_source_that_viewers_start() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let from = server.rtmp_url("live/from");
    let _publisher = Program::ffmpeg_publish(&file, &from);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "from"));
    let source = serde_json::json!({
        "streamId": "cam", "type": "streamSource", "streamUrl": from, "autoStartStopEnabled": true,
    });
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", &source.to_string()).status, 200);
    assert!(!is_broadcasting(&server, "cam"));
    // The first playlist may take longer than the server lets a request wait, so it is requested again and again.
    wait_for("the playlist", secs(30), || server.api().get(PLAYLIST).status == 200);
    assert!(is_broadcasting(&server, "cam"));
}

#[test]
fn a_stream_that_begins_again_is_not_told_to_be_over() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.publisherGraceMs=0"]);
    let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    assert_eq!(server.api().get(PLAYLIST).status, 200);
    drop(publisher);
    wait_for("the end", secs(20), || server.api().get(PLAYLIST).body.contains("#EXT-X-ENDLIST"));
    let _again = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let reply = server.api().get(PLAYLIST);
    assert!(reply.status == 200 && !reply.body.contains("#EXT-X-ENDLIST"), "{}", reply.body);
}

#[test]
fn a_playlist_without_an_end_goes_on_with_the_next_publisher() {
    let file = media_file(false, 12);
    let settings =
        ["app.publisherGraceMs=0", "app.hls.endlist=never", "app.hls.begin=stream", "app.hlsTime=1"];
    let server = Server::start(&settings);
    let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let before = segments(&server);
    drop(publisher);
    wait_for("the end", secs(20), || !is_broadcasting(&server, "cam"));
    let reply = server.api().get(PLAYLIST);
    assert!(reply.status == 200 && !reply.body.contains("#EXT-X-ENDLIST"), "{}", reply.body);
    // A segment that has left the playlist can still be fetched.
    assert!(before.1.iter().all(|name| server.api().get(&format!("/live/streams/{name}")).status == 200));
    let _again = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let now = segments(&server);
    assert!(now.0 > before.0 && !now.1.is_empty(), "{now:?} behind {before:?}");
    assert!(!server.api().get(PLAYLIST).body.contains("#EXT-X-ENDLIST"));
}

const LOW_LATENCY: &str = "/live/streams/ll-hls/cam/cam__master.m3u8";

#[test]
fn fragmented_mp4_is_played_to_its_end_in_each_of_its_forms() {
    for (settings, path, muxed) in [
        (&["app.hlsSegmentType=fmp4"][..], PLAYLIST, true),
        (&["app.hlsEnableLowLatency=true"], LOW_LATENCY, false),
        (&["app.dashMuxingEnabled=true"], "/live/streams/cam/cam.mpd", false),
        (&["app.dashMuxingEnabled=true", "app.dashFragmentDuration=0.5"], "/live/streams/cam/cam.mpd", false),
    ] {
        let file = media_file(true, 12);
        let server = Server::start(settings);
        let mut publisher = publish(&server, &file);
        let reply = server.api().get(path);
        assert_eq!(reply.status, 200, "{path}");
        // ffmpeg requests DASH manifests without end, even after the end of the stream, so it is stopped.
        let seconds = path.ends_with(".mpd").then_some(6);
        let played = unit_md5(&format!("http://{}{path}", server.http), seconds);
        assert!(publisher.wait(secs(20)).is_some());
        let source = unit_md5(file.to_str().unwrap(), None);
        // ffmpeg fetches some segments of DASH audio twice, so only the video is compared.
        for track in 0..if seconds.is_some() { 1 } else { 2 } {
            assert_track_within(1, (track, &source), (track, &played));
        }
        let videos = |packets: &[crate::support::Packet]| packets.iter().filter(|p| p.0 == 0).count();
        assert!(
            videos(&played) + if seconds.is_some() { 200 } else { 120 } >= videos(&source),
            "{path}: {} of {}",
            videos(&played),
            videos(&source)
        );
        let is_muxed = |line: &str| line.strip_prefix("cam").is_some_and(is_numbered);
        assert_eq!(muxed, reply.body.lines().any(is_muxed), "{}", reply.body);
    }
}

/// True for the end of the name of a complete fragmented MP4 segment: a number and `.m4s`.
fn is_numbered(name: &str) -> bool {
    name.strip_suffix(".m4s")
        .is_some_and(|number| number.len() >= 9 && number.bytes().all(|b| b.is_ascii_digit()))
}

#[test]
fn a_reload_waits_for_what_it_names_and_a_part_for_its_time() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.hlsEnableLowLatency=true"]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    assert_eq!(server.api().get(LOW_LATENCY).status, 200);
    let video = "/live/streams/ll-hls/cam/cam__video.m3u8";
    let text = server.api().get(video).body;
    let segments = text.matches("#EXTINF:").count() as u64;
    // Requests the playlist that contains two more complete segments than now.
    let target = sequence(&text) + segments + 1;
    let later = server.api().get(&format!("{video}?_HLS_msn={target}")).body;
    let there = sequence(&later) + later.matches("#EXTINF:").count() as u64;
    assert_eq!(there, target + 1, "{later}");
    assert_eq!(server.api().get(&format!("{video}?_HLS_msn={}", target + 9)).status, 400);
    let hint =
        later.lines().find_map(|line| line.strip_prefix("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"")).unwrap();
    let part = server.api().get(&format!("/live/streams/ll-hls/cam/{}", hint.trim_end_matches('"')));
    assert_eq!(part.status, 200, "{hint}");
    let reports = later.lines().filter(|line| line.starts_with("#EXT-X-RENDITION-REPORT:")).count();
    assert_eq!(reports, 1, "{later}");
    let skipped = server.api().get(&format!("{video}?_HLS_skip=YES")).body;
    assert!(skipped.contains("#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,CAN-SKIP-UNTIL="), "{skipped}");
}

fn value<'t>(text: &'t str, tag: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(tag)).unwrap()
}

#[test]
fn a_one_time_token_is_for_one_viewer_to_the_end() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.playTokenControlEnabled=true", "app.publisherGraceMs=0"]);
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"cam"}"#).status, 200);
    let _publisher = publish(&server, &file);
    let token = server.api().get("/live/rest/v2/broadcasts/cam/token?expireDate=9999999999&type=play").json();
    let token = token["tokenId"].as_str().unwrap();
    let refused = server.api().get(PLAYLIST);
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("Invalid Token for streamId:cam"), "{}", refused.body);
    // ffmpeg sends no cookies, so every URI in the playlist contains the token.
    let played = unit_md5(&format!("{}?token={token}", url(&server)), None);
    let videos = played.iter().filter(|packet| packet.0 == 0).count();
    assert!(videos > 200, "{videos}");
    let text = server.api().get(&format!("{PLAYLIST}?token={token}")).body;
    assert!(
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .all(|line| line.ends_with(&format!("?token={token}")))
    );
    assert_eq!(server.api().get("/live/streams/cam000000001.ts").status, 403);
}

#[test]
fn a_token_that_opens_a_manifest_opens_its_segments() {
    let file = media_file(false, 12);
    let server = Server::start(&["app.playTokenControlEnabled=true", "app.dashMuxingEnabled=true"]);
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"cam"}"#).status, 200);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let token = server.api().get("/live/rest/v2/broadcasts/cam/token?expireDate=9999999999&type=play").json();
    let path = format!("/live/streams/cam/cam.mpd?token={}", token["tokenId"].as_str().unwrap());
    assert_eq!(server.api().get("/live/streams/cam/cam.mpd").status, 403);
    let played = unit_md5(&format!("http://{}{path}", server.http), Some(4));
    let videos = played.iter().filter(|packet| packet.0 == 0).count();
    assert!(videos > 60, "{videos}");
    let count = |of: &str| server.api().broadcast("live", "cam").unwrap()[of].clone();
    wait_for("a viewer", secs(10), || count("dashViewerCount").as_u64() > Some(0));
    assert_eq!(count("hlsViewerCount"), 0, "who fetches segments of a manifest is no viewer of a playlist");
    assert_eq!(server.api().get("/live/streams/ll-hls/cam/cam__video000000001.m4s").status, 403);
}

#[test]
fn who_may_watch_may_go_back_to_what_is_on_the_disk() {
    let file = media_file(false, 12);
    for form in ["mpegts", "fmp4"] {
        let form = format!("app.hlsSegmentType={form}");
        let checked = ["app.playTokenControlEnabled=true", "app.hlsPlayListType=event"];
        let short = ["app.hlsTime=1", "app.hlsListSize=3"];
        let server = Server::start(&[&checked[..], &short, &[&form]].concat());
        assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"cam"}"#).status, 200);
        let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        let token =
            server.api().get("/live/rest/v2/broadcasts/cam/token?expireDate=9999999999&type=play").json();
        let watched = format!("{PLAYLIST}?token={}", token["tokenId"].as_str().unwrap());
        wait_for("segments", secs(40), || server.api().get(&watched).body.matches("#EXTINF:").count() >= 8);
        assert!(fetch_all(&server, &watched) >= 8);
        let text = server.api().get(&watched).body;
        let map = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MAP:URI=\"")?.strip_suffix('"'));
        for name in named(&text).into_iter().take(1).chain(map) {
            assert_eq!(server.api().get(&format!("/live/streams/{name}")).status, 200, "{name}");
            let bare = name.split_once('?').unwrap().0;
            assert_eq!(server.api().get(&format!("/live/streams/{bare}")).status, 403, "{bare}");
        }
    }
}

#[test]
fn a_broadcast_has_its_own_list_its_folder_and_its_limit() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let body = r#"{"streamId":"cam","subFolder":"a/b","hlsViewerLimit":1,"hlsParameters":{"hlsTime":"1","hlsListSize":"3"}}"#;
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", body).status, 200);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let path = "/live/streams/a/b/cam.m3u8";
    let first = server.api().call_with("GET", path, &[("User-Agent", "one")], None);
    assert_eq!(first.status, 200);
    wait_for("a full list", secs(30), || {
        let text = server.api().call_with("GET", path, &[("User-Agent", "one")], None).body;
        text.matches("#EXTINF:").count() == 3 && sequence(&text) > sequence(&first.body)
    });
    let second = server.api().call_with("GET", path, &[("User-Agent", "two")], None);
    assert_eq!((second.status, second.body.contains("Viewer Limit Reached")), (403, true));
    let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() - 2;
    let window = format!("{path}?start={start}");
    let window = server.api().call_with("GET", &window, &[("User-Agent", "one")], None).body;
    assert!(
        window.contains("#EXT-X-PLAYLIST-TYPE:VOD\n") && window.ends_with("#EXT-X-ENDLIST\n"),
        "{window}"
    );
}

/// Returns the number of the first segment in a playlist.
fn sequence(playlist: &str) -> u64 {
    value(playlist, "#EXT-X-MEDIA-SEQUENCE:").parse().unwrap()
}

/// Returns the names in a playlist, except those marked as gaps.
fn named(playlist: &str) -> Vec<&str> {
    let mut gap = false;
    let mut names = Vec::new();
    for line in playlist.lines() {
        if line == "#EXT-X-GAP" {
            gap = true;
        } else if !line.starts_with('#') {
            names.extend(Some(line).filter(|_| !std::mem::take(&mut gap)));
        }
    }
    names
}

/// Fetches all segments of the playlist, and returns their number.
pub fn fetch_all(server: &Server, path: &str) -> usize {
    let text = server.api().get(path).body;
    let folder = &path[..=path.rfind('/').unwrap()];
    let names = named(&text);
    for name in &names {
        assert_eq!(server.api().get(&format!("{folder}{name}")).status, 200, "{name} of {text}");
    }
    names.len()
}

#[test]
fn what_is_to_be_kept_is_on_the_disk_to_the_last_frame() {
    for (kind, segments, listed) in
        [("event", "mpegts", "EVENT"), ("vod", "mpegts", "VOD"), ("event", "fmp4", "EVENT")]
    {
        let file = media_file(false, 12);
        let kind = format!("app.hlsPlayListType={kind}");
        let segments = format!("app.hlsSegmentType={segments}");
        let server =
            Server::start(&[&kind, &segments, "app.deleteHLSFilesOnEnded=false", "app.hlsListSize=3"]);
        // No player requests the playlist while the stream is live. The file on the disk must be complete nevertheless.
        let mut publisher = publish(&server, &file);
        assert!(publisher.wait(secs(40)).is_some());
        let list = server.home().join("home/webapps/live/streams/cam.m3u8");
        let text = || std::fs::read_to_string(&list).unwrap_or_default();
        wait_for("the end", secs(20), || text().ends_with("#EXT-X-ENDLIST\n"));
        assert!(text().contains(&format!("#EXT-X-PLAYLIST-TYPE:{listed}\n")), "{}", text());
        let source = unit_md5(file.to_str().unwrap(), None);
        let kept = unit_md5(list.to_str().unwrap(), None);
        for track in 0..2 {
            assert_track_within(1, (track, &source), (track, &kept));
        }
        let videos = |packets: &[crate::support::Packet]| packets.iter().filter(|p| p.0 == 0).count();
        assert_eq!(videos(&kept), videos(&source), "{kind} {segments}");
        // After the end of the stream, its segments in memory stay available for the last viewers. With `vod`, these
        // are the newest segments.
        assert!(fetch_all(&server, PLAYLIST) >= if listed == "VOD" { 3 } else { 5 });
    }
}

#[test]
fn low_latency_and_dash_are_whole_on_the_disk_after_the_end_and_gone_when_the_stream_returns() {
    let file = media_file(false, 12);
    let home = Home::new();
    let start = || {
        let forms = ["app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true", "app.hlsListSize=3"];
        let kept = ["app.hlsPlayListType=vod", "app.deleteHLSFilesOnEnded=false", "app.publisherGraceMs=0"];
        Server::start_in(&home.path().join("home"), &[forms, kept].concat())
    };
    let tracks = home.path().join("home/webapps/live/streams/ll-hls/cam");
    let manifest = home.path().join("home/webapps/live/streams/cam/cam.mpd");
    let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    let mut server = start();
    assert!(publish(&server, &file).wait(secs(40)).is_some());
    let lists = ["cam__video.m3u8", "cam__audio.m3u8"];
    wait_for("the end", secs(20), || {
        let have_ended = lists.iter().all(|name| text(&tracks.join(name)).ends_with("#EXT-X-ENDLIST\n"));
        have_ended && text(&manifest).contains("type=\"static\"")
    });
    // After a restart, memory has nothing of the stream.
    server.terminate();
    let server = start();
    for name in lists {
        assert!(fetch_all(&server, &format!("/live/streams/ll-hls/cam/{name}")) >= 5, "{name}");
    }
    let source = unit_md5(file.to_str().unwrap(), None);
    for name in ["ll-hls/cam/cam__master.m3u8", "cam/cam.mpd"] {
        let kept = unit_md5(&format!("http://{}/live/streams/{name}", server.http), None);
        for track in 0..2 {
            let count = |of: &[crate::support::Packet]| of.iter().filter(|packet| packet.0 == track).count();
            assert!(count(&kept).abs_diff(count(&source)) <= 1, "{name} {track}");
            assert_track_within(1, (track, &source), (track, &kept));
        }
    }
    // The next run has no audio. Nothing on the disk names what the first one has left.
    let mut sender = Command::new("ffmpeg");
    sender.args(["-v", "error", "-re", "-i"]).arg(&file).args(["-an", "-c", "copy", "-f", "flv"]);
    let _publisher = Program::start(sender.arg(server.rtmp_url("live/cam")));
    let left = || {
        let names = std::fs::read_dir(&tracks).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("audio")).count()
    };
    wait_for("the files of the first run to go", secs(20), || left() == 0);
    wait_for("the new list", secs(20), || tracks.join("cam__master.m3u8").exists() && manifest.exists());
    assert!(!text(&tracks.join("cam__master.m3u8")).contains("audio"));
    assert!(text(&manifest).contains("type=\"dynamic\"") && !text(&manifest).contains("audio/mp4"));
}

#[test]
fn what_is_kept_survives_a_kill_and_goes_when_it_is_to_go() {
    let file = media_file(false, 12);
    let settings =
        ["app.hlsPlayListType=event", "app.hlsTime=1", "app.hlsListSize=3", "app.publisherGraceMs=0"];
    let mut server = Server::start(&settings);
    let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    let streams = server.home().join("home/webapps/live/streams");
    let text = || std::fs::read_to_string(streams.join("cam.m3u8")).unwrap_or_default();
    wait_for("segments", secs(30), || text().matches("#EXTINF:").count() >= 5);
    server.kill();
    drop(publisher);
    let before = named(&text()).len();
    // The playlist that the killed server has left is served unchanged.
    let mut again = Server::start_in(&server.home().join("home"), &settings);
    assert!(fetch_all(&again, PLAYLIST) == before && before >= 5);
    let publisher = Program::ffmpeg_publish(&file, &again.rtmp_url("live/cam"));
    wait_for("a new one", secs(30), || (1..5).contains(&text().matches("#EXTINF:").count()));
    assert!(fetch_all(&again, PLAYLIST) >= 1);
    drop(publisher);
    wait_for("nothing to be left", secs(30), || std::fs::read_dir(&streams).unwrap().count() == 0);
    // When the server stops, its streams end, and their files are removed.
    let _publisher = Program::ffmpeg_publish(&file, &again.rtmp_url("live/cam"));
    wait_for("segments", secs(30), || !text().is_empty());
    assert!(again.terminate().success());
    assert_eq!(std::fs::read_dir(&streams).unwrap().count(), 0);
}

/// Starts a server that stores uploaded files in a folder. Returns its address, and the list of its requests.
fn origin(folder: std::path::PathBuf) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut head = Vec::new();
            while let Some(Ok(line)) =
                reader.by_ref().lines().next().filter(|line| !matches!(line.as_deref(), Ok("")))
            {
                head.push(line);
            }
            let Some(first) = head.first() else { continue };
            let words: Vec<&str> = first.split(' ').collect();
            let name = words[1].strip_prefix("/origin/").unwrap().strip_suffix("?key=1").unwrap();
            let length =
                |line: &String| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
            let mut body = vec![0; head.iter().find_map(length).unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            match words[0] {
                "PUT" => std::fs::write(folder.join(name), body).unwrap(),
                _ => std::fs::remove_file(folder.join(name)).unwrap(),
            }
            log.lock().unwrap().push(format!("{} {name}", words[0]));
            let _ = reader.get_mut().write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (address, asked)
}

#[test]
fn what_is_pushed_to_another_server_is_played_there() {
    let file = media_file(false, 12);
    let folder = Home::new();
    let (address, asked) = origin(folder.path().to_owned());
    let endpoint = format!("app.hlsHttpEndpoint=http://{address}/origin/?key=1");
    let server = Server::start(&[&endpoint, "app.hlsTime=1"]);
    let mut publisher = publish(&server, &file);
    assert!(publisher.wait(secs(40)).is_some());
    let list = folder.path().join("cam.m3u8");
    let text = || std::fs::read_to_string(&list).unwrap_or_default();
    wait_for("the end", secs(20), || text().ends_with("#EXT-X-ENDLIST\n"));
    let source = unit_md5(file.to_str().unwrap(), None);
    let there = unit_md5(list.to_str().unwrap(), None);
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &there));
    }
    assert!(!asked.lock().unwrap().iter().any(|request| request.starts_with("DELETE")));
    // With a short playlist, segments that have left the playlist are deleted at the endpoint.
    let small = r#"{"streamId":"two","hlsParameters":{"hlsListSize":"3"}}"#;
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", small).status, 200);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/two"));
    wait_for("a removal", secs(40), || {
        let asked = asked.lock().unwrap();
        let first =
            asked.iter().find_map(|request| request.strip_prefix("PUT two").filter(|n| !n.starts_with('.')));
        first.is_some_and(|first| asked.iter().any(|request| *request == format!("DELETE two{first}")))
    });
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
    let kept = files.filter(|name| name.to_string_lossy().starts_with("two")).count();
    // There are the playlist, its three segments, segments that have left it less than four seconds ago, and uploads in
    // progress.
    assert!(kept <= 10, "{kept}");
}
