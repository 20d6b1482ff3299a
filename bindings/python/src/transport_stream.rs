//! MPEG transport streams.

use std::borrow::Cow;

use mpegts::{Demuxer as Machine, Event, PACKET_BYTES, Pid, StreamKind};
use pyo3::prelude::*;

use crate::config::Config;
use crate::value::Payload;

crate::error!(millstream.mpegts, crate::Error);

/// Ticks per unit of a clock reference's base.
const TICKS_PER_BASE: u64 = 300;

value! {
    /// An elementary stream of a program.
    "millstream.mpegts" Stream {
        /// PID of its packets.
        pid: u16,
        /// `h264`, `h265`, `aac`, `aac-latm`, `mpeg-audio`, `ac3`, `eac3`, `opus`, `id3`, `splice` or `other`.
        kind: &'static str,
        /// stream_type of the program map.
        stream_type: u8,
        /// Language in three letters.
        language: Option<String>,
    }
}

const fn kind(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::H264 => "h264",
        StreamKind::H265 => "h265",
        StreamKind::AacAdts => "aac",
        StreamKind::AacLatm => "aac-latm",
        StreamKind::MpegAudio { .. } => "mpeg-audio",
        StreamKind::Ac3 => "ac3",
        StreamKind::Eac3 => "eac3",
        StreamKind::Opus { .. } => "opus",
        StreamKind::Id3 => "id3",
        StreamKind::Splice => "splice",
        StreamKind::Other(_) => "other",
    }
}

value! {
    /// The tables of the program: its map (PMT), and its entry in the list of programs (PAT).
    "millstream.mpegts" Program {
        /// Id of the transport stream.
        transport_stream: u16,
        /// Number of the program.
        program: u16,
        /// PID of the map.
        pmt_pid: u16,
        /// PID with the clock references.
        pcr_pid: u16,
        /// Version of the map.
        version: u8,
        /// Streams of the program.
        streams: Vec<Stream>,
        /// Number of streams left out, because there were too many.
        streams_left_out: usize,
    }
}

value! {
    /// A PES packet: for video one access unit, for audio one or several.
    "millstream.mpegts" Pes {
        /// PID of the stream.
        pid: u16,
        /// Kind of the stream.
        kind: &'static str,
        /// Presentation time in ticks of 90 kHz, 33 bits.
        pts: Option<u64>,
        /// Decoding time in ticks of 90 kHz, 33 bits; `None` if it equals the presentation time.
        dts: Option<u64>,
        /// True if the packet is marked as a point to begin at.
        random_access: bool,
        /// True if part of the stream before the packet is missing.
        discontinuity: bool,
        /// Payload of the packet.
        payload: Payload,
    }
    hidden {
        stream_kind: StreamKind,
    }

    /// Makes the configuration of the codec from the payload: from parameter sets, or the header of an audio frame.
    /// `None` if the payload has none.
    fn config(&self) -> PyResult<Option<Config>> {
        Config::of_unit(self.stream_kind, &self.payload.0)
    }
}

value! {
    /// A section of splice information (SCTE 35).
    "millstream.mpegts" Splice {
        /// The section, with a valid checksum.
        payload: Payload,
    }
}

value! {
    /// Counters of a demultiplexer.
    "millstream.mpegts" Stats {
        /// Transport packets.
        packets: u64,
        /// Number of times that the sync byte was missing at its expected position.
        sync_losses: u64,
        /// Bytes skipped to find the sync byte again.
        bytes_skipped: u64,
        /// Packets marked as erroneous by the transport.
        transport_errors: u64,
        /// Packets with an invalid header or adaptation field.
        packets_invalid: u64,
        /// Packets with encrypted payload.
        scrambled: u64,
        /// Repeated packets.
        duplicates: u64,
        /// Gaps in a continuity counter.
        gaps: u64,
        /// Invalid sections.
        sections_invalid: u64,
        /// PES packets returned.
        pes: u64,
        /// PES packets dropped because part of them was lost.
        pes_damaged: u64,
        /// PES packets with an invalid header.
        pes_invalid: u64,
        /// PES packets dropped because they were too large.
        pes_oversized: u64,
    }
}

impl From<mpegts::Stats> for Stats {
    fn from(stats: mpegts::Stats) -> Self {
        Self {
            packets: stats.packets,
            sync_losses: stats.sync_losses,
            bytes_skipped: stats.bytes_skipped,
            transport_errors: stats.transport_errors,
            packets_invalid: stats.packets_invalid,
            scrambled: stats.scrambled,
            duplicates: stats.duplicates,
            gaps: stats.gaps,
            sections_invalid: stats.sections_invalid,
            pes: stats.pes,
            pes_damaged: stats.pes_damaged,
            pes_invalid: stats.pes_invalid,
            pes_oversized: stats.pes_oversized,
        }
    }
}

/// An event of a demultiplexer.
#[derive(IntoPyObject)]
enum Item {
    Program(Program),
    Pes(Pes),
    Splice(Splice),
}

/// Reads the first program of a transport stream in pieces of any size.
///
/// Faults of the stream raise nothing: they are counted. What the demultiplexer holds of incomplete packets is
/// bounded by 8 MiB.
#[pyclass(module = "millstream.mpegts")]
#[derive(Debug, Default)]
pub(crate) struct Demuxer {
    machine: Machine,
}

#[pymethods]
impl Demuxer {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds bytes of the stream. Returns the tables when they have changed, and the packets that are complete.
    fn push(&mut self, py: Python<'_>, data: Cow<'_, [u8]>) -> Vec<Item> {
        py.detach(|| self.read(&data))
    }

    /// Ends the stream. Returns the packets that end with it.
    fn finish(&mut self, py: Python<'_>) -> Vec<Item> {
        py.detach(|| {
            self.machine.finish();
            self.read(&[])
        })
    }

    /// The tables of the program; `None` before the first map.
    #[getter]
    fn program(&self) -> Option<Program> {
        self.machine.program().map(|map| self.tables(map))
    }

    /// The latest clock reference of the program, in ticks of 27 MHz.
    #[getter]
    fn pcr(&self) -> Option<u64> {
        self.machine.pcr().map(ticks)
    }

    /// The counters so far.
    #[getter]
    fn stats(&self) -> Stats {
        self.machine.stats().into()
    }
}

impl Demuxer {
    fn read(&mut self, mut input: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(event) = self.machine.read(&mut input) {
            items.push(match event {
                Event::Program(map) => Item::Program(self.tables(&map)),
                Event::Pes(pes) => Item::Pes(Pes {
                    pid: pes.stream.pid.get(),
                    kind: kind(pes.stream.kind),
                    pts: pes.pts,
                    dts: pes.dts,
                    random_access: pes.random_access,
                    discontinuity: pes.discontinuity,
                    payload: Payload(pes.payload),
                    stream_kind: pes.stream.kind,
                }),
                Event::Splice(section) => Item::Splice(Splice { payload: Payload(section) }),
            });
        }
        items
    }

    fn tables(&self, map: &mpegts::Pmt) -> Program {
        let entry = self.machine.entry();
        let stream = |stream: &mpegts::Stream| Stream {
            pid: stream.pid.get(),
            kind: kind(stream.kind),
            stream_type: stream.kind.stream_type(),
            language: map.language_of(stream.pid).map(str::to_owned),
        };
        Program {
            transport_stream: entry.map_or(0, |entry| entry.transport_stream),
            program: map.program,
            pmt_pid: entry.map_or(Pid::NULL, |entry| entry.pmt_pid).get(),
            pcr_pid: map.pcr_pid.get(),
            version: map.version,
            streams: map.streams.iter().map(stream).collect(),
            streams_left_out: map.streams_left_out,
        }
    }
}

const fn ticks(pcr: mpegts::Pcr) -> u64 {
    pcr.base * TICKS_PER_BASE + pcr.extension as u64
}

/// Reads a whole file, without the interpreter's lock.
#[pyfunction]
fn parse(py: Python<'_>, data: Cow<'_, [u8]>) -> Vec<Item> {
    py.detach(|| {
        let mut demuxer = Demuxer::default();
        let mut items = demuxer.read(&data);
        demuxer.machine.finish();
        items.extend(demuxer.read(&[]));
        items
    })
}

value! {
    /// A transport packet.
    "millstream.mpegts" Packet {
        /// PID of the packet.
        pid: u16,
        /// transport_error_indicator.
        transport_error: bool,
        /// payload_unit_start_indicator.
        unit_start: bool,
        /// True if the payload is encrypted.
        scrambled: bool,
        /// Continuity counter.
        continuity: u8,
        /// discontinuity_indicator of the adaptation field.
        discontinuity: bool,
        /// random_access_indicator of the adaptation field.
        random_access: bool,
        /// Clock reference in ticks of 27 MHz.
        pcr: Option<u64>,
        /// Payload; `None` if the packet has an adaptation field alone.
        payload: Option<Payload>,
    }

    /// Reads a packet of 188 bytes.
    #[staticmethod]
    fn read(data: Cow<'_, [u8]>) -> PyResult<Self> {
        let bytes: &[u8; PACKET_BYTES] =
            data.as_ref().try_into().map_err(|_| error(format!("{} bytes are no packet of 188", data.len())))?;
        let packet = mpegts::Packet::read(bytes).map_err(error)?;
        let adaptation = packet.adaptation.unwrap_or_default();
        Ok(Self {
            pid: packet.pid.get(),
            transport_error: packet.transport_error,
            unit_start: packet.unit_start,
            scrambled: packet.scrambled,
            continuity: packet.continuity,
            discontinuity: adaptation.discontinuity,
            random_access: adaptation.random_access,
            pcr: adaptation.pcr.map(ticks),
            payload: packet.payload.map(Payload::copy),
        })
    }
}

value! {
    /// Header of a PES packet.
    "millstream.mpegts" PesHeader {
        /// stream_id.
        stream_id: u8,
        /// PES_packet_length; 0 if the packet has no length.
        packet_length: u16,
        /// True if the payload is encrypted.
        scrambled: bool,
        /// Presentation time in ticks of 90 kHz, 33 bits.
        pts: Option<u64>,
        /// Decoding time in ticks of 90 kHz, 33 bits.
        dts: Option<u64>,
        /// Offset of the payload.
        payload_at: usize,
    }

    /// Reads a header at the beginning of `data`.
    #[staticmethod]
    fn read(data: Cow<'_, [u8]>) -> PyResult<Self> {
        let header = mpegts::PesHeader::read(&data).map_err(error)?;
        Ok(Self {
            stream_id: header.stream_id,
            packet_length: header.packet_length,
            scrambled: header.scrambled,
            pts: header.pts,
            dts: header.dts,
            payload_at: header.payload_at,
        })
    }
}

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Stream>()?;
    module.add_class::<Program>()?;
    module.add_class::<Pes>()?;
    module.add_class::<Splice>()?;
    module.add_class::<Stats>()?;
    module.add_class::<Demuxer>()?;
    module.add_class::<Packet>()?;
    module.add_class::<PesHeader>()?;
    module.add_function(wrap_pyfunction!(parse, module)?)
}
