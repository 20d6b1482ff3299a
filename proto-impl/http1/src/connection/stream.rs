//! A connection that consists of one HTTP/2 stream. It takes a parsed request, then bytes of the body, then
//! their end. It returns its response as heads and slices. Limits, timers and methods are those of other
//! connections.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

use super::{CloseReason, Connection, Error, Head, Stage};
use crate::request::Version;
use crate::response::{Answers, StreamHead};
use crate::{BodyLimits, Limits};

/// A request as received on an HTTP/2 stream, checked by the rules of RFC 9113 §8.2 and §8.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRequest {
    /// `:method`.
    pub method: Bytes,
    /// `:authority`, or `Host`.
    pub authority: Bytes,
    /// `:path`.
    pub target: Bytes,
    /// `:protocol` (RFC 8441 §4).
    pub protocol: Option<Bytes>,
    /// Name and value of the other header fields.
    pub fields: Vec<(Bytes, Bytes)>,
    /// True if a body follows.
    pub has_body: bool,
    /// Length of the body, if announced.
    pub length: Option<u64>,
}

/// A part of a response, to be put into frames.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StreamAnswer {
    /// Informational heads and the final head.
    pub heads: Vec<StreamHead>,
    /// Bytes of the body.
    pub parts: Vec<Bytes>,
    /// The end of the response; set only once.
    pub end: Option<End>,
}

/// The way in which a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The response is complete.
    Whole,
    /// The response was cut short.
    Cut,
}

impl StreamAnswer {
    /// True if there is nothing to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.parts.is_empty() && self.end.is_none()
    }
}

impl Connection {
    /// Makes the connection of an HTTP/2 stream that `request` opened.
    #[must_use]
    pub fn of_stream(
        now: Instant,
        limits: Arc<Limits>,
        bodies: &'static dyn BodyLimits,
        request: &StreamRequest,
    ) -> Self {
        let mut connection = Self::new(now, limits).with_bodies(bodies);
        connection.out = Answers::Stream(Vec::new(), SendQueue::new(), None);
        let begun = Head::of_stream(request, &connection.limits, connection.bodies)
            .and_then(|head| connection.begin_body(now, head));
        if let Err(error) = begun {
            connection.reject(now, error);
        }
        connection
    }

    /// Handles the end of the request's body.
    pub fn handle_end(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Body(pending) => pending.decoder.end(),
            Stage::Head(_)
            | Stage::Ready(..)
            | Stage::Outstanding(_)
            | Stage::Streaming(..)
            | Stage::Upgraded
            | Stage::Closed(_) => {}
        }
        if let Some(incoming) = &mut self.incoming {
            incoming.decoder.end();
        }
        self.drive(now);
    }

    /// Returns the part of the response that was made since the last call. The end of the response is
    /// returned only once.
    pub fn poll_answer(&mut self) -> StreamAnswer {
        match &mut self.out {
            Answers::Text(_) => StreamAnswer::default(),
            Answers::Stream(heads, queue, end) => StreamAnswer {
                heads: std::mem::take(heads),
                parts: queue.take_parts().collect(),
                end: end.take(),
            },
        }
    }

    pub(super) const fn version(&self) -> Version {
        match self.out {
            Answers::Text(_) => Version::Http11,
            Answers::Stream(..) => Version::Http2,
        }
    }
}

pub(super) const fn end_of(reason: CloseReason) -> End {
    match reason {
        CloseReason::Complete | CloseReason::Shutdown => End::Whole,
        CloseReason::Error(Error::WriteStalled | Error::Overrun)
        | CloseReason::Truncated
        | CloseReason::PeerClosed
        | CloseReason::Idle => End::Cut,
        CloseReason::Error(_) => End::Whole,
    }
}
