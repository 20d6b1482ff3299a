//! Credentials of publishers and viewers, and their presence.
//!
//! 1. A request carries the parameters of its peer; `admission` calls `check_credentials` with them.
//! 2. A polling viewer, which watches by separate requests, gets a pass for its next requests (`passes`).
//! 3. When a request is admitted, its one-time token is used up (`tokens`), and the subscriber's connection is
//!    counted (`presence`).
//! 4. Calls between two sockets are arranged here (`calls`).

mod attempts;
mod calls;
mod passes;
mod presence;
mod subscribers;
pub(super) mod tokens;

pub(super) use attempts::CodeAttempts;
pub(super) use calls::Calls;
pub(super) use passes::Passes;
pub(super) use presence::{ConnectionEvent, Presences};
pub(super) use tokens::{Sweep, TOKENS_MAX};

use std::net::IpAddr;

use crypto::constant_time_eq;

use super::admission::Admissions;
use super::feeds::Feeds;
use super::live::Registry;
use super::questions::Questions;
use super::records::auxiliary::Subscriber;
use crate::auth::access::{Credentials, Denial, Direction, Params, is_for_stream, is_hash, is_jwt};
use crate::auth::time_code;
use crate::config::{AppSettings, SecuritySettings};
use crate::control::key_sets::KeySets;
use crate::control::records::Records;
use crate::types::{Now, StreamKey};

/// Access control: credentials, presence, and failed codes.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) admissions: Admissions,
    pub(super) presences: Presences,
    pub(super) passes: Passes,
    pub(super) attempts: CodeAttempts,
    pub(super) key_sets: KeySets,
    pub(super) calls: Calls,
    pub(super) feeds: Feeds,
    pub(super) questions: Questions,
}

impl Records {
    /// True if `shown` is the publish key of the broadcast. False without a record, or if the record has no key yet.
    fn is_publish_key(&self, key: &StreamKey, shown: Option<&str>) -> bool {
        let known = self.pending(key).and_then(|record| record.publish_key.as_deref());
        known.is_some_and(|known| constant_time_eq(known.as_bytes(), shown.unwrap_or_default().as_bytes()))
    }
}

/// The request of a publisher or viewer whose credentials are to be checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) direction: Direction,
    pub(super) key: &'a StreamKey,
    pub(super) params: &'a Params,
    pub(super) peer: IpAddr,
}

impl Access {
    /// Runs the application's checks that need no answer from outside. No token is used up.
    pub(super) fn check_credentials(
        &self,
        records: &Records,
        registry: &Registry,
        now: Now,
        app: &AppSettings,
        asked: Asked<'_>,
    ) -> Result<(), Denial> {
        let Asked { direction, key, params, peer } = asked;
        let shown = Credentials::of(params);
        let security = &app.security;
        let checks = match direction {
            Direction::Publish => &security.publish,
            Direction::Play => &security.play,
        };
        // The name is kept while the peer is connected, and appears in logs and hooks, so its length is limited.
        if shown.subscriber.is_some_and(|id| id.len() > Subscriber::ID_BYTES_MAX) {
            return Err(Denial::LongName);
        }
        if let Some(id) = shown.subscriber
            && let Some(subscriber) = records.auxiliary.subscriber(key, id)
        {
            if subscriber.is_blocked(direction, now) {
                return Err(Denial::Blocked(id.to_owned()));
            }
            let replaced = match direction {
                Direction::Publish => registry.replaced_by(records, now, key, params),
                Direction::Play => None,
            };
            if !subscriber.has_room(self.connections_of(registry, (direction, replaced), key, id, peer)) {
                return Err(Denial::Connections);
            }
        }
        if checks.time_code
            && (self.attempts.is_over(now, key, shown.subscriber, peer)
                || !records.is_time_code(now, direction, app, key, shown))
        {
            return Err(Denial::TimeCode);
        }
        if checks.token && records.auxiliary.valid_token(now, direction, key, shown.token).is_none() {
            return Err(Denial::Token);
        }
        if checks.hash && !is_hash(shown.token, &key.id, direction, &security.secrets.hash) {
            return Err(Denial::Hash);
        }
        if checks.publish_key && !records.is_publish_key(key, shown.publish_key) {
            return Err(Denial::PublishKey);
        }
        if checks.jwt && !self.is_stream_token(now, direction, security, key, shown.token) {
            return Err(Denial::Jwt);
        }
        Ok(())
    }

    /// True if the token is signed for this stream, by the application's secret or a key of its key set.
    fn is_stream_token(
        &self,
        now: Now,
        direction: Direction,
        security: &SecuritySettings,
        key: &StreamKey,
        token: Option<&str>,
    ) -> bool {
        if is_jwt(token, &key.id, direction, &security.secrets.jwt, now.wall_ms) {
            return true;
        }
        let (Some(token), Some(url)) = (token, &security.secrets.keys) else { return false };
        let claims = self.key_sets.verify(now, url, token);
        claims.is_ok_and(|claims| is_for_stream(&claims, &key.id, direction))
    }
}

impl Records {
    /// True if the subscriber shows its current time code.
    fn is_time_code(
        &self,
        now: Now,
        direction: Direction,
        app: &AppSettings,
        key: &StreamKey,
        shown: Credentials<'_>,
    ) -> bool {
        let (Some(id), Some(code)) = (shown.subscriber, shown.code) else { return false };
        let secrets = &app.security.secrets;
        let record = self.auxiliary.subscriber(key, id);
        if record.is_some_and(|record| !record.may(direction)) {
            return false;
        }
        let period = record.and_then(Subscriber::period).unwrap_or(secrets.time_code_period);
        let known = code_key(app, direction.word(), key, id, record);
        known.is_some_and(|known| time_code::is_valid(&known, period, now.wall_ms, code))
    }
}

/// Returns the key with which a subscriber's time codes are computed, from the subscriber's own secret or else from
/// that of the application. `None` if there is no secret, or if the application refuses codes of subscribers without a
/// stored record.
pub(super) fn code_key(
    app: &AppSettings,
    kind: &str,
    key: &StreamKey,
    id: &str,
    record: Option<&Subscriber>,
) -> Option<Vec<u8>> {
    if let Some(secret) = record.and_then(|record| record.b32_secret.as_deref()) {
        return time_code::key_of_secret(secret);
    }
    let direction = if kind == Direction::Play.word() { Direction::Play } else { Direction::Publish };
    let secrets = &app.security.secrets;
    let secret = secrets.time_code(direction);
    if secret.is_empty() || (secrets.time_code_stored_only && record.is_none()) {
        return None;
    }
    let separator = if secrets.time_code_separators { "/" } else { "" };
    Some(time_code::derived_key(secret.reveal(), id, &key.id, kind, separator))
}
