//! `udp://` URLs: `udp://239.0.0.1:1234` (a multicast group), `udp://192.0.2.1:1234` (an address of this machine) and
//! `udp://:1234` (every address). An `@` before the address, as VLC writes it, is ignored.

use std::net::IpAddr;

use crate::auth::url::{Url, UrlError, port_of};

/// The parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UdpUrl {
    /// The address, without brackets; unspecified if none is given.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
}

impl UdpUrl {
    /// Reads a URL.
    pub(super) fn read(url: &Url<'_>, default_port: u16) -> Result<Self, UrlError> {
        let authority = url.authority.strip_prefix('@').unwrap_or(url.authority);
        if let Some(port) = authority.strip_prefix(':') {
            return Ok(Self { host: "0.0.0.0".to_owned(), port: port_of(port)? });
        }
        let (host, port) = Url { authority, ..*url }.host_and_port(default_port)?;
        match host.parse::<IpAddr>() {
            Ok(_) => Ok(Self { host, port }),
            Err(_) => Err(UrlError::Unsupported("udp:// needs an address to receive at, not a name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_addresses_and_ports_alone() {
        let read = |text| UdpUrl::read(&Url::parse(text).unwrap(), 1234).map(|url| (url.host, url.port));
        let own = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(read("udp://239.0.0.1:5000?pkt_size=1316"), own("239.0.0.1", 5000));
        assert_eq!(read("udp://@239.0.0.1:5000"), own("239.0.0.1", 5000));
        assert_eq!(read("udp://@:5000"), own("0.0.0.0", 5000));
        assert_eq!(read("udp://:5000/"), own("0.0.0.0", 5000));
        assert_eq!(read("udp://[ff15::1]:5000"), own("ff15::1", 5000));
        assert_eq!(read("udp://127.0.0.1"), own("127.0.0.1", 1234));
        assert!(matches!(read("udp://localhost:5000"), Err(UrlError::Unsupported(_))));
        for bad in ["udp://u@239.0.0.1:1", "udp://:0", "udp://:", "udp://", "udp://[::1:5"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
