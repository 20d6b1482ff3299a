//! Converts FLV bodies, of RTMP messages or of tags, to access units.
//!
//! The payload of a frame is passed on unchanged: parameter sets, SEI and delimiters stay where the encoder put them.
//! Only the FLV head is removed, and times are placed on the stream's clock. That clock counts milliseconds, so the
//! nanoseconds of Enhanced RTMP are lost.
//!
//! Deviating encoders are supported: start codes instead of lengths and parameter sets in band ([`sets`]), AAC in
//! ADTS ([`adts`]), negative composition times ([`compositions`]).

mod adts;
mod compositions;
mod sets;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use flv::tag::{AudioBody, AudioPacket, FrameType, TrackPacket, VideoBody, VideoPacket};
use flv::{AudioTag, VideoTag};
use fmp4::with_four_byte_lengths;
use media::codec::key_frame::is_key_frame;
use media::codec::{aac, g711, mp3};
use media::{
    AccessUnit, ClockNews, Codec, CodecConfig, Rendition, Timeline, Timescale, Track, TrackId, TrackKind,
    TrackSet, Tracks, nal,
};

use self::compositions::Compositions;
use self::sets::ParameterSets;
use crate::mail::Grant;
use crate::protocol::cue_rate::CueRate;
use crate::protocol::usable::Supply;

/// Number of bits of RTMP timestamps, which are in milliseconds (RTMP 1.0 §5.3.1.3).
const CLOCK_BITS: u32 = 32;
/// Maximum size of onMetaData; usual ones have some hundred bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Maximum composition time in milliseconds; larger ones are invalid and taken for 0.
const COMPOSITION_MS_MAX: i32 = 60_000;
/// Maximum number of unsupported tracks that are listed.
const OTHERS_MAX: usize = 16;
/// Maximum length of a track's name, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// The result of converting a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A unit for the hub.
    Unit(AccessUnit),
    /// Parameter sets, metadata or silence: the message was accepted, but makes no unit.
    Taken,
    /// A unit that arrived too early: before the parameter sets of its track, or before the first key frame.
    Dropped,
    /// A malformed message; too many of these end the connection.
    Bad,
    /// The stream is not supported; the text is for the publisher.
    Unsupported(String),
    /// Unsupported audio was left out for the first time; the other tracks continue. The text is for the log.
    LeftOut(String),
    /// The outcomes of each track of a multitrack message, or of each frame of a tag.
    Several(Vec<Self>),
}

/// A track that is not supported, because its codec is unknown or there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherTrack {
    /// The kind of the track.
    pub(crate) kind: TrackKind,
    /// The track id on the wire.
    pub(crate) id: u8,
    /// The FourCC of its codec.
    pub(crate) four_cc: [u8; 4],
}

/// The unsupported tracks of a publisher.
#[derive(Debug, Default)]
pub(crate) struct OtherTracks {
    /// Number of packets so far.
    pub(crate) packets: u64,
    /// The first few of the tracks.
    pub(crate) seen: Vec<OtherTrack>,
}

impl OtherTracks {
    fn count(&mut self, other: OtherTrack) {
        self.packets = self.packets.saturating_add(1);
        if self.seen.len() < OTHERS_MAX && !self.seen.contains(&other) {
            self.seen.push(other);
        }
    }
}

/// The state of one publisher.
#[derive(Debug)]
pub(crate) struct Depackager {
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// Video tracks that have had a key frame; frames before it are dropped.
    key_seen: TrackSet,
    cues: CueRate,
    scripts: CueRate,
    others: OtherTracks,
    /// Parameter sets by video track and codec, for codecs that have them.
    sets: Vec<(TrackId, ParameterSets)>,
    compositions: Compositions,
    /// Audio tracks whose configuration was taken from ADTS heads.
    of_adts: TrackSet,
    /// The reason audio is left out, if it is.
    left_out: Option<flv::Error>,
    /// True after the first video message; `audio_seen` is true after the first audio unit.
    video_seen: bool,
    audio_seen: bool,
    /// True after an audio frame whose configuration is missing.
    audio_lacks_config: bool,
    /// The fault of the last malformed message.
    why_bad: &'static str,
}

impl Depackager {
    /// Starts a publication whose times continue at the position in `grant`, the permission to publish.
    pub(crate) fn new(grant: &Grant) -> Self {
        Self {
            timeline: Timeline::new(CLOCK_BITS, Timescale::MILLISECONDS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            key_seen: TrackSet::EMPTY,
            cues: CueRate::new(),
            scripts: CueRate::of_scripts(),
            others: OtherTracks::default(),
            sets: Vec::new(),
            compositions: Compositions::default(),
            of_adts: TrackSet::EMPTY,
            left_out: None,
            video_seen: false,
            audio_seen: false,
            audio_lacks_config: false,
            why_bad: "",
        }
    }

    /// Sets the arrival time of the following messages. Messages from files have no arrival time.
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.timeline.arrive(now);
    }

    /// Takes the next clock fault of the publisher.
    pub(crate) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// Returns the tracks of the stream as the messages so far describe them.
    pub(crate) const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// Returns the fault of the last malformed message.
    pub(crate) const fn why_bad(&self) -> &'static str {
        self.why_bad
    }

    /// Returns what the publisher has sent so far: nothing usable, only announcements, audio alone, or frames.
    pub(crate) fn supply(&self) -> Supply {
        if self.tracks.is_empty() && !self.video_seen && self.left_out.is_some() {
            return Supply::Nothing;
        }
        match (self.video_seen, self.key_seen.is_empty(), self.audio_seen) {
            (false, _, false) if self.audio_lacks_config => Supply::Announced,
            (false, _, _) => Supply::AudioOnly,
            (true, false, _) => Supply::Frames,
            (true, true, true) => Supply::LacksVideo,
            (true, true, false) => Supply::Announced,
        }
    }

    fn bad(&mut self, why: &'static str) -> Outcome {
        self.why_bad = why;
        Outcome::Bad
    }

    /// Handles a body that cannot be read. Unsupported video ends the publish with a reason. Unsupported audio is
    /// left out and the video continues; a stream that has nothing else is ended according to its [`Supply`].
    /// Malformed bodies are dropped.
    fn refused(&mut self, kind: TrackKind, error: flv::Error) -> Outcome {
        if !error.is_unsupported() {
            return self.bad("a body that is malformed");
        }
        match kind {
            TrackKind::Video | TrackKind::Data => Outcome::Unsupported(error.to_string()),
            TrackKind::Audio if self.left_out.is_some() => Outcome::Taken,
            TrackKind::Audio => {
                self.left_out = Some(error);
                Outcome::LeftOut(error.to_string())
            }
        }
    }

    /// Returns the reason audio is left out, if it is.
    pub(crate) const fn left_out(&self) -> Option<flv::Error> {
        self.left_out
    }

    /// Returns the unsupported tracks.
    pub(crate) const fn others(&self) -> &OtherTracks {
        &self.others
    }

    /// Converts a video message.
    pub(crate) fn video(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        match VideoBody::read(body) {
            Ok(VideoBody::Tag(tag)) => self.video_packet(TrackId::VIDEO, timestamp, tag),
            Ok(VideoBody::Multitrack(packets)) => {
                self.several(TrackKind::Video, packets, |ingest, id, tag| {
                    ingest.video_packet(id, timestamp, tag)
                })
            }
            Ok(VideoBody::Command(_)) => Outcome::Taken,
            Err(error) => {
                self.video_seen = true;
                self.refused(TrackKind::Video, error)
            }
        }
    }

    fn video_packet(&mut self, id: TrackId, timestamp: u32, tag: VideoTag) -> Outcome {
        // Encoders without video may send an empty record.
        self.video_seen |=
            matches!(tag.packet, VideoPacket::Frame | VideoPacket::SequenceHeader) && !tag.payload.is_empty();
        match tag.packet {
            // Some encoders send an empty record before they know their parameters.
            VideoPacket::SequenceHeader if tag.payload.is_empty() && needs_record(tag.codec) => {
                Outcome::Taken
            }
            VideoPacket::SequenceHeader => self.config(id, tag.codec, &tag.payload),
            VideoPacket::EndOfSequence => Outcome::Taken,
            VideoPacket::Metadata => self.extra(id, tag.codec, tag.payload),
            // No encoder is known to send this packet, and no player to use it.
            VideoPacket::Mpeg2TsSequenceStart => Outcome::Dropped,
            VideoPacket::Frame => self.video_unit(id, timestamp, tag),
        }
    }

    /// Converts an audio message.
    pub(crate) fn audio(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        match AudioBody::read(body) {
            Ok(AudioBody::Tag(tag)) => self.audio_packet(TrackId::AUDIO, timestamp, tag),
            Ok(AudioBody::Multitrack(packets)) => {
                self.several(TrackKind::Audio, packets, |ingest, id, tag| {
                    ingest.audio_packet(id, timestamp, tag)
                })
            }
            Err(error) => self.refused(TrackKind::Audio, error),
        }
    }

    fn audio_packet(&mut self, id: TrackId, timestamp: u32, tag: AudioTag) -> Outcome {
        match tag.packet {
            AudioPacket::Silence | AudioPacket::EndOfSequence => Outcome::Taken,
            // When ffmpeg copies a stream, it may begin with an empty record and send the real one after the first
            // frame.
            AudioPacket::SequenceHeader if tag.payload.is_empty() && needs_record(tag.codec) => {
                Outcome::Taken
            }
            AudioPacket::SequenceHeader => {
                let outcome = self.config(id, tag.codec, &tag.payload);
                if outcome == Outcome::Taken {
                    self.of_adts = self.of_adts.without(id);
                }
                outcome
            }
            AudioPacket::MultichannelConfig => self.extra(id, tag.codec, tag.payload),
            AudioPacket::Frame if tag.payload.is_empty() => Outcome::Taken,
            AudioPacket::Frame if tag.codec == Codec::Aac => self.aac(id, timestamp, tag),
            AudioPacket::Frame => self.audio_unit(id, timestamp, tag),
        }
    }

    /// Converts the tracks of one message. An unsupported further track is counted, but does not end the publish.
    fn several<T>(
        &mut self,
        kind: TrackKind,
        packets: Vec<TrackPacket<T>>,
        mut read: impl FnMut(&mut Self, TrackId, T) -> Outcome,
    ) -> Outcome {
        let mut seen = TrackSet::EMPTY;
        let outcomes: Vec<Outcome> = packets
            .into_iter()
            .map(|TrackPacket { id, four_cc, tag }| match (TrackId::nth(kind, id), tag) {
                // All units of a body are passed on with the tracks as they are at its end, so a second packet of a
                // track must not change that track.
                (Some(track), Ok(_)) if seen.contains(track) => {
                    self.bad("a track that comes twice in one body")
                }
                (Some(track), Ok(tag)) if self.has_room(track) => {
                    seen = seen.with(track);
                    read(self, track, tag)
                }
                (Some(TrackId::VIDEO | TrackId::AUDIO), Err(error)) => self.refused(kind, error),
                (_, Err(error)) if !error.is_unsupported() => {
                    self.bad("a track of several that is malformed")
                }
                (_, Ok(_) | Err(_)) => {
                    self.others.count(OtherTrack { kind, id, four_cc });
                    Outcome::Taken
                }
            })
            .collect();
        joined(outcomes)
    }

    /// True if a track exists, or may still be added.
    fn has_room(&self, id: TrackId) -> bool {
        self.tracks.get(id).is_some() || self.tracks.iter().count() < media::TRACKS_MAX
    }

    /// Converts a data message. onMetaData becomes part of the tracks; every data message is also passed on as a unit
    /// once media flows.
    pub(crate) fn data(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        if body.len() > METADATA_BYTES_MAX {
            return self.bad("metadata of more than 64 KiB");
        }
        let body = flv::data::unwrap(body);
        let Ok(data) = flv::data::Data::read(&body) else {
            return self.bad("data that is no AMF");
        };
        let dts = (!self.tracks.is_empty()).then(|| self.timeline.map_beside(u64::from(timestamp)));
        if dts.is_some_and(|dts| !self.scripts.takes(dts)) {
            return Outcome::Dropped;
        }
        // Another list of tracks, even an equal one, makes each viewer's tracks be chosen again.
        let is_new = self.tracks.metadata.as_ref() != Some(&body);
        if let Some(members) = data.as_metadata().filter(|_| is_new) {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.metadata = Some(body.clone());
            describe(tracks, members);
        }
        let Some(dts) = dts else { return Outcome::Taken };
        let unit = |track, payload| {
            Outcome::Unit(AccessUnit { track, dts, pts: dts, key_frame: false, config_epoch: 0, payload })
        };
        // A cue gets the timestamp of its FLV message: the time in the splice information section is on another clock.
        match super::script::splice_of(&data) {
            Some(section) => {
                let cue = if self.cues.takes(dts) { unit(TrackId::CUES, section) } else { Outcome::Dropped };
                Outcome::Several(vec![unit(TrackId::DATA, body), cue])
            }
            None => unit(TrackId::DATA, body),
        }
    }

    /// Handles parameter sets.
    fn config(&mut self, id: TrackId, codec: Codec, record: &[u8]) -> Outcome {
        // A copy, because the received buffer is shared with frames and would be kept as long as the stream.
        match CodecConfig::read(codec, Bytes::copy_from_slice(record)) {
            Ok(Some(config)) => {
                if let Some(sets) = self.sets_of(id, codec) {
                    sets.begin(&config);
                }
                // Units are passed on with NAL unit lengths of four bytes, whatever the record says.
                self.configure(id, with_four_byte_lengths(&config));
            }
            Ok(None) => {}
            Err(_) => match self.sets_of(id, codec) {
                Some(sets) if sets::begins_with_start_code(record) => sets.header(record),
                Some(_) | None => return self.bad("parameter sets that cannot be read"),
            },
        }
        Outcome::Taken
    }

    /// Returns the parameter sets of a track in this codec; `None` if the codec has no NAL units.
    fn sets_of(&mut self, id: TrackId, codec: Codec) -> Option<&mut ParameterSets> {
        let is_it = |(of, sets): &(TrackId, ParameterSets)| *of == id && sets.is_of(codec);
        if !self.sets.iter().any(is_it) {
            self.sets.push((id, ParameterSets::new(codec)?));
        }
        self.sets.iter_mut().find(|one| is_it(one)).map(|(_, sets)| sets)
    }

    /// Checks a frame, gives its NAL units 4-byte lengths, and makes its parameter sets the configuration of its track.
    /// `None` if it contains no slice of a picture.
    fn picture(&mut self, id: TrackId, codec: Codec, payload: Bytes) -> Result<Option<Bytes>, nal::Error> {
        let Some(sets) = self.sets_of(id, codec) else { return Ok(Some(payload)) };
        let payload = sets.frame(payload)?;
        if payload.is_some()
            && let Some(config) = sets.new_config()
        {
            self.configure(id, config);
        }
        Ok(payload)
    }

    /// Sets the configuration of a track. A different one begins a new epoch.
    fn configure(&mut self, id: TrackId, config: CodecConfig) {
        let known = self.tracks.get(id);
        if known.is_some_and(|track| track.config == config) {
            return;
        }
        let same = known.filter(|track| track.config.codec() == config.codec());
        let track = match same {
            Some(track) => Track { config, ..track.clone() },
            None => Track::new(id, config, Timescale::MILLISECONDS),
        };
        if same.is_none() {
            // After a change of codec, the track waits for the first key frame of the new codec.
            self.key_seen = self.key_seen.without(id);
            self.sets.retain(|(of, sets)| *of != id || sets.is_of(track.config.codec()));
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        tracks.put(Track { epoch, ..track });
        let metadata = tracks.metadata.as_ref().and_then(|body| flv::data::Data::read(body).ok());
        if let Some(members) = metadata.as_ref().and_then(|data| data.as_metadata()) {
            describe(tracks, members);
        }
    }

    /// Sets further metadata of a track, such as colour or channels.
    fn extra(&mut self, id: TrackId, codec: Codec, body: Bytes) -> Outcome {
        if body.is_empty() || body.len() > METADATA_BYTES_MAX {
            return self.bad("a description of a track that is empty or too long");
        }
        let Some(track) = self.tracks.get(id).filter(|track| track.config.codec() == codec) else {
            return Outcome::Dropped;
        };
        if track.extra.as_ref() == Some(&body) {
            return Outcome::Taken;
        }
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        let epoch = tracks.epoch;
        if let Some(track) = tracks.get_mut(id) {
            (track.extra, track.epoch) = (Some(Bytes::copy_from_slice(&body)), epoch);
        }
        Outcome::Taken
    }

    fn has(&self, id: TrackId, codec: Codec) -> bool {
        self.tracks.get(id).is_some_and(|track| track.config.codec() == codec)
    }

    fn video_unit(&mut self, id: TrackId, timestamp: u32, tag: VideoTag) -> Outcome {
        if tag.codec == Codec::Vp8 && !self.has(id, Codec::Vp8) {
            // VP8 needs no parameter sets, and not all publishers send the empty ones.
            self.config(id, tag.codec, &[]);
        }
        let has_config = self.has(id, tag.codec);
        if tag.payload.is_empty() {
            return if has_config { self.bad("a frame without payload") } else { Outcome::Dropped };
        }
        // A picture with an impossible composition time is kept, because later pictures refer to it.
        let is_possible = (-COMPOSITION_MS_MAX..=COMPOSITION_MS_MAX).contains(&tag.composition_time_ms);
        let composition_ms = if is_possible { tag.composition_time_ms } else { 0 };
        let payload = match self.picture(id, tag.codec, tag.payload) {
            Ok(Some(payload)) => payload,
            // Parameter sets, SEI or delimiters in a tag of their own: well-formed, but no picture.
            Ok(None) => return Outcome::Dropped,
            Err(_) if has_config => return self.bad("a video frame whose NAL units do not fit into it"),
            Err(_) => return Outcome::Dropped,
        };
        let Some(track) = self.tracks.get(id).filter(|track| track.config.codec() == tag.codec) else {
            return Outcome::Dropped;
        };
        // The frame type of the tag, not the NAL units, decides whether this is a key frame: open GOPs begin with
        // recovery points, which no NAL unit type shows.
        let key_frame = match tag.frame_type {
            FrameType::Key | FrameType::GeneratedKey => true,
            FrameType::Inter | FrameType::Disposable | FrameType::Command => false,
            FrameType::Unstated => is_key_frame(&track.config, &payload),
        };
        let config_epoch = track.epoch;
        if key_frame {
            self.key_seen = self.key_seen.with(id);
        }
        if !self.key_seen.contains(id) {
            return Outcome::Dropped;
        }
        let dts = self.timeline.map(id, u64::from(timestamp));
        let (dts, pts) = self.compositions.place(id, dts, composition_ms);
        Outcome::Unit(AccessUnit { track: id, dts, pts, key_frame, config_epoch, payload })
    }

    /// Converts an AAC tag: a raw frame, or ADTS frames, whose heads are removed. Without a configuration record, the
    /// heads give the configuration; a record says more (HE-AAC) and takes precedence.
    fn aac(&mut self, id: TrackId, timestamp: u32, tag: AudioTag) -> Outcome {
        let config = match self.tracks.get(id).map(|track| &track.config) {
            Some(CodecConfig::Aac(config)) => Some(config),
            Some(_) | None => None,
        };
        let Some(frames) = adts::split(config, &tag.payload) else {
            return self.audio_unit(id, timestamp, tag);
        };
        if config.is_none() || self.of_adts.contains(id) {
            let Ok(config) = aac::Config::of_adts(&frames.head) else {
                return self.bad("AAC in ADTS that does not say its channels");
            };
            self.of_adts = self.of_adts.with(id);
            self.configure(id, CodecConfig::Aac(config));
        }
        let mut outcomes = Vec::with_capacity(frames.raw.len().saturating_add(1));
        for (n, payload) in frames.raw.into_iter().enumerate() {
            let at = timestamp.wrapping_add(adts::offset_ms(&frames.head, n));
            outcomes.push(self.audio_unit(id, at, AudioTag { payload, ..tag.clone() }));
        }
        if !frames.is_whole {
            outcomes.push(self.bad("AAC in ADTS whose frames do not fit into their tag"));
        }
        joined(outcomes)
    }

    fn audio_unit(&mut self, id: TrackId, timestamp: u32, tag: AudioTag) -> Outcome {
        match implied_config(&tag) {
            Ok(Some(config)) if tells_in_frames(tag.codec) || !self.has(id, tag.codec) => {
                self.configure(id, config);
            }
            Ok(_) => {}
            Err(_) => return self.bad("an audio frame that is malformed"),
        }
        let Some(track) = self.tracks.get(id).filter(|track| track.config.codec() == tag.codec) else {
            self.audio_lacks_config = true;
            return Outcome::Dropped;
        };
        let config_epoch = track.epoch;
        let dts = self.timeline.map(id, u64::from(timestamp));
        let payload = tag.payload;
        self.audio_seen = true;
        Outcome::Unit(AccessUnit { track: id, dts, pts: dts, key_frame: false, config_epoch, payload })
    }
}

/// Joins the outcomes of one message into one.
fn joined(mut outcomes: Vec<Outcome>) -> Outcome {
    match outcomes.len() {
        0 => Outcome::Taken,
        1 => outcomes.swap_remove(0),
        _ => Outcome::Several(outcomes),
    }
}

/// Sets names of the tracks from `videoTrackIdInfoMap` and `audioTrackIdInfoMap` of onMetaData (Enhanced RTMP v2,
/// "Enhanced onMetaData").
fn describe(tracks: &mut Tracks, members: &[(String, flv::amf0::Value)]) {
    for (kind, name) in [(TrackKind::Video, "videoTrackIdInfoMap"), (TrackKind::Audio, "audioTrackIdInfoMap")]
    {
        let map = members.iter().find(|(member, _)| member == name).and_then(|(_, value)| value.pairs());
        for (id, about) in map.into_iter().flatten().take(media::TRACKS_MAX) {
            let id = id.parse().ok().and_then(|id| TrackId::nth(kind, id));
            if let Some(track) = id.and_then(|id| tracks.get_mut(id)) {
                describe_track(track, about);
            }
        }
    }
}

fn describe_track(track: &mut Track, about: &flv::amf0::Value) {
    let text = |name: &str| {
        let text = about.get(name).and_then(flv::amf0::Value::as_str)?;
        (!text.is_empty() && text.len() <= LABEL_BYTES_MAX).then(|| Arc::from(text))
    };
    let number = |name: &str| {
        let number = about.get(name).and_then(flv::amf0::Value::as_number).unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and NaN is 0")]
        let number = number as u32;
        number
    };
    track.label = text("title").or_else(|| text("label")).or_else(|| track.label.clone());
    track.language = text("language").or_else(|| track.language.clone());
    if track.kind() == TrackKind::Video {
        let bit_rate = number("videodatarate").saturating_mul(1000);
        track.rendition =
            Some(Rendition { group: 0, width: number("width"), height: number("height"), bit_rate });
    }
}

/// Returns the configuration implied by a frame, for codecs that need no record.
fn implied_config(tag: &AudioTag) -> Result<Option<CodecConfig>, media::codec::Error> {
    match tag.codec {
        Codec::Mp3 => mp3::Config::of_frame(&tag.payload).map(|config| Some(CodecConfig::Mp3(config))),
        Codec::G711(law) => {
            let channels = if tag.stereo { 2 } else { 1 };
            Ok(Some(CodecConfig::G711(g711::Config { law, channels })))
        }
        Codec::Opus | Codec::Ac3 | Codec::Eac3 => CodecConfig::read(tag.codec, Bytes::new()),
        Codec::Aac | Codec::Flac | Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 | Codec::Vp8 => {
            Ok(None)
        }
    }
}

/// True if a codec cannot be decoded without a record, so that an empty record has no meaning.
const fn needs_record(codec: Codec) -> bool {
    match codec {
        Codec::Aac | Codec::Flac | Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 => true,
        Codec::Vp8 | Codec::Opus | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::G711(_) => false,
    }
}

/// True if every frame of the codec repeats the configuration, so that changes are detected.
const fn tells_in_frames(codec: Codec) -> bool {
    matches!(codec, Codec::Mp3 | Codec::G711(_))
}

#[cfg(test)]
mod tests;
