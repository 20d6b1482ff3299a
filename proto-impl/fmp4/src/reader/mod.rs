//! Reads a file as its bytes arrive.
//!
//! ```text
//! 1. moov          -> Event::Tracks (each further moov has new tracks)
//! 2. moof, mdat    -> Event::Sample, in the order of the file
//!    or mdat alone -> Event::Sample, by the tables of the moov
//! ```
//!
//! Memory holds the index, an incomplete index box, and one incomplete sample. Sample tables and runs stay in encoded
//! form and are decoded one sample at a time. Unknown boxes (`styp`, `sidx`, `prft`, `emsg`, `free`, ...) are skipped
//! without reading the boxes inside them, so nesting needs no depth limit.

mod entry;
mod fragment;
mod indexer;
mod movie;
mod schedule;
mod tables;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use bytes::{Buf, Bytes, BytesMut};
use media::TrackKind;

pub use self::fragment::RUNS_MAX;
pub use self::indexer::{Indexed, Indexer};
use self::movie::Movie;
pub use self::movie::{Track, movie_duration_ms};
use self::schedule::Schedule;
use crate::boxes::{HEAD_BYTES, Head, LARGE_HEAD_BYTES};
use crate::{Error, FourCc};

/// Maximum number of successive empty samples that are skipped.
pub const EMPTY_SAMPLES_MAX: u32 = 4096;

/// Types of boxes that a file or a segment may begin with.
const FIRST_BOXES: [&[u8; 4]; 16] = [
    b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"prft", b"emsg",
    b"pdin", b"uuid", b"meta", b"pnot", b"ssix",
];

/// Limits of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest sample, in bytes.
    pub sample_bytes: u32,
    /// Largest `moov`, in bytes. The default holds the sample tables of about a day.
    pub moov_bytes: u32,
    /// Largest `moof`, in bytes.
    pub moof_bytes: u32,
    /// Maximum number of tracks in a `moov`, including unsupported ones.
    pub tracks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u32 = 1024 * 1024;
        Self { sample_bytes: 16 * MIB, moov_bytes: 32 * MIB, moof_bytes: 4 * MIB, tracks: 16 }
    }
}

/// A result of reading.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An index. The following samples belong to its tracks; the tracks of an earlier index have ended.
    Tracks {
        /// Tracks with a supported codec.
        tracks: Vec<Track>,
        /// Sample entry types of the other tracks, whose samples are skipped.
        others: Vec<FourCc>,
    },
    /// A sample was read.
    Sample(Sample),
}

/// A sample: the data of one track that is decoded at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Track of the sample, by its [`Track::id`].
    pub track: u32,
    /// Decode time in ticks of the track, [`Track::shift`] included; may be negative.
    pub dts: i64,
    /// Presentation time in ticks of the track, [`Track::shift`] included. May be less than `dts` if composition
    /// offsets are negative.
    pub pts: i64,
    /// Ticks to the next sample's decode time, according to the file.
    pub duration: u32,
    /// True if the sample is a sync sample of a video track.
    pub key_frame: bool,
    /// Media data in the format that [`media::AccessUnit`] has for the codec, except that NAL lengths have the size
    /// given in the configuration.
    pub payload: Bytes,
}

/// State of the reader: the part of the file that it is in.
#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    /// Payload of a `moov` or `moof`, whose header is at `at`.
    Index {
        kind: FourCc,
        at: u64,
        payload: usize,
    },
    /// Payload of an `mdat`, up to `end`; `None` for one that extends to the end of the file.
    Media {
        end: Option<u64>,
    },
    /// Bytes to skip, up to `end`; `None` for the rest of the file.
    Skip {
        end: Option<u64>,
    },
}

/// Reader of a fragmented or plain file.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    state: State,
    /// Offset of the next input byte.
    position: u64,
    /// An incomplete header, index or sample.
    held: BytesMut,
    movie: Option<Movie>,
    schedule: Schedule,
    /// Event with the tracks of an index that was given in advance; returned by the next call of [`Reader::read`].
    pending: Option<Event>,
    failed: Option<Error>,
    /// True if the index was given in advance; samples are then located only by their offsets.
    has_index_ahead: bool,
    /// True if at least one box was read since the file or segment began.
    is_begun: bool,
}

impl Reader {
    /// Creates a reader that starts at the first byte of a file.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Head,
            position: 0,
            held: BytesMut::new(),
            movie: None,
            schedule: Schedule::default(),
            pending: None,
            failed: None,
            has_index_ahead: false,
            is_begun: false,
        }
    }

    /// Creates a reader of a plain file whose complete `moov`, including its header, was fetched first. It locates
    /// samples by their offsets: pass it the bytes from [`Reader::next_offset`] on, and call [`Reader::seek`] after
    /// any bytes left out.
    pub fn with_moov(moov: &[u8], limits: Limits) -> Result<Self, Error> {
        let mut reader = Self::new(limits);
        let mut input = moov;
        let event = reader.read(&mut input)?;
        if event.is_none() || !matches!(reader.state, State::Head) {
            return Err(Error::NoIndex);
        }
        reader.pending = event;
        reader.has_index_ahead = true;
        reader.state = State::Media { end: None };
        reader.position = reader.next_offset().unwrap_or(0);
        Ok(reader)
    }

    /// Takes bytes off `input` until there is an event. `None` means that all input was taken; call again with the
    /// following bytes, which may be split anywhere. Samples are copied from `input`. After an error every call
    /// returns the same error.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(event) = self.pending.take() {
            return Ok(Some(event));
        }
        let result = self.advance(input);
        self.failed = result.as_ref().err().copied();
        result
    }

    /// Starts another file with the same index, such as the next segment of a playlist. Offsets then count from the
    /// next byte. Fails if a box or sample is incomplete.
    pub fn begin_segment(&mut self) -> Result<(), Error> {
        self.finish()?;
        self.state = State::Head;
        self.position = 0;
        self.is_begun = false;
        Ok(())
    }

    /// Sets the file offset of the next bytes, for a reader whose index was given in advance. If a sample was read
    /// partly, it must be passed again from its start.
    pub fn seek(&mut self, offset: u64) {
        if self.has_index_ahead {
            self.held.clear();
            self.position = offset;
        }
    }

    /// Returns the offset of the next byte needed. If the index was given in advance, this is the position at which
    /// the next sample begins or continues; `None` after the last sample.
    #[must_use]
    pub fn next_offset(&self) -> Option<u64> {
        if !self.has_index_ahead || !self.held.is_empty() {
            return Some(self.position);
        }
        self.schedule.peek().map(|(_, row)| row.offset)
    }

    /// Ends the input. Fails if it ended too early: within a box, or before an announced sample.
    pub fn finish(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let is_between = match self.state {
            State::Head => self.held.is_empty(),
            State::Media { end } | State::Skip { end } => end.is_none() && self.held.is_empty(),
            State::Index { .. } => false,
        };
        if is_between && self.schedule.peek().is_none() {
            return Ok(());
        }
        Err(Error::Unfinished { position: self.position })
    }

    /// Returns the capacity of the buffer for incomplete data, in bytes. The index is not counted.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    fn advance(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Error> {
        loop {
            let event = match self.state {
                State::Head => {
                    if !self.head(input)? {
                        return Ok(None);
                    }
                    None
                }
                State::Index { kind, at, payload } => {
                    if !self.hold(input, payload) {
                        return Ok(None);
                    }
                    self.state = State::Head;
                    let body = self.take_held();
                    self.index(kind, at, &body)?
                }
                State::Media { end } => match self.media(input, end)? {
                    Some(sample) => Some(Event::Sample(sample)),
                    None if input.is_empty() && matches!(self.state, State::Media { .. }) => {
                        return Ok(None);
                    }
                    None => None,
                },
                State::Skip { end } => {
                    self.skip(input, end);
                    if end != Some(self.position) {
                        return Ok(None);
                    }
                    self.state = State::Head;
                    None
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Collects input until `bytes` bytes are held. Returns false if more input is needed.
    fn hold(&mut self, input: &mut &[u8], bytes: usize) -> bool {
        let taken = bytes.saturating_sub(self.held.len()).min(input.len());
        if let Some((head, rest)) = input.split_at_checked(taken) {
            self.held.extend_from_slice(head);
            *input = rest;
            self.position = self.position.saturating_add(taken as u64);
        }
        self.held.len() >= bytes
    }

    /// Takes the held bytes together with their buffer.
    fn take_held(&mut self) -> Bytes {
        core::mem::take(&mut self.held).freeze()
    }

    /// Skips the bytes before `end`.
    fn skip(&mut self, input: &mut &[u8], end: Option<u64>) {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(self.position));
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        input.advance(taken);
        self.position = self.position.saturating_add(taken as u64);
    }

    /// Collects a box header. Returns false if more input is needed.
    fn head(&mut self, input: &mut &[u8]) -> Result<bool, Error> {
        if !self.hold(input, HEAD_BYTES) {
            return Ok(false);
        }
        let at = self.position.saturating_sub(self.held.len() as u64);
        let mut head = Head::read(&self.held, at)?;
        if head.is_none() {
            if !self.hold(input, LARGE_HEAD_BYTES) {
                return Ok(false);
            }
            head = Head::read(&self.held, at)?;
        }
        let head = head.ok_or(Error::Invalid("box head"))?;
        self.held.clear();
        self.begin(head, at)?;
        Ok(true)
    }

    /// Begins reading the payload of a box.
    fn begin(&mut self, head: Head, at: u64) -> Result<(), Error> {
        let Head { kind, payload, .. } = head;
        if !self.is_begun && !FIRST_BOXES.contains(&&kind.0) {
            return Err(Error::NotMp4 { kind });
        }
        self.is_begun = true;
        let end = payload.map(|payload| self.position.saturating_add(payload));
        self.state = match &kind.0 {
            b"moov" | b"moof" => {
                let max = if kind.0 == *b"moov" { self.limits.moov_bytes } else { self.limits.moof_bytes };
                let size = payload.ok_or(Error::Size { kind, at })?;
                let fitting = u32::try_from(size).ok().filter(|size| *size <= max);
                let payload = fitting.ok_or(Error::BoxTooLarge { kind, size })?;
                State::Index { kind, at, payload: usize::try_from(payload).unwrap_or(usize::MAX) }
            }
            b"mdat" if self.movie.is_some() => State::Media { end },
            b"mdat" if payload != Some(0) => {
                return Err(end.map_or(Error::NoIndex, |index_at| Error::MediaBeforeIndex { index_at }));
            }
            _ => State::Skip { end },
        };
        Ok(())
    }

    /// Handles a complete `moov` or `moof`.
    fn index(&mut self, kind: FourCc, at: u64, body: &Bytes) -> Result<Option<Event>, Error> {
        if kind.0 == *b"moov" {
            let (movie, walks) = Movie::read(body, self.limits.tracks)?;
            self.schedule = Schedule::of_tables(walks)?;
            let event = Event::Tracks { tracks: movie.tracks.clone(), others: movie.others.clone() };
            self.movie = Some(movie);
            return Ok(Some(event));
        }
        let movie = self.movie.as_mut().ok_or(Error::NoIndex)?;
        if self.schedule.has_runs() {
            self.passed()?;
            return Err(Error::Unsupported("fragments before the media of the fragment before"));
        }
        self.schedule.put_runs(fragment::read(body, at, movie)?)?;
        Ok(None)
    }

    /// Fails if the next sample lies before the current position.
    fn passed(&self) -> Result<(), Error> {
        match self.schedule.peek() {
            Some((_, row)) if row.offset < self.position => {
                Err(Error::Passed { offset: row.offset, position: self.position })
            }
            _ => Ok(()),
        }
    }

    /// Reads from an `mdat` until a sample is complete, or until the box or the input ends.
    fn media(&mut self, input: &mut &[u8], end: Option<u64>) -> Result<Option<Sample>, Error> {
        let next = self.schedule.peek().filter(|(_, row)| end.is_none_or(|end| row.offset < end));
        let Some((track, row)) = next else {
            self.skip(input, end);
            if end == Some(self.position) {
                self.state = State::Head;
            }
            return Ok(None);
        };
        if self.held.is_empty() {
            self.passed()?;
            if row.size > self.limits.sample_bytes {
                return Err(Error::SampleTooLarge { size: row.size });
            }
            let sample_end = row.offset.checked_add(row.size.into());
            if sample_end.is_none_or(|sample_end| end.is_some_and(|end| sample_end > end)) {
                return Err(Error::Outside { offset: row.offset, size: row.size });
            }
            self.skip(input, Some(row.offset));
            if self.position < row.offset {
                return Ok(None);
            }
        }
        let size = usize::try_from(row.size).unwrap_or(usize::MAX);
        let payload = match input.split_at_checked(size) {
            Some((whole, rest)) if self.held.is_empty() => {
                *input = rest;
                self.position = self.position.saturating_add(size as u64);
                Bytes::copy_from_slice(whole)
            }
            _ if self.hold(input, size) => self.take_held(),
            _ => return Ok(None),
        };
        self.schedule.pop()?;
        let track = self.movie.as_ref().and_then(|movie| movie.tracks.get(track));
        let track = track.ok_or(Error::Invalid("track"))?;
        let dts = row.dts.saturating_add(track.shift);
        Ok(Some(Sample {
            track: track.id,
            dts,
            pts: dts.saturating_add(row.composition.into()),
            duration: row.duration,
            key_frame: row.sync && track.config.codec().kind() == TrackKind::Video,
            payload,
        }))
    }
}
