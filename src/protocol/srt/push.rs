//! A push: publishes one of our streams to another SRT server. Its supervisor is control; one session is one attempt.

use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use super::outbound::OutboundConnection;
use super::pace::Pace;
use super::publishing::Publishing;
use super::settings::SrtSettings;
use super::statistics::SrtFigures;
use super::url::SrtAddress;
use crate::hub::{Delivery, Parts};
use crate::protocol::publisher::PublisherEvent;
use crate::protocol::push::Attempt;
use crate::protocol::{
    About, Context, DatagramPeer, Event, Format, Logs, PathEvent, PathId, Paths, Remote, Reply, Session,
    SubscriptionNews, TailSink, Timers, To, UnitRuns, UnitSink,
};
use crate::stats::Figures;
use crate::types::Handle;

/// An attempt to push a stream over SRT.
#[derive(Debug)]
pub(crate) struct SrtPush {
    address: SrtAddress,
    seed: Seed,
    /// The connection, made when the socket is open.
    publishing: Option<Box<Publishing>>,
    pace: Pace,
    /// Time at which the connection is closed because the stream has ended.
    goodbye_at: Option<Instant>,
    attempt: Attempt,
}

impl SrtPush {
    pub(super) fn new(address: SrtAddress, seed: Seed) -> Self {
        Self {
            address,
            seed,
            publishing: None,
            pace: Pace::new(),
            goodbye_at: None,
            attempt: Attempt::default(),
        }
    }

    fn drain_events(&mut self, now: Instant) {
        while let Some(event) = self.publishing.as_mut().and_then(|publishing| publishing.poll_event()) {
            match event {
                PublisherEvent::Ready => {
                    let format = Format::new(&super::FORMAT, 0);
                    self.attempt.broadcast(now, format);
                }
                PublisherEvent::Closed(reason) => self.attempt.end(&reason),
                // An SRT push has a single socket, and no byte stream.
                PublisherEvent::Reconnect
                | PublisherEvent::OpenPath(_)
                | PublisherEvent::ClosePath(_)
                | PublisherEvent::KeyFrameWanted => {}
            }
        }
    }

    fn connection(&mut self) -> Option<&mut OutboundConnection> {
        self.publishing.as_mut().map(|publishing| &mut publishing.connection)
    }

    fn connected(&mut self, ctx: &Context<'_>) {
        let connection = OutboundConnection::new(
            ctx.now.mono,
            SrtSettings::of(ctx.server),
            &self.address,
            self.seed.clone(),
        );
        self.publishing = Some(Box::new(Publishing::new(connection)));
        self.attempt.prepare();
    }
}

impl DatagramPeer for SrtPush {
    fn handle_datagram(&mut self, ctx: &Context<'_>, _path: PathId, from: Remote, datagram: &mut [u8]) {
        if let Some(connection) = self.connection() {
            connection.handle_datagram(ctx.now.mono, from.peer, datagram);
        }
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, _logs: Logs<'_, '_>, out: &mut Datagrams) -> To {
        let peer = self.connection().and_then(|connection| connection.poll_datagrams(ctx.now.mono, out));
        To::of_socket(peer)
    }
}

impl TailSink for SrtPush {
    fn handle_tail(&mut self, ctx: &Context<'_>, tail: &Parts) {
        if let Some(publishing) = &mut self.publishing {
            publishing.send(ctx.now.mono, tail);
        }
    }
}

impl UnitSink for SrtPush {
    fn has_room(&self) -> bool {
        let Some(Publishing { connection, .. }) = self.publishing.as_deref() else { return false };
        !self.pace.holds(|| connection.stats().unwrap_or_default().into()) && connection.has_send_room()
    }

    fn handle_unit(&mut self, ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let Some(publishing) = &mut self.publishing else { return };
        unit.parts().for_each(|parts| publishing.send(ctx.now.mono, parts));
        let line = || publishing.connection.stats().unwrap_or_default().into();
        self.pace.sent(ctx.now.mono, unit.entry.received, line);
    }

    fn tail(&mut self) -> Option<&mut dyn TailSink> {
        Some(self)
    }

    fn paced(&mut self) -> Option<&mut dyn crate::protocol::Paced> {
        Some(&mut self.pace)
    }

    fn runs(&mut self) -> Option<&mut dyn UnitRuns> {
        Some(self)
    }
}

impl UnitRuns for SrtPush {
    fn end_units(&mut self, ctx: &Context<'_>) {
        if let Some(publishing) = &mut self.publishing {
            publishing.flush(ctx.now.mono);
        }
    }
}

impl Session for SrtPush {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, SubscriptionNews::Ended(_)) = reply {
            self.attempt.finish();
            let stats = self.publishing.as_ref().and_then(|publishing| publishing.connection.stats());
            self.goodbye_at = Some(super::goodbye_at(ctx.now.mono, stats.unwrap_or_default()));
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !self.attempt.has_events() {
            self.drain_events(ctx.now.mono);
        }
        self.attempt.poll_event()
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.attempt.finish();
        if let Some(connection) = self.connection() {
            connection.close(ctx.now.mono);
        }
        self.attempt.end(reason);
    }

    fn about(&self) -> About {
        About { protocol: "srt-push", is_media: true, is_authenticated: true }
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

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }

    fn figures(&self) -> Option<Arc<dyn Figures>> {
        let stats = self.publishing.as_ref()?.connection.stats()?;
        Some(Arc::new(SrtFigures(stats)))
    }
}

impl Timers for SrtPush {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if let Some(connection) = self.connection() {
            connection.handle_timeout(ctx.now.mono);
        }
        self.pace.handle_timeout(ctx.now.mono);
        self.attempt.handle_timeout(ctx.now.mono);
        if self.goodbye_at.is_some_and(|at| at <= ctx.now.mono) {
            self.goodbye_at = None;
            self.close(ctx, "the stream ended");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connection = self.publishing.as_ref().and_then(|publishing| publishing.connection.poll_timeout());
        [connection, self.attempt.poll_timeout(), self.pace.poll_timeout(), self.goodbye_at]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Paths for SrtPush {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } => self.connected(ctx),
            PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.attempt.end("the socket is gone"),
            PathEvent::Broken(reason) => self.attempt.end(reason),
        }
    }
}
