//! AV1: the AV1CodecConfigurationRecord (AV1 in ISOBMFF §2.3), and the sequence header in its configOBUs (AV1
//! specification §5.5). Of the latter, only the fields needed for the picture size are read.

use bytes::{BufMut, Bytes, BytesMut};
use wire::{BitReader, Reader, Truncated};

use super::{CONFIG_BYTES_MAX, Error, real_size};

/// Value of the first byte, which contains marker (1) and version (1).
const MARKER_AND_VERSION: u8 = 0x81;
/// obu_type of a sequence header (§6.2.2).
pub const OBU_SEQUENCE_HEADER: u8 = 1;
/// obu_type of a temporal delimiter.
pub const OBU_TEMPORAL_DELIMITER: u8 = 2;
/// obu_type of a frame header.
pub const OBU_FRAME_HEADER: u8 = 3;
/// obu_type of a tile group.
pub const OBU_TILE_GROUP: u8 = 4;
/// obu_type of metadata.
pub const OBU_METADATA: u8 = 5;
/// obu_type of a frame: header and tile group.
pub const OBU_FRAME: u8 = 6;
/// obu_type of a redundant frame header.
pub const OBU_REDUNDANT_FRAME_HEADER: u8 = 7;
/// obu_type of a tile list.
pub const OBU_TILE_LIST: u8 = 8;
/// obu_type of padding.
pub const OBU_PADDING: u8 = 15;
/// obu_has_size_field.
const HAS_SIZE: u8 = 0x02;
/// obu_extension_flag.
const HAS_EXTENSION: u8 = 0x04;
/// Maximum number of bytes of a leb128 number (§4.10.5).
const LEB128_BYTES_MAX: usize = 8;

/// A validated AV1CodecConfigurationRecord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received.
    pub record: Bytes,
    /// seq_profile: 0 main, 1 high, 2 professional.
    pub profile: u8,
    /// seq_level_idx of the first operating point.
    pub level: u8,
    /// Maximum frame size; `None` if the record has no readable sequence header.
    pub size: Option<(u32, u32)>,
}

impl Config {
    /// Parses an AV1CodecConfigurationRecord. The sequence header after its four bytes is optional; OBUs with
    /// invalid sizes are refused.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut reader = Reader::new(&record);
        if reader.u8()? != MARKER_AND_VERSION {
            return Err(Error::Invalid("marker or version"));
        }
        let profile_and_level = reader.u8()?;
        reader.take(2)?;
        let mut size = None;
        while !reader.is_empty() {
            let obu = read_obu(&mut reader)?;
            if obu.kind == OBU_SEQUENCE_HEADER {
                size = size.or_else(|| picture_size(obu.body).ok());
            }
        }
        Ok(Self { profile: profile_and_level >> 5, level: profile_and_level & 0x1f, size, record })
    }
}

/// An open bitstream unit (§5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obu<'a> {
    /// obu_type.
    pub kind: u8,
    /// Contents after the header and the size field.
    pub body: &'a [u8],
    head: u8,
    extension: Option<u8>,
}

impl Obu<'_> {
    /// Returns the header without a size field, for containers that store the size themselves (§5.3.2).
    #[must_use]
    pub fn head_without_size(&self) -> SmallHead {
        let head = [self.head & !HAS_SIZE, self.extension.unwrap_or(0)];
        SmallHead { head, bytes: if self.extension.is_some() { 2 } else { 1 } }
    }
}

/// A header of one or two bytes.
#[derive(Debug, Clone, Copy)]
pub struct SmallHead {
    head: [u8; 2],
    bytes: usize,
}

impl core::ops::Deref for SmallHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.head.get(..self.bytes).unwrap_or_default()
    }
}

/// Reads an OBU. An OBU without a size field lasts to the end of the input.
pub fn read_obu<'a>(reader: &mut Reader<'a>) -> Result<Obu<'a>, Error> {
    let head = reader.u8()?;
    if head & 0x80 != 0 {
        return Err(Error::Invalid("obu_forbidden_bit"));
    }
    let extension = if head & HAS_EXTENSION != 0 { Some(reader.u8()?) } else { None };
    let body = if head & HAS_SIZE == 0 {
        reader.rest()
    } else {
        read_leb128(reader).and_then(|n| Ok(reader.take(n)?))?
    };
    Ok(Obu { kind: (head >> 3) & 0x0f, body, head, extension })
}

/// Reads a leb128() number (§4.10.5).
pub fn read_leb128(reader: &mut Reader<'_>) -> Result<usize, Error> {
    let mut value = 0u64;
    for index in 0..LEB128_BYTES_MAX {
        let byte = reader.u8()?;
        value |= u64::from(byte & 0x7f) << (index * 7);
        if byte & 0x80 == 0 {
            return usize::try_from(value).map_err(|_| Error::Invalid("leb128"));
        }
    }
    Err(Error::Invalid("leb128"))
}

/// Appends `value` as leb128() in as few bytes as possible.
pub fn put_leb128(value: usize, out: &mut BytesMut) {
    let mut rest = value;
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0);
        rest >>= 7;
        out.put_u8(if rest == 0 { low } else { low | 0x80 });
        if rest == 0 {
            return;
        }
    }
}

/// Returns the number of bytes that [`put_leb128`] appends.
#[must_use]
pub const fn leb128_bytes(value: usize) -> usize {
    let bits = usize::BITS - value.leading_zeros();
    let bytes = bits.div_ceil(7);
    if bytes == 0 { 1 } else { bytes as usize }
}

/// Reads max_frame_width and max_frame_height of a sequence_header_obu (§5.5.1).
pub fn picture_size(obu: &[u8]) -> Result<(u32, u32), Error> {
    let mut bits = BitReader::new(obu);
    bits.skip(4)?;
    let reduced = bits.bit()?;
    if reduced {
        bits.skip(5)?;
    } else {
        skip_operating_points(&mut bits)?;
    }
    let (width_bits, height_bits) = (bits.bits(4)? + 1, bits.bits(4)? + 1);
    // Each dimension has at most 16 bits.
    let (width, height) = (bits.bits(width_bits)? + 1, bits.bits(height_bits)? + 1);
    real_size(width, height).ok_or(Error::Invalid("frame size"))
}

/// Skips the fields from timing_info_present_flag to the last operating point (§5.5.1 to §5.5.5).
fn skip_operating_points(bits: &mut BitReader<'_>) -> Result<(), Truncated> {
    let mut delay_bits = None;
    if bits.bit()? {
        bits.skip(64)?;
        if bits.bit()? {
            // uvlc() is coded like ue(v).
            bits.ue()?;
        }
        if bits.bit()? {
            delay_bits = Some(usize::try_from(bits.bits(5)? + 1).unwrap_or(0));
            bits.skip(32 + 5 + 5)?;
        }
    }
    let initial_display_delay = bits.bit()?;
    for _ in 0..=bits.bits(5)? {
        bits.skip(12)?;
        let level = bits.bits(5)?;
        if level > 7 {
            bits.skip(1)?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.bit()?
        {
            bits.skip(delay_bits.saturating_mul(2).saturating_add(1))?;
        }
        if initial_display_delay && bits.bit()? {
            bits.skip(4)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record of SVT-AV1, 320x180, with its sequence header.
    const RECORD: &[u8] = &[
        0x81, 0x00, 0x0c, 0x00, 0x0a, 0x0b, 0x02, 0x00, 0x00, 0x05, 0x21, 0xe7, 0xf6, 0x60, 0x17, 0xc0, 0x02,
    ];

    fn read(bytes: &[u8]) -> Result<Config, Error> {
        Config::read(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn the_size_is_in_the_sequence_header_which_may_be_left_out() {
        let config = read(RECORD).unwrap();
        assert_eq!((config.profile, config.level, config.size), (0, 0, Some((320, 180))));
        assert_eq!(read(&RECORD[..4]).unwrap().size, None);
        // The same OBU without a size field.
        let bare = [&[0x81, 0, 0x0c, 0, 0x08], &RECORD[6..]].concat();
        assert_eq!(read(&bare).unwrap().size, Some((320, 180)));
    }

    #[test]
    fn timing_and_decoder_model_are_passed_over() {
        // Two operating points, with every optional field present. The picture is 16 x 16.
        let mut bits = String::from("000" /* profile */) + "0" /* still */ + "0" /* reduced */ + "1" /* timing */;
        bits += &"0".repeat(64);
        bits += "1010" /* equal interval, uvlc 1 */;
        bits += &("1".to_owned() + "00011" + &"0".repeat(42));
        bits += "1" /* display delay */;
        bits += "00001" /* two points */;
        bits += &("0".repeat(12) + "01000" + "1" + "1" + &"0".repeat(9) + "1" + "0000");
        bits += &("0".repeat(12) + "00111" + "0" + "0");
        bits += &("0011".to_owned() + "0011" + "1111" + "1111");
        bits += &"0".repeat(8 - bits.len() % 8);
        let bytes: Vec<u8> = bits
            .as_bytes()
            .chunks(8)
            .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 2).unwrap())
            .collect();
        assert_eq!(picture_size(&bytes), Ok((16, 16)));
        // If reduced_still_picture_header is set, the size directly follows the level.
        assert_eq!(picture_size(&[0b0001_1000, 0b0000_1100, 0b1111_1111, 0b1110_0000]), Ok((16, 16)));
    }

    #[test]
    fn m_20_lying_records_are_refused() {
        for end in (0..RECORD.len()).filter(|&end| end != 4) {
            assert!(read(&RECORD[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(read(&[0x01, 0, 0, 0]), Err(Error::Invalid("marker or version")));
        assert_eq!(read(&[0x81, 0, 0, 0, 0x8a, 0]), Err(Error::Invalid("obu_forbidden_bit")));
        let endless = [&RECORD[..5], &[0xff; 9]].concat();
        assert_eq!(read(&endless), Err(Error::Invalid("leb128")));
        assert_eq!(Config::read(vec![0x81; 65_537].into()), Err(Error::TooLarge(65_537)));
    }

    #[test]
    fn m_20_a_monstrous_size_is_no_size() {
        // reduced_still_picture_header is set. Width and height have 16 bits each: 65 536 x 65 536.
        let huge = [0b0001_1000, 0b0011_1111, 0b1111_1111, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(picture_size(&huge), Err(Error::Invalid("frame size")));
        assert!(picture_size(&[]).is_err());
    }
}
