//! Recordings that an earlier life of the server has left unfinished.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Control;
use super::names::stream_of;
use crate::control::records::auxiliary::{Auxiliary, Vod};
use crate::jobs::{RecordingOutcome, RecordingWork, Work};
use crate::mail::ToWorker;
use crate::types::{Now, StreamKey, WorkerId};

impl Control {
    /// Finishes what was recorded, forgets what was uploaded, and has the first look for old recordings.
    pub(in crate::control) fn boot_recordings(&mut self, now: Now) {
        let unfinished = self.records.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(vod) if vod.unfinished && self.access.cluster.has_file(vod) => {
                Some((key.clone(), vod.clone()))
            }
            Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        });
        let is_upload = |(_, vod): &(_, Vod)| vod.kind.as_deref() == Some(Vod::UPLOADED);
        let (uploads, recordings): (Vec<_>, Vec<_>) = unfinished.partition(is_upload);
        // Their records go, and with them what tells their files from recordings.
        let uploaded: BTreeSet<_> = uploads.iter().map(|(key, vod)| vod.path(&key.app)).collect();
        let apps = self.cx.apps.keys().map(ToString::to_string).collect();
        let sent = self.cx.submit(Work::Recording(RecordingWork::Find { apps }), |control, _, outcome| {
            control.leftovers_found(uploaded, outcome.recording());
        });
        self.files.recordings.held = sent.then(Vec::new);
        // Nobody was told that they are there.
        uploads.into_iter().for_each(|(key, _)| self.drop_upload(now, &key));
        recordings.into_iter().for_each(|(key, _)| self.finish_file(now, key));
        self.remove_old_recordings(now);
    }

    /// Tells a worker of a recording, once it may begin.
    pub(super) fn post_recording(&mut self, worker: WorkerId, mail: ToWorker) {
        match &mut self.files.recordings.held {
            Some(held) => held.push((worker, mail)),
            None => self.cx.post(worker, mail),
        }
    }

    fn leftovers_found(&mut self, uploaded: BTreeSet<Vec<String>>, outcome: RecordingOutcome) {
        if let RecordingOutcome::Found(found) = outcome {
            self.finish_leftovers(uploaded, found);
        } else {
            tracing::error!(?outcome, "unfinished recordings cannot be looked for");
        }
        for (worker, mail) in self.files.recordings.held.take().unwrap_or_default() {
            self.cx.post(worker, mail);
        }
    }

    /// Finishes the files that have no record: a crash came between the two.
    fn finish_leftovers(&mut self, uploaded: BTreeSet<Vec<String>>, found: Vec<Vec<String>>) {
        let mut known = uploaded;
        known.extend(self.records.auxiliary.all().filter_map(|(key, record)| match record {
            Auxiliary::Vod(vod) => Some(vod.path(&key.app)),
            Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
        }));
        let unknown: Vec<_> = found.into_iter().filter(|path| !known.contains(path)).collect();
        for path in unknown {
            let work = Work::Recording(RecordingWork::Finish { path: path.clone() });
            let file = path.join("/");
            let sent = self.cx.submit(work, move |control, now, outcome| {
                control.leftover_finished(now, &path, outcome.recording());
            });
            if !sent {
                tracing::warn!(file, "an unfinished recording waits for the next start: too many jobs wait");
            }
        }
    }

    /// Its record is made when it can be played: until then the next start finds the file again.
    fn leftover_finished(&mut self, now: Now, path: &[String], outcome: RecordingOutcome) {
        let Some((app, below)) = path.split_first() else { return };
        let file = below.join("/");
        let finished = match outcome {
            RecordingOutcome::Finished(finished) => finished,
            RecordingOutcome::Failed(reason) => {
                return tracing::error!(app, file, reason, "an unfinished recording cannot be finished");
            }
            RecordingOutcome::SetAside(name) => {
                return tracing::error!(
                    app,
                    file,
                    name,
                    "an unfinished recording is damaged; it is set aside"
                );
            }
            RecordingOutcome::Empty | RecordingOutcome::Removed | RecordingOutcome::Found(_) => {
                return tracing::info!(app, file, "nothing was recorded");
            }
        };
        let app: Arc<str> = app.as_str().into();
        if !self.cx.apps.contains_key(&app) {
            return;
        }
        let is_broadcast = |id: &str| self.records.get(&StreamKey::new(&app, id)).is_some();
        let stream = below.last().map(|name| stream_of(name, is_broadcast));
        let id = self.vod_id(now);
        let vod = Vod {
            vod_name: below.last().cloned(),
            stream_id: stream,
            file_path: Some(file),
            vod_id: Some(id.clone()),
            kind: Some(Vod::RECORDED.to_owned()),
            ..Vod::default()
        };
        self.recorded(now, Vod::key(&app, &id), vod, finished);
    }
}
