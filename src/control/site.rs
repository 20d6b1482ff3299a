//! The settings of sessions, with the process that they are part of.

use std::sync::Arc;

use super::ControlConfig;
use crate::config::ServerSettings;
use crate::mail::{SessionSettings, Site};

impl ControlConfig {
    /// The settings that sessions use, out of the server's.
    pub(super) fn session_settings(&self, server: &ServerSettings) -> SessionSettings {
        let site = Site {
            bound: self.addresses.iter().collect(),
            hosts: self.outbound.own_addresses.clone(),
            secret: self.secret.clone(),
        };
        SessionSettings::of(server, &self.node, Arc::new(site))
    }
}
