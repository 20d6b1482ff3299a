#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
pub mod client;
pub mod coding;
mod connection;
mod error;
mod grammar;
mod head;
mod intake;
mod limits;
mod multipart;
mod range;
mod request;
mod resource;
mod response;
#[cfg(test)]
mod tests;
pub mod websocket;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::{Bytes, BytesMut};
pub use crypto::{NoEntropy, Random, Seed};
pub use wire::{Gather, SendQueue};

pub use body::{BodyDecoder, Framing};
pub use connection::{BodyLength, CloseReason, Connection, End, Event, Stats, StreamAnswer, StreamRequest};
pub use error::Error;
pub use grammar::is_token;
pub use head::decode_path;
pub use intake::{BodyLimits, Intake};
pub use limits::Limits;
pub use multipart::{FormEvent, Malformed, Multipart};
pub use range::{Range, parse_range};
pub use request::{Headers, Method, Request, Version};
pub use resource::{Resource, Selection};
pub use response::{Response, StreamHead, http_date, reason_phrase};
