//! Tests of VP9's spatial layers, and of their selection for output.

use crate::dependency::FrameLayer;
use crate::payload::{Depacketizer, Format, Frame, Part, SpatialLayer};

fn frames(depacketizer: &mut Depacketizer) -> Vec<Frame> {
    std::iter::from_fn(|| depacketizer.poll_frame()).collect()
}

/// VP9 picture in two spatial layers, with the bytes of each: its frame header, and whether the upper layer is
/// predicted from the lower one (D).
#[derive(Clone, Copy)]
struct Picture {
    key: bool,
    lower: Option<u8>,
    upper: Option<(u8, bool)>,
}

/// First byte of the frame header of a key frame. `VP9_INTER` is that of a predicted frame; both have show_frame set.
const VP9_KEY: u8 = 0x82;
const VP9_INTER: u8 = 0x86;

/// Returns the result for pictures as text: K for a key frame and D for others, followed by the layers (W for
/// both, L or U for one). A skipped picture is -, a broken one x.
fn vp9_pictures(pictures: &[Picture]) -> String {
    let mut depacketizer = Depacketizer::new(Format::Vp9).unwrap();
    let mut out = String::new();
    for (n, picture) in (1..).zip(pictures) {
        let head = |layer: u8, d: bool| {
            // I, P, L, F, B, E; flexible mode, so that there is no TL0PICIDX.
            let p = if picture.key { 0 } else { 0x40 };
            let references: &[u8] = if picture.key { &[] } else { &[2] };
            [&[0xbc | p, n, layer << 1 | u8::from(d)][..], references].concat()
        };
        let lower = picture.lower.map(|first| [&head(0, false)[..], &[first, b'l']].concat());
        let upper = picture.upper.map(|(first, d)| [&head(1, d)[..], &[first, b'u', b'u']].concat());
        let payloads: Vec<Vec<u8>> = lower.into_iter().chain(upper).collect();
        let dropped = depacketizer.stats().dropped;
        for (at, payload) in (1..).zip(&payloads) {
            let part = Part { timestamp: n.into(), marker: at == payloads.len(), gap: false, payload };
            depacketizer.handle_part(&part).unwrap();
        }
        let broken = depacketizer.stats().dropped > dropped;
        match frames(&mut depacketizer).as_slice() {
            [] => out.push(if broken { 'x' } else { '-' }),
            [frame] => {
                out.push(if frame.key_frame { 'K' } else { 'D' });
                let both = frame.payload.len() > 5;
                out.push(if both { 'W' } else { char::from(frame.payload[1]).to_ascii_uppercase() });
                // A superframe index is present if and only if the picture has two frames.
                assert_eq!(frame.payload.last().unwrap() & 0xe0 == 0xc0, both);
            }
            more => panic!("{more:?}"),
        }
    }
    out
}

#[test]
fn of_independent_layers_of_vp9_the_top_one_is_taken() {
    let picture = |key, lower: u8, upper: u8, d| Picture { key, lower: Some(lower), upper: Some((upper, d)) };
    let key = picture(true, VP9_KEY, VP9_INTER, true);
    let own = picture(true, VP9_KEY, VP9_KEY, false);
    let intra = picture(true, VP9_KEY, VP9_INTER, false);
    let (apart, svc) =
        (picture(false, VP9_INTER, VP9_INTER, false), picture(false, VP9_INTER, VP9_INTER, true));
    let base = Picture { upper: None, ..apart };
    let base_key = Picture { upper: None, ..key };
    let check = |name: &str, pictures: &[(Picture, usize)], wanted: &str| {
        let all: Vec<Picture> =
            pictures.iter().flat_map(|(picture, times)| std::iter::repeat_n(*picture, *times)).collect();
        assert_eq!(vp9_pictures(&all), wanted, "{name}");
    };
    let times = |text: &str, n: usize| text.repeat(n);
    check("one layer", &[(base_key, 1), (base, 20)], &format!("KL{}", times("DL", 20)));
    check("full SVC", &[(key, 1), (svc, 20)], &format!("KW{}", times("DW", 20)));
    check("K-SVC", &[(key, 1), (apart, 20)], &format!("KW{}{}", times("DW", 10), times("DU", 10)));
    check("S2T1 with an intra frame", &[(intra, 1), (apart, 12)], &format!("KW{}DUDU", times("DW", 10)));
    check("S2T1 with key frames", &[(own, 1), (apart, 3), (own, 1)], "KUDUDUDUKU");
    check("a dropped frame", &[(own, 1), (apart, 1), (base, 3), (apart, 1)], "KUDU---DU");
    check(
        "the top layer ends",
        &[(own, 1), (apart, 1), (base, 16), (base_key, 1), (base, 2)],
        &format!("KUDU{}xKLDLDL", times("-", 15)),
    );
    check("it comes back", &[(base_key, 1), (base, 2), (own, 1), (apart, 1)], "KLDLDLKUDU");
    // If one picture lacks the lower or the upper layer, pictures are output whole as before.
    check(
        "full SVC, upper dropped",
        &[(key, 1), (svc, 1), (base, 20), (svc, 1)],
        &format!("KWDW{}DW", times("DL", 20)),
    );
    let once = [(key, 1), (svc, 2), (apart, 9), (svc, 2), (apart, 9), (svc, 1)];
    check("full SVC, now and then apart", &once, &format!("KW{}", times("DW", 23)));
    // After the upper layer was output alone, pictures that need both layers are broken until the next key
    // picture. From there on, pictures are output whole.
    let changed = [(own, 1), (apart, 2), (svc, 2), (own, 1), (apart, 12)];
    check("a mode that changes", &changed, &format!("KUDUDUxxKW{}", times("DW", 12)));
}

/// Spatial layers and what needs them: for each layer of a picture its number and the layers that need it.
type Needs = [(u8, u8)];

/// K-SVC with three layers: a key picture, and the pictures after it.
const KEY: &Needs = &[(0, 0b111), (1, 0b110), (2, 0b100)];
const APART: &Needs = &[(0, 0b001), (1, 0b010), (2, 0b100)];

fn noted(needs: &Needs) -> impl Iterator<Item = FrameLayer> {
    needs.iter().map(|&(spatial, needed_by)| FrameLayer {
        first: true,
        frame_number: 0,
        spatial,
        temporal: 0,
        needed_by,
        sent: 0b111,
        size: Some((160 << spatial, 90 << spatial)),
    })
}

/// Payloads of a VP9 picture whose layers are named by letters: `a` the lowest. `d` is the D bit of upper layers.
fn vp9(n: u8, key: bool, layers: &str, d: bool) -> Vec<Vec<u8>> {
    let of_layer = |letter: u8| {
        let spatial = letter - b'a';
        let (p, references) = if key { (0, &[][..]) } else { (0x40, &[2][..]) };
        let first = if key && spatial == 0 { VP9_KEY } else { VP9_INTER };
        let head = [0xbc | p, n & 0x7f, spatial << 1 | u8::from(d && spatial > 0)];
        [&head[..], references, &[first, letter, letter]].concat()
    };
    layers.bytes().map(of_layer).collect()
}

/// Payloads of an AV1 picture: a sequence header in key pictures, then a frame for each layer.
fn av1(_: u8, key: bool, layers: &str, _: bool) -> Vec<Vec<u8>> {
    let of_layer = |letter: u8| {
        let spatial = letter - b'a';
        // OBU_FRAME with an extension; frame types KEY_FRAME and INTER_FRAME, both shown.
        let first = if key && spatial == 0 { 0x10 } else { 0x30 };
        vec![0x10, 6 << 3 | 4, spatial << 3, first, letter, letter]
    };
    let header = key.then(|| vec![0x18, 1 << 3, 7, 7]);
    header.into_iter().chain(layers.bytes().map(of_layer)).collect()
}

/// Checks that a unit of several frames of VP9, of three bytes each, has an index of so many, and a unit of one frame none.
fn has_its_index(frame: &Frame) {
    let letters = frame.payload.iter().filter(|byte| (b'a'..=b'd').contains(byte)).count();
    let indexed: Vec<&[u8]> = media::codec::vp9::frames(&frame.payload).collect();
    assert_eq!(indexed.len(), letters / 2, "{frame:?}");
    assert!(indexed.iter().all(|frame| frame.len() == 3), "{frame:?}");
}

/// Gives pictures of a source to a depacketizer, and describes the frames that come: number of the layer, K for key
/// frames, and the letters in the frame.
struct Source {
    depacketizer: Depacketizer,
    payloads: fn(u8, bool, &str, bool) -> Vec<Vec<u8>>,
    n: u8,
    is_vp9: bool,
    /// Layers that are sent according to the descriptors.
    sent: u8,
}

impl Source {
    fn new(format: Format) -> Self {
        let is_vp9 = format == Format::Vp9;
        let payloads = if is_vp9 { vp9 } else { av1 };
        let depacketizer = Depacketizer::new(format).unwrap().with_layers();
        Self { depacketizer, payloads, n: 0, is_vp9, sent: 0b111 }
    }

    fn frames(&mut self, (key, layers, d): (bool, &str, bool), needs: &Needs) -> Vec<Frame> {
        self.n += 1;
        for layer in noted(needs) {
            self.depacketizer.note_layer(self.n.into(), FrameLayer { sent: self.sent, ..layer });
        }
        let payloads = (self.payloads)(self.n, key, layers, d);
        for (at, payload) in (1..).zip(&payloads) {
            let part = Part { timestamp: self.n.into(), marker: at == payloads.len(), gap: false, payload };
            self.depacketizer.handle_part(&part).unwrap();
        }
        let frames = frames(&mut self.depacketizer);
        if self.is_vp9 {
            frames.iter().for_each(has_its_index);
        }
        frames
    }

    fn text(&mut self, picture: (bool, &str, bool), needs: &Needs) -> String {
        let describe = |frame: &Frame| {
            let mut letters: Vec<u8> =
                frame.payload.iter().copied().filter(|byte| (b'a'..=b'd').contains(byte)).collect();
            letters.dedup();
            let key = if frame.key_frame { "K" } else { "" };
            format!("{}{key}{}", frame.layer.index, String::from_utf8(letters).unwrap())
        };
        self.frames(picture, needs).iter().map(describe).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn each_layer_gets_what_its_descriptors_say() {
    let mut source = Source::new(Format::Vp9);
    let mut check = |picture, needs: &Needs, wanted: &str| {
        assert_eq!(source.text(picture, needs), wanted, "{picture:?}");
    };
    check((true, "abc", true), KEY, "2Kabc 1Kab 0Ka");
    check((false, "abc", false), APART, "2c 1b 0a");
    check((false, "ab", false), &APART[..2], "1b 0a");
    check((false, "bc", false), &APART[1..], "2c 1b");
    // Full SVC: each layer needs the lower ones, and goes on while upper ones are omitted.
    check((false, "abc", true), KEY, "2abc 1ab 0a");
    check((false, "ab", true), &[(0, 0b111), (1, 0b110)], "2ab 1ab 0a");
    // A key picture with fewer layers.
    check((true, "ab", true), KEY, "1Kab 0Ka");
    check((true, "a", true), &KEY[..1], "0Ka");
    check((false, "a", true), &KEY[..1], "0a");
    // A decoder cannot start with a layer that is no key frame, whatever the descriptors say.
    check((true, "abc", true), APART, "2Kabc 1Kab 0Ka");
    // Decoders of AV1 expect the lower layers of an operating point.
    let mut av1 = Source::new(Format::Av1);
    assert_eq!(av1.text((true, "abc", true), KEY), "2Kabc 1Kab 0Ka");
    assert_eq!(av1.text((false, "abc", false), APART), "2abc 1ab 0a");
    assert_eq!(av1.text((false, "ab", false), &APART[..2]), "2ab 1ab 0a");
}

#[test]
fn without_descriptors_layers_are_told_apart_by_the_payloads() {
    let mut vp9 = Source::new(Format::Vp9);
    assert_eq!(vp9.text((true, "abc", true), &[]), "2Kabc 1Kab 0Ka");
    for n in 0..20 {
        let wanted = if n < 10 { "2abc 1ab 0a" } else { "2c 1b 0a" };
        assert_eq!(vp9.text((false, "abc", false), &[]), wanted, "{n}");
    }
    // The mode changes: the layers that were output alone are not decodable before the next key picture.
    let dropped = vp9.depacketizer.stats().dropped;
    assert_eq!(vp9.text((false, "abc", true), &[]), "0a");
    assert!(vp9.depacketizer.needs_key_frame());
    assert_eq!(vp9.text((false, "abc", true), &[]), "0a");
    assert_eq!(vp9.depacketizer.stats().dropped, dropped);
    assert_eq!(vp9.text((true, "abc", true), &[]), "2Kabc 1Kab 0Ka");
    assert!(!vp9.depacketizer.needs_key_frame());

    // Headers of AV1 do not tell what a layer is predicted from.
    let mut av1 = Source::new(Format::Av1);
    assert_eq!(av1.text((true, "ab", true), &[]), "1Kab 0Ka");
    assert!((0..20).all(|_| av1.text((false, "ab", false), &[]) == "1ab 0a"));
}

/// Full SVC with three layers.
const FULL: &Needs = &[(0, 0b111), (1, 0b110), (2, 0b100)];

#[test]
fn a_layer_that_is_not_sent_continues_with_the_one_below_if_it_can() {
    let mut source = Source::new(Format::Vp9);
    assert_eq!(source.text((true, "abc", true), KEY), "2Kabc 1Kab 0Ka");
    assert_eq!(source.text((false, "abc", true), FULL), "2abc 1ab 0a");
    source.sent = 0b011;
    for _ in 0..40 {
        assert_eq!(source.text((false, "ab", true), &[(0, 0b011), (1, 0b010)]), "2ab 1ab 0a");
    }
    source.sent = 0b001;
    assert_eq!(source.text((false, "a", true), &[(0, 0b001)]), "2a 1a 0a");
    source.sent = 0b111;
    assert_eq!(source.text((false, "abc", true), FULL), "2abc 1ab 0a");
    assert!(!source.depacketizer.needs_key_frame());

    // With K-SVC the decoder of the upper layer has not had the pictures of the lower one.
    assert_eq!(source.text((true, "abc", true), KEY), "2Kabc 1Kab 0Ka");
    assert_eq!(source.text((false, "abc", false), APART), "2c 1b 0a");
    // The upper layer omits a picture, of which the middle one needs all.
    assert_eq!(source.text((false, "ab", true), &[(0, 0b011), (1, 0b010)]), "1ab 0a");
    source.sent = 0b011;
    assert_eq!(source.text((false, "ab", false), &APART[..2]), "1b 0a");
    assert!(source.depacketizer.needs_key_frame());
    assert_eq!(source.text((true, "ab", true), &[(0, 0b011), (1, 0b010)]), "1Kab 0Ka");
    assert!(!source.depacketizer.needs_key_frame());
}

#[test]
fn without_descriptors_a_layer_that_stays_absent_stops() {
    let mut source = Source::new(Format::Vp9);
    source.frames((true, "abc", true), &[]);
    (0..12).for_each(|_| drop(source.frames((false, "abc", false), &[])));
    for n in 0..40 {
        assert_eq!(source.text((false, "ab", false), &[]), "1b 0a", "the others go on");
        assert_eq!(source.depacketizer.needs_key_frame(), n >= 15, "{n}");
    }
    assert_eq!(source.text((false, "abc", false), &[]), "1b 0a");
    assert_eq!(source.text((true, "abc", true), &[]), "2Kabc 1Kab 0Ka");
}

#[test]
fn a_layer_that_begins_later_is_output_from_a_key_picture_on() {
    for needs in [&[][..], FULL] {
        let mut source = Source::new(Format::Vp9);
        let of = |layers: &str| needs.get(..layers.len()).unwrap_or_default();
        assert_eq!(source.text((true, "a", true), of("a")), "0Ka");
        assert_eq!(source.text((false, "a", true), of("a")), "0a");
        assert!(!source.depacketizer.needs_key_frame());
        assert_eq!(source.text((false, "abc", true), of("abc")), "0a");
        assert!(source.depacketizer.needs_key_frame());
        assert_eq!(source.text((false, "ab", true), of("ab")), "0a");
        assert!(source.depacketizer.needs_key_frame(), "until it comes");
        // An encoder that leaves upper layers out of key pictures is not asked for one after the other.
        assert_eq!(source.text((true, "a", true), of("a")), "0Ka");
        let asked: Vec<bool> = (0..160)
            .map(|_| {
                source.frames((false, "abc", true), of("abc"));
                source.depacketizer.needs_key_frame()
            })
            .collect();
        assert_eq!(asked.iter().position(|asked| *asked), Some(149));
        assert_eq!(source.text((true, "abc", true), of("abc")), "2Kabc 1Kab 0Ka");
        assert_eq!(source.text((false, "abc", true), of("abc")), "2abc 1ab 0a");
    }
}

#[test]
fn a_frame_without_its_descriptor_is_needed_as_the_one_before_it() {
    let mut source = Source::new(Format::Vp9);
    source.frames((true, "abc", true), KEY);
    assert_eq!(source.text((false, "abc", false), APART), "2c 1b 0a");
    for lost in [&APART[..2], &APART[1..], &[][..]] {
        assert_eq!(source.text((false, "abc", false), lost), "2c 1b 0a");
    }
    // The picture before lacked a layer.
    assert_eq!(source.text((false, "ab", false), &APART[..2]), "1b 0a");
    assert_eq!(source.text((false, "abc", false), &[]), "2c 1b 0a");
    assert!(!source.depacketizer.needs_key_frame());
}

#[test]
fn descriptors_belong_to_the_picture_with_their_timestamp() {
    let mut source = Source::new(Format::Vp9);
    source.frames((true, "abc", true), KEY);
    // The marker of this picture is lost, and the next picture's descriptors come before its first packet.
    noted(APART).for_each(|layer| source.depacketizer.note_layer(2, layer));
    for payload in vp9(2, false, "abc", false) {
        source
            .depacketizer
            .handle_part(&Part { timestamp: 2, marker: false, gap: false, payload: &payload })
            .unwrap();
    }
    source.n = 2;
    let text = source.text((true, "abc", true), KEY);
    assert_eq!(text, "2c 1b 0a 2Kabc 1Kab 0Ka");
}

#[test]
fn a_small_part_of_a_picture_does_not_keep_it_in_memory() {
    let mut source = Source::new(Format::Vp9);
    let upper = [&[0xfc, 1, 3, 2, VP9_INTER][..], &[b'b'; 1000]].concat();
    source.frames((true, "a", true), &[]);
    // Only the lowest layer has begun.
    for n in 2..4_u8 {
        let lower = [&[0xfc, n, 0, 2, VP9_INTER][..], b"aa"].concat();
        let part = |marker| Part { timestamp: n.into(), marker, gap: false, payload: &[] };
        source.depacketizer.handle_part(&Part { payload: &lower, ..part(false) }).unwrap();
        source.depacketizer.handle_part(&Part { payload: &upper, ..part(true) }).unwrap();
        let frame = frames(&mut source.depacketizer).remove(0);
        assert_eq!(frame.payload[..], [VP9_INTER, b'a', b'a']);
        let copy: bytes::BytesMut = frame.payload.try_into_mut().unwrap();
        assert!(copy.capacity() < 100, "{}", copy.capacity());
    }
}

#[test]
fn a_unit_of_too_many_parts_is_not_divided() {
    let mut source = Source::new(Format::Av1);
    let layers = "abc".repeat(6);
    assert_eq!(source.text((true, "abc", true), &[]), "2Kabc 1Kab 0Ka");
    let many = source.frames((false, &layers, true), &[]);
    let bytes: Vec<usize> = many.iter().map(|frame| frame.payload.len()).collect();
    assert_eq!(bytes, [18 * 6; 3], "each layer gets all");
    assert_eq!(source.text((false, "abc", true), &[]), "2abc 1ab 0a");
}

#[test]
fn layers_of_one_picture_share_its_memory_and_have_their_sizes() {
    let mut av1 = Source::new(Format::Av1);
    let key = av1.frames((true, "abc", true), KEY);
    let [top, middle, lowest] = &key[..] else { panic!("{key:?}") };
    let at = |frame: &Frame| frame.payload.as_ptr_range();
    assert_eq!((at(top).start, at(top).start), (at(middle).start, at(lowest).start));
    let sizes: Vec<_> = key.iter().map(|frame| frame.layer.size.unwrap()).collect();
    assert_eq!(sizes, [(640, 360), (320, 180), (160, 90)]);
    assert!(key.iter().all(|frame| frame.layer.top == 2));
    let apart = av1.frames((false, "abc", false), APART);
    assert_eq!((at(&apart[0]).start, at(&apart[0]).start), (at(&apart[1]).start, at(&apart[2]).start));
    assert_eq!(apart[0].layer, SpatialLayer { index: 2, top: 2, size: None });

    // A superframe has an index, which the pictures of lower layers need, too.
    let mut vp9 = Source::new(Format::Vp9);
    let key = vp9.frames((true, "abc", true), KEY);
    assert_eq!(
        key[0].payload[..],
        [&[VP9_KEY][..], b"aa", &[VP9_INTER], b"bb", &[VP9_INTER], b"cc", &[0xc2, 3, 3, 3, 0xc2]].concat()
    );
    assert_eq!(
        key[1].payload[..],
        [&[VP9_KEY][..], b"aa", &[VP9_INTER], b"bb", &[0xc1, 3, 3, 0xc1]].concat()
    );
    assert_eq!(key[2].payload[..], [&[VP9_KEY][..], b"aa"].concat());
}

#[test]
fn pictures_with_layers_in_any_order_and_number_do_no_harm() {
    for format in [Format::Vp9, Format::Av1] {
        let mut source = Source::new(format);
        for layers in ["cba", "aaaa", "c", "b", "abcdcba", "ddd", "a"] {
            for key in [true, false] {
                for needs in [&[][..], KEY, APART, &[(3, 0), (2, 0xff)]] {
                    for frame in source.frames((key, layers, key), needs) {
                        assert!(frame.layer.index <= frame.layer.top && !frame.payload.is_empty());
                    }
                }
            }
        }
    }
}
