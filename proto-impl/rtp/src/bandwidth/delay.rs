//! Detects growing queues on the path from the trend of one-way delays between groups of packets (§5 of the
//! draft, but with the linear trend that browsers use instead of the draft's Kalman filter).

use alloc::collections::VecDeque;

/// Duration of a group, in microseconds: packets sent within this time are measured together.
const GROUP_MICROS: i64 = 5_000;
/// Packets that arrive within this time of each other also form one group, even if they were sent further apart,
/// because they have waited behind each other; in microseconds.
const BURST_MICROS: i64 = 5_000;
/// Maximum duration of a group of packets that have waited behind each other, in microseconds of arrival time.
const BURST_MICROS_MAX: i64 = 100_000;
/// Number of groups from which the trend is computed.
const WINDOW: usize = 20;
/// Weight of the old value in the smoothed delay.
const SMOOTHING: f64 = 0.9;
/// The trend is multiplied by this factor and by the number of groups before it is compared with the threshold, as in
/// the draft.
const GAIN: f64 = 4.0;
/// Maximum number of groups by which the trend is multiplied.
const GROUPS_COUNTED_MAX: u32 = 60;
/// Initial threshold of the trend in milliseconds (§5.4 of the draft).
const THRESHOLD_FIRST: f64 = 12.5;
/// Minimum threshold in milliseconds.
const THRESHOLD_MIN: f64 = 6.0;
/// Maximum threshold in milliseconds.
const THRESHOLD_MAX: f64 = 600.0;
/// Speed at which the threshold follows a rising trend, per millisecond.
const THRESHOLD_UP: f64 = 0.0087;
/// Speed at which the threshold follows a falling trend, per millisecond.
const THRESHOLD_DOWN: f64 = 0.039;
/// A trend that exceeds the threshold by more than this counts as a jump of the path's delay, and does not change the
/// threshold.
const LEAP_MS: f64 = 15.0;
/// Time for which queues must grow to count as overuse, in milliseconds.
const OVERUSE_MS: f64 = 10.0;
/// Pause, in microseconds, after which measuring restarts.
const PAUSE_MICROS: i64 = 3_000_000;

/// Utilization of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// Delays do not change.
    Normal,
    /// Queues grow.
    Over,
    /// Queues drain.
    Under,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    sent_first: i64,
    sent_last: i64,
    arrived_first: i64,
    arrived_last: i64,
}

/// Detector of growing queues, described in the module.
#[derive(Debug)]
pub(super) struct DelayDetector {
    before: Option<Group>,
    current: Option<Group>,
    /// For each group: arrival time in milliseconds since the first group, and the smoothed sum of delays.
    points: VecDeque<(f64, f64)>,
    first_arrival: i64,
    groups: u32,
    delay: f64,
    smoothed: f64,
    threshold: f64,
    trend: f64,
    over_ms: f64,
    over_count: u32,
    usage: Usage,
}

impl DelayDetector {
    pub(super) const fn new() -> Self {
        Self {
            before: None,
            current: None,
            points: VecDeque::new(),
            first_arrival: 0,
            groups: 0,
            delay: 0.0,
            smoothed: 0.0,
            threshold: THRESHOLD_FIRST,
            trend: 0.0,
            over_ms: 0.0,
            over_count: 0,
            usage: Usage::Normal,
        }
    }

    /// Adds a packet with its departure and arrival times, in microseconds on two clocks. Returns the
    /// utilization of the path when a group is complete.
    pub(super) fn packet(&mut self, sent: i64, arrived: i64) -> Option<Usage> {
        let Some(current) = &mut self.current else {
            self.current = Some(Group::new(sent, arrived));
            return None;
        };
        if sent < current.sent_first {
            // The packet was reported late; its group is already complete.
            return None;
        }
        if arrived.saturating_sub(current.arrived_last) > PAUSE_MICROS
            || sent.saturating_sub(current.sent_last) > PAUSE_MICROS
        {
            *self = Self { threshold: self.threshold, ..Self::new() };
            self.current = Some(Group::new(sent, arrived));
            return None;
        }
        if current.takes(sent, arrived) {
            return None;
        }
        let complete = core::mem::replace(current, Group::new(sent, arrived));
        let before = self.before.replace(complete)?;
        let departed = complete.sent_last.saturating_sub(before.sent_last);
        let came = complete.arrived_last.saturating_sub(before.arrived_last);
        Some(self.group(millis(departed), millis(came), complete.arrived_last))
    }

    fn group(&mut self, departed: f64, came: f64, at: i64) -> Usage {
        self.groups = self.groups.saturating_add(1).min(GROUPS_COUNTED_MAX);
        if self.groups == 1 {
            self.first_arrival = at;
        }
        self.delay += came - departed;
        self.smoothed = SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * self.delay;
        self.points.push_back((millis(at.saturating_sub(self.first_arrival)), self.smoothed));
        if self.points.len() > WINDOW {
            self.points.pop_front();
        }
        let trend = if self.points.len() == WINDOW { slope(&self.points).unwrap_or(self.trend) } else { 0.0 };
        let scaled = f64::from(self.groups) * trend * GAIN;
        self.usage = self.detect(scaled, trend, departed);
        self.adapt(scaled, came);
        self.trend = trend;
        self.usage
    }

    fn detect(&mut self, scaled: f64, trend: f64, departed: f64) -> Usage {
        if scaled <= self.threshold {
            (self.over_ms, self.over_count) = (0.0, 0);
            return if scaled < -self.threshold { Usage::Under } else { Usage::Normal };
        }
        self.over_ms += if self.over_count == 0 { departed / 2.0 } else { departed };
        self.over_count = self.over_count.saturating_add(1);
        if self.over_ms > OVERUSE_MS && self.over_count > 1 && trend >= self.trend {
            (self.over_ms, self.over_count) = (0.0, 0);
            return Usage::Over;
        }
        self.usage
    }

    fn adapt(&mut self, scaled: f64, came: f64) {
        let size = scaled.abs();
        if size > self.threshold + LEAP_MS {
            return;
        }
        let speed = if size < self.threshold { THRESHOLD_DOWN } else { THRESHOLD_UP };
        let moved = self.threshold + speed * (size - self.threshold) * came.clamp(0.0, 100.0);
        self.threshold = moved.clamp(THRESHOLD_MIN, THRESHOLD_MAX);
    }
}

impl Group {
    const fn new(sent: i64, arrived: i64) -> Self {
        Self { sent_first: sent, sent_last: sent, arrived_first: arrived, arrived_last: arrived }
    }

    /// Adds the packet if it belongs to this group. Returns true if so.
    fn takes(&mut self, sent: i64, arrived: i64) -> bool {
        let came = arrived.saturating_sub(self.arrived_last);
        let is_near = sent.saturating_sub(self.sent_first) <= GROUP_MICROS;
        let is_burst = came <= BURST_MICROS
            && came < sent.saturating_sub(self.sent_last)
            && arrived.saturating_sub(self.arrived_first) < BURST_MICROS_MAX;
        if is_near || is_burst {
            self.sent_last = self.sent_last.max(sent);
            self.arrived_last = self.arrived_last.max(arrived);
        }
        is_near || is_burst
    }
}

#[allow(clippy::cast_precision_loss, reason = "distances of seconds")]
fn millis(micros: i64) -> f64 {
    micros as f64 / 1000.0
}

/// Returns the slope of the least-squares line through these points.
fn slope(points: &VecDeque<(f64, f64)>) -> Option<f64> {
    let count = f64::from(u32::try_from(points.len()).ok()?);
    let (sum_x, sum_y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), (x, y)| {
        (above + (x - mean_x) * (y - mean_y), below + (x - mean_x) * (x - mean_x))
    });
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends groups of three packets every 20 ms with this delay in microseconds.
    fn run(detector: &mut DelayDetector, from: i64, count: i64, delay: impl Fn(i64) -> i64) -> Vec<Usage> {
        let packets = (from..from + count).flat_map(|n| (0..3).map(move |k| (n, n * 20_000 + k * 100)));
        packets.filter_map(|(n, sent)| detector.packet(sent, sent + 5_000_000 + delay(n))).collect()
    }

    #[test]
    fn a_steady_delay_is_normal_and_jitter_too() {
        let mut detector = DelayDetector::new();
        let seen = run(&mut detector, 0, 500, |n| 30_000 + (n * 7919) % 4_000);
        assert!(seen.len() > 450 && seen.iter().all(|usage| *usage == Usage::Normal), "{seen:?}");
    }

    #[test]
    fn a_growing_queue_is_overuse_and_a_draining_one_underuse() {
        let mut detector = DelayDetector::new();
        run(&mut detector, 0, 100, |_| 30_000);
        // Each group is delayed by 2 ms more than the previous one: a tenth more is sent than the path
        // carries.
        let grows = run(&mut detector, 100, 60, |n| 30_000 + (n - 100) * 2_000);
        assert!(grows.contains(&Usage::Over), "{grows:?}");
        let full = run(&mut detector, 160, 100, |_| 150_000);
        assert_eq!(full.last(), Some(&Usage::Normal));
        let drains = run(&mut detector, 260, 60, |n| 150_000 - (n - 260) * 2_000);
        assert!(drains.contains(&Usage::Under) && !drains.contains(&Usage::Over), "{drains:?}");
    }

    #[test]
    fn times_that_leap_do_no_harm() {
        let mut detector = DelayDetector::new();
        for n in 0..1000i64 {
            let wild = [i64::MIN, 0, i64::MAX, n * 3_000_000, -n][usize::try_from(n % 5).unwrap()];
            detector.packet(wild, wild.wrapping_mul(7));
        }
        assert!(detector.points.len() <= WINDOW);
        assert!(detector.threshold >= THRESHOLD_MIN && detector.threshold <= THRESHOLD_MAX);
    }
}
