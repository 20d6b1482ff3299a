//! The only check that a lite agent sends: of an unvalidated path on which authentic media has arrived.
//!
//! A NAT that loses its binding gives the peer another port, which the peer does not notice. The peer's
//! media arrives on the new path immediately, but its next check only seconds later. The probe closes this gap:
//! an answer proves that the host at the other end of the new path has the peer's password now. Media alone
//! does not prove this, since an eavesdropper could forward it from its own address.

use std::time::Instant;

use crypto::{Random, Seed};

use super::Generation;
use crate::candidate::{CandidateKind, Transport, priority};
use crate::limits::{PROBE_INTERVAL, PROBE_RTO, PROBE_TRIES};
use crate::path::Path;
use crate::stun::{Class, MessageWriter, RoleAttribute, TransactionId};

/// A probe that has not been answered yet.
#[derive(Debug)]
struct Open {
    path: Path,
    id: TransactionId,
    /// Requests sent so far.
    tries: u32,
    /// Time of the next request; after the last request, the time at which the probe fails.
    next: Instant,
}

/// Probes of an agent, at most one at a time.
#[derive(Debug)]
pub(super) struct Probes {
    random: Random,
    tie_breaker: u64,
    open: Option<Open>,
    /// Earliest time at which the next probe may start.
    next: Option<Instant>,
}

/// Action due for the open probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send the request on this path.
    Request(Path),
    /// Give up: there was no answer in time.
    Failed,
}

impl Probes {
    pub(super) fn new(seed: &Seed) -> Self {
        let mut random = seed.derive("ice probes", 0).random();
        Self { tie_breaker: random.u64(), random, open: None, next: None }
    }

    /// True if enough time has passed since the last probe started.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Starts a probe of `path`, which replaces an open one.
    pub(super) fn begin(&mut self, now: Instant, path: Path) {
        self.next = Some(now + PROBE_INTERVAL);
        let mut id = [0; 12];
        self.random.fill(&mut id);
        self.open = Some(Open { path, id: TransactionId(id), tries: 0, next: now });
    }

    /// Discards the open probe.
    pub(super) fn end(&mut self) {
        self.open = None;
    }

    /// Returns the action that is due. The returned request counts as sent.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Due> {
        let open = self.open.as_mut().filter(|open| open.next <= now)?;
        if open.tries >= PROBE_TRIES {
            self.open = None;
            return Some(Due::Failed);
        }
        open.next = now + PROBE_RTO.saturating_mul(1 << open.tries);
        open.tries += 1;
        Some(Due::Request(open.path))
    }

    /// Returns the next deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.next)
    }

    /// True if an answer with this transaction id on `path` belongs to the open probe.
    pub(super) fn is_answered_by(&self, path: &Path, id: TransactionId) -> bool {
        self.open.as_ref().is_some_and(|open| open.path == *path && open.id == id)
    }

    /// Writes the request of the open probe (RFC 8445 §7.1). `None` while the peer's credentials are unknown.
    pub(super) fn request(&self, generation: &Generation) -> Option<Vec<u8>> {
        let (open, remote) = (self.open.as_ref()?, generation.remote.as_ref()?);
        let mut out = Vec::with_capacity(128);
        MessageWriter::new(&mut out, Class::Request, open.id)
            .username(remote.ufrag(), generation.local.ufrag())
            .priority(priority(CandidateKind::PeerReflexive, Transport::Udp, u16::MAX))
            .role(RoleAttribute::Controlled(self.tie_breaker))
            .finish(remote.key());
        Some(out)
    }
}
