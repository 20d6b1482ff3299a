//! Relays datagrams between any client and a UDP port over a lossy network simulated from a seed. For browsers: a
//! page can change their session descriptions to use the relay. `docs/benchmarks.md` describes how to use the
//! relay.
//!
//! Prints its address, then reads commands from standard input, a line each, until the input ends: `loss 0.35`,
//! `rtt 40`, `rate 1250000` (bits per second, 0: any), `cut 720000 8` (bits per second, seconds), `dark 3`
//! (seconds), `stats`, which is answered by a line of JSON.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "a program: figures for people, and nothing that others link"
)]

#[path = "../tests/suite/support/relay.rs"]
#[allow(
    dead_code,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "shared with the tests, which use all of it and stop at the unexpected"
)]
mod relay;

use std::io::{BufRead, stdin};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lexopt::prelude::*;
use netsim::{Link, LinkStats};
use relay::{Relay, Way};
use serde_json::{Value as Json, json};

const USAGE: &str = "\
udp_relay: a network that loses, in front of a UDP port

  cargo bench --bench udp_relay -- --to ADDRESS [--seed N] [--loss SHARE] [--rtt MS] [--jitter MS] [--mtu BYTES]
      [--rate BITS] [--queue BYTES] [--narrow back|there] [--listen ADDRESS]

  --to ADDRESS   the port behind it, 127.0.0.1:50000
  --seed N       the n-th datagram has the same fate in every run of one seed (1)
  --loss SHARE   of the datagrams of each direction (0)
  --rtt MS       round trip (0)
  --jitter MS    most that a datagram of either direction is delayed more; they overtake each other (0)
  --mtu BYTES    of an IP packet, with its 28 bytes of headers; longer ones are lost (0: any)
  --rate BITS    per second, in one direction (0: any)
  --queue BYTES  that wait for the rate (0: half a second of it)
  --narrow WAY   the direction of rate and queue: back to the client, or there, to the port (back)
  --listen ADDRESS  of this machine, for clients that do not use loopback (127.0.0.1)

Commands on standard input: loss SHARE, rtt MS, rate BITS, cut BITS SECONDS, dark SECONDS, stats
";

/// Size of the IPv4 and UDP headers.
const HEADERS: usize = 28;

#[derive(Debug, Clone)]
struct Options {
    to: Option<SocketAddr>,
    seed: u64,
    loss: f64,
    rtt: f64,
    jitter: f64,
    mtu: usize,
    rate: u64,
    queue: usize,
    narrow: Way,
    listen: Option<IpAddr>,
}

fn main() -> ExitCode {
    // `cargo test` also runs benches, but without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("nothing measured: run it with `cargo bench --bench udp_relay`");
        return ExitCode::SUCCESS;
    }
    match options() {
        Ok(Some((to, options))) => {
            run(to, &options);
            ExitCode::SUCCESS
        }
        Ok(None) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("udp_relay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Option<(SocketAddr, Options)>, lexopt::Error> {
    let mut options = Options {
        to: None,
        seed: 1,
        loss: 0.0,
        rtt: 0.0,
        jitter: 0.0,
        mtu: 0,
        rate: 0,
        queue: 0,
        narrow: Way::Back,
        listen: None,
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("to") => options.to = Some(arguments.value()?.parse()?),
            Long("seed") => options.seed = arguments.value()?.parse()?,
            Long("loss") => options.loss = arguments.value()?.parse()?,
            Long("rtt") => options.rtt = arguments.value()?.parse()?,
            Long("jitter") => options.jitter = arguments.value()?.parse()?,
            Long("mtu") => options.mtu = arguments.value()?.parse()?,
            Long("rate") => options.rate = arguments.value()?.parse()?,
            Long("queue") => options.queue = arguments.value()?.parse()?,
            Long("narrow") => {
                options.narrow = match arguments.value()?.to_str() {
                    Some("back") => Way::Back,
                    Some("there") => Way::There,
                    _ => return Err("--narrow is back or there".into()),
                }
            }
            Long("listen") => options.listen = Some(arguments.value()?.parse()?),
            Long("bench") => {}
            Short('h') | Long("help") => return Ok(None),
            other @ (Short(_) | Long(_) | Value(_)) => return Err(other.unexpected()),
        }
    }
    Ok(Some((options.to.ok_or("--to is needed")?, options)))
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.max(0.0) / 1000.0)
}

const fn any(rate: u64) -> u64 {
    if rate == 0 { u64::MAX } else { rate }
}

/// Sets loss, delay and MTU, which are the same in both directions.
fn path(link: Link, options: &Options) -> Link {
    let link = link.loss(options.loss).latency(ms(options.rtt / 2.0));
    let link = if options.jitter > 0.0 { link.jitter(ms(options.jitter)).overtaking() } else { link };
    if options.mtu > 0 { link.mtu(options.mtu.saturating_sub(HEADERS)) } else { link }
}

fn narrow(link: Link, options: &Options) -> Link {
    let link = link.rate(any(options.rate));
    if options.queue > 0 { link.queue_bytes(options.queue) } else { link }
}

fn run(to: SocketAddr, options: &Options) {
    let narrow_way = options.narrow;
    let link = |way: Way| {
        let options = options.clone();
        move |link| {
            if way == options.narrow { narrow(path(link, &options), &options) } else { path(link, &options) }
        }
    };
    let sent: Arc<Sent> = Arc::default();
    let tap = Arc::clone(&sent);
    let relay = Relay::to(to);
    let relay = if let Some(address) = options.listen { relay.listen(address) } else { relay };
    let relay = relay
        .seed(options.seed)
        .link(Way::There, link(Way::There))
        .link(Way::Back, link(Way::Back))
        .tap(move |way, datagram| {
            tap.of(way).fetch_add(u64::try_from(datagram.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        })
        .start();
    println!("{}", relay.address());
    for line in stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let bits = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.first().copied().unwrap_or_default() {
            "loss" => Way::BOTH.into_iter().for_each(|way| relay.change(way, |link| link.loss(number(1)))),
            "rtt" => Way::BOTH
                .into_iter()
                .for_each(|way| relay.change(way, |link| link.latency(ms(number(1) / 2.0)))),
            "rate" => relay.change(narrow_way, |link| link.rate(any(bits))),
            "cut" => {
                let from = Instant::now();
                let to = from + Duration::from_secs_f64(number(2).max(0.0));
                relay.change(narrow_way, |link| link.rate_between(from, to, any(bits)));
            }
            "dark" => relay.blackout(Duration::from_secs_f64(number(1).max(0.0))),
            "stats" => println!("{}", stats(&relay, &sent)),
            _ => eprintln!("udp_relay: no command: {line}"),
        }
    }
}

/// Bytes that arrived at the relay, in each direction.
#[derive(Debug, Default)]
struct Sent {
    there: AtomicU64,
    back: AtomicU64,
}

impl Sent {
    const fn of(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        }
    }
}

/// Returns the counters of both directions. `bytes` counts the datagrams that arrived at the relay, `offered`
/// those that reached the bottleneck, and `dropped` those for which the bottleneck's queue had no room.
fn stats(relay: &Relay, sent: &Sent) -> Json {
    let of = |way: Way| {
        let LinkStats { sent: datagrams, delivered, lost, dark, too_big, overflowed, .. } = relay.stats(way);
        let bottleneck = relay.bottleneck_bytes(way);
        json!({
            "bytes": sent.of(way).load(Ordering::Relaxed),
            "offered": bottleneck.offered,
            "dropped": bottleneck.overflowed,
            "datagrams": datagrams,
            "delivered": delivered,
            "lost": lost,
            "dark": dark,
            "too_big": too_big,
            "overflowed": overflowed,
        })
    };
    let late_us = u64::try_from(relay.lateness(0.01).as_micros()).unwrap_or(u64::MAX);
    json!({ "there": of(Way::There), "back": of(Way::Back), "late_us": late_us })
}
