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
//! Spatial layers of one picture have the same timestamp. They are combined into a superframe (VP9 bitstream annex B),
//! which a decoder splits again. [`super::layers`] says which of them are output.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, BytesMut};
use wire::Reader;

use super::continuity::PictureNumber;
use super::frames::{Assemble, Ending};
use super::layers::{Segment, Target, Verdict};
use super::vp8::read_picture_id;
use super::{Error, Payloads, fragments};

/// Length of the descriptor in sent packets. As for VP8, it has no picture id.
const DESCRIPTOR_BYTES: usize = 1;
const I: u8 = 0x80;
const P: u8 = 0x40;
const L: u8 = 0x20;
const F: u8 = 0x10;
const B: u8 = 0x08;
const E: u8 = 0x04;
const V: u8 = 0x02;
/// D bit: the layer is predicted from a lower one of its picture.
const D: u8 = 0x01;
/// N bit of a P_DIFF: another one follows.
const N: u8 = 0x01;
/// Maximum number of frames that a frame may refer to (RFC 9628 §4.2).
const REFERENCES_MAX: usize = 3;
/// Maximum number of frames in a superframe (VP9 bitstream §B.3).
const LAYERS_MAX: usize = 8;
/// Fields in the first byte of a frame (VP9 bitstream §6.2): the marker, the profile, and the bits that rule
/// out a key frame.
const MARKER_BITS: u8 = 0xc0;
const MARKER: u8 = 0x80;
const PROFILE: u8 = 0x30;
const SHOWS_EXISTING: u8 = 0x08;
const INTER: u8 = 0x04;
/// Marker of a superframe index, without the sizes of its fields.
const SUPERFRAME: u8 = 0xc0;

/// Packetizes a frame.
pub(super) fn packetize(key_frame: bool, unit: &[u8], max: usize, out: &mut Payloads) {
    let predicted = if key_frame { 0 } else { P };
    for (piece, first, last) in fragments::equal(unit, max.saturating_sub(DESCRIPTOR_BYTES)) {
        let ends = if first { B } else { 0 } | if last { E } else { 0 };
        out.push(&[&[predicted | ends], piece]);
    }
}

/// The fields of a descriptor that are evaluated.
struct Descriptor {
    id: Option<PictureNumber>,
    begins: bool,
    ends: bool,
    predicted: bool,
    spatial: u8,
    /// The layer is predicted from a lower layer of the same picture.
    inter_layer: bool,
}

/// Depacketizer of VP9; see [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// The layer being received, whose length is not known yet.
    layer: Option<Segment>,
    /// Complete layers of the picture.
    layers: Vec<Segment>,
    key_frame: bool,
    top: Target,
}

/// True if a frame begins with the header of a key frame (VP9 bitstream §6.2): marker, profile, no repetition
/// of an earlier frame, frame type 0.
fn is_key_frame(frame: &[u8]) -> bool {
    let Some(&head) = frame.first() else { return false };
    // Profile 3 has a reserved bit before these flags.
    let flags = if head & PROFILE == PROFILE { head << 1 } else { head };
    head & MARKER_BITS == MARKER && flags & (SHOWS_EXISTING | INTER) == 0
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
            let Descriptor { spatial, inter_layer, .. } = descriptor;
            let spatial = Some(spatial);
            self.layer = Some(Segment { spatial, inter_layer, is_key: false, start: frame.len(), bytes: 0 });
        }
        let layer = self.layer.ok_or(Error::Malformed("VP9 layer without its start"))?;
        if reader.is_empty() {
            return Err(Error::Malformed("VP9 payload without data"));
        }
        frame.extend_from_slice(reader.rest());
        if descriptor.ends {
            self.layer = None;
            let is_key = frame.get(layer.start..).is_some_and(is_key_frame);
            let bytes = frame.len().saturating_sub(layer.start);
            self.layers.push(Segment { is_key, bytes, ..layer });
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, _after_gap: bool) -> Ending {
        let layers = core::mem::take(&mut self.layers);
        if self.layer.take().is_some() {
            return Ending::Broken;
        }
        match self.top.judge(self.key_frame, &layers) {
            Verdict::Whole | Verdict::Some(_) => {
                if layers.len() > 1 {
                    put_superframe_index(&layers, frame);
                }
            }
            Verdict::Only(spatial) => {
                let Some(layer) = layers.iter().find(|layer| layer.spatial == Some(spatial)) else {
                    return Ending::Broken;
                };
                frame.truncate(layer.start.saturating_add(layer.bytes));
                frame.advance(layer.start.min(frame.len()));
            }
            Verdict::Skipped => return Ending::Skipped,
            Verdict::Broken => return Ending::Broken,
        }
        Ending::Whole { key_frame: self.key_frame }
    }

    const JOINS: bool = true;

    fn end_layers(&mut self, _frame: &mut BytesMut, layers: &mut Vec<Segment>, _after_gap: bool) -> Ending {
        layers.append(&mut self.layers);
        if self.layer.take().is_some() || layers.is_empty() {
            return Ending::Broken;
        }
        Ending::Whole { key_frame: self.key_frame }
    }

    fn join(layers: &[Segment], frame: &mut BytesMut) {
        if layers.len() > 1 {
            put_superframe_index(layers, frame);
        }
    }

    fn reset(&mut self) {
        self.layer = None;
        self.layers.clear();
    }
}

fn read_descriptor(reader: &mut Reader<'_>) -> Result<Descriptor, Error> {
    let head = reader.u8()?;
    let id = if head & I != 0 { Some(read_picture_id(reader)?) } else { None };
    let (mut spatial, mut inter_layer) = (0, false);
    if head & L != 0 {
        let layer = reader.u8()?;
        (spatial, inter_layer) = ((layer >> 1) & 7, layer & D != 0);
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
    // For upper layers, P says nothing about the picture (§4.2), since they may refer to a lower layer.
    let predicted = head & P != 0 || spatial > 0;
    Ok(Descriptor { id, begins: head & B != 0, ends: head & E != 0, predicted, spatial, inter_layer })
}

/// Returns the picture id of the picture that a payload begins.
pub(super) fn picture_begun(payload: &[u8]) -> Result<Option<PictureNumber>, Error> {
    let descriptor = read_descriptor(&mut Reader::new(payload))?;
    Ok(descriptor.id.filter(|_| descriptor.begins && descriptor.spatial == 0))
}

/// Skips the scalability structure (RFC 9628 §4.2.1).
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

/// Appends a superframe index: the marker, the sizes in little endian, and the marker again (VP9 bitstream
/// §B.2).
fn put_superframe_index(layers: &[Segment], frame: &mut BytesMut) {
    let largest = layers.iter().map(|layer| layer.bytes).max().unwrap_or(0);
    let size_bytes = [0xff, 0xffff, 0xff_ffff].iter().position(|&limit| largest <= limit).unwrap_or(3) + 1;
    let fields = u8::try_from((size_bytes - 1) << 3 | layers.len().saturating_sub(1)).unwrap_or(0);
    frame.put_u8(SUPERFRAME | fields);
    for layer in layers {
        frame.put_uint_le(u64::try_from(layer.bytes).unwrap_or(0), size_bytes);
    }
    frame.put_u8(SUPERFRAME | fields);
}
