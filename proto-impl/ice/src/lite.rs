//! The lite agent of a server with a public address (RFC 8445 §2.5). It answers checks, starts none on its own
//! initiative, and is always controlled.
//!
//! 1. A request with our user name fragment, authenticated with our password, validates its path. Other paths
//!    accept only STUN ([`LiteAgent::is_valid`]).
//! 2. Media uses the first validated path until the peer nominates one with USE-CANDIDATE, and from then on
//!    always the path nominated last. A request without USE-CANDIDATE does not change the path.
//! 3. Each authenticated request gives consent to send on its path for a while (a lite agent has no other
//!    regular sign of consent). If the selected path falls silent, another path replaces it: after
//!    [`PATH_SILENCE_MAX`], one that is being checked; when the consent ends, any valid one. If there is none, the
//!    agent ends.
//! 4. After a restart, the previous credentials remain valid until the first request with the new ones.
//! 5. Authentic media from another port of the peer's address means that a NAT has given the peer that port
//!    ([`LiteAgent::follow_media`]). The path accepts further media immediately; media is sent there once the peer
//!    has answered a check.
//!
//! Requests contain no time or counter, so a captured copy is as authentic as the original. Therefore the last
//! [`REQUESTS_KEPT`] requests are remembered: a copy validates no path, changes nothing and gives no consent.
//!
//! Unauthenticated messages are dropped without an answer: the errors 400 and 401 (RFC 8489 §9.1.3) would not
//! help an honest peer, and would reveal the agent to an attacker. Two lite agents cannot connect.

mod probe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;

use crate::credentials::{Credentials, Tag, names};
use crate::event::{CloseReason, Event};
use crate::limits::{EVENTS_MAX, PAIRS_MAX, PATH_SILENCE_MAX, REQUESTS_KEPT};
use crate::outbox::Outbox;
use crate::path::{Path, Protocol, Transmit};
use crate::respond::{self, Refusal};
use crate::stats::{Stats, count};
use crate::stun::{BINDING, Class, Message, RoleAttribute, TransactionId};
use probe::{Due, Probes};

/// The path that media uses until the peer has nominated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The first validated path: media starts a round trip earlier.
    FirstValid,
    /// No path: media waits for a nomination.
    Nominated,
}

/// Settings of a lite agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteConfig {
    /// The path that media uses until the peer has nominated one.
    pub selection: Selection,
    /// Maximum time until the first selected path, counted from the start and again from
    /// [`LiteAgent::set_remote`].
    pub connect_timeout: Duration,
    /// Time for which a path stays valid without an authenticated request (RFC 7675 §5.1).
    pub consent_timeout: Duration,
    /// Tag at the beginning of our user name fragments, if several receivers share the port.
    pub tag: Option<Tag>,
}

impl LiteConfig {
    fn credentials(&self, seed: &Seed) -> Credentials {
        self.tag.map_or_else(|| Credentials::random(seed), |tag| Credentials::tagged(seed, tag))
    }
}

impl Default for LiteConfig {
    fn default() -> Self {
        Self {
            selection: Selection::FirstValid,
            connect_timeout: Duration::from_secs(15),
            consent_timeout: Duration::from_secs(30),
            tag: None,
        }
    }
}

/// Credentials of both sides between two restarts.
#[derive(Debug)]
struct Generation {
    local: Credentials,
    /// Credentials of the peer; `None` until they are known.
    remote: Option<Credentials>,
}

impl Generation {
    fn is_named_by(&self, username: &[u8]) -> bool {
        names(username, self.local.ufrag(), self.remote.as_ref().map(Credentials::ufrag))
    }
}

#[derive(Debug)]
struct Pair {
    path: Path,
    /// Time of the last check on this path, or of the first media on it if there was no check.
    checked: Instant,
    nominated: bool,
    /// True if only media has arrived on this path: media is accepted, but nothing except probes is sent on it.
    is_unchecked: bool,
}

/// Transaction ids of earlier authenticated requests, oldest first. Stores 32 of the 96 bits of each id. These
/// are enough, because an attacker cannot choose the id of an authenticated request.
#[derive(Debug, Default)]
struct Requests(VecDeque<u32>);

impl Requests {
    /// Returns true if a request with this id was seen before, and remembers the id.
    fn was_there(&mut self, TransactionId([.., a, b, c, d]): TransactionId) -> bool {
        let id = u32::from_be_bytes([a, b, c, d]);
        let was_there = self.0.contains(&id);
        if !was_there {
            if self.0.len() >= REQUESTS_KEPT {
                self.0.pop_front();
            }
            self.0.push_back(id);
        }
        was_there
    }
}

/// The lite agent of one session, described in the module.
#[derive(Debug)]
pub struct LiteAgent {
    config: Arc<LiteConfig>,
    current: Generation,
    previous: Option<Generation>,
    pairs: Vec<Pair>,
    requests: Requests,
    probes: Probes,
    selected: Option<Path>,
    connected: bool,
    /// Time by which a path must be validated; `None` while the wait is held.
    connect_by: Option<Instant>,
    closed: Option<CloseReason>,
    events: VecDeque<Event>,
    out: Outbox,
    stats: Stats,
}

impl LiteAgent {
    /// Creates an agent with credentials drawn from `seed`.
    #[must_use]
    pub fn new(now: Instant, config: Arc<LiteConfig>, seed: &Seed) -> Self {
        Self {
            connect_by: Some(now + config.connect_timeout),
            current: Generation { local: config.credentials(seed), remote: None },
            config,
            previous: None,
            pairs: Vec::new(),
            requests: Requests::default(),
            probes: Probes::new(seed),
            selected: None,
            connected: false,
            closed: None,
            events: VecDeque::new(),
            out: Outbox::default(),
            stats: Stats::default(),
        }
    }

    /// Sets the peer's credentials from its offer or answer. Before this call, requests are
    /// answered whatever user name fragment of the peer they contain.
    pub fn set_remote(&mut self, now: Instant, credentials: Credentials) {
        self.current.remote = Some(credentials);
        if self.connect_by.is_some() {
            self.connect_by = Some(now + self.config.connect_timeout);
        }
    }

    /// Holds the wait for a path, for a session whose description is not sent yet: no peer can connect before. The
    /// owner limits the time until [`LiteAgent::begin_wait`].
    pub const fn hold_wait(&mut self) {
        self.connect_by = None;
    }

    /// Begins the wait for a path if it is held, because our description is sent.
    pub fn begin_wait(&mut self, now: Instant) {
        self.connect_by.get_or_insert(now + self.config.connect_timeout);
    }

    /// Creates new credentials for an offer or answer that restarts ICE (RFC 8445 §9). The peer's
    /// user name fragment is then unknown. Media stays on its path until the peer nominates one
    /// with the new credentials. `seed` must differ from earlier ones.
    pub fn restart(&mut self, seed: &Seed) -> &Credentials {
        let current = Generation { local: self.config.credentials(seed), remote: None };
        let before = std::mem::replace(&mut self.current, current);
        // If there were two restarts before the first check, only the oldest credentials are known to have
        // reached the peer.
        self.previous.get_or_insert(before);
        &self.current.local
    }

    /// Handles a datagram or frame received on `path`. Unless it is an authentic request or answer, it only
    /// changes a counter.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, bytes: &[u8]) {
        if self.closed.is_some() {
            return;
        }
        let Ok(message) = Message::read(bytes) else {
            return count(&mut self.stats.malformed);
        };
        let is_answer = matches!(message.class(), Class::Success | Class::Error)
            && self.probes.is_answered_by(&path, message.transaction_id());
        if message.method() != BINDING || !(is_answer || message.class() == Class::Request) {
            return count(&mut self.stats.unexpected);
        }
        // Ensures room for everything that one request can cause, before any computation.
        if self.events.len() + 4 > EVENTS_MAX || !self.out.has_room() {
            return count(&mut self.stats.no_room);
        }
        if is_answer {
            self.handle_answer(now, path, &message);
        } else {
            self.handle_request(now, path, &message);
        }
    }

    /// True if media on the unvalidated `path` may come from the peer after a change of its port: there is a
    /// checked UDP path to the same address.
    #[must_use]
    pub fn may_follow(&self, path: &Path) -> bool {
        let is_near = |valid: &Path| {
            (valid.protocol, path.protocol) == (Protocol::Udp, Protocol::Udp)
                && valid.local == path.local
                && valid.remote.ip() == path.remote.ip()
        };
        self.connected && self.pairs.iter().any(|pair| !pair.is_unchecked && is_near(&pair.path))
    }

    /// Validates and probes `path`, because authentic media arrived on it that was not a copy of an earlier
    /// packet: the peer's port has changed. Has no effect on a valid path, or if [`LiteAgent::may_follow`] is
    /// false.
    pub fn follow_media(&mut self, now: Instant, path: Path) {
        if self.is_valid(&path) || !self.may_follow(&path) || !self.probes.may_begin(now) {
            return;
        }
        if self.events.len() + 4 > EVENTS_MAX {
            return count(&mut self.stats.no_room);
        }
        self.make_room();
        self.pairs.push(Pair { path, checked: now, nominated: false, is_unchecked: true });
        self.events.push_back(Event::Validated(path));
        self.probes.begin(now, path);
        self.probe(now);
    }

    /// Handles an expired deadline. Calling it early is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.closed.is_some() {
            return;
        }
        let silent = self.config.consent_timeout;
        let expired: Vec<Path> =
            self.pairs.iter().filter(|pair| pair.checked + silent <= now).map(|pair| pair.path).collect();
        for path in &expired {
            self.forget(path);
        }
        if self.selected.is_some_and(|path| expired.contains(&path)) {
            self.reselect();
        }
        self.leave_dead_path(now);
        self.probe(now);
        if !self.connected && self.connect_by.is_some_and(|by| by <= now) {
            self.end(CloseReason::ConnectTimeout);
        }
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
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let oldest = self.pairs.iter().map(|pair| pair.checked + self.config.consent_timeout).min();
        let connect_by = self.connect_by.filter(|_| !self.connected);
        let takeover = self.takeover().map(|(at, _)| at);
        [oldest, connect_by, takeover, self.probes.poll_timeout()].into_iter().flatten().min()
    }

    /// True if data other than STUN may be accepted on `path`.
    #[must_use]
    pub fn is_valid(&self, path: &Path) -> bool {
        self.selected.as_ref() == Some(path) || self.pairs.iter().any(|pair| pair.path == *path)
    }

    /// The path that media uses; `None` until a path is selected.
    #[must_use]
    pub const fn selected(&self) -> Option<Path> {
        self.selected
    }

    /// Our credentials, for the description.
    #[must_use]
    pub const fn local(&self) -> &Credentials {
        &self.current.local
    }

    /// Number of validated paths, at most [`PAIRS_MAX`].
    #[must_use]
    pub fn valid_paths(&self) -> usize {
        self.pairs.len()
    }

    /// True if the agent has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Counters of the agent.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    fn handle_request(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        let named = |generation: &&Generation| {
            message.username().is_some_and(|username| generation.is_named_by(username))
        };
        let is_current = named(&&self.current);
        let previous = self.previous.as_ref().filter(named);
        let Some(generation) = is_current.then_some(&self.current).or(previous) else {
            return count(&mut self.stats.unknown_user);
        };
        let key = generation.local.key();
        if message.has_integrity() {
            count(&mut self.stats.integrity_checks);
        }
        if !message.is_authentic(key) {
            return count(&mut self.stats.unauthenticated);
        }
        if let Some(refusal) = refusal_of(message) {
            count(&mut self.stats.refused);
            self.out.push(path, respond::refuse(message, refusal, key));
            return;
        }
        // RFC 8489 §6.3: a retransmitted request has the same addresses, and is answered again. A request
        // that arrives again on another path is a copy, sent by an eavesdropper to redirect media.
        let is_copy = self.requests.was_there(message.transaction_id());
        if is_copy && !self.pairs.iter().any(|pair| pair.path == path) {
            return count(&mut self.stats.replayed);
        }
        count(&mut self.stats.answered);
        self.out.push(path, respond::succeed(message, path.remote, key));
        if is_copy {
            return;
        }
        if is_current {
            self.previous = None;
        }
        self.check_came(now, path, message.use_candidate());
    }

    /// Handles an answer to the open probe.
    fn handle_answer(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        if message.has_integrity() {
            count(&mut self.stats.integrity_checks);
        }
        let remote = self.probed().remote.as_ref();
        if !remote.is_some_and(|remote| message.is_authentic(remote.key())) {
            return count(&mut self.stats.unauthenticated);
        }
        self.probes.end();
        // A peer behind a NAT does not notice its new port, so for the peer this is still the path
        // that it nominated.
        let nominated = self.pairs.iter().any(|pair| pair.nominated && self.selected == Some(pair.path));
        let pair = self.pairs.iter_mut().find(|pair| pair.path == path);
        let Some(pair) = pair.filter(|_| message.class() == Class::Success) else {
            return count(&mut self.stats.failed);
        };
        (pair.checked, pair.is_unchecked) = (now, false);
        pair.nominated |= nominated;
        count(&mut self.stats.succeeded);
        // The peer may have nominated a path to another address in the meantime.
        let is_near =
            |selected: Path| selected.local == path.local && selected.remote.ip() == path.remote.ip();
        if self.selected != Some(path) && self.selected.is_some_and(is_near) {
            self.select(path);
        }
    }

    /// Sends the request of the open probe if it is due.
    fn probe(&mut self, now: Instant) {
        match self.probes.poll(now) {
            Some(Due::Request(path)) => {
                let request = self.probes.request(self.probed());
                if request.is_some_and(|request| self.out.push(path, request)) {
                    count(&mut self.stats.checks_sent);
                }
            }
            Some(Due::Failed) => count(&mut self.stats.failed),
            None => {}
        }
    }

    /// Returns the newest generation with known credentials of the peer.
    fn probed(&self) -> &Generation {
        let known = [Some(&self.current), self.previous.as_ref()];
        known.into_iter().flatten().find(|generation| generation.remote.is_some()).unwrap_or(&self.current)
    }

    fn check_came(&mut self, now: Instant, path: Path, nominates: bool) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.path == path) {
            (pair.checked, pair.is_unchecked) = (now, false);
            pair.nominated |= nominates;
            self.events.push_back(Event::Heard(path));
        } else {
            self.make_room();
            self.pairs.push(Pair { path, checked: now, nominated: nominates, is_unchecked: false });
            self.events.push_back(Event::Validated(path));
        }
        if nominates {
            // The nomination shows the peer's current path, so no probe is needed.
            self.probes.end();
        }
        let first = self.selected.is_none() && self.config.selection == Selection::FirstValid;
        if (nominates || first) && self.selected != Some(path) {
            self.select(path);
        }
        self.leave_dead_path(now);
    }

    /// Removes the path that has been silent for the longest time, other than the selected path.
    fn make_room(&mut self) {
        if self.pairs.len() < PAIRS_MAX {
            return;
        }
        let others = self.pairs.iter().filter(|pair| self.selected != Some(pair.path));
        if let Some(path) = others.min_by_key(|pair| pair.checked).map(|pair| pair.path) {
            count(&mut self.stats.evicted);
            self.forget(&path);
        }
    }

    fn forget(&mut self, path: &Path) {
        self.pairs.retain(|pair| pair.path != *path);
        self.events.push_back(Event::Expired(*path));
    }

    /// Replaces the silent selected path by the most recently heard one; nominated paths are preferred.
    fn reselect(&mut self) {
        self.selected = None;
        let best = self.carriers().max_by_key(|pair| (pair.nominated, pair.checked));
        match best.map(|pair| pair.path) {
            Some(path) => self.select(path),
            None => self.end(CloseReason::ConsentExpired),
        }
    }

    /// Iterates over the paths that media may use.
    fn carriers(&self) -> impl Iterator<Item = &Pair> {
        let first_valid = self.config.selection == Selection::FirstValid;
        self.pairs.iter().filter(move |pair| !pair.is_unchecked && (pair.nominated || first_valid))
    }

    /// Returns the path that replaces the selected one if the selected one stays silent for
    /// [`PATH_SILENCE_MAX`], and the time of the change. This is the most recently heard path, if
    /// it was heard in the second half of that time. `None` if all paths are silent: the peer is
    /// then gone, and no path is better.
    fn takeover(&self) -> Option<(Instant, Path)> {
        let selected = self.selected?;
        let heard = self.pairs.iter().find(|pair| pair.path == selected)?.checked;
        let other = self.carriers().max_by_key(|pair| pair.checked)?;
        let lives = other.checked >= heard + PATH_SILENCE_MAX / 2;
        lives.then_some((heard + PATH_SILENCE_MAX, other.path))
    }

    /// Leaves a dead path for one that is being checked. A peer whose address has changed may check its new
    /// path without nominating it.
    fn leave_dead_path(&mut self, now: Instant) {
        if let Some((_, path)) = self.takeover().filter(|(at, _)| *at <= now) {
            self.select(path);
        }
    }

    fn select(&mut self, path: Path) {
        self.selected = Some(path);
        if !self.connected {
            self.connected = true;
            self.events.push_back(Event::Connected);
        }
        self.events.push_back(Event::Selected(path));
    }

    fn end(&mut self, reason: CloseReason) {
        if self.closed.is_none() {
            tracing::debug!(?reason, "agent ends");
            self.closed = Some(reason);
            self.selected = None;
            self.pairs = Vec::new();
            self.requests = Requests::default();
            self.probes.end();
            self.events.push_back(Event::Closed(reason));
        }
    }
}

/// Returns the reason to refuse a request (RFC 8489 §6.3.1, RFC 8445 §7.3.1.1). A lite agent never changes its
/// role.
fn refusal_of(message: &Message<'_>) -> Option<Refusal> {
    if !message.unknown().is_empty() {
        return Some(Refusal::UnknownAttributes);
    }
    matches!(message.role(), Some(RoleAttribute::Controlled(_))).then_some(Refusal::RoleConflict)
}
