//! Demultiplexing: from transport packets to the PES packets of one program.
//!
//! ```text
//! 1. PAT            -> the first program's PMT
//! 2. PMT            -> Event::Program, again whenever it changes
//! 3. PES packets    -> Event::Pes, each when it is complete
//! ```
//!
//! **When a PES packet is complete.** A packet with a length is complete at its last byte. Most video packets have no
//! length (§2.4.3.7 allows that). By the standard such a packet ends where the next begins, which is one frame too late
//! for a live stream. But muxers stuff the last transport packet of a PES packet, because the next PES packet must
//! begin in a new transport packet, and they have no reason to stuff any other. So once the stuffed packets of a stream
//! have several times, without exception, been followed by a new PES packet, a stuffed packet ends its PES packet at
//! once. If the PES packet continues after all, the stream's stuffing is never trusted again; the rest of that PES
//! packet cannot be joined to the part already output, so it is dropped and counted once (`pes_cut`). If a PES packet
//! happens to fill its last transport packet without stuffing (1 of 184), it is completed when the next one begins.
//!
//! **Losses.** A gap of the continuity counter drops only the PES packet that it interrupts. A repeated packet is used
//! once.
//!
//! **Splice information** is in sections on a PID of its own. Each section becomes an [`Event::Splice`].

mod stream;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::time::Instant;

use bytes::Bytes;
use media::scte35;

use self::stream::Assembly;
use crate::psi::{TABLE_PAT, TABLE_PMT};
use crate::section::{Assembler, Section};
use crate::sync::{Next, Sync};
use crate::{Error, PACKET_BYTES, Packet, Pat, Pcr, Pid, Pmt, Stream, StreamKind};

/// Maximum number of streams of a program that are demultiplexed.
pub const STREAMS_MAX: usize = 16;
/// Maximum number of bytes held for incomplete PES packets of all streams together: one access unit of the largest
/// size.
pub const PES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum number of different stream_types with a counter.
const OTHER_TYPES_MAX: usize = 16;

/// A result of demultiplexing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The program's streams are known, or the PMT's version or content has changed.
    Program(Pmt),
    /// A complete PES packet.
    Pes(Pes),
    /// A section of splice information with a valid checksum ([`media::scte35`]).
    Splice(Bytes),
}

/// A PES packet without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pes {
    /// Stream that the packet belongs to.
    pub stream: Stream,
    /// Presentation time, 33 bits, in ticks of 90 kHz.
    pub pts: Option<u64>,
    /// Decoding time, 33 bits; `None` if it equals the presentation time.
    pub dts: Option<u64>,
    /// random_access_indicator of the first transport packet.
    pub random_access: bool,
    /// data_alignment_indicator: the payload begins with the start of an access unit.
    pub aligned: bool,
    /// True if the packet had a length; its access unit may then continue in the next packet.
    pub bounded: bool,
    /// True if part of the stream before the packet was lost or dropped, or if a discontinuity was signalled.
    pub discontinuity: bool,
    /// Arrival time of the packet's last bytes, as set by [`Demuxer::arrive`]. This time is in the past if only the
    /// start of the next packet has shown that this one had ended.
    pub arrived: Option<Instant>,
    /// Payload of the packet.
    pub payload: Bytes,
}

/// Counters of a demultiplexer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transport packets.
    pub packets: u64,
    /// Number of times that the sync byte was missing at its expected position.
    pub sync_losses: u64,
    /// Bytes skipped to find the sync byte again.
    pub bytes_skipped: u64,
    /// Packets marked as erroneous by the transport.
    pub transport_errors: u64,
    /// Packets with an invalid header or adaptation field.
    pub packets_invalid: u64,
    /// Packets with encrypted payload.
    pub scrambled: u64,
    /// Repeated packets.
    pub duplicates: u64,
    /// Gaps in a continuity counter.
    pub gaps: u64,
    /// Invalid sections.
    pub sections_invalid: u64,
    /// Streams left out, because there were too many or their PID was already in use.
    pub streams_left_out: u64,
    /// PES packets output.
    pub pes: u64,
    /// PES packets dropped because part of them was lost.
    pub pes_damaged: u64,
    /// PES packets with an invalid header.
    pub pes_invalid: u64,
    /// PES packets dropped because they were too large.
    pub pes_oversized: u64,
    /// PES packets that were output before all of their data had arrived, as the module describes.
    pub pes_cut: u64,
    /// Packets of unsupported streams, by stream_type.
    pub others: Vec<(u8, u64)>,
}

impl Stats {
    fn count_other(&mut self, stream_type: u8) {
        let has_room = self.others.len() < OTHER_TYPES_MAX;
        match self.others.iter_mut().find(|(other, _)| *other == stream_type) {
            Some((_, packets)) => *packets = packets.saturating_add(1),
            None if has_room => self.others.push((stream_type, 1)),
            None => {}
        }
    }
}

/// Stands for arrival times, which do not exist without `std`, because there is no clock. No value of this
/// type can be made.
#[cfg(not(feature = "std"))]
type Instant = core::convert::Infallible;

/// Collects the output of the demultiplexer.
#[derive(Debug, Default)]
struct Sink {
    stats: Stats,
    /// Events of the current packet. There are at most a few.
    ready: VecDeque<Event>,
    /// Arrival time of the current input.
    now: Option<Instant>,
}

/// Demultiplexer of a transport stream.
#[derive(Debug, Default)]
pub struct Demuxer {
    sync: Sync,
    pat: Assembler,
    pmt: Assembler,
    program: Option<Pat>,
    map: Option<Pmt>,
    streams: Vec<Assembly>,
    /// The first stream of splice information in the program.
    splices: Option<(Pid, Assembler)>,
    /// PID of the previous packet. If synchronization is lost, that packet is assumed to be damaged.
    last_pid: Option<Pid>,
    pcr: Option<Pcr>,
    sink: Sink,
}

impl Demuxer {
    /// Creates a demultiplexer that expects a PAT.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the arrival time of the bytes that are passed from now on. Need not be called for files.
    #[cfg(feature = "std")]
    pub const fn arrive(&mut self, now: Instant) {
        self.sink.now = Some(now);
    }

    /// Takes bytes off `input` until there is an event. `None` means that all input was taken; call again with the
    /// following bytes, which may be split anywhere.
    pub fn read(&mut self, input: &mut &[u8]) -> Option<Event> {
        loop {
            if let Some(event) = self.sink.ready.pop_front() {
                return Some(event);
            }
            match self.sync.next(input) {
                Next::Whole(packet) => self.packet(packet),
                Next::Joined(packet) => self.packet(&packet),
                Next::Lost => self.blame(),
                Next::Empty => return None,
            }
        }
    }

    /// Ends the input. This completes PES packets without a length; [`Demuxer::read`] returns them.
    pub fn finish(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.finish(&mut self.sink));
    }

    /// Records that the transport has lost part of the stream here. Incomplete PES packets without a length are
    /// dropped.
    pub fn lost(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.lost(&mut self.sink));
    }

    /// Ignores a stream until the program changes. Its packets are only counted.
    pub fn ignore(&mut self, pid: Pid) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.stream().pid == pid) {
            stream.ignore();
        }
    }

    /// Latest program clock reference.
    #[must_use]
    pub const fn pcr(&self) -> Option<Pcr> {
        self.pcr
    }

    /// Streams of the program; `None` before the first PMT.
    #[must_use]
    pub const fn program(&self) -> Option<&Pmt> {
        self.map.as_ref()
    }

    /// Entry of the program in the program association table; `None` before the first one.
    #[must_use]
    pub const fn entry(&self) -> Option<&Pat> {
        self.program.as_ref()
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            sync_losses: self.sync.losses,
            bytes_skipped: self.sync.bytes_skipped,
            ..self.sink.stats.clone()
        }
    }

    /// Handles a loss of synchronization. A byte was lost or inserted, most likely in the previous packet, so that
    /// packet's stream is considered damaged.
    fn blame(&mut self) {
        let last = self.last_pid;
        if let Some(stream) = self.streams.iter_mut().find(|one| Some(one.stream().pid) == last) {
            stream.tear(&mut self.sink);
        }
    }

    fn packet(&mut self, bytes: &[u8; PACKET_BYTES]) {
        self.sink.stats.packets = self.sink.stats.packets.saturating_add(1);
        let Ok(packet) = Packet::read(bytes) else {
            self.sink.stats.packets_invalid = self.sink.stats.packets_invalid.saturating_add(1);
            return;
        };
        self.last_pid = Some(packet.pid);
        if packet.transport_error {
            self.sink.stats.transport_errors = self.sink.stats.transport_errors.saturating_add(1);
            return;
        }
        if packet.pid == Pid::NULL {
            return;
        }
        if let Some(adaptation) = packet.adaptation {
            if adaptation.malformed {
                self.sink.stats.packets_invalid = self.sink.stats.packets_invalid.saturating_add(1);
            }
            if adaptation.pcr.is_some() && self.map.as_ref().is_some_and(|map| map.pcr_pid == packet.pid) {
                self.pcr = adaptation.pcr;
            }
        }
        let Some(payload) = packet.payload else { return };
        if packet.scrambled {
            self.sink.stats.scrambled = self.sink.stats.scrambled.saturating_add(1);
            return;
        }
        if packet.pid == Pid::PAT {
            self.tables(&packet, payload, true);
        } else if self.program.is_some_and(|program| program.pmt_pid == packet.pid) {
            self.tables(&packet, payload, false);
            return;
        }
        if let Some((_, assembler)) = self.splices.as_mut().filter(|(pid, _)| *pid == packet.pid) {
            assembler.push_any(packet.continuity, packet.unit_start, payload, |section| {
                match section.ok().filter(|section| scte35::is_section(section)) {
                    Some(section) => {
                        self.sink.ready.push_back(Event::Splice(Bytes::copy_from_slice(section)));
                    }
                    None => {
                        let invalid = &mut self.sink.stats.sections_invalid;
                        *invalid = invalid.saturating_add(1);
                    }
                }
            });
            return;
        }
        let held: usize = self.streams.iter().map(Assembly::held).sum();
        if let Some(stream) = self.streams.iter_mut().find(|one| one.stream().pid == packet.pid) {
            stream.push(&packet, payload, PES_BYTES_MAX.saturating_sub(held), &mut self.sink);
        }
    }

    fn tables(&mut self, packet: &Packet<'_>, payload: &[u8], is_pat: bool) {
        let mut assembler = core::mem::take(if is_pat { &mut self.pat } else { &mut self.pmt });
        assembler.push(packet.continuity, packet.unit_start, payload, |section| {
            let taken = section.and_then(|section| match (is_pat, section.table_id) {
                (true, TABLE_PAT) => self.take_pat(&section),
                (false, TABLE_PMT) => self.take_pmt(&section),
                // Other tables may be sent on the same PID.
                _ => Ok(()),
            });
            if taken.is_err() {
                self.sink.stats.sections_invalid = self.sink.stats.sections_invalid.saturating_add(1);
            }
        });
        *(if is_pat { &mut self.pat } else { &mut self.pmt }) = assembler;
    }

    fn take_pat(&mut self, section: &Section<'_>) -> Result<(), Error> {
        if !section.current || section.number != 0 {
            return Ok(());
        }
        let Some(pat) = Pat::read(section)? else { return Ok(()) };
        if self.program != Some(pat) {
            self.program = Some(pat);
            self.map = None;
            self.pmt.reset();
        }
        Ok(())
    }

    fn take_pmt(&mut self, section: &Section<'_>) -> Result<(), Error> {
        let wanted = self.program.is_some_and(|program| program.program == section.id);
        let known = self.map.as_ref().is_some_and(|map| map.version == section.version);
        if !section.current || !wanted {
            return Ok(());
        }
        let mut map = Pmt::read(section, STREAMS_MAX)?;
        let before = map.streams.len();
        // Drop a stream on the PID of its own PMT, because it would never get a packet.
        map.streams.retain(|stream| self.program.is_some_and(|program| program.pmt_pid != stream.pid));
        map.streams_left_out += before - map.streams.len();
        if known && self.map.as_ref() == Some(&map) {
            return Ok(());
        }
        self.sink.stats.streams_left_out =
            self.sink.stats.streams_left_out.saturating_add(map.streams_left_out as u64);
        let mut former = core::mem::take(&mut self.streams);
        for &stream in &map.streams {
            let same = former.iter().position(|one| one.stream() == stream);
            let assembly = same.map_or_else(|| Assembly::new(stream), |at| former.swap_remove(at));
            self.streams.push(assembly);
        }
        let mut pids = map.streams.iter().filter(|stream| stream.kind == StreamKind::Splice);
        let pid = pids.next().map(|stream| stream.pid);
        if self.splices.as_ref().map(|(pid, _)| *pid) != pid {
            self.splices = pid.map(|pid| (pid, Assembler::with_largest(scte35::SECTION_BYTES_MAX)));
        }
        self.map = Some(map.clone());
        self.sink.ready.push_back(Event::Program(map));
        Ok(())
    }
}
