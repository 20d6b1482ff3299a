//! Units as the clusters of a WebM file. The file begins with the earliest unit of its first second, so that no unit
//! has an earlier time.

use bytes::Bytes;
use media::{Timescale, Track, TrackId, TrackKind};
use webm::{Block, Description, clusters, recording_head};

use super::fragments::{Error, Muxer};
use crate::hub::Entry;

/// Room before the clusters for the seek index: an hour of a usual stream. If the index is larger, it is written after
/// them.
const ROOM_BYTES: usize = 64 << 10;
/// Time scale in which times are compared before they are rounded to milliseconds of the file.
const NANOSECONDS: Timescale = Timescale::new(1_000_000_000);
const NS_PER_MS: i64 = 1_000_000;

/// A track of the file.
#[derive(Debug)]
struct Lane {
    id: TrackId,
    epoch: u32,
    description: Description,
    has_unit: bool,
    /// Presentation time of the last unit, and the time of its block.
    last: Option<(i64, i64)>,
}

impl Lane {
    /// Returns the time of the next block. Units that would share a millisecond get consecutive ones, because readers
    /// reject two pictures with the same time, and the clocks of browsers are coarse.
    fn block_ms(&mut self, at_ns: i64, rounded_ms: i64) -> i64 {
        let follows = self.last.filter(|(last_ns, last_ms)| at_ns >= *last_ns && rounded_ms <= *last_ms);
        let at_ms = follows.map_or(rounded_ms, |(_, last_ms)| last_ms.saturating_add(1));
        self.last = Some((at_ns, at_ms));
        at_ms
    }
}

/// A unit that is not in a cluster yet, and its presentation time.
#[derive(Debug)]
struct Waiting {
    lane: u8,
    at_ns: i64,
    key_frame: bool,
    frame: Bytes,
}

/// The writer of a WebM file.
#[derive(Debug, Default)]
pub(super) struct WebM {
    lanes: Vec<Lane>,
    /// Stream time of the beginning of the file, once the head was written.
    zero_ns: Option<i64>,
    waiting: Vec<Waiting>,
}

impl WebM {
    /// Converts waiting units to blocks: units of the file's tracks that are not before its beginning.
    fn blocks(&mut self, zero_ns: i64) -> Vec<Block> {
        let lanes = &mut self.lanes;
        let block = |waiting: Waiting| {
            let lane = lanes.iter_mut().find(|lane| lane.description.number == waiting.lane)?;
            let after_ns = waiting.at_ns.checked_sub(zero_ns).filter(|after| *after >= 0)?;
            // The times of blocks include `CodecDelay`.
            let delay_ns = i64::try_from(lane.description.delay_ns()).unwrap_or(0);
            let rounded_ms = after_ns.saturating_add(delay_ns).saturating_add(NS_PER_MS / 2) / NS_PER_MS;
            let at_ms = lane.block_ms(waiting.at_ns, rounded_ms);
            Some(Block { track: waiting.lane, at_ms, key_frame: waiting.key_frame, frame: waiting.frame })
        };
        std::mem::take(&mut self.waiting).into_iter().filter_map(block).collect()
    }

    fn lead(&self) -> Option<u8> {
        let is_video = |lane: &&Lane| lane.description.config.codec().kind() == TrackKind::Video;
        self.lanes.iter().find(is_video).map(|lane| lane.description.number)
    }
}

impl Muxer for WebM {
    fn add_track(&mut self, track: &Track) {
        // A stream has 16 tracks at most.
        let number = u8::try_from(self.lanes.len()).unwrap_or(u8::MAX).saturating_add(1);
        self.lanes.push(Lane {
            id: track.id,
            epoch: track.epoch,
            description: Description::of_track(number, track),
            has_unit: false,
            last: None,
        });
    }

    fn push(&mut self, entry: &Entry) -> bool {
        let unit = &entry.unit;
        let track = entry.tracks.get(unit.track);
        let lane =
            self.lanes.iter_mut().find(|lane| lane.id == unit.track && lane.epoch == unit.config_epoch);
        let (Some(lane), Some(track)) = (lane, track) else { return false };
        let at_ns = track.timescale.convert(unit.pts, NANOSECONDS);
        if self.zero_ns.is_some_and(|zero| at_ns < zero) {
            return false;
        }
        if !std::mem::replace(&mut lane.has_unit, true) {
            lane.description.first_unit = unit.payload.clone();
        }
        // A recording can begin with any audio unit.
        let key_frame = unit.key_frame || track.kind() == TrackKind::Audio;
        let frame = unit.payload.clone();
        self.waiting.push(Waiting { lane: lane.description.number, at_ns, key_frame, frame });
        true
    }

    fn write(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        let Some(first_ns) = self.waiting.iter().map(|waiting| waiting.at_ns).min() else { return Ok(None) };
        let mut slices = Vec::new();
        let zero_ns = match self.zero_ns {
            Some(zero_ns) => zero_ns,
            None => {
                // A track is left out if only a unit can give its size, and no unit of it has arrived yet.
                self.lanes.retain(|lane| lane.description.is_complete());
                let described: Vec<Description> =
                    self.lanes.iter().map(|lane| lane.description.clone()).collect();
                slices.push(recording_head(&described, ROOM_BYTES));
                self.zero_ns = Some(first_ns);
                first_ns
            }
        };
        let blocks = self.blocks(zero_ns);
        slices.extend(clusters(&blocks, self.lead()));
        Ok(Some(slices))
    }

    fn write_last(&mut self) -> Result<Option<Vec<Bytes>>, Error> {
        self.write()
    }
}
