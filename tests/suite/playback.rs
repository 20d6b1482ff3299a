//! Recordings of every codec, played as stream sources over RTMP, RTSP and WebRTC. Every frame must be the published
//! one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use media::codec::{Codec, av1, h264, h265};
use media::nal::Nals;
use rtmp::MediaKind;

use crate::codecs::{ANNOUNCE, X265_IN_ORDER, bodies, files, frames, publish};
use crate::publish_play::is_broadcasting;
use crate::support::{Packet, RtcClient, Server, bare_md5_by, coded_file, secs, wait_for};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

/// A stream with its file and codecs.
struct Film {
    name: &'static str,
    file: PathBuf,
    video: Codec,
    audio: Codec,
}

/// Returns films with every codec that MP4 supports. Two have no B-frames, because WebRTC viewers are not sent
/// B-frames.
fn films() -> Vec<Film> {
    let mut films: Vec<Film> = Vec::new();
    for (name, file) in files() {
        let (video, audio) = match name {
            "hevc-aac" => (Codec::H265, Codec::Aac),
            "av1-opus" => (Codec::Av1, Codec::Opus),
            "vp9-flac" => (Codec::Vp9, Codec::Flac),
            "h264-ac3" => (Codec::H264, Codec::Ac3),
            "h264-eac3" => (Codec::H264, Codec::Eac3),
            "h264-mp3" => (Codec::H264, Codec::Mp3),
            _ => continue,
        };
        films.push(Film { name, file, video, audio });
    }
    let opus = ["-c:a", "libopus"];
    let baseline = ["-c:v", "libx264", "-profile:v", "baseline", "-bf", "0"];
    for (name, video, coding) in
        [("h264-opus", Codec::H264, &baseline), ("hevc-opus", Codec::H265, &X265_IN_ORDER)]
    {
        let file = coded_file(&format!("{name}-in-order"), &[&coding[..], &opus].concat());
        films.push(Film { name, file, video, audio: Codec::Opus });
    }
    films
}

/// Starts a server with a recording of each film. Each recording is played again and again as `again-{name}`.
fn cinema(films: &[Film]) -> Server {
    let server = Server::start(&[
        "app.mp4MuxingEnabled=true",
        "app.publisherGraceMs=0",
        "app.audio.toAac=false",
        "app.audio.toOpus=false",
        "server.workers=2",
    ]);
    let publishers: Vec<_> = films.iter().map(|film| publish(&server, film.name, &film.file)).collect();
    let recorded = || server.api().get("/live/rest/v2/vods/list/0/50").json().as_array().unwrap().len();
    wait_for("all to be recorded", secs(60), || recorded() == films.len());
    drop(publishers);
    for Film { name, .. } in films {
        let url = format!("streams/{name}.mp4");
        let body =
            format!(r#"{{"streamId":"again-{name}","type":"VoD","streamUrl":"{url}","mp4Enabled":-1}}"#);
        server.api().post(&format!("{BROADCASTS}/create"), &body);
        let started = server.api().post(&format!("{BROADCASTS}/again-{name}/start"), "").json();
        assert_eq!(started["success"], true, "{started}");
    }
    for film in films {
        let name = format!("again-{}", film.name);
        wait_for(&name, secs(20), || is_broadcasting(&server, &name));
    }
    server
}

/// Checks that `got` is an unbroken part of `all`. It may continue once at the start of `all`, because a source starts
/// again after its end.
fn assert_part<T: PartialEq>(all: &[T], got: &[T], what: &str) {
    let is_part = |got: &[T]| (0..all.len()).any(|at| all[at..].starts_with(got));
    let ends = (0..=got.len()).any(|end| is_part(&got[..end]) && all.starts_with(&got[end..]));
    let places: Vec<_> = got.iter().map(|one| all.iter().position(|other| other == one)).collect();
    assert!(got.len() > 60 && ends, "{what}: no unbroken part of {}: {places:?}", all.len());
}

/// Returns the sizes and hashes of the packets of a track.
fn hashes(packets: &[Packet], track: u32) -> Vec<(u64, String)> {
    packets.iter().filter(|packet| packet.0 == track).map(|packet| (packet.3, packet.4.clone())).collect()
}

/// True if our RTSP server supports the codec.
const fn is_in_rtsp(codec: Codec) -> bool {
    !matches!(codec, Codec::Ac3 | Codec::Eac3 | Codec::Flac)
}

#[test]
fn a_recording_is_a_source_whose_players_get_every_frame_as_it_was_published() {
    let films = films();
    let server = Arc::new(cinema(&films));
    let players: Vec<_> = films
        .into_iter()
        .map(|film| {
            let server = Arc::clone(&server);
            thread::spawn(move || play(&server, &film))
        })
        .collect();
    players.into_iter().for_each(|player| player.join().unwrap());
}

fn play(server: &Server, Film { name, file, video, audio }: &Film) {
    let mut source = bare_md5_by(&[], Some(*video), file.to_str().unwrap(), None);
    // A recording begins with a key frame, and does not contain earlier audio.
    let begin = source.iter().find(|packet| packet.0 == 0).unwrap().1;
    source.retain(|packet| packet.1 >= begin);
    let path = format!("live/again-{name}");
    for (protocol, options, url) in [
        ("RTMP", &ANNOUNCE[..], server.rtmp_url(&path)),
        ("RTSP", &["-rtsp_transport", "tcp"], server.rtsp_url(&path)),
    ] {
        let played = bare_md5_by(options, Some(*video), &url, Some(4));
        for (track, codec) in [(0, *video), (1, *audio)] {
            let (all, got) = (hashes(&source, track), hashes(&played, track));
            let what = format!("{name} over {protocol}: {codec:?}");
            if protocol == "RTSP" && !is_in_rtsp(codec) {
                assert!(got.is_empty(), "{what}");
            } else {
                assert_part(&all, &got, &what);
            }
        }
    }
}

#[test]
fn a_recording_is_a_source_whose_browsers_get_every_frame_as_it_was_published() {
    let mut films = films();
    films.retain(|film| ["av1-opus", "vp9-flac", "h264-opus", "hevc-opus"].contains(&film.name));
    let server = Arc::new(cinema(&films));
    let players: Vec<_> = films
        .into_iter()
        .map(|film| {
            let server = Arc::clone(&server);
            thread::spawn(move || hear(&server, &film))
        })
        .collect();
    players.into_iter().for_each(|player| player.join().unwrap());
}

fn hear(server: &Server, Film { name, file, video, audio }: &Film) {
    let codecs: Vec<Codec> = [*video, *audio].into_iter().filter(|codec| *codec != Codec::Flac).collect();
    let heard = RtcClient::hear(server, &format!("again-{name}"), &codecs, 120);
    for (codec, got) in codecs.into_iter().zip(heard) {
        let kind = if codec == *video { MediaKind::Video } else { MediaKind::Audio };
        let bare = |payload: &Bytes| bare(codec, payload);
        let all: Vec<_> = source(file, kind).iter().map(bare).collect();
        let got: Vec<_> = got.iter().map(bare).collect();
        assert_part(&all, &got, &format!("{name} over WebRTC: {codec:?}"));
    }
}

/// Returns the payloads of a file's frames from the first key frame on, where a recording begins.
fn source(file: &Path, kind: MediaKind) -> Vec<Bytes> {
    let bodies = bodies(file);
    let begin = frames(&bodies, MediaKind::Video)[0].0;
    frames(&bodies, kind).into_iter().filter(|frame| frame.0 >= begin).map(|frame| frame.2).collect()
}

/// Returns the NAL units or OBUs of a frame, without parameter sets and delimiters. For other codecs, returns the whole
/// frame. The SEI in which x265 describes itself (type 39) is left out, because ffmpeg moves it to the parameter sets.
fn bare(codec: Codec, payload: &Bytes) -> Vec<Vec<u8>> {
    let is_left_out = |nal: &[u8]| match codec {
        Codec::H264 => matches!(h264::nal_type(nal), 7..=9),
        _ => h265::nal_type(nal).is_some_and(|kind| matches!(kind, 32..=35 | 39)),
    };
    match codec {
        Codec::H264 | Codec::H265 => {
            let nals = Nals::new(payload, 4).map(Result::unwrap);
            nals.filter(|nal| !is_left_out(nal)).map(<[u8]>::to_vec).collect()
        }
        Codec::Av1 => {
            let mut reader = wire::Reader::new(payload);
            let mut obus = Vec::new();
            while !reader.is_empty() {
                let obu = av1::read_obu(&mut reader).unwrap();
                if obu.kind != av1::OBU_TEMPORAL_DELIMITER {
                    obus.push([&[obu.kind], obu.body].concat());
                }
            }
            obus
        }
        _ => vec![payload.to_vec()],
    }
}
