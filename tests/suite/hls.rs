//! HLS as it is played: by real players, until the end, across a publisher that comes back.

use std::process::Command;

use crate::publish_play::{assert_track_within, is_broadcasting};
use crate::support::{Program, Server, media_file, run, secs, unit_md5, wait_for};

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
        // It can still be fetched for a while, and says that it is over.
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
    assert_eq!(server.api().get(PLAYLIST).status, 200);
    publisher.signal("KILL");
    drop(publisher);
    let _again = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    let text = || server.api().get(PLAYLIST).body;
    wait_for("the discontinuity", secs(30), || text().contains("#EXT-X-DISCONTINUITY\n"));
    assert!(!text().contains("ENDLIST") && text().contains("MEDIA-SEQUENCE:1\n"), "{}", text());
}

#[test]
fn an_application_may_have_none_and_one_that_is_secured_gives_none() {
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
    // It may take longer than one request waits.
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
