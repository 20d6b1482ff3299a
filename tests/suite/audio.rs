//! Audio that players can decode: transcoded to Opus or AAC, or silence. Also the limit on the number of transcoders.
//!
//! Every source has a tone of 440 Hz, which players must hear.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Nginx, Program, Server, coded_file, ffmpeg9, python, run, secs, wait_for};

/// Returns a file with eight seconds of video, and of a tone encoded with these options.
fn tone_file(name: &str, audio: &[&str]) -> PathBuf {
    let video = ["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "baseline", "-bf", "0"];
    coded_file(name, &[&video, audio].concat())
}

/// Publishes a file again and again. Uses ffmpeg 9, because it supports the codecs of Enhanced RTMP.
fn publish(server: &Server, name: &str, file: &PathBuf) -> Program {
    let mut command = Command::new(ffmpeg9());
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i"]);
    let url = server.rtmp_url(&format!("live/{name}"));
    let program = Program::start(command.arg(file).args(["-c", "copy", "-f", "flv", &url]));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", name).is_some_and(|broadcast| broadcast["status"] == "broadcasting")
    });
    program
}

/// Properties of the sound that a player decodes.
#[derive(Debug)]
struct Sound {
    codec: String,
    hertz: f64,
    /// Fraction of full scale.
    loudness: f64,
}

/// Plays two seconds with Debian's ffmpeg, which supports only the RTMP and FLV that most players support.
fn play(url: &str) -> Sound {
    let mut probe = Command::new("ffprobe");
    probe.args([
        "-v",
        "error",
        "-select_streams",
        "a",
        "-show_entries",
        "stream=codec_name",
        "-of",
        "csv=p=0",
        url,
    ]);
    let (_, codecs, _) = run(&mut probe);
    // ffprobe prints the codec once more for each program that contains the stream.
    let codec = codecs.lines().next().unwrap_or_default();
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-i", url, "-vn", "-t", "2"]);
    command.args(["-ac", "1", "-ar", "48000", "-f", "s16le", "-"]);
    let output = command.output().unwrap();
    let samples: Vec<f64> = output
        .stdout
        .chunks_exact(2)
        .map(|bytes| f64::from(i16::from_le_bytes([bytes[0], bytes[1]])) / 32_768.0)
        .collect();
    assert!(samples.len() > 48_000, "{url}: {}", String::from_utf8_lossy(&output.stderr));
    // Skips the first quarter, because the start of encoded audio may be silent.
    let samples = &samples[samples.len() / 4..];
    let rises = samples.windows(2).filter(|pair| pair[0] <= 0.0 && pair[1] > 0.0).count();
    let power: f64 = samples.iter().map(|sample| sample * sample).sum();
    Sound {
        codec: codec.trim().to_owned(),
        hertz: rises as f64 * 48_000.0 / samples.len() as f64,
        loudness: (power / samples.len() as f64).sqrt(),
    }
}

fn is_the_tone(sound: &Sound) -> bool {
    (sound.hertz - 440.0).abs() < 5.0 && sound.loudness > 0.01
}

fn flv(server: &Server, name: &str) -> String {
    format!("http://{}/live/{name}.flv", server.http)
}

/// Plays a stream by WHEP with aiortc, and returns aiortc's report on the sound.
fn whep(server: &Server, name: &str) -> Value {
    let mut command = Command::new(python());
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/webrtc_peer.py"));
    command.args(["play", &format!("http://{}/live/whep/{name}", server.http), "60"]);
    let (status, facts, errors) = run(&mut command);
    assert!(status.success(), "{errors}");
    serde_json::from_str(&facts).unwrap()
}

#[test]
fn aac_and_mp3_reach_webrtc_viewers_as_opus() {
    let server = Server::start(&["metrics.per_stream=true"]);
    for (name, coding) in [
        ("aac-44100", &["-c:a", "aac", "-ar", "44100"][..]),
        ("aac-mono", &["-c:a", "aac", "-ar", "48000", "-ac", "1"]),
        ("aac-six", &["-c:a", "aac", "-ar", "48000", "-ac", "6"]),
        ("aac-22050", &["-c:a", "aac", "-ar", "22050"]),
        ("mp3", &["-c:a", "libmp3lame", "-ar", "44100"]),
    ] {
        let _publisher = publish(&server, name, &tone_file(&format!("tone-{name}"), coding));
        let facts = whep(&server, name);
        let hertz = facts["hertz"].as_f64().unwrap_or_default();
        assert!((hertz - 440.0).abs() < 5.0, "{name}: {facts}");
        assert_eq!(facts["kinds"], json!(["video", "audio"]));
        // RTMP players get AAC, except for MP3, which they can decode themselves.
        assert_eq!(
            play(&server.rtmp_url(&format!("live/{name}"))).codec,
            if name == "mp3" { "mp3" } else { "aac" }
        );
    }
    // Transcoders run as long as somebody listens, and end soon afterwards.
    wait_for("the end of the transcoders", secs(20), || {
        server.api().metric("millstream_transcoders{", "") == 0.0
    });
    assert!(server.api().metric("millstream_jobs_cpu_seconds_total{class=\"compute\"}", "") > 0.0);
}

#[test]
fn opus_reaches_players_of_rtmp_flv_and_hls_as_aac_and_those_that_announce_it_as_it_is() {
    let server = Server::start(&["metrics.per_stream=true"]);
    let file = tone_file("tone-opus", &["-c:a", "libopus", "-ar", "48000"]);
    let _publisher = publish(&server, "opus", &file);
    let hls = format!("http://{}/live/streams/opus.m3u8", server.http);
    for url in [server.rtmp_url("live/opus"), flv(&server, "opus"), hls] {
        let sound = play(&url);
        assert!(sound.codec == "aac" && is_the_tone(&sound), "{url}: {sound:?}");
    }
    // A player that selects the track by its number gets it as it was published.
    let url = format!("{}?audio=0", flv(&server, "opus"));
    let announced = [
        "-v",
        "info",
        "-rtmp_enhanced_codecs",
        "Opus",
        "-i",
        &server.rtmp_url("live/opus"),
        "-t",
        "1",
        "-f",
        "null",
        "-",
    ];
    for arguments in [&announced[..], &["-v", "info", "-i", &url, "-t", "1", "-f", "null", "-"]] {
        let (_, _, told) = run(Command::new(ffmpeg9()).args(arguments));
        assert!(told.contains("Audio: opus"), "{told}");
    }
}

#[test]
fn without_the_setting_nothing_is_transcoded() {
    let server = Server::start(&["app.audio.toOpus=false", "app.audio.toAac=false"]);
    let _aac = publish(&server, "aac", &tone_file("tone-aac-44100", &["-c:a", "aac", "-ar", "44100"]));
    assert_eq!(whep(&server, "aac")["kinds"], json!(["video"]));
    assert_eq!(server.api().metric("millstream_jobs_cpu_seconds_total{class=\"compute\"}", ""), 0.0);
}

#[test]
fn pushes_have_sound_that_every_server_knows_and_silence_where_there_is_none() {
    let nginx = Nginx::start();
    let server = Server::start(&[]);
    let mute = coded_file("mute", &["-c:v", "libx264", "-preset", "veryfast", "-an"]);
    let opus = tone_file("tone-opus", &["-c:a", "libopus", "-ar", "48000"]);
    for (name, file) in [("sounds", &opus), ("mute", &mute)] {
        let _publisher = publish(&server, name, file);
        let body = json!({ "rtmpUrl": nginx.url(name) }).to_string();
        let path = format!("/live/rest/v2/broadcasts/{name}/rtmp-endpoint");
        assert_eq!(server.api().post(&path, &body).json()["success"], true);
        wait_for("the push", secs(20), || {
            let record = server.api().broadcast("live", name);
            record.is_some_and(|record| record["endPointList"][0]["status"] == "broadcasting")
        });
        let sound = play(&nginx.url(name));
        assert_eq!(sound.codec, "aac", "{name}");
        if name == "mute" {
            assert!(sound.loudness == 0.0, "{sound:?}");
        } else {
            assert!(is_the_tone(&sound), "{sound:?}");
        }
    }
    // A viewer of a mute stream is sent no silence, unless the application wants that.
    let _publisher = publish(&server, "mute", &mute);
    let tracks = |server: &Server| {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-show_entries", "stream=codec_type", "-of", "csv=p=0"]);
        run(probe.arg(flv(server, "mute"))).1
    };
    assert_eq!(tracks(&server).trim(), "video");
    let server = Server::start(&["app.audio.silence=all"]);
    let _publisher = publish(&server, "mute", &mute);
    assert_eq!(play(&flv(&server, "mute")).loudness, 0.0);
}

#[test]
fn beyond_the_limit_the_sound_is_left_out_and_the_video_goes_on() {
    let server = Server::start(&["audio.max_transcoders=1", "server.workers=2", "metrics.per_stream=true"]);
    let file = tone_file("tone-aac-44100", &["-c:a", "aac", "-ar", "44100"]);
    let (_one, _two) = (publish(&server, "one", &file), publish(&server, "two", &file));
    let mut command = Command::new(python());
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/webrtc_peer.py"));
    let first =
        Program::start(command.args(["play", &format!("http://{}/live/whep/one", server.http), "3000"]));
    wait_for("the first", secs(30), || server.api().metric("millstream_transcoders{", "") == 1.0);
    let mut second = Command::new(python());
    second.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/webrtc_peer.py"));
    let _second =
        Program::start(second.args(["play", &format!("http://{}/live/whep/two", server.http), "3000"]));
    wait_for("the second", secs(30), || {
        server.api().metric("millstream_transcoders_refused_total", "") > 0.0
    });
    server.wait_for_line("audio.max_transcoders");
    // No transcoder is left for the audio of the second viewer, but the viewer still gets video.
    let sent = || -> f64 {
        let workers = [0, 1]
            .map(|worker| format!("millstream_sent_bytes_total{{worker=\"{worker}\",protocol=\"webrtc\""));
        workers.iter().map(|name| server.api().metric(name, "")).sum()
    };
    let before = sent();
    wait_for("video", secs(20), || sent() > before + 200_000.0);
    // When nobody listens to the first stream any more, its transcoder ends, and the second stream gets one.
    drop(first);
    let of_two = "millstream_stream_derived_subscribers{";
    wait_for("the place", secs(40), || {
        let page = server.api().get("/metrics").body;
        let mut rows =
            page.lines().filter(|line| line.starts_with(of_two) && line.contains("stream=\"two\""));
        rows.any(|row| row.ends_with(" 1"))
    });
}
