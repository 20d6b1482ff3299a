//! The configuration of a connection.

use std::sync::Arc;
use std::time::Duration;

use crate::certificate::{Fingerprint, Identity};
use crate::srtp::SrtpProfile;

/// The way in which the peer's identity is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerCheck {
    /// By a certificate with one of the announced fingerprints. A server requests one.
    #[default]
    Fingerprint,
    /// Accepts any certificate: possession of its key is proven, the holder's identity is not. A server requests one.
    AnyCertificate,
    /// A client takes any certificate; a server does not ask for one.
    Nobody,
}

/// The versions that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versions {
    /// DTLS 1.2 (RFC 6347).
    #[default]
    Only12,
    /// DTLS 1.3 (RFC 9147).
    Only13,
    /// DTLS 1.3, and 1.2 with a peer that has nothing newer.
    Both,
}

impl Versions {
    /// Whether DTLS 1.3 is among them.
    #[must_use]
    pub const fn have_13(self) -> bool {
        matches!(self, Self::Only13 | Self::Both)
    }

    /// Whether DTLS 1.2 is among them.
    #[must_use]
    pub const fn have_12(self) -> bool {
        matches!(self, Self::Only12 | Self::Both)
    }
}

/// Settings of a connection.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our certificate and key. A client without one cannot answer a server that requests it.
    pub identity: Option<Arc<Identity>>,
    /// The versions that are spoken.
    pub versions: Versions,
    /// The way in which the peer's identity is checked.
    pub check: PeerCheck,
    /// SRTP profiles, the preferred one first. The choice is the server's. With none, SRTP is not negotiated; with some,
    /// a peer that has none in common is refused.
    pub srtp_profiles: Vec<SrtpProfile>,
    /// The longest datagram that is sent, UDP payload.
    pub mtu: usize,
    /// The first pause before a flight is sent again; it doubles.
    pub retransmit_first: Duration,
    /// The longest pause.
    pub retransmit_longest: Duration,
    /// A handshake that takes longer has failed.
    pub handshake_timeout: Duration,
    /// A server asks for a cookie first (RFC 6347 §4.2.1). Behind ICE a peer has proven its address already; on a bare
    /// port a [`crate::CookieVerifier`] does the same for all callers without keeping anything.
    pub cookie: bool,
    /// Whether application data is taken; otherwise it is counted and forgotten.
    pub receives_data: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            identity: None,
            versions: Versions::default(),
            check: PeerCheck::Fingerprint,
            srtp_profiles: vec![
                SrtpProfile::AeadAes128Gcm,
                SrtpProfile::AeadAes256Gcm,
                SrtpProfile::Aes128CmSha1_80,
            ],
            mtu: 1200,
            retransmit_first: Duration::from_millis(50),
            retransmit_longest: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            cookie: false,
            receives_data: false,
        }
    }
}

/// The peer that is accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Not known yet: verification of the peer's certificate waits.
    #[default]
    Unknown,
    /// A peer with one of these fingerprints. An empty list matches no peer.
    OneOf(Vec<Fingerprint>),
}
