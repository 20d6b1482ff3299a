//! Tests uploads of files.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Home, Program, Server, frame_md5, media_file, run, secs, wait_for};

const VODS: &str = "/live/rest/v2/vods";

/// Uploads a file under a name, and returns the status and the body of the answer.
fn upload(server: &Server, name: &str, file: &Path, more: &[&str]) -> (u16, String) {
    let url = format!("http://{}{VODS}/create?name={name}", server.http);
    let file = format!("file=@{}", file.display());
    let (status, output, errors) =
        run(Command::new("curl").args(["-s", "-S", "-w", "\n%{http_code}", "-F", &file]).args(more).arg(url));
    assert!(status.success(), "{errors}");
    let (body, status) = output.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn uploaded(server: &Server, name: &str, file: &Path, more: &[&str]) -> Value {
    let (status, body) = upload(server, name, file, more);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn vods(server: &Server) -> Vec<Value> {
    server.api().get(&format!("{VODS}/list/0/50")).json().as_array().unwrap().clone()
}

fn streams(home: &Path) -> PathBuf {
    home.join("home/webapps/live/streams")
}

/// Returns the names of the files in the folder of recordings.
fn names(home: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(streams(home)) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns an MP4 file to upload.
pub fn film() -> PathBuf {
    let source = media_file(false, 12);
    let film = source.with_extension("upload.mp4");
    crate::support::make_once(&film, |to| {
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-y", "-i"]).arg(&source).args(["-c", "copy", "-f", "mp4"]).arg(to);
        assert!(run(&mut command).0.success());
    });
    film
}

/// Opens a connection, and sends the header of an upload and this many bytes of its body.
fn begun(server: &Server, length: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.http).unwrap();
    let head = format!(
        "POST {VODS}/create?name=x.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n\
         --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.mp4\"\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![7; sent]).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(secs(20))).unwrap();
    let mut answer = [0; 4096];
    let count = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[test]
fn a_file_is_uploaded_and_played() {
    let server = Server::start(&[]);
    let film = film();
    let answer = uploaded(&server, "my%20film.mp4", &film, &["-F", "metadata={\"k\":1}"]);
    let id = answer["dataId"].as_str().unwrap();
    assert_eq!((&answer["success"], &answer["message"]), (&true.into(), &answer["dataId"]));
    assert!(id.len() == 24 && id.bytes().all(|b| b.is_ascii_digit()), "{id}");
    let vod = server.api().get(&format!("{VODS}/{id}")).json();
    for (member, value) in [
        ("streamName", "my film.mp4"),
        ("vodName", "my film.mp4"),
        ("streamId", "file"),
        ("type", "uploadedVod"),
        ("filePath", &format!("streams/{id}.mp4")),
        ("metadata", "{\"k\":1}"),
    ] {
        assert_eq!(vod[member], value, "{vod}");
    }
    assert_eq!(vod["fileSize"].as_u64(), Some(fs::metadata(&film).unwrap().len()));
    assert!((11_000..13_000).contains(&vod["duration"].as_i64().unwrap()), "{vod}");
    assert_eq!(fs::read(streams(server.home()).join(format!("{id}.mp4"))).unwrap(), fs::read(&film).unwrap());
    let served = frame_md5(&format!("http://{}/live/streams/{id}.mp4", server.http), None);
    assert_eq!(served, frame_md5(film.to_str().unwrap(), None));
    assert_eq!(server.api().delete(&format!("{VODS}/{id}")).json()["success"], true);
    wait_for("the file to go", secs(10), || names(server.home()).is_empty());
}

#[test]
fn r_45_names_and_bodies_that_are_no_upload_are_refused() {
    let server = Server::start(&["app.upload.max_bytes=100000"]);
    let film = server.home().join("x.bin");
    fs::write(&film, vec![7; 50_000]).unwrap();
    for name in ["x.txt", "x.MP4", "", "x", "x.mp4%00", "mp4", "x.mp4%2F"] {
        let answer = uploaded(&server, name, &film, &[]);
        assert_eq!(
            answer.to_string(),
            r#"{"success":false,"message":"notSupportedFileType","dataId":null,"errorId":0}"#
        );
    }
    // Path separators in the name have no effect.
    let answer = uploaded(&server, "..%2F..%2F..%2Fetc%2Fpasswd.mp4", &film, &[]);
    let id = answer["dataId"].as_str().unwrap();
    let vod = server.api().get(&format!("{VODS}/{id}")).json();
    assert_eq!((&vod["vodName"], &vod["duration"]), (&"passwd.mp4".into(), &(-2).into()));
    assert_eq!(names(server.home()), [format!("{id}.mp4")]);
    fs::write(&film, vec![7; 200_000]).unwrap();
    let (status, _) = upload(&server, "x.mp4", &film, &[]);
    assert_eq!(status, 413);
    let no_file = ["-F", "other=x"];
    let url = format!("http://{}{VODS}/create?name=x.mp4", server.http);
    let (_, output, _) =
        run(Command::new("curl").args(["-s", "-w", "\n%{http_code}"]).args(no_file).arg(&url));
    assert!(output.ends_with("\n400"), "{output}");
    let api = server.api();
    assert_eq!(api.post(&format!("{VODS}/create?name=x.mp4"), "{}").status, 415);
    wait_for("nothing else to be left", secs(10), || names(server.home()).len() == 1);
    assert_eq!(vods(&server).len(), 1);
}

#[test]
fn r_45_what_is_not_allowed_is_refused_before_its_body() {
    let server = Server::start(&["app.remoteAllowedCIDR=10.0.0.0/8"]);
    // The answer arrives although the body is never sent.
    let refused = answer(begun(&server, 1_000_000_000, 0));
    assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("Not allowed IP"), "{refused}");
    assert!(names(server.home()).is_empty());
}

#[test]
fn r_45_an_upload_that_is_broken_off_leaves_nothing() {
    let server = Server::start(&[]);
    let stream = begun(&server, 10_000_000, 3_000_000);
    wait_for("a part of it", secs(10), || {
        names(server.home()).first().is_some_and(|name| {
            name.ends_with(".mp4.tmp_extension")
                && fs::metadata(streams(server.home()).join(name)).is_ok_and(|file| file.len() > 2_000_000)
        })
    });
    assert!(vods(&server).is_empty(), "nobody sees it");
    drop(stream);
    wait_for("it to go", secs(10), || names(server.home()).is_empty());
    // Four uploads may run at the same time. Another one is only accepted after one of them has ended.
    let mut held: Vec<_> = (0..4).map(|_| begun(&server, 1000, 100)).collect();
    wait_for("four", secs(10), || names(server.home()).len() == 4);
    let refused = answer(begun(&server, 1000, 0));
    assert!(refused.contains("Not enough system resources available"), "{refused}");
    held.pop();
    wait_for("three", secs(10), || names(server.home()).len() == 3);
    assert_eq!(uploaded(&server, "y.webm", &film(), &[])["success"], true);
}

#[test]
fn r_45_an_upload_that_a_crash_breaks_off_leaves_nothing() {
    let home = Home::new();
    let mut server = Server::start_in(&home.path().join("home"), &[]);
    let done = uploaded(&server, "done.mp4", &film(), &[]);
    let _stream = begun(&server, 10_000_000, 3_000_000);
    wait_for("both", secs(10), || names(home.path()).len() == 2);
    server.kill();
    drop(server);
    let server = Server::start_in(&home.path().join("home"), &[]);
    wait_for("the rest to go", secs(10), || names(home.path()).len() == 1);
    assert_eq!((vods(&server).len(), &vods(&server)[0]["vodId"]), (1, &done["dataId"]));
}

#[test]
fn r_45_a_large_upload_costs_no_memory() {
    let server = Server::start(&[]);
    let large = server.home().join("large.bin");
    fs::File::create(&large).unwrap().set_len(400 << 20).unwrap();
    let before = server.rss_kb();
    let url = format!("http://{}{VODS}/create?name=large.mov", server.http);
    let mut command = Command::new("curl");
    command.args(["-s", "-o", "/dev/null", "-F", &format!("file=@{}", large.display()), &url]);
    let mut program = Program::start(&mut command);
    let mut most = 0;
    while program.wait(std::time::Duration::from_millis(50)).is_none() {
        most = most.max(server.rss_kb());
    }
    assert_eq!(vods(&server)[0]["fileSize"].as_u64(), Some(400 << 20));
    assert!(most < before + 40_000, "{before} kB, then {most} kB");
}
