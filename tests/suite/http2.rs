//! HTTP/2 with h2spec, curl and Chromium as clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    Home, Program, Server, frame_md5, media_file, python, run, secs, source_packets, wait_for,
};

/// Cases of h2spec that test priorities, which RFC 7540 has and RFC 9113 has removed (§5.3.1 of both).
const REMOVED: [&str; 2] =
    ["Sends HEADERS frame that depend on itself", "Sends PRIORITY frame that depend on itself"];

fn h2spec() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/.venv/bin/h2spec")
}

fn curl(arguments: &[&str]) -> String {
    let common = ["-s", "-S", "-k", "--http2", "--max-time", "20"];
    let (status, said, told) = run(Command::new("curl").args(common).args(arguments));
    assert!(status.success(), "{arguments:?}: {told}");
    said
}

#[test]
fn h_31_h2spec_finds_nothing_but_what_rfc_9113_has_removed() {
    let server = Server::start(&[]);
    let address = server.https.unwrap();
    let home = Home::new();
    let report = home.path().join("report.xml");
    let mut command = Command::new(h2spec());
    command.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-t", "-k", "-o", "5", "-j"]);
    let (_, said, told) = run(command.arg(&report));
    let report = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {said}{told}"));
    let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
    assert!(cases.len() > 140, "{} cases", cases.len());
    let failed = cases.iter().filter(|case| case.contains("<failure") || case.contains("<error"));
    let failed: Vec<&&str> =
        failed.filter(|case| !REMOVED.iter().any(|removed| case.contains(removed))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn curl_gets_pages_files_and_answers_of_the_api() {
    let server = Server::start(&[]);
    let base = format!("https://{}", server.https.unwrap());
    let written = ["-o", "/dev/null", "-w", "%{http_version} %{http_code} %{size_download} %{content_type}"];
    let page = curl(&[&written[..], &[&base]].concat());
    assert!(page.starts_with("2 200 ") && page.ends_with("text/html;charset=utf-8"), "{page}");
    // Sends thirty requests at the same time on one connection.
    let paths = ["/rest/v2/version", "/live/rest/v2/broadcasts/count", "/nothing"];
    let urls: Vec<String> = paths.iter().cycle().take(30).map(|path| format!("{base}{path}")).collect();
    let mut arguments = vec!["--parallel", "--parallel-max", "30"];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", "-w", "%{http_version} %{http_code}\n", url]);
    }
    let answers = curl(&arguments);
    let count = |line: &str| answers.lines().filter(|answer| *answer == line).count();
    // The first path requires a login, so it gets 403.
    assert_eq!((count("2 403"), count("2 200"), count("2 404")), (10, 10, 10), "{answers}");
    let off = Server::start(&["http2.enabled=false"]);
    let version = ["-o", "/dev/null", "-w", "%{http_version}", &format!("https://{}", off.https.unwrap())];
    assert_eq!(curl(&version), "1.1");
}

#[test]
fn http_flv_over_http_2_is_what_was_published() {
    let file = media_file(false, 12);
    let server = Server::start(&[]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "cam"));
    let copy = server.home().join("copy.flv");
    let url = format!("https://{}/live/cam.flv", server.https.unwrap());
    let mut command = Command::new("curl");
    command.args(["-s", "-k", "--http2", "--max-time", "4", "-o"]).arg(&copy).arg(&url);
    run(&mut command);
    let played = frame_md5(&copy.display().to_string(), None);
    let source = source_packets(&file);
    let hashes: std::collections::HashSet<_> = source.iter().map(|packet| &packet.4).collect();
    assert!(played.len() > 100, "{} packets", played.len());
    assert!(played.iter().all(|packet| hashes.contains(&packet.4)));
    let first = played.iter().map(|packet| packet.1).min().unwrap();
    assert!((0..=40).contains(&first), "it begins at {first} ms");
}

#[test]
fn chromium_plays_hls_over_http_2() {
    let server = Server::start(&[]);
    let _publisher = Program::ffmpeg_publish(&media_file(false, 20), &server.rtmp_url("live/cam"));
    wait_for("the stream", secs(20), || crate::publish_play::is_broadcasting(&server, "cam"));
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/player.py"));
    command.args(["chromium", "http2", &format!("https://{}/", server.https.unwrap())]);
    let (status, said, told) = run(&mut command);
    assert!(status.success() && said.trim() == "ok", "{said}{told}");
}

#[test]
fn a_file_that_is_uploaded_over_http_2_comes_back_the_same() {
    let server = Server::start(&[]);
    let base = format!("https://{}", server.https.unwrap());
    let film = crate::uploads::film();
    let file = format!("file=@{}", film.display());
    let answer = curl(&["-F", &file, &format!("{base}/live/rest/v2/vods/create?name=up.mp4")]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
    let id = answer["dataId"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let copy = server.home().join("copy.mp4");
    let copy = copy.to_str().unwrap();
    curl(&["-o", copy, &format!("{base}/live/streams/{id}.mp4")]);
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&film).unwrap());
    let part = curl(&["-r", "4-7", &format!("{base}/live/streams/{id}.mp4")]);
    assert_eq!(part, "ftyp");
}
