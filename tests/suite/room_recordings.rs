//! Tests recordings of rooms: each participant has a file, and the files' times on the room's clock are right.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::publish_play::is_broadcasting;
use crate::support::{Home, Program, Server, media_file, run, secs, wait_for};

fn publish(server: &Server, id: &str) -> Program {
    let file = media_file(false, 30);
    let program = Program::ffmpeg_publish(&file, &server.rtmp_url(&format!("live/{id}?mainTrack=room")));
    wait_for(id, secs(20), || is_broadcasting(server, id));
    program
}

fn files(server: &Server) -> Vec<Value> {
    let list = server.api().get("/live/rest/v2/broadcasts/room/room-recordings/0/50").json();
    let newest = list.as_array().unwrap().first().cloned().unwrap_or_default();
    newest["files"].as_array().cloned().unwrap_or_default()
}

fn millis(file: &Value, member: &str) -> i64 {
    file[member].as_i64().unwrap_or_else(|| panic!("{member} of {file}"))
}

/// Returns the duration of a file according to ffprobe, in milliseconds.
fn length_ms(home: &Path, file: &Value) -> i64 {
    let path = home.join("home/webapps/live").join(file["filePath"].as_str().unwrap());
    let arguments = ["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"];
    let (status, out, err) = run(Command::new("ffprobe").args(arguments).arg(path));
    assert!(status.success(), "{err}");
    (out.trim().parse::<f64>().unwrap() * 1000.0) as i64
}

#[test]
fn a_recording_of_a_room_is_whole_after_the_server_was_killed() {
    let home = Home::new();
    let settings = ["server.workers=2", "app.publisherGraceMs=0"];
    let mut server = Server::start_in(&home.path().join("home"), &settings);
    let body = r#"{"streamId":"room","name":"Room","virtual":true}"#;
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", body).status, 200);
    let (ann, ben) = (publish(&server, "ann"), publish(&server, "ben"));
    let switched = server.api().put("/live/rest/v2/broadcasts/room/recording/true", "").json();
    assert_eq!(switched["success"], true, "{switched}");
    wait_for("both to be recorded", secs(20), || files(&server).len() == 2);
    let cat = publish(&server, "cat");
    wait_for("the third to be recorded", secs(20), || files(&server).len() == 3);
    drop(ann);
    wait_for("the end of the first", secs(20), || files(&server).iter().any(|file| file["end"].is_i64()));
    let tmp = |id: &str| home.path().join(format!("home/webapps/live/streams/{id}.mp4.tmp_extension"));
    wait_for("media of the third", secs(20), || {
        std::fs::metadata(tmp("cat")).is_ok_and(|file| file.len() > 100_000)
    });
    server.kill();
    drop((ben, cat, server));
    let server = Server::start_in(&home.path().join("home"), &settings);
    wait_for("all files to be finished", secs(20), || {
        files(&server).len() == 3 && files(&server).iter().all(|file| file["end"].is_i64())
    });
    for file in files(&server) {
        let (start, end) = (millis(&file, "start"), millis(&file, "end"));
        let length = length_ms(home.path(), &file);
        assert!(end > start && (end - start - length).abs() <= 100, "{file}: {length}");
        // All files have the same clock, so its zero is at the same wall clock time for each file.
        let zero = millis(&file, "startTime") - start;
        let zero_of_first = millis(&files(&server)[0], "startTime") - millis(&files(&server)[0], "start");
        assert!((zero - zero_of_first).abs() <= 5, "{file}");
    }
    let starts: Vec<i64> = files(&server).iter().map(|file| millis(file, "start")).collect();
    assert!(starts[2] > starts[0].max(starts[1]), "{starts:?}");
    let vods = server.api().get("/live/rest/v2/vods/list/0/50").json();
    assert_eq!(vods.as_array().map(Vec::len), Some(3));
    assert_eq!(vods[0]["room"]["id"], "room");
}
