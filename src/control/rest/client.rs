//! Whose request it is: the client's address behind proxies, and the page that a browser asks for.
//!
//! "From this machine" is the only credential of the first administrator, and of an application's API by default. A proxy on
//! this machine that nobody has named lends its address to everybody, and a page whose name resolves to 127.0.0.1 (DNS
//! rebinding) has the browser of this machine ask. What comes so is of nobody's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::auth::proxy::client_address;
use crate::config::AppSettings;
use crate::control::Control;
use crate::http::{Request, cors};

/// Fields by which proxies tell that they pass a request on.
const FORWARDING: [&str; 4] = ["x-forwarded-for", "forwarded", "x-real-ip", "via"];
/// An address that only rules for everybody contain.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl Control {
    /// The address behind trusted proxies; `None` when they say what cannot be read.
    pub(super) fn client_of(&self, peer: SocketAddr, request: &Request) -> Option<IpAddr> {
        let forwarded: Vec<&str> = request.headers.all("x-forwarded-for").collect();
        let server = &self.config.server;
        let client =
            client_address(peer.ip(), forwarded.into_iter(), &server.trusted_proxies)?.to_canonical();
        if !client.is_loopback() {
            return Some(client);
        }
        // A trusted proxy that says whose request it is says so of others, too.
        let passed_on = client == peer.ip().to_canonical()
            && FORWARDING.iter().any(|name| request.header(name).is_some());
        let foreign =
            request.header("host").is_some_and(|host| !is_local(host, server.values.text("server.name")));
        Some(if passed_on || foreign { NOBODYS } else { client })
    }

    /// Logs what an operator can do about a request that is of nobody's address and was refused for that.
    pub(super) fn note_refused(client: Option<IpAddr>, request: &Request) {
        if client == Some(NOBODYS) {
            let host = request.header("host").unwrap_or_default();
            tracing::warn!(
                path = ?request.path,
                ?host,
                "refused: it came from this machine through a proxy that server.trusted_proxies does not name, \
                 or for a host that is not server.name"
            );
        }
    }

    /// Whether a credential may be told: not to another's page, which has nothing but the address of its reader.
    pub(super) fn may_hand_out(
        &self,
        app: &AppSettings,
        peer: Option<SocketAddr>,
        request: &Request,
    ) -> bool {
        peer.is_none() || app.security.rest_jwt.is_some() || self.is_own_page(request)
    }

    /// Browsers say where a request comes from: by `Origin`, newer ones by `Sec-Fetch-Site`. Who says neither is no
    /// browser.
    pub(super) fn is_own_page(&self, request: &Request) -> bool {
        let named = |origin: &str| {
            self.config.server.cors_origins.iter().any(|known| known.eq_ignore_ascii_case(origin))
        };
        match request.header("origin") {
            Some(origin) => cors::is_own(origin, request.header("host").unwrap_or_default()) || named(origin),
            None => match request.header("sec-fetch-site") {
                Some(site) => site == "same-origin" || site == "none",
                None => true,
            },
        }
    }
}

/// Whether a `Host` is this machine's: an address, `localhost`, or the name of the server.
fn is_local(host: &str, server_name: &str) -> bool {
    let (name, _) = cors::split_port(host.trim());
    let v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.parse::<Ipv4Addr>().is_ok()
        || v6.is_some_and(|v6| v6.parse::<Ipv6Addr>().is_ok())
        || name.eq_ignore_ascii_case("localhost")
        || (!server_name.is_empty() && name.eq_ignore_ascii_case(server_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine() {
        for host in
            ["127.0.0.1", "127.0.0.1:5080", "[::1]:5080", "LOCALHOST:80", "media.example:5080", "10.0.0.7"]
        {
            assert!(is_local(host, "Media.Example"), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:5080", "127.0.0.1.evil.example", "[evil]", "", "::1"]
        {
            assert!(!is_local(host, "media.example") && !is_local(host, ""), "{host}");
        }
    }
}
