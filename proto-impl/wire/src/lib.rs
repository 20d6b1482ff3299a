//! The checked way to touch a byte.
//!
//! Everything that comes off the wire is read through [`Reader`] (or [`BitReader`] below the byte), and
//! everything that goes out waits in a [`SendQueue`], is named by a [`Gather`], or is collected as [`Datagrams`]. Nothing here keeps protocol
//! state, allocates by a length that a peer announced, or can panic.

#![forbid(unsafe_code)]

mod bits;
mod datagrams;
mod gather;
mod reader;
mod send_queue;
mod writer;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;

pub use bits::BitReader;
pub use datagrams::{Datagrams, Run};
pub use gather::{Gather, SCRATCH_BYTES};
pub use reader::{Reader, Truncated};
pub use send_queue::SendQueue;
pub use writer::Writer;
