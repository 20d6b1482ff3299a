//! Units as the fragments of an MP4 file. The presentation begins with the first picture of the leading video track;
//! other tracks keep their distance to it.

use bytes::Bytes;
use fmp4::{Description, Fragment, FragmentSample, recording_head, with_four_byte_lengths};
use media::{CodecConfig, Timescale, Track, TrackId};

use super::fragments::{Error, Muxer};
use crate::hub::Entry;

/// Room before the fragments for the index of the finished file: two minutes of a usual stream. More is made when
/// needed.
const ROOM_BYTES: u32 = 64 << 10;

/// A unit whose duration is not known until the next one of its track.
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
    /// Stream time in ticks at which the file's decode time is zero.
    base: Option<i64>,
    waiting: Option<Waiting>,
    /// Decode time in the file of the first complete sample.
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

    /// Adds a unit, which completes the one before it.
    fn push(&mut self, base: i64, entry: &Entry) {
        let unit = &entry.unit;
        let narrow = |ticks: i64| i32::try_from(ticks).unwrap_or(0);
        let sample = FragmentSample {
            duration: self.waiting.as_ref().map_or(0, |waiting| waiting.sample.duration),
            composition: narrow(unit.pts.saturating_sub(unit.dts)),
            key_frame: unit.key_frame,
            payload: unit.payload.clone(),
            subsamples: Vec::new(),
        };
        let Some(mut before) = self.waiting.replace(Waiting { dts: unit.dts, sample }) else { return };
        let duration = u32::try_from(unit.dts.saturating_sub(before.dts)).unwrap_or(0);
        before.sample.duration = duration;
        if let Some(waiting) = &mut self.waiting {
            // The last sample of a track lasts as long as the one before it.
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

/// The writer of an MP4 file.
#[derive(Debug, Default)]
pub(super) struct Mp4 {
    lanes: Vec<Lane>,
    /// The stream time that the file presents at zero, and the time scale of that time.
    zero: Option<(i64, Timescale)>,
    sequence: u32,
}

impl Muxer for Mp4 {
    fn add_track(&mut self, track: &Track) {
        let number = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.lanes.push(Lane::new(number, track));
    }

    fn push(&mut self, entry: &Entry) -> bool {
        let unit = &entry.unit;
        let track = entry.tracks.get(unit.track);
        let lane =
            self.lanes.iter_mut().find(|lane| lane.id == unit.track && lane.epoch == unit.config_epoch);
        let (Some(lane), Some(track)) = (lane, track) else { return false };
        let (zero, scale) = *self.zero.get_or_insert((unit.pts, track.timescale));
        let zero = scale.convert(zero, track.timescale);
        // Before the head is written, a track may begin at any time, because the head says when the track begins.
        let first = if self.sequence == 0 { unit.dts } else { zero };
        let base = *lane.base.get_or_insert(first);
        if unit.dts < base {
            return false;
        }
        if lane.waiting.is_none() && lane.samples.is_empty() && self.sequence == 0 {
            lane.description.media_start = zero.saturating_sub(base);
            lane.description.first_unit = unit.payload.clone();
        }
        lane.push(base, entry);
        true
    }

    fn write(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        if self.lanes.iter().all(|lane| lane.samples.is_empty()) {
            return Ok(None);
        }
        let mut slices = Vec::new();
        if self.sequence == 0 {
            // Tracks that only a unit can describe are left out if no unit of theirs has arrived yet.
            self.lanes.retain(|lane| {
                let needs_unit =
                    matches!(lane.description.config, CodecConfig::Ac3(_) | CodecConfig::Eac3(_));
                lane.waiting.is_some() || !lane.samples.is_empty() || !needs_unit
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
        Ok(Some(slices))
    }

    fn write_last(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        for lane in &mut self.lanes {
            if let (Some(base), Some(last)) = (lane.base, lane.waiting.take()) {
                lane.add(base, last);
            }
        }
        if self.sequence == 0 {
            // No unit can follow, so tracks without a sample are left out of the head.
            self.lanes.retain(|lane| !lane.samples.is_empty());
        }
        self.write()
    }
}
