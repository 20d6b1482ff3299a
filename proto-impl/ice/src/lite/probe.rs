//! The one check that a lite agent sends: of a path by which authentic media came, though no check has validated it.
//!
//! A translator of addresses that forgets its binding gives the peer another port, and the peer does not know. Its media comes by a new
//! path at once, its next check only seconds later. The probe asks instead of waiting: who answers it has the peer's password, at the
//! other end of the new path, now. A copy of media that a listener sends on from an address of its own proves neither.

use std::time::Instant;

use crypto::{Random, Seed};

use super::Generation;
use crate::candidate::{CandidateKind, Transport, priority};
use crate::limits::{PROBE_RTO, PROBE_TRIES};
use crate::path::Path;
use crate::stun::{Class, MessageWriter, RoleAttribute, TransactionId};

/// A probe that is not answered yet.
#[derive(Debug)]
struct Open {
    path: Path,
    id: TransactionId,
    /// Requests sent so far.
    tries: u32,
    /// The time of the next request, or of the end after the last one.
    next: Instant,
}

/// The probes of an agent, one at a time.
#[derive(Debug)]
pub(super) struct Probes {
    random: Random,
    tie_breaker: u64,
    open: Option<Open>,
}

/// The state of the open probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// A request is to be sent by this path.
    Request(Path),
    /// No answer came: the probe has failed.
    Failed,
}

impl Probes {
    pub(super) fn new(seed: &Seed) -> Self {
        let mut random = seed.derive("ice probes", 0).random();
        Self { tie_breaker: random.u64(), random, open: None }
    }

    /// Begins a probe of `path`, in place of one that is open.
    pub(super) fn begin(&mut self, now: Instant, path: Path) {
        let mut id = [0; 12];
        self.random.fill(&mut id);
        self.open = Some(Open { path, id: TransactionId(id), tries: 0, next: now });
    }

    /// Ends the open probe.
    pub(super) fn end(&mut self) {
        self.open = None;
    }

    /// The action that is due, if one is. A request counts as sent.
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

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.next)
    }

    /// Whether an answer with this transaction id that came by `path` is one to the open probe.
    pub(super) fn is_answered_by(&self, path: &Path, id: TransactionId) -> bool {
        self.open.as_ref().is_some_and(|open| open.path == *path && open.id == id)
    }

    /// The request of the open probe (RFC 8445 §7.1); `None` before the peer's credentials are known.
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
