//! Tests of VP9's spatial layers, and of their selection for output.

use crate::payload::{Depacketizer, Format, Frame, Part};

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
