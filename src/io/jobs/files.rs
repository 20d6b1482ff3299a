//! Files below one root folder: opened for reading, created and appended to.
//!
//! A path is followed name by name from the root, and no link is followed. Therefore all files that are read or written
//! are below the root. The only exception is reading from imported folders ([`super::imports`]).

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::FilePaths;
use super::imports::lead_linked;
use crate::io::sys;
use crate::jobs::{
    AppendError, AppendFile, AppendTo, Appended, BlockSource, FileError, OpenedFile, UNFINISHED, numbered,
};

/// Maximum number of folders above a file.
const SEGMENTS_MAX: usize = 32;
/// Number of names of a recording that are tried one after the other. From then on, each attempt doubles the distance to
/// the next name, so that any number of existing files is passed.
const NAMES_IN_ORDER: u64 = 1000;
/// Maximum number of names that are tried for a recording.
const NAMES_MAX: u64 = NAMES_IN_ORDER + 50;
/// Maximum number of slices of one write.
const SLICES: usize = 256;

/// Opens the file with this path below the root.
pub(super) fn open(paths: &FilePaths, segments: &[String]) -> Result<OpenedFile, FileError> {
    let led = lead(&paths.root, segments, open_folder)
        .or_else(|error| lead_linked(paths, segments).unwrap_or(Err(error)));
    open_led(led)
}

/// Opens the answer to an ACME challenge. ACME clients write such answers below the folder that they use as the web
/// root.
pub(super) fn open_challenge(paths: &FilePaths, token: &str) -> Result<OpenedFile, FileError> {
    let root = paths.challenges.as_ref().ok_or(FileError::NotFound)?;
    let segments = [".well-known", "acme-challenge", token].map(str::to_owned);
    // A folder is not an answer to a challenge.
    open_led(lead(root, &segments, open_folder)).map_err(|error| match error {
        FileError::Directory => FileError::NotFound,
        error @ (FileError::NotFound | FileError::Failed) => error,
    })
}

/// Opens the file in the folder that [`lead`] has found.
fn open_led(led: io::Result<(OwnedFd, CString)>) -> Result<OpenedFile, FileError> {
    let found = led.and_then(|(folder, name)| {
        // Without `O_NONBLOCK`, opening a pipe that has no writer would block the thread forever.
        let file = sys::open_beside(folder.as_fd(), &name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        let file = File::from(file);
        Ok((file.metadata()?, file))
    });
    let (metadata, file) = found.map_err(|error| blame(&error))?;
    if metadata.is_dir() {
        return Err(FileError::Directory);
    }
    if !metadata.is_file() {
        return Err(FileError::NotFound);
    }
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Ok(OpenedFile {
        length: metadata.len(),
        modified_ms: seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000),
        tag: format!("{:x}-{seconds:x}-{nanos:x}", metadata.len()),
        file: Arc::new(Served(file)),
    })
}

/// Appends to an open file, or opens or creates the file first.
pub(super) fn append(root: &Path, to: AppendTo, data: &[Bytes]) -> Result<Appended, AppendError> {
    let (file, name): (Arc<dyn AppendFile>, _) = match to {
        AppendTo::Open(file) => (file, None),
        AppendTo::New { path } => (Arc::new(create(root, &path, libc::O_EXCL)?), None),
        AppendTo::Path { path } => (Arc::new(create(root, &path, 0)?), None),
        AppendTo::Recording { path, from } => {
            let (file, name) = create_recording(root, path, from)?;
            (Arc::new(file), Some(name))
        }
    };
    let length = file.append(data)?;
    Ok(Appended { file, length, name })
}

/// Creates an unfinished recording. Returns it, and the name that its file will have when finished.
fn create_recording(
    root: &Path,
    mut path: Vec<String>,
    from: u64,
) -> Result<(OpenForAppend, String), AppendError> {
    let first = path.pop().ok_or(AppendError::Path)?;
    let (mut number, mut distance) = (from, 1_u64);
    for attempt in 0..NAMES_MAX {
        let name = numbered(&first, number);
        path.push(name.clone());
        let is_taken = !matches!(stands(root, &path), Err(error) if error.kind() == io::ErrorKind::NotFound);
        path.pop();
        if !is_taken {
            path.push(format!("{name}{UNFINISHED}"));
            match create(root, &path, libc::O_EXCL) {
                Err(AppendError::Exists) => path.pop(),
                made => return made.map(|file| (file, name)),
            };
        }
        if attempt >= NAMES_IN_ORDER {
            distance = distance.saturating_mul(2);
        }
        number = number.saturating_add(distance);
    }
    Err(AppendError::Exists)
}

/// Succeeds if anything exists at this path.
fn stands(root: &Path, path: &[String]) -> io::Result<()> {
    let (folder, name) = lead(root, path, open_folder)?;
    sys::open_beside(folder.as_fd(), &name, libc::O_PATH).map(drop)
}

/// Opens the file with this path for appending. The file and its folders are created if missing. A new name is synced
/// to disk before the file is used; otherwise a power cut could lose everything written to it.
fn create(root: &Path, segments: &[String], flags: libc::c_int) -> Result<OpenForAppend, AppendError> {
    // Without `O_NONBLOCK`, opening a pipe that has no reader would block the thread forever.
    let flags = flags | libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK;
    let made = lead(root, segments, open_or_make_folder).and_then(|(folder, name)| {
        let file = File::from(sys::open_beside(folder.as_fd(), &name, flags)?);
        if flags & libc::O_EXCL != 0 {
            sync_folder(&folder).inspect_err(|_| drop(sys::remove_beside(folder.as_fd(), &name)))?;
        }
        Ok((file.metadata()?, file))
    });
    let (metadata, file) = made.map_err(|error| blame_append(&error))?;
    if metadata.is_file() { Ok(OpenForAppend(file)) } else { Err(AppendError::Path) }
}

/// Opens the folder that contains the file with this path. Returns the folder and the name of the file.
pub(super) fn lead(
    root: &Path,
    segments: &[String],
    step: impl Fn(&OwnedFd, &CStr) -> io::Result<OwnedFd>,
) -> io::Result<(OwnedFd, CString)> {
    let split = segments.split_last().filter(|(_, folders)| folders.len() < SEGMENTS_MAX);
    let Some((name, folders)) = split else { return Err(nowhere()) };
    let name = checked(name)?;
    let mut folder = OwnedFd::from(OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(root)?);
    for segment in folders {
        folder = step(&folder, &checked(segment)?)?;
    }
    Ok((folder, name))
}

/// Checks one name of a path. The submitter of the job has checked the name already, but security depends on this
/// check.
pub(super) fn checked(name: &str) -> io::Result<CString> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(nowhere());
    }
    CString::new(name).map_err(|_| nowhere())
}

pub(super) fn nowhere() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

pub(super) fn open_folder(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    sys::open_beside(folder.as_fd(), name, libc::O_PATH | libc::O_DIRECTORY)
}

pub(super) fn open_or_make_folder(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    match open_folder(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match sys::make_folder_beside(folder.as_fd(), name) {
        // Another thread may have created the folder in the meantime.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    sync_folder(folder)?;
    open_folder(folder, name)
}

/// Syncs a folder, so that its names are on disk.
pub(super) fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
    let folder = sys::open_beside(folder.as_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY)?;
    File::from(folder).sync_all()
}

fn blame(error: &io::Error) -> FileError {
    if leads_nowhere(error) {
        return FileError::NotFound;
    }
    tracing::warn!(%error, "file not opened");
    FileError::Failed
}

pub(super) fn blame_append(error: &io::Error) -> AppendError {
    match error.raw_os_error() {
        Some(libc::EISDIR) => AppendError::Path,
        Some(libc::EEXIST) => AppendError::Exists,
        Some(libc::ENOSPC | libc::EDQUOT) => AppendError::Full,
        _ if leads_nowhere(error) => AppendError::Path,
        _ => {
            tracing::warn!(%error, "file not written");
            AppendError::Failed
        }
    }
}

/// True for errors that count as not found. ELOOP: the file is a link, which is not followed. EACCES: the server may
/// not use it. ENXIO: the file is a socket.
fn leads_nowhere(error: &io::Error) -> bool {
    let nowhere = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EACCES, libc::ENAMETOOLONG, libc::ENXIO];
    error.raw_os_error().is_some_and(|code| nowhere.contains(&code))
}

/// A file that is open for reading.
#[derive(Debug)]
struct Served(File);

impl BlockSource for Served {
    fn read_block(&self, offset: u64, length: usize) -> Bytes {
        let mut block = BytesMut::zeroed(length);
        match self.0.read_at(&mut block, offset) {
            Ok(count) => {
                block.truncate(count);
                block.freeze()
            }
            Err(error) => {
                tracing::warn!(%error, "file not read");
                Bytes::new()
            }
        }
    }
}

/// A file that is open for appending.
#[derive(Debug)]
struct OpenForAppend(File);

impl AppendFile for OpenForAppend {
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError> {
        let mut slices: Vec<IoSlice<'_>> = data.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            let some = left.get(..SLICES).unwrap_or(left);
            match (&self.0).write_vectored(some) {
                Ok(0) => return Err(AppendError::Full),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(blame_append(&error)),
            }
        }
        Ok(self.0.metadata().map_err(|error| blame_append(&error))?.len())
    }

    fn sync(&self) -> Result<(), AppendError> {
        self.0.sync_data().map_err(|error| blame_append(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::tests::TempFolder;

    use super::*;

    #[test]
    fn h_16_nothing_leads_out_of_the_folder() {
        let home = TempFolder::new();
        let root = home.join("www");
        fs::create_dir_all(root.join("live/streams")).unwrap();
        fs::create_dir_all(home.join("www_secret")).unwrap();
        fs::write(home.join("www_secret/x"), "secret").unwrap();
        fs::write(root.join("live/streams/a.mp4"), "0123456789").unwrap();
        std::os::unix::fs::symlink(home.join("www_secret"), root.join("live/out")).unwrap();
        std::os::unix::fs::symlink(home.join("www_secret/x"), root.join("live/x")).unwrap();
        std::os::unix::fs::symlink("streams/a.mp4", root.join("live/in")).unwrap();
        let paths = FilePaths::of(root.clone());
        let open = |path: &str| open(&paths, &path.split('/').map(str::to_owned).collect::<Vec<_>>());
        for path in [
            "live/out/x",
            "live/x",
            "live/in",
            "live/../www_secret/x",
            "../www_secret/x",
            "live/./streams/a.mp4",
            "live//streams/a.mp4",
            "live/streams/a.mp4/b",
            "live/none",
            "",
        ] {
            assert_eq!(open(path).unwrap_err(), FileError::NotFound, "{path}");
        }
        assert_eq!(open("live/streams").unwrap_err(), FileError::Directory);
        assert_eq!(open(&vec!["a"; 40].join("/")).unwrap_err(), FileError::NotFound);
        let opened = open("live/streams/a.mp4").unwrap();
        assert_eq!((opened.length, opened.file.read_block(3, 4)), (10, Bytes::from_static(b"3456")));
        assert_eq!(opened.file.read_block(10, 4), Bytes::new());
        let pipe = CString::new(root.join("live/pipe").to_str().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(pipe.to_str().unwrap()).status().unwrap().success());
        assert_eq!(open("live/pipe").unwrap_err(), FileError::NotFound);
    }

    #[test]
    fn h_16_what_is_written_lies_in_the_folder_too() {
        let home = TempFolder::new();
        let root = home.join("www");
        fs::create_dir_all(root.join("live")).unwrap();
        fs::create_dir_all(home.join("outside")).unwrap();
        fs::write(home.join("outside/x"), "secret").unwrap();
        std::os::unix::fs::symlink(home.join("outside"), root.join("live/out")).unwrap();
        std::os::unix::fs::symlink(home.join("outside/x"), root.join("live/x")).unwrap();
        std::os::unix::fs::symlink(home.join("outside/none"), root.join("live/none")).unwrap();
        let names = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        let append = |path: &str| append(&root, AppendTo::Path { path: names(path) }, &[Bytes::from("!")]);
        for path in [
            "live/out/y",
            "live/x",
            "live/none",
            "live/../../outside/x",
            "../outside/x",
            "live//a",
            "a/./b",
            "",
        ] {
            assert!(matches!(append(path), Err(AppendError::Path)), "{path}");
        }
        assert!(matches!(append(&vec!["a"; 40].join("/")), Err(AppendError::Path)));
        assert!(matches!(append("live"), Err(AppendError::Path)));
        assert_eq!(fs::read(home.join("outside/x")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(home.join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_grows_by_what_is_appended_and_its_folders_are_made() {
        let root = TempFolder::new();
        let path = || ["live", "streams", "a.flv"].map(str::to_owned).to_vec();
        // More pieces than a single write accepts, some of them empty.
        let pieces: Vec<Bytes> = (0..2000).map(|n| Bytes::from("ab".repeat(n % 3))).collect();
        let total: usize = pieces.iter().map(Bytes::len).sum();
        let first = append(&root, AppendTo::New { path: path() }, &pieces).unwrap();
        assert_eq!(first.length, total as u64);
        let more = append(&root, AppendTo::Open(first.file), &[Bytes::from("end")]).unwrap();
        assert_eq!(more.length, total as u64 + 3);
        assert_eq!(more.file.sync(), Ok(()));
        assert!(matches!(append(&root, AppendTo::New { path: path() }, &[]), Err(AppendError::Exists)));
        let again = append(&root, AppendTo::Path { path: path() }, &[]).unwrap();
        assert_eq!(again.length, total as u64 + 3);
        // A recording gets the first free name from the given number on.
        let from = |from| append(&root, AppendTo::Recording { path: path(), from }, &[Bytes::from("r")]);
        let recording = || from(0).unwrap().name;
        assert_eq!(recording().as_deref(), Some("a_1.flv"));
        std::os::unix::fs::symlink("nowhere", root.join("live/streams/a_2.flv")).unwrap();
        assert_eq!(recording().as_deref(), Some("a_3.flv"));
        assert_eq!(fs::read(root.join("live/streams/a_3.flv.tmp_extension")).unwrap(), b"r");
        assert_eq!(from(7).unwrap().name.as_deref(), Some("a_7.flv"));
        assert_eq!(from(7).unwrap().name.as_deref(), Some("a_8.flv"));
        assert_eq!(
            fs::read(root.join("live/streams/a.flv")).unwrap(),
            [&pieces.concat()[..], b"end"].concat()
        );
    }

    #[test]
    fn any_number_of_existing_files_leaves_a_name_for_the_next_recording() {
        let root = TempFolder::new();
        let streams = root.join("live/streams");
        fs::create_dir_all(&streams).unwrap();
        let there = NAMES_IN_ORDER + 2000;
        (0..there).for_each(|number| fs::write(streams.join(numbered("a.mp4", number)), "").unwrap());
        let path = ["live", "streams", "a.mp4"].map(str::to_owned).to_vec();
        let name = append(&root, AppendTo::Recording { path, from: 0 }, &[]).unwrap().name.unwrap();
        let (first, number) = crate::jobs::series_of(&name);
        assert!(first == "a.mp4" && number >= there, "{name}");
    }
}
