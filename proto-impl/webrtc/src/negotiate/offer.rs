//! An offer of ours, and the result of its answer.

use rtp::extension::{Extension, ExtensionMap};
use sdp::{
    Attribute, Description, Direction, Extmap, Format, Formats, Group, Media, MediaKind, PayloadType,
    Semantics, Setup,
};

use super::{
    Local, MediaPreference, Negotiated, SECTIONS_MAX, Section, SectionFormat, SectionId, SourcePair,
    check_bundle, data, is_ours, remote_sources, transport, uses,
};
use crate::error::Error;

/// The discard port (RFC 8839 §4.3.1).
pub(crate) const PORT_DISCARD: u16 = 9;
/// The protocol that browsers offer (RFC 8829 §5.1.2).
pub(crate) const PROTOCOL: &str = "UDP/TLS/RTP/SAVPF";

/// Offers a section for each preference, and behind them one of data channels where they are wanted.
pub(crate) fn offer(
    preferences: &[(MediaKind, MediaPreference)],
    local: &mut Local<'_>,
) -> (Description, Vec<Option<SourcePair>>) {
    let mut description = Description::default();
    local.describe_session(&mut description);
    description.attributes.push(Attribute::ExtmapAllowMixed);
    let count = preferences.len().min(SECTIONS_MAX);
    let data_mid = local.data.map(|config| (count.to_string(), config));
    let mut mids: Vec<String> = (0..count).map(|index| index.to_string()).collect();
    mids.extend(data_mid.iter().map(|(mid, _)| mid.clone()));
    let group = Group { semantics: Semantics::Bundle, mids: mids.clone() };
    description.attributes.push(Attribute::Group(group));
    let mut sources = Vec::new();
    // Sections share a transport, and a payload type means one format on it (RFC 9143 §9.1).
    let all = preferences.iter().flat_map(|(_, preference)| &preference.formats);
    let mut taken: Vec<PayloadType> = all.map(Format::payload_type).collect();
    for (id, ((kind, preference), mid)) in (0..).map(SectionId).zip(preferences.iter().take(count).zip(mids))
    {
        let mut media = section(kind, preference, mid, &mut taken);
        local.describe(&mut media, Setup::ActPass);
        if description.media.is_empty() {
            local.add_candidates(&mut media);
        }
        let with_rtx = preference.formats.iter().any(|format| media.rtx_of(format.payload_type()).is_some());
        let source = preference.direction.sends().then(|| local.source(id, with_rtx));
        if let Some(source) = source {
            local.describe_source(&mut media, source, preference.msid.as_ref());
        }
        description.media.push(media);
        sources.push(source);
    }
    if let Some((mid, config)) = data_mid {
        let mut media = data::offer(mid, config);
        local.describe(&mut media, Setup::ActPass);
        if description.media.is_empty() {
            local.add_candidates(&mut media);
        }
        description.media.push(media);
    }
    (description, sources)
}

fn section(
    kind: &MediaKind,
    preference: &MediaPreference,
    mid: String,
    taken: &mut Vec<PayloadType>,
) -> Media {
    // Chromium refuses a second source of audio: what is lost of that is repeated as it was.
    let repaired = if *kind == MediaKind::Video { preference.formats.as_slice() } else { &[] };
    let mut more: Vec<(PayloadType, Format)> = rtx_formats(repaired, taken);
    if preference.direction == Direction::SendOnly {
        more.extend(red_formats(&preference.formats, taken));
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
    let used = |extension| uses(extension, kind, preference.direction, &formats, false);
    // The same number means the same extension in all sections of a bundle (RFC 9143 §15.1).
    for (id, extension) in (1..).zip(Extension::ALL).filter(|(_, extension)| used(*extension)) {
        let extmap = Extmap { id, direction: None, uri: extension.uri().to_owned(), attributes: None };
        media.attributes.push(Attribute::Extmap(extmap));
    }
    // Arrival times need their numbers.
    let arrivals = used(Extension::TransportCc);
    for format in &preference.formats {
        let mut format = format.clone();
        format.feedback.retain(|feedback| arrivals || *feedback != sdp::Feedback::TransportCc);
        media.push_format(&format);
        of(&format).for_each(|more| media.push_format(more));
    }
    media
}

/// The redundant form of Opus (RFC 2198), under a number that is free.
fn red_formats(formats: &[Format], taken: &mut Vec<PayloadType>) -> Vec<(PayloadType, Format)> {
    let opus = formats.iter().filter(|format| format.rtpmap.is("opus"));
    opus.filter_map(|format| {
        let number = free_number(taken)?;
        Some((format.payload_type(), Format::red(number, &format.rtpmap)))
    })
    .collect()
}

/// Takes a payload type that nobody has.
fn free_number(taken: &mut Vec<PayloadType>) -> Option<PayloadType> {
    let number = (96..=127u8).rev().filter_map(PayloadType::new).find(|number| !taken.contains(number))?;
    taken.push(number);
    Some(number)
}

/// An `rtx` for each format whose lost packets are asked for, under numbers that are free.
fn rtx_formats(formats: &[Format], taken: &mut Vec<PayloadType>) -> Vec<(PayloadType, Format)> {
    let repaired = formats.iter().filter(|format| format.feedback.contains(&sdp::Feedback::Nack));
    repaired
        .filter_map(|format| {
            let number = free_number(taken)?;
            Some((format.payload_type(), Format::rtx(number, &format.rtpmap)))
        })
        .collect()
}

/// The agreement of the answer to our offer. `sources` are those of the offer.
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
        // The answerer must decide (RFC 8842 §5.3).
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
        let formats: Vec<SectionFormat> =
            media.rtp_formats().filter_map(|format| agreed(ours, media, format)).collect();
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
    let is_data_alone = data.is_some() && !offer.media.iter().any(is_ours);
    if sections.is_empty() && !is_data_alone {
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

/// A format of the answer, if it is one of the offer.
fn agreed(offered: &Media, answered: &Media, remote: Format) -> Option<SectionFormat> {
    let local =
        offered.format(remote.payload_type()).filter(|local| local.rtpmap.same_codec(&remote.rtpmap))?;
    if local.rtpmap.is("rtx") || local.rtpmap.is("red") {
        return None;
    }
    let number = local.payload_type();
    let rtx = offered.rtx_of(number).filter(|rtx| answered.rtx_of(number) == Some(*rtx));
    let repeats = remote.feedback.contains(&sdp::Feedback::Nack);
    let red = offered.red_of(number).filter(|red| answered.red_of(number) == Some(*red) && !repeats);
    Some(SectionFormat { remote, local, rtx, red })
}
