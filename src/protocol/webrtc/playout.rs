//! The playout delay requested of a viewer's player.
//!
//! A player stretches its buffer to the unevenness that it sees, and pictures that a narrow path delays or that are left out
//! look like unevenness: browsers then hold back whole pictures for seconds. While pictures are left out, the player is
//! asked for a short delay, with which Chromium shows pictures as they come; later for the delay that browsers have by default.

use std::time::Duration;

use rtp::extension::PlayoutDelay;

/// Requested while pictures are left out. Chromium renders without smoothing for a maximum of 500 ms or less.
const SHORT: PlayoutDelay = PlayoutDelay { min: Duration::ZERO, max: Duration::from_millis(500) };
/// Requested later: the range of a browser of which nothing is requested.
const USUAL: PlayoutDelay = PlayoutDelay { min: Duration::ZERO, max: Duration::from_secs(10) };

/// The state of the request.
#[derive(Debug, Default)]
pub(super) struct Playout {
    is_short: bool,
}

impl Playout {
    /// Returns the delay to request, if it is another one than before.
    pub(super) fn follow(&mut self, is_thinned: bool) -> Option<PlayoutDelay> {
        let before = std::mem::replace(&mut self.is_short, is_thinned);
        (before != is_thinned).then_some(if is_thinned { SHORT } else { USUAL })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_requested_when_thinning_begins_and_ends() {
        let mut playout = Playout::default();
        let requested = [false, true, true, false, false].map(|is_thinned| playout.follow(is_thinned));
        assert_eq!(requested, [None, Some(SHORT), None, Some(USUAL), None]);
    }
}
