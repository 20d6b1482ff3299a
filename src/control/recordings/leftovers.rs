//! Recordings left unfinished by an earlier run of the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::names::stream_of;
use crate::config::AppSettings;
use crate::control::Files;
use crate::control::cluster::Cluster;
use crate::control::context::Context;
use crate::control::hooks::Hooks;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, Kept, Vod};
use crate::jobs::{ArchiveWork, DvrWork, RecordingOutcome, RecordingWork, Work};
use crate::mail::ToWorker;
use crate::protocol::sinks;
use crate::store::Key;
use crate::types::{Now, StreamKey, WorkerId};

/// Pause between two searches for the DVR folders of ended streams that can no longer be replayed.
const WINDOWS: Duration = Duration::from_secs(60);

/// State of the searches for the DVR folders of ended streams that can no longer be replayed.
#[derive(Debug, Default)]
pub(super) enum Windows {
    /// No search has been started.
    #[default]
    Unseen,
    /// A search is in progress; it takes as long as the disk needs.
    UnderWay,
    /// The last search ended at this time.
    Seen(Instant),
}

/// True if the record is that of a file that is being written or uploaded.
const fn is_under_way(record: &Auxiliary) -> bool {
    match record {
        Auxiliary::Vod(vod) => vod.unfinished || matches!(vod.kept, Some(Kept::Wanted { .. })),
        Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => false,
    }
}

impl Files {
    /// At the start, finishes the recordings and removes the uploads that an earlier run of the server left
    /// incomplete. Then searches for old recordings.
    pub(in crate::control) fn boot_recordings(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        cluster: &Cluster,
        now: Now,
    ) {
        if cluster.has_other() {
            // The files belong to the process that this one takes over from.
            let under_way = records.auxiliary.all().filter(|(_, record)| is_under_way(record));
            self.recordings.postponed = under_way.map(|(key, _)| key.clone()).collect();
            return self.remove_old_recordings(cx, records, now);
        }
        let unfinished = records.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(vod) if vod.unfinished && cluster.has_file(vod) => {
                Some((key.clone(), vod.clone()))
            }
            Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        });
        let is_upload = |(_, vod): &(_, Vod)| vod.kind.as_deref() == Some(Vod::UPLOADED);
        let (uploads, recordings): (Vec<_>, Vec<_>) = unfinished.partition(is_upload);
        // The uploads' records are about to be deleted, and nothing but these records distinguishes their files from
        // recordings: remember the paths.
        let uploaded: BTreeSet<_> = uploads.iter().map(|(key, vod)| vod.path(&key.app)).collect();
        let apps = cx.apps.keys().map(ToString::to_string).collect();
        let sent = cx.submit(Work::Recording(RecordingWork::Find { apps }), |control, _, outcome| {
            control.files.leftovers_found(&mut control.cx, &control.records, uploaded, outcome.recording());
        });
        self.recordings.held = sent.then(Vec::new);
        // A separate job removes the DVR folders; recordings do not wait for this job.
        self.remove_windows(cx, now);
        // No client has got an answer about these uploads, so they can be dropped.
        uploads.into_iter().for_each(|(key, _)| self.drop_upload(cx, records, now, &key));
        recordings.into_iter().for_each(|(key, _)| self.finish_file(cx, records, now, key));
        self.remove_old_recordings(cx, records, now);
    }

    /// Notes a record that the other process of this server has changed: whether it has a file under way, which is left
    /// to this process if the other one ends.
    pub(in crate::control) fn note_postponed(&mut self, key: &Key, record: Option<&Auxiliary>) {
        if record.is_some_and(is_under_way) {
            self.recordings.postponed.insert(key.clone());
        } else {
            self.recordings.postponed.remove(key);
        }
    }

    /// Finishes the files that another process of this server had not finished when it ended.
    pub(in crate::control) fn finish_postponed(&mut self, cx: &mut Context, records: &Records, now: Now) {
        for key in std::mem::take(&mut self.recordings.postponed) {
            let Some(Auxiliary::Vod(vod)) = records.auxiliary.get(&key) else { continue };
            match vod.unfinished {
                true if vod.kind.as_deref() == Some(Vod::UPLOADED) => {
                    self.drop_upload(cx, records, now, &key)
                }
                true => self.finish_file(cx, records, now, key),
                false => self.keep_object(cx, records, now, key),
            }
        }
    }

    /// Posts an order about a recording to a worker, or holds the order back while files of earlier runs are searched
    /// for.
    pub(super) fn post_recording(&mut self, cx: &mut Context, worker: WorkerId, mail: ToWorker) {
        match &mut self.recordings.held {
            Some(held) => held.push((worker, mail)),
            None => cx.post(worker, mail),
        }
    }

    /// Removes the DVR folders of ended streams that can no longer be replayed. One search runs at a time, with a pause
    /// of [`WINDOWS`] between two. After the first search, only applications that keep DVR folders are searched.
    pub(in crate::control) fn remove_windows(&mut self, cx: &mut Context, now: Now) {
        match self.recordings.windows {
            Windows::UnderWay => return,
            Windows::Seen(at) if now.mono.saturating_duration_since(at) < WINDOWS => return,
            Windows::Seen(_) | Windows::Unseen => {}
        }
        let is_first = matches!(self.recordings.windows, Windows::Unseen);
        let keeps = |app: &str, settings: &AppSettings| sinks::forgets(app, settings, "").next().is_some();
        let apps = cx.apps.iter().filter(|(app, settings)| is_first || keeps(app, settings));
        let apps: Vec<String> = apps.map(|(app, _)| app.to_string()).collect();
        if apps.is_empty() {
            self.recordings.windows = Windows::Seen(now.mono);
            return;
        }
        let work = Work::Archive(ArchiveWork::Dvr(DvrWork::Sweep { apps }));
        let sent = cx.submit(work, |control, now, _| {
            control.files.recordings.windows = Windows::Seen(now.mono);
        });
        if sent {
            self.recordings.windows = Windows::UnderWay;
        }
    }

    fn leftovers_found(
        &mut self,
        cx: &mut Context,
        records: &Records,
        uploaded: BTreeSet<Vec<String>>,
        outcome: RecordingOutcome,
    ) {
        if let RecordingOutcome::Found(found) = outcome {
            records.finish_leftovers(cx, uploaded, found);
        } else {
            tracing::error!(?outcome, "search for unfinished recordings failed");
        }
        for (worker, mail) in self.recordings.held.take().unwrap_or_default() {
            cx.post(worker, mail);
        }
    }
}

impl Records {
    /// Finishes the files that have no record because of a crash.
    fn finish_leftovers(&self, cx: &mut Context, uploaded: BTreeSet<Vec<String>>, found: Vec<Vec<String>>) {
        let mut known = uploaded;
        known.extend(self.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(vod) => Some(vod.path(&key.app)),
            Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        }));
        let unknown: Vec<_> = found.into_iter().filter(|path| !known.contains(path)).collect();
        for path in unknown {
            let work = Work::Recording(RecordingWork::Finish { path: path.clone() });
            let file = path.join("/");
            let app: Arc<str> = path.first().map_or("", String::as_str).into();
            let sent = cx.submit_for(&app, work, move |control, now, outcome| {
                control.files.leftover_finished(
                    &mut control.cx,
                    &mut control.records,
                    &mut control.hooks,
                    now,
                    &path,
                    outcome.recording(),
                );
            });
            if !sent {
                tracing::warn!(file, "unfinished recording left for the next start: the job queue is full");
            }
        }
    }
}

impl Files {
    /// Makes the record of a file that was found without a record. The record is made only when the file is playable;
    /// until then, each start of the server finds the file again.
    fn leftover_finished(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        hooks: &mut Hooks,
        now: Now,
        path: &[String],
        outcome: RecordingOutcome,
    ) {
        let Some((app, below)) = path.split_first() else { return };
        let file = below.join("/");
        let finished = match outcome {
            RecordingOutcome::Finished(finished) => finished,
            RecordingOutcome::Failed(reason) => {
                return tracing::error!(app, file, reason, "unfinished recording could not be completed");
            }
            RecordingOutcome::SetAside(name) => {
                return tracing::error!(
                    app,
                    file,
                    name,
                    "unfinished recording damaged; its file is set aside"
                );
            }
            RecordingOutcome::Empty | RecordingOutcome::Removed | RecordingOutcome::Found(_) => {
                return tracing::info!(app, file, "nothing was recorded");
            }
        };
        let app: Arc<str> = app.as_str().into();
        if !cx.apps.contains_key(&app) {
            return;
        }
        let is_broadcast = |id: &str| records.get(&StreamKey::new(&app, id)).is_some();
        let stream = below.last().map(|name| stream_of(name, is_broadcast));
        let id = self.vod_id(cx, now);
        let vod = Vod {
            vod_name: below.last().cloned(),
            stream_id: stream,
            file_path: Some(file),
            vod_id: Some(id.clone()),
            kind: Some(Vod::RECORDED.to_owned()),
            ..Vod::default()
        };
        self.recorded(cx, records, hooks, now, (Vod::key(&app, &id), vod), finished);
    }
}
