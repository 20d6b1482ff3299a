//! FLV bodies, of RTMP messages or of tags, to access units.
//!
//! The payload of a frame is passed on byte for byte: parameter sets, SEI and delimiters inside stay where the
//! encoder put them. What changes is around it: the FLV head goes, the clock is the stream's. That clock counts
//! milliseconds, so the nanoseconds of Enhanced RTMP are not kept.
//!
//! Encoders that take liberties are understood: start codes in place of lengths and parameter sets in band ([`sets`]), AAC
//! in ADTS ([`adts`]), composition times below zero ([`compositions`]).

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
use crate::protocol::usable::Supply;

/// RTMP timestamps are 32 bits of milliseconds (RTMP 1.0 §5.3.1.3).
const CLOCK_BITS: u32 = 32;
/// Largest onMetaData that is kept; real ones have some hundred bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Composition times beyond this are nonsense, and taken for 0.
const COMPOSITION_MS_MAX: i32 = 60_000;
/// The most tracks that are distinguished without being carried.
const OTHERS_MAX: usize = 16;
/// Longest name of a track.
const LABEL_BYTES_MAX: usize = 128;

/// The result of a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A unit for the hub.
    Unit(AccessUnit),
    /// Parameter sets, metadata, silence: nothing to pass on by itself.
    Taken,
    /// Came too early: before the parameter sets of its track, or before the first key frame.
    Dropped,
    /// Malformed; too many of these end the connection.
    Bad,
    /// The stream cannot be carried; the text is for the publisher.
    Unsupported(String),
    /// The first audio that cannot be carried: it is left out, the rest goes on. The text is for the log.
    LeftOut(String),
    /// The results of each track of a multitrack message, or of each frame of a tag.
    Several(Vec<Self>),
}

/// A track that is not carried, because its codec is not known or there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherTrack {
    /// The kind of the track.
    pub(crate) kind: TrackKind,
    /// The track id on the wire.
    pub(crate) id: u8,
    /// The codec that it names.
    pub(crate) four_cc: [u8; 4],
}

/// Tracks of a publisher that are not carried.
#[derive(Debug, Default)]
pub(crate) struct OtherTracks {
    /// Packets so far.
    pub(crate) packets: u64,
    /// The first few of them.
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
    /// Video tracks that have had a key frame; what comes before it is dropped.
    key_seen: TrackSet,
    others: OtherTracks,
    /// The parameter sets of video tracks that have such, by track and codec; a stream has few.
    sets: Vec<(TrackId, ParameterSets)>,
    compositions: Compositions,
    /// Audio tracks whose configuration is that of their ADTS heads.
    of_adts: TrackSet,
    /// The reason audio is left out.
    left_out: Option<flv::Error>,
    /// A video message has come, audio has become a unit.
    video_seen: bool,
    audio_seen: bool,
    /// The fault of the last message that was bad.
    why_bad: &'static str,
}

impl Depackager {
    /// Continues the stream at the position of the grant.
    pub(crate) fn new(grant: &Grant) -> Self {
        Self {
            timeline: Timeline::new(CLOCK_BITS, Timescale::MILLISECONDS, grant.position),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
            key_seen: TrackSet::EMPTY,
            others: OtherTracks::default(),
            sets: Vec::new(),
            compositions: Compositions::default(),
            of_adts: TrackSet::EMPTY,
            left_out: None,
            video_seen: false,
            audio_seen: false,
            why_bad: "",
        }
    }

    /// The messages that follow arrive now. A file has no arrival.
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.timeline.arrive(now);
    }

    /// A fault of the publisher's clock that was not taken yet.
    pub(crate) fn take_clock_news(&mut self) -> Option<ClockNews> {
        self.timeline.take_clock_news()
    }

    /// The tracks of the units that came out last.
    pub(crate) const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// The fault of the last message that was bad.
    pub(crate) const fn why_bad(&self) -> &'static str {
        self.why_bad
    }

    /// The part of the stream that has come so far.
    pub(crate) fn supply(&self) -> Supply {
        if self.tracks.is_empty() && !self.video_seen && self.left_out.is_some() {
            return Supply::Nothing;
        }
        let has_video = !self.video_seen || !self.key_seen.is_empty();
        match (has_video, self.audio_seen) {
            (true, _) => Supply::Frames,
            (false, true) => Supply::AudioAlone,
            (false, false) => Supply::Announced,
        }
    }

    fn bad(&mut self, why: &'static str) -> Outcome {
        self.why_bad = why;
        Outcome::Bad
    }

    /// Video of a codec that this server does not carry ends the publish with a word. Such audio leaves the video alone: a
    /// stream of nothing else is ended by its [`Supply`]. Anything else is noise and dropped.
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

    /// The reason audio is left out, if any is.
    pub(crate) const fn left_out(&self) -> Option<flv::Error> {
        self.left_out
    }

    /// Counts of tracks that are not carried.
    pub(crate) const fn others(&self) -> &OtherTracks {
        &self.others
    }

    /// A video message.
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
            // An empty record is what some encoders send before they know their parameters.
            VideoPacket::SequenceHeader if tag.payload.is_empty() && needs_record(tag.codec) => {
                Outcome::Taken
            }
            VideoPacket::SequenceHeader => self.config(id, tag.codec, &tag.payload),
            VideoPacket::EndOfSequence => Outcome::Taken,
            VideoPacket::Metadata => self.extra(id, tag.codec, tag.payload),
            // No encoder is known to send it, and no player to want it.
            VideoPacket::Mpeg2TsSequenceStart => Outcome::Dropped,
            VideoPacket::Frame => self.video_unit(id, timestamp, tag),
        }
    }

    /// An audio message.
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
            // ffmpeg that copies a stream may begin with an empty record, and send the real one when it has seen a frame.
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

    /// The tracks of one message. A further track that cannot be carried is counted, and ends nothing.
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
                // What comes of a body is handed on with the tracks as they are behind it: nothing in it may change a track that
                // had its packet already.
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

    /// Whether a track is there, or may still be added.
    fn has_room(&self, id: TrackId) -> bool {
        self.tracks.get(id).is_some() || self.tracks.iter().count() < media::TRACKS_MAX
    }

    /// A data message: onMetaData becomes part of the tracks; everything travels as a unit once media flows.
    pub(crate) fn data(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        if body.len() > METADATA_BYTES_MAX {
            return self.bad("metadata of more than 64 KiB");
        }
        let body = flv::data::unwrap(body);
        let Ok(data) = flv::data::Data::read(&body) else {
            return self.bad("data that is no AMF");
        };
        if let Some(members) = data.as_metadata() {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.metadata = Some(body.clone());
            describe(tracks, members);
        }
        if self.tracks.is_empty() {
            return Outcome::Taken;
        }
        let dts = self.timeline.map_beside(u64::from(timestamp));
        Outcome::Unit(AccessUnit {
            track: TrackId::DATA,
            dts,
            pts: dts,
            key_frame: false,
            config_epoch: 0,
            payload: body,
        })
    }

    /// Parameter sets.
    fn config(&mut self, id: TrackId, codec: Codec, record: &[u8]) -> Outcome {
        // A copy: the buffer it came in is shared with frames, and would stay as long as the stream.
        match CodecConfig::read(codec, Bytes::copy_from_slice(record)) {
            Ok(Some(config)) => {
                if let Some(sets) = self.sets_of(id, codec) {
                    sets.begin(&config);
                }
                // Units have lengths of four bytes.
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

    /// The parameter sets of a track in that codec. `None`: the codec has no NAL units.
    fn sets_of(&mut self, id: TrackId, codec: Codec) -> Option<&mut ParameterSets> {
        let is_it = |(of, sets): &(TrackId, ParameterSets)| *of == id && sets.is_of(codec);
        if !self.sets.iter().any(is_it) {
            self.sets.push((id, ParameterSets::new(codec)?));
        }
        self.sets.iter_mut().find(|one| is_it(one)).map(|(_, sets)| sets)
    }

    /// Checks what can be checked of a frame, gives its NAL units 4-byte lengths, and makes parameter sets in it the
    /// configuration of its track. `None`: there is no slice of a picture in it.
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

    /// Makes this the configuration of a track. One that differs begins an epoch of it.
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
            // Another codec begins with a key frame of its own.
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

    /// Colour or channels of a track: the newest stays with it.
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
            // It needs no parameter sets, and not all send the empty ones.
            self.config(id, tag.codec, &[]);
        }
        let has_config = self.has(id, tag.codec);
        if tag.payload.is_empty() {
            return if has_config { self.bad("a frame without payload") } else { Outcome::Dropped };
        }
        // The picture is needed all the same: those behind it refer to it.
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
        // The tag tells: open GOPs begin with recovery points that no NAL type shows.
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

    /// A tag of AAC: a raw frame, or frames in ADTS, whose heads are taken off. Where no record has come they are the
    /// configuration; a record knows more (HE-AAC), and stays.
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
            return Outcome::Dropped;
        };
        let config_epoch = track.epoch;
        let dts = self.timeline.map(id, u64::from(timestamp));
        let payload = tag.payload;
        self.audio_seen = true;
        Outcome::Unit(AccessUnit { track: id, dts, pts: dts, key_frame: false, config_epoch, payload })
    }
}

/// The outcomes of one message as one.
fn joined(mut outcomes: Vec<Outcome>) -> Outcome {
    match outcomes.len() {
        0 => Outcome::Taken,
        1 => outcomes.swap_remove(0),
        _ => Outcome::Several(outcomes),
    }
}

/// Names the tracks as onMetaData does in `videoTrackIdInfoMap` and `audioTrackIdInfoMap` (Enhanced RTMP v2, "Enhanced
/// onMetaData").
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

/// The configuration implied by a frame, for codecs that need no record.
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

/// Whether a track of the codec is not to be understood without a record, so that an empty one means nothing.
const fn needs_record(codec: Codec) -> bool {
    match codec {
        Codec::Aac | Codec::Flac | Codec::H264 | Codec::H265 | Codec::Av1 | Codec::Vp9 => true,
        Codec::Vp8 | Codec::Opus | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::G711(_) => false,
    }
}

/// Whether every frame says it again, so that a change shows.
const fn tells_in_frames(codec: Codec) -> bool {
    matches!(codec, Codec::Mp3 | Codec::G711(_))
}

#[cfg(test)]
mod tests;
