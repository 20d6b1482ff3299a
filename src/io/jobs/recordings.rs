//! Finishes recordings: what was written in fragments becomes a plain file with its index first (`fmp4::plain_head`), and is given
//! its name.
//!
//! Whatever a crash leaves behind, the next [`RecordingWork::Finish`] goes on from there: each step is on the disk before the next
//! one begins, and until the last write the file is a fragmented one.
//!
//! 1. Every sample is found again, from the file alone. What follows the last whole fragment is cut off.
//! 2. Where the room in front of the fragments is too small for the index, the file system makes more without moving media
//!    (`FALLOC_FL_INSERT_RANGE`). Where it cannot, the media is copied into a second file.
//! 3. The index is written into the room, and at last the eight bytes that make it count.
//! 4. The file gets its name.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use fmp4::{Indexed, Indexer, Limits, PlainHead, plain_head};

use super::files::{lead, open_folder, sync_folder};
use crate::io::sys;
use crate::jobs::{Finished, RecordingOutcome, RecordingWork, UNFINISHED};

/// What the name of a copy ends with until it is complete.
const COPY: &str = ".tmp_copy";
/// Bytes of the head of a box.
const BOX_HEAD_BYTES: usize = 8;
/// The folder of an application that recordings are in.
const STREAMS: &str = "streams";
/// Files and folders that are looked at for unfinished recordings.
const ENTRIES_MAX: usize = 1_000_000;
/// Unfinished recordings that are found.
const FOUND_MAX: usize = 2_000;
/// Folders above them.
const DEPTH_MAX: usize = 16;
/// Boxes of a plain file that are looked at for its index.
const BOXES_MAX: usize = 64;

pub(super) fn run(root: &Path, work: &RecordingWork) -> RecordingOutcome {
    let done = match work {
        RecordingWork::Finish { path } => {
            finish(root, path, sys::insert_range).map(|finished| match finished {
                Some(finished) => RecordingOutcome::Finished(finished),
                None => RecordingOutcome::Empty,
            })
        }
        RecordingWork::Adopt { path } => adopt(root, path).map(RecordingOutcome::Finished),
        RecordingWork::Find { apps } => Ok(RecordingOutcome::Found(find(root, apps))),
        RecordingWork::Remove { path } => remove(root, path).map(|()| RecordingOutcome::Removed),
    };
    done.unwrap_or_else(|error| RecordingOutcome::Failed(error.to_string()))
}

/// Unfinished recordings in the folders of applications, and below. What cannot be read is passed over; no link is followed.
fn find(root: &Path, apps: &[String]) -> Vec<Vec<String>> {
    let mut folders: Vec<Vec<String>> =
        apps.iter().map(|app| vec![app.clone(), STREAMS.to_owned()]).collect();
    let (mut found, mut entries) = (Vec::new(), 0_usize);
    while let Some(names) = folders.pop() {
        let folder = names.iter().fold(root.to_path_buf(), |folder, name| folder.join(name));
        if !fs::symlink_metadata(&folder).is_ok_and(|folder| folder.is_dir()) {
            continue;
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            entries = entries.saturating_add(1);
            if entries > ENTRIES_MAX || found.len() >= FOUND_MAX {
                tracing::warn!(found = found.len(), "too many files: unfinished recordings may be left");
                return found;
            }
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            let path = |name: &str| names.iter().cloned().chain([name.to_owned()]).collect();
            if kind.is_dir() && names.len() < DEPTH_MAX {
                folders.push(path(&name));
            } else if let Some(name) = name.strip_suffix(UNFINISHED).filter(|_| kind.is_file()) {
                found.push(path(name));
            }
        }
    }
    found
}

/// Makes room in a file: [`sys::insert_range`].
type Insert = fn(std::os::fd::BorrowedFd<'_>, u64, u64) -> io::Result<()>;

/// The folder and the names of a recording.
struct Place {
    folder: OwnedFd,
    name: CString,
    unfinished: CString,
    copy: CString,
}

impl Place {
    fn of(root: &Path, path: &[String]) -> io::Result<Self> {
        let (folder, name) = lead(root, path, open_folder)?;
        let with = |ending: &str| CString::new([name.as_bytes(), ending.as_bytes()].concat());
        Ok(Self { unfinished: with(UNFINISHED)?, copy: with(COPY)?, folder, name })
    }

    fn open(&self, name: &CStr, flags: libc::c_int) -> io::Result<File> {
        let file = File::from(sys::open_beside(self.folder.as_fd(), name, flags | libc::O_NONBLOCK)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Gives what is complete its name; nothing is overwritten.
    fn name_it(&self) -> io::Result<()> {
        sys::rename_beside(self.folder.as_fd(), &self.unfinished, &self.name)?;
        self.sync()
    }

    fn remove(&self, name: &CStr) -> io::Result<()> {
        match sys::remove_beside(self.folder.as_fd(), name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The names reach the disk.
    fn sync(&self) -> io::Result<()> {
        sync_folder(&self.folder)
    }
}

fn remove(root: &Path, path: &[String]) -> io::Result<()> {
    let place = match Place::of(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        place => place?,
    };
    // Once the name is free, another recording may take it: it goes last.
    place.remove(&place.copy)?;
    place.remove(&place.unfinished)?;
    place.remove(&place.name)?;
    place.sync()
}

/// Gives an upload its name. Whatever is in it, that it is all there is enough.
fn adopt(root: &Path, path: &[String]) -> io::Result<Finished> {
    let place = Place::of(root, path)?;
    let file = place.open(&place.unfinished, libc::O_RDONLY)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    let duration_ms = finished(&file).ok().and_then(|finished| finished.duration_ms);
    place.name_it()?;
    Ok(Finished { bytes, duration_ms })
}

/// `None`: there was nothing in it.
fn finish(root: &Path, path: &[String], insert: Insert) -> io::Result<Option<Finished>> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let place = match Place::of(root, path) {
        Err(error) if is_missing(&error) => return Ok(None),
        place => place?,
    };
    let mut file = match place.open(&place.unfinished, libc::O_RDWR) {
        // It had got its name before the crash, or somebody has removed it.
        Err(error) if is_missing(&error) => {
            return match place.open(&place.name, libc::O_RDONLY) {
                Err(error) if is_missing(&error) => Ok(None),
                file => finished(&file?).map(Some),
            };
        }
        file => file?,
    };
    if !is_plain(&file)? {
        let Some(indexed) = index(&file)? else {
            place.remove(&place.unfinished)?;
            return place.sync().map(|()| None);
        };
        file.set_len(indexed.end)?;
        match make_room(&file, &indexed, insert)? {
            Some((head, from)) => switch(&file, &head, from)?,
            None => file = copy(&place, &file, &indexed)?,
        }
    }
    let finished = finished(&file)?;
    place.name_it()?;
    Ok(Some(finished))
}

fn damaged(error: fmp4::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads up to so many bytes; fewer at the end.
fn read(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = BytesMut::zeroed(length);
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.freeze())
}

/// Length and kind of the box at an offset.
fn box_at(file: &File, offset: u64) -> io::Result<(u64, [u8; 4])> {
    let head = read(file, offset, BOX_HEAD_BYTES.saturating_mul(2))?;
    let number = |range: std::ops::Range<usize>| {
        let bytes = head.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok::<u64, io::Error>(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let kind = head.get(4..8).and_then(|kind| kind.try_into().ok()).ok_or(io::ErrorKind::UnexpectedEof)?;
    let short = number(0..4)?;
    Ok((if short == 1 { number(8..16)? } else { short }, kind))
}

/// Whether the index counts already: it is what follows `ftyp`.
fn is_plain(file: &File) -> io::Result<bool> {
    match box_at(file, 0) {
        Ok((from, _)) => Ok(box_at(file, from).is_ok_and(|(_, kind)| kind == *b"moov")),
        // Nothing was written yet.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Every sample; `None`: there is none.
fn index(file: &File) -> io::Result<Option<Indexed>> {
    let mut indexer = Indexer::new(file.metadata()?.len(), Limits::default());
    while let Some((offset, length)) = indexer.wanted() {
        match indexer.take(&read(file, offset, length)?) {
            Ok(()) => {}
            // Not even its head was written.
            Err(fmp4::Error::NoIndex | fmp4::Error::Unfinished { .. }) => return Ok(None),
            Err(error) => return Err(damaged(error)),
        }
    }
    match indexer.finish() {
        Ok(indexed) => Ok(Some(indexed).filter(|indexed| !indexed.tracks.is_empty())),
        Err(fmp4::Error::NoIndex) => Ok(None),
        Err(error) => Err(damaged(error)),
    }
}

/// What is written behind `ftyp`, and where that is, when the room for it is there or could be made.
fn make_room(file: &File, indexed: &Indexed, insert: Insert) -> io::Result<Option<(Bytes, u64)>> {
    let (from, _) = box_at(file, 0)?;
    let block = file.metadata()?.blksize().max(1);
    let mut moved = 0;
    loop {
        let short = match plain_head(indexed, from, moved).map_err(damaged)? {
            PlainHead::Fits(head) => return Ok(Some((head, from))),
            PlainHead::Short(short) => short.next_multiple_of(block),
        };
        if block >= indexed.moov_at || insert(file.as_fd(), block, short).is_err() {
            // What has been inserted already stays: the file is read again when it is copied.
            return Ok(None);
        }
        moved = moved.saturating_add(short);
        // Until now zeros stood where `free` ended.
        let free = indexed.moov_at.saturating_add(moved).saturating_sub(from);
        let free = u32::try_from(free).map_err(|_| io::ErrorKind::FileTooLarge)?;
        file.write_all_at(&free.to_be_bytes(), from)?;
        file.sync_data()?;
    }
}

/// Makes a plain file of it.
fn switch(file: &File, head: &Bytes, from: u64) -> io::Result<()> {
    let (first, rest) = head.split_at_checked(BOX_HEAD_BYTES).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(rest, from.saturating_add(BOX_HEAD_BYTES as u64))?;
    file.sync_data()?;
    file.write_all_at(first, from)?;
    file.sync_data()
}

/// Writes a plain file beside the fragmented one, and puts it in its place, unfinished as well.
fn copy(place: &Place, file: &File, indexed: &Indexed) -> io::Result<File> {
    // Room may have been inserted since.
    let again = index(file)?;
    let indexed = again.as_ref().unwrap_or(indexed);
    let (from, _) = box_at(file, 0)?;
    let block = file.metadata()?.blksize().max(1);
    let mut moved = 0;
    let head = loop {
        match plain_head(indexed, from, moved).map_err(damaged)? {
            PlainHead::Fits(head) => break head,
            // File systems that share blocks do so where they lie alike.
            PlainHead::Short(short) => moved = short.saturating_add(moved).next_multiple_of(block),
        }
    };
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    let mut to = place.open(&place.copy, flags)?;
    let file_type = read(file, 0, usize::try_from(from).unwrap_or(0))?;
    to.write_all_at(&file_type, 0)?;
    to.write_all_at(&head, from)?;
    let (mut media, at) = (file, indexed.moov_at);
    media.seek(SeekFrom::Start(at))?;
    to.seek(SeekFrom::Start(at.saturating_add(moved)))?;
    // Within the kernel, where it can.
    io::copy(&mut media.take(indexed.end.saturating_sub(at)), &mut to)?;
    to.sync_all()?;
    sys::replace_beside(place.folder.as_fd(), &place.copy, &place.unfinished)?;
    place.sync()?;
    Ok(to)
}

/// What a plain file says of itself.
pub(super) fn finished(file: &File) -> io::Result<Finished> {
    let bytes = file.metadata()?.len();
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        let (length, kind) = box_at(file, at)?;
        if kind == *b"moov" {
            let begin = read(file, at.saturating_add(BOX_HEAD_BYTES as u64), 256)?;
            let duration_ms = fmp4::movie_duration_ms(&begin).map_err(damaged)?;
            return Ok(Finished { bytes, duration_ms: Some(duration_ms) });
        }
        at = at.checked_add(length.max(BOX_HEAD_BYTES as u64)).ok_or(io::ErrorKind::InvalidData)?;
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::BorrowedFd;

    use fmp4::{Description, Event, Fragment, FragmentSample, Reader, recording_head};
    use media::Timescale;
    use media::codec::{Codec, CodecConfig};

    use crate::tests::TempFolder;

    use super::*;

    const ROOM: u32 = 64 << 10;

    /// A recorded file of so many fragments, as its sink leaves it.
    fn recorded(fragments: u32) -> Vec<u8> {
        let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
        let track = Description::new(1, config, Timescale::new(48_000));
        let mut file = recording_head(std::slice::from_ref(&track), ROOM).unwrap().to_vec();
        for sequence in 1..=fragments {
            let mut fragment = Fragment::new(sequence);
            let sample = |n: u32| FragmentSample {
                duration: 1024,
                composition: 0,
                key_frame: true,
                payload: Bytes::from(format!("sound {sequence} {n}").repeat(1 + n as usize % 3)),
            };
            fragment.add(&track, u64::from(sequence - 1) * 24 * 1024, (0..24).map(sample).collect());
            file.extend(fragment.write().unwrap().concat());
        }
        file
    }

    /// What a reader finds in a file: the times and the payload of each sample.
    fn samples(file: &[u8]) -> Vec<(i64, Bytes)> {
        let mut reader = Reader::new(Limits::default());
        let mut input = file;
        let mut found = Vec::new();
        while let Some(event) = reader.read(&mut input).unwrap() {
            if let Event::Sample(sample) = event {
                found.push((sample.dts, sample.payload));
            }
        }
        reader.finish().unwrap();
        found
    }

    fn refuse(_: BorrowedFd<'_>, _: u64, _: u64) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    struct Folder(TempFolder);

    impl Folder {
        fn new(unfinished: &[u8]) -> Self {
            let root = TempFolder::new();
            fs::create_dir_all(root.join("live/streams")).unwrap();
            fs::write(root.join("live/streams/a.mp4.tmp_extension"), unfinished).unwrap();
            Self(root)
        }

        fn path() -> Vec<String> {
            ["live", "streams", "a.mp4"].map(str::to_owned).to_vec()
        }

        fn finish(&self, insert: Insert) -> Option<Finished> {
            finish(&self.0, &Self::path(), insert).unwrap()
        }

        fn read(&self) -> Vec<u8> {
            fs::read(self.0.join("live/streams/a.mp4")).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.0.join("live/streams")).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    fn is_index_first(file: &[u8]) -> bool {
        let from = u32::from_be_bytes(file[..4].try_into().unwrap()) as usize;
        &file[from + 4..from + 8] == b"moov"
    }

    #[test]
    fn a_recording_becomes_a_plain_file_with_its_index_first() {
        // In the room, in room that the file system makes, in a copy.
        for (fragments, insert) in
            [(3, sys::insert_range as Insert), (1500, sys::insert_range), (1500, refuse), (0, refuse)]
        {
            let file = recorded(fragments);
            let folder = Folder::new(&file);
            let finished = folder.finish(insert);
            if fragments == 0 {
                assert!(finished.is_none() && folder.names().is_empty());
                continue;
            }
            let finished = finished.unwrap();
            assert_eq!(folder.names(), ["a.mp4"]);
            let plain = folder.read();
            assert_eq!((finished.bytes, is_index_first(&plain)), (plain.len() as u64, true));
            assert_eq!(finished.duration_ms, Some(u64::from(fragments) * 24 * 1024 * 1000 / 48_000));
            assert!(samples(&plain) == samples(&file), "{fragments}");
        }
    }

    #[test]
    fn a_crash_in_any_step_is_gone_on_from() {
        let file = recorded(1500);
        let expected = samples(&file);
        let check = |folder: &Folder, what: &str| {
            assert!(folder.finish(sys::insert_range).is_some(), "{what}");
            assert!(samples(&folder.read()) == expected && folder.names() == ["a.mp4"], "{what}");
        };
        let room = ROOM as usize;
        // Torn: the last fragment is not whole.
        let torn = [&file[..], &recorded(1)[room..][..900]].concat();
        check(&Folder::new(&torn), "torn");
        // Room is made; `free` does not have it yet, or has it.
        let gap = [&file[..4096], &[0; 262_144], &file[4096..]].concat();
        check(&Folder::new(&gap), "gap");
        let mut told = gap.clone();
        let from = u32::from_be_bytes(file[..4].try_into().unwrap()) as usize;
        told[from..from + 4].copy_from_slice(&u32::try_from(room + 262_144 - from).unwrap().to_be_bytes());
        check(&Folder::new(&told), "told");
        // The index is there, but for what makes it count; then it counts, and has no name.
        let folder = Folder::new(&file);
        folder.finish(sys::insert_range).unwrap();
        let plain = folder.read();
        let mut almost = plain.clone();
        almost[from..from + 8].copy_from_slice(&told[from..from + 8]);
        let grown = plain.len() - file.len() + room - from;
        almost[from..from + 4].copy_from_slice(&u32::try_from(grown).unwrap().to_be_bytes());
        check(&Folder::new(&almost), "almost");
        check(&Folder::new(&plain), "plain");
        // A copy was begun; the name was given.
        let folder = Folder::new(&file);
        fs::write(folder.0.join("live/streams/a.mp4.tmp_copy"), vec![7; 9_000_000]).unwrap();
        assert!(folder.finish(refuse).is_some() && folder.names() == ["a.mp4"]);
        // The copy is in the place of the fragmented file, and has no name yet.
        fs::rename(folder.0.join("live/streams/a.mp4"), folder.0.join("live/streams/a.mp4.tmp_extension"))
            .unwrap();
        assert!(folder.finish(refuse).is_some() && folder.names() == ["a.mp4"]);
        let before = folder.read();
        assert!(folder.finish(refuse).is_some(), "it is finished already");
        assert!(folder.read() == before && samples(&before) == expected);
    }

    #[test]
    fn an_upload_gets_its_name_whatever_is_in_it() {
        let folder = Folder::new(&recorded(3));
        folder.finish(sys::insert_range);
        let plain = folder.read();
        for (content, duration_ms) in
            [(&plain[..], Some(3 * 24 * 1024 * 1000 / 48_000)), (b"no film", None), (b"", None)]
        {
            let folder = Folder::new(content);
            let finished = adopt(&folder.0, &Folder::path()).unwrap();
            assert_eq!(finished, Finished { bytes: content.len() as u64, duration_ms });
            assert!(folder.read() == content && folder.names() == ["a.mp4"]);
            assert!(adopt(&folder.0, &Folder::path()).is_err(), "there is none any more");
        }
        let folder = Folder::new(b"new");
        std::os::unix::fs::symlink("/etc/passwd", folder.0.join("live/streams/a.mp4")).unwrap();
        assert!(adopt(&folder.0, &Folder::path()).is_err(), "nothing is overwritten");
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_finished_or_empty() {
        let file = recorded(3);
        let (room, whole) = (ROOM as usize, samples(&file).len());
        let cuts = (0..64).chain((room - 64..file.len()).step_by(7));
        let mut found = Vec::new();
        for cut in cuts {
            let folder = Folder::new(&file[..cut]);
            found.push(match folder.finish(refuse) {
                Some(finished) => {
                    assert!(finished.bytes > 0 && folder.names() == ["a.mp4"], "{cut}");
                    samples(&folder.read()).len()
                }
                None => {
                    assert!(folder.names().is_empty(), "{cut}");
                    0
                }
            });
        }
        found.dedup();
        assert_eq!(found, [0, whole / 3, whole / 3 * 2]);
    }

    #[test]
    fn unfinished_recordings_are_found_wherever_they_are() {
        let folder = Folder::new(&recorded(1));
        let streams = folder.0.join("live/streams");
        fs::create_dir_all(streams.join("a/b")).unwrap();
        fs::write(streams.join("a/b/c.mp4.tmp_extension"), "").unwrap();
        fs::write(streams.join("whole.mp4"), "").unwrap();
        fs::write(folder.0.join("live/x.mp4.tmp_extension"), "").unwrap();
        std::os::unix::fs::symlink("a.mp4.tmp_extension", streams.join("link.mp4.tmp_extension")).unwrap();
        std::os::unix::fs::symlink("a", streams.join("folder")).unwrap();
        fs::create_dir_all(folder.0.join("other")).unwrap();
        std::os::unix::fs::symlink(&streams, folder.0.join("other/streams")).unwrap();
        let apps = ["live", "other", "none"].map(str::to_owned).to_vec();
        let RecordingOutcome::Found(found) = run(&folder.0, &RecordingWork::Find { apps }) else { panic!() };
        let mut found: Vec<_> = found.iter().map(|path| path.join("/")).collect();
        found.sort();
        assert_eq!(found, ["live/streams/a.mp4", "live/streams/a/b/c.mp4"]);
    }

    #[test]
    fn what_is_there_is_not_overwritten_and_what_is_gone_is_no_fault() {
        let folder = Folder::new(&recorded(2));
        fs::write(folder.0.join("live/streams/a.mp4"), "somebody's").unwrap();
        assert!(finish(&folder.0, &Folder::path(), refuse).is_err());
        assert_eq!(folder.read(), b"somebody's");
        remove(&folder.0, &Folder::path()).unwrap();
        assert!(folder.names().is_empty());
        remove(&folder.0, &Folder::path()).unwrap();
        assert!(folder.finish(refuse).is_none());
        let nowhere = ["live", "gone", "a.mp4"].map(str::to_owned);
        assert!(finish(&folder.0, &nowhere, refuse).unwrap().is_none());
        let damaged = Folder::new(&[&recorded(1)[..ROOM as usize], &[0xff; 4096]].concat());
        assert!(matches!(
            run(&damaged.0, &RecordingWork::Finish { path: Folder::path() }),
            RecordingOutcome::Empty | RecordingOutcome::Failed(_)
        ));
    }
}
