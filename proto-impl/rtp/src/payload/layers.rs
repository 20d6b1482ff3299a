//! Spatial layers of pictures (VP9, AV1): which parts of a picture a decoder of each layer needs.
//!
//! The layers of a picture have one timestamp. To show layer *k*, a decoder needs that layer, and those lower ones on
//! which it depends:
//!
//! 1. A key picture defines the layers of the stream: its highest layer is the top layer. A key picture is needed from
//!    the lowest layer on, because a decoder can only start there, unless the layer has a key frame of its own
//!    (simulcast in one stream).
//! 2. For other pictures, the dependency descriptor of each layer's frame says which layers need it
//!    ([`crate::dependency`]).
//! 3. Without descriptors, and after [`ALONE_AFTER`] pictures in which the layer is not predicted from lower ones (D is
//!    not set in VP9: K-SVC, S modes), only the layer itself is needed. Until then, and in full SVC, all layers up to it
//!    are.
//! 4. A picture that lacks a layer is skipped for that layer if only the layer itself is needed, because an encoder may
//!    omit layers.
//!
//! In AV1 a layer needs all lower ones, whatever the descriptors say: decoders of an operating point expect them.
//!
//! If only the top layer is output, and it stays absent or needs lower layers again, the picture is broken, and the next
//! key picture decides again.
//!
//! If each layer is output ([`Layering`]), further rules apply:
//!
//! 5. A frame whose descriptor is lost is needed if the latest described frame of its layer was.
//! 6. While a layer is not sent, its output continues with the highest layer below it that is sent and of which it has
//!    had everything since the last key picture. Without such a layer, the output stops until the next key picture.
//! 7. A layer that begins without a key picture is output from the next one on.
//! 8. A key picture is requested for outputs that stopped or have not begun, but not again soon after one, because an
//!    encoder may never give what is missing.

use alloc::vec::Vec;

use crate::dependency::{FrameLayer, SPATIAL_LAYERS_MAX};

/// Number of pictures after a key picture from which on an independent layer is output alone.
const ALONE_AFTER: u8 = 10;
/// Number of consecutive pictures that may lack the top layer while it alone is output.
const MISSING_MAX: u8 = 15;
/// Number of pictures after a requested key picture before another one is requested.
const QUIET_PICTURES: u8 = 150;
/// Maximum number of descriptors that wait for their pictures: those of the open picture and of the next one.
const NOTES_MAX: usize = 2 * SPATIAL_LAYERS_MAX;

/// Part of a picture: a frame of one spatial layer, or data that belongs to all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// Spatial layer; `None` for data of all layers.
    pub(super) spatial: Option<u8>,
    /// The frame may be predicted from a lower layer of the same picture.
    pub(super) inter_layer: bool,
    /// The frame is a key frame by its own header.
    pub(super) is_key: bool,
    pub(super) start: usize,
    pub(super) bytes: usize,
}

impl Segment {
    pub(super) fn of<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.start..self.start.saturating_add(self.bytes)).unwrap_or_default()
    }
}

/// The parts of a picture that a layer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All layers up to the layer.
    Whole,
    /// Only this layer.
    Only(u8),
    /// The layers whose bits are set.
    Some(u8),
    /// The picture has nothing for the layer.
    Skipped,
    Broken,
}

impl Verdict {
    /// True if the picture has something for the layer.
    pub(super) const fn is_some(self) -> bool {
        !matches!(self, Self::Skipped | Self::Broken)
    }

    /// True if the segment is needed, for the output of layer `target`.
    pub(super) const fn takes(self, segment: &Segment, target: u8) -> bool {
        match segment.spatial {
            Some(spatial) => self.takes_layer(spatial, target),
            None => true,
        }
    }

    /// True if frames of a layer are needed, for the output of layer `target`.
    const fn takes_layer(self, spatial: u8, target: u8) -> bool {
        match self {
            Self::Whole => spatial <= target,
            Self::Only(layer) => spatial == layer,
            Self::Some(layers) => spatial <= target && layers >> spatial & 1 == 1,
            Self::Skipped | Self::Broken => false,
        }
    }
}

/// State of one layer that is output.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    /// Highest layer of the last key picture, at most the layer that is output.
    spatial: u8,
    /// The layer is output alone: lower layers are omitted.
    is_alone: bool,
    /// Number of consecutive pictures with an independent layer since the last key picture.
    apart: u8,
    /// Number of consecutive pictures without the layer, while it is output alone.
    missing: u8,
    /// The layers of this stream must stay together, because the layer once needed a lower one that had been omitted.
    together: bool,
}

impl Target {
    /// Judges a picture by the layers that it has.
    pub(super) fn judge(&mut self, key_frame: bool, layers: &[Segment]) -> Verdict {
        let of_layers = || layers.iter().filter_map(|layer| layer.spatial.map(|spatial| (spatial, layer)));
        let Some((spatial, highest)) = of_layers().max_by_key(|(spatial, _)| *spatial) else {
            return Verdict::Broken;
        };
        if key_frame {
            (self.spatial, self.apart, self.missing) = (spatial, 0, 0);
            let several = of_layers().count() > 1;
            self.is_alone = several && !highest.inter_layer && highest.is_key && !self.together;
            return if self.is_alone { Verdict::Only(spatial) } else { Verdict::Whole };
        }
        if self.spatial == 0 {
            return Verdict::Whole;
        }
        let top = of_layers().find(|(spatial, _)| *spatial == self.spatial);
        match top {
            None if self.is_alone && self.missing >= MISSING_MAX => Verdict::Broken,
            None if self.is_alone => {
                self.missing = self.missing.saturating_add(1);
                Verdict::Skipped
            }
            None => Verdict::Whole,
            Some((_, top)) if top.inter_layer && self.is_alone => {
                self.together = true;
                Verdict::Broken
            }
            Some((_, top)) if top.inter_layer => {
                self.apart = 0;
                Verdict::Whole
            }
            Some((spatial, _)) => {
                self.missing = 0;
                self.apart = self.apart.saturating_add(1);
                self.is_alone |= self.apart > ALONE_AFTER && !self.together;
                if self.is_alone { Verdict::Only(spatial) } else { Verdict::Whole }
            }
        }
    }
}

/// Output of one layer.
#[derive(Debug, Clone, Copy, Default)]
struct Output {
    /// Judges pictures without descriptors.
    guess: Target,
    /// Layers with which the output can continue: it has had all that they need since the last key picture. None if it
    /// waits for a key picture.
    follows: u8,
    /// Layers that were described since the last key picture, and those of them that this layer needs.
    described: u8,
    needed: u8,
}

/// State of a source whose layers are all output.
#[derive(Debug, Default)]
pub(super) struct Layering {
    outputs: [Output; SPATIAL_LAYERS_MAX],
    /// Descriptors of frames, with their timestamps, until the pictures end.
    noted: Vec<(u32, FrameLayer)>,
    /// Descriptors of the picture that is being judged, by spatial layer.
    described: [Option<FrameLayer>; SPATIAL_LAYERS_MAX],
    /// Layers that are sent according to the latest descriptor; 0 if none came.
    sent: u8,
    /// Highest layer of the last key picture.
    pub(super) top: u8,
    /// A key picture is needed for an output that waits.
    pub(super) needs_key_frame: bool,
    /// Number of pictures for which none is requested.
    quiet: u8,
    /// Segments of the layers up to one, to be judged.
    upto: Vec<Segment>,
}

impl Layering {
    /// Notes the descriptor of a frame.
    pub(super) fn note(&mut self, timestamp: u32, layer: FrameLayer) {
        if self.noted.len() >= NOTES_MAX {
            self.noted.remove(0);
        }
        self.noted.push((timestamp, layer));
    }

    /// Forgets the descriptors of a picture and of earlier ones.
    pub(super) fn forget(&mut self, timestamp: u32) {
        self.noted.retain(|(of, _)| of.wrapping_sub(timestamp).cast_signed() > 0);
    }

    /// Begins to judge a picture. A key picture tells which layers there are.
    pub(super) fn begin(&mut self, timestamp: u32, key_frame: bool, layers: &[Segment]) {
        self.described = [None; SPATIAL_LAYERS_MAX];
        for (_, layer) in self.noted.iter().filter(|(of, _)| *of == timestamp) {
            self.sent = layer.sent;
            if let Some(place) = self.described.get_mut(usize::from(layer.spatial)) {
                *place = Some(*layer);
            }
        }
        self.forget(timestamp);
        let present = mask(layers, OUTPUTS_TOP);
        if key_frame {
            let highest = layers.iter().filter_map(|layer| layer.spatial).max();
            self.top = highest.map_or(self.top, |highest| highest.min(OUTPUTS_TOP));
            for output in &mut self.outputs {
                (output.follows, output.described, output.needed) = (0, 0, 0);
            }
            if core::mem::take(&mut self.needs_key_frame) {
                self.quiet = QUIET_PICTURES;
            }
            return;
        }
        self.quiet = self.quiet.saturating_sub(1);
        for (layer, output) in (0..).zip(&mut self.outputs) {
            for noted in self.described.iter().flatten().filter(|noted| noted.sent >> layer & 1 == 1) {
                let bit = 1 << noted.spatial;
                output.described |= bit;
                output.needed = output.needed & !bit | (noted.needed_by >> layer & 1) << noted.spatial;
            }
        }
        if (0..).zip(&self.outputs).any(|(layer, output)| present >> layer & 1 == 1 && output.follows == 0) {
            self.request();
        }
    }

    /// Judges what the output of layer `target` needs of the picture. If layers cannot be divided (`joins` is false), it
    /// needs all of them.
    pub(super) fn judge(&mut self, target: u8, key_frame: bool, layers: &[Segment], joins: bool) -> Verdict {
        let present = mask(layers, target);
        let Some(mut output) = self.outputs.get(usize::from(target)).copied() else {
            return Verdict::Skipped;
        };
        if present == 0 || !key_frame && output.follows == 0 {
            return Verdict::Skipped;
        }
        if !joins {
            output.follows = u8::MAX;
            self.put(target, output);
            return Verdict::Whole;
        }
        self.upto.clear();
        let is_upto = |layer: &&Segment| layer.spatial.is_none_or(|spatial| spatial <= target);
        self.upto.extend(layers.iter().filter(is_upto));
        // The verdict without descriptors is needed for later pictures, too: their descriptors may be lost.
        let guess = output.guess.judge(key_frame, &self.upto);
        let is_sent = |layer: &u8| self.sent == 0 || (self.sent | present) >> layer & 1 == 1;
        let shown = if key_frame {
            Some(target)
        } else {
            (0..=target).rev().filter(is_sent).find(|layer| output.follows >> layer & 1 == 1)
        };
        let verdict = match shown.map(|shown| (self.needs(shown, present), shown)) {
            None => Verdict::Broken,
            Some((Some(needed), _)) if key_frame => self.begins_with(needed).unwrap_or(guess),
            Some((Some(0), _)) => Verdict::Skipped,
            Some((Some(needed), _)) => Verdict::Some(needed),
            Some((None, shown)) if shown == target => guess,
            Some((None, shown)) => Verdict::Some(present & upto(shown)),
        };
        if verdict == Verdict::Broken {
            output.follows = 0;
            self.request();
        } else {
            let given: u8 = (0..=target)
                .filter(|layer| verdict.takes_layer(*layer, target))
                .map(|layer| 1 << layer)
                .sum();
            let before = if key_frame { u8::MAX } else { output.follows };
            let is_had = |layer: &u8| {
                let needed = self.needs(*layer, present).unwrap_or_else(|| present & upto(*layer));
                Some(*layer) == shown || needed & !given == 0
            };
            let follows = (0..=target).filter(|layer| before >> layer & 1 == 1).filter(is_had);
            output.follows = follows.map(|layer| 1 << layer).sum();
        }
        self.put(target, output);
        verdict
    }

    fn put(&mut self, target: u8, output: Output) {
        if let Some(place) = self.outputs.get_mut(usize::from(target)) {
            *place = output;
        }
    }

    /// Requests a key picture, unless one has just come.
    const fn request(&mut self) {
        self.needs_key_frame |= self.quiet == 0;
    }

    /// Returns those of the layers `present` that a layer needs; `None` if neither their descriptors nor earlier ones say
    /// so.
    fn needs(&self, layer: u8, present: u8) -> Option<u8> {
        let output = self.outputs.get(usize::from(layer))?;
        let mut needed = 0;
        for spatial in (0..=layer).filter(|spatial| present >> spatial & 1 == 1) {
            needed |= match self.described.get(usize::from(spatial)).copied().flatten() {
                Some(noted) => (noted.needed_by >> layer & 1) << spatial,
                None if output.described >> spatial & 1 == 1 => output.needed & 1 << spatial,
                None => return None,
            };
        }
        Some(needed)
    }

    /// Returns the verdict on a key picture of which these layers are needed. A decoder can only start with a key frame.
    fn begins_with(&self, needed: u8) -> Option<Verdict> {
        let is_needed = |layer: &&Segment| layer.spatial.is_some_and(|spatial| needed >> spatial & 1 == 1);
        let first = self.upto.iter().find(is_needed)?;
        Some(if first.is_key { Verdict::Some(needed) } else { Verdict::Whole })
    }

    /// Size of a layer's pictures, if the descriptor of its frame states it.
    pub(super) fn size_of(&self, target: u8) -> Option<(u32, u32)> {
        self.described.get(usize::from(target)).copied().flatten()?.size
    }
}

/// The highest layer that is output.
const OUTPUTS_TOP: u8 = 3;
const _: () = assert!(SPATIAL_LAYERS_MAX == 4, "the layers up to the highest one that is output");

/// Returns the bits of all layers up to one.
const fn upto(layer: u8) -> u8 {
    u8::MAX >> 7_u8.saturating_sub(layer)
}

/// Returns the bits of the layers that segments have, up to one.
fn mask(layers: &[Segment], highest: u8) -> u8 {
    let spatial = layers.iter().filter_map(|layer| layer.spatial).filter(|spatial| *spatial <= highest);
    spatial.fold(0, |mask, spatial| mask | 1 << spatial)
}
