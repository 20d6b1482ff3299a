//! Gaps without pictures.
//!
//! Senders without RTX send padding under the sequence numbers of their media, and never repeat a lost padding packet.
//! To a receiver such a gap looks like a lost picture. No picture is lost if the packet before the gap ends a picture,
//! the packet after it begins one, and both pictures have consecutive numbers:
//!
//! | codec | number |
//! |---|---|
//! | H.264 | frame_num (§7.4.3), which counts reference pictures; a lost picture that no other refers to damages none |
//! | VP8, VP9 | picture id of the payload descriptor (RFC 7741 §4.2, RFC 9628 §4.2) |
//!
//! An IDR picture resets frame_num, and sequence parameter sets may change its length: the numbers do not show a lost
//! IDR picture between another one and its successor. So for H.264 the timestamps must also advance across the gap by
//! at most 1.5 times the least of the last intervals, and the gap must be short. If no interval is known, the gap
//! counts as a loss. The rule errs only if the frame rate rises to twice that of the last pictures exactly at a gap
//! that contains an IDR picture or a change of the parameter sets.

use media::codec::slice::SliceHeaders;
use media::codec::{Codec, h264};
use wire::Reader;

use super::{vp8, vp9};

/// Maximum number of missing packets in a harmless gap of H.264.
const MISSING_MAX: u64 = 16;
/// Number of last intervals of pictures that are compared with the interval across a gap.
const STEPS: usize = 8;
/// Number of bytes of a slice in which its frame_num is read.
const SLICE_BYTES_MAX: usize = 64;
const STAP_A: u8 = 24;
const FU_A: u8 = 28;
const FU_START: u8 = 0x80;
const TYPE: u8 = 0x1f;
/// Bits of nal_ref_idc, which is 0 in pictures that no other refers to.
const REFERENCE: u8 = 0x60;

/// Number of a picture, modulo a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureNumber {
    pub(super) value: u32,
    pub(super) bits: u32,
}

impl PictureNumber {
    const fn next(self) -> Self {
        Self { value: self.value.wrapping_add(1) & ((1 << self.bits) - 1), ..self }
    }
}

/// Checks whether pictures are missing in gaps of one source's packets.
#[derive(Debug)]
pub struct Continuity {
    codec: Codec,
    slices: SliceHeaders,
    /// Number of the next picture if none is missing.
    next: Option<PictureNumber>,
    /// True if the last packet ended a picture.
    has_ended: bool,
    cadence: Cadence,
}

/// The last intervals of a source's pictures, in ticks.
#[derive(Debug, Default)]
struct Cadence {
    /// Timestamp of the last picture.
    last: Option<u32>,
    /// The last intervals, in a ring; 0 for those that are not known.
    steps: [u32; STEPS],
    at: usize,
}

impl Cadence {
    /// Returns the time since the last picture.
    fn since(&self, timestamp: u32) -> Option<u32> {
        self.last.map(|last| timestamp.wrapping_sub(last)).filter(|step| (1..=u32::MAX / 2).contains(step))
    }

    /// Notes a picture; `follows` is true if none is missing before it.
    fn note(&mut self, timestamp: u32, follows: bool) {
        if let Some(step) = self.since(timestamp).filter(|_| follows)
            && let Some(place) = self.steps.get_mut(self.at)
        {
            *place = step;
            self.at = (self.at + 1) % STEPS;
        }
        self.last = Some(timestamp);
    }

    /// True if the time since the last picture is too short for another one in between.
    fn is_close(&self, timestamp: u32) -> bool {
        let least = self.steps.iter().copied().filter(|step| *step > 0).min();
        self.since(timestamp)
            .zip(least)
            .is_some_and(|(since, least)| since <= least.saturating_add(least / 2))
    }
}

impl Continuity {
    /// Creates the state before the first packet of a source with this codec. `None` if its pictures have no numbers.
    #[must_use]
    pub fn new(codec: Codec) -> Option<Self> {
        matches!(codec, Codec::H264 | Codec::Vp8 | Codec::Vp9).then(|| Self {
            codec,
            slices: SliceHeaders::h264(),
            next: None,
            has_ended: false,
            cadence: Cadence::default(),
        })
    }

    /// True if a gap after the last packet may be harmless.
    #[must_use]
    pub const fn may_pad(&self) -> bool {
        self.has_ended && self.next.is_some()
    }

    /// Handles a gap that the owner takes for a loss of media.
    pub const fn lose(&mut self) {
        (self.next, self.has_ended, self.cadence.last) = (None, false, None);
    }

    /// Handles a packet with media; packets must be in order. `missing` packets before it are lost. Returns false if
    /// they may have contained a part of a picture.
    pub fn handle_packet(&mut self, missing: u64, timestamp: u32, marker: bool, payload: &[u8]) -> bool {
        // The number of a picture, and that of the next one.
        let of_id = |id: Option<PictureNumber>| id.map(|number| (number, number.next()));
        let begun = if self.codec == Codec::H264 {
            self.begin_h264(payload)
        } else if self.codec == Codec::Vp8 {
            vp8::picture_begun(payload).ok().and_then(of_id)
        } else if self.codec == Codec::Vp9 {
            vp9::picture_begun(payload).ok().and_then(of_id)
        } else {
            None
        };
        // A gap as long as the cycle of the numbers could contain a whole cycle of pictures.
        let follows = begun.is_some_and(|(number, _)| {
            self.has_ended && self.next == Some(number) && missing < 1 << number.bits
        });
        let is_close = missing <= MISSING_MAX && self.cadence.is_close(timestamp);
        let follows = follows && (missing == 0 || is_close || self.codec != Codec::H264);
        if begun.is_some() && self.cadence.last != Some(timestamp) {
            self.cadence.note(timestamp, missing == 0 || follows);
        } else if self.cadence.last != Some(timestamp) {
            // The beginning of this picture was lost. The time from the picture before to the next one is no interval.
            self.cadence.last = None;
        }
        if begun.is_some() || self.has_ended || missing > 0 {
            self.next = begun.map(|(_, next)| next);
        }
        self.has_ended = marker;
        missing == 0 || follows
    }

    /// Returns the frame_num of the picture that a payload of H.264 begins, and that of the picture after it.
    fn begin_h264(&mut self, payload: &[u8]) -> Option<(PictureNumber, PictureNumber)> {
        let (&head, rest) = payload.split_first()?;
        match head & TYPE {
            STAP_A => {
                let mut reader = Reader::new(rest);
                let mut begun = None;
                while let Ok(size) = reader.u16() {
                    let nal = reader.take(usize::from(size)).ok()?;
                    begun = begun.or_else(|| self.begin_nal(nal));
                }
                begun
            }
            FU_A => {
                let (&fragment, rest) = rest.split_first()?;
                if fragment & FU_START == 0 {
                    return None;
                }
                let head = (head & !TYPE) | (fragment & TYPE);
                let start = rest.get(..SLICE_BYTES_MAX).unwrap_or(rest);
                let nal = [&[head], start].concat();
                h264::is_picture(&nal).then(|| self.begin_nal(&nal)).flatten()
            }
            _ => self.begin_nal(payload),
        }
    }

    fn begin_nal(&mut self, nal: &[u8]) -> Option<(PictureNumber, PictureNumber)> {
        self.slices.note(nal);
        if !h264::begins_picture(nal) {
            return None;
        }
        let (value, bits) = self.slices.frame_num(nal)?;
        let number = PictureNumber { value, bits };
        // A picture that no other refers to shares its number with the next one.
        let is_reference = nal.first().is_some_and(|head| head & REFERENCE != 0);
        Some((number, if is_reference { number.next() } else { number }))
    }
}

#[cfg(test)]
mod tests;
