//! Converts access units and parameter sets to FLV bodies: a short head, and the payload unchanged.
//!
//! H.264, AAC, MP3 and G.711 are written in the legacy form, which every player supports; the other codecs have only
//! the enhanced form.

use std::borrow::Cow;

use bytes::Bytes;
use flv::amf0::Value;
use flv::data::Data;
use flv::file::TagKind;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::message::Message;
use media::{AccessUnit, Codec, CodecConfig, Track, TrackId, TrackKind};
use smallvec::SmallVec;

use super::script;
use crate::hub::{Chosen, Entry};

/// A body: everything after the head of a tag or a message.
#[derive(Debug)]
pub(in crate::protocol) struct Body<'a> {
    /// The kind of tag.
    pub(in crate::protocol) kind: TagKind,
    /// The codec's head.
    pub(in crate::protocol) head: SmallVec<[u8; 16]>,
    /// The payload.
    pub(in crate::protocol) payload: Cow<'a, Bytes>,
}

impl<'a> Body<'a> {
    fn new(kind: TagKind, head: &[u8], payload: &'a Bytes) -> Self {
        Self { kind, head: SmallVec::from_slice(head), payload: Cow::Borrowed(payload) }
    }

    fn video(
        form: Form,
        codec: Codec,
        frame_type: FrameType,
        packet: VideoPacket,
        composition_ms: i32,
        payload: &'a Bytes,
    ) -> Self {
        // Every video codec has a FourCC.
        let four_cc = codec.four_cc().unwrap_or_default();
        let head = match form {
            Form::Plain if codec == Codec::H264 && packet != VideoPacket::Metadata => {
                return Self::new(
                    TagKind::Video,
                    &VideoTag::write_header(frame_type, packet, composition_ms),
                    payload,
                );
            }
            Form::Plain => VideoTag::write_enhanced(frame_type, packet, four_cc, composition_ms),
            Form::Numbered(id) => VideoTag::write_multitrack(id, frame_type, packet, four_cc, composition_ms),
        };
        Self::new(TagKind::Video, &head, payload)
    }

    /// Makes an audio body in the enhanced form; `None` for G.711, which has no FourCC.
    fn enhanced_audio(form: Form, codec: Codec, packet: AudioPacket, payload: &'a Bytes) -> Option<Self> {
        let four_cc = codec.four_cc()?;
        Some(match form {
            Form::Plain => Self::new(TagKind::Audio, &AudioTag::write_enhanced(packet, four_cc), payload),
            Form::Numbered(id) => {
                Self::new(TagKind::Audio, &AudioTag::write_multitrack(id, packet, four_cc), payload)
            }
        })
    }
}

/// The form in which a packet identifies its track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The first track of its kind ([`Chosen::is_first`]), written as if there were no other.
    Plain,
    /// A further track, written with its id (Enhanced RTMP v2, "Multitrack").
    Numbered(u8),
}

impl Form {
    fn of(track: &Track, chosen: &Chosen) -> Self {
        if chosen.is_first(track) { Self::Plain } else { Self::Numbered(track.number()) }
    }
}

/// Returns the FourCC that a player must support to play the track; `None` if the track is written in the legacy form.
pub(in crate::protocol) const fn needed_four_cc(track: &Track) -> Option<[u8; 4]> {
    let codec = track.config.codec();
    match codec {
        Codec::H264 | Codec::Aac | Codec::Mp3 | Codec::G711(_) => None,
        Codec::H265
        | Codec::Av1
        | Codec::Vp9
        | Codec::Vp8
        | Codec::Opus
        | Codec::Ac3
        | Codec::Eac3
        | Codec::Flac => codec.four_cc(),
    }
}

/// Members of onMetaData that describe the video; the constant below lists those that describe the audio.
const VIDEO_MEMBERS: [&str; 5] = ["videocodecid", "width", "height", "videodatarate", "framerate"];
const AUDIO_MEMBERS: [&str; 6] =
    ["audiocodecid", "audiodatarate", "audiosamplerate", "audiosamplesize", "audiochannels", "stereo"];

/// Returns onMetaData without its members about tracks that are left out; `None` if no track is left out. Otherwise
/// ffmpeg would wait half a minute for video that onMetaData announces.
pub(in crate::protocol) fn without_left_out(chosen: &Chosen, body: &Bytes) -> Option<Bytes> {
    // onMetaData does not describe a derived track, which replaces a published one.
    let is_sent = |kind| chosen.of_kind(kind).any(|track| !track.id.is_derived());
    let is_left_out = |kind| chosen.all().default_of(kind).is_some() && !is_sent(kind);
    let (video, audio) = (is_left_out(TrackKind::Video), is_left_out(TrackKind::Audio));
    if !video && !audio {
        return None;
    }
    let metadata = Data::read(body).ok()?;
    let mut members = metadata.as_metadata()?.to_vec();
    members.retain(|(name, _)| {
        let name = name.as_str();
        !(video && VIDEO_MEMBERS.contains(&name) || audio && AUDIO_MEMBERS.contains(&name))
    });
    Some(Data::metadata(members).write())
}

/// Returns onMetaData for a subscriber: that of the publisher without the tracks that are left out, or the names of the
/// stream's members (Enhanced RTMP v2, "Enhanced onMetaData"). `None` if there is none.
pub(in crate::protocol) fn metadata(chosen: &Chosen) -> Option<Bytes> {
    if let Some(metadata) = &chosen.all().metadata {
        return Some(without_left_out(chosen, metadata).unwrap_or_else(|| metadata.clone()));
    }
    let maps = [(TrackKind::Video, "videoTrackIdInfoMap"), (TrackKind::Audio, "audioTrackIdInfoMap")];
    let maps = maps.map(|(kind, name)| {
        let named = chosen.of_kind(kind).filter_map(|track| {
            let number = match Form::of(track, chosen) {
                Form::Plain => 0,
                Form::Numbered(number) => number,
            };
            let title = Value::string(&*track.member.as_ref()?.name);
            Some((number.to_string(), Value::Object(vec![("title".to_owned(), title)])))
        });
        (name.to_owned(), Value::Object(named.collect()))
    });
    let has_names = |map: &Value| map.pairs().is_some_and(|pairs| !pairs.is_empty());
    let maps: Vec<_> = maps.into_iter().filter(|(_, map)| has_names(map)).collect();
    (!maps.is_empty()).then(|| Data::metadata(maps).write())
}

/// Returns the parameter sets of a track; `None` if its codec has none.
pub(in crate::protocol) fn config<'a>(track: &'a Track, chosen: &Chosen) -> Option<Body<'a>> {
    let (codec, record, form) = (track.config.codec(), track.config.record(), Form::of(track, chosen));
    match codec {
        Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 | Codec::Vp8 => {
            Some(Body::video(form, codec, FrameType::Key, VideoPacket::SequenceHeader, 0, record))
        }
        Codec::Aac if form == Form::Plain => {
            let head = AudioTag::write_header(AudioPacket::SequenceHeader);
            Some(Body::new(TagKind::Audio, &head, record))
        }
        // The record of AC-3 and E-AC-3 is empty. It is sent all the same, as ffmpeg does.
        Codec::Aac | Codec::Opus | Codec::Ac3 | Codec::Eac3 | Codec::Flac => {
            Body::enhanced_audio(form, codec, AudioPacket::SequenceHeader, record)
        }
        Codec::Mp3 if form == Form::Plain => None,
        Codec::Mp3 => Body::enhanced_audio(form, codec, AudioPacket::SequenceHeader, record),
        Codec::G711(_) => None,
    }
}

/// Returns further metadata of a track from its publisher, in the enhanced form, for players that support the track's
/// FourCC.
pub(in crate::protocol) fn extra<'a>(track: &'a Track, chosen: &Chosen) -> Option<Body<'a>> {
    let (codec, extra, form) = (track.config.codec(), track.extra.as_ref()?, Form::of(track, chosen));
    match codec.kind() {
        // The frame type of metadata has no meaning; ffmpeg and OBS write the type of a command.
        TrackKind::Video => {
            Some(Body::video(form, codec, FrameType::Command, VideoPacket::Metadata, 0, extra))
        }
        TrackKind::Audio => Body::enhanced_audio(form, codec, AudioPacket::MultichannelConfig, extra),
        TrackKind::Data => None,
    }
}

/// Returns the body of a unit of a data track: script data as it is, and timed messages of data channels as script
/// data.
fn data(unit: &AccessUnit) -> Option<Body<'_>> {
    let payload = match unit.track {
        TrackId::DATA => Cow::Borrowed(&unit.payload),
        TrackId::MESSAGES => {
            let message = Message::read(&unit.payload).filter(|message| message.is_timed)?;
            Cow::Owned(script::of_message(&message))
        }
        _ => return None,
    };
    Some(Body { kind: TagKind::Data, head: SmallVec::new(), payload })
}

/// Returns the body of a unit; `None` if the format cannot carry it.
pub(in crate::protocol) fn unit<'a>(entry: &'a Entry, chosen: &Chosen) -> Option<Body<'a>> {
    let unit = &entry.unit;
    let Some(track) = entry.tracks.get(unit.track) else {
        return data(unit);
    };
    let (payload, form) = (&unit.payload, Form::of(track, chosen));
    let codec = track.config.codec();
    match &track.config {
        CodecConfig::H264(_)
        | CodecConfig::H265(_)
        | CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_) => {
            let frame_type = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
            let composition = track.timescale.to_ms(unit.pts).saturating_sub(entry.dts_ms);
            let composition = i32::try_from(composition).unwrap_or(0);
            Some(Body::video(form, codec, frame_type, VideoPacket::Frame, composition, payload))
        }
        CodecConfig::Aac(_) if form == Form::Plain => {
            Some(Body::new(TagKind::Audio, &AudioTag::write_header(AudioPacket::Frame), payload))
        }
        CodecConfig::Mp3(config) if form == Form::Plain => {
            let head = AudioTag::write_mp3(config.sample_rate, config.channels);
            Some(Body::new(TagKind::Audio, &head, payload))
        }
        CodecConfig::G711(config) if form == Form::Plain => {
            let head = AudioTag::write_g711(config.law, config.channels);
            Some(Body::new(TagKind::Audio, &head, payload))
        }
        CodecConfig::Aac(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::G711(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_) => Body::enhanced_audio(form, codec, AudioPacket::Frame, payload),
    }
}
