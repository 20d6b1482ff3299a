//! Output: the session that writes next, its slices, and the effects of what the socket accepted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use wire::Gather;

use super::agenda::Writers;
use super::conn::{Conn, Flow, Playing, Subscription};
use super::conns::Conns;
use super::streams::Live;
use super::turn::Turn;
use super::{Output, Worker};
use crate::hub::{Forwarded, MirroredUnit};
use crate::protocol::{Context, UnitSink};
use crate::types::{ConnId, StreamId};

/// The way in which a session sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Bytes: [`Worker::gather`], the system call, [`Worker::sent`].
    Bytes,
    /// Datagrams: [`Worker::gather_datagrams`], the system call, [`Worker::datagrams_sent`].
    Datagrams,
}

impl Worker {
    /// Returns the next of the sessions selected by `who` that has output and whose socket may accept it.
    pub fn next_write(&mut self, who: Writers) -> Option<(ConnId, Way)> {
        while let Some(id) = self.turn.agenda.writes.pop(who) {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            conn.schedule.writing = false;
            if conn.takes_units {
                self.live.feed_sink(&mut self.turn, &mut self.conns, id);
            }
            let Some(conn) = self.conns.get_mut(id) else { continue };
            let mut has_more = false;
            for playing in conn.subscriptions.iter_mut().filter_map(Subscription::playing_mut) {
                has_more |= playing.subscriber.cursor.has_rest();
                if let Some(stream) = self.live.streams.get_mut(&playing.subscriber.stream) {
                    self.turn.meter.stats.units_skipped = self
                        .turn
                        .meter
                        .stats
                        .units_skipped
                        .saturating_add(stream.prepare(&mut playing.subscriber));
                    has_more |= stream.has_more(&playing.subscriber);
                }
            }
            if let Some(link) = &mut conn.bytes
                && link.flow == Flow::Open
            {
                if (has_more && !conn.takes_units) || !link.queue.is_empty() {
                    return Some((id, Way::Bytes));
                }
                link.waits_since = None;
                conn.schedule.catches_up = false;
            }
            if let Some(link) = &conn.datagrams
                && (link.unsent || has_more)
            {
                return Some((id, Way::Datagrams));
            }
        }
        None
    }

    /// Gathers the slices that a session sends over its byte stream: first the rest of a partly sent unit, then the
    /// session's own bytes, then units.
    pub fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>) {
        let Some(conn) = self.conns.get(id) else { return };
        let Some(link) = &conn.bytes else { return };
        if !conn.playing().all(|playing| playing.subscriber.cursor.gather_rest(gather))
            || !link.queue.gather(gather)
            || conn.takes_units
        {
            return;
        }
        for Playing { subscriber, .. } in conn.playing() {
            if let Some(stream) = self.live.streams.get(&subscriber.stream)
                && !stream.gather(subscriber, gather)
            {
                return;
            }
        }
    }

    /// Processes the result of a write: at time `at`, the socket accepted `taken` of the `offered` bytes that were
    /// gathered.
    pub fn sent(&mut self, at: Instant, id: ConnId, taken: usize, offered: usize) {
        let now = self.turn.now;
        self.turn.meter.stats.bytes_out = self.turn.meter.stats.bytes_out.saturating_add(taken as u64);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.figures.bytes_out = conn.figures.bytes_out.saturating_add(taken as u64);
        let Some(link) = &mut conn.bytes else { return };
        link.flow = if taken < offered { Flow::Blocked } else { Flow::Open };
        let mut left = taken;
        let mut more = false;
        let is_viewer = !conn.subscriptions.is_empty() && !conn.takes_units;
        let table = &mut self.turn.meter.forwarding;
        for playing in conn.subscriptions.iter_mut().filter_map(Subscription::playing_mut) {
            let index = playing.subscriber.forwarding;
            let forwarded = |unit: Forwarded| table.record(index, unit.video, unit.received, at);
            left = playing.subscriber.cursor.rest_sent(left, forwarded);
        }
        let queued = link.queue.len().min(left);
        link.queue.advance(queued);
        left -= queued;
        if is_viewer {
            for playing in conn.subscriptions.iter_mut().filter_map(Subscription::playing_mut) {
                let index = playing.subscriber.forwarding;
                let forwarded = |unit: Forwarded| table.record(index, unit.video, unit.received, at);
                if let Some(stream) = self.live.streams.get(&playing.subscriber.stream) {
                    left = stream.sent(&mut playing.subscriber, left, forwarded);
                    more |= stream.has_more(&playing.subscriber);
                }
            }
            // The session learns how many bytes were sent only when its deadline fires. Calling the session with every
            // frame would cost more than the rest of this function.
            link.untold = link.untold.saturating_add(taken);
        }
        let blocked = link.flow == Flow::Blocked;
        more |= conn.has_own_bytes();
        // The time for which a socket accepts nothing is counted from its last accepted byte, not from the newest
        // unit.
        if let Some(link) = &mut conn.bytes {
            if !more {
                link.waits_since = None;
            } else if taken > 0 || link.waits_since.is_none() {
                link.waits_since = Some(now.mono);
            }
        }
        conn.schedule.catches_up = more;
        let closes = conn.closing.is_some();
        if more && !blocked {
            self.conns.enqueue_write(&mut self.turn, id);
        }
        if more || closes {
            self.after_drain(id);
        }
        // The session may have delayed a request until its output queue has room, so it is notified. A viewer's session
        // delays no request, and writes so often that calling it each time would be expensive.
        if taken > 0 && !is_viewer {
            self.conns.tell_sent(&self.turn, id, taken);
            self.conns.touch(&mut self.turn, id);
        }
    }
}

impl Conns {
    /// Reports to a session how many bytes of its byte stream were accepted.
    pub(super) fn tell_sent(&mut self, turn: &Turn, id: ConnId, bytes: usize) {
        self.call(turn, id, |session, ctx| {
            if let Some(stream) = session.byte_stream() {
                stream.handle_sent(ctx, bytes);
            }
        });
    }

    /// Queues the session to write in this turn.
    pub(super) fn enqueue_write(&mut self, turn: &mut Turn, id: ConnId) {
        if let Some(conn) = self.get_mut(id)
            && may_write(conn)
        {
            conn.schedule.writing = true;
            turn.agenda.writes.push(id, conn.schedule.catches_up);
        }
    }
}

impl Live {
    /// Sends all units of a stream to every subscriber that can accept them.
    pub(super) fn flush_stream(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let lost = stream.take_keys_lost();
        lost.iter().for_each(|track| self.need_key_frame(turn, conns, id, track));
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.flush();
        for subscriber in &stream.subscribers {
            if let Some(conn) = conns.get_mut(subscriber.conn)
                && may_write(conn)
            {
                conn.schedule.writing = true;
                turn.agenda.writes.push(subscriber.conn, conn.schedule.catches_up);
            }
        }
    }

    /// Gives the remaining units of an ended stream to sessions that take whole units, including units that are not
    /// due yet.
    pub(super) fn feed_rest(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        // If a format panics here, the bytes that it holds back are not sent.
        let now = turn.now.mono;
        let _ = catch_unwind(AssertUnwindSafe(|| stream.finish(now)));
        for conn in stream.subscribers.iter().map(|subscriber| subscriber.conn).collect::<Vec<_>>() {
            if conns.get(conn).is_some_and(|conn| conn.takes_units) {
                conns.call(turn, conn, |session, _| {
                    if let Some(pace) = session.unit_sink().and_then(UnitSink::paced) {
                        pace.end();
                    }
                });
                self.feed_sink(turn, conns, conn);
            }
        }
    }

    /// Lets a ring drop entries that no subscriber needs. Subscribers that lag too far first jump ahead, so that a
    /// viewer whose socket accepts nothing retains no more than its allowed lag.
    pub(super) fn trim(&mut self, turn: &mut Turn, conns: &mut Conns, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut slowest = None;
        let subscribers = std::mem::take(&mut stream.subscribers);
        for subscriber in &subscribers {
            let Some(conn) = conns.get_mut(subscriber.conn) else { continue };
            let subscription = conn.subscription_mut(subscriber.handle);
            let Some(playing) = subscription.and_then(Subscription::playing_mut) else { continue };
            turn.meter.stats.units_skipped =
                turn.meter.stats.units_skipped.saturating_add(stream.prepare(&mut playing.subscriber));
            let next = playing.subscriber.cursor.next();
            slowest = Some(slowest.map_or(next, |slowest: u64| slowest.min(next)));
        }
        stream.subscribers = subscribers;
        stream.trim(slowest);
    }

    /// Sends new units of a stream to the workers that mirror it.
    pub(super) fn feed_mirrors(&mut self, turn: &mut Turn, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let outputs = &mut turn.agenda.outputs;
        let missed = stream.feed_mirrors(|(to, request), entry, credit| {
            outputs.push_back(Output::Mirrored(to, MirroredUnit { stream: id, request, entry, credit }));
        });
        turn.meter.stats.units_unmirrored = turn.meter.stats.units_unmirrored.saturating_add(missed);
    }

    /// Gives a session that takes whole units the next units of its subscriptions, as long as the session has room.
    pub(super) fn feed_sink(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId) {
        let Some(conn) = conns.get_mut(id) else { return };
        let (mut forwarded, mut skipped) = (std::mem::take(&mut turn.meter.forwarded), 0);
        let (streams, ctx) = (&mut self.streams, turn.context());
        let feed = AssertUnwindSafe(|| feed_units(conn, streams, &ctx, &mut forwarded, &mut skipped));
        let fed = catch_unwind(feed);
        turn.meter.forwarded = forwarded;
        turn.meter.stats.units_skipped = turn.meter.stats.units_skipped.saturating_add(skipped);
        match fed {
            Ok(true) => {
                match conns.get_mut(id).and_then(|conn| conn.datagrams.as_mut()) {
                    Some(link) => link.unsent = true,
                    // The effects of the unit appear when the session is drained.
                    None => conns.touch(turn, id),
                }
            }
            Ok(false) => {}
            Err(_) => conns.note_panic(id),
        }
    }
}

/// True if a session should be put into the write queue.
fn may_write(conn: &Conn) -> bool {
    let is_open = conn.bytes.as_ref().is_none_or(|link| link.flow == Flow::Open);
    !conn.schedule.writing && (is_open || conn.datagrams.is_some())
}

/// Gives a session that takes whole units the available units of its subscriptions, as long as it has room.
/// Returns true if there were any.
fn feed_units(
    conn: &mut Conn,
    streams: &mut std::collections::BTreeMap<StreamId, crate::hub::Stream>,
    ctx: &Context<'_>,
    forwarded: &mut Vec<(crate::stats::ForwardingIndex, Forwarded)>,
    skipped: &mut u64,
) -> bool {
    let Some(sink) = conn.session.unit_sink() else { return false };
    let mut any = false;
    conn.schedule.sated = true;
    for subscription in &mut conn.subscriptions {
        let handle = subscription.handle;
        let Some(Playing { subscriber, .. }) = subscription.playing_mut() else { continue };
        let Some(stream) = streams.get_mut(&subscriber.stream) else { continue };
        // The subscriber may be about to switch to another selection. The first round delivers the units before the
        // switch, the second those after it.
        for _ in 0..2 {
            *skipped = skipped.saturating_add(stream.prepare(subscriber));
            while sink.has_room()
                && let Some(delivery) = stream.next_unit(subscriber)
            {
                sink.handle_unit(ctx, handle, &delivery);
                forwarded.extend(delivery.forwarded.map(|unit| (subscriber.forwarding, unit)));
                any = true;
            }
            conn.schedule.sated &= sink.has_room();
            if !stream.switches_at(subscriber) {
                break;
            }
        }
        if sink.has_room()
            && let Some(tail) = stream.tail(subscriber)
            && let Some(sink) = sink.tail()
        {
            sink.handle_tail(ctx, tail);
            any = true;
        }
    }
    if any && let Some(runs) = sink.runs() {
        runs.end_units(ctx);
    }
    any
}
