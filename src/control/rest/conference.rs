//! Conference rooms in the form of servers before 3.0: a room is a virtual main track, and its streams are the
//! subtracks. Rooms are visible to operations on broadcasts, and virtual main tracks to operations on rooms
//! (docs/rest.md).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::call::{Call, Reply, bad_request};
use super::lists::{Lists, page_of};
use super::scan::{Order, Scan, Wanted};
use super::subtracks;
use crate::control::Now;
use crate::control::answer::{Outcome, json};
use crate::control::broadcast::{Body, BodyError, Broadcast, is_stream_id, parse_json};
use crate::control::context::Context;
use crate::control::from_json::loose;
use crate::control::live::Registry;
use crate::control::records::{Answer, Change, Records, Write};
use crate::http::Response;
use crate::types::StreamKey;

/// Default mode of a room.
const MODE: &str = "legacy";
/// Maximum length of a room's mode, in bytes.
const MODE_BYTES_MAX: usize = 64;
/// Default planned duration of a room, in seconds.
const LASTS_S: i64 = 3600;
/// Maximum number of streams in a body.
const STREAMS_MAX: usize = 500;
/// Maximum number of streams in an answer.
const SHOWN_MAX: usize = 500;

const NOT_COMPLETED: &str = "Operation not completed";

/// The body of a request to create or update a room.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoomBody {
    #[serde(deserialize_with = "loose")]
    room_id: Option<String>,
    start_date: Option<i64>,
    end_date: Option<i64>,
    mode: Option<String>,
    room_stream_list: Option<Vec<String>>,
}

/// A room as Ant Media Server before 3.0 shows it, with the same order of members.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Room<'a> {
    room_id: &'a str,
    start_date: i64,
    end_date: i64,
    room_stream_list: &'a [String],
    mode: Option<&'a str>,
    origin_adress: Option<&'a str>,
}

impl<'a> Room<'a> {
    fn of(record: &'a Broadcast) -> Self {
        let origin = record.origin_adress.as_str();
        Self {
            room_id: &record.stream_id,
            start_date: record.planned_start_date,
            end_date: record.planned_end_date,
            room_stream_list: &record.sub_track_stream_ids,
            mode: record.conference_mode.as_deref(),
            origin_adress: (!origin.is_empty()).then_some(origin),
        }
    }
}

/// The live streams of a room.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RoomInfo<'a> {
    room_id: &'a str,
    stream_details_map: Option<BTreeMap<&'a str, Option<&'a str>>>,
    stream_list: Option<Vec<&'a str>>,
    start_date: i64,
    end_date: i64,
}

fn not_completed() -> Reply {
    Reply::Now(Outcome::failure(NOT_COMPLETED).response(400))
}

/// Makes the answer that shows the room.
pub(in crate::control) fn shown(record: &Broadcast) -> Response {
    json(200, &Room::of(record))
}

/// Appends the room as JSON.
pub(super) fn write(record: &Broadcast, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let done = serde_json::to_writer(out, &Room::of(record));
    debug_assert!(done.is_ok());
}

/// Reads and checks the body; if it is refused, the error is the answer to send.
fn read(call: &Call<'_>) -> Result<RoomBody, Reply> {
    let body: Result<Option<Option<RoomBody>>, BodyError> = parse_json(&call.request.body);
    let body = body.map_err(|error| bad_request(&error.to_string()))?.flatten().ok_or_else(not_completed)?;
    let fits = body.mode.as_ref().is_none_or(|mode| mode.len() <= MODE_BYTES_MAX)
        && body.room_stream_list.as_ref().is_none_or(|streams| streams.len() <= STREAMS_MAX);
    if fits { Ok(body) } else { Err(not_completed()) }
}

impl RoomBody {
    /// Returns the members of the body that are stored in the room's broadcast record.
    fn members(&self) -> Body {
        Body {
            planned_start_date: self.start_date.map(Some),
            planned_end_date: self.end_date.map(Some),
            conference_mode: self.mode.clone(),
            ..Body::default()
        }
    }
}

/// `POST /broadcasts/conference-rooms`.
pub(super) fn create(cx: &mut Context, records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let mut room = match read(call) {
        Ok(room) => room,
        Err(refusal) => return refusal,
    };
    let given = room.room_id.take().unwrap_or_default();
    let id = if given.trim().is_empty() { records.generated_id(cx, at) } else { given };
    let key = StreamKey { app: call.app.name.clone(), id: id.as_str().into() };
    if !is_stream_id(&id) || records.pending(&key).is_some() {
        return records.settled(at, call.requester, &key, Outcome::failure(NOT_COMPLETED).response(400));
    }
    let now_s = i64::try_from(at.wall_ms / 1000).unwrap_or(i64::MAX);
    let end_s = now_s.saturating_add(LASTS_S);
    room.start_date = room.start_date.filter(|start| *start != 0).or(Some(now_s));
    room.end_date = room.end_date.filter(|end| *end != 0).or(Some(end_s));
    room.mode.get_or_insert_with(|| MODE.to_owned());
    let body = Body { is_virtual: Some(Some(true)), ..room.members() };
    let Ok(record) = records.new_record(cx, at, &key, body) else { return not_completed() };
    records.move_streams(at, &key, room.room_stream_list);
    let change = Change::Insert(Box::new(record));
    records.write(at, Write { key, change, waiter: Some((call.requester, Answer::Room)) });
    Reply::Later
}

/// `PUT /broadcasts/conference-rooms/{id}`. A given list of streams replaces the previous one.
pub(super) fn update(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let room = match read(call) {
        Ok(room) => room,
        Err(refusal) => return refusal,
    };
    let key = call.key();
    if !records.pending(&key).is_some_and(|record| record.is_virtual) {
        return not_completed();
    }
    let body = Box::new(room.members());
    records.move_streams(at, &key, room.room_stream_list);
    let change = Change::Update { body, endpoints: None };
    records.write(at, Write { key, change, waiter: Some((call.requester, Answer::Room)) });
    Reply::Later
}

/// `DELETE /broadcasts/conference-rooms/{id}`, without deleting its streams.
pub(super) fn delete(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let key = call.key();
    if records.pending(&key).is_none() {
        return Reply::Now(Outcome::failure("").response(200));
    }
    records.write(at, Write { key, change: Change::Delete, waiter: Some((call.requester, Answer::Deleted)) });
    Reply::Later
}

/// `GET /broadcasts/conference-rooms/{id}`.
pub(super) fn get(records: &Records, call: &Call<'_>) -> Reply {
    match records.get(&call.key()).filter(|record| record.is_virtual) {
        Some(record) => Reply::Now(shown(record)),
        None => Reply::Now(Response::error(404, "Not Found")),
    }
}

/// `GET /broadcasts/conference-rooms/list/{offset}/{size}`.
pub(super) fn list(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [offset, size, ..] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let wanted = Wanted::Page { order: Order::from_call(call), offset, size };
    let search = call.query("search").to_lowercase();
    lists.scan(now, Scan::new(call, search, String::new(), wanted).of_rooms())
}

/// `GET /broadcasts/conference-rooms/{id}/room-info?streamId=`: the live streams except the given one.
pub(super) fn info(records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    let [room_id, ..] = call.params;
    let (key, asks) = (call.key(), call.query("streamId"));
    let mut info =
        RoomInfo { room_id, stream_details_map: None, stream_list: None, start_date: 0, end_date: 0 };
    if let Some(record) = records.get(&key) {
        let others = registry.live_subtracks(records, &key).filter(|id| &***id != asks);
        let records = others.take(SHOWN_MAX).filter_map(|id| records.find(&key.app, id));
        let streams: BTreeMap<_, _> =
            records.map(|record| (record.stream_id.as_str(), record.name.as_deref())).collect();
        info.stream_list = Some(streams.keys().copied().collect());
        info.stream_details_map = Some(streams);
        (info.start_date, info.end_date) = (record.planned_start_date, record.planned_end_date);
    }
    Reply::Now(json(200, &info))
}

/// `PUT /broadcasts/conference-rooms/{id}/add?streamId=`.
pub(super) fn add(records: &mut Records, registry: &Registry, at: Now, call: &Call<'_>) -> Reply {
    subtracks::join(records, registry, at, call, call.query("streamId"))
}

/// `PUT /broadcasts/conference-rooms/{id}/{streamId}`.
pub(super) fn add_named(records: &mut Records, registry: &Registry, at: Now, call: &Call<'_>) -> Reply {
    let [_, stream, ..] = call.params;
    subtracks::join(records, registry, at, call, stream)
}

/// `PUT /broadcasts/conference-rooms/{id}/delete?streamId=`.
pub(super) fn remove(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    subtracks::leave(records, at, call, call.query("streamId"))
}

/// `DELETE /broadcasts/conference-rooms/{id}/{streamId}`.
pub(super) fn remove_named(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let [_, stream, ..] = call.params;
    subtracks::leave(records, at, call, stream)
}

impl Records {
    /// Moves existing streams of the list to the room, and removes the streams not listed; without a list, none move.
    fn move_streams(&mut self, at: Now, room: &StreamKey, wanted: Option<Vec<String>>) {
        let Some(wanted) = wanted else { return };
        let left: Vec<_> = self.subtracks(room).filter(|id| !wanted.iter().any(|w| **w == ***id)).collect();
        let left: Vec<String> = left.into_iter().map(|id| id.to_string()).collect();
        let joins = wanted.into_iter().map(|id| (id, room.id.to_string()));
        let moves: Vec<_> = joins.chain(left.into_iter().map(|id| (id, String::new()))).collect();
        for (id, main) in moves {
            let key = StreamKey { app: room.app.clone(), id: id.into() };
            if key != *room && self.pending(&key).is_some() {
                let body = Body { main_track_stream_id: Some(Some(main)), ..Body::default() };
                let change = Change::Update { body: Box::new(body), endpoints: None };
                self.write(at, Write { key, change, waiter: None });
            }
        }
    }
}
