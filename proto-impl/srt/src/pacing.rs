//! The rate at which packets may be sent: the sending period of live congestion control (draft-sharabayko-srt-01
//! §5.1), and the share of retransmissions (§5.1.1, SRTO_OHEADBW).

use std::time::{Duration, Instant};

/// Initial budget for retransmissions, in bytes: enough for the first losses of a small stream.
const OVERHEAD_BYTES_MIN: u64 = 64 * 1024;
/// Time in seconds for which unused budget is kept: after a second without connectivity, much of it is needed at
/// once.
const OVERHEAD_KEPT_S: u64 = 5;
/// Time by which packets may leave early, so that several can be sent in one turn.
const BURST: Duration = Duration::from_millis(2);

/// The budget for retransmissions.
#[derive(Debug)]
pub(crate) struct Overhead {
    percent: u32,
    tokens: u64,
    /// Number of bytes sent for the first time; older bytes fade over [`OVERHEAD_KEPT_S`].
    recent: u64,
    faded_at: i64,
}

impl Overhead {
    pub(crate) const fn new(percent: u32) -> Self {
        Self { percent, tokens: OVERHEAD_BYTES_MIN, recent: 0, faded_at: 0 }
    }

    fn share(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(u64::from(self.percent)) / 100
    }

    /// Adds to the budget for bytes that were sent for the first time.
    pub(crate) fn earn(&mut self, now_us: i64, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        if now_us.saturating_sub(self.faded_at) >= 1_000_000 {
            self.recent -= self.recent / OVERHEAD_KEPT_S;
            self.faded_at = now_us;
        }
        self.recent = self.recent.saturating_add(bytes);
        let most = self.share(self.recent).max(OVERHEAD_BYTES_MIN);
        self.tokens = self.tokens.saturating_add(self.share(bytes)).min(most);
    }

    /// True if this many bytes may be retransmitted.
    pub(crate) fn allows(&self, bytes: usize) -> bool {
        u64::try_from(bytes).is_ok_and(|bytes| bytes <= self.tokens)
    }

    /// True if at least half of the full budget is left.
    pub(crate) fn is_ample(&self) -> bool {
        self.tokens >= self.share(self.recent).max(OVERHEAD_BYTES_MIN) / 2
    }

    /// Spends the bytes of a retransmission.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.tokens = self.tokens.saturating_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// Number of bytes of a burst that are sent without pacing.
const AT_ONCE_BYTES: usize = 16 * 1024;
/// A burst larger than [`AT_ONCE_BYTES`] is spread over the latency divided by this, at most over
/// `SPREAD_MAX`. A key frame then does not overflow short queues, and its lost packets can still be
/// retransmitted in time. Playback is unaffected, since it follows timestamps.
const SPREAD_DIVISOR: u32 = 2;
/// Maximum time over which a burst is spread.
const SPREAD_MAX: Duration = Duration::from_millis(60);
/// Packets of a spread burst are held back for at most this long, so that several leave in one send.
const STEP: Duration = Duration::from_millis(10);

/// A burst that is sent gradually.
#[derive(Debug)]
struct Spread {
    bytes_per_second: u64,
    /// Number of bytes that may still be sent without pacing.
    free: usize,
    /// Number of bytes that wait.
    waiting: usize,
    /// Time of the next step. It is late enough that up to [`AT_ONCE_BYTES`] may leave then.
    step_at: Option<Instant>,
}

impl Spread {
    /// Returns the time for which packets are held back before the next step: until a step of full size, or the rest
    /// of the burst, may leave.
    fn step(&self) -> Duration {
        self.time_of(self.waiting.min(AT_ONCE_BYTES)).min(STEP)
    }

    /// Returns the longest time that the next step of a burst can make up for. Packets are held back between two steps,
    /// and a step sends all the bytes that could have been sent in that time. Timers are late by up to [`BURST`].
    fn saved(&self) -> Duration {
        self.time_of(AT_ONCE_BYTES).min(STEP) + BURST
    }

    fn time_of(&self, bytes: usize) -> Duration {
        time_of(u64::try_from(bytes).unwrap_or(u64::MAX), self.bytes_per_second)
    }
}

fn time_of(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / bytes_per_second.max(1))
}

/// Pacing of packets. Without a bandwidth limit, only large bursts are paced.
#[derive(Debug)]
pub(crate) struct Pacer {
    bytes_per_second: Option<u64>,
    spread: Option<Spread>,
    next_at: Option<Instant>,
}

impl Pacer {
    pub(crate) const fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, spread: None, next_at: None }
    }

    /// Sets the rate to the lower of two limits, in bytes per second.
    pub(crate) fn limit(&mut self, fixed: Option<u64>, found: Option<u64>) {
        self.bytes_per_second = [fixed, found].into_iter().flatten().min();
        if self.bytes_per_second.is_none() && self.spread.is_none() {
            self.next_at = None;
        }
    }

    /// Spreads a large burst over part of the receiver's `latency`. `waiting` is the number of bytes queued,
    /// including the new message; 0 ends the burst.
    pub(crate) fn spread(&mut self, waiting: usize, latency: Duration) {
        if waiting == 0 {
            if self.spread.take().is_some() && self.bytes_per_second.is_none() {
                self.next_at = None;
            }
            return;
        }
        if waiting <= AT_ONCE_BYTES {
            return;
        }
        let bytes = u64::try_from(waiting).unwrap_or(u64::MAX);
        let us = u64::try_from((latency / SPREAD_DIVISOR).min(SPREAD_MAX).as_micros()).unwrap_or(u64::MAX);
        if us == 0 {
            return;
        }
        // At this rate, the whole queue is emptied within `us`, not only the bytes above `AT_ONCE_BYTES`.
        let rate = bytes.saturating_mul(1_000_000) / us;
        let spread = self.spread.get_or_insert(Spread {
            bytes_per_second: 0,
            free: AT_ONCE_BYTES,
            waiting: 0,
            step_at: None,
        });
        spread.bytes_per_second = spread.bytes_per_second.max(rate);
        spread.waiting = waiting;
    }

    /// Returns the time at which the next packet may leave; `None` if it may leave now. Unless `hurries`, a spread burst
    /// leaves in steps.
    #[inline]
    pub(crate) fn wait(&self, now: Instant, hurries: bool) -> Option<Instant> {
        // Nearly always packets are not paced, so only this check is inlined.
        self.next_at.and_then(|next_at| self.wait_for(now, next_at, hurries))
    }

    #[inline(never)]
    fn wait_for(&self, now: Instant, next_at: Instant, hurries: bool) -> Option<Instant> {
        let step_at = self.spread.as_ref().and_then(|spread| spread.step_at);
        if let Some(at) = step_at.filter(|_| !hurries && self.bytes_per_second.is_none()) {
            return Some(at).filter(|at| now < *at);
        }
        Some(next_at).filter(|at| now + BURST < *at)
    }

    /// Returns the earliest time at which a packet may leave that does not wait for the next step of a
    /// burst; `None` if packets are not paced.
    pub(crate) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// Records that a packet of this size has been sent.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        if self.bytes_per_second.is_some() || self.spread.is_some() {
            self.charge(now, bytes);
        }
    }

    #[inline(never)]
    fn charge(&mut self, now: Instant, bytes: usize) {
        let mut rate = self.bytes_per_second;
        if let Some(spread) = &mut self.spread {
            spread.waiting = spread.waiting.saturating_sub(bytes);
            if spread.free >= bytes && rate.is_none() {
                spread.free = spread.free.saturating_sub(bytes);
                return;
            }
            rate = Some(rate.map_or(spread.bytes_per_second, |rate| rate.min(spread.bytes_per_second)));
        }
        let Some(rate) = rate else { return };
        // If a burst is sent in steps, each step also sends the bytes of the time for which packets were held back.
        // Otherwise, time in which nothing was sent is not made up for.
        let saved = self.spread.as_ref().filter(|_| self.bytes_per_second.is_none()).map(Spread::saved);
        let since = saved.and_then(|saved| now.checked_sub(saved)).unwrap_or(now);
        let from = self.next_at.map_or(now, |at| at.max(since));
        let next_at = from + time_of(u64::try_from(bytes).unwrap_or(0), rate);
        self.next_at = Some(next_at);
        if let Some(spread) = self.spread.as_mut().filter(|_| now + BURST < next_at) {
            spread.step_at = Some(next_at + spread.step());
        }
    }
}

#[cfg(test)]
mod tests {
    use netsim::{Clock, ms};

    use super::*;

    #[test]
    fn s_23_what_is_sent_again_is_a_quarter_of_what_is_sent() {
        let mut overhead = Overhead::new(25);
        let mut again = 0;
        for n in 0..60_000_i64 {
            overhead.earn(n * 2000, 1000);
            while overhead.allows(1000) {
                overhead.spend(1000);
                again += 1;
            }
        }
        assert!((15_000..15_100).contains(&again), "{again}");
        // A minute without loss leaves the budget of five seconds.
        (60_000..90_000).for_each(|n| overhead.earn(n * 2000, 1000));
        assert!((500_000..800_000).contains(&overhead.tokens), "{}", overhead.tokens);
    }

    #[test]
    fn packets_leave_at_the_bandwidth() {
        let mut clock = Clock::new();
        let mut pacer = Pacer::new(Some(1_000_000));
        let mut sent = 0;
        for _ in 0..1000 {
            while pacer.wait(clock.now(), false).is_none() {
                pacer.sent(clock.now(), 1000);
                sent += 1;
            }
            clock.advance(ms(1));
        }
        assert!((995..1010).contains(&sent), "{sent}");
        let mut free = Pacer::new(None);
        (0..1000).for_each(|_| free.sent(clock.now(), 1000));
        assert_eq!(free.wait(clock.now(), false), None);
    }

    #[test]
    fn the_first_losses_have_a_budget_of_which_half_is_ample() {
        let mut overhead = Overhead::new(25);
        assert!(overhead.allows(64 * 1024) && !overhead.allows(64 * 1024 + 1));
        overhead.spend(32 * 1024);
        assert!(overhead.is_ample());
        overhead.spend(1);
        assert!(!overhead.is_ample() && overhead.allows(32 * 1024 - 1) && !overhead.allows(32 * 1024));
        // Half of the budget for the sent bytes is ample.
        overhead.earn(0, 800_000);
        assert!(overhead.is_ample());
        overhead.spend(100_000);
        assert!(overhead.is_ample());
        overhead.spend(1);
        assert!(!overhead.is_ample());
    }

    #[test]
    fn what_was_sent_fades_by_a_fifth_each_second() {
        let mut overhead = Overhead::new(100);
        overhead.earn(0, 1_000_000);
        for (at_us, kept) in
            [(999_999, 1_000_000), (1_000_000, 800_000), (1_999_999, 800_000), (2_000_000, 640_000)]
        {
            overhead.earn(at_us, 0);
            assert_eq!((overhead.recent, overhead.tokens), (kept, kept), "{at_us}");
        }
    }

    #[test]
    fn a_key_frame_leaves_in_few_steps_and_never_more_at_once_than_a_short_queue_holds() {
        // Bursts of 70 KB and 700 KB are spread over 60 ms, in steps of several packets each.
        for (bytes, most_steps) in [(70 * 1024, 6), (700 * 1024, 50)] {
            let (mut clock, mut pacer) = (Clock::new(), Pacer::new(None));
            let (mut waiting, mut steps, mut largest) = (bytes, 0, 0);
            let mut filled: usize = 0;
            pacer.spread(waiting, ms(120));
            for _ in 0..100 {
                let mut at_once = 0;
                while waiting > 0 && pacer.wait(clock.now(), false).is_none() {
                    pacer.sent(clock.now(), 1024);
                    (waiting, at_once) = (waiting - 1024, at_once + 1024);
                }
                steps += usize::from(at_once > 0);
                // Simulates a queue on the path that is emptied at the rate at which the burst is spread.
                filled += at_once;
                largest = largest.max(filled);
                filled = filled.saturating_sub(bytes / 60);
                clock.advance(ms(1));
            }
            assert!(waiting == 0 && steps <= most_steps, "{waiting} bytes left after {steps} steps");
            assert!(largest <= AT_ONCE_BYTES + 3 * bytes / 60 + 1024, "{largest}");
        }
    }

    #[test]
    fn a_retransmission_does_not_wait_for_a_step() {
        let (mut clock, mut pacer) = (Clock::new(), Pacer::new(None));
        pacer.spread(70 * 1024, ms(120));
        while pacer.wait(clock.now(), false).is_none() {
            pacer.sent(clock.now(), 1024);
        }
        let (step_at, next_at) = (pacer.wait(clock.now(), false).unwrap(), pacer.next_at().unwrap());
        assert!(step_at > next_at + ms(8) && step_at <= next_at + STEP);
        clock.advance(next_at.saturating_duration_since(clock.now()));
        assert!(pacer.wait(clock.now(), false).is_some() && pacer.wait(clock.now(), true).is_none());
    }

    #[test]
    fn a_packet_may_leave_two_milliseconds_early_and_idling_saves_nothing() {
        let clock = Clock::new();
        let at = |millis| clock.at(ms(millis));
        let mut pacer = Pacer::new(Some(1_000_000));
        for start in [0, 1000] {
            assert_eq!(pacer.wait(at(start), false), None);
            (0..2).for_each(|_| pacer.sent(at(start), 1000));
            assert_eq!(pacer.wait(at(start), false), None);
            pacer.sent(at(start), 1000);
            assert_eq!(pacer.wait(at(start), false), Some(at(start + 3)));
            assert_eq!(pacer.wait(at(start + 1), false), None);
        }
    }

    #[test]
    fn a_large_burst_leaves_within_half_of_the_latency_and_a_little_more_than_one_does_not_wait() {
        for (bytes, latency_ms, at_least, at_most) in [
            (16 * 1024, 120, 0, 0),
            (17 * 1024, 120, 0, 12),
            (70 * 1024, 120, 40, 60),
            (70 * 1024, 40, 12, 20),
            (700 * 1024, 2000, 50, 60),
        ] {
            let (mut clock, mut pacer) = (Clock::new(), Pacer::new(None));
            let began = clock.now();
            let mut waiting = 0;
            while waiting < bytes {
                waiting += 1024;
                pacer.spread(waiting, ms(latency_ms));
            }
            while waiting > 0 {
                while waiting > 0 && pacer.wait(clock.now(), false).is_none() {
                    pacer.sent(clock.now(), 1024);
                    waiting -= 1024;
                }
                clock.advance(ms(u64::from(waiting > 0)));
            }
            pacer.spread(0, ms(latency_ms));
            let took = (clock.now() - began).as_millis();
            assert!((at_least..=at_most).contains(&took), "{bytes} bytes in {took} ms");
            assert_eq!(pacer.wait(clock.now(), false), None);
        }
        // Packets that are queued while a burst is sent are not held back for ever.
        let (mut clock, mut pacer) = (Clock::new(), Pacer::new(None));
        let mut waiting = 17 * 1024;
        pacer.spread(waiting, ms(120));
        for _ in 0..100 {
            while waiting > 0 && pacer.wait(clock.now(), false).is_none() {
                pacer.sent(clock.now(), 512);
                waiting -= 512;
            }
            pacer.spread(waiting, ms(120));
            clock.advance(ms(40));
            waiting += 512;
        }
        assert!(waiting <= 512, "{waiting}");
    }
}
