//! Sequence numbers and times of fragments, and the event messages before them.

use std::collections::VecDeque;

use bytes::Bytes;
use fmp4::EventMessage;

use crate::segmenter::EVENTS_MAX;

/// Sequence numbers and times of fragments, and the events before them.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// Milliseconds added to all decode times so that none is negative; the same for all renditions of a
    /// stream.
    pub(super) shift_ms: i64,
    pub(super) sequence: u32,
    /// True if timed metadata is accepted. Manifests announce it.
    pub(super) has_metadata: bool,
    /// True if any event so far was splice information.
    pub(super) has_cues: bool,
    /// Events to write before the next fragment.
    pub(super) events: VecDeque<Waiting>,
}

/// An event waiting for the next fragment.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) scheme: &'static str,
    pub(super) at_ms: i64,
    pub(super) duration_ms: Option<u32>,
    pub(super) data: Bytes,
}

impl Fragments {
    /// Takes the waiting events, each written as a box.
    pub(super) fn take_events(&mut self) -> Vec<Bytes> {
        let waiting = std::mem::take(&mut self.events).into_iter();
        let boxes = waiting.map(|Waiting { scheme, at_ms, duration_ms, data }| {
            let time_ms = u64::try_from(at_ms.saturating_add(self.shift_ms)).unwrap_or(0);
            let id = id_of(time_ms, duration_ms, &data);
            EventMessage { scheme, id, time_ms, duration_ms, data: &data }.write()
        });
        boxes.collect()
    }

    /// Keeps an event until the next fragment is written. If too many are waiting, the oldest is dropped.
    pub(super) fn add_event(&mut self, event: Waiting) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// The id of an event, derived from its content and time, so that it is the same in all renditions.
/// Players use only one of several messages with the same scheme and id (ISO/IEC 23009-1
/// §5.10.3.3). The id is a hash (FNV-1a of 32 bits) and not a CRC-32, because splice information
/// ends with its own CRC-32, and the CRC-32 of the whole would always be the same.
fn id_of(time_ms: u64, duration_ms: Option<u32>, data: &[u8]) -> u32 {
    let duration = duration_ms.unwrap_or(u32::MAX).to_be_bytes();
    let bytes = time_ms.to_be_bytes().into_iter().chain(duration).chain(data.iter().copied());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use media::scte35::{Kind, insert};

    use super::*;

    /// The ids that one rendition writes for these events.
    fn ids(events: &[(i64, Option<u32>, Bytes)]) -> Vec<u32> {
        let mut fragments = Fragments::default();
        for (at_ms, duration_ms, data) in events.iter().cloned() {
            fragments.add_event(Waiting { scheme: "urn:x", at_ms, duration_ms, data });
        }
        let boxes = fragments.take_events();
        // The id follows the header, version, timescale, time and duration.
        boxes.iter().map(|one| u32::from_be_bytes(one[28..32].try_into().unwrap())).collect()
    }

    #[test]
    fn equal_events_have_equal_ids_in_all_renditions_and_others_have_others() {
        let [one, other] = [1, 2].map(|id| insert(id, Kind::Out, None));
        let events = [
            (1000, None, one.clone()),
            (1000, None, other.clone()),
            (2000, None, one.clone()),
            (1000, Some(500), one),
        ];
        let mut all = ids(&events);
        // A rendition that is created later does not get the first event.
        assert_eq!(ids(&events[1..]), all[1..]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), events.len());
    }
}
