//! RTP and RTCP (RFC 3550): packets, header extensions, payload formats, feedback, repair and reports, for WebRTC and RTSP.
//!
//! Views read what comes and never copy: [`Packet`], [`extension`], [`rtcp`]. Around them are small machines, each of
//! which does one thing and takes the time as an argument: [`receive`] puts a source's packets in order, asks for what is
//! missing and counts for reports; [`history`] answers such requests for any number of viewers of one track; [`report`]
//! says when and what to report; [`transport_cc`] tells when packets came; [`KeyFrameRequests`] merges requests for key
//! frames. Nothing here encrypts, opens sockets or knows sessions: the `webrtc` and `rtsp` crates put the parts together.
//!
//! ```
//! use bytes::Bytes;
//! use rtp::receive::{ReceiveConfig, ReceiveEvent, Receiver};
//! use rtp::{Csrcs, Header, Packet, PayloadType, SequenceNumber, Ssrc};
//!
//! let header = |number| Header {
//!     marker: true,
//!     payload_type: PayloadType::new(96).expect("seven bits"),
//!     sequence_number: SequenceNumber(number),
//!     timestamp: 90_000,
//!     ssrc: Ssrc(7),
//!     csrcs: Csrcs::default(),
//!     extension: None,
//! };
//! # let now = netsim::Clock::new().now();
//! let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::with_nack(90_000));
//! for number in [65_534, 0, 65_535] {
//!     let mut datagram = Vec::new();
//!     Packet { header: header(number), payload: b"payload", padding: 0 }.write(&mut datagram);
//!
//!     let packet = Packet::read(&datagram)?;
//!     receiver.handle_packet(now, &packet.header, Bytes::copy_from_slice(packet.payload));
//! }
//! let mut order = Vec::new();
//! while let Some(event) = receiver.poll_event() {
//!     if let ReceiveEvent::Packet(packet) = event {
//!         order.push(packet.sequence.number().value());
//!     }
//! }
//! assert_eq!(order, [65_534, 65_535, 0]);
//! # Ok::<(), rtp::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod bandwidth;
mod demux;
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

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use media;

pub use demux::is_rtcp;
pub use error::Error;
pub use header::{
    CSRCS_MAX, Csrcs, EXTENSION_HEAD_BYTES, ExtensionBlock, HEADER_BYTES, Header, Packet, header_length,
};
pub use key_frame::{KEY_FRAME_INTERVAL, KeyFrameRequests};
pub use ntp::{NtpAnchor, NtpTime};
pub use number::{ExtendedSequence, SequenceNumber, Ssrc};
pub use sdp::PayloadType;
