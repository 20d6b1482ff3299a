//! Admissions whose receivers are asked, or will be when a thread is free.
//!
//! The next is of the address with fewest questions under way, publishers before viewers, the oldest first: one address that
//! asks as often as it may, and a receiver that is slow, do not keep the others waiting.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::claims::Ticket;
use crate::auth::HookUrl;
use crate::jobs::Class;

/// Receivers that are asked at the same time.
const THREADS: usize = Class::Admission.limits().threads;
/// Threads that one receiver may occupy: one that hangs does not keep the others from answering.
const PER_RECEIVER: usize = THREADS / 2;
/// Threads that the questions of one address may occupy at one receiver. The rest is for the others, who would else wait for a
/// receiver that takes its time with those.
const PER_ADDRESS: usize = PER_RECEIVER - PER_RECEIVER / 4;

/// A question that was not handed to a thread yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    /// The address that it is about, as addresses are counted.
    pub(super) network: IpAddr,
    pub(super) publishes: bool,
}

/// A question on a thread.
#[derive(Debug)]
struct Running {
    host: String,
    port: u16,
    network: IpAddr,
}

/// Questions on their way to receivers.
#[derive(Debug, Default)]
pub(super) struct HookQueue {
    /// Oldest first.
    waiting: VecDeque<Queued>,
    /// An entry stays until the thread is back, whether somebody waits or not.
    running: BTreeMap<Ticket, Running>,
}

impl HookQueue {
    pub(super) fn push(&mut self, question: Queued) {
        self.waiting.push_back(question);
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.waiting.retain(|other| other.ticket != ticket);
    }

    /// Takes out the next question whose receiver, which `url` knows, has a thread left.
    pub(super) fn next<'a>(&mut self, url: impl Fn(Ticket) -> Option<&'a HookUrl>) -> Option<Ticket> {
        if self.running.len() >= THREADS {
            return None;
        }
        let ready = self.waiting.iter().enumerate().filter_map(|(at, question)| {
            let of_address = self.threads_for(url(question.ticket)?, question.network)?;
            Some((of_address, !question.publishes, at))
        });
        let (_, _, at) = ready.min()?;
        self.waiting.remove(at).map(|question| question.ticket)
    }

    /// The threads that an address has; `None`: neither it nor somebody else gets a further one for this receiver.
    fn threads_for(&self, url: &HookUrl, network: IpAddr) -> Option<usize> {
        let of_receiver = |one: &&Running| one.host == url.host && one.port == url.port;
        let of_both = |one: &&Running| of_receiver(one) && one.network == network;
        let of_address = self.running.values().filter(|one| one.network == network).count();
        let is_free = self.running.values().filter(of_receiver).count() < PER_RECEIVER
            && self.running.values().filter(of_both).count() < PER_ADDRESS;
        is_free.then_some(of_address)
    }

    pub(super) fn begin(&mut self, ticket: Ticket, url: &HookUrl, network: IpAddr) {
        let running = Running { host: url.host.clone(), port: url.port, network };
        self.running.insert(ticket, running);
    }

    /// Its thread is back.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// Of the questions that wait, the newest of the address that has most of them, publishers last; when the address that
    /// `newcomer` names has fewer.
    pub(super) fn excess(&self, newcomer: IpAddr) -> Option<Ticket> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for question in &self.waiting {
            *counts.entry(question.network).or_default() += 1;
        }
        let own = counts.get(&newcomer).copied().unwrap_or(0);
        let (network, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let of_most = self.waiting.iter().rev().filter(|question| question.network == network);
        let last = of_most.min_by_key(|question| question.publishes)?;
        (most > own.saturating_add(1)).then_some(last.ticket)
    }
}
