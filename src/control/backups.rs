//! Backups of the store: their schedule, and the requester that waits for one (docs/store.md).

use std::time::{Duration, Instant};

use crate::directory::Side;
use crate::http::Response;
use crate::store::{self, backup};
use crate::types::Now;

use super::Walks;
use super::answer::Outcome;
use super::cluster::Cluster;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;

/// Interval at which the age of the newest backup is checked.
const LOOK: Duration = Duration::from_secs(600);
/// Time until the first check, so that a server that fails soon after its start does not replace good backups.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// The schedule and the backup in progress.
#[derive(Debug, Default)]
pub(super) struct Backups {
    due: Option<Instant>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    batch: u64,
    name: String,
    waiter: Option<Requester>,
}

impl Backups {
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Walks {
    /// Schedules checks of the newest backup's age, if backups are enabled. Called at the start and after a change of
    /// settings.
    pub(super) fn boot_backups(&mut self, cx: &Context, cluster: &Cluster, now: Now) {
        // In a cluster, the records are in a shared directory, which is backed up by tools of its own.
        let is_on = !cx.config.server.backups().every.is_zero() && !cluster.is_clustered();
        self.backups.due = now.mono.checked_add(FIRST_LOOK).filter(|_| is_on);
    }

    /// Backs up the store if the newest backup is old enough.
    pub(super) fn fire_backups(&mut self, cx: &Context, records: &mut Records, now: Now) {
        if self.backups.due.is_none_or(|due| due > now.mono) {
            return;
        }
        self.backups.due = now.mono.checked_add(LOOK);
        // The other process of this server has the store, and makes the backups.
        if cx.side == Some(Side::Guest) {
            return;
        }
        let every = cx.config.server.backups().every;
        if self.backups.under_way.is_none() && !records.writes.is_broken() {
            self.begin_backup(cx, records, now, None, every);
        }
    }

    /// Backs up the store now and answers `requester`. Returns false if a backup is in progress.
    pub(super) fn back_up(
        &mut self,
        cx: &Context,
        records: &mut Records,
        now: Now,
        requester: Requester,
    ) -> bool {
        if self.backups.under_way.is_some() {
            return false;
        }
        self.begin_backup(cx, records, now, Some(requester), Duration::ZERO);
        true
    }

    fn begin_backup(
        &mut self,
        cx: &Context,
        records: &mut Records,
        now: Now,
        waiter: Option<Requester>,
        age_min: Duration,
    ) {
        let name = backup::name_of(now.wall_ms);
        let kept = cx.config.server.backups().kept;
        let batch = records.writes.back_up(backup::Backup { name: name.clone(), kept, age_min });
        self.backups.under_way = Some(UnderWay { batch, name, waiter });
    }

    /// Handles the store's reply if it is about a backup; otherwise returns it.
    pub(super) fn backed_up(&mut self, cx: &mut Context, reply: store::Reply) -> Option<store::Reply> {
        let done = self.backups.under_way.take_if(|backup| backup.batch == reply.batch);
        let Some(UnderWay { name, waiter, .. }) = done else { return Some(reply) };
        let answer = match &reply.result {
            Ok(()) => Outcome::success().data_id(&name).response(200),
            Err(error) => {
                tracing::error!(%error, "store backup failed");
                Outcome::failure("The store could not be backed up; the log has the reason").response(200)
            }
        };
        if let Some(requester) = waiter {
            cx.answer(requester, answer);
        }
        None
    }
}

/// The answer if another backup is in progress.
pub(super) fn busy() -> Response {
    Outcome::failure("A backup is under way").response(200)
}
