//! `millstream store ...`: tools for the store of a server that is not running, and backups of one that is running
//! (docs/store.md).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use crypto::{Random, Seed};

use super::directory::Records;
use super::jobs;
use super::{clock, local};
use crate::config::{Config, Options};
use crate::control::{Restored, StoredRecords, found_recording};
use crate::disk::{self, SystemDisk};
use crate::store::{self, Key, Kind, Op, RedbStore, Store, Task, backup, salvage};

/// Maximum number of recordings that one run finds.
const FOUND_MAX: usize = 1_000_000;
/// Maximum depth of folders.
const DEPTH_MAX: usize = 16;
/// Number of possible random numbers in an id, which have eleven digits.
const ID_NUMBERS: u64 = 100_000_000_000;
/// Number of records committed together.
const COMMITTED_AT_ONCE: usize = 1000;
/// Extensions of playable files.
const PLAYABLE: [&str; 3] = ["mp4", "webm", "flv"];

/// Runs a task, and returns the text to print.
///
/// # Errors
/// The reason of the failure, in one line, with advice.
pub fn run(options: &Options, task: &Task, out: &mut dyn Write) -> Result<String, String> {
    let config = Config::read(options).map_err(|error| error.to_string())?;
    if !options.is_home() && !config.used {
        let home = std::path::absolute(&options.home).unwrap_or_else(|_| options.home.clone());
        return Err(format!("{} is no home of a server: name it by --home DIR", home.display()));
    }
    let store = config.store_file();
    let told = |error: store::Error| backup::with_advice(&error, &store);
    if config.server.cluster().is_some() && !is_for_clusters(task) {
        return Err(IN_DIRECTORY.to_owned());
    }
    match task {
        Task::Check(copy) => {
            let all = read(&config, copy.as_deref()).map_err(told)?;
            Ok(format!("whole: {}", counts(all.iter().map(|(key, _)| key))))
        }
        Task::Backup(to) => back_up(&config, to.as_deref()),
        Task::Restore(from) => {
            let aside = store.with_file_name(format!("replaced-{}", backup::name_of(clock::now().wall_ms)));
            let all = store::check_copy(from).map_err(|error| error.to_string())?;
            check_records(&all)?;
            let records = RedbStore::restore(&store, from, &aside).map_err(|error| error.to_string())?;
            let kept = if aside.exists() {
                format!("; the former store is {}", aside.display())
            } else {
                String::new()
            };
            Ok(format!("restored: {records} records of {}{kept}", from.display()))
        }
        Task::Export(copy) => {
            let all = read(&config, copy.as_deref()).map_err(told)?;
            export(&all, out).map_err(|error| format!("the export: {error}"))?;
            Ok(format!("exported: {}", counts(all.iter().map(|(key, _)| key))))
        }
        Task::Salvage(from) => rescue(&options.home, &store, from.as_deref().unwrap_or(&store)),
        Task::Reindex => reindex(&config).map_err(told),
    }
}

/// True if a task works on records in the directory of a cluster.
const fn is_for_clusters(task: &Task) -> bool {
    match task {
        Task::Check(_) | Task::Export(_) => true,
        Task::Backup(_) | Task::Restore(_) | Task::Salvage(_) | Task::Reindex => false,
    }
}

const IN_DIRECTORY: &str = "the records are in the directory of the cluster (cluster.url), which has means of its own \
                            for this: docs/cluster.md";

/// Reads all records of the store, of the directory, or of a copy.
fn read(config: &Config, copy: Option<&Path>) -> Result<Vec<(Key, Bytes)>, store::Error> {
    let store = config.store_file();
    let all = match (copy, config.server.cluster()) {
        (Some(copy), _) => store::check_copy(copy)?,
        (None, Some(_)) => Records::visit(config)?.store().load()?,
        (None, None) => RedbStore::open_existing(&store)?.load()?,
    };
    let path = copy.unwrap_or(&store).display().to_string();
    check_records(&all).map_err(|reason| store::Error::Damaged { path, reason })?;
    Ok(all)
}

fn check_records(all: &[(Key, Bytes)]) -> Result<(), String> {
    Restored::decode(all).map(drop).map_err(|error| error.to_string())
}

/// Lists the number of records of each kind.
fn counts<'a>(keys: impl Iterator<Item = &'a Key>) -> String {
    let mut of_kind = BTreeMap::<Kind, usize>::new();
    keys.for_each(|key| *of_kind.entry(key.kind).or_default() += 1);
    let count = |kind: Kind| format!("{} {}", of_kind.get(&kind).copied().unwrap_or(0), kind.name());
    Kind::ALL.map(count).join(", ")
}

fn back_up(config: &Config, to: Option<&Path>) -> Result<String, String> {
    let store = config.store_file();
    let name = match local::back_up(&config.home) {
        Some(name) => name?,
        None => {
            let kept = config.server.backups().kept;
            let name = backup::name_of(clock::now().wall_ms);
            let order = backup::Backup { name: name.clone(), kept, age_min: Duration::ZERO };
            let mut opened =
                local::open_store(config).map_err(|error| backup::with_advice(&error, &store))?;
            opened.backup(&order)().map_err(|error| error.to_string())?;
            name
        }
    };
    let copy = backup::folder_of(&store).join(name);
    let Some(to) = to else { return Ok(format!("backed up: {}", copy.display())) };
    let failed = |error: io::Error| format!("{}: {error}", to.display());
    let beside = to.with_extension("new");
    let mut file = fs::OpenOptions::new();
    let opened = file.write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let mut opened = opened.map_err(failed)?;
    let copied = fs::File::open(&copy).and_then(|mut copy| io::copy(&mut copy, &mut opened));
    copied.and_then(|_| disk::put_in_place(&SystemDisk, &beside, to)).map_err(failed)?;
    Ok(format!("backed up: {} and {}", copy.display(), to.display()))
}

/// Writes one JSON object per line: kind, application, id, record. The records contain secrets.
fn export(all: &[(Key, Bytes)], out: &mut dyn Write) -> io::Result<()> {
    for (key, bytes) in all {
        let record: serde_json::Value = serde_json::from_slice(StoredRecords::json_of(bytes))?;
        let line = serde_json::json!({ "kind": key.kind.name(), "app": &*key.app, "id": &*key.id, "record": record });
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Writes the readable records of a damaged store to a file beside the store of the home.
fn rescue(home: &Path, store: &Path, from: &Path) -> Result<String, String> {
    let scratch = store.with_extension("scratch");
    let salvaged = salvage::salvage(from, &scratch, &StoredRecords).map_err(|error| error.to_string())?;
    let to = salvage::file_of(store);
    salvage::write(&salvaged, &to).map_err(|error| error.to_string())?;
    let mut said = format!("salvaged: {} into {}", counts(salvaged.all.keys()), to.display());
    if let Some(damage) = &salvaged.damage {
        let _ = write!(
            said,
            "; {damage}; {} of them were only found in pages and may be old or deleted ones",
            salvaged.from_pages
        );
    }
    let _ = write!(
        said,
        "; 'millstream store restore {} --home {}' puts it in place",
        to.display(),
        home.display()
    );
    Ok(said)
}

fn reindex(config: &Config) -> Result<String, store::Error> {
    // The operator has requested this task, so a store that is missing is created.
    let mut store = RedbStore::open(&config.store_file())?;
    let all = store.load()?;
    let mut known: Vec<Vec<String>> =
        all.iter().filter_map(|(key, bytes)| StoredRecords::file_of(key, bytes)).collect();
    known.sort();
    let mut random = seed()?.derive("reindex", 0).random();
    let mut found = Vec::new();
    for app in &config.apps {
        let folder = config.home.join("webapps").join(&*app.name);
        let mut files = Vec::new();
        look(&folder, &mut vec!["streams".to_owned()], &mut files);
        for below in files {
            let path: Vec<String> = [app.name.to_string()].into_iter().chain(below.iter().cloned()).collect();
            if known.binary_search(&path).is_err() {
                found.extend(record_of(&folder, &app.name, &below, &mut random));
            }
        }
    }
    for ops in found.chunks(COMMITTED_AT_ONCE) {
        store.commit(ops)?;
    }
    Ok(format!("listed: {} recordings that had no record, beside {} records", found.len(), all.len()))
}

/// Finds the playable files below a folder of an application. Links are not followed.
fn look(app: &Path, names: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let folder = names.iter().fold(app.to_path_buf(), |folder, name| folder.join(name));
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
        if name.starts_with('.') || found.len() >= FOUND_MAX {
            continue;
        }
        let is_playable = name.rsplit_once('.').is_some_and(|(_, end)| PLAYABLE.contains(&end));
        names.push(name);
        if kind.is_dir() && names.len() < DEPTH_MAX {
            look(app, names, found);
        } else if kind.is_file() && is_playable {
            found.push(names.clone());
        }
        names.pop();
    }
}

fn record_of(folder: &Path, app: &str, below: &[String], random: &mut Random) -> Option<Op> {
    let path = below.iter().fold(folder.to_path_buf(), |path, name| path.join(name));
    let file = fs::File::open(&path).ok()?;
    let data = file.metadata().ok()?;
    let written = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let date_ms = i64::try_from(written.as_millis()).unwrap_or(i64::MAX);
    // An id has the same form as one made by control: first the time, so that recordings sort in order, then a random
    // number.
    let id = format!("{date_ms:013}{:011}", random.below(ID_NUMBERS));
    let (key, bytes) = found_recording(app, below, &id, date_ms, jobs::finished(&file, data.len()));
    Some(Op::Put(key, bytes))
}

pub(super) fn seed() -> Result<Seed, store::Error> {
    let mut bytes = [0; 32];
    let path = "/dev/urandom";
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| store::Error::Io { path: path.to_owned(), reason: error.to_string() })?;
    Ok(Seed::from_bytes(bytes))
}
