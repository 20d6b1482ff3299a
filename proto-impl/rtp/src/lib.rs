//! RTP and RTCP (RFC 3550): packets, header extensions, feedback, repair and reports, for WebRTC and RTSP.

#![forbid(unsafe_code)]

pub mod demux;
mod error;
pub mod extension;
mod header;
pub mod history;
mod key_frame;
mod ntp;
mod number;
pub mod receive;
pub mod report;
pub mod rtcp;
pub mod rtx;
pub mod transport_cc;

pub use error::Error;
pub use header::{
    CSRCS_MAX, Csrcs, EXTENSION_HEAD_BYTES, ExtensionBlock, HEADER_BYTES, Header, Packet, header_length,
};
pub use key_frame::{KEY_FRAME_INTERVAL, KeyFrameRequests};
pub use ntp::{NtpAnchor, NtpTime};
pub use number::{ExtendedSequence, SequenceNumber, Ssrc};
pub use sdp::PayloadType;
