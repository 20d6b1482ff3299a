//! Finds every sample of a fragmented file without reading its media, so that a recording can be turned into a plain
//! file, even after a crash.

use alloc::vec::Vec;

use bytes::Bytes;
use media::CodecConfig;

use super::movie::{Movie, Track};
use super::{Limits, fragment};
use crate::boxes::{HEAD_BYTES, Head, LARGE_HEAD_BYTES};
use crate::writer::{BitRate, Description, IndexSample, TrackIndex};
use crate::{Error, FourCc};

/// A file may continue after a gap of zeros only at a multiple of this, the block size of file systems.
const BLOCK_BYTES: u64 = 4096;

/// Maximum number of samples in one fragment. A recorder writes fewer than a thousand, but a run whose samples are
/// all alike needs no bytes for them and may announce any number.
const FRAGMENT_SAMPLES_MAX: usize = 16 * 1024;

/// Samples and boxes found in a file.
#[derive(Debug, Clone)]
pub struct Indexed {
    /// Tracks that have samples. Offsets count from the first byte of the file.
    pub tracks: Vec<TrackIndex>,
    /// Offset of the `moov`.
    pub moov_at: u64,
    /// End of the last complete fragment. Bytes after this offset belong to a fragment that was not written
    /// completely.
    pub end: u64,
    /// Duration of the longest track in milliseconds, from its first sample to the end of its last one.
    pub duration_ms: u64,
}

/// A track whose samples are being collected.
#[derive(Debug)]
struct Lane {
    track: Track,
    first_unit: Bytes,
    /// Offset and size of the first sample.
    first: Option<(u64, u32)>,
    /// Decode time of the first sample.
    begin: i64,
    /// Last sample and its decode time; the sample lasts until the next one.
    last: Option<(i64, IndexSample)>,
    samples: Vec<IndexSample>,
    bytes: u64,
}

/// Next part of the file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body {
        kind: FourCc,
        payload: usize,
        bytes: usize,
    },
    /// Read the first sample of this track.
    Sample(usize),
    Done,
}

/// The indexer. Its owner reads the bytes that it requests ([`Self::wanted`]) and passes them in ([`Self::take`]).
#[derive(Debug)]
pub struct Indexer {
    length: u64,
    limits: Limits,
    at: u64,
    state: State,
    movie: Option<Movie>,
    moov_at: u64,
    lanes: Vec<Lane>,
    /// Samples of the last `moof`: track, decode time, sample. They are added once their media is known to exist.
    pending: Vec<(usize, i64, IndexSample)>,
    end: u64,
}

impl Indexer {
    /// Creates an indexer for a file of this length.
    #[must_use]
    pub fn new(length: u64, limits: Limits) -> Self {
        Self {
            length,
            limits,
            at: 0,
            state: State::Head,
            movie: None,
            moov_at: 0,
            lanes: Vec::new(),
            pending: Vec::new(),
            end: 0,
        }
    }

    /// Returns the offset and number of the bytes that the owner must read next; `None` when the indexer has
    /// finished.
    #[must_use]
    pub fn wanted(&self) -> Option<(u64, usize)> {
        match self.state {
            State::Head => {
                let left = self.length.saturating_sub(self.at);
                Some((self.at, usize::try_from(left).unwrap_or(usize::MAX).min(LARGE_HEAD_BYTES)))
            }
            State::Body { payload, bytes, .. } => Some((self.at.saturating_add(bytes as u64), payload)),
            State::Sample(lane) => {
                let (offset, size) = self.lanes.get(lane)?.first?;
                Some((offset, usize::try_from(size).unwrap_or(0)))
            }
            State::Done => None,
        }
    }

    /// Takes the requested bytes. If there are fewer bytes than requested, the file has been shortened.
    ///
    /// # Errors
    /// The file is not fragmented, or its index is invalid. An error after the index is not returned; the file is
    /// indexed up to that point.
    pub fn take(&mut self, bytes: &Bytes) -> Result<(), Error> {
        match self.state {
            State::Head => self.head(bytes),
            State::Body { kind, payload, bytes: head } => {
                if bytes.len() < payload {
                    return self.stop(Error::Unfinished { position: self.at });
                }
                let at = self.at;
                self.at = at.saturating_add(head as u64).saturating_add(payload as u64);
                self.state = State::Head;
                let result = if kind.0 == *b"moov" { self.moov(bytes, at) } else { self.moof(bytes, at) };
                result.or_else(|error| self.stop(error))
            }
            State::Sample(lane) => {
                if let Some(lane) = self.lanes.get_mut(lane) {
                    lane.first_unit = bytes.clone();
                }
                self.next_sample(lane.saturating_add(1));
                Ok(())
            }
            State::Done => Ok(()),
        }
    }

    /// Stops at an error and keeps the samples found so far. Fails if no index was read yet.
    fn stop(&mut self, error: Error) -> Result<(), Error> {
        if self.movie.is_none() {
            self.state = State::Done;
            return Err(error);
        }
        self.pending.clear();
        self.next_sample(0);
        Ok(())
    }

    /// Requests the first sample of the next track whose codec can only be described by its first unit. Tracks before
    /// `from` are done.
    fn next_sample(&mut self, from: usize) {
        let needs = |lane: &Lane| {
            matches!(
                lane.track.config,
                CodecConfig::Ac3(_) | CodecConfig::Eac3(_) | CodecConfig::Vp8(_) | CodecConfig::Vp9(_)
            ) && lane.first.is_some()
        };
        let next = self.lanes.iter().enumerate().skip(from).find(|(_, lane)| needs(lane));
        self.state = next.map_or(State::Done, |(index, _)| State::Sample(index));
    }

    fn head(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.movie.is_none() && bytes.first_chunk() == Some(&[0; HEAD_BYTES]) {
            // Skip a gap of zeros: a block of the file that was never written.
            self.at = (self.at / BLOCK_BYTES).saturating_add(1).saturating_mul(BLOCK_BYTES);
            return Ok(());
        }
        let head = match Head::read(bytes, self.at) {
            Ok(Some(head)) => head,
            Ok(None) => return self.stop(Error::NoIndex),
            Err(error) => return self.stop(error),
        };
        let Some(payload) = head.payload else { return self.stop(Error::NoIndex) };
        let end = self.at.saturating_add(head.bytes as u64).saturating_add(payload);
        match &head.kind.0 {
            b"moov" | b"moof" => {
                let is_movie = head.kind.0 == *b"moov";
                let max = if is_movie { self.limits.moov_bytes } else { self.limits.moof_bytes };
                if payload > max.into() || is_movie == self.movie.is_some() {
                    return self.stop(Error::BoxTooLarge { kind: head.kind, size: payload });
                }
                let payload = usize::try_from(payload).unwrap_or(usize::MAX);
                self.state = State::Body { kind: head.kind, payload, bytes: head.bytes };
                return Ok(());
            }
            b"mdat" => {
                let reaches = |(_, _, sample): &(usize, i64, IndexSample)| {
                    sample.offset >= self.at && sample.offset.saturating_add(sample.size.into()) <= end
                };
                if end > self.length || !self.pending.iter().all(reaches) {
                    return self.stop(Error::Unfinished { position: self.at });
                }
                self.commit();
                self.end = end;
            }
            _ => {}
        }
        self.at = end;
        Ok(())
    }

    fn moov(&mut self, body: &Bytes, at: u64) -> Result<(), Error> {
        let (movie, _) = Movie::read(body, self.limits.tracks)?;
        let lane = |track: &Track| Lane {
            track: track.clone(),
            first_unit: Bytes::new(),
            first: None,
            begin: 0,
            last: None,
            samples: Vec::new(),
            bytes: 0,
        };
        self.lanes = movie.tracks.iter().map(lane).collect();
        self.movie = Some(movie);
        (self.moov_at, self.end) = (at, self.at);
        Ok(())
    }

    fn moof(&mut self, body: &Bytes, at: u64) -> Result<(), Error> {
        let movie = self.movie.as_mut().ok_or(Error::NoIndex)?;
        self.pending.clear();
        for mut run in fragment::read(body, at, movie)? {
            while let Some(row) = run.next()? {
                if self.pending.len() >= FRAGMENT_SAMPLES_MAX {
                    return Err(Error::Unsupported("fragments of so many samples"));
                }
                let sample = IndexSample {
                    offset: row.offset,
                    size: row.size,
                    duration: row.duration,
                    composition: row.composition,
                    key_frame: row.sync,
                };
                self.pending.push((run.track, row.dts, sample));
            }
        }
        Ok(())
    }

    /// Adds the samples of the last `moof` to their tracks, because their media was found to exist.
    fn commit(&mut self) {
        for (lane, dts, sample) in self.pending.drain(..) {
            let Some(lane) = self.lanes.get_mut(lane) else { continue };
            if lane.first.is_none() {
                (lane.first, lane.begin) = (Some((sample.offset, sample.size)), dts);
            }
            lane.bytes = lane.bytes.saturating_add(sample.size.into());
            if let Some((before, mut last)) = lane.last.replace((dts, sample)) {
                // A sample lasts until the next decode time, even across a gap between two fragments.
                last.duration = u32::try_from(dts.saturating_sub(before)).unwrap_or(last.duration);
                lane.samples.push(last);
            }
        }
    }

    /// Returns the samples and boxes found. To be called when [`Self::wanted`] has returned `None`.
    ///
    /// # Errors
    /// The file has no index.
    pub fn finish(self) -> Result<Indexed, Error> {
        if self.movie.is_none() {
            return Err(Error::NoIndex);
        }
        let (moov_at, end) = (self.moov_at, self.end);
        let lanes = self.lanes.into_iter().filter(|lane| lane.first.is_some());
        let (tracks, ends): (Vec<TrackIndex>, Vec<u64>) = lanes.map(Lane::finish).unzip();
        Ok(Indexed { tracks, moov_at, end, duration_ms: ends.into_iter().max().unwrap_or(0) })
    }
}

impl Lane {
    /// Returns the track's index, and the end of the track in milliseconds from the start of the presentation.
    fn finish(self) -> (TrackIndex, u64) {
        let Track { id, config, timescale, language, shift, size, .. } = self.track;
        let rate = |ticks: u64| {
            let bits = u128::from(self.bytes) * 8 * u128::from(timescale.ticks());
            let average = bits.checked_div(ticks.into()).unwrap_or(0);
            BitRate { average: u32::try_from(average).unwrap_or(0), ..BitRate::default() }
        };
        let mut index = TrackIndex::new(Description {
            language,
            size,
            // The media times in the sample tables begin at 0.
            media_start: shift.saturating_add(self.begin).saturating_neg(),
            first_unit: self.first_unit,
            ..Description::new(id, config, timescale)
        });
        self.samples
            .iter()
            .chain(self.last.as_ref().map(|(_, sample)| sample))
            .for_each(|sample| index.push(sample));
        index.description.bit_rate = Some(rate(index.duration()));
        let ticks = i64::try_from(index.duration()).unwrap_or(i64::MAX);
        let end = timescale.to_ms(ticks.saturating_sub(index.description.media_start));
        (index, u64::try_from(end).unwrap_or(0))
    }
}
