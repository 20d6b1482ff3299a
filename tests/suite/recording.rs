//! Tests recordings, and their playback over HTTP and as sources of other servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::codecs::{ANNOUNCE, files, publish as publish_coded};
use crate::publish_play::assert_track_within;
use crate::support::{
    Home, Manner, Packet, Program, Publisher, Receiver, Server, ffmpeg9, frame_md5, frame_md5_by, media_file,
    run, secs, source_packets, wait_for,
};

const RECORDING: &str = "/live/rest/v2/broadcasts/cam/recording";
const VODS: &str = "/live/rest/v2/vods";

fn is_broadcasting(server: &Server) -> bool {
    crate::publish_play::is_broadcasting(server, "cam")
}

/// Publishes the file once, at its own rate.
fn publish(server: &Server, file: &Path) -> Program {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    Program::start(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/cam")]))
}

fn vods(server: &Server) -> Vec<Value> {
    let list = server.api().get(&format!("{VODS}/list/0/50")).json();
    list.as_array().unwrap().clone()
}

fn file(server: &Server, name: &str) -> PathBuf {
    file_of(server.home(), name)
}

fn file_of(home: &Path, name: &str) -> PathBuf {
    home.join("home/webapps/live/streams").join(name)
}

fn create(server: &Server, body: &str) {
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", body).status, 200);
}

#[test]
fn a_stream_is_recorded_and_played_from_its_file() {
    for bframes in [false, true] {
        let source = media_file(bframes, 12);
        let receiver = Receiver::start(Manner::Status(200));
        let hook = format!("app.listenerHookURL={}", receiver.url("hook"));
        let server = Server::start(&["app.publisherGraceMs=0", &hook]);
        create(&server, r#"{"streamId":"cam","name":"Camera","mp4Enabled":1}"#);
        let _publisher = publish(&server, &source);
        wait_for("the file", secs(20), || file(&server, "cam.mp4.tmp_extension").exists());
        assert!(vods(&server).is_empty(), "nobody sees an unfinished one");
        wait_for("the recording", secs(40), || vods(&server).len() == 1);
        let vod = vods(&server).remove(0);
        assert_eq!(
            (vod["streamName"].as_str(), vod["vodName"].as_str(), vod["streamId"].as_str()),
            (Some("Camera"), Some("cam.mp4"), Some("cam"))
        );
        assert_eq!(
            (vod["filePath"].as_str(), vod["type"].as_str()),
            (Some("streams/cam.mp4"), Some("streamVod"))
        );
        let path = file(&server, "cam.mp4");
        assert_eq!(vod["fileSize"].as_u64(), Some(fs::metadata(&path).unwrap().len()));
        let duration = vod["duration"].as_i64().unwrap();
        assert!((11_000..13_000).contains(&duration), "{duration}");
        // The file, also when downloaded over HTTP, contains exactly the packets from the first key frame on.
        let mut published = source_packets(&source);
        published.drain(..published.iter().position(|packet| packet.0 == 0).unwrap());
        for from in [path.to_str().unwrap(), &format!("http://{}/live/streams/cam.mp4", server.http)] {
            let recorded = frame_md5(from, None);
            assert_eq!(recorded.len(), published.len());
            (0..2).for_each(|track| assert_track_within(1, (track, &published), (track, &recorded)));
        }
        let reply = server.api().call_with("GET", "/live/streams/cam.mp4", &[("Range", "bytes=4-7")], None);
        assert_eq!((reply.status, reply.body.as_str()), (206, "ftyp"));
        receiver.wait_for("hook", "vodReady cam");
        let told = receiver.told("hook").into_iter().find(|told| told["action"] == "vodReady").unwrap();
        assert_eq!(
            (&told["vodName"], &told["vodId"], &told["id"]),
            (&"cam".into(), &vod["vodId"], &"cam".into())
        );
        assert_eq!(told["duration"].as_str(), Some(duration.to_string().as_str()));
    }
}

#[test]
fn a_call_begins_and_ends_a_recording() {
    let server = Server::start(&[]);
    create(&server, r#"{"streamId":"cam"}"#);
    let source = media_file(false, 12);
    let _publisher = Program::ffmpeg_publish(&source, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || is_broadcasting(&server));
    let call = |path: &str| server.api().put(&format!("{RECORDING}/{path}"), "").json();
    let stopped = call("false");
    assert_eq!(
        (&stopped["success"], &stopped["message"]),
        (&false.into(), &"mp4 recording couldn't be stopped".into())
    );
    let begun = call("true?fileName=my%20file%2F..x.mp4");
    assert_eq!((begun["success"].as_bool(), begun["dataId"].as_str().map(str::len)), (Some(true), Some(24)));
    assert!(begun["message"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000_000);
    let again = call("true");
    assert_eq!((again["success"].as_bool(), again["message"].as_str()), (Some(true), Some("0")));
    assert_eq!(call("true?recordType=webm")["message"], "webm recording couldn't be started");
    wait_for("the file", secs(10), || file(&server, "my file_..x.mp4.tmp_extension").exists());
    assert_eq!(server.api().broadcast("live", "cam").unwrap()["mp4Enabled"], 1);
    std::thread::sleep(secs(2));
    let ended = call("false");
    assert_eq!((&ended["dataId"], &ended["message"]), (&begun["dataId"], &begun["message"]));
    wait_for("the recording", secs(10), || vods(&server).len() == 1);
    let vod = server.api().get(&format!("{VODS}/{}", begun["dataId"].as_str().unwrap())).json();
    assert_eq!(vod["filePath"], "streams/my file_..x.mp4");
    assert!(is_broadcasting(&server), "the stream goes on");
    // If a file with the requested name exists, the new file's name ends in a number.
    call("true?fileName=my%20file%2F..x.mp4");
    wait_for("the file", secs(10), || file(&server, "my file_..x_1.mp4.tmp_extension").exists());
    call("false");
    wait_for("both", secs(10), || vods(&server).len() == 2);
    let count = |search: &str| server.api().get(&format!("{VODS}/count{search}")).json()["number"].as_u64();
    assert_eq!((count(""), count("/X_1"), count("/none")), (Some(2), Some(1), Some(0)));
    let named = server.api().get(&format!("{VODS}/list/0/1?sort_by=name&order_by=desc&streamId=cam")).json();
    assert_eq!(named[0]["vodName"], "my file_..x_1.mp4");
    let id = begun["dataId"].as_str().unwrap();
    let deleted = server.api().delete(&format!("{VODS}/{id}")).json();
    assert_eq!((&deleted["success"], &deleted["message"]), (&true.into(), &"vod deleted".into()));
    wait_for("the file to go", secs(10), || !file(&server, "my file_..x.mp4").exists());
    assert_eq!(server.api().delete(&format!("{VODS}/{id}")).json()["success"], false);
    assert!(file(&server, "my file_..x_1.mp4").exists());
}

#[test]
fn a_recording_survives_the_server() {
    let home = Home::new();
    let settings = ["app.mp4MuxingEnabled=true", "app.recordingSubfolder=rec/%s"];
    let mut server = Server::start_in(&home.path().join("home"), &settings);
    let source = media_file(true, 12);
    let publisher = Program::ffmpeg_publish(&source, &server.rtmp_url("live/cam"));
    let path = file_of(home.path(), "rec/cam/cam.mp4.tmp_extension");
    wait_for("three seconds", secs(20), || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 70_000) && media_seconds(&path) >= 3.0
    });
    server.kill();
    drop(publisher);
    let seconds = media_seconds(&path);
    drop(server);
    let server = Server::start_in(&home.path().join("home"), &settings);
    wait_for("the recording", secs(20), || vods(&server).len() == 1);
    let finished = file_of(home.path(), "rec/cam/cam.mp4");
    assert!(!path.exists() && media_seconds(&finished) >= seconds - 0.1);
    assert_eq!(vods(&server)[0]["filePath"], "streams/rec/cam/cam.mp4");
    // The file decodes without errors.
    let (status, _, errors) =
        run(Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(&finished).args(["-f", "null", "-"]));
    assert!(status.success() && errors.is_empty(), "{errors}");
}

/// Returns the latest presentation time of the packets that ffprobe lists for a file, in seconds.
fn media_seconds(path: &Path) -> f64 {
    let arguments =
        ["-v", "quiet", "-select_streams", "v", "-show_entries", "packet=pts_time", "-of", "csv=p=0"];
    let (_, text, _) = run(Command::new("ffprobe").args(arguments).arg(path));
    let times = text.lines().filter_map(|line| line.trim_end_matches(',').parse::<f64>().ok());
    times.fold(0.0, f64::max)
}

#[test]
fn every_codec_is_recorded_and_played_from_its_file() {
    let settings = ["app.mp4MuxingEnabled=true", "app.audio.toAac=false", "app.publisherGraceMs=0"];
    let (server, other) = (Server::start(&settings), Server::start(&settings[1..]));
    let mut files = files();
    // Recordings are MP4 files, which can contain every codec of these files except this one.
    files.retain(|(name, _)| *name != "pcma");
    let publishers: Vec<_> = files.iter().map(|(name, file)| publish_coded(&server, name, file)).collect();
    wait_for("all to be recorded", secs(60), || vods(&server).len() == files.len());
    drop(publishers);
    for (name, source) in &files {
        let source = frame_md5_by(&ffmpeg9(), &[], source.to_str().unwrap(), None);
        let url = format!("http://{}/live/streams/{name}.mp4", server.http);
        let recorded = frame_md5_by(&ffmpeg9(), &[], &url, None);
        let count = |packets: &[Packet]| packets.iter().filter(|packet| packet.0 == 0).count();
        assert_eq!(count(&recorded), count(&source), "{name}");
        (0..2).for_each(|track| assert_track_within(1, (track, &source), (track, &recorded)));
        // Another server pulls the recording as a stream source, and players play that stream.
        let body = format!(r#"{{"streamId":"{name}","type":"streamSource","streamUrl":"{url}"}}"#);
        let made = other.api().post("/live/rest/v2/broadcasts/create?autoStart=true", &body).json();
        assert_eq!(made["success"], true, "{made}");
        wait_for(name, secs(20), || crate::publish_play::is_broadcasting(&other, name));
        let http = format!("http://{}/live/{name}.flv", other.http);
        let rtmp = other.rtmp_url(&format!("live/{name}"));
        let players = [(http, &[][..]), (rtmp, &ANNOUNCE[..])].map(|(url, options)| {
            std::thread::spawn(move || frame_md5_by(&ffmpeg9(), options, &url, Some(4)))
        });
        for played in players.map(|player| player.join().unwrap()) {
            // The source may be in the middle of the file when the player joins, and starts again at the file's end.
            for track in 0..2 {
                let of_track = |packets: &[Packet]| -> Vec<_> {
                    packets.iter().filter(|p| p.0 == track).map(|p| (p.3, p.4.clone())).collect()
                };
                let (all, got) = (of_track(&source), of_track(&played));
                let is_part = |got: &[_]| (0..all.len()).any(|at| all[at..].starts_with(got));
                let is_part = (0..=got.len()).any(|end| is_part(&got[..end]) && is_part(&got[end..]));
                assert!(got.len() > 60 && is_part, "{name}: track {track}, {} packets", got.len());
            }
        }
    }
}

#[test]
fn a_server_that_goes_down_leaves_whole_files_and_tells_no_failure() {
    let home = Home::new();
    let folder = home.path().join("home");
    let receiver = Receiver::start(Manner::Status(200));
    let hook = format!("app.listenerHookURL={}", receiver.url("hook"));
    let settings = ["app.mp4MuxingEnabled=true", hook.as_str()];
    let mut server = Server::start_in(&folder, &settings);
    let publisher = Publisher::start(server.rtmp, "live", "cam");
    let path = file_of(home.path(), "cam.mp4.tmp_extension");
    wait_for("media", secs(20), || fs::metadata(&path).is_ok_and(|file| file.len() > 300_000));
    assert!(server.terminate().success());
    drop(publisher);
    let server = Server::start_in(&folder, &settings);
    wait_for("the recording", secs(20), || vods(&server).len() == 1);
    assert!(vods(&server)[0]["duration"].as_i64().unwrap() >= 1000 && !path.exists());
    receiver.wait_for("hook", "vodReady cam");
    assert!(receiver.actions("hook").iter().all(|action| action != "recordingFailed cam"));
}

#[test]
fn files_have_a_length_and_old_ones_go() {
    let server = Server::start(&[
        "app.mp4MuxingEnabled=true",
        "app.record.max_duration=3",
        "app.record.max_bytes=1",
        "app.publisherGraceMs=0",
    ]);
    let source = media_file(false, 12);
    let _publisher = publish(&server, &source);
    // New files reuse the names of removed ones, so removals are counted in the log.
    let removed = || server.log().matches("old recording removed").count();
    wait_for("two to be removed", secs(30), || removed() >= 2);
    wait_for("all to be removed", secs(60), || {
        !is_broadcasting(&server)
            && vods(&server).is_empty()
            && fs::read_dir(file(&server, "")).unwrap().next().is_none()
    });
    wait_for("four removals in the log", secs(10), || removed() >= 4);
}
