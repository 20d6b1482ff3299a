//! Opus: the identification header (RFC 7845 §5.1), which is optional because every packet defines how to decode it;
//! and the control header before a packet in a transport stream (the "Opus in MPEG-TS" mapping of Xiph).

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};
use wire::Reader;

use super::{CONFIG_BYTES_MAX, Error};

/// Magic signature of the header.
const MAGIC: &[u8; 8] = b"OpusHead";
/// Supported major version: the high nibble of the version byte.
const VERSION_MAJOR: u8 = 0;
/// Number of channels if the header is empty: mapping family 0 and stereo, as in most streams.
const CHANNELS_DEFAULT: u8 = 2;

/// A validated identification header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The header as received; may be empty.
    pub record: Bytes,
    /// Number of output channels.
    pub channels: u8,
    /// Number of samples at 48 kHz to discard at the start.
    pub pre_skip: u16,
}

impl Config {
    /// Parses an identification header, which may be empty.
    pub fn read(record: Bytes) -> Result<Self, Error> {
        if record.len() > CONFIG_BYTES_MAX {
            return Err(Error::TooLarge(record.len()));
        }
        if record.is_empty() {
            return Ok(Self { record, channels: CHANNELS_DEFAULT, pre_skip: 0 });
        }
        let mut reader = Reader::new(&record);
        if &reader.array::<8>()? != MAGIC {
            return Err(Error::Invalid("OpusHead"));
        }
        if reader.u8()? >> 4 != VERSION_MAJOR {
            return Err(Error::Invalid("OpusHead version"));
        }
        let channels = reader.u8()?;
        if channels == 0 {
            return Err(Error::Invalid("channel count"));
        }
        let pre_skip = u16::from_le_bytes(reader.array()?);
        // Skip the input sample rate and the output gain.
        reader.take(4 + 2)?;
        let family = reader.u8()?;
        if family == 0 && channels > 2 {
            return Err(Error::Invalid("channel count"));
        }
        if family != 0 {
            reader.take(usize::from(channels).saturating_add(2))?;
        }
        Ok(Self { channels, pre_skip, record })
    }
}

/// Numbers of streams and of coupled streams, for 1 to 8 channels in the order of Vorbis (RFC 7845 §5.1.1.2).
const VORBIS_STREAMS: [[u8; 2]; 8] = [[1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [4, 2], [4, 3], [5, 3]];
/// Channel mappings by number of channels, in the order of Vorbis.
const VORBIS_MAPPINGS: [&[u8]; 8] = [
    &[0],
    &[0, 1],
    &[0, 2, 1],
    &[0, 1, 2, 3],
    &[0, 4, 1, 2, 3],
    &[0, 4, 1, 2, 3, 5],
    &[0, 4, 1, 2, 3, 5, 6],
    &[0, 6, 1, 2, 3, 4, 5, 7],
];
/// Sample rate in Hz of every Opus clock.
pub const SAMPLE_RATE: u32 = 48_000;

impl Config {
    /// Creates a header for this number of channels. Up to two channels use mapping family 0. Three
    /// to eight use family 1, in the channel order of Vorbis.
    pub fn of_channels(channels: u8) -> Result<Self, Error> {
        let index = usize::from(channels).checked_sub(1).ok_or(Error::Invalid("channel count"))?;
        let tables = VORBIS_STREAMS.get(index).zip(VORBIS_MAPPINGS.get(index));
        let (streams, mapping) = tables.ok_or(Error::Invalid("channel count"))?;
        let mut out = BytesMut::with_capacity(32);
        out.put_slice(MAGIC);
        out.put_slice(&[1, channels, 0, 0]);
        out.put_u32_le(SAMPLE_RATE);
        out.put_u16(0);
        if channels <= 2 {
            out.put_u8(0);
        } else {
            out.put_u8(1);
            out.put_slice(streams);
            out.put_slice(mapping);
        }
        Self::read(out.freeze())
    }
}

/// Length of an identification header before its channel mapping.
const HEAD_BYTES: usize = 19;

impl Config {
    /// Parses the payload of an OpusSpecificBox (`dOps`; Encapsulation of Opus in ISO Base Media File Format §4.3.2):
    /// an identification header of version 0, without magic signature and in big endian.
    pub fn of_dops(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        if reader.u8()? != 0 {
            return Err(Error::Invalid("dOps version"));
        }
        let channels = reader.u8()?;
        let (pre_skip, rate, gain) = (reader.u16()?, reader.u32()?, reader.u16()?);
        let mut out = BytesMut::with_capacity(HEAD_BYTES.saturating_add(reader.remaining()));
        out.put_slice(MAGIC);
        out.put_slice(&[1, channels]);
        out.put_u16_le(pre_skip);
        out.put_u32_le(rate);
        out.put_u16_le(gain);
        out.put_slice(reader.rest());
        Self::read(out.freeze())
    }

    /// Returns the payload of an OpusSpecificBox; see [`Self::of_dops`].
    pub fn dops(&self) -> Result<Bytes, Error> {
        if self.record.is_empty() {
            return Self::of_channels(self.channels)?.dops();
        }
        let mut reader = Reader::new(&self.record);
        reader.take(MAGIC.len() + 1)?;
        let mut out = BytesMut::with_capacity(self.record.len());
        out.put_slice(&[0, reader.u8()?]);
        out.put_u16(u16::from_le_bytes(reader.array()?));
        out.put_u32(reader.u32_le()?);
        out.put_u16(u16::from_le_bytes(reader.array()?));
        out.put_slice(reader.rest());
        Ok(out.freeze())
    }
}

/// Returns the number of samples at 48 kHz in a packet (RFC 6716 §3.1 and §3.2); `None` if the packet is invalid.
#[must_use]
pub fn packet_samples(packet: &[u8]) -> Option<u32> {
    let (toc, rest) = packet.split_first()?;
    let config = toc >> 3;
    let frame = match config {
        0..=11 => [480, 960, 1920, 2880].get(usize::from(config & 3)),
        12..=15 => [480, 960].get(usize::from(config & 1)),
        _ => [120, 240, 480, 960].get(usize::from(config & 3)),
    }?;
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(rest.first()? & 0x3f),
    };
    // A packet lasts at most 120 ms, which are 5760 samples.
    frames.checked_mul(*frame).filter(|samples| (1..=5760).contains(samples))
}

/// The control header before a packet in a transport stream.
///
/// ```text
/// 0x3ff(11) | start_trim(1) | end_trim(1) | extension(1) | 0(2) | au_size(8, and 8 more after each 255) | trims(16 each) | ...
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Length of the header.
    pub header_bytes: usize,
    /// Length of the packet after the header.
    pub packet_bytes: usize,
}

impl Control {
    /// Parses a header.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let head = reader.u16()?;
        if head >> 5 != CONTROL_PREFIX {
            return Err(Error::Invalid("control_header_prefix"));
        }
        let mut packet_bytes = 0usize;
        loop {
            let byte = reader.u8()?;
            packet_bytes = packet_bytes.saturating_add(usize::from(byte));
            if byte != 0xff {
                break;
            }
            if packet_bytes > PACKET_BYTES_MAX {
                return Err(Error::Invalid("au_size"));
            }
        }
        for flag in [0x10, 0x08] {
            if head & flag != 0 {
                reader.take(2)?;
            }
        }
        if head & 0x04 != 0 {
            let length = reader.u8()?;
            reader.take(usize::from(length))?;
        }
        if packet_bytes == 0 {
            return Err(Error::Invalid("au_size"));
        }
        Ok(Self { header_bytes: reader.position(), packet_bytes })
    }

    /// Returns the header of a packet of `packet_bytes` bytes, without trims.
    #[must_use]
    pub fn write(packet_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(packet_bytes / 255 + 3);
        out.extend_from_slice(&(CONTROL_PREFIX << 5).to_be_bytes());
        out.resize(packet_bytes / 255 + 2, 0xff);
        out.push(u8::try_from(packet_bytes % 255).unwrap_or(0));
        out
    }
}

/// control_header_prefix.
const CONTROL_PREFIX: u16 = 0x3ff;
/// Maximum size of a packet in bytes. No valid packet is larger: 120 ms of 255 channels at the
/// highest bit rate fit.
const PACKET_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Identification header of libopus, written by ffmpeg.
    const HEAD: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";

    #[test]
    fn the_header_is_read_and_may_be_empty() {
        let config = Config::read(Bytes::from_static(HEAD)).unwrap();
        assert_eq!((config.channels, config.pre_skip), (2, 312));
        assert_eq!(Config::read(Bytes::new()).unwrap().channels, 2);
        let surround = [&HEAD[..9], &[6], &HEAD[10..18], &[1, 4, 2, 0, 4, 1, 2, 3, 5]].concat();
        assert_eq!(Config::read(surround.into()).unwrap().channels, 6);
    }

    #[test]
    fn m_20_lying_headers_are_refused() {
        for end in 1..HEAD.len() {
            assert!(Config::read(Bytes::from_static(&HEAD[..end])).is_err(), "cut at {end}");
        }
        let with = |at: usize, byte: u8| {
            let mut head = HEAD.to_vec();
            head[at] = byte;
            Config::read(head.into())
        };
        assert_eq!(with(0, b'o'), Err(Error::Invalid("OpusHead")));
        assert_eq!(with(8, 0x10), Err(Error::Invalid("OpusHead version")));
        assert_eq!(with(9, 0), Err(Error::Invalid("channel count")));
        assert_eq!(with(9, 3), Err(Error::Invalid("channel count")));
        assert!(with(18, 1).is_err());
        assert_eq!(Config::read(vec![b'O'; 65_537].into()), Err(Error::TooLarge(65_537)));
    }

    #[test]
    fn control_headers_are_read_and_written() {
        for size in [1, 254, 255, 256, 510, 1275, 7000] {
            let header = Control::write(size);
            assert_eq!(
                Control::read(&header),
                Ok(Control { header_bytes: header.len(), packet_bytes: size }),
                "{size}"
            );
        }
        // The first packet of libopus in a file of ffmpeg has a start trim. A header may also have an end trim and an
        // extension.
        let trimmed = [0x7f, 0xf0, 3, 1, 0x38];
        assert_eq!(Control::read(&trimmed), Ok(Control { header_bytes: 5, packet_bytes: 3 }));
        let all = [0x7f, 0xfc, 3, 0, 0, 0, 0, 1, 9];
        assert_eq!(Control::read(&all).unwrap().header_bytes, 9);
        for lie in
            [&[0x7f][..], &[0x7f, 0xe0], &[0x7f, 0xe0, 255], &[0x7f, 0xe0, 0], &[0xff, 0xe0, 1], &all[..8]]
        {
            assert!(Control::read(lie).is_err(), "{lie:?}");
        }
    }

    #[test]
    fn the_box_of_mp4_is_the_header_in_another_order() {
        // The box that ffmpeg writes.
        let dops = [0, 2, 1, 0x38, 0, 0, 0xbb, 0x80, 0, 0, 0];
        let config = Config::of_dops(&dops).unwrap();
        assert_eq!((&config.record[..], config.pre_skip), (HEAD, 312));
        assert_eq!(config.dops().unwrap(), dops[..]);
        for channels in 1..=8 {
            let config = Config::of_channels(channels).unwrap();
            assert_eq!(Config::of_dops(&config.dops().unwrap()).unwrap(), config);
        }
        let none = Config::read(Bytes::new()).unwrap();
        assert_eq!(Config::of_dops(&none.dops().unwrap()).unwrap().channels, 2);
        assert!(Config::of_dops(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        (0..dops.len()).for_each(|end| assert!(Config::of_dops(&dops[..end]).is_err(), "cut at {end}"));
    }

    #[test]
    fn packets_say_how_long_they_last() {
        assert_eq!(packet_samples(&[0xfc, 0]), Some(960));
        assert_eq!(packet_samples(&[0x08]), Some(960));
        assert_eq!(packet_samples(&[0x19]), Some(5760));
        assert_eq!(packet_samples(&[0xe3, 3]), Some(360));
        for none in [&[][..], &[0xe3], &[0xe3, 0], &[0x1b, 3]] {
            assert_eq!(packet_samples(none), None);
        }
    }

    #[test]
    fn headers_of_channels_are_those_of_the_standard() {
        for channels in 1..=8 {
            assert_eq!(Config::of_channels(channels).unwrap().channels, channels);
        }
        assert!(Config::of_channels(0).is_err() && Config::of_channels(9).is_err());
    }
}
