//! A server process with its own home folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::{Api, Captured, secs, wait_for};

static HOMES: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed when the value is dropped.
#[derive(Debug)]
pub struct Home(PathBuf);

impl Home {
    pub fn new() -> Self {
        let number = HOMES.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("millstream-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server, which is ended when the value is dropped. If the test fails, the end of the server's standard
/// error is shown.
#[derive(Debug)]
pub struct Server {
    child: Child,
    errors: Captured,
    home: Option<Home>,
    pub http: SocketAddr,
    pub https: Option<SocketAddr>,
    pub rtmp: SocketAddr,
    pub rtmps: Option<SocketAddr>,
    pub rtsp: Option<SocketAddr>,
    pub rtsps: Option<SocketAddr>,
    pub srt: Option<SocketAddr>,
    /// The listener for other nodes; `None` without a relay secret.
    pub relay: Option<SocketAddr>,
    /// The media port of each worker.
    pub webrtc: Vec<SocketAddr>,
    /// TURN over UDP, TCP and TLS.
    pub turn: [Option<SocketAddr>; 3],
}

impl Server {
    /// Starts a server with a fresh home and these settings.
    pub fn start(settings: &[&str]) -> Self {
        let home = Home::new();
        let mut server = Self::start_in(&home.path().join("home"), settings);
        server.home = Some(home);
        server
    }

    /// Makes the server the owner of `home`, the folder that contains the server's home, so that both are removed at
    /// the end. For servers made by [`Server::spawn`].
    pub fn with_home(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Starts a server in a home that outlives it.
    pub fn start_in(home: &Path, settings: &[&str]) -> Self {
        Self::spawn(&mut Self::command(home, settings))
    }

    /// Returns the command line, for tests that change it.
    pub fn command(home: &Path, settings: &[&str]) -> Command {
        fs::create_dir_all(home).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.arg("--home").arg(home);
        for setting in [
            "server.host=127.0.0.1",
            "http.port=0",
            "https.port=0",
            "rtmp.port=0",
            "rtmps.port=0",
            "rtsp.port=0",
            "rtsps.port=0",
            "server.srt_port=0",
            "webrtc.port=0",
            "relay.port=0",
            "turn.port=0",
            "turn.tls_port=0",
        ]
        .iter()
        .chain(settings)
        {
            command.arg("--set").arg(setting);
        }
        // The server would read variables with this prefix as settings.
        command.env_remove(super::NETWORK_SEEDS);
        command
    }

    /// Returns a TLS client that trusts only this server's own certificate.
    pub fn tls_client(&self) -> rustls::ClientConnection {
        let mut roots = rustls::RootCertStore::empty();
        let file = self.home().join("home/conf/fullchain.pem");
        roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// Starts a command made by [`Server::command`] (or a wrapper of one) and reads its ready line.
    pub fn spawn(command: &mut Command) -> Self {
        let errors = Captured::new();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.writer()).spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(ready) = serde_json::from_str::<serde_json::Value>(&line) else {
            let _ = child.kill();
            let status = child.wait();
            panic!("{status:?}, ready line {line:?}, standard error:\n{}", errors.tail());
        };
        assert_eq!(ready["event"], "ready");
        let of_workers = ready["webrtc"].as_array().into_iter().flatten();
        let address = |name: &str| ready[name].as_str().map(|address| address.parse().unwrap());
        Self {
            http: address("http").unwrap(),
            https: address("https"),
            rtmp: address("rtmp").unwrap(),
            rtmps: address("rtmps"),
            rtsp: address("rtsp"),
            rtsps: address("rtsps"),
            srt: address("srt"),
            relay: address("relay"),
            turn: ["turn", "turn-tcp", "turns"].map(address),
            webrtc: of_workers.filter_map(|address| address.as_str()?.parse().ok()).collect(),
            child,
            errors,
            home: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn api(&self) -> Api {
        Api::new(self.http)
    }

    pub fn rtmp_url(&self, path: &str) -> String {
        format!("rtmp://{}/{path}", self.rtmp)
    }

    pub fn rtsp_url(&self, path: &str) -> String {
        format!("rtsp://{}/{path}", self.rtsp.expect("the server does not listen for RTSP"))
    }

    pub fn home(&self) -> &Path {
        self.home.as_ref().unwrap().path()
    }

    /// Returns the log so far, if the server has a home of its own.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home().join("home/log/millstream.log")).unwrap_or_default()
    }

    /// Waits until the log has a line with this text. Another thread writes the log, so a line may be late.
    pub fn wait_for_line(&self, text: &str) {
        wait_for("a line of the log", secs(10), || self.log().contains(text));
    }

    /// Returns the log once it has a line with this text, as [`Server::wait_for_line`] waits for it.
    pub fn log_with(&self, text: &str) -> String {
        self.wait_for_line(text);
        self.log()
    }

    pub fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Sends SIGTERM, and waits for the end of the process.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait(secs(12))
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < limit, "the server did not end in {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Returns the resident memory in kilobytes.
    pub fn rss_kb(&self) -> u64 {
        self.status_field("VmRSS:")
    }

    pub fn threads(&self) -> u64 {
        self.status_field("Threads:")
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Returns the number of open sockets. Other files do not count, because logs and the store open files when
    /// they write.
    pub fn open_sockets(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:")).count()
    }

    /// Returns the CPU time of all threads.
    pub fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let nanos = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Returns the folder in `/proc` of one of the server's threads. A thread sets its name some time after the
    /// ready line.
    pub fn thread(&self, name: &str) -> PathBuf {
        let mut found = None;
        wait_for("the thread to have its name", secs(10), || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            let mut tasks = tasks.map(|task| task.unwrap().path());
            found = tasks
                .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name));
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until descriptors and threads are no more than before, which shows that nothing leaked.
    pub fn wait_for_rest(&self, open_files: usize, threads: u64) {
        wait_for("descriptors to be given back", secs(90), || {
            self.open_files() <= open_files && self.threads() <= threads
        });
    }

    fn status_field(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("standard error of the server {}:\n{}", self.pid(), self.errors.tail());
        }
    }
}
