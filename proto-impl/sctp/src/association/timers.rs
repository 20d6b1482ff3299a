//! Timers of an association (RFC 9260 §6.3, §8.3).

use std::time::{Duration, Instant};

use super::{Association, Phase};
use crate::event::CloseReason;
use crate::packet::{chunk, parameter, write_parameter};
use crate::stats::count;

/// Deadlines of the association, and the count of timeouts.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Timers T1 and T2: handshake and shutdown.
    pub(super) handshake: Option<Instant>,
    /// Timer T3: data.
    pub(super) retransmit: Option<Instant>,
    /// Time of a delayed acknowledgement.
    pub(super) ack: Option<Instant>,
    pub(super) heartbeat: Option<Instant>,
    /// The unanswered heartbeat: its number, and the time at which it was sent.
    pub(super) beat: Option<(u64, Instant)>,
    /// Time to repeat a request to reset streams.
    pub(super) reset: Option<Instant>,
    /// Number of timeouts since the last packet of the peer.
    pub(super) errors: u32,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Instant> {
        [self.handshake, self.retransmit, self.ack, self.heartbeat, self.reset].into_iter().flatten().min()
    }

    pub(super) fn start_retransmit(&mut self, now: Instant, pause: Duration) {
        self.retransmit.get_or_insert_with(|| later(now, pause));
    }

    pub(super) fn start_heartbeat(&mut self, now: Instant, pause: Duration) {
        self.heartbeat = Some(later(now, pause));
    }
}

/// Adds a pause to `now`; returns `now` if the result is out of range.
pub(super) fn later(now: Instant, pause: Duration) -> Instant {
    now.checked_add(pause).unwrap_or(now)
}

/// Returns true if a deadline has passed, and clears it.
fn take_due(deadline: &mut Option<Instant>, now: Instant) -> bool {
    deadline.take_if(|at| *at <= now).is_some()
}

impl Association {
    /// Handles an expired deadline. Calling it early is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        if take_due(&mut self.timers.ack, now)
            && let Some(session) = &mut self.session
        {
            session.ack_due = true;
        }
        if take_due(&mut self.timers.handshake, now) && self.count_error() {
            self.rto.back_off();
            self.repeat_handshake(now);
        }
        if take_due(&mut self.timers.retransmit, now) {
            self.time_out_data(now);
        }
        if take_due(&mut self.timers.reset, now) {
            self.repeat_reset(now);
        }
        if take_due(&mut self.timers.heartbeat, now) {
            self.beat(now);
        }
        self.settle(now);
    }

    /// Counts a timeout. Returns false if the limit is exceeded, which ends the association.
    pub(super) fn count_error(&mut self) -> bool {
        self.timers.errors = self.timers.errors.saturating_add(1);
        let goes_on = self.timers.errors <= self.config.errors_max;
        if !goes_on {
            self.end(CloseReason::TimedOut);
        }
        goes_on
    }

    /// Handles an expired T3 (§6.3.3).
    fn time_out_data(&mut self, now: Instant) {
        if self.session.as_ref().is_none_or(|session| session.flight.is_empty()) || !self.count_error() {
            return;
        }
        count(&mut self.stats.timeouts, 1);
        self.rto.back_off();
        let Some(session) = &mut self.session else { return };
        session.flight.time_out(now, &mut self.queues);
        self.timers.start_retransmit(now, self.rto.current());
    }

    /// Sends a heartbeat, because the association is idle (§8.3).
    fn beat(&mut self, now: Instant) {
        if self.phase != Phase::Established || (self.timers.beat.is_some() && !self.count_error()) {
            return;
        }
        if let Some(session) = &mut self.session {
            session.flight.rest();
        }
        let number = self.local.random.u64();
        self.timers.beat = Some((number, now));
        let mut info = Vec::new();
        write_parameter(&mut info, parameter::HEARTBEAT_INFO, &number.to_be_bytes());
        self.push_control(chunk::HEARTBEAT, 0, &info);
        self.timers.start_heartbeat(now, self.config.heartbeat_interval.saturating_add(self.rto.current()));
    }
}
