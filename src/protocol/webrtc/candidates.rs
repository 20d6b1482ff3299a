//! The addresses offered to WebRTC peers (`webrtc.candidates`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::protocol::ice_servers::is_host;
use crate::types::Lookup;

/// Maximum number of entries in the setting, and of addresses offered.
pub(super) const CANDIDATES_MAX: usize = 16;
/// The STUN server of `auto`.
const SERVER: (&str, u16) = ("stun.l.google.com", 19302);
/// Port of a STUN server that is named without one (RFC 8489 §8.1).
const STUN_PORT: u16 = 3478;

/// An entry of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// An address.
    Address(IpAddr),
    /// The public address to which a NAT maps an address of this machine.
    Mapped { own: IpAddr, public: IpAddr },
    /// An address that must be looked up: that of a host name, or this machine's public one, as a STUN server sees it.
    LookUp(Lookup),
    /// The addresses of the interfaces.
    Hosts,
}

impl Entry {
    /// Parses `ADDRESS`, `OWN=PUBLIC`, `NAME`, `auto`, `auto=HOST[:PORT]` or `host`.
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        match text.split_once('=') {
            Some(("auto", server)) => {
                let (server, port) = server_of(server.trim())?;
                Some(Self::LookUp(Lookup::Seen { server, port }))
            }
            Some((own, public)) => {
                Some(Self::Mapped { own: own.trim().parse().ok()?, public: public.trim().parse().ok()? })
            }
            None if text == "auto" => {
                Some(Self::LookUp(Lookup::Seen { server: SERVER.0.to_owned(), port: SERVER.1 }))
            }
            None if text == "host" => Some(Self::Hosts),
            // A malformed address is a mistake, not a name.
            None => (is_host(text)
                && text.contains(|c: char| c.is_ascii_alphabetic())
                && !text.contains([':', '[']))
            .then(|| Self::LookUp(Lookup::Name(text.to_owned()))),
        }
    }
}

/// Splits `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
fn server_of(text: &str) -> Option<(String, u16)> {
    let whole = |host: &str| (!host.is_empty() && is_host(host)).then(|| (host.to_owned(), STUN_PORT));
    if let Some((host, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let port = if port.is_empty() { STUN_PORT } else { port.strip_prefix(':')?.parse().ok()? };
        return whole(host).map(|(host, _)| (host, port));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => {
            Some((whole(host)?.0, port.parse().ok().filter(|port| *port > 0)?))
        }
        Some(_) | None => whole(text),
    }
}

/// The addresses to which entries of the setting refer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// Addresses of the interfaces.
    pub(super) hosts: &'a [IpAddr],
    /// Addresses that were looked up.
    pub(super) found: &'a BTreeMap<Lookup, Vec<IpAddr>>,
}

/// Returns the addresses for candidates of a port: those that the setting lists, in its order. If there are none,
/// returns this machine's own addresses: the one that the port is bound to or, if the port is bound to all, those of
/// the interfaces. Loopback is used only if the port is bound to it, or the machine has no other address.
pub(super) fn addresses(bound: SocketAddr, setting: &[Entry], known: Known<'_>) -> Vec<SocketAddr> {
    let mut told: Vec<SocketAddr> = Vec::new();
    let mut tell = |ip: IpAddr| {
        let address = SocketAddr::new(ip, bound.port());
        if told.len() < CANDIDATES_MAX && !told.contains(&address) {
            told.push(address);
        }
    };
    let own = own_addresses(bound, known.hosts);
    for entry in setting {
        match entry {
            Entry::Address(ip) => tell(*ip),
            Entry::Mapped { own: mapped, public } if own.contains(mapped) => tell(*public),
            Entry::Mapped { .. } => {}
            Entry::LookUp(lookup) => known.found.get(lookup).into_iter().flatten().for_each(|ip| tell(*ip)),
            Entry::Hosts => own.iter().for_each(|ip| tell(*ip)),
        }
    }
    // The setting is empty, its addresses are not looked up yet, or none of its mapped addresses belongs to this
    // machine.
    if told.is_empty() {
        own.into_iter().for_each(|ip| told.push(SocketAddr::new(ip, bound.port())));
    }
    told
}

fn own_addresses(bound: SocketAddr, hosts: &[IpAddr]) -> Vec<IpAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound.ip()];
    }
    let is_reached = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => bound.is_ipv6() && !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut own: Vec<IpAddr> = hosts.iter().filter(is_reached).take(CANDIDATES_MAX).copied().collect();
    // Peers prefer the first candidate, and IPv4 reaches nearly everybody.
    own.sort_by_key(IpAddr::is_ipv6);
    if own.is_empty() {
        own.push(IpAddr::from([127, 0, 0, 1]));
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn seen(server: &str, port: u16) -> Entry {
        Entry::LookUp(Lookup::Seen { server: server.to_owned(), port })
    }

    #[test]
    fn entries_are_addresses_names_maps_and_servers() {
        let name = |name: &str| Entry::LookUp(Lookup::Name(name.to_owned()));
        for (text, entry) in [
            ("203.0.113.7", Entry::Address(ip("203.0.113.7"))),
            ("2001:db8::7", Entry::Address(ip("2001:db8::7"))),
            ("10.0.0.5=203.0.113.7", Entry::Mapped { own: ip("10.0.0.5"), public: ip("203.0.113.7") }),
            ("fd00::2 = 2001:db8::7", Entry::Mapped { own: ip("fd00::2"), public: ip("2001:db8::7") }),
            ("media.example.com", name("media.example.com")),
            ("localhost", name("localhost")),
            ("auto", seen("stun.l.google.com", 19302)),
            ("auto=stun.example.com", seen("stun.example.com", 3478)),
            ("auto=stun.example.com:5349", seen("stun.example.com", 5349)),
            ("auto=[2001:db8::1]:3478", seen("2001:db8::1", 3478)),
            ("auto=192.0.2.1:99", seen("192.0.2.1", 99)),
            ("host", Entry::Hosts),
        ] {
            assert_eq!(Entry::read(text), Some(entry), "{text}");
        }
        for text in [
            "",
            "203.0.113",
            "203.0.113.7:80",
            "10.0.0.5=",
            "=203.0.113.7",
            "10.0.0.5=name",
            "a b",
            "auto=",
            "auto=:1",
            "auto=h:0",
            "auto=h:99999",
            "auto=[::1]x",
            "https://example.com",
            "[2001:db8::7]",
        ] {
            assert_eq!(Entry::read(text), None, "{text}");
        }
    }

    #[test]
    fn what_peers_are_told_of() {
        let hosts = ["127.0.0.1", "fd00::2", "192.0.2.2", "fe80::1", "::1", "169.254.3.4"].map(ip);
        let found = BTreeMap::from([
            (Lookup::Name("media.example.com".to_owned()), vec![ip("203.0.113.8"), ip("2001:db8::8")]),
            (Lookup::Seen { server: "s".to_owned(), port: 3478 }, Vec::new()),
        ]);
        let told = |bound: &str, setting: &str| {
            let setting: Vec<Entry> =
                setting.split_whitespace().map(|text| Entry::read(text).unwrap()).collect();
            let known = Known { hosts: &hosts, found: &found };
            addresses(bound.parse().unwrap(), &setting, known)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(told("[::]:5", ""), ["192.0.2.2:5", "[fd00::2]:5"]);
        assert_eq!(told("0.0.0.0:5", ""), ["192.0.2.2:5"]);
        assert_eq!(told("127.0.0.1:5", ""), ["127.0.0.1:5"]);
        assert_eq!(told("[::]:5", "203.0.113.7"), ["203.0.113.7:5"]);
        assert_eq!(told("[::]:5", "media.example.com"), ["203.0.113.8:5", "[2001:db8::8]:5"]);
        assert_eq!(told("0.0.0.0:5", "auto=s"), ["192.0.2.2:5"], "not found yet");
        assert_eq!(
            told("0.0.0.0:5", "media.example.com 203.0.113.8 host"),
            ["203.0.113.8:5", "[2001:db8::8]:5", "192.0.2.2:5"]
        );
        // Several machines may have the same setting: each machine uses only the mapping of its own address.
        assert_eq!(told("0.0.0.0:5", "192.0.2.1=203.0.113.1 192.0.2.2=203.0.113.2"), ["203.0.113.2:5"]);
        assert_eq!(told("192.0.2.1:5", "192.0.2.1=203.0.113.1 192.0.2.2=203.0.113.2"), ["203.0.113.1:5"]);
        assert_eq!(told("0.0.0.0:5", "192.0.2.1=203.0.113.1"), ["192.0.2.2:5"], "no map of this machine");
        let none = Known { hosts: &[], found: &found };
        assert_eq!(addresses("0.0.0.0:5".parse().unwrap(), &[], none), ["127.0.0.1:5".parse().unwrap()]);
    }
}
