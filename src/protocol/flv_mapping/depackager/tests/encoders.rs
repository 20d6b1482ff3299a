//! Encoders that deviate from the format.

use super::*;
use crate::protocol::flv_mapping::depackager::adts::tests::frame as adts_frame;
use crate::protocol::flv_mapping::depackager::sets::tests::{
    PPS, SPS, SPS_HIGH, with_lengths, with_start_codes,
};

const IDR: &[u8] = &[0x65, 0x88, 0x84, 0x21];
const INTER: &[u8] = &[0x41, 0x9a, 0x24, 0x6c];
/// 48 kHz, stereo, AAC LC.
const AAC_HEADER: &[u8] = b"\xaf\0\x11\x90";

fn units(outcome: Outcome) -> Vec<AccessUnit> {
    match outcome {
        Outcome::Unit(unit) => vec![unit],
        Outcome::Several(outcomes) => outcomes.into_iter().flat_map(units).collect(),
        Outcome::Taken | Outcome::Dropped | Outcome::Bad | Outcome::Unsupported(_) | Outcome::LeftOut(_) => {
            Vec::new()
        }
    }
}

fn audio(ingest: &mut Depackager, timestamp: u32, body: &[u8]) -> Outcome {
    ingest.audio(timestamp, &Bytes::copy_from_slice(body))
}

fn avc(ingest: &mut Depackager, timestamp: u32, head: &[u8], payload: &Bytes) -> Vec<AccessUnit> {
    units(ingest.video(timestamp, &bytes(&[head, payload])))
}

#[test]
fn audio_that_is_not_carried_is_named_once_and_leaves_the_video_alone() {
    for (body, name) in [
        (&b"\xff\x01ab"[..], "unsupported audio format 15"),
        (b"\xb6ab", "unsupported audio format 11"),
        (b"\x6fab", "unsupported audio format 6"),
        (b"\x1fab", "unsupported audio format 1"),
        (b"\x0fab", "unsupported audio format 0"),
        (b"\x91nopeab", "unsupported audio FourCC nope"),
        (b"\x95\x01nope\x00ab", "unsupported audio FourCC nope"),
    ] {
        let mut ingest = ingest();
        assert_eq!(audio(&mut ingest, 0, body), Outcome::LeftOut(name.to_owned()));
        assert_eq!(ingest.supply(), Supply::Nothing, "{name}: a stream of nothing else is of no use");
        assert_eq!(ingest.video(0, &config()), Outcome::Taken);
        assert_eq!(ingest.supply(), Supply::Announced, "{name}");
        let key = bytes(&[b"\x17\x01\0\0\0", &with_lengths(&[IDR])]);
        assert!(matches!(ingest.video(0, &key), Outcome::Unit(_)), "{name}");
        assert_eq!(audio(&mut ingest, 23, body), Outcome::Taken, "{name}: once");
        assert_eq!(ingest.supply(), Supply::Frames, "{name}");
        assert_eq!(ingest.left_out().map(|why| why.to_string()).as_deref(), Some(name));
    }
    // Supported audio may follow unsupported audio.
    let mut ingest = ingest();
    audio(&mut ingest, 0, b"\xb6ab");
    audio(&mut ingest, 0, AAC_HEADER);
    assert_eq!(units(audio(&mut ingest, 0, b"\xaf\x01abc")).len(), 1);
    // Malformed audio is a fault, not an unsupported codec.
    assert_eq!(audio(&mut ingest, 0, b"\xaf"), Outcome::Bad);
}

#[test]
fn empty_headers_of_a_copying_encoder_are_no_mistake() {
    let mut ingest = ingest();
    for header in [&b"\x17\0\0\0\0"[..], b"\x90hvc1", b"\x90av01"] {
        assert_eq!(ingest.video(0, &Bytes::copy_from_slice(header)), Outcome::Taken, "{header:?}");
    }
    for header in [&b"\xaf\0"[..], b"\x90mp4a", b"\x90fLaC"] {
        assert_eq!(audio(&mut ingest, 0, header), Outcome::Taken, "{header:?}");
    }
    assert!(ingest.tracks().is_empty());
    audio(&mut ingest, 0, AAC_HEADER);
    assert_eq!(audio(&mut ingest, 0, b"\xaf\0"), Outcome::Taken);
    assert_eq!(ingest.tracks().audio().unwrap().config.record(), &[0x11, 0x90][..]);
    assert_eq!(audio(&mut ingest, 0, b"\xaf\0\x11"), Outcome::Bad, "cut, and not empty");
}

#[test]
fn aac_in_adts_is_split_into_raw_frames_with_or_without_a_header() {
    let several = [b"\xaf\x01", &adts_frame(b"abc")[..], &adts_frame(b"de"), &adts_frame(b"f")].concat();
    let raw = |ingest: &mut Depackager, at: u32, body: &[u8]| -> Vec<(i64, Bytes)> {
        units(audio(ingest, at, body)).into_iter().map(|unit| (unit.dts, unit.payload)).collect()
    };
    for header in [None, Some(AAC_HEADER)] {
        let mut ingest = ingest();
        if let Some(header) = header {
            audio(&mut ingest, 0, header);
        }
        let frames = [(10, b"abc"[..].into()), (31, b"de"[..].into()), (52, b"f"[..].into())];
        assert_eq!(raw(&mut ingest, 10, &several), frames);
        assert_eq!(
            raw(&mut ingest, 74, &[b"\xaf\x01", &adts_frame(b"g")[..]].concat()),
            [(74, b"g"[..].into())]
        );
        let track = ingest.tracks().audio().unwrap();
        assert_eq!((track.config.record(), track.epoch), (&Bytes::from_static(&[0x11, 0x90]), 1));
        // A truncated ADTS frame is bad; the complete frames before it are not.
        let cut = [&several[..], &adts_frame(b"xyz")[..8]].concat();
        let Outcome::Several(outcomes) = audio(&mut ingest, 100, &cut) else { panic!() };
        assert!(matches!(outcomes[..], [Outcome::Unit(_), Outcome::Unit(_), Outcome::Unit(_), Outcome::Bad]));
        assert_eq!(audio(&mut ingest, 200, &[b"\xaf\x01", &adts_frame(b"xyz")[..9]].concat()), Outcome::Bad);
    }
    // ADTS in the enhanced form.
    let mut ingest = ingest();
    assert_eq!(raw(&mut ingest, 0, &[b"\x91mp4a", &adts_frame(b"a")[..]].concat()), [(0, b"a"[..].into())]);
}

#[test]
fn adts_heads_are_the_configuration_until_a_header_comes() {
    let mut mono = adts_frame(b"a");
    mono[3] = mono[3] & 0x3f | 0x40;
    let [stereo, mono] = [adts_frame(b"a"), mono].map(|frame| [b"\xaf\x01", &frame[..]].concat());
    let mut none = stereo.clone();
    none[5] &= 0x3f;
    let mut ingest = ingest();
    let mut after = |body: &[u8]| {
        let outcome = audio(&mut ingest, 0, body);
        let record = ingest.tracks().audio().map(|track| track.config.record().to_vec());
        (outcome == Outcome::Bad, record.unwrap_or_default(), ingest.tracks().epoch)
    };
    assert_eq!(after(&none), (true, vec![], 0), "channels that only the frame tells");
    assert_eq!(after(&stereo), (false, vec![0x11, 0x90], 1));
    assert_eq!(after(&stereo), (false, vec![0x11, 0x90], 1));
    assert_eq!(after(&mono), (false, vec![0x11, 0x88], 2));
    assert_eq!(after(b"\xaf\0\x11"), (true, vec![0x11, 0x88], 2), "a header that is none");
    assert_eq!(after(&stereo), (false, vec![0x11, 0x90], 3));
    // A record of HE-AAC. ADTS heads describe only its AAC core, so later heads do not replace the record.
    assert_eq!(after(b"\xaf\0\x2b\x11\x88"), (false, vec![0x2b, 0x11, 0x88], 4));
    assert_eq!(after(&stereo), (false, vec![0x2b, 0x11, 0x88], 4));
}

#[test]
fn avc_without_a_header_takes_its_parameter_sets_from_the_band() {
    let code = &[0, 0, 0, 1];
    for (name, first, key, inter) in [
        ("start codes", None, with_start_codes(code, &[SPS, PPS, IDR]), with_start_codes(code, &[INTER])),
        ("lengths", None, with_lengths(&[SPS, PPS, IDR]), with_lengths(&[INTER])),
        ("sets first", Some(with_lengths(&[SPS, PPS])), with_lengths(&[IDR]), with_lengths(&[INTER])),
    ] {
        let mut ingest = ingest();
        assert_eq!(avc(&mut ingest, 0, b"\x27\x01\0\0\0", &inter), [], "{name}");
        if let Some(first) = first {
            assert_eq!(avc(&mut ingest, 0, b"\x17\x01\0\0\0", &first), [], "{name}");
        }
        let [unit] = &avc(&mut ingest, 40, b"\x17\x01\0\0\0", &key)[..] else { panic!("{name}") };
        let track = ingest.tracks().video().unwrap();
        assert_eq!((track.picture_size(), track.epoch), (Some((640, 360)), 1), "{name}");
        assert_eq!((unit.key_frame, unit.config_epoch, unit.dts), (true, 1, 40), "{name}");
        assert!(unit.payload.ends_with(&with_lengths(&[IDR])), "{name}");
        let [unit] = &avc(&mut ingest, 80, b"\x27\x01\0\0\0", &inter)[..] else { panic!("{name}") };
        assert_eq!(unit.payload, with_lengths(&[INTER]), "{name}");
    }
    // A header that has start codes instead of a record.
    let mut ingest = ingest();
    let header = bytes(&[b"\x17\0\0\0\0", &with_start_codes(code, &[SPS, PPS])]);
    assert_eq!(ingest.video(0, &header), Outcome::Taken);
    assert_eq!(avc(&mut ingest, 0, b"\x17\x01\0\0\0", &with_start_codes(code, &[IDR])).len(), 1);
}

#[test]
fn hevc_without_a_header_takes_its_parameter_sets_from_the_band() {
    let config = media::codec::h265::Config::read(Bytes::from_static(HVCC)).unwrap();
    let picture: &[u8] = &[0x26, 0x01, 0xaf, 0x08];
    let nals: Vec<&[u8]> = config.parameter_sets().chain([picture]).collect();
    for head in [&b"\x93hvc1"[..], b"\x1c\x01\0\0\0"] {
        for key in [with_lengths(&nals), with_start_codes(&[0, 0, 0, 1], &nals)] {
            let mut ingest = ingest();
            assert_eq!(avc(&mut ingest, 0, head, &key).len(), 1);
            assert_eq!(ingest.tracks().video().unwrap().picture_size(), Some((320, 180)));
        }
    }
}

#[test]
fn sets_that_change_in_band_begin_an_epoch() {
    let record = media::codec::h264::Config::of_sets(&[SPS], &[PPS]).unwrap().record;
    let mut ingest = ingest();
    ingest.video(0, &bytes(&[b"\x17\0\0\0\0", &record]));
    for (nals, epoch) in [
        (&[SPS, PPS, IDR][..], 1),
        (&[IDR], 1),
        (&[SPS_HIGH, PPS, IDR], 2),
        (&[SPS_HIGH, PPS, IDR], 2),
        (&[SPS, PPS, IDR], 3),
    ] {
        let [unit] = &avc(&mut ingest, 0, b"\x17\x01\0\0\0", &with_lengths(nals))[..] else { panic!() };
        let track = ingest.tracks().video().unwrap();
        assert_eq!((unit.config_epoch, track.epoch), (epoch, epoch), "{nals:x?}");
        let CodecConfig::H264(config) = &track.config else { panic!() };
        let known = if epoch == 2 { SPS_HIGH } else { SPS };
        assert_eq!(config.parameter_sets().collect::<Vec<_>>(), [known, PPS]);
    }
    // The record that was sent first now matches the in-band sets.
    assert_eq!(ingest.video(0, &bytes(&[b"\x17\0\0\0\0", &record])), Outcome::Taken);
    assert_eq!(ingest.tracks().epoch, 3);
}

#[test]
fn a_codec_that_comes_back_without_a_header_is_configured_again() {
    let record = media::codec::h265::Config::read(Bytes::from_static(HVCC)).unwrap();
    let hevc: Vec<&[u8]> = record.parameter_sets().chain([HEVC_NAL.get(4..).unwrap()]).collect();
    let mut ingest = ingest();
    let h264 = (Codec::H264, &b"\x17\x01\0\0\0"[..], &[SPS, PPS, IDR][..]);
    let h265 = (Codec::H265, &b"\x93hvc1"[..], &hevc[..]);
    for (n, (codec, head, nals)) in (1..).zip([h264, h265, h264]) {
        assert_eq!(avc(&mut ingest, 0, head, &with_lengths(nals)).len(), 1, "{codec}");
        let track = ingest.tracks().video().unwrap();
        assert_eq!((track.config.codec(), track.epoch), (codec, n));
    }
}

#[test]
fn a_stray_frame_of_another_codec_forgets_no_sets() {
    let record = media::codec::h264::Config::of_sets(&[SPS], &[PPS]).unwrap().record;
    let mut short = record.to_vec();
    short[4] = 0xfd;
    let mut ingest = ingest();
    ingest.video(0, &bytes(&[b"\x17\0\0\0\0", &short]));
    let track = ingest.tracks().video().unwrap();
    assert_eq!(track.config.record(), &record, "units have lengths of four bytes");
    let key = [&[0, 4][..], IDR].concat().into();
    assert_eq!(avc(&mut ingest, 0, b"\x17\x01\0\0\0", &key)[0].payload, with_lengths(&[IDR]));
    assert_eq!(ingest.video(0, &bytes(&[b"\x93hvc1", HEVC_NAL])), Outcome::Dropped);
    assert_eq!(avc(&mut ingest, 0, b"\x17\x01\0\0\0", &key)[0].payload, with_lengths(&[IDR]));
    assert_eq!(ingest.tracks().epoch, 1);
}

#[test]
fn negative_composition_times_keep_their_differences_and_audio_stays_in_step() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    audio(&mut ingest, 0, AAC_HEADER);
    let pyramid = [0, 120, 0, -80, -40, 120, 0, -80, -40];
    let mut shown = Vec::new();
    for (n, composition) in (0u32..).zip(pyramid) {
        let [_, a, b, c] = i32::to_be_bytes(composition);
        let frame = bytes(&[&[if n == 0 { 0x17 } else { 0x27 }, 1, a, b, c], &with_lengths(&[IDR])]);
        let Outcome::Unit(unit) = ingest.video(40 * n, &frame) else { panic!("{n}") };
        assert!(unit.pts >= unit.dts, "{n}");
        shown.push(unit.pts);
        let [unit] = &units(audio(&mut ingest, 40 * n, b"\xaf\x01abc"))[..] else { panic!("{n}") };
        assert_eq!((unit.dts, unit.pts), (i64::from(40 * n), i64::from(40 * n)));
    }
    assert_eq!(shown[4..], [120, 320, 240, 200, 280]);
}
