use bytes::Bytes;
use fmp4::{Description, Fragment, FragmentSample, init_segment};
use media::CodecConfig;
use media::codec::{aac, vp8};

use super::*;
use crate::protocol::publisher::grant;

const VIDEO: Timescale = Timescale::new(25);
const AUDIO: Timescale = Timescale::new(48_000);

fn video(id: u32) -> Description {
    let first_unit = Bytes::from_static(&[0x10, 0x02, 0x00, 0x9d, 0x01, 0x2a, 16, 0, 16, 0]);
    Description { first_unit, ..Description::new(id, CodecConfig::Vp8(vp8::Config::default()), VIDEO) }
}

fn audio(id: u32) -> Description {
    let config = aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
    Description::new(id, CodecConfig::Aac(config), AUDIO)
}

/// A fragment of one second: 25 pictures, the first of them a key frame, then the audio of that second.
fn second(number: u32, tracks: [&Description; 2]) -> Vec<u8> {
    let sample = |duration, key_frame, byte| FragmentSample {
        duration,
        key_frame,
        composition: 0,
        payload: Bytes::from(vec![byte; 10]),
        subsamples: Vec::new(),
    };
    let pictures = (0..25).map(|n| sample(1, n == 0, 1)).collect();
    let sounds = (0..48).map(|_| sample(1000, true, 2)).collect();
    let mut fragment = Fragment::new(number + 1);
    fragment.add(tracks[0], u64::from(number) * 25, pictures);
    fragment.add(tracks[1], u64::from(number) * 48_000, sounds);
    fragment.write().unwrap().concat()
}

fn head(tracks: &[&Description]) -> Vec<u8> {
    let tracks: Vec<Description> = tracks.iter().map(|track| (*track).clone()).collect();
    init_segment(&tracks).unwrap().to_vec()
}

/// The units of a file in pieces: track and decoding time in milliseconds.
fn units(file: &[u8], cut: usize) -> Vec<(TrackId, i64)> {
    let mut depackager = Depackager::new(&grant(), 1);
    for piece in file.chunks(cut) {
        depackager.handle(0, piece).unwrap();
    }
    depackager.finish();
    let all = std::iter::from_fn(|| depackager.poll_unit());
    all.map(|(unit, tracks)| {
        let track = tracks.get(unit.track).unwrap();
        assert_eq!(track.epoch, unit.config_epoch);
        (unit.track, track.timescale.to_ms(unit.dts))
    })
    .collect()
}

#[test]
fn fragments_with_one_track_behind_the_other_become_units_in_the_order_of_time() {
    let (video, audio) = (video(1), audio(2));
    let file = [head(&[&video, &audio]), second(0, [&video, &audio]), second(1, [&video, &audio])].concat();
    for cut in [1, 7, 1000, file.len()] {
        let units = units(&file, cut);
        assert_eq!(units.len(), 2 * (25 + 48));
        assert!(units.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in order");
        let of = |id| units.iter().filter(|(track, _)| *track == id).map(|(_, ms)| *ms).collect::<Vec<_>>();
        assert_eq!((of(TrackId::VIDEO)[26], of(TrackId::AUDIO).len()), (1040, 96));
    }
}

#[test]
fn a_track_that_has_nothing_holds_the_other_up_to_a_bound() {
    let (video, audio) = (video(1), audio(2));
    let mut depackager = Depackager::new(&grant(), 1);
    depackager.handle(0, &head(&[&video, &audio])).unwrap();
    let picture = |key_frame| FragmentSample {
        duration: 1,
        key_frame,
        composition: 0,
        payload: Bytes::from_static(&[1; 10]),
        subsamples: Vec::new(),
    };
    for number in 0..60u32 {
        let mut fragment = Fragment::new(number + 1);
        fragment.add(&video, u64::from(number) * 25, (0..25).map(|n| picture(n == 0)).collect());
        depackager.handle(0, &fragment.write().unwrap().concat()).unwrap();
    }
    let count = std::iter::from_fn(|| depackager.poll_unit()).count();
    assert!((39 * 25..=41 * 25).contains(&count), "all but twenty seconds: {count}");
    assert_eq!(depackager.supply(), Supply::Frames);
}

#[test]
fn a_video_begins_with_a_key_frame_and_another_index_begins_anew() {
    let (pictures, sound) = (video(1), audio(2));
    let mut fragment = Fragment::new(1);
    let picture = |key_frame| FragmentSample {
        duration: 1,
        key_frame,
        composition: 0,
        payload: Bytes::from_static(&[1; 10]),
        subsamples: Vec::new(),
    };
    fragment.add(&pictures, 0, vec![picture(false), picture(false), picture(true), picture(false)]);
    let alone = audio(7);
    let mut last = Fragment::new(1);
    last.add(&alone, 0, vec![FragmentSample { duration: 1000, ..picture(true) }]);
    let file = [
        head(&[&pictures, &sound]),
        fragment.write().unwrap().concat(),
        head(&[&alone]),
        last.write().unwrap().concat(),
    ]
    .concat();
    let mut depackager = Depackager::new(&grant(), 1);
    depackager.handle(0, &file).unwrap();
    assert_eq!(depackager.take_dropped(), 2);
    let (first, tracks) = depackager.poll_unit().unwrap();
    assert!(first.key_frame && tracks.iter().count() == 2);
    depackager.finish();
    let (last, tracks) = std::iter::from_fn(|| depackager.poll_unit()).last().unwrap();
    assert_eq!((last.track, tracks.iter().count()), (TrackId::AUDIO, 1));
}

#[test]
fn files_beside_each_other_are_one_stream_though_one_comes_late() {
    let (pictures, sound) = (video(1), audio(1));
    let mut depackager = Depackager::new(&grant(), 2);
    let part = |number: u32, track: &Description, samples: Vec<FragmentSample>| {
        let mut fragment = Fragment::new(number + 1);
        fragment.add(track, u64::from(number) * u64::from(track.timescale.ticks()), samples);
        fragment.write().unwrap().concat()
    };
    let sample = |duration, key_frame| FragmentSample {
        duration,
        key_frame,
        composition: 0,
        payload: Bytes::from_static(&[1; 10]),
        subsamples: Vec::new(),
    };
    depackager.handle(0, &head(&[&pictures])).unwrap();
    for number in 0..3 {
        depackager.begin_segment(0).unwrap();
        depackager.handle(0, &part(number, &pictures, (0..25).map(|n| sample(1, n == 0)).collect())).unwrap();
    }
    assert!(depackager.poll_unit().is_none(), "the other file is waited for");
    depackager.handle(1, &head(&[&sound])).unwrap();
    for number in 0..3 {
        depackager.begin_segment(1).unwrap();
        depackager.handle(1, &part(number, &sound, (0..48).map(|_| sample(1000, true)).collect())).unwrap();
    }
    depackager.finish();
    let all: Vec<_> = std::iter::from_fn(|| depackager.poll_unit()).collect();
    assert_eq!(all.len(), 3 * (25 + 48));
    assert!(all.windows(2).all(|pair| pair[0].0.dts <= pair[1].0.dts));
    assert!(all.iter().all(|(_, tracks)| tracks.iter().count() == 2));
}

#[test]
fn a_file_that_is_none_says_so() {
    let mut depackager = Depackager::new(&grant(), 1);
    assert!(depackager.handle(0, b"\0\0\0\x18ftypisom\0\0\0\0isomavc1\xff\xff\xff\xffmoov").is_err());
    assert_eq!(depackager.supply(), Supply::Nothing);
}

#[test]
fn what_is_passed_over_takes_no_time_of_the_stream() {
    let (video, audio) = (video(1), audio(2));
    let seconds = (0..4).map(|number| second(number, [&video, &audio]));
    let file = [head(&[&video, &audio])].into_iter().chain(seconds).collect::<Vec<_>>().concat();
    let units = |from_ms: u64| {
        let mut grant = grant();
        grant.position = media::Position { dts_ms: 5000, started: true };
        let mut depackager = Depackager::new(&grant, 1).beginning_at(Duration::from_millis(from_ms));
        assert_eq!(depackager.skips(), from_ms > 0);
        depackager.handle(0, &file).unwrap();
        depackager.finish();
        assert_eq!((depackager.skips(), depackager.take_dropped()), (from_ms >= 4000, 0), "{from_ms}");
        let units: Vec<_> = std::iter::from_fn(|| depackager.poll_unit()).collect();
        let of = |kind| {
            units.iter().filter(|(unit, tracks)| tracks.get(unit.track).unwrap().kind() == kind).count()
        };
        let begins = units.first().map(|(unit, _)| unit.dts);
        (of(TrackKind::Video), of(TrackKind::Audio), begins)
    };
    assert_eq!(units(0), (100, 192, Some(453_600)));
    assert_eq!(units(2000), (50, 96, Some(453_600)));
    assert_eq!(units(9000), (0, 0, None));
}

#[test]
fn tracks_have_the_languages_of_the_file() {
    let (video, audio) = (video(1), Description { language: Some("deu".into()), ..audio(2) });
    let file = [head(&[&video, &audio]), second(0, [&video, &audio])].concat();
    let mut depackager = Depackager::new(&grant(), 1);
    depackager.handle(0, &file).unwrap();
    depackager.finish();
    let (_, tracks) = std::iter::from_fn(|| depackager.poll_unit()).last().unwrap();
    let told: Vec<_> = tracks.iter().map(|track| track.language.as_deref()).collect();
    assert_eq!(told, [None, Some("deu")]);
}

#[test]
fn one_of_two_videos_is_enough() {
    let (video, idle, audio) = (video(1), video(3), audio(2));
    let mut depackager = Depackager::new(&grant(), 1);
    depackager.handle(0, &head(&[&idle, &video, &audio])).unwrap();
    for number in 0..30 {
        depackager.handle(0, &second(number, [&video, &audio])).unwrap();
    }
    assert!(std::iter::from_fn(|| depackager.poll_unit()).count() > 500);
    assert_eq!(depackager.supply(), Supply::Frames);
    // Two videos that wait for a key frame.
    depackager.begin_again(0);
    assert_eq!(depackager.supply(), Supply::LacksVideo);
}
