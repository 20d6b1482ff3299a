//! Upgrades of a running server: a new process takes over, and nobody is disconnected (docs/upgrade.md).

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crypto::Seed;
use netsim::MediaSource;

use crate::cluster::Redis;
use crate::publish_play::is_broadcasting;
use crate::support::{
    Home, Over, Player, Publisher, RtcClient, RtmpPeer, Server, SrtTool, SrtUrl, ms, own_port,
    publish_synthetic, secs, ts_file, wait_for,
};

/// A process that a server has started. It is killed when the value is dropped.
struct Newer(u32);

impl Newer {
    fn is_alive(&self) -> bool {
        // A zombie counts as ended.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.0.to_string()).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Newer {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = Command::new("kill").arg("-KILL").arg(self.0.to_string()).status();
        }
    }
}

/// A copy of the program, which a test can replace by another program.
struct Installed {
    home: Home,
    program: PathBuf,
}

/// Copies the program. Another process writes the copy: if this one did, children of other tests could have the file
/// open, and a file that is open for writing cannot be started.
fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_millstream")).arg(to).status().unwrap();
    assert!(copied.success());
}

impl Installed {
    fn new() -> Self {
        let home = Home::new();
        // The path is a symbolic link, as in installations with a folder for each version.
        let program = home.path().join("millstream");
        copy_program(&home.path().join("first"));
        symlink(home.path().join("first"), &program).unwrap();
        Self { home, program }
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join("home")
    }

    fn start(&self, settings: &[&str]) -> Server {
        let like = Server::command(&self.folder(), settings);
        Server::spawn(Command::new(&self.program).args(like.get_args()))
    }

    /// Replaces the installed program by a script or, without one, by a copy of the program itself.
    fn replace(&self, script: Option<&str>) {
        let beside = self.home.path().join("new");
        match script {
            Some(script) => fs::write(&beside, script).unwrap(),
            None => copy_program(&beside),
        }
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(beside, &self.program).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log/millstream.log")).unwrap_or_default()
    }
}

/// Runs `millstream upgrade` for a home. Returns the newer process, or the error output.
fn upgrade(home: &Path) -> Result<Newer, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    let output = command.arg("upgrade").arg("--home").arg(home).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    let pid = said.split_whitespace().find_map(|word| word.parse().ok());
    Ok(Newer(pid.unwrap_or_else(|| panic!("{said}"))))
}

/// A viewer over HTTP-FLV, which counts the bytes that it receives.
struct FlvViewer {
    bytes: Arc<AtomicUsize>,
    has_ended: Arc<AtomicBool>,
}

impl FlvViewer {
    fn start(server: &Server, path: &str) -> Self {
        let mut stream = TcpStream::connect(server.http).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let (bytes, has_ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let viewer = Self { bytes: Arc::clone(&bytes), has_ended: Arc::clone(&has_ended) };
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                bytes.fetch_add(read, Ordering::SeqCst);
            }
            has_ended.store(true, Ordering::SeqCst);
        });
        viewer
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    fn is_playing(&self) -> bool {
        !self.has_ended.load(Ordering::SeqCst)
    }
}

/// Clients that connect and make a request, one after another, until the test stops them.
struct Knocking {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<(usize, Vec<String>)>,
}

impl Knocking {
    fn start(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (until, api) = (Arc::clone(&stop), server.api());
        let thread = thread::spawn(move || {
            let (mut count, mut failed) = (0, Vec::new());
            while !until.load(Ordering::SeqCst) {
                let reply = api.get("/live/rest/v2/version");
                count += 1;
                if reply.status != 200 {
                    failed.push(format!("{reply:?}"));
                }
            }
            (count, failed)
        });
        Self { stop, thread }
    }

    fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

#[test]
fn c_21_a_new_process_takes_over_and_sessions_of_the_old_one_go_on_until_they_end() {
    let installed = Installed::new();
    let mut server = installed.start(&["server.workers=2"]);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    let (player, flv) = (Player::start(server.rtmp, "live", "s"), FlvViewer::start(&server, "/live/s.flv"));
    wait_for("media", secs(20), || player.media() > 30 && flv.bytes() > 10_000);
    let made = server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"kept"}"#);
    assert_eq!(made.status, 200);

    let knocking = Knocking::start(&server);
    // A connection that a client keeps open: after the upgrade, the old process closes it with its next answer.
    let mut kept = TcpStream::connect(server.http).unwrap();
    let ask = |kept: &mut TcpStream| {
        let request = b"GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\n\r\n";
        std::io::Write::write_all(kept, request).unwrap();
        let mut answer = [0; 4096];
        let length = kept.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    assert!(!ask(&mut kept).contains("Connection: close"));
    let newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    let last = ask(&mut kept);
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("Connection: close"), "{last}");
    let before = (player.media(), flv.bytes());
    wait_for("media behind the upgrade", secs(20), || {
        player.media() > before.0 + 60 && flv.bytes() > before.1 + 20_000
    });
    // The newer process accepts new sessions. It has all records, and gets the older process's stream from there.
    let again = Publisher::start(server.rtmp, "live", "t");
    wait_for("a new stream", secs(20), || is_broadcasting(&server, "t"));
    wait_for("the record of the old stream", secs(20), || is_broadcasting(&server, "s"));
    assert!(server.api().broadcast("live", "kept").is_some());
    let later = ["s", "t"].map(|id| Player::start(server.rtmp, "live", id));
    for player in &later {
        wait_for("media for a new viewer", secs(20), || player.media() > 60);
    }
    assert!(RtmpPeer::publish(server.rtmp, "live", "s").is_err(), "the id is in use");
    let (count, failed) = knocking.stop();
    assert!(count > 20 && failed.is_empty(), "{count}: {failed:?}");
    assert!(player.is_playing() && flv.is_playing() && server.is_alive() && newer.is_alive());

    // The older process ends with its last session. The id of its stream is then free.
    drop((player, flv));
    publisher.stop();
    assert_eq!(server.wait(secs(60)).code(), Some(0), "{}", installed.log());
    wait_for("the end", secs(20), || installed.log().contains("upgrade complete"));
    let back = Publisher::start(server.rtmp, "live", "s");
    wait_for("its stream", secs(20), || is_broadcasting(&server, "s"));
    assert!(later[1].is_playing() && newer.is_alive());

    // The newer process can be upgraded, too.
    let newest = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    let before = later[1].media();
    wait_for("media behind the second upgrade", secs(20), || later[1].media() > before + 60);
    let third = Player::start(server.rtmp, "live", "t");
    wait_for("media for a new viewer", secs(20), || third.media() > 30);
    drop((later, third));
    again.stop();
    back.stop();
    wait_for("the end of the second process", secs(60), || !newer.is_alive());
    assert!(newest.is_alive() && server.api().broadcast("live", "kept").is_some());
    newest.signal("TERM");
    wait_for("the end of the third process", secs(20), || !newest.is_alive());
}

/// A program that takes over the store, and then runs the code that replaces END.
const TAKES_THE_STORE: &str = r#"#!/usr/bin/env python3
import json, os, socket, struct
older = socket.socket(fileno=os.dup(0))
def receive(count):
    data = b""
    while len(data) < count:
        part = older.recv(count - len(data))
        assert part
        data += part
    return data
def frame():
    return json.loads(receive(struct.unpack(">I", receive(4))[0]))
offer = frame()
assert offer["type"] == "offer" and offer["sockets"]
receive(len(offer["sockets"]) + offer["workers"])
ready = json.dumps({"type": "ready"}).encode()
older.sendall(struct.pack(">I", len(ready)) + ready)
assert frame()["type"] == "take"
END
"#;

#[test]
fn c_21_a_new_process_that_fails_changes_nothing() {
    let installed = Installed::new();
    let server = installed.start(&["server.workers=2"]);
    let _publisher = Publisher::start(server.rtmp, "live", "s");
    let player = Player::start(server.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 30);
    let knocking = Knocking::start(&server);
    let mut made = 0;
    let mut check_refused = |why: &str| {
        let Err(said) = upgrade(&installed.folder()) else { panic!("{why}: taken over") };
        assert!(said.contains(why), "{said}\n{}", installed.log());
        let before = player.media();
        wait_for("media", secs(20), || player.media() > before + 30);
        assert!(player.is_playing());
        // The records still exist, and new ones can be stored.
        made += 1;
        let body = format!(r#"{{"streamId":"made-{made}"}}"#);
        let reply = server.api().post("/live/rest/v2/broadcasts/create", &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(server.api().broadcast("live", "made-1").is_some());
        let id = format!("t-{made}");
        let _publisher = Publisher::start(server.rtmp, "live", &id);
        wait_for("a new stream", secs(20), || is_broadcasting(&server, &id));
    };
    installed.replace(Some("#!/bin/sh\nexit 3\n"));
    check_refused(
        "the new process ended before it was ready (exit status: 3): see its reason in the standard error",
    );
    installed.replace(Some(&TAKES_THE_STORE.replace("END", "os.kill(os.getpid(), 9)")));
    check_refused("signal: 9");
    check_refused("signal: 9");
    // An upgrade to the program itself is refused if the settings have become invalid.
    installed.replace(None);
    let settings = installed.folder().join("conf/red5.properties");
    let before = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, format!("{before}\nlimits.connections=many\n")).unwrap();
    check_refused(
        "the new process ended before it was ready (exit status: 2): see its reason in the standard error",
    );
    fs::write(&settings, before).unwrap();
    // An upgrade is refused during a drain, because the new process would admit new sessions.
    let drain = |order: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        let drained = command.arg("drain").args(order).arg("--home").arg(installed.folder()).status();
        assert!(drained.unwrap().success());
    };
    drain(&[]);
    let Err(said) = upgrade(&installed.folder()) else { panic!("a drain is undone") };
    assert!(said.contains("the server is draining"), "{said}");
    drain(&["off"]);
    let (count, failed) = knocking.stop();
    assert!(count > 20 && failed.is_empty(), "{count}: {failed:?}");

    let _newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    let before = player.media();
    wait_for("media", secs(20), || player.media() > before + 30);
    let later = Player::start(server.rtmp, "live", "s");
    wait_for("media for a new viewer", secs(20), || later.media() > 30);
    assert!(server.api().broadcast("live", "made-4").is_some());
}

#[test]
fn c_21_sources_and_returning_publishers_move_to_the_new_process_and_viewers_stay() {
    let origin = Server::start(&[]);
    let _camera = Publisher::start(origin.rtmp, "live", "camera");
    let installed = Installed::new();
    let mut server = installed.start(&["server.workers=2", "app.publisherGraceMs=20000"]);
    let url = origin.rtmp_url("live/camera");
    let body = format!(r#"{{"streamId":"pulled","type":"streamSource","streamUrl":"{url}"}}"#);
    let made = server.api().post("/live/rest/v2/broadcasts/create?autoStart=true", &body);
    assert_eq!(made.status, 200, "{made:?}");
    let mut encoder = RtmpPeer::publish(server.rtmp, "live", "s").unwrap();
    encoder.send_configs().unwrap();
    let mut media = MediaSource::new(&Seed::from_number(7));
    publish_synthetic(&mut encoder, &mut media, 60).unwrap();
    for id in ["pulled", "s"] {
        wait_for("the stream", secs(20), || is_broadcasting(&server, id));
    }
    let players = ["pulled", "s"].map(|id| Player::start(server.rtmp, "live", id));
    wait_for("media", secs(20), || players.iter().all(|player| player.media() > 10));

    let newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    // A third process is refused, and the two others continue unchanged.
    let Err(said) = upgrade(&installed.folder()) else { panic!("a third process") };
    assert!(said.contains("still serves sessions"), "{said}");
    // An encoder that loses its connection returns to the new process, while its viewers are still at the old one.
    drop(encoder);
    wait_for("the loss", secs(20), || installed.log().contains("publisher lost"));
    let _encoder = Publisher::start(server.rtmp, "live", "s");
    wait_for("the source's move", secs(40), || installed.log().contains("source runs at another node"));
    let before = players.each_ref().map(Player::media);
    for (player, before) in players.iter().zip(before) {
        wait_for("media of the new process", secs(30), || player.media() > before + 60);
        assert!(player.is_playing());
    }
    let later = ["pulled", "s"].map(|id| Player::start(server.rtmp, "live", id));
    wait_for("media for new viewers", secs(20), || later.iter().all(|player| player.media() > 30));
    drop(players);
    assert_eq!(server.wait(secs(60)).code(), Some(0), "{}", installed.log());
    let before = later.each_ref().map(Player::media);
    for (player, before) in later.iter().zip(before) {
        wait_for("media without the old process", secs(20), || player.media() > before + 60);
        assert!(player.is_playing());
    }
    assert!(newer.is_alive());
}

#[test]
fn c_21_a_new_process_that_is_killed_leaves_the_store_and_the_viewers_to_the_old_one() {
    let origin = Server::start(&[]);
    let _camera = Publisher::start(origin.rtmp, "live", "camera");
    let installed = Installed::new();
    let mut server = installed.start(&["server.workers=2"]);
    let url = origin.rtmp_url("live/camera");
    let body = format!(r#"{{"streamId":"pulled","type":"streamSource","streamUrl":"{url}"}}"#);
    let made = server.api().post("/live/rest/v2/broadcasts/create?autoStart=true", &body);
    assert_eq!(made.status, 200, "{made:?}");
    wait_for("the stream", secs(20), || is_broadcasting(&server, "pulled"));
    let player = Player::start(server.rtmp, "live", "pulled");
    wait_for("media", secs(20), || player.media() > 10);
    let newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    wait_for("the source's move", secs(40), || installed.log().contains("source runs at another node"));
    let before = player.media();
    wait_for("media of the new process", secs(30), || player.media() > before + 60);
    newer.signal("KILL");
    wait_for("the store", secs(30), || installed.log().contains("store open again"));
    let before = player.media();
    wait_for("media without the new process", secs(40), || player.media() > before + 60);
    assert!(player.is_playing() && server.is_alive());
    drop(player);
    assert_eq!(server.wait(secs(90)).code(), Some(0), "{}", installed.log());
    // The record has outlived both processes.
    let server = installed.start(&[]);
    assert!(server.api().broadcast("live", "pulled").is_some());
}

#[test]
fn c_21_a_port_that_the_new_settings_do_not_have_is_closed() {
    let installed = Installed::new();
    let server = installed.start(&[]);
    let free = own_port("127.0.0.1");
    let real = installed.home.path().join("first");
    let script = format!("#!/bin/sh\nexec {} \"$@\" --set rtmp.port={}\n", real.display(), free.port());
    installed.replace(Some(&script));
    let newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    wait_for("the end of the old port", secs(20), || TcpStream::connect(server.rtmp).is_err());
    let _publisher = Publisher::start(free, "live", "s");
    wait_for("a stream at the new port", secs(20), || is_broadcasting(&server, "s"));
    assert!(newer.is_alive());
}

#[test]
fn c_21_a_server_that_is_to_end_calls_an_upgrade_off() {
    let installed = Installed::new();
    let mut server = installed.start(&[]);
    let pid = installed.home.path().join("pid");
    let waits = format!("open({pid:?}, 'w').write(str(os.getpid())); older.recv(1)");
    installed.replace(Some(&TAKES_THE_STORE.replace("END", &waits)));
    server.signal("USR2");
    let started = || fs::read_to_string(&pid).ok()?.parse().ok().map(Newer);
    wait_for("the new process", secs(20), || fs::read_to_string(&pid).is_ok_and(|pid| !pid.is_empty()));
    let newer = started().unwrap();
    server.signal("TERM");
    assert_eq!(server.wait(secs(60)).code(), Some(0), "{}", installed.log());
    wait_for("the end of the new process", secs(20), || !newer.is_alive());
    assert!(installed.log().contains("upgrade called off"), "{}", installed.log());
}

#[test]
fn c_21_sessions_over_udp_go_on_at_the_old_process() {
    let installed = Installed::new();
    let mut server = installed.start(&["server.workers=3"]);
    let srt = server.srt.unwrap();
    let ingest = SrtUrl::caller(srt).stream_id("#!::r=live/srt,m=publish");
    let encoder = SrtTool::Ffmpeg.send(&ts_file(false, 120), &ingest);
    let mut publisher = RtcClient::publish(&server, "rtc", Over::Udp);
    publisher.run_until("media", secs(30), |publisher| publisher.made_ms() > 3000);
    let mut feed = |clients: &mut [RtcClient], until: usize| {
        publisher.run_until("pictures at all clients", secs(60), |_| {
            clients.iter_mut().for_each(RtcClient::step);
            clients.iter().all(|client| client.frames >= until)
        });
    };
    wait_for("the stream over SRT", secs(20), || is_broadcasting(&server, "srt"));
    let into = installed.home.path().join("played.ts");
    let request = SrtUrl::caller(srt).stream_id("#!::r=live/srt,m=request");
    let _player = SrtTool::Ffmpeg.record(&request, &into);
    let written = || fs::metadata(&into).map_or(0, |file| file.len());
    wait_for("bytes over SRT", secs(30), || written() > 100_000);
    let mut clients: Vec<RtcClient> = (0..4).map(|_| RtcClient::play(&server, "rtc", Over::Udp)).collect();
    feed(&mut clients, 10);

    let newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    let (frames, bytes) = (clients.iter().map(|client| client.frames).max().unwrap(), written());
    feed(&mut clients, frames + 150);
    wait_for("bytes over SRT behind the upgrade", secs(30), || written() > bytes + 200_000);
    assert!(server.api().metric("millstream_passed_datagrams_total", "") > 0.0, "by the new process");

    // New sessions over the same ports reach the new process.
    let mut later = vec![RtcClient::play(&server, "rtc", Over::Udp)];
    feed(&mut later, 30);
    let again = SrtUrl::caller(srt).stream_id("#!::r=live/again,m=publish");
    let second = SrtTool::Ffmpeg.send(&ts_file(false, 120), &again);
    wait_for("a new stream over SRT", secs(20), || is_broadcasting(&server, "again"));
    let bytes = written();
    wait_for("bytes of the old session", secs(30), || written() > bytes + 100_000);
    let log = installed.log();
    assert!(
        !log.contains("session ended protocol=\"srt\"") && !log.contains("session ended protocol=\"webrtc\""),
        "{log}"
    );

    clients.iter_mut().chain(&mut later).for_each(RtcClient::close);
    publisher.close();
    drop((encoder, second));
    assert_eq!(server.wait(secs(90)).code(), Some(0), "{}", installed.log());
    assert!(newer.is_alive());
}

#[test]
fn c_21_each_worker_of_the_old_process_gets_the_media_of_its_publishers() {
    let installed = Installed::new();
    let server = installed.start(&["server.workers=3"]);
    // With six publishers, the kernel gives the media of some to another worker than the one that has their session,
    // and there are several publishers at one worker.
    let mut publishers: Vec<_> =
        (0..6).map(|n| RtcClient::publish(&server, &format!("rtc{n}"), Over::Udp)).collect();
    let mut run_until = |what: &str, made_ms: u64| {
        let began = publishers.iter().map(RtcClient::made_ms).max().unwrap();
        let (first, rest) = publishers.split_first_mut().unwrap();
        first.run_until(what, secs(60), |first| {
            rest.iter_mut().for_each(RtcClient::step);
            rest.iter().chain([first]).all(|publisher| publisher.made_ms() > began + made_ms)
        });
        let sent = publishers.iter_mut().flat_map(|publisher| publisher.peer.stats().sent);
        sent.map(|(_, sent)| (sent.packets, sent.nacked)).collect::<Vec<_>>()
    };
    run_until("media", 3000);
    let _newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    let before = run_until("media after the upgrade", 1000);
    // Long enough for several checks of each path, whose requests arrive at the worker that they name.
    let after = run_until("more media", 10_000);
    for (before, after) in before.iter().zip(&after) {
        let (packets, nacked) = (after.0 - before.0, after.1 - before.1);
        assert!(nacked * 20 < packets, "{nacked} of {packets}\n{}", installed.log());
    }
}

#[test]
fn c_21_a_signal_upgrades_too_and_the_service_manager_follows_the_new_process() {
    let installed = Installed::new();
    let path = installed.home.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(secs(30))).unwrap();
    let message = || {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let like = Server::command(&installed.folder(), &[]);
    let mut command = Command::new(&installed.program);
    // Without `WATCHDOG_PID`, which would name a process, each process that has these variables sends watchdog
    // messages.
    command.args(like.get_args()).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut server = Server::spawn(&mut command);
    while !message().starts_with("READY=1") {}
    server.signal("USR2");
    let newer = loop {
        if let Some(pid) = message().strip_prefix("MAINPID=") {
            break Newer(pid.parse().unwrap());
        }
    };
    // Without sessions the old process ends soon, and does not report that the service stops.
    assert_eq!(server.wait(secs(60)).code(), Some(0), "{}", installed.log());
    for _ in 0..5 {
        let told = message();
        assert!(told == "WATCHDOG=1" || told.starts_with("READY=1"), "{told}");
    }
    assert_eq!(server.api().get("/live/rest/v2/version").status, 200);
    newer.signal("TERM");
    while message() != "STOPPING=1\nSTATUS=draining" {}
}

#[test]
fn c_21_viewers_of_the_old_process_are_counted_at_the_new_one_from_the_beginning() {
    let installed = Installed::new();
    let server = installed.start(&["server.workers=2"]);
    let made = server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#);
    assert_eq!(made.status, 200);
    let _publisher = Publisher::start(server.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&server, "s"));
    let _players = [(); 2].map(|()| Player::start(server.rtmp, "live", "s"));
    let count = || server.api().broadcast("live", "s").map(|record| record["rtmpViewerCount"].clone());
    wait_for("the viewers", secs(20), || count() == Some(2.into()));
    let _newer = upgrade(&installed.folder()).unwrap_or_else(|said| panic!("{said}\n{}", installed.log()));
    for _ in 0..60 {
        assert_eq!(count(), Some(2.into()), "{}", installed.log());
        thread::sleep(ms(200));
    }
}

#[test]
fn an_upgrade_of_a_node_of_a_cluster_is_refused_and_changes_nothing() {
    let redis = Redis::start();
    let installed = Installed::new();
    let a = installed.start(&redis.settings("a").iter().map(String::as_str).collect::<Vec<_>>());
    let b = Server::start(&redis.settings("b").iter().map(String::as_str).collect::<Vec<_>>());
    let _publisher = Publisher::start(a.rtmp, "live", "s");
    wait_for("the stream", secs(20), || is_broadcasting(&b, "s"));
    let player = Player::start(a.rtmp, "live", "s");
    wait_for("media", secs(20), || player.media() > 30);
    let Err(said) = upgrade(&installed.folder()) else { panic!("a node is upgraded") };
    assert!(said.contains("drain it, and start the new version"), "{said}");
    let before = player.media();
    wait_for("media", secs(20), || player.media() > before + 60);
    assert!(player.is_playing() && is_broadcasting(&b, "s"));
    assert!(RtmpPeer::publish(b.rtmp, "live", "s").is_err(), "the node keeps its claim");
}
