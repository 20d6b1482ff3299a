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
