//! The header of the PROXY protocol, versions 1 and 2 (haproxy.org, "The PROXY protocol", 2020/03/05). It names the
//! client for which a proxy connects. It precedes all other bytes of the connection, including TLS.
//!
//! ```text
//! version 1: "PROXY" SP ("TCP4" | "TCP6") SP source SP destination SP port SP port CR LF
//!            "PROXY" SP "UNKNOWN" ... CR LF
//! version 2: signature (12) | version and command (1) | family (1) | length (2) | addresses | fields (TLV)
//! ```
//!
//! Fields after the addresses are skipped, because this server needs none of them.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::Reader;

/// Maximum length of a header. A version 1 header has at most 107 bytes. In version 2, fields may follow the addresses.
pub(super) const HEADER_BYTES_MAX: usize = 4096;
/// Maximum length of a version 1 header, line end included (§2.1).
const LINE_BYTES_MAX: usize = 107;
const LINE_BEGIN: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of signature, version and command, family, and length (§2.2).
const FIXED_BYTES: usize = 16;

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Length of the header in bytes.
    pub(super) bytes: usize,
    /// The client of the connection; `None` for the proxy itself (a health check) or an unknown client.
    pub(super) source: Option<SocketAddr>,
}

/// The reason why the first bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// Parses the header at the beginning of `bytes`; `None` if it is incomplete.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    if begins(bytes, SIGNATURE) {
        read_binary(bytes)
    } else if begins(bytes, LINE_BEGIN) {
        read_line(bytes)
    } else {
        Err(Malformed("no PROXY header"))
    }
}

/// True if the bytes received so far match `beginning`.
fn begins(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes.iter().zip(beginning).all(|(a, b)| a == b)
}

fn read_line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let head = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return if head.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed("PROXY line too long")) };
    };
    let line = head.get(..end).and_then(|line| line.strip_suffix(b"\r")).unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let length = end.saturating_add(1);
    let mut words = line.split(' ').skip(1);
    let malformed = Malformed("malformed PROXY line");
    let source = match words.next() {
        // §2.1: the rest of the line must be ignored.
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => {
            let mut address = || words.next().and_then(|word| address_of(family, word)).ok_or(malformed);
            let (source, _) = (address()?, address()?);
            let mut port = || words.next().and_then(port_of).ok_or(malformed);
            let (source_port, _) = (port()?, port()?);
            Some(SocketAddr::new(source, source_port))
        }
        Some(_) | None => return Err(malformed),
    };
    if source.is_some() && words.next().is_some() {
        return Err(malformed);
    }
    Ok(Some(Header { bytes: length, source }))
}

fn address_of(family: &str, word: &str) -> Option<IpAddr> {
    match family {
        "TCP4" => word.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        _ => word.parse::<Ipv6Addr>().ok().map(IpAddr::from),
    }
}

/// Parses a decimal number without sign and leading zeros.
fn port_of(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

fn read_binary(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some(fixed) = bytes.get(SIGNATURE.len()..FIXED_BYTES) else { return Ok(None) };
    let mut fixed = Reader::new(fixed);
    let (Ok(command), Ok(family), Ok(length)) = (fixed.u8(), fixed.u8(), fixed.u16()) else {
        return Ok(None);
    };
    let total = FIXED_BYTES.saturating_add(usize::from(length));
    if total > HEADER_BYTES_MAX {
        return Err(Malformed("PROXY header too long"));
    }
    // §2.2: if the command is PROXY, addresses of this family follow.
    let family = match (command, family) {
        (0x20, _) => Family::None,
        (0x21, 0x00 | 0x31) => Family::None,
        (0x21, 0x11) => Family::V4,
        (0x21, 0x21) => Family::V6,
        (0x21, _) => return Err(Malformed("unknown PROXY family")),
        (_, _) => return Err(Malformed("unknown PROXY version or command")),
    };
    let Some(rest) = bytes.get(FIXED_BYTES..total) else { return Ok(None) };
    let source = match family {
        Family::None => None,
        Family::V4 => Some(source_of::<4, 8>(rest).ok_or(Malformed("short PROXY addresses"))?),
        Family::V6 => Some(source_of::<16, 32>(rest).ok_or(Malformed("short PROXY addresses"))?),
    };
    Ok(Some(Header { bytes: total, source }))
}

/// The address family of a version 2 header.
enum Family {
    None,
    V4,
    V6,
}

/// Parses the source in a version 2 header: two addresses of `N` bytes each, together `BOTH` bytes, and then two ports.
fn source_of<const N: usize, const BOTH: usize>(bytes: &[u8]) -> Option<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let address = *bytes.first_chunk::<N>()?;
    let ports = bytes.get(BOTH..)?.first_chunk::<4>()?;
    let [high, low, ..] = *ports;
    Some(SocketAddr::new(IpAddr::from(address), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn v4() -> Vec<u8> {
        [&[192, 0, 2, 7][..], &[10, 0, 0, 1], &[0x1f, 0x90], &[1, 187]].concat()
    }

    fn good() -> Vec<(Vec<u8>, Option<&'static str>)> {
        let v6 = [&Ipv6Addr::LOCALHOST.octets()[..], &[0; 16], &[0, 80, 1, 187]].concat();
        vec![
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 8080 443\r\n".to_vec(), Some("192.0.2.7:8080")),
            (b"PROXY TCP6 2001:db8::7 ::1 0 65535\r\n".to_vec(), Some("[2001:db8::7]:0")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff:f...f:ffff whatever 1 2\r\n".to_vec(), None),
            (binary(0x21, 0x11, &v4()), Some("192.0.2.7:8080")),
            (binary(0x21, 0x21, &v6), Some("[::1]:80")),
            (binary(0x21, 0x11, &[v4(), vec![0x20, 0, 3, 1, 2, 3]].concat()), Some("192.0.2.7:8080")),
            (binary(0x20, 0x00, b""), None),
            (binary(0x20, 0x11, &v4()), None),
            (binary(0x21, 0x00, b"xyz"), None),
            (binary(0x21, 0x31, &[0; 216]), None),
        ]
    }

    #[test]
    fn r_20_a_header_is_read_at_every_cut_and_takes_nothing_behind_it() {
        for (header, source) in good() {
            for cut in 0..header.len() {
                assert_eq!(read(&header[..cut]), Ok(None), "{cut} of {header:?}");
            }
            let whole = Header { bytes: header.len(), source: source.map(|text| text.parse().unwrap()) };
            for behind in [&b""[..], b"\r\n", b"GET / HTTP/1.1\r\n", &[0x16, 3, 1]] {
                assert_eq!(read(&[&header, behind].concat()), Ok(Some(whole)), "{header:?}");
            }
        }
    }

    #[test]
    fn r_20_what_is_no_header_is_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for bad in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x03\x01",
            b"proxy TCP4",
            b"PROXY\r\n",
            b"PROXY \r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n",
            b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3.\xff 1.2.3.4 1 2\r\n",
            long.as_bytes(),
            &binary(0x21, 0x11, &v4()[..11]),
            &binary(0x21, 0x12, &v4()),
            &binary(0x22, 0x11, &v4()),
            &binary(0x11, 0x11, &v4()),
            &binary(0x21, 0x11, &[0; HEADER_BYTES_MAX]),
        ] {
            assert!(read(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
    }

    proptest! {
        /// Arbitrary bytes, and valid headers with any damage, do no harm. The result does not
        /// depend on the bytes after the header.
        #[test]
        fn r_20_bytes_do_no_harm(which in 0usize..11, damage in prop::collection::vec((0usize..60, any::<u8>()), 0..4),
                                 more in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = good().swap_remove(which).0;
            for (at, byte) in damage {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let first = read(&bytes);
            if let Ok(Some(header)) = first {
                prop_assert!(header.bytes <= bytes.len());
            }
            let all = [bytes, more].concat();
            if first != Ok(None) {
                prop_assert_eq!(read(&all), first);
            }
        }
    }
}
