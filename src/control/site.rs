//! Settings of sessions, with facts about the process.

use std::sync::Arc;

use super::ControlConfig;
use crate::config::ServerSettings;
use crate::mail::{SessionSettings, Site};

impl ControlConfig {
    /// Derives the settings of sessions from those of the server.
    pub(super) fn session_settings(&self, server: &ServerSettings) -> SessionSettings {
        let site = Site {
            bound: self.addresses.iter().collect(),
            hosts: self.outbound.own_addresses.clone(),
            secret: self.secret.clone(),
        };
        SessionSettings::of(server, &self.node, Arc::new(site))
    }
}
