//! Media sections: `m=` and the lines that follow it (RFC 8866 §5.14).

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::attribute::Attribute;
use crate::attributes::Attributes;
use crate::fmtp::Parameters;
use crate::host::Connection;
use crate::limits::{FEEDBACK_MAX, FORMATS_MAX};
use crate::rtp::{Feedback, PayloadType, RtcpFb, Rtpmap};
use crate::text::{first_word, number, word};

/// Media type of a section.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// `audio`.
    Audio,
    /// `video`.
    Video,
    /// `application`: data channels, or metadata of cameras.
    Application,
    /// Another type: `text`, `image`, `message`.
    Other(String),
}

impl MediaKind {
    fn read(text: &str) -> Self {
        match text {
            "audio" => Self::Audio,
            "video" => Self::Video,
            "application" => Self::Application,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for MediaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Application => "application",
            Self::Other(name) => name,
        })
    }
}

/// Formats of a section in order of preference, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Formats {
    /// Payload types, if the protocol is RTP.
    Rtp(Vec<PayloadType>),
    /// Other formats, such as `webrtc-datachannel`.
    Other(Vec<String>),
}

impl Formats {
    fn read(protocol: &str, text: &str) -> Option<Self> {
        let rtp = protocol.split('/').any(|part| part.eq_ignore_ascii_case("RTP"));
        let words = text.split_ascii_whitespace();
        if rtp {
            distinct(words.map(PayloadType::read)).map(Self::Rtp)
        } else {
            distinct(words.map(|word| Some(word.to_owned()))).map(Self::Other)
        }
    }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let mut read = Vec::new();
    for item in items {
        let item = item?;
        if !read.contains(&item) {
            read.push(item);
        }
        if read.len() > FORMATS_MAX {
            return None;
        }
    }
    Some(read)
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rtp(types) => types.iter().try_for_each(|payload_type| write!(f, " {payload_type}")),
            Self::Other(words) => words.iter().try_for_each(|word| write!(f, " {word}")),
        }
    }
}

/// Bandwidth (`b=`, RFC 8866 §5.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bandwidth {
    /// Type of the bandwidth: `AS` (kbit/s), `TIAS` (bit/s), `RR`, `RS`, ...
    pub kind: String,
    /// Value in the unit of its type.
    pub value: u64,
}

impl Bandwidth {
    /// Reads the value of the line.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once(':')?;
        Some(Self { kind: word(kind)?.to_owned(), value: number(value)? })
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.value)
    }
}

/// A payload type, with everything that its section specifies for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Payload type, encoding and clock rate.
    pub rtpmap: Rtpmap,
    /// Parameters from all `fmtp` lines of the payload type.
    pub parameters: Parameters,
    /// Feedback types, including those for `*`; at most [`crate::limits::FEEDBACK_MAX`].
    pub feedback: Vec<Feedback>,
}

impl Format {
    /// The payload type.
    #[must_use]
    pub const fn payload_type(&self) -> PayloadType {
        self.rtpmap.payload_type
    }

    /// True if this is the `rtx` format for this payload type.
    fn repairs(&self, payload_type: PayloadType) -> bool {
        self.rtpmap.is("rtx") && self.parameters.number("apt") == Some(payload_type.number().into())
    }

    /// True if this is the redundant form (RFC 2198) of this payload type and no other.
    fn doubles(&self, payload_type: PayloadType) -> bool {
        let is_it = |part: &str| number(part) == Some(u32::from(payload_type.number()));
        let of = |name: &str| name.split('/').all(is_it);
        self.rtpmap.is("red") && self.parameters.iter().next().is_some_and(|first| of(&first.name))
    }

    /// Returns the payload type for retransmissions of this format (RFC 4588): the `rtx` among the formats of its
    /// section whose `apt` refers to it.
    #[must_use]
    pub fn rtx_in(&self, section: &[Self]) -> Option<PayloadType> {
        let own = self.payload_type();
        section.iter().find(|format| format.repairs(own)).map(Self::payload_type)
    }

    /// Returns the payload type for the redundant form of this format (RFC 2198), among the formats of its section.
    #[must_use]
    pub fn red_in(&self, section: &[Self]) -> Option<PayloadType> {
        let own = self.payload_type();
        section.iter().find(|format| format.doubles(own)).map(Self::payload_type)
    }

    fn add_feedback(&mut self, feedback: &Feedback) {
        if self.feedback.len() < FEEDBACK_MAX && !self.feedback.contains(feedback) {
            self.feedback.push(feedback.clone());
        }
    }
}

/// A media section.
#[derive(Debug, Clone, PartialEq)]
pub struct Media {
    /// Media type.
    pub kind: MediaKind,
    /// Port. 0 means rejected, unless the section is bundle-only; 9 means that ICE determines the port. A
    /// number of ports that follows the port is ignored.
    pub port: u16,
    /// Transport protocol: `UDP/TLS/RTP/SAVPF`, `RTP/AVP`, ...
    pub protocol: String,
    /// The formats.
    pub formats: Formats,
    /// Connection data (`c=`) of the section itself.
    pub connection: Option<Connection>,
    /// Bandwidths (`b=` lines).
    pub bandwidths: Vec<Bandwidth>,
    /// The attributes.
    pub attributes: Attributes,
}

impl Media {
    /// Creates a section without attributes.
    #[must_use]
    pub fn new(kind: MediaKind, port: u16, protocol: &str, formats: Formats) -> Self {
        let (bandwidths, attributes) = (Vec::new(), Attributes::new());
        Self { kind, port, protocol: protocol.to_owned(), formats, connection: None, bandwidths, attributes }
    }

    /// Reads the value of an `m=` line.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (kind, rest) = first_word(text);
        let (port, rest) = first_word(rest);
        let (protocol, formats) = first_word(rest);
        let port = port.split_once('/').map_or(port, |(port, _)| port);
        let formats = Formats::read(word(protocol)?, formats)?;
        Some(Self::new(MediaKind::read(word(kind)?), number(port)?, protocol, formats))
    }

    /// Reads the valid parts of an `m=` line: words that are not payload types are skipped, and so is an
    /// invalid port, which RTSP does not use.
    pub(crate) fn read_loosely(text: &str) -> Self {
        let (kind, rest) = first_word(text);
        let (port, rest) = first_word(rest);
        let (protocol, formats) = first_word(rest);
        let types = formats.split_ascii_whitespace().take(FORMATS_MAX).filter_map(PayloadType::read);
        let formats = Formats::Rtp(distinct(types.map(Some)).unwrap_or_default());
        Self::new(MediaKind::read(kind), number(port).unwrap_or(0), protocol, formats)
    }

    /// True if the section is rejected or ended: port 0, and not bundle-only (RFC 9143 §6). Only meaningful for
    /// offers and answers, because RTSP always uses port 0.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.port == 0 && !self.attributes.has(&Attribute::BundleOnly)
    }

    /// Returns the payload types; empty if the protocol is not RTP.
    #[must_use]
    pub fn payload_types(&self) -> &[PayloadType] {
        match &self.formats {
            Formats::Rtp(types) => types,
            Formats::Other(_) => &[],
        }
    }

    /// Returns the format of a payload type, from its `rtpmap` or the static assignments; `None` if neither
    /// defines it. To look at several formats, use [`Media::rtp_formats`], because each call reads all attributes.
    #[must_use]
    pub fn format(&self, payload_type: PayloadType) -> Option<Format> {
        self.read_formats(&[payload_type]).pop()
    }

    /// Iterates over all known formats in order of preference. Each call reads all attributes once.
    pub fn rtp_formats(&self) -> impl Iterator<Item = Format> {
        self.read_formats(self.payload_types()).into_iter()
    }

    /// Returns the known formats among these payload types, in their order. The effort is proportional to the number
    /// of attributes: a line is added to its own format, and a line for `*` to all, but only the first
    /// [`FEEDBACK_MAX`] different ones.
    fn read_formats(&self, types: &[PayloadType]) -> Vec<Format> {
        let mut maps: [Option<&Rtpmap>; FORMATS_MAX] = [None; FORMATS_MAX];
        for map in self.attributes.rtpmaps() {
            if let Some(first) = maps.get_mut(usize::from(map.payload_type.number())) {
                first.get_or_insert(map);
            }
        }
        let mut places: [Option<usize>; FORMATS_MAX] = [None; FORMATS_MAX];
        let mut formats: Vec<Format> = Vec::new();
        for payload_type in types {
            let at = usize::from(payload_type.number());
            let map = maps.get(at).copied().flatten().cloned().or_else(|| Rtpmap::of_static(*payload_type));
            if let (Some(rtpmap), Some(place)) = (map, places.get_mut(at)) {
                *place = Some(formats.len());
                formats.push(Format { rtpmap, parameters: Parameters::new(), feedback: Vec::new() });
            }
        }
        let place = |of: PayloadType| places.get(usize::from(of.number())).copied().flatten();
        let mut of_all: Vec<&Feedback> = Vec::new();
        for attribute in self.attributes.iter() {
            if let Attribute::Fmtp(fmtp) = attribute {
                if let Some(format) = place(fmtp.payload_type).and_then(|at| formats.get_mut(at)) {
                    format.parameters.extend(&fmtp.parameters);
                }
            } else if let Attribute::RtcpFb(RtcpFb { payload_type, feedback }) = attribute {
                match payload_type {
                    Some(of) => {
                        let format = place(*of).and_then(|at| formats.get_mut(at));
                        format.into_iter().for_each(|format| format.add_feedback(feedback));
                    }
                    None if of_all.len() < FEEDBACK_MAX && !of_all.contains(&feedback) => {
                        of_all.push(feedback);
                        formats.iter_mut().for_each(|format| format.add_feedback(feedback));
                    }
                    None => {}
                }
            }
        }
        formats
    }

    /// Adds the `rtpmap`, `rtcp-fb` and `fmtp` lines of a format, whose payload type must be listed in
    /// `formats`.
    pub fn push_format(&mut self, format: &Format) {
        let payload_type = format.payload_type();
        self.attributes.push(Attribute::Rtpmap(format.rtpmap.clone()));
        for feedback in &format.feedback {
            let (payload_type, feedback) = (Some(payload_type), feedback.clone());
            self.attributes.push(Attribute::RtcpFb(RtcpFb { payload_type, feedback }));
        }
        if !format.parameters.is_empty() {
            let parameters = format.parameters.clone();
            self.attributes.push(Attribute::Fmtp(crate::fmtp::Fmtp { payload_type, parameters }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_lines_have_payload_types_or_words() {
        let media = Media::read("video 9/2 UDP/TLS/RTP/SAVPF 96 97 96").unwrap();
        assert_eq!((media.port, media.payload_types().len()), (9, 2));
        let media = Media::read("application 9 UDP/DTLS/SCTP webrtc-datachannel").unwrap();
        assert_eq!(media.formats.to_string(), " webrtc-datachannel");
        for bad in
            ["", "video", "video 9", "video 65536 RTP/AVP 0", "video 9 RTP/AVP 128", "audio x RTP/AVP 0"]
        {
            assert_eq!(Media::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bundle_only_section_is_not_rejected() {
        let mut media = Media::read("audio 0 UDP/TLS/RTP/SAVPF 96").unwrap();
        assert!(media.is_rejected());
        media.attributes.push(Attribute::BundleOnly);
        assert!(!media.is_rejected());
    }

    #[test]
    fn a_format_gathers_its_lines() {
        let mut media = Media::read("video 9 RTP/SAVPF 96 97 0 98").unwrap();
        for line in [
            "rtpmap:96 H264/90000",
            "rtcp-fb:* nack pli",
            "rtcp-fb:96 nack",
            "fmtp:96 packetization-mode=1",
            "fmtp:96 profile-level-id=42e01f",
            "rtpmap:97 rtx/90000",
            "fmtp:97 apt=96",
        ] {
            media.attributes.push(Attribute::read(line).unwrap());
        }
        let formats: Vec<Format> = media.rtp_formats().collect();
        let h264 = formats[0].clone();
        assert_eq!(h264.parameters.to_string(), "packetization-mode=1;profile-level-id=42e01f");
        assert_eq!(h264.feedback, [Feedback::Pli, Feedback::Nack]);
        assert_eq!(h264.rtx_in(&formats), PayloadType::new(97));
        // PCMU (0) is known without an `rtpmap`. 98 has none, so its encoding is unknown, and it is left out.
        assert_eq!(formats.len(), 3);
        let mut copy = Media::read("video 9 RTP/SAVPF 96").unwrap();
        copy.push_format(&h264);
        assert_eq!(copy.rtp_formats().next(), Some(h264));
    }

    /// A section of this many formats, with as many feedback types for all of them.
    fn wide(count: u8) -> Media {
        let types: String = (0..count).map(|n| format!(" {n}")).collect();
        let mut media = Media::read(&format!("audio 9 UDP/TLS/RTP/SAVPF{types}")).unwrap();
        for n in 0..count {
            media.attributes.push(Attribute::read(&format!("rtpmap:{n} opus/9")).unwrap());
            media.attributes.push(Attribute::read(&format!("rtcp-fb:* a{n}")).unwrap());
        }
        media
    }

    #[test]
    fn w_16_formats_cost_no_more_than_their_lines() {
        use crate::attributes::passes;
        let own = wide(1);
        let ours: Vec<Format> = own.rtp_formats().collect();
        for count in [1, 8, 64, 128] {
            let media = wide(count);
            let before = passes();
            let formats: Vec<Format> = media.rtp_formats().collect();
            assert_eq!(
                (formats.len(), passes() - before),
                (usize::from(count), 2),
                "one pass for each kind of line"
            );
            let kept: usize = formats.iter().map(|format| format.feedback.len()).sum();
            assert_eq!(kept, formats.len() * formats.len().min(FEEDBACK_MAX));
            let before = passes();
            assert_eq!(media.select(&ours).len(), 1);
            assert_eq!(passes() - before, 2);
        }
    }

    #[test]
    fn feedback_of_a_format_is_limited_and_comes_in_the_order_of_its_lines() {
        let mut media = wide(128);
        let mut first = Attributes::new();
        first.push(Attribute::read("rtcp-fb:7 nack").unwrap());
        first.push(Attribute::read("rtcp-fb:* nack pli").unwrap());
        first.extend(media.attributes.iter().cloned());
        media.attributes = first;
        let format = media.format(PayloadType::new(7).unwrap()).unwrap();
        assert_eq!(format.feedback.len(), FEEDBACK_MAX);
        let other = |name: &str| Feedback::Other(name.to_owned());
        assert_eq!(format.feedback[..4], [Feedback::Nack, Feedback::Pli, other("a0"), other("a1")]);
    }

    #[test]
    fn bandwidths_are_numbers() {
        assert_eq!(Bandwidth::read("TIAS:2500000").unwrap().to_string(), "TIAS:2500000");
        assert_eq!((Bandwidth::read("AS:"), Bandwidth::read("AS")), (None, None));
    }
}
