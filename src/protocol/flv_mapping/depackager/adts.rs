//! AAC whose frames still have their ADTS heads (ISO/IEC 14496-3 §1.A.3.2). FLV requires raw frames, but some
//! encoders pass on ADTS frames from MPEG-TS or files, several per tag.
//!
//! A raw frame of AAC LC or HE-AAC never looks like an ADTS head: as raw data, the first three bits of a head would
//! end the frame.

use bytes::Bytes;
use media::codec::aac;

/// Maximum number of ADTS frames in a tag: more than a second of audio.
const FRAMES_MAX: usize = 64;
/// AAC object types with frames that begin with an element id: Main, LC, SSR and LTP, and HE-AAC signalled by SBR or
/// PS.
const WITH_ELEMENT_IDS: [u32; 6] = [1, 2, 3, 4, 5, 29];

/// The ADTS frames of a tag.
#[derive(Debug, PartialEq)]
pub(super) struct Frames {
    /// The head of the first frame. The heads of all other frames agree with it.
    pub(super) head: aac::Adts,
    /// The raw frames.
    pub(super) raw: Vec<Bytes>,
    /// True if the frames make up the whole tag.
    pub(super) is_whole: bool,
}

/// Removes the heads; `None` if the tag is not in ADTS. `config` is the configuration that the publisher has sent, if
/// any.
pub(super) fn split(config: Option<&aac::Config>, tag: &Bytes) -> Option<Frames> {
    if config.is_some_and(|config| !WITH_ELEMENT_IDS.contains(&config.object_type)) {
        return None;
    }
    let head = aac::Adts::read(tag).ok()?;
    let mut frames = Frames { head, raw: Vec::new(), is_whole: false };
    let mut rest = tag.clone();
    while frames.raw.len() < FRAMES_MAX {
        let next = aac::Adts::read(&rest).ok().filter(|next| is_of_one_track(&head, next));
        let Some(next) = next.filter(|next| next.frame_bytes <= rest.len()) else { break };
        let frame = rest.split_to(next.frame_bytes);
        frames.raw.push(frame.slice(next.header_bytes.min(frame.len())..));
    }
    frames.is_whole = rest.is_empty();
    Some(frames)
}

/// True if a further head describes the same track. Frames with several raw blocks are refused, because the blocks
/// cannot be separated.
fn is_of_one_track(first: &aac::Adts, next: &aac::Adts) -> bool {
    let of = |adts: &aac::Adts| (adts.object_type, adts.rate_index, adts.channel_configuration);
    of(first) == of(next) && next.blocks == 1
}

/// Milliseconds from the first frame of a tag to frame `n`.
pub(super) fn offset_ms(head: &aac::Adts, n: usize) -> u32 {
    let samples = u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(aac::FRAME_SAMPLES.into());
    let ms = samples.saturating_mul(1000).checked_div(head.sample_rate.into()).unwrap_or(0);
    u32::try_from(ms).unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A frame of AAC LC, 48 kHz stereo, with its head.
    pub(in super::super) fn frame(raw: &[u8]) -> Vec<u8> {
        let config = aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        [&config.adts(raw.len()).unwrap()[..], raw].concat()
    }

    fn split_all(tag: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
        let frames = split(None, &Bytes::copy_from_slice(tag))?;
        Some((frames.raw.iter().map(|raw| raw.to_vec()).collect(), frames.is_whole))
    }

    #[test]
    fn a_tag_is_split_at_its_heads() {
        let of = |raw: &[&[u8]], whole| Some((raw.iter().map(|raw| raw.to_vec()).collect::<Vec<_>>(), whole));
        let (one, two) = (frame(b"abc"), frame(b"de"));
        let mut with_crc = frame(b"..crc");
        with_crc[1] &= 0xfe;
        let mut mono = frame(b"x");
        mono[3] = mono[3] & 0x3f | 0x40;
        let mut two_blocks = frame(b"xy");
        two_blocks[6] |= 1;
        for (tag, split) in [
            (one.clone(), of(&[b"abc"], true)),
            ([&one[..], &two, &one].concat(), of(&[b"abc", b"de", b"abc"], true)),
            (with_crc, of(&[b"crc"], true)),
            // After its first frame, each tag has bytes that are no frame of the track: a cut frame, noise, a
            // frame with another configuration, or several raw blocks that cannot be separated.
            ([&one[..], &two[..8]].concat(), of(&[b"abc"], false)),
            ([&one[..], b"noise"].concat(), of(&[b"abc"], false)),
            ([&one[..], &mono].concat(), of(&[b"abc"], false)),
            ([&one[..], &two_blocks].concat(), of(&[b"abc"], false)),
            (one[..9].to_vec(), of(&[], false)),
            // A raw frame, and an empty tag: neither is ADTS.
            (b"\x21\x1b\x80".to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(split_all(&tag), split, "{tag:x?}");
        }
    }

    #[test]
    fn a_tag_of_very_many_frames_is_cut() {
        let (raw, is_whole) = split_all(&frame(b"a").repeat(FRAMES_MAX + 1)).unwrap();
        assert_eq!((raw.len(), is_whole), (FRAMES_MAX, false));
    }

    #[test]
    fn frames_without_element_ids_are_raw_whatever_they_look_like() {
        let eld = aac::Config::read(Bytes::from_static(&[0xf8, 0xe6, 0x40])).unwrap();
        let he = aac::Config::read(Bytes::from_static(&[0x2b, 0x11, 0x88])).unwrap();
        let tag = Bytes::from(frame(b"abc"));
        assert_eq!(split(Some(&eld), &tag), None);
        assert!(split(Some(&he), &tag).is_some());
    }

    #[test]
    fn frames_are_spaced_by_their_samples() {
        let head = aac::Adts::read(&frame(b"a")).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| offset_ms(&head, n)), [0, 21, 42, 64]);
        let head = aac::Adts { sample_rate: 44_100, ..head };
        assert_eq!([1, 2, 43].map(|n| offset_ms(&head, n)), [23, 46, 998]);
    }
}
