//! Reloading of settings while the server runs (SIGHUP). Changes take effect immediately where possible. Ports,
//! addresses, the number of workers and the limits of connections need a restart.

use std::sync::Arc;

use super::context::Context;
use super::{AUDIT, Control, Output};
use crate::config::{Config, LostApp, ServerSettings};
use crate::jobs::AdminWork;
use crate::types::Now;

impl Control {
    /// Reads the settings again. Unusable files change nothing, and are logged.
    pub fn reload(&mut self) {
        let sent = self.cx.submit_admin(AdminWork::Reload, |control, now, outcome| match outcome.config() {
            Ok(config) => control.reloaded(now, &config),
            Err(error) => tracing::error!(%error, "settings not loaded; the current ones stay in effect"),
        });
        if !sent {
            tracing::error!("settings not loaded: the job queue is full");
        }
    }

    fn reloaded(&mut self, now: Now, config: &Config) {
        let old = &self.cx.config.server.values;
        let restart: Vec<&str> =
            old.changed(&config.server.values).filter(|key| is_of_the_start(key)).collect();
        if !restart.is_empty() {
            tracing::warn!(
                keys = %restart.join(","),
                "changed settings take effect after a restart"
            );
        }
        self.cx.install_server(now, Arc::clone(&config.server));
        self.walks.boot_backups(&self.cx, &self.registry.cluster, now);
        self.access.follow_key_sets(&self.cx, now);
        self.cx.settings_lost(&config.lost);
        let mut changed = 0_usize;
        for app in &config.apps {
            let known = self.cx.apps.get(&app.name).is_some_and(|old| old.values == app.values);
            if !known && !self.walks.app_changes.changing.contains(&app.name) {
                self.install_app(now, (**app).clone());
                changed += 1;
            }
        }
        let gone: Vec<Arc<str>> = self
            .cx
            .apps
            .keys()
            .filter(|name| !config.apps.iter().any(|app| app.name == **name))
            .filter(|name| !self.cx.config.lost.contains(*name))
            .filter(|name| !self.walks.app_changes.changing.contains(*name))
            .cloned()
            .collect();
        for name in &gone {
            self.remove_app(now, name);
        }
        tracing::info!(changed, gone = gone.len(), "settings loaded");
        if self.cx.config.server.log.audit {
            tracing::info!(target: AUDIT, who = "signal", from = "-", changed, gone = gone.len(), "Load settings");
        }
    }
}

impl Context {
    /// Handles applications whose settings vanished or are unusable. They do not get default settings: a running
    /// application keeps its settings, and one that is not running is not started.
    fn settings_lost(&mut self, lost: &[LostApp]) {
        for LostApp { name, reason } in lost {
            if self.apps.contains_key(name) {
                tracing::error!(
                    app = &**name,
                    reason,
                    "application settings invalid; the current ones stay in effect"
                );
            } else {
                tracing::error!(app = &**name, reason, "application not started: its settings are invalid");
            }
        }
        self.config.lost = lost.iter().map(|app| Arc::clone(&app.name)).collect();
    }

    /// Installs new settings of the server.
    pub(super) fn install_server(&mut self, now: Now, server: Arc<ServerSettings>) {
        self.config.outbound.deny = server.outbound.deny.clone();
        self.config.outbound.public_only = server.outbound.public_only;
        self.outbox.outputs.push_back(Output::Outbound(self.config.outbound.clone()));
        self.config.server = server;
        self.follow_lookups(now);
        self.post_settings();
    }
}

/// True if a change of this server setting needs a restart: mainly the settings of sockets and threads, and the limits
/// of connections, which share counters with them.
fn is_of_the_start(key: &str) -> bool {
    const KEYS: [&str; 7] = [
        "server.workers",
        "server.srt_port",
        "server.proxy_protocol",
        "logFormat",
        "vod.import_folders",
        "http.acme_folder",
        "turn.tls",
    ];
    let is_socket = [".host", ".port", "_port", ".enabled"].iter().any(|end| key.ends_with(end));
    let is_certificate = key.starts_with("http.ssl_certificate");
    let is_of_connections = ["limits.connections", "limits.unauthenticated", "limits.new_", "limits.exempt_"]
        .iter()
        .any(|begin| key.starts_with(begin));
    KEYS.contains(&key) || is_socket || is_certificate || is_of_connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_need_a_restart() {
        let settings = |set: &[(&str, &str)]| ServerSettings::with(set).unwrap().values;
        let (old, new) = (
            settings(&[]),
            settings(&[
                ("http.port", "1"),
                ("turn.tls", "false"),
                ("turn.tls_port", "5350"),
                ("server.workers", "3"),
                ("limits.connections", "7"),
                ("limits.broadcasts", "7"),
                ("server.name", "n"),
            ]),
        );
        let told: Vec<&str> = old.changed(&new).filter(|key| is_of_the_start(key)).collect();
        assert_eq!(told, ["http.port", "limits.connections", "server.workers", "turn.tls", "turn.tls_port"]);
    }
}
