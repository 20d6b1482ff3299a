//! The agent of a server with a public address (RFC 8445 §2.5): it answers checks, sends none of its own accord, and is controlled.
//!
//! 1. A request that names our user name fragment and is made with our password validates the path it came by. Nothing
//!    but STUN is taken from other paths ([`LiteAgent::is_valid`]).
//! 2. Media goes to the first validated path, until the peer nominates one with USE-CANDIDATE; then there, and wherever
//!    it nominates later. A request without it moves nothing.
//! 3. Each authenticated request is consent to send by its path for a while (a lite agent has no other sign of it). When
//!    the selected path falls silent another takes its place: after [`PATH_SILENCE_MAX`] one that is checked meanwhile, at
//!    the end of the consent any; without one this is the end.
//! 4. After a restart the credentials before count until the first request with the new ones.
//! 5. Authentic media by another path means that the address of the peer has changed ([`LiteAgent::follow_media`]). More is taken from
//!    there at once; media is sent there when the peer has answered a check.
//!
//! Requests have no time and no count, so that a copy of one is as authentic as the request. Those that were there are
//! remembered, [`REQUESTS_KEPT`] of them: a copy validates no path, moves nothing and is no consent.
//!
//! Unauthentic messages are dropped without an answer: the errors 400 and 401 (RFC 8489 §9.1.3) tell an honest peer
//! nothing that it could use, and an attacker that an agent is here. A peer that is lite as well is out of scope.

mod probe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;

use crate::credentials::{Credentials, names};
use crate::event::{CloseReason, Event};
use crate::limits::{EVENTS_MAX, PAIRS_MAX, PATH_SILENCE_MAX, REQUESTS_KEPT};
use crate::outbox::Outbox;
use crate::path::{Path, Protocol, Transmit};
use crate::respond::{self, Refusal};
use crate::stats::{Stats, count};
use crate::stun::{BINDING, Class, Message, RoleAttribute, TransactionId};
use probe::{Due, Probes};

/// The path that media takes before the peer has nominated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The first validated path: media starts a round trip earlier.
    FirstValid,
    /// No path: media waits for the nomination.
    Nominated,
}

/// Settings of a lite agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiteConfig {
    /// The path that media takes before the peer has nominated one.
    pub selection: Selection,
    /// Time from the start, and again from [`LiteAgent::set_remote`], to the first selected path.
    pub connect_timeout: Duration,
    /// The time for which a path stays valid without an authenticated request (RFC 7675 §5.1).
    pub consent_timeout: Duration,
}

impl Default for LiteConfig {
    fn default() -> Self {
        Self {
            selection: Selection::FirstValid,
            connect_timeout: Duration::from_secs(15),
            consent_timeout: Duration::from_secs(30),
        }
    }
}

/// Credentials of both sides between two restarts.
#[derive(Debug)]
struct Generation {
    local: Credentials,
    /// The peer's credentials, once known.
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
    /// The time of the last check of this path, or at which media came by it first.
    checked: Instant,
    nominated: bool,
    /// Only media came by this path: the agent takes from it, and sends nothing but probes there.
    is_unchecked: bool,
}

/// Authentic requests seen before, the oldest first: 32 of the 96 bits of their ids, which no attacker chooses.
#[derive(Debug, Default)]
struct Requests(VecDeque<u32>);

impl Requests {
    /// Whether a request with this id was there; from now on it was.
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

/// See the module.
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
    connect_by: Instant,
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
            connect_by: now + config.connect_timeout,
            config,
            current: Generation { local: Credentials::random(seed), remote: None },
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

    /// Sets the peer's credentials, which its offer or answer brought. Requests that came before are answered whatever
    /// fragment they name.
    pub fn set_remote(&mut self, now: Instant, credentials: Credentials) {
        self.current.remote = Some(credentials);
        if !self.connected {
            self.connect_by = now + self.config.connect_timeout;
        }
    }

    /// New credentials, for an offer or answer that restarts ICE (RFC 8445 §9); the peer's are not known then. Media stays
    /// where it is until the peer nominates with the new ones. `seed` is another one than before.
    pub fn restart(&mut self, seed: &Seed) -> &Credentials {
        let current = Generation { local: Credentials::random(seed), remote: None };
        let before = std::mem::replace(&mut self.current, current);
        // Two restarts before the first check: the peer still knows only the oldest ones for sure.
        self.previous.get_or_insert(before);
        &self.current.local
    }

    /// A datagram or frame that came by `path`. What is not an authentic request changes nothing but a counter.
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
        // Room for all that one request can cause, before anything is computed for it.
        if self.events.len() + 4 > EVENTS_MAX || !self.out.has_room() {
            return count(&mut self.stats.no_room);
        }
        if is_answer {
            self.handle_answer(now, path, &message);
        } else {
            self.handle_request(now, path, &message);
        }
    }

    /// Whether media by `path`, which no check has validated, may be that of the peer behind another port: a valid path over UDP leads to
    /// the same address.
    #[must_use]
    pub fn may_follow(&self, path: &Path) -> bool {
        let is_near = |valid: &Path| {
            (valid.protocol, path.protocol) == (Protocol::Udp, Protocol::Udp)
                && valid.local == path.local
                && valid.remote.ip() == path.remote.ip()
        };
        self.connected && self.pairs.iter().any(|pair| !pair.is_unchecked && is_near(&pair.path))
    }

    /// Authentic media of the peer, no copy of an earlier packet, came by `path`. If no check has validated that path, the peer's port
    /// has changed: the path is valid from now on, and is checked. Nothing happens where [`LiteAgent::may_follow`] is false.
    pub fn follow_media(&mut self, now: Instant, path: Path) {
        if self.is_valid(&path) || !self.may_follow(&path) {
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

    /// The deadline has passed, or not; both are harmless.
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
        if !self.connected && self.connect_by <= now {
            self.end(CloseReason::ConnectTimeout);
        }
    }

    /// Ends the session. What waits to be sent may still be sent.
    pub fn close(&mut self, _now: Instant) {
        self.end(CloseReason::Local);
    }

    /// The next event for the owner; `None` until there is more input.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Appends the next answer to `out`.
    pub fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.out.poll(out)
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let oldest = self.pairs.iter().map(|pair| pair.checked + self.config.consent_timeout).min();
        let connect_by = (!self.connected).then_some(self.connect_by);
        let takeover = self.takeover().map(|(at, _)| at);
        [oldest, connect_by, takeover, self.probes.poll_timeout()].into_iter().flatten().min()
    }

    /// Whether what is no STUN may be taken from `path`.
    #[must_use]
    pub fn is_valid(&self, path: &Path) -> bool {
        self.selected.as_ref() == Some(path) || self.pairs.iter().any(|pair| pair.path == *path)
    }

    /// The path that media takes.
    #[must_use]
    pub const fn selected(&self) -> Option<Path> {
        self.selected
    }

    /// Our credentials, for the description.
    #[must_use]
    pub const fn local(&self) -> &Credentials {
        &self.current.local
    }

    /// Paths that are validated, at most [`PAIRS_MAX`].
    #[must_use]
    pub fn valid_paths(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the agent has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Figures.
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
        // RFC 8489 §6.3: a request that is sent again keeps its addresses, and is answered again. One of another path is a
        // copy that a listener on the way has sent, to draw media to itself or to somebody else.
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

    /// An answer to the open probe.
    fn handle_answer(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        if message.has_integrity() {
            count(&mut self.stats.integrity_checks);
        }
        let remote = self.probed().remote.as_ref();
        if !remote.is_some_and(|remote| message.is_authentic(remote.key())) {
            return count(&mut self.stats.unauthenticated);
        }
        self.probes.end();
        // The peer holds that this is the path that it nominated.
        let nominated = self.pairs.iter().any(|pair| pair.nominated && self.selected == Some(pair.path));
        let pair = self.pairs.iter_mut().find(|pair| pair.path == path);
        let Some(pair) = pair.filter(|_| message.class() == Class::Success) else {
            return count(&mut self.stats.failed);
        };
        (pair.checked, pair.is_unchecked) = (now, false);
        pair.nominated |= nominated;
        count(&mut self.stats.succeeded);
        if self.selected != Some(path) {
            self.select(path);
        }
    }

    /// Sends the request of a probe that is due.
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

    /// The credentials that the peer has for certain.
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
        let first = self.selected.is_none() && self.config.selection == Selection::FirstValid;
        if (nominates || first) && self.selected != Some(path) {
            self.select(path);
        }
        self.leave_dead_path(now);
    }

    /// Removes the path that was silent for longest, but never the selected one.
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

    /// The selected path is silent: the one that spoke last, nominated ones first.
    fn reselect(&mut self) {
        self.selected = None;
        let best = self.carriers().max_by_key(|pair| (pair.nominated, pair.checked));
        match best.map(|pair| pair.path) {
            Some(path) => self.select(path),
            None => self.end(CloseReason::ConsentExpired),
        }
    }

    /// The paths that media may take.
    fn carriers(&self) -> impl Iterator<Item = &Pair> {
        let first_valid = self.config.selection == Selection::FirstValid;
        self.pairs.iter().filter(move |pair| !pair.is_unchecked && (pair.nominated || first_valid))
    }

    /// The time at which the selected path, if it stays silent, gives way to another, and that other path: the one that
    /// spoke last, if that was late in the silence. If all paths are silent, it is the peer that is gone, and no path is
    /// better.
    fn takeover(&self) -> Option<(Instant, Path)> {
        let selected = self.selected?;
        let heard = self.pairs.iter().find(|pair| pair.path == selected)?.checked;
        let other = self.carriers().max_by_key(|pair| pair.checked)?;
        let lives = other.checked >= heard + PATH_SILENCE_MAX / 2;
        lives.then_some((heard + PATH_SILENCE_MAX, other.path))
    }

    /// A peer whose address has changed may check its new path and nominate nothing: it holds that it has moved.
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

/// RFC 8489 §6.3.1, RFC 8445 §7.3.1.1: a lite agent never takes the other role.
fn refusal_of(message: &Message<'_>) -> Option<Refusal> {
    if !message.unknown().is_empty() {
        return Some(Refusal::UnknownAttributes);
    }
    matches!(message.role(), Some(RoleAttribute::Controlled(_))).then_some(Refusal::RoleConflict)
}
