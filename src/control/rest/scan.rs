//! Requests that look at every record of an application, done in slices so that publishers are never kept waiting.
//! A change between two slices may or may not be seen, as with any list that is read page by page.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::call::{Call, Reply};
use super::conference;
use crate::control::Control;
use crate::control::answer::{SimpleStat, json};
use crate::control::broadcast::Broadcast;
use crate::control::mask::Requester;
use crate::http::Response;
use crate::types::{Now, StreamKey};

/// Records looked at in one slice: some hundred microseconds.
const SLICE: usize = 2048;
/// The most scans that wait; further requests are asked to retry.
const SCANS_MAX: usize = 256;
/// Between two slices other inputs have their turn.
const PAUSE: Duration = Duration::from_micros(50);

/// The sort key of a list.
#[derive(Debug, Clone, Copy)]
enum Key {
    Name,
    Date,
    Status,
}

/// The order of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    key: Key,
    descending: bool,
}

/// A record's place in the order; the id decides among equals.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    date: i64,
    text: Box<str>,
    id: Arc<str>,
}

impl Order {
    /// The sort order: names without case, and whatever is not `desc` ascending. Without both parameters it is the store's.
    pub(super) fn from_call(call: &Call<'_>) -> Option<Self> {
        let key = match call.query("sort_by") {
            "name" => Key::Name,
            "date" => Key::Date,
            "status" => Key::Status,
            _ => return None,
        };
        let order = call.query("order_by");
        (!order.is_empty()).then(|| Self { key, descending: order == "desc" })
    }

    fn rank(self, id: &Arc<str>, record: &Broadcast, now: Now) -> Rank {
        let (date, text) = match self.key {
            Key::Name => (0, record.name.as_deref().unwrap_or("").to_lowercase()),
            Key::Date => (record.date, String::new()),
            Key::Status => (0, record.effective_status(now).to_owned()),
        };
        Rank { date, text: text.into(), id: id.clone() }
    }
}

/// The result that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// The number of matches.
    Count,
    /// A page of the matches.
    Page { order: Option<Order>, offset: usize, size: usize },
}

/// A request under way.
#[derive(Debug)]
pub(in crate::control) struct Scan {
    requester: Requester,
    app: Arc<str>,
    search: String,
    kind: String,
    /// Of rooms alone, and shown as such.
    rooms: bool,
    wanted: Wanted,
    /// The last record looked at.
    after: Option<Arc<str>>,
    /// The number of matches so far.
    matched: usize,
    /// Without an order: the page so far.
    page: Vec<Arc<str>>,
    /// With an order: candidates for the page, and what precedes it.
    best: BTreeSet<Rank>,
}

/// Scans that need more than one slice.
#[derive(Debug, Default)]
pub(in crate::control) struct Scans {
    waiting: VecDeque<Scan>,
    due: Option<Instant>,
}

impl Scans {
    pub(in crate::control) const fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Scan {
    pub(super) fn new(call: &Call<'_>, search: String, kind: String, wanted: Wanted) -> Self {
        Self {
            requester: call.requester,
            app: call.app.name.clone(),
            search,
            kind,
            rooms: false,
            wanted,
            after: None,
            matched: 0,
            page: Vec::new(),
            best: BTreeSet::new(),
        }
    }

    /// Conference rooms are looked for, and shown.
    pub(super) fn of_rooms(self) -> Self {
        Self { rooms: true, ..self }
    }

    /// The records of a page as the answer has them.
    fn shown<'a>(&self, records: impl Iterator<Item = &'a Broadcast>, now: Now) -> Response {
        if self.rooms { conference::array(records) } else { array(records, now) }
    }

    fn is_match(&self, record: &Broadcast) -> bool {
        (!self.rooms || record.is_virtual)
            && (self.kind.is_empty() || record.kind == self.kind)
            && (self.search.is_empty()
                || contains(&record.stream_id, &self.search)
                || record.name.as_deref().is_some_and(|name| contains(name, &self.search)))
    }

    /// Takes a record that matches; true when no further one can matter.
    fn take(&mut self, id: &Arc<str>, record: &Broadcast, now: Now) -> bool {
        self.matched += 1;
        match self.wanted {
            Wanted::Count => false,
            Wanted::Page { order: None, offset, size } => {
                if self.matched > offset && self.page.len() < size {
                    self.page.push(id.clone());
                }
                self.page.len() >= size
            }
            Wanted::Page { order: Some(order), offset, size } => {
                self.best.insert(order.rank(id, record, now));
                if self.best.len() > offset.saturating_add(size) {
                    let _ = if order.descending { self.best.pop_first() } else { self.best.pop_last() };
                }
                false
            }
        }
    }
}

/// Case-insensitive substring; `search` is in lower case.
fn contains(text: &str, search: &str) -> bool {
    if !text.is_ascii() {
        return text.to_lowercase().contains(search);
    }
    let (text, search) = (text.as_bytes(), search.as_bytes());
    text.windows(search.len()).any(|window| window.eq_ignore_ascii_case(search))
}

/// Records as a JSON array.
pub(super) fn array<'a>(records: impl Iterator<Item = &'a Broadcast>, now: Now) -> Response {
    let mut out = Vec::with_capacity(2048);
    out.push(b'[');
    for (index, record) in records.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        record.write_json(now, &mut out);
    }
    out.push(b']');
    Response::json(200, Bytes::from(out))
}

impl Control {
    /// Does the first slice at once; most scans are done with it.
    pub(super) fn scan(&mut self, now: Now, mut scan: Scan) -> Reply {
        if self.walks.scans.waiting.len() >= SCANS_MAX {
            return Reply::Now(Response::error(503, "Too many lists at once").header("Retry-After", "1"));
        }
        if self.slice(now, &mut scan) {
            return Reply::Now(self.scanned(now, &scan));
        }
        self.walks.scans.waiting.push_back(scan);
        self.walks.scans.due = self.walks.scans.due.or_else(|| now.mono.checked_add(PAUSE));
        Reply::Later
    }

    /// Looks at some more records; true when that was all.
    fn slice(&self, now: Now, scan: &mut Scan) -> bool {
        let (app, after) = (scan.app.clone(), scan.after.take());
        let mut seen = 0;
        let mut last = None;
        for (id, record) in self.records.behind(&app, after.as_deref()).take(SLICE) {
            seen += 1;
            last = Some(id);
            if scan.is_match(record) && scan.take(id, record, now) {
                return true;
            }
        }
        scan.after = last.cloned();
        seen < SLICE
    }

    fn scanned(&self, now: Now, scan: &Scan) -> Response {
        let find = |id: &Arc<str>| self.records.get(&StreamKey { app: scan.app.clone(), id: id.clone() });
        match scan.wanted {
            Wanted::Count => json(200, &SimpleStat { number: scan.matched }),
            Wanted::Page { order: None, .. } => scan.shown(scan.page.iter().filter_map(find), now),
            Wanted::Page { order: Some(order), offset, size } if order.descending => {
                let ids = scan.best.iter().rev().skip(offset).take(size);
                scan.shown(ids.filter_map(|rank| find(&rank.id)), now)
            }
            Wanted::Page { order: Some(_), offset, size } => {
                let ids = scan.best.iter().skip(offset).take(size);
                scan.shown(ids.filter_map(|rank| find(&rank.id)), now)
            }
        }
    }

    /// Runs one slice of the scan whose turn it is.
    pub(in crate::control) fn fire_scans(&mut self, now: Now) {
        if self.walks.scans.due.is_none_or(|due| due > now.mono) {
            return;
        }
        if let Some(mut scan) = self.walks.scans.waiting.pop_front() {
            if self.slice(now, &mut scan) {
                let response = self.scanned(now, &scan);
                self.answer(scan.requester, response);
            } else {
                self.walks.scans.waiting.push_back(scan);
            }
        }
        self.walks.scans.due =
            if self.walks.scans.waiting.is_empty() { None } else { now.mono.checked_add(PAUSE) };
    }
}
