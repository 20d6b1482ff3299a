//! Attributes (`a=` lines): known ones are parsed, all others are kept as text.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::dtls::{Fingerprint, HashFunction, Setup};
use crate::fmtp::Fmtp;
use crate::group::{Group, Msid, Rid, Simulcast};
use crate::host::RtcpAddress;
use crate::ice::Candidate;
use crate::limits::ICE_CHARS_MAX;
use crate::rtp::{Direction, Extmap, RtcpFb, Rtpmap, SsrcAttribute, SsrcGroup};
use crate::text::{number, word, words, write_joined};

/// An attribute.
///
/// A malformed `rtpmap`, `fmtp`, `rtcp-fb`, `mid`, `group`, `setup`, `fingerprint`, `ice-ufrag` or `ice-pwd`
/// makes the description invalid, because a session depends on it. Other malformed attributes are kept as
/// [`Attribute::Other`].
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// `rtpmap`: encoding of a payload type.
    Rtpmap(Rtpmap),
    /// `fmtp`: parameters of a payload type.
    Fmtp(Fmtp),
    /// `rtcp-fb`: feedback type of a payload type.
    RtcpFb(RtcpFb),
    /// `extmap`: number of a header extension.
    Extmap(Extmap),
    /// `extmap-allow-mixed`: one-byte and two-byte header extensions may be mixed in one stream.
    ExtmapAllowMixed,
    /// `mid`: identifier of the section.
    Mid(String),
    /// `msid`: stream and track identifiers.
    Msid(Msid),
    /// `group`: sections that belong together.
    Group(Group),
    /// `bundle-only`: port 0 does not reject the section.
    BundleOnly,
    /// `setup`: role in DTLS.
    Setup(Setup),
    /// `fingerprint`: hash of the certificate. If the hash function is unknown, the attribute is read as
    /// [`Attribute::Other`].
    Fingerprint(Fingerprint),
    /// `ice-ufrag`: user name fragment of 4 to 256 characters.
    IceUfrag(String),
    /// `ice-pwd`: password of 22 to 256 characters.
    IcePwd(String),
    /// `ice-options`: options such as `trickle` and `renomination`.
    IceOptions(Vec<String>),
    /// `ice-lite`: the peer is a lite agent.
    IceLite,
    /// `candidate`: an ICE candidate.
    Candidate(Box<Candidate>),
    /// `end-of-candidates`: no further candidates follow.
    EndOfCandidates,
    /// `ssrc`: attribute of a source.
    Ssrc(SsrcAttribute),
    /// `ssrc-group`: sources that belong together.
    SsrcGroup(SsrcGroup),
    /// `rid`: a simulcast layer.
    Rid(Rid),
    /// `simulcast`: use of the simulcast layers.
    Simulcast(Simulcast),
    /// `rtcp-mux`: RTCP is multiplexed on the port of RTP.
    RtcpMux,
    /// `rtcp-mux-only`: RTCP is always multiplexed.
    RtcpMuxOnly,
    /// `rtcp-rsize`: reduced-size RTCP is supported.
    RtcpRsize,
    /// `rtcp`: the address of RTCP.
    Rtcp(RtcpAddress),
    /// `sendrecv`, `sendonly`, `recvonly`, `inactive`.
    Direction(Direction),
    /// `ptime`: milliseconds of audio per packet.
    Ptime(u32),
    /// `maxptime`: maximum milliseconds of media per packet.
    MaxPtime(u32),
    /// `framerate`: frames per second; a finite, positive number.
    Framerate(f64),
    /// `control`: URL for RTSP, absolute or relative; as received and not validated.
    Control(String),
    /// `range`: range that RTSP can play; as received.
    Range(String),
    /// `sctp-port`: SCTP port of data channels.
    SctpPort(u16),
    /// `max-message-size`: maximum message on data channels, in bytes.
    MaxMessageSize(u64),
    /// Any other attribute, verbatim.
    Other {
        /// Name before the colon.
        name: String,
        /// Value after the colon; `None` for a flag.
        value: Option<String>,
    },
}

impl Attribute {
    /// Creates an attribute of an unknown type.
    #[must_use]
    pub fn other(name: &str, value: Option<&str>) -> Self {
        Self::Other { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    /// Parses the text after `a=`. The error is the name of the malformed attribute.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let typed = match value {
            Some(value) => Self::with_value(name, value),
            None => Self::flag(name),
        };
        match (typed, required(name, value)) {
            (Some(typed), _) => Ok(typed),
            (None, Some(name)) => Err(name),
            (None, None) => Ok(Self::other(name, value)),
        }
    }

    fn flag(name: &str) -> Option<Self> {
        Some(match name {
            "extmap-allow-mixed" => Self::ExtmapAllowMixed,
            "bundle-only" => Self::BundleOnly,
            "ice-lite" => Self::IceLite,
            "end-of-candidates" => Self::EndOfCandidates,
            "rtcp-mux" => Self::RtcpMux,
            "rtcp-mux-only" => Self::RtcpMuxOnly,
            "rtcp-rsize" => Self::RtcpRsize,
            _ => return Direction::read(name).map(Self::Direction),
        })
    }

    fn with_value(name: &str, value: &str) -> Option<Self> {
        match name {
            "rtpmap" => Rtpmap::read(value).map(Self::Rtpmap),
            "fmtp" => Fmtp::read(value).map(Self::Fmtp),
            "rtcp-fb" => RtcpFb::read(value).map(Self::RtcpFb),
            "extmap" => Extmap::read(value).map(Self::Extmap),
            "mid" => word(value).map(str::to_owned).map(Self::Mid),
            "msid" => Msid::read(value).map(Self::Msid),
            "group" => Group::read(value).map(Self::Group),
            "setup" => Setup::read(value).map(Self::Setup),
            "fingerprint" => Fingerprint::read(value).map(Self::Fingerprint),
            "ice-ufrag" => ice_chars(value, 4).map(Self::IceUfrag),
            "ice-pwd" => ice_chars(value, 22).map(Self::IcePwd),
            "ice-options" => words(value).filter(|list| !list.is_empty()).map(Self::IceOptions),
            "candidate" => Candidate::read(value).map(Box::new).map(Self::Candidate),
            "ssrc" => SsrcAttribute::read(value).map(Self::Ssrc),
            "ssrc-group" => SsrcGroup::read(value).map(Self::SsrcGroup),
            "rid" => Rid::read(value).map(Self::Rid),
            "simulcast" => Simulcast::read(value).map(Self::Simulcast),
            "rtcp" => RtcpAddress::read(value).map(Self::Rtcp),
            "ptime" => number(value).map(Self::Ptime),
            "maxptime" => number(value).map(Self::MaxPtime),
            "framerate" => framerate(value).map(Self::Framerate),
            "control" => Some(Self::Control(value.trim_ascii().to_owned())),
            "range" => Some(Self::Range(value.trim_ascii().to_owned())),
            "sctp-port" => number(value).map(Self::SctpPort),
            "max-message-size" => number(value).map(Self::MaxMessageSize),
            _ => None,
        }
    }
}

/// Returns the name of an attribute that makes the description invalid if it is malformed; `None` for others.
fn required(name: &str, value: Option<&str>) -> Option<&'static str> {
    let value = value.unwrap_or_default().trim_ascii_start();
    match name {
        "rtpmap" => Some("rtpmap"),
        // Formats that are not payload types may have parameters, too.
        "fmtp" => value.starts_with(|c: char| c.is_ascii_digit()).then_some("fmtp"),
        "rtcp-fb" => Some("rtcp-fb"),
        "mid" => Some("mid"),
        "group" => Some("group"),
        "setup" => Some("setup"),
        // A peer may send additional fingerprints with other hash functions (RFC 8122 §5).
        "fingerprint" => HashFunction::read(crate::text::first_word(value).0).map(|_| "fingerprint"),
        "ice-ufrag" => Some("ice-ufrag"),
        "ice-pwd" => Some("ice-pwd"),
        _ => None,
    }
}

/// Reads a user name fragment or password. RFC 8839 §5.4 allows letters, digits, `+` and `/`. Any other
/// characters are accepted here, unless they would end the word or the fragment in a check's user name
/// `ours:theirs`.
fn ice_chars(value: &str, min: usize) -> Option<String> {
    let value = value.trim_ascii();
    let fits = (min..=ICE_CHARS_MAX).contains(&value.len());
    let clean = value.bytes().all(|b| b.is_ascii_graphic() && b != b':');
    (fits && clean).then(|| value.to_owned())
}

/// Reads a frame rate: `25`, `29.97`, or `25.000000` as cameras write it.
fn framerate(value: &str) -> Option<f64> {
    let value = value.trim_ascii();
    let decimal = value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let rate: f64 = if decimal { value.parse().ok()? } else { return None };
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// Writes the attribute without `a=`.
impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtpmap(value) => write!(f, "rtpmap:{value}"),
            Self::Fmtp(value) => write!(f, "fmtp:{value}"),
            Self::RtcpFb(value) => write!(f, "rtcp-fb:{value}"),
            Self::Extmap(value) => write!(f, "extmap:{value}"),
            Self::ExtmapAllowMixed => f.write_str("extmap-allow-mixed"),
            Self::Mid(value) => write!(f, "mid:{value}"),
            Self::Msid(value) => write!(f, "msid:{value}"),
            Self::Group(value) => write!(f, "group:{value}"),
            Self::BundleOnly => f.write_str("bundle-only"),
            Self::Setup(value) => write!(f, "setup:{value}"),
            Self::Fingerprint(value) => write!(f, "fingerprint:{value}"),
            Self::IceUfrag(value) => write!(f, "ice-ufrag:{value}"),
            Self::IcePwd(value) => write!(f, "ice-pwd:{value}"),
            Self::IceOptions(options) => {
                f.write_str("ice-options:")?;
                write_joined(f, options, " ")
            }
            Self::IceLite => f.write_str("ice-lite"),
            Self::Candidate(value) => write!(f, "candidate:{value}"),
            Self::EndOfCandidates => f.write_str("end-of-candidates"),
            Self::Ssrc(value) => write!(f, "ssrc:{value}"),
            Self::SsrcGroup(value) => write!(f, "ssrc-group:{value}"),
            Self::Rid(value) => write!(f, "rid:{value}"),
            Self::Simulcast(value) => write!(f, "simulcast:{value}"),
            Self::RtcpMux => f.write_str("rtcp-mux"),
            Self::RtcpMuxOnly => f.write_str("rtcp-mux-only"),
            Self::RtcpRsize => f.write_str("rtcp-rsize"),
            Self::Rtcp(value) => write!(f, "rtcp:{value}"),
            Self::Direction(value) => f.write_str(value.name()),
            Self::Ptime(value) => write!(f, "ptime:{value}"),
            Self::MaxPtime(value) => write!(f, "maxptime:{value}"),
            Self::Framerate(value) => write!(f, "framerate:{value}"),
            Self::Control(value) => write!(f, "control:{value}"),
            Self::Range(value) => write!(f, "range:{value}"),
            Self::SctpPort(value) => write!(f, "sctp-port:{value}"),
            Self::MaxMessageSize(value) => write!(f, "max-message-size:{value}"),
            Self::Other { name, value: None } => f.write_str(name),
            Self::Other { name, value: Some(value) } => write!(f, "{name}:{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_read_what_they_write() {
        for text in [
            "extmap-allow-mixed",
            "mid:video0",
            "ice-ufrag:aB3/",
            "ice-options:trickle renomination",
            "end-of-candidates",
            "rtcp-mux",
            "recvonly",
            "ptime:20",
            "framerate:29.97",
            "control:rtsp://192.0.2.1/live/streamid=0",
            "range:npt=now-",
            "sctp-port:5000",
            "max-message-size:262144",
        ] {
            let read = Attribute::read(text).unwrap();
            assert!(!matches!(read, Attribute::Other { .. }), "{text}");
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn unknown_and_optional_ones_are_kept_verbatim() {
        for text in [
            "x-dimensions:1280,720",
            "rtcp-xr:rcvr-rtt=all:10000 ",
            "msid-semantic: WMS *",
            "candidate:1 1 ssltcp 5 192.0.2.2 443 typ host",
            "fingerprint:md5 AA:BB",
            "framerate:25/1",
            "fmtp:webrtc-datachannel max=1",
            "sendrecv:1",
            "rtcp-mux:",
            "",
        ] {
            let read = Attribute::read(text).unwrap();
            assert!(matches!(read, Attribute::Other { .. }), "{text}");
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn a_session_cannot_do_without_some() {
        for (text, name) in [
            ("rtpmap:128 H264/90000", "rtpmap"),
            ("rtpmap:96 H264/0", "rtpmap"),
            ("fmtp:200 a=1", "fmtp"),
            ("rtcp-fb:200 nack", "rtcp-fb"),
            ("mid:", "mid"),
            ("setup:both", "setup"),
            ("fingerprint:sha-256 AA", "fingerprint"),
            ("ice-ufrag:abc", "ice-ufrag"),
            ("ice-pwd:short", "ice-pwd"),
            ("ice-ufrag:ab:cd", "ice-ufrag"),
            ("group", "group"),
        ] {
            assert_eq!(Attribute::read(text), Err(name), "{text}");
        }
    }
}
