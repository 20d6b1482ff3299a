//! The protocol of a pull: the interface of its client ([`Client`]), and its output ([`ClientEvent`], [`Media`]).

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flv::file::{Tag, TagKind};
use media::{AccessUnit, ClockNews, TrackId, TrackSet, Tracks};
use wire::{Datagrams, SendQueue};

use super::HELD_BYTES_MAX;
use crate::config::AppSettings;
use crate::jobs::{Job, JobDone};
use crate::mail::{Grant, NextServer, SessionSettings};
use crate::protocol::usable::Supply;
use crate::protocol::{OpenPath, PathId, To};
use crate::stats::Figures;

/// A piece of a stream from a server, in its container.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::protocol) enum Media {
    /// An FLV tag.
    Tag(Tag),
    /// A piece of an MP4 file.
    Mp4(Bytes),
    /// The index of an MP4 file, a complete `moov`. The following pieces begin at this offset of the file.
    Mp4Index {
        /// The index.
        index: Bytes,
        /// The offset.
        media_at: u64,
    },
    /// MPEG-TS packets.
    Payload(Bytes),
    /// A gap: MPEG-TS packets are missing here.
    Lost,
}

impl Media {
    /// True if the piece contains, or may contain, video or audio.
    pub(super) fn is_media(&self) -> bool {
        match self {
            Self::Tag(tag) => matches!(tag.kind, TagKind::Audio | TagKind::Video),
            Self::Mp4(_) | Self::Mp4Index { .. } | Self::Payload(_) => true,
            Self::Lost => false,
        }
    }

    /// True if the piece should be kept until control grants the stream.
    pub(super) fn is_kept(&self) -> bool {
        match self {
            Self::Tag(tag) => {
                !matches!(tag.kind, TagKind::Other(_))
                    && (self.is_media() || tag.body.len() <= HELD_BYTES_MAX)
            }
            Self::Mp4(_) | Self::Mp4Index { .. } | Self::Payload(_) => true,
            Self::Lost => false,
        }
    }
}

/// The context in which a client begins.
#[derive(Debug, Clone, Copy)]
pub(in crate::protocol) struct Start<'a> {
    /// The nodes for which this node fetches the copy.
    pub(in crate::protocol) via: &'a [String],
    /// The time.
    pub(in crate::protocol) now: Instant,
    /// The address connected to, or listened at; `None` in the load generator.
    pub(in crate::protocol) address: Option<SocketAddr>,
    /// The settings of the server.
    pub(in crate::protocol) server: &'a SessionSettings,
    /// Settings of the application; `None` in the load generator.
    pub(in crate::protocol) app: Option<&'a AppSettings>,
}

/// An event of a [`Client`].
#[derive(Debug, PartialEq)]
pub(in crate::protocol) enum ClientEvent {
    /// The handshake is complete, in protocols that have one.
    Connected,
    /// The server has the stream and will send it.
    Accepted,
    /// A piece of the stream.
    Media(Media),
    /// The stream has begun; units follow once it is granted ([`UnitClient`]).
    Begun,
    /// A unit.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks of the stream, which are needed to decode the unit.
        tracks: Arc<Tracks>,
    },
    /// Number of units dropped since the last event, because they could not be used.
    Dropped(u64),
    /// A clock of the source was wrong, and was corrected.
    ClockNews(ClockNews),
    /// The client continues at another server, over a new connection; [`Client::begin`] is called when that connection
    /// is open.
    NextServer(NextServer),
    /// The client no longer needs the connection.
    Disconnect,
    /// The client needs a UDP socket of its own; answered by [`ClientDatagrams::handle_local`].
    OpenPath(OpenPath),
    /// The client closes a socket of its own.
    ClosePath(PathId),
    /// The client has ended, for this reason.
    Ended(String),
    /// The client has ended, and according to the server the stream has ended too.
    Over(String),
}

/// The timeouts of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Maximum time for the handshake, or until the head of the response has arrived.
    pub handshake: Duration,
    /// Maximum time from the end of the handshake to the beginning of the stream.
    pub ready: Duration,
    /// Maximum time between two pieces of media.
    pub stall: Duration,
}

impl Patience {
    /// The timeouts of pulls. The pull session has deadlines of its own, which are shorter in total; `ready` and
    /// `stall` are only a last limit for the client.
    pub(in crate::protocol) const PULL: Self = Self {
        handshake: Duration::from_secs(5),
        ready: Duration::from_secs(10),
        stall: Duration::from_secs(10),
    };
}

/// The protocol's client of a pull, over a byte stream or datagrams.
pub(in crate::protocol) trait Client: Debug + Send {
    /// Begins on an established connection; called again for another connection that the client has asked for.
    fn begin(&mut self, start: &Start<'_>);
    /// Notes that the connection has ended. Earlier input is still polled.
    fn handle_end(&mut self, now: Instant);
    /// Handles deadlines that have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// Closes the connection as its protocol requires.
    fn close(&mut self, now: Instant);
    /// Returns the next event.
    fn poll(&mut self) -> Option<ClientEvent>;
    /// Returns the next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Returns the byte stream, if the client has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }
    /// Returns the datagram side, if the client has one.
    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }
    /// Returns the client as a reader of files, if it is one.
    fn jobs(&mut self) -> Option<&mut dyn ClientJobs> {
        None
    }
    /// Returns the client as a maker of units, if it makes units rather than pieces of a container.
    fn units(&mut self) -> Option<&mut dyn UnitClient> {
        None
    }
    /// Returns the client as one that can request key frames and fewer tracks, if it is one.
    fn demands(&mut self) -> Option<&mut dyn Demands> {
        None
    }
    /// For a copy of another node's stream, returns the wall clock at which that stream's clock was zero
    /// ([`crate::protocol::PublishAsk::zero_ms`]). The origin checks its publisher's stream, so here only silence of
    /// the origin is a fault.
    fn zero_ms(&self) -> Option<i64> {
        None
    }
    /// For a source that delivers media faster than it is played, such as a file, returns the time by which media is
    /// kept ahead of real time. `None` for a live source.
    fn reserve(&self) -> Option<Duration> {
        None
    }
    /// True if the client may take any time until the first media, because it waits for a caller.
    fn waits(&self) -> bool {
        false
    }
    /// Returns the figures of the connection, which only its protocol understands.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }
    /// Name of the protocol, for logs and counters.
    fn name(&self) -> &'static str;
}

/// A client that makes units itself.
pub(in crate::protocol) trait UnitClient {
    /// Sets the position of the stream, from which units follow.
    fn handle_grant(&mut self, now: Instant, grant: &Grant);
    /// Returns what the server has sent so far: nothing usable, only announcements, audio alone, or frames.
    fn supply(&self) -> Supply;
}

/// A client that can pass viewers' demands to its server.
pub(in crate::protocol) trait Demands {
    /// Sets the tracks that are wanted; no others need to be sent.
    fn handle_wanted(&mut self, tracks: TrackSet);
    /// Notes that a subscriber waits for a key frame of this track.
    fn handle_key_frame_needed(&mut self, track: TrackId);
    /// Sets the number of viewers of the stream at this node.
    fn handle_audience(&mut self, viewers: &::relay::Viewers);
}

/// A client over a byte stream.
pub trait ClientStream {
    /// Takes bytes of the server.
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]);
    /// Moves output to `out`.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A client over datagrams.
pub trait ClientDatagrams {
    /// Notes the local address of a socket that is open and not connected to the server, or `None` if the socket that
    /// the client asked for could not be opened.
    fn handle_local(&mut self, now: Instant, path: PathId, local: Option<SocketAddr>);
    /// Takes a datagram of the server, which may be decrypted in place.
    fn handle_datagram(&mut self, now: Instant, path: PathId, from: SocketAddr, datagram: &mut [u8]);
    /// Adds the datagrams to send, and returns their destination.
    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To;
}

/// A client that needs blocking work done.
pub(in crate::protocol) trait ClientJobs {
    /// Returns the next job, once all events were polled; at most one is in progress.
    fn poll_job(&mut self) -> Option<Job>;
    /// Handles the answer to a job.
    fn handle_job(&mut self, now: Instant, done: JobDone);
}
