#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for some jobs")]

use super::*;

#[derive(Debug)]
struct Memory(Vec<u8>);

impl BlockSource for Memory {
    fn read_block(&self, offset: u64, length: usize) -> Bytes {
        let rest = self.0.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        Bytes::copy_from_slice(&rest[..length.min(rest.len())])
    }
}

fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&u32::try_from(8 + body.len()).unwrap().to_be_bytes()[..], kind, body].concat()
}

/// Plays a file whose reported length is `length`. Returns the pieces, the offsets that were read, and the reason
/// of the end.
fn play(file: &[u8], length: u64) -> (Vec<Media>, Vec<u64>, String) {
    let now = Instant::now();
    let (mut client, mut pieces, mut offsets) = (FilePull::new(vec!["x".into()]), Vec::new(), Vec::new());
    loop {
        match client.poll() {
            Some(ClientEvent::Media(media)) => {
                pieces.push(media);
                continue;
            }
            Some(ClientEvent::Ended(reason)) => return (pieces, offsets, reason),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        let job = client.poll_job().expect("it waits for nothing");
        assert!(client.poll_job().is_none(), "one at a time");
        let outcome = match job.work {
            Work::FileOpen { path } => {
                assert_eq!(path, ["x"]);
                let file = Arc::new(Memory(file.to_vec()));
                Outcome::Opened(Ok(OpenedFile { file, length, modified_ms: 0, tag: String::new() }))
            }
            Work::FileRead { file, offset, length } => {
                assert!(length <= BLOCK_BYTES);
                offsets.push(offset);
                Outcome::Block(file.read_block(offset, length))
            }
            other => panic!("{other:?}"),
        };
        client.handle_job(now, JobDone { id: job.id, outcome });
    }
}

fn read(pieces: &[Media]) -> Vec<u8> {
    let bytes = pieces.iter().flat_map(|piece| match piece {
        Media::Mp4(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    });
    bytes.collect()
}

#[test]
fn a_file_is_read_block_by_block_to_its_end() {
    let file = [boxed(b"ftyp", b"isom\0\0\0\0"), boxed(b"moov", &[1; 9]), boxed(b"mdat", &vec![2; 300_000])]
        .concat();
    let length = file.len() as u64;
    let (pieces, offsets, end) = play(&file, length);
    assert_eq!((read(&pieces), &*end), (file.clone(), "the file is over"));
    assert_eq!(offsets, [0, BLOCK_BYTES as u64, 2 * BLOCK_BYTES as u64]);
    // Bytes that were added after the length was first read are not awaited. Bytes that are missing before that
    // length are a fault.
    assert_eq!(read(&play(&file, 200_000).0).len(), 200_000);
    let (pieces, _, end) = play(&file, length + 1);
    assert_eq!((read(&pieces).len(), &*end), (file.len(), "the file cannot be read, or became shorter"));
    assert_eq!(play(&[], 0).2, "the file is over");
}

#[test]
fn an_index_behind_the_media_is_read_first() {
    let (head, index) = (boxed(b"ftyp", b"isom\0\0\0\0"), boxed(b"moov", &vec![1; 200_000]));
    let media = boxed(b"mdat", &vec![2; 500_000]);
    let file = [head.clone(), media.clone(), index.clone()].concat();
    let (pieces, offsets, end) = play(&file, file.len() as u64);
    let media_at = head.len() as u64;
    assert_eq!(pieces[0], Media::Mp4Index { index: index.clone().into(), media_at });
    assert_eq!((read(&pieces[1..]), &*end), ([media, index].concat(), "the file is over"));
    let index_at = media_at + 500_008;
    assert_eq!(offsets[..4], [0, index_at, index_at + BLOCK_BYTES as u64, media_at]);
    // Box lengths that are wrong.
    let lying =
        [head, 1_u32.to_be_bytes().to_vec(), b"mdat".to_vec(), u64::MAX.to_be_bytes().to_vec()].concat();
    assert_eq!(play(&lying, lying.len() as u64).2, "the file is over");
}

#[test]
fn other_files_and_missing_ones_are_told_apart() {
    let now = Instant::now();
    assert_eq!(play(b"<html>", 6).2, "the body is neither FLV nor MPEG-TS nor MP4");
    let opened = |outcome| {
        let mut client = FilePull::new(vec!["x".into()]);
        let job = client.poll_job().unwrap();
        client.handle_job(now, JobDone { id: job.id, outcome });
        client
    };
    for (outcome, wanted) in [
        (Outcome::Opened(Err(FileError::NotFound)), "there is no such file"),
        (Outcome::Opened(Err(FileError::Directory)), "there is no such file"),
        (Outcome::Opened(Err(FileError::Failed)), "the file cannot be read"),
        (Outcome::Failed, "the file could not be looked after"),
    ] {
        let mut client = opened(outcome);
        assert_eq!(client.poll(), Some(ClientEvent::Ended(wanted.to_owned())));
        assert!(client.poll_job().is_none());
    }
    // If the job service is busy, the client submits its job again a little later.
    let mut client = opened(Outcome::Busy);
    assert_eq!(client.poll(), None);
    assert!(client.poll_job().is_none());
    let later = client.poll_timeout().unwrap();
    client.handle_timeout(later);
    assert!(client.poll_timeout().is_none() && client.poll_job().is_some());
}
