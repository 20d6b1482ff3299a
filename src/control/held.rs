//! The size of each table of control: without peers and streams each must be empty. For simulations.

use super::Control;

impl Control {
    /// The tables whose entries go with connections, streams and requests, and how many each has.
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
