//! The time that all renditions of a ladder share: that at which their media came to this server, by the wall clock, so that two
//! streams need not know of each other to have the same time.
//!
//! 1. The first second is held back. The least that its units were late says where the time of the stream stands.
//! 2. Where the rendition that leads has a key frame a little earlier or later than the first one here, both are taken for the same
//!    picture: the time is moved there ([`SNAP_MS`]).
//! 3. From then on time passes as the stream's. It jumps as dates do ([`Dates`]), but for a wall clock that is set.

use hls::segmenter::{Dates, NUMBERS_FROM_MS};
use media::Timescale;

use super::rung::Lead;
use crate::hub::{Chosen, Entry};
use crate::protocol::hls::{arrival, calendar};
use crate::types::Calendar;

/// Media that is held back until the time is known, in milliseconds, units and bytes.
const HELD_MS: i64 = 1000;
const HELD_UNITS_MAX: usize = 600;
const HELD_BYTES_MAX: usize = 8 << 20;
/// Key frames of two renditions that are no further apart are the same picture: more than the time by which a large one comes later
/// than a small one, and less than half the distance of two.
pub(in crate::protocol::hls) const SNAP_MS: i64 = 250;

/// The time that a stream shares with the other renditions of its ladder.
#[derive(Debug)]
pub(super) struct Clock {
    dates: Dates,
    /// Units that are held back, with the tracks of each.
    held: Vec<(Entry, Chosen)>,
    held_bytes: usize,
    is_settled: bool,
    /// Milliseconds that the time was moved by.
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

    /// Holds a unit back. Returns true when there are enough.
    pub(super) fn hold(&mut self, entry: &Entry, chosen: &Chosen) -> bool {
        self.held_bytes = self.held_bytes.saturating_add(entry.unit.payload.len());
        self.held.push((entry.clone(), chosen.clone()));
        let first_ms = self.held.first().map_or(0, |(first, _)| first.dts_ms);
        entry.dts_ms.saturating_sub(first_ms) >= HELD_MS
            || self.held.len() >= HELD_UNITS_MAX
            || self.held_bytes >= HELD_BYTES_MAX
    }

    /// Fixes the time, beside the rendition that leads, if another one does. Returns the units that were held back.
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

    /// True if time jumps where the next segment begins.
    pub(super) const fn is_due(&self) -> bool {
        self.dates.is_due()
    }

    /// Lets time jump: a segment begins with this unit.
    pub(super) fn jump(&mut self, entry: &Entry) {
        self.dates.jump(entry.dts_ms);
    }

    /// Returns the time of media with this DTS, in milliseconds since the beginning of 2026.
    fn time_ms(&self, dts_ms: i64) -> i64 {
        let from_ms = i64::try_from(NUMBERS_FROM_MS).unwrap_or(0);
        self.dates.calendar_ms(dts_ms).saturating_add(self.moved_ms).saturating_sub(from_ms)
    }

    /// Returns the date of media with this DTS, in milliseconds of Unix time.
    pub(super) fn date_ms(&self, dts_ms: i64) -> i64 {
        self.dates.date_ms(dts_ms).saturating_add(self.moved_ms)
    }

    /// Returns the calendar by which media came.
    pub(super) fn calendar(&self) -> Option<Calendar> {
        calendar(&self.dates)
    }

    /// Returns the unit with its times in the shared time.
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
