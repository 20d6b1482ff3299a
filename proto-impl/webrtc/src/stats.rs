//! Counters of a session.

use std::time::Duration;

use rtp::Ssrc;
use rtp::history::ResendStats;
use rtp::receive::ReceiveStats;

use crate::negotiate::SectionId;

/// Counters of the transport below media.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStats {
    /// Datagrams on paths that were not validated.
    pub not_valid: u64,
    /// Media received before the keys were established.
    pub before_keys: u64,
    /// Datagrams of an unsupported protocol.
    pub unknown: u64,
    /// SRTP counters; `None` before the keys are established.
    pub srtp: Option<srtp::InboundStats>,
}

impl TransportStats {
    pub(crate) const fn new() -> Self {
        Self { not_valid: 0, before_keys: 0, unknown: 0, srtp: None }
    }
}

/// Packets sent in a section, without retransmissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentStats {
    /// RTP packets sent.
    pub packets: u64,
    /// Payload bytes of these packets.
    pub bytes: u64,
    /// Packets that the peer requested again (NACK).
    pub nacked: u64,
    /// Requests for a key frame (PLI, FIR).
    pub key_frame_requests: u64,
}

/// Figures of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the transport.
    pub transport: TransportStats,
    /// SRTP profile; `None` before the keys are established.
    pub profile: Option<srtp::Profile>,
    /// Our DTLS role, and the negotiated cipher suite.
    pub handshake: Option<(dtls::Role, dtls::CipherSuite)>,
    /// Round trip, from the peer's reports.
    pub round_trip: Option<Duration>,
    /// The peer's own estimate of the bandwidth towards it, in bits per second.
    pub remote_estimate: Option<u64>,
    /// Estimated rate of the path to the peer, as far as it was tested, in bits per second.
    pub estimate: Option<u64>,
    /// Recent loss of sent packets, in thousandths.
    pub loss: u16,
    /// Datagrams dropped because the owner did not poll events.
    pub no_room: u64,
    /// Malformed RTP packets, RTCP packets and payloads, and feedback about more packets than one datagram may
    /// report.
    pub malformed: u64,
    /// Packets from sources that were not announced.
    pub unknown_sources: u64,
    /// Packets dropped because the peer has too many sources.
    pub too_many_sources: u64,
    /// Packets that the track's log no longer kept when they should have been sent.
    pub skipped: u64,
    /// Receive counters for each source of the peer.
    pub received: Vec<(SectionId, Ssrc, ReceiveStats)>,
    /// Counters of each section that sends.
    pub sent: Vec<(SectionId, SentStats)>,
    /// Retransmission counters of each section.
    pub resent: Vec<(SectionId, ResendStats)>,
}
