//! Addresses of UDP in a form that C can fill in.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An address of UDP.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MillstreamAddress {
    /// The bytes in network order; an address of IPv4 has the first four.
    pub ip: [u8; 16],
    /// 4 or 16.
    pub ip_length: u8,
    /// Port in the order of the host.
    pub port: u16,
}

impl MillstreamAddress {
    /// `None` if the length is neither 4 nor 16.
    pub(crate) fn get(&self) -> Option<SocketAddr> {
        let ip = match self.ip_length {
            4 => IpAddr::from(*self.ip.first_chunk::<4>()?),
            16 => IpAddr::from(self.ip),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.port))
    }
}

/// Length of the network that a provider gives to one site, in bits (RFC 6177 §2).
const SITE_BITS: u32 = 64;

/// The address by which callers are counted: for IPv6 its /64 network, because one host can use all of its addresses.
pub(crate) fn counted(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(six) => {
            Ipv6Addr::from_bits(six.to_bits() & (u128::MAX << (u128::BITS - SITE_BITS))).into()
        }
        four => four,
    }
}

impl From<SocketAddr> for MillstreamAddress {
    fn from(address: SocketAddr) -> Self {
        let mut ip = [0; 16];
        let ip_length = match address.ip() {
            IpAddr::V4(four) => {
                ip[..4].copy_from_slice(&four.octets());
                4
            }
            IpAddr::V6(six) => {
                ip = six.octets();
                16
            }
        };
        Self { ip, ip_length, port: address.port() }
    }
}
