//! Slice headers of H.264 (§7.3.3).

use alloc::collections::BTreeMap;

use wire::BitReader;

use super::SETS_MAX;
use crate::codec::h264::{NAL_IDR, NAL_PPS, NAL_SPS, PROFILES_WITH_CHROMA, nal_type, read_chroma, set_id};
use crate::nal::unescape;

/// Maximum number of reference pictures of a slice.
const REFERENCES_MAX: u32 = 32;
/// Maximum number of operations in a reference picture list modification, or of marking operations.
const OPERATIONS_MAX: usize = 70;

/// The parameter sets of a track by their ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Sets {
    sps: BTreeMap<u32, Sps>,
    pps: BTreeMap<u32, Pps>,
}

/// The fields of a sequence parameter set that slice headers depend on.
#[derive(Debug, Clone)]
struct Sps {
    has_planes: bool,
    has_chroma: bool,
    frame_num_bits: u32,
    order: Order,
    frames_only: bool,
}

/// pic_order_cnt_type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Type 0, with the number of bits of pic_order_cnt_lsb.
    Lsb(u32),
    /// Type 1, with delta_pic_order_always_zero_flag.
    Cycle(bool),
    /// Type 2, which has no further fields.
    Decoding,
}

/// The fields of a picture parameter set that slice headers depend on.
#[derive(Debug, Clone)]
struct Pps {
    sps: u32,
    is_cabac: bool,
    has_bottom_order: bool,
    references: [u32; 2],
    is_weighted: bool,
    is_bipredicted: bool,
    has_deblocking: bool,
    has_redundant: bool,
}

/// slice_type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    P,
    B,
    I,
    Sp,
    Si,
}

impl Sets {
    pub(super) fn note(&mut self, nal: &[u8]) {
        let Ok(id) = set_id(nal) else { return };
        if nal_type(nal) == NAL_SPS && (self.sps.len() < SETS_MAX || self.sps.contains_key(&id)) {
            self.sps.extend(Sps::read(nal).map(|sps| (id, sps)));
        } else if nal_type(nal) == NAL_PPS && (self.pps.len() < SETS_MAX || self.pps.contains_key(&id)) {
            self.pps.extend(Pps::read(nal).map(|pps| (id, pps)));
        }
    }

    /// Reads frame_num of a slice of a frame, and its number of bits. `bits` begins after the NAL unit header.
    pub(super) fn frame_num(&self, bits: &mut BitReader<'_>) -> Option<(u32, u32)> {
        bits.ue().ok()?;
        bits.ue().ok()?;
        let pps = self.pps.get(&bits.ue().ok()?)?;
        let sps = self.sps.get(&pps.sps).filter(|sps| sps.frames_only)?;
        if sps.has_planes {
            bits.skip(2).ok()?;
        }
        Some((bits.bits(sps.frame_num_bits).ok()?, sps.frame_num_bits))
    }

    /// Skips the header of a slice. `bits` begins after the NAL unit header.
    pub(super) fn skip_header(&self, nal: &[u8], bits: &mut BitReader<'_>) -> Option<()> {
        let is_idr = nal_type(nal) == NAL_IDR;
        let is_reference = nal.first()? & 0x60 != 0;
        bits.ue().ok()?;
        let kind = Kind::of(bits.ue().ok()?)?;
        let pps = self.pps.get(&bits.ue().ok()?)?;
        let sps = self.sps.get(&pps.sps)?;
        sps.skip_picture(pps, is_idr, bits)?;
        if pps.has_redundant {
            bits.ue().ok()?;
        }
        if kind == Kind::B {
            bits.skip(1).ok()?;
        }
        let [mut first, mut second] = pps.references;
        if !kind.is_intra() && bits.bit().ok()? {
            first = bits.ue().ok()?.checked_add(1)?;
            if kind == Kind::B {
                second = bits.ue().ok()?.checked_add(1)?;
            }
        }
        if first > REFERENCES_MAX || second > REFERENCES_MAX {
            return None;
        }
        let lists = if kind.is_intra() { 0 } else { 1 + usize::from(kind == Kind::B) };
        (0..lists).try_for_each(|_| skip_modification(bits))?;
        if pps.is_weighted && matches!(kind, Kind::P | Kind::Sp) || pps.is_bipredicted && kind == Kind::B {
            let count = if kind == Kind::B { first.saturating_add(second) } else { first };
            skip_weights(bits, sps.has_chroma, count)?;
        }
        if is_reference {
            skip_marking(bits, is_idr)?;
        }
        if pps.is_cabac && !kind.is_intra() {
            bits.ue().ok()?;
        }
        bits.se().ok()?;
        if matches!(kind, Kind::Sp | Kind::Si) {
            if kind == Kind::Sp {
                bits.skip(1).ok()?;
            }
            bits.se().ok()?;
        }
        if pps.has_deblocking && bits.ue().ok()? != 1 {
            bits.se().ok()?;
            bits.se().ok()?;
        }
        // cabac_alignment_one_bit (§7.3.4). If one of these bits is zero, the header was not read
        // correctly.
        let ones = u32::try_from(bits.remaining() % 8).ok()?;
        let is_aligned = !pps.is_cabac || bits.bits(ones).ok()? == (1 << ones) - 1;
        is_aligned.then_some(())
    }
}

impl Kind {
    const fn of(slice_type: u32) -> Option<Self> {
        match slice_type % 5 {
            _ if slice_type > 9 => None,
            0 => Some(Self::P),
            1 => Some(Self::B),
            2 => Some(Self::I),
            3 => Some(Self::Sp),
            _ => Some(Self::Si),
        }
    }

    const fn is_intra(self) -> bool {
        matches!(self, Self::I | Self::Si)
    }
}

impl Sps {
    fn read(nal: &[u8]) -> Option<Self> {
        let rbsp = unescape(nal.get(1..)?);
        let mut bits = BitReader::new(&rbsp);
        let profile = u8::try_from(bits.bits(8).ok()?).ok()?;
        bits.skip(16).ok()?;
        bits.ue().ok()?;
        let (mut has_planes, mut has_chroma) = (false, true);
        if PROFILES_WITH_CHROMA.contains(&profile) {
            let mut ahead = bits.clone();
            let [format, ..] = read_chroma(&mut bits).ok()?;
            ahead.ue().ok()?;
            has_planes = format == 3 && ahead.bit().ok()?;
            has_chroma = format != 0 && !has_planes;
        }
        let frame_num_bits = log2(&mut bits)?;
        let order = match bits.ue().ok()? {
            0 => Order::Lsb(log2(&mut bits)?),
            1 => {
                let is_zero = bits.bit().ok()?;
                bits.se().ok()?;
                bits.se().ok()?;
                let cycle = bits.ue().ok().filter(|cycle| *cycle <= 255)?;
                (0..cycle).try_for_each(|_| bits.se().ok().map(drop))?;
                Order::Cycle(is_zero)
            }
            2 => Order::Decoding,
            _ => return None,
        };
        bits.ue().ok()?;
        bits.skip(1).ok()?;
        bits.ue().ok()?;
        bits.ue().ok()?;
        Some(Self { has_planes, has_chroma, frame_num_bits, order, frames_only: bits.bit().ok()? })
    }

    /// Skips the fields that identify the picture of a slice.
    fn skip_picture(&self, pps: &Pps, is_idr: bool, bits: &mut BitReader<'_>) -> Option<()> {
        if self.has_planes {
            bits.skip(2).ok()?;
        }
        bits.bits(self.frame_num_bits).ok()?;
        let is_field = !self.frames_only && bits.bit().ok()?;
        if is_field {
            bits.skip(1).ok()?;
        }
        if is_idr {
            bits.ue().ok()?;
        }
        let has_both = pps.has_bottom_order && !is_field;
        match self.order {
            Order::Lsb(length) => {
                bits.bits(length).ok()?;
                if has_both {
                    bits.se().ok()?;
                }
            }
            Order::Cycle(false) => {
                bits.se().ok()?;
                if has_both {
                    bits.se().ok()?;
                }
            }
            Order::Cycle(true) | Order::Decoding => {}
        }
        Some(())
    }
}

/// Reads a log2 value, which is coded as the value minus 4.
fn log2(bits: &mut BitReader<'_>) -> Option<u32> {
    bits.ue().ok().filter(|above| *above <= 12).map(|above| above.saturating_add(4))
}

impl Pps {
    fn read(nal: &[u8]) -> Option<Self> {
        let rbsp = unescape(nal.get(1..)?);
        let mut bits = BitReader::new(&rbsp);
        bits.ue().ok()?;
        let sps = bits.ue().ok()?;
        let is_cabac = bits.bit().ok()?;
        let has_bottom_order = bits.bit().ok()?;
        // Slice groups only exist in the Baseline and Extended profiles, and common encoders do not use them.
        if bits.ue().ok()? != 0 {
            return None;
        }
        let references = [bits.ue().ok()?.checked_add(1)?, bits.ue().ok()?.checked_add(1)?];
        let is_weighted = bits.bit().ok()?;
        let is_bipredicted = bits.bits(2).ok()? == 1;
        (0..3).try_for_each(|_| bits.se().ok().map(drop))?;
        let has_deblocking = bits.bit().ok()?;
        bits.skip(1).ok()?;
        let has_redundant = bits.bit().ok()?;
        Some(Self {
            sps,
            is_cabac,
            has_bottom_order,
            references,
            is_weighted,
            is_bipredicted,
            has_deblocking,
            has_redundant,
        })
    }
}

/// Skips the modification of one list of reference pictures (§7.3.3.1).
fn skip_modification(bits: &mut BitReader<'_>) -> Option<()> {
    if !bits.bit().ok()? {
        return Some(());
    }
    for _ in 0..OPERATIONS_MAX {
        match bits.ue().ok()? {
            3 => return Some(()),
            0..=2 => bits.ue().ok()?,
            _ => return None,
        };
    }
    None
}

/// Skips pred_weight_table (§7.3.3.2) for `count` pictures.
fn skip_weights(bits: &mut BitReader<'_>, has_chroma: bool, count: u32) -> Option<()> {
    bits.ue().ok()?;
    if has_chroma {
        bits.ue().ok()?;
    }
    for _ in 0..count {
        if bits.bit().ok()? {
            (0..2).try_for_each(|_| bits.se().ok().map(drop))?;
        }
        if has_chroma && bits.bit().ok()? {
            (0..4).try_for_each(|_| bits.se().ok().map(drop))?;
        }
    }
    Some(())
}

/// Skips dec_ref_pic_marking (§7.3.3.3).
fn skip_marking(bits: &mut BitReader<'_>, is_idr: bool) -> Option<()> {
    if is_idr {
        return bits.skip(2).ok();
    }
    if !bits.bit().ok()? {
        return Some(());
    }
    for _ in 0..OPERATIONS_MAX {
        let operands = match bits.ue().ok()? {
            0 => return Some(()),
            1 | 2 | 4 | 6 => 1,
            3 => 2,
            5 => 0,
            _ => return None,
        };
        (0..operands).try_for_each(|_| bits.ue().ok().map(drop))?;
    }
    None
}
