//! Files that are fragmented while they are recorded and become plain afterwards, without moving their media.
//!
//! ```text
//! while it is recorded  ftyp | free (room)             | moov moof mdat moof mdat ...
//! afterwards            ftyp | moov | free | mdat head | moov moof mdat moof mdat ...
//! ```
//!
//! The former fragmented file becomes the payload of one `mdat`. The first eight bytes after `ftyp` decide
//! which of the two forms a reader sees; they are written last, when all other bytes are on the disk.

use alloc::vec::Vec;

use bytes::Bytes;

use super::index::{MEDIA_HEAD_BYTES, media_head, moov};
use super::out::Out;
use super::{Description, file_type, movie};
use crate::Error;
use crate::boxes::HEAD_BYTES;
use crate::reader::Indexed;

/// Returns the beginning of a recorded file. Its `moov` is at offset `room`.
///
/// # Errors
/// A codec is not supported by MP4, or `room` is too small for `ftyp`.
pub fn recording_head(tracks: &[Description], room: u32) -> Result<Bytes, Error> {
    let tracks: Vec<&Description> = tracks.iter().collect();
    let mut out = Out::new();
    out.bytes(&file_type(&tracks, false));
    let free = usize::try_from(room).unwrap_or(usize::MAX).checked_sub(out.len());
    let free = free.filter(|free| *free >= HEAD_BYTES).ok_or(Error::TooLarge("ftyp"))?;
    out.u32(u32::try_from(free).unwrap_or(u32::MAX)).bytes(b"free").zeros(free.saturating_sub(HEAD_BYTES));
    movie::fragmented(&mut out, &tracks)?;
    Ok(out.into_bytes())
}

/// Bytes that turn a recorded file into a plain one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainHead {
    /// The bytes to write between `ftyp` and the former `moov`.
    Fits(Bytes),
    /// The room between `ftyp` and the former `moov` is too small by this many bytes.
    Short(u64),
}

/// Returns the bytes that turn a recorded file into a plain one. Its `ftyp` ends at `from`. To make room, its
/// former `moov` and everything after it was moved by `moved` bytes towards the end.
///
/// # Errors
/// The index exceeds the limits of the file format.
pub fn plain_head(indexed: &Indexed, from: u64, moved: u64) -> Result<PlainHead, Error> {
    let index = moov(&indexed.tracks, moved)?;
    let room = indexed.moov_at.saturating_add(moved).saturating_sub(from);
    // Besides the new `moov`, there must be room for the header of a `free` box and for that of the `mdat`.
    let needed = index.len().saturating_add(HEAD_BYTES).saturating_add(MEDIA_HEAD_BYTES) as u64;
    let Some(free) = room.checked_sub(needed) else {
        // When the media is moved, its offsets may exceed 32 bits and need eight bytes.
        let chunks = indexed.tracks.iter().map(super::TrackIndex::samples).sum::<usize>() as u64;
        let wider = if moved == 0 { chunks.saturating_mul(4) } else { 0 };
        return Ok(PlainHead::Short(needed.saturating_sub(room).saturating_add(wider.min(needed))));
    };
    let mut out = Out::new();
    let free_box = free.saturating_add(HEAD_BYTES as u64);
    out.bytes(&index).u32(u32::try_from(free_box).map_err(|_| Error::TooLarge("room"))?).bytes(b"free");
    out.zeros(usize::try_from(free).unwrap_or(0));
    out.bytes(&media_head(indexed.end.saturating_sub(indexed.moov_at)));
    Ok(PlainHead::Fits(out.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{audio, configs, description, read, samples, tracks, video};
    use crate::{Fragment, FragmentSample, Indexer, Limits, Sample};

    const ROOM: u32 = 4096;

    fn sample(duration: u32, composition: i32, key_frame: bool, payload: &[u8]) -> FragmentSample {
        FragmentSample {
            duration,
            composition,
            key_frame,
            payload: Bytes::copy_from_slice(payload),
            subsamples: Vec::new(),
        }
    }

    /// Returns a recorded file with two fragments and a gap in time between them.
    fn recorded(first: &Description) -> Vec<u8> {
        let mut file = recording_head(&[first.clone(), audio(2)], ROOM).unwrap().to_vec();
        for (sequence, at) in [(1, 100), (2, 5000)] {
            let mut fragment = Fragment::new(sequence);
            let samples = vec![sample(10, 20, true, &first.first_unit), sample(30, 0, false, b"picture")];
            fragment.add(first, at, samples).add(&audio(2), at + 50, vec![sample(1024, 0, true, b"sound")]);
            file.extend(fragment.write().unwrap().concat());
        }
        file
    }

    fn indexed(file: &[u8]) -> Result<Indexed, Error> {
        let mut indexer = Indexer::new(file.len() as u64, Limits::default());
        while let Some((offset, length)) = indexer.wanted() {
            let from = usize::try_from(offset).unwrap().min(file.len());
            let to = from.saturating_add(length).min(file.len());
            indexer.take(&Bytes::copy_from_slice(&file[from..to]))?;
        }
        indexer.finish()
    }

    /// Returns the plain file. `moved` bytes are inserted before the `moov` to make room.
    fn plain(file: &[u8], moved: usize) -> Vec<u8> {
        let indexed = indexed(file).unwrap();
        let from = u32::from_be_bytes(file[..4].try_into().unwrap());
        let head = match plain_head(&indexed, from.into(), moved as u64).unwrap() {
            PlainHead::Fits(head) => head,
            PlainHead::Short(bytes) => panic!("{bytes}"),
        };
        let (from, room) = (usize::try_from(from).unwrap(), usize::try_from(ROOM).unwrap());
        assert_eq!(head.len(), room + moved - from);
        let end = usize::try_from(indexed.end).unwrap();
        [&file[..from], &head, &file[room..end]].concat()
    }

    fn of_track(found: &[Sample], track: u32) -> Vec<(i64, i64, u32, bool, Bytes)> {
        let of_track = found.iter().filter(|sample| sample.track == track);
        of_track.map(|s| (s.dts, s.pts, s.duration, s.key_frame, s.payload.clone())).collect()
    }

    #[test]
    fn what_was_recorded_is_the_same_as_a_plain_file() {
        for config in configs() {
            let first = Description { media_start: 20, ..description(1, config) };
            let file = recorded(&first);
            let fragmented = samples(&read(&file).unwrap());
            for moved in [0, 8192] {
                let plain_bytes = plain(&file, moved);
                let plain = read(&plain_bytes).unwrap();
                let found = samples(&plain);
                for track in [1, 2] {
                    let mut expected = of_track(&fragmented, track);
                    // A sample lasts until the next one, even across a gap.
                    for n in 1..expected.len() {
                        expected[n - 1].2 = u32::try_from(expected[n].0 - expected[n - 1].0).unwrap();
                    }
                    // The empty edit at the start can only express whole milliseconds, so all times of the track may be
                    // off by a fraction of a millisecond.
                    let off = of_track(&found, track)[0].0 - expected[0].0;
                    assert!(off.abs() < 48, "{off}");
                    expected
                        .iter_mut()
                        .for_each(|sample| (sample.0, sample.1) = (sample.0 + off, sample.1 + off));
                    assert_eq!(of_track(&found, track), expected, "{first:?}");
                }
                let moov = plain_bytes.windows(4).position(|four| four == b"moov").unwrap();
                let told = crate::movie_duration_ms(&plain_bytes[moov + 4..]).unwrap();
                assert!(told.abs_diff(indexed(&file).unwrap().duration_ms) <= 2, "{told}");
                let rates: Vec<u32> = tracks(&plain).iter().map(|track| track.bit_rate).collect();
                assert!(rates.iter().all(|rate| *rate > 0), "{rates:?}");
            }
        }
    }

    #[test]
    fn the_length_is_that_of_the_longest_track() {
        let indexed = indexed(&recorded(&video(1))).unwrap();
        assert_eq!((indexed.moov_at, indexed.duration_ms), (ROOM.into(), (5000 + 50 + 1024) * 1000 / 48_000));
    }

    #[test]
    fn a_file_that_was_not_written_to_its_end_has_its_whole_fragments() {
        let file = recorded(&video(1));
        let whole = indexed(&file).unwrap();
        let mut ends = alloc::collections::BTreeSet::new();
        let head = recording_head(&[video(1), audio(2)], ROOM).unwrap().len();
        for length in head..file.len() {
            let mut cut = file[..length].to_vec();
            let indexed = indexed(&cut).unwrap();
            assert!(indexed.end <= length as u64 && indexed.tracks.len() != 1);
            ends.insert(indexed.end);
            // Bytes that did not reach the disk may read as zeros.
            cut.resize(file.len() + 5000, 0);
            assert!(tests::indexed(&cut).unwrap().end <= whole.end, "{length}");
        }
        assert_eq!(ends.len(), 2, "nothing, one fragment: {ends:?}");
        for length in 0..head {
            assert!(indexed(&file[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_gap_that_was_made_for_the_head_is_passed_over() {
        let file = recorded(&video(1));
        let (from, room) = (64, usize::try_from(ROOM).unwrap());
        let gap = [&file[..room], &[0; 12_288], &file[room..]].concat();
        let found = indexed(&gap).unwrap();
        assert_eq!((found.moov_at, found.end), (4096 + 12_288, gap.len() as u64));
        let small = indexed(&recorded(&video(1))).unwrap();
        let tight = Indexed { moov_at: from + 100, ..small };
        let PlainHead::Short(missing) = plain_head(&tight, from, 0).unwrap() else { panic!("it fits") };
        let head = plain_head(&tight, from, missing).unwrap();
        assert!(matches!(head, PlainHead::Fits(head) if head.len() as u64 == 100 + missing));
    }

    #[test]
    fn hostile_files_are_indexed_without_harm() {
        let file = recorded(&video(1));
        let mut random = 1u64;
        for _ in 0..20_000 {
            let mut torn = file.clone();
            for _ in 0..3 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = usize::try_from(random >> 33).unwrap() % (torn.len() - 4000) + 4000;
                torn[at] = random.to_le_bytes()[3];
            }
            if let Ok(indexed) = indexed(&torn) {
                let _ = plain_head(&indexed, 32, 0);
                assert!(indexed.end <= torn.len() as u64);
            }
        }
    }
}
