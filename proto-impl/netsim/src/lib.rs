#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod link;
mod media_source;
mod pair;
mod peer;
pub mod publisher;
mod scheduler;
mod stream_link;
mod stream_pair;
mod trace;
mod verifier;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use crypto::Seed;

pub use clock::{Clock, ms, secs};
pub use link::{BottleneckBytes, Link, LinkStats};
pub use media_source::{MediaSource, SyntheticUnit};
pub use pair::{Pair, Stuck};
pub use peer::{Input, Peer, StreamInput, StreamPeer};
pub use scheduler::{Due, Scheduler};
pub use stream_link::{Cut, StreamDelivery, StreamLink};
pub use stream_pair::StreamPair;
pub use trace::Trace;
pub use verifier::{Corrupt, Counts, Seen, Verifier};
