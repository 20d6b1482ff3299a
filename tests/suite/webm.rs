//! Tests WebM recordings: they contain exactly what was published, even if the server is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::codecs::{AV1, VP9, publish};
use crate::publish_play::assert_track_within;
use crate::support::{
    Home, Packet, Program, Server, coded_file, ffmpeg9, frame_md5_by, make_once, media_file, run, secs,
    wait_for,
};
use crate::webrtc::Browser;

const OPUS: [&str; 2] = ["-c:a", "libopus"];
const ALWAYS: [&str; 2] = ["app.webMMuxingEnabled=true", "app.publisherGraceMs=0"];

fn vods(server: &Server) -> Vec<Value> {
    let list = server.api().get("/live/rest/v2/vods/list/0/50").json();
    list.as_array().unwrap().clone()
}

fn vod(server: &Server, name: &str) -> Option<Value> {
    vods(server).into_iter().find(|vod| vod["vodName"] == name)
}

fn file_of(home: &Path, name: &str) -> PathBuf {
    home.join("home/webapps/live/streams").join(name)
}

fn packets(from: &str) -> Vec<Packet> {
    frame_md5_by(&ffmpeg9(), &[], from, None)
}

fn count(packets: &[Packet], track: u32) -> usize {
    packets.iter().filter(|packet| packet.0 == track).count()
}

/// Returns the ids of the elements in the segment of a complete file.
fn elements(file: &[u8]) -> Vec<u32> {
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        let head = webm::Head::read(&file[at..]).unwrap();
        at += head.bytes;
        if head.id != webm::id::SEGMENT {
            at += usize::try_from(head.size.unwrap()).unwrap();
            found.push(head.id);
        }
    }
    found
}

/// Returns the number of streams in a file, and the duration in seconds, according to ffprobe.
fn probed(path: &Path) -> (usize, f64) {
    let arguments = ["-v", "error", "-show_entries", "format=nb_streams,duration", "-of", "csv=p=0"];
    let (status, text, errors) = run(Command::new("ffprobe").args(arguments).arg(path));
    assert!(status.success() && errors.is_empty(), "{errors}");
    let (streams, duration) = text.trim().split_once(',').unwrap();
    (streams.parse().unwrap(), duration.parse().unwrap())
}

/// Checks that a file is seekable, and that two versions of ffmpeg decode it without messages.
fn assert_seekable(path: &Path, seconds: f64) {
    let bytes = fs::read(path).unwrap();
    assert!(webm::is_finished(&bytes[..256], bytes.len() as u64));
    let elements = elements(&bytes);
    assert_eq!(elements[..2], [webm::id::EBML, webm::id::SEEK_HEAD]);
    assert_eq!(elements.iter().filter(|id| **id == webm::id::CUES).count(), 1);
    let (_, duration) = probed(path);
    assert!((duration - seconds).abs() < 0.3, "{duration} of {seconds}");
    for ffmpeg in [PathBuf::from("ffmpeg"), ffmpeg9()] {
        for begin in [&[][..], &["-ss", "2.5"]] {
            let mut command = Command::new(&ffmpeg);
            command.args(["-nostdin", "-v", "error"]).args(begin).arg("-i").arg(path);
            // Without this time base, ffmpeg assumes a usual frame rate, but frames of browsers may be closer together.
            command.args(["-enc_time_base:v", "1:1000"]);
            let (status, _, errors) = run(command.args(["-f", "null", "-"]));
            assert!(status.success() && errors.is_empty(), "{begin:?}: {errors}");
        }
    }
}

#[test]
fn a_stream_is_recorded_as_webm_and_as_mp4_each_on_its_own() {
    let settings = ["app.mp4MuxingEnabled=true", ALWAYS[0], ALWAYS[1]];
    let server = Server::start(&settings);
    let files = [("vp9-opus", &VP9), ("av1-opus", &AV1)]
        .map(|(name, video)| (name, coded_file(name, &[&video[..], &OPUS].concat())));
    let publishers = files.clone().map(|(name, file)| publish(&server, name, &file));
    wait_for("all to be recorded", secs(60), || vods(&server).len() == 4);
    drop(publishers);
    for (name, source) in &files {
        let source = packets(source.to_str().unwrap());
        let path = file_of(server.home(), &format!("{name}.webm"));
        let url = format!("http://{}/live/streams/{name}.webm", server.http);
        for from in [path.to_str().unwrap(), &url, &url.replace(".webm", ".mp4")] {
            let recorded = packets(from);
            assert_eq!(count(&recorded, 0), count(&source, 0), "{from}");
            (0..2).for_each(|track| assert_track_within(1, (track, &source), (track, &recorded)));
        }
        assert_seekable(&path, 12.0);
        assert_eq!(probed(&path).0, 2);
        let vod = vod(&server, &format!("{name}.webm")).unwrap();
        let duration = vod["duration"].as_i64().unwrap();
        assert!((11_700..12_300).contains(&duration), "{duration}");
        assert_eq!(vod["fileSize"].as_u64(), Some(fs::metadata(&path).unwrap().len()));
        assert_eq!(vod["filePath"], format!("streams/{name}.webm"));
        let reply = server.api().call_with("GET", &format!("/live/streams/{name}.webm"), &[], None);
        assert!(reply.head.to_ascii_lowercase().contains("content-type: video/webm"), "{}", reply.head);
    }
}

#[test]
fn a_webm_recording_survives_the_server() {
    let home = Home::new();
    let mut server = Server::start_in(&home.path().join("home"), &ALWAYS);
    let source = coded_file("vp9-opus", &[&VP9[..], &OPUS].concat());
    let publisher = publish(&server, "cam", &source);
    let path = file_of(home.path(), "cam.webm.tmp_extension");
    let seconds = |path: &Path| {
        let ms = packets(path.to_str().unwrap()).iter().map(|packet| packet.2).max().unwrap_or(0);
        ms as f64 / 1000.0
    };
    wait_for("five seconds", secs(30), || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 100_000) && seconds(&path) >= 5.0
    });
    server.kill();
    drop(publisher);
    // The incomplete file is playable.
    let before = packets(path.to_str().unwrap());
    drop(server);
    // The server is killed again before, while or after it finishes the file.
    for ms in [20, 60, 100, 140, 180, 220] {
        let mut command = Server::command(&home.path().join("home"), &ALWAYS);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(ms));
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let server = Server::start_in(&home.path().join("home"), &ALWAYS);
    wait_for("the recording", secs(20), || vods(&server).len() == 1);
    let finished = file_of(home.path(), "cam.webm");
    assert!(!path.exists());
    let recorded = packets(finished.to_str().unwrap());
    assert!(recorded.len() >= before.len(), "{} of {}", recorded.len(), before.len());
    let source = packets(source.to_str().unwrap());
    (0..2).for_each(|track| assert_track_within(1, (track, &source), (track, &recorded)));
    assert_seekable(&finished, seconds(&finished) + 0.033);
    assert!(vods(&server)[0]["duration"].as_i64().unwrap() >= 5000);
}

/// Returns a file with VP8 and Opus, the codecs of browsers.
fn vp8_file() -> PathBuf {
    let path = media_file(false, 12).with_file_name("vp8-opus.webm");
    make_once(&path, |part| {
        let (status, _, errors) = run(Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=30"])
            .args(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000", "-t", "8", "-g", "30"])
            .args(["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "500k"])
            .args(["-ac", "2", "-c:a", "libopus", "-f", "webm"])
            .arg(part));
        assert!(status.success(), "{errors}");
    });
    path
}

#[test]
fn vp8_that_comes_over_rtsp_is_recorded_by_a_call() {
    let server = Server::start(&ALWAYS[1..]);
    let source = vp8_file();
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&source);
    command.args(["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp"]);
    let _publisher = Program::start(command.arg(server.rtsp_url("live/cam")));
    let call =
        |rest: &str| server.api().put(&format!("/live/rest/v2/broadcasts/cam/recording/{rest}"), "").json();
    // A recording can be started when the stream's tracks are known, which takes up to a second.
    wait_for("the stream", secs(20), || {
        crate::publish_play::is_broadcasting(&server, "cam")
            && call("true?recordType=webm&fileName=mine")["dataId"].is_string()
    });
    assert_eq!(call("true?recordType=webm")["message"], "0");
    assert_eq!(server.api().broadcast("live", "cam").unwrap()["webMEnabled"], 1);
    wait_for("the recording", secs(30), || vod(&server, "mine.webm").is_some());
    let path = file_of(server.home(), "mine.webm");
    let (source, recorded) = (packets(source.to_str().unwrap()), packets(path.to_str().unwrap()));
    assert!(count(&recorded, 0) > 150 && count(&recorded, 1) > 250, "{}", recorded.len());
    for track in 0..2 {
        let hashes = |packets: &[Packet]| -> Vec<String> {
            packets.iter().filter(|packet| packet.0 == track).map(|packet| packet.4.clone()).collect()
        };
        let (all, got) = (hashes(&source), hashes(&recorded));
        let begin = all.iter().position(|hash| *hash == got[0]).unwrap();
        assert!(all[begin..].starts_with(&got), "track {track}: no unbroken part of what was published");
    }
    let last = recorded.iter().map(|packet| packet.2).max().unwrap();
    assert_seekable(&path, last as f64 / 1000.0 + 0.033);
}

#[test]
fn what_a_browser_sends_is_recorded_as_it_came() {
    let server = Server::start(&ALWAYS);
    let browser = Browser::start("publish", &format!("http://{}/live/whip/cam", server.http), "VP8");
    let path = file_of(server.home(), "cam.webm");
    let written = path.with_file_name("cam.webm.tmp_extension");
    wait_for("four seconds", secs(40), || {
        // The head of the file has 64 KiB, so a file of this size has media.
        fs::metadata(&written).is_ok_and(|file| file.len() > 70_000)
            && packets(written.to_str().unwrap()).iter().any(|packet| packet.2 > 4000)
    });
    // Packets that are already in the file must not change until its end.
    let before = packets(written.to_str().unwrap());
    browser.finish();
    wait_for("the recording", secs(20), || vod(&server, "cam.webm").is_some());
    let recorded = packets(path.to_str().unwrap());
    for track in 0..2 {
        let of_track = |packets: &[Packet]| -> Vec<Packet> {
            packets.iter().filter(|packet| packet.0 == track).cloned().collect()
        };
        let (before, recorded) = (of_track(&before), of_track(&recorded));
        assert!(before.len() > 90 && recorded.starts_with(&before), "track {track}: {}", before.len());
        assert!(recorded.windows(2).all(|pair| pair[0].2 < pair[1].2), "times rise");
    }
    let arguments = ["-v", "error", "-show_entries", "stream=codec_name,width", "-of", "csv=p=0"];
    let (_, text, _) = run(Command::new("ffprobe").args(arguments).arg(&path));
    assert_eq!(text.lines().collect::<Vec<_>>(), ["vp8,640", "opus"]);
    let last = recorded.iter().map(|packet| packet.2).max().unwrap();
    assert_seekable(&path, last as f64 / 1000.0 + 0.033);
}

#[test]
fn sound_that_webm_has_no_place_for_is_recorded_as_opus_and_such_video_not_at_all() {
    let server = Server::start(&ALWAYS);
    let beside = coded_file("vp9-aac", &[&VP9[..], &["-c:a", "aac"]].concat());
    let _publisher = publish(&server, "beside", &beside);
    let h264 = Program::ffmpeg_publish(&media_file(false, 12), &server.rtmp_url("live/h264"));
    wait_for("it to be left out", secs(20), || server.log().contains("the container cannot hold its tracks"));
    let refused = server.api().put("/live/rest/v2/broadcasts/h264/recording/true?recordType=webm", "").json();
    assert_eq!(refused["message"], "webm recording couldn't be started");
    wait_for("the recording", secs(40), || vod(&server, "beside.webm").is_some());
    drop(h264);
    let recorded = packets(file_of(server.home(), "beside.webm").to_str().unwrap());
    let source = packets(beside.to_str().unwrap());
    assert_eq!(count(&recorded, 0), count(&source, 0));
    assert_track_within(1, (0, &source), (0, &recorded));
    // A packet of Opus lasts 20 ms, so 12 s have 600.
    assert!((550..=610).contains(&count(&recorded, 1)), "{}", count(&recorded, 1));
    assert_seekable(&file_of(server.home(), "beside.webm"), 12.0);
    let names: Vec<_> = fs::read_dir(file_of(server.home(), "")).unwrap().collect();
    assert_eq!((names.len(), vods(&server).len()), (1, 1), "nothing is left of the other");
}
