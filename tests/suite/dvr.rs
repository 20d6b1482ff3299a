//! Going back in a live stream (DVR): segments that are no longer in memory are read from the disk.

use std::path::Path;
use std::process::Command;

use ::hls::Playlist;
use ::hls::playlist::{MediaPlaylist, Segment};

use crate::clips;
use crate::publish_play::is_broadcasting;
use crate::support::{Program, Server, media_file, run, secs, unit_md5, wait_for};

const PLAYLIST: &str = "/live/streams/cam.m3u8";

/// Starts a publisher that repeats the file without end.
fn publish(server: &Server, file: &Path, id: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(file).args(["-c", "copy", "-f", "flv", &server.rtmp_url(&format!("live/{id}"))]);
    let publisher = Program::start(&mut command);
    wait_for("the stream", secs(20), || is_broadcasting(server, id));
    publisher
}

fn playlist(server: &Server, path: &str) -> Option<MediaPlaylist> {
    match Playlist::read(server.api().get(path).body.as_bytes()) {
        Ok(Playlist::Media(playlist)) => Some(playlist),
        _ => None,
    }
}

/// Returns the playlist of all segments that viewers can go back to.
fn all(server: &Server) -> MediaPlaylist {
    playlist(server, &format!("{PLAYLIST}?dvr=true")).unwrap()
}

fn wait_for_segments(server: &Server, count: usize) {
    let path = format!("{PLAYLIST}?dvr=true");
    wait_for("segments", secs(90), || {
        playlist(server, &path).is_some_and(|playlist| playlist.segments.len() >= count)
    });
}

fn fetch(server: &Server, name: &str) -> (u16, String) {
    let reply = server.api().get(&format!("/live/streams/{name}"));
    (reply.status, reply.head)
}

/// Checks that each segment that a playlist names can be fetched, with its initialization section.
fn assert_there(server: &Server, playlist: &MediaPlaylist) {
    for Segment { uri, map, gap, .. } in &playlist.segments {
        assert!(*gap || fetch(server, uri).0 == 200, "{uri}");
        assert!(map.as_ref().is_none_or(|map| fetch(server, &map.uri).0 == 200), "{map:?}");
    }
}

#[test]
fn a_viewer_goes_back_to_what_memory_no_longer_has() {
    for kind in ["mpegts", "fmp4"] {
        let kind = format!("app.hlsSegmentType={kind}");
        let server = Server::start(&["app.dvr.window=600", "app.hlsTime=1", "app.hlsListSize=3", &kind]);
        let file = media_file(false, 12);
        let _publisher = publish(&server, &file, "cam");
        wait_for_segments(&server, 26);
        // Without `dvr=true`, viewers still get a playlist of only three segments.
        let live = playlist(&server, PLAYLIST).unwrap();
        assert_eq!(live.segments.len(), 3);
        let whole = all(&server);
        let newest = live.media_sequence + 3;
        assert!(whole.media_sequence + whole.segments.len() as u64 >= newest && !whole.ended);
        assert_there(&server, &whole);
        // A byte range of a segment that is only on the disk can be requested.
        let first = &whole.segments[0];
        let reply = server.api().call_with(
            "GET",
            &format!("/live/streams/{}", first.uri),
            &[("Range", "bytes=188-375")],
            None,
        );
        assert!(reply.status == 206 && reply.head.contains("Content-Length: 188\r\n"), "{}", reply.head);
        // Files with names like those of segments are served if there is no such segment.
        let streams = server.home().join("home/webapps/live/streams");
        std::fs::create_dir_all(&streams).unwrap();
        std::fs::write(streams.join("old000000001.ts"), "kept long ago").unwrap();
        assert_eq!(server.api().get("/live/streams/old000000001.ts").body, "kept long ago");
        assert_eq!(server.api().get("/live/streams/old000000002.ts").status, 404);
        // The playlist is compressed: it is the same for all clients, so its compressed length reveals no secret of a
        // request.
        let path = format!("{PLAYLIST}?dvr=true");
        let reply = server.api().call_with("GET", &path, &[("Accept-Encoding", "gzip")], None);
        assert!(reply.head.contains("Content-Encoding: gzip\r\n"), "{}", reply.head);
        // A playlist can begin at a given time, and end at another.
        let from_s = whole.segments[0].program_date_time.unwrap() / 1000 + 4;
        let from = playlist(&server, &format!("{PLAYLIST}?start={from_s}")).unwrap();
        let skipped = usize::try_from(from.media_sequence - whole.media_sequence).unwrap();
        assert!((2..=5).contains(&skipped) && !from.ended, "{skipped}");
        assert_eq!(from.segments[0].uri, whole.segments[skipped].uri);
        let part = playlist(&server, &format!("{PLAYLIST}?start={from_s}&end={}", from_s + 4)).unwrap();
        assert!(part.ended && (4..=6).contains(&part.segments.len()), "{}", part.segments.len());
        // The start is relative to now, and the playlist changes. So the playlist begins earlier, and states where to
        // start playing.
        let text = server.api().get(&format!("{PLAYLIST}?start=-8")).body;
        let (_, offset) = text.split_once("#EXT-X-START:TIME-OFFSET=").unwrap();
        let offset: f64 = offset.split(',').next().unwrap().parse().unwrap();
        let length = text.matches("#EXTINF:").count() as f64;
        assert!((6.0..=11.0).contains(&(length - offset)) && !text.contains("ENDLIST"), "{text}");
        // ffmpeg starts at the beginning of the playlist, and plays every frame of the file from a key frame on.
        let url = format!("http://{}{PLAYLIST}?start={from_s}&end={}", server.http, from_s + 8);
        let played = unit_md5(&url, None);
        let pictures: Vec<_> = played.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
        let source = unit_md5(file.to_str().unwrap(), None);
        let source: Vec<_> = source.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
        let at = source.iter().position(|hash| *hash == pictures[0]).unwrap();
        assert!(at % 30 == 0 && pictures.len() >= 240, "{at} {}", pictures.len());
        assert!(pictures.iter().eq(source.iter().cycle().skip(at).take(pictures.len())), "{kind}");
        // ffmpeg also plays the live playlist that begins at this time, for five seconds.
        let url = format!("http://{}{PLAYLIST}?start={from_s}", server.http);
        let mut player = Command::new("ffmpeg");
        player.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-live_start_index", "0", "-i", &url]);
        player.args(["-t", "5", "-map", "0:v", "-c", "copy", "-f", "framemd5", "-"]);
        let (status, out, said) = run(&mut player);
        assert!(status.success(), "{said}");
        let frames = out.lines().filter(|line| !line.starts_with('#')).count();
        assert!((140..=155).contains(&frames), "{frames}");
    }
}

#[test]
fn a_window_goes_on_over_restarts_of_the_server_and_goes_with_its_stream() {
    let settings = ["app.dvr.window=600", "app.hlsTime=1", "app.hlsListSize=3", "app.publisherGraceMs=0"];
    let mut server = Server::start(&settings);
    let file = media_file(false, 12);
    let publisher = publish(&server, &file, "cam");
    wait_for_segments(&server, 8);
    let first = all(&server);
    server.kill();
    drop(publisher);
    let mut again = Server::start_in(&server.home().join("home"), &settings);
    let publisher = publish(&again, &file, "cam");
    wait_for("both", secs(40), || {
        let path = format!("{PLAYLIST}?dvr=true");
        playlist(&again, &path).is_some_and(|list| list.segments.iter().any(|segment| segment.discontinuity))
    });
    let second = all(&again);
    assert_eq!(
        (second.media_sequence, &second.segments[0].uri),
        (first.media_sequence, &first.segments[0].uri)
    );
    let kept = second.segments.iter().position(|segment| segment.discontinuity).unwrap();
    assert!(kept + 2 >= first.segments.len(), "{kept} of {}", first.segments.len());
    assert_there(&again, &second);
    // An orderly stop loses no segments.
    assert!(again.terminate().success());
    drop(publisher);
    let third = Server::start_in(&server.home().join("home"), &settings);
    let _publisher = publish(&third, &file, "cam");
    let count = |list: &MediaPlaylist| list.segments.iter().filter(|segment| segment.discontinuity).count();
    wait_for("all three", secs(40), || {
        playlist(&third, &format!("{PLAYLIST}?dvr=true")).is_some_and(|list| count(&list) == 2)
    });
    let list = all(&third);
    assert!(list.segments.len() > second.segments.len() && list.media_sequence == first.media_sequence);
    assert_there(&third, &list);
    let files = || {
        let folder = server.home().join("home/webapps/live/.dvr");
        std::fs::read_dir(folder).unwrap().count()
    };
    assert_eq!(files(), 1);
    // The files on the disk are not served under their own paths.
    assert_eq!(third.api().get(&format!("/live/.dvr/cam/{}", list.segments[0].uri)).status, 404);
    assert_eq!(third.api().delete("/live/rest/v2/broadcasts/cam").status, 200);
    wait_for("nothing to be left", secs(20), || files() == 0);
}

#[test]
fn a_deleted_stream_that_was_over_leaves_nothing_to_the_next_of_its_id() {
    let settings = ["app.dvr.window=600", "app.hlsTime=1", "app.hlsListSize=3", "app.publisherGraceMs=0"];
    let server = Server::start(&settings);
    let api = server.api();
    assert_eq!(api.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"cam"}"#).status, 200);
    let publisher = publish(&server, &media_file(false, 12), "cam");
    wait_for_segments(&server, 5);
    let folder = server.home().join("home/webapps/live/.dvr/cam");
    drop(publisher);
    let is_over = || api.get("/live/rest/v2/broadcasts/cam").body.contains(r#""status":"finished""#);
    wait_for("the end", secs(20), is_over);
    assert!(folder.exists(), "it is kept for the window");
    assert_eq!(api.delete("/live/rest/v2/broadcasts/cam").status, 200);
    wait_for("nothing to be left", secs(20), || !folder.exists());
}

#[test]
fn streams_of_an_application_share_its_bytes_and_live_viewers_have_all() {
    let server = Server::start(&[
        "app.dvr.window=600",
        "app.dvr.max_bytes=4000000",
        "app.hlsTime=1",
        "app.hlsListSize=3",
    ]);
    let file = media_file(false, 12);
    let _publishers = [publish(&server, &file, "cam"), publish(&server, &file, "other")];
    let folder = server.home().join("home/webapps/live/.dvr");
    let bytes = || -> u64 {
        let folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let files =
            folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
        files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    };
    let first = {
        wait_for_segments(&server, 3);
        all(&server).media_sequence
    };
    let mut most = 0;
    wait_for("the oldest to go", secs(120), || {
        most = bytes().max(most);
        all(&server).media_sequence > first
    });
    assert!(most <= 4_000_000, "{most} bytes");
    let list = all(&server);
    assert_there(&server, &list);
    let live = playlist(&server, PLAYLIST).unwrap();
    assert!(live.segments.len() == 3 && live.segments.iter().all(|segment| !segment.gap));
    let other = playlist(&server, "/live/streams/other.m3u8?dvr=true").unwrap();
    assert_there(&server, &other);
}

#[test]
fn who_may_not_play_cannot_go_back() {
    let server = Server::start(&[
        "app.dvr.window=600",
        "app.hlsTime=1",
        "app.hlsListSize=3",
        "app.playTokenControlEnabled=true",
        "app.tokenHashSecret=0123456789abcdef0123456789abcdef",
    ]);
    let file = media_file(false, 12);
    let _publisher = publish(&server, &file, "cam");
    let token = || {
        let path = "/live/rest/v2/broadcasts/cam/token?expireDate=4000000000&type=play";
        let answer = server.api().get(path).json();
        answer["tokenId"].as_str().unwrap().to_owned()
    };
    let path = format!("{PLAYLIST}?dvr=true");
    wait_for("segments", secs(60), || {
        let list = playlist(&server, &format!("{path}&token={}", token()));
        list.is_some_and(|list| list.segments.len() >= 12)
    });
    let list = playlist(&server, &format!("{path}&token={}", token())).unwrap();
    let first = &list.segments[0].uri;
    assert!(first.contains("?token="), "{first}");
    assert_eq!(fetch(&server, first).0, 200);
    assert_eq!(fetch(&server, first.split('?').next().unwrap()).0, 403);
    assert_eq!(server.api().get(&path).status, 403);
}

#[test]
fn a_clip_has_every_picture_of_a_time_that_is_on_the_disk() {
    for kind in ["mpegts", "fmp4"] {
        let kind_is = format!("app.hlsSegmentType={kind}");
        let server = Server::start(&["app.dvr.window=600", "app.hlsTime=1", "app.hlsListSize=3", &kind_is]);
        let file = media_file(false, 12);
        let _publisher = publish(&server, &file, "cam");
        wait_for_segments(&server, 20);
        // There is a key frame every second. All but the newest segments are only on the disk.
        let first_ms = all(&server).segments[0].program_date_time.unwrap();
        let seconds = |ms: i64| format!("{}.{:03}", (first_ms + ms) / 1000, (first_ms + ms) % 1000);
        let query = format!("start={}&end={}", seconds(2400), seconds(12_500));
        let answer = server.api().post(&format!("/live/rest/v2/broadcasts/cam/clip?{query}"), "").json();
        let made = unit_md5(&clips::made(&server, &answer), None);
        let pictures: Vec<_> = made.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
        assert_eq!(pictures.len(), 330, "{kind}: from 2 s to 13 s");
        let source = unit_md5(file.to_str().unwrap(), None);
        let source: Vec<_> = source.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
        let at = source.iter().position(|hash| *hash == pictures[0]).unwrap();
        assert_eq!(at % 30, 0, "it begins with a key frame");
        assert!(pictures.iter().eq(source.iter().cycle().skip(at).take(330)), "{kind}");
    }
}

/// Returns the paths of the tracks' playlists. The multivariant playlist passes `query`, which selects the times, on to
/// them.
fn tracks(server: &Server, query: &str) -> Vec<String> {
    let master = server.api().get(&format!("/live/streams/ll-hls/cam/cam__master.m3u8{query}")).body;
    let uris = master.lines().filter_map(|line| match line.split_once("URI=\"") {
        Some((_, uri)) => uri.split('"').next(),
        None => (!line.starts_with('#') && !line.is_empty()).then_some(line),
    });
    uris.map(|uri| format!("/live/streams/ll-hls/cam/{uri}")).collect()
}

#[test]
fn a_viewer_with_low_latency_goes_back_too() {
    let settings =
        ["app.dvr.window=600", "app.hlsTime=1", "app.hlsListSize=3", "app.hlsEnableLowLatency=true"];
    let server = Server::start(&settings);
    let _publisher = publish(&server, &media_file(false, 12), "cam");
    wait_for("the tracks", secs(60), || tracks(&server, "").len() == 2);
    assert!(tracks(&server, "").iter().all(|path| !path.contains('?')));
    let paths = tracks(&server, "?dvr=true");
    assert!(paths.len() == 2 && paths.iter().all(|path| path.ends_with("?dvr=true")), "{paths:?}");
    wait_for("segments", secs(90), || {
        paths.iter().all(|path| playlist(&server, path).is_some_and(|list| list.segments.len() >= 22))
    });
    for path in &paths {
        let plain = path.trim_end_matches("?dvr=true");
        let (live, whole) = (playlist(&server, plain).unwrap(), playlist(&server, path).unwrap());
        assert!(live.segments.len() <= 4 && whole.low_latency.is_some(), "{live}");
        for Segment { uri, map, .. } in &whole.segments {
            assert_eq!(fetch(&server, &format!("ll-hls/cam/{uri}")).0, 200, "{uri}");
            assert_eq!(fetch(&server, &format!("ll-hls/cam/{}", map.as_ref().unwrap().uri)).0, 200);
        }
        // A reload waits for the next part. The answer is a delta update, which leaves out the older segments.
        let next = whole.media_sequence + whole.segments.len() as u64 + 1;
        let text = server.api().get(&format!("{path}&_HLS_msn={next}&_HLS_part=0&_HLS_skip=YES")).body;
        assert!(text.contains("#EXT-X-SKIP:SKIPPED-SEGMENTS="), "{text}");
        let later = playlist(&server, path).unwrap();
        assert!(later.media_sequence + later.segments.len() as u64 >= next, "{later}");
        // A playlist can begin at a given time. If it also ends at a given time, it is a complete recording.
        let from_s = whole.segments[0].program_date_time.unwrap() / 1000 + 4;
        let from = playlist(&server, &format!("{plain}?start={from_s}")).unwrap();
        assert!(from.low_latency.is_some() && from.media_sequence > whole.media_sequence, "{from}");
        let text = server.api().get(&format!("{plain}?start={from_s}&end={}", from_s + 4)).body;
        assert!(text.ends_with("#EXT-X-ENDLIST\n") && !text.contains("-PART"), "{text}");
    }
    // ffmpeg plays from the first segment on, which is no longer in memory.
    let url = format!("http://{}/live/streams/ll-hls/cam/cam__master.m3u8?dvr=true", server.http);
    let mut player = Command::new("ffmpeg");
    player.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-live_start_index", "0", "-i", &url]);
    player.args(["-t", "6", "-map", "0:v", "-c", "copy", "-f", "framemd5", "-"]);
    let (status, out, said) = run(&mut player);
    assert!(status.success(), "{said}");
    let frames = out.lines().filter(|line| !line.starts_with('#')).count();
    assert!((170..=185).contains(&frames), "{frames}");
    // All files on the disk are deleted with the stream.
    let folders = server.home().join("home/webapps/live/.dvr");
    let kept = || std::fs::read_dir(&folders).map_or(0, |entries| entries.count());
    assert!(kept() >= 2, "{}", kept());
    assert_eq!(server.api().delete("/live/rest/v2/broadcasts/cam").status, 200);
    wait_for("the end of the files", secs(20), || kept() == 0);
}

const MANIFEST: &str = "/live/streams/cam/cam.mpd";

/// Returns the paths of the video's segments in a manifest, and those of all initialization sections.
fn described(server: &Server, query: &str) -> (Vec<String>, Vec<String>, String) {
    let text = server.api().get(&format!("{MANIFEST}{query}")).body;
    let value = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        Some(rest.split('"').next().unwrap().to_owned())
    };
    let number = |line: &str, name: &str| value(line, name).and_then(|value| value.parse::<u64>().ok());
    let path = |name: &str| format!("ll-hls/cam/{}", name.replace("&amp;", "&"));
    let (mut media, mut next, mut segments, mut inits) = (String::new(), 0, Vec::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with("<SegmentTemplate ") {
            (media, next) = (value(line, "media").unwrap(), number(line, "startNumber").unwrap());
            inits.push(path(&value(line, "initialization").unwrap()));
        } else if line.starts_with("<S ") && media.contains("__video") {
            for _ in 0..=number(line, "r").unwrap_or(0) {
                segments.push(path(&media.replace("$Number%09d$", &format!("{next:09}"))));
                next += 1;
            }
        }
    }
    (segments, inits, text)
}

#[test]
fn a_viewer_of_dash_goes_back_over_a_restart_of_the_server() {
    let settings = [
        "app.dvr.window=600",
        "app.hlsTime=1",
        "app.hlsListSize=3",
        "app.dashMuxingEnabled=true",
        "app.publisherGraceMs=0",
    ];
    let mut server = Server::start(&settings);
    let file = media_file(false, 12);
    let publisher = publish(&server, &file, "cam");
    // The files are written although nobody watches.
    let folder = server.home().join("home/webapps/live/.dvr/ll-hls%2Fcam%2Fcam__video");
    let kept = || std::fs::read_dir(&folder).map_or(0, |files| files.count());
    wait_for("files", secs(60), || kept() > 20);
    let (first, ..) = described(&server, "?dvr=true");
    let (live, _, text) = described(&server, "");
    assert!(first.len() >= 16 && live.len() <= 4 && !live.contains(&first[0]), "{text}");
    server.kill();
    drop(publisher);
    let again = Server::start_in(&server.home().join("home"), &settings);
    let _publisher = publish(&again, &file, "cam");
    wait_for("both runs", secs(60), || {
        let (all, _, text) = described(&again, "?dvr=true");
        text.matches("<Period ").count() == 2 && all.len() > first.len() + 8
    });
    let (all, inits, text) = described(&again, "?dvr=true");
    let common = first.iter().filter(|name| all.contains(name)).count();
    assert!(first[0] == all[0] && common + 2 >= first.len(), "{common} of {}: {text}", first.len());
    assert!(
        inits.len() == 4 && text.contains("availabilityStartTime=\"2026-01-01T00:00:00.000Z\""),
        "{text}"
    );
    for name in all.iter().chain(&inits) {
        assert_eq!(fetch(&again, name).0, 200, "{name}");
    }
    // A past span of the first run, which only the disk has, is played like a file.
    let begun = playlist(&again, "/live/streams/ll-hls/cam/cam__video.m3u8?dvr=true").unwrap();
    let from_s = begun.segments[0].program_date_time.unwrap() / 1000 + 4;
    let (span, _, text) = described(&again, &format!("?start={from_s}&end={}", from_s + 8));
    assert!(text.contains("type=\"static\"") && (8..=10).contains(&span.len()), "{text}");
    let url = format!("http://{}{MANIFEST}?start={from_s}&end={}", again.http, from_s + 8);
    let played = unit_md5(&url, None);
    let pictures: Vec<_> = played.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
    let source = unit_md5(file.to_str().unwrap(), None);
    let source: Vec<_> = source.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
    let at = source.iter().position(|hash| *hash == pictures[0]).unwrap();
    assert!(at % 30 == 0 && pictures.len() == span.len() * 30, "{at} {}", pictures.len());
    assert!(pictures.iter().eq(source.iter().cycle().skip(at).take(pictures.len())));
    // Times that cannot be are answered as well, and other streams are not.
    for (query, status) in [
        ("?start=99999999999999999999", 200),
        ("?start=-9223372036854775808", 200),
        ("?end=0", 200),
        ("?start=%F0%9F%92%A9&end=%00", 200),
    ] {
        assert_eq!(again.api().get(&format!("{MANIFEST}{query}")).status, status, "{query}");
    }
    assert_eq!(again.api().get("/live/streams/ll-hls/cam/..%2F..%2F.dvr%2Fcam?dash").status, 400);
    assert_eq!(again.api().delete("/live/rest/v2/broadcasts/cam").status, 200);
    wait_for("the end of the files", secs(20), || kept() == 0);
}
