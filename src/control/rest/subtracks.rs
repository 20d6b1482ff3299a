//! Main tracks and subtracks (docs/rest.md).

use std::sync::Arc;

use super::call::{Call, Reply};
use super::lists::{Lists, page_of};
use super::scan::Scan;
use crate::control::Now;
use crate::control::answer::{Outcome, SimpleStat, json};
use crate::control::broadcast::{Body, Broadcast};
use crate::control::live::Registry;
use crate::control::mask::Requester;
use crate::control::records::{Answer, Change, Records, Write};
use crate::http::Response;
use crate::types::StreamKey;

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

/// Finds the subtrack with that id, and its record.
fn subtrack<'a>(records: &'a Records, call: &Call<'_>, id: &str) -> Option<(StreamKey, &'a Broadcast)> {
    let key = StreamKey { app: call.app.name.clone(), id: id.into() };
    let record = records.pending(&key)?;
    Some((key, record))
}

/// `POST /broadcasts/{id}/subtrack?id={subtrack}`.
pub(super) fn add(records: &mut Records, registry: &Registry, at: Now, call: &Call<'_>) -> Reply {
    join(records, registry, at, call, call.query("id"))
}

/// Makes a stream a subtrack of the main track in the path.
pub(super) fn join(records: &mut Records, registry: &Registry, at: Now, call: &Call<'_>, sub: &str) -> Reply {
    let [main, ..] = call.params;
    let main_key = call.key();
    let (Some((key, _)), Some(record)) = (subtrack(records, call, sub), records.pending(&main_key)) else {
        return refused(&format!("There is no stream with id:{sub} as subtrack or {main} as mainTrack"));
    };
    if key == main_key {
        return refused(&format!("Main track of the stream {sub} cannot be updated"));
    }
    let limit = usize::try_from(record.subtracks_limit).ok();
    if limit.is_some_and(|limit| registry.active_subtracks(records, &main_key) >= limit) {
        return refused(&format!("Subtrack limit is reached for the main track:{main}"));
    }
    let (is_virtual, is_live) = (record.is_virtual, registry.has_own_publisher(&main_key));
    if !is_virtual && !is_live {
        let body = Body { is_virtual: Some(Some(true)), ..Body::default() };
        let change = Change::Update { body: Box::new(body), endpoints: None };
        records.write(at, Write { key: main_key, change, waiter: None });
    }
    records.set_main_track(at, call.requester, key, main);
    Reply::Later
}

/// `DELETE /broadcasts/{id}/subtrack?id={subtrack}`.
pub(super) fn remove(records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    leave(records, at, call, call.query("id"))
}

/// Removes a stream from the main track in the path.
pub(super) fn leave(records: &mut Records, at: Now, call: &Call<'_>, sub: &str) -> Reply {
    let [main, ..] = call.params;
    if sub.trim().is_empty() {
        return refused("");
    }
    match subtrack(records, call, sub) {
        Some((key, record)) if record.main_track_stream_id.as_deref() == Some(main) => {
            records.set_main_track(at, call.requester, key, "");
            Reply::Later
        }
        Some(_) | None => {
            refused(&format!("Main track of the stream {sub} which is {main} cannot be updated"))
        }
    }
}

/// `GET /broadcasts/{id}/subtracks/{offset}/{size}?role=`.
pub(super) fn list(lists: Lists<'_>, at: Now, call: &Call<'_>) -> Reply {
    page(lists, at, call, false)
}

/// `GET /broadcasts/{id}/active-subtracks/{offset}/{size}?role=`.
pub(super) fn list_active(lists: Lists<'_>, at: Now, call: &Call<'_>) -> Reply {
    page(lists, at, call, true)
}

/// `GET /broadcasts/{id}/active-subtracks-count?role=`.
pub(super) fn count_active(records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    match found(records, call) {
        Ok(main) => {
            let number = of_role((records, registry), &main, call.query("role"), true).count();
            Reply::Now(json(200, &SimpleStat { number }))
        }
        Err(missing) => missing,
    }
}

fn page(lists: Lists<'_>, at: Now, call: &Call<'_>, active: bool) -> Reply {
    let [_, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    match found(lists.records, call) {
        Ok(main) => {
            let page = of_role((lists.records, lists.registry), &main, call.query("role"), active)
                .skip(offset)
                .take(size);
            let ids = page.map(|record| record.stream_id.as_str().into()).collect();
            lists.scan(at, Scan::of_ids(call, offset, ids))
        }
        Err(missing) => missing,
    }
}

/// Returns the main track; if there is none, the error is the answer to send.
fn found(records: &Records, call: &Call<'_>) -> Result<StreamKey, Reply> {
    let key = call.key();
    if records.get(&key).is_some() {
        return Ok(key);
    }
    let text = format!("Broadcast not found with id: {}", key.id);
    Err(Reply::Now(Outcome::failure(&text).response(404)))
}

/// Returns the subtracks with that role, or all for an empty role.
pub(super) fn of_role<'a>(
    (records, registry): (&'a Records, &'a Registry),
    main: &'a StreamKey,
    role: &'a str,
    active: bool,
) -> impl Iterator<Item = &'a Broadcast> {
    let ids: Box<dyn Iterator<Item = &Arc<str>>> =
        if active { registry.live_subtracks(records, main) } else { Box::new(records.subtracks(main)) };
    let found = ids.filter_map(|id| records.find(&main.app, id));
    found.filter(move |record| role.is_empty() || record.role.as_deref() == Some(role))
}

impl Records {
    /// Sets or, for an empty `main`, clears the main track of a stream.
    fn set_main_track(&mut self, at: Now, requester: Requester, key: StreamKey, main: &str) {
        let body = Body { main_track_stream_id: Some(Some(main.to_owned())), ..Body::default() };
        let change = Change::Update { body: Box::new(body), endpoints: None };
        self.write(at, Write { key, change, waiter: Some((requester, Answer::Success)) });
    }
}
