//! The port shared by all clients: finds the allocation for a message, and decides about new allocations.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::stun::{BINDING, Class, ErrorCode, TransactionId};

use crate::allowance::Allowance;
use crate::attribute::{Family, UDP, method};
use crate::config::Config;
use crate::credentials::{Key, user_of};
use crate::limits::{LIFETIME, LIFETIME_MAX};
use crate::nonce::Nonces;
use crate::quotas::{Full, Holder, Quotas};
use crate::request::Request;
use crate::respond::{begin, is_challenge, refuse};

/// A client, identified by the 5-tuple (RFC 8656 §3.2). IPv4 addresses must not be IPv4-mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    /// Remote address of the client.
    pub address: SocketAddr,
    /// Local address to which the client sends, if known.
    pub local: Option<IpAddr>,
    /// Number of the client's connection; `None` over UDP.
    pub connection: Option<u64>,
}

/// Destination of a message.
#[derive(Debug)]
pub enum Route<K> {
    /// The allocation with this name; the message must be passed to [`crate::Allocation::handle_datagram`].
    Session(K),
    /// A client requests an allocation, and is allowed to have one.
    New(Box<Incoming>),
    /// No allocation; a reply was written.
    Reply,
    /// No destination; the message is ignored.
    Drop(DropReason),
}

/// The reason a message is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The message is not a STUN request, and its client has no allocation.
    Unknown,
    /// Too many answers were sent recently, to the client's network or in total.
    TooMany,
}

/// Counters of messages that belong to no allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Requests answered with a challenge, because credentials were missing or wrong.
    pub challenged: u64,
    /// Requests with valid credentials that were refused because of a limit.
    pub full: u64,
    /// Requests not answered because there were too many.
    pub unanswered: u64,
}

/// A client that may have an allocation, with its request.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) client: Client,
    pub(crate) user: Box<[u8]>,
    pub(crate) key: Key,
    pub(crate) id: TransactionId,
    pub(crate) family: Family,
    pub(crate) lifetime: Duration,
    /// True if an address of the other family was requested, too.
    pub(crate) additional: bool,
    pub(crate) config: Arc<Config>,
    pub(crate) nonces: Nonces,
    holder: Holder,
}

impl Incoming {
    /// Client that sent the request.
    #[must_use]
    pub const fn client(&self) -> Client {
        self.client
    }

    /// The user, without the expiry time in the user name.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        user_of(&self.user)
    }
}

/// A TURN port, as described in the module. `K` is the application's key of an allocation.
#[derive(Debug)]
pub struct Endpoint<K> {
    config: Arc<Config>,
    nonces: Nonces,
    allowance: Allowance,
    quotas: Quotas,
    clients: HashMap<Client, K>,
    allocations: HashMap<K, (Client, Holder)>,
    stats: EndpointStats,
}

impl<K: Copy + Eq + Hash> Endpoint<K> {
    /// Creates an endpoint without allocations. Endpoints with the same seed accept each other's nonces.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>, seed: &Seed) -> Self {
        Self {
            config,
            nonces: Nonces::new(seed),
            allowance: Allowance::new(now, seed),
            quotas: Quotas::default(),
            clients: HashMap::new(),
            allocations: HashMap::new(),
            stats: EndpointStats::default(),
        }
    }

    /// Replaces the configuration for future allocations.
    pub fn set_config(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// Returns the allocation of a client; `None` if the client has no allocation.
    #[must_use]
    pub fn session(&self, client: &Client) -> Option<K> {
        self.clients.get(client).copied()
    }

    /// Returns the destination of a message. If the client has no allocation, the message is answered, or
    /// requests one.
    pub fn route(&mut self, now: Instant, client: Client, message: &[u8], reply: &mut Vec<u8>) -> Route<K> {
        if let Some(key) = self.session(&client) {
            return Route::Session(key);
        }
        let request = Request::read(message).filter(|request| request.message.class() == Class::Request);
        let Some(request) = request else { return Route::Drop(DropReason::Unknown) };
        if request.is_request(BINDING) {
            return self.answer_unproved(now, client, || {
                begin(reply, &request, Class::Success).mapped_address(client.address).finish_open();
            });
        }
        let config = Arc::clone(&self.config);
        match request.authenticate(now, client.address, (&config, &self.nonces), None) {
            Err(code) => {
                let nonce = self.nonces.make(config.unix(now), client.address);
                let challenge = is_challenge(code).then_some((config.realm.as_str(), nonce));
                self.stats.challenged = self.stats.challenged.saturating_add(1);
                self.answer_unproved(now, client, || refuse(reply, &request, code, None, challenge))
            }
            Ok(key) => match self.check(client, &request, key) {
                Ok(incoming) => Route::New(Box::new(incoming)),
                Err(code) => {
                    refuse(reply, &request, code, Some(key), None);
                    Route::Reply
                }
            },
        }
    }

    /// Answers a client whose address is not verified, unless too many answers were sent.
    fn answer_unproved(&mut self, now: Instant, client: Client, answer: impl FnOnce()) -> Route<K> {
        // A client with a connection has already proved its address.
        if client.connection.is_none() && !self.allowance.take(now, client.address.ip()) {
            self.stats.unanswered = self.stats.unanswered.saturating_add(1);
            return Route::Drop(DropReason::TooMany);
        }
        answer();
        Route::Reply
    }

    /// Checks the Allocate request of a client without an allocation (RFC 8656 §7.2).
    fn check(&mut self, client: Client, request: &Request<'_>, key: Key) -> Result<Incoming, ErrorCode> {
        if !request.is_request(method::ALLOCATE) {
            return Err(ErrorCode::ALLOCATION_MISMATCH);
        }
        if !request.unknown.is_empty() {
            return Err(ErrorCode::UNKNOWN_ATTRIBUTE);
        }
        let is_one_of_two = request.reservation && (request.even_port || request.family.is_some())
            || request.additional.is_some_and(|family| family != Some(Family::V6))
            || request.additional.is_some() && (request.family.is_some() || request.reservation);
        let transport = request.transport.filter(|_| !request.is_malformed && !is_one_of_two);
        if transport.ok_or(ErrorCode::BAD_REQUEST)? != UDP {
            return Err(ErrorCode::TRANSPORT_NOT_SUPPORTED);
        }
        if request.reservation || request.even_port {
            return Err(ErrorCode::INSUFFICIENT_CAPACITY);
        }
        let family = request.family.unwrap_or(Some(Family::V4));
        let reachable = family.filter(|family| self.config.peers.first(*family).is_some());
        let family = reachable.ok_or(ErrorCode::FAMILY_NOT_SUPPORTED)?;
        let user = request.message.username().unwrap_or_default();
        let holder = Holder::new(client.address.ip(), user_of(user));
        self.quotas.check(&holder, self.config.caps).map_err(|full| {
            self.stats.full = self.stats.full.saturating_add(1);
            match full {
                Full::Own => ErrorCode::QUOTA_REACHED,
                Full::Total => ErrorCode::INSUFFICIENT_CAPACITY,
            }
        })?;
        Ok(Incoming {
            client,
            user: user.into(),
            key,
            id: request.message.transaction_id(),
            family,
            lifetime: lifetime(request.lifetime),
            additional: request.additional.is_some(),
            config: Arc::clone(&self.config),
            nonces: self.nonces.clone(),
            holder,
        })
    }

    /// Routes the client's messages to the allocation `key`. Returns false and changes nothing if the client
    /// already has an allocation, or `key` is already in use.
    pub fn insert(&mut self, incoming: &Incoming, key: K) -> bool {
        if self.clients.contains_key(&incoming.client) || self.allocations.contains_key(&key) {
            return false;
        }
        self.quotas.add(&incoming.holder);
        self.clients.insert(incoming.client, key);
        self.allocations.insert(key, (incoming.client, incoming.holder.clone()));
        true
    }

    /// Removes an allocation.
    pub fn remove(&mut self, key: K) {
        if let Some((client, holder)) = self.allocations.remove(&key) {
            self.clients.remove(&client);
            self.quotas.subtract(&holder);
        }
    }

    /// The number of allocations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.allocations.len()
    }

    /// True if there are no allocations and no state remains of former ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.clients.is_empty() && self.quotas.is_empty()
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> EndpointStats {
        self.stats
    }
}

/// Returns the lifetime of an allocation for a request of this many seconds, other than 0 (RFC 8656 §7.2).
pub(crate) fn lifetime(asked: Option<u32>) -> Duration {
    let asked = asked.map_or(LIFETIME, |seconds| Duration::from_secs(u64::from(seconds)));
    asked.clamp(LIFETIME, LIFETIME_MAX)
}
