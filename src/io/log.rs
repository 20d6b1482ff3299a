//! The log. It is written to standard error and to `log/millstream.log`; errors are also written to
//! `log/millstream-error.log`. The audit log is written only to `log/audit.log`. The queues are bounded. If a queue is
//! full, lines are dropped, so that no worker is delayed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use super::log_fields::write_field;
use super::log_limit::LogLimit;
use super::log_line::{Line, is_error};
use crate::config::LogSettings;
use crate::control::AUDIT;

/// Maximum number of lines that wait to be written. Further lines are lost.
const QUEUE_LINES: usize = 16_384;
/// Size at which a file is closed and the next file is begun.
const FILE_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Mode of log files. Lines contain names and addresses, so only the server's user and group may read them.
const FILE_MODE: u32 = 0o640;
/// Number of files kept: the current one and its predecessors.
const FILES: u32 = 10;

/// Number of times so far that reopening the files was requested.
static REOPENED: AtomicU32 = AtomicU32::new(0);

/// The filter in use.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging, as text or as one JSON object per line. When the returned guards are dropped, the waiting lines are
/// written.
pub fn start(directory: &Path, settings: LogSettings) -> [WorkerGuard; 2] {
    let output = Output {
        file: RotatedFile::open(directory.join("millstream.log")),
        errors: RotatedFile::closed(directory.join("millstream-error.log")),
    };
    let queue = || NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES);
    let (writer, guard) = queue().finish(output);
    let (audit, audit_guard) = queue().finish(AuditFile(RotatedFile::closed(directory.join("audit.log"))));
    let limit = LogLimit::new(writer.clone(), settings.json);
    let lines = layer(writer, settings.json).with_filter(filter_fn(|line| line.target() != AUDIT));
    let audit = layer(audit, settings.json).with_filter(filter_fn(|line| line.target() == AUDIT));
    // If a second server starts in the same process (in tests), the subscriber of the first one stays in use.
    let (filter, handle) = reload::Layer::new(filter(settings.level));
    if tracing_subscriber::registry().with(filter).with(limit).with(lines).with(audit).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
    [guard, audit_guard]
}

/// Writes the audit lines that `tell` logs. Used in a process that has no log, for a command of an administrator while
/// no server runs.
pub(super) fn audit_alone(directory: &Path, settings: LogSettings, tell: impl FnOnce()) {
    let file = AuditFile(RotatedFile::of_administrator(directory, directory.join("audit.log")));
    let (writer, guard) = NonBlockingBuilder::default().lossy(false).finish(file);
    let audit = layer(writer, settings.json).with_filter(filter_fn(|line| line.target() == AUDIT));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(audit), tell);
    drop(guard);
}

/// Makes the layer that formats the lines.
fn layer<S>(writer: NonBlocking, json: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let format = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match json {
        true => format.json().flatten_event(true).boxed(),
        false => format.event_format(Line).fmt_fields(format::debug_fn(write_field).delimited(" ")).boxed(),
    }
}

/// Makes the filter of a level. The environment may override the level. The audit log is always written.
fn filter(level: &str) -> EnvFilter {
    let filter = EnvFilter::try_from_env("MILLSTREAM_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    match format!("{AUDIT}=info").parse() {
        Ok(audit) => filter.add_directive(audit),
        Err(_) => filter,
    }
}

/// Makes each file be opened again by its name before its next line, because it may have been renamed (SIGUSR1,
/// SIGHUP).
pub fn reopen() {
    REOPENED.fetch_add(1, Ordering::Relaxed);
    tracing::info!("log reopened");
}

/// Changes the level at run time, unless the environment sets it.
pub(super) fn set_level(level: &str) {
    if let Some(handle) = FILTER.get() {
        let _ = handle.reload(filter(level));
    }
}

/// The file of the audit log. It is created with its first line.
#[derive(Debug)]
struct AuditFile(RotatedFile);

impl Write for AuditFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.0.file.is_none() {
            self.0.reopen();
        }
        self.0.follow(REOPENED.load(Ordering::Relaxed));
        let _ = self.0.write_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The files of the log. If the disk is full or standard error is closed, lines are lost, with no other effect.
#[derive(Debug)]
struct Output {
    file: RotatedFile,
    errors: RotatedFile,
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(line);
        self.file.follow(REOPENED.load(Ordering::Relaxed));
        let _ = self.file.write_line(line);
        if is_error(line) {
            // Errors are rare. Their file is created with the first error, and is opened again for each one.
            self.errors.reopen();
            let _ = self.errors.write_line(line);
            self.errors.file = None;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is renamed to `.1`, `.2`, ... when it is full.
#[derive(Debug)]
struct RotatedFile {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
    /// The value of [`REOPENED`] when the file was opened.
    reopened: u32,
}

impl RotatedFile {
    fn open(path: PathBuf) -> Self {
        let mut this = Self::closed(path);
        this.reopen();
        this
    }

    const fn closed(path: PathBuf) -> Self {
        Self { path, file: None, bytes: 0, bytes_max: FILE_BYTES_MAX, reopened: 0 }
    }

    /// Opens the file for an administrator, who may be a different user than the server's. A new file gets the owner of
    /// the folder, so that the server can use it. Links are not followed, because the server's user could place a link
    /// to one of the administrator's files. The file is not rotated, because the new file would belong to the
    /// administrator.
    fn of_administrator(directory: &Path, path: PathBuf) -> Self {
        let mut options = OpenOptions::new();
        options.append(true).mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
        let opened = match options.clone().create_new(true).open(&path) {
            Ok(file) => {
                if let Ok(owner) = std::fs::metadata(directory) {
                    let _ = std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()));
                }
                Ok(file)
            }
            Err(_) => options.open(&path),
        };
        let file = opened
            .inspect_err(|error| {
                let _ = writeln!(io::stderr(), "millstream: no log in {}: {error}", path.display());
            })
            .ok();
        Self { file, bytes_max: u64::MAX, ..Self::closed(path) }
    }

    fn reopen(&mut self) {
        let opened = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(&self.path);
        self.file = opened
            .inspect_err(|error| {
                let _ = writeln!(io::stderr(), "millstream: no log in {}: {error}", self.path.display());
            })
            .ok();
        self.bytes = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
    }

    /// Reopens the file if reopening was requested since it was opened.
    fn follow(&mut self, reopened: u32) {
        if self.reopened != reopened {
            self.reopened = reopened;
            self.reopen();
        }
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= self.bytes_max {
            self.rotate();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(line.len() as u64);
        Ok(())
    }

    fn rotate(&mut self) {
        self.file = None;
        let numbered = |number: u32| self.path.with_extension(format!("log.{number}"));
        for number in (1..FILES - 1).rev() {
            let _ = std::fs::rename(numbered(number), numbered(number + 1));
        }
        let _ = std::fs::rename(&self.path, numbered(1));
        self.reopen();
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::TempFolder;

    use super::*;

    #[test]
    fn errors_have_a_file_of_their_own() {
        let directory = TempFolder::new();
        let path = directory.join("millstream-error.log");
        let mut output = Output {
            file: RotatedFile::open(directory.join("millstream.log")),
            errors: RotatedFile::closed(path.clone()),
        };
        output.write_all(b"2026-11-22 10:06:15,178 [main] INFO  a - fine\n").unwrap();
        assert!(!path.exists());
        let line = "2026-11-22 10:06:15,178 [main] ERROR a - broken\n";
        output.write_all(line.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line);
    }

    #[test]
    fn c_12_a_renamed_file_is_left_once_it_is_to_be_reopened() {
        let directory = TempFolder::new();
        let path = directory.join("millstream.log");
        let renamed = directory.join("renamed");
        let mut file = RotatedFile::open(path.clone());
        file.follow(0);
        file.write_line(b"1\n").unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        file.follow(0);
        file.write_line(b"2\n").unwrap();
        file.follow(1);
        file.write_line(b"3\n").unwrap();
        file.follow(1);
        let text = |path| std::fs::read_to_string(path).unwrap();
        assert_eq!((text(&renamed), text(&path)), ("1\n2\n".to_owned(), "3\n".to_owned()));
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_goes() {
        let directory = TempFolder::new();
        let mut file = RotatedFile::open(directory.join("millstream.log"));
        file.bytes_max = 10;
        for n in 0..30 {
            file.write_line(format!("line number {n}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<_> = std::fs::read_dir(&*directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), usize::try_from(FILES).unwrap());
        assert_eq!(std::fs::read_to_string(directory.join("millstream.log")).unwrap(), "line number 29\n");
        assert_eq!(std::fs::read_to_string(directory.join("millstream.log.1")).unwrap(), "line number 28\n");
    }
}
