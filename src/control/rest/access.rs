//! Access to the operations of the server (docs/rest.md), checked in this order:
//!
//! 1. The dashboard's address filter, for every path: 403 `Not allowed IP`. `/metrics` and `/openapi.json` have a
//!    separate address list, and also accept a login.
//! 2. A `ProxyAuthorization` token, if that method is on. The token decides, regardless of cookies.
//! 3. The session that the cookie names. Writes with a cookie must come from our own pages (docs/robustness.md R-34).
//! 4. Open operations need neither a token nor a session.
//! 5. All other paths, including unknown ones, need a login: 403 `Not authenticated user`, never 401.
//! 6. The right to the operation: 403 `Not allowed to access this resource. Contact system admin`.

use std::net::{IpAddr, SocketAddr};

use super::call::{Caller, Origin, PARAMS_MAX, Reply, RootCall};
use super::proxy;
use super::route::{Base, BodyKind, Handler, Policy, Route, has_type, refuse_media};
use super::routes::{Found, find};
use crate::auth::network;
use crate::control::Control;
use crate::control::access::Access;
use crate::control::audit::ADDRESS;
use crate::control::context::Context;
use crate::control::feeds::Asker;
use crate::control::management::{Management, Role, SESSION_COOKIE, SYSTEM, SessionId, User};
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords};
use crate::http::{Method, Request, Response};
use crate::store::{Key, Kind};
use crate::types::Now;

/// Maximum number of session cookies examined in one request.
const COOKIES_MAX: usize = 4;

fn refused(message: &str) -> Reply {
    Reply::Now(Response::error(403, message))
}

const fn reads(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

impl Control {
    /// Handles a request to the server itself. `path` is the part after `/rest/v2` or, outside of the API, the whole
    /// path.
    pub(super) fn dispatch_root(
        &mut self,
        now: Now,
        origin: &mut Origin,
        base: Base,
        path: Option<&str>,
        request: &Request,
    ) -> Reply {
        let client = self.cx.config.client_of(origin.peer, request);
        let found = path.map_or(Found::Nothing, |path| find(base, request.method, path));
        if base == Base::Server
            && let Some(client) = client
            && self.cx.config.server.doors.metrics.contains(client)
        {
            let caller = Caller::Nobody;
            return self.answer_server(now, origin, client, caller, found, request);
        }
        let Some(client) = client.filter(|client| self.records.may_see_dashboard(&self.cx, *client)) else {
            self.outbound.note_refused(&self.cx, &self.records, None, client, request);
            return refused("Not allowed IP");
        };
        let caller = match self.access.caller(&self.cx, &mut self.management, now, request) {
            Ok(caller) => caller,
            Err(refusal) => return Reply::Now(refusal),
        };
        if caller != Caller::Nobody {
            self.cx.note_authenticated(origin.requester.session());
        }
        if base == Base::Server {
            return match caller {
                Caller::Nobody => refused("Not allowed IP"),
                Caller::Token | Caller::User { .. } => {
                    self.answer_server(now, origin, client, caller, found, request)
                }
            };
        }
        let is_open = matches!(found, Found::Route(route, _) if route.policy == Policy::Open);
        if !is_open && let Err(text) = self.records.check_caller(&self.cx, &caller, &found, request) {
            return refused(text);
        }
        if let (Caller::User { .. }, Found::Route(route, _)) = (&caller, &found)
            && !is_typed(route, request)
        {
            return Reply::Now(Response::error(415, "Unsupported Media Type"));
        }
        match found {
            Found::Route(route, params) => {
                let sees_all = self.records.sees_credentials(&caller, route, params, request);
                origin.requester = origin.requester.seeing(sees_all);
                let origin = *origin;
                self.handle_root(now, route, &RootCall { origin, client, caller, request, params })
            }
            found @ (Found::Methods(_) | Found::Nothing) => Reply::Now(found.refusal(request.method)),
        }
    }

    /// Handles the operations outside of the API, for clients on the address list or with a login. The answers hold no
    /// credentials.
    fn answer_server(
        &mut self,
        now: Now,
        origin: &mut Origin,
        client: IpAddr,
        caller: Caller,
        found: Found<'_>,
        request: &Request,
    ) -> Reply {
        origin.requester = origin.requester.seeing(true);
        let call = RootCall { origin: *origin, client, caller, request, params: Default::default() };
        match found {
            Found::Route(route, _) => self.handle_root(now, route, &call),
            found @ (Found::Methods(_) | Found::Nothing) => Reply::Now(found.refusal(request.method)),
        }
    }

    fn handle_root(&mut self, now: Now, route: &Route, call: &RootCall<'_>) -> Reply {
        match (refuse_media(route, call.request), route.handler) {
            (Some(refusal), _) => Reply::Now(refusal),
            (None, Handler::Root(_)) if call.request.body_waits => {
                self.cx.let_body_come(call.origin.requester.session())
            }
            (None, Handler::Root(handler)) => {
                let who = match &call.caller {
                    Caller::User { email, .. } => email,
                    Caller::Token => "token",
                    Caller::Nobody => ADDRESS,
                };
                self.cx.audit.audit_actor(who, Some(call.client));
                self.cx.audit_route(call.origin.requester.session(), route, call.request);
                handler(self, now, call)
            }
            (None, Handler::App(_)) => Reply::Now(Response::error(404, "Not Found")),
        }
    }
}

impl Records {
    /// True if the caller may see credentials in the answer. Users with read access only and callers without a login
    /// may not.
    fn sees_credentials(
        &self,
        caller: &Caller,
        route: &Route,
        params: [&str; PARAMS_MAX],
        request: &Request,
    ) -> bool {
        let [param, ..] = params;
        match (caller, route.policy) {
            (Caller::Token, _) => true,
            (Caller::Nobody, _) => false,
            (Caller::User { .. }, Policy::Proxied) => {
                !proxy::only_reads(self, caller, &proxy::app_of(request))
            }
            (Caller::User { .. }, Policy::Scoped) => !proxy::only_reads(self, caller, param),
            (
                Caller::User { .. },
                Policy::AppFilter | Policy::Dashboard | Policy::Open | Policy::Login | Policy::System,
            ) => !proxy::only_reads(self, caller, SYSTEM),
        }
    }

    /// Checks that the caller has the right to the operation; the error is the text of the refusal.
    fn check_caller(
        &self,
        cx: &Context,
        caller: &Caller,
        found: &Found<'_>,
        request: &Request,
    ) -> Result<(), &'static str> {
        let email = match caller {
            Caller::Nobody => return Err("Not authenticated user"),
            Caller::Token => return Ok(()),
            Caller::User { email, .. } => email,
        };
        // A removed user or right stops counting immediately, before the change is stored; a new right counts only once
        // it is stored.
        let (stored, soon) = (self.auxiliary.stored_user(email), self.auxiliary.user(email));
        let (Some(stored), Some(soon)) = (stored, soon) else {
            tracing::debug!(%email, "the user of a session was deleted");
            return Err("No user in this session");
        };
        if !reads(request.method) && !cx.config.is_own_page(request) {
            return Err("Not allowed from another site");
        }
        let allowed = match found {
            Found::Route(route, params) => {
                [stored, soon].into_iter().all(|user| cx.may_use(user, route, params, request))
            }
            Found::Methods(_) | Found::Nothing => stored.role_in(SYSTEM).is_some(),
        };
        if allowed { Ok(()) } else { Err("Not allowed to access this resource. Contact system admin") }
    }

    /// True if an address passes the dashboard's filter. If the operator has set the list of addresses, this list
    /// decides. If not, only this machine passes until a user exists, and then the default list decides.
    fn may_see_dashboard(&self, cx: &Context, client: IpAddr) -> bool {
        let server = &cx.config.server;
        if server.doors.dashboard_explicit || self.auxiliary.has_users() {
            server.doors.dashboard.contains(client)
        } else {
            client.to_canonical().is_loopback()
        }
    }
}

impl AuxiliaryRecords {
    fn stored_user(&self, email: &str) -> Option<&User> {
        match self.get(&Key::new(Kind::User, "", email)) {
            Some(Auxiliary::User(user)) => Some(user),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::Vod(_)) | None => None,
        }
    }
}

impl Access {
    /// Returns the requester under which a feed is counted; `None` if the request has no login.
    pub(in crate::control) fn feed_asker(
        &self,
        cx: &Context,
        management: &mut Management,
        now: Now,
        peer: SocketAddr,
        request: &Request,
    ) -> Option<Asker> {
        match self.caller(cx, management, now, request).ok()? {
            Caller::User { email, .. } => Some(Asker::User(email)),
            Caller::Token => cx.config.client_of(peer, request).map(network).map(Asker::Address),
            Caller::Nobody => None,
        }
    }

    /// Identifies the caller. If the request must be refused, the error is the answer to send.
    fn caller(
        &self,
        cx: &Context,
        management: &mut Management,
        now: Now,
        request: &Request,
    ) -> Result<Caller, Response> {
        if let Some(trust) = &cx.config.server.management_trust {
            if request.headers.count("proxyauthorization") > 1 {
                return Err(Response::error(400, "More than one ProxyAuthorization"));
            }
            let token = request.header("proxyauthorization").unwrap_or("");
            if !token.trim().is_empty() {
                return match self.verify_token(now, trust, token) {
                    Ok(_) => Ok(Caller::Token),
                    Err(error) => {
                        tracing::debug!(%error, "management token refused");
                        Err(Response::error(403, "Invalid Server JWT Token"))
                    }
                };
            }
        }
        let ids: Vec<SessionId> = session_ids(request).collect();
        let found = ids.into_iter().find_map(|id| {
            let email = management.sessions.find(now.mono, id)?;
            Some(Caller::User { email, id })
        });
        Ok(found.unwrap_or(Caller::Nobody))
    }
}

impl Context {
    fn may_use(&self, user: &User, route: &Route, params: &[&str], request: &Request) -> bool {
        let may = |role: Option<Role>| match role {
            Some(Role::Admin) => true,
            Some(Role::User | Role::ReadOnly) => reads(request.method),
            None => false,
        };
        match route.policy {
            Policy::Open | Policy::Dashboard | Policy::Login => true,
            Policy::System => may(user.role_in(SYSTEM)),
            Policy::Scoped => {
                let app = params.first().copied().unwrap_or_default();
                may(user.role_in(SYSTEM)) || may(user.role_in(app))
            }
            Policy::Proxied => proxy::may_pass(user, request),
            Policy::AppFilter => false,
        }
    }
}

/// True if a write with a cookie and a body is declared as JSON, which a form on another site cannot do. Multipart
/// forms pass if the operation accepts them, since [`crate::control::ControlConfig::is_own_page`] checks their origin.
fn is_typed(route: &Route, request: &Request) -> bool {
    let is_form = has_type(request, "multipart/form-data");
    reads(request.method)
        || request.method == Method::Delete
        || has_type(request, "application/json")
        || (is_form && (route.body == BodyKind::Multipart || route.policy == Policy::Proxied))
}

/// Returns the session ids in the session cookies of a request.
fn session_ids(request: &Request) -> impl Iterator<Item = SessionId> {
    let pairs = request.headers.all("cookie").flat_map(|value| value.split(';'));
    let ours =
        pairs.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| name.trim() == SESSION_COOKIE);
    ours.take(COOKIES_MAX).filter_map(|(_, value)| SessionId::parse(value.trim()))
}
