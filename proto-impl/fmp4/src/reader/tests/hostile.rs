//! Tests of hostile files and of the limits.

use super::super::*;
use crate::boxes::FourCc;
use crate::testing::{FRAGMENTED, HYBRID, MEDIA_FIRST, PLAIN, audio, events, fault, read, samples, video};
use crate::writer::out::Out;
use crate::{Fragment, FragmentSample, IndexSample, TrackIndex, file_head, init_segment};

/// Reads a file, whatever the result, and checks that the held bytes are limited.
fn read_bounded(file: &[u8]) {
    let mut reader = Reader::new(Limits::default());
    let mut input = file;
    let mut bytes = 0;
    while let Ok(Some(event)) = reader.read(&mut input) {
        assert!(reader.held_bytes() <= 2 * file.len() + 64);
        if let Event::Sample(sample) = event {
            bytes += sample.payload.len();
        }
    }
    assert!(bytes <= file.len());
    let _ = reader.finish();
}

#[test]
fn every_truncation_ends_without_harm() {
    for file in [FRAGMENTED, PLAIN, HYBRID, MEDIA_FIRST] {
        for end in 0..file.len() {
            read_bounded(&file[..end]);
        }
    }
    // The reader detects that the file was cut within its last sample.
    let (_, end) = events(Reader::new(Limits::default()), [&PLAIN[..PLAIN.len() - 1]]);
    assert_eq!(end, Err(Error::Unfinished { position: PLAIN.len() as u64 - 1 }));
}

#[test]
fn every_byte_may_be_wrong() {
    for file in [FRAGMENTED, PLAIN] {
        for at in 0..file.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut file = file.to_vec();
                file[at] ^= flip;
                read_bounded(&file);
            }
        }
    }
}

/// Makes a plain file of a single track with three samples.
fn plain() -> Vec<u8> {
    let mut index = TrackIndex::new(video(1));
    for n in 0..3u64 {
        let sample = IndexSample { offset: n * 4, size: 4, duration: 10, composition: 0, key_frame: n == 0 };
        index.push(&sample);
    }
    let mut file = file_head(&[index], 12).unwrap().to_vec();
    file.extend_from_slice(b"aaaabbbbcccc");
    file
}

/// Position of the payload of the first box of a kind.
fn payload_of(file: &[u8], kind: &[u8; 4]) -> usize {
    file.windows(4).position(|four| four == kind).unwrap() + 4
}

/// Replaces bytes of the file, `at` bytes after the header of the box of this kind.
fn with(file: &[u8], kind: &[u8; 4], at: usize, bytes: &[u8]) -> Vec<u8> {
    let at = payload_of(file, kind) + at;
    let mut file = file.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn tables_do_not_hold_what_they_claim() {
    let file = plain();
    assert_eq!(samples(&read(&file).unwrap()).len(), 3);
    const MANY: [u8; 4] = 1_000_000_000u32.to_be_bytes();
    for (kind, at) in [(b"stts", 4), (b"stsc", 4), (b"stco", 4), (b"stss", 4)] {
        let claimed = with(&file, kind, at, &MANY);
        assert!(matches!(fault(&claimed), Error::Truncated { kind: of, .. } if of.0 == *kind));
    }
    // The file's `stsz` has one size for all samples. Set to 0, it needs a table, which is missing. With a
    // huge count, reading stops at the end of the file.
    let sizes = with(&file, b"stsz", 4, &[0; 4]);
    assert!(matches!(fault(&sizes), Error::Truncated { kind, .. } if kind.0 == *b"stsz"));
    let many = with(&with(&file, b"stsz", 8, &MANY), b"stsc", 12, &MANY);
    assert_eq!(fault(&many), Error::Unfinished { position: file.len() as u64 });
}

#[test]
fn fields_with_impossible_values() {
    let file = plain();
    assert_eq!(fault(&with(&file, b"mdhd", 12, &[0; 4])), Error::Invalid("timescale"));
    assert_eq!(fault(&with(&file, b"tkhd", 12, &[0; 4])), Error::Invalid("track_ID"));
    assert_eq!(fault(&with(&file, b"stsc", 12, &[0; 4])), Error::Invalid("samples_per_chunk"));
    assert!(matches!(fault(&with(&file, b"stsc", 16, &[0, 0, 0, 2])), Error::Unsupported(_)));
    assert!(matches!(fault(&with(&file, b"stco", 8, &[0; 4])), Error::Passed { offset: 0, .. }));
    assert!(matches!(fault(&with(&file, b"stco", 8, &[0xff; 4])), Error::Unfinished { .. }));
    let large = with(&file, b"stsz", 4, &[0xff; 4]);
    assert_eq!(fault(&large), Error::SampleTooLarge { size: u32::MAX });
    let outside = with(&file, b"stsz", 4, &[0, 0, 0, 5]);
    assert!(matches!(fault(&outside), Error::Outside { size: 5, .. }));
    // The longest durations do not overflow.
    let long = samples(&read(&with(&file, b"stts", 12, &[0xff; 4])).unwrap());
    assert_eq!(long[2].dts, 2 * i64::from(u32::MAX));
}

#[test]
fn encrypted_tracks_are_told() {
    let init = init_segment(&[video(3), audio(4)]).unwrap();
    for (kind, encrypted, track) in [(b"avc1", b"encv", 3), (b"mp4a", b"enca", 4)] {
        let at = payload_of(&init, kind) - 4;
        let mut file = init.to_vec();
        file[at..at + 4].copy_from_slice(encrypted);
        assert_eq!(fault(&file), Error::Encrypted { track });
    }
}

#[test]
fn tracks_that_are_not_known_are_named_and_passed_over() {
    let mut fragment = Fragment::new(1);
    let sample = |payload| FragmentSample {
        duration: 1,
        composition: 0,
        key_frame: true,
        payload: Bytes::from_static(payload),
        subsamples: Vec::new(),
    };
    fragment.add(&video(1), 0, vec![sample(b"video")]).add(&audio(2), 0, vec![sample(b"sound")]);
    let file =
        [&init_segment(&[video(1), audio(2)]).unwrap()[..], &fragment.write().unwrap().concat()].concat();
    let at = payload_of(&file, b"avc1");
    let mut other = file.clone();
    other[at - 4..at].copy_from_slice(b"tmcd");
    let found = read(&other).unwrap();
    let Event::Tracks { tracks, others } = &found[0] else { panic!() };
    assert_eq!((tracks.len(), &others[..]), (1, &[FourCc(*b"tmcd")][..]));
    assert_eq!(samples(&found)[0].payload, b"sound"[..]);
}

#[test]
fn the_limits_of_tracks_boxes_and_samples() {
    let tracks: Vec<_> = (1..=17).map(audio).collect();
    assert!(read(&init_segment(&tracks[..16]).unwrap()).is_ok());
    assert_eq!(fault(&init_segment(&tracks).unwrap()), Error::TooManyTracks { max: 16 });
    let kind = FourCc(*b"moov");
    // A `moov` of 32 MiB and one byte is refused before any of its payload has arrived.
    assert_eq!(fault(b"\x02\0\0\x09moov"), Error::BoxTooLarge { kind, size: 0x200_0001 });
    assert_eq!(fault(b"\0\0\0\0moov"), Error::Size { kind, at: 0 });
    let kind = FourCc(*b"moof");
    assert_eq!(fault(b"\0\0\0\x01moof\0\0\x01\0\0\0\0\0"), Error::BoxTooLarge { kind, size: (1 << 40) - 16 });
    let mut reader = Reader::new(Limits { sample_bytes: 3, ..Limits::default() });
    let file = plain();
    let mut input = &file[..];
    assert!(matches!(reader.read(&mut input), Ok(Some(Event::Tracks { .. }))));
    assert_eq!(reader.read(&mut input), Err(Error::SampleTooLarge { size: 4 }));
}

#[test]
fn what_is_no_mp4_is_refused_at_once() {
    for other in [&b"<!DOCTYPE html>"[..], b"#EXTM3U\n#EXT", b"FLV\x01\x05\0\0\0\x09", &[0; 16]] {
        assert!(matches!(fault(other), Error::NotMp4 { .. }));
    }
    assert_eq!(fault(b"\0\0\0\x08moof"), Error::NoIndex);
    assert_eq!(fault(b"\0\0\0\0mdat"), Error::NoIndex);
    assert_eq!(fault(b"\0\0\0\x09mdat"), Error::MediaBeforeIndex { index_at: 9 });
    assert_eq!(fault(b"\0\0\0\x07free"), Error::Size { kind: FourCc(*b"free"), at: 0 });
}

#[test]
fn nesting_costs_nothing() {
    let mut nested = Vec::new();
    for depth in 1..=20_000u32 {
        nested.extend_from_slice(&((20_001 - depth) * 8).to_be_bytes());
        nested.extend_from_slice(b"moov");
    }
    assert_eq!(fault(&nested), Error::Invalid("moov without mvhd"));
}

/// Makes an init segment and a fragment whose run has these flags, count and fields.
fn run(flags: u32, count: u32, fields: &[u32]) -> Vec<u8> {
    let mut out = Out::new();
    out.bytes(&init_segment(&[video(1)]).unwrap());
    out.boxed(b"moof", |out| {
        out.boxed(b"traf", |out| {
            out.full(b"tfhd", 0, 0x02_0000, |out| {
                out.u32(1);
            });
            out.full(b"trun", 0, flags, |out| {
                out.u32(count);
                for field in fields {
                    out.u32(*field);
                }
            });
        });
    });
    out.bytes(b"\0\0\0\0mdat").zeros(1000);
    out.into_bytes().to_vec()
}

#[test]
fn runs_that_claim_much() {
    // The runs below: one whose entries are missing, one whose samples are empty, a valid one, one
    // with an invalid data_offset.
    assert!(matches!(fault(&run(0x200, 1_000_000_000, &[1])), Error::Truncated { .. }));
    assert_eq!(fault(&run(0, 1_000_000_000, &[])), Error::TooManyEmptySamples);
    let file = run(0x201, 1, &[64, 1000]);
    let (found, _) = events(Reader::new(Limits::default()), [&file[..]]);
    assert_eq!(samples(&found).len(), 1);
    assert_eq!(fault(&run(0x001, 1, &[0x8000_0000])), Error::Invalid("data_offset"));
}

#[test]
fn a_thousand_million_samples_of_one_byte_are_walked() {
    let mut out = Out::new();
    out.bytes(&init_segment(&[video(1)]).unwrap());
    out.boxed(b"moof", |out| {
        out.boxed(b"traf", |out| {
            out.full(b"tfhd", 0, 0x02_0018, |out| {
                out.u32(1).u32(u32::MAX).u32(1);
            });
            out.full(b"trun", 0, 1, |out| {
                out.u32(1_000_000_000).u32(8 + 8 + 24 + 20 + 8);
            });
        });
    });
    out.bytes(b"\0\0\0\0mdat").zeros(500);
    let file = out.into_bytes();
    let (found, end) = events(Reader::new(Limits::default()), [&file[..]]);
    assert_eq!((samples(&found).len(), end), (500, Err(Error::Unfinished { position: file.len() as u64 })));
}

/// A sample of one byte.
fn one_byte() -> FragmentSample {
    FragmentSample {
        duration: 9,
        composition: 0,
        key_frame: true,
        payload: Bytes::from_static(b"x"),
        subsamples: Vec::new(),
    }
}

#[test]
fn times_beyond_what_can_be_counted() {
    let mut fragment = Fragment::new(1);
    fragment.add(&video(1), u64::MAX, vec![one_byte()]);
    let file = [&init_segment(&[video(1)]).unwrap()[..], &fragment.write().unwrap().concat()].concat();
    assert_eq!(fault(&file), Error::Invalid("baseMediaDecodeTime"));
    let mut fragment = Fragment::new(1);
    fragment.add(&video(1), u64::MAX / 2 - 8, vec![one_byte()]);
    let file = [&init_segment(&[video(1)]).unwrap()[..], &fragment.write().unwrap().concat()].concat();
    assert_eq!(fault(&file), Error::Invalid("decode time"));
}

#[test]
fn fragments_without_their_media_do_not_gather() {
    let mut fragment = Fragment::new(1);
    fragment.add(&video(1), 0, vec![one_byte()]);
    let whole = fragment.write().unwrap().concat();
    let moof = &whole[..whole.len() - 9];
    let file = [&init_segment(&[video(1)]).unwrap()[..], moof, moof].concat();
    assert!(matches!(fault(&file), Error::Passed { .. } | Error::Unsupported(_)));
}
