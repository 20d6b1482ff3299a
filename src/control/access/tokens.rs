//! One-time tokens of streams (docs/security.md).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::auth::access::{Credentials, Direction, Params};
use crate::control::Control;
use crate::control::sides::{Side, SideWrite};
use crate::store::{Key, Kind};
use crate::types::{Now, StreamKey};

/// Tokens of one application that are kept.
pub(in crate::control) const TOKENS_MAX: usize = 100_000;
/// How often tokens that are past their time are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Tokens looked at in one go, and the pause before the next one.
const SWEEP_SLICE: usize = 256;
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// A token. Members in the reference's order.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Token {
    /// What a peer shows.
    pub(in crate::control) token_id: String,
    /// Of which stream.
    pub(in crate::control) stream_id: String,
    /// Until when, in Unix seconds.
    pub(in crate::control) expire_date: i64,
    /// `publish` or `play`.
    #[serde(rename = "type")]
    pub(in crate::control) kind: String,
    /// The room it is good for, if it is for one.
    pub(in crate::control) room_id: Option<String>,
}

/// Without what it is worth.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("stream_id", &self.stream_id)
            .field("kind", &self.kind)
            .field("expire_date", &self.expire_date)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// Where it is stored: those of a stream lie together.
    pub(in crate::control) fn key(app: &Arc<str>, stream: &str, token: &str) -> Key {
        Key { kind: Kind::Token, app: app.clone(), id: format!("{stream}/{token}").into() }
    }

    pub(in crate::control) fn has_room(&self) -> bool {
        self.room_id.as_deref().is_some_and(|room| !room.is_empty())
    }

    pub(in crate::control) fn is_valid(&self, now: Now, kind: &str) -> bool {
        self.kind == kind && now_s(now) < self.expire_date
    }
}

fn now_s(now: Now) -> i64 {
    i64::try_from(now.wall_ms / 1000).unwrap_or(i64::MAX)
}

/// The walk that takes away what is past its time.
#[derive(Debug, Default)]
pub(in crate::control) struct Sweep {
    due: Option<Instant>,
    behind: Option<Key>,
}

impl Sweep {
    pub(in crate::control) const fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Control {
    /// The stored token that a peer may use, if what it shows is one.
    pub(super) fn valid_token(
        &self,
        now: Now,
        direction: Direction,
        key: &StreamKey,
        shown: Option<&str>,
    ) -> Option<Key> {
        let stored = Token::key(&key.app, &key.id, shown?);
        match self.sides.pending(&stored)? {
            Side::Token(token) => token.is_valid(now, direction.word()).then_some(stored),
            Side::Subscriber(_) | Side::User(_) => None,
        }
    }

    /// Uses up the token that was checked. It is gone for everybody from here on, and on the disk with the next commit;
    /// while the disk fails nothing can be used up, and nobody gets in.
    pub(in crate::control) fn burn_token(&mut self, now: Now, key: &StreamKey, params: &Params) -> bool {
        let Some(shown) = Credentials::of(params).token else { return false };
        let stored = Token::key(&key.app, &key.id, shown);
        if self.writes.is_broken() || self.sides.pending(&stored).is_none() {
            return false;
        }
        self.sides.remove(&stored);
        self.write_sides(now, SideWrite { changes: vec![(stored, None)], waiter: None });
        true
    }

    /// There are tokens: they are looked through some time.
    pub(in crate::control) fn arm_sweep(&mut self, now: Now) {
        if self.sweep.due.is_none() {
            self.sweep.due = now.mono.checked_add(SWEEP_PERIOD);
        }
    }

    pub(in crate::control) fn fire_sweep(&mut self, now: Now) {
        if self.sweep.due.is_none_or(|due| due > now.mono) {
            return;
        }
        let behind = self.sweep.behind.take();
        let (seen, last, stale) = self.sides.stale_tokens(behind.as_ref(), SWEEP_SLICE, now_s(now));
        if !stale.is_empty() {
            let changes = stale.into_iter().map(|key| (key, None)).collect();
            self.write_sides(now, SideWrite { changes, waiter: None });
        }
        let pause = if seen < SWEEP_SLICE { SWEEP_PERIOD } else { SWEEP_PAUSE };
        self.sweep.behind = if seen < SWEEP_SLICE { None } else { last };
        // Without tokens there is nothing to look for.
        let none = seen == 0 && behind.is_none();
        self.sweep.due = if none { None } else { now.mono.checked_add(pause) };
    }
}
