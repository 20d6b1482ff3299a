//! Segments that a playlist no longer lists, and manifests that reach back to them.
//!
//! 1. The owner takes a [`Piece`] of each new segment ([`Piece::newest`]), and joins pieces that follow one another
//!    ([`Piece::join`]).
//! 2. A piece is stored as a line of text, and read again after a restart ([`Piece::line`], [`Piece::read`]).
//! 3. [`Past::manifest`] describes the pieces of several renditions, also those of earlier runs of the stream. Its
//!    presentation begins at a date that never changes, and a period begins where an [`Anchor`] says so.
//! 4. [`select()`] reduces such a manifest to a part of the presentation.

mod line;
mod select;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use media::TrackKind;

pub use self::select::{Excerpt, select};
use super::manifest::{Head, Kind, Moments, Row, Shown, Stretch, add, period, tail};
use super::outline::{Accessibility, Outline};

/// Maximum number of periods of a manifest; the segments of older periods are left out.
const PERIODS_MAX: usize = 64;

/// Time by which a run of a stream may begin before the end of the run before it, in milliseconds.
const SET_BACK_MS: u64 = 1000;

/// The beginning of a period (§5.3.2) in a presentation with several runs of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anchor {
    /// Beginning of the period in the presentation, in milliseconds.
    pub start_ms: u64,
    /// The run of the stream, by the date of its time zero in milliseconds of Unix time. Segments of other runs have
    /// another time axis.
    pub run_ms: u64,
    /// Beginning of the period on the time axis of the run's segments, in milliseconds.
    pub begin_ms: u64,
}

impl Anchor {
    /// The place of this time on the axis of the run, in the presentation.
    const fn place_ms(&self, at_ms: u64) -> u64 {
        self.start_ms.saturating_add(at_ms).saturating_sub(self.begin_ms)
    }

    /// The anchor of a period that begins later in the same stretch.
    #[must_use]
    pub const fn moved_to(&self, begin_ms: u64) -> Self {
        Self { start_ms: self.place_ms(begin_ms), begin_ms, run_ms: self.run_ms }
    }
}

/// Segments of one rendition that follow one another without a gap, and have the same description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The description, without segments and bit rate.
    form: Arc<Outline>,
    /// Highest bit rate, in bits per second.
    bits: u64,
    anchor: Anchor,
    /// Number in the name of the first segment.
    number: u64,
    /// Decode time of the first segment, in ticks.
    time: u64,
    /// Durations in ticks, each with the number of segments that have it.
    lengths: Vec<(u64, u64)>,
    /// Number of the segments.
    count: u64,
    /// End of the last segment, in ticks.
    end: u64,
}

impl Piece {
    /// Returns the newest `count` segments of a rendition, the oldest first. Descriptions that equal `former` share its
    /// memory.
    #[must_use]
    pub fn newest(outline: &Outline, count: usize, former: Option<&Self>) -> Vec<Self> {
        let skipped = outline.spanned().count().saturating_sub(count);
        let piece = |one: super::Spanned<'_>| {
            let form = Outline { bits: 0, ..outline.form(one.described) };
            let same = former.map(|former| &former.form).filter(|same| ***same == form);
            Self {
                form: same.map_or_else(|| Arc::new(form), Arc::clone),
                bits: outline.bits,
                anchor: Anchor { start_ms: 0, run_ms: 0, begin_ms: 0 },
                number: outline.number(one.span.number),
                time: one.span.time,
                lengths: vec![(one.span.ticks.max(1), 1)],
                count: 1,
                end: one.span.time.saturating_add(one.span.ticks.max(1)),
            }
        };
        outline.spanned().skip(skipped).map(piece).collect()
    }

    /// Shares the memory of the description with another piece, if both are equal.
    pub fn share(&mut self, other: &Self) {
        if self.form == other.form {
            self.form = Arc::clone(&other.form);
        }
    }

    /// The same segments in another period.
    #[must_use]
    pub fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// The beginning of the period of the segments.
    #[must_use]
    pub const fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Adds the segments of another piece, if they follow in the same period. Returns them otherwise.
    pub fn join(&mut self, next: Self) -> Option<Self> {
        let is_next = self.anchor == next.anchor
            && self.number.saturating_add(self.count) == next.number
            && self.end == next.time
            && (Arc::ptr_eq(&self.form, &next.form) || self.form == next.form);
        if !is_next {
            return Some(next);
        }
        self.bits = self.bits.max(next.bits);
        (self.count, self.end) = (self.count.saturating_add(next.count), next.end);
        for (ticks, count) in next.lengths {
            match self.lengths.last_mut() {
                Some((same, all)) if *same == ticks => *all = all.saturating_add(count),
                Some(_) | None => self.lengths.push((ticks, count)),
            }
        }
        None
    }

    /// Keeps the first `count` segments.
    pub fn truncate(&mut self, count: u64) {
        let mut left = count;
        for (_, own) in &mut self.lengths {
            *own = left.min(*own);
            left = left.saturating_sub(*own);
        }
        self.lengths.retain(|(_, own)| *own > 0);
        self.measure();
    }

    /// Adds up the segments.
    fn measure(&mut self) {
        (self.count, self.end) = (0, self.time);
        for (ticks, count) in &self.lengths {
            self.count = self.count.saturating_add(*count);
            self.end = self.end.saturating_add(ticks.saturating_mul(*count));
        }
    }

    /// The kind of the track.
    #[must_use]
    pub fn kind(&self) -> TrackKind {
        self.form.inits.first().map_or(TrackKind::Data, |one| one.kind)
    }

    /// Number of the segments.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Beginning and middle of the first segment on the time axis of its run, in milliseconds.
    #[must_use]
    pub fn begin_ms(&self) -> (u64, u64) {
        let first = self.lengths.first().map_or(0, |(ticks, _)| *ticks);
        (self.form.in_ms(self.time), self.form.in_ms(self.time.saturating_add(first / 2)))
    }

    /// True if the segments are of another run of the stream than those of an earlier piece, and yet would begin more
    /// than a second before the end of those: the clock of the machine was set back meanwhile.
    #[must_use]
    pub fn is_set_back(&self, former: &Self) -> bool {
        let begin_ms = self.anchor.place_ms(self.form.in_ms(self.time));
        let end_ms = former.anchor.place_ms(former.form.in_ms(former.end));
        self.anchor.run_ms != former.anchor.run_ms && begin_ms.saturating_add(SET_BACK_MS) < end_ms
    }

    /// True if the segments are of the same track and run as those of another piece, so that their numbers go on.
    #[must_use]
    pub fn goes_on(&self, former: &Self) -> bool {
        self.form.template == former.form.template
            && former.number.saturating_add(former.count) == self.number
    }

    /// Returns each segment: its number, its time and its duration in ticks.
    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let each = self.lengths.iter().flat_map(|(ticks, count)| (0..*count).map(|_| *ticks));
        each.scan((self.number, self.time), |(number, time), ticks| {
            let row = Row { number: *number, time: *time, ticks, count: 1 };
            (*number, *time) = (number.saturating_add(1), time.saturating_add(ticks));
            Some(row)
        })
    }
}

/// The segments of a stream, to be described by one manifest that reaches back to earlier runs of the stream.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// The pieces of each rendition, the oldest first. The first rendition leads.
    pub renditions: &'a [Vec<Piece>],
    /// The folder of the segments relative to the manifest, with a trailing slash.
    pub base: &'a str,
    /// True if the stream has ended.
    pub ended: bool,
    /// Distance from the live edge at which players should play, in milliseconds; at least two segments.
    pub latency_ms: u64,
    /// Descriptors of all videos.
    pub accessibility: &'a [Accessibility],
}

/// The segments of one rendition in one period.
#[derive(Debug)]
struct Group<'a> {
    form: &'a Outline,
    bits: u64,
    rows: Vec<Row>,
    count: u64,
}

impl<'a> Group<'a> {
    /// Adds a segment if its number follows.
    fn take(&mut self, piece: &'a Piece, row: Row) -> bool {
        let form: &Outline = &piece.form;
        let Some(last) = self.rows.last_mut() else { return false };
        let is_same = std::ptr::eq(self.form, form)
            || self.form.template == form.template && self.form.inits == form.inits;
        let is_next = is_same && last.number.saturating_add(last.count) == row.number;
        if !is_next || row.time < last.end() {
            return false;
        }
        self.form = form;
        self.bits = self.bits.max(piece.bits);
        self.count = self.count.saturating_add(1);
        if last.ticks == row.ticks && last.end() == row.time {
            last.count = last.count.saturating_add(1);
        } else {
            self.rows.push(row);
        }
        true
    }
}

impl Past<'_> {
    /// Writes the manifest. `None` until there is something to play. The date of the presentation's time zero must
    /// never change.
    #[must_use]
    pub fn manifest(&self, moments: Moments) -> Option<String> {
        let pieces = || self.renditions.iter().flatten();
        let all: BTreeSet<Anchor> = pieces().map(Piece::anchor).collect();
        let beyond = all.len().saturating_sub(PERIODS_MAX);
        let anchors: Vec<Anchor> = all.into_iter().skip(beyond).collect();
        let mut periods: Vec<Vec<Shown<'_>>> = anchors.iter().map(|_| Vec::new()).collect();
        let (mut first_ms, mut last_ms) = (u64::MAX, 0);
        for pieces in self.renditions {
            for (period, groups) in periods.iter_mut().zip(grouped(pieces, &anchors)) {
                // A period with two descriptions of a rendition cannot be written.
                let Some(group) = groups.into_iter().max_by_key(|group| group.count) else { continue };
                let Some((described, first)) = group.form.inits.first().zip(group.rows.first()) else {
                    continue;
                };
                let (first, rendition) = (first.number, group.form);
                let accessibility = if described.kind == TrackKind::Video { self.accessibility } else { &[] };
                let (rows, bits) = (group.rows, group.bits);
                period.push(Shown { rendition, described, accessibility, bits, first, rows, is_brief: true });
            }
        }
        for (anchor, period) in anchors.iter().zip(&periods) {
            for shown in period {
                let (first, last) = (shown.rows.first()?, shown.rows.last()?);
                first_ms = first_ms.min(anchor.place_ms(shown.rendition.in_ms(first.time)));
                last_ms = last_ms.max(anchor.place_ms(shown.rendition.in_ms(last.end())));
            }
        }
        if last_ms <= first_ms {
            return None;
        }
        let longest = pieces().map(|piece| piece.form.target).max().unwrap_or_default();
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let kind = if self.ended {
            Kind::Static { end_ms: last_ms }
        } else {
            // Two segments more, because the newest segment listed is older than the time of the request.
            Kind::Dynamic {
                window_ms: last_ms.saturating_sub(first_ms).saturating_add(longest_ms.saturating_mul(2)),
            }
        };
        let head = Head { kind, base: self.base, latency_ms: self.latency_ms, longest_ms };
        let mut out = head.text(moments);
        for (anchor, shown) in anchors.iter().zip(periods) {
            let delay_ms = anchor.start_ms.saturating_sub(anchor.begin_ms);
            let stretch = Stretch { id: anchor.start_ms, begin_ms: anchor.begin_ms, delay_ms };
            let mut sets = Vec::new();
            shown.into_iter().for_each(|shown| add(&mut sets, shown));
            period(&mut out, &stretch, &sets);
        }
        tail(&mut out, self.ended, moments.now_ms);
        Some(out)
    }
}

/// Sorts the segments of a rendition into periods.
fn grouped<'a>(pieces: &'a [Piece], anchors: &[Anchor]) -> Vec<Vec<Group<'a>>> {
    let mut periods: Vec<Vec<Group<'a>>> = anchors.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        let of_run = |(_, anchor): &(usize, &Anchor)| anchor.run_ms == piece.anchor.run_ms;
        let own: Vec<(usize, &Anchor)> = anchors.iter().enumerate().filter(of_run).collect();
        for row in piece.rows() {
            let middle_ms = piece.form.in_ms(row.time.saturating_add(row.ticks / 2));
            let last = own.iter().rfind(|(_, anchor)| anchor.begin_ms <= middle_ms);
            // Other tracks may begin slightly before the first period of a run.
            let place = last.or_else(|| own.iter().find(|(_, anchor)| **anchor == piece.anchor));
            let Some(groups) = place.and_then(|(at, _)| periods.get_mut(*at)) else { continue };
            if !groups.last_mut().is_some_and(|group| group.take(piece, row)) {
                groups.push(Group { form: &piece.form, bits: piece.bits, rows: vec![row], count: 1 });
            }
        }
    }
    periods
}
