//! The origin of a request: the client's address behind proxies, and the page from which a browser sends it.
//!
//! "From this machine" is the only credential of the first administrator, and by default of an application's API. Two
//! kinds of requests seem to come from this machine but do not: those through a local proxy that is not configured,
//! which have the proxy's address, and those that a local browser sends for a page whose name resolves to 127.0.0.1
//! (DNS rebinding). They count as coming from no known address: only rules for all addresses match.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::auth::proxy;
use crate::config::AppSettings;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::control::{ControlConfig, Outbound};
use crate::http::{Request, cors};

/// Address that requests of doubtful origin get. Only rules for all addresses contain it.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl ControlConfig {
    /// Returns the client's address, as reported by trusted proxies; `None` if their header fields are unreadable.
    pub(in crate::control) fn client_of(&self, peer: SocketAddr, request: &Request) -> Option<IpAddr> {
        let server = &self.server;
        let values = |name: &'static str| request.headers.all(name).collect();
        let client = proxy::read(peer.ip(), values, &server.trusted_proxies)?.client.to_canonical();
        if !client.is_loopback() {
            return Some(client);
        }
        // If the request was forwarded, but the address is still that of the connection, it may be the proxy's own
        // address.
        let passed_on = client == peer.ip().to_canonical() && cors::is_passed_on(request);
        let foreign = !cors::is_for_this_machine(request, &server.names);
        Some(if passed_on || foreign { NOBODYS } else { client })
    }

    /// True unless a page of another site has sent the request.
    pub(in crate::control) fn is_own_page(&self, request: &Request) -> bool {
        cors::is_own_page(request, &self.server.names, &self.server.cors_origins)
    }
}

impl Context {
    /// True if a credential may be given out. A page of another site is refused, since its requests come from the
    /// address of the user who opened the page.
    pub(super) fn may_hand_out(
        &self,
        app: &AppSettings,
        peer: Option<SocketAddr>,
        request: &Request,
    ) -> bool {
        peer.is_none() || app.security.rest_jwt.is_some() || self.config.is_own_page(request)
    }
}

impl Outbound {
    /// Logs how an operator can allow a request that was refused because of its address. Each address is logged once
    /// for each application, and once for the server.
    pub(super) fn note_refused(
        &mut self,
        cx: &Context,
        records: &Records,
        app: Option<&AppSettings>,
        client: Option<IpAddr>,
        request: &Request,
    ) {
        let Some(client) = client else {
            let path = &request.path;
            tracing::warn!(?path, "API request refused: X-Forwarded-For from a trusted proxy is malformed");
            return;
        };
        if client == NOBODYS {
            let host = request.header("host").unwrap_or_default();
            tracing::warn!(
                path = ?request.path,
                ?host,
                "refused: it came from this machine through a proxy that server.trusted_proxies does not name, \
                 or for a host that is not server.name"
            );
            return;
        }
        if !self.repeats.is_first_refusal(app.map(|app| &*app.name), client) {
            return;
        }
        let is_set = cx.config.server.doors.dashboard_explicit || records.auxiliary.has_users();
        match app {
            Some(app) => tracing::warn!(
                application = &*app.name,
                %client,
                "API refused to an address that remoteAllowedCIDR of the application does not contain; said once"
            ),
            None if is_set => tracing::warn!(
                %client,
                "API of the server refused to an address that server.allowed_dashboard_CIDR does not contain; said once"
            ),
            None => tracing::warn!(
                %client,
                "API of the server refused: before there is a user it answers this machine alone, unless \
                 server.allowed_dashboard_CIDR says otherwise; said once"
            ),
        }
    }
}
