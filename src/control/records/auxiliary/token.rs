//! Records of tokens of streams that can be used once (docs/rest.md).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::store::{Key, Kind};
use crate::types::Now;

/// A one-time token, with its members in Ant Media Server's order.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::control) struct Token {
    /// Text of the token.
    pub(in crate::control) token_id: String,
    /// The stream's id.
    pub(in crate::control) stream_id: String,
    /// Time of expiry, in Unix seconds.
    pub(in crate::control) expire_date: i64,
    /// `publish` or `play`.
    #[serde(rename = "type")]
    pub(in crate::control) kind: String,
    /// Id of the room, if the token is for a room.
    pub(in crate::control) room_id: Option<String>,
}

/// Does not print the token.
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
    /// Returns the key in the store; tokens of one stream are adjacent.
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

/// Returns wall time in Unix seconds.
pub(in crate::control) fn now_s(now: Now) -> i64 {
    i64::try_from(now.wall_ms / 1000).unwrap_or(i64::MAX)
}
