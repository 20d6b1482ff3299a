//! SRTP and SRTCP (RFC 3711) with the profiles of DTLS-SRTP (RFC 5764): counter mode with HMAC-SHA1, and GCM (RFC 7714).
//!
//! [`MasterKey::of_dtls`] cuts what a handshake exported into the keys of both directions. [`Outbound`] protects what we
//! send, [`Inbound`] opens what comes; each keeps, for every source, where the count of packets is. There are no clocks,
//! no timers and no randomness here.
//!
//! ```
//! use srtp::{Inbound, MasterKey, Outbound, Profile};
//!
//! let profile = Profile::AeadAes128Gcm;
//! let (client, _server) = MasterKey::of_dtls(profile, &[7; 56]).expect("56 bytes");
//! let (mut here, mut there) = (Outbound::new(&client).unwrap(), Inbound::new(&client).unwrap());
//!
//! let clear = [&[0x80, 96, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4][..], b"payload"].concat();
//! let mut packet = clear.clone();
//! here.protect(&mut packet)?;
//! assert_eq!(packet.len(), clear.len() + profile.rtp_overhead());
//!
//! let length = there.unprotect(&mut packet)?;
//! assert_eq!(packet[..length], clear);
//! # Ok::<(), srtp::Error>(())
//! ```
//!
//! A packet for many viewers stays in the clear and shared; [`Outbound::seal`] writes each viewer's head and seals the
//! payload on its way out.

#![forbid(unsafe_code)]

mod derive;
mod error;
mod inbound;
mod outbound;
mod profile;
mod replay;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

// A program that embeds this crate needs no other for what stands in signatures.
pub use rtp;
pub use wire::Datagrams;

pub use error::Error;
pub use inbound::{Inbound, InboundStats};
pub use outbound::Outbound;
pub use profile::{MasterKey, Profile};
pub use replay::WINDOW as REPLAY_WINDOW;

/// Sources of a peer: who has the key may make up as many as it likes.
pub const SOURCES_MAX: usize = 32;
/// Sources of our own, those that ended included: a viewer of a room is sent one or two by each participant, who come and go.
pub const OWN_SOURCES_MAX: usize = 4096;
