//! A publisher of MPEG-TS that is given as its tables, PES packets and transport packets, so that a test can change
//! each of them.

use bytes::Bytes;

use super::sender::Piece;
use super::units::{Unit, adts, sets};

pub const PMT: u16 = 0x1000;
pub const VIDEO: u16 = 0x100;
pub const SOUND: u16 = 0x101;
/// Stream types (ISO/IEC 13818-1 table 2-34).
pub const H264: u8 = 0x1b;
pub const AAC: u8 = 0x0f;

const PACKET: usize = 188;
/// Interval at which tables are repeated, in milliseconds.
const TABLES_MS: i64 = 100;

/// A transport packet and its time.
pub type Packet = (i64, [u8; PACKET]);

/// The tables (PAT and PMT) that are sent from the time `from` on.
#[derive(Debug, Clone)]
pub struct Tables {
    pub from: i64,
    /// Program numbers, and the PIDs of their PMTs.
    pub programs: Vec<(u16, u16)>,
    pub version: u8,
    pub pcr: u16,
    /// The descriptors of the program.
    pub info: Vec<u8>,
    /// Type, PID and descriptors of each stream.
    pub streams: Vec<(u8, u16, Vec<u8>)>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            from: 0,
            programs: vec![(1, PMT)],
            version: 0,
            pcr: VIDEO,
            info: Vec::new(),
            streams: vec![(H264, VIDEO, Vec::new()), (AAC, SOUND, Vec::new())],
        }
    }
}

/// A PES packet. Times are ticks of 90 kHz.
#[derive(Debug, Clone)]
pub struct Pes {
    pub at: i64,
    pub pid: u16,
    pub stream_id: u8,
    pub pts: Option<u64>,
    pub dts: Option<u64>,
    pub key: bool,
    /// True if the packet states its length.
    pub bounded: bool,
    pub payload: Vec<u8>,
}

/// Everything that a publisher sends.
#[derive(Debug)]
pub struct Plan {
    pub tables: Vec<Tables>,
    pub pes: Vec<Pes>,
    pub has_pcr: bool,
    /// Maximum bytes of a table section in one transport packet.
    pub section_bytes: usize,
    /// Changes the transport packets after all of them have been made.
    pub packets: Option<fn(&mut Vec<Packet>)>,
    /// Changes the bytes. Each piece is sent as an SRT message.
    pub bytes: Option<fn(&mut Vec<Piece>)>,
}

impl Plan {
    /// Creates the stream of an ordinary encoder, with one unit per PES packet.
    pub fn new(units: &[Unit]) -> Self {
        Self {
            tables: vec![Tables::default()],
            pes: units.iter().map(pes).collect(),
            has_pcr: true,
            section_bytes: 183,
            packets: None,
            bytes: None,
        }
    }

    /// Returns the PES packets of a PID.
    pub fn of_pid(&mut self, pid: u16) -> impl Iterator<Item = &mut Pes> {
        self.pes.iter_mut().filter(move |pes| pes.pid == pid)
    }

    /// Inserts PES packets among the others at their times.
    pub fn insert(&mut self, pes: impl IntoIterator<Item = Pes>) {
        self.pes.extend(pes);
        self.pes.sort_by_key(|pes| pes.at);
    }

    pub fn into_pieces(self) -> Vec<Piece> {
        let mut writer =
            Writer { counters: [0; 8192], packets: Vec::new(), section_bytes: self.section_bytes };
        let (mut tables_at, mut known) = (i64::MIN, i64::MIN);
        for pes in &self.pes {
            let tables = self.tables.iter().rev().find(|tables| tables.from <= pes.at);
            if let Some(tables) = tables
                && (pes.at >= tables_at.saturating_add(TABLES_MS)
                    || tables.from != known
                    || (pes.key && pes.pid == VIDEO))
            {
                (tables_at, known) = (pes.at, tables.from);
                writer.tables(pes.at, tables);
            }
            let pcr = pes.dts.or(pes.pts).map(|dts| dts.wrapping_sub(18_000));
            let clock = tables.map_or(VIDEO, |tables| tables.pcr);
            let pcr = pcr.filter(|_| self.has_pcr);
            if clock != VIDEO && clock != SOUND && pes.pid == VIDEO {
                writer.clock(pes.at, clock, pcr);
            }
            writer.pes(pes, pcr.filter(|_| clock == pes.pid));
        }
        let mut packets = writer.packets;
        if let Some(change) = self.packets {
            change(&mut packets);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for run in packets.chunk_by(|one, next| one.0 == next.0) {
            for some in run.chunks(7) {
                let bytes: Vec<u8> = some.iter().flat_map(|(_, packet)| *packet).collect();
                pieces.push((some[0].0, bytes.into()));
            }
        }
        if let Some(change) = self.bytes {
            change(&mut pieces);
        }
        pieces
    }
}

/// Returns a unit in a PES packet.
pub fn pes(unit: &Unit) -> Pes {
    let dts = unit.raw.wrapping_mul(90);
    let pts = dts.wrapping_add((unit.cts * 90).cast_unsigned());
    let (pid, stream_id) = if unit.is_video { (VIDEO, 0xe0) } else { (SOUND, 0xc0) };
    let payload = if unit.is_video { annex_b(unit) } else { with_adts(unit) };
    let dts = (pts != dts).then_some(dts);
    Pes { at: unit.at, pid, stream_id, pts: Some(pts), dts, key: unit.key, bounded: !unit.is_video, payload }
}

/// Returns a picture in Annex B form: an access unit delimiter, the parameter sets before a key frame, and the
/// picture.
pub fn annex_b(unit: &Unit) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 1, 9, 0xf0];
    if unit.key {
        for set in sets() {
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            bytes.extend_from_slice(&set);
        }
    }
    bytes.extend_from_slice(&[0, 0, 0, 1]);
    bytes.extend_from_slice(unit.nal());
    bytes
}

pub fn with_adts(unit: &Unit) -> Vec<u8> {
    [&adts(unit.payload.len())[..], &unit.payload].concat()
}

/// Computes the CRC of a section (§2.4.4, annex A).
pub fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

/// Creates a section of a table.
pub fn section(table: u8, id: u16, version: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 9).unwrap() | 0xb000;
    let mut bytes = vec![table];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&[0xc1 | version << 1, 0, 0]);
    bytes.extend_from_slice(body);
    let crc = crc(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

#[derive(Debug)]
struct Writer {
    counters: [u8; 8192],
    packets: Vec<Packet>,
    section_bytes: usize,
}

impl Writer {
    fn tables(&mut self, at: i64, tables: &Tables) {
        let pat: Vec<u8> = tables
            .programs
            .iter()
            .flat_map(|(number, pid)| [number.to_be_bytes(), (0xe000 | pid).to_be_bytes()].concat())
            .collect();
        self.section(at, 0, &section(0, 1, tables.version, &pat));
        let mut pmt = (0xe000 | tables.pcr).to_be_bytes().to_vec();
        pmt.extend_from_slice(&(0xf000 | u16::try_from(tables.info.len()).unwrap()).to_be_bytes());
        pmt.extend_from_slice(&tables.info);
        for (kind, pid, descriptors) in &tables.streams {
            pmt.push(*kind);
            pmt.extend_from_slice(&(0xe000 | pid).to_be_bytes());
            pmt.extend_from_slice(&(0xf000 | u16::try_from(descriptors.len()).unwrap()).to_be_bytes());
            pmt.extend_from_slice(descriptors);
        }
        let (program, pid) = tables.programs[0];
        self.section(at, pid, &section(2, program, tables.version, &pmt));
    }

    fn section(&mut self, at: i64, pid: u16, section: &[u8]) {
        for (n, part) in section.chunks(self.section_bytes).enumerate() {
            let mut payload = if n == 0 { vec![0] } else { Vec::new() };
            payload.extend_from_slice(part);
            // Only a section's last packet may be stuffed.
            if (n + 1) * self.section_bytes >= section.len() {
                payload.resize(184, 0xff);
            }
            self.packet(at, pid, n == 0, None, false, &payload);
        }
    }

    /// Writes a packet that carries only a clock reference.
    fn clock(&mut self, at: i64, pid: u16, pcr: Option<u64>) {
        self.packet(at, pid, false, pcr, false, &[]);
    }

    fn pes(&mut self, pes: &Pes, mut pcr: Option<u64>) {
        let bytes = pes_bytes(pes);
        let (mut at, mut first) = (0, true);
        while at < bytes.len() {
            let adaptation = match (pcr, first && pes.key) {
                (Some(_), _) => 8,
                (None, true) => 2,
                (None, false) => 0,
            };
            let part = &bytes[at..bytes.len().min(at + 184 - adaptation)];
            self.packet(pes.at, pes.pid, first, pcr.take(), first && pes.key, part);
            at += part.len();
            first = false;
        }
    }

    /// Writes a packet, stuffed by its adaptation field.
    fn packet(&mut self, at: i64, pid: u16, start: bool, pcr: Option<u64>, random: bool, payload: &[u8]) {
        let counter = &mut self.counters[usize::from(pid)];
        let mut bytes = vec![0x47, u8::from(start) << 6 | (pid >> 8) as u8, pid as u8];
        let mut adaptation = Vec::new();
        if pcr.is_some() || random {
            adaptation.push(u8::from(random) << 6 | u8::from(pcr.is_some()) << 4);
        }
        if let Some(base) = pcr.map(|pcr| pcr & 0x1_ffff_ffff) {
            adaptation.extend_from_slice(&((base >> 1) as u32).to_be_bytes());
            adaptation.extend_from_slice(&[(base << 7) as u8 | 0x7e, 0]);
        }
        let room = 184 - payload.len();
        if room > 0 {
            if adaptation.is_empty() && room > 1 {
                adaptation.push(0);
            }
            adaptation.resize(room - 1, 0xff);
        }
        let has_payload = !payload.is_empty();
        bytes.push(u8::from(room > 0) << 5 | u8::from(has_payload) << 4 | *counter & 15);
        *counter = counter.wrapping_add(u8::from(has_payload));
        if room > 0 {
            bytes.push((room - 1) as u8);
            bytes.extend_from_slice(&adaptation);
        }
        bytes.extend_from_slice(payload);
        self.packets.push((at, bytes.try_into().unwrap()));
    }
}

/// Writes a timestamp as in a PES header (§2.4.3.7).
fn stamp(mark: u8, time: u64) -> [u8; 5] {
    let part = |from: u32, bits: u32| ((time >> from & ((1 << bits) - 1)) << 1 | 1) as u16;
    let [b, c] = part(15, 15).to_be_bytes();
    let [d, e] = part(0, 15).to_be_bytes();
    [mark << 4 | part(30, 3) as u8, b, c, d, e]
}

fn pes_bytes(pes: &Pes) -> Vec<u8> {
    let mut times = Vec::new();
    let flags = match (pes.pts, pes.dts) {
        (Some(pts), Some(dts)) => {
            times.extend_from_slice(&stamp(3, pts));
            times.extend_from_slice(&stamp(1, dts));
            0xc0
        }
        (Some(pts), None) => {
            times.extend_from_slice(&stamp(2, pts));
            0x80
        }
        (None, _) => 0,
    };
    let length = pes.payload.len() + times.len() + 3;
    let length = if pes.bounded { u16::try_from(length).unwrap_or(0) } else { 0 };
    let mut bytes = vec![0, 0, 1, pes.stream_id];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0x80, flags, times.len() as u8]);
    bytes.extend_from_slice(&times);
    bytes.extend_from_slice(&pes.payload);
    bytes
}

/// Cuts all bytes of a publisher anew, into pieces of the given sizes.
pub fn recut(pieces: &mut Vec<Piece>, sizes: &[usize]) {
    let (mut rest, mut out, mut sizes) = (Vec::new(), Vec::new(), sizes.iter().copied().cycle());
    let mut size = sizes.next().unwrap();
    for (at, bytes) in pieces.drain(..) {
        rest.extend_from_slice(&bytes);
        while rest.len() >= size {
            let behind = rest.split_off(size);
            out.push((at, Bytes::from(std::mem::replace(&mut rest, behind))));
            size = sizes.next().unwrap();
        }
    }
    let end = out.last().map_or(0, |(at, _)| *at);
    out.push((end, rest.into()));
    *pieces = out;
}
