//! FLAC: the STREAMINFO metadata block (RFC 9639 §8.2). Enhanced RTMP requires the stream marker and the block with its
//! header, but ffmpeg writes only the block's 34 bytes. Both forms are accepted and forwarded unchanged.

use bytes::{BufMut, Bytes, BytesMut};
use wire::{BitReader, Reader};

use super::{CONFIG_BYTES_MAX, Error};

/// The stream marker (§6).
const MARKER: &[u8; 4] = b"fLaC";
/// Length of STREAMINFO.
const STREAMINFO_BYTES: u32 = 34;
/// Header byte of a STREAMINFO that is the last metadata block (§8.1).
const LAST_STREAMINFO: u8 = 0x80;
/// Number of bits in STREAMINFO before the sample rate: block sizes and frame sizes.
const BITS_BEFORE_RATE: usize = 16 + 16 + 24 + 24;

/// A validated STREAMINFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The record as received, with or without its marker.
    pub record: Bytes,
    /// Sample rate in Hz.
    pub sample_rate: u32,
    /// Number of channels, 1 to 8.
    pub channels: u8,
}

impl Config {
    /// Parses a STREAMINFO, either after `fLaC` and its block header, or alone. Further blocks may follow.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        let mut reader = Reader::new(&record);
        if record.starts_with(MARKER) {
            reader.take(MARKER.len())?;
            if reader.u8()? & 0x7f != 0 || reader.u24()? != STREAMINFO_BYTES {
                return Err(Error::Invalid("STREAMINFO head"));
            }
        }
        let info = reader.array::<{ STREAMINFO_BYTES as usize }>()?;
        let mut bits = BitReader::new(&info);
        bits.skip(BITS_BEFORE_RATE)?;
        let sample_rate = bits.bits(20)?;
        if sample_rate == 0 {
            return Err(Error::Invalid("sample rate"));
        }
        let channels = u8::try_from(bits.bits(3)?).unwrap_or(0) + 1;
        Ok(Self { sample_rate, channels, record })
    }
}

impl Config {
    /// Parses the payload of a FLACSpecificBox (`dfLa`; Encapsulation of FLAC in ISO Base Media File Format §3.3.2):
    /// version and flags, then metadata blocks with their headers.
    pub fn of_dfla(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        if reader.u32()? != 0 {
            return Err(Error::Invalid("dfLa version or flags"));
        }
        let blocks = reader.rest();
        let mut out = BytesMut::with_capacity(blocks.len().saturating_add(MARKER.len()));
        out.put_slice(MARKER);
        out.put_slice(blocks);
        Self::read(out.freeze())
    }

    /// Returns the payload of a FLACSpecificBox; see [`Self::of_dfla`].
    #[must_use]
    pub fn dfla(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.record.len().saturating_add(8));
        out.put_u32(0);
        match self.record.strip_prefix(MARKER) {
            Some(blocks) => out.put_slice(blocks),
            None => {
                out.put_u8(LAST_STREAMINFO);
                out.put_uint(STREAMINFO_BYTES.into(), 3);
                out.put_slice(self.record.get(..STREAMINFO_BYTES as usize).unwrap_or(&self.record));
            }
        }
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streaminfo() -> Vec<u8> {
        let mut info = vec![4, 0, 4, 0, 0, 0, 0, 0, 0x10, 0x98, 0x0b, 0xb8, 0x02, 0xf0];
        info.resize(34, 0);
        info
    }

    #[test]
    fn the_block_is_read_alone_and_behind_its_marker() {
        let alone = Config::read(streaminfo().into()).unwrap();
        assert_eq!((alone.sample_rate, alone.channels), (48_000, 2));
        let marked = [&b"fLaC\x80\0\0\x22"[..], &streaminfo()].concat();
        let marked = Config::read(marked.into()).unwrap();
        assert_eq!((marked.sample_rate, marked.channels, marked.record.len()), (48_000, 2, 42));
    }

    #[test]
    fn m_20_lying_records_are_refused() {
        let good = [&b"fLaC\x80\0\0\x22"[..], &streaminfo()].concat();
        // A truncated marker is not recognized, so the bytes are taken for a block, which is too short.
        for end in 0..good.len() {
            assert!(Config::read(Bytes::copy_from_slice(&good[..end])).is_err(), "cut at {end}");
        }
        let mut other = good.clone();
        other[4] = 0x84;
        assert_eq!(Config::read(other.into()), Err(Error::Invalid("STREAMINFO head")));
        assert_eq!(Config::read(vec![0; 34].into()), Err(Error::Invalid("sample rate")));
        assert_eq!(Config::read(vec![1; 65_537].into()), Err(Error::TooLarge(65_537)));
    }

    #[test]
    fn the_box_of_mp4_has_the_blocks_with_their_heads() {
        let mut info = vec![0; 34];
        info[10..13].copy_from_slice(&[0x0b, 0xb8, 0x02]);
        let alone = Config::read(Bytes::from(info.clone())).unwrap();
        let boxed = alone.dfla();
        assert_eq!(boxed, [&[0, 0, 0, 0, 0x80, 0, 0, 34][..], &info].concat());
        let config = Config::of_dfla(&boxed).unwrap();
        assert_eq!((config.sample_rate, config.channels), (48_000, alone.channels));
        assert_eq!((config.record.len(), config.dfla()), (42, boxed.clone()));
        assert!(Config::of_dfla(&[&[1], &boxed[1..]].concat()).is_err());
        (0..boxed.len()).for_each(|end| assert!(Config::of_dfla(&boxed[..end]).is_err(), "cut at {end}"));
    }
}
