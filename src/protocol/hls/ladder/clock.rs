//! The time that all renditions of a ladder share: the arrival of their media at this server by the wall clock.
//! Two streams therefore have the same time without any communication between them.
//!
//! 1. The units of the first second are held back. The one that arrived with the least delay determines the time
//!    of the stream.
//! 2. If the leading rendition has a key frame close to the first one of this stream ([`SNAP_MS`]), both are taken
//!    for the same picture, and the time is moved accordingly.
//! 3. From then on, time advances with the stream. It jumps as dates do ([`Dates`]), except when the wall clock is
//!    set.

use hls::segmenter::{Dates, NUMBERS_FROM_MS};
use media::Timescale;

use super::rung::Lead;
use crate::hub::{Chosen, Entry};
use crate::protocol::hls::{arrival, calendar};
use crate::types::Calendar;

/// Maximum media held back until the time is known: milliseconds, units and bytes.
const HELD_MS: i64 = 1000;
const HELD_UNITS_MAX: usize = 600;
const HELD_BYTES_MAX: usize = 8 << 20;
/// Maximum distance in milliseconds of key frames of two renditions that are taken for the same picture: more than
/// the extra delay of a large key frame, and less than half the distance of two key frames of one rendition.
pub(in crate::protocol::hls) const SNAP_MS: i64 = 250;

/// The time that a stream shares with the other renditions of its ladder.
#[derive(Debug)]
pub(super) struct Clock {
    dates: Dates,
    /// Units that are held back, with the tracks of each.
    held: Vec<(Entry, Chosen)>,
    held_bytes: usize,
    is_settled: bool,
    /// Milliseconds by which the time was moved to match a key frame of the leading rendition.
    moved_ms: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { dates: Dates::new(), held: Vec::new(), held_bytes: 0, is_settled: false, moved_ms: 0 }
    }

    /// True if the time is known.
    pub(super) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Takes the arrival of a unit into account.
    pub(super) fn note(&mut self, entry: &Entry, chosen: &Chosen) {
        self.dates.note(arrival(entry), chosen.epoch());
    }

    /// Holds a unit back. Returns true once enough units are held back to fix the time.
    pub(super) fn hold(&mut self, entry: &Entry, chosen: &Chosen) -> bool {
        self.held_bytes = self.held_bytes.saturating_add(entry.unit.payload.len());
        self.held.push((entry.clone(), chosen.clone()));
        let first_ms = self.held.first().map_or(0, |(first, _)| first.dts_ms);
        entry.dts_ms.saturating_sub(first_ms) >= HELD_MS
            || self.held.len() >= HELD_UNITS_MAX
            || self.held_bytes >= HELD_BYTES_MAX
    }

    /// Fixes the time of the stream. If another stream has the leading rendition, its key frames are taken into
    /// account. Returns the units that were held back.
    pub(super) fn settle(&mut self, lead: Option<&Lead>) -> Vec<(Entry, Chosen)> {
        self.dates.settle();
        self.is_settled = true;
        let is_first = |(entry, chosen): &&(Entry, Chosen)| {
            chosen.lead().is_none_or(|lead| lead == entry.unit.track && entry.unit.key_frame)
        };
        if let Some((first, _)) = self.held.iter().find(is_first) {
            let begin_ms = self.time_ms(first.dts_ms);
            let apart_ms = lead.and_then(|lead| lead.key_beside(begin_ms));
            self.moved_ms = apart_ms.filter(|apart_ms| apart_ms.abs() <= SNAP_MS).unwrap_or(0);
        }
        std::mem::take(&mut self.held)
    }

    /// True if time jumps at the beginning of the next segment.
    pub(super) const fn is_due(&self) -> bool {
        self.dates.is_due()
    }

    /// Makes time jump, because a segment begins with this unit.
    pub(super) fn jump(&mut self, entry: &Entry) {
        self.dates.jump(entry.dts_ms);
    }

    /// Returns the date from which the time counts, in milliseconds of Unix time: the beginning of 2026, or that of 1970
    /// if the stream began while the clock of this machine showed an earlier date. Times must not be negative.
    pub(super) fn zero_ms(&self) -> u64 {
        match self.dates.reading() {
            Some((_, wall_ms)) if wall_ms < NUMBERS_FROM_MS => 0,
            Some(_) | None => NUMBERS_FROM_MS,
        }
    }

    /// Returns the time of media with this DTS, in milliseconds since [`Self::zero_ms`].
    fn time_ms(&self, dts_ms: i64) -> i64 {
        let from_ms = i64::try_from(self.zero_ms()).unwrap_or(0);
        self.dates.calendar_ms(dts_ms).saturating_add(self.moved_ms).saturating_sub(from_ms)
    }

    /// Returns the date of media with this DTS, in milliseconds of Unix time.
    pub(super) fn date_ms(&self, dts_ms: i64) -> i64 {
        self.dates.date_ms(dts_ms).saturating_add(self.moved_ms)
    }

    /// Returns the calendar that gives the date of an arrival.
    pub(super) fn calendar(&self) -> Option<Calendar> {
        calendar(&self.dates)
    }

    /// Returns the unit with its times converted to the shared time.
    pub(super) fn shared(&self, entry: &Entry) -> Entry {
        let shift_ms = self.time_ms(entry.dts_ms).saturating_sub(entry.dts_ms);
        let scale = entry.tracks.get(entry.unit.track).map(|track| track.timescale);
        let shift = scale.map_or(shift_ms, |scale| Timescale::MILLISECONDS.convert(shift_ms, scale));
        let mut shared = entry.clone();
        shared.unit.dts = shared.unit.dts.saturating_add(shift);
        shared.unit.pts = shared.unit.pts.saturating_add(shift);
        shared.dts_ms = shared.dts_ms.saturating_add(shift_ms);
        shared
    }
}
