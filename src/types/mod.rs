//! Basic types for all modules: ids, keys, time, ingests. Nothing here depends on another module.

mod allowance;
pub mod build;
mod ids;
mod ingest;
mod key;
mod lookup;
mod node;
mod time;

pub use allowance::{Allowance, Rate};
pub use ids::{ConnId, Handle, PullId, PushId, RecordingId, SessionRef, StreamId, SubscriptionId, WorkerId};
pub use ingest::Ingest;
pub use key::StreamKey;
pub use lookup::Lookup;
pub use node::NodeId;
pub use time::{Calendar, Civil, Now, WallClock};
