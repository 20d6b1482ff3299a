//! Subscribers of streams (docs/security.md): people that an operator names, with codes, limits and blocks.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::access::Direction;
use crate::store::{Key, Kind};
use crate::types::Now;

/// Shortest id of a subscriber, in characters.
const ID_CHARS_MIN: usize = 4;
/// The `blockedType` of a subscriber who may neither publish nor play.
const BOTH: &str = "publish_play";

/// A subscriber as stored, without the state of its connections.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Subscriber {
    /// Id that the subscriber sends.
    pub(in crate::control) subscriber_id: String,
    /// Name for display.
    pub(in crate::control) subscriber_name: Option<String>,
    /// The stream's id.
    pub(in crate::control) stream_id: String,
    /// `publish` or `play` if the subscriber may do only that.
    #[serde(rename = "type")]
    pub(in crate::control) kind: Option<String>,
    /// Maximum number of concurrent connections; negative: unlimited.
    pub(in crate::control) concurrent_connections_limit: i32,
    /// Operations that the subscriber is blocked from: `publish`, `play` or `publish_play`.
    pub(in crate::control) blocked_type: Option<String>,
    /// End of the block, in Unix milliseconds.
    pub(in crate::control) blocked_until_unit_time_stamp_ms: i64,
    /// Time after which the subscriber's code changes, in seconds.
    pub(in crate::control) totp_expiry_period_seconds: Option<i32>,
    /// Secret from which the subscriber's codes are computed, in Base32.
    pub(in crate::control) b32_secret: Option<String>,
}

impl Default for Subscriber {
    fn default() -> Self {
        Self {
            subscriber_id: String::new(),
            subscriber_name: None,
            stream_id: String::new(),
            kind: None,
            concurrent_connections_limit: 1,
            blocked_type: None,
            blocked_until_unit_time_stamp_ms: 0,
            totp_expiry_period_seconds: None,
            b32_secret: None,
        }
    }
}

/// Does not print the secret.
impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("stream_id", &self.stream_id)
            .field("subscriber_id", &self.subscriber_id)
            .finish_non_exhaustive()
    }
}

impl Subscriber {
    /// Maximum length of a subscriber's id, in bytes.
    pub(in crate::control) const ID_BYTES_MAX: usize = 256;

    /// Returns the key in the store; subscribers of one stream are adjacent.
    pub(in crate::control) fn key(app: &Arc<str>, stream: &str, id: &str) -> Key {
        Key { kind: Kind::Subscriber, app: app.clone(), id: format!("{stream}/{id}").into() }
    }

    /// True if `id` is a valid subscriber id.
    pub(in crate::control) fn is_id(id: &str) -> bool {
        id.chars().count() >= ID_CHARS_MIN
            && id.len() <= Self::ID_BYTES_MAX
            && !id.chars().any(char::is_control)
    }

    /// True if a path of the API can name the subscriber ([`crate::http::decode_path`]).
    pub(in crate::control) fn is_in_paths(id: &str) -> bool {
        let hides_escape = id
            .as_bytes()
            .windows(3)
            .any(|three| matches!(three, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()));
        !id.contains(['/', '\\']) && !hides_escape
    }

    /// True if `kind` is a valid type of block.
    pub(in crate::control) fn is_block(kind: &str) -> bool {
        [BOTH, Direction::Publish.word(), Direction::Play.word()].contains(&kind)
    }

    pub(in crate::control) fn is_blocked(&self, direction: Direction, now: Now) -> bool {
        let kind = self.blocked_type.as_deref().unwrap_or("");
        (kind == BOTH || kind == direction.word())
            && crate::control::wall(now) < self.blocked_until_unit_time_stamp_ms
    }

    /// Returns the limit of concurrent connections; `None` if unlimited.
    pub(in crate::control) fn connections_max(&self) -> Option<usize> {
        usize::try_from(self.concurrent_connections_limit).ok()
    }

    pub(in crate::control) fn has_room(&self, connections: usize) -> bool {
        self.connections_max().is_none_or(|limit| connections < limit)
    }

    pub(in crate::control) fn may(&self, direction: Direction) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == direction.word())
    }

    /// Returns the subscriber's own code period, if set.
    pub(in crate::control) fn period(&self) -> Option<u64> {
        self.totp_expiry_period_seconds.and_then(|period| u64::try_from(period).ok()).filter(|p| *p > 0)
    }
}
