//! Tests with files of ffmpeg and with different splits of their bytes.

mod hostile;
mod tables;

use super::*;
use crate::testing::{FRAGMENTED, HYBRID, MEDIA_FIRST, PLAIN, events, fault, read, samples, tracks};

/// Expected sample: track, pts, dts, bytes, key frame.
type Row = (u32, i64, i64, usize, bool);

fn rows(samples: &[Sample], track: u32) -> Vec<Row> {
    let of_track = samples.iter().filter(|sample| sample.track == track);
    of_track
        .map(|sample| (sample.track, sample.pts, sample.dts, sample.payload.len(), sample.key_frame))
        .collect()
}

/// Expected video samples of both files, from ffprobe: B pictures, and an edit list that advances
/// all times by one frame.
const VIDEO: [Row; 10] = [
    (1, 0, -512, 2187, true),
    (1, 1024, 0, 9, false),
    (1, 512, 512, 10, false),
    (1, 2048, 1024, 89, false),
    (1, 1536, 1536, 10, false),
    (1, 2560, 2048, 1599, true),
    (1, 3584, 2560, 48, false),
    (1, 3072, 3072, 25, false),
    (1, 4608, 3584, 58, false),
    (1, 4096, 4096, 19, false),
];

#[test]
fn a_fragmented_file_of_ffmpeg() {
    let events = read(FRAGMENTED).unwrap();
    let samples = samples(&events);
    assert_eq!(rows(&samples, 1), VIDEO);
    let aac = [153, 161, 61, 70, 77, 69, 78, 107, 78, 89, 93, 115, 85, 92, 112, 79, 66, 136, 5]
        .into_iter()
        .zip(-1..);
    let aac: Vec<Row> = aac.map(|(bytes, n)| (2, n * 1024, n * 1024, bytes, false)).collect();
    assert_eq!(rows(&samples, 2), aac);
    assert!(
        samples.iter().all(|sample| sample.track == 1 || sample.duration == 1024 || sample.dts == 17_408)
    );
    let tracks = tracks(&events);
    let [video, audio] = &tracks[..] else { panic!("{tracks:?}") };
    assert_eq!(
        (video.id, video.timescale.ticks(), video.shift, video.size),
        (1, 12_800, -512, Some((64, 48)))
    );
    assert_eq!(video.config.picture_size(), Some((64, 48)));
    assert_eq!((audio.timescale.ticks(), audio.shift, audio.bit_rate), (44_100, -1024, 32_000));
    assert_eq!((video.language.as_deref(), audio.language.as_deref()), (None, Some("deu")));
    assert_eq!(audio.config.samples_of(&[]), Some((1024, 44_100)));
}

#[test]
fn a_plain_file_of_ffmpeg_is_read_in_the_order_of_its_chunks() {
    let events = read(PLAIN).unwrap();
    let samples = samples(&events);
    assert_eq!(rows(&samples, 1), VIDEO);
    let opus = rows(&samples, 2);
    assert_eq!(
        (opus.len(), opus[0], opus[20]),
        (21, (2, -312, -312, 115, false), (2, 18_888, 18_888, 157, false))
    );
    assert!(samples.iter().map(|sample| sample.track).take(5).eq([1, 2, 1, 2, 2]));
    // Every byte of the payload is that of the file.
    let media = samples.iter().map(|sample| &sample.payload[..]).collect::<Vec<_>>().concat();
    assert!(PLAIN.ends_with(&media));
}

#[test]
fn tables_and_fragments_in_one_file() {
    let of = |file| samples(&read(file).unwrap());
    let (plain, hybrid) = (of(PLAIN), of(HYBRID));
    // The index at the start of the file was written before the edit list was known.
    let moved = |(track, pts, dts, bytes, key): Row| (track, pts + 512, dts + 512, bytes, key);
    assert_eq!(rows(&hybrid, 1), VIDEO.map(moved));
    let sound = |of: &[Sample]| {
        of.iter().filter(|one| one.track == 2).map(|one| one.payload.clone()).collect::<Vec<_>>()
    };
    assert_eq!(sound(&plain), sound(&hybrid));
}

#[test]
fn media_before_its_index_is_read_with_the_index_ahead() {
    let Error::MediaBeforeIndex { index_at } = fault(MEDIA_FIRST) else { panic!() };
    let at = usize::try_from(index_at).unwrap();
    assert_eq!(&MEDIA_FIRST[at + 4..at + 8], b"moov");
    let moov = &MEDIA_FIRST[at..];
    let reader = || Reader::with_moov(moov, Limits::default()).unwrap();
    let first = usize::try_from(reader().next_offset().unwrap()).unwrap();
    let (all, end) = events(reader(), [&MEDIA_FIRST[first..]]);
    assert_eq!((samples(&all), end), (samples(&read(PLAIN).unwrap()), Ok(())));
    assert_eq!(tracks(&all), tracks(&read(PLAIN).unwrap()));
    // The media is fetched in two requests; the first one ends within a sample.
    let mut reader = reader();
    let mut found = Vec::new();
    let mut input = &MEDIA_FIRST[first..first + 3000];
    while let Some(event) = reader.read(&mut input).unwrap() {
        found.push(event);
    }
    let next = reader.next_offset().unwrap();
    assert_eq!(next, first as u64 + 3000);
    reader.seek(next - 20);
    assert!(matches!(reader.finish(), Err(Error::Unfinished { .. })));
    let next = reader.next_offset().unwrap();
    reader.seek(next);
    let mut input = &MEDIA_FIRST[usize::try_from(next).unwrap()..];
    while let Some(event) = reader.read(&mut input).unwrap() {
        found.push(event);
    }
    assert_eq!((found, reader.next_offset(), reader.finish()), (all, None, Ok(())));
    for end in 0..moov.len() {
        assert!(Reader::with_moov(&moov[..end], Limits::default()).is_err(), "cut at {end}");
    }
}

#[test]
fn any_split_gives_the_same() {
    for file in [FRAGMENTED, PLAIN, HYBRID] {
        let whole = read(file).unwrap();
        for size in [1, 2, 3, 7, 100, 1000] {
            let (found, end) = events(Reader::new(Limits::default()), file.chunks(size));
            assert!(end == Ok(()) && found == whole, "pieces of {size}");
        }
        for at in 0..file.len() {
            let (head, tail) = file.split_at(at);
            let (found, end) = events(Reader::new(Limits::default()), [head, tail]);
            assert!(end == Ok(()) && found == whole, "cut at {at}");
        }
    }
}

#[test]
fn another_init_segment_begins_new_tracks() {
    let mut file = FRAGMENTED.to_vec();
    let first = read(&file).unwrap();
    file.extend_from_slice(FRAGMENTED);
    let all = read(&file).unwrap();
    assert_eq!(all.len(), 2 * first.len());
    assert!(all.chunks(first.len()).all(|half| half == first));
}

#[test]
fn segments_are_read_one_after_the_other() {
    // Cuts the file into the init segment, and each `moof` with its `mdat`.
    let mut cuts: Vec<usize> = (4..FRAGMENTED.len() - 4)
        .filter(|at| &FRAGMENTED[*at..*at + 4] == b"moof")
        .map(|at| at - 4)
        .collect();
    cuts.push(FRAGMENTED.len());
    let mut reader = Reader::new(Limits::default());
    let (mut from, mut found) = (0, Vec::new());
    for to in cuts {
        let mut input = &FRAGMENTED[from..to];
        while let Some(event) = reader.read(&mut input).unwrap() {
            found.push(event);
        }
        reader.begin_segment().unwrap();
        from = to;
    }
    assert_eq!(found, read(FRAGMENTED).unwrap());
    // A segment that is incomplete is refused.
    let mut input = &FRAGMENTED[..FRAGMENTED.len() / 2];
    while reader.read(&mut input).unwrap().is_some() {}
    assert!(matches!(reader.begin_segment(), Err(Error::Unfinished { .. })));
}
