//! File uploads (`POST /vods/create`).
//!
//! 1. The head of the request passes the checks of the API. A hidden record is stored, and then an empty file is
//!    created, so that the upload is found again even after a crash.
//! 2. The session is permitted to receive the body ([`ToWorker::Upload`]), and appends it to the file.
//! 3. When the body is complete, a job flushes the file to disk, reads its size and duration, and gives it its final
//!    name. The record becomes visible with the next commit, and the request is answered.
//! 4. If an upload is interrupted, its file and record are removed. After a crash, the next start removes them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::answer::Outcome;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;
use super::records::auxiliary::{Auxiliary, AuxiliaryWrite, Vod};
use super::wall;
use crate::control::Files;
use crate::http::Response;
use crate::jobs::{self, AppendTo, Appended, RecordingOutcome, RecordingWork, UNFINISHED, Work};
use crate::mail::{ToWorker, UploadGrant, UploadNews};
use crate::store::Key;
use crate::types::{Now, SessionRef};

/// Maximum number of concurrent uploads.
const UPLOADS_MAX: usize = 40;
/// Upload slots reserved for administrators of the whole server.
const OF_ADMINISTRATORS: usize = 4;
/// Maximum number of concurrent uploads of one address without a login or a token.
const UPLOADS_OF_ADDRESS_MAX: usize = 4;

/// The sender of an upload.
#[derive(Debug, Clone, Copy)]
pub(super) struct UploadSender {
    pub(super) requester: Requester,
    /// Address of the sender, unless a login or token identifies the sender.
    pub(super) client: Option<IpAddr>,
    /// True if the sender is an administrator of the whole server.
    pub(super) is_administrator: bool,
}

/// An upload under way.
#[derive(Debug)]
struct Upload {
    key: Key,
    requester: Requester,
    /// Address of the sender, unless a login or token identifies the sender.
    client: Option<IpAddr>,
    bytes_max: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The record is being stored.
    Recorded,
    /// The file is being created.
    Made,
    /// The session is writing.
    Granted,
}

/// All uploads, by session.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    by_session: BTreeMap<SessionRef, Upload>,
}

impl Uploads {
    /// True if the address `client` may send another upload. Always true for `None`, a sender with a login or a token.
    fn has_room(&self, client: Option<IpAddr>) -> bool {
        let of_client = self.by_session.values().filter(|upload| upload.client == client).count();
        client.is_none() || of_client < UPLOADS_OF_ADDRESS_MAX
    }

    /// Counts the uploads into one application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.by_session.values().filter(|upload| &*upload.key.app == app).count()
    }
}

/// Makes the answer to a failed write.
fn not_written() -> Response {
    Outcome::failure("").no_data_id().response(200)
}

impl Files {
    /// Forgets an upload whose record could not be stored. The caller answers its session.
    pub(super) fn upload_not_recorded(&mut self, session: SessionRef) {
        if self.uploads.by_session.get(&session).is_some_and(|upload| upload.stage == Stage::Recorded) {
            self.uploads.by_session.remove(&session);
        }
    }

    /// Begins an upload of this name. Returns false if uploads are off, or too many are in progress.
    pub(super) fn begin_upload(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        sender: UploadSender,
        app: &Arc<str>,
        (name, extension): (&str, &str),
    ) -> bool {
        let Some(settings) = cx.apps.get(app) else { return false };
        let UploadSender { requester, client, is_administrator } = sender;
        let bytes_max = settings.vod.upload_bytes_max;
        let has_room = if is_administrator {
            self.uploads.by_session.len() < UPLOADS_MAX
        } else {
            self.has_room_for_upload(cx, UPLOADS_MAX - OF_ADMINISTRATORS, app)
        };
        if bytes_max == 0
            || !has_room
            || !self.uploads.has_room(client)
            || self.uploads.by_session.contains_key(&requester.session())
        {
            return false;
        }
        let id = self.vod_id(cx, now);
        let vod = Vod {
            stream_name: Some(name.to_owned()),
            vod_name: Some(name.to_owned()),
            stream_id: Some("file".to_owned()),
            file_path: Some(format!("streams/{id}.{extension}")),
            vod_id: Some(id.clone()),
            kind: Some(Vod::UPLOADED.to_owned()),
            unfinished: true,
            ..Vod::default()
        };
        let key = Vod::key(app, &id);
        let upload = Upload { key: key.clone(), requester, client, bytes_max, stage: Stage::Recorded };
        self.uploads.by_session.insert(requester.session(), upload);
        let changes = vec![(key, Some(Auxiliary::Vod(vod)))];
        records.write_auxiliary(
            now,
            AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((requester, not_written())) },
        );
        true
    }

    fn upload_adopted(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        requester: Requester,
        (key, metadata): (Key, Option<String>),
        outcome: RecordingOutcome,
    ) {
        let (vod, finished) = match (self.vod_of(records, &key).cloned(), outcome) {
            (Some(vod), RecordingOutcome::Finished(finished)) => (vod, finished),
            (_, outcome) => {
                tracing::error!(app = &*key.app, vod = &*key.id, ?outcome, "upload not stored");
                self.drop_upload(cx, records, now, &key);
                return cx.answer(requester, not_written());
            }
        };
        tracing::info!(app = &*key.app, file = vod.file_path, bytes = finished.bytes, "uploaded");
        let vod = Vod { metadata, creation_date: wall(now), unfinished: false, ..vod }.finished(finished);
        let vod = cx.to_be_kept(&key, vod);
        let answer = Outcome::success().message(Some(&key.id)).data_id(&key.id).response(200);
        let changes = vec![(key.clone(), Some(Auxiliary::Vod(vod)))];
        records.write_auxiliary(
            now,
            AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((requester, answer)) },
        );
        self.keep_object(cx, records, now, key);
    }

    /// Creates the file of an upload whose record is stored. Returns false if the session has no such upload.
    pub(super) fn upload_recorded(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        session: SessionRef,
    ) -> bool {
        let Some(upload) = self.uploads.by_session.get_mut(&session) else { return false };
        if upload.stage != Stage::Recorded {
            return false;
        }
        upload.stage = Stage::Made;
        let (key, bytes_max) = (upload.key.clone(), upload.bytes_max);
        let Some(mut path) = self.vod_of(records, &key).map(|vod| vod.path(&key.app)) else {
            // The application of the upload was deleted.
            self.uploads.by_session.remove(&session);
            return false;
        };
        if let Some(name) = path.last_mut() {
            name.push_str(UNFINISHED);
        }
        let work = Work::FileAppend { to: AppendTo::New { path }, data: Vec::new() };
        let payer = Arc::clone(&key.app);
        let sent = cx.submit_for(&payer, work, move |control, now, outcome| {
            let upload = control.files.uploads.by_session.get(&session);
            if upload.is_none_or(|upload| upload.key != key) {
                // The sender left while the file was created. A removal before now could have found no file yet.
                return control.files.drop_upload(&mut control.cx, &control.records, now, &key);
            }
            let jobs::Outcome::Appended(Ok(Appended { file, .. })) = outcome else {
                return control.files.upload_failed(
                    &mut control.cx,
                    &control.records,
                    now,
                    session,
                    "the file cannot be made",
                );
            };
            if let Some(upload) = control.files.uploads.by_session.get_mut(&session) {
                upload.stage = Stage::Granted;
            }
            let grant = Box::new(UploadGrant { file, bytes_max });
            control.cx.post(session.worker, ToWorker::Upload { conn: session.conn, grant });
        });
        if !sent {
            self.upload_failed(cx, records, now, session, "the job queue is full");
        }
        true
    }

    /// Handles news from a session with an upload.
    pub(super) fn upload_news(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        session: SessionRef,
        news: UploadNews,
    ) {
        match news {
            UploadNews::Received { metadata } => self.upload_received(cx, records, now, session, metadata),
            UploadNews::Failed(reason) => self.upload_failed(cx, records, now, session, reason),
            UploadNews::Gone => {
                if let Some(upload) = self.uploads.by_session.remove(&session) {
                    tracing::info!(app = &*upload.key.app, vod = &*upload.key.id, "upload aborted");
                    // A file that is being created is removed when it is there.
                    if upload.stage != Stage::Made {
                        self.drop_upload(cx, records, now, &upload.key);
                    }
                }
            }
        }
    }

    fn upload_received(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        session: SessionRef,
        metadata: Option<String>,
    ) {
        let Some(upload) = self.uploads.by_session.remove(&session) else { return };
        let Upload { key, requester, .. } = upload;
        let Some(path) = self.vod_of(records, &key).map(|vod| vod.path(&key.app)) else {
            // The application of the upload was deleted.
            return cx.answer(requester, not_written());
        };
        let failed = key.clone();
        let work = Work::Recording(RecordingWork::Adopt { path });
        let sent = cx.submit_for(&failed.app, work, move |control, now, outcome| {
            control.files.upload_adopted(
                &mut control.cx,
                &mut control.records,
                now,
                requester,
                (key, metadata),
                outcome.recording(),
            );
        });
        if !sent {
            self.drop_upload(cx, records, now, &failed);
            cx.answer(requester, not_written());
        }
    }

    fn upload_failed(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        session: SessionRef,
        reason: &str,
    ) {
        let Some(upload) = self.uploads.by_session.remove(&session) else { return };
        tracing::warn!(app = &*upload.key.app, vod = &*upload.key.id, reason, "upload failed");
        self.drop_upload(cx, records, now, &upload.key);
        cx.answer(upload.requester, not_written());
    }

    /// Removes an incomplete upload: its file, then its hidden record. If the record were removed first, a start of the
    /// server could find a file without a record and take it for a recording. A failed removal of the file is retried.
    pub(super) fn drop_upload(&mut self, cx: &mut Context, records: &Records, now: Now, key: &Key) {
        let Some(vod) = self.vod_of(records, key) else { return };
        let gone = key.clone();
        let sent =
            cx.remove_local_then(&key.app, vod.path(&key.app), move |control, now, failure| match failure {
                None => control.files.put_vod(&mut control.records, now, gone, None),
                Some(reason) => {
                    tracing::warn!(
                        app = &*gone.app,
                        vod = &*gone.id,
                        reason,
                        "incomplete upload not removed"
                    );
                    control.files.drop_upload_later(now, gone);
                }
            });
        if !sent {
            self.drop_upload_later(now, key.clone());
        }
    }
}
