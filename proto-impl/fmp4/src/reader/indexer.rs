//! Finds every sample of a fragmented file without reading its media: what a recorder has written becomes a plain file by
//! it, also after a crash.

use bytes::Bytes;
use media::CodecConfig;

use super::movie::{Movie, Track};
use super::{Limits, fragment};
use crate::boxes::{HEAD_BYTES, Head, LARGE_HEAD_BYTES};
use crate::writer::{BitRate, Description, IndexSample, TrackIndex};
use crate::{Error, FourCc};

/// The alignment at which a file may go on behind a gap of zeros: that of the blocks of file systems.
const BLOCK_BYTES: u64 = 4096;

/// Samples of one fragment. A recorder writes less than a thousand; a run whose samples are all alike may announce any number.
const FRAGMENT_SAMPLES_MAX: usize = 16 * 1024;

/// The samples and boxes of a file.
#[derive(Debug, Clone)]
pub struct Indexed {
    /// The tracks that have samples. Offsets count from the first byte of the file.
    pub tracks: Vec<TrackIndex>,
    /// The offset at which its `moov` begins.
    pub moov_at: u64,
    /// The offset at which its last whole fragment ends. What follows is a fragment that was not written to its end, and
    /// is of no use.
    pub end: u64,
    /// The time from the first sample to the end of the last, in milliseconds, of the track that lasts longest.
    pub duration_ms: u64,
}

/// A track on its way.
#[derive(Debug)]
struct Lane {
    track: Track,
    first_unit: Bytes,
    /// The first sample's place.
    first: Option<(u64, u32)>,
    /// The decode time of the first sample.
    begin: i64,
    /// The last sample and its decode time: it lasts until the next one.
    last: Option<(i64, IndexSample)>,
    samples: Vec<IndexSample>,
    bytes: u64,
}

/// The next part to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body {
        kind: FourCc,
        payload: usize,
        bytes: usize,
    },
    /// The first sample of this track.
    Sample(usize),
    Done,
}

/// A machine: its owner reads what it wants ([`Self::wanted`]) and gives it ([`Self::take`]).
#[derive(Debug)]
pub struct Indexer {
    length: u64,
    limits: Limits,
    at: u64,
    state: State,
    movie: Option<Movie>,
    moov_at: u64,
    lanes: Vec<Lane>,
    /// The samples of the last `moof`: track, decode time, sample. They count when their media is there.
    pending: Vec<(usize, i64, IndexSample)>,
    end: u64,
}

impl Indexer {
    /// Creates one for a file of this length.
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

    /// The offset and number of the bytes that are wanted next. `None`: it is done.
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

    /// Takes the bytes that were wanted; fewer than that are those of a file that has become shorter.
    ///
    /// # Errors
    /// When it is no fragmented file, or one whose index cannot be read. Faults behind the index end the file there.
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

    /// The file ends here, unless it has not begun.
    fn stop(&mut self, error: Error) -> Result<(), Error> {
        if self.movie.is_none() {
            self.state = State::Done;
            return Err(error);
        }
        self.pending.clear();
        self.next_sample(0);
        Ok(())
    }

    /// Some codecs are described by their first unit.
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
            // A gap that was made for a head that was not written any more.
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

    /// The media of the last `moof` is there.
    fn commit(&mut self) {
        for (lane, dts, sample) in self.pending.drain(..) {
            let Some(lane) = self.lanes.get_mut(lane) else { continue };
            if lane.first.is_none() {
                (lane.first, lane.begin) = (Some((sample.offset, sample.size)), dts);
            }
            lane.bytes = lane.bytes.saturating_add(sample.size.into());
            if let Some((before, mut last)) = lane.last.replace((dts, sample)) {
                // Decode times count, also where a fragment begins later than the one before has ended.
                last.duration = u32::try_from(dts.saturating_sub(before)).unwrap_or(last.duration);
                lane.samples.push(last);
            }
        }
    }

    /// The found samples and boxes, when nothing is wanted any more.
    ///
    /// # Errors
    /// There is no index.
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
    /// The index, and when the track ends, in milliseconds from the beginning of the presentation.
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
            // The times of the tables begin at 0.
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
