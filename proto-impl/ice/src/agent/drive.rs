//! Timed actions of an agent: checks, nomination, consent.

use std::time::{Duration, Instant};

use super::checklist::{Pair, PairState};
use super::transactions::{Due, Purpose, Transaction};
use super::{Agent, Generation, Role, Selected};
use crate::candidate::{CandidateKind, Transport, priority};
use crate::event::{CloseReason, Event};
use crate::limits::GATHER_TRIES;
use crate::path::Path;
use crate::stats::count;
use crate::stun::{Class, MessageWriter, RoleAttribute, TransactionId};

impl Agent {
    /// Performs all actions that are due. Must be called at the end of each input, so that no deadline remains
    /// in the past.
    pub(super) fn advance(&mut self, now: Instant) {
        if self.life.closed.is_some() {
            return;
        }
        let selected = self.selected();
        self.expire(|pair| selected != Some(pair.path) && pair.valid_until.is_some_and(|until| until <= now));
        self.retry(now);
        self.watch_consent(now);
        self.nominate(now);
        self.ask_consent(now);
        self.pace(now);
        if !self.life.connected && self.life.connect_by <= now {
            self.end(CloseReason::ConnectTimeout);
        }
        self.life.deadline = self.next_deadline(now);
    }

    fn retry(&mut self, now: Instant) {
        while let Some(due) = self.transactions.poll_due(now, self.config.rto_max) {
            match due {
                Due::Again(path, bytes) => {
                    count(&mut self.stats.checks_sent);
                    count(&mut self.stats.retransmitted);
                    self.send(path, bytes);
                }
                Due::Ended(open) => self.was_not_answered(&open),
            }
        }
    }

    fn was_not_answered(&mut self, open: &Transaction) {
        if open.is_replaced {
            return;
        }
        count(&mut self.stats.failed);
        if matches!(open.purpose, Purpose::Check { .. }) {
            self.fail(&open.path);
        }
    }

    /// Marks the check of a pair as failed.
    pub(super) fn fail(&mut self, path: &Path) {
        if let Some(pair) = self.checks.get_mut(path) {
            pair.state = PairState::Failed;
        }
        if self.nomination.nominating == Some(*path) {
            self.nomination.nominating = None;
        }
    }

    /// Sends one new request per `ta` (RFC 8445 §6.1.4.2).
    fn pace(&mut self, now: Instant) {
        if self.next_pace(now).is_none_or(|at| at > now) {
            return;
        }
        self.life.last_check = Some(now);
        if let Some((base, server)) = self.candidates.gathers.pop_front() {
            self.start(now, Path::udp(base, server), Purpose::Gather { server });
            return;
        }
        let Some(path) = self.checks.next(self.role) else { return };
        let purpose = Purpose::Check { nominates: self.nomination.nominating == Some(path) };
        self.transactions.replace(&path, purpose);
        if let Some(pair) = self.checks.get_mut(&path).filter(|pair| pair.state != PairState::Succeeded) {
            pair.state = PairState::InProgress;
        }
        if !self.start(now, path, purpose) {
            self.fail(&path);
        }
    }

    fn next_pace(&self, now: Instant) -> Option<Instant> {
        let checks = self.current.remote.is_some() && self.checks.has_next();
        let work = checks || !self.candidates.gathers.is_empty();
        work.then(|| self.life.last_check.map_or(now, |at| at + self.config.ta.max(Duration::from_millis(1))))
    }

    /// Nominates a pair when this is due; only on the controlling side (RFC 8445 §8.1.1).
    fn nominate(&mut self, now: Instant) {
        let failed = |pair: &Pair| pair.state == PairState::Failed;
        if self.nomination.nominating.is_some_and(|path| self.checks.get(&path).is_none_or(failed)) {
            self.nomination.nominating = None;
        }
        let due = self.nominates_at(now).is_some_and(|at| at <= now);
        if let Some(path) = self.nominee(now).filter(|_| due) {
            self.nomination.nominating = Some(path);
            self.checks.trigger(path);
        }
    }

    /// Returns the best pair whose checks are being answered, except for the selected pair if it is
    /// nominated.
    fn nominee(&self, now: Instant) -> Option<Path> {
        let nominated =
            self.nomination.selected.filter(|_| self.is_nominated()).map(|selected| selected.path);
        let since = now.checked_sub(self.config.consent_interval.saturating_mul(2));
        let answering = |pair: &&Pair| {
            pair.state == PairState::Succeeded
                && pair.generation == self.current.number
                && pair.was_answered_since(since)
                && nominated != Some(pair.path)
        };
        let best = self.checks.iter().filter(answering).max_by_key(|pair| pair.priority(self.role))?;
        Some(best.path)
    }

    /// Returns the time at which the controlling side nominates; `None` if there is no pair to nominate.
    fn nominates_at(&self, now: Instant) -> Option<Instant> {
        if self.role == Role::Controlled || self.nomination.nominating.is_some() {
            return None;
        }
        let nominee = self.checks.get(&self.nominee(now)?)?;
        if self.is_nominated() {
            let answered = self.selected().and_then(|path| self.checks.get(&path)?.answered)?;
            return Some(answered + self.config.reselect_after);
        }
        let better = |pair: &Pair| pair.is_open() && pair.priority(self.role) > nominee.priority(self.role);
        let waits = self.checks.iter().any(better);
        Some(if waits { self.nomination.first_valid? + self.config.nominate_after } else { now })
    }

    /// Stops using the selected pair if its consent has expired (RFC 7675 §5.1).
    fn watch_consent(&mut self, now: Instant) {
        if self.consent_ends().is_none_or(|at| at > now) {
            return;
        }
        let since = now.checked_sub(self.config.consent_timeout);
        let gone = self.nomination.selected.take().map(|selected| selected.path);
        self.expire(|pair| gone == Some(pair.path));
        let answering = |pair: &&Pair| pair.state == PairState::Succeeded && pair.was_answered_since(since);
        let best = self.checks.iter().filter(answering).max_by_key(|pair| pair.answered);
        match best.map(|pair| (pair.path, pair.generation)) {
            Some((path, generation)) => self.select(now, path, generation, false),
            None => self.end(CloseReason::ConsentExpired),
        }
    }

    fn consent_ends(&self) -> Option<Instant> {
        let answered = self.checks.get(&self.nomination.selected?.path)?.answered?;
        Some(answered + self.config.consent_timeout)
    }

    fn ask_consent(&mut self, now: Instant) {
        if let Some(path) = self.selected().filter(|_| self.life.consent_at.is_some_and(|at| at <= now)) {
            self.start(now, path, Purpose::Consent);
            // Repeats the check soon if there is no answer: the usual six checks in thirty seconds are too few
            // on a lossy path.
            self.life.consent_at = Some(now + self.config.rto_max.max(Duration::from_millis(1)));
            self.probe_others(now);
        }
    }

    /// Checks the other pairs again while the selected one is silent, because the network may have changed.
    fn probe_others(&mut self, now: Instant) {
        let since = now.checked_sub(self.config.consent_interval.saturating_mul(3) / 2);
        let silent = |pair: &Pair| !pair.was_answered_since(since);
        let Some(selected) = self.selected() else { return };
        if self.checks.get(&selected).is_some_and(silent) {
            let of_now = |pair: &&Pair| pair.path != selected && pair.generation == self.current.number;
            let others: Vec<Path> = self.checks.iter().filter(of_now).map(|pair| pair.path).collect();
            others.into_iter().for_each(|path| self.checks.trigger(path));
        }
    }

    /// Schedules the next consent check after 0.8 to 1.2 intervals, so that sessions do not become synchronized
    /// (RFC 7675 §5.1).
    pub(super) fn schedule_consent(&mut self, now: Instant) {
        let fifth = self.config.consent_interval / 5;
        let spread = u64::try_from(fifth.as_micros()).unwrap_or(0).saturating_mul(2);
        let jitter = Duration::from_micros(self.random.below(spread.saturating_add(1)));
        let shortest = fifth.saturating_mul(4).max(Duration::from_millis(1));
        self.life.consent_at = Some(now + shortest + jitter);
    }

    pub(super) fn select(&mut self, now: Instant, path: Path, generation: u32, is_nominated: bool) {
        let before = self.nomination.selected.replace(Selected { path, generation, is_nominated });
        self.checks.iter_mut().for_each(|pair| pair.is_wanted = false);
        if is_nominated {
            self.nomination.nominating = None;
        }
        if is_nominated && generation == self.current.number {
            // Packets on a path with the former credentials are still accepted until that path falls silent.
            self.previous = None;
        }
        if !self.life.connected {
            self.life.connected = true;
            self.events.push_back(Event::Connected);
        }
        if before.is_none_or(|before| before.path != path) {
            self.events.push_back(Event::Selected(path));
            self.schedule_consent(now);
        }
    }

    /// Sends a new request. Returns false if there is no room for it.
    fn start(&mut self, now: Instant, path: Path, purpose: Purpose) -> bool {
        let mut id = TransactionId([0; 12]);
        self.random.fill(&mut id.0);
        let generation = self.checks.get(&path).map_or(self.current.number, |pair| pair.generation);
        let Some(bytes) = self.request(&path, purpose, id, generation) else { return false };
        let (rto, tries) = match purpose {
            // RFC 7675 §5.1: a consent check is not retransmitted; the next one follows instead.
            Purpose::Consent => (self.config.consent_timeout, 1),
            Purpose::Check { .. } => (self.rto(), self.config.tries),
            Purpose::Gather { .. } => (self.rto(), GATHER_TRIES),
        };
        let opened = self.transactions.insert(Transaction {
            id,
            path,
            purpose,
            role: self.role,
            generation,
            bytes: bytes.clone(),
            next_at: now + rto,
            rto,
            tries: tries.saturating_sub(1),
            is_replaced: false,
        });
        if opened {
            count(&mut self.stats.checks_sent);
            self.send(path, bytes);
        } else {
            count(&mut self.stats.no_room);
        }
        opened
    }

    /// Returns the retransmission timeout (RFC 8445 §14.3).
    fn rto(&self) -> Duration {
        let open = u32::try_from(self.checks.open()).unwrap_or(u32::MAX);
        self.config.ta.saturating_mul(open).max(self.config.rto).max(Duration::from_millis(1))
    }

    /// Writes a request (RFC 8445 §7.1).
    fn request(&self, path: &Path, purpose: Purpose, id: TransactionId, generation: u32) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(128);
        let writer = MessageWriter::new(&mut out, Class::Request, id);
        let nominates = match purpose {
            Purpose::Gather { .. } => {
                writer.finish_open();
                return Some(out);
            }
            Purpose::Check { nominates } => nominates,
            Purpose::Consent => self.nomination.selected.is_some_and(|selected| selected.is_nominated),
        };
        let Generation { local, remote, .. } = self.generation(generation)?;
        let remote = remote.as_ref()?;
        let index = self.candidates.locals.iter().position(|local| local.address == path.local).unwrap_or(0);
        let reflexive = priority(CandidateKind::PeerReflexive, Transport::Udp, self.preference(index));
        writer
            .username(remote.ufrag(), local.ufrag())
            .priority(reflexive)
            .role(match self.role {
                Role::Controlling => RoleAttribute::Controlling(self.tie_breaker),
                Role::Controlled => RoleAttribute::Controlled(self.tie_breaker),
            })
            .use_candidate(nominates && self.role == Role::Controlling)
            .finish(remote.key());
        Some(out)
    }

    pub(super) fn generation(&self, number: u32) -> Option<&Generation> {
        let of = [Some(&self.current), self.previous.as_ref()];
        of.into_iter().flatten().find(|generation| generation.number == number)
    }

    pub(super) fn send(&mut self, path: Path, bytes: Vec<u8>) {
        if !self.out.push(path, bytes) {
            count(&mut self.stats.no_room);
        }
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.life.closed.is_some() {
            return None;
        }
        let selected = self.selected();
        let others = self.checks.iter().filter(|pair| selected != Some(pair.path));
        let deadlines = [
            self.transactions.next_at(),
            self.next_pace(now),
            self.nominates_at(now),
            self.life.consent_at.filter(|_| selected.is_some()),
            self.consent_ends(),
            others.filter_map(|pair| pair.valid_until).min(),
            (!self.life.connected).then_some(self.life.connect_by),
        ];
        deadlines.into_iter().flatten().min()
    }
}
