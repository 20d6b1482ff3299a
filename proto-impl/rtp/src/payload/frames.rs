//! Boundaries of video frames, for all codecs.
//!
//! 1. A packet with a new timestamp ends the previous frame; a marker bit ends the packet's own frame. Neither
//!    ends a frame within a fragmented unit, unless the sender omits the end bits of fragments.
//! 2. If a packet is missing, the frame being assembled has lost data. A frame that begins after the gap is
//!    accepted if its first bytes show that it is complete, which only the codec can determine.
//! 3. A frame that is incomplete at its end, or contains a malformed payload, is dropped.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::BytesMut;

use super::layers::{Layering, Segment, Verdict};
use super::{Error, FRAME_BYTES_MAX, Frame, Part, SpatialLayer, Stats};
use crate::dependency::{FrameLayer, SPATIAL_LAYERS_MAX};

/// The codec's assessment of a frame at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The frame is complete.
    Whole {
        /// A decoder can start with the frame.
        key_frame: bool,
    },
    /// No slice has arrived yet: some cameras send parameter sets with a separate timestamp or marker.
    NoPicture,
    /// The frame is complete, but lacks the layer to be output. It is omitted without counting as a loss.
    Skipped,
    /// Part of the frame is missing.
    Broken,
}

/// Codec-specific part of frame assembly.
pub(super) trait Assemble: Default {
    /// Appends the media of `payload` to `frame`.
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error>;
    /// Ends the frame. `after_gap` means that packets before the frame's first one are missing. The frame's
    /// state is discarded, unless the frame continues ([`Ending::NoPicture`]).
    fn end(&mut self, frame: &mut BytesMut, after_gap: bool) -> Ending;
    /// Ends the frame like [`Assemble::end`], but appends its spatial layers to `layers`, in the order of the frame,
    /// instead of choosing among them. None are appended for codecs without layers.
    fn end_layers(&mut self, frame: &mut BytesMut, _layers: &mut Vec<Segment>, after_gap: bool) -> Ending {
        self.end(frame, after_gap)
    }
    /// True if decoders can decode a layer without the lower ones of its picture, and if frames of several layers have an
    /// end that joins them. If false, a layer needs all lower ones.
    const JOINS: bool = false;
    /// Completes a frame that consists of these layers.
    fn join(_layers: &[Segment], _frame: &mut BytesMut) {}
    /// Discards the frame and its state.
    fn reset(&mut self);
    /// True if the end of a fragmented unit has not arrived yet.
    fn is_unfinished(&self) -> bool {
        false
    }
    /// True if `payload` continues the open fragmented unit.
    fn continues(&self, _payload: &[u8]) -> bool {
        false
    }
    /// Bytes held in addition to those of the frame.
    fn pending_bytes(&self) -> usize {
        0
    }
}

/// Output of complete frames, and counters.
pub(super) struct Out<'a> {
    pub(super) ready: &'a mut VecDeque<Frame>,
    pub(super) stats: &'a mut Stats,
}

impl Out<'_> {
    /// Outputs a complete frame.
    pub(super) fn give(&mut self, frame: Frame) {
        self.stats.frames += 1;
        self.ready.push_back(frame);
    }

    /// Counts a dropped frame.
    pub(super) fn drop_frame(&mut self) {
        self.stats.dropped += 1;
    }
}

/// Assembles the frames of one source.
#[derive(Debug, Default)]
pub(super) struct Frames<A> {
    codec: A,
    bytes: BytesMut,
    open: Option<Open>,
    /// Packets before the next frame are missing.
    gap: bool,
    /// Size of the last frame, used as initial capacity for the next.
    last_bytes: usize,
    /// The sender omits the end bit of fragmented units, so its markers always end a frame.
    omits_ends: bool,
    /// State of the spatial layers, if each of them is output.
    layers: Option<Box<Layers>>,
}

/// Output of each spatial layer.
#[derive(Debug, Default)]
struct Layers {
    layering: Layering,
    /// Parts of the picture, and those that one layer needs.
    segments: Vec<Segment>,
    taken: Vec<Segment>,
}

#[derive(Debug)]
struct Open {
    timestamp: u32,
    after_gap: bool,
    broken: bool,
    /// A marker arrived within a fragmented unit.
    marked: bool,
}

impl<A: Assemble> Frames<A> {
    pub(super) fn handle_part(&mut self, part: &Part<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if part.gap {
            match &mut self.open {
                Some(open) => open.broken = true,
                None => self.gap = true,
            }
        }
        if part.payload.is_empty() {
            // Senders probe the path with packets that contain only padding.
            return Ok(());
        }
        let continues = !part.gap && self.codec.continues(part.payload);
        if !continues
            && let Some(open) = &self.open
            && (open.marked || open.timestamp != part.timestamp)
        {
            self.omits_ends |= open.marked;
            self.end(out);
            // The missing packet may have been the end of the previous frame or the start of this one.
            self.gap |= part.gap;
        }
        let after_gap = self.gap;
        let open = self.open.get_or_insert(Open {
            timestamp: part.timestamp,
            after_gap,
            broken: false,
            marked: false,
        });
        open.timestamp = part.timestamp;
        self.gap = false;
        let mut taken = Ok(());
        if !open.broken {
            if self.bytes.is_empty() {
                self.bytes.reserve(self.last_bytes.max(part.payload.len()));
            }
            let held = self.bytes.len().saturating_add(self.codec.pending_bytes());
            taken = if held.saturating_add(part.payload.len()) > FRAME_BYTES_MAX {
                Err(Error::FrameTooLarge)
            } else {
                self.codec.append(part.payload, &mut self.bytes)
            };
            open.broken = taken.is_err();
        }
        if open.broken {
            // The rest of a broken frame is useless and is not kept.
            self.bytes.clear();
            self.codec.reset();
        }
        if part.marker {
            if self.codec.is_unfinished() && !self.omits_ends {
                open.marked = true;
            } else {
                self.end(out);
            }
        }
        taken
    }

    /// Ends the open frame. The frame stays open while it has no slice.
    fn end(&mut self, out: &mut Out<'_>) {
        let Some(open) = self.open.take() else { return };
        let ending = match &mut self.layers {
            _ if open.broken => Ending::Broken,
            None => self.codec.end(&mut self.bytes, open.after_gap),
            Some(layers) => self.codec.end_layers(&mut self.bytes, &mut layers.segments, open.after_gap),
        };
        let ending = match (&mut self.layers, ending) {
            (Some(layers), Ending::Whole { key_frame }) => {
                self.last_bytes = self.bytes.len();
                let is_taken = layers.give::<A>(self.bytes.split(), (open.timestamp, key_frame), out);
                if is_taken { Ending::Skipped } else { Ending::Broken }
            }
            // The picture continues, and its descriptors are still needed.
            (Some(_), Ending::NoPicture) => ending,
            (Some(layers), ending) => {
                layers.layering.forget(open.timestamp);
                layers.segments.clear();
                ending
            }
            (None, ending) => ending,
        };
        match ending {
            Ending::Whole { key_frame } => {
                self.last_bytes = self.bytes.len();
                let payload = self.bytes.split().freeze();
                out.give(Frame::new(open.timestamp, key_frame, payload));
            }
            Ending::NoPicture => self.open = Some(open),
            Ending::Skipped => self.bytes.clear(),
            Ending::Broken => {
                self.bytes.clear();
                self.codec.reset();
                out.drop_frame();
            }
        }
    }

    /// Outputs each spatial layer from now on.
    pub(super) fn output_layers(&mut self) {
        self.layers = Some(Box::default());
    }

    /// Notes the descriptor of a frame of the picture with a timestamp.
    pub(super) fn note(&mut self, timestamp: u32, layer: FrameLayer) {
        if let Some(layers) = &mut self.layers {
            layers.layering.note(timestamp, layer);
        }
    }

    /// True if the output of a layer waits for a key picture.
    pub(super) fn needs_key_frame(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.layering.needs_key_frame)
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.bytes.len().saturating_add(self.codec.pending_bytes())
    }
}

impl Layers {
    /// Outputs a picture for each layer, the top layer first. Returns false if the picture is broken for all of them.
    fn give<A: Assemble>(&mut self, mut picture: BytesMut, of: (u32, bool), out: &mut Out<'_>) -> bool {
        let (timestamp, key_frame) = of;
        self.layering.begin(timestamp, key_frame, &self.segments);
        let top = self.layering.top;
        let mut verdicts = [(0, Verdict::Skipped); SPATIAL_LAYERS_MAX];
        let count = usize::from(top).saturating_add(1).min(SPATIAL_LAYERS_MAX);
        for (verdict, target) in verdicts.iter_mut().take(count).zip((0..=top).rev()) {
            *verdict = (target, self.layering.judge(target, key_frame, &self.segments, A::JOINS));
        }
        let verdicts = verdicts.get(..count).unwrap_or_default();
        let layers = || self.segments.iter().filter_map(|segment| segment.spatial);
        if top == 0 && layers().count() <= 1 && layers().all(|spatial| spatial == 0) {
            out.give(Frame::new(timestamp, key_frame, picture.freeze()));
            self.segments.clear();
            return true;
        }
        let bytes = picture.len();
        let (mut given, mut is_joined) = (0_usize, false);
        for (target, verdict) in verdicts.iter().filter(|(_, verdict)| verdict.is_some()) {
            self.take(*verdict, *target);
            given = self.taken.iter().fold(given, |given, segment| given.saturating_add(segment.bytes));
            is_joined |= self.taken.len() == self.segments.len();
        }
        // If a layer needs the whole picture, its end is added in place.
        if is_joined {
            A::join(&self.segments, &mut picture);
        }
        let picture = picture.freeze();
        // A part of the picture keeps all of it in memory. The owner of the frames counts only their bytes.
        let is_shared = given >= bytes / 2;
        let mut is_given = false;
        for (target, verdict) in verdicts.iter().filter(|(_, verdict)| verdict.is_some()) {
            self.take(*verdict, *target);
            let has_end = self.taken.len() == 1 || !A::JOINS;
            let payload = match range(&self.taken) {
                _ if !self.taken.iter().any(|segment| segment.spatial.is_some()) => continue,
                Some((0, end)) if end == bytes && (has_end || is_joined) => picture.clone(),
                Some((start, end)) if has_end && is_shared => picture.slice(start..end),
                _ => {
                    let parts = self.taken.iter().map(|segment| segment.of(&picture));
                    let mut joined: BytesMut = parts.flatten().collect();
                    A::join(&self.taken, &mut joined);
                    joined.freeze()
                }
            };
            let size = self.layering.size_of(*target).filter(|_| key_frame);
            let layer = SpatialLayer { index: *target, top, size };
            out.give(Frame { timestamp, key_frame, payload, layer });
            is_given = true;
        }
        self.segments.clear();
        is_given || !verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Broken)
    }

    /// Selects the parts of the picture that a layer needs.
    fn take(&mut self, verdict: Verdict, target: u8) {
        self.taken.clear();
        self.taken.extend(self.segments.iter().filter(|segment| verdict.takes(segment, target)));
    }
}

/// Returns the range of bytes that parts occupy, if they follow each other.
fn range(segments: &[Segment]) -> Option<(usize, usize)> {
    let end = |segment: &Segment| segment.start.saturating_add(segment.bytes);
    let follow = segments.iter().zip(segments.iter().skip(1)).all(|(one, next)| end(one) == next.start);
    let (first, last) = (segments.first()?, segments.last()?);
    follow.then(|| (first.start, end(last)))
}
