use super::*;
use crate::config::AppSettings;
use crate::hub::Chosen;
use crate::types::StreamId;

mod encoders;

fn ingest() -> Depackager {
    Depackager::new(&Grant {
        stream: StreamId(1),
        position: media::Position::default(),
        epoch: 0,
        zero_ms: 0,
        settings: Arc::new(AppSettings::defaults("live").unwrap()),
        standby: false,
    })
}

fn config() -> Bytes {
    Bytes::from_static(b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68")
}

#[test]
fn frames_need_a_config_and_then_a_key_frame() {
    let mut ingest = ingest();
    let inter = Bytes::from_static(b"\x27\x01\0\0\x28\0\0\0\x01\x41");
    let key = Bytes::from_static(b"\x17\x01\0\0\x50\0\0\0\x01\x65");
    assert_eq!(ingest.video(0, &key), Outcome::Dropped);
    assert_eq!(ingest.video(0, &config()), Outcome::Taken);
    assert_eq!(ingest.video(10, &inter), Outcome::Dropped);
    let Outcome::Unit(unit) = ingest.video(20, &key) else { panic!() };
    assert_eq!((unit.dts, unit.pts, unit.key_frame, unit.config_epoch), (20, 100, true, 1));
    assert_eq!(unit.payload.as_ptr(), key[5..].as_ptr());
    let Outcome::Unit(unit) = ingest.video(53, &inter) else { panic!() };
    assert_eq!((unit.dts, unit.pts, unit.key_frame), (53, 93, false));
}

#[test]
fn an_impossible_composition_time_is_taken_for_zero() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    for body in [b"\x17\x01\x80\0\0\0\0\0\x01\x65", b"\x17\x01\x7f\xff\xff\0\0\0\x01\x65"] {
        let Outcome::Unit(unit) = ingest.video(20, &Bytes::from_static(body)) else { panic!("{body:?}") };
        assert_eq!(unit.pts, unit.dts);
    }
}

#[test]
fn m_20_bad_frames_are_dropped_and_foreign_codecs_named() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    for bad in [&b""[..], b"\x17", b"\x17\x01\0\0\0", b"\x17\x01\0\0\0\0\0\0\x09\x65"] {
        assert_eq!(ingest.video(0, &Bytes::from_static(bad)), Outcome::Bad, "{bad:?}");
    }
    assert!(matches!(ingest.video(0, &Bytes::from_static(b"\x90vvc1")), Outcome::Unsupported(_)));
    assert!(matches!(ingest.audio(0, &Bytes::from_static(b"\x6fabc")), Outcome::LeftOut(_)));
    assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11")), Outcome::Bad);
    assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\x01abc")), Outcome::Dropped);
    assert_eq!(ingest.audio(0, &Bytes::new()), Outcome::Taken);
}

#[test]
fn the_same_parameter_sets_again_are_no_new_epoch() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    assert_eq!(ingest.tracks().epoch, 2);
    ingest.video(0, &config());
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    assert_eq!(ingest.tracks().epoch, 2);
}

fn bytes(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

/// Record of x265 at 320 x 180 through ffmpeg, without its SEI.
const HVCC: &[u8] = include_bytes!("../../../../fuzz/corpus/hevc_config/x265_320x180");
const AV1C: &[u8] = include_bytes!("../../../../fuzz/corpus/av1_config/svt_320x180");
const VPCC: &[u8] = include_bytes!("../../../../fuzz/corpus/vp9_config/libvpx");
const OPUS_HEAD: &[u8] = include_bytes!("../../../../fuzz/corpus/vp9_config/opus_head");
const STREAMINFO: &[u8] = include_bytes!("../../../../fuzz/corpus/vp9_config/streaminfo");
const MP3_FRAME: &[u8] = include_bytes!("../../../../fuzz/corpus/vp9_config/mp3_frame");
const HEVC_NAL: &[u8] = b"\0\0\0\x03\x26\x01\xaf";

/// A codec as a publisher sends it: parameter sets and a (key) frame. A player that joins later is sent the same
/// bodies, except that the frame is sent in the form `given`.
struct Case {
    codec: Codec,
    start: Option<Bytes>,
    frame: Bytes,
    payload: &'static [u8],
    given: Bytes,
}

fn cases() -> Vec<Case> {
    let enhanced = |codec, four_cc: &[u8; 4], record: &[u8], payload: &'static [u8]| {
        let frame = bytes(&[b"\x91", four_cc, payload]);
        Case { codec, start: Some(bytes(&[b"\x90", four_cc, record])), given: frame.clone(), frame, payload }
    };
    let legacy = |codec, head: &[u8], payload: &'static [u8]| {
        let frame = bytes(&[head, payload]);
        Case { codec, start: None, given: frame.clone(), frame, payload }
    };
    vec![
        Case {
            codec: Codec::H265,
            start: Some(bytes(&[b"\x90hvc1", HVCC])),
            frame: bytes(&[b"\x91hvc1\0\0\x28", HEVC_NAL]),
            payload: HEVC_NAL,
            given: bytes(&[b"\x91hvc1\0\0\x28", HEVC_NAL]),
        },
        // H.265 with its older codec id, without a composition time.
        Case {
            codec: Codec::H265,
            start: Some(bytes(&[b"\x1c\0\0\0\0", HVCC])),
            frame: bytes(&[b"\x1c\x01\0\0\0", HEVC_NAL]),
            payload: HEVC_NAL,
            given: bytes(&[b"\x93hvc1", HEVC_NAL]),
        },
        // Codecs that have a legacy form are sent in the legacy form.
        Case {
            codec: Codec::H264,
            start: Some(bytes(&[b"\x90avc1", &config()[5..]])),
            frame: Bytes::from_static(b"\x93avc1\0\0\0\x01\x65"),
            payload: b"\0\0\0\x01\x65",
            given: Bytes::from_static(b"\x17\x01\0\0\0\0\0\0\x01\x65"),
        },
        Case {
            codec: Codec::Aac,
            start: Some(Bytes::from_static(b"\x90mp4a\x11\x90")),
            frame: Bytes::from_static(b"\x91mp4aabc"),
            payload: b"abc",
            given: Bytes::from_static(b"\xaf\x01abc"),
        },
        Case {
            codec: Codec::Mp3,
            start: Some(Bytes::from_static(b"\x90.mp3")),
            frame: bytes(&[b"\x91.mp3", MP3_FRAME]),
            payload: MP3_FRAME,
            given: bytes(&[b"\x2f", MP3_FRAME]),
        },
        enhanced(Codec::Av1, b"av01", AV1C, b"\x12\0\x0a\x01\0"),
        enhanced(Codec::Vp9, b"vp09", VPCC, b"\x82\x49\x83\x42"),
        enhanced(Codec::Vp8, b"vp08", b"", b"\x10\x02"),
        enhanced(Codec::Opus, b"Opus", OPUS_HEAD, b"\xfc\x01"),
        enhanced(Codec::Ac3, b"ac-3", b"", b"\x0b\x77"),
        enhanced(Codec::Eac3, b"ec-3", b"", b"\x0b\x77"),
        enhanced(Codec::Flac, b"fLaC", STREAMINFO, b"\xff\xf8"),
        legacy(Codec::Mp3, b"\x2f", MP3_FRAME),
        legacy(Codec::G711(g711::Law::A), b"\x72", b"\xd5\xd5"),
        legacy(Codec::G711(g711::Law::Mu), b"\x83", b"\xff\xff"),
    ]
}

fn feed(ingest: &mut Depackager, kind: TrackKind, timestamp: u32, body: &Bytes) -> Outcome {
    match kind {
        TrackKind::Video => ingest.video(timestamp, body),
        TrackKind::Audio => ingest.audio(timestamp, body),
        TrackKind::Data => ingest.data(timestamp, body),
    }
}

fn whole(body: &crate::protocol::flv_mapping::Body<'_>) -> Vec<u8> {
    [&body.head[..], &body.payload[..]].concat()
}

#[test]
fn every_codec_comes_in_and_goes_out() {
    for case in cases() {
        let (mut ingest, name, kind) = (ingest(), case.codec, case.codec.kind());
        if let Some(start) = &case.start {
            assert_eq!(feed(&mut ingest, kind, 0, start), Outcome::Taken, "{name}");
        }
        let Outcome::Unit(unit) = feed(&mut ingest, kind, 7, &case.frame) else { panic!("{name}") };
        assert_eq!((unit.dts, unit.key_frame), (7, kind == TrackKind::Video), "{name}");
        assert_eq!(unit.payload, case.payload, "{name}");
        let tracks = Arc::clone(ingest.tracks());
        let track = tracks.get(unit.track).unwrap().clone();
        assert_eq!((track.config.codec(), unit.config_epoch), (case.codec, tracks.epoch), "{name}");
        let chosen = Chosen::all_of(&tracks);
        let given = crate::hub::Entry::new(Instant::now(), 0, unit, tracks);
        assert_eq!(
            whole(&crate::protocol::flv_mapping::unit(&given, &chosen).unwrap()),
            case.given,
            "{name}"
        );
        // Parameter sets as this server sends them make the same track when they are ingested again.
        let start =
            crate::protocol::flv_mapping::config(&track, &chosen).map(|body| Bytes::from(whole(&body)));
        let mut second = tests::ingest();
        for body in start.iter().chain([&case.given]) {
            assert_ne!(feed(&mut second, kind, 7, body), Outcome::Bad, "{name}");
        }
        assert_eq!(second.tracks().get(track.id), Some(&track), "{name}");
    }
}

#[test]
fn picture_sizes_are_those_of_the_parameter_sets() {
    for (four_cc, record, size) in
        [(b"hvc1", HVCC, Some((320, 180))), (b"av01", AV1C, Some((320, 180))), (b"vp09", VPCC, None)]
    {
        let mut ingest = ingest();
        ingest.video(0, &bytes(&[b"\x90", four_cc, record]));
        let track = ingest.tracks().video().cloned().unwrap();
        assert_eq!(track.config.picture_size(), size);
    }
}

#[test]
fn codecs_without_records_need_none() {
    for frame in [&b"\x91Opus\xfc"[..], b"\x91ac-3\x0b\x77", b"\x91ec-3\x0b\x77"] {
        let mut ingest = ingest();
        assert!(matches!(ingest.audio(0, &Bytes::from_static(frame)), Outcome::Unit(_)), "{frame:?}");
    }
    let mut ingest = ingest();
    assert!(matches!(ingest.video(0, &Bytes::from_static(b"\x91vp08\x10")), Outcome::Unit(_)));
    // The configuration of Opus stays the header that the publisher has sent; a frame does not replace it.
    ingest.audio(0, &bytes(&[b"\x90Opus", OPUS_HEAD]));
    let epoch = ingest.tracks().epoch;
    assert!(matches!(ingest.audio(0, &Bytes::from_static(b"\x91Opus\xfc")), Outcome::Unit(_)));
    assert_eq!((ingest.tracks().epoch, ingest.tracks().audio().unwrap().config.record().len()), (epoch, 19));
    // Every frame of G.711 states its configuration. A frame that states another one begins a new epoch.
    for (frame, next) in [(b"\x72\xd5", 1), (b"\x72\xd6", 1), (b"\x73\xd5", 2)] {
        assert!(matches!(ingest.audio(0, &Bytes::copy_from_slice(frame)), Outcome::Unit(_)));
        assert_eq!(ingest.tracks().epoch, epoch + next);
    }
}

#[test]
fn another_codec_waits_for_its_own_key_frame() {
    let mut ingest = ingest();
    ingest.video(0, &config());
    assert!(matches!(
        ingest.video(0, &Bytes::from_static(b"\x17\x01\0\0\0\0\0\0\x01\x65")),
        Outcome::Unit(_)
    ));
    ingest.video(10, &bytes(&[b"\x90hvc1", HVCC]));
    assert_eq!(ingest.video(20, &Bytes::from_static(b"\x27\x01\0\0\0\0\0\0\x01\x41")), Outcome::Dropped);
    assert_eq!(ingest.video(20, &bytes(&[b"\xa3hvc1", HEVC_NAL])), Outcome::Dropped);
    assert!(matches!(ingest.video(30, &bytes(&[b"\x93hvc1", HEVC_NAL])), Outcome::Unit(_)));
}

#[test]
fn colours_and_channels_stay_with_their_tracks() {
    let mut ingest = ingest();
    let colours = |text: &[u8]| bytes(&[b"\xd4hvc1\x02\0\x09colorInfo", text]);
    assert_eq!(ingest.video(0, &colours(b"1")), Outcome::Dropped);
    ingest.video(0, &bytes(&[b"\x90hvc1", HVCC]));
    ingest.audio(0, &bytes(&[b"\x90Opus", OPUS_HEAD]));
    let channels = Bytes::from_static(b"\x94Opus\x01\x02\0\0\0\x03");
    for (body, epoch) in [(colours(b"1"), 3), (colours(b"1"), 3), (colours(b"2"), 4)] {
        assert_eq!(ingest.video(0, &body), Outcome::Taken);
        assert_eq!(ingest.tracks().epoch, epoch);
    }
    assert_eq!(ingest.audio(0, &channels), Outcome::Taken);
    let tracks = ingest.tracks();
    let chosen = Chosen::all_of(tracks);
    let given =
        |track: Option<&Track>| whole(&crate::protocol::flv_mapping::extra(track.unwrap(), &chosen).unwrap());
    assert_eq!((given(tracks.video()), given(tracks.audio())), (colours(b"2").to_vec(), channels.to_vec()));
    let huge = bytes(&[b"\xd4hvc1", &[0; METADATA_BYTES_MAX + 1]]);
    assert_eq!(ingest.video(0, &huge), Outcome::Bad);
    assert_eq!(ingest.video(0, &Bytes::from_static(b"\xd4hvc1")), Outcome::Bad);
}

#[test]
fn m_20_every_track_is_carried_and_what_cannot_be_is_counted_and_named() {
    let mut ingest = ingest();
    // As OBS sends them: track 0 plain, each other track in a message of its own. An unknown codec in a further track
    // is no reason to refuse.
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    let second = TrackId::nth(TrackKind::Audio, 1).unwrap();
    let Outcome::Unit(unit) = ingest.audio(0, &Bytes::from_static(b"\x95\x01Opus\x01ab")) else { panic!() };
    assert_eq!((unit.track, unit.payload), (second, b"ab"[..].into()));
    assert_eq!(ingest.audio(0, &Bytes::from_static(b"\x95\x01nope\x02cd")), Outcome::Taken);
    // A broken packet of a further track only counts as bad.
    assert_eq!(ingest.video(0, &Bytes::from_static(b"\x96\x01hvc1\x01")), Outcome::Bad);
    let several = ingest.audio(0, &Bytes::from_static(b"\x95\x21Opus\x01\0\0\x01xmp4a\0\0\0\x03abc"));
    let Outcome::Several(outcomes) = several else { panic!("{several:?}") };
    let payloads: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| {
            let Outcome::Unit(unit) = outcome else { panic!("{outcome:?}") };
            (unit.track, unit.payload)
        })
        .collect();
    assert_eq!(payloads, [(second, b"x"[..].into()), (TrackId::AUDIO, b"abc"[..].into())]);
    // Each track has a configuration and an epoch of its own.
    let epochs: Vec<u32> = ingest.tracks().iter().map(|track| track.epoch).collect();
    assert_eq!((epochs, ingest.tracks().epoch), (vec![1, 2], 2));
    // A track has no frame before its own key frame.
    ingest.video(0, &config());
    ingest.video(0, &Bytes::from_static(b"\x17\x01\0\0\0\0\0\0\x01\x65"));
    ingest.video(0, &bytes(&[b"\x96\x00hvc1\x01", HVCC]));
    let inter = bytes(&[b"\xa6\x03hvc1\x01", HEVC_NAL]);
    assert_eq!(ingest.video(0, &inter), Outcome::Dropped);
    let key = bytes(&[b"\x96\x03hvc1\x01", HEVC_NAL]);
    assert!(
        matches!(ingest.video(0, &key), Outcome::Unit(unit) if unit.key_frame && unit.track.index() == 1)
    );
    assert!(matches!(ingest.video(0, &inter), Outcome::Unit(unit) if !unit.key_frame));
    assert_eq!(ingest.video(0, &Bytes::from_static(b"\x96\x06hvc1\x01x")), Outcome::Bad);
}

#[test]
fn a_track_that_comes_twice_in_a_body_does_not_change_under_its_first_packet() {
    let mut ingest = ingest();
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    let several = ingest.audio(0, &Bytes::from_static(b"\x95\x21mp4a\0\0\0\x03abcOpus\0\0\0\x01x"));
    let Outcome::Several(outcomes) = several else { panic!("{several:?}") };
    let [Outcome::Unit(unit), Outcome::Bad] = &outcomes[..] else { panic!("{outcomes:?}") };
    let track = ingest.tracks().get(unit.track).unwrap();
    assert_eq!((track.config.codec(), track.epoch), (Codec::Aac, unit.config_epoch));
}

#[test]
fn m_26_tracks_per_stream_are_capped() {
    let mut ingest = ingest();
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    for id in 1..=255 {
        ingest.audio(0, &bytes(&[b"\x95\x01Opus", &[id], b"x"]));
        ingest.video(0, &bytes(&[b"\x96\x03vp08", &[id], b"\x10"]));
    }
    assert_eq!(ingest.tracks().iter().count(), media::TRACKS_MAX);
    assert_eq!(ingest.others().packets, 2 * 255 + 1 - media::TRACKS_MAX as u64);
    assert_eq!(ingest.others().seen.len(), OTHERS_MAX);
    let other = OtherTrack { kind: TrackKind::Audio, id: 8, four_cc: *b"Opus" };
    assert!(ingest.others().seen.contains(&OtherTrack { id: 9, ..other }), "{:?}", ingest.others().seen);
}

#[test]
fn metadata_names_the_tracks_whichever_comes_first() {
    use flv::amf0::Value;
    let about = |members: Vec<(&str, Value)>| {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let names = vec![("language", Value::string("de")), ("title", Value::string("Ton"))];
    let size = [("width", 640.0), ("height", 360.0), ("videodatarate", 800.0)];
    let size = size.map(|(name, number)| (name, Value::Number(number))).to_vec();
    let members = [
        ("audioTrackIdInfoMap", about(vec![("0", about(names))])),
        ("videoTrackIdInfoMap", about(vec![("0", about(size))])),
    ];
    let members = members.map(|(name, value)| (name.to_owned(), value));
    let metadata = flv::data::Data::metadata(members.to_vec()).write();
    let mut ingest = ingest();
    ingest.video(0, &config());
    ingest.data(0, &metadata);
    let rendition = ingest.tracks().video().unwrap().rendition.clone().unwrap();
    assert_eq!((rendition.width, rendition.height, rendition.bit_rate), (640, 360, 800_000));
    ingest.audio(0, &bytes(&[b"\x95\x00Opus\x00", OPUS_HEAD]));
    let track = ingest.tracks().audio().unwrap();
    assert_eq!((track.language.as_deref(), track.label.as_deref()), (Some("de"), Some("Ton")));
}

#[test]
fn m_20_bad_bodies_of_every_codec_are_dropped() {
    let mut ingest = ingest();
    ingest.video(0, &bytes(&[b"\x90hvc1", HVCC]));
    for (bad, outcome) in [
        (&b"\x93hvc1"[..], Outcome::Bad),
        (b"\x93hvc1\0\0\0\x09\x26", Outcome::Bad),
        (b"\x91hvc1\0\0", Outcome::Bad),
        (b"\x98hvc1", Outcome::Bad),
        (b"\x90hvc1\x02", Outcome::Bad),
        (b"\x90vp09", Outcome::Taken),
        (b"\xd0\x01", Outcome::Taken),
        (b"\x92hvc1", Outcome::Taken),
        (b"\x95av01\x80", Outcome::Dropped),
        (b"\x91av01\x12", Outcome::Dropped),
        // A message with nothing but a VPS.
        (b"\x93hvc1\0\0\0\x02\x40\x01", Outcome::Dropped),
    ] {
        assert_eq!(ingest.video(0, &Bytes::from_static(bad)), outcome, "{bad:?}");
    }
    for (bad, outcome) in [
        (&b"\x2fabcd"[..], Outcome::Bad),
        (b"\x91.mp3\xff", Outcome::Bad),
        (b"\x90OpusOpusHea", Outcome::Bad),
        (b"\x94Opus", Outcome::Bad),
        (b"\x91fLaC\xff", Outcome::Dropped),
        (b"\x92Opus", Outcome::Taken),
        (b"\x91Opus", Outcome::Taken),
        (b"\x72", Outcome::Taken),
    ] {
        assert_eq!(ingest.audio(0, &Bytes::from_static(bad)), outcome, "{bad:?}");
    }
    // Every truncated record is refused or accepted, without a panic.
    for (four_cc, record) in [(b"hvc1", HVCC), (b"av01", AV1C), (b"vp09", VPCC)] {
        for end in 0..record.len() {
            let outcome = ingest.video(0, &bytes(&[b"\x90", four_cc, &record[..end]]));
            assert!(matches!(outcome, Outcome::Bad | Outcome::Taken), "{outcome:?}");
        }
    }
}

#[test]
fn data_of_every_name_travels_once_media_flows() {
    let mut ingest = ingest();
    let metadata = Bytes::from_static(b"\x02\0\x0aonMetaData\x08\0\0\0\0\0\0\x09");
    assert_eq!(ingest.data(0, &flv::data::wrap(&metadata)), Outcome::Taken);
    assert_eq!(ingest.tracks().metadata, Some(metadata.clone()));
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    let named = |name: &[u8; 4]| bytes(&[b"\x02\0\x04", name, b"\x05"]);
    for body in [metadata, named(b"onFI"), named(b"text")] {
        let Outcome::Unit(unit) = ingest.data(40, &body) else { panic!("{body:?}") };
        assert_eq!((unit.track, &unit.payload), (TrackId::DATA, &body));
        let entry = crate::hub::Entry::new(Instant::now(), 0, unit, Arc::clone(ingest.tracks()));
        assert_eq!(
            whole(&crate::protocol::flv_mapping::unit(&entry, &Chosen::all_of(&entry.tracks)).unwrap()),
            body
        );
    }
}

#[test]
fn splice_information_in_script_data_stands_at_the_time_of_its_message() {
    let mut ingest = ingest();
    // The event of the example in ANSI/SCTE 35 §14.2.
    let text = "/DAvAAAAAAAA///wFAVIAACPf+/+c2nALv4AUsz1AAAAAAAKAAhDVUVJAAABNWLbowo=";
    let cue = flv::amf0::Value::object([("data", flv::amf0::Value::string(text))]);
    let body = flv::data::Data { name: "onCuePoint".to_owned(), values: vec![cue] }.write();
    assert_eq!(ingest.data(0, &body), Outcome::Taken, "nothing to stand beside");
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    let Outcome::Several(outcomes) = ingest.data(40, &body) else { panic!() };
    let [Outcome::Unit(data), Outcome::Unit(splice)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!((data.track, &data.payload), (TrackId::DATA, &body));
    assert_eq!((splice.track, splice.dts, splice.pts), (TrackId::CUES, data.dts, data.dts));
    let read = media::scte35::Splice::read(&splice.payload).unwrap();
    assert_eq!((read.events[0].id, read.events[0].duration), (0x4800_008f, Some(0x52_ccf5)));
    let entry = crate::hub::Entry::new(Instant::now(), 0, splice.clone(), Arc::clone(ingest.tracks()));
    assert!(crate::protocol::flv_mapping::unit(&entry, &Chosen::all_of(&entry.tracks)).is_none());
    // Beyond the allowed rate of splice information, the message is passed on, but makes no splice.
    let at_each_sound = (0..240).map(|n| {
        ingest.audio(40 + 5 * n, &Bytes::from_static(b"\xaf\x01sound"));
        ingest.data(40 + 5 * n, &body)
    });
    let last = at_each_sound.last();
    let Some(Outcome::Several(outcomes)) = last else { panic!() };
    assert!(matches!(&outcomes[..], [Outcome::Unit(_), Outcome::Dropped]), "{outcomes:?}");
}

#[test]
fn script_data_is_bounded_and_equal_metadata_makes_no_other_tracks() {
    let mut ingest = ingest();
    ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
    let metadata =
        |n: u8| bytes(&[b"\x02\0\x0aonMetaData\x08\0\0\0\0\0\x01", &[b'a' + n % 2], b"\x05\0\0\x09"]);
    let send = |ingest: &mut Depackager, at, n| matches!(ingest.data(at, &metadata(n)), Outcome::Unit(_));
    let kept = Arc::clone(ingest.tracks());
    let taken: usize = (0..1000).map(|_| usize::from(send(&mut ingest, 0, 0))).sum();
    assert_eq!(taken, 100, "at once");
    let with_metadata = Arc::clone(ingest.tracks());
    // One message for each picture of 60 a second, all the same.
    for picture in 1..=600 {
        let at = picture * 1000 / 60;
        ingest.audio(at, &Bytes::from_static(b"\xaf\x01sound"));
        assert!(send(&mut ingest, at, 0), "{picture}");
    }
    assert!(Arc::ptr_eq(&with_metadata, ingest.tracks()) && !Arc::ptr_eq(&kept, ingest.tracks()));
    // A flood of different ones is dropped before it changes anything.
    let taken: usize = (0..=200).map(|n| usize::from(send(&mut ingest, 10_000, n))).sum();
    assert!(taken <= 101, "{taken}");
}

#[test]
fn who_does_not_state_a_frame_type_is_asked_by_its_payload() {
    let mut ingest = ingest();
    assert_eq!(ingest.video(0, &bytes(&[b"\x80hvc1", HVCC])), Outcome::Taken);
    let frame = |nal: &[u8]| bytes(&[b"\x81hvc1\0\0\0", &[0, 0, 0, 4], nal]);
    let (inter, key) = (frame(&[1 << 1, 1, 0x80, 0]), frame(&[19 << 1, 1, 0x80, 0]));
    assert_eq!(ingest.video(0, &inter), Outcome::Dropped, "it waits for a key frame");
    for (at, body, is_key) in [(10, &key, true), (20, &inter, false), (30, &key, true)] {
        let Outcome::Unit(unit) = ingest.video(at, body) else { panic!("{at}") };
        assert_eq!((unit.dts, unit.key_frame), (i64::from(at), is_key));
    }
    // In the legacy form, a frame without a frame type is an error.
    assert_eq!(ingest.video(40, &Bytes::from_static(b"\x07\x01\0\0\0\0\0\0\x01\x65")), Outcome::Bad);
}
