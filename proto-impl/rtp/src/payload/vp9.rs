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
//! Spatial layers of one picture have one timestamp; they are put together as a superframe (VP9 bitstream annex B), which a
//! decoder takes apart again. Where the top layer needs none of the others, it alone is the picture:
//!
//! 1. A key picture sets the top layer: the highest in it. It is taken whole, since a decoder can begin at the lowest layer
//!    only; unless the top layer has a key frame of its own (simulcast in one stream).
//! 2. From [`ALONE_AFTER`] pictures on whose top layers are not predicted from lower ones (D is not set: K-SVC, S modes),
//!    the top layer is taken alone. Before, and in full SVC, pictures are taken whole.
//! 3. While it is alone, a picture without it is skipped: an encoder may leave layers out. If it stays away, or needs lower
//!    layers again, the picture is broken, and the next key picture decides anew.

use bytes::{Buf, BufMut, BytesMut};
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
/// The layer is predicted from a lower one of its picture.
const D: u8 = 0x01;
/// P_DIFF has another one behind it.
const N: u8 = 0x01;
/// RFC 9628 §4.2: a frame refers to three at most.
const REFERENCES_MAX: usize = 3;
/// A superframe has at most eight frames (VP9 bitstream §B.3).
const LAYERS_MAX: usize = 8;
/// Pictures behind a key picture after which a top layer that needs no other is taken alone.
const ALONE_AFTER: u8 = 10;
/// Pictures in a row that the top layer may be missing from while it is alone.
const MISSING_MAX: u8 = 15;
/// The first byte of a frame (VP9 bitstream §6.2): its marker, its profile, and what says that it is no key frame.
const MARKER_BITS: u8 = 0xc0;
const MARKER: u8 = 0x80;
const PROFILE: u8 = 0x30;
const SHOWS_EXISTING: u8 = 0x08;
const INTER: u8 = 0x04;
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
    spatial: u8,
    /// Predicted from a lower layer of the same picture.
    inter_layer: bool,
}

/// A layer of a picture.
#[derive(Debug, Clone, Copy)]
struct Layer {
    spatial: u8,
    inter_layer: bool,
    start: usize,
    bytes: usize,
}

/// The top layer of the stream, and whether it is the picture.
#[derive(Debug, Default)]
struct Top {
    /// The highest layer of the last key picture.
    spatial: u8,
    /// The lower layers are left out since then.
    is_alone: bool,
    /// Pictures since the key picture whose top layer needed no other one.
    apart: u8,
    /// Pictures without it in a row, while it is alone.
    missing: u8,
    /// The layers of this stream stay together: the top one once needed a lower one that had been left out.
    together: bool,
}

/// See [`super::Depacketizer`].
#[derive(Debug, Default)]
pub(super) struct Depacketizer {
    /// The unfinished layer, whose length is not known yet.
    layer: Option<Layer>,
    /// The layers that are complete.
    layers: Vec<Layer>,
    key_frame: bool,
    top: Top,
}

/// The form in which a picture is handed out.
enum Verdict {
    /// All layers, as a superframe if there are several.
    Whole,
    /// Only the layer given here.
    Only(Layer),
    Skipped,
    Broken,
}

impl Top {
    fn judge(&mut self, key_frame: bool, layers: &[Layer], frame: &[u8]) -> Verdict {
        let Some(highest) = layers.iter().max_by_key(|layer| layer.spatial) else { return Verdict::Broken };
        if key_frame {
            let own = frame.get(highest.start..).is_some_and(is_key_frame);
            (self.spatial, self.apart, self.missing) = (highest.spatial, 0, 0);
            self.is_alone = layers.len() > 1 && !highest.inter_layer && own && !self.together;
            return if self.is_alone { Verdict::Only(*highest) } else { Verdict::Whole };
        }
        if self.spatial == 0 {
            return Verdict::Whole;
        }
        let top = layers.iter().find(|layer| layer.spatial == self.spatial);
        match top {
            None if self.is_alone && self.missing >= MISSING_MAX => Verdict::Broken,
            None if self.is_alone => {
                self.missing = self.missing.saturating_add(1);
                Verdict::Skipped
            }
            None => Verdict::Whole,
            Some(top) if top.inter_layer && self.is_alone => {
                self.together = true;
                Verdict::Broken
            }
            Some(top) if top.inter_layer => {
                self.apart = 0;
                Verdict::Whole
            }
            Some(top) => {
                self.missing = 0;
                self.apart = self.apart.saturating_add(1);
                self.is_alone |= self.apart > ALONE_AFTER && !self.together;
                if self.is_alone { Verdict::Only(*top) } else { Verdict::Whole }
            }
        }
    }
}

/// Whether a frame begins with the header of a key frame (VP9 bitstream §6.2): marker, profile, no frame shown again, frame
/// type 0.
fn is_key_frame(frame: &[u8]) -> bool {
    let Some(&head) = frame.first() else { return false };
    // Profile 3 has a reserved bit before them.
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
            self.layer = Some(Layer { spatial, inter_layer, start: frame.len(), bytes: 0 });
        }
        let layer = self.layer.ok_or(Error::Malformed("VP9 layer without its start"))?;
        if reader.is_empty() {
            return Err(Error::Malformed("VP9 payload without data"));
        }
        frame.extend_from_slice(reader.rest());
        if descriptor.ends {
            self.layer = None;
            self.layers.push(Layer { bytes: frame.len().saturating_sub(layer.start), ..layer });
        }
        Ok(())
    }

    fn end(&mut self, frame: &mut BytesMut, _after_gap: bool) -> Ending {
        let layers = std::mem::take(&mut self.layers);
        if self.layer.take().is_some() {
            return Ending::Broken;
        }
        match self.top.judge(self.key_frame, &layers, frame) {
            Verdict::Whole => {
                if layers.len() > 1 {
                    put_superframe_index(&layers, frame);
                }
            }
            Verdict::Only(layer) => {
                frame.truncate(layer.start.saturating_add(layer.bytes));
                frame.advance(layer.start.min(frame.len()));
            }
            Verdict::Skipped => return Ending::Skipped,
            Verdict::Broken => return Ending::Broken,
        }
        Ending::Whole { key_frame: self.key_frame }
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
    // Of the upper layers P says nothing about the picture (§4.2): they may refer to the lower one.
    let predicted = head & P != 0 || spatial > 0;
    Ok(Descriptor { begins: head & B != 0, ends: head & E != 0, predicted, spatial, inter_layer })
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
fn put_superframe_index(layers: &[Layer], frame: &mut BytesMut) {
    let largest = layers.iter().map(|layer| layer.bytes).max().unwrap_or(0);
    let size_bytes = [0xff, 0xffff, 0xff_ffff].iter().position(|&limit| largest <= limit).unwrap_or(3) + 1;
    let fields = u8::try_from((size_bytes - 1) << 3 | layers.len().saturating_sub(1)).unwrap_or(0);
    frame.put_u8(SUPERFRAME | fields);
    for layer in layers {
        frame.put_uint_le(u64::try_from(layer.bytes).unwrap_or(0), size_bytes);
    }
    frame.put_u8(SUPERFRAME | fields);
}
