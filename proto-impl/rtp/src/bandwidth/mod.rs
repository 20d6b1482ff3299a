//! Bandwidth of a path, estimated by the sender of media: from transport-wide feedback, based on Google
//! Congestion Control (draft-ietf-rmcat-gcc-02); from the receiver's own estimates (REMB); and from receiver
//! reports if there is no feedback.
//!
//! ```text
//!     packets sent -> numbers, times            SentLog
//!     feedback -> delays between groups         DelayDetector: normal, overuse, underuse
//!              -> delays beyond the shortest    Queue: its length, and how fast it drains
//!              -> arrivals and losses           RateMeter, Losses
//!              -> packets sent together         Pairs: hints at a path that has become wider
//!     all      -> bits per second               RateControl
//! ```
//!
//! The stream has its own rate, often far below that of the path. Therefore the estimate is limited to what was
//! tested: one and a half times the rate sent. To test higher rates, send a probe
//! ([`BandwidthEstimator::begin_probe`]).
//!
//! Implausible feedback is ignored: if its times jump, measuring restarts; numbers that were never sent are
//! skipped; and no estimate exceeds the rate sent by more than half.

mod control;
mod delay;
mod feedback;
mod loss;
mod pairs;
mod queue;
mod rate;
mod received;
mod reported;
mod sent;

use alloc::boxed::Box;
use std::time::{Duration, Instant};

use crate::rtcp::TransportFeedback;
pub use feedback::FEEDBACK_SPAN_MAX;
use feedback::Feedback;
use loss::Losses;
pub use received::{QueueDelay, ReceivedRate};
pub use reported::ReportedPath;

/// Minimum estimate, in bits per second.
const ESTIMATE_MIN: f64 = 50_000.0;
/// Maximum estimate, in bits per second.
const ESTIMATE_MAX: f64 = 1e9;
/// Time after the last sign of congestion for which a path counts as congested.
const CONGESTED_FOR: Duration = Duration::from_secs(1);
/// Age at which a receiver's own estimate is discarded.
const REMB_AGE_MAX: Duration = Duration::from_secs(10);

/// Recent loss in thousandths above which hints at a wider path are ignored, since a probe could not confirm
/// them.
const HINT_LOSS_MAX: u16 = 100;

/// Estimates bandwidth on the sending side, as described in the module.
#[derive(Debug, Default)]
pub struct BandwidthEstimator {
    feedback: Option<Box<Feedback>>,
    losses: Losses,
    reported: Option<(Instant, u64)>,
    congested: Option<Instant>,
}

impl BandwidthEstimator {
    /// Creates the estimator for a receiver without transport-wide feedback, which sends receiver reports and possibly
    /// its own estimate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Switches to transport-wide feedback: packets are numbered from now on.
    pub fn number_packets(&mut self, now: Instant) {
        self.feedback = Some(Box::new(Feedback::new(now)));
    }

    /// True if sent packets get transport-wide sequence numbers.
    #[must_use]
    pub const fn numbers_packets(&self) -> bool {
        self.feedback.is_some()
    }

    /// Counts a packet that is sent now, and returns its transport-wide sequence number; `None` if packets are
    /// not numbered.
    pub fn packet_sent(&mut self, now: Instant, bytes: usize) -> Option<u16> {
        Some(self.feedback.as_mut()?.packet_sent(now, bytes))
    }

    /// True if feedback reported the arrival of the packet with this transport-wide sequence number.
    #[must_use]
    pub fn has_arrived(&self, number: u16) -> bool {
        self.feedback.as_ref().is_some_and(|feedback| feedback.has_arrived(number))
    }

    /// Counts a packet that is sent on the same path without a transport-wide number.
    pub fn packet_apart(&mut self, now: Instant, bytes: usize) {
        if let Some(feedback) = &mut self.feedback {
            feedback.packet_apart(now, bytes);
        }
    }

    /// Applies transport-wide feedback.
    pub fn handle_feedback(&mut self, now: Instant, told: &TransportFeedback<'_>) {
        let Some(feedback) = &mut self.feedback else { return };
        if feedback.handle(now, told, &mut self.losses) {
            self.congested = Some(now);
        }
    }

    /// Applies a receiver report; `fraction_lost` is in 1/256. Reports are ignored while there is
    /// transport-wide feedback, which is more precise.
    pub fn handle_report(&mut self, now: Instant, fraction_lost: u8) {
        let loss = u16::from(fraction_lost).saturating_mul(125) / 32;
        let losses = &mut self.losses;
        let counts = self.feedback.as_mut().is_none_or(|feedback| feedback.handle_report(now, loss, losses));
        if counts {
            self.losses.reported(loss);
        }
    }

    /// Stores the receiver's own estimate (REMB), in bits per second.
    pub const fn handle_remb(&mut self, now: Instant, bits: u64) {
        self.reported = Some((now, bits));
    }

    /// Returns the estimated rate of the path in bits per second, limited to what was tested. `None` before any
    /// feedback.
    #[must_use]
    pub fn estimate(&self, now: Instant) -> Option<u64> {
        let ours = self.feedback.as_ref().and_then(|feedback| feedback.estimate());
        [ours.map(bits), self.told(now)].into_iter().flatten().min()
    }

    /// Returns the receiver's own estimate, unless it is outdated.
    fn told(&self, now: Instant) -> Option<u64> {
        let (at, told) = self.reported?;
        #[allow(clippy::cast_precision_loss, reason = "an estimate: 53 bits are enough")]
        (now.saturating_duration_since(at) < REMB_AGE_MAX).then(|| bits(told as f64))
    }

    /// Returns the rate that may be sent now, in bits per second: less than the estimate while a queue drains.
    /// `None` while nothing limits the rate: before any feedback, and on a path that has carried everything for
    /// long.
    #[must_use]
    pub fn target(&self, now: Instant) -> Option<u64> {
        let ours = self.feedback.as_ref().and_then(|feedback| feedback.target(now));
        // The receiver's estimate counts only if it is below the rate being sent.
        let leaving = self.feedback.as_ref().map_or(ESTIMATE_MAX, |feedback| feedback.leaving());
        let theirs = self.told(now).filter(|told| *told < bits(leaving));
        [ours.map(bits), theirs].into_iter().flatten().min()
    }

    /// Returns the rate at which packets may be sent, in bits per second: the target, or an assumed rate until
    /// the path is known.
    #[must_use]
    pub fn pace(&self, now: Instant) -> Option<u64> {
        let first = self.feedback.as_ref().and_then(|feedback| feedback.first(now));
        [self.target(now), first.map(bits)].into_iter().flatten().min()
    }

    /// Returns a rate above the estimate that is worth a probe, in bits per second: packets sent together
    /// arrive as if the path carried that rate. `None` without such a hint.
    #[must_use]
    pub fn hint(&self) -> Option<u64> {
        let feedback = self.feedback.as_ref().filter(|_| self.reads_pairs())?;
        feedback.hint().map(bits)
    }

    /// True if packets should be sent in pairs: the distance between the arrivals of a pair may hint at a
    /// wider path. False if the path loses a tenth of the packets, since a probe could then not confirm the
    /// hint.
    #[must_use]
    pub const fn reads_pairs(&self) -> bool {
        self.feedback.is_some() && self.losses.all() < HINT_LOSS_MAX
    }

    /// Share of packets recently lost, in thousandths.
    #[must_use]
    pub const fn loss(&self) -> u16 {
        self.losses.all()
    }

    /// Returns the share of packets that the path loses regardless of the sending rate, in thousandths. Without
    /// feedback, the causes of losses cannot be distinguished, so all losses count.
    #[must_use]
    pub fn path_loss(&self) -> u16 {
        let has_feedback = self.feedback.as_ref().is_some_and(|feedback| feedback.has_feedback());
        if has_feedback { self.losses.own() } else { self.losses.all() }
    }

    /// True if queues grew recently or feedback is missing: optional data should then be omitted.
    #[must_use]
    pub fn is_congested(&self, now: Instant) -> bool {
        self.congested.is_some_and(|at| now.saturating_duration_since(at) < CONGESTED_FOR)
            || self.feedback.as_ref().is_some_and(|feedback| feedback.is_silent())
    }

    /// Starts a probe: packets sent until [`Self::end_probe`] test the path, and the rate at which they arrive
    /// counts as carried.
    pub fn begin_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.begin_probe();
        }
    }

    /// Ends the probe; its feedback is still awaited.
    pub fn end_probe(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            feedback.close_probe();
        }
    }

    /// Returns the bytes of memory held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.feedback
            .as_ref()
            .map_or(0, |feedback| size_of::<Feedback>().saturating_add(feedback.held_bytes()))
    }
}

/// Converts a rate to an integer, limited to valid estimates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two constants")]
const fn bits(rate: f64) -> u64 {
    rate.clamp(ESTIMATE_MIN, ESTIMATE_MAX) as u64
}

fn micros_since(epoch: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(epoch).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
