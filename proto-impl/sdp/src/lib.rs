//! SDP (RFC 8866) of WebRTC and RTSP: read, write, and what an offer or answer means.
//!
//! A [`Description`] has session lines and [`Media`] sections; both have [`Attributes`], typed where this crate knows them
//! and verbatim where it does not. All of it is text and values: nothing is resolved, opened or remembered.
//!
//! Readers are lenient where real peers are loose and nobody acts upon the line (`o=`, `c=`, unknown letters, candidates of
//! an unknown kind), and strict where a session depends on it: a malformed `rtpmap` or `fingerprint` is an [`Error`] that
//! names the line. Cameras are looser still: [`Description::read_streams`] takes of theirs what can be read. What a
//! description may take is bounded, see [`limits`].
//!
//! An answer is made section by section: [`Media::select`] finds the formats that both have, [`Media::accept`] or
//! [`Media::reject`] makes the section, [`Description::mirror_bundle`] ties them together. The answer to an offer of ours is
//! looked at by [`Description::check_answer`]. Which codecs, which direction, how many sections: the caller says.
//!
//! Rules for an owner:
//!
//! - `control` URLs, names of candidates and addresses of `c=` are what the peer says; nobody has checked where they lead.
//! - The transport of a section may stand at the session or at another section: ask [`Description::transport`].
//! - Parameter sets are decoded when they are asked for ([`Parameters::h264_sets`]): bad base64 does not spoil the rest.
//!
//! ```
//! use sdp::{Description, Direction};
//!
//! let offer = Description::read(
//!     b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
//!       m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=sendonly\r\na=rtpmap:111 OPUS/48000/2\r\n\
//!       a=fmtp:111 minptime=10; useinbandfec=1\r\na=x-unknown:kept\r\n",
//! )?;
//! let audio = offer.section("0").expect("the offer has it");
//! let opus = audio.rtp_formats().find(|format| format.rtpmap.is("opus")).expect("any case");
//! assert_eq!(opus.parameters.get("useinbandfec"), Some("1"));
//! assert_eq!(offer.direction(audio).reverse(), Direction::RecvOnly);
//! assert_eq!(audio.attributes.other("x-unknown"), Some(Some("kept")));
//! assert_eq!(Description::read(offer.write().as_bytes())?, offer);
//! # Ok::<(), sdp::Error>(())
//! ```

#![forbid(unsafe_code)]

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

// A program that embeds this crate needs no other for what stands in signatures.
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
