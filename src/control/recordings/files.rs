//! The files of recordings: their records, how they are finished, and when they are removed.

use std::sync::Arc;
use std::time::Duration;

use super::names::STREAMS;
use super::taken::OldFile;
use super::{REMOVAL_PAUSE_MAX, REMOVAL_SPACING, RETRY, Retry, Writing};
use crate::config::AppSettings;
use crate::control::context::Context;
use crate::control::hooks::Hooks;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords, AuxiliaryWrite, Vod};
use crate::control::removals::{Removal, pause};
use crate::control::{Control, Files, wall};
use crate::jobs::{Finished, RecordingOutcome, RecordingWork, UNFINISHED, Work};
use crate::mail::Arrival;
use crate::store::{Key, Kind};
use crate::types::{Now, RecordingId, StreamKey};

/// Pause between two searches for old recordings.
const SWEEP: Duration = Duration::from_secs(60);
/// Delay between the end of a file and the search for old recordings. The file's record is stored in this time.
const SETTLED: Duration = Duration::from_secs(1);
/// Dates before this time, the beginning of 2020, are those of a machine whose clock was not set. Files with such a date
/// do not count as old.
const DATES_FROM_MS: i64 = 1_577_836_800_000;
/// Maximum number of recordings removed in one search.
const REMOVED_AT_ONCE: usize = 100;

impl Files {
    /// Returns the completed file with this id.
    pub(in crate::control) fn vod<'a>(
        &'a self,
        records: &'a Records,
        app: &Arc<str>,
        id: &str,
    ) -> Option<&'a Vod> {
        self.vod_of(records, &Vod::key(app, id)).filter(|vod| !vod.unfinished)
    }

    /// Returns the latest record of a file, whether or not the file is complete and the record is stored.
    pub(in crate::control) fn vod_of<'a>(&'a self, records: &'a Records, key: &Key) -> Option<&'a Vod> {
        if let Some(vod) = self.recordings.unsaved.get(key) {
            return Some(vod);
        }
        match records.auxiliary.pending(key)? {
            Auxiliary::Vod(vod) => Some(vod),
            Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        }
    }

    /// Returns the stream from which a file below the application's `streams` was recorded, whether or not the file is
    /// complete.
    pub(in crate::control) fn stream_of_file(
        &self,
        records: &Records,
        app: &Arc<str>,
        name: &str,
    ) -> Option<Arc<str>> {
        let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
        let path = format!("{STREAMS}/{name}");
        let segments: Vec<String> = [&**app].into_iter().chain(path.split('/')).map(str::to_owned).collect();
        let written = self.recordings.writing.get(&segments).map(|writing| &writing.key);
        let key = written.or_else(|| records.auxiliary.of_file(app, &path))?;
        let vod = self.vod_of(records, key).filter(|vod| vod.kind.as_deref() == Some(Vod::RECORDED))?;
        vod.stream_id.as_deref().map(Arc::from)
    }

    pub(in crate::control) fn put_vod(
        &mut self,
        records: &mut Records,
        now: Now,
        key: Key,
        vod: Option<Vod>,
    ) {
        match &vod {
            Some(vod) => {
                self.recordings.unsaved.insert(key.clone(), vod.clone());
                self.try_again(now, Retry::Save(key.clone()));
            }
            None => drop(self.recordings.unsaved.remove(&key)),
        }
        let changes = vec![(key, vod.map(Auxiliary::Vod))];
        records.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter: None });
    }

    /// Tries again to store the record of a file, unless the store already has this record.
    pub(super) fn save_again(&mut self, cx: &Context, records: &mut Records, now: Now, key: Key) {
        let Some(vod) = self.recordings.unsaved.remove(&key) else { return };
        if records.auxiliary.is_being_removed(&key) {
            // If the removal is committed, the file is removed, too. If the commit fails, the record stays, and its
            // change must still be stored.
            self.recordings.unsaved.insert(key.clone(), vod);
            return self.try_again(now, Retry::Save(key));
        }
        let stored = records.auxiliary.get(&key);
        let is_stored = matches!(stored, Some(Auxiliary::Vod(stored)) if *stored == vod);
        if !is_stored && cx.apps.contains_key(&key.app) {
            self.put_vod(records, now, key, Some(vod));
        }
    }

    /// Makes the record of a file that a recording has begun to write.
    pub(super) fn file_begun(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        id: RecordingId,
        (path, first): (&[String], Arrival),
    ) {
        let Some((app, below)) = path.split_first() else { return };
        let next = self.vod_id(cx, now);
        let Some(recording) = self.recordings.by_id.get_mut(&id) else { return };
        recording.files = recording.files.saturating_add(1);
        let (vod_id, start) =
            if recording.files == 1 { (recording.vod.clone(), recording.began) } else { (next, wall(now)) };
        let key = recording.key.clone();
        let room = recording.room.as_ref().map(|clock| Box::new(clock.take(first)));
        let file = below.join("/");
        tracing::info!(%key, file, "recording");
        let record = records.get(&key);
        let vod = Vod {
            stream_name: record.and_then(|record| record.name.clone()),
            vod_name: below.last().cloned(),
            stream_id: Some(key.id.to_string()),
            start_time: start,
            file_path: Some(file),
            vod_id: Some(vod_id.clone()),
            kind: Some(Vod::RECORDED.to_owned()),
            metadata: record.and_then(|record| record.meta_data.clone()).filter(|data| !data.is_empty()),
            unfinished: true,
            room,
            ..Vod::default()
        };
        let app: Arc<str> = app.as_str().into();
        let record = Vod::key(&app, &vod_id);
        self.recordings.writing.insert(path.to_vec(), Writing { recording: id, key: record.clone() });
        self.put_vod(records, now, record, Some(vod));
    }

    /// Finishes a file that is no longer written to.
    pub(super) fn file_ended(&mut self, cx: &mut Context, records: &Records, now: Now, path: &[String]) {
        if let Some(writing) = self.recordings.writing.remove(path) {
            self.finish_file(cx, records, now, writing.key);
        }
    }

    pub(super) fn finish_file(&mut self, cx: &mut Context, records: &Records, now: Now, key: Key) {
        let Some(vod) = self.vod_of(records, &key) else { return };
        let work = Work::Recording(RecordingWork::Finish { path: vod.path(&key.app) });
        let retry = key.clone();
        let sent = cx.submit_for(&retry.app, work, move |control, now, outcome| {
            control.files.file_finished(
                &mut control.cx,
                &mut control.records,
                &mut control.hooks,
                now,
                key,
                outcome.recording(),
            );
        });
        if !sent {
            self.try_again(now, Retry::Finish(retry));
        }
    }

    /// Removes the file of a removed record, both here and in object storage.
    pub(in crate::control) fn remove_file(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        app: &Arc<str>,
        vod: &Vod,
    ) {
        if let Some(id) = &vod.vod_id {
            self.recordings.unsaved.remove(&Vod::key(app, id));
        }
        self.drop_object(cx, records, now, app, vod);
        self.remove_local(cx, records, now, app, vod);
    }

    /// Removes the file on this machine, unless it belongs to an imported folder or to another record. A failed removal
    /// is retried.
    pub(in crate::control) fn remove_local(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        app: &Arc<str>,
        vod: &Vod,
    ) {
        if vod.kind.as_deref() != Some(Vod::IMPORTED) {
            self.remove_path(cx, records, now, Removal::new(app, OldFile::of(app, vod)));
        }
    }

    /// True if further files of an application may be removed. If too many removals wait, the records must stay.
    pub(in crate::control) fn may_remove(&self, app: &str) -> bool {
        self.recordings.removals.has_room(app) && self.objects.has_room(app)
    }

    /// Removes a file, unless its name has been given to another file.
    pub(super) fn remove_path(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        removal: Removal<OldFile>,
    ) {
        let path = removal.target.path.clone();
        if self.is_file_of_other(cx, records, &removal.target) {
            tracing::info!(file = path.join("/"), "file kept: it belongs to another recording");
            self.recordings.sweep.removing.remove(&path);
            return;
        }
        self.recordings.sweep.removing.insert(path.clone());
        let (again, waiting) = (removal.clone(), removal.clone());
        let sent = cx.remove_local_then(&removal.app, path, move |control, now, failure| {
            if let Some(reason) = failure {
                control.files.removal_failed(now, again.after_failure(), &reason);
            } else {
                control.files.recordings.sweep.removing.remove(&again.target.path);
            }
        });
        if !sent {
            // Nothing was tried, so this is no failed attempt.
            self.remove_path_later(now, waiting);
        }
    }

    /// Counts a failed removal and schedules the next attempt. Only the first failure of a file is logged as a warning.
    fn removal_failed(&mut self, now: Now, removal: Removal<OldFile>, reason: &str) {
        let (file, failed) = (removal.target.path.join("/"), removal.failed);
        self.recordings.removals.note_failure();
        if failed == 1 {
            tracing::warn!(file, reason, "recording not removed; retrying");
        } else {
            tracing::debug!(file, reason, failed, "recording not removed; retrying");
        }
        self.remove_path_later(now, removal);
    }

    fn remove_path_later(&mut self, now: Now, removal: Removal<OldFile>) {
        let waiting = u32::try_from(self.recordings.removals.len()).unwrap_or(u32::MAX);
        let pause = pause(RETRY, REMOVAL_PAUSE_MAX, removal.failed)
            .saturating_add(REMOVAL_SPACING.saturating_mul(waiting));
        let Some(at) = now.mono.checked_add(pause) else { return };
        if let Err(removal) = self.recordings.removals.wait(at, removal) {
            self.recordings.sweep.removing.remove(&removal.target.path);
            let file = removal.target.path.join("/");
            tracing::error!(file, "recording not removed: too many removals wait; giving up");
        }
    }

    /// Removes the recordings that their applications no longer keep, oldest first.
    pub(in crate::control) fn remove_old_recordings(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
    ) {
        let ends = |app: &AppSettings| app.recording.age_max.is_some() || app.recording.bytes_max.is_some();
        let apps = cx.apps.values().filter(|app| ends(app)).map(|app| Arc::clone(&app.name));
        let apps: Vec<_> = apps.collect();
        let on_set = || tracing::warn!("wall clock was set: no recording is removed by its age for an hour");
        let goes_by_age = self.recordings.sweep.wall_clock.is_trusted(now, on_set);
        self.recordings.sweep.due = now.mono.checked_add(SWEEP).filter(|_| !apps.is_empty());
        for app in apps {
            if !self.may_remove(&app) {
                continue;
            }
            for vod in self.old_recordings(cx, records, now, (&app, goes_by_age)) {
                self.remove_old_recording(cx, records, now, &app, vod);
            }
        }
    }

    /// Removes the record of an old recording and, once that change is on disk, the file. On a full disk no change can
    /// be stored until a file is removed. In this case the file is removed first, and a later search removes the
    /// record.
    fn remove_old_recording(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        app: &Arc<str>,
        vod: Vod,
    ) {
        let Some(id) = &vod.vod_id else { return };
        if records.writes.is_full() {
            tracing::info!(
                app = &**app,
                file = vod.file_path,
                "an old recording's file is removed: the disk is full"
            );
            self.recordings.sweep.removed_while_full.insert(Vod::key(app, id));
            return self.remove_file(cx, records, now, app, &vod);
        }
        if records.writes.is_broken() {
            return;
        }
        self.recordings.sweep.removed_while_full.remove(&Vod::key(app, id));
        tracing::info!(app = &**app, file = vod.file_path, "old recording removed");
        let changes = vec![(Vod::key(app, id), None)];
        let files = vec![(Arc::clone(app), vod)];
        records.write_auxiliary(now, AuxiliaryWrite { changes, files, waiter: None });
    }

    /// Returns recordings that an application no longer keeps, oldest first. If `goes_by_age` is false, the wall clock
    /// is in doubt, and no recording is too old.
    fn old_recordings(
        &self,
        cx: &Context,
        records: &Records,
        now: Now,
        (app, goes_by_age): (&Arc<str>, bool),
    ) -> Vec<Vod> {
        let Some(settings) = cx.apps.get(app).map(|app| &app.recording) else { return Vec::new() };
        let is_there = |vod: &&Vod| {
            let key = vod.vod_id.as_deref().map(|id| Vod::key(app, id));
            vod.kind.as_deref() == Some(Vod::RECORDED)
                && key.is_some_and(|key| {
                    let is_gone =
                        records.writes.is_full() && self.recordings.sweep.removed_while_full.contains(&key);
                    !is_gone && records.auxiliary.pending(&key).is_some()
                })
        };
        let bytes = |vod: &Vod| u64::try_from(vod.file_size).unwrap_or(0);
        let mut all = records.auxiliary.vods(app).filter(is_there).map(bytes).fold(0, u64::saturating_add);
        let oldest = settings
            .age_max
            .filter(|_| goes_by_age)
            .map(|age| wall(now).saturating_sub_unsigned(age.as_millis().try_into().unwrap_or(u64::MAX)));
        let mut old = Vec::new();
        for vod in records.auxiliary.vods(app).filter(is_there) {
            let has_date = vod.creation_date >= DATES_FROM_MS;
            let is_too_old = has_date && oldest.is_some_and(|oldest| vod.creation_date < oldest);
            if is_too_old || settings.bytes_max.is_some_and(|max| all > max) {
                all = all.saturating_sub(bytes(vod));
                old.push(vod.clone());
            } else if has_date {
                break;
            }
            if old.len() >= REMOVED_AT_ONCE {
                break;
            }
        }
        old
    }

    fn file_finished(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        hooks: &mut Hooks,
        now: Now,
        key: Key,
        outcome: RecordingOutcome,
    ) {
        let Some(vod) = self.vod_of(records, &key).cloned() else { return };
        if !cx.apps.contains_key(&key.app) {
            // The application was deleted, with its folder.
            return self.put_vod(records, now, key, None);
        }
        match outcome {
            RecordingOutcome::Finished(finished) => {
                self.recorded(cx, records, hooks, now, (key, vod), finished)
            }
            RecordingOutcome::Empty | RecordingOutcome::Removed | RecordingOutcome::Found(_) => {
                tracing::info!(app = &*key.app, file = vod.file_path, "nothing was recorded");
                self.put_vod(records, now, key, None);
            }
            RecordingOutcome::SetAside(name) => {
                tracing::error!(
                    app = &*key.app,
                    file = vod.file_path,
                    name,
                    "recording damaged; its file is set aside"
                );
                self.recordings.failures = self.recordings.failures.saturating_add(1);
                self.put_vod(records, now, key, None);
            }
            RecordingOutcome::Failed(reason) => {
                tracing::error!(app = &*key.app, file = vod.file_path, reason, "recording not finished");
                self.recordings.failures = self.recordings.failures.saturating_add(1);
                self.try_again(now, Retry::Finish(key));
            }
        }
    }

    /// Marks a file as complete and playable.
    pub(super) fn recorded(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        hooks: &mut Hooks,
        now: Now,
        (key, vod): (Key, Vod),
        finished: Finished,
    ) {
        let Finished { bytes, duration_ms } = finished;
        tracing::info!(app = &*key.app, file = vod.file_path, duration_ms, bytes, "recorded");
        let vod = Vod { creation_date: wall(now), unfinished: false, ..vod }.finished(finished);
        let vod = cx.to_be_kept(&key, vod);
        let stream = StreamKey::new(&key.app, vod.stream_id.as_deref().unwrap_or_default());
        hooks.hook_vod_ready(cx, records, now, &stream, &vod);
        self.put_vod(records, now, key.clone(), Some(vod));
        self.keep_object(cx, records, now, key);
        if self.recordings.sweep.due.is_some() {
            self.recordings.sweep.due = now.mono.checked_add(SETTLED);
        }
    }
}

impl Context {
    /// Removes a file on this machine, then calls `then` with the reason if the file could not be removed. Returns
    /// false, without calling `then`, if the job cannot be started.
    pub(in crate::control) fn remove_local_then(
        &mut self,
        app: &Arc<str>,
        path: Vec<String>,
        then: impl FnOnce(&mut Control, Now, Option<String>) + Send + 'static,
    ) -> bool {
        let work = Work::Recording(RecordingWork::Remove { path });
        self.submit_for(app, work, move |control, now, outcome| {
            let failure = match outcome.recording() {
                RecordingOutcome::Failed(reason) => Some(reason),
                RecordingOutcome::Removed
                | RecordingOutcome::Empty
                | RecordingOutcome::Finished(_)
                | RecordingOutcome::SetAside(_)
                | RecordingOutcome::Found(_) => None,
            };
            then(control, now, failure);
        })
    }
}

impl AuxiliaryRecords {
    /// Returns the playable files of an application, oldest first.
    pub(in crate::control) fn vods<'a>(&'a self, app: &Arc<str>) -> impl Iterator<Item = &'a Vod> + use<'a> {
        self.of(Kind::Vod, app, "").filter_map(|(_, record)| match record {
            Auxiliary::Vod(vod) if !vod.unfinished => Some(vod),
            Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        })
    }
}
