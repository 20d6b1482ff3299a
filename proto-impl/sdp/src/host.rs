//! Hosts, and the lines that contain them: `c=`, `a=rtcp`, candidates.

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use core::net::{IpAddr, Ipv4Addr};

use crate::text::{first_word, number};

/// Maximum length of a host name, in characters.
const NAME_CHARS_MAX: usize = 253;

/// An IP address or a host name: browsers hide addresses behind `<uuid>.local` names, and cameras write their
/// host names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A host name, which this crate never resolves.
    Name(String),
}

impl Host {
    /// The address `0.0.0.0`, which stands for no address.
    pub const UNSPECIFIED: Self = Self::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Parses an address, or a name consisting of letters, digits, `-`, `_` and `.`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if let Ok(ip) = text.parse() {
            return Some(Self::Ip(ip));
        }
        let fits = !text.is_empty() && text.len() <= NAME_CHARS_MAX;
        let clean = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        (fits && clean).then(|| Self::Name(text.to_owned()))
    }

    /// Returns the address; `None` for a name.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    /// True for a multicast DNS name (`.local`), which can only be resolved in the peer's own network.
    #[must_use]
    pub fn is_mdns(&self) -> bool {
        match self {
            Self::Ip(_) => false,
            Self::Name(name) => name.to_ascii_lowercase().ends_with(".local"),
        }
    }

    /// Address type: `IP4` or `IP6`; `IP4` for a name.
    const fn family(&self) -> &'static str {
        match self {
            Self::Ip(IpAddr::V6(_)) => "IP6",
            Self::Ip(IpAddr::V4(_)) | Self::Name(_) => "IP4",
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Reads `IN IP4 host`, as in `o=`, `c=` and `a=rtcp`, and returns the host. IP4 and IP6 are not
/// distinguished, because the address itself shows its type.
pub(crate) fn read_network(text: &str) -> Option<&str> {
    let (net, rest) = first_word(text);
    let (family, rest) = first_word(rest);
    let known = net.eq_ignore_ascii_case("IN")
        && (family.eq_ignore_ascii_case("IP4") || family.eq_ignore_ascii_case("IP6"));
    let (host, _) = first_word(rest);
    (known && !host.is_empty()).then_some(host)
}

/// Writes a host in the format that [`read_network`] reads.
pub(crate) struct Network<'a>(pub(crate) &'a Host);

impl fmt::Display for Network<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IN {} {}", self.0.family(), self.0)
    }
}

/// Connection data (`c=`, RFC 8866 §5.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Destination address of the media.
    pub host: Host,
    /// TTL of an IPv4 multicast group. A number of groups that follows the TTL is ignored.
    pub ttl: Option<u8>,
}

impl Connection {
    /// Creates connection data with a unicast address.
    #[must_use]
    pub const fn new(host: Host) -> Self {
        Self { host, ttl: None }
    }

    /// Reads the value of the line.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = read_network(text)?.split('/');
        let host = Host::read(parts.next()?)?;
        let ttl = match host {
            Host::Ip(IpAddr::V6(_)) => None,
            Host::Ip(IpAddr::V4(_)) | Host::Name(_) => parts.next().and_then(number),
        };
        Some(Self { host, ttl })
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Network(&self.host))?;
        self.ttl.map_or(Ok(()), |ttl| write!(f, "/{ttl}"))
    }
}

/// `a=rtcp` (RFC 3605): address for RTCP if it is not the next port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtcpAddress {
    /// Port; 9 if ICE determines it.
    pub port: u16,
    /// Address; `None` if it is that in `c=`.
    pub host: Option<Host>,
}

impl RtcpAddress {
    /// Reads the attribute's value.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (port, rest) = first_word(text);
        Some(Self { port: number(port)?, host: read_network(rest).and_then(Host::read) })
    }
}

impl fmt::Display for RtcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.port)?;
        self.host.as_ref().map_or(Ok(()), |host| write!(f, " {}", Network(host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_clean_names() {
        assert_eq!(Host::read("fd00::2").unwrap().ip(), Some("fd00::2".parse().unwrap()));
        assert!(Host::read("6f0a2b4c-1d3e-4f5a-8b9c-0d1e2f3a4b5c.local").unwrap().is_mdns());
        assert!(!Host::read("camera.example").unwrap().is_mdns());
        for bad in ["", "a b", "fe80::1%eth0", "a/b", "ü"] {
            assert_eq!(Host::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn connections_read_what_they_write() {
        for line in ["IN IP4 192.0.2.1", "IN IP6 ::1", "IN IP4 239.1.1.1/64", "IN IP4 nvr.local"] {
            assert_eq!(Connection::read(line).unwrap().to_string(), line);
        }
        let mixed = Connection::read("IN IP4 ::1").unwrap();
        assert_eq!(mixed.to_string(), "IN IP6 ::1");
        assert_eq!((Connection::read("IN IP4 "), Connection::read("IN ATM x")), (None, None));
    }

    #[test]
    fn rtcp_has_a_port_and_maybe_an_address() {
        for value in ["9 IN IP4 0.0.0.0", "53020"] {
            assert_eq!(RtcpAddress::read(value).unwrap().to_string(), value);
        }
        assert_eq!(RtcpAddress::read("70000"), None);
    }
}
