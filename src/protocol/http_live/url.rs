//! `http://` and `https://` URLs of live streams (FLV or MPEG-TS), and of files that are pulled at playback speed.

use crate::auth::url::{self, Url, UrlError};

/// Extensions of stream names.
const ENDINGS: [&str; 3] = ["flv", "ts", "mp4"];

/// The parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveUrl {
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Explicit port, or the scheme's default.
    pub(crate) port: u16,
    /// `Host` field of the request.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) target: String,
    /// True for `https`.
    pub(crate) tls: bool,
}

impl LiveUrl {
    /// Reads a URL.
    pub(crate) fn read(url: &Url<'_>, default_port: u16) -> Result<Self, UrlError> {
        let (host, port) = url.host_and_port(default_port)?;
        let target = url.request_target();
        if !may_be_live(&target) {
            return Err(UrlError::Unsupported("Over HTTP this version pulls FLV, MPEG-TS, MP4 and HLS only"));
        }
        let authority = url::authority(&host, port, default_port);
        Ok(Self { host, port, authority, target, tls: matches!(url.scheme, "https" | "wss") })
    }

    /// Returns the URL to which a redirect leads. `reference` is relative to this URL (RFC 3986 §5.2). The new URL may
    /// have any extension.
    pub(crate) fn moved(&self, reference: &str) -> Option<Self> {
        // A reference with characters that are not allowed in URLs is refused, not corrected.
        if !reference.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let scheme = if self.tls { "https" } else { "http" };
        let own = hls::Url::read(&format!("{scheme}://{}{}", self.authority, self.target)).ok()?;
        let whole = own.resolve(reference).ok()?.to_string();
        let url = Url::parse(&whole).ok()?;
        let default_port = match url.scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let (host, port) = url.host_and_port(default_port).ok()?;
        let authority = url::authority(&host, port, default_port);
        Some(Self { host, port, authority, target: url.request_target(), tls: url.scheme == "https" })
    }
}

/// True if the path of an HTTP URL may be a live stream: its extension is one of [`ENDINGS`], or it has none.
fn may_be_live(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or("");
    let name = path.rsplit('/').next().unwrap_or("");
    match name.rsplit_once('.') {
        Some((_, ending)) => ENDINGS.iter().any(|live| ending.eq_ignore_ascii_case(live)),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_keeps_path_and_query_and_no_fragment() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            let u = LiveUrl::read(&url, if url.scheme == "https" { 443 } else { 80 }).unwrap();
            (u.authority, u.port, u.target)
        };
        let own = |a: &str, p, t: &str| (a.to_owned(), p, t.to_owned());
        assert_eq!(parts("http://h/live/a.flv?t=1#x"), own("h", 80, "/live/a.flv?t=1"));
        assert_eq!(parts("https://[::1]:5443/a.flv"), own("[::1]:5443", 5443, "/a.flv"));
        assert_eq!(parts("http://h?a=b"), own("h", 80, "/?a=b"));
    }

    #[test]
    fn u_33_redirects_lead_to_other_servers_and_nothing_else() {
        let from = LiveUrl::read(&Url::parse("http://h:8080/live/cam?x=1").unwrap(), 80).unwrap();
        let moved = |to: &str| {
            let url = from.moved(to)?;
            Some(format!("{} {} {} {} {}", url.host, url.port, url.authority, url.target, url.tls))
        };
        for (to, wanted) in [
            ("https://edge/a.flv?t=2#x", "edge 443 edge /a.flv?t=2 true"),
            ("//edge:81/a", "edge 81 edge:81 /a false"),
            ("/other.flv", "h 8080 h:8080 /other.flv false"),
            ("b.flv?y", "h 8080 h:8080 /live/b.flv?y false"),
            ("?y=2", "h 8080 h:8080 /live/cam?y=2 false"),
            ("../b.flv", "h 8080 h:8080 /b.flv false"),
            ("/a.flv?from=http://origin/b", "h 8080 h:8080 /a.flv?from=http://origin/b false"),
            ("a.flv?from=//origin", "h 8080 h:8080 /live/a.flv?from=//origin false"),
            ("HTTP://edge:80", "edge 80 edge / false"),
            ("http://[::1]:81/a", "::1 81 [::1]:81 /a false"),
        ] {
            assert_eq!(moved(to).as_deref(), Some(wanted), "{to}");
        }
        for to in
            ["file:///etc/passwd", "rtmp://h/a/b", "http://u:p@h/a", "http://h/a b", "//", "http://h:0/"]
        {
            assert_eq!(moved(to), None, "{to}");
        }
    }

    #[test]
    fn a_path_tells_whether_it_may_be_live() {
        for (target, may) in [
            ("/live/a.flv", true),
            ("/live/a.FLV?token=a.m3u8", true),
            ("/live?app=live&stream=a", true),
            ("/live/a", true),
            ("/live/a.m3u8", false),
            ("/live/a.webm?x=.flv", false),
            ("/live/a.ts", true),
            ("/live/a.html", false),
        ] {
            assert_eq!(may_be_live(target), may, "{target}");
        }
    }
}
