//! The words that workers and control exchange.
//!
//! Control is the authority: it admits, names and ends streams. Workers hold replicas of what they need, fed by
//! these messages in order. Every message of the control lane is delivered; the number of them is bounded by the
//! number of sessions. Units of mirrored streams travel on a lane of their own
//! ([`crate::worker::mailbox::MirroredUnit`]), which may be full.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use media::{Codec, Position};

use crate::auth::access::{Denial, Params};
use crate::auth::srt::SrtAddress;
use crate::config::{AppSettings, ServerSettings, SrtSettings};
use crate::http;
use crate::stats::{SrtFigures, WorkerFigures};

/// The time of one turn. Protocol machines get `mono` only.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For durations and deadlines.
    pub mono: Instant,
    /// For records that people read: milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// Index of a worker, dense from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// A connection of one worker. The generation tells a reused slot from its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Index into the worker's slab.
    pub slot: u32,
    /// Counts the reuses of the slot.
    pub generation: u32,
}

/// A session of any worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// Where it lives.
    pub worker: WorkerId,
    /// Which one.
    pub conn: ConnId,
}

/// What a live stream is found by: application and id, both already checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The application.
    pub app: Arc<str>,
    /// The stream id.
    pub id: Arc<str>,
}

impl StreamKey {
    /// Both parts must have passed their checks.
    #[must_use]
    pub fn new(app: &str, id: &str) -> Self {
        Self { app: app.into(), id: id.into() }
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.id)
    }
}

/// One life of a stream, from its first publisher to its end. A publisher that returns within the grace keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// One restreaming endpoint while its broadcast is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushId(pub u64);

/// One run of a stream source, from its start to its stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PullId(pub u64);

/// How a stream came in, with the reference's name for it (rest.md §1.1 publishType).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ingest {
    /// Published by RTMP.
    Rtmp,
    /// Published by SRT.
    Srt,
    /// Pulled from another server.
    Pull,
}

impl Ingest {
    /// The value of `publishType`.
    #[must_use]
    pub const fn publish_type(self) -> &'static str {
        match self {
            Self::Rtmp => "RTMP",
            Self::Srt => "SRT",
            Self::Pull => "Pull",
        }
    }

    /// In metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtmp => "rtmp",
            Self::Srt => "srt",
            Self::Pull => "pull",
        }
    }
}

/// Someone wants to publish.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// Who waits for the verdict.
    pub session: SessionRef,
    /// Under which key.
    pub key: StreamKey,
    /// Over which protocol.
    pub ingest: Ingest,
    /// From where.
    pub peer: SocketAddr,
    /// What the encoder calls itself; empty when it does not.
    pub user_agent: String,
    /// Parameters behind the key (`token`, `subscriberId`, ...), in the order given.
    pub params: Params,
    /// The streams that this one was already forwarded through, `node/app/id` each.
    pub via: Vec<String>,
    /// The pull that has its first media, and which attempt of it.
    pub pull: Option<(PullId, u64)>,
}

/// Why a publisher was refused; each protocol has its own words for it (streaming.md §4.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No application of that name.
    NoApplication,
    /// The id is live, or reserved by another publisher.
    InUse,
    /// The record, its schedule, its expiry, or a filter says no. The text is for the log.
    NotAllowed(&'static str),
    /// A check of the application was not passed.
    Denied(Denial),
    /// The server is short of CPU or memory.
    Resources,
    /// The stream went through this server, or through too many servers, already.
    Loop,
    /// The server is going down.
    Draining,
}

/// Someone wants to play, and control must say whether it may, or has to know that it does.
#[derive(Debug, Clone)]
pub struct PlayRequest {
    /// Who.
    pub session: SessionRef,
    /// What.
    pub key: StreamKey,
    /// In which form: `rtmp`, `flv`, `ws-flv`, `ts`.
    pub egress: &'static str,
    /// From where.
    pub peer: SocketAddr,
    /// Parameters behind the key, in the order given.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
}

/// Why a subscription was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSubscription {
    /// Nothing of that name is live.
    NotFound,
    /// The application does not allow playing over this protocol.
    Disabled,
    /// A check of the application was not passed.
    Denied(Denial),
    /// The server goes down, or the stream has too many formats.
    Unavailable,
}

/// What the publisher gets.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The stream to feed.
    pub stream: StreamId,
    /// Where its clock stands.
    pub position: Position,
    /// The config epoch to continue from.
    pub epoch: u32,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
}

/// How a publisher went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It said goodbye (deleteStream, FCUnpublish, closeStream), or broke the protocol: the stream ends.
    Clean,
    /// The connection was lost or fell silent: the stream waits for it (grace).
    Lost,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The publisher unpublished.
    Unpublished,
    /// The publisher did not come back in time.
    GraceOver,
    /// Stopped over the API.
    Stopped,
    /// The record was deleted.
    Deleted,
    /// The server goes down.
    Drain,
}

/// Figures of one live stream on its source worker, at most one second old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFigures {
    /// Which stream.
    pub stream: StreamId,
    /// Bytes received since the publisher's grant.
    pub received_bytes: u64,
    /// Where its clock stands (media time).
    pub position: Position,
    /// Its config epoch.
    pub epoch: u32,
    /// Picture width, 0 when unknown.
    pub width: u32,
    /// Picture height, 0 when unknown.
    pub height: u32,
    /// What the picture is coded with.
    pub video_codec: Option<Codec>,
    /// Units dropped at ingest.
    pub dropped: u64,
    /// Since when no unit came.
    pub silent_ms: u64,
}

/// What one worker knows, sent each second while anything is live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Streams whose publisher is here.
    pub sources: Vec<SourceFigures>,
    /// Viewers (pushes do not count) of each stream here.
    pub viewers: Vec<(StreamId, u32)>,
    /// Busy share of the worker's loop since the last report, in parts per thousand.
    pub busy_permille: u16,
}

/// Where a push stands (rest.md §2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushState {
    /// Connected and publishing is asked for.
    Preparing,
    /// The target takes the stream.
    Broadcasting,
    /// Could not be opened: refused, timed out, rejected.
    Failed(String),
    /// Was broadcasting, and broke.
    Error(String),
    /// Ended because control said so.
    Finished,
}

/// Opens one attempt of a push on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PushOrder {
    /// Which push.
    pub push: PushId,
    /// Which attempt; reports carry it back so that late news of an older attempt is dropped.
    pub attempt: u64,
    /// What to send.
    pub stream: StreamId,
    /// Where to connect; resolved and checked against the outbound policy.
    pub address: SocketAddr,
    /// Over TLS, to a server that proves to have this name.
    pub tls_name: Option<Box<str>>,
    /// What to ask for there.
    pub target: PushTarget,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
}

/// What a push asks its target for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushTarget {
    /// RTMP `connect` and `publish`.
    Rtmp {
        /// `app` of the connect command.
        app: String,
        /// `tcUrl` of the connect command.
        tc_url: String,
        /// The publish name with its query.
        name: String,
        /// The streams this one went through, this one last.
        via: Vec<String>,
    },
    /// SRT as a caller.
    Srt(SrtAddress),
}

/// Where an attempt of a pull stands. That it has media is a [`ToControl::Publish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Connected, the stream is asked for.
    Preparing,
    /// Over before there was any media: refused, timed out, no stream.
    Failed(String),
    /// Over after there was media: cut off, ended, or frozen.
    Lost(String),
}

/// Opens one attempt of a pull on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PullOrder {
    /// Which pull.
    pub pull: PullId,
    /// Which attempt; reports carry it back so that late news of an older attempt is dropped.
    pub attempt: u64,
    /// Under which key the stream is.
    pub key: StreamKey,
    /// Where to connect; resolved and checked against the outbound policy.
    pub address: SocketAddr,
    /// Over TLS, to a server that proves to have this name.
    pub tls_name: Option<Box<str>>,
    /// What to ask for there.
    pub source: PullSource,
}

/// What a pull asks its server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullSource {
    /// RTMP `connect` and `play`.
    Rtmp {
        /// `app` of the connect command.
        app: String,
        /// `tcUrl` of the connect command.
        tc_url: String,
        /// The stream's name with its query.
        name: String,
    },
    /// HTTP `GET` of a live FLV file.
    HttpFlv {
        /// `Host` of the request.
        authority: String,
        /// Path and query.
        target: String,
    },
    /// SRT, MPEG-TS inside.
    Srt(SrtAddress),
}

/// What sessions need to know of the server's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// `server.cors_origins`: whose pages may use the management API.
    pub cors_origins: Vec<String>,
    /// `srt.*`.
    pub srt: SrtSettings,
}

impl SessionSettings {
    /// Out of the server's.
    #[must_use]
    pub fn of(server: &ServerSettings) -> Self {
        Self { cors_origins: server.cors_origins.clone(), srt: server.srt.clone() }
    }
}

/// A file that [`crate::io`] has opened. Nobody else looks inside; it is closed with its last owner.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// Reads at most `length` bytes at `offset`; empty at the end and when it cannot be read. It may block: only helper
    /// threads call it.
    fn read_block(&self, offset: u64, length: usize) -> Bytes;
}

/// What a session wants of a file. One wish is outstanding per session.
#[derive(Debug, Clone)]
pub enum FileAsk {
    /// Open it.
    Open {
        /// Names below `webapps`. Each is the name of one folder or file, and no link is followed.
        segments: Vec<String>,
    },
    /// Read a block of it.
    Read {
        /// Which.
        file: Arc<dyn BlockSource>,
        /// From where.
        offset: u64,
        /// How much at most.
        length: usize,
    },
}

/// The answer to a [`FileAsk`].
#[derive(Debug, Clone)]
pub enum FileReply {
    /// To [`FileAsk::Open`].
    Opened(Result<OpenedFile, FileError>),
    /// To [`FileAsk::Read`].
    Block(Bytes),
}

/// An open file and what is known of it.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// For [`FileAsk::Read`].
    pub file: Arc<dyn BlockSource>,
    /// Bytes.
    pub length: u64,
    /// When it was changed, in milliseconds since the Unix epoch.
    pub modified_ms: u64,
    /// Changes with its content: for the entity tag.
    pub tag: String,
}

/// Why a file was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileError {
    /// There is none, or not one to be served.
    NotFound,
    /// It is a folder.
    Directory,
    /// The system says no.
    Failed,
}

/// From a worker to control.
#[derive(Debug)]
pub enum ToControl {
    /// A publisher asks.
    Publish(PublishRequest),
    /// A publisher that asked is gone before its verdict came.
    PublishAbandoned(SessionRef),
    /// A granted publisher is gone.
    PublisherGone {
        /// Who; a predecessor's late news is told by it.
        session: SessionRef,
        /// Of which stream.
        stream: StreamId,
        /// How.
        departure: Departure,
        /// Where the clock stands.
        position: Position,
        /// The last config epoch.
        epoch: u32,
    },
    /// The first unit of a publisher that was granted.
    SourceStarted(StreamId),
    /// A viewer asks; answered by [`ToWorker::PlayVerdict`].
    Play(Box<PlayRequest>),
    /// A viewer is served.
    PlayStarted {
        /// Who.
        session: SessionRef,
        /// What control does not know yet; `None` for who had asked.
        request: Option<Box<PlayRequest>>,
    },
    /// A viewer that control knows of, or that asked, is gone.
    PlayEnded(SessionRef),
    /// A request of the API.
    Rest {
        /// Who waits for the answer.
        session: SessionRef,
        /// From where.
        peer: SocketAddr,
        /// Over TLS.
        secure: bool,
        /// What.
        request: Box<http::Request>,
    },
    /// The figures of the last second.
    Report(WorkerId, Report),
    /// Everything that was counted (answer to [`ToWorker::Measure`]).
    Measured(WorkerId, Box<WorkerFigures>),
    /// The SRT connections of a stream on one worker (answer to [`ToWorker::Srt`]).
    Srt {
        /// Where.
        worker: WorkerId,
        /// Of which stream.
        stream: StreamId,
        /// Each of them.
        figures: Vec<SrtFigures>,
    },
    /// News of a push.
    Push {
        /// Which push.
        push: PushId,
        /// Of which attempt.
        attempt: u64,
        /// What happened.
        state: PushState,
    },
    /// News of a pull.
    Pull {
        /// Which pull.
        pull: PullId,
        /// Of which attempt.
        attempt: u64,
        /// What happened.
        state: PullState,
    },
    /// A viewer waits for a stream that is not there and that viewers may start ([`ToWorker::AutoStart`]).
    Wanted(StreamKey),
    /// All sessions of the worker are closed (answer to [`ToWorker::Drain`]).
    Drained(WorkerId),
}

/// To a worker, from control or (the mirror words) from another worker.
#[derive(Debug, Clone)]
pub enum ToWorker {
    /// Settings of the server.
    Server(Arc<SessionSettings>),
    /// Answer of a helper thread to [`FileAsk`].
    File {
        /// Who asked.
        conn: ConnId,
        /// The answer.
        reply: FileReply,
    },
    /// An application is there, or its settings changed.
    App(Arc<AppSettings>),
    /// An application is gone.
    AppGone(Arc<str>),
    /// A stream is live; `source` has its publisher. Also sent when the source moves.
    StreamUp {
        /// The life.
        stream: StreamId,
        /// Its key.
        key: StreamKey,
        /// Where its publisher is.
        source: WorkerId,
        /// How it comes in.
        ingest: Ingest,
        /// Control wants to know who plays it.
        tell_viewers: bool,
        /// Settings of the application.
        settings: Arc<AppSettings>,
    },
    /// A stream ended: viewers and pushes go, the publisher (if any) is closed.
    StreamDown {
        /// The life.
        stream: StreamId,
        /// Why.
        end: StreamEnd,
    },
    /// Verdict on a publish request.
    Verdict {
        /// Who asked.
        conn: ConnId,
        /// Yes or no.
        verdict: Result<Box<Grant>, Refusal>,
    },
    /// Verdict on a request to play.
    PlayVerdict {
        /// Who asked.
        conn: ConnId,
        /// Yes or no.
        verdict: Result<(), NoSubscription>,
    },
    /// This viewer may play no longer: close it.
    DropViewer {
        /// Who.
        conn: ConnId,
        /// For the log.
        reason: &'static str,
    },
    /// The publisher was replaced by a new one: close it, keep the stream.
    Replaced {
        /// Which session.
        conn: ConnId,
        /// Of which stream.
        stream: StreamId,
    },
    /// Answer to an API request.
    RestReply {
        /// Who asked.
        conn: ConnId,
        /// The answer.
        response: Box<http::Response>,
    },
    /// Start an attempt of a push.
    StartPush(Box<PushOrder>),
    /// End a push; no news of it is wanted any more.
    StopPush(PushId),
    /// Start an attempt of a pull.
    StartPull(Box<PullOrder>),
    /// End a pull; no news of it is wanted any more.
    StopPull(PullId),
    /// Streams that a viewer starts (`autoStartStopEnabled`), or no longer.
    AutoStart(Vec<(StreamKey, bool)>),
    /// Tell what was counted; answer [`ToControl::Measured`].
    Measure {
        /// And of each stream.
        per_stream: bool,
    },
    /// Tell the SRT connections of a stream; answer [`ToControl::Srt`].
    Srt(StreamId),
    /// Close everything politely; answer [`ToControl::Drained`].
    Drain,
    /// From a worker with subscribers: send me this stream from its newest key frame on.
    Mirror {
        /// Which stream.
        stream: StreamId,
        /// To whom.
        to: WorkerId,
        /// Units up to this DTS (milliseconds) are there already, from a former source.
        after_ms: Option<i64>,
    },
    /// From a worker without subscribers any more.
    Unmirror {
        /// Which stream.
        stream: StreamId,
        /// For whom.
        to: WorkerId,
    },
}

/// The name of this node in `via` entries and of its streams.
#[must_use]
pub fn via_entry(node: &str, key: &StreamKey) -> String {
    format!("{node}/{key}")
}
