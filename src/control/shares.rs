//! Shares of applications in limited resources of the server ([`crate::jobs::shares::Room`]): records, sources,
//! uploads. Shares of threads are handled by `hooks`, `admission`, `objects`, and the job service.

use std::sync::Arc;

use super::context::Context;
use super::records::Records;
use super::{Files, Outbound};
use crate::jobs::shares::Room;

impl Context {
    /// True if an application may hold one more item. `held` counts the items of an application; `limit` is the maximum
    /// for all applications together.
    fn has_share(&self, limit: usize, app: &str, held: impl Fn(&str) -> usize) -> bool {
        let others: Vec<usize> =
            self.apps.keys().filter(|other| ***other != *app).map(|other| held(other)).collect();
        Room::new(limit, held(app), others.into_iter()).is_there()
    }
}

impl Records {
    /// True if an application may have another record (`limits.broadcasts`).
    pub(super) fn has_room_for_record(&self, cx: &Context, app: &str) -> bool {
        // New records that are not stored yet are not counted for any application, so they reduce the limit instead.
        let limit = cx.config.server.limits.broadcasts.saturating_sub(self.writes.inserts());
        cx.has_share(limit, app, |app| self.count(app))
    }
}

impl Outbound {
    /// True if an application may run another source (`limits.pulls`).
    pub(super) fn has_room_for_source(&self, cx: &Context, app: &str) -> bool {
        cx.has_share(cx.config.server.limits.pulls, app, |app| self.sources.count(app))
    }
}

impl Files {
    /// True if an application may receive another upload; `limit` is the maximum for all applications together.
    pub(super) fn has_room_for_upload(&self, cx: &Context, limit: usize, app: &Arc<str>) -> bool {
        cx.has_share(limit, app, |app| self.uploads.count(app))
    }
}
