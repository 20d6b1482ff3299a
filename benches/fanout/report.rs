//! Prints the measurements as a Markdown table with ratios, and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use millstream::bench::{Histogram, Tally};
use millstream::io::load::process;
use serde_json::{Value, json};

use super::options::{Kind, Options};
use super::peers::Peer;

/// Measurements of one server in one round.
#[derive(Debug, Clone)]
pub struct Measured {
    pub kind: Kind,
    pub round: usize,
    /// The viewers' counters in the window.
    pub played: Tally,
    /// Delays of units at the publishers, from due time to sending: the delay of the load itself.
    pub behind: Histogram,
    /// Results of the API requests, if there were any.
    pub rest: Option<Rest>,
    pub cpu: Duration,
    /// Writes of the server as far as the kernel counts them.
    pub writes: u64,
    /// Resident bytes: with publishers only, at the start of the window, at its end, and the largest seen.
    pub resident: Resident,
    pub lost: u64,
    pub gone: usize,
}

/// Results of the API requests that were made while viewers played.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    pub answers: u64,
    /// CPU time of workers and control in the window with requests.
    pub cpu: Duration,
    /// The part of `cpu` that the requests caused: the excess over a window without requests.
    pub beyond: Duration,
}

impl Rest {
    fn per_cpu_second(self) -> f64 {
        self.answers as f64 / self.beyond.as_secs_f64()
    }
}

/// Resident bytes of a server.
#[derive(Debug, Clone, Copy)]
pub struct Resident {
    pub before: u64,
    pub playing: u64,
    pub largest: u64,
    pub end: u64,
}

impl Measured {
    /// Returns the CPU seconds per delivered gigabyte.
    pub fn cost(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.played.bytes as f64 / 1e9)
    }

    fn writes_per_unit(&self) -> f64 {
        self.writes as f64 / self.played.units().max(1) as f64
    }

    fn json(&self) -> Value {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let quantiles = |histogram: &Histogram| {
            json!({
                "p50_us": micros(histogram.quantile(500)),
                "p99_us": micros(histogram.quantile(990)),
                "p999_us": micros(histogram.quantile(999)),
            })
        };
        json!({
            "server": self.kind.name(),
            "round": self.round,
            "delivered_bytes": self.played.bytes,
            "units": self.played.units(),
            "cpu_seconds": self.cpu.as_secs_f64(),
            "cpu_seconds_per_gb": self.cost(),
            "writes": self.writes,
            "rss_before_bytes": self.resident.before,
            "rss_playing_bytes": self.resident.playing,
            "rss_largest_bytes": self.resident.largest,
            "rss_end_bytes": self.resident.end,
            "lost_units": self.lost,
            "late_units": self.played.late,
            "viewers_gone": self.gone,
            "load_behind": quantiles(&self.behind),
            "latency_video": quantiles(&self.played.latency_video),
            "latency_audio": quantiles(&self.played.latency_audio),
            "rest": self.rest.map(|rest| json!({
                "answers": rest.answers,
                "cpu_seconds": rest.cpu.as_secs_f64(),
                "cpu_seconds_beyond": rest.beyond.as_secs_f64(),
                "answers_per_cpu_second": rest.per_cpu_second(),
            })),
        })
    }
}

/// Returns all rounds as JSON.
pub fn json(options: &Options, all: &[Measured]) -> Value {
    json!({
        "machine": process::machine(),
        "protocol": options.class.name(),
        "players": options.players,
        "streams": options.streams,
        "stalled": options.stalled,
        "seconds": options.window.as_secs(),
        "bits_per_second": options.bits_per_second,
        "slices": options.slices,
        "pinned": options.pinned(),
        "readers_spin": options.spins(),
        "rounds": all.iter().map(Measured::json).collect::<Vec<_>>(),
        "ratios": ratios(options, all).into_iter().map(|ratio| json!({
            "of": ratio.of.name(), "to": ratio.to.name(),
            "min": ratio.spread.min, "median": ratio.spread.median, "max": ratio.spread.max,
        })).collect::<Vec<_>>(),
    })
}

/// Returns all rounds as text: one row per server, then the ratios.
pub fn table(options: &Options, all: &[Measured]) -> String {
    let mut text = format!(
        "{}; {} viewers by {} and {} that never read, {} stream(s) of {} kb/s, {} rounds of {} s, {}\n\n",
        process::machine(),
        options.players,
        options.class.name(),
        options.stalled,
        options.streams,
        options.bits_per_second / 1000,
        options.rounds,
        options.window.as_secs(),
        match (options.pinned(), options.spins()) {
            (true, true) => "server on one core, load on the other, readers never sleep",
            (true, false) => "server on one core, load on the other",
            (false, _) => "nothing pinned",
        },
    );
    text.push_str(
        "| server | GB | CPU-s | CPU-s/GB min/median/max | writes per viewer and unit | RSS MB | KB per viewer | \
         lost | late | video p50/p99/p99.9 ms | audio p50/p99 ms | load behind p99 ms |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for &kind in &options.servers {
        let rounds: Vec<_> = all.iter().filter(|measured| measured.kind == kind).collect();
        if !rounds.is_empty() {
            text.push_str(&row(options, kind, &rounds));
        }
    }
    for ratio in ratios(options, all) {
        let goal =
            goal(ratio.of, ratio.to).map_or_else(String::new, |goal| format!(" (goal: at most {goal})"));
        let _ = write!(text, "\n{} / {}: {}{goal}", ratio.of.name(), ratio.to.name(), ratio.spread.show());
    }
    for (quantile, permille) in [("p50", 500), ("p99", 990)] {
        if let Some(added) = added(all, permille) {
            let _ = write!(text, "\nvideo {quantile} beyond the floor: {added:.0} us");
        }
    }
    for rest in all.iter().filter_map(|measured| measured.rest) {
        let _ = write!(
            text,
            "\nGETs of a broadcast per CPU second of workers and control: {:.0} beyond what the viewers need, {:.0} with \
             it (goal: at least 20000)",
            rest.per_cpu_second(),
            rest.answers as f64 / rest.cpu.as_secs_f64(),
        );
    }
    text.push('\n');
    text
}

fn row(options: &Options, kind: Kind, rounds: &[&Measured]) -> String {
    let of = |value: &dyn Fn(&Measured) -> f64| Spread::of(rounds.iter().map(|measured| value(measured)));
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let video = |permille| of(&|m: &Measured| millis(m.played.latency_video.quantile(permille))).median;
    let audio = |permille| of(&|m: &Measured| millis(m.played.latency_audio.quantile(permille))).median;
    let viewers = (options.players + options.stalled) as f64;
    let grown =
        of(&|m: &Measured| m.resident.largest.saturating_sub(m.resident.before) as f64 / 1024.0 / viewers);
    // Some servers, such as nginx, send with `send`, which the kernel's counter of writes does not count.
    let writes = match kind {
        Kind::Peer(_) => "-".to_owned(),
        Kind::Millstream(_) | Kind::Other | Kind::Floor | Kind::FloorMessage => {
            format!("{:.3}", of(&Measured::writes_per_unit).median)
        }
    };
    format!(
        "| {} | {:.2} | {:.2} | {} | {writes} | {:.1} | {:.1} | {} | {} | {:.2} / {:.2} / {:.2} | {:.1} / {:.1} | {:.1} |\n",
        kind.name(),
        of(&|m: &Measured| m.played.bytes as f64 / 1e9).median,
        of(&|m: &Measured| m.cpu.as_secs_f64()).median,
        of(&Measured::cost).show(),
        of(&|m: &Measured| m.resident.largest as f64 / 1e6).median,
        grown.median,
        rounds.iter().map(|m| m.lost).sum::<u64>(),
        rounds.iter().map(|m| m.played.late).sum::<u64>(),
        video(500),
        video(990),
        video(999),
        audio(500),
        audio(990),
        of(&|m: &Measured| millis(m.behind.quantile(990))).max,
    )
}

struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self {
            min: at(0),
            median: at(values.len().saturating_sub(1) / 2),
            max: at(values.len().saturating_sub(1)),
        }
    }

    fn show(&self) -> String {
        format!("{:.3} / {:.3} / {:.3}", self.min, self.median, self.max)
    }
}

struct Ratio {
    of: Kind,
    to: Kind,
    spread: Spread,
}

/// Returns the ratios of this server's cost to that of each other server. They are formed round by round, because
/// a disturbance of the machine in a round affects both.
fn ratios(options: &Options, all: &[Measured]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (index, &of) in options.servers.iter().enumerate() {
        let others = options.servers.iter().enumerate().filter(|&(other, to)| match to {
            Kind::Millstream(_) => other < index,
            Kind::Other | Kind::Peer(_) | Kind::Floor | Kind::FloorMessage => true,
        });
        for (_, &to) in others.filter(|_| matches!(of, Kind::Millstream(_))) {
            let cost =
                |kind, round| all.iter().find(|m| m.kind == kind && m.round == round).map(Measured::cost);
            let quotients: Vec<f64> =
                (0..options.rounds).filter_map(|round| Some(cost(of, round)? / cost(to, round)?)).collect();
            if !quotients.is_empty() {
                ratios.push(Ratio { of, to, spread: Spread::of(quotients.into_iter()) });
            }
        }
    }
    ratios
}

const fn goal(of: Kind, to: Kind) -> Option<f64> {
    match (of, to) {
        (Kind::Millstream(_), Kind::Peer(Peer::Nginx)) => Some(0.6),
        (Kind::Millstream(_), Kind::Floor) => Some(1.25),
        (Kind::Millstream(_), Kind::Millstream(_)) => Some(1.05),
        _ => None,
    }
}

/// Returns by how many microseconds a latency quantile of this server exceeds that of the bare loop, as the median
/// of all rounds.
fn added(all: &[Measured], permille: u64) -> Option<f64> {
    let of = |wanted: Kind, round| {
        let found = all.iter().find(|m| m.kind == wanted && m.round == round)?;
        Some(found.played.latency_video.quantile(permille).as_nanos() as f64 / 1e3)
    };
    let rounds = all.iter().map(|m| m.round + 1).max()?;
    let differences: Vec<f64> = (0..rounds)
        .filter_map(|round| Some(of(Kind::Millstream(1), round)? - of(Kind::Floor, round)?))
        .collect();
    (!differences.is_empty()).then(|| Spread::of(differences.into_iter()).median)
}
