//! Recordings: starting and stopping them, and the playable files (docs/recording.md).

use std::sync::Arc;
use std::time::Duration;

use super::call::{Call, Reply};
use super::lists::{Lists, page_of};
use super::scan::{Order, Scan, Wanted};
use crate::control::answer::{Outcome, json};
use crate::control::context::Context;
use crate::control::recordings::{Begin, Recorded, Recorder, may_record};
use crate::control::records::auxiliary::{AuxiliaryWrite, Vod};
use crate::control::records::{Answer, Change, Records, Write};
use crate::control::uploads::UploadSender;
use crate::control::{Files, Now};
use crate::http::{Multipart, Response};
use crate::mail::ClipRange;
use crate::protocol::Container;

/// Maximum number of files in one bulk delete.
const BULK_MAX: usize = 1000;
/// File extensions that may be uploaded.
const EXTENSIONS: [&str; 6] = ["mp4", "webm", "mov", "avi", "mp3", "wmv"];
/// Largest Unix time in seconds that is accepted as a date: the year 10 000.
const SECONDS_MAX: f64 = 253_402_300_800.0;
/// Longest name of an upload, in characters.
const NAME_CHARS_MAX: usize = 255;
const NO_ROOM: &str = "Not enough system resources available to upload and process VoD File";
const BLANK_IDS: &str =
    "ids parameter is blank. Please give comma-separated vod ids to the 'ids' as query parameter";

fn refused(message: Option<&str>) -> Reply {
    Reply::Now(Outcome::failure("").message(message).no_data_id().response(200))
}

/// `PUT /broadcasts/{id}/recording/{bool}`: stores whether the stream is recorded. If the stream is live, its recording
/// starts or stops immediately.
pub(super) fn record(mut recorder: Recorder<'_>, call: &Call<'_>) -> Reply {
    let [id, on, ..] = call.params;
    let on = on.eq_ignore_ascii_case("true");
    let height = match call.number::<i32>("resolutionHeight") {
        Ok(height) => height.unwrap_or(0),
        Err(refusal) => return refusal,
    };
    let container = match call.request.query_value("recordType") {
        None | Some("mp4") => Container::Mp4,
        Some("webm") => Container::WebM,
        Some(_) => {
            let text = format!("No stream for this id: {id} or unexpected record type. Record type is null");
            return refused(Some(&text));
        }
    };
    let key = call.key();
    if recorder.records.pending(&key).is_none() {
        return refused(None);
    }
    let change = Change::Record { container, on };
    if !recorder.registry.has_own_publisher(&key) {
        recorder.records.write(
            recorder.now,
            Write { key, change, waiter: Some((call.requester, Answer::SuccessOfNulls)) },
        );
        return Reply::Later;
    }
    let source_height = recorder.records.get(&key).map_or(0, |record| record.height);
    let recorded = if !on {
        recorder.files.stop_recording(recorder.cx, recorder.registry, &key, container)
    } else if !may_record(recorder.registry, &key, container) {
        Recorded::Refused
    } else if height != 0 && height != source_height {
        // Video is not scaled, so a stream can be recorded only at its own height.
        Recorded::Already
    } else {
        let name = call.request.query_value("fileName");
        recorder.start_recording(&key, Begin { container, name, clip: None })
    };
    match recorded {
        Recorded::Done { vod, began } => {
            let answer = Outcome::success().message(Some(&began.to_string())).data_id(&vod).response(200);
            let waiter = Some((call.requester, Answer::Prepared(Box::new(answer))));
            recorder.records.write(recorder.now, Write { key, change, waiter });
            Reply::Later
        }
        Recorded::Already => Reply::Now(Outcome::success().message(Some("0")).no_data_id().response(200)),
        Recorded::Refused => {
            let verb = if on { "started" } else { "stopped" };
            refused(Some(&format!("{} recording couldn't be {verb}", container.name())))
        }
    }
}

/// `POST /broadcasts/{id}/clip`: records the retained part of a live stream between `start` and `end`, in seconds of
/// Unix time.
pub(super) fn clip(mut recorder: Recorder<'_>, call: &Call<'_>) -> Reply {
    let ms = |name| {
        let seconds =
            call.query(name).parse::<f64>().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
        seconds.and_then(|seconds| i64::try_from(Duration::from_secs_f64(seconds).as_millis()).ok())
    };
    let (Some(start_ms), Some(end_ms)) = (ms("start"), ms("end")) else {
        return refused(Some("start and end are seconds of Unix time"));
    };
    if start_ms >= end_ms {
        return refused(Some("end is behind start"));
    }
    let key = call.key();
    if !recorder.registry.is_live(&key) {
        return refused(Some("the stream is not live"));
    }
    let clip = Some((ClipRange { start_ms, end_ms }, call.requester));
    let name = call.request.query_value("fileName");
    match recorder.start_recording(&key, Begin { container: Container::Mp4, name, clip }) {
        // The answer is sent when the file of the clip has begun, or the clip turns out to be empty.
        Recorded::Done { .. } => Reply::Later,
        Recorded::Already | Recorded::Refused => refused(Some("too many clips are written")),
    }
}

/// `POST /vods/create`: the body arrives separately and is not part of the request (`control::uploads`).
pub(super) fn create(
    cx: &mut Context,
    records: &mut Records,
    files: &mut Files,
    now: Now,
    call: &Call<'_>,
) -> Reply {
    if call.request.header("content-type").and_then(Multipart::of).is_none() {
        return Reply::Now(Response::error(400, "Bad Request"));
    }
    let name = call.query("name");
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let extension = base.rsplit_once('.').map_or("", |(_, extension)| extension);
    if !EXTENSIONS.contains(&extension) {
        return refused(Some("notSupportedFileType"));
    }
    let name: String = base.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    let sender = UploadSender {
        requester: call.requester,
        client: call.client,
        is_administrator: call.is_administrator,
    };
    if files.begin_upload(cx, records, now, sender, &call.app.name, (&name, extension)) {
        Reply::Later
    } else {
        refused(Some(NO_ROOM))
    }
}

/// `POST /vods/directory`.
pub(super) fn import_folder(cx: &mut Context, records: &Records, call: &Call<'_>) -> Reply {
    match records.import_folder(cx, call.requester, &call.app.name, call.query("directory")) {
        Some(refusal) => Reply::Now(refusal),
        None => Reply::Later,
    }
}

/// `DELETE /vods/directory`.
pub(super) fn forget_folder(cx: &mut Context, call: &Call<'_>) -> Reply {
    let folder = call.request.query_value("directory").filter(|folder| !folder.is_empty());
    match cx.forget_folder(call.requester, &call.app.name, folder) {
        Some(refusal) => Reply::Now(refusal),
        None => Reply::Later,
    }
}

/// `GET /vods/{id}`: like Ant Media Server, answers an unknown id with an object of nulls.
pub(super) fn read(records: &Records, files: &Files, call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    let unknown = Vod::default();
    Reply::Now(json(200, files.vod(records, &call.app.name, id).unwrap_or(&unknown)))
}

/// `GET /vods/list/{offset}/{size}`.
pub(super) fn list(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [offset, size, ..] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let wanted = Wanted::Page { order: Order::of_files(call), offset, size };
    lists.scan(now, looked_for(call, call.query("search"), wanted))
}

/// `GET /vods/count` and `GET /vods/count/{search}`.
pub(super) fn count(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [search, ..] = call.params;
    lists.scan(now, looked_for(call, search, Wanted::Count))
}

fn looked_for(call: &Call<'_>, search: &str, wanted: Wanted) -> Scan {
    Scan::new(call, search.to_lowercase(), call.query("streamId").to_owned(), wanted).of_files()
}

/// `DELETE /vods/{id}`.
pub(super) fn delete(records: &mut Records, files: &Files, now: Now, call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    delete_these(records, files, now, call, &[id])
}

/// `DELETE /vods?ids=`.
pub(super) fn delete_all(records: &mut Records, files: &Files, now: Now, call: &Call<'_>) -> Reply {
    let ids = call.query("ids");
    if ids.trim().is_empty() {
        return Reply::Now(Outcome::failure(BLANK_IDS).response(200));
    }
    let ids: Vec<&str> = ids.split(',').map(str::trim).take(BULK_MAX).collect();
    delete_these(records, files, now, call, &ids)
}

/// Removes the records of the given ids up to the first unknown one, in one commit, and then their files. If the change
/// cannot be stored, records and files stay.
fn delete_these(records: &mut Records, files: &Files, now: Now, call: &Call<'_>, ids: &[&str]) -> Reply {
    let app = &call.app.name;
    let found: Vec<Vod> = ids.iter().map_while(|id| files.vod(records, app, id).cloned()).collect();
    let outcome = if found.len() == ids.len() {
        Outcome::success().message(Some("vod deleted"))
    } else {
        Outcome::failure("")
    };
    let answer = outcome.response(200);
    if found.is_empty() {
        return Reply::Now(answer);
    }
    if !files.may_remove(app) {
        return refused(Some("too many files wait to be removed"));
    }
    let ids = found.iter().filter_map(|vod| vod.vod_id.as_deref());
    let changes = ids.map(|id| (Vod::key(app, id), None)).collect();
    let files = found.iter().map(|vod| (Arc::clone(app), vod.clone())).collect();
    records.write_auxiliary(now, AuxiliaryWrite { changes, files, waiter: Some((call.requester, answer)) });
    Reply::Later
}
