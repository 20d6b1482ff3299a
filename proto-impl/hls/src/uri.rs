//! URLs of playlists and segments, and resolution of relative references (RFC 3986 §5.2).
//!
//! URIs in a playlist determine where requests are sent, so only `http` and `https` with a plain host are
//! accepted. The owner of the connections decides which IP addresses may be contacted.

use std::fmt;

use crate::limits::URL_BYTES_MAX;

/// An absolute `http` or `https` URL without a fragment. It consists of characters allowed in a request line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: &'static str,
    authority: String,
    /// Path, which begins with a slash.
    path: String,
    query: Option<String>,
}

/// The reason a URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the URL is too long")]
    TooLong,
    /// A control character.
    #[error("the URL has a control character in it")]
    Control,
    /// A scheme other than `http` and `https`, or no scheme where one is required.
    #[error("the URL is neither http nor https")]
    Scheme,
    /// A user or a password before the host.
    #[error("the URL has credentials in it")]
    Credentials,
    /// No host, or an invalid port.
    #[error("the URL has no host that can be connected to")]
    Host,
}

/// The parts of a reference (RFC 3986 §4.1), without its fragment.
struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Self {
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let (text, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, text),
        };
        let Some(rest) = rest.strip_prefix("//") else {
            return Self { scheme, authority: None, path: rest, query };
        };
        let (authority, path) =
            rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
        Self { scheme, authority: Some(authority), path, query }
    }
}

impl Url {
    /// Reads an absolute URL, percent-encoding characters that are not allowed in one.
    ///
    /// # Errors
    /// Fails if the client must not send a request to the URL, for example because of its scheme.
    pub fn read(text: &str) -> Result<Self, UrlError> {
        check(text)?;
        let parts = Parts::read(text);
        let scheme = scheme(parts.scheme.ok_or(UrlError::Scheme)?)?;
        let authority = authority(parts.authority.ok_or(UrlError::Host)?)?;
        Self { scheme, authority, path: path(parts.path), query: parts.query.map(encoded) }.checked()
    }

    /// Resolves a reference found in a resource with this URL.
    ///
    /// # Errors
    /// Fails if the client must not send a request to the resolved URL.
    pub fn resolve(&self, reference: &str) -> Result<Self, UrlError> {
        check(reference)?;
        let parts = Parts::read(reference);
        if parts.scheme.is_some() {
            return Self::read(reference);
        }
        let query = parts.query.map(encoded);
        if let Some(text) = parts.authority {
            let authority = authority(text)?;
            return Self { scheme: self.scheme, authority, path: path(parts.path), query }.checked();
        }
        let (path, query) = match parts.path {
            "" => (self.path.clone(), query.or_else(|| self.query.clone())),
            absolute if absolute.starts_with('/') => (path(absolute), query),
            relative => {
                let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                (path(&format!("{folder}/{relative}")), query)
            }
        };
        Self { scheme: self.scheme, authority: self.authority.clone(), path, query }.checked()
    }

    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    fn checked(self) -> Result<Self, UrlError> {
        let query = self.query.as_ref().map_or(0, |query| query.len().saturating_add(1));
        let bytes = self.scheme.len().saturating_add(self.authority.len()).saturating_add(self.path.len());
        if bytes.saturating_add(query).saturating_add(3) > URL_BYTES_MAX {
            Err(UrlError::TooLong)
        } else {
            Ok(self)
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

fn check(text: &str) -> Result<(), UrlError> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong);
    }
    if text.chars().any(char::is_control) { Err(UrlError::Control) } else { Ok(()) }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn scheme(text: &str) -> Result<&'static str, UrlError> {
    ["http", "https"].into_iter().find(|known| text.eq_ignore_ascii_case(known)).ok_or(UrlError::Scheme)
}

fn authority(text: &str) -> Result<String, UrlError> {
    if text.contains('@') {
        return Err(UrlError::Credentials);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(UrlError::Host)?;
            let is_address = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            (address.bytes().all(is_address).then_some(address), port)
        }
        None => {
            let (host, port) =
                text.split_at_checked(text.find(':').unwrap_or(text.len())).unwrap_or((text, ""));
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            (host.bytes().all(is_name).then_some(host), port)
        }
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let is_right = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    host.filter(|host| !host.is_empty() && is_right).map(|_| text.to_owned()).ok_or(UrlError::Host)
}

/// An absolute path without dot segments (RFC 3986 §5.2.4).
fn path(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = text.strip_prefix('/').unwrap_or(text).split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
        if is_last && matches!(segment, "." | "..") {
            kept.push("");
        }
    }
    encoded(&format!("/{}", kept.join("/")))
}

/// Percent-encodes characters that are allowed in neither a path nor a query. Existing percent-encoding is
/// kept.
fn encoded(text: &str) -> String {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    let hex = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or('0');
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(reference: &str) -> Result<String, UrlError> {
        Url::read("http://a/b/c/d;p?q").unwrap().resolve(reference).map(|url| url.to_string())
    }

    /// RFC 3986 §5.4.1 and §5.4.2; fragments are not part of a request.
    #[test]
    fn references_of_the_rfc() {
        for (reference, wanted) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x", "/b/c/g;x"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
        ] {
            assert_eq!(resolved(reference), Ok(format!("http://a{wanted}")), "{reference}");
        }
        assert_eq!(resolved("//g").as_deref(), Ok("http://g/"));
        assert_eq!(resolved("HTTPS://g:8443/x y?é").as_deref(), Ok("https://g:8443/x%20y?%C3%A9"));
        assert_eq!(resolved("http://[::1]:80/a"), Ok("http://[::1]:80/a".to_owned()));
    }

    #[test]
    fn u_35_no_scheme_but_http_no_credentials_and_no_controls() {
        for (reference, error) in [
            ("file:///etc/passwd", UrlError::Scheme),
            ("g:h", UrlError::Scheme),
            ("http:g", UrlError::Host),
            ("data:text/plain,x", UrlError::Scheme),
            ("rtmp://a/b", UrlError::Scheme),
            ("http://user:pass@a/", UrlError::Credentials),
            ("//user@a/", UrlError::Credentials),
            ("a\r\nHost: b", UrlError::Control),
            ("a\0", UrlError::Control),
            ("http:///a", UrlError::Host),
            ("http://a:0/", UrlError::Host),
            ("http://a:65536/", UrlError::Host),
            ("http://a b/", UrlError::Host),
            ("http://[::1", UrlError::Host),
            ("http://a\\b/", UrlError::Host),
            ("http://:80/", UrlError::Host),
        ] {
            assert_eq!(resolved(reference), Err(error), "{reference}");
        }
        assert_eq!(Url::read("a/b"), Err(UrlError::Scheme));
        let long = "a".repeat(URL_BYTES_MAX - "http://a/".len());
        assert!(resolved(&format!("/{long}")).is_ok());
        assert_eq!(resolved(&format!("/{long}a")), Err(UrlError::TooLong));
        assert_eq!(resolved(&"é".repeat(URL_BYTES_MAX / 3)), Err(UrlError::TooLong), "encoded it is longer");
    }

    proptest! {
        #[test]
        fn what_was_resolved_reads_the_same(reference in "[a-c:/?#.@\\[\\]%é 0-9-]{0,24}") {
            if let Ok(url) = resolved(&reference) {
                prop_assert_eq!(Url::read(&url).map(|url| url.to_string()), Ok(url));
            }
        }
    }
}
