//! Numbers of attributes (RFC 8656 §18), and ChannelData (§12.4).

use std::net::SocketAddr;

use ice::stun::AttributeType;
use wire::Reader;

/// Method numbers (RFC 8656 §17).
pub mod method {
    /// Creates an allocation.
    pub const ALLOCATE: u16 = 0x003;
    /// Renews or ends an allocation.
    pub const REFRESH: u16 = 0x004;
    /// Indication with data from the client to a peer.
    pub const SEND: u16 = 0x006;
    /// Indication with data from a peer to the client.
    pub const DATA: u16 = 0x007;
    /// Permits peers to send to the client.
    pub const CREATE_PERMISSION: u16 = 0x008;
    /// Binds a channel number to a peer.
    pub const CHANNEL_BIND: u16 = 0x009;
}

pub(crate) const CHANNEL_NUMBER: AttributeType = AttributeType(0x000c);
pub(crate) const LIFETIME: AttributeType = AttributeType(0x000d);
pub(crate) const XOR_PEER_ADDRESS: AttributeType = AttributeType(0x0012);
pub(crate) const DATA: AttributeType = AttributeType(0x0013);
pub(crate) const XOR_RELAYED_ADDRESS: AttributeType = AttributeType(0x0016);
pub(crate) const REQUESTED_ADDRESS_FAMILY: AttributeType = AttributeType(0x0017);
pub(crate) const EVEN_PORT: AttributeType = AttributeType(0x0018);
pub(crate) const REQUESTED_TRANSPORT: AttributeType = AttributeType(0x0019);
/// DONT-FRAGMENT. Datagrams to peers are never fragmented, with or without this attribute, because peers are on
/// the same machine.
pub(crate) const DONT_FRAGMENT: AttributeType = AttributeType(0x001a);
pub(crate) const RESERVATION_TOKEN: AttributeType = AttributeType(0x0022);
pub(crate) const ADDITIONAL_ADDRESS_FAMILY: AttributeType = AttributeType(0x8000);
pub(crate) const ADDRESS_ERROR_CODE: AttributeType = AttributeType(0x8001);

/// Protocol number of UDP, in REQUESTED-TRANSPORT (RFC 8656 §18.7).
pub(crate) const UDP: u8 = 17;
/// Valid channel numbers. In RFC 8656 §12, the range ends at 0x4fff, to leave room for other protocols on the
/// same port. There are none here, and clients that follow RFC 5766 §11, such as coturn's, use numbers up to
/// this limit.
pub(crate) const CHANNELS: std::ops::RangeInclusive<u16> = 0x4000..=0x7ffe;
/// Length of the header of ChannelData.
pub(crate) const CHANNEL_HEAD_BYTES: usize = 4;

/// Address family of a relayed address (RFC 8656 §18.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub const fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(crate) const fn read(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V4),
            2 => Some(Self::V6),
            _ => None,
        }
    }

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }
}

/// Returns the channel and the data of a ChannelData message (RFC 8656 §12.4); `None` for other or truncated
/// messages. Bytes after the data are padding.
#[must_use]
pub fn channel_data(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let mut r = Reader::new(datagram);
    let channel = r.u16().ok().filter(|channel| CHANNELS.contains(channel))?;
    let length = usize::from(r.u16().ok()?);
    Some((channel, r.take(length).ok()?))
}
