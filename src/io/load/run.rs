//! A complete run of the load generator: threads that connect, a measured period, and a report.
//!
//! 1. Each thread opens its share of the connections at the given rate, and reports when all of them are ready or have
//!    failed.
//! 2. After the warm-up, the measured period begins for all threads. The figures are cleared, and the counters of the
//!    processes are read.
//! 3. At the end of the period, or when `stop` is set, the figures are kept, the peers close their connections, and the
//!    remaining counters are read.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crypto::Seed;

use super::{Destination, Load, process};
use crate::bench::{
    Clip, Connections, Options, Participant, Peer, Player, PlayerOptions, Publisher, PublisherOptions,
    Report, Role, SAMPLE, Score, ServerFigures, Tally, Target, Turns,
};

/// Maximum time for which a thread sleeps before it checks the phase.
const PHASE_PERIOD: Duration = Duration::from_millis(20);
/// The interval of progress lines.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// Time in which connections may close as their protocols require.
const GOODBYE: Duration = Duration::from_millis(300);

const CONNECTING: u8 = 0;
const MEASURING: u8 = 1;
const CLOSING: u8 = 2;

/// State shared by the threads and the main thread.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// Number of connections that were opened.
    opened: AtomicUsize,
    /// Number of threads whose publishers in a room are all ready or have ended.
    published: AtomicUsize,
    /// Number of threads whose connections are all ready or have ended.
    settled: AtomicUsize,
}

/// The results of a thread.
#[derive(Debug)]
struct Share {
    tally: Tally,
    connections: Connections,
    scores: Vec<Score>,
}

/// Runs the load until its time is over or `stop` is set.
///
/// # Errors
/// The reason, in one line, why nothing was measured.
pub fn run<'a>(options: &'a Options, stop: &AtomicBool) -> Result<Report<'a>, String> {
    let _ = super::super::sys::raise_open_files();
    let target = options.target(0)?;
    let to = Destination::resolve(&target, options.insecure);
    let to = Arc::new(to.map_err(|error| format!("{}: {error}", target.host()))?);
    let clip = clip(options)?;
    let every = options.room.and_then(|room| room.turn);
    let turns = every.map(|every| Turns::new(Instant::now(), every, options.count));
    let shared = Shared::default();
    thread::scope(|scope| {
        let (shared, to, clip) = (&shared, &to, &clip);
        let threads: Vec<_> = (0..options.threads)
            .map(|index| scope.spawn(move || Worker { options, shared, to, clip, turns, index }.run()))
            .collect();
        let failed = || threads.iter().any(thread::ScopedJoinHandle::is_finished);
        let watch = Watch { options, shared, stop, failed: &failed };
        let (window, cpu, server) = watch.run();
        let mut report = Report {
            options,
            window,
            connections: Connections::default(),
            tally: Tally::new(options.late),
            scores: Vec::new(),
            cpu,
            server,
        };
        for thread in threads {
            let share = thread.join().map_err(|_| "a thread of the load died".to_owned())?;
            let share = share.map_err(|error| error.to_string())?;
            report.tally.merge(&share.tally);
            report.connections.merge(share.connections);
            report.scores.extend(share.scores);
        }
        Ok(report)
    })
}

fn clip(options: &Options) -> Result<Arc<Clip>, String> {
    let clip = match &options.clip.file {
        Some(path) => {
            let file = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Clip::read(&file).map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => Clip::read(SAMPLE).map_err(|error| error.to_string())?,
    };
    // WebRTC carries no AAC, and a room needs audio to determine the speaker.
    let clip = if options.room.is_some() && options.clip.file.is_none() { clip.with_opus() } else { clip };
    match options.clip.bits_per_second {
        Some(rate) => clip.padded(rate).map_err(|error| error.to_string()),
        None => Ok(clip),
    }
    .map(Arc::new)
}

/// State of the main thread, which controls the phases.
struct Watch<'a> {
    options: &'a Options,
    shared: &'a Shared,
    stop: &'a AtomicBool,
    /// Returns true if a thread has ended early.
    failed: &'a dyn Fn() -> bool,
}

impl Watch<'_> {
    /// Runs the phases. Returns the length of the measured period, and the CPU time of the load generator and the
    /// figures of the server during it.
    fn run(&self) -> (Duration, Duration, Option<ServerFigures>) {
        let mut told = Instant::now();
        let rss_before_bytes = self.options.server.pid.map_or(0, process::resident);
        while self.shared.settled.load(Ordering::Acquire) < self.options.threads && !self.is_over() {
            thread::sleep(PHASE_PERIOD);
            if told.elapsed() >= PROGRESS_PERIOD {
                told = Instant::now();
                let opened = self.shared.opened.load(Ordering::Relaxed);
                tell(&format!("{opened} of {} connections opened", self.options.connections()));
            }
        }
        self.wait(self.options.warm_up);
        let own = process::usage(std::process::id()).cpu;
        let server = self.options.server.pid.map(|pid| (pid, process::usage(pid).cpu));
        self.shared.phase.store(MEASURING, Ordering::Release);
        tell(&format!("measuring for {:.1} s", self.options.duration.as_secs_f64()));
        let began = Instant::now();
        self.wait(self.options.duration);
        self.shared.phase.store(CLOSING, Ordering::Release);
        let window = began.elapsed();
        let own = process::usage(std::process::id()).cpu.saturating_sub(own);
        let server = server.map(|(pid, before)| ServerFigures {
            pid,
            cpu: process::usage(pid).cpu.saturating_sub(before),
            rss_before_bytes,
            rss_bytes: process::resident(pid),
        });
        (window, own, server)
    }

    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over()
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            thread::sleep(left.min(PHASE_PERIOD));
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || (self.failed)()
    }
}

/// The times at which the opening of connections begins.
struct Began {
    first: Instant,
    /// The time at which the opening of players of a room begins.
    players: Option<Instant>,
}

/// State of a thread of the load generator.
struct Worker<'a> {
    options: &'a Options,
    shared: &'a Shared,
    to: &'a Arc<Destination>,
    clip: &'a Arc<Clip>,
    turns: Option<Turns>,
    index: usize,
}

impl Worker<'_> {
    fn run(&self) -> io::Result<Share> {
        let mut load = Load::new(self.options.late, false)?;
        let mut connections = Connections::default();
        let mut began = Began { first: Instant::now(), players: None };
        let (mut next, mut published, mut settled, mut phase) = (self.index, false, false, CONNECTING);
        while phase != CLOSING {
            let now = Instant::now();
            let is_due = |next| self.opening(&began, next).is_some_and(|at| at <= now);
            while next < self.options.connections() && is_due(next) && phase == CONNECTING {
                connections.requested += 1;
                self.shared.opened.fetch_add(1, Ordering::Relaxed);
                let opened = self.options.target(next).and_then(|target| {
                    let peer = self.peer(next, target);
                    load.open(self.to, peer, next).map_err(|error| error.to_string())
                });
                if let Err(error) = opened {
                    connections.ended(false, &error);
                }
                next += self.options.threads;
            }
            let is_idle = load.unsettled() == 0;
            if next >= self.options.count && is_idle && !published {
                published = true;
                self.shared.published.fetch_add(1, Ordering::Release);
            }
            if began.players.is_none()
                && self.shared.published.load(Ordering::Acquire) == self.options.threads
            {
                began.players = Some(Instant::now());
            }
            let is_open = next >= self.options.connections();
            let opening = if is_open { None } else { self.opening(&began, next) };
            if is_open && is_idle && !settled {
                settled = true;
                self.shared.settled.fetch_add(1, Ordering::Release);
            }
            let limit = Instant::now() + PHASE_PERIOD;
            load.turn(opening.map_or(limit, |at| at.min(limit)))?;
            let now_phase = self.shared.phase.load(Ordering::Acquire);
            if phase == CONNECTING && now_phase != CONNECTING {
                load.clear();
            }
            phase = now_phase;
        }
        // Clients that were never opened count as failed.
        let share = self.options.connections().saturating_sub(self.index).div_ceil(self.options.threads);
        (connections.requested..share).for_each(|_| connections.ended(false, "the run was ended"));
        connections.requested = share;
        let share = self.share(&load, connections);
        load.close();
        load.run_for(GOODBYE)?;
        Ok(share)
    }

    /// Returns the time at which a connection must be opened. `None` for a player of a room while some of the room's
    /// publishers are not ready.
    fn opening(&self, began: &Began, connection: usize) -> Option<Instant> {
        let after = |number: usize| Duration::from_secs_f64(number as f64 / self.options.rate);
        match connection.checked_sub(self.options.count) {
            Some(player) => Some(began.players? + after(player)),
            None => Some(began.first + after(connection)),
        }
    }

    fn peer(&self, connection: usize, target: Target) -> Box<dyn Peer> {
        let (now, options) = (Load::now(), self.options);
        let number = u64::try_from(connection).unwrap_or(0);
        // The seed depends on the process and the time, so that no two runs use the same keys.
        let seed = Seed::from_number(now.unix_nanos ^ u64::from(std::process::id())).derive("peer", number);
        let timeout = options.connect_timeout;
        let (turns, number) = (self.turns, connection.checked_rem(options.count).unwrap_or(0));
        let participant = options.room.map(|_| Participant { number, turns });
        match options.role_of(connection) {
            Role::Publish => {
                // Participants of a room make key frames only on request, so there is no GOP over which their
                // starts could be spread.
                let gop = if options.room.is_some() { 0 } else { self.clip.gop_ms() };
                let gop = Duration::from_millis(gop).as_secs_f64();
                let phase = Duration::from_secs_f64(gop * connection as f64 / options.count as f64);
                let clip = Arc::clone(self.clip);
                let options = PublisherOptions { target, clip, phase, timeout };
                let publisher = Publisher::new(now, &options, seed);
                Box::new(match participant {
                    Some(participant) => publisher.in_room(participant),
                    None => publisher,
                })
            }
            Role::Play => {
                let options = PlayerOptions { target, timeout, stalled: false };
                let player = Player::new(now, &options, seed);
                Box::new(match participant {
                    Some(participant) => player.in_room(participant),
                    None => player,
                })
            }
        }
    }

    fn share(&self, load: &Load, mut connections: Connections) -> Share {
        let mut scores = Vec::new();
        for outcome in load.outcomes() {
            connections.ready += usize::from(outcome.ready);
            match outcome.gone {
                Some(why) => connections.ended(outcome.ready, why),
                None if !outcome.ready => connections.ended(false, "no answer yet"),
                None => {}
            }
            scores.push(outcome.score);
        }
        Share { tally: load.tally(self.options.role).clone(), connections, scores }
    }
}

fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "bench: {text}");
}
