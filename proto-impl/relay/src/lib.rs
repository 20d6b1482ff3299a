#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod error;
mod frame;
mod server;
#[cfg(test)]
mod tests;
mod tracks;

pub use client::{Client, ClientEvent, Playing};
pub use error::{Ended, Error, Refused};
pub use frame::{BODY_BYTES_MAX, HEAD_BYTES, UNIT_HEAD_BYTES, VERSION, unit_head};
pub use server::{Server, ServerEvent};
pub use tracks::tracks_frame;
