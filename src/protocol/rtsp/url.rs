//! `rtsp://` and `rtsps://` URLs. User and password answer a server's challenge; they are never part of a request line.

use ::rtsp::Uri;

use super::settings::Carriage;
use crate::auth::url::{Url, UrlError};

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RtspUrl {
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Explicit port, or the scheme's default.
    pub(crate) port: u16,
    /// The URI of the request.
    pub(crate) uri: Uri,
    /// `?tcp` or `?udp`, as in ffmpeg's URLs: the transport of media, which overrides the settings. It is not sent to
    /// the server.
    pub(crate) carriage: Option<Carriage>,
}

impl RtspUrl {
    /// Reads a URL.
    pub(crate) fn read(url: &Url<'_>, default_port: u16) -> Result<Self, UrlError> {
        let authority = url.authority.rsplit_once('@').map_or(url.authority, |(_, host)| host);
        let (host, port) = Url { authority, ..*url }.host_and_port(default_port)?;
        let text = format!("{}://{}{}", url.scheme, url.authority, url.tail);
        let mut uri = Uri::read(&text).ok_or(UrlError::Host)?;
        let mut carriage = None;
        uri.query = uri.query.and_then(|query| {
            let kept = query.split('&').filter(|item| {
                let named = Carriage::named(item);
                carriage = carriage.or(named);
                named.is_none()
            });
            Some(kept.collect::<Vec<_>>().join("&")).filter(|query| !query.is_empty())
        });
        Ok(Self { host, port, uri, carriage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RtspUrl, UrlError> {
        let url = Url::parse(text).unwrap();
        RtspUrl::read(&url, if url.scheme == "rtsps" { 322 } else { 554 })
    }

    #[test]
    fn cameras_have_passwords_and_paths_of_any_kind() {
        let url = read("rtsp://admin:p%40ss@192.0.2.7/cam/realmonitor?channel=1&subtype=0").unwrap();
        assert_eq!((&*url.host, url.port), ("192.0.2.7", 554));
        assert_eq!(url.uri.credentials, Some(("admin".to_owned(), "p@ss".to_owned())));
        assert_eq!(url.uri.to_string(), "rtsp://192.0.2.7/cam/realmonitor?channel=1&subtype=0");
        assert!(!format!("{url:?}").contains("p@ss"));
        let url = read("rtsp://h/a?x=1&udp&y=2").unwrap();
        assert_eq!((&*url.uri.to_string(), url.carriage), ("rtsp://h/a?x=1&y=2", Some(Carriage::Datagrams)));
        let url = read("rtsp://h/a?tcp").unwrap();
        assert_eq!((&*url.uri.to_string(), url.carriage), ("rtsp://h/a", Some(Carriage::Interleaved)));
        let url = read("rtsps://[::1]:8322").unwrap();
        assert_eq!((&*url.host, url.port, url.uri.tls), ("::1", 8322, true));
        assert_eq!(read("rtsp://u@h@i/a").unwrap().host, "i");
    }

    #[test]
    fn u_31_hosts_that_are_none() {
        for text in ["rtsp://u:p@/a", "rtsp://u:p@h%2f/a", "rtsp://h:0/a", "rtsp://h:70000/", "rtsp://-h/a"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
