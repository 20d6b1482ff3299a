//! SRT and WHIP for programs in C. `include/millstream.h` is made from these sources; the rules of ownership are at its
//! head.
//!
//! Each exported function checks its pointers for null, and catches panics with [`guard::call`].

#![warn(missing_debug_implementations)]

mod address;
mod events;
mod guard;
pub mod srt_port;
pub mod whip_port;

pub use address::MillstreamAddress;
pub use guard::MillstreamResult;

/// A datagram to send.
#[repr(C)]
#[derive(Debug)]
pub struct MillstreamDatagram {
    /// Destination.
    pub to: MillstreamAddress,
    /// The bytes, which belong to the handle.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}
