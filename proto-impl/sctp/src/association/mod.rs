//! An association: its handshake, channels, and timers.
//!
//! ```text
//!     INIT ->, <- INIT ACK, COOKIE ECHO ->, <- COOKIE ACK     either end may begin, or both at once
//!     DATA, SACK, FORWARD TSN, HEARTBEAT, RE-CONFIG           both ways
//!     SHUTDOWN ->, <- SHUTDOWN ACK, SHUTDOWN COMPLETE ->      or ABORT
//! ```

mod channels;
mod handshake;
mod input;
mod reset;
mod shutdown;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::{Random, Seed};

use channels::Channels;
use reset::Resets;
use timers::Timers;

use crate::config::{CONTROL_CHUNKS_MAX, Config, Remote, Role};
use crate::cookie::{Agreed, Cookies};
use crate::event::{CloseReason, Event};
use crate::inbound::{Message, Order, Reassembly, Received, charge};
use crate::outbound::{Flight, Queues, Rto};
use crate::packet::{CHUNK_HEAD_BYTES, HEAD_BYTES, Head, chunk, seal, write_chunk};
use crate::stats::{Stats, count};

/// State of the association (RFC 9260 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Nothing was sent yet; an `INIT` of the peer is answered.
    Idle,
    CookieWait,
    CookieEchoed,
    Established,
    /// The owner is closing; data in flight must still be acknowledged.
    ShutdownPending,
    ShutdownSent,
    /// The peer is closing.
    ShutdownReceived,
    ShutdownAckSent,
    Closed,
}

impl Phase {
    /// True if data chunks may be sent.
    const fn sends(self) -> bool {
        matches!(self, Self::Established | Self::ShutdownPending | Self::ShutdownReceived)
    }

    /// True if data chunks may be received.
    const fn receives(self) -> bool {
        matches!(self, Self::Established | Self::ShutdownPending | Self::ShutdownSent)
    }
}

/// Parameters of our side. They are fixed for the association's lifetime, so that an `INIT` creates no state.
#[derive(Debug)]
struct Local {
    tag: u32,
    tsn: u32,
    cookies: Cookies,
    random: Random,
}

/// State for both sides, once the peer's parameters are known.
#[derive(Debug)]
struct Session {
    agreed: Agreed,
    received: Received,
    reassembly: Reassembly,
    order: Order,
    flight: Flight,
    /// True if an acknowledgement must be sent.
    ack_due: bool,
    /// Number of packets with data since the last acknowledgement.
    ack_packets: u32,
    /// Receive window last announced to the peer, in bytes.
    told: usize,
}

/// A control chunk waiting to be sent.
#[derive(Debug)]
struct Control {
    tag: u32,
    /// True if the chunk must be alone in its packet (§6.10).
    alone: bool,
    bytes: Vec<u8>,
}

/// Events waiting for the owner.
#[derive(Debug, Default)]
struct Events {
    waiting: VecDeque<Event>,
    /// Payload bytes of the queued messages.
    held: usize,
    /// True if the owner has received [`crate::SendError::Full`] and is waiting for room.
    wants_room: bool,
}

impl Events {
    fn push(&mut self, event: Event) {
        self.held = self.held.saturating_add(charge_of(&event));
        self.waiting.push_back(event);
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.waiting.pop_front()?;
        self.held = self.held.saturating_sub(charge_of(&event));
        if self.waiting.is_empty() {
            // Frees memory that a burst of events has allocated.
            self.waiting = VecDeque::new();
        }
        Some(event)
    }
}

/// Returns the number of bytes that an event occupies in the receive buffer.
fn charge_of(event: &Event) -> usize {
    match event {
        Event::Message { payload, .. } => charge(payload.len()),
        Event::Opened(opened) => charge(opened.label.len().saturating_add(opened.protocol.len())),
        Event::Connected
        | Event::Accepted(_)
        | Event::ChannelClosed(_)
        | Event::Writable
        | Event::Closed(_) => 0,
    }
}

/// An SCTP association over DTLS and its data channels, described in the module.
#[derive(Debug)]
pub struct Association {
    config: Arc<Config>,
    role: Role,
    remote: Remote,
    local: Local,
    phase: Phase,
    session: Option<Box<Session>>,
    /// Cookie of the peer, kept while it may have to be sent again.
    cookie: Bytes,
    queues: Queues,
    channels: Channels,
    resets: Resets,
    timers: Timers,
    control: VecDeque<Control>,
    events: Events,
    rto: Rto,
    stats: Stats,
}

impl Association {
    /// Creates an association that waits for [`Association::connect`] or for the peer. The seed must be
    /// different for every association.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>, role: Role, remote: Remote, seed: &Seed) -> Self {
        let mut random = seed.derive("sctp", 0).random();
        let mut number = || {
            let [a, b, c, d, ..] = random.u64().to_be_bytes();
            u32::from_be_bytes([a, b, c, d])
        };
        // §3.3.2: a tag must not be zero.
        let (tag, tsn) = (number().max(1), number());
        let rto = Rto::new(config.rto_initial, config.rto_min, config.rto_max);
        Self {
            role,
            remote,
            local: Local { tag, tsn, cookies: Cookies::new(now, seed), random },
            phase: Phase::Idle,
            session: None,
            cookie: Bytes::new(),
            queues: Queues::default(),
            channels: Channels::default(),
            resets: Resets::new(tsn),
            timers: Timers::default(),
            control: VecDeque::new(),
            events: Events::default(),
            rto,
            stats: Stats::default(),
            config,
        }
    }

    /// Returns the next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        let window = self.receive_window();
        if let Some(session) = &mut self.session
            && window.saturating_sub(session.told) >= self.config.receive_buffer_bytes / 2
        {
            // The peer may be waiting for the window to open (§6.2).
            session.ack_due = true;
        }
        Some(event)
    }

    /// Writes the next packet to `out`, which is cleared first. Returns false if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        let is_one = self.write_control(out) || self.write_data(now, out);
        if is_one {
            seal(out);
            count(&mut self.stats.packets.sent, 1);
        }
        is_one
    }

    /// Returns the next deadline; `None` after the end.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// True after [`Event::Connected`] and before the end.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// True if the association has ended. A final packet may still have to be sent.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Returns the number of bytes that [`Association::send`] accepts before the buffer is full.
    #[must_use]
    pub fn room(&self) -> usize {
        self.config.send_buffer_bytes.saturating_sub(self.buffered())
    }

    /// Statistics of the association.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.abandoned = stats.abandoned.saturating_add(self.queues.expired);
        stats.buffered = (self.buffered(), self.received_bytes());
        stats.round_trip = self.rto.round_trip();
        stats.channels = self.channels.len();
        if let Some(session) = &self.session {
            stats.retransmitted = stats.retransmitted.saturating_add(session.flight.retransmitted);
            stats.abandoned = stats.abandoned.saturating_add(session.flight.abandoned);
            (stats.window, stats.in_flight) = (session.flight.window(), session.flight.in_flight());
        }
        stats
    }

    /// Bytes in the send buffer.
    fn buffered(&self) -> usize {
        let flight = self.session.as_ref().map_or(0, |session| session.flight.held());
        self.queues.held().saturating_add(flight)
    }

    /// Bytes in the receive buffer.
    fn received_bytes(&self) -> usize {
        let waiting = self
            .session
            .as_ref()
            .map_or(0, |session| session.reassembly.held().saturating_add(session.order.held()));
        waiting.saturating_add(self.events.held)
    }

    fn receive_window(&self) -> usize {
        self.config.receive_buffer_bytes.saturating_sub(self.received_bytes())
    }

    /// Queues a control chunk for the peer.
    fn push_control(&mut self, kind: u8, flags: u8, value: &[u8]) {
        let tag = self.session.as_ref().map_or(0, |session| session.agreed.tag);
        self.push_control_to(tag, kind, flags, value);
    }

    fn push_control_to(&mut self, tag: u32, kind: u8, flags: u8, value: &[u8]) {
        let most = self.config.packet_bytes_max.saturating_sub(HEAD_BYTES).saturating_sub(CHUNK_HEAD_BYTES);
        if self.control.len() >= CONTROL_CHUNKS_MAX || value.len() > most {
            return count(&mut self.stats.dropped, 1);
        }
        let alone = matches!(kind, chunk::INIT | chunk::INIT_ACK | chunk::SHUTDOWN_COMPLETE | chunk::ABORT);
        let mut bytes = Vec::new();
        write_chunk(&mut bytes, kind, flags, &[value]);
        self.control.push_back(Control { tag, alone, bytes });
    }

    fn head(&self, tag: u32) -> Head {
        Head { source: self.config.port, destination: self.remote.port, tag }
    }

    /// Writes a packet with control chunks.
    fn write_control(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(first) = self.control.pop_front() else { return false };
        self.head(first.tag).write(out);
        out.extend_from_slice(&first.bytes);
        while !first.alone
            && let Some(next) = self.control.front()
            && !next.alone
            && next.tag == first.tag
            && out.len().saturating_add(next.bytes.len()) <= self.config.packet_bytes_max
            && let Some(next) = self.control.pop_front()
        {
            out.extend_from_slice(&next.bytes);
        }
        true
    }

    /// Writes a packet with an acknowledgement, a `FORWARD TSN`, and data.
    fn write_data(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let window = self.receive_window();
        let Some(session) = &mut self.session else { return false };
        if self.phase < Phase::Established {
            return false;
        }
        let may_send = self.phase.sends() && session.flight.may_send(&self.queues);
        Head { source: self.config.port, destination: self.remote.port, tag: session.agreed.tag }.write(out);
        let most = self.config.packet_bytes_max;
        if session.ack_due || (may_send && session.ack_packets > 0) {
            (session.ack_due, session.ack_packets, session.told) = (false, 0, window);
            self.timers.ack = None;
            let room = most.saturating_sub(HEAD_BYTES).saturating_sub(CHUNK_HEAD_BYTES);
            let window = u32::try_from(window).unwrap_or(u32::MAX);
            write_chunk(out, chunk::SACK, 0, &[&session.received.write_sack(window, room)]);
        }
        let room = most.saturating_sub(out.len()).saturating_sub(CHUNK_HEAD_BYTES);
        if self.phase.sends()
            && room > 64
            && let Some(forward) = session.flight.take_forward(room)
        {
            write_chunk(out, chunk::FORWARD_TSN, 0, &[&forward]);
        }
        if may_send {
            let room = most.saturating_sub(out.len());
            let whole = most.saturating_sub(HEAD_BYTES);
            if session.flight.fill(now, &mut self.queues, room, whole, out) > 0 {
                self.timers.start_retransmit(now, self.rto.current());
                self.timers.start_heartbeat(now, self.config.heartbeat_interval);
            }
        }
        let has_chunks = out.len() > HEAD_BYTES;
        if !has_chunks {
            out.clear();
        }
        has_chunks
    }

    /// Handles messages in delivery order.
    fn deliver(&mut self, now: Instant, ready: &mut VecDeque<Message>) {
        while let Some(message) = ready.pop_front() {
            self.handle_message(now, message);
        }
    }

    /// Performs actions that have become possible: stream resets, the next step of a shutdown, and the event
    /// for free room.
    fn settle(&mut self, now: Instant) {
        if self.phase == Phase::Closed {
            return;
        }
        self.perform_reset(now);
        self.request_resets(now);
        self.step_shutdown(now);
        if self.events.wants_room && self.buffered() <= self.config.send_buffer_bytes / 2 {
            self.events.wants_room = false;
            self.events.push(Event::Writable);
        }
    }

    /// Ends the association. Queued data is dropped; control chunks can still be sent.
    fn end(&mut self, reason: CloseReason) {
        if self.phase == Phase::Closed {
            return;
        }
        let stats = self.stats();
        self.stats = Stats { window: 0, in_flight: 0, buffered: (0, 0), channels: 0, ..stats };
        self.phase = Phase::Closed;
        self.session = None;
        self.queues = Queues::default();
        self.channels = Channels::default();
        self.resets = Resets::new(0);
        self.timers = Timers::default();
        self.events.push(Event::Closed(reason));
    }
}
