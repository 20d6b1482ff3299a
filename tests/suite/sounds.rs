//! Tests streams with several audio tracks, from which viewers of HLS and DASH choose, with ffmpeg, and with hls.js and
//! dash.js in Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::publish_play::is_broadcasting;
use crate::sources::{file_server, start_source};
use crate::support::{Program, Server, ffmpeg9, make_once, python, run, secs, wait_for};

const FORMS: [&str; 3] = ["app.hlsTime=1", "app.hlsEnableLowLatency=true", "app.dashMuxingEnabled=true"];
const LISTS: [&str; 4] = [
    "ll-hls/cam/cam__master.m3u8",
    "cam_adaptive.m3u8",
    "ll-hls/cam/cam__master_adaptive.m3u8",
    "cam/cam.mpd",
];

/// Returns a film with two audio tracks, each with its own tone.
fn film() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("media/two-languages-180s.ts");
    make_once(&path, |path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "lavfi"]);
        command.args(["-i", "testsrc2=size=320x180:rate=30"]);
        for hertz in [440, 1760] {
            command.args(["-f", "lavfi", "-i", &format!("sine=frequency={hertz}:sample_rate=48000")]);
        }
        command.args(["-map", "0", "-map", "1", "-map", "2", "-t", "180", "-g", "30", "-bf", "0"]);
        command.args(["-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-c:a", "aac"]);
        command.args(["-metadata:s:a:0", "language=deu", "-metadata:s:a:1", "language=eng"]);
        let (status, _, err) = run(command.args(["-f", "mpegts"]).arg(path));
        assert!(status.success(), "{err}");
    });
    path
}

/// Publishes an MPEG-TS file over SRT as `live/cam`.
pub fn publish_over_srt(server: &Server, film: &Path) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(film);
    let url = format!("srt://{}?streamid=live/cam&mode=caller", server.srt.unwrap());
    let publisher = Program::start(command.args(["-map", "0", "-c", "copy", "-f", "mpegts", &url]));
    wait_for("the stream", secs(20), || is_broadcasting(server, "cam"));
    publisher
}

fn url(server: &Server, name: &str) -> String {
    format!("http://{}/live/streams/{name}", server.http)
}

/// Returns the loudest of the tones in the audio track of a language, which ffmpeg selects.
fn tone(url: &str, language: &str) -> u32 {
    tone_of(url, &format!("0:a:m:language:{language}"))
}

/// Returns the loudest of the tones in the audio track that `map` selects in ffmpeg.
fn tone_of(url: &str, map: &str) -> u32 {
    let level = |hertz: u32| {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-nostdin", "-t", "3", "-i", url, "-map", map, "-vn", "-af"]);
        command.args([&format!("bandpass=f={hertz}:width_type=h:w=50,volumedetect"), "-f", "null", "-"]);
        let (status, _, told) = run(&mut command);
        let of = |line: &str| line.split_once("mean_volume: ")?.1.split_once(' ')?.0.parse::<f64>().ok();
        let level = told.lines().find_map(of);
        assert!(status.success() && level.is_some(), "{url} {map}: {told}");
        level.unwrap()
    };
    if level(440) > level(1760) { 440 } else { 1760 }
}

#[test]
fn a_publisher_in_mpeg_ts_with_two_languages_has_both_in_each_list() {
    for form in ["mpegts", "fmp4"] {
        let segments = format!("app.hlsSegmentType={form}");
        let server = Server::start(&[&FORMS[..], &[&segments]].concat());
        let _publisher = publish_over_srt(&server, &film());
        for name in LISTS {
            let reply = server.api().get(&format!("/live/streams/{name}"));
            assert_eq!(reply.status, 200, "{name}");
            let told = if name.ends_with("mpd") { "lang=\"" } else { "LANGUAGE=\"" };
            let all: Vec<&str> = reply.body.split(told).skip(1).map(|rest| &rest[..2]).collect();
            assert_eq!(all, ["de", "en"], "{name}: {}", reply.body);
            let url = url(&server, name);
            assert_eq!((tone(&url, "de"), tone(&url, "en")), (440, 1760), "{name}");
        }
    }
}

#[test]
fn a_page_with_hls_js_or_dash_js_switches_the_sound() {
    let server = Server::start(&FORMS);
    let _publisher = publish_over_srt(&server, &film());
    for name in [LISTS[0], LISTS[1], LISTS[3]] {
        let mut command = Command::new(python());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/sounds.py");
        let (status, said, told) = run(command.arg(script).args([&format!("http://{}/", server.http), name]));
        assert!(status.success() && said.trim() == "ok", "{name}: {said}{told}");
    }
}

#[test]
fn every_kind_of_publisher_with_two_sounds_has_both() {
    let server = Server::start(&FORMS);
    let mp4 = server.home().join("two.mp4");
    let mut remux = Command::new("ffmpeg");
    remux.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-i"]).arg(film());
    remux.args(["-map", "0", "-c", "copy", "-bsf:a", "aac_adtstoasc", "-movflags", "faststart"]);
    assert!(run(remux.arg(&mp4)).0.success());
    start_source(&server, "mp4", &format!("http://{}/two.mp4", file_server(&mp4)));
    let rtsp = format!("rtsp://{}/live/rtsp", server.rtsp.unwrap());
    let rtmp = server.rtmp_url("live/rtmp");
    let publishers = [("rtsp", rtsp), ("flv", rtmp)].map(|(format, url)| {
        let mut command = Command::new(ffmpeg9());
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&mp4);
        command.args(["-map", "0", "-c", "copy", "-f", format, &url]);
        Program::start(&mut command)
    });
    for (id, wanted) in [("mp4", "\"de\" \"en\""), ("rtsp", ""), ("rtmp", "")] {
        wait_for(id, secs(20), || is_broadcasting(&server, id));
        let list = format!("ll-hls/{id}/{id}__master.m3u8");
        let reply = server.api().get(&format!("/live/streams/{list}"));
        assert_eq!(reply.body.matches("TYPE=AUDIO").count(), 2, "{id}: {}", reply.body);
        let told = |rest: &str| rest.split(',').next().unwrap_or_default().to_owned();
        let languages: Vec<String> = reply.body.split("LANGUAGE=").skip(1).map(told).collect();
        assert!(wanted.is_empty() || languages.join(" ") == wanted, "{id}: {}", reply.body);
        let url = url(&server, &list);
        assert_eq!((tone_of(&url, "0:a:0"), tone_of(&url, "0:a:1")), (440, 1760), "{id}");
    }
    drop(publishers);
}
