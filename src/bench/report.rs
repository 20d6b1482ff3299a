//! The report of a run, as text for people and as a JSON object. `docs/bench.md` describes the members.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Histogram, Options, Role, Score, Sequence, Tally};
use crate::auth::redact;

/// Counts of connections by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    /// Requested connections.
    pub requested: usize,
    /// Connections that the server has accepted.
    pub ready: usize,
    /// Connections that never became ready.
    pub failed: usize,
    /// Connections that ended after becoming ready.
    pub lost: usize,
    /// Reasons of failed and lost connections, with the number of connections for each.
    pub reasons: Vec<(String, usize)>,
}

impl Connections {
    /// Counts an ended connection.
    pub fn ended(&mut self, was_ready: bool, why: &str) {
        if was_ready {
            self.lost += 1;
        } else {
            self.failed += 1;
        }
        match self.reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, count)) => *count += 1,
            None => self.reasons.push((why.to_owned(), 1)),
        }
        self.reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    }

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: Self) {
        let (failed, lost) = (self.failed + other.failed, self.lost + other.lost);
        for (why, count) in other.reasons {
            (0..count).for_each(|_| self.ended(true, &why));
        }
        (self.failed, self.lost) = (failed, lost);
        self.requested += other.requested;
        self.ready += other.ready;
    }
}

/// Processor time and memory of a server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFigures {
    /// Process id.
    pub pid: u32,
    /// CPU time in the window.
    pub cpu: Duration,
    /// Resident bytes before the first connection.
    pub rss_before_bytes: u64,
    /// Resident bytes at the end of the window.
    pub rss_bytes: u64,
}

/// The results of a run.
#[derive(Debug)]
pub struct Report<'a> {
    /// Options of the run.
    pub options: &'a Options,
    /// Measured time.
    pub window: Duration,
    /// Counts of connections by outcome.
    pub connections: Connections,
    /// Figures of the measured time.
    pub tally: Tally,
    /// Units received or missed, for each connection.
    pub scores: Vec<Score>,
    /// CPU time of the load generator in the window.
    pub cpu: Duration,
    /// Figures of the observed process.
    pub server: Option<ServerFigures>,
}

impl Report<'_> {
    /// True if all connections succeeded and stayed, received media, and lost no more than allowed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        let connections = &self.connections;
        connections.ready == connections.requested
            && connections.lost == 0
            && (self.options.role != Role::Play || self.tally.units() > 0)
            && self.sum(|sequence| sequence.lost) <= self.options.lost_max
    }

    /// Returns the report as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let (options, tally, connections) = (self.options, &self.tally, &self.connections);
        json!({
            "tool": "millstream bench",
            "version": env!("CARGO_PKG_VERSION"),
            "role": self.role(),
            "protocol": self.protocol(),
            "url": redact(&options.url),
            "count": options.count,
            "streams": options.stream_count(),
            "threads": options.threads,
            "window_s": self.window.as_secs_f64(),
            "connections": {
                "requested": connections.requested,
                "ready": connections.ready,
                "failed": connections.failed,
                "lost": connections.lost,
            },
            "reasons": connections.reasons.iter().map(|(reason, count)| json!({
                "reason": reason, "count": count,
            })).collect::<Vec<_>>(),
            "bytes": tally.bytes,
            "bits_per_second": self.bits_per_second(),
            "packets": tally.packets,
            "packets_per_second": self.per_second(tally.packets),
            "units": {
                "video": tally.video,
                "audio": tally.audio,
                "stamped": tally.stamped,
                "backlog": tally.backlog,
                "lost": self.sum(|sequence| sequence.lost),
                "repeated": self.sum(|sequence| sequence.repeated),
                "late": tally.late,
            },
            "first_frame_ms": distribution(&tally.first_frame),
            "playlist_ms": distribution(&tally.playlist),
            "latency_video_ms": distribution(&tally.latency_video),
            "latency_audio_ms": distribution(&tally.latency_audio),
            "behind_ms": distribution(&tally.behind),
            "room": self.room(),
            "cpu_s": self.cpu.as_secs_f64(),
            "server": self.server.map(|server| json!({
                "pid": server.pid,
                "cpu_s": server.cpu.as_secs_f64(),
                "cpu_s_per_gb": self.cost(server),
                "cpu_us_per_packet": self.packet_cost(server),
                "floor_ratio": self.floor_ratio(server),
                "rss_bytes": server.rss_bytes,
            })),
            "ok": self.is_ok(),
        })
    }

    /// Returns the report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let (options, tally, connections) = (self.options, &self.tally, &self.connections);
        let mut text = format!(
            "millstream bench {} {} {}\n\
             connections  {} of {} ready, {} failed, {} lost\n",
            self.role(),
            self.protocol(),
            redact(&options.url),
            connections.ready,
            connections.requested,
            connections.failed,
            connections.lost,
        );
        for (reason, count) in &connections.reasons {
            let _ = writeln!(text, "             {count} x {reason}");
        }
        let _ = writeln!(text, "measured     {:.1} s", self.window.as_secs_f64());
        let _ = writeln!(text, "bytes        {} ({:.2} Mb/s)", tally.bytes, self.bits_per_second() / 1e6);
        let _ = writeln!(
            text,
            "units        {} video, {} audio; {} with a stamp, {} of them backlog",
            tally.video, tally.audio, tally.stamped, tally.backlog
        );
        if options.role == Role::Play {
            let lost = self.sum(|sequence| sequence.lost);
            let repeated = self.sum(|sequence| sequence.repeated);
            let _ = writeln!(text, "lost         {lost}; {repeated} repeated, {} late", tally.late);
        }
        for (name, histogram) in [
            ("first frame", &tally.first_frame),
            ("playlists", &tally.playlist),
            ("video", &tally.latency_video),
            ("audio", &tally.latency_audio),
            ("behind", &tally.behind),
            ("switch", &tally.turns.switch),
        ] {
            if histogram.total() > 0 {
                let of = |permille| millis(histogram.quantile(permille));
                let _ = writeln!(
                    text,
                    "{name:<13}p50 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2} ms",
                    of(500),
                    of(990),
                    of(999),
                    millis(histogram.max())
                );
            }
        }
        if tally.packets > 0 {
            let per_second = self.per_second(tally.packets);
            let _ = writeln!(text, "packets      {} ({per_second:.0} a second)", tally.packets);
        }
        if options.room.is_some() {
            let (new, others) = (tally.turns.switch.total(), tally.turns.seen_before);
            let _ =
                write!(text, "turns        {new} of speakers that were not seen before, {others} of others");
            let memory = self.memory().map(|bytes| format!("; {:.1} kB resident a participant", bytes / 1e3));
            let _ = writeln!(text, "{}", memory.unwrap_or_default());
        }
        let _ = writeln!(text, "load's CPU   {:.2} s", self.cpu.as_secs_f64());
        if let Some(server) = self.server {
            let cost = self.cost(server).map_or_else(String::new, |cost| format!(", {cost:.3} per GB"));
            let packet = self.packet_cost(server);
            let packet = packet.map_or_else(String::new, |cost| format!(", {cost:.2} us per packet"));
            let ratio = self.floor_ratio(server);
            let ratio = ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} of the floor"));
            let _ = writeln!(
                text,
                "server       {:.2} CPU seconds{cost}{packet}{ratio}; {:.1} MB resident",
                server.cpu.as_secs_f64(),
                server.rss_bytes as f64 / 1e6
            );
        }
        text.push_str(if self.is_ok() { "ok\n" } else { "not ok\n" });
        text
    }

    fn protocol(&self) -> &'static str {
        self.options.target(0).map_or("", |target| target.protocol())
    }

    /// Returns the role on the command line.
    const fn role(&self) -> &'static str {
        if self.options.room.is_some() { "room" } else { self.options.role.name() }
    }

    fn bits_per_second(&self) -> f64 {
        self.per_second(self.tally.bytes) * 8.0
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.window.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Returns the server's CPU time for each media packet that players received, in microseconds.
    fn packet_cost(&self, server: ServerFigures) -> Option<f64> {
        let packets = self.tally.packets;
        (packets > 0).then(|| server.cpu.as_secs_f64() * 1e6 / packets as f64)
    }

    /// Returns the growth of the server's resident memory for each participant of a room, in bytes.
    fn memory(&self) -> Option<f64> {
        let ServerFigures { rss_bytes, rss_before_bytes, .. } = self.server?;
        Some(rss_bytes.saturating_sub(rss_before_bytes) as f64 / self.options.count as f64)
    }

    /// Returns the figures of a room.
    fn room(&self) -> Option<Value> {
        self.options.room?;
        let turns = &self.tally.turns;
        Some(json!({
            "switch_ms": distribution(&turns.switch),
            "switches": turns.switch.total(),
            "seen_before": turns.seen_before,
            "rss_bytes_per_participant": self.memory(),
        }))
    }

    fn cost(&self, server: ServerFigures) -> Option<f64> {
        (self.tally.bytes > 0).then(|| server.cpu.as_secs_f64() / (self.tally.bytes as f64 / 1e9))
    }

    fn floor_ratio(&self, server: ServerFigures) -> Option<f64> {
        Some(self.cost(server)? / self.options.server.floor?)
    }

    fn sum(&self, of: impl Fn(&Sequence) -> u64) -> u64 {
        let each = |score: &Score| match score {
            Score::Got(sequences) => sequences.iter().map(&of).fold(0, u64::saturating_add),
            Score::Made(_) | Score::None => 0,
        };
        self.scores.iter().map(each).fold(0, u64::saturating_add)
    }
}

pub(super) fn distribution(histogram: &Histogram) -> Value {
    if histogram.total() == 0 {
        return Value::Null;
    }
    let of = |permille| millis(histogram.quantile(permille));
    json!({ "p50": of(500), "p95": of(950), "p99": of(990), "p999": of(999), "max": millis(histogram.max()) })
}

pub(super) const fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Task;

    fn options() -> Options {
        let line = "play --url rtmp://h/live/secret --count 3 --max-lost 2 --server-pid 7 --floor 0.25";
        match Task::parse(&mut lexopt::Parser::from_args(line.split_whitespace())) {
            Ok(Some(Task::Load(options))) => options,
            other => panic!("{other:?}"),
        }
    }

    fn report(options: &Options) -> Report<'_> {
        let mut connections = Connections { requested: 3, ready: 3, ..Connections::default() };
        connections.reasons.clear();
        let mut tally = Tally::new(Duration::from_millis(100));
        tally.bytes = 2_000_000_000;
        tally.video = 3;
        tally.latency_video.record(1_000_000);
        let server =
            ServerFigures { pid: 7, cpu: Duration::from_secs(1), rss_before_bytes: 1, rss_bytes: 31 };
        Report {
            options,
            window: Duration::from_secs(2),
            connections,
            tally,
            scores: vec![Score::Got([Sequence { lost: 2, ..Sequence::default() }, Sequence::default()])],
            cpu: Duration::from_secs(1),
            server: Some(server),
        }
    }

    #[test]
    fn every_member_is_documented() {
        let options = options();
        let json = report(&options).json();
        let docs = include_str!("../../docs/bench.md");
        let documented = |name: &str| docs.contains(&format!("`{name}`"));
        for (name, value) in json.as_object().unwrap() {
            let has_members = docs.contains(&format!("`{name}.")) || docs.contains(&format!("`{name}[]."));
            assert!(documented(name) || has_members, "{name}");
            for inner in value.as_object().into_iter().flat_map(|object| object.keys()) {
                let ways = [format!(".{inner}"), format!("{name}.{inner}"), inner.clone()];
                assert!(ways.iter().any(|way| documented(way)), "{name}.{inner}");
            }
        }
        assert_eq!(json["server"]["cpu_s_per_gb"], 0.5);
        assert_eq!(json["server"]["floor_ratio"], 2.0);
        assert!(report(&options).text().contains("0.500 per GB, 2.00 of the floor"));
        assert_eq!(json["bits_per_second"], 8e9);
        assert!(json["latency_audio_ms"].is_null() && json["latency_video_ms"]["p50"].is_number());
        let both = format!("{json}{}", report(&options).text());
        assert!(!both.contains("secret"), "{both}");
    }

    #[test]
    fn losses_within_the_bound_are_ok() {
        let mut options = options();
        assert!(report(&options).is_ok());
        options.lost_max = 1;
        assert!(!report(&options).is_ok());
        options.lost_max = 2;
        let mut lost = report(&options);
        lost.connections.ended(true, "reset");
        assert!(!lost.is_ok());
        let mut failed = report(&options);
        failed.connections.ready = 2;
        assert!(!failed.is_ok());
        let mut silent = report(&options);
        silent.tally.video = 0;
        assert!(!silent.is_ok(), "players that saw nothing");
        options.role = Role::Publish;
        let mut publishers = report(&options);
        publishers.tally.video = 0;
        assert!(publishers.is_ok());
    }

    #[test]
    fn losses_beyond_counting_are_the_most_that_can_be_counted() {
        let options = options();
        let mut report = report(&options);
        let all = Sequence { lost: u64::MAX, repeated: u64::MAX, ..Sequence::default() };
        report.scores = vec![Score::Got([all, all])];
        assert_eq!(report.json()["units"]["lost"], u64::MAX);
        assert!(report.text().contains(&u64::MAX.to_string()) && !report.is_ok());
    }

    #[test]
    fn reasons_of_threads_add_up() {
        let (mut one, mut two) = (Connections::default(), Connections::default());
        one.ended(false, "refused");
        two.ended(true, "reset");
        two.ended(true, "reset");
        one.merge(two);
        assert_eq!((one.failed, one.lost), (1, 2));
        assert_eq!(one.reasons, [("reset".to_owned(), 2), ("refused".to_owned(), 1)]);
    }
}
