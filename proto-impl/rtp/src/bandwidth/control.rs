//! The sending rate derived from feedback: it increases as long as there is no sign of congestion, and drops to
//! the measured rate of the path otherwise.

use std::time::{Duration, Instant};

use super::delay::Usage;
use super::loss::{Losses, Verdict};
use super::queue::{Queue, Trend};
use super::{ESTIMATE_MAX, ESTIMATE_MIN};

/// Assumed rate of a path before any feedback, in bits per second. Low enough that the first round trip does
/// not fill the queue of a mobile path. While everything arrives, the rate doubles every round trip, so the
/// rate of a path of 10 Mb/s is known after three round trips.
const FIRST: f64 = 1_500_000.0;
/// Part of the measured rate to which the rate is set when a queue grows. (The draft, §5.5, uses 0.85. Here the
/// measured rate is that of the bottleneck, and [`RateControl::target`] drains the queue.)
const BACKOFF: f64 = 0.92;
/// Growth factors near the rate that the path carried before: per second, and the maximum per round trip.
const GROWTH_NEAR: (f64, f64) = (1.07, 1.03);
/// Growth factors far from the rate that the path carried before: per second, and the maximum per round trip.
const GROWTH: (f64, f64) = (2.0, 1.15);
/// A rate counts as near the rate that the path carried before if the ratio of both is in this range.
const NEAR: (f64, f64) = (0.8, 1.08);
/// Growth factor per round trip at the start, and after a silence.
const GROWTH_FIRST: f64 = 2.0;
/// Minimum duration counted as a round trip, in seconds, because feedback comes ten times a second.
const ROUND_TRIP_MIN: f64 = 0.2;
/// Maximum estimate as a multiple of the highest rate sent recently.
const HEADROOM: f64 = 1.5;
/// Bits per second added to the maximum that [`HEADROOM`] gives.
const HEADROOM_BITS: f64 = 10_000.0;
/// Minimum time between two reactions to the same queue.
const BACKOFF_INTERVAL: Duration = Duration::from_millis(300);
/// Queue in microseconds that counts as congestion even if it does not grow.
const QUEUE_STANDS: i64 = 25_000;
/// Length of the queue, in microseconds, from which on losses count as overflow of the queue.
const QUEUE_DROPS: i64 = 5_000;
/// Loss that counts as congestion if there is a queue, in thousandths. Loss that does not depend on the rate is
/// excluded.
const LOSS_WITH_QUEUE: u16 = 30;
/// Loss that counts as congestion without a queue, in thousandths. Loss that does not depend on the rate is excluded.
const LOSS_ALONE: u16 = 100;
/// A sender that exceeds the allowed rate by less than this factor counts as obeying it.
const OBEYS: f64 = 1.1;
/// Maximum loss that is taken to be independent of the rate, in thousandths.
const OWN_LOSS_MAX: u16 = 500;
/// A trial reduces the rate by this multiple of the share of packets lost. If a full path causes the losses, about two
/// thirds of them then disappear.
const TRIAL_SHARE: f64 = 0.75;
/// Length of a queue, in seconds, at which only half of the rate is sent, so that the other half drains the
/// queue.
const DRAIN_HALF: f64 = 0.4;
/// Minimum part of the rate that is still sent while a queue drains.
const DRAIN_MIN: f64 = 0.15;
/// Time after the first feedback during which losses without a queue are ignored.
const YOUNG_FOR: Duration = Duration::from_millis(1500);
/// Time after the last sign of congestion during which the path counts as limiting the rate.
const BOUNDED_FOR: Duration = Duration::from_secs(10);
/// The path has room if the allowed rate exceeds the rate being sent by this factor.
const ROOM: f64 = 1.3;
/// Time for which the path must have room to end the start phase.
const BEGINS_FOR: Duration = Duration::from_secs(1);
/// Time for which the path must have room before the limit is lifted, after the start phase.
const ROOMY_FOR: Duration = Duration::from_secs(5);

/// Summary of a batch of feedback.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) usage: Option<Usage>,
    /// Number of the newest packet that the batch covers.
    pub(super) newest: u64,
    /// Number of the next packet to be sent.
    pub(super) next: u64,
    /// Rate at which packets arrive, in bits per second, including packets without a transport-wide number.
    pub(super) delivered: Option<f64>,
    /// Rate at which a queue drains, in bits per second.
    pub(super) drains: Option<f64>,
    /// Highest recent rate at which packets were sent, in bits per second, including packets without a
    /// transport-wide number.
    pub(super) leaving: f64,
    /// Rate at which packets are currently sent, in bits per second.
    pub(super) leaving_now: f64,
    /// Time from the departure of a packet to its feedback.
    pub(super) round_trip: Duration,
}

/// Rate control of a path, described in the module.
#[derive(Debug)]
pub(super) struct RateControl {
    rate: f64,
    /// Rate that the path carried when it was last full; `None` if unknown or no longer valid.
    capacity: Option<f64>,
    /// True while nothing is known about the path, at the start or after a silence: growth is fast.
    begins: bool,
    /// Time of the first feedback.
    began: Option<Instant>,
    updated: Option<Instant>,
    backed_off: Option<Instant>,
    /// Number of the first packet sent after the last reaction to congestion. Feedback about earlier packets does not
    /// reflect that reaction.
    reacted: u64,
    /// Last time at which the path was seen to limit the rate.
    bounded: Option<Instant>,
    /// Part of the rate that is used while a queue drains.
    drain: f64,
    /// Time since which the rate being sent has been clearly below the allowed rate.
    roomy: Option<Instant>,
    /// Rate before the first reaction to the current queue; `None` if there is no queue.
    before: Option<f64>,
    /// Rate at which the current queue drains, in bits per second.
    drains: f64,
}

impl RateControl {
    pub(super) const fn new() -> Self {
        Self {
            rate: FIRST,
            capacity: None,
            begins: true,
            began: None,
            updated: None,
            backed_off: None,
            reacted: 0,
            bounded: None,
            drain: 1.0,
            roomy: None,
            before: None,
            drains: 0.0,
        }
    }

    pub(super) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the rate to send, reduced while a queue drains.
    pub(super) fn target(&self) -> f64 {
        (self.rate * self.drain).max(ESTIMATE_MIN)
    }

    pub(super) const fn begins(&self) -> bool {
        self.begins
    }

    pub(super) const fn is_bounded(&self) -> bool {
        self.bounded.is_some()
    }

    /// Handles the result of a probe: the rate that the path carried.
    pub(super) fn probed(&mut self, carried: f64) {
        if carried > self.rate {
            self.set(carried);
            self.capacity = self.capacity.filter(|capacity| carried < 1.15 * capacity);
        }
    }

    /// Restarts after a silence: reduces the rate by `factor` and measures the path anew.
    pub(super) fn was_silent(&mut self, now: Instant, factor: f64, next: u64) {
        self.set(self.rate * factor);
        self.reacted = next;
        (self.begins, self.bounded, self.capacity) = (true, Some(now), None);
    }

    /// Handles a receiver report, which is used while there is no transport-wide feedback. `loss` is in thousandths.
    pub(super) fn reported(&mut self, now: Instant, loss: u16, leaving: f64) {
        if loss > LOSS_ALONE {
            self.begins = false;
            self.bounded = Some(now);
            self.set(self.rate.min(leaving.max(ESTIMATE_MIN)) * (1.0 - f64::from(loss.min(1000)) / 2000.0));
        } else {
            let factor = if self.begins { GROWTH_FIRST } else { GROWTH_NEAR.0 };
            self.set((self.rate * factor).min(tried(leaving).max(self.rate)));
        }
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(ESTIMATE_MIN, ESTIMATE_MAX);
    }

    /// Updates the rate from a batch of feedback. Returns true if it indicates congestion.
    pub(super) fn update(
        &mut self,
        now: Instant,
        batch: &Batch,
        (queue, losses): (&mut Queue, &mut Losses),
        at: i64,
    ) -> bool {
        let took = self.updated.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.began.get_or_insert(now);
        // A sender that does not reduce its rate cannot know what a reduction would achieve.
        let obeys = batch.leaving_now <= OBEYS * self.rate;
        let trend = queue.watch(at, self.drained(batch, took), obeys);
        let waits = queue.micros();
        self.drain = drain(waits);
        if waits == 0 {
            losses.without_queue();
            // If the supposed queue turned out to be delay of the path, there was no congestion, so the rate from
            // before the reaction is restored.
            let before = self.before.take().filter(|_| trend == Trend::Path);
            self.set(before.map_or(self.rate, |before| before.max(self.rate)));
        }
        let grows = batch.usage == Some(Usage::Over) && waits > 0;
        let stands = waits > QUEUE_STANDS && matches!(trend, Trend::Stands | Trend::Grows);
        let drops = losses.excess() > LOSS_WITH_QUEUE && waits > QUEUE_DROPS && trend != Trend::Drains;
        let is_sign = grows || stands || drops;
        if is_sign {
            self.react(now, batch, (trend, losses));
        } else if let Some(verdict) = losses.verdict(obeys) {
            self.bounded = Some(now);
            match verdict {
                Verdict::Path(before) => self.set(before.max(self.rate)),
                Verdict::Congestion(carried) => {
                    losses.begin(batch.next);
                    self.capacity = Some(carried);
                    self.set(self.rate.max(BACKOFF * carried));
                }
            }
        } else if losses.excess() > LOSS_ALONE && !self.is_young(now, waits) {
            if !losses.is_tried() && batch.newest >= self.reacted {
                self.try_less(now, batch, losses);
            }
        } else if waits == 0 && batch.newest >= self.reacted && !losses.is_tried() {
            self.grow(batch, took.min(Duration::from_secs(1)).as_secs_f64());
        }
        self.unbind(now, batch);
        is_sign || waits > QUEUE_STANDS
    }

    /// True while losses are still ignored: browsers drop some of the first packets while their decoders start.
    fn is_young(&self, now: Instant, waits: i64) -> bool {
        let is_first = |at: Instant| now.saturating_duration_since(at) < YOUNG_FOR;
        self.begins && waits == 0 && self.began.is_none_or(is_first)
    }

    /// Returns by how many microseconds the queue must have become shorter during `took`, because less was sent than
    /// the path drains.
    #[allow(clippy::cast_possible_truncation, reason = "a part of a time of seconds")]
    fn drained(&self, batch: &Batch, took: Duration) -> i64 {
        if self.before.is_none() || batch.newest < self.reacted {
            return 0;
        }
        let less = (1.0 - batch.leaving_now / self.drains.max(1.0)).clamp(0.0, 1.0);
        (took.as_secs_f64() * less * 1e6) as i64
    }

    fn react(&mut self, now: Instant, batch: &Batch, (trend, losses): (Trend, &mut Losses)) {
        self.bounded = Some(now);
        let is_soon = |at: Instant| now.saturating_duration_since(at) < BACKOFF_INTERVAL;
        let is_new = batch.newest >= self.reacted && !self.backed_off.is_some_and(is_soon);
        let Some(carries) = batch.drains.or(batch.delivered) else { return };
        // Packets that the path loses before its queue do not use the capacity of the bottleneck. So the sending rate
        // may exceed the carried rate by the share of these packets.
        let carries = carries / (1.0 - f64::from(losses.own().min(OWN_LOSS_MAX)) / 1000.0);
        if is_new {
            (self.backed_off, self.reacted) = (Some(now), batch.next);
            losses.begin(batch.next);
        }
        // Measurements become more precise until the reaction takes effect, so each one replaces the former.
        self.begins = false;
        self.capacity = Some(carries);
        // If the supposed queue is only delay of the path, `carries` is the sending rate, already reduced. Therefore
        // the first value is kept unless the queue has grown since.
        if self.before.is_none() || trend == Trend::Grows || batch.newest < self.reacted && !is_new {
            self.drains = carries;
        }
        self.before.get_or_insert(self.rate);
        self.set(self.rate.min(BACKOFF * carries));
    }

    /// Starts a trial: sends less, to see whether the losses decrease.
    fn try_less(&mut self, now: Instant, batch: &Batch, losses: &mut Losses) {
        let lost = f64::from(losses.recent()) / 1000.0;
        losses.begin_trial(batch.next, self.rate, batch.delivered.unwrap_or(0.0));
        (self.begins, self.bounded, self.reacted) = (false, Some(now), batch.next);
        self.set(self.rate.min(batch.leaving) * (1.0 - TRIAL_SHARE * lost));
    }

    fn grow(&mut self, batch: &Batch, seconds: f64) {
        let round_trip = batch.round_trip.as_secs_f64().max(ROUND_TRIP_MIN);
        if self.begins {
            // Without a queue, everything sent arrives, so the rate sent counts too: it is known earlier than the rate
            // delivered.
            let most = GROWTH_FIRST * batch.delivered.unwrap_or(0.0).max(batch.leaving_now);
            let grown = self.rate * GROWTH_FIRST.powf(seconds / round_trip);
            self.set(grown.min(most.max(self.rate)));
            return;
        }
        if self.capacity.is_some_and(|capacity| self.rate > NEAR.1 * capacity) {
            self.capacity = None;
        }
        let near = self.capacity.is_some_and(|capacity| self.rate > NEAR.0 * capacity);
        let (each_second, each_round) = if near { GROWTH_NEAR } else { GROWTH };
        let growth = each_second.powf(seconds).min(each_round.powf(seconds / round_trip));
        self.set((self.rate * growth).min(tried(batch.leaving_now).max(self.rate)));
    }

    /// Lifts the limit once the path has carried everything for long enough; ends the start phase once the path
    /// has room.
    fn unbind(&mut self, now: Instant, batch: &Batch) {
        let lasts =
            |since: Option<Instant>, time| since.is_some_and(|at| now.saturating_duration_since(at) >= time);
        let has_room = self.rate >= ROOM * batch.leaving && batch.delivered.is_some();
        self.roomy = self.roomy.or(Some(now)).filter(|_| has_room);
        if self.begins && lasts(self.roomy, BEGINS_FOR) {
            self.begins = false;
            self.set(self.rate.min(tried(batch.leaving)));
        }
        if lasts(self.roomy, ROOMY_FOR) && lasts(self.bounded, BOUNDED_FOR) {
            self.bounded = None;
        }
    }
}

/// Returns the maximum estimate if `leaving` is the highest rate tested.
pub(super) fn tried(leaving: f64) -> f64 {
    HEADROOM * leaving + HEADROOM_BITS
}

/// Returns the part of the rate to use while the queue has this length in microseconds.
#[allow(clippy::cast_precision_loss, reason = "distances of seconds")]
fn drain(micros: i64) -> f64 {
    let seconds = micros as f64 / 1e6;
    (DRAIN_HALF / (DRAIN_HALF + seconds)).max(DRAIN_MIN)
}
