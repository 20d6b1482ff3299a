//! The tickets by which admissions and sources claim ids.

/// Tells admissions apart; also what a claim is made and given back by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// The number by which the directory answers.
    pub(in crate::control) const fn number(self) -> u64 {
        self.0
    }

    /// The ticket of an answer.
    pub(in crate::control) const fn of(number: u64) -> Self {
        Self(number)
    }
}
