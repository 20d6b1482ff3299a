//! Files of streams that viewers can rewind, in `{application}/.dvr/{stream}/`, with a count of their bytes for
//! each application.
//!
//! 1. The first job of an application counts the existing files. Later jobs add to the count or subtract from it.
//! 2. If a file would exceed the application's limit, folders of ended streams are removed, beginning with the one
//!    that has been unchanged for the longest time. If that is not enough, the file is refused before anything is
//!    written, and the stream must remove files of its own.
//! 3. Each minute, folders are removed to which nothing was added for longer than viewers can rewind. They belong to
//!    streams that have ended or were cut off by a crash.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::archives;
use super::files::{blame_append, checked, lead, nowhere, open_folder, open_or_make_folder};
use crate::io::clock;
use crate::jobs::{AppendError, DVR, DvrDone, DvrWork, LIST, Writer};
use crate::types::{Now, WallClock};

/// Interval of searches for expired folders.
const SWEEP: Duration = Duration::from_secs(60);
/// Maximum size of a list. A list names only a few segments.
const LIST_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of lists in a folder, enough for a day of one-second segments.
const LISTS_MAX: usize = 10_000;
/// Maximum time by which viewers can rewind. Older folders are of no use, whatever the settings say.
const LONGEST: Duration = Duration::from_secs(25 * 3600);

/// Bytes of the streams of each application, and the wall clock as the searches for expired folders saw it.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<String, Usage>>, Mutex<WallClock>);

#[derive(Debug, Default)]
struct Usage {
    /// Bytes of each folder.
    folders: BTreeMap<String, u64>,
    /// The folders that are being written to.
    writers: BTreeMap<String, Writing>,
    /// The folders that are being removed. No stream may begin to write to one of them.
    removing: BTreeSet<String>,
    /// Time without additions after which a folder is removed, as last given by a job.
    keep: Option<Duration>,
    swept: Option<Instant>,
}

/// The writer of a folder, and the stream to which the folder belongs.
#[derive(Debug)]
struct Writing {
    writer: Writer,
    stream: String,
}

impl Usage {
    fn bytes(&self) -> u64 {
        self.folders.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// True if a stream writes to this folder. The folder must then be kept.
    fn is_live(&self, name: &str) -> bool {
        self.writers.get(name).is_some_and(|writing| writing.writer.is_there())
    }
}

impl Ledger {
    fn apps(&self) -> MutexGuard<'_, BTreeMap<String, Usage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the age of a folder may be computed from its date ([`WallClock`]).
    fn trusts_dates(&self, now: Now) -> bool {
        let on_set = || tracing::warn!("wall clock was set: no DVR folder is removed by its age for an hour");
        self.1.lock().unwrap_or_else(PoisonError::into_inner).is_trusted(now, on_set)
    }

    /// Notes that a folder is being removed. Returns false if a stream writes to it, or it is being removed already.
    fn begin_removal(&self, root: &Path, app: &str, name: &str) -> bool {
        self.with(root, app, |usage| !usage.is_live(name) && usage.removing.insert(name.to_owned()))
    }

    /// Notes that a folder is no longer being removed.
    fn end_removal(&self, root: &Path, app: &str, name: &str) {
        self.with(root, app, |usage| usage.removing.remove(name));
    }

    /// Calls `work` with the usage of an application. Counts the application's files first if that was not done yet.
    fn with<T>(&self, root: &Path, app: &str, work: impl FnOnce(&mut Usage) -> T) -> T {
        self.know(app, || folders(root, app).map(|(name, path)| (name, bytes_in(&path))).collect());
        work(self.apps().entry(app.to_owned()).or_default())
    }

    /// Counts the files of an application that were not counted yet. Other applications need not wait. If two jobs
    /// count at the same time, the first result is used. It is correct, because nothing is added or removed before
    /// the count is known.
    fn know(&self, app: &str, count: impl FnOnce() -> BTreeMap<String, u64>) {
        let is_known = self.apps().contains_key(app);
        if !is_known {
            let folders = count();
            self.apps().entry(app.to_owned()).or_insert_with(|| Usage { folders, ..Usage::default() });
        }
    }

    /// Counts bytes of a stream before they are written, so that two streams cannot use the same space. Returns
    /// false if there is not enough space.
    fn take(&self, root: &Path, (app, stream): (&str, &str), growth: u64, cap: u64) -> bool {
        self.with(root, app, |usage| {
            let has_room = growth == 0 || usage.bytes().saturating_add(growth) <= cap;
            if has_room {
                let own = usage.folders.entry(stream.to_owned()).or_default();
                *own = own.saturating_add(growth);
            }
            has_room
        })
    }

    /// Returns the usage of an application, and that of the stream to which a folder belongs.
    fn done(&self, root: &Path, app: &str, folder: &str) -> DvrDone {
        self.with(root, app, |usage| {
            usage.writers.retain(|_, writing| writing.writer.is_there());
            let mut streams: BTreeMap<&str, u64> = BTreeMap::new();
            for (name, writing) in &usage.writers {
                let bytes = streams.entry(&writing.stream).or_default();
                *bytes = bytes.saturating_add(usage.folders.get(name).copied().unwrap_or(0));
            }
            let stream = usage.writers.get(folder).and_then(|own| streams.get(own.stream.as_str()));
            DvrDone {
                lists: Vec::new(),
                app_bytes: streams.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
                streams: u64::try_from(streams.len()).unwrap_or(u64::MAX),
                stream_bytes: stream.copied().unwrap_or(0),
                is_taken: false,
            }
        })
    }
}

pub(super) fn run(root: &Path, ledger: &Ledger, work: &DvrWork) -> Result<DvrDone, AppendError> {
    let done = match work {
        DvrWork::Resume { folder, keep, stream, writer } => {
            resume(root, ledger, folder, *keep, (stream, writer))
        }
        DvrWork::Put { folder, name, data, cap, keep } => {
            put(root, ledger, folder, (name, data), (*cap, *keep)).and_then(|()| {
                let (app, stream) = split(folder)?;
                sweep(root, ledger, app, *keep);
                Ok(ledger.done(root, app, stream))
            })
        }
        DvrWork::Drop { folder, names } => remove(root, ledger, folder, names),
        DvrWork::Clear { folder } => clear(root, ledger, folder),
        DvrWork::ClearAll { app, start } => clear_all(root, ledger, app, start),
        DvrWork::Sweep { apps } => {
            remove_forgotten(root, ledger, apps);
            Ok(DvrDone::default())
        }
    };
    done.map_err(|error| blame_append(&error))
}

/// Returns the application and the name of a stream's folder.
fn split(folder: &[String]) -> io::Result<(&str, &str)> {
    match folder {
        [app, dvr, name] if dvr == DVR => Ok((app, name)),
        _ => Err(nowhere()),
    }
}

/// Returns the path of a folder. Fails if one of its names is not that of a folder. No link is followed.
pub(super) fn path_of(root: &Path, folder: &[String]) -> io::Result<PathBuf> {
    let mut path = root.to_path_buf();
    for name in folder {
        checked(name)?;
        path.push(name);
        if !fs::symlink_metadata(&path)?.is_dir() {
            return Err(nowhere());
        }
    }
    Ok(path)
}

/// Returns the folders of an application's streams.
fn folders(root: &Path, app: &str) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = path_of(root, &[app.to_owned(), DVR.to_owned()]).and_then(fs::read_dir);
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().into_string().ok().filter(|_| is_folder)?;
        Some((name, entry.path()))
    })
}

/// Returns the names and lengths of the files in a folder.
pub(super) fn files(folder: &Path) -> impl Iterator<Item = (String, u64)> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((entry.file_name().into_string().ok()?, metadata.len()))
    })
}

fn bytes_in(folder: &Path) -> u64 {
    files(folder).fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn put(
    root: &Path,
    ledger: &Ledger,
    folder: &[String],
    (name, data): (&str, &Bytes),
    (cap, keep): (u64, Duration),
) -> io::Result<()> {
    checked(name)?;
    let (app, stream) = split(folder)?;
    let old = length_of(root, folder, name);
    let growth = u64::try_from(data.len()).unwrap_or(u64::MAX).saturating_sub(old);
    let take = || ledger.take(root, (app, stream), growth, cap);
    // No folder is removed for a file that could never fit.
    if growth > cap || (!take() && !make_room(root, ledger, (app, stream), keep, take)) {
        return Err(io::Error::from_raw_os_error(libc::EDQUOT));
    }
    let path: Vec<String> = folder.iter().cloned().chain([name.to_owned()]).collect();
    // The folder of a removed application must not be recreated, so it is only opened.
    let is_app = Cell::new(true);
    let step = |folder: &OwnedFd, name: &CStr| match is_app.replace(false) {
        true => open_folder(folder, name),
        false => open_or_make_folder(folder, name),
    };
    let done = lead(root, &path, step).and_then(|place| archives::put_in(&place, data));
    // Correct the count even after an error, because the file may have been written nevertheless.
    let (counted, length) = (old.saturating_add(growth), length_of(root, folder, name));
    ledger.with(root, app, |usage| {
        let own = usage.folders.entry(stream.to_owned()).or_insert(counted);
        *own = own.saturating_add(length).saturating_sub(counted);
    });
    done
}

/// Removes folders of an application until a file fits: first expired folders, then those of other ended streams,
/// beginning with the one that has been unchanged for the longest time. Returns false if the file still does not
/// fit.
fn make_room(
    root: &Path,
    ledger: &Ledger,
    (app, stream): (&str, &str),
    keep: Duration,
    take: impl Fn() -> bool,
) -> bool {
    sweep_now(root, ledger, app, keep);
    let changed = |path: &Path| fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok();
    let mut others: Vec<_> = folders(root, app)
        .filter(|(name, _)| name != stream)
        .map(|(name, path)| (changed(&path), name, path))
        .collect();
    others.sort();
    for (_, name, path) in others {
        if take() {
            return true;
        }
        if !ledger.begin_removal(root, app, &name) {
            continue;
        }
        let removed = fs::remove_dir_all(&path);
        ledger.with(root, app, |usage| match removed {
            Ok(()) => usage.folders.remove(&name),
            Err(_) => usage.folders.insert(name.clone(), bytes_in(&path)),
        });
        ledger.end_removal(root, app, &name);
        match removed {
            Ok(()) => tracing::info!(
                app,
                stream = name,
                "DVR removed: its stream is over, and dvr.max_bytes used up"
            ),
            Err(error) => tracing::warn!(app, stream = name, %error, "DVR not removed"),
        }
    }
    take()
}

/// Returns the length of a file; 0 if it does not exist.
fn length_of(root: &Path, folder: &[String], name: &str) -> u64 {
    let metadata = path_of(root, folder).and_then(|path| fs::symlink_metadata(path.join(name)));
    metadata.ok().filter(fs::Metadata::is_file).map_or(0, |metadata| metadata.len())
}

fn give_back(root: &Path, ledger: &Ledger, (app, stream): (&str, &str), bytes: u64) {
    ledger.with(root, app, |usage| {
        if let Some(own) = usage.folders.get_mut(stream) {
            *own = own.saturating_sub(bytes);
        }
    });
}

fn remove(root: &Path, ledger: &Ledger, folder: &[String], names: &[String]) -> io::Result<DvrDone> {
    let (app, stream) = split(folder)?;
    // Count the existing files before any are removed.
    ledger.with(root, app, |_| ());
    let path = match path_of(root, folder) {
        Err(error) if is_missing(&error) => return Ok(ledger.done(root, app, stream)),
        path => path?,
    };
    for name in names {
        checked(name)?;
    }
    let freed = remove_files(&path, names.iter(), |file| fs::remove_file(file));
    give_back(root, ledger, (app, stream), freed);
    Ok(ledger.done(root, app, stream))
}

/// Removes files of a folder, and returns the number of bytes removed. If a file cannot be removed, it stays, and
/// the other files are still removed.
fn remove_files<'a>(
    folder: &Path,
    names: impl Iterator<Item = &'a String>,
    remove: impl Fn(&Path) -> io::Result<()>,
) -> u64 {
    let (mut freed, mut left) = (0_u64, Vec::new());
    for name in names {
        let file = folder.join(name);
        let bytes = fs::symlink_metadata(&file).map_or(0, |metadata| metadata.len());
        match remove(&file) {
            Ok(()) => freed = freed.saturating_add(bytes),
            Err(error) if is_missing(&error) => {}
            Err(error) => left.push(error),
        }
    }
    if let Some(error) = left.first() {
        tracing::warn!(folder = %folder.display(), files = left.len(), %error, "DVR files not removed");
    }
    freed
}

fn clear(root: &Path, ledger: &Ledger, folder: &[String]) -> io::Result<DvrDone> {
    let (app, stream) = split(folder)?;
    // The folder may still belong to the stream that has ended.
    let is_first = ledger.with(root, app, |usage| usage.removing.insert(stream.to_owned()));
    let removed = path_of(root, folder).and_then(fs::remove_dir_all);
    if is_first {
        ledger.end_removal(root, app, stream);
    }
    match removed {
        Err(error) if !is_missing(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    ledger.with(root, app, |usage| usage.folders.remove(stream));
    Ok(ledger.done(root, app, stream))
}

/// Removes all folders whose names begin with `start`. If a folder cannot be removed, the others still are. Returns
/// the first error.
fn clear_all(root: &Path, ledger: &Ledger, app: &str, start: &str) -> io::Result<DvrDone> {
    let mut failed = None;
    let names = folders(root, app).map(|(name, _)| name);
    for name in names.filter(|name| !start.is_empty() && name.starts_with(start)) {
        if let Err(error) = clear(root, ledger, &[app.to_owned(), DVR.to_owned(), name.clone()]) {
            tracing::warn!(app, folder = name, %error, "DVR of a deleted stream not removed");
            failed = failed.or(Some(error));
        }
    }
    failed.map_or_else(|| Ok(ledger.done(root, app, start)), Err)
}

fn resume(
    root: &Path,
    ledger: &Ledger,
    folder: &[String],
    keep: Duration,
    (of, writer): (&str, &Writer),
) -> io::Result<DvrDone> {
    let (app, stream) = split(folder)?;
    // The stream must be registered before expired folders are searched for, so that its own folder is not removed.
    let is_taken = ledger.with(root, app, |usage| {
        let is_other = |other: &Writing| other.writer != *writer && other.writer.is_there();
        let is_taken = usage.removing.contains(stream) || usage.writers.get(stream).is_some_and(is_other);
        if !is_taken {
            let writing = Writing { writer: writer.clone(), stream: of.to_owned() };
            usage.writers.insert(stream.to_owned(), writing);
        }
        is_taken
    });
    if is_taken {
        return Ok(DvrDone { is_taken, ..ledger.done(root, app, stream) });
    }
    sweep(root, ledger, app, keep);
    let path = match path_of(root, folder) {
        Err(error) if is_missing(&error) => return Ok(ledger.done(root, app, stream)),
        path => path?,
    };
    let (lists, bytes) = read_lists(&path, |file| fs::remove_file(file))?;
    ledger.with(root, app, |usage| usage.folders.insert(stream.to_owned(), bytes));
    Ok(DvrDone { lists, ..ledger.done(root, app, stream) })
}

/// Removes the files of a folder that no list names. Returns the folder's lists, and the number of bytes of the
/// remaining files.
fn read_lists(path: &Path, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<(Vec<Bytes>, u64)> {
    let mut names: Vec<String> = files(path).map(|(name, _)| name).collect();
    // Sort by length first, because the numbers have nine digits until 2033 and ten digits from then on.
    names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut lists = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(LIST)).take(LISTS_MAX) {
        let file = path.join(name);
        if fs::symlink_metadata(&file)?.len() <= LIST_BYTES_MAX {
            lists.push(Bytes::from(fs::read(&file)?));
        }
    }
    let named: BTreeSet<&str> =
        lists.iter().filter_map(|list| std::str::from_utf8(list).ok()).flat_map(named).collect();
    let is_useless = |name: &&String| !name.ends_with(LIST) && !named.contains(name.as_str());
    remove_files(path, names.iter().filter(is_useless), remove);
    Ok((lists, bytes_in(path)))
}

/// Returns the files named in a list: segments and initialization sections.
fn named(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| match line.strip_prefix("#EXT-X-MAP:URI=\"") {
        Some(map) => map.split('"').next(),
        None => (!line.starts_with('#') && !line.is_empty()).then_some(line),
    })
}

/// Removes expired folders of an application, at most once a minute.
fn sweep(root: &Path, ledger: &Ledger, app: &str, keep: Duration) {
    let now = clock::now().mono;
    let swept = ledger.with(root, app, |usage| {
        usage.keep = Some(keep);
        usage.swept
    });
    if swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
        sweep_now(root, ledger, app, keep);
    }
}

/// Removes folders of ended streams to which nothing was added for `keep`. Returns the number of folders removed.
fn sweep_now(root: &Path, ledger: &Ledger, app: &str, keep: Duration) -> usize {
    let now = clock::now();
    ledger.with(root, app, |usage| usage.swept = Some(now.mono));
    let trusts_dates = ledger.trusts_dates(now);
    let may_remove = |name: &str, path: &Path| {
        trusts_dates && is_older(path, keep) && ledger.begin_removal(root, app, name)
    };
    let old = folders(root, app).filter(|(name, path)| may_remove(name, path));
    let removed = old.filter(|(name, path)| {
        let removed = fs::remove_dir_all(path);
        ledger.end_removal(root, app, name);
        removed.is_ok()
    });
    let removed = removed.count();
    // Also forget the folders of an application that was removed in the meantime.
    let there: BTreeSet<String> = folders(root, app).map(|(name, _)| name).collect();
    ledger.with(root, app, |usage| {
        let live: BTreeSet<String> =
            usage.folders.keys().filter(|name| usage.is_live(name)).cloned().collect();
        usage.folders.retain(|name, _| there.contains(name) || live.contains(name));
    });
    removed
}

/// True if nothing was added to a folder for longer than `keep`.
fn is_older(path: &Path, keep: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > keep))
}

/// Removes folders to which viewers can no longer rewind, even in applications that have no such stream now.
fn remove_forgotten(root: &Path, ledger: &Ledger, apps: &[String]) {
    for app in apps {
        let keep = ledger.with(root, app, |usage| usage.keep).unwrap_or(LONGEST);
        let removed = sweep_now(root, ledger, app, keep);
        if removed > 0 {
            tracing::info!(app, streams = removed, "expired DVR removed");
        }
    }
}

#[cfg(test)]
mod tests;
