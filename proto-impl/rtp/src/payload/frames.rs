//! Boundaries of video frames, for all codecs.
//!
//! 1. A packet with a new timestamp ends the previous frame; a marker bit ends the packet's own frame. Neither
//!    ends a frame within a fragmented unit, unless the sender omits the end bits of fragments.
//! 2. If a packet is missing, the frame being assembled has lost data. A frame that begins after the gap is
//!    accepted if its first bytes show that it is complete, which only the codec can determine.
//! 3. A frame that is incomplete at its end, or contains a malformed payload, is dropped.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::{Error, FRAME_BYTES_MAX, Frame, Part, Stats};

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
        let ending =
            if open.broken { Ending::Broken } else { self.codec.end(&mut self.bytes, open.after_gap) };
        match ending {
            Ending::Whole { key_frame } => {
                self.last_bytes = self.bytes.len();
                let payload = self.bytes.split().freeze();
                out.give(Frame { timestamp: open.timestamp, key_frame, payload });
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

    pub(super) fn pending_bytes(&self) -> usize {
        self.bytes.len().saturating_add(self.codec.pending_bytes())
    }
}
