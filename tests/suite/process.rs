//! The process: its ready line, exit codes, files, settings, end, and its behaviour without free descriptors.

mod confined;
mod drain;
mod exhaustion;
mod faults;
mod manager;
mod names;
mod settings;
mod stopped;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use millstream::jobs::Class;

use super::support::{Home, Server, own_port, run};

/// The program without any argument.
fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_millstream"))
}

/// Runs a command that must end by itself. The time limit only detects one that does not.
fn output_of(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", "30"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    limited.stdin(Stdio::null()).output().unwrap()
}

/// Returns the line that a failed start prints. Log lines of another thread may precede and follow it.
fn failed_start(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(output.stdout, b"", "standard output is for the ready line");
    let is_ours = |line: &&str| line.starts_with("millstream: ");
    let (ours, log): (Vec<&str>, Vec<&str>) = said.lines().partition(is_ours);
    assert!(
        ours.len() == 1
            && log.iter().all(|line| line.contains(" WARN ") || line.contains("certificate created")),
        "{said}"
    );
    ours[0].to_owned()
}

/// Returns the line of a refusal, which must be the only line on standard error.
fn refusal(output: &Output) -> String {
    let line = failed_start(output, 2);
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("{line}\n"));
    line
}

fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

#[test]
fn an_idle_server_has_no_threads_for_jobs() {
    let server = Server::start(&[]);
    // Waits for a thread with this name, because threads get their names some time after the ready line.
    server.thread("jobs");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    // A thread of the start may end meanwhile.
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let names: Vec<String> = names.collect();
    let of_class =
        |name: &&String| Class::ALL.iter().any(|class| name.starts_with(&format!("{}-", class.name())));
    // When the server started, these threads looked for recordings and DVR files that an earlier run had left.
    let is_of_start = |name: &&String| name.trim_end() == "recording-1" || name.starts_with("file-sync-");
    let others = names.iter().filter(|name| !is_of_start(name));
    assert_eq!(others.into_iter().find(of_class), None, "{names:?}");
}

#[test]
fn the_ready_line_is_all_of_standard_output() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut command = Server::command(&folder, &[]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut lines, &mut first).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&first).unwrap();
    let keys: Vec<&String> = ready.as_object().unwrap().keys().collect();
    let expected = [
        "event", "pid", "version", "commit", "date", "http", "https", "rtmp", "rtmps", "rtsp", "rtsps",
        "relay", "turn-tcp", "turns", "srt", "webrtc", "turn",
    ];
    assert_eq!(keys, expected);
    assert_eq!(ready["event"], "ready");
    assert_eq!(ready["pid"], child.id());
    assert_eq!(ready["version"], env!("CARGO_PKG_VERSION"));
    assert!(ready["rtsp"].is_string() && ready["rtsps"].is_string());
    // The ready line contains the WebRTC port of each worker.
    let of_workers = ready["webrtc"].as_array().unwrap();
    let is_port =
        |value: &serde_json::Value| value.as_str().is_some_and(|text| text.parse::<SocketAddr>().is_ok());
    assert!(!of_workers.is_empty() && of_workers.iter().all(is_port), "{of_workers:?}");
    // The listeners in the ready line accept connections. Using them prints nothing further.
    for name in ["http", "https", "rtmp", "rtmps"] {
        let address: SocketAddr = ready[name].as_str().unwrap().parse().unwrap();
        assert!(address.ip().is_loopback() && address.port() != 0 && is_listening(address));
        super::support::raw_exchange(address, b"junk\r\n\r\n");
    }
    let status = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut lines, &mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn help_and_version_end_with_0() {
    for argument in ["--help", "-h", "--version", "-V"] {
        let output = output_of(program().arg(argument));
        assert_eq!(output.status.code(), Some(0), "{argument}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{argument}");
    }
}

#[test]
fn c_03_a_port_in_use_ends_with_1_and_leaves_nothing_listening() {
    let home = Home::new();
    let folder = home.path().join("home");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (used, other) in [("http.port", "rtmp.port"), ("rtmp.port", "http.port")] {
        let free = own_port("127.0.0.1");
        let settings = [format!("{used}={port}"), format!("{other}={}", free.port())];
        let output = output_of(&Server::command(&folder, &settings.each_ref().map(String::as_str)));
        let line = failed_start(&output, 1);
        assert!(line.contains(&format!("{used}: cannot listen at 127.0.0.1:{port}")), "{line}");
        assert!(!is_listening(free), "half a server was started");
    }
    // The failed starts have released the store.
    let mut server = Server::start_in(&folder, &[]);
    assert_eq!(server.api().get("/live/rest/v2/version").status, 200);
    assert!(server.terminate().success());
}

#[test]
fn c_03_a_store_held_by_a_running_server_ends_with_1() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    let create = |id: &str| {
        let body = format!(r#"{{"streamId":"{id}"}}"#);
        server.api().post("/live/rest/v2/broadcasts/create", &body).status
    };
    assert_eq!(create("before"), 200);
    let free = own_port("127.0.0.1");
    let port = format!("http.port={}", free.port());
    let line = failed_start(&output_of(&Server::command(&folder, &[&port])), 1);
    assert!(line.contains("store") && line.contains("in use by another process"), "{line}");
    assert!(!is_listening(free));
    let deep = output_of(program().args(["check-config", "--deep", "--home"]).arg(&folder));
    assert!(failed_start(&deep, 1).contains("in use by another process"));
    // The first server continues to run.
    assert_eq!(create("after"), 200);
    assert!(server.terminate().success());
}

#[test]
fn c_03_usage_and_configuration_end_with_2_and_one_line() {
    let home = Home::new();
    let folder = home.path().join("home");
    let large = home.path().join("large");
    fs::write(&large, "x".repeat(70_000)).unwrap();
    let binary = home.path().join("binary");
    fs::write(&binary, b"\xff\xfe").unwrap();
    let at = |path: &Path| format!("server.name=@{}", path.display());
    let settings = [
        ("http.port=70000", "http.port"),
        ("http.port=-1", "http.port"),
        ("rtmp.port=rtmp", "rtmp.port"),
        ("rtmp.port=", "rtmp.port"),
        ("server.host=nowhere", "server.host"),
        ("server.workers=0", "server.workers"),
        ("server.trusted_proxies=10.0.0.0/33", "server.trusted_proxies"),
        ("outbound.deny=1.2.3", "outbound.deny"),
        ("server.allowed_dashboard_CIDR=::/129", "server.allowed_dashboard_CIDR"),
        ("app.remoteAllowedCIDR=10.0.0.0/33", "remoteAllowedCIDR"),
        ("app.allowedPublisherCIDR=a,b", "allowedPublisherCIDR"),
        ("app.gopCache=perhaps", "gopCache"),
        ("logLevel=LOUD", "logLevel"),
        ("limits.connections=0", "limits.connections"),
        ("http.port=@/nonexistent/file", "/nonexistent/file"),
        (&at(&large), "64 KiB"),
        (&at(&binary), "UTF-8"),
        (&at(home.path()), "server.name"),
        ("http.port", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
    ];
    for (setting, words) in settings {
        let output = output_of(program().arg("--home").arg(&folder).args(["--set", setting]));
        let line = refusal(&output);
        assert!(line.contains(words), "{setting}: {line}");
        assert!(!folder.join("data/store.redb").exists(), "{setting}: the store was opened");
    }
    let usages: [&[&str]; 8] = [
        &["dance"],
        &["serve", "serve"],
        &["--nonsense"],
        &["-x"],
        &["--set"],
        &["--home"],
        &["--deep"],
        &["check-config", "what"],
    ];
    let nowhere = home.path().join("nowhere");
    for usage in usages {
        let output = output_of(program().current_dir(home.path()).args(usage));
        refusal(&output);
    }
    // A home that cannot be created is refused, too: there is a file at its path.
    fs::write(&nowhere, "a file").unwrap();
    assert!(refusal(&output_of(program().arg("--home").arg(&nowhere))).contains("nowhere"));
    // `check-config` refuses invalid settings, too.
    let output = output_of(program().args(["check-config", "--set", "http.port=x", "--home"]).arg(&folder));
    assert!(refusal(&output).contains("http.port"));
}

#[test]
fn c_04_the_home_is_made_with_its_layout_and_closed_to_others() {
    let home = Home::new();
    let folder = home.path().join("home");
    // If the folder has too permissive a mode, the server corrects the mode.
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = Server::start_in(&folder, &[]);
    let mode = |path: &str| fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("data"), mode("data/store.redb"), mode("data/store.lock")), (0o700, 0o600, 0o600));
    for file in [
        "conf/red5.properties",
        "webapps/live/WEB-INF/red5-web.properties",
        "webapps/LiveApp/WEB-INF/red5-web.properties",
    ] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    for path in ["log/millstream.log", "webapps/live/streams", "webapps/LiveApp/streams"] {
        assert!(folder.join(path).exists(), "{path}");
    }
    // There are no other files, and no partly written ones.
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["conf", "data", "log", "webapps"]);
    for folder in ["conf", "data", "webapps/live/WEB-INF"].map(|path| folder.join(path)) {
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.ends_with(".new"), "{name}");
        }
    }
    assert!(server.terminate().success());
    // Both applications are served, and check-config agrees with the store.
    let (status, out, said) = run(program().args(["check-config", "--deep", "--home"]).arg(&folder));
    assert!(status.success() && said.contains("the store has 0 records"), "{said}");
    assert!(out.contains("# application live\n") && out.contains("# application LiveApp\n"));
}
