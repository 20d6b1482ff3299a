//! The destinations and origins of streams on other servers: the URL schemes of all protocols.
//!
//! A protocol parses a URL of its scheme ([`Scheme`]) into a [`Target`]. All other code uses the target's host, port
//! and transport, and passes the target back when the connection begins ([`begin_push`], [`begin_pull`]).

use crypto::Seed;

use super::own_files::{self, OwnPath};
use super::pull::{Client, Patience, PullSession};
use super::registry::{room_view, schemes};
use super::row::{Addresses, Request, Scheme};
use super::{Now, Session};
use crate::auth::url::{Url, UrlError};
use crate::http::decode_path;
use crate::mail::{PullOrder, PushOrder, Target};
use crate::types::StreamKey;

/// Parses the URL of an endpoint, to which a stream is pushed.
///
/// # Errors
/// The fault of the URL.
pub fn read_endpoint(text: &str) -> Result<Target, UrlError> {
    read(text, |scheme| scheme.pushes)
}

/// Parses the URL of a stream source, from which a stream is pulled.
///
/// # Errors
/// The fault of the URL.
pub fn read_source(text: &str) -> Result<Target, UrlError> {
    read(text, |scheme| scheme.pulls)
}

/// True if a text looks like the path of a file of this server rather than a URL.
#[must_use]
pub fn is_own_path(text: &str) -> bool {
    OwnPath::is_meant(text)
}

/// Parses the URL of an origin, configured by the operator, from which copies of streams are fetched.
///
/// # Errors
/// The fault of the URL.
pub fn read_origin(text: &str) -> Result<Target, UrlError> {
    read(text, |scheme| scheme.pulls || scheme.copies.is_some())
}

/// Returns the target of a stream at another node of the cluster, whose relay has this address.
#[must_use]
pub fn at_node(host: &str, port: u16, key: &StreamKey) -> Option<Target> {
    schemes().find_map(|scheme| scheme.copies).map(|target| target(host, port, key))
}

/// Returns the target of the view of a room, which this server makes itself.
#[must_use]
pub fn view_of(room: &StreamKey) -> Option<Target> {
    room_view(room)
}

/// Parses the path of a file of this server that a stream of `app` should play.
///
/// # Errors
/// The path is of another application, or cannot be played.
pub fn read_own_path(text: &str, app: &str) -> Result<Target, UrlError> {
    OwnPath::read(text)?.names_for(app).map(own_files::target)
}

/// Parses a URL at which this server serves files, for a stream of `app` to play. `None` if the URL is not such a URL,
/// or if `is_own` returns false for its host and port.
///
/// # Errors
/// The URL is of another application, or of a file that cannot be played.
pub fn read_own_url(
    text: &str,
    app: &str,
    is_own: impl Fn(&str, u16) -> bool,
) -> Result<Option<Target>, UrlError> {
    let Ok(url) = Url::parse(text) else { return Ok(None) };
    let default_port = match url.scheme {
        "http" => 80,
        "https" => 443,
        _ => return Ok(None),
    };
    let Ok((host, port)) = url.host_and_port(default_port) else { return Ok(None) };
    if !is_own(&host, port) {
        return Ok(None);
    }
    let path = decode_path(url.path().as_bytes()).ok();
    let path = path.as_deref().and_then(|path| path.strip_prefix('/')).and_then(OwnPath::below_webapps);
    path.map(|path| path?.names_for(app).map(own_files::target)).transpose()
}

/// True if streams can be pulled from URLs of this scheme, even if the rest of the URL is wrong.
#[must_use]
pub fn is_source_scheme(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(name, _)| schemes().any(|scheme| scheme.pulls && scheme.name == name))
}

/// True if `target`, whose host is this server, is this server's own stream `key`.
#[must_use]
pub fn is_own_stream(target: &Target, addresses: &Addresses, key: &StreamKey) -> bool {
    request(target).is_some_and(|request| request.means(target.port, addresses, key))
}

/// Creates the session of a push on an outgoing connection. `None` if nothing can be pushed to its target.
#[must_use]
pub fn begin_push(now: Now, order: &PushOrder, seed: Seed) -> Option<Box<dyn Session>> {
    request(&order.target)?.push(now, &order.via, seed)
}

/// Creates the session of a pull on an outgoing connection. `None` if nothing can be pulled from its target.
#[must_use]
pub fn begin_pull(now: Now, order: &PullOrder, seed: Seed) -> Option<Box<dyn Session>> {
    if let Some(session) = request(&order.target)?.session() {
        return Some(session);
    }
    let client = pull_client(&order.target, seed)?;
    Some(Box::new(PullSession::new(now, order, client)))
}

/// Makes the client that pulls from a target.
pub(super) fn pull_client(target: &Target, seed: Seed) -> Option<Box<dyn Client>> {
    request(target)?.pull(Patience::PULL, seed)
}

fn read(text: &str, is_allowed: impl Fn(&Scheme) -> bool) -> Result<Target, UrlError> {
    let url = Url::parse(text)?;
    // Protocols may share a scheme: the first one that accepts the URL gets it. If none does, the fault that the
    // first one found is reported.
    let mut refused = None;
    for scheme in schemes().filter(|scheme| scheme.name == url.scheme && is_allowed(scheme)) {
        match scheme.target(&url) {
            Ok(target) => return Ok(target),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(UrlError::Scheme))
}

pub(super) fn request(target: &Target) -> Option<&dyn Request> {
    target.request::<Box<dyn Request>>().map(|request| &**request)
}

/// Returns the request of a target as text; for tests of other modules.
#[cfg(test)]
pub(crate) fn request_text(target: &Target) -> String {
    format!("{:?}", request(target).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::{Proof, Transport};

    #[test]
    fn u_30_only_media_schemes_in_lower_case() {
        for url in [
            "file:///etc/passwd",
            "concat:a",
            "pipe:1",
            "gopher://h/a",
            "data:text",
            "exec:ls",
            "RTMP://h/a/b",
            " rtmp://h/a/b",
            "rtmp:/h/a/b",
            "http://h/a",
            "10.0.0.1",
            "rtmp://",
            "rtmp://h",
            "rtmp://h/",
            "rtmp://h/a/",
            "rtmp://h:0/a/b",
            "rtmp://h:65536/a/b",
            "rtmp://h:/a/b",
            "rtmp://a@b/c/d",
            "rtmp://h%2f/a/b",
            "rtmp://h/a/b\r\nX: y",
            "rtmp://[::1/a/b",
            "srt://h?streamid=a/b&passphrase=short",
            "srt://:9000?streamid=a/b",
            "",
        ] {
            assert!(read_endpoint(url).is_err(), "{url}");
        }
        assert!(read_endpoint(&format!("rtmp://h/a/{}", "x".repeat(5000))).is_err());
    }

    #[test]
    fn sources_are_named_by_other_schemes_than_endpoints() {
        let parts = |url: &str| {
            let target = read_source(url).unwrap();
            (target.port, target.transport, target.proof() == Some(Proof::Name(target.host.as_str().into())))
        };
        assert_eq!(parts("http://h/live/a.flv?t=1#x"), (80, Transport::Tcp, false));
        assert_eq!(parts("https://[::1]:5443/a.flv"), (5443, Transport::Tls, true));
        assert_eq!(parts("rtmps://h/a/b"), (443, Transport::Tls, true));
        assert_eq!(parts("rtsp://u:p@h/a"), (554, Transport::Tcp, false));
        assert_eq!(parts("rtsps://h/a"), (322, Transport::Tls, true));
        assert_eq!(parts("srt://h?streamid=a/b"), (4200, Transport::Udp, false));
        assert_eq!(parts("srt://:9000?mode=listener"), (9000, Transport::UdpListener, false));
        for url in
            ["srt://h:1?mode=x", "HTTP://h/a", "http://u:p@h/a.flv", "http:///a", "http://h/a b", "file:///a"]
        {
            assert!(read_source(url).is_err(), "{url}");
        }
        let fetched = read_source("http://h/live/a.mpd").unwrap_err();
        assert_eq!(fetched.to_string(), "Over HTTP this version pulls FLV, MPEG-TS, MP4 and HLS only");
        assert!(is_source_scheme("http://h/live/a.mpd") && !is_source_scheme("rtp://h:1"));
    }

    #[test]
    fn a_target_shows_neither_path_nor_query() {
        let shown = |url| format!("{:?}", read_source(url).unwrap());
        assert_eq!(shown("rtmp://h/a/secret"), "rtmp://h:1935/***");
        assert_eq!(shown("srt://h:1?streamid=x&passphrase=0123456789"), "srt://h:1/***");
    }

    #[test]
    fn u_34_the_stream_of_this_server_is_known_in_every_scheme() {
        let addresses = Addresses::of(&[("rtmp", 1935), ("rtmps", 8443), ("srt", 4200)]);
        let key = StreamKey::new("live", "s1");
        let own = |url| is_own_stream(&read_source(url).unwrap(), &addresses, &key);
        assert!(
            own("rtmp://h/live/s1?token=x") && own("rtmps://h:8443/live/x/s1") == own("rtmp://h/live/x/s1")
        );
        assert!(own("srt://h?streamid=live/s1") && own("srt://h?streamid=%23!::r=live/s1,m=publish"));
        for other in [
            "rtmp://h:1936/live/s1",
            "rtmp://h/live/s2",
            "srt://h:1?streamid=live/s1",
            "http://h/live/s1.flv",
        ] {
            assert!(!own(other), "{other}");
        }
    }
}
