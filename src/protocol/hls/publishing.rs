//! What a sink gives to requests: blobs, with what players and caches have to know of them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hls::playlist::MediaPlaylist;

use super::archive::Archive;
use super::{DASH, NAME};
use crate::jobs::{Job, JobDone, JobId};
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
    /// The same on the disk.
    archive: Option<Archive>,
}

impl Publishing {
    /// With an archive where the settings want one: of the playlist with this name.
    pub(super) fn archived(now: Now, order: &SinkOrder, playlist: &str) -> Self {
        Self { archive: Archive::wanted(order, playlist), ..Self::new(now, order) }
    }

    pub(super) fn new(now: Now, order: &SinkOrder) -> Self {
        Self {
            stream: order.stream,
            app: Arc::clone(&order.key.app),
            version: now.wall_ms << 16,
            gone: Vec::new(),
            archive: None,
        }
    }

    /// These names are needed no more; the next blob takes them along.
    pub(super) fn forget(&mut self, names: impl IntoIterator<Item = String>) {
        match &mut self.archive {
            Some(archive) => self.gone.extend(archive.release(names)),
            None => self.gone.extend(names),
        }
    }

    /// A media playlist: with an archive for live viewers, that of all segments.
    pub(super) fn media_playlist(
        &mut self,
        name: &str,
        playlist: &MediaPlaylist,
        progress: Progress,
    ) -> Event {
        let of_all = self.archive.as_mut().and_then(|archive| {
            archive.note(playlist);
            archive.text()
        });
        self.playlist(name, of_all.unwrap_or_else(|| playlist.to_string()), progress)
    }

    pub(super) fn playlist(&mut self, name: &str, text: String, progress: Progress) -> Event {
        self.blob(name, text.into(), progress)
    }

    /// Something that does not grow.
    pub(super) fn resource(&mut self, name: &str, bytes: Bytes) -> Event {
        if let Some(archive) = &mut self.archive {
            archive.add(name, bytes.clone());
        }
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

    // ---- the archive

    /// The stream is over: nothing more comes.
    pub(super) fn finish(&mut self, now: Now) {
        self.archive.iter_mut().for_each(|archive| archive.finish(now.mono));
    }

    /// The session is to end soon.
    pub(super) fn hurry(&mut self, now: Now) {
        self.archive.iter_mut().for_each(|archive| archive.hurry(now.mono));
    }

    pub(super) fn job(&mut self, now: Now) -> Option<Event> {
        let work = self.archive.as_mut()?.next_job(now.mono)?;
        Some(Event::Job(Job { id: JobId(0), work }))
    }

    pub(super) fn job_done(&mut self, now: Now, done: JobDone) {
        if let Some(archive) = &mut self.archive {
            archive.job_done(now.mono, done.outcome);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        self.archive.iter_mut().for_each(|archive| archive.handle_timeout(now.mono));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.archive.as_ref()?.poll_timeout()
    }

    /// Whether the session may end.
    pub(super) fn is_settled(&self) -> bool {
        self.archive.as_ref().is_none_or(Archive::is_settled)
    }
}
