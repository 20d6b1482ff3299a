//! Requests that may still be answered, and their retransmission (RFC 8489 §6.2.1).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::agent::Role;
use crate::limits::TRANSACTIONS_MAX;
use crate::path::Path;
use crate::stun::TransactionId;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Checks whether a pair works, or nominates it.
    Check { nominates: bool },
    /// Refreshes the consent of the selected pair.
    Consent,
    /// Learns a server-reflexive address from `server`.
    Gather { server: SocketAddr },
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) id: TransactionId,
    pub(super) path: Path,
    pub(super) purpose: Purpose,
    /// Our role as the request stated it.
    pub(super) role: Role,
    /// The generation of credentials it belongs to.
    pub(super) generation: u32,
    /// The request, for retransmissions.
    pub(super) bytes: Vec<u8>,
    /// The time of its next step.
    pub(super) next_at: Instant,
    pub(super) rto: Duration,
    /// Transmissions that are left.
    pub(super) tries: u32,
    /// Replaced by another check: its timeout means nothing.
    pub(super) is_replaced: bool,
}

/// The next step of a transaction.
#[derive(Debug)]
pub(super) enum Due {
    /// Goes out again.
    Again(Path, Vec<u8>),
    /// Was not answered.
    Ended(Transaction),
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Vec<Transaction>,
}

impl Transactions {
    /// False when there is no room. What was replaced makes room first.
    pub(super) fn insert(&mut self, transaction: Transaction) -> bool {
        if self.open.len() >= TRANSACTIONS_MAX
            && let Some(index) = self.open.iter().position(|open| open.is_replaced)
        {
            self.open.remove(index);
        }
        let room = self.open.len() < TRANSACTIONS_MAX;
        if room {
            self.open.push(transaction);
        }
        room
    }

    pub(super) fn get(&self, id: TransactionId) -> Option<&Transaction> {
        self.open.iter().find(|open| open.id == id)
    }

    pub(super) fn take(&mut self, id: TransactionId) -> Option<Transaction> {
        let index = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(index))
    }

    /// A transaction that is due. Each call reschedules it, so repeated calls end with `None`.
    pub(super) fn poll_due(&mut self, now: Instant, rto_max: Duration) -> Option<Due> {
        let index = self.open.iter().position(|open| open.next_at <= now)?;
        let open = self.open.get_mut(index)?;
        if open.tries == 0 {
            return Some(Due::Ended(self.open.remove(index)));
        }
        open.tries -= 1;
        open.rto = open.rto.saturating_mul(2).min(rto_max.max(Duration::from_millis(1)));
        open.next_at = now + open.rto;
        Some(Due::Again(open.path, open.bytes.clone()))
    }

    /// Another check takes the place of those of `path`, or one of them was answered: they are not retransmitted. An answer
    /// that is on its way still counts (RFC 8445 §7.3.1.4). A nomination is replaced by a nomination only.
    pub(super) fn replace(&mut self, path: &Path, by: Purpose) {
        let all = by == Purpose::Check { nominates: true };
        for open in self.open.iter_mut().filter(|open| open.path == *path) {
            let is_check = open.purpose == Purpose::Check { nominates: false };
            if is_check || (all && open.purpose == by) {
                open.tries = 0;
                open.is_replaced = true;
            }
        }
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Transaction) -> bool) {
        self.open.retain(keep);
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.next_at).min()
    }

    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }
}
