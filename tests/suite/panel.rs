//! The web panel in Chromium and Firefox. Each task is done as a user would do it (`panel.py`).

use std::path::Path;
use std::process::Command;

use crate::support::{Home, Program, Server, media_file, python, run, secs, wait_for};

const CHROMIUM: &str = "chromium";
const FIREFOX: &str = "firefox";

/// Returns the command that does a task in the panel of a server.
fn script(browser: &str, task: &str, server: &Server, more: &[&str]) -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/panel.py"));
    command.args([browser, task, &format!("http://{}/", server.http)]).args(more);
    command
}

/// Does a task in the panel of a new server.
fn does(browser: &str, task: &str) {
    let server = Server::start(&[]);
    let (status, said, told) = run(&mut script(browser, task, &server, &[]));
    assert!(status.success() && said.trim() == "ok", "{browser}, {task}: {said}{told}");
}

#[test]
fn the_first_user_is_made_and_comes_back() {
    does(CHROMIUM, "first");
}

#[test]
fn a_broadcast_is_made_given_an_endpoint_and_deleted() {
    does(CHROMIUM, "broadcast");
}

#[test]
fn operations_are_tried_in_the_viewer_with_the_panels_login() {
    for browser in [CHROMIUM, FIREFOX] {
        does(browser, "reference");
    }
}

/// Does the first steps of a new user. The script prints the time that they take.
#[test]
fn a_newcomer_forwards_a_stream_by_the_panel_alone() {
    does(CHROMIUM, "newcomer");
}

/// Does a task in the panel of a server with a live stream.
fn does_with_a_stream(task: &str, settings: &[&str], more: &[&str]) {
    let server = Server::start(settings);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "cam"));
    let (status, said, told) = run(&mut script(CHROMIUM, task, &server, more));
    assert!(status.success() && said.trim() == "ok", "{task}: {said}{told}");
}

#[test]
fn an_application_that_records_says_so_and_can_be_told_to_stop() {
    does_with_a_stream("recorded", &["app.mp4MuxingEnabled=true"], &[]);
}

#[test]
fn the_list_of_broadcasts_and_the_log_are_filtered() {
    does_with_a_stream("list", &[], &[]);
}

#[test]
fn a_viewer_is_listed_and_disconnected() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "cam"));
    let url = format!("http://{}/live/cam.flv", server.http);
    let mut viewer =
        Program::start(Command::new("ffmpeg").args(["-v", "quiet", "-i", &url, "-f", "null", "-"]));
    let (status, said, told) = run(&mut script(CHROMIUM, "viewers", &server, &["127.0.0.1"]));
    assert!(status.success() && said.trim() == "ok", "{said}{told}");
    assert!(viewer.wait(secs(20)).is_some(), "it goes on");
    // Ids of viewers that do not exist are refused.
    let api = server.api();
    for viewer in ["0-0-0-0", "x", "0-99999-0-0"] {
        let answer = api.post(&format!("/live/rest/v2/broadcasts/cam/viewers/{viewer}/stop"), "").body;
        assert!(answer.contains("There is no such viewer"), "{answer}");
    }
}

/// Checks a player that polls the playlist until it is refused.
#[test]
fn a_viewer_of_hls_is_listed_and_disconnected() {
    let server = Server::start(&["server.workers=2"]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "cam"));
    let playlist = || server.api().get("/live/streams/cam.m3u8").status;
    wait_for("the playlist", secs(20), || playlist() == 200);
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| wait_for("the refusal", secs(120), || playlist() == 403));
        let (status, said, told) = run(&mut script(CHROMIUM, "polled", &server, &["127.0.0.1"]));
        assert!(status.success() && said.trim() == "ok", "{said}{told}");
        watched.join().unwrap();
    });
    assert_eq!(server.api().get("/live/streams/cam.m3u8").status, 403, "for a while");
}

#[test]
fn broadcasts_and_settings_go_into_files_and_come_out_of_them() {
    does(CHROMIUM, "files");
}

#[test]
fn settings_are_found_changed_and_kept() {
    does(CHROMIUM, "settings");
}

#[test]
fn everything_is_reached_by_the_keyboard_alone() {
    does(CHROMIUM, "keyboard");
}

#[test]
fn users_come_and_go_and_the_log_tells() {
    does(CHROMIUM, "users");
}

#[test]
fn users_see_only_the_controls_that_their_role_allows() {
    does(CHROMIUM, "readers");
}

#[test]
fn users_on_several_pages_are_all_reached() {
    does(CHROMIUM, "user_pages");
}

#[test]
fn a_session_that_ends_in_mid_work_loses_nothing() {
    does(CHROMIUM, "session");
}

#[test]
fn files_are_uploaded_played_and_deleted() {
    let film = crate::uploads::film();
    for browser in [CHROMIUM, FIREFOX] {
        let server = Server::start(&[]);
        let (status, said, told) =
            run(&mut script(browser, "recordings", &server, &[film.to_str().unwrap()]));
        assert!(status.success() && said.trim() == "ok", "{browser}: {said}{told}");
    }
}

#[test]
fn firefox_does_the_same() {
    for task in ["first", "broadcast", "settings", "users", "session"] {
        does(FIREFOX, task);
    }
}

/// Checks the rules of WCAG 2 A and AA with axe: no page has a serious violation, in light and dark mode, on desktop
/// and phone.
#[test]
fn every_page_can_be_used_by_everybody() {
    does(CHROMIUM, "axe");
}

#[test]
fn ten_thousand_broadcasts_are_pages_of_fifty() {
    let server = Server::start(&[]);
    // Creates the broadcasts concurrently, because concurrent changes are stored together, which is faster.
    std::thread::scope(|scope| {
        for part in 0..25 {
            let api = server.api();
            scope.spawn(move || {
                for n in (0..10_000).skip(part).step_by(25) {
                    let body = format!(r#"{{"streamId":"many{n}","name":"Number {n}"}}"#);
                    assert_eq!(api.post("/live/rest/v2/broadcasts/create", &body).status, 200);
                }
            });
        }
    });
    let (status, said, told) = run(&mut script(CHROMIUM, "many", &server, &["10000"]));
    assert!(status.success() && said.trim() == "ok", "{said}{told}");
}

#[test]
fn r_40_names_with_markup_are_text() {
    for browser in [CHROMIUM, FIREFOX] {
        shows_markup(browser);
    }
}

fn shows_markup(browser: &str) {
    let server = Server::start(&[]);
    for (id, name) in [
        ("a", "<img src=x onerror='globalThis.ran=1'>"),
        ("b", "</script><script>globalThis.ran=1</script>"),
        ("c", "${globalThis.ran=1} javascript:globalThis.ran=1 \"onload=globalThis.ran=1"),
    ] {
        let body = serde_json::json!({
            "streamId": id, "name": name, "description": name, "metaData": name, "category": name, "username": name,
            "endPointList": [{ "endpointUrl": "rtmp://127.0.0.1:9/a/<svg onload='globalThis.ran=1'>" }],
        });
        let made = server.api().post("/live/rest/v2/broadcasts/create", &body.to_string());
        // The endpoint contains markup, so it is not a valid URL.
        assert_eq!(made.status, 400, "{}", made.body);
        let body = serde_json::json!({
            "streamId": id, "name": name, "description": name, "metaData": name, "category": name, "username": name,
        });
        assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", &body.to_string()).status, 200);
    }
    let (status, said, told) = run(&mut script(browser, "hostile", &server, &["<img src=x onerror"]));
    assert!(status.success() && said.trim() == "ok", "{said}{told}");
}

/// Checks a page of another origin while the operator is logged in, in the same browser and on the same host.
#[test]
fn r_34_r_44_a_page_of_another_origin_does_nothing_and_sees_nothing() {
    does(CHROMIUM, "foreign");
}

#[test]
fn an_open_panel_goes_on_when_its_server_comes_back() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    let port = format!("http.port={}", server.http.port());
    let [pause, go_on] = ["pause", "go-on"].map(|name| home.path().join(name));
    let more = [pause.to_str().unwrap(), go_on.to_str().unwrap()];
    let mut panel = Program::start(&mut script(CHROMIUM, "restart", &server, &more));
    wait_for("the panel", secs(30), || pause.exists());
    server.kill();
    wait_for("it to notice", secs(30), || go_on.exists());
    let _server = Server::start_in(&folder, &[&port]);
    let status = panel.wait(secs(60)).expect("it does not go on");
    assert!(status.success());
}
