//! Units of a stream as the fragments of one file.
//!
//! A fragment has what came in [`FRAGMENT_MS`], so that a crash takes no more than that. The presentation begins with the first
//! picture of the leading video track; other tracks are as far behind it as they came.

use bytes::Bytes;
use fmp4::{Description, Fragment, FragmentSample, recording_head};
use media::{CodecConfig, Timescale, Track, TrackId};

use crate::hub::{Chosen, Entry};
use crate::protocol::mp4_mapping::samples::with_four_byte_lengths;

/// A fragment ends when it has so much, in milliseconds.
const FRAGMENT_MS: i64 = 500;
/// The first one waits for tracks that the publisher announces a little later.
const FIRST_FRAGMENT_MS: i64 = 1000;
/// A fragment ends when it has so many bytes.
const FRAGMENT_BYTES_MAX: usize = 4 << 20;
/// Room in front of the fragments for the index of the finished file: two minutes of a usual stream. More is made when it is needed.
const ROOM_BYTES: u32 = 64 << 10;

/// A unit that lasts until the next one of its track.
#[derive(Debug)]
struct Waiting {
    dts: i64,
    sample: FragmentSample,
}

/// A track of the file.
#[derive(Debug)]
struct Lane {
    id: TrackId,
    epoch: u32,
    description: Description,
    /// The decode time, in ticks of the stream, that is zero in the file.
    base: Option<i64>,
    waiting: Option<Waiting>,
    /// Decode time of the first of them in the file.
    at: u64,
    samples: Vec<FragmentSample>,
}

impl Lane {
    fn new(number: u32, track: &Track) -> Self {
        Self {
            id: track.id,
            epoch: track.epoch,
            description: Description {
                config: with_four_byte_lengths(&track.config),
                ..Description::of_track(number, track)
            },
            base: None,
            waiting: None,
            at: 0,
            samples: Vec::new(),
        }
    }

    /// Adds a unit; the one before it is complete now.
    fn push(&mut self, base: i64, entry: &Entry) {
        let unit = &entry.unit;
        let narrow = |ticks: i64| i32::try_from(ticks).unwrap_or(0);
        let sample = FragmentSample {
            duration: self.waiting.as_ref().map_or(0, |waiting| waiting.sample.duration),
            composition: narrow(unit.pts.saturating_sub(unit.dts)),
            key_frame: unit.key_frame,
            payload: unit.payload.clone(),
        };
        let Some(mut before) = self.waiting.replace(Waiting { dts: unit.dts, sample }) else { return };
        let duration = u32::try_from(unit.dts.saturating_sub(before.dts)).unwrap_or(0);
        before.sample.duration = duration;
        if let Some(waiting) = &mut self.waiting {
            // The last one of all lasts as long as the one before it.
            waiting.sample.duration = duration;
        }
        self.add(base, before);
    }

    fn add(&mut self, base: i64, complete: Waiting) {
        if self.samples.is_empty() {
            self.at = u64::try_from(complete.dts.saturating_sub(base)).unwrap_or(0);
        }
        self.samples.push(complete.sample);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fragments {
    lanes: Vec<Lane>,
    /// The track whose key frames a file begins with.
    lead: Option<TrackId>,
    chosen_epoch: u32,
    /// What is presented at zero, as time of this clock.
    zero: Option<(i64, Timescale)>,
    sequence: u32,
    /// Where the fragment, and where the file began.
    fragment_ms: Option<i64>,
    file_ms: Option<i64>,
    fragment_bytes: usize,
    bytes: u64,
}

impl Fragments {
    /// Begins a file of these tracks.
    pub(super) fn new(chosen: &Chosen) -> Self {
        Self {
            lanes: (1..).zip(chosen.iter()).map(|(number, track)| Lane::new(number, track)).collect(),
            lead: chosen.lead(),
            chosen_epoch: chosen.epoch(),
            zero: None,
            sequence: 0,
            fragment_ms: None,
            file_ms: None,
            fragment_bytes: 0,
            bytes: 0,
        }
    }

    /// Whether the stream has other tracks than the file. A file that nothing was written of takes those that were added.
    pub(super) fn is_of_others(&mut self, chosen: &Chosen) -> bool {
        if self.chosen_epoch == chosen.epoch() {
            return false;
        }
        let is_there =
            |lane: &Lane| chosen.iter().any(|track| (track.id, track.epoch) == (lane.id, lane.epoch));
        if self.sequence > 0 || !self.lanes.iter().all(is_there) || self.lead != chosen.lead() {
            return true;
        }
        for track in chosen.iter() {
            if !self.lanes.iter().any(|lane| lane.id == track.id) {
                let number = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX).saturating_add(1);
                self.lanes.push(Lane::new(number, track));
            }
        }
        self.chosen_epoch = chosen.epoch();
        false
    }

    /// Whether a file may begin with this unit.
    pub(super) fn may_begin(chosen: &Chosen, entry: &Entry) -> bool {
        chosen.lead().is_none_or(|lead| lead == entry.unit.track && entry.unit.key_frame)
    }

    /// How much the file has: milliseconds up to this unit, and bytes of media.
    pub(super) fn extent(&self, entry: &Entry) -> (i64, u64) {
        (self.file_ms.map_or(0, |from| entry.dts_ms.saturating_sub(from)), self.bytes)
    }

    /// Adds a unit. What is to be written before it, when a fragment is complete.
    ///
    /// # Errors
    /// Tracks that cannot be written.
    pub(super) fn unit(&mut self, entry: &Entry) -> Result<Option<Vec<Bytes>>, fmp4::Error> {
        let from = *self.fragment_ms.get_or_insert(entry.dts_ms);
        self.file_ms.get_or_insert(entry.dts_ms);
        let length = if self.sequence == 0 { FIRST_FRAGMENT_MS } else { FRAGMENT_MS };
        let is_complete =
            entry.dts_ms.saturating_sub(from) >= length || self.fragment_bytes >= FRAGMENT_BYTES_MAX;
        let written = if is_complete { self.write()? } else { None };
        if written.is_some() {
            self.fragment_ms = Some(entry.dts_ms);
        }
        self.push(entry);
        Ok(written)
    }

    fn push(&mut self, entry: &Entry) {
        let unit = &entry.unit;
        let track = entry.tracks.get(unit.track);
        let lane =
            self.lanes.iter_mut().find(|lane| lane.id == unit.track && lane.epoch == unit.config_epoch);
        let (Some(lane), Some(track)) = (lane, track) else { return };
        let (zero, scale) = *self.zero.get_or_insert((unit.pts, track.timescale));
        let zero = scale.convert(zero, track.timescale);
        // Before the head is written a track may begin anywhere: it says there when it is presented.
        let first = if self.sequence == 0 { unit.dts } else { zero };
        let base = *lane.base.get_or_insert(first);
        if unit.dts < base {
            return;
        }
        if lane.waiting.is_none() && lane.samples.is_empty() && self.sequence == 0 {
            lane.description.media_start = zero.saturating_sub(base);
            lane.description.first_unit = unit.payload.clone();
        }
        let bytes = unit.payload.len();
        self.fragment_bytes = self.fragment_bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        lane.push(base, entry);
    }

    /// The fragment so far, behind the head of the file when it is the first.
    fn write(&mut self) -> Result<Option<Vec<Bytes>>, fmp4::Error> {
        if self.lanes.iter().all(|lane| lane.samples.is_empty()) {
            return Ok(None);
        }
        let mut slices = Vec::new();
        if self.sequence == 0 {
            // Tracks that only a unit can describe, and of which there is none yet, are left out.
            self.lanes.retain(|lane| {
                let needs_unit =
                    matches!(lane.description.config, CodecConfig::Ac3(_) | CodecConfig::Eac3(_));
                lane.waiting.is_some() || !needs_unit
            });
            let described: Vec<Description> =
                self.lanes.iter().map(|lane| lane.description.clone()).collect();
            slices.push(recording_head(&described, ROOM_BYTES)?);
        }
        self.sequence = self.sequence.saturating_add(1);
        let mut fragment = Fragment::new(self.sequence);
        for lane in &mut self.lanes {
            fragment.add(&lane.description, lane.at, std::mem::take(&mut lane.samples));
        }
        slices.extend(fragment.write()?);
        self.fragment_bytes = 0;
        Ok(Some(slices))
    }

    /// The rest, when nothing follows.
    ///
    /// # Errors
    /// Tracks that cannot be written.
    pub(super) fn finish(mut self) -> Result<Option<Vec<Bytes>>, fmp4::Error> {
        for lane in &mut self.lanes {
            if let (Some(base), Some(last)) = (lane.base, lane.waiting.take()) {
                lane.add(base, last);
            }
        }
        // The head looks whether a track has begun.
        self.write_last()
    }

    fn write_last(&mut self) -> Result<Option<Vec<Bytes>>, fmp4::Error> {
        if self.sequence == 0 {
            self.lanes.retain(|lane| !lane.samples.is_empty());
        }
        self.write()
    }
}
