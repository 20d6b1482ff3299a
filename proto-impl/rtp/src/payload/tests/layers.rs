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
        let head = [0xbc | p, n, spatial << 1 | u8::from(d && spatial > 0)];
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

/// Gives pictures of a source to a depacketizer, and describes the frames that come: number of the layer, K for key
/// frames, and the letters in the frame.
struct Source {
    depacketizer: Depacketizer,
    payloads: fn(u8, bool, &str, bool) -> Vec<Vec<u8>>,
    n: u8,
}

impl Source {
    fn new(format: Format) -> Self {
        let payloads = if format == Format::Vp9 { vp9 } else { av1 };
        Self { depacketizer: Depacketizer::new(format).unwrap().with_layers(), payloads, n: 0 }
    }

    fn frames(&mut self, (key, layers, d): (bool, &str, bool), needs: &Needs) -> Vec<Frame> {
        self.n += 1;
        noted(needs).for_each(|layer| self.depacketizer.note_layer(layer));
        let payloads = (self.payloads)(self.n, key, layers, d);
        for (at, payload) in (1..).zip(&payloads) {
            let part = Part { timestamp: self.n.into(), marker: at == payloads.len(), gap: false, payload };
            self.depacketizer.handle_part(&part).unwrap();
        }
        frames(&mut self.depacketizer)
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
    // A layer that is not sent gives up nothing: the others go on.
    for _ in 0..40 {
        assert_eq!(vp9.text((false, "ab", false), &[]), "1b 0a");
    }
    // A descriptor that is lost: the payloads decide.
    assert_eq!(vp9.text((false, "abc", false), &APART[..2]), "2c 1b 0a");
    // The mode changes: nothing is decodable before the next key picture.
    let dropped = vp9.depacketizer.stats().dropped;
    assert_eq!(vp9.text((false, "abc", true), &[]), "");
    assert_eq!(vp9.depacketizer.stats().dropped, dropped + 1);

    // Headers of AV1 do not tell what a layer is predicted from.
    let mut av1 = Source::new(Format::Av1);
    assert_eq!(av1.text((true, "ab", true), &[]), "1Kab 0Ka");
    assert!((0..20).all(|_| av1.text((false, "ab", false), &[]) == "1ab 0a"));
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
