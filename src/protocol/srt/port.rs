//! The UDP port that SRT peers share.

use std::collections::HashMap;
use std::net::SocketAddr;

use ::srt::{Endpoint, Incoming, SocketId};
use crypto::{Random, Seed};

use super::session::SrtSession;
use crate::protocol::{Context, Demux, Remote, Route, Session};
use crate::types::{ConnId, Now, WorkerId};

/// Bits of our socket ids that count; above them is the worker.
const ID_BITS: u32 = 20;
/// Random ids that are tried for one that is free.
const TRIES_MAX: u32 = 64;

/// Tells peers apart.
#[derive(Debug)]
pub(crate) struct SrtPort {
    endpoint: Endpoint<ConnId>,
    /// The worker in the high bits: a filter in the kernel could steer by it.
    worker: u32,
    random: Random,
    /// The peer that was just routed as [`Route::New`].
    newcomer: Option<Box<Incoming>>,
    ids: HashMap<ConnId, SocketId>,
}

impl SrtPort {
    pub(crate) fn new(now: Now, worker: WorkerId, secret: &Seed) -> Self {
        Self {
            endpoint: Endpoint::new(now.mono, &secret.derive("SRT cookies", 0)),
            worker: u32::from(worker.0),
            random: secret.derive("SRT socket ids", u64::from(worker.0)).random(),
            newcomer: None,
            ids: HashMap::new(),
        }
    }

    /// A socket id, most likely one that nobody has. Bit 31 is never set, and zero is for those without one.
    fn socket_id(&mut self) -> SocketId {
        let low = u32::try_from(self.random.below((1 << ID_BITS) - 1)).unwrap_or(0).saturating_add(1);
        SocketId(((self.worker & 0x3ff) << ID_BITS) | low)
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
        let (address, peer_id) = (incoming.from(), incoming.peer_socket());
        let id = (0..TRIES_MAX).find_map(|_| {
            let id = self.socket_id();
            self.endpoint.insert(id, address, peer_id, conn).then_some(id)
        })?;
        self.ids.insert(conn, id);
        Some(Box::new(SrtSession::new(ctx, *incoming, id, peer, &seed)))
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some(id) = self.ids.remove(&conn) {
            self.endpoint.remove(id);
        }
    }
}
