//! Content codings (RFC 9110 §8.4, §12.5.3): whether a client accepts gzip, and which responses are compressed.
//!
//! Small responses, and responses that gzip would not make smaller, are not compressed. Responses that are made for one
//! client ([`encode`]) are not compressed for browsers: a page of another site can make a browser send requests, and
//! the length of a compressed response reveals its content (docs/security.md). Content that is the same for all clients
//! (pages, playlists, manifests) is compressed only once, and for browsers, too.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::request::Headers;
use super::response::Response;

/// Minimum content length in bytes that is compressed.
pub const CODED_BYTES_MIN: usize = 1 << 10;
/// Maximum length in bytes of content that is compressed for a single response. It keeps a worker's turn short
/// (docs/benchmarks.md).
pub const CODED_BYTES_MAX: usize = 128 << 10;
/// Maximum length in bytes of content that is compressed once for all requests.
pub const SHARED_BYTES_MAX: usize = 512 << 10;
/// Name of the coding.
const GZIP: &str = "gzip";
/// Older name of the coding (RFC 9110 §8.4.1.3).
const X_GZIP: &str = "x-gzip";
/// Media types that are compressed, besides all text types.
const TYPES: [&str; 8] = [
    "application/json",
    "application/x-ndjson",
    "application/javascript",
    "application/xml",
    "application/openmetrics-text",
    "application/vnd.apple.mpegurl",
    "application/dash+xml",
    "image/svg+xml",
];
/// Header fields that identify a browser, or a proxy that forwards a browser's credentials.
const OF_BROWSERS: [&str; 4] = ["cookie", "origin", "referer", "sec-fetch-site"];

/// True if content of this media type is worth compressing.
#[must_use]
pub fn is_compressible(media_type: &str) -> bool {
    let plain = media_type.split(';').next().unwrap_or_default().trim();
    let is_text = plain.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    // Server-sent events are sent one by one. An encoder would delay them.
    is_text && !plain.eq_ignore_ascii_case("text/event-stream")
        || TYPES.iter().any(|known| known.eq_ignore_ascii_case(plain))
}

/// True if the client accepts gzip and does not prefer the identity coding.
#[must_use]
pub fn accepts_gzip(headers: &Headers) -> bool {
    let mut gzip = None::<u16>;
    let mut any = None::<u16>;
    let mut identity = None::<u16>;
    for item in headers.all("accept-encoding").flat_map(|value| value.split(',')) {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let (name, weight) = (name.trim(), weight_of(parameters));
        if name.eq_ignore_ascii_case(GZIP) || name.eq_ignore_ascii_case(X_GZIP) {
            gzip = gzip.max(Some(weight));
        } else if name == "*" {
            any = any.max(Some(weight));
        } else if name.eq_ignore_ascii_case("identity") {
            identity = identity.max(Some(weight));
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && identity.is_none_or(|identity| gzip >= identity)
}

/// Returns the weight in thousandths (RFC 9110 §12.4.2). Returns 0 if the weight cannot be parsed, so that the content
/// is not compressed.
fn weight_of(parameters: &str) -> u16 {
    let parameters = parameters.trim();
    if parameters.is_empty() {
        return 1000;
    }
    let Some((name, value)) = parameters.split_once('=') else { return 0 };
    let (whole, fraction) = value.trim().split_once('.').unwrap_or_else(|| (value.trim(), ""));
    let is_digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !name.trim().eq_ignore_ascii_case("q") || !is_digits {
        return 0;
    }
    match (whole, format!("{fraction:0<3}").parse::<u16>()) {
        ("0", Ok(thousandths)) => thousandths,
        ("1", Ok(0)) => 1000,
        _ => 0,
    }
}

/// True if a response with content for this client only may be compressed: the client accepts gzip and is not a
/// browser.
pub(super) fn takes_own_in_gzip(headers: &Headers) -> bool {
    accepts_gzip(headers) && !OF_BROWSERS.iter().any(|name| headers.count(name) > 0)
}

/// Compresses the content; `None` if that does not make it shorter.
#[must_use]
pub fn gzip(content: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(content.len() / 4), Compression::fast());
    let packed = encoder.write_all(content).and_then(|()| encoder.finish()).ok()?;
    (packed.len() < content.len()).then(|| packed.into())
}

/// Returns the entity tag of the content in gzip. It must differ from the tag of the uncompressed content (RFC 9110
/// §8.8.3.3).
#[must_use]
pub fn tag_in_gzip(etag: &str) -> String {
    etag.strip_suffix('"').map_or_else(|| etag.to_owned(), |start| format!("{start}-gz\""))
}

/// Adds `Vary: Accept-Encoding`.
pub fn vary(headers: &mut Headers) {
    headers.push("Vary", "Accept-Encoding");
}

/// Adds `Content-Encoding: gzip`.
pub fn mark(headers: &mut Headers) {
    headers.push("Content-Encoding", GZIP);
}

/// Compresses the body of a response that was made for one client, if that is allowed. A response that has chosen a
/// coding itself is not changed.
pub(super) fn encode(response: &mut Response, takes_gzip: bool) {
    let headers = &response.headers;
    let is_sized = (CODED_BYTES_MIN..=CODED_BYTES_MAX).contains(&response.body.len());
    let has_chosen = headers.has_token("vary", "accept-encoding") || headers.count("content-encoding") > 0;
    let is_kept = headers.has_token("cache-control", "no-transform") || headers.count("set-cookie") > 0;
    let fits = is_sized && is_compressible(headers.get("content-type").unwrap_or_default());
    if response.status != 200 || has_chosen || is_kept || !fits {
        return;
    }
    vary(&mut response.headers);
    if let Some(packed) = takes_gzip.then(|| gzip(&response.body)).flatten() {
        response.body = packed;
        mark(&mut response.headers);
        let tag = response.headers.get("etag").map(tag_in_gzip);
        if let Some(tag) = tag {
            response.headers.set("ETag", tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.push(*name, *value));
        headers
    }

    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (value, takes) in [
            ("gzip", true),
            ("GZIP", true),
            ("x-gzip", true),
            ("gzip, deflate, br", true),
            ("br;q=1.0, gzip;q=0.001", true),
            ("gzip ; Q=0.5", true),
            ("*", true),
            ("*;q=0.1", true),
            ("deflate, *", true),
            ("identity;q=0.5, gzip;q=1", true),
            ("identity, gzip", true),
            ("gzip;q=1.000", true),
            ("", false),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip;q=0, *", false),
            ("*;q=0", false),
            ("identity;q=1, gzip;q=0.5", false),
            ("identity", false),
            ("gzip;q=2", false),
            ("gzip;q=1.5", false),
            ("gzip;q=0.1234", false),
            ("gzip;q=-1", false),
            ("gzip;q=", false),
            ("gzip;level=9", false),
            ("gzipped", false),
        ] {
            assert_eq!(accepts_gzip(&headers(&[("Accept-Encoding", value)])), takes, "{value}");
        }
        assert!(!accepts_gzip(&headers(&[])));
        assert!(accepts_gzip(&headers(&[("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")])));
        proptest::proptest!(|(value: String)| { let _ = accepts_gzip(&headers(&[("Accept-Encoding", &value)])); });
    }

    #[test]
    fn media_are_no_text() {
        for media_type in [
            "text/html;charset=utf-8",
            "TEXT/plain; version=0.0.4",
            "application/json",
            "application/vnd.apple.mpegurl",
            "application/dash+xml",
            "image/svg+xml",
        ] {
            assert!(is_compressible(media_type), "{media_type}");
        }
        for media_type in
            ["video/mp2t", "video/mp4", "image/png", "text/event-stream", "application/sdp", "", "te"]
        {
            assert!(!is_compressible(media_type), "{media_type}");
        }
    }

    fn answer(bytes: usize, fields: &[(&str, &str)]) -> Response {
        let mut response = Response::json(200, "a".repeat(bytes));
        fields.iter().for_each(|(name, value)| response.headers.push(*name, *value));
        response
    }

    #[test]
    fn an_answer_is_coded_once_or_says_that_it_could_be() {
        // Columns: length in bytes, response fields, client accepts gzip; expected: is compressed, has `Vary`.
        for (bytes, fields, takes, coded, varies) in [
            (CODED_BYTES_MIN, &[][..], true, true, true),
            (CODED_BYTES_MIN, &[], false, false, true),
            (CODED_BYTES_MIN - 1, &[], true, false, false),
            (CODED_BYTES_MAX, &[], true, true, true),
            (CODED_BYTES_MAX + 1, &[], true, false, false),
            (5000, &[("Cache-Control", "no-store, no-transform")], true, false, false),
            (5000, &[("Set-Cookie", "a=b")], true, false, false),
            (5000, &[("Content-Encoding", "gzip")], true, false, false),
            (5000, &[("Vary", "Origin, Accept-Encoding")], true, false, true),
            (5000, &[("Vary", "Origin")], true, true, true),
        ] {
            let mut response = answer(bytes, fields);
            encode(&mut response, takes);
            let is_coded = response.body.len() != bytes;
            assert_eq!(is_coded, coded, "{bytes} {fields:?}");
            assert_eq!(response.headers.has_token("vary", "accept-encoding"), varies, "{bytes} {fields:?}");
            if is_coded {
                assert_eq!(response.headers.get("content-encoding"), Some("gzip"));
                assert_eq!(unpacked(&response.body), "a".repeat(bytes).into_bytes());
            }
        }
        for status in [201, 206, 404] {
            let mut response = Response { status, ..answer(5000, &[]) };
            encode(&mut response, true);
            assert_eq!(response.body.len(), 5000, "{status}");
        }
        let mut tagged = answer(5000, &[("ETag", "\"x\"")]);
        encode(&mut tagged, true);
        assert_eq!(tagged.headers.all("etag").collect::<Vec<_>>(), ["\"x-gz\""]);
    }

    #[test]
    fn what_does_not_become_shorter_goes_as_it_is() {
        let noise: Vec<u8> = (0..64u8).flat_map(|n| crypto::sha256(&[&[n]])).collect();
        assert_eq!(gzip(&noise), None);
        assert!(gzip(&[b'a'; 2000]).is_some_and(|packed| packed.len() < 100));
    }

    #[test]
    fn answers_of_their_own_are_not_compressed_for_browsers() {
        let takes = ("Accept-Encoding", "gzip");
        assert!(takes_own_in_gzip(&headers(&[takes])));
        assert!(takes_own_in_gzip(&headers(&[takes, ("Authorization", "Bearer x")])));
        for field in
            [("Cookie", "a=b"), ("Origin", "null"), ("Referer", "http://h/"), ("Sec-Fetch-Site", "none")]
        {
            assert!(!takes_own_in_gzip(&headers(&[takes, field])), "{field:?}");
        }
    }
}
