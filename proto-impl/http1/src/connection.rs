//! The state machine of a connection: it takes bytes, returns one request at a time, and takes the responses. The
//! documentation of [`super`] shows the flow.

mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use wire::SendQueue;

use super::body::{BodyDecoder, Framing};
use super::coding;
use super::head::{Head, Scanner};
use super::request::{Method, Request};
use super::response::{self, Answers, Delimiter, Exchange, Response};
use super::{BodyLimits, Error, Intake, Limits};

/// Input is processed in pieces of this size. Each piece is parsed before the next one is held.
const PIECE_BYTES: usize = 16 * 1024;
/// Maximum number of bytes that the shell, which owns the socket, may have read before it noticed that no bytes are
/// wanted. More bytes are an overrun.
const OVERRUN_BYTES: usize = 1024 * 1024;

pub use stream::{End, StreamAnswer, StreamRequest};

/// Events for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request, to be answered with [`Connection::respond`]. The next request follows after the answer.
    Request(Request),
    /// The connection has ended. This is the last event; an outstanding request can no longer be answered.
    Closed(CloseReason),
}

/// The reason the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The request or its response asked for the close, or the limit of requests was reached.
    #[error("all was answered")]
    Complete,
    /// The peer ended its side.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// No request arrived within the time limit.
    #[error("no request came in time")]
    Idle,
    /// [`Connection::close`] was called.
    #[error("closed by the server")]
    Shutdown,
    /// A body ended before the announced length.
    #[error("a body ended too early")]
    Truncated,
    /// The peer broke a rule or a limit.
    #[error("{0}")]
    Error(Error),
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests parsed, body included.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes queued for the peer.
    pub bytes_out: u64,
    /// Bytes of heads and chunk framing that were examined. Each byte counts at most once, in whatever pieces it
    /// arrives.
    pub scanned_bytes: u64,
    /// Number of bytes held of requests that are not parsed yet and of an incomplete body.
    pub held_bytes: usize,
    /// Number of bytes of answers that the peer has not received yet.
    pub unsent_bytes: usize,
}

/// The length of a body that is sent in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// A body of this many bytes.
    Known(u64),
    /// The length is unknown: the body ends with the connection. Its bytes may bypass this state machine, but must be
    /// sent after those returned by [`Connection::poll_transmit`].
    UntilClose,
}

#[derive(Debug)]
enum Stage {
    /// Between requests, or inside a head.
    Head(Scanner),
    /// Inside a body.
    Body(Box<Pending>),
    /// A request waits for [`Connection::poll_event`].
    Ready(Box<Request>, Exchange),
    /// A request waits to be answered.
    Outstanding(Exchange),
    /// The head of a response was sent; its body follows in blocks.
    Streaming(Exchange, Streaming),
    /// The transport belongs to another protocol.
    Upgraded,
    /// Reading has ended. The reason is held until it is polled.
    Closed(Option<CloseReason>),
}

/// A body that the application reads as it arrives.
#[derive(Debug)]
struct Incoming {
    decoder: BodyDecoder,
    expects_continue: bool,
    /// Maximum number of bytes that the application accepts; `None` until the application has accepted the body.
    bytes_max: Option<u64>,
    /// Bytes decoded so far.
    bytes: u64,
    is_complete: bool,
    /// Time at which the peer's rate was last checked, and the number of bytes received until then.
    paced: (Instant, u64),
}

/// A request whose body is still arriving.
#[derive(Debug)]
struct Pending {
    head: Head,
    decoder: BodyDecoder,
    since: Instant,
}

/// The remainder of a body that is sent in blocks.
#[derive(Debug, Clone, Copy)]
enum Streaming {
    Length(u64),
    /// All further input is discarded until the peer ends its side. `ignored` counts the discarded bytes.
    Close {
        ignored: usize,
    },
}

/// An HTTP/1.1 server connection.
///
/// If an input returns `Err`, the transport must be dropped without flushing. An error for which the peer gets an
/// answer is not returned as `Err`: the answer is queued, and [`Connection::is_closing`] becomes true.
#[derive(Debug)]
pub struct Connection {
    limits: Arc<Limits>,
    /// Limits on the bodies of requests, by path.
    bodies: Option<&'static dyn BodyLimits>,
    stage: Stage,
    /// The body of the outstanding request, if the application reads it as it arrives.
    incoming: Option<Box<Incoming>>,
    held: BytesMut,
    out: Answers,
    /// Number of bytes queued here or in the shell that were not written yet.
    unsent: usize,
    /// Time at which a write last made progress, or at which `unsent` became nonzero.
    progress_at: Instant,
    /// Time at which the running head timer or idle timer began.
    waiting_since: Instant,
    /// True if the first byte of a head has arrived.
    collecting: bool,
    peer_done: bool,
    shutdown: bool,
    stats: Stats,
}

impl Connection {
    /// Makes the connection of an accepted transport.
    #[must_use]
    pub fn new(now: Instant, limits: Arc<Limits>) -> Self {
        Self {
            limits,
            bodies: None,
            stage: Stage::Head(Scanner::default()),
            incoming: None,
            held: BytesMut::new(),
            out: Answers::Text(SendQueue::new()),
            unsent: 0,
            progress_at: now,
            waiting_since: now,
            collecting: false,
            peer_done: false,
            shutdown: false,
            stats: Stats::default(),
        }
    }

    /// Sets limits on the bodies of requests, by path.
    #[must_use]
    pub fn with_bodies(mut self, bodies: &'static dyn BodyLimits) -> Self {
        self.bodies = Some(bodies);
        self
    }

    /// Takes bytes of the stream, in pieces of any size. The bytes are ignored once the connection is closing.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.is_closing() {
                break;
            }
            self.stats.bytes_in = self.stats.bytes_in.saturating_add(length_u64(piece));
            if let Stage::Streaming(_, Streaming::Close { ignored }) = &mut self.stage {
                *ignored = ignored.saturating_add(piece.len());
                if *ignored > self.limits.held_bytes {
                    self.finish(CloseReason::Error(Error::Overrun));
                }
                continue;
            }
            if self.held.len().saturating_add(piece.len())
                > self.limits.held_bytes.saturating_add(OVERRUN_BYTES)
            {
                return self.abort(Error::Overrun);
            }
            self.held.extend_from_slice(piece);
            self.drive(now);
        }
        Ok(())
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.stall_deadline().is_some_and(|at| now >= at) {
            return self.abort(Error::WriteStalled);
        }
        if self.stage_deadline().is_some_and(|at| now >= at) {
            if self.collecting || matches!(self.stage, Stage::Body(_)) {
                self.reject(now, Error::Timeout);
            } else if let Some(incoming) = &mut self.incoming {
                let came = incoming.bytes.saturating_sub(incoming.paced.1);
                incoming.paced = (now, incoming.bytes);
                if came < self.limits.streamed_bytes_min() {
                    self.reject(now, Error::Timeout);
                }
            } else {
                self.finish(CloseReason::Idle);
            }
        }
        Ok(())
    }

    /// Handles progress of a write: the transport took `bytes` bytes of the output of [`Connection::poll_transmit`].
    pub fn handle_sent(&mut self, now: Instant, bytes: usize) {
        if bytes == 0 || self.unsent == 0 {
            return;
        }
        self.unsent = self.unsent.saturating_sub(bytes);
        self.progress_at = now;
        if !self.collecting {
            // The idle time between requests begins when the peer has received the response.
            self.waiting_since = now;
        }
        self.drive(now);
    }

    /// Handles the end of the peer's side. Bytes received before it are still parsed and answered.
    pub fn handle_eof(&mut self, now: Instant) {
        self.peer_done = true;
        if matches!(self.stage, Stage::Streaming(_, Streaming::Close { .. })) {
            // The peer may have closed only its side and still read, but there is no other sign that a viewer has left.
            self.finish(CloseReason::PeerClosed);
        }
        self.drive(now);
    }

    /// True if the shell should read. False while a request is outstanding and enough input is held, while too much
    /// output waits for the peer, and after the end.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        if self.peer_done || self.unsent > self.limits.queued_bytes {
            return false;
        }
        match self.stage {
            Stage::Head(_) | Stage::Body(_) => true,
            Stage::Streaming(_, Streaming::Close { .. }) => true,
            Stage::Ready(..) | Stage::Outstanding(_) | Stage::Streaming(..) => match &self.incoming {
                Some(incoming) if incoming.is_taken() => !self.is_window_full(incoming),
                Some(incoming) => self.held.is_empty() && incoming.decoder.is_empty(),
                None => self.held.len() <= self.limits.held_bytes,
            },
            Stage::Upgraded | Stage::Closed(_) => false,
        }
    }

    /// Answers the outstanding request. Does nothing if there is none. `wall_ms` is the Unix time in milliseconds, for
    /// `Date`.
    pub fn respond(&mut self, now: Instant, wall_ms: u64, response: Response) {
        let Stage::Outstanding(exchange) = self.stage else {
            return;
        };
        let exchange = self.settle(exchange, &response);
        self.queue(now, |out| response::write(out, exchange, Some(wall_ms), response));
        self.complete(now, exchange);
    }

    /// True if the body of the outstanding request was not accepted yet. If a response is sent before the body is
    /// accepted, the connection closes after the response.
    #[must_use]
    pub fn has_incoming_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_taken())
    }

    /// Accepts the body of the outstanding request. [`Connection::poll_body`] then returns its bytes. A body larger
    /// than `bytes_max` is answered with 413, and a body slower than [`Limits::body_rate_min`] with 408.
    pub fn take_body(&mut self, now: Instant, bytes_max: u64) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.bytes_max = Some(bytes_max);
        incoming.paced = (now, incoming.bytes);
        let has_begun = !incoming.decoder.is_empty() || incoming.decoder.scanned() > 0;
        let invites = incoming.expects_continue && self.held.is_empty() && !has_begun;
        if incoming.decoder.announced().is_some_and(|length| length > bytes_max) {
            return self.reject(now, Error::BodyTooLarge);
        }
        if invites {
            self.queue(now, Answers::invite);
        }
        self.drive(now);
    }

    /// Returns the part of the body that has arrived since the last call.
    pub fn poll_body(&mut self, now: Instant) -> Option<Bytes> {
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.is_taken())?;
        let block = incoming.decoder.take_decoded();
        if block.is_empty() {
            return None;
        }
        if length_u64(&block) > length_of(self.limits.body_window_bytes) {
            // The peer could not send while the window was full, so the measurement of its rate starts again.
            incoming.paced = (now, incoming.bytes);
        }
        self.drive(now);
        Some(block)
    }

    /// True if an accepted body is complete and all its bytes were polled.
    #[must_use]
    pub fn is_body_complete(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.is_complete && incoming.decoder.is_empty())
    }

    /// Begins the answer to the outstanding request with `head`. The body follows in blocks ([`Connection::body`],
    /// [`Connection::end_body`]). Returns false if no body may follow (HEAD, 204, 304), in which case the answer is
    /// complete, or if no request is outstanding.
    pub fn begin(&mut self, now: Instant, wall_ms: u64, head: &Response, length: BodyLength) -> bool {
        let Stage::Outstanding(exchange) = self.stage else {
            return false;
        };
        let mut exchange = self.settle(exchange, head);
        let (delimiter, streaming) = match length {
            BodyLength::Known(length) => (Delimiter::Length(length), Streaming::Length(length)),
            BodyLength::UntilClose => {
                exchange.keep_alive = false;
                (Delimiter::Close, Streaming::Close { ignored: 0 })
            }
        };
        self.queue(now, |out| response::write_head(out, exchange, Some(wall_ms), head, delimiter));
        if exchange.method == Method::Head || !response::has_content(head.status) {
            self.complete(now, exchange);
            return false;
        }
        if matches!(streaming, Streaming::Close { .. }) {
            self.held = BytesMut::new();
        }
        self.stage = Stage::Streaming(exchange, streaming);
        true
    }

    /// Sends a block of the current body. Bytes beyond the announced length are dropped.
    pub fn body(&mut self, now: Instant, mut block: Bytes) {
        let Stage::Streaming(_, streaming) = &mut self.stage else {
            return;
        };
        if let Streaming::Length(left) = streaming {
            block.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left = left.saturating_sub(length_u64(&block));
        }
        if !block.is_empty() {
            self.queue(now, |out| out.queue_mut().push(block));
        }
    }

    /// Ends the current body. If the body is shorter than announced, the connection closes.
    pub fn end_body(&mut self, now: Instant) {
        let Stage::Streaming(exchange, streaming) = self.stage else {
            return;
        };
        match streaming {
            Streaming::Length(0) | Streaming::Close { .. } => self.complete(now, exchange),
            Streaming::Length(_) => self.finish(CloseReason::Truncated),
        }
    }

    /// True if the next block of the current body should be fetched, because few unsent bytes are left.
    #[must_use]
    pub fn wants_body(&self) -> bool {
        matches!(self.stage, Stage::Streaming(..)) && self.unsent <= self.limits.body_queued_bytes
    }

    /// Answers the outstanding request with 101 and the fields of `head` (RFC 9110 §7.8). Returns the bytes that were
    /// read beyond the request, or `None` if no request is outstanding. After the next [`Connection::poll_transmit`],
    /// the transport belongs to another state machine.
    pub fn upgrade(&mut self, now: Instant, wall_ms: u64, head: &Response) -> Option<Bytes> {
        let Stage::Outstanding(_) = self.stage else {
            return None;
        };
        self.queue(now, |out| response::write_upgrade(out, wall_ms, &head.headers));
        self.stage = Stage::Upgraded;
        self.unsent = 0;
        Some(std::mem::take(&mut self.held).freeze())
    }

    /// Closes the connection: immediately if no request is outstanding, otherwise after the response. A body that is
    /// being sent in blocks is cut off.
    pub fn close(&mut self, _now: Instant) {
        self.shutdown = true;
        match self.stage {
            Stage::Head(_) | Stage::Body(_) | Stage::Streaming(..) | Stage::Upgraded => {
                self.finish(CloseReason::Shutdown);
            }
            Stage::Ready(..) | Stage::Outstanding(_) | Stage::Closed(_) => {}
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        match &mut self.stage {
            Stage::Head(_)
            | Stage::Body(_)
            | Stage::Outstanding(_)
            | Stage::Streaming(..)
            | Stage::Upgraded => None,
            Stage::Closed(reason) => reason.take().map(Event::Closed),
            Stage::Ready(_, exchange) => {
                let outstanding = Stage::Outstanding(*exchange);
                match std::mem::replace(&mut self.stage, outstanding) {
                    Stage::Ready(request, _) => Some(Event::Request(*request)),
                    Stage::Head(_)
                    | Stage::Body(_)
                    | Stage::Outstanding(_)
                    | Stage::Streaming(..)
                    | Stage::Upgraded
                    | Stage::Closed(_) => None,
                }
            }
        }
    }

    /// Moves queued output to the shell's queue. Returns true if there was any.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        let own = self.out.queue_mut();
        let any = !own.is_empty();
        if any {
            out.append(own);
            *own = SendQueue::new();
        }
        any
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.stage_deadline(), self.stall_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// True if the output of [`Connection::poll_transmit`] should be flushed, and the transport should then be closed.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closed(_))
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (in_head, in_body, decoded) = match &self.stage {
            Stage::Head(scanner) => (scanner.scanned(), 0, 0),
            Stage::Body(pending) => (0, pending.decoder.scanned(), pending.decoder.len()),
            Stage::Outstanding(_) => (0, 0, self.incoming.as_ref().map_or(0, |body| body.decoder.len())),
            Stage::Ready(..) | Stage::Streaming(..) | Stage::Upgraded | Stage::Closed(_) => (0, 0, 0),
        };
        let in_head = u64::try_from(in_head).unwrap_or(u64::MAX);
        Stats {
            scanned_bytes: self.stats.scanned_bytes.saturating_add(in_head).saturating_add(in_body),
            held_bytes: self.held.len().saturating_add(decoded),
            unsent_bytes: self.unsent,
            ..self.stats
        }
    }

    /// Decides whether the connection stays open after the response `head`.
    fn settle(&self, mut exchange: Exchange, head: &Response) -> Exchange {
        let asked_to_close = head.headers.has_token("connection", "close");
        let last = self.stats.requests >= self.limits.requests || (self.peer_done && self.held.is_empty());
        let unread = self.incoming.as_ref().is_some_and(|incoming| !incoming.is_complete);
        exchange.keep_alive = exchange.keep_alive && !asked_to_close && !last && !unread && !self.shutdown;
        exchange
    }

    /// Continues after a response was queued: takes the next request, or closes the connection.
    fn complete(&mut self, now: Instant, exchange: Exchange) {
        self.incoming = None;
        if !exchange.keep_alive {
            self.finish(if self.shutdown { CloseReason::Shutdown } else { CloseReason::Complete });
            return;
        }
        self.stage = Stage::Head(Scanner::default());
        self.waiting_since = now;
        self.collecting = false;
        self.drive(now);
    }

    /// Parses the held bytes as far as possible, and as far as the output limit allows.
    fn drive(&mut self, now: Instant) {
        let parsed = match self.stage {
            Stage::Head(_) => self.drive_head(now),
            Stage::Body(_) => self.drive_body(),
            Stage::Outstanding(_) => self.drive_incoming(),
            Stage::Ready(..) | Stage::Streaming(..) | Stage::Upgraded | Stage::Closed(_) => return,
        };
        match parsed {
            Ok(true) => {}
            Ok(false) if self.peer_done => self.finish(CloseReason::PeerClosed),
            Ok(false) => {}
            Err(error) => self.reject(now, error),
        }
    }

    /// Parses a head. Returns true if nothing more can be parsed until more input arrives or output was sent.
    fn drive_head(&mut self, now: Instant) -> Result<bool, Error> {
        if !self.collecting && self.unsent > self.limits.queued_bytes {
            return Ok(true);
        }
        let Stage::Head(scanner) = &mut self.stage else {
            return Ok(true);
        };
        if self.held.is_empty() {
            // An idle connection keeps no buffer.
            self.held = BytesMut::new();
            return Ok(false);
        }
        if !self.collecting {
            self.collecting = true;
            if self.stats.requests > 0 {
                self.waiting_since = now;
            }
        }
        let Some(range) = scanner.scan(&self.held, &self.limits)? else {
            return Ok(false);
        };
        let scanned = u64::try_from(scanner.scanned()).unwrap_or(u64::MAX);
        self.stats.scanned_bytes = self.stats.scanned_bytes.saturating_add(scanned);
        *scanner = Scanner::default();
        let bytes = self.held.split_to(range.end);
        let head = Head::parse(bytes.get(range.start..).unwrap_or_default(), &self.limits, self.bodies)?;
        self.collecting = false;
        self.begin_body(now, head)
    }

    fn begin_body(&mut self, now: Instant, head: Head) -> Result<bool, Error> {
        let mut decoder = BodyDecoder::new(head.framing, &self.limits).limited(head.body_bytes_max);
        if head.intake == Intake::Streamed {
            self.ready_without_body(now, head, decoder);
            return Ok(true);
        }
        let complete = decoder.decode(&mut self.held)?;
        if complete {
            self.ready(head, decoder);
            return Ok(true);
        }
        if head.intake == Intake::AfterHead {
            self.ready_without_body(now, head, decoder);
            return Ok(true);
        }
        // RFC 9110 §10.1.1: `100 Continue` is not needed if the body is already arriving. It is not sent for a body
        // that was refused above.
        if head.expects_continue && decoder.is_empty() && decoder.scanned() == 0 {
            self.queue(now, Answers::invite);
        }
        self.stage = Stage::Body(Box::new(Pending { head, decoder, since: now }));
        Ok(false)
    }

    fn drive_body(&mut self) -> Result<bool, Error> {
        let Stage::Body(pending) = &mut self.stage else {
            return Ok(true);
        };
        if !pending.decoder.decode(&mut self.held)? {
            return Ok(false);
        }
        match std::mem::replace(&mut self.stage, Stage::Closed(None)) {
            Stage::Body(pending) => self.ready(pending.head, pending.decoder),
            other @ (Stage::Head(_)
            | Stage::Ready(..)
            | Stage::Outstanding(_)
            | Stage::Streaming(..)
            | Stage::Upgraded
            | Stage::Closed(_)) => self.stage = other,
        }
        Ok(true)
    }

    /// Decodes held bytes of a body that the application reads as it arrives, until the window is full.
    fn drive_incoming(&mut self) -> Result<bool, Error> {
        let Some(incoming) = &mut self.incoming else { return Ok(true) };
        let Some(bytes_max) = incoming.bytes_max else { return Ok(true) };
        while !incoming.is_complete
            && !self.held.is_empty()
            && incoming.decoder.len() <= self.limits.body_window_bytes
        {
            // Decode a piece at a time, so that the decoded data never exceeds the window by more than a piece.
            let mut piece = self.held.split_to(self.held.len().min(PIECE_BYTES));
            let before = incoming.decoder.len();
            incoming.is_complete = incoming.decoder.decode(&mut piece)?;
            let came = incoming.decoder.len().saturating_sub(before);
            incoming.bytes = incoming.bytes.saturating_add(length_of(came));
            if incoming.bytes > bytes_max {
                return Err(Error::BodyTooLarge);
            }
            piece.unsplit(std::mem::take(&mut self.held));
            self.held = piece;
        }
        if self.held.is_empty() {
            // The end of an HTTP/2 stream may arrive without bytes.
            incoming.is_complete |= incoming.decoder.decode(&mut BytesMut::new())?;
        }
        // While the window is full, held bytes wait to be decoded.
        Ok(incoming.is_complete || !self.held.is_empty())
    }

    fn is_window_full(&self, incoming: &Incoming) -> bool {
        if incoming.is_complete {
            return self.held.len() > self.limits.held_bytes;
        }
        incoming.decoder.len() > self.limits.body_window_bytes || !self.held.is_empty()
    }

    /// Passes on the head of a request whose body the application must accept first.
    fn ready_without_body(&mut self, now: Instant, head: Head, decoder: BodyDecoder) {
        self.incoming = Some(Box::new(Incoming {
            bytes: length_of(decoder.len()),
            decoder,
            expects_continue: head.expects_continue,
            bytes_max: None,
            is_complete: false,
            paced: (now, 0),
        }));
        let nothing = BodyDecoder::new(Framing::Length(0), &self.limits);
        self.ready(head, nothing);
    }

    fn ready(&mut self, head: Head, decoder: BodyDecoder) {
        self.stats.requests = self.stats.requests.saturating_add(1);
        self.stats.scanned_bytes = self.stats.scanned_bytes.saturating_add(decoder.scanned());
        let exchange = Exchange {
            method: head.method,
            version: head.version,
            keep_alive: head.keep_alive,
            gzip: coding::takes_own_in_gzip(&head.headers),
        };
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
        let request = Request {
            method: head.method,
            version: head.version,
            target: head.target,
            path: head.path,
            query: head.query,
            headers: head.headers,
            body: decoder.into_body(),
            body_waits: self.incoming.as_ref().is_some_and(|incoming| !incoming.decoder.is_done()),
        };
        self.stage = Stage::Ready(Box::new(request), exchange);
    }

    /// Answers with an error, then closes the connection (RFC 9112 §9.6).
    fn reject(&mut self, now: Instant, error: Error) {
        if let Some(status) = error.status() {
            // The request may have been a HEAD, whose response has no body. A body does no harm here, because the
            // connection closes after it.
            let version = self.version();
            let exchange = Exchange { method: Method::Get, version, keep_alive: false, gzip: false };
            let mut answer = Response::error(status, &error.to_string());
            if error == Error::MethodNotAllowed {
                // RFC 9110 §15.5.6: a 405 must list the allowed methods.
                answer.headers.push("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH");
            }
            self.queue(now, |out| response::write(out, exchange, None, answer));
        }
        self.finish(CloseReason::Error(error));
    }

    fn abort(&mut self, error: Error) -> Result<(), Error> {
        self.out.clear();
        self.unsent = 0;
        self.finish(CloseReason::Error(error));
        Err(error)
    }

    fn finish(&mut self, reason: CloseReason) {
        if !self.is_closing() {
            let unfinished = self.stats();
            self.stats.scanned_bytes = unfinished.scanned_bytes;
            self.stage = Stage::Closed(Some(reason));
            self.out.end(stream::end_of(reason));
            self.incoming = None;
            self.held = BytesMut::new();
            self.collecting = false;
        }
    }

    fn queue(&mut self, now: Instant, write: impl FnOnce(&mut Answers)) {
        let before = self.out.queue().len();
        write(&mut self.out);
        let added = self.out.queue().len().saturating_sub(before);
        if self.unsent == 0 {
            self.progress_at = now;
        }
        self.unsent = self.unsent.saturating_add(added);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(u64::try_from(added).unwrap_or(u64::MAX));
    }

    fn stall_deadline(&self) -> Option<Instant> {
        if self.unsent == 0 { None } else { self.progress_at.checked_add(self.limits.write_stall) }
    }

    fn stage_deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Head(_) if self.collecting || self.stats.requests == 0 => {
                self.waiting_since.checked_add(self.limits.head_time)
            }
            // While a response is being sent, only the stall timer runs.
            Stage::Head(_) if self.unsent > 0 => None,
            Stage::Head(_) => self.waiting_since.checked_add(self.limits.idle),
            Stage::Body(pending) => pending.since.checked_add(self.body_time(pending.decoder.len())),
            Stage::Outstanding(_) => {
                let is_awaited = |incoming: &&Incoming| {
                    incoming.is_taken() && !incoming.is_complete && !self.is_window_full(incoming)
                };
                let (since, _) = self.incoming.as_deref().filter(is_awaited)?.paced;
                since.checked_add(self.limits.body_rate_grace)
            }
            Stage::Ready(..) | Stage::Streaming(..) | Stage::Upgraded | Stage::Closed(_) => None,
        }
    }

    /// Returns the time allowed for a body of which `decoded` bytes have arrived: at least the grace period, more if
    /// the mean rate is sufficient so far, but never more than the total limit.
    fn body_time(&self, decoded: usize) -> Duration {
        let decoded_ms = u64::try_from(decoded).unwrap_or(u64::MAX).saturating_mul(1000);
        let earned = decoded_ms.checked_div(u64::from(self.limits.body_rate_min)).unwrap_or(u64::MAX);
        Duration::from_millis(earned).max(self.limits.body_rate_grace).min(self.limits.body_time)
    }
}

impl Incoming {
    const fn is_taken(&self) -> bool {
        self.bytes_max.is_some()
    }
}

fn length_u64(bytes: &[u8]) -> u64 {
    length_of(bytes.len())
}

fn length_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
