//! Small files that must survive a power cut undamaged: settings, certificates, the list of known applications,
//! copies of the store.
//!
//! A file is first written under a temporary name in the same folder and synced. It is then renamed to its final
//! name, and its folder is synced. If the power is cut before the last step, the old file may remain; after the
//! last step, the new file is in place. Every such write uses [`Disk`], so that a test can cut the power at any
//! step. Media files are written in another way (docs/recording.md).

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The operations needed to write durable files. Only the sync operations guarantee that anything has reached the
/// disk.
pub trait Disk: fmt::Debug {
    /// Writes a file. An existing file is truncated first.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;

    /// Waits until the content of a file has reached the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Renames `from` to `to`. A file that is already named `to` is replaced.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. It is no error if the file is missing.
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

/// The disk of this machine.
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

/// Replaces a whole file. After a power cut, either the old or the new file is in place. Once this function has
/// succeeded, the new file is in place.
///
/// # Errors
/// The system's error. The old file is then still in place, unless only the last sync failed.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    disk.write(&beside, bytes, mode)?;
    put_in_place(disk, &beside, path)
}

/// Renames a file that was written in the same folder to its final name; see [`replace`].
///
/// # Errors
/// The system's error.
pub fn put_in_place(disk: &dyn Disk, beside: &Path, path: &Path) -> io::Result<()> {
    disk.sync(beside)?;
    disk.rename(beside, path)?;
    disk.sync_folder(folder_of(path))
}

/// The outcome of a change that has been committed.
#[derive(Debug)]
pub enum Committed {
    /// Every file is in place.
    InPlace,
    /// Some drafts are not in place yet, for this reason. The next call of [`Together::finish`] or
    /// [`Together::recover`] continues with them.
    Behind(io::Error),
}

/// Files that are replaced together. After a power cut, they are either all old or all new.
///
/// 1. Each file is written as a draft in the folder of its final name ([`Together::begin`], [`Staging::stage`]).
/// 2. A mark is written. From then on the change counts as made ([`Together::commit`]).
/// 3. The drafts are renamed to their final names, and the mark is removed.
///
/// [`Together::recover`] completes the third step, or removes drafts if there is no mark. It must run before the
/// files are read.
#[derive(Debug)]
pub struct Together<'a> {
    disk: &'a dyn Disk,
    files: Vec<&'a Path>,
    mark: PathBuf,
}

impl<'a> Together<'a> {
    /// Makes a set of files. The mark lies in the folder of the first file.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, files: Vec<&'a Path>) -> Self {
        let mark = files.first().map(|first| first.with_added_extension("commit")).unwrap_or_default();
        Self { disk, files, mark }
    }

    /// Returns the path of the draft of a file.
    #[must_use]
    pub fn draft_of(path: &Path) -> PathBuf {
        path.with_added_extension("draft")
    }

    /// Begins a change. First, the removal of an earlier mark is synced: if that mark were still on the disk, only
    /// some of the new drafts might be put in place after a crash.
    ///
    /// # Errors
    /// The system's error. Nothing can be staged then.
    pub fn begin(&self) -> io::Result<Staging<'_>> {
        self.disk.sync_folder(folder_of(&self.mark))?;
        Ok(Staging { disk: self.disk })
    }

    /// Puts all drafts in place. If a step fails after the mark was written, it is retried once here, and later by
    /// [`Together::finish`].
    ///
    /// # Errors
    /// The system's error. The change was not made. If this is uncertain, because the mark or its removal could not
    /// be synced, the text of the error says so.
    pub fn commit(&self) -> io::Result<Committed> {
        let marked = replace(self.disk, &self.mark, b"the drafts beside this file are complete\n", 0o600);
        marked.map_err(|error| self.take_back(&error))?;
        match self.put_drafts_in_place().or_else(|_| self.put_drafts_in_place()) {
            Ok(()) => Ok(Committed::InPlace),
            Err(error) => Ok(Committed::Behind(error)),
        }
    }

    /// Removes a mark that may be on the disk, so that the next start does not complete the change. Returns the
    /// error to report.
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

    /// Removes drafts that were not committed. While the mark may be on the disk, drafts are kept, because
    /// completing the change requires all of them.
    pub fn discard(&self) {
        let drafts = || self.files.iter().map(|path| Self::draft_of(path)).filter(|path| self.disk.has(path));
        if drafts().next().is_none() || self.disk.has(&self.mark) {
            return;
        }
        if self.disk.sync_folder(folder_of(&self.mark)).is_ok() {
            drafts().for_each(|path| drop(self.disk.remove(&path)));
        }
    }

    /// Completes a committed change that was cut off, or undoes a change that was not committed. Returns true if a
    /// change was completed.
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

    /// Puts the drafts of a committed change in place. Returns false if no change was committed. Drafts are then
    /// not touched.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(&self) -> io::Result<bool> {
        if !self.disk.has(&self.mark) {
            return Ok(false);
        }
        // The mark must be on the disk first. Otherwise a power cut could leave the change half made.
        self.disk.sync_folder(folder_of(&self.mark))?;
        self.put_drafts_in_place().map(|()| true)
    }

    fn put_drafts_in_place(&self) -> io::Result<()> {
        for path in &self.files {
            let draft = Self::draft_of(path);
            if self.disk.has(&draft) {
                put_in_place(self.disk, &draft, path)?;
            } else if self.disk.has(path) {
                // An earlier attempt may have renamed the file and then failed.
                self.disk.sync_folder(folder_of(path))?;
            }
        }
        self.disk.remove(&self.mark)?;
        self.disk.sync_folder(folder_of(&self.mark))
    }
}

/// A change of files that belong together, at the stage in which drafts may be written.
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

/// Returns the folder that contains a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}
