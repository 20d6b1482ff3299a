//! Access units to transport packets: one program, usually of one video and one audio stream.
//!
//! Every unit becomes a PES packet of its own, in packets that nobody else shares: it is sent when it is there. Before
//! it may stand the tables (at each key frame, when the streams change, and every [`TABLES_INTERVAL`]) and packets
//! that carry nothing but the clock.
//!
//! **The clock.** PCR stands [`PCR_LEAD`] before the DTS of the unit it is sent with. That is the time a receiver has
//! to get the unit and to decode it, and what it has to even out audio and video that come unevenly; a player that
//! follows the PCR (VLC, set-top boxes) is late by as much. ffmpeg takes 700 ms, GStreamer 125 ms; 200 ms is taken
//! here, because units are sent as the publisher interleaved them and are not sorted. Each video unit has a PCR, or
//! each audio unit when there is no video. When frames are rarer than that, the audio packets are preceded by
//! clock packets on the video's PID. The clock never falls: a unit before its time is sent without one.

use bytes::{BufMut, Bytes, BytesMut};

use crate::packet::{Head, PACKET_BYTES};
use crate::pes::PesHeader;
use crate::{CLOCK_BITS, CLOCK_MASK, Pat, Pcr, Pid, Pmt, Stream, StreamKind};

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
/// The lead of a unit's DTS over the clock at which it is sent: 200 ms.
pub const PCR_LEAD: u64 = 18_000;

/// The media time after which tables are repeated: 100 ms.
const TABLES_INTERVAL: u64 = 9_000;
/// The longest interval of the clock without a video frame: with an audio frame on top it stays below the 100 ms
/// that §2.7.2 allows.
const PCR_INTERVAL: u64 = 5_400;
/// The clock never pauses for longer: 100 ms.
const PCR_INTERVAL_MAX: u64 = 9_000;
/// A pause is filled up with so many clock packets; a longer one is none of the clock's business.
const PCR_FILL_MAX: u64 = 20;
/// A clock that would have to step back by more than this has another time base: 1 s.
const CLOCK_BACK_MAX: u64 = 90_000;
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

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lane {
    stream: StreamNumber,
    kind: StreamKind,
    pid: Pid,
    continuity: u8,
}

impl Lane {
    /// The counter of the next packet with payload.
    const fn count(&mut self) -> u8 {
        let continuity = self.continuity;
        self.continuity = (continuity + 1) & 0x0f;
        continuity
    }
}

/// Makes transport packets.
#[derive(Debug)]
pub struct Muxer {
    /// The streams by rising number: the first carries the clock.
    lanes: Vec<Lane>,
    pat_continuity: u8,
    pmt_continuity: u8,
    version: u8,
    /// The packets of the tables, with counters of zero.
    tables: BytesMut,
    /// DTS of the unit before which they were written last.
    tables_at: Option<u64>,
    pcr: Option<u64>,
}

impl Default for Muxer {
    fn default() -> Self {
        Self::new()
    }
}

impl Muxer {
    /// Creates a multiplexer without streams.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lanes: Vec::new(),
            pat_continuity: 0,
            pmt_continuity: 0,
            version: 0,
            tables: BytesMut::new(),
            tables_at: None,
            pcr: None,
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
        self.tables_at = None;
        if had_any && self.lanes.iter().map(|lane| (lane.stream, lane.kind)).eq(streams.iter().copied()) {
            return;
        }
        if had_any {
            self.version = (self.version + 1) & 0x1f;
        }
        let continuity = |stream| self.lane(stream).map_or(0, |lane| lane.continuity);
        let lane = |(stream, kind): (StreamNumber, _)| Lane {
            stream,
            kind,
            pid: stream.pid(),
            continuity: continuity(stream),
        };
        self.lanes = streams.into_iter().map(lane).collect();
        self.make_tables();
    }

    fn lane(&self, stream: StreamNumber) -> Option<Lane> {
        self.lanes.iter().find(|lane| lane.stream == stream).copied()
    }

    /// Makes the packets of a unit, whole ones, in one piece. Empty when the program has no such stream.
    #[must_use]
    pub fn write(&mut self, unit: &Unit<'_>) -> Bytes {
        let stream = StreamNumber { kind: unit.kind, number: unit.number };
        let Some(mut lane) = self.lane(stream) else { return Bytes::new() };
        let is_clock = self.lanes.first().is_some_and(|first| first.stream == stream);
        let is_video = unit.kind == Kind::Video;
        let dts = unit.dts & CLOCK_MASK;
        let payload: usize = unit.payload.iter().map(|piece| piece.len()).sum();
        let header = PesHeader::bytes(unit.pts & CLOCK_MASK != dts);
        // The first packet may have 176 bytes of room; two for tables and one for the clock may come before.
        let packets = (payload + header) / 184 + 5;
        let mut out = BytesMut::with_capacity(packets * PACKET_BYTES);
        let tables_due = self.tables_at.is_none_or(|at| since(at, dts) >= TABLES_INTERVAL);
        if tables_due || (unit.random_access && is_video) {
            self.tables_at = Some(dts);
            self.write_tables(&mut out);
        }
        let pcr = self.next_pcr(dts, is_clock, &mut out);
        let mut head = BytesMut::with_capacity(header);
        PesHeader::write(lane.kind.stream_id(), is_video, unit.pts, dts, payload, &mut head);
        let first = Head {
            pid: lane.pid,
            unit_start: true,
            continuity: 0,
            discontinuity: pcr.is_some_and(|(_, discontinuity)| discontinuity),
            random_access: unit.random_access,
            pcr: pcr.map(|(pcr, _)| pcr),
        };
        write_pes(&mut lane, first, &head, unit.payload, &mut out);
        if let Some(slot) = self.lanes.iter_mut().find(|slot| slot.stream == stream) {
            *slot = lane;
        }
        out.freeze()
    }

    /// The PCR of a unit, and whether it is another time base's. Where the clock would pause for too long, packets of
    /// its own fill it up.
    fn next_pcr(&mut self, dts: u64, is_clock: bool, out: &mut BytesMut) -> Option<(Pcr, bool)> {
        let now = dts.wrapping_sub(PCR_LEAD) & CLOCK_MASK;
        let pcr = |base| Pcr { base, extension: 0 };
        let Some(last) = self.pcr else {
            self.pcr = Some(now);
            if is_clock {
                return Some((pcr(now), false));
            }
            self.write_clock(pcr(now), false, out);
            return None;
        };
        let step = since(last, now);
        if step >= 1 << (CLOCK_BITS - 1) {
            // The clock does not fall for a unit that is before its time.
            if since(now, last) <= CLOCK_BACK_MAX {
                return None;
            }
            self.pcr = Some(now);
            if is_clock {
                return Some((pcr(now), true));
            }
            self.write_clock(pcr(now), true, out);
            return None;
        }
        if step == 0 || (!is_clock && step < PCR_INTERVAL) {
            return None;
        }
        if step > PCR_INTERVAL_MAX && step <= PCR_INTERVAL_MAX * PCR_FILL_MAX {
            let gaps = step.div_ceil(PCR_INTERVAL_MAX);
            for n in 1..gaps {
                self.write_clock(pcr((last + step * n / gaps) & CLOCK_MASK), false, out);
            }
        }
        self.pcr = Some(now);
        if is_clock {
            return Some((pcr(now), false));
        }
        self.write_clock(pcr(now), false, out);
        None
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

    fn write_tables(&mut self, out: &mut BytesMut) {
        let counters = [&mut self.pat_continuity, &mut self.pmt_continuity];
        for (packet, counter) in self.tables.chunks_exact(PACKET_BYTES).zip(counters) {
            let start = out.len();
            out.put_slice(packet);
            if let Some(control) = out.get_mut(start + 3) {
                *control |= *counter;
            }
            *counter = (*counter + 1) & 0x0f;
        }
    }
}

/// Ticks from `from` to `to`, round the end of the clock.
const fn since(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & CLOCK_MASK
}

/// Cuts a PES packet into transport packets. What is missing to fill the last one is stuffed.
fn write_pes(lane: &mut Lane, first: Head, head: &[u8], payload: &[&[u8]], out: &mut BytesMut) {
    let mut left: usize = head.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
    let mut pieces = std::iter::once(head).chain(payload.iter().copied());
    let mut piece: &[u8] = &[];
    let mut packet = first;
    while left > 0 {
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
        packet = Head { unit_start: false, discontinuity: false, random_access: false, pcr: None, ..first };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Demuxer, Event, Packet};

    fn unit<'a>(kind: Kind, dts: u64, payload: &'a [&'a [u8]]) -> Unit<'a> {
        Unit { kind, number: 0, pts: dts, dts, random_access: false, payload }
    }

    fn packets(bytes: &[u8]) -> Vec<Packet<'_>> {
        bytes.chunks(PACKET_BYTES).map(|packet| Packet::read(packet.try_into().unwrap()).unwrap()).collect()
    }

    fn both() -> Muxer {
        let mut muxer = Muxer::new();
        muxer.set_streams(Some(StreamKind::H264), Some(StreamKind::AacAdts));
        muxer
    }

    /// Every PCR with the PID it stood on.
    fn clocks(bytes: &[u8]) -> Vec<(Pid, u64)> {
        let pcr = |packet: &Packet<'_>| Some((packet.pid, packet.adaptation?.pcr?.base));
        packets(bytes).iter().filter_map(pcr).collect()
    }

    #[test]
    fn every_size_is_cut_into_whole_packets_that_read_the_same() {
        let mut muxer = both();
        let mut demuxer = Demuxer::new();
        for size in (1..1500).chain([65_512, 65_513, 65_514, 65_530, 100_000]) {
            let body: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let (start, end) = body.split_at(size / 3);
            let payload = [start, end];
            let dts = 3600 * size as u64;
            let unit =
                Unit { pts: dts + 9, random_access: size % 9 == 0, ..unit(Kind::Video, dts, &payload) };
            let bytes = muxer.write(&unit);
            assert_eq!(bytes.len() % PACKET_BYTES, 0);
            let mut input = &bytes[..];
            let mut pes = Vec::new();
            while let Some(event) = demuxer.read(&mut input) {
                pes.extend(if let Event::Pes(one) = event { Some(one) } else { None });
            }
            demuxer.finish();
            while let Some(Event::Pes(one)) = demuxer.read(&mut &[][..]) {
                pes.push(one);
            }
            let [pes] = &pes[..] else { panic!("{size}: {}", pes.len()) };
            assert_eq!((pes.pts, pes.dts), (Some(dts + 9), Some(dts)));
            assert_eq!((pes.random_access, pes.bounded), (size % 9 == 0, size < 65_523), "{size}");
            assert_eq!(pes.payload, body);
        }
        assert_eq!((demuxer.stats().gaps, demuxer.stats().packets_invalid), (0, 0));
    }

    #[test]
    fn counters_go_on_over_everything() {
        let mut muxer = both();
        let mut bytes = Vec::new();
        for n in 0..200u64 {
            if n == 100 {
                muxer.set_streams(Some(StreamKind::H265), Some(StreamKind::AacAdts));
            }
            if n % 5 == 0 {
                bytes.extend_from_slice(&muxer.write(&unit(Kind::Video, n * 2000, &[&[1; 700]])));
            }
            bytes.extend_from_slice(&muxer.write(&unit(Kind::Audio, n * 2000, &[&[2; 100]])));
        }
        let mut last = std::collections::BTreeMap::new();
        for packet in packets(&bytes) {
            let step = u8::from(packet.payload.is_some_and(|payload| !payload.is_empty()));
            if let Some(before) = last.insert(packet.pid, packet.continuity) {
                assert_eq!((before + step) & 0x0f, packet.continuity, "{packet:?}");
            }
        }
        assert_eq!(last.len(), 4);
    }

    #[test]
    fn the_clock_is_its_lead_before_each_frame_and_never_falls() {
        let mut muxer = both();
        let first = muxer.write(&unit(Kind::Video, 126_000, &[&[1]]));
        assert_eq!(clocks(&first), [(VIDEO_PID, 126_000 - PCR_LEAD)]);
        // Audio ahead of the next video frame, then that frame: at 25 a second the audio carries no clock.
        assert_eq!(clocks(&muxer.write(&unit(Kind::Audio, 129_000, &[&[1]]))), []);
        let second = muxer.write(&unit(Kind::Video, 129_600, &[&[1]]));
        assert_eq!(clocks(&second), [(VIDEO_PID, 129_600 - PCR_LEAD)]);
        // One before its time.
        assert_eq!(clocks(&muxer.write(&unit(Kind::Video, 129_000, &[&[1]]))), []);
        // At the end of the clock.
        let mut muxer = both();
        assert_eq!(
            clocks(&muxer.write(&unit(Kind::Video, 0, &[&[1]]))),
            [(VIDEO_PID, CLOCK_MASK + 1 - PCR_LEAD)]
        );
        let next = muxer.write(&unit(Kind::Video, PCR_LEAD, &[&[1]]));
        assert_eq!(clocks(&next).last(), Some(&(VIDEO_PID, 0)));
    }

    #[test]
    fn the_clock_never_pauses_for_more_than_a_tenth_of_a_second() {
        // Five video frames a second; audio frames of 1024 samples at 44.1 kHz; audio frames of 60 ms alone.
        let cases: [&[(Kind, u64)]; 3] = [
            &[(Kind::Video, 18_000)],
            &[(Kind::Video, 450_000), (Kind::Audio, 2089)],
            &[(Kind::Audio, 5400)],
        ];
        for case in cases {
            let mut muxer = both();
            if case.iter().all(|(kind, _)| *kind == Kind::Audio) {
                muxer.set_streams(None, Some(StreamKind::Opus { channels: 2 }));
            }
            let mut bytes = Vec::new();
            for now in 0..900_000 {
                for &(kind, step) in case {
                    if now % step == 0 {
                        bytes.extend_from_slice(&muxer.write(&unit(kind, 126_000 + now, &[&[1; 200]])));
                    }
                }
            }
            let clocks = clocks(&bytes);
            assert!(clocks.iter().all(|clock| clock.0 == clocks[0].0), "one PID has the clock");
            let steps: Vec<u64> = clocks.windows(2).map(|two| two[1].1 - two[0].1).collect();
            assert!(steps.iter().all(|&step| step > 0 && step <= PCR_INTERVAL_MAX), "{case:?} {steps:?}");
        }
    }

    #[test]
    fn tables_come_with_key_frames_and_ten_times_a_second() {
        let mut muxer = both();
        let mut with_tables = Vec::new();
        for n in 0..30u64 {
            let unit = Unit { random_access: n == 10, ..unit(Kind::Video, n * 3000, &[&[1]]) };
            let bytes = muxer.write(&unit);
            if packets(&bytes)[0].pid == Pid::PAT {
                assert_eq!(packets(&bytes)[1].pid, PMT_PID);
                with_tables.push(n);
            }
        }
        assert_eq!(with_tables, [0, 3, 6, 9, 10, 13, 16, 19, 22, 25, 28]);
        assert!(Muxer::new().write(&unit(Kind::Video, 0, &[&[1]])).is_empty());
    }

    #[test]
    fn a_program_of_many_streams_has_them_all_on_pids_of_their_own() {
        let mut muxer = Muxer::new();
        let number = |kind, number| StreamNumber { kind, number };
        let streams: Vec<_> = (0..5)
            .flat_map(|n| {
                let opus = StreamKind::Opus { channels: 2 };
                [(number(Kind::Audio, n), opus), (number(Kind::Video, n), StreamKind::H265)]
            })
            .collect();
        muxer.set_program(streams);
        let second = Unit { number: 1, ..unit(Kind::Video, 3000, &[&[7; 300]]) };
        let bytes = [muxer.write(&unit(Kind::Video, 0, &[&[1]])), muxer.write(&second)].concat();
        let mut demuxer = Demuxer::new();
        let mut input = &bytes[..];
        let mut seen = Vec::new();
        while let Some(event) = demuxer.read(&mut input) {
            match event {
                Event::Program(map) => assert_eq!(map.streams.len(), PROGRAM_STREAMS_MAX),
                Event::Pes(pes) => seen.push((pes.stream.pid, pes.payload.len())),
            }
        }
        demuxer.finish();
        while let Some(event) = demuxer.read(&mut input) {
            if let Event::Pes(pes) = event {
                seen.push((pes.stream.pid, pes.payload.len()));
            }
        }
        seen.sort_unstable_by_key(|(_, length)| *length);
        assert_eq!(seen, [(VIDEO_PID, 1), (Pid::new(MORE_VIDEO_PID + 1), 300)]);
        // What the program has not is not written.
        assert!(muxer.write(&Unit { number: 9, ..second }).is_empty());
    }
}
