//! `/rest/v2/request?_path={app}/rest/v2/...`: the way in which the panel calls an application (docs/rest.md). The same
//! handlers run, and the application's filter sees 127.0.0.1, as in Ant Media Server.

use super::call::{Caller, Reply, RootCall, Sender};
use super::paths::split_path;
use super::route::Base;
use super::routes::{Found, find};
use crate::control::management::{Role, SYSTEM, User};
use crate::control::records::Records;
use crate::control::{Control, Now};
use crate::http::{Method, Request, Response};

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// Handles `/request` with any method.
pub(super) fn pass(control: &mut Control, now: Now, call: &RootCall<'_>) -> Reply {
    let user = call.caller.email().and_then(|email| control.records.auxiliary.user(email));
    let is_administrator =
        call.caller == Caller::Token || user.is_some_and(|user| user.role_in(SYSTEM) == Some(Role::Admin));
    let sender = Sender::Panel { is_administrator };
    match inner(call.request) {
        Some(request) => control.dispatch_app(now, &mut { call.origin.requester }, sender, &request),
        None => Reply::Now(Response::error(404, "Not Found")),
    }
}

/// True if a user may make the call: administrators of the scope may do anything, other roles may read, and plain users
/// may change streams and recordings.
pub(super) fn may_pass(user: &User, request: &Request) -> bool {
    let Some(inner) = inner(request) else { return user.role_in(SYSTEM).is_some() };
    let Some((app, rest)) = split_path(&inner.path) else { return user.role_in(SYSTEM).is_some() };
    let media = ["/v2/broadcasts", "/v2/vods"]
        .iter()
        .any(|known| rest.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let reads = matches!(inner.method, Method::Get | Method::Head);
    roles(user, app).any(|role| match role {
        Role::Admin => true,
        Role::User => media || reads,
        Role::ReadOnly => reads && !gives_credential(&inner, rest),
    })
}

fn roles(user: &User, app: &str) -> impl Iterator<Item = Role> {
    [SYSTEM, app].into_iter().filter_map(|scope| user.role_in(scope))
}

fn gives_credential(request: &Request, rest: &str) -> bool {
    let rest = rest.strip_prefix("/v2").unwrap_or(rest);
    matches!(find(Base::App, request.method, rest), Found::Route(route, _) if route.gives_credential)
}

/// True if a user may only read in an application.
pub(super) fn only_reads(records: &Records, caller: &Caller, app: &str) -> bool {
    let user = caller.email().and_then(|email| records.auxiliary.user(email));
    user.is_none_or(|user| roles(user, app).all(|role| role == Role::ReadOnly))
}

/// Returns the application that `_path` names.
pub(super) fn app_of(request: &Request) -> String {
    let inner = inner(request);
    let app = inner.as_ref().and_then(|inner| split_path(&inner.path)).map(|(app, _)| app);
    app.unwrap_or_default().to_owned()
}

/// Returns the request that `_path` describes; `None` if `_path` is missing or ambiguous.
fn inner(request: &Request) -> Option<Request> {
    let given = request.query_value("_path")?;
    let (path, more) = given.split_once('?').unwrap_or((given, ""));
    let path = normalised(path)?;
    let mut query: Vec<(String, String)> =
        request.query.iter().filter(|(name, _)| name != "_path").cloned().collect();
    query.extend(url::form_urlencoded::parse(more.as_bytes()).into_owned());
    Some(Request {
        method: request.method,
        version: request.version,
        target: String::new(),
        path,
        query,
        headers: request.headers.clone(),
        body: request.body.clone(),
        body_waits: request.body_waits,
    })
}

/// Normalises a path as the HTTP machine does: adds a leading slash and drops empty segments. `None` for a path with
/// dot segments, or with characters that another program might decode once more.
fn normalised(path: &str) -> Option<String> {
    let odd = |c: char| c.is_control() || c == '\\' || c == '%' || c == ';' || c == '#';
    if path.len() > PATH_BYTES_MAX || path.contains(odd) {
        return None;
    }
    let mut out = String::with_capacity(path.len() + 1);
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        if segment == "." || segment == ".." {
            return None;
        }
        out.push('/');
        out.push_str(segment);
    }
    if path.ends_with('/') {
        out.push('/');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_22_only_paths_of_one_reading_pass() {
        assert_eq!(normalised("live/rest/v2/version").as_deref(), Some("/live/rest/v2/version"));
        assert_eq!(normalised("//live//rest/v2/x").as_deref(), Some("/live/rest/v2/x"));
        for path in [
            "live/rest/v2/../../../rest/v2/users",
            "live/./rest",
            "live/rest/v2/%2e%2e/x",
            "live\\rest",
            "live/rest/v2/x;rest/v2/acm",
            "live/rest/v2/x\r\n",
            "live/rest/v2/x#y",
        ] {
            assert_eq!(normalised(path), None, "{path}");
        }
    }
}
