//! The REST API: one table of routes (`routes`), and what every request passes before its handler.
//!
//! Paths of applications (docs/rest.md): application, token filter, IP filter, route, content type. Paths of the
//! server (docs/rest.md): the dashboard's address filter, then who calls and whether that may (`access`), then the
//! route. Requests come with a normalised path, so the filters and the routes see the same thing
//! (docs/robustness.md R-22).

mod access;
pub(super) mod answer;
mod apps;
mod broadcasts;
mod endpoints;
mod features;
mod form;
pub(super) mod host;
mod lists;
mod openapi;
mod proxy;
mod root;
mod routes;
pub(super) mod scan;
mod schemas;
mod server;
mod subscribers;
mod subtracks;
mod tokens;
mod users;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Control;
use super::sides::SideWrite;
use crate::auth::jwt;
use crate::auth::proxy::client_address;
use crate::config::AppSettings;
use crate::http::{Method, Request, Response};
use crate::types::{Now, SessionRef, StreamKey};
use access::Caller;
use routes::Handler;

pub(super) use features::Recorder;

pub use routes::{Base, BodyKind, Policy, Route, routes};

/// What the panel calls applications by.
const PROXY: &str = "/request";
/// Parts of a path after `rest/v2`.
const SEGMENTS_MAX: usize = 8;
/// Parameters of a path.
const PARAMS_MAX: usize = 4;

/// Who asks, and how it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// Who waits for the answer.
    pub(super) session: SessionRef,
    /// The address of the connection.
    pub(super) peer: SocketAddr,
    /// It came over TLS.
    pub(super) secure: bool,
}

/// What a handler gives back.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer.
    Now(Response),
    /// It comes when the store has the change.
    Later,
}

/// A handler of an application's operation.
type AppHandler = fn(&mut Control, Now, &Call<'_>) -> Reply;
/// A handler of an operation of the server.
type RootHandler = fn(&mut Control, Now, &RootCall<'_>) -> Reply;

/// A request on its way to the handler of an application's operation.
#[derive(Debug)]
struct Call<'a> {
    session: SessionRef,
    app: &'a Arc<AppSettings>,
    request: &'a Request,
    params: [&'a str; PARAMS_MAX],
}

impl Call<'_> {
    /// The stream that the first parameter names.
    fn key(&self) -> StreamKey {
        let [id, ..] = self.params;
        StreamKey { app: self.app.name.clone(), id: id.into() }
    }

    /// A query parameter; empty when absent.
    fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }
}

/// A request on its way to the handler of an operation of the server. It may be there.
#[derive(Debug)]
struct RootCall<'a> {
    origin: Origin,
    /// The address of the client, behind trusted proxies.
    client: IpAddr,
    caller: Caller,
    request: &'a Request,
    params: [&'a str; PARAMS_MAX],
}

impl RootCall<'_> {
    /// A query parameter; empty when absent.
    fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }
}

/// The application and the rest of an API path: `/{app}/rest/v2{rest}`.
fn split_path(path: &str) -> Option<(&str, &str)> {
    let (app, rest) = path.strip_prefix('/')?.split_once('/')?;
    Some((app, rest_of(rest)?))
}

/// What follows `rest`, with its slash.
fn rest_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("rest")?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The parameters, when the pattern matches.
fn match_path<'a>(pattern: &str, path: &'a str) -> Option<[&'a str; PARAMS_MAX]> {
    let mut params = [""; PARAMS_MAX];
    let mut free = params.iter_mut();
    let mut parts = path.split('/');
    for expected in pattern.split('/') {
        let part = parts.next()?;
        if expected.starts_with('{') {
            if part.is_empty() {
                return None;
            }
            *free.next()? = part;
        } else if expected != part {
            return None;
        }
    }
    if parts.next().is_some() { None } else { Some(params) }
}

/// What the table says about a request.
enum Found<'a> {
    Route(&'static Route, [&'a str; PARAMS_MAX]),
    /// The path is there, for these methods.
    Methods(Vec<&'static str>),
    Nothing,
}

impl Found<'_> {
    /// The refusal, when there is no route.
    fn refusal(self) -> Response {
        match self {
            Self::Methods(allowed) => {
                Response::error(405, "Method Not Allowed").header("Allow", allowed.join(", "))
            }
            Self::Route(..) | Self::Nothing => Response::error(404, "Not Found"),
        }
    }
}

/// Looks a path up; HEAD is GET without the body, which the connection leaves out.
fn find(base: Base, method: Method, path: &str) -> Found<'_> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').count() > SEGMENTS_MAX {
        return Found::Nothing;
    }
    let method = if method == Method::Head { Method::Get } else { method };
    let mut allowed = Vec::new();
    for route in routes().filter(|route| route.base == base) {
        let Some(params) = match_path(route.path, path) else { continue };
        if route.method == method {
            return Found::Route(route, params);
        }
        allowed.push(route.method.as_str());
        if route.method == Method::Get {
            allowed.push(Method::Head.as_str());
        }
    }
    if allowed.is_empty() { Found::Nothing } else { Found::Methods(allowed) }
}

/// Refuses a body of the wrong type.
fn refuse_type(route: &Route, request: &Request) -> Option<Response> {
    let fits = match route.body {
        BodyKind::None => true,
        BodyKind::Json => has_type(request, "application/json"),
        BodyKind::Multipart => has_type(request, "multipart/form-data"),
    };
    (!fits).then(|| Response::error(415, "Unsupported Media Type"))
}

impl Control {
    pub(super) fn rest(&mut self, now: Now, origin: Origin, request: &Request) {
        match self.dispatch(now, origin, request) {
            Reply::Now(response) => self.answer(origin.session, response),
            Reply::Later => {}
        }
    }

    fn dispatch(&mut self, now: Now, origin: Origin, request: &Request) -> Reply {
        let path = request.path.as_str();
        if let Some(rest) = path.strip_prefix('/').and_then(rest_of) {
            // The panel's way to applications is there without a version, too.
            let rest = if rest == PROXY { Some(PROXY) } else { rest.strip_prefix("/v2") };
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
            return self.dispatch_root(now, origin, Base::Root, rest, request);
        }
        if !matches!(find(Base::Server, Method::Get, path), Found::Nothing) {
            return self.dispatch_root(now, origin, Base::Server, Some(path), request);
        }
        self.dispatch_app(now, origin.session, Some(origin.peer), request)
    }

    /// A request to an application; `peer` is `None` for what the server asks itself on somebody's behalf.
    fn dispatch_app(
        &mut self,
        now: Now,
        session: SessionRef,
        peer: Option<SocketAddr>,
        request: &Request,
    ) -> Reply {
        let not_found = || Reply::Now(Response::error(404, "Not Found"));
        let Some((app, rest)) = split_path(&request.path) else { return not_found() };
        let Some(app) = self.apps.get(app).cloned() else { return not_found() };
        if let Some(refusal) = self.refuse(now, &app, peer, request) {
            return Reply::Now(refusal);
        }
        let Some(rest) = rest.strip_prefix("/v2") else { return not_found() };
        match find(Base::App, request.method, rest) {
            Found::Route(route, params) => match (refuse_type(route, request), route.handler) {
                (Some(refusal), _) => Reply::Now(refusal),
                (None, Handler::App(handler)) => {
                    let call = Call { session, app: &app, request, params };
                    match handler(self, now, &call) {
                        Reply::Now(response) if route.method != Method::Get => {
                            self.settled(now, session, &call.key(), response)
                        }
                        reply @ (Reply::Now(_) | Reply::Later) => reply,
                    }
                }
                (None, Handler::Root(_)) => not_found(),
            },
            found @ (Found::Methods(_) | Found::Nothing) => Reply::Now(found.refusal()),
        }
    }

    /// A refusal that may follow from what is only pending waits for it: once it is heard, reads show why.
    fn settled(&mut self, now: Now, session: SessionRef, key: &StreamKey, response: Response) -> Reply {
        if !self.is_pending(key) {
            return Reply::Now(response);
        }
        self.write_sides(now, SideWrite { changes: Vec::new(), waiter: Some((session, response)) });
        Reply::Later
    }

    /// The filters before every operation, whatever its path or method.
    fn refuse(
        &self,
        now: Now,
        app: &AppSettings,
        peer: Option<SocketAddr>,
        request: &Request,
    ) -> Option<Response> {
        // What the server asks itself was let in by a login.
        if let Some(secret) = app.security.rest_jwt.as_ref().filter(|_| peer.is_some())
            && !has_token(request, secret.reveal().as_bytes(), now)
        {
            return Some(Response::error(403, "Invalid App JWT Token"));
        }
        if app.ip_filter_enabled {
            let client = match peer {
                Some(peer) => self.client_of(peer, request),
                None => Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            };
            if !client.is_some_and(|client| app.remote_allowed_cidr.contains(client)) {
                return Some(Response::error(403, "Not allowed IP"));
            }
        }
        None
    }

    /// The address behind trusted proxies; `None` when they say what cannot be read.
    fn client_of(&self, peer: SocketAddr, request: &Request) -> Option<IpAddr> {
        let forwarded: Vec<&str> = request.headers.all("x-forwarded-for").collect();
        client_address(peer.ip(), forwarded.into_iter(), &self.config.server.trusted_proxies)
    }
}

/// Whether a request carries a valid token of its application, bare or as a bearer's. Two headers are none: proxies
/// disagree on which of them counts.
fn has_token(request: &Request, secret: &[u8], now: Now) -> bool {
    let mut given = request.headers.all("authorization");
    let (Some(value), None) = (given.next(), given.next()) else { return false };
    let value = value.trim();
    let bearer = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = bearer.map_or(value, |(_, token)| token.trim());
    jwt::verify(token, secret, now.wall_ms).is_ok()
}

/// A body needs its type; without a body anything goes.
fn has_type(request: &Request, wanted: &str) -> bool {
    if request.body.is_empty() {
        return true;
    }
    let Some(value) = request.header("content-type") else { return false };
    let essence = value.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case(wanted)
}

/// Text of a body that cannot be read.
fn bad_request(text: &str) -> Reply {
    Reply::Now(Response::text(400, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that the pattern matches.
    fn example(route: &Route) -> String {
        let part = |part: &str| if part.starts_with('{') { "7".to_owned() } else { part.to_owned() };
        route.path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    #[test]
    fn r_23_no_two_routes_are_the_same_and_each_finds_itself() {
        for route in routes() {
            let same = |r: &&Route| r.path == route.path && r.method == route.method && r.base == route.base;
            assert_eq!(routes().filter(same).count(), 1, "{}", route.path);
            let path = example(route);
            match find(route.base, route.method, &path) {
                Found::Route(found, _) => assert_eq!(found.path, route.path, "hidden by an earlier route"),
                Found::Methods(_) | Found::Nothing => panic!("{path} is not found"),
            }
            assert!(path.split('/').count() <= SEGMENTS_MAX);
            assert!(route.path.matches('{').count() <= PARAMS_MAX);
        }
    }

    #[test]
    fn r_23_policies_and_handlers_fit_their_base() {
        for route in routes() {
            let fits = match route.base {
                Base::App => route.policy == Policy::AppFilter && matches!(route.handler, Handler::App(_)),
                Base::Server => {
                    route.policy == Policy::Dashboard && matches!(route.handler, Handler::Root(_))
                }
                Base::Root => {
                    !matches!(route.policy, Policy::AppFilter | Policy::Dashboard)
                        && matches!(route.handler, Handler::Root(_))
                }
            };
            assert!(fits, "{} {}", route.method, route.path);
            assert!(route.policy != Policy::Scoped || route.path.contains('{'), "{}", route.path);
        }
    }

    #[test]
    fn r_22_paths_match_exactly() {
        let matched = match_path("/broadcasts/{id}/stop", "/broadcasts/a/stop").unwrap();
        assert_eq!(matched[0], "a");
        for path in
            ["/broadcasts", "/broadcasts/", "/broadcasts//stop", "/Broadcasts/a/stop", "/broadcasts/a/stop/x"]
        {
            assert_eq!(match_path("/broadcasts/{id}/stop", path), None, "{path}");
        }
        assert_eq!(split_path("/live/rest/v2/x"), Some(("live", "/v2/x")));
        assert_eq!(split_path("/live/restv2/x"), None);
        assert_eq!(split_path("/rest/v2/x"), None);
    }
}
