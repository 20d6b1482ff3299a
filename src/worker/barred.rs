//! Viewers that watch by separate requests (e.g. HLS) and whose playback an operator has ended. Their requests are
//! refused for some time, so that their players give up, as players over a single connection do when it is closed. The
//! size of the table is limited. When it is full, the oldest entry is removed.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::leases::cut;
use crate::types::StreamKey;

/// Time for which requests of a viewer are refused after an operator has ended its playback.
const BARRED: Duration = Duration::from_secs(60);
/// Maximum number of entries.
const BARRED_MAX: usize = 4096;

/// Key of the stream (or of its main track, if the stream is one of several renditions), protocol, and name of the
/// viewer.
type Viewer = (StreamKey, &'static str, String);

/// Viewers whose requests are refused.
#[derive(Debug, Default)]
pub(super) struct Barred {
    until: BTreeMap<Viewer, Instant>,
    /// Entries in the order in which they expire.
    order: VecDeque<(Instant, Viewer)>,
}

impl Barred {
    /// Refuses the requests of a viewer for the next [`BARRED`].
    pub(super) fn add(&mut self, now: Instant, key: StreamKey, protocol: &'static str, viewer: &str) {
        self.end_old(now);
        if self.order.len() >= BARRED_MAX {
            self.end_first();
        }
        let (until, viewer) = (now + BARRED, (key, protocol, cut(viewer).to_owned()));
        self.until.insert(viewer.clone(), until);
        self.order.push_back((until, viewer));
    }

    /// True if requests of this viewer are refused.
    pub(super) fn has(
        &mut self,
        now: Instant,
        key: &StreamKey,
        protocol: &'static str,
        viewer: &str,
    ) -> bool {
        self.end_old(now);
        !self.until.is_empty() && self.until.contains_key(&(key.clone(), protocol, cut(viewer).to_owned()))
    }

    fn end_old(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.end_first();
        }
    }

    /// Removes the oldest entry of `order`. Its viewer stays refused if a later entry refuses the same viewer again.
    fn end_first(&mut self) {
        let Some((until, viewer)) = self.order.pop_front() else { return };
        if self.until.get(&viewer) == Some(&until) {
            self.until.remove(&viewer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_viewer_is_refused_for_a_minute_on_its_stream_alone() {
        let now = Instant::now();
        let key = StreamKey::new("live", "cam");
        let mut barred = Barred::default();
        let long = "x".repeat(300);
        barred.add(now, key.clone(), "hls", "a");
        barred.add(now, key.clone(), "hls", &long);
        assert!(barred.has(now, &key, "hls", "a") && barred.has(now, &key, "hls", &long));
        assert!(!barred.has(now, &key, "dash", "a") && !barred.has(now, &key, "hls", "b"));
        assert!(!barred.has(now, &StreamKey::new("live", "other"), "hls", "a"));
        // An operator ends the viewer's playback again, so the minute starts again.
        barred.add(now + 30 * SECOND, key.clone(), "hls", "a");
        assert!(barred.has(now + BARRED, &key, "hls", "a") && !barred.has(now + BARRED, &key, "hls", &long));
        assert!(!barred.has(now + 30 * SECOND + BARRED, &key, "hls", "a"));
        assert!(barred.order.is_empty() && barred.until.is_empty());
    }

    #[test]
    fn a_full_table_has_room_for_the_newest() {
        let now = Instant::now();
        let key = StreamKey::new("live", "cam");
        let mut barred = Barred::default();
        for n in 0..=BARRED_MAX {
            barred.add(now, key.clone(), "hls", &n.to_string());
        }
        assert!(!barred.has(now, &key, "hls", "0") && barred.has(now, &key, "hls", "1"));
        assert!(barred.has(now, &key, "hls", &BARRED_MAX.to_string()));
        assert_eq!((barred.order.len(), barred.until.len()), (BARRED_MAX, BARRED_MAX));
    }
}
