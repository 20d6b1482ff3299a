//! Imported folders. An application's `streams` contains a link to such a folder, which is followed here and nowhere
//! else.
//!
//! A link counts only if it leads into a folder that the operator has listed (`vod.import_folders`). No further link is
//! followed below the imported folder. Only media files are served from it.

use std::ffi::{CString, OsStr};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::FilePaths;
use super::files::{checked, lead, nowhere, open_folder, sync_folder};
use super::recordings::finished;
use crate::jobs::{Finished, ImportOutcome, ImportWork, ImportedFile};

/// Extensions of files that become records, as in Ant Media Server.
const IMPORTED: [&str; 4] = ["mp4", "flv", "mkv", "m3u8"];
/// Extensions of other files that are served, such as the segments of playlists.
const SEGMENTS: [&str; 3] = ["ts", "m4s", "aac"];
/// Maximum number of files of a folder.
const FILES_MAX: usize = 5000;
/// Maximum number of files and folders visited.
const ENTRIES_MAX: usize = 100_000;
/// Maximum depth of folders.
const DEPTH_MAX: usize = 16;
/// The folder of an application that is served.
const STREAMS: &str = "streams";

pub(super) fn run(paths: &FilePaths, work: &ImportWork) -> ImportOutcome {
    let done = match work {
        ImportWork::Link { app, folder } => link(paths, app, folder),
        ImportWork::Unlink { app, folder } => unlink(paths, app, folder),
    };
    done.unwrap_or_else(|error| ImportOutcome::Failed(error.to_string()))
}

/// Opens the folder of a file whose path contains a link to an imported folder. Returns the folder and the file's name.
/// `None` if the path contains no such link.
pub(super) fn lead_linked(paths: &FilePaths, segments: &[String]) -> Option<io::Result<(OwnedFd, CString)>> {
    let ([app, streams, name, ..], Some((file, folders))) = (segments, segments.split_last()) else {
        return None;
    };
    let folders = folders.get(3..)?;
    if streams != STREAMS || folders.len() > DEPTH_MAX || !has_ending(file, IMPORTED.iter().chain(&SEGMENTS))
    {
        return None;
    }
    checked(app).ok()?;
    checked(name).ok()?;
    let target = fs::read_link(paths.root.join(app).join(STREAMS).join(name)).ok()?;
    Some(open_below(&paths.import_folders, &target).and_then(|mut folder| {
        for segment in folders {
            folder = open_folder(&folder, &checked(segment)?)?;
        }
        Ok((folder, checked(file)?))
    }))
}

/// Opens a folder below one of the folders listed in the settings. The path of the listed folder may contain links;
/// from there on, no link is followed.
fn open_below(named: &[PathBuf], target: &Path) -> io::Result<OwnedFd> {
    let (root, below) = split(named, target).ok_or_else(nowhere)?;
    let mut folder = OwnedFd::from(OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(root)?);
    for part in below.components() {
        let Component::Normal(name) = part else { return Err(nowhere()) };
        folder = open_folder(&folder, &CString::new(name.as_bytes())?)?;
    }
    Ok(folder)
}

/// Returns the listed folder that contains a path, and the rest of the path below it.
fn split<'p>(named: &[PathBuf], path: &'p Path) -> Option<(PathBuf, &'p Path)> {
    let roots = named.iter().filter_map(|folder| folder.canonicalize().ok());
    roots.filter_map(|root| path.strip_prefix(&root).ok().map(|below| (root, below))).next()
}

fn link(paths: &FilePaths, app: &str, folder: &str) -> io::Result<ImportOutcome> {
    let asked = paths.options.home.join(folder);
    let Ok(target) = asked.canonicalize() else {
        // The answer must not reveal whether a folder exists outside the listed folders.
        let is_named = |named: &PathBuf| asked.starts_with(named) && !asked.iter().any(|part| part == "..");
        let is_inside = paths.import_folders.iter().any(is_named);
        return Ok(if is_inside { ImportOutcome::Missing } else { ImportOutcome::Outside });
    };
    if split(&paths.import_folders, &target).is_none() {
        return Ok(ImportOutcome::Outside);
    }
    let name = target.file_name().and_then(OsStr::to_str).filter(|name| is_plain(name));
    let Some(name) = name.filter(|_| open_below(&paths.import_folders, &target).is_ok()) else {
        return Ok(ImportOutcome::Missing);
    };
    let (streams, _) = lead(&paths.root, &[app, STREAMS, name].map(str::to_owned), open_folder)?;
    let link = paths.root.join(app).join(STREAMS).join(name);
    if link.symlink_metadata().is_ok() {
        return Ok(ImportOutcome::Taken(name.to_owned()));
    }
    let mut scan = Scan { files: Vec::new(), entries: 0 };
    if !scan.folder(&target, &format!("{STREAMS}/{name}"), 0)? {
        return Ok(ImportOutcome::TooMany);
    }
    match symlink(&target, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(ImportOutcome::Taken(name.to_owned()));
        }
        made => made?,
    }
    sync_folder(&streams)?;
    scan.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(ImportOutcome::Linked(scan.files))
}

fn unlink(paths: &FilePaths, app: &str, folder: &str) -> io::Result<ImportOutcome> {
    let asked = paths.options.home.join(folder);
    // The folder may have been deleted, or may no longer be listed in the settings.
    let target = asked.canonicalize().unwrap_or(asked);
    let Some(name) = target.file_name().and_then(OsStr::to_str) else { return Ok(ImportOutcome::Missing) };
    let (streams, _) = lead(&paths.root, &[app, STREAMS, name].map(str::to_owned), open_folder)?;
    let link = paths.root.join(app).join(STREAMS).join(name);
    if !fs::read_link(&link).is_ok_and(|linked| linked == target) {
        return Ok(ImportOutcome::Missing);
    }
    fs::remove_file(&link)?;
    sync_folder(&streams)?;
    Ok(ImportOutcome::Unlinked(format!("{STREAMS}/{name}/")))
}

/// A search for the files of a folder.
struct Scan {
    files: Vec<ImportedFile>,
    entries: usize,
}

impl Scan {
    /// Adds the files of a folder and of its subfolders. Links and hidden files are skipped. Returns false if there are
    /// too many files.
    fn folder(&mut self, folder: &Path, below: &str, depth: usize) -> io::Result<bool> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            self.entries = self.entries.saturating_add(1);
            if self.entries > ENTRIES_MAX {
                return Ok(false);
            }
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_plain(name)) else { continue };
            let (kind, path) = (entry.file_type()?, format!("{below}/{name}"));
            if kind.is_dir() {
                if depth >= DEPTH_MAX || !self.folder(&entry.path(), &path, depth.saturating_add(1))? {
                    return Ok(false);
                }
            } else if kind.is_file() && has_ending(name, &IMPORTED) {
                if self.files.len() >= FILES_MAX {
                    return Ok(false);
                }
                // A file that the server may not read is not served, so it is left out.
                if let Ok(finished) = look_at(&entry.path()) {
                    self.files.push(ImportedFile { path, finished });
                }
            }
        }
        Ok(true)
    }
}

fn look_at(path: &Path) -> io::Result<Finished> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let bytes = file.metadata()?.len();
    let duration_ms = finished(&file).ok().and_then(|finished| finished.duration_ms);
    Ok(Finished { bytes, duration_ms })
}

/// True if a name may be part of a served path.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.') && !name.chars().any(|c| c.is_control() || c == '\\')
}

fn has_ending<'e>(name: &str, endings: impl IntoIterator<Item = &'e &'e str>) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    endings.into_iter().any(|one| *one == ending)
}

#[cfg(test)]
mod tests;
