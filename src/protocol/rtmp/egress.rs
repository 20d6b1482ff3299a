//! Access units to RTMP messages, in chunks that every viewer of a message stream shares.

use bytes::{Bytes, BytesMut};
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use media::{Codec, CodecConfig, Tracks};
use rtmp::chunk::{MessageHead, write_message};
use rtmp::{CHUNK_SIZE_OUT, MediaKind};

use crate::hub::{Entry, Package, Parts};

/// Heads are cut out of blocks of this size: one allocation for some hundred messages.
const SCRATCH_BYTES: usize = 4096;
/// Room that a head may need: chunk header with extended timestamp, and the FLV head.
const HEAD_BYTES: usize = 32;

/// RTMP messages of one message stream.
#[derive(Debug)]
pub(crate) struct RtmpPackage {
    message_stream: u32,
    scratch: BytesMut,
    /// Slices of the message in the making.
    out: Vec<Bytes>,
}

impl RtmpPackage {
    pub(crate) fn new(message_stream: u32) -> Self {
        Self { message_stream, scratch: BytesMut::new(), out: Vec::new() }
    }

    fn message(&mut self, kind: MediaKind, dts_ms: i64, prefix: &[u8], payload: &Bytes) {
        if self.scratch.capacity() < HEAD_BYTES {
            self.scratch = BytesMut::with_capacity(SCRATCH_BYTES);
        }
        let head = MessageHead {
            chunk_stream: kind.chunk_stream(),
            // The protocol's clock has 32 bits and wraps (RTMP 1.0 §5.3.1.3).
            timestamp: u32::try_from(dts_ms & 0xffff_ffff).unwrap_or(0),
            kind: kind.message_type(),
            message_stream: self.message_stream,
        };
        write_message(&mut self.scratch, &head, prefix, payload, CHUNK_SIZE_OUT, &mut self.out);
    }
}

impl Package for RtmpPackage {
    fn prelude(&mut self, tracks: &Tracks, dts_ms: i64) -> Parts {
        if let Some(metadata) = &tracks.metadata {
            // At zero whenever it is sent: ffmpeg takes onMetaData with another stamp for a subtitle track.
            self.message(MediaKind::Data, 0, &[], metadata);
        }
        for track in [&tracks.video, &tracks.audio].into_iter().flatten() {
            match &track.config {
                CodecConfig::H264(config) => {
                    let head = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
                    self.message(MediaKind::Video, dts_ms, &head, &config.record);
                }
                CodecConfig::Aac(config) => {
                    let head = AudioTag::write_header(AudioPacket::SequenceHeader);
                    self.message(MediaKind::Audio, dts_ms, &head, &config.record);
                }
            }
        }
        Parts::new(self.out.drain(..))
    }

    fn unit(&mut self, entry: &Entry) -> Parts {
        let unit = &entry.unit;
        match entry.tracks.get(unit.track).map(|track| (track.config.codec(), track.timescale)) {
            Some((Codec::H264, timescale)) => {
                let frame_type = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
                let composition = timescale.to_ms(unit.pts).saturating_sub(entry.dts_ms);
                let composition = i32::try_from(composition).unwrap_or(0);
                let head = VideoTag::write_header(frame_type, VideoPacket::NalUnits, composition);
                self.message(MediaKind::Video, entry.dts_ms, &head, &unit.payload);
            }
            Some((Codec::Aac, _)) => {
                let head = AudioTag::write_header(AudioPacket::Raw);
                self.message(MediaKind::Audio, entry.dts_ms, &head, &unit.payload);
            }
            None => self.message(MediaKind::Data, entry.dts_ms, &[], &unit.payload),
        }
        Parts::new(self.out.drain(..))
    }
}
