use media::codec::Codec;

use super::*;
use crate::testing::{block, blocks, description, index};
use crate::{Block, clusters, duration_ms, finish, is_finished, recording_head};

const ROOM: usize = 4096;

/// Makes the blocks of a file with VP9 and Opus. There is a key frame each second, and audio comes a little before
/// the picture.
fn media(seconds: i64) -> Vec<Block> {
    let frames = |second: i64| {
        (0..25).flat_map(move |n| {
            let at = second * 1000 + n * 40;
            [block(1, at, n == 0), block(2, at.saturating_sub(15).max(0), true)]
        })
    };
    (0..seconds).flat_map(frames).collect()
}

fn recorded(blocks: &[Block], room: usize) -> Vec<u8> {
    let tracks = [description(1, Codec::Vp9), description(2, Codec::Opus)];
    let mut file = recording_head(&tracks, room).to_vec();
    for fragment in blocks.chunks(24) {
        file.extend(clusters(fragment, Some(1)).concat());
    }
    file
}

/// Returns the file after each step of finishing it.
fn steps(file: &[u8]) -> Vec<Vec<u8>> {
    let indexed = index(file).0.unwrap();
    let mut file = file[..usize::try_from(indexed.end).unwrap()].to_vec();
    let mut all = vec![file.clone()];
    for step in finish(&indexed).unwrap() {
        for patch in step {
            let at = usize::try_from(patch.at).unwrap();
            file.resize(file.len().max(at + patch.bytes.len()), 0);
            file[at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
        }
        all.push(file.clone());
    }
    all
}

fn finished(file: &[u8]) -> Vec<u8> {
    steps(file).pop().unwrap()
}

fn payload(file: &[u8]) -> Vec<Block> {
    blocks(file).into_iter().map(|(_, block)| block).collect()
}

/// Returns the elements of the segment: ID, offset in the segment, body.
fn top(file: &[u8]) -> Vec<(u32, usize, &[u8])> {
    let segment = usize::try_from(segment_at(file).unwrap()).unwrap() + HEAD_BYTES_MAX;
    let mut reader = Reader::new(&file[segment..]);
    let mut found = Vec::new();
    while !reader.is_empty() {
        let at = reader.position();
        let (id, body) = read_element(&mut reader).unwrap();
        found.push((id, at, body));
    }
    found
}

/// Checks a finished file: the positions of its elements, and its seek points.
fn check_finished(file: &[u8], duration: u64) {
    assert!(is_finished(&file[..file.len().min(256)], file.len() as u64));
    let top = top(file);
    let of = |id| top.iter().find(|(one, ..)| *one == id).unwrap();
    assert_eq!(duration_ms(of(id::INFO).2), Ok(Some(duration)));
    let mut seeks = Reader::new(of(id::SEEK_HEAD).2);
    for id in [id::INFO, id::TRACKS, id::CUES] {
        let (_, seek) = read_element(&mut seeks).unwrap();
        let mut seek = Reader::new(seek);
        assert_eq!(read_element(&mut seek).unwrap().1, id.to_be_bytes());
        let position = read_uint(read_element(&mut seek).unwrap().1).unwrap();
        assert_eq!(position, of(id).1 as u64);
    }
    let mut cues = Reader::new(of(id::CUES).2);
    let mut sought = 0;
    while !cues.is_empty() {
        let mut point = Reader::new(read_element(&mut cues).unwrap().1);
        let time = read_uint(read_element(&mut point).unwrap().1).unwrap();
        let mut positions = Reader::new(read_element(&mut point).unwrap().1);
        let track = read_uint(read_element(&mut positions).unwrap().1).unwrap();
        let position = read_uint(read_element(&mut positions).unwrap().1).unwrap();
        let cluster = top.iter().find(|(_, at, _)| *at as u64 == position).unwrap();
        let (time_ms, first) = first_block(cluster.2).unwrap();
        assert_eq!((cluster.0, time_of(time_ms, first)), (id::CLUSTER, time));
        assert!(first.key_frame && u64::from(first.track) == track);
        sought += 1;
    }
    assert_eq!(sought, duration.div_ceil(1000), "one a second");
}

/// Checks that a file is refused if its room is more than a single `Void`. Everything after the room's first nine bytes
/// is overwritten first, so a smaller `Void` would end within new bytes.
#[test]
fn a_room_that_is_not_one_void_is_not_gone_on_with() {
    let file = recorded(&media(2), ROOM);
    assert!(index(&file).0.is_ok());
    let room = usize::try_from(segment_at(&file).unwrap()).unwrap() + HEAD_BYTES_MAX;
    let mut halves = file.clone();
    let mut voids = bytes::BytesMut::new();
    crate::ebml::put_void(&mut voids, ROOM / 2);
    crate::ebml::put_void(&mut voids, ROOM - ROOM / 2);
    halves[room..room + ROOM].copy_from_slice(&voids);
    assert!(index(&halves).0.is_err());
}

#[test]
fn a_recorded_file_becomes_a_seekable_one_with_the_same_blocks() {
    // In the first case the cues fit before the media, in the second they do not.
    for (room, in_front) in [(ROOM, true), (200, false)] {
        let media = media(10);
        let file = recorded(&media, room);
        assert!(!is_finished(&file[..256], file.len() as u64));
        let done = finished(&file);
        assert_eq!(payload(&done), media);
        check_finished(&done, 10_000);
        let order: Vec<u32> = top(&done).iter().map(|(id, ..)| *id).collect();
        assert_eq!(order[1] == id::CUES, in_front);
        assert_eq!(*order.last().unwrap() == id::CUES, !in_front);
        assert_eq!(done.len() > file.len(), !in_front);
        // Indexing and finishing the file again gives the same result.
        assert_eq!(finished(&done), done);
    }
}

#[test]
fn a_room_that_is_too_small_is_said_to_be() {
    let file = recorded(&media(2), 20);
    assert_eq!(finish(&index(&file).0.unwrap()), Err(Error::Invalid("room")));
}

#[test]
fn a_crash_in_any_step_is_gone_on_from() {
    for room in [ROOM, 200] {
        let media = media(4);
        let whole = recorded(&media, room);
        let torn = [&whole[..], &recorded(&media[..1], room)[recorded(&[], room).len()..][..20]].concat();
        for file in [whole, torn] {
            let all = steps(&file);
            let done = all.last().unwrap();
            for (n, after) in all.iter().enumerate() {
                assert_eq!(payload(after), media, "it plays after {n}");
                assert_eq!(finished(after), *done, "after {n}");
            }
            // The step was performed only partly: every prefix of its changes is tried.
            for (before, after) in all.iter().zip(&all[1..]) {
                for cut in (0..after.len()).filter(|at| before.get(*at) != after.get(*at)) {
                    let mut half = before.clone();
                    half.resize(half.len().max(cut), 0);
                    half[..cut].copy_from_slice(&after[..cut]);
                    // The first nine bytes of the room are written atomically, and so is the size of the segment. A
                    // prefix that ends within one of them cannot occur on a disk, so it need not be readable.
                    if index(&half).0.is_ok_and(|indexed| indexed.info_at == index(&file).0.unwrap().info_at)
                    {
                        assert_eq!(payload(&finished(&half)), media, "cut at {cut}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_that_is_torn_at_any_byte_keeps_all_whole_blocks() {
    let media = media(3);
    let file = recorded(&media, ROOM);
    let head = recorded(&[], ROOM).len();
    // Offset in the file at which each block ends.
    let ends: Vec<usize> = media
        .iter()
        .scan(head, |at, block| {
            let frame = &file[*at..];
            let found = frame.windows(block.frame.len()).position(|window| window == block.frame).unwrap();
            *at += found + block.frame.len();
            Some(*at)
        })
        .collect();
    for length in 0..=file.len() {
        let whole = ends.iter().filter(|end| **end <= length).count();
        let torn = &file[..length];
        if whole == 0 {
            assert!(index(torn).0.is_err(), "{length}");
            continue;
        }
        let done = finished(torn);
        assert_eq!(payload(&done), media[..whole], "{length}");
        assert!(is_finished(&done[..256], done.len() as u64));
        // Bytes that did not reach the disk may read as zeros.
        let mut zeros = torn.to_vec();
        zeros.resize(length + 300, 0);
        let kept = payload(&finished(&zeros));
        assert!(kept.len() >= whole && kept[..whole] == media[..whole], "{length}");
        assert!(kept.len() <= whole + 1, "a frame that ends in zeros: {length}");
    }
}

#[test]
fn only_the_end_of_a_long_file_is_looked_at_block_by_block() {
    let frame = Bytes::from(vec![1; 20_000]);
    let media: Vec<Block> =
        media(60).into_iter().map(|block| Block { frame: frame.clone(), ..block }).collect();
    let file = recorded(&media, ROOM);
    let (indexed, asked) = index(&file);
    let tail = TAIL_BYTES / 20_000;
    assert!(asked > 800 && (asked as u64) < tail + 500, "{asked} of {}", media.len());
    assert_eq!((indexed.unwrap().duration_ms, file.len() as u64 > 2 * TAIL_BYTES), (60_000, true));
    check_finished(&finished(&file), 60_000);
}

#[test]
fn sound_alone_is_sought_by_its_clusters_and_gaps_are_kept() {
    let tracks = [description(1, Codec::Opus)];
    let times = (0..200).map(|n| if n < 100 { n * 20 } else { 10_000_000_000 + n * 20 });
    let media: Vec<Block> = times.map(|at| block(1, at, true)).collect();
    let mut file = recording_head(&tracks, ROOM).to_vec();
    media.chunks(25).for_each(|fragment| file.extend(clusters(fragment, None).concat()));
    let done = finished(&file);
    assert_eq!(payload(&done), media);
    let indexed = index(&file).0.unwrap();
    assert_eq!((indexed.cues.len(), indexed.duration_ms), (4, 10_000_000_000 + 4000));
}

#[test]
fn hostile_files_are_indexed_without_harm() {
    let file = recorded(&media(2), 200);
    let mut random = 1u64;
    for _ in 0..20_000 {
        let mut damaged = file.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(random >> 33).unwrap() % damaged.len();
            damaged[at] = random.to_le_bytes()[3];
        }
        if let Ok(indexed) = index(&damaged).0 {
            assert!(indexed.end <= damaged.len() as u64);
            if finish(&indexed).is_err() {
                continue;
            }
            // Each finishing step leaves the indexed result unchanged.
            let all = steps(&damaged);
            for after in &all {
                let again = index(after).0.unwrap();
                assert_eq!((again.end, again.duration_ms), (indexed.end, indexed.duration_ms));
            }
            let done = all.last().unwrap();
            assert!(is_finished(done, done.len() as u64));
        }
    }
    for none in [&b""[..], b"\x1a\x45\xdf\xa3", b"no film", &[0; 4096], &file[..60]] {
        assert!(index(none).0.is_err());
    }
}
