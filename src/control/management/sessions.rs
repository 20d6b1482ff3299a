//! Login sessions. A session id is a random number known only to its browser; sessions are kept in memory only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Random;

use super::users::PasswordHash;

/// Name of the session cookie.
pub(in crate::control) const SESSION_COOKIE: &str = "JSESSIONID";
/// Time without a request after which a session ends.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Time after which a session ends even if it is used.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions of one user. Beyond this number, the user's oldest session is ended.
const PER_USER: usize = 50;
/// Maximum number of sessions in total. Beyond this number, the session that has been idle for longest is ended.
const TOTAL: usize = 10_000;

/// The value of the cookie: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::control) struct SessionId(u128);

impl SessionId {
    /// Parses a session id as written by [`fmt::Display`]; `None` for any other text.
    pub(in crate::control) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if fits { u128::from_str_radix(text, 16).ok().map(Self) } else { None }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Hides the id, which is as good as a password.
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(..)")
    }
}

#[derive(Debug)]
struct Session {
    email: Arc<str>,
    began: Instant,
    used: Instant,
    /// Hash of the password that this session's user has set in this session. The session outlives that change.
    renewed: Option<PasswordHash>,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE || now.saturating_duration_since(self.began) >= LIFE
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(in crate::control) struct Sessions {
    by_id: BTreeMap<SessionId, Session>,
}

impl Sessions {
    /// Begins a session. Its id is always new, whatever the client sent (docs/robustness.md R-30).
    pub(in crate::control) fn begin(&mut self, now: Instant, random: &mut Random, email: &str) -> SessionId {
        self.by_id.retain(|_, session| !session.is_over(now));
        let of_user = self.by_id.iter().filter(|(_, session)| &*session.email == email);
        if of_user.clone().count() >= PER_USER {
            let oldest = of_user.min_by_key(|(_, session)| session.began).map(|(id, _)| *id);
            oldest.map(|id| self.by_id.remove(&id));
        }
        if self.by_id.len() >= TOTAL {
            let rested = self.by_id.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            rested.map(|id| self.by_id.remove(&id));
        }
        let id = SessionId(u128::from(random.u64()) << 64 | u128::from(random.u64()));
        self.by_id.insert(id, Session { email: email.into(), began: now, used: now, renewed: None });
        id
    }

    /// Returns the user of a session, and extends the session.
    pub(in crate::control) fn find(&mut self, now: Instant, id: SessionId) -> Option<Arc<str>> {
        let session = self.by_id.get_mut(&id)?;
        if session.is_over(now) {
            self.by_id.remove(&id);
            return None;
        }
        session.used = now;
        Some(session.email.clone())
    }

    /// Ends a session.
    pub(in crate::control) fn end(&mut self, id: SessionId) {
        self.by_id.remove(&id);
    }

    /// Notes that a session's own request changes the password of its user, which [`Self::end_all`] does not count.
    pub(in crate::control) fn renew(&mut self, id: SessionId, hash: PasswordHash) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.renewed = Some(hash);
        }
    }

    /// Ends all sessions of a user who was removed or has a new password, except the one that has set this password.
    pub(in crate::control) fn end_all(&mut self, email: &str, hash: Option<&PasswordHash>) {
        self.by_id.retain(|_, session| {
            &*session.email != email || (hash.is_some() && session.renewed.as_ref() == hash)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Seed;

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn r_32_a_session_ends_when_it_rests_and_when_its_time_is_over() {
        let (mut sessions, mut random, start) =
            (Sessions::default(), Seed::from_number(1).random(), Instant::now());
        let id = sessions.begin(start, &mut random, "a@b");
        assert_eq!(sessions.find(start + minutes(29), id).as_deref(), Some("a@b"));
        assert!(sessions.find(start + minutes(58), id).is_some(), "use keeps it");
        assert!(sessions.find(start + minutes(88), id).is_none());
        assert!(sessions.find(start, id).is_none(), "over is over");
        let id = sessions.begin(start, &mut random, "a@b");
        for n in 1..36 {
            assert!(sessions.find(start + minutes(20 * n), id).is_some(), "{n}");
        }
        assert!(sessions.find(start + minutes(720), id).is_none());
    }

    #[test]
    fn r_31_ids_are_never_repeated_and_read_only_as_written() {
        let (mut random, now) = (Seed::from_number(7).random(), Instant::now());
        let mut seen = std::collections::BTreeSet::new();
        let mut sessions = Sessions::default();
        let mut ones = [0_u32; 128];
        for n in 0..100_000 {
            // Ids are made as `Sessions` makes them. The table is cleared regularly, to keep the search short.
            if n % 40 == 0 {
                sessions = Sessions::default();
            }
            let id = sessions.begin(now, &mut random, "a@b");
            assert!(seen.insert(id));
            ones.iter_mut().enumerate().for_each(|(bit, count)| *count += u32::from(id.0 >> bit & 1 == 1));
        }
        // Each of the 128 bits is one as often as zero (within six standard deviations).
        assert!(ones.iter().all(|count| count.abs_diff(50_000) < 950), "{ones:?}");
        let id = *seen.first().unwrap();
        let text = id.to_string();
        assert_eq!((text.len(), SessionId::parse(&text)), (32, Some(id)));
        for other in
            [text.to_uppercase() + "A", format!("+{}", &text[1..]), text[1..].to_owned(), String::new()]
        {
            assert_eq!(SessionId::parse(&other), None, "{other}");
        }
        assert!(!format!("{id:?}").contains(&text));
    }

    #[test]
    fn the_numbers_of_sessions_are_bounded() {
        let (mut sessions, mut random, start) =
            (Sessions::default(), Seed::from_number(1).random(), Instant::now());
        let at = |n: usize| start + Duration::from_millis(n as u64);
        let ids: Vec<_> = (0..60).map(|n| sessions.begin(at(n), &mut random, "a@b")).collect();
        assert_eq!(sessions.by_id.len(), PER_USER);
        assert!(sessions.find(at(60), ids[9]).is_none() && sessions.find(at(60), ids[10]).is_some());
        for n in 0..TOTAL {
            sessions.begin(at(100 + n), &mut random, &format!("u{n}"));
        }
        assert_eq!(sessions.by_id.len(), TOTAL);
        sessions.end_all("u9999", None);
        assert_eq!(sessions.by_id.len(), TOTAL - 1);
    }
}
