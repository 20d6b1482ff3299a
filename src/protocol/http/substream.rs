//! A session that is one stream of an HTTP/2 connection. Its parent is the session of the connection; the two
//! exchange messages. The session answers requests as any other session does. Its output is passed as slices, and the
//! parent puts these into frames.

use bytes::Bytes;

use super::responder::Link;
use crate::http::{End, StreamAnswer};
use crate::hub::Delivery;
use crate::mail::Message;
use crate::protocol::{Context, Event, FamilyEvent, UnitSink};
use crate::types::{Handle, Now, SessionRef};

/// Maximum bytes of a live stream that wait to be sent. At this limit, no further units are taken.
const MEDIA_BYTES_MAX: usize = 64 * 1024;

/// A message of the connection to a stream.
#[derive(Debug)]
pub(super) enum ToStream {
    /// The first message. Its sender is the parent.
    Begin,
    /// Bytes of the request's body.
    Body(Bytes),
    /// The end of the request's body.
    End,
    /// Number of bytes of the response that were sent.
    Sent(usize),
    /// The stream was reset.
    Reset,
}

/// A message of a stream to its connection.
#[derive(Debug)]
pub(super) struct FromStream {
    /// A part of the response.
    pub(super) answer: StreamAnswer,
    /// Number of bytes of the request's body by which the peer's flow-control window may grow.
    pub(super) released: usize,
    /// True if the peer has been granted anything, and therefore counts as authenticated.
    pub(super) granted: bool,
}

/// A stream's link to its connection.
#[derive(Debug, Default)]
pub(super) struct Substream {
    parent: Option<SessionRef>,
    /// Slices of a live stream, to be sent after the queued output of the HTTP connection and the WebSocket.
    media: Vec<Bytes>,
    media_unsent: usize,
    /// Number of bytes of the body that were not released yet.
    unreleased: usize,
    granted: bool,
    /// The last event, held back until the response is sent.
    last: Option<Event>,
    /// True if the end of the response was sent.
    has_ended: bool,
}

impl Substream {
    pub(super) fn is_parent(&self, session: SessionRef) -> bool {
        self.parent.is_some_and(|parent| parent.conn == session.conn && parent.worker == session.worker)
    }

    /// Handles a message of the parent.
    pub(super) fn hear(&mut self, now: Now, link: &mut Link, from: SessionRef, message: &ToStream) {
        match message {
            ToStream::Begin => self.parent = Some(from),
            ToStream::Body(bytes) => {
                self.unreleased = self.unreleased.saturating_add(bytes.len());
                link.handle_bytes(now, bytes);
            }
            ToStream::End => link.handle_body_end(now),
            ToStream::Sent(bytes) => {
                self.media_unsent = self.media_unsent.saturating_sub(*bytes);
                link.handle_sent(now, *bytes);
            }
            ToStream::Reset => self.leave(link, "the stream was reset"),
        }
    }

    /// Ends the session without a response.
    pub(super) fn leave(&mut self, link: &mut Link, reason: &str) {
        self.has_ended = true;
        link.end(reason.to_owned());
    }

    /// Returns the next event. The last event is returned only after the response was sent.
    pub(super) fn poll_event(&mut self, link: &mut Link, event: Option<Event>) -> Option<Event> {
        match event {
            Some(event @ Event::Closed(_)) => self.last = Some(event),
            Some(event) => return Some(event),
            None => {}
        }
        if self.has_ended {
            return self.last.take();
        }
        let to = self.parent?;
        let mut answer = link.poll_answer();
        answer.parts.append(&mut self.media);
        if self.last.is_some() && answer.end.is_none() {
            // A WebSocket does not mark the end of its response itself.
            answer.end = Some(End::Whole);
        }
        let released = if link.wants_bytes() { std::mem::take(&mut self.unreleased) } else { 0 };
        let is_news = link.granted != self.granted;
        self.granted = link.granted;
        self.has_ended = answer.end.is_some();
        if answer.is_empty() && released == 0 && !is_news {
            return self.last.take();
        }
        let message = Message::new(FromStream { answer, released, granted: self.granted });
        Some(Event::Family(FamilyEvent::Tell { to, message }))
    }
}

impl UnitSink for Substream {
    fn has_room(&self) -> bool {
        self.media_unsent <= MEDIA_BYTES_MAX
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        for slice in unit.slices() {
            self.media_unsent = self.media_unsent.saturating_add(slice.len());
            self.media.push(slice);
        }
    }
}
