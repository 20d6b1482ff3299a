//! Answers as their requesters may see them: read-only users see where credentials are, but not the credentials.
//!
//! A [`Requester`] sees masked answers until it is identified. Every answer is made for a requester ([`Shown`]), and
//! nothing else can be sent as an answer.

use std::borrow::Cow;

use serde_json::Value;

use super::rest::LINES;
use crate::http::Response;
use crate::types::SessionRef;

/// Text that replaces a credential.
const MASK: &str = "***";
/// Members that are credentials as a whole.
const SECRETS: [&str; 4] = ["password", "b32Secret", "publishKey", "tokenId"];
/// Name suffixes of members that are URLs. A URL may contain stream keys and passwords after its scheme.
const URL_ENDINGS: [&str; 2] = ["url", "endpoint"];
/// Member with the address of a camera, with or without a scheme.
const CAMERA: &str = "ipAddr";
/// Member with a URL that contains no credential and is not masked.
const OWN_URL: &str = "rtmpURL";

/// The part of an answer that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Whole,
    Masked,
}

/// A session that waits for an answer, with its right to see credentials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester {
    session: SessionRef,
    view: View,
}

impl Requester {
    /// Makes a requester that is not identified yet.
    pub(super) const fn unknown(session: SessionRef) -> Self {
        Self { session, view: View::Masked }
    }

    /// Returns the same requester; it may see credentials if `all` is true, and may not otherwise.
    pub(super) const fn seeing(self, all: bool) -> Self {
        Self { view: if all { View::Whole } else { View::Masked }, ..self }
    }

    /// Returns the value of a setting as this requester may see it.
    pub(super) fn member<'a>(self, name: &str, text: &'a str) -> Cow<'a, str> {
        if self.is_masked() { masked_member(name, text) } else { Cow::Borrowed(text) }
    }

    /// Returns the session that waits for the answer.
    pub(super) const fn session(self) -> SessionRef {
        self.session
    }

    /// True if credentials are masked.
    pub(super) const fn is_masked(self) -> bool {
        matches!(self.view, View::Masked)
    }

    /// Returns the answer as this requester may see it.
    pub(super) fn shown(self, response: Response) -> Shown {
        Shown(match self.view {
            View::Whole => response,
            View::Masked => masked(response),
        })
    }
}

/// An answer reduced to what its requester may see.
#[derive(Debug)]
pub(super) struct Shown(Response);

impl Shown {
    pub(super) const fn response(&self) -> &Response {
        &self.0
    }

    pub(super) fn into_response(self) -> Response {
        self.0
    }
}

/// A list built item by item, as its requester may see it.
#[derive(Debug)]
pub(super) struct ShownList {
    requester: Requester,
    json: Vec<u8>,
    items: usize,
    /// True if further items were left out.
    pub(super) is_cut: bool,
}

impl ShownList {
    /// Makes an empty list for a requester.
    pub(super) const fn of(requester: Requester) -> Self {
        Self { requester, json: Vec::new(), items: 0, is_cut: false }
    }

    /// Adds an item. Malformed JSON is counted, but not shown.
    pub(super) fn push(&mut self, item: &[u8]) {
        self.items = self.items.saturating_add(1);
        let masked = if self.requester.is_masked() { Some(masked_text(item)) } else { None };
        let shown = match &masked {
            Some(Some(masked)) => masked.as_slice(),
            Some(None) => &[],
            None => item,
        };
        if !shown.is_empty() {
            self.json.push(if self.json.is_empty() { b'[' } else { b',' });
            self.json.extend_from_slice(shown);
        }
    }

    /// Number of items added.
    pub(super) const fn items(&self) -> usize {
        self.items
    }

    /// Number of bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.json.len()
    }

    /// Returns the list as an answer, with an extra header field.
    pub(super) fn finish(mut self, field: Option<(&str, String)>) -> Shown {
        if self.json.is_empty() {
            self.json.push(b'[');
        }
        self.json.push(b']');
        let response = Response::json(200, self.json);
        Shown(match field {
            Some((name, value)) => response.header(name, value),
            None => response,
        })
    }
}

/// Removes the credentials from the JSON of an answer. Malformed JSON is not sent. Answers of other media types
/// contain no credentials.
fn masked(mut response: Response) -> Response {
    let media = response.headers.get("content-type").unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    let body = if response.body.is_empty() {
        return response;
    } else if media.eq_ignore_ascii_case("application/json") {
        masked_text(&response.body)
    } else if media.eq_ignore_ascii_case(LINES) {
        masked_lines(&response.body)
    } else {
        return response;
    };
    match body {
        Some(body) => {
            response.body = body.into();
            response
        }
        None => Response::error(500, "Internal Server Error"),
    }
}

fn masked_lines(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        out.extend(masked_text(line)?);
        out.push(b'\n');
    }
    Some(out)
}

fn masked_text(text: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    mask(&mut value);
    Some(value.to_string().into_bytes())
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) => {
                        if let Cow::Owned(hidden) = masked_member(name, text) {
                            *text = hidden;
                        }
                    }
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                        mask(value)
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_url(name: &str) -> bool {
    let ends = |ending: &str| {
        let at = name.len().checked_sub(ending.len());
        at.and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
    };
    name != OWN_URL && URL_ENDINGS.iter().any(|ending| ends(ending))
}

/// Returns the value of a member or setting with this name, without credentials.
fn masked_member<'a>(name: &str, text: &'a str) -> Cow<'a, str> {
    let shown = if SECRETS.contains(&name) {
        ""
    } else if name == CAMERA && !text.contains("://") {
        camera_host(text)
    } else if name == CAMERA || is_url(name) {
        visible(text)
    } else {
        text
    };
    if shown == text { Cow::Borrowed(text) } else { Cow::Owned(format!("{shown}{MASK}")) }
}

/// Returns the address and port of a camera; empty if a user name precedes them.
fn camera_host(text: &str) -> &str {
    let host = text.split(['/', '?']).next().unwrap_or_default();
    let host = if host == text { host } else { host.strip_suffix(MASK).unwrap_or(host) };
    if host.contains('@') { "" } else { host }
}

/// Returns the scheme and authority of a URL without path and query; empty if the text is not a URL. A URL that is
/// masked already is returned unchanged.
fn visible(url: &str) -> &str {
    let Some(at) = url.find("://").and_then(|at| at.checked_add(3)) else { return "" };
    let Some((scheme, rest)) = url.split_at_checked(at) else { return "" };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.strip_suffix(MASK).unwrap_or(authority);
    // A user name or password stands before `@`, and neither may be shown.
    if authority.contains('@') {
        scheme
    } else {
        url.get(..at.saturating_add(authority.len())).unwrap_or(scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ConnId, WorkerId};

    fn reader() -> Requester {
        Requester::unknown(SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 }))
    }

    fn seen(response: Response) -> Response {
        reader().shown(response).into_response()
    }

    #[test]
    fn credentials_go_and_all_else_stays_in_its_order() {
        let text = r#"[{"z":1,"password":"p","publishKey":"k","username":"u","streamUrl":"rtsp://u:p@cam/1","endPointList":[{"endpointUrl":"rtmp://a.example:1935/app/key","status":"x"}],"listenerHookURL":"http://h?secret=1","webhookPlayAuthUrl":"http://h/k","s3Endpoint":"http://u:p@h/k","rtmpURL":"rtmp://h/live/id","name":null,"url":"","ipAddr":"u:p@10.0.0.7/x"}]"#;
        let wanted = r#"[{"z":1,"password":"***","publishKey":"***","username":"u","streamUrl":"rtsp://***","endPointList":[{"endpointUrl":"rtmp://a.example:1935***","status":"x"}],"listenerHookURL":"http://h***","webhookPlayAuthUrl":"http://h***","s3Endpoint":"http://***","rtmpURL":"rtmp://h/live/id","name":null,"url":"","ipAddr":"***"}]"#;
        assert_eq!(seen(Response::json(200, text.to_owned())).body, wanted);
        assert_eq!(seen(Response::json(200, wanted.to_owned())).body, wanted, "a masked one stays as it is");
        assert_eq!(reader().seeing(true).shown(Response::json(200, text.to_owned())).response().body, text);
        assert_eq!(seen(Response::text(200, "plain".to_owned())).body, "plain");
    }

    #[test]
    fn cameras_keep_their_address() {
        for (text, wanted) in [
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.7:8080", "10.0.0.7:8080"),
            ("10.0.0.7/path?key=1", "10.0.0.7***"),
            ("u:p@10.0.0.7", "***"),
            ("rtsp://u:p@10.0.0.7/x", "rtsp://***"),
            ("", ""),
        ] {
            assert_eq!(masked_member("ipAddr", text), wanted, "{text}");
        }
    }

    #[test]
    fn lines_are_masked_one_by_one_and_unreadable_json_is_not_sent() {
        let lines = "{\"password\":\"p\"}\n{\"a\":1}\n";
        let response = seen(Response::with_body(200, LINES, lines));
        assert_eq!(response.body, "{\"password\":\"***\"}\n{\"a\":1}\n");
        for media in ["application/json", "application/json;charset=utf-8", LINES] {
            let response = seen(Response::with_body(200, media, "{\"password\":\"p\""));
            assert_eq!(response.status, 500, "{media}");
            assert!(!String::from_utf8_lossy(&response.body).contains("\"p\""));
        }
    }
}
