//! Small files that must be whole after a power cut: settings, certificates, the list of known applications, copies of the store.
//!
//! A file is written beside its place and synced, renamed into place, and its folder is synced. Until the last step a power cut
//! leaves the old file; after it, the new one. Every such write goes through [`Disk`], so that a test can cut the power anywhere.
//! Media are not written here: recordings have their own way (docs/recording.md).

#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The operations that durable files need. None but the syncs promises that anything is on the disk.
pub trait Disk {
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
