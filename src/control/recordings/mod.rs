//! Recordings of live streams (docs/recording.md).
//!
//! 1. A recording begins when a stream goes live whose broadcast or application wants it, or when a call asks for it:
//!    the publisher's worker gets the order, and its sink writes files.
//! 2. Each file gets a record in the store as soon as it begins, hidden from the API. The file is therefore found again
//!    whatever happens to the server.
//! 3. When a file is complete, a job finishes it. Then its record becomes visible, and the hook `vodReady` is called.
//! 4. Files left unfinished by a crash are finished at the next start: those with records, and those whose record had
//!    not reached the disk. No recording begins before the search for unfinished files is over, because the search
//!    could mistake the file of a new recording for an unfinished one.
//! 5. A failed recording is retried while its stream is live. Finishing a file and storing a record are retried too,
//!    because a full disk affects all three.

mod files;
mod leftovers;
mod names;
mod rooms;
mod taken;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(in crate::control) use self::names::stream_of;
use self::rooms::{RoomClock, participants, room_of};
use self::taken::OldFile;
use super::answer::Outcome;
use super::broadcast::Broadcast;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;
use super::records::auxiliary::Vod;
use super::removals::Removals;
use super::{Control, wall};
use crate::config::AppSettings;
use crate::control::Files;
use crate::control::live::Registry;
use crate::mail::{ClipRange, RecordingNews, RecordingOrder, ToWorker};
use crate::protocol::Container;
use crate::store;
use crate::types::{Now, RecordingId, StreamId, StreamKey, WallClock, WorkerId};

/// Pause before a failed step is retried.
const RETRY: Duration = Duration::from_secs(30);
/// Maximum pause between two attempts to remove a file. The pause is doubled with each failure.
const REMOVAL_PAUSE_MAX: Duration = Duration::from_secs(1800);
/// Time that each waiting removal adds to the pause before a removal is retried, so that not all are due in one turn.
const REMOVAL_SPACING: Duration = Duration::from_millis(1);
/// Maximum number of clips of an application that are written at the same time.
const CLIPS_MAX: usize = 4;
/// Name of the sink for clips.
const CLIP: &str = "clip";
/// Number of values of the random part of a file's id, which has 11 digits.
const ID_DIGITS: u64 = 100_000_000_000;

/// A recording under way.
#[derive(Debug)]
struct Recording {
    key: StreamKey,
    container: Container,
    /// File name requested by the caller.
    name: Option<String>,
    stream: StreamId,
    worker: WorkerId,
    /// Time at which a worker was asked to begin the recording, in Unix milliseconds.
    began: i64,
    /// Id of the first file.
    vod: String,
    /// Number of files begun; the id of the first is `vod`.
    files: u32,
    /// True if the worker was asked to end the recording, or the recording ends by itself.
    stopped: bool,
    /// True for a clip.
    is_clip: bool,
    /// API client that requested the clip; it is answered once the clip's file begins or the clip fails.
    waiter: Option<Requester>,
    /// Clock of the room's recording, if the stream is in a room.
    room: Option<RoomClock>,
}

/// Parameters of a recording that is to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin<'a> {
    /// File format.
    pub(super) container: Container,
    /// File name requested by the caller.
    pub(super) name: Option<&'a str>,
    /// For a clip: its time range, and the caller, who is answered when the file begins.
    pub(super) clip: Option<(ClipRange, Requester)>,
}

/// A failed step that will be retried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Retry {
    /// Start a failed recording again, with its requested file name.
    Start(StreamKey, Container, Option<String>),
    /// Try again to finish a file.
    Finish(store::Key),
    /// Store a record that may not be in the store.
    Save(store::Key),
    /// Remove the file of an incomplete upload.
    Drop(store::Key),
}

/// A file being written.
#[derive(Debug)]
struct Writing {
    recording: RecordingId,
    /// Key of the file's record.
    key: store::Key,
}

/// State of the removal of recordings.
#[derive(Debug, Default)]
struct Sweep {
    /// Time of the next search for old recordings.
    due: Option<Instant>,
    /// The wall clock, as the searches saw it.
    wall_clock: WallClock,
    /// Records of old recordings that are still to be removed. The disk was full, so their files were removed first.
    removed_while_full: BTreeSet<store::Key>,
    /// Paths of files whose removal is under way or waits for another attempt. Their names are not given to new files.
    removing: BTreeSet<Vec<String>>,
}

/// All recordings.
#[derive(Debug, Default)]
pub(super) struct Recordings {
    by_id: BTreeMap<RecordingId, Recording>,
    /// Files being written, by path.
    writing: BTreeMap<Vec<String>, Writing>,
    /// Records not yet known to be stored.
    unsaved: BTreeMap<store::Key, Vod>,
    /// Streams with changed records, handled once the whole commit has been applied.
    changed: BTreeSet<StreamKey>,
    /// Live streams that are not recorded because `record.max_streams` was reached.
    refused: BTreeSet<StreamKey>,
    ordered: u64,
    /// Time contained in the newest file id, in Unix milliseconds.
    newest_id_ms: u64,
    /// Messages to workers, held back until the files of the server's earlier runs are found; `None` afterwards.
    held: Option<Vec<(WorkerId, ToWorker)>>,
    retries: BTreeSet<(Instant, Retry)>,
    /// Files to remove, whose records are removed.
    removals: Removals<OldFile>,
    sweep: Sweep,
    windows: leftovers::Windows,
    /// Files that an older process of this server may still write or upload.
    postponed: BTreeSet<store::Key>,
    /// Number of failed recordings and files since the start.
    failures: u64,
}

/// The outcome of a call that starts or stops a recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Started or stopped: id of the first file, and start time in Unix milliseconds.
    Done { vod: String, began: i64 },
    /// A recording is under way already.
    Already,
    /// No recording could be started, or there is none to stop.
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

    /// Returns the number of files whose removal waits, and the number of failed attempts since the start.
    pub(super) fn removals(&self) -> (usize, u64) {
        (self.removals.len(), self.removals.failures())
    }

    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the records that are not yet known to be stored.
    pub(super) fn unsaved(&self) -> impl Iterator<Item = (&store::Key, &Vod)> {
        self.unsaved.iter()
    }

    /// Number of running recordings per application, for all applications that have any.
    pub(super) fn counts(&self) -> BTreeMap<&Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for one in self.by_id.values().filter(|one| !one.stopped) {
            let count: &mut usize = counts.entry(&one.key.app).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Running recordings of an application: stream, container, and the time at which a worker was asked to begin, in
    /// Unix milliseconds.
    pub(super) fn under_way<'a>(
        &'a self,
        app: &'a str,
    ) -> impl Iterator<Item = (&'a StreamKey, Container, i64)> {
        let of_app = self.by_id.values().filter(move |one| *one.key.app == *app && !one.stopped);
        of_app.map(|one| (&one.key, one.container, one.began))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry = self.retries.first().map(|(at, _)| *at);
        [retry, self.sweep.due, self.removals.deadline()].into_iter().flatten().min()
    }

    /// Number of clips of an application being written.
    fn clips(&self, app: &str) -> usize {
        self.by_id.values().filter(|one| one.is_clip && *one.key.app == *app).count()
    }

    /// Returns the recording of a stream in a container, unless the worker was asked to end it.
    fn of_stream(&self, stream: StreamId, container: Container) -> Option<RecordingId> {
        let is_of = |(id, recording): (&RecordingId, &Recording)| {
            let is_it = (recording.stream, recording.container) == (stream, container);
            (is_it && !recording.stopped).then_some(*id)
        };
        self.by_id.iter().find_map(is_of)
    }
}

/// True if a stream should be recorded in a container. The stream's own record decides. If that record does not say,
/// the stream is recorded if its application or the record of its room wants it.
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

/// The recordings, borrowed together with the live streams that they follow.
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
    /// Notes that the record of a stream has changed, so that its recordings are reconciled once the whole commit has
    /// been applied. This changes nothing if they were reconciled already while the change was pending.
    pub(in crate::control) fn recording_may_change(&mut self, key: StreamKey) {
        self.recordings.changed.insert(key);
    }

    /// Number of other streams of the same application that are being recorded, in any container.
    fn recorded_beside(&self, key: &StreamKey) -> usize {
        let all = self.recordings.by_id.values().filter(|one| !one.is_clip).map(|recording| &recording.key);
        all.filter(|other| other.app == key.app && *other != key).collect::<BTreeSet<_>>().len()
    }

    /// Forgets that a stream was refused a recording, because the stream has ended.
    pub(in crate::control) fn forget_refused_recording(&mut self, key: &StreamKey) {
        self.recordings.refused.remove(key);
    }

    /// Schedules another attempt to remove an incomplete upload.
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
    /// True if a container can hold the tracks of a stream's publisher. `None` while these tracks are unknown.
    pub(in crate::control) fn carries(&self, stream: StreamId, container: Container) -> Option<bool> {
        let codecs = &self.get(&stream)?.received.figures.as_ref()?.codecs;
        (!codecs.is_empty()).then(|| container.records(codecs.iter().copied()))
    }
}

/// True if an API call may start recording a live stream in a container. For WebM, the stream's tracks must be known to
/// fit.
pub(super) fn may_record(registry: &Registry, key: &StreamKey, container: Container) -> bool {
    let carries = |stream| registry.carries(stream, container);
    match container {
        Container::Mp4 => true,
        Container::WebM => registry.find(key).and_then(carries).unwrap_or(false),
    }
}

impl Control {
    /// Handles news of a recording's sink.
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
        // A sink that panicked has not reported the end of its file, so the file is ended here.
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
    /// Stops the recording of a live stream.
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

    /// Makes an id of 24 digits that starts with the time. Ids increase even if the wall clock is set back, so the
    /// smallest id belongs to the oldest file.
    pub(super) fn vod_id(&mut self, cx: &mut Context, now: Now) -> String {
        let newest = &mut self.recordings.newest_id_ms;
        *newest = if now.wall_ms < *newest { newest.saturating_add(1) } else { now.wall_ms };
        format!("{newest:013}{:011}", cx.random.below(ID_DIGITS))
    }
}

impl Recorder<'_> {
    /// Reconciles the recordings of streams with changed records. Returns false if there are none.
    pub(super) fn reconcile_recordings(&mut self) -> bool {
        let changed = std::mem::take(&mut self.files.recordings.changed);
        changed.iter().for_each(|key| self.reconcile_recording(key));
        !changed.is_empty()
    }

    /// Applies changed settings of an application to the recordings of its live streams.
    pub(super) fn reconcile_recordings_of(&mut self, app: &str) {
        let live: Vec<StreamKey> = self.registry.of_app(app).map(|(_, live)| live.key.clone()).collect();
        live.iter().for_each(|key| self.reconcile_recording(key));
    }

    /// Starts or stops the recordings of a live stream according to its tracks and its record, including pending
    /// changes of the record. If the stream is a room, does the same for its participants.
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
        // A stream copied from another node is recorded where its publisher is.
        let is_wanted = is_wanted(container, record, room, settings)
            && !self.registry.get(&stream).is_some_and(crate::control::live::Live::is_copy);
        // While the tracks are unknown, start the recording anyway: its sink waits for the tracks, so no media are
        // lost.
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

    /// Reconsiders the streams of an application that `record.max_streams` had refused, since a recording has ended.
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
        while let Some(removal) = self.files.recordings.removals.take_due(self.now.mono) {
            self.files.remove_path(self.cx, self.records, self.now, removal);
        }
        if self.files.recordings.sweep.due.is_some_and(|due| due <= self.now.mono) {
            self.files.remove_old_recordings(self.cx, self.records, self.now);
        }
    }

    /// Starts recording a live stream, or writing a clip of it.
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
        let name_of_first = format!("{stem}.{}", container.name());
        let number = self.files.free_number(self.records, &key.app, &folder, &name_of_first);
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
        let order = RecordingOrder {
            recording,
            kind,
            stream,
            folder,
            stem,
            number,
            file_ms_max,
            file_bytes_max,
            clip,
        };
        self.files.post_recording(self.cx, worker, ToWorker::StartRecording(Box::new(order)));
        Recorded::Done { vod, began }
    }
}
