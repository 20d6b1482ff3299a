//! The messages that workers and control exchange.
//!
//! Control is the authority: it admits, names and ends streams. Workers hold replicas of what they need, fed by
//! these messages in order. Every message of the control lane is delivered; the number of them is bounded by the
//! number of sessions. Units of mirrored streams travel on a lane of their own
//! ([`crate::hub::MirroredUnit`]), which may be full.

mod blob;
mod call;
mod data;
mod details;
mod ladder;
mod message;
mod outbound;
mod play;
mod publish;
mod pull;
mod push;
mod question;
mod recording;
mod report;
mod sought;
mod upload;
mod watched;

pub use blob::{BLOBS_IN_TRANSIT_BYTES_MAX, Blob, BlobMail, BlobsInTransit, Packed, Progress};
pub use call::{CallEvent, CallNews};
pub use data::{DataSender, StreamData};
pub use details::StreamDetails;
pub use ladder::{Laddered, MainTrack, Mark, Rung};
pub use message::Message;
pub use outbound::{Proof, Target, Transport};
pub use play::{NoSubscription, PlayRequest, PolledRequest};
pub use publish::{Departure, Grant, PublishRequest, Refusal, StreamEnd};
pub use pull::{NextAddress, NextServer, PullOrder, PullState};
pub use push::{PushOrder, PushState, via_entry};
pub use question::Question;
pub use recording::{ClipRange, RecordingNews, RecordingOrder};
pub use report::{ClockFigures, Report, SourceFigures, ViewerCounts};
pub use sought::Sought;
pub use upload::{UploadGrant, UploadNews};
pub use watched::{LeaseNews, WatchedMail};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crypto::Seed;
use media::{Position, TrackId, TrackSet};

use crate::auth::CidrList;
use crate::config::{AppSettings, Extensions, ServerSettings};
use crate::http;
use crate::jobs::JobDone;
use crate::stats::{ConnectionFigures, ViewerFigures, WorkerFigures};
use crate::types::{
    ConnId, Handle, Ingest, PullId, PushId, RecordingId, SessionRef, StreamId, StreamKey, SubscriptionId,
    WorkerId,
};

/// The process that sessions are part of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// The bound addresses, by the names of listeners and ports: several of a port that each worker has.
    pub bound: Vec<(&'static str, SocketAddr)>,
    /// The addresses of the machine.
    pub hosts: Vec<IpAddr>,
    /// A secret of this life of the server, the same on all workers; `None` in tests of parts.
    pub secret: Option<Seed>,
}

/// The server's settings that sessions use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// `server.name`.
    pub names: Vec<String>,
    /// `server.cors_origins`: whose pages may use the management API.
    pub cors_origins: Vec<String>,
    /// `server.trusted_proxies`: who may say whose request it passes on.
    pub trusted_proxies: CidrList,
    /// A name that no other node, and no other life of this one, has.
    pub node: String,
    /// Any stream may be at another node (`cluster.url`, `edge.origins`).
    pub fetches_any: bool,
    /// Whether the node is one of a cluster (`cluster.url`).
    pub in_cluster: bool,
    /// `cluster.redirect`: clients are sent to the node that has their stream.
    pub redirects: bool,
    /// The settings of each protocol.
    pub protocols: Extensions,
    /// The process.
    pub site: Arc<Site>,
}

impl SessionSettings {
    /// Out of the server's.
    #[must_use]
    pub fn of(server: &ServerSettings, node: &str, site: Arc<Site>) -> Self {
        let cluster = server.cluster();
        Self {
            site,
            node: node.to_owned(),
            names: server.names.clone(),
            cors_origins: server.cors_origins.clone(),
            trusted_proxies: server.trusted_proxies.clone(),
            in_cluster: cluster.is_some(),
            redirects: cluster.as_ref().is_some_and(|cluster| cluster.redirect),
            fetches_any: cluster.is_some() || server.edge_origins().next().is_some(),
            protocols: server.protocols.clone(),
        }
    }
}

/// A message from a worker to control.
#[derive(Debug)]
pub enum ToControl {
    /// A publisher asks.
    Publish(PublishRequest),
    /// A publisher that asked is gone before its verdict came.
    PublishAbandoned(SessionRef),
    /// A granted publisher is gone.
    PublisherGone {
        /// The session that published; late news of a predecessor is recognised by it.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
        /// The way in which the publisher left.
        departure: Departure,
        /// The clock of the stream.
        position: Position,
        /// The last config epoch.
        epoch: u32,
    },
    /// The first unit of a publisher that was granted.
    SourceStarted(StreamId),
    /// A viewer asks; answered by [`ToWorker::PlayVerdict`], or [`ToWorker::Pass`] where it watches by separate requests.
    Play(Box<PlayRequest>),
    /// A viewer is served.
    PlayStarted {
        /// The viewer.
        session: SessionRef,
        /// The request as far as control does not know it; `None` for a viewer that had asked.
        request: Option<Box<PlayRequest>>,
    },
    /// A viewer that control knows of, or that asked, is gone.
    PlayEnded(SessionRef),
    /// A viewer that watches by separate requests has come, or is gone; only for streams whose viewers are reported
    /// one by one.
    Leased(Box<LeaseNews>),
    /// A request of the API.
    Rest {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// Whether it came over TLS.
        secure: bool,
        /// The request.
        request: Box<http::Request>,
    },
    /// The same as [`Self::Rest`], asked again and again: it waits for its turn.
    Feed {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// Whether it came over TLS.
        secure: bool,
        /// The request.
        request: Box<http::Request>,
    },
    /// A session has a question about a stream; answered as [`Self::Rest`], without credentials.
    Ask {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The stream.
        key: StreamKey,
        /// Streams of its application that the session was let in to.
        let_in: Vec<String>,
        /// The question.
        question: Question,
    },
    /// A request asks whether another node is to answer it; [`ToWorker::RestReply`] has 307 with that node's address, or 204.
    Locate {
        /// The session of the request.
        session: SessionRef,
        /// The subject of the request.
        sought: Sought,
    },
    /// A call of the API from another node, which has checked who makes it; answered by [`ToWorker::RestReply`].
    NodeCall {
        /// The session with the node.
        session: SessionRef,
        /// The call.
        call: Box<::relay::Call>,
    },
    /// The connection of a push is established; comes before any publisher that it makes of itself.
    PushOpened {
        /// The push.
        push: PushId,
        /// The address of this end of the connection.
        local: SocketAddr,
    },
    /// News of a file that a session was granted to take in ([`ToWorker::Upload`]).
    Upload {
        /// The session.
        session: SessionRef,
        /// The outcome.
        news: UploadNews,
    },
    /// A session that was granted a stream says something else about it: its record's `metaData`.
    Describe {
        /// The stream.
        key: StreamKey,
        /// The text.
        meta_data: String,
    },
    /// A message of a data channel, for the application's receiver (`dataChannelWebHookURL`).
    Data {
        /// The stream.
        key: StreamKey,
        /// The message.
        payload: bytes::Bytes,
    },
    /// A signalling socket says something about calls.
    Call {
        /// The socket's session.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// The event.
        event: CallEvent,
    },
    /// The figures of the last second.
    Report(WorkerId, Report),
    /// All counters (answer to [`ToWorker::Measure`]).
    Measured(WorkerId, Box<WorkerFigures>),
    /// The connections of a stream on one worker that have figures (answer to [`ToWorker::Connections`]).
    Connections {
        /// The worker that has them.
        worker: WorkerId,
        /// The stream.
        stream: StreamId,
        /// The figures of each connection.
        connections: Vec<ConnectionFigures>,
        /// The viewers with a connection of their own.
        viewers: Vec<ViewerFigures>,
    },
    /// News of a push.
    Push {
        /// The push.
        push: PushId,
        /// The attempt that the news is about.
        attempt: u64,
        /// The new state.
        state: PushState,
    },
    /// A sink of a stream is wanted, or is no more.
    Sink {
        /// The stream.
        stream: StreamId,
        /// The kind of sink.
        kind: &'static str,
        /// The news.
        news: SinkNews,
    },
    /// News of a recording.
    Recording {
        /// The recording.
        recording: RecordingId,
        /// The news.
        news: RecordingNews,
    },
    /// News of a pull.
    Pull {
        /// The pull.
        pull: PullId,
        /// The attempt that the news is about.
        attempt: u64,
        /// The new state.
        state: PullState,
    },
    /// A pull goes on at another server; answered by [`ToWorker::GoOn`].
    NextServer {
        /// The pull.
        pull: PullId,
        /// The attempt that asks.
        attempt: u64,
        /// The server.
        server: NextServer,
    },
    /// A viewer waits for a stream that is not there and that viewers may start ([`ToWorker::AutoStart`]).
    Wanted {
        /// The stream.
        key: StreamKey,
        /// The nodes that a copy of it would be for, if one of them asks.
        via: Vec<String>,
    },
    /// All sessions of the worker are closed (answer to [`ToWorker::Drain`]).
    Drained(WorkerId),
}

/// News of a sink from a worker. Control knows which worker has one, so that no stream has two of a kind, wherever its publisher is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkNews {
    /// A request wants what it makes; answered by [`ToWorker::StartSink`] to the worker of the publisher, unless there is one.
    Wanted,
    /// The sink has begun with its stream, on this worker.
    Begun(WorkerId),
    /// The sink has ended, or could not begin.
    Over,
}

/// A message to a worker, from control or (mirror messages) from another worker.
#[derive(Debug, Clone)]
pub enum ToWorker {
    /// Settings of the server.
    Server(Arc<SessionSettings>),
    /// The number of viewers of a stream that a pull of this worker fetches.
    Audience {
        /// The pull.
        pull: PullId,
        /// The viewers.
        viewers: ::relay::Viewers,
    },
    /// The answer to a job of a session.
    Job {
        /// The session that submitted it.
        conn: ConnId,
        /// The answer.
        done: JobDone,
    },
    /// A viewer that watches by separate requests has asked; this worker is the one that counts it.
    Watched(Box<WatchedMail>),
    /// A viewer that this worker counts has another name now.
    WatchedNoMore {
        /// The stream.
        stream: StreamId,
        /// The protocol, as viewers are counted.
        protocol: &'static str,
        /// The former name.
        viewer: String,
        /// News for control if there is no such viewer: then it has just come.
        news: Option<Box<LeaseNews>>,
    },
    /// An application is there, or its settings changed.
    App(Arc<AppSettings>),
    /// An application is gone.
    AppGone(Arc<str>),
    /// A stream is live; `source` has its publisher. Also sent when the source moves.
    StreamUp {
        /// The life.
        stream: StreamId,
        /// The stream's key.
        key: StreamKey,
        /// The worker of its publisher.
        source: WorkerId,
        /// The ingest of the stream.
        ingest: Ingest,
        /// The members of its record that workers use.
        details: StreamDetails,
        /// Settings of the application.
        settings: Arc<AppSettings>,
    },
    /// A stream ended: viewers and pushes go, the publisher (if any) is closed.
    StreamDown {
        /// The life.
        stream: StreamId,
        /// The reason the stream ended.
        end: StreamEnd,
    },
    /// Verdict on a publish request.
    Verdict {
        /// The session that asked.
        conn: ConnId,
        /// The publisher's handle.
        handle: Handle,
        /// Yes or no.
        verdict: Result<Box<Grant>, Refusal>,
    },
    /// Verdict on a request of a viewer that watches by separate ones.
    Pass {
        /// The session that asked.
        conn: ConnId,
        /// Yes or no.
        verdict: Result<(), NoSubscription>,
    },
    /// Viewers of an application that say they are this subscriber, and watch by separate requests, are asked about anew.
    PassesEnded {
        /// The application.
        app: Arc<str>,
        /// The subscriber.
        subscriber: String,
    },
    /// Verdict on a request to play.
    PlayVerdict {
        /// The session that asked.
        conn: ConnId,
        /// The viewer's subscription.
        handle: Handle,
        /// Yes or no.
        verdict: Result<(), NoSubscription>,
    },
    /// A viewer may no longer play: close it.
    DropViewer {
        /// The session.
        conn: ConnId,
        /// The viewer's subscription.
        handle: Handle,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// A viewer of a stream is to go: close it.
    EndViewer {
        /// The stream.
        stream: StreamId,
        /// The viewer's subscription.
        viewer: SubscriptionId,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// The publisher was replaced by a new one: close it, keep the stream.
    Replaced {
        /// The publisher's connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
    },
    /// A request of the connection came with a login or a valid token.
    Authenticated(ConnId),
    /// Answer to an API request.
    RestReply {
        /// The connection that asked.
        conn: ConnId,
        /// The answer.
        response: Box<http::Response>,
    },
    /// News of a call for a signalling socket.
    Call {
        /// The socket's connection.
        conn: ConnId,
        /// The call.
        key: StreamKey,
        /// The news.
        news: CallNews,
    },
    /// The body of the connection's request may come: its head has passed all checks. [`ToControl::Rest`] follows, with the body.
    TakeBody(ConnId),
    /// A request of the connection may send its body, a file; answered by [`ToControl::Upload`].
    Upload {
        /// The connection that asked.
        conn: ConnId,
        /// The destination of the file.
        grant: Box<UploadGrant>,
    },
    /// Start an attempt of a push.
    StartPush(Box<PushOrder>),
    /// End a push; no news of it is wanted any more.
    StopPush(PushId),
    /// Record a stream.
    StartRecording(Box<RecordingOrder>),
    /// End a recording; its files are reported first.
    StopRecording(RecordingId),
    /// Start an attempt of a pull.
    StartPull(Box<PullOrder>),
    /// End a pull; no news of it is wanted any more.
    StopPull(PullId),
    /// The address at which a pull goes on: the answer to [`ToControl::NextServer`].
    GoOn(Box<NextAddress>),
    /// A stream that was wanted does not come: whoever waits for it is refused.
    NotComing(StreamKey),
    /// A stream that is not here is live at another node: who waits for it may ask again.
    LiveElsewhere(StreamKey),
    /// Streams that a viewer starts (`autoStartStopEnabled`), or no longer.
    AutoStart(Vec<(StreamKey, bool)>),
    /// Tell what was counted; answer [`ToControl::Measured`].
    Measure {
        /// Whether to include each stream.
        per_stream: bool,
    },
    /// Tell the connections of a stream that have figures; answer [`ToControl::Connections`].
    Connections(StreamId),
    /// Close everything politely; answer [`ToControl::Drained`].
    Drain,
    /// From the worker of a producer: a blob that requests are answered with.
    Blob(BlobMail),
    /// From a worker with subscribers: send me this stream from its newest key frame on.
    Mirror {
        /// The stream.
        stream: StreamId,
        /// The worker that asks.
        to: WorkerId,
        /// Its number among the requests of that worker for this stream; what answers it carries it.
        request: u64,
        /// The tracks that somebody there is sent.
        wanted: TrackSet,
        /// Units up to these DTS (milliseconds) are there already, from a former source.
        after: Vec<(TrackId, i64)>,
    },
    /// From a worker: somebody there waits for a key frame of a video track.
    KeyFrameNeeded {
        /// The stream.
        stream: StreamId,
        /// The track.
        track: TrackId,
    },
    /// From the worker of its publisher: the loudness of a stream in a room.
    Loudness {
        /// The stream.
        stream: StreamId,
        /// In -dBov: 0 is the loudest, 127 silence.
        level: u8,
    },
    /// From a session of another worker to a session of this one.
    Tell {
        /// The sender.
        from: SessionRef,
        /// The receiver.
        to: SessionRef,
        /// The message.
        message: Message,
    },
    /// From a session of another worker to the publisher and the viewers of a stream here, or of all streams of a main track.
    TellStream {
        /// The sender.
        from: SessionRef,
        /// The stream.
        stream: StreamKey,
        /// The message.
        message: Message,
    },
    /// A session of another worker, to which one of this has spoken, is not there.
    SessionEnded {
        /// The sender of the message.
        teller: SessionRef,
        /// The session that is gone.
        gone: SessionRef,
    },
    /// Have a sink take a stream.
    StartSink {
        /// The kind of sink.
        kind: &'static str,
        /// The stream.
        stream: StreamId,
    },
    /// From a worker whose subscribers select other tracks now.
    MirrorWants {
        /// The stream.
        stream: StreamId,
        /// The worker that asks.
        to: WorkerId,
        /// The tracks that somebody there is sent.
        wanted: TrackSet,
    },
    /// From a worker that has no subscribers left.
    Unmirror {
        /// The stream.
        stream: StreamId,
        /// The worker that received it.
        to: WorkerId,
    },
}
