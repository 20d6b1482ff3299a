//! Every codec, with ffmpeg 9 as publisher and player. Players that announce a codec of Enhanced RTMP get the published
//! frames unchanged; other players do not get them.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use flv::tag::{AudioPacket, VideoPacket};
use rtmp::{FourCcs, MediaKind};

use crate::publish_play::assert_track_equal;
use crate::support::{
    Program, RtmpPeer, Server, coded_file, ffmpeg9, frame_md5, frame_md5_by, run, secs, wait_for,
};

const X264: [&str; 6] = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "2"];
/// Encoder options for H.265 without B-frames.
pub const X265_IN_ORDER: [&str; 6] =
    ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none:keyint=30:bframes=0"];
const X265: [&str; 8] = [
    "-c:v",
    "libx265",
    "-preset",
    "ultrafast",
    "-bf",
    "2",
    "-x265-params",
    "log-level=none:keyint=30:min-keyint=30:open-gop=0",
];
pub const AV1: [&str; 6] = ["-c:v", "libsvtav1", "-preset", "12", "-svtav1-params", "lp=1"];
pub const VP9: [&str; 6] = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"];
const G711: [&str; 7] = ["-vn", "-c:a", "pcm_alaw", "-ar", "8000", "-ac", "1"];

/// Options that make ffmpeg 9 announce the codecs that it can play.
pub const ANNOUNCE: [&str; 2] = ["-rtmp_enhanced_codecs", "hvc1,av01,vp09,Opus,fLaC,ac-3,ec-3"];

/// Returns the test files, each with the name of its codecs.
pub fn files() -> Vec<(&'static str, PathBuf)> {
    let file = |name, video: &[&str], audio: &[&str]| (name, coded_file(name, &[video, audio].concat()));
    vec![
        file("hevc-aac", &X265, &["-c:a", "aac"]),
        file("av1-opus", &AV1, &["-c:a", "libopus"]),
        file("vp9-flac", &VP9, &["-c:a", "flac", "-sample_fmt", "s16"]),
        file("h264-ac3", &X264, &["-c:a", "ac3"]),
        file("h264-eac3", &X264, &["-c:a", "eac3"]),
        file("h264-mp3", &X264, &["-c:a", "libmp3lame"]),
        file("pcma", &[], &G711),
    ]
}

pub fn publish(server: &Server, name: &str, file: &Path) -> Program {
    let mut command = Command::new(ffmpeg9());
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    let url = server.rtmp_url(&format!("live/{name}"));
    let program = Program::start(command.args(["-c", "copy", "-f", "flv", &url]));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", name).is_some_and(|broadcast| broadcast["status"] == "broadcasting")
    });
    program
}

/// Kind, timestamp and body of a media message.
pub type Body = (MediaKind, u32, Bytes);

/// Returns the bodies of a file's video and audio tags.
pub fn bodies(file: &Path) -> Vec<Body> {
    let mut reader = flv::file::Reader::new(16 << 20);
    reader.push(&std::fs::read(file).unwrap());
    let mut bodies = Vec::new();
    while let Ok(Some(tag)) = reader.poll_tag() {
        let kind = match tag.kind {
            flv::file::TagKind::Video => MediaKind::Video,
            flv::file::TagKind::Audio => MediaKind::Audio,
            _ => continue,
        };
        bodies.push((kind, tag.timestamp, tag.body));
    }
    bodies
}

/// Plays as a player that announces `four_ccs`, until `count` bodies have arrived.
fn played(server: &Server, name: &str, four_ccs: FourCcs, count: usize) -> Vec<Body> {
    let mut peer = RtmpPeer::play_announcing(server.rtmp, "live", name, four_ccs).unwrap();
    let mut bodies = Vec::new();
    while bodies.len() < count {
        let message = peer.next_media(secs(10)).unwrap();
        if message.kind != MediaKind::Data {
            bodies.push((message.kind, message.timestamp, message.payload));
        }
    }
    bodies
}

/// True if a body is a frame. False for metadata, parameter sets and the like.
fn is_frame((kind, _, body): &Body) -> bool {
    match kind {
        MediaKind::Video => flv::VideoTag::read(body).is_ok_and(|tag| tag.packet == VideoPacket::Frame),
        MediaKind::Audio => flv::AudioTag::read(body).is_ok_and(|tag| tag.packet == AudioPacket::Frame),
        MediaKind::Data => false,
    }
}

/// Returns the frames of one kind: timestamp, composition time, payload.
pub fn frames(bodies: &[Body], kind: MediaKind) -> Vec<(u32, i32, Bytes)> {
    let read = |(kind, time, body): &Body| match kind {
        MediaKind::Video => {
            let tag = flv::VideoTag::read(body).unwrap();
            (*time, tag.composition_time_ms, tag.payload)
        }
        _ => (*time, 0, flv::AudioTag::read(body).unwrap().payload),
    };
    bodies.iter().filter(|body| body.0 == kind && is_frame(body)).map(read).collect()
}

#[test]
fn every_codec_reaches_a_player_that_announced_it_unchanged() {
    let server = Server::start(&[]);
    let files = files();
    let _publishers: Vec<_> = files.iter().map(|(name, file)| publish(&server, name, file)).collect();
    for (name, file) in &files {
        let (source, played) = (bodies(&resent(&server, file)), played(&server, name, FourCcs::ALL, 100));
        for kind in [MediaKind::Video, MediaKind::Audio] {
            let (all, got) = (frames(&source, kind), frames(&played, kind));
            assert_eq!(got.is_empty(), all.is_empty(), "{name} {kind:?}");
            let start = all.iter().position(|frame| Some(frame) == got.first());
            let part = start.map(|start| &all[start..(start + got.len()).min(all.len())]);
            assert!(all.is_empty() || part == Some(&got), "{name} {kind:?}: no unbroken part of the source");
            // Before the frames, the player gets the same messages as the source contains: parameter sets, then colours
            // or channels, each once.
            let (theirs, ours) = (starts(&source, kind), starts(&played, kind));
            assert!(ours == theirs, "{name} {kind:?}: {} and {} bodies before", theirs.len(), ours.len());
        }
    }
}

/// Returns the file as ffmpeg sends it, because ffmpeg rewrites the colours and vpcC.
fn resent(server: &Server, file: &Path) -> PathBuf {
    let path = server.home().join("resent.flv");
    let mut command = Command::new(ffmpeg9());
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i"]).arg(file);
    let (status, _, err) = run(command.args(["-c", "copy", "-f", "flv"]).arg(&path));
    assert!(status.success(), "{err}");
    path
}

/// Returns the bodies with parameter sets, colours and channels.
fn starts(bodies: &[Body], kind: MediaKind) -> Vec<Bytes> {
    let is_start = |body: &&Body| match kind {
        MediaKind::Video => flv::VideoTag::read(&body.2)
            .is_ok_and(|tag| matches!(tag.packet, VideoPacket::SequenceHeader | VideoPacket::Metadata)),
        _ => flv::AudioTag::read(&body.2).is_ok_and(|tag| {
            matches!(tag.packet, AudioPacket::SequenceHeader | AudioPacket::MultichannelConfig)
        }),
    };
    bodies.iter().filter(|body| body.0 == kind).filter(is_start).map(|body| body.2.clone()).collect()
}

#[test]
fn ffmpeg_9_plays_what_it_announces() {
    let server = Server::start(&[]);
    for (name, file) in files().iter().filter(|(name, _)| *name != "pcma") {
        let _publisher = publish(&server, name, file);
        let source = frame_md5_by(&ffmpeg9(), &[], file.to_str().unwrap(), None);
        let url = server.rtmp_url(&format!("live/{name}"));
        let played = frame_md5_by(&ffmpeg9(), &ANNOUNCE, &url, Some(4));
        assert_track_equal((0, &source), (0, &played));
        assert_track_equal((1, &source), (1, &played));
    }
}

#[test]
fn ffmpeg_9_plays_every_codec_by_http_flv() {
    // Without this setting, the server would transcode audio to AAC for these players.
    let server = Server::start(&["app.audio.toAac=false"]);
    for (name, file) in &files() {
        let _publisher = publish(&server, name, file);
        let source = frame_md5_by(&ffmpeg9(), &[], file.to_str().unwrap(), None);
        let url = format!("http://{}/live/{name}.flv", server.http);
        let played = frame_md5_by(&ffmpeg9(), &[], &url, Some(4));
        let tracks = source.iter().map(|packet| packet.0).max().unwrap();
        assert!(played.iter().all(|packet| packet.0 <= tracks), "{name}");
        (0..=tracks).for_each(|track| assert_track_equal((track, &source), (track, &played)));
    }
}

#[test]
fn a_player_that_announces_nothing_gets_the_audio_it_knows_and_no_video_that_it_does_not() {
    let server = Server::start(&[]);
    let (_, file) = files().remove(0);
    let _publisher = publish(&server, "hevc-aac", &file);
    let played = played(&server, "hevc-aac", FourCcs::NONE, 100);
    assert!(played.iter().all(|body| body.0 == MediaKind::Audio), "{:?}", played.first());
    // The metadata must not announce video, because ffmpeg would wait for it for twenty seconds.
    let mut peer = RtmpPeer::play_announcing(server.rtmp, "live", "hevc-aac", FourCcs::NONE).unwrap();
    let metadata = loop {
        let message = peer.next_media(secs(10)).unwrap();
        if message.payload.starts_with(b"\x02\0\x0aonMetaData") {
            break message;
        }
    };
    let says = |name: &[u8]| metadata.payload.windows(name.len()).any(|window| window == name);
    assert!(says(b"audiocodecid") && !says(b"videocodecid") && !says(b"width"));
    let (all, got) = (frames(&bodies(&file), MediaKind::Audio), frames(&played, MediaKind::Audio));
    let start = all.iter().position(|frame| Some(frame) == got.first()).unwrap();
    assert_eq!(all[start..start + got.len()], got);
    // Debian's ffmpeg is older than Enhanced RTMP, so it announces no codecs and gets only the audio, too.
    let url = server.rtmp_url("live/hevc-aac");
    let source = frame_md5_by(&ffmpeg9(), &[], file.to_str().unwrap(), None);
    let played = frame_md5(&url, Some(3));
    let audio = played.iter().map(|packet| packet.0).max().unwrap();
    assert!(played.iter().all(|packet| packet.0 == audio));
    assert_track_equal((1, &source), (audio, &played));
}
