#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod call;
mod call_client;
mod client;
mod error;
mod frame;
mod server;
#[cfg(test)]
mod tests;
mod tracks;
mod viewers;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use media;
pub use wire::{Gather, SendQueue};

pub use call::{Answer, CALL_BYTES_MAX, Call};
pub use call_client::{ANSWER_WITHIN, CallClient, CallEvent};
pub use client::{Client, ClientEvent, Playing};
pub use error::{Ended, Error, Refused};
pub use frame::{BODY_BYTES_MAX, HEAD_BYTES, UNIT_HEAD_BYTES, VERSION, unit_head};
pub use server::{Server, ServerEvent};
pub use tracks::tracks_frame;
pub use viewers::Viewers;
