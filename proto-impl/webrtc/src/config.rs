//! The configuration of a peer.

use std::net::SocketAddr;
use std::sync::Arc;

/// The ICE implementation that a peer uses.
#[derive(Debug, Clone)]
pub enum IceMode {
    /// ICE lite, for a server with public addresses: it answers connectivity checks and sends none (RFC 8445 §2.5).
    Lite {
        /// The agent's settings.
        config: Arc<ice::LiteConfig>,
        /// Public UDP addresses of the server, the preferred one first.
        addresses: Vec<SocketAddr>,
    },
    /// Full ICE, as a client. Local addresses are added by [`crate::Peer::add_local`].
    Full(Arc<ice::Config>),
}

/// Settings shared by all peers of the same kind.
#[derive(Debug, Clone)]
pub struct Config {
    /// ICE lite or full ICE.
    pub ice: IceMode,
    /// Peers may also connect to a lite agent's addresses over TCP (RFC 6544): passive TCP candidates with a lower
    /// priority than those of UDP. The owner extracts frames ([`ice::tcp`]) from its connections and passes them in
    /// with an [`ice::Path::tcp`].
    pub tcp: bool,
    /// Settings of the DTLS handshake; they must include an identity.
    pub dtls: Arc<dtls::Config>,
    /// Role in the DTLS handshake where the offer leaves it open: true to connect, false to wait. A server should wait,
    /// so that it sends nothing to a silent peer.
    pub dtls_client: bool,
    /// Highest rate that a publisher is allowed, in bits per second, if it uses REMB estimates. Publishers that get
    /// transport-wide feedback estimate the rate themselves.
    pub bitrate_max: u64,
    /// Playout delay requested of players that support the extension; `None` requests nothing.
    pub playout_delay: Option<rtp::extension::PlayoutDelay>,
    /// Settings of data channels, for peers that negotiate them.
    pub sctp: Arc<sctp::Config>,
    /// Largest datagram to send: bytes of UDP payload.
    pub datagram_bytes_max: usize,
    /// Sent audio may carry its level (RFC 6464), as [`crate::Peer::set_audio_level`] says: for a client that publishes. A
    /// section whose lost packets are repeated without RTX carries none.
    pub audio_levels: bool,
    /// Later offers of the peer may add and withdraw sections, up to [`crate::OFFERED_SECTIONS_MAX`]: for a viewer that
    /// a server offers rooms to. If false, the first offer settles the sections, at most [`crate::SECTIONS_MAX`];
    /// servers should keep it so.
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
            audio_levels: false,
            takes_changes: false,
        }
    }
}
