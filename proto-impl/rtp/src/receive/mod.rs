//! The receiving side of one source, and a table of a session's sources.
//!
//! 1. Pass each packet to [`Receiver::handle_packet`]; pass one that was recovered from RTX to
//!    [`Receiver::handle_recovered`].
//! 2. [`Receiver::poll_event`] returns packets in order, and reports packets that are lost for good.
//! 3. [`Receiver::poll_nacks`] returns the packets to request again; [`Receiver::report`] returns the report
//!    block to send.
//! 4. At [`Receiver::poll_timeout`], call [`Receiver::handle_timeout`].
//!
//! Without `std` there is the table alone.

#[cfg(feature = "std")]
mod hold;
#[cfg(feature = "std")]
mod nack;
#[cfg(feature = "std")]
mod received;
#[cfg(feature = "std")]
mod receiver;
#[cfg(feature = "std")]
mod reorder;
mod sources;
#[cfg(feature = "std")]
mod statistics;
#[cfg(test)]
mod tests;

#[cfg(feature = "std")]
pub use hold::{HOLD_REORDER_MAX, HOLD_REPAIR_MAX};
#[cfg(feature = "std")]
pub use nack::{NACK_AGE_MAX, NACK_LIST_MAX, NACK_TRIES_MAX};
#[cfg(feature = "std")]
pub use received::Received;
#[cfg(feature = "std")]
pub use receiver::{ReceiveConfig, ReceiveEvent, ReceiveStats, Receiver};
#[cfg(feature = "std")]
pub use reorder::{REORDER_BYTES_MAX, REORDER_PACKETS_MAX};
pub use sources::{SOURCES_MAX, Sources};
