//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;
use netsim::Link;

/// The text that `--help` prints.
pub const USAGE: &str = "\
srt_loss: SRT over a network that loses, this implementation and libsrt

  cargo build --release -p millstream-srt --example live
  cargo bench --bench srt_loss -- [options]

  --cells LIST     what the network does (loss5x3,loss10x4,loss10x6,dark1,dark3,dark4.5,dark6)
                   lossPxF: P % lost in both directions, latency F times the RTT of 120 ms
                   mixPxF: besides 40 ms of jitter, 2 % doubled, 5 % reordered
                   darkS: nothing else, but S seconds of blackout; latency 480 ms, one seed
  --pairs LIST     sender-receiver (ours-ours,ours-libsrt,libsrt-ours,libsrt-libsrt)
  --seeds N        runs of each loss and pair, with the seeds 1..N (5)
  --seconds S      of each run (60); with a blackout at most 20
  --parallel N     runs at once (8)
  --ours PATH      the example `live` of the crate `srt` (beside this program)
  --libsrt PATH    srt-live-transmit (srt-live-transmit)
  --passphrase P   encrypted, AES-128
  --from-start     loss from the first datagram on, so that handshakes too are lost
";

/// Round trip of every cell.
pub const RTT: Duration = Duration::from_millis(120);

/// Difference between the smallest and the largest delay.
const JITTER: Duration = Duration::from_millis(40);

/// An SRT implementation under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Ours,
    Libsrt,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Libsrt => "libsrt",
        }
    }
}

/// A sender and a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub sender: Side,
    pub receiver: Side,
}

impl Pair {
    pub const REFERENCE: Self = Self { sender: Side::Libsrt, receiver: Side::Libsrt };
    const ALL: [Self; 4] = [
        Self { sender: Side::Ours, receiver: Side::Ours },
        Self { sender: Side::Ours, receiver: Side::Libsrt },
        Self { sender: Side::Libsrt, receiver: Side::Ours },
        Self::REFERENCE,
    ];

    pub fn name(self) -> String {
        format!("{}-{}", self.sender.name(), self.receiver.name())
    }

    fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|pair| pair.name() == name);
        found.ok_or_else(|| format!("no pair is called '{name}'"))
    }
}

/// Conditions of the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Share of packets lost in both directions, from 0 to 1.
    pub loss: f64,
    /// True if packets are also delayed unevenly, duplicated and reordered.
    pub mixed: bool,
    /// Latency of SRT in round trips.
    pub latency_rtts: u32,
    /// Duration for which neither direction delivers anything; zero for no blackout.
    pub blackout: Duration,
}

impl Cell {
    pub fn latency(self) -> Duration {
        RTT * self.latency_rtts
    }

    pub fn name(self) -> String {
        let seconds = self.blackout.as_secs_f64();
        if seconds > 0.0 {
            return format!("dark{seconds}");
        }
        let kind = if self.mixed { "mix" } else { "loss" };
        format!("{kind}{}x{}", self.loss * 100.0, self.latency_rtts)
    }

    /// Adds the cell's loss, jitter, duplicates and reordering to a link that so far only has latency.
    pub fn spoil(self, link: Link) -> Link {
        let link = link.loss(self.loss);
        if !self.mixed {
            return link;
        }
        link.latency(RTT / 2 - JITTER / 2).jitter(JITTER).duplicate(0.02).reorder(0.05)
    }

    /// Returns the number of seeds to run. A blackout is not random, so one run is enough for it.
    pub const fn seeds(self, wanted: u64) -> u64 {
        if self.blackout.is_zero() { wanted } else { 1 }
    }

    fn parse(name: &str) -> Result<Self, String> {
        let unknown = || format!("no cell is called '{name}'");
        let mut cell =
            Self { loss: 0.0, mixed: name.starts_with("mix"), latency_rtts: 4, blackout: Duration::ZERO };
        if let Some(seconds) = name.strip_prefix("dark") {
            let seconds = seconds.parse().map_err(|_| unknown())?;
            cell.blackout = Duration::try_from_secs_f64(seconds).map_err(|_| unknown())?;
        } else {
            let numbers = name.strip_prefix("loss").or_else(|| name.strip_prefix("mix"));
            let (loss, rtts) = numbers.and_then(|numbers| numbers.split_once('x')).ok_or_else(unknown)?;
            cell.loss = loss.parse::<f64>().map_err(|_| unknown())? / 100.0;
            cell.latency_rtts = rtts.parse().map_err(|_| unknown())?;
        }
        Ok(cell)
    }
}

/// Settings of a benchmark.
#[derive(Debug, Clone)]
pub struct Options {
    pub cells: Vec<Cell>,
    pub pairs: Vec<Pair>,
    pub seeds: u64,
    pub window: Duration,
    pub parallel: usize,
    pub ours: PathBuf,
    pub libsrt: PathBuf,
    pub passphrase: Option<String>,
    pub from_start: bool,
}

/// Action that the command line requests.
#[derive(Debug)]
pub enum Command {
    Help,
    Run(Options),
}

/// Reads the command line.
pub fn parse() -> Result<Command, String> {
    let mut parser = lexopt::Parser::from_env();
    read(&mut parser).map_err(|error| error.to_string())
}

fn read(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut options = Options {
        cells: list("loss5x3,loss10x4,loss10x6,dark1,dark3,dark4.5,dark6", Cell::parse)?,
        pairs: Pair::ALL.to_vec(),
        seeds: 5,
        window: Duration::from_secs(60),
        parallel: 8,
        ours: example(),
        libsrt: "srt-live-transmit".into(),
        passphrase: None,
        from_start: false,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") => return Ok(Command::Help),
            Long("cells") => options.cells = list(&parser.value()?.string()?, Cell::parse)?,
            Long("pairs") => options.pairs = list(&parser.value()?.string()?, Pair::parse)?,
            Long("seeds") => options.seeds = parser.value()?.parse()?,
            Long("seconds") => options.window = Duration::from_secs(parser.value()?.parse()?),
            Long("parallel") => options.parallel = parser.value()?.parse()?,
            Long("ours") => options.ours = parser.value()?.into(),
            Long("libsrt") => options.libsrt = parser.value()?.into(),
            Long("passphrase") => options.passphrase = Some(parser.value()?.string()?),
            Long("from-start") => options.from_start = true,
            // Cargo passes this argument to a bench.
            Long("bench") => {}
            other @ (Short(_) | Long(_) | Value(_)) => return Err(other.unexpected()),
        }
    }
    Ok(Command::Run(options))
}

fn list<T>(names: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, lexopt::Error> {
    names.split(',').map(|name| parse(name).map_err(lexopt::Error::from)).collect()
}

/// Returns `target/release/examples/live`, if this program is `target/release/deps/srt_loss-...`.
fn example() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let profile = program.ancestors().nth(2).unwrap_or(&program);
    profile.join("examples/live")
}
