//! C-08, C-09, U-37, and B-09 with Q-04: the sockets that the process opens, the privileges that it does not need, the
//! actions that it never takes, and a wall clock that jumps.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use super::super::support::{Bystander, Home, Player, Publisher, RtmpPeer, Server, run, secs, wait_for};

/// Returns the inodes of the open sockets of a process.
fn sockets(server: &Server) -> BTreeSet<String> {
    let links = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let links = links.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect()
}

/// Returns the rows of a table in `/proc/PID/net` that belong to the process. `inode` is the index of the column with
/// inodes, from 0.
fn rows(server: &Server, table: &str, inode: usize) -> Vec<Vec<String>> {
    let own = sockets(server);
    let text = fs::read_to_string(format!("/proc/{}/net/{table}", server.pid())).unwrap_or_default();
    let rows =
        text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.filter(|row| row.get(inode).is_some_and(|inode| own.contains(inode))).collect()
}

#[test]
fn c_08_nothing_listens_but_what_the_ready_line_says() {
    // `local_address` is `hex:PORT`; state 0A is LISTEN.
    let listening = |server: &Server| -> BTreeSet<u16> {
        let rows = ["tcp", "tcp6"].into_iter().flat_map(|table| rows(server, table, 9));
        let rows = rows.filter(|row| row[3] == "0A");
        rows.map(|row| u16::from_str_radix(row[1].rsplit(':').next().unwrap(), 16).unwrap()).collect()
    };
    let of_streams = |server: &Server| -> BTreeSet<u16> {
        let told =
            [Some(server.http), server.https, Some(server.rtmp), server.rtmps, server.rtsp, server.rtsps];
        told.into_iter().flatten().map(|address| address.port()).collect()
    };
    let without = Server::start(&["server.workers=2", "webrtc.tcp=false"]);
    assert_eq!(listening(&without), of_streams(&without));
    let server = Server::start(&["server.workers=2"]);
    // The port of WebRTC is both a UDP and a TCP port.
    let beside = server.webrtc.iter().map(|address| address.port());
    assert_eq!(listening(&server), of_streams(&server).into_iter().chain(beside).collect());
    // Each worker has a UDP socket at the port of SRT, and another at the port of WebRTC.
    let port = |row: &Vec<String>| u16::from_str_radix(row[1].rsplit(':').next().unwrap(), 16).unwrap();
    let datagrams = ["udp", "udp6"].into_iter().flat_map(|table| rows(&server, table, 9));
    let mut datagrams: Vec<u16> = datagrams.map(|row| port(&row)).collect();
    let srt = server.srt.unwrap().port();
    let webrtc = server.webrtc[0].port();
    let mut told = vec![webrtc, webrtc, srt, srt];
    datagrams.sort_unstable();
    told.sort_unstable();
    assert_eq!((datagrams, server.webrtc.len()), (told, 1));
    let apart = Server::start(&["server.workers=2", "webrtc.port_per_worker=true"]);
    let beside = apart.webrtc.iter().map(|address| address.port());
    assert_eq!(listening(&apart), of_streams(&apart).into_iter().chain(beside).collect());
    assert_eq!(apart.webrtc.len(), 2);
    for table in ["raw", "raw6"] {
        assert_eq!(rows(&server, table, 9), Vec::<Vec<String>>::new(), "{table}");
    }
    // For a Unix socket with a path, the last column contains the path.
    for row in rows(&server, "unix", 6) {
        assert!(row.get(7).is_none_or(|path| path.ends_with("/data/control.sock")), "{row:?}");
    }
}

#[test]
fn c_09_it_runs_as_nobody_without_capabilities_and_with_256_descriptors() {
    let home = Home::new();
    let program = home.path().join("millstream");
    fs::copy(env!("CARGO_BIN_EXE_millstream"), &program).unwrap();
    let folder = home.path().join("home");
    let plain = Server::command(&folder, &[]);
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--inh-caps=-all"]);
    let (_, user, _) = run(Command::new("id").arg("-u"));
    if user.trim() == "0" {
        assert!(run(Command::new("chown").arg("-R").arg("65534:65534").arg(home.path())).0.success());
        command.args(["--bounding-set=-all", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["prlimit", "--nofile=256:256"]).arg(&program).args(plain.get_args());
    let mut server = Server::spawn(&mut command).with_home(home);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_ne!(field("Uid:"), "0");
    assert_eq!((field("CapEff:").trim_matches('0'), field("NoNewPrivs:").as_str()), ("", "1"));
    let bystander = Bystander::start(&server);
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#).status, 200);
    bystander.finish(&mut server);
    assert!(server.terminate().success());
}

/// Checks that the server can start processes by the standard library alone, which never asks a shell. A test in
/// `tests/tree` permits this in one source file only.
#[test]
fn u_37_there_is_nothing_in_it_that_asks_a_shell() {
    let (status, symbols, said) =
        run(Command::new("nm").args(["-D", "--undefined-only", env!("CARGO_BIN_EXE_millstream")]));
    assert!(
        status.success() && symbols.contains(" U pthread_create"),
        "the oracle sees nothing: {symbols}{said}"
    );
    let starts = |name: &str| {
        ["exec", "posix_spawn", "popen"].iter().any(|begin| name.starts_with(begin))
            || ["fork", "vfork", "_Fork", "clone", "system"].contains(&name)
    };
    // The functions that `std::process::Command` uses.
    let of_std = |name: &str| name.starts_with("posix_spawn") || ["execvp", "fork"].contains(&name);
    let names = symbols.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next());
    let others = names.filter(|name| starts(name) && !of_std(name));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn u_37_it_starts_no_process_but_that_of_previews() {
    let home = Home::new();
    let trace = home.path().join("trace");
    let plain = Server::command(
        &home.path().join("home"),
        &[
            "app.muxerFinishScript=/bin/true",
            "app.streamStartedScript=/bin/true",
            "app.streamEndedScript=/bin/true",
        ],
    );
    let mut command = Command::new("strace");
    // -D: the server is the direct child of the test.
    command.args(["-D", "-f", "-e", "trace=execve,execveat,fork,vfork", "-o"]).arg(&trace);
    command.arg(plain.get_program()).args(plain.get_args());
    let mut server = Server::spawn(&mut command).with_home(home);
    let api = server.api();
    api.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"s"}"#);
    let target = format!(r#"{{"rtmpUrl":"{}"}}"#, server.rtmp_url("LiveApp/copy"));
    assert!(api.post("/live/rest/v2/broadcasts/s/rtmp-endpoint", &target).body.contains("true"));
    let url = format!(r#"{{"endpointUrl":"{}"}}"#, "rtmp://$(touch x);`touch y`/live/z");
    api.post("/live/rest/v2/broadcasts/s/endpoint", &url);
    let publisher = Publisher::start(server.rtmp, "live", "s");
    wait_for("the push", secs(20), || {
        api.broadcast("LiveApp", "copy").is_some_and(|record| record["status"] == "broadcasting")
    });
    let player = Player::start(server.rtmp, "LiveApp", "copy");
    wait_for("the pushed video", secs(30), || player.units() > 30);
    api.put("/live/rest/v2/broadcasts/s/recording/true", "");
    assert_eq!(api.get("/live/previews/s.png").status, 404, "the stream is synthetic");
    publisher.stop();
    api.delete("/live/rest/v2/broadcasts/s");
    assert!(server.terminate().success());
    let text = fs::read_to_string(&trace).unwrap();
    let is_call = |line: &&str| line.contains("exec") || line.contains("fork(");
    let calls: Vec<&str> = text.lines().filter(is_call).collect();
    let (own, others) = calls.split_first().expect("its own start");
    assert!(own.contains("millstream"), "{own}");
    let is_preview = |call: &&str| {
        call.contains("/proc/self/exe") && call.contains("preview-worker") || call.contains("vfork(")
    };
    assert!(others.iter().all(is_preview), "{others:?}");
}

/// Returns the path of Debian's `libfaketime` library.
fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let found = folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|path| path.exists());
    found.expect("run tests/install.sh: there is no libfaketime")
}

#[test]
fn b_09_q_04_a_wall_clock_that_jumps_a_day_moves_no_timer() {
    let home = Home::new();
    let clock = home.path().join("clock");
    fs::write(&clock, "+0d").unwrap();
    let mut command = Server::command(&home.path().join("home"), &["app.publisherGraceMs=600000"]);
    command
        .env("LD_PRELOAD", faketime())
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    let mut server = Server::spawn(&mut command).with_home(home);
    let bystander = Bystander::start(&server);
    // The publisher is lost without ending its stream. If it returns within ten minutes, its stream still exists.
    let mut publisher = RtmpPeer::publish(server.rtmp, "live", "s").unwrap();
    publisher.send_configs().unwrap();
    drop(publisher);
    let date_of = |id: &str| {
        let body = format!(r#"{{"streamId":"{id}"}}"#);
        let reply = server.api().post("/live/rest/v2/broadcasts/create", &body);
        reply.json()["date"].as_i64().unwrap()
    };
    let before = date_of("before");
    let day = 86_400_000;
    for (jump, days) in [("+1d", 1), ("-1d", -1), ("+0d", 0)] {
        fs::write(&clock, jump).unwrap();
        let id = format!("at{days}");
        let away = date_of(&id) - before - days * day;
        assert!(away.abs() < day / 2, "the date of a record is the clock's: {away} ms off");
        let record = server.api().broadcast("live", "s").unwrap();
        assert_ne!(record["status"], "finished", "its grace counts on another clock");
        // Timers work whatever the wall clock shows: a silent connection is closed.
        let mut silent = TcpStream::connect(server.rtmp).unwrap();
        silent.set_read_timeout(Some(secs(30))).unwrap();
        assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "closed by the timer of handshakes, {jump}");
    }
    bystander.finish(&mut server);
    assert!(server.terminate().success());
}
