use crypto::AesCbcOpener;
use media::codec::Codec;
use media::{CodecConfig, Timescale};
use proptest::prelude::*;

use super::*;

const KEY: [u8; 16] = *b"the key of a run";
const VECTOR: [u8; 16] = [3; 16];

fn track(codec: Codec, id: TrackId, record: &'static [u8]) -> Track {
    let config = CodecConfig::read(codec, Bytes::from_static(record)).unwrap().unwrap();
    Track::new(id, config, Timescale::MILLISECONDS)
}

fn protector() -> Protector {
    let mut protector = Protector::new(KEY, VECTOR);
    let video = track(Codec::H264, TrackId::VIDEO, &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let audio = track(Codec::Aac, TrackId::AUDIO, &[0x11, 0x90]);
    protector.set_tracks(&[video, audio]);
    protector
}

fn unit(track: TrackId, payload: &[u8]) -> AccessUnit {
    let payload = Bytes::copy_from_slice(payload);
    AccessUnit { track, dts: 0, pts: 0, key_frame: true, config_epoch: 1, payload }
}

/// Decrypts a part block by block, as the standard describes it.
fn opened(part: &mut [u8], key: [u8; 16], step: usize) {
    let mut opener = AesCbcOpener::new(&key, VECTOR).unwrap();
    for block in part.chunks_exact_mut(16).step_by(step) {
        assert!(opener.open(block));
    }
}

proptest! {
    /// Slices and other NAL units of random sizes, including the sizes of blocks and patterns.
    #[test]
    fn parts_add_up_and_are_opened_with_the_key_alone(
        nals in prop::collection::vec((any::<bool>(), prop_oneof![0usize..40, 120usize..180, 270usize..330, Just(2000usize), Just(70_000usize)]), 1..60),
    ) {
        let mut payload = Vec::new();
        for (number, (is_slice, length)) in nals.iter().enumerate() {
            let mut nal = vec![number.to_le_bytes()[0] | 1; *length];
            nal.iter_mut().take(1).for_each(|head| *head = if *is_slice { 0x65 } else { 0x06 });
            payload.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
            payload.extend_from_slice(&nal);
        }
        let Some((sealed, parts)) = protector().protect(&unit(TrackId::VIDEO, &payload)) else {
            // The list of subsamples is too small for this many clear bytes, so the unit must not be
            // passed on.
            let clear: usize = nals.iter().filter(|(is_slice, _)| !is_slice).map(|(_, length)| length).sum();
            prop_assert!(clear > 65_535 * 2);
            return Ok(());
        };
        let total: usize = parts.iter().map(|part| usize::from(part.clear) + part.protected as usize).sum();
        prop_assert_eq!(total, payload.len());
        prop_assert!(parts.len() <= SUBSAMPLES_MAX);
        let (mut clear, mut other) = (sealed.to_vec(), sealed.to_vec());
        let mut at = 0;
        let mut blocks = 0;
        for part in &parts {
            let begin = at + usize::from(part.clear);
            prop_assert_eq!(&sealed[at..begin], &payload[at..begin]);
            at = begin + part.protected as usize;
            opened(&mut clear[begin..at], KEY, 10);
            opened(&mut other[begin..at], [7; 16], 10);
            // Nine of ten blocks, and incomplete blocks, are unchanged.
            for (number, block) in sealed[begin..at].chunks(16).enumerate() {
                let is_same = block == &payload[begin + number * 16..][..block.len()];
                prop_assert_eq!(is_same, block.len() < 16 || number % 10 != 0);
                blocks += usize::from(!is_same);
            }
        }
        prop_assert_eq!(&clear, &payload);
        prop_assert_eq!(other == payload, blocks == 0, "a wrong key opens nothing");
    }

    #[test]
    fn sound_is_sealed_but_for_its_last_bytes(length in 0usize..700) {
        let payload: Vec<u8> = (0..length).map(|n| n.to_le_bytes()[0]).collect();
        let (sealed, parts) = protector().protect(&unit(TrackId::AUDIO, &payload)).unwrap();
        prop_assert!(parts.is_empty());
        let whole = length / 16 * 16;
        prop_assert_eq!(&sealed[whole..], &payload[whole..]);
        prop_assert!(whole == 0 || sealed[..16] != payload[..16]);
        let mut clear = sealed.to_vec();
        opened(&mut clear, KEY, 1);
        prop_assert_eq!(clear, payload);
    }
}

#[test]
fn what_cannot_be_protected_does_not_leave() {
    let mut protector = protector();
    assert_eq!(protector.protect(&unit(TrackId::VIDEO, &[0, 0, 0, 9, 0x65])), None, "a length that lies");
    let other = track(Codec::Aac, TrackId::AUDIO, &[0x11, 0x90]);
    protector.set_tracks(&[other]);
    assert_eq!(
        protector.protect(&unit(TrackId::VIDEO, &[0, 0, 0, 1, 0x65])),
        None,
        "a track that is not there"
    );
    for codec in [Codec::Av1, Codec::Vp9, Codec::Vp8] {
        assert!(!is_protectable(codec));
    }
    let text = format!("{protector:?}");
    assert!(!text.contains("116, 104"), "{text}");
}
