//! The words below all rooms: ids, keys, time. Nothing here knows any other room.

mod ids;
mod key;
mod time;

pub use ids::{ConnId, PullId, PushId, SessionRef, StreamId, WorkerId};
pub use key::StreamKey;
pub use time::Now;
