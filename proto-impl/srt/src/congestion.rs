//! Live congestion control. Estimates from acknowledgements how much a narrow path carries, and slows down before the
//! queues of the path overflow. (libsrt's live congestion control, draft-sharabayko-srt-01 §5.1, sends at the rate of
//! its input, regardless of what arrives.)
//!
//! Time is divided into rounds of a round trip, but of at least [`ROUND_MIN_US`]. A round measures:
//!
//! - the *delay*, from the departure of a packet to its acknowledgement. Packets that were retransmitted, or that had
//!   to wait for a missing packet, are not measured. The excess of a delay over the shortest of the last [`BASE_US`] is
//!   the queue of the path;
//! - the *rate* at which packets were acknowledged;
//! - the share of packets that the peer reported as lost.
//!
//! The path counts as full when the queue exceeds [`QUEUE_MAX_US`] during a whole round, or when packets are
//! lost while there is a queue. The limit is then set to the rate that the path has just delivered, and
//! sending stays below it until the queue is empty. After that the limit grows, slowly at first, as long as packets
//! wait because of it. There is no limit before the path is first found to be full, and the limit is lifted when it has
//! held back no packet for [`RELEASE_US`].
//!
//! Losses without a queue can have three causes: a queue that was full before the first delay was measured, a
//! short queue, or the path itself. A [`Trial`] distinguishes them by sending less for a while. If the losses
//! decrease, a queue caused them. Otherwise the former limit is restored, and such losses start no trial for
//! [`OWN_US`].

use std::collections::VecDeque;

use crate::arq::send::Acked;
use crate::packet::AckFigures;

/// Minimum duration of a round. Acknowledgements arrive every 10 ms.
const ROUND_MIN_US: i64 = 100_000;
/// Maximum duration of a round, even if the round trip is longer.
const ROUND_MAX_US: i64 = 1_000_000;
/// Minimum number of delays in a round that prove a queue. If there are fewer, the smoothed round trip must confirm the
/// queue.
const DELAYS_MIN: u32 = 3;
/// Number of the latest rounds from which the rate of the path is taken.
const ROUNDS: usize = 8;
/// Longest acceptable queue, in microseconds that it takes to drain: less than the default latency of a receiver.
const QUEUE_MAX_US: u32 = 80_000;
/// Longest queue that counts as empty: the interval of acknowledgements plus some jitter.
const QUEUE_NONE_US: u32 = 30_000;
/// Share of losses in the last rounds, in thousandths. Above it, the path counts as full even with a queue of only
/// `LOSS_QUEUE_US`, because a short queue overflows early.
const LOSS_SHARE: u64 = 150;
const LOSS_QUEUE_US: u32 = 40_000;
/// Minimum number of losses in a round from which a burst is assumed to have overflowed a queue, if the queue was too
/// long only for a moment.
const BURST_LOSSES_MIN: u64 = 3;
/// Share of losses in one round, in thousandths, from which on a burst is assumed to have overflowed a short queue.
/// Delays do not show such a queue, because the peer acknowledges only after the lost packets have been retransmitted.
const BURST_SHARE: u64 = 300;
/// Minimum number of losses before their share is evaluated.
const LOSSES_MIN: u64 = 10;
/// Number of rounds in a trial.
const TRIAL_ROUNDS: u32 = 10;
/// Number of rounds at the start of a trial that do not count, because they still report on packets sent before the
/// trial.
const TRIAL_SKIPS: u32 = 4;
/// Time for which losses that were found to be caused by the path itself start no new trial, even if they
/// increase by half.
const OWN_US: i64 = 30_000_000;
/// Interval over which the shortest delay is measured. The current interval and the one before it count.
const BASE_US: i64 = 10_000_000;
/// Limit set when the path is full, in percent of the delivered rate.
const TAKEN_PERCENT: u64 = 95;
/// Limit while the queue drains, in percent of the limit set when the path is full.
const DRAIN_PERCENT: u64 = 75;
/// Minimum time in microseconds that a queue is given to become shorter before the limit is halved. A longer queue is
/// given [`DRAIN_ROUNDS`] times its length.
const DRAIN_US: i64 = 500_000;
/// A queue is given this many times its length to drain, but at least [`DRAIN_US`].
const DRAIN_ROUNDS: i64 = 3;
/// If the delay has not fallen after this many halvings, the path is assumed to have become longer.
const HALVINGS: u32 = 3;
/// Upper limit of the path's rate, in percent of the rate that the receiver reports. The report is an average or a
/// median, so the path may carry this much.
const REPORTED_PERCENT: u64 = 120;
/// Initial growth of the limit in percent per second. The growth doubles whenever one second and two round trips have
/// passed.
const GROWTH_MIN: u64 = 6;
/// Maximum growth of the limit in percent per second.
const GROWTH_MAX: u64 = 100;
/// Share of a round, in percent, during which packets must wait to show that the stream needs more than the limit.
/// Below that, single packets only wait for their turn, as at any limit.
const WAITED_PERCENT: i64 = 45;
/// Growth of the limit in percent per second if packets waited in at most half of the last rounds: then only bursts
/// need more than the limit.
const GROWTH_AMPLE: u64 = 3;
/// Time without a waiting packet after which the limit is lifted.
const RELEASE_US: i64 = 10_000_000;
/// Lowest limit, in bytes per second: telephone audio.
const LIMIT_MIN: u64 = 8_000;

/// Tracker of the shortest of the recent delays, in microseconds.
#[derive(Debug)]
struct Shortest {
    since_us: i64,
    current: u32,
    former: u32,
}

impl Shortest {
    const fn new() -> Self {
        Self { since_us: 0, current: u32::MAX, former: u32::MAX }
    }

    /// Adds a time. Returns how much longer it is than the shortest.
    fn above(&mut self, now_us: i64, sample: u32) -> u32 {
        if now_us.saturating_sub(self.since_us) >= BASE_US {
            *self = Self { since_us: now_us, current: u32::MAX, former: self.current };
        }
        self.current = self.current.min(sample);
        sample.saturating_sub(self.current.min(self.former))
    }

    const fn restart(&mut self, now_us: i64) {
        *self = Self { since_us: now_us, current: u32::MAX, former: u32::MAX };
    }
}

/// The current round.
#[derive(Debug, Default)]
struct Round {
    since_us: i64,
    bytes: u64,
    losses: Losses,
    /// Shortest delay among the `delays` measured in the round; `None` before the first.
    delay_us: Option<u32>,
    delays: u32,
    longest_us: u32,
    /// True if an acknowledgement covered a retransmitted packet. Such an acknowledgement does not show the rate of the
    /// path, because it also covers packets that the peer had held back until the retransmitted one arrived.
    is_mended: bool,
    /// Time in this round during which packets were held back by the rate limit.
    waited_us: i64,
}

/// Delivery rate of a round, in bytes per second.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    bytes: u64,
    us: u64,
    is_mended: bool,
    has_waited: bool,
    losses: Losses,
}

/// Returns a rate in bytes per second.
fn rate(bytes: u64, us: u64) -> u64 {
    bytes.saturating_mul(1_000_000) / us.max(1)
}

/// Start and progress of emptying the queue of a full path.
#[derive(Debug, Clone, Copy)]
struct Drain {
    since_us: i64,
    queue_us: u32,
    halvings: u32,
}

/// Numbers of packets delivered and lost in some rounds.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    packets: u64,
    lost: u64,
}

impl Losses {
    const fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            lost: self.lost.saturating_add(other.lost),
        }
    }

    /// Share of lost packets, in thousandths.
    fn share(self) -> u64 {
        self.lost.saturating_mul(1000) / self.lost.saturating_add(self.packets).max(1)
    }
}

/// A period of slower sending, which shows whether fewer packets are lost at a lower rate.
#[derive(Debug, Clone, Copy)]
struct Trial {
    rounds: u32,
    /// Share of losses before the trial.
    share: u64,
    former_limit: Option<u64>,
    losses: Losses,
}

/// Losses that were found to be caused by the path itself: their share, and the time until which this finding holds.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    share: u64,
    until_us: i64,
}

/// Rate limit of a connection; the module describes the algorithm.
#[derive(Debug)]
pub(crate) struct Congestion {
    round: Round,
    /// Recent rounds, the newest last.
    rounds: VecDeque<Delivered>,
    /// Receive rate that the peer reports, in bytes per second; 0 when it reports none.
    reported: u64,
    delay: Shortest,
    rtt: Shortest,
    limit: Option<u64>,
    drain: Option<Drain>,
    trial: Option<Trial>,
    own: Own,
    /// Time since which packets have been held back by the rate limit; `None` if no packet is held back.
    waits_since: Option<i64>,
    /// Time at which the path was last found to be full.
    full_us: i64,
    /// Time of the last round in which packets waited.
    waited_us: i64,
}

impl Congestion {
    pub(crate) fn new(now_us: i64) -> Self {
        Self {
            round: Round { since_us: now_us, ..Round::default() },
            rounds: VecDeque::with_capacity(ROUNDS),
            reported: 0,
            delay: Shortest::new(),
            rtt: Shortest::new(),
            limit: None,
            drain: None,
            trial: None,
            own: Own::default(),
            waits_since: None,
            full_us: now_us,
            waited_us: now_us,
        }
    }

    /// Returns the maximum sending rate in bytes per second, SRT headers included; `None` if the rate is not limited.
    pub(crate) fn rate(&self) -> Option<u64> {
        let percent = if self.drain.is_some() { DRAIN_PERCENT } else { 100 };
        self.limit.map(|limit| limit.saturating_mul(percent) / 100)
    }

    /// Returns the bytes of memory that the recent rounds occupy.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.rounds.capacity() * size_of::<Delivered>()
    }

    /// Records whether packets are held back by the rate limit from now on.
    pub(crate) fn wait(&mut self, now_us: i64, waits: bool) {
        if let Some(since) = self.waits_since.take() {
            let waited = now_us.saturating_sub(since.max(self.round.since_us));
            self.round.waited_us = self.round.waited_us.saturating_add(waited.max(0));
        }
        self.waits_since = waits.then_some(now_us);
    }

    /// Counts packets that the peer has reported as lost.
    pub(crate) fn lost(&mut self, packets: u32) {
        let lost = &mut self.round.losses.lost;
        *lost = lost.saturating_add(u64::from(packets));
    }

    /// Handles an acknowledgement of the peer. `figures` is `None` for a light acknowledgement.
    #[inline]
    pub(crate) fn acked(&mut self, now_us: i64, acked: &Acked, figures: Option<AckFigures>) {
        let round = &mut self.round;
        round.bytes = round.bytes.saturating_add(acked.bytes);
        round.losses.packets = round.losses.packets.saturating_add(u64::try_from(acked.packets).unwrap_or(0));
        match acked.delay_us {
            Some(delay) => {
                round.delay_us = Some(round.delay_us.map_or(delay, |least| least.min(delay)));
                round.delays = round.delays.saturating_add(1);
                round.longest_us = round.longest_us.max(delay);
            }
            None => round.is_mended |= acked.packets > 0,
        }
        let Some(AckFigures { rtt_us, rate_bytes, .. }) = figures else { return };
        self.reported = u64::from(rate_bytes);
        let length = i64::from(rtt_us).clamp(ROUND_MIN_US, ROUND_MAX_US);
        if now_us.saturating_sub(round.since_us) >= length {
            self.end_round(now_us, rtt_us);
        }
    }

    fn end_round(&mut self, now_us: i64, rtt_us: u32) {
        self.wait(now_us, self.waits_since.is_some());
        let round = std::mem::replace(&mut self.round, Round { since_us: now_us, ..Round::default() });
        let elapsed_us = now_us.saturating_sub(round.since_us);
        let us = u64::try_from(elapsed_us).unwrap_or(0);
        if self.rounds.len() >= ROUNDS {
            self.rounds.pop_front();
        }
        let has_waited = round.waited_us.saturating_mul(100) > elapsed_us.saturating_mul(WAITED_PERCENT);
        let Round { bytes, is_mended, losses, .. } = round;
        self.rounds.push_back(Delivered { bytes, us, is_mended, has_waited, losses });
        if has_waited {
            self.waited_us = now_us;
        }
        let (queue, peak) = self.queue_of(now_us, &round, rtt_us);
        // Losses together with late acknowledgements show that a burst overflowed a queue, even if that queue was long
        // only for a moment of the round.
        let overflows = peak > QUEUE_MAX_US && losses.lost >= BURST_LOSSES_MIN;
        let is_lossy = self.is_lossy(now_us, losses);
        if queue > QUEUE_MAX_US || overflows || (is_lossy && queue > LOSS_QUEUE_US) {
            self.slow_down(now_us, queue);
        } else if self.trial.is_some() {
            self.try_on(now_us, losses);
        } else if is_lossy {
            self.begin_trial(now_us, queue);
        } else if queue < QUEUE_NONE_US && peak <= QUEUE_MAX_US {
            self.speed_up(now_us, us, has_waited);
        }
        self.look_at_drain(now_us, queue);
    }

    /// Returns the queue of the path during a round, and its peak, both in microseconds. A burst fills a
    /// queue only for a moment.
    fn queue_of(&mut self, now_us: i64, round: &Round, rtt_us: u32) -> (u32, u32) {
        let by_rtt = self.rtt.above(now_us, rtt_us);
        let Some(shortest) = round.delay_us else { return (by_rtt, 0) };
        let by_delay = self.delay.above(now_us, shortest);
        let peak = by_delay.saturating_add(round.longest_us.saturating_sub(shortest));
        // A single delay may be too long because its acknowledgement was lost and sent again.
        let queue = if round.delays >= DELAYS_MIN { by_delay } else { by_delay.min(by_rtt) };
        (queue, peak)
    }

    /// Mean delivery rate over the last rounds, bytes per second.
    fn mean_rate(&self) -> u64 {
        let sum = |(bytes, us): (u64, u64), round: &Delivered| {
            (bytes.saturating_add(round.bytes), us.saturating_add(round.us))
        };
        let (bytes, us) = self.rounds.iter().fold((0, 0), sum);
        rate(bytes, us)
    }

    /// Estimates the rate of the path: the highest rate of the last rounds in which no packets waited for a
    /// retransmitted one, but at least the mean rate of all rounds.
    fn carried(&self) -> u64 {
        let together = self.mean_rate();
        let clean = self.rounds.iter().rev().take(ROUNDS / 2).filter(|round| !round.is_mended);
        let fastest = clean
            .map(|round| rate(round.bytes, round.us))
            .max()
            .map_or(together, |fastest| fastest.max(together));
        // The rate reported by the peer is an upper limit, because acknowledgements also cover packets that the peer
        // has given up.
        let reported = self.reported.saturating_mul(REPORTED_PERCENT) / 100;
        if reported > 0 { fastest.min(reported) } else { fastest }
    }

    fn slow_down(&mut self, now_us: i64, queue_us: u32) {
        self.full_us = now_us;
        if self.drain.is_some() {
            return;
        }
        let taken = (self.carried().saturating_mul(TAKEN_PERCENT) / 100).max(LIMIT_MIN);
        self.limit = Some(self.limit.map_or(taken, |limit| limit.min(taken)));
        self.drain = Some(Drain { since_us: now_us, queue_us, halvings: 0 });
        // A new limit counts as having held back packets just now, so that it is kept for at least `RELEASE_US`.
        self.waited_us = now_us;
    }

    fn speed_up(&mut self, now_us: i64, us: u64, has_waited: bool) {
        self.drain = None;
        let Some(limit) = self.limit else { return };
        if now_us.saturating_sub(self.waited_us) >= RELEASE_US {
            self.limit = None;
        } else if has_waited {
            // On a long path, a queue takes longer to become visible, so the growth doubles less often.
            let step = i64::try_from(us.saturating_mul(2)).unwrap_or(i64::MAX).saturating_add(1_000_000);
            let steps = u32::try_from(now_us.saturating_sub(self.full_us) / step).unwrap_or(0);
            let is_ample = self.rounds.iter().filter(|round| round.has_waited).count() <= ROUNDS / 2;
            let fast = GROWTH_MIN.saturating_mul(1 << steps.min(8)).min(GROWTH_MAX);
            let percent = if is_ample { GROWTH_AMPLE } else { fast };
            let more = limit.saturating_mul(percent).saturating_mul(us) / 100_000_000;
            self.limit = Some(limit.saturating_add(more.max(1)));
        }
    }

    fn losses(&self) -> Losses {
        self.rounds.iter().fold(Losses::default(), |sum, round| sum.add(round.losses))
    }

    /// True if the last rounds together, or this round alone, lost more packets than the path itself loses. Always
    /// false during the first rounds, in which acknowledgements still wait for retransmissions.
    fn is_lossy(&self, now_us: i64, of_round: Losses) -> bool {
        let own = if now_us < self.own.until_us { self.own.share } else { 0 };
        let of_all = self.losses();
        let is_steady = of_all.lost >= LOSSES_MIN && of_all.share() > LOSS_SHARE.max(own * 3 / 2);
        // The share of losses in a single round varies more than that of several rounds, so its threshold is higher.
        let is_burst = of_round.lost >= LOSSES_MIN && of_round.share() > BURST_SHARE.max(own * 3);
        self.rounds.len() >= ROUNDS / 2 && (is_steady || is_burst)
    }

    fn begin_trial(&mut self, now_us: i64, queue_us: u32) {
        let share = self.losses().share();
        self.trial = Some(Trial { rounds: 0, share, former_limit: self.limit, losses: Losses::default() });
        self.slow_down(now_us, queue_us);
    }

    fn try_on(&mut self, now_us: i64, losses: Losses) {
        let Some(trial) = &mut self.trial else { return };
        trial.rounds = trial.rounds.saturating_add(1);
        if trial.rounds > TRIAL_SKIPS {
            trial.losses = trial.losses.add(losses);
        }
        if trial.rounds < TRIAL_ROUNDS {
            return;
        }
        let share = trial.losses.share();
        if share.saturating_mul(2) > trial.share {
            self.limit = trial.former_limit;
            self.own = Own { share, until_us: now_us.saturating_add(OWN_US) };
        }
        (self.trial, self.drain) = (None, None);
    }

    /// Handles a queue that does not drain although less is sent than was delivered: either the delivered rate was
    /// overestimated, or the delay is not a queue.
    fn look_at_drain(&mut self, now_us: i64, queue_us: u32) {
        let Some(drain) = &mut self.drain else { return };
        let pause = i64::from(drain.queue_us).saturating_mul(DRAIN_ROUNDS).max(DRAIN_US);
        if now_us.saturating_sub(drain.since_us) < pause {
            return;
        }
        let is_shorter = queue_us < (drain.queue_us / 10 * 9).max(QUEUE_NONE_US);
        let halvings = if is_shorter { 0 } else { drain.halvings.saturating_add(1) };
        *drain = Drain { since_us: now_us, queue_us, halvings };
        if halvings > HALVINGS {
            self.delay.restart(now_us);
            self.rtt.restart(now_us);
            self.drain = None;
        } else if !is_shorter {
            self.limit = self.limit.map(|limit| (limit / 2).max(LIMIT_MIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use crypto::Seed;

    use super::*;

    fn figures(rtt_us: u32, rate_bytes: u32) -> Option<AckFigures> {
        Some(AckFigures { rtt_us, rate_bytes, ..AckFigures::default() })
    }

    /// Acknowledges `packets` packets every 10 ms from `from_ms` to `to_ms`, with this delay.
    fn acknowledge(this: &mut Congestion, from_ms: i64, to_ms: i64, delay_ms: u32, packets: usize) {
        for ms in (from_ms..to_ms).step_by(10) {
            this.wait(ms * 1000, true);
            let acked = Acked { packets, bytes: 1000 * packets as u64, delay_us: Some(delay_ms * 1000) };
            this.acked(ms * 1000, &acked, figures(delay_ms * 1000, 0));
        }
    }

    #[test]
    fn a_queue_limits_to_what_is_delivered_and_the_limit_grows_when_it_is_gone() {
        let mut this = Congestion::new(0);
        acknowledge(&mut this, 0, 1000, 40, 2);
        assert_eq!(this.rate(), None, "200 kB/s without a queue");
        acknowledge(&mut this, 1000, 1300, 125, 1);
        let draining = this.rate().unwrap();
        assert!((60_000..160_000).contains(&draining), "{draining}");
        acknowledge(&mut this, 1300, 1600, 45, 1);
        let limit = this.rate().unwrap();
        assert!(limit > draining, "the queue is gone");
        acknowledge(&mut this, 1600, 6000, 45, 2);
        let grown = this.rate().unwrap();
        assert!(grown > limit * 2, "{limit} has grown to {grown}");
        // Packets wait for the limit only during one burst per second.
        for ms in (6000..7000).step_by(10) {
            this.wait(ms * 1000, ms % 1000 < 300);
            let acked = Acked { packets: 1, bytes: 1000, delay_us: Some(45_000) };
            this.acked(ms * 1000, &acked, figures(45_000, 0));
        }
        let more = this.rate().unwrap() * 100 / grown;
        assert!((100..=140).contains(&more), "{more}");
        // The limit ends if packets do not wait for it any more, or only for a short time.
        this.wait(7_000_000, false);
        for ms in (7000..18_000).step_by(10) {
            this.wait(ms * 1000, ms % 40 == 0);
            let acked = Acked { packets: 1, bytes: 1000, delay_us: Some(45_000) };
            this.acked(ms * 1000, &acked, figures(45_000, 0));
        }
        assert_eq!(this.rate(), None);
    }

    #[test]
    fn what_a_peer_gives_up_and_acknowledges_is_not_what_the_path_delivers() {
        let limit = |reported: u32| {
            let mut this = Congestion::new(0);
            acknowledge(&mut this, 0, 1000, 40, 2);
            for ms in (1000..1500).step_by(10) {
                let acked = Acked { packets: 2, bytes: 2000, delay_us: Some(200_000) };
                this.acked(ms * 1000, &acked, figures(200_000, reported));
            }
            this.limit.unwrap()
        };
        // The limit is 95 % of 120 % of the rate that the peer reported.
        assert_eq!(limit(50_000), 57_000);
        assert!(limit(0) > 150_000, "it reports nothing");
    }

    #[test]
    fn losses_of_the_path_itself_are_tried_once_in_thirty_seconds_and_limit_nothing() {
        let mut this = Congestion::new(0);
        let mut limited = Vec::new();
        for ms in (0..40_000).step_by(10) {
            if ms % 50 == 0 {
                this.lost(4);
            }
            let acked = Acked { packets: 2, bytes: 2000, delay_us: Some(40_000) };
            this.acked(ms * 1000, &acked, figures(40_000, 0));
            limited.push(this.rate().is_some());
        }
        let begins = limited.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let share = limited.iter().filter(|is| **is).count() * 100 / limited.len();
        assert!(begins == 2 && share < 8, "{begins} trials, {share} % of the time");
        assert_eq!(limited.last(), Some(&false));
    }

    #[test]
    fn a_queue_of_eighty_milliseconds_is_none_and_one_of_more_is() {
        for (delay_ms, is_full) in [(119, false), (120, false), (121, true)] {
            let mut this = Congestion::new(0);
            acknowledge(&mut this, 0, 1000, 40, 2);
            acknowledge(&mut this, 1000, 1300, delay_ms, 2);
            assert_eq!(this.rate().is_some(), is_full, "{delay_ms}");
        }
    }

    #[test]
    fn s_23_figures_that_lie_leave_a_limit_that_something_passes() {
        for seed in 0..50 {
            let mut random = Seed::from_number(seed).random();
            let mut this = Congestion::new(0);
            let mut now_us = 0;
            for _ in 0..2000 {
                now_us += i64::try_from(random.below(300_000)).unwrap();
                let any = [0, 1, 1000, 40_000, 5_000_000, u32::MAX];
                let mut one = || any[usize::try_from(random.below(6)).unwrap()];
                let acked = Acked {
                    packets: one() as usize % 1000,
                    bytes: u64::from(one()),
                    delay_us: Some(one()).filter(|delay| *delay != 1),
                };
                this.lost(one());
                this.acked(now_us, &acked, figures(one(), one()));
                assert!(this.rate().is_none_or(|rate| rate >= LIMIT_MIN / 2), "{this:?}");
                assert!(this.rounds.len() <= ROUNDS);
            }
        }
    }
}
