//! Runs the examples of the protocol crates as programs, with ffmpeg at the other end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Mutex;

use crate::publish_play::{assert_track_equal, assert_track_within};
use crate::support::{
    Home, Packet, Program, Server, coded_file, ffmpeg9, media_file, python, run, secs, ts_file, unit_md5,
    wait_for,
};

/// A running example, and the address that it has printed.
struct Example {
    child: Child,
    told: BufReader<ChildStderr>,
    address: String,
}

impl Example {
    /// Starts an example of a crate with its standard output in a file, and reads where it listens.
    fn start(krate: &str, name: &str, output: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(built(krate, name));
        command.args(arguments).stdin(Stdio::null()).stdout(File::create(output).unwrap());
        Self::listening(&mut command)
    }

    fn listening(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut address = String::new();
        told.read_line(&mut address).unwrap();
        assert!(address.contains("://127.0.0.1:"), "it listens nowhere: {address}");
        Self { child, told, address: address.trim().to_owned() }
    }

    /// Waits until the example ends by itself. Returns its further output.
    fn finish(mut self) -> String {
        let mut text = String::new();
        self.told.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }

    /// Waits for the next line that contains this text, and returns it.
    fn wait_for_line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.told.read_line(&mut line).unwrap() > 0, "it ended without saying {text}");
        }
        line
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the example if needed, and returns the path of its program.
fn built(krate: &str, name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "-q",
        "--locked",
        "-p",
        &format!("millstream-{krate}"),
        "--example",
        name,
    ]);
    assert!(build.status().unwrap().success(), "the example {name} of {krate} does not build");
    Path::new(env!("CARGO_BIN_EXE_millstream")).with_file_name("examples").join(name)
}

/// Returns the command of ffmpeg that sends a file in real time.
fn ffmpeg(program: &Path, file: &Path, output: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin", "-re", "-i"]).arg(file);
    command.args(["-c", "copy", "-f"]).args(output);
    command
}

/// Returns the hashes of a file's pictures. Only their slices are hashed.
fn pictures(file: &Path) -> Vec<String> {
    let mut command = Command::new(ffmpeg9());
    command.args(["-v", "error", "-i"]).arg(file).args(["-an", "-c", "copy", "-bsf:v"]);
    command.args(["h264_mp4toannexb,filter_units=remove_types=6-9", "-f", "framemd5", "-"]);
    let (status, text, errors) = run(&mut command);
    assert!(status.success(), "{errors}");
    let hash = |line: &str| line.rsplit(',').next().unwrap_or_default().trim().to_owned();
    text.lines().filter(|line| !line.starts_with('#')).map(hash).collect()
}

#[test]
fn the_rtmp_server_sends_what_ffmpeg_publishes_to_a_player() {
    rtmp_server_sends("server");
}

#[test]
fn the_rtmp_server_with_tokio_does_the_same() {
    rtmp_server_sends("tokio_server");
}

fn rtmp_server_sends(example: &str) {
    let home = Home::new();
    let mut server = Example::start("rtmp", example, &home.path().join("out"), &["127.0.0.1:0"]);
    let url = format!("{}/first", server.address);
    let file = media_file(true, 12);
    let _publisher = Program::start(&mut ffmpeg(Path::new("ffmpeg"), &file, &["flv", &url]));
    server.wait_for_line("first is published");
    let (source, played) = (unit_md5(file.to_str().unwrap(), None), unit_md5(&url, Some(4)));
    for track in 0..2 {
        assert_track_equal((track, &source), (track, &played));
    }
    let (status, _, said) = run(Command::new("ffmpeg").args(["-v", "error", "-i", &format!("{url}-none")]));
    assert!(!status.success() && said.contains("Server error: not here"), "{said}");
}

/// Sends a text and 100 000 bytes to a WebSocket, in both directions, and closes it.
const ECHO: &str = "
import sys
from websockets.sync.client import connect
with connect(sys.argv[1]) as socket:
    for message in ['text', bytes(100_000)]:
        socket.send(message)
        assert socket.recv(timeout=20) == message
print(socket.close_code)
";

#[test]
fn the_http_server_answers_curl_and_echoes() {
    let home = Home::new();
    let server = Example::start("http1", "server", &home.path().join("out"), &[]);
    let get = |path: &str| {
        let url = format!("{}{path}", server.address.trim_end_matches('/'));
        run(Command::new("curl").args(["-s", "-w", " %{http_code}", &url, &url])).1
    };
    assert_eq!(get("/"), "<h1>It works</h1>\n 200".repeat(2), "two on one connection");
    assert!(get("/none").ends_with(" 404"));
    let socket = server.address.replace("http://", "ws://") + "echo";
    let (status, code, errors) = run(Command::new(python()).args(["-c", ECHO, &socket]));
    assert!(status.success(), "{errors}");
    assert_eq!(code.trim(), "1000");
}

#[test]
fn the_srt_caller_and_listener_carry_a_stream_whole() {
    let (home, file) = (Home::new(), ts_file(true, 5));
    let output = home.path().join("out.ts");
    let listener = Example::start("srt", "listener", &output, &["127.0.0.1:0"]);
    let address = listener.address.trim_start_matches("srt://").to_owned();
    let mut caller = Command::new(built("srt", "caller"));
    let mut source = ffmpeg(Path::new("ffmpeg"), &file, &["mpegts", "-"]);
    let mut caller = Program::start_piped(&mut source, caller.args([&address, "live/first"]));
    assert!(caller.wait(secs(30)).expect("the caller ends with its input").success());
    let told = listener.finish();
    assert!(told.contains("sends Some(\"live/first\")") && told.contains("closed: Peer"), "{told}");
    let (source, came) = (unit_md5(file.to_str().unwrap(), None), unit_md5(output.to_str().unwrap(), None));
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &came));
        let count = |packets: &[Packet]| packets.iter().filter(|packet| packet.0 == track).count();
        assert_eq!(count(&came), count(&source), "track {track}");
    }
}

#[test]
fn the_srt_listener_takes_ffmpeg() {
    let (home, file) = (Home::new(), ts_file(true, 5));
    let output = home.path().join("out.ts");
    let listener = Example::start("srt", "listener", &output, &["127.0.0.1:0"]);
    let url = format!("{}?streamid=live/first&latency=1000000", listener.address);
    let status = ffmpeg(Path::new("ffmpeg"), &file, &["mpegts", &url]).status().unwrap();
    assert!(status.success());
    assert!(listener.finish().contains("closed: Peer"));
    // ffmpeg ends while its last packets are still in flight, so the last picture may be incomplete.
    let (source, came) =
        (unit_md5(file.to_str().unwrap(), None), unit_md5(output.to_str().unwrap(), Some(3)));
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &came));
    }
}

#[test]
fn ts_to_mp4_has_every_frame() {
    let (home, file) = (Home::new(), ts_file(true, 5));
    let output = home.path().join("out.mp4");
    let mut command = Command::new(built("fmp4", "ts_to_mp4"));
    let (status, _, errors) = run(command.arg(&file).arg(&output));
    assert!(status.success(), "{errors}");
    let (source, made) = (unit_md5(file.to_str().unwrap(), None), unit_md5(output.to_str().unwrap(), None));
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &made));
        let count = |packets: &[Packet]| packets.iter().filter(|packet| packet.0 == track).count();
        assert_eq!(count(&made), count(&source), "track {track}");
    }
}

#[test]
fn the_hls_origin_is_played_to_its_end() {
    let file = ts_file(true, 5);
    let mut source =
        ffmpeg(Path::new("ffmpeg"), &file, &["mpegts", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(built("hls", "origin"));
    command.arg("127.0.0.1:0").stdin(source.stdout.take().unwrap()).stdout(Stdio::null());
    let mut origin = Example::listening(&mut command);
    let status = source.wait().unwrap();
    assert!(status.success());
    origin.wait_for_line("segment 2");
    let address = origin.address.trim_start_matches("http://").trim_end_matches("/live.m3u8").to_owned();
    let mut playlist = String::new();
    wait_for("the end of the list", secs(10), || {
        playlist = fetched(&address, "/live.m3u8");
        playlist.contains("#EXT-X-ENDLIST")
    });
    assert!(playlist.contains("#EXTINF:2.000,\n0.ts\n"), "{playlist}");
    let (source, played) = (unit_md5(file.to_str().unwrap(), None), unit_md5(&origin.address, None));
    for track in 0..2 {
        assert_track_within(1, (track, &source), (track, &played));
        let count = |packets: &[Packet]| packets.iter().filter(|packet| packet.0 == track).count();
        assert_eq!(count(&played), count(&source), "track {track}");
    }
}

#[test]
fn the_hls_segments_of_a_file_have_every_frame() {
    let (home, source) = (Home::new(), media_file(true, 12));
    let file = home.path().join("source.mp4");
    let mut copy = Command::new("ffmpeg");
    copy.args(["-v", "error", "-nostdin", "-i"])
        .arg(&source)
        .args(["-c", "copy", "-movflags", "+faststart"])
        .arg(&file);
    let (status, _, errors) = run(&mut copy);
    assert!(status.success(), "{errors}");
    for form in ["ts", "fmp4"] {
        let folder = home.path().join(form);
        let mut command = Command::new(built("hls", "segments"));
        let (status, _, errors) = run(command.arg(&file).arg(form).arg(&folder));
        assert!(status.success(), "{form}: {errors}");
        let list = folder.join("live.m3u8");
        let text = fs::read_to_string(&list).unwrap();
        assert!(text.matches("#EXTINF:2.000,").count() >= 5 && text.contains("#EXT-X-ENDLIST"), "{text}");
        let (source, cut) = (unit_md5(file.to_str().unwrap(), None), unit_md5(list.to_str().unwrap(), None));
        for track in 0..2 {
            assert_track_within(1, (track, &source), (track, &cut));
            let count = |packets: &[Packet]| packets.iter().filter(|packet| packet.0 == track).count();
            assert_eq!(count(&cut), count(&source), "{form}, track {track}");
        }
    }
}

/// Requests a path, and returns the body of the answer.
fn fetched(address: &str, path: &str) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

#[test]
fn the_rtsp_player_writes_what_a_server_sends() {
    let (server, home, file) = (Server::start(&["server.workers=1"]), Home::new(), media_file(true, 12));
    let publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/camera"));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", "camera").is_some_and(|record| record["status"] == "broadcasting")
    });
    let output = home.path().join("out.264");
    let mut player = Command::new(built("rtsp", "player"));
    player.arg(server.rtsp_url("live/camera")).stdin(Stdio::null()).stdout(File::create(&output).unwrap());
    let mut player = player.stderr(Stdio::piped()).spawn().unwrap();
    wait_for("pictures", secs(20), || fs::metadata(&output).is_ok_and(|data| data.len() > 400_000));
    drop(publisher);
    let mut told = String::new();
    player.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(player.wait().unwrap().success(), "{told}");
    assert!(told.contains("2 tracks are played") && told.contains("closed: "), "{told}");
    // The file is published again and again, so the pictures may continue at the beginning.
    let source = pictures(&file);
    assert_unbroken(&[source.clone(), source].concat(), &output);
}

/// Checks that the pictures of a file are a part of the list `of`, without a gap.
fn assert_unbroken(of: &[String], file: &Path) {
    let came = pictures(file);
    assert!(came.len() > 60, "{} pictures", came.len());
    let first = of.iter().position(|picture| *picture == came[0]).unwrap_or_else(|| {
        panic!("{} {} {} {:?} {:?}", file.display(), came.len(), of.len(), &came[..2], &of[28..32])
    });
    let differs = came.iter().zip(&of[first..]).position(|(came, of)| came != of);
    assert_eq!(differs, None, "picture of {} from {first} on that is another than in the source", came.len());
    assert!(came.len() <= of.len() - first);
}

#[test]
fn the_rtsp_camera_is_played_by_ffmpeg_and_by_the_player() {
    let (home, file) = (Home::new(), ts_file(true, 12));
    let (mut command, mut player) =
        (Command::new(built("rtsp", "camera")), Command::new(built("rtsp", "player")));
    let mut source =
        ffmpeg(Path::new("ffmpeg"), &file, &["mpegts", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    command.arg("127.0.0.1:0").stdin(source.stdout.take().unwrap()).stdout(Stdio::null());
    let camera = Example::listening(&mut command);
    let (written, copied) = (home.path().join("out.264"), home.path().join("copy.264"));
    player.arg(&camera.address).stdin(Stdio::null()).stdout(File::create(&written).unwrap());
    let mut player = player.stderr(Stdio::null()).spawn().unwrap();
    let mut copy = Command::new("ffmpeg");
    copy.args(["-v", "error", "-nostdin", "-rtsp_transport", "tcp", "-i", &camera.address, "-c", "copy"]);
    let (status, _, errors) = run(copy.args(["-f", "h264"]).arg(&copied));
    assert!(status.success(), "{errors}");
    assert!(source.wait().unwrap().success() && player.wait().unwrap().success());
    let told = camera.finish();
    assert_eq!(told.matches("a player has left").count(), 2, "{told}");
    // Compares with the MP4 file from which the transport stream was made, because hashes of a transport stream
    // include side data.
    let source = pictures(&media_file(true, 12));
    assert_unbroken(&source, &written);
    assert_unbroken(&source, &copied);
}

#[test]
fn the_whep_player_writes_what_a_server_sends() {
    let (server, home, file) = (Server::start(&["server.workers=1"]), Home::new(), media_file(false, 12));
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/shown"));
    wait_for("the stream", secs(20), || {
        server.api().broadcast("live", "shown").is_some_and(|record| record["status"] == "broadcasting")
    });
    let output = home.path().join("out.264");
    let mut player = Command::new(built("webrtc", "whep_player"));
    player.args([&format!("http://{}/live/whep/shown", server.http), "6"]).stdin(Stdio::null());
    let mut player = player.stdout(File::create(&output).unwrap()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = String::new();
    player.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(player.wait().unwrap().success(), "{told}");
    assert!(
        told.contains("connected\n") && told.contains("closed: ") && !told.contains(" 0 of sound"),
        "{told}"
    );
    let source = pictures(&file);
    assert_unbroken(&[source.clone(), source].concat(), &output);
    let viewers =
        || server.api().broadcast("live", "shown").map(|record| record["webRTCViewerCount"].clone());
    wait_for("the viewer's end", secs(10), || viewers() == Some(0.into()));
}

#[test]
fn the_whip_server_writes_what_ffmpeg_publishes() {
    let home = Home::new();
    let output = home.path().join("out.264");
    let mut server = Example::start("webrtc", "whip_server", &output, &["127.0.0.1:0"]);
    let coding = ["-c:v", "libx264", "-profile:v", "baseline", "-bf", "0", "-c:a", "libopus", "-ar", "48000"];
    let file = coded_file("h264-opus-example", &coding);
    let mut publisher = Program::start(&mut ffmpeg(&ffmpeg9(), &file, &["whip", &server.address]));
    server.wait_for_line("1 is connected");
    assert!(publisher.wait(secs(40)).expect("the file has an end").success());
    let told = server.wait_for_line("1 has ended");
    assert!(!told.contains("after 0 frames"), "{told}");
    let (source, came) = (pictures(&file), pictures(&output));
    assert!(came.len() > 300, "{} pictures of {}", came.len(), source.len());
    assert!(
        source.windows(came.len()).any(|part| part == came),
        "what came is no unbroken part of the source"
    );
}
