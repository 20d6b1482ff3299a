//! The agent of a client, and of peers among each other (RFC 8445; trickle ICE, RFC 8838; consent, RFC 7675).
//!
//! 1. Local addresses and the peer's credentials and candidates come from the owner, in any order and at any time; each
//!    local and remote one of a family make a pair. Requests from elsewhere make peer-reflexive candidates.
//! 2. Every `ta` one pair is checked, the one that the peer has just checked first; unanswered checks go out again.
//! 3. The first check that succeeds selects its pair, for the handshake above to begin. The controlling side nominates the
//!    best valid pair once none better is open, or after `nominate_after`; the controlled side follows.
//! 4. The selected pair is checked every five seconds. Without answers for eight seconds the controlling side takes
//!    another pair that answers, after thirty seconds without any this is the end.
//! 5. A restart begins at 1 with new credentials, while media goes on by the pair of the old ones.
//!
//! The selected pair's checks carry USE-CANDIDATE, as those of Chromium do: the peer then follows within seconds when a NAT
//! has given this side another port. TCP candidates are not paired, TURN is not spoken.

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

/// An address at which the peer may be.
#[derive(Debug)]
struct Remote {
    address: SocketAddr,
    priority: u32,
    kind: CandidateKind,
}

/// The path that media takes.
#[derive(Debug, Clone, Copy)]
struct Selected {
    path: Path,
    generation: u32,
    /// Otherwise the first that worked.
    is_nominated: bool,
}

/// Addresses of both sides, and questions for our own.
#[derive(Debug, Default)]
struct Candidates {
    locals: Vec<Candidate>,
    reflexive: Vec<Candidate>,
    remotes: Vec<Remote>,
    /// Local addresses whose reflexive ones are to be asked for, and the server to ask.
    gathers: VecDeque<(SocketAddr, SocketAddr)>,
}

/// The pair that media takes, and the search for a better one.
#[derive(Debug, Default)]
struct Nomination {
    selected: Option<Selected>,
    /// The pair whose nomination is not answered yet.
    nominating: Option<Path>,
    /// The time of the first check that succeeded.
    first_valid: Option<Instant>,
}

/// From the first address to the end, with the times of what comes next.
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

/// The ICE agent of one session. See the module.
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
    /// With credentials, tie-breaker and all else drawn from `seed`.
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

    /// A socket of ours. Its candidate, for the peer to know, is what comes back; the first is preferred.
    ///
    /// # Errors
    ///
    /// More than [`LOCALS_MAX`], an address that no peer can reach, or the agent has ended.
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

    /// Asks `server`, a STUN server, how it sees the local address `base`; [`Event::Candidate`] tells, unless it sees
    /// `base` itself or does not answer.
    ///
    /// # Errors
    ///
    /// `base` is no local address, too many questions are open, or the agent has ended.
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

    /// The peer's credentials, and whether it is a lite agent (`a=ice-lite`): then we are controlling (RFC 8445 §6.1.1).
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

    /// A candidate of the peer, at any time.
    ///
    /// # Errors
    ///
    /// A candidate that cannot be used (TCP, no port, an address of nobody), which is counted and does no harm; one too many; or
    /// the agent has ended.
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
            // A peer-reflexive one turns out to be what the peer says (RFC 8838 §11.4). Its pairs keep their order.
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

    /// A candidate of the peer that has no address here: a `.local` name that nobody resolves. It is only counted: the
    /// peer's own checks make it known, as a peer-reflexive one.
    pub const fn ignore_remote(&mut self) {
        count(&mut self.stats.candidates_ignored);
    }

    /// New credentials, for an offer or answer that restarts ICE (RFC 8445 §9). The peer's credentials and candidates must
    /// be given again; sockets stay. `seed` is another one than before.
    pub fn restart(&mut self, now: Instant, seed: &Seed) -> &Credentials {
        let number = self.current.number.wrapping_add(1);
        let next = Generation { number, local: Credentials::random(seed), remote: None };
        let before = std::mem::replace(&mut self.current, next);
        // Two restarts before a nomination: what is selected is still of the oldest ones.
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

    /// The deadline has passed, or not; both are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Ends the session. What waits to be sent may still be sent.
    pub fn close(&mut self, _now: Instant) {
        self.end(CloseReason::Local);
    }

    /// The next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the next datagram to `out`.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.out.poll(out)
    }

    /// The next deadline.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.life.deadline
    }

    /// Whether what is no STUN may be taken from `path`: somebody who knows the credentials is at its other end.
    #[must_use]
    pub fn is_valid(&self, path: &Path) -> bool {
        self.checks.get(path).is_some_and(|pair| pair.valid_until.is_some())
    }

    /// The path that media takes.
    #[must_use]
    pub fn selected(&self) -> Option<Path> {
        self.nomination.selected.map(|selected| selected.path)
    }

    /// Whether the selected pair was nominated, and not only the first that worked.
    #[must_use]
    pub fn is_nominated(&self) -> bool {
        self.nomination
            .selected
            .is_some_and(|selected| selected.is_nominated && selected.generation == self.current.number)
    }

    /// The role at present.
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

    /// Pairs, at most [`crate::limits::CHECK_LIST_MAX`].
    #[must_use]
    pub const fn pairs(&self) -> usize {
        self.checks.len()
    }

    /// Remote candidates, at most [`CANDIDATES_MAX`].
    #[must_use]
    pub const fn remote_candidates(&self) -> usize {
        self.candidates.remotes.len()
    }

    /// Requests that may still be answered, at most [`crate::limits::TRANSACTIONS_MAX`].
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// Whether the agent has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.life.closed.is_some()
    }

    /// Figures.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    fn preference(&self, index: usize) -> u16 {
        u16::MAX.saturating_sub(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Every local with every remote address of its family (RFC 8445 §6.1.2.2).
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
        // Two sides with equal tie-breakers would switch for ever (RFC 8445 §7.2.5.1).
        self.tie_breaker = self.random.u64();
        self.nomination.nominating = None;
        count(&mut self.stats.role_switches);
        tracing::debug!(role = ?self.role, "role switched");
    }

    /// Nothing more is taken from these.
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
