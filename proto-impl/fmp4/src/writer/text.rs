//! Tracks of WebVTT cues (`wvtt`, ISO/IEC 14496-30 §7), with times in milliseconds.
//!
//! The samples of a track follow each other without gaps: a sample has the cues that are shown for all of its time,
//! or an empty cue.

use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use super::fragment::{Fragment, FragmentSample};
use super::movie::{self, TextTrack};
use super::out::Out;
use super::segment::styp;
use crate::Error;

/// The only track of a file of cues.
const TRACK: u32 = 1;
/// Maximum number of cues that are shown at the same time; further ones are left out.
const AT_ONCE_MAX: usize = 16;
/// Maximum number of bytes of cues in the samples of a segment; further ones are left out. A sample repeats the cues
/// that are still shown, so that few cues can make many bytes.
const CUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a cue in addition to its text: `vttc`, `vsid` and `payl`.
const CUE_BYTES: usize = 8 + 12 + 8;

/// A cue in the time of its track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextCue<'a> {
    /// Number of the cue, the same in all samples that have it (`vsid`, §7.5).
    pub id: u32,
    /// Time at which the cue appears, in milliseconds.
    pub begin_ms: u64,
    /// Time at which the cue disappears, in milliseconds.
    pub end_ms: u64,
    /// WebVTT cue text.
    pub text: &'a str,
}

/// Returns the init segment of a track of cues in a language, given as a BCP 47 tag.
#[must_use]
pub fn text_init_segment(language: Option<&str>) -> Bytes {
    let mut out = Out::new();
    out.boxed(b"ftyp", |out| {
        out.bytes(b"iso6").u32(512).bytes(b"iso6mp41cmfc");
    });
    movie::text(&mut out, &TextTrack { id: TRACK, language });
    out.into_bytes()
}

/// Returns a segment of a track of cues that lasts from `begin_ms` to `end_ms`, with `styp` and a single fragment.
/// `sequence` is that of the fragment.
///
/// # Errors
/// The segment is too large.
pub fn text_segment(
    sequence: u32,
    (begin_ms, end_ms): (u64, u64),
    cues: &[TextCue<'_>],
) -> Result<Bytes, Error> {
    let mut cuts: Vec<u64> = cues.iter().flat_map(|cue| [cue.begin_ms, cue.end_ms]).collect();
    cuts.retain(|at| (begin_ms..end_ms).contains(at));
    cuts.extend([begin_ms, end_ms.max(begin_ms.saturating_add(1))]);
    cuts.sort_unstable();
    cuts.dedup();
    let spans = cuts.windows(2).filter_map(|pair| match pair {
        [from, until] => Some((*from, *until)),
        _ => None,
    });
    let mut room = CUE_BYTES_MAX;
    let samples = spans.map(|(from, until)| FragmentSample {
        duration: u32::try_from(until.saturating_sub(from)).unwrap_or(u32::MAX),
        composition: 0,
        key_frame: true,
        payload: sample(cues.iter().filter(|cue| cue.begin_ms <= from && until <= cue.end_ms), &mut room),
        subsamples: Vec::new(),
    });
    let fragment = Fragment::of_samples(sequence, (TRACK, begin_ms), samples.collect());
    let mut out = BytesMut::from(&styp()[..]);
    fragment.write()?.iter().for_each(|slice| out.extend_from_slice(slice));
    Ok(out.freeze())
}

/// Returns a sample with these cues (§7.4), as far as they fit into `room` bytes. Subtracts their size from `room`.
fn sample<'c, 'a: 'c>(cues: impl Iterator<Item = &'c TextCue<'a>>, room: &mut usize) -> Bytes {
    let mut out = Out::new();
    for cue in cues.take(AT_ONCE_MAX) {
        let Some(rest) = room.checked_sub(cue.text.len().saturating_add(CUE_BYTES)) else { break };
        *room = rest;
        out.boxed(b"vttc", |out| {
            out.boxed(b"vsid", |out| {
                out.u32(cue.id);
            });
            out.boxed(b"payl", |out| {
                out.bytes(cue.text.as_bytes());
            });
        });
    }
    if out.len() == 0 {
        out.boxed(b"vtte", |_| {});
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cue(id: u32, begin_ms: u64, end_ms: u64, text: &str) -> TextCue<'_> {
        TextCue { id, begin_ms, end_ms, text }
    }

    fn count(bytes: &[u8], kind: &[u8; 4]) -> usize {
        bytes.windows(4).filter(|four| *four == kind).count()
    }

    #[test]
    fn samples_fill_the_segment_and_have_the_cues_of_their_time() {
        let cues = [cue(1, 500, 2500, "one"), cue(2, 2000, 9000, "two")];
        let segment = text_segment(7, (1000, 3000), &cues).unwrap();
        // Three samples: cue one until 2000, both cues until 2500, cue two until 3000.
        assert_eq!((count(&segment, b"vttc"), count(&segment, b"vtte")), (4, 0));
        let at = segment.windows(4).position(|four| four == b"tfdt").unwrap();
        assert_eq!(segment[at + 8..at + 16], 1000_u64.to_be_bytes());
        let at = segment.windows(4).position(|four| four == b"trun").unwrap();
        assert_eq!(segment[at + 8..at + 12], 3_u32.to_be_bytes());
        let durations: Vec<&[u8]> = (0..3).map(|n| &segment[at + 16 + 8 * n..at + 20 + 8 * n]).collect();
        assert_eq!(durations, [1000_u32, 500, 500].map(u32::to_be_bytes));
        let empty = text_segment(8, (3000, 5000), &[]).unwrap();
        assert_eq!((count(&empty, b"vttc"), count(&empty, b"vtte")), (0, 1));
        assert_eq!(
            count(&text_segment(9, (5000, 5000), &cues).unwrap(), b"vttc"),
            1,
            "never without a sample"
        );
        let many: Vec<_> = (0..100).map(|id| cue(id, 0, 1000, "x")).collect();
        assert_eq!(count(&text_segment(1, (0, 1000), &many).unwrap(), b"vttc"), AT_ONCE_MAX);
    }

    #[test]
    fn few_cues_in_many_samples_are_bounded() {
        // Fifteen long cues last for the whole segment. Each short cue begins a new sample that repeats the long ones.
        let long = "x".repeat(2048);
        let mut cues: Vec<_> = (0..15).map(|id| cue(id, 0, 9000, &long)).collect();
        cues.extend((15..255).map(|id| cue(id, u64::from(id) * 10, u64::from(id) * 10 + 5, "y")));
        let segment = text_segment(1, (0, 4000), &cues).unwrap();
        let at = segment.windows(4).position(|four| four == b"trun").unwrap();
        assert_eq!(segment[at + 8..at + 12], 481_u32.to_be_bytes(), "no sample is left out");
        let cues = count(&segment, b"vttc");
        assert!((31..=32).contains(&cues) && count(&segment, b"vtte") > 400, "{cues}");
        assert!((60_000..CUE_BYTES_MAX + 10_000).contains(&segment.len()), "{}", segment.len());
    }

    #[test]
    fn a_track_of_cues_is_described_with_its_language() {
        for (language, packed, tag) in [
            (Some("deu"), [0x10, 0xb5], false),
            (Some("de-AT"), [0x55, 0xc4], true),
            (None, [0x55, 0xc4], false),
        ] {
            let init = text_init_segment(language);
            for kind in [b"text", b"nmhd", b"wvtt", b"vttC", b"trex"] {
                assert_eq!(count(&init, kind), 1, "{kind:?}");
            }
            let at = init.windows(4).position(|four| four == b"mdhd").unwrap();
            assert_eq!(
                (&init[at + 16..at + 20], &init[at + 24..at + 26]),
                (&1000_u32.to_be_bytes()[..], &packed[..])
            );
            assert_eq!(count(&init, b"elng") == 1, tag);
        }
    }
}
