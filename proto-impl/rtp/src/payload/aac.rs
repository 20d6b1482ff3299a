//! AAC as `mpeg4-generic` (RFC 3640): the headers of all access units in a packet, followed by their data. A
//! unit that does not fit into one packet is sent in several, each with the header of the whole unit (§3.2.3).
//! Interleaving is not supported. Units, or whole payloads, in ADTS form are unwrapped.

use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};
use media::codec::aac;
use wire::BitReader;

use super::frames::Out;
use super::{Error, Frame, Part, Payloads, adts, fragments};

/// Length of AU-headers-length and one AU header of AAC-hbr.
const HEAD_BYTES: usize = 4;
/// Largest unit of AAC-hbr, whose sizes have 13 bits (RFC 3640 §3.3.6).
const HBR_UNIT_BYTES_MAX: usize = (1 << 13) - 1;
/// Maximum size of a fragmented unit, in bytes.
const UNIT_BYTES_MAX: usize = 1 << 16;

/// Parameters that define the layout of AU headers (RFC 3640 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mpeg4Generic {
    /// `sizeLength`: bits of a size, at most 32; 0 if headers have no size.
    pub size_length: u8,
    /// `indexLength`: bits of the index in the first header.
    pub index_length: u8,
    /// `indexDeltaLength`: bits of the index in further headers.
    pub index_delta_length: u8,
    /// Ticks between two units: 1024 or 960 samples of AAC, or twice as many if SBR doubles the rate.
    pub unit_ticks: u32,
}

impl Mpeg4Generic {
    /// Parameters of `mode=AAC-hbr` (RFC 3640 §3.3.6).
    pub const AAC_HBR: Self =
        Self { size_length: 13, index_length: 3, index_delta_length: 3, unit_ticks: 1024 };
}

/// Object types with frames of half the length: AAC LD and ELD.
const OBJECT_TYPES_LOW_DELAY: [u32; 2] = [23, 39];
/// Object types with additional fields between channel configuration and frame length: SBR and PS.
const OBJECT_TYPES_HE: [u32; 2] = [5, 29];
/// Index that announces an explicit samplingFrequency in the next 24 bits.
const RATE_EXPLICIT: u32 = 15;

/// Returns the duration of a frame in ticks of a clock of `clock_rate`, from its AudioSpecificConfig.
pub(super) fn frame_ticks(config: &aac::Config, clock_rate: u32) -> Option<u32> {
    let samples = frame_samples(&config.record)?;
    let ticks = u64::from(samples).checked_mul(clock_rate.into())?.checked_div(config.sample_rate.into())?;
    u32::try_from(ticks).ok()
}

/// Returns the number of samples in a frame before SBR, from frameLengthFlag in an AudioSpecificConfig (ISO/IEC
/// 14496-3 §1.6.2.1, §4.4.1).
fn frame_samples(record: &[u8]) -> Option<u32> {
    let mut bits = BitReader::new(record);
    let mut object_type = read_object_type(&mut bits)?;
    skip_rate(&mut bits)?;
    bits.skip(4).ok()?;
    if OBJECT_TYPES_HE.contains(&object_type) {
        skip_rate(&mut bits)?;
        object_type = read_object_type(&mut bits)?;
    }
    let is_short = bits.bit().ok()?;
    Some(match (OBJECT_TYPES_LOW_DELAY.contains(&object_type), is_short) {
        (false, false) => 1024,
        (false, true) => 960,
        (true, false) => 512,
        (true, true) => 480,
    })
}

fn read_object_type(bits: &mut BitReader<'_>) -> Option<u32> {
    match bits.bits(5).ok()? {
        31 => bits.bits(6).ok().map(|more| more.saturating_add(32)),
        object_type => Some(object_type),
    }
}

fn skip_rate(bits: &mut BitReader<'_>) -> Option<()> {
    if bits.bits(4).ok()? == RATE_EXPLICIT { bits.skip(24).ok() } else { Some(()) }
}

/// Packetizes a unit as AAC-hbr, one unit per packet; see [`super::Packetizer::packetize`].
pub(super) fn packetize(unit: &[u8], max: usize, out: &mut Payloads) -> Result<(), Error> {
    if unit.len() > HBR_UNIT_BYTES_MAX {
        return Err(Error::BadUnit);
    }
    let [high, low] = (u16::try_from(unit.len()).unwrap_or(0) << 3).to_be_bytes();
    for (piece, _, _) in fragments::equal(unit, max.saturating_sub(HEAD_BYTES)) {
        out.push(&[&[0, 16, high, low], piece]);
    }
    Ok(())
}

/// A unit received in fragments.
#[derive(Debug)]
struct Fragmented {
    timestamp: u32,
    bytes: BytesMut,
    whole: usize,
}

/// Depacketizer of `mpeg4-generic`; see [`super::Depacketizer`].
#[derive(Debug)]
pub(super) struct Depacketizer {
    parameters: Mpeg4Generic,
    fragmented: Option<Fragmented>,
    adts: adts::Reader,
}

impl Depacketizer {
    pub(super) fn new(parameters: Mpeg4Generic) -> Self {
        Self { parameters, fragmented: None, adts: adts::Reader::default() }
    }

    /// Configuration from ADTS headers; `None` without ADTS.
    pub(super) const fn config(&self) -> Option<&aac::Config> {
        self.adts.config()
    }

    pub(super) fn handle_part(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if part.payload.is_empty() {
            return Ok(());
        }
        if part.gap || self.fragmented.as_ref().is_some_and(|open| open.timestamp != part.timestamp) {
            self.give_up(out);
        }
        self.take(part, out).inspect_err(|_| self.give_up(out))
    }

    fn take(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let unit_ticks = self.parameters.unit_ticks;
        // Read as AU-headers-length, the first two bytes of ADTS would announce 8 KiB of headers, so the two
        // formats cannot be confused.
        if self.adts.take(part.payload, part.timestamp, |_| unit_ticks, out) {
            return Ok(());
        }
        let (headers_bits, rest) = match part.payload.split_first_chunk::<2>() {
            _ if self.parameters.size_length == 0 => (0, part.payload),
            Some((length, rest)) => (usize::from(u16::from_be_bytes(*length)), rest),
            None => return Err(Error::Malformed("AU-headers-length")),
        };
        let (headers, data) =
            rest.split_at_checked(headers_bits.div_ceil(8)).ok_or(Error::Malformed("AU-headers-length"))?;
        if headers_bits == 0 {
            // Without headers, a packet contains one complete unit.
            out.give(frame(part.timestamp, data));
            return Ok(());
        }
        let mut bits = BitReader::new(headers);
        let sizes = self.read_sizes(&mut bits, headers_bits)?;
        if let [size] = sizes.as_slice()
            && (*size > data.len() || self.fragmented.is_some())
        {
            return self.take_fragment(part.timestamp, *size, data, out);
        }
        let mut timestamp = part.timestamp;
        let mut data = data;
        for size in sizes {
            let (unit, rest) = data.split_at_checked(size).ok_or(Error::Malformed("AU-size"))?;
            if !unit.is_empty() && !self.adts.take(unit, timestamp, |_| unit_ticks, out) {
                out.give(frame(timestamp, unit));
            }
            timestamp = timestamp.wrapping_add(unit_ticks);
            data = rest;
        }
        Ok(())
    }

    /// Reads the sizes in a section of AU headers, up to the end of the section.
    fn read_sizes(&self, bits: &mut BitReader<'_>, section: usize) -> Result<Vec<usize>, Error> {
        let Mpeg4Generic { size_length, index_length, index_delta_length, .. } = self.parameters;
        let mut sizes = Vec::new();
        let mut left = section;
        let mut index_bits = index_length;
        loop {
            let need = usize::from(size_length).saturating_add(usize::from(index_bits));
            if need == 0 || left < need {
                return Ok(sizes);
            }
            left = left.saturating_sub(need);
            sizes.push(usize::try_from(bits.bits(u32::from(size_length))?).unwrap_or(usize::MAX));
            if bits.bits(u32::from(index_bits))? != 0 {
                return Err(Error::Unsupported("interleaving"));
            }
            index_bits = index_delta_length;
        }
    }

    fn take_fragment(
        &mut self,
        timestamp: u32,
        whole: usize,
        data: &[u8],
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        if whole > UNIT_BYTES_MAX {
            return Err(Error::FrameTooLarge);
        }
        let open =
            self.fragmented.get_or_insert_with(|| Fragmented { timestamp, bytes: BytesMut::new(), whole });
        open.bytes.extend_from_slice(data);
        if open.whole != whole || open.bytes.len() > whole {
            return Err(Error::Malformed("AU-size"));
        }
        if open.bytes.len() == whole {
            let payload = open.bytes.split().freeze();
            self.fragmented = None;
            if !self.adts.take(&payload, timestamp, |_| self.parameters.unit_ticks, out) {
                out.give(Frame::new(timestamp, false, payload));
            }
        }
        Ok(())
    }

    fn give_up(&mut self, out: &mut Out<'_>) {
        if self.fragmented.take().is_some() {
            out.drop_frame();
        }
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.fragmented.as_ref().map_or(0, |open| open.bytes.len())
    }
}

fn frame(timestamp: u32, unit: &[u8]) -> Frame {
    Frame::new(timestamp, false, Bytes::copy_from_slice(unit))
}
