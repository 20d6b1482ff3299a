//! Small files that must be whole after a power cut: settings, certificates, the list of known applications, copies of the store.
//!
//! A file is written beside its place and synced, renamed into place, and its folder is synced. Until the last step a power cut
//! leaves the old file; after it, the new one. Every such write goes through [`Disk`], so that a test can cut the power anywhere.
//! Media are not written here: recordings have their own way (docs/recording.md).

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The operations that durable files need. None but the syncs promises that anything is on the disk.
pub trait Disk: fmt::Debug {
    /// Writes a file, new or truncated.
    ///
    /// # Errors
    /// The system's error.
    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()>;

    /// Waits until the content of a file is on the disk.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Renames a file; one that has the new name is replaced.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// True if there is a file of this name.
    fn has(&self, path: &Path) -> bool;

    /// Waits until the names in a folder are on the disk.
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

/// Writes a file whole: after a power cut it is the old one or the new one, and the new one once this has returned.
///
/// # Errors
/// The system's error; the old file is in place then, unless only the last sync has failed.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    disk.write(&beside, bytes, mode)?;
    put_in_place(disk, &beside, path)
}

/// Renames a file written beside its place into place. See [`replace`].
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
    /// Some drafts are not in place, for this reason: the next [`Together::finish`] or [`Together::recover`] goes on.
    Behind(io::Error),
}

/// Files that change together: after a power cut all of them are old or all are new.
///
/// 1. Each is written as a draft beside its place ([`Together::begin`], [`Staging::stage`]).
/// 2. A mark is written: from here on the change has happened ([`Together::commit`]).
/// 3. The drafts are renamed into place, and the mark is removed.
///
/// [`Together::recover`] does what is left of the third step, or removes drafts without a mark. It comes before the files are read.
#[derive(Debug)]
pub struct Together<'a> {
    disk: &'a dyn Disk,
    files: Vec<&'a Path>,
    mark: PathBuf,
}

impl<'a> Together<'a> {
    /// The files; the mark lies beside the first one.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, files: Vec<&'a Path>) -> Self {
        let mark = files.first().map(|first| first.with_added_extension("commit")).unwrap_or_default();
        Self { disk, files, mark }
    }

    /// The path that the new version of a file has until it is in place.
    #[must_use]
    pub fn draft_of(path: &Path) -> PathBuf {
        path.with_added_extension("draft")
    }

    /// Begins a change. The removal of an earlier mark is synced first: drafts that are staged while one may be on the disk could be put in
    /// place half.
    ///
    /// # Errors
    /// The system's error; nothing can be staged.
    pub fn begin(&self) -> io::Result<Staging<'_>> {
        self.disk.sync_folder(folder_of(&self.mark))?;
        Ok(Staging { disk: self.disk })
    }

    /// Puts every draft in place. What fails behind the mark is tried once more; then [`Together::finish`] goes on later.
    ///
    /// # Errors
    /// The system's error. The change is not made; its text says so where even that is not sure, because the mark, or its removal,
    /// could not be synced.
    pub fn commit(&self) -> io::Result<Committed> {
        let marked = replace(self.disk, &self.mark, b"the drafts beside this file are complete\n", 0o600);
        marked.map_err(|error| self.take_back(&error))?;
        match self.put_drafts_in_place().or_else(|_| self.put_drafts_in_place()) {
            Ok(()) => Ok(Committed::InPlace),
            Err(error) => Ok(Committed::Behind(error)),
        }
    }

    /// Removes a mark that may be on the disk, so that the next start does not make the change. Returns the error to report.
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

    /// Removes staged files that were not committed. Drafts stay while a mark may be on the disk, because with it only all of them fit.
    pub fn discard(&self) {
        let drafts = || self.files.iter().map(|path| Self::draft_of(path)).filter(|path| self.disk.has(path));
        if drafts().next().is_none() || self.disk.has(&self.mark) {
            return;
        }
        if self.disk.sync_folder(folder_of(&self.mark)).is_ok() {
            drafts().for_each(|path| drop(self.disk.remove(&path)));
        }
    }

    /// Ends a change that was cut off: it is finished when it was committed, and else undone. Whether it was finished now.
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

    /// Puts the drafts of a committed change in place. Returns false if there is none, and leaves drafts without a mark alone.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(&self) -> io::Result<bool> {
        if !self.disk.has(&self.mark) {
            return Ok(false);
        }
        // A mark that is not on the disk would not finish what the power cuts off.
        self.disk.sync_folder(folder_of(&self.mark))?;
        self.put_drafts_in_place().map(|()| true)
    }

    fn put_drafts_in_place(&self) -> io::Result<()> {
        for path in &self.files {
            let draft = Self::draft_of(path);
            if self.disk.has(&draft) {
                put_in_place(self.disk, &draft, path)?;
            } else if self.disk.has(path) {
                // An earlier try may have renamed it, and failed behind that.
                self.disk.sync_folder(folder_of(path))?;
            }
        }
        self.disk.remove(&self.mark)?;
        self.disk.sync_folder(folder_of(&self.mark))
    }
}

/// A change of files that belong together, for which drafts may be written.
#[derive(Debug)]
pub struct Staging<'a> {
    disk: &'a dyn Disk,
}

impl Staging<'_> {
    /// Writes the new version of one of the files beside its place.
    ///
    /// # Errors
    /// The system's error.
    pub fn stage(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        replace(self.disk, &Together::draft_of(path), bytes, mode)
    }
}

/// Makes a folder, and those above it, and waits until their names are on the disk.
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
