//! Clips: recordings made from a part of the segments that are kept of a live stream.

use std::process::Command;

use ::hls::Playlist;
use ::hls::playlist::MediaPlaylist;
use serde_json::Value as Json;

use crate::publish_play::is_broadcasting;
use crate::support::{Program, Server, media_file, secs, unit_md5, wait_for};

const PLAYLIST: &str = "/live/streams/cam.m3u8";

fn playlist(server: &Server) -> Option<MediaPlaylist> {
    let reply = server.api().get(PLAYLIST);
    match Playlist::read(reply.body.as_bytes()) {
        Ok(Playlist::Media(playlist)) => Some(playlist),
        _ => None,
    }
}

/// Waits for the clip whose id is in the answer, and returns the URL of the clip.
pub fn made(server: &Server, answer: &Json) -> String {
    assert_eq!(answer["success"], true, "{answer}");
    let id = answer["dataId"].as_str().unwrap();
    let vod = || server.api().get(&format!("/live/rest/v2/vods/{id}"));
    wait_for("the clip", secs(20), || vod().json()["filePath"].is_string());
    format!("http://{}/live/{}", server.http, vod().json()["filePath"].as_str().unwrap())
}

#[test]
fn a_clip_has_every_picture_between_two_key_frames_and_no_other() {
    for kind in ["mpegts", "fmp4"] {
        let server = Server::start(&["app.hls.begin=stream", &format!("app.hlsSegmentType={kind}")]);
        // The file has a key frame every second. Segments last two seconds.
        let file = media_file(false, 12);
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
        command.arg(&file).args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]);
        let _publisher = Program::start(&mut command);
        wait_for("the stream", secs(20), || is_broadcasting(&server, "cam"));
        wait_for("segments", secs(40), || {
            playlist(&server).is_some_and(|playlist| playlist.segments.len() >= 4)
        });
        let first_ms = playlist(&server).unwrap().segments[0].program_date_time.unwrap();
        let seconds = |ms: i64| format!("{}.{:03}", (first_ms + ms) / 1000, (first_ms + ms) % 1000);
        let clip = |from_ms: i64, to_ms: i64| {
            let query = format!("start={}&end={}", seconds(from_ms), seconds(to_ms));
            server.api().post(&format!("/live/rest/v2/broadcasts/cam/clip?{query}"), "").json()
        };
        // The clip begins within the second GOP of the first segment, and ends within the first GOP of the third.
        let made = unit_md5(&made(&server, &clip(1400, 4500)), None);
        let pictures: Vec<_> = made.iter().filter(|packet| packet.0 == 0).collect();
        assert_eq!(pictures.len(), 120, "{kind}: from 1 s to 5 s");
        let source = unit_md5(file.to_str().unwrap(), None);
        let source: Vec<_> = source.iter().filter(|packet| packet.0 == 0).map(|packet| &packet.4).collect();
        let at = source.iter().position(|hash| **hash == pictures[0].4).unwrap();
        assert_eq!(at % 30, 0, "the clip begins with a key frame");
        let as_sent = source.iter().cycle().skip(at);
        assert!(pictures.iter().map(|packet| &packet.4).eq(as_sent.take(120).copied()));
        assert!(made.iter().filter(|packet| packet.0 == 1).count() > 150, "and has its sound");
        // A time of which no segments are kept gives an error.
        let answer = clip(-100_000, -90_000);
        assert_eq!((&answer["success"], answer["message"].as_str().is_some()), (&false.into(), true));
    }
}
