//! Orders from the command line to a running server.

use super::answer::Outcome;
use super::backups::busy;
use super::mask::Requester;
use super::{Control, Now};
use crate::types::SessionRef;

/// An order from the operator at the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Back up the store.
    BackUp,
    /// Begin a drain, or cancel it.
    Drain {
        /// True to begin a drain.
        is_leaving: bool,
    },
    /// Say whether a newer process may take over.
    CheckUpgrade,
}

impl Control {
    /// Carries out an order; the answer goes to `session`.
    pub fn handle_order(&mut self, now: Now, session: SessionRef, order: Order) {
        let requester = Requester::unknown(session);
        match order {
            Order::BackUp => {
                if !self.walks.back_up(&self.cx, &mut self.records, now, requester) {
                    self.cx.answer(requester, busy());
                }
            }
            Order::Drain { is_leaving } => {
                let outcome = self.outbound.drain(&mut self.cx, &mut self.registry, now, is_leaving);
                self.cx.answer(requester, outcome.response(200));
            }
            Order::CheckUpgrade => {
                // A newer process would admit sessions and thereby undo the drain.
                let outcome = match self.cx.lets_in_nothing() {
                    true => Outcome::failure("the server is draining"),
                    false => Outcome::success(),
                };
                self.cx.answer(requester, outcome.response(200));
            }
        }
        self.end_turn(now);
    }
}
