//! The packet filter of libsrt: forward error correction by parity packets over rows and columns of data packets
//! (libsrt `docs/features/packet-filtering-and-fec.md`, after SMPTE 2022-1). Parity is the XOR of the packets of a
//! group; if one packet of a group is lost, it is rebuilt from the others, without a round trip.
//!
//! 1. The handshake settles one configuration for both directions ([`FecSettings`]). Each side states the parameters
//!    that it requires. A parameter that both sides state must be equal.
//! 2. A sender adds each new data packet, as sent on the wire, to its row and its column. The parity of a group is sent
//!    after the group's last packet ([`send`]).
//! 3. A receiver also adds each arriving packet to its row and column. As soon as only one packet of a group is
//!    missing, it rebuilds that packet; this may allow it to rebuild a packet of another group ([`receive`]).
//! 4. [`ArqLevel`] determines whether lost packets are also retransmitted.
//!
//! A parity packet is a data packet with message number 0. Its sequence number is that of the last packet of its group:
//!
//! ```text
//! |0|            Sequence Number of the group's last packet         |
//! |1 1|O|KK |R|                Message Number 0                     |
//! |                     XOR of the timestamps                       |
//! |                    Destination Socket ID                        |
//! | column, or 255 |  XOR of KK     |      XOR of the lengths       |
//! |            XOR of the payloads, each filled up with zeros       |
//! ```
//!
//! Parity is computed from payloads as they are on the wire: encrypted payloads are not decrypted for the filter.

mod layout;
mod receive;
mod recovery;
mod send;
mod settings;

pub use settings::{ArqLevel, FecSettings, FilterSyntax, Layout, PacketFilter};

pub(crate) use receive::{FilterReceiver, Rebuilt};
pub(crate) use send::FilterSender;
pub(crate) use settings::{Fec, TEXT_BYTES_MAX as FILTER_TEXT_BYTES_MAX};

/// Bytes of a parity packet between the SRT header and the parity payload.
pub(crate) const FILTER_HEAD_BYTES: usize = 4;
/// Group index in the parity packet of a row. Other values are column numbers.
pub(crate) const ROW_INDEX: u8 = 255;
