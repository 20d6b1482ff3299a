//! Sizes of control's tables, for simulations: all tables must be empty when there are no peers and no streams. Also
//! lists the tasks that control has ordered, which must match its records.

use super::Control;
use super::supervisor::Job;
use crate::types::{StreamKey, WorkerId};

/// A task of an outgoing connection or of a recording, as listed in control's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// `push`, `pull` or `recording`, as in [`crate::worker::Worker::ordered`].
    pub kind: &'static str,
    /// Number of the task, unique within its kind.
    pub id: u64,
    /// Stream that is pushed, fetched or recorded.
    pub key: StreamKey,
    /// URL of a push; name of the container of a recording; empty for a pull.
    pub what: String,
    /// State of the task.
    pub at: Standing,
    /// Number of consecutive failed attempts.
    pub failures: u32,
}

/// The state of an ordered task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Control has ordered this worker to perform the task.
    Open(WorkerId),
    /// Waiting for the next attempt, or for a name to be resolved.
    Waiting,
    /// Attempts have stopped, because too many have failed.
    GivenUp,
}

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
            ("sources held back", self.outbound.sources.held_back.len()),
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

    /// Returns the pushes, pulls and recordings in progress, without recordings that were asked to end.
    #[must_use]
    pub fn ordered(&self) -> Vec<Ordered> {
        let supervisor = &self.outbound.supervisor;
        let pushes = self.outbound.pushes.all().map(|(id, key, url)| {
            let (at, failures) = (supervisor.standing(Job::Push(id)), supervisor.failures(Job::Push(id)));
            Ordered { kind: "push", id: id.0, key: key.clone(), what: url.to_owned(), at, failures }
        });
        let pulls = self.outbound.sources.by_id.iter().map(|(id, source)| {
            let (at, failures) = (supervisor.standing(Job::Pull(*id)), supervisor.failures(Job::Pull(*id)));
            Ordered { kind: "pull", id: id.0, key: source.key.clone(), what: String::new(), at, failures }
        });
        let recordings = self.files.recordings.all().map(|(id, key, container, worker)| {
            let (at, what) = (Standing::Open(worker), container.name().to_owned());
            Ordered { kind: "recording", id: id.0, key: key.clone(), what, at, failures: 0 }
        });
        pushes.chain(pulls).chain(recordings).collect()
    }
}
