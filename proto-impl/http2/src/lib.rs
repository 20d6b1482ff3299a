#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod allowance;
mod config;
mod connection;
mod error;
mod event;
mod frame;
pub mod hpack;
mod request;
mod stream;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use connection::Connection;
pub use error::{Code, Error};
pub use event::{CloseReason, Event, Stats, StreamId};
pub use frame::PREFACE;
pub use hpack::Field;
pub use request::Request;
