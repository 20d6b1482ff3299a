//! Publishers with every kind of faulty clock, made from a seed, and what their streams must keep.

use std::time::{Duration, Instant};

use crate::timeline::*;
use crate::{Timescale, TrackId};

/// A small generator of random numbers: splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `from` up to, and without, `to`.
    pub(super) fn between(&mut self, from: i64, to: i64) -> i64 {
        let span = u64::try_from(to - from).unwrap().max(1);
        from + i64::try_from(self.next() % span).unwrap()
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.next() % all.len() as u64).unwrap()]
    }
}

/// The tracks that a fault is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    All,
    One(usize),
}

impl Of {
    fn has(self, track: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == track,
        }
    }
}

/// A fault. Times are milliseconds of the true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Timestamps are off by so much from this moment on.
    Jump { of: Of, at: i64, by: i64 },
    /// The first unit from this moment on is stamped off by so much.
    Outlier { of: Of, at: i64, by: i64 },
    /// The clock is so many millionths too fast from this moment on.
    Drift { of: Of, at: i64, ppm: i64 },
    /// No units for so long. The clock stands still meanwhile, or goes on.
    Mute { of: Of, at: i64, ms: i64, stands: bool },
    /// The network holds everything for so long; then all of it comes at once.
    Stall { at: i64, ms: i64 },
    /// Timestamps do not advance for so long, and go on from there.
    Frozen { of: Of, at: i64, ms: i64 },
}

/// A publisher.
#[derive(Debug, Clone)]
pub(super) struct Publisher {
    pub(super) seed: u64,
    /// Bits of its clock, and milliseconds at the beginning.
    pub(super) bits: u32,
    pub(super) start: i64,
    /// Distance of units in microseconds, by track. The first is video.
    pub(super) tracks: Vec<i64>,
    /// By track, in milliseconds.
    pub(super) offsets: Vec<i64>,
    pub(super) delays: Vec<i64>,
    pub(super) jitter: i64,
    pub(super) faults: Vec<Fault>,
    pub(super) seconds: i64,
}

/// A unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    pub(super) track: usize,
    /// Time of sampling, in true milliseconds.
    pub(super) sampled: i64,
    pub(super) arrives: i64,
    pub(super) raw: u64,
    pub(super) out: i64,
    pub(super) is_outlier: bool,
}

impl Publisher {
    pub(super) fn clean() -> Self {
        Self {
            seed: 0,
            bits: 32,
            start: 0,
            tracks: vec![40_000, 21_333],
            offsets: vec![0, 0],
            delays: vec![20, 20],
            jitter: 15,
            faults: Vec::new(),
            seconds: 60,
        }
    }

    pub(super) fn with(faults: &[Fault]) -> Self {
        Self { faults: faults.to_vec(), ..Self::clean() }
    }

    /// A publisher made from a seed. Its faults are far enough apart that each can be judged.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = usize::try_from(random.between(1, 4)).unwrap();
        let tracks = (0..count)
            .map(|n| if n == 0 { 40_000 } else { random.one_of(&[20_000, 21_333, 24_000, 33_333]) });
        let tracks: Vec<i64> = tracks.collect();
        let far = random.between(0, 4) == 0;
        let offsets = (0..count).map(|n| match n {
            0 => 0,
            _ if far => 3_600_000 * i64::try_from(n - 1).unwrap() + random.between(3_600, 3_000_000),
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
        Self {
            seed,
            bits,
            start,
            tracks,
            offsets,
            delays,
            jitter: random.between(0, 25),
            faults,
            seconds: 130,
        }
    }

    /// The timestamp of a unit, true time with all faults, and whether it is an outlier.
    fn stamp(&self, track: usize, sampled: i64, previous: i64) -> (u64, bool) {
        let lost = |sampled: i64, fault: &Fault| match *fault {
            Fault::Frozen { of, at, ms } if of.has(track) && sampled > at => (sampled - at).min(ms),
            Fault::Mute { of, at, ms, stands: true } if of.has(track) && sampled >= at => ms,
            _ => 0,
        };
        let running =
            |sampled: i64| sampled - self.faults.iter().map(|fault| lost(sampled, fault)).sum::<i64>();
        let ran = running(sampled);
        let mut stamp = self.start + self.offsets[track] + ran;
        let mut is_outlier = false;
        for fault in &self.faults {
            match *fault {
                Fault::Jump { of, at, by } if of.has(track) && sampled >= at => stamp += by,
                Fault::Outlier { of, at, by } if of.has(track) && previous < at && sampled >= at => {
                    stamp += by;
                    is_outlier = true;
                }
                Fault::Drift { of, at, ppm } if of.has(track) && sampled > at => {
                    stamp += (ran - running(at)) * ppm / 1_000_000;
                }
                _ => {}
            }
        }
        (stamp.cast_unsigned() & ((1 << self.bits) - 1), is_outlier)
    }

    fn is_mute(&self, track: usize, sampled: i64) -> bool {
        self.faults.iter().any(|fault| {
            matches!(*fault, Fault::Mute { of, at, ms, .. } if of.has(track) && (at..at + ms).contains(&sampled))
        })
    }

    /// All units in the order of their arrival.
    pub(super) fn units(&self) -> Vec<Unit> {
        let mut random = Random::new(self.seed ^ 0x5eed);
        let mut units = Vec::new();
        for (track, interval) in self.tracks.iter().enumerate() {
            let mut previous = -1;
            let mut last = 0;
            for n in 0..self.seconds * 1_000_000 / interval {
                let sampled = n * interval / 1000;
                if self.is_mute(track, sampled) {
                    continue;
                }
                let mut arrives = sampled + self.delays[track] + random.between(0, self.jitter + 1);
                for fault in &self.faults {
                    if let Fault::Stall { at, ms } = *fault
                        && (at..at + ms).contains(&arrives)
                    {
                        arrives = at + ms;
                    }
                }
                last = arrives.max(last);
                let (raw, is_outlier) = self.stamp(track, sampled, previous);
                units.push(Unit { track, sampled, arrives: last, raw, out: 0, is_outlier });
                previous = sampled;
            }
        }
        units.sort_by_key(|unit| (unit.arrives, unit.sampled));
        units
    }

    /// Runs the publisher's units through a timeline.
    pub(super) fn run(&self) -> (Vec<Unit>, Timeline) {
        // The protocol's clock has 32 bits, whatever the encoder does.
        let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        let began = began();
        let mut units = self.units();
        for unit in &mut units {
            timeline.arrive(began + Duration::from_millis(unit.arrives.cast_unsigned()));
            unit.out = timeline.map(track_id(unit.track), unit.raw);
        }
        (units, timeline)
    }

    /// Checks the properties that hold for every publisher.
    ///
    /// # Errors
    /// The first property that does not hold, and where.
    pub(super) fn check(&self) -> Result<(), String> {
        let (units, _) = self.run();
        self.check_order(&units)?;
        self.check_speed(&units)?;
        self.check_lips(&units)
    }

    fn check_order(&self, units: &[Unit]) -> Result<(), String> {
        for track in 0..self.tracks.len() {
            let of: Vec<&Unit> = units.iter().filter(|unit| unit.track == track).collect();
            for pair in of.windows(2) {
                if pair[1].out < pair[0].out {
                    return Err(format!("the DTS falls: {:?}", pair));
                }
            }
        }
        Ok(())
    }

    /// No media of the track arrives.
    fn is_silent(&self, track: usize, from: i64, to: i64) -> bool {
        self.faults.iter().any(|fault| match *fault {
            Fault::Stall { at, ms } => from < at + ms + 500 && at < to,
            Fault::Mute { of, at, ms, .. } => of.has(track) && from < at + ms + 2_500 && at < to,
            _ => false,
        })
    }

    fn check_speed(&self, units: &[Unit]) -> Result<(), String> {
        for track in 0..self.tracks.len() {
            let (mut heads, mut second) = (vec![0], 1000);
            let mut head = 0;
            for unit in units.iter().filter(|unit| unit.track == track) {
                while unit.arrives >= second {
                    heads.push(head);
                    second += 1000;
                }
                head = unit.out.max(head);
            }
            for (from, pair) in heads.iter().zip(heads.iter().skip(10)).enumerate().skip(3) {
                let at = i64::try_from(from).unwrap() * 1000;
                let advance = pair.1 - pair.0;
                if !self.is_silent(track, at, at + 10_000) && !(9_000..=11_000).contains(&advance) {
                    return Err(format!("10 s from {at} on advance track {track} by {advance} ms"));
                }
            }
        }
        Ok(())
    }

    /// The distance that a track has from the first one by right, per unit of it: its own up to 3 s, else that of arrival.
    fn check_lips(&self, units: &[Unit]) -> Result<(), String> {
        for track in 1..self.tracks.len() {
            // Arrival may differ by the delays and the jitter.
            let own = self.offsets[track];
            let (right, slack) = if own.abs() <= 2_600 { (own, 0) } else { (0, 200) };
            // A track that begins before the first unit of all is held at zero.
            for window in 3..self.seconds {
                let (from, to) = (window * 1000, window * 1000 + 1000);
                if self.is_unsettled(from, to) {
                    continue;
                }
                let lead = |track: usize| {
                    let of = units.iter().filter(|unit| unit.track == track && !unit.is_outlier);
                    let mut leads: Vec<i64> = of
                        .filter(|unit| (from..to).contains(&unit.sampled))
                        .map(|unit| unit.out - unit.sampled)
                        .collect();
                    leads.sort_unstable();
                    leads.get(leads.len() / 2).copied()
                };
                let (Some(first), Some(this)) = (lead(0), lead(track)) else { continue };
                let off = this - first - right;
                if off.abs() > 100 + slack {
                    return Err(format!("track {track} is {off} ms off at {from}"));
                }
            }
        }
        Ok(())
    }

    /// A fault has just begun or ended, and its correction may take a moment.
    fn is_unsettled(&self, from: i64, to: i64) -> bool {
        self.faults.iter().any(|fault| match *fault {
            Fault::Drift { at, .. } => from < at + 8_000 && at < to,
            Fault::Frozen { at, ms, .. } => from < at + ms + 2_500 && at < to,
            Fault::Mute { at, ms, .. } => {
                let soon =
                    ms > 1_700 && !self.faults.iter().any(|fault| matches!(fault, Fault::Drift { .. }));
                from < at + ms + if soon { 600 } else { 8_000 } && at < to
            }
            Fault::Jump { .. } | Fault::Outlier { .. } | Fault::Stall { .. } => false,
        })
    }
}

/// The beginning of virtual time.
#[allow(clippy::disallowed_methods, reason = "there is no other way to an Instant")]
pub(super) fn began() -> Instant {
    Instant::now()
}

pub(super) fn track_id(track: usize) -> TrackId {
    match track {
        0 => TrackId::VIDEO,
        n => TrackId::nth(crate::TrackKind::Audio, u8::try_from(n - 1).unwrap()).unwrap(),
    }
}

fn fault(random: &mut Random, tracks: usize, at: i64) -> Fault {
    let one = usize::try_from(random.between(0, i64::try_from(tracks).unwrap())).unwrap();
    let of = if random.between(0, 2) == 0 { Of::All } else { Of::One(one) };
    let sizes = [-3_600_000, -30_000, -4_000, -1_500, 1_500, 5_000, 9_000, 30_000, 3_600_000, 40_000_000];
    match random.between(0, 6) {
        0 => Fault::Jump { of, at, by: random.one_of(&sizes) },
        1 => Fault::Outlier { of: Of::One(one), at, by: random.one_of(&sizes) },
        2 => {
            Fault::Drift { of, at, ppm: random.one_of(&[-150_000, -50_000, -8_000, 8_000, 50_000, 150_000]) }
        }
        3 => Fault::Mute { of, at, ms: random.between(300, 9_000), stands: random.between(0, 2) == 0 },
        4 => Fault::Stall { at, ms: random.between(300, 9_000) },
        _ => Fault::Frozen { of, at, ms: random.between(1_000, 6_000) },
    }
}
