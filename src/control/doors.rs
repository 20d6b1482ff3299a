//! Log lines, written when the server starts, about uses of the server that need no credential by default.

use super::context::Context;
use super::management::{CODE_CHARACTERS, FirstCode};
use crate::config::AppSettings;
use crate::control::management::Management;
use crate::control::records::Records;

impl Management {
    /// Logs each use of the server that needs no credential by default, with the way to change this. Also generates
    /// and logs the code for the first user.
    pub(super) fn log_doors(&mut self, cx: &mut Context, records: &Records) {
        if !records.auxiliary.has_users() && cx.config.server.doors.first_user_code {
            let code = FirstCode::new(cx.alphanumerics(CODE_CHARACTERS));
            tracing::info!(
                code = code.reveal(),
                "no administrator yet: create one with 'millstream user add EMAIL', or on this machine by the \
                 first request to /rest/v2/users/initial that has this code; it is valid until then or the next start"
            );
            self.first_code = Some(code);
        } else if !records.auxiliary.has_users() {
            tracing::info!(
                "no administrator yet: create one with 'millstream user add EMAIL', or on this machine by the \
                 first request to /rest/v2/users/initial"
            );
        }
        let open = cx.open_apps();
        if !open.is_empty() {
            tracing::info!(
                applications = %open.join(","),
                "anybody who can reach this server may publish: no publisher check is enabled (docs/security.md)"
            );
        }
    }
}

impl Context {
    /// Returns the applications that admit every publisher.
    pub(super) fn open_apps(&self) -> Vec<&str> {
        let is_open = |app: &&AppSettings| {
            !app.security.publish.any()
                && !app.accept_only_streams_in_data_store
                && app.allowed_publisher_cidr.is_empty()
        };
        self.apps.values().map(AsRef::as_ref).filter(is_open).map(|app| &*app.name).collect()
    }
}
