//! The REST API of applications (rest.md §4, seed §4.1): one table of routes, and what every request passes before
//! its handler.
//!
//! Order: application, token filter, IP filter, route, content type. Requests come with a normalised path, so the
//! filter and the routes see the same thing (robustness.md R-22).

pub(super) mod answer;
mod broadcasts;
mod endpoints;
mod lists;
pub(super) mod scan;

use std::net::SocketAddr;
use std::sync::Arc;

use super::Control;
use crate::auth::jwt;
use crate::auth::proxy::client_address;
use crate::config::AppSettings;
use crate::http::{Method, Request, Response};
use crate::mail::{Now, SessionRef, StreamKey};
use answer::{Version, json};

/// Parts of a path after `rest/v2`.
const SEGMENTS_MAX: usize = 5;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Whoever passes the application's IP filter (seed §5.1).
    IpFilter,
}

/// What a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// Nothing that is looked at.
    None,
    /// JSON, or nothing.
    Json,
}

/// One operation. `{}` in the path is a parameter.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Of the request.
    pub method: Method,
    /// After `/{app}/rest/v2`.
    pub path: &'static str,
    /// Who may.
    pub policy: Policy,
    /// What it carries.
    pub body: BodyKind,
    handler: fn(&mut Control, Now, &Call<'_>) -> Reply,
}

/// What a handler gives back.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer.
    Now(Response),
    /// It comes when the store has the change.
    Later,
}

/// A request on its way to a handler.
#[derive(Debug)]
struct Call<'a> {
    session: SessionRef,
    app: &'a Arc<AppSettings>,
    request: &'a Request,
    params: [&'a str; 3],
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

const fn route(
    method: Method,
    path: &'static str,
    body: BodyKind,
    handler: fn(&mut Control, Now, &Call<'_>) -> Reply,
) -> Route {
    Route { method, path, policy: Policy::IpFilter, body, handler }
}

/// Every operation there is. Literal paths stand before those with parameters.
pub const ROUTES: &[Route] = &[
    route(Method::Post, "/broadcasts/create", BodyKind::Json, broadcasts::create),
    route(Method::Get, "/broadcasts/count", BodyKind::None, lists::count),
    route(Method::Get, "/broadcasts/active-live-stream-count", BodyKind::None, lists::active),
    route(Method::Get, "/broadcasts/total-broadcast-statistics", BodyKind::None, lists::total_statistics),
    route(Method::Get, "/broadcasts/count/{}", BodyKind::None, lists::count),
    route(Method::Get, "/broadcasts/list/{}/{}", BodyKind::None, lists::list),
    route(Method::Delete, "/broadcasts", BodyKind::None, broadcasts::delete_many),
    route(Method::Get, "/broadcasts/{}", BodyKind::None, broadcasts::get),
    route(Method::Put, "/broadcasts/{}", BodyKind::Json, broadcasts::update),
    route(Method::Delete, "/broadcasts/{}", BodyKind::None, broadcasts::delete),
    route(Method::Post, "/broadcasts/{}/start", BodyKind::None, broadcasts::start),
    route(Method::Post, "/broadcasts/{}/stop", BodyKind::None, broadcasts::stop),
    route(Method::Get, "/broadcasts/{}/broadcast-statistics", BodyKind::None, lists::statistics),
    route(Method::Post, "/broadcasts/{}/endpoint", BodyKind::Json, endpoints::add),
    route(Method::Delete, "/broadcasts/{}/endpoint", BodyKind::None, endpoints::remove),
    route(Method::Post, "/broadcasts/{}/rtmp-endpoint", BodyKind::Json, endpoints::add),
    route(Method::Delete, "/broadcasts/{}/rtmp-endpoint", BodyKind::None, endpoints::remove),
    route(Method::Get, "/version", BodyKind::None, version),
];

/// The application and the rest of an API path: `/{app}/rest/v2{rest}`.
fn split_path(path: &str) -> Option<(&str, &str)> {
    let (app, rest) = path.strip_prefix('/')?.split_once('/')?;
    let rest = rest.strip_prefix("rest")?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    Some((app, rest))
}

/// The parameters, when the pattern matches.
fn match_path<'a>(pattern: &str, path: &'a str) -> Option<[&'a str; 3]> {
    let mut params = [""; 3];
    let mut free = params.iter_mut();
    let mut parts = path.split('/');
    for expected in pattern.split('/') {
        let part = parts.next()?;
        if expected == "{}" {
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

impl Control {
    pub(super) fn rest(&mut self, now: Now, session: SessionRef, peer: SocketAddr, request: &Request) {
        match self.dispatch(now, session, peer, request) {
            Reply::Now(response) => self.answer(session, response),
            Reply::Later => {}
        }
    }

    fn dispatch(&mut self, now: Now, session: SessionRef, peer: SocketAddr, request: &Request) -> Reply {
        let not_found = || Reply::Now(Response::error(404, "Not Found"));
        if request.path == "/metrics" {
            return self.metrics(session, peer, request);
        }
        let Some((app, rest)) = split_path(&request.path) else { return not_found() };
        let Some(app) = self.apps.get(app).cloned() else { return not_found() };
        if let Some(refusal) = self.refuse(now, &app, peer, request) {
            return Reply::Now(refusal);
        }
        let Some(rest) = rest.strip_prefix("/v2") else { return not_found() };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.split('/').count() > SEGMENTS_MAX {
            return not_found();
        }
        // HEAD is GET without the body; the connection leaves it out.
        let method = if request.method == Method::Head { Method::Get } else { request.method };
        let mut allowed: Vec<&str> = Vec::new();
        for route in ROUTES {
            let Some(params) = match_path(route.path, rest) else { continue };
            if route.method == method {
                if route.body == BodyKind::Json && !has_json_type(request) {
                    return Reply::Now(Response::error(415, "Unsupported Media Type"));
                }
                return (route.handler)(self, now, &Call { session, app: &app, request, params });
            }
            allowed.push(route.method.as_str());
        }
        if allowed.is_empty() {
            return not_found();
        }
        Reply::Now(Response::error(405, "Method Not Allowed").header("Allow", allowed.join(", ")))
    }

    /// The filters before every operation, whatever its path or method (rest.md §9.1).
    fn refuse(&self, now: Now, app: &AppSettings, peer: SocketAddr, request: &Request) -> Option<Response> {
        if let Some(secret) = &app.security.rest_jwt
            && !has_token(request, secret.reveal().as_bytes(), now)
        {
            return Some(Response::error(403, "Invalid App JWT Token"));
        }
        if app.ip_filter_enabled {
            let forwarded: Vec<&str> = request.headers.all("x-forwarded-for").collect();
            let trusted = &self.config.server.trusted_proxies;
            let client = client_address(peer.ip(), forwarded.into_iter(), trusted);
            if !client.is_some_and(|client| app.remote_allowed_cidr.contains(client)) {
                return Some(Response::error(403, "Not allowed IP"));
            }
        }
        None
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

/// A body needs its type; without a body anything goes (rest.md §0.1 item 5).
fn has_json_type(request: &Request) -> bool {
    if request.body.is_empty() {
        return true;
    }
    let Some(value) = request.header("content-type") else { return false };
    let essence = value.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Text of a body that cannot be read.
fn bad_request(text: &str) -> Reply {
    Reply::Now(Response::text(400, text.to_owned()))
}

fn version(_: &mut Control, _: Now, _: &Call<'_>) -> Reply {
    Reply::Now(json(
        200,
        &Version {
            name: env!("CARGO_PKG_VERSION"),
            kind: "Community Edition",
            build: option_env!("MILLSTREAM_BUILD").unwrap_or("development"),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_23_no_two_routes_are_the_same_and_each_finds_itself() {
        for (at, route) in ROUTES.iter().enumerate() {
            let same = |r: &&Route| r.path == route.path && r.method == route.method;
            assert_eq!(ROUTES.iter().filter(same).count(), 1, "{}", route.path);
            let path = route.path.replace("{}", "7");
            let first =
                ROUTES.iter().position(|r| r.method == route.method && match_path(r.path, &path).is_some());
            assert_eq!(first, Some(at), "{} is hidden by an earlier route", route.path);
            assert!(path.split('/').count() <= SEGMENTS_MAX);
            assert_eq!(route.policy, Policy::IpFilter);
        }
    }

    #[test]
    fn r_22_paths_match_exactly() {
        assert_eq!(match_path("/broadcasts/{}/stop", "/broadcasts/a/stop"), Some(["a", "", ""]));
        for path in
            ["/broadcasts", "/broadcasts/", "/broadcasts//stop", "/Broadcasts/a/stop", "/broadcasts/a/stop/x"]
        {
            assert_eq!(match_path("/broadcasts/{}/stop", path), None, "{path}");
        }
        assert_eq!(split_path("/live/rest/v2/x"), Some(("live", "/v2/x")));
        assert_eq!(split_path("/live/restv2/x"), None);
        assert_eq!(split_path("/rest/v2/x"), None);
    }
}
