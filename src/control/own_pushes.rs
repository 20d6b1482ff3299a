//! Recognises publishers that are pushes of this same server, since an endpoint may name the server's own ports by any
//! address or name. Another application must treat such a push as a stranger: coming from this machine must not give
//! the push any rights.
//!
//! A push is recognised by the local address of its connection, which is the peer address of the resulting publisher.
//! The push's worker reports that address before it sends the second flight of the protocol's handshake, and thus
//! before the server admits the publisher. If the push passes a relay on this machine, the relay has a connection of
//! its own; such pushes by RTMP, RTSP and SRT are recognised by `via`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mail::PublishRequest;
use crate::types::PushId;

/// Time for which the local address of an ended push is remembered, because its last data may still be on the way.
const LINGER: Duration = Duration::from_secs(10);
/// Maximum number of remembered addresses of ended pushes.
const OVER_MAX: usize = 4096;

/// Local addresses of the connections of pushes.
#[derive(Debug, Default)]
pub(super) struct OwnPushes {
    ends: BTreeMap<SocketAddr, End>,
    of_push: BTreeMap<PushId, SocketAddr>,
    /// Pushes that have ended since the last call of `prune`, with their local addresses.
    ended: Vec<(PushId, SocketAddr)>,
    /// Ended pushes with the time at which they are forgotten.
    over: VecDeque<(Instant, PushId, SocketAddr)>,
}

#[derive(Debug)]
struct End {
    push: PushId,
    app: Arc<str>,
    /// Time at which the address is forgotten, if its push has ended.
    until: Option<Instant>,
}

impl OwnPushes {
    /// Notes the established connection of a push.
    pub(super) fn opened(&mut self, now: Instant, push: PushId, app: &Arc<str>, local: SocketAddr) {
        self.prune(now);
        self.ended(push);
        let local = canonical(local);
        self.ends.insert(local, End { push, app: app.clone(), until: None });
        self.of_push.insert(push, local);
    }

    /// Notes that a push or its attempt has ended.
    pub(super) fn ended(&mut self, push: PushId) {
        if let Some(local) = self.of_push.remove(&push) {
            self.ended.push((push, local));
        }
    }

    /// If a publisher is a push of another application of this server, replaces the publisher's address, so that coming
    /// from this machine gives the push no rights.
    pub(super) fn estrange(&mut self, now: Instant, node: &str, request: &mut PublishRequest) {
        self.prune(now);
        let app = &*request.key.app;
        let is_push = self.ends.get(&canonical(request.peer)).is_some_and(|end| *end.app != *app);
        // A relay may have added an entry after this node's own entry, so the last entry of this node is searched for.
        let own = |entry: &'_ String| Some(entry.strip_prefix(node)?.strip_prefix('/')?.to_owned());
        let last = request.via.iter().rev().find_map(own);
        let is_forwarded =
            last.as_deref().and_then(|entry| entry.split('/').next()).is_some_and(|from| from != app);
        if is_push || is_forwarded {
            tracing::debug!(key = %request.key, "a push of this server into another application is a stranger");
            request.peer = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), request.peer.port());
        }
    }

    fn prune(&mut self, now: Instant) {
        let until = now.checked_add(LINGER).unwrap_or(now);
        for (push, local) in self.ended.drain(..) {
            if let Some(end) = self.ends.get_mut(&local).filter(|end| end.push == push) {
                end.until = Some(until);
            }
            self.over.push_back((until, push, local));
        }
        while let Some((until, push, local)) = self.over.front().copied()
            && (until <= now || self.over.len() > OVER_MAX)
        {
            self.over.pop_front();
            // The address is kept if another connection uses it now, or has used it since the push ended.
            if self.ends.get(&local).is_some_and(|end| (end.push, end.until) == (push, Some(until))) {
                self.ends.remove(&local);
            }
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access::Params;
    use crate::types::{ConnId, Ingest, SessionRef, StreamKey, WorkerId};

    fn peer_of(own: &mut OwnPushes, now: Instant, app: &str, peer: &str, via: &[&str]) -> String {
        let mut request = PublishRequest {
            session: SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 }),
            key: StreamKey::new(app, "x"),
            ingest: Ingest { publish_type: "RTMP", name: "rtmp" },
            peer: peer.parse().unwrap(),
            user_agent: "".into(),
            params: Params::new(),
            via: via.iter().map(|entry| (*entry).to_owned()).collect(),
            zero_ms: None,
            pull: None,
        };
        own.estrange(now, "node", &mut request);
        request.peer.ip().to_string()
    }

    #[test]
    fn u_39_the_other_end_of_a_push_is_a_stranger_to_other_applications() {
        let (mut own, now) = (OwnPushes::default(), Instant::now());
        let a = Arc::from("a");
        own.opened(now, PushId(1), &a, "127.0.0.1:40000".parse().unwrap());
        own.opened(now, PushId(2), &a, "192.0.2.1:40001".parse().unwrap());
        for (app, peer, seen) in [
            ("b", "127.0.0.1:40000", "0.0.0.0"),
            ("b", "[::ffff:127.0.0.1]:40000", "0.0.0.0"),
            ("a", "127.0.0.1:40000", "127.0.0.1"),
            ("b", "127.0.0.1:40001", "127.0.0.1"),
            ("b", "192.0.2.1:40001", "0.0.0.0"),
            ("b", "192.0.2.1:40000", "192.0.2.1"),
        ] {
            assert_eq!(peer_of(&mut own, now, app, peer, &[]), seen, "{app} {peer}");
        }
        let via = |own: &mut OwnPushes, entry| peer_of(own, now, "b", "127.0.0.1:1", &[entry]);
        assert_eq!(via(&mut own, "node/a/x"), "0.0.0.0", "through a relay");
        assert_eq!(via(&mut own, "node/b/x"), "127.0.0.1");
        let behind = peer_of(&mut own, now, "b", "127.0.0.1:1", &["node/a/x", "relay"]);
        assert_eq!(behind, "0.0.0.0", "a relay that adds itself");
        assert_eq!(via(&mut own, "node2/a/x"), "127.0.0.1");
    }

    #[test]
    fn u_39_an_end_is_known_for_a_while_behind_its_push_and_then_anybody_s() {
        let (mut own, mut now) = (OwnPushes::default(), Instant::now());
        let (a, end) = (Arc::from("a"), "127.0.0.1:40000");
        own.opened(now, PushId(1), &a, end.parse().unwrap());
        own.ended(PushId(1));
        assert_eq!(peer_of(&mut own, now, "b", end, &[]), "0.0.0.0");
        now += LINGER - Duration::from_millis(1);
        assert_eq!(peer_of(&mut own, now, "b", end, &[]), "0.0.0.0");
        // The next attempt of the push uses the same local port.
        own.opened(now, PushId(1), &a, end.parse().unwrap());
        now += Duration::from_secs(60);
        assert_eq!(peer_of(&mut own, now, "b", end, &[]), "0.0.0.0");
        own.ended(PushId(1));
        peer_of(&mut own, now, "b", end, &[]);
        now += LINGER;
        assert_eq!(peer_of(&mut own, now, "b", end, &[]), "127.0.0.1");
        // If the port is used twice within [`LINGER`], the time counts from the end of the last use.
        own.opened(now, PushId(1), &a, end.parse().unwrap());
        own.ended(PushId(1));
        peer_of(&mut own, now, "b", end, &[]);
        own.opened(now, PushId(1), &a, end.parse().unwrap());
        now += LINGER - Duration::from_secs(1);
        own.ended(PushId(1));
        peer_of(&mut own, now, "b", end, &[]);
        now += Duration::from_secs(2);
        assert_eq!(peer_of(&mut own, now, "b", end, &[]), "0.0.0.0");
        now += LINGER;
        for n in 0..10_000 {
            let local = SocketAddr::from(([10, 0, 0, 1], n));
            own.opened(now, PushId(u64::from(n)), &a, local);
            own.ended(PushId(u64::from(n)));
        }
        peer_of(&mut own, now, "b", end, &[]);
        assert!(own.over.len() <= OVER_MAX && own.ends.len() <= OVER_MAX, "{}", own.ends.len());
        peer_of(&mut own, now + LINGER, "b", end, &[]);
        assert_eq!((own.ends.len(), own.of_push.len(), own.over.len(), own.ended.len()), (0, 0, 0, 0));
    }
}
