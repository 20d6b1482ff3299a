//! The handshake (RFC 9260 §5). An `INIT` creates no state: its answer carries all state, authenticated, in a
//! cookie.

use std::time::Instant;

use bytes::Bytes;

use super::timers::later;
use super::{Association, Phase, Session};
use crate::cookie::{Agreed, Checked};
use crate::event::{CloseReason, Event};
use crate::inbound::{Order, Reassembly, Received};
use crate::init::{Extensions, Init};
use crate::outbound::{Flight, Rto};
use crate::packet::{chunk, parameter, write_parameter};
use crate::stats::count;

/// Number of streams announced for both directions: all that channels can use (RFC 8831 §6.2).
const STREAMS: u16 = 65_535;
/// Number of peer streams that can be tracked in addition to those of open channels: the streams of channels that
/// are being closed.
const LANES_SPARE: usize = 64;

impl Association {
    /// Begins the handshake. The peer may begin it at the same time.
    pub fn connect(&mut self, now: Instant) {
        if self.phase == Phase::Idle {
            self.phase = Phase::CookieWait;
            self.repeat_handshake(now);
        }
    }

    fn our_init<'a>(&self, cookie: Option<&'a [u8]>) -> Init<'a> {
        Init {
            tag: self.local.tag,
            window: u32::try_from(self.config.receive_buffer_bytes).unwrap_or(u32::MAX).max(1500),
            outgoing: STREAMS,
            incoming: STREAMS,
            tsn: self.local.tsn,
            extensions: Extensions { forward_tsn: true, reset: true },
            cookie,
        }
    }

    /// Sends the handshake or shutdown chunk that the current phase requires. Also called to repeat this chunk if it
    /// was not answered.
    pub(super) fn repeat_handshake(&mut self, now: Instant) {
        match self.phase {
            Phase::CookieWait => {
                let init = self.our_init(None).write(&[]);
                self.push_control_to(0, chunk::INIT, 0, &init);
            }
            Phase::CookieEchoed => {
                let cookie = self.cookie.clone();
                self.push_control(chunk::COOKIE_ECHO, 0, &cookie);
            }
            Phase::ShutdownSent => self.send_shutdown(),
            Phase::ShutdownAckSent => self.push_control(chunk::SHUTDOWN_ACK, 0, &[]),
            Phase::Idle
            | Phase::Established
            | Phase::ShutdownPending
            | Phase::ShutdownReceived
            | Phase::Closed => return,
        }
        self.timers.handshake = Some(later(now, self.rto.current()));
    }

    pub(super) fn handle_init(&mut self, now: Instant, value: &[u8]) {
        let mut unknown = Vec::new();
        let Some(init) = Init::read(value, &mut unknown) else {
            return count(&mut self.stats.dropped, 1);
        };
        if self.phase == Phase::ShutdownAckSent {
            return self.push_control(chunk::SHUTDOWN_ACK, 0, &[]);
        }
        let cookie = self.local.cookies.make(now, &Agreed::of(&init));
        let answer = self.our_init(Some(&cookie)).write(&unknown);
        self.push_control_to(init.tag, chunk::INIT_ACK, 0, &answer);
    }

    pub(super) fn handle_init_ack(&mut self, now: Instant, value: &[u8]) {
        if self.phase != Phase::CookieWait {
            return;
        }
        let mut unknown = Vec::new();
        let init = Init::read(value, &mut unknown);
        let most = self.config.packet_bytes_max.saturating_sub(16);
        let Some((init, cookie)) =
            init.and_then(|init| Some((init, init.cookie?))).filter(|(_, cookie)| cookie.len() <= most)
        else {
            return count(&mut self.stats.dropped, 1);
        };
        self.cookie = Bytes::copy_from_slice(cookie);
        self.begin(Agreed::of(&init));
        self.phase = Phase::CookieEchoed;
        self.timers.errors = 0;
        self.repeat_handshake(now);
        if !unknown.is_empty() {
            // Unrecognized parameters are reported in the form of an error cause (§3.3.10.8).
            self.push_control(chunk::ERROR, 0, &unknown);
        }
    }

    /// Starts the session once the peer's parameters are known.
    fn begin(&mut self, agreed: Agreed) {
        let lanes = self.config.channels_max.saturating_add(LANES_SPARE);
        let has_forward = agreed.extensions.forward_tsn;
        let mtu = self.config.packet_bytes_max;
        self.resets.expect(agreed.tsn);
        self.session = Some(Box::new(Session {
            received: Received::new(agreed.tsn),
            reassembly: Reassembly::default(),
            order: Order::new(lanes),
            flight: Flight::new(self.local.tsn, mtu, agreed.window, has_forward),
            ack_due: false,
            ack_packets: 0,
            told: self.config.receive_buffer_bytes,
            agreed,
        }));
    }

    /// Handles `COOKIE ECHO` (§5.2.4).
    pub(super) fn handle_cookie_echo(&mut self, now: Instant, value: &[u8]) {
        let agreed = match self.local.cookies.check(now, self.config.cookie_lifetime, value) {
            Checked::Good(agreed) => agreed,
            Checked::Forged => return count(&mut self.stats.dropped, 1),
            Checked::Stale(over) => {
                let micros = u32::try_from(over.as_micros()).unwrap_or(u32::MAX);
                let mut cause = Vec::new();
                write_parameter(&mut cause, parameter::CAUSE_STALE_COOKIE, &micros.to_be_bytes());
                return self.push_control(chunk::ERROR, 0, &cause);
            }
        };
        match self.phase {
            Phase::Idle | Phase::CookieWait | Phase::CookieEchoed => {
                if self.session.as_ref().is_none_or(|session| session.agreed.tag != agreed.tag) {
                    self.begin(agreed);
                }
                self.establish(now);
                self.push_control(chunk::COOKIE_ACK, 0, &[]);
            }
            Phase::Established | Phase::ShutdownPending | Phase::ShutdownSent | Phase::ShutdownReceived
                if self.session.as_ref().is_some_and(|session| session.agreed.tag == agreed.tag) =>
            {
                self.push_control(chunk::COOKIE_ACK, 0, &[]);
            }
            Phase::ShutdownAckSent => self.push_control(chunk::SHUTDOWN_ACK, 0, &[]),
            Phase::Established
            | Phase::ShutdownPending
            | Phase::ShutdownSent
            | Phase::ShutdownReceived
            | Phase::Closed => {
                // The peer has restarted, and its channels are gone, so our channels end, too.
                self.push_control_to(agreed.tag, chunk::ABORT, 0, &[]);
                self.end(CloseReason::Restarted);
            }
        }
    }

    pub(super) fn handle_cookie_ack(&mut self, now: Instant) {
        if self.phase == Phase::CookieEchoed {
            self.establish(now);
        }
    }

    /// Handles `ERROR`. If the cookie expired in transit, the handshake restarts (§5.2.6).
    pub(super) fn handle_error(&mut self, now: Instant, mut value: &[u8]) {
        let cause = crate::packet::next_parameter(&mut value).map(|cause| cause.kind);
        if self.phase == Phase::CookieEchoed && cause == Some(parameter::CAUSE_STALE_COOKIE) {
            self.session = None;
            self.phase = Phase::CookieWait;
            if self.count_error() {
                self.repeat_handshake(now);
            }
        }
    }

    fn establish(&mut self, now: Instant) {
        self.phase = Phase::Established;
        self.cookie = Bytes::new();
        self.timers.handshake = None;
        self.timers.errors = 0;
        self.timers.start_heartbeat(now, self.config.heartbeat_interval);
        self.rto = Rto::new(self.config.rto_initial, self.config.rto_min, self.config.rto_max);
        self.events.push(Event::Connected);
        // The number of streams that the peer supports was unknown until now.
        self.drop_channels_beyond();
    }
}
