//! ICE candidates (RFC 8839 §5.1, RFC 6544 §4.5 for TCP). Unsupported candidate lines are skipped.

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::host::Host;
use crate::text::number;

/// Maximum number of extensions per candidate.
const EXTENSIONS_MAX: usize = 16;
/// Largest component id (RFC 8839 §5.1).
const COMPONENT_MAX: u16 = 256;

/// The transport of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP with the framing of RFC 4571.
    Tcp,
}

/// The type of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CandidateKind {
    /// Host: an address of an interface of the peer.
    Host,
    /// Server reflexive: the address as seen by a STUN server.
    ServerReflexive,
    /// Peer reflexive: the address as seen by the other peer.
    PeerReflexive,
    /// Relayed: an address of a TURN server.
    Relayed,
}

/// The type of a TCP candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TcpKind {
    /// The peer opens the connection; its port is a placeholder (browsers: 9).
    Active,
    /// The peer accepts the connection.
    Passive,
    /// Both sides open the connection simultaneously.
    SimultaneousOpen,
}

macro_rules! names {
    ($type:ident { $($name:literal => $variant:ident),+ $(,)? }) => {
        impl $type {
            fn read(text: &str) -> Option<Self> {
                $(if text.eq_ignore_ascii_case($name) { return Some(Self::$variant); })+
                None
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }
    };
}

names!(Transport { "udp" => Udp, "tcp" => Tcp });
names!(CandidateKind {
    "host" => Host, "srflx" => ServerReflexive, "prflx" => PeerReflexive, "relay" => Relayed
});
names!(TcpKind { "active" => Active, "passive" => Passive, "so" => SimultaneousOpen });

/// `a=candidate`: an ICE candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Foundation: equal for candidates with the same base and server.
    pub foundation: String,
    /// Component id: 1 for RTP and for multiplexed RTCP, 2 for RTCP.
    pub component: u16,
    /// UDP or TCP.
    pub transport: Transport,
    /// The peer's preference; larger is better.
    pub priority: u32,
    /// IP address, or a `.local` name.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The type.
    pub kind: CandidateKind,
    /// Base of a reflexive or relayed candidate (`raddr`, `rport`).
    pub related: Option<(Host, u16)>,
    /// TCP type; `None` for UDP.
    pub tcp_kind: Option<TcpKind>,
    /// Further pairs of name and value: `generation`, `ufrag`, `network-cost`, ...
    pub extensions: Vec<(String, String)>,
}

impl Candidate {
    /// Parses a candidate as written in signalling or SDP: the value, optionally after `candidate:` or
    /// `a=candidate:`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let text = text.strip_prefix("a=").unwrap_or(text);
        let text = text.strip_prefix("candidate:").unwrap_or(text);
        let mut words = text.split_ascii_whitespace();
        let foundation = words.next().filter(|text| is_foundation(text))?.to_owned();
        let component = number(words.next()?).filter(|c| (1..=COMPONENT_MAX).contains(c))?;
        let transport = Transport::read(words.next()?)?;
        let priority = number(words.next()?)?;
        let host = Host::read(words.next()?)?;
        let port = number(words.next()?)?;
        words.next().filter(|typ| typ.eq_ignore_ascii_case("typ"))?;
        let kind = CandidateKind::read(words.next()?)?;
        let mut candidate = Self {
            foundation,
            component,
            transport,
            priority,
            host,
            port,
            kind,
            related: None,
            tcp_kind: None,
            extensions: Vec::new(),
        };
        candidate.read_pairs(words)?;
        Some(candidate)
    }

    fn read_pairs<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Option<()> {
        let (mut address, mut port) = (None, 0);
        while let Some(name) = words.next() {
            let value = words.next().unwrap_or_default();
            match name {
                "raddr" => address = Host::read(value),
                "rport" => port = number(value)?,
                "tcptype" => self.tcp_kind = Some(TcpKind::read(value)?),
                // A name at the end without a value is dropped.
                _ if value.is_empty() => {}
                _ if self.extensions.len() >= EXTENSIONS_MAX => return None,
                _ => self.extensions.push((name.to_owned(), value.to_owned())),
            }
        }
        self.related = address.map(|address| (address, port));
        Some(())
    }

    /// Returns an extension's value.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<&str> {
        self.extensions.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// True if a foundation is valid. RFC 8839 allows letters, digits, `+` and `/`; other stacks also use `-`, `_`
/// and `.`.
fn is_foundation(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'-' | b'_' | b'.'))
}

/// Writes the value without `candidate:`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.foundation, self.component, self.transport)?;
        write!(f, "{} {} {} typ {}", self.priority, self.host, self.port, self.kind)?;
        if let Some((host, port)) = &self.related {
            write!(f, " raddr {host} rport {port}")?;
        }
        if let Some(kind) = self.tcp_kind {
            write!(f, " tcptype {kind}")?;
        }
        self.extensions.iter().try_for_each(|(name, value)| write!(f, " {name} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_read_what_they_write() {
        for value in [
            "1 1 udp 2122260223 192.0.2.2 54321 typ host",
            "842163049 1 udp 1677729535 198.51.100.7 46154 typ srflx raddr 0.0.0.0 rport 0 generation 0 ufrag aB3/",
            "4 2 tcp 2105458942 fd00::2 9 typ host tcptype active",
            "9 1 udp 2113937151 6f0a2b4c-1d3e-4f5a-8b9c-0d1e2f3a4b5c.local 50000 typ host network-cost 999",
        ] {
            assert_eq!(Candidate::read(value).unwrap().to_string(), value);
            assert!(Candidate::read(&format!("candidate:{value}")).is_some());
            assert!(Candidate::read(&format!("a=candidate:{value}\r\n")).is_some());
        }
    }

    #[test]
    fn capitals_and_odd_ends_are_read() {
        let read = Candidate::read("1 1 UDP 5 192.0.2.2 5 TYP HOST raddr :: generation").unwrap();
        assert_eq!(read.related, Some((Host::Ip("::".parse().unwrap()), 0)));
        assert_eq!((read.transport, read.extension("generation")), (Transport::Udp, None));
    }

    #[test]
    fn what_is_not_understood_is_no_candidate() {
        for bad in [
            "",
            "1 1 udp 5 192.0.2.2 5",
            "1 0 udp 5 192.0.2.2 5 typ host",
            "1 257 udp 5 192.0.2.2 5 typ host",
            "1 1 ssltcp 5 192.0.2.2 443 typ host",
            "1 1 udp 4294967296 192.0.2.2 5 typ host",
            "1 1 udp 5 192.0.2.2 65536 typ host",
            "1 1 udp 5 a/b 5 typ host",
            "1 1 udp 5 192.0.2.2 5 typ magic",
        ] {
            assert_eq!(Candidate::read(bad), None, "{bad}");
        }
        let many = format!("1 1 udp 5 192.0.2.2 5 typ host{}", " a b".repeat(EXTENSIONS_MAX + 1));
        assert_eq!(Candidate::read(&many), None);
    }
}
