//! Tests of all formats: packetized data is restored, and lost or hostile packets only affect their own frame.

mod layers;

use bytes::{BufMut, Bytes, BytesMut};
use crypto::{Random, Seed};
use media::codec::{Codec, CodecConfig, ac3, av1, flac, g711, h264, h265, mp3, opus, vp8, vp9};
use media::nal;

use super::*;

/// Test case of a codec: its configuration, the format of its source, and its units.
struct Case {
    name: &'static str,
    config: CodecConfig,
    format: Format,
    unit: fn(&mut Random, bool, usize) -> Vec<u8>,
    video: bool,
}

fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    random.fill(&mut out);
    out
}

fn with_lengths(nals: &[Vec<u8>]) -> Vec<u8> {
    let mut out = BytesMut::new();
    nals.iter().for_each(|nal| nal::put_with_length(nal, &mut out));
    out.to_vec()
}

fn h264_unit(random: &mut Random, key: bool, bytes: usize) -> Vec<u8> {
    let slice = |random: &mut Random, first: bool, bytes: usize| {
        let head = [if key { 0x65 } else { 0x41 }, if first { 0x88 } else { 0x22 }];
        [&head[..], &noise(random, bytes)].concat()
    };
    let mut nals = vec![];
    if key {
        nals.extend([
            vec![0x67, 0x42, 0xc0, 0x1f, 1, 2, 3],
            vec![0x68, 0xce, 0x3c, 0x80],
            vec![6, 5, 1, 9, 0x80],
        ]);
    }
    nals.extend([slice(random, true, bytes), slice(random, false, bytes / 3)]);
    with_lengths(&nals)
}

fn h265_unit(random: &mut Random, key: bool, bytes: usize) -> Vec<u8> {
    let slice = |random: &mut Random, first: bool, bytes: usize| {
        let kind = if key { 19 } else { 1 };
        [&[kind << 1, 1, if first { 0x80 } else { 0x10 }][..], &noise(random, bytes)].concat()
    };
    let mut nals = vec![];
    if key {
        nals.extend([vec![0x40, 1, 12, 1], vec![0x42, 1, 1, 1], vec![0x44, 1, 0xc0]]);
    }
    nals.extend([slice(random, true, bytes), slice(random, false, bytes / 3)]);
    with_lengths(&nals)
}

fn av1_unit(random: &mut Random, key: bool, bytes: usize) -> Vec<u8> {
    let mut out = BytesMut::new();
    let mut obu = |head: &[u8], body: &[u8]| {
        out.put_slice(head);
        av1::put_leb128(body.len(), &mut out);
        out.put_slice(body);
    };
    if key {
        obu(&[0x0a], &[0, 0, 0, 0x24, 0xce, 0x2b, 0xc0]);
        obu(&[0x2a], &[4, 1, 2, 3]);
    }
    let frame = [&[if key { 0x10 } else { 0x30 }][..], &noise(random, bytes)].concat();
    // A frame header with an extension followed by tile groups, or a complete frame.
    if bytes.is_multiple_of(2) {
        obu(&[0x32], &frame);
    } else {
        obu(&[0x1e, 0x08], &frame[..frame.len().min(40)]);
        obu(&[0x26, 0x08], &frame);
    }
    out.to_vec()
}

fn cases() -> Vec<Case> {
    let mp3_unit = |random: &mut Random, _: bool, bytes: usize| {
        // 320 kbit/s, or 32, at 48 kHz.
        let (head, length) =
            if bytes > 100 { ([0xff, 0xfb, 0xe4, 0x64], 960) } else { ([0xff, 0xfb, 0x14, 0x64], 96) };
        [&head[..], &noise(random, length - 4)].concat()
    };
    let aac = |format| Case {
        name: "aac",
        config: CodecConfig::Aac(media::codec::aac::Config::of_parts(2, 3, 2).unwrap()),
        format,
        unit: |random, _, bytes| noise(random, bytes.clamp(1, 8191)),
        video: false,
    };
    let h264_config =
        h264::Config::of_sets(&[&[0x67, 0x42, 0xc0, 0x1f, 0xda, 2, 0x80]], &[&[0x68, 0xce, 0x3c, 0x80]]);
    let video = |name, config, format, unit| Case { name, config, format, unit, video: true };
    vec![
        video("h264", CodecConfig::H264(h264_config.unwrap()), Format::H264, h264_unit),
        // The units contain their parameter sets, so any configuration will do.
        video("h265", CodecConfig::Vp8(vp8::Config::default()), Format::H265, h265_unit),
        video("vp8", CodecConfig::Vp8(vp8::Config::default()), Format::Vp8, |random, key, bytes| {
            [&[u8::from(!key)][..], &noise(random, bytes)].concat()
        }),
        video("vp9", CodecConfig::Vp8(vp8::Config::default()), Format::Vp9, |random, _, bytes| {
            noise(random, bytes + 1)
        }),
        video("av1", CodecConfig::Vp8(vp8::Config::default()), Format::Av1, av1_unit),
        aac(Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR)),
        Case {
            name: "mp3",
            config: CodecConfig::Mp3(mp3::Config { sample_rate: 48_000, channels: 2 }),
            format: Format::Mp3,
            unit: mp3_unit,
            video: false,
        },
        Case {
            name: "opus",
            config: CodecConfig::Opus(opus::Config::of_channels(2).unwrap()),
            format: Format::Opus,
            unit: |random, _, bytes| noise(random, bytes.clamp(1, 1275)),
            video: false,
        },
        Case {
            name: "pcma",
            config: CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 }),
            format: Format::G711,
            unit: |random, _, _| noise(random, 60),
            video: false,
        },
    ]
}

impl Case {
    fn packetizer(&self, max: usize) -> Packetizer {
        let codec = match self.format {
            Format::H265 => Codec::H265,
            Format::Vp9 => Codec::Vp9,
            Format::Av1 => Codec::Av1,
            Format::H264 | Format::Vp8 | Format::Opus | Format::G711 => self.config.codec(),
            Format::Mp3 | Format::Mpeg4Generic(_) | Format::Mp4aLatm { .. } => self.config.codec(),
        };
        Packetizer::new(codec, max).unwrap()
    }

    fn packets(&self, packetizer: &mut Packetizer, key: bool, unit: &[u8]) -> Vec<Bytes> {
        let mut payloads = Payloads::new();
        packetizer.packetize(&self.config, key, unit, &mut payloads).unwrap();
        let packets: Vec<_> = payloads.take().collect();
        assert!(payloads.is_empty());
        packets
    }
}

/// Passes the packets of a frame to a depacketizer, except for those in `lost`.
fn give(
    depacketizer: &mut Depacketizer,
    gap: &mut bool,
    timestamp: u32,
    packets: &[Bytes],
    lost: Option<usize>,
) {
    for (n, payload) in packets.iter().enumerate() {
        if lost == Some(n) {
            *gap = true;
            continue;
        }
        let marker = n + 1 == packets.len();
        let part = Part { timestamp, marker, gap: std::mem::take(gap), payload };
        let _ = depacketizer.handle_part(&part);
    }
}

fn frames(depacketizer: &mut Depacketizer) -> Vec<Frame> {
    std::iter::from_fn(|| depacketizer.poll_frame()).collect()
}

#[test]
fn what_is_packetised_comes_back_whole_and_in_equal_parts() {
    let mut random = Seed::from_number(1).random();
    for case in cases() {
        for max in [64, 100, 333, 1160, 1200, 70_000] {
            let mut packetizer = case.packetizer(max);
            let mut depacketizer = Depacketizer::new(case.format.clone()).unwrap();
            for (n, bytes) in [1, 2, 60, 61, 64, 99, 127, 128, 129, 1159, 1160, 1161, 5000, 16_384, 90_001]
                .into_iter()
                .enumerate()
            {
                let key = n % 3 == 0;
                let unit = (case.unit)(&mut random, key, bytes);
                // An Opus packet is never divided.
                let largest = if case.name == "opus" { unit.len() } else { 0 };
                let packets = case.packets(&mut packetizer, key, &unit);
                assert!(
                    packets.iter().all(|packet| packet.len() <= max.max(largest) && !packet.is_empty()),
                    "{} {max} {bytes}",
                    case.name
                );
                let timestamp = u32::try_from(n).unwrap() * 3000;
                give(&mut depacketizer, &mut false, timestamp, &packets, None);
                let wanted = Frame::new(timestamp, key && case.video, unit.clone().into());
                let got = frames(&mut depacketizer);
                assert!(
                    got == [wanted],
                    "{} max {max} bytes {bytes}: {} frames, {:?}",
                    case.name,
                    got.len(),
                    depacketizer.stats()
                );
                // In H.264 and H.265, the fragments of each NAL unit have their own size. In the formats
                // checked here, all packets of a unit have the same size.
                if !matches!(case.format, Format::H264 | Format::H265 | Format::Av1) {
                    let size = packets[0].len();
                    assert!(
                        packets[..packets.len() - 1].iter().all(|packet| packet.len() == size),
                        "{}",
                        case.name
                    );
                    assert!(packets.last().unwrap().len() <= size);
                }
            }
            assert_eq!((depacketizer.stats().dropped, depacketizer.pending_bytes()), (0, 0), "{}", case.name);
        }
    }
}

/// Checks that a frame with a single slice, as low-latency encoders make, can be sent in a single call.
#[test]
fn a_frame_of_one_slice_is_one_run() {
    let mut random = Seed::from_number(2).random();
    for (codec, unit, config) in [
        (
            Codec::H264,
            with_lengths(&[[&[0x41, 0x9a][..], &noise(&mut random, 9_999)].concat()]),
            &cases()[0].config,
        ),
        (
            Codec::H265,
            with_lengths(&[[&[2, 1, 0x80][..], &noise(&mut random, 9_999)].concat()]),
            &cases()[1].config,
        ),
        (Codec::Av1, av1_unit(&mut random, false, 9_998), &cases()[4].config),
    ] {
        let mut payloads = Payloads::new();
        Packetizer::new(codec, 1160).unwrap().packetize(config, false, &unit, &mut payloads).unwrap();
        let sizes: Vec<_> = payloads.take().map(|payload| payload.len()).collect();
        assert_eq!(sizes.len(), 9, "{codec}");
        assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{codec} {sizes:?}");
        assert!(
            sizes[..8].iter().all(|size| *size == sizes[0]) && sizes[0] - sizes[8] < 20,
            "{codec} {sizes:?}"
        );
    }
}

#[test]
fn a_lost_packet_costs_its_frame_and_no_other() {
    let mut random = Seed::from_number(3).random();
    for case in cases() {
        let mut packetizer = case.packetizer(200);
        let sent: Vec<_> = (0..4u32)
            .map(|n| {
                let unit = (case.unit)(&mut random, n == 0, 700);
                (n * 3000, n == 0, case.packets(&mut packetizer, n == 0, &unit), Bytes::from(unit))
            })
            .collect();
        for lost_frame in 0..sent.len() {
            for lost in 0..sent[lost_frame].2.len() {
                let mut depacketizer = Depacketizer::new(case.format.clone()).unwrap();
                let mut gap = false;
                for (n, (timestamp, _, packets, _)) in sent.iter().enumerate() {
                    give(&mut depacketizer, &mut gap, *timestamp, packets, (n == lost_frame).then_some(lost));
                }
                let got = frames(&mut depacketizer);
                // For H.264 and H.265, the first packet, with the parameter sets, may be lost without losing
                // the frame.
                let sets = matches!(case.format, Format::H264 | Format::H265) && lost_frame == 0 && lost == 0;
                let is_whole = |frame: &Frame| {
                    sent.iter().any(|(_, key, _, unit)| {
                        *unit == frame.payload && frame.key_frame == (*key && case.video)
                    })
                };
                assert!(sets || got.iter().all(is_whole), "{} {lost_frame} {lost}", case.name);
                let missing: Vec<_> = sent
                    .iter()
                    .map(|(timestamp, ..)| *timestamp)
                    .filter(|timestamp| got.iter().all(|frame| frame.timestamp != *timestamp))
                    .collect();
                let wanted = u32::try_from(lost_frame).unwrap() * 3000;
                assert!(
                    missing.iter().all(|timestamp| *timestamp == wanted),
                    "{} {lost_frame} {lost}: {missing:?}",
                    case.name
                );
                assert!(missing.len() <= 1 && (sets || missing.len() == 1));
            }
        }
    }
}

#[test]
fn an_end_without_marker_is_found_by_the_next_timestamp() {
    let mut random = Seed::from_number(4).random();
    for case in cases().into_iter().filter(|case| case.video) {
        let mut packetizer = case.packetizer(300);
        let mut depacketizer = Depacketizer::new(case.format.clone()).unwrap();
        let mut units = Vec::new();
        for n in 0..3u32 {
            let unit = (case.unit)(&mut random, n == 0, 500);
            for payload in case.packets(&mut packetizer, n == 0, &unit) {
                let part = Part { timestamp: n, marker: false, gap: false, payload: &payload };
                depacketizer.handle_part(&part).unwrap();
            }
            units.push(unit);
        }
        let got: Vec<_> = frames(&mut depacketizer).into_iter().map(|frame| frame.payload.to_vec()).collect();
        assert_eq!(got, units[..2], "{}", case.name);
    }
}

#[test]
fn parameter_sets_stand_before_a_key_frame_once() {
    let case = &cases()[0];
    let CodecConfig::H264(config) = &case.config else { panic!() };
    let sets: Vec<_> = config.parameter_sets().map(<[u8]>::to_vec).collect();
    let slice = vec![0x65, 0x88, 1, 2];
    for (nals, wanted) in [
        (vec![slice.clone()], vec![sets[0].clone(), sets[1].clone(), slice.clone()]),
        // The unit's own parameter sets are kept; delimiters and filler data are not.
        (
            vec![vec![9, 0xf0], vec![0x67, 1], vec![0x68, 2], vec![12, 0xff], slice.clone()],
            vec![vec![0x67, 1], vec![0x68, 2], slice.clone()],
        ),
    ] {
        let packets = case.packets(&mut case.packetizer(1000), true, &with_lengths(&nals));
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0][0], 0x78, "STAP-A with the importance of the sets");
        let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
        give(&mut depacketizer, &mut false, 7, &packets, None);
        assert_eq!(frames(&mut depacketizer)[0].payload, with_lengths(&wanted));
    }
    // Parameter sets are not inserted before a unit that is not a key frame.
    let packets = case.packets(&mut case.packetizer(1000), false, &with_lengths(&[vec![0x41, 0x9a, 1]]));
    assert_eq!(packets, [&[0x41, 0x9a, 1][..]]);
}

/// Checks cameras that send the parameter sets with a separate marker or timestamp.
#[test]
fn a_frame_needs_a_picture() {
    for set_timestamp in [90, 100] {
        let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
        for (timestamp, marker, payload) in [
            (set_timestamp, true, &[0x67, 1, 2][..]),
            (set_timestamp, true, &[0x68, 3]),
            (100, false, &[]),
            (100, true, &[0x65, 0x88, 4]),
        ] {
            depacketizer.handle_part(&Part { timestamp, marker, gap: false, payload }).unwrap();
        }
        let wanted = with_lengths(&[vec![0x67, 1, 2], vec![0x68, 3], vec![0x65, 0x88, 4]]);
        let got = frames(&mut depacketizer);
        assert_eq!(got, [Frame::new(100, true, wanted.into())]);
    }
}

#[test]
fn a_frame_behind_a_hole_is_taken_when_its_first_slice_is_there() {
    for (payload, whole) in [(&[0x41, 0x9a][..], true), (&[0x41, 0x22], false)] {
        let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
        let part = Part { timestamp: 1, marker: true, gap: true, payload };
        depacketizer.handle_part(&part).unwrap();
        assert_eq!(frames(&mut depacketizer).len(), usize::from(whole));
        assert_eq!(depacketizer.stats().dropped, u64::from(!whole));
    }
}

#[test]
fn layers_of_vp9_become_a_superframe() {
    let mut depacketizer = Depacketizer::new(Format::Vp9).unwrap();
    // Two layers; the second refers to the first, and does not refer to an earlier picture.
    let first = [&[0xae, 0x80, 1, 0x01, 7, 0x28, 1, 0x04, 1][..], &[1, 2, 3]].concat();
    let second = [&[0xac, 0x80, 1, 0x03, 7][..], &[4; 300]].concat();
    for (payload, marker) in [(&first, false), (&second, true)] {
        depacketizer.handle_part(&Part { timestamp: 5, marker, gap: false, payload }).unwrap();
    }
    let got = frames(&mut depacketizer);
    let index = [0xc9, 3, 0, 44, 1, 0xc9];
    assert_eq!(got[0].payload, [&[1, 2, 3][..], &[4; 300], &index].concat());
    assert!(got[0].key_frame);
}

#[test]
fn several_units_of_aac_in_one_packet_have_their_own_times() {
    let mut depacketizer = Depacketizer::new(Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR)).unwrap();
    let payload = [&[0, 32, 0, 2 << 3, 0, 3 << 3][..], &[1, 2, 3, 4, 5]].concat();
    depacketizer.handle_part(&Part { timestamp: 9, marker: true, gap: false, payload: &payload }).unwrap();
    let got: Vec<_> = frames(&mut depacketizer)
        .into_iter()
        .map(|frame| (frame.timestamp, frame.payload.to_vec()))
        .collect();
    assert_eq!(got, [(9, vec![1, 2]), (9 + 1024, vec![3, 4, 5])]);
    // An index other than 0 means interleaving.
    let payload = [0, 16, 0, 2 << 3 | 1, 1, 2];
    let part = Part { timestamp: 9, marker: true, gap: false, payload: &payload };
    assert_eq!(depacketizer.handle_part(&part), Err(Error::Unsupported("interleaving")));
}

/// StreamMuxConfig with LC, 48 kHz, stereo, audioMuxVersion 0, and a frame for each element.
const STREAM_MUX_CONFIG: [u8; 6] = [0x40, 0x00, 0x23, 0x20, 0x3f, 0xc0];

fn latm(config: Option<&'static [u8]>, clock_rate: u32) -> Format {
    Format::Mp4aLatm { config: config.map(Bytes::from_static), clock_rate }
}

#[test]
fn several_frames_of_latm_are_as_far_from_each_other_as_their_configuration_says() {
    // Two frames per element: LC at 48 kHz; and LC at 24 kHz followed by SBR.
    for (config, clock_rate, ticks) in [
        (&[0x41, 0x00, 0x23, 0x20, 0x3f, 0xc0][..], 48_000, 1024),
        (&[0x41, 0x00, 0x23, 0x20, 0x3f, 0xc0], 90_000, 1920),
        (&[0x41, 0x00, 0x26, 0x20, 0x3f, 0xc0], 48_000, 2048),
    ] {
        let mut depacketizer = Depacketizer::new(latm(Some(config), clock_rate)).unwrap();
        let part = Part { timestamp: 7, marker: true, gap: false, payload: &[2, 1, 1, 1, 9] };
        depacketizer.handle_part(&part).unwrap();
        let got: Vec<_> = frames(&mut depacketizer)
            .into_iter()
            .map(|frame| (frame.timestamp, frame.payload.to_vec()))
            .collect();
        assert_eq!(got, [(7, vec![1, 1]), (7 + ticks, vec![9])], "{clock_rate}");
    }
}

/// Checks cameras that announce RFC 3640 or LATM but send ADTS.
#[test]
fn bare_adts_is_read() {
    let config = media::codec::aac::Config::of_parts(2, 8, 1).unwrap();
    let frame = |raw: &[u8]| [&config.adts(raw.len()).unwrap()[..], raw].concat();
    let (first, second) = (&[1, 2, 3][..], &[4; 300][..]);
    let both = [frame(first), frame(second)].concat();
    let hbr = Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR);
    let bare = Mpeg4Generic { size_length: 0, index_length: 0, index_delta_length: 0, unit_ticks: 1024 };
    let size = |bytes: usize| u16::try_from(bytes << 3).unwrap().to_be_bytes();
    let in_headers = [&[0, 32][..], &size(10), &size(307), &both].concat();
    let as_one = [&[0, 16][..], &size(both.len()), &both].concat();
    for (name, format, payload, marker) in [
        ("without AU headers", hbr.clone(), &both, true),
        ("where there are none", Format::Mpeg4Generic(bare), &both, true),
        ("behind AU headers", hbr.clone(), &in_headers, true),
        ("behind one AU header", hbr, &as_one, true),
        ("as LATM", latm(None, 16_000), &both, true),
        ("as LATM without a marker", latm(None, 16_000), &both, false),
        ("beside a StreamMuxConfig", latm(Some(&STREAM_MUX_CONFIG), 16_000), &both, true),
    ] {
        let mut depacketizer = Depacketizer::new(format).unwrap();
        for timestamp in [7, 7 + 2048] {
            depacketizer.handle_part(&Part { timestamp, marker, gap: false, payload }).unwrap();
            let got: Vec<_> = frames(&mut depacketizer)
                .into_iter()
                .map(|frame| (frame.timestamp, frame.payload.to_vec()))
                .collect();
            assert_eq!(got, [(timestamp, first.to_vec()), (timestamp + 1024, second.to_vec())], "{name}");
        }
        assert_eq!(depacketizer.aac_config(), Some(&config), "{name}");
        assert_eq!((depacketizer.stats().dropped, depacketizer.pending_bytes()), (0, 0), "{name}");
    }
    // Half a frame is not accepted as ADTS, and LATM elements remain LATM.
    let mut depacketizer = Depacketizer::new(latm(Some(&STREAM_MUX_CONFIG), 48_000)).unwrap();
    for (payload, count) in [(&[2, 1, 1][..], 1), (&both, 0), (&both[..20], 0)] {
        let _ = depacketizer.handle_part(&Part { timestamp: 1, marker: true, gap: false, payload });
        assert_eq!(frames(&mut depacketizer).iter().filter(|frame| frame.payload != both).count(), count);
    }
    assert_eq!(depacketizer.aac_config().map(|config| config.sample_rate), Some(48_000));
}

#[test]
fn latm_comes_with_its_config_in_the_description() {
    let format = latm(Some(&STREAM_MUX_CONFIG), 48_000);
    let mut depacketizer = Depacketizer::new(format).unwrap();
    let config = depacketizer.aac_config().unwrap();
    assert_eq!((config.sample_rate, config.channel_configuration), (48_000, 2));
    let unit: Vec<u8> = (0..=255).chain(0..44).collect();
    let element = [&[255, 45][..], &unit].concat();
    let (head, tail) = element.split_at(100);
    for (payload, marker) in [(head, false), (tail, true)] {
        depacketizer.handle_part(&Part { timestamp: 3, marker, gap: false, payload }).unwrap();
    }
    assert_eq!(frames(&mut depacketizer)[0].payload, unit);
    // After a gap, the rest of an element is not mistaken for a whole element.
    depacketizer.handle_part(&Part { timestamp: 4, marker: true, gap: true, payload: tail }).unwrap();
    depacketizer.handle_part(&Part { timestamp: 5, marker: true, gap: false, payload: &element }).unwrap();
    let got = frames(&mut depacketizer);
    assert_eq!((got.len(), got[0].timestamp, depacketizer.stats().dropped), (1, 5, 1));
    assert!(Depacketizer::new(latm(Some(&[0xff]), 48_000)).is_err());
}

#[test]
fn a_frame_of_mp3_may_come_in_parts() {
    let case = cases().into_iter().find(|case| case.name == "mp3").unwrap();
    let unit = (case.unit)(&mut Seed::from_number(5).random(), false, 500);
    let packets = case.packets(&mut case.packetizer(300), false, &unit);
    assert_eq!(packets.len(), 4);
    assert_eq!(packets[1][..4], [0, 0, 0, 240]);
    let mut depacketizer = Depacketizer::new(Format::Mp3).unwrap();
    // The first packet is lost; then all packets arrive.
    give(&mut depacketizer, &mut false, 1, &packets, Some(0));
    give(&mut depacketizer, &mut false, 2, &packets, None);
    assert_eq!(frames(&mut depacketizer).len(), 1);
}

#[test]
fn a_unit_that_is_not_in_its_format_makes_no_packets() {
    let mut payloads = Payloads::new();
    for (codec, unit) in [
        (Codec::H264, &[0, 0, 0, 9, 0x65][..]),
        (Codec::H265, &[0, 0, 0]),
        (Codec::Av1, &[0x32, 9, 1]),
        (Codec::Aac, &[0; 8192]),
    ] {
        let config = &cases()[0].config;
        let made = Packetizer::new(codec, 1200).unwrap().packetize(config, false, unit, &mut payloads);
        assert_eq!((made, payloads.len()), (Err(Error::BadUnit), 0), "{codec}");
    }
    assert!(Packetizer::new(Codec::Flac, 1200).is_none());
    let _ = (CodecConfig::Ac3(ac3::Config), flac::Config::read, vp9::Config::read, h265::nal_type(&[]));
}

fn formats() -> Vec<Format> {
    let mut all: Vec<_> = cases().into_iter().map(|case| case.format).collect();
    all.push(latm(None, 48_000));
    all.push(latm(Some(&STREAM_MUX_CONFIG), 90_000));
    all.push(Format::Mpeg4Generic(Mpeg4Generic {
        size_length: 6,
        index_length: 2,
        index_delta_length: 2,
        unit_ticks: 160,
    }));
    all.push(Format::Mpeg4Generic(Mpeg4Generic {
        size_length: 0,
        index_length: 0,
        index_delta_length: 0,
        unit_ticks: 1024,
    }));
    all
}

/// Checks every first byte with every length: the payload is dropped or accepted, and no more is held than was
/// received.
#[test]
fn x_20_no_payload_is_trusted() {
    let mut random = Seed::from_number(6).random();
    for format in formats() {
        let mut depacketizer = Depacketizer::new(format.clone()).unwrap();
        let mut given = 0;
        for first in 0..=255u8 {
            for length in 0..48usize {
                let mut payload = noise(&mut random, length);
                if let Some(head) = payload.first_mut() {
                    *head = first;
                }
                given += length;
                let timestamp = u32::try_from(random.below(3)).unwrap();
                let part = Part {
                    timestamp,
                    marker: random.chance(0.3),
                    gap: random.chance(0.1),
                    payload: &payload,
                };
                let _ = depacketizer.handle_part(&part);
                let out: usize = frames(&mut depacketizer).iter().map(|frame| frame.payload.len()).sum();
                // Each NAL unit adds a length of four bytes, and each OBU a size, so very small units take a
                // multiple of their size.
                assert!(depacketizer.pending_bytes() + out <= 8 * given + 64, "{format:?}");
            }
        }
    }
}

/// Checks a source that never ends a frame.
#[test]
fn x_20_a_frame_is_bounded() {
    let big = vec![0u8; 60_000];
    for (format, first, next) in [
        (Format::H264, &[0x7c, 0x85, 0x88][..], &[0x7c, 0x05][..]),
        (Format::H265, &[0x62, 1, 0x93, 0x80], &[0x62, 1, 0x13]),
        (Format::Vp8, &[0x10], &[0x00]),
        (Format::Vp9, &[0x08], &[0x00]),
        (Format::Av1, &[0x50, 0x30], &[0xd0]),
        (Format::Mp3, &[0, 0, 0, 0, 0xff, 0xfb, 0xe4, 0x64], &[0, 0, 1, 0]),
        (Format::Mpeg4Generic(Mpeg4Generic::AAC_HBR), &[0, 16, 0xff, 0xf8], &[0, 16, 0xff, 0xf8]),
        (latm(None, 48_000), &[0x80], &[0]),
    ] {
        let mut depacketizer = Depacketizer::new(format.clone()).unwrap();
        let mut most = 0;
        // Audio units are smaller.
        let body = if matches!(format, Format::Mpeg4Generic(_)) { &big[..3000] } else { &big };
        for n in 0..300 {
            let payload = [if n == 0 { first } else { next }, body].concat();
            let _ = depacketizer.handle_part(&Part {
                timestamp: 1,
                marker: false,
                gap: false,
                payload: &payload,
            });
            most = most.max(depacketizer.pending_bytes());
        }
        assert!(most <= FRAME_BYTES_MAX, "{format:?}: {most}");
        assert_eq!(depacketizer.pending_bytes(), 0, "{format:?}");
        assert!(depacketizer.stats().malformed > 0 && depacketizer.poll_frame().is_none(), "{format:?}");
    }
}

/// Checks specific invalid bounds of RFC 6184 and RFC 7798.
#[test]
fn x_20_bad_bounds_spoil_the_frame() {
    for (format, payload) in [
        (Format::H264, &[24, 0, 5, 0x65, 1][..]),
        (Format::H264, &[28]),
        (Format::H264, &[28, 5]),
        (Format::H264, &[25, 0, 0, 0, 1, 0x65]),
        (Format::H265, &[0x60, 1, 0, 9, 1]),
        (Format::H265, &[0x62, 1]),
        (Format::H265, &[0x62, 1, 0x13]),
        (Format::H265, &[0x64, 1, 0, 0]),
        (Format::H265, &[0x40]),
        (Format::Vp8, &[0x80]),
        (Format::Vp8, &[0x90, 0xf0, 0x80, 1, 1]),
        (Format::Vp9, &[0x88, 0x80]),
        (Format::Vp9, &[0x8a, 1, 0xf8, 0, 0]),
        (Format::Av1, &[0x80, 1]),
        (Format::Av1, &[0x10]),
        (Format::Av1, &[0x00, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        (Format::Av1, &[0x20, 5, 0x30]),
    ] {
        let mut depacketizer = Depacketizer::new(format.clone()).unwrap();
        let part = Part { timestamp: 1, marker: true, gap: false, payload };
        assert!(depacketizer.handle_part(&part).is_err(), "{format:?} {payload:?}");
        assert_eq!(
            depacketizer.stats(),
            Stats { frames: 0, dropped: 1, malformed: 1 },
            "{format:?} {payload:?}"
        );
        assert!(depacketizer.poll_frame().is_none());
    }
}

/// Checks invalid forms that cameras send. An invalid NAL unit is dropped, but its picture is not.
#[test]
fn a_nal_unit_that_means_nothing_is_left_out_of_its_picture() {
    let (set, slice): (&[u8], &[u8]) = (&[0x67, 1, 2], &[0x65, 0x88, 4, 5, 6]);
    let both = [set, slice];
    let (set265, slice265): (&[u8], &[u8]) = (&[0x42, 1, 3], &[0x26, 1, 0x80, 4, 5]);
    let both265 = [set265, slice265];
    let cat = |parts: &[&[u8]]| parts.concat();
    for (name, format, packets, wanted) in [
        ("type 0", Format::H264, vec![vec![0, 7, 7], set.to_vec(), slice.to_vec()], both),
        ("type 30", Format::H264, vec![set.to_vec(), vec![0x1e, 7], slice.to_vec()], both),
        ("type 31 with the marker", Format::H264, vec![set.to_vec(), slice.to_vec(), vec![0x1f]], both),
        ("type 55", Format::H265, vec![vec![0x6e, 1, 7], set265.to_vec(), slice265.to_vec()], both265),
        ("a size of 0", Format::H264, vec![cat(&[&[24, 0, 3], set, &[0, 0], &[0, 5], slice])], both),
        (
            "one of length 0 of H.265",
            Format::H265,
            vec![cat(&[&[0x60, 1, 0, 3], set265, &[0, 0], &[0, 5], slice265])],
            both265,
        ),
        ("zeros behind", Format::H264, vec![cat(&[&[24, 0, 3], set, &[0, 5], slice, &[0, 0]])], both),
        ("a zero behind", Format::H264, vec![cat(&[&[24, 0, 3], set, &[0, 5], slice, &[0]])], both),
        (
            "an aggregate in another",
            Format::H264,
            vec![cat(&[&[24, 0, 3], set, &[0, 2, 24, 0], &[0, 5], slice])],
            both,
        ),
        (
            "start codes in front",
            Format::H264,
            vec![cat(&[&[0, 0, 0, 1], set]), cat(&[&[0, 0, 1], slice])],
            both,
        ),
        ("start codes between", Format::H264, vec![cat(&[set, &[0, 0, 0, 1], slice])], both),
        ("a short one between", Format::H264, vec![cat(&[set, &[0, 0, 1], slice, &[0, 0, 1, 0x1e]])], both),
        ("in an aggregate", Format::H264, vec![cat(&[&[24, 0, 12], set, &[0, 0, 0, 1], slice])], both),
        ("of H.265", Format::H265, vec![cat(&[&[0, 0, 0, 1], set265, &[0, 0, 0, 1], slice265])], both265),
        (
            "no end bit before another unit",
            Format::H264,
            vec![vec![0x7c, 0x87, 1], vec![0x7c, 0x07, 2], slice.to_vec()],
            both,
        ),
        (
            "no end bits at all",
            Format::H264,
            vec![vec![0x7c, 0x87, 1], vec![0x7c, 0x07, 2], vec![0x7c, 0x85, 0x88, 4], vec![0x7c, 0x05, 5, 6]],
            both,
        ),
        (
            "a start code in fragments",
            Format::H264,
            vec![
                set.to_vec(),
                vec![0x1c, 0x80, 0, 0],
                vec![0x1c, 0x00, 1, 0x65, 0x88],
                vec![0x1c, 0x40, 4, 5, 6],
            ],
            both,
        ),
        (
            "several in fragments",
            Format::H264,
            vec![vec![0x7c, 0x87, 1, 2, 0, 0], vec![0x7c, 0x07, 0, 1, 0x65], vec![0x7c, 0x47, 0x88, 4, 5, 6]],
            both,
        ),
        (
            "a reserved one in fragments",
            Format::H264,
            vec![set.to_vec(), vec![0x7c, 0x9e, 1], vec![0x7c, 0x5e, 2], slice.to_vec()],
            both,
        ),
    ] {
        let packets: Vec<_> = packets.into_iter().map(Bytes::from).collect();
        let mut depacketizer = Depacketizer::new(format).unwrap();
        give(&mut depacketizer, &mut false, 7, &packets, None);
        let wanted = Frame::new(7, true, with_lengths(&wanted.map(<[u8]>::to_vec)).into());
        let mut got = frames(&mut depacketizer);
        let is_late = got.is_empty();
        if is_late {
            // Without end bits, a marker may be within a unit. The first time, only the next packet shows
            // that the frame has ended.
            assert_eq!(name, "no end bits at all");
            give(&mut depacketizer, &mut false, 8, &[Bytes::copy_from_slice(slice)], None);
            got = frames(&mut depacketizer);
        }
        assert_eq!(got.first(), Some(&wanted), "{name}");
        let whole = Stats { frames: if is_late { 2 } else { 1 }, dropped: 0, malformed: 0 };
        assert_eq!((depacketizer.stats(), depacketizer.pending_bytes()), (whole, 0), "{name}");
    }
    // Markers and timestamps within a fragmented unit do not end a frame.
    let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
    for (timestamp, payload) in
        [(6, &[0x7c, 0x85, 0x88][..]), (6, &[0x7c, 0x05, 4]), (7, &[0x7c, 0x45, 5, 6])]
    {
        depacketizer.handle_part(&Part { timestamp, marker: true, gap: false, payload }).unwrap();
    }
    let payload = with_lengths(&[slice.to_vec()]).into();
    assert_eq!(frames(&mut depacketizer), [Frame::new(7, true, payload)]);
    // A picture without its last fragment is dropped.
    let mut depacketizer = Depacketizer::new(Format::H264).unwrap();
    let mut gap = false;
    let packets = [vec![0x7c, 0x85, 0x88, 4], vec![0x7c, 0x45, 5, 6]].map(Bytes::from);
    give(&mut depacketizer, &mut gap, 7, &packets, Some(1));
    give(&mut depacketizer, &mut gap, 8, &[slice.to_vec().into()], None);
    let got: Vec<u32> = frames(&mut depacketizer).iter().map(|frame| frame.timestamp).collect();
    assert_eq!((got, depacketizer.stats().dropped), (vec![8], 1));
}

/// Checks AV1 RTP §4.4: a sequence header may be in its own packet, and is not yet a frame, even with the
/// marker bit.
#[test]
fn a_sequence_header_of_its_own_makes_the_next_frame_a_key_frame() {
    let mut depacketizer = Depacketizer::new(Format::Av1).unwrap();
    let packets: [(u32, &[u8]); 3] =
        [(1, &[0x10, 0x08, 0, 0, 0]), (2, &[0x10, 0x30, 0x10, 7, 7]), (3, &[0x10, 0x30, 0x10, 7, 7])];
    let mut keys = Vec::new();
    for (timestamp, payload) in packets {
        depacketizer.handle_part(&Part { timestamp, marker: true, gap: false, payload }).unwrap();
        keys.extend(depacketizer.poll_frame().map(|frame| (frame.timestamp, frame.key_frame)));
    }
    assert_eq!(keys, [(2, true), (3, false)]);
}
