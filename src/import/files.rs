//! Files of the old installation. Recordings are hard-linked, so that they take no extra space. Pages and certificates
//! are copied, because they may be edited in place. Symbolic links are not followed, and no file of the old
//! installation is opened for writing.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::report::Report;
use crate::disk::{self, SystemDisk};

/// Maximum number of files in a folder and its subfolders.
const FILES_MAX: usize = 1_000_000;
/// Maximum number of levels of subfolders.
const DEPTH_MAX: usize = 16;
/// Extension of a file that is still being copied.
const PARTIAL: &str = "import-partial";

/// The way in which files are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bring {
    /// Make a hard link, or a copy if the file system cannot make the link.
    Link,
    /// Make a copy.
    Copy,
}

/// Counts of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Brought {
    pub(super) linked: usize,
    pub(super) copied: usize,
    /// Number of files that were not imported because they already existed in the home.
    pub(super) left: usize,
}

impl Brought {
    pub(super) const fn add(&mut self, other: Self) {
        self.linked += other.linked;
        self.copied += other.copied;
        self.left += other.left;
    }
}

/// A folder to import.
pub(super) struct Folder<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    pub(super) bring: Bring,
    pub(super) dry_run: bool,
    /// Name in the report.
    pub(super) place: &'a str,
    /// Returns true if the file or folder with this path below `from` is skipped.
    pub(super) is_skipped: &'a dyn Fn(&[String]) -> bool,
}

impl fmt::Debug for Folder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}

impl Folder<'_> {
    /// Imports all files of the folder and its subfolders whose path `wanted` accepts.
    pub(super) fn bring(
        &self,
        wanted: &dyn Fn(&[String], &mut Report) -> bool,
        report: &mut Report,
    ) -> Brought {
        let mut files = Vec::new();
        self.look(&mut Vec::new(), &mut files, report);
        files.sort();
        let mut all = Brought::default();
        for names in files {
            if wanted(&names, report) {
                all.add(self.bring_one(&names, report));
            }
        }
        all
    }

    fn look(&self, names: &mut Vec<String>, found: &mut Vec<Vec<String>>, report: &mut Report) {
        let folder = below(self.from, names);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return report.fail(self.place, &folder.display().to_string(), error.to_string()),
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                report.add(
                    self.place,
                    &entry.file_name().to_string_lossy(),
                    "its name is not UTF-8: it is left out",
                );
                continue;
            };
            names.push(name);
            match entry.file_type() {
                Ok(_) if (self.is_skipped)(names) => {}
                Ok(kind) if kind.is_symlink() => {
                    report.add(
                        self.place,
                        &names.join("/"),
                        "a link: it is not followed; of a folder, import that here",
                    );
                }
                Ok(kind) if kind.is_dir() && names.len() < DEPTH_MAX => self.look(names, found, report),
                Ok(kind) if kind.is_file() && found.len() < FILES_MAX => found.push(names.clone()),
                Ok(kind) if kind.is_file() || kind.is_dir() => {
                    report.fail(self.place, &names.join("/"), "too many files, or folders within folders");
                }
                Ok(_) => report.add(self.place, &names.join("/"), "no file"),
                Err(error) => report.fail(self.place, &names.join("/"), error.to_string()),
            }
            names.pop();
        }
    }

    fn bring_one(&self, names: &[String], report: &mut Report) -> Brought {
        let (from, to) = (below(self.from, names), below(self.to, names));
        match bring(&from, &to, self.bring, self.dry_run) {
            Ok(brought) => {
                let differs = brought.left > 0 && length(&from) != length(&to);
                if differs {
                    report.add(
                        self.place,
                        &names.join("/"),
                        "another file of this name is here, and is left",
                    );
                }
                brought
            }
            Err(error) => {
                report.fail(self.place, &names.join("/"), format!("not taken: {error}"));
                Brought::default()
            }
        }
    }
}

fn below(folder: &Path, names: &[String]) -> PathBuf {
    names.iter().fold(folder.to_path_buf(), |path, name| path.join(name))
}

fn length(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.len())
}

/// Imports a file, unless the home already has a file of that name.
pub(super) fn bring(from: &Path, to: &Path, how: Bring, dry_run: bool) -> io::Result<Brought> {
    let linked = Brought { linked: 1, ..Brought::default() };
    let copied = Brought { copied: 1, ..Brought::default() };
    match fs::symlink_metadata(to) {
        Ok(_) => return Ok(Brought { left: 1, ..Brought::default() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    if dry_run {
        // A dry run also checks that the file can be read.
        File::open(from)?;
        return Ok(if how == Bring::Link { linked } else { copied });
    }
    let folder = to.parent().unwrap_or(to);
    disk::make_folder(&SystemDisk, folder, 0o755)?;
    if how == Bring::Link && fs::hard_link(from, to).is_ok() {
        return File::open(folder)?.sync_all().map(|()| linked);
    }
    copy(from, to)?;
    Ok(copied)
}

/// Copies a file. The copy has a temporary name until all its bytes are on the disk.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut source = options.read(true).custom_flags(libc::O_NOFOLLOW).open(from)?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&source.metadata()?.permissions());
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{PARTIAL}"));
    let beside = to.with_file_name(name);
    let mut options = OpenOptions::new();
    let target = options.write(true).create(true).truncate(true).mode(mode & 0o644).open(&beside);
    let copied = target.and_then(|mut target| {
        io::copy(&mut source, &mut target)?;
        // The modification time is kept, because players and lists show it.
        target.set_modified(source.metadata()?.modified()?)
    });
    copied.and_then(|()| disk::put_in_place(&SystemDisk, &beside, to)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}
