//! Events and news of requests: those that control answers, and those for blobs.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use super::Event;
use crate::auth::access::Params;
use crate::mail::{CallEvent, CallNews, NoSubscription, Progress, Question, Sought, UploadGrant, UploadNews};
use crate::types::{StreamId, StreamKey};

/// A polling viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The stream.
    pub stream: StreamId,
    /// The protocol, as viewers are counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The name that it had before this one.
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

/// The time that a request waits for a blob that is being made: longer than the longest first segment, which is 20 s.
pub const BLOB_WAIT: Duration = Duration::from_secs(25);

/// A blob that a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedBlob {
    /// The stream.
    pub key: StreamKey,
    /// The path below the application's `streams`.
    pub name: String,
    /// The progress that it must have made.
    pub progress: Progress,
    /// The kind of sink that makes it, when the request begins one.
    pub sink: Option<&'static str>,
}

/// An event of a request.
#[derive(Debug)]
pub enum RequestEvent {
    /// The client of all that follows; the peer is a proxy that is trusted.
    Client(IpAddr),
    /// A request of the API; answered by [`RequestNews::Response`], or by [`RequestNews::TakeBody`] when its body waits.
    Rest {
        /// The request.
        request: Box<crate::http::Request>,
        /// Whether it came over TLS.
        secure: bool,
    },
    /// The same as [`Self::Rest`], asked again each second while somebody listens; never with a body.
    Feed {
        /// The request.
        request: Box<crate::http::Request>,
        /// Whether it came over TLS.
        secure: bool,
    },
    /// Asks whether another node is to answer the request; answered by [`RequestNews::Response`]: 307 with that node's address, or 204.
    Locate(Sought),
    /// Another node has a call of the API answered here; answered by [`RequestNews::Response`].
    NodeCall(Box<::relay::Call>),
    /// The outcome of a file that the session was granted to take in ([`RequestNews::Upload`]).
    Upload(UploadNews),
    /// Has a question about a stream; answered by [`RequestNews::Response`], without credentials.
    Ask {
        /// The stream.
        key: StreamKey,
        /// Streams that the session was let in to.
        let_in: Vec<String>,
        /// The question.
        question: Question,
    },
    /// The publisher of a stream says something else about it: its record's `metaData`.
    Describe {
        /// The stream.
        key: StreamKey,
        /// The text.
        meta_data: String,
    },
    /// A message of a data channel, for the application's receiver.
    Data {
        /// The stream.
        key: StreamKey,
        /// The message.
        payload: bytes::Bytes,
    },
    /// Something about calls; news of them are [`RequestNews::Call`].
    Call(CallEvent),
    /// Waits for a stream that is not there: [`RequestNews::StreamBegun`], once.
    Await(StreamKey),
    /// Waits until a blob of a live stream is there, and as far as it has to be; a sink may have to make it:
    /// [`RequestNews::Blob`], once, at the latest after [`BLOB_WAIT`].
    AwaitBlob(WantedBlob),
    /// Asks whether a viewer may have what it requests; answered by [`RequestNews::Pass`].
    Pass(Box<PassAsk>),
    /// A request has shown that somebody watches a stream.
    Watched(Watched),
    /// The session refused a request of the peer by itself, without asking the worker.
    Refused(Box<RefusedRequest>),
}

/// The answer to a request, or news of one.
#[derive(Debug)]
pub enum RequestNews<'a> {
    /// The answer to [`RequestEvent::Rest`], [`RequestEvent::NodeCall`], [`RequestEvent::Locate`] and [`RequestEvent::Ask`].
    Response(crate::http::Response),
    /// The answer to [`RequestEvent::Rest`] when the body of the request is a file that may come: [`RequestEvent::Upload`]
    /// tells what became of it, and [`RequestNews::Response`] follows.
    Upload(UploadGrant),
    /// The answer to [`RequestEvent::Rest`] when the body of the request waits and may come: it is asked again with the body.
    TakeBody,
    /// The answer to [`RequestEvent::AwaitBlob`]: it is there, or will not be.
    Blob,
    /// The answer to [`RequestEvent::Pass`].
    Pass(Result<(), NoSubscription>),
    /// News of a call.
    Call(StreamKey, CallNews),
    /// The stream of [`RequestEvent::Await`] has begun.
    StreamBegun(&'a StreamKey),
}

/// Characters of a refused key that the log shows.
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
        Event::Request(RequestEvent::Refused(Box::new(Self { verb, key, reason: reason.into() })))
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
