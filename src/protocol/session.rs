//! The worker's view of a protocol: a [`Session`] whose events and replies name no protocol.
//!
//! A session has a life cycle ([`Session`]: time, events, replies, the end) and capabilities beside it: a byte stream
//! ([`ByteStream`]), datagrams ([`DatagramPeer`]), units taken whole ([`UnitSink`]), in any combination. A sink such as a
//! recorder has only the last; a viewer of RTSP may have all three.
//!
//! Whatever a session has several of, publications, subscriptions, children and jobs, it names itself by a [`Handle`],
//! and the answers come back under that name as a [`Reply`].

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use media::{AccessUnit, ClockNews, TrackId, TrackSet, Tracks};
use wire::{Datagrams, SendQueue};

use super::{Apps, Claim, Format, Remote};
use crate::auth::access::Params;
use crate::hub::{Blobs, Delivery, Parts, Selection};
use crate::jobs::{Job, JobDone};
use crate::mail::{
    Blob, Departure, Grant, Message, NextServer, NoSubscription, Progress, PullState, PushState,
    RecordingNews, Refusal, SessionSettings, StreamEnd, UploadGrant, UploadNews,
};
use crate::stats::Figures;
use crate::types::{Handle, Ingest, Now, SessionRef, StreamId, StreamKey};

/// The context in which a session handles input.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Now,
    /// The applications.
    pub apps: &'a Apps,
    /// The settings of the whole server.
    pub server: &'a SessionSettings,
    /// Blobs that requests are answered with.
    pub blobs: &'a Blobs,
    /// No new publishers and viewers.
    pub draining: bool,
}

/// A request to publish, as the protocol could read it.
#[derive(Debug)]
pub struct PublishAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// How the stream comes in.
    pub ingest: Ingest,
    /// The encoder's user agent.
    pub user_agent: String,
    /// Parameters behind the key.
    pub params: Params,
    /// Streams it was forwarded through.
    pub via: Vec<String>,
    /// Whether a page of another asks: that it runs on this machine says nothing of who wants it.
    pub of_foreign_page: bool,
}

/// A request to play, as the protocol could read it.
#[derive(Debug, Clone)]
pub struct PlayAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// Form and tracks.
    pub format: Format,
    /// Parameters behind the key.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
}

/// Somebody who watches by one request after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The stream.
    pub stream: StreamId,
    /// The protocol, as viewers are counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// What it was known by before it had this one.
    pub former: Option<String>,
    /// The parameters of the request that hooks tell, if it is the viewer's first.
    pub params: Params,
}

/// A request of somebody who watches by one request after the other, before it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassAsk {
    /// The stream, where that is known.
    pub stream: Option<StreamId>,
    /// The application, and the id of the stream, or the name of the file.
    pub key: StreamKey,
    /// The protocol, as viewers are counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The name that it had before this one.
    pub former: Option<String>,
    /// The name below the application's `streams`.
    pub file: String,
    /// Whether there is something to send.
    pub found: bool,
    /// Parameters of the request.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
}

/// How long a request waits for a blob that is being made: longer than the first segment takes with most encoders.
pub const BLOB_WAIT: Duration = Duration::from_secs(15);

/// A blob that a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedBlob {
    /// The stream.
    pub key: StreamKey,
    /// The path below the application's `streams`.
    pub name: String,
    /// How far it has to be.
    pub progress: Progress,
    /// The kind of sink that makes it, when the request begins one.
    pub sink: Option<&'static str>,
}

/// Names a network path of a session; the session chooses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathId(pub u8);

/// A UDP socket that a session wants for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPath {
    /// The session's name for it.
    pub path: PathId,
    /// The address to receive at; `None`: any free port.
    pub bind: Option<SocketAddr>,
    /// The peer, when there is one only.
    pub to: Option<SocketAddr>,
}

/// An event on a network path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEvent<'a> {
    /// An outgoing connection is established, or a socket is open.
    Open {
        /// The address that it received, where it is a socket of the session's own.
        local: Option<SocketAddr>,
    },
    /// The peer closed its side.
    PeerClosed,
    /// It failed, or could not be opened: the reason.
    Broken(&'a str),
}

/// An event of a session for the worker.
#[derive(Debug)]
pub enum Event {
    /// Asks to publish; answered by [`Reply::Publish`].
    Publish {
        /// The new publication.
        publication: Handle,
        /// The request.
        ask: PublishAsk,
    },
    /// Publishes no more, or gave up asking.
    Unpublished {
        /// The publication that is over.
        publication: Handle,
        /// How it ended.
        departure: Departure,
    },
    /// A unit of a stream that it publishes.
    Unit {
        /// The publication.
        publication: Handle,
        /// The unit.
        unit: AccessUnit,
        /// The tracks of the stream; one of them decodes the unit.
        tracks: Arc<Tracks>,
    },
    /// Units of a publication could not be used.
    UnitsDropped {
        /// The publication.
        publication: Handle,
        /// The number of units.
        units: u64,
    },
    /// News of its publisher's clocks: faults, and the pace.
    ClockNews {
        /// The publication.
        publication: Handle,
        /// The news.
        news: ClockNews,
    },
    /// What it publishes has a fault that an operator should know of. Sessions tell each once.
    Fault {
        /// The publication.
        publication: Handle,
        /// The fault, in words.
        reason: &'static str,
    },
    /// Asks to play; answered by [`Reply::Subscribe`].
    Subscribe {
        /// The new subscription.
        subscription: Handle,
        /// The request.
        ask: PlayAsk,
    },
    /// Takes the stream that it was ordered for: a push, a sink.
    Attach {
        /// The new subscription.
        subscription: Handle,
        /// Form and tracks.
        format: Format,
    },
    /// Wants other tracks from the next key frame on; what it is sent goes on until then.
    Select {
        /// The subscription.
        subscription: Handle,
        /// The rule from now on.
        selection: Selection,
    },
    /// The peer lost something that only a key frame mends.
    KeyFrameNeeded {
        /// The subscription.
        subscription: Handle,
        /// The video track; `None`: the one that the subscription starts at.
        track: Option<TrackId>,
    },
    /// Is about to begin with this track, or others begin behind it: a key frame is asked for, if the newest one is old.
    KeyFrameSoon {
        /// The subscription.
        subscription: Handle,
        /// The video track; `None`: the one that the subscription starts at.
        track: Option<TrackId>,
    },
    /// Pauses or resumes.
    Pause {
        /// The subscription.
        subscription: Handle,
        /// While paused nothing is sent.
        paused: bool,
    },
    /// Plays no more, or gave up asking.
    Unsubscribe(Handle),
    /// What follows is asked by this client; the peer is a proxy that is trusted.
    Client(IpAddr),
    /// A request of the API; answered by [`Reply::Rest`].
    Rest {
        /// The request.
        request: Box<crate::http::Request>,
        /// Whether it came over TLS.
        secure: bool,
    },
    /// What became of a file that it was granted to take in ([`Reply::Upload`]).
    Upload(UploadNews),
    /// Wants the record of a stream, without credentials; answered by [`Reply::Rest`].
    Record {
        /// The stream.
        key: StreamKey,
        /// Streams that the session was let in to.
        let_in: Vec<String>,
    },
    /// Wants to hear when a stream that is not there begins: [`Reply::StreamBegun`], once.
    Await(StreamKey),
    /// Publishes a blob of the stream that it was ordered for.
    Blob(Box<Blob>),
    /// Wants to hear when a blob of a live stream is there, and as far as it has to be; a sink may have to make it: [`Reply::Blob`],
    /// once, at the latest after [`BLOB_WAIT`].
    AwaitBlob(WantedBlob),
    /// Asks whether a viewer may have what it requests; answered by [`Reply::Pass`].
    Pass(Box<PassAsk>),
    /// A request has shown that somebody watches a stream.
    Watched(Watched),
    /// Work that may block; answered by [`Reply::Job`].
    Job(Job),
    /// The state of the push that this session is.
    Push(PushState),
    /// The state of the pull that this session is.
    Pull(PullState),
    /// News of the recording that this session is.
    Recording(RecordingNews),
    /// Wants a session of its own on this worker; answered by [`Reply::Spawned`]. It ends with its parent.
    Spawn {
        /// The parent's name for it.
        child: Handle,
        /// The new session.
        session: Box<dyn Session>,
    },
    /// Wants a session at a shared port of this worker; answered by [`Reply::Spawned`].
    SpawnAt {
        /// The parent's name for it.
        child: Handle,
        /// The name of the port.
        port: &'static str,
        /// What for, as of [`super::Wanted::what`].
        what: Box<dyn Any + Send>,
        /// Whether it goes on when its parent ends.
        outlives: bool,
    },
    /// What is this session's own at its shared port.
    Claim(Claim),
    /// A datagram of a shared port that came in its byte stream. [`Reply::Uncarried`] when it is nobody's,
    /// [`Reply::Carries`] when it has shown whose all the others are.
    Carried {
        /// The name of the port.
        port: &'static str,
        /// The datagram.
        datagram: BytesMut,
    },
    /// Speaks to another session of any worker: [`Reply::Message`] there.
    Tell {
        /// The receiver.
        to: SessionRef,
        /// The message.
        message: Message,
    },
    /// Wants a UDP socket of its own; answered by [`Session::handle_path`].
    OpenPath(OpenPath),
    /// Closes a UDP socket of its own.
    ClosePath(PathId),
    /// Refused a request of the peer by itself, without asking the worker.
    Refused(Box<RefusedRequest>),
    /// A pull goes on at another server: its byte stream is closed, and the next one is told by [`Session::handle_path`].
    NextServer(NextServer),
    /// A pull has no more use for its byte stream; [`Event::NextServer`] asks for another one.
    Disconnect,
    /// The last one. What is queued is sent, then the connection closes.
    Closed(String),
}

/// Characters of a refused key that are told.
const KEY_CHARS_MAX: usize = 256;

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The kind of request.
    pub verb: Verb,
    /// The stream's key, as far as the peer named one.
    pub key: String,
    /// The reason, for the log.
    pub reason: Cow<'static, str>,
}

impl RefusedRequest {
    /// The event that tells of it. What stands behind application and id may be a credential, and is left out.
    pub fn event(verb: Verb, key: impl ToString, reason: impl Into<Cow<'static, str>>) -> Event {
        let key: Vec<String> = key.to_string().split('/').take(2).map(str::to_owned).collect();
        let key = key.join("/").chars().take(KEY_CHARS_MAX).collect();
        Event::Refused(Box::new(Self { verb, key, reason: reason.into() }))
    }
}

/// A kind of request that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// To speak to the server, or an application, at all.
    Connect,
    /// To publish.
    Publish,
    /// To play.
    Play,
}

/// An answer of the worker to a session, or a notice.
#[derive(Debug)]
pub enum Reply<'a> {
    /// The answer to [`Event::Publish`].
    Publish {
        /// The publication.
        publication: Handle,
        /// Yes or no.
        verdict: Result<Grant, Refusal>,
    },
    /// The server ended a stream that it publishes.
    PublicationEnded {
        /// The publication.
        publication: Handle,
        /// Why the stream ended.
        end: StreamEnd,
    },
    /// Viewers of a publication wait for a key frame. At most one every 500 ms for each track; who cannot act on it need not.
    KeyFrameNeeded {
        /// The publication.
        publication: Handle,
        /// The video track.
        track: TrackId,
    },
    /// The tracks of a publication that somebody is sent are now these.
    Wanted {
        /// The publication.
        publication: Handle,
        /// Published tracks; the others may be paused.
        tracks: TrackSet,
    },
    /// The answer to [`Event::Subscribe`] and [`Event::Attach`].
    Subscribe {
        /// The subscription.
        subscription: Handle,
        /// The tracks of the stream (none yet: [`Reply::TracksKnown`] follows), or why not.
        verdict: Result<&'a Tracks, NoSubscription>,
    },
    /// The stream of [`Event::Subscribe`] is being started for it; the answer follows.
    Held(Handle),
    /// The stream had no tracks when it was subscribed; now it has.
    TracksKnown {
        /// The subscription.
        subscription: Handle,
        /// The tracks.
        tracks: &'a Tracks,
    },
    /// The stream of a subscription has ended.
    SubscriptionEnded {
        /// The subscription.
        subscription: Handle,
        /// Why the stream ended.
        end: StreamEnd,
    },
    /// A stream that was waited for ([`Event::Await`]) has begun.
    StreamBegun(&'a StreamKey),
    /// The answer to [`Event::Rest`] and [`Event::Record`].
    Rest(crate::http::Response),
    /// The answer to [`Event::Rest`] when the body of the request is a file that may come: [`Event::Upload`] tells what became of
    /// it, and [`Reply::Rest`] follows.
    Upload(UploadGrant),
    /// The answer to [`Event::AwaitBlob`]: it is there, or will not be.
    Blob,
    /// The answer to [`Event::Pass`].
    Pass(Result<(), NoSubscription>),
    /// The answer to [`Event::Job`].
    Job(JobDone),
    /// The answer to [`Event::Spawn`]; `None`: there are too many.
    Spawned {
        /// The parent's name for it.
        child: Handle,
        /// The new session.
        session: Option<SessionRef>,
    },
    /// A message of another session ([`Event::Tell`]).
    Message {
        /// The sender.
        from: SessionRef,
        /// The message.
        message: Message,
    },
    /// A session that it spoke to is not there, or a child of it has ended.
    SessionEnded(SessionRef),
    /// A session of the port says that the datagrams of [`Event::Carried`] are its own. It closes this one with itself.
    Carries,
    /// A datagram of [`Event::Carried`] was nobody's.
    Uncarried,
}

impl Reply<'_> {
    /// The handle of the publication or subscription that it is about.
    #[must_use]
    pub const fn handle(&self) -> Option<Handle> {
        match self {
            Self::Publish { publication: handle, .. }
            | Self::PublicationEnded { publication: handle, .. }
            | Self::KeyFrameNeeded { publication: handle, .. }
            | Self::Wanted { publication: handle, .. }
            | Self::Subscribe { subscription: handle, .. }
            | Self::TracksKnown { subscription: handle, .. }
            | Self::SubscriptionEnded { subscription: handle, .. }
            | Self::Held(handle) => Some(*handle),
            Self::StreamBegun(_)
            | Self::Rest(_)
            | Self::Upload(_)
            | Self::Job(_)
            | Self::Spawned { .. }
            | Self::Message { .. }
            | Self::SessionEnded(_)
            | Self::Blob
            | Self::Pass(_)
            | Self::Carries
            | Self::Uncarried => None,
        }
    }
}

/// The description of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The protocol, for logs and counters.
    pub protocol: &'static str,
    /// Whether it is there for media; the end of such a session is worth a line of the log.
    pub is_media: bool,
    /// Whether the peer has shown that it may be here; from then on it no longer counts against the limits for
    /// unauthenticated peers.
    pub is_authenticated: bool,
}

/// The conversation with one peer, or a sink of the server's own, as the worker drives it.
pub trait Session: Debug + Send {
    /// Something happened to a network path.
    fn handle_path(&mut self, ctx: &Context<'_>, path: PathId, event: PathEvent<'_>);
    /// An answer, or news.
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>);
    /// A deadline may have passed.
    fn handle_timeout(&mut self, ctx: &Context<'_>);
    /// Closes in the way of the protocol: `reason` is for the log.
    fn close(&mut self, ctx: &Context<'_>, reason: &str);
    /// The next thing the worker must know.
    fn poll_event(&mut self, ctx: &Context<'_>) -> Option<Event>;
    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;
    /// What the session is, for logs and counters.
    fn about(&self) -> About;

    /// The byte stream, if it has one.
    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        None
    }
    /// The datagrams, if it has any.
    fn datagrams(&mut self) -> Option<&mut dyn DatagramPeer> {
        None
    }
    /// The way for a shared port's datagrams, if its byte stream carries them.
    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        None
    }
    /// The sink for whole units, if it takes them; else the worker writes what its format packages to the byte
    /// stream.
    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        None
    }
    /// Figures of its connection; its protocol knows what they are.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }
}

/// A session over a byte stream.
pub trait ByteStream {
    /// Bytes of the peer, any split of them.
    fn handle_bytes(&mut self, ctx: &Context<'_>, bytes: &[u8]);
    /// The transport took this many bytes.
    fn handle_sent(&mut self, ctx: &Context<'_>, bytes: usize);
    /// Whether the transport should be read.
    fn wants_bytes(&self) -> bool;
    /// Moves what is to be sent.
    fn poll_transmit(&mut self, out: &mut SendQueue);
}

/// A session whose byte stream carries datagrams of a shared port to and from one peer of it.
pub trait Carrier {
    /// Queues them. What its queue has no room for is lost, as on a network: the number of datagrams.
    fn carry(&mut self, datagrams: &Datagrams) -> usize;
}

/// The destination of gathered datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct To {
    /// The path.
    pub path: PathId,
    /// The peer. `None`: the one that the path has.
    pub remote: Option<Remote>,
    /// There is nothing behind what was gathered, so the session is not asked again.
    pub last: bool,
}

impl To {
    /// The peer of the only path.
    pub const PEER: Self = Self { path: PathId(0), remote: None, last: false };

    /// A peer of the only socket; `None`: the one that it is connected to.
    #[must_use]
    pub fn of_socket(peer: Option<SocketAddr>) -> Self {
        Self { remote: peer.map(Remote::of), ..Self::PEER }
    }
}

/// What the sessions of a format share besides bytes ([`crate::hub::Package::shared`]), by the subscription.
pub type Shared<'f, 's> = &'f dyn Fn(Handle) -> Option<&'s dyn Any>;

/// A session that speaks in datagrams. Its paths may change while it lives: a shared port may route another address to it, and
/// it may open and close sockets of its own.
pub trait DatagramPeer {
    /// A datagram that came over one of its paths; it may be decrypted in place.
    fn handle_datagram(&mut self, ctx: &Context<'_>, path: PathId, from: Remote, datagram: &mut [u8]);
    /// Whether there may be datagrams to send now. If not, [`DatagramPeer::poll_datagrams`] is not called.
    fn has_datagrams(&self, _ctx: &Context<'_>) -> bool {
        true
    }
    /// Adds the datagrams that are to be sent now, all to one peer. `shared` is what the formats of its subscriptions share.
    fn poll_datagrams(&mut self, ctx: &Context<'_>, shared: Shared<'_, '_>, out: &mut Datagrams) -> To;
}

/// A session that takes units whole: one that must remember what it has sent until it has arrived, or a sink that is no
/// connection.
pub trait UnitSink {
    /// Whether there is room for a unit. While there is none the subscription's cursor stays, and lags.
    fn has_room(&self) -> bool;
    /// A unit of a stream that it is subscribed to.
    fn handle_unit(&mut self, ctx: &Context<'_>, subscription: Handle, unit: &Delivery<'_>);
    /// No further unit follows for now.
    fn end_units(&mut self, ctx: &Context<'_>);
    /// The pace of units that are not new, where they have one.
    fn paced(&mut self) -> Option<&mut dyn Paced> {
        None
    }
    /// The taker of bytes behind the last unit, in sinks that have one.
    fn tail(&mut self) -> Option<&mut dyn TailSink> {
        None
    }
}

/// A sink whose format holds bytes back until the next unit ([`crate::hub::Package::finish`]).
pub trait TailSink {
    /// Bytes behind the last unit of a stream that has ended.
    fn handle_tail(&mut self, ctx: &Context<'_>, tail: &Parts);
}

/// How fast a sink takes units that are not new.
pub trait Paced {
    /// The stream is over: nothing has to wait any more.
    fn end(&mut self);
}
