//! The records beside the broadcasts: tokens and subscribers of streams, users of the management API. They are few,
//! are replaced whole, and survive as broadcasts do: gathered, committed, then visible, then answered (`writes`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Control;
use super::management::{PasswordHash, User};
use crate::http::Response;
use crate::mail::{Now, SessionRef};
use crate::store::{Key, Kind};

/// A token of a stream (rest.md §3.2).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Token {
    /// What a client shows.
    pub(super) token_id: String,
}

/// A subscriber of a stream (rest.md §3.2).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subscriber {
    /// What a client calls itself.
    pub(super) subscriber_id: String,
}

/// One of these records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Side {
    /// Of [`Kind::Token`].
    Token(Token),
    /// Of [`Kind::Subscriber`].
    Subscriber(Subscriber),
    /// Of [`Kind::User`].
    User(User),
}

impl Side {
    /// As the store keeps it.
    pub(super) fn encode(&self) -> Bytes {
        let bytes = match self {
            Self::Token(token) => serde_json::to_vec(token),
            Self::Subscriber(subscriber) => serde_json::to_vec(subscriber),
            Self::User(user) => serde_json::to_vec(user),
        };
        bytes.unwrap_or_default().into()
    }

    /// What the store had under a key; `None` for a broadcast, which is none of these.
    pub(super) fn decode(kind: Kind, bytes: &[u8]) -> Option<Result<Self, String>> {
        let side = match kind {
            Kind::Broadcast => return None,
            Kind::Token => serde_json::from_slice(bytes).map(Self::Token),
            Kind::Subscriber => serde_json::from_slice(bytes).map(Self::Subscriber),
            Kind::User => serde_json::from_slice(bytes).map(Self::User),
        };
        Some(side.map_err(|error| error.to_string()))
    }
}

/// An administrator as the store keeps it, for a server that does not run.
#[must_use]
pub fn administrator_record(email: &str, hash: String) -> (Key, Bytes) {
    let user = User { password_hash: PasswordHash(hash), ..User::administrator(email) };
    (Key::new(Kind::User, "", email), Side::User(user).encode())
}

/// Changes that are committed together, and who waits for them.
#[derive(Debug)]
pub(super) struct SideWrite {
    /// `None` removes.
    pub(super) changes: Vec<(Key, Option<Side>)>,
    /// Gets the answer once the disk has the changes.
    pub(super) waiter: Option<(SessionRef, Response)>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sides {
    records: BTreeMap<Key, Side>,
    /// What is on its way to the disk.
    overlay: BTreeMap<Key, Option<Side>>,
}

impl Sides {
    /// Takes over what the store had.
    pub(super) fn insert(&mut self, key: Key, side: Side) {
        self.records.insert(key, side);
    }

    /// What everybody sees.
    pub(super) fn get(&self, key: &Key) -> Option<&Side> {
        self.records.get(key)
    }

    /// The record as it will be once everything pending is done; checks of a change look here.
    pub(super) fn pending(&self, key: &Key) -> Option<&Side> {
        match self.overlay.get(key) {
            Some(side) => side.as_ref(),
            None => self.records.get(key),
        }
    }

    /// Those of one application in order of their ids, from the first that is not before `from`.
    pub(super) fn of<'a>(
        &'a self,
        kind: Kind,
        app: &Arc<str>,
        from: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a Side)> + use<'a> {
        let first = Key { kind, app: app.clone(), id: from.into() };
        let app = app.clone();
        self.records.range(first..).take_while(move |(key, _)| key.kind == kind && key.app == app)
    }

    /// Whether there is one of that kind, or will be once everything pending is done.
    pub(super) fn has_any(&self, kind: Kind) -> bool {
        let is_there = |key: &&Key| key.kind == kind && self.overlay.get(*key).is_none_or(Option::is_some);
        self.overlay.iter().any(|(key, side)| key.kind == kind && side.is_some())
            || self
                .records
                .range(Key::new(kind, "", "")..)
                .map(|(key, _)| key)
                .take_while(|key| key.kind == kind)
                .any(|key| is_there(&key))
    }

    /// Everything, for a fresh file.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Side)> {
        self.records.iter()
    }

    pub(super) fn stage(&mut self, changes: &[(Key, Option<Side>)]) {
        self.overlay.extend(changes.iter().cloned());
    }

    pub(super) fn unstage(&mut self) {
        self.overlay.clear();
    }

    fn apply(&mut self, key: Key, side: Option<Side>) {
        match side {
            Some(side) => self.records.insert(key, side),
            None => self.records.remove(&key),
        };
    }
}

impl Control {
    /// The changes are on disk: now they happen.
    pub(super) fn apply_sides(&mut self, _: Now, write: SideWrite) {
        for (key, side) in write.changes {
            let before = self.sides.get(&key).cloned();
            self.end_sessions_of(before.as_ref(), side.as_ref());
            self.sides.apply(key, side);
        }
        if let Some((session, response)) = write.waiter {
            self.answer(session, response);
        }
    }
}
