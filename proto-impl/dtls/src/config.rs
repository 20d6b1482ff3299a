//! The configuration of a connection.

use std::sync::Arc;
use std::time::Duration;

use crate::certificate::{Fingerprint, Identity};
use crate::srtp::SrtpProfile;

/// Check of the peer's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerCheck {
    /// The certificate must have one of the announced fingerprints. Servers request a certificate.
    #[default]
    Fingerprint,
    /// Any certificate is accepted: the peer proves possession of its key, but not its identity. Servers
    /// request a certificate.
    AnyCertificate,
    /// Clients accept any certificate; servers request none.
    Nobody,
}

/// Supported versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versions {
    /// DTLS 1.2 (RFC 6347) only.
    #[default]
    Only12,
    /// DTLS 1.3 (RFC 9147) only.
    Only13,
    /// DTLS 1.3; or 1.2 with peers that do not support 1.3.
    Both,
}

impl Versions {
    /// True if DTLS 1.3 is supported.
    #[must_use]
    pub const fn have_13(self) -> bool {
        matches!(self, Self::Only13 | Self::Both)
    }

    /// True if DTLS 1.2 is supported.
    #[must_use]
    pub const fn have_12(self) -> bool {
        matches!(self, Self::Only12 | Self::Both)
    }
}

/// Settings of a connection.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our certificate and key. Without them, a client cannot comply with a server's request for a
    /// certificate.
    pub identity: Option<Arc<Identity>>,
    /// Supported versions.
    pub versions: Versions,
    /// Check of the peer's identity.
    pub check: PeerCheck,
    /// SRTP profiles in order of preference; the server's order decides. If empty, SRTP is not negotiated;
    /// otherwise a peer without a common profile is refused.
    pub srtp_profiles: Vec<SrtpProfile>,
    /// Maximum datagram to send, in bytes of UDP payload.
    pub mtu: usize,
    /// Initial retransmission timeout of a flight; it doubles with each retransmission.
    pub retransmit_first: Duration,
    /// Maximum retransmission timeout.
    pub retransmit_longest: Duration,
    /// Time after which an incomplete handshake fails.
    pub handshake_timeout: Duration,
    /// True if a server first requires a cookie from the client (RFC 6347 §4.2.1). With ICE, the peer's
    /// address is already verified; on a port without ICE, a [`crate::CookieVerifier`] does the same for all
    /// clients without keeping state.
    pub cookie: bool,
    /// True to deliver application data; false to count and drop it.
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

/// Peers that are acceptable, by the fingerprints of their certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Not known yet; the check of the peer's certificate must wait.
    #[default]
    Unknown,
    /// Peers with one of these fingerprints. An empty list accepts no peer.
    OneOf(Vec<Fingerprint>),
}
