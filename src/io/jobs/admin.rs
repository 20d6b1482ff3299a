//! Administrative work on the disk, outside the store: settings files, folders of applications, the log, certificates.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::FilePaths;
use crate::config::{self, Config, Options};
use crate::io::log;
use crate::jobs::{AdminOutcome, AdminWork};

/// Maximum number of files and folders visited to compute the size of one folder.
const ENTRIES_MAX: usize = 200_000;
/// Maximum depth of folders.
const DEPTH_MAX: usize = 32;

pub(super) fn run(paths: &FilePaths, work: AdminWork) -> AdminOutcome {
    try_run(paths, work).unwrap_or_else(AdminOutcome::Failed)
}

fn try_run(paths: &FilePaths, work: AdminWork) -> Result<AdminOutcome, String> {
    let words = |error: config::Error| error.to_string();
    let options = &paths.options;
    Ok(match work {
        AdminWork::CreateApp(name) => {
            AdminOutcome::App(Box::new(config::create_app(options, &name).map_err(words)?))
        }
        AdminWork::DeleteApp(name) => {
            config::delete_app(options, &name).map_err(words)?;
            AdminOutcome::Done
        }
        AdminWork::EditApp(name, edit) => {
            AdminOutcome::App(Box::new(config::edit_app(options, &name, &edit).map_err(words)?))
        }
        AdminWork::EditServer(edit) => {
            let server = config::edit_server(options, &edit).map_err(words)?;
            log::set_level(server.log.level);
            AdminOutcome::Server(Box::new(server))
        }
        AdminWork::Reload => {
            let config = Config::read(options).map_err(words)?;
            for warning in &config.warnings {
                tracing::warn!("{warning}");
            }
            remember(options, &config);
            log::set_level(config.server.log.level);
            AdminOutcome::Config(Box::new(config))
        }
        AdminWork::Storage(names) => {
            let bytes = |name: &std::sync::Arc<str>| {
                let folder = options.home.join("webapps").join(&**name);
                let mut entries = 0;
                folder_bytes(&folder, 0, &mut entries).and_then(|sum| i64::try_from(sum).ok()).unwrap_or(-1)
            };
            AdminOutcome::Storage(names.iter().map(bytes).collect())
        }
        AdminWork::ReadLog { offset, size, errors } => {
            let name = if errors { "millstream-error.log" } else { "millstream.log" };
            let file = options.home.join("log").join(name);
            match read_part(&file, offset, size) {
                Ok(part) => AdminOutcome::Log(Some(part)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => AdminOutcome::Log(None),
                Err(error) => AdminOutcome::Failed(error.to_string()),
            }
        }
        AdminWork::Certificate { full_chain, chain, key } => {
            paths.certificate.replace(&full_chain, &chain, &key).map_err(|error| error.to_string())?;
            AdminOutcome::Done
        }
    })
}

/// Records the known applications in the home folder, including those whose settings cannot be used. Without this
/// record, an application whose settings file was lost would look like one that never existed.
pub(in crate::io) fn remember(options: &Options, config: &Config) {
    let apps = config.apps.iter().map(|app| &*app.name).chain(config.lost.iter().map(|app| &*app.name));
    if let Err(error) = config::remember(options, apps) {
        tracing::warn!(%error, "list of applications not saved: an application that loses its settings will start with defaults");
    }
}

/// Returns the total size in bytes of the files below a folder; links are not followed.
fn folder_bytes(folder: &Path, depth: usize, entries: &mut usize) -> Option<u64> {
    let mut sum = 0_u64;
    for entry in fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        *entries += 1;
        if *entries > ENTRIES_MAX {
            return None;
        }
        let kind = entry.file_type().ok()?;
        if kind.is_dir() && depth < DEPTH_MAX {
            sum = sum.checked_add(folder_bytes(&entry.path(), depth + 1, entries)?)?;
        } else if kind.is_file() {
            sum = sum.checked_add(entry.metadata().ok()?.len())?;
        }
    }
    Some(sum)
}

/// Reads a part of a file as text. Returns the text and the length of the whole file. Characters that are cut at the
/// edges are replaced.
fn read_part(path: &Path, offset: i64, size: usize) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let start = u64::try_from(offset).unwrap_or_else(|_| length.saturating_sub(size)).min(length);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), length))
}

#[cfg(test)]
mod tests {
    use crate::tests::TempFolder;

    use super::*;

    #[test]
    fn a_part_of_the_log_is_where_it_was_asked_for() {
        let folder = TempFolder::new();
        let path = folder.join("log");
        fs::write(&path, "one two three").unwrap();
        let part = |offset, size| read_part(&path, offset, size).unwrap();
        assert_eq!(part(4, 3), ("two".to_owned(), 13));
        assert_eq!(part(-1, 5), ("three".to_owned(), 13));
        assert_eq!(part(-1, 100).0, "one two three");
        assert_eq!(part(i64::MAX, 5).0, "");
    }

    #[test]
    fn the_bytes_of_a_folder_are_those_of_its_files() {
        let folder = TempFolder::new();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("x"), "123").unwrap();
        fs::write(folder.join("a/b/y"), "4567").unwrap();
        std::os::unix::fs::symlink("/usr", folder.join("out")).unwrap();
        assert_eq!(folder_bytes(&folder, 0, &mut 0), Some(7));
        assert_eq!(folder_bytes(&folder.join("none"), 0, &mut 0), None);
    }
}
