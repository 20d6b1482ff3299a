//! Starts the servers: each is a process of its own, pinned to core 0 unless the run is not pinned.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::load::Addresses;
use super::options::{Class, Kind, Options};

/// The core of the servers; the load has the next one.
const SERVER_CORE: &str = "0";
/// Maximum time until a server is ready; a slower one has failed.
const START_MAX: Duration = Duration::from_secs(10);

/// A running server. Dropping the value ends the process and removes its files.
#[derive(Debug)]
pub struct Server {
    child: Child,
    home: PathBuf,
    pub addresses: Addresses,
}

impl Server {
    /// Starts a server and waits until it accepts connections.
    pub fn start(kind: Kind, options: &Options) -> io::Result<Self> {
        let home =
            std::env::temp_dir().join(format!("millstream-fanout-{}-{}", std::process::id(), kind.name()));
        fs::create_dir_all(&home)?;
        let program = match kind {
            Kind::Millstream(_) => env!("CARGO_BIN_EXE_millstream").into(),
            Kind::Other => {
                options.other.clone().ok_or_else(|| io::Error::other("--other names no program"))?
            }
            Kind::Peer(peer) => PathBuf::from(peer.program()),
            Kind::Floor | Kind::FloorMessage => std::env::current_exe()?,
        };
        // `taskset` replaces itself by the program, so the id of the child process is the server's.
        let mut command = if options.pinned() {
            let mut command = Command::new("taskset");
            command.args(["-c", SERVER_CORE]).arg(program);
            command
        } else {
            Command::new(program)
        };
        // The server reads variables with this prefix as settings.
        command.stdin(Stdio::null()).stderr(Stdio::null()).env_remove(super::PINNED);
        match kind {
            Kind::Millstream(_) | Kind::Other => {
                let workers = if let Kind::Millstream(workers) = kind { workers } else { 1 };
                command.arg("--home").arg(home.join("home"));
                let workers = format!("server.workers={workers}");
                let ports = [
                    "server.host=127.0.0.1",
                    "http.port=0",
                    "https.port=0",
                    "rtmp.port=0",
                    "rtmps.port=0",
                    "rtsp.port=0",
                    "rtsps.port=0",
                    "server.srt_port=0",
                    "webrtc.port=0",
                ];
                let passphrase = format!("srt.passphrase={}", super::options::PASSPHRASE);
                let of_class = (options.class == Class::SrtAes).then_some(passphrase.as_str());
                let fixed = ports.into_iter().chain([workers.as_str()]).chain(of_class);
                for setting in fixed.chain(options.settings.iter().map(String::as_str)) {
                    command.args(["--set", setting]);
                }
                Self::with_first_line(command, home, |line| {
                    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
                    let address = |name: &str| ready.get(name)?.as_str()?.parse().ok();
                    let play = match options.class {
                        Class::Rtmp => "rtmp",
                        Class::Flv | Class::Ws | Class::Whep => "http",
                        Class::Flvs => "https",
                        Class::Rtsp => "rtsp",
                        Class::Srt | Class::SrtAes => "srt",
                    };
                    let (publish, rest) = (address("rtmp")?, address("http")?);
                    Some(Addresses { play: address(play)?, rest, ..only(publish, false) })
                })
            }
            Kind::Peer(peer) => {
                let addresses = peer.configure(&mut command, &home, options)?;
                Self::listening(command, home, addresses)
            }
            Kind::Floor | Kind::FloorMessage => {
                command.args(["--bare-loop", &kind.name(), options.class.name()]);
                Self::with_first_line(command, home, |line| {
                    let mut addresses = line.split_whitespace().map(str::parse);
                    let publish = addresses.next()?.ok()?;
                    let play = addresses.next().unwrap_or(Ok(publish)).ok()?;
                    Some(Addresses { play, ..only(publish, true) })
                })
            }
        }
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a server that writes its addresses to standard output.
    fn with_first_line(
        mut command: Command,
        home: PathBuf,
        addresses: impl FnOnce(&str) -> Option<Addresses>,
    ) -> io::Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let addresses = addresses(&line);
        let mut server = Self { child, home, addresses: only(([127, 0, 0, 1], 0).into(), true) };
        server.addresses =
            addresses.ok_or_else(|| io::Error::other(format!("no ready line but {line:?}")))?;
        Ok(server)
    }

    /// Starts a server that writes no addresses, and waits until a publisher can connect.
    fn listening(mut command: Command, home: PathBuf, addresses: Addresses) -> io::Result<Self> {
        let server = Self { child: command.stdout(Stdio::null()).spawn()?, home, addresses };
        let began = Instant::now();
        while TcpStream::connect(addresses.publish).is_err() {
            if began.elapsed() > START_MAX {
                return Err(io::Error::other(
                    "it does not listen; is it installed, nginx with its RTMP module?",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

/// Returns the addresses of a server that has a single one.
const fn only(address: SocketAddr, bare: bool) -> Addresses {
    Addresses { publish: address, play: address, rest: address, bare, other: None }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}
