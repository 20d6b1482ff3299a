#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(all(feature = "std", not(test)))]
extern crate std;

#[cfg(feature = "std")]
mod anchor;
#[cfg(feature = "std")]
pub mod bandwidth;
mod demux;
pub mod dependency;
mod error;
pub mod extension;
mod header;
#[cfg(feature = "std")]
pub mod history;
#[cfg(feature = "std")]
mod key_frame;
mod ntp;
mod number;
pub mod payload;
pub mod receive;
#[cfg(feature = "std")]
pub mod report;
pub mod rtcp;
pub mod rtx;
#[cfg(feature = "std")]
pub mod transport_cc;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;
pub use media;

#[cfg(feature = "std")]
pub use anchor::NtpAnchor;
pub use demux::is_rtcp;
pub use error::Error;
pub use header::{
    CSRCS_MAX, Csrcs, EXTENSION_HEAD_BYTES, ExtensionBlock, HEADER_BYTES, Header, Packet, header_length,
    write_padding,
};
#[cfg(feature = "std")]
pub use key_frame::{KEY_FRAME_INTERVAL, KeyFrameRequests};
pub use ntp::NtpTime;
pub use number::{ExtendedSequence, SequenceNumber, Ssrc};
pub use sdp::PayloadType;
