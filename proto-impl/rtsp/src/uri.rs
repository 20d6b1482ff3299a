//! RTSP URLs (RFC 2326 §3.2), and the targets they name.

use std::fmt;

/// Default port of `rtsp:`.
pub const PORT: u16 = 554;
/// Default port of `rtsps:`.
pub const TLS_PORT: u16 = 322;

/// An RTSP URL. Its parts are kept as received, since peers compare paths as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Uri {
    /// True if the scheme is `rtsps:`.
    pub tls: bool,
    /// User and password before the host, percent-decoded.
    pub credentials: Option<(String, String)>,
    /// Host; an IPv6 address includes its brackets.
    pub host: String,
    /// Port, if the URL contains one.
    pub port: Option<u16>,
    /// Path with its leading slash; empty if absent.
    pub path: String,
    /// Part after the first `?`.
    pub query: Option<String>,
}

impl Uri {
    /// Parses an absolute URL with scheme `rtsp`, `rtsps` or `rtspu`. (`rtspu` requests a control connection over UDP,
    /// but is treated as `rtsp`.) A fragment is dropped.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let is = |name: &str| scheme.eq_ignore_ascii_case(name);
        if !is("rtsp") && !is("rtsps") && !is("rtspu") {
            return None;
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end)?;
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                (Some((decoded(user), decoded(password))), host)
            }
            None => (None, authority),
        };
        let (host, port) = split_port(host)?;
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (rest, None),
        };
        let (host, path) = (host.to_owned(), path.to_owned());
        Some(Self { tls: is("rtsps"), credentials, host, port, path, query })
    }

    /// Returns the port to connect to.
    #[must_use]
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(if self.tls { TLS_PORT } else { PORT })
    }
}

/// Prints the URL without credentials, as in requests.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "rtsps" } else { "rtsp" }, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)?;
        self.query.as_ref().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

/// Prints neither credentials nor the query, which may contain a stream's key.
impl fmt::Debug for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uri({}{})", self.host, self.path)
    }
}

fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
    let after_brackets = host.rfind(']').map_or(0, |at| at.saturating_add(1));
    let (name, port) = match host.rfind(':').filter(|at| *at >= after_brackets) {
        Some(at) => (host.get(..at)?, host.get(at.saturating_add(1)..)?),
        None => (host, ""),
    };
    // `host:` has no port (RFC 3986 §3.2.3).
    let port = if port.is_empty() { None } else { Some(crate::message::number(port)?) };
    // A colon or a bracket at another place would be ambiguous.
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match inner {
        Some(address) => !address.is_empty() && !address.contains(['[', ']']),
        None => !name.is_empty() && !name.contains(['[', ']', ':']),
    };
    (is_host && port != Some(0)).then_some((name, port))
}

/// Decodes percent-encoding (RFC 3986 §2.1). Invalid UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail
            .split_at_checked(2)
            .filter(|(digits, _)| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|(digits, tail)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, tail))
            });
        let (byte, tail) = escaped.unwrap_or((first, tail));
        bytes.push(byte);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The stream that a request names, and the track if the last component of its URL names one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// Path without leading and trailing slashes; percent-encoding is kept.
    pub path: String,
    /// Part after the first `?`, without the track.
    pub query: Option<String>,
    /// Last component if it names a track: `trackID=1`, `streamid=0`, `stream=0`, `track1`.
    pub control: Option<String>,
}

impl Target {
    /// Returns the target of `DESCRIBE` and `ANNOUNCE`. The whole path names the stream, even if it looks like a track.
    #[must_use]
    pub fn of_stream(uri: &Uri) -> Self {
        // A Content-Base ends in a slash. Some clients keep this slash after the query.
        let query = uri.query.as_deref().map(|query| query.trim_end_matches('/').to_owned());
        Self { path: uri.path.trim_matches('/').to_owned(), query, control: None }
    }

    /// Returns the target of a request about a track. ffmpeg and Live555 append the track to the text of the
    /// URL, after any query: `/live/s?token=abc/streamid=0`. GStreamer appends it to the path:
    /// `/live/s/stream=0?token=abc`.
    #[must_use]
    pub fn of_track(uri: &Uri) -> Self {
        let mut target = Self::of_stream(uri);
        let split = |text: &str| {
            let (before, last) = text.rsplit_once('/').filter(|(_, last)| names_track(last))?;
            Some((before.trim_end_matches('/').to_owned(), last.to_owned()))
        };
        if let Some((query, control)) = target.query.as_deref().and_then(split) {
            (target.query, target.control) = (Some(query), Some(control));
        } else if let Some((path, control)) = split(&target.path) {
            (target.path, target.control) = (path, Some(control));
        }
        target
    }
}

/// Prints no query, since it may contain a stream's key.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("path", &self.path)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

fn names_track(component: &str) -> bool {
    let name = component.trim_end_matches(|c: char| c.is_ascii_digit());
    let is = |known: &&str| name.eq_ignore_ascii_case(known);
    name.len() < component.len() && ["trackid=", "streamid=", "stream=", "track=", "track"].iter().any(is)
}

/// True if a request's URL matches a control attribute: the URL, or its part before the query, equals the attribute or
/// ends with it.
#[must_use]
pub(crate) fn ends_with_control(uri: &str, control: &str) -> bool {
    let control = control.trim_matches('/');
    if control.is_empty() || control == "*" {
        return false;
    }
    let ends = |uri: &str| {
        let uri = uri.trim_end_matches('/');
        uri == control
            || uri.strip_suffix(control).is_some_and(|before| {
                control.starts_with('?') || before.ends_with('/') || before.ends_with('?')
            })
    };
    ends(uri) || uri.split_once('?').is_some_and(|(path, _)| ends(path))
}

/// Resolves a control attribute (RFC 2326 §C.1.1) by appending it to the text of the base, as ffmpeg, GStreamer and
/// Live555 do and cameras expect. The result may name another host, but is only used in requests on the existing
/// connection.
#[must_use]
pub fn resolve_control(base: &str, control: Option<&str>) -> String {
    match control.map(str::trim_ascii) {
        None | Some("" | "*") => base.to_owned(),
        Some(absolute) if has_scheme(absolute) => absolute.to_owned(),
        Some(query) if query.starts_with('?') => format!("{base}{query}"),
        Some(relative) => {
            format!("{}/{}", base.trim_end_matches('/'), relative.trim_start_matches('/'))
        }
    }
}

/// True if the text is an absolute URL (RFC 3986 §3.1). A URL that occurs only in the query does not count.
fn has_scheme(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(uri: &str) -> (String, Option<String>, Option<String>) {
        let Target { path, query, control } = Target::of_track(&Uri::read(uri).unwrap());
        (path, query, control)
    }

    #[test]
    fn the_track_is_found_where_clients_put_it() {
        let some = |text: &str| Some(text.to_owned());
        for (uri, path, query, control) in [
            ("rtsp://h/live/s", "live/s", None, None),
            ("rtsp://h:554/live/s/", "live/s", None, None),
            ("rtsp://h/live/s/streamid=0", "live/s", None, some("streamid=0")),
            ("rtsp://h/live/s/trackID=12", "live/s", None, some("trackID=12")),
            ("rtsp://h/live/s//track1", "live/s", None, some("track1")),
            ("rtsp://h/live/s?token=a/streamid=1", "live/s", some("token=a"), some("streamid=1")),
            ("rtsp://h/live/s/?token=a/", "live/s", some("token=a"), None),
            ("rtsp://h/live/s?token=a/b", "live/s", some("token=a/b"), None),
            ("rtsp://h/live/s?token=a/b/stream=3", "live/s", some("token=a/b"), some("stream=3")),
            ("rtsp://h/live/s/stream=0?token=a", "live/s", some("token=a"), some("stream=0")),
            ("rtsp://h/live/tracks", "live/tracks", None, None),
            ("rtsp://h", "", None, None),
            ("rtsp://h/?x", "", some("x"), None),
        ] {
            assert_eq!(target(uri), (path.to_owned(), query, control), "{uri}");
        }
        let named = Target::of_stream(&Uri::read("rtsp://h/live/track1?token=a/").unwrap());
        assert_eq!((named.path.as_str(), named.query.as_deref()), ("live/track1", Some("token=a")));
    }

    #[test]
    fn urls_are_read_and_never_show_credentials() {
        let uri = Uri::read("RTSP://us%40er:p%3Aw@[2001:db8::1]:8554/a?b#c").unwrap();
        assert_eq!(uri.credentials, Some(("us@er".to_owned(), "p:w".to_owned())));
        assert_eq!((uri.host.as_str(), uri.port), ("[2001:db8::1]", Some(8554)));
        assert_eq!(uri.to_string(), "rtsp://[2001:db8::1]:8554/a?b");
        assert!(!format!("{uri:?}").contains('w') && !format!("{uri:?}").contains('b'.to_ascii_uppercase()));
        assert_eq!(Uri::read("rtsps://h/a").unwrap().port_or_default(), 322);
        for bad in [
            "http://h/a",
            "h/a",
            "rtsp:///a",
            "rtsp://h:0/",
            "rtsp://h:99999/",
            "rtsp://h:x/",
            "rtsp://h/ a",
            "rtsp://a:b:1/",
            "rtsp://[:/",
            "rtsp://[]/",
        ] {
            assert_eq!(Uri::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn controls_are_appended_as_text() {
        for (base, control, url) in [
            ("rtsp://h/s", Some("*"), "rtsp://h/s"),
            ("rtsp://h/s", None, "rtsp://h/s"),
            ("rtsp://h/s/", Some("trackID=1"), "rtsp://h/s/trackID=1"),
            ("rtsp://h/s?t=1", Some("streamid=0"), "rtsp://h/s?t=1/streamid=0"),
            ("rtsp://h/s", Some("?ctype=video"), "rtsp://h/s?ctype=video"),
            ("rtsp://h/s/", Some("rtsp://10.0.0.9/s/track1"), "rtsp://10.0.0.9/s/track1"),
            ("rtsp://h/s/", Some("track1?from=rtsp://c/s"), "rtsp://h/s/track1?from=rtsp://c/s"),
            ("rtsp://h/s", Some("1x://a"), "rtsp://h/s/1x://a"),
        ] {
            assert_eq!(resolve_control(base, control), url);
            let is_track = control.is_some_and(|control| control != "*");
            assert_eq!(ends_with_control(&resolve_control(base, control), control.unwrap_or("")), is_track);
        }
        assert!(ends_with_control("rtsp://h/s/stream=0?token=a", "stream=0"));
        assert!(!ends_with_control("rtsp://h/s/trackID=11", "trackID=1"));
        assert!(!ends_with_control("rtsp://h/s/xtrackID=1", "trackID=1"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(rtsp://)?[ -~]{0,60}") {
            if let Some(uri) = Uri::read(&text) {
                let written = Uri::read(&uri.to_string());
                prop_assert_eq!(written.map(|w| w.to_string()), Some(uri.to_string()));
                let _ = (Target::of_track(&uri), ends_with_control(&text, &uri.path), resolve_control(&text, Some(&uri.path)));
            }
        }
    }
}
