//! The floor of a machine: the minimum cost of sending frames to a number of sockets. The cost of a server is
//! reported as a multiple of the floor, because machines differ more than servers do.

use std::fmt::Write as _;
use std::time::Duration;

use lexopt::prelude::*;
use serde_json::{Value, json};

use super::Histogram;
use super::options::{kilobits, seconds, value};
use super::report::{distribution, millis};

/// Frames per second.
pub const FRAMES: u32 = 30;

/// Options of a measurement of the floor; `docs/bench.md` has the meanings and the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorOptions {
    /// Number of sockets to write to.
    pub count: usize,
    /// Measured time for each kind of reader.
    pub duration: Duration,
    /// Bit rate of each socket.
    pub bits_per_second: u64,
    /// True to print JSON instead of text.
    pub json: bool,
}

impl FloorOptions {
    /// Parses the arguments after `bench self`. `None` if help is requested.
    pub(super) fn parse(parser: &mut lexopt::Parser) -> Result<Option<Self>, String> {
        let mut options =
            Self { count: 300, duration: Duration::from_secs(5), bits_per_second: 2_500_000, json: false };
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            match argument {
                Long("count") => options.count = value(parser)?,
                Long("duration") => options.duration = seconds(parser)?,
                Long("bitrate") => options.bits_per_second = kilobits(parser)?,
                Long("json") => options.json = true,
                Long("help") | Short('h') => return Ok(None),
                Long(_) | Short(_) | Value(_) => return Err(argument.unexpected().to_string()),
            }
        }
        if options.count == 0 || options.duration.is_zero() || options.frame_bytes() == 0 {
            return Err("--count, --duration and --bitrate must be above 0".to_owned());
        }
        Ok(Some(options))
    }

    /// Returns the bytes of one write.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        usize::try_from(self.bits_per_second / 8 / u64::from(FRAMES)).unwrap_or(0)
    }
}

/// The way in which the receiver reads. It affects the sender's cost: on loopback, the sender does the receiver's work
/// in the kernel, and must wake a receiver that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Polls constantly, on its own core.
    Spins,
    /// Sleeps until data arrives.
    Sleeps,
}

impl Reader {
    const fn name(self) -> &'static str {
        match self {
            Self::Spins => "spinning",
            Self::Sleeps => "sleeping",
        }
    }
}

/// Figures for one kind of reader.
#[derive(Debug)]
pub struct Floor {
    /// Kind of reader.
    pub reader: Reader,
    /// CPU time of the sending thread.
    pub cpu: Duration,
    /// Bytes sent.
    pub bytes: u64,
    /// Times by which rounds of writes began too late.
    pub behind: Histogram,
}

impl Floor {
    fn cost(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.cpu.as_secs_f64() / (self.bytes as f64 / 1e9))
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct FloorReport {
    /// Options of the run.
    pub options: FloorOptions,
    /// Processor and kernel.
    pub machine: String,
    /// Figures for each kind of reader; with only one core, none for the spinning reader.
    pub floors: Vec<Floor>,
}

impl FloorReport {
    /// Returns the figures as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "tool": "millstream bench",
            "version": env!("CARGO_PKG_VERSION"),
            "role": "self",
            "machine": self.machine,
            "count": self.options.count,
            "frame_bytes": self.options.frame_bytes(),
            "floors": self.floors.iter().map(|floor| json!({
                "reader": floor.reader.name(),
                "bytes": floor.bytes,
                "cpu_s": floor.cpu.as_secs_f64(),
                "cpu_s_per_gb": floor.cost(),
                "behind_ms": distribution(&floor.behind),
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns the figures as text.
    #[must_use]
    pub fn text(&self) -> String {
        let (count, bytes) = (self.options.count, self.options.frame_bytes());
        let mut text = format!("millstream bench self\nmachine      {}\n", self.machine);
        let _ =
            writeln!(text, "sent         {bytes} bytes {FRAMES} times a second to each of {count} sockets");
        for floor in &self.floors {
            let cost = floor.cost().map_or_else(|| "-".to_owned(), |cost| format!("{cost:.3}"));
            let behind = millis(floor.behind.quantile(990));
            let _ = writeln!(
                text,
                "{:<13}{cost} CPU seconds per GB; behind p99 {behind:.2} ms",
                floor.reader.name()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<FloorOptions>, String> {
        FloorOptions::parse(&mut lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn a_frame_has_its_share_of_the_bit_rate() {
        let options = parsed("").unwrap().unwrap();
        assert_eq!((options.frame_bytes(), options.count), (10_416, 300));
        let options = parsed("--bitrate 240 --count 7 --duration 2 --json").unwrap().unwrap();
        assert_eq!((options.frame_bytes(), options.count, options.json), (1000, 7, true));
        assert_eq!(options.duration, Duration::from_secs(2));
        assert_eq!(parsed("--count 3 -h").unwrap(), None);
        for line in ["--count 0", "--duration 0", "--bitrate 0", "--url rtmp://h/a/b", "more"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_member_is_documented_and_the_cost_is_by_the_gigabyte() {
        let mut behind = Histogram::new();
        behind.record(1_000_000);
        let floor =
            Floor { reader: Reader::Spins, cpu: Duration::from_secs(1), bytes: 2_000_000_000, behind };
        let silent =
            Floor { reader: Reader::Sleeps, cpu: Duration::ZERO, bytes: 0, behind: Histogram::new() };
        let options = parsed("").unwrap().unwrap();
        let report = FloorReport { options, machine: "m".to_owned(), floors: vec![floor, silent] };
        let json = report.json();
        assert_eq!(json["floors"][0]["cpu_s_per_gb"], 0.5);
        assert!(json["floors"][1]["cpu_s_per_gb"].is_null() && json["floors"][1]["behind_ms"].is_null());
        let docs = include_str!("../../docs/bench.md");
        let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for name in members(&json).into_iter().chain(members(&json["floors"][0])) {
            let ways = [format!("`{name}`"), format!("`floors[].{name}`"), format!("`.{name}`")];
            assert!(name == "floors" || ways.iter().any(|way| docs.contains(way)), "{name}");
        }
        assert!(report.text().contains("spinning     0.500 CPU seconds per GB"), "{}", report.text());
    }
}
