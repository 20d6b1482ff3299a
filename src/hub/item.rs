//! A packaged unit: bytes, or packets of a log.
//!
//! In most formats, subscribers share the bytes of a unit. In formats where each session numbers and encrypts its
//! own packets, the sessions share the unencrypted packets. Each track has a log of these packets ([`PacketLogs`]),
//! which keeps them as long as they may have to be retransmitted.

use media::TrackId;
use media::codec::Codec;
use media::codec::dependency::Dependency;
use rtp::history::{LoggedUnit, PacketLog};

use super::Parts;

/// A unit in the form that the subscribers of a format share.
#[derive(Debug, Clone)]
pub enum Item {
    /// Bytes that are the same for all subscribers, except for the timestamps that are rewritten for each.
    Bytes(Parts),
    /// Packets, stored in the log that the format keeps for the unit's track.
    Packets(Packets),
}

/// The packets of a unit.
#[derive(Debug, Clone)]
pub struct Packets {
    /// The position of the packets in the log.
    pub unit: LoggedUnit,
    /// Pictures that the unit refers to, and the pictures that may refer to it.
    pub needs: Dependency,
}

/// An item without bytes: the unit is not sent to the subscribers.
impl Default for Item {
    fn default() -> Self {
        Self::Bytes(Parts::default())
    }
}

impl From<Parts> for Item {
    fn from(parts: Parts) -> Self {
        Self::Bytes(parts)
    }
}

impl Item {
    /// The bytes, unless there are none.
    #[must_use]
    pub const fn bytes(&self) -> Option<&Parts> {
        match self {
            Self::Bytes(parts) if !parts.is_empty() => Some(parts),
            Self::Bytes(_) | Self::Packets(_) => None,
        }
    }

    /// The packets, if the format sends packets.
    #[must_use]
    pub const fn packets(&self) -> Option<&Packets> {
        match self {
            Self::Packets(packets) => Some(packets),
            Self::Bytes(_) => None,
        }
    }

    /// True if there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(parts) => parts.is_empty(),
            Self::Packets(_) => false,
        }
    }
}

/// The packet logs of a format: all packets of a stream that its sessions may still send.
pub trait PacketLogs: std::fmt::Debug {
    /// Returns the log of a track.
    fn log(&self, track: TrackId) -> Option<&PacketLog>;
    /// Returns the codec of a track, and the RTP timestamp of its newest unit.
    fn edge(&self, track: TrackId) -> Option<(Codec, u32)>;
    /// Returns the number of pictures that the format has left out since the last call; `None` if there were none.
    fn take_left_out(&self) -> Option<u64>;
}
