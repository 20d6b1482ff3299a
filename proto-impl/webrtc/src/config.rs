//! The configuration of a peer.

use std::net::SocketAddr;
use std::sync::Arc;

/// The way in which a peer establishes connectivity.
#[derive(Debug, Clone)]
pub enum IceMode {
    /// ICE lite, for a server with these public addresses: it answers checks and sends none (RFC 8445 §2.5).
    Lite {
        /// The agent's settings.
        config: Arc<ice::LiteConfig>,
        /// The UDP addresses, the preferred one first.
        addresses: Vec<SocketAddr>,
    },
    /// Full ICE, as a client. Local addresses are added by [`crate::Peer::add_local`].
    Full(Arc<ice::Config>),
}

/// Settings, shared by all peers of one kind.
#[derive(Debug, Clone)]
pub struct Config {
    /// The way in which connectivity is established.
    pub ice: IceMode,
    /// Whether peers may connect to a lite agent's addresses over TCP as well (RFC 6544): passive candidates behind those of
    /// UDP. The owner takes frames ([`ice::tcp`]) from connections and brings them by an [`ice::Path::tcp`].
    pub tcp: bool,
    /// The handshake; an identity is needed.
    pub dtls: Arc<dtls::Config>,
    /// Whether we open the association where the offer leaves it to us. A server had better wait: nothing is sent to one
    /// who says nothing.
    pub dtls_client: bool,
    /// The highest rate that a publisher is allowed, in bits per second, if it asks for an estimate (REMB). Publishers
    /// that get arrival times judge for themselves.
    pub bitrate_max: u64,
    /// The delay that players are asked to keep, where they let themselves be asked.
    pub playout_delay: Option<rtp::extension::PlayoutDelay>,
    /// Data channels, for peers that negotiate them.
    pub sctp: Arc<sctp::Config>,
    /// Bytes of the longest datagram that is sent, UDP payload.
    pub datagram_bytes_max: usize,
    /// Whether later offers of the peer may add sections and withdraw them, up to [`crate::OFFERED_SECTIONS_MAX`]: for a viewer of a
    /// server with rooms. A server had better take no more than [`crate::SECTIONS_MAX`], once.
    pub takes_changes: bool,
}

impl Config {
    /// Creates the default configuration with an identity.
    #[must_use]
    pub fn new(ice: IceMode, identity: Arc<dtls::Identity>) -> Self {
        let dtls = Arc::new(dtls::Config {
            identity: Some(identity),
            versions: dtls::Versions::Both,
            receives_data: true,
            ..dtls::Config::default()
        });
        Self {
            ice,
            tcp: false,
            dtls,
            dtls_client: false,
            bitrate_max: 20_000_000,
            playout_delay: None,
            sctp: Arc::default(),
            datagram_bytes_max: 1200,
            takes_changes: false,
        }
    }
}
