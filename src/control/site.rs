//! Settings of sessions: settings of the server, and the addresses of this process.

use std::sync::Arc;

use super::context::Context;
use crate::mail::{SessionSettings, Site};

impl Context {
    /// Derives the settings of sessions from those of the server.
    pub(super) fn session_settings(&self) -> SessionSettings {
        let site = Site {
            bound: self.config.addresses.iter().collect(),
            hosts: self.config.outbound.own_addresses.clone(),
            found: self.lookups.found(),
            secret: self.config.secret.clone(),
        };
        SessionSettings::of(&self.config.server, &self.config.node, Arc::new(site))
    }
}
