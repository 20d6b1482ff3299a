//! Packaging once per stream and format: the bytes that all subscribers of a format share.

use std::collections::VecDeque;

use bytes::Bytes;
use media::Tracks;
use smallvec::SmallVec;

use super::Entry;

/// A prelude is made anew at least this often, so that the timestamps inside stay near those of the units.
const PRELUDE_AGE_MS: i64 = 1000;

/// Names a format, so that its subscribers find the package they can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatKey {
    /// The protocol's name for it.
    pub name: &'static str,
    /// What else distinguishes the bytes (RTMP: the message stream id).
    pub variant: u32,
}

/// Slices that are sent in order. A message in one chunk is a head and a payload: two need no allocation.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    slices: SmallVec<[Bytes; 2]>,
    len: usize,
}

impl Parts {
    /// Of slices.
    #[must_use]
    pub fn new(slices: impl IntoIterator<Item = Bytes>) -> Self {
        let slices: SmallVec<[Bytes; 2]> = slices.into_iter().collect();
        let len = slices.iter().map(Bytes::len).sum();
        Self { slices, len }
    }

    /// The slices.
    #[must_use]
    pub fn slices(&self) -> &[Bytes] {
        &self.slices
    }

    /// Their bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A format: how units become bytes. What it makes must suit every subscriber of its key.
pub trait Package: std::fmt::Debug + Send {
    /// What a subscriber needs before a unit of these tracks when it has not had it for this epoch: parameter sets
    /// and metadata, stamped like the unit at `dts_ms`.
    fn prelude(&mut self, tracks: &Tracks, dts_ms: i64) -> Parts;
    /// The unit itself. Empty when the format cannot carry it.
    fn unit(&mut self, entry: &Entry) -> Parts;
}

#[derive(Debug)]
struct Prelude {
    from: u64,
    epoch: u32,
    dts_ms: i64,
    parts: Parts,
}

/// The packaged counterpart of a ring: the same sequence numbers, one [`Parts`] each.
#[derive(Debug)]
pub struct Packager {
    key: FormatKey,
    package: Box<dyn Package>,
    units: VecDeque<Parts>,
    base: u64,
    preludes: VecDeque<Prelude>,
    subscribers: usize,
}

impl Packager {
    /// Starts with the unit numbered `base`.
    #[must_use]
    pub fn new(key: FormatKey, package: Box<dyn Package>, base: u64) -> Self {
        Self { key, package, units: VecDeque::new(), base, preludes: VecDeque::new(), subscribers: 0 }
    }

    /// Packages the next unit.
    pub fn push(&mut self, entry: &Entry) {
        let sequence = self.base.saturating_add(self.units.len() as u64);
        let stale = self.preludes.back().is_none_or(|last| {
            last.epoch != entry.unit.config_epoch
                || entry.unit.key_frame
                || entry.dts_ms.saturating_sub(last.dts_ms) >= PRELUDE_AGE_MS
        });
        if stale {
            self.preludes.push_back(Prelude {
                from: sequence,
                epoch: entry.unit.config_epoch,
                dts_ms: entry.dts_ms,
                parts: self.package.prelude(&entry.tracks, entry.dts_ms),
            });
        }
        self.units.push_back(self.package.unit(entry));
    }

    /// Forgets what lies before `base`, as the ring has.
    pub fn trim(&mut self, base: u64) {
        while self.base < base && self.units.pop_front().is_some() {
            self.base = self.base.saturating_add(1);
        }
        self.base = self.base.max(base);
        while self.preludes.get(1).is_some_and(|second| second.from <= self.base) {
            self.preludes.pop_front();
        }
    }

    /// The packaged unit, while it is retained.
    #[must_use]
    pub fn unit(&self, sequence: u64) -> Option<&Parts> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        self.units.get(index)
    }

    /// What a subscriber that starts at (or changes epoch with) this unit needs first.
    #[must_use]
    pub fn prelude(&self, sequence: u64) -> Option<&Parts> {
        self.preludes.iter().rev().find(|prelude| prelude.from <= sequence).map(|prelude| &prelude.parts)
    }

    /// Which format this is.
    #[must_use]
    pub const fn key(&self) -> FormatKey {
        self.key
    }

    pub(super) const fn add_subscriber(&mut self) {
        self.subscribers += 1;
    }

    /// True when the last one left.
    pub(super) const fn remove_subscriber(&mut self) -> bool {
        self.subscribers = self.subscribers.saturating_sub(1);
        self.subscribers == 0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ring::tests::entry;
    use super::*;

    /// Packages a unit as its length, a prelude as its time.
    #[derive(Debug)]
    pub(in crate::hub) struct Plain;

    impl Package for Plain {
        fn prelude(&mut self, tracks: &Tracks, dts_ms: i64) -> Parts {
            Parts::new(vec![Bytes::from(format!("<{}@{dts_ms}>", tracks.epoch))])
        }

        fn unit(&mut self, entry: &Entry) -> Parts {
            Parts::new(vec![Bytes::from(format!("[{}", entry.dts_ms)), Bytes::from_static(b"]")])
        }
    }

    pub(in crate::hub) const PLAIN: FormatKey = FormatKey { name: "plain", variant: 0 };

    #[test]
    fn numbers_follow_the_ring_and_a_late_start_gets_a_late_prelude() {
        let mut packager = Packager::new(PLAIN, Box::new(Plain), 10);
        for n in 0..60 {
            packager.push(&entry(n * 33, n % 30 == 0, 1));
        }
        let text = |parts: &Parts| parts.slices().concat();
        assert_eq!(text(packager.unit(41).unwrap()), b"[1023]");
        assert_eq!(text(packager.prelude(39).unwrap()), b"<1@0>");
        assert_eq!(text(packager.prelude(45).unwrap()), b"<1@990>");
        packager.trim(41);
        assert!(packager.unit(40).is_none() && packager.unit(41).is_some());
        assert_eq!(packager.preludes.len(), 1);
        assert!(packager.unit(70).is_none());
    }
}
