//! Access units to transport packets: one program, usually of one video and one audio stream.
//!
//! Units become PES packets in transport packets that nobody else shares. A video unit has one of its own and is written at
//! once. Audio frames are small: with a head each, and the rest of their last packet stuffed, they take up to twice their
//! bytes. So [`Muxer::pack`] puts several into one PES packet, as far as [`Packing`] allows; the first says when it is played,
//! and the others follow without a pause, or they begin another packet. A frame that is held is no output yet.
//!
//! The tables stand before key frames, where the streams change, after [`Packing::tables_interval`], and where the owner
//! asks ([`Muxer::begin`]).
//!
//! **The clock.** PCR stands at least [`PCR_LEAD`] before the DTS of the unit it is sent with, and never behind the DTS of
//! a unit that is still to come, as far as streams lag by [`LATE_MAX`] at most. The lead is the time a receiver has to get the unit
//! and to decode it, and what it has to even out audio and video that come unevenly; a player that follows the PCR (VLC,
//! set-top boxes) is late by as much. ffmpeg takes 700 ms, GStreamer 125 ms; 200 ms is taken here, and more only when
//! a stream lags by more. The clock is on the first video stream, or the first audio stream when there is no video, and at most
//! 100 ms old. When frames are rarer than that, packets that carry nothing else are written.

mod clock;
#[cfg(test)]
mod tests;

use bytes::{BufMut, Bytes, BytesMut};

use self::clock::{Beat, Clock, signed};
pub use self::clock::{LATE_MAX, PCR_LEAD};
use crate::packet::{Head, PACKET_BYTES};
use crate::pes::PesHeader;
use crate::{CLOCK_MASK, Pat, Pcr, Pid, Pmt, Stream, StreamKind};

/// The PID of the PMT. All PIDs are those of ffmpeg's muxer, which receivers with fixed settings expect.
pub const PMT_PID: Pid = Pid::new(0x1000);
/// The PID of the first video stream.
pub const VIDEO_PID: Pid = Pid::new(0x100);
/// The PID of the first audio stream.
pub const AUDIO_PID: Pid = Pid::new(0x101);
/// Further video streams, by their number.
const MORE_VIDEO_PID: u16 = 0x110;
/// Further audio streams, by their number.
const MORE_AUDIO_PID: u16 = 0x130;
/// Streams of a program: their descriptions fit into one packet whatever they are. Further ones are left out.
pub const PROGRAM_STREAMS_MAX: usize = 8;
/// Numbers of streams are below this.
const NUMBERS: u8 = 32;
/// The media time after which tables are repeated where there is no other rule: 100 ms.
const TABLES_INTERVAL: u64 = 9_000;
/// The most that the times of audio frames may be off before they are no longer one after the other: a millisecond, because RTMP
/// counts in those, and rounding.
const CONTIGUOUS: u64 = 96;
/// transport_stream_id and program_number: there is only one of each.
const PROGRAM: u16 = 1;

/// The codec of a stream. The clock is on the first stream in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Video.
    Video,
    /// Audio.
    Audio,
}

/// Names a stream of the program: the first of a kind is number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamNumber {
    /// The codec.
    pub kind: Kind,
    /// The index among the streams of its kind, below 32.
    pub number: u8,
}

impl StreamNumber {
    /// The first stream of a kind.
    #[must_use]
    pub const fn first(kind: Kind) -> Self {
        Self { kind, number: 0 }
    }

    const fn pid(self) -> Pid {
        match (self.kind, self.number) {
            (Kind::Video, 0) => VIDEO_PID,
            (Kind::Audio, 0) => AUDIO_PID,
            (Kind::Video, number) => Pid::new(MORE_VIDEO_PID + number as u16),
            (Kind::Audio, number) => Pid::new(MORE_AUDIO_PID + number as u16),
        }
    }
}

/// An access unit to be written as a PES packet.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// The codec of its stream.
    pub kind: Kind,
    /// The index among the streams of that kind, from 0.
    pub number: u8,
    /// Presentation time, of which 33 bits are written.
    pub pts: u64,
    /// Decoding time, of which 33 bits are written.
    pub dts: u64,
    /// A decoder can start here.
    pub random_access: bool,
    /// The payload, in pieces that are written behind each other.
    pub payload: &'a [&'a [u8]],
}

/// The time that audio frames wait for others of their PES packet, and the interval at which the tables are
/// repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Payload of an audio PES packet with several frames, at most.
    pub audio_bytes: usize,
    /// The longest that a frame waits, in ticks of media time.
    pub audio_wait: u64,
    /// Media time after which the tables are repeated; `None`: only at key frames, and when the owner asks.
    pub tables_interval: Option<u64>,
}

impl Packing {
    /// Every unit at once, on its own.
    pub const NONE: Self = Self { audio_bytes: 0, audio_wait: 0, tables_interval: Some(TABLES_INTERVAL) };
    /// For viewers of a live stream. A frame waits 70 ms, four frames of AAC at 48 or 44.1 kHz; that is a fifth of what ffmpeg
    /// takes, and less than the latency of SRT (120 ms unless told otherwise). Seven packets with a clock are one payload of SRT.
    pub const LIVE: Self = Self { audio_bytes: 7 * 184 - 22, audio_wait: 6_300, tables_interval: None };
    /// For segments, which are sent whole: nothing is later for it. Sixteen packets with four clocks at most, and 350 ms, are what
    /// ffmpeg takes, and players of HLS know.
    pub const SEGMENT: Self =
        Self { audio_bytes: 16 * 184 - 14 - 4 * 8, audio_wait: 31_500, tables_interval: None };
}

/// Audio frames that wait for more of their PES packet.
#[derive(Debug)]
struct Held {
    pts: u64,
    /// DTS of the first frame and of the last one.
    dts: u64,
    last: u64,
    /// PTS of a frame that follows without a pause.
    next: u64,
    random_access: bool,
    payload: BytesMut,
}

impl Held {
    /// Whether a frame follows without a pause.
    fn is_followed_by(&self, unit: &Unit<'_>) -> bool {
        unit.pts == unit.dts
            && !unit.random_access
            && signed(self.next, unit.pts & CLOCK_MASK).unsigned_abs() <= CONTIGUOUS
    }
}

/// The state of a stream.
#[derive(Debug)]
struct Lane {
    stream: StreamNumber,
    kind: StreamKind,
    pid: Pid,
    continuity: u8,
    /// DTS of the last unit that was written; before the first one, the least that is expected of it.
    edge: Option<u64>,
    /// There was a unit.
    begun: bool,
    held: Option<Held>,
}

impl Lane {
    /// The counter of the next packet with payload.
    const fn count(&mut self) -> u8 {
        let continuity = self.continuity;
        self.continuity = (continuity + 1) & 0x0f;
        continuity
    }

    /// The DTS below which none of its PES packets will be, seen from another stream's unit at `dts`. `None` when it is
    /// not waited for.
    fn floor(&mut self, dts: u64) -> Option<u64> {
        let patience = if self.begun { LATE_MAX } else { 2 * LATE_MAX };
        let edge = *self.edge.get_or_insert_with(|| dts.wrapping_sub(LATE_MAX) & CLOCK_MASK);
        u64::try_from(signed(edge, dts)).is_ok_and(|behind| behind <= patience).then_some(edge)
    }
}

/// A PES packet: one unit, or several audio frames.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    pts: u64,
    dts: u64,
    /// DTS of the last unit in it.
    last: u64,
    /// Media time up to the next packet, where it is known.
    span: u64,
    random_access: bool,
    payload: &'a [&'a [u8]],
}

/// Makes transport packets.
#[derive(Debug)]
pub struct Muxer {
    packing: Packing,
    /// The streams by rising number: the first carries the clock.
    lanes: Vec<Lane>,
    pat_continuity: u8,
    pmt_continuity: u8,
    version: u8,
    /// The packets of the tables, with counters of zero.
    tables: BytesMut,
    /// DTS of the unit before which they were written last; `None` when they are due.
    tables_at: Option<u64>,
    clock: Clock,
    /// Packets of streams that the program has no longer: they stand before the next tables. Each stream held no more than
    /// [`Packing::audio_bytes`], and holds nothing while there are any.
    past: BytesMut,
}

impl Default for Muxer {
    fn default() -> Self {
        Self::new()
    }
}

impl Muxer {
    /// Creates a multiplexer without streams, which holds nothing back.
    #[must_use]
    pub fn new() -> Self {
        Self::with_packing(Packing::NONE)
    }

    /// Creates a multiplexer without streams.
    #[must_use]
    pub fn with_packing(packing: Packing) -> Self {
        Self {
            packing,
            lanes: Vec::new(),
            pat_continuity: 0,
            pmt_continuity: 0,
            version: 0,
            tables: BytesMut::new(),
            tables_at: None,
            clock: Clock::new(),
            past: BytesMut::new(),
        }
    }

    /// Sets a program of at most one stream of each kind; see [`Muxer::set_program`].
    pub fn set_streams(&mut self, video: Option<StreamKind>, audio: Option<StreamKind>) {
        let first = |of, kind: Option<StreamKind>| kind.map(|kind| (StreamNumber::first(of), kind));
        self.set_program(first(Kind::Video, video).into_iter().chain(first(Kind::Audio, audio)));
    }

    /// Sets the program's streams, each number once; those beyond [`PROGRAM_STREAMS_MAX`] are left out. The tables are written
    /// before the next unit in any case; when the streams are others than before, with the next version. Counters go on.
    pub fn set_program(&mut self, streams: impl IntoIterator<Item = (StreamNumber, StreamKind)>) {
        let mut streams: Vec<_> = streams
            .into_iter()
            .filter(|(stream, _)| stream.number < NUMBERS)
            .take(PROGRAM_STREAMS_MAX)
            .collect();
        streams.sort_unstable_by_key(|(stream, _)| *stream);
        streams.dedup_by_key(|(stream, _)| *stream);
        let had_any = !self.tables.is_empty();
        let is_same = self.lanes.iter().map(|lane| (lane.stream, lane.kind)).eq(streams.iter().copied());
        if !(had_any && is_same) {
            let mut past = std::mem::take(&mut self.past);
            self.let_all_go(&mut past);
            self.past = past;
            if had_any {
                self.version = (self.version + 1) & 0x1f;
            }
            let mut before = std::mem::take(&mut self.lanes);
            let lane = |(stream, kind): (StreamNumber, _)| {
                let known = before.iter_mut().find(|lane| lane.stream == stream);
                let (continuity, edge, begun) =
                    known.map_or((0, None, false), |lane| (lane.continuity, lane.edge, lane.begun));
                Lane { stream, kind, pid: stream.pid(), continuity, edge, begun, held: None }
            };
            self.lanes = streams.into_iter().map(lane).collect();
            self.make_tables();
        }
        self.tables_at = None;
    }

    /// The tables stand before what is written next: a segment begins, or they are to be repeated.
    pub const fn begin(&mut self) {
        self.tables_at = None;
    }

    /// The tables for a receiver that begins behind those that were written last, or, when they are due, in front of the next
    /// ones: their counters are the same, and it takes the second of two for a copy (§2.4.3.3).
    #[must_use]
    pub fn tables(&self) -> Bytes {
        let mut out = self.tables.clone();
        let back = u8::from(self.tables_at.is_some());
        let counters = [self.pat_continuity, self.pmt_continuity];
        for (packet, counter) in out.chunks_exact_mut(PACKET_BYTES).zip(counters) {
            number(packet, counter.wrapping_sub(back));
        }
        out.freeze()
    }

    /// Makes the packets of a unit, whole ones, in one piece, behind what was held of its stream. Empty when the program
    /// has no such stream.
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
        if unit.number == 0 {
            self.let_overdue_go(dts, &mut out);
        }
        self.put(at, &Piece { pts, dts, last: dts, span: 0, random_access, payload }, is_start, &mut out);
        out.freeze()
    }

    /// Makes the packets of an audio frame that lasts `duration` ticks, with those that were held before it; empty when it is
    /// held. A frame without a duration is not.
    #[must_use]
    pub fn pack(&mut self, unit: &Unit<'_>, duration: u64) -> Bytes {
        let Packing { audio_bytes, audio_wait, .. } = self.packing;
        let payload: usize = unit.payload.iter().map(|piece| piece.len()).sum();
        let is_alone =
            duration == 0 || payload >= audio_bytes || unit.kind == Kind::Video || unit.pts != unit.dts;
        // What is left of streams that changed is not to grow.
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
        // The next frame is expected to be as large, and to come when this one ends.
        let is_full = held.payload.len().saturating_add(payload) > audio_bytes;
        let next = u64::try_from(signed(held.pts, held.next)).unwrap_or(u64::MAX);
        if is_full || next > audio_wait {
            self.let_go(at, &mut out);
        }
        out.freeze()
    }

    /// Makes the packets of all that is held.
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

    /// The first packet may have 176 bytes of room; two for tables and one for the clock may come before.
    fn capacity(&self, unit: &Unit<'_>) -> usize {
        let payload: usize = unit.payload.iter().map(|piece| piece.len()).sum();
        let packets = payload.saturating_add(PesHeader::bytes(true)) / 184 + 5;
        packets.saturating_mul(PACKET_BYTES).saturating_add(self.past.len())
    }

    /// Writes what a stream holds.
    fn let_go(&mut self, at: usize, out: &mut BytesMut) {
        let Some(held) = self.lanes.get_mut(at).and_then(|lane| lane.held.take()) else { return };
        let Held { pts, dts, last, next, random_access, payload } = held;
        let span = u64::try_from(signed(pts, next)).unwrap_or(0);
        self.put(at, &Piece { pts, dts, last, span, random_access, payload: &[&payload] }, false, out);
    }

    /// Writes what all streams hold, the oldest first.
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

    /// Writes what has waited for a frame that does not come.
    fn let_overdue_go(&mut self, dts: u64, out: &mut BytesMut) {
        let wait = i64::try_from(self.packing.audio_wait.saturating_mul(2)).unwrap_or(i64::MAX);
        for at in 0..self.lanes.len() {
            let held = self.lanes.get(at).and_then(|lane| lane.held.as_ref());
            if held.is_some_and(|held| signed(held.dts, dts) > wait) {
                self.let_go(at, out);
            }
        }
    }

    /// Writes a PES packet, with the tables before it where they are due. `is_start`: they were, and the clock is.
    fn put(&mut self, at: usize, piece: &Piece<'_>, is_start: bool, out: &mut BytesMut) {
        let dts = piece.dts;
        let is_old = |at: u64| {
            self.packing
                .tables_interval
                .is_some_and(|interval| u64::try_from(signed(at, dts)).is_ok_and(|since| since >= interval))
        };
        // A receiver that waits for a key frame of a further video is sent nothing else of it, and must not miss tables.
        let is_for_all = piece.random_access
            || self
                .lanes
                .get(at)
                .is_some_and(|lane| lane.stream.kind == Kind::Audio || lane.stream.number == 0);
        let due = is_for_all && self.tables_at.is_none_or(is_old);
        if due {
            self.write_tables(dts, out);
        }
        let others = self.lanes.iter_mut().enumerate().filter(|(other, _)| *other != at);
        let floor = others.filter_map(|(_, lane)| lane.floor(dts)).min_by_key(|floor| signed(dts, *floor));
        let beat = Beat { dts, span: piece.span, floor, is_clock: at == 0, is_start: is_start || due };
        let mut tick = self.clock.tick(&beat);
        let is_other_time = tick.discontinuity;
        for pcr in std::mem::take(&mut tick.fill) {
            self.write_clock(pcr, false, out);
        }
        if at != 0
            && let Some(pcr) = tick.pcr.take()
        {
            self.write_clock(pcr, std::mem::take(&mut tick.discontinuity), out);
        }
        let payload: usize = piece.payload.iter().map(|piece| piece.len()).sum();
        let marks = self.clock.within(&beat, payload.div_ceil(184));
        if is_other_time {
            // The other streams have sent nothing of this time.
            self.lanes.iter_mut().for_each(|lane| (lane.edge, lane.begun) = (None, false));
        }
        let Some(lane) = self.lanes.get_mut(at) else { return };
        (lane.edge, lane.begun) = (Some(piece.last), true);
        let is_video = lane.stream.kind == Kind::Video;
        let mut head = BytesMut::with_capacity(PesHeader::bytes(true));
        PesHeader::write(lane.kind.stream_id(), is_video, piece.pts, dts, payload, &mut head);
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

    /// A packet without payload: its counter is that of the packet before it (§2.4.3.3).
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

    /// Writes both tables; each always fits one packet.
    fn make_tables(&mut self) {
        let pat = Pat { transport_stream: PROGRAM, program: PROGRAM, pmt_pid: PMT_PID };
        let streams: Vec<Stream> =
            self.lanes.iter().map(|lane| Stream { pid: lane.pid, kind: lane.kind }).collect();
        let pcr_pid = streams.first().map_or(Pid::NULL, |stream| stream.pid);
        let pmt = Pmt { program: PROGRAM, version: self.version, pcr_pid, streams, streams_left_out: 0 };
        self.tables.clear();
        for pid in [Pid::PAT, PMT_PID] {
            let head = Head {
                pid,
                unit_start: true,
                continuity: 0,
                discontinuity: false,
                random_access: false,
                pcr: None,
            };
            let start = self.tables.len();
            head.write(head.room(), &mut self.tables);
            self.tables.put_u8(0);
            if pid == Pid::PAT {
                pat.write(0, &mut self.tables)
            } else {
                pmt.write(&mut self.tables)
            }
            self.tables.resize(start + PACKET_BYTES, 0xff);
        }
    }

    fn write_tables(&mut self, dts: u64, out: &mut BytesMut) {
        self.tables_at = Some(dts);
        out.put_slice(&self.past.split());
        let counters = [&mut self.pat_continuity, &mut self.pmt_continuity];
        for (packet, counter) in self.tables.chunks_exact(PACKET_BYTES).zip(counters) {
            let start = out.len();
            out.put_slice(packet);
            number(out.get_mut(start..).unwrap_or_default(), *counter);
            *counter = (*counter + 1) & 0x0f;
        }
    }
}

/// Puts the counter into a packet that has none.
fn number(packet: &mut [u8], counter: u8) {
    if let Some(control) = packet.get_mut(3) {
        *control |= counter & 0x0f;
    }
}

/// Cuts a PES packet into transport packets. What is missing to fill the last one is stuffed. `marks` are clocks within it, with
/// the numbers of their packets.
fn write_pes(
    lane: &mut Lane,
    first: Head,
    marks: &[(usize, Pcr)],
    head: &[u8],
    payload: &[&[u8]],
    out: &mut BytesMut,
) {
    let mut left: usize = head.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let mut pieces = std::iter::once(head).chain(payload.iter().copied());
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
