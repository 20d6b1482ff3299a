//! Packages each stream once for each format. All subscribers of the format share the resulting bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use media::{AccessUnit, Track, TrackId, Tracks};
use smallvec::SmallVec;
use wire::Gather;

use super::selection::{Chosen, Fit, Selection};
use super::{Entry, Forwarded, Item, PacketLogs};

/// Maximum age in milliseconds of a prelude (the bytes that a subscriber is sent before the first unit). An
/// older one is remade, so that its timestamps stay near those of the units.
const PRELUDE_AGE_MS: i64 = 1000;

/// Identifies a format. Subscribers with equal keys share a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatKey {
    /// The protocol's name for the format.
    pub name: &'static str,
    /// Distinguishes formats with the same name. The low half is an option that is open to every subscriber (RTMP: the
    /// message stream id). The high half lists capabilities that the subscriber has beyond the plain format (RTMP: the
    /// FourCCs of the player).
    pub variant: u64,
    /// The selected tracks.
    pub selection: Selection,
}

impl FormatKey {
    /// Makes the key of a format with the default tracks.
    #[must_use]
    pub const fn new(name: &'static str, variant: u64) -> Self {
        Self { name, variant, selection: Selection::DEFAULT }
    }
}

/// A timestamp within [`Parts`] that is rewritten for each subscriber.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Index of the slice that contains the timestamp. The slice is copied for each write, so it must not exceed 32
    /// bytes.
    pub slice: usize,
    /// Offset of the timestamp's four bytes in the slice.
    pub at: usize,
    /// The time to write, in milliseconds of the stream.
    pub ms: i64,
    /// Encodes a time in milliseconds as the format does.
    pub write: fn(i64) -> [u8; 4],
}

impl Stamp {
    /// Overwrites the shared time with the time relative to `zero_ms`, the first time sent to the subscriber. An
    /// earlier time becomes zero: audio may be slightly older than the video frame that the subscriber began with.
    fn restamp(self, slice: &mut [u8], zero_ms: i64) {
        let time = (self.write)(self.ms.saturating_sub(zero_ms).max(0));
        if let Some(place) = slice.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *place = time;
        }
    }
}

/// Slices, in the order in which they are sent. Up to three slices need no allocation: an RTMP message of one chunk has
/// a head and a payload, and an FLV tag also has a trailer.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    slices: SmallVec<[Bytes; 3]>,
    len: usize,
    stamps: SmallVec<[Stamp; 1]>,
}

impl Parts {
    /// Makes parts from these slices.
    #[must_use]
    pub fn new(slices: impl IntoIterator<Item = Bytes>) -> Self {
        let slices: SmallVec<[Bytes; 3]> = slices.into_iter().collect();
        let len = slices.iter().map(Bytes::len).sum();
        Self { slices, len, stamps: SmallVec::new() }
    }

    /// Makes parts with timestamps that are rewritten for each subscriber, relative to the first time sent to the
    /// subscriber.
    #[must_use]
    pub fn stamped(slices: impl IntoIterator<Item = Bytes>, stamps: impl IntoIterator<Item = Stamp>) -> Self {
        Self { stamps: stamps.into_iter().collect(), ..Self::new(slices) }
    }

    /// Adds the slices to `gather`, the slices of the next write. Timestamps are relative to `zero_ms`, the
    /// first time sent to the subscriber. Returns false if `gather` is full.
    pub(super) fn gather<'a>(&'a self, zero_ms: i64, gather: &mut Gather<'a>) -> bool {
        self.slices.iter().enumerate().all(|(index, slice)| match self.stamp_of(index) {
            Some(stamp) => gather.push_made(slice, |made| stamp.restamp(made, zero_ms)),
            None => gather.push(slice),
        })
    }

    /// Returns owned copies of the slices that [`Parts::gather`] adds, from byte `from` on.
    pub(super) fn rest(&self, zero_ms: i64, from: usize) -> impl Iterator<Item = Bytes> {
        let mut skip = from;
        self.slices.iter().enumerate().filter_map(move |(index, slice)| {
            let cut = skip.min(slice.len());
            skip -= cut;
            if cut == slice.len() {
                return None;
            }
            let Some(stamp) = self.stamp_of(index) else {
                return Some(slice.slice(cut..));
            };
            let mut own = slice.to_vec();
            stamp.restamp(&mut own, zero_ms);
            Some(Bytes::from(own).slice(cut..))
        })
    }

    fn stamp_of(&self, slice: usize) -> Option<Stamp> {
        self.stamps.iter().find(|stamp| stamp.slice == slice).copied()
    }

    /// The slices.
    #[must_use]
    pub fn slices(&self) -> &[Bytes] {
        &self.slices
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A format. It turns units into bytes or packets that suit every subscriber with the format's key.
pub trait Package: std::fmt::Debug + Send {
    /// Judges how well the format carries a track.
    fn fit(&self, track: &Track) -> Fit;
    /// Returns the bytes that a subscriber needs before its first unit of this epoch, the time in which the chosen
    /// tracks stay the same: parameter sets and metadata, with `dts_ms` as their timestamp.
    fn prelude(&mut self, chosen: &Chosen, dts_ms: i64) -> Parts;
    /// Returns the age from which the prelude is remade at the next unit of a chosen track.
    fn prelude_age_ms(&self) -> i64 {
        PRELUDE_AGE_MS
    }
    /// Packages a unit of a chosen track. The item is empty if the format cannot carry the unit or sends it together
    /// with a later one. An item may therefore contain the bytes of earlier units. Such an item must be audio or
    /// belong to the first video track, because every subscriber must receive it.
    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Item;
    /// Returns the bytes of units that were held back to be sent with a later unit, because no further unit follows.
    fn finish(&mut self) -> Parts {
        Parts::default()
    }
    /// The package's [`Sharing`], if its output depends on how many subscribers share it.
    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        None
    }
    /// The packet logs, if the format sends packets.
    fn logs(&self) -> Option<&dyn PacketLogs> {
        None
    }
}

/// A package for sinks that leaves units as they were published. The function judges how well the sink can use a
/// track.
#[derive(Debug, Clone, Copy)]
pub struct AsPublished(pub fn(&Track) -> Fit);

impl Package for AsPublished {
    fn fit(&self, track: &Track) -> Fit {
        self.0(track)
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        Parts::new([entry.unit.payload.clone()]).into()
    }
}

/// A package whose output depends on the number of its subscribers.
pub trait Sharing {
    /// Sets the number of subscribers that share the packages made from now on.
    fn set_subscribers(&mut self, subscribers: usize);
}

#[derive(Debug)]
struct Prelude {
    from: u64,
    epoch: u32,
    dts_ms: i64,
    parts: Parts,
}

/// A packaged unit, with those properties of the original unit that a cursor needs. When a cursor writes, it reads
/// nothing else.
#[derive(Debug)]
pub(super) struct Packaged {
    /// The bytes or packets; empty if the unit is not sent to the subscribers.
    pub(super) item: Item,
    /// The [`Chosen::epoch`] of the prelude that must precede the unit.
    pub(super) epoch: u32,
    /// The unit's track.
    pub(super) track: TrackId,
    /// True if decoding can begin at the unit.
    pub(super) key_frame: bool,
    /// The unit's DTS in milliseconds.
    pub(super) dts_ms: i64,
    /// Figures to count when the unit has been sent; `None` if its forwarding time is not counted.
    pub(super) forwarded: Option<Forwarded>,
}

impl Packaged {
    fn new(entry: &Entry, item: Item, epoch: u32) -> Self {
        let AccessUnit { track, key_frame, .. } = entry.unit;
        Self { item, epoch, track, key_frame, dts_ms: entry.dts_ms, forwarded: Forwarded::of(entry) }
    }
}

/// State that all subscribers of one format and selection share: the tracks that they are sent and, unless they take
/// units unpackaged, an [`Item`] for each unit of the ring. Items have the sequence numbers of their units.
#[derive(Debug)]
pub struct Packager {
    key: FormatKey,
    /// `None` if the subscribers take units unpackaged.
    package: Option<Box<dyn Package>>,
    chosen: Chosen,
    units: VecDeque<Packaged>,
    base: u64,
    preludes: VecDeque<Prelude>,
    /// Bytes that follow the last unit of an ended stream.
    tail: Parts,
    subscribers: usize,
}

impl Packager {
    /// Starts with these tracks at the unit numbered `base`.
    #[must_use]
    pub fn new(key: FormatKey, package: Option<Box<dyn Package>>, tracks: &Arc<Tracks>, base: u64) -> Self {
        let (units, preludes) = (VecDeque::new(), VecDeque::new());
        let (chosen, tail) = (Chosen::default(), Parts::default());
        let mut new = Self { key, package, chosen, units, base, preludes, tail, subscribers: 0 };
        new.choose(tracks);
        new
    }

    /// Chooses among the tracks of the stream. Returns true if the set of chosen tracks has changed.
    fn choose(&mut self, tracks: &Arc<Tracks>) -> bool {
        let package = self.package.as_deref();
        let fit = |track: &Track| package.map_or(Fit::Well, |package| package.fit(track));
        self.chosen.update(self.key.selection, tracks, &fit)
    }

    /// Packages the next unit. Returns true if the set of chosen tracks has changed.
    pub fn push(&mut self, entry: &Entry) -> bool {
        let changed = !Arc::ptr_eq(self.chosen.all(), &entry.tracks) && self.choose(&entry.tracks);
        let Some(package) = &mut self.package else { return changed };
        if !self.chosen.contains(entry.unit.track) {
            let epoch = self.preludes.back().map_or(0, |prelude| prelude.epoch);
            self.units.push_back(Packaged::new(entry, Item::default(), epoch));
            return changed;
        }
        let epoch = self.chosen.epoch();
        let stale = self.preludes.back().is_none_or(|last| {
            last.epoch != epoch
                || entry.unit.key_frame
                || entry.dts_ms.saturating_sub(last.dts_ms) >= package.prelude_age_ms()
        });
        if stale {
            self.preludes.push_back(Prelude {
                from: self.base.saturating_add(self.units.len() as u64),
                epoch,
                dts_ms: entry.dts_ms,
                parts: package.prelude(&self.chosen, entry.dts_ms),
            });
        }
        let item = package.unit(entry, &self.chosen);
        self.units.push_back(Packaged::new(entry, item, epoch));
        changed
    }

    /// Makes the bytes that follow the last unit of the stream.
    pub fn finish(&mut self) {
        self.tail = self.package.as_mut().map(|package| package.finish()).unwrap_or_default();
    }

    /// Drops the bytes that are held back to be sent with a later unit.
    pub(super) fn forget_held(&mut self) {
        if let Some(package) = self.package.as_mut() {
            drop(package.finish());
        }
    }

    /// Bytes that follow the last unit, once the stream has ended.
    #[must_use]
    pub fn tail(&self) -> Option<&Parts> {
        Some(&self.tail).filter(|tail| !tail.is_empty())
    }

    /// Drops the units before `base`, like the ring.
    pub fn trim(&mut self, base: u64) {
        while self.base < base && self.units.pop_front().is_some() {
            self.base = self.base.saturating_add(1);
        }
        self.base = self.base.max(base);
        while self.preludes.get(1).is_some_and(|second| second.from <= self.base) {
            self.preludes.pop_front();
        }
    }

    /// Drops the units from `head` on.
    pub fn cut(&mut self, head: u64) {
        let kept = head.saturating_sub(self.base);
        self.units.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        while self.preludes.back().is_some_and(|prelude| prelude.from >= head) {
            self.preludes.pop_back();
        }
    }

    /// The packaged unit with this number, if it is retained.
    #[must_use]
    pub(super) fn unit(&self, sequence: u64) -> Option<&Packaged> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        self.units.get(index)
    }

    /// The bytes (parameter sets and metadata) that a subscriber is sent before this unit, if it starts at the unit or
    /// the unit begins a new epoch.
    #[must_use]
    pub fn prelude(&self, sequence: u64) -> Option<&Parts> {
        self.preludes.iter().rev().find(|prelude| prelude.from <= sequence).map(|prelude| &prelude.parts)
    }

    /// The key of the format.
    #[must_use]
    pub const fn key(&self) -> FormatKey {
        self.key
    }

    /// The tracks that the subscribers are sent.
    #[must_use]
    pub const fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// True if the subscribers are sent packages; otherwise they take units unpackaged.
    pub(super) const fn is_packaged(&self) -> bool {
        self.package.is_some()
    }

    /// The packet logs, if the format sends packets.
    pub(super) fn logs(&self) -> Option<&dyn PacketLogs> {
        self.package.as_ref()?.logs()
    }

    /// The bytes of the newest unit.
    #[cfg(test)]
    pub(crate) fn newest(&self) -> Parts {
        self.units.back().and_then(|unit| unit.item.bytes()).cloned().unwrap_or_default()
    }

    /// Number of subscribers that share the package.
    pub(super) const fn subscribers(&self) -> usize {
        self.subscribers
    }

    pub(super) fn add_subscriber(&mut self) {
        self.set_subscribers(self.subscribers.saturating_add(1));
    }

    /// Removes a subscriber. Returns true if it was the last one.
    pub(super) fn remove_subscriber(&mut self) -> bool {
        self.set_subscribers(self.subscribers.saturating_sub(1));
        self.subscribers == 0
    }

    fn set_subscribers(&mut self, subscribers: usize) {
        self.subscribers = subscribers;
        if let Some(sharing) = self.package.as_mut().and_then(|package| package.sharing()) {
            sharing.set_subscribers(subscribers);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ring::tests::{entry, vp8_tracks};
    use super::*;

    /// Packages each unit as its time in brackets, and each prelude as its epoch and time.
    #[derive(Debug)]
    pub(in crate::hub) struct Plain;

    impl Package for Plain {
        fn fit(&self, _track: &Track) -> Fit {
            Fit::Well
        }

        fn prelude(&mut self, chosen: &Chosen, dts_ms: i64) -> Parts {
            Parts::new(vec![Bytes::from(format!("<{}@{dts_ms}>", chosen.epoch()))])
        }

        fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
            Parts::new(vec![Bytes::from(format!("[{}", entry.dts_ms)), Bytes::from_static(b"]")]).into()
        }
    }

    pub(in crate::hub) const PLAIN: FormatKey = FormatKey::new("plain", 0);

    pub(in crate::hub) fn plain(base: u64) -> Packager {
        Packager::new(PLAIN, Some(Box::new(Plain)), &vp8_tracks(1), base)
    }

    #[test]
    fn a_stamp_is_each_subscribers_own_and_never_negative() {
        let stamp = Stamp { slice: 0, at: 1, ms: 1500, write: |ms| u32::try_from(ms).unwrap().to_be_bytes() };
        let parts = Parts::stamped([Bytes::from_static(b"h....e"), Bytes::from_static(b"body")], [stamp]);
        let named = |zero_ms| {
            let mut scratch = [0; 32];
            let mut gather = Gather::with_scratch(100, &mut scratch);
            assert!(parts.gather(zero_ms, &mut gather));
            gather.slices().iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(named(0), b"h\0\0\x05\xdcebody");
        assert_eq!(named(1000), b"h\0\0\x01\xf4ebody");
        assert_eq!(named(9000), b"h\0\0\0\0ebody");
        for from in 0..=parts.len() {
            assert_eq!(parts.rest(1000, from).collect::<Vec<_>>().concat(), named(1000)[from..], "{from}");
        }
    }

    #[test]
    fn numbers_follow_the_ring_and_a_late_start_gets_a_late_prelude() {
        let mut packager = plain(10);
        for n in 0..60 {
            packager.push(&entry(n * 33, n % 30 == 0, 1));
        }
        let text = |parts: &Parts| parts.slices().concat();
        assert_eq!(text(packager.unit(41).unwrap().item.bytes().unwrap()), b"[1023]");
        assert_eq!(text(packager.prelude(39).unwrap()), b"<1@0>");
        assert_eq!(text(packager.prelude(45).unwrap()), b"<1@990>");
        packager.trim(41);
        assert!(packager.unit(40).is_none() && packager.unit(41).is_some());
        assert_eq!(packager.preludes.len(), 1);
        assert!(packager.unit(70).is_none());
    }

    #[test]
    fn what_is_not_selected_is_not_packaged() {
        let second = TrackId::nth(media::TrackKind::Video, 1).unwrap();
        let selection = Selection::only(media::TrackKind::Video, second);
        let key = FormatKey { selection, ..PLAIN };
        let mut packager = Packager::new(key, Some(Box::new(Plain)), &vp8_tracks(2), 0);
        let push = |packager: &mut Packager, n: i64, track| {
            let mut entry = Entry { tracks: vp8_tracks(2), ..entry(n, true, 1) };
            entry.unit.track = track;
            packager.push(&entry)
        };
        push(&mut packager, 0, TrackId::VIDEO);
        push(&mut packager, 10, second);
        assert!(packager.unit(0).unwrap().item.is_empty() && !packager.unit(1).unwrap().item.is_empty());
        assert_eq!((packager.preludes.len(), packager.preludes[0].from), (1, 1));
        // The only chosen track ends: no track is chosen any more, and `push` reports the change.
        let gone = Entry { tracks: vp8_tracks(1), ..entry(20, true, 1) };
        assert!(packager.push(&gone));
        assert_eq!(packager.chosen().lead(), None);
    }

    #[test]
    fn a_unit_that_is_cut_takes_its_prelude_along_and_no_other() {
        let mut packager = plain(0);
        let other = Entry { tracks: vp8_tracks(2), ..entry(33, false, 1) };
        packager.push(&entry(0, true, 1));
        packager.push(&other);
        let prelude = |packager: &Packager, at| packager.prelude(at).map(|parts| parts.slices().concat());
        packager.cut(1);
        assert!(packager.unit(0).is_some() && packager.unit(1).is_none());
        assert_eq!(prelude(&packager, 1).as_deref(), Some(&b"<1@0>"[..]));
        // The next unit gets the number of the unit that `cut` has removed, and is packaged as if that unit had never
        // existed.
        packager.push(&entry(66, true, 1));
        assert_eq!(prelude(&packager, 1).as_deref(), Some(&b"<1@66>"[..]));
        packager.cut(0);
        assert_eq!((prelude(&packager, 1), packager.unit(0).is_none()), (None, true));
    }
}
