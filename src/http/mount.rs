//! Mounts: the entries of the table that assigns requests to handlers. A mount has a path, methods, a kind of body, a
//! cross-origin policy and a handler. Its rules are enforced here, in the same way for all handlers: 405 with `Allow`
//! (RFC 9110 §15.5.6), OPTIONS (§9.3.7), 415 (§15.5.16). Before the HTTP state machine reads a body, it asks the mounts
//! for the maximum length (§15.5.14).
//!
//! A path pattern consists of segments: a word matches itself, `{app}` an existing application, `{name}` any
//! segment, `{name}.flv` a segment with that ending, and a final `{*}` the rest of the path, which may be empty.
//! The first matching mount applies.

use std::fmt::Debug;
use std::ops::Range;

use super::{BodyLimits, Intake, Method, Request, Response, cors};

/// Name of the capture that matches only the name of an existing application.
const APP: &str = "app";
/// Matches the rest of a path.
const REST: &str = "{*}";

/// An entry of the table that assigns requests to handlers, by path and method.
#[derive(Debug, Clone, Copy)]
pub struct Mount<H> {
    /// The pattern of the mount's paths, as described in the module.
    pub path: &'static str,
    /// The methods that the mount accepts.
    pub methods: Methods,
    /// The bodies that the mount accepts.
    pub body: BodyKind,
    /// The policy for pages of other origins.
    pub cors: Cors,
    /// Names the code that answers the requests.
    pub handler: H,
}

/// The methods that a mount accepts. OPTIONS is answered automatically unless it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Methods {
    /// Any method; the handler decides.
    Any,
    /// Only the methods listed, and HEAD if GET is listed.
    These(&'static [Method]),
}

/// The request bodies that a mount accepts.
#[derive(Debug, Clone, Copy)]
pub enum BodyKind {
    /// Any body that the connection accepts. The handler ignores the body or checks it.
    Any,
    /// Any body that the connection accepts. If the whole body has arrived together with the head, the handler gets
    /// both together. Otherwise it gets the head first, and must then accept the body.
    AfterHead,
    /// POST, PUT and PATCH must carry one of these media types.
    Of {
        /// The media types, in lower case, without parameters.
        types: &'static [&'static str],
        /// Maximum length in bytes; longer bodies are refused before they are read.
        bytes_max: usize,
    },
    /// Like [`Self::AfterHead`]. In addition, if the function returns true for the method and query of a request, its
    /// body may have any length.
    Streamed(fn(Method, &[(String, String)]) -> bool),
}

/// The cross-origin policy of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cors {
    /// The pages that may send requests.
    pub pages: Pages,
    /// Methods that pages may use, in the form of `Access-Control-Allow-Methods`.
    pub methods: &'static str,
    /// Header fields that pages may send, in the form of `Access-Control-Allow-Headers`, or [`cors::ANY_FIELD`].
    pub fields: &'static str,
    /// Response fields that pages may read, in the form of `Access-Control-Expose-Headers`.
    pub exposed: Option<&'static str>,
    /// True if caches between clients and server may store the responses.
    pub is_cached: bool,
}

/// The pages that may send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Pages of any origin.
    Any,
    /// Pages of the origins named by the operator.
    Named,
    /// If requests need a token: pages of any origin. Otherwise: pages of the named origins, and all other pages only
    /// for reading.
    Tokens,
}

impl Cors {
    /// Pages of any origin.
    pub const ANYONE: Self = Self {
        pages: Pages::Any,
        methods: cors::METHODS,
        fields: cors::FIELDS,
        exposed: None,
        is_cached: false,
    };
    /// Pages of any origin, with any header field, because players add their own.
    pub const MEDIA: Self = Self { fields: cors::ANY_FIELD, is_cached: true, ..Self::ANYONE };
    /// Pages of the origins named by the operator.
    pub const NAMED: Self = Self { pages: Pages::Named, ..Self::ANYONE };
    /// Pages of any origin if requests need a token. Otherwise, pages of the named origins.
    pub const TOKENS: Self = Self { pages: Pages::Tokens, ..Self::ANYONE };

    /// Returns the policy, given the names of the server, the named origins, and whether requests need a token.
    #[must_use]
    pub const fn policy<'a>(
        self,
        names: &'a [String],
        origins: &'a [String],
        needs_token: bool,
    ) -> cors::Policy<'a> {
        let origins = match self.pages {
            Pages::Any => cors::Origins::Anyone,
            Pages::Tokens if needs_token => cors::Origins::Anyone,
            Pages::Tokens => cors::Origins::Readers(origins),
            Pages::Named => cors::Origins::Named(origins),
        };
        let Self { methods, fields, exposed, is_cached, .. } = self;
        cors::Policy { names, origins, methods, fields, exposed, is_cached }
    }
}

/// The captured names of a pattern in a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captures(Vec<(&'static str, Range<usize>)>);

impl Captures {
    /// Returns the part of `path` that was captured as `name`. `path` must be the path that was matched.
    #[must_use]
    pub fn get<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        let (_, range) = self.0.iter().find(|(known, _)| *known == name)?;
        path.get(range.clone())
    }
}

/// A table of mounts.
#[derive(Debug, Clone, Copy)]
pub struct Mounts<H: 'static>(pub &'static [Mount<H>]);

impl<H> Mounts<H> {
    /// Returns the first mount whose pattern matches the path, and the parts of the path that the pattern captures.
    pub fn find(&self, path: &str, is_app: impl Fn(&str) -> bool) -> Option<(&'static Mount<H>, Captures)> {
        self.0.iter().find_map(|mount| Some((mount, captures(mount.path, path, &is_app)?)))
    }
}

impl<H: Debug + Sync> BodyLimits for Mounts<H> {
    fn body_bytes_max(&self, path: &str) -> Option<usize> {
        match self.find(path, |_| true)?.0.body {
            BodyKind::Any | BodyKind::AfterHead | BodyKind::Streamed(_) => None,
            BodyKind::Of { bytes_max, .. } => Some(bytes_max),
        }
    }

    fn intake(&self, method: Method, path: &str, query: &[(String, String)]) -> Intake {
        match self.find(path, |_| true).map(|(mount, _)| mount.body) {
            Some(BodyKind::Streamed(is_streamed)) if is_streamed(method, query) => Intake::Streamed,
            Some(BodyKind::Streamed(_) | BodyKind::AfterHead) => Intake::AfterHead,
            Some(BodyKind::Any | BodyKind::Of { .. }) | None => Intake::Whole,
        }
    }
}

impl<H> Mount<H> {
    /// Returns the response if the request is to be answered without this mount's handler; `None` if the handler must
    /// see the request.
    #[must_use]
    pub fn refusal(&self, request: &Request) -> Option<Response> {
        let Methods::These(methods) = self.methods else { return None };
        let is_head = request.method == Method::Head && methods.contains(&Method::Get);
        if !is_head && !methods.contains(&request.method) {
            let response = match request.method {
                Method::Options => Response::empty(200),
                Method::Get | Method::Head | Method::Post | Method::Put | Method::Delete | Method::Patch => {
                    Response::error(405, "Method Not Allowed")
                }
            };
            return Some(response.header("Allow", allow(methods)));
        }
        let BodyKind::Of { types, .. } = self.body else { return None };
        let is_read = matches!(request.method, Method::Post | Method::Put | Method::Patch);
        let has_type = types.iter().any(|known| request.media_type().eq_ignore_ascii_case(known));
        (is_read && !has_type)
            .then(|| Response::error(415, "Unsupported Media Type").header("Accept", types.join(", ")))
    }
}

/// Lists the accepted methods as in the field `Allow`, with HEAD if GET is accepted, and with OPTIONS.
fn allow(methods: &[Method]) -> String {
    let mut names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    if methods.contains(&Method::Get) && !methods.contains(&Method::Head) {
        names.push(Method::Head.as_str());
    }
    if !methods.contains(&Method::Options) {
        names.push(Method::Options.as_str());
    }
    names.join(", ")
}

/// Matches a path against a pattern; `None` if it does not fit.
fn captures(pattern: &'static str, path: &str, is_app: &impl Fn(&str) -> bool) -> Option<Captures> {
    let mut captures = Captures::default();
    // The path `*`, which OPTIONS may request, matches only the pattern `{*}`.
    let mut left = path.strip_prefix('/').map(|left| (1usize, left));
    for part in pattern.split('/').skip(1) {
        if part == REST {
            return Some(captures);
        }
        let (at, text) = left?;
        let (segment, behind) = match text.split_once('/') {
            Some((segment, behind)) => {
                (segment, Some((at.saturating_add(segment.len()).saturating_add(1), behind)))
            }
            None => (text, None),
        };
        left = behind;
        let Some((name, ending)) = part.strip_prefix('{').and_then(|part| part.split_once('}')) else {
            if segment != part {
                return None;
            }
            continue;
        };
        let value = segment.strip_suffix(ending).filter(|value| !value.is_empty())?;
        if name == APP && !is_app(value) {
            return None;
        }
        captures.0.push((name, at..at.saturating_add(value.len())));
    }
    left.is_none().then_some(captures)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{Headers, Version};
    use super::*;

    const TABLE: Mounts<&str> = Mounts(&[
        row("/rest/{*}", Methods::Any, BodyKind::Any, "management"),
        row("/metrics", Methods::Any, BodyKind::Any, "metrics"),
        row("/{any}/rest/{*}", Methods::Any, BodyKind::Any, "api"),
        row("/{app}/{id}.flv", Methods::These(&[Method::Get]), BodyKind::Any, "live"),
        row("/{app}/whip/{id}", Methods::These(&[Method::Post, Method::Delete]), SDP, "whip"),
        row("/{*}", Methods::These(&[Method::Get]), BodyKind::Any, "file"),
    ]);

    const SDP: BodyKind = BodyKind::Of { types: &["application/sdp"], bytes_max: 1000 };

    const fn row(
        path: &'static str,
        methods: Methods,
        body: BodyKind,
        handler: &'static str,
    ) -> Mount<&'static str> {
        Mount { path, methods, body, cors: Cors::ANYONE, handler }
    }

    fn find(path: &str) -> (&'static Mount<&'static str>, Captures) {
        TABLE.find(path, |name| name == "live").unwrap()
    }

    #[test]
    fn the_first_row_that_fits_counts() {
        for (path, handler) in [
            ("/rest", "management"),
            ("/rest/v2/version", "management"),
            ("/restless", "file"),
            ("/metrics", "metrics"),
            ("/metrics/", "file"),
            ("/live/rest", "api"),
            ("/other/rest/v2/broadcasts", "api"),
            ("/live/cam.flv", "live"),
            ("/live/.flv", "file"),
            ("/other/cam.flv", "file"),
            ("/live/cam.flv/x", "file"),
            ("/live/whip/cam", "whip"),
            ("/live/whip/", "file"),
            ("/live/whip", "file"),
            ("/", "file"),
            ("*", "file"),
        ] {
            assert_eq!(find(path).0.handler, handler, "{path}");
        }
    }

    #[test]
    fn names_stand_for_segments() {
        let path = "/live/cam.1.flv";
        let (_, captures) = find(path);
        assert_eq!((captures.get(path, "app"), captures.get(path, "id")), (Some("live"), Some("cam.1")));
        assert_eq!(captures.get(path, "other"), None);
    }

    fn refusal(method: Method, path: &str, content_type: &str) -> Option<(u16, String)> {
        let mut headers = Headers::new();
        headers.push("Content-Type", content_type);
        let (query, body) = (Vec::new(), Bytes::new());
        let target = String::new();
        let request = Request {
            method,
            version: Version::Http11,
            target,
            path: path.to_owned(),
            query,
            headers,
            body,
            body_waits: false,
        };
        let response = find(path).0.refusal(&request)?;
        let field = ["allow", "accept"].iter().find_map(|name| response.headers.get(name));
        Some((response.status, field.unwrap_or_default().to_owned()))
    }

    #[test]
    fn methods_and_bodies_follow_from_the_row() {
        let allow = |status, methods: &str| Some((status, methods.to_owned()));
        assert_eq!(refusal(Method::Put, "/live/x.flv", ""), allow(405, "GET, HEAD, OPTIONS"));
        assert_eq!(refusal(Method::Options, "/live/x.flv", ""), allow(200, "GET, HEAD, OPTIONS"));
        assert_eq!(refusal(Method::Head, "/live/x.flv", ""), None);
        assert_eq!(refusal(Method::Get, "/live/whip/cam", ""), allow(405, "POST, DELETE, OPTIONS"));
        assert_eq!(refusal(Method::Post, "/live/whip/cam", "text/plain"), allow(415, "application/sdp"));
        assert_eq!(refusal(Method::Post, "/live/whip/cam", "Application/SDP; charset=utf-8"), None);
        assert_eq!(refusal(Method::Delete, "/live/whip/cam", ""), None);
        assert_eq!(refusal(Method::Patch, "/rest/v2/x", ""), None);
        assert_eq!(
            (TABLE.body_bytes_max("/x/whip/cam"), TABLE.body_bytes_max("/live/x.flv")),
            (Some(1000), None)
        );
    }
}
