//! Files that are moved to object storage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Home, Program, Server, media_file, own_port, python, run, secs, wait_for};

const VODS: &str = "/live/rest/v2/vods";
const ACCESS: &str = "AKIDSOMEBODY";
const SECRET: &str = "nobody-may-read+this/secret";
const BUCKET: &str = "films";

/// An S3 server with a bucket.
struct Storage {
    address: std::net::SocketAddr,
    _program: Program,
}

impl Storage {
    fn start_at(address: std::net::SocketAddr) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/s3_server.py");
        let port = address.port().to_string();
        let program = Program::start(Command::new(python()).arg(script).args([ACCESS, SECRET, &port]));
        wait_for("the storage", secs(30), || std::net::TcpStream::connect(address).is_ok());
        let storage = Self { address, _program: program };
        assert!(storage.curl(&["-X", "PUT"], BUCKET).0.starts_with('2'));
        storage
    }

    /// Returns the status and body of an unsigned request.
    fn curl(&self, arguments: &[&str], path: &str) -> (String, Vec<u8>) {
        let url = format!("http://{}/{path}", self.address);
        let output = Command::new("curl")
            .args(["-s", "-w", "%{http_code}"])
            .args(arguments)
            .arg(url)
            .output()
            .unwrap();
        let at = output.stdout.len() - 3;
        (String::from_utf8_lossy(&output.stdout[at..]).into_owned(), output.stdout[..at].to_vec())
    }

    fn object(&self, name: &str) -> Option<Vec<u8>> {
        let (status, body) = self.curl(&[], &format!("{BUCKET}/{name}"));
        (status == "200").then_some(body)
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.curl(&["-i"], path).1).into_owned()
    }
}

fn settings(address: std::net::SocketAddr, secret: &str) -> Vec<String> {
    [
        ("s3RecordingEnabled", "true"),
        ("s3Endpoint", &format!("http://{address}")),
        ("s3BucketName", BUCKET),
        ("s3AccessKey", ACCESS),
        ("s3SecretKey", secret),
        ("s3StreamsFolderPath", "kept/streams"),
        ("s3StorageClass", "standard_ia"),
    ]
    .map(|(key, value)| format!("app.{key}={value}"))
    .to_vec()
}

fn start(home: &Home, settings: &[String], more: &[&str]) -> Server {
    let all: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::start_in(&home.path().join("home"), &all)
}

/// Uploads a file of this size to the server. Returns its id and content.
fn upload(server: &Server, home: &Home, bytes: usize) -> (String, Vec<u8>) {
    let content: Vec<u8> = (0..bytes).map(|n| (n * n / 7 % 251) as u8).collect();
    let file = home.path().join("film.mov");
    fs::write(&file, &content).unwrap();
    let url = format!("http://{}{VODS}/create?name=film.mov", server.http);
    let (_, output, _) =
        run(Command::new("curl").args(["-s", "-F", &format!("file=@{}", file.display()), &url]));
    let answer: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(answer["success"], true, "{output}");
    (answer["dataId"].as_str().unwrap().to_owned(), content)
}

fn local(home: &Home, id: &str) -> PathBuf {
    home.path().join(format!("home/webapps/live/streams/{id}.mov"))
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.path().join("home/log/millstream.log")).unwrap_or_default()
}

/// Checks that neither the log nor an answer contains a secret.
fn assert_silent(server: &Server, home: &Home) {
    let answer = server.api().get(&format!("{VODS}/list/0/10")).body;
    for text in [log(home), answer] {
        assert!(
            !text.contains(SECRET) && !text.contains("X-Amz-Signature") && !text.contains("kept\":"),
            "{text}"
        );
    }
}

#[test]
fn files_are_moved_to_s3_and_go_with_their_records() {
    let storage = Storage::start_at(own_port("127.0.0.1"));
    let home = Home::new();
    let server = start(&home, &settings(storage.address, SECRET), &[]);
    // The small file is uploaded in a single request, the large one in parts.
    for bytes in [100_000, 40 << 20] {
        let (id, content) = upload(&server, &home, bytes);
        let name = format!("kept/streams/{id}.mov");
        wait_for("the object", secs(60), || storage.object(&name).is_some());
        assert!(storage.object(&name).unwrap() == content, "other bytes");
        let head = storage.text(&format!("{BUCKET}/{name}")).to_lowercase();
        assert!(
            head.contains("x-amz-storage-class: standard_ia") && head.contains("cache-control: no-store"),
            "{bytes}"
        );
        let acl = storage.text(&format!("{BUCKET}/{name}?acl"));
        assert!(acl.contains("AllUsers") && acl.contains("READ"), "{acl}");
        wait_for("the file to go", secs(10), || !local(&home, &id).exists());
        let vod = server.api().get(&format!("{VODS}/{id}")).json();
        assert_eq!(vod["fileSize"].as_u64(), Some(bytes as u64));
        assert_eq!(server.api().delete(&format!("{VODS}/{id}")).json()["success"], true);
        wait_for("the object to go", secs(20), || storage.object(&name).is_none());
    }
    let metrics = server.api().get("/metrics").body;
    assert!(
        metrics.contains("millstream_s3_uploads_total 2") && metrics.contains("millstream_s3_waiting 0"),
        "{metrics}"
    );
    assert_silent(&server, &home);
}

#[test]
fn two_recordings_of_a_stream_are_two_objects() {
    let storage = Storage::start_at(own_port("127.0.0.1"));
    let home = Home::new();
    let settings = settings(storage.address, SECRET);
    let server = start(&home, &settings, &["app.mp4MuxingEnabled=true", "app.publisherGraceMs=0"]);
    let file = media_file(false, 3);
    let folder = home.path().join("home/webapps/live/streams");
    for name in ["first.mp4", "first_1.mp4"] {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(&file);
        run(command.args(["-c", "copy", "-f", "flv", &server.rtmp_url("live/first")]));
        wait_for("the object", secs(40), || storage.object(&format!("kept/streams/{name}")).is_some());
        wait_for("the file to go", secs(10), || !folder.join(name).exists());
    }
    let list = server.api().get(&format!("{VODS}/list/0/10")).json();
    let first = list.as_array().unwrap().iter().find(|vod| vod["vodName"] == "first.mp4").unwrap();
    let id = first["vodId"].as_str().unwrap();
    assert_eq!(server.api().delete(&format!("{VODS}/{id}")).json()["success"], true);
    wait_for("the object to go", secs(20), || storage.object("kept/streams/first.mp4").is_none());
    assert!(storage.object("kept/streams/first_1.mp4").is_some(), "the other one stays");
}

#[test]
fn r_48_what_is_not_uploaded_is_not_forgotten() {
    let address = own_port("127.0.0.1");
    let home = Home::new();
    // The storage server is not running.
    let mut server = start(&home, &settings(address, SECRET), &["app.s3.keep_local=true"]);
    let (id, content) = upload(&server, &home, 200_000);
    wait_for("a failure", secs(20), || log(&home).contains("upload to S3 failed"));
    assert_silent(&server, &home);
    server.kill();
    drop(server);
    // The server has a wrong secret key.
    let storage = Storage::start_at(address);
    let server = start(&home, &settings(address, "another-secret"), &[]);
    wait_for("a refusal", secs(20), || log(&home).contains("403 SignatureDoesNotMatch"));
    assert!(!log(&home).contains("another-secret"));
    assert_eq!(fs::read(local(&home, &id)).unwrap(), content);
    drop(server);
    let server = start(&home, &settings(address, SECRET), &["app.s3.keep_local=true"]);
    wait_for("the object", secs(20), || storage.object(&format!("kept/streams/{id}.mov")).is_some());
    wait_for("its record", secs(10), || log(&home).contains("uploaded to S3"));
    assert!(local(&home, &id).exists(), "it is kept");
    assert_silent(&server, &home);
}
