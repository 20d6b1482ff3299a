//! Creates an offer, and evaluates its answer.

use rtp::extension::{Extension, ExtensionMap};
use sdp::{
    Attribute, Description, Direction, Extmap, Format, Formats, Group, Media, MediaKind, PayloadType,
    Semantics, Setup,
};

use super::{
    Local, MediaPreference, Negotiated, OFFERED_SECTIONS_MAX, Section, SectionFormat, SectionId, SourcePair,
    TakenLayers, check_bundle, data, is_ours, remote_sources, transport, uses,
};
use crate::error::Error;

/// The discard port (RFC 8839 §4.3.1).
pub(crate) const PORT_DISCARD: u16 = 9;
/// The transport protocol that browsers offer (RFC 8829 §5.1.2).
pub(crate) const PROTOCOL: &str = "UDP/TLS/RTP/SAVPF";

/// Purpose of a payload type that repeats the packets of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// Retransmission of lost packets (RFC 4588).
    Lost,
    /// Redundancy: each packet repeats earlier ones (RFC 2198).
    Former,
}

/// A section of our offers.
#[derive(Debug, Clone)]
struct Place {
    mid: String,
    is_withdrawn: bool,
}

/// Sections and payload types of our offers, which later offers must keep: a section stays at its place, a mid is not
/// reused, and a payload type keeps its meaning for the whole session (RFC 8829 §5.2.2, RFC 9143 §9.1).
#[derive(Debug, Clone, Default)]
pub(crate) struct Offers {
    places: Vec<Place>,
    mids: u32,
    numbers: Vec<(PayloadType, Repeats, PayloadType)>,
}

impl Offers {
    /// Number of sections offered.
    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the mid of a section. When a new section takes the place of a withdrawn one, it gets a new mid.
    fn mid(&mut self, index: usize, is_withdrawn: bool) -> String {
        match self.places.get_mut(index) {
            Some(place) if is_withdrawn || !place.is_withdrawn => {
                place.is_withdrawn = is_withdrawn;
                place.mid.clone()
            }
            known => {
                let mid = self.mids.to_string();
                self.mids = self.mids.saturating_add(1);
                let place = Place { mid: mid.clone(), is_withdrawn };
                match known {
                    Some(known) => *known = place,
                    None => self.places.push(place),
                }
                mid
            }
        }
    }

    /// Returns the payload type for the RTX or RED form of a format; it is the same in every offer. `taken`
    /// lists the payload types already in use. `None` if none is free.
    fn number(
        &mut self,
        of: PayloadType,
        repeats: Repeats,
        taken: &mut Vec<PayloadType>,
    ) -> Option<PayloadType> {
        let known =
            |(format, kind, _): &&(PayloadType, Repeats, PayloadType)| *format == of && *kind == repeats;
        if let Some((.., number)) = self.numbers.iter().find(known) {
            return Some(*number);
        }
        let number =
            (96..=127u8).rev().filter_map(PayloadType::new).find(|number| !taken.contains(number))?;
        taken.push(number);
        self.numbers.push((of, repeats, number));
        Some(number)
    }
}

/// Offers a section for each preference. A preference without formats withdraws its section. The section of
/// data channels, if wanted, takes the place of the preference with kind `application`, or the last place.
pub(crate) fn offer(
    preferences: &[(MediaKind, MediaPreference)],
    offers: &mut Offers,
    local: &mut Local<'_>,
) -> (Description, Vec<Option<SourcePair>>) {
    let mut description = Description::default();
    local.describe_session(&mut description);
    description.attributes.push(Attribute::ExtmapAllowMixed);
    // All sections share one transport, on which a payload type must mean a single format (RFC 9143 §9.1).
    let all = preferences.iter().flat_map(|(_, preference)| &preference.formats);
    let mut taken: Vec<PayloadType> = all.map(Format::payload_type).collect();
    taken.extend(offers.numbers.iter().map(|(.., number)| *number));
    let (mut sources, mut mids, mut sections) = (Vec::new(), Vec::new(), Vec::new());
    for (id, (kind, preference)) in (0..).map(SectionId).zip(preferences.iter().take(OFFERED_SECTIONS_MAX)) {
        let is_data = *kind == MediaKind::Application;
        let is_withdrawn = if is_data { local.data.is_none() } else { preference.formats.is_empty() };
        let mid = offers.mid(usize::from(id.0), is_withdrawn);
        if is_withdrawn {
            sections.push(withdrawn(kind, mid));
            sources.push(None);
            continue;
        }
        if let Some(config) = local.data.filter(|_| is_data) {
            sections.push(data_section(config, mid.clone(), local, mids.is_empty()));
            sources.push(None);
            mids.push(mid);
            continue;
        }
        let mut media = section(kind, preference, mid.clone(), local, (offers, &mut taken));
        local.describe(&mut media, Setup::ActPass);
        if mids.is_empty() {
            local.add_candidates(&mut media);
        }
        mids.push(mid);
        let offered: Vec<Format> = media.rtp_formats().collect();
        let with_rtx = preference.formats.iter().any(|format| format.rtx_in(&offered).is_some());
        let source = preference.direction.sends().then(|| local.source(id, with_rtx));
        if let Some(source) = source {
            local.describe_source(&mut media, source, preference.msid.as_ref());
        }
        sections.push(media);
        sources.push(source);
    }
    let has_place = preferences.iter().any(|(kind, _)| *kind == MediaKind::Application);
    if let Some(config) = local.data.filter(|_| !has_place) {
        let mid = offers.mid(sections.len(), false);
        sections.push(data_section(config, mid.clone(), local, mids.is_empty()));
        mids.push(mid);
    }
    description.attributes.push(Attribute::Group(Group { semantics: Semantics::Bundle, mids }));
    description.media = sections;
    (description, sources)
}

/// Returns the section of data channels. As the first section it also carries the local candidates.
fn data_section(config: &sctp::Config, mid: String, local: &Local<'_>, is_first: bool) -> Media {
    let mut media = data::offer(mid, config);
    local.describe(&mut media, Setup::ActPass);
    if is_first {
        local.add_candidates(&mut media);
    }
    media
}

/// Returns a withdrawn section: the peer ends its track, and its place can be reused (RFC 8829 §5.2.2).
fn withdrawn(kind: &MediaKind, mid: String) -> Media {
    let formats = Formats::Rtp(PayloadType::new(0).into_iter().collect());
    let mut media = Media::new(kind.clone(), 0, PROTOCOL, formats);
    media.connection = Some(sdp::Connection::new(sdp::Host::UNSPECIFIED));
    media.attributes.push(Attribute::Mid(mid));
    media.attributes.push(Attribute::Direction(Direction::Inactive));
    media
}

fn section(
    kind: &MediaKind,
    preference: &MediaPreference,
    mid: String,
    local: &Local<'_>,
    (offers, taken): (&mut Offers, &mut Vec<PayloadType>),
) -> Media {
    // Chromium refuses a second source for audio, so lost audio packets are retransmitted unchanged, without
    // RTX.
    let repaired = if *kind == MediaKind::Video { preference.formats.as_slice() } else { &[] };
    let mut more: Vec<(PayloadType, Format)> = rtx_formats(repaired, (offers, taken));
    if preference.direction == Direction::SendOnly {
        more.extend(red_formats(&preference.formats, (offers, taken)));
    }
    let of = |format: &Format| {
        let number = format.payload_type();
        more.iter().filter(move |(of, _)| *of == number).map(|(_, more)| more)
    };
    let mut types: Vec<PayloadType> = Vec::new();
    for format in &preference.formats {
        types.push(format.payload_type());
        types.extend(of(format).map(Format::payload_type));
    }
    let mut media = Media::new(kind.clone(), PORT_DISCARD, PROTOCOL, Formats::Rtp(types));
    media.connection = Some(sdp::Connection::new(sdp::Host::UNSPECIFIED));
    media.attributes.push(Attribute::Mid(mid));
    media.attributes.push(Attribute::Direction(preference.direction));
    media.attributes.push(Attribute::RtcpMux);
    media.attributes.push(Attribute::RtcpRsize);
    let offered = |format: &Format| SectionFormat {
        remote: format.clone(),
        local: format.clone(),
        rtx: of(format).find(|more| more.rtpmap.is("rtx")).map(Format::payload_type),
        red: None,
    };
    let formats: Vec<SectionFormat> = preference.formats.iter().map(offered).collect();
    let tells_levels = local.audio_levels && *kind == MediaKind::Audio && preference.direction.sends();
    let layers = TakenLayers { simulcast: false, spatial: local.spatial_layers };
    let used = |extension| {
        uses(extension, kind, preference.direction, &formats, layers)
            || (tells_levels && extension == Extension::AudioLevel)
    };
    // A number must mean the same extension in all sections of a bundle (RFC 9143 §15.1).
    for (id, extension) in (1..).zip(Extension::ALL).filter(|(_, extension)| used(*extension)) {
        let extmap = Extmap { id, direction: None, uri: extension.uri().to_owned(), attributes: None };
        media.attributes.push(Attribute::Extmap(extmap));
    }
    // Transport-wide feedback needs the extension with the sequence numbers.
    let arrivals = used(Extension::TransportCc);
    for format in &preference.formats {
        let mut format = format.clone();
        format.feedback.retain(|feedback| arrivals || *feedback != sdp::Feedback::TransportCc);
        media.push_format(&format);
        of(&format).for_each(|more| media.push_format(more));
    }
    media
}

/// Returns the redundant form of Opus (RFC 2198) with an unused payload type.
fn red_formats(
    formats: &[Format],
    (offers, taken): (&mut Offers, &mut Vec<PayloadType>),
) -> Vec<(PayloadType, Format)> {
    let opus = formats.iter().filter(|format| format.rtpmap.is("opus"));
    opus.filter_map(|format| {
        let number = offers.number(format.payload_type(), Repeats::Former, taken)?;
        Some((format.payload_type(), Format::red(number, &format.rtpmap)))
    })
    .collect()
}

/// Returns an `rtx` format for each format with NACK feedback, with unused payload types.
fn rtx_formats(
    formats: &[Format],
    (offers, taken): (&mut Offers, &mut Vec<PayloadType>),
) -> Vec<(PayloadType, Format)> {
    let repaired = formats.iter().filter(|format| format.feedback.contains(&sdp::Feedback::Nack));
    repaired
        .filter_map(|format| {
            let number = offers.number(format.payload_type(), Repeats::Lost, taken)?;
            Some((format.payload_type(), Format::rtx(number, &format.rtpmap)))
        })
        .collect()
}

/// Applies an answer to our offer. `sources` are the local sources of the offer.
pub(crate) fn accept_answer(
    offer: &Description,
    sources: &[Option<SourcePair>],
    answer: &Description,
) -> Result<Negotiated, Error> {
    offer.check_answer(answer).map_err(Error::Answer)?;
    check_bundle(answer)?;
    let theirs = transport(answer, true)?;
    let dtls_client = match theirs.setup {
        Some(Setup::Passive) => true,
        Some(Setup::Active) | None => false,
        // The answerer must choose a role (RFC 8842 §5.3).
        Some(Setup::ActPass | Setup::HoldConn) => return Err(Error::NoDtlsRole),
    };
    let mut sections = Vec::new();
    for (index, (ours, media)) in offer.media.iter().zip(&answer.media).enumerate() {
        let Some(id) = u8::try_from(index).ok().map(SectionId) else { break };
        let direction = answer.direction(media).reverse();
        if media.is_rejected() || !is_ours(media) || direction == Direction::Inactive {
            continue;
        }
        if !media.attributes.has(&Attribute::RtcpMux) && !media.attributes.has(&Attribute::RtcpMuxOnly) {
            return Err(Error::NoRtcpMux);
        }
        let formats = agreed(ours, media);
        if formats.is_empty() {
            return Err(Error::NothingInCommon);
        }
        let with_rtx = formats.iter().any(|format| format.rtx.is_some());
        let source = sources.get(index).copied().flatten().filter(|_| direction.sends());
        sections.push(Section {
            id,
            mid: ours.attributes.mid().unwrap_or_default().to_owned(),
            kind: ours.kind.clone(),
            direction,
            formats,
            extensions: ExtensionMap::of(media.attributes.extmaps()),
            reduced_size: media.attributes.has(&Attribute::RtcpRsize),
            msid: ours.attributes.msid().cloned(),
            layers: Vec::new(),
            remote_sources: remote_sources(media),
            local_source: source.map(|source| SourcePair { rtx: source.rtx.filter(|_| with_rtx), ..source }),
        });
    }
    let offered = offer.media.iter().zip(&answer.media).find(|(ours, _)| data::is_data(ours));
    let data = offered.filter(|(_, theirs)| !theirs.is_rejected()).map(|(_, theirs)| data::remote(theirs));
    let moves = |media: &Media| is_ours(media) && offer.direction(media) != Direction::Inactive;
    if sections.is_empty() && offer.media.iter().any(|media| !media.is_rejected() && moves(media)) {
        return Err(Error::NothingInCommon);
    }
    Ok(Negotiated {
        remote: theirs.remote,
        remote_is_lite: answer.is_ice_lite(),
        fingerprints: theirs.fingerprints,
        dtls_client,
        candidates: theirs.candidates,
        sections,
        data,
    })
}

/// Returns the answered formats with the descriptions of both sides, without those that were not offered, and without
/// RTX and RED.
fn agreed(offered: &Media, answered: &Media) -> Vec<SectionFormat> {
    let offered: Vec<Format> = offered.rtp_formats().collect();
    let answered: Vec<Format> = answered.rtp_formats().collect();
    let agree = |remote: &Format| {
        let same = |local: &&Format| local.payload_type() == remote.payload_type();
        let local = offered.iter().find(same).filter(|local| local.rtpmap.same_codec(&remote.rtpmap))?;
        if local.rtpmap.is("rtx") || local.rtpmap.is("red") {
            return None;
        }
        let rtx = local.rtx_in(&offered).filter(|rtx| remote.rtx_in(&answered) == Some(*rtx));
        let repeats = remote.feedback.contains(&sdp::Feedback::Nack);
        let red = local.red_in(&offered).filter(|red| !repeats && remote.red_in(&answered) == Some(*red));
        Some(SectionFormat { remote: remote.clone(), local: local.clone(), rtx, red })
    };
    answered.iter().filter_map(agree).collect()
}
