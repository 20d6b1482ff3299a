//! Tests rooms, and calls between two browsers, with Chromium (`rooms.py`).

use std::path::Path;
use std::process::Command;

use crate::support::{Server, python, run};

fn does(task: &str, settings: &[&str]) {
    let server = Server::start(settings);
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/rooms.py"));
    command.args([task, &format!("http://{}/", server.http)]);
    let (status, said, told) = run(&mut command);
    assert!(status.success() && said.trim() == "ok", "{task}: {said}{told}");
}

#[test]
fn a_conference_of_browsers() {
    does("conference", &[]);
}

#[test]
fn a_conference_of_browsers_on_two_workers() {
    does("conference", &["server.workers=2"]);
}

#[test]
fn a_viewer_of_a_stream_stays_when_it_becomes_a_room() {
    does("late", &[]);
}

#[test]
fn a_viewer_of_a_stream_stays_when_it_becomes_a_room_with_seats() {
    does("late_seats", &["server.workers=2", "app.maxVideoTrackCount=1", "app.maxAudioTrackCount=1"]);
}

#[test]
fn a_room_with_nobody_else_connects_and_goes_on() {
    does("empty", &[]);
}

#[test]
fn a_room_chats_by_data_channels() {
    does("chat", &["server.workers=2"]);
}

#[test]
fn a_viewer_with_one_seat_is_sent_who_speaks() {
    does("seats", &["server.workers=2", "app.maxVideoTrackCount=1", "app.maxAudioTrackCount=1"]);
}

#[test]
fn viewers_hear_how_loud_a_publisher_is() {
    does("levels", &["server.workers=2", "app.sendAudioLevelToViewers=true"]);
}

#[test]
fn the_conference_page_of_four_browsers() {
    does("page", &["server.workers=2"]);
}

#[test]
fn the_conference_page_with_a_seat_for_each() {
    does("page", &["app.maxVideoTrackCount=3", "app.maxAudioTrackCount=3"]);
}

#[test]
fn a_call_of_two_browsers() {
    does("call", &[]);
}

#[test]
fn a_browser_that_closes_leaves_its_call() {
    does("calls_end", &["server.workers=2"]);
}
