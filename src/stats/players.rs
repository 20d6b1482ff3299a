//! Events that players report about themselves, counted by event and technology.

/// Names of the events that are counted. Every event with another name counts as `other`.
pub const PLAYER_EVENTS: [&str; 5] =
    ["playStartedFirstTime", "playStarted", "playPaused", "playEnded", "other"];

/// Names of the technologies that are counted. Every other technology counts as `other`.
pub const TECHNOLOGIES: [&str; 7] = ["webrtc", "ll-hls", "hls", "dash", "vod", "flv", "other"];

/// Maximum number of milliseconds that one event may add. Players report every few
/// seconds, so more is not plausible.
const WATCHED_MS_MAX: i64 = 3_600_000;

/// Counts of players' reports since the start. No data of a single player is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlayerCounts {
    events: [[u64; TECHNOLOGIES.len()]; PLAYER_EVENTS.len()],
    watched_ms: [u64; TECHNOLOGIES.len()],
}

/// Returns the position of a name in a list. The last position is for all other names.
fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| known.eq_ignore_ascii_case(name)).unwrap_or(names.len() - 1)
}

impl PlayerCounts {
    /// Counts an event.
    pub fn event(&mut self, event: &str, technology: &str) {
        let row = self.events.get_mut(place(&PLAYER_EVENTS, event));
        if let Some(count) = row.and_then(|row| row.get_mut(place(&TECHNOLOGIES, technology))) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds watched time.
    pub fn watched(&mut self, ms: i64, technology: &str) {
        let ms = u64::try_from(ms.min(WATCHED_MS_MAX)).unwrap_or(0);
        if let Some(sum) = self.watched_ms.get_mut(place(&TECHNOLOGIES, technology)) {
            *sum = sum.saturating_add(ms);
        }
    }

    /// Returns the events that occurred: event, technology and count.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        PLAYER_EVENTS.into_iter().zip(&self.events).flat_map(|(event, row)| {
            let of_row = TECHNOLOGIES.into_iter().zip(row).filter(|(_, count)| **count > 0);
            of_row.map(move |(technology, count)| (event, technology, *count))
        })
    }

    /// Returns the watched time in milliseconds, by technology.
    pub fn watched_ms(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TECHNOLOGIES.into_iter().zip(self.watched_ms).filter(|(_, ms)| *ms > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_known_share_one_count() {
        let mut counts = PlayerCounts::default();
        for (event, technology) in
            [("playStarted", "hls"), ("playstarted", "HLS"), ("made up", "hls"), ("\u{0}", "x"), ("", "")]
        {
            counts.event(event, technology);
        }
        let counted: Vec<_> = counts.events().collect();
        assert_eq!(counted, [("playStarted", "hls", 2), ("other", "hls", 1), ("other", "other", 2)]);
    }

    #[test]
    fn time_that_cannot_be_is_cut() {
        let mut counts = PlayerCounts::default();
        for ms in [1500, -1, i64::MIN] {
            counts.watched(ms, "webrtc");
        }
        counts.watched(i64::MAX, "nonsense");
        assert_eq!(counts.watched_ms().collect::<Vec<_>>(), [("webrtc", 1500), ("other", 3_600_000)]);
    }
}
