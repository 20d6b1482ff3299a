//! The address of a client behind proxies (docs/robustness.md R-20).
//!
//! `X-Forwarded-For` counts only when the direct peer is a configured proxy (`server.trusted_proxies`); then the
//! right-most address that is not such a proxy is the client. The reference trusts every private peer; we do not.

use std::net::IpAddr;

use super::cidr::{CidrList, parse_address};

/// Entries looked at; a longer chain is refused.
const HOPS_MAX: usize = 32;

/// The client's address; `None` when a trusted proxy sent a chain that cannot be read (the request is refused).
///
/// `forwarded` are the values of all `X-Forwarded-For` headers, in order.
#[must_use]
pub fn client_address<'a>(
    peer: IpAddr,
    forwarded: impl DoubleEndedIterator<Item = &'a str>,
    trusted: &CidrList,
) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    if !trusted.contains(peer) {
        return Some(peer);
    }
    let mut client = peer;
    for (hop, entry) in forwarded.rev().flat_map(|value| value.rsplit(',')).enumerate() {
        if hop >= HOPS_MAX {
            return None;
        }
        client = parse_address(entry)?;
        if !trusted.contains(client) {
            return Some(client);
        }
    }
    Some(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::cidr::parse;

    fn client(peer: &str, forwarded: &[&str], trusted: &str) -> Option<String> {
        client_address(peer.parse().unwrap(), forwarded.iter().copied(), &parse(trusted).unwrap())
            .map(|a| a.to_string())
    }

    #[test]
    fn r_20_headers_of_untrusted_peers_are_ignored() {
        assert_eq!(client("9.9.9.9", &["127.0.0.1"], "").unwrap(), "9.9.9.9");
        assert_eq!(client("127.0.0.2", &["127.0.0.1"], "127.0.0.1").unwrap(), "127.0.0.2");
    }

    #[test]
    fn r_20_the_right_most_untrusted_hop_counts() {
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 8.8.8.8, 10.0.0.2"], "10.0.0.0/8").unwrap(), "8.8.8.8");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "8.8.8.8:99"], "10.0.0.0/8").unwrap(), "8.8.8.8");
        assert_eq!(client("10.0.0.1", &[], "10.0.0.0/8").unwrap(), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["junk"], "10.0.0.0/8"), None);
    }
}
