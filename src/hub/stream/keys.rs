//! Key frames that subscribers of a stream wait for.

use std::time::Instant;

use media::{TrackId, TrackSet};

use super::super::{Chosen, Packager};
use super::{KEY_FRAME_INTERVAL, Stream, Subscriber, Switch};

impl Stream {
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
