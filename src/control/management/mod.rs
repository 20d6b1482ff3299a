//! What the management API keeps: users, who is logged in, who failed to, passwords that are being hashed, answers
//! that are held back.

mod hashing;
mod lockout;
mod sessions;
mod users;

use std::collections::BTreeMap;
use std::time::Instant;

use super::Control;
use crate::http::Response;
use crate::types::{Now, SessionRef};

pub(super) use hashing::Purpose;
pub(super) use lockout::{Lockout, Try};
pub(super) use sessions::{SESSION_COOKIE, SessionId, Sessions};
pub use users::is_email;
pub(super) use users::{PasswordHash, Role, SYSTEM, User};

/// Answers that are held back at a time; more go out at once.
const HELD_MAX: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Management {
    pub(super) sessions: Sessions,
    pub(super) lockout: Lockout,
    held: BTreeMap<(Instant, u64), (SessionRef, Response)>,
    held_count: u64,
}

impl Management {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }
}

impl Control {
    /// Answers later, at a time that nobody can foretell, up to four seconds: who guesses passwords cannot tell a slow
    /// check from a quick one.
    pub(super) fn answer_late(&mut self, now: Now, session: SessionRef, response: Response) {
        const DELAY_MAX_MS: u64 = 4000;
        let delay = std::time::Duration::from_millis(self.random.below(DELAY_MAX_MS));
        match now.mono.checked_add(delay) {
            Some(due) if self.management.held.len() < HELD_MAX => {
                self.management.held_count += 1;
                let number = self.management.held_count;
                self.management.held.insert((due, number), (session, response));
            }
            Some(_) | None => self.answer(session, response),
        }
    }

    /// Sends what was held back long enough.
    pub(super) fn fire_held(&mut self, now: Now) {
        while let Some(((due, number), held)) = self.management.held.pop_first() {
            if due > now.mono {
                self.management.held.insert((due, number), held);
                return;
            }
            self.answer(held.0, held.1);
        }
    }
}
