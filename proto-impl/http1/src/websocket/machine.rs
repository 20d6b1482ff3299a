//! The state machine of a WebSocket: it turns bytes into messages and messages into bytes. The documentation of
//! [`super`] shows the flow.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use crypto::{Random, Seed};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error as Judgement, Message};
use wire::SendQueue;

use super::frame::{FrameHead, Opcode, apply_mask};
use super::{Error, Limits};

/// Input is processed in pieces of this size. Each piece is parsed before the next one is held.
const PIECE_BYTES: usize = 16 * 1024;
/// Maximum number of bytes that the shell, which owns the socket, may have read before it noticed that no bytes are
/// wanted.
const OVERRUN_BYTES: usize = 1024 * 1024;
/// Size of tungstenite's reads from memory; tungstenite keeps a buffer of this size.
const LIBRARY_BUFFER_BYTES: usize = 1024;
/// Maximum number of pings that wait for their pong. If more arrive, the oldest are not answered.
const PONGS_MAX: usize = 16;
/// No pong is queued while more than this many bytes wait to be sent.
const PONG_QUEUE_BYTES: usize = 4096;
/// Maximum length of a close reason: 125 bytes, minus two for the code.
const REASON_BYTES_MAX: usize = 123;
/// Least rate of a frame, in bytes per millisecond: a pinged peer that is slower is given up within the frame.
const LEAST_BYTES_PER_MS: u64 = 4;

/// Events for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A complete text message.
    Text(String),
    /// A complete binary message.
    Binary(Bytes),
    /// The WebSocket has ended; the last event.
    Closed(CloseReason),
}

/// The reason the WebSocket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed with this code; 1005 if it gave none.
    #[error("the peer closed it with code {0}")]
    Peer(u16),
    /// The transport ended without a close frame.
    #[error("the connection was lost")]
    Lost,
    /// [`WebSocket::close`] was called.
    #[error("closed on request")]
    Requested,
    /// The peer broke a rule or a limit.
    #[error("{0}")]
    Error(Error),
}

/// Counters of a WebSocket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames read.
    pub frames_in: u64,
    /// Frames queued for the peer.
    pub frames_out: u64,
    /// Pongs queued for the peer.
    pub pongs_out: u64,
    /// Bytes held of an incomplete frame and of an incomplete message.
    pub held_bytes: usize,
    /// Number of bytes that the peer has not received yet.
    pub unsent_bytes: usize,
}

/// Deadlines for input from the peer.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// Deadline for any frame after a ping.
    pong: Option<Instant>,
    /// Deadline for the whole frame of which the machine holds a part. Until then no pong is expected: a peer cannot
    /// send one within a frame (RFC 6455 §5.4).
    frame: Option<Instant>,
}

/// An open WebSocket.
///
/// If an input returns `Err`, the transport must be dropped without flushing. An error of which the peer is informed is
/// not returned as `Err`: the close frame is queued, and [`WebSocket::is_closing`] becomes true.
#[derive(Debug)]
pub struct WebSocket {
    role: Role,
    limits: Arc<Limits>,
    /// The source of a client's masking keys; `None` for a server.
    masks: Option<Random>,
    /// State of tungstenite. It is created with the first message, because many peers never send a message.
    library: Option<Box<WebSocketContext>>,
    held: BytesMut,
    /// Bytes of the fragmented message that tungstenite holds.
    message_bytes: usize,
    events: VecDeque<Event>,
    out: SendQueue,
    /// Payloads of the newest unanswered pings.
    pongs: VecDeque<Bytes>,
    ping_at: Instant,
    pings: u64,
    due: Due,
    unsent: usize,
    progress_at: Instant,
    now: Instant,
    closed: bool,
    stats: Stats,
}

impl WebSocket {
    /// Makes the server's side after the 101 was queued. `held` is the input that the HTTP connection has read beyond
    /// the request.
    #[must_use]
    pub fn server(now: Instant, limits: Arc<Limits>, held: &[u8]) -> Self {
        Self::new(now, limits, Role::Server, None, held)
    }

    /// Makes the client's side after [`super::ClientHandshake`] has returned `held`, the bytes after the response.
    #[must_use]
    pub fn client(now: Instant, limits: Arc<Limits>, held: &[u8], seed: &Seed) -> Self {
        Self::new(now, limits, Role::Client, Some(seed.random()), held)
    }

    fn new(now: Instant, limits: Arc<Limits>, role: Role, masks: Option<Random>, held: &[u8]) -> Self {
        let ping_at = now.checked_add(limits.ping).unwrap_or(now);
        let mut machine = Self {
            role,
            limits,
            masks,
            library: None,
            held: BytesMut::new(),
            message_bytes: 0,
            events: VecDeque::new(),
            out: SendQueue::new(),
            pongs: VecDeque::new(),
            ping_at,
            pings: 0,
            due: Due::default(),
            unsent: 0,
            progress_at: now,
            now,
            closed: false,
            stats: Stats::default(),
        };
        machine.take(held);
        machine
    }

    /// Takes bytes of the stream, in pieces of any size. The bytes are ignored once the WebSocket is closing.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.now = now;
        self.take(bytes);
    }

    /// Handles the end of the peer's side of the transport.
    pub fn handle_eof(&mut self, now: Instant) {
        self.now = now;
        self.finish(CloseReason::Lost);
    }

    /// Handles deadlines that have passed.
    ///
    /// # Errors
    /// The peer does not read or sends nothing: the transport must be dropped.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        self.now = now;
        if self.closed {
            return Ok(());
        }
        if self.stall_deadline().is_some_and(|at| now >= at) {
            return self.abort(Error::WriteStalled);
        }
        if self.answer_by().is_some_and(|at| now >= at) {
            return self.abort(Error::NoPong);
        }
        if self.due.pong.is_none() && now >= self.ping_at {
            self.pings = self.pings.wrapping_add(1);
            let payload = Bytes::copy_from_slice(&self.pings.to_be_bytes());
            self.queue(Opcode::Ping, payload);
            self.due.pong = now.checked_add(self.limits.pong);
        }
        Ok(())
    }

    /// Handles progress of a write: the transport took `bytes` bytes of the output of [`WebSocket::poll_transmit`].
    pub fn handle_sent(&mut self, now: Instant, bytes: usize) {
        self.now = now;
        if bytes > 0 {
            self.unsent = self.unsent.saturating_sub(bytes);
            self.progress_at = now;
        }
    }

    /// True if the shell should read. False while a message waits to be polled, and after the end.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        !self.closed && self.events.is_empty()
    }

    /// Queues a text message.
    ///
    /// # Errors
    /// The peer does not read, and too much output waits: the transport must be dropped.
    pub fn send_text(&mut self, now: Instant, text: &str) -> Result<(), Error> {
        self.send(now, Opcode::Text, Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Queues a binary message. A server sends the bytes without copying them.
    ///
    /// # Errors
    /// As [`WebSocket::send_text`].
    pub fn send_binary(&mut self, now: Instant, bytes: Bytes) -> Result<(), Error> {
        self.send(now, Opcode::Binary, bytes)
    }

    /// Sends a close frame with a code of [`super::code`] and a reason of at most 123 bytes, and closes.
    pub fn close(&mut self, now: Instant, code: u16, reason: &str) {
        self.now = now;
        if !self.closed {
            self.queue_close(code, reason);
            self.finish(CloseReason::Requested);
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.drive();
        }
        self.events.pop_front()
    }

    /// Moves queued output to the shell's queue. Returns true if there was any.
    pub fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        self.answer_pings();
        let any = !self.out.is_empty();
        if any {
            out.append(&mut self.out);
            self.out = SendQueue::new();
        }
        any
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let life = self.answer_by().unwrap_or(self.ping_at);
        Some(self.stall_deadline().map_or(life, |stall| stall.min(life)))
    }

    /// True if the output of [`WebSocket::poll_transmit`] should be flushed, and the transport should then be closed.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.closed
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            held_bytes: self.held.len().saturating_add(self.message_bytes),
            unsent_bytes: self.unsent,
            ..self.stats
        }
    }

    #[cfg(test)]
    pub(super) fn held_capacity(&self) -> usize {
        self.held.capacity()
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.closed {
                return;
            }
            if self.held.len() > self.limits.message_bytes.saturating_add(OVERRUN_BYTES) {
                self.fail(Error::Overrun);
                return;
            }
            self.held.extend_from_slice(piece);
            self.drive();
        }
    }

    /// Reads frames up to the next message. If a close frame follows that message, the application can therefore still
    /// answer the message before the close frame is answered.
    fn drive(&mut self) {
        while !self.closed && self.events.is_empty() {
            match self.next_frame() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.fail(error),
            }
        }
        if self.held.is_empty() {
            // An idle connection keeps no buffer.
            self.held = BytesMut::new();
        }
    }

    /// Reads the frame at the front of the held bytes. Returns false if the frame is incomplete.
    fn next_frame(&mut self) -> Result<bool, Error> {
        // Checks are made in this order, so that the verdict does not depend on the pieces in which the bytes arrive.
        FrameHead::read(self.held.get(..1).unwrap_or_default())?;
        if let Some(second) = self.held.get(1) {
            self.check_mask(second & 0x80 != 0)?;
        }
        let Some((head, head_bytes)) = FrameHead::read(&self.held)? else { return Ok(false) };
        let length = usize::try_from(head.length).map_err(|_| Error::TooLarge)?;
        let message_bytes = self.message_bytes.saturating_add(length);
        if !head.opcode.is_control() && message_bytes > self.limits.message_bytes {
            return Err(Error::TooLarge);
        }
        let frame_bytes = head_bytes.saturating_add(length);
        if self.held.len() < frame_bytes {
            let least = Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX) / LEAST_BYTES_PER_MS);
            let whole = self.now.checked_add(self.limits.pong.saturating_add(least));
            self.due.frame = self.due.frame.or(whole);
            return Ok(false);
        }
        self.due.frame = None;
        let mut frame = self.held.split_to(frame_bytes);
        self.stats.frames_in = self.stats.frames_in.saturating_add(1);
        // Any frame shows that the peer is alive.
        if self.due.pong.take().is_some() {
            self.ping_at = self.now.checked_add(self.limits.ping).unwrap_or(self.now);
        }
        match head.opcode {
            Opcode::Ping => {
                frame.advance(head_bytes);
                if let Some(mask) = head.mask {
                    apply_mask(&mut frame, mask);
                }
                if self.pongs.len() >= PONGS_MAX {
                    self.pongs.pop_front();
                }
                self.pongs.push_back(frame.freeze());
            }
            Opcode::Pong => {}
            Opcode::Close => self.judge_close(&frame)?,
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                self.message_bytes = if head.is_final { 0 } else { message_bytes };
                self.judge_data(&frame)?;
            }
        }
        Ok(true)
    }

    /// Checks that a client's frame is masked and a server's is not (§5.1).
    fn check_mask(&self, masked: bool) -> Result<(), Error> {
        match (self.role, masked) {
            (Role::Server, true) | (Role::Client, false) => Ok(()),
            (Role::Server, false) => Err(Error::Protocol("unmasked frame of a client")),
            (Role::Client, true) => Err(Error::Protocol("masked frame of a server")),
        }
    }

    fn judge_data(&mut self, frame: &[u8]) -> Result<(), Error> {
        match self.judge(frame) {
            Ok(Message::Text(text)) => self.events.push_back(Event::Text(text.as_str().to_owned())),
            Ok(Message::Binary(bytes)) => self.events.push_back(Event::Binary(bytes)),
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => {}
            // The frame was a fragment of a message that continues.
            Err(Judgement::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(blame(&error)),
        }
        Ok(())
    }

    /// Answers a close frame with the peer's code, or with 1002 if the peer may not send that code (§7.4).
    fn judge_close(&mut self, frame: &[u8]) -> Result<(), Error> {
        let told = match self.judge(frame) {
            Ok(Message::Close(told)) => told.map(|told| u16::from(told.code)),
            Ok(
                Message::Text(_)
                | Message::Binary(_)
                | Message::Ping(_)
                | Message::Pong(_)
                | Message::Frame(_),
            ) => None,
            Err(error) => return Err(blame(&error)),
        };
        self.answer_pings();
        match told {
            Some(told) => self.queue_close(told, ""),
            None => self.queue(Opcode::Close, Bytes::new()),
        }
        self.finish(CloseReason::Peer(told.unwrap_or(1005)));
        Ok(())
    }

    /// Lets tungstenite read one whole frame.
    fn judge(&mut self, frame: &[u8]) -> Result<Message, Judgement> {
        let limit = Some(self.limits.message_bytes);
        let config = || {
            let config = WebSocketConfig::default().read_buffer_size(LIBRARY_BUFFER_BYTES);
            config.max_message_size(limit).max_frame_size(limit)
        };
        let role = self.role;
        let library =
            self.library.get_or_insert_with(|| Box::new(WebSocketContext::new(role, Some(config()))));
        library.read(&mut Memory(frame))
    }

    fn send(&mut self, now: Instant, opcode: Opcode, payload: Bytes) -> Result<(), Error> {
        self.now = now;
        if self.closed {
            return Ok(());
        }
        self.queue(opcode, payload);
        if self.unsent > self.limits.queued_bytes { self.abort(Error::WriteStalled) } else { Ok(()) }
    }

    /// Answers the pings that wait (§5.5.3): all of them, or only the newest if there are too many.
    fn answer_pings(&mut self) {
        while self.unsent <= PONG_QUEUE_BYTES
            && let Some(payload) = self.pongs.pop_front()
        {
            self.stats.pongs_out = self.stats.pongs_out.saturating_add(1);
            self.queue(Opcode::Pong, payload);
        }
    }

    fn queue_close(&mut self, code: u16, reason: &str) {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(reason.get(..REASON_BYTES_MAX).unwrap_or(reason).as_bytes());
        if payload.len() > REASON_BYTES_MAX.saturating_add(2) {
            payload.truncate(2);
        }
        self.queue(Opcode::Close, Bytes::from(payload));
    }

    fn queue(&mut self, opcode: Opcode, payload: Bytes) {
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        let mask = self.masks.as_mut().map(|masks| {
            let mut mask = [0; 4];
            masks.fill(&mut mask);
            mask
        });
        let before = self.out.len();
        self.out.push_slice(&FrameHead { is_final: true, opcode, length, mask }.write());
        match mask {
            None => self.out.push(payload),
            Some(mask) => {
                let mut masked = payload.to_vec();
                apply_mask(&mut masked, mask);
                self.out.push(Bytes::from(masked));
            }
        }
        if self.unsent == 0 {
            self.progress_at = self.now;
        }
        self.unsent = self.unsent.saturating_add(self.out.len().saturating_sub(before));
        self.stats.frames_out = self.stats.frames_out.saturating_add(1);
    }

    /// Sends the peer the close code for its fault, and closes.
    fn fail(&mut self, error: Error) {
        if let Some(code) = error.code() {
            self.queue_close(code, &error.to_string());
        }
        self.finish(CloseReason::Error(error));
    }

    fn abort(&mut self, error: Error) -> Result<(), Error> {
        self.out = SendQueue::new();
        self.unsent = 0;
        self.finish(CloseReason::Error(error));
        Err(error)
    }

    fn finish(&mut self, reason: CloseReason) {
        if !self.closed {
            self.closed = true;
            self.events.push_back(Event::Closed(reason));
            self.held = BytesMut::new();
            self.message_bytes = 0;
            self.library = None;
            self.pongs = VecDeque::new();
        }
    }

    /// Deadline for a frame from a peer that was pinged.
    fn answer_by(&self) -> Option<Instant> {
        self.due.pong.map(|at| self.due.frame.map_or(at, |frame| frame.max(at)))
    }

    fn stall_deadline(&self) -> Option<Instant> {
        if self.unsent == 0 { None } else { self.progress_at.checked_add(self.limits.write_stall) }
    }
}

/// Maps an error of tungstenite to an [`Error`].
fn blame(error: &Judgement) -> Error {
    match error {
        Judgement::Utf8(_) => Error::NotUtf8,
        Judgement::Capacity(_) => Error::TooLarge,
        Judgement::ConnectionClosed
        | Judgement::AlreadyClosed
        | Judgement::Io(_)
        | Judgement::Tls(_)
        | Judgement::Protocol(_)
        | Judgement::WriteBufferFull(_)
        | Judgement::AttackAttempt
        | Judgement::Url(_)
        | Judgement::Http(_)
        | Judgement::HttpFormat(_) => Error::Protocol("frame out of order"),
    }
}

/// A frame in memory, for tungstenite to read. Writes are discarded, because this module writes all answers itself.
struct Memory<'a>(&'a [u8]);

impl Read for Memory<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.0.read(out) }
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
