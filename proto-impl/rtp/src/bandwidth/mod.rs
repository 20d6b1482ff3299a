//! The bandwidth of a path, as the sender of media learns it: from transport-wide feedback after Google Congestion Control
//! (draft-ietf-rmcat-gcc-02), from what receivers estimate themselves (REMB), and from reports where there is no feedback.
//!
//! ```text
//!     packets that leave -> numbers, times      SentLog
//!     feedback -> delays between groups         DelayDetector: normal, overuse, underuse
//!              -> delays beyond the shortest    Queue: what waits, and how fast it drains
//!              -> what came, what was lost      RateMeter, Losses
//!     both     -> bits per second               RateControl
//! ```
//!
//! The sent stream comes as it is, and often far below what the path carries. So the estimate is bounded by
//! what was tried: half as much again as what is sent. Who wants to know about more has a probe sent
//! ([`BandwidthEstimator::begin_probe`]).
//!
//! Nothing is believed of feedback but what can be: times that leap begin anew, numbers that were never sent are passed over,
//! and no rate is above what leaves by more than half.

mod control;
mod delay;
mod feedback;
mod loss;
mod queue;
mod rate;
mod received;
mod sent;

use std::time::{Duration, Instant};

use crate::rtcp::TransportFeedback;
use feedback::Feedback;
use loss::Losses;
pub use received::{QueueDelay, ReceivedRate};

/// The lowest estimate, in bits per second.
const ESTIMATE_MIN: f64 = 50_000.0;
/// The highest.
const ESTIMATE_MAX: f64 = 1e9;
/// The time after the last sign of congestion for which a path counts as congested.
const CONGESTED_FOR: Duration = Duration::from_secs(1);
/// A receiver's own estimate is forgotten when it was not repeated for so long.
const REMB_AGE_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub struct BandwidthEstimator {
    feedback: Option<Box<Feedback>>,
    losses: Losses,
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
        Some(self.feedback.as_mut()?.packet_sent(now, bytes))
    }

    /// A packet of so many bytes that leaves without a number, by the same path.
    pub fn packet_apart(&mut self, now: Instant, bytes: usize) {
        if let Some(feedback) = &mut self.feedback {
            feedback.packet_apart(now, bytes);
        }
    }

    /// Takes feedback on the packets that came, and when.
    pub fn handle_feedback(&mut self, now: Instant, told: &TransportFeedback<'_>) {
        let Some(feedback) = &mut self.feedback else { return };
        if feedback.handle(now, told, &mut self.losses) {
            self.congested = Some(now);
        }
    }

    /// A receiver report: of 256 packets so many were lost. Of feedback more is known; where it is silent, reports count.
    pub fn handle_report(&mut self, now: Instant, fraction_lost: u8) {
        let loss = u16::from(fraction_lost).saturating_mul(125) / 32;
        let losses = &mut self.losses;
        let counts = self.feedback.as_mut().is_none_or(|feedback| feedback.handle_report(now, loss, losses));
        if counts {
            self.losses.reported(loss);
        }
    }

    /// The receiver's own estimate (REMB), in bits per second.
    pub const fn handle_remb(&mut self, now: Instant, bits: u64) {
        self.reported = Some((now, bits));
    }

    /// Bits per second that the path carries, as far as it was tried. `None` before anything is known.
    #[must_use]
    pub fn estimate(&self, now: Instant) -> Option<u64> {
        let ours = self.feedback.as_ref().and_then(|feedback| feedback.estimate());
        [ours.map(bits), self.told(now)].into_iter().flatten().min()
    }

    /// Estimate of the receiver, while it repeats it.
    fn told(&self, now: Instant) -> Option<u64> {
        let (at, told) = self.reported?;
        #[allow(clippy::cast_precision_loss, reason = "an estimate: 53 bits are enough")]
        (now.saturating_duration_since(at) < REMB_AGE_MAX).then(|| bits(told as f64))
    }

    /// Bits per second that may be sent now: less than the estimate while a queue drains. `None` while nothing bounds what is
    /// sent: before anything is known, and on a path that has carried all of it for long.
    #[must_use]
    pub fn target(&self, now: Instant) -> Option<u64> {
        let ours = self.feedback.as_ref().and_then(|feedback| feedback.target(now));
        // What is told bounds when it is below what leaves.
        let leaving = self.feedback.as_ref().map_or(ESTIMATE_MAX, |feedback| feedback.leaving());
        let theirs = self.told(now).filter(|told| *told < bits(leaving));
        [ours.map(bits), theirs].into_iter().flatten().min()
    }

    /// Bits per second at which packets may leave: the target, and before it is known what a path is thought to carry.
    #[must_use]
    pub fn pace(&self, now: Instant) -> Option<u64> {
        let first = self.feedback.as_ref().and_then(|feedback| feedback.first(now));
        [self.target(now), first.map(bits)].into_iter().flatten().min()
    }

    /// The share of packets that is lost of late, in thousandths.
    #[must_use]
    pub const fn loss(&self) -> u16 {
        self.losses.all()
    }

    /// The part of it that the path loses however little is sent; all of it where there is no feedback to tell
    /// them apart.
    #[must_use]
    pub fn path_loss(&self) -> u16 {
        let has_feedback = self.feedback.as_ref().is_some_and(|feedback| feedback.has_feedback());
        if has_feedback { self.losses.own() } else { self.losses.all() }
    }

    /// Whether queues grew lately, or nothing is heard: what can be left out should be.
    #[must_use]
    pub fn is_congested(&self, now: Instant) -> bool {
        self.congested.is_some_and(|at| now.saturating_duration_since(at) < CONGESTED_FOR)
            || self.feedback.as_ref().is_some_and(|feedback| feedback.is_silent())
    }

    /// Begins a probe: packets that are sent until [`Self::end_probe`] try the path, and the rate at which they arrive is carried.
    pub fn begin_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.begin_probe();
        }
    }

    /// The probe was sent.
    pub fn end_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.close_probe();
        }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.feedback
            .as_ref()
            .map_or(0, |feedback| size_of::<Feedback>().saturating_add(feedback.held_bytes()))
    }
}

/// A rate as a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two constants")]
const fn bits(rate: f64) -> u64 {
    rate.clamp(ESTIMATE_MIN, ESTIMATE_MAX) as u64
}

fn micros_since(epoch: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(epoch).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
