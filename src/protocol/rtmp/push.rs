//! A push: publishes one of our streams to another RTMP server. Its supervisor is control; one session is one attempt.

use std::time::Instant;

use crypto::Seed;
use rtmp::{ClientConfig, CloseReason};
use wire::SendQueue;

use super::publishing::{Published, Publishing};
use super::url::RtmpUrl;
use crate::hub::Selection;
use crate::protocol::push::Attempt;
use crate::protocol::{
    About, ByteStream, Context, Event, Format, PathEvent, PathId, Paths, Reply, Session, SubscriptionNews,
    Timers,
};
use crate::types::Now;

/// An attempt to push a stream over RTMP.
#[derive(Debug)]
pub(crate) struct RtmpPush {
    config: Option<ClientConfig>,
    seed: Seed,
    /// The publishing client, made when the connection is open.
    machine: Option<Box<Publishing>>,
    /// The time at which connecting is given up.
    connect_deadline: Option<Instant>,
    attempt: Attempt,
}

impl RtmpPush {
    pub(super) fn new(now: Now, url: &RtmpUrl, via: &[String], seed: Seed) -> Self {
        let config = ClientConfig { via: via.to_vec(), ..super::client_config(url) };
        Self {
            config: Some(config),
            seed,
            machine: None,
            connect_deadline: Some(now.mono + crate::protocol::CONNECT_TIMEOUT),
            attempt: Attempt::default(),
        }
    }

    fn drain_machine(&mut self, now: Instant) {
        while let Some(event) = self.machine.as_mut().and_then(|machine| machine.poll_event()) {
            match event {
                Published::Ready { message_stream } => {
                    let takes_all =
                        self.machine.as_ref().is_some_and(|machine| machine.client.takes_multitrack());
                    let tracks = if takes_all { Selection::ALL } else { Selection::DEFAULT };
                    // Many platforms refuse a stream without audio, so silence is sent if the stream has none.
                    let selection = Selection { silence: true, ..tracks };
                    self.attempt.broadcast(now, self.format(message_stream).select(selection));
                }
                Published::Closed(reason) => self.end(&reason),
            }
        }
    }

    /// Returns the format for the codecs that the target accepts. If the target's answer lists codecs, the list is
    /// respected. Most targets list none and accept everything (nginx-rtmp, and all targets that work with ffmpeg,
    /// which never waits for an answer); they are sent everything.
    fn format(&self, message_stream: u32) -> Format {
        let theirs = self.machine.as_ref().and_then(|machine| machine.client.four_ccs());
        match theirs {
            Some(theirs) => super::egress::format(message_stream, theirs.and(super::forwarded())),
            None => super::egress::guessed_format(message_stream),
        }
    }

    fn connected(&mut self, ctx: &Context<'_>) {
        self.connect_deadline = None;
        if let Some(config) = self.config.take() {
            self.machine = Some(Box::new(Publishing::new(ctx.now.mono, config, self.seed.clone())));
            self.attempt.prepare();
        }
    }

    fn hung_up(&mut self, ctx: &Context<'_>, reason: &str) {
        self.drain_machine(ctx.now.mono);
        self.end(reason);
        if let Some(machine) = &mut self.machine {
            machine.client.close(ctx.now.mono, CloseReason::PeerClosed);
        }
    }

    fn end(&mut self, reason: &str) {
        self.connect_deadline = None;
        self.attempt.end(reason);
    }
}

impl ByteStream for RtmpPush {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        if let Some(machine) = &mut self.machine {
            machine.handle_bytes(ctx.now.mono, bytes);
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, _bytes: usize) {
        // Nothing to do: the client sends no pings, and the worker notices if the target accepts no bytes.
    }

    fn wants_bytes(&self) -> bool {
        !self.attempt.is_over()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(out);
        }
    }
}

impl Session for RtmpPush {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        if let Reply::Subscription(_, SubscriptionNews::Ended(_)) = reply {
            self.close(ctx, "the stream ended");
        }
    }

    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event> {
        if !self.attempt.has_events() {
            self.drain_machine(ctx.now.mono);
        }
        self.attempt.poll_event()
    }

    fn close(&mut self, ctx: &Context<'_>, reason: &str) {
        self.attempt.finish();
        match &mut self.machine {
            Some(machine) => machine.client.close(ctx.now.mono, CloseReason::Requested),
            None => self.end(reason),
        }
    }

    fn about(&self) -> About {
        About { protocol: "rtmp-push", is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }
}

impl Timers for RtmpPush {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if self.connect_deadline.is_some_and(|due| due <= ctx.now.mono) {
            self.end("connect timed out");
        }
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(ctx.now.mono);
        }
        self.attempt.handle_timeout(ctx.now.mono);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.as_ref().and_then(|machine| machine.poll_timeout());
        [self.connect_deadline, machine, self.attempt.poll_timeout()].into_iter().flatten().min()
    }
}

impl Paths for RtmpPush {
    fn handle_path(&mut self, ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } => self.connected(ctx),
            PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.hung_up(ctx, "the target closed the connection"),
            PathEvent::Broken(reason) => self.hung_up(ctx, reason),
        }
    }
}
