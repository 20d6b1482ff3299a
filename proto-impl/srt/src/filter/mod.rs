//! The packet filter of libsrt: forward error correction by parity packets over rows and columns of data packets
//! (libsrt `docs/features/packet-filtering-and-fec.md`, after SMPTE 2022-1). Parity is the XOR of the packets of a group;
//! of each group one lost packet is rebuilt from the others, without a round trip.
//!
//! 1. The handshake settles one configuration for both directions ([`FecSettings`]): each side names what it wants, and
//!    what both name must be the same.
//! 2. A sender adds each new data packet, as it is on the wire, to its row and its column. Behind the last packet of a
//!    group goes its parity ([`send`]).
//! 3. A receiver does the same with what arrives, and rebuilds a packet as soon as it is the only one that a group
//!    misses. That may complete another group ([`receive`]).
//! 4. [`ArqLevel`] says what else is done about losses.
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
//! Payloads count as they travel: encrypted ones are not opened for it.

mod layout;
mod receive;
mod recovery;
mod send;
mod settings;

pub use settings::{ArqLevel, FecSettings, FilterSyntax, Layout, PacketFilter};

pub(crate) use receive::{FilterReceiver, Rebuilt};
pub(crate) use send::FilterSender;
pub(crate) use settings::{Fec, TEXT_BYTES_MAX as FILTER_TEXT_BYTES_MAX};

/// Bytes of a parity packet before its payload.
pub(crate) const FILTER_HEAD_BYTES: usize = 4;
/// The group index of a row.
pub(crate) const ROW_INDEX: u8 = 255;
