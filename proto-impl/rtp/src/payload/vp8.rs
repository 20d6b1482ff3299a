//! VP8 (RFC 7741 §4.2).
//!
//! ```text
//! descriptor   X(1) R(1) N(1) S(1) R(1) PID(3)
//!    if X      I(1) L(1) T(1) K(1) RSV(4)
//!    if I      M(1) PictureID(7, or 15 when M is set)
//!    if L      TL0PICIDX(8)
//!    if T or K TID(2) Y(1) KEYIDX(5)
//! ```

use bytes::BytesMut;
use wire::{Reader, Truncated};

use super::continuity::PictureNumber;
use super::frames::{Assemble, Ending};
use super::{Error, Payloads, fragments};

/// Length of the descriptor in sent packets. The descriptor has no picture id: when a viewer is switched to
/// another rendition, the id would jump backwards, and browsers would drop packets for seconds. Without an
/// id, browsers rely on sequence numbers.
const DESCRIPTOR_BYTES: usize = 1;
const X: u8 = 0x80;
/// S bit: start of a partition; with partition 0, start of the frame.
const S: u8 = 0x10;
const PARTITION: u8 = 0x0f;
const I: u8 = 0x80;
const L: u8 = 0x40;
const T: u8 = 0x20;
const K: u8 = 0x10;
/// M bit: the picture id has 15 bits.
const M: u8 = 0x80;

/// Packetizes a frame.
pub(super) fn packetize(unit: &[u8], max: usize, out: &mut Payloads) {
    for (piece, first, _) in fragments::equal(unit, max.saturating_sub(DESCRIPTOR_BYTES)) {
        out.push(&[&[if first { S } else { 0 }], piece]);
    }
}

/// Reads a descriptor. Returns its first byte and the picture id.
fn read_descriptor(reader: &mut Reader<'_>) -> Result<(u8, Option<PictureNumber>), Truncated> {
    let head = reader.u8()?;
    let mut id = None;
    if head & X != 0 {
        let extension = reader.u8()?;
        if extension & I != 0 {
            id = Some(read_picture_id(reader)?);
        }
        if extension & L != 0 {
            reader.u8()?;
        }
        if extension & (T | K) != 0 {
            reader.u8()?;
        }
    }
    Ok((head, id))
}

/// Reads a picture id of 7 or 15 bits; VP9 has the same form.
pub(super) fn read_picture_id(reader: &mut Reader<'_>) -> Result<PictureNumber, Truncated> {
    let first = reader.u8()?;
    if first & M == 0 {
        return Ok(PictureNumber { value: first.into(), bits: 7 });
    }
    let low = reader.u8()?;
    Ok(PictureNumber { value: u32::from(first & !M) << 8 | u32::from(low), bits: 15 })
}

/// Returns the picture id of the picture that a payload begins.
pub(super) fn picture_begun(payload: &[u8]) -> Result<Option<PictureNumber>, Truncated> {
    let (head, id) = read_descriptor(&mut Reader::new(payload))?;
    Ok(id.filter(|_| head & (S | PARTITION) == S))
}

/// Depacketizer of VP8; see [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// The first payload was the start of a frame.
    begun: bool,
}

impl Assemble for Depacketizer {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(payload);
        let (head, _) = read_descriptor(&mut reader)?;
        if reader.is_empty() {
            return Err(Error::Malformed("VP8 payload without data"));
        }
        if frame.is_empty() {
            self.begun = head & (S | PARTITION) == S;
        }
        frame.extend_from_slice(reader.rest());
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, _after_gap: bool) -> Ending {
        // The lowest bit of the first byte is 0 in key frames (RFC 6386 §9.1).
        match frame.first() {
            Some(first) if core::mem::take(&mut self.begun) => Ending::Whole { key_frame: first & 1 == 0 },
            Some(_) | None => Ending::Broken,
        }
    }

    fn reset(&mut self) {
        self.begun = false;
    }
}
