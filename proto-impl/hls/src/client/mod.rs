//! The client. It returns the requests to send, and handles their answers.
//!
//! 1. [`Client::poll_request`] returns a request, one at a time.
//! 2. The owner sends it and passes the body to [`Client::handle_body`] as it arrives. Then it calls one of
//!    [`Client::handle_response_end`], [`Client::handle_failure`] and [`Client::handle_redirect`].
//! 3. [`Client::poll_event`] returns the segments; [`Client::poll_timeout`] returns the time of the next
//!    action.
//!
//! The owner decides when to give up on a request without an answer, and reports it as a failure.
//!
//! If the playlist or the segments of a variant cannot be fetched, the client changes to the next best variant.
//! The pull ends if there is none left.

mod choose;
mod exchange;
mod plan;
#[cfg(test)]
mod tests;
mod track;

pub use choose::choose;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::limits::{AHEAD_MAX, EVENTS_MAX, KEY_BYTES, REDIRECTS_MAX};
use crate::uri::{Url, UrlError};
use choose::Choice;
use exchange::Exchange;
use track::Track;

/// Limits of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Maximum bandwidth of a variant, in bits per second. If all variants exceed it, the lowest is taken.
    pub bandwidth_max: Option<u64>,
    /// Recordings are pulled at playback speed. Segments are fetched this long before their time
    /// has come.
    pub ahead: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { bandwidth_max: None, ahead: AHEAD_MAX }
    }
}

/// A GET request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Absolute URL with the scheme `http` or `https`.
    pub url: String,
    /// First and last byte of the wanted range. An answer with another range must be reported as a failure.
    pub range: Option<(u64, u64)>,
}

/// A followed media playlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendition {
    /// The variant, or the only playlist.
    Main,
    /// The separate audio of the variant.
    Audio,
}

/// The kind of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// MPEG-TS or raw audio; the content shows which.
    Ts,
    /// Fragmented MP4.
    Fmp4,
}

/// An event for the owner. The order for each rendition is `Begin`, `Init` if it has changed, `Media`, then
/// `End` or `Lost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A segment begins.
    Begin {
        /// Rendition of the segment.
        rendition: Rendition,
        /// The kind of the segment.
        kind: SegmentKind,
        /// True if encoding and timestamps may have changed.
        discontinuity: bool,
    },
    /// The complete initialization section for the segments from this one on.
    Init {
        /// Rendition of the section.
        rendition: Rendition,
        /// The bytes.
        bytes: Bytes,
    },
    /// More bytes of the segment.
    Media {
        /// Rendition of the segment.
        rendition: Rendition,
        /// The bytes.
        bytes: Bytes,
    },
    /// The end of a complete segment.
    End {
        /// Rendition of the segment.
        rendition: Rendition,
    },
    /// At least one segment could not be fetched. If it had already begun, its remaining bytes do not follow.
    Lost {
        /// Rendition of the segment.
        rendition: Rendition,
    },
    /// The pull has ended, for this reason. Always the last event.
    Ended(String),
}

/// Time of a request, its URL, and its range of bytes.
type Asked = (Instant, Url, Option<(u64, u64)>);

/// Pulls a stream by HLS.
#[derive(Debug)]
pub struct Client {
    config: Config,
    now: Instant,
    started: Instant,
    /// True until the first playlist arrives. Only the first playlist may be a multivariant playlist.
    is_first: bool,
    tracks: Vec<Track>,
    /// Variants to pull if this one fails, best first.
    choices: VecDeque<Choice>,
    /// True once a segment has begun.
    has_begun: bool,
    exchange: Option<Exchange>,
    /// Requests sent during the last half second.
    recent: VecDeque<Asked>,
    keys: VecDeque<(Url, [u8; KEY_BYTES])>,
    events: VecDeque<Event>,
    /// Number of consecutive segments given up.
    losses: u32,
    /// True if the last request was for a playlist. If several requests are due, the next one is for a segment.
    playlist_last: bool,
    is_closed: bool,
}

impl Client {
    /// Starts to pull the playlist at `url`, which may be of either kind.
    ///
    /// # Errors
    /// Fails if no request may be sent to the URL.
    pub fn new(url: &str, config: Config, now: Instant) -> Result<Self, UrlError> {
        let mut client = Self {
            config,
            now,
            started: now,
            is_first: true,
            tracks: vec![Track::new(Rendition::Main, Url::read(url)?, now)],
            choices: VecDeque::new(),
            has_begun: false,
            exchange: None,
            recent: VecDeque::new(),
            keys: VecDeque::new(),
            events: VecDeque::new(),
            losses: 0,
            playlist_last: false,
            is_closed: false,
        };
        client.plan();
        Ok(client)
    }

    /// Handles more of the body. Returns false if the rest is not wanted: the owner then closes the connection,
    /// and reports nothing more about this request.
    #[must_use]
    pub fn handle_body(&mut self, now: Instant, bytes: Bytes) -> bool {
        self.advance(now);
        if let Some(mut exchange) = self.exchange.take_if(|exchange| exchange.asked.is_some()) {
            match self.take_body(&mut exchange, bytes) {
                Ok(()) if !self.is_closed => self.exchange = Some(exchange),
                Ok(()) => {}
                Err(reason) => self.fail(&exchange, reason),
            }
        }
        self.plan();
        self.exchange.as_ref().is_some_and(|exchange| exchange.asked.is_some())
    }

    /// Handles the end of a complete body.
    pub fn handle_response_end(&mut self, now: Instant) {
        self.advance(now);
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.asked.is_some()) {
            self.finish(exchange);
        }
        self.plan();
    }

    /// Handles a failed request: a status other than 200 and 206, no connection, or an incomplete body.
    pub fn handle_failure(&mut self, now: Instant, reason: &str) {
        self.advance(now);
        if let Some(exchange) = self.exchange.take_if(|exchange| exchange.asked.is_some()) {
            self.fail(&exchange, reason);
        }
        self.plan();
    }

    /// Handles a redirection to `location`.
    pub fn handle_redirect(&mut self, now: Instant, location: &str) {
        self.advance(now);
        if let Some(mut exchange) = self.exchange.take_if(|exchange| exchange.asked.is_some()) {
            match exchange.url.resolve(location) {
                Ok(_) if exchange.redirects == REDIRECTS_MAX => self.fail(&exchange, "too many redirections"),
                Ok(url) => {
                    exchange.redirects = exchange.redirects.saturating_add(1);
                    exchange.at = self.free_at(now, &url, exchange.range);
                    (exchange.url, exchange.asked) = (url, None);
                    self.exchange = Some(exchange);
                }
                Err(error) => self.fail(&exchange, &format!("redirected: {error}")),
            }
        }
        self.plan();
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.plan();
    }

    /// The next request, if the previous one is complete and the earliest time for this one has come.
    pub fn poll_request(&mut self) -> Option<Request> {
        let now = self.now;
        let exchange =
            self.exchange.as_mut().filter(|exchange| exchange.asked.is_none() && exchange.at <= now)?;
        exchange.asked = Some(now);
        self.recent.push_back((now, exchange.url.clone(), exchange.range));
        Some(Request { url: exchange.url.to_string(), range: exchange.range })
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// True if separate audio is pulled in addition to the variant; known once the first segment begins.
    #[must_use]
    pub const fn has_audio_beside(&self) -> bool {
        self.tracks.len() > 1
    }

    /// The time at which [`handle_timeout`](Self::handle_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = |exchange: &&Exchange| exchange.asked.is_none() && exchange.at > self.now;
        self.exchange.as_ref().filter(waits).map(|exchange| exchange.at)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn event(&mut self, event: Event) {
        if self.is_closed || (matches!(event, Event::Lost { .. }) && self.events.back() == Some(&event)) {
            return;
        }
        if self.events.len() >= EVENTS_MAX {
            self.end("events are not taken");
            return;
        }
        self.events.push_back(event);
    }

    /// Pulls this variant from now on, continuing at the playback position that the previous variant had
    /// reached.
    fn pull(&mut self, choice: Choice) {
        let progress = |of| {
            let before = self.tracks.iter().find(|track| track.rendition == of);
            before.map(|track| track.progress.max(track.resume))
        };
        let track = |rendition, url| {
            let mut track = Track::new(rendition, url, self.now);
            track.resume = progress(rendition).unwrap_or_default();
            track.discontinuity = self.has_begun;
            track
        };
        let Choice { main, audio } = choice;
        let audio = audio.map(|url| track(Rendition::Audio, url));
        self.tracks = std::iter::once(track(Rendition::Main, main)).chain(audio).collect();
    }

    /// Changes to the next best variant. If there is none, the pull ends for this reason. Once segments were
    /// passed on, only variants with the same arrangement of audio (separate or not) are considered.
    fn fall(&mut self, reason: &str) {
        let has_audio = self.has_audio_beside();
        let is_alike = |choice: &Choice| choice.audio.is_some() == has_audio;
        while let Some(choice) = self.choices.pop_front() {
            if self.has_begun && !is_alike(&choice) {
                continue;
            }
            let is_cut = |track: &&Track| track.current.as_ref().is_some_and(|current| current.begun);
            let cut: Vec<Rendition> =
                self.tracks.iter().filter(is_cut).map(|track| track.rendition).collect();
            cut.into_iter().for_each(|rendition| self.event(Event::Lost { rendition }));
            self.pull(choice);
            self.losses = 0;
            return;
        }
        self.end(reason);
    }

    fn end(&mut self, reason: &str) {
        if !self.is_closed {
            self.events.push_back(Event::Ended(reason.to_owned()));
        }
        self.is_closed = true;
        self.exchange = None;
        self.tracks.clear();
        self.choices.clear();
    }
}
