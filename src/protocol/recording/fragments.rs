//! Units of a stream as the fragments of one file.
//!
//! A fragment contains about [`FRAGMENT_MS`] of media (the first one [`FIRST_FRAGMENT_MS`]), or less if it reaches
//! [`FRAGMENT_BYTES_MAX`]. A crash loses no more than the current fragment.

use std::fmt;

use bytes::Bytes;
use media::{Track, TrackId};

use super::Container;
use crate::hub::{Chosen, Entry};

/// Duration of a fragment in milliseconds.
const FRAGMENT_MS: i64 = 500;
/// Duration of the first fragment in milliseconds, so that it includes tracks announced a little later.
const FIRST_FRAGMENT_MS: i64 = 1000;
/// Maximum size of a fragment in bytes.
const FRAGMENT_BYTES_MAX: usize = 4 << 20;

/// The reason why a fragment cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// MP4 cannot store the tracks.
    #[error(transparent)]
    Mp4(#[from] fmp4::Error),
}

/// Writes units as the bytes of a container.
pub(super) trait Muxer: fmt::Debug + Send {
    /// Adds a track to the file, before anything was written.
    fn add_track(&mut self, track: &Track);

    /// Takes a unit. Returns false if its track is not in the file.
    fn push(&mut self, entry: &Entry) -> bool;

    /// Returns the fragment of the units so far, preceded by the head of the file if it is the first fragment. `None`
    /// if there is nothing to write.
    ///
    /// # Errors
    /// The tracks cannot be written.
    fn write(&mut self) -> Result<Option<Vec<Bytes>>, Error>;

    /// Returns the last fragment, when no unit follows.
    ///
    /// # Errors
    /// The tracks cannot be written.
    fn write_last(&mut self) -> Result<Option<Vec<Bytes>>, Error>;
}

/// The fragments of one file.
#[derive(Debug)]
pub(super) struct Fragments {
    muxer: Box<dyn Muxer>,
    /// The tracks of the file with their epochs.
    tracks: Vec<(TrackId, u32)>,
    /// The leading track. The file begins with a key frame of this track.
    lead: Option<TrackId>,
    chosen_epoch: u32,
    /// True if anything was written.
    is_begun: bool,
    /// The times of the first unit of the fragment and of the file, in milliseconds.
    fragment_ms: Option<i64>,
    file_ms: Option<i64>,
    fragment_bytes: usize,
    bytes: u64,
}

impl Fragments {
    /// Begins a file of these tracks.
    pub(super) fn new(container: Container, chosen: &Chosen) -> Self {
        let mut fragments = Self {
            muxer: container.muxer(),
            tracks: Vec::new(),
            lead: chosen.lead(),
            chosen_epoch: chosen.epoch(),
            is_begun: false,
            fragment_ms: None,
            file_ms: None,
            fragment_bytes: 0,
            bytes: 0,
        };
        chosen.iter().for_each(|track| fragments.add_track(track));
        fragments
    }

    fn add_track(&mut self, track: &Track) {
        self.tracks.push((track.id, track.epoch));
        self.muxer.add_track(track);
    }

    /// True if nothing was written.
    pub(super) const fn is_empty(&self) -> bool {
        !self.is_begun
    }

    /// True if the stream's tracks differ from the file's. If nothing was written to the file yet, new tracks are
    /// added to it instead.
    pub(super) fn is_of_others(&mut self, chosen: &Chosen) -> bool {
        if self.chosen_epoch == chosen.epoch() {
            return false;
        }
        let is_there = |known: &(TrackId, u32)| chosen.iter().any(|track| (track.id, track.epoch) == *known);
        if self.is_begun || !self.tracks.iter().all(is_there) || self.lead != chosen.lead() {
            return true;
        }
        for track in chosen.iter() {
            if !self.tracks.iter().any(|(id, _)| *id == track.id) {
                self.add_track(track);
            }
        }
        self.chosen_epoch = chosen.epoch();
        false
    }

    /// True if a file may begin with this unit.
    pub(super) fn may_begin(chosen: &Chosen, entry: &Entry) -> bool {
        chosen.lead().is_none_or(|lead| lead == entry.unit.track && entry.unit.key_frame)
    }

    /// Returns the extent of the file: milliseconds up to this unit, and bytes of media.
    pub(super) fn extent(&self, entry: &Entry) -> (i64, u64) {
        (self.file_ms.map_or(0, |from| entry.dts_ms.saturating_sub(from)), self.bytes)
    }

    /// Adds a unit. If the fragment before it is complete, returns that fragment's bytes to write.
    ///
    /// # Errors
    /// The tracks cannot be written.
    pub(super) fn unit(&mut self, entry: &Entry) -> Result<Option<Vec<Bytes>>, Error> {
        let from = *self.fragment_ms.get_or_insert(entry.dts_ms);
        self.file_ms.get_or_insert(entry.dts_ms);
        let length = if self.is_begun { FRAGMENT_MS } else { FIRST_FRAGMENT_MS };
        let is_complete =
            entry.dts_ms.saturating_sub(from) >= length || self.fragment_bytes >= FRAGMENT_BYTES_MAX;
        let written = if is_complete { self.muxer.write()? } else { None };
        if written.is_some() {
            (self.is_begun, self.fragment_bytes) = (true, 0);
            self.fragment_ms = Some(entry.dts_ms);
        }
        if self.muxer.push(entry) {
            let bytes = entry.unit.payload.len();
            self.fragment_bytes = self.fragment_bytes.saturating_add(bytes);
            self.bytes = self.bytes.saturating_add(bytes as u64);
        }
        Ok(written)
    }

    /// Returns the remaining bytes, when no unit follows.
    ///
    /// # Errors
    /// The tracks cannot be written.
    pub(super) fn finish(mut self) -> Result<Option<Vec<Bytes>>, Error> {
        self.muxer.write_last()
    }
}
