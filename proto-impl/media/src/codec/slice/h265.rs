//! Slice segment headers of H.265 (§7.3.6.1), for the profiles of version 1 and the range extensions.

use alloc::vec;
use alloc::vec::Vec;

use alloc::collections::BTreeMap;

use wire::BitReader;

use super::{SETS_MAX, bits_for};
use crate::codec::h265::{NAL_PPS, NAL_SPS, nal_type, set_id, skip_profile_tier_level};
use crate::nal::unescape;

/// nal_unit_types of IRAP pictures, and of the IDR pictures among them (Table 7-1).
const NAL_IRAP: core::ops::RangeInclusive<u8> = 16..=23;
const NAL_IDR: core::ops::RangeInclusive<u8> = 19..=20;
/// Maximum number of pictures of a reference picture set (§A.4.2).
const PICTURES_MAX: u32 = 16;
/// Maximum number of short-term reference picture sets of an SPS (§7.4.3.2.1).
const SHORT_SETS_MAX: u32 = 64;
/// Maximum number of long-term pictures of an SPS or a slice.
const LONG_MAX: u32 = 33;
/// Maximum number of entry points of a slice: rows and tiles of the largest picture.
const ENTRY_POINTS_MAX: u32 = 440;
/// Maximum number of bytes of a slice header extension (§7.4.7.1).
const EXTENSION_BYTES_MAX: u32 = 256;

/// The parameter sets of a track by their ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Sets {
    sps: BTreeMap<u32, Sps>,
    pps: BTreeMap<u32, Pps>,
}

/// A short-term reference picture set: first the pictures before the current one, then those after it. The flag of
/// each picture is true if the current picture may refer to it.
#[derive(Debug, Clone, Default)]
struct ShortSet {
    negative: Vec<(i32, bool)>,
    positive: Vec<(i32, bool)>,
}

/// The fields of a sequence parameter set that slice headers depend on.
#[derive(Debug, Clone)]
struct Sps {
    has_planes: bool,
    has_chroma: bool,
    blocks: u32,
    order_bits: u32,
    short_sets: Vec<ShortSet>,
    /// Entries of lt_ref_pic_poc_lsb_sps, each with its used_by_curr_pic_lt_sps_flag. `None` if there are no
    /// long-term pictures.
    long: Option<Vec<bool>>,
    has_offsets: bool,
    has_temporal: bool,
}

/// The fields of a picture parameter set that slice headers depend on.
#[derive(Debug, Clone, Default)]
struct Pps {
    sps: u32,
    has_dependent: bool,
    has_output: bool,
    extra_bits: u32,
    has_cabac_init: bool,
    references: [u32; 2],
    has_chroma_offsets: bool,
    /// weighted_pred_flag (for P slices) and weighted_bipred_flag (for B slices).
    weighted: [bool; 2],
    has_entry_points: bool,
    crosses_slices: bool,
    overrides_deblocking: bool,
    disables_deblocking: bool,
    has_lists: bool,
    has_extension: bool,
    has_offset_lists: bool,
}

impl Sets {
    pub(super) fn note(&mut self, nal: &[u8]) {
        let Ok(id) = set_id(nal) else { return };
        if nal_type(nal) == Some(NAL_SPS) && (self.sps.len() < SETS_MAX || self.sps.contains_key(&id)) {
            self.sps.extend(Sps::read(nal).map(|sps| (id, sps)));
        } else if nal_type(nal) == Some(NAL_PPS) && (self.pps.len() < SETS_MAX || self.pps.contains_key(&id))
        {
            self.pps.extend(Pps::read(nal).map(|pps| (id, pps)));
        }
    }

    /// Skips the header of a slice segment. `bits` begins after the NAL unit header.
    pub(super) fn skip_header(&self, nal: &[u8], bits: &mut BitReader<'_>) -> Option<()> {
        let kind = nal_type(nal)?;
        let is_first = flag(bits)?;
        if NAL_IRAP.contains(&kind) {
            bits.skip(1).ok()?;
        }
        let pps = self.pps.get(&ue(bits)?)?;
        let sps = self.sps.get(&pps.sps)?;
        let mut is_dependent = false;
        if !is_first {
            is_dependent = pps.has_dependent && flag(bits)?;
            bits.bits(bits_for(sps.blocks)).ok()?;
        }
        if !is_dependent {
            Slice { sps, pps }.skip(kind, bits)?;
        }
        if pps.has_entry_points {
            let count = ue(bits).filter(|count| *count <= ENTRY_POINTS_MAX)?;
            if count > 0 {
                let length = usize::try_from(ue(bits).filter(|length| *length < 32)?).ok()?.saturating_add(1);
                bits.skip(length.saturating_mul(usize::try_from(count).ok()?)).ok()?;
            }
        }
        if pps.has_extension {
            let bytes = ue(bits).filter(|bytes| *bytes <= EXTENSION_BYTES_MAX)?;
            bits.skip(usize::try_from(bytes).ok()?.saturating_mul(8)).ok()?;
        }
        // byte_alignment( ): a one, then zeros (§7.3.2.5). If it is not found, the header was not read correctly.
        let is_aligned = flag(bits)? && bits.bits(u32::try_from(bits.remaining() % 8).ok()?).ok()? == 0;
        is_aligned.then_some(())
    }
}

/// Skips the fields of an independent slice segment.
struct Slice<'s> {
    sps: &'s Sps,
    pps: &'s Pps,
}

impl Slice<'_> {
    fn skip(&self, nal_type: u8, bits: &mut BitReader<'_>) -> Option<()> {
        let (sps, pps) = (self.sps, self.pps);
        bits.bits(pps.extra_bits).ok()?;
        // slice_type is 0 (B), 1 (P) or 2 (I).
        let slice_type = ue(bits).filter(|kind| *kind <= 2)?;
        if pps.has_output {
            bits.skip(1).ok()?;
        }
        if sps.has_planes {
            bits.skip(2).ok()?;
        }
        let (mut pictures, mut is_temporal) = (0, false);
        if !NAL_IDR.contains(&nal_type) {
            bits.bits(sps.order_bits).ok()?;
            pictures = self.skip_sets(bits)?;
            is_temporal = sps.has_temporal && flag(bits)?;
        }
        let mut filters = false;
        if sps.has_offsets {
            filters = flag(bits)?;
            if sps.has_chroma {
                filters |= flag(bits)?;
            }
        }
        if slice_type != 2 {
            self.skip_prediction(slice_type == 0, pictures, is_temporal, bits)?;
        }
        se(bits)?;
        if pps.has_chroma_offsets {
            se(bits)?;
            se(bits)?;
        }
        if pps.has_offset_lists {
            bits.skip(1).ok()?;
        }
        let mut is_disabled = pps.disables_deblocking;
        if pps.overrides_deblocking && flag(bits)? {
            is_disabled = flag(bits)?;
            if !is_disabled {
                se(bits)?;
                se(bits)?;
            }
        }
        if pps.crosses_slices && (filters || !is_disabled) {
            bits.skip(1).ok()?;
        }
        Some(())
    }

    /// Skips the sets of reference pictures. Returns the number of pictures to which the picture may refer
    /// (NumPicTotalCurr).
    fn skip_sets(&self, bits: &mut BitReader<'_>) -> Option<u32> {
        let sps = self.sps;
        let count = u32::try_from(sps.short_sets.len()).ok()?;
        let own;
        let set = if !flag(bits)? {
            own = ShortSet::read(bits, &sps.short_sets, true)?;
            &own
        } else {
            let index = if count > 1 { bits.bits(bits_for(count)).ok()? } else { 0 };
            sps.short_sets.get(usize::try_from(index).ok()?)?
        };
        let mut pictures = set.used();
        let Some(known) = &sps.long else { return Some(pictures) };
        let known_count = u32::try_from(known.len()).ok()?;
        let of_sps = if known_count > 0 { ue(bits).filter(|count| *count <= LONG_MAX)? } else { 0 };
        let own = ue(bits).filter(|count| *count <= LONG_MAX)?;
        for index in 0..of_sps.saturating_add(own) {
            let is_used = if index < of_sps {
                let at = if known_count > 1 { bits.bits(bits_for(known_count)).ok()? } else { 0 };
                *known.get(usize::try_from(at).ok()?)?
            } else {
                bits.bits(sps.order_bits).ok()?;
                flag(bits)?
            };
            pictures = pictures.saturating_add(u32::from(is_used));
            if flag(bits)? {
                ue(bits)?;
            }
        }
        Some(pictures)
    }

    fn skip_prediction(
        &self,
        is_b: bool,
        pictures: u32,
        is_temporal: bool,
        bits: &mut BitReader<'_>,
    ) -> Option<()> {
        let pps = self.pps;
        let [mut first, mut second] = pps.references;
        if flag(bits)? {
            first = ue(bits)?.checked_add(1)?;
            if is_b {
                second = ue(bits)?.checked_add(1)?;
            }
        }
        if first > PICTURES_MAX || second > PICTURES_MAX {
            return None;
        }
        if pps.has_lists && pictures > 1 {
            for count in [Some(first), is_b.then_some(second)].into_iter().flatten() {
                if flag(bits)? {
                    (0..count).try_for_each(|_| bits.bits(bits_for(pictures)).ok().map(drop))?;
                }
            }
        }
        if is_b {
            bits.skip(1).ok()?;
        }
        if pps.has_cabac_init {
            bits.skip(1).ok()?;
        }
        if is_temporal {
            let from_first = !is_b || flag(bits)?;
            if from_first && first > 1 || !from_first && second > 1 {
                ue(bits)?;
            }
        }
        let [of_p, of_b] = pps.weighted;
        let is_weighted = if is_b { of_b } else { of_p };
        if is_weighted {
            self.skip_weights([first, if is_b { second } else { 0 }], bits)?;
        }
        ue(bits).map(drop)
    }

    /// Skips pred_weight_table (§7.3.6.3). Every reference has flags: the only exception, references to the current
    /// picture itself, requires extensions that are not supported.
    fn skip_weights(&self, references: [u32; 2], bits: &mut BitReader<'_>) -> Option<()> {
        ue(bits)?;
        if self.sps.has_chroma {
            se(bits)?;
        }
        for count in references.into_iter().filter(|count| *count > 0) {
            let mut flags = || (0..count).map(|_| flag(bits)).collect::<Option<Vec<bool>>>();
            let luma = flags()?;
            let chroma = if self.sps.has_chroma { flags()? } else { vec![false; luma.len()] };
            for (luma, chroma) in luma.into_iter().zip(chroma) {
                let fields = if luma { 2 } else { 0 } + if chroma { 4 } else { 0 };
                (0..fields).try_for_each(|_| se(bits).map(drop))?;
            }
        }
        Some(())
    }
}

impl Sps {
    fn read(nal: &[u8]) -> Option<Self> {
        let rbsp = unescape(nal.get(2..)?);
        let bits = &mut BitReader::new(&rbsp);
        bits.skip(4).ok()?;
        let sub_layers = bits.bits(3).ok().filter(|layers| *layers <= 6)?;
        bits.skip(1).ok()?;
        skip_profile_tier_level(bits, sub_layers).ok()?;
        ue(bits)?;
        let format = ue(bits).filter(|format| *format <= 3)?;
        let has_planes = format == 3 && flag(bits)?;
        let (width, height) = (ue(bits)?, ue(bits)?);
        if flag(bits)? {
            (0..4).try_for_each(|_| ue(bits).map(drop))?;
        }
        ue(bits)?;
        ue(bits)?;
        let order_bits = ue(bits).filter(|above| *above <= 12)?.saturating_add(4);
        let first = if flag(bits)? { 0 } else { sub_layers };
        for _ in first..=sub_layers {
            (0..3).try_for_each(|_| ue(bits).map(drop))?;
        }
        let block = ue(bits)?.checked_add(3)?.checked_add(ue(bits)?).filter(|log2| *log2 <= 6)?;
        let across = |side: u32| Some(side.checked_add(1 << block)?.checked_sub(1)? >> block);
        let blocks = across(width)?.checked_mul(across(height)?)?;
        (0..4).try_for_each(|_| ue(bits).map(drop))?;
        if flag(bits)? && flag(bits)? {
            skip_scaling_lists(bits)?;
        }
        bits.skip(1).ok()?;
        let has_offsets = flag(bits)?;
        if flag(bits)? {
            bits.skip(8).ok()?;
            ue(bits)?;
            ue(bits)?;
            bits.skip(1).ok()?;
        }
        let count = ue(bits).filter(|count| *count <= SHORT_SETS_MAX)?;
        let mut short_sets = Vec::new();
        for _ in 0..count {
            let set = ShortSet::read(bits, &short_sets, false)?;
            short_sets.push(set);
        }
        let long = if flag(bits)? { Some(read_long(bits, order_bits)?) } else { None };
        let has_temporal = flag(bits)?;
        let has_chroma = format != 0 && !has_planes;
        Some(Self { has_planes, has_chroma, blocks, order_bits, short_sets, long, has_offsets, has_temporal })
    }
}

/// Reads the long-term pictures of an SPS. Each value is true if pictures may refer to that long-term picture.
fn read_long(bits: &mut BitReader<'_>, order_bits: u32) -> Option<Vec<bool>> {
    let count = ue(bits).filter(|count| *count <= LONG_MAX)?;
    let read = |_| {
        bits.bits(order_bits).ok()?;
        flag(bits)
    };
    (0..count).map(read).collect()
}

/// Skips scaling_list_data (§7.3.4).
fn skip_scaling_lists(bits: &mut BitReader<'_>) -> Option<()> {
    for size in 0u32..4 {
        for _ in 0..if size == 3 { 2 } else { 6 } {
            if !flag(bits)? {
                ue(bits)?;
                continue;
            }
            if size > 1 {
                se(bits)?;
            }
            let coefficients = 64.min(1u32 << (4 + (size << 1)));
            (0..coefficients).try_for_each(|_| se(bits).map(drop))?;
        }
    }
    Some(())
}

impl Pps {
    fn read(nal: &[u8]) -> Option<Self> {
        let rbsp = unescape(nal.get(2..)?);
        let bits = &mut BitReader::new(&rbsp);
        ue(bits)?;
        let sps = ue(bits)?;
        let (has_dependent, has_output) = (flag(bits)?, flag(bits)?);
        let extra_bits = bits.bits(3).ok()?;
        bits.skip(1).ok()?;
        let has_cabac_init = flag(bits)?;
        let references = [ue(bits)?.checked_add(1)?, ue(bits)?.checked_add(1)?];
        se(bits)?;
        bits.skip(1).ok()?;
        let has_skips = flag(bits)?;
        if flag(bits)? {
            ue(bits)?;
        }
        se(bits)?;
        se(bits)?;
        let has_chroma_offsets = flag(bits)?;
        let weighted = [flag(bits)?, flag(bits)?];
        bits.skip(1).ok()?;
        let (has_tiles, has_waves) = (flag(bits)?, flag(bits)?);
        if has_tiles {
            skip_tiles(bits)?;
        }
        let crosses_slices = flag(bits)?;
        let (mut overrides_deblocking, mut disables_deblocking) = (false, false);
        if flag(bits)? {
            overrides_deblocking = flag(bits)?;
            disables_deblocking = flag(bits)?;
            if !disables_deblocking {
                se(bits)?;
                se(bits)?;
            }
        }
        if flag(bits)? {
            skip_scaling_lists(bits)?;
        }
        let has_lists = flag(bits)?;
        ue(bits)?;
        let has_extension = flag(bits)?;
        let mut has_offset_lists = false;
        if flag(bits)? {
            // pps_range_extension_flag, then the flags of extensions that change slice headers in unsupported ways.
            let has_range = flag(bits)?;
            if bits.bits(7).ok()? != 0 {
                return None;
            }
            has_offset_lists = has_range && reads_offset_lists(has_skips, bits)?;
        }
        Some(Self {
            sps,
            has_dependent,
            has_output,
            extra_bits,
            has_cabac_init,
            references,
            has_chroma_offsets,
            weighted,
            has_entry_points: has_tiles || has_waves,
            crosses_slices,
            overrides_deblocking,
            disables_deblocking,
            has_lists,
            has_extension,
            has_offset_lists,
        })
    }
}

/// Skips the tiles of a PPS.
fn skip_tiles(bits: &mut BitReader<'_>) -> Option<()> {
    let (columns, rows) = (ue(bits)?, ue(bits)?);
    if columns > ENTRY_POINTS_MAX || rows > ENTRY_POINTS_MAX {
        return None;
    }
    if !flag(bits)? {
        (0..columns.saturating_add(rows)).try_for_each(|_| ue(bits).map(drop))?;
    }
    bits.skip(1).ok()
}

/// Reads chroma_qp_offset_list_enabled_flag of pps_range_extension (§7.3.2.3.2).
fn reads_offset_lists(has_skips: bool, bits: &mut BitReader<'_>) -> Option<bool> {
    if has_skips {
        ue(bits)?;
    }
    bits.skip(1).ok()?;
    flag(bits)
}

impl ShortSet {
    /// Reads st_ref_pic_set (§7.3.7, §7.4.8). `before` are the sets already read; `is_of_slice` is true in a
    /// slice header.
    fn read(bits: &mut BitReader<'_>, before: &[Self], is_of_slice: bool) -> Option<Self> {
        if !before.is_empty() && flag(bits)? {
            return Self::predicted(bits, before, is_of_slice);
        }
        let (negative, positive) = (ue(bits)?, ue(bits)?);
        if negative > PICTURES_MAX || positive > PICTURES_MAX {
            return None;
        }
        let mut list = |count: u32, sign: i32| {
            let mut delta = 0i32;
            let read = |_| {
                let step = i32::try_from(ue(bits)?).ok()?.checked_add(1)?;
                delta = delta.checked_add(step.checked_mul(sign)?)?;
                Some((delta, flag(bits)?))
            };
            (0..count).map(read).collect::<Option<Vec<_>>>()
        };
        Some(Self { negative: list(negative, -1)?, positive: list(positive, 1)? })
    }

    fn predicted(bits: &mut BitReader<'_>, before: &[Self], is_of_slice: bool) -> Option<Self> {
        let back = if is_of_slice { usize::try_from(ue(bits)?).ok()?.checked_add(1)? } else { 1 };
        let reference = before.get(before.len().checked_sub(back)?)?;
        let is_negative = flag(bits)?;
        let size = i32::try_from(ue(bits)?).ok()?.checked_add(1)?;
        let delta = if is_negative { size.checked_neg()? } else { size };
        let count = reference.negative.len().saturating_add(reference.positive.len());
        let mut flags = Vec::new();
        for _ in 0..=count {
            let is_used = flag(bits)?;
            let is_kept = is_used || flag(bits)?;
            flags.push((is_used, is_kept));
        }
        let of = |at: usize| flags.get(at).filter(|(_, is_kept)| *is_kept).map(|(is_used, _)| *is_used);
        // The new set has the pictures of the referenced set, shifted by `delta`, and the picture to which the
        // referenced set belongs.
        let behind = reference.negative.len();
        let mut all: Vec<(i32, bool)> = Vec::new();
        for (at, (order, _)) in reference.negative.iter().chain(&reference.positive).enumerate() {
            let moved = order.checked_add(delta)?;
            all.extend(of(at).map(|is_used| (moved, is_used)));
        }
        all.extend(of(behind.saturating_add(reference.positive.len())).map(|is_used| (delta, is_used)));
        let mut negative: Vec<_> = all.iter().copied().filter(|(order, _)| *order < 0).collect();
        let mut positive: Vec<_> = all.into_iter().filter(|(order, _)| *order > 0).collect();
        negative.sort_by_key(|(order, _)| core::cmp::Reverse(*order));
        positive.sort_by_key(|(order, _)| *order);
        Some(Self { negative, positive })
    }

    fn used(&self) -> u32 {
        let used = self.negative.iter().chain(&self.positive).filter(|(_, is_used)| *is_used);
        u32::try_from(used.count()).unwrap_or(u32::MAX)
    }
}

fn ue(bits: &mut BitReader<'_>) -> Option<u32> {
    bits.ue().ok()
}

fn se(bits: &mut BitReader<'_>) -> Option<i32> {
    bits.se().ok()
}

fn flag(bits: &mut BitReader<'_>) -> Option<bool> {
    bits.bit().ok()
}
