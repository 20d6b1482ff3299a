//! The layer below commands, shared by client and server: chunks in both directions, control messages (§5.4), user
//! control (§7.1.7), acknowledgements, and limits on the rate of messages.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use flv::amf0::Value;
use wire::{SendQueue, Writer};

use crate::chunk::{self, CHUNK_SIZE_DEFAULT, Message, MessageHead};
use crate::error::Fault;
use crate::message::kind;
use crate::rate::Rate;
use crate::{CHUNK_SIZE_OUT, Config, Error, Limit, MediaMessage, Stats, Violation, command};

/// Acknowledgement window that we announce, for both directions of a connection.
const WINDOW_BYTES: u32 = 2_500_000;
/// Minimum acknowledgement window that is honoured. An acknowledgement takes 16 bytes; without a minimum, a peer could
/// request one for each byte.
const WINDOW_BYTES_MIN: u32 = 16 << 10;
/// Set Peer Bandwidth, limit type dynamic (§5.4.5).
const LIMIT_DYNAMIC: u8 = 2;

/// Maximum size of a part of a message that is copied into the send queue; larger parts are shared.
const SMALL_BYTES: usize = 128;
/// Buffer length that our client announces. Servers do not send a live stream faster because of it.
const BUFFER_MS: u32 = 1000;

/// User control events (§7.1.7).
mod event {
    pub(super) const STREAM_BEGIN: u16 = 0;
    pub(super) const STREAM_EOF: u16 = 1;
    pub(super) const SET_BUFFER_LENGTH: u16 = 3;
    pub(super) const PING_REQUEST: u16 = 6;
    pub(super) const PING_RESPONSE: u16 = 7;
}

/// A connection below the command layer.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reader: chunk::Reader,
    pub(crate) out: SendQueue,
    pub(crate) stats: Stats,
    scratch: BytesMut,
    parts: Vec<Bytes>,
    chunk_size_out: usize,
    /// The peer's acknowledgement window; `None` until it sets one.
    window: Option<u64>,
    acknowledged_by_us: u64,
    bandwidth_answered: bool,
    commands: Rate,
    bad_messages: Rate,
}

impl Link {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            reader: chunk::Reader::new(config.into()),
            out: SendQueue::new(),
            stats: Stats::default(),
            scratch: BytesMut::new(),
            parts: Vec::new(),
            chunk_size_out: CHUNK_SIZE_DEFAULT,
            window: None,
            acknowledged_by_us: 0,
            bandwidth_answered: false,
            commands: Rate::new(config.commands_per_second_max, Duration::from_secs(1)),
            bad_messages: Rate::new(config.bad_messages_max, config.bad_messages_window),
        }
    }

    /// Takes the next message off the front of `input`. Control messages are handled and not returned.
    pub(crate) fn read(&mut self, now: Instant, input: &mut &[u8]) -> Result<Option<Message>, Error> {
        while let Some(message) = self.reader.read(input)? {
            self.stats.messages_received = self.stats.messages_received.saturating_add(1);
            if !self.handle_control(now, &message)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Sends an Acknowledgement when the peer's window is used up (§5.4.3).
    pub(crate) fn acknowledge(&mut self) {
        let Some(window) = self.window else { return };
        let received = self.stats.bytes_received;
        if received.saturating_sub(self.acknowledged_by_us) >= window {
            self.acknowledged_by_us = received;
            let [_, _, _, _, low @ ..] = received.to_be_bytes();
            self.send_control(kind::ACKNOWLEDGEMENT, &low);
        }
    }

    /// Counts a command or ping. Fails if there are more per second than allowed.
    pub(crate) fn count_command(&mut self, now: Instant) -> Result<(), Error> {
        self.stats.commands_received = self.stats.commands_received.saturating_add(1);
        if self.commands.take(now) { Ok(()) } else { Err(self.fault(Limit::CommandRate)) }
    }

    /// Counts a misplaced message. Fails if there are more within the window than allowed.
    pub(crate) fn count_bad(&mut self, now: Instant) -> Result<(), Error> {
        self.stats.bad_messages = self.stats.bad_messages.saturating_add(1);
        if self.bad_messages.take(now) { Ok(()) } else { Err(self.fault(Limit::BadMessages)) }
    }

    /// Converts a fault to an error at the current position of the input.
    pub(crate) fn fault(&self, fault: impl Into<Fault>) -> Error {
        fault.into().at(self.stats.bytes_received)
    }

    /// Sends window, bandwidth and chunk size. A server announces them before it accepts `connect`.
    pub(crate) fn announce(&mut self) {
        self.announce_window();
        let [a, b, c, d] = WINDOW_BYTES.to_be_bytes();
        self.send_control(kind::SET_PEER_BANDWIDTH, &[a, b, c, d, LIMIT_DYNAMIC]);
        self.announce_chunk_size();
    }

    pub(crate) fn announce_window(&mut self) {
        self.send_control(kind::WINDOW_ACK_SIZE, &WINDOW_BYTES.to_be_bytes());
    }

    pub(crate) fn announce_chunk_size(&mut self) {
        let size = u32::try_from(CHUNK_SIZE_OUT).unwrap_or(chunk::CHUNK_SIZE_MAX);
        self.send_control(kind::SET_CHUNK_SIZE, &size.to_be_bytes());
        self.chunk_size_out = CHUNK_SIZE_OUT;
    }

    pub(crate) fn stream_begin(&mut self, message_stream: u32) {
        self.send_event(event::STREAM_BEGIN, message_stream);
    }

    pub(crate) fn stream_eof(&mut self, message_stream: u32) {
        self.send_event(event::STREAM_EOF, message_stream);
    }

    /// Announces a short buffer to a server (§7.1.7).
    pub(crate) fn set_buffer_length(&mut self, message_stream: u32) {
        let mut w = Writer::new();
        w.u16(event::SET_BUFFER_LENGTH).u32(message_stream).u32(BUFFER_MS);
        self.send(chunk::CONTROL, kind::USER_CONTROL, 0, &w.take());
    }

    /// Sends a command about the connection.
    pub(crate) fn send_command(&mut self, name: &str, transaction: f64, values: &[Value]) {
        let body = command::body(name, transaction, values);
        self.send(chunk::COMMAND, kind::COMMAND_AMF0, 0, &body);
    }

    /// Sends a command about a message stream.
    pub(crate) fn send_stream_command(
        &mut self,
        message_stream: u32,
        name: &str,
        transaction: f64,
        values: &[Value],
    ) {
        let body = command::body(name, transaction, values);
        self.send(chunk::STATUS, kind::COMMAND_AMF0, message_stream, &body);
    }

    /// Sends `onStatus` (§7.2.2). Clients react to the level: at `error`, ffmpeg fails and prints the description.
    pub(crate) fn send_status(&mut self, message_stream: u32, level: &str, code: &str, description: &str) {
        let information = command::information(level, code, description);
        self.send_stream_command(message_stream, "onStatus", 0.0, &[Value::Null, information]);
    }

    /// Sends a data message: AMF values without the name and transaction id of a command.
    pub(crate) fn send_data(&mut self, message_stream: u32, values: &[Value]) {
        let mut w = Writer::new();
        flv::amf0::write_all(values, &mut w);
        self.send(chunk::STATUS, kind::DATA_AMF0, message_stream, &w.take());
    }

    /// Sends media that the owner did not package itself.
    pub(crate) fn send_media(&mut self, message: &MediaMessage) {
        let head = MessageHead {
            chunk_stream: message.kind.chunk_stream(),
            timestamp: message.timestamp,
            kind: message.kind.message_type(),
            message_stream: message.message_stream,
        };
        self.write(&head, &message.payload);
    }

    /// Handles protocol and user control messages. Returns false for all other messages.
    fn handle_control(&mut self, now: Instant, message: &Message) -> Result<bool, Error> {
        let mut r = wire::Reader::new(&message.payload);
        let malformed = Violation::Malformed { kind: message.kind };
        match message.kind {
            kind::SET_CHUNK_SIZE => {
                let size = r.u32().map_err(|_| self.fault(malformed))?;
                self.reader.set_chunk_size(size)?;
            }
            kind::ABORT => {
                let chunk_stream = r.u32().map_err(|_| self.fault(malformed))?;
                self.reader.abort(chunk_stream);
            }
            kind::ACKNOWLEDGEMENT => {
                // The value wraps, and may exceed the number of bytes sent. It is not used: TCP acknowledges bytes
                // itself.
                self.stats.acknowledged = r.u32().map_err(|_| self.fault(malformed))?;
            }
            kind::WINDOW_ACK_SIZE => {
                let window = r.u32().map_err(|_| self.fault(malformed))?;
                self.window = (window > 0).then(|| u64::from(window.max(WINDOW_BYTES_MIN)));
            }
            kind::SET_PEER_BANDWIDTH => self.answer_bandwidth(),
            kind::USER_CONTROL => self.handle_event(now, &mut r)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Answers the first Set Peer Bandwidth with our window (§5.4.5). Later ones are not answered.
    fn answer_bandwidth(&mut self) {
        if !self.bandwidth_answered {
            self.bandwidth_answered = true;
            self.announce_window();
        }
    }

    /// Handles a user control event. Only pings are answered; buffer lengths and stream events are ignored.
    fn handle_event(&mut self, now: Instant, r: &mut wire::Reader<'_>) -> Result<(), Error> {
        if r.u16() == Ok(event::PING_REQUEST) {
            self.count_command(now)?;
            self.send_event(event::PING_RESPONSE, r.u32().unwrap_or(0));
        }
        Ok(())
    }

    /// Sends a ping, which the peer answers with a ping response (§7.1.7).
    pub(crate) fn send_ping(&mut self) {
        self.send_event(event::PING_REQUEST, 0);
    }

    fn send_event(&mut self, event: u16, value: u32) {
        let mut w = Writer::new();
        w.u16(event).u32(value);
        self.send(chunk::CONTROL, kind::USER_CONTROL, 0, &w.take());
    }

    fn send_control(&mut self, kind: u8, payload: &[u8]) {
        self.send(chunk::CONTROL, kind, 0, &Bytes::copy_from_slice(payload));
    }

    fn send(&mut self, chunk_stream: u32, kind: u8, message_stream: u32, payload: &Bytes) {
        let head = MessageHead { chunk_stream, timestamp: 0, kind, message_stream };
        self.write(&head, payload);
    }

    fn write(&mut self, head: &MessageHead, payload: &Bytes) {
        chunk::write_message(&mut self.scratch, head, &[], payload, self.chunk_size_out, &mut self.parts);
        for part in self.parts.drain(..) {
            self.stats.bytes_sent =
                self.stats.bytes_sent.saturating_add(u64::try_from(part.len()).unwrap_or(0));
            // Headers and small bodies are copied together into the queue's scratch buffer, so that they become one
            // slice of the vectored write.
            if part.len() <= SMALL_BYTES { self.out.push_slice(&part) } else { self.out.push(part) }
        }
    }
}
