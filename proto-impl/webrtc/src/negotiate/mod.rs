//! Offers and answers (RFC 8829, RFC 9143), and the result of a negotiation, as plain values.
//!
//! All sections share a single transport: unbundled sections, RTCP on a separate port, and media without DTLS are
//! refused. Each media section of an offer is answered according to a [`MediaPreference`]; a section of data channels
//! is accepted if the owner wants data channels, even without any media.

mod answer;
mod data;
mod formats;
mod offer;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use rtp::extension::{Extension, ExtensionMap};
use sdp::{
    Attribute, CandidateKind, Description, Direction, Fingerprint, Format, Host, Media, MediaKind,
    PayloadType, Setup,
};

use crate::error::Error;

pub(crate) use answer::answer;
pub use formats::offered_formats;
pub(crate) use offer::{Offers, PORT_DISCARD, PROTOCOL, accept_answer, offer};

/// Maximum number of sections that are answered; further ones are rejected. Conference pages offer about
/// twenty.
pub const SECTIONS_MAX: usize = 16;
/// Maximum number of sections in our offers; a room has two for each participant.
pub const OFFERED_SECTIONS_MAX: usize = 112;
/// Maximum number of the peer's candidates that are kept.
const CANDIDATES_MAX: usize = ice::limits::CANDIDATES_MAX;
/// Maximum number of simulcast layers received in a section.
pub const LAYERS_MAX: usize = 4;
/// Maximum number of SSRCs read from the description of a section.
const SOURCES_MAX: usize = 16;

/// A section, identified by its place in the descriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionId(pub u8);

/// Local preferences for a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPreference {
    /// Local direction. If it neither sends nor receives, the section is kept idle, for peers that require it.
    pub direction: Direction,
    /// Formats that can be sent or received, in order of preference. An answer uses the payload types of the offer.
    pub formats: Vec<Format>,
    /// Stream and track identifiers of the sent media, for the peer's page.
    pub msid: Option<sdp::Msid>,
}

/// A format supported by both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionFormat {
    /// The peer's description of the format: what it can receive, or what it sends.
    pub remote: Format,
    /// Local description of the format.
    pub local: Format,
    /// Payload type of the format's retransmissions (RFC 4588); `None` without RTX.
    pub rtx: Option<PayloadType>,
    /// Payload type of the format's redundant form (RFC 2198); `None` without RED.
    pub red: Option<PayloadType>,
}

impl SectionFormat {
    /// Payload type of the format.
    #[must_use]
    pub const fn payload_type(&self) -> PayloadType {
        self.local.payload_type()
    }

    /// True if both sides support this feedback type.
    #[must_use]
    pub fn has_feedback(&self, feedback: &sdp::Feedback) -> bool {
        self.local.feedback.contains(feedback) && self.remote.feedback.contains(feedback)
    }

    /// True if a retransmitted packet may have other header extensions than the original. False if lost
    /// packets are retransmitted under the same sequence number and key (see [`crate::send`]).
    pub(crate) fn has_free_heads(&self) -> bool {
        self.rtx.is_some() || !self.has_feedback(&sdp::Feedback::Nack)
    }
}

/// The SSRC of a media stream, and that of its retransmissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePair {
    /// SSRC of the media.
    pub ssrc: u32,
    /// SSRC of the RTX stream that repairs the media; `None` without RTX.
    pub rtx: Option<u32>,
}

/// A negotiated media section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Identifier: the section's place in the descriptions.
    pub id: SectionId,
    /// Media identification (`a=mid`); empty if the peer's description has none.
    pub mid: String,
    /// Video or audio.
    pub kind: MediaKind,
    /// Negotiated direction, from our point of view.
    pub direction: Direction,
    /// Formats that may be sent and received, in order of preference: our order when we answer, the peer's when we
    /// offer.
    pub formats: Vec<SectionFormat>,
    /// Header extensions and their numbers.
    pub extensions: ExtensionMap,
    /// True if RTCP feedback may be sent without a preceding report (RFC 5506).
    pub reduced_size: bool,
    /// Stream and track identifiers of the sent media.
    pub msid: Option<sdp::Msid>,
    /// RIDs of the simulcast layers that the peer may send at the same time (RFC 8853), in its
    /// order of preference; empty without simulcast.
    pub layers: Vec<String>,
    /// Sources listed in the peer's description.
    pub remote_sources: Vec<SourcePair>,
    /// Source of the sent media; `None` for a section that does not send.
    pub local_source: Option<SourcePair>,
}

/// The result of an offer and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Negotiated {
    pub(crate) remote: ice::Credentials,
    pub(crate) remote_is_lite: bool,
    pub(crate) fingerprints: Vec<dtls::Fingerprint>,
    /// True if this side is the DTLS client.
    pub(crate) dtls_client: bool,
    pub(crate) candidates: Vec<ice::Candidate>,
    pub(crate) sections: Vec<Section>,
    /// SCTP port and limits of the peer; `None` without data channels.
    pub(crate) data: Option<sctp::Remote>,
}

/// Local values that go into a description.
pub(crate) struct Local<'a> {
    pub(crate) credentials: &'a ice::Credentials,
    pub(crate) fingerprint: &'a Fingerprint,
    pub(crate) candidates: &'a [ice::Candidate],
    pub(crate) is_lite: bool,
    /// Session id and session version (RFC 8829 §5.2.1).
    pub(crate) origin: (u64, u64),
    pub(crate) cname: &'a str,
    /// SCTP settings; `None` if data channels are not wanted.
    pub(crate) data: Option<&'a sctp::Config>,
    /// Value of [`crate::Config::takes_changes`].
    pub(crate) takes_changes: bool,
    /// Value of [`crate::Config::audio_levels`].
    pub(crate) audio_levels: bool,
    /// Value of [`crate::Config::spatial_layers`].
    pub(crate) spatial_layers: bool,
    /// Local sources already assigned to sections.
    pub(crate) known: &'a [(SectionId, SourcePair)],
    /// Generator of new SSRCs.
    pub(crate) random: &'a mut crypto::Random,
}

impl Local<'_> {
    fn source(&mut self, section: SectionId, with_rtx: bool) -> SourcePair {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == section) {
            return *known;
        }
        let mut draw = || {
            let [_, _, _, _, rest @ ..] = self.random.u64().to_be_bytes();
            u32::from_be_bytes(rest)
        };
        SourcePair { ssrc: draw(), rtx: with_rtx.then(draw) }
    }

    /// Adds the transport attributes of an active section.
    fn describe(&self, media: &mut Media, setup: Setup) {
        let attributes = &mut media.attributes;
        attributes.push(Attribute::IceUfrag(self.credentials.ufrag().to_owned()));
        attributes.push(Attribute::IcePwd(self.credentials.password().to_owned()));
        attributes.push(Attribute::IceOptions(vec!["trickle".to_owned()]));
        attributes.push(Attribute::Fingerprint(self.fingerprint.clone()));
        attributes.push(Attribute::Setup(setup));
    }

    /// Adds the local candidates to the section that carries the transport.
    fn add_candidates(&self, media: &mut Media) {
        for candidate in self.candidates {
            media.attributes.push(Attribute::Candidate(Box::new(describe_candidate(candidate))));
        }
        if self.is_lite {
            // A lite agent will not have further candidates.
            media.attributes.push(Attribute::EndOfCandidates);
        }
    }

    fn describe_session(&self, description: &mut Description) {
        description.origin.session_id = self.origin.0;
        description.origin.version = self.origin.1;
        if self.is_lite {
            description.attributes.push(Attribute::IceLite);
        }
    }

    /// Adds the source that a section sends from (RFC 5576) and its stream (RFC 8830).
    fn describe_source(&self, media: &mut Media, source: SourcePair, msid: Option<&sdp::Msid>) {
        let attributes = &mut media.attributes;
        if let Some(msid) = msid {
            attributes.push(Attribute::Msid(msid.clone()));
        }
        if let Some(rtx) = source.rtx {
            let group = sdp::SsrcGroup { semantics: "FID".to_owned(), ssrcs: vec![source.ssrc, rtx] };
            attributes.push(Attribute::SsrcGroup(group));
        }
        for ssrc in [Some(source.ssrc), source.rtx].into_iter().flatten() {
            let line = |name: &str, value: String| {
                Attribute::Ssrc(sdp::SsrcAttribute { ssrc, name: name.to_owned(), value: Some(value) })
            };
            attributes.push(line("cname", self.cname.to_owned()));
            if let Some(msid) = msid {
                attributes.push(line("msid", msid.to_string()));
            }
        }
    }
}

/// Transport parameters of the peer. The first active section contains those of the whole bundle.
struct Transport {
    remote: ice::Credentials,
    fingerprints: Vec<dtls::Fingerprint>,
    setup: Option<Setup>,
    candidates: Vec<ice::Candidate>,
}

/// Reads the transport parameters of a description. `with_data` includes sections of data channels.
fn transport(description: &Description, with_data: bool) -> Result<Transport, Error> {
    let counts = |media: &&Media| is_ours(media) || (with_data && data::is_usable(description, media));
    let live: Vec<&Media> =
        description.media.iter().filter(|media| !media.is_rejected()).filter(counts).collect();
    let first = live.first().ok_or(Error::NoMedia)?;
    let of = description.transport(first);
    let (Some(ufrag), Some(pwd)) = (of.ufrag, of.pwd) else { return Err(Error::NoIceCredentials) };
    let remote = ice::Credentials::new(ufrag, pwd).map_err(|_| Error::NoIceCredentials)?;
    // Fingerprints with insecure hashes such as SHA-1 are ignored.
    let fingerprints: Vec<dtls::Fingerprint> = of
        .fingerprints
        .iter()
        .filter_map(|print| dtls::Fingerprint::new(print.hash().name(), print.value()))
        .collect();
    if fingerprints.is_empty() {
        return Err(Error::NoFingerprint);
    }
    let candidates = live
        .iter()
        .flat_map(|media| media.attributes.candidates())
        .filter_map(read_candidate)
        .take(CANDIDATES_MAX)
        .collect();
    Ok(Transport { remote, fingerprints, setup: of.setup, candidates })
}

/// Checks that all active sections belong to one bundle; a single section need not be bundled.
fn check_bundle(description: &Description) -> Result<(), Error> {
    let live = || description.media.iter().filter(|media| is_ours(media) && !media.is_rejected());
    if live().count() <= 1 {
        return Ok(());
    }
    let mids = description.bundle().map(|group| group.mids.as_slice()).unwrap_or_default();
    let bundled =
        |media: &Media| media.attributes.mid().is_some_and(|mid| mids.iter().any(|known| known == mid));
    if live().all(bundled) { Ok(()) } else { Err(Error::NotBundled) }
}

/// True if the section carries audio or video over DTLS-SRTP.
fn is_ours(media: &Media) -> bool {
    let secure = media.protocol.to_ascii_uppercase();
    matches!(media.kind, MediaKind::Audio | MediaKind::Video)
        && matches!(
            secure.as_str(),
            "UDP/TLS/RTP/SAVPF"
                | "UDP/TLS/RTP/SAVP"
                | "TCP/DTLS/RTP/SAVPF"
                | "TCP/TLS/RTP/SAVPF"
                | "RTP/SAVPF"
        )
}

/// Returns the RIDs of the layers that a section sends simultaneously.
fn layers_of(media: &Media) -> Vec<String> {
    let sent = media.attributes.simulcast().map(|simulcast| simulcast.send.as_slice()).unwrap_or_default();
    // The sender chooses between alternatives, so the first one is as good as any.
    let first = sent.iter().filter_map(|alternatives| alternatives.first());
    first.map(|layer| layer.rid.clone()).take(LAYERS_MAX).collect()
}

/// Returns the sources listed in a section, each with its RTX source.
fn remote_sources(media: &Media) -> Vec<SourcePair> {
    let mut sources: Vec<SourcePair> = Vec::new();
    let (mut repairs, mut are_repairs) = (HashMap::new(), HashSet::<u32>::new());
    for group in media.attributes.ssrc_groups().filter(|group| group.semantics == "FID") {
        if let [of, rest @ ..] = group.ssrcs.as_slice() {
            if let Some(rtx) = rest.first() {
                repairs.entry(*of).or_insert(*rtx);
            }
            are_repairs.extend(rest.iter().copied());
        }
    }
    for attribute in media.attributes.ssrcs() {
        let ssrc = attribute.ssrc;
        if sources.len() >= SOURCES_MAX {
            break;
        }
        if !sources.iter().any(|source| source.ssrc == ssrc) && !are_repairs.contains(&ssrc) {
            sources.push(SourcePair { ssrc, rtx: repairs.get(&ssrc).copied() });
        }
    }
    sources
}

/// Layers that a section receives.
#[derive(Debug, Clone, Copy)]
struct TakenLayers {
    /// The section has simulcast.
    simulcast: bool,
    /// Value of [`crate::Config::spatial_layers`].
    spatial: bool,
}

/// True if we use a header extension in a section with this direction. For sending, only the first format
/// matters.
fn uses(
    extension: Extension,
    kind: &MediaKind,
    direction: Direction,
    formats: &[SectionFormat],
    layers: TakenLayers,
) -> bool {
    let Some(format) = formats.first() else { return false };
    let (sends, receives) = (direction.sends() && format.has_free_heads(), direction.receives());
    let is_video = *kind == MediaKind::Video;
    let numbers = |format: &SectionFormat| format.has_feedback(&sdp::Feedback::TransportCc);
    match extension {
        Extension::Mid => true,
        Extension::TransportCc => (sends && numbers(format)) || (receives && formats.iter().any(numbers)),
        // Needed by receivers that estimate the rate of the path themselves, from the times at
        // which packets left.
        Extension::AbsSendTime => {
            sends && is_video && !numbers(format) && format.has_feedback(&sdp::Feedback::Remb)
        }
        Extension::PlayoutDelay => (sends || receives) && is_video,
        Extension::AbsCaptureTime => sends,
        Extension::Rid | Extension::RepairedRid => receives && layers.simulcast,
        Extension::AudioLevel => receives && !is_video,
        // With it, Chromium leaves picture ids out of VP8, by which lost padding is told from lost pictures.
        Extension::DependencyDescriptor => receives && layers.spatial && format.local.rtpmap.is("VP9"),
        Extension::VideoOrientation => false,
    }
}

/// Converts a candidate from a description or a trickled line. `None` for components other than RTP, for host
/// names, and for unknown types.
#[must_use]
pub fn read_candidate(candidate: &sdp::Candidate) -> Option<ice::Candidate> {
    if u32::from(candidate.component) != ice::COMPONENT {
        return None;
    }
    let transport = match (candidate.transport, candidate.tcp_kind) {
        (sdp::Transport::Udp, _) => ice::Transport::Udp,
        (sdp::Transport::Tcp, Some(kind)) => ice::Transport::Tcp(match kind {
            sdp::TcpKind::Active => ice::TcpType::Active,
            sdp::TcpKind::Passive => ice::TcpType::Passive,
            sdp::TcpKind::SimultaneousOpen => ice::TcpType::SimultaneousOpen,
        }),
        (sdp::Transport::Tcp, None) => return None,
    };
    let kind = match candidate.kind {
        CandidateKind::Host => ice::CandidateKind::Host,
        CandidateKind::ServerReflexive => ice::CandidateKind::ServerReflexive,
        CandidateKind::PeerReflexive => ice::CandidateKind::PeerReflexive,
        CandidateKind::Relayed => ice::CandidateKind::Relayed,
    };
    let related =
        candidate.related.as_ref().and_then(|(host, port)| Some(SocketAddr::new(host.ip()?, *port)));
    Some(ice::Candidate {
        transport,
        address: SocketAddr::new(candidate.host.ip()?, candidate.port),
        priority: candidate.priority,
        kind,
        base: related,
        // Foundations only decide which frozen pairs are checked first, and the agent has no frozen pairs.
        foundation: 0,
    })
}

/// Converts a local candidate for a description or a trickled line.
#[must_use]
pub fn describe_candidate(candidate: &ice::Candidate) -> sdp::Candidate {
    let (transport, tcp_kind) = match candidate.transport {
        ice::Transport::Udp => (sdp::Transport::Udp, None),
        ice::Transport::Tcp(kind) => {
            let kind = match kind {
                ice::TcpType::Active => sdp::TcpKind::Active,
                ice::TcpType::Passive => sdp::TcpKind::Passive,
                ice::TcpType::SimultaneousOpen => sdp::TcpKind::SimultaneousOpen,
            };
            (sdp::Transport::Tcp, Some(kind))
        }
    };
    let kind = match candidate.kind {
        ice::CandidateKind::Host => CandidateKind::Host,
        ice::CandidateKind::ServerReflexive => CandidateKind::ServerReflexive,
        ice::CandidateKind::PeerReflexive => CandidateKind::PeerReflexive,
        ice::CandidateKind::Relayed => CandidateKind::Relayed,
    };
    sdp::Candidate {
        foundation: candidate.foundation.to_string(),
        component: 1,
        transport,
        priority: candidate.priority,
        host: Host::Ip(candidate.address.ip()),
        port: candidate.address.port(),
        kind,
        related: candidate.base.map(|base| (Host::Ip(base.ip()), base.port())),
        tcp_kind,
        extensions: Vec::new(),
    }
}
