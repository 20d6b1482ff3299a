//! Players for the load generator. Most of them are clients of pulls.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flv::file::TagKind;
use media::TrackId;

use super::publisher::grant;
use super::pull::{Client, ClientDatagrams, ClientEvent, ClientStream, Media, Start};
use super::{OpenPath, PathId, ts};
use crate::mail::SessionSettings;

/// An event of a player.
#[derive(Debug)]
pub enum LoadEvent {
    /// The server has accepted the request to play.
    Ready,
    /// The player needs another byte stream to the same server, instead of the last one.
    Reconnect,
    /// The player needs a UDP socket of its own beside its byte stream.
    OpenPath(OpenPath),
    /// The player closes a UDP socket of its own.
    ClosePath(PathId),
    /// The body of an FLV tag.
    Tag {
        /// The kind of the tag.
        kind: TagKind,
        /// The body.
        body: Bytes,
    },
    /// An access unit of another container.
    Unit {
        /// True for video, false for audio.
        is_video: bool,
        /// Number of the media section that carries the unit, for players that receive several tracks of a kind. A
        /// section carries one stream at a time.
        place: u8,
        /// NAL units with four-byte lengths, or a raw frame.
        payload: Bytes,
    },
    /// A complete segment or part.
    Piece {
        /// True for video, alone or with audio; false for audio alone.
        is_video: bool,
        /// Consecutive number of the piece; a skipped number means that a piece is missing.
        number: u64,
        /// Time at which the end of the piece was made, in milliseconds of Unix time, if known.
        made_ms: Option<i64>,
        /// Time at which the last byte of the piece arrived.
        at: Instant,
    },
    /// A complete playlist.
    Playlist {
        /// Time of the request.
        asked: Instant,
        /// Time at which the end of its media was made, in milliseconds of Unix time, if known.
        made_ms: Option<i64>,
        /// Time to wait before the next request.
        pause: Duration,
    },
    /// The player has ended, for this reason.
    Closed(String),
}

/// A client that plays, over a byte stream, datagrams, or both.
pub trait LoadPlayer: Debug + Send {
    /// Returns the byte stream, if the player has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream>;
    /// Returns the datagram side, if the player has one.
    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams>;
    /// Notes that the byte stream has ended.
    fn handle_end(&mut self, now: Instant);
    /// True if the player continues without the byte stream that has ended, and opens another one when
    /// needed.
    fn outlives_stream(&self) -> bool {
        false
    }
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// Returns the number of packets of media received so far, if the protocol has packets.
    fn packets(&self) -> u64 {
        0
    }
    /// Returns the next event.
    fn poll_event(&mut self) -> Option<LoadEvent>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Closes the connection as its protocol requires.
    fn close(&mut self, now: Instant);
}

/// The client of a pull, as a player.
#[derive(Debug)]
pub(super) struct PulledPlayer {
    client: Box<dyn Client>,
    depackager: Option<Box<ts::Depackager>>,
    ready: bool,
    events: VecDeque<LoadEvent>,
}

impl PulledPlayer {
    /// Makes a player for a connection that is being opened.
    pub(super) fn new(now: Instant, mut client: Box<dyn Client>) -> Self {
        client.begin(&Start { via: &[], now, address: None, server: &SessionSettings::default(), app: None });
        if let Some(units) = client.units() {
            units.handle_grant(now, &grant());
        }
        Self { client, depackager: None, ready: false, events: VecDeque::new() }
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
                    self.events.push_back(LoadEvent::Unit { is_video, place: 0, payload: unit.payload });
                }
            }
            // The load generator plays only live streams, no files.
            Media::Mp4(_) | Media::Mp4Index { .. } => {
                self.events.push_back(LoadEvent::Closed("the body is a file".to_owned()))
            }
            Media::Lost => {
                if let Some(depackager) = &mut self.depackager {
                    depackager.lost();
                }
            }
        }
    }
}

impl LoadPlayer for PulledPlayer {
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        self.client.byte_stream()
    }

    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        self.client.datagrams()
    }

    fn handle_end(&mut self, now: Instant) {
        self.client.handle_end(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.client.handle_timeout(now);
    }

    fn poll_event(&mut self) -> Option<LoadEvent> {
        while self.events.is_empty() {
            match self.client.poll()? {
                ClientEvent::Accepted | ClientEvent::Connected => {
                    if !std::mem::replace(&mut self.ready, true) {
                        self.events.push_back(LoadEvent::Ready);
                    }
                }
                ClientEvent::Media(media) => self.take(media),
                ClientEvent::Unit { unit, .. } => {
                    let is_video = unit.track == TrackId::VIDEO;
                    self.events.push_back(LoadEvent::Unit { is_video, place: 0, payload: unit.payload });
                }
                ClientEvent::Begun | ClientEvent::Dropped(_) | ClientEvent::ClockNews(_) => {}
                // The load generator measures the server named in its target, so it follows no redirect.
                ClientEvent::NextServer(_) | ClientEvent::Disconnect => {
                    self.events.push_back(LoadEvent::Closed("the server redirects".to_owned()));
                }
                ClientEvent::OpenPath(wanted) => self.events.push_back(LoadEvent::OpenPath(wanted)),
                ClientEvent::ClosePath(path) => self.events.push_back(LoadEvent::ClosePath(path)),
                ClientEvent::Ended(reason) | ClientEvent::Over(reason) => {
                    self.events.push_back(LoadEvent::Closed(reason))
                }
            }
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    fn close(&mut self, now: Instant) {
        self.client.close(now);
    }
}
