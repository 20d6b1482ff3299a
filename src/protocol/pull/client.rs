//! The protocol of a pull: what each brings ([`Client`]), and what it says ([`ClientEvent`], [`Media`]).

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

/// A piece of a stream from a server.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::protocol) enum Media {
    /// A tag of FLV.
    Tag(Tag),
    /// A piece of an MP4 file.
    Mp4(Bytes),
    /// The index of an MP4 file, a whole `moov`. The pieces begin at this offset of the file.
    Mp4Index {
        /// The index.
        index: Bytes,
        /// The offset.
        media_at: u64,
    },
    /// Packets of MPEG-TS.
    Payload(Bytes),
    /// Packets of MPEG-TS are missing here.
    Lost,
}

impl Media {
    /// Whether there is, or may be, video or audio in it.
    pub(super) fn is_media(&self) -> bool {
        match self {
            Self::Tag(tag) => matches!(tag.kind, TagKind::Audio | TagKind::Video),
            Self::Mp4(_) | Self::Mp4Index { .. } | Self::Payload(_) => true,
            Self::Lost => false,
        }
    }

    /// Whether it is worth to be held.
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

/// The parts that a client begins with.
#[derive(Debug, Clone, Copy)]
pub(in crate::protocol) struct Start<'a> {
    /// The nodes that a copy is for, besides this one.
    pub(in crate::protocol) via: &'a [String],
    /// The time.
    pub(in crate::protocol) now: Instant,
    /// The address that is connected to, or waited at; the load generator does not say.
    pub(in crate::protocol) address: Option<SocketAddr>,
    /// The settings of the server.
    pub(in crate::protocol) server: &'a SessionSettings,
    /// The settings of the application; the load generator has none.
    pub(in crate::protocol) app: Option<&'a AppSettings>,
}

/// An event of a [`Client`].
#[derive(Debug, PartialEq)]
pub(in crate::protocol) enum ClientEvent {
    /// The peers know each other, where that is more than the socket.
    Connected,
    /// The server has the stream, and will send it.
    Accepted,
    /// A piece of the stream.
    Media(Media),
    /// The stream has begun; what follows are units, from the grant on ([`UnitClient`]).
    Begun,
    /// A unit.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks that decode it.
        tracks: Arc<Tracks>,
    },
    /// Units that could not be used.
    Dropped(u64),
    /// A clock of the source was wrong, and was corrected.
    ClockNews(ClockNews),
    /// Goes on at another server, in a connection of its own: [`Client::begin`] says when it is there.
    NextServer(NextServer),
    /// Has no more use for the connection.
    Disconnect,
    /// Wants a UDP socket of its own; answered by [`ClientDatagrams::handle_local`].
    OpenPath(OpenPath),
    /// Closes one.
    ClosePath(PathId),
    /// The end, with the reason.
    Ended(String),
    /// The same, and the stream is over as far as the server knows.
    Over(String),
}

/// The timeouts of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the end of the handshake, or the head of the response.
    pub handshake: Duration,
    /// From there to the stream.
    pub ready: Duration,
    /// Between media.
    pub stall: Duration,
}

impl Patience {
    /// The timeouts of pulls. The session's own deadlines are shorter in sum; the last two only bound the machine.
    pub(in crate::protocol) const PULL: Self = Self {
        handshake: Duration::from_secs(5),
        ready: Duration::from_secs(10),
        stall: Duration::from_secs(10),
    };
}

/// The protocol of a pull, over a byte stream or datagrams.
pub(in crate::protocol) trait Client: Debug + Send {
    /// The connection is established; another one, when the client has asked for it.
    fn begin(&mut self, start: &Start<'_>);
    /// The connection is gone. What came before is still polled.
    fn handle_end(&mut self, now: Instant);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);
    /// Closes the connection in the way of its protocol.
    fn close(&mut self, now: Instant);
    /// The next event.
    fn poll(&mut self) -> Option<ClientEvent>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// The byte stream, if it has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        None
    }
    /// The datagrams, if it has any.
    fn datagrams(&mut self) -> Option<&mut dyn ClientDatagrams> {
        None
    }
    /// Itself, if it reads files.
    fn jobs(&mut self) -> Option<&mut dyn ClientJobs> {
        None
    }
    /// Itself, if it makes units of what comes rather than hand on pieces of a container.
    fn units(&mut self) -> Option<&mut dyn UnitClient> {
        None
    }
    /// Itself, if it can ask for key frames and for fewer tracks.
    fn demands(&mut self) -> Option<&mut dyn Demands> {
        None
    }
    /// For a copy of another node's stream, the time at which the clock of that stream was zero ([`crate::protocol::PublishAsk::zero_ms`]).
    /// The origin judges what its publisher sends; here only silence of the node is a fault.
    fn zero_ms(&self) -> Option<i64> {
        None
    }
    /// The time by which its media are kept ahead of real time, if they come faster than they are to be seen, as a file does.
    /// `None`: it is live, as far as it is known.
    fn reserve(&self) -> Option<Duration> {
        None
    }
    /// Whether it may take as long as it likes until the first media: it waits to be called.
    fn waits(&self) -> bool {
        false
    }
    /// Figures of its connection; its protocol knows what they are.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }
    /// The name, for logs and counters.
    fn name(&self) -> &'static str;
}

/// A client that makes units of what comes.
pub(in crate::protocol) trait UnitClient {
    /// Takes the position of the stream: what comes becomes units from there on.
    fn handle_grant(&mut self, now: Instant, grant: &Grant);
    /// The part of the stream that has come so far.
    fn supply(&self) -> Supply;
}

/// A client whose server can be asked for what viewers want.
pub(in crate::protocol) trait Demands {
    /// Takes the tracks that somebody is sent; no others are wanted.
    fn handle_wanted(&mut self, tracks: TrackSet);
    /// Notes that somebody waits for a key frame of this track.
    fn handle_key_frame_needed(&mut self, track: TrackId);
    /// Takes the number of viewers of the stream here.
    fn handle_audience(&mut self, viewers: &::relay::Viewers);
}

/// A client over a byte stream.
pub trait ClientStream {
    /// Bytes of the server.
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]);
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A client over datagrams.
pub trait ClientDatagrams {
    /// Takes the address at which a socket receives, once it is open and not connected to the server. `None`: a socket
    /// that the client wanted could not be opened.
    fn handle_local(&mut self, now: Instant, path: PathId, local: Option<SocketAddr>);
    /// A datagram of the server; it may be opened in place.
    fn handle_datagram(&mut self, now: Instant, path: PathId, from: SocketAddr, datagram: &mut [u8]);
    /// Adds the datagrams that are to be sent, and says where to.
    fn poll_datagrams(&mut self, now: Instant, out: &mut Datagrams) -> To;
}

/// A client that has work done which may block.
pub(in crate::protocol) trait ClientJobs {
    /// The next job, once everything that has come is polled; one is under way at a time.
    fn poll_job(&mut self) -> Option<Job>;
    /// The answer to it.
    fn handle_job(&mut self, now: Instant, done: JobDone);
}
