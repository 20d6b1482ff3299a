//! The server's answers to a client's sections, and its offers: the codecs of the stream, and no others.

use ::webrtc::{MediaPreference, offered_formats};
use media::codec::{Codec, CodecConfig};
use media::{Track, TrackId, TrackKind, Tracks};
use rtp::payload::codec_of_description;
use sdp::{
    Attribute, Description, Direction, Format, H264Profile, Media, MediaKind, Msid, Parameters,
    ProfileLevelId,
};

use super::codecs::Codecs;
use super::package::is_carried;

#[cfg(test)]
mod tests;

/// The first payload type of formats that we number.
const PAYLOAD_TYPE_FIRST: u8 = 96;
/// Offsets of profile and level in an `AVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §5.3.3.1.2).
const AVC_PROFILE: std::ops::Range<usize> = 1..4;
/// Offset of general_profile_idc in an `HEVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §8.3.3.1.2): the lower five bits.
const HEVC_PROFILE: usize = 1;
/// Profiles of H.265 (H.265 §A.3).
const HEVC_MAIN: u32 = 1;
const HEVC_MAIN_10: u32 = 2;
/// The prefix that pages strip from the name of a track to have that of its stream.
const VIDEO_PREFIX: &str = "ARDAMSv";
const AUDIO_PREFIX: &str = "ARDAMSa";

/// Chooses the codec of a publisher's section among those that the application has on. H.264 where it is offered, since every
/// protocol carries it; else the first that is known.
pub(super) fn take(media: &Media, codecs: Codecs) -> Option<MediaPreference> {
    let offered: Vec<Codec> = media
        .rtp_formats()
        .filter_map(|format| codec_of_description(&format))
        .filter(|codec| is_carried(*codec) && codecs.has(*codec))
        .collect();
    let preferred = offered.iter().find(|codec| **codec == Codec::H264);
    let mut formats = preferred.into_iter().chain(&offered).map(|codec| forms_taken(media, *codec));
    let formats = formats.find(|formats| !media.select(formats).is_empty())?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

/// The forms of a codec that a publisher's section may be answered with: the usual ones, and where it has none of them, its
/// own, whatever their profile. Nothing is decoded here.
fn forms_taken(media: &Media, codec: Codec) -> Vec<Format> {
    let usual = formats_of(codec);
    if !media.select(&usual).is_empty() {
        return usual;
    }
    mirrored(media, codec).collect()
}

/// Whether a publisher would send video that is not taken: its offer is refused as a whole, since it would be live without
/// a picture.
pub(super) fn leaves_out_video(offer: &Description, codecs: Codecs) -> bool {
    let sends = |media: &&Media| !media.is_rejected() && offer.direction(media).sends();
    let mut videos = offer.media.iter().filter(|media| media.kind == MediaKind::Video).filter(sends);
    videos.any(|media| take(media, codecs).is_none())
}

/// The offered forms of a codec as ours, with the parameters that both sides of an answer share; without those that cannot
/// be read: H.264 interleaved (RFC 6184 §5.4), H.265 in several streams or with decoding order numbers (RFC 7798 §7.1).
fn mirrored(media: &Media, codec: Codec) -> impl Iterator<Item = Format> {
    let feedback = formats_of(codec).into_iter().next().map(|format| format.feedback).unwrap_or_default();
    let names: &[&str] = match codec {
        Codec::H264 => &["level-asymmetry-allowed", "packetization-mode", "profile-level-id"],
        Codec::H265 => &["profile-id", "tier-flag", "level-id", "tx-mode"],
        Codec::Vp9 => &["profile-id"],
        Codec::Av1 => &["profile", "level-idx", "tier"],
        Codec::Vp8 | Codec::Opus | Codec::G711(_) => &[],
        Codec::Aac | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac => &[],
    };
    let video = codec.kind() == TrackKind::Video;
    let of_codec = media
        .rtp_formats()
        .filter(move |format| video && codec_of_description(format) == Some(codec) && is_readable(format));
    of_codec.map(move |offered| {
        let mut parameters = Parameters::new();
        for name in names {
            if let Some(value) = offered.parameters.get(name) {
                parameters.set(name, value);
            }
        }
        Format { rtpmap: offered.rtpmap, parameters, feedback: feedback.clone() }
    })
}

fn is_readable(format: &Format) -> bool {
    let parameters = &format.parameters;
    let one_stream = parameters.get("tx-mode").is_none_or(|mode| mode.eq_ignore_ascii_case("SRST"));
    let in_order = parameters.number("packetization-mode").unwrap_or(0) <= 1;
    one_stream && in_order && rtp::payload::Format::of_description(format).is_ok_and(|read| read.is_some())
}

/// The forms of a codec that a publisher may send. Of H.264 the baseline comes first, which every viewer decodes.
fn formats_of(codec: Codec) -> Vec<Format> {
    let mut formats = offered_formats(codec, PAYLOAD_TYPE_FIRST);
    if codec == Codec::H264 {
        formats.reverse();
        // Constrained baseline before baseline.
        if formats.len() > 1 {
            formats.swap(0, 1);
        }
    }
    formats
}

/// The tracks that sections of a viewer carry already.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<TrackId>);

/// The track that a viewer's section gets: one of its kind that it can decode and no other section has.
pub(super) fn give(
    media: &Media,
    tracks: &Tracks,
    stream: &str,
    taken: &mut Taken,
) -> Option<MediaPreference> {
    let kind = if media.kind == MediaKind::Video { TrackKind::Video } else { TrackKind::Audio };
    let is_free = |track: &&Track| !taken.0.contains(&track.id);
    let track = default_of(tracks, kind).filter(is_free);
    if let Some(track) = track
        && let formats = forms_given(media, track)
        && !media.select(&formats).is_empty()
    {
        taken.0.push(track.id);
        return Some(MediaPreference {
            direction: Direction::SendOnly,
            formats,
            msid: Some(name_of(track, stream)),
        });
    }
    idle(media)
}

/// The forms that a track may be sent as in a viewer's section: the usual ones, and the viewer's own, of those that decode it.
fn forms_given(media: &Media, track: &Track) -> Vec<Format> {
    let codec = track.config.codec();
    let forms = formats_of_track(track).into_iter().chain(mirrored(media, codec));
    forms.filter(|form| decodes(form, &track.config)).collect()
}

/// Whether a viewer with this form may be sent the track. A form of H.264 without a packetization mode stands for 1 here, since
/// peers that leave it out understand fragments; one that says 0 does not take them (RFC 6184 §6.2).
fn decodes(form: &Format, config: &CodecConfig) -> bool {
    match config {
        CodecConfig::H264(config) => {
            let fragments = form.parameters.number("packetization-mode").is_none_or(|mode| mode == 1);
            let viewer = form.profile_level_id().map(ProfileLevelId::profile);
            let stream = avc_profile(&config.record).map(ProfileLevelId::profile);
            fragments && viewer.zip(stream).is_none_or(|(viewer, stream)| shows_h264(viewer, stream))
        }
        CodecConfig::H265(config) => {
            let viewer = form.parameters.number("profile-id").unwrap_or(HEVC_MAIN);
            let stream = config.record.get(HEVC_PROFILE).map_or(HEVC_MAIN, |byte| u32::from(byte & 0x1f));
            viewer == stream || (viewer == HEVC_MAIN_10 && stream == HEVC_MAIN)
        }
        CodecConfig::Vp8(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Opus(_)
        | CodecConfig::G711(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => true,
    }
}

/// Whether a decoder of one profile of H.264 is worth a try with a stream of another. Those of the usual profiles decode
/// more than they say; others no more than the standard has them decode.
fn shows_h264(viewer: H264Profile, stream: H264Profile) -> bool {
    let is_usual = |profile| match profile {
        H264Profile::ConstrainedBaseline
        | H264Profile::Baseline
        | H264Profile::Main
        | H264Profile::ConstrainedHigh
        | H264Profile::High => true,
        // The same with other constraint flags.
        H264Profile::Other(idc, _) => matches!(idc, 0x42 | 0x4d | 0x64),
        H264Profile::Extended | H264Profile::High10 | H264Profile::High422 | H264Profile::High444 => false,
    };
    viewer.decodes(stream) || (is_usual(viewer) && is_usual(stream))
}

fn avc_profile(record: &[u8]) -> Option<ProfileLevelId> {
    let [idc, flags, level] = *record.get(AVC_PROFILE)?.first_chunk()?;
    Some(ProfileLevelId { idc, flags, level })
}

/// Whether a viewer wants the stream's video in its codec, and in no form that it could be sent as. It would see nothing, and
/// hear no reason.
pub(super) fn lacks_form(offer: &Description, tracks: &Tracks) -> bool {
    let Some(track) = default_of(tracks, TrackKind::Video) else { return false };
    let codec = track.config.codec();
    let wants = |media: &&Media| {
        let receives = !media.is_rejected() && offer.direction(media).receives();
        receives && media.rtp_formats().any(|format| codec_of_description(&format) == Some(codec))
    };
    let mut sections =
        offer.media.iter().filter(|media| media.kind == MediaKind::Video).filter(wants).peekable();
    sections.peek().is_some() && sections.all(|media| media.select(&forms_given(media, track)).is_empty())
}

/// The track that is sent without a selection.
fn default_of(tracks: &Tracks, kind: TrackKind) -> Option<&Track> {
    let is_sent = |track: &Track| !track.is_stand_in() && is_carried(track.config.codec());
    let carried = |track: &&Track| track.kind() == kind && is_sent(track);
    Tracks::preferred(tracks.iter().filter(carried))
}

/// A section that nothing is sent by. It is not rejected: some peers find the transport in it alone.
fn idle(media: &Media) -> Option<MediaPreference> {
    let codecs = media.rtp_formats().filter_map(|format| codec_of_description(&format));
    let known =
        codecs.map(|codec| forms_taken(media, codec)).find(|formats| !media.select(formats).is_empty());
    Some(MediaPreference { direction: Direction::Inactive, formats: known?, msid: None })
}

/// The sections that we offer a viewer of these tracks: audio first, as pages have it.
pub(super) fn offered(tracks: &Tracks, stream: &str) -> Vec<(MediaKind, MediaPreference)> {
    let section = |kind, section: MediaKind| {
        let track = default_of(tracks, kind)?;
        let formats = formats_of_track(track);
        let msid = Some(name_of(track, stream));
        Some((section, MediaPreference { direction: Direction::SendOnly, formats, msid }))
    };
    let audio = section(TrackKind::Audio, MediaKind::Audio);
    let mut sections: Vec<_> = audio.into_iter().chain(section(TrackKind::Video, MediaKind::Video)).collect();
    number_apart(&mut sections);
    sections
}

/// Gives formats of different sections different payload types: they share a transport (RFC 9143 §9.1).
fn number_apart(sections: &mut [(MediaKind, MediaPreference)]) {
    let mut next = PAYLOAD_TYPE_FIRST;
    for (_, preference) in sections {
        for format in &mut preference.formats {
            if format.payload_type().number() >= PAYLOAD_TYPE_FIRST
                && let Some(number) = sdp::PayloadType::new(next)
            {
                format.rtpmap.payload_type = number;
                next += 1;
            }
        }
    }
}

/// The forms that a track may be sent as: of H.264 the stream's own profile first, then the others, whose decoders may
/// well take it.
fn formats_of_track(track: &Track) -> Vec<Format> {
    let mut formats = offered_formats(track.config.codec(), PAYLOAD_TYPE_FIRST);
    if let CodecConfig::H264(config) = &track.config
        && let Some(profile) = avc_profile(&config.record)
        && let Some(first) = formats.first()
        && let Some(parameters) = Parameters::read(&format!(
            "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id={profile}"
        ))
    {
        let own = Format { parameters, ..first.clone() };
        formats.retain(|format| !format.matches(&own));
        formats.insert(0, own);
        for (format, number) in formats.iter_mut().zip(PAYLOAD_TYPE_FIRST..) {
            if let Some(number) = sdp::PayloadType::new(number) {
                format.rtpmap.payload_type = number;
            }
        }
    }
    formats
}

fn name_of(track: &Track, stream: &str) -> Msid {
    let prefix = if track.kind() == TrackKind::Video { VIDEO_PREFIX } else { AUDIO_PREFIX };
    Msid { stream: stream.to_owned(), track: Some(format!("{prefix}{stream}")) }
}

/// The name of the track of each section, by its `mid`.
pub(super) fn names(offer: &Description) -> Vec<(String, String)> {
    let name = |media: &Media| {
        let track = media.attributes.msid()?.track.clone()?;
        Some((media.attributes.mid()?.to_owned(), track))
    };
    offer.media.iter().filter_map(name).collect()
}

/// Whether a fragment restarts ICE: its user name fragment is not the one that the client has had.
pub(super) fn restarts(fragment: &Description, known: &str) -> bool {
    let of_sections = fragment.media.iter().flat_map(|media| media.attributes.iter());
    fragment
        .attributes
        .iter()
        .chain(of_sections)
        .any(|attribute| matches!(attribute, Attribute::IceUfrag(ufrag) if ufrag != known))
}

/// The candidates of a fragment.
pub(super) fn candidates(fragment: &Description) -> impl Iterator<Item = &sdp::Candidate> {
    let of_sections = fragment.media.iter().flat_map(|media| media.attributes.candidates());
    fragment.attributes.candidates().chain(of_sections)
}

/// The text of a fragment.
pub(super) fn fragment_of(description: &Description) -> String {
    description.write_fragment()
}
