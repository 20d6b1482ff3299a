//! The sockets of a session that has agreed on datagrams: for each track a pair, RTP's port even and RTCP's the next one
//! (RFC 3550 §11), each connected to the peer's own. Nothing is taken from, or sent to, anybody else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::rtsp::{Ports, Transport};

use crate::protocol::{Event, OpenPath, PathId};

/// Tracks that may have sockets.
const PAIRS_MAX: usize = 16;
/// Attempts to find two ports next to each other.
const TRIES_MAX: u8 = 16;

/// What became of a socket.
#[derive(Debug)]
pub(super) enum Opened {
    /// Another one is being opened.
    NotYet,
    /// The pair of a track is there.
    Pair(Transport),
    /// None could be found.
    Failed,
}

/// A pair that is being opened.
#[derive(Debug)]
struct Opening {
    track: usize,
    transport: Transport,
    peer: Ports,
    /// The port of RTP, once it is open.
    rtp: Option<u16>,
    tries: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pairs {
    peer: IpAddr,
    opening: Option<Opening>,
    open: Vec<usize>,
}

/// The path of a track's RTP, or of its RTCP. The stream itself has 0.
pub(super) fn path_of(track: usize, is_rtcp: bool) -> PathId {
    let number = track.saturating_mul(2).saturating_add(if is_rtcp { 2 } else { 1 });
    PathId(u8::try_from(number).unwrap_or(u8::MAX))
}

/// The track of a path, and whether it is RTCP's.
pub(super) fn track_of(path: PathId) -> Option<(usize, bool)> {
    let number = usize::from(path.0.checked_sub(1)?);
    Some((number / 2, number % 2 == 1))
}

impl Pairs {
    pub(super) const fn new(peer: IpAddr) -> Self {
        Self { peer, opening: None, open: Vec::new() }
    }

    /// Begins to open the pair of a track. False: it has too many, or has one.
    pub(super) fn open(
        &mut self,
        track: usize,
        transport: Transport,
        events: &mut impl Extend<Event>,
    ) -> bool {
        let Some(peer) = transport.client_ports.filter(|_| track < PAIRS_MAX) else { return false };
        if self.opening.is_some() || self.open.contains(&track) {
            return false;
        }
        self.opening = Some(Opening { track, transport, peer, rtp: None, tries: 0 });
        self.ask(0, events);
        true
    }

    /// Asks for RTP's socket at this port; 0: any.
    fn ask(&self, port: u16, events: &mut impl Extend<Event>) {
        let Some(opening) = &self.opening else { return };
        let to = SocketAddr::new(self.peer, opening.peer.rtp);
        events.extend([self.wanted(opening.track, false, port, to)]);
    }

    fn wanted(&self, track: usize, is_rtcp: bool, port: u16, to: SocketAddr) -> Event {
        let any = if self.peer.is_ipv4() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let bind = Some(SocketAddr::new(any, port));
        Event::OpenPath(OpenPath { path: path_of(track, is_rtcp), bind, to: Some(to) })
    }

    /// A socket is open at this port, or could not be opened (`None`).
    pub(super) fn opened(
        &mut self,
        path: PathId,
        local: Option<u16>,
        events: &mut impl Extend<Event>,
    ) -> Opened {
        let Some(opening) = &mut self.opening else { return Opened::NotYet };
        let rtp_path = path_of(opening.track, false);
        match (local, opening.rtp) {
            (Some(port), None) if port % 2 == 0 && path == rtp_path => {
                opening.rtp = Some(port);
                let to = SocketAddr::new(self.peer, opening.peer.rtcp);
                let track = opening.track;
                events.extend([self.wanted(track, true, port.saturating_add(1), to)]);
                Opened::NotYet
            }
            (Some(_), Some(rtp)) => {
                let Some(opening) = self.opening.take() else { return Opened::NotYet };
                self.open.push(opening.track);
                let server_ports = Ports::from_rtp(rtp);
                Opened::Pair(Transport { server_ports, ..opening.transport })
            }
            (found, _) => {
                opening.tries = opening.tries.saturating_add(1);
                opening.rtp = None;
                if opening.tries >= TRIES_MAX {
                    self.opening = None;
                    events.extend([Event::ClosePath(rtp_path)]);
                    return Opened::Failed;
                }
                events.extend([Event::ClosePath(rtp_path)]);
                // Behind an odd port there is an even one.
                self.ask(found.map_or(0, |odd| odd.checked_add(1).unwrap_or(0)), events);
                Opened::NotYet
            }
        }
    }

    /// Closes all of them.
    pub(super) fn close(&mut self, events: &mut impl Extend<Event>) {
        let opening = self.opening.take().map(|opening| opening.track);
        for track in self.open.drain(..).chain(opening) {
            events.extend([false, true].map(|is_rtcp| Event::ClosePath(path_of(track, is_rtcp))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(event: Option<Event>) -> (PathId, u16, SocketAddr) {
        let Some(Event::OpenPath(open)) = event else { panic!("{event:?}") };
        (open.path, open.bind.unwrap().port(), open.to.unwrap())
    }

    #[test]
    fn p_08_sockets_are_connected_to_the_peer_whatever_it_calls_its_destination() {
        let peer: IpAddr = "192.0.2.1".parse().unwrap();
        let mut pairs = Pairs::new(peer);
        let mut events = std::collections::VecDeque::new();
        let asked = Transport {
            destination: Some("198.51.100.7".to_owned()),
            ..Transport::udp(Ports::from_rtp(7000).unwrap())
        };
        assert!(pairs.open(1, asked, &mut events));
        let to = |port| SocketAddr::new(peer, port);
        assert_eq!(wanted(events.pop_front()), (PathId(3), 0, to(7000)));
        // An odd port: the next one is tried.
        assert!(matches!(pairs.opened(PathId(3), Some(50_001), &mut events), Opened::NotYet));
        assert!(matches!(events.pop_front(), Some(Event::ClosePath(PathId(3)))));
        assert_eq!(wanted(events.pop_front()), (PathId(3), 50_002, to(7000)));
        assert!(matches!(pairs.opened(PathId(3), Some(50_002), &mut events), Opened::NotYet));
        assert_eq!(wanted(events.pop_front()), (PathId(4), 50_003, to(7001)));
        let Opened::Pair(transport) = pairs.opened(PathId(4), Some(50_003), &mut events) else { panic!() };
        assert_eq!(transport.server_ports, Ports::from_rtp(50_002));
        assert_eq!(
            (track_of(PathId(3)), track_of(PathId(4)), track_of(PathId(0))),
            (Some((1, false)), Some((1, true)), None)
        );
        pairs.close(&mut events);
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn ports_that_are_all_taken_end_the_search() {
        let mut pairs = Pairs::new("::1".parse().unwrap());
        let mut events = Vec::new();
        assert!(pairs.open(0, Transport::udp(Ports::from_rtp(7000).unwrap()), &mut events));
        let mut tries = 0;
        while !matches!(pairs.opened(PathId(1), None, &mut events), Opened::Failed) {
            tries += 1;
            assert!(tries < 100);
        }
    }
}
