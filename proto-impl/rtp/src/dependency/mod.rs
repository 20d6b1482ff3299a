//! Dependency descriptor (AV1 RTP 1.0, appendix A): a header extension that names the layer of each frame, and what a
//! receiver of fewer layers needs of it.
//!
//! A *decode target* is a set of frames that a decoder can play by itself: up to a spatial and a temporal layer. A
//! *structure* lists the templates of frames, each with its layer, its relation to every decode target, the frames that
//! it refers to, and the chains of frames that keep targets decodable. A structure comes with the first packet of a key
//! frame; later packets name a template, and state only what differs from it.
//!
//! ```text
//! first(1) last(1) template(6) frame number(16)
//!    if longer than three bytes:
//!    structure follows(1) active targets follow(1) own indications(1) own references(1) own chains(1)
//!    the structure, the active targets, the frame's own values
//! ```
//!
//! [`Descriptor`] is one value of the extension. [`Dependencies`] is the state of a source: it remembers the structure,
//! and tells of each frame which spatial layers need it.

mod bits;
mod structure;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use wire::{BitReader, Truncated};

use crate::Error;
use bits::BitWriter;
pub use structure::{Indication, Structure, Template};

/// Number of spatial layers (MAX_SPATIAL_ID + 1).
pub const SPATIAL_LAYERS_MAX: usize = 4;
/// Number of temporal layers (MAX_TEMPORAL_ID + 1).
pub const TEMPORAL_LAYERS_MAX: usize = 8;
/// Number of templates of a structure (MAX_TEMPLATE_ID + 1).
pub const TEMPLATES_MAX: usize = 64;
/// Number of decode targets: the field has five bits.
pub const DECODE_TARGETS_MAX: usize = 32;
/// Length of a descriptor without extended fields.
const SHORT_BYTES: usize = 3;
/// Length of the longest descriptor: an element of the two-byte form.
const BYTES_MAX: usize = 255;

/// A value of the extension. Fields that are `None` are those of the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The packet is the first of its frame.
    pub first: bool,
    /// The packet is the last of its frame.
    pub last: bool,
    /// Id of the frame's template, which counts from [`Structure::first_id`].
    pub template_id: u8,
    /// Number of the frame in decoding order, of all layers.
    pub frame_number: u16,
    /// Structure that begins with this frame.
    pub structure: Option<Box<Structure>>,
    /// Decode targets that are sent at present, a bit for each, and the number of decode targets.
    pub active: Option<(u32, u8)>,
    /// The frame's own indications, one for each decode target.
    pub indications: Option<Vec<Indication>>,
    /// The frame's own references: distances to earlier frame numbers, 1 to 4096.
    pub references: Option<Vec<u16>>,
    /// The frame's own distances to the previous frames of the chains.
    pub chains: Option<Vec<u8>>,
}

impl Descriptor {
    /// Reads a descriptor. `known` is the structure of the frames so far; without one, a descriptor whose length depends
    /// on it is malformed.
    pub fn read(value: &[u8], known: Option<&Structure>) -> Result<Self, Error> {
        let mut bits = BitReader::new(value);
        let mut descriptor = Self {
            first: bits.bit()?,
            last: bits.bit()?,
            template_id: bits::byte(&mut bits, 6)?,
            frame_number: bits::short(&mut bits, 16)?,
            ..Self::default()
        };
        if value.len() > SHORT_BYTES {
            descriptor.read_extended(&mut bits, known)?;
        }
        Ok(descriptor)
    }

    fn read_extended(&mut self, bits: &mut BitReader<'_>, known: Option<&Structure>) -> Result<(), Error> {
        let (has_structure, has_active) = (bits.bit()?, bits.bit()?);
        let (has_indications, has_references, has_chains) = (bits.bit()?, bits.bit()?, bits.bit()?);
        if has_structure {
            self.structure = Some(Box::new(Structure::read(bits)?));
        }
        let structure = self.structure.as_deref().or(known);
        let needed = || structure.ok_or(Error::Malformed("dependency descriptor without its structure"));
        if has_active {
            let count = needed()?.decode_targets();
            self.active = Some((bits.bits(count.into())?, count));
        }
        if has_indications {
            let count = needed()?.decode_targets();
            let read: Result<_, Truncated> = (0..count).map(|_| Indication::read(bits)).collect();
            self.indications = Some(read?);
        }
        if has_references {
            self.references = Some(read_references(bits)?);
        }
        if has_chains {
            let count = needed()?.chains();
            let read: Result<_, Truncated> = (0..count).map(|_| bits::byte(bits, 8)).collect();
            self.chains = Some(read?);
        }
        Ok(())
    }

    /// Appends the descriptor, whose own values must fit its structure. Returns false, and appends nothing, if it is
    /// longer than an extension can be.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut bits = BitWriter::new(out);
        bits.put(u32::from(self.first) << 1 | u32::from(self.last), 2);
        bits.put(self.template_id.into(), 6);
        bits.put(self.frame_number.into(), 16);
        let flags = [
            self.structure.is_some(),
            self.active.is_some(),
            self.indications.is_some(),
            self.references.is_some(),
            self.chains.is_some(),
        ];
        if flags.contains(&true) {
            flags.iter().for_each(|flag| bits.put((*flag).into(), 1));
            self.write_extended(&mut bits);
        }
        let is_short = out.len().saturating_sub(start) <= BYTES_MAX;
        if !is_short {
            out.truncate(start);
        }
        is_short
    }

    fn write_extended(&self, bits: &mut BitWriter<'_>) {
        if let Some(structure) = &self.structure {
            structure.write(bits);
        }
        if let Some((active, count)) = self.active {
            bits.put(active, count.into());
        }
        self.indications.iter().flatten().for_each(|one| one.write(bits));
        if let Some(references) = &self.references {
            for distance in references {
                let before = u32::from(distance.saturating_sub(1));
                let size = if before < 1 << 4 {
                    1
                } else if before < 1 << 8 {
                    2
                } else {
                    3
                };
                bits.put(size, 2);
                bits.put(before, 4 * size);
            }
            bits.put(0, 2);
        }
        self.chains.iter().flatten().for_each(|one| bits.put((*one).into(), 8));
    }
}

/// Reads frame_fdiffs. The length of the descriptor limits their number.
fn read_references(bits: &mut BitReader<'_>) -> Result<Vec<u16>, Truncated> {
    let mut references = Vec::new();
    loop {
        let size = bits.bits(2)?;
        if size == 0 {
            return Ok(references);
        }
        references.push(bits::short(bits, 4 * size)?.saturating_add(1));
    }
}

/// Layer of a frame, and its relation to the layers of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLayer {
    /// The packet is the first of its frame.
    pub first: bool,
    /// Number of the frame.
    pub frame_number: u16,
    /// Spatial layer.
    pub spatial: u8,
    /// Temporal layer.
    pub temporal: u8,
    /// Spatial layers whose picture needs this frame, at their highest temporal layer: a bit for each.
    pub needed_by: u8,
    /// Spatial layers that are sent at present: a bit for each.
    pub sent: u8,
    /// Largest width and height of the layer's pictures, if the structure states them.
    pub size: Option<(u32, u32)>,
}

/// Structure of one source, as known from its packets so far.
#[derive(Debug, Default)]
pub struct Dependencies {
    structure: Option<Box<Structure>>,
    /// Decode target of each spatial layer, with the highest temporal layer that is sent.
    targets: [Option<u8>; SPATIAL_LAYERS_MAX],
}

impl Dependencies {
    /// Creates the state before a source's first packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the descriptor of a packet. Fails if it is malformed, or names a template of a structure that has not come.
    pub fn handle(&mut self, value: &[u8]) -> Result<FrameLayer, Error> {
        let descriptor = Descriptor::read(value, self.structure.as_deref())?;
        let Descriptor { first, frame_number, template_id, structure, active, indications, .. } = descriptor;
        let begins = structure.is_some();
        if let Some(structure) = structure {
            self.structure = Some(structure);
        }
        let Some(structure) = &self.structure else {
            return Err(Error::Malformed("dependency descriptor without its structure"));
        };
        if begins || active.is_some() {
            self.targets = structure.targets(active.map_or(u32::MAX, |(active, _)| active));
        }
        let template = structure.template(template_id).ok_or(Error::Malformed("dependency template"))?;
        let own = indications.as_deref().unwrap_or(&template.indications);
        let (mut needed_by, mut sent) = (0, 0);
        for (spatial, target) in self.targets.iter().enumerate() {
            let Some(target) = target else { continue };
            sent |= 1 << spatial;
            let is_needed =
                own.get(usize::from(*target)).is_some_and(|indication| *indication != Indication::NotPresent);
            needed_by |= u8::from(is_needed) << spatial;
        }
        let Template { spatial, temporal, .. } = *template;
        let size = structure.sizes().get(usize::from(spatial)).copied();
        Ok(FrameLayer { first, frame_number, spatial, temporal, needed_by, sent, size })
    }
}
