//! The end of an association (RFC 9260 §9).

use std::time::Instant;

use wire::Reader;

use super::{Association, Phase};
use crate::event::CloseReason;
use crate::outbound::Sack;
use crate::packet::{chunk, parameter, write_parameter};
use crate::seq;

impl Association {
    /// Ends the association once everything sent has been acknowledged. No further messages are accepted.
    pub fn close(&mut self, now: Instant) {
        match self.phase {
            Phase::Established => {
                self.phase = Phase::ShutdownPending;
                self.settle(now);
            }
            Phase::Idle | Phase::CookieWait | Phase::CookieEchoed => self.abort(),
            Phase::ShutdownPending
            | Phase::ShutdownSent
            | Phase::ShutdownReceived
            | Phase::ShutdownAckSent
            | Phase::Closed => {}
        }
    }

    /// Ends the association immediately, and notifies the peer.
    pub fn abort(&mut self) {
        self.abort_for(CloseReason::Local);
    }

    pub(super) fn abort_for(&mut self, reason: CloseReason) {
        if self.phase == Phase::Closed {
            return;
        }
        self.control.clear();
        if self.session.is_some() {
            let cause = match reason {
                CloseReason::Violation | CloseReason::Limit => parameter::CAUSE_VIOLATION,
                CloseReason::Local
                | CloseReason::Peer
                | CloseReason::Aborted
                | CloseReason::TimedOut
                | CloseReason::Restarted => parameter::CAUSE_USER_ABORT,
            };
            let mut value = Vec::new();
            write_parameter(&mut value, cause, &[]);
            self.push_control(chunk::ABORT, 0, &value);
        }
        self.end(reason);
    }

    /// True if everything sent has been acknowledged.
    fn is_flushed(&self) -> bool {
        self.queues.is_empty() && self.session.as_ref().is_none_or(|session| session.flight.is_empty())
    }

    /// Performs the next step of the shutdown, if everything has been acknowledged.
    pub(super) fn step_shutdown(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::ShutdownPending | Phase::ShutdownReceived) || !self.is_flushed() {
            return;
        }
        self.timers.retransmit = None;
        self.timers.reset = None;
        let is_ours = self.phase == Phase::ShutdownPending;
        self.phase = if is_ours { Phase::ShutdownSent } else { Phase::ShutdownAckSent };
        self.repeat_handshake(now);
    }

    pub(super) fn send_shutdown(&mut self) {
        let cumulative = self.session.as_ref().map_or(0, |session| session.received.cumulative());
        self.push_control(chunk::SHUTDOWN, 0, &seq::wrap_tsn(cumulative).to_be_bytes());
    }

    pub(super) fn handle_shutdown(&mut self, now: Instant, value: &[u8]) {
        let Ok(cumulative) = Reader::new(value).u32() else { return };
        match self.phase {
            Phase::Established | Phase::ShutdownPending | Phase::ShutdownReceived => {
                self.phase = Phase::ShutdownReceived;
                // SHUTDOWN announces no window, so room for one message is assumed.
                let window = u32::try_from(self.config.message_bytes_max).unwrap_or(u32::MAX);
                self.acknowledge(now, &Sack::of_shutdown(cumulative, window));
            }
            Phase::ShutdownSent => {
                self.phase = Phase::ShutdownAckSent;
                self.repeat_handshake(now);
            }
            Phase::ShutdownAckSent => self.push_control(chunk::SHUTDOWN_ACK, 0, &[]),
            Phase::Idle | Phase::CookieWait | Phase::CookieEchoed | Phase::Closed => {}
        }
    }

    pub(super) fn handle_shutdown_ack(&mut self) {
        let reason = match self.phase {
            Phase::ShutdownSent => CloseReason::Local,
            Phase::ShutdownAckSent => CloseReason::Peer,
            Phase::Idle
            | Phase::CookieWait
            | Phase::CookieEchoed
            | Phase::Established
            | Phase::ShutdownPending
            | Phase::ShutdownReceived
            | Phase::Closed => return,
        };
        self.push_control(chunk::SHUTDOWN_COMPLETE, 0, &[]);
        self.end(reason);
    }

    pub(super) fn handle_shutdown_complete(&mut self) {
        if self.phase == Phase::ShutdownAckSent {
            self.end(CloseReason::Peer);
        }
    }
}
