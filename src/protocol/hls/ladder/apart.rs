//! Renditions of single tracks: their low-latency multivariant playlist, and their DASH manifest.
//!
//! A manifest uses the ladder's time, which all streams share, so that it continues when another stream leads. A
//! period has the renditions that existed when it began; another period begins where a rendition joins, leaves or
//! changes its tracks. A former period keeps a rendition that has left, so that players can finish the period.

use std::collections::BTreeMap;
use std::sync::Arc;

use hls::Playlist;
use hls::playlist::{MediaPlaylist, Segment};
use hls::segmenter::{Outline, Stretch};

use crate::mail::{Annex, Rung};
use crate::protocol::hls::sounds;

/// Maximum number of periods in a manifest. If renditions join and leave all the time, the oldest periods are
/// dropped.
const PERIODS_MAX: usize = 16;

/// Returns the name of an audio rendition that all variants share, by its number; the leading stream provides it.
pub(super) fn shared_sound(main: &str, index: u8) -> String {
    format!("{main}__adaptive_audio{}", sounds::suffix(index))
}

/// Returns the name of an audio rendition of one stream, by its number.
pub(super) fn own_sound(id: &str, index: u8) -> String {
    format!("{id}__audio{}_adaptive", sounds::suffix(index))
}

/// The end of another stream's playlist of shared audio, which this stream continues. A listed segment keeps its
/// name, because players do not accept another name for it later (RFC 8216 §6.2.1).
#[derive(Debug, Default)]
pub(super) struct Splice {
    /// The segments of the other stream, and the number after the last of them.
    former: Vec<Segment>,
    first: u64,
}

impl Splice {
    /// Creates the splice that continues this playlist.
    pub(super) fn behind(text: &[u8]) -> Self {
        let Ok(Playlist::Media(before)) = Playlist::read(text) else { return Self::default() };
        let first = before.media_sequence.saturating_add(before.segments.len() as u64);
        Self { former: before.segments, first }
    }

    /// Replaces segments by those of the other stream with the same numbers, and keeps open date ranges. Returns
    /// false while the playlist does not reach the end of the other stream's segments.
    pub(super) fn apply(&self, playlist: &mut MediaPlaylist) -> bool {
        let replaced =
            usize::try_from(self.first.saturating_sub(playlist.media_sequence)).unwrap_or(usize::MAX);
        if replaced > playlist.segments.len() {
            return false;
        }
        let kept = replaced.min(self.former.len());
        let (gone, former) = self.former.split_at(self.former.len().saturating_sub(kept));
        let behind = playlist.segments.split_off(replaced);
        let gone = gone.iter().chain(&playlist.segments).flat_map(|segment| segment.date_ranges.clone());
        let ranges = gone.collect();
        playlist.segments = former.iter().cloned().chain(behind).collect();
        playlist.carry(ranges);
        let left_out = replaced.saturating_sub(kept) as u64;
        playlist.media_sequence = playlist.media_sequence.saturating_add(left_out);
        true
    }
}

/// A period of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Period {
    stretch: Stretch,
    /// For each rendition, the name of its segments and the name of its initialization section.
    members: Vec<(String, String)>,
}

/// Description of a rendition, passed to the leading stream, which lists the rendition in the manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) outline: Arc<Outline>,
    /// The periods as the rendition's stream knows them.
    pub(super) periods: Vec<Period>,
}

impl Listed {
    pub(super) fn of(rung: &Rung) -> Option<&Self> {
        rung.annex.as_ref().and_then(Annex::get)
    }
}

/// The renditions and periods of a manifest. Streams that do not lead keep them too, because the leading stream may
/// end.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Latest state of each rendition, by the name of its segments.
    known: BTreeMap<String, Arc<Outline>>,
    periods: Vec<Period>,
}

impl Board {
    pub(super) fn periods(&self) -> &[Period] {
        &self.periods
    }

    pub(super) fn stretches(&self) -> Vec<Stretch> {
        self.periods.iter().map(|period| period.stretch).collect()
    }

    /// Takes over the state of the leading stream.
    pub(super) fn follow(&mut self, periods: &[Period], there: &[Arc<Outline>]) {
        self.periods = periods.to_vec();
        self.learn(there);
    }

    /// Notes the present renditions, the leading one first. A new period begins if they have changed.
    pub(super) fn note(&mut self, there: &[Arc<Outline>]) {
        let Some(lead) = there.first() else { return };
        let members: Vec<(String, String)> = there.iter().filter_map(|one| member(one)).collect();
        let last = self.periods.last();
        if last.is_none_or(|last| last.members != members) {
            let begin_ms = last.map_or_else(
                || lead.spanned().next().map(|first| first.begin_ms()),
                |last| changed_ms(last, there).or_else(|| lead.spanned().last().map(|last| last.end_ms())),
            );
            let Some(begin_ms) = begin_ms else { return };
            match self.periods.last_mut().filter(|last| last.stretch.begin_ms >= begin_ms) {
                Some(last) => last.members = members,
                None => self.begin(lead, begin_ms, members),
            }
        }
        let oldest_ms = lead.spanned().next().map_or(0, |first| first.middle_ms());
        let is_over = |next: &Period| next.stretch.begin_ms <= oldest_ms;
        while self.periods.len() > PERIODS_MAX || self.periods.get(1).is_some_and(is_over) {
            self.periods.remove(0);
        }
        self.learn(there);
    }

    fn begin(&mut self, lead: &Outline, begin_ms: u64, members: Vec<(String, String)>) {
        let first = || lead.spanned().next().map_or(1, |first| first.span.number);
        let id = self.periods.last().map_or_else(first, |last| last.stretch.id.saturating_add(1));
        self.periods.push(Period { stretch: Stretch { id, begin_ms, delay_ms: 0 }, members });
    }

    fn learn(&mut self, there: &[Arc<Outline>]) {
        self.known.extend(there.iter().map(|one| (one.names().to_owned(), Arc::clone(one))));
        let periods = &self.periods;
        let is_there = |names: &str| there.iter().any(|one| one.names() == names);
        self.known.retain(|names, _| is_there(names) || periods.iter().any(|period| period.has(names)));
    }

    /// Returns the renditions to list: the present ones, then those that have left. Each has only the segments of
    /// the periods to which it belongs.
    pub(super) fn listed(&self, there: &[Arc<Outline>]) -> Vec<Outline> {
        let has_left = |one: &&Arc<Outline>| there.iter().all(|other| other.names() != one.names());
        let all = there.iter().chain(self.known.values().filter(has_left));
        all.map(|one| {
            let first = self.periods.iter().position(|period| period.has(one.names()));
            let last = self.periods.iter().rposition(|period| period.has(one.names()));
            let begin = |at: usize| self.periods.get(at).map(|period| period.stretch.begin_ms);
            // A rendition that belongs to no period yet will belong to the next one.
            let from_ms = first.and_then(begin).unwrap_or(u64::MAX);
            one.within(from_ms, last.and_then(|at| begin(at.saturating_add(1))))
        })
        .collect()
    }
}

impl Period {
    fn has(&self, names: &str) -> bool {
        self.members.iter().any(|(member, _)| member == names)
    }
}

/// The name of a rendition's segments, and the name of its newest initialization section.
fn member(outline: &Outline) -> Option<(String, String)> {
    Some((outline.names().to_owned(), outline.spanned().last()?.described.uri.clone()))
}

/// Returns the earliest time at which a rendition of the last period changed its tracks.
fn changed_ms(last: &Period, there: &[Arc<Outline>]) -> Option<u64> {
    let changed = |outline: &Arc<Outline>| {
        let (names, init) = member(outline)?;
        let is_changed = last.members.iter().any(|(other, before)| *other == names && *before != init);
        let first = outline.spanned().find(|one| one.described.uri == init)?;
        is_changed.then(|| first.begin_ms())
    };
    there.iter().filter_map(changed).min()
}

#[cfg(test)]
mod tests {
    use hls::playlist::DateRange;

    use super::*;

    /// Makes a playlist whose segments are two seconds long and numbered from `first`, each with date ranges of
    /// the given ids.
    fn playlist(first: u64, segments: &[&[&str]]) -> MediaPlaylist {
        let range = |id: &&str| DateRange {
            id: (*id).to_owned(),
            start_ms: 0,
            duration: None,
            planned: None,
            splice: None,
            parts_before: 0,
        };
        let segment = |(number, ids): (u64, &&[&str])| Segment {
            uri: format!("{number}.m4s"),
            program_date_time: i64::try_from(number * 2000).ok(),
            date_ranges: ids.iter().map(range).collect(),
            ..Segment::default()
        };
        let segments = (first..).zip(segments).map(segment).collect();
        MediaPlaylist { media_sequence: first, segments, ..MediaPlaylist::default() }
    }

    #[test]
    fn breaks_that_go_on_stay_where_their_segments_are_replaced() {
        let former = playlist(1, &[&["a"], &[], &["b"]]);
        let splice = Splice::behind(former.to_string().as_bytes());
        let shown = |first, segments: &[&[&str]]| {
            let mut playlist = playlist(first, segments);
            assert!(splice.apply(&mut playlist));
            let ids = |segment: &Segment| segment.date_ranges.iter().map(|tag| tag.id.clone()).collect();
            let ids: Vec<Vec<String>> = playlist.segments.iter().map(ids).collect();
            ids.iter().map(|ids| ids.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(shown(1, &[&["a"], &[], &["b"], &[]]), ["a", "", "b", ""]);
        assert_eq!(shown(2, &[&["a"], &["b", "c"], &[]]), ["a c", "b", ""]);
        assert_eq!(shown(3, &[&["a", "b"], &["d"]]), ["a b", "d"]);
        assert_eq!(shown(4, &[&["a", "b", "d"]]), ["a b d"]);
    }
}
