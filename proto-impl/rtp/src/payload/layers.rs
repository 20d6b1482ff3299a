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

use crate::dependency::{FrameLayer, SPATIAL_LAYERS_MAX};

/// Number of pictures after a key picture from which on an independent layer is output alone.
const ALONE_AFTER: u8 = 10;
/// Number of consecutive pictures that may lack the top layer while it alone is output.
const MISSING_MAX: u8 = 15;

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
    /// True if the segment is needed, for the output of layer `target`.
    pub(super) const fn takes(self, segment: &Segment, target: u8) -> bool {
        let Some(spatial) = segment.spatial else { return true };
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
    /// Judges a picture by the layers that it has. `may_end` means that the picture is broken if the layer stays absent.
    pub(super) fn judge(&mut self, key_frame: bool, layers: &[Segment], may_end: bool) -> Verdict {
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
            None if self.is_alone && may_end && self.missing >= MISSING_MAX => Verdict::Broken,
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

/// State of a source whose layers are all output.
#[derive(Debug, Default)]
pub(super) struct Layering {
    targets: [Target; SPATIAL_LAYERS_MAX],
    /// Descriptors of the frames of the open picture, by spatial layer.
    noted: [Option<FrameLayer>; SPATIAL_LAYERS_MAX],
    /// Highest layer of the last key picture.
    pub(super) top: u8,
}

impl Layering {
    /// Notes the descriptor of a frame of the open picture.
    pub(super) fn note(&mut self, layer: FrameLayer) {
        if let Some(place) = self.noted.get_mut(usize::from(layer.spatial)) {
            *place = Some(layer);
        }
    }

    /// Ends a picture with these layers. A key picture tells which layers there are.
    pub(super) fn begin(&mut self, key_frame: bool, layers: &[Segment]) {
        let highest = layers.iter().filter_map(|layer| layer.spatial).max();
        if let Some(highest) = highest.filter(|_| key_frame) {
            self.top = highest.min(u8::try_from(SPATIAL_LAYERS_MAX - 1).unwrap_or(0));
        }
    }

    /// Judges what the output of layer `target` needs of the picture.
    pub(super) fn judge(&mut self, target: u8, key_frame: bool, layers: &[Segment]) -> Verdict {
        let upto = layers.partition_point(|layer| layer.spatial.is_none_or(|spatial| spatial <= target));
        let layers = layers.get(..upto).unwrap_or(layers);
        let Some(state) = self.targets.get_mut(usize::from(target)) else { return Verdict::Skipped };
        let of_layers = layers.iter().filter_map(|layer| layer.spatial);
        if of_layers.clone().next().is_none() {
            return if key_frame { Verdict::Broken } else { Verdict::Skipped };
        }
        // The verdict without descriptors is needed for later pictures, too: their descriptors may be lost.
        let guess = state.judge(key_frame, layers, false);
        let mut needed = 0;
        for spatial in of_layers {
            let Some(noted) = self.noted.get(usize::from(spatial)).copied().flatten() else { return guess };
            needed |= u8::from(noted.needed_by >> target & 1 == 1) << spatial;
        }
        let first =
            layers.iter().find(|layer| layer.spatial.is_some_and(|spatial| needed >> spatial & 1 == 1));
        match first {
            None if key_frame => guess,
            None => Verdict::Skipped,
            // A decoder can only start with a key frame.
            Some(first) if key_frame && !first.is_key => Verdict::Whole,
            Some(_) => Verdict::Some(needed),
        }
    }

    /// Size of a layer's pictures, if the descriptor of its frame states it.
    pub(super) fn size_of(&self, target: u8) -> Option<(u32, u32)> {
        self.noted.get(usize::from(target)).copied().flatten()?.size
    }

    /// Forgets the open picture.
    pub(super) fn end(&mut self) {
        self.noted = [None; SPATIAL_LAYERS_MAX];
    }
}
