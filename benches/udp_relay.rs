//! Relays datagrams between any client and a UDP port over a lossy network simulated from a seed. For browsers: a page can point their
//! descriptions at the relay. `docs/benchmarks.md` describes how to use the relay.
//!
//! Prints its address, then reads commands from standard input, a line each, until the input ends: `loss 0.35`, `rtt 40`, `rate 1250000`
//! (bits per second, 0: any), `dark 3` (seconds), `stats`.

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
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;
use relay::{Relay, Way};

const USAGE: &str = "\
udp_relay: a network that loses, in front of a UDP port

  cargo bench --bench udp_relay -- --to ADDRESS [--seed N] [--loss SHARE] [--rtt MS] [--rate BITS]

  --to ADDRESS   the port behind it, 127.0.0.1:50000
  --seed N       the n-th datagram has the same fate in every run of one seed (1)
  --loss SHARE   of the datagrams of each direction (0)
  --rtt MS       round trip (0)
  --rate BITS    per second, towards the client, with half a second of queue (0: any)

Commands on standard input: loss SHARE, rtt MS, rate BITS, dark SECONDS, stats
";

#[derive(Debug)]
struct Options {
    to: SocketAddr,
    seed: u64,
    loss: f64,
    rtt: f64,
    rate: u64,
}

fn main() -> ExitCode {
    // `cargo test` runs benches too, without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("nothing measured: run it with `cargo bench --bench udp_relay`");
        return ExitCode::SUCCESS;
    }
    match options() {
        Ok(Some(options)) => {
            run(&options);
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

fn options() -> Result<Option<Options>, lexopt::Error> {
    let (mut to, mut seed, mut loss, mut rtt, mut rate) = (None, 1, 0.0, 0.0, 0);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("to") => to = Some(arguments.value()?.parse()?),
            Long("seed") => seed = arguments.value()?.parse()?,
            Long("loss") => loss = arguments.value()?.parse()?,
            Long("rtt") => rtt = arguments.value()?.parse()?,
            Long("rate") => rate = arguments.value()?.parse()?,
            Long("bench") => {}
            Short('h') | Long("help") => return Ok(None),
            other @ (Short(_) | Long(_) | Value(_)) => return Err(other.unexpected()),
        }
    }
    let to = to.ok_or("--to is needed")?;
    Ok(Some(Options { to, seed, loss, rtt, rate }))
}

fn half(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.max(0.0) / 2000.0)
}

const fn any(rate: u64) -> u64 {
    if rate == 0 { u64::MAX } else { rate }
}

fn run(options: &Options) {
    let (loss, latency, rate) = (options.loss, half(options.rtt), any(options.rate));
    let relay = Relay::to(options.to)
        .seed(options.seed)
        .link(Way::There, move |link| link.loss(loss).latency(latency))
        .link(Way::Back, move |link| link.loss(loss).latency(latency).rate(rate))
        .start();
    println!("{}", relay.address());
    for line in stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        let (command, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let number: f64 = value.parse().unwrap_or(0.0);
        match command {
            "loss" => Way::BOTH.into_iter().for_each(|way| relay.change(way, |link| link.loss(number))),
            "rtt" => {
                Way::BOTH.into_iter().for_each(|way| relay.change(way, |link| link.latency(half(number))))
            }
            "rate" => relay.change(Way::Back, |link| link.rate(any(value.parse().unwrap_or(0)))),
            "dark" => relay.blackout(Duration::from_secs_f64(number)),
            "stats" => println!("there {:?}, back {:?}", relay.stats(Way::There), relay.stats(Way::Back)),
            _ => eprintln!("udp_relay: no command: {line}"),
        }
    }
}
