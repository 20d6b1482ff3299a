//! The fields in which proxies describe a request that they pass on: `X-Forwarded-For`, `-Proto`, `-Host`, `-Port` and
//! `-Prefix`, and `Forwarded` (RFC 7239); docs/robustness.md R-20.
//!
//! The fields count only if the direct peer is a configured proxy (`server.trusted_proxies`); then the right-most
//! address that is not a configured proxy is the client. Ant Media Server trusts every
//! private peer; this server does not.
//! Proxies that write one kind of field pass on the client's fields of the other kind, so both kinds must name the same
//! client.

use std::net::IpAddr;

use super::cidr::{CidrList, parse_address};

/// Maximum number of entries examined; a longer chain is refused.
const HOPS_MAX: usize = 32;
/// Longest host and longest prefix, in bytes.
const HOST_BYTES_MAX: usize = 260;
const PREFIX_BYTES_MAX: usize = 256;

/// Properties of a request as its client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Address of the client.
    pub client: IpAddr,
    /// True if the client used TLS; `None` unless a trusted proxy states this.
    pub secure: Option<bool>,
    /// Host that the client requested, with the port unless it is the scheme's default.
    pub host: Option<String>,
    /// Folder that a trusted proxy removed from the path: empty, or a slash and names, without a trailing slash.
    pub prefix: String,
}

impl Passed {
    /// Describes a request that did not pass a proxy.
    #[must_use]
    pub const fn direct(peer: IpAddr) -> Self {
        Self { client: peer.to_canonical(), secure: None, host: None, prefix: String::new() }
    }
}

/// Reads the fields of proxies. `None` if a trusted proxy's fields are unreadable: the request must then be refused.
///
/// `values` returns all values of a header field, in order.
#[must_use]
pub fn read<'a>(
    peer: IpAddr,
    values: impl Fn(&'static str) -> Vec<&'a str>,
    trusted: &CidrList,
) -> Option<Passed> {
    let mut passed = Passed::direct(peer);
    if !trusted.contains(passed.client) {
        return Some(passed);
    }
    let forwarded_for = values("x-forwarded-for");
    let (by_list, list_hop) = chain(passed.client, entries(&forwarded_for).map(parse_address), trusted)?;
    let elements = elements(&values("forwarded"))?;
    let named = elements.iter().map_while(|element| element.client.as_deref());
    let (by_elements, element_hop) = chain(passed.client, named.map(parse_address), trusted)?;
    if list_hop.is_some() && element_hop.is_some() && by_list != by_elements {
        return None;
    }
    passed.client = if list_hop.is_some() { by_list } else { by_elements };
    let hop = list_hop.or(element_hop).unwrap_or(0);
    let element = elements.get(element_hop.unwrap_or(0));
    let told = |name| at(&values(name), hop);
    let scheme =
        told("x-forwarded-proto").map(str::to_owned).or_else(|| element.and_then(|e| e.scheme.clone()));
    passed.secure = scheme.as_deref().and_then(is_secure);
    let host = told("x-forwarded-host").map(str::to_owned).or_else(|| element.and_then(|e| e.host.clone()));
    let host = host.or_else(|| values("host").first().map(|&host| host.trim().to_owned()));
    let host = with_port(host, told("x-forwarded-port"), passed.secure);
    if host.as_deref().is_some_and(|host| !is_host(host)) {
        return None;
    }
    passed.host = host;
    passed.prefix = told("x-forwarded-prefix").map_or_else(|| Some(String::new()), prefix)?;
    Some(passed)
}

/// Returns the right-most address that is not a trusted proxy, and its position counted from the right. If all are
/// trusted, returns the left-most one; without addresses, the peer and no position. `None` if an address is unreadable
/// or the chain is too long.
fn chain(
    peer: IpAddr,
    addresses: impl Iterator<Item = Option<IpAddr>>,
    trusted: &CidrList,
) -> Option<(IpAddr, Option<usize>)> {
    let mut found = (peer, None);
    for (hop, address) in addresses.enumerate() {
        if hop >= HOPS_MAX {
            return None;
        }
        let client = address?;
        found = (client, Some(hop));
        if !trusted.contains(client) {
            break;
        }
    }
    Some(found)
}

/// Returns the entries of a list, the last one first.
fn entries<'a>(values: &[&'a str]) -> impl Iterator<Item = &'a str> {
    values.iter().rev().flat_map(|value| value.rsplit(','))
}

/// Returns the entry that is `hop` places from the right, or the left-most entry if there are fewer, since some proxies
/// replace the field instead of appending to it.
fn at<'a>(values: &[&'a str], hop: usize) -> Option<&'a str> {
    let last = entries(values).take(hop.saturating_add(1)).last()?;
    Some(last.trim()).filter(|entry| !entry.is_empty())
}

fn is_secure(scheme: &str) -> Option<bool> {
    let is = |known: &str| scheme.eq_ignore_ascii_case(known);
    match (is("https") || is("wss"), is("http") || is("ws")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        (false, false) => None,
    }
}

/// Adds a port from a separate field to a host.
fn with_port(host: Option<String>, port: Option<&str>, secure: Option<bool>) -> Option<String> {
    let host = host?;
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let default = if secure == Some(true) { "443" } else { "80" };
    match port.filter(|port| !has_port && *port != default) {
        Some(port) => Some(format!("{host}:{port}")),
        None => Some(host),
    }
}

/// True if the text is a name or an address, with an optional port.
fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        Some(_) | None => (host, "1"),
    };
    let name_fits = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    host.len() <= HOST_BYTES_MAX && name_fits && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns a prefix without its trailing slash. Refuses a prefix such as `//host`, which a client could take for a
/// host.
fn prefix(text: &str) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && name.bytes().all(is_plain);
    if text.is_empty() {
        return Some(String::new());
    }
    let fits = text.len() <= PREFIX_BYTES_MAX && text.strip_prefix('/')?.split('/').all(is_name);
    fits.then(|| text.to_owned())
}

/// An element of `Forwarded`, written by one proxy.
#[derive(Debug, Default)]
struct Element {
    client: Option<String>,
    scheme: Option<String>,
    host: Option<String>,
}

/// Parses the elements of `Forwarded`, the last one first (RFC 7239 §4); `None` for a syntax error or too many
/// elements.
fn elements(values: &[&str]) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    for value in values {
        let mut rest = *value;
        while !rest.trim_start().is_empty() {
            let mut element = Element::default();
            rest = read_element(rest, &mut element)?;
            elements.push(element);
            if elements.len() > HOPS_MAX {
                return None;
            }
        }
    }
    elements.reverse();
    Some(elements)
}

/// Parses `[ pair ] *( ";" [ pair ] )`, up to the comma or the end.
fn read_element<'a>(mut rest: &'a str, element: &mut Element) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() || rest.starts_with([';', ',']) {
            // An empty pair.
        } else {
            let (name, behind) = rest.split_once('=')?;
            let (value, behind) = read_value(behind)?;
            let place = match name.to_ascii_lowercase().as_str() {
                "for" => Some(&mut element.client),
                "proto" => Some(&mut element.scheme),
                "host" => Some(&mut element.host),
                _ if is_token(name) => None,
                _ => return None,
            };
            if let Some(place) = place
                && place.replace(value).is_some()
            {
                return None;
            }
            rest = behind.trim_start_matches([' ', '\t']);
        }
        if let Some(behind) = rest.strip_prefix(';') {
            rest = behind;
        } else {
            return if rest.is_empty() { Some(rest) } else { rest.strip_prefix(',') };
        }
    }
}

/// Parses a token or a quoted string, and returns the rest as well.
fn read_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        // IPv6 addresses must be quoted, but some proxies do not quote them.
        let end = text.find([';', ',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end)?;
        return (!value.is_empty() && !value.contains('"')).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if std::mem::take(&mut escaped) => value.push(c),
            '\\' => escaped = true,
            '"' => return Some((value, quoted.get(at.saturating_add(1)..)?)),
            _ => value.push(c),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::cidr::parse;

    fn passed(peer: &str, fields: &[(&str, &str)], trusted: &str) -> Option<Passed> {
        let values = |name: &'static str| {
            fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v).collect()
        };
        read(peer.parse().unwrap(), values, &parse(trusted).unwrap())
    }

    fn client(peer: &str, forwarded: &[&str], trusted: &str) -> Option<String> {
        let fields: Vec<_> = forwarded.iter().map(|value| ("X-Forwarded-For", *value)).collect();
        passed(peer, &fields, trusted).map(|passed| passed.client.to_string())
    }

    #[test]
    fn r_20_headers_of_untrusted_peers_are_ignored() {
        assert_eq!(client("9.9.9.9", &["127.0.0.1"], "").unwrap(), "9.9.9.9");
        assert_eq!(client("127.0.0.2", &["127.0.0.1"], "127.0.0.1").unwrap(), "127.0.0.2");
        let fields = [
            ("Forwarded", "for=127.0.0.1;proto=https;host=evil.example"),
            ("X-Forwarded-Host", "evil.example"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Prefix", "/x"),
            ("X-Forwarded-Prefix", "//junk"),
        ];
        let peer = "9.9.9.9".parse().unwrap();
        assert_eq!(passed("9.9.9.9", &fields, "10.0.0.0/8"), Some(Passed::direct(peer)));
    }

    #[test]
    fn r_20_the_right_most_untrusted_hop_counts() {
        assert_eq!(client("10.0.0.1", &["127.0.0.1, 8.8.8.8, 10.0.0.2"], "10.0.0.0/8").unwrap(), "8.8.8.8");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "8.8.8.8:99"], "10.0.0.0/8").unwrap(), "8.8.8.8");
        assert_eq!(client("10.0.0.1", &[], "10.0.0.0/8").unwrap(), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["junk"], "10.0.0.0/8"), None);
        let long = vec!["10.0.0.2"; HOPS_MAX + 1].join(",");
        assert_eq!(client("10.0.0.1", &[&long], "10.0.0.0/8"), None);
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_has_it() {
        let client = |value: &str| {
            passed("10.0.0.1", &[("Forwarded", value)], "10.0.0.0/8").map(|p| p.client.to_string())
        };
        for (value, want) in [
            ("for=192.0.2.43", "192.0.2.43"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("for=127.0.0.1, for=198.51.100.17", "198.51.100.17"),
            ("for=8.8.8.8, for=10.0.0.2 ; proto=https", "8.8.8.8"),
            ("for=\"8.8.8.8\\:80\"", "8.8.8.8"),
            (";;for=8.8.8.8;", "8.8.8.8"),
            ("secret=\"a,b;c\\\"=d\";for=8.8.8.8", "8.8.8.8"),
            ("proto=https", "10.0.0.1"),
        ] {
            assert_eq!(client(value).as_deref(), Some(want), "{value}");
        }
        for value in [
            "for=unknown",
            "for=_hidden",
            "for",
            "for=",
            "for=\"8.8.8.8",
            "for=8.8.8.8;for=9.9.9.9",
            "for=8.8.8.8 proto=https",
            "a b=c",
            "for=8.8.8.8\"",
        ] {
            assert_eq!(client(value), None, "{value}");
        }
    }

    #[test]
    fn r_20_a_field_that_a_proxy_let_through_does_not_replace_the_one_it_wrote() {
        let both = |list: &str, element: &str| {
            passed("10.0.0.1", &[("X-Forwarded-For", list), ("Forwarded", element)], "10.0.0.0/8")
                .map(|passed| passed.client.to_string())
        };
        assert_eq!(both("8.8.8.8", "for=127.0.0.1"), None);
        assert_eq!(both("127.0.0.1", "for=8.8.8.8"), None);
        assert_eq!(both("8.8.8.8", "for=8.8.8.8").as_deref(), Some("8.8.8.8"));
        assert_eq!(both("8.8.8.8", "proto=https").as_deref(), Some("8.8.8.8"));
    }

    #[test]
    fn scheme_host_port_and_prefix_are_those_of_the_client() {
        let told = |fields: &[(&str, &str)]| {
            let passed = passed("10.0.0.1", fields, "10.0.0.0/8")?;
            Some((passed.secure, passed.host.unwrap_or_default(), passed.prefix))
        };
        let of = |secure, host: &str, prefix: &str| Some((secure, host.to_owned(), prefix.to_owned()));
        let (yes, no) = (Some(true), Some(false));
        let host = ("Host", "up:5080");
        for (fields, want) in [
            (&[host][..], of(None, "up:5080", "")),
            (&[host, ("X-Forwarded-Host", "m.example")], of(None, "m.example", "")),
            (&[host, ("X-Forwarded-Proto", "HTTPS")], of(yes, "up:5080", "")),
            (&[host, ("X-Forwarded-Proto", "gopher")], of(None, "up:5080", "")),
            (
                &[
                    ("Host", "m.example"),
                    ("X-Forwarded-Proto", "https"),
                    ("X-Forwarded-Port", "8443"),
                    ("X-Forwarded-Prefix", "/h/"),
                ],
                of(yes, "m.example:8443", "/h"),
            ),
            (
                &[("Host", "m.example"), ("X-Forwarded-Proto", "https"), ("X-Forwarded-Port", "443")],
                of(yes, "m.example", ""),
            ),
            (&[("Host", "[::1]"), ("X-Forwarded-Port", "81")], of(None, "[::1]:81", "")),
            (&[host, ("Forwarded", "proto=https;host=\"m.example:444\"")], of(yes, "m.example:444", "")),
            // The value of the proxy nearest to the client counts; the client's own value and that of the inner proxy
            // do not.
            (
                &[
                    ("X-Forwarded-For", "8.8.8.8, 10.0.0.2"),
                    ("X-Forwarded-Host", "evil.example, m.example, inner"),
                    ("X-Forwarded-Proto", "http"),
                ],
                of(no, "m.example", ""),
            ),
            (
                &[(
                    "Forwarded",
                    "for=1.1.1.1;host=evil.example, for=8.8.8.8;host=m.example, for=10.0.0.2;host=inner",
                )],
                of(None, "m.example", ""),
            ),
            (&[host, ("X-Forwarded-Prefix", "")], of(None, "up:5080", "")),
            (&[host, ("X-Forwarded-Prefix", "/")], of(None, "up:5080", "")),
            (&[host, ("X-Forwarded-Prefix", "//evil.example")], None),
            (&[host, ("X-Forwarded-Prefix", "/a/../b")], None),
            (&[host, ("X-Forwarded-Prefix", "h")], None),
            (&[host, ("X-Forwarded-Prefix", "/h;x")], None),
            (&[host, ("X-Forwarded-Host", "a b")], None),
            (&[host, ("X-Forwarded-Host", "a/b")], None),
            (&[("Host", "a"), ("X-Forwarded-Port", "99999")], None),
        ] {
            assert_eq!(told(fields), want, "{fields:?}");
        }
    }
}
