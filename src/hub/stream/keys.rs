//! Key frames that subscribers of a stream wait for.

use std::time::{Duration, Instant};

use media::{TrackId, TrackSet};

use super::super::{Chosen, Packager};
use super::{KEY_FRAME_INTERVAL, Stream, Subscriber, Switch};

/// Time after which a request for a key frame counts as lost; doubled with each repetition.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Maximum time between two repetitions.
const LOST_AFTER_MAX: Duration = Duration::from_secs(8);

/// A key frame that the publisher was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyDue {
    track: TrackId,
    /// Time of the next repetition.
    at: Instant,
    /// Pause before that repetition.
    pause: Duration,
}

impl Stream {
    /// Notes that the publisher was asked for a key frame, so that the request is repeated if it gets lost.
    pub fn await_key_frame(&mut self, now: Instant, track: TrackId) {
        let due = &mut self.demand.keys_due;
        if !due.iter().any(|key| key.track == track) {
            due.push(KeyDue { track, at: now + LOST_AFTER, pause: LOST_AFTER });
        }
    }

    /// Handles the arrival of a unit from the publisher. Returns true if its track's key frame should be requested again,
    /// because the publisher goes on without one.
    pub fn is_key_overdue(&mut self, now: Instant, track: TrackId, is_key_frame: bool) -> bool {
        if self.demand.keys_due.is_empty() {
            return false;
        }
        let is_watched = !(self.subscribers.is_empty() && self.mirrors.is_empty());
        self.demand.keys_due.retain(|key| is_watched && !(is_key_frame && key.track == track));
        let overdue = self.demand.keys_due.iter_mut().find(|key| key.track == track && key.at <= now);
        let Some(key) = overdue else { return false };
        key.pause = key.pause.saturating_mul(2).min(LOST_AFTER_MAX);
        key.at = now + key.pause;
        true
    }

    /// Returns true if a key frame of a track may be requested now, and counts it as requested. Returns false for
    /// [`KEY_FRAME_INTERVAL`] after that.
    pub fn may_ask_key_frame(&mut self, now: Instant, track: TrackId) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) < KEY_FRAME_INTERVAL;
        self.demand.key_asked.retain(|(_, at)| recent(*at));
        if self.demand.key_asked.iter().any(|(asked, _)| *asked == track) {
            return false;
        }
        self.demand.key_asked.push((track, now));
        true
    }

    /// Returns the video tracks whose key frames a subscriber waits for.
    #[must_use]
    pub fn keys_needed(&self, subscriber: &Subscriber) -> TrackSet {
        let chosen = |format| self.formats.get(format).map(Packager::chosen);
        match subscriber.switch {
            Some(Switch { to, at: None, .. }) => {
                let lead = chosen(to).and_then(Chosen::lead);
                lead.into_iter().collect()
            }
            _ => chosen(subscriber.format)
                .map_or(TrackSet::EMPTY, |chosen| subscriber.cursor.keys_awaited(&self.ring, chosen)),
        }
    }

    /// Returns the video tracks whose key frames subscribers wait for because they jumped ahead since the last call.
    pub fn take_keys_lost(&mut self) -> TrackSet {
        std::mem::take(&mut self.demand.keys_lost)
    }
}
