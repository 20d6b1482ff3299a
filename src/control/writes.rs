//! Effects of committed changes of records, and the answers to the requests that made the changes.

use super::context::Context;
use super::live::Registry;
use super::management::Management;
use super::{Control, Files, Output, rest};
use crate::control::records::Records;
use crate::http::Response;
use crate::jobs::{ArchiveWork, Work};
use crate::mail::StreamEnd;
use crate::protocol::sinks;
use crate::store::{self, Kind};
use crate::types::{Now, StreamKey};

use super::answer::Outcome;
use super::broadcast::Broadcast;
use super::mask::Requester;
use super::outgoing::Outgoing;
use super::records::{Answer, AuxiliaryWrite, Change, Event, Write};

impl Records {
    /// Keeps the live figures when a record is created under the id of a stream that is already published.
    fn keep_live_members(&self, now: Now, key: &StreamKey, record: &mut Broadcast) {
        let Some(old) = self.get(key).filter(|old| old.zombi && !record.zombi) else { return };
        record.status.clone_from(&old.status);
        record.publish_type.clone_from(&old.publish_type);
        record.start_time = old.start_time;
        record.touch(now);
    }
}

impl Files {
    /// Applies committed changes of auxiliary records.
    fn apply_auxiliary(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        management: &mut Management,
        now: Now,
        write: AuxiliaryWrite,
    ) {
        for (key, record) in write.changes {
            if key.kind == Kind::User {
                management.first_code = None;
                let verb = if record.is_some() { "saved" } else { "deleted" };
                tracing::info!(email = %key.id, "user {verb}");
            }
            let before = records.auxiliary.get(&key).cloned();
            management.end_sessions_of(before.as_ref(), record.as_ref());
            self.kept_recorded(cx, records, now, (&key, before.as_ref(), record.as_ref()));
            records.auxiliary.apply(key, record);
        }
        for (app, vod) in write.files {
            self.remove_file(cx, records, now, &app, &vod);
        }
        if let Some((requester, response)) = write.waiter
            && !self.upload_recorded(cx, records, now, requester.session())
        {
            cx.answer(requester, response);
        }
    }
}

impl Control {
    /// Completes the handling of an input: repeats the follow-up work of record changes until none is left.
    pub(super) fn end_turn(&mut self, now: Now) {
        self.follow(now);
        while self.recorder(now).reconcile_recordings() {
            self.follow(now);
        }
        self.access.tell_present(&self.records, &mut self.registry.cluster);
        self.hooks.exit_when_drained(&mut self.cx, &self.records);
    }

    /// Repeats the follow-up work of ended streams, failed attempts and record changes until none is left.
    fn follow(&mut self, now: Now) {
        loop {
            self.follow_ends(now);
            self.follow_records(now);
            if !self.follow_failures(now) && self.registry.ended.is_empty() {
                break;
            }
        }
    }

    /// Handles an answer of the store.
    pub fn handle_store(&mut self, now: Now, reply: store::Reply) {
        self.cx.audit.note_time(now.mono);
        if let Some(reply) = self.walks.backed_up(&mut self.cx, reply) {
            let committed = self.records.handle_store(now, reply);
            self.follow(now);
            if committed {
                self.records.settle(now, self.cx.is_draining());
            }
        }
        self.end_turn(now);
    }

    /// Handles the events that follow from the store's answers.
    fn follow_records(&mut self, now: Now) {
        while let Some(event) = self.records.writes.poll_event() {
            match event {
                Event::Record(write) => self.apply(now, write),
                Event::Auxiliary(write) => self.files.apply_auxiliary(
                    &mut self.cx,
                    &mut self.records,
                    &mut self.management,
                    now,
                    write,
                ),
                Event::Foreign(ops) => self.foreign(now, ops),
                Event::Undone(key) => self.files.recording_may_change(key),
                Event::Failed(requester) => {
                    self.files.upload_not_recorded(requester.session());
                    let failure = Outcome::failure("The datastore is not available");
                    self.cx.answer(requester, failure.response(500));
                }
            }
        }
        self.registry.follow_touched_mains(&mut self.records, now);
        while let Some(request) = self.records.writes.poll_request() {
            self.cx.outbox.outputs.push_back(Output::Store(request));
        }
    }

    /// Applies a committed change.
    fn apply(&mut self, now: Now, write: Write) {
        let Write { key, change, waiter } = write;
        if matches!(change, Change::Insert(_)) {
            self.records.writes.inserted();
        }
        let live = self.registry.find(&key);
        let runs = self.outbound.sources.is_running(&key);
        let before = self.records.get(&key).cloned();
        let existed = before.is_some();
        let main_before = self.records.main_track_of(&key);
        match change.apply(before.clone()) {
            Some(mut record) => {
                self.records.keep_live_members(now, &key, &mut record);
                let restarts = runs && before.is_some_and(|before| change.restarts_source(&before, &record));
                self.records.insert(key.clone(), record);
                self.outgoing(now).reconcile_pushes(&key);
                self.files.recording_may_change(key.clone());
                self.registry.review_viewers(&mut self.cx, &self.records, &key);
                if restarts {
                    self.outgoing(now).restart_source(&key);
                }
            }
            None => {
                // The stream must end before the record is removed, because hooks report the end with the record's
                // data.
                if !self.outgoing(now).stop_source(&key, StreamEnd::Deleted)
                    && let (Some(stream), Change::Delete) = (live, &change)
                {
                    self.registry.end(&mut self.cx, stream, StreamEnd::Deleted);
                }
                self.follow_ends(now);
                self.hooks.forget_idle(&key);
                if matches!(change, Change::Delete) {
                    forget_kept(&mut self.cx, &self.records, &key);
                }
                self.records.remove(&key);
            }
        }
        self.registry.touched_mains.extend(main_before);
        self.registry.touched_mains.extend(self.records.main_track_of(&key));
        self.outbound.note_auto_start(&mut self.cx, &self.records, &key);
        self.outbound.note_planned(&mut self.records, now, &key);
        if let Some((requester, answer)) = waiter {
            let Some(answer) = self.outgoing(now).started(&key, (requester, answer)) else {
                return;
            };
            let response = answer_of(&self.records, now, &key, answer, existed, live.is_some() || runs);
            self.cx.answer(requester, response);
        }
    }
}

/// Removes the files that sinks have kept of a stream whose record is deleted, including those of earlier runs. If the
/// stream is still live, its sinks also remove theirs when they end.
fn forget_kept(cx: &mut Context, records: &Records, key: &StreamKey) {
    let stem = format!("{}{}", records.polled_folder(cx, key), key.id);
    let Some(settings) = cx.apps.get(&key.app) else { return };
    let mut works: Vec<ArchiveWork> = sinks::forgets(&key.app, settings, &stem).collect();
    works.dedup();
    for work in works {
        if !cx.submit_for(&key.app, Work::Archive(work), |_, _, _| {}) {
            tracing::warn!(%key, "files of a deleted stream not removed: the job queue is full; they stay until they expire");
        }
    }
}

impl Outgoing<'_> {
    /// Starts the source of a record that was created with `autoStart`. If the start fails, the record is removed
    /// again, and the answer is sent after the removal.
    fn started(&mut self, key: &StreamKey, (requester, answer): (Requester, Answer)) -> Option<Answer> {
        if !matches!(answer, Answer::Started) {
            return Some(answer);
        }
        let Err(reason) = self.begin_source(key) else {
            return Some(answer);
        };
        let answer = Answer::NotStarted(reason);
        if self.registry.is_live(key) {
            // Somebody has published under the record's id since, and that stream must not be ended.
            return Some(answer);
        }
        let waiter = Some((requester, answer));
        self.records.write(self.now, Write { key: key.clone(), change: Change::Delete, waiter });
        None
    }
}

impl Registry {
    /// Takes a publisher's changed description of its live stream. It is written with a later batch, so that a publisher
    /// who changes it all the time causes one commit a second.
    pub(super) fn describe(&self, records: &mut Records, now: Now, key: StreamKey, meta_data: String) {
        let record = records.get_mut(&key).filter(|_| self.is_live(&key));
        let Some(record) = record.filter(|record| record.meta_data.as_deref() != Some(&*meta_data)) else {
            return;
        };
        record.meta_data = Some(meta_data);
        records.writes.mark_dirty(now, key);
    }
}

/// Returns the answer to a stored write.
fn answer_of(
    records: &Records,
    now: Now,
    key: &StreamKey,
    answer: Answer,
    existed: bool,
    live: bool,
) -> Response {
    match answer {
        Answer::Created => match records.get(key) {
            Some(record) => Response::json(200, record.to_json(now)),
            None => Outcome::failure("Stream id set generated exception").response(400),
        },
        Answer::Room => match records.get(key) {
            Some(record) => rest::room(record),
            None => Outcome::failure("Operation not completed").response(400),
        },
        // A record made by publishing may have been removed during the commit, because its stream has ended.
        Answer::Success | Answer::SuccessOfNulls | Answer::Made(_) if !existed => {
            Outcome::failure("").response(200)
        }
        Answer::SuccessOfNulls => Outcome::success().message(None).no_data_id().response(200),
        Answer::Success => Outcome::success().response(200),
        Answer::Failure => Outcome::failure("").response(200),
        Answer::Deleted if live => {
            Outcome::success().message(Some("broadcast is deleted and stopped successfully")).response(200)
        }
        Answer::Deleted => {
            Outcome::success().message(Some("broadcast is deleted but could not stopped ")).response(200)
        }
        Answer::Started => match records.get(key) {
            Some(record) => Outcome::success().data_id(&key.id).behind(record.to_json(now)),
            None => Outcome::success().data_id(&key.id).response(200),
        },
        Answer::NotStarted(reason) => Outcome::failure(&reason).error_id(-4).response(200),
        Answer::Prepared(response) => *response,
        Answer::Made(id) => Outcome::success().message(None).data_id(&id).response(200),
    }
}
