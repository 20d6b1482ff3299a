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

/// Answers that are held back at a time; more go out at once.
const HELD_MAX: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Management {
    pub(super) sessions: Sessions,
    pub(super) lockout: Lockout,
    /// Asked of whoever makes the first user; `None`: there is a user, or it is not asked for.
    pub(super) first_code: Option<FirstCode>,
    held: BTreeMap<(Instant, u64), (Requester, Response)>,
    held_count: u64,
}

impl Management {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// Holds an answer back for so long; gives it back when too many are held.
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

    /// An answer that was held back long enough.
    fn poll_due(&mut self, now: Now) -> Option<(Requester, Response)> {
        let due = self.held.first_entry().filter(|entry| entry.key().0 <= now.mono);
        due.map(|entry| entry.remove())
    }

    /// Answers later, at a time that nobody can foretell, up to four seconds: who tries passwords cannot tell a slow
    /// check from a quick one.
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

    /// Sends what was held back long enough.
    pub(super) fn fire_held(&mut self, cx: &mut Context, now: Now) {
        while let Some((requester, response)) = self.poll_due(now) {
            cx.answer(requester, response);
        }
    }
}
