//! Where this server may connect to on somebody's behalf (docs/robustness.md U-30, U-31, U-34).
//!
//! The text of a URL is only read; what counts is the resolved address, because `127.1`, `0x7f000001` and a DNS
//! name may all mean the same machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::srt::SrtAddress;
use super::{CidrList, srt};

/// Bytes of an endpoint URL.
pub const URL_BYTES_MAX: usize = 4096;
/// Bytes of a host name (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 253;

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

/// Protocols that an endpoint or a source may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `rtmp://`
    Rtmp,
    /// `rtmps://`
    Rtmps,
    /// `srt://`
    Srt,
    /// `http://`, sources only
    Http,
    /// `https://`, sources only
    Https,
}

impl Scheme {
    /// As written in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtmp => "rtmp",
            Self::Rtmps => "rtmps",
            Self::Srt => "srt",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port when the URL has none.
    const fn default_port(self) -> u16 {
        match self {
            Self::Rtmp => 1935,
            Self::Rtmps | Self::Https => 443,
            // The reference's own, which its documents leave out.
            Self::Srt => 4200,
            Self::Http => 80,
        }
    }
}

/// Why a URL is not accepted as an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Over 4096 bytes.
    #[error("the URL is too long")]
    TooLong,
    /// A blank, a control character or a non-ASCII character.
    #[error("the URL contains a character that does not belong there")]
    Character,
    /// Not one of the schemes that are spoken, in lower case.
    #[error("the scheme is not supported")]
    Scheme,
    /// User name and password before the host.
    #[error("credentials in the URL are not supported")]
    Credentials,
    /// No host, or not one.
    #[error("the host is not valid")]
    Host,
    /// Port 0, over 65535, or missing where there is no default.
    #[error("the port is not valid")]
    Port,
    /// No stream name.
    #[error("the stream name is missing")]
    Name,
    /// An option of the query, with a value that it cannot have.
    #[error("{0} in the URL is not valid")]
    Option(&'static str),
}

/// The URL of an endpoint or a source, taken apart. The path and query stay as they were given.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Which protocol.
    pub scheme: Scheme,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port, given or the protocol's default.
    pub port: u16,
    /// RTMP: the application; empty when the path has one segment only. Empty for others.
    pub app: String,
    /// RTMP: the stream's name with its query. SRT: the query. HTTP: path and query.
    pub name: String,
    /// SRT: the query, taken apart.
    pub srt: Option<SrtAddress>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}/{}/***", self.scheme.name(), self.host, self.port, self.app)
    }
}

impl Endpoint {
    /// Takes the URL of an endpoint apart: where streams are pushed to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        Self::parse_as(text, &[Scheme::Rtmp, Scheme::Rtmps, Scheme::Srt])
    }

    /// Takes the URL of a source apart: what streams are pulled from.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_source(text: &str) -> Result<Self, UrlError> {
        Self::parse_as(text, &[Scheme::Rtmp, Scheme::Rtmps, Scheme::Srt, Scheme::Http, Scheme::Https])
    }

    fn parse_as(text: &str, schemes: &[Scheme]) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let scheme = schemes.iter().copied().find(|known| known.name() == scheme).ok_or(UrlError::Scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).ok_or(UrlError::Host)?;
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        let srt = match scheme {
            Scheme::Srt => Some(srt::parse_query(tail.split_once('?').map_or("", |(_, query)| query))?),
            Scheme::Rtmp | Scheme::Rtmps | Scheme::Http | Scheme::Https => None,
        };
        let listens = srt.as_ref().is_some_and(|address| address.listens);
        let (host, port) = match authority.strip_prefix(':').filter(|_| listens) {
            Some(port) => ("0.0.0.0".to_owned(), Some(port)),
            None => split_authority(authority)?,
        };
        let port = match port {
            Some(text) => text.parse().ok().filter(|&p: &u16| p > 0).ok_or(UrlError::Port)?,
            None => scheme.default_port(),
        };
        let (app, name) = match scheme {
            Scheme::Rtmp | Scheme::Rtmps => split_rtmp_path(tail)?,
            Scheme::Srt => (String::new(), tail.trim_start_matches(['/', '?']).to_owned()),
            Scheme::Http | Scheme::Https => (String::new(), http_path(tail)),
        };
        Ok(Self { scheme, host, port, app, name, srt })
    }

    /// `tcUrl` of the RTMP connect command: no stream name, the port only when it is not the default.
    #[must_use]
    pub fn tc_url(&self) -> String {
        format!("{}://{}/{}", self.scheme.name(), self.authority(), self.app)
    }

    /// Host and port as a URL has them, the port only when it is not the default.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.scheme.default_port() {
            port if port == self.port => host,
            _ => format!("{host}:{}", self.port),
        }
    }

    /// The name that the server must prove to have, when it is spoken to over TLS.
    #[must_use]
    pub fn tls_name(&self) -> Option<Box<str>> {
        matches!(self.scheme, Scheme::Rtmps | Scheme::Https).then(|| self.host.as_str().into())
    }

    /// The stream that the publish name means to a server of our kind: its first segment without the query.
    #[must_use]
    pub fn stream_id(&self) -> &str {
        self.name.split(['/', '?']).next().unwrap_or("")
    }
}

/// The address of a hook receiver, taken apart. Kept and sent as it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct HookUrl {
    text: String,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port, given or the scheme's.
    pub port: u16,
}

/// Where it goes and no more: hooks carry keys in their paths.
impl fmt::Debug for HookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.text))
    }
}

impl HookUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(UrlError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, _) = rest.split_at_checked(end).ok_or(UrlError::Host)?;
        // User and password are sent as Basic authorisation (RFC 7617).
        let authority = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        let (host, port) = split_authority(authority)?;
        let port = match port {
            Some(text) => text.parse().ok().filter(|&p: &u16| p > 0).ok_or(UrlError::Port)?,
            None => default_port,
        };
        Ok(Self { text: text.to_owned(), host, port })
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Host and port; the host has only characters that a resolver should ever see.
pub(crate) fn split_authority(authority: &str) -> Result<(String, Option<&str>), UrlError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host)?;
        let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(UrlError::Port)?) };
        return Ok((host.to_owned(), port));
    } else if let Some((host, port)) = authority.split_once(':') {
        (host, Some(port))
    } else {
        (authority, None)
    };
    let valid = !host.is_empty()
        && host.len() <= HOST_BYTES_MAX
        && !host.starts_with(['-', '.'])
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if valid { Ok((host.to_owned(), port)) } else { Err(UrlError::Host) }
}

/// Application and publish name as librtmp and ffmpeg tell them apart: two segments are the application when there
/// are three or more, else one.
fn split_rtmp_path(tail: &str) -> Result<(String, String), UrlError> {
    let tail = tail.strip_prefix('/').ok_or(UrlError::Name)?;
    let (path, query) = match tail.find('?') {
        Some(at) => tail.split_at_checked(at).ok_or(UrlError::Name)?,
        None => (tail, ""),
    };
    let segments: Vec<&str> = path.split('/').collect();
    let app_segments = if segments.len() >= 3 { 2 } else { segments.len().saturating_sub(1) };
    let (app, name) = segments.split_at_checked(app_segments).ok_or(UrlError::Name)?;
    let name = name.join("/");
    if name.is_empty() {
        return Err(UrlError::Name);
    }
    Ok((app.join("/"), format!("{name}{query}")))
}

/// What is asked for over HTTP: a fragment stays with the client (RFC 9110 §4.2.5).
fn http_path(tail: &str) -> String {
    let path = tail.split('#').next().unwrap_or("");
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// A URL fit for a log: no credentials, no query, and `***` for the last segment, which often is the stream key.
#[must_use]
pub fn redact(url: &str) -> String {
    let clean =
        |s: &str| s.chars().take(200).map(|c| if c.is_control() { '_' } else { c }).collect::<String>();
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or("");
    let path = tail.split(['?', '#']).next().unwrap_or("");
    let head = path.rsplit_once('/').map_or("", |(head, _)| head);
    let secret = if tail.is_empty() { "" } else { "/***" };
    format!("{}://{}{}{secret}", clean(scheme), clean(host), clean(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u_30_only_media_schemes_in_lower_case() {
        for url in [
            "file:///etc/passwd",
            "concat:a",
            "pipe:1",
            "gopher://h/a",
            "data:text",
            "exec:ls",
            "RTMP://h/a/b",
            " rtmp://h/a/b",
            "rtmp:/h/a/b",
            "http://h/a",
            "10.0.0.1",
            "rtmp://",
            "rtmp://h",
            "rtmp://h/",
            "rtmp://h/a/",
            "rtmp://h:0/a/b",
            "rtmp://h:65536/a/b",
            "rtmp://h:/a/b",
            "rtmp://a@b/c/d",
            "rtmp://h%2f/a/b",
            "rtmp://h/a/b\r\nX: y",
            "rtmp://[::1/a/b",
            "srt://h?streamid=a/b&passphrase=short",
            "srt://:9000?streamid=a/b",
            "",
        ] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
        assert!(Endpoint::parse(&format!("rtmp://h/a/{}", "x".repeat(5000))).is_err());
    }

    #[test]
    fn u_30_hooks_go_to_http_and_https() {
        for url in [
            "file:///etc/passwd",
            "gopher://h/a",
            "HTTP://h/a",
            " http://h/a",
            "http:/h",
            "http://",
            "http:///a",
            "http://u:p@/a",
            "http://h:0/a",
            "http://h:65536/",
            "http://h%2f/a",
            "http://h/a\r\nX: y",
            "http://h/a b",
            "//h/a",
            "",
        ] {
            assert!(HookUrl::parse(url).is_err(), "{url}");
        }
        let parts = |url: &str| HookUrl::parse(url).map(|u| (u.host.clone(), u.port)).unwrap();
        assert_eq!(parts("http://h/a?k=v"), ("h".into(), 80));
        assert_eq!(parts("https://h"), ("h".into(), 443));
        assert_eq!(parts("https://[::1]:8/x"), ("::1".into(), 8));
        assert_eq!(parts("http://user:word@h/x@y"), ("h".into(), 80));
        assert_eq!(parts("http://0x7f000001?x"), ("0x7f000001".into(), 80));
        assert_eq!(
            format!("{:?}", HookUrl::parse("http://h:1/hook/secret?t=1").unwrap()),
            "http://h:1/hook/***"
        );
    }

    #[test]
    fn application_and_name_as_encoders_read_them() {
        let parts = |url: &str| {
            let e = Endpoint::parse(url).unwrap();
            (e.host.clone(), e.port, e.app.clone(), e.name.clone(), e.tc_url())
        };
        let own = |h: &str, p, a: &str, n: &str, t: &str| (h.into(), p, a.into(), n.into(), t.into());
        assert_eq!(parts("rtmp://a.b/live2/key-1"), own("a.b", 1935, "live2", "key-1", "rtmp://a.b/live2"));
        assert_eq!(
            parts("rtmps://h:443/rtmp/FB-1?s=1&a=/x"),
            own("h", 443, "rtmp", "FB-1?s=1&a=/x", "rtmps://h/rtmp")
        );
        assert_eq!(parts("rtmp://h:19/a/i/k"), own("h", 19, "a/i", "k", "rtmp://h:19/a/i"));
        assert_eq!(parts("rtmp://h/key"), own("h", 1935, "", "key", "rtmp://h/"));
        assert_eq!(parts("rtmp://[::1]:5/a/k"), own("::1", 5, "a", "k", "rtmp://[::1]:5/a"));
        assert_eq!(Endpoint::parse("rtmp://h/a/k?x=1").unwrap().stream_id(), "k");
        let srt = Endpoint::parse("srt://h?streamid=a/b").unwrap();
        assert_eq!((srt.port, srt.srt.unwrap().stream_id), (4200, "a/b".to_owned()));
        let waits = Endpoint::parse_source("srt://:9000?mode=listener").unwrap();
        assert_eq!((waits.host.as_str(), waits.port, waits.srt.unwrap().listens), ("0.0.0.0", 9000, true));
    }

    #[test]
    fn sources_are_named_by_other_schemes_than_endpoints() {
        let parts = |url: &str| {
            let e = Endpoint::parse_source(url).unwrap();
            (e.authority(), e.port, e.name.clone(), e.tls_name().is_some())
        };
        let own = |a: &str, p, n: &str, t| (a.to_owned(), p, n.to_owned(), t);
        assert_eq!(parts("http://h/live/a.flv?t=1#x"), own("h", 80, "/live/a.flv?t=1", false));
        assert_eq!(parts("https://[::1]:5443/a.flv"), own("[::1]:5443", 5443, "/a.flv", true));
        assert_eq!(parts("http://h?a=b"), own("h", 80, "/?a=b", false));
        assert_eq!(parts("rtmps://h/a/b"), own("h", 443, "b", true));
        for url in
            ["srt://h:1?mode=x", "HTTP://h/a", "http://u:p@h/a.flv", "http:///a", "http://h/a b", "file:///a"]
        {
            assert!(Endpoint::parse_source(url).is_err(), "{url}");
        }
    }

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

    #[test]
    fn redacted_urls_keep_neither_key_nor_query() {
        assert_eq!(redact("rtmp://u:p@h:1/live/secret?t=1"), "rtmp://h:1/live/***");
        assert_eq!(redact("rtmp://h/secret"), "rtmp://h/***");
        assert_eq!(redact("srt://h:1?streamid=x"), "srt://h:1/***");
        assert_eq!(redact("secret"), "***");
        assert_eq!(format!("{:?}", Endpoint::parse("rtmp://h/a/secret").unwrap()), "rtmp://h:1935/a/***");
    }
}
