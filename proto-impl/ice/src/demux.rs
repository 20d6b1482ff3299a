//! Routes datagrams received on a shared port to sessions.
//!
//! 1. A STUN request is passed to the session whose user name fragment it contains, which then authenticates
//!    it. A request for an unknown fragment costs one table lookup.
//! 2. Any other datagram is passed to the session that has validated its path; without such a session, it is
//!    dropped.
//! 3. Media on an unknown path may come from a peer whose port has changed: [`Demux::next_of_host`] returns a session
//!    that has a path to another port of the same address, and may try to decrypt the media.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use crate::limits::{HOST_SESSIONS_MAX, PAIRS_MAX};
use crate::path::{Path, Protocol};
use crate::stun::{self, HEADER_BYTES};

/// Maximum number of user name fragments of a session.
const FRAGMENTS_MAX: usize = 4;

/// Protocol of a datagram, determined by its first byte (RFC 7983 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// STUN: first byte 0 to 3.
    Stun,
    /// DTLS: first byte 20 to 63.
    Dtls,
    /// RTP or RTCP: first byte 128 to 191.
    Rtp,
    /// Any other protocol.
    Other,
}

/// Returns the protocol of a datagram.
#[must_use]
pub const fn classify(datagram: &[u8]) -> Kind {
    match datagram {
        [0..=3, ..] if datagram.len() >= HEADER_BYTES => Kind::Stun,
        [20..=63, ..] => Kind::Dtls,
        [128..=191, ..] => Kind::Rtp,
        _ => Kind::Other,
    }
}

/// Destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<K> {
    /// The ICE agent of this session.
    Stun(K),
    /// The DTLS association of this session.
    Dtls(K),
    /// The SRTP context of this session.
    Rtp(K),
    /// No destination; the datagram is ignored.
    Drop(DropReason),
}

/// The reason a datagram is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The protocol is unknown.
    Unknown,
    /// A STUN message without a known destination: malformed, or an answer or indication on an unknown path.
    Unaddressed,
    /// A request for a user name fragment that no session uses.
    UnknownFragment,
    /// The path was not validated by any session.
    UnknownPath,
}

/// Routes the datagrams of a port. `K` identifies a session of the application.
#[derive(Debug)]
pub struct Demux<K> {
    fragments: HashMap<Box<[u8]>, K>,
    paths: HashMap<Path, K>,
    sessions: HashMap<K, Session>,
    /// Sessions with an open UDP path to an address; at most [`HOST_SESSIONS_MAX`] per address.
    hosts: HashMap<IpAddr, Host<K>>,
}

/// Sessions with an open path to one address; [`Demux::next_of_host`] returns them in turn.
#[derive(Debug)]
struct Host<K> {
    sessions: Vec<K>,
    next: usize,
}

#[derive(Debug, Default)]
struct Session {
    /// The current user name fragment and earlier ones, oldest first. The demultiplexer does not know which of them the
    /// peer still uses.
    fragments: Vec<Box<[u8]>>,
    paths: Vec<Path>,
}

impl<K: Copy + Eq + Hash> Demux<K> {
    /// Creates a demultiplexer without sessions.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fragments: HashMap::new(),
            paths: HashMap::new(),
            sessions: HashMap::new(),
            hosts: HashMap::new(),
        }
    }

    /// Returns the destination of a datagram. Uses at most two lookups, changes no state, and performs no
    /// cryptography.
    #[must_use]
    pub fn route(&self, path: &Path, datagram: &[u8]) -> Route<K> {
        let by_path = |reason| self.paths.get(path).copied().ok_or(reason);
        let route = match classify(datagram) {
            Kind::Stun => match stun::username_fragment(datagram) {
                Some(ufrag) => {
                    let session = self.fragments.get(ufrag).copied();
                    session.map(Route::Stun).ok_or(DropReason::UnknownFragment)
                }
                None => by_path(DropReason::Unaddressed).map(Route::Stun),
            },
            Kind::Dtls => by_path(DropReason::UnknownPath).map(Route::Dtls),
            Kind::Rtp => by_path(DropReason::UnknownPath).map(Route::Rtp),
            Kind::Other => Err(DropReason::Unknown),
        };
        route.unwrap_or_else(Route::Drop)
    }

    /// Routes requests for the user name fragment `ufrag` to `session`. A session has two fragments during a restart, and
    /// more if it restarts again before the peer's first check; a fifth replaces the oldest. Returns false and changes
    /// nothing if another session uses the fragment: the caller must then draw other credentials.
    pub fn insert(&mut self, ufrag: &str, session: K) -> bool {
        if let Some(owner) = self.fragments.get(ufrag.as_bytes()) {
            return *owner == session;
        }
        let ufrag: Box<[u8]> = ufrag.as_bytes().into();
        let of = self.sessions.entry(session).or_default();
        of.fragments.push(ufrag.clone());
        if of.fragments.len() > FRAGMENTS_MAX {
            let oldest = of.fragments.remove(0);
            self.fragments.remove(&oldest);
        }
        self.fragments.insert(ufrag, session);
        true
    }

    /// Opens `path` for `session`, after [`crate::Event::Validated`], and again after [`crate::Event::Heard`].
    /// If the path belongs to another session, it is transferred: either the new peer really has the address
    /// now, or it has forged the address. If it was forged, the next check by the other session's peer takes
    /// the path back. Returns false for an unknown session, or for one with too many paths.
    pub fn open(&mut self, path: Path, session: K) -> bool {
        let before = self.paths.get(&path).copied();
        if before == Some(session) {
            self.enter_host(&path, session);
            return true;
        }
        let Some(of) = self.sessions.get_mut(&session).filter(|of| of.paths.len() < PAIRS_MAX) else {
            return false;
        };
        of.paths.push(path);
        self.paths.insert(path, session);
        if let Some(of) = before.and_then(|before| self.sessions.get_mut(&before)) {
            of.paths.retain(|other| *other != path);
        }
        if let Some(before) = before {
            self.leave_host(path.remote.ip(), before);
        }
        self.enter_host(&path, session);
        true
    }

    /// For media on a `path` that is not open, returns a session that may try to decrypt it: one that has an open UDP
    /// path to another port of the same address. Successive calls return the sessions in turn. If there are more than
    /// [`HOST_SESSIONS_MAX`] sessions at an address, some are never returned.
    pub fn next_of_host(&mut self, path: &Path) -> Option<K> {
        if path.protocol != Protocol::Udp {
            return None;
        }
        let host = self.hosts.get_mut(&path.remote.ip())?;
        host.next = if host.next < host.sessions.len() { host.next } else { 0 };
        let session = host.sessions.get(host.next).copied();
        host.next += 1;
        session
    }

    /// Closes `path` for `session` ([`crate::Event::Expired`]).
    pub fn close(&mut self, path: &Path, session: K) {
        if self.paths.get(path) == Some(&session) {
            self.paths.remove(path);
        }
        if let Some(of) = self.sessions.get_mut(&session) {
            of.paths.retain(|other| other != path);
        }
        self.leave_host(path.remote.ip(), session);
    }

    /// Closes `path` for its session, if any, because a session unknown to this demultiplexer has taken it
    /// over. The next check by the former session's peer takes the path back.
    pub fn vacate(&mut self, path: &Path) {
        if let Some(session) = self.paths.get(path).copied() {
            self.close(path, session);
        }
    }

    /// Removes a session; late datagrams for this session are dropped. The cost depends only on the
    /// session's own user name fragments and paths.
    pub fn remove(&mut self, session: K) {
        let Some(of) = self.sessions.remove(&session) else { return };
        for ufrag in &of.fragments {
            self.fragments.remove(ufrag);
        }
        for path in &of.paths {
            self.paths.remove(path);
            self.leave_host(path.remote.ip(), session);
        }
    }

    /// Records that a session has an open path to this remote address.
    fn enter_host(&mut self, path: &Path, session: K) {
        if path.protocol != Protocol::Udp {
            return;
        }
        let host = self.hosts.entry(path.remote.ip());
        let host = host.or_insert_with(|| Host { sessions: Vec::new(), next: 0 });
        if host.sessions.len() < HOST_SESSIONS_MAX && !host.sessions.contains(&session) {
            host.sessions.push(session);
        }
    }

    /// Removes a session from an address if it no longer has an open path to it.
    fn leave_host(&mut self, address: IpAddr, session: K) {
        let is_there = |path: &Path| path.protocol == Protocol::Udp && path.remote.ip() == address;
        if self.sessions.get(&session).is_some_and(|of| of.paths.iter().any(is_there)) {
            return;
        }
        let Some(host) = self.hosts.get_mut(&address) else { return };
        host.sessions.retain(|other| *other != session);
        if host.sessions.is_empty() {
            self.hosts.remove(&address);
        }
    }

    /// The number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// True if there are no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The number of open paths.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths.len()
    }
}

impl<K: Copy + Eq + Hash> Default for Demux<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::stun::{Class, MessageWriter, TransactionId};

    fn path(port: u16) -> Path {
        let local = SocketAddr::from(([192, 0, 2, 1], 8000));
        Path::udp(local, SocketAddr::from(([203, 0, 113, 7], port)))
    }

    fn stun(class: Class, ufrag: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        let writer = MessageWriter::new(&mut out, class, TransactionId([1; 12]));
        match ufrag {
            Some(ufrag) => writer.username(ufrag, "peer").finish(b"key"),
            None => writer.finish_open(),
        };
        out
    }

    const DTLS: &[u8] = &[22, 254, 253, 0];
    const RTP: &[u8] = &[0x80, 96, 0, 0];

    #[test]
    fn first_bytes_say_what_it_is() {
        for byte in 0..=255 {
            let kind = match byte {
                0..=3 => Kind::Stun,
                20..=63 => Kind::Dtls,
                128..=191 => Kind::Rtp,
                _ => Kind::Other,
            };
            assert_eq!(classify(&[byte; 20]), kind, "{byte}");
        }
        assert_eq!((classify(&[]), classify(&[0; 19])), (Kind::Other, Kind::Other));
    }

    #[test]
    fn i_05_datagrams_of_unknown_paths_go_nowhere() {
        let mut demux = Demux::new();
        assert!(demux.insert("ufrag", 1));
        assert_eq!(demux.route(&path(1), DTLS), Route::Drop(DropReason::UnknownPath));
        assert_eq!(demux.route(&path(1), &stun(Class::Request, Some("ufrag"))), Route::Stun(1));
        assert!(demux.open(path(1), 1));
        assert_eq!(demux.route(&path(1), DTLS), Route::Dtls(1));
        assert_eq!(demux.route(&path(1), RTP), Route::Rtp(1));
        assert_eq!(demux.route(&path(2), RTP), Route::Drop(DropReason::UnknownPath));
        assert_eq!(demux.route(&path(1), &[0xff]), Route::Drop(DropReason::Unknown));
        demux.close(&path(1), 1);
        assert_eq!(demux.route(&path(1), RTP), Route::Drop(DropReason::UnknownPath));
    }

    #[test]
    fn requests_go_by_fragment_and_the_rest_of_stun_by_path() {
        let mut demux = Demux::new();
        assert!(demux.insert("one", 1) && demux.insert("two", 2) && demux.open(path(1), 1));
        let route = |class, ufrag| demux.route(&path(1), &stun(class, ufrag));
        assert_eq!(route(Class::Request, Some("two")), Route::Stun(2));
        assert_eq!(route(Class::Request, Some("on")), Route::Drop(DropReason::UnknownFragment));
        assert_eq!(route(Class::Success, None), Route::Stun(1));
        assert_eq!(
            demux.route(&path(2), &stun(Class::Indication, None)),
            Route::Drop(DropReason::Unaddressed)
        );
    }

    #[test]
    fn i_08_a_path_that_changes_hands_and_what_comes_late() {
        let mut demux = Demux::new();
        assert!(demux.insert("old", 1) && demux.open(path(1), 1));
        // The old session ends. Until the new one has validated the path, datagrams on that path are dropped.
        demux.remove(1);
        assert!(demux.insert("new", 2));
        assert_eq!(demux.route(&path(1), RTP), Route::Drop(DropReason::UnknownPath));
        assert_eq!(demux.route(&path(1), DTLS), Route::Drop(DropReason::UnknownPath));
        let late = stun(Class::Request, Some("old"));
        assert_eq!(demux.route(&path(1), &late), Route::Drop(DropReason::UnknownFragment));
        assert!(demux.open(path(1), 2));
        assert_eq!(demux.route(&path(1), &late), Route::Drop(DropReason::UnknownFragment));
        assert_eq!(demux.route(&path(1), RTP), Route::Rtp(2));
        assert_eq!((demux.len(), demux.paths()), (1, 1));
    }

    #[test]
    fn i_08_the_end_of_a_session_takes_no_path_from_its_successor() {
        for remove_first in [false, true] {
            let mut demux = Demux::new();
            assert!(demux.insert("old", 1) && demux.insert("new", 2));
            assert!(demux.open(path(1), 1) && demux.open(path(2), 1) && demux.open(path(1), 2));
            if remove_first {
                demux.remove(1);
            }
            // Late events of the old session do not affect the new one.
            demux.close(&path(1), 1);
            assert_eq!(demux.open(path(3), 1), !remove_first);
            demux.remove(1);
            assert_eq!(demux.route(&path(1), RTP), Route::Rtp(2));
            assert_eq!(demux.route(&path(2), RTP), Route::Drop(DropReason::UnknownPath));
            assert_eq!((demux.len(), demux.paths()), (1, 1));
        }
    }

    /// Checks that a forged address takes a path over only for a while: the next check by the path's real peer
    /// restores the route.
    #[test]
    fn i_08_a_path_that_is_claimed_by_a_liar_comes_back() {
        let mut demux = Demux::new();
        let clock = netsim::Clock::new();
        let mut agents = [1, 2].map(|seed| {
            crate::LiteAgent::new(clock.now(), std::sync::Arc::default(), &crypto::Seed::from_number(seed))
        });
        for (session, agent) in agents.iter().enumerate() {
            assert!(demux.insert(agent.local().ufrag(), session));
        }
        let mut check = |session: usize, id: u8| {
            let agent = &mut agents[session];
            let mut request = Vec::new();
            let credentials = agent.local().clone();
            MessageWriter::new(&mut request, Class::Request, TransactionId([id; 12]))
                .username(credentials.ufrag(), "peer")
                .finish(credentials.password().as_bytes());
            assert_eq!(demux.route(&path(1), &request), Route::Stun(session));
            agent.handle_datagram(clock.now(), path(1), &request);
            while let Some(event) = agent.poll_event() {
                if let crate::Event::Validated(path) | crate::Event::Heard(path) = event {
                    demux.open(path, session);
                }
            }
            demux.route(&path(1), RTP)
        };
        assert_eq!(check(0, 1), Route::Rtp(0));
        assert_eq!(check(1, 2), Route::Rtp(1));
        assert_eq!(check(0, 3), Route::Rtp(0));
        // Copying a user name fragment is not enough to claim a path.
        assert_eq!(check(1, 2), Route::Rtp(0));
    }

    #[test]
    fn fragments_are_one_sessions_and_restarts_have_more() {
        let mut demux = Demux::new();
        assert!(demux.insert("aaaa", 1) && demux.insert("aaaa", 1) && !demux.insert("aaaa", 2));
        assert!(demux.is_empty() || demux.len() == 1);
        assert!(demux.insert("bbbb", 1) && demux.insert("cccc", 1));
        let route = |demux: &Demux<u8>, ufrag| demux.route(&path(1), &stun(Class::Request, Some(ufrag)));
        // The peer may still use the first one, and has perhaps heard of none of the others.
        assert!(["aaaa", "bbbb", "cccc"].iter().all(|ufrag| route(&demux, ufrag) == Route::Stun(1)));
        assert!(demux.insert("dddd", 1) && demux.insert("eeee", 1));
        assert_eq!(route(&demux, "aaaa"), Route::Drop(DropReason::UnknownFragment));
        assert!(["bbbb", "eeee"].iter().all(|ufrag| route(&demux, ufrag) == Route::Stun(1)));
        demux.remove(1);
        assert!(demux.is_empty() && demux.fragments.is_empty());
    }

    #[test]
    fn paths_of_a_session_are_capped() {
        let mut demux = Demux::new();
        assert!(!demux.open(path(1), 1) && demux.insert("aaaa", 1));
        let opened = (0..100).filter(|port| demux.open(path(*port), 1)).count();
        assert_eq!((opened, demux.paths()), (PAIRS_MAX, PAIRS_MAX));
    }

    #[test]
    fn i_11_floods_leave_nothing_behind() {
        let mut demux = Demux::new();
        assert!(demux.insert("ufrag", 1));
        for n in 0..10_000_u32 {
            let port = u16::try_from(n % 60_000).unwrap();
            let datagram = stun(Class::Request, Some(&format!("{n:08x}")));
            assert_eq!(demux.route(&path(port), &datagram), Route::Drop(DropReason::UnknownFragment));
        }
        assert_eq!((demux.fragments.len(), demux.paths(), demux.len()), (1, 0, 1));
    }

    #[test]
    fn i_12_sessions_of_an_address_take_turns_for_media_by_an_unknown_path() {
        let mut demux = Demux::new();
        assert!(demux.insert("a", 1) && demux.insert("b", 2) && demux.insert("c", 3));
        assert_eq!(demux.next_of_host(&path(9)), None);
        assert!(demux.open(path(1), 1) && demux.open(path(2), 2) && demux.open(path(3), 1));
        let elsewhere = Path::udp(path(9).local, SocketAddr::from(([203, 0, 113, 8], 1)));
        assert!(demux.open(elsewhere, 3));
        let turns = |demux: &mut Demux<i32>| [(); 4].map(|()| demux.next_of_host(&path(9)).unwrap());
        assert_eq!(turns(&mut demux), [1, 2, 1, 2]);
        assert_eq!(demux.next_of_host(&Path::tcp(path(9).local, path(9).remote)), None);
        // The session has another path, so it is still returned.
        demux.close(&path(1), 1);
        assert_eq!(turns(&mut demux), [1, 2, 1, 2]);
        // Path 3 is transferred to session 2.
        assert!(demux.open(path(3), 2));
        assert_eq!(turns(&mut demux), [2, 2, 2, 2]);
        demux.remove(2);
        assert_eq!((demux.next_of_host(&path(9)), demux.hosts.len()), (None, 1));
        demux.close(&elsewhere, 3);
        assert!(demux.hosts.is_empty());
    }

    #[test]
    fn i_12_an_address_of_many_sessions_costs_no_more_than_the_limit() {
        let mut demux = Demux::new();
        for session in 0..100 {
            assert!(demux.insert(&format!("ufrag{session}"), session) && demux.open(path(session), session));
        }
        let named: std::collections::HashSet<_> = (0..200).map(|_| demux.next_of_host(&path(999))).collect();
        assert_eq!(named.len(), HOST_SESSIONS_MAX);
        // Sessions that were never returned take the places of removed ones at their next check.
        (0..90).for_each(|session| demux.remove(session));
        assert_eq!(demux.next_of_host(&path(999)), None);
        assert!(demux.open(path(95), 95));
        assert_eq!(demux.next_of_host(&path(999)), Some(95));
    }
}
