//! Connections: caller or listener, from the handshake to the shutdown.
//!
//! ```text
//!      caller                                   listener (port: crate::Endpoint)
//!  1.  induction  ------------------------->    no state
//!      <----------------------  induction with cookie
//!  2.  conclusion, cookie, HSREQ, stream id, KMREQ  -->   Incoming; the application decides
//!      <----------------------  conclusion, HSRSP, KMRSP; or a refusal
//!  3.  data  ------------------------------>    (and the other way)
//!      <----------------------  ACK each 10 ms, light ACK each 64 packets; NAK at a gap and later
//!      ACKACK, data again, DROPREQ  -------->
//!  4.  keep-alive after a second of silence, KMREQ and KMRSP for new keys
//!  5.  shutdown
//! ```

mod call;
mod clock;
mod filtering;
mod keying;
mod link;
mod liveness;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};
use wire::{Datagrams, Reader};

use self::call::{Answer, Call};
use self::link::{Link, Start};
use crate::cipher::SessionKeys;
use crate::config::Config;
use crate::event::{CloseReason, Event, SendError};
use crate::handshake::{Handshake, extension, request};
use crate::incoming::{Incoming, write_rejection};
use crate::km::KmError;
use crate::packet::{Control, ControlWriter, Packet, SocketId};
use crate::reject::RejectReason;
use crate::stats::Stats;

/// Maximum number of queued datagrams that contain no payload: handshakes, key messages, the shutdown.
const OUT_MAX: usize = 8;

/// The state of a connection.
#[derive(Debug)]
enum State {
    /// The local side calls the peer.
    Calling(Box<Call>),
    /// The peer has called, and the application has not decided yet whether to accept it.
    Pending(Box<Incoming>),
    /// The connection is established.
    Connected(Box<Link>),
    /// The connection has ended.
    Closed,
}

/// An SRT connection in live mode. It does not know addresses: the owner sends its output to the peer, and passes in
/// only datagrams that came from the peer.
#[derive(Debug)]
pub struct Connection {
    local: SocketId,
    start: Instant,
    random: Random,
    state: State,
    out: VecDeque<Bytes>,
    event: Option<Event>,
    closed: Option<CloseReason>,
    last_stats: Option<Box<Stats>>,
    /// Keys of a pending caller, set when [`Connection::unlock`] has succeeded. The inner `None` means that the
    /// connection is not encrypted.
    unlocked: Option<Option<Box<SessionKeys>>>,
}

impl Connection {
    /// Creates the listener's end of `incoming`. No answer is sent before [`Connection::accept`] or
    /// [`Connection::reject`]. The owner draws `local`, which must not be 0 and not be in use at the port.
    #[must_use]
    pub fn incoming(now: Instant, incoming: Incoming, local: SocketId, seed: &Seed) -> Self {
        let start = now.min(incoming.arrived);
        Self::new(start, local, seed, State::Pending(Box::new(incoming)))
    }

    /// Creates a caller's end. A stream id of more than 512 bytes is truncated. The first handshake request is ready to
    /// be sent.
    ///
    /// With a passphrase this derives a key, which takes about a millisecond.
    #[must_use]
    pub fn caller(now: Instant, config: Arc<Config>, local: SocketId, stream_id: &str, seed: &Seed) -> Self {
        let mut random = seed.derive("srt caller", u64::from(local.0)).random();
        let call = Call::new(now, config, local, stream_id, &mut random);
        let mut connection = Self::new(now, local, seed, State::Calling(Box::new(call)));
        connection.handle_timeout(now);
        connection
    }

    fn new(start: Instant, local: SocketId, seed: &Seed, state: State) -> Self {
        let random = seed.derive("srt connection", u64::from(local.0)).random();
        let (out, event, closed) = (VecDeque::new(), None, None);
        Self { local, start, random, state, out, event, closed, last_stats: None, unlocked: None }
    }

    /// Checks a caller's packet filter and key material against the settings, so that an unsuitable caller can be
    /// refused before its request is authorized. [`Connection::accept`] with the same settings does not repeat the
    /// check.
    ///
    /// With a passphrase this derives a key, which takes 0.3 to 0.6 ms.
    ///
    /// # Errors
    /// The reason with which to refuse the caller.
    pub fn unlock(&mut self, config: &Config) -> Result<(), RejectReason> {
        let State::Pending(incoming) = &self.state else { return Ok(()) };
        incoming.agree_on_filter(&config.packet_filter)?;
        let keys = match (&config.passphrase, &incoming.km) {
            (None, None) => None,
            (Some(passphrase), Some(km)) => {
                let keys = SessionKeys::open(passphrase, km, self.random.clone());
                Some(Box::new(keys.map_err(|_: KmError| RejectReason::BADSECRET)?))
            }
            (Some(_), None) | (None, Some(_)) => return Err(RejectReason::UNSECURE),
        };
        self.unlocked = Some(keys);
        Ok(())
    }

    /// Accepts a caller. If the passphrases differ, the caller is refused and the connection ends with
    /// [`CloseReason::Refused`].
    pub fn accept(&mut self, now: Instant, config: Arc<Config>) {
        if self.unlocked.is_none()
            && let Err(reason) = self.unlock(&config)
        {
            return self.reject(now, reason);
        }
        let keys = self.unlocked.take().flatten();
        let State::Pending(incoming) = std::mem::replace(&mut self.state, State::Closed) else { return };
        let (link, response) =
            Start::of_incoming(&incoming, &config, self.start, self.local, keys).finish(now);
        self.event = Some(Event::Connected(link.connected()));
        self.state = State::Connected(Box::new(link));
        self.push_out(response);
    }

    /// Refuses a caller.
    pub fn reject(&mut self, now: Instant, reason: RejectReason) {
        let State::Pending(incoming) = &self.state else { return };
        let mut out = Vec::new();
        write_rejection(&incoming.handshake, incoming.from(), self.timestamp(now), reason, &mut out);
        self.push_out(out.into());
        self.end(CloseReason::Refused(reason));
    }

    /// True if [`Connection::handle_datagram`] would derive a key from the passphrase for this datagram, which takes
    /// about a millisecond. An owner of many connections may drop such a datagram; the peer repeats it.
    #[must_use]
    pub fn derives(&self, now: Instant, datagram: &[u8]) -> bool {
        // Nearly all datagrams are of other kinds. Their first two bytes show this, so they are not parsed here; they
        // are parsed later anyway.
        if datagram.first_chunk() != Some(&KEY_MESSAGE) {
            return false;
        }
        let State::Connected(link) = &self.state else { return false };
        let Ok(Packet::Control { control: Control::User(extension::KM_REQUEST, body), .. }) =
            Packet::read(datagram)
        else {
            return false;
        };
        link.keying.derives(now, body)
    }

    /// Handles a datagram of the peer.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let Ok(packet) = Packet::read(datagram) else {
            if let State::Connected(link) = &mut self.state {
                link.count_malformed();
            }
            return;
        };
        match &mut self.state {
            State::Calling(_) => self.handle_answer(now, &packet),
            State::Connected(link) => {
                let handshake = matches!(packet, Packet::Control { control: Control::Handshake(_), .. });
                if handshake && let Some(response) = link.response(now, &packet) {
                    return self.push_out(response);
                }
                if let Some(reason) = link.handle_packet(now, packet, datagram.len()) {
                    self.end(reason);
                }
            }
            // A pending caller repeats its request until the application has decided.
            State::Pending(_) | State::Closed => {}
        }
    }

    fn handle_answer(&mut self, now: Instant, packet: &Packet<'_>) {
        let State::Calling(call) = &mut self.state else { return };
        let Packet::Control { timestamp, to, control: Control::Handshake(body) } = packet else { return };
        let mut r = Reader::new(body);
        let Ok(handshake) = Handshake::read(&mut r) else { return };
        if *to != self.local {
            return;
        }
        match call.handle(now, &handshake, r) {
            Answer::Nothing => {}
            Answer::Again => self.handle_timeout(now),
            Answer::Ended(reason) => self.end(reason),
            Answer::Agreed(agreed) => {
                let start = call.agree(&handshake, &agreed, self.start, *timestamp);
                let (link, _) = start.finish(now);
                self.event = Some(Event::Connected(link.connected()));
                self.state = State::Connected(Box::new(link));
            }
        }
    }

    /// Handles an expired deadline.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.state {
            State::Calling(call) if call.is_over(now) => self.end(CloseReason::ConnectTimeout),
            State::Calling(call) => {
                if let Some(datagram) = call.question(now, self.start) {
                    self.push_out(datagram);
                }
            }
            State::Connected(link) => {
                if let Some(reason) = link.handle_timeout(now) {
                    self.end(reason);
                }
            }
            State::Pending(_) | State::Closed => {}
        }
    }

    /// Queues one message, with the time of this call as its timestamp. [`Connection::poll_transmit`] sends the
    /// message. It is kept until the peer acknowledges it or it is too late to be retransmitted.
    pub fn send(&mut self, now: Instant, payload: Bytes) -> Result<(), SendError> {
        match &mut self.state {
            State::Connected(link) if self.closed.is_none() => link.send(now, payload),
            State::Connected(_) | State::Calling(_) | State::Pending(_) | State::Closed => {
                Err(SendError::NotConnected)
            }
        }
    }

    /// Ends the connection and sends a shutdown. Unsent data is discarded.
    pub fn close(&mut self, now: Instant, reason: CloseReason) {
        if self.closed.is_some() {
            return;
        }
        if let State::Connected(link) = &self.state {
            let mut out = Vec::new();
            link.writer(now).write(&Control::Shutdown, &mut out);
            self.push_out(out.into());
        }
        if !matches!(self.state, State::Closed) {
            self.end(reason);
        }
    }

    /// Returns the next event for the owner. After `None`, there is no event until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.event.take() {
            return Some(event);
        }
        if let State::Connected(link) = &mut self.state {
            // If the peer has ended the connection, the remaining packets are delivered at once.
            let flush = self.closed.is_some_and(|reason| reason != CloseReason::Local);
            let delivery = if self.closed.is_some() && !flush { None } else { link.deliver(flush) };
            if delivery.is_some() {
                return delivery;
            }
        }
        let reason = self.closed.filter(|_| !matches!(self.state, State::Closed))?;
        if let State::Connected(link) = &self.state {
            self.last_stats = Some(Box::new(link.stats()));
        }
        self.state = State::Closed;
        Some(Event::Closed(reason))
    }

    /// True if there may be something to send now. If false, [`Connection::poll_transmit`] would write nothing and need
    /// not be called; this is often so, because most acknowledgements need no answer.
    #[must_use]
    pub fn has_transmit(&self, now: Instant) -> bool {
        let may_send = |link: &Link| self.closed.is_none() && link.has_transmit(now);
        !self.out.is_empty() || self.link().is_some_and(may_send)
    }

    /// True if there is neither an event to poll nor a datagram to send now, and the deadline is no earlier than before
    /// the last input, as after most acknowledgements. An owner of many connections need not drain such a connection.
    #[must_use]
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.event.is_none()
            && self.closed.is_none()
            && !self.has_transmit(now)
            && self.link().is_some_and(Link::is_quiet)
    }

    /// Appends datagrams to send now to `out`, until it is full. Returns true if it added any. A shutdown may still
    /// have to be sent after the connection has ended.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Datagrams) -> bool {
        let before = out.len();
        let announced = !cfg!(debug_assertions) || self.has_transmit(now);
        while let Some(datagram) = self.out.pop_front() {
            if !out.has_room(datagram.len()) {
                self.out.push_front(datagram);
                return out.len() > before;
            }
            out.push(&[], &datagram);
        }
        if let State::Connected(link) = &mut self.state
            && self.closed.is_none()
        {
            link.poll_transmit(now, out);
        }
        debug_assert!(announced || out.len() == before, "has_transmit said that there was nothing to send");
        out.len() > before
    }

    /// Returns the next deadline. While a connection only sends, its deadline does not change with every packet, but a
    /// few times per second.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        match &self.state {
            State::Calling(call) => Some(call.deadline()),
            State::Connected(link) => link.deadline(),
            State::Pending(_) | State::Closed => None,
        }
    }

    /// Returns the current statistics, or the last ones if the connection has ended.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match &self.state {
            State::Connected(link) => link.stats(),
            State::Calling(_) | State::Pending(_) | State::Closed => {
                self.last_stats.as_deref().copied().unwrap_or_default()
            }
        }
    }

    /// Returns the socket id of this end.
    #[must_use]
    pub const fn local(&self) -> SocketId {
        self.local
    }

    /// True if payload can be sent.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_)) && self.closed.is_none()
    }

    /// True if the connection has ended, its last event was polled, and nothing is left to send.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closed) && self.event.is_none() && self.out.is_empty()
    }

    /// Returns the receive and the send latency; `None` before the connection is established.
    #[must_use]
    pub fn latencies(&self) -> Option<(Duration, Duration)> {
        self.link().map(Link::latencies)
    }

    /// Returns the number of bytes that [`Connection::send`] would accept now.
    #[must_use]
    pub fn send_room(&self) -> usize {
        self.link().map_or(0, Link::send_room)
    }

    /// Returns the number of queued bytes: those that were neither acknowledged nor given up.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.link().map_or(0, Link::queued_bytes)
    }

    /// True if messages wait in this connection because the path carries less than is sent ([`Config::adapts`]). An
    /// owner that keeps further messages back as long as this is true can still discard some of them.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.link().is_some_and(Link::is_behind)
    }

    fn link(&self) -> Option<&Link> {
        match &self.state {
            State::Connected(link) => Some(link),
            State::Calling(_) | State::Pending(_) | State::Closed => None,
        }
    }

    fn push_out(&mut self, datagram: Bytes) {
        if self.out.len() < OUT_MAX {
            self.out.push_back(datagram);
        }
    }

    fn end(&mut self, reason: CloseReason) {
        if self.closed.is_none() {
            tracing::debug!(?reason, "connection ends");
            self.closed = Some(reason);
        }
    }

    fn timestamp(&self, now: Instant) -> u32 {
        crate::incoming::micros(self.start, now)
    }
}

/// First two bytes of a datagram with an extension message: the control bit and the message type.
const KEY_MESSAGE: [u8; 2] = (0x8000 | crate::packet::kind::USER).to_be_bytes();

/// Writes a handshake as a datagram.
fn handshake_datagram(timestamp: u32, to: SocketId, handshake: &Handshake, extensions: &[u8]) -> Bytes {
    let mut body = Vec::new();
    handshake.write(&mut body);
    body.extend_from_slice(extensions);
    let mut out = Vec::new();
    ControlWriter { timestamp, to }.write(&Control::Handshake(&body), &mut out);
    debug_assert!(handshake.request == request::INDUCTION || handshake.request == request::CONCLUSION);
    out.into()
}
