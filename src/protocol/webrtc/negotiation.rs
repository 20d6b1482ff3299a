//! The server's answers to the media sections of a client's description, and its offers, with the codecs of the stream
//! only. Here, a form of a codec means a format of it with certain parameters. If a viewer has a section for audio or
//! video that the stream lacks, the section is reserved with a form of each codec, because a publisher may begin audio
//! or video late, and WHEP has no renegotiation.

use ::webrtc::{MediaPreference, Section, SectionFormat, offered_formats};
use media::codec::{Codec, CodecConfig, g711};
use media::{Track, TrackKind, Tracks};
use rtp::payload::codec_of_description;
use sdp::{
    Attribute, Description, Direction, Format, H264Profile, Media, MediaKind, Msid, Parameters, PayloadType,
    ProfileLevelId,
};

use super::codecs::Codecs;
use super::package::is_carried;

#[cfg(test)]
mod tests;

/// First payload type of formats numbered by this side.
const PAYLOAD_TYPE_FIRST: u8 = 96;
/// Range of profile and level in an `AVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §5.3.3.1.2).
const AVC_PROFILE: std::ops::Range<usize> = 1..4;
/// Offset of general_profile_idc in an `HEVCDecoderConfigurationRecord` (ISO/IEC 14496-15 §8.3.3.1.2): the lower five
/// bits.
const HEVC_PROFILE: usize = 1;
/// Profiles of H.265 (H.265 §A.3).
const HEVC_MAIN: u32 = 1;
const HEVC_MAIN_10: u32 = 2;
/// Maximum number of a section's own forms of a codec that are considered. Browsers offer up to ten.
const MIRRORED_MAX: usize = 16;
/// The prefix that pages strip from a track's name to get the stream's id.
const VIDEO_PREFIX: &str = "ARDAMSv";
const AUDIO_PREFIX: &str = "ARDAMSa";

/// Chooses the codec of a publisher's section among those enabled: H.264 if offered, because every protocol carries it;
/// otherwise the first known codec.
pub(super) fn take(media: &Media, codecs: Codecs) -> Option<MediaPreference> {
    let offered: Vec<Format> = media.rtp_formats().collect();
    let mut known = codecs_of(&offered);
    known.retain(|codec| is_carried(*codec) && codecs.has(*codec));
    let preferred = known.iter().find(|codec| **codec == Codec::H264);
    let mut formats = preferred.into_iter().chain(&known).map(|codec| forms_taken(&offered, *codec));
    let formats = formats.find(|forms| accepts(&offered, forms))?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

/// Returns the known codecs of a section in order of preference, each once.
fn codecs_of(offered: &[Format]) -> Vec<Codec> {
    let mut known = Vec::new();
    for codec in offered.iter().filter_map(codec_of_description) {
        if !known.contains(&codec) {
            known.push(codec);
        }
    }
    known
}

/// True if a section offers one of these forms.
fn accepts(offered: &[Format], forms: &[Format]) -> bool {
    forms.iter().any(|form| offered.iter().any(|format| format.matches(form)))
}

/// Returns the forms of a codec for the answer to a publisher's section: the usual forms if the section offers any of
/// them; otherwise those that the section offers, whatever their profile, because the server does not decode them.
fn forms_taken(offered: &[Format], codec: Codec) -> Vec<Format> {
    let usual = formats_of(codec);
    if accepts(offered, &usual) {
        return usual;
    }
    mirrored(offered, codec).collect()
}

/// True if a publisher would send video that is not supported. Its offer is then refused as a whole, because the stream
/// would have no picture.
pub(super) fn leaves_out_video(offer: &Description, codecs: Codecs) -> bool {
    let sends = |media: &&Media| !media.is_rejected() && offer.direction(media).sends();
    let mut videos = offer.media.iter().filter(|media| media.kind == MediaKind::Video).filter(sends);
    videos.any(|media| take(media, codecs).is_none())
}

/// Returns the offered forms of a codec, reduced to parameters that both sides of an answer share. Forms that cannot be
/// depacketized are left out: interleaved H.264 (RFC 6184 §5.4), H.265 in several streams or with decoding order
/// numbers (RFC 7798 §7.1).
fn mirrored(offered: &[Format], codec: Codec) -> impl Iterator<Item = Format> {
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
    let is_of_codec =
        move |format: &&Format| video && codec_of_description(format) == Some(codec) && is_readable(format);
    offered.iter().filter(is_of_codec).take(MIRRORED_MAX).map(move |offered| {
        let mut parameters = Parameters::new();
        for name in names {
            if let Some(value) = offered.parameters.get(name) {
                parameters.set(name, value);
            }
        }
        Format { rtpmap: offered.rtpmap.clone(), parameters, feedback: feedback.clone() }
    })
}

fn is_readable(format: &Format) -> bool {
    let parameters = &format.parameters;
    let one_stream = parameters.get("tx-mode").is_none_or(|mode| mode.eq_ignore_ascii_case("SRST"));
    let in_order = parameters.number("packetization-mode").unwrap_or(0) <= 1;
    one_stream && in_order && rtp::payload::Format::of_description(format).is_ok_and(|read| read.is_some())
}

/// Returns the forms of a codec that a publisher may send. For H.264 the baseline profile, which every viewer decodes,
/// comes first.
fn formats_of(codec: Codec) -> Vec<Format> {
    let mut formats = offered_formats(codec, PAYLOAD_TYPE_FIRST);
    if codec == Codec::H264 {
        formats.reverse();
        // Constrained baseline is preferred to baseline.
        if formats.len() > 1 {
            formats.swap(0, 1);
        }
    }
    formats
}

/// The kinds of tracks that a viewer's sections carry already.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<TrackKind>);

/// The stream that an answer or an offer to a viewer describes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'s> {
    pub(super) tracks: &'s Tracks,
    pub(super) codecs: Codecs,
    /// The kinds of tracks that the stream lacks and may still get ([`to_come`]).
    pub(super) to_come: &'static [TrackKind],
    pub(super) id: &'s str,
}

impl Shown<'_> {
    /// Returns the codecs for which a section without a track is reserved, in order of preference.
    fn reserved(&self, kind: TrackKind) -> impl Iterator<Item = Codec> {
        let all: &[Codec] = match kind {
            TrackKind::Video => &[Codec::H264, Codec::Vp8, Codec::Vp9, Codec::Av1, Codec::H265],
            TrackKind::Audio => &[Codec::Opus, Codec::G711(g711::Law::Mu), Codec::G711(g711::Law::A)],
            TrackKind::Data => &[],
        };
        let (codecs, is_to_come) = (self.codecs, self.to_come.contains(&kind));
        all.iter().copied().filter(move |codec| is_to_come && codecs.has(*codec))
    }
}

/// Returns the kinds of tracks that a stream lacks and may still get. A page with a video track waits for its first
/// picture, so video is not expected of a stream that has been audio-only for a while.
pub(super) fn to_come(tracks: &Tracks, is_seasoned: bool) -> &'static [TrackKind] {
    let lacks = |kind| tracks.of_kind(kind).all(Track::is_stand_in);
    match (lacks(TrackKind::Audio), lacks(TrackKind::Video) && !is_seasoned) {
        (true, true) => &[TrackKind::Audio, TrackKind::Video],
        (true, false) => &[TrackKind::Audio],
        (false, true) => &[TrackKind::Video],
        (false, false) => &[],
    }
}

/// Answers a viewer's section with the track of its kind that the viewer can decode, unless another section has it. A
/// section of a kind that the stream lacks is reserved for a future track.
pub(super) fn give(media: &Media, stream: Shown<'_>, taken: &mut Taken) -> Option<MediaPreference> {
    let kind = if media.kind == MediaKind::Video { TrackKind::Video } else { TrackKind::Audio };
    let offered: Vec<Format> = media.rtp_formats().collect();
    let formats = match default_of(stream.tracks, kind) {
        _ if taken.0.contains(&kind) => Vec::new(),
        Some(track) => forms_given(&offered, track),
        None => forms_reserved(&offered, stream.reserved(kind)),
    };
    if !accepts(&offered, &formats) {
        return idle(&offered);
    }
    taken.0.push(kind);
    Some(MediaPreference { direction: Direction::SendOnly, formats, msid: Some(name_of(kind, stream.id)) })
}

/// Returns the forms in which a future track may be sent in a viewer's section: the first of each codec that the
/// viewer accepts.
fn forms_reserved(offered: &[Format], codecs: impl Iterator<Item = Codec>) -> Vec<Format> {
    let is_taken = |form: &Format| takes_fragments(form) && accepts(offered, std::slice::from_ref(form));
    codecs.filter_map(|codec| forms_taken(offered, codec).into_iter().find(is_taken)).collect()
}

/// Returns the track that a viewer's section carries, and the payload type in which the track is sent: that of the
/// first agreed format whose decoder can decode the track; otherwise that of the first format of its codec.
pub(super) fn carries<'t>(section: &Section, tracks: &'t Tracks) -> Option<(&'t Track, PayloadType)> {
    let kind = if section.kind == MediaKind::Video { TrackKind::Video } else { TrackKind::Audio };
    let track = default_of(tracks, kind)?;
    let of_codec =
        |format: &&SectionFormat| codec_of_description(&format.remote) == Some(track.config.codec());
    let formats = || section.formats.iter().filter(of_codec);
    let format =
        formats().find(|format| decodes(&format.remote, &track.config)).or_else(|| formats().next())?;
    Some((track, format.payload_type()))
}

/// Returns the forms in which a track may be sent in a viewer's section: the usual forms, and the forms that the viewer
/// offers, except for forms whose decoder cannot decode the track.
fn forms_given(offered: &[Format], track: &Track) -> Vec<Format> {
    let codec = track.config.codec();
    let forms = formats_of_track(track).into_iter().chain(mirrored(offered, codec));
    forms.filter(|form| decodes(form, &track.config)).collect()
}

/// True if a viewer with this form accepts fragmented pictures. A form of H.264 without a packetization mode counts as
/// mode 1, because peers that omit it support fragments; mode 0 does not allow them (RFC 6184 §6.2).
fn takes_fragments(form: &Format) -> bool {
    form.parameters.number("packetization-mode").is_none_or(|mode| mode == 1)
}

/// True if a track with this configuration may be sent in this form.
fn decodes(form: &Format, config: &CodecConfig) -> bool {
    match config {
        CodecConfig::H264(config) => {
            let viewer = form.profile_level_id().map(ProfileLevelId::profile);
            let stream = avc_profile(&config.record).map(ProfileLevelId::profile);
            takes_fragments(form)
                && viewer.zip(stream).is_none_or(|(viewer, stream)| shows_h264(viewer, stream))
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

/// True if a decoder for the viewer's H.264 profile can probably decode the stream. Decoders of the usual profiles
/// decode more than they announce; other decoders decode only what the standard requires of them.
fn shows_h264(viewer: H264Profile, stream: H264Profile) -> bool {
    let is_usual = |profile| match profile {
        H264Profile::ConstrainedBaseline
        | H264Profile::Baseline
        | H264Profile::Main
        | H264Profile::ConstrainedHigh
        | H264Profile::High => true,
        // The usual profiles with other constraint flags.
        H264Profile::Other(idc, _) => matches!(idc, 0x42 | 0x4d | 0x64),
        H264Profile::Extended | H264Profile::High10 | H264Profile::High422 | H264Profile::High444 => false,
    };
    viewer.decodes(stream) || (is_usual(viewer) && is_usual(stream))
}

fn avc_profile(record: &[u8]) -> Option<ProfileLevelId> {
    let [idc, flags, level] = *record.get(AVC_PROFILE)?.first_chunk()?;
    Some(ProfileLevelId { idc, flags, level })
}

/// True if a viewer wants the stream's video codec, but only in forms in which the stream cannot be sent. The viewer
/// is then refused; otherwise it would see nothing and not know why.
pub(super) fn lacks_form(offer: &Description, tracks: &Tracks) -> bool {
    let Some(track) = default_of(tracks, TrackKind::Video) else { return false };
    let codec = track.config.codec();
    let receives = |media: &&Media| {
        media.kind == MediaKind::Video && !media.is_rejected() && offer.direction(media).receives()
    };
    let sections = offer.media.iter().filter(receives).map(|media| media.rtp_formats().collect::<Vec<_>>());
    let mut sections = sections.filter(|offered| codecs_of(offered).contains(&codec)).peekable();
    sections.peek().is_some() && sections.all(|offered| !accepts(&offered, &forms_given(&offered, track)))
}

/// Returns the track of a kind that a viewer is sent unless it selects another.
pub(super) fn default_of(tracks: &Tracks, kind: TrackKind) -> Option<&Track> {
    let is_sent = |track: &Track| !track.is_stand_in() && is_carried(track.config.codec());
    let carried = |track: &&Track| track.kind() == kind && is_sent(track);
    Tracks::preferred(tracks.iter().filter(carried))
}

/// Returns the preference for an inactive section. The section is not rejected, because some peers read the transport
/// attributes from this section only.
fn idle(offered: &[Format]) -> Option<MediaPreference> {
    let codecs = codecs_of(offered).into_iter();
    let known = codecs.map(|codec| forms_taken(offered, codec)).find(|formats| accepts(offered, formats));
    Some(MediaPreference { direction: Direction::Inactive, formats: known?, msid: None })
}

/// Returns the sections offered to a viewer of a stream, audio first as pages expect. Tracks may be added later.
pub(super) fn offered(stream: Shown<'_>) -> Vec<(MediaKind, MediaPreference)> {
    let first = |codec| formats_of(codec).into_iter().next();
    let section = |kind, section: MediaKind| {
        let track = default_of(stream.tracks, kind);
        let formats =
            track.map_or_else(|| stream.reserved(kind).filter_map(first).collect(), formats_of_track);
        let msid = Some(name_of(kind, stream.id));
        (section, MediaPreference { direction: Direction::SendOnly, formats, msid })
    };
    let mut sections =
        vec![section(TrackKind::Audio, MediaKind::Audio), section(TrackKind::Video, MediaKind::Video)];
    sections.retain(|(_, preference)| !preference.formats.is_empty());
    number_apart(&mut sections);
    sections
}

/// Gives formats of different sections different payload types, because they share a transport (RFC 9143 §9.1).
fn number_apart(sections: &mut [(MediaKind, MediaPreference)]) {
    let mut next = PAYLOAD_TYPE_FIRST;
    for (_, preference) in sections {
        for format in &mut preference.formats {
            if format.payload_type().number() >= PAYLOAD_TYPE_FIRST
                && let Some(number) = PayloadType::new(next)
            {
                format.rtpmap.payload_type = number;
                next += 1;
            }
        }
    }
}

/// Returns the forms in which a track may be sent: for H.264 the stream's own profile first, then others whose decoders
/// may accept it.
pub(super) fn formats_of_track(track: &Track) -> Vec<Format> {
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
            if let Some(number) = PayloadType::new(number) {
                format.rtpmap.payload_type = number;
            }
        }
    }
    formats
}

/// Returns the `msid` of a stream's track: a media stream that is named like the stream, and the name of the track.
pub(super) fn name_of(kind: TrackKind, stream: &str) -> Msid {
    let prefix = if kind == TrackKind::Video { VIDEO_PREFIX } else { AUDIO_PREFIX };
    Msid { stream: stream.to_owned(), track: Some(format!("{prefix}{stream}")) }
}

/// Returns the stream's id from a track's name; a name without prefix is the id itself.
pub(super) fn stream_of_track(name: &str) -> &str {
    let bare = |prefix| name.strip_prefix(prefix);
    bare(VIDEO_PREFIX).or_else(|| bare(AUDIO_PREFIX)).unwrap_or(name)
}

/// Returns the track name of each section, by its `mid`.
pub(super) fn names(offer: &Description) -> Vec<(String, String)> {
    let name = |media: &Media| {
        let track = media.attributes.msid()?.track.clone()?;
        Some((media.attributes.mid()?.to_owned(), track))
    };
    offer.media.iter().filter_map(name).collect()
}

/// True if a fragment restarts ICE, i.e. its ufrag differs from the known one.
pub(super) fn restarts(fragment: &Description, known: &str) -> bool {
    let of_sections = fragment.media.iter().flat_map(|media| media.attributes.iter());
    fragment
        .attributes
        .iter()
        .chain(of_sections)
        .any(|attribute| matches!(attribute, Attribute::IceUfrag(ufrag) if ufrag != known))
}

/// Returns the candidates in a fragment.
pub(super) fn candidates(fragment: &Description) -> impl Iterator<Item = &sdp::Candidate> {
    let of_sections = fragment.media.iter().flat_map(|media| media.attributes.candidates());
    fragment.attributes.candidates().chain(of_sections)
}

/// Returns the text of a description's ICE fragment.
pub(super) fn fragment_of(description: &Description) -> String {
    description.write_fragment()
}
