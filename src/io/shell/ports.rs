//! UDP ports that many peers share. The shell reads them and admits their peers. It also prevents busy ports from
//! waking it too often.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Passed, Shell};
use crate::io::driver::note_receive_error;
use crate::protocol::{Port, Remote};
use crate::types::Now;
use crate::worker::Routed;

/// Maximum number of receive calls on one socket in one turn.
pub(super) const RECEIVES_TURN: usize = 16;
/// Minimum interval of wake-ups by a busy port. Each of hundreds of viewers may send a hundred acknowledgements a
/// second, and a wake-up costs more than handling a datagram. Protocols delay data by much longer than this interval
/// anyway.
const MUTE: Duration = Duration::from_millis(1);

impl Shell {
    /// Reads every readable port, up to a limit per turn.
    pub(super) fn read_ports(&mut self, now: Now) {
        for index in 0..self.driver.ports.len() {
            self.unmute(now.mono, index);
            for _ in 0..RECEIVES_TURN {
                let Some((port, socket)) = self.driver.ports.get_mut(index) else { break };
                let port = *port;
                if !socket.readable {
                    break;
                }
                let mut batch = std::mem::take(&mut self.driver.batch);
                match socket.receive(&mut batch) {
                    Ok(messages) => {
                        let before = socket.read_at.replace(now.mono);
                        if before.is_some_and(|at| now.mono.saturating_duration_since(at) < MUTE) {
                            self.mute(now.mono, index);
                        }
                        for (from, datagram) in batch.datagrams(messages) {
                            self.route(now, index, port, from, datagram);
                        }
                    }
                    Err(error) => note_receive_error(&error),
                }
                self.driver.batch = batch;
            }
        }
        self.forwarding.flush(&self.machine.colleagues.workers);
        self.flush_strays();
        let (passed, lost) = self.forwarding.take_counts();
        self.machine.worker.note_passed(passed, lost);
    }

    /// Handles datagrams that other workers have received.
    pub(super) fn take_passed(&mut self, now: Now, mut passed: Passed) {
        for (port, from, datagram) in passed.datagrams() {
            if let Some(index) = self.driver.ports.iter().position(|(of, _)| *of == port) {
                self.route(now, index, port, from, datagram);
            }
        }
    }

    /// Returns the time at which a muted port is read again.
    pub(super) fn muted_until(&self) -> Option<Instant> {
        self.driver.ports.iter().filter_map(|(_, port)| port.muted_until).min()
    }

    fn mute(&mut self, now: Instant, index: usize) {
        let is_muted = self.driver.ports.get(index).is_none_or(|(_, port)| port.muted_until.is_some());
        if !is_muted
            && self.driver.unwatch_port(index).is_ok()
            && let Some((_, port)) = self.driver.ports.get_mut(index)
        {
            port.muted_until = Some(now + MUTE);
        }
    }

    fn unmute(&mut self, now: Instant, index: usize) {
        let Some((_, port)) = self.driver.ports.get_mut(index) else { return };
        if port.muted_until.is_none_or(|until| until > now) {
            return;
        }
        port.muted_until = None;
        // Registering a socket causes no event for datagrams that arrived before, so read the socket now.
        port.readable = true;
        if let Err(error) = self.driver.watch_port(index) {
            tracing::error!(%error, "UDP port lost");
        }
    }

    pub(super) fn route(
        &mut self,
        now: Now,
        index: usize,
        port: &'static Port,
        from: Remote,
        datagram: &mut [u8],
    ) {
        match self.machine.worker.handle_datagram(now, port, from, datagram) {
            Routed::Done => {}
            Routed::Dropped => self.pass_on(port, from, datagram),
            Routed::Reply => {
                let Some((_, socket)) = self.driver.ports.get(index) else { return };
                let reply = self.machine.worker.reply_datagram();
                if let Err(error) = socket.send_run(from, reply, reply.len()) {
                    tracing::debug!(%error, peer = %from.peer, "reply not sent");
                }
            }
            Routed::Elsewhere(to) => {
                let workers = &self.machine.colleagues.workers;
                self.forwarding.push(workers, (to, port, from), datagram);
            }
            Routed::New if from.via.is_some() => {}
            Routed::New => self.admit_peer(now, port, from),
        }
    }

    /// Creates a session for a peer whose address is verified, if there is room.
    fn admit_peer(&mut self, now: Now, port: &'static Port, from: Remote) {
        let peer = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
        let permit = match self.budget.admit(peer, port.publishers, now.mono) {
            Ok(permit) => permit,
            Err(why) => {
                tracing::debug!(%peer, ?why, "peer refused");
                self.machine.worker.note_refused(why);
                return;
            }
        };
        self.make_room(now);
        // The slot of the new session may have been freed in this turn. Its former owner must be closed before the slot
        // is used again.
        self.driver.perform_all(now, &mut self.machine);
        if let Some(id) = self.machine.worker.accept_peer(now, port, from) {
            self.driver.install_peer(id, Some(permit));
        }
    }
}
