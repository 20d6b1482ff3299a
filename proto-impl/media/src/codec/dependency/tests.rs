use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::codec::Codec;

/// First bytes of five frames of libvpx with three temporal layers, from ffmpeg.
#[rustfmt::skip]
const VP8_THREE_LAYERS: [&[u8]; 5] = [
    &[0xf0, 0x61, 0x00, 0x9d, 0x01, 0x2a, 0x40, 0x01, 0xb4, 0x00, 0x39, 0x07, 0x00, 0x00, 0x1c, 0x24, 0x0c, 0x2c, 0x2c, 0x44],
    &[0xb1, 0x0c, 0x00, 0x14, 0x1c, 0x24, 0x0c, 0x2c, 0x2c, 0x44, 0xcc, 0x24, 0x41, 0xcc, 0x00, 0x06, 0xbd, 0x58, 0xe2, 0x20],
    &[0x51, 0x0f, 0x00, 0x0e, 0x1c, 0x24, 0x0c, 0x2c, 0x2c, 0x44, 0xcc, 0x24, 0x41, 0xcc, 0x10, 0x1b, 0x7a, 0xfd, 0xb4, 0x10],
    &[0x31, 0x11, 0x00, 0x0e, 0x1c, 0x24, 0x0c, 0x2c, 0x2c, 0x44, 0xcc, 0x24, 0x41, 0xc4, 0x00, 0x06, 0xc3, 0xe9, 0x3c, 0xff],
    &[0xf1, 0x22, 0x00, 0xe4, 0x1a, 0x3f, 0xa8, 0xcb, 0xf7, 0xaf, 0x10, 0x4f, 0x4f, 0xb1, 0x0a, 0x2f, 0xe1, 0x69, 0x20, 0x3a],
];

/// Frames of VP8 from libvpx without layers.
#[rustfmt::skip]
const VP8_ONE_LAYER: [&[u8]; 2] = [
    &[0xf1, 0x13, 0x00, 0x0a, 0x11, 0x5c, 0x00, 0x1e, 0xa3, 0x17, 0xb6, 0xa0, 0xff, 0xff, 0xc9, 0x74, 0x06, 0xff, 0x0f, 0x9f],
    &[0xd1, 0x11, 0x00, 0x11, 0x11, 0x54, 0x00, 0x19, 0x82, 0x9e, 0x5b, 0x79, 0x83, 0x74, 0xfb, 0x6b, 0x5e, 0x50, 0xa0, 0x0a],
];

/// Frames of VP9 from libvpx with three temporal layers.
#[rustfmt::skip]
const VP9_THREE_LAYERS: [&[u8]; 5] = [
    &[0x83, 0x49, 0x83, 0x42, 0x00, 0x13, 0xf0, 0x0b],
    &[0x87, 0x00, 0x02, 0x4b, 0x0c, 0x1c, 0x12, 0x0e],
    &[0x87, 0x02, 0x02, 0x4b, 0x17, 0x1c, 0x12, 0x0e],
    &[0x87, 0x00, 0x02, 0x4b, 0x16, 0x1c, 0x12, 0x0e],
    &[0x87, 0x01, 0x02, 0x4b, 0x11, 0x1c, 0x12, 0x0e],
];

/// Frames of VP9 from libvpx without layers.
#[rustfmt::skip]
const VP9_ONE_LAYER: [&[u8]; 2] = [
    &[0x86, 0x00, 0x40, 0x92, 0xf0, 0xa1, 0x25, 0x00],
    &[0x86, 0x00, 0x40, 0x92, 0xf2, 0x11, 0x55, 0x80],
];

/// Sequence header written by SVT-AV1 in low-delay mode, with the temporal layers that the encoder
/// chose.
#[rustfmt::skip]
const AV1_SEQUENCE: &[u8] = &[0x0a, 0x0b, 0x02, 0x00, 0x00, 0x04, 0xa1, 0xe7, 0xf6, 0x62, 0x57, 0xc8, 0x02];

/// First bytes of the four frames that follow the key frame, without their OBU headers.
#[rustfmt::skip]
const AV1_FRAMES: [&[u8]; 4] = [
    &[0x30, 0x02, 0x00, 0x00, 0x00, 0x00, 0x2a, 0x52, 0x00, 0x00, 0x01, 0x1f],
    &[0x30, 0x04, 0x3f, 0x80, 0x00, 0x00, 0x2a, 0x48, 0x00, 0x00, 0x01, 0x1f],
    &[0x30, 0x06, 0x00, 0x04, 0x92, 0x49, 0x2a, 0x4a, 0x00, 0x00, 0x01, 0x1f],
    &[0x30, 0x08, 0x3f, 0x40, 0x00, 0x00, 0x6a, 0x39, 0x00, 0x30, 0xc1, 0x86],
];

fn config(codec: Codec, record: &[u8]) -> CodecConfig {
    CodecConfig::read(codec, Bytes::copy_from_slice(record)).unwrap().unwrap()
}

fn vp8() -> CodecConfig {
    config(Codec::Vp8, &[])
}

fn vp9() -> CodecConfig {
    config(Codec::Vp9, &[1, 0, 0, 0, 0, 0x0b, 0x82, 2, 2, 2, 0, 0])
}

fn av1() -> CodecConfig {
    config(Codec::Av1, &[&[0x81, 0, 0x0c, 0], AV1_SEQUENCE].concat())
}

fn h264() -> CodecConfig {
    const SPS: &[u8] = &[
        0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00,
        0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48,
    ];
    CodecConfig::H264(h264::Config::of_sets(&[SPS], &[&[0x68, 0xcb, 0x83, 0xcb, 0x20]]).unwrap())
}

/// Configuration of x265 at 320x180, from ffmpeg.
fn h265() -> CodecConfig {
    config(Codec::H265, include_bytes!("../../../../../fuzz/corpus/hevc_config/x265_320x180"))
}

/// Joins NAL units with their lengths.
fn with_lengths(nals: &[&[u8]]) -> Vec<u8> {
    let lengths = nals.iter().map(|nal| u32::try_from(nal.len()).unwrap().to_be_bytes());
    lengths.zip(nals).flat_map(|(length, nal)| [&length[..], nal].concat()).collect()
}

/// Makes a temporal unit with frames of AV1.
fn unit(frames: &[&[u8]]) -> Vec<u8> {
    let obu = |frame: &&[u8]| [&[0x32, u8::try_from(frame.len()).unwrap()], *frame].concat();
    [vec![0x12, 0], frames.iter().flat_map(obu).collect()].concat()
}

const PICTURES: u16 = !BESIDE;

/// Returns for each frame the slots that it refers to and replaces, and whether it is disposable.
fn slots_of(config: &CodecConfig, frames: &[&[u8]]) -> Vec<(u16, u16, bool)> {
    let read = |frame: &&[u8]| {
        let picture = Dependency::of(config, false, frame);
        (picture.refers & PICTURES, picture.replaces & PICTURES, picture.is_free())
    };
    frames.iter().map(read).collect()
}

#[test]
fn layers_of_vp8_replace_their_own_buffers_and_the_highest_none() {
    let seen = slots_of(&vp8(), &VP8_THREE_LAYERS[1..]);
    assert_eq!(seen, [(7, 0, true), (7, 2, false), (7, 0, true), (7, 1, false)]);
    assert!(slots_of(&vp8(), &VP8_ONE_LAYER).iter().all(|(_, replaces, free)| *replaces > 0 && !free));
}

#[test]
fn layers_of_vp9_name_their_slots_and_the_highest_replaces_none() {
    let seen = slots_of(&vp9(), &VP9_THREE_LAYERS[1..]);
    assert_eq!(seen, [(7, 0, true), (7, 2, false), (7, 0, true), (7, 1, false)]);
    // Without error resilience each frame takes the state of the previous one.
    for frame in VP9_ONE_LAYER {
        let picture = Dependency::of(&vp9(), false, frame);
        assert_eq!((picture.refers & STATE, picture.replaces & STATE), (STATE, STATE));
        assert!(!picture.is_free());
    }
    // A superframe counts like its frames. If they exceed the data, the unit may refer to all.
    let [one, two] = [VP9_THREE_LAYERS[1], VP9_THREE_LAYERS[2]];
    let of = |frame: &[u8]| Dependency::of(&vp9(), false, frame);
    let sizes = [one, two].map(|frame| u8::try_from(frame.len()).unwrap());
    let superframe = [one, two, &[0xc1, sizes[0], sizes[1], 0xc1]].concat();
    assert_eq!(of(&superframe), of(one).then(of(two)));
    assert_ne!(of(&superframe), Dependency::CHAIN);
    assert_eq!(of(&[one, &[0xc1, 200, 1, 0xc1]].concat()), Dependency::CHAIN);
    // A frame header that only shows an existing slot refers to that slot. The slots of a frame of profile 3 whose
    // reserved bit is set are unknown.
    let shown = Dependency::of(&vp9(), false, &[0b1000_1011]);
    assert_eq!((shown.refers, shown.replaces), (1 << 3, 0));
    assert_eq!(Dependency::of(&vp9(), false, &[0b1011_1000]), Dependency::CHAIN);
}

#[test]
fn frames_of_av1_name_all_that_they_take() {
    let frames = AV1_FRAMES.map(|frame| unit(&[frame]));
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let seen = slots_of(&av1(), &frames);
    assert_eq!(seen, [(1, 0, true), (1, 0xfe, false), (2, 0, true), (1, 0xfd, false)]);
    // Two frames in one unit. The slots that the first frame replaces need not exist before the unit.
    let both = Dependency::of(&av1(), false, &unit(&[AV1_FRAMES[1], AV1_FRAMES[2]]));
    assert_eq!((both.refers, both.replaces), (1, 0xfe));
    // Without a sequence header nothing can be read.
    assert_eq!(Dependency::of(&config(Codec::Av1, &[0x81, 0, 0x0c, 0]), false, frames[0]), Dependency::CHAIN);
}

#[test]
fn pictures_of_h264_that_none_refers_to_are_free() {
    let of = |nals: &[&[u8]]| Dependency::of(&h264(), false, &with_lengths(nals));
    assert!(of(&[&[0x09, 0xf0], &[0x01, 0x9a], &[0x01, 0x9b]]).is_free());
    assert!(!of(&[&[0x09, 0xf0], &[0x41, 0x9a]]).is_free());
    assert!(!of(&[&[0x01, 0x9a], &[0x21, 0x9a]]).is_free(), "a slice that others refer to");
    assert_eq!(of(&[&[0x09, 0xf0]]), Dependency::CHAIN, "no picture");
}

#[test]
fn sub_layers_of_h265_refer_to_none_above_them() {
    let of = |kind: u8, temporal: u8| {
        Dependency::of(&h265(), false, &with_lengths(&[&[kind << 1, temporal + 1, 0x80]]))
    };
    // The nal_unit_types below, in order: TRAIL_N, TRAIL_R, TSA_N, TSA_R, STSA_R.
    assert_eq!((of(0, 0).is_free(), of(0, 2).layer()), (true, 2));
    assert_eq!((of(1, 1).refers, of(1, 1).replaces), (0b11, 0b10));
    assert_eq!((of(2, 2).refers, of(2, 2).is_free()), (0b11, true));
    assert_eq!((of(3, 1).refers, of(3, 1).replaces), (0b01, 0b10));
    assert_eq!((of(5, 2).refers, of(5, 2).replaces), (0b011, 0b100));
    assert_eq!(Dependency::of(&h265(), false, &with_lengths(&[&[2, 0, 0x80]])), Dependency::CHAIN);
}

#[test]
fn what_was_left_out_breaks_what_refers_to_it_until_it_is_replaced() {
    let picture = |refers, replaces| Dependency { refers, replaces, layer: 0 };
    let mut received = Received::default();
    let (base, middle, top) = (picture(1, 1), picture(1, 2), picture(3, 0));
    received.left_out(top);
    assert!([base, middle, top].iter().all(|one| received.can_decode(*one)));
    received.left_out(middle);
    assert!(received.can_decode(base) && received.can_decode(middle) && !received.can_decode(top));
    received.sent(middle);
    assert!(received.can_decode(top));
    received.left_out(base);
    assert!(!received.can_decode(base) && !received.can_decode(middle));
    received.sent(Dependency::START);
    assert_eq!(received, Received::default());
}

#[test]
fn sound_and_key_frames_are_no_question() {
    assert_eq!(Dependency::of(&vp8(), true, &[]), Dependency::START);
    let sound = config(Codec::Aac, &[0x11, 0x90]);
    assert_eq!(Dependency::of(&sound, false, &[1, 2, 3]), Dependency::CHAIN);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0usize..20) {
        for config in [vp8(), vp9(), av1(), h264(), h265()] {
            let _ = Dependency::of(&config, false, &bytes);
        }
        for frames in [&VP8_THREE_LAYERS[..], &VP9_THREE_LAYERS, &AV1_FRAMES] {
            for frame in frames {
                let cut = &frame[..cut.min(frame.len())];
                let _ = (Dependency::of(&vp8(), false, cut), Dependency::of(&vp9(), false, cut));
                let _ = Dependency::of(&av1(), false, &unit(&[cut]));
            }
        }
        // Arbitrary bytes in the sequence header cause no panic either.
        let record = [&[0x81, 0, 0x0c, 0][..], &AV1_SEQUENCE[..2], &bytes].concat();
        if let Ok(Some(config)) = CodecConfig::read(Codec::Av1, record.into()) {
            let _ = Dependency::of(&config, false, &unit(&[AV1_FRAMES[1]]));
        }
    }
}
