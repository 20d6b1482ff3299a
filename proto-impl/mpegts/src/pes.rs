//! The header of a PES packet (§2.4.3.6, §2.4.3.7).

use bytes::{BufMut, BytesMut};
use wire::Reader;

use crate::{CLOCK_MASK, Error};

/// packet_start_code_prefix.
const START_CODE: u32 = 1;
/// Length of the fixed part, PES_packet_length included.
pub(crate) const FIXED_BYTES: usize = 6;
/// Length of the flags and PES_header_data_length.
const FLAGS_BYTES: usize = 3;
/// Length of a PTS or DTS.
const TIME_BYTES: usize = 5;

/// stream_ids of packets without flags and times (table 2-21): program stream map, padding, private 2, ECM, EMM,
/// DSM-CC, H.222.1 type E, directory.
const WITHOUT_FLAGS: [u8; 8] = [0xbc, 0xbe, 0xbf, 0xf0, 0xf1, 0xf2, 0xf8, 0xff];

/// Header of a PES packet.
///
/// ```text
/// 00 00 01 | stream_id | PES_packet_length(16)
/// 10 | scrambling(2) | priority | alignment | copyright | original
/// PTS_DTS(2) ESCR ES_rate DSM copy_info CRC extension | PES_header_data_length(8) | PTS(40) | DTS(40) ...
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PesHeader {
    /// stream_id (table 2-22).
    pub stream_id: u8,
    /// Number of bytes after this field; 0 if the packet lasts until the next one begins.
    pub packet_length: u16,
    /// The payload is encrypted.
    pub scrambled: bool,
    /// An access unit begins with the first byte of the payload.
    pub aligned: bool,
    /// Presentation time: 33 bits of 90 kHz.
    pub pts: Option<u64>,
    /// Decoding time; `None` if it equals the presentation time.
    pub dts: Option<u64>,
    /// Offset of the payload.
    pub payload_at: usize,
}

impl PesHeader {
    /// Returns the total length of the packet that begins with `bytes`. `None` if there are too few bytes to
    /// decide, `Some(None)` if the packet has no stated length.
    #[must_use]
    pub(crate) fn total(bytes: &[u8]) -> Option<Option<usize>> {
        let length = u16::from_be_bytes(*bytes.get(4..FIXED_BYTES)?.first_chunk()?);
        Some((length > 0).then(|| FIXED_BYTES.saturating_add(usize::from(length))))
    }

    /// Reads the header of a complete packet.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        if reader.u24()? != START_CODE {
            return Err(Error::Invalid("packet_start_code_prefix"));
        }
        let stream_id = reader.u8()?;
        let packet_length = reader.u16()?;
        let plain = Self {
            stream_id,
            packet_length,
            scrambled: false,
            aligned: false,
            pts: None,
            dts: None,
            payload_at: FIXED_BYTES,
        };
        if WITHOUT_FLAGS.contains(&stream_id) {
            return Ok(plain);
        }
        let (first, second) = (reader.u8()?, reader.u8()?);
        if first & 0xc0 != 0x80 {
            return Err(Error::Invalid("PES flags"));
        }
        let length = usize::from(reader.u8()?);
        let payload_at = reader.position().saturating_add(length);
        let mut fields = reader.sub(length)?;
        let pts = if second & 0x80 == 0 { None } else { Some(read_time(&mut fields)?) };
        let dts = if second & 0xc0 == 0xc0 { Some(read_time(&mut fields)?) } else { None };
        let (scrambled, aligned) = (first & 0x30 != 0, first & 0x04 != 0);
        Ok(Self { scrambled, aligned, pts, dts, payload_at, ..plain })
    }

    /// Returns the length of a header from [`PesHeader::write`], with or without a DTS.
    pub(crate) const fn bytes(dts: bool) -> usize {
        FIXED_BYTES + FLAGS_BYTES + if dts { 2 * TIME_BYTES } else { TIME_BYTES }
    }

    /// Writes the header of a packet whose payload has `payload` bytes. The packet's length is written if it fits
    /// its field, so that a reader can complete the packet at its last byte. A DTS equal to the PTS is omitted.
    pub(crate) fn write(
        stream_id: u8,
        aligned: bool,
        pts: u64,
        dts: u64,
        payload: usize,
        out: &mut BytesMut,
    ) {
        let has_dts = pts & CLOCK_MASK != dts & CLOCK_MASK;
        let header_data = if has_dts { 2 * TIME_BYTES } else { TIME_BYTES };
        let length = u16::try_from(FLAGS_BYTES + header_data + payload).unwrap_or(0);
        out.put_uint(u64::from(START_CODE), 3);
        out.put_u8(stream_id);
        out.put_u16(length);
        out.put_u8(if aligned { 0x84 } else { 0x80 });
        out.put_u8(if has_dts { 0xc0 } else { 0x80 });
        out.put_u8(if has_dts { 10 } else { 5 });
        write_time(if has_dts { 3 } else { 2 }, pts, out);
        if has_dts {
            write_time(1, dts, out);
        }
    }
}

/// Reads a 33-bit time in five bytes. Marker bits are ignored, since some encoders omit them.
fn read_time(reader: &mut Reader<'_>) -> Result<u64, Error> {
    let (high, middle, low) = (reader.u8()?, reader.u16()?, reader.u16()?);
    Ok((u64::from(high >> 1 & 7) << 30) | (u64::from(middle >> 1) << 15) | u64::from(low >> 1))
}

fn write_time(prefix: u64, time: u64, out: &mut BytesMut) {
    let time = time & CLOCK_MASK;
    let (high, middle, low) = (time >> 30, (time >> 15) & 0x7fff, time & 0x7fff);
    out.put_uint(prefix << 36 | high << 33 | 1 << 32 | middle << 17 | 1 << 16 | low << 1 | 1, TIME_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_of_ffmpeg() {
        let bytes =
            [0, 0, 1, 0xe0, 0, 0, 0x84, 0xc0, 10, 0x31, 0, 0x07, 0xf4, 0xe1, 0x11, 0, 0x07, 0xd8, 0x61];
        let head = PesHeader::read(&bytes).unwrap();
        assert_eq!((head.stream_id, head.packet_length, head.aligned), (0xe0, 0, true));
        assert_eq!((head.pts, head.dts, head.payload_at), (Some(129_648), Some(126_000), 19));
        for end in 0..19 {
            assert!(PesHeader::read(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn heads_that_lie_are_refused() {
        assert!(PesHeader::read(&[0, 0, 2, 0xe0, 0, 0, 0x80, 0, 0]).is_err());
        // In MPEG-1, these bytes are not flags.
        assert!(PesHeader::read(&[0, 0, 1, 0xe0, 0, 0, 0x21, 0, 0]).is_err());
        // The PTS does not fit into the announced header data.
        assert!(PesHeader::read(&[0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 4, 0x21, 0, 1, 0, 1]).is_err());
        assert_eq!(PesHeader::read(&[0, 0, 1, 0xbe, 0, 1, 7]).unwrap().payload_at, 6);
    }

    proptest! {
        #[test]
        fn times_come_back(pts in 0..=CLOCK_MASK, dts in 0..=CLOCK_MASK, payload in 0usize..100_000) {
            let mut out = BytesMut::new();
            PesHeader::write(0xe0, true, pts, dts, payload, &mut out);
            let head = PesHeader::read(&out).unwrap();
            prop_assert_eq!((head.pts, head.dts.unwrap_or(pts)), (Some(pts), dts));
            prop_assert_eq!(head.payload_at, out.len());
            prop_assert_eq!(out.len(), PesHeader::bytes(pts != dts));
            let total = PesHeader::total(&out).unwrap();
            prop_assert_eq!(total.is_some(), payload + out.len() - 6 <= 65_535);
            prop_assert!(total.is_none_or(|total| total == out.len() + payload));
        }
    }
}
