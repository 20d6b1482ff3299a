//! WebM: a few elements are written before the clusters, or after them if they do not fit (`webm::finish`).
//! Nothing is moved.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use webm::{Error, HEAD_BYTES_MAX, Head, INFO_BYTES_MAX, Indexed, Indexer, finish, id, is_finished};

use super::{BOXES_MAX, Complete, FIRST_BYTES, damaged, may_be_cut, read};

/// The id of the first element (EBML, RFC 8794 §11.2.1).
const FIRST_ID: &[u8] = &[0x1a, 0x45, 0xdf, 0xa3];

/// Makes a seekable file from a recording.
pub(super) fn complete(file: File) -> io::Result<Complete> {
    let length = file.metadata()?.len();
    if is_finished(&read(&file, 0, FIRST_BYTES)?, length) {
        return Ok(Complete::File(file));
    }
    let Some(indexed) = index(&file, length)? else {
        // If the first element was cut off, this reads the part of it that exists.
        let first = read(&file, 0, FIRST_ID.len())?;
        let begins = !first.is_empty() && FIRST_ID.starts_with(&first);
        return Ok(if may_be_cut(&file, 0, begins)? { Complete::Nothing } else { Complete::Junk });
    };
    if !may_be_cut(&file, indexed.end, true)? {
        return Ok(Complete::Junk);
    }
    file.set_len(indexed.end)?;
    for step in finish(&indexed).map_err(damaged)? {
        for patch in step {
            file.write_all_at(&patch.bytes, patch.at)?;
        }
        file.sync_data()?;
    }
    Ok(Complete::File(file))
}

fn index(file: &File, length: u64) -> io::Result<Option<Indexed>> {
    let mut indexer = Indexer::new(length);
    while let Some((offset, length)) = indexer.wanted() {
        match indexer.take(&read(file, offset, length)?) {
            Ok(()) => {}
            // Not even the head of the file was written.
            Err(Error::NoMedia | Error::Truncated(_)) => return Ok(None),
            Err(error) => return Err(damaged(error)),
        }
    }
    match indexer.finish() {
        Ok(indexed) => Ok(Some(indexed)),
        Err(Error::NoMedia) => Ok(None),
        Err(error) => Err(damaged(error)),
    }
}

/// Returns the duration that a file states, in milliseconds; `None` if it states none.
pub(super) fn duration_ms(file: &File) -> io::Result<Option<u64>> {
    let mut at = 0u64;
    for _ in 0..BOXES_MAX {
        let head = Head::read(&read(file, at, HEAD_BYTES_MAX)?).map_err(damaged)?;
        let body_at = at.saturating_add(head.bytes as u64);
        let size = head.size.unwrap_or(u64::MAX);
        match head.id {
            id::SEGMENT => at = body_at,
            id::INFO => {
                let size = usize::try_from(size).ok().filter(|size| *size <= INFO_BYTES_MAX);
                let info = read(file, body_at, size.ok_or(io::ErrorKind::InvalidData)?)?;
                return webm::duration_ms(&info).map_err(damaged);
            }
            _ => at = body_at.checked_add(size).ok_or(io::ErrorKind::InvalidData)?,
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use media::codec::CodecConfig;
    use media::codec::opus;
    use media::{Timescale, Track, TrackId};
    use webm::{Block, Description, clusters, recording_head};

    use super::super::{RecordingOutcome, RecordingWork, run};
    use crate::jobs::Finished;
    use crate::tests::TempFolder;

    /// Makes an Opus recording of `seconds` seconds, as its sink leaves it.
    fn recorded(seconds: i64) -> Vec<u8> {
        let config = CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap());
        let track = Track::new(TrackId::AUDIO, config, Timescale::MILLISECONDS);
        let mut file = recording_head(&[Description::of_track(1, &track)], 4096).to_vec();
        for half in 0..2 * seconds {
            let block =
                |n| Block { track: 1, at_ms: half * 500 + n * 20, key_frame: true, frame: frame(half, n) };
            file.extend(clusters(&(0..25).map(block).collect::<Vec<_>>(), None).concat());
        }
        file
    }

    fn frame(half: i64, n: i64) -> Bytes {
        format!("sound {half:04} {n:02}").into()
    }

    /// Returns the number of frames that the file contains in order, each once.
    fn frames(file: &[u8], seconds: i64) -> usize {
        let all = (0..2 * seconds).flat_map(|half| (0..25).map(move |n| frame(half, n)));
        let mut rest = file;
        all.take_while(|frame| {
            let found = rest.windows(frame.len()).position(|window| window == frame);
            found.is_some_and(|at| {
                rest = &rest[at + frame.len()..];
                true
            })
        })
        .count()
    }

    fn finish(unfinished: &[u8]) -> (RecordingOutcome, Option<Vec<u8>>, TempFolder) {
        let root = TempFolder::new();
        fs::create_dir_all(root.join("live/streams")).unwrap();
        fs::write(root.join("live/streams/a.webm.tmp_extension"), unfinished).unwrap();
        let path = ["live", "streams", "a.webm"].map(str::to_owned).to_vec();
        let outcome = run(&root, &RecordingWork::Finish { path });
        let names = fs::read_dir(root.join("live/streams")).unwrap().count();
        let file = fs::read(root.join("live/streams/a.webm")).ok();
        assert!(names <= 1 && (names == 1) != (outcome == RecordingOutcome::Empty), "nothing else is left");
        (outcome, file, root)
    }

    #[test]
    fn a_recording_becomes_a_file_that_says_how_long_it_is() {
        for seconds in [1, 300] {
            let file = recorded(seconds);
            let (outcome, done, root) = finish(&file);
            let done = done.unwrap();
            let finished =
                Finished { bytes: done.len() as u64, duration_ms: Some(seconds.unsigned_abs() * 1000) };
            assert_eq!(outcome, RecordingOutcome::Finished(finished));
            assert_eq!(frames(&done, seconds), 50 * usize::try_from(seconds).unwrap());
            assert!(webm::is_finished(&done[..256], done.len() as u64));
            // Finishing also works again after a crash just before the file was renamed, and after a crash just
            // after it.
            assert_eq!(finish(&done).0, RecordingOutcome::Finished(finished));
            let path = ["live", "streams", "a.webm"].map(str::to_owned).to_vec();
            assert_eq!(run(&root, &RecordingWork::Finish { path }), RecordingOutcome::Finished(finished));
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_finished_or_empty() {
        let file = recorded(1);
        for cut in (0..64).chain((4000..file.len()).step_by(13)) {
            let (outcome, done, _root) = finish(&file[..cut]);
            let whole = frames(&file[..cut], 1);
            assert_eq!(outcome == RecordingOutcome::Empty, whole == 0, "{cut}: {outcome:?}");
            assert_eq!(done.map_or(0, |done| frames(&done, 1)), whole, "{cut}");
        }
    }

    #[test]
    fn what_is_no_recording_stays_as_it_is() {
        assert_eq!(finish(&[0; 5000]).0, RecordingOutcome::Empty);
        let (outcome, _, root) = finish(b"somebody's text");
        assert_eq!(outcome, RecordingOutcome::SetAside("a.webm.damaged".to_owned()));
        assert_eq!(fs::read(root.join("live/streams/a.webm.damaged")).unwrap(), b"somebody's text");
    }

    #[test]
    fn an_upload_tells_its_duration() {
        let done = finish(&recorded(2)).1.unwrap();
        let head_only = &done[..300];
        for (content, duration_ms) in
            [(&done[..], Some(2000)), (head_only, None), (b"\x1a\x45\xdf\xa3", None)]
        {
            let root = TempFolder::new();
            fs::create_dir_all(root.join("live/streams")).unwrap();
            fs::write(root.join("live/streams/a.webm.tmp_extension"), content).unwrap();
            let path = ["live", "streams", "a.webm"].map(str::to_owned).to_vec();
            let expected = Finished { bytes: content.len() as u64, duration_ms };
            assert_eq!(run(&root, &RecordingWork::Adopt { path }), RecordingOutcome::Finished(expected));
        }
    }
}
