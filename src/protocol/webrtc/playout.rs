//! The playout delay requested of a viewer's player.
//!
//! A player extends its buffer to cover the jitter that it sees, and pictures that a narrow path delays, or that are
//! left out, look like jitter: browsers then delay pictures for seconds. While pictures are left out, the player is
//! asked for a short delay, with which Chromium shows pictures as they arrive; later, for the delay that browsers
//! have by default.

use std::time::Duration;

use rtp::extension::PlayoutDelay;

/// Requested while pictures are left out. Chromium renders without smoothing for a maximum of 500 ms or less.
const SHORT: PlayoutDelay = PlayoutDelay { min: Duration::ZERO, max: Duration::from_millis(500) };
/// Requested later: the range that a browser uses without a request.
const USUAL: PlayoutDelay = PlayoutDelay { min: Duration::ZERO, max: Duration::from_secs(10) };

/// Returns the delay to request of a player; `None` to request nothing. `requested` is the delay that was requested
/// last.
pub(super) fn delay_for(is_thinned: bool, requested: Option<PlayoutDelay>) -> Option<PlayoutDelay> {
    if is_thinned { Some(SHORT) } else { requested.map(|_| USUAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_requested_when_thinning_begins_and_ends() {
        let mut requested = None;
        let requests = [false, true, true, false, false].map(|is_thinned| {
            requested = delay_for(is_thinned, requested);
            requested
        });
        assert_eq!(requests, [None, Some(SHORT), Some(SHORT), Some(USUAL), Some(USUAL)]);
    }
}
