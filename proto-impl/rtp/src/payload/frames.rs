//! The boundaries of video frames, the same for every codec.
//!
//! 1. A packet with another timestamp ends the frame before it; a marker bit ends its own. Neither does so within a
//!    fragmented unit, unless the sender leaves out the ends of fragments.
//! 2. A packet is missing: the frame that was open has lost something. A frame that begins behind the hole is taken when
//!    its first bytes show that it is whole, which only the codec can tell.
//! 3. A frame that is not complete when it ends, or in which a payload was malformed, is dropped.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::{Error, FRAME_BYTES_MAX, Frame, Part, Stats};

/// The codec's verdict on a frame that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Complete.
    Whole {
        /// Whether a decoder can start with it.
        key_frame: bool,
    },
    /// Without a slice yet: some cameras send parameter sets under a timestamp or a marker of their own.
    NoPicture,
    /// The frame is whole, but without the layer that is shown: it is left out, and nothing is lost.
    Skipped,
    /// Something of it is missing.
    Broken,
}

/// The codec-specific part of frame assembly.
pub(super) trait Assemble: Default {
    /// Appends to `frame` what `payload` brings.
    fn append(&mut self, payload: &[u8], frame: &mut BytesMut) -> Result<(), Error>;
    /// The frame ends. `after_gap`: packets before its first are missing. What belongs to the frame is forgotten, unless
    /// it goes on ([`Ending::NoPicture`]).
    fn end(&mut self, frame: &mut BytesMut, after_gap: bool) -> Ending;
    /// The frame is given up; so is what belongs to it.
    fn reset(&mut self);
    /// Whether a fragment is open whose end is still to come.
    fn is_unfinished(&self) -> bool {
        false
    }
    /// Whether `payload` continues that fragment.
    fn continues(&self, _payload: &[u8]) -> bool {
        false
    }
    /// Bytes beside those of the frame.
    fn pending_bytes(&self) -> usize {
        0
    }
}

/// The destination of complete frames and counters.
pub(super) struct Out<'a> {
    pub(super) ready: &'a mut VecDeque<Frame>,
    pub(super) stats: &'a mut Stats,
}

impl Out<'_> {
    /// A whole frame.
    pub(super) fn give(&mut self, frame: Frame) {
        self.stats.frames += 1;
        self.ready.push_back(frame);
    }

    /// A frame that is dropped.
    pub(super) fn drop_frame(&mut self) {
        self.stats.dropped += 1;
    }
}

/// The frame that is being put together.
#[derive(Debug, Default)]
pub(super) struct Frames<A> {
    codec: A,
    bytes: BytesMut,
    open: Option<Open>,
    /// Packets are missing before the frame that begins next.
    gap: bool,
    /// The size of the last frame: room for the next one.
    last_bytes: usize,
    /// The sender does not say where fragmented units end: its markers end frames all the same.
    omits_ends: bool,
}

#[derive(Debug)]
struct Open {
    timestamp: u32,
    after_gap: bool,
    broken: bool,
    /// A marker came within a fragmented unit.
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
            // Senders probe the path with packets of nothing but padding.
            return Ok(());
        }
        let continues = !part.gap && self.codec.continues(part.payload);
        if !continues
            && let Some(open) = &self.open
            && (open.marked || open.timestamp != part.timestamp)
        {
            self.omits_ends |= open.marked;
            self.end(out);
            // The lost packet may have been the end of the old frame or the head of this one.
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
            // Its data is useless; the rest of it is not kept.
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

    /// Ends the open frame; it stays open while it has no slice.
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
