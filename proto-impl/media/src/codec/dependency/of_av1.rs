//! Frame headers of AV1 (§5.9.2), read up to the slots that a frame refers to and replaces. Everything that a frame
//! uses of other frames, even probabilities, is in slots that the frame names.

use wire::{BitReader, Reader, Truncated};

use super::av1::{self, OBU_FRAME, OBU_FRAME_HEADER, OBU_SEQUENCE_HEADER};
use super::{Dependency, slots};

/// Maximum number of frames that are read in a temporal unit. A unit cannot have that many layers.
const FRAMES_MAX: usize = 16;
/// Value of seq_force_screen_content_tools and seq_force_integer_mv that leaves the choice to each frame.
const SELECT: u32 = 2;
/// Values of frame_type (§6.8.2).
const KEY: u32 = 0;
const INTER: u32 = 1;
const INTRA_ONLY: u32 = 2;
const SWITCH: u32 = 3;
/// refresh_frame_flags for all slots.
const ALL_FRAMES: u32 = 0xff;

/// Fields of a sequence header (§5.5.1) that frame headers depend on.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    id_bits: Option<(u32, u32)>,
    screen_content: u32,
    integer_mv: u32,
    order_hint_bits: u32,
}

/// Reads a temporal unit that contains no key frame.
pub(super) fn read(config: &av1::Config, unit: &[u8]) -> Option<Dependency> {
    let mut records = Reader::new(config.record.get(4..)?);
    let mut sequence = None;
    while let Some(obu) = next_obu(&mut records) {
        if obu.kind == OBU_SEQUENCE_HEADER {
            sequence = sequence_header(obu.body).ok().flatten();
        }
    }
    let sequence = sequence?;
    let mut frames = Reader::new(unit);
    let mut all: Option<Dependency> = None;
    let mut count = 0;
    while let Some(obu) = next_obu(&mut frames) {
        if obu.kind != OBU_FRAME && obu.kind != OBU_FRAME_HEADER {
            continue;
        }
        count += 1;
        if count > FRAMES_MAX {
            return None;
        }
        let frame = frame_header(&sequence, obu.body).ok().flatten()?;
        all = Some(all.map_or(frame, |before| before.then(frame)));
    }
    all
}

fn next_obu<'a>(reader: &mut Reader<'a>) -> Option<av1::Obu<'a>> {
    if reader.is_empty() { None } else { av1::read_obu(reader).ok() }
}

/// Reads a sequence header; `None` if its kind is not supported.
fn sequence_header(obu: &[u8]) -> Result<Option<Sequence>, Truncated> {
    let mut bits = BitReader::new(obu);
    bits.skip(4)?;
    // Still pictures are not supported, nor is timing information, which adds fields to frame
    // headers.
    if bits.bit()? || bits.bit()? {
        return Ok(None);
    }
    let display_delay = bits.bit()?;
    for _ in 0..=bits.bits(5)? {
        bits.skip(12)?;
        if bits.bits(5)? > 7 {
            bits.skip(1)?;
        }
        if display_delay && bits.bit()? {
            bits.skip(4)?;
        }
    }
    let (width_bits, height_bits) = (bits.bits(4)? + 1, bits.bits(4)? + 1);
    bits.bits(width_bits)?;
    bits.bits(height_bits)?;
    let id_bits = if bits.bit()? {
        let delta = bits.bits(4)? + 2;
        Some((delta, delta + bits.bits(3)? + 1))
    } else {
        None
    };
    // Skip the fields from use_128x128_superblock to enable_dual_filter.
    bits.skip(3 + 4)?;
    let has_order = bits.bit()?;
    if has_order {
        bits.skip(2)?;
    }
    let screen_content = if bits.bit()? { SELECT } else { bits.bits(1)? };
    let integer_mv = if screen_content > 0 && !bits.bit()? { bits.bits(1)? } else { SELECT };
    let order_hint_bits = if has_order { bits.bits(3)? + 1 } else { 0 };
    Ok(Some(Sequence { id_bits, screen_content, integer_mv, order_hint_bits }))
}

/// Reads a frame header; `None` if the frame may refer to all slots.
fn frame_header(sequence: &Sequence, body: &[u8]) -> Result<Option<Dependency>, Truncated> {
    let mut bits = BitReader::new(body);
    if bits.bit()? {
        // show_existing_frame. A key frame that is shown would replace all slots, but a unit with one is
        // already treated as a key frame.
        let shown = 1 << bits.bits(3)?;
        return Ok(Some(Dependency { refers: shown, replaces: 0, layer: 0 }));
    }
    let (kind, is_shown) = (bits.bits(2)?, bits.bit()?);
    if kind == KEY {
        return Ok(None);
    }
    if !is_shown {
        bits.skip(1)?;
    }
    let resilient = kind == SWITCH || bits.bit()?;
    bits.skip(1)?;
    let screen_content =
        if sequence.screen_content == SELECT { bits.bits(1)? } else { sequence.screen_content };
    if screen_content > 0 && sequence.integer_mv == SELECT {
        bits.skip(1)?;
    }
    if let Some((_, id_bits)) = sequence.id_bits {
        bits.bits(id_bits)?;
    }
    // Skip frame_size_override_flag and order_hint.
    if kind != SWITCH {
        bits.skip(1)?;
    }
    bits.bits(sequence.order_hint_bits)?;
    if kind == INTER && !resilient {
        // primary_ref_frame names one of the references that are read below, so it adds no further slot.
        bits.skip(3)?;
    }
    let refresh = if kind == SWITCH { ALL_FRAMES } else { bits.bits(8)? };
    if kind == INTRA_ONLY {
        return Ok(Some(Dependency { refers: 0, replaces: slots(refresh), layer: 0 }));
    }
    if resilient && sequence.order_hint_bits > 0 {
        for _ in 0..8 {
            bits.bits(sequence.order_hint_bits)?;
        }
    }
    // With frame_refs_short_signaling, the references would have to be derived from the order of all slots.
    if sequence.order_hint_bits > 0 && bits.bit()? {
        return Ok(None);
    }
    let mut refers = 0;
    for _ in 0..7 {
        refers |= 1 << bits.bits(3)?;
        if let Some((delta_bits, _)) = sequence.id_bits {
            bits.bits(delta_bits)?;
        }
    }
    Ok(Some(Dependency { refers, replaces: slots(refresh), layer: 0 }))
}
