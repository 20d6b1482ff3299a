//! Recordings of rooms (docs/recording.md): the files of each participant, with their times on the room's clock.

use serde::Serialize;

use super::call::{Call, Reply};
use crate::control::answer::json;
use crate::control::records::Records;
use crate::control::records::auxiliary::Vod;
use crate::http::Response;

/// Maximum number of recordings in an answer.
const LIST_MAX: usize = 50;
/// Maximum number of files in a manifest.
const FILES_MAX: usize = 1000;

/// A recording of a room.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    recording: &'a str,
    room: &'a str,
    /// Wall-clock time at which the recording's clock was zero, in Unix milliseconds.
    start_time: i64,
    /// Files, sorted by their start.
    files: Vec<File<'a>>,
}

/// A file of a participant. Unless stated otherwise, times are milliseconds on the recording's clock.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    vod_id: Option<&'a str>,
    file_path: Option<&'a str>,
    stream_id: Option<&'a str>,
    name: Option<&'a str>,
    start: i64,
    /// End of the file; `None` while it is being written.
    end: Option<i64>,
    /// Start in Unix milliseconds.
    start_time: i64,
    /// End in Unix milliseconds; `None` while the file is being written.
    end_time: Option<i64>,
}

impl<'a> File<'a> {
    fn of(vod: &'a Vod) -> Option<Self> {
        let take = vod.room.as_deref()?;
        let length = Some(vod.duration.max(0)).filter(|_| !vod.unfinished);
        Some(Self {
            vod_id: vod.vod_id.as_deref(),
            file_path: vod.file_path.as_deref(),
            stream_id: vod.stream_id.as_deref(),
            name: vod.stream_name.as_deref(),
            start: take.start,
            end: length.map(|length| take.start.saturating_add(length)),
            start_time: take.start_time,
            end_time: length.map(|length| take.start_time.saturating_add(length)),
        })
    }
}

/// `GET /broadcasts/{id}/room-recordings/{offset}/{size}`: the recordings of a room, newest first.
pub(super) fn list(records: &Records, call: &Call<'_>) -> Reply {
    let [room, offset, size, ..] = call.params;
    let (Ok(offset), Ok(size)) = (offset.parse::<usize>(), size.parse::<usize>()) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let app = &call.key().app;
    let recordings = records.auxiliary.recordings_of_room(app, room);
    let page = recordings.into_iter().rev().skip(offset).take(size.min(LIST_MAX));
    let manifest = |recording| {
        let files = || records.auxiliary.files_of_room(app, room, recording);
        let zero = files().find_map(|vod| vod.room.as_deref());
        let start_time = zero.map_or(0, |take| take.zero_time);
        let mut files: Vec<File<'_>> = files().filter_map(File::of).take(FILES_MAX).collect();
        files.sort_by_key(|file| file.start);
        Manifest { recording, room, start_time, files }
    };
    Reply::Now(json(200, &page.map(manifest).collect::<Vec<_>>()))
}
