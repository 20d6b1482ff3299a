//! Where the load goes: a URL with a protocol, taken apart.

use std::fmt;

use crate::auth::{Url, UrlError};
use crate::protocol::bench::{RtmpUrl, SrtAddress, SrtUrl};

/// What stands for the number of a stream.
const NUMBER: &str = "{n}";

/// How media travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RTMP; publishes and plays.
    Rtmp,
    /// FLV over HTTP; plays.
    Flv,
    /// FLV over WebSocket; plays.
    WsFlv,
    /// SRT; publishes and plays.
    Srt,
}

impl Protocol {
    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtmp => "rtmp",
            Self::Flv => "flv",
            Self::WsFlv => "ws-flv",
            Self::Srt => "srt",
        }
    }
}

/// Why a URL is no target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// A scheme that is not in the list.
    #[error("the URL must begin with rtmp, rtmps, srt, http, https, ws or wss, and ://")]
    Scheme,
    /// Something else is wrong with it.
    #[error("{0}")]
    Url(#[from] UrlError),
}

/// One stream on one server.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// How media travels.
    pub protocol: Protocol,
    /// Whether under TLS.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// RTMP: the application.
    pub app: String,
    /// RTMP: the stream's name with its query. HTTP: path and query.
    pub name: String,
    /// RTMP: `tcUrl`. HTTP: the `Host` field.
    pub authority: String,
    /// SRT: what the query says.
    pub(crate) srt: Option<SrtAddress>,
}

/// The name may be a key.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{} ***", self.protocol.name(), self.host, self.port)
    }
}

impl Target {
    /// Takes the URL of stream `number` apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str, number: usize) -> Result<Self, TargetError> {
        let url = url.replace(NUMBER, &number.to_string());
        let url = Url::parse(&url)
            .map_err(|error| if error == UrlError::Scheme { TargetError::Scheme } else { error.into() })?;
        match url.scheme {
            "rtmp" => Self::rtmp(&url, 1935, false),
            "rtmps" => Self::rtmp(&url, 443, true),
            "srt" => Self::srt(&url),
            "http" | "https" => Self::http(Protocol::Flv, &url, url.scheme == "https"),
            "ws" | "wss" => Self::http(Protocol::WsFlv, &url, url.scheme == "wss"),
            _ => Err(TargetError::Scheme),
        }
    }

    /// Whether the URL tells streams apart.
    #[must_use]
    pub fn is_numbered(url: &str) -> bool {
        url.contains(NUMBER)
    }

    fn rtmp(url: &Url<'_>, default_port: u16, tls: bool) -> Result<Self, TargetError> {
        let RtmpUrl { host, port, app, tc_url, name } = RtmpUrl::read(url, default_port)?;
        Ok(Self { protocol: Protocol::Rtmp, tls, host, port, app, name, authority: tc_url, srt: None })
    }

    fn srt(url: &Url<'_>) -> Result<Self, TargetError> {
        let SrtUrl { host, port, address } = SrtUrl::read(url, 4200)?;
        let (app, name, authority) = Default::default();
        Ok(Self { protocol: Protocol::Srt, tls: false, host, port, app, name, authority, srt: Some(address) })
    }

    fn http(protocol: Protocol, url: &Url<'_>, tls: bool) -> Result<Self, TargetError> {
        if !url.tail.starts_with('/') {
            return Err(UrlError::Name.into());
        }
        let (host, port) = url.host_and_port(if tls { 443 } else { 80 })?;
        let name = url.tail.split('#').next().unwrap_or_default().to_owned();
        let (authority, app) = (url.authority.to_owned(), String::new());
        Ok(Self { protocol, tls, host, port, app, name, authority, srt: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_decides() {
        let parts = |url: &str| {
            let target = Target::parse(url, 7).unwrap();
            (target.protocol, target.tls, target.host, target.port, target.app, target.name, target.authority)
        };
        let own = |p, tls, h: &str, port, app: &str, name: &str, authority: &str| {
            (p, tls, h.into(), port, app.into(), name.into(), authority.into())
        };
        assert_eq!(
            parts("rtmp://h/live/s{n}?k=1"),
            own(Protocol::Rtmp, false, "h", 1935, "live", "s7?k=1", "rtmp://h/live")
        );
        assert_eq!(
            parts("rtmps://h:19/live/s"),
            own(Protocol::Rtmp, true, "h", 19, "live", "s", "rtmps://h:19/live")
        );
        assert_eq!(
            parts("http://h:5080/live/{n}.flv?x=1#y"),
            own(Protocol::Flv, false, "h", 5080, "", "/live/7.flv?x=1", "h:5080")
        );
        assert_eq!(
            parts("wss://[::1]/live/a.flv"),
            own(Protocol::WsFlv, true, "::1", 443, "", "/live/a.flv", "[::1]")
        );
    }

    #[test]
    fn what_is_no_url_is_told() {
        assert_eq!(Target::parse("rtsp://h:1/x", 0), Err(TargetError::Scheme));
        assert_eq!(Target::parse("h/live/a", 0), Err(TargetError::Scheme));
        for url in ["http://h", "http://u@h/a", "http://h:0/a", "http://h/a b", "http:///a", "rtmp://h"] {
            assert!(matches!(Target::parse(url, 0), Err(TargetError::Url(_))), "{url}");
        }
        assert!(!format!("{:?}", Target::parse("rtmp://h/a/secret", 0)).contains("secret"));
    }
}
