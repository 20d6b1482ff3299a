//! The blobs of a worker: data such as playlists and segments, kept in memory to answer requests. Sinks on any worker
//! publish blobs, and requests find them by application and name. All blobs of a stream can be dropped together.
//!
//! The bytes of all blobs are limited, and so are the bytes and the number of those of a stream. When memory is short,
//! blobs that no playlist lists any more go first, whichever application they belong to. Then the application with the
//! most bytes loses its oldest blobs, so that no application takes the memory of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::own_text::OwnText;
use crate::mail::{Blob, Rung};
use crate::types::StreamId;

/// Maximum bytes of the blobs of one stream.
pub const STREAM_BLOB_BYTES_MAX: usize = 64 << 20;
/// Least limit on the bytes of all blobs, unless the operator sets another one. All workers share the bytes of a blob.
pub const BLOB_BYTES_MIN: usize = 512 << 20;
/// Maximum number of blobs of one stream: a playlist, and the segments and parts that it lists.
pub const STREAM_BLOBS_MAX: usize = 1024;

/// Memory reserved for blobs.
pub trait BlobMemory: Debug + Send {
    /// Copies the bytes into this memory. Returns `None` if the bytes do not belong in it or there is no room; the
    /// blob then keeps its original bytes.
    fn keep(&self, bytes: &Bytes) -> Option<Bytes>;
}

/// The result of publishing a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Stored.
    Stored,
    /// The store already has this version or a newer one.
    Outdated,
    /// The name belongs to another live stream, or the blob is too large.
    Refused,
}

/// Number of blobs that were dropped although a playlist of a live stream listed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Missed {
    /// Dropped because the blobs of all streams together had too many bytes.
    pub of_all: u64,
    /// Dropped because those of their own stream had too many bytes, or were too many.
    pub of_stream: u64,
}

impl Missed {
    /// Number of all these blobs.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.of_all.saturating_add(self.of_stream)
    }
}

/// Bit that is set in the numbers of blobs that other blobs need, such as init segments. With this bit, they sort after
/// all other blobs, so that they are dropped last.
const NEEDED: u64 = 1 << 63;
/// Bit that is set in the numbers of blobs that a playlist still lists. With this bit, they sort after the blobs that
/// are no longer listed.
const NAMED: u64 = 1 << 62;

/// The limits on bytes and numbers of blobs.
#[derive(Debug, Clone, Copy)]
struct Caps {
    bytes: usize,
    stream_bytes: usize,
    stream_blobs: usize,
}

/// Key of a ladder (a group of renditions of the same content): the application and the main track.
type Ladder = (Arc<str>, Arc<str>);

/// The blobs of one stream.
#[derive(Debug, Default)]
struct Held {
    /// True if the stream has ended.
    retired: bool,
    bytes: usize,
    /// Numbers of the blobs in the order in which they are dropped.
    order: BTreeSet<u64>,
}

/// The blobs of one application.
#[derive(Debug, Default)]
struct OfApp {
    /// Numbers of the blobs by name.
    names: BTreeMap<Arc<str>, u64>,
    bytes: usize,
    /// Numbers of the blobs in the order in which they are dropped.
    order: BTreeSet<u64>,
}

/// The store of a worker's blobs.
#[derive(Debug)]
pub struct Blobs {
    caps: Caps,
    bytes: usize,
    /// Number of blobs stored since the start; also the number of the next blob.
    stored: u64,
    missed: Missed,
    apps: BTreeMap<Arc<str>, OfApp>,
    /// Blobs by number.
    blobs: BTreeMap<u64, Arc<Blob>>,
    streams: BTreeMap<StreamId, Held>,
    /// Names of the blobs that describe renditions, by application and main track.
    ladders: BTreeMap<Ladder, BTreeSet<Arc<str>>>,
    /// Counter of the bytes that are made from a blob for a single viewer, e.g. a playlist with the viewer's token.
    own: LazyLock<OwnText>,
}

impl Default for Blobs {
    fn default() -> Self {
        Self::new()
    }
}

impl Blobs {
    /// Creates an empty store.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_caps(Caps {
            bytes: BLOB_BYTES_MIN,
            stream_bytes: STREAM_BLOB_BYTES_MAX,
            stream_blobs: STREAM_BLOBS_MAX,
        })
    }

    const fn with_caps(caps: Caps) -> Self {
        Self {
            caps,
            bytes: 0,
            stored: 0,
            missed: Missed { of_all: 0, of_stream: 0 },
            apps: BTreeMap::new(),
            blobs: BTreeMap::new(),
            streams: BTreeMap::new(),
            ladders: BTreeMap::new(),
            own: LazyLock::new(OwnText::default),
        }
    }

    /// Sets the limit on the bytes of all blobs.
    pub const fn limit_bytes(&mut self, bytes: usize) {
        self.caps.bytes = bytes;
    }

    /// Number of blobs that were dropped although a playlist listed them.
    #[must_use]
    pub const fn missed(&self) -> Missed {
        self.missed
    }

    /// Returns the counter of the bytes that are made for a single viewer each.
    pub fn own_text(&self) -> &OwnText {
        &self.own
    }

    /// Stores a blob, which replaces an older version of it. Then drops blobs until the limits hold.
    pub fn publish(&mut self, blob: Arc<Blob>) -> Published {
        if blob.bytes.len() > self.caps.stream_bytes.min(self.caps.bytes) {
            return Published::Refused;
        }
        if let Some(number) = self.number(&blob.app, &blob.name)
            && let Some(former) = self.blobs.get(&number)
        {
            let is_retired = self.streams.get(&former.stream).is_some_and(|held| held.retired);
            if former.stream != blob.stream && !is_retired {
                return Published::Refused;
            }
            if former.stream == blob.stream && former.version >= blob.version {
                return Published::Outdated;
            }
            self.remove(number);
        }
        let number = NAMED | if blob.is_needed { self.stored | NEEDED } else { self.stored };
        self.stored = self.stored.saturating_add(1);
        let held = self.streams.entry(blob.stream).or_default();
        held.bytes = held.bytes.saturating_add(blob.bytes.len());
        held.order.insert(number);
        self.bytes = self.bytes.saturating_add(blob.bytes.len());
        let of_app = self.apps.entry(Arc::clone(&blob.app)).or_default();
        of_app.names.insert(Arc::clone(&blob.name), number);
        of_app.bytes = of_app.bytes.saturating_add(blob.bytes.len());
        of_app.order.insert(number);
        if let Some(ladder) = ladder_of(&blob) {
            self.ladders.entry(ladder).or_default().insert(Arc::clone(&blob.name));
        }
        let stream = blob.stream;
        for name in &blob.obsolete.leaves {
            self.leave(&blob.app, name, stream);
        }
        for name in &blob.obsolete.forgets {
            self.forget(&blob.app, name, stream);
        }
        self.blobs.insert(number, blob);
        self.evict(stream);
        Published::Stored
    }

    /// Drops a blob that nobody needs any more, if it belongs to this stream.
    fn forget(&mut self, app: &str, name: &str, stream: StreamId) {
        if let Some(number) = self.own_number(app, name, stream) {
            self.remove(number);
        }
    }

    /// Marks a blob of the stream as no longer listed in any playlist. It is then dropped before blobs that are
    /// listed.
    fn leave(&mut self, app: &str, name: &str, stream: StreamId) {
        let Some(number) = self.own_number(app, name, stream) else { return };
        let left = number & !(NAMED | NEEDED);
        if let Some(blob) = self.blobs.remove(&number) {
            self.blobs.insert(left, blob);
        }
        if let Some(held) = self.streams.get_mut(&stream) {
            held.order.remove(&number);
            held.order.insert(left);
        }
        if let Some(of_app) = self.apps.get_mut(app) {
            of_app.order.remove(&number);
            of_app.order.insert(left);
            if let Some(known) = of_app.names.get_mut(name) {
                *known = left;
            }
        }
    }

    /// Returns the number of a blob if the blob belongs to this stream.
    fn own_number(&self, app: &str, name: &str, stream: StreamId) -> Option<u64> {
        let is_own = |number: &u64| self.blobs.get(number).is_some_and(|blob| blob.stream == stream);
        self.number(app, name).filter(is_own)
    }

    /// Returns the blob with this name.
    #[must_use]
    pub fn get(&self, app: &str, name: &str) -> Option<&Arc<Blob>> {
        self.blobs.get(&self.number(app, name)?)
    }

    /// Returns the renditions of a ladder, except those of ended streams, in the order in which they began.
    #[must_use]
    pub fn rungs(&self, app: &Arc<str>, main: &Arc<str>) -> Vec<(StreamId, &Rung)> {
        let names = self.ladders.get(&(Arc::clone(app), Arc::clone(main)));
        let is_live = |stream| self.streams.get(&stream).is_some_and(|held| !held.retired);
        let rung = |name: &Arc<str>| {
            let blob = self.get(app, name).filter(|blob| is_live(blob.stream))?;
            Some((blob.stream, blob.ladder.as_ref()?.rung.as_ref()?))
        };
        let mut rungs: Vec<_> = names.into_iter().flatten().filter_map(rung).collect();
        rungs.sort_by_key(|(stream, rung)| (rung.began, *stream));
        rungs
    }

    /// True if a stream has blobs.
    #[must_use]
    pub fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Marks a stream as ended. Its blobs remain until another stream takes their names. Returns false if the stream
    /// has no blobs.
    pub fn retire(&mut self, stream: StreamId) -> bool {
        let held = self.streams.get_mut(&stream);
        held.map(|held| held.retired = true).is_some()
    }

    /// Drops blobs of ended streams: those of this application with a name that `wanted` selects.
    pub fn forget_retired(&mut self, app: &str, wanted: impl Fn(&str) -> bool) {
        let retired = self.streams.values().filter(|held| held.retired);
        let is_wanted = |number: &&u64| {
            self.blobs.get(number).is_some_and(|blob| &*blob.app == app && wanted(&blob.name))
        };
        let gone: Vec<u64> = retired.flat_map(|held| held.order.iter()).filter(is_wanted).copied().collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }

    /// Drops the blobs of a stream that sinks of these kinds have published.
    pub fn withdraw(&mut self, stream: StreamId, makers: &[&str]) {
        let Some(held) = self.streams.get(&stream) else { return };
        let is_made = |number: &&u64| self.blobs.get(number).is_some_and(|blob| makers.contains(&blob.maker));
        let gone: Vec<u64> = held.order.iter().filter(is_made).copied().collect();
        gone.into_iter().for_each(|number| self.remove(number));
    }

    /// Drops all blobs of a stream.
    pub fn end_stream(&mut self, stream: StreamId) {
        let Some(held) = self.streams.remove(&stream) else { return };
        held.order.into_iter().for_each(|number| self.remove(number));
    }

    /// Bytes of all blobs.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn number(&self, app: &str, name: &str) -> Option<u64> {
        self.apps.get(app)?.names.get(name).copied()
    }

    /// Drops blobs until the limits hold: those of the stream, then those of all. Blobs are dropped in the order of
    /// their numbers, so needed blobs are dropped last.
    fn evict(&mut self, stream: StreamId) {
        while let Some(held) = self.streams.get(&stream)
            && (held.bytes > self.caps.stream_bytes || held.order.len() > self.caps.stream_blobs)
            && let Some(&oldest) = held.order.first()
        {
            self.missed.of_stream = self.missed.of_stream.saturating_add(u64::from(self.is_listed(oldest)));
            self.remove(oldest);
        }
        while self.bytes > self.caps.bytes
            && let Some(oldest) = self.next_of_all()
        {
            self.missed.of_all = self.missed.of_all.saturating_add(u64::from(self.is_listed(oldest)));
            self.remove(oldest);
        }
    }

    /// Returns the number of the blob to be dropped next if the blobs of all streams have too many bytes: a blob that no
    /// playlist lists, otherwise the oldest one. It is that of the application with the most bytes among those that
    /// have such a blob.
    fn next_of_all(&self) -> Option<u64> {
        let firsts = self.apps.values().filter_map(|of_app| Some((*of_app.order.first()?, of_app.bytes)));
        let largest = firsts.max_by_key(|(number, bytes)| (number & NAMED == 0, *bytes));
        largest.map(|(number, _)| number)
    }

    /// True if a playlist of a live stream lists the blob, which is missed if it is dropped.
    fn is_listed(&self, number: u64) -> bool {
        let stream = self.blobs.get(&number).and_then(|blob| self.streams.get(&blob.stream));
        number & NAMED != 0 && stream.is_some_and(|held| !held.retired)
    }

    fn remove(&mut self, number: u64) {
        let Some(blob) = self.blobs.remove(&number) else { return };
        if let Some(ladder) = ladder_of(&blob)
            && let Some(rungs) = self.ladders.get_mut(&ladder)
        {
            rungs.remove(&blob.name);
            if rungs.is_empty() {
                self.ladders.remove(&ladder);
            }
        }
        self.bytes = self.bytes.saturating_sub(blob.bytes.len());
        if let Some(held) = self.streams.get_mut(&blob.stream) {
            held.bytes = held.bytes.saturating_sub(blob.bytes.len());
            held.order.remove(&number);
            if held.order.is_empty() {
                self.streams.remove(&blob.stream);
            }
        }
        if let Some(of_app) = self.apps.get_mut(&blob.app) {
            of_app.names.remove(&blob.name);
            of_app.bytes = of_app.bytes.saturating_sub(blob.bytes.len());
            of_app.order.remove(&number);
            if of_app.names.is_empty() {
                self.apps.remove(&blob.app);
            }
        }
    }
}

/// The ladder of a blob that describes a rendition.
fn ladder_of(blob: &Blob) -> Option<Ladder> {
    let ladder = blob.ladder.as_ref().filter(|ladder| ladder.rung.is_some())?;
    Some((Arc::clone(&blob.app), Arc::clone(&ladder.main)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::{Obsolete, Packed, Progress};

    const A: StreamId = StreamId(1);
    const B: StreamId = StreamId(2);

    fn blob(stream: StreamId, name: &str, version: u64, len: usize) -> Arc<Blob> {
        let (app, name, bytes) = ("live".into(), name.into(), Bytes::from(vec![0; len]));
        let (content_type, viewers) = ("video/mp2t", None);
        let (progress, obsolete) = (Progress::default(), Obsolete::default());
        Arc::new(Blob {
            stream,
            app,
            name,
            version,
            content_type,
            viewers,
            progress,
            maker: "hls",
            obsolete,
            calendar: None,
            fresh_until: None,
            bytes,
            is_needed: false,
            ladder: None,
            packed: Packed::default(),
        })
    }

    fn store() -> Blobs {
        Blobs::with_caps(Caps { bytes: 100, stream_bytes: 60, stream_blobs: 4 })
    }

    fn there(store: &Blobs, names: &str) -> String {
        names.split_inclusive(|_: char| true).filter(|name| store.get("live", name).is_some()).collect()
    }

    #[test]
    fn an_init_segment_outlives_the_segments_that_need_it() {
        let mut store = store();
        let init = |stream, name| {
            let blob = Blob::clone(&blob(stream, name, 1, 1));
            Arc::new(Blob { is_needed: true, ..blob })
        };
        store.publish(init(A, "i"));
        // The limits apply to the bytes of a stream, its number of blobs, and the bytes of all streams.
        for (name, version) in ["a", "b", "c"].into_iter().zip(1..) {
            store.publish(blob(A, name, version, 25));
        }
        assert_eq!(there(&store, "iabc"), "ibc");
        for (name, version) in ["d", "e", "f", "g"].into_iter().zip(4..) {
            store.publish(blob(A, name, version, 1));
        }
        assert_eq!(there(&store, "iabcdefg"), "iefg");
        store.publish(init(B, "j"));
        store.publish(blob(B, "h", 1, 58));
        store.publish(blob(StreamId(3), "k", 1, 60));
        assert_eq!(there(&store, "ijhkefg"), "ijk");
        // Needed blobs are dropped, too, if there are no others left.
        for name in ["l", "m", "n", "o"] {
            store.publish(init(B, name));
        }
        assert_eq!(there(&store, "jlmno"), "lmno");
    }

    #[test]
    fn what_is_named_nowhere_any_more_goes_before_what_is() {
        let mut store = store();
        for (name, version) in ["a", "b", "c"].into_iter().zip(1..) {
            store.publish(blob(A, name, version, 20));
        }
        let leaving = |stream, name, version, leaves: &[&str]| {
            let blob = Blob::clone(&blob(stream, name, version, 20));
            let leaves = leaves.iter().map(|name| (*name).to_owned()).collect();
            Arc::new(Blob { obsolete: Obsolete { leaves, ..Obsolete::default() }, ..blob })
        };
        // A blob lists names that no playlist lists any more. The list affects only blobs of its own stream: B's blob
        // does not affect A's `a`.
        store.publish(leaving(B, "d", 1, &["a"]));
        store.publish(leaving(A, "e", 4, &["b", "none"]));
        assert_eq!(there(&store, "abcde"), "acde", "the bytes of a stream");
        store.publish(leaving(B, "f", 2, &["d"]));
        assert_eq!((there(&store, "acdef"), store.bytes()), ("acdef".to_owned(), 100));
        store.publish(blob(StreamId(3), "g", 1, 20));
        assert_eq!(there(&store, "acdefg"), "acefg", "the bytes of all");
        store.end_stream(A);
        store.end_stream(B);
        store.end_stream(StreamId(3));
        assert!(store.bytes() == 0 && store.apps.is_empty() && store.blobs.is_empty());
    }

    #[test]
    fn a_newer_version_takes_the_place_of_an_older_one_and_no_other_streams() {
        let mut store = store();
        assert_eq!(store.publish(blob(A, "a", 2, 10)), Published::Stored);
        assert_eq!(store.publish(blob(A, "a", 1, 20)), Published::Outdated);
        assert_eq!(store.publish(blob(A, "a", 2, 20)), Published::Outdated);
        assert_eq!(store.publish(blob(A, "a", 3, 30)), Published::Stored);
        assert_eq!(store.publish(blob(B, "a", 9, 30)), Published::Refused);
        assert_eq!((store.get("live", "a").unwrap().version, store.bytes()), (3, 30));
        assert!(store.get("other", "a").is_none());
    }

    #[test]
    fn the_oldest_goes_first_within_a_stream_and_among_all() {
        let mut store = store();
        for name in ["a", "b", "c"] {
            store.publish(blob(A, name, 0, 20));
        }
        // A new version of a blob counts as the newest blob.
        store.publish(blob(A, "a", 1, 20));
        store.publish(blob(A, "d", 0, 20));
        assert_eq!((there(&store, "abcd"), store.bytes()), ("acd".to_owned(), 60));
        store.publish(blob(B, "e", 0, 60));
        assert_eq!((there(&store, "abcde"), store.bytes()), ("ade".to_owned(), 100));
        assert_eq!(store.publish(blob(A, "f", 0, 61)), Published::Refused);
        for name in ["g", "h", "i", "j"] {
            store.publish(blob(A, name, 0, 1));
        }
        assert_eq!(there(&store, "deghij"), "eghij");
    }

    #[test]
    fn t_23_an_application_loses_blobs_to_itself_before_others_lose_any() {
        let of = |app: &str, stream, name: &str, len| {
            Arc::new(Blob { app: app.into(), ..Blob::clone(&blob(stream, name, 1, len)) })
        };
        let mut store = store();
        for name in ["a", "b"] {
            store.publish(of("small", A, name, 10));
        }
        // The large application has several streams, and publishes later and more than the small one.
        for (stream, names) in [(B, ["c", "d"]), (StreamId(3), ["e", "f"]), (StreamId(4), ["g", "h"])] {
            for name in names {
                store.publish(of("large", stream, name, 25));
            }
        }
        let has = |app, names: [&str; 2]| names.map(|name| store.get(app, name).is_some());
        assert_eq!(has("small", ["a", "b"]), [true, true]);
        assert_eq!(
            [["c", "d"], ["e", "f"], ["g", "h"]].map(|names| has("large", names)),
            [[false, false], [false, true], [true, true]]
        );
        assert_eq!((store.bytes(), store.missed()), (95, Missed { of_all: 3, of_stream: 0 }));
        // Blobs of ended streams and blobs that no playlist lists are not missed.
        store.retire(StreamId(3));
        store.publish(of("large", B, "i", 25));
        assert_eq!((store.get("large", "f").is_some(), store.missed().total()), (false, 3));
        store.end_stream(A);
        assert!(!store.apps.contains_key("small"));
    }

    #[test]
    fn what_is_listed_nowhere_goes_before_what_a_larger_application_lists() {
        let of = |app: &str, stream, name: &str, version, len, leaves: &[&str]| {
            let leaves = leaves.iter().map(|name| (*name).to_owned()).collect();
            let obsolete = Obsolete { leaves, ..Obsolete::default() };
            let blob = Blob::clone(&blob(stream, name, version, len));
            Arc::new(Blob { app: app.into(), obsolete, ..blob })
        };
        let mut store = store();
        store.publish(of("small", A, "a", 1, 10, &[]));
        store.publish(of("small", A, "b", 2, 10, &["a"]));
        for (stream, name) in [(B, "c"), (B, "d"), (StreamId(3), "e")] {
            store.publish(of("large", stream, name, 1, 30, &[]));
        }
        let names = [("small", "a"), ("small", "b"), ("large", "c"), ("large", "d"), ("large", "e")];
        let all = |store: &Blobs| names.map(|(app, name)| store.get(app, name).is_some());
        assert_eq!(all(&store), [false, true, true, true, true]);
        assert_eq!(store.missed(), Missed::default());
        store.publish(of("small", A, "f", 3, 10, &[]));
        assert_eq!(all(&store), [false, true, false, true, true]);
        assert_eq!(store.missed(), Missed { of_all: 1, of_stream: 0 });
        // The blobs of a stream are counted separately: four at most.
        for (name, version) in ["g", "h", "i"].into_iter().zip(4..) {
            store.publish(of("small", A, name, version, 1, &[]));
        }
        assert_eq!(all(&store), [false, false, false, true, true]);
        assert_eq!(store.missed(), Missed { of_all: 1, of_stream: 1 });
    }

    #[test]
    fn a_stream_takes_its_blobs_along() {
        let mut store = store();
        store.publish(blob(A, "a", 0, 20));
        store.publish(blob(B, "b", 0, 20));
        store.end_stream(A);
        assert_eq!((there(&store, "ab"), store.bytes()), ("b".to_owned(), 20));
        store.end_stream(B);
        assert_eq!(store.bytes(), 0);
        assert!(store.apps.is_empty() && store.blobs.is_empty() && store.streams.is_empty());
        // The end of stream A has made the name available to other streams.
        assert_eq!(store.publish(blob(B, "a", 0, 20)), Published::Stored);
    }

    #[test]
    fn what_a_stream_that_is_over_has_left_is_forgotten_by_name() {
        let mut store = store();
        for (stream, name) in [(A, "a1"), (A, "a2"), (A, "b1"), (B, "a3")] {
            store.publish(blob(stream, name, 0, 1));
        }
        let all = |store: &Blobs| ["a1", "a2", "a3", "b1"].map(|name| store.get("live", name).is_some());
        store.forget_retired("live", |_| true);
        assert_eq!(all(&store), [true; 4], "neither is over");
        store.retire(A);
        store.forget_retired("other", |_| true);
        store.forget_retired("live", |name| name == "a1" || name == "a3");
        assert_eq!(all(&store), [false, true, true, true]);
    }
}
