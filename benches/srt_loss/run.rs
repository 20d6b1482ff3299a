//! Runs a sender and a receiver with a lossy network between them.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::options::{Cell, Options, Pair, RTT, Side};
use crate::packets::{self, PACKET, Received};
use crate::relay::{Relay, Way};

/// Pace of the packets: 5 Mb/s.
const PACKETS_PER_SECOND: u32 = 475;
/// Uncounted time after the first delivered packet. Loss also begins only at that packet, because a listener of libsrt
/// 1.5.1 does not repeat a lost answer to a conclusion.
const LEAD_IN: Duration = Duration::from_secs(2);
/// Time for which packets are fed to the sender after the counted ones, so that the sender's end loses none of
/// these.
const TAIL: Duration = Duration::from_secs(3);
/// Maximum time to connect; the worst network needs less.
const CONNECTED_WITHIN: Duration = Duration::from_secs(20);
/// Time from the start of the window to the blackout.
const DARK_AFTER: Duration = Duration::from_secs(5);
/// Maximum length of the counted window in a run with a blackout.
const DARK_WINDOW: Duration = Duration::from_secs(20);

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub cell: Cell,
    pub pair: Pair,
    pub seed: u64,
}

/// Results of a run.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Number of packets fed to the sender in the counted window.
    pub fed: u64,
    /// Counted packets that the receiver did not deliver.
    pub undelivered: u64,
    pub duplicates: u64,
    pub out_of_order: u64,
    pub damaged: u64,
    /// Retransmitted data packets on the wire per packet sent for the first time.
    pub overhead: f64,
    /// True if a side gave up.
    pub broken: bool,
    /// Delay beyond the due time that 99.9 % of the relay's datagrams did not exceed.
    pub relay_late: Duration,
    /// Maximum delay from a packet's due time until it was fed to the sender.
    pub feed_late: Duration,
}

/// Counters of the sender's data packets on the wire: sent for the first time, and again.
#[derive(Debug, Default)]
struct Wire {
    first: AtomicU64,
    again: AtomicU64,
}

impl Wire {
    fn see(&self, way: Way, datagram: &[u8]) {
        // draft-sharabayko-srt-01 §3: the first bit (F) marks a control packet, the sixth bit of the second word
        // (R) a retransmission.
        let (Some(control), Some(flags)) = (datagram.first(), datagram.get(4)) else { return };
        if way == Way::There && control & 0x80 == 0 {
            let count = if flags & 0x04 == 0 { &self.first } else { &self.again };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.first.store(0, Ordering::Relaxed);
        self.again.store(0, Ordering::Relaxed);
    }

    fn overhead(&self) -> f64 {
        self.again.load(Ordering::Relaxed) as f64 / self.first.load(Ordering::Relaxed).max(1) as f64
    }
}

/// A child process that is killed when the value is dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    pub fn measure(self, options: &Options) -> Result<Outcome, String> {
        let listener = free_port()?;
        let mut receiver = start(&mut self.receiver(options, listener))?;
        let wire = Arc::new(Wire::default());
        let (tap, cell, from_start) = (Arc::clone(&wire), self.cell, options.from_start);
        let relay = Relay::to(listener)
            .seed(self.seed)
            .links(move |link| {
                let link = link.latency(RTT / 2);
                if from_start { cell.spoil(link) } else { link }
            })
            .tap(move |way, datagram| tap.see(way, datagram))
            .start();
        let mut sender = start(&mut self.sender(options, relay.address()))?;
        let received = Arc::new(Mutex::new(Received::default()));
        let (output, counting) = (receiver.0.stdout.take().ok_or("no output")?, Arc::clone(&received));
        let reader = std::thread::spawn(move || {
            packets::read(output, |note| {
                if let Ok(mut received) = counting.lock() {
                    note(&mut received);
                }
            });
        });

        let mut feed = Feed::new(sender.0.stdin.take().ok_or("no input")?);
        let connected = || received.lock().is_ok_and(|received| received.packets > 0);
        let fed = self.feed(&mut feed, (&relay, &wire), options, connected);
        let broken = fed.is_err() || sender.0.try_wait().is_ok_and(|status| status.is_some());
        let relay_late = relay.lateness(0.001);
        drop((feed.input.take(), sender, receiver, relay));
        let _ = reader.join();
        let Ok(counted) = fed.or_else(|()| feed.counted.clone().ok_or(())) else {
            return Err("they did not connect".to_owned());
        };
        let received = received.lock().map_err(|error| error.to_string())?;
        Ok(Outcome {
            fed: counted.end - counted.start,
            undelivered: received.missing(counted),
            duplicates: received.duplicates,
            out_of_order: received.out_of_order,
            damaged: received.damaged,
            overhead: wire.overhead(),
            broken,
            relay_late,
            feed_late: feed.late,
        })
    }

    /// Feeds packets to the sender from connecting to the end of the run. Returns the numbers of the counted
    /// packets; an error if the sides do not connect or the sender has ended.
    fn feed(
        self,
        feed: &mut Feed,
        (relay, wire): (&Relay, &Wire),
        options: &Options,
        connected: impl Fn() -> bool,
    ) -> Result<std::ops::Range<u64>, ()> {
        let began = Instant::now();
        while !connected() {
            if began.elapsed() > CONNECTED_WITHIN {
                return Err(());
            }
            feed.packets(Duration::from_millis(20))?;
        }
        Way::BOTH.into_iter().for_each(|way| relay.change(way, |link| self.cell.spoil(link)));
        feed.packets(LEAD_IN)?;
        wire.reset();
        feed.late = Duration::ZERO;
        let blackout = self.cell.blackout;
        let window = if blackout.is_zero() { options.window } else { options.window.min(DARK_WINDOW) };
        let first = feed.next;
        feed.counted = Some(first..first + count(window));
        if blackout.is_zero() {
            feed.packets(window)?;
        } else {
            feed.packets(DARK_AFTER)?;
            relay.blackout(blackout);
            feed.packets(window.saturating_sub(DARK_AFTER))?;
        }
        let counted = first..feed.next;
        feed.packets(self.cell.latency() + TAIL)?;
        Ok(counted)
    }

    fn sender(self, options: &Options, to: SocketAddr) -> Command {
        let latency = self.cell.latency().as_millis();
        match self.pair.sender {
            Side::Ours => ours(options, "send", "caller", to, latency),
            Side::Libsrt => {
                let mut command = libsrt(options);
                command.arg("file://con").arg(libsrt_url(options, "caller", to, latency));
                command
            }
        }
    }

    fn receiver(self, options: &Options, at: SocketAddr) -> Command {
        let latency = self.cell.latency().as_millis();
        match self.pair.receiver {
            Side::Ours => ours(options, "recv", "listener", at, latency),
            Side::Libsrt => {
                let mut command = libsrt(options);
                command.arg(libsrt_url(options, "listener", at, latency)).arg("file://con");
                command
            }
        }
    }
}

/// The input of a sender, fed at an even pace.
struct Feed {
    input: Option<std::process::ChildStdin>,
    next: u64,
    due: Instant,
    late: Duration,
    counted: Option<std::ops::Range<u64>>,
}

impl Feed {
    fn new(input: std::process::ChildStdin) -> Self {
        Self { input: Some(input), next: 0, due: Instant::now(), late: Duration::ZERO, counted: None }
    }

    /// Feeds packets for this time. Fails if the sender has ended.
    fn packets(&mut self, time: Duration) -> Result<(), ()> {
        for _ in 0..count(time) {
            std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
            let input = self.input.as_mut().ok_or(())?;
            input.write_all(&packets::packet(self.next)).map_err(drop)?;
            self.next += 1;
            self.late = self.late.max(self.due.elapsed());
            self.due += Duration::from_secs(1) / PACKETS_PER_SECOND;
        }
        Ok(())
    }
}

fn count(time: Duration) -> u64 {
    let packets = time.as_millis() * u128::from(PACKETS_PER_SECOND) / 1000;
    u64::try_from(packets).unwrap_or(u64::MAX)
}

fn start(command: &mut Command) -> Result<Process, String> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    piped.spawn().map(Process).map_err(|error| format!("{}: {error}", command.get_program().display()))
}

fn ours(options: &Options, what: &str, mode: &str, address: SocketAddr, latency: u128) -> Command {
    let mut command = Command::new(&options.ours);
    command.args([what, "--mode", mode, &address.to_string(), "--latency", &latency.to_string()]);
    if let Some(passphrase) = &options.passphrase {
        command.args(["--passphrase", passphrase, "--pbkeylen", "16"]);
    }
    command
}

fn libsrt(options: &Options) -> Command {
    let mut command = Command::new(&options.libsrt);
    command.args(["-q", "-a:no", "-loglevel:fatal", &format!("-chunk:{PACKET}")]);
    command
}

fn libsrt_url(options: &Options, mode: &str, address: SocketAddr, latency: u128) -> String {
    let secret = options.passphrase.as_ref();
    let secret = secret.map_or_else(String::new, |phrase| format!("&passphrase={phrase}&pbkeylen=16"));
    format!("srt://{address}?mode={mode}&latency={latency}{secret}")
}

/// Finds a port that was free a moment ago, because libsrt cannot bind any free port and report which.
fn free_port() -> Result<SocketAddr, String> {
    let socket = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    socket.map_err(|error| error.to_string())
}
