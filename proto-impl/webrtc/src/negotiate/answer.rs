//! The answer to a peer's offer.

use rtp::extension::{Extension, ExtensionMap};
use sdp::{Attribute, Description, Direction, Feedback, Media, MediaKind, Selected, Setup};

use super::{
    Local, MediaPreference, Negotiated, OFFERED_SECTIONS_MAX, SECTIONS_MAX, Section, SectionFormat,
    SectionId, TakenLayers, check_bundle, data, is_ours, layers_of, remote_sources, transport, uses,
};
use crate::error::Error;

/// Answers `offer`. `preference` returns our preferences for each media section, or `None` to reject the
/// section. If the offer leaves the DTLS role open, we become the client if `active`.
pub(crate) fn answer(
    offer: &Description,
    mut preference: impl FnMut(SectionId, &Media) -> Option<MediaPreference>,
    active: bool,
    local: &mut Local<'_>,
) -> Result<(Description, Negotiated), Error> {
    check_bundle(offer)?;
    let theirs = transport(offer, local.data.is_some())?;
    let dtls_client = match theirs.setup {
        Some(Setup::ActPass) => active,
        Some(Setup::Passive) => true,
        // Without `a=setup`, the offerer is active (RFC 4145 §4.1).
        Some(Setup::Active) | None => false,
        Some(Setup::HoldConn) => return Err(Error::NoDtlsRole),
    };
    let setup = if dtls_client { Setup::Active } else { Setup::Passive };
    let mut description = offer.start_answer();
    local.describe_session(&mut description);
    let mut sections: Vec<Section> = Vec::new();
    let mut data_remote = None;
    let most = if local.takes_changes { OFFERED_SECTIONS_MAX } else { SECTIONS_MAX };
    for (index, media) in offer.media.iter().enumerate() {
        let id = u8::try_from(index).ok().filter(|_| index < most).map(SectionId);
        let preference = id
            .filter(|_| is_ours(media) && !media.is_rejected())
            .and_then(|id| preference(id, media).map(|preference| (id, preference)));
        let taken = preference.and_then(|(id, preference)| take(offer, media, id, &preference, local));
        let mut answer = match taken {
            Some(_) if !multiplexes(media) => return Err(Error::NoRtcpMux),
            Some((answer, section)) => {
                sections.push(section);
                answer
            }
            None => {
                let is_data = data_remote.is_none() && data::is_usable(offer, media);
                let Some(config) = local.data.filter(|_| is_data) else {
                    description.media.push(media.reject());
                    continue;
                };
                data_remote = Some(data::remote(media));
                data::accept(media, config)
            }
        };
        local.describe(&mut answer, setup);
        if description.media.iter().all(Media::is_rejected) {
            local.add_candidates(&mut answer);
        }
        description.media.push(answer);
    }
    let has_media = sections.iter().any(|section| section.direction.sends() || section.direction.receives());
    // A session with data channels only is allowed only if the offer contains no media.
    let is_data_alone = data_remote.is_some() && !offer.media.iter().any(is_ours);
    if !local.takes_changes && !has_media && !is_data_alone {
        return Err(Error::NothingInCommon);
    }
    description.mirror_bundle(offer);
    let negotiated = Negotiated {
        remote: theirs.remote,
        remote_is_lite: offer.is_ice_lite(),
        fingerprints: theirs.fingerprints,
        dtls_client,
        candidates: theirs.candidates,
        sections,
        data: data_remote,
    };
    Ok((description, negotiated))
}

/// True if the section multiplexes RTCP. In a bundle, only the first section needs the attribute, which then
/// applies to all sections (RFC 9143 §7.1.3).
fn multiplexes(media: &Media) -> bool {
    media.attributes.has(&Attribute::RtcpMux)
        || media.attributes.has(&Attribute::RtcpMuxOnly)
        || media.attributes.has(&Attribute::BundleOnly)
}

/// Returns the answer to a section, and the negotiated section; `None` if the two sides have nothing in common.
fn take(
    offer: &Description,
    media: &Media,
    id: SectionId,
    preference: &MediaPreference,
    local: &mut Local<'_>,
) -> Option<(Media, Section)> {
    let mut selected = media.select(&preference.formats);
    let offered = offer.direction(media);
    let direction = offered.answer(preference.direction);
    // A section that neither sends nor receives is rejected, unless our preference asks to keep it idle.
    let is_idle = !(direction.sends() || direction.receives());
    if selected.is_empty() || (is_idle && preference.direction != Direction::Inactive) {
        return None;
    }
    // A section that only receives always accepts redundant audio. A section that only sends uses it if lost
    // packets are not retransmitted. A section with both directions does not use it, because the redundant
    // form would apply to both.
    for format in &mut selected {
        let repeats = format.answer.feedback.contains(&Feedback::Nack);
        let is_used = match direction {
            Direction::SendOnly => !repeats,
            Direction::RecvOnly => true,
            Direction::SendRecv | Direction::Inactive => false,
        };
        format.red = format.red.filter(|_| is_used && media.kind == MediaKind::Audio);
    }
    let layers = if direction.receives() { layers_of(media) } else { Vec::new() };
    let formats: Vec<SectionFormat> = selected.iter().map(agreed).collect();
    let taken = TakenLayers { simulcast: !layers.is_empty(), spatial: local.spatial_layers };
    let used = |extension: &Extension| uses(*extension, &media.kind, direction, &formats, taken);
    let extensions = answer_extensions(media, used, &mut selected);
    let mut answer = media.accept(&selected, offered, preference.direction);
    answer.attributes.extend(extensions);
    if !layers.is_empty() {
        answer.attributes.extend(media.answer_simulcast());
    }
    let formats: Vec<SectionFormat> = selected.iter().map(agreed).collect();
    // Media is sent in the first format, with RTX if the peer supports both RTX and NACK for that format.
    let repaired = |format: &SectionFormat| format.rtx.is_some() && format.has_feedback(&Feedback::Nack);
    let with_rtx = formats.first().is_some_and(repaired);
    let local_source = direction.sends().then(|| local.source(id, with_rtx));
    if let Some(source) = local_source {
        local.describe_source(&mut answer, source, preference.msid.as_ref());
    }
    let section = Section {
        id,
        mid: media.attributes.mid().unwrap_or_default().to_owned(),
        kind: media.kind.clone(),
        direction,
        formats,
        extensions: ExtensionMap::of(answer.attributes.extmaps()),
        reduced_size: answer.attributes.has(&Attribute::RtcpRsize),
        msid: preference.msid.clone(),
        layers,
        remote_sources: remote_sources(media),
        local_source,
    };
    Some((answer, section))
}

/// Returns a selected format with the descriptions of both sides.
fn agreed(selected: &Selected) -> SectionFormat {
    SectionFormat {
        remote: selected.offered.clone(),
        local: selected.answer.clone(),
        rtx: selected.rtx,
        red: selected.red,
    }
}

/// Returns the header extensions of the answer, limited to those in use. Transport-wide feedback requires its
/// extension and its feedback type: if either is missing, the answer contains neither.
fn answer_extensions(
    media: &Media,
    used: impl Fn(&Extension) -> bool,
    selected: &mut [Selected],
) -> Vec<Attribute> {
    let arrivals = Extension::TransportCc.uri();
    let known: Vec<&str> = Extension::ALL.iter().filter(|one| used(one)).map(|one| one.uri()).collect();
    let mut extensions = media.answer_extmaps(&known);
    let is_arrivals =
        |extension: &Attribute| matches!(extension, Attribute::Extmap(map) if map.uri == arrivals);
    let numbered = extensions.iter().any(is_arrivals);
    let told = selected.iter().any(|format| format.answer.feedback.contains(&Feedback::TransportCc));
    if !(numbered && told) {
        extensions.retain(|extension| !is_arrivals(extension));
        for format in selected {
            format.answer.feedback.retain(|feedback| *feedback != Feedback::TransportCc);
        }
    }
    extensions
}
