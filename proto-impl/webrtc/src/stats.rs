//! Counters of a session.

use std::time::Duration;

use rtp::Ssrc;
use rtp::history::ResendStats;
use rtp::receive::ReceiveStats;

use crate::negotiate::SectionId;

/// Counters of datagrams that are not media.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStats {
    /// Datagrams by a path that nobody has validated.
    pub not_valid: u64,
    /// Media before there were keys.
    pub before_keys: u64,
    /// Datagrams of no protocol that is spoken here.
    pub unknown: u64,
    /// SRTP, once there are keys.
    pub srtp: Option<srtp::InboundStats>,
}

impl TransportStats {
    pub(crate) const fn new() -> Self {
        Self { not_valid: 0, before_keys: 0, unknown: 0, srtp: None }
    }
}

/// The packets of a section, without those that were sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentStats {
    /// RTP packets.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Packets that the peer asked for again.
    pub nacked: u64,
    /// Requests for a key frame (PLI, FIR).
    pub key_frame_requests: u64,
}

/// Figures of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The path below.
    pub transport: TransportStats,
    /// The SRTP profile.
    pub profile: Option<srtp::Profile>,
    /// Our side of the handshake, and the suite that it came to.
    pub handshake: Option<(dtls::Role, dtls::CipherSuite)>,
    /// The round trip, from the peer's reports.
    pub round_trip: Option<Duration>,
    /// The peer's estimate of its receive bandwidth, in bits per second.
    pub remote_estimate: Option<u64>,
    /// The rate that the path to the peer carries, as far as it was tried: bits per second.
    pub estimate: Option<u64>,
    /// The share of our packets that is lost of late, in thousandths.
    pub loss: u16,
    /// Datagrams that came while the owner did not take events.
    pub no_room: u64,
    /// Packets, reports and payloads that are not in their format.
    pub malformed: u64,
    /// Packets of nobody.
    pub unknown_sources: u64,
    /// Packets of one source too many.
    pub too_many_sources: u64,
    /// Packets of ours that were gone before they could be sent.
    pub skipped: u64,
    /// Counters of each source of the peer.
    pub received: Vec<(SectionId, Ssrc, ReceiveStats)>,
    /// Counters of each section that sends.
    pub sent: Vec<(SectionId, SentStats)>,
    /// Retransmission counters of each section.
    pub resent: Vec<(SectionId, ResendStats)>,
}
