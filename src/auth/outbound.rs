//! The policy on where this server may connect to on behalf of others (docs/robustness.md U-30, U-31, U-34). It checks the resolved
//! address, because `127.1`, `0x7f000001` and a DNS name may all mean the same machine.

use std::net::{IpAddr, SocketAddr};

use super::CidrList;

/// Why an address is not connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// 0.0.0.0 or `::`.
    #[error("the address is unspecified")]
    Unspecified,
    /// 169.254.0.0/16 or fe80::/10.
    #[error("the address is link-local")]
    LinkLocal,
    /// Multicast or broadcast.
    #[error("the address is multicast")]
    Multicast,
    /// An HTTP or HTTPS port of this server.
    #[error("the address is a management port of this server")]
    OwnPort,
    /// Listed in `outbound.deny`.
    #[error("the address is denied by outbound.deny")]
    Configured,
}

/// The policy; built once the listeners are bound.
#[derive(Debug, Clone, Default)]
pub struct OutboundPolicy {
    /// `outbound.deny`.
    pub deny: CidrList,
    /// Addresses of this machine's interfaces. Loopback is ours without being listed.
    pub own_addresses: Vec<IpAddr>,
    /// HTTP and HTTPS ports as bound.
    pub own_ports: Vec<u16>,
}

impl OutboundPolicy {
    /// Checks the address that would be connected to.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, target: SocketAddr) -> Result<(), Denied> {
        let address = target.ip().to_canonical();
        if address.is_unspecified() {
            return Err(Denied::Unspecified);
        }
        match address {
            IpAddr::V4(v4) if v4.is_link_local() => return Err(Denied::LinkLocal),
            IpAddr::V4(v4) if v4.is_broadcast() => return Err(Denied::Multicast),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => return Err(Denied::LinkLocal),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
        if address.is_multicast() {
            return Err(Denied::Multicast);
        }
        if self.own_ports.contains(&target.port()) && self.is_own(address) {
            return Err(Denied::OwnPort);
        }
        if self.deny.contains(address) {
            return Err(Denied::Configured);
        }
        Ok(())
    }

    /// Whether the address is this machine.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.own_addresses.iter().any(|own| own.to_canonical() == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u_31_the_connected_address_decides() {
        let policy = OutboundPolicy {
            deny: crate::auth::cidr::parse("10.66.0.0/16").unwrap(),
            own_addresses: vec!["192.0.2.7".parse().unwrap()],
            own_ports: vec![5080, 5443],
        };
        let check = |a: &str| policy.check(a.parse().unwrap());
        assert_eq!(check("169.254.169.254:80"), Err(Denied::LinkLocal));
        assert_eq!(check("[fe80::1]:80"), Err(Denied::LinkLocal));
        assert_eq!(check("[::ffff:169.254.1.1]:80"), Err(Denied::LinkLocal));
        assert_eq!(check("0.0.0.0:1935"), Err(Denied::Unspecified));
        assert_eq!(check("[::]:1935"), Err(Denied::Unspecified));
        assert_eq!(check("224.0.0.1:1935"), Err(Denied::Multicast));
        assert_eq!(check("[ff02::1]:1935"), Err(Denied::Multicast));
        assert_eq!(check("255.255.255.255:1935"), Err(Denied::Multicast));
        assert_eq!(check("127.0.0.1:5080"), Err(Denied::OwnPort));
        assert_eq!(check("127.9.9.9:5443"), Err(Denied::OwnPort));
        assert_eq!(check("[::ffff:7f00:1]:5080"), Err(Denied::OwnPort));
        assert_eq!(check("192.0.2.7:5443"), Err(Denied::OwnPort));
        assert_eq!(check("10.66.1.1:1935"), Err(Denied::Configured));
        assert_eq!(check("127.0.0.1:1935"), Ok(()));
        assert_eq!(check("192.0.2.8:5080"), Ok(()));
    }
}
