//! Records of the old installation, read from any kind of source.

use std::path::Path;

use serde_json::{Map, Value};

use super::report::Report;
use super::{dump, mapdb, redis};
use crate::store::Kind;

/// Maximum number of records that are read from one database. The store can hold fewer.
const RECORDS_MAX: usize = 5_000_000;

/// A record as Ant Media Server stores it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) record: Map<String, Value>,
}

/// The sources of records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    /// Folder with an export of MapDB, a dump of MongoDB, or both.
    pub(super) folder: Option<&'a Path>,
    /// A Redis server, or the file of one.
    pub(super) redis: Option<&'a redis::RedisSource>,
}

/// Collects the records of a database.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    records: Vec<Record>,
    report: &'a mut Report,
    place: &'a str,
}

impl Gather<'_> {
    /// Takes a record. Returns false if no more are accepted.
    pub(super) fn give(&mut self, record: Record) -> bool {
        if self.records.len() >= RECORDS_MAX {
            self.report.fail(self.place, "records", format!("more than {RECORDS_MAX}: the rest is not read"));
            return false;
        }
        self.records.push(record);
        true
    }

    /// Reports an entry that will not be imported.
    pub(super) fn leave(&mut self, key: &str, what: &str) {
        self.report.add(self.place, key, format!("left out: {what}"));
    }

    /// Reports a file that cannot be read.
    pub(super) fn fault(&mut self, path: &Path, reason: &str) {
        self.report.fail(self.place, &path.display().to_string(), reason);
    }
}

impl Sources<'_> {
    /// Returns the records in the database of an application or, if `database` is `None`,
    /// the users.
    pub(super) fn read(&self, place: &str, database: Option<&str>, report: &mut Report) -> Vec<Record> {
        let mut gather = Gather { records: Vec::new(), report, place };
        if let Some(folder) = self.folder {
            mapdb::read(folder, database, &mut gather);
            dump::read(folder, database, &mut gather);
            // `mongodump` writes to this folder by default.
            dump::read(&folder.join("dump"), database, &mut gather);
        }
        if let Some(source) = self.redis {
            redis::read(source, database, &mut gather);
        }
        gather.records
    }
}
