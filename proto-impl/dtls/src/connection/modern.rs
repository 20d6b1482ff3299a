//! A connection with a DTLS 1.3 session, and its fallback to 1.2 if the peer chooses that.

use std::sync::Arc;
use std::time::Instant;

use crypto::Random;

use super::{Connection, Handshaking, Phase, Role};
use crate::alert::{Alert, AlertDescription};
use crate::config::Expected;
use crate::error::Failure;
use crate::event::CloseReason;
use crate::reassembly::Message;
use crate::v12::client::Client;
use crate::v12::server::Server;
use crate::v12::{Exchange, Side};
use crate::v13::{Reports, Session, Stop};

impl Connection {
    /// Starts a session with the newest supported version.
    pub(super) fn start_modern(
        &mut self,
        now: Instant,
        random: Random,
        expected: Expected,
        cookie_verified: bool,
    ) {
        match Session::start(now, Arc::clone(&self.config), self.role, expected, random) {
            Ok(mut session) => {
                if cookie_verified {
                    session.begin_behind_cookie();
                }
                self.phase = Phase::Modern(Box::new(session));
            }
            Err(failure) => self.fail(failure),
        }
    }

    /// Calls a method of the session, and ends the connection if the method says so.
    pub(super) fn with_modern(
        &mut self,
        now: Instant,
        ask: impl FnOnce(&mut Session, &mut Reports<'_>) -> Result<(), Stop>,
    ) {
        let Phase::Modern(session) = &mut self.phase else { return };
        let mut reports = Reports { events: &mut self.events, stats: &mut self.stats };
        if let Err(stop) = ask(session, &mut reports) {
            self.stop(now, stop);
        }
    }

    /// Handles the first record of a datagram. Returns the rest of the datagram.
    pub(super) fn handle_modern_record<'a>(
        &mut self,
        now: Instant,
        datagram: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let Phase::Modern(session) = &mut self.phase else { return None };
        let mut reports = Reports { events: &mut self.events, stats: &mut self.stats };
        let (tail, done) = session.handle_record(now, datagram, &mut reports);
        if let Err(stop) = done {
            self.stop(now, stop);
        }
        tail
    }

    /// Returns the next datagram of the session.
    pub(super) fn write_modern_flight(&mut self, mtu: usize) -> Option<Vec<u8>> {
        let Phase::Modern(session) = &mut self.phase else { return None };
        match session.poll_datagram(mtu) {
            Ok(datagram) => datagram,
            Err(_) => {
                self.end(CloseReason::Exhausted);
                None
            }
        }
    }

    fn stop(&mut self, now: Instant, stop: Stop) {
        match stop {
            Stop::Failed(failure) => self.fail(failure),
            Stop::Ended(reason) => {
                if reason == CloseReason::Peer && self.is_connected() {
                    self.push_alert(Alert::warning(AlertDescription::CLOSE_NOTIFY));
                }
                self.end(reason);
            }
            Stop::FallsBack(message) => self.fall_back(now, &message),
        }
    }

    /// Falls back to DTLS 1.2, which the peer chose with its first message.
    fn fall_back(&mut self, now: Instant, message: &Message) {
        let Phase::Modern(session) = std::mem::replace(&mut self.phase, Phase::Closed) else { return };
        let Some(remains) = session.into_remains() else {
            // Never happens: a session only falls back before its version is settled.
            self.closed = Some(CloseReason::Failed(Failure::Internal));
            return;
        };
        tracing::debug!("the peer chose DTLS 1.2");
        self.records.go_on_at(remains.clear_next);
        let mut exchange = Exchange::new(Arc::clone(&self.config), remains.random);
        exchange.expected = remains.expected;
        let goes_on = if remains.is_behind_cookie { Ok(()) } else { exchange.had_13(&remains.hello) };
        let side = match self.role {
            Role::Server => Side::Server(Server::Hello),
            Role::Client => Side::Client(Client::after_hello()),
        };
        self.phase = Phase::Handshaking(Box::new(Handshaking {
            reassembly: remains.reassembly,
            exchange,
            side: Some(side),
            follows: false,
            timer: remains.timer,
            deadline: remains.deadline,
        }));
        match goes_on {
            Ok(()) => {
                if self.handle_message(now, message) {
                    self.pump(now);
                }
            }
            Err(failure) => self.fail(failure),
        }
    }
}
