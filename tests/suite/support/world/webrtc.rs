//! Clients over WebRTC. Their requests go over wires to any worker. Their datagrams go over a line to the port
//! that all workers share, possibly at another worker.

use millstream::protocol::PathId;

use super::clients::{Machine, Role, Way};
use super::network::{End, LineEnd, Place};
use super::{Id, World, address_of};

impl World {
    /// Adds a client over WebRTC.
    pub(super) fn meet(&mut self, machine: Machine, role: Role) -> Id {
        let client = self.clients.len();
        let wire = self.secret_wire(client);
        // The kernel chooses the worker by a hash of the addresses, independently of the worker that answered the
        // request.
        let worker = client % self.workers.len();
        let latency = self.line_latency();
        let ends = [LineEnd::Client(client), LineEnd::Port(worker)];
        let local = address_of(client);
        let line = self.network.add_line(&self.seed, ends, local, Place::webrtc(), latency);
        let id = self.enter(Way::Both { wire, line }, machine, role);
        let now = self.clock.now();
        let datagrams = self.clients[client].datagrams().unwrap();
        datagrams.handle_local(now, PathId::default(), Some(local));
        id
    }

    /// Replaces a client's wire with a new one.
    pub(super) fn rewire(&mut self, client: usize) {
        let now = self.clock.now();
        let Way::Both { wire: before, line } = self.clients[client].way else { return };
        self.network.wires[before].ends[0] = End::Gone;
        self.network.wires[before].links[0].finish(now);
        self.clients[client].way = Way::Both { wire: self.secret_wire(client), line };
    }

    /// Connects a client with a wire whose bytes stay out of the trace, because the descriptions contain
    /// certificates.
    fn secret_wire(&mut self, client: usize) -> usize {
        let wire = self.wire(client, "http");
        self.network.wires[wire].is_secret = true;
        wire
    }
}
