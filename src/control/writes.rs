//! Changes on their way to the disk.
//!
//! A change is gathered (at most 5 ms, or while a commit is under way), committed as part of one batch, and only
//! then applied to memory and answered. Requests that come in between are checked against an overlay of what is
//! pending. What publishing changes is visible at once and rides along later (`dirty`). When a commit fails, all
//! that is pending fails with it, memory stays, and a fresh file is written from memory; until that has worked,
//! every write fails (docs/robustness.md B-04).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::http::Response;
use crate::mail::StreamEnd;
use crate::store::{self, Op};
use crate::types::{Now, SessionRef, StreamKey};

use super::answer::Outcome;
use super::auxiliary::AuxiliaryWrite;
use super::broadcast::{Body, Broadcast, EndpointRecord, Recorder, status};
use super::{Control, Output};

/// How long changes are gathered when no commit is under way.
const GATHER: Duration = Duration::from_millis(2);
/// How long a change by publishing may wait for company.
const LAZY: Duration = Duration::from_millis(1000);
/// Pause between attempts to write a fresh file.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);
/// Lazy changes taken into one batch.
const DIRTY_PER_BATCH: usize = 512;

/// One change of one record.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Insert(Box<Broadcast>),
    Update {
        body: Box<Body>,
        endpoints: Option<Vec<EndpointRecord>>,
    },
    AddEndpoint(EndpointRecord),
    RemoveEndpoint(String),
    /// A recording switch.
    Record {
        recorder: Recorder,
        on: bool,
    },
    Delete,
}

impl Change {
    /// The record after the change. Applied twice: for the overlay, and after the commit to what memory is then.
    fn apply(&self, before: Option<Broadcast>) -> Option<Broadcast> {
        let mut record = match (self, before) {
            (Self::Insert(record), _) => return Some((**record).clone()),
            (Self::Delete, _) | (_, None) => return None,
            (_, Some(record)) => record,
        };
        match self {
            Self::Insert(_) | Self::Delete => {}
            Self::Update { body, endpoints } => {
                update_status(&mut record, body);
                record.update((**body).clone());
                if let Some(endpoints) = endpoints {
                    record.end_point_list = Some(merge_endpoints(&record, endpoints));
                }
            }
            Self::AddEndpoint(endpoint) => {
                record.end_point_list.get_or_insert_default().push(endpoint.clone());
            }
            Self::RemoveEndpoint(id) => {
                record.end_point_list.get_or_insert_default().retain(|e| e.endpoint_service_id != *id);
            }
            Self::Record { recorder, on } => {
                let switch = if *on { 1 } else { -1 };
                match recorder {
                    Recorder::Mp4 => record.mp4_enabled = switch,
                    Recorder::Webm => record.webm_enabled = switch,
                }
            }
        }
        Some(record)
    }
}

impl Change {
    /// Whether a source that runs begins anew: after an update, whatever it changed. Into which room a
    /// stream goes is an operation of its own.
    fn restarts_source(&self) -> bool {
        let Self::Update { body, .. } = self else { return false };
        let room = Body { main_track_stream_id: body.main_track_stream_id.clone(), ..Body::default() };
        room.main_track_stream_id.is_none() || **body != room
    }
}

/// The status is a client's to set only while nothing is live, and only of a live stream's record.
fn update_status(record: &mut Broadcast, body: &Body) {
    if let Some(Some(wanted)) = &body.status
        && record.kind == "liveStream"
        && record.status != status::BROADCASTING
        && status::ALL.contains(&wanted.as_str())
        && wanted != status::BROADCASTING
        && wanted != status::PREPARING
    {
        record.status.clone_from(wanted);
    }
}

/// A replaced list keeps the status of what stays.
fn merge_endpoints(record: &Broadcast, wanted: &[EndpointRecord]) -> Vec<EndpointRecord> {
    let old = record.end_point_list.as_deref().unwrap_or_default();
    let same = |w: &EndpointRecord| {
        let same = |o: &&EndpointRecord| {
            o.endpoint_service_id == w.endpoint_service_id && o.endpoint_url == w.endpoint_url
        };
        old.iter().find(same).unwrap_or(w).clone()
    };
    wanted.iter().map(same).collect()
}

/// What to answer once the change is there.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// The record.
    Created,
    /// A plain success.
    Success,
    /// A success whose message and id are null.
    SuccessOfNulls,
    /// A plain failure: an earlier part of a bulk request worked, a later one could not.
    Failure,
    /// Of a delete; the words depend on whether something was live.
    Deleted,
    /// The id of an endpoint.
    EndpointAdded(String),
    /// The id of a source that runs by then.
    Started,
    /// A source that could not be started; its record is gone again.
    NotStarted(String),
}

/// A change and who waits for it.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) key: StreamKey,
    pub(super) change: Change,
    pub(super) waiter: Option<(SessionRef, Answer)>,
}

/// What waits for the disk.
#[derive(Debug)]
enum Pending {
    Record(Write),
    Auxiliary(AuxiliaryWrite),
}

impl Pending {
    fn waiter(&self) -> Option<SessionRef> {
        match self {
            Self::Record(write) => write.waiter.as_ref().map(|(session, _)| *session),
            Self::Auxiliary(write) => write.waiter.as_ref().map(|(session, _)| *session),
        }
    }
}

/// After a failed commit.
#[derive(Debug, Default)]
struct Broken {
    /// The rebuild under way.
    batch: Option<u64>,
    /// When to try the next one.
    due: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Writes {
    gathered: Vec<Pending>,
    gather_until: Option<Instant>,
    committing: Option<(u64, Vec<Pending>)>,
    overlay: BTreeMap<StreamKey, Option<Broadcast>>,
    inserts: usize,
    dirty: BTreeSet<StreamKey>,
    dirty_until: Option<Instant>,
    broken: Option<Broken>,
    batches: u64,
    failures: u64,
}

impl Writes {
    pub(super) fn deadline(&self) -> Option<Instant> {
        if let Some(broken) = &self.broken {
            return broken.due;
        }
        if self.committing.is_some() {
            return None;
        }
        [self.gather_until, self.dirty_until].into_iter().flatten().min()
    }

    /// Whether nothing waits for the disk; a broken store is not waited for.
    pub(super) fn is_flushed(&self) -> bool {
        self.broken.is_some()
            || (self.gathered.is_empty() && self.committing.is_none() && self.dirty.is_empty())
    }

    /// Whether the disk has failed and no change is taken.
    pub(super) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Records that will be there soon.
    pub(super) const fn inserts(&self) -> usize {
        self.inserts
    }

    /// Commits that failed since the start.
    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Changes that wait for the disk.
    pub(super) fn waiting(&self) -> usize {
        let committing = self.committing.as_ref().map_or(0, |(_, writes)| writes.len());
        self.gathered.len().saturating_add(committing)
    }

    fn next_batch(&mut self) -> u64 {
        self.batches += 1;
        self.batches
    }
}

impl Control {
    /// The record as it will be once everything pending is done.
    pub(super) fn pending(&self, key: &StreamKey) -> Option<&Broadcast> {
        match self.storage.writes.overlay.get(key) {
            Some(record) => record.as_ref(),
            None => self.records.get(key),
        }
    }

    /// Whether a change of the record is on its way to the disk.
    pub(super) fn is_pending(&self, key: &StreamKey) -> bool {
        self.storage.writes.overlay.contains_key(key)
    }

    /// Gathers a change that was checked against [`Control::pending`].
    pub(super) fn write(&mut self, now: Now, write: Write) {
        if matches!(write.change, Change::Insert(_)) && self.storage.writes.broken.is_none() {
            self.storage.writes.inserts += 1;
        }
        self.gather(now, Pending::Record(write));
    }

    /// Gathers changes of other records, checked against [`super::auxiliary::AuxiliaryRecords::pending`].
    pub(super) fn write_auxiliary(&mut self, now: Now, write: AuxiliaryWrite) {
        self.gather(now, Pending::Auxiliary(write));
    }

    fn gather(&mut self, now: Now, pending: Pending) {
        if self.storage.writes.broken.is_some() {
            self.fail(pending.waiter());
            return;
        }
        self.stage(&pending);
        if self.storage.writes.gathered.is_empty() {
            self.storage.writes.gather_until = now.mono.checked_add(GATHER);
        }
        self.storage.writes.gathered.push(pending);
    }

    /// Makes a change part of what is pending.
    fn stage(&mut self, pending: &Pending) {
        match pending {
            Pending::Record(write) => {
                let after = write.change.apply(self.pending(&write.key).cloned());
                self.storage.writes.overlay.insert(write.key.clone(), after);
            }
            Pending::Auxiliary(write) => self.storage.auxiliary.stage(&write.changes),
        }
    }

    fn unstage(&mut self) {
        self.storage.writes.overlay.clear();
        self.storage.auxiliary.unstage();
    }

    /// Remembers that a record changed in memory and shall reach the disk some time.
    pub(super) fn mark_dirty(&mut self, now: Now, key: StreamKey) {
        if self.storage.writes.dirty.is_empty() {
            self.storage.writes.dirty_until = now.mono.checked_add(LAZY);
        }
        self.storage.writes.dirty.insert(key);
    }

    pub(super) fn fire_writes(&mut self, now: Now) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now.mono);
        if let Some(broken) = &mut self.storage.writes.broken {
            if due(broken.due) {
                self.rebuild();
            }
        } else if due(self.storage.writes.gather_until) || due(self.storage.writes.dirty_until) {
            self.flush_now(now);
        }
    }

    /// Sends what is gathered, unless a commit is under way.
    pub(super) fn flush_now(&mut self, now: Now) {
        if self.storage.writes.committing.is_some() || self.storage.writes.broken.is_some() {
            return;
        }
        let gathered = std::mem::take(&mut self.storage.writes.gathered);
        self.storage.writes.gather_until = None;
        let mut keys = BTreeSet::new();
        let mut sides = BTreeSet::new();
        for pending in &gathered {
            match pending {
                Pending::Record(write) => drop(keys.insert(write.key.clone())),
                Pending::Auxiliary(write) => sides.extend(write.changes.iter().map(|(key, _)| key.clone())),
            }
        }
        while keys.len() < gathered.len().saturating_add(DIRTY_PER_BATCH) {
            let Some(key) = self.storage.writes.dirty.pop_first() else { break };
            keys.insert(key);
        }
        self.storage.writes.dirty_until =
            if self.storage.writes.dirty.is_empty() { None } else { Some(now.mono) };
        if keys.is_empty() && sides.is_empty() {
            // Answers that waited for the last commit.
            self.apply_all(now, gathered);
            return;
        }
        let ops = keys.into_iter().map(|key| match self.pending(&key) {
            // A record made by publishing alone lives in memory only; it ends with its stream.
            Some(record) if !record.zombi => Op::Put(key.clone().into(), record.encode()),
            Some(_) | None => Op::Delete(key.into()),
        });
        let sides = sides.into_iter().map(|key| match self.storage.auxiliary.pending(&key) {
            Some(record) => Op::Put(key.clone(), record.encode()),
            None => Op::Delete(key),
        });
        let ops: Vec<Op> = ops.chain(sides).collect();
        let batch = self.storage.writes.next_batch();
        self.storage.writes.committing = Some((batch, gathered));
        self.outbox.outputs.push_back(Output::Store(store::Request::Commit { batch, ops }));
    }

    pub(super) fn stored(&mut self, now: Now, reply: store::Reply) {
        if self.storage.writes.broken.as_ref().is_some_and(|broken| broken.batch == Some(reply.batch)) {
            self.rebuilt(now, reply);
            return;
        }
        let Some((_, writes)) = self.storage.writes.committing.take_if(|(batch, _)| *batch == reply.batch)
        else {
            return;
        };
        if let Err(error) = reply.result {
            tracing::debug!(%error, "commit failed");
            self.commit_failed(writes);
            return;
        }
        self.unstage();
        self.apply_all(now, writes);
        // What was gathered meanwhile is pending on top of the new memory.
        let gathered = std::mem::take(&mut self.storage.writes.gathered);
        for pending in &gathered {
            self.stage(pending);
        }
        self.storage.writes.gathered = gathered;
        if !self.storage.writes.gathered.is_empty() || self.drain.is_some() {
            self.flush_now(now);
        }
    }

    fn apply_all(&mut self, now: Now, writes: Vec<Pending>) {
        for pending in writes {
            match pending {
                Pending::Record(write) => self.apply(now, write),
                Pending::Auxiliary(write) => self.apply_auxiliary(now, write),
            }
        }
    }

    fn commit_failed(&mut self, writes: Vec<Pending>) {
        self.storage.writes.failures += 1;
        self.unstage();
        self.storage.writes.inserts = 0;
        self.storage.writes.gather_until = None;
        self.storage.writes.dirty_until = None;
        let gathered = std::mem::take(&mut self.storage.writes.gathered);
        for pending in writes.into_iter().chain(gathered) {
            self.fail(pending.waiter());
        }
        self.rebuild();
    }

    /// Everything in memory is written afresh. This is the one long turn of control; it follows a disk failure.
    fn rebuild(&mut self) {
        let batch = self.storage.writes.next_batch();
        self.storage.writes.dirty.clear();
        self.storage.writes.broken = Some(Broken { batch: Some(batch), due: None });
        let all = self.records.all().filter(|(_, record)| !record.zombi);
        let all = all.map(|(key, record)| (key.into(), record.encode()));
        let sides = self.storage.auxiliary.all().map(|(key, record)| (key.clone(), record.encode()));
        let all = all.chain(sides).collect();
        self.outbox.outputs.push_back(Output::Store(store::Request::Rebuild { batch, all }));
    }

    fn rebuilt(&mut self, now: Now, reply: store::Reply) {
        match reply.result {
            Ok(()) => {
                self.storage.writes.broken = None;
                self.storage.writes.dirty_until = (!self.storage.writes.dirty.is_empty()).then_some(now.mono);
            }
            Err(error) => {
                tracing::debug!(%error, "rebuild failed");
                self.storage.writes.failures += 1;
                self.storage.writes.broken =
                    Some(Broken { batch: None, due: now.mono.checked_add(REBUILD_PAUSE) });
            }
        }
    }

    fn fail(&mut self, waiter: Option<SessionRef>) {
        if let Some(session) = waiter {
            self.answer(session, Outcome::failure("The datastore is not available").response(500));
        }
    }

    /// The change is on disk: now it happens.
    fn apply(&mut self, now: Now, write: Write) {
        let Write { key, change, waiter } = write;
        if matches!(change, Change::Insert(_)) {
            self.storage.writes.inserts = self.storage.writes.inserts.saturating_sub(1);
        }
        let live = self.stream_of(&key);
        let runs = self.sources.is_running(&key);
        let before = self.records.get(&key).cloned();
        let existed = before.is_some();
        let main_before = self.main_track_of(&key);
        match change.apply(before) {
            Some(mut record) => {
                self.keep_live_members(now, &key, &mut record);
                self.records.insert(key.clone(), record);
                self.reconcile_pushes(now, &key);
                self.review_viewers(&key);
                if runs && change.restarts_source() {
                    self.restart_source(now, &key);
                }
            }
            None => {
                // The end is told with what the record says.
                if !self.stop_source(now, &key, StreamEnd::Deleted)
                    && let (Some(stream), Change::Delete) = (live, &change)
                {
                    self.end_stream(now, stream, StreamEnd::Deleted);
                }
                self.forget_idle(&key);
                self.records.remove(&key);
            }
        }
        for main in [main_before, self.main_track_of(&key)].into_iter().flatten() {
            self.follow_subtracks(now, &main);
        }
        self.note_auto_start(&key);
        if let Some((session, answer)) = waiter {
            let Some(answer) = self.started(now, session, &key, answer) else { return };
            let response = self.answer_of(now, &key, answer, existed, live.is_some() || runs);
            self.answer(session, response);
        }
    }

    /// Starts the source of a record that was made for it. When it cannot be, the record goes again, and the answer
    /// waits for that.
    fn started(&mut self, now: Now, session: SessionRef, key: &StreamKey, answer: Answer) -> Option<Answer> {
        if !matches!(answer, Answer::Started) {
            return Some(answer);
        }
        let Err(reason) = self.begin_source(now, key) else { return Some(answer) };
        let answer = Answer::NotStarted(reason);
        if self.is_live(key) {
            // Somebody has published to it since; that is not ours to end.
            return Some(answer);
        }
        let waiter = Some((session, answer));
        self.write(now, Write { key: key.clone(), change: Change::Delete, waiter });
        None
    }

    /// A record that is created while someone publishes under its id by chance takes over the live figures.
    fn keep_live_members(&self, now: Now, key: &StreamKey, record: &mut Broadcast) {
        let Some(old) = self.records.get(key).filter(|old| old.zombi && !record.zombi) else { return };
        record.status.clone_from(&old.status);
        record.publish_type.clone_from(&old.publish_type);
        record.start_time = old.start_time;
        record.update_time = super::wall(now);
    }

    fn answer_of(&self, now: Now, key: &StreamKey, answer: Answer, existed: bool, live: bool) -> Response {
        match answer {
            Answer::Created => match self.records.get(key) {
                Some(record) => Response::json(200, record.to_json(now.wall_ms)),
                None => Outcome::failure("Stream id set generated exception").response(400),
            },
            // A record that publishing made may have ended meanwhile.
            Answer::Success | Answer::SuccessOfNulls | Answer::EndpointAdded(_) if !existed => {
                Outcome::failure("").response(200)
            }
            Answer::SuccessOfNulls => Outcome::success().message(None).no_data_id().response(200),
            Answer::Success => Outcome::success().response(200),
            Answer::Failure => Outcome::failure("").response(200),
            Answer::Deleted if live => Outcome::success()
                .message(Some("broadcast is deleted and stopped successfully"))
                .response(200),
            Answer::Deleted => {
                Outcome::success().message(Some("broadcast is deleted but could not stopped ")).response(200)
            }
            Answer::Started => Outcome::success().data_id(&key.id).response(200),
            Answer::NotStarted(reason) => Outcome::failure(&reason).error_id(-4).response(200),
            Answer::EndpointAdded(id) => Outcome::success().message(None).data_id(&id).response(200),
        }
    }
}
