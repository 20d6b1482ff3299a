//! The rate that a receiver requests (REMB) from a sender that does not evaluate arrival times itself.
//!
//! The estimate grows while the path carries what is sent. Two conditions stop the growth: a **queue** on the
//! path (throughout an interval, all frames arrive later than the fastest recent one), and **loss**. If sending
//! less reduces neither, they are attributed to the path, and are no reason to reduce the rate further.

use std::time::{Duration, Instant};

use super::micros_since;
use super::rate::{RateMeter, bits_per_second};

#[cfg(test)]
mod tests;

/// Initial estimate, in bits per second.
const FIRST: f64 = 2_000_000.0;
/// Minimum estimate, in bits per second.
const LEAST: f64 = 100_000.0;
/// Growth factor per report without loss, far from the rate at which a queue was observed.
const GROWTH: f64 = 1.35;
/// Growth factor per report without loss, near the rate at which a queue was observed.
const GROWTH_NEAR: f64 = 1.08;
/// If the ratio of the estimate to the rate at which a queue was observed is in this range, the estimate counts as near
/// that rate.
const NEAR: core::ops::Range<f64> = 0.8..1.25;
/// Maximum estimate as a multiple of the rate received.
const HEADROOM: f64 = 2.0;
/// Bits per second added to the maximum that [`HEADROOM`] gives.
const HEADROOM_BITS: f64 = 500_000.0;
/// Loss in thousandths above which the sender must send less.
const LOSS_HIGH: u16 = 100;
/// Loss in thousandths below which the estimate may grow.
const LOSS_LOW: u16 = 20;
/// If the received rate is below this share of the former rate, the sender counts as having reduced its rate.
const LOWER: f64 = 0.85;
/// If more than this share of the former loss or queue remains although less is sent, the loss or queue is attributed
/// to the path.
const STAYS: f64 = 0.7;
/// Maximum loss, in thousandths, that is attributed to the path.
const OWN_LOSS_MAX: u16 = 350;

/// Maximum queue that is tolerated throughout an interval.
const QUEUE_MAX: Duration = Duration::from_millis(60);
/// Share of the received rate that is requested while a long queue persists.
const DRAIN: f64 = 0.9;
/// Reduction of the share [`DRAIN`] for each second of queue.
const DRAIN_PER_SECOND: f64 = 0.8;
/// Minimum share of the received rate that is requested while a long queue persists.
const DRAIN_LEAST: f64 = 0.4;
/// Time after which a queue that has not shrunk is attributed to the path.
const DRAIN_TIME: Duration = Duration::from_secs(8);
/// A queue longer than this is reported to the sender immediately.
const URGENT_QUEUE: Duration = Duration::from_millis(200);
/// Number of consecutive frames that must show a queue longer than [`URGENT_QUEUE`].
const URGENT_FRAMES: u32 = 3;
/// Minimum time between two urgent reports.
const URGENT_INTERVAL: Duration = Duration::from_millis(300);
/// Minimum interval, in microseconds, whose own mean rate is reported. Shorter intervals contain too few packets.
const URGENT_MICROS: i64 = 300_000;
/// Length of a window; the minimum delay is taken over the last one or two windows. Once a queue has drained, frames
/// show the minimum again.
const BASE_WINDOW: Duration = Duration::from_secs(30);
/// If the delays of two frames differ by more than this, the sender's clock has jumped; in microseconds.
const LEAP_MICROS: i64 = 5_000_000;

/// Delay of a source's frames above their recent minimum: the queue on the path.
///
/// Only the first packet of each frame is evaluated, because the others arrive as fast as the path carries
/// them.
#[derive(Debug)]
pub struct QueueDelay {
    epoch: Instant,
    clock_rate: u32,
    /// Timestamp of the last frame, its time on the sender's clock, and its delay, both in microseconds.
    last: Option<(u32, i64, i64)>,
    base: Option<i64>,
    base_before: Option<i64>,
    base_since: Instant,
}

impl QueueDelay {
    /// Creates the state of a source with this clock rate in ticks per second.
    #[must_use]
    pub const fn new(now: Instant, clock_rate: u32) -> Self {
        Self { epoch: now, clock_rate, last: None, base: None, base_before: None, base_since: now }
    }

    /// Handles a packet. If it is the first of a frame, returns the queue that the frame has encountered.
    pub fn handle_packet(&mut self, now: Instant, timestamp: u32) -> Option<Duration> {
        let sampled = match self.last {
            None => 0,
            Some((last, sampled, _)) => {
                let ticks = i64::from(timestamp.wrapping_sub(last).cast_signed());
                if ticks <= 0 {
                    return None;
                }
                let micros = ticks.saturating_mul(1_000_000).checked_div(self.clock_rate.into())?;
                sampled.saturating_add(micros)
            }
        };
        let delay = micros_since(self.epoch, now).saturating_sub(sampled);
        let before = self.last.replace((timestamp, sampled, delay)).map_or(delay, |(_, _, delay)| delay);
        if delay.abs_diff(before) > LEAP_MICROS.unsigned_abs() {
            (self.base, self.base_before) = (None, None);
        }
        if now.saturating_duration_since(self.base_since) >= BASE_WINDOW {
            (self.base_before, self.base, self.base_since) = (self.base, None, now);
        }
        let base = self.base.map_or(delay, |base| base.min(delay));
        self.base = Some(base);
        let least = self.base_before.map_or(base, |before| before.min(base));
        Some(Duration::from_micros(u64::try_from(delay.saturating_sub(least)).unwrap_or(0)))
    }
}

/// A receiver's estimate of the rate.
#[derive(Debug)]
pub struct ReceivedRate {
    epoch: Instant,
    meter: RateMeter,
    /// Time of the last report.
    since: Instant,
    /// Bytes received since the last report.
    bytes: u64,
    estimate: f64,
    max: f64,
    /// Shortest queue since the last report.
    queue: Option<Duration>,
    /// Number of consecutive frames with a long queue.
    long_queues: u32,
    /// Rate received while there was a queue, which is the rate of the path.
    carried: Option<f64>,
    /// Sending rate, and loss in thousandths, when the sender was first requested to send less because of loss.
    cut: Option<(f64, u16)>,
    /// Loss attributed to the path, in thousandths.
    own_loss: u16,
    /// Time at which the sender was first told to send less because of a queue, and the length of that queue.
    drain: Option<(Instant, Duration)>,
    /// Length of the queue that did not shrink, and is therefore attributed to the path.
    own_queue: Duration,
}

impl ReceivedRate {
    /// Creates the estimator; its estimate never exceeds `max` bits per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an estimate: 53 bits are enough")]
    pub fn new(now: Instant, max: u64) -> Self {
        Self {
            epoch: now,
            meter: RateMeter::default(),
            since: now,
            bytes: 0,
            estimate: FIRST,
            max: max as f64,
            queue: None,
            long_queues: 0,
            carried: None,
            cut: None,
            own_loss: 0,
            drain: None,
            own_queue: Duration::ZERO,
        }
    }

    /// Counts a received packet.
    pub fn handle_packet(&mut self, now: Instant, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.meter.add(micros_since(self.epoch, now), bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Records a frame that encountered a queue of this length.
    pub fn handle_queue(&mut self, queue: Duration) {
        self.queue = Some(self.queue.map_or(queue, |shortest| shortest.min(queue)));
        let is_long = queue.saturating_sub(self.own_queue) > URGENT_QUEUE;
        self.long_queues = if is_long { self.long_queues.saturating_add(1) } else { 0 };
    }

    /// True if the sender must learn of a long queue before the next report is due.
    #[must_use]
    pub fn is_urgent(&self, now: Instant) -> bool {
        let is_soon = now.saturating_duration_since(self.since) < URGENT_INTERVAL;
        self.long_queues >= URGENT_FRAMES && !is_soon
    }

    /// Returns the rate to report to the sender, once a second, or earlier if urgent. `loss` is the share of
    /// packets lost since the last report, in thousandths.
    pub fn report(&mut self, now: Instant, loss: u16) -> u64 {
        let queue = self.queue.take().unwrap_or_default();
        let micros = micros_since(self.since, now);
        let came = bits_per_second(self.bytes, micros);
        (self.since, self.bytes, self.long_queues) = (now, 0, 0);
        if let Some(rate) = self.meter.bits() {
            // After a long interval, the rate received in that interval counts, because the meter reacts slowly. A
            // short interval contains too few packets for that.
            let rate = if micros >= URGENT_MICROS { came } else { rate };
            self.own_loss -= self.own_loss.saturating_sub(loss) / 8;
            self.own_queue = self.own_queue.min(queue);
            if queue.saturating_sub(self.own_queue) > QUEUE_MAX {
                self.follow_queue(now, rate, queue);
            } else {
                self.drain = None;
                self.follow_loss(rate, loss);
            }
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two constants")]
        let told = self.estimate.clamp(LEAST, self.max.max(LEAST)) as u64;
        told
    }

    fn follow_queue(&mut self, now: Instant, rate: f64, queue: Duration) {
        let (began, stood) = *self.drain.get_or_insert((now, queue));
        if now.saturating_duration_since(began) >= DRAIN_TIME {
            self.drain = None;
            if queue.as_secs_f64() >= stood.as_secs_f64() * STAYS {
                self.own_queue = queue;
                return;
            }
        }
        let share = DRAIN - DRAIN_PER_SECOND * queue.as_secs_f64();
        self.estimate = self.estimate.min(rate * share.max(DRAIN_LEAST));
        self.carried = Some(rate);
    }

    fn follow_loss(&mut self, rate: f64, loss: u16) {
        // Loss of up to a quarter more than the path's own is within normal variation.
        match loss.saturating_sub(self.own_loss.saturating_add(self.own_loss / 4)) {
            LOSS_HIGH.. => {
                let share = f64::from(loss.min(1000)) / 1000.0;
                let sent = rate / (1.0 - share).max(0.01);
                match self.cut {
                    Some((before, lost)) if sent < before * LOWER => {
                        let stays = loss <= OWN_LOSS_MAX && f64::from(loss) >= f64::from(lost) * STAYS;
                        self.cut = if stays { None } else { Some((sent, loss)) };
                        if stays {
                            self.own_loss = loss;
                            return;
                        }
                    }
                    Some(_) => {}
                    None => self.cut = Some((sent, loss)),
                }
                self.estimate = self.estimate.min(rate * (1.0 - share / 2.0));
            }
            ..LOSS_LOW => {
                self.cut = None;
                let most = (rate * HEADROOM + HEADROOM_BITS).max(FIRST);
                self.estimate = (self.estimate * self.growth()).min(most);
            }
            _ => {}
        }
    }

    /// Returns the growth factor, which is small near the rate at which there was a queue. If the estimate
    /// clearly exceeds that rate, the path carries more than before, and the rate is forgotten.
    fn growth(&mut self) -> f64 {
        let share = self.carried.map_or(0.0, |carried| self.estimate / carried.max(1.0));
        if share >= NEAR.end {
            self.carried = None;
        }
        if NEAR.contains(&share) { GROWTH_NEAR } else { GROWTH }
    }
}
