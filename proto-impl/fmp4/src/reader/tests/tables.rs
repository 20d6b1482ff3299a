//! Tests of tables, fragments and edit lists in forms that ffmpeg does not write.

use super::super::*;
use crate::testing::{audio, read, samples, tracks, video};
use crate::writer::out::Out;
use crate::{Description, Fragment, FragmentSample, init_segment};

/// Makes a file with the `moov` of our writer and an edit list. `tables` writes the boxes of `stbl`, which replace the
/// writer's empty ones.
fn file(tables: impl FnOnce(&mut Out), edits: Option<&[u8]>, media: &[u8]) -> Vec<u8> {
    let init = init_segment(&[video(1)]).unwrap();
    let part = |kind: &[u8; 4]| {
        let at = init.windows(4).position(|four| four == kind).unwrap() - 4;
        let size = u32::from_be_bytes(init[at..at + 4].try_into().unwrap());
        init[at..at + usize::try_from(size).unwrap()].to_vec()
    };
    let mut out = Out::new();
    out.boxed(b"moov", |out| {
        out.bytes(&part(b"mvhd"));
        out.boxed(b"trak", |out| {
            out.bytes(&part(b"tkhd"));
            if let Some(edits) = edits {
                out.boxed(b"edts", |out| {
                    out.boxed(b"elst", |out| {
                        out.bytes(edits);
                    });
                });
            }
            out.boxed(b"mdia", |out| {
                out.bytes(&part(b"mdhd")).bytes(&part(b"hdlr"));
                out.boxed(b"minf", |out| {
                    out.boxed(b"stbl", |out| {
                        out.bytes(&part(b"stsd"));
                        tables(out);
                    });
                });
            });
        });
    });
    out.bytes(b"\0\0\0\0mdat").bytes(media);
    out.into_bytes().to_vec()
}

fn full(out: &mut Out, kind: &[u8; 4], version: u8, fields: &[u32]) {
    out.full(kind, version, 0, |out| {
        for field in fields {
            out.u32(*field);
        }
    });
}

/// Returns the position of the media in a file made by [`file`]. The tables have the same size for any offset.
fn media_at(tables: impl Fn(&mut Out, u32), edits: Option<&[u8]>) -> u32 {
    u32::try_from(file(|out| tables(out, 0), edits, &[]).len()).unwrap()
}

#[test]
fn compact_sizes_and_wide_offsets() {
    // Sizes 1, 2, 3 in fields of 4, 8 and 16 bits; two chunks, the second with one sample, the first later in the file.
    for (bits, sizes) in [(4, &[0x12, 0x30][..]), (8, &[1, 2, 3]), (16, &[0, 1, 0, 2, 0, 3])] {
        let tables = |out: &mut Out, media: u32| {
            full(out, b"stts", 0, &[2, 1, 10, 1, 20]);
            full(out, b"stsc", 0, &[2, 1, 2, 1, 2, 1, 1]);
            out.full(b"stz2", 0, 0, |out| {
                out.u32(bits).u32(3).bytes(sizes);
            });
            full(out, b"co64", 0, &[2, 0, media, 0, media + 4]);
        };
        let at = media_at(tables, None);
        let found = samples(&read(&file(|out| tables(out, at), None, b"abb_ccc")).unwrap());
        let rows: Vec<_> =
            found.iter().map(|sample| (sample.dts, sample.duration, &sample.payload[..])).collect();
        // If the table of durations ends early, its last value applies to all further samples.
        assert_eq!(rows, [(0, 10, &b"a"[..]), (10, 20, b"bb"), (30, 20, b"ccc")], "{bits} bits");
        assert!(found.iter().all(|sample| sample.key_frame), "without stss");
    }
}

#[test]
fn composition_times_of_both_versions_may_be_negative() {
    for version in [0, 1] {
        let tables = |out: &mut Out, media: u32| {
            full(out, b"stts", 0, &[1, 3, 10]);
            full(out, b"ctts", version, &[2, 1, 5, 2, (-20i32).cast_unsigned()]);
            full(out, b"stsc", 0, &[1, 1, 3, 1]);
            full(out, b"stsz", 0, &[1, 3]);
            full(out, b"stco", 0, &[1, media]);
            full(out, b"stss", 0, &[2, 1, 3]);
        };
        let at = media_at(tables, None);
        let found = samples(&read(&file(|out| tables(out, at), None, b"abc")).unwrap());
        let rows: Vec<_> = found.iter().map(|sample| (sample.pts, sample.key_frame)).collect();
        assert_eq!(rows, [(5, true), (-10, false), (0, true)]);
    }
}

#[test]
fn edit_lists_shift_the_times() {
    let tables = |out: &mut Out, media: u32| {
        full(out, b"stts", 0, &[1, 1, 10]);
        full(out, b"stsc", 0, &[1, 1, 1, 1]);
        full(out, b"stsz", 0, &[1, 1]);
        full(out, b"stco", 0, &[1, media]);
    };
    let fields = |version: u8, fields: &[u32]| {
        let mut out = Out::new();
        out.u8(version).u24(0);
        for field in fields {
            out.u32(*field);
        }
        out.into_bytes()
    };
    let shift = |edits: &[u8]| {
        let at = media_at(tables, Some(edits));
        read(&file(|out| tables(out, at), Some(edits), b"x")).map(|events| {
            let (track, sample) = (&tracks(&events)[0], &samples(&events)[0]);
            assert_eq!(track.shift, sample.dts);
            sample.dts
        })
    };
    const NONE: u32 = u32::MAX;
    // The timescale of the movie is 1000, that of the track 48000.
    assert_eq!(shift(&fields(0, &[1, 0, 500, 1 << 16])), Ok(-500));
    assert_eq!(shift(&fields(0, &[2, 250, NONE, 1 << 16, 0, 500, 1 << 16])), Ok(12_000 - 500));
    assert_eq!(shift(&fields(0, &[1, 250, NONE, 1 << 16])), Ok(12_000));
    assert_eq!(shift(&fields(1, &[1, 0, 9, 1, 0, 1 << 16])), Ok(-(1 << 32)));
    assert_eq!(shift(&fields(0, &[1, 0, NONE - 1, 1 << 16])), Err(Error::Invalid("media_time")));
    let long = fields(1, &[1, NONE, NONE, NONE, NONE, 1 << 16]);
    assert_eq!(shift(&long), Err(Error::Invalid("segment_duration")));
    assert!(matches!(shift(&fields(0, &[1_000_000_000, 0])), Err(Error::Truncated { .. })));
}

/// Makes an init segment and a `moof` of tracks 1 and 2 that `body` writes.
fn fragment(body: impl FnOnce(&mut Out, u64), media: &[u8]) -> Vec<u8> {
    let mut out = Out::new();
    out.bytes(&init_segment(&[video(1), audio(2)]).unwrap());
    let at = out.len() as u64;
    out.boxed(b"moof", |out| body(out, at));
    out.bytes(b"\0\0\0\0mdat").bytes(media);
    out.into_bytes().to_vec()
}

fn traf(out: &mut Out, header: (u32, &[u32]), runs: &[(u32, &[u32])]) {
    out.boxed(b"traf", |out| {
        let (flags, fields) = header;
        out.full(b"tfhd", 0, flags, |out| {
            fields.iter().for_each(|field| {
                out.u32(*field);
            })
        });
        for (flags, fields) in runs {
            out.full(b"trun", 0, *flags, |out| {
                fields.iter().for_each(|field| {
                    out.u32(*field);
                })
            });
        }
    });
}

#[test]
fn data_offsets_of_every_kind() {
    // Track 1 has an absolute base offset, and two runs, one after the other. Track 2 has no base offset and follows
    // track 1. Neither has a `tfdt`, so decode times continue from zero.
    let body = |base: u32| {
        move |out: &mut Out, _: u64| {
            traf(
                out,
                (0x19, &[1, 0, base, 10, 2]),
                &[(0x001, &[1, 0]), (0x004, &[2, 0x0001_0000]), (0x800, &[1, 7])],
            );
            traf(out, (0x18, &[2, 5, 1]), &[(0, &[2])]);
        }
    };
    let at = u32::try_from(fragment(body(0), &[]).len()).unwrap();
    let found = samples(&read(&fragment(body(at), b"aabbccddef")).unwrap());
    let rows: Vec<_> =
        found.iter().map(|one| (one.track, one.dts, one.pts, one.key_frame, &one.payload[..])).collect();
    assert_eq!(
        rows,
        [
            (1, 0, 0, true, &b"aa"[..]),
            (1, 10, 10, false, b"bb"),
            (1, 20, 20, true, b"cc"),
            (1, 30, 37, true, b"dd"),
            (2, 0, 0, false, b"e"),
            (2, 5, 5, false, b"f"),
        ]
    );
}

#[test]
fn the_time_goes_on_where_a_fragment_has_none() {
    let sample = |payload| FragmentSample {
        duration: 10,
        composition: -3,
        key_frame: false,
        payload: Bytes::from_static(payload),
        subsamples: Vec::new(),
    };
    let mut first = Fragment::new(1);
    first.add(&video(1), 1000, vec![sample(b"a"), sample(b"b")]);
    let first = first.write().unwrap().concat();
    // The next fragment has a box of an unknown kind instead of its `tfdt`.
    let mut second = first.clone();
    let at = second.windows(4).position(|four| four == b"tfdt").unwrap();
    second[at..at + 4].copy_from_slice(b"free");
    let file = [&init_segment(&[video(1)]).unwrap()[..], &first, &second].concat();
    let found = samples(&read(&file).unwrap());
    let times: Vec<_> = found.iter().map(|sample| (sample.dts, sample.pts)).collect();
    assert_eq!(times, [(1000, 997), (1010, 1007), (1020, 1017), (1030, 1027)]);
}

#[test]
fn languages_are_tags_or_three_letters() {
    let of = |language: Option<&str>| {
        let one = Description { language: language.map(Into::into), ..audio(1) };
        tracks(&read(&init_segment(&[one]).unwrap()).unwrap())[0].language.clone()
    };
    for tag in [Some("eng"), Some("pt-BR"), Some("de"), Some("ENG"), None] {
        assert_eq!(of(tag).as_deref(), tag);
    }
    assert_eq!(of(Some("und")), None);
}
