//! Samples of the last hour, one per minute, in memory: of the machine and the server, of applications, and of live
//! streams. Panels draw them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::live::{Live, Registry};
use super::stats::Figures;
use crate::mail::ViewerCounts;
use crate::types::Now;

/// Maximum number of samples: one hour.
const SAMPLES_MAX: usize = 60;
/// The time between two samples.
const MINUTE: Duration = Duration::from_secs(60);

/// The samples of one subject, oldest first.
#[derive(Debug)]
pub(super) struct Minutes<T> {
    samples: VecDeque<T>,
    last: Option<Instant>,
}

impl<T> Default for Minutes<T> {
    fn default() -> Self {
        Self { samples: VecDeque::new(), last: None }
    }
}

impl<T> Minutes<T> {
    /// Returns the time since the last sample, or zero before the first sample; `None` if no sample is due yet.
    fn due(&self, now: Instant) -> Option<Duration> {
        let passed = self.last.map(|last| now.saturating_duration_since(last));
        passed.map_or(Some(Duration::ZERO), |passed| (passed >= MINUTE).then_some(passed))
    }

    fn push(&mut self, now: Instant, sample: T) {
        self.last = Some(now);
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// Returns one figure of all samples, oldest first.
    pub(super) fn column<F>(&self, figure: impl Fn(&T) -> F) -> Vec<F> {
        self.samples.iter().map(figure).collect()
    }
}

/// A sample of the machine and the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerSample {
    pub(super) cpu_percent: u8,
    pub(super) memory_percent: u8,
    pub(super) disk_percent: u64,
    /// Percentage of the machine's memory used by this process.
    pub(super) process_percent: u64,
    pub(super) live: usize,
    pub(super) network: NetworkLoad,
}

/// Bits per second over the machine's network interfaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkLoad {
    pub(super) sent_bps: u64,
    pub(super) received_bps: u64,
}

/// A sample of an application.
#[derive(Debug, Clone, Copy)]
pub(super) struct AppSample {
    pub(super) viewers: u64,
    pub(super) streams: usize,
}

/// A sample of a live stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamSample {
    received_bytes: i64,
    /// Mean bit rate of the minute in bits per second.
    pub(super) bitrate: i64,
    pub(super) viewers: u64,
    pub(super) speed: f64,
    /// Number of units dropped since the stream began.
    pub(super) dropped: i32,
    pub(super) lost_ratio: f64,
}

/// The samples of the server and of applications. The samples of a live stream are kept with the stream.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) server: Minutes<ServerSample>,
    pub(super) apps: BTreeMap<Arc<str>, Minutes<AppSample>>,
}

/// Returns a share in percent.
fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

fn viewers_of(live: &Live) -> u64 {
    live.viewers().map(ViewerCounts::total).sum()
}

impl Figures {
    /// Takes the samples of the server and its applications, if due.
    pub(super) fn sample_server(&mut self, cx: &Context, registry: &Registry, now: Now) {
        if self.history.server.due(now.mono).is_none() {
            return;
        }
        let host = &self.host;
        let sample = ServerSample {
            cpu_percent: host.system_cpu_percent,
            memory_percent: host.memory_percent,
            disk_percent: percent(host.disk.total.saturating_sub(host.disk.free), host.disk.total),
            process_percent: percent(host.process_memory, host.memory_total),
            live: registry.len(),
            network: NetworkLoad { sent_bps: host.network.sent_bps, received_bps: host.network.received_bps },
        };
        let (figures, apps, registry) = (self, &cx.apps, registry);
        figures.history.server.push(now.mono, sample);
        figures.history.apps.retain(|name, _| apps.contains_key(name));
        for name in apps.keys() {
            let viewers = registry.of_app(name).map(|(_, live)| viewers_of(live)).sum();
            let sample = AppSample { viewers, streams: registry.count(name) };
            figures.history.apps.entry(Arc::clone(name)).or_default().push(now.mono, sample);
        }
    }
}

impl Live {
    /// Takes the sample of a live stream from its record, if due.
    pub(super) fn sample(
        &mut self,
        now: Now,
        received_bytes: i64,
        speed: f64,
        (dropped, lost_ratio): (i32, f64),
    ) {
        let Some(passed) = self.received.minutes.due(now.mono) else { return };
        let before = self.received.minutes.samples.back().map_or(0, |sample| sample.received_bytes);
        let passed = if passed.is_zero() { now.mono.saturating_duration_since(self.began) } else { passed };
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let bits = received_bytes.saturating_sub(before).saturating_mul(8000);
        let bitrate = bits.checked_div(passed_ms).unwrap_or(0);
        let viewers = viewers_of(self);
        let sample = StreamSample { received_bytes, bitrate, viewers, speed, dropped, lost_ratio };
        self.received.minutes.push(now.mono, sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let (mut minutes, start) = (Minutes::<u64>::default(), Instant::now());
        for second in 0..3 * 3600 {
            let now = start + Duration::from_secs(second);
            if minutes.due(now).is_some() {
                minutes.push(now, second);
            }
        }
        let kept = minutes.column(|second| *second);
        assert_eq!((kept.len(), kept[0], kept[59]), (60, 120 * 60, 179 * 60));
    }
}
