//! Tokens of streams that can be used once (docs/security.md).

use std::time::{Duration, Instant};

use crate::auth::access::{Credentials, Direction, Params};
use crate::control::Walks;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords, AuxiliaryWrite, Token, now_s};
use crate::mail::PublishRequest;
use crate::store::Key;
use crate::types::{Now, StreamKey};

/// Maximum number of tokens of one application.
pub(in crate::control) const TOKENS_MAX: usize = 100_000;
/// The interval at which expired tokens are removed.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Number of tokens checked in one slice, and the pause between slices.
const SWEEP_SLICE: usize = 256;
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// The background scan that removes expired tokens.
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

impl Walks {
    /// Schedules the scan for expired tokens, unless it is scheduled already.
    pub(in crate::control) fn arm_sweep(&mut self, now: Now) {
        if self.sweep.due.is_none() {
            self.sweep.due = now.mono.checked_add(SWEEP_PERIOD);
        }
    }

    pub(in crate::control) fn fire_sweep(&mut self, records: &mut Records, now: Now) {
        if self.sweep.due.is_none_or(|due| due > now.mono) {
            return;
        }
        let behind = self.sweep.behind.take();
        let (seen, last, stale) = records.auxiliary.stale_tokens(behind.as_ref(), SWEEP_SLICE, now_s(now));
        if !stale.is_empty() {
            let changes = stale.into_iter().map(|key| (key, None)).collect();
            records.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter: None });
        }
        let pause = if seen < SWEEP_SLICE { SWEEP_PERIOD } else { SWEEP_PAUSE };
        self.sweep.behind = if seen < SWEEP_SLICE { None } else { last };
        // If there are no tokens at all, the scan stops until it is scheduled again.
        let none = seen == 0 && behind.is_none();
        self.sweep.due = if none { None } else { now.mono.checked_add(pause) };
    }
}

impl Records {
    /// True if the one-time token of a publisher was made for this room, in an application that checks tokens.
    pub(in crate::control) fn token_names_room(
        &self,
        cx: &Context,
        request: &PublishRequest,
        room: &str,
    ) -> bool {
        let Some(shown) = Credentials::of(&request.params).token else { return false };
        let checks = cx.apps.get(&request.key.app).is_some_and(|app| app.security.publish.token);
        match self.auxiliary.pending(&Token::key(&request.key.app, &request.key.id, shown)) {
            Some(Auxiliary::Token(token)) => checks && token.room_id.as_deref() == Some(room),
            Some(Auxiliary::Subscriber(_) | Auxiliary::User(_) | Auxiliary::Vod(_)) | None => false,
        }
    }
}

impl AuxiliaryRecords {
    /// Returns the key of the stored token that a peer shows, if the token is valid for this stream and direction.
    pub(super) fn valid_token(
        &self,
        now: Now,
        direction: Direction,
        key: &StreamKey,
        shown: Option<&str>,
    ) -> Option<Key> {
        let stored = Token::key(&key.app, &key.id, shown?);
        match self.pending(&stored)? {
            Auxiliary::Token(token) => token.is_valid(now, direction.word()).then_some(stored),
            Auxiliary::Subscriber(_) | Auxiliary::User(_) | Auxiliary::Vod(_) => None,
        }
    }
}

/// Uses up a checked token: the token is invalid immediately, and removed from disk with the next commit. While the
/// disk fails, no token can be used up and the peer is refused. If `is_shared`, the directory of the cluster has
/// already used up the token for this peer.
pub(in crate::control) fn burn_token(
    records: &mut Records,
    is_shared: bool,
    now: Now,
    key: &StreamKey,
    params: &Params,
) -> bool {
    let Some(shown) = Credentials::of(params).token else { return false };
    let stored = Token::key(&key.app, &key.id, shown);
    if records.writes.is_broken() || records.auxiliary.pending(&stored).is_none() {
        return false;
    }
    records.auxiliary.remove(&stored);
    if is_shared {
        return true;
    }
    records.write_auxiliary(
        now,
        AuxiliaryWrite { changes: vec![(stored, None)], files: Vec::new(), waiter: None },
    );
    true
}
