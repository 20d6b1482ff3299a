//! Splice information of publishers and for viewers.

use media::message::Message;
use media::{id3, scte35};

use super::*;
use crate::hub::Pick;

/// A publisher of audio and splice information: its muxer, a frame, and the depackager that gets its bytes.
fn publisher() -> (Muxer, Vec<u8>, Depackager) {
    let mut muxer = Muxer::new();
    let streams = [(Kind::Audio, StreamKind::AacAdts), (Kind::Splice, StreamKind::Splice)];
    muxer.set_program(streams.map(|(kind, stream)| (mpegts::StreamNumber::first(kind), stream)));
    let CodecConfig::Aac(config) = aac_config() else { panic!() };
    let frame = [&config.adts(4).unwrap()[..], b"tone"].concat();
    (muxer, frame, ingest())
}

/// Sends these sections two seconds into a stream whose publisher's clock begins at `zero`. Returns DTS, PTS and
/// splice time of each unit.
fn spliced(zero: u64, sections: &[Bytes]) -> Vec<(i64, i64, Option<u64>)> {
    let (mut muxer, frame, mut ingest) = publisher();
    for n in 0..94 {
        let pts = (zero + n * 1920) & CLOCK_MASK;
        let audio =
            Unit { kind: Kind::Audio, number: 0, pts, dts: pts, random_access: true, payload: &[&frame] };
        ingest.handle(&muxer.write(&audio));
    }
    sections.iter().for_each(|section| ingest.handle(&muxer.write_section(section)));
    let units = units(&mut ingest).into_iter().filter(|unit| unit.track == TrackId::CUES);
    let splice = |unit: AccessUnit| (unit.dts, unit.pts, scte35::Splice::read(&unit.payload).unwrap().pts);
    units.map(splice).collect()
}

#[test]
fn splices_get_the_times_of_the_stream_over_a_wrapped_clock_too() {
    let out = scte35::insert(7, scte35::Kind::Out, None);
    let null = Bytes::from_static(&[
        0xfc, 0x30, 0x11, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xf0, 0, 0, 0, 0, 0x7a, 0x4f, 0xbf, 0xff,
    ]);
    assert!(scte35::is_section(&null));
    for zero in [ZERO, 5_000_000, (1 << 33) - 90_000] {
        let at = |seconds: u64| scte35::moved_to(&out, (zero + seconds * 90_000) & CLOCK_MASK).unwrap();
        // Splices at 5 s and at 4000 s of the stream, one at 1 s, which is over, an immediate one, and a null
        // command.
        let immediate = scte35::insert(7, scte35::Kind::Cancel, None);
        let units = spliced(zero, &[at(5), at(4000), at(1), immediate, null.clone()]);
        let now = units[0].0;
        assert!((1_900..=2_000).contains(&now), "{now}");
        let times = [(now, 5_000), (now, 4_000_000), (now, now), (now, now)];
        assert_eq!(units.iter().map(|unit| (unit.0, unit.1)).collect::<Vec<_>>(), times, "{zero}");
        // Section times are those of this server's transport streams.
        let shown = |seconds: u64| Some(ZERO + seconds * 90_000);
        let own: Vec<_> = units.iter().map(|unit| unit.2).collect();
        assert_eq!(own, [shown(5), shown(4000), shown(1), None], "{zero}");
    }
}

#[test]
fn splices_before_the_first_unit_are_dropped() {
    let mut muxer = Muxer::new();
    let streams = [(Kind::Audio, StreamKind::AacAdts), (Kind::Splice, StreamKind::Splice)];
    muxer.set_program(streams.map(|(kind, stream)| (mpegts::StreamNumber::first(kind), stream)));
    let mut ingest = ingest();
    ingest.handle(&muxer.tables());
    let _ = muxer.write(&Unit {
        kind: Kind::Audio,
        number: 0,
        pts: 0,
        dts: 0,
        random_access: true,
        payload: &[],
    });
    let section = muxer.write_section(&scte35::insert(7, scte35::Kind::Out, None));
    assert!(!section.is_empty());
    ingest.handle(&section);
    assert_eq!((units(&mut ingest), ingest.stats().dropped), (Vec::new(), 1));
}

#[test]
fn viewers_are_sent_splices_at_the_times_of_their_own_clock() {
    let tracks = tracks(1, TICKS, None, Some(aac_config()));
    let frame = |dts| unit(TrackId::AUDIO, dts, dts, false, &Bytes::from_static(b"tone"));
    let selection = Selection { data: Pick::Only(TrackId::CUES), ..Selection::DEFAULT };
    let key = FormatKey { selection, ..FormatKey::new("ts", 0) };
    let mut out = Packager::new(key, Some(Box::new(TsPackage::at_once())), &Arc::default(), 0);
    let mut bytes = package(&mut out, &tracks, frame(0));
    let payload = scte35::insert(7, scte35::Kind::Out, Some(900_000));
    let splice = AccessUnit { pts: 6_000, payload, ..unit(TrackId::CUES, 20, 20, false, &Bytes::new()) };
    bytes.extend(package(&mut out, &tracks, splice));
    bytes.extend(package(&mut out, &tracks, frame(1920)));
    let mut demuxer = Demuxer::new();
    let mut input = &bytes[..];
    let events = std::iter::from_fn(|| demuxer.read(&mut input));
    let splices = events.filter_map(|event| if let Event::Splice(one) = event { Some(one) } else { None });
    let times: Vec<_> = splices.map(|section| scte35::Splice::read(&section).unwrap().pts).collect();
    assert_eq!(times, [Some(ZERO + 540_000)]);
}

#[test]
fn viewers_are_sent_tags_and_timed_messages_as_a_stream_of_their_own() {
    let tracks = tracks(1, TICKS, None, Some(aac_config()));
    let frame = |dts| unit(TrackId::AUDIO, dts, dts, false, &Bytes::from_static(b"tone"));
    let key = FormatKey {
        selection: Selection { data: Pick::All, ..Selection::DEFAULT },
        ..FormatKey::new("ts", 0)
    };
    let mut out = Packager::new(key, Some(Box::new(TsPackage::live())), &Arc::default(), 0);
    let message = |is_timed, text: &'static str| Message {
        is_text: true,
        is_timed,
        payload: Bytes::from_static(text.as_bytes()),
    };
    let tag = id3::text("", "of the API").unwrap();
    let data = [
        (TrackId::METADATA, 40, tag.clone()),
        (TrackId::MESSAGES, 50, message(true, "timed").write()),
        (TrackId::MESSAGES, 60, message(false, "for data channels").write()),
        (TrackId::MESSAGES, 70, Bytes::from_static(b"\xffnonsense")),
    ];
    let mut bytes = package(&mut out, &tracks, frame(0));
    for (track, ms, payload) in data {
        bytes.extend(package(&mut out, &tracks, unit(track, ms, ms, false, &payload)));
    }
    let (mut demuxer, mut input) = (Demuxer::new(), &bytes[..]);
    let events = std::iter::from_fn(|| demuxer.read(&mut input));
    let tags = events.filter_map(|event| match event {
        Event::Pes(pes) if pes.stream.kind == StreamKind::Id3 => Some((pes.pts, pes.payload)),
        Event::Pes(_) | Event::Program(_) | Event::Splice(_) => None,
    });
    let at = |ms: u64| Some(ZERO + ms * 90);
    assert_eq!(tags.collect::<Vec<_>>(), [(at(40), tag), (at(50), message(true, "timed").tag().unwrap())]);
}

#[test]
fn t_17_a_flood_of_splices_is_cut_to_its_rate_and_counted() {
    let sections = vec![scte35::insert(7, scte35::Kind::Out, None); 1000];
    assert_eq!(spliced(ZERO, &sections).len(), 100);
    let (mut muxer, frame, mut ingest) = publisher();
    let mut taken = 0;
    // Five seconds with twenty sections for each frame.
    for n in 0..235 {
        let pts = ZERO + n * 1920;
        let audio =
            Unit { kind: Kind::Audio, number: 0, pts, dts: pts, random_access: true, payload: &[&frame] };
        ingest.handle(&muxer.write(&audio));
        sections.iter().take(20).for_each(|section| ingest.handle(&muxer.write_section(section)));
        taken += units(&mut ingest).into_iter().filter(|unit| unit.track == TrackId::CUES).count();
    }
    assert!((340..=360).contains(&taken), "{taken}");
    let all = ingest.stats().dropped + u64::try_from(taken).unwrap();
    assert!((235 * 20 - 20..=235 * 20).contains(&all), "the rest is counted: {all}");
}
