//! The text of `/metrics` (OpenMetrics 1.0), made from a snapshot of the figures.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{
    Catalogue, ConnectionFigures, ControlFigures, Forwarding, Histogram, JobCounts, PlayerCounts,
    WorkerFigures,
};
use crate::types::build;

/// Labels of a sample.
type Labels<'a> = [(&'static str, &'a str)];

/// The contents of a page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Figures of control.
    pub control: ControlFigures,
    /// Counts of jobs, by class.
    pub jobs: Vec<JobCounts>,
    /// Counts of reports from players.
    pub players: PlayerCounts,
    /// Figures of each worker, by index.
    pub workers: Vec<WorkerFigures>,
}

/// Renders the page.
#[must_use]
pub fn render(page: Page) -> String {
    let mut registry = Registry::with_prefix("millstream");
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(&mut encoder);
        self.encode_workers(&mut out)?;
        self.encode_sessions(&mut out)?;
        self.encode_connections(&mut out)?;
        self.encode_forwarding(&mut out)?;
        self.encode_control(&mut out)?;
        self.encode_players(&mut out)?;
        self.encode_streams(&mut out)
    }
}

/// Writes metric families, one after another.
struct Out<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Out<'_, '_> {
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &'s str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counters<'v>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'static str, String)>, f64)> + 'v,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in values {
            with(&mut family, &labels, |metric| metric.encode_counter::<NoLabelSet, _, u64>(&value, None))?;
        }
        Ok(())
    }

    fn gauges<'v>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'static str, String)>, u64)> + 'v,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in values {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            with(&mut family, &labels, |metric| metric.encode_gauge(&value))?;
        }
        Ok(())
    }
}

/// Adds a metric to a family, with or without labels.
fn with(
    family: &mut MetricEncoder<'_>,
    labels: &[(&'static str, String)],
    write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() {
        return write(family);
    }
    let labels: Vec<(&'static str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let labels: &Labels<'_> = &labels;
    write(&mut family.encode_family(&labels)?)
}

fn encode_histogram(metric: &mut MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
    metric.encode_histogram::<NoLabelSet>(histogram.sum().as_secs_f64(), histogram.count(), &buckets, None)
}

/// Converts a counter to a float, exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "a figure for a graph")]
const fn number(count: u64) -> f64 {
    count as f64
}

impl Page {
    fn each<T>(&self, value: impl Fn(&WorkerFigures) -> T) -> Vec<(Vec<(&'static str, String)>, T)> {
        let row = |(index, figures): (usize, &WorkerFigures)| (vec![worker(index)], value(figures));
        self.workers.iter().enumerate().map(row).collect()
    }

    fn encode_workers(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        out.counters(
            "worker_busy_seconds",
            "Time in which the loop did not wait",
            self.each(|w| w.counters.busy.as_secs_f64()),
        )?;
        let mut turns =
            out.family("worker_turn_seconds", "Busy time of each turn of the loop", MetricType::Histogram)?;
        for (index, figures) in self.workers.iter().enumerate() {
            with(&mut turns, &[worker(index)], |metric| encode_histogram(metric, &figures.turns))?;
        }
        out.gauges("worker_mail_waiting", "Messages not handled yet", self.each(|w| w.mail_waiting))?;
        out.gauges(
            "worker_write_queue",
            "Connections that wait for their write",
            self.each(|w| w.write_queue),
        )?;
        out.gauges("worker_deadlines", "Entries of the deadline table", self.each(|w| w.deadlines))?;
        out.gauges("worker_streams", "Live streams that the worker knows", self.each(|w| w.streams))?;
        out.gauges("worker_subscribers", "Viewers and pushes served", self.each(|w| w.subscribers))?;
        out.gauges(
            "worker_ring_bytes",
            "Payload and parameter sets that the rings retain",
            self.each(|w| w.ring_bytes),
        )?;
        out.counters(
            "worker_units",
            "Access units that entered a ring",
            self.each(|w| number(w.counters.units)),
        )?;
        out.gauges("transcoders", "Audio tracks that are transcoded", self.each(|w| w.transcoders.running))?;
        out.gauges(
            "transcoders_wanting",
            "Audio tracks that are left out now, because too many are transcoded",
            self.each(|w| w.transcoders.wanting),
        )?;
        out.counters(
            "transcoders_refused",
            "Audio tracks left out because too many are transcoded",
            self.each(|w| number(w.counters.transcoders_refused)),
        )?;
        out.counters(
            "segments_missed",
            "Segments dropped although a playlist lists them, because memory or a stream's share of it was short",
            self.each(|w| number(w.counters.segments_missed)),
        )?;
        out.counters(
            "key_frames_asked",
            "Key frames that viewers waited for and publishers were asked for",
            self.each(|w| number(w.counters.key_frames_asked)),
        )?;
        let datagrams = self.workers.iter().enumerate().flat_map(|(index, figures)| {
            let datagrams = &figures.counters.datagrams;
            let by_reason = [
                ("nobody", datagrams.dropped),
                ("unsent", datagrams.unsent),
                ("not_passed", datagrams.not_passed),
            ];
            by_reason
                .map(|(reason, count)| (vec![worker(index), ("reason", reason.to_owned())], number(count)))
        });
        out.counters(
            "dropped_datagrams",
            "Datagrams without a session, those that the kernel did not take, and those lost on the way to another worker",
            datagrams,
        )?;
        out.counters(
            "passed_datagrams",
            "Datagrams passed on to other workers, at one of which their session may be",
            self.each(|w| number(w.counters.datagrams.passed)),
        )?;
        out.counters(
            "worker_panics",
            "Sessions closed because they panicked",
            self.each(|w| number(w.counters.panics)),
        )
    }

    fn encode_sessions(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let rows = || {
            self.workers.iter().enumerate().flat_map(|(index, figures)| {
                let labels = move |protocol: &str| vec![worker(index), ("protocol", protocol.to_owned())];
                figures.traffic.iter().map(move |row| (labels(row.protocol), row))
            })
        };
        out.gauges("sessions", "Open connections", rows().map(|(labels, row)| (labels, row.open)))?;
        out.counters(
            "sessions_ended",
            "Connections that are over",
            rows().map(|(labels, row)| (labels, number(row.ended))),
        )?;
        out.counters(
            "received_bytes",
            "Bytes of peers",
            rows().map(|(labels, row)| (labels, number(row.bytes_in))),
        )?;
        out.counters(
            "sent_bytes",
            "Bytes to peers",
            rows().map(|(labels, row)| (labels, number(row.bytes_out))),
        )?;
        let refused = self.workers.iter().enumerate().flat_map(|(index, figures)| {
            let labels = move |reason: &str| vec![worker(index), ("reason", reason.to_owned())];
            figures.counters.refused.iter().map(move |(why, count)| (labels(why.name()), number(count)))
        });
        out.counters(
            "refused_connections",
            "Connections closed before they could say what they want",
            refused,
        )
    }

    /// Writes the totals of connections, and each connection's figures if requested.
    fn encode_connections(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let mut catalogues: Vec<&'static Catalogue> = Vec::new();
        for totals in self.workers.iter().flat_map(|figures| &figures.totals) {
            if !catalogues.contains(&totals.of) {
                catalogues.push(totals.of);
            }
        }
        for of in catalogues {
            self.encode_totals(out, of)?;
            if self.connections(of).next().is_some() {
                self.encode_each(out, of)?;
            }
        }
        Ok(())
    }

    fn connections(&self, of: &'static Catalogue) -> impl Iterator<Item = &ConnectionFigures> {
        let all = self.workers.iter().flat_map(|figures| &figures.connections);
        all.filter(move |one| one.figures.catalogue() == of)
    }

    fn encode_totals(&self, out: &mut Out<'_, '_>, of: &'static Catalogue) -> fmt::Result {
        let [what, help, _] = of.counted;
        let totals = self.workers.iter().enumerate().flat_map(|(index, figures)| {
            let totals = figures.totals.iter().filter(|totals| totals.of == of);
            totals.flat_map(move |totals| {
                of.counters.iter().zip(&totals.counts).map(move |(what, count)| {
                    (vec![worker(index), ("what", (*what).to_owned())], number(*count))
                })
            })
        });
        out.counters(&format!("{}_{what}", of.name), help, totals)
    }

    fn encode_each(&self, out: &mut Out<'_, '_>, of: &'static Catalogue) -> fmt::Result {
        let rows = || {
            self.connections(of).map(|row| {
                let labels = vec![
                    ("app", row.key.app.as_ref().to_owned()),
                    ("stream", row.key.id.as_ref().to_owned()),
                    ("role", row.role.name().to_owned()),
                    ("peer", row.peer.to_string()),
                ];
                (labels, &row.figures)
            })
        };
        for (at, (name, help)) in of.gauges.iter().enumerate() {
            let values = rows().map(|(labels, row)| (labels, row.gauges().get(at).copied().unwrap_or(0)));
            out.gauges(&format!("{}_{name}", of.name), help, values)?;
        }
        if of.counters_of_each == 0 {
            return Ok(());
        }
        let [what, _, help] = of.counted;
        let counts = rows().flat_map(|(labels, row)| {
            let shown = of.counters.iter().take(of.counters_of_each).zip(row.counts());
            shown.map(move |(what, count)| {
                let mut labels = labels.clone();
                labels.push(("what", (*what).to_owned()));
                (labels, number(count))
            })
        });
        out.counters(&format!("{}_connection_{what}", of.name), help, counts)
    }

    fn encode_forwarding(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let help = "From a unit's last byte received to its last byte taken by the kernel";
        let mut family = out.family("forwarding_seconds", help, MetricType::Histogram)?;
        for row in self.forwarding() {
            for (kind, histogram) in [("video", &row.video), ("audio", &row.audio)] {
                let labels = [
                    ("ingest", row.ingest.name.to_owned()),
                    ("egress", row.egress.to_owned()),
                    ("kind", kind.to_owned()),
                ];
                with(&mut family, &labels, |metric| encode_histogram(metric, histogram))?;
            }
        }
        let drops = self.workers.iter().enumerate().flat_map(|(index, figures)| {
            let counters = &figures.counters;
            [
                ("ingest", counters.units_dropped),
                ("lag", counters.units_skipped),
                ("mirror", counters.units_unmirrored),
            ]
            .map(|(reason, units)| (vec![worker(index), ("reason", reason.to_owned())], number(units)))
        });
        out.counters("dropped_units", "Units that were not delivered to somebody", drops)?;
        let faults = self.workers.iter().enumerate().flat_map(|(index, figures)| {
            figures.clock_faults.iter().map(move |(fault, count)| {
                (vec![worker(index), ("fault", fault.name().to_owned())], number(count))
            })
        });
        out.counters("clock_faults", "Faults of publishers' clocks that were corrected", faults)?;
        out.counters(
            "jumps",
            "Times a subscriber jumped to a newer key frame",
            self.each(|w| number(w.counters.jumps)),
        )
    }

    /// Sums the forwarding histograms of all workers.
    fn forwarding(&self) -> Vec<Forwarding> {
        let mut sums: Vec<Forwarding> = Vec::new();
        for row in self.workers.iter().flat_map(|figures| figures.forwarding.rows()) {
            match sums.iter_mut().find(|sum| sum.ingest == row.ingest && sum.egress == row.egress) {
                Some(sum) => {
                    sum.video.merge(&row.video);
                    sum.audio.merge(&row.audio);
                }
                None => sums.push(row.clone()),
            }
        }
        sums
    }

    fn encode_players(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let label = |name, value: &str| (name, value.to_owned());
        out.counters(
            "player_events",
            "Events that players reported",
            self.players.events().map(|(event, protocol, count)| {
                (vec![label("event", event), label("protocol", protocol)], number(count))
            }),
        )?;
        out.counters(
            "player_watched_seconds",
            "Time watched, as players reported it",
            self.players
                .watched_ms()
                .map(|(protocol, ms)| (vec![label("protocol", protocol)], number(ms) / 1000.0)),
        )
    }

    fn encode_control(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let control = &self.control;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let one = |value: u64| [(Vec::new(), value)];
        out.gauges("broadcasts", "Records", one(count(control.records)))?;
        out.gauges("live_streams", "Live streams", one(count(control.live)))?;
        out.gauges("viewers", "Viewers of all streams", one(control.viewers))?;
        let trying = control.pushes.saturating_sub(control.pushes_broadcasting);
        let pushes = [("broadcasting", control.pushes_broadcasting), ("trying", trying)];
        out.gauges(
            "pushes",
            "Endpoints of live streams",
            pushes.map(|(state, pushes)| (vec![("state", state.to_owned())], count(pushes))),
        )?;
        let trying = control.pulls.saturating_sub(control.pulls_broadcasting);
        let pulls = [("broadcasting", control.pulls_broadcasting), ("trying", trying)];
        out.gauges(
            "pulls",
            "Stream sources that run",
            pulls.map(|(state, pulls)| (vec![("state", state.to_owned())], count(pulls))),
        )?;
        out.gauges("recordings", "Streams that are recorded", one(count(control.recordings)))?;
        out.counters(
            "recording_failures",
            "Recordings that failed, and recorded files that could not be finished",
            [(Vec::new(), number(control.recording_failures))],
        )?;
        out.gauges("s3_waiting", "Files to be uploaded to S3", one(count(control.files.s3_waiting)))?;
        out.counters("s3_uploads", "Files uploaded to S3", [(Vec::new(), number(control.files.s3_uploads))])?;
        out.counters(
            "s3_failures",
            "Attempts to upload a file to S3 that failed",
            [(Vec::new(), number(control.files.s3_failures))],
        )?;
        let waiting = count(control.files.removals_waiting);
        out.gauges(
            "removals_waiting",
            "Files and objects of removed recordings still to be removed",
            one(waiting),
        )?;
        out.counters(
            "removal_failures",
            "Attempts to remove the file or object of a recording that failed",
            [(Vec::new(), number(control.files.removal_failures))],
        )?;
        out.counters(
            "store_failures",
            "Commits and rebuilds that failed",
            [(Vec::new(), number(control.store_failures))],
        )?;
        out.gauges("store_waiting", "Changes that wait for the disk", one(count(control.store_waiting)))?;
        let hooks = control.hooks;
        out.counters(
            "hooks",
            "Hooks by what became of them",
            [("sent", hooks.sent), ("failed", hooks.failed), ("dropped", hooks.dropped)]
                .map(|(result, count)| (vec![("result", result.to_owned())], number(count))),
        )?;
        out.gauges("hooks_waiting", "Hooks that wait or are being sent", one(count(control.hooks_waiting)))?;
        out.gauges(
            "admissions_waiting",
            "Publishers and viewers that wait for an admission hook",
            one(count(control.asks_waiting)),
        )?;
        if let Some(expires_ms) = control.certificate_expires_ms {
            out.gauges(
                "certificate_expiry_timestamp_seconds",
                "Unix time at which the first certificate of the chain in use expires",
                one(expires_ms / 1000),
            )?;
        }
        let of_class = |jobs: &JobCounts| vec![("class", jobs.class.to_owned())];
        out.gauges(
            "jobs_waiting",
            "Jobs that wait for a thread",
            self.jobs.iter().map(|jobs| (of_class(jobs), count(jobs.waiting))),
        )?;
        out.counters(
            "jobs_cpu_seconds",
            "Time of the processor that jobs have used",
            self.jobs.iter().map(|jobs| (of_class(jobs), jobs.cpu.as_secs_f64())),
        )?;
        out.counters(
            "jobs_busy_seconds",
            "Time that jobs have taken",
            self.jobs.iter().map(|jobs| (of_class(jobs), jobs.busy.as_secs_f64())),
        )?;
        out.counters(
            "jobs_done",
            "Jobs done, whatever came of them",
            self.jobs.iter().map(|jobs| (of_class(jobs), number(jobs.done))),
        )?;
        out.counters(
            "jobs_failed",
            "Jobs that failed for a reason of this server",
            self.jobs.iter().map(|jobs| (of_class(jobs), number(jobs.failed))),
        )?;
        out.counters(
            "jobs_refused",
            "Jobs refused because too many waited",
            self.jobs.iter().map(|jobs| (of_class(jobs), number(jobs.refused))),
        )?;
        out.gauges("memory_used_percent", "Memory of the machine", one(u64::from(control.memory_percent)))?;
        out.gauges("disk_bytes", "Size of the file system of the home", one(control.disk.total))?;
        out.gauges("disk_usable_bytes", "What the server may still write there", one(control.disk.usable))?;
        let mut family = out.family("build", "This program", MetricType::Info)?;
        family.encode_info(&[("version", build::VERSION), ("commit", build::COMMIT), ("date", build::DATE)])
    }

    fn encode_streams(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        if self.workers.iter().all(|figures| figures.per_stream.is_empty()) {
            return Ok(());
        }
        let rows = || {
            self.workers.iter().enumerate().flat_map(|(index, figures)| {
                figures.per_stream.iter().map(move |row| {
                    let app = ("app", row.key.app.as_ref().to_owned());
                    (vec![worker(index), app, ("stream", row.key.id.as_ref().to_owned())], row)
                })
            })
        };
        out.gauges(
            "stream_subscribers",
            "Viewers and pushes of a stream",
            rows().map(|(labels, row)| (labels, row.subscribers)),
        )?;
        out.counters(
            "stream_received_bytes",
            "Payload since the publisher's grant",
            rows().filter_map(|(labels, row)| Some((labels, number(row.received_bytes?)))),
        )?;
        out.gauges(
            "stream_ring_bytes",
            "Payload and parameter sets retained",
            rows().map(|(labels, row)| (labels, row.ring_bytes)),
        )?;
        let derived = rows().flat_map(|(labels, row)| {
            let of_track = move |(name, subscribers): &(&'static str, u64)| {
                let mut labels = labels.clone();
                labels.push(("track", (*name).to_owned()));
                (labels, *subscribers)
            };
            row.derived.iter().map(of_track)
        });
        out.gauges(
            "stream_derived_subscribers",
            "Viewers and pushes that are sent a track made here",
            derived,
        )
    }
}

fn worker(index: usize) -> (&'static str, String) {
    ("worker", index.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::{Duration, Instant};

    use super::super::{DiskFigures, Format, Role, StreamFigures, Totals, Traffic};
    use super::*;
    use crate::types::{Ingest, StreamKey};

    /// Parses a page in either format as strictly as the format's specification demands: each family is
    /// contiguous and follows its type, samples have the suffixes of the type, nothing occurs twice, and bucket
    /// counts rise up to `+Inf`, whose count equals the total.
    fn parse(format: Format, page: &str) {
        let mut family = (String::new(), String::new());
        let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
        // For each set of labels of a histogram without `le`: the bound and the count of the last bucket.
        let mut buckets: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let text = match format {
            Format::OpenMetrics => page.strip_suffix("# EOF\n").expect("an end"),
            Format::Text => page,
        };
        assert!(text.ends_with('\n') && !text.contains("# EOF"));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                family = (name.to_owned(), kind.to_owned());
                assert!(families.insert(name.to_owned()), "twice: {line}");
                continue;
            }
            if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(value.is_finite() && samples.insert(series.to_owned()), "{line}");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let ending =
                name.strip_prefix(family.0.as_str()).unwrap_or_else(|| panic!("{line} in {family:?}"));
            let endings: &[&str] = match (format, family.1.as_str()) {
                (Format::OpenMetrics, "counter") => &["_total"],
                (Format::OpenMetrics, "info") => &["_info"],
                (_, "histogram") => &["_bucket", "_sum", "_count"],
                (_, "gauge") | (Format::Text, "counter") => &[""],
                _ => panic!("{family:?}"),
            };
            assert!(endings.contains(&ending), "{line} in {family:?}");
            match ending {
                "_bucket" => {
                    let (before, rest) = labels.split_once("le=\"").unwrap();
                    let (le, behind) = rest.split_once('"').unwrap();
                    let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                    assert!(le < 1e300 || le.is_infinite(), "{line}");
                    let behind = behind.strip_prefix(',').unwrap_or(behind);
                    let key = format!("{}{{{before}{behind}", family.0);
                    if let Some((bound, count)) = buckets.insert(key, (le, value)) {
                        assert!(bound < le && count <= value, "{line}");
                    }
                }
                "_count" => drop(counts.insert(format!("{}{{{labels}", family.0), value)),
                _ => {}
            }
        }
        for (histogram, count) in &counts {
            let (bound, last) = buckets[histogram];
            assert!(bound.is_infinite() && (last - count).abs() < 0.5, "{histogram}");
        }
        assert!(counts.len() > 2 && counts.len() == buckets.len() && samples.len() > 100);
    }

    #[test]
    fn the_page_has_every_documented_name_and_no_other() {
        let mut figures = WorkerFigures::default();
        figures.counters.busy = Duration::from_millis(1500);
        figures.traffic.push(Traffic { open: 3, ..Traffic::new("rtmp") });
        let now = Instant::now();
        let index = figures.forwarding.index(Ingest { publish_type: "RTMP", name: "rtmp" }, "rtmp");
        figures.forwarding.record(index, true, now, now + Duration::from_micros(120));
        let key = StreamKey::new("live", "s\"1");
        figures.per_stream.push(StreamFigures {
            key,
            subscribers: 2,
            received_bytes: Some(7),
            ring_bytes: 9,
            derived: vec![("opus", 1)],
        });
        let peer = "192.0.2.1:9000".parse().unwrap();
        for of_protocol in crate::protocol::figures_for_tests() {
            let row = ConnectionFigures {
                key: StreamKey::new("live", "s"),
                role: Role::Viewer,
                peer,
                figures: of_protocol,
            };
            Totals::add(&mut figures.totals, &*row.figures);
            figures.connections.push(row);
        }
        let jobs = vec![JobCounts {
            class: "resolve",
            waiting: 2,
            refused: 5,
            done: 7,
            failed: 1,
            busy: Duration::from_millis(2500),
            cpu: Duration::from_millis(1250),
        }];
        // Each connection belongs to only one worker, so the second worker has none.
        let second = WorkerFigures { connections: Vec::new(), ..figures.clone() };
        let mut players = PlayerCounts::default();
        players.event("playStarted", "webrtc");
        players.watched(2500, "hls");
        let disk = DiskFigures { total: 100, free: 60, usable: 50 };
        let certificate_expires_ms = Some(1_930_089_600_500);
        let control = ControlFigures { disk, certificate_expires_ms, ..ControlFigures::default() };
        let page = Page { control, jobs, players, workers: vec![figures, second] };
        let text = render(page);
        parse(Format::OpenMetrics, &text);
        parse(Format::Text, &Format::Text.of_open_metrics(text.clone()));
        assert!(text.contains("millstream_worker_busy_seconds_total{worker=\"1\"} 1.5\n"), "{text}");
        assert!(text.contains("millstream_sessions{worker=\"0\",protocol=\"rtmp\"} 3\n"));
        let bucket = "millstream_forwarding_seconds_bucket{le=\"0.00015\",ingest=\"rtmp\",egress=\"rtmp\",kind=\"video\"} 2\n";
        assert!(text.contains(bucket), "{text}");
        assert!(text.contains("millstream_jobs_refused_total{class=\"resolve\"} 5"), "{text}");
        assert!(
            text.contains("millstream_disk_bytes 100\n")
                && text.contains("millstream_disk_usable_bytes 50\n")
        );
        assert!(text.contains("millstream_certificate_expiry_timestamp_seconds 1930089600\n"), "{text}");
        let started = "millstream_player_events_total{event=\"playStarted\",protocol=\"webrtc\"} 1.0\n";
        assert!(text.contains(started), "{text}");
        assert!(text.contains("millstream_player_watched_seconds_total{protocol=\"hls\"} 2.5\n"), "{text}");
        assert!(text.contains("stream=\"s\\\"1\"") && text.ends_with("# EOF\n"));

        let documented: BTreeSet<&str> = include_str!("../../docs/metrics.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(|name| name.strip_suffix("_total").unwrap_or(name))
            .collect();
        let shown: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(documented, shown);
    }
}
