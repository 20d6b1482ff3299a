//! Standbys with real encoders: a second publisher of a stream takes over when the first is killed or hangs.

use std::process::Command;

use rtmp::MediaKind;

use crate::publish_play::is_broadcasting;
use crate::support::{
    Over, Player, Program, RtcClient, RtmpPeer, Server, media_file, secs, unit_payload, wait_for,
};

const PUBLISHERS: &str = "/live/rest/v2/broadcasts/cam/publishers";

/// Returns for each publisher the protocol and whether it is the active one.
fn publishers(server: &Server) -> Vec<(String, bool)> {
    let reply = server.api().get(PUBLISHERS);
    let list = if reply.status == 200 { reply.json() } else { serde_json::json!([]) };
    let of = |one: &serde_json::Value| {
        (one["publishType"].as_str().unwrap().to_owned(), one["active"].as_bool().unwrap())
    };
    list.as_array().unwrap().iter().map(of).collect()
}

fn named(all: &[(&str, bool)]) -> Vec<(String, bool)> {
    all.iter().map(|(name, active)| ((*name).to_owned(), *active)).collect()
}

/// True once the standby has a key frame with which it can begin.
fn is_prepared(server: &Server) -> bool {
    server.api().get(PUBLISHERS).json().as_array().unwrap().iter().any(|one| one["hasKeyFrame"] == true)
}

/// Publishes a file in a loop, as a backup.
fn backup(options: &[&str], url: &str) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    Program::start(command.arg(media_file(false, 12)).args(["-c", "copy", "-f"]).args(options).arg(url))
}

fn srt_backup(server: &Server) -> Program {
    backup(&["mpegts"], &format!("srt://{}?streamid=live/cam,backup=1", server.srt.unwrap()))
}

/// Reads until a viewer has received this many units of each kind. Returns the times in milliseconds of video and audio.
fn watch(viewer: &mut RtmpPeer, count: usize) -> [Vec<u32>; 2] {
    let mut times = [Vec::new(), Vec::new()];
    while times.iter().any(|times| times.len() < count) {
        let message = viewer.next_media(secs(30)).expect("the viewer stays connected and gets media");
        // Parameter sets have the time of the unit that they precede, of whatever track.
        if unit_payload(&message).is_none() {
            continue;
        }
        match message.kind {
            MediaKind::Video => times[0].push(message.timestamp),
            MediaKind::Audio => times[1].push(message.timestamp),
            MediaKind::Data => {}
        }
    }
    times
}

/// Checks that the times of what follows are not before the end of what was.
fn assert_continues(before: &[Vec<u32>; 2], after: &[Vec<u32>; 2]) {
    for (before, after) in before.iter().zip(after) {
        let all: Vec<u32> = before.iter().chain(after).copied().filter(|time| *time > 0).collect();
        assert!(all.is_sorted(), "{all:?}");
        let widest = all.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(widest < 5000, "a gap of {widest} ms of media");
    }
}

#[test]
fn an_encoder_that_is_killed_is_followed_by_its_backup_over_rtmp_srt_or_rtsp() {
    for kind in ["RTMP", "SRT", "RTSP"] {
        let server = Server::start(&["server.workers=2"]);
        let url = server.rtmp_url("live/cam");
        let first = Program::ffmpeg_publish(&media_file(false, 12), &url);
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        let _backup = match kind {
            "RTMP" => Program::ffmpeg_publish(&media_file(true, 12), &format!("{url}?backup=1")),
            "SRT" => srt_backup(&server),
            _ => backup(&["rtsp", "-rtsp_transport", "tcp"], &server.rtsp_url("live/cam?backup=1")),
        };
        wait_for("the standby", secs(20), || publishers(&server) == named(&[("RTMP", true), (kind, false)]));
        wait_for("its key frame", secs(20), || is_prepared(&server));
        let mut viewer = RtmpPeer::play(server.rtmp, "live", "cam").unwrap();
        let before = watch(&mut viewer, 60);
        first.signal("KILL");
        server.wait_for_line("standby took over the stream");
        assert_eq!(publishers(&server), named(&[(kind, true)]));
        let after = watch(&mut viewer, 400);
        assert_continues(&before, &after);
        assert!(is_broadcasting(&server, "cam"));
        assert!(!server.log().contains("stream ended"), "{}", server.log());
    }
}

#[test]
fn an_encoder_that_hangs_is_followed_by_its_backup_and_waits_when_it_is_back() {
    let server = Server::start(&["server.workers=2"]);
    let first = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let _backup = srt_backup(&server);
    wait_for("the standby", secs(20), || publishers(&server) == named(&[("RTMP", true), ("SRT", false)]));
    wait_for("its key frame", secs(20), || is_prepared(&server));
    let mut viewer = RtmpPeer::play(server.rtmp, "live", "cam").unwrap();
    let before = watch(&mut viewer, 60);
    first.signal("STOP");
    wait_for("the takeover", secs(20), || publishers(&server) == named(&[("SRT", true), ("RTMP", false)]));
    first.signal("CONT");
    let after = watch(&mut viewer, 200);
    assert_continues(&before, &after);
    assert_eq!(publishers(&server), named(&[("SRT", true), ("RTMP", false)]), "it waits");
    wait_for("a key frame of the first", secs(20), || is_prepared(&server));
    let reply = server.api().post("/live/rest/v2/broadcasts/cam/standby/switch", "");
    assert!(reply.status == 200 && reply.json()["success"] == true, "{}", reply.body);
    wait_for("the switch", secs(20), || publishers(&server) == named(&[("RTMP", true), ("SRT", false)]));
    let again = watch(&mut viewer, 200);
    assert_continues(&after, &again);
}

#[test]
fn an_encoder_that_is_killed_is_followed_by_a_browser() {
    let server = Server::start(&["server.workers=2"]);
    let first = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
    let mut browser = RtcClient::publish(&server, "cam?backup=1", Over::Udp);
    browser.run_until("the standby", secs(30), |_| {
        publishers(&server) == named(&[("RTMP", true), ("WebRTC", false)]) && is_prepared(&server)
    });
    let player = Player::start(server.rtmp, "live", "cam");
    browser.run_until("media", secs(20), |_| player.media() > 30);
    first.signal("KILL");
    browser.run_until("the takeover", secs(20), |_| publishers(&server) == named(&[("WebRTC", true)]));
    let before = player.media();
    browser.run_until("media of the browser", secs(20), |_| player.media() > before + 60);
    assert!(player.is_playing() && is_broadcasting(&server, "cam"));
}
