//! The UDP port of TURN, including datagrams carried by its TCP connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crypto::Seed;
use turn::{Client, Config, Endpoint, Incoming, Peer, Peers};

use super::session::TurnSession;
use super::settings::{TurnSettings, secret_of};
use crate::mail::SessionSettings;
use crate::protocol::row::PortContext;
use crate::protocol::{Context, Demux, Remote, Route, Session, registry};
use crate::types::ConnId;

/// The demultiplexer of the port.
#[derive(Debug)]
pub(super) struct TurnPort {
    seed: Seed,
    /// The endpoint, made when the first message arrives, and the settings from which it was made.
    endpoint: Option<(Endpoint<ConnId>, SessionSettings)>,
    /// The client of the last datagram that was [`Route::New`].
    newcomer: Option<Box<Incoming>>,
}

/// True for the requests of clients without an allocation: Binding and Allocate (RFC 8489 §5, RFC 8656 §17).
const fn begins(datagram: &[u8]) -> bool {
    matches!(datagram, [0, 1 | 3, ..])
}

impl TurnPort {
    pub(super) fn new(ctx: &PortContext<'_>) -> Self {
        // The seed is shared by all workers, so that a nonce stays valid when the client reaches another one.
        Self { seed: ctx.shared_seed("TURN port"), endpoint: None, newcomer: None }
    }

    /// Returns the endpoint for the current settings; `None` if there is no TURN server.
    fn endpoint(&mut self, ctx: &Context<'_>) -> Option<&mut Endpoint<ConnId>> {
        let is_of_now = |(_, of): &(_, SessionSettings)| {
            Arc::ptr_eq(&of.site, &ctx.server.site) && of.protocols == ctx.server.protocols
        };
        if !self.endpoint.as_ref().is_some_and(is_of_now) {
            let config = Arc::new(config(ctx)?);
            match &mut self.endpoint {
                Some((endpoint, of)) => {
                    endpoint.set_config(config);
                    *of = ctx.server.clone();
                }
                None => {
                    let endpoint = Endpoint::new(ctx.now.mono, config, &self.seed);
                    self.endpoint = Some((endpoint, ctx.server.clone()));
                }
            }
        }
        self.endpoint.as_mut().map(|(endpoint, _)| endpoint)
    }
}

/// Returns the configuration of new allocations.
fn config(ctx: &Context<'_>) -> Option<Config> {
    let settings = TurnSettings::of(ctx.server)?;
    let peers = registry::media_addresses(ctx.server);
    Some(Config {
        realm: settings.realm.clone(),
        secret: secret_of(settings, ctx.server)?,
        peers: Peers::new(peers.into_iter().map(|media| Peer { told: media.told, real: media.own })),
        caps: settings.caps,
        bytes_per_second: settings.bytes_per_second,
        anchor: (ctx.now.mono, Duration::from_millis(ctx.now.wall_ms)),
    })
}

/// Returns the client that sends from this remote.
fn client_of(from: Remote) -> Client {
    Client {
        address: SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port()),
        local: from.local.map(|ip| ip.to_canonical()),
        connection: from.carrier.map(|conn| (u64::from(conn.slot) << 32) | u64::from(conn.generation)),
    }
}

impl Demux for TurnPort {
    fn route(&mut self, ctx: &Context<'_>, from: Remote, datagram: &[u8], reply: &mut Vec<u8>) -> Route {
        let (now, client) = (ctx.now.mono, client_of(from));
        // Existing allocations continue under any new settings.
        if let Some(conn) = self.endpoint.as_ref().and_then(|(endpoint, _)| endpoint.session(&client)) {
            return Route::Session(conn);
        }
        // An older process of this server may have the client's allocation.
        if ctx.server.leaves_strays && !begins(datagram) {
            return Route::Drop;
        }
        let Some(endpoint) = self.endpoint(ctx) else { return Route::Drop };
        match endpoint.route(now, client, datagram, reply) {
            turn::Route::Session(conn) => Route::Session(conn),
            turn::Route::New(incoming) => {
                self.newcomer = Some(incoming);
                Route::New
            }
            turn::Route::Reply => Route::Reply,
            turn::Route::Drop(_) => Route::Drop,
        }
    }

    fn begin(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        peer: SocketAddr,
        _seed: Seed,
    ) -> Option<Box<dyn Session>> {
        let incoming = *self.newcomer.take()?;
        let (endpoint, _) = self.endpoint.as_mut()?;
        if !endpoint.insert(&incoming, conn) {
            return None;
        }
        tracing::info!(%peer, user = %String::from_utf8_lossy(incoming.user()), "TURN allocation started");
        Some(Box::new(TurnSession::new(ctx, incoming)))
    }

    fn forget(&mut self, conn: ConnId) {
        if let Some((endpoint, _)) = &mut self.endpoint {
            endpoint.remove(conn);
        }
    }

    fn sessions(&self) -> usize {
        self.endpoint.as_ref().map_or(0, |(endpoint, _)| endpoint.len())
    }
}
