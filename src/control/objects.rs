//! Files that are kept in object storage (`s3RecordingEnabled`, docs/vod.md).
//!
//! 1. A file that is complete is a record that says it is to be uploaded ([`Kept::Wanted`]), in the same commit.
//! 2. A job uploads it, and what fails is tried again after pauses that grow; a restart begins anew with what records say.
//! 3. When it is there the record says so ([`Kept::There`]), and the local file goes, unless the settings keep it.
//! 4. A record that is removed takes its object along.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Control;
use super::records::auxiliary::{Auxiliary, Kept, Vod};
use crate::config::S3Settings;
use crate::jobs::{Class, ObjectAction, ObjectOutcome, ObjectWork, Outcome, Work};
use crate::store::Key;
use crate::types::Now;

/// The pause after the first failure; each further one doubles it.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// How often the removal of an object is tried.
const REMOVALS: u32 = 8;

/// What is uploaded, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Objects {
    under_way: BTreeSet<Key>,
    /// What waits, by when it is due.
    due: BTreeSet<(Instant, Key)>,
    /// How often each has failed.
    failed: BTreeMap<Key, u32>,
    /// Objects to be removed: the storage, the name, and how often it has failed.
    removals: Vec<(Instant, Arc<S3Settings>, String, u32)>,
    uploaded: u64,
    failures: u64,
}

impl Objects {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let removal = self.removals.iter().map(|(at, ..)| *at).min();
        // What waits for a thread is looked at when one is free.
        let upload = self.due.first().map(|(at, _)| *at).filter(|_| self.has_room());
        [upload, removal].into_iter().flatten().min()
    }

    fn has_room(&self) -> bool {
        self.under_way.len() < Class::Object.limits().threads
    }

    /// Files that wait to be uploaded, or are.
    pub(super) fn waiting(&self) -> usize {
        self.due.len().saturating_add(self.under_way.len())
    }

    /// Files uploaded, and attempts that failed, since the start.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.uploaded, self.failures)
    }
}

fn pause(failed: u32) -> Duration {
    PAUSE.saturating_mul(2u32.saturating_pow(failed.saturating_sub(1).min(16))).min(PAUSE_MAX)
}

/// The name of a file's object: its path with the folder of the settings in place of the local one.
fn name_of(storage: &S3Settings, vod: &Vod) -> String {
    let path = vod.file_path.as_deref().unwrap_or_default();
    let below = path.split_once('/').map_or(path, |(_, below)| below);
    if storage.folder.is_empty() { below.to_owned() } else { format!("{}/{below}", storage.folder) }
}

impl Control {
    /// The record of a file that has become complete, with whether it is to be uploaded.
    pub(super) fn to_be_kept(&self, key: &Key, vod: Vod) -> Vod {
        let storage = self.apps.get(&key.app).and_then(|app| app.vod.s3.as_ref());
        Vod { kept: storage.map(|storage| Kept::Wanted { name: name_of(storage, &vod) }), ..vod }
    }

    /// What the store says is still to be uploaded.
    pub(super) fn boot_objects(&mut self, now: Now) {
        let wanted = self.records.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(Vod { unfinished: false, kept: Some(Kept::Wanted { .. }), .. }) => {
                Some(key.clone())
            }
            Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        });
        let wanted: Vec<_> = wanted.map(|key| (now.mono, key)).collect();
        self.files.objects.due.extend(wanted);
    }

    /// A file is complete; it is uploaded when its record says so.
    pub(super) fn keep_object(&mut self, now: Now, key: Key) {
        if self.vod_of(&key).is_some_and(|vod| matches!(vod.kept, Some(Kept::Wanted { .. }))) {
            self.files.objects.due.insert((now.mono, key));
            self.fire_objects(now);
        }
    }

    pub(super) fn fire_objects(&mut self, now: Now) {
        while let Some((_, key)) = self.files.objects.due.first().filter(|(at, _)| *at <= now.mono).cloned() {
            if !self.files.objects.has_room() {
                break;
            }
            self.files.objects.due.pop_first();
            self.upload_object(now, key);
        }
        let (due, later) = std::mem::take(&mut self.files.objects.removals)
            .into_iter()
            .partition(|(at, ..)| *at <= now.mono);
        self.files.objects.removals = later;
        let due: Vec<(Instant, Arc<S3Settings>, String, u32)> = due;
        for (_, storage, name, failed) in due {
            self.remove_object(now, storage, name, failed);
        }
    }

    fn upload_object(&mut self, now: Now, key: Key) {
        let Some(vod) = self.vod_of(&key) else { return };
        let Some(Kept::Wanted { name }) = vod.kept.clone() else { return };
        let path = vod.path(&key.app);
        let Some(storage) = self.apps.get(&key.app).and_then(|app| app.vod.s3.clone()) else {
            // It was switched off. The record still says what is wanted.
            return;
        };
        let work = ObjectWork {
            storage: Arc::clone(&storage),
            name: name.clone(),
            action: ObjectAction::Put { path },
        };
        let (of, at) = (key.clone(), key.clone());
        let sent = self.submit(Work::Object(work), move |control, now, outcome| {
            control.files.objects.under_way.remove(&of);
            control.object_uploaded(now, of, storage, name, outcome);
            control.fire_objects(now);
        });
        if sent {
            self.files.objects.under_way.insert(at);
        } else {
            self.object_failed(now, at, "too many jobs wait");
        }
    }

    fn object_uploaded(
        &mut self,
        now: Now,
        key: Key,
        storage: Arc<S3Settings>,
        name: String,
        outcome: Outcome,
    ) {
        let outcome = outcome.object();
        let Some(vod) = self.vod_of(&key).cloned() else {
            // It was removed meanwhile, and nobody wants its object.
            if outcome == ObjectOutcome::Done {
                self.remove_object(now, storage, name, 0);
            }
            self.files.objects.failed.remove(&key);
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
                self.files.objects.uploaded = self.files.objects.uploaded.saturating_add(1);
                self.files.objects.failed.remove(&key);
                self.put_vod(now, key, Some(Vod { kept: Some(Kept::There { name }), ..vod }));
            }
            ObjectOutcome::NoFile => {
                tracing::warn!(app = &*key.app, file = vod.file_path, "not uploaded to S3: the file is gone");
                self.files.objects.failed.remove(&key);
                self.put_vod(now, key, Some(Vod { kept: None, ..vod }));
            }
            ObjectOutcome::Failed(reason) => self.object_failed(now, key, &reason),
        }
    }

    /// The store has a record: once it says that the object is there, the local file goes.
    pub(super) fn kept_recorded(
        &mut self,
        key: &Key,
        before: Option<&Auxiliary>,
        record: Option<&Auxiliary>,
    ) {
        let (Some(Auxiliary::Vod(before)), Some(Auxiliary::Vod(vod))) = (before, record) else { return };
        let is_new = before.kept != vod.kept && matches!(vod.kept, Some(Kept::There { .. }));
        let storage = self.apps.get(&key.app).and_then(|app| app.vod.s3.as_ref());
        if is_new && storage.is_some_and(|storage| !storage.keeps_local) {
            self.remove_local(&key.app, vod);
        }
    }

    fn object_failed(&mut self, now: Now, key: Key, reason: &str) {
        self.files.objects.failures = self.files.objects.failures.saturating_add(1);
        let failed = self.files.objects.failed.entry(key.clone()).or_default();
        *failed = failed.saturating_add(1);
        let pause = pause(*failed);
        tracing::warn!(
            app = &*key.app,
            vod = &*key.id,
            reason,
            seconds = pause.as_secs(),
            "an upload to S3 failed; it is tried again"
        );
        if let Some(at) = now.mono.checked_add(pause) {
            self.files.objects.due.insert((at, key));
        }
    }

    /// Removes the object of a record that is removed.
    pub(super) fn drop_object(&mut self, now: Now, app: &str, vod: &Vod) {
        // One that is on its way goes when it has come.
        let Some(Kept::There { name }) = &vod.kept else { return };
        match self.apps.get(app).and_then(|app| app.vod.s3.clone()) {
            Some(storage) => self.remove_object(now, storage, name.clone(), 0),
            None => tracing::warn!(app, object = name, "an object stays: s3RecordingEnabled is off"),
        }
    }

    fn remove_object(&mut self, now: Now, storage: Arc<S3Settings>, name: String, failed: u32) {
        let work =
            ObjectWork { storage: Arc::clone(&storage), name: name.clone(), action: ObjectAction::Remove };
        let again = (Arc::clone(&storage), name.clone());
        let sent = self.submit(Work::Object(work), move |control, now, outcome| {
            if let ObjectOutcome::Failed(reason) = outcome.object() {
                tracing::warn!(object = name, reason, "an object cannot be removed from S3");
                control.remove_later(now, storage, name, failed.saturating_add(1));
            }
        });
        if !sent {
            self.remove_later(now, again.0, again.1, failed.saturating_add(1));
        }
    }

    fn remove_later(&mut self, now: Now, storage: Arc<S3Settings>, name: String, failed: u32) {
        if failed >= REMOVALS {
            tracing::error!(
                bucket = storage.bucket,
                object = name,
                "an object stays in S3: it could not be removed"
            );
        } else if let Some(at) = now.mono.checked_add(pause(failed)) {
            self.files.objects.removals.push((at, storage, name, failed));
        }
    }
}
