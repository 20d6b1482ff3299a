//! The messages that workers and control exchange.
//!
//! Control is the authority: it admits, names and ends streams. Workers keep replicas of the state that they need, and
//! these messages update the replicas in order. Every message of the control lane is delivered; the number of such
//! messages is limited by the number of sessions. Units of mirrored streams travel in a separate lane
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

pub use blob::{
    BLOBS_IN_TRANSIT_BYTES_MAX, BLOBS_LINGER, Blob, BlobMail, BlobsInTransit, KEY_TYPE, Obsolete, Packed,
    Progress,
};
pub use call::{CallEvent, CallNews};
pub use data::{DataSender, StreamData};
pub use details::StreamDetails;
pub use ladder::{Annex, Laddered, MainTrack, Mark, Picture, Rung, Sound};
pub use message::Message;
pub use outbound::{Proof, Target, Transport};
pub use play::{NoSubscription, PlayRequest, PolledRequest};
pub use publish::{Departure, Grant, PublishRequest, Refusal, Seam, StreamEnd};
pub use pull::{NextAddress, NextServer, PullOrder, PullState};
pub use push::{PushOrder, PushState, via_entry};
pub use question::Question;
pub use recording::{Arrival, ClipRange, RecordingNews, RecordingOrder};
pub use report::{ClockFigures, Report, SourceFigures, StandbyFigures, ViewerCounts};
pub use sought::Sought;
pub use upload::{UploadGrant, UploadNews};
pub use watched::{LeaseNews, WatchedMail};

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;
use media::{Position, TrackId, TrackSet, Tracks};

use crate::auth::CidrList;
use crate::config::{AppSettings, Extensions, ServerSettings};
use crate::http;
use crate::jobs::JobDone;
use crate::stats::{ConnectionFigures, ViewerFigures, WorkerFigures};
use crate::types::{
    ConnId, Handle, Ingest, Lookup, PullId, PushId, RecordingId, SessionRef, StreamId, StreamKey,
    SubscriptionId, WorkerId,
};

/// Facts about the server's process that its sessions use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Bound addresses by name of listener or port. A port that is bound by several workers appears several times.
    pub bound: Vec<(&'static str, SocketAddr)>,
    /// Addresses of the machine's network interfaces.
    pub hosts: Vec<IpAddr>,
    /// Addresses of the machine that were looked up; empty until the first look-up has ended.
    pub found: BTreeMap<Lookup, Vec<IpAddr>>,
    /// A secret drawn when the server starts, the same on all workers; `None` in unit tests.
    pub secret: Option<Seed>,
}

/// The server's settings that sessions use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// `server.name`.
    pub names: Vec<String>,
    /// `server.cors_origins`: origins whose pages may use the management API.
    pub cors_origins: Vec<String>,
    /// `server.trusted_proxies`: addresses of proxies whose forwarding headers are trusted.
    pub trusted_proxies: CidrList,
    /// Name of the node. It differs from the names of all other nodes and of earlier runs of this node.
    pub node: String,
    /// True if any stream may be at another node (`cluster.url`, `edge.origins`).
    pub fetches_any: bool,
    /// True if datagrams that belong to no session here are left to an older process of this server, which may have
    /// their sessions (docs/upgrade.md).
    pub leaves_strays: bool,
    /// True if another process of this server takes new clients. HTTP connections are then closed after their current
    /// request.
    pub retires: bool,
    /// True if the node belongs to a cluster (`cluster.url`).
    pub in_cluster: bool,
    /// `cluster.redirect`: clients are redirected to the node that has their stream.
    pub redirects: bool,
    /// The settings of each protocol.
    pub protocols: Extensions,
    /// The process that the sessions are part of.
    pub site: Arc<Site>,
}

impl SessionSettings {
    /// Takes the settings that sessions need from the server's settings.
    #[must_use]
    pub fn of(server: &ServerSettings, node: &str, site: Arc<Site>) -> Self {
        let cluster = server.cluster();
        Self {
            site,
            node: node.to_owned(),
            names: server.names.clone(),
            cors_origins: server.cors_origins.clone(),
            trusted_proxies: server.trusted_proxies.clone(),
            leaves_strays: false,
            retires: false,
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
    /// A publisher asks to publish; answered by [`ToWorker::Verdict`].
    Publish(PublishRequest),
    /// A publisher left before its verdict arrived.
    PublishAbandoned(SessionRef),
    /// A granted publisher has left.
    PublisherGone {
        /// The session that published. It distinguishes this publisher from an earlier one whose messages arrive late.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
        /// The way in which the publisher left.
        departure: Departure,
        /// Position of the stream's clock at the end.
        position: Position,
        /// The stream's tracks at the end.
        tracks: Arc<Tracks>,
    },
    /// A publisher has stopped sending its stream, and waits as a standby: because it is silent while a standby sends, or
    /// because of [`ToWorker::Yield`]. Answered by [`ToWorker::TakeOver`].
    Yielded {
        /// The publisher.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
        /// The end of the publisher's part of the stream.
        seam: Seam,
    },
    /// A standby has begun or ceased to send media.
    StandbySends {
        /// The standby.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
        /// True if it has begun.
        sends: bool,
    },
    /// The first unit of a granted publisher has arrived.
    SourceStarted(StreamId),
    /// A viewer asks to play. Answered by [`ToWorker::PlayVerdict`], or by [`ToWorker::Pass`] if the viewer watches by
    /// separate requests.
    Play(Box<PlayRequest>),
    /// A viewer's subscription has begun.
    PlayStarted {
        /// The viewer.
        session: SessionRef,
        /// The viewer's request; `None` if control already has it, because it was asked to admit the viewer.
        request: Option<Box<PlayRequest>>,
    },
    /// A viewer that control knows of, or that had requested to play, has left.
    PlayEnded(SessionRef),
    /// A viewer that watches by separate requests (e.g. HLS) has started or left. Sent only for streams whose viewers
    /// are reported one by one.
    Leased(Box<LeaseNews>),
    /// A request of the API.
    Rest {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// True if the request came over TLS.
        secure: bool,
        /// The request.
        request: Box<http::Request>,
    },
    /// Like [`Self::Rest`], for requests that clients repeat regularly; these wait for their turn.
    Feed {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// True if the request came over TLS.
        secure: bool,
        /// The request.
        request: Box<http::Request>,
    },
    /// A session has a question about a stream. Answered like [`Self::Rest`]; the answer contains no credentials.
    Ask {
        /// The session that waits for the answer.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// The stream that the question is about.
        key: StreamKey,
        /// Ids of the application's streams to which the session was admitted.
        let_in: Vec<String>,
        /// The question.
        question: Question,
    },
    /// A session asks whether another node should answer its request. [`ToWorker::RestReply`] is 307 with that node's
    /// address, or 204 if no other node should.
    Locate {
        /// The session of the request.
        session: SessionRef,
        /// The subject of the request.
        sought: Sought,
    },
    /// A call of the API from another node, which has authenticated the caller; answered by [`ToWorker::RestReply`].
    NodeCall {
        /// The session with the node.
        session: SessionRef,
        /// The call.
        call: Box<::relay::Call>,
    },
    /// The connection of a push is established. If the connection becomes a publisher, this is sent before any message
    /// about the publisher.
    PushOpened {
        /// The push.
        push: PushId,
        /// The address of this end of the connection.
        local: SocketAddr,
    },
    /// News of a file whose upload was granted to a session ([`ToWorker::Upload`]).
    Upload {
        /// The session.
        session: SessionRef,
        /// The outcome.
        news: UploadNews,
    },
    /// A session that was granted a stream sets `metaData` of the stream's record.
    Describe {
        /// The stream.
        key: StreamKey,
        /// The new value of `metaData`.
        meta_data: String,
    },
    /// A message of a data channel, to be posted to the application's webhook (`dataChannelWebHookURL`).
    Data {
        /// The session that sent the message.
        sender: SessionRef,
        /// The stream.
        key: StreamKey,
        /// The message.
        payload: Bytes,
    },
    /// An event of a signalling socket about calls.
    Call {
        /// The socket's session.
        session: SessionRef,
        /// The peer's address.
        peer: SocketAddr,
        /// The event.
        event: CallEvent,
    },
    /// A worker's figures of the last second.
    Report(WorkerId, Report),
    /// All counters of a worker (answer to [`ToWorker::Measure`]).
    Measured(WorkerId, Box<WorkerFigures>),
    /// The connections of a stream on one worker, as far as they have figures (answer to
    /// [`ToWorker::Connections`]).
    Connections {
        /// The worker that has the connections.
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
    /// News of a sink of a stream.
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
    /// A pull asks to continue at another server; answered by [`ToWorker::GoOn`].
    NextServer {
        /// The pull.
        pull: PullId,
        /// The requesting attempt.
        attempt: u64,
        /// The server to continue at.
        server: NextServer,
    },
    /// A viewer waits for a stream that is not live and that viewers may start ([`ToWorker::AutoStart`]).
    Wanted {
        /// The stream.
        key: StreamKey,
        /// If another node requests the stream: the nodes that a copy of the stream would serve.
        via: Vec<String>,
    },
    /// All sessions of the worker are closed (answer to [`ToWorker::Drain`]).
    Drained(WorkerId),
}

/// News of a sink, sent by a worker. Control knows on which worker each sink is, so that no stream has two sinks of the
/// same kind, even if the stream's publisher moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkNews {
    /// A request needs the sink's output. If the sink does not exist, control sends [`ToWorker::StartSink`] to the
    /// publisher's worker.
    Wanted,
    /// The sink has begun on this worker.
    Begun(WorkerId),
    /// The sink has ended, or could not begin.
    Over,
}

/// A message to a worker, from control or (mirror messages) from another worker.
#[derive(Debug, Clone)]
pub enum ToWorker {
    /// Settings of the server.
    Server(Arc<SessionSettings>),
    /// Number of viewers of a stream that a pull on this worker fetches, to be reported to the stream's origin.
    Audience {
        /// The pull.
        pull: PullId,
        /// Number of viewers by protocol.
        viewers: ::relay::Viewers,
    },
    /// The answer to a job of a session.
    Job {
        /// The session that submitted the job.
        conn: ConnId,
        /// The answer.
        done: JobDone,
    },
    /// Timed data for a stream, from the API. It is inserted at the stream's current position.
    TimedData {
        /// The stream.
        stream: StreamId,
        /// The data track; no track description exists for it.
        track: TrackId,
        /// The data: ID3 tags, or splice information.
        data: Bytes,
        /// Time in milliseconds by which the data is ahead of the media that it describes.
        ahead_ms: u32,
    },
    /// Withdraws the blobs that sinks of these kinds have made of a stream. They are no longer served.
    Withdrawn {
        /// The stream.
        stream: StreamId,
        /// The kinds of sinks.
        makers: Arc<[&'static str]>,
    },
    /// A viewer that watches by separate requests has made a request; this worker counts the viewer.
    Watched(Box<WatchedMail>),
    /// A viewer that watches by separate requests has a new identity, and is counted under it,
    /// perhaps by another worker. This worker stops counting the former identity.
    WatchedNoMore {
        /// The stream.
        stream: StreamId,
        /// Name of the protocol under which the viewer is counted.
        protocol: &'static str,
        /// The former identity of the viewer.
        viewer: String,
        /// News for control that the viewer is new. The news is passed on if the viewer was not
        /// counted under its former identity.
        news: Option<Box<LeaseNews>>,
    },
    /// An application was added, or its settings have changed.
    App(Arc<AppSettings>),
    /// An application was removed.
    AppGone(Arc<str>),
    /// A stream is live, and its publisher is on the worker `source`. Also sent when the publisher moves to another
    /// worker.
    StreamUp {
        /// The stream id.
        stream: StreamId,
        /// The stream's key.
        key: StreamKey,
        /// The worker of its publisher.
        source: WorkerId,
        /// The way in which the stream arrives.
        ingest: Ingest,
        /// The members of the stream's record that workers use.
        details: StreamDetails,
        /// Settings of the application.
        settings: Arc<AppSettings>,
    },
    /// A stream has ended. Its viewers and pushes are closed, and so is its publisher, if it still has one.
    StreamDown {
        /// The stream id.
        stream: StreamId,
        /// The reason the stream ended.
        end: StreamEnd,
    },
    /// Verdict on a publish request.
    Verdict {
        /// The requesting session.
        conn: ConnId,
        /// The publisher's handle.
        handle: Handle,
        /// The grant, or the reason for refusing.
        verdict: Result<Box<Grant>, Refusal>,
    },
    /// Verdict on a request of a viewer that watches by separate requests.
    Pass {
        /// The requesting session.
        conn: ConnId,
        /// `Ok` if the viewer may play, else the reason for refusing.
        verdict: Result<(), NoSubscription>,
    },
    /// Check again the viewers of an application that watch by separate requests (e.g. HLS) and use this subscriber id.
    PassesEnded {
        /// The application.
        app: Arc<str>,
        /// The subscriber.
        subscriber: String,
    },
    /// A viewer that watches by separate requests was ended by an operator. Stop counting it, and refuse its requests
    /// for some time.
    EndPolled {
        /// The stream.
        stream: StreamId,
        /// Name of the protocol under which the viewer is counted.
        protocol: &'static str,
        /// The identity of the viewer.
        viewer: Arc<str>,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// Verdict on a request to play.
    PlayVerdict {
        /// The requesting session.
        conn: ConnId,
        /// The viewer's subscription.
        handle: Handle,
        /// `Ok` if the viewer may play, else the reason for refusing.
        verdict: Result<(), NoSubscription>,
    },
    /// A viewer may no longer play; its subscription is closed.
    DropViewer {
        /// The viewer's session.
        conn: ConnId,
        /// The viewer's subscription.
        handle: Handle,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// A viewer of a stream was ended on request; its subscription is closed.
    EndViewer {
        /// The stream.
        stream: StreamId,
        /// The viewer's subscription.
        viewer: SubscriptionId,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// A new publisher has replaced this one. This publisher's session is closed; the stream continues.
    Replaced {
        /// The publisher's connection.
        conn: ConnId,
        /// The stream.
        stream: StreamId,
    },
    /// A publisher must leave the stream to its standby. Answered by [`ToControl::Yielded`].
    Yield {
        /// The publisher.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
    },
    /// A standby takes over its stream.
    TakeOver {
        /// The standby.
        session: SessionRef,
        /// The stream.
        stream: StreamId,
        /// The end of the former publisher.
        seam: Box<Seam>,
    },
    /// A request of the connection came with a login or a valid token.
    Authenticated(ConnId),
    /// Answer to an API request.
    RestReply {
        /// The requesting connection.
        conn: ConnId,
        /// The answer.
        response: Box<http::Response>,
    },
    /// News of a call for a signalling socket.
    Call {
        /// The socket's connection.
        conn: ConnId,
        /// Application and id of the call.
        key: StreamKey,
        /// The news.
        news: CallNews,
    },
    /// The head of the connection's request has passed all checks. The peer may send the body; the complete request
    /// follows in [`ToControl::Rest`].
    TakeBody(ConnId),
    /// The body of the connection's request is a file, and may be sent. Answered by [`ToControl::Upload`].
    Upload {
        /// The requesting connection.
        conn: ConnId,
        /// The destination of the file.
        grant: Box<UploadGrant>,
    },
    /// Starts an attempt of a push.
    StartPush(Box<PushOrder>),
    /// Ends a push; its news is no longer wanted.
    StopPush(PushId),
    /// Starts recording a stream.
    StartRecording(Box<RecordingOrder>),
    /// Ends a recording. The outcome of its files is still reported after that.
    StopRecording(RecordingId),
    /// Starts an attempt of a pull.
    StartPull(Box<PullOrder>),
    /// Ends a pull; its news is no longer wanted.
    StopPull(PullId),
    /// The address at which a pull continues: the answer to [`ToControl::NextServer`].
    GoOn(Box<NextAddress>),
    /// A stream that viewers wait for will not become live; the viewers are refused.
    NotComing(StreamKey),
    /// A stream that is not live here is live at another node; sessions that wait for it may ask again.
    LiveElsewhere(StreamKey),
    /// Streams, each with a flag: true if viewers may start the stream from now on
    /// (`autoStartStopEnabled`).
    AutoStart(Vec<(StreamKey, bool)>),
    /// Asks for all counters; answered by [`ToControl::Measured`].
    Measure {
        /// True if counters of each stream are included.
        per_stream: bool,
    },
    /// Asks for the figures of a stream's connections; answered by [`ToControl::Connections`].
    Connections(StreamId),
    /// If true, no new publishers and viewers are admitted from now on; if false, they are admitted again.
    Leaving(bool),
    /// From another worker that no longer admits new viewers: digests of its viewers that watch by separate requests
    /// (e.g. HLS). Their requests are still served by every worker.
    Incumbents {
        /// Number of the drain.
        drain: u64,
        /// The worker that reports.
        worker: WorkerId,
        /// For each viewer, a digest of the stream, the protocol and the identity.
        viewers: Arc<[u64]>,
    },
    /// Closes all sessions as their protocols require; answered by [`ToControl::Drained`].
    Drain,
    /// From a producer's worker: a blob to answer requests with.
    Blob(BlobMail),
    /// From a worker with subscribers: asks for this stream from its newest key frame on.
    Mirror {
        /// The stream.
        stream: StreamId,
        /// The requesting worker.
        to: WorkerId,
        /// Number of this request, counted per worker and stream; mirrored units carry it back.
        request: u64,
        /// The tracks that the requesting worker's subscribers select.
        wanted: TrackSet,
        /// The last DTS of each track, in milliseconds, that the requesting worker already has from a former source.
        after: Vec<(TrackId, i64)>,
    },
    /// From another worker: one of its subscribers waits for a key frame of a video track.
    KeyFrameNeeded {
        /// The stream.
        stream: StreamId,
        /// The track.
        track: TrackId,
    },
    /// From the publisher's worker: the loudness of a stream in a room.
    Loudness {
        /// The stream.
        stream: StreamId,
        /// Audio level in -dBov: 0 is the loudest, 127 is silence.
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
    /// From a session of another worker to the publisher and the viewers of a stream on this worker, or of all streams
    /// of a main track.
    TellStream {
        /// The sender.
        from: SessionRef,
        /// The stream.
        stream: StreamKey,
        /// The message.
        message: Message,
    },
    /// A session of this worker sent a message to a session of another worker that does not exist.
    SessionEnded {
        /// The sender of the message.
        teller: SessionRef,
        /// The session that does not exist.
        gone: SessionRef,
    },
    /// Starts a sink of this kind for a stream.
    StartSink {
        /// The kind of sink.
        kind: &'static str,
        /// The stream.
        stream: StreamId,
    },
    /// From a worker whose subscribers now select other tracks.
    MirrorWants {
        /// The stream.
        stream: StreamId,
        /// The requesting worker.
        to: WorkerId,
        /// The tracks that the requesting worker's subscribers select.
        wanted: TrackSet,
    },
    /// From a worker that has no subscribers of the stream left.
    Unmirror {
        /// The stream.
        stream: StreamId,
        /// The worker that received the stream.
        to: WorkerId,
    },
}
