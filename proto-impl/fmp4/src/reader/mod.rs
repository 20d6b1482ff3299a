//! Reads a file as its bytes come.
//!
//! ```text
//! 1. moov          -> Event::Tracks; again, new tracks
//! 2. moof, mdat    -> Event::Sample, in the order of the file
//!    or mdat alone -> Event::Sample, by the tables of the moov
//! ```
//!
//! Held in memory: the index, the unfinished box of an index, one unfinished sample. Sample tables and runs stay the bytes
//! that came, and are walked. Boxes that are not known (`styp`, `sidx`, `prft`, `emsg`, `free`, ...) are passed over. No box is read
//! by descent into unknown ones, so nesting has no depth to bound.

mod entry;
mod fragment;
mod indexer;
mod movie;
mod schedule;
mod tables;
#[cfg(test)]
mod tests;

use bytes::{Buf, Bytes, BytesMut};
use media::TrackKind;

pub use self::fragment::RUNS_MAX;
pub use self::indexer::{Indexed, Indexer};
use self::movie::Movie;
pub use self::movie::{Track, movie_duration_ms};
use self::schedule::Schedule;
use crate::boxes::{HEAD_BYTES, Head, LARGE_HEAD_BYTES};
use crate::{Error, FourCc};

/// Samples without a byte that are passed over in a row.
pub const EMPTY_SAMPLES_MAX: u32 = 4096;

/// Boxes that a file or a segment begins with.
const FIRST_BOXES: [&[u8; 4]; 16] = [
    b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"prft", b"emsg",
    b"pdin", b"uuid", b"meta", b"pnot", b"ssix",
];

/// The bounds of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a sample.
    pub sample_bytes: u32,
    /// Bytes of a `moov`: sample tables of about a day.
    pub moov_bytes: u32,
    /// Bytes of a `moof`.
    pub moof_bytes: u32,
    /// Tracks of a `moov`, those that are not read included.
    pub tracks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u32 = 1024 * 1024;
        Self { sample_bytes: 16 * MIB, moov_bytes: 32 * MIB, moof_bytes: 4 * MIB, tracks: 16 }
    }
}

/// A part of the file that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An index: the samples that follow are of these tracks. Those of an index before have ended.
    Tracks {
        /// Tracks whose codec is known.
        tracks: Vec<Track>,
        /// The sample entries of the other tracks, whose samples are passed over.
        others: Vec<FourCc>,
    },
    /// A sample.
    Sample(Sample),
}

/// A sample: the data of one decode instant of one track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// [`Track::id`] of its track.
    pub track: u32,
    /// Decode time in ticks of the track, with [`Track::shift`]; may be negative.
    pub dts: i64,
    /// Presentation time in ticks of the track, with [`Track::shift`]. With negative composition offsets it may be before
    /// `dts`.
    pub pts: i64,
    /// Ticks to the decode time of the next one, as the file says.
    pub duration: u32,
    /// Whether it is a sync sample of a video track.
    pub key_frame: bool,
    /// The data, as the access unit of its codec is in `media`; NAL lengths have the size that the configuration says.
    pub payload: Bytes,
}

/// The next part of the file.
#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    /// The payload of a `moov` or `moof`, whose head is at `at`.
    Index {
        kind: FourCc,
        at: u64,
        payload: usize,
    },
    /// The payload of an `mdat`; without an end it lasts to that of the file.
    Media {
        end: Option<u64>,
    },
    /// Bytes that are passed over.
    Skip {
        end: Option<u64>,
    },
}

/// Reads a file, fragmented or plain.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    state: State,
    /// The offset of the next byte of input.
    position: u64,
    /// An unfinished head, index or sample.
    held: BytesMut,
    movie: Option<Movie>,
    schedule: Schedule,
    /// The tracks of an index that was there from the beginning.
    pending: Option<Event>,
    failed: Option<Error>,
    /// Whether the samples are found by their offsets alone.
    has_index_ahead: bool,
    /// Whether a box has been seen since the file began.
    is_begun: bool,
}

impl Reader {
    /// Creates a reader at the first byte of a file.
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

    /// Creates a reader of a plain file whose index, a whole `moov` with its head, was fetched first. It finds samples by
    /// their offsets: the owner gives it the bytes from [`Reader::next_offset`] on, see [`Reader::seek`].
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

    /// Takes bytes off `input` until something came of them. `None`: all are taken; call it again with the next ones, in
    /// whatever pieces they come. Samples are copied out of `input`. An error stays.
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

    /// The next bytes are the first of another file with the same index, such as the next segment of a playlist: offsets
    /// count from there. Anything unfinished is an error.
    pub fn begin_segment(&mut self) -> Result<(), Error> {
        self.finish()?;
        self.state = State::Head;
        self.position = 0;
        self.is_begun = false;
        Ok(())
    }

    /// The next bytes are those from `offset` on: of a reader that has its index ahead. A sample of which a part has
    /// come is read again as a whole.
    pub fn seek(&mut self, offset: u64) {
        if self.has_index_ahead {
            self.held.clear();
            self.position = offset;
        }
    }

    /// The offset of the next byte that is wanted: of a reader that has its index ahead, where the next sample begins or
    /// goes on; `None` behind the last one. Of another reader that of the next byte.
    #[must_use]
    pub fn next_offset(&self) -> Option<u64> {
        if !self.has_index_ahead || !self.held.is_empty() {
            return Some(self.position);
        }
        self.schedule.peek().map(|(_, row)| row.offset)
    }

    /// The input has ended. An error says that it ended early: in a box, or before a sample that was announced.
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

    /// Bytes that it holds of what is unfinished, without the index.
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

    /// Gathers `bytes` bytes. `false`: more are needed.
    fn hold(&mut self, input: &mut &[u8], bytes: usize) -> bool {
        let taken = bytes.saturating_sub(self.held.len()).min(input.len());
        if let Some((head, rest)) = input.split_at_checked(taken) {
            self.held.extend_from_slice(head);
            *input = rest;
            self.position = self.position.saturating_add(taken as u64);
        }
        self.held.len() >= bytes
    }

    /// Takes the held bytes; their memory goes with them.
    fn take_held(&mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }

    /// Passes over what is before `end`.
    fn skip(&mut self, input: &mut &[u8], end: Option<u64>) {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(self.position));
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        input.advance(taken);
        self.position = self.position.saturating_add(taken as u64);
    }

    /// Gathers a head. `false`: more bytes are needed.
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

    /// Begins the payload of a box.
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

    /// A whole `moov` or `moof`.
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

    /// Fails when the next sample is behind the position.
    fn passed(&self) -> Result<(), Error> {
        match self.schedule.peek() {
            Some((_, row)) if row.offset < self.position => {
                Err(Error::Passed { offset: row.offset, position: self.position })
            }
            _ => Ok(()),
        }
    }

    /// Reads on in an `mdat`, up to a sample or to the end of the box or the input.
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
