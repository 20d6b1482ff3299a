//! FLV bodies, of RTMP messages or of tags, to access units.
//!
//! The payload of a frame is passed on byte for byte: parameter sets, SEI and delimiters inside stay where the
//! encoder put them. What changes is around it: the FLV head goes, the clock is the stream's.

use std::sync::Arc;

use bytes::Bytes;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::codec::{aac, h264};
use media::{AccessUnit, CodecConfig, Timeline, Timescale, Track, TrackId, Tracks, nal};

use crate::mail::Grant;

/// RTMP timestamps are 32 bits of milliseconds (RTMP 1.0 §5.3.1.3).
const CLOCK_BITS: u32 = 32;
/// Largest onMetaData that is kept; real ones have some hundred bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Composition times beyond this are nonsense.
const COMPOSITION_MS_MAX: i32 = 60_000;

/// What became of a message.
#[derive(Debug, PartialEq)]
pub(in crate::protocol) enum Outcome {
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

/// The state of one publisher.
#[derive(Debug)]
pub(in crate::protocol) struct Ingest {
    timeline: Timeline,
    tracks: Arc<Tracks>,
    /// Frames before the first key frame are dropped.
    key_seen: bool,
}

impl Ingest {
    /// Continues the stream where the grant says it stands.
    pub(in crate::protocol) fn new(grant: &Grant) -> Self {
        Self {
            timeline: Timeline::new(CLOCK_BITS, grant.position),
            tracks: Arc::new(Tracks { epoch: grant.epoch, ..Tracks::default() }),
            key_seen: false,
        }
    }

    /// The tracks of the units that came out last.
    pub(in crate::protocol) const fn tracks(&self) -> &Arc<Tracks> {
        &self.tracks
    }

    /// A video message.
    pub(in crate::protocol) fn video(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        let tag = match VideoTag::read(body) {
            Ok(tag) => tag,
            Err(error) => return refused(error),
        };
        match tag.packet {
            VideoPacket::SequenceHeader => self.video_config(tag.payload),
            VideoPacket::EndOfSequence => Outcome::Taken,
            VideoPacket::NalUnits => self.video_unit(timestamp, tag),
        }
    }

    /// An audio message.
    pub(in crate::protocol) fn audio(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
        let tag = match AudioTag::read(body) {
            Ok(tag) => tag,
            Err(error) => return refused(error),
        };
        match tag.packet {
            AudioPacket::Silence => Outcome::Taken,
            AudioPacket::SequenceHeader => self.audio_config(tag.payload),
            AudioPacket::Raw if tag.payload.is_empty() => Outcome::Taken,
            AudioPacket::Raw => self.audio_unit(timestamp, tag.payload),
        }
    }

    /// A data message: onMetaData becomes part of the tracks; everything travels as a unit once media flows.
    pub(in crate::protocol) fn data(&mut self, timestamp: u32, body: &Bytes) -> Outcome {
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

    fn video_config(&mut self, record: Bytes) -> Outcome {
        // An empty record is what some encoders send before they know their parameters.
        if record.is_empty() {
            return Outcome::Taken;
        }
        let Ok(config) = h264::Config::read(record) else { return Outcome::Bad };
        let config = CodecConfig::H264(config);
        if self.tracks.video.as_ref().is_none_or(|track| track.config != config) {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.epoch = tracks.epoch.wrapping_add(1);
            tracks.video = Some(Track { id: TrackId::VIDEO, config, timescale: Timescale::MILLISECONDS });
        }
        Outcome::Taken
    }

    fn audio_config(&mut self, record: Bytes) -> Outcome {
        let Ok(config) = aac::Config::read(record) else { return Outcome::Bad };
        let config = CodecConfig::Aac(config);
        if self.tracks.audio.as_ref().is_none_or(|track| track.config != config) {
            let tracks = Arc::make_mut(&mut self.tracks);
            tracks.epoch = tracks.epoch.wrapping_add(1);
            tracks.audio = Some(Track { id: TrackId::AUDIO, config, timescale: Timescale::MILLISECONDS });
        }
        Outcome::Taken
    }

    fn video_unit(&mut self, timestamp: u32, tag: VideoTag) -> Outcome {
        let Some(CodecConfig::H264(config)) = self.tracks.video.as_ref().map(|track| &track.config) else {
            return Outcome::Dropped;
        };
        if tag.payload.is_empty()
            || !(-COMPOSITION_MS_MAX..=COMPOSITION_MS_MAX).contains(&tag.composition_time_ms)
        {
            return Outcome::Bad;
        }
        // A picture is not shown before it is decoded; encoders that say so are a little off.
        let composition = tag.composition_time_ms.max(0);
        let Ok(payload) = nal::to_four_byte_lengths(tag.payload, config.length_size) else {
            return Outcome::Bad;
        };
        let mut pictures = nal::Nals::new(&payload, 4).flatten().filter(|nal| h264::is_picture(nal));
        if pictures.next().is_none() {
            // Parameter sets, SEI or delimiters in a tag of their own: well-formed, and no picture.
            return Outcome::Dropped;
        }
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

    fn audio_unit(&mut self, timestamp: u32, payload: Bytes) -> Outcome {
        if self.tracks.audio.is_none() {
            return Outcome::Dropped;
        }
        let dts = self.timeline.map(TrackId::AUDIO, u64::from(timestamp));
        Outcome::Unit(self.unit(TrackId::AUDIO, dts, dts, false, payload))
    }

    fn unit(&self, track: TrackId, dts: i64, pts: i64, key_frame: bool, payload: Bytes) -> AccessUnit {
        AccessUnit { track, dts, pts, key_frame, config_epoch: self.tracks.epoch, payload }
    }
}

/// Codecs that this server does not carry end the publish with a word; anything else is noise and dropped.
fn refused(error: flv::Error) -> Outcome {
    if error.is_unsupported() { Outcome::Unsupported(error.to_string()) } else { Outcome::Bad }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;
    use crate::mail::StreamId;

    fn ingest() -> Ingest {
        Ingest::new(&Grant {
            stream: StreamId(1),
            position: media::Position::default(),
            epoch: 0,
            settings: Arc::new(AppSettings::defaults("live").unwrap()),
        })
    }

    fn config() -> Bytes {
        Bytes::from_static(b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x02\x67\x42\x01\0\x01\x68")
    }

    #[test]
    fn frames_need_a_config_and_then_a_key_frame() {
        let mut ingest = ingest();
        let inter = Bytes::from_static(b"\x27\x01\0\0\x28\0\0\0\x01\x41");
        let key = Bytes::from_static(b"\x17\x01\0\0\x50\0\0\0\x01\x65");
        assert_eq!(ingest.video(0, &key), Outcome::Dropped);
        assert_eq!(ingest.video(0, &config()), Outcome::Taken);
        assert_eq!(ingest.video(10, &inter), Outcome::Dropped);
        let Outcome::Unit(unit) = ingest.video(20, &key) else { panic!() };
        assert_eq!((unit.dts, unit.pts, unit.key_frame, unit.config_epoch), (20, 100, true, 1));
        assert_eq!(unit.payload.as_ptr(), key[5..].as_ptr());
        let Outcome::Unit(unit) = ingest.video(53, &inter) else { panic!() };
        assert_eq!((unit.dts, unit.pts, unit.key_frame), (53, 93, false));
    }

    #[test]
    fn m_20_bad_frames_are_dropped_and_foreign_codecs_named() {
        let mut ingest = ingest();
        ingest.video(0, &config());
        for bad in [
            &b""[..],
            b"\x17",
            b"\x17\x01\0\0\0",
            b"\x17\x01\0\0\0\0\0\0\x09\x65",
            b"\x17\x01\x80\0\0\0\0\0\x01\x65",
        ] {
            assert_eq!(ingest.video(0, &Bytes::from_static(bad)), Outcome::Bad, "{bad:?}");
        }
        assert!(matches!(ingest.video(0, &Bytes::from_static(b"\x90hvc1")), Outcome::Unsupported(_)));
        assert!(matches!(ingest.audio(0, &Bytes::from_static(b"\x2fabc")), Outcome::Unsupported(_)));
        assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11")), Outcome::Bad);
        assert_eq!(ingest.audio(0, &Bytes::from_static(b"\xaf\x01abc")), Outcome::Dropped);
        assert_eq!(ingest.audio(0, &Bytes::new()), Outcome::Taken);
    }

    #[test]
    fn the_same_parameter_sets_again_are_no_new_epoch() {
        let mut ingest = ingest();
        ingest.video(0, &config());
        ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
        assert_eq!(ingest.tracks().epoch, 2);
        ingest.video(0, &config());
        ingest.audio(0, &Bytes::from_static(b"\xaf\0\x11\x90"));
        assert_eq!(ingest.tracks().epoch, 2);
    }
}
