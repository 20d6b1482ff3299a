//! The machine of one connection. The flow is in the crate's documentation.

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

/// Input is taken in pieces of this size, so that what one call brings is parsed before more of it is held.
const PIECE_BYTES: usize = 16 * 1024;
/// The window that every connection begins with (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;

/// The part of the peer's bytes that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the end of the preface.
    Preface,
    /// Before the peer's first SETTINGS.
    Settings,
    /// Between frames, or inside one.
    Open,
    /// Nothing is read any more.
    Closed,
}

/// The reading side.
#[derive(Debug)]
struct Input {
    stage: Stage,
    held: BytesMut,
    /// The time at which the first byte of those held came.
    held_since: Instant,
    /// A header block that is not complete, and when it began.
    block: Option<(Block, Instant)>,
    decoder: Decoder,
    credit: Credit,
}

/// The writing side.
#[derive(Debug)]
struct Output {
    queue: SendQueue,
    /// Bytes queued here or with the transport.
    unsent: usize,
    /// The last write progress, or when `unsent` left zero.
    progress_at: Instant,
    encoder: Encoder,
    window: Window,
    /// The window of a new stream, as the peer wants it.
    stream_window: u32,
    /// Streams that have something to send, in the order of their turns.
    ready: VecDeque<u32>,
}

/// Budgets for what costs the peer little.
#[derive(Debug)]
struct Allowances {
    control: Allowance,
    resets: Allowance,
    updates: Allowance,
    /// Body bytes sent that have earned no update yet.
    unearned: usize,
}

/// The reason that a stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Both sides were complete, or the peer reset it.
    Whole,
    /// Reset by this side: the peer may not have known.
    Reset,
}

/// An HTTP/2 server connection. See the crate.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    input: Input,
    output: Output,
    allowances: Allowances,
    streams: BTreeMap<u32, Stream>,
    /// The highest stream that the peer opened.
    last: u32,
    /// Streams that have ended, the last ones.
    ended: VecDeque<(u32, Ended)>,
    events: VecDeque<Event>,
    /// The time since which there is no stream.
    idle_since: Instant,
    /// The time of the next look at streams that make no progress.
    stall_check: Option<Instant>,
    /// Whether this side takes no further requests.
    shutdown: bool,
    /// The peer sends no further requests.
    peer_leaves: bool,
    stats: Stats,
}

impl Connection {
    /// A transport was accepted, and the peer will speak HTTP/2. The server's preface is queued.
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

    /// Takes bytes of the stream, any split of it. They are ignored once the connection is closing.
    ///
    /// # Errors
    /// Fatal: [`Connection::poll_transmit`] gives the last bytes for the peer.
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
            // An idle connection holds no buffer.
            self.input.held = BytesMut::new();
        }
        Ok(())
    }

    /// A deadline may have passed.
    ///
    /// # Errors
    /// See [`Connection::handle_bytes`]; after [`Error::WriteStalled`] the transport is dropped without flushing.
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

    /// The transport took `bytes` of what [`Connection::poll_transmit`] gave.
    pub fn handle_sent(&mut self, now: Instant, bytes: usize) {
        if bytes > 0 {
            self.output.unsent = self.output.unsent.saturating_sub(bytes);
            self.output.progress_at = now;
        }
    }

    /// The peer ended its side, or the transport is broken: nothing more is exchanged.
    pub fn handle_eof(&mut self, now: Instant) {
        self.finish(now, Code::NO_ERROR, CloseReason::PeerClosed);
    }

    /// Whether the shell should read. False while the peer does not read what it is answered, and at the end.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        let unsent_max = self.config.send_ahead_bytes.saturating_add(CONTROL_BYTES_MAX);
        !self.is_closing() && self.output.unsent <= unsent_max
    }

    /// Whether to flush what [`Connection::poll_transmit`] gives and then close the transport.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.input.stage == Stage::Closed
    }

    /// The next thing the application must know.
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

    /// Parses as far as the held bytes allow.
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

    /// Says goodbye, once.
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
        // What has not been polled is of streams that are gone.
        self.events.clear();
        self.events.push_back(Event::Closed(reason));
    }

    /// Ends the connection when it is over and nothing is under way.
    fn end_if_over(&mut self, now: Instant) {
        if self.streams.is_empty() && !self.is_closing() {
            if self.shutdown {
                self.finish(now, Code::NO_ERROR, CloseReason::Shutdown);
            } else if self.peer_leaves {
                self.finish(now, Code::NO_ERROR, CloseReason::PeerClosed);
            }
        }
    }

    /// A stream is over.
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

    /// Resets a stream that breaks a rule, or that this side does not want; tells the application if it knows of it.
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

    /// Resets the streams whose body the peer does not take.
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

    /// The time at which the preface, a frame or a header block is given up.
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

/// A length as a counter has it.
pub(crate) fn length_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
