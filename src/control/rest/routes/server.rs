//! Operations of the server: below `/rest/v2`, and two outside of the API.

use super::super::{RootHandler, root};
use super::{Base, BodyKind, Handler, Policy, Route};
use crate::http::Method;
use Method::Get;

/// Tags of the document.
const SERVER: &str = "server";

const fn server(
    path: &'static str,
    handler: RootHandler,
    gives: &'static str,
    summary: &'static str,
) -> Route {
    Route {
        method: Get,
        base: Base::Server,
        path,
        policy: Policy::Dashboard,
        body: BodyKind::None,
        takes: "",
        gives,
        query: &[],
        tag: SERVER,
        summary,
        handler: Handler::Root(handler),
    }
}

/// See the module.
pub(super) const ROUTES: &[Route] = &[
    server("/metrics", root::metrics, "application/openmetrics-text", "Figures for Prometheus"),
    server("/openapi.json", root::openapi, "application/json", "This document"),
];
