//! Streams that are fetched by separate requests instead of being sent: their blobs, the requests that wait for one, and
//! the viewers that request them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::deadlines::Timer;
use super::leases::{LEASE, Ledger};
use super::{Output, Worker};
use crate::hub::{Blobs, Published};
use crate::mail::{Blob, BlobMail, BlobsInTransit, ToControl, ToWorker};
use crate::protocol::{BLOB_WAIT, Reply, WantedBlob, Watched, sinks};
use crate::types::{ConnId, Now, StreamId, StreamKey};

/// How long the blobs of a stream stay when it is over: its viewers are that far behind.
pub(super) const LINGER: Duration = Duration::from_secs(30);

/// The application and the name of a blob.
type BlobName = (Arc<str>, Arc<str>);

/// Blobs and leases of a worker.
#[derive(Debug, Default)]
pub(super) struct Polled {
    pub(super) blobs: Blobs,
    in_transit: BlobsInTransit,
    pub(super) leases: Ledger,
    /// Streams that are over and have blobs, and when those go.
    ended: VecDeque<(Instant, StreamId)>,
    /// Who waits for a blob.
    waiting: BTreeMap<BlobName, BTreeSet<ConnId>>,
    /// When they are answered at the latest.
    waits: VecDeque<(Instant, BlobName, ConnId)>,
    /// Sinks that begin with their streams, which viewers start.
    sinks_to_come: BTreeMap<StreamKey, BTreeSet<&'static str>>,
    /// Sinks that were begun here.
    making: BTreeSet<(StreamId, &'static str)>,
    /// The deadline that is armed.
    armed: Option<Instant>,
}

#[cfg(test)]
impl Polled {
    /// Blobs that are waited for.
    pub(super) fn awaited(&self) -> usize {
        self.waiting.len()
    }
}

impl Worker {
    /// Publishes a blob of a live stream on all workers. While too much is on its way to the others, it is here only.
    pub fn publish_blob(&mut self, now: Now, blob: Blob) -> Published {
        self.now = now;
        let blob = Arc::new(blob);
        let published = self.keep_blob(&blob);
        if published == Published::Stored {
            let mail = self.polled.in_transit.mail(blob);
            self.agenda.outputs.extend(mail.map(|mail| Output::Others(ToWorker::Blob(mail))));
        }
        published
    }

    /// A blob of another worker.
    pub(super) fn take_blob(&mut self, mail: &BlobMail) {
        self.keep_blob(&mail.blob);
    }

    /// Stores a blob, and answers who waits for it. One that comes behind the end of its stream is nobody's, unless others of
    /// the stream are still there.
    fn keep_blob(&mut self, blob: &Arc<Blob>) -> Published {
        if !self.live.streams.contains_key(&blob.stream) && !self.polled.blobs.has(blob.stream) {
            return Published::Refused;
        }
        let published = self.polled.blobs.publish(Arc::clone(blob));
        if published == Published::Stored {
            let name = (Arc::clone(&blob.app), Arc::clone(&blob.name));
            for conn in self.polled.waiting.remove(&name).unwrap_or_default() {
                self.answer_waiting(conn);
            }
        }
        published
    }

    // ---- requests that wait

    /// A request waits for a blob, which a sink makes from now on. A stream that viewers start is started.
    pub(super) fn await_blob(&mut self, id: ConnId, wanted: &WantedBlob) {
        let name: BlobName = (Arc::clone(&wanted.key.app), wanted.name.as_str().into());
        let stream = self.live.directory.get(&wanted.key).copied();
        let may_come = stream.is_some() || self.live.auto_start.contains(&wanted.key);
        if !may_come || self.polled.blobs.get(&name.0, &name.1).is_some() {
            return self.answer_waiting(id);
        }
        let until = self.now.mono + BLOB_WAIT;
        self.polled.waits.push_back((until, name.clone(), id));
        let others = self.polled.waiting.entry(name).or_default();
        let is_first = others.is_empty();
        others.insert(id);
        if let Some(stream) = stream.filter(|_| is_first) {
            self.order_sink(wanted.sink, stream);
        } else if stream.is_none() {
            self.polled.sinks_to_come.entry(wanted.key.clone()).or_default().insert(wanted.sink);
            self.tell(ToControl::Wanted(wanted.key.clone()));
        }
        self.arm_polled();
    }

    /// Has the worker of the publisher begin a sink.
    fn order_sink(&mut self, kind: &'static str, stream: StreamId) {
        match self.live.streams.get(&stream).map(|stream| stream.source) {
            Some(source) if source == self.id => self.start_sink(kind, stream),
            Some(source) => {
                let mail = ToWorker::StartSink { kind, stream };
                self.agenda.outputs.push_back(Output::Worker(source, mail));
            }
            None => {}
        }
    }

    /// A stream has begun: so do the sinks that were asked for before. Where requests for a blob begin a sink, nobody is told any
    /// more that the last stream of the name is over.
    pub(super) fn begin_awaited_sinks(&mut self, key: &StreamKey, stream: StreamId) {
        if let Some(settings) = self.live.streams.get(&stream).map(|live| Arc::clone(&live.settings)) {
            let begins = |name: &str| sinks::maker_of(&settings, name).is_some_and(|(_, id)| id == &*key.id);
            self.polled.blobs.forget_retired(&key.app, &key.id, begins);
        }
        for kind in self.polled.sinks_to_come.remove(key).unwrap_or_default() {
            self.order_sink(kind, stream);
        }
    }

    fn answer_waiting(&mut self, id: ConnId) {
        self.reply(id, Reply::Blob);
        self.touch(id);
    }

    /// Whether a sink of a stream is begun for the first time here.
    pub(super) fn note_sink(&mut self, stream: StreamId, kind: &'static str) -> bool {
        self.polled.making.insert((stream, kind))
    }

    // ---- viewers

    /// A request has shown that somebody watches.
    pub(super) fn renew_lease(&mut self, id: ConnId, watched: &Watched) {
        let Some(conn) = self.conns.get(id).filter(|_| self.live.streams.contains_key(&watched.stream))
        else {
            return;
        };
        let address = conn.client().ip();
        let by_address = address.to_string();
        let viewer = watched.viewer.as_deref().unwrap_or(&by_address);
        self.polled.leases.renew(self.now.mono, (watched.stream, watched.protocol, viewer), address, LEASE);
        self.arm_polled();
    }

    pub(super) fn polled_timeout(&mut self, at: Instant) {
        if self.polled.armed == Some(at) {
            self.polled.armed = None;
        }
        let now = self.now.mono;
        self.polled.leases.handle_timeout(now);
        while let Some((_, stream)) = self.polled.ended.pop_front_if(|(until, _)| *until <= now) {
            self.polled.blobs.end_stream(stream);
        }
        while let Some((_, name, conn)) = self.polled.waits.pop_front_if(|(until, _, _)| *until <= now) {
            let Some(waiting) = self.polled.waiting.get_mut(&name) else { continue };
            let waits = waiting.remove(&conn);
            if waiting.is_empty() {
                self.polled.waiting.remove(&name);
            }
            if self.polled.waiting.is_empty() {
                self.polled.sinks_to_come.clear();
            }
            if waits {
                self.answer_waiting(conn);
            }
        }
        self.arm_polled();
    }

    /// A stream is over. Its viewers have not seen its end yet.
    pub(super) fn forget_polled(&mut self, stream: StreamId) {
        self.polled.leases.end_stream(stream);
        self.polled.making.retain(|(of, _)| *of != stream);
        if self.polled.blobs.retire(stream) {
            self.polled.ended.push_back((self.now.mono + LINGER, stream));
            self.arm_polled();
        }
    }

    fn arm_polled(&mut self) {
        let ended = self.polled.ended.front().map(|(until, _)| *until);
        let waits = self.polled.waits.front().map(|(until, _, _)| *until);
        let due = [self.polled.leases.poll_timeout(), ended, waits].into_iter().flatten().min();
        let Some(due) = due else { return };
        // What could not be ended at once is ended in the next turn.
        let due = due.max(self.now.mono + super::dispatch::FLUSH_GRID);
        if self.polled.armed.is_none_or(|armed| due < armed) {
            self.polled.armed = Some(due);
            self.agenda.deadlines.arm(due, Timer::Polled);
        }
    }
}
