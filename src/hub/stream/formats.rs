//! The formats in which a stream is sent on one worker, and their limits.

use std::net::IpAddr;

use super::super::{FormatKey, Package, Packager};
use super::Stream;

/// Index of a format within its stream. Slots of unused formats are kept and reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatIndex(usize);

/// Maximum number of formats of viewers of a stream on one worker.
const VIEWER_FORMATS_MAX: usize = 64;
/// Number of these formats reserved for plain ones ([`FormatLimit::Plain`]): one for each message stream id that an
/// RTMP viewer can choose, and a few more. Viewers that request many sets of codecs or tracks cannot use them up.
const PLAIN_FORMATS: usize = 16;
/// Maximum number of formats, other than plain ones, that viewers of one network have added to a stream.
const NETWORK_FORMATS_MAX: usize = 8;

/// The limit on formats that applies to a subscriber. It is needed only for a format that no other subscriber has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatLimit {
    /// No limit: the subscriber is another node, or the server itself (pushes, recordings, producers), of which there
    /// are few.
    None,
    /// A viewer that takes the tracks and codecs that every viewer of its protocol can take.
    Plain,
    /// A viewer of this network, with a choice of codecs or tracks.
    Network(IpAddr),
}

/// The formats in use.
#[derive(Debug, Default)]
pub(super) struct Formats {
    slots: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    packager: Packager,
    /// The limit of the subscriber for which the format was added.
    limit: FormatLimit,
}

impl Formats {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Packager> {
        self.slots.iter().flatten().map(|slot| &slot.packager)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Packager> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.packager)
    }

    pub(super) fn get(&self, format: FormatIndex) -> Option<&Packager> {
        Some(&self.slots.get(format.0)?.as_ref()?.packager)
    }

    /// True if a subscriber with this limit may add a format.
    fn has_room(&self, limit: FormatLimit) -> bool {
        let count = |counts: &dyn Fn(FormatLimit) -> bool| {
            self.slots.iter().flatten().filter(|slot| counts(slot.limit)).count()
        };
        match limit {
            FormatLimit::None => true,
            FormatLimit::Plain => count(&|other| other != FormatLimit::None) < VIEWER_FORMATS_MAX,
            FormatLimit::Network(_) => {
                let all = count(&|other| matches!(other, FormatLimit::Network(_)));
                all < VIEWER_FORMATS_MAX - PLAIN_FORMATS
                    && count(&|other| other == limit) < NETWORK_FORMATS_MAX
            }
        }
    }

    fn find(&self, key: FormatKey) -> Option<FormatIndex> {
        let has_key = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.packager.key() == key);
        self.slots.iter().position(has_key).map(FormatIndex)
    }

    fn add(&mut self, packager: Packager, limit: FormatLimit) -> FormatIndex {
        let slot = Some(Slot { packager, limit });
        match self.slots.iter_mut().enumerate().find(|(_, free)| free.is_none()) {
            Some((index, free)) => {
                *free = slot;
                FormatIndex(index)
            }
            None => {
                self.slots.push(slot);
                FormatIndex(self.slots.len() - 1)
            }
        }
    }

    /// Number of slots, in use or free.
    #[cfg(test)]
    pub(super) const fn slots(&self) -> usize {
        self.slots.len()
    }
}

impl Stream {
    /// Returns the format with this key, with one more subscriber. Returns `None` if no subscriber has it and `limit`
    /// allows no further one.
    pub(super) fn format(
        &mut self,
        key: FormatKey,
        limit: FormatLimit,
        package: impl FnOnce() -> Option<Box<dyn Package>>,
    ) -> Option<FormatIndex> {
        let index = match self.formats.find(key) {
            Some(index) => index,
            None if !self.formats.has_room(limit) => return None,
            None => {
                let mut packager = Packager::new(key, package(), &self.tracks, self.ring.base());
                let retained = self.ring.base()..self.ring.head();
                for entry in retained.filter_map(|sequence| self.ring.get(sequence)) {
                    packager.push(entry);
                }
                self.formats.add(packager, limit)
            }
        };
        self.formats.slots.get_mut(index.0)?.as_mut()?.packager.add_subscriber();
        Some(index)
    }

    /// Removes a subscriber from a format, and the format if this was its last subscriber.
    pub(super) fn leave_format(&mut self, format: FormatIndex) {
        if let Some(slot) = self.formats.slots.get_mut(format.0)
            && slot.as_mut().is_some_and(|slot| slot.packager.remove_subscriber())
        {
            *slot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packager::tests::Plain;
    use super::super::tests::{stream, subscription};
    use super::super::{Ingest, Subscriber};
    use super::*;
    use crate::stats::ForwardingTable;

    /// A stream with viewers, each in a format of its own.
    struct Scene {
        stream: Stream,
        subscribers: u32,
    }

    impl Scene {
        fn new() -> Self {
            Self { stream: stream(), subscribers: 0 }
        }

        /// Subscribes to a format with this variant.
        fn join(&mut self, variant: u64, limit: FormatLimit) -> Option<Subscriber> {
            self.subscribers += 1;
            let (id, key) = (subscription(self.subscribers), FormatKey::new("rtmp", variant));
            let forwarding = ForwardingTable::default().index(Ingest::PULL, "rtmp");
            self.stream.subscribe(id, (key, limit), forwarding, || Some(Box::new(Plain)))
        }

        /// Counts the subscribers, of one for each variant, that are accepted.
        fn accepted(&mut self, variants: std::ops::Range<u64>, limit: impl Fn(u64) -> FormatLimit) -> usize {
            variants.filter(|variant| self.join(*variant, limit(*variant)).is_some()).count()
        }
    }

    fn network(number: u64) -> FormatLimit {
        FormatLimit::Network(std::net::Ipv6Addr::from_bits(u128::from(number) << 64).into())
    }

    #[test]
    fn m_26_inventive_viewers_leave_room_for_plain_ones() {
        let mut scene = Scene::new();
        // Each is from a network of its own.
        assert_eq!(scene.accepted(100..300, network), VIEWER_FORMATS_MAX - PLAIN_FORMATS);
        assert_eq!(scene.accepted(1000..1200, |_| FormatLimit::Plain), PLAIN_FORMATS);
        // No new format is accepted now, but further subscribers may still share an existing package.
        assert!(scene.join(100, network(100)).is_some() && scene.join(1000, FormatLimit::Plain).is_some());
    }

    #[test]
    fn m_26_a_network_has_its_share_of_the_formats_and_leaves_the_rest_to_others() {
        let mut scene = Scene::new();
        assert_eq!(scene.accepted(100..300, |_| network(1)), NETWORK_FORMATS_MAX);
        assert_eq!(scene.accepted(400..403, |_| network(2)), 3);
        // Formats of others may be shared by the network that has no further one.
        let shared = scene.join(400, network(1)).unwrap();
        scene.stream.unsubscribe(subscription(scene.subscribers), &shared);
        // The place is free as soon as the format has no subscriber.
        let (first, id) = (scene.stream.formats.find(FormatKey::new("rtmp", 100)).unwrap(), subscription(1));
        scene.stream.unsubscribe(id, &Subscriber { format: first, ..shared });
        assert_eq!(scene.accepted(500..510, |_| network(1)), 1);
    }

    #[test]
    fn m_26_no_viewers_take_the_place_of_a_push_and_no_push_that_of_a_viewer() {
        let mut scene = Scene::new();
        assert_eq!(scene.accepted(100..300, |_| FormatLimit::None), 200);
        assert_eq!(scene.accepted(300..500, network), VIEWER_FORMATS_MAX - PLAIN_FORMATS);
        assert_eq!(scene.accepted(1000..1200, |_| FormatLimit::Plain), PLAIN_FORMATS);
        assert_eq!(scene.accepted(2000..2100, |_| FormatLimit::None), 100);
    }
}
