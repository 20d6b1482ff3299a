//! Fragments' numbers and times, and the event messages before them.

use std::collections::VecDeque;

use bytes::Bytes;
use fmp4::EventMessage;

use crate::segmenter::EVENTS_MAX;

/// The numbers and times of fragments, and the events before them.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// Milliseconds that decode times are put ahead, so that none is negative; the same for all renditions of a stream.
    pub(super) shift_ms: i64,
    pub(super) sequence: u32,
    /// True if there may be timed metadata: manifests announce it.
    pub(super) has_metadata: bool,
    /// True if there was splice information among the events.
    pub(super) has_cues: bool,
    /// Events before the next fragment.
    pub(super) events: VecDeque<Waiting>,
    /// Number of events so far.
    pub(super) event_count: u32,
}

/// An event that waits for the next fragment.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) scheme: &'static str,
    pub(super) at_ms: i64,
    pub(super) duration_ms: Option<u32>,
    pub(super) data: Bytes,
}

impl Fragments {
    /// Takes the boxes of the events that wait.
    pub(super) fn take_events(&mut self) -> Vec<Bytes> {
        let waiting = std::mem::take(&mut self.events).into_iter();
        let boxes = waiting.map(|Waiting { scheme, at_ms, duration_ms, data }| {
            self.event_count = self.event_count.wrapping_add(1);
            let time_ms = u64::try_from(at_ms.saturating_add(self.shift_ms)).unwrap_or(0);
            EventMessage { scheme, id: self.event_count, time_ms, duration_ms, data: &data }.write()
        });
        boxes.collect()
    }

    /// Keeps an event for the next fragment; of too many the oldest goes.
    pub(super) fn add_event(&mut self, event: Waiting) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
