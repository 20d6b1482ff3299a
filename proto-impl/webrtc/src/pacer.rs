//! Pacing of video: frames of normal size leave immediately, larger bursts are spread over time.
//!
//! A path that can carry a stream cannot necessarily carry a second of it in one burst: the backlog
//! for a new viewer, or a large key frame, would overflow buffers on the path. Therefore everything
//! beyond a tenth of a second of the stream (and beyond 64 KB) leaves at two and a half times the
//! stream's rate, the factor that browsers use. Audio never waits, but its bytes count towards the
//! pace. Retransmissions wait like video.
//!
//! While the path limits the sending rate, the pace is the rate of the path, and a burst is a few packets:
//! packets should wait here, where they can still be dropped, rather than in a queue on the path.

use std::time::{Duration, Instant};

/// Bytes that may always leave immediately, without pacing, on a path without a rate limit.
const BURST_BYTES_MIN: u64 = 64 << 10;
/// The same allowance, as a duration of the stream. The larger of the two counts.
const BURST_TIME: Duration = Duration::from_millis(100);
/// Pace after a burst, in halves of the stream's rate: 5 means 2.5 times the rate.
const FACTOR_TIMES_TWO: u64 = 5;
/// The pace before the rate is known, in bytes per second: 10 Mb/s.
const PACE_FIRST: u64 = 1_250_000;
/// Lowest pace while the path does not limit it, in bytes per second: 1 Mb/s.
const PACE_MIN: u64 = 125_000;
/// Lowest pace in any case, in bytes per second: 40 kb/s.
const LIMIT_MIN: u64 = 5_000;
/// Burst that leaves immediately while the path limits the sending rate: the data that the limit allows in
/// this time.
const LIMITED_BURST_TIME: Duration = Duration::from_millis(30);
/// Minimum burst in bytes while the path limits the sending rate: two packets.
const LIMITED_BURST_MIN: u64 = 2_400;
/// Minimum burst in bytes if packets leave in pairs: three packets. Two of them leave together, so that the distance
/// between their arrivals shows the capacity of the path.
const LIMITED_BURST_OF_PAIRS: u64 = 3_600;
/// Duration of the stream that is measured before its rate is first used.
const MEASURE_FIRST: Duration = Duration::from_millis(100);
/// Duration of the stream for each further measurement.
const MEASURE_TIME: Duration = Duration::from_millis(500);
/// A measurement is discarded if the stream's time advances this much during it: the time has jumped.
const LEAP: Duration = Duration::from_secs(5);
/// Bytes that must have drained from the bucket before a pause ends. A larger quantum causes fewer wake-ups,
/// and longer runs of packets per system call.
const QUANTUM_BYTES: u64 = 16 << 10;

/// A leaky bucket that limits the rate of video.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes sent that had not drained from the bucket at `at`.
    level: u64,
    at: Option<Instant>,
    /// Measured rate of the stream, in bytes per second; `None` before the first measurement.
    rate: Option<u64>,
    /// Bytes in the current measurement.
    measured: u64,
    /// Times at which media was sampled: at the start of the measurement, and the latest one.
    since: Option<(Instant, Instant)>,
    /// True while video is paused until the level is low enough.
    pausing: bool,
    /// Rate to which the path limits sending, in bytes per second; `None` without a limit.
    limit: Option<u64>,
    /// Rate of the current probe, in bytes per second; `None` without one. Waiting packets use the rate
    /// first, then padding.
    probe: Option<u64>,
    /// True if packets leave at least in pairs.
    pairs: bool,
}

impl Pacer {
    pub(crate) const fn new() -> Self {
        Self {
            level: 0,
            at: None,
            rate: None,
            measured: 0,
            since: None,
            pausing: false,
            limit: None,
            probe: None,
            pairs: false,
        }
    }

    /// Counts media queued for sending, which was sampled at `sampled`. The stream's rate is measured by the
    /// sampling times, so that queuing a second of media at once does not count as a higher rate.
    pub(crate) fn queued(&mut self, sampled: Instant, bytes: u64) {
        let (since, newest) =
            self.since.map_or((sampled, sampled), |(since, newest)| (since, newest.max(sampled)));
        self.since = Some((since, newest));
        let took = newest.saturating_duration_since(since);
        let enough = if self.rate.is_none() { MEASURE_FIRST } else { MEASURE_TIME };
        if took >= enough {
            if took < LEAP {
                let seen = scale(self.measured, Duration::from_secs(1), took);
                self.rate = Some(self.rate.map_or(seen, |rate| rate - rate / 4 + seen / 4));
            }
            (self.measured, self.since) = (0, Some((newest, newest)));
        }
        self.measured = self.measured.saturating_add(bytes);
    }

    /// Sets the rate limit of the path in bits per second; `None` for no limit.
    pub(crate) fn set_limit(&mut self, bits: Option<u64>) {
        self.limit = bits.map(|bits| (bits / 8).max(LIMIT_MIN));
    }

    /// Sets whether packets leave at least in pairs.
    pub(crate) const fn set_pairs(&mut self, pairs: bool) {
        self.pairs = pairs;
    }

    /// Sets the rate of a probe in bits per second; `None` if there is no probe.
    pub(crate) fn set_probe(&mut self, bits: Option<u64>) {
        self.probe = bits.map(|bits| bits / 8);
    }

    /// Returns the time until this many further bytes have left. Ignores a current probe, since probes are
    /// short.
    pub(crate) fn time_for(&self, now: Instant, bytes: u64) -> Duration {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let pace = self.bounded(self.limit);
        let level = self.level.saturating_sub(scale(pace, passed, Duration::from_secs(1)));
        let excess = level.saturating_add(bytes).saturating_sub(self.burst());
        let micros = u128::from(excess).saturating_mul(1_000_000) / u128::from(pace.max(1));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Records that bytes have left.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64) {
        self.leak(now);
        self.level = self.level.saturating_add(bytes);
        self.pausing |= self.level >= self.burst();
    }

    /// True if video may leave now.
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        self.leak(now);
        self.pausing &= self.level > self.resumes();
        !self.pausing
    }

    /// True if the path limits the rate.
    pub(crate) const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// True if nothing makes video wait: neither the path nor a pause.
    pub(crate) const fn is_free(&self) -> bool {
        !self.is_limited() && !self.pausing
    }

    /// Returns the time at which video may leave again; `None` unless video is paused.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let at = self.at.filter(|_| self.pausing)?;
        let excess = self.level.saturating_sub(self.resumes());
        // One microsecond later, because the level must be at or below the threshold.
        let micros = excess.saturating_mul(1_000_000) / self.pace().max(1);
        at.checked_add(Duration::from_micros(micros.saturating_add(1)))
    }

    fn leak(&mut self, now: Instant) {
        // Called twice for each packet of a frame, always with the same time.
        if self.at == Some(now) {
            return;
        }
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let leaked = scale(self.pace(), passed, Duration::from_secs(1));
        // Keeps fractions of a byte: `at` advances only when whole bytes have drained.
        if leaked > 0 || self.at.is_none() || self.level == 0 {
            self.level = self.level.saturating_sub(leaked);
            self.at = Some(now);
        }
    }

    /// Returns the current pace. A probe is not limited by the stream's rate; otherwise its padding would keep
    /// the bucket of a stream with a reduced rate full for seconds.
    fn pace(&self) -> u64 {
        self.bounded(self.limit).max(self.probe.unwrap_or(0))
    }

    /// Returns the pace, limited by `limit`.
    fn bounded(&self, limit: Option<u64>) -> u64 {
        let of_stream = |rate: u64| (rate.saturating_mul(FACTOR_TIMES_TWO) / 2).max(PACE_MIN);
        let pace = self.rate.map_or(PACE_FIRST, of_stream);
        limit.map_or(pace, |limit| limit.min(pace))
    }

    /// The level at which video pauses, in bytes.
    fn burst(&self) -> u64 {
        let second = Duration::from_secs(1);
        let free = scale(self.rate.unwrap_or(0), BURST_TIME, second).max(BURST_BYTES_MIN);
        let least = if self.pairs { LIMITED_BURST_OF_PAIRS } else { LIMITED_BURST_MIN };
        let bounded = |limit| scale(limit, LIMITED_BURST_TIME, second).max(least);
        self.limit.map_or(free, |limit| free.min(bounded(limit)))
    }

    /// The level at which video resumes, in bytes.
    fn resumes(&self) -> u64 {
        let burst = self.burst();
        burst.saturating_sub(QUANTUM_BYTES.min(burst / 2))
    }
}

/// Returns `value` times `times` divided by `by`.
fn scale(value: u64, times: Duration, by: Duration) -> u64 {
    let scaled = u128::from(value) * times.as_micros() / by.as_micros().max(1);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use netsim::Clock;

    use super::*;

    /// Passes frames of the given sizes to the pacer: the first `at_once` together, the others one every 33
    /// ms. Returns the number of milliseconds in which data waited, and the time at which the last data left.
    fn waits(frames: &[u64], at_once: usize) -> (u64, u64) {
        let start = Clock::new().now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut pacer = Pacer::new();
        let (mut waiting, mut waited, mut last) = (0u64, 0, 0);
        let mut frames = (0..).map(|n| n * 33).zip(frames).peekable();
        let lead = u64::try_from(at_once).unwrap() * 33;
        for ms in 0..20_000u64 {
            while let Some((sampled, bytes)) = frames.next_if(|(sampled, _)| *sampled <= ms + lead) {
                pacer.queued(at(sampled), *bytes);
                waiting += bytes;
            }
            while waiting > 0 && pacer.may_send(at(ms)) {
                let packet = waiting.min(1200);
                pacer.sent(at(ms), packet);
                waiting -= packet;
            }
            if waiting > 0 {
                (waited, last) = (waited + 1, ms);
                assert!(pacer.poll_timeout().is_some_and(|at_| at_ > at(ms)), "it says when it goes on");
            }
        }
        assert_eq!(waiting, 0);
        (waited, last)
    }

    #[test]
    fn usual_frames_do_not_wait() {
        let gops =
            |frame, key| -> Vec<u64> { (0..300).map(|n| if n % 60 == 0 { key } else { frame }).collect() };
        // 2.2 Mb/s with key frames of 60 KB.
        assert_eq!(waits(&gops(9_000, 60_000), 0), (0, 0));
        // 18 Mb/s: frames wait briefly before the rate is known, and after the largest key frames.
        let (waited, _) = waits(&gops(75_000, 240_000), 0);
        assert!(waited < 200, "{waited} ms of 10 s");
    }

    #[test]
    fn a_burst_is_spread_and_the_stream_catches_up() {
        // Queues two seconds of 2.4 Mb/s at once, then the rest of the stream in real time.
        let (waited, last) = waits(&[10_000; 300], 60);
        assert!((400..1500).contains(&waited) && last < 1500, "{waited} ms, until {last}");
    }

    /// Sends ten seconds of a stream above the limit: in no second does the traffic exceed the limit by more
    /// than a few packets.
    #[test]
    fn a_bounded_path_is_sent_no_more_than_it_carries() {
        for bits in [0, 40_000, 300_000, 1_000_000, 2_000_000] {
            let start = Clock::new().now();
            let mut pacer = Pacer::new();
            let mut left = Vec::new();
            for ms in 0..10_000u64 {
                let now = start + Duration::from_millis(ms);
                if ms % 33 == 0 {
                    pacer.queued(now, 20_000);
                }
                pacer.set_limit(Some(bits));
                while pacer.may_send(now) {
                    pacer.sent(now, 1200);
                    left.push(ms);
                }
            }
            let most = left.iter().map(|at| left.iter().filter(|ms| (*at..at + 1000).contains(*ms)).count());
            let (most, all) = (most.max().unwrap() as u64 * 1200, left.len() as u64 * 1200);
            let carries = (bits / 8).max(LIMIT_MIN);
            assert!(most <= carries + LIMITED_BURST_MIN.max(carries * 3 / 100) + 1200, "{bits}: {most}");
            assert!((carries * 9..=carries * 10 + 10_000).contains(&all), "{bits}: {all}");
        }
        let mut pacer = Pacer::new();
        pacer.set_limit(Some(u64::MAX));
        assert_eq!(pacer.pace(), PACE_FIRST, "it is a bound and no order");
    }

    /// Sends as much as allowed once per millisecond, for `ms` milliseconds. Returns the number of
    /// packets of each millisecond in which any left.
    fn runs(pacer: &mut Pacer, from: Instant, ms: u64) -> Vec<u64> {
        let run = |pacer: &mut Pacer, now| (0..100).take_while(|_| leaves(pacer, now)).count() as u64;
        (0..ms)
            .map(|ms| run(pacer, from + Duration::from_millis(ms)))
            .filter(|packets| *packets > 0)
            .collect()
    }

    fn leaves(pacer: &mut Pacer, now: Instant) -> bool {
        let may = pacer.may_send(now);
        if may {
            pacer.sent(now, 1240);
        }
        may
    }

    #[test]
    fn on_a_bounded_path_packets_leave_in_pairs() {
        for bits in [100_000, 300_000, 600_000] {
            let mut pacer = Pacer::new();
            pacer.set_limit(Some(bits));
            pacer.set_pairs(true);
            let runs = runs(&mut pacer, Clock::new().now(), 5_000);
            assert!(runs.len() > 10 && runs[1..].iter().all(|packets| *packets == 2), "{bits}: {runs:?}");
        }
    }

    #[test]
    fn what_waits_leaves_at_the_rate_of_a_probe() {
        let start = Clock::new().now();
        let mut pacer = Pacer::new();
        pacer.set_limit(Some(600_000));
        let before = pacer.time_for(start, 100_000);
        pacer.set_probe(Some(2_400_000));
        assert_eq!(pacer.time_for(start, 100_000), before, "it is short");
        let packets: u64 = runs(&mut pacer, start, 200).iter().sum();
        assert!((48..=54).contains(&packets), "{packets}");
        pacer.set_probe(None);
        let packets: u64 = runs(&mut pacer, start + Duration::from_millis(200), 1_000).iter().sum();
        assert!((56..=62).contains(&packets), "{packets}");
        // A path without a limit is not slowed by a probe.
        pacer.set_limit(None);
        pacer.set_probe(Some(1));
        assert_eq!(pacer.pace(), PACE_FIRST);
    }

    #[test]
    fn the_padding_of_a_probe_does_not_hold_up_a_thinned_stream() {
        let start = Clock::new().now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut pacer = Pacer::new();
        // The stream is reduced to 400 kb/s, on a path that is known to carry 3 Mb/s.
        (0..100).for_each(|n| pacer.queued(at(n * 40), 2_000));
        for limit in [Some(3_000_000), None] {
            pacer.set_limit(limit);
            pacer.set_probe(Some(9_000_000));
            for ms in 4_000..4_200 {
                assert!(pacer.may_send(at(ms)) || ms > 4_000);
                pacer.sent(at(ms), 1_125);
            }
            pacer.set_probe(None);
            assert!(pacer.may_send(at(4_210)), "{limit:?}");
            assert!(pacer.time_for(at(4_210), 1_000) < Duration::from_millis(20));
        }
    }

    #[test]
    fn the_time_of_a_backlog_is_told() {
        let start = Clock::new().now();
        let mut pacer = Pacer::new();
        assert_eq!(pacer.time_for(start, BURST_BYTES_MIN), Duration::ZERO, "a burst leaves at once");
        assert_eq!(pacer.time_for(start, BURST_BYTES_MIN + PACE_FIRST), Duration::from_secs(1));
        pacer.sent(start, BURST_BYTES_MIN + PACE_FIRST / 2);
        let later = start + Duration::from_millis(250);
        assert_eq!(pacer.time_for(later, PACE_FIRST / 4), Duration::from_millis(500));
        assert_eq!(pacer.time_for(later + Duration::from_secs(3600), PACE_FIRST / 100), Duration::ZERO);
        assert!(pacer.time_for(start, u64::MAX) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn a_pause_ends_when_it_says() {
        let start = Clock::new().now();
        let mut pacer = Pacer::new();
        pacer.sent(start, 200_000);
        assert!(!pacer.may_send(start));
        let at = pacer.poll_timeout().unwrap();
        assert!(!pacer.may_send(at - Duration::from_millis(1)));
        assert!(pacer.may_send(pacer.poll_timeout().unwrap()));
        assert_eq!(pacer.poll_timeout(), None);
        // Times that go backwards or do not advance do no harm.
        pacer.sent(start, u64::MAX);
        assert!(!pacer.may_send(start) && pacer.poll_timeout().is_none_or(|at| at > start));
    }
}
