//! Lists, counts and statistics.

use bytes::Bytes;

use super::answer::{SimpleStat, Viewers, json};
use super::{Call, Reply};
use crate::control::broadcast::{Broadcast, status};
use crate::control::{Control, Now};
use crate::http::Response;

/// Items of one list (rest.md §0.1 item 9).
const ITEMS_MAX: usize = 50;

/// `GET /broadcasts/list/{offset}/{size}`.
pub(super) fn list(control: &mut Control, now: Now, call: &Call<'_>) -> Reply {
    let [offset, size, _] = call.params;
    let (Ok(offset), Ok(size)) = (offset.parse::<i32>(), size.parse::<i32>()) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let offset = usize::try_from(offset).unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(0).min(ITEMS_MAX);
    let search = call.query("search").to_lowercase();
    let kind = call.query("type_by");
    let wanted = |record: &&Broadcast| (kind.is_empty() || record.kind == kind) && is_match(record, &search);
    let all = control.records.of(&call.app.name);
    let mut out = Vec::with_capacity(2048);
    let order = Order::from_call(call);
    match order {
        None if kind.is_empty() && search.is_empty() => write(all.skip(offset).take(size), now, &mut out),
        None => write(all.filter(wanted).skip(offset).take(size), now, &mut out),
        Some(order) => {
            let found = order.page(all.filter(wanted).collect(), offset, size, now.wall_ms);
            write(found.into_iter(), now, &mut out);
        }
    }
    Reply::Now(Response::json(200, Bytes::from(out)))
}

fn write<'a>(records: impl Iterator<Item = &'a Broadcast>, now: Now, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, record) in records.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        record.write_json(now.wall_ms, out);
    }
    out.push(b']');
}

/// Case-insensitive substring of the name or the id; `search` is in lower case.
fn is_match(record: &Broadcast, search: &str) -> bool {
    search.is_empty()
        || contains(&record.stream_id, search)
        || record.name.as_deref().is_some_and(|name| contains(name, search))
}

fn contains(text: &str, search: &str) -> bool {
    if !text.is_ascii() {
        return text.to_lowercase().contains(search);
    }
    let (text, search) = (text.as_bytes(), search.as_bytes());
    text.windows(search.len()).any(|window| window.eq_ignore_ascii_case(search))
}

/// What a list is sorted by.
#[derive(Debug, Clone, Copy)]
enum Key {
    Name,
    Date,
    Status,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    key: Key,
    descending: bool,
}

impl Order {
    /// Both parameters are needed; anything else is the store's order (rest.md §4.1).
    fn from_call(call: &Call<'_>) -> Option<Self> {
        let key = match call.query("sort_by") {
            "name" => Key::Name,
            "date" => Key::Date,
            "status" => Key::Status,
            _ => return None,
        };
        let descending = match call.query("order_by") {
            "asc" => false,
            "desc" => true,
            _ => return None,
        };
        Some(Self { key, descending })
    }

    /// One page in order. Only what comes before the page's end is sorted.
    fn page(self, mut found: Vec<&Broadcast>, offset: usize, size: usize, now_ms: u64) -> Vec<&Broadcast> {
        let compare = |a: &&Broadcast, b: &&Broadcast| {
            let order = match self.key {
                Key::Name => a.name.as_deref().unwrap_or("").cmp(b.name.as_deref().unwrap_or("")),
                Key::Date => a.date.cmp(&b.date),
                Key::Status => a.effective_status(now_ms).cmp(b.effective_status(now_ms)),
            };
            let order = if self.descending { order.reverse() } else { order };
            order.then_with(|| a.stream_id.cmp(&b.stream_id))
        };
        let end = offset.saturating_add(size);
        if end < found.len() {
            found.select_nth_unstable_by(end, compare);
            found.truncate(end);
        }
        found.sort_unstable_by(compare);
        found.into_iter().skip(offset).take(size).collect()
    }
}

/// `GET /broadcasts/count` and `GET /broadcasts/count/{search}`.
pub(super) fn count(control: &mut Control, _: Now, call: &Call<'_>) -> Reply {
    let [search, ..] = call.params;
    let search = search.to_lowercase();
    let number = if search.is_empty() {
        control.records.count(&call.app.name)
    } else {
        control.records.of(&call.app.name).filter(|record| is_match(record, &search)).count()
    };
    Reply::Now(json(200, &SimpleStat { number }))
}

/// `GET /broadcasts/active-live-stream-count`.
pub(super) fn active(control: &mut Control, now: Now, call: &Call<'_>) -> Reply {
    Reply::Now(json(200, &SimpleStat { number: live_count(control, now, call) }))
}

/// Live streams whose record says so at this moment.
fn live_count(control: &Control, now: Now, call: &Call<'_>) -> usize {
    let of_app = control.registry.live.values().filter(|live| live.key.app == call.app.name);
    let shown = of_app.filter_map(|live| control.records.get(&live.key));
    shown.filter(|record| record.effective_status(now.wall_ms) == status::BROADCASTING).count()
}

/// `GET /broadcasts/{id}/broadcast-statistics`.
pub(super) fn statistics(control: &mut Control, _: Now, call: &Call<'_>) -> Reply {
    let key = call.key();
    let live = control.is_live(&key);
    let viewers = control.records.get(&key).map_or(
        Viewers { rtmp: -1, hls: -1, webrtc: -1, dash: -1, live: None },
        |record| Viewers {
            rtmp: if live { i64::from(record.rtmp_viewer_count) } else { -1 },
            hls: i64::from(record.hls_viewer_count),
            webrtc: i64::from(record.webrtc_viewer_count),
            dash: i64::from(record.dash_viewer_count),
            live: None,
        },
    );
    Reply::Now(json(200, &viewers))
}

/// `GET /broadcasts/total-broadcast-statistics`. RTMP and WebRTC are not available, as in the reference.
pub(super) fn total_statistics(control: &mut Control, now: Now, call: &Call<'_>) -> Reply {
    let live = live_count(control, now, call);
    Reply::Now(json(200, &Viewers { rtmp: -1, hls: 0, webrtc: -1, dash: 0, live: Some(live) }))
}
