//! Multiplexing: turns access units into transport packets of one program, usually with one video and one audio stream.
//! [`Muxer::set_services`] groups the streams into several programs with names.
//!
//! Units become PES packets, each in transport packets of its own. A video unit is one PES packet, written at once.
//! Audio frames are small: alone, with a header each and the rest of their last packet stuffed, they would take up to
//! twice their size. So [`Muxer::pack`] puts several into one PES packet, as far as [`Packing`] allows. Only the first
//! frame has a timestamp. The others follow without a pause; after a pause, a new packet begins. Frames of an
//! incomplete packet are held and not output yet.
//!
//! The tables are written before key frames, when the streams change, after [`Packing::tables_interval`], and when the
//! owner requests it ([`Muxer::begin`]).
//!
//! **The clock.** A PCR is at least [`PCR_LEAD`] before the DTS of the unit with which it is sent, and never after the
//! DTS of a later unit, provided that streams lag by at most [`LATE_MAX`]. The lead is the time that a receiver has to
//! get and decode the unit, and to compensate for uneven audio and video. A player that follows the PCR (VLC, set-top
//! boxes) is delayed by the lead. ffmpeg uses 700 ms, GStreamer 125 ms; here it is 200 ms, and more only if a stream
//! lags by more. The PCR is in the first video stream, or in the first audio stream if there is no video, and at most
//! 100 ms old. If there are fewer frames than that, packets that contain only a PCR are written.

mod clock;
#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

use self::clock::{Beat, Clock, signed};
pub use self::clock::{LATE_MAX, PCR_LEAD};
use crate::packet::{Head, PACKET_BYTES};
use crate::pes::PesHeader;
use crate::psi::{Language, language, write_services};
use crate::{CLOCK_MASK, Pat, Pcr, Pid, Pmt, Stream, StreamKind};

/// PID of the PMT. All PIDs are those of ffmpeg's muxer, which receivers with fixed settings expect.
pub const PMT_PID: Pid = Pid::new(0x1000);
/// PID of the service description table (ETSI EN 300 468 §5.1.3).
pub const SDT_PID: Pid = Pid::new(0x11);
/// The PID of the first video stream.
pub const VIDEO_PID: Pid = Pid::new(0x100);
/// The PID of the first audio stream.
pub const AUDIO_PID: Pid = Pid::new(0x101);
/// The PID of timed metadata.
pub const METADATA_PID: Pid = Pid::new(0x102);
/// The PID of splice information.
pub const SPLICE_PID: Pid = Pid::new(0x103);
/// Base PID of further video streams, to which their number is added.
const MORE_VIDEO_PID: u16 = 0x110;
/// Base PID of further audio streams, to which their number is added.
const MORE_AUDIO_PID: u16 = 0x130;
/// Maximum number of streams of a program; the descriptions of so many always fit one packet. Further streams are left
/// out.
pub const PROGRAM_STREAMS_MAX: usize = 8;
/// Maximum number of programs with names ([`Muxer::set_services`]).
pub const SERVICES_MAX: usize = 8;
/// Stream numbers must be below this.
const NUMBERS: u8 = 32;
/// Maximum number of bytes of section packets that wait until the tables that announce them are written.
const SECTIONS_BYTES_MAX: usize = 16 * 1024;
/// Default media time after which the tables are repeated: 100 ms.
const TABLES_INTERVAL: u64 = 9_000;
/// Maximum error of audio timestamps at which frames still count as contiguous: about a millisecond, because of RTMP's
/// resolution and rounding.
const CONTIGUOUS: u64 = 96;
/// Maximum time by which a unit's DTS may be before that of the previous unit to count as a clock that stands still,
/// rather than one that was set back.
const STILL_MAX: u64 = 90;
/// transport_stream_id, and program_number of the first program.
const PROGRAM: u16 = 1;

/// Kind of a stream. The first stream in this order carries the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Video.
    Video,
    /// Audio.
    Audio,
    /// Timed metadata. A program has at most one such stream.
    Metadata,
    /// Splice information. A program has at most one such stream; it consists of sections.
    Splice,
}

/// Identifies a stream of the program; the first of its kind has number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamNumber {
    /// Kind of the stream.
    pub kind: Kind,
    /// Index among the streams of this kind, below 32.
    pub number: u8,
}

impl StreamNumber {
    /// Returns the first stream of a kind.
    #[must_use]
    pub const fn first(kind: Kind) -> Self {
        Self { kind, number: 0 }
    }

    const fn pid(self) -> Pid {
        match (self.kind, self.number) {
            (Kind::Video, 0) => VIDEO_PID,
            (Kind::Audio, 0) => AUDIO_PID,
            (Kind::Video, number) => Pid::new(MORE_VIDEO_PID + number as u16),
            (Kind::Metadata, _) => METADATA_PID,
            (Kind::Splice, _) => SPLICE_PID,
            (Kind::Audio, number) => Pid::new(MORE_AUDIO_PID + number as u16),
        }
    }
}

/// An access unit to be written as a PES packet.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// Kind of the unit's stream.
    pub kind: Kind,
    /// Index among the streams of this kind, from 0.
    pub number: u8,
    /// Presentation time in ticks of 90 kHz. Its lower 33 bits are written.
    pub pts: u64,
    /// Decoding time in ticks of 90 kHz. Its lower 33 bits are written.
    pub dts: u64,
    /// True if a decoder can start with the unit.
    pub random_access: bool,
    /// Payload, as slices that are concatenated.
    pub payload: &'a [&'a [u8]],
}

/// Packing of audio frames into PES packets, and the interval at which the tables are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Maximum payload in bytes of an audio PES packet with several frames.
    pub audio_bytes: usize,
    /// Maximum time for which a frame is held, in ticks of media time.
    pub audio_wait: u64,
    /// Media time after which the tables are repeated. `None`: they are only written at key frames and when the owner
    /// requests it.
    pub tables_interval: Option<u64>,
}

impl Packing {
    /// No packing: every unit is written at once, in its own PES packet.
    pub const NONE: Self = Self { audio_bytes: 0, audio_wait: 0, tables_interval: Some(TABLES_INTERVAL) };
    /// Packing for viewers of a live stream. A frame is held for up to 70 ms, the duration of four frames of AAC at 48
    /// or 44.1 kHz. This is a fifth of the time that ffmpeg uses, and less than the latency of SRT (120 ms by default).
    /// Seven packets including a PCR are one payload of SRT.
    pub const LIVE: Self = Self { audio_bytes: 7 * 184 - 22, audio_wait: 6_300, tables_interval: None };
    /// Packing for segments. Segments are sent as a whole, so holding frames costs nothing. A PES packet has at most
    /// sixteen transport packets with four PCRs, and 350 ms: these are the values of ffmpeg, to which HLS players are
    /// used.
    pub const SEGMENT: Self =
        Self { audio_bytes: 16 * 184 - 14 - 4 * 8, audio_wait: 31_500, tables_interval: None };
}

/// Audio frames that wait for further frames in their PES packet.
#[derive(Debug)]
struct Held {
    pts: u64,
    /// DTS of the first frame.
    dts: u64,
    /// DTS of the last frame.
    last: u64,
    /// PTS that the next frame has if it follows without a pause.
    next: u64,
    random_access: bool,
    payload: BytesMut,
}

impl Held {
    /// True if this unit follows the held frames without a pause.
    fn is_followed_by(&self, unit: &Unit<'_>) -> bool {
        unit.pts == unit.dts
            && !unit.random_access
            && signed(self.next, unit.pts & CLOCK_MASK).unsigned_abs() <= CONTIGUOUS
    }
}

/// State of a stream.
#[derive(Debug)]
struct Lane {
    stream: StreamNumber,
    kind: StreamKind,
    pid: Pid,
    continuity: u8,
    /// DTS of the last unit written. Before the first unit: the smallest DTS expected.
    edge: Option<u64>,
    /// True if at least one unit of the stream was written.
    begun: bool,
    held: Option<Held>,
}

impl Lane {
    /// Returns the continuity counter for the next packet with payload.
    const fn count(&mut self) -> u8 {
        let continuity = self.continuity;
        self.continuity = (continuity + 1) & 0x0f;
        continuity
    }

    /// Returns the ticks by which a unit with the DTS `dts` is written later, so that decode times grow (§2.4.3.7).
    /// Publishers' clocks may stand still for a moment.
    fn shift(&self, dts: u64) -> u64 {
        let is_timed = self.begun && !matches!(self.stream.kind, Kind::Metadata | Kind::Splice);
        let Some(edge) = self.edge.filter(|_| is_timed) else { return 0 };
        u64::try_from(signed(dts, edge))
            .ok()
            .filter(|behind| *behind <= STILL_MAX)
            .map_or(0, |behind| behind + 1)
    }

    /// Returns the DTS below which this stream is not expected to send a PES packet any more, given that another stream
    /// sends a unit with the DTS `dts`. `None` if the muxer does not wait for this stream.
    fn floor(&mut self, dts: u64) -> Option<u64> {
        let patience = if self.begun { LATE_MAX } else { 2 * LATE_MAX };
        let edge = *self.edge.get_or_insert_with(|| dts.wrapping_sub(LATE_MAX) & CLOCK_MASK);
        u64::try_from(signed(edge, dts)).is_ok_and(|behind| behind <= patience).then_some(edge)
    }
}

/// Contents of a PES packet: one unit, or several audio frames.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    pts: u64,
    dts: u64,
    /// DTS of the last unit in the packet.
    last: u64,
    /// Media time until the next packet; 0 if unknown.
    span: u64,
    random_access: bool,
    payload: &'a [&'a [u8]],
}

/// Multiplexer of a transport stream.
#[derive(Debug)]
pub struct Muxer {
    packing: Packing,
    /// The streams in the order of their numbers. The first one carries the clock.
    lanes: Vec<Lane>,
    /// Continuity counters of the PIDs of the tables, and of streams that are no longer in the program: a stream that
    /// returns continues its counter.
    counters: BTreeMap<u16, u8>,
    version: u8,
    /// The list of programs that was last written, with its version.
    pat: (Vec<Pat>, u8),
    /// Packets of the tables, with continuity counters of zero.
    tables: BytesMut,
    /// DTS of the unit before which the tables were last written. `None`: they must be written before the next unit.
    tables_at: Option<u64>,
    clock: Clock,
    /// Packets of streams that are no longer in the program. They are written before the next tables. Each of these
    /// streams held at most [`Packing::audio_bytes`]. No frames are held while this is not empty.
    past: BytesMut,
    /// Languages of streams. The flag is true if the tables do not contain them yet.
    languages: (Vec<(StreamNumber, Language)>, bool),
    /// Names of the programs by number; empty for a single program without a name. The flag is true if the tables do
    /// not contain them yet.
    services: (Vec<(u8, String)>, bool),
    /// Packets of sections. They are written after the next tables.
    sections: BytesMut,
}

impl Default for Muxer {
    fn default() -> Self {
        Self::new()
    }
}

impl Muxer {
    /// Creates a multiplexer without streams and without packing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_packing(Packing::NONE)
    }

    /// Creates a multiplexer without streams, with this packing.
    #[must_use]
    pub fn with_packing(packing: Packing) -> Self {
        Self {
            packing,
            lanes: Vec::new(),
            counters: BTreeMap::new(),
            version: 0,
            pat: (Vec::new(), 0),
            tables: BytesMut::new(),
            tables_at: None,
            clock: Clock::new(),
            past: BytesMut::new(),
            languages: (Vec::new(), false),
            services: (Vec::new(), false),
            sections: BytesMut::new(),
        }
    }

    /// Sets a program with at most one stream of each kind; see [`Muxer::set_program`].
    pub fn set_streams(&mut self, video: Option<StreamKind>, audio: Option<StreamKind>) {
        let first = |of, kind: Option<StreamKind>| kind.map(|kind| (StreamNumber::first(of), kind));
        self.set_program(first(Kind::Video, video).into_iter().chain(first(Kind::Audio, audio)));
    }

    /// Sets the languages of streams, as three letters of ISO 639-2, from the next [`Muxer::set_program`] on. Other
    /// texts are ignored. If a table with the languages would need more than one packet, no language is announced.
    pub fn set_languages<'l>(&mut self, languages: impl IntoIterator<Item = (StreamNumber, &'l str)>) {
        let read = |(number, text): (StreamNumber, &str)| {
            Some((number, language(text.as_bytes()).filter(|_| text.len() == 3)?))
        };
        let languages: Vec<_> = languages.into_iter().filter_map(read).collect();
        let has_changed = self.languages.0 != languages;
        self.languages = (languages, self.languages.1 || has_changed);
    }

    /// Groups the streams into programs, from the next [`Muxer::set_program`] on: the streams with a number are the
    /// program with the number. Players show the names. Programs beyond [`SERVICES_MAX`] are left out. All programs
    /// share one clock. Without services, all streams are one program.
    pub fn set_services<'n>(&mut self, services: impl IntoIterator<Item = (u8, &'n str)>) {
        let known = services.into_iter().filter(|(number, _)| *number < NUMBERS);
        let mut services: Vec<(u8, String)> = known.map(|(number, name)| (number, name.to_owned())).collect();
        services.sort_unstable();
        services.dedup_by_key(|(number, _)| *number);
        services.truncate(SERVICES_MAX);
        let has_changed = self.services.0 != services;
        self.services = (services, self.services.1 || has_changed);
    }

    /// Maximum number of streams.
    const fn streams_max(&self) -> usize {
        if self.services.0.is_empty() { PROGRAM_STREAMS_MAX } else { 2 * SERVICES_MAX }
    }

    /// Sets the program's streams, each number once. Streams beyond [`PROGRAM_STREAMS_MAX`] are left out. The tables
    /// are always written before the next unit; if the streams have changed, they have a new version. Continuity
    /// counters are kept.
    pub fn set_program(&mut self, streams: impl IntoIterator<Item = (StreamNumber, StreamKind)>) {
        let mut streams: Vec<_> = streams
            .into_iter()
            .filter(|(stream, _)| stream.number < NUMBERS)
            .take(self.streams_max())
            .collect();
        streams.sort_unstable_by_key(|(stream, _)| *stream);
        streams.dedup_by_key(|(stream, _)| *stream);
        let had_any = !self.tables.is_empty();
        let is_new = [&mut self.languages.1, &mut self.services.1].map(core::mem::take).contains(&true);
        let is_same =
            !is_new && self.lanes.iter().map(|lane| (lane.stream, lane.kind)).eq(streams.iter().copied());
        if !(had_any && is_same) {
            let mut past = core::mem::take(&mut self.past);
            self.let_all_go(&mut past);
            self.past = past;
            if had_any {
                self.version = (self.version + 1) & 0x1f;
            }
            let before = core::mem::take(&mut self.lanes);
            self.counters.extend(before.iter().map(|lane| (lane.pid.get(), lane.continuity)));
            let lane = |(stream, kind): (StreamNumber, _)| {
                let known = before.iter().find(|lane| lane.stream == stream);
                let (edge, begun) = known.map_or((None, false), |lane| (lane.edge, lane.begun));
                let pid = stream.pid();
                let continuity = self.counters.get(&pid.get()).copied().unwrap_or_default();
                Lane { stream, kind, pid, continuity, edge, begun, held: None }
            };
            self.lanes = streams.into_iter().map(lane).collect();
            self.make_tables();
        }
        self.tables_at = None;
    }

    /// Makes the next output begin with the tables, for example because a segment begins.
    pub const fn begin(&mut self) {
        self.tables_at = None;
    }

    /// Returns the tables for a receiver that joins now. If the muxer is about to write tables before the next unit
    /// anyway, the returned ones have the same continuity counters, so that the receiver takes the second tables as a
    /// repetition (§2.4.3.3).
    #[must_use]
    pub fn tables(&self) -> Bytes {
        let mut out = self.tables.clone();
        let mut counters = self.counters.clone();
        if self.tables_at.is_some() {
            for pid in self.tables.chunks_exact(PACKET_BYTES).filter_map(pid_of) {
                let counter = counter_of(&mut counters, pid);
                *counter = counter.wrapping_sub(1);
            }
        }
        out.chunks_exact_mut(PACKET_BYTES).for_each(|packet| number(packet, &mut counters));
        out.freeze()
    }

    /// Returns the packets of a unit in one buffer, preceded by the held frames of its stream. Empty if the program
    /// does not contain the unit's stream.
    #[must_use]
    pub fn write(&mut self, unit: &Unit<'_>) -> Bytes {
        let Some(at) = self.position(unit) else { return Bytes::new() };
        let mut out = BytesMut::with_capacity(self.capacity(unit));
        self.let_go(at, &mut out);
        let (pts, dts) = (unit.pts & CLOCK_MASK, unit.dts & CLOCK_MASK);
        let Unit { random_access, payload, .. } = *unit;
        let is_start = random_access && unit.kind == Kind::Video;
        if is_start {
            self.write_tables(dts, &mut out);
        }
        if at == 0 || unit.number == 0 {
            self.let_overdue_go(dts, &mut out);
        }
        self.put(at, &Piece { pts, dts, last: dts, span: 0, random_access, payload }, is_start, &mut out);
        out.freeze()
    }

    /// Returns the packets of an audio frame that lasts `duration` ticks, preceded by the frames held before. Empty if
    /// the frame itself is held. A frame of unknown duration (0) is never held.
    #[must_use]
    pub fn pack(&mut self, unit: &Unit<'_>, duration: u64) -> Bytes {
        let Packing { audio_bytes, audio_wait, .. } = self.packing;
        let payload: usize = unit.payload.iter().map(|piece| piece.len()).sum();
        let is_alone =
            duration == 0 || payload >= audio_bytes || unit.kind != Kind::Audio || unit.pts != unit.dts;
        // While packets of former streams wait, no frames are held. Otherwise the former streams' packets could grow
        // without limit.
        if is_alone || !self.past.is_empty() {
            return self.write(unit);
        }
        let Some(at) = self.position(unit) else { return Bytes::new() };
        let mut out = BytesMut::new();
        let fits = |held: &Held| {
            held.payload.len().saturating_add(payload) <= audio_bytes && held.is_followed_by(unit)
        };
        if self.lanes.get(at).and_then(|lane| lane.held.as_ref()).is_some_and(|held| !fits(held)) {
            self.let_go(at, &mut out);
        }
        let Some(lane) = self.lanes.get_mut(at) else { return Bytes::new() };
        let (pts, dts) = (unit.pts & CLOCK_MASK, unit.dts & CLOCK_MASK);
        let held = lane.held.get_or_insert_with(|| Held {
            pts,
            dts,
            last: dts,
            next: pts,
            random_access: unit.random_access,
            payload: BytesMut::with_capacity(audio_bytes),
        });
        unit.payload.iter().for_each(|piece| held.payload.put_slice(piece));
        (held.last, held.next) = (dts, held.next.wrapping_add(duration) & CLOCK_MASK);
        // The next frame is assumed to have the same size as this one, and to arrive when this one ends.
        let is_full = held.payload.len().saturating_add(payload) > audio_bytes;
        let next = u64::try_from(signed(held.pts, held.next)).unwrap_or(u64::MAX);
        if is_full || next > audio_wait {
            self.let_go(at, &mut out);
        }
        out.freeze()
    }

    /// Returns the packets of a section of splice information. Empty if the program has no such stream. Also empty if
    /// the tables must be written first: the section is then written after them, unless more than 16 KiB of sections
    /// would be waiting.
    #[must_use]
    pub fn write_section(&mut self, section: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.stream.kind == Kind::Splice) else {
            return Bytes::new();
        };
        // A pointer field of zero, then the section, and stuffing to the end of the last packet (§2.4.4).
        let payload = [&[0], section].concat();
        for (at, piece) in payload.chunks(PACKET_BYTES - 4).enumerate() {
            let head = Head {
                pid: lane.pid,
                unit_start: at == 0,
                continuity: lane.count(),
                discontinuity: false,
                random_access: false,
                pcr: None,
            };
            let room = head.room();
            head.write(room, &mut out);
            out.put_slice(piece);
            out.put_bytes(0xff, room.saturating_sub(piece.len()));
        }
        if self.tables_at.is_some() {
            return out.freeze();
        }
        if self.sections.len().saturating_add(out.len()) <= SECTIONS_BYTES_MAX {
            self.sections.put_slice(&out);
        }
        Bytes::new()
    }

    /// Returns the packets of all held frames.
    #[must_use]
    pub fn flush(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        self.let_all_go(&mut out);
        out.freeze()
    }

    fn position(&self, unit: &Unit<'_>) -> Option<usize> {
        let stream = StreamNumber { kind: unit.kind, number: unit.number };
        self.lanes.iter().position(|lane| lane.stream == stream)
    }

    /// Returns an upper bound of the size of a unit's packets. The first packet has room for 176 bytes. Up to two
    /// packets with tables and one with a PCR may precede it.
    fn capacity(&self, unit: &Unit<'_>) -> usize {
        let payload: usize = unit.payload.iter().map(|piece| piece.len()).sum();
        let packets = payload.saturating_add(PesHeader::bytes(true)) / 184 + 5;
        packets.saturating_mul(PACKET_BYTES).saturating_add(self.past.len())
    }

    /// Writes the held frames of one stream.
    fn let_go(&mut self, at: usize, out: &mut BytesMut) {
        let Some(held) = self.lanes.get_mut(at).and_then(|lane| lane.held.take()) else { return };
        let Held { pts, dts, last, next, random_access, payload } = held;
        let span = u64::try_from(signed(pts, next)).unwrap_or(0);
        self.put(at, &Piece { pts, dts, last, span, random_access, payload: &[&payload] }, false, out);
    }

    /// Writes the held frames of all streams, the oldest first.
    fn let_all_go(&mut self, out: &mut BytesMut) {
        let mut held: Vec<(usize, u64)> = Vec::new();
        for (at, lane) in self.lanes.iter().enumerate() {
            held.extend(lane.held.as_ref().map(|held| (at, held.dts)));
        }
        if let Some((_, first)) = held.first().copied() {
            held.sort_by_key(|(_, dts)| signed(first, *dts));
        }
        held.into_iter().for_each(|(at, _)| self.let_go(at, out));
    }

    /// Writes held frames that have waited too long for further frames.
    fn let_overdue_go(&mut self, dts: u64, out: &mut BytesMut) {
        let wait = i64::try_from(self.packing.audio_wait.saturating_mul(2)).unwrap_or(i64::MAX);
        for at in 0..self.lanes.len() {
            let held = self.lanes.get(at).and_then(|lane| lane.held.as_ref());
            if held.is_some_and(|held| signed(held.dts, dts) > wait) {
                self.let_go(at, out);
            }
        }
    }

    /// Writes a PES packet, preceded by the tables if they must be written. If `is_start`, the tables are written, so a
    /// PCR must be written as well.
    fn put(&mut self, at: usize, piece: &Piece<'_>, is_start: bool, out: &mut BytesMut) {
        let shift = self.lanes.get(at).map_or(0, |lane| lane.shift(piece.dts));
        let [pts, dts, last] =
            [piece.pts, piece.dts, piece.last].map(|time| time.wrapping_add(shift) & CLOCK_MASK);
        let is_old = |at: u64| {
            self.packing
                .tables_interval
                .is_some_and(|interval| u64::try_from(signed(at, dts)).is_ok_and(|since| since >= interval))
        };
        // A receiver that waits for a key frame of a further video stream drops that stream's packets until then, so
        // the tables must not be written with such a packet.
        let is_for_all = piece.random_access
            || self.lanes.get(at).is_some_and(|lane| lane.stream.kind != Kind::Video || at == 0);
        let due = is_for_all && self.tables_at.is_none_or(is_old);
        if due {
            self.write_tables(dts, out);
        }
        // Metadata and splice information are sporadic. The clock must not wait for them.
        let is_awaited = |other: usize, lane: &Lane| {
            other != at && !matches!(lane.stream.kind, Kind::Metadata | Kind::Splice)
        };
        let others = self.lanes.iter_mut().enumerate().filter(|(other, lane)| is_awaited(*other, lane));
        let floor = others.filter_map(|(_, lane)| lane.floor(dts)).min_by_key(|floor| signed(dts, *floor));
        let beat = Beat { dts, span: piece.span, floor, is_clock: at == 0, is_start: is_start || due };
        let mut tick = self.clock.tick(&beat);
        let is_other_time = tick.discontinuity;
        for pcr in core::mem::take(&mut tick.fill) {
            self.write_clock(pcr, false, out);
        }
        if at != 0
            && let Some(pcr) = tick.pcr.take()
        {
            self.write_clock(pcr, core::mem::take(&mut tick.discontinuity), out);
        }
        let payload: usize = piece.payload.iter().map(|piece| piece.len()).sum();
        let marks = self.clock.within(&beat, payload.div_ceil(184));
        if is_other_time {
            // The time base has changed. The other streams have not sent anything in the new time base yet.
            self.lanes.iter_mut().for_each(|lane| (lane.edge, lane.begun) = (None, false));
        }
        let Some(lane) = self.lanes.get_mut(at) else { return };
        (lane.edge, lane.begun) = (Some(last), true);
        // A PES packet of video or metadata begins with a picture or a tag, and is marked as aligned. A PES packet of
        // audio is not marked: receivers find the frames by their headers.
        let is_aligned = lane.stream.kind != Kind::Audio;
        let mut head = BytesMut::with_capacity(PesHeader::bytes(true));
        PesHeader::write(lane.kind.stream_id(), is_aligned, pts, dts, payload, &mut head);
        let first = Head {
            pid: lane.pid,
            unit_start: true,
            continuity: 0,
            discontinuity: tick.discontinuity,
            random_access: piece.random_access,
            pcr: tick.pcr,
        };
        write_pes(lane, first, &marks, &head, piece.payload, out);
    }

    /// Writes a packet without payload. Its continuity counter is that of the packet before (§2.4.3.3).
    fn write_clock(&self, pcr: Pcr, discontinuity: bool, out: &mut BytesMut) {
        let Some(lane) = self.lanes.first() else { return };
        let head = Head {
            pid: lane.pid,
            unit_start: false,
            continuity: lane.continuity.wrapping_sub(1) & 0x0f,
            discontinuity,
            random_access: false,
            pcr: Some(pcr),
        };
        head.write(0, out);
    }

    /// Builds the tables. Those of a program fit one packet each.
    fn make_tables(&mut self) {
        let single = [(0, String::new())];
        let services = if self.services.0.is_empty() { &single[..] } else { &self.services.0 };
        let has_names = !self.services.0.is_empty();
        let pcr_pid = self.lanes.first().map_or(Pid::NULL, |lane| lane.pid);
        let pat = services.iter().map(|(number, _)| {
            let (program, pmt_pid) = (PROGRAM + u16::from(*number), pmt_pid(*number));
            Pat { transport_stream: PROGRAM, program, pmt_pid }
        });
        let pat: Vec<Pat> = pat.collect();
        let (mut tables, mut section) = (BytesMut::new(), BytesMut::new());
        if self.pat.0 != pat {
            let is_next = !self.pat.0.is_empty();
            self.pat = (pat.clone(), (self.pat.1 + u8::from(is_next)) & 0x1f);
        }
        Pat::write(&pat, self.pat.1, &mut section);
        put_section(Pid::PAT, &section.split(), &mut tables);
        for (index, one) in pat.iter().enumerate() {
            let number = services.get(index).map_or(0, |(number, _)| *number);
            // Metadata and splice information are in the first program.
            let is_own = |lane: &&Lane| match lane.stream.kind {
                Kind::Video | Kind::Audio => !has_names || lane.stream.number == number,
                Kind::Metadata | Kind::Splice => index == 0,
            };
            self.write_map(*one, pcr_pid, is_own, &mut section);
            put_section(one.pmt_pid, &section.split(), &mut tables);
        }
        if has_names {
            let names = services.iter().map(|(number, name)| (PROGRAM + u16::from(*number), name.as_str()));
            write_services(PROGRAM, &names.collect::<Vec<_>>(), self.version, &mut section);
            put_section(SDT_PID, &section.split(), &mut tables);
        }
        self.tables = tables;
    }

    /// Writes the map of a program with those streams that `is_own` accepts.
    fn write_map(&self, of: Pat, pcr_pid: Pid, is_own: impl Fn(&&Lane) -> bool, out: &mut BytesMut) {
        let lanes = || self.lanes.iter().filter(&is_own);
        let streams: Vec<Stream> = lanes().map(|lane| Stream { pid: lane.pid, kind: lane.kind }).collect();
        let languages = lanes().filter_map(|lane| {
            let own = self.languages.0.iter().find(|(number, _)| *number == lane.stream)?;
            Some((lane.pid, own.1))
        });
        let languages = languages.collect();
        let (program, version) = (of.program, self.version);
        let mut pmt =
            Pmt { program, version, pcr_pid, streams, streams_left_out: 0, captions: Vec::new(), languages };
        pmt.write(out);
        if out.len() > PACKET_BYTES - 5 {
            pmt.languages.clear();
            out.clear();
            pmt.write(out);
        }
    }

    fn write_tables(&mut self, dts: u64, out: &mut BytesMut) {
        self.tables_at = Some(dts);
        out.put_slice(&self.past.split());
        for packet in self.tables.chunks_exact(PACKET_BYTES) {
            let start = out.len();
            out.put_slice(packet);
            number(out.get_mut(start..).unwrap_or_default(), &mut self.counters);
        }
        out.put_slice(&self.sections.split());
    }
}

/// Returns the PID of the map of the program with a number.
const fn pmt_pid(number: u8) -> Pid {
    Pid::new(PMT_PID.get() + number as u16)
}

/// Writes the packets of a section, with continuity counters of zero: a pointer field of zero, the section, and
/// stuffing to the end of the last packet (§2.4.4).
fn put_section(pid: Pid, section: &[u8], out: &mut BytesMut) {
    let payload = [&[0], section].concat();
    for (at, piece) in payload.chunks(PACKET_BYTES - 4).enumerate() {
        let head = Head {
            pid,
            unit_start: at == 0,
            continuity: 0,
            discontinuity: false,
            random_access: false,
            pcr: None,
        };
        let room = head.room();
        head.write(room, out);
        out.put_slice(piece);
        out.put_bytes(0xff, room.saturating_sub(piece.len()));
    }
}

/// Returns the PID in the header of a packet.
fn pid_of(packet: &[u8]) -> Option<Pid> {
    let [_, high, low, ..] = *packet else { return None };
    Some(Pid::new(u16::from_be_bytes([high, low])))
}

/// Returns the continuity counter of a PID.
fn counter_of(counters: &mut BTreeMap<u16, u8>, pid: Pid) -> &mut u8 {
    counters.entry(pid.get()).or_default()
}

/// Sets the continuity counter of a packet whose counter is zero, and advances the counter.
fn number(packet: &mut [u8], counters: &mut BTreeMap<u16, u8>) {
    let Some(pid) = pid_of(packet) else { return };
    let counter = counter_of(counters, pid);
    if let Some(control) = packet.get_mut(3) {
        *control |= *counter & 0x0f;
    }
    *counter = counter.wrapping_add(1) & 0x0f;
}

/// Splits a PES packet into transport packets and stuffs the last one. `marks` are PCRs to write within it, each with
/// the index of its transport packet.
fn write_pes(
    lane: &mut Lane,
    first: Head,
    marks: &[(usize, Pcr)],
    head: &[u8],
    payload: &[&[u8]],
    out: &mut BytesMut,
) {
    let mut left: usize = head.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let mut pieces = core::iter::once(head).chain(payload.iter().copied());
    let mut piece: &[u8] = &[];
    let mut packet = first;
    let mut marks = marks.iter().copied().peekable();
    for next in 1.. {
        if left == 0 {
            break;
        }
        packet.continuity = lane.count();
        let mut room = packet.room().min(left);
        left -= room;
        packet.write(room, out);
        while room > 0 {
            let (now, rest) = piece.split_at(piece.len().min(room));
            out.put_slice(now);
            room -= now.len();
            piece = rest;
            if room > 0 {
                let Some(next) = pieces.next() else { break };
                piece = next;
            }
        }
        let pcr = marks.next_if(|(at, _)| *at <= next).map(|(_, pcr)| pcr);
        packet = Head { unit_start: false, discontinuity: false, random_access: false, pcr, ..first };
    }
}
