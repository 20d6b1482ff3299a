//! The UDP port shared by SRT peers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ::srt::{Endpoint, Incoming, SocketId};
use crypto::{Random, Seed};

use super::derivations::Derivations;
use super::session::SrtSession;
use crate::protocol::row::PortContext;
use crate::protocol::{Context, Demux, Remote, Route, Session};
use crate::types::ConnId;

/// Maximum number of random ids tried until one is free.
const TRIES_MAX: u32 = 64;

/// The demultiplexer of the port.
#[derive(Debug)]
pub(crate) struct SrtPort {
    endpoint: Endpoint<ConnId>,
    random: Random,
    derivations: Arc<Derivations>,
    /// The peer of the last datagram that was [`Route::New`].
    newcomer: Option<Box<Incoming>>,
    ids: HashMap<ConnId, SocketId>,
}

impl SrtPort {
    pub(super) fn new(ctx: &PortContext<'_>) -> Self {
        let now = ctx.now.mono;
        Self {
            endpoint: Endpoint::new(now, &ctx.shared_seed("SRT cookies")),
            derivations: Arc::new(Derivations::new(now, &ctx.worker_seed("SRT derivations"))),
            random: ctx.worker_seed("SRT socket ids").random(),
            newcomer: None,
            ids: HashMap::new(),
        }
    }

    /// Draws a socket id that is most likely unused. A forger must not guess it, so as many bits as possible are
    /// random: in libsrt the top two have a meaning (groups, errors), and zero means no id.
    fn socket_id(&mut self) -> SocketId {
        const IDS: u64 = (1 << 30) - 1;
        SocketId(u32::try_from(self.random.below(IDS)).unwrap_or(0).saturating_add(1))
    }
}

impl Demux for SrtPort {
    fn route(&mut self, ctx: &Context<'_>, from: Remote, datagram: &[u8], reply: &mut Vec<u8>) -> Route {
        match self.endpoint.route(ctx.now.mono, from.peer, datagram, reply) {
            ::srt::Route::Session(conn) => Route::Session(conn),
            ::srt::Route::New(incoming) => {
                self.newcomer = Some(incoming);
                Route::New
            }
            ::srt::Route::Reply => Route::Reply,
            ::srt::Route::Drop(_) => Route::Drop,
        }
    }

    fn begin(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        peer: SocketAddr,
        seed: Seed,
    ) -> Option<Box<dyn Session>> {
        let incoming = self.newcomer.take()?;
        if incoming.is_encrypted() && !self.derivations.take(ctx.now.mono, peer.ip()) {
            return None;
        }
        let (address, peer_id) = (incoming.from(), incoming.peer_socket());
        let id = (0..TRIES_MAX).find_map(|_| {
            let id = self.socket_id();
            self.endpoint.insert(id, address, peer_id, conn).then_some(id)
        })?;
        self.ids.insert(conn, id);
        let derivations = Arc::clone(&self.derivations);
        Some(Box::new(SrtSession::new(ctx, *incoming, id, peer, (&seed, derivations))))
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(id) = self.ids.remove(&conn) {
            self.endpoint.remove(id);
        }
    }

    fn sessions(&self) -> usize {
        self.endpoint.len().max(self.ids.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Now, WorkerId};
    use std::time::Instant;

    #[test]
    fn s_29_socket_ids_have_all_their_bits() {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut port = SrtPort::new(&PortContext::new(now, WorkerId(3), &Seed::from_number(1)));
        let ids: Vec<u32> = (0..1000).map(|_| port.socket_id().0).collect();
        assert!(ids.iter().all(|id| *id != 0 && *id < 1 << 30));
        for bit in 0..30 {
            let set = ids.iter().filter(|id| **id >> bit & 1 == 1).count();
            assert!((400..600).contains(&set), "bit {bit} is set in {set} of 1000");
        }
    }
}
