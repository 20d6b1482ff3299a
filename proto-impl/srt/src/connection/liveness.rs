//! The silence of both ends of an established connection, and the time of its next lazy check.

use bytes::Bytes;

/// A keep-alive is sent after this time without sending (draft-sharabayko-srt-01 §3.2.3).
pub(super) const KEEP_ALIVE_US: i64 = 1_000_000;
/// The answer to a conclusion is kept so long, for a caller that did not get it.
const RESPONSE_KEPT_US: i64 = 5_000_000;

/// The silence of either end. Times are microseconds since the connection's start.
#[derive(Debug)]
pub(super) struct Liveness {
    /// The last packet of the peer.
    pub(super) heard_us: i64,
    /// The last packet of ours.
    pub(super) spoken_us: i64,
    /// Whether a keep-alive waits to be sent.
    pub(super) keep_alive: bool,
    /// The time of the next lazy check.
    pub(super) check_us: i64,
    /// The newest time that any call has named.
    pub(super) horizon_us: i64,
    /// The listener's answer to the conclusion, for a caller that asks again.
    response: Option<Bytes>,
    response_until_us: i64,
}

impl Liveness {
    /// From the end of the handshake on. `response` is empty for a caller.
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

    /// Moves the next check to `us`, unless it is earlier.
    pub(super) fn check_by(&mut self, us: i64) {
        self.check_us = self.check_us.min(us);
    }

    /// The answer to a conclusion that is repeated.
    pub(super) fn response(&self, now_us: i64) -> Option<&Bytes> {
        self.response.as_ref().filter(|_| now_us < self.response_until_us)
    }

    /// Asks for a keep-alive after a second without sending, and forgets the handshake's answer in time.
    pub(super) fn look(&mut self, now_us: i64) {
        if now_us.saturating_sub(self.spoken_us) >= KEEP_ALIVE_US {
            self.keep_alive = true;
            self.spoken_us = now_us;
        }
        if now_us >= self.response_until_us {
            self.response = None;
        }
    }

    /// The time at which the peer counts as gone or a keep-alive is due: the earlier of both.
    pub(super) fn next_us(&self, idle_us: i64) -> i64 {
        self.heard_us.saturating_add(idle_us).min(self.spoken_us.saturating_add(KEEP_ALIVE_US))
    }
}
