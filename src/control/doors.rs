//! What the log says at the start of who may do what without being asked for anything.

use super::Control;
use crate::config::AppSettings;

impl Control {
    /// One line for each door that is open by default, with the way to close it.
    pub(super) fn log_doors(&self) {
        if !self.has_users() {
            tracing::info!(
                "there is no administrator yet: make one by 'millstream user add EMAIL', or on this machine by the \
                 first request to /rest/v2/users/initial"
            );
        }
        let open = self.open_apps();
        if !open.is_empty() {
            tracing::info!(
                applications = %open.join(","),
                "everybody who reaches this server may publish: no check of publishers is on (docs/security.md)"
            );
        }
    }

    /// The applications that let every publisher in.
    pub(super) fn open_apps(&self) -> Vec<&str> {
        let is_open = |app: &&AppSettings| {
            !app.security.publish.any()
                && !app.accept_only_streams_in_data_store
                && app.allowed_publisher_cidr.is_empty()
        };
        self.apps.values().map(AsRef::as_ref).filter(is_open).map(|app| &*app.name).collect()
    }
}
