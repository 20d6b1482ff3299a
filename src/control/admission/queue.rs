//! Admissions that wait for the answer of a hook receiver, or for a free thread to ask it.
//!
//! The next question is taken from the application with fewest questions in progress and, within it, from the address
//! with fewest. Publishers come before viewers, and older questions before newer ones. An address with many requests,
//! or a slow receiver, thus does not delay the others. Applications share the threads ([`crate::jobs::shares`]) and the
//! waiting places.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::claims::Ticket;
use crate::auth::HookUrl;
use crate::jobs::Class;
use crate::jobs::shares::{Payer, Threads, Turn};

/// Number of receivers asked at the same time.
const THREADS: usize = Class::Admission.limits().threads;
/// Maximum threads for one receiver, so that a receiver that hangs does not block the others.
const PER_RECEIVER: usize = THREADS / 2;
/// Maximum threads for the questions of one address at one receiver. The rest is reserved for other addresses.
const PER_ADDRESS: usize = PER_RECEIVER - PER_RECEIVER / 4;

/// A question that was not submitted to a thread yet.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    pub(super) app: Arc<str>,
    /// Network of the peer's address, by which questions are counted.
    pub(super) network: IpAddr,
    pub(super) publishes: bool,
}

/// A question that a thread is sending to its receiver.
#[derive(Debug)]
struct Running {
    host: String,
    port: u16,
    network: IpAddr,
    turn: Turn,
}

/// Questions on their way to receivers.
#[derive(Debug)]
pub(super) struct HookQueue {
    threads: Threads,
    /// Waiting questions, oldest first.
    waiting: BTreeMap<Ticket, Queued>,
    /// Questions on threads. An entry stays until the thread is free, even if nobody waits for the answer.
    running: BTreeMap<Ticket, Running>,
}

impl Default for HookQueue {
    fn default() -> Self {
        Self { threads: Threads::new(THREADS), waiting: BTreeMap::new(), running: BTreeMap::new() }
    }
}

impl HookQueue {
    pub(super) fn push(&mut self, question: Queued) {
        self.waiting.insert(question.ticket, question);
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Removes and returns the next question that a free thread may send to its receiver. `url` returns the receiver of
    /// a question.
    pub(super) fn next<'a>(&mut self, url: impl Fn(Ticket) -> Option<&'a HookUrl>) -> Option<Ticket> {
        if self.threads.is_full() {
            return None;
        }
        let ready = self.waiting.values().filter_map(|question| {
            let app = Some(&question.app);
            if !self.threads.may_begin(&Payer::new(app, "")) {
                return None;
            }
            let of_address = self.threads_for(url(question.ticket)?, question.network)?;
            Some((self.threads.of_app(app), of_address, !question.publishes, question.ticket))
        });
        let (.., ticket) = ready.min()?;
        self.waiting.remove(&ticket).map(|question| question.ticket)
    }

    /// Returns the number of threads that an address uses, or `None` if it may not use another one for this receiver.
    fn threads_for(&self, url: &HookUrl, network: IpAddr) -> Option<usize> {
        let of_receiver = |one: &&Running| one.host == url.host && one.port == url.port;
        let of_both = |one: &&Running| of_receiver(one) && one.network == network;
        let of_address = self.running.values().filter(|one| one.network == network).count();
        let is_free = self.running.values().filter(of_receiver).count() < PER_RECEIVER
            && self.running.values().filter(of_both).count() < PER_ADDRESS;
        is_free.then_some(of_address)
    }

    pub(super) fn begin(&mut self, ticket: Ticket, app: &Arc<str>, url: &HookUrl, network: IpAddr) {
        let turn = self.threads.begin(Payer::new(Some(app), ""));
        self.running.insert(ticket, Running { host: url.host.clone(), port: url.port, network, turn });
    }

    /// Notes that the thread of a question is free.
    pub(super) fn end(&mut self, ticket: Ticket) {
        if let Some(Running { turn, .. }) = self.running.remove(&ticket) {
            self.threads.end(turn, Duration::ZERO);
        }
    }

    /// Returns the waiting question to drop so that a newcomer can wait; `None` if the newcomer must be refused. The
    /// application with most questions loses one if it has at least two more than the newcomer's application. Otherwise
    /// the newcomer's application loses one, but only if one of its addresses has at least two more than the newcomer's
    /// address. Within the application, the address with most questions loses its newest question of a viewer or, if it
    /// has none, its newest question of a publisher.
    pub(super) fn excess(&self, app: &Arc<str>, newcomer: IpAddr) -> Option<Ticket> {
        let of_app = |app: &Arc<str>| self.waiting.values().filter(|one| one.app == *app).count();
        let apps: BTreeSet<&Arc<str>> = self.waiting.values().map(|one| &one.app).collect();
        let (most, largest) = apps.into_iter().map(|app| (of_app(app), app)).max()?;
        let is_foreign = most > of_app(app).saturating_add(1);
        let victim = if is_foreign { largest } else { app };
        let of_victim = || self.waiting.values().filter(|one| one.app == *victim);
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for question in of_victim() {
            *counts.entry(question.network).or_default() += 1;
        }
        let own = counts.get(&newcomer).copied().unwrap_or(0);
        let (network, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let of_most = of_victim().rev().filter(|question| question.network == network);
        let last = of_most.min_by_key(|question| question.publishes)?;
        (is_foreign || most > own.saturating_add(1)).then_some(last.ticket)
    }
}
