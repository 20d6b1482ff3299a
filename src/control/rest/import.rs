//! Creation of many broadcasts with one request, for imports by panels.

use std::collections::BTreeSet;

use serde_json::Value;

use super::broadcasts::BULK_MAX;
use super::call::{Call, Reply, bad_request};
use crate::control::Now;
use crate::control::answer::{Outcome, json};
use crate::control::broadcast::{Body, BodyError, checked, is_stream_id};
use crate::control::context::Context;
use crate::control::json_text::readable;
use crate::control::records::{Answer, Change, Records, Write};
use crate::types::StreamKey;

/// Handling of a broadcast whose id exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDuplicate {
    /// Imports nothing.
    Refuse,
    /// Keeps the existing broadcast.
    Skip,
    /// Deletes the existing broadcast, which ends its stream, and creates the new one.
    Overwrite,
}

/// `POST /broadcasts/create-list?onDuplicate=skip|overwrite`: the answer has one result per broadcast, in order.
pub(super) fn create_list(cx: &mut Context, records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
    let on_duplicate = match call.query("onDuplicate") {
        "" => OnDuplicate::Refuse,
        "skip" => OnDuplicate::Skip,
        "overwrite" => OnDuplicate::Overwrite,
        _ => return bad_request("onDuplicate is skip or overwrite"),
    };
    let bodies = match bodies(&call.request.body) {
        Ok(bodies) => bodies,
        Err(error) => return bad_request(&error.to_string()),
    };
    if bodies.len() > BULK_MAX {
        return bad_request("There are more than 10000 broadcasts");
    }
    if on_duplicate == OnDuplicate::Refuse {
        let there = duplicates(records, call, &bodies);
        if there > 0 {
            let text = format!("{there} of {} stream ids are already being used.", bodies.len());
            return Reply::Now(Outcome::failure(&text).response(400));
        }
    }
    let mut import = Import { on_duplicate, seen: BTreeSet::new(), results: Vec::new(), last: None };
    for body in bodies {
        import.add((&mut *cx, &mut *records), at, call, body);
    }
    import.finish(records, at, call)
}

/// Parses the broadcasts of a body. The whole body is refused if an element is not an object, because serde would read
/// an array as the members of an object in order.
fn bodies(bytes: &[u8]) -> Result<Vec<Body>, BodyError> {
    let values: Vec<Value> =
        serde_json::from_slice(&readable(bytes)).map_err(|e| BodyError::Json(e.to_string()))?;
    let body = |value: Value| {
        if !value.is_object() {
            return Err(BodyError::Json("expected an object".to_owned()));
        }
        checked(serde_json::from_value(value).map_err(|e| BodyError::Json(e.to_string()))?)
    };
    values.into_iter().map(body).collect()
}

/// Returns the id that a body requests.
fn id_of(body: &Body) -> &str {
    body.stream_id.as_ref().and_then(|id| id.as_deref()).unwrap_or("").trim()
}

/// Counts ids that exist, or occur twice in the list.
fn duplicates(records: &Records, call: &Call<'_>, bodies: &[Body]) -> usize {
    let mut seen = BTreeSet::new();
    let is_there = |id: &&str| {
        let key = StreamKey { app: call.app.name.clone(), id: (*id).into() };
        !seen.insert((*id).to_owned()) || records.pending(&key).is_some()
    };
    bodies.iter().map(id_of).filter(|id| is_stream_id(id)).filter(is_there).count()
}

/// An import under way.
struct Import {
    on_duplicate: OnDuplicate,
    /// Ids seen in the list so far; of equal ids only the first is imported.
    seen: BTreeSet<String>,
    /// Id and result of each broadcast.
    results: Vec<(String, &'static str)>,
    /// Newest change, held back until the next one is known, because only the last change carries the answer.
    last: Option<Write>,
}

impl Import {
    fn add(&mut self, (cx, records): (&mut Context, &mut Records), at: Now, call: &Call<'_>, body: Body) {
        let given = id_of(&body).to_owned();
        let id = if given.is_empty() { records.generated_id(cx, at) } else { given };
        let word = self.add_as((cx, records), at, call, &id, body);
        self.results.push((id, word));
    }

    fn add_as(
        &mut self,
        (cx, records): (&mut Context, &mut Records),
        at: Now,
        call: &Call<'_>,
        id: &str,
        body: Body,
    ) -> &'static str {
        if !is_stream_id(id) {
            return "failed";
        }
        if !self.seen.insert(id.to_owned()) {
            return "skipped";
        }
        let key = StreamKey { app: call.app.name.clone(), id: id.into() };
        let is_there = records.pending(&key).is_some();
        if is_there && self.on_duplicate == OnDuplicate::Skip {
            return "skipped";
        }
        let Ok(record) = records.new_record(cx, at, &key, body) else { return "failed" };
        if is_there {
            self.write(records, at, &key, Change::Delete);
        }
        self.write(records, at, &key, Change::Insert(Box::new(record)));
        if is_there { "overridden" } else { "created" }
    }

    fn write(&mut self, records: &mut Records, at: Now, key: &StreamKey, change: Change) {
        let write = Write { key: key.clone(), change, waiter: None };
        if let Some(former) = self.last.replace(write) {
            records.write(at, former);
        }
    }

    fn finish(self, records: &mut Records, at: Now, call: &Call<'_>) -> Reply {
        let outcome = |(id, word)| match word {
            "failed" => Outcome::failure(word).data_id(id),
            _ => Outcome::success().message(Some(word)).data_id(id),
        };
        let results: Vec<_> = self.results.iter().map(|(id, word)| outcome((id.as_str(), *word))).collect();
        let answer = json(200, &results);
        let Some(last) = self.last else { return Reply::Now(answer) };
        let waiter = Some((call.requester, Answer::Prepared(Box::new(answer))));
        records.write(at, Write { waiter, ..last });
        Reply::Later
    }
}
