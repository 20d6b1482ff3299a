//! The route table: every operation there is, with who may use it. What is not here does not exist; what is here
//! has a policy, because a [`Route`] cannot be made without one. The OpenAPI document is made from it
//! ([`super::openapi`]).
//!
//! A row: method, path, handler, tag, summary; then what it takes and gives. `{name}` in a path is a parameter, literal
//! paths stand before those with parameters.

mod apps;
mod server;

use super::call::PARAMS_MAX;
use super::paths::match_path;
use super::route::{Base, Route};
use crate::http::{Method, Response};

/// Parts of a path after `rest/v2`.
const SEGMENTS_MAX: usize = 8;

/// Every operation there is.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    server::ROUTES.iter().chain(apps::ROUTES)
}

/// The result of looking up a request.
pub(super) enum Found<'a> {
    Route(&'static Route, [&'a str; PARAMS_MAX]),
    /// The path is there, for these methods.
    Methods(Vec<&'static str>),
    Nothing,
}

impl Found<'_> {
    /// The refusal, when there is no route.
    pub(super) fn refusal(self) -> Response {
        match self {
            Self::Methods(allowed) => {
                Response::error(405, "Method Not Allowed").header("Allow", allowed.join(", "))
            }
            Self::Route(..) | Self::Nothing => Response::error(404, "Not Found"),
        }
    }
}

/// Looks a path up; HEAD is GET without the body, which the connection leaves out.
pub(super) fn find(base: Base, method: Method, path: &str) -> Found<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::rest::route::{Handler, Policy};

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
}
