//! The route table: all operations, with their access rules. A path that is not listed does not exist, and a [`Route`]
//! cannot be made without a policy. The OpenAPI document is made from the table ([`super::openapi`]).
//!
//! Each row has a method, a path, a handler, the answer's schema, a tag and a summary. The body's schema follows if
//! there is a body. `{name}` in a path is a parameter; literal paths precede those with parameters.

mod apps;
mod broadcasts;
mod players;
mod server;

use super::call::PARAMS_MAX;
use super::paths::match_path;
use super::route::{Base, Route};
use crate::http::{Method, Response};

/// Maximum number of segments of a path after `rest/v2`.
const SEGMENTS_MAX: usize = 8;

/// Returns all operations.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    server::ROUTES.iter().chain(broadcasts::ROUTES).chain(apps::ROUTES).chain(players::ROUTES)
}

/// The result of looking up a request.
pub(super) enum Found<'a> {
    Route(&'static Route, [&'a str; PARAMS_MAX]),
    /// The path exists, but only for these methods.
    Methods(Vec<Method>),
    Nothing,
}

impl Found<'_> {
    /// Returns the answer if there is no route for `method`; for OPTIONS it lists the allowed methods (RFC 9110
    /// §9.3.7).
    pub(super) fn refusal(self, method: Method) -> Response {
        match self {
            Self::Methods(allowed) if method == Method::Options => {
                Response::empty(200).header("Allow", allow(&allowed, true))
            }
            Self::Methods(allowed) => {
                Response::error(405, "Method Not Allowed").header("Allow", allow(&allowed, false))
            }
            Self::Route(..) | Self::Nothing => Response::error(404, "Not Found"),
        }
    }
}

/// Lists the methods in Ant Media Server's order. HEAD is listed only in answers to OPTIONS, as in Ant Media Server.
fn allow(methods: &[Method], with_head: bool) -> String {
    const ORDER: [Method; 6] =
        [Method::Head, Method::Delete, Method::Get, Method::Post, Method::Options, Method::Put];
    let is_there = |method: &&Method| match method {
        Method::Options => true,
        Method::Head => with_head && methods.contains(&Method::Get),
        Method::Delete | Method::Get | Method::Post | Method::Put | Method::Patch => methods.contains(method),
    };
    ORDER.iter().filter(is_there).map(|method| method.as_str()).collect::<Vec<_>>().join(",")
}

/// Looks up a path. HEAD counts as GET; the connection omits the body. If no matching route has the method, returns the
/// methods of the first pattern that matches.
pub(super) fn find(base: Base, method: Method, path: &str) -> Found<'_> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').count() > SEGMENTS_MAX {
        return Found::Nothing;
    }
    let method = if method == Method::Head { Method::Get } else { method };
    let (mut allowed, mut pattern) = (Vec::new(), None);
    for route in routes().filter(|route| route.base == base) {
        let Some(params) = match_path(route.path, path) else { continue };
        if route.method == method {
            return Found::Route(route, params);
        }
        if *pattern.get_or_insert(route.path) == route.path {
            allowed.push(route.method);
        }
    }
    if allowed.is_empty() { Found::Nothing } else { Found::Methods(allowed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::rest::route::{Handler, Policy};

    /// Makes a path that the pattern matches.
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
    fn allow_has_each_method_once_in_the_reference_s_order() {
        let allowed = |method, path| {
            let response = find(Base::App, method, path).refusal(method);
            (response.status, response.headers.get("allow").unwrap_or_default().to_owned())
        };
        for (method, path, status, allow) in [
            (Method::Patch, "/broadcasts/create", 405, "POST,OPTIONS"),
            (Method::Patch, "/broadcasts/s1", 405, "DELETE,GET,OPTIONS,PUT"),
            (Method::Options, "/broadcasts/s1", 200, "HEAD,DELETE,GET,OPTIONS,PUT"),
            (Method::Get, "/broadcasts/s1/endpoint", 405, "DELETE,POST,OPTIONS"),
            (Method::Post, "/broadcasts/count", 405, "GET,OPTIONS"),
            (Method::Options, "/nothing", 404, ""),
        ] {
            assert_eq!(allowed(method, path), (status, allow.to_owned()), "{method} {path}");
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
                Base::Players => route.policy == Policy::Open && matches!(route.handler, Handler::App(_)),
                Base::Root => {
                    !matches!(route.policy, Policy::AppFilter | Policy::Dashboard)
                        && matches!(route.handler, Handler::Root(_))
                }
            };
            assert!(fits, "{} {}", route.method, route.path);
            assert!(route.policy != Policy::Scoped || route.path.contains('{'), "{}", route.path);
        }
    }
}
