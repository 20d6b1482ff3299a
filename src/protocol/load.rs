//! The load generator's clients that play and publish, selected by URL. Players are the clients of pulls; publishers
//! use the protocols as pushes do. This module reads no clock and opens no sockets: the load generator passes in the
//! time and the bytes.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use super::outbound::request;
pub use super::player::{LoadEvent, LoadPlayer};
pub use super::publisher::{LoadPublisher, PublisherEvent, TsMux, Voice};
use super::pull::Patience;
pub use super::pull::{ClientDatagrams, ClientStream};
use super::registry::schemes;
use super::row::Scheme;
pub use super::row::Sockets;
pub use super::rtsp::RtspMux;
use crate::auth::url::{Url, UrlError};
use crate::mail::{Target, Transport};

/// The target of a load test.
#[derive(Debug, Clone)]
pub struct LoadTarget {
    scheme: &'static Scheme,
    target: Target,
}

impl LoadTarget {
    /// Parses a URL.
    ///
    /// # Errors
    /// The fault of the URL.
    pub fn read(url: &str) -> Result<Self, UrlError> {
        let url = Url::parse(url)?;
        let taking = loaded().filter(|scheme| scheme.name == url.scheme && scheme.load.takes(&url));
        let scheme = taking.min_by_key(|scheme| Reverse(scheme.load.demands())).ok_or(UrlError::Scheme)?;
        Ok(Self { scheme, target: scheme.target(&url)? })
    }

    /// The protocol: `rtmp`, `flv`, ...
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        self.scheme.load.protocol
    }

    /// Name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.target.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.target.port
    }

    /// True if the connection uses TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.target.transport == Transport::Tls
    }

    /// Returns the kinds of sockets of a connection.
    #[must_use]
    pub const fn sockets(&self) -> Sockets {
        self.scheme.load.sockets
    }

    /// True if streams can be published to the target.
    #[must_use]
    pub const fn publishes(&self) -> bool {
        self.scheme.load.publishes
    }

    /// True if streams can be played from the target.
    #[must_use]
    pub const fn plays(&self) -> bool {
        self.scheme.load.plays
    }

    /// True if publishers and players of the target meet in a room.
    #[must_use]
    pub fn is_room(&self) -> bool {
        request(&self.target).is_some_and(|request| request.is_room())
    }

    /// Makes a client that plays, for a connection that is being opened; `None` if the target cannot be played.
    #[must_use]
    pub fn play(&self, now: Instant, patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        request(&self.target).filter(|_| self.plays())?.play(now, patience, seed)
    }

    /// Makes a client that publishes a stream with these parameter sets (FLV bodies), for a connection that is being
    /// opened; `None` if the target cannot be published to.
    #[must_use]
    pub fn publish(
        &self,
        now: Instant,
        patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        request(&self.target).filter(|_| self.publishes())?.publish(now, patience, seed, heads)
    }
}

/// Returns the schemes that the load generator supports.
fn loaded() -> impl Iterator<Item = &'static Scheme> {
    schemes().filter(|scheme| scheme.load.plays || scheme.load.publishes)
}

/// Lists the names of the schemes that the load generator supports, as in a sentence.
#[must_use]
pub fn scheme_list() -> String {
    let names = distinct(loaded().map(|scheme| scheme.name));
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        Some(_) | None => names.concat(),
    }
}

/// Returns the protocols that the load generator supports.
#[must_use]
pub fn protocol_list() -> Vec<&'static str> {
    distinct(loaded().map(|scheme| scheme.load.protocol))
}

/// Removes duplicates from the names, keeping their order.
fn distinct(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Makes the timeouts of a client: `connect` is the maximum time until the server accepts the request, `stall` the
/// maximum time between two pieces of media.
#[must_use]
pub const fn patience(connect: Duration, stall: Duration) -> Patience {
    Patience { handshake: connect, ready: connect, stall }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_decides() {
        let parts = |url: &str| {
            let target = LoadTarget::read(url).unwrap();
            let host = target.host().to_owned();
            (target.protocol(), target.is_tls(), target.sockets(), host, target.port())
        };
        let own = |p, tls, sockets, h: &str, port| (p, tls, sockets, h.to_owned(), port);
        assert_eq!(parts("rtmp://h/live/s?k=1"), own("rtmp", false, Sockets::Stream, "h", 1935));
        assert_eq!(parts("rtmps://h:19/live/s"), own("rtmp", true, Sockets::Stream, "h", 19));
        assert_eq!(parts("srt://h?streamid=live/s"), own("srt", false, Sockets::Datagrams, "h", 4200));
        assert_eq!(parts("http://h:5080/live/s.flv?x=1#y"), own("flv", false, Sockets::Stream, "h", 5080));
        assert_eq!(parts("wss://[::1]/live/a.flv"), own("ws-flv", true, Sockets::Stream, "::1", 443));
        assert_eq!(scheme_list(), "rtmp, rtmps, rtsp, rtsps, srt, http, https, ws or wss");
        assert_eq!(
            protocol_list(),
            ["rtmp", "rtsp", "srt", "whip", "whep", "room", "flv", "ws-flv", "hls", "ll-hls"]
        );
    }

    #[test]
    fn a_segment_of_the_path_tells_webrtc_from_flv() {
        let of = |url: &str| {
            let target = LoadTarget::read(url).unwrap();
            (target.protocol(), target.publishes(), target.plays(), target.sockets(), target.is_tls())
        };
        let both = Sockets::StreamAndDatagrams;
        assert_eq!(of("http://h:5080/live/whip/a?key=1"), ("whip", true, false, both, false));
        assert_eq!(of("https://h/live/whep/a"), ("whep", false, true, both, true));
        assert_eq!(of("http://h:8889/a/whep"), ("whep", false, true, both, false));
        assert_eq!(of("ws://h/live/websocket?room=r"), ("room", true, true, both, false));
        assert_eq!(of("wss://h/live/websocket"), ("room", true, true, both, true));
        assert_eq!(of("ws://h/live/websocket.flv").0, "ws-flv");
        for flv in ["http://h/live/whip.flv", "http://h/live/a?x=/whep/", "http://h/live/a#/whip/"] {
            assert_eq!(of(flv).0, "flv", "{flv}");
        }
    }

    #[test]
    fn the_ending_of_the_path_tells_hls_from_flv_and_its_folder_which() {
        let of = |url: &str| {
            let target = LoadTarget::read(url).unwrap();
            (target.protocol(), target.publishes(), target.plays(), target.sockets(), target.is_tls())
        };
        let plays = |protocol, tls| (protocol, false, true, Sockets::Stream, tls);
        assert_eq!(of("http://h:5080/live/streams/a.m3u8?token=1"), plays("hls", false));
        assert_eq!(of("https://h/A.M3U8"), plays("hls", true));
        assert_eq!(of("http://h/live/streams/ll-hls/a/a__master.m3u8"), plays("ll-hls", false));
        assert_eq!(of("http://h/live/a.m3u8.flv"), plays("flv", false));
    }

    #[test]
    fn what_is_pulled_from_is_not_all_that_is_played() {
        assert!(super::super::outbound::read_source("ws://h/live/a.flv").is_err());
        let publishes = |url: &str| LoadTarget::read(url).unwrap().publishes();
        assert!(publishes("rtmp://h/a/b") && publishes("srt://h?streamid=a/b"));
        assert!(!publishes("http://h/a.flv") && !publishes("ws://h/a.flv"));
    }
}
