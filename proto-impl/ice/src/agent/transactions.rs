//! Pending requests and their retransmission (RFC 8489 §6.2.1).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::agent::Role;
use crate::limits::TRANSACTIONS_MAX;
use crate::path::Path;
use crate::stun::TransactionId;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Checks whether a pair works; with `nominates`, also nominates it.
    Check { nominates: bool },
    /// Renews the consent of the selected pair.
    Consent,
    /// Requests our server-reflexive address from `server`.
    Gather { server: SocketAddr },
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) id: TransactionId,
    pub(super) path: Path,
    pub(super) purpose: Purpose,
    /// Our role as stated in the request.
    pub(super) role: Role,
    /// Generation of credentials used in the request.
    pub(super) generation: u32,
    /// The encoded request, for retransmissions.
    pub(super) bytes: Vec<u8>,
    /// Time of the next retransmission, or of the failure.
    pub(super) next_at: Instant,
    pub(super) rto: Duration,
    /// Number of transmissions left.
    pub(super) tries: u32,
    /// True if another check has replaced this one, so that its timeout is ignored.
    pub(super) is_replaced: bool,
}

/// Next step of a transaction.
#[derive(Debug)]
pub(super) enum Due {
    /// The request must be sent again on this path.
    Again(Path, Vec<u8>),
    /// The request was not answered.
    Ended(Transaction),
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Vec<Transaction>,
}

impl Transactions {
    /// Adds a transaction. If the table is full, first drops a transaction that another check has replaced. Returns
    /// false if there is no room.
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

    /// Returns a transaction that is due and reschedules it; repeated calls eventually return `None`.
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

    /// Stops retransmitting the checks of `path`, because another check replaces them, or because one was
    /// answered. An answer in flight still counts (RFC 8445 §7.3.1.4). A nomination is only replaced by another
    /// nomination.
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
