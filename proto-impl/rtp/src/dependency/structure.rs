//! Structure of a source's frames: template_dependency_structure (A.4.1).

use alloc::vec::Vec;

use wire::{BitReader, Truncated};

use super::bits::{self, BitWriter};
use super::{DECODE_TARGETS_MAX, SPATIAL_LAYERS_MAX, TEMPLATES_MAX, TEMPORAL_LAYERS_MAX};
use crate::Error;

/// Values of next_layer_idc (table A.3).
const SAME_LAYER: u32 = 0;
const NEXT_TEMPORAL: u32 = 1;
const NEXT_SPATIAL: u32 = 2;
const NO_MORE: u32 = 3;

/// Relation of a frame to a decode target (table A.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indication {
    /// The target does not contain the frame.
    NotPresent,
    /// No other frame of the target refers to the frame.
    Discardable,
    /// All later frames of the target can be decoded if this one can: receivers may switch to the target here.
    Switch,
    /// The target contains the frame.
    Required,
}

impl Indication {
    pub(super) fn read(bits: &mut BitReader<'_>) -> Result<Self, Truncated> {
        Ok(match bits.bits(2)? {
            0 => Self::NotPresent,
            1 => Self::Discardable,
            2 => Self::Switch,
            _ => Self::Required,
        })
    }

    pub(super) fn write(self, bits: &mut BitWriter<'_>) {
        let value = match self {
            Self::NotPresent => 0,
            Self::Discardable => 1,
            Self::Switch => 2,
            Self::Required => 3,
        };
        bits.put(value, 2);
    }
}

/// Template of frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Spatial layer.
    pub spatial: u8,
    /// Temporal layer.
    pub temporal: u8,
    /// Relation to each decode target.
    pub indications: Vec<Indication>,
    /// Distances to the frames that the frame refers to, 1 to 16.
    pub references: Vec<u8>,
    /// Distances to the previous frames of the chains, 0 to 15.
    pub chains: Vec<u8>,
}

/// Structure of a source's frames. It is valid by construction: [`Structure::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    first_id: u8,
    templates: Vec<Template>,
    /// Chain that protects each decode target. Empty without chains.
    protected_by: Vec<u8>,
    chains: u8,
    decode_targets: u8,
    /// Largest size of the pictures of each spatial layer.
    sizes: Vec<(u32, u32)>,
}

impl Structure {
    /// Creates a structure whose templates have ids from `first_id` on. `protected_by` has the chain of each decode
    /// target, or is empty if there are no chains. `sizes` has the size of each spatial layer, or is empty. `None` if the
    /// parts do not fit each other or the limits of the format.
    #[must_use]
    pub fn new(
        first_id: u8,
        templates: Vec<Template>,
        protected_by: Vec<u8>,
        sizes: Vec<(u32, u32)>,
    ) -> Option<Self> {
        let first = templates.first()?;
        let decode_targets = first.indications.len();
        let chains = first.chains.len();
        let all_fit = templates.iter().all(|one| {
            let distances = one.references.iter().all(|distance| (1..=16).contains(distance));
            let chain_distances =
                one.chains.len() == chains && one.chains.iter().all(|distance| *distance < 16);
            one.indications.len() == decode_targets && distances && chain_distances
        });
        let layers_fit = (first.spatial, first.temporal) == (0, 0)
            && templates.iter().zip(templates.iter().skip(1)).all(|(one, next)| step(one, next).is_some());
        let spatial = usize::from(templates.last()?.spatial);
        let temporal = usize::from(templates.iter().map(|one| one.temporal).max()?);
        let counts_fit = templates.len() <= TEMPLATES_MAX
            && (1..=DECODE_TARGETS_MAX).contains(&decode_targets)
            && chains <= decode_targets
            && spatial < SPATIAL_LAYERS_MAX
            && temporal < TEMPORAL_LAYERS_MAX;
        let chains = u8::try_from(chains).ok()?;
        let protected = if chains == 0 { 0 } else { decode_targets };
        let protects = protected_by.len() == protected && protected_by.iter().all(|chain| *chain < chains);
        let is_size =
            |(width, height): &(u32, u32)| [width, height].iter().all(|n| (1..=1 << 16).contains(*n));
        let sized = (sizes.is_empty() || sizes.len() == spatial + 1) && sizes.iter().all(is_size);
        let is_valid = first_id < 64 && all_fit && layers_fit && counts_fit && protects && sized;
        let decode_targets = u8::try_from(decode_targets).ok()?;
        is_valid.then_some(Self { first_id, templates, protected_by, chains, decode_targets, sizes })
    }

    /// Id of the first template.
    #[must_use]
    pub const fn first_id(&self) -> u8 {
        self.first_id
    }

    /// The number of decode targets.
    #[must_use]
    pub const fn decode_targets(&self) -> u8 {
        self.decode_targets
    }

    /// The number of chains.
    #[must_use]
    pub const fn chains(&self) -> u8 {
        self.chains
    }

    /// The templates, in the order of their ids.
    #[must_use]
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Largest size of the pictures of each spatial layer; empty if not stated.
    #[must_use]
    pub fn sizes(&self) -> &[(u32, u32)] {
        &self.sizes
    }

    /// Chain that protects each decode target; empty without chains.
    #[must_use]
    pub fn protected_by(&self) -> &[u8] {
        &self.protected_by
    }

    /// Returns the template with an id; ids wrap around after 63.
    #[must_use]
    pub fn template(&self, id: u8) -> Option<&Template> {
        self.templates.get(usize::from(id.wrapping_sub(self.first_id) & 63))
    }

    /// Returns the decode target of each spatial layer with its highest temporal layer, of those whose bit is set.
    #[must_use]
    pub fn targets(&self, active: u32) -> [Option<u8>; SPATIAL_LAYERS_MAX] {
        let mut targets = [(None, 0); SPATIAL_LAYERS_MAX];
        for target in (0..self.decode_targets).filter(|target| active >> target & 1 == 1) {
            let is_present = |one: &&Template| {
                one.indications.get(usize::from(target)).is_some_and(|one| *one != Indication::NotPresent)
            };
            let of_target = || self.templates.iter().filter(is_present);
            let spatial = of_target().map(|one| usize::from(one.spatial)).max();
            let temporal = of_target().map(|one| one.temporal).max().unwrap_or(0);
            let Some((best, height)) = spatial.and_then(|spatial| targets.get_mut(spatial)) else { continue };
            if best.is_none() || temporal > *height {
                (*best, *height) = (Some(target), temporal);
            }
        }
        targets.map(|(target, _)| target)
    }

    pub(super) fn read(bits: &mut BitReader<'_>) -> Result<Self, Error> {
        let first_id = bits::byte(bits, 6)?;
        let decode_targets = bits::byte(bits, 5)? + 1;
        let mut templates = read_layers(bits)?;
        for template in &mut templates {
            let read: Result<_, Truncated> = (0..decode_targets).map(|_| Indication::read(bits)).collect();
            template.indications = read?;
        }
        for template in &mut templates {
            while bits.bit()? {
                template.references.push(bits::byte(bits, 4)? + 1);
            }
        }
        let chains = bits::below(bits, u32::from(decode_targets) + 1)?;
        let mut protected_by = Vec::new();
        if chains > 0 {
            for _ in 0..decode_targets {
                protected_by.push(u8::try_from(bits::below(bits, chains)?).unwrap_or(u8::MAX));
            }
            for template in &mut templates {
                let read: Result<_, Truncated> = (0..chains).map(|_| bits::byte(bits, 4)).collect();
                template.chains = read?;
            }
        }
        let mut sizes = Vec::new();
        if bits.bit()? {
            let layers = templates.last().map_or(0, |last| last.spatial) + 1;
            for _ in 0..layers {
                sizes.push((bits.bits(16)? + 1, bits.bits(16)? + 1));
            }
        }
        Self::new(first_id, templates, protected_by, sizes).ok_or(Error::Malformed("dependency structure"))
    }

    pub(super) fn write(&self, bits: &mut BitWriter<'_>) {
        bits.put(self.first_id.into(), 6);
        bits.put(u32::from(self.decode_targets).saturating_sub(1), 5);
        for (one, next) in self.templates.iter().zip(self.templates.iter().skip(1)) {
            bits.put(step(one, next).unwrap_or(SAME_LAYER), 2);
        }
        bits.put(NO_MORE, 2);
        self.templates.iter().flat_map(|one| &one.indications).for_each(|one| one.write(bits));
        for template in &self.templates {
            for distance in &template.references {
                bits.put(1, 1);
                bits.put(u32::from(*distance).saturating_sub(1), 4);
            }
            bits.put(0, 1);
        }
        bits.put_below(self.chains.into(), u32::from(self.decode_targets) + 1);
        for chain in &self.protected_by {
            bits.put_below((*chain).into(), self.chains.into());
        }
        self.templates.iter().flat_map(|one| &one.chains).for_each(|one| bits.put((*one).into(), 4));
        bits.put(u32::from(!self.sizes.is_empty()), 1);
        for (width, height) in &self.sizes {
            bits.put(width.saturating_sub(1), 16);
            bits.put(height.saturating_sub(1), 16);
        }
    }
}

/// Returns the next_layer_idc from a template to the next one; `None` if no value says so.
const fn step(one: &Template, next: &Template) -> Option<u32> {
    if next.spatial == one.spatial && next.temporal == one.temporal {
        Some(SAME_LAYER)
    } else if next.spatial == one.spatial && next.temporal == one.temporal + 1 {
        Some(NEXT_TEMPORAL)
    } else if next.spatial == one.spatial + 1 && next.temporal == 0 {
        Some(NEXT_SPATIAL)
    } else {
        None
    }
}

/// Reads template_layers.
fn read_layers(bits: &mut BitReader<'_>) -> Result<Vec<Template>, Error> {
    let (mut spatial, mut temporal) = (0_u8, 0_u8);
    let mut templates = Vec::new();
    loop {
        let (indications, references, chains) = Default::default();
        templates.push(Template { spatial, temporal, indications, references, chains });
        match bits.bits(2)? {
            SAME_LAYER => {}
            NEXT_TEMPORAL => temporal += 1,
            NEXT_SPATIAL => (spatial, temporal) = (spatial + 1, 0),
            _ => return Ok(templates),
        }
        let layers_fit =
            usize::from(spatial) < SPATIAL_LAYERS_MAX && usize::from(temporal) < TEMPORAL_LAYERS_MAX;
        if templates.len() >= TEMPLATES_MAX || !layers_fit {
            return Err(Error::Malformed("dependency templates"));
        }
    }
}
