//! A worker's state of a port that all workers share: this worker's sessions whose datagrams arrive at other
//! workers, and other workers' sessions whose datagrams arrive at this one (`protocol::steering`).

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use ice::{DropReason, Path, Tag};
use smallvec::SmallVec;

use crate::protocol::{Elsewhere, PathChange, Remote, Route};
use crate::types::{ConnId, WorkerId};

/// Maximum number of datagrams in [`STRAYS_PERIOD`] that are tried at all other workers.
const STRAYS_MAX: u32 = 50;
const STRAYS_PERIOD: Duration = Duration::from_millis(250);

/// A path of a session of this worker. Its datagrams arrive at worker `to`.
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

/// The shared paths: those of this worker's sessions whose datagrams arrive at other workers, and those of other
/// workers' sessions whose datagrams arrive here. Each path belongs to a session that some worker's demultiplexer
/// knows, so that the limits on sessions and on their paths apply.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Id of this worker, and the number of workers that share the port; `None` if this worker has a port of its
    /// own.
    among: Option<(WorkerId, u16)>,
    /// For each path of another worker's session whose datagrams arrive here, that worker.
    foreign: HashMap<Path, WorkerId>,
    /// For each session of this worker, the paths whose datagrams arrive at other workers.
    given: HashMap<ConnId, SmallVec<[Given; 1]>>,
    changes: VecDeque<PathChange>,
    /// The session of this worker to which a path in `given` belongs.
    owners: HashMap<Path, ConnId>,
    /// Number of datagrams that may still be tried at the other workers until `strays_until`.
    strays_left: u32,
    strays_until: Option<Instant>,
    /// Counter by which media of unknown paths is tried alternately here and at the other workers.
    turns: u32,
}

impl Sharing {
    /// Stores the number of workers that share the port, and the id of this one.
    pub(super) fn among(&mut self, own: WorkerId, workers: u16) {
        self.among = (workers > 1).then_some((own, workers));
    }

    /// Returns the tag with which the ICE user name fragments of this worker's sessions begin.
    pub(super) fn tag(&self) -> Option<Tag> {
        self.among.and_then(|(own, _)| Tag::new(own.0))
    }

    /// Returns the worker to pass a datagram to, for which this worker has no session. A datagram that another worker
    /// has passed on is not passed on again.
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
                // Connectivity checks on a path in use are forwarded together with its media, so that both stay in
                // order and the same limit holds for them.
                let to = if self.foreign.get(path) == Some(&named) {
                    Elsewhere::Path(named)
                } else {
                    Elsewhere::Name(named)
                };
                (named != own && named.0 < workers).then_some(to)
            }
            DropReason::UnknownPath | DropReason::Unaddressed => {
                self.foreign.get(path).copied().map(Elsewhere::Path)
            }
            DropReason::Unknown | _ => None,
        }
    }

    /// True if a datagram of an unknown path may be tried at the other workers now. Only a few are, because each
    /// costs every worker time.
    pub(super) fn may_try_others(&mut self, now: Instant, from: Remote) -> bool {
        if self.among.is_none() || from.via.is_some() || from.carrier.is_some() {
            return false;
        }
        if self.strays_until.is_none_or(|until| until <= now) {
            (self.strays_left, self.strays_until) = (STRAYS_MAX, now.checked_add(STRAYS_PERIOD));
        }
        self.strays_left > 0
    }

    /// True half of the time: media of an unknown path is then tried at the other workers instead of at a session of
    /// this worker. The values follow the Thue-Morse sequence, which has no period, so that even if peers send in turn,
    /// each of them is tried at both.
    pub(super) const fn is_turn_of_others(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns.count_ones() % 2 == 1
    }

    /// Routes a datagram to the other workers.
    pub(super) const fn try_others(&mut self) -> Route {
        self.strays_left = self.strays_left.saturating_sub(1);
        Route::Elsewhere(Elsewhere::Others)
    }

    /// Records that a session of this worker has validated a path. If another session of this worker had the path, that
    /// session loses it.
    pub(super) fn open(&mut self, conn: ConnId, path: Path, remote: Remote) {
        self.foreign.remove(&path);
        let before = self.take(&path);
        if let Some(before) = before.filter(|before| Some(before.to) != remote.via) {
            self.changes.push_back(before.change(false));
        }
        let Some(to) = remote.via else { return };
        let new = Given { path, remote, to };
        self.given.entry(conn).or_default().push(new);
        self.owners.insert(path, conn);
        self.changes.push_back(new.change(true));
    }

    /// Records that a session of this worker has given up a path.
    pub(super) fn close(&mut self, conn: ConnId, path: &Path) {
        if self.owners.get(path) == Some(&conn)
            && let Some(closed) = self.take(path)
        {
            self.changes.push_back(closed.change(false));
        }
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, conn: ConnId) {
        for closed in self.given.remove(&conn).unwrap_or_default() {
            self.owners.remove(&closed.path);
            self.changes.push_back(closed.change(false));
        }
    }

    /// Removes a path from the session of this worker that has it.
    fn take(&mut self, path: &Path) -> Option<Given> {
        let owner = self.owners.remove(path)?;
        let given = self.given.get_mut(&owner)?;
        let at = given.iter().position(|known| known.path == *path)?;
        let taken = given.remove(at);
        if given.is_empty() {
            self.given.remove(&owner);
        }
        Some(taken)
    }

    /// Records that a session of another worker has a path or, if `is_open` is false, no longer has it.
    pub(super) fn hear(&mut self, path: Path, owner: WorkerId, is_open: bool) {
        if is_open {
            self.foreign.insert(path, owner);
        } else if self.foreign.get(&path) == Some(&owner) {
            self.foreign.remove(&path);
        }
    }

    /// Returns the next change that another worker must learn of.
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
    fn a_path_that_changes_hands_here_outlives_its_former_session() {
        let mut sharing = sharing();
        let [a, b] = [1, 2].map(|slot| ConnId { slot, generation: 0 });
        let (path, from) = remote(1, Some(OTHER));
        sharing.open(a, path, from);
        sharing.open(b, path, from);
        assert_eq!(changes(&mut sharing), [(2, 1, true), (2, 1, true)]);
        sharing.close(a, &path);
        sharing.forget(a);
        assert_eq!(changes(&mut sharing), [], "the other session has it");
        // The kernel first gives the datagrams of the path to another worker, and then to this one.
        let (_, by_third) = remote(1, Some(WorkerId(0)));
        sharing.open(b, path, by_third);
        assert_eq!(changes(&mut sharing), [(2, 1, false), (0, 1, true)]);
        sharing.open(b, path, remote(1, None).1);
        assert_eq!(changes(&mut sharing), [(0, 1, false)]);
        sharing.forget(b);
        assert_eq!(changes(&mut sharing), []);
        assert!(sharing.given.is_empty() && sharing.owners.is_empty());
    }

    #[test]
    fn checks_of_a_path_in_use_go_with_its_media() {
        let mut sharing = sharing();
        let (path, from) = remote(1, None);
        sharing.hear(path, OTHER, true);
        let found = |tag| sharing.find(from, &path, DropReason::UnknownFragment, &request(tag));
        assert_eq!((found(2), found(0)), (Some(Elsewhere::Path(OTHER)), Some(Elsewhere::Name(WorkerId(0)))));
    }

    #[test]
    fn strays_are_tried_at_all_other_workers_a_few_times_a_second() {
        let (mut sharing, mut now) = (sharing(), Instant::now());
        let (_, from) = remote(1, None);
        for _ in 0..2 {
            for left in (0..1000u32).rev() {
                assert_eq!(sharing.may_try_others(now, from), left >= 1000 - STRAYS_MAX);
                sharing.try_others();
            }
            now += STRAYS_PERIOD;
        }
        assert!(!Sharing::default().may_try_others(now, from));
        assert!(!sharing.may_try_others(now, remote(1, Some(OTHER)).1), "passed on already");
        let carried = Remote { carrier: Some(ConnId { slot: 1, generation: 0 }), ..from };
        assert!(!sharing.may_try_others(now, carried), "a connection has its session");
    }

    #[test]
    fn peers_who_send_in_turn_are_each_tried_on_both_sides() {
        for peers in 1..=8 {
            let mut sharing = sharing();
            let tried: Vec<bool> = (0..peers * 16).map(|_| sharing.is_turn_of_others()).collect();
            for peer in 0..peers {
                let of_peer: Vec<bool> = tried.iter().copied().skip(peer).step_by(peers).collect();
                assert!(of_peer.contains(&true) && of_peer.contains(&false), "{peer} of {peers}");
            }
        }
    }
}
