//! Frames that are sent. Frames other than DATA are queued at once. DATA frames are made when the transport asks for
//! output, one for each stream in turn.

use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

use super::{Connection, WINDOW_BYTES, length_u64};
use crate::config::BYTES_PER_UPDATE;
use crate::frame::{DATA_BYTES, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX, flag, setting};
use crate::hpack::Field;
use crate::stream::Sending;
use crate::{Code, Event, StreamId};

impl Connection {
    /// Moves all output to the transport's queue. Returns true if there was any.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) -> bool {
        self.make_data(now);
        let any = !self.output.queue.is_empty();
        if any {
            out.append(&mut self.output.queue);
            self.output.queue = SendQueue::new();
        }
        any
    }

    /// Adds a stream to the list of streams with something to send, if the stream can send.
    pub(super) fn make_ready(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.can_send()
            && !stream.is_ready
        {
            stream.is_ready = true;
            self.output.ready.push_back(id);
        }
    }

    /// Makes DATA frames, as many as the windows and the transport allow.
    fn make_data(&mut self, now: Instant) {
        let mut blocked = Vec::new();
        while self.output.unsent < self.config.send_ahead_bytes
            && let Some(id) = self.output.ready.pop_front()
        {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            stream.is_ready = false;
            let room = self.output.window.room();
            if room == 0 && stream.queued > 0 {
                stream.is_ready = true;
                blocked.push(id);
                continue;
            }
            self.make_frame(now, id, room);
        }
        // Streams that wait for the connection's window return to the front of the list.
        for id in blocked.into_iter().rev() {
            self.output.ready.push_front(id);
        }
    }

    /// Makes the next DATA of a stream, or the trailers after its body.
    fn make_frame(&mut self, now: Instant, id: u32, room: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let length = DATA_BYTES.min(room).min(stream.window.room()).min(stream.queued);
        let is_complete = stream.queued == length && stream.is_ending();
        let trailers = match &mut stream.sending {
            Sending::Ending(trailers) if is_complete => std::mem::take(trailers),
            Sending::Ending(_) | Sending::Head | Sending::Body | Sending::Done => Vec::new(),
        };
        let ends_here = is_complete && trailers.is_empty();
        if length > 0 || ends_here {
            let flags = if ends_here { flag::END_STREAM } else { 0 };
            let queue = &mut self.output.queue;
            queue.push_slice(&Header { length, kind: Kind::Data, flags, stream: id }.write());
            stream.take(length, |slice| queue.push(slice));
            stream.window.spend(length);
            stream.progress_at = now;
            self.output.window.spend(length);
        }
        stream.unreported = stream.unreported.saturating_add(length);
        let is_due = stream.queued == 0 || stream.unreported >= self.config.sent_step_bytes;
        if is_due && stream.unreported > 0 && !is_complete {
            let bytes = std::mem::take(&mut stream.unreported);
            self.events.push_back(Event::Sent { stream: StreamId(id), bytes });
        }
        if is_complete {
            stream.sending = Sending::Done;
        } else if stream.can_send() {
            stream.is_ready = true;
            self.output.ready.push_back(id);
        }
        if length > 0 || ends_here {
            self.count(now, length.saturating_add(HEADER_BYTES));
            self.earn_updates(length);
        }
        if is_complete {
            if !ends_here {
                self.write_headers(now, id, &trailers, true);
            }
            self.settle(now, id);
        }
    }

    fn earn_updates(&mut self, length: usize) {
        let unearned = self.allowances.unearned.saturating_add(length);
        self.allowances.updates.earn(unearned / BYTES_PER_UPDATE);
        self.allowances.unearned = unearned % BYTES_PER_UPDATE;
    }

    /// Writes the server's preface (RFC 9113 §3.4), and enlarges the connection's window as configured.
    pub(super) fn write_preface(&mut self, now: Instant) {
        let list = u32::try_from(self.config.header_list_bytes).unwrap_or(u32::MAX);
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, self.config.streams),
            (setting::INITIAL_WINDOW_SIZE, self.config.stream_window),
            (setting::MAX_HEADER_LIST_SIZE, list),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
            (setting::NO_RFC7540_PRIORITIES, 1),
        ];
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.write_small(now, Kind::Settings, 0, 0, &payload);
        let more = self.config.connection_window.saturating_sub(WINDOW_BYTES);
        if more > 0 {
            self.write_window_update(now, 0, more);
        }
    }

    pub(super) fn write_settings_ack(&mut self, now: Instant) {
        self.write_small(now, Kind::Settings, flag::ACK, 0, &[]);
    }

    pub(super) fn write_pong(&mut self, now: Instant, data: [u8; 8]) {
        self.write_small(now, Kind::Ping, flag::ACK, 0, &data);
    }

    pub(super) fn write_window_update(&mut self, now: Instant, stream: u32, update: u32) {
        self.write_small(now, Kind::WindowUpdate, 0, stream, &update.to_be_bytes());
    }

    pub(super) fn write_reset(&mut self, now: Instant, stream: u32, code: Code) {
        self.write_small(now, Kind::RstStream, 0, stream, &code.0.to_be_bytes());
    }

    pub(super) fn write_go_away(&mut self, now: Instant, last: u32, code: Code) {
        let payload = [last.to_be_bytes(), code.0.to_be_bytes()].concat();
        self.write_small(now, Kind::GoAway, 0, 0, &payload);
    }

    /// Writes HEADERS, and CONTINUATION for fields that do not fit.
    pub(super) fn write_headers(&mut self, now: Instant, stream: u32, fields: &[Field], is_last: bool) {
        let block = Bytes::from(self.output.encoder.encode(fields));
        let mut kind = Kind::Headers;
        let mut rest = block;
        loop {
            let fragment = rest.split_to(rest.len().min(PAYLOAD_BYTES_MAX));
            let mut flags = if rest.is_empty() { flag::END_HEADERS } else { 0 };
            if is_last && kind == Kind::Headers {
                flags |= flag::END_STREAM;
            }
            let header = Header { length: fragment.len(), kind, flags, stream };
            self.write(now, header, fragment);
            if rest.is_empty() {
                return;
            }
            kind = Kind::Continuation;
        }
    }

    fn write_small(&mut self, now: Instant, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        self.write(now, Header { length: payload.len(), kind, flags, stream }, Bytes::new());
        self.output.queue.push_slice(payload);
        self.count(now, payload.len());
    }

    fn write(&mut self, now: Instant, header: Header, payload: Bytes) {
        self.output.queue.push_slice(&header.write());
        self.count(now, payload.len().saturating_add(HEADER_BYTES));
        self.output.queue.push(payload);
    }

    fn count(&mut self, now: Instant, bytes: usize) {
        if self.output.unsent == 0 {
            self.output.progress_at = now;
        }
        self.output.unsent = self.output.unsent.saturating_add(bytes);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(length_u64(bytes));
    }
}
