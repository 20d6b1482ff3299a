//! STUN messages (RFC 8489): Binding requests, answers and indications as used by ICE, and the common part of other
//! methods (RFC 8656).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |0 0|     STUN Message Type     |         Message Length        |
//! |                         Magic Cookie                          |
//! |                     Transaction ID (96 bits)                  |
//! |                      attributes: type, length, value, padding |
//! ```
//!
//! A [`Message`] is a view of the datagram, so parsing allocates nothing. Only the first instance of an
//! attribute counts (RFC 8489 §14), and attributes after MESSAGE-INTEGRITY are ignored, except FINGERPRINT
//! (§14.5).

mod attribute;
mod integrity;
mod message;
#[cfg(test)]
mod tests;
mod write;

pub use attribute::{
    AttributeType, Attributes, ErrorCode, RawAttribute, RoleAttribute, UnknownAttributes, read_address,
};
pub(crate) use integrity::crc32;
pub use message::{Class, Message, TransactionId, is_stun, username_fragment};
pub use write::MessageWriter;

/// Magic cookie of every message (RFC 8489 §5).
pub const MAGIC_COOKIE: u32 = 0x2112_a442;
/// Length of the header before the attributes.
pub const HEADER_BYTES: usize = 20;
/// The only method used by ICE (RFC 8489 §18.2).
pub const BINDING: u16 = 0x001;
