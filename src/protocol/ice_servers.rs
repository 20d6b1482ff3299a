//! ICE servers (STUN, TURN) for clients: this process may run its own, and the operator may configure others.

use std::net::SocketAddr;

use crate::mail::SessionSettings;
use crate::types::Now;

/// An ICE server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct IceServer {
    /// URI of the server (RFC 7064, RFC 7065).
    pub(super) uri: String,
    /// User name and password; `None` if the server requires none.
    pub(super) credentials: Option<(String, String)>,
}

/// Prints no password.
impl std::fmt::Debug for IceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceServer").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// A request for ICE servers on behalf of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct IceAsk<'a> {
    /// The time.
    pub(super) now: Now,
    /// The settings of the server.
    pub(super) server: &'a SessionSettings,
    /// Host name or address by which the client reached this server, without a port; empty if unknown.
    pub(super) host: &'a str,
    /// A number unique to the client.
    pub(super) user: u64,
}

/// An address to which peers send media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MediaAddress {
    /// The address as given in candidates.
    pub(super) told: SocketAddr,
    /// The address at which this machine reaches it.
    pub(super) own: SocketAddr,
}

/// Returns the host of a `Host` field, without the port.
pub(super) fn host_of(field: &str) -> &str {
    let end = match field.find(']') {
        Some(bracket) => bracket.saturating_add(1),
        None => field.find(':').unwrap_or(field.len()),
    };
    field.get(..end).unwrap_or_default()
}

/// True if a host may be part of a URI unescaped.
pub(super) fn is_host(host: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    !host.is_empty() && host.len() <= 255 && host.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_stands_before_the_port() {
        for (field, host) in [
            ("live.example:5080", "live.example"),
            ("live.example", "live.example"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:db8::1]:5443", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("", ""),
        ] {
            assert_eq!(host_of(field), host);
            assert_eq!(is_host(host), !host.is_empty());
        }
        for bad in ["a b", "a>", "a\"", "a,b", "a?b", "a/b"] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
