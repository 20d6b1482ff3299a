//! Files kept in object storage (`s3RecordingEnabled`, docs/vod.md).
//!
//! 1. The commit that stores the record of a completed file also marks the file for upload ([`Kept::Wanted`]).
//! 2. A job uploads the file. Failures are retried after growing pauses; after a restart, the records say what is left
//!    to do.
//! 3. After the upload the record says so ([`Kept::There`]), and the local file is removed, unless the settings keep
//!    it.
//! 4. When a record is removed, its object is removed too.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::context::Context;
use super::records::Records;
use super::records::auxiliary::{Auxiliary, Kept, Store, Uploaded, Vod};
use super::removals::{Removal, Removals, pause};
use crate::config::S3Settings;
use crate::control::Files;
use crate::jobs::shares::{Payer, Threads, Turn};
use crate::jobs::{Class, ObjectAction, ObjectOutcome, ObjectWork, Outcome, Work};
use crate::store::Key;
use crate::types::Now;

/// Pause between the first failed attempt to upload or remove an object and the next one; doubled with each further
/// failure.
const PAUSE: Duration = Duration::from_secs(5);
/// Maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Maximum number of attempts to remove an object.
const REMOVALS: u32 = 8;

/// Uploads to object storage, waiting and in progress.
#[derive(Debug)]
pub(super) struct Objects {
    threads: Threads,
    under_way: BTreeMap<Key, (Turn, Instant)>,
    /// Objects that are being uploaded, and the record of each. The upload continues if the record is removed meanwhile.
    uploading: BTreeMap<(Store, String), Key>,
    /// Waiting files, by application and due time.
    due: BTreeMap<Arc<str>, BTreeSet<(Instant, Key)>>,
    /// Files that wait until the settings of their application name an object storage again.
    parked: BTreeSet<Key>,
    /// Number of failures of each file.
    failed: BTreeMap<Key, u32>,
    removals: Removals<Object>,
    /// Objects whose removal is under way or waits for another attempt. Their names are not given to new objects.
    removing: BTreeSet<(Store, String)>,
    uploaded: u64,
    failures: u64,
}

/// An object to remove.
#[derive(Debug, Clone)]
struct Object {
    storage: Arc<S3Settings>,
    name: String,
    /// The record that named the object.
    own: Key,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            threads: Threads::new(Class::Object.limits().threads),
            under_way: BTreeMap::new(),
            uploading: BTreeMap::new(),
            due: BTreeMap::new(),
            parked: BTreeSet::new(),
            failed: BTreeMap::new(),
            removals: Removals::default(),
            removing: BTreeSet::new(),
            uploaded: 0,
            failures: 0,
        }
    }
}

impl Objects {
    pub(super) fn deadline(&self) -> Option<Instant> {
        // Uploads without a free thread set no deadline; they are started when a thread becomes free.
        let with_room = self.due.iter().filter(|(app, _)| self.threads.may_begin(&Payer::new(Some(app), "")));
        let upload = with_room.filter_map(|(_, due)| Some(due.first()?.0)).min();
        [upload, self.removals.deadline()].into_iter().flatten().min()
    }

    fn wait(&mut self, at: Instant, key: Key) {
        self.due.entry(Arc::clone(&key.app)).or_default().insert((at, key));
    }

    /// Takes the next due upload. Among the applications that may have one more upload in progress, the one with the
    /// fewest is chosen.
    fn next(&mut self, now: Instant) -> Option<Key> {
        let ready = self.due.iter().filter_map(|(app, due)| {
            let at = due.first().map(|(at, _)| *at).filter(|at| *at <= now)?;
            let may = self.threads.may_begin(&Payer::new(Some(app), ""));
            may.then(|| (self.threads.of_app(Some(app)), at, Arc::clone(app)))
        });
        let (.., app) = ready.min()?;
        let due = self.due.get_mut(&app)?;
        let (_, key) = due.pop_first()?;
        if due.is_empty() {
            self.due.remove(&app);
        }
        Some(key)
    }

    /// Number of files that wait to be uploaded or are being uploaded.
    pub(super) fn waiting(&self) -> usize {
        let due = self.due.values().map(BTreeSet::len).sum::<usize>();
        due.saturating_add(self.under_way.len())
    }

    /// True if further objects of an application may be removed.
    pub(super) fn has_room(&self, app: &str) -> bool {
        self.removals.has_room(app)
    }

    /// Returns the number of objects whose removal waits, and the number of failed attempts since the start.
    pub(super) fn removals(&self) -> (usize, u64) {
        (self.removals.len(), self.removals.failures())
    }

    /// Returns the number of uploaded files and the number of failed attempts since the start.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.uploaded, self.failures)
    }
}

/// Returns the name of a file's object: the file's path, with the folder from the settings instead of the local
/// folder.
fn name_of(storage: &S3Settings, vod: &Vod) -> String {
    let path = vod.file_path.as_deref().unwrap_or_default();
    let below = path.split_once('/').map_or(path, |(_, below)| below);
    if storage.folder.is_empty() { below.to_owned() } else { format!("{}/{below}", storage.folder) }
}

impl Files {
    fn end_upload_turn(&mut self, now: Now, key: &Key) {
        if let Some((turn, since)) = self.objects.under_way.remove(key) {
            self.objects.threads.end(turn, now.mono.saturating_duration_since(since));
        }
        self.objects.uploading.retain(|_, of| of != key);
    }

    fn object_failed(&mut self, now: Now, key: Key, reason: &str) {
        self.objects.failures = self.objects.failures.saturating_add(1);
        let failed = self.objects.failed.entry(key.clone()).or_default();
        *failed = failed.saturating_add(1);
        let pause = pause(PAUSE, PAUSE_MAX, *failed);
        tracing::warn!(
            app = &*key.app,
            vod = &*key.id,
            reason,
            seconds = pause.as_secs(),
            "upload to S3 failed; retrying"
        );
        if let Some(at) = now.mono.checked_add(pause) {
            self.objects.wait(at, key);
        }
    }

    fn remove_later(&mut self, now: Now, removal: Removal<Object>) {
        let left = if removal.failed >= REMOVALS {
            removal
        } else {
            let Some(at) = now.mono.checked_add(pause(PAUSE, PAUSE_MAX, removal.failed)) else { return };
            let Err(removal) = self.objects.removals.wait(at, removal) else { return };
            removal
        };
        let Removal { app, failed, target: Object { storage, name, .. } } = left;
        self.objects.removing.remove(&(Store::of(&storage), name.clone()));
        tracing::error!(
            app = &*app,
            bucket = storage.bucket,
            object = name,
            failed,
            "object not removed from S3; giving up"
        );
    }
}

impl Context {
    /// Returns the record of a completed file, marked for upload if the application has a storage.
    pub(super) fn to_be_kept(&self, key: &Key, vod: Vod) -> Vod {
        let storage = self.apps.get(&key.app).and_then(|app| app.vod.s3.as_ref());
        Vod { kept: storage.map(|storage| Kept::Wanted { name: name_of(storage, &vod).into() }), ..vod }
    }
}

impl Files {
    /// Removes the local file once the store's record says that the object exists.
    pub(super) fn kept_recorded(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        (key, before, record): (&Key, Option<&Auxiliary>, Option<&Auxiliary>),
    ) {
        let (Some(Auxiliary::Vod(before)), Some(Auxiliary::Vod(vod))) = (before, record) else { return };
        let is_new = before.kept != vod.kept && matches!(vod.kept, Some(Kept::There(_)));
        let storage = cx.apps.get(&key.app).and_then(|app| app.vod.s3.as_ref());
        if is_new && storage.is_some_and(|storage| !storage.keeps_local) {
            self.remove_local(cx, records, now, &key.app, vod);
        }
    }
}

impl Files {
    /// Queues the uploads that are still to be done according to the store.
    pub(super) fn boot_objects(&mut self, records: &Records, cluster: &Cluster, now: Now) {
        if cluster.has_other() {
            return;
        }
        let wanted = records.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(vod @ Vod { unfinished: false, kept: Some(Kept::Wanted { .. }), .. }) => {
                cluster.has_file(vod).then(|| key.clone())
            }
            Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        });
        let wanted: Vec<Key> = wanted.collect();
        wanted.into_iter().for_each(|key| self.objects.wait(now.mono, key));
    }

    /// Queues a completed file for upload, if its record says so.
    pub(super) fn keep_object(&mut self, cx: &mut Context, records: &Records, now: Now, key: Key) {
        if self.vod_of(records, &key).is_some_and(|vod| matches!(vod.kept, Some(Kept::Wanted { .. }))) {
            self.objects.wait(now.mono, key);
            self.fire_objects(cx, records, now);
        }
    }

    /// Queues the waiting files of an application, if its settings name an object storage now.
    pub(super) fn keep_objects_of(&mut self, cx: &mut Context, records: &Records, now: Now, app: &str) {
        if cx.apps.get(app).is_none_or(|app| app.vod.s3.is_none()) {
            return;
        }
        let of_app = |key: &&Key| &*key.app == app;
        for key in self.objects.parked.iter().filter(of_app).cloned().collect::<Vec<_>>() {
            self.objects.parked.remove(&key);
            self.objects.wait(now.mono, key);
        }
        self.fire_objects(cx, records, now);
    }

    pub(super) fn fire_objects(&mut self, cx: &mut Context, records: &Records, now: Now) {
        while let Some(key) = self.objects.next(now.mono) {
            self.upload_object(cx, records, now, key);
        }
        while let Some(removal) = self.objects.removals.take_due(now.mono) {
            self.remove_object(cx, records, now, removal);
        }
    }

    fn upload_object(&mut self, cx: &mut Context, records: &Records, now: Now, key: Key) {
        let Some(vod) = self.vod_of(records, &key) else { return };
        let Some(Kept::Wanted { name }) = &vod.kept else { return };
        let path = vod.path(&key.app);
        let Some(storage) = cx.apps.get(&key.app).and_then(|app| app.vod.s3.clone()) else {
            // Object storage was switched off. The record still asks for the upload, so the file waits until the
            // settings name a storage again.
            self.objects.parked.insert(key);
            return;
        };
        let name = self.free_object_name(cx, records, (&key, name), &storage);
        let work = ObjectWork {
            storage: Arc::clone(&storage),
            name: name.clone(),
            action: ObjectAction::Put { path },
        };
        let (of, at) = (key.clone(), key.clone());
        let place = (Store::of(&storage), name.clone());
        let sent = cx.submit_for(&key.app, Work::Object(work), move |control, now, outcome| {
            control.files.end_upload_turn(now, &of);
            control.files.object_uploaded(
                &mut control.cx,
                &mut control.records,
                now,
                of,
                (storage, name),
                outcome,
            );
            control.files.fire_objects(&mut control.cx, &control.records, now);
        });
        if sent {
            let turn = self.objects.threads.begin(Payer::new(Some(&at.app), ""));
            self.objects.uploading.insert(place, at.clone());
            self.objects.under_way.insert(at, (turn, now.mono));
        } else {
            self.object_failed(now, at, "the job queue is full");
        }
    }

    /// Removes the object of a removed record, from the storage to which it was uploaded.
    pub(super) fn drop_object(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        app: &Arc<str>,
        vod: &Vod,
    ) {
        // An object that is still being uploaded is removed after the upload.
        let Some(Kept::There(uploaded)) = &vod.kept else { return };
        let Uploaded { name, store } = &**uploaded;
        let (app_name, object) = (&**app, &**name);
        let Some(storage) = cx.apps.get(app).and_then(|app| app.vod.s3.clone()) else {
            let reason = "s3RecordingEnabled is off";
            return tracing::warn!(app = app_name, object, reason, "object not removed from S3");
        };
        if let Some(Store { endpoint, bucket }) =
            store.as_ref().filter(|store| **store != Store::of(&storage))
        {
            let reason = "the settings name another storage";
            return tracing::warn!(
                app = app_name,
                endpoint,
                bucket,
                object,
                reason,
                "object not removed from S3"
            );
        }
        let own = Vod::key(app, vod.vod_id.as_deref().unwrap_or_default());
        let object = Object { storage, name: name.to_string(), own };
        self.remove_object(cx, records, now, Removal::new(app, object));
    }

    /// Removes an object, unless another record names it.
    fn remove_object(&mut self, cx: &mut Context, records: &Records, now: Now, removal: Removal<Object>) {
        let Object { storage, name, own } = removal.target.clone();
        let place = (Store::of(&storage), name.clone());
        if self.is_object_of_other(cx, records, (&place.0, &name), &own) {
            tracing::info!(app = &*removal.app, object = name, "object kept: it belongs to another record");
            self.objects.removing.remove(&place);
            return;
        }
        self.objects.removing.insert(place.clone());
        let work = ObjectWork { storage, name, action: ObjectAction::Remove };
        let again = removal.clone();
        let sent = cx.submit_for(&removal.app, Work::Object(work), move |control, now, outcome| {
            if let ObjectOutcome::Failed(reason) = outcome.object() {
                let again = again.after_failure();
                let (object, failed) = (&*again.target.name, again.failed);
                tracing::warn!(app = &*again.app, object, failed, reason, "object not removed from S3");
                control.files.objects.removals.note_failure();
                control.files.remove_later(now, again);
            } else {
                control.files.objects.removing.remove(&place);
            }
        });
        if !sent {
            // Nothing was tried, so this is no failed attempt.
            self.remove_later(now, removal);
        }
    }

    fn object_uploaded(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        key: Key,
        (storage, name): (Arc<S3Settings>, String),
        outcome: Outcome,
    ) {
        let outcome = outcome.object();
        let Some(vod) = self.vod_of(records, &key).cloned() else {
            // The record was removed during the upload, so the uploaded object is removed too.
            if outcome == ObjectOutcome::Done {
                let object = Object { storage, name, own: key.clone() };
                self.remove_object(cx, records, now, Removal::new(&key.app, object));
            }
            self.objects.failed.remove(&key);
            return;
        };
        match outcome {
            ObjectOutcome::Done => {
                tracing::info!(
                    app = &*key.app,
                    file = vod.file_path,
                    bucket = storage.bucket,
                    object = name,
                    "uploaded to S3"
                );
                self.objects.uploaded = self.objects.uploaded.saturating_add(1);
                let uploaded = Uploaded { name: name.into(), store: Some(Store::of(&storage)) };
                self.objects.failed.remove(&key);
                self.put_vod(
                    records,
                    now,
                    key,
                    Some(Vod { kept: Some(Kept::There(Box::new(uploaded))), ..vod }),
                );
            }
            ObjectOutcome::NoFile => {
                tracing::warn!(
                    app = &*key.app,
                    file = vod.file_path,
                    "file not uploaded to S3: it no longer exists"
                );
                self.objects.failed.remove(&key);
                self.put_vod(records, now, key, Some(Vod { kept: None, ..vod }));
            }
            ObjectOutcome::Failed(reason) => self.object_failed(now, key, &reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Kind;

    #[test]
    fn q_16_storage_that_is_silent_holds_up_no_other_application_s_files() {
        let (now, mut objects) = (Instant::now(), Objects::default());
        let key = |app: &str, n: usize| Key { app: app.into(), kind: Kind::Vod, id: n.to_string().into() };
        (0..100).for_each(|n| objects.wait(now, key("a", n)));
        let mut taken = Vec::new();
        while let Some(next) = objects.next(now) {
            objects.threads.begin(Payer::new(Some(&next.app), ""));
            taken.push(next);
        }
        assert!(taken.len() <= 5 && taken.iter().all(|next| &*next.app == "a"), "{taken:?}");
        objects.wait(now, key("b", 0));
        assert_eq!(objects.next(now), Some(key("b", 0)));
        assert!(objects.next(now).is_none());
        assert_eq!(objects.waiting(), 100 - taken.len());
    }
}
