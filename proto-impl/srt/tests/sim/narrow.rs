//! Paths that carry less than is sent: packets wait at the sender, and few are lost in the queues of the
//! path.

use std::time::Duration;

use netsim::{Link, ms, secs};
use srt::Config;

use crate::harness::{Sim, Source, connected, seeds};

/// Number of units per second.
const UNITS: u64 = 25;
/// Number of messages in a unit.
const MESSAGES: u32 = 7;
/// Number of messages in a key frame, which comes every two seconds.
const KEY_FRAME: u32 = 8 * MESSAGES;
/// Bits of a message with its headers.
const BITS: u64 = (1316 + 16) * 8;
/// Bit rate of the stream.
const STREAM: u64 = (49 + 8) * MESSAGES as u64 * BITS / 2;
/// Length of a run in seconds.
const LENGTH: u64 = 30;
/// Time at the beginning of a run that is not evaluated.
const SETTLES: Duration = secs(4);

/// A path under test.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// Rate of the path, in percent of the stream's rate.
    percent: u64,
    queue: usize,
    one_way: u64,
    jitter: u64,
    loss: f64,
    rush: usize,
}

const fn path(percent: u64, queue: usize) -> Path {
    Path { percent, queue, one_way: 20, jitter: 0, loss: 0.0, rush: 0 }
}

#[derive(Debug)]
struct Seen {
    /// Bytes delivered, in percent of the part of the stream that the path could carry.
    used: u64,
    /// Number of datagrams dropped by the queue of the path, out of `sent`.
    dropped: u64,
    sent: u64,
    /// Longest delay of a message in addition to the latency and the delay of the path.
    late: Duration,
    /// Messages left out by the sender, in percent.
    left_out: u32,
}

fn begin(seed: u64, path: Path, config: Config) -> Sim {
    let rate = STREAM * path.percent / 100;
    let mut sim = connected(seed, config, Config::default(), |link: Link| {
        let link = link.latency(ms(path.one_way)).jitter(ms(path.jitter)).loss(path.loss);
        link.rate(rate).queue_bytes(path.queue)
    });
    let mut units = vec![MESSAGES; 2 * usize::try_from(UNITS).unwrap()];
    units[0] = KEY_FRAME;
    let messages = units.iter().sum::<u32>() * u32::try_from(LENGTH).unwrap() / 2;
    let source = Source { units, heeds: true, rush: path.rush, ..Source::new(messages, UNITS) };
    sim.a.source = Some(Source { next_at: Some(sim.clock.now()), ..source });
    sim
}

fn adapts() -> Config {
    Config { adapts: true, ..Config::default() }
}

fn see(sim: &mut Sim, path: Path) -> Seen {
    let began = sim.clock.now();
    sim.run_for(secs(LENGTH)).unwrap();
    let source = sim.a.source.as_ref().unwrap();
    let received = sim.b.received.iter().zip(&sim.b.received_at);
    let judged: Vec<_> = received.filter(|(_, at)| **at >= began + SETTLES).collect();
    let carried = u64::try_from(judged.len()).unwrap() * BITS * 100;
    let rate = STREAM * path.percent.min(100) / 100;
    let delay = sim.b.connected.unwrap().receive_latency + ms(path.one_way + path.jitter);
    let late = judged
        .iter()
        .map(|(number, at)| at.saturating_duration_since(source.sent_at[**number as usize] + delay))
        .max();
    let stats = sim.a_to_b.stats();
    Seen {
        used: carried / (rate * (LENGTH - SETTLES.as_secs())),
        dropped: stats.overflowed,
        sent: stats.sent,
        late: late.unwrap_or(Duration::MAX),
        left_out: source.left_out * 100 / source.number,
    }
}

fn run(seed: u64, path: Path) -> Seen {
    let seen = see(&mut begin(seed, path, adapts()), path);
    println!("seed {seed}: {path:?}: {seen:?}");
    seen
}

#[test]
fn n_07_what_a_narrow_path_carries_is_used_and_its_queue_drops_little() {
    for percent in [30, 45, 60, 75, 90, 120, 200] {
        for (queue, one_way) in [(20_000, 20), (64_000, 20), (500_000, 20), (64_000, 250)] {
            let path = Path { one_way, ..path(percent, queue) };
            // The time that a key frame takes on the path. It may wait for the same time before it is sent.
            let line =
                Duration::from_micros(u64::from(KEY_FRAME) * BITS * 1_000_000 / (STREAM * percent / 100));
            for seed in seeds(2) {
                let seen = run(seed, path);
                // If the queue is already full when the first acknowledgement shows it, packets sent in the
                // meantime are dropped.
                let dropped = if one_way > 100 {
                    15
                } else if queue < 64_000 {
                    10
                } else {
                    3
                };
                assert!(seen.used >= if one_way > 100 { 50 } else { 65 }, "{path:?}: {seen:?}");
                assert!(seen.dropped * 100 <= seen.sent * dropped, "{path:?}: {seen:?}");
                assert!(seen.late <= line * 2 + ms(200 + 2 * one_way), "{path:?}: {seen:?}");
            }
        }
    }
}

#[test]
fn n_07_losses_and_jitter_of_the_path_itself_slow_nothing_down() {
    for (loss, jitter) in [(0.0, 0), (0.05, 0), (0.1, 0), (0.15, 0), (0.0, 50), (0.05, 30)] {
        let path = Path { loss, jitter, ..path(400, 500_000) };
        for seed in seeds(2) {
            let seen = run(seed, path);
            // With such losses, the sender often sends less for a while, to find out whether a queue of the path
            // causes them. So more messages are left out.
            let most = if loss > 0.1 { 12 } else { 6 };
            assert!(seen.left_out <= most, "{path:?}: {seen:?}");
        }
    }
}

/// Replaces the link after ten seconds. Returns the percentage of messages that the sender leaves out between the
/// twentieth and the thirtieth second.
fn left_out_later(seed: u64, change: impl Fn(Link) -> Link) -> u32 {
    let mut sim = begin(seed, path(200, 200_000), adapts());
    sim.run_for(secs(10)).unwrap();
    let link = Link::new(&crypto::Seed::from_number(seed)).rate(STREAM * 2).queue_bytes(200_000);
    sim.a_to_b = change(link.latency(ms(20)));
    sim.run_for(secs(10)).unwrap();
    let counts = |sim: &Sim| sim.a.source.as_ref().map(|source| (source.left_out, source.number)).unwrap();
    let before = counts(&sim);
    sim.run_for(secs(10)).unwrap();
    let after = counts(&sim);
    (after.0 - before.0) * 100 / (after.1 - before.1)
}

#[test]
fn n_07_a_path_that_was_narrow_or_has_become_longer_carries_all_again() {
    for seed in seeds(2) {
        let clock = netsim::Clock::new();
        let (from, to) = (clock.now() + secs(12), clock.now() + secs(17));
        let cut = |link: Link| link.rate_between(from, to, STREAM * 3 / 10);
        for (name, left_out) in [
            ("cut to 30 %", left_out_later(seed, cut)),
            ("longer", left_out_later(seed, |link| link.latency(ms(220)))),
            ("shorter", left_out_later(seed, |link| link.latency(ms(5)))),
        ] {
            println!("seed {seed}, {name}: {left_out} % left out later");
            assert!(left_out <= 15, "{name}: {left_out} %");
        }
    }
}

#[test]
fn n_07_without_adapting_all_is_sent_whatever_the_path_carries() {
    let path = path(60, 64_000);
    let seen = see(&mut begin(1, path, Config::default()), path);
    assert!(seen.left_out == 0 && seen.dropped * 5 > seen.sent, "{seen:?}");
}

#[test]
fn n_07_a_viewer_that_is_sent_what_came_before_it_loses_that_at_most() {
    for (percent, most) in [(120, 250), (200, 250), (400, 20)] {
        let path = Path { rush: 40, ..path(percent, 64_000) };
        let mut sim = begin(1, path, adapts());
        sim.run_for(secs(2)).unwrap();
        let at_first = sim.b.skipped;
        assert!(at_first <= most, "{percent} %: {at_first}");
        sim.run_for(secs(18)).unwrap();
        assert_eq!(sim.b.skipped, at_first, "{percent} %");
    }
}
