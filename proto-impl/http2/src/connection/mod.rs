//! The state machine of one connection. The crate's documentation describes the flow of a connection.

mod headers;
mod output;
mod receive;
mod verbs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use wire::SendQueue;

use crate::allowance::Allowance;
use crate::config::{CLOSED_MAX, CONTROL, CONTROL_BYTES_MAX, RESETS, UPDATES};
use crate::frame::{Header, Kind, PAYLOAD_BYTES_MAX, PREFACE};
use crate::hpack::{Decoder, Encoder};
use crate::stream::{Credit, Stream, Window};
use crate::{CloseReason, Code, Config, Error, Event, Stats, StreamId};
use headers::Block;

/// Input is processed in pieces of this size, so that one piece is parsed before the next is buffered.
const PIECE_BYTES: usize = 16 * 1024;
/// Initial flow-control window of every connection (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;

/// Stage of the peer's byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The preface is not complete.
    Preface,
    /// The peer's first SETTINGS is expected.
    Settings,
    /// The peer's frames are read.
    Open,
    /// No further input is read.
    Closed,
}

/// State of the reading side.
#[derive(Debug)]
struct Input {
    stage: Stage,
    held: BytesMut,
    /// Arrival time of the first buffered byte.
    held_since: Instant,
    /// An incomplete header block, and the time at which it began.
    block: Option<(Block, Instant)>,
    decoder: Decoder,
    credit: Credit,
}

/// State of the writing side.
#[derive(Debug)]
struct Output {
    queue: SendQueue,
    /// Number of bytes that wait in `queue` or at the transport.
    unsent: usize,
    /// Time at which the transport last accepted bytes, or at which `unsent` became nonzero.
    progress_at: Instant,
    encoder: Encoder,
    window: Window,
    /// Initial send window of new streams, as set by the peer.
    stream_window: u32,
    /// Streams with something to send, in the order in which they may send.
    ready: VecDeque<u32>,
}

/// Budgets for frames that cost the peer little to send.
#[derive(Debug)]
struct Allowances {
    control: Allowance,
    resets: Allowance,
    updates: Allowance,
    /// Number of body bytes sent that were not counted towards the budget of updates yet.
    unearned: usize,
}

/// Way in which a stream was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Both sides were complete, or the peer reset the stream. No more frames may arrive.
    Whole,
    /// We reset the stream. Frames that the peer has sent before may still arrive.
    Reset,
}

/// An HTTP/2 server connection, described in the crate's documentation.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    input: Input,
    output: Output,
    allowances: Allowances,
    streams: BTreeMap<u32, Stream>,
    /// Highest stream id that the peer opened.
    last: u32,
    /// Most recently closed streams.
    ended: VecDeque<(u32, Ended)>,
    events: VecDeque<Event>,
    /// Time since which there has been no open stream.
    idle_since: Instant,
    /// Time of the next check for streams without progress.
    stall_check: Option<Instant>,
    /// True if no further requests are accepted.
    shutdown: bool,
    /// True if the peer has announced that it sends no further requests.
    peer_leaves: bool,
    stats: Stats,
}

impl Connection {
    /// Creates the connection for an accepted transport whose peer speaks HTTP/2. The server's preface is queued.
    #[must_use]
    pub fn new(now: Instant, config: Arc<Config>) -> Self {
        let mut connection = Self {
            input: Input {
                stage: Stage::Preface,
                held: BytesMut::new(),
                held_since: now,
                block: None,
                decoder: Decoder::default(),
                credit: Credit::new(config.connection_window.max(WINDOW_BYTES)),
            },
            output: Output {
                queue: SendQueue::new(),
                unsent: 0,
                progress_at: now,
                encoder: Encoder::default(),
                window: Window::new(WINDOW_BYTES),
                stream_window: WINDOW_BYTES,
                ready: VecDeque::new(),
            },
            allowances: Allowances {
                control: Allowance::new(now, CONTROL),
                resets: Allowance::new(now, RESETS),
                updates: Allowance::new(now, UPDATES),
                unearned: 0,
            },
            streams: BTreeMap::new(),
            last: 0,
            ended: VecDeque::new(),
            events: VecDeque::new(),
            idle_since: now,
            stall_check: None,
            shutdown: false,
            peer_leaves: false,
            stats: Stats::default(),
            config,
        };
        connection.write_preface(now);
        connection
    }

    /// Handles bytes of the stream, split anywhere. They are ignored once the connection is being closed.
    ///
    /// # Errors
    /// The error is fatal: [`Connection::poll_transmit`] returns the last bytes for the peer.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.is_closing() {
                return Ok(());
            }
            self.stats.bytes_in = self.stats.bytes_in.saturating_add(length_u64(piece.len()));
            if self.input.held.is_empty() {
                self.input.held_since = now;
            }
            self.input.held.extend_from_slice(piece);
            let result = self.parse(now);
            self.conclude(now, result)?;
        }
        if self.input.held.is_empty() {
            // An idle connection keeps no buffer.
            self.input.held = BytesMut::new();
        }
        Ok(())
    }

    /// Handles an expired deadline.
    ///
    /// # Errors
    /// The error is fatal, as for [`Connection::handle_bytes`]. After [`Error::WriteStalled`] the transport must be
    /// dropped without flushing.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        if self.is_closing() {
            return Ok(());
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if is_due(self.stall_deadline()) {
            return self.conclude(now, Err(Error::WriteStalled));
        }
        if is_due(self.input_deadline()) {
            return self.conclude(now, Err(Error::Timeout));
        }
        if is_due(self.idle_deadline()) {
            self.finish(now, Code::NO_ERROR, CloseReason::Idle);
            return Ok(());
        }
        if is_due(self.stall_check) {
            self.reset_stalled(now);
        }
        Ok(())
    }

    /// Records that the transport accepted `bytes` bytes from [`Connection::poll_transmit`].
    pub fn handle_sent(&mut self, now: Instant, bytes: usize) {
        if bytes > 0 {
            self.output.unsent = self.output.unsent.saturating_sub(bytes);
            self.output.progress_at = now;
        }
    }

    /// Records that the peer has ended its side, or that the transport is broken. Nothing more is sent or read.
    pub fn handle_eof(&mut self, now: Instant) {
        self.finish(now, Code::NO_ERROR, CloseReason::PeerClosed);
    }

    /// True if the owner should read from the transport. False while too much output waits for the peer, and once
    /// the connection is being closed.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        let unsent_max = self.config.send_ahead_bytes.saturating_add(CONTROL_BYTES_MAX);
        !self.is_closing() && self.output.unsent <= unsent_max
    }

    /// True if the owner must flush the output of [`Connection::poll_transmit`] and then close the transport.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.input.stage == Stage::Closed
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closing() {
            return None;
        }
        let own = [self.stall_deadline(), self.input_deadline(), self.idle_deadline(), self.stall_check];
        own.into_iter().flatten().min()
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let block = self.input.block.as_ref().map_or(0, |(block, _)| block.len());
        Stats {
            held_bytes: self.input.held.len().saturating_add(block),
            unsent_bytes: self.output.unsent,
            queued_bytes: self.streams.values().map(|stream| stream.queued).sum(),
            streams: self.streams.len(),
            ..self.stats
        }
    }

    /// Parses the buffered bytes until they end in an incomplete frame.
    fn parse(&mut self, now: Instant) -> Result<(), Error> {
        loop {
            match self.input.stage {
                Stage::Closed => return Ok(()),
                Stage::Preface => {
                    let held = &self.input.held;
                    let compared = held.len().min(PREFACE.len());
                    if held.get(..compared) != PREFACE.get(..compared) {
                        return Err(Error::protocol("the preface"));
                    }
                    if held.len() < PREFACE.len() {
                        return Ok(());
                    }
                    drop(self.input.held.split_to(PREFACE.len()));
                    self.input.stage = Stage::Settings;
                }
                Stage::Settings | Stage::Open => {
                    let Some(header) = Header::read(&self.input.held) else { return Ok(()) };
                    if header.length > PAYLOAD_BYTES_MAX {
                        return Err(Error::frame_size("a frame over the limit"));
                    }
                    if self.input.stage == Stage::Settings && header.kind != Kind::Settings {
                        return Err(Error::protocol("no SETTINGS behind the preface"));
                    }
                    let whole = header.length.saturating_add(crate::frame::HEADER_BYTES);
                    if self.input.held.len() < whole {
                        return Ok(());
                    }
                    self.input.stage = Stage::Open;
                    let frame = self.input.held.split_to(whole).freeze();
                    self.input.held_since = now;
                    self.handle_frame(now, header, frame.slice(crate::frame::HEADER_BYTES..))?;
                }
            }
        }
    }

    /// Ends the connection after an error.
    fn conclude(&mut self, now: Instant, result: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = result else { return Ok(()) };
        match error.code() {
            Some(code) => self.finish(now, code, CloseReason::Error(error)),
            None => {
                self.end(CloseReason::Error(error));
                self.output.queue = SendQueue::new();
                self.output.unsent = 0;
            }
        }
        Err(error)
    }

    /// Sends GOAWAY and ends the connection; later calls do nothing.
    fn finish(&mut self, now: Instant, code: Code, reason: CloseReason) {
        if !self.is_closing() {
            self.write_go_away(now, self.last, code);
            self.end(reason);
        }
    }

    fn end(&mut self, reason: CloseReason) {
        self.input.stage = Stage::Closed;
        self.input.held = BytesMut::new();
        self.input.block = None;
        self.streams.clear();
        self.output.ready.clear();
        // Events that were not polled belong to streams that no longer exist.
        self.events.clear();
        self.events.push_back(Event::Closed(reason));
    }

    /// Ends the connection if it is shutting down and has no streams.
    fn end_if_over(&mut self, now: Instant) {
        if self.streams.is_empty() && !self.is_closing() {
            if self.shutdown {
                self.finish(now, Code::NO_ERROR, CloseReason::Shutdown);
            } else if self.peer_leaves {
                self.finish(now, Code::NO_ERROR, CloseReason::PeerClosed);
            }
        }
    }

    /// Removes a stream that has ended.
    fn forget(&mut self, now: Instant, id: u32, why: Ended) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.release_connection(now, stream.unreleased);
        self.note_ended(id, why);
        if self.streams.is_empty() {
            self.idle_since = now;
        }
    }

    fn note_ended(&mut self, id: u32, why: Ended) {
        if self.ended.len() >= CLOSED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, why));
    }

    /// Resets a stream that breaks a rule or is not wanted. If the application knows the stream, it gets an event.
    fn reset_stream(&mut self, now: Instant, id: u32, code: Code) {
        self.stats.resets = self.stats.resets.saturating_add(1);
        self.write_reset(now, id, code);
        if self.streams.contains_key(&id) {
            self.forget(now, id, Ended::Reset);
            self.events.push_back(Event::Reset { stream: StreamId(id), code });
        } else {
            self.note_ended(id, Ended::Reset);
        }
        self.end_if_over(now);
    }

    /// Resets streams whose response body the peer does not accept.
    fn reset_stalled(&mut self, now: Instant) {
        self.stall_check = None;
        let stall = self.config.write_stall;
        let waiting = self.streams.iter().filter(|(_, stream)| stream.queued > 0);
        let deadlines: Vec<(u32, Option<Instant>)> =
            waiting.map(|(id, stream)| (*id, stream.progress_at.checked_add(stall))).collect();
        for (id, deadline) in deadlines {
            match deadline {
                Some(at) if at <= now => self.reset_stream(now, id, Code::CANCEL),
                Some(at) => self.stall_check = Some(self.stall_check.map_or(at, |check| check.min(at))),
                None => {}
            }
        }
    }

    fn stall_deadline(&self) -> Option<Instant> {
        if self.output.unsent == 0 {
            None
        } else {
            self.output.progress_at.checked_add(self.config.write_stall)
        }
    }

    /// Returns the time at which an incomplete preface, frame or header block ends the connection.
    fn input_deadline(&self) -> Option<Instant> {
        let head = self.config.head_time;
        if let Some((_, since)) = &self.input.block {
            return since.checked_add(head);
        }
        match self.input.stage {
            Stage::Preface | Stage::Settings => self.idle_since.checked_add(head),
            Stage::Open if !self.input.held.is_empty() => {
                let data = Header::read(&self.input.held).filter(|header| header.kind == Kind::Data);
                let length = data.map_or(0, |header| length_u64(header.length));
                let rate = u64::from(self.config.body_rate_min);
                let more = Duration::from_secs(length.checked_div(rate).unwrap_or(0));
                self.input.held_since.checked_add(head.saturating_add(more))
            }
            Stage::Open | Stage::Closed => None,
        }
    }

    fn idle_deadline(&self) -> Option<Instant> {
        if !self.streams.is_empty() {
            return None;
        }
        let time = if self.stats.requests == 0 { self.config.head_time } else { self.config.idle };
        self.idle_since.checked_add(time)
    }
}

/// Converts a length for a counter.
pub(crate) fn length_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
