//! The UDP port of TURN, including datagrams carried by its TCP connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use turn::{Client, Config, Endpoint, Incoming, Peer, Peers};

use super::session::TurnSession;
use super::settings::{TurnSettings, secret_of};
use crate::mail::SessionSettings;
use crate::protocol::row::PortContext;
use crate::protocol::{Context, Demux, Remote, Route, Session, registry};
use crate::types::{ConnId, Now};

/// Difference between the wall clock and the time since an anchor, above which the anchor is renewed. Credentials and
/// nonces have a resolution of a second.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);

/// The demultiplexer of the port.
#[derive(Debug)]
pub(super) struct TurnPort {
    seed: Seed,
    /// The endpoint, made when the first message arrives, and the settings from which it was made.
    endpoint: Option<(Endpoint<ConnId>, SessionSettings)>,
    /// The anchor of the endpoint's configuration.
    anchor: (Instant, Duration),
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
        let (seed, anchor) = (ctx.shared_seed("TURN port"), anchor_of(ctx.now));
        Self { seed, endpoint: None, anchor, newcomer: None }
    }

    /// Returns the endpoint for the current settings; `None` if there is no TURN server.
    fn endpoint(&mut self, ctx: &Context<'_>) -> Option<&mut Endpoint<ConnId>> {
        let is_of_now = |(_, of): &(_, SessionSettings)| {
            Arc::ptr_eq(&of.site, &ctx.server.site) && of.protocols == ctx.server.protocols
        };
        if !self.endpoint.as_ref().is_some_and(is_of_now) || !has_time(self.anchor, ctx.now) {
            let config = Arc::new(config(ctx)?);
            self.anchor = config.anchor;
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

const fn anchor_of(now: Now) -> (Instant, Duration) {
    (now.mono, Duration::from_millis(now.wall_ms))
}

/// True if the time since an anchor is the wall clock's. It is not after the clock was set, for example because the
/// machine started without the time, or was suspended.
fn has_time((at, since): (Instant, Duration), now: Now) -> bool {
    let expected = since.saturating_add(now.mono.saturating_duration_since(at));
    expected.abs_diff(Duration::from_millis(now.wall_ms)) <= CLOCK_DIFFERENCE_MAX
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
        anchor: anchor_of(ctx.now),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSettings;
    use crate::hub::Blobs;
    use crate::protocol::{Apps, schema};
    use crate::types::WorkerId;

    #[test]
    fn credentials_expire_by_the_wall_clock_also_after_it_was_set() {
        let mut now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings =
            [("turn.enabled", "true"), ("turn.secret", "0123456789abcdef"), ("turn.realm", "media.example")];
        let server = ServerSettings::of(schema(), &settings).unwrap();
        let server = SessionSettings::of(&server, "node", Arc::default());
        let mut port = TurnPort::new(&PortContext::new(now, WorkerId(0), &Seed::from_number(1)));
        let (apps, blobs) = (Apps::new(), Blobs::default());
        // The time since 1970 by which a client that comes now is judged.
        let mut judged = |mono_ms: u64, wall_ms: u64| {
            now = Now { mono: now.mono + Duration::from_millis(mono_ms), wall_ms };
            let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
            assert!(port.endpoint(&ctx).is_some());
            let (at, since) = port.anchor;
            (since + now.mono.duration_since(at)).as_millis()
        };
        assert_eq!(judged(0, 1000), 1000);
        assert_eq!(judged(60_000, 61_000), 61_000);
        // The clock is set to the true time, then back, and is trimmed by parts of a second.
        assert_eq!(judged(10, 1_790_000_000_000), 1_790_000_000_000);
        assert_eq!(judged(10, 1_780_000_000_000), 1_780_000_000_000);
        assert_eq!(judged(1000, 1_780_000_000_300), 1_780_000_001_000, "one anchor while it fits");
    }
}
