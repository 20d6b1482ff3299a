#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(all(feature = "std", not(test)))]
extern crate std;

mod bits;
mod datagrams;
#[cfg(feature = "std")]
mod gather;
mod reader;
mod send_queue;
#[cfg(feature = "std")]
mod timers;
mod writer;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;

pub use bits::BitReader;
pub use datagrams::{Datagrams, Run};
#[cfg(feature = "std")]
pub use gather::{Gather, SCRATCH_BYTES};
pub use reader::{Reader, Truncated};
pub use send_queue::SendQueue;
#[cfg(feature = "std")]
pub use timers::Timers;
pub use writer::Writer;
