//! Publishers with faulty clocks of every kind, in virtual time. Their faults are listed by hand or drawn from a
//! seed.
//!
//! A [`Publisher`] makes units with their sampling time, arrival time and timestamp. The receiver under test sets
//! [`Unit::out`]; then [`Publisher::judge`] checks the result.

mod judge;
mod reports;

pub use reports::{Report, Reports};

/// Tracks that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Every track.
    All,
    /// Only the track with this index.
    One(usize),
}

impl Of {
    /// True if the fault affects this track.
    #[must_use]
    pub const fn has(self, track: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == track,
        }
    }
}

/// A fault of a publisher. All times are in milliseconds of true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// From this time on, timestamps are off by `by`.
    Jump {
        /// Affected tracks.
        of: Of,
        /// Time of the fault.
        at: i64,
        /// Offset in milliseconds; positive values are ahead.
        by: i64,
    },
    /// The timestamp of the first unit from this time on is off by `by`; later ones are correct.
    Outlier {
        /// Affected tracks.
        of: Of,
        /// Time of the fault.
        at: i64,
        /// Offset in milliseconds; positive values are ahead.
        by: i64,
    },
    /// From this time on, the clock runs too fast by `ppm` millionths.
    Drift {
        /// Affected tracks.
        of: Of,
        /// Time of the fault.
        at: i64,
        /// Millionths by which the clock is too fast.
        ppm: i64,
    },
    /// No units are sampled for this long. Meanwhile the clock stands still or continues.
    Mute {
        /// Affected tracks.
        of: Of,
        /// Time of the fault.
        at: i64,
        /// Length in milliseconds.
        ms: i64,
        /// True if the clock stands still meanwhile.
        stands: bool,
    },
    /// The network holds back all units for this long and then delivers them at once.
    Stall {
        /// Time of the fault.
        at: i64,
        /// Length in milliseconds.
        ms: i64,
    },
    /// Timestamps stand still for this long and then continue from the value at which they stood, so they stay
    /// behind by `ms`. A [`Self::Jump`] by `ms` at the end puts them right again.
    Frozen {
        /// Affected tracks.
        of: Of,
        /// Time of the fault.
        at: i64,
        /// Length in milliseconds.
        ms: i64,
    },
}

/// Simulated publisher.
#[derive(Debug, Clone)]
pub struct Publisher {
    /// Seed of the jitter.
    pub seed: u64,
    /// Number of bits of the timestamps.
    pub bits: u32,
    /// Start value of the clock in milliseconds.
    pub start: i64,
    /// Interval of units in microseconds, by track. The first track is video.
    pub tracks: Vec<i64>,
    /// Offset of all timestamps in milliseconds, by track.
    pub offsets: Vec<i64>,
    /// Delay from sampling to arrival in milliseconds, by track.
    pub delays: Vec<i64>,
    /// Maximum random time added to a delay, in milliseconds.
    pub jitter: i64,
    /// Faults of the clocks and of the network.
    pub faults: Vec<Fault>,
    /// Sender reports, if the protocol has them.
    pub reports: Reports,
    /// Total length in seconds.
    pub seconds: i64,
}

/// Unit of a simulated publisher.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    /// Index into [`Publisher::tracks`].
    pub track: usize,
    /// Sampling time in true milliseconds.
    pub sampled: i64,
    /// Arrival time in true milliseconds.
    pub arrives: i64,
    /// Timestamp of the unit.
    pub raw: u64,
    /// Time that the receiver under test has assigned to the unit.
    pub out: i64,
    /// True if only the timestamp of this unit is off.
    pub is_outlier: bool,
}

impl Publisher {
    /// Publisher without faults: 25 pictures per second and 48 kHz AAC.
    #[must_use]
    pub fn clean() -> Self {
        Self {
            seed: 0,
            bits: 32,
            start: 0,
            tracks: vec![40_000, 21_333],
            offsets: vec![0, 0],
            delays: vec![20, 20],
            jitter: 15,
            faults: Vec::new(),
            reports: Reports::Absent,
            seconds: 60,
        }
    }

    /// Publisher with these faults and no others.
    #[must_use]
    pub fn with(faults: &[Fault]) -> Self {
        Self { faults: faults.to_vec(), ..Self::clean() }
    }

    /// Creates a publisher whose faults are drawn from a seed. The faults are far enough apart to be judged separately.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(1, 4);
        let tracks = (0..count)
            .map(|n| if n == 0 { 40_000 } else { random.one_of(&[20_000, 21_333, 24_000, 33_333]) });
        let tracks: Vec<i64> = tracks.collect();
        let far = random.between(0, 4) == 0;
        let offsets = (0..count).map(|n| match n {
            0 => 0,
            _ if far => 3_600_000 * (n - 1) + random.between(3_600, 3_000_000),
            _ => random.between(-400, 2_400),
        });
        let offsets = offsets.collect();
        let delays = (0..count).map(|_| random.between(5, 120)).collect();
        let mut at = random.between(8_000, 15_000);
        let mut faults = Vec::new();
        while at < 100_000 {
            let next = fault(&mut random, count, at);
            let drifts = |fault: &Fault| matches!(fault, Fault::Drift { .. });
            if !(drifts(&next) && faults.iter().any(drifts)) {
                faults.push(next);
            }
            at += random.between(25_000, 45_000);
        }
        let bits = random.one_of(&[24, 31, 32]);
        let wraps = random.between(0, 3) == 0;
        let start =
            if wraps { (1 << bits) - random.between(1_000, 60_000) } else { random.between(4_000, 900_000) };
        let jitter = random.between(0, 25);
        Self { seed, bits, start, tracks, offsets, delays, jitter, faults, seconds: 130, ..Self::clean() }
    }

    /// Returns the timestamp that this publisher, with its faults, gives to a unit sampled at the true time `sampled`.
    /// Also returns whether the timestamp is an outlier: the first one after `previous` that an outlier fault affects.
    #[must_use]
    pub fn stamp(&self, track: usize, sampled: i64, previous: i64) -> (u64, bool) {
        let ran = self.running(track, sampled);
        let mut stamp = self.start + self.offsets.get(track).copied().unwrap_or(0) + ran;
        let mut is_outlier = false;
        for fault in &self.faults {
            match *fault {
                Fault::Jump { of, at, by } if of.has(track) && sampled >= at => stamp += by,
                Fault::Outlier { of, at, by } if of.has(track) && previous < at && sampled >= at => {
                    stamp += by;
                    is_outlier = true;
                }
                Fault::Drift { of, at, ppm } if of.has(track) && sampled > at => {
                    stamp += (ran - self.running(track, at)) * ppm / 1_000_000;
                }
                Fault::Jump { .. }
                | Fault::Outlier { .. }
                | Fault::Drift { .. }
                | Fault::Mute { .. }
                | Fault::Stall { .. }
                | Fault::Frozen { .. } => {}
            }
        }
        (stamp.cast_unsigned() & ((1 << self.bits) - 1), is_outlier)
    }

    /// Returns how long the clock of a track has run until a true time. Periods in which it stood still do not count.
    fn running(&self, track: usize, sampled: i64) -> i64 {
        let stood = self.faults.iter().map(|fault| match *fault {
            Fault::Frozen { of, at, ms } if of.has(track) && sampled > at => (sampled - at).min(ms),
            Fault::Mute { of, at, ms, stands: true } if of.has(track) && sampled >= at => ms,
            Fault::Jump { .. }
            | Fault::Outlier { .. }
            | Fault::Drift { .. }
            | Fault::Mute { .. }
            | Fault::Stall { .. }
            | Fault::Frozen { .. } => 0,
        });
        sampled - stood.sum::<i64>()
    }

    /// True if a fault mutes the track at the true time `sampled`, so that the track has no unit then.
    #[must_use]
    pub fn is_mute(&self, track: usize, sampled: i64) -> bool {
        self.faults.iter().any(|fault| {
            matches!(*fault, Fault::Mute { of, at, ms, .. } if of.has(track) && (at..at + ms).contains(&sampled))
        })
    }

    /// Returns the time at which a unit arrives that would arrive at `due` if nothing stalled.
    #[must_use]
    pub fn stalled(&self, due: i64) -> i64 {
        self.faults.iter().fold(due, |arrives, fault| match *fault {
            Fault::Stall { at, ms } if (at..at + ms).contains(&arrives) => at + ms,
            Fault::Jump { .. }
            | Fault::Outlier { .. }
            | Fault::Drift { .. }
            | Fault::Mute { .. }
            | Fault::Stall { .. }
            | Fault::Frozen { .. } => arrives,
        })
    }

    /// Returns all units in the order of their arrival.
    #[must_use]
    pub fn units(&self) -> Vec<Unit> {
        let mut random = Random::new(self.seed ^ 0x5eed);
        let mut units = Vec::new();
        for (track, interval) in self.tracks.iter().enumerate() {
            let delay = self.delays.get(track).copied().unwrap_or(0);
            let mut previous = -1;
            let mut last = 0;
            for n in 0..self.seconds * 1_000_000 / interval {
                let sampled = n * interval / 1000;
                if self.is_mute(track, sampled) {
                    continue;
                }
                let arrives = self.stalled(sampled + delay + random.between(0, self.jitter + 1));
                last = arrives.max(last);
                let (raw, is_outlier) = self.stamp(track, sampled, previous);
                units.push(Unit { track, sampled, arrives: last, raw, out: 0, is_outlier });
                previous = sampled;
            }
        }
        units.sort_by_key(|unit| (unit.arrives, unit.sampled));
        units
    }
}

/// Small random generator: splitmix64.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number from `from` up to but not including `to`.
    fn between(&mut self, from: i64, to: i64) -> i64 {
        let span = u64::try_from(to - from).unwrap_or(1).max(1);
        from + i64::try_from(self.next() % span).unwrap_or(0)
    }

    fn one_of<T: Copy + Default>(&mut self, all: &[T]) -> T {
        let at = self.next() % u64::try_from(all.len()).unwrap_or(1).max(1);
        usize::try_from(at).ok().and_then(|at| all.get(at)).copied().unwrap_or_default()
    }
}

fn fault(random: &mut Random, tracks: i64, at: i64) -> Fault {
    const SIZES: [i64; 10] =
        [-3_600_000, -30_000, -4_000, -1_500, 1_500, 5_000, 9_000, 30_000, 3_600_000, 40_000_000];
    let one = usize::try_from(random.between(0, tracks)).unwrap_or(0);
    let of = if random.between(0, 2) == 0 { Of::All } else { Of::One(one) };
    match random.between(0, 6) {
        0 => Fault::Jump { of, at, by: random.one_of(&SIZES) },
        1 => Fault::Outlier { of: Of::One(one), at, by: random.one_of(&SIZES) },
        2 => {
            Fault::Drift { of, at, ppm: random.one_of(&[-150_000, -50_000, -8_000, 8_000, 50_000, 150_000]) }
        }
        3 => Fault::Mute { of, at, ms: random.between(300, 9_000), stands: random.between(0, 2) == 0 },
        4 => Fault::Stall { at, ms: random.between(300, 9_000) },
        _ => Fault::Frozen { of, at, ms: random.between(1_000, 6_000) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_no_fault_leaves_a_clean_publisher() {
        let raws = |seed| Publisher::of_seed(seed).units().iter().map(|unit| unit.raw).collect::<Vec<_>>();
        assert_eq!(raws(7), raws(7));
        assert_ne!(raws(7), raws(8));
        for unit in Publisher::clean().units() {
            assert_eq!(unit.raw, unit.sampled.cast_unsigned());
            assert!((20..=36).contains(&(unit.arrives - unit.sampled)), "{unit:?}");
        }
    }

    #[test]
    fn each_fault_does_what_it_says() {
        let stamp = |fault: Fault, sampled| Publisher::with(&[fault]).stamp(1, sampled, sampled - 21).0;
        let (of, at) = (Of::One(1), 1_000);
        assert_eq!(stamp(Fault::Jump { of, at, by: 500 }, 2_000), 2_500);
        assert_eq!(stamp(Fault::Outlier { of, at, by: 500 }, 1_010), 1_510);
        assert_eq!(stamp(Fault::Outlier { of, at, by: 500 }, 1_030), 1_030);
        assert_eq!(stamp(Fault::Drift { of, at, ppm: 100_000 }, 2_000), 2_100);
        assert_eq!(stamp(Fault::Frozen { of, at, ms: 400 }, 2_000), 1_600);
        assert_eq!(stamp(Fault::Frozen { of, at, ms: 4_000 }, 2_000), 1_000);
        let mute = |stands| Fault::Mute { of, at, ms: 400, stands };
        assert_eq!((stamp(mute(true), 2_000), stamp(mute(false), 2_000)), (1_600, 2_000));
        assert_eq!(stamp(Fault::Jump { of: Of::One(0), at, by: 500 }, 2_000), 2_000);
        let publisher = Publisher::with(&[mute(true), Fault::Stall { at: 3_000, ms: 500 }]);
        let units = publisher.units();
        assert!(!units.iter().any(|unit| unit.track == 1 && (1_000..1_400).contains(&unit.sampled)));
        assert!(!units.iter().any(|unit| (3_000..3_500).contains(&unit.arrives)));
    }
}
