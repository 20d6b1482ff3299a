//! The tickets by which admissions and sources claim ids.

/// Identifies an admission or a source, and the claim that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// Returns the number that identifies the ticket in the directory's answers.
    pub(in crate::control) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the ticket of this number.
    pub(in crate::control) const fn of(number: u64) -> Self {
        Self(number)
    }
}
