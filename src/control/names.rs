//! Host names to which this server connects, and their addresses.
//!
//! 1. A name resolved within the last hour is answered immediately, and also resolved again for the next attempt, so
//!    that a slow or busy resolver delays only new names. The system's resolver reports no TTL.
//! 2. Each application asks for a name only once at a time, and uses its own share of the resolver's threads
//!    ([`crate::jobs::shares`]).
//! 3. If a name can no longer be resolved, its last addresses remain in use until they are an hour old.
//! 4. `localhost` is this machine (RFC 6761, section 6.3) and is never looked up.

use crate::control::outgoing::Outgoing;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::jobs::Resolved;
use crate::jobs::{Outcome, Work};
use crate::mail::NextServer;
use crate::types::PullId;

/// Time for which the addresses of a name are used.
const KEPT: Duration = Duration::from_secs(3600);
/// Minimum interval at which a known name is resolved again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of names kept; the one resolved longest ago is evicted.
const KNOWN_MAX: usize = 4096;

/// The addresses of a name, or the reason there are none.
pub(super) type Addresses = Result<Vec<SocketAddr>, String>;

/// A host with a port, and the application whose share of the resolver is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) app: &'a Arc<str>,
    pub(super) host: &'a str,
    pub(super) port: u16,
}

/// The requester of a look-up.
#[derive(Debug)]
pub(super) enum Asker {
    /// An attempt of a push or pull, identified by the number of its request ([`super::jobs::ResolveRequest`]).
    Attempt(u64),
    /// An attempt of a pull that continues at another server.
    NextServer { pull: PullId, attempt: u64, server: NextServer },
}

/// A requester that waits for the addresses of a name, and the port to combine with each address.
#[derive(Debug)]
struct Waiter {
    port: u16,
    asker: Asker,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<IpAddr>,
    resolved: Instant,
    asked: Instant,
}

/// Names that are known or being resolved.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<String, Known>,
    /// Names by the time at which each was resolved.
    order: BTreeSet<(Instant, String)>,
    asking: BTreeMap<(Arc<str>, String), Vec<Waiter>>,
}

impl Names {
    /// Number of names being resolved.
    pub(super) fn asking(&self) -> usize {
        self.asking.len()
    }

    fn find(&self, now: Instant, host: &str) -> Option<&Known> {
        self.known.get(host).filter(|known| now.saturating_duration_since(known.resolved) < KEPT)
    }

    fn remember(&mut self, now: Instant, host: &str, addresses: Vec<IpAddr>) {
        let known = Known { addresses, resolved: now, asked: now };
        if let Some(before) = self.known.insert(host.to_owned(), known) {
            self.order.remove(&(before.resolved, host.to_owned()));
        }
        self.order.insert((now, host.to_owned()));
        while self.known.len() > KNOWN_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }
}

fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

impl Outgoing<'_> {
    /// Looks a name up for an application. The requester is answered immediately if the name is known, else later.
    pub(super) fn look_up(&mut self, Name { app, host, port }: Name<'_>, asker: Asker) {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let with_port = |address: &IpAddr| SocketAddr::new(*address, port);
        if is_localhost(&host) {
            let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return self.looked_up(asker, Ok(own.iter().map(with_port).collect()));
        }
        let known = self.outbound.names.find(self.now.mono, &host);
        let is_asked_again =
            known.is_none_or(|known| self.now.mono.saturating_duration_since(known.asked) >= ASKED_AGAIN);
        let addresses: Option<Vec<_>> = known.map(|known| known.addresses.iter().map(with_port).collect());
        let (waiter, answer) = match addresses {
            Some(addresses) => (None, Some((asker, addresses))),
            None => (Some(Waiter { port, asker }), None),
        };
        if is_asked_again {
            self.ask_name(((Arc::clone(app), host), port), waiter);
        }
        if let Some((asker, addresses)) = answer {
            self.looked_up(asker, Ok(addresses));
        }
    }

    fn looked_up(&mut self, asker: Asker, result: Addresses) {
        match asker {
            Asker::Attempt(id) => self.resolved(Resolved { id, result }),
            Asker::NextServer { pull, attempt, server } => {
                self.outbound.go_on(self.cx, (pull, attempt), server, result);
            }
        }
    }

    /// Starts a DNS lookup of the host, unless one is in progress for this application.
    fn ask_name(&mut self, (question, port): ((Arc<str>, String), u16), waiter: Option<Waiter>) {
        let (app, host) = question.clone();
        if let Some(known) = self.outbound.names.known.get_mut(&host) {
            known.asked = self.now.mono;
        }
        if let Some(waiting) = self.outbound.names.asking.get_mut(&question) {
            waiting.extend(waiter);
            return;
        }
        self.outbound.names.asking.insert(question.clone(), waiter.into_iter().collect());
        let asked = question.clone();
        let work = Work::Resolve { host, port };
        let sent = self.cx.submit_for(&app, work, move |control, now, outcome| {
            control.outgoing(now).name_resolved(&asked, outcome.resolved());
        });
        if !sent {
            self.name_resolved(&question, Outcome::Busy.resolved());
        }
    }

    fn name_resolved(&mut self, question: &(Arc<str>, String), answer: Addresses) {
        let waiting = self.outbound.names.asking.remove(question).unwrap_or_default();
        let answer: Result<Vec<IpAddr>, String> =
            answer.map(|addresses| addresses.iter().map(SocketAddr::ip).collect());
        if let Ok(addresses) = &answer {
            self.outbound.names.remember(self.now.mono, &question.1, addresses.clone());
        }
        for Waiter { port, asker } in waiting {
            let with_port = |addresses: &Vec<IpAddr>| {
                addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
            };
            self.looked_up(asker, answer.as_ref().map(with_port).map_err(Clone::clone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_for_an_hour_and_the_oldest_go_first() {
        let (mut names, start) = (Names::default(), Instant::now());
        let address = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        names.remember(start, "a.example", address.clone());
        assert!(names.find(start + KEPT - Duration::from_secs(1), "a.example").is_some());
        assert!(names.find(start + KEPT, "a.example").is_none());
        for n in 0..KNOWN_MAX + 10 {
            let at = start + Duration::from_millis(n as u64);
            names.remember(at, &format!("{n}.example"), address.clone());
        }
        assert_eq!((names.known.len(), names.order.len()), (KNOWN_MAX, KNOWN_MAX));
        assert!(names.find(start, "a.example").is_none() && names.find(start, "0.example").is_none());
        names.remember(start + KEPT, "100.example", address);
        assert_eq!((names.known.len(), names.order.len()), (KNOWN_MAX, KNOWN_MAX));
    }
}
