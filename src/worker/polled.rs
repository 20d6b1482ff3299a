//! Streams that are fetched by separate requests instead of being sent: their blobs, and the viewers that request them.

use std::sync::Arc;
use std::time::Instant;

use super::deadlines::Timer;
use super::leases::{LEASE, Ledger};
use super::{Output, Worker};
use crate::hub::{Blobs, Published};
use crate::mail::{Blob, BlobMail, BlobsInTransit, ToWorker};
use crate::protocol::Watched;
use crate::types::{ConnId, Now, StreamId};

/// Blobs and leases of a worker.
#[derive(Debug, Default)]
pub(super) struct Polled {
    pub(super) blobs: Blobs,
    in_transit: BlobsInTransit,
    pub(super) leases: Ledger,
    /// The deadline of the leases that is armed.
    armed: Option<Instant>,
}

impl Worker {
    /// Publishes a blob of a live stream on all workers. While too much is on its way to the others, it is here only.
    pub fn publish_blob(&mut self, now: Now, blob: Blob) -> Published {
        self.now = now;
        if !self.live.streams.contains_key(&blob.stream) {
            return Published::Refused;
        }
        let blob = Arc::new(blob);
        let published = self.polled.blobs.publish(Arc::clone(&blob));
        if published == Published::Stored {
            let mail = self.polled.in_transit.mail(blob);
            self.agenda.outputs.extend(mail.map(|mail| Output::Others(ToWorker::Blob(mail))));
        }
        published
    }

    /// A blob of another worker. One that comes behind the end of its stream is nobody's.
    pub(super) fn take_blob(&mut self, mail: &BlobMail) {
        if self.live.streams.contains_key(&mail.blob.stream) {
            self.polled.blobs.publish(Arc::clone(&mail.blob));
        }
    }

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
        self.arm_leases();
    }

    pub(super) fn leases_timeout(&mut self, at: Instant) {
        if self.polled.armed == Some(at) {
            self.polled.armed = None;
        }
        self.polled.leases.handle_timeout(self.now.mono);
        self.arm_leases();
    }

    /// A stream is over.
    pub(super) fn forget_polled(&mut self, stream: StreamId) {
        self.polled.blobs.end_stream(stream);
        self.polled.leases.end_stream(stream);
    }

    fn arm_leases(&mut self) {
        let Some(due) = self.polled.leases.poll_timeout() else { return };
        // What could not be ended at once is ended in the next turn.
        let due = due.max(self.now.mono + super::dispatch::FLUSH_GRID);
        if self.polled.armed.is_none_or(|armed| due < armed) {
            self.polled.armed = Some(due);
            self.agenda.deadlines.arm(due, Timer::Leases);
        }
    }
}
