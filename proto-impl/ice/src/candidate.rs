//! Candidates (RFC 8445 §5.1; RFC 6544 for TCP). The SDP crate reads and writes their text form.

use std::net::{IpAddr, SocketAddr};

use crate::stun::crc32;

/// The only component id, shared by RTP, RTCP and data.
pub const COMPONENT: u32 = 1;

/// The type of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CandidateKind {
    /// Host: an address of a local interface.
    Host,
    /// Server reflexive: the address as seen by a STUN server.
    ServerReflexive,
    /// Peer reflexive: the address as seen by the peer.
    PeerReflexive,
    /// Relayed: an address of a TURN server. Accepted from a peer, never gathered by this crate.
    Relayed,
}

impl CandidateKind {
    /// Returns the recommended type preference (RFC 8445 §5.1.2.2).
    const fn preference(self) -> u32 {
        match self {
            Self::Host => 126,
            Self::PeerReflexive => 110,
            Self::ServerReflexive => 100,
            Self::Relayed => 0,
        }
    }
}

/// The type of a TCP candidate (RFC 6544 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpType {
    /// The side with this candidate opens the connection; the port is a placeholder (9).
    Active,
    /// The side with this candidate accepts the connection.
    Passive,
    /// Both sides open the connection simultaneously.
    SimultaneousOpen,
}

impl TcpType {
    /// Returns the direction preference of host candidates (RFC 6544 §4.2).
    const fn preference(self) -> u32 {
        match self {
            Self::Active => 6,
            Self::Passive => 4,
            Self::SimultaneousOpen => 2,
        }
    }
}

/// The transport of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP datagrams.
    Udp,
    /// Frames of RFC 4571 over TCP.
    Tcp(TcpType),
}

/// An address at which one side may be reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Transport of the candidate.
    pub transport: Transport,
    /// The address.
    pub address: SocketAddr,
    /// Priority; larger is better.
    pub priority: u32,
    /// The type.
    pub kind: CandidateKind,
    /// Base of a reflexive candidate: the local address whose datagrams seem to come from the candidate's address.
    pub base: Option<SocketAddr>,
    /// Foundation: equal for candidates with the same type, base address and transport (RFC 8445 §5.1.1.3).
    pub foundation: u32,
}

impl Candidate {
    /// Creates a host candidate. `preference` orders the interfaces of an agent; 65535 is the most preferred
    /// (RFC 8445 §5.1.2.1).
    #[must_use]
    pub fn host(transport: Transport, address: SocketAddr, preference: u16) -> Self {
        Self::new(transport, address, None, CandidateKind::Host, preference)
    }

    /// Creates a server-reflexive candidate for `base`.
    #[must_use]
    pub fn server_reflexive(address: SocketAddr, base: SocketAddr, preference: u16) -> Self {
        Self::new(Transport::Udp, address, Some(base), CandidateKind::ServerReflexive, preference)
    }

    fn new(
        transport: Transport,
        address: SocketAddr,
        base: Option<SocketAddr>,
        kind: CandidateKind,
        preference: u16,
    ) -> Self {
        let priority = priority(kind, transport, preference);
        let foundation = foundation(kind, transport, base.unwrap_or(address).ip());
        Self { transport, address, priority, kind, base, foundation }
    }

    /// True if datagrams can be sent to the address at all.
    pub(crate) fn is_reachable(&self) -> bool {
        let ip = self.address.ip().to_canonical();
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        self.transport == Transport::Udp
            && self.address.port() != 0
            && !ip.is_unspecified()
            && !ip.is_multicast()
            && !broadcast
    }
}

/// Returns the priority of a candidate (RFC 8445 §5.1.2.1). For TCP, the upper bits of the local preference are
/// the direction (RFC 6544 §4.2), and the type preference is lower than that of all UDP candidates except
/// relayed ones.
#[must_use]
pub fn priority(kind: CandidateKind, transport: Transport, preference: u16) -> u32 {
    let (type_preference, local) = match transport {
        Transport::Udp => (kind.preference(), u32::from(preference)),
        Transport::Tcp(tcp) => {
            (kind.preference().saturating_sub(36), (tcp.preference() << 13) | (u32::from(preference) >> 3))
        }
    };
    (type_preference << 24) | (local << 8) | (256 - COMPONENT)
}

fn foundation(kind: CandidateKind, transport: Transport, base: IpAddr) -> u32 {
    let tcp = match transport {
        Transport::Udp => 0,
        Transport::Tcp(tcp) => tcp.preference(),
    };
    let mut name = kind.preference().to_be_bytes().to_vec();
    name.extend_from_slice(&tcp.to_be_bytes());
    match base.to_canonical() {
        IpAddr::V4(ip) => name.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => name.extend_from_slice(&ip.octets()),
    }
    crc32(&name)
}

/// Returns the priority of a pair (RFC 8445 §6.1.2.3). `g` is the priority of the controlling side's candidate,
/// and `d` that of the controlled side's.
#[must_use]
pub fn pair_priority(g: u32, d: u32) -> u64 {
    (u64::from(g.min(d)) << 32) | (u64::from(g.max(d)) << 1).saturating_add(u64::from(g > d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn priorities_are_those_of_the_formula() {
        // The priority that browsers give to their first host candidate.
        assert_eq!(priority(CandidateKind::Host, Transport::Udp, 32542), 2_122_260_223);
        let order = [
            (CandidateKind::Host, Transport::Udp, 65535),
            (CandidateKind::Host, Transport::Udp, 0),
            (CandidateKind::PeerReflexive, Transport::Udp, 65535),
            (CandidateKind::ServerReflexive, Transport::Udp, 65535),
            (CandidateKind::Host, Transport::Tcp(TcpType::Active), 65535),
            (CandidateKind::Host, Transport::Tcp(TcpType::Passive), 65535),
            (CandidateKind::Relayed, Transport::Udp, 65535),
        ];
        let priorities: Vec<u32> = order.iter().map(|(k, t, p)| priority(*k, *t, *p)).collect();
        assert!(priorities.windows(2).all(|w| w[0] > w[1]), "{priorities:?}");
    }

    #[test]
    fn pair_priorities_prefer_the_better_worst_and_break_ties_by_role() {
        assert_eq!(pair_priority(1, 2), (1 << 32) + 4);
        assert_eq!(pair_priority(2, 1), (1 << 32) + 5);
        assert!(pair_priority(3, 2) > pair_priority(1, 9));
        assert_eq!(pair_priority(u32::MAX, u32::MAX), u64::MAX - 1);
    }

    #[test]
    fn foundations_follow_kind_base_and_transport() {
        let host = |text: &str| Candidate::host(Transport::Udp, address(text), 1);
        assert_eq!(host("192.0.2.1:1").foundation, host("192.0.2.1:2").foundation);
        assert_ne!(host("192.0.2.1:1").foundation, host("192.0.2.2:1").foundation);
        let seen = Candidate::server_reflexive(address("203.0.113.1:9"), address("192.0.2.1:1"), 1);
        assert_ne!(seen.foundation, host("192.0.2.1:1").foundation);
        let tcp = Candidate::host(Transport::Tcp(TcpType::Passive), address("192.0.2.1:1"), 1);
        assert_ne!(tcp.foundation, host("192.0.2.1:1").foundation);
    }

    #[test]
    fn addresses_that_nobody_has_are_not_reachable() {
        for (text, reachable) in [
            ("192.0.2.1:5000", true),
            ("[2001:db8::1]:5000", true),
            ("127.0.0.1:5000", true),
            ("192.0.2.1:0", false),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("224.0.0.1:1", false),
            ("[ff02::1]:1", false),
            ("255.255.255.255:1", false),
            ("[::ffff:224.0.0.1]:1", false),
        ] {
            let candidate = Candidate::host(Transport::Udp, address(text), 1);
            assert_eq!(candidate.is_reachable(), reachable, "{text}");
        }
        let tcp = Candidate::host(Transport::Tcp(TcpType::Active), address("192.0.2.1:9"), 1);
        assert!(!tcp.is_reachable());
    }
}
