//! The frame header of VP8 (RFC 6386 §9.3 to §9.11 and §19.2), read up to the fields that say which
//! buffers a frame replaces.

use super::bool_decoder::BoolDecoder;
use super::{Dependency, FILTER, SEGMENTS, STATE};

/// Number of bytes before the first partition of a frame that is not a key frame.
const HEAD_BYTES: usize = 3;
const LAST: u16 = 1;
const GOLDEN: u16 = 1 << 1;
const ALTREF: u16 = 1 << 2;

/// Reads a frame that is not a key frame.
pub(super) fn read(frame: &[u8]) -> Option<Dependency> {
    let first = frame.first().filter(|first| *first & 1 == 1)?;
    let size = u32::from(*first >> 5) | u32::from(*frame.get(1)?) << 3 | u32::from(*frame.get(2)?) << 11;
    let rest = frame.get(HEAD_BYTES..)?;
    let partition = rest.get(..usize::try_from(size).ok()?).unwrap_or(rest);
    let mut bits = BoolDecoder::new(partition);
    let segments = segments(&mut bits);
    // Skip filter_type, loop_filter_level and sharpness_level.
    bits.bits(1 + 6 + 3);
    let filter = filter_deltas(&mut bits);
    // Skip log2_nbr_of_dct_partitions and y_ac_qi.
    bits.bits(2 + 7);
    (0..5).for_each(|_| {
        bits.skip_optional(4 + 1);
    });
    let (golden, altref) = (bits.bit(), bits.bit());
    let is_copied_to_golden = !golden && bits.bits(2) > 0;
    let is_copied_to_altref = !altref && bits.bits(2) > 0;
    // Read sign_bias_golden and sign_bias_alternate.
    let is_flipped = bits.bits(2) > 0;
    let (entropy, last) = (bits.bit(), bits.bit());
    let replaces = [
        (last, LAST),
        (golden || is_copied_to_golden, GOLDEN),
        (altref || is_copied_to_altref, ALTREF),
        (is_flipped || entropy, STATE),
        (segments.is_set, SEGMENTS),
        (filter.is_set, FILTER),
    ];
    let refers = [(segments.is_kept, SEGMENTS), (filter.is_kept, FILTER)];
    let any = |of: &[(bool, u16)]| of.iter().filter(|(does, _)| *does).fold(0, |all, (_, slot)| all | slot);
    // Each macroblock names the picture to which it refers, so the frame may refer to all pictures.
    let refers = LAST | GOLDEN | ALTREF | STATE | any(&refers);
    Some(Dependency { refers, replaces: any(&replaces), layer: 0 })
}

/// Use of state that decoders keep from one frame to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    /// True if the frame uses values set by earlier frames.
    is_kept: bool,
    /// True if the frame sets values for later frames.
    is_set: bool,
}

/// Reads update_segmentation (§9.3).
fn segments(bits: &mut BoolDecoder<'_>) -> Kept {
    if !bits.bit() {
        return Kept::default();
    }
    let (map, data) = (bits.bit(), bits.bit());
    if data {
        bits.bit();
        (0..4).for_each(|_| {
            bits.skip_optional(7 + 1);
        });
        (0..4).for_each(|_| {
            bits.skip_optional(6 + 1);
        });
    }
    if map {
        (0..3).for_each(|_| {
            bits.skip_optional(8);
        });
    }
    Kept { is_kept: !(map && data), is_set: map || data }
}

/// Reads mb_lf_adjustments (§9.6).
fn filter_deltas(bits: &mut BoolDecoder<'_>) -> Kept {
    if !bits.bit() {
        return Kept::default();
    }
    let set = if bits.bit() { (0..8).filter(|_| bits.skip_optional(6 + 1)).count() } else { 0 };
    Kept { is_kept: set < 8, is_set: set > 0 }
}
