//! Main tracks and their subtracks: a room, or one programme from several cameras. A subtrack names its main track. A
//! virtual main track is live while any of its subtracks is (docs/rest.md).

use std::sync::Arc;

use super::context::Context;
use super::live::Registry;
use crate::auth::access::is_stream_id;
use crate::config::AppSettings;
use crate::control::records::Records;
use crate::mail::{PublishRequest, Refusal};
use crate::types::{Now, StreamKey};

use super::broadcast::{Broadcast, status};
use super::wall;

/// Parameter with which a publisher names its main track.
const MAIN_TRACK: &str = "mainTrack";

/// Returns the main track that a publisher names, unless that is the publisher's own stream.
fn wanted_main(request: &PublishRequest) -> Option<StreamKey> {
    let (_, main) = request.params.iter().find(|(name, _)| name == MAIN_TRACK)?;
    let wanted = !main.is_empty() && **main != *request.key.id;
    wanted.then(|| StreamKey { app: request.key.app.clone(), id: main.as_str().into() })
}

impl Records {
    /// Returns the main track that a record names.
    pub(super) fn main_track_of(&self, key: &StreamKey) -> Option<StreamKey> {
        let main = self.get(key)?.main_track_stream_id.as_deref()?;
        (!main.is_empty()).then(|| StreamKey { app: key.app.clone(), id: main.into() })
    }
}

/// True if the subtracks of an application's main tracks are renditions of them (`hls.group`).
pub(super) fn are_renditions(app: &AppSettings) -> bool {
    app.values.text("hls.group").trim().eq_ignore_ascii_case("renditions")
}

impl Records {
    /// True if a publisher may become a subtrack of another record. Without publish checks, everybody may publish and
    /// join. With checks, everybody may join a record that the operator made a main track or that publishing created.
    /// Any other record may be joined only by a stream whose own record or token names it.
    fn may_join(&self, cx: &Context, request: &PublishRequest, main: &StreamKey, record: &Broadcast) -> bool {
        let is_checked = cx.apps.get(&main.app).is_none_or(|app| app.security.publish.any());
        let is_room = record.zombi || (record.is_virtual && !self.joined.contains(main));
        let own = self.pending(&request.key).and_then(|own| own.main_track_stream_id.as_deref());
        let is_given = own == Some(&*main.id) && !self.joined.contains(main);
        !is_checked || is_room || is_given || self.token_names_room(cx, request, &main.id)
    }
}

impl Registry {
    /// Counts the live subtracks of a main track.
    pub(super) fn active_subtracks(&self, records: &Records, main: &StreamKey) -> usize {
        self.live_subtracks(records, main).count()
    }

    /// Returns the live subtracks of a main track, in order. Examines the subtracks or the application's live streams,
    /// whichever are fewer.
    pub(super) fn live_subtracks<'a>(
        &'a self,
        records: &'a Records,
        main: &'a StreamKey,
    ) -> Box<dyn Iterator<Item = &'a Arc<str>> + 'a> {
        let examine = || {
            #[cfg(test)]
            self.examined.set(self.examined.get() + 1);
        };
        let Some(subtracks) = records.subtrack_ids(main) else { return Box::new(std::iter::empty()) };
        if self.count(&main.app) < subtracks.len() {
            let live = self.of_app(&main.app).inspect(move |_| examine());
            let live = live.filter(|(_, live)| !live.is_view() && subtracks.contains(&live.key.id));
            return Box::new(live.map(|(_, live)| &live.key.id));
        }
        let all = subtracks.iter().inspect(move |_| examine());
        Box::new(all.filter(|id| self.is_active(main, id)))
    }

    /// True if a subtrack of a main track is live.
    pub(super) fn has_active_subtrack(&self, records: &Records, main: &StreamKey) -> bool {
        self.live_subtracks(records, main).next().is_some()
    }

    /// Checks whether a publisher may join the main track that it names.
    pub(super) fn check_main_track(
        &self,
        cx: &Context,
        records: &Records,
        request: &PublishRequest,
    ) -> Result<(), Refusal> {
        let Some(main) = wanted_main(request) else { return Ok(()) };
        if !is_stream_id(&main.id) {
            return Err(Refusal::NotAllowed("mainTrack is not a stream id"));
        }
        let Some(record) = records.pending(&main) else {
            let app = cx.apps.get(&main.app);
            let known_only =
                app.is_some_and(|app| app.values.boolean("acceptOnlyRoomsInDataStore").unwrap_or(true));
            let is_full = !records.has_room_for_record(cx, &main.app);
            return match (known_only, is_full) {
                (true, _) => Err(Refusal::NotAllowed("the main track has no record")),
                (false, true) => Err(Refusal::NotAllowed("limits.broadcasts is reached")),
                (false, false) => Ok(()),
            };
        };
        if !records.may_join(cx, request, &main, record) {
            return Err(Refusal::NotAllowed("the main track is the broadcast of somebody else"));
        }
        let limit = usize::try_from(record.subtracks_limit).ok();
        if limit.is_some_and(|limit| self.active_subtracks(records, &main) >= limit) {
            return Err(Refusal::NotAllowed("subtracksLimit of the main track is reached"));
        }
        Ok(())
    }

    /// Adds a new publisher to the main track that it names, which is created if it has no record.
    pub(super) fn join_main_track(
        &self,
        cx: &Context,
        records: &mut Records,
        now: Now,
        request: &PublishRequest,
    ) {
        let Some(main) = wanted_main(request) else { return };
        if records.get(&main).is_none() {
            let mut record = Broadcast { zombi: true, is_virtual: true, ..Broadcast::default() };
            cx.complete(now, &main, &mut record);
            records.insert(main.clone(), record);
        } else if !self.has_own_publisher(&main)
            && let Some(record) = records.get_mut(&main).filter(|record| !record.is_virtual)
        {
            record.is_virtual = true;
            if !record.zombi {
                records.writes.mark_dirty(now, main.clone());
            }
            records.joined.insert(main.clone());
        }
        // Inserting the record updates the index of subtracks.
        if let Some(mut record) = records.get(&request.key).cloned() {
            record.main_track_stream_id = Some(main.id.as_ref().to_owned());
            records.insert(request.key.clone(), record);
        }
    }

    /// Updates the main tracks of subtracks whose records have changed, each once for all changes.
    pub(super) fn follow_touched_mains(&mut self, records: &mut Records, now: Now) {
        while let Some(main) = self.touched_mains.pop_first() {
            self.follow_subtracks(records, now, &main);
        }
    }

    /// Updates a virtual main track after a subtrack came or went; a main track made by publishing ends with its last
    /// subtrack.
    pub(super) fn follow_subtracks(&self, records: &mut Records, now: Now, main: &StreamKey) {
        if self.has_own_publisher(main) {
            return;
        }
        let any = self.has_active_subtrack(records, main);
        let Some(record) = records.get_mut(main).filter(|record| record.is_virtual) else { return };
        if record.zombi && !any {
            records.remove(main);
            return;
        }
        let was = record.status == status::BROADCASTING;
        if !any && records.joined.remove(main) {
            // The record became virtual only because publishers joined it, so it is an ordinary record again.
            if let Some(record) = records.get_mut(main) {
                record.is_virtual = false;
            }
            records.writes.mark_dirty(now, main.clone());
        }
        let Some(record) = records.get_mut(main) else { return };
        if any == was {
            return;
        }
        record.touch(now);
        if any {
            status::BROADCASTING.clone_into(&mut record.status);
            record.start_time = wall(now);
        } else {
            status::FINISHED.clone_into(&mut record.status);
        }
        if !record.zombi {
            records.writes.mark_dirty(now, main.clone());
        }
    }
}
