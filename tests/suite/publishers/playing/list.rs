//! The rules of media playlists (RFC 8216, draft-pantos-hls-rfc8216bis), for one playlist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hls::Playlist;
use hls::playlist::{LowLatency, MediaPlaylist, Segment};

use super::media::{self, Unit};
use super::{Leniency, Notes, Sent, file, get};
use crate::support::World;

/// Maximum difference between a duration and the timestamps of its media, in microseconds.
const OFF_MAX_US: i64 = 2_000;
/// Maximum error of the time of an audio frame that shares a PES packet of MPEG-TS with others, in microseconds.
const SHARED_MAX_US: i64 = 1_200;

/// A segment, and what was fetched of it.
#[derive(Debug)]
struct Known {
    segment: Segment,
    /// Units of the segment, once it was fetched.
    units: Option<Vec<Unit>>,
}

/// A playlist, and everything that it has named.
#[derive(Debug)]
pub struct List {
    pub name: String,
    last: Option<MediaPlaylist>,
    /// Segments by their number.
    known: BTreeMap<u64, Known>,
    /// Bytes of the parts by URI.
    parts: BTreeMap<String, Vec<u8>>,
    /// Hints that were given, in order.
    hints: BTreeSet<String>,
    /// Target duration since the last end of the playlist.
    target: Option<Duration>,
    part_target: Duration,
    /// True if the playlist has begun anew, and its former segments have left for this reason.
    begins_anew: bool,
    /// True if the playlist was read since the last publisher began.
    is_current: bool,
    /// Longest playlist so far.
    longest: Duration,
    /// Segments that have left, with the time at which they were missing first.
    left: Vec<(Instant, u64)>,
    /// The segment that has left last.
    last_gone: Option<u64>,
}

impl List {
    pub fn new(name: String) -> Self {
        Self {
            name,
            last: None,
            known: BTreeMap::new(),
            parts: BTreeMap::new(),
            hints: BTreeSet::new(),
            target: None,
            part_target: Duration::ZERO,
            begins_anew: false,
            is_current: false,
            longest: Duration::ZERO,
            left: Vec::new(),
            last_gone: None,
        }
    }

    fn path(&self, uri: &str) -> String {
        match self.name.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{uri}"),
            None => uri.to_owned(),
        }
    }

    /// True if the playlist has ended; `None` if there was none since the last publisher began.
    pub fn has_ended(&self) -> Option<bool> {
        self.last.as_ref().filter(|_| self.is_current).map(|last| last.ended)
    }

    /// Notes that a publisher begins: a playlist that has ended may continue as a new one.
    pub fn publisher_began(&mut self) {
        if self.has_ended() == Some(true) {
            (self.last, self.target, self.begins_anew) = (None, None, true);
            self.longest = Duration::ZERO;
        }
        self.left.clear();
        self.is_current = false;
    }

    fn parse(&self, text: &str, notes: &mut Notes) -> Option<MediaPlaylist> {
        match Playlist::read(text.as_bytes()) {
            Ok(Playlist::Media(list)) => Some(list),
            other => {
                notes.broken(format!("{}: {other:?} of {text}", self.name));
                None
            }
        }
    }

    /// Reads a new version of the whole playlist.
    pub fn read(&mut self, text: &str, notes: &mut Notes) {
        let Some(list) = self.parse(text, notes) else { return };
        self.check_against_last(&list, notes);
        self.check_itself(&list, notes);
        for (number, segment) in (list.media_sequence..).zip(&list.segments) {
            self.check_segment(number, segment, notes);
        }
        self.check_dates(&list, notes);
        if let Some(low) = &list.low_latency {
            self.check_parts(&list, low, notes);
        }
        let total: Duration = list.segments.iter().map(|segment| segment.duration).sum();
        self.longest = self.longest.max(total);
        self.last = Some(list);
        self.is_current = true;
    }

    /// Checks the rules that each version of the playlist must follow by itself.
    fn check_itself(&mut self, list: &MediaPlaylist, notes: &mut Notes) {
        let name = &self.name;
        let target = *self.target.get_or_insert(list.target_duration);
        notes.check(target == list.target_duration, || {
            format!("{name}: the target duration changed from {target:?} to {:?}", list.target_duration)
        });
        for segment in &list.segments {
            let rounded = Duration::from_secs((segment.duration.as_millis() as u64 + 500) / 1000);
            notes.check(rounded <= list.target_duration, || {
                format!("{name}: {} lasts {:?} of {target:?}", segment.uri, segment.duration)
            });
            notes.check(!segment.duration.is_zero() || segment.gap, || {
                format!("{name}: {} has no duration", segment.uri)
            });
        }
        let uris: BTreeSet<&str> = list.segments.iter().map(|segment| segment.uri.as_str()).collect();
        notes.check(uris.len() == list.segments.len(), || format!("{name}: a segment is listed twice"));
    }

    /// Checks the rules for two successive versions of the playlist (RFC 8216 §6.2.1, §6.2.2).
    fn check_against_last(&mut self, list: &MediaPlaylist, notes: &mut Notes) {
        let end = |list: &MediaPlaylist| list.media_sequence + list.segments.len() as u64;
        if self.last.as_ref().is_some_and(|last| list.media_sequence > end(last)) {
            // The stream began anew, and so did its playlist. The segments of the former stream are kept for a time of
            // their own.
            (self.begins_anew, self.longest) = (true, Duration::ZERO);
            (self.last, self.target) = (None, None);
        }
        let Some(last) = &self.last else {
            if let Some((&newest, _)) = self.known.last_key_value() {
                let name = &self.name;
                notes.check(
                    list.media_sequence > newest || self.known.contains_key(&list.media_sequence),
                    || format!("{name}: a new list begins with {}, after {newest}", list.media_sequence),
                );
            }
            return;
        };
        let name = &self.name;
        let (first, before) = (list.media_sequence, last.media_sequence);
        notes.check(first >= before, || format!("{name}: the media sequence fell from {before} to {first}"));
        notes.check(end(list) >= end(last), || {
            format!("{name}: segments left at the end: {} to {}", end(last), end(list))
        });
        notes.check(!last.ended || list == last, || format!("{name}: changed after its end"));
        let gone: Vec<&Segment> =
            (before..first).filter_map(|number| Some(&self.known.get(&number)?.segment)).collect();
        let steps = gone.iter().filter(|segment| segment.discontinuity).count() as u64;
        let said = list.discontinuity_sequence.wrapping_sub(last.discontinuity_sequence);
        notes.check(said == steps, || {
            format!("{name}: the discontinuity sequence grew by {said}, {steps} discontinuities left")
        });
        if !gone.is_empty() {
            let total: Duration = list.segments.iter().map(|segment| segment.duration).sum();
            notes.check(total >= list.target_duration * 3, || {
                format!("{name}: cut down to {total:?} of {:?}", list.target_duration)
            });
        }
    }

    /// Checks that a segment keeps its attributes while it is listed.
    fn check_segment(&mut self, number: u64, segment: &Segment, notes: &mut Notes) {
        let bare = Segment { parts: Vec::new(), date_ranges: Vec::new(), ..segment.clone() };
        match self.known.get(&number) {
            None => {
                self.known.insert(number, Known { segment: bare, units: None });
            }
            Some(known) => {
                let name = &self.name;
                notes.check(known.segment == bare, || {
                    format!("{name}: segment {number} changed: {:?} to {bare:?}", known.segment)
                });
            }
        }
    }

    /// Checks that dates grow from segment to segment by the durations, except at discontinuities.
    fn check_dates(&self, list: &MediaPlaylist, notes: &mut Notes) {
        for pair in list.segments.windows(2) {
            let (Some(from), Some(to)) = (pair[0].program_date_time, pair[1].program_date_time) else {
                notes.broken(format!("{}: {} has no date", self.name, pair[1].uri));
                continue;
            };
            let off = to - from - pair[0].duration.as_millis() as i64;
            notes.check(pair[1].discontinuity || off.abs() <= 2, || {
                format!("{}: the date of {} is off by {off} ms", self.name, pair[1].uri)
            });
            notes.check(to > from, || format!("{}: the date of {} is not later", self.name, pair[1].uri));
        }
    }

    /// Checks the rules for the list of parts (RFC 8216bis §4.4.3.7, §4.4.3.8).
    fn check_parts(&mut self, list: &MediaPlaylist, low: &LowLatency, notes: &mut Notes) {
        let name = &self.name;
        let target = low.part_target;
        self.part_target = target;
        notes.check(low.can_block_reload, || format!("{name}: reloads do not wait"));
        notes.check(low.part_hold_back >= target * 2, || {
            format!("{name}: PART-HOLD-BACK {:?} of {target:?}", low.part_hold_back)
        });
        for segment in list.segments.iter().filter(|segment| !segment.parts.is_empty()) {
            let sum: Duration = segment.parts.iter().map(|part| part.duration).sum();
            let off = sum.abs_diff(segment.duration);
            notes.check(off <= Duration::from_millis(5), || {
                format!("{name}: the parts of {} last {sum:?}, it {:?}", segment.uri, segment.duration)
            });
        }
        self.hints.extend(low.hint.clone());
        notes.check(list.ended == low.hint.is_none() || low.hint.is_none(), || {
            format!("{name}: a hint after the end")
        });
    }

    /// Returns the numbers of the next segment and part that the playlist will have.
    pub fn next_part(&self) -> Option<(u64, u64)> {
        let last = self.last.as_ref().filter(|last| !last.ended)?;
        let open = &last.low_latency.as_ref()?.open;
        Some((last.media_sequence + last.segments.len() as u64, open.parts.len() as u64))
    }

    /// Checks that the answer to a reload has the part for which it waited (RFC 8216bis §6.2.5.2).
    pub fn check_reload(&self, text: &str, segment: u64, part: u64, notes: &mut Notes) {
        let Some(list) = self.parse(text, notes) else { return };
        let end = list.media_sequence + list.skipped + list.segments.len() as u64;
        let open = list.low_latency.as_ref().map_or(0, |low| low.open.parts.len() as u64);
        notes.check(list.ended || (end, open) > (segment, part), || {
            format!("{}: a reload for {segment}.{part} was answered at {end}.{open}", self.name)
        });
        // A delta update names the same segments as the whole playlist.
        for (number, now) in (list.media_sequence + list.skipped..).zip(&list.segments) {
            if let Some(known) = self.known.get(&number) {
                notes.check(known.segment.uri == now.uri && known.segment.duration == now.duration, || {
                    format!("{}: segment {number} is {now:?} in a delta update", self.name)
                });
            }
        }
    }

    /// Fetches the segments and parts that are new.
    pub fn fetch(&mut self, world: &mut World, sent: &Sent, leniency: Leniency, notes: &mut Notes) {
        let Some(last) = self.last.clone() else { return };
        let now = world.instant();
        if let Some(low) = &last.low_latency {
            // Parts of older segments may leave the list while this player still fetches others.
            let all = last.segments.iter().rev().take(1).chain([&low.open]);
            for part in all.flat_map(|segment| &segment.parts) {
                if self.parts.contains_key(&part.uri) {
                    continue;
                }
                if let Some(bytes) = file(world, notes, &self.path(&part.uri)) {
                    self.parts.insert(part.uri.clone(), bytes);
                }
            }
        }
        for (number, segment) in (last.media_sequence..).zip(&last.segments) {
            if segment.gap || self.known[&number].units.is_some() {
                continue;
            }
            let Some(units) = self.units_of(world, segment, leniency, notes) else { continue };
            self.known.get_mut(&number).unwrap().units = Some(units);
            self.check_media(number, last.independent_segments, sent, leniency, notes);
        }
        let first = last.media_sequence;
        let gone = self.known.range(..first).next_back().map(|(number, _)| *number);
        if std::mem::take(&mut self.begins_anew) {
            self.last_gone = gone;
        }
        if let Some(gone) = gone.filter(|gone| self.last_gone != Some(*gone)) {
            self.left.push((now, gone));
            self.last_gone = Some(gone);
        }
    }

    fn units_of(
        &self,
        world: &mut World,
        segment: &Segment,
        leniency: Leniency,
        notes: &mut Notes,
    ) -> Option<Vec<Unit>> {
        let bytes = file(world, notes, &self.path(&segment.uri))?;
        let units = match &segment.map {
            Some(map) => {
                let init = file(world, notes, &self.path(&map.uri))?;
                self.check_split(segment, (&init, &bytes), leniency, notes);
                media::of_fragments(&init, &bytes)
            }
            None => media::of_transport_stream(&bytes),
        };
        match units {
            Ok(units) => Some(units),
            Err(why) => {
                notes.broken(format!("{}: {}: {why}", self.name, segment.uri));
                None
            }
        }
    }

    /// Checks that the parts of a segment have the same units as the segment (RFC 8216bis §3.1), and that each part is
    /// as long as it can be: at most the target, and at least 85 % of it, except for the last part (§4.4.4.9). A part
    /// with a single unit may exceed the target. A part may be shorter if the next unit would not fit.
    fn check_split(
        &self,
        segment: &Segment,
        (init, bytes): (&[u8], &[u8]),
        leniency: Leniency,
        notes: &mut Notes,
    ) {
        let pieces: Option<Vec<Vec<Unit>>> = segment
            .parts
            .iter()
            .map(|part| media::of_fragments(init, self.parts.get(&part.uri)?).ok())
            .collect();
        let Some(pieces) = pieces.filter(|pieces| !pieces.is_empty()) else { return };
        let name = format!("{}: {}", self.name, segment.uri);
        notes.check(media::of_fragments(init, bytes).is_ok_and(|whole| whole == pieces.concat()), || {
            format!("{name} is not its parts")
        });
        let target = self.part_target.as_micros() as i64;
        for (part, units) in segment.parts.iter().zip(&pieces) {
            notes.check(units.len() == 1 || part.duration <= self.part_target, || {
                format!("{name}: {} lasts {:?} of {target} us", part.uri, part.duration)
            });
        }
        for (part, pair) in segment.parts.iter().zip(pieces.windows(2)) {
            let lasts = part.duration.as_micros() as i64;
            let next = pair[1].first().and_then(|unit| unit.duration).unwrap_or(0);
            let has_room = lasts + next <= target && !leniency.has_faults;
            notes.check(lasts * 100 >= target * 84 || !has_room, || {
                format!("{name}: {} lasts only {:?} of {target} us, and {next} fit", part.uri, part.duration)
            });
        }
    }

    /// Checks the rules for the media of a segment and its neighbours.
    fn check_media(
        &self,
        number: u64,
        is_independent: bool,
        sent: &Sent,
        leniency: Leniency,
        notes: &mut Notes,
    ) {
        let known = &self.known[&number];
        let (segment, units) = (&known.segment, known.units.as_deref().unwrap_or_default());
        let name = format!("{}: {}", self.name, segment.uri);
        notes.check(!units.is_empty(), || format!("{name} has no media"));
        for is_video in [true, false] {
            let own: Vec<&Unit> = units.iter().filter(|unit| unit.is_video == is_video).collect();
            for pair in own.windows(2) {
                // Frames that share a PES packet have only one timestamp.
                let slack = if is_video || segment.map.is_some() { 0 } else { SHARED_MAX_US };
                let is_next = pair[0].dts < pair[1].dts + slack && pair[0].number < pair[1].number;
                notes.check(is_next, || format!("{name}: {:?} follows {:?}", pair[1], pair[0]));
            }
        }
        let first = units.iter().find(|unit| unit.is_video);
        if let Some(first) = first.filter(|_| is_independent) {
            notes.check(sent.keys.contains(&first.number), || {
                format!("{name} begins with picture {}, which is no key frame", first.number)
            });
        }
        let before = number.checked_sub(1).and_then(|before| self.known.get(&before));
        let Some((before, Some(earlier))) = before.map(|known| (&known.segment, &known.units)) else {
            return;
        };
        self.check_neighbours((before, earlier), (segment, units), leniency, notes);
    }

    fn check_neighbours(
        &self,
        (before, earlier): (&Segment, &[Unit]),
        (segment, units): (&Segment, &[Unit]),
        leniency: Leniency,
        notes: &mut Notes,
    ) {
        let name = format!("{}: {}", self.name, segment.uri);
        for is_video in [true, false] {
            let of_kind = |units: &[Unit]| -> Vec<Unit> {
                units.iter().filter(|unit| unit.is_video == is_video).copied().collect()
            };
            let (earlier, own) = (of_kind(earlier), of_kind(units));
            let (Some(last), Some(first)) = (earlier.last(), own.first()) else { continue };
            notes.check(first.number > last.number, || {
                format!("{name}: unit {} follows {}, video {is_video}", first.number, last.number)
            });
            if segment.discontinuity {
                continue;
            }
            notes.check(first.number == last.number + 1 || leniency.has_faults, || {
                format!(
                    "{name}: unit {} follows {}, video {is_video}, without a discontinuity",
                    first.number, last.number
                )
            });
            notes.check(first.dts > last.dts, || {
                format!("{name}: begins at {} us after {} us, video {is_video}", first.dts, last.dts)
            });
            notes.check(first.dts - last.dts < 2_500_000 || leniency.has_faults, || {
                format!("{name}: {} us are missing, video {is_video}", first.dts - last.dts)
            });
        }
        if segment.discontinuity {
            return;
        }
        // The duration is that of the leading track: video, if there is any.
        let leads = |unit: &&Unit| unit.is_video || !earlier.iter().any(|unit| unit.is_video);
        let [Some(from), Some(to)] = [earlier, units].map(|units| units.iter().find(leads)) else { return };
        if from.is_video != to.is_video {
            return;
        }
        let off = to.dts - from.dts - before.duration.as_micros() as i64;
        notes.check(off.abs() <= OFF_MAX_US || leniency.has_faults, || {
            format!("{}: {} lasts {:?}, {off} us off", self.name, before.uri, before.duration)
        });
    }

    /// Fetches the segment that has left the list last, if it still must be there (RFC 8216 §6.2.2).
    pub fn look_back(&mut self, world: &mut World, notes: &mut Notes) {
        let now = world.instant();
        // This player notices late that a segment has left.
        self.left.retain(|(at, _)| now.duration_since(*at) * 4 < self.longest * 3);
        if self.has_ended() != Some(false) {
            return;
        }
        let Some((at, number)) = self.left.first() else { return };
        let segment = &self.known[number].segment;
        if segment.gap || self.known[number].units.is_none() {
            return;
        }
        let path = self.path(&segment.uri);
        let answer = get(world, &path);
        let since = now.duration_since(*at);
        notes.check(answer.status == 200, || {
            format!(
                "{}: {path} is {} {since:?} after it left, the longest list {:?}",
                self.name, answer.status, self.longest
            )
        });
    }

    /// Checks that the units which were sent between the first and the last listed one were listed.
    pub fn check_whole(&self, sent: &[Unit], notes: &mut Notes) {
        for is_video in [true, false] {
            let units = self.known.values().filter_map(|known| known.units.as_ref()).flatten();
            let numbers: BTreeSet<u64> =
                units.filter(|unit| unit.is_video == is_video).map(|unit| unit.number).collect();
            let own: Vec<u64> =
                sent.iter().filter(|unit| unit.is_video == is_video).map(|unit| unit.number).collect();
            let inside: Vec<u64> = own.iter().copied().filter(|number| numbers.contains(number)).collect();
            let (Some(first), Some(last)) = (inside.iter().min(), inside.iter().max()) else { continue };
            let missing: Vec<u64> = own
                .iter()
                .copied()
                .filter(|number| (first..=last).contains(&number) && !numbers.contains(number))
                .collect();
            notes.check(missing.is_empty(), || {
                format!(
                    "{}: units were never listed, video {is_video}: {:?}",
                    self.name,
                    &missing[..missing.len().min(10)]
                )
            });
        }
    }
}
