//! The policy for addresses to which this server may connect on behalf of others (docs/robustness.md U-30, U-31, U-34).
//! The resolved address is checked, because `127.1`, `0x7f000001` and a DNS name may all mean the same machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::CidrList;

/// Reasons for refusing to connect to an address.
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
    /// An address of this machine or a private network, while `outbound.preset` is `public`.
    #[error("the address is not public, and outbound.preset asks for that")]
    NotPublic,
    /// Listed in `outbound.deny`.
    #[error("the address is denied by outbound.deny")]
    Configured,
}

/// The policy. It contains the ports of the listeners, so it is built after they are bound.
#[derive(Debug, Clone, Default)]
pub struct OutboundPolicy {
    /// `outbound.deny`.
    pub deny: CidrList,
    /// True if `outbound.preset` is `public`: only addresses of the public internet.
    pub public_only: bool,
    /// Addresses of this machine's interfaces. Loopback addresses count without being listed.
    pub own_addresses: Vec<IpAddr>,
    /// HTTP and HTTPS ports in use.
    pub own_ports: Vec<u16>,
}

impl OutboundPolicy {
    /// Checks an address before connecting to it.
    ///
    /// # Errors
    /// The reason for the refusal.
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
        if self.public_only && (self.is_own(address) || !is_public(address)) {
            return Err(Denied::NotPublic);
        }
        if self.deny.contains(address) {
            return Err(Denied::Configured);
        }
        Ok(())
    }

    /// True if the address belongs to this machine.
    #[must_use]
    pub fn is_own(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.own_addresses.iter().any(|own| own.to_canonical() == address)
    }
}

/// True if an address is on the public internet. False for addresses of this machine and of private or shared networks,
/// and for IPv6 addresses that a translator maps to such an address (RFC 6890, RFC 6052, RFC 8215, RFC 3056).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, high, low] = v6.segments();
            let v4 = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
            match (a, b) {
                // NAT64: with the well-known prefix, the IPv4 address inside decides. Prefixes chosen by networks are
                // never public.
                (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => is_public_v4(v4(high, low)),
                (0x64, 0xff9b) => false,
                // 6to4: the IPv4 address inside decides.
                (0x2002, _) => is_public_v4(v4(b, c)),
                // Loopback and the mapped and compatible forms of IPv4.
                (0, _) => false,
                _ => !v6.is_unique_local() && !v6.is_unicast_link_local() && !is_documentation(v6),
            }
        }
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let benchmark = a == 198 && (18..20).contains(&b);
    let assigned = (a, b, c) == (192, 0, 0);
    !(v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_documentation()
        || a == 0
        || a >= 224
        || shared
        || benchmark
        || assigned)
}

fn is_documentation(v6: Ipv6Addr) -> bool {
    matches!(v6.segments(), [0x2001, 0xdb8, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u_31_the_preset_admits_the_public_internet_only() {
        let own: IpAddr = "8.8.4.4".parse().unwrap();
        let policy =
            OutboundPolicy { public_only: true, own_addresses: vec![own], ..OutboundPolicy::default() };
        let check = |address: &str| policy.check(SocketAddr::new(address.parse().unwrap(), 1935));
        for public in
            ["8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1", "64:ff9b::808:808", "2002:808:808::1"]
        {
            assert_eq!(check(public), Ok(()), "{public}");
        }
        for local in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "::1",
            "::ffff:10.0.0.1",
            "fd00::1",
            "64:ff9b::a00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "2002:a00:1::1",
            "fd00:ec2::254",
            "8.8.4.4",
        ] {
            assert_eq!(check(local), Err(Denied::NotPublic), "{local}");
        }
        assert_eq!(check("169.254.169.254"), Err(Denied::LinkLocal));
    }

    #[test]
    fn u_31_the_connected_address_decides() {
        let policy = OutboundPolicy {
            deny: crate::auth::cidr::parse("10.66.0.0/16").unwrap(),
            public_only: false,
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
