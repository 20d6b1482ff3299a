//! What a sink gives to requests: blobs, with what players and caches have to know of them.

use std::sync::Arc;

use bytes::Bytes;

use super::{DASH, NAME};
use crate::mail::{Blob, Progress};
use crate::protocol::Event;
use crate::protocol::sinks::SinkOrder;
use crate::types::{Now, StreamId};

/// RFC 8216 §4, §10.
const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";
/// RFC 3555 §4.
const TS_TYPE: &str = "video/mp2t";
/// ISO/IEC 23009-1 annex C.
const MANIFEST_TYPE: &str = "application/dash+xml";
const SEGMENT_TYPE: &str = "video/iso.segment";
const MP4_TYPE: &str = "video/mp4";

/// Makes the blobs of one sink.
#[derive(Debug)]
pub(super) struct Publishing {
    stream: StreamId,
    app: Arc<str>,
    /// The version of the next blob. It begins with the time, so that no other stream of the name had the same.
    version: u64,
    /// Names that go with the next blob.
    gone: Vec<String>,
}

impl Publishing {
    pub(super) fn new(now: Now, order: &SinkOrder) -> Self {
        Self {
            stream: order.stream,
            app: Arc::clone(&order.key.app),
            version: now.wall_ms << 16,
            gone: Vec::new(),
        }
    }

    /// These names are needed no more; the next blob takes them along.
    pub(super) fn forget(&mut self, names: impl IntoIterator<Item = String>) {
        self.gone.extend(names);
    }

    pub(super) fn playlist(&mut self, name: &str, text: String, progress: Progress) -> Event {
        self.blob(name, text.into(), progress)
    }

    /// Something that does not grow.
    pub(super) fn resource(&mut self, name: &str, bytes: Bytes) -> Event {
        self.blob(name, bytes, Progress::ENDED)
    }

    fn blob(&mut self, name: &str, bytes: Bytes, progress: Progress) -> Event {
        self.version = self.version.wrapping_add(1);
        // A delta update has the parameter behind its name.
        let path = name.split_once('?').map_or(name, |(path, _)| path);
        let (content_type, cache_control, viewers) = match path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("m3u8") => (PLAYLIST_TYPE, "no-cache", NAME),
            Some("mpd") => (MANIFEST_TYPE, "no-cache", DASH),
            Some("ts") => (TS_TYPE, "max-age=10", NAME),
            Some("m4s") => (SEGMENT_TYPE, "max-age=10", NAME),
            _ => (MP4_TYPE, "max-age=10", NAME),
        };
        Event::Blob(Box::new(Blob {
            stream: self.stream,
            app: Arc::clone(&self.app),
            name: name.into(),
            version: self.version,
            content_type,
            cache_control,
            viewers: Some(viewers),
            progress,
            forgets: std::mem::take(&mut self.gone),
            bytes,
        }))
    }
}
