//! The state that every part of a worker uses: clock, settings, outputs, deadlines, counters.

use std::sync::Arc;

use crypto::Seed;

use super::Output;
use super::agenda::Agenda;
use super::figures::Meter;
use crate::hub::Blobs;
use crate::mail::{SessionSettings, ToControl};
use crate::protocol::{Apps, Context};
use crate::types::{ConnId, Handle, Now, SessionRef, WorkerId};

/// A turn of a worker: its time, the state that the worker's parts may read, and the actions
/// for the shell.
#[derive(Debug)]
pub(super) struct Turn {
    /// Id of the worker.
    pub(super) id: WorkerId,
    /// The time of the input being handled.
    pub(super) now: Now,
    pub(super) seed: Seed,
    pub(super) apps: Apps,
    /// The server settings that sessions use.
    pub(super) server: Arc<SessionSettings>,
    /// Files of live streams that clients fetch by separate requests.
    pub(super) blobs: Blobs,
    pub(super) agenda: Agenda,
    pub(super) meter: Meter,
    /// True while new viewers are refused but existing ones may stay.
    pub(super) leaving: bool,
    /// True while the server is shutting down.
    pub(super) draining: bool,
    /// True if control was notified that the last connection is gone.
    pub(super) drained: bool,
}

impl Turn {
    pub(super) fn new(id: WorkerId, now: Now, seed: Seed) -> Self {
        Self {
            id,
            now,
            seed,
            apps: Apps::new(),
            server: Arc::default(),
            blobs: Blobs::default(),
            agenda: Agenda::default(),
            meter: Meter::new(now.mono),
            leaving: false,
            draining: false,
            drained: false,
        }
    }

    /// Returns the state that a session may read while it is called.
    pub(super) fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.blobs,
            draining: self.draining,
        }
    }

    /// Returns the seed of the next session.
    pub(super) fn session_seed(&mut self) -> Seed {
        self.meter.stats.sessions = self.meter.stats.sessions.saturating_add(1);
        self.seed.derive("session", self.meter.stats.sessions)
    }

    /// Sends a message to control.
    pub(super) fn tell(&mut self, mail: ToControl) {
        self.agenda.outputs.push_back(Output::Control(mail));
    }

    /// Returns a reference to a publication or subscription of a session of this worker.
    pub(super) const fn session_ref(&self, conn: ConnId, handle: Handle) -> SessionRef {
        SessionRef { worker: self.id, conn, handle }
    }
}
