//! Settings that are read again while the server runs (SIGHUP). What can change at once does; ports, addresses, the
//! number of workers and the limits of connections are those of the start.

use std::sync::Arc;

use super::{Control, Output};
use crate::config::{Config, ServerSettings};
use crate::jobs::AdminWork;
use crate::mail::{SessionSettings, ToWorker};
use crate::types::Now;

impl Control {
    /// Has the settings read. Files that cannot be used change nothing, and are one line of the log.
    pub fn reload(&mut self) {
        let sent = self.submit_admin(AdminWork::Reload, |control, now, outcome| match outcome.config() {
            Ok(config) => control.reloaded(now, &config),
            Err(error) => tracing::error!(%error, "settings not loaded; the current ones stay in use"),
        });
        if !sent {
            tracing::error!("settings not loaded: too many jobs wait");
        }
    }

    fn reloaded(&mut self, now: Now, config: &Config) {
        self.install_server(Arc::clone(&config.server));
        let mut changed = 0_usize;
        for app in &config.apps {
            let known = self.apps.get(&app.name).is_some_and(|old| old.values == app.values);
            if !known && !self.walks.app_changes.changing.contains(&app.name) {
                self.install_app(now, (**app).clone());
                changed += 1;
            }
        }
        let gone: Vec<Arc<str>> = self
            .apps
            .keys()
            .filter(|name| !config.apps.iter().any(|app| app.name == **name))
            .filter(|name| !self.walks.app_changes.changing.contains(*name))
            .cloned()
            .collect();
        for name in &gone {
            self.remove_app(now, name);
        }
        tracing::info!(changed, gone = gone.len(), "settings loaded");
    }

    /// New settings of the server.
    pub(super) fn install_server(&mut self, server: Arc<ServerSettings>) {
        self.config.outbound.deny = server.outbound_deny.clone();
        self.outbox.outputs.push_back(Output::Outbound(self.config.outbound.clone()));
        self.post_all(&ToWorker::Server(Arc::new(SessionSettings::of(&server))));
        self.config.server = server;
    }
}
