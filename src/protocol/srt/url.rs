//! `srt://` URLs.

use std::time::Duration;

use ::srt::{PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN, PacketFilter, STREAM_ID_BYTES_MAX};

use crate::auth::access::Secret;
use crate::auth::url::{Url, UrlError, port_of};

/// Maximum latency in a URL that is taken for milliseconds. A larger number is in microseconds, as ffmpeg writes it.
const LATENCY_MS_MAX: u64 = 8000;
/// Range of a passphrase's length in bytes.
pub(crate) const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> =
    PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX;

/// The parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SrtUrl {
    /// Host name or address, without brackets. The unspecified address for a listener without a host.
    pub(crate) host: String,
    /// Explicit port, or the default.
    pub(crate) port: u16,
    /// The options of the query.
    pub(crate) address: SrtAddress,
}

impl SrtUrl {
    /// Reads a URL.
    pub(crate) fn read(url: &Url<'_>, default_port: u16) -> Result<Self, UrlError> {
        let address = parse_query(url.query())?;
        let (host, port) = match url.authority.strip_prefix(':').filter(|_| address.listens) {
            Some(port) => ("0.0.0.0".to_owned(), port_of(port)?),
            None => url.host_and_port(default_port)?,
        };
        Ok(Self { host, port, address })
    }
}

/// The address of an outgoing SRT connection, or of one that waits for its peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SrtAddress {
    /// The stream id to send.
    pub(crate) stream_id: String,
    /// The passphrase.
    pub(crate) passphrase: Option<Secret>,
    /// Length of the key in bytes if this side makes it; `None` for the server's setting.
    pub(crate) key_bytes: Option<u8>,
    /// The requested latency; `None` for the server's setting.
    pub(crate) latency: Option<Duration>,
    /// The packet filter; `None` for the server's setting.
    pub(crate) packet_filter: Option<PacketFilter>,
    /// True to wait for a caller instead of calling.
    pub(crate) listens: bool,
}

/// Parses the query of an `srt://` URL: `streamid`, `passphrase`, `pbkeylen`, `latency`, `packetfilter`, `mode`.
/// Options of other programs are ignored.
fn parse_query(query: &str) -> Result<SrtAddress, UrlError> {
    let mut address = SrtAddress::default();
    for member in query.split('&').filter(|member| !member.is_empty()) {
        let (key, value) = member.split_once('=').unwrap_or((member, ""));
        let value = percent_encoding::percent_decode_str(value);
        let value = value.decode_utf8().map_err(|_| UrlError::Option("its escapes"))?;
        match key {
            "streamid" | "srt_streamid" if value.len() <= STREAM_ID_BYTES_MAX => {
                address.stream_id = value.into_owned();
            }
            "streamid" | "srt_streamid" => return Err(UrlError::Option("streamid")),
            "passphrase" if value.is_empty() => {}
            "passphrase" if PASSPHRASE_BYTES.contains(&value.len()) => {
                address.passphrase = Some(Secret::new(&value));
            }
            "passphrase" => return Err(UrlError::Option("passphrase")),
            "pbkeylen" => {
                address.key_bytes = match &*value {
                    "0" => None,
                    "16" => Some(16),
                    "24" => Some(24),
                    "32" => Some(32),
                    _ => return Err(UrlError::Option("pbkeylen")),
                }
            }
            "latency" | "rcvlatency" => {
                let number: u64 = value.parse().map_err(|_| UrlError::Option("latency"))?;
                let ms = if number > LATENCY_MS_MAX { number / 1000 } else { number };
                if ms > LATENCY_MS_MAX {
                    return Err(UrlError::Option("latency"));
                }
                address.latency = Some(Duration::from_millis(ms));
            }
            "packetfilter" if value.is_empty() => {}
            "packetfilter" => {
                let filter = value.parse().map_err(|_| UrlError::Option("packetfilter"))?;
                address.packet_filter = Some(filter);
            }
            "mode" => match &*value {
                "caller" | "client" => address.listens = false,
                "listener" | "server" => address.listens = true,
                _ => return Err(UrlError::Option("mode")),
            },
            _ => {}
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_has_a_default_and_a_listener_needs_no_host() {
        let read = |text| SrtUrl::read(&Url::parse(text).unwrap(), 4200);
        let calls = read("srt://h?streamid=a/b").unwrap();
        assert_eq!((calls.port, calls.address.stream_id.as_str()), (4200, "a/b"));
        let waits = read("srt://:9000?mode=listener").unwrap();
        assert_eq!((waits.host.as_str(), waits.port, waits.address.listens), ("0.0.0.0", 9000, true));
        for text in ["srt://h?streamid=a/b&passphrase=short", "srt://:9000?streamid=a/b", "srt://h:1?mode=x"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_in_the_words_of_several_programs() {
        let all = "streamid=%23!::r=live/s1,m=publish&passphrase=0123456789&pbkeylen=32&latency=200000&x=y";
        let address = parse_query(all).unwrap();
        assert_eq!(address.stream_id, "#!::r=live/s1,m=publish");
        assert_eq!(address.passphrase.as_ref().map(Secret::reveal), Some("0123456789"));
        assert_eq!((address.key_bytes, address.latency), (Some(32), Some(Duration::from_millis(200))));
        assert!(!address.listens && parse_query("mode=listener").unwrap().listens);
        assert_eq!(parse_query("latency=120").unwrap().latency, Some(Duration::from_millis(120)));
        let filter = |query| parse_query(query).unwrap().packet_filter;
        assert_eq!(filter("packetfilter=fec,cols:10,rows:5"), "fec,cols:10,rows:5".parse().ok());
        assert_eq!(filter("packetfilter=fec%2Ccols%3A10"), "fec,cols:10".parse().ok());
        assert_eq!((filter("packetfilter="), filter("packetfilter=off")), (None, Some(PacketFilter::Off)));
        for bad in [
            "packetfilter=fec,cols:0",
            "packetfilter=adaptive",
            "passphrase=short",
            "pbkeylen=17",
            "latency=x",
            "latency=9000000",
            "mode=rendezvous",
        ] {
            assert!(parse_query(bad).is_err(), "{bad}");
        }
    }
}
