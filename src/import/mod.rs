//! `millstream import DIR`: converts an installation of Ant Media Server to a home of this server (docs/import.md).
//!
//! 1. The folder of the installation is examined ([`installation`]): settings, applications, files.
//! 2. Settings become files of the home. This includes restrictions that prevent an application from starting.
//! 3. The store is opened. This fails while a server is running.
//! 4. Certificates and pages are copied, and recordings are linked ([`files`]).
//! 5. The records ([`sources`]) are committed. They are read from an export of MapDB ([`mapdb`]), or from a dump of
//!    MongoDB ([`dump`]) or Redis ([`redis`], [`rdb`]).
//!
//! The installation is not changed. Data that already exists in the home is kept, so that a second run only adds what
//! is missing. Everything that will work differently is listed in one table ([`report`]).

mod dump;
mod files;
mod installation;
mod mapdb;
mod rdb;
mod redis;
mod report;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::config::{self, Adopted, Adoption, Options, StorePlace};
use crate::control::{NotImported, StoredRecords, imported_key, imported_record};
use crate::jobs::PasswordDigest;
use crate::protocol::http::has_page;
use crate::store::{Key, Kind, Op, Store};
use files::{Bring, Brought, Folder};
use installation::{Installation, OldApp, is_of_java, is_page};
pub use redis::{Address, RedisSource};
use report::Report;
use sources::{Record, Sources};

/// Maximum number of records committed together.
const COMMITTED_AT_ONCE: usize = 1000;
/// Extension of a recording that the old server did not finish.
const UNFINISHED: &str = ".tmp_extension";

/// The options of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Folder of the old installation.
    pub from: PathBuf,
    /// Folder of the exported or dumped records.
    pub records: Option<PathBuf>,
    /// The Redis server, or the file of one, that contains the records.
    pub redis: Option<RedisSource>,
    /// True to copy recordings instead of linking them.
    pub copy: bool,
    /// True to change nothing.
    pub dry_run: bool,
}

/// An open store of the home.
pub type Opened = Box<dyn Store>;

/// Access to the outside that an import needs.
pub struct Tools<'a> {
    /// Current time, in Unix milliseconds.
    pub now_ms: u64,
    /// Opens or creates the store of the home.
    pub open: &'a dyn Fn(&StorePlace) -> Result<Opened, String>,
    /// Reads the store of the home, if there is one, without changing it.
    pub read: &'a dyn Fn(&StorePlace) -> Result<Vec<Key>, String>,
    /// Converts a password digest of the old server to the hash to store.
    pub hash: &'a dyn Fn(&PasswordDigest) -> String,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}

/// Runs an import, or a dry run. Prints the table and returns a summary.
///
/// # Errors
/// The reason why the import failed or is incomplete, in one line.
pub fn run(
    options: &Options,
    order: &Order,
    tools: &Tools<'_>,
    out: &mut dyn Write,
) -> Result<String, String> {
    keep_apart(&order.from, &options.home)?;
    let mut report = Report::default();
    let done = Import { options, order, tools, report: &mut report, totals: Totals::default() }.run();
    report.write(out).and_then(|()| out.flush()).map_err(|error| format!("the table: {error}"))?;
    done
}

/// Refuses a home inside the installation, and an installation inside the home. In both cases the import would change
/// the installation.
fn keep_apart(from: &Path, home: &Path) -> Result<(), String> {
    let from = from.canonicalize().map_err(|error| format!("{}: {error}", from.display()))?;
    let absolute = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    let there = absolute.ancestors().find_map(|path| Some((path, path.canonicalize().ok()?)));
    let home = match there {
        Some((above, real)) => real.join(absolute.strip_prefix(above).unwrap_or_else(|_| Path::new(""))),
        None => absolute,
    };
    if home.starts_with(&from) || from.starts_with(&home) {
        return Err(format!(
            "{} and {} lie within each other: name another home by --home DIR",
            home.display(),
            from.display()
        ));
    }
    Ok(())
}

/// Totals for the summary.
#[derive(Debug, Default)]
struct Totals {
    settings: usize,
    apps: usize,
    files: Brought,
    added: BTreeMap<Kind, usize>,
    left: BTreeMap<Kind, usize>,
    expired: usize,
    passing: usize,
}

struct Import<'a> {
    options: &'a Options,
    order: &'a Order,
    tools: &'a Tools<'a>,
    report: &'a mut Report,
    totals: Totals,
}

impl Import<'_> {
    fn run(mut self) -> Result<String, String> {
        let words = |error: config::Error| error.to_string();
        let old = Installation::read(&self.order.from, self.report)?;
        let mut known = BTreeSet::new();
        let mut store = None;
        if self.options.is_home() && self.order.dry_run {
            known = (self.tools.read)(&StorePlace::find(self.options).map_err(words)?)?.into_iter().collect();
        } else if self.options.is_home() {
            // Opening the store fails if a server is running in the home. Nothing in the home has been
            // changed then.
            store = Some(self.open_store()?);
        }
        self.bring_settings(&old).map_err(words)?;
        if store.is_none() && !self.order.dry_run {
            store = Some(self.open_store()?);
        }
        if let Some(store) = &mut store {
            let mut note = |key, _| {
                known.insert(key);
            };
            store.read(&mut note).map_err(|error| error.to_string())?;
        }
        old.list_leftovers(self.report);
        self.bring_certificate(&old);
        for app in &old.apps {
            self.bring_files(app);
        }
        self.bring_records(&old, &mut known, store.as_deref_mut())?;
        if !self.order.dry_run {
            let names = old.apps.iter().map(|app| app.name.as_str());
            config::remember(self.options, names).map_err(words)?;
        }
        match self.report.failed() {
            0 => Ok(self.summary()),
            failed => Err(format!("{failed} things could not be read or written; {}", self.summary())),
        }
    }

    /// Opens the store. Imported settings may be invalid, so this needs none of them.
    fn open_store(&self) -> Result<Opened, String> {
        (self.tools.open)(&StorePlace::make(self.options).map_err(|error| error.to_string())?)
    }

    fn bring_settings(&mut self, old: &Installation) -> Result<(), config::Error> {
        let server = Adopted::new(self.options, None, &old.settings)?;
        self.bring_file_of_settings("server", None, &server)?;
        for app in &old.apps {
            let adopted = Adopted::new(self.options, Some(&app.name), &app.settings)?;
            self.bring_file_of_settings(&app.name, Some(&app.name), &adopted)?;
            self.totals.apps += 1;
        }
        Ok(())
    }

    fn bring_file_of_settings(
        &mut self,
        name: &str,
        app: Option<&str>,
        adopted: &Adopted,
    ) -> Result<(), config::Error> {
        let place = format!("{name}: settings");
        match adopted.write(self.options, app, self.order.dry_run)? {
            Adoption::Written => {
                self.totals.settings += adopted.set.len();
                let whole = if app.is_some() {
                    "the application does not start"
                } else {
                    "the server does not start"
                };
                for fault in &adopted.faults {
                    let key = fault.split_once(" (from ").map_or(fault.as_str(), |(key, _)| key);
                    self.report.add(&place, key, format!("{whole} until this is corrected: {fault}"));
                }
            }
            Adoption::Left(keys) => {
                for key in keys {
                    self.report.add(&place, &key, "the home has settings of its own, which are left");
                }
            }
        }
        for (key, reason) in &adopted.without_effect {
            self.report.add(&place, key, format!("kept, without effect here: {reason}"));
        }
        for key in &adopted.unknown {
            self.report.add(&place, key, "unknown here, and left out");
        }
        Ok(())
    }

    fn bring_certificate(&mut self, old: &Installation) {
        for file in old.certificate_files() {
            let (from, to) = (old.folder.join(&file), self.options.home.join(&file));
            let name = file.display().to_string();
            match files::bring(&from, &to, Bring::Copy, self.order.dry_run) {
                Ok(brought) => {
                    if brought.left > 0 && std::fs::read(&from).ok() != std::fs::read(&to).ok() {
                        self.report.add("certificate", &name, "the home has another one, which is left");
                    }
                    self.totals.files.add(brought);
                }
                Err(error) => self.report.fail("certificate", &name, format!("not taken: {error}")),
            }
        }
    }

    fn bring_files(&mut self, app: &OldApp) {
        let to = self.options.home.join("webapps").join(&app.name);
        let dry_run = self.order.dry_run;
        let bring = if self.order.copy { Bring::Copy } else { Bring::Link };
        let (streams, into) = (app.folder.join("streams"), to.join("streams"));
        let place = format!("{}: files", app.name);
        let is_hidden = |names: &[String]| names.iter().any(|name| name.starts_with('.'));
        let recordings =
            Folder { from: &streams, to: &into, bring, dry_run, place: &place, is_skipped: &is_hidden };
        let is_finished = |names: &[String], report: &mut Report| {
            let is_unfinished = names.last().is_some_and(|name| name.contains(UNFINISHED));
            if is_unfinished {
                report.add(&place, &names.join("/"), "a recording that the old server has not finished");
            }
            !is_unfinished
        };
        self.totals.files.add(recordings.bring(&is_finished, self.report));
        let place = format!("{}: pages", app.name);
        let is_no_page = |names: &[String]| !is_page(names);
        let pages = Folder {
            from: &app.folder,
            to: &to,
            bring: Bring::Copy,
            dry_run,
            place: &place,
            is_skipped: &is_no_page,
        };
        let is_wanted = |names: &[String], report: &mut Report| {
            let path = names.join("/");
            if is_of_java(names) {
                report.add(&place, &path, "needs Java: it is left out");
                return false;
            }
            if has_page(&app.name, &path) {
                report.add(
                    &place,
                    &path,
                    "copied; hides the built-in page: remove it to use the built-in one",
                );
            }
            true
        };
        self.totals.files.add(pages.bring(&is_wanted, self.report));
    }

    fn bring_records(
        &mut self,
        old: &Installation,
        known: &mut BTreeSet<Key>,
        mut store: Option<&mut (dyn Store + '_)>,
    ) -> Result<(), String> {
        let sources = Sources { folder: self.order.records.as_deref(), redis: self.order.redis.as_ref() };
        let users = sources.read("users", None, self.report);
        if users.is_empty() && old.folder.join("server.db").is_file() {
            self.report.add("users", "server.db", "no users were read: export it first (docs/import.md)");
        }
        self.take("users", "", users, known, &mut store)?;
        for app in &old.apps {
            let database = app.database();
            let place = format!("{}: records", app.name);
            let records = sources.read(&place, Some(&database), self.report);
            if records.is_empty() {
                self.say_where_records_are(old, app, &database, &place);
            }
            self.take(&place, &app.name, records, known, &mut store)?;
        }
        Ok(())
    }

    fn say_where_records_are(&mut self, old: &Installation, app: &OldApp, database: &str, place: &str) {
        let kind = app.database_kind();
        let file = format!("{database}.db");
        if kind == "mapdb" && !old.folder.join(&file).is_file() {
            return;
        }
        let (subject, advice) = match kind {
            "mapdb" => (file.as_str(), "export it, and name the folder by --records"),
            "mongodb" => (database, "dump it by mongodump, and name the folder by --records"),
            "redisdb" => (database, "name the server or its RDB file by --redis"),
            _ => (database, "kept in memory: there are none"),
        };
        self.report.add(place, subject, format!("no records were read: {advice} (docs/import.md)"));
    }

    fn take(
        &mut self,
        place: &str,
        app: &str,
        records: Vec<Record>,
        known: &mut BTreeSet<Key>,
        store: &mut Option<&mut (dyn Store + '_)>,
    ) -> Result<(), String> {
        let mut ops = Vec::new();
        for Record { kind, record } in records {
            if let Some(op) = self.translate(place, app, kind, record, known) {
                ops.push(op);
            }
            if ops.len() >= COMMITTED_AT_ONCE {
                commit(store, &mut ops)?;
            }
        }
        commit(store, &mut ops)
    }

    fn translate(
        &mut self,
        place: &str,
        app: &str,
        kind: Kind,
        record: serde_json::Map<String, serde_json::Value>,
        known: &mut BTreeSet<Key>,
    ) -> Option<Op> {
        let name = name_of(kind, &record);
        let what = format!("{} {name}", kind.name().trim_end_matches('s'));
        if imported_key(kind, app, &record).is_some_and(|key| known.contains(&key)) {
            *self.totals.left.entry(kind).or_default() += 1;
            self.report.add(place, &what, "the home has it, and it is left");
            return None;
        }
        match imported_record(kind, app, record, self.tools.now_ms, self.tools.hash) {
            Ok(imported) => {
                for remark in imported.remarks {
                    self.report.add(place, &what, remark);
                }
                if let Some(path) = StoredRecords::file_of(&imported.key, &imported.bytes) {
                    self.look_for_file(place, &what, &path);
                }
                *self.totals.added.entry(kind).or_default() += 1;
                known.insert(imported.key.clone());
                Some(Op::Put(imported.key, imported.bytes))
            }
            Err(NotImported::Expired) => {
                self.totals.expired += 1;
                None
            }
            Err(NotImported::Passing) => {
                self.totals.passing += 1;
                None
            }
            Err(NotImported::Unusable(reason)) => {
                self.report.add(place, &what, format!("left out: {reason}"));
                None
            }
        }
    }

    /// Reports a record if its file does not exist.
    fn look_for_file(&mut self, place: &str, what: &str, path: &[String]) {
        let below = |root: &Path| path.iter().fold(root.join("webapps"), |path, name| path.join(name));
        if !below(&self.order.from).is_file() && !below(&self.options.home).is_file() {
            self.report.add(place, what, "its file is not there: it may be in S3, or gone");
        }
    }

    fn summary(&self) -> String {
        let Totals { settings, apps, files, added, left, expired, passing } = &self.totals;
        let counts = |of: &BTreeMap<Kind, usize>| {
            Kind::ALL
                .map(|kind| format!("{} {}", of.get(&kind).copied().unwrap_or(0), kind.name()))
                .join(", ")
        };
        let done = if self.order.dry_run { "would be imported" } else { "imported" };
        format!(
            "{done}: {apps} applications, {settings} settings, {}; files: {} linked, {} copied, {} were there; records that were \
             there: {}; left out: {expired} expired tokens, {passing} records of publishers alone; {} rows of differences",
            counts(added),
            files.linked,
            files.copied,
            files.left,
            counts(left),
            self.report.len()
        )
    }
}

/// Returns the name of a record for the report. For a token, this is the stream, because the token's id is secret.
fn name_of(kind: Kind, record: &serde_json::Map<String, serde_json::Value>) -> String {
    let member = match kind {
        Kind::Broadcast | Kind::Token => "streamId",
        Kind::Subscriber => "subscriberId",
        Kind::Vod => "vodId",
        Kind::User => "email",
    };
    record.get(member).and_then(serde_json::Value::as_str).unwrap_or("without an id").to_owned()
}

fn commit(store: &mut Option<&mut (dyn Store + '_)>, ops: &mut Vec<Op>) -> Result<(), String> {
    let ops = std::mem::take(ops);
    match store {
        Some(store) if !ops.is_empty() => store.commit(&ops).map_err(|error| error.to_string()),
        Some(_) | None => Ok(()),
    }
}
