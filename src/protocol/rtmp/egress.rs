//! Access units to RTMP messages, in chunks that every viewer of a message stream shares.

use bytes::{Bytes, BytesMut};
use flv::file::TagKind;
use media::{Track, Tracks};
use rtmp::chunk::{MessageHead, write_message};
use rtmp::{CHUNK_SIZE_OUT, FourCcs, MediaKind};

use crate::hub::{Entry, Package, Parts};
use crate::protocol::tags::{self, Body};

/// Heads are cut out of blocks of this size: one allocation for some hundred messages.
const SCRATCH_BYTES: usize = 4096;
/// Room that a head may need: chunk header with extended timestamp, and the FLV head.
const HEAD_BYTES: usize = 32;

/// Whether a player that announced `four_ccs` is sent the track.
pub(super) fn is_sent(track: &Track, four_ccs: FourCcs) -> bool {
    tags::needed_four_cc(track).is_none_or(|four_cc| four_ccs.contains(four_cc))
}

/// RTMP messages of one message stream, for players that can decode the same.
#[derive(Debug)]
pub(crate) struct RtmpPackage {
    message_stream: u32,
    /// A track of another codec is left out, unless it has a legacy form.
    four_ccs: FourCcs,
    scratch: BytesMut,
    /// Slices of the message in the making.
    out: Vec<Bytes>,
}

impl RtmpPackage {
    pub(crate) fn new(message_stream: u32, four_ccs: FourCcs) -> Self {
        Self { message_stream, four_ccs, scratch: BytesMut::new(), out: Vec::new() }
    }

    fn body(&mut self, dts_ms: i64, body: &Body<'_>) {
        let kind = match body.kind {
            TagKind::Video => MediaKind::Video,
            TagKind::Audio => MediaKind::Audio,
            TagKind::Data | TagKind::Other(_) => MediaKind::Data,
        };
        self.message(kind, dts_ms, &body.head, body.payload);
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
            if !is_sent(track, self.four_ccs) {
                continue;
            }
            let knows = track.config.codec().four_cc().is_some_and(|four_cc| self.four_ccs.contains(four_cc));
            let extra = tags::extra(track).filter(|_| knows);
            for body in tags::config(track).into_iter().chain(extra) {
                self.body(dts_ms, &body);
            }
        }
        Parts::new(self.out.drain(..))
    }

    fn unit(&mut self, entry: &Entry) -> Parts {
        if entry.tracks.get(entry.unit.track).is_none_or(|track| is_sent(track, self.four_ccs)) {
            self.body(entry.dts_ms, &tags::unit(entry));
        }
        Parts::new(self.out.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::codec::{opus, vp8};
    use media::{AccessUnit, CodecConfig, Timescale, TrackId};
    use std::sync::Arc;

    fn track(id: TrackId, config: CodecConfig) -> Track {
        let extra = Some(Bytes::from_static(b"extra"));
        Track { id, config, timescale: Timescale::MILLISECONDS, extra }
    }

    /// VP8 and a sound, both with something beside their parameter sets.
    fn tracks(audio: CodecConfig) -> Tracks {
        Tracks {
            epoch: 1,
            video: Some(track(TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default()))),
            audio: Some(track(TrackId::AUDIO, audio)),
            metadata: None,
        }
    }

    /// What a player that announced this is sent: bodies of the prelude, of a picture, of a sound.
    fn sent(tracks: &Tracks, four_ccs: FourCcs) -> [Vec<u8>; 3] {
        let mut package = RtmpPackage::new(1, four_ccs);
        let mut unit = |track| {
            let unit = AccessUnit {
                track,
                dts: 0,
                pts: 0,
                key_frame: false,
                config_epoch: 1,
                payload: Bytes::from_static(b"unit"),
            };
            package
                .unit(&Entry::new(std::time::Instant::now(), unit, Arc::new(tracks.clone())))
                .slices()
                .concat()
        };
        let units = [unit(TrackId::VIDEO), unit(TrackId::AUDIO)];
        let prelude = package.prelude(tracks, 0).slices().concat();
        let [video, audio] = units;
        [prelude, video, audio]
    }

    fn has(bytes: &[u8], body: &[u8]) -> bool {
        bytes.windows(body.len()).any(|window| window == body)
    }

    #[test]
    fn a_track_that_was_not_announced_is_left_out() {
        let opus = tracks(CodecConfig::Opus(opus::Config::read(Bytes::new()).unwrap()));
        let [prelude, video, audio] = sent(&opus, FourCcs::NONE);
        assert!(prelude.is_empty() && video.is_empty() && audio.is_empty());
        let [prelude, video, audio] = sent(&opus, FourCcs::NONE.with(*b"Opus"));
        assert!(has(&prelude, b"\x90Opus") && has(&prelude, b"\x94Opusextra") && !has(&prelude, b"vp08"));
        assert!(video.is_empty() && has(&audio, b"\x91Opusunit"));
        let [prelude, video, audio] = sent(&opus, FourCcs::ALL);
        assert!(
            has(&prelude, b"\x90vp08") && has(&prelude, b"\xd4vp08extra") && has(&prelude, b"\x94Opusextra")
        );
        assert!(has(&video, b"\xa1vp08unit") && has(&audio, b"\x91Opusunit"));
    }

    #[test]
    fn a_legacy_track_is_always_sent_and_what_is_new_of_it_only_to_who_knows() {
        let config = media::codec::aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        let aac = tracks(CodecConfig::Aac(config));
        let [prelude, _, audio] = sent(&aac, FourCcs::NONE);
        assert!(has(&prelude, b"\xaf\0\x11\x90") && !has(&prelude, b"extra") && has(&audio, b"\xaf\x01unit"));
        let [prelude, _, audio] = sent(&aac, FourCcs::NONE.with(*b"mp4a"));
        assert!(has(&prelude, b"\xaf\0\x11\x90") && has(&prelude, b"\x94mp4aextra"));
        assert!(has(&audio, b"\xaf\x01unit"));
    }
}
