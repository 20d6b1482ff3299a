//! The words below all rooms: ids, keys, time, ways in. Nothing here knows any other room.

mod ids;
mod ingest;
mod key;
mod time;

pub use ids::{ConnId, Handle, PullId, PushId, SessionRef, StreamId, SubscriptionId, WorkerId};
pub use ingest::Ingest;
pub use key::StreamKey;
pub use time::Now;
