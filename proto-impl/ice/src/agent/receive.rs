//! Input of an agent: requests are answered and trigger checks; answers determine the state of pairs.

use std::time::Instant;

use super::checklist::PairState;
use super::transactions::{Purpose, Transaction};
use super::{Agent, Remote, Role};
use crate::candidate::{Candidate, CandidateKind};
use crate::credentials::{Credentials, names};
use crate::event::Event;
use crate::limits::{CANDIDATES_MAX, EVENTS_MAX, LOCALS_MAX};
use crate::path::{Path, Protocol};
use crate::respond::{self, Refusal};
use crate::stats::count;
use crate::stun::{BINDING, Class, ErrorCode, Message, RoleAttribute};

impl Agent {
    /// Handles a datagram received on `path`. If it is not authentic, it only changes a counter.
    pub fn handle_datagram(&mut self, now: Instant, path: Path, bytes: &[u8]) {
        if self.life.closed.is_some() {
            return;
        }
        let Ok(message) = Message::read(bytes) else {
            return count(&mut self.stats.malformed);
        };
        let ours =
            path.protocol == Protocol::Udp && self.candidates.locals.iter().any(|l| l.address == path.local);
        if message.method() != BINDING || !ours {
            return count(&mut self.stats.unexpected);
        }
        if self.events.len() >= EVENTS_MAX || !self.out.has_room() {
            return count(&mut self.stats.no_room);
        }
        match message.class() {
            Class::Request => self.handle_request(now, path, &message),
            Class::Success | Class::Error => self.handle_answer(now, path, &message),
            Class::Indication => count(&mut self.stats.unexpected),
        }
        self.advance(now);
    }

    fn handle_request(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        let username = message.username().unwrap_or_default();
        let Some((number, key)) = self.named_by(username) else {
            return count(&mut self.stats.unknown_user);
        };
        if message.has_integrity() {
            count(&mut self.stats.integrity_checks);
        }
        if !message.is_authentic(&key) {
            return count(&mut self.stats.unauthenticated);
        }
        if let Some(refusal) = self.refusal_of(message) {
            count(&mut self.stats.refused);
            self.send(path, respond::refuse(message, refusal, &key));
            return;
        }
        count(&mut self.stats.answered);
        self.send(path, respond::succeed(message, path.remote, &key));
        if number == self.current.number {
            self.learn(path, message.priority().unwrap_or(0));
            self.trigger(now, path, message.use_candidate());
        }
        self.hear(now, path);
    }

    /// Returns the generation of our credentials that a request refers to, and the password of that
    /// generation.
    fn named_by(&self, username: &[u8]) -> Option<(u32, Vec<u8>)> {
        let mut generations = [Some(&self.current), self.previous.as_ref()].into_iter().flatten();
        let named = generations.find(|generation| {
            let remote = generation.remote.as_ref().map(Credentials::ufrag);
            names(username, generation.local.ufrag(), remote)
        })?;
        Some((named.number, named.local.key().to_vec()))
    }

    /// Returns the reason to refuse a request. In a role conflict, the side with the larger tie-breaker becomes
    /// controlling (RFC 8489 §6.3.1, RFC 8445 §7.3.1.1).
    fn refusal_of(&mut self, message: &Message<'_>) -> Option<Refusal> {
        if !message.unknown().is_empty() {
            return Some(Refusal::UnknownAttributes);
        }
        let (conflict, keeps_role) = match (self.role, message.role()) {
            (Role::Controlling, Some(RoleAttribute::Controlling(theirs))) => {
                (true, self.tie_breaker >= theirs)
            }
            (Role::Controlled, Some(RoleAttribute::Controlled(theirs))) => (true, self.tie_breaker < theirs),
            _ => (false, true),
        };
        if conflict && !keeps_role {
            self.switch_role();
        }
        (conflict && keeps_role).then_some(Refusal::RoleConflict)
    }

    /// Adds an address that the peer did not signal as a candidate, with the priority given in the check (RFC
    /// 8445 §7.3.1.3).
    fn learn(&mut self, path: Path, priority: u32) {
        if self.candidates.remotes.iter().any(|remote| remote.address == path.remote) {
            return;
        }
        if self.candidates.remotes.len() >= CANDIDATES_MAX {
            // Makes room by dropping the oldest peer-reflexive candidate without a valid pair.
            let useless = |remote: &Remote| {
                let mut valid = self.checks.iter().filter(|pair| pair.valid_until.is_some());
                remote.kind == CandidateKind::PeerReflexive && !valid.any(|p| p.path.remote == remote.address)
            };
            match self.candidates.remotes.iter().position(useless) {
                Some(index) => drop(self.candidates.remotes.remove(index)),
                None => return count(&mut self.stats.no_room),
            }
        }
        let kind = CandidateKind::PeerReflexive;
        self.candidates.remotes.push(Remote { address: path.remote, priority, kind });
        self.make_pairs();
    }

    /// Triggers a check of the pair, and records a nomination (RFC 8445 §7.3.1.4, §7.3.1.5).
    fn trigger(&mut self, now: Instant, path: Path, use_candidate: bool) {
        let wanted = use_candidate && self.role == Role::Controlled;
        let is_selected = self.selected() == Some(path) && self.is_nominated();
        let recent = now.checked_sub(self.config.consent_interval);
        let Some(pair) = self.checks.get_mut(&path) else { return };
        let answers = pair.state == PairState::Succeeded && pair.was_answered_since(recent);
        if is_selected {
            return;
        }
        if answers && wanted {
            let generation = pair.generation;
            return self.select(now, path, generation, true);
        }
        pair.is_wanted |= wanted;
        if !answers {
            if pair.state == PairState::Failed {
                pair.state = PairState::Waiting;
            }
            self.checks.trigger(path);
        }
    }

    /// Marks a path as valid, because the peer at its other end knows the credentials.
    fn hear(&mut self, now: Instant, path: Path) {
        let until = now + self.config.consent_timeout;
        if let Some(pair) = self.checks.get_mut(&path)
            && pair.valid_until.replace(until).is_none()
        {
            self.events.push_back(Event::Validated(path));
        }
    }

    fn handle_answer(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        let Some(open) = self.transactions.get(message.transaction_id()) else {
            return count(&mut self.stats.unexpected);
        };
        if let Purpose::Gather { .. } = open.purpose {
            return self.handle_gathered(path, message);
        }
        let remote = self.generation(open.generation).and_then(|generation| generation.remote.as_ref());
        let Some(key) = remote.map(|remote| remote.key().to_vec()) else {
            return count(&mut self.stats.unexpected);
        };
        if message.has_integrity() {
            count(&mut self.stats.integrity_checks);
        }
        if !message.is_authentic(&key) {
            return count(&mut self.stats.unauthenticated);
        }
        let Some(open) = self.transactions.take(message.transaction_id()) else { return };
        // RFC 8445 §7.2.5.2.1: an answer on another path than its request counts as a failure.
        let symmetric = open.path == path;
        match (message.class(), message.error_code()) {
            (Class::Success, _) if symmetric && message.mapped_address().is_some() => {
                self.handle_success(now, &open);
            }
            (_, Some(ErrorCode::ROLE_CONFLICT)) if symmetric => self.handle_conflict(&open),
            _ => self.was_refused(&open),
        }
    }

    /// Handles a successful answer (RFC 8445 §7.2.5.3).
    fn handle_success(&mut self, now: Instant, open: &Transaction) {
        count(&mut self.stats.succeeded);
        let Some(pair) = self.checks.get_mut(&open.path) else { return };
        if pair.generation != open.generation {
            return;
        }
        pair.state = PairState::Succeeded;
        pair.answered = Some(now);
        let (wanted, generation) = (pair.is_wanted, pair.generation);
        self.nomination.first_valid.get_or_insert(now);
        self.transactions.replace(&open.path, open.purpose);
        if self.selected() == Some(open.path) {
            self.schedule_consent(now);
        }
        self.hear(now, open.path);
        let nominates = open.purpose == Purpose::Check { nominates: true };
        let nominated = match self.role {
            Role::Controlling => nominates && self.nomination.nominating == Some(open.path),
            Role::Controlled => wanted,
        };
        if nominated {
            self.select(now, open.path, generation, true);
        } else if self.nomination.selected.is_none() {
            self.select(now, open.path, generation, false);
        }
    }

    /// Switches the role after a role conflict, unless the role has changed since the request (RFC 8445
    /// §7.2.5.1).
    fn handle_conflict(&mut self, open: &Transaction) {
        if open.role == self.role {
            self.switch_role();
        }
        if let Some(pair) = self.checks.get_mut(&open.path)
            && pair.state != PairState::Succeeded
        {
            pair.state = PairState::Waiting;
        }
        self.checks.trigger(open.path);
    }

    fn was_refused(&mut self, open: &Transaction) {
        count(&mut self.stats.failed);
        if matches!(open.purpose, Purpose::Check { .. }) && !open.is_replaced {
            self.fail(&open.path);
        }
    }

    /// Handles a STUN server's answer, which is not authenticated (RFC 8445 §5.1.1.2).
    fn handle_gathered(&mut self, path: Path, message: &Message<'_>) {
        let Some(open) = self.transactions.get(message.transaction_id()).filter(|open| open.path == path)
        else {
            return count(&mut self.stats.unexpected);
        };
        let id = open.id;
        self.transactions.retain(|open| open.id != id);
        let Some(address) = message.mapped_address().filter(|_| message.class() == Class::Success) else {
            return count(&mut self.stats.failed);
        };
        count(&mut self.stats.succeeded);
        let known = self.local_candidates().any(|local| local.address == address);
        let index = self.candidates.locals.iter().position(|local| local.address == path.local).unwrap_or(0);
        let candidate = Candidate::server_reflexive(address, path.local, self.preference(index));
        if !known && self.candidates.reflexive.len() < LOCALS_MAX && candidate.is_reachable() {
            self.candidates.reflexive.push(candidate);
            self.events.push_back(Event::Candidate(candidate));
        }
    }
}
