//! Transport packets to PES packets of one program.
//!
//! ```text
//! 1. PAT            -> the first program's PMT
//! 2. PMT            -> Event::Program, again whenever it changes
//! 3. PES packets    -> Event::Pes, each when it is complete
//! ```
//!
//! **When a PES packet is complete.** With a length, at its last byte. Video mostly has none (§2.4.3.7 allows that), and
//! the standard then lets it end where the next one begins, which is one frame too late for a live stream. But
//! muxers fill up the last transport packet of a PES packet, because the next one must begin with a packet of its own,
//! and have no reason to fill up any other. So a stream whose filled packets were followed by the next beginning, several
//! times and without exception, is trusted: from then on a filled packet ends its PES packet at once. When another
//! packet of the same PES packet follows all the same, the trust is gone for as long as the stream exists; the rest
//! cannot be joined to what was handed on already, so it is dropped and counted (`pes_cut`), once. A PES packet that
//! happens to fill its last packet without stuffing (1 of 184) waits for the next one.
//!
//! **What is lost.** A gap of the continuity counter drops the PES packet that it tore, nothing else. A packet that
//! comes twice is taken once.

mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use self::stream::Assembly;
use crate::psi::{TABLE_PAT, TABLE_PMT};
use crate::section::{Assembler, Section};
use crate::sync::{Next, Sync};
use crate::{Error, PACKET_BYTES, Packet, Pat, Pcr, Pid, Pmt, Stream};

/// The most streams of a program that are distinguished.
pub const STREAMS_MAX: usize = 16;
/// Bytes of PES packets that are held, those of all streams together: one access unit of the largest size.
pub const PES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// stream_types that are counted each on its own.
const OTHER_TYPES_MAX: usize = 16;

/// A result of demultiplexing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The streams of the program: the first time, and whenever the PMT's version or content changes.
    Program(Pmt),
    /// A whole PES packet.
    Pes(Pes),
}

/// A PES packet without its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pes {
    /// The stream of the packet.
    pub stream: Stream,
    /// Presentation time, 33 bits.
    pub pts: Option<u64>,
    /// Decoding time, 33 bits, when it is not the presentation time.
    pub dts: Option<u64>,
    /// random_access_indicator of its first packet.
    pub random_access: bool,
    /// data_alignment_indicator: it begins with the beginning of an access unit.
    pub aligned: bool,
    /// The packet had a length: its access unit may continue in the next packet.
    pub bounded: bool,
    /// Something of the stream was lost or dropped before it, or a jump was announced.
    pub discontinuity: bool,
    /// Arrival of its last bytes, as set by [`Demuxer::arrive`]: in the past if only the next packet showed where this one ends.
    pub arrived: Option<Instant>,
    /// The payload.
    pub payload: Bytes,
}

/// Counters of a demultiplexer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transport packets.
    pub packets: u64,
    /// Times the sync byte was not where it should be.
    pub sync_losses: u64,
    /// Bytes that were passed over to find it again.
    pub bytes_skipped: u64,
    /// Packets that were marked as wrong on their way.
    pub transport_errors: u64,
    /// Packets whose head or adaptation field made no sense.
    pub packets_invalid: u64,
    /// Packets of encrypted payload.
    pub scrambled: u64,
    /// Packets that came twice.
    pub duplicates: u64,
    /// Gaps of a continuity counter.
    pub gaps: u64,
    /// Sections that made no sense.
    pub sections_invalid: u64,
    /// Streams that were left out: too many, or of a PID that was taken.
    pub streams_left_out: u64,
    /// PES packets handed on.
    pub pes: u64,
    /// PES packets that were dropped, because something of them was lost.
    pub pes_damaged: u64,
    /// PES packets whose head made no sense.
    pub pes_invalid: u64,
    /// PES packets that were dropped, because they were too large.
    pub pes_oversized: u64,
    /// PES packets that were handed on before their end: see the module's text.
    pub pes_cut: u64,
    /// Packets of streams that are not carried, by stream_type.
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

/// Collects the results of a packet.
#[derive(Debug, Default)]
struct Sink {
    stats: Stats,
    /// The events of one packet, a few at most.
    ready: VecDeque<Event>,
    /// Arrival of what is read.
    now: Option<Instant>,
}

/// Reads a transport stream.
#[derive(Debug, Default)]
pub struct Demuxer {
    sync: Sync,
    pat: Assembler,
    pmt: Assembler,
    program: Option<Pat>,
    map: Option<Pmt>,
    streams: Vec<Assembly>,
    /// The PID of the previous packet, to blame it when the next is out of sync.
    last_pid: Option<Pid>,
    pcr: Option<Pcr>,
    sink: Sink,
}

impl Demuxer {
    /// Waits for a PAT.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the arrival time of the bytes that are read from here on. Not called for files.
    pub const fn arrive(&mut self, now: Instant) {
        self.sink.now = Some(now);
    }

    /// Takes bytes off `input` until something came of them. `None`: all are taken; call it again with the next ones,
    /// in whatever pieces they come.
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

    /// The input has ended: PES packets without a length end too. [`Demuxer::read`] gives them.
    pub fn finish(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.finish(&mut self.sink));
    }

    /// The transport has lost a piece of the stream here: unfinished PES packets of unknown end are dropped.
    pub fn lost(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.lost(&mut self.sink));
    }

    /// The stream is not wanted: its packets are only counted. Until the program changes.
    pub fn ignore(&mut self, pid: Pid) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.stream().pid == pid) {
            stream.ignore();
        }
    }

    /// The program's clock as it was written last.
    #[must_use]
    pub const fn pcr(&self) -> Option<Pcr> {
        self.pcr
    }

    /// The program's streams.
    #[must_use]
    pub const fn program(&self) -> Option<&Pmt> {
        self.map.as_ref()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            sync_losses: self.sync.losses,
            bytes_skipped: self.sync.bytes_skipped,
            ..self.sink.stats.clone()
        }
    }

    /// Out of step: a byte was lost or put in, most likely in the packet before.
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
        let held: usize = self.streams.iter().map(Assembly::held).sum();
        if let Some(stream) = self.streams.iter_mut().find(|one| one.stream().pid == packet.pid) {
            stream.push(&packet, payload, PES_BYTES_MAX.saturating_sub(held), &mut self.sink);
        }
    }

    fn tables(&mut self, packet: &Packet<'_>, payload: &[u8], is_pat: bool) {
        let mut assembler = std::mem::take(if is_pat { &mut self.pat } else { &mut self.pmt });
        assembler.push(packet.continuity, packet.unit_start, payload, |section| {
            let taken = section.and_then(|section| match (is_pat, section.table_id) {
                (true, TABLE_PAT) => self.take_pat(&section),
                (false, TABLE_PMT) => self.take_pmt(&section),
                // A PID of tables may carry others.
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
        // A stream on the map's own PID would never get a packet.
        map.streams.retain(|stream| self.program.is_some_and(|program| program.pmt_pid != stream.pid));
        map.streams_left_out += before - map.streams.len();
        if known && self.map.as_ref() == Some(&map) {
            return Ok(());
        }
        self.sink.stats.streams_left_out =
            self.sink.stats.streams_left_out.saturating_add(map.streams_left_out as u64);
        let mut former = std::mem::take(&mut self.streams);
        for &stream in &map.streams {
            let same = former.iter().position(|one| one.stream() == stream);
            let assembly = same.map_or_else(|| Assembly::new(stream), |at| former.swap_remove(at));
            self.streams.push(assembly);
        }
        self.map = Some(map.clone());
        self.sink.ready.push_back(Event::Program(map));
        Ok(())
    }
}
