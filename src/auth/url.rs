//! URLs from operators and API clients. Only the text is parsed here; the allowed addresses are up to the
//! [policy](super::outbound).

use std::fmt;

/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 4096;
/// Longest host name, in bytes (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 253;
/// Shortest part of a URL that counts as a key, in bytes. Shorter ones may be words.
const KEY_BYTES_MIN: usize = 9;

/// Reasons for refusing a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Over 4096 bytes.
    #[error("the URL is too long")]
    TooLong,
    /// A blank, a control character or a non-ASCII character.
    #[error("the URL contains an invalid character")]
    Character,
    /// Not one of the supported schemes, in lower case.
    #[error("the scheme is not supported")]
    Scheme,
    /// User name and password before the host.
    #[error("credentials in the URL are not supported")]
    Credentials,
    /// Missing or invalid host.
    #[error("the host is not valid")]
    Host,
    /// Port 0, over 65535, or missing for a scheme without a default port.
    #[error("the port is not valid")]
    Port,
    /// No stream name.
    #[error("the stream name is missing")]
    Name,
    /// An option of the query with an invalid value.
    #[error("{0} in the URL is not valid")]
    Option(&'static str),
    /// A resource that this version cannot fetch; the text is shown to the client.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// A URL, split only into the parts that all schemes share. Each protocol parses the part after the authority itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Url<'a> {
    /// Scheme as written; upper case is refused.
    pub scheme: &'a str,
    /// Text between `://` and the path.
    pub authority: &'a str,
    /// Path, query and fragment, with their separators.
    pub tail: &'a str,
}

impl<'a> Url<'a> {
    /// Splits a URL.
    ///
    /// # Errors
    /// The fault of the URL.
    pub fn parse(text: &'a str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b)) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).ok_or(UrlError::Host)?;
        Ok(Self { scheme, authority, tail })
    }

    /// Returns the path, without query and fragment.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.tail.split(['?', '#']).next().unwrap_or("")
    }

    /// Returns the target of an HTTP request, without the fragment (RFC 9110 §4.2.5).
    #[must_use]
    pub fn request_target(&self) -> String {
        let target = self.tail.split('#').next().unwrap_or("");
        if target.starts_with('/') { target.to_owned() } else { format!("/{target}") }
    }

    /// Returns the query without its question mark. A fragment counts as part of the query, as in URLs of media
    /// programs.
    #[must_use]
    pub fn query(&self) -> &'a str {
        self.tail.split_once('?').map_or("", |(_, query)| query)
    }

    /// Returns the host name or address, without brackets, and the port.
    ///
    /// # Errors
    /// The URL has credentials, no valid host, or no port from 1 to 65535.
    pub fn host_and_port(&self, default_port: u16) -> Result<(String, u16), UrlError> {
        if self.authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        let (host, port) = split_authority(self.authority)?;
        Ok((host, port.map_or(Ok(default_port), port_of)?))
    }
}

/// Parses a port to connect to.
///
/// # Errors
/// The text is no port from 1 to 65535.
pub fn port_of(text: &str) -> Result<u16, UrlError> {
    text.parse().ok().filter(|&port: &u16| port > 0).ok_or(UrlError::Port)
}

/// Formats host and port for a URL, without the default port.
#[must_use]
pub fn authority(host: &str, port: u16, default_port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port { host } else { format!("{host}:{port}") }
}

/// The URL of a hook receiver. The text is stored and sent unchanged.
#[derive(Clone, PartialEq, Eq)]
pub struct HookUrl {
    text: String,
    /// Host name or address, without brackets.
    pub host: String,
    /// Explicit port, or the scheme's default.
    pub port: u16,
}

/// Prints a redacted URL, because the paths of hook URLs contain keys.
impl fmt::Debug for HookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.text))
    }
}

impl HookUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The fault of the URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let mut url = Url::parse(text)?;
        let default_port = match url.scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(UrlError::Scheme),
        };
        // User and password are sent as Basic authorisation (RFC 7617).
        url.authority = url.authority.rsplit_once('@').map_or(url.authority, |(_, host)| host);
        let (host, port) = url.host_and_port(default_port)?;
        Ok(Self { text: text.to_owned(), host, port })
    }

    /// Returns the URL as configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Splits host and port; the host has only characters that may go to a resolver.
fn split_authority(authority: &str) -> Result<(String, Option<&str>), UrlError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host)?;
        let port = if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(UrlError::Port)?) };
        return Ok((host.to_owned(), port));
    } else if let Some((host, port)) = authority.split_once(':') {
        (host, Some(port))
    } else {
        (authority, None)
    };
    let valid = !host.is_empty()
        && host.len() <= HOST_BYTES_MAX
        && !host.starts_with(['-', '.'])
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if valid { Ok((host.to_owned(), port)) } else { Err(UrlError::Host) }
}

/// Returns a URL for the log: without credentials and query, and with `***` for the last segment, which often is the
/// stream key.
#[must_use]
pub fn redact(url: &str) -> String {
    let clean =
        |s: &str| s.chars().take(200).map(|c| if c.is_control() { '_' } else { c }).collect::<String>();
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or("");
    // A slash at the end does not make the segment before it less secret.
    let path = tail.split(['?', '#']).next().unwrap_or("").trim_end_matches('/');
    let head = path.rsplit_once('/').map_or("", |(head, _)| head);
    let secret = if tail.is_empty() { "" } else { "/***" };
    format!("{}://{}{}{secret}", clean(scheme), clean(host), clean(head))
}

/// Returns a text from the server of a URL, for the log and for users who may not see the URL: with `***` for the parts
/// of the URL that may be keys. Servers name the stream key when they refuse it.
#[must_use]
pub fn redact_reason(reason: &str, url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    let values = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value);
    let keys = [query, name, user].into_iter().chain(user.split(':')).chain(values);
    let keys = keys.filter(|key| key.len() >= KEY_BYTES_MIN);
    keys.fold(reason.to_owned(), |reason, key| reason.replace(key, "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_42_a_reason_does_not_name_the_key_that_it_is_about() {
        let url = "rtmp://user:password-1@h/live/abcd-1234-ef?token=0123456789&mode=a";
        for (reason, shown) in [
            ("BadName: abcd-1234-ef is live", "BadName: *** is live"),
            ("no abcd-1234-ef?token=0123456789&mode=a", "no ***?***"),
            ("token 0123456789 of password-1 is old", "token *** of *** is old"),
            ("a live stream", "a live stream"),
        ] {
            assert_eq!(redact_reason(reason, url), shown);
        }
        for url in ["rtmp://h/live/stream", "srt://:9000?mode=listener", "streams/film.mp4", ""] {
            assert_eq!(redact_reason("the stream's listener is at h", url), "the stream's listener is at h");
        }
    }

    #[test]
    fn u_30_hooks_go_to_http_and_https() {
        for url in [
            "file:///etc/passwd",
            "gopher://h/a",
            "HTTP://h/a",
            " http://h/a",
            "http:/h",
            "http://",
            "http:///a",
            "http://u:p@/a",
            "http://h:0/a",
            "http://h:65536/",
            "http://h%2f/a",
            "http://h/a\r\nX: y",
            "http://h/a b",
            "//h/a",
            "",
        ] {
            assert!(HookUrl::parse(url).is_err(), "{url}");
        }
        let parts = |url: &str| HookUrl::parse(url).map(|u| (u.host.clone(), u.port)).unwrap();
        assert_eq!(parts("http://h/a?k=v"), ("h".into(), 80));
        assert_eq!(parts("https://h"), ("h".into(), 443));
        assert_eq!(parts("https://[::1]:8/x"), ("::1".into(), 8));
        assert_eq!(parts("http://user:word@h/x@y"), ("h".into(), 80));
        assert_eq!(parts("http://0x7f000001?x"), ("0x7f000001".into(), 80));
        assert_eq!(
            format!("{:?}", HookUrl::parse("http://h:1/hook/secret?t=1").unwrap()),
            "http://h:1/hook/***"
        );
    }

    #[test]
    fn redacted_urls_keep_neither_key_nor_query() {
        assert_eq!(redact("rtmp://u:p@h:1/live/secret?t=1"), "rtmp://h:1/live/***");
        assert_eq!(redact("rtmp://h/secret"), "rtmp://h/***");
        assert_eq!(redact("https://h/hooks/secret/?t=1"), "https://h/hooks/***");
        assert_eq!(redact("rtmp://h/live/secret//"), "rtmp://h/live/***");
        assert_eq!(redact("http://h/"), "http://h/***");
        assert_eq!(redact("srt://h:1?streamid=x"), "srt://h:1/***");
        assert_eq!(redact("secret"), "***");
    }
}
