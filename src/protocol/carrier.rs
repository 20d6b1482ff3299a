//! A TCP connection that carries the datagrams of a shared port, for peers whose UDP is blocked. Each message of
//! its byte stream is a datagram of the port, and datagrams to the peer are written as messages.
//!
//! 1. If the port does not accept the first message, the connection is closed immediately.
//! 2. When a session of the port claims the connection ([`PortNews::Carries`]), it belongs to that session and
//!    ends with it.
//! 3. A connection that no session claims in time is closed; a claimed one is closed after silence, if its
//!    [`Terms`] say so.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use wire::{Datagrams, SendQueue};

use super::{
    About, ByteStream, Carrier, Context, Event, PathEvent, PathId, Paths, PortEvent, PortNews, Reply,
    Session, Timers,
};
use crate::types::Now;

/// Time after which a connection that no session has claimed is closed.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes queued for the socket. Further datagrams are dropped, as on a network, because late
/// media is useless.
pub(super) const QUEUE_BYTES_MAX: usize = 256 * 1024;

/// The framing of datagrams in a byte stream.
pub(super) trait Framing: Debug + Send {
    /// Takes the next datagram out of `input`. `None` if more bytes are needed: the framing then holds the bytes of the
    /// incomplete datagram, and `input` is empty. An error means that the byte stream is unusable.
    fn next(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, String>;
    /// Appends a datagram. Returns false, appending nothing, if it is too long.
    fn write(&self, datagram: &[u8], out: &mut BytesMut) -> bool;
}

/// The parameters of a kind of connection.
#[derive(Debug)]
pub(super) struct Terms {
    /// Name of the shared port.
    pub(super) port: &'static str,
    /// The protocol, for logs and counters.
    pub(super) protocol: &'static str,
    /// Time without input after which a claimed connection is closed; `None` if its session decides.
    pub(super) silence_max: Option<Duration>,
    /// The reason for closing a connection that was not claimed in time.
    pub(super) unclaimed: &'static str,
    /// The reason for closing a connection whose datagram the port does not accept.
    pub(super) unwanted: &'static str,
}

/// A session that carries datagrams in its byte stream.
#[derive(Debug)]
pub(super) struct StreamCarrier<F> {
    terms: &'static Terms,
    framing: F,
    /// Bytes of an incomplete message.
    input: BytesMut,
    out: SendQueue,
    /// Number of bytes that the socket has not accepted.
    queued: usize,
    claimed: bool,
    is_open: bool,
    /// Time at which the connection is closed, unless input arrives earlier.
    until: Option<Instant>,
    closing: Option<String>,
}

impl<F: Framing> StreamCarrier<F> {
    pub(super) fn new(now: Now, terms: &'static Terms, framing: F) -> Self {
        Self {
            terms,
            framing,
            input: BytesMut::new(),
            out: SendQueue::new(),
            queued: 0,
            claimed: false,
            is_open: true,
            until: now.mono.checked_add(CLAIM_TIMEOUT),
            closing: None,
        }
    }

    /// Notes the reason for closing the connection, unless it is closing already.
    fn end(&mut self, reason: &str) {
        if std::mem::take(&mut self.is_open) {
            self.until = None;
            self.closing = Some(reason.to_owned());
        }
    }

    /// Extends the deadline of a claimed connection.
    fn prolong(&mut self, ctx: &Context<'_>) {
        self.until = self.terms.silence_max.and_then(|silence| ctx.now.mono.checked_add(silence));
    }
}

impl<F: Framing> ByteStream for StreamCarrier<F> {
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.claimed && self.is_open {
            self.prolong(ctx);
        }
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
    }

    fn wants_bytes(&self) -> bool {
        self.input.is_empty() && self.is_open
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl<F: Framing> Carrier for StreamCarrier<F> {
    fn carry(&mut self, datagrams: &Datagrams) -> usize {
        let mut messages = BytesMut::new();
        let mut lost = 0;
        for datagram in (0..datagrams.len()).map(|index| datagrams.get(index)) {
            let before = messages.len();
            let is_written = self.framing.write(datagram, &mut messages);
            let queued = self.queued.saturating_add(messages.len());
            if !is_written || queued > QUEUE_BYTES_MAX {
                messages.truncate(before);
                lost += 1;
            }
        }
        self.queued = self.queued.saturating_add(messages.len());
        self.out.push(messages.freeze());
        lost
    }

    fn hand_over(&mut self, datagram: &[u8]) -> Option<Bytes> {
        if self.claimed || !self.is_open {
            return None;
        }
        let mut received = BytesMut::new();
        self.framing.write(datagram, &mut received);
        received.extend_from_slice(&std::mem::take(&mut self.input));
        self.end("its session is at another worker");
        Some(received.freeze())
    }
}

impl<F: Framing> Session for StreamCarrier<F> {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Port(PortNews::Carries) if self.is_open => {
                self.claimed = true;
                self.prolong(ctx);
            }
            Reply::Port(PortNews::Uncarried) if !self.claimed => self.end(self.terms.unwanted),
            Reply::Port(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Request(_)
            | Reply::Job(_)
            | Reply::Family(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.end(reason);
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if self.is_open {
            match self.framing.next(&mut self.input) {
                Ok(Some(datagram)) => {
                    return Some(Event::Port(PortEvent::Carried { port: self.terms.port, datagram }));
                }
                // An idle connection holds no buffer.
                Ok(None) => self.input = BytesMut::new(),
                Err(error) => self.end(&error),
            }
        }
        self.closing.take().map(Event::Closed)
    }

    fn about(&self) -> About {
        About { protocol: self.terms.protocol, is_media: false, is_authenticated: self.claimed }
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

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        Some(self)
    }
}

impl<F: Framing> Timers for StreamCarrier<F> {
    fn handle_timeout(&mut self, ctx: &Context<'_>) {
        if self.until.is_some_and(|until| until <= ctx.now.mono) {
            self.end(if self.claimed { "the peer is silent" } else { self.terms.unclaimed });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }
}

impl<F: Framing> Paths for StreamCarrier<F> {
    fn handle_path(&mut self, _ctx: &Context<'_>, _path: PathId, event: PathEvent<'_>) {
        match event {
            PathEvent::Open { .. } | PathEvent::Negotiated(_) => {}
            PathEvent::PeerClosed => self.end("the peer closed the connection"),
            PathEvent::Broken(reason) => self.end(reason),
        }
    }
}
