//! FLV bodies, of RTMP messages or of tags, to access units.
//!
//! The payload of a frame is passed on byte for byte: parameter sets, SEI and delimiters inside stay where the
//! encoder put them. What changes is around it: the FLV head goes, the clock is the stream's. That clock counts
//! milliseconds, so the nanoseconds of Enhanced RTMP are not kept.

use std::sync::Arc;

use bytes::Bytes;
use flv::tag::{AudioBody, AudioPacket, FrameType, Multitrack, OtherTrack, VideoBody, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::codec::{g711, h264, h265, mp3};
use media::{AccessUnit, Codec, CodecConfig, Timeline, Timescale, Track, TrackId, TrackKind, Tracks, nal};

use crate::mail::Grant;

/// RTMP timestamps are 32 bits of milliseconds (RTMP 1.0 §5.3.1.3).
const CLOCK_BITS: u32 = 32;
/// Largest onMetaData that is kept; real ones have some hundred bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Composition times beyond this are nonsense.
const COMPOSITION_MS_MAX: i32 = 60_000;
/// Further tracks that are told apart.
const OTHERS_MAX: usize = 16;

/// What became of a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A unit for the hub.
    Unit(AccessUnit),
    /// Parameter sets, metadata, silence: nothing to pass on by itself.
    Taken,
    /// It came too early: before its parameter sets, or before the first key frame.
    Dropped,
    /// It makes no sense; too many of these end the connection.
    Bad,
    /// The stream cannot be carried; the text is for the publisher.
    Unsupported(String),
}

/// What a publisher sends beside one track of each kind. It is not carried.
#[derive(Debug, Default)]
pub(crate) struct OtherTracks {
    /// Packets so far.
    pub(crate) packets: u64,
    /// Which tracks, the first few.
    pub(crate) seen: Vec<(TrackKind, OtherTrack)>,
}

impl OtherTracks {
    fn count(&mut self, kind: TrackKind, others: &[OtherTrack]) {
        for other in others {
            self.packets = self.packets.saturating_add(1);
            let other = (kind, *other);
            if self.seen.len() < OTHERS_MAX && !self.seen.contains(&other) {
                self.seen.push(other);
            }
        }
    }
}

/// The state of one publisher.
#[derive(Debug)]
pub(crate) struct Ingest {
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// Frames before the first key frame are dropped.
    key_seen: bool,
    others: OtherTracks,
}

impl Ingest {
    /// Continues the stream where the grant says it stands.
    pub(crate) fn new(grant: &Grant) -> Self {
        Self {
            timeline: Timeline::new(CLOCK_BITS, Timescale::MILLISECONDS, grant.position),
            tracks: Arc::new(Tracks { epoch: grant.epoch, ..Tracks::default() }),
            key_seen: false,
            others: OtherTracks::default(),
        }
    }

    /// The tracks of the units that came out last.
    pub(crate) const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// What came of tracks that are not carried.
    pub(crate) const fn others(&self) -> &OtherTracks {
        &self.others
    }

    /// A video message.
    pub(crate) fn video(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        let tag = match VideoBody::read(body) {
            Ok(VideoBody::Tag(tag)) => tag,
            Ok(VideoBody::Multitrack(Multitrack { default, others })) => {
                self.others.count(TrackKind::Video, &others);
                let Some(tag) = default else { return Outcome::Taken };
                tag
            }
            Ok(VideoBody::Command(_)) => return Outcome::Taken,
            Err(error) => return refused(error),
        };
        match tag.packet {
            // An empty record is what some encoders send before they know their parameters.
            VideoPacket::SequenceHeader if tag.payload.is_empty() && tag.codec != Codec::Vp8 => {
                Outcome::Taken
            }
            VideoPacket::SequenceHeader => self.config(tag.codec, tag.payload),
            VideoPacket::EndOfSequence => Outcome::Taken,
            VideoPacket::Metadata => self.extra(tag.codec, tag.payload),
            // No encoder is known to send it, and no player to want it.
            VideoPacket::Mpeg2TsSequenceStart => Outcome::Dropped,
            VideoPacket::Frame => self.video_unit(timestamp, tag),
        }
    }

    /// An audio message.
    pub(crate) fn audio(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        let tag = match AudioBody::read(body) {
            Ok(AudioBody::Tag(tag)) => tag,
            Ok(AudioBody::Multitrack(Multitrack { default, others })) => {
                self.others.count(TrackKind::Audio, &others);
                let Some(tag) = default else { return Outcome::Taken };
                tag
            }
            Err(error) => return refused(error),
        };
        match tag.packet {
            AudioPacket::Silence | AudioPacket::EndOfSequence => Outcome::Taken,
            AudioPacket::SequenceHeader => self.config(tag.codec, tag.payload),
            AudioPacket::MultichannelConfig => self.extra(tag.codec, tag.payload),
            AudioPacket::Frame if tag.payload.is_empty() => Outcome::Taken,
            AudioPacket::Frame => self.audio_unit(timestamp, tag),
        }
    }

    /// A data message: onMetaData becomes part of the tracks; everything travels as a unit once media flows.
    pub(crate) fn data(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        if body.len() > METADATA_BYTES_MAX {
            return Outcome::Bad;
        }
        let body = flv::data::unwrap(body);
        let Ok(data) = flv::data::Data::read(&body) else { return Outcome::Bad };
        if data.as_metadata().is_some() {
            Arc::make_mut(&mut self.tracks).metadata = Some(body.clone());
        }
        if self.tracks.is_empty() {
            return Outcome::Taken;
        }
        let dts = self.timeline.map_beside(TrackId::DATA, u64::from(timestamp));
        Outcome::Unit(self.unit(TrackId::DATA, dts, dts, false, body))
    }

    /// Parameter sets.
    fn config(&mut self, codec: Codec, record: Bytes) -> Outcome {
        match CodecConfig::read(codec, record) {
            Ok(Some(config)) => self.configure(config),
            Ok(None) => {}
            Err(_) => return Outcome::Bad,
        }
        Outcome::Taken
    }

    /// Makes this the configuration of the track of its kind. One that differs begins an epoch.
    fn configure(&mut self, config: CodecConfig) {
        let codec = config.codec();
        let (id, known) = match codec.kind() {
            TrackKind::Video => (TrackId::VIDEO, &self.tracks.video),
            TrackKind::Audio | TrackKind::Data => (TrackId::AUDIO, &self.tracks.audio),
        };
        if known.as_ref().is_some_and(|track| track.config == config) {
            return;
        }
        let same = known.as_ref().filter(|track| track.config.codec() == codec);
        // Another codec begins with a key frame of its own.
        self.key_seen &= id != TrackId::VIDEO || same.is_some();
        let extra = same.and_then(|track| track.extra.clone());
        let track = Some(Track { id, config, timescale: Timescale::MILLISECONDS, extra });
        let tracks = self.next_epoch();
        if id == TrackId::VIDEO {
            tracks.video = track;
        } else {
            tracks.audio = track;
        }
    }

    /// Colour or channels of a track: the newest stays with it.
    fn extra(&mut self, codec: Codec, body: Bytes) -> Outcome {
        if body.is_empty() || body.len() > METADATA_BYTES_MAX {
            return Outcome::Bad;
        }
        let of_codec = |track: &Track| track.config.codec() == codec;
        let Some(track) = self.track(codec.kind()).filter(|track| of_codec(track)) else {
            return Outcome::Dropped;
        };
        if track.extra.as_ref() == Some(&body) {
            return Outcome::Taken;
        }
        let tracks = self.next_epoch();
        let known = [&mut tracks.video, &mut tracks.audio].into_iter().flatten();
        known.filter(|track| of_codec(track)).for_each(|track| track.extra = Some(body.clone()));
        Outcome::Taken
    }

    fn next_epoch(&mut self) -> &mut Tracks {
        let tracks = Arc::make_mut(&mut self.tracks);
        tracks.epoch = tracks.epoch.wrapping_add(1);
        tracks
    }

    fn track(&self, kind: TrackKind) -> Option<&Track> {
        match kind {
            TrackKind::Video => self.tracks.video.as_ref(),
            TrackKind::Audio => self.tracks.audio.as_ref(),
            TrackKind::Data => None,
        }
    }

    fn has(&self, codec: Codec) -> bool {
        self.track(codec.kind()).is_some_and(|track| track.config.codec() == codec)
    }

    fn video_unit(&mut self, timestamp: u32, tag: VideoTag) -> Outcome {
        if tag.codec == Codec::Vp8 && !self.has(Codec::Vp8) {
            // It needs no parameter sets, and not all send the empty ones.
            self.config(tag.codec, Bytes::new());
        }
        let Some(track) = self.tracks.video.as_ref().filter(|track| track.config.codec() == tag.codec) else {
            return Outcome::Dropped;
        };
        if tag.payload.is_empty()
            || !(-COMPOSITION_MS_MAX..=COMPOSITION_MS_MAX).contains(&tag.composition_time_ms)
        {
            return Outcome::Bad;
        }
        // A picture is not shown before it is decoded; encoders that say so are a little off.
        let composition = tag.composition_time_ms.max(0);
        let payload = match picture(&track.config, tag.payload) {
            Ok(Some(payload)) => payload,
            // Parameter sets, SEI or delimiters in a tag of their own: well-formed, and no picture.
            Ok(None) => return Outcome::Dropped,
            Err(_) => return Outcome::Bad,
        };
        // The tag tells: open GOPs begin with recovery points that no NAL type shows.
        let key_frame = matches!(tag.frame_type, FrameType::Key | FrameType::GeneratedKey);
        self.key_seen |= key_frame;
        if !self.key_seen {
            return Outcome::Dropped;
        }
        let dts = self.timeline.map(TrackId::VIDEO, u64::from(timestamp));
        let pts = dts.saturating_add(i64::from(composition));
        Outcome::Unit(self.unit(TrackId::VIDEO, dts, pts, key_frame, payload))
    }

    fn audio_unit(&mut self, timestamp: u32, tag: AudioTag) -> Outcome {
        match implied_config(&tag) {
            Ok(Some(config)) if tells_in_frames(tag.codec) || !self.has(tag.codec) => self.configure(config),
            Ok(_) => {}
            Err(_) => return Outcome::Bad,
        }
        if !self.has(tag.codec) {
            return Outcome::Dropped;
        }
        let dts = self.timeline.map(TrackId::AUDIO, u64::from(timestamp));
        Outcome::Unit(self.unit(TrackId::AUDIO, dts, dts, false, tag.payload))
    }

    fn unit(&self, track: TrackId, dts: i64, pts: i64, key_frame: bool, payload: Bytes) -> AccessUnit {
        AccessUnit { track, dts, pts, key_frame, config_epoch: self.tracks.epoch, payload }
    }
}

/// Checks what can be checked of a frame; NAL units get 4-byte lengths. `None` when there is no picture in it.
fn picture(config: &CodecConfig, payload: Bytes) -> Result<Option<Bytes>, nal::Error> {
    let (length_size, is_picture): (_, fn(&[u8]) -> bool) = match config {
        CodecConfig::H264(config) => (config.length_size, h264::is_picture),
        CodecConfig::H265(config) => (config.length_size, h265::is_picture),
        CodecConfig::Av1(_)
        | CodecConfig::Vp9(_)
        | CodecConfig::Vp8(_)
        | CodecConfig::Aac(_)
        | CodecConfig::Opus(_)
        | CodecConfig::Mp3(_)
        | CodecConfig::Ac3(_)
        | CodecConfig::Eac3(_)
        | CodecConfig::Flac(_)
        | CodecConfig::G711(_) => return Ok(Some(payload)),
    };
    let payload = nal::to_four_byte_lengths(payload, length_size)?;
    let has_picture = nal::Nals::new(&payload, 4).flatten().any(is_picture);
    Ok(has_picture.then_some(payload))
}

/// What a frame says of its track, for codecs that can do without a record.
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

/// Whether every frame says it again, so that a change shows.
const fn tells_in_frames(codec: Codec) -> bool {
    matches!(codec, Codec::Mp3 | Codec::G711(_))
}

/// Codecs that this server does not carry end the publish with a word; anything else is noise and dropped.
fn refused(error: flv::Error) -> Outcome {
    if error.is_unsupported() { Outcome::Unsupported(error.to_string()) } else { Outcome::Bad }
}

#[cfg(test)]
mod tests;
