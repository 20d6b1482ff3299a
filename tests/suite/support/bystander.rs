//! The oracle that runs during each attack: a stream with a viewer, and a client of the API. The attack must not affect
//! them, and afterwards the server must hold nothing more.
//!
//! The same run sets the baseline: before the attack, the oracle measures the server while it has nothing else to do.
//! Delays by the machine, in which threads could run but got no processor, do not count against the server.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Player, Publisher, Server, ms, secs, wait_for};

/// Maximum number of attempts of one API call.
const TRIES: usize = 10;
/// Number of units that the viewer receives before the attack: about a second and a half.
const CALM_UNITS: u64 = 110;
/// Factor by which a gap or an answer time may exceed that measured before the attack.
const FACTOR: u32 = 3;
/// Minimum baseline of a gap or an answer: a machine on which many servers are tested in parallel may take this long by
/// itself.
const CALM_MIN: Duration = ms(200);
/// Interval between two measurements of the machine's delays, and the number of measurements (`WINDOW`) that are added
/// up.
const LOOK: Duration = ms(50);
const WINDOW: usize = 20;
/// Memory that the server may hold after the attack in addition to 102 % of the amount before it, because allocators
/// keep some memory for later.
const MEMORY_KEPT_KB: u64 = 12 * 1024;

/// A live stream with one viewer, and a client of the API.
#[derive(Debug)]
pub struct Bystander {
    publisher: Publisher,
    player: Player,
    caller: Caller,
    machine: Machine,
    held: Held,
    calm: Seen,
}

/// Resources of a server.
#[derive(Debug, Clone, Copy)]
struct Held {
    open_files: usize,
    threads: u64,
    memory_kb: u64,
}

impl Held {
    fn of(server: &Server) -> Self {
        Self { open_files: server.open_files(), threads: server.threads(), memory_kb: server.rss_kb() }
    }

    const fn memory_kb_max(self) -> u64 {
        self.memory_kb + self.memory_kb / 50 + MEMORY_KEPT_KB
    }
}

/// Measurements of the oracle.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The longest time between two units of the viewer.
    gap: Duration,
    /// The 99th percentile of the API's answer times.
    answer: Duration,
}

impl Seen {
    /// Checks the measurements against those before the attack (`calm`). `held_up` is the delay that the machine
    /// caused.
    fn check(self, calm: Self, held_up: Duration) {
        for (what, seen, calm) in
            [("gap", self.gap, calm.gap), ("answer of the API", self.answer, calm.answer)]
        {
            let bound = calm.max(CALM_MIN) * FACTOR + held_up;
            assert!(
                seen <= bound,
                "a {what} of {seen:?}, and of {calm:?} before the attack; the machine held it up for {held_up:?}"
            );
        }
    }
}

impl Bystander {
    /// Starts the bystander, and measures the server's resources and speed without the attack.
    pub fn start(server: &Server) -> Self {
        let publisher = Publisher::start(server.rtmp, "live", "bystander");
        let player = Player::start(server.rtmp, "live", "bystander");
        wait_for("the bystander's video", secs(10), || player.units() > 30);
        player.take_gap();
        let mut caller = Caller::start(server.http);
        let before = player.units();
        wait_for("a calm while", secs(20), || player.units() > before + CALM_UNITS);
        let calm = Seen { gap: player.take_gap(), answer: caller.take() };
        let machine = Machine::watch(server);
        Self { publisher, player, caller, machine, held: Held::of(server), calm }
    }

    /// Allows the attack to leave this much memory in use, for records and the store's cache of them.
    #[must_use]
    pub fn leaving(mut self, memory_kb: u64) -> Self {
        self.held.memory_kb += memory_kb;
        self
    }

    /// Ends the bystander. Checks that no unit was lost or late, and that the server released what the attack
    /// took.
    pub fn finish(mut self, server: &mut Server) {
        let before = self.player.units();
        wait_for("the bystander to go on", secs(10), || self.player.units() > before + 30);
        assert!(server.is_alive(), "the server died");
        let seen = Seen { gap: self.player.take_gap(), answer: self.caller.take() };
        println!("bystander: {:?} before and {seen:?} during the attack, of {:?}", self.calm, self.held);
        self.caller.end();
        seen.check(self.calm, self.machine.held_up());
        server.wait_for_rest(self.held.open_files, self.held.threads);
        wait_for("memory to be given back", secs(90), || server.rss_kb() <= self.held.memory_kb_max());
        let verifier = self.player.finish();
        assert!(verifier.is_clean(), "the bystander lost: {verifier:?}");
        self.publisher.stop();
        assert!(!server.log().contains("panicked"), "a panic in the log");
    }
}

/// A thread that calls the API for the bystander's broadcast, again and again.
#[derive(Debug)]
struct Caller {
    stop: Arc<AtomicBool>,
    times: Arc<Mutex<Vec<Duration>>>,
    thread: Option<JoinHandle<()>>,
}

impl Caller {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let times: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (stopped, taken) = (Arc::clone(&stop), Arc::clone(&times));
        let thread = std::thread::spawn(move || {
            let mut connection = None;
            while !stopped.load(Ordering::SeqCst) {
                let began = Instant::now();
                // A closed connection is replaced by a new one, as clients do. The server may close a connection of an
                // unknown client to make room for others, and may delay new connections.
                let tries = (0..TRIES).map(|n| {
                    std::thread::sleep(ms(if n < 2 { 0 } else { 500 }));
                    ask(&mut connection, address)
                });
                let answer = tries.into_iter().find(Result::is_ok).unwrap_or_else(|| ask(&mut None, address));
                assert_eq!(answer.ok().as_deref(), Some("HTTP/1.1 200 OK"), "the bystander's call");
                taken.lock().unwrap().push(began.elapsed());
                std::thread::sleep(ms(10));
            }
        });
        Self { stop, times, thread: Some(thread) }
    }

    /// Returns the 99th percentile of the answer times since the last call.
    fn take(&mut self) -> Duration {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.thread.take().unwrap().join().unwrap();
        }
        let mut times = std::mem::take(&mut *self.times.lock().unwrap());
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().unwrap_or_default()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.end();
    }
}

/// Asks for the bystander's broadcast over a persistent connection; returns the first line of the answer.
fn ask(connection: &mut Option<BufReader<TcpStream>>, address: SocketAddr) -> io::Result<String> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => BufReader::new(TcpStream::connect_timeout(&address, secs(5))?),
    };
    stream.get_ref().set_read_timeout(Some(secs(10)))?;
    let request = "GET /live/rest/v2/broadcasts/bystander HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.get_mut().write_all(request.as_bytes())?;
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim_end().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    stream.read_exact(&mut vec![0; length])?;
    *connection = Some(stream);
    Ok(head.swap_remove(0))
}

/// A thread that measures delays by the machine: the workers' wait for a processor, and its own oversleeping.
#[derive(Debug)]
struct Machine {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Machine {
    fn watch(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, pid) = (Arc::clone(&stop), server.pid());
        let thread = std::thread::spawn(move || {
            let mut waits = VecDeque::from([Duration::ZERO]);
            let (mut overslept, mut worst, mut before) =
                (Duration::ZERO, Duration::ZERO, workers_waited(pid));
            while !stopped.load(Ordering::SeqCst) {
                let began = Instant::now();
                std::thread::sleep(LOOK);
                overslept = overslept.max(began.elapsed().saturating_sub(LOOK));
                let waited = workers_waited(pid);
                waits.push_back(waited.saturating_sub(before));
                before = waited;
                worst = worst.max(waits.iter().sum());
                if waits.len() > WINDOW {
                    waits.pop_front();
                }
            }
            // The oversleeping counts twice, because the publisher and the viewer sleep as well.
            worst + overslept * 2
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the thread; returns the longest delay by the machine within about a second.
    fn held_up(&mut self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.held_up();
    }
}

/// Time that the workers of a server have waited for a processor so far (`schedstat`).
fn workers_waited(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = |name: &str| std::fs::read_to_string(task.path().join(name)).ok();
        let is_worker = text("comm")?.starts_with("worker");
        is_worker.then_some(text("schedstat")?.split_whitespace().nth(1)?.parse::<u64>().ok()?)
    });
    Duration::from_nanos(nanos.sum())
}
