//! A row of the route table: an operation and who may use it.

use super::call::{AppHandler, RootHandler};
use crate::http::{Method, Request, Response};

/// The media type of WebVTT.
pub(super) const WEBVTT: &str = "text/vtt";

/// The base of a route's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// `/{app}/rest/v2`.
    App,
    /// `/rest/v2`.
    Root,
    /// The root, without a prefix.
    Server,
    /// `/{app}/analytic`.
    Players,
}

impl Base {
    /// Returns the prefix in the OpenAPI document.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::App => "/{app}/rest/v2",
            Self::Root => "/rest/v2",
            Self::Server => "",
            Self::Players => "/{app}/analytic",
        }
    }
}

/// The rule for access to a route. Routes of [`Base::Root`] and [`Base::Server`] first pass the dashboard's address
/// filter, whatever their policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Any client that passes the application's IP filter and token filter.
    AppFilter,
    /// The address list of metrics, or a login: `/metrics`, `/openapi.json`.
    Dashboard,
    /// Access without a login.
    Open,
    /// Any logged-in user, of any role.
    Login,
    /// Scope `system`: any role reads, administrators write.
    System,
    /// Scope `system`, or the application that the first parameter names: any role reads, administrators write.
    Scoped,
    /// The policy of the request in `_path`, which `proxy` checks.
    Proxied,
}

/// The kind of body that a request may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// No body is read.
    None,
    /// JSON, or no body.
    Json,
    /// JSON, WebVTT, or no body.
    JsonOrWebVtt,
    /// Files of a form.
    Multipart,
}

/// The handler of a route.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handler {
    /// An operation of an application.
    App(AppHandler),
    /// An operation of the server.
    Root(RootHandler),
}

/// A REST operation.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Method of the request.
    pub method: Method,
    /// The base of the path.
    pub base: Base,
    /// The path after the base.
    pub path: &'static str,
    /// Access policy.
    pub policy: Policy,
    /// Kind of body.
    pub body: BodyKind,
    /// Schema of the body; empty if there is none.
    pub takes: &'static str,
    /// Schema of a successful answer, or a media type; empty if there is no body. `[X]` is an array.
    pub gives: &'static str,
    /// Names of the query parameters.
    pub query: &'static [&'static str],
    /// True if the answer is a credential.
    pub gives_credential: bool,
    /// True if calls are answered by the node at which a stream is live, the stream that the first parameter names.
    pub at_origin: bool,
    /// Group of the operation in the document.
    pub tag: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    pub(super) handler: Handler,
}

impl Route {
    /// Sets the schema of a JSON body.
    pub(super) const fn takes(self, schema: &'static str) -> Self {
        Self { body: BodyKind::Json, takes: schema, ..self }
    }

    /// Sets the schema of a JSON body, and accepts WebVTT instead.
    pub(super) const fn takes_or_webvtt(self, schema: &'static str) -> Self {
        Self { body: BodyKind::JsonOrWebVtt, takes: schema, ..self }
    }

    /// Accepts the files of a form.
    pub(super) const fn multipart(self) -> Self {
        Self { body: BodyKind::Multipart, ..self }
    }

    /// Marks the answer as a credential: withheld from pages of other sites and from read-only users.
    pub(super) const fn credential(self) -> Self {
        Self { gives_credential: true, ..self }
    }

    /// Makes calls be answered by the node at which a stream is live, the stream that the first parameter names.
    pub(super) const fn at_origin(self) -> Self {
        Self { at_origin: true, ..self }
    }

    /// Sets the query parameters.
    pub(super) const fn query(self, names: &'static [&'static str]) -> Self {
        Self { query: names, ..self }
    }
}

/// Refuses a request with a body of the wrong type. Also refuses a request that does not accept JSON, if the answer
/// could only be JSON.
pub(super) fn refuse_media(route: &Route, request: &Request) -> Option<Response> {
    let is_json = || has_type(request, "application/json");
    let fits = match (route.base, route.body) {
        (_, BodyKind::Json) => is_json(),
        (_, BodyKind::JsonOrWebVtt) => is_json() || has_type(request, WEBVTT),
        (_, BodyKind::Multipart) => has_type(request, "multipart/form-data"),
        // Operations of an application accept no type of body but JSON, even operations that read no body.
        (Base::App, BodyKind::None) => {
            route.method == Method::Get || request.header("content-type").is_none() || is_json()
        }
        (Base::Root | Base::Server | Base::Players, BodyKind::None) => true,
    };
    let is_type = |value: &str| value.split(';').next().is_some_and(|essence| essence.contains('/'));
    if route.base == Base::App && request.header("content-type").is_some_and(|value| !is_type(value)) {
        return Some(Response::error(400, "Bad Request"));
    }
    if !fits {
        return Some(Response::error(415, "Unsupported Media Type"));
    }
    let is_taken = route.base == Base::Server || takes_json(request);
    (!is_taken).then(|| Response::error(406, "Not Acceptable"))
}

/// True if the `Accept` field of a request covers JSON (RFC 9110 §12.5.1); true without the field.
fn takes_json(request: &Request) -> bool {
    let mut ranges = request.headers.all("accept").flat_map(|value| value.split(','));
    let mut any = false;
    let takes = |range: &str| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is_json =
            ["*/*", "application/*", "application/json"].iter().any(|json| media.eq_ignore_ascii_case(json));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_json && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    };
    let found = ranges.any(|range| {
        any |= !range.trim().is_empty();
        takes(range)
    });
    found || !any
}

/// True if the request's media type is `wanted`, or the request has neither a body nor a media type.
pub(super) fn has_type(request: &Request, wanted: &str) -> bool {
    let Some(value) = request.header("content-type") else {
        return request.body.is_empty() && !request.body_waits;
    };
    let essence = value.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case(wanted)
}
