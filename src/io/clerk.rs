//! The clerk's thread: does the errands of control on the disk, one after the other.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::log;
use super::office::{Desk, OfficeMail};
use super::tls::CertificateFiles;
use crate::config::{self, Config, Options};
use crate::control::{Errand, ErrandAnswer, ErrandRequest, ErrandResult};

/// Files and folders that are looked at for one sum.
const ENTRIES_MAX: usize = 200_000;
/// Folders within folders.
const DEPTH_MAX: usize = 32;

/// Starts the thread. Dropping the sender ends it.
pub(super) fn start(
    options: Options,
    certificate: CertificateFiles,
    desk: Desk,
) -> io::Result<Sender<ErrandRequest>> {
    let (requests, queue) = channel();
    let clerk = Clerk { options, certificate };
    thread::Builder::new().name("clerk".into()).spawn(move || clerk.run(&queue, &desk))?;
    Ok(requests)
}

struct Clerk {
    options: Options,
    certificate: CertificateFiles,
}

impl Clerk {
    fn run(&self, queue: &Receiver<ErrandRequest>, desk: &Desk) {
        while let Ok(ErrandRequest { id, errand }) = queue.recv() {
            let result = self.run_errand(errand).unwrap_or_else(ErrandResult::Failed);
            desk.send(OfficeMail::Errand(ErrandAnswer { id, result }));
        }
    }

    fn run_errand(&self, errand: Errand) -> Result<ErrandResult, String> {
        let words = |error: config::Error| error.to_string();
        let options = &self.options;
        Ok(match errand {
            Errand::CreateApp(name) => {
                ErrandResult::App(Box::new(config::create_app(options, &name).map_err(words)?))
            }
            Errand::DeleteApp(name) => {
                let folder = options.home.join("webapps").join(&*name);
                match fs::remove_dir_all(&folder) {
                    Ok(()) => ErrandResult::Done,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => ErrandResult::Done,
                    Err(error) => ErrandResult::Failed(format!("{}: {error}", folder.display())),
                }
            }
            Errand::EditApp(name, edit) => {
                ErrandResult::App(Box::new(config::edit_app(options, &name, &edit).map_err(words)?))
            }
            Errand::EditServer(edit) => {
                let server = config::edit_server(options, &edit).map_err(words)?;
                log::set_level(server.log_level);
                ErrandResult::Server(Box::new(server))
            }
            Errand::Reload => {
                let config = Config::read(options).map_err(words)?;
                for warning in &config.warnings {
                    tracing::warn!("{warning}");
                }
                log::set_level(config.server.log_level);
                ErrandResult::Config(Box::new(config))
            }
            Errand::Storage(names) => {
                let bytes = |name: &std::sync::Arc<str>| {
                    let folder = options.home.join("webapps").join(&**name);
                    let mut entries = 0;
                    folder_bytes(&folder, 0, &mut entries)
                        .and_then(|sum| i64::try_from(sum).ok())
                        .unwrap_or(-1)
                };
                ErrandResult::Storage(names.iter().map(bytes).collect())
            }
            Errand::ReadLog { offset, size } => {
                let file = options.home.join("log").join("millstream.log");
                match read_part(&file, offset, size) {
                    Ok(part) => ErrandResult::Log(Some(part)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => ErrandResult::Log(None),
                    Err(error) => ErrandResult::Failed(error.to_string()),
                }
            }
            Errand::Certificate { full_chain, chain, key } => {
                self.certificate.replace(&full_chain, &chain, &key).map_err(|error| error.to_string())?;
                ErrandResult::Done
            }
        })
    }
}

/// Bytes of the files below a folder; links are not followed.
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

/// A part of a file as text, and the length of all of it. What is cut from a character at an edge is replaced.
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
    use super::*;

    #[test]
    fn a_part_of_the_log_is_where_it_was_asked_for() {
        let path = std::env::temp_dir().join(format!("millstream-log-{}", std::process::id()));
        fs::write(&path, "one two three").unwrap();
        let part = |offset, size| read_part(&path, offset, size).unwrap();
        assert_eq!(part(4, 3), ("two".to_owned(), 13));
        assert_eq!(part(-1, 5), ("three".to_owned(), 13));
        assert_eq!(part(-1, 100).0, "one two three");
        assert_eq!(part(i64::MAX, 5).0, "");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_bytes_of_a_folder_are_those_of_its_files() {
        let folder = std::env::temp_dir().join(format!("millstream-folder-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("x"), "123").unwrap();
        fs::write(folder.join("a/b/y"), "4567").unwrap();
        std::os::unix::fs::symlink("/usr", folder.join("out")).unwrap();
        assert_eq!(folder_bytes(&folder, 0, &mut 0), Some(7));
        assert_eq!(folder_bytes(&folder.join("none"), 0, &mut 0), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
