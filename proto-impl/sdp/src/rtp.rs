//! The RTP lines of a section: payload types, feedback types, header extensions, SSRCs, directions.

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::text::{bounded, first_word, number, word};

/// A payload type, 0 to 127 (RFC 3550 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadType(u8);

impl PayloadType {
    /// Creates a payload type of seven bits.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= 127 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        number(text).and_then(Self::new)
    }
}

impl fmt::Display for PayloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `a=rtpmap` (RFC 8866 §6.6): encoding of a payload type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rtpmap {
    /// The payload type.
    pub payload_type: PayloadType,
    /// Name of the encoding as written. Use [`Rtpmap::is`] to compare it.
    pub encoding: String,
    /// Clock rate of the timestamps in ticks per second; never 0.
    pub clock_rate: u32,
    /// Number of audio channels; `None` if not given.
    pub channels: Option<u16>,
}

impl Rtpmap {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (payload_type, rest) = first_word(text);
        let mut parts = rest.split('/').map(str::trim_ascii);
        let encoding = word(parts.next()?)?.to_owned();
        let clock_rate = parts.next().and_then(number).filter(|&rate| rate > 0)?;
        let channels = parts.next().and_then(number);
        Some(Self { payload_type: PayloadType::read(payload_type)?, encoding, clock_rate, channels })
    }

    /// Parses a value without a clock rate, for encodings with a fixed clock rate. Some cameras omit the
    /// clock rate.
    pub(crate) fn with_usual_clock(text: &str) -> Option<Self> {
        let (payload_type, encoding) = first_word(text);
        let encoding = word(encoding).filter(|encoding| !encoding.contains('/'))?;
        let is = |names: &[&str]| names.iter().any(|name| encoding.eq_ignore_ascii_case(name));
        let (clock_rate, channels) = if is(&["H264", "H265", "VP8", "VP9", "AV1", "MPA"]) {
            (90_000, None)
        } else if is(&["PCMU", "PCMA"]) {
            (8000, None)
        } else if is(&["opus"]) {
            (48_000, Some(2))
        } else {
            return None;
        };
        let payload_type = PayloadType::read(payload_type)?;
        Some(Self { payload_type, encoding: encoding.to_owned(), clock_rate, channels })
    }

    /// Returns the encoding of a static payload type (RFC 3551 §6), for sections that have no `rtpmap` for
    /// this payload type.
    #[must_use]
    pub fn of_static(payload_type: PayloadType) -> Option<Self> {
        let (encoding, clock_rate, channels) = match payload_type.number() {
            0 => ("PCMU", 8000, None),
            3 => ("GSM", 8000, None),
            4 => ("G723", 8000, None),
            8 => ("PCMA", 8000, None),
            9 => ("G722", 8000, None),
            10 => ("L16", 44_100, Some(2)),
            11 => ("L16", 44_100, None),
            14 => ("MPA", 90_000, None),
            18 => ("G729", 8000, None),
            26 => ("JPEG", 90_000, None),
            31 => ("H261", 90_000, None),
            32 => ("MPV", 90_000, None),
            33 => ("MP2T", 90_000, None),
            34 => ("H263", 90_000, None),
            _ => return None,
        };
        Some(Self { payload_type, encoding: encoding.to_owned(), clock_rate, channels })
    }

    /// True if the encoding has this name, ignoring case (RFC 8866 §6.6; GStreamer writes `OPUS`).
    #[must_use]
    pub fn is(&self, encoding: &str) -> bool {
        self.encoding.eq_ignore_ascii_case(encoding)
    }

    /// True if encoding, clock rate and channels are the same.
    #[must_use]
    pub fn same_codec(&self, other: &Self) -> bool {
        self.is(&other.encoding)
            && self.clock_rate == other.clock_rate
            && self.channels.unwrap_or(1) == other.channels.unwrap_or(1)
    }
}

impl fmt::Display for Rtpmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.payload_type, self.encoding, self.clock_rate)?;
        self.channels.map_or(Ok(()), |channels| write!(f, "/{channels}"))
    }
}

/// A feedback type that a receiver sends (RFC 4585 §4.2, RFC 5104 §7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Feedback {
    /// `nack`: requests for retransmission of packets.
    Nack,
    /// `nack pli`: requests for key frames.
    Pli,
    /// `ccm fir`: commands to send key frames.
    Fir,
    /// `transport-cc`: arrival times of all packets.
    TransportCc,
    /// `goog-remb`: the receiver's estimate of the bandwidth.
    Remb,
    /// Other feedback type, verbatim.
    Other(String),
}

impl Feedback {
    fn read(text: &str) -> Self {
        let text = text.trim_ascii();
        match text {
            "nack" => Self::Nack,
            "nack pli" => Self::Pli,
            "ccm fir" => Self::Fir,
            "transport-cc" => Self::TransportCc,
            "goog-remb" => Self::Remb,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nack => "nack",
            Self::Pli => "nack pli",
            Self::Fir => "ccm fir",
            Self::TransportCc => "transport-cc",
            Self::Remb => "goog-remb",
            Self::Other(text) => text,
        })
    }
}

/// `a=rtcp-fb`: a feedback type, for one payload type or for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtcpFb {
    /// Payload type; `None` for `*`.
    pub payload_type: Option<PayloadType>,
    /// Feedback type.
    pub feedback: Feedback,
}

impl RtcpFb {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (payload_type, rest) = first_word(text);
        let payload_type = match payload_type {
            "*" => None,
            number => Some(PayloadType::read(number)?),
        };
        (!rest.is_empty()).then(|| Self { payload_type, feedback: Feedback::read(rest) })
    }
}

impl fmt::Display for RtcpFb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.payload_type {
            Some(payload_type) => write!(f, "{payload_type} {}", self.feedback),
            None => write!(f, "* {}", self.feedback),
        }
    }
}

/// Direction of media, as seen by the sender of the description (RFC 8866 §6.7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both directions; the default.
    #[default]
    SendRecv,
    /// The sender of the description sends media.
    SendOnly,
    /// The sender of the description receives media.
    RecvOnly,
    /// No media in either direction.
    Inactive,
}

impl Direction {
    /// Reads the attribute's name.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "sendrecv" => Some(Self::SendRecv),
            "sendonly" => Some(Self::SendOnly),
            "recvonly" => Some(Self::RecvOnly),
            "inactive" => Some(Self::Inactive),
            _ => None,
        }
    }

    /// Name of the attribute.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    /// True if the sender of the description sends media.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// True if the sender of the description receives media.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Returns the direction from the other side's point of view.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self::of(self.receives(), self.sends())
    }

    /// Returns the answer to this offered direction by a side that supports the directions in `ours` (RFC 3264
    /// §6.1).
    #[must_use]
    pub const fn answer(self, ours: Self) -> Self {
        Self::of(self.receives() && ours.sends(), self.sends() && ours.receives())
    }

    const fn of(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }
}

/// `a=extmap` (RFC 8285 §8): id of a header extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extmap {
    /// Id of the extension. Ids from 1 to 14 fit the one-byte form; an id of 4096 or more stands for a
    /// proposal without an id.
    pub id: u16,
    /// Direction; `None` for the direction of the section.
    pub direction: Option<Direction>,
    /// The URI of the extension.
    pub uri: String,
    /// Attributes of the extension itself.
    pub attributes: Option<String>,
}

impl Extmap {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (head, rest) = first_word(text);
        let (uri, attributes) = first_word(rest);
        let (id, direction) = match head.split_once('/') {
            Some((id, direction)) => (id, Some(Direction::read(direction)?)),
            None => (head, None),
        };
        let id = number(id).filter(|&id| id != 0)?;
        let attributes = (!attributes.is_empty()).then(|| attributes.to_owned());
        Some(Self { id, direction, uri: word(uri)?.to_owned(), attributes })
    }
}

impl fmt::Display for Extmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(direction) = self.direction {
            write!(f, "/{}", direction.name())?;
        }
        write!(f, " {}", self.uri)?;
        self.attributes.as_ref().map_or(Ok(()), |attributes| write!(f, " {attributes}"))
    }
}

/// `a=ssrc` (RFC 5576 §4.1): an attribute of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsrcAttribute {
    /// SSRC of the source.
    pub ssrc: u32,
    /// Name of the attribute: `cname`, `msid`, ...; empty in lines that only list the source.
    pub name: String,
    /// Value after the colon.
    pub value: Option<String>,
}

impl SsrcAttribute {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (ssrc, rest) = first_word(text);
        let (name, value) = match rest.split_once(':') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (rest, None),
        };
        let nameless = name.is_empty() && value.is_some();
        (!nameless).then_some(Self { ssrc: number(ssrc)?, name: name.to_owned(), value })
    }
}

impl fmt::Display for SsrcAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ssrc)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        self.value.as_ref().map_or(Ok(()), |value| write!(f, ":{value}"))
    }
}

/// `a=ssrc-group` (RFC 5576 §4.2): sources that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsrcGroup {
    /// Semantics: `FID` (media, then its RTX), `SIM` (layers in ascending order of size), `FEC-FR`, ...
    pub semantics: String,
    /// SSRCs of the sources, in order.
    pub ssrcs: Vec<u32>,
}

impl SsrcGroup {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (semantics, rest) = first_word(text);
        let ssrcs = bounded(rest.split_ascii_whitespace().map(number))?;
        Some(Self { semantics: word(semantics)?.to_owned(), ssrcs })
    }
}

impl fmt::Display for SsrcGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.semantics)?;
        self.ssrcs.iter().try_for_each(|ssrc| write!(f, " {ssrc}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtpmaps_read_what_they_write() {
        for value in ["111 opus/48000/2", "96 H264/90000", "97 MPEG4-GENERIC/44100/2", "0 PCMU/8000"] {
            assert_eq!(Rtpmap::read(value).unwrap().to_string(), value);
        }
        for bad in ["128 H264/90000", "96 H264", "96 H264/0", "96 /90000", "x H264/90000", ""] {
            assert_eq!(Rtpmap::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn encodings_have_no_case() {
        let (gstreamer, chromium) = ("96 OPUS/48000/2", "111 opus/48000/2");
        assert!(Rtpmap::read(gstreamer).unwrap().same_codec(&Rtpmap::read(chromium).unwrap()));
        let mono = Rtpmap::read("0 pcmu/8000/1").unwrap();
        assert!(Rtpmap::of_static(mono.payload_type).unwrap().same_codec(&mono));
        assert!(!Rtpmap::read("96 opus/48000").unwrap().same_codec(&Rtpmap::read(chromium).unwrap()));
    }

    #[test]
    fn directions_answer_directions() {
        use Direction::{Inactive, RecvOnly, SendOnly, SendRecv};
        assert_eq!(
            [SendRecv, SendOnly, RecvOnly, Inactive].map(Direction::reverse),
            [SendRecv, RecvOnly, SendOnly, Inactive]
        );
        // From a publisher that offers both directions, we only receive; to a viewer that only receives, we
        // only send.
        assert_eq!((SendRecv.answer(RecvOnly), RecvOnly.answer(SendRecv)), (RecvOnly, SendOnly));
        assert_eq!((RecvOnly.answer(RecvOnly), SendOnly.answer(SendOnly)), (Inactive, Inactive));
    }

    #[test]
    fn the_small_lines_read_what_they_write() {
        for value in ["* nack pli", "96 ccm fir", "96 goog-remb", "96 transport-cc", "97 nack rpsi"] {
            assert_eq!(RtcpFb::read(value).unwrap().to_string(), value);
        }
        for value in ["3 urn:x", "3/sendonly urn:x", "4097/recvonly urn:x vad=on"] {
            assert_eq!(Extmap::read(value).unwrap().to_string(), value);
        }
        for bad in ["0 urn:x", "3", "3/up urn:x", "x urn:x"] {
            assert_eq!(Extmap::read(bad), None, "{bad}");
        }
        for value in ["1 cname:a:b", "4294967295 msid:s t", "7"] {
            assert_eq!(SsrcAttribute::read(value).unwrap().to_string(), value);
        }
        for value in ["FID 1 2", "SIM 1 2 3"] {
            assert_eq!(SsrcGroup::read(value).unwrap().to_string(), value);
        }
        assert_eq!((SsrcAttribute::read("4294967296 a"), SsrcGroup::read("FID x")), (None, None));
        assert_eq!((RtcpFb::read("96"), RtcpFb::read("200 nack")), (None, None));
    }
}
