//! Names of hosts that this server connects to, and their addresses.
//!
//! 1. A name that was resolved within the last hour is answered at once, and asked for again beside that, for the next attempt: a
//!    resolver that is slow, or busy with names that nobody answers for, holds up only what is new. The system's resolver tells
//!    no time to live.
//! 2. A name is asked for once at a time for each application, whose share of the resolver's threads pays for it
//!    ([`crate::jobs::shares`]).
//! 3. A name that cannot be resolved any more keeps the addresses it had, for that hour.
//! 4. `localhost` is this machine (RFC 6761, section 6.3), and nobody is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Control;
use crate::jobs::{Outcome, Work};
use crate::types::Now;

/// An answer is used for so long.
const KEPT: Duration = Duration::from_secs(3600);
/// A name that is known is asked for again at most so often.
const ASKED_AGAIN: Duration = Duration::from_millis(500);
/// Names that are remembered; the one that was resolved longest ago is forgotten first.
const KNOWN_MAX: usize = 4096;

/// The addresses of a name, or the reason why there are none.
pub(super) type Addresses = Result<Vec<SocketAddr>, String>;

type Next = Box<dyn FnOnce(&mut Control, Now, Addresses) + Send>;

/// The continuation of a look-up, with the port of the addresses.
struct Waiter {
    port: u16,
    next: Next,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<IpAddr>,
    resolved: Instant,
    asked: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    known: BTreeMap<String, Known>,
    /// The same by the time at which each was resolved.
    order: BTreeSet<(Instant, String)>,
    asking: BTreeMap<(Arc<str>, String), Vec<Waiter>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Names {
    /// Names that the resolver is asked for.
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

impl Control {
    /// Looks a name up for an application; `next` goes on with the answer, perhaps before this returns.
    pub(super) fn look_up(
        &mut self,
        now: Now,
        app: &Arc<str>,
        (host, port): (&str, u16),
        next: impl FnOnce(&mut Self, Now, Addresses) + Send + 'static,
    ) {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let with_port = |address: &IpAddr| SocketAddr::new(*address, port);
        if is_localhost(&host) {
            let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return next(self, now, Ok(own.iter().map(with_port).collect()));
        }
        let known = self.outbound.names.find(now.mono, &host);
        let is_asked_again =
            known.is_none_or(|known| now.mono.saturating_duration_since(known.asked) >= ASKED_AGAIN);
        let addresses: Option<Vec<_>> = known.map(|known| known.addresses.iter().map(with_port).collect());
        let (waiter, answer) = match addresses {
            Some(addresses) => (None, Some((next, addresses))),
            None => (Some(Waiter { port, next: Box::new(next) }), None),
        };
        if is_asked_again {
            self.ask_name(now, app, (host, port), waiter);
        }
        if let Some((next, addresses)) = answer {
            next(self, now, Ok(addresses));
        }
    }

    /// Starts a DNS lookup of the host, unless one is in progress for this application.
    fn ask_name(&mut self, now: Now, app: &Arc<str>, (host, port): (String, u16), waiter: Option<Waiter>) {
        if let Some(known) = self.outbound.names.known.get_mut(&host) {
            known.asked = now.mono;
        }
        let question = (Arc::clone(app), host.clone());
        if let Some(waiting) = self.outbound.names.asking.get_mut(&question) {
            waiting.extend(waiter);
            return;
        }
        self.outbound.names.asking.insert(question.clone(), waiter.into_iter().collect());
        let asked = question.clone();
        let work = Work::Resolve { host, port };
        let sent = self.cx.submit_for(app, work, move |control, now, outcome| {
            control.name_resolved(now, &asked, outcome.resolved());
        });
        if !sent {
            self.name_resolved(now, &question, Outcome::Busy.resolved());
        }
    }

    fn name_resolved(&mut self, now: Now, question: &(Arc<str>, String), answer: Addresses) {
        let waiting = self.outbound.names.asking.remove(question).unwrap_or_default();
        let answer: Result<Vec<IpAddr>, String> =
            answer.map(|addresses| addresses.iter().map(SocketAddr::ip).collect());
        if let Ok(addresses) = &answer {
            self.outbound.names.remember(now.mono, &question.1, addresses.clone());
        }
        for Waiter { port, next } in waiting {
            let with_port = |addresses: &Vec<IpAddr>| {
                addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
            };
            next(self, now, answer.as_ref().map(with_port).map_err(Clone::clone));
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
