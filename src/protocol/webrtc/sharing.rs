//! The part of a worker in a port that all workers share: its sessions whose datagrams others receive, and the sessions of others whose
//! datagrams it receives (`protocol::steering`).

use std::collections::{HashMap, VecDeque};

use ice::{DropReason, Path, Tag};
use smallvec::SmallVec;

use crate::protocol::{Elsewhere, PathChange, Remote};
use crate::types::{ConnId, WorkerId};

/// A path of a session here whose datagrams arrive at worker `to`.
#[derive(Debug, Clone, Copy)]
struct Given {
    path: Path,
    remote: Remote,
    to: WorkerId,
}

impl Given {
    const fn change(self, is_open: bool) -> PathChange {
        PathChange { to: self.to, remote: self.remote, is_open }
    }
}

/// The paths that this worker has at others, and others at it. Each is an entry of a session that the port's demultiplexer knows, there or
/// here, so that the limits of sessions and of their paths hold for them.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Id of this worker, and the number of those that share the port; `None` if it has a port of its own.
    among: Option<(WorkerId, u16)>,
    /// The workers of paths whose datagrams arrive here.
    foreign: HashMap<Path, WorkerId>,
    /// The paths of sessions here whose datagrams arrive at other workers.
    given: HashMap<ConnId, SmallVec<[Given; 1]>>,
    changes: VecDeque<PathChange>,
    /// True if the next stray datagram is for the other workers.
    others_next: bool,
}

impl Sharing {
    /// Notes with how many workers the port is shared.
    pub(super) fn among(&mut self, own: WorkerId, workers: u16) {
        self.among = (workers > 1).then_some((own, workers));
    }

    /// Returns the head of the names of sessions here.
    pub(super) fn tag(&self) -> Option<Tag> {
        self.among.and_then(|(own, _)| Tag::new(own.0))
    }

    /// Returns the worker of a datagram for which no session here was found. What another worker has passed on is not passed on again.
    pub(super) fn find(
        &self,
        from: Remote,
        path: &Path,
        reason: DropReason,
        datagram: &[u8],
    ) -> Option<Elsewhere> {
        let (own, workers) = self.among.filter(|_| from.via.is_none())?;
        match reason {
            DropReason::UnknownFragment => {
                let named = WorkerId(Tag::of_request(datagram)?.number());
                (named != own && named.0 < workers).then_some(Elsewhere::Name(named))
            }
            DropReason::UnknownPath | DropReason::Unaddressed => {
                self.foreign.get(path).copied().map(Elsewhere::Path)
            }
            DropReason::Unknown | _ => None,
        }
    }

    /// True if media of an unknown path may be for a session of another worker.
    pub(super) const fn has_others(&self, from: Remote) -> bool {
        self.among.is_some() && from.via.is_none() && from.carrier.is_none()
    }

    /// True every second time: the other workers are to be tried first with media of an unknown path, and not a session here.
    pub(super) const fn is_turn_of_others(&mut self) -> bool {
        self.others_next = !self.others_next;
        self.others_next
    }

    /// Notes that a session here has validated a path.
    pub(super) fn open(&mut self, conn: ConnId, path: Path, remote: Remote) {
        self.foreign.remove(&path);
        let Some(to) = remote.via else { return };
        let given = self.given.entry(conn).or_default();
        given.retain(|known| known.path != path);
        let new = Given { path, remote, to };
        given.push(new);
        self.changes.push_back(new.change(true));
    }

    /// Notes that a session here has given up a path.
    pub(super) fn close(&mut self, conn: ConnId, path: &Path) {
        let Some(given) = self.given.get_mut(&conn) else { return };
        let Some(at) = given.iter().position(|known| known.path == *path) else { return };
        let closed = given.remove(at);
        if given.is_empty() {
            self.given.remove(&conn);
        }
        self.changes.push_back(closed.change(false));
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, conn: ConnId) {
        let given = self.given.remove(&conn).unwrap_or_default();
        self.changes.extend(given.into_iter().map(|closed| closed.change(false)));
    }

    /// Notes that another worker has a path from now on, or no longer.
    pub(super) fn hear(&mut self, path: Path, owner: WorkerId, is_open: bool) {
        if is_open {
            self.foreign.insert(path, owner);
        } else if self.foreign.get(&path) == Some(&owner) {
            self.foreign.remove(&path);
        }
    }

    /// Returns the next change that another worker must hear of.
    pub(super) fn poll_change(&mut self) -> Option<PathChange> {
        self.changes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: WorkerId = WorkerId(1);
    const OTHER: WorkerId = WorkerId(2);

    fn sharing() -> Sharing {
        let mut sharing = Sharing::default();
        sharing.among(OWN, 3);
        sharing
    }

    fn remote(port: u16, via: Option<WorkerId>) -> (Path, Remote) {
        let peer = ([192, 0, 2, 9], port).into();
        (Path::udp(([192, 0, 2, 1], 5000).into(), peer), Remote { via, ..Remote::of(peer) })
    }

    fn changes(sharing: &mut Sharing) -> Vec<(u16, u16, bool)> {
        let next = || sharing.poll_change();
        let all = std::iter::from_fn(next);
        all.map(|change| (change.to.0, change.remote.peer.port(), change.is_open)).collect()
    }

    fn request(tag: u16) -> Vec<u8> {
        let seed = crypto::Seed::from_number(1);
        let named = ice::Credentials::tagged(&seed, Tag::new(tag).unwrap());
        let id = ice::stun::TransactionId([1; 12]);
        let mut out = Vec::new();
        let writer = ice::stun::MessageWriter::new(&mut out, ice::stun::Class::Request, id);
        writer.username(named.ufrag(), "peer").finish(b"key");
        out
    }

    #[test]
    fn a_request_goes_to_the_worker_that_it_names() {
        let sharing = sharing();
        let found = |tag, via| {
            let (path, from) = remote(1, via);
            sharing.find(from, &path, DropReason::UnknownFragment, &request(tag))
        };
        assert_eq!(found(2, None), Some(Elsewhere::Name(OTHER)));
        assert_eq!(found(0, None), Some(Elsewhere::Name(WorkerId(0))));
        assert_eq!(found(1, None), None, "a session that is gone");
        assert_eq!(found(3, None), None, "no such worker");
        assert_eq!(found(0, Some(OTHER)), None, "passed on already");
        let (path, from) = remote(1, None);
        assert_eq!(sharing.find(from, &path, DropReason::UnknownFragment, b"no request"), None);
        assert_eq!(Sharing::default().find(from, &path, DropReason::UnknownFragment, &request(2)), None);
        assert_eq!((sharing.tag(), Sharing::default().tag()), (Tag::new(1), None));
    }

    #[test]
    fn datagrams_of_a_path_go_to_the_worker_that_has_validated_it() {
        let mut sharing = sharing();
        let (path, from) = remote(1, None);
        let found = |sharing: &Sharing| sharing.find(from, &path, DropReason::UnknownPath, b"");
        assert_eq!(found(&sharing), None);
        sharing.hear(path, OTHER, true);
        assert_eq!(found(&sharing), Some(Elsewhere::Path(OTHER)));
        sharing.hear(path, WorkerId(0), true);
        sharing.hear(path, OTHER, false);
        assert_eq!(found(&sharing), Some(Elsewhere::Path(WorkerId(0))), "it has changed hands");
        let conn = ConnId { slot: 1, generation: 0 };
        sharing.open(conn, path, from);
        assert_eq!(found(&sharing), None, "a session here has it now");
        assert_eq!(changes(&mut sharing), [], "which receives it by itself");
    }

    #[test]
    fn the_receiving_worker_hears_of_each_path_until_its_end() {
        let mut sharing = sharing();
        let [a, b] = [1, 2].map(|slot| ConnId { slot, generation: 0 });
        for (conn, port) in [(a, 1), (a, 2), (b, 3)] {
            let (path, from) = remote(port, Some(OTHER));
            sharing.open(conn, path, from);
        }
        assert_eq!(changes(&mut sharing), [(2, 1, true), (2, 2, true), (2, 3, true)]);
        let (path, from) = remote(1, Some(OTHER));
        sharing.open(a, path, from);
        assert_eq!(changes(&mut sharing), [(2, 1, true)], "another session may have had it");
        sharing.close(a, &path);
        sharing.close(a, &path);
        sharing.forget(a);
        sharing.forget(a);
        assert_eq!(changes(&mut sharing), [(2, 1, false), (2, 2, false)]);
        sharing.close(b, &remote(3, None).0);
        assert_eq!(changes(&mut sharing), [(2, 3, false)]);
        assert!(sharing.given.is_empty());
    }

    #[test]
    fn media_of_an_unknown_path_is_tried_here_and_at_the_others_in_turn() {
        let mut sharing = sharing();
        let (_, from) = remote(1, None);
        let tried: Vec<bool> = (0..4).map(|_| sharing.is_turn_of_others()).collect();
        assert_eq!(tried, [true, false, true, false]);
        assert!(sharing.has_others(from) && !Sharing::default().has_others(from));
        assert!(!sharing.has_others(remote(1, Some(OTHER)).1), "passed on already");
        let carried = Remote { carrier: Some(ConnId { slot: 1, generation: 0 }), ..from };
        assert!(!sharing.has_others(carried), "a connection has its session");
    }
}
