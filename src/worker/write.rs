//! The way out: which connection writes next, what it writes, and what follows from how much was taken.

use std::time::Instant;

use wire::Gather;

use super::Worker;
use crate::hub::{Forwarded, MirroredUnit};
use crate::types::{ConnId, StreamId};

impl Worker {
    /// The next connection that has something to send and a socket that may take it.
    pub fn next_write(&mut self) -> Option<ConnId> {
        while let Some(id) = self.writes.pop_front() {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            conn.writing = false;
            if conn.blocked || conn.connecting {
                continue;
            }
            let mut has_more = conn.unsent || !conn.queue.is_empty();
            if let Some(subscriber) = &mut conn.subscriber {
                has_more |= subscriber.cursor.has_rest();
                if let Some(stream) = self.streams.get_mut(&subscriber.stream) {
                    self.stats.units_skipped =
                        self.stats.units_skipped.saturating_add(stream.prepare(subscriber));
                    has_more |= stream.has_more(subscriber);
                }
            }
            if has_more {
                return Some(id);
            }
            conn.waits_since = None;
        }
        None
    }

    /// Names what the connection sends: the rest of a unit begun, the session's own bytes, then units.
    pub fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>) {
        let Some(conn) = self.conns.get(id) else { return };
        let Some(subscriber) = &conn.subscriber else {
            conn.queue.gather(gather);
            return;
        };
        if !subscriber.cursor.gather_rest(gather) || !conn.queue.gather(gather) {
            return;
        }
        if let Some(stream) = self.streams.get(&subscriber.stream) {
            stream.gather(subscriber, gather);
        }
    }

    /// The socket took `taken` of the `offered` bytes named before, and had done so `at` this time.
    pub fn sent(&mut self, at: Instant, id: ConnId, taken: usize, offered: usize) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.bytes_out = conn.bytes_out.saturating_add(taken as u64);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(taken as u64);
        conn.blocked = taken < offered;
        let mut left = taken;
        let mut more = false;
        let is_viewer = conn.subscriber.is_some();
        if let Some(subscriber) = &mut conn.subscriber {
            let (table, index) = (&mut self.forwarding, subscriber.forwarding);
            let mut forwarded = |unit: Forwarded| table.record(index, unit.video, unit.received, at);
            left = subscriber.cursor.rest_sent(left, &mut forwarded);
            let queued = conn.queue.len().min(left);
            conn.queue.advance(queued);
            left -= queued;
            if let Some(stream) = self.streams.get(&subscriber.stream) {
                stream.sent(subscriber, left, &mut forwarded);
                more = stream.has_more(subscriber);
            }
        } else {
            conn.queue.advance(left);
        }
        more |= conn.has_own_bytes();
        if is_viewer {
            // Told when its deadline fires: a look at the session with every frame costs a viewer more than the
            // rest of this function.
            conn.untold = conn.untold.saturating_add(taken);
        }
        // A socket that takes nothing is given time from its last byte, not from the newest unit.
        if !more {
            conn.waits_since = None;
        } else if taken > 0 || conn.waits_since.is_none() {
            conn.waits_since = Some(now.mono);
        }
        if more && !conn.blocked {
            self.enqueue_write(id);
        }
        if more || conn_closes(self, id) {
            self.after_drain(id);
        }
        // Room in its queue may have let the session parse a request that it held. A viewer's session waits for
        // nothing, and is written too often to be asked each time.
        if taken > 0 && !is_viewer {
            self.call(id, |session, ctx| session.handle_sent(ctx, taken));
            self.touch(id);
        }
    }

    /// Has the connection written in this turn.
    pub(super) fn enqueue_write(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.writing
            && !conn.blocked
        {
            conn.writing = true;
            self.writes.push_back(id);
        }
    }

    /// Everything that a stream has is to be sent to everyone who can take it.
    pub(super) fn flush_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.flush();
        for &subscriber in &stream.subscribers {
            if let Some(conn) = self.conns.get_mut(subscriber)
                && !conn.writing
                && !conn.blocked
            {
                conn.writing = true;
                self.writes.push_back(subscriber);
            }
        }
    }

    /// Lets a ring forget what nobody needs. Stalled subscribers jump first: a viewer that takes nothing must not
    /// hold more than its lag.
    pub(super) fn trim(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut slowest = None;
        let subscribers = std::mem::take(&mut stream.subscribers);
        for &conn in &subscribers {
            let Some(subscriber) = self.conns.get_mut(conn).and_then(|conn| conn.subscriber.as_mut()) else {
                continue;
            };
            self.stats.units_skipped = self.stats.units_skipped.saturating_add(stream.prepare(subscriber));
            let next = subscriber.cursor.next();
            slowest = Some(slowest.map_or(next, |slowest: u64| slowest.min(next)));
        }
        stream.subscribers = subscribers;
        stream.trim(slowest);
    }

    /// Hands what is new of a stream to the workers that mirror it.
    pub(super) fn feed_mirrors(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let outputs = &mut self.outputs;
        let missed = stream.feed_mirrors(|to, entry, credit| {
            outputs.push_back(super::Output::Mirrored(to, MirroredUnit { stream: id, entry, credit }));
        });
        self.stats.units_unmirrored = self.stats.units_unmirrored.saturating_add(missed);
    }
}

fn conn_closes(worker: &Worker, id: ConnId) -> bool {
    worker.conns.get(id).is_some_and(|conn| conn.closing.is_some())
}
