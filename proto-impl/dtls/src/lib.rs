#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

mod alert;
mod certificate;
mod config;
mod connection;
mod cookie;
mod der;
mod error;
mod event;
mod flight;
mod handshake;
mod put;
mod reassembly;
mod record;
mod srtp;
mod stats;
mod suite;
#[cfg(test)]
mod testing;
mod v12;
mod v13;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use crypto::{self, NoEntropy, PublicKey, Seed};
pub use wire::Datagrams;

pub use alert::AlertDescription;
pub use certificate::{Fingerprint, Identity, public_key};
pub use config::{Config, PeerCheck, Versions};
pub use connection::{Connection, Role};
pub use cookie::{Checked, CookieVerifier};
pub use error::{Error, Failure};
pub use event::{CloseReason, Connected, Event};
pub use handshake::MessageType;
pub use srtp::{SrtpKeys, SrtpProfile};
pub use stats::Stats;
pub use suite::CipherSuite;

/// Compiles only if the value is wiped when it is dropped.
const fn wipes<T: zeroize::ZeroizeOnDrop>(_: &T) {}
