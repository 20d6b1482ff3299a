//! What the load generator is given: clients that play and publish, by URL. Players are the clients of pulls; publishers
//! speak as pushes do. Nothing here knows a clock or a socket.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use media::TrackId;

use super::outbound::request;
use super::publisher::grant;
pub use super::publisher::{LoadPublisher, PublisherEvent, TsMux};
use super::pull::{Client, ClientEvent, Media, Patience};
pub use super::pull::{ClientDatagrams, ClientStream};
use super::registry::schemes;
use super::row::Scheme;
use super::ts;
use crate::auth::url::{Url, UrlError};
use crate::mail::{SessionSettings, Target, Transport};

/// Where load goes.
#[derive(Debug, Clone)]
pub struct LoadTarget {
    scheme: &'static Scheme,
    target: Target,
}

impl LoadTarget {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(url: &str) -> Result<Self, UrlError> {
        let url = Url::parse(url)?;
        let scheme = schemes().find(|scheme| scheme.name == url.scheme).ok_or(UrlError::Scheme)?;
        Ok(Self { scheme, target: scheme.target(&url)? })
    }

    /// What is spoken: `rtmp`, `flv`, ...
    #[must_use]
    pub const fn protocol(&self) -> &'static str {
        self.scheme.load
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

    /// Whether under TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.target.transport == Transport::Tls
    }

    /// Whether in datagrams.
    #[must_use]
    pub const fn is_datagrams(&self) -> bool {
        matches!(self.target.transport, Transport::Udp | Transport::UdpListener)
    }

    /// Whether streams can be published there.
    #[must_use]
    pub const fn publishes(&self) -> bool {
        self.scheme.pushes
    }

    /// A client that plays, on a connection that is being made.
    #[must_use]
    pub fn play(&self, now: Instant, patience: Patience, seed: Seed) -> Option<LoadPlayer> {
        let mut client = request(&self.target)?.pull(patience, seed);
        client.begin(now, &SessionSettings::default());
        Some(LoadPlayer { client, depackager: None, ready: false, events: VecDeque::new() })
    }

    /// A client that publishes, on a connection that is being made.
    #[must_use]
    pub fn publish(&self, now: Instant, patience: Patience, seed: Seed) -> Option<Box<dyn LoadPublisher>> {
        request(&self.target)?.publish(now, patience, seed)
    }
}

/// The schemes that load goes to, as a sentence has them.
#[must_use]
pub fn scheme_list() -> String {
    let names: Vec<&str> = schemes().map(|scheme| scheme.name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        Some(_) | None => names.concat(),
    }
}

/// What is spoken over those schemes.
#[must_use]
pub fn protocol_list() -> Vec<&'static str> {
    let mut names: Vec<&str> = schemes().map(|scheme| scheme.load).collect();
    names.dedup();
    names
}

/// What a player reports.
#[derive(Debug)]
pub enum LoadEvent {
    /// The server consented.
    Ready,
    /// The body of a tag of FLV.
    Tag {
        /// What it is.
        kind: TagKind,
        /// All of it.
        body: Bytes,
    },
    /// An access unit of another container.
    Unit {
        /// Video, or audio.
        is_video: bool,
        /// NAL units in four-byte lengths, or a raw frame.
        payload: Bytes,
    },
    /// The end, with the reason.
    Closed(String),
}

/// A client that plays.
#[derive(Debug)]
pub struct LoadPlayer {
    client: Box<dyn Client>,
    depackager: Option<Box<ts::Depackager>>,
    ready: bool,
    events: VecDeque<LoadEvent>,
}

impl LoadPlayer {
    /// Its byte stream, if it has one.
    pub fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        self.client.byte_stream()
    }

    /// Its datagrams, if it has any.
    pub fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        self.client.datagrams()
    }

    /// The connection is gone.
    pub fn handle_end(&mut self, now: Instant) {
        self.client.handle_end(now);
    }

    /// A deadline may have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LoadEvent> {
        while self.events.is_empty() {
            match self.client.poll()? {
                ClientEvent::Accepted | ClientEvent::Connected => {
                    if !std::mem::replace(&mut self.ready, true) {
                        self.events.push_back(LoadEvent::Ready);
                    }
                }
                ClientEvent::Media(media) => self.take(media),
                ClientEvent::Ended(reason) => self.events.push_back(LoadEvent::Closed(reason)),
            }
        }
        self.events.pop_front()
    }

    fn take(&mut self, media: Media) {
        match media {
            Media::Tag(tag) => self.events.push_back(LoadEvent::Tag { kind: tag.kind, body: tag.body }),
            Media::Payload(payload) => {
                let depackager =
                    self.depackager.get_or_insert_with(|| Box::new(ts::Depackager::new(&grant())));
                depackager.handle(&payload);
                while let Some((unit, _)) = depackager.poll_unit() {
                    let is_video = unit.track == TrackId::VIDEO;
                    self.events.push_back(LoadEvent::Unit { is_video, payload: unit.payload });
                }
            }
            Media::Lost => {
                if let Some(depackager) = &mut self.depackager {
                    depackager.lost();
                }
            }
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    /// Says goodbye.
    pub fn close(&mut self, now: Instant) {
        self.client.close(now);
    }
}

/// Waits as long for a server's consent as its user says, and `stall` for its media.
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
            (target.protocol(), target.is_tls(), target.is_datagrams(), host, target.port())
        };
        let own = |p, tls, datagrams, h: &str, port| (p, tls, datagrams, h.to_owned(), port);
        assert_eq!(parts("rtmp://h/live/s?k=1"), own("rtmp", false, false, "h", 1935));
        assert_eq!(parts("rtmps://h:19/live/s"), own("rtmp", true, false, "h", 19));
        assert_eq!(parts("srt://h?streamid=live/s"), own("srt", false, true, "h", 4200));
        assert_eq!(parts("http://h:5080/live/s.flv?x=1#y"), own("flv", false, false, "h", 5080));
        assert_eq!(parts("wss://[::1]/live/a.flv"), own("ws-flv", true, false, "::1", 443));
        assert_eq!(scheme_list(), "rtmp, rtmps, srt, http, https, ws or wss");
        assert_eq!(protocol_list(), ["rtmp", "srt", "flv", "ws-flv"]);
    }

    #[test]
    fn what_is_pulled_from_is_not_all_that_is_played() {
        assert!(super::super::outbound::read_source("ws://h/live/a.flv").is_err());
        let publishes = |url: &str| LoadTarget::read(url).unwrap().publishes();
        assert!(publishes("rtmp://h/a/b") && publishes("srt://h?streamid=a/b"));
        assert!(!publishes("http://h/a.flv") && !publishes("ws://h/a.flv"));
    }
}
