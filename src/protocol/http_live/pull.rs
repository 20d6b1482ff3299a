//! Pulls of live streams over HTTP or HTTPS: the response to a GET is an endless FLV file or transport stream.
//!
//! The container is detected from the first bytes; the content type is ignored. Redirects are followed, each over a new
//! connection to an address that control has checked. If an MP4 file has its index after its media, the index is
//! requested first, then the media.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wire::SendQueue;

use super::url::LiveUrl;
use crate::http::USER_AGENT;
use crate::http::client::{self, ResponseEvent, ResponseHead, ResponseReader};
use crate::mail::NextServer;
use crate::protocol::pull::{Client, ClientEvent, ClientStream, FILE_RESERVE, Patience, Reading, Start};

const OK: u16 = 200;
const PARTIAL: u16 = 206;
/// Maximum number of redirects.
const REDIRECTS_MAX: u8 = 5;

/// A pull's client.
#[derive(Debug)]
pub(super) struct HttpPull {
    /// The URL that is being requested.
    url: LiveUrl,
    reading: Reading,
    redirects: u8,
    /// True if this connection is no longer needed.
    leaves: bool,
    /// True if the request must still be sent.
    asks: bool,
    /// Maximum time from the request to the head of the response.
    patience: Duration,
    head_until: Option<Instant>,
    response: ResponseReader,
    /// True if the response has a length. It is then a file, not a live stream.
    is_file: bool,
    /// The reason why the pull has ended. It is reported after all earlier events.
    ended: Option<String>,
}

impl HttpPull {
    pub(super) fn new(url: &LiveUrl, patience: Patience) -> Self {
        Self {
            url: url.clone(),
            reading: Reading::new(),
            redirects: 0,
            leaves: false,
            asks: false,
            patience: patience.handshake,
            head_until: None,
            response: ResponseReader::new(),
            is_file: false,
            ended: None,
        }
    }

    fn end(&mut self, reason: impl Into<String>) {
        self.head_until = None;
        self.ended.get_or_insert_with(|| reason.into());
    }

    fn head(&mut self, head: &ResponseHead) -> ClientEvent {
        self.head_until = None;
        self.is_file = head.header("content-length").is_some();
        match (self.reading.from(), head.status) {
            (None, OK) => return ClientEvent::Accepted,
            (Some(_), PARTIAL) => {
                return self.reading.index().map_or(ClientEvent::Accepted, ClientEvent::Media);
            }
            (Some(_), OK) => {
                let reason = "the index of the file is behind its media, and the server does not know ranges";
                return ClientEvent::Ended(reason.to_owned());
            }
            (None | Some(_), _) => {}
        }
        if (300..400).contains(&head.status)
            && let Some(location) = head.header("location").and_then(|value| std::str::from_utf8(value).ok())
        {
            return self.redirected(location).unwrap_or_else(|why| ClientEvent::Ended(why.to_owned()));
        }
        ClientEvent::Ended(format!("HTTP {} {}", head.status, head.reason))
    }

    /// Follows a redirect to the server that has the stream.
    fn redirected(&mut self, location: &str) -> Result<ClientEvent, &'static str> {
        if self.redirects >= REDIRECTS_MAX {
            return Err("the server redirects too often");
        }
        self.redirects = self.redirects.saturating_add(1);
        self.url =
            self.url.moved(location).ok_or("the server redirects to where nothing can be pulled from")?;
        Ok(self.ask_anew())
    }

    /// Sends the next request, to another server or for another part of the file, over a new connection.
    fn ask_anew(&mut self) -> ClientEvent {
        self.response = ResponseReader::new();
        // The server may have closed the old connection already.
        self.ended = None;
        self.asks = false;
        self.leaves = true;
        let LiveUrl { host, port, tls, .. } = self.url.clone();
        ClientEvent::NextServer(NextServer { host, port, tls })
    }

    /// Takes a piece of the body. Returns an event if another part must be requested.
    fn take(&mut self, bytes: Bytes) -> Option<ClientEvent> {
        match self.reading.push(bytes) {
            Ok(false) => None,
            Ok(true) => Some(self.ask_anew()),
            Err(reason) => Some(ClientEvent::Ended(reason.to_owned())),
        }
    }
}

impl ClientStream for HttpPull {
    fn handle_bytes(&mut self, _now: Instant, bytes: &[u8]) {
        if self.leaves {
            return;
        }
        if let Err(error) = self.response.handle_bytes(bytes) {
            self.end(error.to_string());
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if std::mem::take(&mut self.asks) {
            let LiveUrl { authority, target, .. } = &self.url;
            out.push(Bytes::from(match self.reading.from() {
                None => client::get(USER_AGENT, authority, target, false),
                Some(first) => client::get_rest(USER_AGENT, authority, target, first),
            }));
        }
    }
}

impl Client for HttpPull {
    fn begin(&mut self, start: &Start<'_>) {
        self.asks = true;
        self.leaves = false;
        self.head_until = start.now.checked_add(self.patience);
    }

    fn handle_end(&mut self, _now: Instant) {
        match self.response.handle_end() {
            Ok(()) => self.end("the server closed the connection"),
            Err(error) => self.end(error.to_string()),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.head_until.is_some_and(|until| until <= now) {
            self.end("no answer to the request");
        }
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        loop {
            match self.reading.poll() {
                Ok(Some(media)) => return Some(ClientEvent::Media(media)),
                Ok(None) => {}
                Err(reason) => return Some(ClientEvent::Ended(reason)),
            }
            match self.response.poll_event() {
                Some(ResponseEvent::Head(head)) => return Some(self.head(&head)),
                Some(ResponseEvent::Body(bytes)) => {
                    if let Some(event) = self.take(bytes) {
                        return Some(event);
                    }
                }
                Some(ResponseEvent::End) => {
                    return Some(ClientEvent::Ended("the server ended the stream".to_owned()));
                }
                None => return self.ended.take().map(ClientEvent::Ended),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.head_until
    }

    fn close(&mut self, _now: Instant) {
        self.end("closed");
    }

    fn reserve(&self) -> Option<Duration> {
        self.is_file.then_some(FILE_RESERVE)
    }

    fn name(&self) -> &'static str {
        "http-pull"
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }
}
