//! Carriers: sessions whose byte streams carry the datagrams of a shared UDP port to and from one peer. Datagrams that
//! arrive in such a byte stream are routed as if the port had received them. Datagrams for the peer are written to the
//! byte stream.

use wire::Datagrams;

use super::conns::Conns;
use super::datagrams::Ports;
use super::dispatch::UNSENT_BYTES_MIN;
use super::turn::Turn;
use super::{Output, Worker};
use crate::protocol::{Elsewhere, PathId, PortEvent, PortNews, Remote, Reply, Route};
use crate::types::{ConnId, WorkerId};
use crate::worker::Destination;

impl Worker {
    /// Writes datagrams that session `id` sends to the byte stream of session `carrier`.
    pub(super) fn carry(&mut self, id: ConnId, carrier: ConnId, datagrams: &Datagrams) -> Destination {
        let carry =
            self.conns.call(&self.turn, carrier, |session, _| Some(session.carrier()?.carry(datagrams)));
        let lost = carry.flatten().unwrap_or(datagrams.len());
        let taken = if lost < datagrams.len() { datagrams.bytes() } else { 0 };
        self.note_sent(self.turn.now.mono, id, taken, lost);
        self.conns.touch(&mut self.turn, carrier);
        Destination::Carried
    }
}

impl Ports {
    /// Handles an event of a session about a shared port.
    pub(super) fn port_event(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId, event: PortEvent) {
        match event {
            PortEvent::Claim(claim) => self.claim(turn, conns, id, &claim),
            PortEvent::Carried { port, mut datagram } => {
                self.take_carried(turn, conns, id, port, &mut datagram)
            }
        }
    }

    /// Routes a datagram of a shared port that arrived in a session's byte stream.
    pub(super) fn take_carried(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        carrier: ConnId,
        port: &str,
        datagram: &mut [u8],
    ) {
        let Some(peer) = conns.get(carrier).map(|conn| conn.peer) else { return };
        let Some(port) = self.list.iter().map(|(port, _)| *port).find(|of| of.name == port) else {
            return;
        };
        let from = Remote { carrier: Some(carrier), ..Remote::of(peer) };
        match self.route(turn, port, from, datagram) {
            Route::Session(id) => conns.take_datagram(turn, id, PathId::default(), from, datagram),
            Route::New if !turn.draining => match self.begin_session(turn, conns, port, from) {
                Some(id) => conns.adopt_carrier(turn, id, carrier),
                None => conns.reply(turn, carrier, Reply::Port(PortNews::Uncarried)),
            },
            Route::Reply => {
                let mut reply = Datagrams::new();
                reply.push(&self.reply, &[]);
                conns.call(turn, carrier, |session, _| session.carrier().map(|way| way.carry(&reply)));
                conns.touch(turn, carrier);
            }
            Route::Elsewhere(Elsewhere::Name(to)) => conns.hand_over(turn, carrier, to, datagram),
            Route::New | Route::Elsewhere(_) | Route::Drop => {
                conns.reply(turn, carrier, Reply::Port(PortNews::Uncarried))
            }
        }
    }
}

impl Conns {
    /// Hands a carrier's connection over to worker `to`, whose session `datagram` is addressed to, unless a session
    /// here has claimed the carrier. A connection that was already handed over once is refused: otherwise its peer
    /// could make workers pass it around endlessly.
    fn hand_over(&mut self, turn: &mut Turn, carrier: ConnId, to: WorkerId, datagram: &[u8]) {
        let Some(conn) = self.get(carrier) else { return };
        if conn.bytes.as_ref().is_some_and(|link| link.was_handed_over) {
            return self.reply(turn, carrier, Reply::Port(PortNews::Uncarried));
        }
        let peer = conn.peer;
        let received = self.call(turn, carrier, |session, _| session.carrier()?.hand_over(datagram));
        if let Some(received) = received.flatten() {
            turn.agenda.outputs.push_back(Output::HandOver { conn: carrier, to, peer, received });
            self.touch(turn, carrier);
        }
    }

    /// Ties a carrier to the session whose datagrams it carries, so that they end together.
    pub(super) fn adopt_carrier(&mut self, turn: &mut Turn, owner: ConnId, carrier: ConnId) {
        let Some(conn) = self.get(carrier) else { return };
        let before = conn.family.as_ref().and_then(|family| family.parent);
        if before == Some(owner) {
            return;
        }
        if let Some(family) = before.and_then(|before| self.get_mut(before)?.family.as_mut()) {
            family.children.retain(|child| *child != carrier);
        }
        if self.get(owner).is_none() {
            return;
        }
        if !self.takes_child(owner) {
            self.call(turn, carrier, |session, ctx| {
                session.close(ctx, "one session has too many connections")
            });
        } else {
            self.relate(owner, carrier);
            self.reply(turn, carrier, Reply::Port(PortNews::Carries));
            self.note_authenticated(turn, carrier);
            // The carrier can drop datagrams that have become too late to be useful only while they are in its own
            // queue. So the kernel may hold only few of them.
            turn.agenda.outputs.push_back(Output::UnsentLimit { conn: carrier, bytes: UNSENT_BYTES_MIN });
        }
        self.touch(turn, carrier);
    }
}
