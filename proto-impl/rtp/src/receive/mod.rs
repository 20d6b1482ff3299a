//! The receiving side of one source, and a table of a session's sources.
//!
//! 1. Pass each packet to [`Receiver::handle_packet`]; pass one that was recovered from RTX to
//!    [`Receiver::handle_recovered`].
//! 2. [`Receiver::poll_event`] returns packets in order, and reports packets that are lost for good.
//! 3. [`Receiver::poll_nacks`] returns the packets to request again; [`Receiver::report`] returns the report
//!    block to send.
//! 4. At [`Receiver::poll_timeout`], call [`Receiver::handle_timeout`].

mod hold;
mod nack;
mod received;
mod receiver;
mod reorder;
mod sources;
mod statistics;
#[cfg(test)]
mod tests;

pub use hold::{HOLD_REORDER_MAX, HOLD_REPAIR_MAX};
pub use nack::{NACK_AGE_MAX, NACK_LIST_MAX, NACK_TRIES_MAX};
pub use received::Received;
pub use receiver::{ReceiveConfig, ReceiveEvent, ReceiveStats, Receiver};
pub use reorder::{REORDER_BYTES_MAX, REORDER_PACKETS_MAX};
pub use sources::{SOURCES_MAX, Sources};
