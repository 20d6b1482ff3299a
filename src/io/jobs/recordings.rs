//! Finishes recordings: a file that was written in fragments becomes a seekable file (`mp4`, `webm`) and gets its final
//! name.
//!
//! After a crash, the next [`RecordingWork::Finish`] continues. Each step is on the disk before the next one begins,
//! and until the last write the file is still as its sink wrote it.
//!
//! 1. The content is determined from the file alone. A fragment torn by a crash is cut off.
//! 2. The index is written, and after it the few bytes that make it valid.
//! 3. The file is renamed to its final name.

mod mp4;
#[cfg(test)]
mod power_cuts;
#[cfg(test)]
mod tests;
mod webm;

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::{Bytes, BytesMut};

use super::files::{lead, open_folder, sync_folder};
use crate::io::sys;
use crate::jobs::{Finished, RecordingOutcome, RecordingWork, UNFINISHED};

/// Suffix of the name of a copy until the copy is complete.
const COPY: &str = ".tmp_copy";
/// The folder of an application that holds recordings.
const STREAMS: &str = "streams";
/// Maximum number of files and folders visited when searching for unfinished recordings.
const ENTRIES_MAX: usize = 1_000_000;
/// Maximum number of unfinished recordings found.
const FOUND_MAX: usize = 2_000;
/// Maximum depth of folders above an unfinished recording.
const DEPTH_MAX: usize = 16;
/// Maximum number of boxes or elements examined to find a file's duration.
const BOXES_MAX: usize = 64;
/// Number of bytes at the beginning of a file that identify its format.
const FIRST_BYTES: usize = 256;
/// Extension of WebM files. All other recordings are MP4.
const WEBM: &str = ".webm";
/// Suffix of the name of a file that cannot be finished.
const DAMAGED: &str = ".damaged";
/// Maximum size of a torn fragment that may be cut off. It is larger than any fragment that a sink writes:
/// up to 8 MiB, plus the units until the next key frame.
const CUT_BYTES_MAX: u64 = 32 << 20;
/// Number of bytes that are checked for zeros at a time.
const ZEROS_AT_ONCE: usize = 1 << 20;
/// Maximum number of damaged files kept under one name.
const SET_ASIDE_MAX: u32 = 1000;

pub(super) fn run(root: &Path, work: &RecordingWork) -> RecordingOutcome {
    let done = match work {
        RecordingWork::Finish { path } => {
            finish(root, path, sys::insert_range).map(|finished| match finished {
                Finish::Done(finished) => RecordingOutcome::Finished(finished),
                Finish::Nothing => RecordingOutcome::Empty,
                Finish::SetAside(name) => RecordingOutcome::SetAside(name),
            })
        }
        RecordingWork::Adopt { path } => adopt(root, path).map(RecordingOutcome::Finished),
        RecordingWork::Find { apps } => Ok(RecordingOutcome::Found(find(root, apps))),
        RecordingWork::Remove { path } => remove(root, path).map(|()| RecordingOutcome::Removed),
    };
    done.unwrap_or_else(|error| RecordingOutcome::Failed(error.to_string()))
}

/// Finds unfinished recordings in the folders of applications and their subfolders. Folders that cannot be read are
/// skipped, and links are not followed.
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
                tracing::warn!(
                    found = found.len(),
                    "search for unfinished recordings stopped: too many files"
                );
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

/// A function that makes room in a file, such as [`sys::insert_range`].
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

    /// Renames a complete recording to its final name. No other file is overwritten.
    fn name_it(&self) -> io::Result<()> {
        sys::rename_beside(self.folder.as_fd(), &self.unfinished, &self.name)?;
        self.sync()
    }

    /// Renames a file that cannot be finished to a name that says so. No other file is overwritten. Returns the new
    /// name.
    fn set_aside(&self) -> io::Result<String> {
        for number in 0..SET_ASIDE_MAX {
            let number = if number == 0 { String::new() } else { format!(".{number}") };
            let ending = format!("{number}{DAMAGED}");
            let name = CString::new([self.name.as_bytes(), ending.as_bytes()].concat())?;
            match sys::rename_beside(self.folder.as_fd(), &self.unfinished, &name) {
                Ok(()) => {
                    self.sync()?;
                    return Ok(name.to_string_lossy().into_owned());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn remove(&self, name: &CStr) -> io::Result<()> {
        match sys::remove_beside(self.folder.as_fd(), name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Syncs the folder, so that the names of its files are on disk.
    fn sync(&self) -> io::Result<()> {
        sync_folder(&self.folder)
    }
}

fn remove(root: &Path, path: &[String]) -> io::Result<()> {
    let place = match Place::of(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        place => place?,
    };
    // The final name is removed last, because another recording may take it from then on.
    place.remove(&place.copy)?;
    place.remove(&place.unfinished)?;
    place.remove(&place.name)?;
    place.sync()
}

/// Renames a complete upload to its final name, whatever its content is.
fn adopt(root: &Path, path: &[String]) -> io::Result<Finished> {
    let place = Place::of(root, path)?;
    let file = place.open(&place.unfinished, libc::O_RDONLY)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    let duration_ms = finished(&file).ok().and_then(|finished| finished.duration_ms);
    place.name_it()?;
    Ok(Finished { bytes, duration_ms })
}

/// The outcome of finishing a recording.
enum Finish {
    Done(Finished),
    /// No media was written; the file is removed.
    Nothing,
    /// The file contains data but is not a recording. It is kept under this name.
    SetAside(String),
}

/// The result of making an unfinished file complete.
enum Complete {
    /// A file that can be played.
    File(File),
    /// The file is empty, or contains only the head of a recording.
    Nothing,
    /// The file is not a recording.
    Junk,
}

fn finish(root: &Path, path: &[String], insert: Insert) -> io::Result<Finish> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let place = match Place::of(root, path) {
        Err(error) if is_missing(&error) => return Ok(Finish::Nothing),
        place => place?,
    };
    let file = match place.open(&place.unfinished, libc::O_RDWR) {
        // The file was renamed before a crash, or was removed by hand.
        Err(error) if is_missing(&error) => {
            return match place.open(&place.name, libc::O_RDONLY) {
                Err(error) if is_missing(&error) => Ok(Finish::Nothing),
                file => finished(&file?).map(Finish::Done),
            };
        }
        file => file?,
    };
    let is_webm = path.last().is_some_and(|name| name.ends_with(WEBM));
    let complete = if is_webm { webm::complete(file) } else { mp4::complete(&place, file, insert) };
    let file = match complete {
        Ok(Complete::File(file)) => file,
        Ok(Complete::Nothing) => {
            place.remove(&place.unfinished)?;
            return place.sync().map(|()| Finish::Nothing);
        }
        Ok(Complete::Junk) => return place.set_aside().map(Finish::SetAside),
        // A retry would give the same result.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return place.set_aside().map(Finish::SetAside);
        }
        Err(error) => return Err(error),
    };
    let finished = finished(&file)?;
    // An earlier run may have made the last change without syncing it to the disk.
    file.sync_all()?;
    place.name_it()?;
    Ok(Finish::Done(finished))
}

/// True if everything from an offset on may be cut off. This is the case for zeros, which a power cut may leave, and
/// for a single last fragment, which a crash may have torn.
fn may_be_cut(file: &File, from: u64, is_fragment: bool) -> io::Result<bool> {
    let rest = file.metadata()?.len().saturating_sub(from);
    Ok(is_fragment && rest <= CUT_BYTES_MAX || is_zero(file, from)?)
}

/// True if all bytes from an offset on are zero.
fn is_zero(file: &File, from: u64) -> io::Result<bool> {
    let mut at = from;
    loop {
        let bytes = read(file, at, ZEROS_AT_ONCE)?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at = at.saturating_add(bytes.len() as u64);
    }
}

/// Reads up to `length` bytes, fewer at the end of the file.
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

/// Returns the properties of a finished file.
pub(super) fn finished(file: &File) -> io::Result<Finished> {
    let bytes = file.metadata()?.len();
    let is_webm = ::webm::is_webm(&read(file, 0, FIRST_BYTES)?);
    let duration_ms = if is_webm { webm::duration_ms(file)? } else { Some(mp4::duration_ms(file)?) };
    Ok(Finished { bytes, duration_ms })
}

/// Returns the properties of a file with any content. The duration is `None` if it cannot be read.
pub(in crate::io) fn finished_or_unknown(file: &File, bytes: u64) -> Finished {
    finished(file).unwrap_or(Finished { bytes, duration_ms: None })
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
