//! Small files that must survive a power cut intact: settings, certificates, the list of known applications, copies
//! of the store.
//!
//! A file is written under a temporary name beside its place and synced, then renamed into place, and its folder is
//! synced. After a power cut before the last step the old file may remain; after it, the new one is there. Every
//! such write goes through [`Disk`], so that a test can cut the power anywhere. Media files are written in another
//! way (docs/recording.md).

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The operations needed for durable files. Only the syncs guarantee that anything has reached the disk.
pub trait Disk: fmt::Debug {
    /// Writes a file, new or truncated.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;

    /// Waits until the content of a file has reached the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Renames `from` to `to`. A file that is named `to` already is replaced.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; a missing file is not an error.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// True if a file with this name exists.
    fn has(&self, path: &Path) -> bool;

    /// Waits until the names in a folder have reached the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The disk of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?.write_all(bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn has(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// Replaces a whole file. After a power cut the old or the new file is there; once this has returned, the new one.
///
/// # Errors
/// The system's error. The old file is then in place, unless only the last sync failed.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    disk.write(&beside, bytes, mode)?;
    put_in_place(disk, &beside, path)
}

/// Moves a file written beside its place into place; see [`replace`].
///
/// # Errors
/// The system's error.
pub fn put_in_place(disk: &dyn Disk, beside: &Path, path: &Path) -> io::Result<()> {
    disk.sync(beside)?;
    disk.rename(beside, path)?;
    disk.sync_folder(folder_of(path))
}

/// The outcome of a change that is made.
#[derive(Debug)]
pub enum Committed {
    /// Every file is in place.
    InPlace,
    /// Some drafts are not in place yet, for this reason. The next [`Together::finish`] or [`Together::recover`]
    /// continues.
    Behind(io::Error),
}

/// Files that are replaced together: after a power cut either all are old or all are new.
///
/// 1. Each is written as a draft beside its place ([`Together::begin`], [`Staging::stage`]).
/// 2. A mark is written: from here on the change has happened ([`Together::commit`]).
/// 3. The drafts are renamed into place, and the mark is removed.
///
/// [`Together::recover`] completes the third step, or removes drafts that have no mark. It must run before the
/// files are read.
#[derive(Debug)]
pub struct Together<'a> {
    disk: &'a dyn Disk,
    files: Vec<&'a Path>,
    mark: PathBuf,
}

impl<'a> Together<'a> {
    /// Makes a set of files. The mark is placed beside the first one.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, files: Vec<&'a Path>) -> Self {
        let mark = files.first().map(|first| first.with_added_extension("commit")).unwrap_or_default();
        Self { disk, files, mark }
    }

    /// Returns the path of a file's new version until it is in place.
    #[must_use]
    pub fn draft_of(path: &Path) -> PathBuf {
        path.with_added_extension("draft")
    }

    /// Begins a change. The removal of an earlier mark is synced first: if that mark were still on the disk, a
    /// crash could put only some of the new drafts in place.
    ///
    /// # Errors
    /// The system's error; nothing can be staged.
    pub fn begin(&self) -> io::Result<Staging<'_>> {
        self.disk.sync_folder(folder_of(&self.mark))?;
        Ok(Staging { disk: self.disk })
    }

    /// Puts all drafts in place. A step that fails after the mark is written is retried once, and later by
    /// [`Together::finish`].
    ///
    /// # Errors
    /// The system's error; the change is not made. If this is not certain, because the mark or its removal could
    /// not be synced, the text of the error says so.
    pub fn commit(&self) -> io::Result<Committed> {
        let marked = replace(self.disk, &self.mark, b"the drafts beside this file are complete\n", 0o600);
        marked.map_err(|error| self.take_back(&error))?;
        match self.put_drafts_in_place().or_else(|_| self.put_drafts_in_place()) {
            Ok(()) => Ok(Committed::InPlace),
            Err(error) => Ok(Committed::Behind(error)),
        }
    }

    /// Removes a mark that may be on the disk, so that the next start does not make the change. Returns the error
    /// to report.
    fn take_back(&self, error: &io::Error) -> io::Error {
        let remove =
            || self.disk.remove(&self.mark).and_then(|()| self.disk.sync_folder(folder_of(&self.mark)));
        match remove().or_else(|_| remove()) {
            Ok(()) => io::Error::new(error.kind(), error.to_string()),
            Err(_) => io::Error::new(
                error.kind(),
                format!("{error}; the change could not be taken back, and may be made later"),
            ),
        }
    }

    /// Removes staged files that were not committed. While a mark may be on the disk, drafts are kept, because all
    /// of them are needed to apply it.
    pub fn discard(&self) {
        let drafts = || self.files.iter().map(|path| Self::draft_of(path)).filter(|path| self.disk.has(path));
        if drafts().next().is_none() || self.disk.has(&self.mark) {
            return;
        }
        if self.disk.sync_folder(folder_of(&self.mark)).is_ok() {
            drafts().for_each(|path| drop(self.disk.remove(&path)));
        }
    }

    /// Completes a committed change that was cut off, or undoes an uncommitted one. Returns true if a change was
    /// completed.
    ///
    /// # Errors
    /// The system's error.
    pub fn recover(&self) -> io::Result<bool> {
        let is_finished = self.finish()?;
        if !is_finished {
            self.discard();
        }
        Ok(is_finished)
    }

    /// Puts the drafts of a committed change in place. Returns false if there is none; drafts without a mark are
    /// then left alone.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(&self) -> io::Result<bool> {
        if !self.disk.has(&self.mark) {
            return Ok(false);
        }
        // Without the mark on the disk, a change cut off by a power cut would not be completed.
        self.disk.sync_folder(folder_of(&self.mark))?;
        self.put_drafts_in_place().map(|()| true)
    }

    fn put_drafts_in_place(&self) -> io::Result<()> {
        for path in &self.files {
            let draft = Self::draft_of(path);
            if self.disk.has(&draft) {
                put_in_place(self.disk, &draft, path)?;
            } else if self.disk.has(path) {
                // An earlier attempt may have renamed the file and failed afterwards.
                self.disk.sync_folder(folder_of(path))?;
            }
        }
        self.disk.remove(&self.mark)?;
        self.disk.sync_folder(folder_of(&self.mark))
    }
}

/// A change of files that belong together, while drafts may be written.
#[derive(Debug)]
pub struct Staging<'a> {
    disk: &'a dyn Disk,
}

impl Staging<'_> {
    /// Writes the draft of one of the files.
    ///
    /// # Errors
    /// The system's error.
    pub fn stage(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        replace(self.disk, &Together::draft_of(path), bytes, mode)
    }
}

/// Creates a folder and its missing parents, and waits until their names have reached the disk.
///
/// # Errors
/// The system's error.
pub fn make_folder(disk: &dyn Disk, path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = folder_of(path);
    make_folder(disk, above, mode)?;
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    disk.sync_folder(above)
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}
