//! Events and news of requests: those answered by control, and those for blobs.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use super::Event;
use crate::auth::access::Params;
use crate::mail::{CallEvent, CallNews, NoSubscription, Progress, Question, Sought, UploadGrant, UploadNews};
use crate::types::{StreamId, StreamKey};

/// A request of a viewer who watches by separate requests, as with HLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The stream.
    pub stream: StreamId,
    /// The name of the protocol under which the viewer is counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The identity that the viewer had before its player sent the cookie, if it had another one.
    pub former: Option<String>,
    /// Parameters of the request, for hooks, if this is the viewer's first request.
    pub params: Params,
}

/// The question whether a viewer who watches by separate requests may get the requested file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassAsk {
    /// The stream, if known.
    pub stream: Option<StreamId>,
    /// The stream of the requested blob; the requester counts as its viewer.
    pub watched: Option<StreamId>,
    /// True if the request is not for media but for information about the stream.
    pub is_glance: bool,
    /// The application, and the id of the stream or the name of the file.
    pub key: StreamKey,
    /// The name of the protocol under which the viewer is counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The identity that the viewer had before its player sent the cookie, if it had another one.
    pub former: Option<String>,
    /// Path below the application's `streams`.
    pub file: String,
    /// True for the second check of a request, made once the file is found; the first check admitted the request only
    /// provisionally.
    pub found: bool,
    /// Parameters of the request.
    pub params: Params,
    /// Origin of the requesting page, as a browser sends it; empty if there is none.
    pub origin: String,
}

/// Maximum time that a request waits for a blob being made: longer than the longest first segment, which is 20 s.
pub const BLOB_WAIT: Duration = Duration::from_secs(25);

/// A blob that a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedBlob {
    /// The stream.
    pub key: StreamKey,
    /// The path below the application's `streams`.
    pub name: String,
    /// The segment and part that the blob, a playlist, must have reached.
    pub progress: Progress,
    /// The kind of sink that makes the blob, if the request should begin one.
    pub sink: Option<&'static str>,
}

/// An event of a request.
#[derive(Debug)]
pub enum RequestEvent {
    /// Address of the client that makes the following requests through the peer, a trusted proxy.
    Client(IpAddr),
    /// A request of the API; answered by [`RequestNews::Response`], or by [`RequestNews::TakeBody`] if the request's
    /// body has not been read yet and is accepted.
    Rest {
        /// The request.
        request: Box<crate::http::Request>,
        /// True if the request was sent over TLS.
        secure: bool,
    },
    /// A request of the API like [`Self::Rest`], repeated each second while a client listens; never with a body.
    Feed {
        /// The request.
        request: Box<crate::http::Request>,
        /// True if the request was sent over TLS.
        secure: bool,
    },
    /// Asks whether another node should answer the request; answered by [`RequestNews::Response`]: 307 with the address
    /// of that node, or 204 if this node should answer.
    Locate(Sought),
    /// A call of the API from another node; answered by [`RequestNews::Response`].
    NodeCall(Box<::relay::Call>),
    /// The outcome of an upload granted to the session ([`RequestNews::Upload`]).
    Upload(UploadNews),
    /// A question about a stream; answered by [`RequestNews::Response`], which contains no credentials.
    Ask {
        /// The stream.
        key: StreamKey,
        /// Streams that the session was admitted to.
        let_in: Vec<String>,
        /// The question.
        question: Question,
    },
    /// Sets `metaData` of the stream's record, on behalf of its publisher.
    Describe {
        /// The stream.
        key: StreamKey,
        /// The text.
        meta_data: String,
    },
    /// A message of a data channel, for the application's webhook.
    Data {
        /// The stream.
        key: StreamKey,
        /// The message.
        payload: bytes::Bytes,
    },
    /// An event about calls; answered by [`RequestNews::Call`].
    Call(CallEvent),
    /// Awaits a stream that is not live; answered once by [`RequestNews::StreamBegun`].
    Await(StreamKey),
    /// Awaits a blob of a live stream, and the segment and part that it must have reached. Starts the sink that makes
    /// the blob if needed. Answered once by [`RequestNews::Blob`], after [`BLOB_WAIT`] at the latest.
    AwaitBlob(WantedBlob),
    /// Asks whether a viewer may have the requested file; answered by [`RequestNews::Pass`].
    Pass(Box<PassAsk>),
    /// A request that shows that a viewer watches a stream; renews its lease.
    Watched(Watched),
    /// The session refused a request of the peer by itself, without asking the worker.
    Refused(Box<RefusedRequest>),
}

/// The answer to a request, or news of one.
#[derive(Debug)]
pub enum RequestNews<'a> {
    /// The answer to [`RequestEvent::Rest`], [`RequestEvent::NodeCall`], [`RequestEvent::Locate`] and
    /// [`RequestEvent::Ask`].
    Response(crate::http::Response),
    /// The answer to [`RequestEvent::Rest`] if the request's body is a file that control accepts. The session reports
    /// the outcome by [`RequestEvent::Upload`], and [`RequestNews::Response`] follows.
    Upload(UploadGrant),
    /// The answer to [`RequestEvent::Rest`] if the request's body has not been read yet and is accepted: the session
    /// reads it and repeats the request with the body.
    TakeBody,
    /// The answer to [`RequestEvent::AwaitBlob`]: the blob exists, or is no longer awaited.
    Blob,
    /// The answer to [`RequestEvent::Pass`].
    Pass(Result<(), NoSubscription>),
    /// News of a call.
    Call(StreamKey, CallNews),
    /// The stream of [`RequestEvent::Await`] has begun.
    StreamBegun(&'a StreamKey),
}

/// Maximum number of characters of a refused key that are logged.
const KEY_CHARS_MAX: usize = 256;

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The kind of request.
    pub verb: Verb,
    /// The stream's key, as far as the peer gave one.
    pub key: String,
    /// The reason, for the log.
    pub reason: Cow<'static, str>,
}

impl RefusedRequest {
    /// Makes the event that reports a refusal. Anything after application and id is left out, because it may be a
    /// credential.
    pub fn event(verb: Verb, key: impl ToString, reason: impl Into<Cow<'static, str>>) -> Event {
        let key: Vec<String> = key.to_string().split('/').take(2).map(str::to_owned).collect();
        let key = key.join("/").chars().take(KEY_CHARS_MAX).collect();
        Event::Request(RequestEvent::Refused(Box::new(Self { verb, key, reason: reason.into() })))
    }
}

/// A kind of request that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// To connect to the server or an application.
    Connect,
    /// To publish.
    Publish,
    /// To play.
    Play,
}
