//! The session of an allocation: the client at the shared port, and a socket of its own for peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use turn::{Allocation, CloseReason, Destination, Family, Incoming};
use wire::Datagrams;

use super::statistics::TurnFigures;
use crate::protocol::{
    About, Context, DatagramPeer, Event, FamilyNews, Logs, OpenPath, PathEvent, PathId, Paths, Remote, Reply,
    Session, SocketEvent, Timers, To,
};
use crate::stats::Figures;

/// The path to the client through the shared port.
const CLIENT: PathId = PathId(0);
/// The path of the socket that peers see.
const PEERS: PathId = PathId(1);

/// The session of an allocation.
#[derive(Debug)]
pub(super) struct TurnSession {
    allocation: Allocation,
}

impl TurnSession {
    pub(super) fn new(ctx: &Context<'_>, incoming: Incoming) -> Self {
        Self { allocation: Allocation::new(ctx.now.mono, incoming) }
    }
}

/// Returns the address to bind for peers: any free port of loopback, because peers are on this machine, whatever
/// their addresses.
fn own_address(family: Family) -> SocketAddr {
    let ip: IpAddr = match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, 0)
}

/// Describes the reason why an allocation has ended, for the log.
const fn words(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Client => "the client has ended it",
        CloseReason::Expired => "its lifetime is over",
        CloseReason::NoAddress => "there is no socket for it",
        CloseReason::Local => "closed here",
    }
}

impl Session for TurnSession {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            // The client's connection is gone, and the client with it.
            Reply::Family(FamilyNews::Ended(_)) => self.allocation.close(ctx.now.mono),
            Reply::Family(_)
            | Reply::Port(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Request(_)
            | Reply::Job(_) => {}
        }
    }

    fn close(&mut self, ctx: &Context<'_>, _reason: &str) {
        self.allocation.close(ctx.now.mono);
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        Some(match self.allocation.poll_event()? {
            turn::Event::Bind(family) => {
                let bind = Some(own_address(family));
                Event::Socket(SocketEvent::Open(OpenPath { path: PEERS, bind, to: None }))
            }
            turn::Event::Closed(reason) => Event::Closed(words(reason).to_owned()),
        })
    }

    fn about(&self) -> About {
        // An allocation requires credentials, so its client is authenticated.
        About { protocol: "turn", is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        Some(self)
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        Some(Arc::new(TurnFigures(self.allocation.stats())))
    }
}

impl Timers for TurnSession {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        self.allocation.handle_timeout(ctx.now.mono);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.allocation.poll_timeout()
    }
}

impl Paths for TurnSession {
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>) {
        if path != PEERS {
            return;
        }
        match event {
            PathEvent::Open { local } => {
                self.allocation.bound(ctx.now.mono, local);
            }
            PathEvent::Broken(reason) => {
                tracing::warn!(reason, "TURN allocation has no socket");
                self.allocation.bound(ctx.now.mono, None);
            }
            PathEvent::Negotiated(_) | PathEvent::PeerClosed => {}
        }
    }
}

impl DatagramPeer for TurnSession {
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, from: Remote, datagram: &mut [u8]) {
        let now = ctx.now.mono;
        if path == PEERS {
            let from = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
            self.allocation.handle_peer(now, from, datagram);
        } else {
            self.allocation.handle_datagram(now, datagram);
        }
    }

    fn has_datagrams(&self, _ctx: &Context<'_>) -> bool {
        self.allocation.peek_transmit().is_some()
    }

    fn poll_datagrams(&mut self, _ctx: &Context<'_>, _logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        let Some((to, _)) = self.allocation.peek_transmit() else { return To::PEER };
        while let Some((next, length)) = self.allocation.peek_transmit()
            && next == to
            && out.has_room(length)
        {
            out.push_made(|bytes| {
                self.allocation.poll_transmit(bytes);
            });
        }
        let last = self.allocation.peek_transmit().is_none();
        match to {
            Destination::Client => To { path: CLIENT, remote: None, last },
            Destination::Peer(peer) => To { path: PEERS, remote: Some(Remote::of(peer)), last },
        }
    }
}
