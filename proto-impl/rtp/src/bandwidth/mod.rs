//! How much a path carries, as the sender of media learns it: from transport-wide feedback after Google Congestion Control
//! (draft-ietf-rmcat-gcc-02), and from what receivers estimate themselves (REMB).
//!
//! ```text
//!     packets that leave -> numbers, times      SentLog
//!     feedback -> delays between groups         DelayDetector: normal, overuse, underuse
//!              -> what came, what was lost      RateMeter, Loss
//!     both     -> bits per second               BandwidthEstimator
//! ```
//!
//! What is sent is a stream that comes as it is, and often far below what the path carries. So the estimate is bounded by
//! what was tried: half as much again as what is sent. Who wants to know about more has a probe sent
//! ([`BandwidthEstimator::begin_probe`]).

mod delay;
mod rate;
mod received;
mod sent;

use std::time::{Duration, Instant};

use crate::rtcp::TransportFeedback;
use delay::{DelayDetector, Usage};
use rate::RateMeter;
pub use received::{QueueDelay, ReceivedRate};
use sent::SentLog;

/// The lowest estimate, in bits per second.
const ESTIMATE_MIN: f64 = 50_000.0;
/// The highest.
const ESTIMATE_MAX: f64 = 1e9;
/// What is left of the delivered rate when queues grow (§5.5 of the draft).
const BACKOFF: f64 = 0.85;
/// Growth in a second without queues (§5.5 of the draft).
const GROWTH: f64 = 1.08;
/// How far the estimate goes beyond what was tried.
const HEADROOM: f64 = 1.5;
const HEADROOM_BITS: f64 = 10_000.0;
/// Between two reactions to the same queue.
const BACKOFF_INTERVAL: Duration = Duration::from_millis(300);
/// How long a path counts as congested behind the last sign of it.
const CONGESTED_FOR: Duration = Duration::from_secs(1);
/// A receiver's own estimate is forgotten when it was not repeated for so long.
const REMB_AGE_MAX: Duration = Duration::from_secs(10);
/// Above this loss, in thousandths, the path is taken to carry what came and no more (§6 of the draft).
const LOSS_HIGH: u16 = 100;
/// Below this one nothing is wrong.
const LOSS_LOW: u16 = 20;
/// Packets that loss is measured over.
const LOSS_SPAN: u64 = 50;
/// Packets of a feedback that are looked at: more than anybody has in flight.
const FEEDBACK_SPAN_MAX: usize = 2048;
/// A probe says nothing when fewer of its packets came.
const PROBE_PACKETS_MIN: u32 = 8;

/// The share of packets that is lost of late.
#[derive(Debug, Clone, Copy, Default)]
struct Loss {
    sent: u64,
    lost: u64,
    /// In thousandths.
    smoothed: u16,
}

impl Loss {
    fn add(&mut self, sent: u64, lost: u64) {
        self.sent = self.sent.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost);
        if self.sent >= LOSS_SPAN {
            let seen = self.lost.saturating_mul(1000) / self.sent;
            self.reported(u16::try_from(seen).unwrap_or(1000));
            (self.sent, self.lost) = (0, 0);
        }
    }

    fn reported(&mut self, thousandths: u16) {
        // Rounded up, so that a small loss does not vanish at once, and down to nothing in the end.
        self.smoothed =
            self.smoothed.saturating_add(thousandths).saturating_add(u16::from(thousandths > 0)) / 2;
    }
}

/// A probe on its way: which packets belong to it, and what came of them.
#[derive(Debug, Clone, Copy)]
struct Probe {
    first: u64,
    /// Behind its last packet, once it is over.
    end: Option<u64>,
    packets: u32,
    /// Bytes behind the first packet.
    bytes: u64,
    first_at: i64,
    last_at: i64,
}

/// What transport-wide feedback says.
#[derive(Debug)]
struct Feedback {
    epoch: Instant,
    sent: SentLog,
    delay: DelayDetector,
    /// What leaves, and what comes at the other end.
    leaving: RateMeter,
    delivered: RateMeter,
    /// Bits per second; `None` before the first feedback.
    rate: Option<f64>,
    /// The rate at which queues began to grow, smoothed.
    capacity: Option<f64>,
    updated: Option<Instant>,
    backed_off: Option<Instant>,
    probe: Option<Probe>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct BandwidthEstimator {
    feedback: Option<Box<Feedback>>,
    loss: Loss,
    reported: Option<(Instant, u64)>,
    congested: Option<Instant>,
}

impl BandwidthEstimator {
    /// Creates the state for a receiver that sends reports and, maybe, its own estimate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The receiver sends transport-wide feedback: packets are numbered from now on.
    pub fn number_packets(&mut self, now: Instant) {
        self.feedback = Some(Box::new(Feedback::new(now)));
    }

    /// Whether packets are numbered.
    #[must_use]
    pub const fn numbers_packets(&self) -> bool {
        self.feedback.is_some()
    }

    /// The number of a packet of so many bytes that leaves now.
    pub fn packet_sent(&mut self, now: Instant, bytes: usize) -> Option<u16> {
        let feedback = self.feedback.as_mut()?;
        let micros = micros_since(feedback.epoch, now);
        feedback.leaving.add(micros, u64::try_from(bytes).unwrap_or(u64::MAX));
        Some(feedback.sent.push(micros, bytes))
    }

    /// Which packets came, and when.
    pub fn handle_feedback(&mut self, now: Instant, told: &TransportFeedback<'_>) {
        let Some(feedback) = &mut self.feedback else { return };
        let (mut known, mut lost) = (0, 0);
        let mut usage = None;
        for arrival in told.arrivals().take(FEEDBACK_SPAN_MAX) {
            let Some(packet) = feedback.sent.take(arrival.number.value(), arrival.at_micros.is_some()) else {
                continue;
            };
            known += 1;
            let Some(arrived) = arrival.at_micros else {
                lost += 1;
                continue;
            };
            let bytes = u64::from(packet.bytes);
            feedback.delivered.add(arrived, bytes);
            feedback.note_probe(packet.number, arrived, bytes);
            // One sign of a queue counts, whatever comes behind it.
            let seen = feedback.delay.packet(packet.sent, arrived);
            usage = usage.filter(|usage| *usage == Usage::Over).or(seen).or(usage);
        }
        if known == 0 {
            return;
        }
        self.loss.add(known, lost);
        if feedback.update(now, usage, self.loss.smoothed) {
            self.congested = Some(now);
        }
        feedback.end_probe(told.base.plus(told.count).value());
    }

    /// A receiver report: of 256 packets so many were lost. Counts where there is no feedback.
    pub fn handle_report(&mut self, fraction_lost: u8) {
        if self.feedback.as_ref().is_none_or(|feedback| feedback.rate.is_none()) {
            self.loss.reported(u16::from(fraction_lost).saturating_mul(125) / 32);
        }
    }

    /// The receiver's own estimate (REMB), in bits per second.
    pub const fn handle_remb(&mut self, now: Instant, bits: u64) {
        self.reported = Some((now, bits));
    }

    /// Bits per second that the path carries, as far as it was tried. `None` before anything is known.
    #[must_use]
    pub fn estimate(&self, now: Instant) -> Option<u64> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two constants")]
        let ours = self.feedback.as_ref().and_then(|feedback| feedback.rate).map(|rate| rate as u64);
        let theirs = self.reported.filter(|(at, _)| now.saturating_duration_since(*at) < REMB_AGE_MAX);
        [ours, theirs.map(|(_, bits)| bits)].into_iter().flatten().min()
    }

    /// The share of packets that is lost of late, in thousandths.
    #[must_use]
    pub const fn loss(&self) -> u16 {
        self.loss.smoothed
    }

    /// Whether queues grew lately: what can be left out should be.
    #[must_use]
    pub fn is_congested(&self, now: Instant) -> bool {
        self.congested.is_some_and(|at| now.saturating_duration_since(at) < CONGESTED_FOR)
    }

    /// What is sent from now on, until [`Self::end_probe`], tries the path: the rate at which it arrives is carried.
    pub fn begin_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            let first = feedback.sent.next();
            feedback.probe = Some(Probe { first, end: None, packets: 0, bytes: 0, first_at: 0, last_at: 0 });
        }
    }

    /// The probe was sent.
    pub fn end_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            let end = feedback.sent.next();
            if let Some(probe) = &mut feedback.probe {
                probe.end.get_or_insert(end);
            }
        }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.feedback.as_ref().map_or(0, |feedback| size_of::<Feedback>() + feedback.sent.held_bytes())
    }
}

impl Feedback {
    fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            sent: SentLog::default(),
            delay: DelayDetector::new(),
            leaving: RateMeter::default(),
            delivered: RateMeter::default(),
            rate: None,
            capacity: None,
            updated: None,
            backed_off: None,
            probe: None,
        }
    }

    /// Moves the rate. True for a sign of congestion.
    fn update(&mut self, now: Instant, usage: Option<Usage>, loss: u16) -> bool {
        let took = self.updated.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let Some(delivered) = self.delivered.bits() else { return usage == Some(Usage::Over) };
        let rate = *self.rate.get_or_insert(delivered);
        // A queue that stands is as bad as one that grows.
        let usage = if self.delay.has_queue() { Some(Usage::Over) } else { usage };
        let may_back_off =
            self.backed_off.is_none_or(|at| now.saturating_duration_since(at) >= BACKOFF_INTERVAL);
        let new = match usage {
            Some(Usage::Over) if may_back_off => {
                self.backed_off = Some(now);
                self.capacity = Some(self.capacity.map_or(delivered, |known| 0.8 * known + 0.2 * delivered));
                rate.min(BACKOFF * delivered)
            }
            Some(Usage::Over | Usage::Under) => rate,
            _ if loss > LOSS_HIGH => {
                if may_back_off {
                    self.backed_off = Some(now);
                    rate.min(delivered)
                } else {
                    rate
                }
            }
            _ => self.grown(rate, took.min(Duration::from_secs(1)).as_secs_f64(), loss),
        };
        self.rate = Some(new.clamp(ESTIMATE_MIN, ESTIMATE_MAX));
        usage == Some(Usage::Over)
    }

    /// Without queues: by eight percent in a second, near the known capacity more slowly; and not beyond what was tried.
    fn grown(&mut self, rate: f64, seconds: f64, loss: u16) -> f64 {
        let near = self.capacity.is_some_and(|capacity| (0.9..1.1).contains(&(rate / capacity.max(1.0))));
        if self.capacity.is_some_and(|capacity| rate > 1.3 * capacity) {
            self.capacity = None;
        }
        let growth = if near || loss > LOSS_LOW { (GROWTH - 1.0) / 2.0 + 1.0 } else { GROWTH };
        let tried = HEADROOM * self.leaving.bits().unwrap_or(0.0) + HEADROOM_BITS;
        (rate * growth.powf(seconds)).min(tried.max(rate))
    }

    fn note_probe(&mut self, number: u64, arrived: i64, bytes: u64) {
        let Some(probe) = self.probe.as_mut().filter(|probe| number >= probe.first) else { return };
        if probe.end.is_some_and(|end| number >= end) {
            return;
        }
        if probe.packets == 0 {
            (probe.first_at, probe.last_at) = (arrived, arrived);
        } else {
            probe.bytes = probe.bytes.saturating_add(bytes);
            probe.last_at = probe.last_at.max(arrived);
        }
        probe.packets = probe.packets.saturating_add(1);
    }

    /// Feedback up to this number came: whether the probe is through, and what it says.
    fn end_probe(&mut self, behind: u16) {
        let Some(probe) = self.probe else { return };
        let Some(end) = probe.end.filter(|end| self.sent.widen(behind) >= *end) else { return };
        self.probe = None;
        let sent = u32::try_from(end.saturating_sub(probe.first)).unwrap_or(u32::MAX);
        let took = probe.last_at.saturating_sub(probe.first_at);
        // A fifth may be lost; more says that it did not fit.
        let is_whole =
            probe.packets >= PROBE_PACKETS_MIN && probe.packets.saturating_mul(5) >= sent.saturating_mul(4);
        if is_whole && took > 0 {
            let carried = rate::bits_per_second(probe.bytes, took);
            if self.rate.is_none_or(|rate| carried > rate) {
                self.rate = Some((carried * 0.95).clamp(ESTIMATE_MIN, ESTIMATE_MAX));
            }
        }
    }
}

fn micros_since(epoch: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(epoch).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
