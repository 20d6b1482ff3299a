//! The size of each table of control, for simulations: without peers and streams all must be empty.

use super::Control;

impl Control {
    /// Returns the tables whose entries belong to connections, streams and requests, with their sizes.
    #[must_use]
    pub fn held(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("streams", self.registry.len()),
            ("indexes of streams", self.registry.indexed()),
            ("supervised attempts", self.outbound.supervisor.held()),
            ("names that are asked for", self.outbound.names.asking()),
            ("pushes", self.outbound.pushes.len()),
            ("sources", self.outbound.sources.len()),
            ("claims", self.registry.cluster.held()),
            ("admissions", self.access.admissions.held()),
            ("presences", self.access.presences.held()),
            ("calls", self.access.calls.held()),
            ("recordings", self.files.recordings.len()),
            ("hooks", self.hooks.waiting()),
            ("writes", self.records.writes.waiting_writes()),
            ("open requests", self.cx.audit.open()),
            ("jobs", self.cx.outbox.jobs_waiting()),
            ("outputs", self.cx.outbox.outputs.len()),
        ]
    }
}
