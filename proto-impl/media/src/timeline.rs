//! One clean clock per stream, whatever the publisher's clock does.
//!
//! All tracks of a publisher share one offset, so that audio and video keep the distance that the publisher gave
//! them. Within a track DTS never falls. A jump of the publisher's clock is repaired: the stream continues where it
//! was, and the jump is counted. A returning publisher continues behind its predecessor.

use crate::{Timescale, Unwrap};

/// A step forward beyond this is a jump of the clock, not a pause of the encoder.
const JUMP_FORWARD_MS: i64 = 10_000;
/// A step back beyond this is a jump. Less is the ordinary unevenness of interleaved tracks.
const JUMP_BACK_MS: i64 = 3_000;
/// First timestamps up to this are kept as they are, so that the usual publisher, which starts at or near zero, is
/// passed on unchanged; a clock that starts higher is moved to zero.
const START_KEPT_MS: i64 = 5_000;
/// Distance in time of the first unit behind a jump or a change of publisher.
const RESUME_GAP_MS: i64 = 40;

/// The position of a timeline; handed to the next publisher of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The highest DTS assigned so far, in milliseconds.
    pub dts_ms: i64,
    /// Whether any DTS was assigned.
    pub started: bool,
}

/// Maps a publisher's clock to the stream's, both in ticks of the publisher's timescale.
#[derive(Debug, Clone)]
pub struct Timeline {
    unwrap: Unwrap,
    timescale: Timescale,
    offset: Option<i64>,
    last_raw: i64,
    /// The last DTS of each track; a stream has few.
    last_by_track: Vec<(crate::TrackId, i64)>,
    /// The highest DTS assigned so far.
    head: i64,
    started: bool,
    jumps: u64,
}

impl Timeline {
    /// Creates a timeline for a publisher's clock of `bits` bits in `timescale`, continuing at `position`.
    #[must_use]
    pub fn new(bits: u32, timescale: Timescale, position: Position) -> Self {
        Self {
            unwrap: Unwrap::new(bits),
            timescale,
            offset: None,
            last_raw: 0,
            last_by_track: Vec::new(),
            head: Timescale::MILLISECONDS.convert(position.dts_ms, timescale),
            started: position.started,
            jumps: 0,
        }
    }

    /// The stream's DTS for a unit that the publisher stamped `raw`.
    pub fn map(&mut self, track: crate::TrackId, raw: u64) -> i64 {
        let raw = self.unwrap.unwrap(raw);
        let offset = match self.offset {
            None => self.first_offset(raw),
            Some(offset) => {
                let step = raw.saturating_sub(self.last_raw);
                if !(self.ticks(-JUMP_BACK_MS)..=self.ticks(JUMP_FORWARD_MS)).contains(&step) {
                    self.jumps += 1;
                    self.resume_offset(raw)
                } else {
                    offset
                }
            }
        };
        self.offset = Some(offset);
        self.last_raw = raw;
        self.place(track, raw.saturating_add(offset).max(0))
    }

    /// The stream's DTS for a unit that is neither audio nor video. Its stamp moves no clock: some encoders stamp metadata
    /// zero at any time. One that makes no sense stands where the stream stands.
    pub fn map_beside(&mut self, track: crate::TrackId, raw: u64) -> i64 {
        let near = self.offset.and_then(|offset| {
            let raw = self.unwrap.clone().unwrap(raw);
            let step = raw.saturating_sub(self.last_raw);
            (self.ticks(-JUMP_BACK_MS)..=self.ticks(JUMP_BACK_MS))
                .contains(&step)
                .then(|| raw.saturating_add(offset).max(0))
        });
        self.place(track, near.unwrap_or(self.head))
    }

    /// The position reached so far.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { dts_ms: self.timescale.to_ms(self.head), started: self.started }
    }

    /// Jumps of the publisher's clock that were repaired.
    #[must_use]
    pub const fn jumps(&self) -> u64 {
        self.jumps
    }

    fn first_offset(&self, raw: i64) -> i64 {
        if self.started {
            self.resume_offset(raw)
        } else if raw <= self.ticks(START_KEPT_MS) {
            0
        } else {
            raw.saturating_neg()
        }
    }

    fn resume_offset(&self, raw: i64) -> i64 {
        self.head.saturating_add(self.ticks(RESUME_GAP_MS)).saturating_sub(raw)
    }

    fn ticks(&self, ms: i64) -> i64 {
        Timescale::MILLISECONDS.convert(ms, self.timescale)
    }

    fn place(&mut self, track: crate::TrackId, dts: i64) -> i64 {
        let known = self.last_by_track.iter_mut().find(|(of, _)| *of == track);
        let dts = match known {
            Some((_, last)) => {
                *last = dts.max(*last);
                *last
            }
            None => {
                self.last_by_track.push((track, dts));
                dts
            }
        };
        self.head = self.head.max(dts);
        self.started = true;
        dts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrackId;

    fn map_all(timeline: &mut Timeline, raws: &[u64]) -> Vec<i64> {
        raws.iter().map(|&raw| timeline.map(TrackId::VIDEO, raw)).collect()
    }

    #[test]
    fn a_clock_that_starts_near_zero_is_unchanged() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        assert_eq!(map_all(&mut t, &[23, 56, 90]), [23, 56, 90]);
    }

    #[test]
    fn a_clock_that_starts_high_begins_at_zero() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        assert_eq!(map_all(&mut t, &[900_000, 900_033]), [0, 33]);
    }

    #[test]
    fn m_07_jumps_are_repaired_and_counted_and_the_wrap_is_no_jump() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        let raws = [0, 33, 3_000_000, 3_000_033, 100, 133, 0xffff_fff0, 0x10];
        let out = map_all(&mut t, &raws);
        assert!(out.windows(2).all(|w| matches!(w, [a, b] if b >= a && b - a <= 73)), "{out:?}");
        assert_eq!(t.jumps(), 2, "the last two are 149 ms back and 32 ms on, across the wrap");
    }

    #[test]
    fn tracks_share_the_offset_and_each_never_falls() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        assert_eq!(t.map(TrackId::VIDEO, 100), 100);
        assert_eq!(t.map(TrackId::AUDIO, 90), 90);
        assert_eq!(t.map(TrackId::AUDIO, 80), 90);
        assert_eq!(t.map(TrackId::VIDEO, 133), 133);
    }

    #[test]
    fn metadata_stamped_zero_moves_nothing() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        map_all(&mut t, &[5000, 5033]);
        assert_eq!(t.map_beside(TrackId::DATA, 0), 5033);
        assert_eq!(t.map_beside(TrackId::DATA, 5040), 5040);
        assert_eq!((map_all(&mut t, &[5066]), t.jumps()), (vec![5066], 0));
    }

    #[test]
    fn a_returning_publisher_continues_behind_the_first() {
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, Position { dts_ms: 5000, started: true });
        assert_eq!(map_all(&mut t, &[0, 33]), [5040, 5073]);
    }

    #[test]
    fn t_07_ticks_of_90_khz_stay_to_the_tick_over_the_wrap_and_over_jumps() {
        let ticks = Timescale::new(90_000);
        let mut t = Timeline::new(33, ticks, Position::default());
        assert_eq!(map_all(&mut t, &[1, 3004, 6007]), [1, 3004, 6007]);
        // The end of 33 bits, 26.5 hours on: the clock starts high, and the wrap is no jump.
        let mut t = Timeline::new(33, ticks, Position::default());
        let end = 1u64 << 33;
        assert_eq!(map_all(&mut t, &[end - 3003, 0, 3003, 6006]), [0, 3003, 6006, 9009]);
        // Ten seconds are a pause, more is a jump; three back are uneven, more is a jump.
        assert_eq!(map_all(&mut t, &[906_006]), [909_009]);
        assert_eq!((map_all(&mut t, &[1_806_007]), t.jumps()), (vec![912_609], 1));
        assert_eq!((map_all(&mut t, &[1_536_007]), t.jumps()), (vec![912_609], 1));
        assert_eq!((map_all(&mut t, &[1_266_006]), t.jumps()), (vec![916_209], 2));
        assert_eq!(t.position(), Position { dts_ms: 10_180, started: true });
        // The next publisher counts something else.
        let mut t = Timeline::new(32, Timescale::MILLISECONDS, t.position());
        assert_eq!(map_all(&mut t, &[0]), [10_220]);
    }
}
