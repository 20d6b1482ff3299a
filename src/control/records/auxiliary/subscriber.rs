//! Subscribers of streams (docs/security.md): people that an operator names, with codes, limits and blocks.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::access::Direction;
use crate::store::{Key, Kind};
use crate::types::Now;

/// The shortest id of a subscriber, in characters.
const ID_CHARS_MIN: usize = 4;
/// The type of a subscriber that is blocked from both publishing and playing.
const BOTH: &str = "publish_play";

/// A subscriber as it is stored. What is known of its connections is not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Subscriber {
    /// The id that the subscriber shows.
    pub(in crate::control) subscriber_id: String,
    /// The name, for people.
    pub(in crate::control) subscriber_name: Option<String>,
    /// The stream's id.
    pub(in crate::control) stream_id: String,
    /// `publish` or `play`, when it may do only one.
    #[serde(rename = "type")]
    pub(in crate::control) kind: Option<String>,
    /// The most concurrent connections; negative: unlimited.
    pub(in crate::control) concurrent_connections_limit: i32,
    /// `publish`, `play` or `publish_play`.
    pub(in crate::control) blocked_type: Option<String>,
    /// The end of the block, in Unix milliseconds.
    pub(in crate::control) blocked_until_unit_time_stamp_ms: i64,
    /// The period of its codes.
    pub(in crate::control) totp_expiry_period_seconds: Option<i32>,
    /// The secret of its codes, in Base32.
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
    /// The longest id, in bytes, of those that are not stored too.
    pub(in crate::control) const ID_BYTES_MAX: usize = 256;

    /// The key in the store: the subscribers of a stream are adjacent.
    pub(in crate::control) fn key(app: &Arc<str>, stream: &str, id: &str) -> Key {
        Key { kind: Kind::Subscriber, app: app.clone(), id: format!("{stream}/{id}").into() }
    }

    /// Whether somebody may be called so.
    pub(in crate::control) fn is_id(id: &str) -> bool {
        id.chars().count() >= ID_CHARS_MIN
            && id.len() <= Self::ID_BYTES_MAX
            && !id.chars().any(char::is_control)
    }

    /// Whether `kind` names what somebody can be kept from.
    pub(in crate::control) fn is_block(kind: &str) -> bool {
        [BOTH, Direction::Publish.word(), Direction::Play.word()].contains(&kind)
    }

    pub(in crate::control) fn is_blocked(&self, direction: Direction, now: Now) -> bool {
        let kind = self.blocked_type.as_deref().unwrap_or("");
        (kind == BOTH || kind == direction.word())
            && crate::control::wall(now) < self.blocked_until_unit_time_stamp_ms
    }

    /// Connections at a time; `None`: any number.
    pub(in crate::control) fn connections_max(&self) -> Option<usize> {
        usize::try_from(self.concurrent_connections_limit).ok()
    }

    pub(in crate::control) fn has_room(&self, connections: usize) -> bool {
        self.connections_max().is_none_or(|limit| connections < limit)
    }

    pub(in crate::control) fn may(&self, direction: Direction) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == direction.word())
    }

    /// The period of its codes, when it has its own.
    pub(in crate::control) fn period(&self) -> Option<u64> {
        self.totp_expiry_period_seconds.and_then(|period| u64::try_from(period).ok()).filter(|p| *p > 0)
    }
}
