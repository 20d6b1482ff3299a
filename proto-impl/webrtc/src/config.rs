//! The configuration of a peer.

use std::net::SocketAddr;
use std::sync::Arc;

/// The ICE implementation that a peer uses.
#[derive(Debug, Clone)]
pub enum IceMode {
    /// ICE lite, for a server with public addresses: it answers connectivity checks but sends none (RFC 8445
    /// §2.5).
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
    /// True to let peers also connect to a lite agent's addresses over TCP (RFC 6544), with passive TCP
    /// candidates whose priority is lower than that of UDP. The owner extracts frames ([`ice::tcp`]) from its
    /// connections and passes them with an [`ice::Path::tcp`].
    pub tcp: bool,
    /// Settings of the DTLS handshake; they must include an identity.
    pub dtls: Arc<dtls::Config>,
    /// Role in the DTLS handshake if the offer leaves it open: true to connect, false to wait. A server should
    /// wait, so that it sends nothing to a silent peer.
    pub dtls_client: bool,
    /// Maximum rate for a publisher, in bits per second, if it uses REMB estimates. Publishers with
    /// transport-wide feedback estimate the rate themselves.
    pub bitrate_max: u64,
    /// Playout delay requested from players that support the extension; `None` to request none.
    pub playout_delay: Option<rtp::extension::PlayoutDelay>,
    /// Settings of data channels, for peers that negotiate them.
    pub sctp: Arc<sctp::Config>,
    /// Maximum size of sent datagrams: bytes of UDP payload.
    pub datagram_bytes_max: usize,
    /// True if sent audio may carry its level (RFC 6464), set by [`crate::Peer::set_audio_level`]; for clients that
    /// publish. A section that retransmits lost packets without RTX carries no levels.
    pub audio_levels: bool,
    /// True if later offers of the peer may add and withdraw sections, up to [`crate::OFFERED_SECTIONS_MAX`]. Only
    /// clients that view a room need this, because the server offers sections as participants come and go. If false,
    /// the first offer fixes the sections, at most [`crate::SECTIONS_MAX`].
    pub takes_changes: bool,
    /// True if a received picture of VP9 is an event for each of its spatial layers
    /// ([`rtp::payload::Depacketizer::with_layers`]), of which the owner forwards one. If false, it is one frame, that of
    /// the top layer.
    pub spatial_layers: bool,
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
            spatial_layers: false,
        }
    }
}
