//! Loudness of a publisher, from the audio levels in its packets (RFC 6464). The loudness is smoothed, and
//! reported at a limited rate.
//!
//! | event | effect |
//! |---|---|
//! | a packet | moves the smoothed level an eighth of the distance up, or a thirty-second of it down |
//! | a report | at most every [`INTERVAL`]: after a change by [`STEP`], and every [`REPEAT`] while above silence |
//! | no packets for [`ABSENCE`] | silence: a publisher that suppresses silence, or is muted, sends none |
//!
//! Levels are in -dBov: 0 is the loudest, [`SILENCE`] is digital silence. Levels quieter than [`FLOOR`], such
//! as background noise, count as silence.

use std::time::{Duration, Instant};

/// Level of silence, in -dBov.
pub(super) const SILENCE: u8 = 127;
/// Quietest level that does not count as silence, in -dBov.
const FLOOR: u8 = 80;
/// Shortest time between two reports.
const INTERVAL: Duration = Duration::from_millis(250);
/// Change of the level that causes a report, in dB.
const STEP: u8 = 3;
/// Longest time between two reports of a level above silence.
const REPEAT: Duration = Duration::from_millis(500);
/// Time without packets after which a publisher counts as silent.
const ABSENCE: Duration = Duration::from_secs(1);
/// Units per dB in the smoothed level.
const SCALE: u32 = 256;
/// A packet louder than the smoothed level raises the level by the difference divided by this.
const RISE: u32 = 8;
/// A packet quieter than the smoothed level lowers the level by the difference divided by this.
const FALL: u32 = 32;

/// Smoothed loudness of a publisher, described in the module.
#[derive(Debug)]
pub(super) struct Loudness {
    /// Smoothed level, in units of 1 / `SCALE` dB.
    smoothed: u32,
    heard: Option<Instant>,
    /// Time and level of the last report.
    told: Option<(Instant, u8)>,
}

impl Default for Loudness {
    fn default() -> Self {
        Self { smoothed: u32::from(FLOOR) * SCALE, heard: None, told: None }
    }
}

impl Loudness {
    /// Adds the level of a packet. Returns the smoothed level if it must be reported.
    pub(super) fn handle_level(&mut self, now: Instant, level: u8) -> Option<u8> {
        let level = u32::from(level.min(FLOOR)).saturating_mul(SCALE);
        self.heard = Some(now);
        self.smoothed = if level < self.smoothed {
            self.smoothed.saturating_sub((self.smoothed - level).div_ceil(RISE))
        } else {
            self.smoothed.saturating_add((level - self.smoothed).div_ceil(FALL))
        };
        self.report(now)
    }

    /// Returns silence if it must be reported because packets have stopped.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<u8> {
        self.poll_timeout().filter(|at| *at <= now)?;
        *self = Self { told: self.told, ..Self::default() };
        self.report(now)
    }

    /// Returns the time at which silence must be reported unless a packet arrives.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let is_loud = self.told.is_some_and(|(_, level)| level < SILENCE);
        self.heard.filter(|_| is_loud)?.checked_add(ABSENCE)
    }

    fn report(&mut self, now: Instant) -> Option<u8> {
        let whole = u8::try_from(self.smoothed / SCALE).unwrap_or(FLOOR);
        let level = if whole >= FLOOR { SILENCE } else { whole };
        let is_due = match self.told {
            None => level < SILENCE,
            Some((at, told)) => {
                let since = now.saturating_duration_since(at);
                let is_silent = level == SILENCE;
                let moved = level.abs_diff(told) >= STEP || (is_silent && told != SILENCE);
                since >= INTERVAL && (moved || (!is_silent && since >= REPEAT))
            }
        };
        is_due.then(|| self.told = Some((now, level)))?;
        Some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Duration = Duration::from_millis(20);

    struct Bench {
        start: Instant,
        now: Instant,
        loudness: Loudness,
        /// Time in milliseconds and level of each report.
        told: Vec<(u128, u8)>,
    }

    impl Bench {
        fn new() -> Self {
            let start = netsim::Clock::new().now();
            Self { start, now: start, loudness: Loudness::default(), told: Vec::new() }
        }

        fn note(&mut self, report: Option<u8>) {
            let at = (self.now - self.start).as_millis();
            self.told.extend(report.map(|level| (at, level)));
        }

        fn packets(&mut self, count: u32, level: impl Fn(u32) -> u8) {
            for n in 0..count {
                let report = self.loudness.handle_level(self.now, level(n));
                self.note(report);
                self.now += PACKET;
            }
        }

        /// Handles the deadlines of `ms` milliseconds without packets.
        fn silence(&mut self, ms: u64) {
            let end = self.now + Duration::from_millis(ms);
            while let Some(at) = self.loudness.poll_timeout().filter(|at| *at <= end) {
                self.now = at;
                let report = self.loudness.handle_timeout(self.now);
                self.note(report);
            }
            self.now = end;
        }

        fn last(&self) -> Option<u8> {
            self.told.last().map(|(_, level)| *level)
        }
    }

    #[test]
    fn speech_is_reported_soon_and_goes_on_being_reported() {
        let mut bench = Bench::new();
        bench.packets(50, |_| SILENCE);
        assert_eq!(bench.told, []);
        bench.packets(100, |_| 30);
        let (first, _) = bench.told[0];
        assert!((1000..1100).contains(&first), "{:?}", bench.told);
        assert!(bench.told.iter().any(|(at, level)| *at < 1300 && *level <= 50), "{:?}", bench.told);
        assert!((30..=33).contains(&bench.last().unwrap()));
        // The level is constant: it is reported every half second.
        let before = bench.told.len();
        bench.packets(100, |_| 30);
        assert!((3..=4).contains(&(bench.told.len() - before)), "{:?}", bench.told);
    }

    #[test]
    fn a_click_is_no_speech_and_a_pause_between_words_no_silence() {
        let mut bench = Bench::new();
        bench.packets(100, |n| if n % 50 < 3 { 20 } else { SILENCE });
        assert!(bench.told.iter().all(|(_, level)| *level > 50), "{:?}", bench.told);
        let mut bench = Bench::new();
        bench.packets(50, |_| 30);
        bench.told.clear();
        // Speech: words of 300 ms with pauses of 200 ms.
        bench.packets(500, |n| if n % 25 < 15 { 30 } else { SILENCE });
        assert!(bench.told.iter().all(|(_, level)| *level < 60), "{:?}", bench.told);
    }

    #[test]
    fn silence_is_reported_once_whether_it_is_sent_or_not() {
        for sends in [true, false] {
            let mut bench = Bench::new();
            bench.packets(50, |_| 30);
            if sends {
                bench.packets(500, |_| SILENCE);
            }
            bench.silence(10_000);
            let silences = bench.told.iter().filter(|(_, level)| *level == SILENCE).count();
            assert_eq!((silences, bench.last()), (1, Some(SILENCE)), "{sends}");
            assert_eq!(bench.loudness.poll_timeout(), None);
        }
    }

    /// Checks that packets of any level, at any rate, cause reports at a limited rate.
    #[test]
    fn reports_come_at_a_bounded_rate() {
        let mut bench = Bench::new();
        let mut random = crypto::Seed::from_number(7).random();
        for _ in 0..20_000 {
            let [level, ms, ..] = random.u64().to_be_bytes();
            let report = bench.loudness.handle_level(bench.now, level & 0x7f);
            bench.note(report);
            bench.silence(u64::from(ms) / 16);
        }
        let close = bench.told.windows(2).filter(|pair| pair[1].0 - pair[0].0 < INTERVAL.as_millis()).count();
        assert!(bench.told.len() > 100 && close == 0, "{close}");
    }
}
