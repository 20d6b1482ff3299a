//! The store on redb: `data/store.redb`. Copy on write, two-phase commits with quick repair.
//!
//! A store opens completely or not at all (docs/robustness.md B-05). At the start, the checksums of all pages are
//! verified, because all records are read then anyway. If the library panics on a damaged file, this becomes an error.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ::redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    TableError,
};
use bytes::Bytes;

use super::backup::{self, Backup};
use super::{Copying, Error, Key, Kind, Op, Store};
use crate::disk::{self, Disk as _, SystemDisk};

/// Table of a kind. A key is `app/id`, and the name of an application contains no slash. A value is a record as encoded
/// by control.
const fn table(kind: Kind) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(kind.table())
}

/// Table that contains the `version` of the layout and, to detect truncated files, the number of records in each table.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Version of the layout. Version 1 had only broadcasts. Older files can be read, and are converted by the next commit.
const VERSION: u64 = 2;
/// Size of the library's cache. It is small because control has everything in memory.
const CACHE_BYTES: usize = 16 << 20;
/// Size of the file by which a full disk is tried again.
const PROBE_BYTES: usize = 64 << 10;
/// Records copied in one transaction.
const COPIED_AT_ONCE: usize = 4096;

/// The store of a running server.
#[derive(Debug)]
pub struct RedbStore {
    path: PathBuf,
    /// Open database; `None` after a failure, when the file's state is unknown.
    database: Option<Database>,
    /// Identity of the open file, to notice when the path leads to another file or to none.
    file: FileId,
    /// Lock that is held as long as the store exists. It is on a separate file, because the store's own file may be
    /// replaced.
    lock: File,
}

/// Device and inode of a file.
type FileId = Option<(u64, u64)>;

fn id_at(path: &Path) -> FileId {
    fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

impl RedbStore {
    /// Opens the file. If there is none, creates it.
    ///
    /// # Errors
    /// The file is locked by another process, damaged, empty, unreadable, or of a newer version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let was_used = lock_path(path).exists();
        let lock = lock(&lock_path(path))?;
        if let Err(error) = must_exist(path) {
            let made = if matches!(error, Error::Missing(_)) { write_fresh(path, &[]) } else { Err(error) };
            if made.is_err() && !was_used {
                // Remove the new lock file. Otherwise a home that never had a store would look used.
                let _ = fs::remove_file(lock_path(path));
            }
            made?;
        }
        Self::opened(path, lock)
    }

    /// Opens the existing file of a home that has been used.
    ///
    /// # Errors
    /// As for [`RedbStore::open`]; also if the file is missing.
    pub fn open_existing(path: &Path) -> Result<Self, Error> {
        let lock = lock(&lock_path(path))?;
        must_exist(path)?;
        Self::opened(path, lock)
    }

    /// Replaces this store by a copy of another file. The old file is kept at the path `aside`. Returns the number of
    /// records.
    ///
    /// # Errors
    /// The copy is damaged, a server is running, or the disk fails. The store was not changed then.
    pub fn restore(path: &Path, from: &Path, aside: &Path) -> Result<usize, Error> {
        let _lock = lock(&lock_path(path))?;
        let beside = path.with_extension("new");
        copy_file(from, &beside)?;
        let records = guarded(from, || {
            let mut count = 0;
            read_all(from, &open_named(&beside, from)?, &mut |_, _| count += 1)?;
            Ok(count)
        })
        .inspect_err(|_| drop(fs::remove_file(&beside)))?;
        let kept = match fs::hard_link(path, aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        kept.and_then(|()| disk::put_in_place(&SystemDisk, &beside, path)).map_err(|e| io_error(path, &e))?;
        Ok(records)
    }

    fn opened(path: &Path, lock: File) -> Result<Self, Error> {
        let database = Some(guarded(path, || open_checked(path))?);
        Ok(Self { path: path.to_owned(), database, file: id_at(path), lock })
    }

    /// True if there is a record with this key.
    ///
    /// # Errors
    /// The file is not readable.
    pub fn has(&self, key: &Key) -> Result<bool, Error> {
        let failed = |error| library(&self.path, &error);
        let database = self.database.as_ref().ok_or(Error::Unknown)?;
        let snapshot = database.begin_read().map_err(|e| failed(e.into()))?;
        match snapshot.open_table(table(key.kind)) {
            Ok(table) => Ok(table.get(&*key.to_string()).map_err(|e| failed(e.into()))?.is_some()),
            Err(TableError::TableDoesNotExist(_)) => Ok(false),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// True if the folder still belongs to this server, i.e. still contains its lock file.
    fn is_at_home(&self) -> bool {
        let held = self.lock.metadata().ok().map(|data| (data.dev(), data.ino()));
        held.is_some() && held == id_at(&lock_path(&self.path))
    }
}

fn must_exist(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(data) if !data.is_file() => Err(damaged(path, "not a regular file")),
        Ok(data) if data.len() == 0 => Err(damaged(path, "the file is empty")),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::Missing(path.display().to_string())),
        Err(e) => Err(io_error(path, &e)),
    }
}

/// Reads all records of a file that may be a store. Works on a copy of it, because opening a store may write to the
/// file.
///
/// # Errors
/// The file is not an undamaged store, or the disk fails.
pub fn check_copy(path: &Path) -> Result<Vec<(Key, Bytes)>, Error> {
    must_exist(path)?;
    let beside = path.with_extension("checked");
    let read = copy_file(path, &beside).and_then(|()| {
        guarded(path, || {
            let mut all = Vec::new();
            read_all(path, &open_named(&beside, path)?, &mut |key, bytes| all.push((key, bytes)))?;
            Ok(all)
        })
    });
    let _ = fs::remove_file(&beside);
    read
}

/// Passes on the records that can still be reached through the tables of a damaged file. Each table is read from both
/// ends as far as possible. Works on a copy, so that the file itself is not changed.
pub(super) fn reachable(path: &Path, scratch: &Path, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error> {
    copy_file(path, scratch)?;
    let walked = guarded(path, || {
        let mut database = Database::builder().open(scratch).map_err(|e| library(path, &e.into()))?;
        let snapshot = database.begin_read().map_err(|e| library(path, &e.into()))?;
        let mut damage = Ok(());
        for kind in Kind::ALL {
            for backwards in [false, true] {
                let read = guarded(path, || walk(path, &snapshot, kind, backwards, give));
                damage = damage.and(read);
            }
        }
        drop(snapshot);
        damage.and_then(|()| match database.check_integrity() {
            Ok(true) => Ok(()),
            Ok(false) => Err(damaged(path, "checksums do not match")),
            Err(e) => Err(library(path, &e.into())),
        })
    });
    let _ = fs::remove_file(scratch);
    walked
}

fn walk(
    path: &Path,
    snapshot: &ReadTransaction,
    kind: Kind,
    backwards: bool,
    give: &mut dyn FnMut(Key, Bytes),
) -> Result<(), Error> {
    let table = match snapshot.open_table(table(kind)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(e) => return Err(library(path, &e.into())),
    };
    let mut entries = table.iter().map_err(|e| library(path, &e.into()))?;
    while let Some(entry) = if backwards { entries.next_back() } else { entries.next() } {
        let (key, value) = entry.map_err(|e| library(path, &e.into()))?;
        if let Some((app, id)) = key.value().split_once('/') {
            give(Key::new(kind, app, id), Bytes::copy_from_slice(value.value()));
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Error> {
    let copy = || {
        let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to)?;
        io::copy(&mut File::open(from)?, &mut to)
    };
    copy().map(drop).map_err(|e| io_error(from, &e))
}

impl RedbStore {
    /// True unless a commit has failed, and the file was not written anew since.
    pub const fn is_open(&self) -> bool {
        self.database.is_some()
    }
}

impl Store for RedbStore {
    fn read(&mut self, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error> {
        let database = self.database.as_ref().ok_or(Error::Unknown)?;
        guarded(&self.path, || read_all(&self.path, database, give))
    }

    fn commit(&mut self, ops: &[Op]) -> Result<(), Error> {
        let database = self.database.as_ref().ok_or(Error::Unknown)?;
        // If the file no longer has a name, everything written to it would be lost when the server exits.
        let result = if self.is_at_home() && self.file == id_at(&self.path) {
            guarded(&self.path, || write_ops(&self.path, database, ops))
        } else {
            Err(Error::Gone(self.path.display().to_string()))
        };
        if result.is_err() {
            self.database = None;
        }
        result
    }

    fn probe(&mut self) -> Result<(), Error> {
        if !self.is_at_home() {
            return Err(Error::Gone(self.path.display().to_string()));
        }
        let beside = self.path.with_extension("new");
        let written = SystemDisk.write(&beside, &[0; PROBE_BYTES], 0o600);
        let removed = SystemDisk.remove(&beside);
        written.and(removed).map_err(|e| io_error(&beside, &e))
    }

    fn rebuild(&mut self, all: &[(Key, Bytes)]) -> Result<(), Error> {
        self.database = None;
        // The folder may belong to another server now.
        if !self.is_at_home() {
            return Err(Error::Gone(self.path.display().to_string()));
        }
        write_fresh(&self.path, all)?;
        self.database = Some(guarded(&self.path, || open_checked(&self.path))?);
        self.file = id_at(&self.path);
        Ok(())
    }

    fn backup(&mut self, backup: &Backup) -> Copying {
        let (path, backup) = (self.path.clone(), backup.clone());
        if backup::has_younger(&path, &backup) {
            return Box::new(|| Ok(()));
        }
        if !self.is_at_home() {
            return Box::new(move || Err(Error::Gone(path.display().to_string())));
        }
        let snapshot = match &self.database {
            Some(database) => database.begin_read().map_err(|e| library(&path, &e.into())),
            None => Err(Error::Unknown),
        };
        Box::new(move || guarded(&path, || copy_snapshot(&path, &snapshot?, &backup)))
    }
}

/// Copies a snapshot to the folder of backups.
fn copy_snapshot(path: &Path, snapshot: &ReadTransaction, backup: &Backup) -> Result<(), Error> {
    let folder = backup::folder_of(path);
    let to = folder.join(&backup.name);
    disk::make_folder(&SystemDisk, &folder, 0o700).map_err(|e| io_error(&folder, &e))?;
    if to.exists() {
        return Err(Error::Io {
            path: to.display().to_string(),
            reason: "there is such a backup".to_owned(),
        });
    }
    let mut records = 0_usize;
    write_file(&to, |write| {
        let mut ops = Vec::new();
        let mut failed = Ok(());
        for kind in Kind::ALL {
            read_table(path, snapshot, kind, &mut |key, bytes| {
                records = records.saturating_add(1);
                ops.push(Op::Put(key, bytes));
                if ops.len() >= COPIED_AT_ONCE && failed.is_ok() {
                    failed = write(&std::mem::take(&mut ops));
                }
            })?;
        }
        failed.and_then(|()| write(&ops))
    })?;
    tracing::info!(file = %to.display(), records, "store backed up");
    backup::remove_old(path, backup.kept, &backup.name);
    Ok(())
}

fn lock(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|e| io_error(path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(path.display().to_string())),
        Err(TryLockError::Error(e)) => Err(io_error(path, &e)),
    }
}

/// Converts a panic of the library into an error.
fn guarded<T>(path: &Path, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(damaged(path, "the library gave up on it")))
}

fn open_checked(path: &Path) -> Result<Database, Error> {
    open_named(path, path)
}

/// Opens `file`. In error messages, the path is `path`.
fn open_named(file: &Path, path: &Path) -> Result<Database, Error> {
    let mut database =
        Database::builder().set_cache_size(CACHE_BYTES).open(file).map_err(|e| library(path, &e.into()))?;
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => return Err(damaged(path, "checksums do not match")),
        Err(e) => return Err(library(path, &e.into())),
    }
    let version = version_of(&database).map_err(|e| library(path, &e))?;
    if !(1..=VERSION).contains(&version) {
        return Err(Error::Version { path: path.display().to_string(), version });
    }
    Ok(database)
}

fn version_of(database: &Database) -> Result<u64, ::redb::Error> {
    let transaction = database.begin_read()?;
    Ok(transaction.open_table(META)?.get("version")?.map_or(0, |v| v.value()))
}

fn read_all(path: &Path, database: &Database, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error> {
    let snapshot = database.begin_read().map_err(|e| library(path, &e.into()))?;
    for kind in Kind::ALL {
        let (records, told) = read_table(path, &snapshot, kind, give)?;
        if records != told {
            return Err(damaged(path, &format!("{records} {} instead of {told}", kind.table())));
        }
    }
    Ok(())
}

/// Reads the records of a table in order. Returns the number of records found, and the number that there should be.
fn read_table(
    path: &Path,
    transaction: &ReadTransaction,
    kind: Kind,
    give: &mut dyn FnMut(Key, Bytes),
) -> Result<(u64, u64), Error> {
    let failed = |error| library(path, &error);
    let told = count_in(transaction, kind).map_err(failed)?;
    let table = match transaction.open_table(table(kind)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok((0, told)),
        Err(e) => return Err(failed(e.into())),
    };
    let mut records = 0;
    for entry in table.iter().map_err(|e| failed(e.into()))? {
        let (key, value) = entry.map_err(|e| failed(e.into()))?;
        let Some((app, id)) = key.value().split_once('/') else {
            return Err(damaged(path, "a record has no application"));
        };
        give(Key::new(kind, app, id), Bytes::copy_from_slice(value.value()));
        records += 1;
    }
    Ok((records, told))
}

/// Returns the number of records that a table should have.
fn count_in(transaction: &ReadTransaction, kind: Kind) -> Result<u64, ::redb::Error> {
    Ok(transaction.open_table(META)?.get(count_of(kind))?.map_or(0, |v| v.value()))
}

/// Returns the name of a table's record count. For the only table of the first layout, it differs from the table's
/// name.
const fn count_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Broadcast => "records",
        Kind::Token | Kind::Subscriber | Kind::User | Kind::Vod => kind.table(),
    }
}

fn write_ops(path: &Path, database: &Database, ops: &[Op]) -> Result<(), Error> {
    let write = || -> Result<(), ::redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert("version", VERSION)?;
            for kind in Kind::ALL {
                let of_kind = |op: &&Op| matches!(op, Op::Put(key, _) | Op::Delete(key) if key.kind == kind);
                let mut ops = ops.iter().filter(of_kind).peekable();
                // The table of broadcasts is always created, because a file without it does not count as a store.
                if ops.peek().is_none() && kind != Kind::Broadcast {
                    continue;
                }
                let mut table = transaction.open_table(table(kind))?;
                for op in ops {
                    match op {
                        Op::Put(key, bytes) => drop(table.insert(key.to_string().as_str(), &bytes[..])?),
                        Op::Delete(key) => drop(table.remove(key.to_string().as_str())?),
                    }
                }
                meta.insert(count_of(kind), table.len()?)?;
            }
        }
        transaction.commit()?;
        Ok(())
    };
    write().map_err(|e| library(path, &e))
}

/// Writes a new file with these records, and replaces the old one by it.
pub(super) fn write_fresh(path: &Path, all: &[(Key, Bytes)]) -> Result<(), Error> {
    let ops: Vec<Op> = all.iter().map(|(key, bytes)| Op::Put(key.clone(), bytes.clone())).collect();
    write_file(path, |write| write(&ops))
}

/// A function that commits changes to a file that is being written.
type WriteOps<'a> = dyn FnMut(&[Op]) -> Result<(), Error> + 'a;

/// Writes a new file in the same folder, and renames it to replace the old one.
fn write_file(path: &Path, fill: impl FnOnce(&mut WriteOps<'_>) -> Result<(), Error>) -> Result<(), Error> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(io_error(&beside, &e)),
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&beside);
    let file = file.map_err(|e| io_error(&beside, &e))?;
    guarded(&beside, || {
        let made = Database::builder().set_cache_size(CACHE_BYTES).create_file(file);
        let database = made.map_err(|e| library(&beside, &e.into()))?;
        fill(&mut |ops| write_ops(&beside, &database, ops))
    })?;
    disk::put_in_place(&SystemDisk, &beside, path).map_err(|e| io_error(path, &e))
}

fn damaged(path: &Path, reason: &str) -> Error {
    Error::Damaged { path: path.display().to_string(), reason: reason.to_owned() }
}

pub(super) fn io_error(path: &Path, error: &io::Error) -> Error {
    let (path, reason) = (path.display().to_string(), error.to_string());
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    if full.contains(&error.kind()) { Error::Full { path, reason } } else { Error::Io { path, reason } }
}

/// Converts an error of the library into a system error or damage of the file.
fn library(path: &Path, error: &::redb::Error) -> Error {
    if let ::redb::Error::Io(e) = error {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            return damaged(path, "the file is cut off");
        }
        if e.kind() != io::ErrorKind::InvalidData {
            return io_error(path, e);
        }
    }
    if matches!(error, ::redb::Error::DatabaseAlreadyOpen) {
        return Error::Locked(path.display().to_string());
    }
    damaged(path, &error.to_string().replace('\n', " "))
}

#[cfg(test)]
mod crash_tests;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use crate::tests::TempFolder;

    use super::*;

    struct Folder(TempFolder);

    impl Folder {
        fn new() -> Self {
            Self(TempFolder::new())
        }

        fn file(&self) -> PathBuf {
            self.0.join("store.redb")
        }
    }

    fn key(id: &str) -> Key {
        Key::new(Kind::Broadcast, "live", id)
    }

    fn put(id: &str, text: &str) -> Op {
        Op::Put(key(id), Bytes::copy_from_slice(text.as_bytes()))
    }

    fn records(path: &Path) -> Result<Vec<(Key, Bytes)>, Error> {
        RedbStore::open(path)?.load()
    }

    #[test]
    fn what_was_committed_is_there_again() {
        let folder = Folder::new();
        let mut store = RedbStore::open(&folder.file()).unwrap();
        store.commit(&[put("a", "1"), put("b", "2")]).unwrap();
        store.commit(&[put("a", "3"), Op::Delete(key("b")), put("c", "4")]).unwrap();
        drop(store);
        let all = records(&folder.file()).unwrap();
        let all: Vec<_> = all.iter().map(|(k, v)| (k.to_string(), &v[..])).collect();
        assert_eq!(all, [("live/a".to_owned(), &b"3"[..]), ("live/c".to_owned(), &b"4"[..])]);
        assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_rebuild_is_a_fresh_file_with_what_it_was_given() {
        let folder = Folder::new();
        let mut store = RedbStore::open(&folder.file()).unwrap();
        store.commit(&[put("a", "1")]).unwrap();
        store.rebuild(&[(key("z"), Bytes::from_static(b"9"))]).unwrap();
        store.commit(&[put("y", "8")]).unwrap();
        drop(store);
        let all = records(&folder.file()).unwrap();
        assert_eq!(all.iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>(), ["live/y", "live/z"]);
    }

    #[test]
    fn each_sort_of_record_has_its_own_ids() {
        let folder = Folder::new();
        let mut store = RedbStore::open(&folder.file()).unwrap();
        let all: Vec<(Key, Bytes)> = Kind::ALL
            .map(|kind| {
                let app = if kind == Kind::User { "" } else { "live" };
                (Key::new(kind, app, "a/b@c"), Bytes::from(format!("{kind:?}")))
            })
            .into();
        store.commit(&all.iter().map(|(k, v)| Op::Put(k.clone(), v.clone())).collect::<Vec<_>>()).unwrap();
        assert_eq!(store.load().unwrap(), all);
        store.commit(&[Op::Delete(all[1].0.clone())]).unwrap();
        drop(store);
        let left: Vec<_> = records(&folder.file()).unwrap().into_iter().map(|(key, _)| key.kind).collect();
        assert_eq!(left, [Kind::Broadcast, Kind::Subscriber, Kind::User, Kind::Vod]);
    }

    #[test]
    fn b_10_a_file_of_the_first_layout_opens_and_becomes_the_present_one() {
        let folder = Folder::new();
        {
            let database = Database::builder().create(folder.file()).unwrap();
            let transaction = database.begin_write().unwrap();
            {
                let mut table = transaction.open_table(table(Kind::Broadcast)).unwrap();
                table.insert("live/old", &b"1"[..]).unwrap();
                let mut meta = transaction.open_table(META).unwrap();
                meta.insert("version", 1).unwrap();
                meta.insert("records", 1).unwrap();
            }
            transaction.commit().unwrap();
        }
        let mut store = RedbStore::open(&folder.file()).unwrap();
        assert_eq!(store.load().unwrap(), [(key("old"), Bytes::from_static(b"1"))]);
        let user = Key::new(Kind::User, "", "a@b");
        store.commit(&[Op::Put(user.clone(), Bytes::from_static(b"2"))]).unwrap();
        drop(store);
        let all = records(&folder.file()).unwrap();
        assert_eq!(all.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key("old"), user]);
    }

    #[test]
    fn b_04_after_a_failure_only_a_rebuild_helps() {
        let folder = Folder::new();
        let mut store = RedbStore::open(&folder.file()).unwrap();
        store.commit(&[put("a", "1")]).unwrap();
        // A directory has the path at which the new file would be written, so the rebuild fails. Nothing is written in
        // the meantime.
        store.database = None;
        fs::create_dir(folder.file().with_extension("new")).unwrap();
        assert_eq!(store.commit(&[put("b", "2")]), Err(Error::Unknown));
        assert!(store.probe().is_err() && store.rebuild(&[]).is_err());
        assert_eq!(store.commit(&[put("b", "2")]), Err(Error::Unknown));
        fs::remove_dir(folder.file().with_extension("new")).unwrap();
        assert_eq!((store.probe(), folder.file().with_extension("new").exists()), (Ok(()), false));
        assert_eq!(store.commit(&[put("b", "2")]), Err(Error::Unknown), "a probe is no rebuild");
        store.rebuild(&[(key("c"), Bytes::from_static(b"3"))]).unwrap();
        store.commit(&[put("d", "4")]).unwrap();
        let ids: Vec<_> = store.load().unwrap().into_iter().map(|(key, _)| key.id.to_string()).collect();
        assert_eq!(ids, ["c", "d"]);
    }

    #[test]
    fn b_07_ten_updates_of_each_record_leave_a_file_of_at_most_four_times_its_size() {
        let folder = Folder::new();
        let mut store = RedbStore::open(&folder.file()).unwrap();
        // A nightly run can use a million records: `MILLSTREAM_RECORDS=1000000`.
        let records: usize =
            std::env::var("MILLSTREAM_RECORDS").map_or(5000, |records| records.parse().unwrap());
        let (text, batches) = ("x".repeat(1000), records / 250);
        for round in 0..11 {
            for batch in 0..batches {
                // The ids of each batch are spread over the whole range.
                let ops: Vec<Op> = (0..250)
                    .map(|n| put(&format!("id{}", n * batches + batch), &format!("{round}{text}")))
                    .collect();
                store.commit(&ops).unwrap();
            }
        }
        let all = store.load().unwrap();
        drop(store);
        let live: u64 =
            all.iter().map(|(key, bytes)| key.to_string().len() as u64 + bytes.len() as u64).sum();
        let file = fs::metadata(folder.file()).unwrap().len();
        assert!(all.len() == batches * 250 && file <= 4 * live, "{file} bytes for {live}");
    }

    #[test]
    fn b_05_a_second_process_is_told() {
        let folder = Folder::new();
        let store = RedbStore::open(&folder.file()).unwrap();
        assert!(matches!(RedbStore::open(&folder.file()), Err(Error::Locked(_))));
        drop(store);
        assert!(RedbStore::open(&folder.file()).is_ok());
    }

    #[test]
    fn b_12_a_store_that_is_missing_is_not_begun_anew_where_there_was_one() {
        let folder = Folder::new();
        assert!(matches!(RedbStore::open_existing(&folder.file()), Err(Error::Missing(_))));
        assert!(!folder.file().exists());
        drop(RedbStore::open(&folder.file()).unwrap());
        assert!(RedbStore::open_existing(&folder.file()).is_ok());
        // A first start that fails leaves no file that would make the home count as used.
        let other = Folder::new();
        fs::create_dir_all(other.file().with_extension("new").join("in the way")).unwrap();
        assert!(RedbStore::open(&other.file()).is_err());
        assert!(!lock_path(&other.file()).exists() && lock_path(&folder.file()).exists());
    }

    #[test]
    fn b_18_a_file_that_is_removed_under_the_server_is_noticed_at_the_next_commit() {
        let root = TempFolder::new();
        let (data, path) = (root.join("data"), root.join("data/store.redb"));
        fs::create_dir(&data).unwrap();
        let mut store = RedbStore::open(&path).unwrap();
        store.commit(&[put("a", "1")]).unwrap();
        // If only the file was removed, a new one replaces it.
        fs::remove_file(&path).unwrap();
        assert!(matches!(store.commit(&[put("b", "2")]), Err(Error::Gone(_))));
        store.rebuild(&[(key("a"), Bytes::from_static(b"1"))]).unwrap();
        store.commit(&[put("b", "2")]).unwrap();
        // Another file is put in place of the store's file.
        fs::copy(&path, data.join("copy")).unwrap();
        fs::rename(data.join("copy"), &path).unwrap();
        assert!(matches!(store.commit(&[put("c", "3")]), Err(Error::Gone(_))));
        store.rebuild(&[]).unwrap();
        // The whole folder is removed. Then the folder of another server is put in its place.
        fs::remove_dir_all(&data).unwrap();
        assert!(matches!(store.commit(&[put("d", "4")]), Err(Error::Gone(_))));
        let order = Backup { name: backup::name_of(0), kept: 0, age_min: std::time::Duration::ZERO };
        assert!(matches!(store.backup(&order)(), Err(Error::Gone(_))));
        assert!(matches!(store.probe(), Err(Error::Gone(_))) && !data.exists());
        assert!(matches!(store.rebuild(&[]), Err(Error::Gone(_))) && !data.exists());
        fs::create_dir(&data).unwrap();
        let mut other = RedbStore::open(&path).unwrap();
        other.commit(&[put("other", "5")]).unwrap();
        assert!(matches!(store.rebuild(&[]), Err(Error::Gone(_))));
        assert_eq!(other.load().unwrap(), [(key("other"), Bytes::from_static(b"5"))]);
        // The folder is moved to another place, and back again.
        let (elsewhere, path) = (root.join("elsewhere"), path);
        fs::rename(&data, &elsewhere).unwrap();
        assert!(matches!(other.commit(&[put("x", "6")]), Err(Error::Gone(_))));
        fs::rename(&elsewhere, path.parent().unwrap()).unwrap();
        other.rebuild(&[(key("other"), Bytes::from_static(b"5"))]).unwrap();
        other.commit(&[put("x", "6")]).unwrap();
    }

    #[test]
    fn b_05_empty_directory_and_junk_are_refused() {
        let folder = Folder::new();
        fs::write(folder.file(), b"").unwrap();
        assert!(matches!(records(&folder.file()), Err(Error::Damaged { .. })));
        fs::write(folder.file(), vec![7u8; 9000]).unwrap();
        assert!(records(&folder.file()).is_err());
        fs::remove_file(folder.file()).unwrap();
        fs::create_dir(folder.file()).unwrap();
        assert!(matches!(records(&folder.file()), Err(Error::Damaged { .. })));
    }

    fn small_file(folder: &Folder) -> (Vec<u8>, Vec<(Key, Bytes)>) {
        let mut store = RedbStore::open(&folder.file()).unwrap();
        for n in 0..6 {
            store.commit(&[put(&format!("id{n}"), &"x".repeat(100 * n))]).unwrap();
        }
        let all = store.load().unwrap();
        drop(store);
        (fs::read(folder.file()).unwrap(), all)
    }

    /// Checks a file in which a bit was flipped. It must either be refused or contain all records: a change outside of
    /// used pages may remain unnoticed.
    fn whole_or_refused(folder: &Folder, bytes: &[u8], all: &[(Key, Bytes)], what: &str) -> bool {
        fs::write(folder.file(), bytes).unwrap();
        match records(&folder.file()) {
            Ok(found) => {
                assert_eq!(found, all, "{what}");
                true
            }
            Err(e) => {
                assert!(!e.to_string().contains('\n'));
                false
            }
        }
    }

    #[test]
    fn b_05_a_flipped_bit_is_harmless_or_refused() {
        let folder = Folder::new();
        let (bytes, all) = small_file(&folder);
        assert!(whole_or_refused(&folder, &bytes, &all, "unchanged"));
        // Every byte of the header, and a sample of the other bytes. The sample covers all bit positions.
        let places = (0..512).chain((512..bytes.len()).filter(|at| bytes[*at] != 0).step_by(97));
        for (n, at) in places.enumerate() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (n % 8);
            whole_or_refused(&folder, &damaged, &all, &format!("byte {at}"));
        }
    }

    #[test]
    fn b_05_a_truncated_file_is_refused() {
        let folder = Folder::new();
        let (bytes, all) = small_file(&folder);
        let step = (bytes.len() / 60).max(1);
        for length in (1..bytes.len()).step_by(step).chain([1, 63, 64, 511, 4095, 4096, bytes.len() - 1]) {
            whole_or_refused(&folder, &bytes[..length], &all, &format!("cut at {length}"));
        }
        // A file that ends within the header counts as damaged. This is not a failure of the system.
        fs::write(folder.file(), &bytes[..64]).unwrap();
        assert!(matches!(records(&folder.file()), Err(Error::Damaged { .. })));
    }
}
