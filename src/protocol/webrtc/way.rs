//! ICE paths and routes of the shared port: the same addresses in two forms. A dual-stack socket reports an IPv4 peer
//! as a mapped address; candidates, and the address that a peer learns about itself, have the plain form.

use std::net::SocketAddr;

use ice::Path;
use smallvec::SmallVec;

use crate::protocol::Remote;

/// Returns the ICE path of datagrams with this route, received on a port bound to `bound`.
pub(super) fn path_of(remote: Remote, bound: SocketAddr) -> Path {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let local = SocketAddr::new(remote.local.unwrap_or_else(|| bound.ip()), bound.port());
    let make = if remote.carrier.is_some() { Path::tcp } else { Path::udp };
    make(plain(local), plain(remote.peer))
}

/// Maximum number of routes of one session that are not validated yet; as many as pairs are checked.
const RECENT_MAX: usize = 8;

/// The routes by which a session has received datagrams, in the form in which the socket reports them.
#[derive(Debug)]
pub(super) struct Ways {
    /// The address of the port.
    bound: SocketAddr,
    open: SmallVec<[(Path, Remote); 1]>,
    /// Paths on which datagrams arrived, but which are not validated; newest last. Several are kept, because checks
    /// arrive on several paths at the same time, and each is answered on its own path.
    recent: Vec<(Path, Remote)>,
}

impl Ways {
    pub(super) fn new(bound: SocketAddr) -> Self {
        Self { bound, open: SmallVec::new(), recent: Vec::new() }
    }

    /// Records the route of a datagram. Returns its path.
    pub(super) fn hear(&mut self, remote: Remote) -> Path {
        let path = path_of(remote, self.bound);
        self.note(path, remote);
        path
    }

    fn note(&mut self, path: Path, remote: Remote) {
        // The addresses are known, but the datagrams now arrive by another connection or worker.
        if let Some((_, known)) = self.open.iter_mut().find(|(known, _)| *known == path) {
            *known = remote;
            return;
        }
        self.recent.retain(|(known, _)| *known != path);
        if self.recent.len() >= RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push((path, remote));
    }

    /// Records that a path was validated. Returns its route.
    pub(super) fn open(&mut self, path: Path) -> Option<Remote> {
        let remote = self.find(path)?;
        if self.open.iter().all(|(known, _)| *known != path) {
            self.open.push((path, remote));
            self.recent.retain(|(known, _)| *known != path);
            self.recent.shrink_to_fit();
        }
        Some(remote)
    }

    /// Removes a path. Returns its route.
    pub(super) fn close(&mut self, path: Path) -> Option<Remote> {
        let remote = self.find(path);
        self.open.retain(|(known, _)| *known != path);
        remote
    }

    /// Returns the route of a path.
    pub(super) fn find(&self, path: Path) -> Option<Remote> {
        let all = self.open.iter().chain(&self.recent);
        all.into_iter().find(|(known, _)| *known == path).map(|(_, remote)| *remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ConnId;

    #[test]
    fn mapped_addresses_are_plain_in_paths_and_mapped_again_on_the_way() {
        let bound = "[::]:5000".parse().unwrap();
        let remote = Remote {
            peer: "[::ffff:192.0.2.9]:7".parse().unwrap(),
            local: Some("::ffff:192.0.2.1".parse().unwrap()),
            carrier: None,
            via: None,
        };
        let path = path_of(remote, bound);
        assert_eq!(path, Path::udp("192.0.2.1:5000".parse().unwrap(), "192.0.2.9:7".parse().unwrap()));
        let mut ways = Ways::new(bound);
        assert_eq!(ways.open(path), None);
        ways.note(path, remote);
        assert_eq!(
            (ways.find(path), ways.open(path), ways.open(path)),
            (Some(remote), Some(remote), Some(remote))
        );
        assert_eq!(ways.open.len(), 1);
        let other = Remote { peer: "[::ffff:192.0.2.9]:8".parse().unwrap(), ..remote };
        ways.note(path_of(other, bound), other);
        assert_eq!(ways.find(path), Some(remote));
        assert_eq!(ways.close(path), Some(remote));
        assert_eq!(ways.find(path), None);
    }

    #[test]
    fn checks_by_several_ways_at_once_are_answered_all() {
        let bound = "192.0.2.1:5000".parse().unwrap();
        let by = |port| Remote::of(SocketAddr::new("192.0.2.9".parse().unwrap(), port));
        let mut ways = Ways::new(bound);
        for port in 0..20 {
            ways.note(path_of(by(port), bound), by(port));
            ways.note(path_of(by(19), bound), by(19));
        }
        let found: Vec<u16> =
            (0..20).filter(|port| ways.find(path_of(by(*port), bound)) == Some(by(*port))).collect();
        assert_eq!(found, (12..20).collect::<Vec<_>>());
        assert_eq!(ways.open(path_of(by(15), bound)), Some(by(15)));
        assert_eq!((ways.open.len(), ways.recent.len()), (1, RECENT_MAX - 1));
    }

    #[test]
    fn a_connection_is_another_path_than_datagrams_and_a_later_one_takes_its_place() {
        let bound = "127.0.0.1:5000".parse().unwrap();
        let by = |slot| Remote {
            carrier: Some(ConnId { slot, generation: 0 }),
            ..Remote::of("127.0.0.1:7".parse().unwrap())
        };
        let path = path_of(by(1), bound);
        assert_eq!(path, Path::tcp(bound, "127.0.0.1:7".parse().unwrap()));
        let mut ways = Ways::new(bound);
        ways.note(path, by(1));
        assert_eq!(ways.open(path), Some(by(1)));
        ways.note(path, by(2));
        assert_eq!((ways.find(path), ways.open(path)), (Some(by(2)), Some(by(2))));
        assert_eq!(ways.open.len(), 1);
    }
}
