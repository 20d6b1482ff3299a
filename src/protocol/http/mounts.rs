//! The table of mounts on the HTTP ports. It has first the API, then the mounts of other protocols
//! ([`Protocol::mounts`](crate::protocol::row::Protocol)), then files. The first mount that matches is used.

use std::sync::LazyLock;

use super::HttpSession;
use crate::http::cors;
use crate::http::{BodyKind, Captures, Cors, Method, Methods, Mount, Mounts, Request};
use crate::protocol::{Context, registry};

/// Handles a request: answers it, or starts a responder.
pub type Handler = fn(&mut HttpSession, &Context<'_>, Asked);

/// A request for a mount, with the results of routing.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// The names captured from its path.
    pub captures: Captures,
    /// Fields added to every response.
    pub fields: Vec<(&'static str, String)>,
}

impl Asked {
    /// Adds the header fields of API responses. Such responses are not pages: they load nothing and cannot
    /// be framed.
    pub(super) fn of_api(mut self) -> Self {
        if !self.fields.iter().any(|(name, _)| *name == cors::CONTENT_SECURITY_POLICY) {
            self.fields.push((cors::CONTENT_SECURITY_POLICY, API_POLICY.to_owned()));
        }
        self.fields.push(("X-Frame-Options", "DENY".to_owned()));
        self
    }

    /// Returns the part of the path that the mount's pattern captures as `name`; empty if there is none.
    #[must_use]
    pub fn name(&self, name: &str) -> &str {
        self.captures.get(&self.request.path, name).unwrap_or_default()
    }
}

/// Content security policy of API responses.
const API_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// Path of the API call that uploads a file to an application.
const UPLOADS: &str = "/rest/v2/vods/create";
/// Methods of a read-only resource.
const READ: Methods = Methods::These(&[Method::Get, Method::Head]);

/// The mounts of all protocols.
static ROWS: LazyLock<Vec<Mount<Handler>>> =
    LazyLock::new(|| API.iter().chain(registry::mounts()).chain(FILES).copied().collect());

/// The table of all mounts.
pub(super) static MOUNTS: LazyLock<Mounts<Handler>> = LazyLock::new(|| Mounts(ROWS.as_slice()));

/// Mounts of the API. They come before those of other protocols.
const API: &[Mount<Handler>] = &[
    // The API has its own table of routes, `crate::control::rest`, which checks methods and bodies.
    Mount {
        path: "/rest/v2/live/{*}",
        methods: Methods::Any,
        body: BodyKind::AfterHead,
        cors: Cors::NAMED,
        handler: HttpSession::feed,
    },
    // An uploaded file is read as it arrives. This also applies to uploads through the panel's path.
    upload("/rest/v2/request", Cors::NAMED, |method, query| {
        let is_upload = |path: &str| path.split('?').next().is_some_and(|path| path.ends_with(UPLOADS));
        method == Method::Post && query.iter().any(|(name, path)| name == "_path" && is_upload(path))
    }),
    upload("/{any}/rest/v2/vods/create", Cors::TOKENS, |method, _| method == Method::Post),
    // A viewer who may play a stream may also get its picture; the right to manage the stream is not needed.
    read("/{app}/rest/v2/broadcasts/{id}/snapshot", HttpSession::snapshot),
    api("/rest/{*}", Cors::NAMED),
    api("/metrics", Cors::NAMED),
    api("/openapi.json", Cors::NAMED),
    api("/{any}/rest/{*}", Cors::TOKENS),
    // Players on any page send these reports, so no check is made before the body is read.
    Mount { body: BodyKind::Any, ..api("/{any}/analytic/{*}", Cors::ANYONE) },
];

/// Mounts that follow those of other protocols.
const FILES: &[Mount<Handler>] = &[
    // The path at which a certificate authority fetches the answer to its challenge (RFC 8555 §8.3).
    read("/.well-known/acme-challenge/{token}", HttpSession::challenge),
    // A blob that is published under the path, a file below `webapps`, or a built-in page.
    read("/{*}", HttpSession::file),
];

const fn api(path: &'static str, cors: Cors) -> Mount<Handler> {
    Mount { path, methods: Methods::Any, body: BodyKind::AfterHead, cors, handler: HttpSession::control }
}

const fn upload(
    path: &'static str,
    cors: Cors,
    is_upload: fn(Method, &[(String, String)]) -> bool,
) -> Mount<Handler> {
    Mount { body: BodyKind::Streamed(is_upload), handler: HttpSession::upload, ..api(path, cors) }
}

const fn read(path: &'static str, handler: Handler) -> Mount<Handler> {
    Mount { path, methods: READ, body: BodyKind::Any, cors: Cors::MEDIA, handler }
}
