//! Sizes of a worker's tables, for simulations: all tables must be empty when there are no peers and streams. Also
//! lists the worker's tasks.

use super::Worker;

impl Worker {
    /// Returns the sizes of those tables whose entries belong to connections and streams.
    #[must_use]
    pub fn held(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("connections", self.conns.len()),
            ("streams", self.live.streams.len()),
            ("names of streams", self.live.directory.len()),
            ("sources", self.live.sources.len()),
            ("details of streams", self.live.details.len()),
            ("ladders", self.live.details.ladders()),
            ("ages of streams", self.live.up_since.len()),
            ("viewers that wait", self.live.holds.streams()),
            ("awaited streams", self.live.awaited.len()),
            ("standbys", self.live.standbys.len()),
            ("streams watched for silence", self.live.standbys.watched()),
            ("producers", self.live.producers.len()),
            ("pushes", self.orders.pushes.len()),
            ("pulls", self.orders.pulls.len()),
            ("recordings", self.orders.recordings.len()),
            ("requests for blobs", self.polled.waiting_requests()),
            ("requests for passes", self.polled.passes.waiting()),
            ("sessions to drain", self.turn.agenda.dirty.len()),
            ("streams to flush", self.turn.agenda.flushing.len()),
            ("writes", self.turn.agenda.writes.len()),
            ("sessions of ports", self.ports.list.iter().map(|(_, demux)| demux.sessions()).sum()),
            ("outputs", self.turn.agenda.outputs.len()),
        ]
    }

    /// Returns the kind and number of each unfinished task that control has given to this worker. The form is that of
    /// [`crate::control::Ordered`], so that simulations can compare the two.
    #[must_use]
    pub fn ordered(&self) -> Vec<(&'static str, u64)> {
        let pushes = self.orders.pushes.keys().map(|id| ("push", id.0));
        let pulls = self.orders.pulls.keys().map(|id| ("pull", id.0));
        let recordings = self.orders.recordings.keys().map(|id| ("recording", id.0));
        pushes.chain(pulls).chain(recordings).collect()
    }
}
