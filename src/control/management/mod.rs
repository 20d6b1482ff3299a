//! The state of the management API: users, sessions, failed logins, delayed answers.

mod first_code;
mod hashing;
mod lockout;
mod sessions;
mod users;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::context::Context;
use super::mask::Requester;
use crate::http::Response;
use crate::types::Now;

pub(super) use first_code::{CODE_CHARACTERS, FirstCode};
pub(super) use hashing::Purpose;
pub(super) use lockout::{Lockout, Try};
pub(super) use sessions::{SESSION_COOKIE, SessionId, Sessions};
pub use users::is_email;
pub(super) use users::{PasswordHash, Role, SYSTEM, User};

/// Maximum number of delayed answers; further ones are sent immediately.
const HELD_MAX: usize = 1000;

/// State of the management API.
#[derive(Debug, Default)]
pub(super) struct Management {
    pub(super) sessions: Sessions,
    pub(super) lockout: Lockout,
    /// Code required to create the first user; `None` if there is a user already, or no code is required.
    pub(super) first_code: Option<FirstCode>,
    held: BTreeMap<(Instant, u64), (Requester, Response)>,
    held_count: u64,
}

impl Management {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// Delays an answer; returns it if too many are delayed.
    fn hold(
        &mut self,
        now: Now,
        delay: Duration,
        requester: Requester,
        response: Response,
    ) -> Option<Response> {
        match now.mono.checked_add(delay) {
            Some(due) if self.held.len() < HELD_MAX => {
                self.held_count += 1;
                self.held.insert((due, self.held_count), (requester, response));
                None
            }
            Some(_) | None => Some(response),
        }
    }

    /// Returns an answer whose delay is over.
    fn poll_due(&mut self, now: Now) -> Option<(Requester, Response)> {
        let due = self.held.first_entry().filter(|entry| entry.key().0 <= now.mono);
        due.map(|entry| entry.remove())
    }

    /// Answers after a random delay of up to four seconds, so that slow and quick password checks cannot be told apart.
    pub(super) fn answer_late(
        &mut self,
        cx: &mut Context,
        now: Now,
        requester: Requester,
        response: Response,
    ) {
        const DELAY_MAX_MS: u64 = 4000;
        let delay = Duration::from_millis(cx.random.below(DELAY_MAX_MS));
        if let Some(response) = self.hold(now, delay, requester, response) {
            cx.answer(requester, response);
        }
    }

    /// Sends the answers whose delay is over.
    pub(super) fn fire_held(&mut self, cx: &mut Context, now: Now) {
        while let Some((requester, response)) = self.poll_due(now) {
            cx.answer(requester, response);
        }
    }
}
