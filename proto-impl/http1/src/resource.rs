//! Conditional and range requests for a representation with a length, a tag and a date (RFC 9110 §13, §14).

use std::ops;
use std::time::{Duration, SystemTime};

use super::range::{Range, parse_range};
use super::request::{Method, Request};
use super::response::{Response, http_date};

/// A representation to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Length in bytes.
    pub length: u64,
    /// The entity tag, quotes included; strong (RFC 9110 §8.8.1).
    pub etag: String,
    /// Time of the last modification, in milliseconds since the Unix epoch.
    pub modified_ms: Option<u64>,
    /// Media type.
    pub content_type: &'static str,
}

/// The response: its head, and the bytes that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// 200, 206, 304, 412 or 416, without a body.
    pub head: Response,
    /// The bytes of the representation to send; `None` if the head is the whole response.
    pub part: Option<ops::Range<u64>>,
}

impl Resource {
    /// Selects the response to a GET or HEAD, in the order of RFC 9110 §13.2.2.
    #[must_use]
    pub fn select(&self, request: &Request) -> Selection {
        let only = |status| Selection { head: self.head(status), part: None };
        if self.precondition_failed(request) {
            return only(412);
        }
        if self.not_modified(request) {
            return only(304);
        }
        let range = match request.header("range") {
            // RFC 9110 §14.2: ranges apply only to GET.
            Some(range) if request.method == Method::Get && self.range_applies(request) => {
                parse_range(range, self.length)
            }
            Some(_) | None => Range::Whole,
        };
        match range {
            Range::Whole => {
                let mut head = self.head(200);
                head.head_length = Some(self.length);
                Selection { head, part: Some(0..self.length) }
            }
            Range::Part(part) => {
                let last = part.end.saturating_sub(1);
                let told = format!("bytes {}-{last}/{}", part.start, self.length);
                Selection { head: self.head(206).header("Content-Range", told), part: Some(part) }
            }
            Range::Unsatisfiable => {
                let head = self.head(416).header("Content-Range", format!("bytes */{}", self.length));
                Selection { head, part: None }
            }
        }
    }

    fn head(&self, status: u16) -> Response {
        let mut head = Response::empty(status);
        if status < 300 {
            head.headers.push("Content-Type", self.content_type);
        }
        if status < 400 {
            head.headers.push("ETag", self.etag.as_str());
            if let Some(ms) = self.modified_ms {
                head.headers.push("Last-Modified", http_date(ms));
            }
            head.headers.push("Accept-Ranges", "bytes");
        }
        head
    }

    /// True if `If-Match` or `If-Unmodified-Since` fails (RFC 9110 §13.1.1, §13.1.4).
    fn precondition_failed(&self, request: &Request) -> bool {
        if request.headers.count("if-match") > 0 {
            let strong = |tag: &str| tag == "*" || tag == self.etag;
            return !tags(request, "if-match").any(strong);
        }
        let since = request.header("if-unmodified-since").and_then(date);
        matches!((since, self.modified()), (Some(since), Some(modified)) if modified > since)
    }

    /// True if `If-None-Match` or `If-Modified-Since` says that the client's copy is current (RFC 9110 §13.1.2,
    /// §13.1.3). `If-Modified-Since` is ignored if `If-None-Match` is present.
    fn not_modified(&self, request: &Request) -> bool {
        if request.headers.count("if-none-match") > 0 {
            let weak = |tag: &str| tag == "*" || tag.trim_start_matches("W/") == self.etag;
            return tags(request, "if-none-match").any(weak);
        }
        let since = request.header("if-modified-since").and_then(date);
        matches!((since, self.modified()), (Some(since), Some(modified)) if modified <= since)
    }

    /// True if `If-Range` matches or is absent (RFC 9110 §13.1.5). If it does not match, the client has another
    /// version, for which a part would be useless.
    fn range_applies(&self, request: &Request) -> bool {
        match request.header("if-range") {
            None => true,
            Some(tag) if tag.contains('"') => tag == self.etag,
            Some(text) => date(text).is_some_and(|told| self.modified() == Some(told)),
        }
    }

    /// Returns the modification time in whole seconds, the precision of an HTTP date.
    fn modified(&self) -> Option<SystemTime> {
        let seconds = self.modified_ms?.checked_div(1000)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    }
}

/// Returns the entity tags in a list. A tag that contains a comma would be split, but the tags of this server
/// contain none.
fn tags<'a>(request: &'a Request, name: &'a str) -> impl Iterator<Item = &'a str> {
    request.headers.all(name).flat_map(|value| value.split(',')).map(str::trim)
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::request::{Headers, Version};
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn resource() -> Resource {
        Resource {
            length: 1000,
            etag: "\"abc\"".into(),
            modified_ms: Some(784_111_777_900),
            content_type: "video/mp4",
        }
    }

    fn select(method: Method, fields: &[(&str, &str)]) -> (u16, Option<ops::Range<u64>>) {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.push(*name, *value));
        let (target, path) = (String::new(), "/".to_owned());
        let (query, body, body_waits) = (Vec::new(), Bytes::new(), false);
        let version = Version::Http11;
        let request = Request { method, version, target, path, query, headers, body, body_waits };
        let selection = resource().select(&request);
        (selection.head.status, selection.part)
    }

    #[test]
    fn conditions_go_before_ranges() {
        let range = ("Range", "bytes=1-2");
        for (fields, want) in [
            (&[range][..], (206, Some(1..3))),
            (&[range, ("If-None-Match", "\"abc\"")], (304, None)),
            (&[("If-None-Match", "W/\"abc\"")], (304, None)),
            (&[("If-None-Match", "\"x\", \"abc\"")], (304, None)),
            (&[("If-None-Match", "*")], (304, None)),
            (&[("If-None-Match", "\"x\""), ("If-Modified-Since", DATE)], (200, Some(0..1000))),
            (&[("If-Modified-Since", DATE)], (304, None)),
            (&[("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], (200, Some(0..1000))),
            (&[("If-Modified-Since", "yesterday")], (200, Some(0..1000))),
            (&[("If-Match", "\"x\"")], (412, None)),
            (&[("If-Match", "\"abc\"")], (200, Some(0..1000))),
            (&[("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], (412, None)),
            (&[range, ("If-Range", "\"abc\"")], (206, Some(1..3))),
            (&[range, ("If-Range", "W/\"abc\"")], (200, Some(0..1000))),
            (&[range, ("If-Range", "\"x\"")], (200, Some(0..1000))),
            (&[range, ("If-Range", DATE)], (206, Some(1..3))),
            (&[range, ("If-Range", "Sun, 06 Nov 1994 08:49:38 GMT")], (200, Some(0..1000))),
            (&[("Range", "bytes=1000-")], (416, None)),
        ] {
            assert_eq!(select(Method::Get, fields), want, "{fields:?}");
        }
        assert_eq!(select(Method::Head, &[range]), (200, Some(0..1000)));
    }
}
