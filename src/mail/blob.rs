//! Blobs: playlists, segments and similar data that a producer on one worker publishes for requests on all workers.
//! Blobs are immutable, and the workers share references to the same bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Laddered;
use crate::http::coding;
use crate::types::{Calendar, StreamId};

/// Maximum bytes of the blobs of one producer that are on their way to other workers.
pub const BLOBS_IN_TRANSIT_BYTES_MAX: usize = 64 << 20;
/// Content type of encryption keys, which caches must not store.
pub const KEY_TYPE: &str = "application/octet-stream";

/// The progress of a growing blob, such as a playlist: its first incomplete segment, and the first missing part of
/// that segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Progress {
    /// The number of the segment.
    pub segment: u64,
    /// The number of the part, from 0.
    pub part: u32,
}

impl Progress {
    /// The progress of a blob that no longer grows.
    pub const ENDED: Self = Self { segment: u64::MAX, part: u32::MAX };
}

/// Time for which the blobs of an ended stream are kept. Viewers may lag behind by this time.
pub const BLOBS_LINGER: Duration = Duration::from_secs(30);

/// A version of a named resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The stream that the blob belongs to; the blob is dropped with it.
    pub stream: StreamId,
    /// Name of the kind of sink that made the blob.
    pub maker: &'static str,
    /// The application under which requests find the blob.
    pub app: Arc<str>,
    /// The path below the application's `streams`.
    pub name: Arc<str>,
    /// Version of the blob. Of two blobs with the same stream and name, the one with the larger version is newer.
    pub version: u64,
    /// The media type.
    pub content_type: &'static str,
    /// Name of the protocol under which viewers that request the blob are counted; `None` if they are not counted.
    pub viewers: Option<&'static str>,
    /// The progress of a growing blob.
    pub progress: Progress,
    /// True if other blobs of the stream cannot be used without this one, such as segments without their init segment,
    /// or playlists without the one that lists them. Needed blobs are dropped last.
    pub is_needed: bool,
    /// Blobs of the stream that this blob makes obsolete.
    pub obsolete: Obsolete,
    /// Calendar for the dates that are inserted into the content for each reader; `None`: the dates are those
    /// of the wall clock.
    pub calendar: Option<Calendar>,
    /// Time from which the blob is treated as missing; `None` if it never expires.
    pub fresh_until: Option<Instant>,
    /// The rendition of a ladder that the blob belongs to, if any.
    pub ladder: Option<Box<Laddered>>,
    /// The content.
    pub bytes: Bytes,
    /// The content in gzip.
    pub packed: Packed,
}

/// Names of blobs that a newer blob of their stream makes obsolete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Obsolete {
    /// Blobs that nobody needs any more; they are dropped.
    pub forgets: Vec<String>,
    /// Blobs that no playlist lists any more but that may still be requested. They are dropped first if space is
    /// short.
    pub leaves: Vec<String>,
}

impl Blob {
    /// True if the blob may still be served.
    #[must_use]
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.fresh_until.is_none_or(|until| now < until)
    }

    /// Returns the content in gzip, which is compressed once for all workers. `None` if the content is media, is too
    /// long, or would not become shorter.
    #[must_use]
    pub fn packed(&self) -> Option<&Bytes> {
        let fits = (coding::CODED_BYTES_MIN..=coding::SHARED_BYTES_MAX).contains(&self.bytes.len());
        if !fits || !coding::is_compressible(self.content_type) {
            return None;
        }
        if self.packed.0.get().is_none() {
            // Two workers may compress at the same time, because neither waits for the other.
            let _ = self.packed.0.set(coding::gzip(&self.bytes));
        }
        self.packed.0.get()?.as_ref()
    }
}

/// Cache for the gzip form of a blob, which is made on first use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed(OnceLock<Option<Bytes>>);

/// A blob on its way to another worker.
#[derive(Debug)]
pub struct BlobMail {
    /// The blob.
    pub blob: Arc<Blob>,
    in_transit: Arc<AtomicUsize>,
}

impl Clone for BlobMail {
    fn clone(&self) -> Self {
        Self::counted(Arc::clone(&self.blob), Arc::clone(&self.in_transit))
    }
}

impl Drop for BlobMail {
    fn drop(&mut self) {
        self.in_transit.fetch_sub(self.blob.bytes.len(), Ordering::AcqRel);
    }
}

impl BlobMail {
    fn counted(blob: Arc<Blob>, in_transit: Arc<AtomicUsize>) -> Self {
        in_transit.fetch_add(blob.bytes.len(), Ordering::AcqRel);
        Self { blob, in_transit }
    }
}

/// Number of bytes of blobs that are on their way from one worker to others.
#[derive(Debug, Default)]
pub struct BlobsInTransit(Arc<AtomicUsize>);

impl BlobsInTransit {
    /// Wraps a blob for sending to another worker. Returns `None` if this blob and the blobs already on their way would
    /// exceed [`BLOBS_IN_TRANSIT_BYTES_MAX`]. If no other blob is on its way, a blob of any size is accepted.
    #[must_use]
    pub fn mail(&self, blob: Arc<Blob>) -> Option<BlobMail> {
        let on_the_way = self.0.load(Ordering::Acquire);
        let is_full =
            on_the_way > 0 && on_the_way.saturating_add(blob.bytes.len()) > BLOBS_IN_TRANSIT_BYTES_MAX;
        (!is_full).then(|| BlobMail::counted(blob, Arc::clone(&self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_bounded_and_given_back() {
        let blob = |len| {
            let (app, name) = ("live".into(), "x.ts".into());
            let bytes = Bytes::from(vec![0; len]);
            let content_type = "video/mp2t";
            Arc::new(Blob {
                stream: StreamId(1),
                app,
                name,
                version: 0,
                content_type,
                viewers: None,
                progress: Progress::default(),
                maker: "hls",
                obsolete: Obsolete::default(),
                calendar: None,
                fresh_until: None,
                bytes,
                is_needed: false,
                ladder: None,
                packed: Packed::default(),
            })
        };
        let transit = BlobsInTransit::default();
        let half = transit.mail(blob(BLOBS_IN_TRANSIT_BYTES_MAX / 2)).unwrap();
        let other = half.clone();
        assert!(transit.mail(blob(1)).is_none());
        drop(other);
        assert!(transit.mail(blob(1)).is_some());
        drop(half);
        assert!(transit.mail(blob(BLOBS_IN_TRANSIT_BYTES_MAX + 1)).is_some());
    }
}
