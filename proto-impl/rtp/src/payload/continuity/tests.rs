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
    /// H.264 only: an IDR picture.
    is_idr: bool,
    is_reference: bool,
    padding: usize,
}

/// A packet in the order of its number. `None` is padding.
type Sent = Option<(u32, bool, Vec<u8>, bool)>;

/// Returns the payload of packet `at` of picture `number`, which has `count` packets.
fn payload(form: Form, number: usize, frame_num: u8, picture: &Picture, at: usize) -> Vec<u8> {
    let (is_first, is_last) = (at == 0, at + 1 == picture.packets);
    let [high, low] = u16::try_from(number % 32_768).unwrap().to_be_bytes();
    match form {
        Form::H264 => {
            let reference = if picture.is_reference { 0x40 } else { 0 };
            let (reference, kind) = if picture.is_idr { (0x60, 5) } else { (reference, 1) };
            // first_mb_in_slice 0, slice_type 5 or 7, pic_parameter_set_id 0, frame_num.
            let start = if picture.is_idr { 0x88 } else { 0x9a };
            let slice = if picture.is_idr {
                [start, 0x84, 7, 7]
            } else {
                [start | frame_num >> 3 & 1, frame_num << 5 | 0x1f, 7, 7]
            };
            match (is_first, is_last) {
                (true, true) => [&[reference | kind], &slice[..]].concat(),
                (true, false) => [&[reference | FU_A, FU_START | kind], &slice[..]].concat(),
                (false, last) => vec![reference | FU_A, if last { 0x40 | kind } else { kind }, 9],
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
        let timestamp = u32::try_from(number).unwrap().wrapping_mul(3000).wrapping_sub(60_000);
        if picture.is_idr {
            frame_num = 0;
        }
        for at in 0..picture.packets {
            let payload = payload(form, number, frame_num, picture, at);
            // The loss of a picture that no other refers to is harmless in H.264 alone, whose number does not show it.
            let matters = picture.is_idr || picture.is_reference || !matches!(form, Form::H264);
            sent.push(Some((timestamp, at + 1 == picture.packets, payload, matters)));
        }
        sent.extend((0..picture.padding).map(|_| None));
        if picture.is_reference || picture.is_idr {
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
    })
    .unwrap();
    if matches!(form, Form::H264) {
        let sets = [&[STAP_A, 0, 22], SPS, &[0, 4], PPS].concat();
        assert!(continuity.handle_packet(0, 0, false, &sets));
    }
    continuity
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![Just(Form::H264), Just(Form::Vp8), (1..=3u8).prop_map(Form::Vp9)]
}

fn pictures() -> impl Strategy<Value = Vec<Picture>> {
    let picture = (1..=4usize, prop::bool::weighted(0.8), prop::bool::weighted(0.3), 0..=3usize);
    let picture = picture.prop_map(|(packets, is_reference, is_idr, padding)| Picture {
        packets,
        is_idr,
        is_reference,
        padding,
    });
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
            for (timestamp, marker, payload, _) in sent.by_ref().take(arriving).flatten() {
                prop_assert!(continuity.handle_packet(0, timestamp, marker, &payload));
            }
            let gap: Vec<Sent> = sent.by_ref().take(if is_long { lost } else { lost % 6 }).collect();
            let next = sent.by_ref().find_map(|packet| packet);
            let Some((timestamp, marker, payload, _)) = next else { break };
            let is_damaged = gap.iter().flatten().any(|(_, _, _, matters)| *matters);
            let is_harmless = continuity.handle_packet(gap.len() as u64, timestamp, marker, &payload);
            prop_assert!(!(is_damaged && is_harmless), "{form:?}: {gap:?}");
        }
    }

    #[test]
    fn lost_padding_between_pictures_is_harmless(form in forms(), pictures in pictures()) {
        let mut continuity = continuity(form);
        let mut missing = 0;
        // The interval of H.264 has to be known, and IDR pictures have no consecutive numbers.
        let mut pictures = pictures;
        pictures[0].padding = 0;
        pictures.iter_mut().for_each(|picture| picture.is_idr = false);
        for packet in stream(form, &pictures) {
            let Some((timestamp, marker, payload, _)) = packet else {
                missing += 1;
                continue;
            };
            prop_assert!(continuity.handle_packet(missing, timestamp, marker, &payload), "{form:?}");
            missing = 0;
        }
    }

    #[test]
    fn arbitrary_payloads_prove_nothing_alone(payload in prop::collection::vec(any::<u8>(), 0..40)) {
        for form in [Form::H264, Form::Vp8, Form::Vp9(1)] {
            prop_assert!(!continuity(form).handle_packet(1, 0, true, &payload));
        }
    }
}

/// Checks that a picture whose first packet was lost is part of no interval: a lost IDR picture would seem to take no
/// time.
#[test]
fn a_picture_without_its_beginning_is_part_of_no_interval() {
    let picture = |packets, is_idr| Picture { packets, is_idr, is_reference: is_idr, padding: 0 };
    let pictures =
        [picture(1, false), picture(3, false), picture(1, true), picture(1, true), picture(1, false)];
    let sent = stream(Form::H264, &pictures);
    let mut continuity = continuity(Form::H264);
    let mut handle = |at: usize, missing| {
        let (timestamp, marker, payload, _) = sent[at].as_ref().unwrap();
        continuity.handle_packet(missing, *timestamp, *marker, payload)
    };
    assert!(handle(0, 0));
    assert!(!handle(2, 1), "the beginning of the second picture is lost");
    assert!(handle(3, 0) && handle(4, 0));
    assert!(!handle(6, 1), "the second IDR picture is lost");
}

/// Checks that a lost IDR picture is found, although the numbers before and after it are consecutive.
#[test]
fn a_lost_idr_picture_is_no_padding() {
    let picture = |is_idr| Picture { packets: 1, is_idr, is_reference: true, padding: 0 };
    let sent = stream(Form::H264, &[false, false, true, true, false].map(picture));
    let mut continuity = continuity(Form::H264);
    let mut handle = |at: usize, missing| {
        let (timestamp, marker, payload, _) = sent[at].as_ref().unwrap();
        continuity.handle_packet(missing, *timestamp, *marker, payload)
    };
    assert!((0..3).all(|at| handle(at, 0)));
    assert!(!handle(4, 1), "the fourth is lost");
}

#[test]
fn codecs_without_numbers_have_no_continuity() {
    assert!(Continuity::new(Codec::H265).is_none() && Continuity::new(Codec::Av1).is_none());
}
