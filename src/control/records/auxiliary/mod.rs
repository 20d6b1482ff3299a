//! The auxiliary records: tokens and subscribers of streams, users of the management API, recordings. Each is replaced
//! as a whole. Changes pass the same stages as changes of broadcasts: gathered, committed, made visible, answered
//! (`writes`).

mod subscriber;
mod token;
mod vod;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::restored::Restored;
use crate::control::management::{PasswordHash, User};
use crate::control::mask::Requester;
use crate::control::recordings::stream_of;
use crate::http::Response;
use crate::jobs::{Finished, series_of};
use crate::store::{Key, Kind, salvage};
pub(in crate::control) use subscriber::Subscriber;
pub(in crate::control) use token::{Token, now_s};
pub(in crate::control) use vod::{Kept, Place, Store, Take, Uploaded, Vod};

/// An auxiliary record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::control) enum Auxiliary {
    /// A record of [`Kind::Token`].
    Token(Token),
    /// A record of [`Kind::Subscriber`].
    Subscriber(Subscriber),
    /// A record of [`Kind::User`].
    User(User),
    /// A record of [`Kind::Vod`].
    Vod(Vod),
}

impl Auxiliary {
    /// Returns the stored form.
    pub(in crate::control) fn encode(&self) -> Bytes {
        let bytes = match self {
            Self::Token(token) => serde_json::to_vec(token),
            Self::Subscriber(subscriber) => serde_json::to_vec(subscriber),
            Self::User(user) => serde_json::to_vec(user),
            Self::Vod(vod) => vod.encode(),
        };
        bytes.unwrap_or_default().into()
    }

    /// Decodes a stored record; `None` for a broadcast, which is not auxiliary.
    pub(in crate::control) fn decode(kind: Kind, bytes: &[u8]) -> Option<Result<Self, String>> {
        let record = match kind {
            Kind::Broadcast => return None,
            Kind::Token => serde_json::from_slice(bytes).map(Self::Token),
            Kind::Subscriber => serde_json::from_slice(bytes).map(Self::Subscriber),
            Kind::User => serde_json::from_slice(bytes).map(Self::User),
            Kind::Vod => serde_json::from_slice(bytes).map(Self::Vod),
        };
        Some(record.map_err(|error| error.to_string()))
    }
}

/// Makes the stored record of an administrator, for a server that is not running.
#[must_use]
pub fn administrator_record(email: &str, hash: String) -> (Key, Bytes) {
    let user = User { password_hash: PasswordHash(hash), ..User::administrator(email) };
    (Key::new(Kind::User, "", email), Auxiliary::User(user).encode())
}

/// Makes the record of a recording whose file was found on disk. `below` is the path below the application; `finished`
/// was read from the file.
#[must_use]
pub fn found_recording(
    app: &str,
    below: &[String],
    id: &str,
    date_ms: i64,
    finished: Finished,
) -> (Key, Bytes) {
    let stream = below.last().map(|name| stream_of(name, |_| false));
    let vod = Vod {
        vod_name: below.last().cloned(),
        stream_id: stream,
        creation_date: date_ms,
        file_path: Some(below.join("/")),
        vod_id: Some(id.to_owned()),
        kind: Some(Vod::RECORDED.to_owned()),
        ..Vod::default()
    };
    let key = Vod::key(&app.into(), id);
    (key, Auxiliary::Vod(vod.finished(finished)).encode())
}

/// Reads stored records for the tools that work on a store.
#[derive(Debug, Clone, Copy)]
pub struct StoredRecords;

impl StoredRecords {
    /// Returns the JSON of a record. A broadcast has a version byte before its JSON.
    #[must_use]
    pub fn json_of(bytes: &[u8]) -> &[u8] {
        match bytes.split_first() {
            Some((version, json)) if version.is_ascii_control() => json,
            Some(_) | None => bytes,
        }
    }

    /// Returns the path of a record's file below the root of files; `None` for a record without a file.
    #[must_use]
    pub fn file_of(key: &Key, bytes: &[u8]) -> Option<Vec<String>> {
        match Auxiliary::decode(key.kind, bytes) {
            Some(Ok(Auxiliary::Vod(vod))) => Some(vod.path(&key.app)),
            Some(Ok(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_)) | Err(_)) | None => {
                None
            }
        }
    }
}

impl salvage::Records for StoredRecords {
    fn is_good(&self, key: &Key, bytes: &[u8]) -> bool {
        Restored::decode(&[(key.clone(), Bytes::copy_from_slice(bytes))]).is_ok()
    }

    fn kind_of(&self, app: &str, _: &str, bytes: &[u8]) -> Option<Kind> {
        let serde_json::Value::Object(record) = serde_json::from_slice(Self::json_of(bytes)).ok()? else {
            return None;
        };
        if app.is_empty() {
            return Some(Kind::User);
        }
        // The first of these members that a record has decides its kind. A token or a file, for example, has a
        // `streamId` as well, so the member of broadcasts is last.
        let members = [
            ("vodId", Kind::Vod),
            ("tokenId", Kind::Token),
            ("subscriberId", Kind::Subscriber),
            ("streamId", Kind::Broadcast),
        ];
        members.into_iter().find(|(member, _)| record.contains_key(*member)).map(|(_, kind)| kind)
    }

    fn version_of(&self, bytes: &[u8]) -> i64 {
        let record: serde_json::Value = serde_json::from_slice(Self::json_of(bytes)).unwrap_or_default();
        let date = |member: &str| record.get(member).and_then(serde_json::Value::as_i64);
        date("updateTime").or_else(|| date("creationDate")).unwrap_or(0)
    }
}

/// Returns the index entry of a file that belongs to the recording of a room; `None` for any other file.
fn take_of(key: &Key, vod: &Vod) -> Option<(Arc<str>, String, String, Key)> {
    let take = vod.room.as_deref()?;
    Some((Arc::clone(&key.app), take.id.clone(), take.recording.clone(), key.clone()))
}

/// Returns the index entry of a record's file.
fn file_of(key: &Key, vod: &Vod) -> Option<(Arc<str>, String, u64, Key)> {
    let (first, number) = series_of(vod.file_path.as_deref()?);
    Some((Arc::clone(&key.app), first, number, key.clone()))
}

/// Returns the index entry of a record's object.
fn object_of(key: &Key, vod: &Vod) -> Option<(Box<str>, Key)> {
    vod.kept.as_ref().map(|kept| (Box::from(kept.name()), key.clone()))
}

/// Auxiliary changes that are committed together, with the request that waits for them.
#[derive(Debug)]
pub(in crate::control) struct AuxiliaryWrite {
    /// The changed records; `None` removes a record.
    pub(in crate::control) changes: Vec<(Key, Option<Auxiliary>)>,
    /// Files, with their applications, to delete after the commit, so that no file is gone while its record remains.
    pub(in crate::control) files: Vec<(Arc<str>, Vod)>,
    /// Request that is answered after the commit.
    pub(in crate::control) waiter: Option<(Requester, Response)>,
}

/// All auxiliary records.
#[derive(Debug, Default)]
pub(in crate::control) struct AuxiliaryRecords {
    records: BTreeMap<Key, Auxiliary>,
    /// Changes that are not committed yet.
    overlay: BTreeMap<Key, Option<Auxiliary>>,
    /// The stream of each room token, by application and token. The API shows these tokens without their stream.
    rooms: BTreeMap<(Arc<str>, String), String>,
    /// Files by application, first path of their series ([`series_of`]) and number in it. More than one record may name
    /// the same file.
    files: BTreeSet<(Arc<str>, String, u64, Key)>,
    /// Files by the names of their objects in object storage.
    objects: BTreeSet<(Box<str>, Key)>,
    /// The files of recordings of rooms, by application, room and recording.
    takes: BTreeSet<(Arc<str>, String, String, Key)>,
    /// The number of records of a kind by application.
    counts: BTreeMap<(Kind, Arc<str>), usize>,
}

impl AuxiliaryRecords {
    /// Adds a record from the store.
    pub(in crate::control) fn insert(&mut self, key: Key, record: Auxiliary) {
        if let Auxiliary::Token(token) = &record
            && token.has_room()
        {
            self.rooms.insert((key.app.clone(), token.token_id.clone()), token.stream_id.clone());
        }
        if let Auxiliary::Vod(vod) = &record {
            self.forget_file(&key);
            self.takes.extend(take_of(&key, vod));
            self.files.extend(file_of(&key, vod));
            self.objects.extend(object_of(&key, vod));
        }
        let counted = (key.kind, key.app.clone());
        if self.records.insert(key, record).is_none() {
            let count = self.counts.entry(counted).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Removes a record from memory immediately. The store is changed later.
    pub(in crate::control) fn remove(&mut self, key: &Key) {
        self.forget_file(key);
        let Some(record) = self.records.remove(key) else { return };
        if let Some(count) = self.counts.get_mut(&(key.kind, key.app.clone())) {
            *count = count.saturating_sub(1);
        }
        if let Auxiliary::Token(token) = record {
            self.rooms.remove(&(key.app.clone(), token.token_id));
        }
    }

    /// Removes a record's file from the indexes.
    fn forget_file(&mut self, key: &Key) {
        let Some(Auxiliary::Vod(vod)) = self.records.get(key) else { return };
        if let Some(take) = take_of(key, vod) {
            self.takes.remove(&take);
        }
        if let Some(file) = file_of(key, vod) {
            self.files.remove(&file);
        }
        if let Some(object) = object_of(key, vod) {
            self.objects.remove(&object);
        }
    }

    /// Returns the key of the newest record whose file has this path below the application.
    pub(in crate::control) fn of_file(&self, app: &Arc<str>, path: &str) -> Option<&Key> {
        self.all_of_file(app, path).last()
    }

    /// Returns the keys of the records whose file has this path below the application, oldest first.
    pub(in crate::control) fn all_of_file<'a>(
        &'a self,
        app: &Arc<str>,
        path: &str,
    ) -> impl DoubleEndedIterator<Item = &'a Key> + use<'a> {
        let (first, number) = series_of(path);
        let from = (Arc::clone(app), first.clone(), number, Vod::key(app, ""));
        let to = (Arc::clone(app), first, number.saturating_add(1), Vod::key(app, ""));
        self.files.range(from..to).map(|(.., key)| key)
    }

    /// Returns the highest number up to `max` of a file in the series that begins with this path below the application.
    pub(in crate::control) fn last_of_series(&self, app: &Arc<str>, first: &str, max: u64) -> Option<u64> {
        let at = |number| (Arc::clone(app), first.to_owned(), number, Vod::key(app, ""));
        self.files.range(at(0)..at(max.saturating_add(1))).next_back().map(|(_, _, number, _)| *number)
    }

    /// Returns the keys of the records of all applications whose objects have this name, in any storage.
    pub(in crate::control) fn all_of_object<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Key> {
        let from = (Box::from(name), Key::new(Kind::Broadcast, "", ""));
        self.objects.range(from..).take_while(move |(own, _)| **own == *name).map(|(_, key)| key)
    }

    /// Returns the recordings of a room, the oldest first.
    pub(in crate::control) fn recordings_of_room<'a>(
        &'a self,
        app: &Arc<str>,
        room: &'a str,
    ) -> Vec<&'a str> {
        let mut all = Vec::<&str>::new();
        for (_, _, recording, _) in self.takes_from(app, room, "") {
            if all.last() != Some(&recording.as_str()) {
                all.push(recording);
            }
        }
        all
    }

    /// Returns the files of a room's recording, the oldest first.
    pub(in crate::control) fn files_of_room<'a>(
        &'a self,
        app: &Arc<str>,
        room: &'a str,
        recording: &'a str,
    ) -> impl Iterator<Item = &'a Vod> {
        let of_it = self.takes_from(app, room, recording).take_while(move |take| take.2 == recording);
        of_it.filter_map(|(_, _, _, key)| match self.records.get(key) {
            Some(Auxiliary::Vod(vod)) => Some(vod),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_)) | None => None,
        })
    }

    fn takes_from<'a>(
        &'a self,
        app: &Arc<str>,
        room: &'a str,
        recording: &str,
    ) -> impl Iterator<Item = &'a (Arc<str>, String, String, Key)> + use<'a> {
        let app = Arc::clone(app);
        let first = (Arc::clone(&app), room.to_owned(), recording.to_owned(), Vod::key(&app, ""));
        self.takes.range(first..).take_while(move |take| take.0 == app && take.1 == room)
    }

    /// Returns the stream for which a room token was made.
    pub(in crate::control) fn stream_of_room_token(&self, app: &Arc<str>, token: &str) -> Option<&str> {
        self.rooms.get(&(app.clone(), token.to_owned())).map(String::as_str)
    }

    /// Returns the record as the API shows it, without pending changes.
    pub(in crate::control) fn get(&self, key: &Key) -> Option<&Auxiliary> {
        self.records.get(key)
    }

    /// Returns the record as it will be after all pending changes. New changes are checked against this record.
    pub(in crate::control) fn pending(&self, key: &Key) -> Option<&Auxiliary> {
        match self.overlay.get(key) {
            Some(record) => record.as_ref(),
            None => self.records.get(key),
        }
    }

    /// True if the removal of a record is on its way to the disk.
    pub(in crate::control) fn is_being_removed(&self, key: &Key) -> bool {
        matches!(self.overlay.get(key), Some(None))
    }

    /// Returns the records of an application in the order of their ids, starting at the id `from`.
    pub(in crate::control) fn of<'a>(
        &'a self,
        kind: Kind,
        app: &Arc<str>,
        from: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a Auxiliary)> + use<'a> {
        let first = Key { kind, app: app.clone(), id: from.into() };
        let app = app.clone();
        self.records.range(first..).take_while(move |(key, _)| key.kind == kind && key.app == app)
    }

    /// Returns the records of a stream, by id.
    pub(in crate::control) fn of_stream<'a>(
        &'a self,
        kind: Kind,
        app: &Arc<str>,
        stream: &str,
    ) -> impl Iterator<Item = &'a Auxiliary> + use<'a> {
        let prefix = format!("{stream}/");
        let all = self.of(kind, app, &prefix);
        all.take_while(move |(key, _)| key.id.starts_with(&prefix)).map(|(_, record)| record)
    }

    /// Returns the keys of a stream's records, including those not yet committed.
    pub(in crate::control) fn keys_of(
        &self,
        kind: Kind,
        app: &Arc<str>,
        stream: &str,
        count: usize,
    ) -> Vec<Key> {
        let prefix = format!("{stream}/");
        let is_ours = |key: &&Key| key.kind == kind && key.app == *app && key.id.starts_with(&prefix);
        let stored = self.of(kind, app, &prefix).map(|(key, _)| key).take_while(is_ours);
        let is_there = |key: &&Key| self.pending(key).is_some();
        let pending = self.overlay.keys().filter(is_ours).filter(|key| !self.records.contains_key(key));
        stored.chain(pending).filter(is_there).take(count).cloned().collect()
    }

    /// Examines up to `count` tokens after the given one. Returns the number of examined tokens, the last one of them,
    /// and those that are expired at `now_s`.
    pub(in crate::control) fn stale_tokens(
        &self,
        behind: Option<&Key>,
        count: usize,
        now_s: i64,
    ) -> (usize, Option<Key>, Vec<Key>) {
        let start = Key::new(Kind::Token, "", "");
        let from = behind.map_or(Bound::Included(&start), Bound::Excluded);
        let (mut seen, mut last, mut stale) = (0, None, Vec::new());
        let tokens =
            self.records.range((from, Bound::Unbounded)).take_while(|(key, _)| key.kind == Kind::Token);
        for (key, record) in tokens.take(count) {
            seen += 1;
            last = Some(key.clone());
            if matches!(record, Auxiliary::Token(token) if token.expire_date <= now_s) {
                stale.push(key.clone());
            }
        }
        (seen, last, stale)
    }

    /// Returns the number of records of a kind in an application.
    pub(in crate::control) fn count(&self, kind: Kind, app: &Arc<str>) -> usize {
        self.counts.get(&(kind, app.clone())).copied().unwrap_or(0)
    }

    /// True if there is a record of this kind, counting pending changes.
    pub(in crate::control) fn has_any(&self, kind: Kind) -> bool {
        let is_there = |key: &&Key| key.kind == kind && self.overlay.get(*key).is_none_or(Option::is_some);
        self.overlay.iter().any(|(key, record)| key.kind == kind && record.is_some())
            || self
                .records
                .range(Key::new(kind, "", "")..)
                .map(|(key, _)| key)
                .take_while(|key| key.kind == kind)
                .any(|key| is_there(&key))
    }

    /// Returns all records, for a new store file.
    pub(in crate::control) fn all(&self) -> impl Iterator<Item = (&Key, &Auxiliary)> {
        self.records.iter()
    }

    pub(in crate::control) fn stage(&mut self, changes: &[(Key, Option<Auxiliary>)]) {
        self.overlay.extend(changes.iter().cloned());
    }

    pub(in crate::control) fn unstage(&mut self) {
        self.overlay.clear();
    }

    pub(in crate::control) fn apply(&mut self, key: Key, record: Option<Auxiliary>) {
        match record {
            Some(record) => self.insert(key, record),
            None => self.remove(&key),
        }
    }
}
