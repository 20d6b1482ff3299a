#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod auth;
mod client;
mod config;
mod error;
mod event;
pub mod limits;
mod link;
mod message;
mod presentation;
mod reader;
mod rtp_info;
mod server;
mod status;
#[cfg(test)]
mod testing;
mod timers;
mod transport;
pub mod uri;
mod via;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};
pub use sdp;
pub use wire::{Gather, SendQueue};

pub use client::Client;
pub use config::{ClientConfig, Config};
pub use error::{Error, Limit, Violation};
pub use event::{
    AnnounceRequest, ClientEvent, CloseReason, Event, Frame, RtpInfo, SetupRequest, Stats, StreamRequest,
    Timer, TrackSetup,
};
pub use link::frame_head;
pub use message::{Headers, Method, Request, Response, SessionHeader};
pub use reader::{Item, Reader};
pub use server::Server;
pub use status::Status;
pub use transport::{BadTransport, Channels, Lower, Mode, Ports, Transport};
pub use uri::{Target, Uri};
