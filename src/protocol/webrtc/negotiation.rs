//! What the server wants of a client's sections, and offers: the codecs of the stream, and no others.

use ::webrtc::{MediaPreference, offered_formats};
use media::codec::{Codec, CodecConfig};
use media::{Track, TrackId, TrackKind, Tracks};
use rtp::payload::codec_of_description;
use sdp::{Attribute, Description, Direction, Format, Media, MediaKind, Msid, Parameters};

use super::package::is_carried;

/// The first payload type of formats that we number.
const PAYLOAD_TYPE_FIRST: u8 = 96;
/// Offsets of profile and level in an `AVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §5.3.3.1.2).
const AVC_PROFILE: std::ops::Range<usize> = 1..4;
/// What pages strip from the name of a track to have that of its stream.
const VIDEO_PREFIX: &str = "ARDAMSv";
const AUDIO_PREFIX: &str = "ARDAMSa";

/// What is taken of a publisher's section: one codec. H.264 where it is offered and `h264` says so, since every protocol
/// carries it; else the first that is known.
pub(super) fn take(media: &Media, h264: bool) -> Option<MediaPreference> {
    let offered: Vec<Codec> = media
        .rtp_formats()
        .filter_map(|format| codec_of_description(&format))
        .filter(|codec| is_carried(*codec))
        .collect();
    let preferred = offered.iter().find(|codec| h264 && **codec == Codec::H264);
    let usable = |codec: &&Codec| !media.select(&formats_of(**codec)).is_empty();
    let codec = preferred.into_iter().chain(&offered).find(usable)?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats: formats_of(*codec), msid: None })
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

/// What a viewer's section gets: a track of its kind that it can decode and no other section has.
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
        && let formats = formats_of_track(track)
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

/// The track that is sent without a selection.
fn default_of(tracks: &Tracks, kind: TrackKind) -> Option<&Track> {
    let is_sent = |track: &Track| !track.is_stand_in() && is_carried(track.config.codec());
    let carried = |track: &&Track| track.kind() == kind && is_sent(track);
    Tracks::preferred(tracks.iter().filter(carried))
}

/// A section that nothing is sent by. It is not rejected: some peers find the transport in it alone.
fn idle(media: &Media) -> Option<MediaPreference> {
    let codecs = media.rtp_formats().filter_map(|format| codec_of_description(&format));
    let known = codecs.map(formats_of).find(|formats| !media.select(formats).is_empty());
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
        && let Some([profile, flags, level]) = config.record.get(AVC_PROFILE)
        && let Some(first) = formats.first()
        && let Some(parameters) = Parameters::read(&format!(
            "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id={profile:02x}{flags:02x}{level:02x}"
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
