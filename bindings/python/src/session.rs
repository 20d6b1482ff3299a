//! Session descriptions.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use sdp::{Attribute, Attributes};

use crate::value::Payload;

crate::error!(millstream.sdp, crate::Error);

value! {
    /// A session description.
    "millstream.sdp" Description {
        /// Name of the session.
        name: String,
        /// User name, id, version and address of the origin.
        origin: (String, u64, u64, String),
        /// Address of the session, which sections may replace.
        connection: Option<String>,
        /// Attributes of the session: name and value. `None` for those without a value.
        attributes: Vec<(String, Option<String>)>,
        /// Mids of the sections that share a transport.
        bundle: Vec<String>,
        /// True if the sender is an ICE lite agent.
        ice_lite: bool,
        /// Media sections, in order.
        media: Vec<Media>,
    }
    hidden {
        read: sdp::Description,
    }

    /// Reads a description.
    #[staticmethod]
    fn read(text: Text) -> PyResult<Self> {
        Ok(Self::of(sdp::Description::read(text.bytes()).map_err(error)?))
    }

    /// Reads a fragment with trickled candidates (RFC 8840).
    #[staticmethod]
    fn read_fragment(text: Text) -> PyResult<Self> {
        Ok(Self::of(sdp::Description::read_fragment(text.bytes()).map_err(error)?))
    }

    /// Returns the text of the description. Lines that the reader ignores are missing.
    fn write(&self) -> String {
        self.read.write()
    }

    fn __str__(&self) -> String {
        self.write()
    }
}

/// Text, or its bytes.
#[derive(FromPyObject)]
enum Text {
    Text(String),
    Bytes(Vec<u8>),
}

impl Text {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Description {
    fn of(read: sdp::Description) -> Self {
        let origin = &read.origin;
        Self {
            name: read.name.clone(),
            origin: (origin.username.clone(), origin.session_id, origin.version, origin.host.to_string()),
            connection: read.connection.as_ref().map(|connection| connection.host.to_string()),
            attributes: pairs(&read.attributes),
            bundle: read.bundle().map(|group| group.mids.clone()).unwrap_or_default(),
            ice_lite: read.is_ice_lite(),
            media: read.media.iter().map(|media| Media::of(&read, media)).collect(),
            read,
        }
    }
}

/// Divides attributes into names and values, as they are written.
fn pairs(attributes: &Attributes) -> Vec<(String, Option<String>)> {
    let pair = |attribute: &Attribute| {
        let text = attribute.to_string();
        match text.split_once(':') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text, None),
        }
    };
    attributes.iter().map(pair).collect()
}

value! {
    /// A media section.
    "millstream.sdp" Media {
        /// `audio`, `video`, `application` or another name.
        kind: String,
        /// Port; 0 if the section is rejected.
        port: u16,
        /// Protocol: `UDP/TLS/RTP/SAVPF`, `RTP/AVP`, ...
        protocol: String,
        /// Identification of the section.
        mid: Option<String>,
        /// `sendrecv`, `sendonly`, `recvonly` or `inactive`; that of the session if the section has none.
        direction: &'static str,
        /// Address of the section or the session.
        connection: Option<String>,
        /// Formats of RTP, in order of preference.
        formats: Vec<Format>,
        /// Formats of another protocol than RTP.
        other_formats: Vec<String>,
        /// Ids and URIs of header extensions.
        extensions: BTreeMap<u16, String>,
        /// ICE candidates.
        candidates: Vec<Candidate>,
        /// ICE user name fragment of the section or the session.
        ice_ufrag: Option<String>,
        /// ICE password of the section or the session.
        ice_pwd: Option<String>,
        /// Hash functions and values of the certificates.
        fingerprints: Vec<(String, Payload)>,
        /// DTLS role: `actpass`, `active`, `passive` or `holdconn`.
        setup: Option<String>,
        /// Source, attribute and value of each `ssrc` line.
        ssrcs: Vec<(u32, String, Option<String>)>,
        /// Meaning and sources of each `ssrc-group` line.
        ssrc_groups: Vec<(String, Vec<u32>)>,
        /// Attributes of the section: name and value. `None` for those without a value.
        attributes: Vec<(String, Option<String>)>,
    }
    hidden {
        extmaps: Vec<sdp::Extmap>,
    }
}

impl Media {
    fn of(description: &sdp::Description, media: &sdp::Media) -> Self {
        let transport = description.transport(media);
        let all = || media.attributes.iter();
        let extmaps: Vec<sdp::Extmap> = all().filter_map(extmap).cloned().collect();
        let ssrc = |attribute: &Attribute| match attribute {
            Attribute::Ssrc(line) => Some((line.ssrc, line.name.clone(), line.value.clone())),
            _ => None,
        };
        let ssrc_group = |attribute: &Attribute| match attribute {
            Attribute::SsrcGroup(group) => Some((group.semantics.clone(), group.ssrcs.clone())),
            _ => None,
        };
        let candidate = |attribute: &Attribute| match attribute {
            Attribute::Candidate(candidate) => Some(Candidate::of(candidate)),
            _ => None,
        };
        let mid = |attribute: &Attribute| match attribute {
            Attribute::Mid(mid) => Some(mid.clone()),
            _ => None,
        };
        let fingerprint =
            |one: &&sdp::Fingerprint| (one.hash().name().to_owned(), Payload::copy(one.value()));
        Self {
            kind: media.kind.to_string(),
            port: media.port,
            protocol: media.protocol.clone(),
            mid: all().find_map(mid),
            direction: description.direction(media).name(),
            connection: description.connection(media).map(|connection| connection.host.to_string()),
            formats: media.rtp_formats().map(Format::of).collect(),
            other_formats: match &media.formats {
                sdp::Formats::Other(names) => names.clone(),
                sdp::Formats::Rtp(_) => Vec::new(),
            },
            extensions: extmaps.iter().map(|line| (line.id, line.uri.clone())).collect(),
            candidates: all().filter_map(candidate).collect(),
            ice_ufrag: transport.ufrag.map(str::to_owned),
            ice_pwd: transport.pwd.map(str::to_owned),
            fingerprints: transport.fingerprints.iter().map(fingerprint).collect(),
            setup: transport.setup.map(|setup| setup.to_string()),
            ssrcs: all().filter_map(ssrc).collect(),
            ssrc_groups: all().filter_map(ssrc_group).collect(),
            attributes: pairs(&media.attributes),
            extmaps,
        }
    }

    pub(crate) fn extmap_lines(&self) -> &[sdp::Extmap] {
        &self.extmaps
    }
}

const fn extmap(attribute: &Attribute) -> Option<&sdp::Extmap> {
    match attribute {
        Attribute::Extmap(line) => Some(line),
        _ => None,
    }
}

value! {
    /// A format of RTP: its `rtpmap`, `fmtp` and `rtcp-fb` lines.
    "millstream.sdp" Format {
        /// Payload type.
        payload_type: u8,
        /// Name of the encoding.
        encoding: String,
        /// Ticks per second.
        clock_rate: u32,
        /// Number of channels, if stated.
        channels: Option<u16>,
        /// Parameters: name and value. `None` for those without a value.
        parameters: BTreeMap<String, Option<String>>,
        /// Kinds of feedback: `nack`, `nack pli`, `transport-cc`, ...
        feedback: Vec<String>,
        /// Name of the codec, if the depacketizer supports it.
        codec: Option<String>,
    }
    hidden {
        read: sdp::Format,
    }

    /// Makes a format of `rtpmap`, such as `H264/90000` or `opus/48000/2`, and of `fmtp`, such as
    /// `packetization-mode=1`.
    #[new]
    #[pyo3(signature = (rtpmap, fmtp="", payload_type=96))]
    fn new(rtpmap: &str, fmtp: &str, payload_type: u8) -> PyResult<Self> {
        let rtpmap = sdp::Rtpmap::read(&format!("{payload_type} {rtpmap}")).ok_or_else(|| error("malformed rtpmap"))?;
        let parameters = match fmtp {
            "" => sdp::Parameters::new(),
            fmtp => sdp::Parameters::read(fmtp).ok_or_else(|| error("malformed fmtp"))?,
        };
        Ok(Self::of(sdp::Format { rtpmap, parameters, feedback: Vec::new() }))
    }
}

impl Format {
    fn of(read: sdp::Format) -> Self {
        let parameters = read.parameters.iter();
        Self {
            payload_type: read.payload_type().number(),
            encoding: read.rtpmap.encoding.clone(),
            clock_rate: read.rtpmap.clock_rate,
            channels: read.rtpmap.channels,
            parameters: parameters.map(|one| (one.name.clone(), one.value.clone())).collect(),
            feedback: read.feedback.iter().map(ToString::to_string).collect(),
            codec: rtp::payload::codec_of_description(&read).map(|codec| codec.to_string()),
            read,
        }
    }

    pub(crate) const fn described(&self) -> &sdp::Format {
        &self.read
    }
}

value! {
    /// An ICE candidate.
    "millstream.sdp" Candidate {
        /// Foundation.
        foundation: String,
        /// Component: 1 is RTP.
        component: u16,
        /// `udp` or `tcp`.
        transport: String,
        /// Priority.
        priority: u32,
        /// Address, or a name.
        address: String,
        /// Port.
        port: u16,
        /// `host`, `srflx`, `prflx` or `relay`.
        kind: String,
        /// Address and port that a candidate was derived from.
        related: Option<(String, u16)>,
        /// `active`, `passive` or `so`, for TCP.
        tcp_kind: Option<String>,
        /// Further names and values.
        extensions: Vec<(String, String)>,
    }

    /// Reads a candidate, with or without `candidate:` before it.
    #[staticmethod]
    fn read(text: &str) -> PyResult<Self> {
        let text = text.strip_prefix("a=").unwrap_or(text);
        let text = text.strip_prefix("candidate:").unwrap_or(text);
        sdp::Candidate::read(text).map(|candidate| Self::of(&candidate)).ok_or_else(|| error("malformed candidate"))
    }
}

impl Candidate {
    fn of(candidate: &sdp::Candidate) -> Self {
        Self {
            foundation: candidate.foundation.clone(),
            component: candidate.component,
            transport: candidate.transport.to_string().to_ascii_lowercase(),
            priority: candidate.priority,
            address: candidate.host.to_string(),
            port: candidate.port,
            kind: candidate.kind.to_string(),
            related: candidate.related.as_ref().map(|(host, port)| (host.to_string(), *port)),
            tcp_kind: candidate.tcp_kind.map(|kind| kind.to_string()),
            extensions: candidate.extensions.clone(),
        }
    }
}

pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Description>()?;
    module.add_class::<Media>()?;
    module.add_class::<Format>()?;
    module.add_class::<Candidate>()
}
