//! The receiving side of one source, and the table of all of them.
//!
//! 1. A packet goes into [`Receiver::handle_packet`], one that came as RTX into [`Receiver::handle_recovered`].
//! 2. [`Receiver::poll_event`] gives packets in order, and says where some are missing for good.
//! 3. [`Receiver::poll_nacks`] gives what is to be asked for again, [`Receiver::report`] what is to be told.
//! 4. At [`Receiver::poll_timeout`] the owner calls [`Receiver::handle_timeout`].

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
