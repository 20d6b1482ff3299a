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

/// Interval of searches for expired folders.
const SWEEP: Duration = Duration::from_secs(60);
/// Maximum size of a list. A list names only a few segments.
const LIST_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of lists in a folder, enough for a day of one-second segments.
const LISTS_MAX: usize = 10_000;
/// Maximum time by which viewers can rewind. Older folders are of no use, whatever the settings say.
const LONGEST: Duration = Duration::from_secs(25 * 3600);

/// Bytes of the streams of each application.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<String, Usage>>);

#[derive(Debug, Default)]
struct Usage {
    /// Bytes of each folder.
    folders: BTreeMap<String, u64>,
    /// The folders that are being written to.
    writers: BTreeMap<String, Writing>,
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
        if ledger.with(root, app, |usage| usage.is_live(&name)) {
            continue;
        }
        let removed = fs::remove_dir_all(&path);
        ledger.with(root, app, |usage| match removed {
            Ok(()) => usage.folders.remove(&name),
            Err(_) => usage.folders.insert(name.clone(), bytes_in(&path)),
        });
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
    match path_of(root, folder).and_then(fs::remove_dir_all) {
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
        let is_taken = usage.writers.get(stream).is_some_and(is_other);
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
    ledger.with(root, app, |usage| usage.swept = Some(clock::now().mono));
    let is_live = |name: &str| ledger.with(root, app, |usage| usage.is_live(name));
    let old = folders(root, app).filter(|(name, path)| is_older(path, keep) && !is_live(name));
    let removed = old.filter(|(_, path)| fs::remove_dir_all(path).is_ok()).count();
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
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;
    use crate::tests::TempFolder;

    const KEEP: Duration = Duration::from_secs(60);
    const CAP: u64 = 10_000;

    fn folder(stream: &str) -> Vec<String> {
        ["live", DVR, stream].map(str::to_owned).to_vec()
    }

    fn put(
        (root, ledger): (&Path, &Ledger),
        stream: &str,
        name: &str,
        data: &[u8],
    ) -> Result<u64, AppendError> {
        let data = Bytes::copy_from_slice(data);
        let work = DvrWork::Put { folder: folder(stream), name: name.to_owned(), data, cap: CAP, keep: KEEP };
        run(root, ledger, &work).map(|_| total(root, ledger, "live"))
    }

    fn total(root: &Path, ledger: &Ledger, app: &str) -> u64 {
        ledger.with(root, app, |usage| usage.bytes())
    }

    fn resume(root: &Path, ledger: &Ledger, stream: &str, writer: &Arc<()>) -> DvrDone {
        let writer = Writer::of(writer);
        run(
            root,
            ledger,
            &DvrWork::Resume { folder: folder(stream), keep: KEEP, stream: stream.into(), writer },
        )
        .unwrap()
    }

    /// Makes a folder with these applications in it.
    fn home() -> TempFolder {
        let root = TempFolder::new();
        ["live", "other"].iter().for_each(|app| fs::create_dir(root.join(app)).unwrap());
        root
    }

    fn names(root: &Path, stream: &str) -> Vec<String> {
        let mut names: Vec<String> =
            files(&root.join("live").join(DVR).join(stream)).map(|(name, _)| name).collect();
        names.sort();
        names
    }

    #[test]
    fn the_bytes_of_an_application_are_counted_and_bounded() {
        let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
        let at = (&*root, &ledger);
        ["a", "b"].iter().for_each(|stream| drop(resume(&root, &ledger, stream, &writer)));
        assert_eq!(put(at, "a", "1.ts", &[1; 6000]), Ok(6000));
        assert_eq!(put(at, "b", "1.ts", &[1; 3000]), Ok(9000));
        assert_eq!(put(at, "b", "2.ts", &[1; 1001]), Err(AppendError::Full), "nothing of it is written");
        assert_eq!(names(&root, "b"), ["1.ts"]);
        // If a write fails although the file would fit, its bytes are no longer counted.
        fs::create_dir(root.join("live").join(DVR).join("b").join("3.ts")).unwrap();
        assert!(put(at, "b", "3.ts", &[1; 900]).is_err());
        assert_eq!(put(at, "b", "2.ts", &[1; 1000]), Ok(10_000));
        let names_of_b = ["1.ts", "none.ts"].map(str::to_owned).to_vec();
        let drop = run(&root, &ledger, &DvrWork::Drop { folder: folder("b"), names: names_of_b }).unwrap();
        assert_eq!((drop.app_bytes, drop.streams), (7000, 2));
        // Another application has its own limit.
        let other = ["other", DVR, "a"].map(str::to_owned).to_vec();
        let data = Bytes::from(vec![0; 9000]);
        let work = DvrWork::Put { folder: other, name: "1.ts".to_owned(), data, cap: CAP, keep: KEEP };
        run(&root, &ledger, &work).unwrap();
        assert_eq!((total(&root, &ledger, "other"), total(&root, &ledger, "live")), (9000, 7000));
        // After a restart the files are counted again.
        assert_eq!(put((&root, &Ledger::default()), "c", "1.ts", &[1; 3000]), Ok(10_000));
        let clear = run(&root, &ledger, &DvrWork::Clear { folder: folder("b") }).unwrap();
        assert_eq!((clear.app_bytes, names(&root, "b").len()), (6000, 0));
    }

    #[test]
    fn a_file_that_is_written_again_counts_once() {
        let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
        let at = (&*root, &ledger);
        ["a", "b"].iter().for_each(|stream| drop(resume(&root, &ledger, stream, &writer)));
        for _ in 0..10 {
            assert_eq!(put(at, "a", "tail.list", &[1; 3000]), Ok(3000));
        }
        assert_eq!(put(at, "a", "tail.list", &[1; 500]), Ok(500), "a shorter one gives back");
        assert_eq!(put(at, "b", "1.ts", &[1; 9500]), Ok(10_000));
        assert_eq!(put(at, "a", "tail.list", &[1; 500]), Ok(10_000), "there is room for the same again");
        assert_eq!(put(at, "a", "tail.list", &[1; 501]), Err(AppendError::Full));
        assert_eq!(put(at, "b", "1.ts", &[1; 100]), Ok(600));
        assert_eq!(put((&root, &Ledger::default()), "a", "2.ts", b"x"), Ok(601), "as it is on the disk");
    }

    #[test]
    fn a_file_that_cannot_be_removed_does_not_hold_up_the_stream() {
        let (root, ledger) = (home(), Ledger::default());
        let list = b"#X\n#EXTINF:2,\n2.ts\n";
        for (name, data) in [("2.ts", &b"two"[..]), ("3.ts", b"three"), ("7.list", list)] {
            put((&root, &ledger), "a", name, data).unwrap();
        }
        // The file `3.ts` cannot be removed, as on a broken disk or if it belongs to another user. It comes before
        // other files in the order of names.
        let useless = |path: &Path| match path.ends_with("3.ts") {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => fs::remove_file(path),
        };
        put((&root, &ledger), "a", "4.ts", b"four").unwrap();
        let (lists, bytes) = read_lists(&root.join("live").join(DVR).join("a"), useless).unwrap();
        assert_eq!(
            (lists, names(&root, "a")),
            (vec![Bytes::from_static(list)], ["2.ts", "3.ts", "7.list"].map(str::to_owned).to_vec())
        );
        assert_eq!(bytes, 8 + u64::try_from(list.len()).unwrap(), "what stays counts");
    }

    #[test]
    fn others_do_not_wait_while_an_application_is_counted() {
        let (root, ledger) = (home(), Ledger::default());
        put((&root, &ledger), "a", "1.ts", b"x").unwrap();
        let ledger = Ledger::default();
        let total = |ledger: &Ledger| ledger.with(&root, "live", |usage| usage.bytes());
        ledger.know("live", || {
            assert!(ledger.0.try_lock().is_ok(), "the lock is free");
            // Another job of the application finishes counting first, and adds a file.
            assert_eq!(put((&root, &ledger), "a", "2.ts", b"xyz"), Ok(4));
            BTreeMap::from([("a".to_owned(), 1)])
        });
        assert_eq!(total(&ledger), 4);
        ledger.know("live", || panic!("it is known"));
    }

    #[test]
    fn nothing_is_written_for_an_application_that_is_gone() {
        let (root, ledger) = (home(), Ledger::default());
        put((&root, &ledger), "a", "1.ts", b"x").unwrap();
        fs::remove_dir_all(root.join("live")).unwrap();
        assert_eq!(put((&root, &ledger), "a", "2.ts", b"x"), Err(AppendError::Path));
        assert!(!root.join("live").exists());
        assert_eq!(put((&root, &Ledger::default()), "a", "2.ts", b"x"), Err(AppendError::Path));
        assert!(!root.join("live").exists());
        // A new application of the same name starts with a count of zero.
        fs::create_dir(root.join("live")).unwrap();
        assert_eq!(put((&root, &ledger), "b", "1.ts", &[1; 10_000]), Ok(10_000));
    }

    #[test]
    fn what_no_list_names_goes_and_the_rest_goes_on() {
        let (root, ledger, writer) = (home(), Ledger::default(), Arc::new(()));
        let resume = || resume(&root, &ledger, "a", &writer);
        assert_eq!(resume(), DvrDone { streams: 1, ..DvrDone::default() }, "there is none");
        let list = b"#X\n#EXT-X-MAP:URI=\"i.mp4\"\n#EXTINF:2,\n1.m4s\n";
        for (name, data) in [("1.m4s", &b"one"[..]), ("2.m4s", b"two"), ("i.mp4", b"i"), ("7.list", list)] {
            put((&root, &ledger), "a", name, data).unwrap();
        }
        fs::write(root.join("live").join(DVR).join("a/.3.m4s.tmp_archive"), "torn").unwrap();
        let done = resume();
        assert_eq!((done.lists, done.streams), (vec![Bytes::from_static(list)], 1));
        assert_eq!(names(&root, "a"), ["1.m4s", "7.list", "i.mp4"]);
        assert_eq!(done.app_bytes, 4 + u64::try_from(list.len()).unwrap());
    }

    #[test]
    fn streams_that_are_over_make_room_for_those_that_are_live() {
        let (root, ledger, [a, b, c]) = (home(), Ledger::default(), [(); 3].map(Arc::new));
        for (stream, writer, age) in [("a", &a, 20), ("b", &b, 10), ("c", &c, 30)] {
            resume(&root, &ledger, stream, writer);
            put((&root, &ledger), stream, "1.list", &[1; 3000]).unwrap();
            set_age(&root, stream, Duration::from_secs(age));
        }
        let put = |name: &str, bytes: usize| put((&root, &ledger), "c", name, &vec![1; bytes]);
        let there = || ["a", "b"].map(|stream| !names(&root, stream).is_empty());
        assert_eq!(put("2.ts", 2000), Err(AppendError::Full), "all of them are live");
        drop((a, b));
        // Folders from before the restart belong to no stream.
        let shares = resume(&root, &ledger, "c", &c);
        assert_eq!((shares.app_bytes, shares.streams, total(&root, &ledger, "live")), (3000, 1, 9000));
        let came_back = Arc::new(());
        resume(&root, &ledger, "a", &came_back);
        assert_eq!((put("2.ts", 2000), there()), (Ok(8000), [true, false]), "of the one that is over");
        drop(came_back);
        assert_eq!(
            (put("3.ts", 2000), there()),
            (Ok(10_000), [true, false]),
            "nothing goes before there is need"
        );
        assert_eq!((put("3.ts", 2001), there()), (Ok(7001), [false, false]));
        assert_eq!(
            (put("4.ts", 3000), names(&root, "c").len()),
            (Err(AppendError::Full), 3),
            "never its own"
        );
    }

    #[test]
    fn the_one_longest_unchanged_goes_first_and_old_ones_at_once() {
        let (root, ledger) = (home(), Ledger::default());
        for (stream, age) in [("a", 10), ("b", 20), ("d", 15)] {
            put((&root, &ledger), stream, "1.ts", &[1; 3000]).unwrap();
            set_age(&root, stream, Duration::from_secs(age));
        }
        let there = || ["a", "b", "d"].map(|stream| !names(&root, stream).is_empty());
        let writer = Arc::new(());
        resume(&root, &ledger, "c", &writer);
        assert_eq!(put((&root, &ledger), "c", "1.ts", &[1; 10_001]), Err(AppendError::Full));
        assert_eq!(there(), [true; 3], "it never fits");
        assert_eq!(put((&root, &ledger), "c", "1.ts", &[1; 2000]), Ok(8000));
        assert_eq!(there(), [true, false, true]);
        // To make room, all expired folders are removed, although the last regular search was less than a
        // minute ago.
        ["a", "d"].iter().for_each(|stream| set_age(&root, stream, KEEP + Duration::from_secs(5)));
        assert_eq!(put((&root, &ledger), "c", "2.ts", &[1; 3000]), Ok(5000));
        assert_eq!(there(), [false; 3]);
        // The folder of a live stream is kept, however old it is.
        set_age(&root, "c", KEEP + Duration::from_secs(5));
        put((&root, &ledger), "e", "1.ts", &[1; 5000]).unwrap();
        assert_eq!(put((&root, &ledger), "e", "2.ts", &[1; 1]), Err(AppendError::Full));
        assert_eq!(names(&root, "c").len(), 2);
    }

    fn set_age(root: &Path, stream: &str, age: Duration) {
        let folder = fs::File::open(root.join("live").join(DVR).join(stream)).unwrap();
        folder.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn no_link_is_followed_and_no_other_folder_is_touched() {
        let (root, ledger, outside) = (home(), Ledger::default(), TempFolder::new());
        fs::create_dir_all(root.join("live").join(DVR)).unwrap();
        fs::write(outside.join("1.ts"), "x").unwrap();
        symlink(&*outside, root.join("live").join(DVR).join("a")).unwrap();
        assert!(put((&root, &ledger), "a", "2.ts", b"x").is_err());
        let drop = DvrWork::Drop { folder: folder("a"), names: vec!["1.ts".to_owned()] };
        let works = [
            drop,
            DvrWork::Clear { folder: folder("a") },
            DvrWork::Clear { folder: ["live", "streams", "a"].map(str::to_owned).to_vec() },
            DvrWork::Clear { folder: ["live", DVR, ".."].map(str::to_owned).to_vec() },
            DvrWork::Clear { folder: vec!["live".to_owned()] },
        ];
        for work in works {
            let _ = run(&root, &ledger, &work);
        }
        assert!(outside.join("1.ts").exists() && root.join("live").join(DVR).exists());
        assert_eq!(fs::read_dir(&*outside).unwrap().count(), 1);
    }

    #[test]
    fn a_stream_waits_for_the_one_before_it_to_finish_its_files() {
        let (root, ledger, first, second) = (home(), Ledger::default(), Arc::new(()), Arc::new(()));
        assert!(!resume(&root, &ledger, "a", &first).is_taken);
        // No list names the file yet. A stream that may not have the folder must not remove the file.
        put((&root, &ledger), "a", "1.ts", b"x").unwrap();
        assert!(resume(&root, &ledger, "a", &second).is_taken);
        assert_eq!(names(&root, "a"), ["1.ts"]);
        assert!(
            !resume(&root, &ledger, "a", &first).is_taken && !resume(&root, &ledger, "b", &second).is_taken
        );
        drop(first);
        assert!(!resume(&root, &ledger, "a", &second).is_taken);
        assert_eq!(names(&root, "a"), [""; 0]);
    }

    #[test]
    fn the_playlists_of_a_stream_share_what_it_may_keep() {
        let (root, ledger) = (home(), Ledger::default());
        let writers = [(); 3].map(|()| Arc::new(()));
        let windows = [("ll%2Fcam%2Fvideo", "cam", 4000), ("ll%2Fcam%2Faudio", "cam", 1000), ("b", "b", 500)];
        for ((name, stream, bytes), writer) in windows.iter().zip(&writers) {
            let resume = DvrWork::Resume {
                folder: folder(name),
                keep: KEEP,
                stream: (*stream).into(),
                writer: Writer::of(writer),
            };
            run(&root, &ledger, &resume).unwrap();
            put((&root, &ledger), name, "1.ts", &vec![0; *bytes]).unwrap();
        }
        let usage = ledger.done(&root, "live", "ll%2Fcam%2Faudio");
        assert_eq!((usage.app_bytes, usage.streams, usage.stream_bytes), (5500, 2, 5000));
        assert_eq!(ledger.done(&root, "live", "b").stream_bytes, 500);
    }

    #[test]
    fn folders_of_all_tracks_of_a_stream_go_together() {
        let (root, ledger) = (home(), Ledger::default());
        for stream in ["ll%2Fa%2Fa__video", "ll%2Fa%2Fa__audio", "ll%2Fab%2Fab__video", "a"] {
            put((&root, &ledger), stream, "1.ts", b"x").unwrap();
        }
        for start in ["ll%2Fa%2Fa__", ""] {
            let work = DvrWork::ClearAll { app: "live".to_owned(), start: start.to_owned() };
            run(&root, &ledger, &work).unwrap();
            let mut left: Vec<String> = folders(&root, "live").map(|(name, _)| name).collect();
            left.sort();
            assert_eq!(left, ["a", "ll%2Fab%2Fab__video"], "{start}");
        }
    }

    #[test]
    fn a_folder_to_which_nothing_is_added_goes_when_nobody_can_go_back_to_it() {
        let (root, ledger) = (home(), Ledger::default());
        for stream in ["old", "new"] {
            put((&root, &ledger), stream, "1.ts", b"x").unwrap();
        }
        let old = root.join("live").join(DVR).join("old");
        let set = |age| set_age(&root, "old", age);
        set(KEEP + Duration::from_secs(5));
        put((&root, &ledger), "new", "2.ts", b"x").unwrap();
        assert!(old.exists(), "the last look was just now");
        // After a restart of the server, the expired folder is removed.
        assert_eq!(put((&root, &Ledger::default()), "new", "3.ts", b"x"), Ok(3));
        assert!(!old.exists());
        // Without jobs of other streams, a folder expires after the time that jobs have given since
        // the server was started, or after [`LONGEST`] if there were none.
        for (ledger, keep) in [(Ledger::default(), LONGEST), (ledger, KEEP)] {
            put((&root, &Ledger::default()), "old", "1.ts", b"x").unwrap();
            let sweep = DvrWork::Sweep { apps: ["none", "live"].map(str::to_owned).to_vec() };
            set(keep - Duration::from_secs(5));
            run(&root, &ledger, &sweep).unwrap();
            assert!(old.exists());
            set(keep + Duration::from_secs(5));
            run(&root, &ledger, &sweep).unwrap();
            assert!(!old.exists() && !names(&root, "new").is_empty());
        }
    }
}
