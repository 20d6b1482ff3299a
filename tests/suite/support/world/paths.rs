//! Paths to clients that carry less than the server or the client sends.

use std::time::Duration;

use netsim::{Link, LinkStats, StreamLink};

use super::{Id, World};

/// A network between the server and a client.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// Rate in bits per second towards the client.
    pub rate: u64,
    /// Another rate for a while: from the first time to the second, both counted from now on.
    pub cut: Option<(Duration, Duration, u64)>,
    /// Size in bytes of the queue at the entry of the path.
    pub queue: usize,
    /// The constant delay in each direction; then the maximum random delay that is added.
    pub latency: Duration,
    pub jitter: Duration,
    /// True if datagrams overtake each other because of the random delay.
    pub overtakes: bool,
    /// The share of datagrams that is lost at random, in each direction.
    pub loss: f64,
}

impl World {
    /// Puts a viewer behind this path from now on.
    pub fn narrow(&mut self, id: Id, path: Path) {
        self.limit(id, path, 1);
    }

    /// Puts a publisher behind this path from now on. The rate is that towards the server.
    pub fn narrow_publisher(&mut self, id: Id, path: Path) {
        self.limit(id, path, 0);
    }

    /// Limits one direction of a client's connections to the rate of the path. `sender` is 0 for the direction in
    /// which the client sends, 1 for that of the server.
    fn limit(&mut self, id: Id, path: Path, sender: usize) {
        let now = self.clock.now();
        let way = self.clients[id.0].way;
        if let Some(line) = way.line() {
            self.network.lines[line].links = [0, 1].map(|side: usize| {
                let link = Link::new(&self.seed.derive("narrow line", line as u64 * 2 + side as u64));
                let link = link.latency(path.latency).jitter(path.jitter).loss(path.loss);
                let link = if path.overtakes { link.overtaking() } else { link };
                let narrow = |link: Link| link.rate(path.rate).queue_bytes(path.queue);
                let cut = |link: Link| match path.cut {
                    Some((from, to, rate)) => link.rate_between(now + from, now + to, rate),
                    None => link,
                };
                if side == sender { cut(narrow(link)) } else { link }
            });
        }
        if let Some(wire) = way.wire() {
            let link = StreamLink::new(&self.seed.derive("narrow wire", wire as u64));
            let link = link.latency(path.latency).rate(path.rate).window(path.queue);
            let link = match path.cut {
                Some((from, to, rate)) => link.rate_between(now + from, now + to, rate),
                None => link,
            };
            self.network.wires[wire].links[sender] = link;
        }
    }

    /// Returns the counters of the datagrams towards a client.
    pub fn line_stats(&self, id: Id) -> LinkStats {
        let line = self.clients[id.0].way.line().expect("a client over datagrams");
        self.network.lines[line].links[1].stats()
    }

    /// Returns the bytes of the datagrams towards a viewer that have reached its narrow path.
    pub fn line_bytes(&self, id: Id) -> u64 {
        let line = self.clients[id.0].way.line().expect("a client over datagrams");
        self.network.lines[line].links[1].bottleneck_bytes().offered
    }

    /// Returns the bytes of a publisher's datagrams that have reached its narrow path.
    pub fn published_bytes(&self, id: Id) -> u64 {
        let line = self.clients[id.0].way.line().expect("a client over datagrams");
        self.network.lines[line].links[0].bottleneck_bytes().offered
    }
}
