//! The header of an RTP packet (RFC 3550 §5.1):
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |V=2|P|X|  CC   |M|     PT      |       sequence number         |
//! |                           timestamp                           |
//! |                             SSRC                              |
//! |                     CSRC, CC of them ...                      |
//! |      extension's profile      |  length in 32-bit words       |  with X
//! |                          extension ...                        |
//! ```
//!
//! Extension blocks are read by [`crate::extension`].

use alloc::vec::Vec;

use sdp::PayloadType;
use wire::{Reader, Truncated};

use crate::Error;
use crate::number::{SequenceNumber, Ssrc};

/// Length of a header without CSRCs and extension.
pub const HEADER_BYTES: usize = 12;
/// Largest number of CSRCs: the field has four bits.
pub const CSRCS_MAX: usize = 15;
/// Length of the extension header, which precedes the block's data.
pub const EXTENSION_HEAD_BYTES: usize = 4;

const VERSION: u8 = 2;
const PADDING: u8 = 0x20;
const EXTENSION: u8 = 0x10;
const CSRC_COUNT: u8 = 0x0f;
const MARKER: u8 = 0x80;
const PAYLOAD_TYPE: u8 = 0x7f;
const WORD_BYTES: usize = 4;

/// RTP header. Parts of variable length are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Marker bit: for video, set on the last packet of a frame; for audio, on the first after silence.
    pub marker: bool,
    /// Payload type.
    pub payload_type: PayloadType,
    /// Sequence number, which counts the packets of the source.
    pub sequence_number: SequenceNumber,
    /// Sampling time of the payload's first byte, in ticks of the payload type's clock.
    pub timestamp: u32,
    /// Synchronization source.
    pub ssrc: Ssrc,
    /// Contributing sources of a mixer.
    pub csrcs: Csrcs<'a>,
    /// Header extension block.
    pub extension: Option<ExtensionBlock<'a>>,
}

/// Contributing sources, as bytes in whole words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Csrcs<'a>(&'a [u8]);

impl Csrcs<'_> {
    /// Iterates over the contributing sources.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ssrc> + '_ {
        self.0.as_chunks::<WORD_BYTES>().0.iter().map(|word| Ssrc(u32::from_be_bytes(*word)))
    }

    /// The number of contributing sources, up to [`CSRCS_MAX`].
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len() / WORD_BYTES
    }

    /// True if there are no contributing sources.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Header extension block as in the packet (RFC 3550 §5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtensionBlock<'a> {
    /// Profile of the block: 0xBEDE or 0x1000 for RFC 8285.
    pub profile: u16,
    /// Data of the block, in whole words.
    pub bytes: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads the header at the beginning of `packet`. Padding at the packet's end is not checked.
    pub fn read(packet: &'a [u8]) -> Result<Self, Error> {
        Self::read_from(&mut Reader::new(packet)).map(|(header, _)| header)
    }

    /// Reads a header. The boolean is true if it announces padding.
    fn read_from(r: &mut Reader<'a>) -> Result<(Self, bool), Error> {
        let [first, second] = r.array()?;
        if first >> 6 != VERSION {
            return Err(Error::Version(first >> 6));
        }
        // A value of seven bits is always valid.
        let payload_type = PayloadType::new(second & PAYLOAD_TYPE).ok_or(Error::Malformed("payload type"))?;
        let sequence_number = SequenceNumber(r.u16()?);
        let timestamp = r.u32()?;
        let ssrc = Ssrc(r.u32()?);
        let csrcs = Csrcs(r.take(usize::from(first & CSRC_COUNT).saturating_mul(WORD_BYTES))?);
        let extension = if first & EXTENSION == 0 {
            None
        } else {
            let profile = r.u16()?;
            let words = usize::from(r.u16()?);
            Some(ExtensionBlock { profile, bytes: r.take(words.saturating_mul(WORD_BYTES))? })
        };
        let marker = second & MARKER != 0;
        let header = Self { marker, payload_type, sequence_number, timestamp, ssrc, csrcs, extension };
        Ok((header, first & PADDING != 0))
    }

    /// The number of bytes that [`Header::write`] appends.
    #[must_use]
    pub fn length(&self) -> usize {
        let extension = self.extension.map_or(0, |block| {
            EXTENSION_HEAD_BYTES.saturating_add(words(block.bytes).saturating_mul(WORD_BYTES))
        });
        HEADER_BYTES.saturating_add(self.csrcs.0.len()).saturating_add(extension)
    }

    /// Appends the header. Zeros pad an extension block to whole words; in both forms of RFC 8285, zeros are
    /// padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_with(false, out);
    }

    /// Like [`Header::write`], announcing padding: the last byte of the packet is the number of padding bytes.
    pub fn write_padded(&self, out: &mut Vec<u8>) {
        self.write_with(true, out);
    }

    fn write_with(&self, padding: bool, out: &mut Vec<u8>) {
        let mut first = VERSION << 6 | u8::try_from(self.csrcs.len()).unwrap_or(0) & CSRC_COUNT;
        first |= if padding { PADDING } else { 0 };
        first |= if self.extension.is_some() { EXTENSION } else { 0 };
        let second = self.payload_type.number() | if self.marker { MARKER } else { 0 };
        let [sequence_high, sequence_low] = self.sequence_number.0.to_be_bytes();
        let [t0, t1, t2, t3] = self.timestamp.to_be_bytes();
        let [s0, s1, s2, s3] = self.ssrc.0.to_be_bytes();
        out.extend_from_slice(&[first, second, sequence_high, sequence_low, t0, t1, t2, t3, s0, s1, s2, s3]);
        out.extend_from_slice(self.csrcs.0);
        if let Some(block) = self.extension {
            let words = words(block.bytes);
            out.extend_from_slice(&block.profile.to_be_bytes());
            out.extend_from_slice(&u16::try_from(words).unwrap_or(u16::MAX).to_be_bytes());
            out.extend_from_slice(block.bytes);
            let missing = words.saturating_mul(WORD_BYTES).saturating_sub(block.bytes.len());
            out.extend(core::iter::repeat_n(0, missing));
        }
    }
}

const fn words(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(WORD_BYTES)
}

/// Returns the length of the header including CSRCs and extension block, all of which SRTP leaves unencrypted.
/// Faster than [`Header::read`], since it checks nothing else.
pub fn header_length(packet: &[u8]) -> Result<usize, Error> {
    let Some((fixed, rest)) = packet.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Truncated { at: 0, need: HEADER_BYTES.saturating_sub(packet.len()) }.into());
    };
    let [first, ..] = *fixed;
    if first >> 6 != VERSION {
        return Err(Error::Version(first >> 6));
    }
    let csrcs = usize::from(first & CSRC_COUNT) * WORD_BYTES;
    let mut length = HEADER_BYTES + csrcs;
    if first & EXTENSION != 0 {
        let head = rest.get(csrcs..).and_then(<[u8]>::first_chunk::<EXTENSION_HEAD_BYTES>);
        let Some(&[_, _, high, low]) = head else {
            return Err(Truncated { at: length, need: EXTENSION_HEAD_BYTES }.into());
        };
        length += EXTENSION_HEAD_BYTES + usize::from(u16::from_be_bytes([high, low])) * WORD_BYTES;
    }
    if length > packet.len() {
        return Err(Truncated { at: packet.len(), need: length.saturating_sub(packet.len()) }.into());
    }
    Ok(length)
}

/// A complete RTP packet, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header<'a>,
    /// The payload without padding; empty in padding-only packets.
    pub payload: &'a [u8],
    /// Number of padding bytes after the payload, including the count byte.
    pub padding: u8,
}

impl<'a> Packet<'a> {
    /// Reads an unencrypted packet.
    pub fn read(packet: &'a [u8]) -> Result<Self, Error> {
        let mut r = Reader::new(packet);
        let (header, padded) = Header::read_from(&mut r)?;
        let rest = r.rest();
        if !padded {
            return Ok(Self { header, payload: rest, padding: 0 });
        }
        let padding = rest.last().copied().unwrap_or(0);
        let payload = rest.len().checked_sub(usize::from(padding)).filter(|_| padding > 0);
        let payload = payload.and_then(|length| rest.get(..length)).ok_or(Error::Padding(padding))?;
        Ok(Self { header, payload, padding })
    }

    /// Appends the packet; padding is written as zeros followed by the count.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.header.write_with(self.padding > 0, out);
        out.extend_from_slice(self.payload);
        write_padding(self.padding, out);
    }
}

/// Appends padding of `count` bytes: zeros followed by the count.
pub fn write_padding(count: u8, out: &mut Vec<u8>) {
    if let Some(zeros) = count.checked_sub(1) {
        out.extend(core::iter::repeat_n(0, usize::from(zeros)));
        out.push(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(number: u16) -> Header<'static> {
        Header {
            marker: true,
            payload_type: PayloadType::new(96).unwrap(),
            sequence_number: SequenceNumber(number),
            timestamp: 0x0102_0304,
            ssrc: Ssrc(0xdead_beef),
            csrcs: Csrcs::default(),
            extension: None,
        }
    }

    fn written(packet: &Packet<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        packet.write(&mut out);
        out
    }

    #[test]
    fn a_head_stands_as_in_the_rfc() {
        let mut bytes = Vec::new();
        header(0x1234).write(&mut bytes);
        assert_eq!(bytes, [0x80, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!((Header::read(&bytes), header_length(&bytes)), (Ok(header(0x1234)), Ok(12)));
    }

    #[test]
    fn contributors_extension_and_padding_read_what_they_write() {
        let csrcs: Vec<u8> = (0..60).collect();
        let block = ExtensionBlock { profile: 0xbede, bytes: &[0x10, 7, 0, 0] };
        let full = Header { csrcs: Csrcs(&csrcs), extension: Some(block), ..header(1) };
        let packet = Packet { header: full, payload: b"payload", padding: 5 };
        let bytes = written(&packet);
        assert_eq!(Packet::read(&bytes), Ok(packet));
        assert_eq!((header_length(&bytes), full.length()), (Ok(80), 80));
        assert_eq!(full.csrcs.iter().nth(1), Some(Ssrc(0x0405_0607)));
        assert_eq!((full.csrcs.len(), bytes[0]), (CSRCS_MAX, 0xbf));

        let odd = Header { extension: Some(ExtensionBlock { profile: 0x1000, bytes: &[1; 5] }), ..header(1) };
        let bytes = written(&Packet { header: odd, payload: &[], padding: 0 });
        assert_eq!(bytes.len(), odd.length());
        assert_eq!(Header::read(&bytes).unwrap().extension.unwrap().bytes, [1, 1, 1, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let bytes = |first: u8, rest: &[u8]| {
            let mut bytes = written(&Packet { header: header(1), payload: rest, padding: 0 });
            bytes[0] = first;
            bytes
        };
        for (first, rest, what) in [
            (0x40, &[0; 4][..], Error::Version(1)),
            (0x80 | PADDING, &[], Error::Padding(0)),
            (0x80 | PADDING, &[1, 0], Error::Padding(0)),
            (0x80 | PADDING, &[1, 255], Error::Padding(255)),
            (0x80 | PADDING, &[1, 3], Error::Padding(3)),
            (0x8f, &[0; 59], Error::Truncated(Truncated { at: 12, need: 1 })),
            (0x90, &[0xbe, 0xde, 0xff, 0xff], Error::Truncated(Truncated { at: 16, need: 262_140 })),
        ] {
            assert_eq!(Packet::read(&bytes(first, rest)), Err(what));
        }
        // A packet may consist of padding only, when its sender probes the path.
        assert_eq!(Packet::read(&bytes(0xa0, &[0, 0, 3])).unwrap().payload, b"");
    }

    proptest! {
        #[test]
        fn both_ways_to_the_head_agree(mut bytes in prop::collection::vec(any::<u8>(), 0..120), small in any::<bool>()) {
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x3f | 0x80;
            }
            if small && bytes.len() > 15 {
                (bytes[14], bytes[15]) = (0, bytes[15] % 8);
            }
            let read = Header::read(&bytes);
            prop_assert_eq!(read.is_ok(), header_length(&bytes).is_ok());
            if let Ok(header) = read {
                prop_assert_eq!(header.length(), header_length(&bytes).unwrap());
                let mut again = Vec::new();
                header.write(&mut again);
                again[0] |= bytes[0] & PADDING;
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }
    }
}
