//! The right to publish an id at all: where several servers share their ids, one server has it at a time.

use std::fmt;

use crate::types::StreamKey;

/// Tells admissions apart; also what a claim is made and given back by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The immediate result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The id may be published here.
    Granted,
    /// Taken by another server.
    Taken,
    /// Somebody else was asked; the answer comes by [`crate::control::Control::handle_claim`].
    Asked,
}

/// The directory of ids. A claim is tentative while its admission goes on, and holds while its stream lives.
pub trait Claims: fmt::Debug + Send {
    /// Claims an id for an admission.
    fn claim(&mut self, ticket: Ticket, key: &StreamKey) -> Claim;

    /// Gives a claim back, or withdraws one that is not answered; its answer need not come any more. Nothing happens when there
    /// was none.
    fn release(&mut self, ticket: Ticket);
}

/// A single server: the registry alone says whether an id is free.
#[derive(Debug)]
pub(super) struct LocalClaims;

impl Claims for LocalClaims {
    fn claim(&mut self, _: Ticket, _: &StreamKey) -> Claim {
        Claim::Granted
    }

    fn release(&mut self, _: Ticket) {}
}
