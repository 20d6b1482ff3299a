//! The sockets of a session that uses datagrams: a pair for each track, with an even port for RTP and the next port
//! for RTCP (RFC 3550 §11). The sockets of an accepted connection are connected to the peer's ports. A client
//! announces its ports before it knows the server's, so it checks the source of each datagram.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::rtsp::Ports;

use crate::protocol::pull::ClientEvent;
use crate::protocol::{Event, OpenPath, PathId, SocketEvent};

/// Maximum number of tracks with sockets.
const PAIRS_MAX: usize = 16;
/// Maximum number of attempts to find two adjacent ports.
const TRIES_MAX: u8 = 16;

/// A request to the owner of the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// Open a socket.
    Open(OpenPath),
    /// Close a socket.
    Close(PathId),
}

impl From<Ask> for Event {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Open(wanted) => Self::Socket(SocketEvent::Open(wanted)),
            Ask::Close(path) => Self::Socket(SocketEvent::Close(path)),
        }
    }
}

impl From<Ask> for ClientEvent {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::Open(wanted) => Self::OpenPath(wanted),
            Ask::Close(path) => Self::ClosePath(path),
        }
    }
}

/// The outcome of opening a socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// Another socket is being opened.
    NotYet,
    /// The pair of this track is open, at these ports.
    Pair(usize, Ports),
    /// No pair could be opened.
    Failed,
}

/// A pair that is being opened.
#[derive(Debug)]
struct Opening {
    track: usize,
    peer: Option<Ports>,
    /// The port of RTP, once its socket is open.
    rtp: Option<u16>,
    tries: u8,
}

/// The pairs of sockets of a session.
#[derive(Debug)]
pub(super) struct Pairs {
    peer: IpAddr,
    opening: Option<Opening>,
    open: Vec<usize>,
    asks: VecDeque<Ask>,
}

/// Returns the path of a track's RTP or RTCP. Path 0 is the connection's byte stream.
pub(super) fn path_of(track: usize, is_rtcp: bool) -> PathId {
    let number = track.saturating_mul(2).saturating_add(if is_rtcp { 2 } else { 1 });
    PathId(u8::try_from(number).unwrap_or(u8::MAX))
}

/// Returns the track of a path, and true if it is the path of RTCP.
pub(super) fn track_of(path: PathId) -> Option<(usize, bool)> {
    let number = usize::from(path.0.checked_sub(1)?);
    Some((number / 2, number % 2 == 1))
}

impl Pairs {
    /// Makes the pairs for a peer with this address. If the peer's address is not known yet, an unspecified address
    /// gives its address family.
    pub(super) const fn new(peer: IpAddr) -> Self {
        Self { peer, opening: None, open: Vec::new(), asks: VecDeque::new() }
    }

    /// Returns the peer's address.
    pub(super) const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Takes the pending requests to the owner of the sockets.
    pub(super) fn take_asks<A: From<Ask>>(&mut self) -> impl Iterator<Item = A> {
        self.asks.drain(..).map(A::from)
    }

    /// Begins to open the pair of a track, connected to the peer's ports if known. Returns false if there are too many
    /// pairs, one is being opened, or the track already has one.
    pub(super) fn open(&mut self, track: usize, peer: Option<Ports>) -> bool {
        if track >= PAIRS_MAX || self.opening.is_some() || self.open.contains(&track) {
            return false;
        }
        self.opening = Some(Opening { track, peer, rtp: None, tries: 0 });
        self.ask(0);
        true
    }

    /// Requests RTP's socket at this port; 0 for any.
    fn ask(&mut self, port: u16) {
        let Some(opening) = &self.opening else { return };
        let (track, to) = (opening.track, opening.peer.map(|peer| peer.rtp));
        self.want(track, false, port, to);
    }

    fn want(&mut self, track: usize, is_rtcp: bool, port: u16, to: Option<u16>) {
        let any = if self.peer.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let bind = Some(SocketAddr::new(any, port));
        let to = to.map(|port| SocketAddr::new(self.peer, port));
        self.asks.push_back(Ask::Open(OpenPath { path: path_of(track, is_rtcp), bind, to }));
    }

    /// Handles the outcome of opening a socket: its port, or `None` if it failed.
    pub(super) fn opened(&mut self, path: PathId, local: Option<u16>) -> Opened {
        let Some(opening) = &mut self.opening else { return Opened::NotYet };
        let (track, rtp_path) = (opening.track, path_of(opening.track, false));
        match (local, opening.rtp) {
            (Some(port), None) if port % 2 == 0 && path == rtp_path => {
                opening.rtp = Some(port);
                let to = opening.peer.map(|peer| peer.rtcp);
                self.want(track, true, port.saturating_add(1), to);
                Opened::NotYet
            }
            (Some(_), Some(rtp)) => {
                self.opening = None;
                self.open.push(track);
                Ports::from_rtp(rtp).map_or(Opened::Failed, |ports| Opened::Pair(track, ports))
            }
            (found, _) => {
                opening.tries = opening.tries.saturating_add(1);
                opening.rtp = None;
                let gives_up = opening.tries >= TRIES_MAX;
                self.asks.push_back(Ask::Close(rtp_path));
                if gives_up {
                    self.opening = None;
                    return Opened::Failed;
                }
                // The port after an odd one is even.
                self.ask(found.map_or(0, |odd| odd.checked_add(1).unwrap_or(0)));
                Opened::NotYet
            }
        }
    }

    /// Closes all pairs.
    pub(super) fn close(&mut self) {
        let opening = self.opening.take().map(|opening| opening.track);
        for track in self.open.drain(..).chain(opening) {
            self.asks.extend([false, true].map(|is_rtcp| Ask::Close(path_of(track, is_rtcp))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(pairs: &mut Pairs) -> Vec<Ask> {
        pairs.take_asks().collect()
    }

    fn wanted(ask: Ask) -> (PathId, u16, SocketAddr) {
        let Ask::Open(open) = ask else { panic!("{ask:?}") };
        (open.path, open.bind.unwrap().port(), open.to.unwrap())
    }

    #[test]
    fn p_08_sockets_are_connected_to_the_peer_whatever_it_calls_its_destination() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let mut pairs = Pairs::new(peer);
        assert!(pairs.open(1, Ports::from_rtp(7000)));
        let to = |port| SocketAddr::new(peer, port);
        assert_eq!(asks(&mut pairs).into_iter().map(wanted).collect::<Vec<_>>(), [(PathId(3), 0, to(7000))]);
        // An odd port: the next one is tried.
        assert_eq!(pairs.opened(PathId(3), Some(50_001)), Opened::NotYet);
        let next = asks(&mut pairs);
        assert_eq!((next[0], wanted(next[1])), (Ask::Close(PathId(3)), (PathId(3), 50_002, to(7000))));
        assert_eq!(pairs.opened(PathId(3), Some(50_002)), Opened::NotYet);
        assert_eq!(wanted(asks(&mut pairs)[0]), (PathId(4), 50_003, to(7001)));
        let ports = Ports::from_rtp(50_002).unwrap();
        assert_eq!(pairs.opened(PathId(4), Some(50_003)), Opened::Pair(1, ports));
        assert_eq!(
            (track_of(PathId(3)), track_of(PathId(4)), track_of(PathId(0))),
            (Some((1, false)), Some((1, true)), None)
        );
        pairs.close();
        assert_eq!(asks(&mut pairs).len(), 2);
    }

    #[test]
    fn ports_that_are_all_taken_end_the_search() {
        let mut pairs = Pairs::new("::1".parse().unwrap());
        assert!(pairs.open(0, Ports::from_rtp(7000)));
        let mut tries = 0;
        while pairs.opened(PathId(1), None) != Opened::Failed {
            tries += 1;
            assert!(tries < 100);
        }
    }
}
