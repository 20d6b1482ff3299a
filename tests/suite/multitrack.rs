//! A stream with two video and two audio tracks, published by ffmpeg 9 with multitrack of Enhanced RTMP. Viewers of
//! every selection of tracks, over every protocol, must get the payloads unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::publish_play::{assert_track_equal, assert_track_within};
use crate::support::{
    Packet, Program, Server, ffmpeg9, frame_md5_by, make_once, run, secs, unit_md5, wait_for,
};

/// Seconds of media that each viewer plays.
const SECONDS: u32 = 4;

/// Returns a file with two H.264 and two AAC tracks.
fn file() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media/multitrack.mkv");
    make_once(&path, |path| {
        let video = |size: &str| format!("testsrc2=size={size}:rate=30");
        let audio = |hertz: u32| format!("sine=frequency={hertz}:sample_rate=48000");
        let mut command = Command::new(ffmpeg9());
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y"]);
        for source in [video("320x180"), video("160x90"), audio(440), audio(880)] {
            command.args(["-f", "lavfi", "-i", &source]);
        }
        command.args(["-map", "0", "-map", "1", "-map", "2", "-map", "3", "-t", "14", "-g", "30"]);
        command.args(["-c:v", "libx264", "-preset", "veryfast", "-bf", "0", "-pix_fmt", "yuv420p"]);
        command.args(["-c:a", "aac", "-ac", "2", "-metadata:s:a:1", "language=deu", "-f", "matroska"]);
        let (status, _, err) = run(command.arg(path));
        assert!(status.success(), "{err}");
    });
    path
}

fn publish(server: &Server) -> Program {
    let mut command = Command::new(ffmpeg9());
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file());
    let url = server.rtmp_url("live/multi");
    let program = Program::start(command.args(["-map", "0", "-c", "copy", "-f", "flv", &url]));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", "multi").is_some_and(|broadcast| broadcast["status"] == "broadcasting")
    });
    program
}

/// Returns the packets of the file. Tracks 0 and 1 are video, tracks 2 and 3 audio.
fn source(path: &Path) -> Vec<Packet> {
    frame_md5_by(&ffmpeg9(), &[], path.to_str().unwrap(), None)
}

fn tracks_of(packets: &[Packet]) -> u32 {
    packets.iter().map(|packet| packet.0 + 1).max().unwrap_or(0)
}

#[test]
fn four_viewers_of_four_selections_get_the_payloads_of_ffmpegs_multitrack() {
    let server = Server::start(&[]);
    let file = file();
    let source = source(&file);
    assert_eq!(tracks_of(&source), 4);
    let _publisher = publish(&server);
    // Each selection, with the tracks of the file that it selects.
    let selections: [(&str, &[u32]); 4] =
        [("", &[0, 2]), ("?video=1", &[1, 2]), ("?audio=1", &[0, 3]), ("?tracks=all", &[0, 1, 2, 3])];
    std::thread::scope(|scope| {
        let mut viewers = Vec::new();
        for (query, tracks) in selections {
            let http = format!("http://{}/live/multi.flv{query}", server.http);
            let rtmp = server.rtmp_url(&format!("live/multi{query}"));
            for url in [http, rtmp] {
                let play = move || (frame_md5_by(&ffmpeg9(), &[], &url, Some(SECONDS)), url);
                viewers.push((tracks, scope.spawn(play)));
            }
        }
        for (tracks, viewer) in viewers {
            let (played, url) = viewer.join().unwrap();
            assert_eq!(tracks_of(&played), tracks.len() as u32, "{url}");
            for (played_as, track) in (0..).zip(tracks) {
                assert_track_equal((*track, &source), (played_as, &played));
            }
        }
    });
}

#[test]
fn all_tracks_of_multitrack_are_played_over_srt_too() {
    let server = Server::start(&[]);
    let file = file();
    // Compares only slices, because MPEG-TS adds delimiters and parameter sets.
    let source = unit_md5(file.to_str().unwrap(), None);
    let _publisher = publish(&server);
    let address = server.srt.unwrap();
    std::thread::scope(|scope| {
        let viewers = [("", &[0, 2][..]), (",tracks=all", &[0, 1, 2, 3])].map(|(keys, tracks)| {
            let url = format!("srt://{address}?streamid=#!::r=live/multi,m=request{keys}");
            (keys, tracks, scope.spawn(move || unit_md5(&url, Some(SECONDS))))
        });
        for (keys, tracks, viewer) in viewers {
            let played = viewer.join().unwrap();
            assert_eq!(tracks_of(&played), tracks.len() as u32, "{keys}");
            for (played_as, track) in (0..).zip(tracks) {
                assert_track_within(1, (*track, &source), (played_as, &played));
            }
        }
    });
}

#[test]
fn two_videos_are_a_ladder_with_low_latency_and_in_dash() {
    let server = Server::start(&["app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"]);
    let _publisher = publish(&server);
    let folder = "/live/streams/ll-hls/multi/";
    let get = |path: &str| {
        let reply = server.api().get(path);
        assert_eq!(reply.status, 200, "{path} {}", reply.body);
        reply.body
    };
    let master = format!("{folder}multi__master_adaptive.m3u8");
    wait_for("both videos", secs(20), || server.api().get(&master).status == 200);
    let list = get(&master);
    let uris: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!((uris.len(), list.matches("TYPE=AUDIO").count()), (2, 2), "{list}");
    // The playlists of both video tracks have the same segments with the same numbers. Each playlist reports the state
    // of the three others.
    let dates = |uri: &str| {
        // The other renditions may begin a little later, and are reported with the next part.
        let path = format!("{folder}{uri}");
        let reports = |text: &str| text.matches("#EXT-X-RENDITION-REPORT:").count();
        wait_for("all reports", secs(10), || reports(&get(&path)) == 3);
        let text = get(&path);
        assert_eq!(reports(&text), 3, "{text}");
        assert!(text.contains("#EXT-X-PART:"), "{text}");
        let first = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:")).unwrap();
        let first: u64 = first.parse().unwrap();
        let dates = text.lines().filter_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:"));
        (first..).zip(dates.map(str::to_owned)).collect::<Vec<_>>()
    };
    let (high, low) = (dates(uris[0]), dates(uris[1]));
    let common = high.iter().filter(|segment| low.contains(segment)).count();
    assert!(common >= 2, "{high:?} {low:?}");
    let manifest = get("/live/streams/multi/multi_adaptive.mpd");
    assert_eq!(manifest.matches("contentType=\"video\"").count(), 1, "{manifest}");
    assert_eq!(manifest.matches("<Representation ").count(), 4, "{manifest}");
    assert!(!manifest.contains("segmentAlignment=\"false\""), "{manifest}");
    for path in [&*master, "/live/streams/multi/multi_adaptive.mpd"] {
        let mut player = Command::new(ffmpeg9());
        let url = format!("http://{}{path}", server.http);
        player.args(["-v", "error", "-nostdin", "-t", "2", "-i", &url, "-map", "0:v", "-f", "null", "-"]);
        let (status, _, err) = run(&mut player);
        assert!(status.success(), "{path} {err}");
    }
}
