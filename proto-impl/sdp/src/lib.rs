#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attribute;
mod attributes;
mod codec;
mod description;
mod dtls;
mod error;
mod fmtp;
mod group;
mod h264;
mod host;
mod ice;
pub mod limits;
mod media;
mod negotiate;
mod parameter_sets;
#[cfg(test)]
mod peers;
mod reader;
mod rtp;
mod text;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;

pub use attribute::Attribute;
pub use attributes::Attributes;
pub use description::{Description, Origin, TransportParameters};
pub use dtls::{Fingerprint, HashFunction, Setup};
pub use error::Error;
pub use fmtp::{Fmtp, Parameter, Parameters};
pub use group::{Group, Layer, Msid, Rid, RidDirection, Semantics, Simulcast};
pub use h264::{H264Profile, ProfileLevelId};
pub use host::{Connection, Host, RtcpAddress};
pub use ice::{Candidate, CandidateKind, TcpKind, Transport};
pub use media::{Bandwidth, Format, Formats, Media, MediaKind};
pub use negotiate::{AnswerError, Selected};
pub use parameter_sets::{BadParameter, H265Sets};
pub use rtp::{Direction, Extmap, Feedback, PayloadType, RtcpFb, Rtpmap, SsrcAttribute, SsrcGroup};
