//! Methods for the application.

use std::time::Instant;

use bytes::Bytes;

use super::{Connection, Ended};
use crate::hpack::Field;
use crate::stream::Sending;
use crate::{Code, StreamId};

impl Connection {
    /// Sends the head of a response, or an informational response before it (RFC 9110 §15.2). With `is_last`, there is
    /// no body. Returns false if the stream does not exist, or if its head was already sent.
    pub fn respond(
        &mut self,
        now: Instant,
        stream: StreamId,
        status: u16,
        fields: &[Field],
        is_last: bool,
    ) -> bool {
        let Some(state) = self.streams.get_mut(&stream.0).filter(|state| state.sending == Sending::Head)
        else {
            return false;
        };
        let is_informational = (100..200).contains(&status);
        if !is_informational {
            state.sending = if is_last { Sending::Done } else { Sending::Body };
        }
        let mut list = Vec::with_capacity(fields.len().saturating_add(1));
        list.push(Field::new(&b":status"[..], status.to_string()));
        list.extend_from_slice(fields);
        self.write_headers(now, stream.0, &list, is_last && !is_informational);
        self.settle(now, stream.0);
        true
    }

    /// Queues a part of a response's body. The part is sent as the peer's windows allow. Ignored before the head was
    /// sent and after the body has ended.
    pub fn send_body(&mut self, now: Instant, stream: StreamId, part: Bytes) {
        let Some(state) = self.streams.get_mut(&stream.0).filter(|state| state.sending == Sending::Body)
        else {
            return;
        };
        if part.is_empty() {
            return;
        }
        if state.queued == 0 {
            state.progress_at = now;
        }
        state.queued = state.queued.saturating_add(part.len());
        state.queue.push_back(part);
        if self.stall_check.is_none() {
            self.stall_check = now.checked_add(self.config.write_stall);
        }
        self.make_ready(stream.0);
    }

    /// Ends a response's body. `trailers` are sent after it.
    pub fn end_body(&mut self, stream: StreamId, trailers: Vec<Field>) {
        let Some(state) = self.streams.get_mut(&stream.0).filter(|state| state.sending == Sending::Body)
        else {
            return;
        };
        state.sending = Sending::Ending(trailers);
        self.make_ready(stream.0);
    }

    /// Returns the number of bytes of a response's body that wait to be sent.
    #[must_use]
    pub fn queued(&self, stream: StreamId) -> usize {
        self.streams.get(&stream.0).map_or(0, |state| state.queued)
    }

    /// Records that the application has processed this many bytes of [`crate::Event::Body`]; the peer may then send as
    /// many more. When a stream ends, its remaining bytes are released.
    pub fn release(&mut self, now: Instant, stream: StreamId, bytes: usize) {
        let Some(state) = self.streams.get_mut(&stream.0) else { return };
        let bytes = bytes.min(state.unreleased);
        state.unreleased = state.unreleased.saturating_sub(bytes);
        let update = state.credit.release(bytes).filter(|_| state.is_receiving);
        self.release_connection(now, bytes);
        if let Some(update) = update {
            self.write_window_update(now, stream.0, update);
        }
    }

    /// Resets a stream before its response is complete.
    pub fn reset(&mut self, now: Instant, stream: StreamId, code: Code) {
        if self.streams.contains_key(&stream.0) {
            self.stats.resets = self.stats.resets.saturating_add(1);
            self.write_reset(now, stream.0, code);
            self.forget(now, stream.0, Ended::Reset);
            self.end_if_over(now);
        }
    }

    /// Stops accepting requests. [`crate::Event::Closed`] follows when open streams are complete.
    pub fn close(&mut self, now: Instant) {
        if self.shutdown || self.is_closing() {
            return;
        }
        self.shutdown = true;
        if !self.streams.is_empty() {
            self.write_go_away(now, self.last, Code::NO_ERROR);
        }
        self.end_if_over(now);
    }

    pub(super) fn release_connection(&mut self, now: Instant, bytes: usize) {
        if !self.is_closing()
            && let Some(update) = self.input.credit.release(bytes)
        {
            self.write_window_update(now, 0, update);
        }
    }

    /// Removes a stream whose response is complete. If its request is not complete, the peer learns that the rest is no
    /// longer needed (RFC 9113 §8.1).
    pub(super) fn settle(&mut self, now: Instant, id: u32) {
        let Some(stream) = self.streams.get(&id).filter(|stream| stream.sending == Sending::Done) else {
            return;
        };
        if stream.is_receiving {
            self.write_reset(now, id, Code::NO_ERROR);
            self.forget(now, id, Ended::Reset);
        } else {
            self.forget(now, id, Ended::Whole);
        }
        self.end_if_over(now);
    }
}
