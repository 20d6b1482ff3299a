//! The allocation of one client (RFC 8656 §3.2): its lifetime, permissions and channels, and the data relayed
//! in both directions.
//!
//! ```text
//!     client --ChannelData, Send--> Allocation --bare datagrams--> peer
//!     client <--ChannelData, Data-- Allocation <--bare datagrams-- peer
//! ```

mod routes;
mod serve;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ice::stun::{AttributeType, Class, ErrorCode, MessageWriter, TransactionId};

use crate::allowance::Rate;
use crate::attribute;
use crate::attribute::{
    ADDRESS_ERROR_CODE, Family, LIFETIME, XOR_PEER_ADDRESS, XOR_RELAYED_ADDRESS, channel_data, method,
};
use crate::config::Config;
use crate::credentials::Key;
use crate::endpoint::{Client, Incoming};
use crate::limits::{BIND_TIMEOUT, QUEUE_DATAGRAMS_MAX, UNPROVED_ANSWERS_OF_CLIENT};
use crate::nonce::Nonces;
use crate::request::Request;
use routes::Routes;

/// An event of an allocation for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A relayed address is needed from which the [`crate::Peer::real`] addresses of this family can be
    /// reached. The owner must answer with [`Allocation::bound`].
    Bind(Family),
    /// The allocation has ended. Queued datagrams must still be sent.
    Closed(CloseReason),
}

/// Reason why an allocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client ended the allocation.
    Client,
    /// The lifetime has expired.
    Expired,
    /// No relayed address was available.
    NoAddress,
    /// The owner closed the allocation.
    Local,
}

/// Destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The client.
    Client,
    /// A peer, identified by its [`crate::Peer::real`] address.
    Peer(SocketAddr),
}

/// Description of a datagram appended to the owner's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Destination of the datagram.
    pub to: Destination,
    /// Number of bytes appended.
    pub length: usize,
}

/// Counters of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Payload bytes sent to peers.
    pub to_peers: u64,
    /// Payload bytes sent to the client.
    pub to_client: u64,
    /// Datagrams dropped because the peer is not permitted, in either direction.
    pub forbidden: u64,
    /// Datagrams dropped because of the bandwidth limit or a full queue.
    pub dropped: u64,
    /// Number of refused requests.
    pub refused: u64,
}

/// Bandwidth limit for one direction.
#[derive(Debug)]
pub struct Bandwidth {
    rate: Rate,
    bytes_per_second: u64,
}

impl Bandwidth {
    /// Maximum burst: the amount that the maximum rate allows in this time.
    const BURST: Duration = Duration::from_secs(1);

    /// Creates a limit of `bytes_per_second`.
    #[must_use]
    pub const fn new(now: Instant, bytes_per_second: u64) -> Self {
        Self { rate: Rate::new(now), bytes_per_second }
    }

    /// Returns true, and counts the bytes, if this many bytes are within the limit.
    pub fn take(&mut self, now: Instant, bytes: usize) -> bool {
        let nanos = u64::try_from(bytes).ok().and_then(|bytes| bytes.checked_mul(1_000_000_000));
        let price = nanos.and_then(|nanos| nanos.checked_div(self.bytes_per_second));
        price.is_some_and(|price| self.rate.take(now, Duration::from_nanos(price), Self::BURST))
    }
}

/// The client that owns an allocation.
#[derive(Debug)]
struct Owner {
    client: Client,
    user: Box<[u8]>,
    key: Key,
    nonces: Nonces,
    /// Limits answers to requests that may be forged.
    answers: Rate,
}

/// State of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A relayed address was requested from the owner.
    Binding,
    /// Open, with its relayed address.
    Open(SocketAddr),
    Closed,
}

/// Data of the Allocate request that created the allocation. A repetition of the request gets the same answer
/// (RFC 8656 §7.2).
#[derive(Debug)]
struct Asked {
    id: TransactionId,
    lifetime: Duration,
    additional: bool,
}

/// The allocation of one client, described in the module.
#[derive(Debug)]
pub struct Allocation {
    config: Arc<Config>,
    owner: Owner,
    asked: Asked,
    family: Family,
    state: State,
    until: Instant,
    routes: Routes,
    bandwidth: [Bandwidth; 2],
    queue: VecDeque<(Destination, Vec<u8>)>,
    event: VecDeque<Event>,
    stats: Stats,
}

impl Allocation {
    /// Creates an allocation, which then requests its relayed address.
    #[must_use]
    pub fn new(now: Instant, incoming: Incoming) -> Self {
        let Incoming { client, user, key, id, family, lifetime, additional, config, nonces, .. } = incoming;
        let bandwidth = || Bandwidth::new(now, config.bytes_per_second);
        Self {
            owner: Owner { client, user, key, nonces, answers: Rate::new(now) },
            asked: Asked { id, lifetime, additional },
            family,
            state: State::Binding,
            until: now + BIND_TIMEOUT,
            routes: Routes::default(),
            bandwidth: [bandwidth(), bandwidth()],
            queue: VecDeque::new(),
            event: VecDeque::from([Event::Bind(family)]),
            stats: Stats::default(),
            config,
        }
    }

    /// Answers [`Event::Bind`] with the relayed address, from which the client's datagrams are sent to peers;
    /// `None` if there is none. The relayed address must be the one that peers see, even if other hosts
    /// cannot reach it, because a client that checks paths expects to see this address.
    pub fn bound(&mut self, now: Instant, relayed: Option<SocketAddr>) {
        if self.state != State::Binding {
            return;
        }
        let Some(relayed) = relayed else {
            let mut out = Vec::new();
            MessageWriter::of_method(&mut out, method::ALLOCATE, Class::Error, self.asked.id)
                .error_code(ErrorCode::INSUFFICIENT_CAPACITY)
                .finish(&self.owner.key);
            self.queue(Destination::Client, out);
            return self.end(CloseReason::NoAddress);
        };
        self.state = State::Open(relayed);
        self.until = now + self.asked.lifetime;
        self.answer_allocate(relayed, self.asked.lifetime);
    }

    /// Handles a message of the client.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.handle_timeout(now);
        let State::Open(relayed) = self.state else { return };
        if let Some((channel, data)) = channel_data(datagram) {
            match self.routes.peer_of(now, channel) {
                Some((told, real)) => self.send(now, (told, real), data),
                None => self.stats.forbidden = self.stats.forbidden.saturating_add(1),
            }
            return;
        }
        let Some(request) = Request::read(datagram) else { return };
        match request.message.class() {
            Class::Request => self.serve(now, relayed, &request),
            Class::Indication if request.message.method() == method::SEND => {
                self.send_indication(now, &request);
            }
            Class::Indication | Class::Success | Class::Error => {}
        }
    }

    /// Handles a datagram of a peer, by its source address.
    pub fn handle_peer(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        self.handle_timeout(now);
        if !matches!(self.state, State::Open(_)) {
            return;
        }
        let Some((told, channel)) = self.routes.from(now, from, self.config.peers.told(from)) else {
            self.stats.forbidden = self.stats.forbidden.saturating_add(1);
            return;
        };
        if !self.takes(now, 1, datagram.len()) {
            return;
        }
        let mut out = Vec::with_capacity(datagram.len().saturating_add(64));
        match channel.zip(u16::try_from(datagram.len()).ok()) {
            Some((channel, length)) => {
                out.extend_from_slice(&channel.to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(datagram);
            }
            None => {
                // An indication has no answer, so its id need not be random, only different each time.
                let id = self.routes.indication_id();
                MessageWriter::of_method(&mut out, method::DATA, Class::Indication, id)
                    .xor_address(XOR_PEER_ADDRESS, told)
                    .attribute(attribute::DATA, datagram)
                    .finish_open();
            }
        }
        self.stats.to_client = self.stats.to_client.saturating_add(bytes(datagram));
        self.queue(Destination::Client, out);
    }

    /// Handles an expired deadline: the lifetime may have ended.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state != State::Closed && self.until <= now {
            let is_bound = matches!(self.state, State::Open(_));
            self.end(if is_bound { CloseReason::Expired } else { CloseReason::NoAddress });
        }
    }

    /// Closes the allocation.
    pub fn close(&mut self, _now: Instant) {
        self.end(CloseReason::Local);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.pop_front()
    }

    /// Returns the destination and length of the next datagram, without removing it.
    #[must_use]
    pub fn peek_transmit(&self) -> Option<(Destination, usize)> {
        self.queue.front().map(|(to, datagram)| (*to, datagram.len()))
    }

    /// Appends the next datagram to `out`.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (to, datagram) = self.queue.pop_front()?;
        out.extend_from_slice(&datagram);
        if self.queue.is_empty() {
            // Frees the queue's memory while the allocation is idle.
            self.queue = VecDeque::new();
        }
        Some(Transmit { to, length: datagram.len() })
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state != State::Closed).then_some(self.until)
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    fn end(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.routes = Routes::default();
            self.event.push_back(Event::Closed(reason));
        }
    }

    fn queue(&mut self, to: Destination, datagram: Vec<u8>) {
        if self.queue.len() < QUEUE_DATAGRAMS_MAX {
            self.queue.push_back((to, datagram));
        } else {
            self.stats.dropped = self.stats.dropped.saturating_add(1);
        }
    }

    /// Returns true, and counts the datagram, if it is within the bandwidth limit of its direction.
    fn takes(&mut self, now: Instant, direction: usize, length: usize) -> bool {
        let takes = self.bandwidth.get_mut(direction).is_some_and(|bandwidth| bandwidth.take(now, length));
        if !takes {
            self.stats.dropped = self.stats.dropped.saturating_add(1);
        }
        takes
    }

    fn send_indication(&mut self, now: Instant, request: &Request<'_>) {
        let (Some(told), Some(data)) = (request.peers.first().copied(), request.data) else { return };
        if !request.unknown.is_empty() || request.is_malformed {
            return;
        }
        match self.config.peers.real(told).filter(|_| self.routes.is_permitted(now, told.ip())) {
            Some(real) => self.send(now, (told, real), data),
            None => self.stats.forbidden = self.stats.forbidden.saturating_add(1),
        }
    }

    fn send(&mut self, now: Instant, (told, real): (SocketAddr, SocketAddr), data: &[u8]) {
        self.routes.sent(told, real);
        if self.takes(now, 0, data.len()) {
            self.stats.to_peers = self.stats.to_peers.saturating_add(bytes(data));
            self.queue(Destination::Peer(real), data.to_vec());
        }
    }

    fn answer_allocate(&mut self, relayed: SocketAddr, lifetime: Duration) {
        let mut out = Vec::new();
        let mut writer = MessageWriter::of_method(&mut out, method::ALLOCATE, Class::Success, self.asked.id)
            .xor_address(XOR_RELAYED_ADDRESS, relayed)
            .attribute(LIFETIME, &seconds(lifetime).to_be_bytes())
            .mapped_address(self.owner.client.address);
        if self.asked.additional {
            let [_, _, class, number] = ErrorCode::FAMILY_NOT_SUPPORTED.head();
            writer = writer.attribute(ADDRESS_ERROR_CODE, &[Family::V6.number(), 0, class, number]);
        }
        writer.attribute(AttributeType::SOFTWARE, b"millstream").finish(&self.owner.key);
        self.queue(Destination::Client, out);
    }

    /// Returns true if one more answer may be sent to a request that is refused or may be forged, and counts
    /// this answer.
    fn may_answer(&mut self, now: Instant) -> bool {
        self.owner.answers.take(
            now,
            Duration::from_secs(1) / UNPROVED_ANSWERS_OF_CLIENT,
            Duration::from_secs(1),
        )
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

fn bytes(datagram: &[u8]) -> u64 {
    u64::try_from(datagram.len()).unwrap_or(u64::MAX)
}
