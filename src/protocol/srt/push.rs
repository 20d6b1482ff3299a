//! A push: publishes one of our streams to another SRT server. Its supervisor is control; one session is one try.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use crypto::Seed;
use wire::{Datagrams, SendQueue};

use super::outbound::{OutboundConnection, OutboundEvent};
use super::packer::Packer;
use super::settings::SrtSettings;
use super::url::SrtAddress;
use crate::hub::Parts;
use crate::mail::{PushState, StreamEnd};
use crate::protocol::{Context, Event, Format, Session};

/// One try of a push.
#[derive(Debug)]
pub(crate) struct SrtPush {
    address: SrtAddress,
    seed: Seed,
    /// Begins when the socket is there.
    connection: Option<Box<OutboundConnection>>,
    packer: Option<Packer>,
    events: VecDeque<Event>,
    broadcasting: bool,
    ending: bool,
    closed: bool,
}

impl SrtPush {
    pub(super) fn new(address: SrtAddress, seed: Seed) -> Self {
        Self {
            address,
            seed,
            connection: None,
            packer: None,
            events: VecDeque::new(),
            broadcasting: false,
            ending: false,
            closed: false,
        }
    }

    fn drain_connection(&mut self) {
        while let Some(connection) = &mut self.connection
            && let Some(event) = connection.poll_event()
        {
            match event {
                OutboundEvent::Connected { payload_bytes } => {
                    self.packer = Some(Packer::new(payload_bytes));
                    self.broadcasting = true;
                    self.events.push_back(Event::SubscribePush { format: Format::new(&super::FORMAT, 0) });
                    self.events.push_back(Event::Push(PushState::Broadcasting));
                }
                // A target that sends media to its publisher is odd, and not our concern.
                OutboundEvent::Payload(_) | OutboundEvent::Lost => {}
                OutboundEvent::Closed(reason) => self.end(&reason),
            }
        }
    }

    /// The first reason counts.
    fn end(&mut self, reason: &str) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let state = match (self.ending, self.broadcasting) {
            (true, _) => PushState::Finished,
            (false, true) => PushState::Error(reason.to_owned()),
            (false, false) => PushState::Failed(reason.to_owned()),
        };
        self.events.push_back(Event::Push(state));
        self.events.push_back(Event::Unsubscribe);
        self.events.push_back(Event::Closed(reason.to_owned()));
    }
}

impl Session for SrtPush {
    fn handle_bytes(&mut self, _ctx: &Context<'_>, _bytes: &[u8]) {}

    fn handle_connected(&mut self, ctx: &Context<'_>) {
        let connection = OutboundConnection::new(
            ctx.now.mono,
            SrtSettings::of(ctx.server),
            &self.address,
            self.seed.clone(),
        );
        self.connection = Some(Box::new(connection));
        self.events.push_back(Event::Push(PushState::Preparing));
    }

    fn handle_datagram(&mut self, ctx: &Context<'_>, from: SocketAddr, datagram: &[u8]) {
        if let Some(connection) = &mut self.connection {
            connection.handle_datagram(ctx.now.mono, from, datagram);
        }
    }

    fn handle_hangup(&mut self, _ctx: &Context<'_>, error: Option<&str>) {
        self.end(error.unwrap_or("the socket is gone"));
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(ctx.now.mono);
        }
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn takes_units(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.has_send_room())
    }

    fn send_unit(&mut self, ctx: &Context<'_>, parts: &Parts) {
        let (Some(connection), Some(packer)) = (&mut self.connection, &mut self.packer) else { return };
        packer.push(parts, |payload| connection.send(ctx.now.mono, payload));
    }

    fn end_units(&mut self, ctx: &Context<'_>) {
        let (Some(connection), Some(packer)) = (&mut self.connection, &mut self.packer) else { return };
        if let Some(payload) = packer.finish() {
            connection.send(ctx.now.mono, payload);
        }
    }

    fn poll_datagrams(&mut self, ctx: &Context<'_>, out: &mut Datagrams) -> Option<SocketAddr> {
        self.connection.as_mut()?.poll_datagrams(ctx.now.mono, out)
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if self.events.is_empty() {
            self.drain_connection();
        }
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(|connection| connection.poll_timeout())
    }

    fn end_subscription(&mut self, ctx: &Context<'_>, _end: StreamEnd) {
        self.close(ctx, "the stream ended");
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.ending = true;
        if let Some(connection) = &mut self.connection {
            connection.close(ctx.now.mono);
        }
        self.end(reason);
    }

    fn srt_stats(&self) -> Option<::srt::Stats> {
        self.connection.as_ref().and_then(|connection| connection.stats())
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn protocol(&self) -> &'static str {
        "srt-push"
    }
}
