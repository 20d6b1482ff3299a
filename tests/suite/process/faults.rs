//! Faults that an operator may meet: signals, certificates, few descriptors, a missing home, a missing store.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crypto::Seed;
use netsim::MediaSource;

use super::super::support::{
    Home, Player, Publisher, RtmpPeer, Server, publish_synthetic, run, secs, wait_for,
};
use super::{output_of, program, refusal};

pub(super) fn new_home() -> (Home, PathBuf) {
    let home = Home::new();
    let folder = home.path().join("home");
    (home, folder)
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("log/millstream.log")).unwrap_or_default()
}

fn create(server: &Server, id: &str) -> u16 {
    let body = format!(r#"{{"streamId":"{id}"}}"#);
    server.api().post("/live/rest/v2/broadcasts/create", &body).status
}

/// Runs `millstream store ...`. Returns true if it succeeded, standard output, and standard error.
fn store(folder: &Path, words: &[&str]) -> (bool, String, String) {
    let (status, out, said) = run(program().arg("store").args(words).arg("--home").arg(folder));
    (status.success(), out, said)
}

#[test]
fn c_12_signals_of_rotation_reopen_the_log_and_no_common_one_kills() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &[]);
    let log = folder.join("log/millstream.log");
    for (nth, signal) in ["USR1", "HUP"].into_iter().enumerate() {
        let renamed = folder.join(format!("log/renamed{nth}"));
        wait_for("the log", secs(10), || log.exists());
        fs::rename(&log, &renamed).unwrap();
        server.signal(signal);
        wait_for("another file", secs(10), || log_of(&folder).contains("log reopened"));
        let before = fs::read_to_string(&renamed).unwrap().matches("log reopened").count();
        assert_eq!(before, nth, "the line is in the new file alone");
    }
    server.signal("ALRM");
    // Signals are handled in order. When SIGUSR1 has been handled, SIGALRM has been handled, too.
    server.signal("USR1");
    wait_for("the log", secs(10), || log_of(&folder).matches("log reopened").count() >= 2);
    assert_eq!(create(&server, "a"), 200);
    assert!(server.terminate().success());
}

#[test]
fn c_14_a_broken_certificate_is_told_and_the_rest_is_served() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &[]);
    assert!(server.terminate().success());
    let [chain, key] = ["conf/fullchain.pem", "conf/privkey.pem"].map(|path| folder.join(path));
    let whole = [&chain, &key].map(|path| fs::read(path).unwrap());
    let faults: [(&Path, Option<&[u8]>, &str); 5] = [
        (&chain, Some(b"-----BEGIN NOTHING-----\n"), "fullchain.pem"),
        (&chain, Some(b""), "'BEGIN CERTIFICATE', PEM"),
        (&chain, None, "fullchain.pem: a certificate"),
        (&key, Some(b"no key\n"), "privkey.pem: a private key ('BEGIN PRIVATE KEY'"),
        (&key, None, "privkey.pem"),
    ];
    for (nth, (file, content, words)) in faults.into_iter().enumerate() {
        match content {
            Some(bytes) => fs::write(file, bytes).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        fs::remove_file(folder.join("log/millstream.log")).unwrap();
        let mut server = Server::start_in(&folder, &[]);
        wait_for("the error", secs(10), || log_of(&folder).contains(" ERROR "));
        let log = log_of(&folder);
        let line = log.lines().find(|line| line.contains(" ERROR ")).unwrap();
        let served = "TLS uses a temporary self-signed one";
        assert!(line.contains(words) && line.contains(served), "{line}");
        assert_eq!(create(&server, &format!("x{nth}")), 200);
        let url = format!("https://{}/live/rest/v2/version", server.https.unwrap());
        let (status, out, said) = run(Command::new("curl").args(["--silent", "--insecure", &url]));
        assert!(status.success() && out.contains("versionName"), "{out}{said}");
        // Once the files are valid again, the certificate is loaded.
        fs::write(&chain, &whole[0]).unwrap();
        fs::write(&key, &whole[1]).unwrap();
        wait_for("the certificate", secs(10), || log_of(&folder).contains("certificate loaded"));
        assert!(server.terminate().success());
    }
}

#[test]
fn c_13_with_few_descriptors_the_api_answers_and_the_log_has_the_limit() {
    let (_home, folder) = new_home();
    let plain = Server::command(&folder, &[]);
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:64").arg(plain.get_program()).args(plain.get_args());
    let mut server = Server::spawn(&mut command);
    wait_for("the limit", secs(10), || log_of(&folder).contains("descriptors files=64 in_use="));
    // Silent connections cannot use up all descriptors.
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.extend(TcpStream::connect(server.http));
    }
    assert!(idle.len() > 50);
    drop(idle.split_off(2));
    let url = format!("http://{}/live/rest/v2/broadcasts/count", server.http);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", &url]);
    wait_for("an answer", secs(20), || run(&mut curl).0.success());
    assert_eq!(create(&server, "b"), 200);
    assert!(!log_of(&folder).contains("accepting connections paused"), "{}", log_of(&folder));
    assert!(server.terminate().success());
}

#[test]
fn q_12_what_came_while_the_server_was_stopped_is_read_before_it_is_late() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &["server.workers=1"]);
    let before = server.open_sockets();
    // More connections than the worker handles in one step.
    let mut peers: Vec<TcpStream> = (0..1500).map(|_| TcpStream::connect(server.http).unwrap()).collect();
    for peer in &mut peers {
        peer.set_read_timeout(Some(secs(20))).unwrap();
        peer.write_all(b"GET /live/rest/v2/version HTTP/1.1\r\n").unwrap();
    }
    wait_for("all of them", secs(10), || server.open_sockets() >= before + peers.len());
    // When this request is answered, the server has read the beginnings of all earlier requests.
    assert_eq!(create(&server, "a"), 200);
    server.signal("STOP");
    for peer in &mut peers {
        peer.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n").unwrap();
    }
    // Waits longer than the time limit for a request head (docs/robustness.md, H-20).
    std::thread::sleep(secs(12));
    server.signal("CONT");
    for peer in &mut peers {
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    // A client with an incomplete request times out.
    let mut silent = TcpStream::connect(server.http).unwrap();
    silent.set_read_timeout(Some(secs(20))).unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(server.terminate().success());
}

/// Checks a publisher whose grace period ends while the server is stopped. The publisher returns before the server
/// continues and checks the time.
#[test]
fn q_12_a_publisher_that_returns_while_the_server_is_stopped_keeps_its_stream() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &["app.publisherGraceMs=3000"]);
    let rtmp = server.rtmp;
    let mut source = MediaSource::new(&Seed::from_number(5));
    let mut first = RtmpPeer::publish(rtmp, "live", "s").unwrap();
    first.send_configs().unwrap();
    publish_synthetic(&mut first, &mut source, 60).unwrap();
    let player = Player::start(rtmp, "live", "s");
    wait_for("media", secs(10), || player.units() > 0);
    drop(first);
    // Time for the server to notice the loss.
    std::thread::sleep(secs(1));
    server.signal("STOP");
    let returns = std::thread::spawn(move || Publisher::start_from(rtmp, "live", "s", source));
    std::thread::sleep(secs(5));
    let before = player.units();
    server.signal("CONT");
    let _publisher = returns.join().unwrap();
    wait_for("more media", secs(10), || player.units() > before + 60 || !player.is_playing());
    assert!(player.is_playing(), "its stream was ended: {}", log_of(&folder));
    assert!(server.terminate().success());
}

#[test]
fn c_15_the_build_is_told_wherever_one_looks() {
    let (_home, folder) = new_home();
    let (_, version, _) = run(program().arg("--version"));
    let words: Vec<&str> = version.trim().split(['(', ' ', ')']).filter(|word| !word.is_empty()).collect();
    let ["millstream", number, "commit", commit, "of", date] = words[..] else { panic!("{version}") };
    assert_eq!(number, env!("CARGO_PKG_VERSION"));
    assert!(date == "unknown" || date.len() == 10 && date.starts_with("20"), "{date}");
    let server = Server::start_in(&folder, &[]);
    let answer = server.api().get("/live/rest/v2/version").json();
    assert_eq!(
        (answer["versionName"].as_str(), answer["buildNumber"].as_str()),
        (Some(number), Some(&*format!("{date}_{commit}")))
    );
    let metrics = server.api().get("/metrics").body;
    let line = format!(r#"millstream_build_info{{version="{number}",commit="{commit}",date="{date}"}} 1"#);
    assert!(metrics.contains(&line), "{metrics}");
    wait_for("the log", secs(10), || log_of(&folder).contains(&format!("(commit {commit} of {date})")));
}

#[test]
fn b_12_b_13_a_store_is_backed_up_while_the_server_runs_and_restored() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &[]);
    assert_eq!(create(&server, "a"), 200);
    let copy = folder.join("../copy").display().to_string();
    let (done, _, said) = store(&folder, &["backup", &copy]);
    assert!(done && said.contains("backed up: "), "{said}");
    assert_eq!(create(&server, "b"), 200);
    assert!(store(&folder, &["check"]).2.contains("in use by another process"));
    assert!(store(&folder, &["check", &copy]).2.contains("whole: 1 broadcasts"));
    server.kill();
    // If the store is missing, the server refuses to start, and says what to do.
    let file = folder.join("data/store.redb");
    fs::remove_file(&file).unwrap();
    for command in [Server::command(&folder, &[]), {
        let mut deep = program();
        deep.args(["check-config", "--deep", "--home"]).arg(&folder);
        deep
    }] {
        let output = output_of(&command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.starts_with("millstream: ")).unwrap();
        assert!(line.contains("store.redb: missing") && line.contains("millstream store restore "), "{said}");
        assert!(line.contains("millstream store reindex ") && output.status.code() == Some(1), "{said}");
        assert!(!file.exists());
    }
    let (done, _, said) = store(&folder, &["restore", &copy]);
    assert!(done, "{said}");
    let (_, lines, _) = store(&folder, &["export"]);
    assert!(lines.lines().count() == 1 && lines.contains(r#""streamId":"a""#), "{lines}");
    let mut server = Server::start_in(&folder, &[]);
    assert_eq!((create(&server, "a"), create(&server, "b")), (400, 200));
    assert!(server.terminate().success());
    assert!(refusal(&output_of(program().args(["store", "dance"]))).contains("usage: millstream store"));
}

#[test]
fn b_18_a_home_that_is_deleted_under_the_server_is_noticed() {
    let (_home, folder) = new_home();
    let mut server = Server::start_in(&folder, &["server.allowed_dashboard_CIDR=127.0.0.1"]);
    assert_eq!(create(&server, "a"), 200);
    let liveness = || server.api().get("/rest/v2/liveness").status;
    assert_eq!(liveness(), 200);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(create(&server, "b"), 500);
    assert_eq!(liveness(), 500);
    assert_eq!(create(&server, "c"), 500);
    assert!(!folder.exists(), "nothing is made anew in its place");
    assert!(server.is_alive());
    let _ = server.terminate();
}
