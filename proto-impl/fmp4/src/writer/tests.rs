//! Tests with files of every codec, written and read.

use bytes::Bytes;
use media::TrackKind;
use media::codec::{Codec, CodecConfig, g711, opus, vp8};
use proptest::prelude::*;

use super::*;
use crate::testing::{audio, configs, description, read, samples, tracks, video};
use crate::{Event, Sample};

/// Returns whether the read configuration equals the written one. Configurations of Opus and FLAC without a header
/// receive one.
fn is_same(read: &CodecConfig, written: &CodecConfig) -> bool {
    match (read, written) {
        (CodecConfig::Flac(read), CodecConfig::Flac(written)) => {
            read.sample_rate == written.sample_rate && read.channels == written.channels
        }
        _ => read == written,
    }
}

#[test]
fn every_codec_comes_back() {
    for config in configs() {
        let codec = config.codec();
        for in_band in [false, true] {
            let one = Description { in_band, ..description(7, config.clone()) };
            let events = read(&init_segment(&[one]).unwrap()).unwrap();
            let [Event::Tracks { tracks, others }] = &events[..] else { panic!("{codec}: {events:?}") };
            assert!(others.is_empty() && tracks[0].id == 7 && tracks[0].shift == 0, "{codec}");
            assert!(is_same(&tracks[0].config, &config), "{codec}: {:?}", tracks[0].config);
        }
    }
}

#[test]
fn configurations_without_a_record_get_one() {
    let opus = CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap());
    let vp8 = CodecConfig::Vp8(vp8::Config::default());
    for config in [opus, vp8] {
        let init = init_segment(&[description(1, config.clone())]).unwrap();
        let read = tracks(&read(&init).unwrap()).remove(0).config;
        assert_eq!(read.codec(), config.codec());
        assert!(!read.record().is_empty());
    }
}

#[test]
fn what_mp4_has_no_place_for_is_an_error() {
    let config = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
    let refused = init_segment(&[description(1, config)]);
    assert_eq!(refused, Err(Error::Codec(Codec::G711(g711::Law::A))));
    let ac3 = CodecConfig::Ac3(media::codec::ac3::Config);
    let silent = Description::new(1, ac3, Timescale::new(48_000));
    assert!(matches!(init_segment(&[silent]), Err(Error::Config(_))));
}

#[test]
fn the_boxes_of_a_described_track() {
    let one = Description {
        media_start: 1024,
        bit_rate: Some(BitRate { buffer_bytes: 1, max: 2, average: 3_000_000 }),
        pixel_aspect: Some((4, 3)),
        colour: Some(Colour { primaries: 1, transfer: 1, matrix: 1, full_range: false }),
        ..video(1)
    };
    let init = init_segment(&[one]).unwrap();
    let has = |bytes: &[u8]| init.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(b"colrnclx\0\x01\0\x01\0\x01\0") && has(b"pasp\0\0\0\x04\0\0\0\x03") && has(b"cmfc"));
    let track = tracks(&read(&init).unwrap()).remove(0);
    assert_eq!((track.shift, track.bit_rate, track.size), (-1024, 3_000_000, Some((320, 180))));
    let both = init_segment(&[video(1), audio(2)]).unwrap();
    assert!(!both.windows(4).any(|four| four == b"cmfc"), "a CMAF track is alone");
}

#[test]
fn what_stands_before_fragments_is_passed_over() {
    let sample = FragmentSample {
        duration: 9,
        composition: 0,
        key_frame: true,
        payload: Bytes::from_static(b"x"),
        subsamples: Vec::new(),
    };
    let mut fragment = Fragment::new(1);
    assert!(fragment.is_empty());
    fragment.add(&video(1), 5, vec![sample]).add(&audio(2), 5, vec![]);
    let fragment = fragment.write().unwrap();
    assert_eq!((fragment.len(), &fragment[1][..]), (2, &b"x"[..]));
    let reference = Reference { bytes: 1, duration: 9, key_frame: true };
    let sidx =
        Sidx { track: 1, timescale: 48_000, presentation_time: 5, offset: 0, references: vec![reference] };
    let file =
        [&init_segment(&[video(1)]).unwrap()[..], &styp(), &sidx.write(), &prft(1, 7, 5), &fragment.concat()]
            .concat();
    let found = samples(&read(&file).unwrap());
    assert_eq!((found.len(), found[0].dts), (1, 5));
    assert_eq!(sidx.write().len(), 8 + 4 + 8 + 16 + 4 + 12);
}

#[test]
fn a_track_that_begins_later_is_delayed() {
    let late = Description { media_start: -4800, ..video(1) };
    let init = init_segment(std::slice::from_ref(&late)).unwrap();
    assert_eq!(tracks(&read(&init).unwrap())[0].shift, 4800);
    // In a plain file the first picture is presented directly after the delay, whatever its composition time is.
    let mut index = TrackIndex::new(late);
    index.push(&IndexSample { offset: 0, size: 1, duration: 10, composition: 480, key_frame: true });
    let file = [&file_head(&[index], 1).unwrap()[..], b"x"].concat();
    let sample = samples(&read(&file).unwrap()).remove(0);
    assert_eq!((sample.dts, sample.pts), (4800, 5280));
}

#[test]
fn a_track_of_a_stream_is_described() {
    let of = |config: CodecConfig| {
        let id = media::TrackId::nth(config.codec().kind(), 0).unwrap();
        let label = Some("nld".into());
        media::Track { language: label, ..media::Track::new(id, config, Timescale::new(90_000)) }
    };
    let one = Description::of_track(3, &of(video(1).config));
    let track = tracks(&read(&init_segment(&[one]).unwrap()).unwrap()).remove(0);
    assert_eq!((track.id, track.language.as_deref(), track.size), (3, Some("nld"), Some((320, 180))));
}

#[test]
fn payload_is_not_copied() {
    let payload = Bytes::from(vec![7; 100]);
    let sample = FragmentSample {
        duration: 9,
        composition: 0,
        key_frame: true,
        payload: payload.clone(),
        subsamples: Vec::new(),
    };
    let mut fragment = Fragment::new(1);
    fragment.add(&video(1), 0, vec![sample]);
    assert_eq!(fragment.write().unwrap()[1].as_ptr(), payload.as_ptr());
}

#[test]
fn offsets_above_four_gigabytes_are_wide() {
    let mut index = TrackIndex::new(video(1));
    let sample = |offset| IndexSample { offset, size: 4, duration: 10, composition: 0, key_frame: true };
    index.push(&sample(0));
    index.push(&sample(u64::from(u32::MAX) - 100));
    let far = moov(std::slice::from_ref(&index), 200).unwrap();
    let near = moov(std::slice::from_ref(&index), 0).unwrap();
    let has = |bytes: &[u8], kind| bytes.windows(4).any(|four| four == kind);
    assert!(has(&far, b"co64") && has(&near, b"stco") && far.len() == near.len() + 8);
    let head = file_head(&[index], 1 << 33).unwrap();
    assert!(has(&head, b"co64"));
    let reader = crate::Reader::with_moov(&far, crate::Limits::default()).unwrap();
    assert_eq!(reader.next_offset(), Some(200));
    assert_eq!(media_head(5), *b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x15");
}

/// Sample in the property tests: (duration, composition, key frame, payload).
type Made = (u32, i32, bool, Vec<u8>);

fn made() -> impl Strategy<Value = Vec<Made>> {
    let payload = proptest::collection::vec(any::<u8>(), 1..20);
    let duration = prop_oneof![Just(512u32), 0..2000u32];
    let composition = prop_oneof![Just(0i32), -2000..2000i32];
    proptest::collection::vec((duration, composition, any::<bool>(), payload), 1..30)
}

/// Returns the samples of a track as a reader should return them.
fn expected(track: &Description, begin: i64, made: &[Made]) -> Vec<Sample> {
    let is_video = track.config.codec().kind() == TrackKind::Video;
    let mut dts = begin - track.media_start;
    let samples = made.iter().map(|(duration, composition, key_frame, payload)| {
        let sample = Sample {
            track: track.id,
            dts,
            pts: dts + i64::from(*composition),
            duration: *duration,
            key_frame: is_video && *key_frame,
            payload: payload.clone().into(),
        };
        dts += i64::from(*duration);
        sample
    });
    samples.collect()
}

fn of_track(found: &[Sample], id: u32) -> Vec<Sample> {
    found.iter().filter(|sample| sample.track == id).cloned().collect()
}

proptest! {
    #[test]
    fn fragments_of_every_codec_are_read_as_they_were_written(
        which in 0usize..11,
        start in 0i64..5000,
        begin in 0u32..,
        first in made(),
        second in made(),
        sound in made(),
    ) {
        let one = Description { media_start: start, ..description(1, configs().swap_remove(which)) };
        let other = audio(2);
        let mut file = init_segment(&[one.clone(), other.clone()]).unwrap().to_vec();
        let fragment = |made: &[Made]| made.iter().map(|(duration, composition, key_frame, payload)| {
            FragmentSample {
                duration: *duration,
                composition: *composition,
                key_frame: *key_frame,
                payload: payload.clone().into(), subsamples: Vec::new() }
        }).collect::<Vec<_>>();
        let mut written = Fragment::new(1);
        written.add(&one, begin.into(), fragment(&first)).add(&other, 7, fragment(&sound));
        file.extend(written.write().unwrap().concat());
        let middle = u64::from(begin) + first.iter().map(|made| u64::from(made.0)).sum::<u64>();
        let mut written = Fragment::new(2);
        written.add(&one, middle, fragment(&second));
        file.extend(written.write().unwrap().concat());
        let found = samples(&read(&file).unwrap());
        prop_assert_eq!(of_track(&found, 1), expected(&one, begin.into(), &[first, second].concat()));
        prop_assert_eq!(of_track(&found, 2), expected(&other, 7, &sound));
    }

    #[test]
    fn plain_files_of_every_codec_are_read_as_they_were_written(
        which in 0usize..11,
        start in 0i64..5000,
        pictures in made(),
        sound in made(),
        run in 1usize..5,
    ) {
        let one = Description { media_start: start, ..description(1, configs().swap_remove(which)) };
        let mut indexes = [TrackIndex::new(one.clone()), TrackIndex::new(audio(2))];
        let mut media = Vec::new();
        let mut left = [&pictures[..], &sound[..]];
        while left.iter().any(|left| !left.is_empty()) {
            for (index, left) in indexes.iter_mut().zip(&mut left) {
                let (head, tail) = left.split_at(run.min(left.len()));
                *left = tail;
                for (duration, composition, key_frame, payload) in head {
                    let is_video = index.description.config.codec().kind() == TrackKind::Video;
                    index.push(&IndexSample {
                        offset: media.len() as u64,
                        size: u32::try_from(payload.len()).unwrap(),
                        duration: *duration,
                        composition: *composition,
                        // In a video without sync samples every sample counts as one, because the box that
                        // lists them cannot be empty.
                        key_frame: is_video && (*key_frame || index.samples() == 0),
                    });
                    media.extend_from_slice(payload);
                }
            }
        }
        let mut file = file_head(&indexes, media.len() as u64).unwrap().to_vec();
        file.extend_from_slice(&media);
        let found = samples(&read(&file).unwrap());
        let mut pictures = pictures;
        pictures[0].2 = true;
        prop_assert_eq!(of_track(&found, 1), expected(&one, 0, &pictures));
        prop_assert_eq!(of_track(&found, 2), expected(&audio(2), 0, &sound));
        // The same samples, in a file with the index after the media.
        let index = moov(&indexes, 100).unwrap();
        let reader = crate::Reader::with_moov(&index, crate::Limits::default()).unwrap();
        let (events, end) = crate::testing::events(reader, [&media[..]]);
        prop_assert_eq!((samples(&events), end), (found, Ok(())));
    }
}

#[test]
fn a_protected_track_says_how_and_where_its_subsamples_are() {
    use crate::{Protection, Subsample};
    let protection = Some(Protection { key_id: [0xa1; 16], vector: [0xb2; 16] });
    let tracks = [Description { protection, ..video(1) }, Description { protection, ..audio(2) }];
    let init = init_segment(&tracks).unwrap();
    let count = |what: &[u8]| init.windows(what.len()).filter(|window| *window == what).count();
    assert_eq!((count(b"encv"), count(b"enca"), count(b"sinf"), count(b"cbcs")), (1, 1, 2, 2));
    assert_eq!((count(b"frmaavc1"), count(b"frmamp4a")), (1, 1));
    // Fields of `tenc`: reserved, pattern, protected flag, no vectors of samples, the key, the constant
    // vector.
    for pattern in [0x19, 0] {
        let tenc = [&b"tenc\x01\0\0\0\0"[..], &[pattern, 1, 0], &[0xa1; 16], &[16], &[0xb2; 16]].concat();
        assert_eq!(count(&tenc), 1, "{pattern}");
    }
    let sample = |subsamples: Vec<Subsample>| FragmentSample {
        duration: 9,
        composition: 0,
        key_frame: true,
        payload: Bytes::from(vec![7; 40]),
        subsamples,
    };
    let part = |clear, protected| Subsample { clear, protected };
    let mut fragment = Fragment::new(1);
    let of_video = vec![sample(vec![part(8, 32)]), sample(vec![part(4, 16), part(20, 0)])];
    fragment.add(&tracks[0], 0, of_video).add(&tracks[1], 0, vec![sample(Vec::new())]);
    let head = fragment.write().unwrap().swap_remove(0);
    let at = |what: &[u8; 4]| head.windows(4).position(|window| window == what).unwrap();
    let list = [&[0, 1, 0, 8, 0, 0, 0, 32][..], &[0, 2, 0, 4, 0, 0, 0, 16, 0, 20, 0, 0, 0, 0]].concat();
    let begin = at(b"senc") + 12;
    assert_eq!(head[begin - 8..begin], [0, 0, 0, 2, 0, 0, 0, 2]);
    assert_eq!(head[begin..begin + list.len()], list);
    assert_eq!(head[at(b"saiz") + 4..][..11], [0, 0, 0, 0, 0, 0, 0, 0, 2, 8, 14]);
    let offset = u32::try_from(begin).unwrap().to_be_bytes();
    assert_eq!(head[at(b"saio") + 4..][..12], [[0; 4], [0, 0, 0, 1], offset].concat());
    assert_eq!(
        head.windows(4).filter(|window| window == b"senc").count(),
        1,
        "sound is protected as a whole"
    );
}
