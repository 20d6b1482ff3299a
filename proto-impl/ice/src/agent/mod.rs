//! The full agent of a client, or of one of two equal peers (RFC 8445; trickle ICE, RFC 8838; consent, RFC
//! 7675).
//!
//! 1. The owner supplies local addresses and the peer's credentials and candidates, in any order and at any
//!    time. Each local address forms a pair with each remote address of the same family. Requests from other
//!    addresses create peer-reflexive candidates.
//! 2. Every `ta`, one pair is checked; pairs that the peer has just checked come first. Unanswered checks are
//!    retransmitted.
//! 3. The first successful check selects its pair, so that the DTLS handshake can begin. The controlling side
//!    nominates the best valid pair once no better one is still being checked, or after `nominate_after`; the
//!    controlled side follows.
//! 4. The selected pair is checked every five seconds. After eight seconds without an answer, the controlling
//!    side selects another pair that answers; after thirty seconds without any answer, the agent ends.
//! 5. A restart returns to step 1 with new credentials, while media continues on the old pair.
//!
//! Checks of the selected pair carry USE-CANDIDATE, as in Chromium: if a NAT changes our port, the peer follows
//! within seconds. TCP candidates are not paired, and TURN is not supported.

mod checklist;
mod config;
mod drive;
mod receive;
#[cfg(test)]
mod tests;
mod transactions;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crypto::{Random, Seed};

use crate::candidate::{Candidate, CandidateKind, Transport};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::event::{CloseReason, Event};
use crate::limits::{CANDIDATES_MAX, LOCALS_MAX};
use crate::outbox::Outbox;
use crate::path::{Path, Transmit};
use crate::stats::{Stats, count};
use checklist::{CheckList, Pair, PairState};
use transactions::{Purpose, Transactions};

pub use config::{Config, Role};

/// Credentials of both sides between two restarts.
#[derive(Debug)]
struct Generation {
    number: u32,
    local: Credentials,
    remote: Option<Credentials>,
}

/// A remote candidate address.
#[derive(Debug)]
struct Remote {
    address: SocketAddr,
    priority: u32,
    kind: CandidateKind,
}

/// The pair that media uses.
#[derive(Debug, Clone, Copy)]
struct Selected {
    path: Path,
    generation: u32,
    /// True if the pair was nominated; false if it is merely the first pair whose check succeeded.
    is_nominated: bool,
}

/// Candidate addresses of both sides, and pending requests for reflexive addresses.
#[derive(Debug, Default)]
struct Candidates {
    locals: Vec<Candidate>,
    reflexive: Vec<Candidate>,
    remotes: Vec<Remote>,
    /// Local addresses, each with a STUN server to query for the reflexive address.
    gathers: VecDeque<(SocketAddr, SocketAddr)>,
}

/// The pair that media uses, and the search for a better pair.
#[derive(Debug, Default)]
struct Nomination {
    selected: Option<Selected>,
    /// Pair whose nomination has not been answered yet.
    nominating: Option<Path>,
    /// Time of the first successful check.
    first_valid: Option<Instant>,
}

/// Lifetime of the agent: start, end, and the times of pending actions.
#[derive(Debug)]
struct Life {
    connected: bool,
    connect_by: Instant,
    last_check: Option<Instant>,
    consent_at: Option<Instant>,
    closed: Option<CloseReason>,
    deadline: Option<Instant>,
}

impl Life {
    const fn new(connect_by: Instant) -> Self {
        Self {
            connected: false,
            connect_by,
            last_check: None,
            consent_at: None,
            closed: None,
            deadline: Some(connect_by),
        }
    }
}

/// The ICE agent of one session, described in the module.
#[derive(Debug)]
pub struct Agent {
    config: Arc<Config>,
    random: Random,
    role: Role,
    tie_breaker: u64,
    current: Generation,
    previous: Option<Generation>,
    candidates: Candidates,
    checks: CheckList,
    transactions: Transactions,
    nomination: Nomination,
    life: Life,
    events: VecDeque<Event>,
    out: Outbox,
    stats: Stats,
}

impl Agent {
    /// Creates an agent. Credentials, tie-breaker and all other random values are drawn from `seed`.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>, seed: &Seed) -> Self {
        let mut random = seed.derive("ice agent", 0).random();
        let tie_breaker = random.u64();
        let connect_by = now + config.connect_timeout;
        Self {
            role: config.role,
            config,
            random,
            tie_breaker,
            current: Generation { number: 0, local: Credentials::random(seed), remote: None },
            previous: None,
            candidates: Candidates::default(),
            checks: CheckList::default(),
            transactions: Transactions::default(),
            nomination: Nomination::default(),
            life: Life::new(connect_by),
            events: VecDeque::new(),
            out: Outbox::default(),
            stats: Stats::default(),
        }
    }

    /// Adds a local socket address and returns its candidate, to signal to the peer. The address added first
    /// is preferred.
    ///
    /// # Errors
    ///
    /// Fails for more than [`LOCALS_MAX`] addresses, for an address that no peer can reach, or if the agent has
    /// ended.
    pub fn add_local(&mut self, now: Instant, address: SocketAddr) -> Result<Candidate, Error> {
        if self.life.closed.is_some() {
            return Err(Error::Closed);
        }
        if let Some(known) = self.candidates.locals.iter().find(|local| local.address == address) {
            return Ok(*known);
        }
        if self.candidates.locals.len() >= LOCALS_MAX {
            return Err(Error::TooManyCandidates);
        }
        let candidate =
            Candidate::host(Transport::Udp, address, self.preference(self.candidates.locals.len()));
        if !candidate.is_reachable() {
            return Err(Error::UnusableCandidate);
        }
        self.candidates.locals.push(candidate);
        self.make_pairs();
        self.advance(now);
        Ok(candidate)
    }

    /// Requests the reflexive address of the local address `base` from the STUN server `server`.
    /// [`Event::Candidate`] reports it, unless it equals `base` or the server does not answer.
    ///
    /// # Errors
    ///
    /// Fails if `base` is not a local address, too many requests are pending, or the agent has ended.
    pub fn gather(&mut self, now: Instant, base: SocketAddr, server: SocketAddr) -> Result<(), Error> {
        if self.life.closed.is_some() {
            return Err(Error::Closed);
        }
        if !self.candidates.locals.iter().any(|local| local.address == base) {
            return Err(Error::UnusableCandidate);
        }
        if self.candidates.gathers.len() >= LOCALS_MAX {
            return Err(Error::TooManyCandidates);
        }
        self.candidates.gathers.push_back((base, server));
        self.advance(now);
        Ok(())
    }

    /// Sets the peer's credentials. `is_lite` is true if the peer is a lite agent (`a=ice-lite`), which makes
    /// this agent controlling (RFC 8445 §6.1.1).
    pub fn set_remote(&mut self, now: Instant, credentials: Credentials, is_lite: bool) {
        self.current.remote = Some(credentials);
        if is_lite && self.role == Role::Controlled {
            self.switch_role();
        }
        if !self.life.connected {
            self.life.connect_by = now + self.config.connect_timeout;
        }
        self.advance(now);
    }

    /// Adds a candidate of the peer; allowed at any time.
    ///
    /// # Errors
    ///
    /// Fails if the candidate is unusable (TCP, no port, not a unicast address), which is counted and harmless;
    /// if there are too many candidates; or if the agent has ended.
    pub fn add_remote(&mut self, now: Instant, candidate: &Candidate) -> Result<(), Error> {
        if self.life.closed.is_some() {
            return Err(Error::Closed);
        }
        if !candidate.is_reachable() {
            self.ignore_remote();
            return Err(Error::UnusableCandidate);
        }
        let remote =
            Remote { address: candidate.address, priority: candidate.priority, kind: candidate.kind };
        if let Some(known) = self.candidates.remotes.iter_mut().find(|known| known.address == remote.address)
        {
            // The peer has now signalled a candidate that was known as peer-reflexive (RFC 8838 §11.4). Its existing
            // pairs keep their priorities.
            *known = remote;
        } else if self.candidates.remotes.len() < CANDIDATES_MAX {
            self.candidates.remotes.push(remote);
            self.make_pairs();
        } else {
            return Err(Error::TooManyCandidates);
        }
        self.advance(now);
        Ok(())
    }

    /// Counts a candidate of the peer without a usable address, such as a `.local` name. The peer's own checks
    /// reveal its address, as a peer-reflexive candidate.
    pub const fn ignore_remote(&mut self) {
        count(&mut self.stats.candidates_ignored);
    }

    /// Creates new credentials for an offer or answer that restarts ICE (RFC 8445 §9). The peer's credentials
    /// and candidates must be set again; local sockets are kept. `seed` must differ from earlier ones.
    pub fn restart(&mut self, now: Instant, seed: &Seed) -> &Credentials {
        let number = self.current.number.wrapping_add(1);
        let next = Generation { number, local: Credentials::random(seed), remote: None };
        let before = std::mem::replace(&mut self.current, next);
        // After two restarts without a nomination, the selected pair still uses the oldest credentials, so
        // those are kept.
        if self.nomination.selected.is_none_or(|selected| selected.generation == before.number) {
            self.previous = Some(before);
        }
        let selected = self.nomination.selected.map(|selected| selected.path);
        self.expire(|pair| selected != Some(pair.path));
        self.checks.retain(|pair| selected == Some(pair.path));
        self.transactions.retain(|open| !matches!(open.purpose, Purpose::Check { .. }));
        self.candidates.remotes.clear();
        self.nomination.nominating = None;
        self.nomination.first_valid = None;
        self.advance(now);
        &self.current.local
    }

    /// Handles an expired deadline. Calling it early is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Ends the session. Queued datagrams may still be sent.
    pub fn close(&mut self, _now: Instant) {
        self.end(CloseReason::Local);
    }

    /// Returns the next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the next datagram to `out`.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.out.poll(out)
    }

    /// Returns the next deadline.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.life.deadline
    }

    /// True if data other than STUN may be accepted on `path`, because the peer at its other end knows the
    /// credentials.
    #[must_use]
    pub fn is_valid(&self, path: &Path) -> bool {
        self.checks.get(path).is_some_and(|pair| pair.valid_until.is_some())
    }

    /// The path that media uses; `None` until a path is selected.
    #[must_use]
    pub fn selected(&self) -> Option<Path> {
        self.nomination.selected.map(|selected| selected.path)
    }

    /// True if the selected pair was nominated, rather than merely being the first that worked.
    #[must_use]
    pub fn is_nominated(&self) -> bool {
        self.nomination
            .selected
            .is_some_and(|selected| selected.is_nominated && selected.generation == self.current.number)
    }

    /// Current role.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Our credentials, for the description.
    #[must_use]
    pub const fn local(&self) -> &Credentials {
        &self.current.local
    }

    /// Our candidates, for the description.
    pub fn local_candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.locals.iter().chain(&self.candidates.reflexive)
    }

    /// Number of pairs, at most [`crate::limits::CHECK_LIST_MAX`].
    #[must_use]
    pub const fn pairs(&self) -> usize {
        self.checks.len()
    }

    /// Number of remote candidates, at most [`CANDIDATES_MAX`].
    #[must_use]
    pub const fn remote_candidates(&self) -> usize {
        self.candidates.remotes.len()
    }

    /// Number of requests that may still be answered; at most [`crate::limits::TRANSACTIONS_MAX`].
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// True if the agent has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.life.closed.is_some()
    }

    /// Counters of the agent.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    fn preference(&self, index: usize) -> u16 {
        u16::MAX.saturating_sub(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Pairs every local address with every remote address of the same family (RFC 8445 §6.1.2.2).
    fn make_pairs(&mut self) {
        for local in &self.candidates.locals {
            for remote in &self.candidates.remotes {
                if local.address.is_ipv4() == remote.address.is_ipv4() {
                    let path = Path::udp(local.address, remote.address);
                    let pair = Pair::new(path, local.priority, remote.priority, self.current.number);
                    if !self.checks.add(pair, self.role) {
                        count(&mut self.stats.no_room);
                    }
                }
            }
        }
    }

    fn switch_role(&mut self) {
        self.role = self.role.other();
        // Draws a new tie-breaker: with equal ones, two sides would switch roles for ever (RFC 8445
        // §7.2.5.1).
        self.tie_breaker = self.random.u64();
        self.nomination.nominating = None;
        count(&mut self.stats.role_switches);
        tracing::debug!(role = ?self.role, "role switched");
    }

    /// Stops accepting data on the pairs for which `which` is true.
    fn expire(&mut self, which: impl Fn(&Pair) -> bool) {
        for pair in self.checks.iter_mut().filter(|pair| pair.valid_until.is_some()) {
            if which(pair) {
                pair.valid_until = None;
                pair.state = PairState::Failed;
                self.events.push_back(Event::Expired(pair.path));
            }
        }
    }

    fn end(&mut self, reason: CloseReason) {
        if self.life.closed.is_none() {
            tracing::debug!(?reason, "agent ends");
            self.life.closed = Some(reason);
            self.life.deadline = None;
            self.nomination.selected = None;
            self.checks.retain(|_| false);
            self.transactions.retain(|_| false);
            self.events.push_back(Event::Closed(reason));
        }
    }
}
