//! The main task of the server: players get what encoders publish, with the same bytes and the same times, tested with
//! real programs.

use std::path::Path;
use std::process::Command;

use crate::support::{
    Packet, Program, Publisher, RtmpPeer, Server, frame_md5, media_file, run, secs, source_packets, wait_for,
};

/// Publishes `file` once with ffmpeg, plays it with ffmpeg, and compares.
fn ffmpeg_round_trip(bframes: bool) {
    let file = media_file(bframes, 12);
    let server = Server::start(&[]);
    let url = server.rtmp_url("live/whole");
    let mut publisher = Command::new("ffmpeg");
    publisher.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]);
    let _publisher = Program::start(publisher.arg(&file).args(["-c", "copy", "-f", "flv", &url]));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "whole"));
    assert_equal_from_first_key_frame(&source_packets(&file), &frame_md5(&url, Some(6)));
}

pub(super) fn is_broadcasting(server: &Server, id: &str) -> bool {
    server.api().broadcast("live", id).is_some_and(|broadcast| broadcast["status"] == "broadcasting")
}

/// Checks that the played packets of each track are an unbroken sequence of the source's packets, with the same time
/// differences.
pub fn assert_equal_from_first_key_frame(source: &[Packet], played: &[Packet]) {
    for track in 0..2 {
        assert_track_equal((track, source), (track, played));
    }
}

/// Checks that the played packets of a track are an unbroken sequence of the source's packets, with the same time
/// differences.
pub fn assert_track_equal(source: (u32, &[Packet]), played: (u32, &[Packet])) {
    assert_track_within(0, source, played);
}

/// Like [`assert_track_equal`], but times may differ by `tolerance` milliseconds, because clocks of 90 kHz and 1 kHz
/// round differently.
pub fn assert_track_within(
    tolerance: i64,
    (track, source): (u32, &[Packet]),
    (played_as, played): (u32, &[Packet]),
) {
    let of_track =
        |packets: &[Packet], track: u32| packets.iter().filter(|p| p.0 == track).cloned().collect::<Vec<_>>();
    let (source, played) = (of_track(source, track), of_track(played, played_as));
    assert!(played.len() > 60, "track {track}: {} packets played", played.len());
    // Packets of silence are all equal, so the start is the position at which all played packets match.
    let hashes = |packets: &[Packet]| packets.iter().map(|p| (p.3, p.4.clone())).collect::<Vec<_>>();
    let (all, got) = (hashes(&source), hashes(&played));
    let start = (0..all.len())
        .find(|&at| all[at..].starts_with(&got))
        .unwrap_or_else(|| panic!("track {track}: what was played is no unbroken part of the source"));
    let shift = played[0].1 - source[start].1;
    for (theirs, ours) in source[start..].iter().zip(&played) {
        let off = |theirs: i64, ours: i64| (theirs + shift - ours).abs();
        assert!(
            off(theirs.1, ours.1) <= tolerance && off(theirs.2, ours.2) <= tolerance,
            "track {track}: times of {ours:?} behind {theirs:?}, shifted by {shift}"
        );
    }
}

#[test]
fn ffmpeg_to_ffmpeg_is_equal_without_reordered_frames() {
    ffmpeg_round_trip(false);
}

#[test]
fn ffmpeg_to_ffmpeg_is_equal_with_reordered_frames() {
    ffmpeg_round_trip(true);
}

#[test]
fn gstreamer_publishes_and_ffmpeg_plays_the_same() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let url = server.rtmp_url("live/gst");
    // GStreamer's muxer assigns new timestamps that differ between runs, so the result is compared with the bytes that
    // were sent in this run.
    let sent = server.home().join("sent.flv");
    let mut publisher = Program::start(&mut gst_publish(&file, &url, &sent));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "gst"));
    let played = frame_md5(&url, Some(5));
    publisher.wait(secs(20));
    assert_equal_from_first_key_frame(&source_packets(&sent), &played);
}

#[test]
fn ffmpeg_publishes_and_gstreamer_plays_the_same() {
    for bframes in [false, true] {
        let file = media_file(bframes, 12);
        let server = Server::start(&[]);
        let url = server.rtmp_url("live/for-gst");
        let mut publisher = Command::new("ffmpeg");
        publisher.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
        let _publisher = Program::start(publisher.args(["-c", "copy", "-f", "flv", &url]));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "for-gst"));
        let copy = server.home().join("gst.flv");
        let mut player = Command::new("gst-launch-1.0");
        player.args(["-q", "rtmp2src", &format!("location={url}"), "num-buffers=400", "!", "filesink"]);
        let (status, _, err) = run(player.arg(format!("location={}", copy.display())));
        assert!(status.success() && !err.contains("ERROR"), "{err}");
        assert_equal_from_first_key_frame(&source_packets(&file), &source_packets(&copy));
    }
}

/// Publishes a file in real time, and writes the sent bytes to another file.
fn gst_publish(file: &Path, url: &str, sent: &Path) -> Command {
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "filesrc", &format!("location={}", file.display()), "!", "flvdemux", "name=d"]);
    command.args(["flvmux", "name=m", "streamable=true", "!", "tee", "name=t"]);
    command.args(["t.", "!", "queue", "!", "rtmp2sink", &format!("location={url}")]);
    command.args(["t.", "!", "queue", "!", "filesink", &format!("location={}", sent.display())]);
    command.args(["d.video", "!", "queue", "!", "clocksync", "!", "m."]);
    command.args(["d.audio", "!", "queue", "!", "aacparse", "!", "clocksync", "!", "m."]);
    command
}

#[test]
fn a_viewer_on_another_worker_gets_the_same() {
    let file = media_file(true, 30);
    let server = Server::start(&["server.workers=3"]);
    let url = server.rtmp_url("live/mirrored");
    let _publisher = Program::ffmpeg_publish(&file, &url);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "mirrored"));
    let source = source_packets(&file);
    // The kernel distributes connections over the workers by port, so of six viewers some are on another worker than
    // the publisher.
    let viewers: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            // ffmpeg counts the seconds from the stream's time zero, and the viewer may start some seconds later.
            std::thread::spawn(move || frame_md5(&url, Some(6)))
        })
        .collect();
    for viewer in viewers {
        assert_equal_from_first_key_frame(&source, &viewer.join().unwrap());
    }
}

#[test]
fn a_player_that_joins_late_sees_the_two_tracks_and_no_third() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let url = server.rtmp_url("live/tracks");
    let _publisher = Program::ffmpeg_publish(&file, &url);
    wait_for("the stream", secs(20), || is_broadcasting(&server, "tracks"));
    std::thread::sleep(secs(2));
    let mut probe = Command::new("ffprobe");
    let (_, tracks, err) =
        run(probe.args(["-loglevel", "error", "-show_entries", "stream=codec_name", "-of", "csv", &url]));
    let mut tracks: Vec<_> = tracks.lines().collect();
    tracks.sort_unstable();
    assert_eq!(tracks, ["stream,aac", "stream,h264"], "{err}");
}

#[test]
fn key_forms_of_real_encoders_mean_the_same_stream() {
    let server = Server::start(&[]);
    for (app, name) in [
        ("live", "forms?token=abc&subscriberId=u1"),
        ("live", "/forms"),
        ("live/forms", "tok/sub/code"),
        ("live", "forms/tok/sub/code"),
        ("live", "forms%2Ftok"),
    ] {
        let publisher =
            RtmpPeer::publish(server.rtmp, app, name).unwrap_or_else(|error| panic!("{app} {name}: {error}"));
        assert!(is_broadcasting(&server, "forms"), "{app} {name}");
        publisher.close();
        wait_for("the id to be free", secs(5), || server.api().broadcast("live", "forms").is_none());
    }
}

#[test]
fn refusals_are_sent_before_the_connection_closes() {
    let server = Server::start(&[]);
    let _live = Publisher::start(server.rtmp, "live", "taken");
    let refused = |app: &str, name: &str| RtmpPeer::publish(server.rtmp, app, name).unwrap_err();
    assert_eq!(
        refused("live", "taken"),
        "NetStream.Publish.BadName: You are not allowed to publish the stream."
    );
    assert!(refused("live", "a b").starts_with("NetStream.Failed: stream name is invalid."));
    let many = format!("x?{}", "token&".repeat(33));
    assert!(refused("live", &many).starts_with("NetStream.InvalidArg: Failed to publish (stream id: "));
    assert!(refused("nowhere", "x").contains("No scope 'nowhere' on this server."));
    let played = RtmpPeer::play(server.rtmp, "live", "offline").unwrap_err();
    assert!(played.starts_with("NetStream.Play.StreamNotFound"), "{played}");

    let closed = Server::start(&["app.rtmpPlaybackEnabled=false", "app.acceptOnlyStreamsInDataStore=true"]);
    assert!(RtmpPeer::publish(closed.rtmp, "live", "unknown").unwrap_err().contains("BadName"));
    closed.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"known"}"#);
    let _known = Publisher::start(closed.rtmp, "live", "known");
    let played = RtmpPeer::play(closed.rtmp, "live", "known").unwrap_err();
    assert_eq!(played, "NetStream.Failed: RTMP playback is disabled.");
}

#[test]
fn ffmpeg_prints_the_reason_of_a_refusal() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let _live = Publisher::start(server.rtmp, "live", "taken");
    let mut publisher = Command::new("ffmpeg");
    publisher.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
    let (status, _, err) = run(publisher.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/taken")]));
    assert!(!status.success() && err.contains("You are not allowed to publish the stream."), "{err}");
}

#[test]
fn a_zombi_record_lives_as_long_as_its_stream() {
    let server = Server::start(&[]);
    let publisher = Publisher::start(server.rtmp, "live", "zombi");
    let record = server.api().broadcast("live", "zombi").unwrap();
    assert_eq!(
        (&record["zombi"], &record["publishType"], &record["status"]),
        (&true.into(), &"RTMP".into(), &"broadcasting".into())
    );
    publisher.stop();
    wait_for("the record to go", secs(5), || server.api().broadcast("live", "zombi").is_none());
}

#[test]
fn a_publisher_that_returns_within_the_grace_keeps_its_viewers() {
    let server = Server::start(&["server.workers=2"]);
    server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"back"}"#);
    for round in 0..3 {
        let mut first = RtmpPeer::publish(server.rtmp, "live", "back").unwrap();
        first.send_configs().unwrap();
        let mut source = netsim::MediaSource::new(&crypto::Seed::from_number(round));
        crate::support::publish_synthetic(&mut first, &mut source, 100).unwrap();
        let mut viewer = RtmpPeer::play(server.rtmp, "live", "back").unwrap();
        let before = viewer.next_media(secs(5)).unwrap();
        drop(first);
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(is_broadcasting(&server, "back"), "in grace the status stays");
        let mut second = RtmpPeer::publish(server.rtmp, "live", "back").unwrap();
        second.send_configs().unwrap();
        let mut source = netsim::MediaSource::new(&crypto::Seed::from_number(round + 100));
        crate::support::publish_synthetic(&mut second, &mut source, 100).unwrap();
        // On the same connection, the timestamps continue after the last one.
        let mut last = before.timestamp;
        wait_for("the second publisher's media", secs(10), || {
            let message = viewer.next_media(secs(5)).unwrap();
            assert!(message.timestamp + 500 >= last, "{} after {last}", message.timestamp);
            last = last.max(message.timestamp);
            last > before.timestamp + 2000
        });
        second.close();
        wait_for("the end", secs(5), || !is_broadcasting(&server, "back"));
    }
}
