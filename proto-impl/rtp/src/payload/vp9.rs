//! VP9 (RFC 9628 §4.2).
//!
//! ```text
//! descriptor         I(1) P(1) L(1) F(1) B(1) E(1) V(1) Z(1)
//!    if I            M(1) picture id(7, or 15 when M is set)
//!    if L            TID(3) U(1) SID(3) D(1), and TL0PICIDX(8) when F is not set
//!    if F and P      up to three of P_DIFF(7) N(1)
//!    if V            N_S(3) Y(1) G(1) RES(3), sizes of the layers, the group of pictures
//! ```
//!
//! Layers of one picture have one timestamp; they are put together as a superframe (VP9 bitstream annex B), which a
//! decoder takes apart again.

use bytes::{BufMut, BytesMut};
use wire::Reader;

use super::frames::{Assemble, Ending};
use super::{Error, Payloads, fragments};

/// Bytes of the descriptors that are written. They have no picture id, as those of VP8.
const DESCRIPTOR_BYTES: usize = 1;
const I: u8 = 0x80;
const P: u8 = 0x40;
const L: u8 = 0x20;
const F: u8 = 0x10;
const B: u8 = 0x08;
const E: u8 = 0x04;
const V: u8 = 0x02;
/// The picture id has 15 bits.
const M: u8 = 0x80;
/// P_DIFF has another one behind it.
const N: u8 = 0x01;
/// RFC 9628 §4.2: a frame refers to three at most.
const REFERENCES_MAX: usize = 3;
/// A superframe has at most eight frames (VP9 bitstream §B.3).
const LAYERS_MAX: usize = 8;
/// The marker of a superframe index, without the sizes of its fields.
const SUPERFRAME: u8 = 0xc0;

/// Cuts a frame.
pub(super) fn packetize(key_frame: bool, unit: &[u8], max: usize, out: &mut Payloads) {
    let predicted = if key_frame { 0 } else { P };
    for (piece, first, last) in fragments::equal(unit, max.saturating_sub(DESCRIPTOR_BYTES)) {
        let ends = if first { B } else { 0 } | if last { E } else { 0 };
        out.push(&[&[predicted | ends], piece]);
    }
}

/// The fields of a descriptor that are used here.
struct Descriptor {
    begins: bool,
    ends: bool,
    predicted: bool,
}

/// See [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// Offset of the unfinished layer.
    layer: Option<usize>,
    /// Bytes of the layers that are complete.
    layers: Vec<usize>,
    key_frame: bool,
}

impl Assemble for Depacketizer {
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error> {
        let mut reader = Reader::new(payload);
        let descriptor = read_descriptor(&mut reader)?;
        if descriptor.begins {
            if self.layer.is_some() {
                return Err(Error::Malformed("VP9 layer that never ends"));
            }
            if self.layers.len() >= LAYERS_MAX {
                return Err(Error::Malformed("VP9 layers"));
            }
            if self.layers.is_empty() {
                self.key_frame = !descriptor.predicted;
            }
            self.layer = Some(frame.len());
        }
        let start = self.layer.ok_or(Error::Malformed("VP9 layer without its start"))?;
        if reader.is_empty() {
            return Err(Error::Malformed("VP9 payload without data"));
        }
        frame.extend_from_slice(reader.rest());
        if descriptor.ends {
            self.layer = None;
            self.layers.push(frame.len().saturating_sub(start));
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, _after_gap: bool) -> Ending {
        let whole = self.layer.take().is_none() && !self.layers.is_empty();
        if whole && self.layers.len() > 1 {
            put_superframe_index(&self.layers, frame);
        }
        self.layers.clear();
        if whole { Ending::Whole { key_frame: self.key_frame } } else { Ending::Broken }
    }

    fn reset(&mut self) {
        self.layer = None;
        self.layers.clear();
    }
}

fn read_descriptor(reader: &mut Reader<'_>) -> Result<Descriptor, Error> {
    let head = reader.u8()?;
    if head & I != 0 && reader.u8()? & M != 0 {
        reader.u8()?;
    }
    let mut layer = 0;
    if head & L != 0 {
        layer = (reader.u8()? >> 1) & 7;
        if head & F == 0 {
            reader.u8()?;
        }
    }
    if head & (F | P) == F | P {
        let mut more = true;
        for _ in 0..REFERENCES_MAX {
            if more {
                more = reader.u8()? & N != 0;
            }
        }
        if more {
            return Err(Error::Malformed("P_DIFF"));
        }
    }
    if head & V != 0 {
        skip_scalability_structure(reader)?;
    }
    // Of the upper layers P says nothing about the picture (§4.2): they may refer to the lower one.
    let predicted = head & P != 0 || layer > 0;
    Ok(Descriptor { begins: head & B != 0, ends: head & E != 0, predicted })
}

/// RFC 9628 §4.2.1.
fn skip_scalability_structure(reader: &mut Reader<'_>) -> Result<(), Error> {
    let head = reader.u8()?;
    let layers = usize::from(head >> 5) + 1;
    if head & 0x10 != 0 {
        reader.take(layers * 4)?;
    }
    if head & 0x08 != 0 {
        for _ in 0..reader.u8()? {
            let references = (reader.u8()? >> 2) & 3;
            reader.take(usize::from(references))?;
        }
    }
    Ok(())
}

/// VP9 bitstream §B.2: the marker, the sizes in little endian, the marker again.
fn put_superframe_index(layers: &[usize], frame: &mut BytesMut) {
    let largest = layers.iter().copied().max().unwrap_or(0);
    let size_bytes = [0xff, 0xffff, 0xff_ffff].iter().position(|&limit| largest <= limit).unwrap_or(3) + 1;
    let fields = u8::try_from((size_bytes - 1) << 3 | layers.len().saturating_sub(1)).unwrap_or(0);
    frame.put_u8(SUPERFRAME | fields);
    for &bytes in layers {
        frame.put_uint_le(u64::try_from(bytes).unwrap_or(0), size_bytes);
    }
    frame.put_u8(SUPERFRAME | fields);
}
