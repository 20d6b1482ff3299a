//! For tests only: machines run against each other in virtual time, over links that misbehave by a seed.
//!
//! 1. A [`Clock`] gives the time; nothing waits.
//! 2. A [`Link`] carries datagrams and loses, delays, reorders, duplicates or swallows them; a [`StreamLink`]
//!    carries ordered bytes, cut anywhere, with a window, until a FIN, a reset or darkness.
//! 3. A [`Pair`] (datagrams) or a [`StreamPair`] (bytes) drives two machines that wear [`Peer`] or
//!    [`StreamPeer`], and notices when they make no progress. A larger simulation orders its own events with a
//!    [`Scheduler`].
//! 4. A [`MediaSource`] makes access units that say who they are, and a [`Verifier`] at the other end counts what
//!    arrived, what was lost and what was damaged.
//! 5. A [`publisher::Publisher`] has faulty clocks: timestamps that jump, drift, stand still and disagree.
//! 6. A [`Trace`] hashes all that was delivered: the same seed must give the same hash.
//!
//! ```
//! use netsim::{Link, secs, ms};
//! use crypto::Seed;
//!
//! let link = Link::new(&Seed::from_number(7)).latency(ms(40)).burst_loss(0.05).reorder(0.01);
//! assert_eq!(link.stats().sent, 0);
//! assert!(secs(1) > ms(40));
//! ```

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

// A program that embeds this crate needs no other for what stands in signatures.
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
