//! Interoperability of the example relay with aiortc (OpenSSL's DTLS, libsrtp and its own ICE), over loopback.
//!
//! `tests/install.sh` at the root of the repository installs the dependencies.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "other implementations are behind sockets, and in processes of their own"
)]

#[path = "../../examples/whip/http.rs"]
mod http;
#[path = "../../examples/whip/relay.rs"]
mod relay;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dtls::SrtpProfile;
use relay::{Options, Relay};

/// Maximum duration of each step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A relay on its own thread, with its log.
struct Running {
    url: String,
    lines: Receiver<String>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(options: &Options) -> Self {
        let (at, requests) = http::listen(options.address).unwrap();
        let (log, lines) = channel();
        let relay = Relay::new(options, move |line| drop(log.send(line))).unwrap();
        println!("{at}, media at {}", relay.local());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || relay.run(&requests, &stopped).unwrap());
        Self { url: format!("http://{at}"), lines, stop, thread: Some(thread) }
    }

    /// Returns the next log line that contains `text`.
    fn wait_for(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|error| panic!("no line with {text:?}: {error}"));
            println!("{line}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A process that is killed at the end of the test, even if the test fails.
struct Process(Child);

impl Process {
    fn aiortc(arguments: &[&str]) -> Self {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python: PathBuf = crate_folder.join("../../tests/.venv/bin/python");
        assert!(python.exists(), "tests/install.sh installs aiortc");
        let mut command = Command::new(python);
        command.arg(crate_folder.join("tests/interop/aiortc_peer.py")).args(arguments);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Closes the input of the process, waits for it to succeed, and returns its output.
    fn finish(mut self) -> String {
        drop(self.0.stdin.take());
        let output = std::io::read_to_string(self.0.stdout.take().unwrap()).unwrap();
        assert!(self.0.wait().unwrap().success(), "{output}");
        output
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets aiortc publish and play its own media with these options, and checks that frames arrive in both
/// directions.
fn relays(codec: &str, frames: u32, options: Options, connected: &str) {
    let relay = Running::new(&options);
    let publisher = Process::aiortc(&["publish", &format!("{}/whip", relay.url), codec]);
    relay.wait_for(&format!("session 1 connected {connected}"));
    relay.wait_for("session 1 first frame");
    relay.wait_for("session 1 first frame");
    let viewer = Process::aiortc(&["play", &format!("{}/whep", relay.url), &frames.to_string()]);
    relay.wait_for(&format!("session 2 connected {connected}"));
    relay.wait_for("session 2 closed Local");
    assert_eq!(viewer.finish().trim(), format!("{frames} {frames}"));
    publisher.finish();
    relay.wait_for("session 1 closed Local");
}

#[test]
fn vp8_and_opus_through_the_relay() {
    relays("VP8", 30, Options::default(), "AeadAes128Gcm DTLS Server EcdheEcdsaAes128Gcm");
}

#[test]
fn h264_and_opus_through_the_relay_that_opens_the_handshake() {
    let options =
        Options { dtls_client: true, profile: Some(SrtpProfile::Aes128CmSha1_80), ..Options::default() };
    relays("H264", 30, options, "Aes128CmHmacSha1_80 DTLS Client EcdheEcdsa");
}

#[test]
fn over_ipv6_with_the_longer_keys() {
    let address = (Ipv6Addr::LOCALHOST, 0).into();
    let options = Options { profile: Some(SrtpProfile::AeadAes256Gcm), address, ..Options::default() };
    relays("VP8", 10, options, "AeadAes256Gcm DTLS Server");
}

/// Checks that messages of all lengths are echoed unchanged, with their type, over a good path and a lossy one.
#[test]
fn messages_by_a_data_channel_come_back() {
    for (loss, dtls_client) in [(0.0, false), (0.0, true), (0.03, false)] {
        let relay = Running::new(&Options { loss, dtls_client, ..Options::default() });
        let rounds = if loss > 0.0 { 1 } else { 3 };
        let peer = Process::aiortc(&["data", &format!("{}/whip", relay.url), &rounds.to_string()]);
        relay.wait_for("session 1 connected");
        relay.wait_for("session 1 closed Local");
        let lengths = [(0, 2), (1, 1), (4, 1), (1000, 1), (65_536, 2), (262_144, 1)];
        let counts: Vec<String> =
            lengths.iter().map(|(length, count)| format!("({length}, {})", count * rounds)).collect();
        assert_eq!(peer.finish().trim(), format!("[{}]", counts.join(", ")));
    }
}
