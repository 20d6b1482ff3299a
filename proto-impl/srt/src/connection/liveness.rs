//! Activity of both ends of an established connection, and the time of its next lazy check.

use bytes::Bytes;

/// Time without sending after which a keep-alive is sent (draft-sharabayko-srt-01 §3.2.3).
pub(super) const KEEP_ALIVE_US: i64 = 1_000_000;
/// Time for which the listener keeps its answer to a conclusion, in case the caller did not receive it.
const RESPONSE_KEPT_US: i64 = 5_000_000;

/// Last activity of both ends. Times are microseconds since the connection's start.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Arrival of the last packet from the peer.
    pub(super) heard_us: i64,
    /// Departure of our last packet.
    pub(super) spoken_us: i64,
    /// True if a keep-alive must be sent.
    pub(super) keep_alive: bool,
    /// Time of the next lazy check, which [`super::link`] describes.
    pub(super) check_us: i64,
    /// Latest time passed to any call.
    pub(super) horizon_us: i64,
    /// The listener's answer to the conclusion. It is sent again if the caller repeats the conclusion.
    response: Option<Bytes>,
    response_until_us: i64,
}

impl Liveness {
    /// Creates the state at the end of the handshake. `response` is empty for a caller.
    pub(super) fn new(now_us: i64, response: Bytes, keep_alive: bool) -> Self {
        Self {
            heard_us: now_us,
            spoken_us: now_us,
            keep_alive,
            check_us: now_us.saturating_add(KEEP_ALIVE_US),
            horizon_us: now_us,
            response: Some(response).filter(|response| !response.is_empty()),
            response_until_us: now_us.saturating_add(RESPONSE_KEPT_US),
        }
    }

    /// Schedules the next check for `us`, unless it is already scheduled for an earlier time.
    pub(super) fn check_by(&mut self, us: i64) {
        self.check_us = self.check_us.min(us);
    }

    /// Returns the answer to a repeated conclusion, as long as it is kept.
    pub(super) fn response(&self, now_us: i64) -> Option<&Bytes> {
        self.response.as_ref().filter(|_| now_us < self.response_until_us)
    }

    /// Requests a keep-alive after a second without sending, and discards the handshake's answer when it has been kept
    /// long enough.
    pub(super) fn look(&mut self, now_us: i64) {
        if now_us.saturating_sub(self.spoken_us) >= KEEP_ALIVE_US {
            self.keep_alive = true;
            self.spoken_us = now_us;
        }
        if now_us >= self.response_until_us {
            self.response = None;
        }
    }

    /// Returns the time at which the peer counts as gone, or at which a keep-alive must be sent, whichever is earlier.
    pub(super) fn next_us(&self, idle_us: i64) -> i64 {
        self.heard_us.saturating_add(idle_us).min(self.spoken_us.saturating_add(KEEP_ALIVE_US))
    }
}
