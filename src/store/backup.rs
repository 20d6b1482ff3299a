//! Copies of the store: `data/backups/store-YYYYMMDD-HHMMSS.redb`, each a complete store (docs/store.md).
//!
//! A copy is made from a snapshot, so it is consistent while commits continue. It gets its name only after all of it is
//! on the disk, so a file with such a name is complete.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Error;
use crate::types::Civil;

const BEGIN: &str = "store-";
const END: &str = ".redb";
/// Maximum number of copies examined to find an undamaged one.
const LOOKED_AT_MAX: usize = 50;

/// A request to copy the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Name of the copy ([`name_of`]).
    pub name: String,
    /// Number of copies to keep, including this one. The oldest ones are removed. 0 keeps all.
    pub kept: usize,
    /// Minimum age of the newest copy. While the newest copy is younger, no other copy is made.
    pub age_min: Duration,
}

/// Returns the name of a copy made at this time, in Unix milliseconds.
#[must_use]
pub fn name_of(unix_ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second, millis: _ } = Civil::of_unix_ms(unix_ms);
    format!("{BEGIN}{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}{END}")
}

/// Returns the folder of a store's copies.
#[must_use]
pub fn folder_of(store: &Path) -> PathBuf {
    store.with_file_name("backups")
}

/// Lists the copies of a store, newest first.
#[must_use]
pub fn list(store: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder_of(store)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with(BEGIN) && name.ends_with(END)).collect();
    names.sort_by(|a, b| b.cmp(a));
    names.into_iter().map(|name| folder_of(store).join(name)).collect()
}

/// True if the name of a copy is later than that of another copy.
fn is_later(path: &Path, name: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|of| of > name)
}

/// True if any copy is younger than the backup asks for. A copy from the future does not count: the clock was wrong
/// when it was made.
pub(super) fn has_younger(store: &Path, backup: &Backup) -> bool {
    let present = list(store).into_iter().filter(|path| !is_later(path, &backup.name));
    let written = |path: PathBuf| fs::metadata(path).ok()?.modified().ok()?.elapsed().ok();
    present.take(LOOKED_AT_MAX).filter_map(written).any(|age| age < backup.age_min)
}

/// Removes copies, so that `kept` copies are left: first those that are later than the copy just made, `made`, because
/// the clock was wrong when they were made, then the oldest. If most copies are later, the clock is rather wrong now, and
/// none is removed.
pub(super) fn remove_old(store: &Path, kept: usize, made: &str) {
    let all = list(store);
    let excess = if kept == 0 { 0 } else { all.len().saturating_sub(kept) };
    let (later, others): (Vec<PathBuf>, Vec<PathBuf>) =
        all.into_iter().partition(|path| is_later(path, made));
    if let Some(latest) = later.first() {
        let file = latest.display();
        tracing::warn!(%file, made, "backup is later than the one just made; was the clock wrong?");
    }
    if later.len() > others.len() {
        let later = later.len();
        tracing::warn!(later, made, "no old backup removed: most are later than the one just made");
        return;
    }
    let oldest = others.into_iter().skip(1).rev();
    for path in later.into_iter().chain(oldest).take(excess) {
        match fs::remove_file(&path) {
            Ok(()) => tracing::info!(file = %path.display(), "old backup removed"),
            Err(error) => tracing::warn!(file = %path.display(), %error, "old backup not removed"),
        }
    }
}

/// Returns the newest undamaged copy.
#[must_use]
pub fn newest_good(store: &Path) -> Option<PathBuf> {
    list(store).into_iter().take(LOOKED_AT_MAX).find(|path| super::redb::check_copy(path).is_ok())
}

/// Describes an error at the start of the server for the operator: the problem, and what can be done about it.
#[must_use]
pub fn with_advice(error: &Error, store: &Path) -> String {
    let home = store.ancestors().nth(2).unwrap_or(store).display();
    let good = match newest_good(store) {
        Some(copy) => format!(
            "the newest good backup is {0}: 'millstream store restore {0} --home {home}' puts it in place",
            copy.display()
        ),
        None => format!("there is no good backup in {}", folder_of(store).display()),
    };
    match error {
        Error::Damaged { .. } => format!(
            "{error}; {good}; 'millstream store salvage --home {home}' rescues what can be read of the damaged one"
        ),
        Error::Missing(_) => format!(
            "{error}; {good}; 'millstream store reindex --home {home}' begins an empty one that lists the recordings again"
        ),
        Error::Locked(_)
        | Error::Version { .. }
        | Error::Io { .. }
        | Error::Full { .. }
        | Error::Gone(_)
        | Error::Unknown => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Key, Kind, Op, RedbStore, Request, Store, handle};
    use super::*;
    use crate::tests::TempFolder;

    fn put(id: &str) -> Op {
        Op::Put(Key::new(Kind::Broadcast, "live", id), bytes::Bytes::from("{}"))
    }

    fn back_up(store: &mut RedbStore, second: u64, kept: usize, age_min: Duration) -> Result<(), Error> {
        let backup = Backup { name: name_of(second * 1000), kept, age_min };
        handle(store, Request::Backup { batch: 1, backup }).result
    }

    fn ids(path: &Path) -> Vec<String> {
        let records = RedbStore::open(path).unwrap().load().unwrap();
        records.into_iter().map(|(key, _)| key.id.to_string()).collect()
    }

    #[test]
    fn b_13_copies_are_whole_stores_of_their_moment_and_the_oldest_go() {
        let folder = TempFolder::new();
        let path = folder.join("data/store.redb");
        fs::create_dir(folder.join("data")).unwrap();
        let mut store = RedbStore::open(&path).unwrap();
        for n in 0..5 {
            store.commit(&[put(&n.to_string())]).unwrap();
            back_up(&mut store, n, 3, Duration::ZERO).unwrap();
        }
        let copies = list(&path);
        let names: Vec<_> = copies.iter().map(|copy| copy.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            ["store-19700101-000004.redb", "store-19700101-000003.redb", "store-19700101-000002.redb"]
        );
        assert_eq!(ids(&copies[1]), ["0", "1", "2", "3"]);
        // No copy is made while there is a recent one, and no existing file is overwritten.
        let hour = Duration::from_secs(3600);
        back_up(&mut store, 9, 3, hour).unwrap();
        assert_eq!(list(&path), copies);
        assert!(back_up(&mut store, 4, 3, Duration::ZERO).is_err());
    }

    #[test]
    fn b_13_a_copy_from_the_future_prevents_no_copies_and_goes_first() {
        let folder = TempFolder::new();
        let path = folder.join("store.redb");
        let mut store = RedbStore::open(&path).unwrap();
        let hour = Duration::from_secs(3600);
        // The clock was a year ahead.
        let ahead = std::time::SystemTime::now() + hour * 24 * 365;
        let year = ahead.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let second = year - 24 * 365 * 3600;
        back_up(&mut store, year, 3, hour).unwrap();
        fs::File::options().write(true).open(&list(&path)[0]).unwrap().set_modified(ahead).unwrap();
        let names =
            || list(&path).iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>();
        let name = |second: u64| std::ffi::OsString::from(name_of(second * 1000));
        back_up(&mut store, second, 3, hour).unwrap();
        assert_eq!(names(), [name(year), name(second)]);
        // Another one is not due yet.
        back_up(&mut store, second + 1, 3, hour).unwrap();
        assert_eq!(names(), [name(year), name(second)]);
        for later in 2..5 {
            back_up(&mut store, second + later, 3, Duration::ZERO).unwrap();
        }
        assert_eq!(names(), [name(second + 4), name(second + 3), name(second + 2)]);
        // Even if only one copy is kept, it is the one just made.
        back_up(&mut store, year, 0, Duration::ZERO).unwrap();
        back_up(&mut store, second + 5, 1, Duration::ZERO).unwrap();
        assert_eq!(names(), [name(second + 5)]);
    }

    #[test]
    fn b_13_a_clock_that_is_behind_costs_no_good_copies() {
        let folder = TempFolder::new();
        let path = folder.join("store.redb");
        let mut store = RedbStore::open(&path).unwrap();
        let names =
            || list(&path).iter().map(|path| path.file_name().unwrap().to_owned()).collect::<Vec<_>>();
        let name = |second: u64| std::ffi::OsString::from(name_of(second * 1000));
        (100..103).for_each(|second| back_up(&mut store, second, 3, Duration::ZERO).unwrap());
        back_up(&mut store, 5, 3, Duration::ZERO).unwrap();
        assert_eq!(names(), [name(102), name(101), name(100), name(5)]);
        // The clock is right again: the copy that was made meanwhile is the oldest.
        back_up(&mut store, 103, 3, Duration::ZERO).unwrap();
        assert_eq!(names(), [name(103), name(102), name(101)]);
        // A clock that stays where it is was wrong before.
        (6..12).for_each(|second| back_up(&mut store, second, 3, Duration::ZERO).unwrap());
        assert_eq!(names(), [name(11), name(10), name(9)]);
    }

    #[test]
    fn b_13_a_copy_has_what_was_committed_when_it_began_and_holds_up_no_commit() {
        let folder = TempFolder::new();
        let path = folder.join("store.redb");
        let mut store = RedbStore::open(&path).unwrap();
        store.commit(&[put("before")]).unwrap();
        let backup = Backup { name: name_of(0), kept: 0, age_min: Duration::ZERO };
        let copy = store.backup(&backup);
        store.commit(&[put("meanwhile")]).unwrap();
        copy().unwrap();
        assert_eq!(ids(&list(&path)[0]), ["before"]);
        assert_eq!(store.load().unwrap().len(), 2);
    }

    #[test]
    fn b_13_the_advice_names_the_newest_copy_that_is_good() {
        let folder = TempFolder::new();
        fs::create_dir(folder.join("data")).unwrap();
        let path = folder.join("data/store.redb");
        let damaged = Error::Damaged { path: "p".into(), reason: "r".into() };
        assert!(with_advice(&damaged, &path).contains("there is no good backup in"));
        let mut store = RedbStore::open(&path).unwrap();
        for second in 0..3 {
            back_up(&mut store, second, 0, Duration::ZERO).unwrap();
        }
        let bytes = fs::read(&list(&path)[0]).unwrap();
        fs::write(&list(&path)[0], &bytes[..bytes.len() / 2]).unwrap();
        let home = folder.display();
        for error in [damaged, Error::Missing(path.display().to_string())] {
            let advice = with_advice(&error, &path);
            let words = format!(
                "'millstream store restore {home}/data/backups/store-19700101-000001.redb --home {home}'"
            );
            assert!(advice.contains(&words) && !advice.contains('\n'), "{advice}");
        }
        let left: Vec<_> = fs::read_dir(folder_of(&path)).unwrap().collect();
        assert_eq!(left.len(), 3, "looking at copies leaves nothing");
    }
}
