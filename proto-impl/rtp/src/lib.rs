#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bandwidth;
mod demux;
pub mod dependency;
mod error;
pub mod extension;
mod header;
pub mod history;
mod key_frame;
mod ntp;
mod number;
pub mod payload;
pub mod receive;
pub mod report;
pub mod rtcp;
pub mod rtx;
pub mod transport_cc;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;
pub use media;

pub use demux::is_rtcp;
pub use error::Error;
pub use header::{
    CSRCS_MAX, Csrcs, EXTENSION_HEAD_BYTES, ExtensionBlock, HEADER_BYTES, Header, Packet, header_length,
    write_padding,
};
pub use key_frame::{KEY_FRAME_INTERVAL, KeyFrameRequests};
pub use ntp::{NtpAnchor, NtpTime};
pub use number::{ExtendedSequence, SequenceNumber, Ssrc};
pub use sdp::PayloadType;
