//! Dependencies between pictures, read from the bitstream. A sender that must leave out pictures uses them to determine
//! which other pictures are affected.
//!
//! A decoder keeps decoded pictures in slots. A picture refers to some slots and replaces some. If a picture is left
//! out, the slots that it would have replaced are broken until a decodable picture replaces them. If the bitstream does
//! not state which slots a picture refers to, the picture is assumed to refer to all.
//!
//! | codec | slots | read from |
//! |---|---|---|
//! | H.264 | one | `nal_ref_idc` (§7.4.1) |
//! | H.265 | one for each temporal sub-layer | `TemporalId`, the types of sub-layer non-reference, TSA and STSA pictures (§7.4.2.2) |
//! | VP8 | last, golden, altref, and the saved state | frame header (RFC 6386 §9.3 to §9.11) |
//! | VP9 | eight, and the saved state | uncompressed header (§6.2) of each frame of a superframe |
//! | AV1 | eight | frame header (§5.9); with a decoder model it counts as referring to all |

use wire::{BitReader, Truncated};

use super::{CodecConfig, av1, h264, h265, vp9};
use crate::nal::Nals;

mod bool_decoder;
mod of_av1;
mod of_vp8;

/// All slots.
const ALL: u16 = u16::MAX;
/// Slots for the state that decoders keep in addition to pictures: probabilities and the motion vectors of the previous
/// picture, segmentation, and loop filter settings. A picture may set such state without referring to it.
const STATE: u16 = 1 << 15;
const SEGMENTS: u16 = 1 << 14;
const FILTER: u16 = 1 << 13;
const BESIDE: u16 = STATE | SEGMENTS | FILTER;

/// The decoder slots that a picture refers to and replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    refers: u16,
    replaces: u16,
    layer: u8,
}

impl Dependency {
    /// A picture with which decoding can start.
    pub const START: Self = Self { refers: 0, replaces: ALL, layer: 0 };
    /// A picture that may refer to all pictures before it, and to which all pictures after it may refer.
    pub const CHAIN: Self = Self { refers: ALL, replaces: ALL, layer: 0 };

    /// Reads the dependency of a frame: NAL units with lengths of four bytes, the OBUs of a temporal unit, or a frame
    /// of VP8 or VP9. An unreadable frame counts as [`Dependency::CHAIN`]. So does audio.
    #[must_use]
    pub fn of(config: &CodecConfig, key_frame: bool, frame: &[u8]) -> Self {
        if key_frame {
            return Self::START;
        }
        let read = match config {
            CodecConfig::H264(_) => of_h264(frame),
            CodecConfig::H265(_) => of_h265(frame),
            CodecConfig::Vp8(_) => of_vp8::read(frame),
            CodecConfig::Vp9(_) => of_vp9(frame),
            CodecConfig::Av1(config) => of_av1::read(config, frame),
            CodecConfig::Aac(_)
            | CodecConfig::Opus(_)
            | CodecConfig::Mp3(_)
            | CodecConfig::Ac3(_)
            | CodecConfig::Eac3(_)
            | CodecConfig::Flac(_)
            | CodecConfig::G711(_) => None,
        };
        read.unwrap_or(Self::CHAIN)
    }

    /// True if no other picture refers to this one.
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.replaces & !BESIDE == 0 && self.refers & self.replaces & BESIDE == 0
    }

    /// Temporal layer, or 0 if the bitstream does not state it. Pictures of lower layers do not
    /// refer to this picture.
    #[must_use]
    pub const fn layer(self) -> u8 {
        self.layer
    }

    /// Returns the dependency of a frame that consists of `self` and then `next`.
    const fn then(self, next: Self) -> Self {
        let refers = self.refers | (next.refers & !self.replaces);
        Self { refers, replaces: self.replaces | next.replaces, layer: self.layer }
    }
}

/// State of a receiver's decoder after some pictures were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    broken: u16,
}

impl Received {
    /// True if the decoder has all slots to which the picture may refer.
    #[must_use]
    pub const fn can_decode(self, picture: Dependency) -> bool {
        self.broken & picture.refers == 0
    }

    /// Records a picture that was sent and can be decoded.
    pub const fn sent(&mut self, picture: Dependency) {
        self.broken &= !picture.replaces;
    }

    /// Records a picture that was not sent.
    pub const fn left_out(&mut self, picture: Dependency) {
        self.broken |= picture.replaces;
    }
}

fn of_h264(frame: &[u8]) -> Option<Dependency> {
    let mut slices = Nals::new(frame, 4).flatten().filter(|nal| h264::is_picture(nal)).peekable();
    slices.peek()?;
    let is_reference = slices.any(|nal| nal.first().is_some_and(|head| head & 0x60 != 0));
    Some(Dependency { refers: 1, replaces: u16::from(is_reference), layer: 0 })
}

/// Below this nal_unit_type, even numbers are slices of sub-layer non-reference pictures (Table 7-1).
const H265_RESERVED_IRAP: u8 = 16;
/// nal_unit_types TSA_N to STSA_R: pictures that do not refer to earlier pictures of their own sub-layer.
const H265_SWITCHES: core::ops::RangeInclusive<u8> = 2..=5;

fn of_h265(frame: &[u8]) -> Option<Dependency> {
    let slice = Nals::new(frame, 4).flatten().find(|nal| h265::is_picture(nal))?;
    let (kind, temporal) = (h265::nal_type(slice)?, slice.get(1)? & 7);
    let layer = temporal.checked_sub(1)?;
    let own = 1_u16 << layer;
    let is_free = kind < H265_RESERVED_IRAP && kind % 2 == 0;
    let below = own - 1;
    let refers = if H265_SWITCHES.contains(&kind) { below } else { below | own };
    Some(Dependency { refers, replaces: if is_free { 0 } else { own }, layer })
}

/// Value of frame_marker in VP9.
const VP9_MARKER: u32 = 2;

/// Reads the frames of a superframe, or a frame. `None` if one must be assumed to refer to all slots.
fn of_vp9(unit: &[u8]) -> Option<Dependency> {
    let mut all: Option<Dependency> = None;
    for frame in vp9::frames(unit) {
        let next = of_vp9_frame(frame).ok().flatten()?;
        all = Some(all.map_or(next, |before| before.then(next)));
    }
    all
}

/// Reads the uncompressed header (§6.2) up to the references.
fn of_vp9_frame(frame: &[u8]) -> Result<Option<Dependency>, Truncated> {
    let mut bits = BitReader::new(frame);
    let (marker, low, high) = (bits.bits(2)?, bits.bits(1)?, bits.bits(1)?);
    let profile = high << 1 | low;
    if marker != VP9_MARKER || (profile == 3 && bits.bit()?) {
        return Ok(None);
    }
    if bits.bit()? {
        let shown = 1 << bits.bits(3)?;
        return Ok(Some(Dependency { refers: shown, replaces: 0, layer: 0 }));
    }
    let (is_other, is_shown, resilient) = (bits.bit()?, bits.bit()?, bits.bit()?);
    let intra_only = !is_shown && bits.bit()?;
    if !is_other || intra_only {
        return Ok(None);
    }
    if !resilient {
        bits.skip(2)?;
    }
    let mut picture = Dependency { refers: 0, replaces: slots(bits.bits(8)?) | STATE, layer: 0 };
    for _ in 0..3 {
        picture.refers |= 1 << bits.bits(3)?;
        bits.skip(1)?;
    }
    // Without error resilience, the frame uses probabilities and motion vectors of the previous frame.
    picture.refers |= if resilient { 0 } else { STATE };
    Ok(Some(picture))
}

/// Converts refresh_frame_flags to slots.
fn slots(flags: u32) -> u16 {
    u16::try_from(flags & 0xff).unwrap_or(0)
}

#[cfg(test)]
mod tests;
