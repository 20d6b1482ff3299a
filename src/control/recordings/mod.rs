//! Recordings of live streams (docs/recording.md).
//!
//! 1. A stream goes live whose broadcast or application wants it, or a call begins one: the worker of its publisher gets the
//!    order, and its sink writes files.
//! 2. A file that begins is a record of the store at once, which nobody sees: whatever happens to the server, the file is
//!    found again.
//! 3. A file that nothing more is written to is finished by a job. Then its record becomes visible, and the hook
//!    `vodReady` is called.
//! 4. What a crash has left unfinished is finished at the next start: files of records, and those whose record was not on the
//!    disk yet. No recording begins before those are found, or else it could be one of them.
//! 5. A recording that fails is tried again while the stream is live; a file that cannot be finished, too. So is a record that
//!    the store did not take: a full disk is full for both.

mod files;
mod leftovers;
mod names;
mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(in crate::control) use self::names::stream_of;
use self::rooms::{RoomClock, participants, room_of};
use super::answer::Outcome;
use super::broadcast::Broadcast;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;
use super::records::auxiliary::Vod;
use super::{Control, wall};
use crate::config::AppSettings;
use crate::control::Files;
use crate::control::live::Registry;
use crate::mail::{ClipRange, RecordingNews, RecordingOrder, ToWorker};
use crate::protocol::Container;
use crate::store;
use crate::types::{Now, RecordingId, StreamId, StreamKey, WorkerId};

/// Pause before a failed step is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// Clips of an application that are written at a time.
const CLIPS_MAX: usize = 4;
/// The sink of clips.
const CLIP: &str = "clip";
/// Characters of the number of a file.
const ID_DIGITS: u64 = 100_000_000_000;

/// A recording under way.
#[derive(Debug)]
struct Recording {
    key: StreamKey,
    container: Container,
    /// The name that a caller wanted.
    name: Option<String>,
    stream: StreamId,
    worker: WorkerId,
    /// The time at which it was ordered, in Unix milliseconds.
    began: i64,
    /// The id of its first file.
    vod: String,
    /// Files that have begun: the first has the id above.
    files: u32,
    /// True if it was asked to end, or ends by itself.
    stopped: bool,
    /// True if it is a clip.
    is_clip: bool,
    /// The caller who wants to hear whether a clip has begun.
    waiter: Option<Requester>,
    /// The recording of the room that the stream is in.
    room: Option<RoomClock>,
}

/// A recording that is to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin<'a> {
    /// The form of its file.
    pub(super) container: Container,
    /// The name that a caller wants.
    pub(super) name: Option<&'a str>,
    /// The time of a clip, and the caller, who is answered when it has begun.
    pub(super) clip: Option<(ClipRange, Requester)>,
}

/// A step that failed and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Retry {
    /// A recording that failed, and the name that was wanted.
    Start(StreamKey, Container, Option<String>),
    /// A file that could not be finished.
    Finish(store::Key),
    /// A record that may not be in the store.
    Save(store::Key),
    /// An upload that is not complete, whose file could not be removed.
    Drop(store::Key),
}

/// A file that is written.
#[derive(Debug)]
struct Writing {
    recording: RecordingId,
    /// Its record.
    key: store::Key,
}

/// All recordings.
#[derive(Debug, Default)]
pub(super) struct Recordings {
    by_id: BTreeMap<RecordingId, Recording>,
    /// The files that are written, by path.
    writing: BTreeMap<Vec<String>, Writing>,
    /// Records that the store was not seen to have.
    unsaved: BTreeMap<store::Key, Vod>,
    /// Streams whose records have changed, until the whole commit is in them.
    changed: BTreeSet<StreamKey>,
    /// Live streams that are not recorded because `record.max_streams` are.
    refused: BTreeSet<StreamKey>,
    ordered: u64,
    /// The time in the newest id.
    newest_id_ms: u64,
    /// Mail for workers that waits until the files of an earlier life of the server are found.
    held: Option<Vec<(WorkerId, ToWorker)>>,
    retries: BTreeSet<(Instant, Retry)>,
    /// The time of the next search for old recordings.
    sweep_due: Option<Instant>,
    windows: leftovers::Windows,
    /// Old recordings whose files were removed on a full disk, before their records.
    removed_while_full: BTreeSet<store::Key>,
    /// Recordings and files that failed since the start.
    failures: u64,
}

/// The outcome of a call that begins or ends a recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Begun, or ended: its first file's id and when it began, in Unix milliseconds.
    Done { vod: String, began: i64 },
    /// A recording is under way already.
    Already,
    /// Nothing can be recorded.
    Refused,
}

impl Recordings {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Recordings that were not asked to end, with their streams, containers and workers.
    pub(super) fn all(&self) -> impl Iterator<Item = (RecordingId, &StreamKey, Container, WorkerId)> {
        let running = self.by_id.iter().filter(|(_, one)| !one.stopped);
        running.map(|(id, one)| (*id, &one.key, one.container, one.worker))
    }

    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// The number of recordings under way of each application that has any, by one walk over all.
    pub(super) fn counts(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for one in self.by_id.values().filter(|one| !one.stopped) {
            let count: &mut usize = counts.entry(&one.key.app).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Recordings under way of an application: stream, container, and when each was ordered, in Unix milliseconds.
    pub(super) fn under_way<'a>(
        &'a self,
        app: &'a str,
    ) -> impl Iterator<Item = (&'a StreamKey, Container, i64)> {
        let of_app = self.by_id.values().filter(move |one| *one.key.app == *app && !one.stopped);
        of_app.map(|one| (&one.key, one.container, one.began))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry = self.retries.first().map(|(at, _)| *at);
        [retry, self.sweep_due].into_iter().flatten().min()
    }

    /// Clips of an application that are written.
    fn clips(&self, app: &str) -> usize {
        self.by_id.values().filter(|one| one.is_clip && *one.key.app == *app).count()
    }

    /// The recording of a stream that was not ordered to end.
    fn of_stream(&self, stream: StreamId, container: Container) -> Option<RecordingId> {
        let is_of = |(id, recording): (&RecordingId, &Recording)| {
            let is_it = (recording.stream, recording.container) == (stream, container);
            (is_it && !recording.stopped).then_some(*id)
        };
        self.by_id.iter().find_map(is_of)
    }
}

/// True if a stream is recorded in a container: its own record says so, or else that of its room or its application.
fn is_wanted(
    container: Container,
    record: &Broadcast,
    room: Option<&Broadcast>,
    settings: &AppSettings,
) -> bool {
    let switch = |record: &Broadcast| match container {
        Container::Mp4 => record.mp4_enabled,
        Container::WebM => record.webm_enabled,
    };
    let of_app = match container {
        Container::Mp4 => settings.recording.always,
        Container::WebM => settings.recording.always_webm,
    };
    let own = switch(record);
    own > 0 || own == 0 && (of_app || room.is_some_and(|room| switch(room) > 0))
}

/// The recordings at one time, with the live streams that they follow.
#[derive(Debug)]
pub(super) struct Recorder<'a> {
    pub(super) cx: &'a mut Context,
    pub(super) records: &'a mut Records,
    pub(super) registry: &'a Registry,
    pub(super) files: &'a mut Files,
    pub(super) now: Now,
}

impl Control {
    /// Borrows the parts that recordings need and change.
    pub(super) const fn recorder(&mut self, now: Now) -> Recorder<'_> {
        Recorder {
            cx: &mut self.cx,
            records: &mut self.records,
            registry: &self.registry,
            files: &mut self.files,
            now,
        }
    }
}

impl Files {
    /// The record of a stream has changed. What follows is done when all changes of the commit are in it: a change that is pending
    /// was acted on already.
    pub(in crate::control) fn recording_may_change(&mut self, key: StreamKey) {
        self.recordings.changed.insert(key);
    }

    /// Other streams of its application that are recorded, in whatever containers.
    fn recorded_beside(&self, key: &StreamKey) -> usize {
        let all = self.recordings.by_id.values().filter(|one| !one.is_clip).map(|recording| &recording.key);
        all.filter(|other| other.app == key.app && *other != key).collect::<BTreeSet<_>>().len()
    }

    /// The stream is over: nothing of it is recorded any more.
    pub(in crate::control) fn forget_refused_recording(&mut self, key: &StreamKey) {
        self.recordings.refused.remove(key);
    }

    /// Tries later to remove an upload that is not complete.
    pub(super) fn drop_upload_later(&mut self, now: Now, key: store::Key) {
        self.try_again(now, Retry::Drop(key));
    }

    fn try_again(&mut self, now: Now, retry: Retry) {
        if let Some(at) = now.mono.checked_add(RETRY) {
            self.recordings.retries.insert((at, retry));
        }
    }
}

impl Registry {
    /// True if a container has a place for what the publisher of a stream sends. `None`: that is not known yet.
    pub(in crate::control) fn carries(&self, stream: StreamId, container: Container) -> Option<bool> {
        let codecs = &self.get(&stream)?.received.figures.as_ref()?.codecs;
        (!codecs.is_empty()).then(|| container.records(codecs.iter().copied()))
    }
}

/// True if a call may have a live stream recorded in a container: its tracks must be known to fit.
pub(super) fn may_record(registry: &Registry, key: &StreamKey, container: Container) -> bool {
    let carries = |stream| registry.carries(stream, container);
    match container {
        Container::Mp4 => true,
        Container::WebM => registry.find(key).and_then(carries).unwrap_or(false),
    }
}

impl Control {
    /// News of a sink.
    pub(super) fn recording_news(&mut self, now: Now, id: RecordingId, news: RecordingNews) {
        match news {
            RecordingNews::Begun { path, first } => {
                self.files.file_begun(&mut self.cx, &mut self.records, now, id, (&path, first));
                let begun = self.files.recordings.by_id.get_mut(&id);
                if let Some(recording) = begun
                    && let Some(requester) = recording.waiter.take()
                {
                    let answer = Outcome::success().data_id(&recording.vod).response(200);
                    self.cx.answer(requester, answer);
                }
            }
            RecordingNews::Ended { path } => self.files.file_ended(&mut self.cx, &self.records, now, &path),
            RecordingNews::Over(reason) => self.recording_over(now, id, &reason),
        }
    }

    fn recording_over(&mut self, now: Now, id: RecordingId, reason: &str) {
        let Some(recording) = self.files.recordings.by_id.remove(&id) else { return };
        // A sink that panicked has not told the end of its file.
        let of_it =
            |(path, writing): (&Vec<String>, &Writing)| (writing.recording == id).then(|| path.clone());
        for path in self.files.recordings.writing.iter().filter_map(of_it).collect::<Vec<_>>() {
            self.files.file_ended(&mut self.cx, &self.records, now, &path);
        }
        let key = recording.key;
        if let Some(requester) = recording.waiter {
            self.cx.answer(requester, Outcome::failure(reason).response(200));
        }
        self.recorder(now).recording_has_room(&key.app);
        if recording.stopped || self.registry.find(&key) != Some(recording.stream) {
            tracing::info!(%key, reason, files = recording.files, "recording ended");
            return;
        }
        tracing::warn!(%key, reason, "recording failed; retrying");
        self.files.recordings.failures = self.files.recordings.failures.saturating_add(1);
        self.hooks.hook_recording_failed(&mut self.cx, &self.records, now, &key, reason);
        self.files.try_again(now, Retry::Start(key, recording.container, recording.name));
    }
}

impl Files {
    /// Ends the recording of a live stream.
    pub(super) fn stop_recording(
        &mut self,
        cx: &mut Context,
        registry: &Registry,
        key: &StreamKey,
        container: Container,
    ) -> Recorded {
        let of_stream = |stream| self.recordings.of_stream(stream, container);
        let id = registry.find(key).and_then(of_stream);
        let Some(id) = id else { return Recorded::Refused };
        self.end_recording(cx, id);
        match self.recordings.by_id.get(&id) {
            Some(recording) => Recorded::Done { vod: recording.vod.clone(), began: recording.began },
            None => Recorded::Refused,
        }
    }

    fn end_recording(&mut self, cx: &mut Context, id: RecordingId) {
        let Some(recording) = self.recordings.by_id.get_mut(&id) else { return };
        recording.stopped = true;
        let worker = recording.worker;
        self.post_recording(cx, worker, ToWorker::StopRecording(id));
    }

    /// An id of 24 digits, of which the first are the time. Ids are in the order of their making, also when the wall clock is
    /// set back: the first of them is the oldest file.
    pub(super) fn vod_id(&mut self, cx: &mut Context, now: Now) -> String {
        let newest = &mut self.recordings.newest_id_ms;
        *newest = if now.wall_ms < *newest { newest.saturating_add(1) } else { now.wall_ms };
        format!("{newest:013}{:011}", cx.random.below(ID_DIGITS))
    }
}

impl Recorder<'_> {
    /// Looks at the recordings whose records have changed. False when there were none.
    pub(super) fn reconcile_recordings(&mut self) -> bool {
        let changed = std::mem::take(&mut self.files.recordings.changed);
        changed.iter().for_each(|key| self.reconcile_recording(key));
        !changed.is_empty()
    }

    /// The settings of an application have changed: its live streams are recorded as they say now.
    pub(super) fn reconcile_recordings_of(&mut self, app: &str) {
        let live: Vec<StreamKey> = self.registry.of_app(app).map(|(_, live)| live.key.clone()).collect();
        live.iter().for_each(|key| self.reconcile_recording(key));
    }

    /// Begins or ends the recordings of a live stream as its record, with what is pending of it, and its tracks say; of a room those of
    /// its participants.
    pub(super) fn reconcile_recording(&mut self, key: &StreamKey) {
        for key in [key.clone()].into_iter().chain(participants(self.records, self.registry, key)) {
            Container::ALL.into_iter().for_each(|container| self.reconcile(&key, (container, None)));
        }
    }

    fn reconcile(&mut self, key: &StreamKey, (container, name): (Container, Option<&str>)) {
        let Some(stream) = self.registry.find(key) else { return };
        let (Some(record), Some(settings)) = (self.records.pending(key), self.cx.apps.get(&key.app)) else {
            return;
        };
        let room = room_of(self.records, settings, key);
        let room = room.and_then(|room| self.records.pending(&room));
        // A copy is recorded where its publisher is.
        let is_wanted = is_wanted(container, record, room, settings)
            && !self.registry.get(&stream).is_some_and(crate::control::live::Live::is_copy);
        // While its tracks are not known, its sink waits for them: nothing of the beginning is lost.
        let is_possible = self.registry.carries(stream, container).unwrap_or(true);
        match self.files.recordings.of_stream(stream, container) {
            None if is_wanted && is_possible => {
                drop(self.start_recording(key, Begin { container, name, clip: None }));
            }
            Some(id) if !is_wanted || !is_possible => {
                if is_wanted {
                    let container = container.name();
                    tracing::info!(%key, container, "stream not recorded: the container cannot hold its tracks");
                }
                self.files.end_recording(self.cx, id);
            }
            None | Some(_) => {}
        }
    }

    /// A stream of an application is recorded no more: those that `record.max_streams` refused are looked at again.
    fn recording_has_room(&mut self, app: &str) {
        let of_app = self.files.recordings.refused.range(StreamKey::new(app, "")..);
        let refused: Vec<StreamKey> = of_app.take_while(|key| &*key.app == app).cloned().collect();
        for key in refused {
            self.files.recordings.refused.remove(&key);
            self.reconcile_recording(&key);
        }
    }

    pub(super) fn fire_recordings(&mut self) {
        while let Some((at, retry)) = self.files.recordings.retries.first().cloned() {
            if at > self.now.mono {
                break;
            }
            self.files.recordings.retries.pop_first();
            match retry {
                Retry::Start(key, container, name) => self.reconcile(&key, (container, name.as_deref())),
                Retry::Finish(key) => self.files.finish_file(self.cx, self.records, self.now, key),
                Retry::Save(key) => self.files.save_again(self.cx, self.records, self.now, key),
                Retry::Drop(key) => self.files.drop_upload(self.cx, self.records, self.now, &key),
            }
        }
        if self.files.recordings.sweep_due.is_some_and(|due| due <= self.now.mono) {
            self.files.remove_old_recordings(self.cx, self.records, self.now);
        }
    }

    /// Begins to record a live stream, or to write a clip of it.
    pub(super) fn start_recording(
        &mut self,
        key: &StreamKey,
        Begin { container, name, clip }: Begin<'_>,
    ) -> Recorded {
        let Some(stream) = self.registry.find(key) else { return Recorded::Refused };
        if clip.is_some() && self.files.recordings.clips(&key.app) >= CLIPS_MAX {
            return Recorded::Refused;
        }
        if clip.is_none() && self.files.recordings.of_stream(stream, container).is_some() {
            return Recorded::Already;
        }
        let Some(settings) = self.cx.apps.get(&key.app).cloned() else { return Recorded::Refused };
        let is_full =
            settings.recording.streams_max.is_some_and(|max| self.files.recorded_beside(key) >= max);
        if clip.is_none() && is_full {
            tracing::warn!(%key, "stream not recorded: record.max_streams reached");
            self.files.recordings.refused.insert(key.clone());
            return Recorded::Refused;
        }
        let Some(worker) = self.registry.get(&stream).map(|live| live.source().worker) else {
            return Recorded::Refused;
        };
        let (folder, stem) = self.records.recording_place(self.now, key, name, &settings.recording);
        self.files.recordings.ordered = self.files.recordings.ordered.saturating_add(1);
        let recording = RecordingId(self.files.recordings.ordered);
        let (vod, began) = (self.files.vod_id(self.cx, self.now), wall(self.now));
        let files = 0;
        let room = room_of(self.records, &settings, key).filter(|_| clip.is_none());
        let room = room.map(|room| self.files.recordings.clock_of(self.now, room, &vod));
        let entry = Recording {
            key: key.clone(),
            container,
            name: name.map(str::to_owned),
            stream,
            worker,
            began,
            vod: vod.clone(),
            files,
            stopped: clip.is_some(),
            is_clip: clip.is_some(),
            waiter: clip.map(|(_, requester)| requester),
            room,
        };
        self.files.recordings.by_id.insert(recording, entry);
        let (file_ms_max, file_bytes_max) =
            (settings.recording.file_ms_max, settings.recording.file_bytes_max);
        let kind = if clip.is_some() { CLIP } else { container.name() };
        let clip = clip.map(|(range, _)| range);
        let order =
            RecordingOrder { recording, kind, stream, folder, stem, file_ms_max, file_bytes_max, clip };
        self.files.post_recording(self.cx, worker, ToWorker::StartRecording(Box::new(order)));
        Recorded::Done { vod, began }
    }
}
