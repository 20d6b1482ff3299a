//! Indexer of a recorded file: finds its seek points, its duration, and the end of its last whole block, even after a
//! crash.
//!
//! ```text
//! Start ── Top ──┬─ Info, Tracks ── Top
//!                └─ Cluster ──┬─ its first block ─────── Top       far from the end of the file
//!                             └─ Block ── Block ── … ── Top           within its last TAIL_BYTES: a crash may have torn it
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::Reader;

use crate::ebml::{Head, VOID_HEAD_BYTES, WIDE_SIZE_BYTES, read_element, read_uint, read_vint};
use crate::reading::segment_at;
use crate::writer::{BLOCK_HEAD_BYTES, DURATION_BYTES, KEY_FRAME, SEEK_HEAD_BYTES};
use crate::{Error, HEAD_BYTES_MAX, INFO_BYTES_MAX, id};

/// Length in bytes of the end of a file, which is examined block by block. Between two syncs, a recorder appends fewer
/// bytes than this.
pub const TAIL_BYTES: u64 = 16 << 20;
/// Number of bytes read at the start: the EBML header and the header of the segment.
const START_BYTES: usize = 256;
/// Number of bytes read from a cluster: its header, its time and the header of its first block.
const CLUSTER_BYTES: usize = 64;
/// Maximum length of a `Tracks` element in bytes: enough for 16 tracks with parameter sets of 64 KiB each.
const TRACKS_BYTES_MAX: usize = 2 << 20;
/// Highest number of a track.
const TRACK_MAX: u8 = 126;
/// Minimum distance of two seek points in milliseconds.
const CUE_GAP_MS: u64 = 1000;
/// Maximum number of seek points, enough for a day.
const CUES_MAX: usize = 100_000;
/// Value of TrackType for video.
const VIDEO: u64 = 1;

/// Seek point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cue {
    pub(crate) track: u8,
    pub(crate) at_ms: u64,
    pub(crate) cluster_at: u64,
}

/// Tracks and clusters of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed {
    /// Offset of the end of the last whole block. The rest of the file is unusable.
    pub end: u64,
    /// End time of the last frame in milliseconds.
    pub duration_ms: u64,
    /// Offset of the body of the segment, which follows a size field of eight bytes. The room for later elements lasts
    /// from there to `Info`.
    pub(crate) segment_at: u64,
    pub(crate) info_at: u64,
    pub(crate) tracks_at: u64,
    /// Offset of the `Duration` element.
    pub(crate) duration_at: Option<u64>,
    pub(crate) cues: Vec<Cue>,
    /// If the last cluster is incomplete: the offset of its size field, and the correct size.
    pub(crate) torn: Option<(u64, u64)>,
}

/// The part that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Element of the segment.
    Top,
    Info(usize),
    Tracks(usize),
    /// Element of this cluster.
    Block(Cluster),
    Done,
}

/// Cluster that is examined block by block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cluster {
    at: u64,
    body_at: u64,
    end: u64,
    time_ms: Option<u64>,
    has_block: bool,
}

/// Last block of a track, and its distance from the block before.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    at_ms: u64,
    lasts_ms: u64,
}

/// First bytes of a block: its track, its time in its cluster, and whether it is a key frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockHead {
    track: u8,
    relative_ms: i16,
    key_frame: bool,
}

impl BlockHead {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (track, _) = read_vint(reader)?;
        let track = u8::try_from(track).ok().filter(|track| (1..=TRACK_MAX).contains(track));
        let track = track.ok_or(Error::Invalid("track number"))?;
        let relative_ms = i16::from_be_bytes(reader.array()?);
        Ok(Self { track, relative_ms, key_frame: reader.u8()? & KEY_FRAME != 0 })
    }
}

/// State machine that indexes a file. The owner reads the part of the file that [`Self::wanted`] returns, and passes
/// its bytes to [`Self::take`].
#[derive(Debug)]
pub struct Indexer {
    length: u64,
    at: u64,
    state: State,
    segment_at: u64,
    info_at: Option<u64>,
    tracks_at: Option<u64>,
    /// True if the room before `Info` already has a `SeekHead`.
    has_seek_head: bool,
    duration_at: Option<u64>,
    /// Track whose frames become seek points: the first video track. `None`: frames of any track do.
    lead: Option<u8>,
    tracks: Vec<u8>,
    cues: Vec<Cue>,
    lasts: BTreeMap<u8, Last>,
    end: u64,
    torn: Option<(u64, u64)>,
}

impl Indexer {
    /// Creates an indexer for a file of this length.
    #[must_use]
    pub const fn new(length: u64) -> Self {
        Self {
            length,
            at: 0,
            state: State::Start,
            segment_at: 0,
            info_at: None,
            tracks_at: None,
            has_seek_head: false,
            duration_at: None,
            lead: None,
            tracks: Vec::new(),
            cues: Vec::new(),
            lasts: BTreeMap::new(),
            end: 0,
            torn: None,
        }
    }

    /// Returns the offset and number of the bytes to read next, or `None` at the end.
    #[must_use]
    pub fn wanted(&self) -> Option<(u64, usize)> {
        let bytes = match self.state {
            State::Start => START_BYTES,
            State::Top => CLUSTER_BYTES,
            State::Info(bytes) | State::Tracks(bytes) => bytes,
            State::Block(_) => HEAD_BYTES_MAX.saturating_add(BLOCK_HEAD_BYTES),
            State::Done => return None,
        };
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        Some((self.at, bytes.min(left)))
    }

    /// Takes the requested bytes. If there are fewer, the file has become shorter.
    ///
    /// # Errors
    /// Returns an error if the file is not WebM or its head cannot be read. An error after the head is not returned;
    /// the file is indexed up to that point.
    pub fn take(&mut self, bytes: &Bytes) -> Result<(), Error> {
        match self.state {
            State::Start => self.start(bytes),
            State::Top => match self.top(bytes) {
                // If the bytes are not an element, the media ends before them.
                Err(_) if self.tracks_at.is_some() => {
                    self.state = State::Done;
                    Ok(())
                }
                result => result,
            },
            State::Info(size) => self.info(bytes.get(..size).ok_or(Error::NoMedia)?),
            State::Tracks(size) => self.read_tracks(bytes.get(..size).ok_or(Error::NoMedia)?),
            State::Block(cluster) => {
                if self.block(cluster, bytes).is_err() {
                    self.tear(cluster);
                }
                Ok(())
            }
            State::Done => Ok(()),
        }
    }

    fn start(&mut self, bytes: &[u8]) -> Result<(), Error> {
        // Bytes that were not on the disk when the power was cut may read as zeros.
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Error::NoMedia);
        }
        let at = segment_at(bytes)?;
        let head = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).ok_or(Error::NoMedia)?;
        let head = Head::read(head)?;
        // The size field is overwritten later, so it must have its maximum length.
        if head.id != id::SEGMENT || head.bytes != HEAD_BYTES_MAX {
            return Err(Error::Invalid("segment"));
        }
        self.segment_at = at.saturating_add(head.bytes as u64);
        (self.at, self.state) = (self.segment_at, State::Top);
        Ok(())
    }

    /// Handles an element of the segment. Elements after the clusters are ignored, because they are written again.
    fn top(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let head = Head::read(bytes)?;
        let size = head.size.ok_or(Error::Invalid("element size"))?;
        let body_at = self.at.saturating_add(head.bytes as u64);
        let end = body_at.checked_add(size).ok_or(Error::Invalid("element size"))?;
        match head.id {
            id::INFO if self.info_at.is_none() && self.tracks_at.is_none() => {
                self.state = State::Info(within(size, INFO_BYTES_MAX, head.id)?);
                (self.info_at, self.at) = (Some(self.at), body_at);
            }
            id::TRACKS if self.info_at.is_some() && self.tracks_at.is_none() => {
                self.state = State::Tracks(within(size, TRACKS_BYTES_MAX, head.id)?);
                (self.tracks_at, self.at) = (Some(self.at), body_at);
            }
            id::CLUSTER if self.tracks_at.is_some() && head.bytes == HEAD_BYTES_MAX => {
                self.cluster(&head, body_at, end, bytes);
            }
            id::VOID | id::SEEK_HEAD | id::CUES if self.info_at.is_none() => {
                self.room(&head, end.saturating_sub(self.at))?;
                self.at = end;
            }
            _ => return Err(Error::Invalid("segment")),
        }
        Ok(())
    }

    /// Handles an element of the room before `Info`. The room is overwritten in steps, each of which leaves a readable
    /// file. This is only possible if the room is a single `Void`, or contains the elements that an earlier run has
    /// written.
    fn room(&mut self, head: &Head, bytes: u64) -> Result<(), Error> {
        let is_first = self.at == self.segment_at;
        let fits = match head.id {
            id::VOID if is_first => head.bytes == VOID_HEAD_BYTES,
            id::SEEK_HEAD if is_first => {
                self.has_seek_head = true;
                head.bytes == VOID_HEAD_BYTES
                    && usize::try_from(bytes).is_ok_and(|bytes| bytes == SEEK_HEAD_BYTES)
            }
            _ => self.has_seek_head,
        };
        if fits { Ok(()) } else { Err(Error::Invalid("room")) }
    }

    fn info(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(body);
        while !reader.is_empty() {
            let from = reader.position();
            let (id, _) = read_element(&mut reader)?;
            let bytes = reader.position().saturating_sub(from);
            if matches!(id, id::VOID | id::DURATION) && bytes == DURATION_BYTES {
                self.duration_at = Some(self.at.saturating_add(from as u64));
            }
        }
        (self.at, self.state) = (self.at.saturating_add(body.len() as u64), State::Top);
        Ok(())
    }

    fn read_tracks(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(body);
        while !reader.is_empty() {
            let (id, body) = read_element(&mut reader)?;
            if id != id::TRACK_ENTRY {
                continue;
            }
            let (mut number, mut kind) = (0, 0);
            let mut entry = Reader::new(body);
            while !entry.is_empty() {
                match read_element(&mut entry)? {
                    (id::TRACK_NUMBER, body) => number = read_uint(body)?,
                    (id::TRACK_TYPE, body) => kind = read_uint(body)?,
                    _ => {}
                }
            }
            let number = u8::try_from(number).map_err(|_| Error::Invalid("track number"))?;
            self.tracks.push(number);
            if kind == VIDEO {
                self.lead.get_or_insert(number);
            }
        }
        (self.at, self.state) = (self.at.saturating_add(body.len() as u64), State::Top);
        self.end = self.at;
        Ok(())
    }

    fn cluster(&mut self, head: &Head, body_at: u64, end: u64, bytes: &[u8]) {
        let first = bytes.get(head.bytes..).and_then(|body| first_block(body).ok());
        let is_far = end.checked_add(TAIL_BYTES).is_some_and(|reach| reach <= self.length);
        if let Some((time_ms, block)) = first.filter(|(_, block)| is_far && self.is_ours(block)) {
            self.cue(self.at, time_ms, block);
            (self.at, self.end) = (end, end);
            return;
        }
        self.state = State::Block(Cluster { at: self.at, body_at, end, time_ms: None, has_block: false });
        self.at = body_at;
    }

    fn is_ours(&self, block: &BlockHead) -> bool {
        self.tracks.contains(&block.track)
    }

    /// Handles the next element of a cluster.
    fn block(&mut self, mut cluster: Cluster, bytes: &[u8]) -> Result<(), Error> {
        if self.at == cluster.end && cluster.has_block {
            self.state = State::Top;
            return Ok(());
        }
        let head = Head::read(bytes)?;
        let size = head.size.ok_or(Error::Invalid("element size"))?;
        let end = self.at.saturating_add(head.bytes as u64).saturating_add(size);
        if end > cluster.end.min(self.length) {
            return Err(Error::NoMedia);
        }
        let mut reader = Reader::new(bytes);
        reader.take(head.bytes)?;
        match (head.id, cluster.time_ms) {
            (id::TIMESTAMP, None) => {
                cluster.time_ms = Some(read_uint(reader.take(within(size, 8, head.id)?)?)?);
            }
            (id::SIMPLE_BLOCK, Some(time_ms)) if size >= BLOCK_HEAD_BYTES as u64 => {
                let block = BlockHead::read(&mut reader)?;
                if !self.is_ours(&block) {
                    return Err(Error::Invalid("track number"));
                }
                if !std::mem::replace(&mut cluster.has_block, true) {
                    self.cue(cluster.at, time_ms, block);
                }
                self.note(block.track, time_of(time_ms, block));
                self.end = end;
            }
            _ => return Err(Error::Invalid("cluster")),
        }
        self.at = end;
        self.state = State::Block(cluster);
        Ok(())
    }

    /// Handles an incomplete cluster. The file ends with the last whole block, in this cluster or before it.
    fn tear(&mut self, cluster: Cluster) {
        self.state = State::Done;
        if cluster.has_block {
            let size_at = cluster.body_at.saturating_sub(WIDE_SIZE_BYTES as u64);
            self.torn = Some((size_at, self.end.saturating_sub(cluster.body_at)));
        }
    }

    fn note(&mut self, track: u8, at_ms: u64) {
        let last = self.lasts.entry(track).or_insert(Last { at_ms, lasts_ms: 0 });
        if at_ms > last.at_ms {
            *last = Last { at_ms, lasts_ms: at_ms.saturating_sub(last.at_ms) };
        }
    }

    fn cue(&mut self, cluster_at: u64, time_ms: u64, block: BlockHead) {
        let at_ms = time_of(time_ms, block);
        let is_lead = self.lead.is_none_or(|lead| lead == block.track);
        let is_apart = self.cues.last().is_none_or(|last| at_ms >= last.at_ms.saturating_add(CUE_GAP_MS));
        if block.key_frame && is_lead && is_apart && self.cues.len() < CUES_MAX {
            self.cues.push(Cue { track: block.track, at_ms, cluster_at });
        }
    }

    /// Returns the tracks and clusters found.
    ///
    /// # Errors
    /// Returns an error if there is no block in the file.
    pub fn finish(self) -> Result<Indexed, Error> {
        let (Some(info_at), Some(tracks_at)) = (self.info_at, self.tracks_at) else {
            return Err(Error::NoMedia);
        };
        if self.lasts.is_empty() {
            return Err(Error::NoMedia);
        }
        let ends = self.lasts.values().map(|last| last.at_ms.saturating_add(last.lasts_ms));
        Ok(Indexed {
            end: self.end,
            duration_ms: ends.max().unwrap_or(0),
            segment_at: self.segment_at,
            info_at,
            tracks_at,
            duration_at: self.duration_at,
            cues: self.cues,
            torn: self.torn,
        })
    }
}

/// Converts a size to a number of bytes, if it is small enough to be read at once.
fn within(size: u64, max: usize, id: u32) -> Result<usize, Error> {
    usize::try_from(size).ok().filter(|bytes| *bytes <= max).ok_or(Error::TooLarge { id, size })
}

fn time_of(cluster_ms: u64, block: BlockHead) -> u64 {
    cluster_ms.saturating_add_signed(block.relative_ms.into())
}

/// Reads the time of a cluster and the header of its first block.
fn first_block(body: &[u8]) -> Result<(u64, BlockHead), Error> {
    let mut reader = Reader::new(body);
    let (timestamp, time) = read_element(&mut reader)?;
    let time_ms = read_uint(time)?;
    let head = Head::read(reader.clone().rest())?;
    if timestamp != id::TIMESTAMP || head.id != id::SIMPLE_BLOCK {
        return Err(Error::Invalid("cluster"));
    }
    reader.take(head.bytes)?;
    Ok((time_ms, BlockHead::read(&mut reader)?))
}

#[cfg(test)]
mod tests;
