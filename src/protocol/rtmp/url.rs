//! `rtmp://` and `rtmps://` URLs.

use crate::auth::url::{self, Url, UrlError};

/// A parsed URL. Path and query are kept verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RtmpUrl {
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Explicit port, or the scheme's default.
    pub(crate) port: u16,
    /// `app` of the connect command; empty when the path has one segment only.
    pub(crate) app: String,
    /// `tcUrl` of the connect command, without the stream name; the port is included only if it is not the default.
    pub(crate) tc_url: String,
    /// The stream's name with its query.
    pub(crate) name: String,
}

impl RtmpUrl {
    /// Reads a URL.
    pub(crate) fn read(url: &Url<'_>, default_port: u16) -> Result<Self, UrlError> {
        let (host, port) = url.host_and_port(default_port)?;
        let (app, name) = split_path(url.tail)?;
        let tc_url = format!("{}://{}/{app}", url.scheme, url::authority(&host, port, default_port));
        Ok(Self { host, port, app, tc_url, name })
    }

    /// Returns the stream id that the URL means if its server is a Millstream server: the first segment of the name,
    /// without the query.
    pub(crate) fn stream_id(&self) -> &str {
        self.name.split(['/', '?']).next().unwrap_or("")
    }
}

/// Splits a path into application and stream name like librtmp and ffmpeg: the application has two segments if there
/// are three or more, else one.
fn split_path(tail: &str) -> Result<(String, String), UrlError> {
    let tail = tail.strip_prefix('/').ok_or(UrlError::Name)?;
    let (path, query) = match tail.find('?') {
        Some(at) => tail.split_at_checked(at).ok_or(UrlError::Name)?,
        None => (tail, ""),
    };
    let segments: Vec<&str> = path.split('/').collect();
    let app_segments = if segments.len() >= 3 { 2 } else { segments.len().saturating_sub(1) };
    let (app, name) = segments.split_at_checked(app_segments).ok_or(UrlError::Name)?;
    let name = name.join("/");
    if name.is_empty() {
        return Err(UrlError::Name);
    }
    Ok((app.join("/"), format!("{name}{query}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_and_name_as_encoders_read_them() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            let u = RtmpUrl::read(&url, if url.scheme == "rtmps" { 443 } else { 1935 }).unwrap();
            (u.host, u.port, u.app, u.name, u.tc_url)
        };
        let own = |h: &str, p, a: &str, n: &str, t: &str| (h.into(), p, a.into(), n.into(), t.into());
        assert_eq!(parts("rtmp://a.b/live2/key-1"), own("a.b", 1935, "live2", "key-1", "rtmp://a.b/live2"));
        assert_eq!(
            parts("rtmps://h:443/rtmp/FB-1?s=1&a=/x"),
            own("h", 443, "rtmp", "FB-1?s=1&a=/x", "rtmps://h/rtmp")
        );
        assert_eq!(parts("rtmp://h:19/a/i/k"), own("h", 19, "a/i", "k", "rtmp://h:19/a/i"));
        assert_eq!(parts("rtmp://h/key"), own("h", 1935, "", "key", "rtmp://h/"));
        assert_eq!(parts("rtmp://[::1]:5/a/k"), own("::1", 5, "a", "k", "rtmp://[::1]:5/a"));
        let id = |text| RtmpUrl::read(&Url::parse(text).unwrap(), 1).unwrap().stream_id().to_owned();
        assert_eq!((id("rtmp://h/a/k?x=1"), id("rtmp://h/a/b/k")), ("k".to_owned(), "k".to_owned()));
    }
}
