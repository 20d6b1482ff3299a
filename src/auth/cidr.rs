//! Lists of address rules (docs/security.md): comma separated addresses or `address/prefix`.
//!
//! A rule that cannot be read is an error, whereas Ant Media Server skips it: a filter must fail closed. IPv4-mapped
//! IPv6 (`::ffff:a.b.c.d`) equals IPv4 in rules and addresses. A rule that admits 127.0.0.1 also admits `::1`,
//! because both mean this machine. `0.0.0.0/0` is IPv4 only, as in Ant Media Server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Maximum number of rules in one setting.
const RULES_MAX: usize = 1024;

/// Reasons why a list is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CidrError {
    /// Neither an address nor `address/prefix`.
    #[error("`{0}` is not an address or address/prefix")]
    Rule(String),
    /// More than 1024 rules.
    #[error("more than {RULES_MAX} rules")]
    TooMany,
}

/// A parsed list. An empty list matches no address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CidrList {
    nets: Vec<IpNet>,
    loopback: bool,
}

impl CidrList {
    /// True if the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nets.is_empty()
    }

    /// True if a rule matches the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address == IpAddr::V6(Ipv6Addr::LOCALHOST) && self.loopback {
            return true;
        }
        self.nets.iter().any(|net| net.contains(&address))
    }
}

/// Parses a list. Blanks around commas are allowed; an empty text is an empty list.
///
/// # Errors
/// The first rule that cannot be read. An empty rule between two commas cannot be read, either.
pub fn parse(text: &str) -> Result<CidrList, CidrError> {
    if text.trim().is_empty() {
        return Ok(CidrList::default());
    }
    let mut nets = Vec::new();
    for rule in text.split(',') {
        if nets.len() >= RULES_MAX {
            return Err(CidrError::TooMany);
        }
        nets.push(parse_rule(rule.trim())?);
    }
    let loopback = nets.iter().any(|net| net.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    Ok(CidrList { nets, loopback })
}

fn parse_rule(rule: &str) -> Result<IpNet, CidrError> {
    let bad =
        || CidrError::Rule(rule.chars().take(64).map(|c| if c.is_control() { '_' } else { c }).collect());
    let net = match rule.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => rule.parse::<IpNet>().map_err(|_| bad())?,
    };
    Ok(canonical(net))
}

/// Maps a rule in IPv4-mapped form to the IPv4 rule.
fn canonical(net: IpNet) -> IpNet {
    let IpNet::V6(v6) = net else { return net };
    let prefix = v6.prefix_len().checked_sub(96);
    let mapped = v6.addr().to_ipv4_mapped();
    match (prefix, mapped) {
        (Some(prefix), Some(address)) => Ipv4Net::new(address, prefix).map_or(net, IpNet::V4),
        (None | Some(_), _) => IpNet::V6(Ipv6Net::new(v6.addr(), v6.prefix_len()).unwrap_or(v6)),
    }
}

/// Parses an address as found in header fields: brackets, a `:port` and an IPv6 zone are dropped.
#[must_use]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = if let Some(rest) = text.strip_prefix('[') {
        rest.split(']').next()?
    } else if text.matches(':').count() == 1 {
        text.split(':').next()?
    } else {
        text
    };
    let bare = bare.split('%').next()?;
    bare.parse::<IpAddr>().ok().map(|a| a.to_canonical())
}

/// Returns the network by which limits count an address: for IPv6 the /64, since one host may use all addresses
/// of a /64.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(rules: &str, address: &str) -> bool {
        parse(rules).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn r_21_mapped_form_equals_v4() {
        assert!(admits("127.0.0.1", "127.0.0.1"));
        assert!(admits("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(admits("127.0.0.1", "::1"));
        assert!(!admits("127.0.0.1", "127.0.0.2"));
        assert!(admits("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(admits("10.0.0.0/8, 192.168.1.5", "::ffff:192.168.1.5"));
        assert!(!admits("10.0.0.0/8", "::1"));
    }

    #[test]
    fn r_21_everyone_and_nobody() {
        assert!(admits("0.0.0.0/0", "8.8.8.8"));
        assert!(admits("0.0.0.0/0", "::ffff:8.8.8.8"));
        assert!(!admits("0.0.0.0/0", "2001:db8::1"));
        assert!(admits("0.0.0.0/0,::/0", "2001:db8::1"));
        assert!(!admits("", "127.0.0.1"));
        assert!(parse(" ").unwrap().is_empty());
    }

    #[test]
    fn r_21_bad_rules_are_errors() {
        for rule in
            ["10.0.0.0/33", "::/129", "1.2.3", "/0", "10.0.0.1,", ",", "fe80::1%eth0", "a", "10.0.0.1/-1"]
        {
            assert!(parse(rule).is_err(), "{rule}");
        }
        assert!(parse(&vec!["1.1.1.1"; 2000].join(",")).is_err());
    }

    #[test]
    fn r_21_addresses_of_headers() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        assert_eq!(parse_address(" 127.0.0.1:80 "), Some(loopback));
        assert_eq!(parse_address("[::ffff:127.0.0.1]:80"), Some(loopback));
        assert_eq!(parse_address("fe80::1%eth0"), "fe80::1".parse().ok());
        assert_eq!(parse_address("unknown"), None);
    }

    #[test]
    fn an_ipv6_client_is_its_64_and_an_ipv4_client_its_address() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:0:1:ffff:ffff:ffff:ffff"), network("2001:db8:0:1::1"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
