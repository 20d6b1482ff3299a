//! The streams of a room, and the choice of the one that is shown.
//!
//! A stream is shown until it leaves, or has been quiet for [`QUIET`] while another one speaks; never for less than
//! [`SHOWN_MIN`], so that a cough or an interjection changes nothing. A stream of unknown loudness never counts as
//! speaking: it is shown only if nobody speaks when a stream must be chosen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::settings::Shows;
use crate::types::StreamKey;

/// Time for which the shown stream must be quiet before another one is shown.
const QUIET: Duration = Duration::from_secs(1);
/// Minimum time for which a stream is shown.
const SHOWN_MIN: Duration = Duration::from_secs(2);
/// Maximum number of streams that are known.
const STREAMS_MAX: usize = 1000;
/// The level of silence, in -dBov.
const SILENCE: u8 = 127;

/// The streams of a room.
#[derive(Debug)]
pub(super) struct Cast {
    shows: Shows,
    /// The streams in the order in which they joined.
    streams: Vec<StreamKey>,
    /// Streams that speak, with their levels in -dBov.
    speaking: BTreeMap<StreamKey, u8>,
    shown: Option<Shown>,
}

/// The stream to be shown.
#[derive(Debug)]
struct Shown {
    key: StreamKey,
    /// Time at which the shown stream was chosen.
    since: Instant,
    /// Time at which the shown stream last spoke; initially the time at which it was chosen.
    heard: Instant,
}

impl Cast {
    pub(super) const fn new(shows: Shows) -> Self {
        Self { shows, streams: Vec::new(), speaking: BTreeMap::new(), shown: None }
    }

    /// Adds a stream.
    pub(super) fn came(&mut self, key: &StreamKey) {
        if self.streams.len() < STREAMS_MAX && !self.streams.contains(key) {
            self.streams.push(key.clone());
        }
    }

    /// Removes a stream.
    pub(super) fn left(&mut self, key: &StreamKey) {
        self.streams.retain(|stream| stream != key);
        self.speaking.remove(key);
        self.shown.take_if(|shown| shown.key == *key);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Notes that a stream speaks, or has stopped.
    pub(super) fn heard(&mut self, now: Instant, key: &StreamKey, level: u8) {
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.key == *key) {
            shown.heard = now;
        }
        if level >= SILENCE {
            self.speaking.remove(key);
        } else if self.streams.contains(key) {
            self.speaking.insert(key.clone(), level);
        }
    }

    /// Returns the stream to show from now on.
    pub(super) fn choose(&mut self, now: Instant) -> Option<&StreamKey> {
        let next = match &self.shown {
            None => self.loudest().or_else(|| self.streams.first()).cloned(),
            Some(_) => self.loudest().filter(|_| self.due().is_some_and(|due| due <= now)).cloned(),
        };
        if let Some(key) = next {
            self.shown = Some(Shown { key, since: now, heard: now });
        }
        self.shown.as_ref().map(|shown| &shown.key)
    }

    /// Returns the time at which another stream should be shown.
    pub(super) fn due(&self) -> Option<Instant> {
        let shown = self.shown.as_ref().filter(|shown| !self.speaking.contains_key(&shown.key))?;
        self.loudest()?;
        Some((shown.heard + QUIET).max(shown.since + SHOWN_MIN))
    }

    fn loudest(&self) -> Option<&StreamKey> {
        let speaking = self.speaking.iter().filter(|_| self.shows == Shows::Speaker);
        speaking.min_by_key(|(_, level)| **level).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;
    use crate::protocol::schema;

    fn key(id: &str) -> StreamKey {
        StreamKey::new("live", id)
    }

    struct Stage {
        cast: Cast,
        now: Instant,
    }

    impl Stage {
        fn of(shows: Shows, ids: &[&str]) -> Self {
            let mut cast = Cast::new(shows);
            ids.iter().for_each(|id| cast.came(&key(id)));
            Self { cast, now: Instant::now() }
        }

        fn shows(&mut self) -> Option<String> {
            self.cast.choose(self.now).map(|key| key.id.to_string())
        }

        fn after(&mut self, ms: u64) -> Option<String> {
            self.now += Duration::from_millis(ms);
            self.shows()
        }

        fn heard(&mut self, id: &str, level: u8) {
            self.cast.heard(self.now, &key(id), level);
        }
    }

    #[test]
    fn who_speaks_is_shown_once_the_shown_one_is_quiet() {
        let mut stage = Stage::of(Shows::Speaker, &["ann", "ben", "cat"]);
        assert_eq!(stage.shows().as_deref(), Some("ann"));
        stage.heard("ann", 30);
        assert_eq!(stage.after(9_000).as_deref(), Some("ann"));
        stage.heard("ben", 40);
        stage.heard("cat", 20);
        assert_eq!(stage.after(9_000).as_deref(), Some("ann"), "speaks, although not the loudest");
        assert_eq!(stage.cast.due(), None);
        stage.heard("ann", SILENCE);
        assert_eq!(stage.after(999).as_deref(), Some("ann"));
        assert_eq!(stage.cast.due(), Some(stage.now + Duration::from_millis(1)));
        assert_eq!(stage.after(1).as_deref(), Some("cat"));
        // Even a brief speaker is shown for two seconds.
        stage.heard("cat", SILENCE);
        assert_eq!(stage.after(1_999).as_deref(), Some("cat"));
        assert_eq!(stage.after(1).as_deref(), Some("ben"));
        stage.heard("ben", SILENCE);
        assert_eq!((stage.after(60_000).as_deref(), stage.cast.due()), (Some("ben"), None), "nobody speaks");
    }

    #[test]
    fn who_leaves_is_followed_by_who_speaks_or_by_the_first() {
        let mut stage = Stage::of(Shows::Speaker, &["ann", "ben", "cat"]);
        stage.heard("cat", 40);
        assert_eq!(stage.shows().as_deref(), Some("cat"));
        stage.cast.left(&key("cat"));
        assert_eq!(stage.shows().as_deref(), Some("ann"));
        stage.heard("cat", 20);
        assert_eq!(stage.after(9_000).as_deref(), Some("ann"), "not in the room any more");
        ["ann", "ben"].iter().for_each(|id| stage.cast.left(&key(id)));
        assert_eq!(stage.shows(), None);
        assert!(stage.cast.is_empty());
        stage.cast.came(&key("dan"));
        assert_eq!(stage.shows().as_deref(), Some("dan"));
    }

    #[test]
    fn an_application_may_have_the_first_one_shown() {
        let app = AppSettings::of(schema(), "live", &[("rooms.view", "first")]).unwrap();
        let mut stage = Stage::of(Shows::of(Some(&app)), &["ann", "ben"]);
        stage.heard("ben", 20);
        assert_eq!(stage.after(9_000).as_deref(), Some("ann"));
        assert_eq!(stage.after(9_000).as_deref(), Some("ann"));
        stage.cast.left(&key("ann"));
        assert_eq!(stage.shows().as_deref(), Some("ben"));
    }

    #[test]
    fn no_more_streams_are_known_than_a_room_may_have() {
        let mut cast = Cast::new(Shows::Speaker);
        (0..2 * STREAMS_MAX).for_each(|n| cast.came(&key(&n.to_string())));
        (0..2 * STREAMS_MAX).for_each(|n| cast.heard(Instant::now(), &key(&n.to_string()), 20));
        assert_eq!((cast.streams.len(), cast.speaking.len()), (STREAMS_MAX, STREAMS_MAX));
    }
}
