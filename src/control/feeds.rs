//! Feeds: API requests that a connection repeats each second for as long as its client reads the answers
//! (docs/rest.md).
//!
//! 1. Each request waits in the queue of its requester: a user, or an address that uses the server's token. A waiting
//!    request costs almost no time.
//! 2. A slice answers requests up to a number of rows, one request of each queue in turn; other mail is handled between
//!    two slices. Under high load, feeds are answered less often than once a second, and the feeds of requesters with
//!    many feeds least often.
//! 3. A feed is remembered for [`REMEMBERED`] after its last request. There are at most [`OF_ASKER_MAX`] feeds per
//!    requester and [`FEEDS_MAX`] in total. When all are in use, the requester with most feeds loses one to a requester
//!    with fewer. A feed that gets no place is answered 503, which ends it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access::Access;
use super::answer::Origin;
use super::context::Context;
use super::management::Management;
use crate::http::{Request, Response};
use crate::types::{Now, SessionRef};

/// Maximum feeds of one requester.
const OF_ASKER_MAX: usize = 64;
/// Maximum feeds in total.
const FEEDS_MAX: usize = 1024;
/// Time for which a feed is remembered after its last request. Feeds repeat after a second, but a client may pause
/// reading.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Number of rows that one slice answers, which takes some hundred microseconds.
const SLICE_ROWS: usize = 128;
/// Number of streams and recordings that can be scanned in the time that answering one row takes.
const OF_ROW: usize = 64;
/// Pause between two slices, in which other inputs are handled.
const PAUSE: Duration = Duration::from_micros(50);

/// The requester under which feeds are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    /// A logged-in user.
    User(Arc<str>),
    /// The address of a client that uses the server's token.
    Address(IpAddr),
}

/// A request of a feed.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) origin: Origin,
    pub(super) request: Box<Request>,
}

/// All feeds and their waiting requests.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    /// The requester of each feed, and the time of the feed's last request.
    known: BTreeMap<SessionRef, (Asker, Instant)>,
    /// Feeds by the time of their last request.
    ages: BTreeSet<(Instant, SessionRef)>,
    /// Feeds of each requester.
    held: BTreeMap<Asker, BTreeSet<SessionRef>>,
    /// Number of feeds of each requester, in ascending order.
    sizes: BTreeSet<(usize, Asker)>,
    lines: BTreeMap<Asker, VecDeque<Question>>,
    /// Number of waiting requests.
    queued: usize,
    /// Requesters with waiting requests, in the order of their turns.
    turns: VecDeque<Asker>,
    due: Option<Instant>,
}

impl Feeds {
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns true if a feed may make a request: the feed is known already, or the maximum number of known feeds is
    /// not reached. If it is reached, another feed may be dropped in favour of this one.
    fn admit(&mut self, now: Instant, session: SessionRef, asker: &Asker) -> bool {
        if self.queued >= FEEDS_MAX {
            return false;
        }
        while let Some((at, oldest)) = self.ages.first().copied()
            && now.saturating_duration_since(at) > REMEMBERED
        {
            self.forget(oldest);
        }
        if !self.known.contains_key(&session) {
            let own = self.held.get(asker).map_or(0, BTreeSet::len);
            if own >= OF_ASKER_MAX {
                return false;
            }
            if self.known.len() >= FEEDS_MAX && !self.give_way(own) {
                return false;
            }
        }
        self.forget(session);
        self.known.insert(session, (asker.clone(), now));
        self.ages.insert((now, session));
        self.change_held(asker, |held| held.insert(session));
        true
    }

    /// Drops a feed of the requester with most feeds, if that requester still has more than `own` feeds afterwards.
    fn give_way(&mut self, own: usize) -> bool {
        let Some((most, asker)) = self.sizes.last().filter(|(most, _)| *most > own.saturating_add(1)) else {
            return false;
        };
        tracing::debug!(feeds = most, "a feed gives way to one of an asker with fewer");
        let one = self.held.get(asker).and_then(|held| held.last()).copied();
        one.is_some_and(|session| {
            self.forget(session);
            true
        })
    }

    fn forget(&mut self, session: SessionRef) {
        let Some((asker, at)) = self.known.remove(&session) else { return };
        self.ages.remove(&(at, session));
        self.change_held(&asker, |held| held.remove(&session));
    }

    fn change_held(&mut self, asker: &Asker, change: impl FnOnce(&mut BTreeSet<SessionRef>) -> bool) {
        let mut held = self.held.remove(asker).unwrap_or_default();
        self.sizes.remove(&(held.len(), asker.clone()));
        change(&mut held);
        if !held.is_empty() {
            self.sizes.insert((held.len(), asker.clone()));
            self.held.insert(asker.clone(), held);
        }
    }

    fn queue(&mut self, now: Instant, asker: Asker, question: Question) {
        let line = self.lines.entry(asker.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(asker);
        }
        line.push_back(question);
        self.queued = self.queued.saturating_add(1);
        self.due = self.due.or_else(|| now.checked_add(PAUSE));
    }

    /// Returns the requests of the next slice. Each request costs its rows and a scan of `walked` streams and
    /// recordings.
    pub(super) fn slice(&mut self, now: Instant, walked: usize) -> Vec<Question> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let (mut slice, mut rows) = (Vec::new(), 0usize);
        while rows < SLICE_ROWS
            && let Some(asker) = self.turns.pop_front()
        {
            let Some(mut line) = self.lines.remove(&asker) else { continue };
            if let Some(question) = line.pop_front() {
                self.queued = self.queued.saturating_sub(1);
                rows = rows.saturating_add(rows_of(&question.request)).saturating_add(walked / OF_ROW);
                slice.push(question);
            }
            if !line.is_empty() {
                self.lines.insert(asker.clone(), line);
                self.turns.push_back(asker);
            }
        }
        self.due = if self.turns.is_empty() { None } else { now.checked_add(PAUSE) };
        slice
    }
}

/// Number of rows of a request: one, and one more for each broadcast that the request names.
fn rows_of(request: &Request) -> usize {
    request.query_value("ids").map_or(1, |ids| ids.split(',').count().saturating_add(1))
}

impl Access {
    /// Queues the request of a feed. If the peer has no login, returns the request, which the caller refuses
    /// immediately.
    pub(super) fn feed_asked(
        &mut self,
        cx: &mut Context,
        management: &mut Management,
        now: Now,
        question: Question,
    ) -> Option<Question> {
        let Question { origin: Origin { requester, peer, .. }, request } = &question;
        let Some(asker) = self.feed_asker(cx, management, now, *peer, request) else { return Some(question) };
        if self.feeds.admit(now.mono, requester.session(), &asker) {
            self.feeds.queue(now.mono, asker, question);
        } else {
            let busy = Response::error(503, "Too many feeds").header("Retry-After", "5");
            cx.answer(*requester, busy);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::mask::Requester;
    use crate::http::{Headers, Method, Version};
    use crate::types::{ConnId, WorkerId};

    fn session(slot: u32) -> SessionRef {
        SessionRef::new(WorkerId(0), ConnId { slot, generation: 0 })
    }

    fn user(number: usize) -> Asker {
        Asker::User(format!("u{number}").into())
    }

    fn question(ids: usize) -> Question {
        let ids = vec!["x"; ids].join(",");
        let request = Box::new(Request {
            method: Method::Get,
            version: Version::Http11,
            target: String::new(),
            path: "/rest/v2/live/live".to_owned(),
            query: vec![("ids".to_owned(), ids)],
            headers: Headers::new(),
            body: bytes::Bytes::new(),
            body_waits: false,
        });
        let requester = Requester::unknown(session(0));
        Question {
            origin: Origin { requester, peer: "127.0.0.1:1".parse().unwrap(), secure: false },
            request,
        }
    }

    #[test]
    fn r_66_feeds_of_an_asker_and_of_all_are_bounded_and_who_has_most_gives_way() {
        let (mut feeds, now) = (Feeds::default(), Instant::now());
        let mut next = 0;
        let mut ask = |feeds: &mut Feeds, now, asker: usize| {
            next += 1;
            feeds.admit(now, session(next), &user(asker)).then_some(session(next))
        };
        let own: Vec<_> = (0..=OF_ASKER_MAX).map(|_| ask(&mut feeds, now, 0)).collect();
        assert!(own[..OF_ASKER_MAX].iter().all(Option::is_some) && own[OF_ASKER_MAX].is_none());
        assert!(feeds.admit(now, own[0].unwrap(), &user(0)), "it was there");
        for asker in 1..16 {
            assert!((0..OF_ASKER_MAX).all(|_| ask(&mut feeds, now, asker).is_some()));
        }
        assert_eq!(feeds.known.len(), FEEDS_MAX);
        // Sixteen requesters share all feeds. Each loses some to newcomers.
        for asker in 16..64 {
            for held in 1..=16 {
                assert!(ask(&mut feeds, now, asker).is_some(), "{asker}");
                assert_eq!(feeds.held[&user(asker)].len(), held);
            }
        }
        assert_eq!((feeds.known.len(), feeds.sizes.first().unwrap().0), (FEEDS_MAX, 16));
        assert!(ask(&mut feeds, now, 20).is_none(), "nobody has more");
        assert!(ask(&mut feeds, now, 99).is_some(), "and one that has none gets in");
        // Requesters that send no further requests are forgotten.
        let later = now + REMEMBERED + Duration::from_millis(1);
        assert!(ask(&mut feeds, later, 0).is_some());
        assert_eq!((feeds.known.len(), feeds.ages.len(), feeds.held.len(), feeds.sizes.len()), (1, 1, 1, 1));
    }

    #[test]
    fn r_66_a_slice_is_bounded_and_takes_from_each_line_in_turn() {
        let (mut feeds, now) = (Feeds::default(), Instant::now());
        for _ in 0..1000 {
            feeds.queue(now, user(0), question(10));
        }
        feeds.queue(now, user(1), question(10));
        assert!(feeds.slice(now, 0).is_empty(), "other mail first");
        let slice = feeds.slice(now + PAUSE, 0);
        assert_eq!(slice.len(), SLICE_ROWS.div_ceil(11));
        assert_eq!(feeds.turns.len(), 1, "the one question was among them");
        assert!(feeds.slice(now + PAUSE, 0).is_empty() && feeds.deadline() == Some(now + PAUSE + PAUSE));
        let mut at = now + PAUSE;
        let mut rest = 0;
        while let Some(due) = feeds.deadline() {
            at = due;
            rest += feeds.slice(at, 0).len();
        }
        assert_eq!((rest + slice.len(), feeds.lines.len()), (1001, 0));
        assert!(at > now + 80 * PAUSE);
        // If each request scans many streams, a slice has fewer requests.
        (0..10).for_each(|_| feeds.queue(at, user(0), question(10)));
        assert_eq!(feeds.slice(at + PAUSE, 64 * SLICE_ROWS).len(), 1);
        // The number of waiting requests is limited even if their feeds are no longer remembered.
        let mut next = feeds.queued;
        while feeds.admit(at, session(0), &user(0)) {
            feeds.queue(at, user(0), question(1));
            next += 1;
        }
        assert_eq!((feeds.queued, next), (FEEDS_MAX, FEEDS_MAX));
    }
}
