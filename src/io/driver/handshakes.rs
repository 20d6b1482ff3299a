//! The limit on TLS handshakes in progress. The number of handshakes that wait for their peer is limited for each
//! listener. At the limit, the oldest are closed.

use std::collections::VecDeque;
use std::io;

use super::{Driver, Machine};
use crate::io::budget::Busy;
use crate::stats::Refused;
use crate::types::{ConnId, Now};

/// Maximum number of connections with an incomplete ClientHello, for one listener and worker. They cost only memory, up
/// to 64 KiB each, and do not count as handshakes.
const HELLOS_MAX: usize = 256;
/// Length of the list of handshakes at which finished ones are removed from it.
const RUNNING_KEPT: usize = 512;

/// Connections of one listener that are in a handshake, oldest first. Some handshakes may already have ended.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    hellos: VecDeque<ConnId>,
    running: VecDeque<ConnId>,
}

impl Driver {
    /// Reads as much of the ClientHello as has arrived. Returns true if it is complete, or if the connection does not
    /// need one.
    pub(super) fn take_hello<M: Machine>(
        &mut self,
        now: Now,
        machine: &mut M,
        id: ConnId,
    ) -> io::Result<bool> {
        let Some(socket) = self.socket(id) else { return Ok(false) };
        if !socket.transport.awaits_hello() {
            return Ok(true);
        }
        match socket.transport.read_hello() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                socket.readable = false;
                // A peer is listed only once it has begun its ClientHello. A silent peer costs no memory.
                let is_new =
                    socket.transport.holds_hello() && !std::mem::replace(&mut socket.hello_begun, true);
                let listener = socket.listener;
                if is_new {
                    self.list_hello(now, machine, id, listener);
                }
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists a connection whose ClientHello has begun. If too many are listed, the oldest one is closed.
    fn list_hello<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, listener: &'static str) {
        let mut hellos = std::mem::take(&mut self.handshakes_of(listener).hellos);
        hellos.push_back(id);
        if hellos.len() > HELLOS_MAX {
            hellos.retain(|id| self.socket(*id).is_some_and(|socket| socket.transport.awaits_hello()));
        }
        let oldest = if hellos.len() > HELLOS_MAX { hellos.pop_front() } else { None };
        self.handshakes_of(listener).hellos = hellos;
        if let Some(oldest) = oldest {
            self.give_up_handshake(now, machine, oldest);
        }
    }

    /// Begins the handshake after a complete ClientHello. Returns false if the limit does not allow it; the connection
    /// was then closed.
    pub(super) fn begin_handshake<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> bool {
        let Some(socket) = self.socket(id) else { return false };
        let listener = socket.listener;
        let Some(permit) = socket.permit.as_mut().filter(|permit| !permit.is_handshaking()) else {
            return true;
        };
        let mut begun = permit.begin_handshake(listener);
        if begun == Err(Busy::Listener) && self.end_oldest(now, machine, listener) {
            let permit = self.socket(id).and_then(|socket| socket.permit.as_mut());
            begun = permit.map_or(begun, |permit| permit.begin_handshake(listener));
        }
        if begun.is_err() {
            self.give_up_handshake(now, machine, id);
            return false;
        }
        let mut running = std::mem::take(&mut self.handshakes_of(listener).running);
        running.push_back(id);
        if running.len() > RUNNING_KEPT {
            running.retain(|id| self.is_shaking(*id));
        }
        self.handshakes_of(listener).running = running;
        true
    }

    /// Ends the oldest handshake of a listener on this worker. Returns false if there is none.
    fn end_oldest<M: Machine>(&mut self, now: Now, machine: &mut M, listener: &'static str) -> bool {
        while let Some(oldest) = self.handshakes_of(listener).running.pop_front() {
            if self.is_shaking(oldest) {
                self.give_up_handshake(now, machine, oldest);
                return true;
            }
        }
        false
    }

    fn is_shaking(&mut self, id: ConnId) -> bool {
        self.socket(id)
            .and_then(|socket| socket.permit.as_ref())
            .is_some_and(|permit| permit.is_handshaking())
    }

    fn give_up_handshake<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        if let Some(socket) = self.socket(id) {
            socket.ended = true;
        }
        machine.note_refused(Refused::Handshakes);
        self.broken(now, machine, id, &io::Error::other("too many TLS handshakes"));
    }

    fn handshakes_of(&mut self, listener: &'static str) -> &mut Handshakes {
        self.shaking.entry(listener).or_default()
    }
}
