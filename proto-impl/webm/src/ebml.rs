//! EBML elements: IDs, sizes and values (RFC 8794 §4 to §7).
//!
//! ```text
//! element: ID (1 to 4 bytes) | size of the body (1 to 8 bytes) | body
//! VINT:    1xxxxxxx | 01xxxxxx x*8 | 001xxxxx x*16 | ...      if all x of a size are 1, the size is unknown
//! ```

use bytes::{BufMut, BytesMut};
use wire::Reader;

use crate::Error;

/// IDs of the elements that are read or written here (RFC 9559 §5.1; RFC 8794 §11.2).
pub mod id {
    #![allow(missing_docs, reason = "the names of the standard")]

    pub const EBML: u32 = 0x1a45_dfa3;
    pub const EBML_VERSION: u32 = 0x4286;
    pub const EBML_READ_VERSION: u32 = 0x42f7;
    pub const EBML_MAX_ID_LENGTH: u32 = 0x42f2;
    pub const EBML_MAX_SIZE_LENGTH: u32 = 0x42f3;
    pub const DOC_TYPE: u32 = 0x4282;
    pub const DOC_TYPE_VERSION: u32 = 0x4287;
    pub const DOC_TYPE_READ_VERSION: u32 = 0x4285;
    pub const VOID: u32 = 0xec;
    pub const SEGMENT: u32 = 0x1853_8067;
    pub const SEEK_HEAD: u32 = 0x114d_9b74;
    pub const SEEK: u32 = 0x4dbb;
    pub const SEEK_ID: u32 = 0x53ab;
    pub const SEEK_POSITION: u32 = 0x53ac;
    pub const INFO: u32 = 0x1549_a966;
    pub const TIMESTAMP_SCALE: u32 = 0x002a_d7b1;
    pub const DURATION: u32 = 0x4489;
    pub const MUXING_APP: u32 = 0x4d80;
    pub const WRITING_APP: u32 = 0x5741;
    pub const TRACKS: u32 = 0x1654_ae6b;
    pub const TRACK_ENTRY: u32 = 0xae;
    pub const TRACK_NUMBER: u32 = 0xd7;
    pub const TRACK_UID: u32 = 0x73c5;
    pub const TRACK_TYPE: u32 = 0x83;
    pub const FLAG_LACING: u32 = 0x9c;
    pub const LANGUAGE: u32 = 0x0022_b59c;
    pub const CODEC_ID: u32 = 0x86;
    pub const CODEC_PRIVATE: u32 = 0x63a2;
    pub const CODEC_DELAY: u32 = 0x56aa;
    pub const SEEK_PRE_ROLL: u32 = 0x56bb;
    pub const VIDEO: u32 = 0xe0;
    pub const PIXEL_WIDTH: u32 = 0xb0;
    pub const PIXEL_HEIGHT: u32 = 0xba;
    pub const COLOUR: u32 = 0x55b0;
    pub const MATRIX_COEFFICIENTS: u32 = 0x55b1;
    pub const BITS_PER_CHANNEL: u32 = 0x55b2;
    pub const RANGE: u32 = 0x55b9;
    pub const TRANSFER_CHARACTERISTICS: u32 = 0x55ba;
    pub const PRIMARIES: u32 = 0x55bb;
    pub const AUDIO: u32 = 0xe1;
    pub const SAMPLING_FREQUENCY: u32 = 0xb5;
    pub const CHANNELS: u32 = 0x9f;
    pub const CLUSTER: u32 = 0x1f43_b675;
    pub const TIMESTAMP: u32 = 0xe7;
    pub const SIMPLE_BLOCK: u32 = 0xa3;
    pub const CUES: u32 = 0x1c53_bb6b;
    pub const CUE_POINT: u32 = 0xbb;
    pub const CUE_TIME: u32 = 0xb3;
    pub const CUE_TRACK_POSITIONS: u32 = 0xb7;
    pub const CUE_TRACK: u32 = 0xf7;
    pub const CUE_CLUSTER_POSITION: u32 = 0xf1;
}

/// Maximum length of the header of an element in bytes.
pub const HEAD_BYTES_MAX: usize = 12;
/// Maximum length of an ID in bytes (EBMLMaxIDLength).
const ID_BYTES_MAX: usize = 4;
/// Length in bytes of a size field that is overwritten later.
pub(crate) const WIDE_SIZE_BYTES: usize = 8;
/// Unknown size in eight bytes.
pub(crate) const UNKNOWN_SIZE: [u8; WIDE_SIZE_BYTES] = [0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

/// Header of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// ID of the element as in the file, with its marker.
    pub id: u32,
    /// Length of the header in bytes.
    pub bytes: usize,
    /// Length of the body in bytes, or `None` if it is unknown.
    pub size: Option<u64>,
}

impl Head {
    /// Reads the header at the start of the bytes.
    ///
    /// # Errors
    /// Returns an error if the header is incomplete or invalid.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let id = read_id(&mut reader)?;
        let size = read_size(&mut reader)?;
        Ok(Self { id, bytes: reader.position(), size })
    }
}

/// Number of bytes that follow the first byte of a variable-length number, or `None` if the first byte is zero.
fn length(first: u8) -> Option<usize> {
    usize::try_from(first.leading_zeros()).ok().filter(|zeros| *zeros < 8)
}

fn read_id(reader: &mut Reader<'_>) -> Result<u32, Error> {
    let first = reader.u8()?;
    let more = length(first).filter(|more| *more < ID_BYTES_MAX).ok_or(Error::Invalid("element ID"))?;
    let id = reader.take(more)?.iter().fold(u32::from(first), |id, byte| id << 8 | u32::from(*byte));
    let marker = 1u32 << (7 * more + 7);
    // The value bits must be neither all zeros nor all ones (RFC 8794 §5).
    if id == marker || id == marker * 2 - 1 {
        return Err(Error::Invalid("element ID"));
    }
    Ok(id)
}

/// Reads a size. Returns `None` if it is unknown because all its bits are 1 (RFC 8794 §6.2).
fn read_size(reader: &mut Reader<'_>) -> Result<Option<u64>, Error> {
    let (value, bits) = read_vint(reader)?;
    Ok(Some(value).filter(|value| *value != (1 << bits) - 1))
}

/// Reads a variable-length number. Returns the number without its marker, and the number of its bits.
pub(crate) fn read_vint(reader: &mut Reader<'_>) -> Result<(u64, usize), Error> {
    let first = reader.u8()?;
    let more = length(first).ok_or(Error::Invalid("element size"))?;
    let low = u64::from(first) & (0x7f >> more);
    let value = reader.take(more)?.iter().fold(low, |value, byte| value << 8 | u64::from(*byte));
    Ok((value, 7 * (more + 1)))
}

/// Reads the next element of a body and returns its ID and its body.
pub(crate) fn read_element<'a>(reader: &mut Reader<'a>) -> Result<(u32, &'a [u8]), Error> {
    let id = read_id(reader)?;
    let size = read_size(reader)?.ok_or(Error::Invalid("element size"))?;
    let size = usize::try_from(size).map_err(|_| Error::TooLarge { id, size })?;
    Ok((id, reader.take(size)?))
}

/// Reads an unsigned integer (RFC 8794 §7.2).
pub(crate) fn read_uint(body: &[u8]) -> Result<u64, Error> {
    if body.len() > 8 {
        return Err(Error::Invalid("integer"));
    }
    Ok(body.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Reads a floating-point number (RFC 8794 §7.3).
pub(crate) fn read_float(body: &[u8]) -> Result<f64, Error> {
    if let Ok(bytes) = body.try_into() {
        return Ok(f64::from_be_bytes(bytes));
    }
    match body.try_into() {
        Ok(bytes) => Ok(f32::from_be_bytes(bytes).into()),
        Err(_) if body.is_empty() => Ok(0.0),
        Err(_) => Err(Error::Invalid("floating-point number")),
    }
}

/// Appends an ID.
pub(crate) fn put_id(out: &mut BytesMut, id: u32) {
    let bytes = id.to_be_bytes();
    let zeros = usize::try_from(id.leading_zeros() / 8).unwrap_or(0);
    out.put_slice(bytes.get(zeros..).unwrap_or_default());
}

/// Appends a size in `width` bytes, 1 to 8. The size must fit in them, and its bits must not be all ones.
pub(crate) fn put_size(out: &mut BytesMut, size: u64, width: usize) {
    let bytes = (size | 1u64 << (7 * width.min(8))).to_be_bytes();
    out.put_slice(bytes.get(8usize.saturating_sub(width)..).unwrap_or_default());
}

/// Minimum number of bytes for a size. A size whose bits are all ones is avoided, because it means an unknown
/// size.
pub(crate) const fn size_bytes(size: u64) -> usize {
    let mut width = 1;
    while width < 8 && size >= (1 << (7 * width)) - 1 {
        width += 1;
    }
    width
}

/// Appends an element with a binary body.
pub(crate) fn put_binary(out: &mut BytesMut, id: u32, body: &[u8]) {
    put_id(out, id);
    put_size(out, body.len() as u64, size_bytes(body.len() as u64));
    out.put_slice(body);
}

/// Appends an element with an unsigned integer in as few bytes as possible.
pub(crate) fn put_uint(out: &mut BytesMut, id: u32, value: u64) {
    let zeros = usize::try_from(value.leading_zeros() / 8).unwrap_or(0).min(7);
    put_binary(out, id, value.to_be_bytes().get(zeros..).unwrap_or_default());
}

/// Appends an element with a floating-point number of eight bytes.
pub(crate) fn put_float(out: &mut BytesMut, id: u32, value: f64) {
    put_binary(out, id, &value.to_be_bytes());
}

/// Appends an element whose body consists of the elements that `write` appends.
pub(crate) fn put_master(out: &mut BytesMut, id: u32, write: impl FnOnce(&mut BytesMut)) {
    let mut body = BytesMut::new();
    write(&mut body);
    put_binary(out, id, &body);
}

/// Length in bytes of the header of a `Void`, whatever the length of its body.
pub(crate) const VOID_HEAD_BYTES: usize = 1 + WIDE_SIZE_BYTES;

/// Appends a `Void` of `bytes` bytes in total, at least 9 (RFC 8794 §11.3.2).
pub(crate) fn put_void(out: &mut BytesMut, bytes: usize) {
    let body = bytes.saturating_sub(VOID_HEAD_BYTES);
    put_id(out, id::VOID);
    put_size(out, body as u64, WIDE_SIZE_BYTES);
    out.put_bytes(0, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_sizes_are_as_the_standard_writes_them() {
        for (bytes, id, size) in [
            (&[0x1a, 0x45, 0xdf, 0xa3, 0x9f][..], id::EBML, Some(0x1f)),
            (&[0xec, 0x01, 0, 0, 0, 0, 0, 0, 7], id::VOID, Some(7)),
            (&[0x42, 0x86, 0x40, 0x7f], id::EBML_VERSION, Some(127)),
            (&[0x18, 0x53, 0x80, 0x67, 0xff], id::SEGMENT, None),
            (&[0x18, 0x53, 0x80, 0x67, 0x01, 255, 255, 255, 255, 255, 255, 255], id::SEGMENT, None),
            (&[0x2a, 0xd7, 0xb1, 0x83], id::TIMESTAMP_SCALE, Some(3)),
        ] {
            assert_eq!(Head::read(bytes), Ok(Head { id, bytes: bytes.len(), size }));
            let mut out = BytesMut::new();
            put_id(&mut out, id);
            assert!(bytes.starts_with(&out), "{id:x}");
            (0..bytes.len())
                .for_each(|cut| assert!(Head::read(&bytes[..cut]).is_err(), "{id:x} cut at {cut}"));
        }
        for none in [
            &[0; 12][..],
            &[0x08, 0x80, 0, 0, 0, 0x80],
            &[0x80, 0x80],
            &[0xff, 0x80],
            &[0x40, 0, 0x80],
            &[0x7f, 0xff, 0x80],
            &[0xec, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert!(Head::read(none).is_err(), "{none:?}");
        }
    }

    #[test]
    fn sizes_take_as_many_bytes_as_they_need_and_are_never_unknown() {
        for size in [0, 1, 126, 127, 128, 16_382, 16_383, 2_097_150, 2_097_151, (1 << 35) - 1, (1 << 49) - 1]
        {
            let mut out = BytesMut::new();
            put_id(&mut out, id::VOID);
            put_size(&mut out, size, size_bytes(size));
            assert_eq!(Head::read(&out), Ok(Head { id: id::VOID, bytes: out.len(), size: Some(size) }));
        }
        assert_eq!((size_bytes(126), size_bytes(127), size_bytes(16_383)), (1, 2, 3));
        let mut out = BytesMut::new();
        put_size(&mut out, 5, WIDE_SIZE_BYTES);
        assert_eq!(out[..], [1, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut out = BytesMut::new();
        let integers = [0, 1, 255, 256, 1_000_000, u64::MAX];
        integers.iter().for_each(|value| put_uint(&mut out, id::CUE_TIME, *value));
        put_float(&mut out, id::DURATION, 1234.5);
        put_void(&mut out, 9);
        put_void(&mut out, 300);
        let mut reader = Reader::new(&out);
        for value in integers {
            let (id, body) = read_element(&mut reader).unwrap();
            assert_eq!((id, read_uint(body)), (id::CUE_TIME, Ok(value)));
        }
        assert_eq!(read_element(&mut reader).map(|(_, body)| read_float(body)), Ok(Ok(1234.5)));
        assert_eq!(read_element(&mut reader), Ok((id::VOID, &[][..])));
        assert_eq!(read_element(&mut reader).unwrap().1.len(), 291);
        assert!(reader.is_empty());
        assert_eq!((read_float(&1.5f32.to_be_bytes()), read_float(&[])), (Ok(1.5), Ok(0.0)));
        assert!(read_float(&[1]).is_err() && read_uint(&[0; 9]).is_err());
    }
}
