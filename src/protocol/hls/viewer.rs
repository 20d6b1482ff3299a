//! A viewer of the load generator: one connection, over which it makes one request at a time, as an HLS player does.
//!
//! 1. It requests the playlist; for a multivariant one, those of its best variant and of that variant's audio.
//! 2. It requests segments from three target durations before the end on, and the playlist again a target duration
//!    after the last request (RFC 8216 §6.3.4).
//! 3. If the playlist offers low latency, it requests parts, and reloads that wait for the next part (RFC 8216bis
//!    §6.2.5.2); every other part is requested by its hint, before the part exists.
//!
//! The received bytes are counted and discarded: parsing them would make the load generator measure itself.

use std::collections::VecDeque;
use std::time::Instant;

use ::hls::limits::{FAILURES_MAX, PLAYLIST_BYTES_MAX};
use ::hls::{Playlist, Url, choose};
use bytes::Bytes;
use wire::SendQueue;

use super::fetch::{Fetch, Fetched, Go};
use super::follow::{Follower, Want};
use crate::mail::NextServer;
use crate::protocol::player::{LoadEvent, LoadPlayer};
use crate::protocol::pull::{ClientDatagrams, ClientStream};

/// A request, and its time.
#[derive(Debug)]
struct Asked {
    follower: usize,
    want: Want,
    at: Instant,
}

/// A viewer of the load generator.
#[derive(Debug)]
pub(super) struct Viewer {
    home: Url,
    /// The only server to which the viewer connects; a playlist that names another one ends the viewer.
    server: Option<NextServer>,
    fetch: Fetch,
    followers: Vec<Follower>,
    asked: Option<Asked>,
    /// Body of a playlist that is being received.
    body: Vec<u8>,
    ready: bool,
    /// True if the server has answered since the connection was made.
    answered: bool,
    /// Number of failures in a row.
    failures: u32,
    out: SendQueue,
    closed: bool,
    events: VecDeque<LoadEvent>,
}

impl Viewer {
    /// Creates a viewer on a connection that is being made. `None` if the URL is not one of HTTP.
    pub(super) fn new(url: &str, now: Instant) -> Option<Self> {
        let home = Url::read(url).ok()?;
        let fetch = Fetch::new(url);
        let mut viewer = Self {
            server: fetch.server().cloned(),
            fetch,
            followers: vec![Follower::new(true, home.clone(), now)],
            home,
            asked: None,
            body: Vec::new(),
            ready: false,
            answered: false,
            failures: 0,
            out: SendQueue::new(),
            closed: false,
            events: VecDeque::new(),
        };
        viewer.ask(now);
        Some(viewer)
    }

    fn end(&mut self, why: impl Into<String>) {
        if !std::mem::replace(&mut self.closed, true) {
            self.events.push_back(LoadEvent::Closed(why.into()));
        }
    }

    /// Makes the request that is due first, unless one is in progress. Known pieces precede everything else.
    fn ask(&mut self, now: Instant) {
        if self.asked.is_some() || self.closed {
            return;
        }
        let first = self.followers.iter_mut().enumerate().min_by_key(|(_, follower)| follower.due());
        let Some((index, follower)) = first else { return };
        if follower.due().is_some_and(|at| at > now) {
            return;
        }
        let want = follower.take_next();
        let go = follower.request(&want).and_then(|request| self.fetch.ask(&request));
        self.asked = Some(Asked { follower: index, want, at: now });
        match go {
            Some(Go::Here(text)) => self.out.push(Bytes::from(text)),
            Some(Go::To(server)) if self.server.as_ref() == Some(&server) => {
                self.events.push_back(LoadEvent::Reconnect);
                self.answered = false;
                self.out = SendQueue::new();
                self.fetch.connected().into_iter().for_each(|text| self.out.push(Bytes::from(text)));
            }
            Some(Go::To(_)) => self.end("what the playlist names is on another server"),
            None => self.end("the playlist names what cannot be requested"),
        }
    }

    fn advance(&mut self, now: Instant, fetched: Vec<Fetched>) {
        for one in fetched {
            match one {
                Fetched::Body(bytes) => self.take_body(&bytes),
                Fetched::End => self.finish(now),
                Fetched::Moved(_) => self.end("the server redirects"),
                Fetched::Failed(why) => self.fail(now, &why),
            }
        }
        self.ask(now);
    }

    fn take_body(&mut self, bytes: &[u8]) {
        self.answered = true;
        if !matches!(self.asked, Some(Asked { want: Want::Playlist, .. })) {
            return;
        }
        if self.body.len().saturating_add(bytes.len()) > PLAYLIST_BYTES_MAX {
            return self.end("the playlist is too long");
        }
        self.body.extend_from_slice(bytes);
    }

    fn finish(&mut self, now: Instant) {
        let Some(Asked { follower, want, at }) = self.asked.take() else { return };
        self.failures = 0;
        match want {
            Want::Playlist => {
                let body = std::mem::take(&mut self.body);
                match Playlist::read(&body) {
                    Ok(playlist) => self.load(follower, &playlist, at, now),
                    Err(error) => self.end(error.to_string()),
                }
            }
            Want::Map(_) => {}
            Want::Piece(piece) => self.count(follower, piece.number, piece.made_ms, now),
            Want::Hint(uri) => {
                if let Some(follower) = self.followers.get_mut(follower) {
                    follower.take_hinted(uri, now);
                }
            }
        }
    }

    fn count(&mut self, follower: usize, number: u64, made_ms: Option<i64>, at: Instant) {
        let is_video = self.followers.get(follower).is_none_or(|follower| follower.is_video);
        self.events.push_back(LoadEvent::Piece { is_video, number, made_ms, at });
    }

    fn load(&mut self, index: usize, playlist: &Playlist, asked: Instant, now: Instant) {
        let playlist = match playlist {
            Playlist::Media(playlist) => playlist,
            Playlist::Multivariant(playlist) if self.followers.len() == 1 && !self.ready => {
                let Some((main, audio)) = choose(playlist, &self.home, None) else {
                    return self.end("no variant is in codecs that are carried");
                };
                self.followers = vec![Follower::new(true, main, now)];
                self.followers.extend(audio.map(|url| Follower::new(false, url, now)));
                return;
            }
            Playlist::Multivariant(_) => return self.end("a variant is no media playlist"),
        };
        let Some(follower) = self.followers.get_mut(index) else { return };
        let loaded = follower.load(playlist, asked, now);
        let pause = follower.pause(now);
        if !std::mem::replace(&mut self.ready, true) {
            self.events.push_back(LoadEvent::Ready);
        }
        self.events.push_back(LoadEvent::Playlist { asked, made_ms: loaded.made_ms, pause });
        for (piece, at) in loaded.came {
            self.count(index, piece.number, piece.made_ms, at);
        }
        if let Some(why) = loaded.over {
            self.end(why);
        }
    }

    /// Handles a failed request: a playlist is requested again, a piece counts as missing.
    fn fail(&mut self, now: Instant, why: &str) {
        self.body.clear();
        self.failures = self.failures.saturating_add(1);
        let Some(Asked { follower, want, .. }) = self.asked.take() else { return };
        if self.failures > FAILURES_MAX || !self.ready {
            self.end(why);
        } else if let Some(follower) = self.followers.get_mut(follower) {
            match want {
                Want::Playlist => follower.retry(now),
                Want::Map(_) | Want::Piece(_) => follower.miss(),
                // The hinted part is in the next playlist, or never existed.
                Want::Hint(_) => {}
            }
        }
    }
}

impl ClientStream for Viewer {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let mut fetched = Vec::new();
        self.fetch.handle_bytes(bytes, &mut fetched);
        self.advance(now, fetched);
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.append(&mut self.out);
    }
}

impl LoadPlayer for Viewer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }

    fn handle_end(&mut self, now: Instant) {
        let mut fetched = Vec::new();
        self.fetch.handle_end(&mut fetched);
        self.advance(now, fetched);
    }

    /// The server may close the connection between two answers (RFC 9112 §9.5); the viewer then opens a new one.
    fn outlives_stream(&self) -> bool {
        self.answered && !self.closed
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.asked.is_some() || self.closed {
            return None;
        }
        self.followers.iter().filter_map(Follower::due).min()
    }

    fn close(&mut self, _now: Instant) {
        self.closed = true;
    }
}

#[cfg(test)]
mod tests;
