//! Random streams with padding and losses: a gap counts as harmless only if no picture is damaged by it.

use proptest::prelude::*;

use super::*;

/// Parameter sets of x264, with 4 bits for frame_num.
const SPS: &[u8] = &[
    0x67, 0x42, 0xc0, 0x0c, 0xda, 0x04, 0x04, 0xec, 0x04, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00, 0x00,
    0x0c, 0x83, 0xc5, 0x0a, 0xa8,
];
const PPS: &[u8] = &[0x68, 0xce, 0x0f, 0xc8];

#[derive(Debug, Clone, Copy)]
enum Form {
    H264,
    Vp8,
    /// VP9 with this number of spatial layers.
    Vp9(u8),
}

/// A picture, and the number of padding packets after it.
#[derive(Debug, Clone)]
struct Picture {
    packets: usize,
    is_reference: bool,
    padding: usize,
}

/// A packet in the order of its number. `None` is padding.
type Sent = Option<(bool, Vec<u8>, bool)>;

/// Returns the payload of packet `at` of picture `number`, which has `count` packets.
fn payload(form: Form, number: usize, frame_num: u8, picture: &Picture, at: usize) -> Vec<u8> {
    let (is_first, is_last) = (at == 0, at + 1 == picture.packets);
    let [high, low] = u16::try_from(number % 32_768).unwrap().to_be_bytes();
    match form {
        Form::H264 => {
            let reference = if picture.is_reference { 0x40 } else { 0 };
            let slice = [0x9a | frame_num >> 3 & 1, frame_num << 5 | 0x1f, 7, 7];
            match (is_first, is_last) {
                (true, true) => [&[reference | 1], &slice[..]].concat(),
                (true, false) => [&[reference | FU_A, FU_START | 1], &slice[..]].concat(),
                (false, last) => vec![reference | FU_A, if last { 0x41 } else { 1 }, 9],
            }
        }
        Form::Vp8 => vec![0x80 | if is_first { 0x10 } else { 0 }, 0x80, 0x80 | high, low, 5],
        Form::Vp9(layers) => {
            // Each packet is a layer, as far as there are layers.
            let layer = u8::try_from(at).unwrap().min(layers - 1);
            let begins = at == usize::from(layer);
            let ends = is_last || layer + 1 < layers;
            let head = 0xa0 | if begins { 0x08 } else { 0 } | if ends { 0x04 } else { 0 };
            vec![head, u8::try_from(number % 128).unwrap(), layer << 1, 0, 5]
        }
    }
}

fn stream(form: Form, pictures: &[Picture]) -> Vec<Sent> {
    let mut sent = Vec::new();
    let mut frame_num = 0u8;
    for (number, picture) in pictures.iter().enumerate() {
        for at in 0..picture.packets {
            let payload = payload(form, number, frame_num, picture, at);
            // The loss of a picture that no other refers to is harmless in H.264 alone, whose number does not show it.
            let matters = picture.is_reference || !matches!(form, Form::H264);
            sent.push(Some((at + 1 == picture.packets, payload, matters)));
        }
        sent.extend((0..picture.padding).map(|_| None));
        if picture.is_reference {
            frame_num = (frame_num + 1) % 16;
        }
    }
    sent
}

fn continuity(form: Form) -> Continuity {
    let mut continuity = Continuity::new(match form {
        Form::H264 => Codec::H264,
        Form::Vp8 => Codec::Vp8,
        Form::Vp9(_) => Codec::Vp9,
    });
    if matches!(form, Form::H264) {
        let sets = [&[STAP_A, 0, 22], SPS, &[0, 4], PPS].concat();
        assert!(continuity.handle_packet(0, false, &sets));
    }
    continuity
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::H264), Just(Form::Vp8), (1..=3u8).prop_map(Form::Vp9)]
}

fn pictures() -> impl Strategy<Value = Vec<Picture>> {
    let picture = (1..=4usize, prop::bool::weighted(0.8), 0..=3usize);
    let picture =
        picture.prop_map(|(packets, is_reference, padding)| Picture { packets, is_reference, padding });
    prop::collection::vec(picture, 2..200)
}

proptest! {
    #[test]
    fn no_gap_with_media_is_harmless(
        form in forms(),
        pictures in pictures(),
        // Runs of packets that arrive, and of packets that are lost.
        runs in prop::collection::vec((1..12usize, 1..180usize), 1..40),
        // Most losses are short, some as long as a cycle of the numbers.
        long in prop::collection::vec(prop::bool::weighted(0.1), 40),
    ) {
        let mut continuity = continuity(form);
        let mut sent = stream(form, &pictures).into_iter();
        for ((arriving, lost), is_long) in runs.into_iter().zip(long) {
            // Padding that arrives is no media, and does not count as missing.
            for (marker, payload, _) in sent.by_ref().take(arriving).flatten() {
                prop_assert!(continuity.handle_packet(0, marker, &payload));
            }
            let gap: Vec<Sent> = sent.by_ref().take(if is_long { lost } else { lost % 6 }).collect();
            let next = sent.by_ref().find_map(|packet| packet);
            let Some((marker, payload, _)) = next else { break };
            let is_damaged = gap.iter().flatten().any(|(_, _, matters)| *matters);
            let is_harmless = continuity.handle_packet(gap.len() as u64, marker, &payload);
            prop_assert!(!(is_damaged && is_harmless), "{form:?}: {gap:?}");
        }
    }

    #[test]
    fn lost_padding_between_pictures_is_harmless(form in forms(), pictures in pictures()) {
        let mut continuity = continuity(form);
        let mut missing = 0;
        for packet in stream(form, &pictures) {
            let Some((marker, payload, _)) = packet else {
                missing += 1;
                continue;
            };
            prop_assert!(continuity.handle_packet(missing, marker, &payload), "{form:?}");
            missing = 0;
        }
    }

    #[test]
    fn arbitrary_payloads_prove_nothing_alone(payload in prop::collection::vec(any::<u8>(), 0..40)) {
        for form in [Form::H264, Form::Vp8, Form::Vp9(1)] {
            prop_assert!(!continuity(form).handle_packet(1, true, &payload));
        }
    }
}
