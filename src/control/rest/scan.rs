//! Lists and counts, made in slices so that publishers never wait, regardless of the search and the number of records.
//!
//! 1. A slice examines a limited number of records and of bytes of their texts. For a sorted list, each round keeps the
//!    records that come first, at most [`RANKS_MAX`]. Later pages take more rounds, not more memory.
//! 2. The records of the page are written, a limited number of bytes per slice, each as the requester may see it.
//!
//! [`ACTIVE_MAX`] requests advance in turn; the others wait, holding only their parameters. A change between two slices
//! may be missed, as with any list that is read page by page.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::call::{Call, Reply};
use super::conference;
use crate::control::Walks;
use crate::control::answer::{SimpleStat, json};
use crate::control::broadcast::{Broadcast, status};
use crate::control::context::Context;
use crate::control::management::User;
use crate::control::mask::{Requester, ShownList};
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryRecords, Vod};
use crate::http::Response;
use crate::store::{self, Kind};
use crate::types::{Now, StreamKey};

/// Maximum number of records examined in one slice, which takes some hundred microseconds.
const SLICE: usize = 2048;
/// Maximum bytes of texts that one slice searches or sorts by. Names may be as long as a record.
const TEXT_BYTES: usize = 256 * 1024;
/// Maximum bytes of a text that is searched without a copy in lower case.
const SHORT: usize = 64;
/// Maximum bytes of a name by which records are sorted; records with the same beginning are sorted by id.
const RANK_BYTES: usize = 256;
/// Maximum bytes of records that are serialized in one slice.
const SHOWN_BYTES: usize = 256 * 1024;
/// Maximum bytes of records that are serialized in one slice for requesters who must not see credentials. It is smaller
/// than [`SHOWN_BYTES`], because masking the credentials takes time.
const MASKED_BYTES: usize = 32 * 1024;
/// Longest list, in bytes. The rest is omitted, and the answer has the offset to continue at.
const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Header field with the offset of the next page.
const NEXT_OFFSET: &str = "Next-Offset";
/// Maximum number of waiting scans; further requests are asked to retry.
const SCANS_MAX: usize = 256;
/// Maximum number of scans that advance at a time.
const ACTIVE_MAX: usize = 4;
/// Maximum number of records that a round of a sorted list keeps.
const RANKS_MAX: usize = 4096;
/// Pause between two slices, for other inputs.
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

/// A record's place in the order; equal keys are sorted by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    date: i64,
    text: Box<str>,
    id: Arc<str>,
}

impl Order {
    /// Returns the sort order; `None`, the store's order, unless `sort_by` and `order_by` are both given. Names are
    /// compared ignoring case, and any direction but `desc` is ascending.
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

    /// Returns the sort order of files, which do not require `order_by`.
    pub(super) fn of_files(call: &Call<'_>) -> Option<Self> {
        let key = match call.query("sort_by") {
            "name" => Key::Name,
            "date" => Key::Date,
            _ => return None,
        };
        Some(Self { key, descending: call.query("order_by") == "desc" })
    }

    fn rank(self, id: &Arc<str>, row: Row<'_>, now: Now) -> Rank {
        let (date, text) = match (self.key, row) {
            (Key::Name, Row::Broadcast(record)) => (0, rank_text(record.name.as_deref())),
            (Key::Name, Row::File(vod)) => (0, rank_text(vod.vod_name.as_deref())),
            (Key::Date, Row::Broadcast(record)) => (record.date, String::new()),
            (Key::Date, Row::File(vod)) => (vod.creation_date, String::new()),
            (Key::Status, Row::Broadcast(record)) => (0, record.effective_status(now).to_owned()),
            (Key::Status, Row::File(_)) | (_, Row::User(_)) => (0, String::new()),
        };
        Rank { date, text: text.into(), id: id.clone() }
    }
}

/// Returns the beginning of a name in lower case, by which records are sorted.
fn rank_text(name: Option<&str>) -> String {
    let name = name.unwrap_or_default();
    name.get(..name.floor_char_boundary(RANK_BYTES)).unwrap_or_default().to_lowercase()
}

/// The kind of result of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// The number of matches.
    Count,
    /// A page of the matches.
    Page { order: Option<Order>, offset: usize, size: usize },
}

/// The records to list, and their form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collection {
    Broadcasts,
    /// Broadcasts that are rooms, shown as rooms.
    Rooms,
    /// Playable files.
    Files,
    /// Users of the server, without passwords.
    Users,
}

/// A record that a list may contain.
#[derive(Debug, Clone, Copy)]
enum Row<'a> {
    Broadcast(&'a Broadcast),
    File(&'a Vod),
    User(&'a User),
}

impl Row<'_> {
    /// Returns the bytes of the texts that a search or a sort by name examines.
    fn text_bytes(self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Row::Broadcast(record) => record.stream_id.len().saturating_add(length(&record.name)),
            Row::File(vod) => vod.searched().into_iter().map(length).sum(),
            Row::User(_) => 0,
        }
    }
}

/// Progress of a sorted list, which is made in rounds: the first records found in this round, and the last record
/// that earlier rounds have skipped. A record is represented by its [`Rank`].
#[derive(Debug, Default)]
struct Ranks {
    best: BTreeSet<Rank>,
    /// Rank of the last record skipped in earlier rounds, and the number of records skipped.
    floor: Option<Rank>,
    passed: usize,
}

impl Ranks {
    /// Keeps a record's rank if it is among the first `count` ranks after the skipped ones.
    fn take(&mut self, rank: Rank, descending: bool, count: usize) {
        let is_behind =
            self.floor.as_ref().is_none_or(|floor| (rank > *floor) != descending && rank != *floor);
        if is_behind {
            self.best.insert(rank);
            if self.best.len() > count {
                let _ = if descending { self.best.pop_first() } else { self.best.pop_last() };
            }
        }
    }

    /// Ends a round: returns the page, or `None` if another round is needed.
    fn page(&mut self, descending: bool, offset: usize, size: usize) -> Option<VecDeque<Arc<str>>> {
        let skip = offset.saturating_sub(self.passed);
        let is_whole = skip.saturating_add(size) <= self.best.len() || self.best.len() < RANKS_MAX;
        let ordered: Box<dyn Iterator<Item = &Rank>> =
            if descending { Box::new(self.best.iter().rev()) } else { Box::new(self.best.iter()) };
        if is_whole {
            return Some(ordered.skip(skip).take(size).map(|rank| rank.id.clone()).collect());
        }
        let passed = skip.min(self.best.len());
        self.floor = ordered.take(passed).last().cloned().or_else(|| self.floor.clone());
        self.passed = self.passed.saturating_add(passed);
        self.best.clear();
        None
    }
}

/// Progress of a scan.
#[derive(Debug)]
enum Stage {
    /// Examining records.
    Looking {
        /// Last record examined.
        after: Option<Arc<str>>,
        /// Number of matches so far.
        matched: usize,
        /// Ids of the page so far, if the list is not sorted.
        page: VecDeque<Arc<str>>,
        /// Ranks of the first records found so far, if the list is sorted.
        ranks: Ranks,
    },
    /// Writing the records of the page.
    Showing { ids: VecDeque<Arc<str>>, list: ShownList },
}

/// Restrictions of a list of broadcasts; an empty text restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filters {
    /// Status, as the API shows it.
    pub(super) status: String,
    /// Protocol of the publisher. Only live broadcasts match.
    pub(super) protocol: String,
}

impl Filters {
    /// Reads `status_by` and `protocol_by`, which Ant Media Server does not have.
    pub(super) fn from_call(call: &Call<'_>) -> Self {
        Self { status: call.query("status_by").to_owned(), protocol: call.query("protocol_by").to_owned() }
    }

    fn take(&self, record: &Broadcast, now: Now) -> bool {
        let status = record.effective_status(now);
        let is_of_protocol = || {
            status == status::BROADCASTING
                && record
                    .publish_type
                    .as_deref()
                    .is_some_and(|kind| kind.eq_ignore_ascii_case(&self.protocol))
        };
        (self.status.is_empty() || self.status == status) && (self.protocol.is_empty() || is_of_protocol())
    }
}

/// A request for a list or a count.
#[derive(Debug)]
pub(in crate::control) struct Scan {
    requester: Requester,
    app: Arc<str>,
    collection: Collection,
    search: String,
    /// Type to which broadcasts are restricted, or stream to which files are restricted.
    kind: String,
    filters: Filters,
    wanted: Wanted,
    stage: Stage,
}

/// Scans that need more than one slice.
#[derive(Debug, Default)]
pub(in crate::control) struct Scans {
    waiting: VecDeque<Scan>,
    /// Index of the next scan to advance.
    turn: usize,
    due: Option<Instant>,
}

impl Scans {
    pub(in crate::control) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Counts the ranks that all scans keep in memory.
    #[cfg(test)]
    pub(in crate::control) fn ranks(&self) -> usize {
        let kept = |scan: &Scan| match &scan.stage {
            Stage::Looking { ranks, .. } => ranks.best.len(),
            Stage::Showing { .. } => 0,
        };
        self.waiting.iter().map(kept).sum()
    }
}

impl Scan {
    pub(super) fn new(call: &Call<'_>, search: String, kind: String, wanted: Wanted) -> Self {
        let (page, ranks) = (VecDeque::new(), Ranks::default());
        Self {
            requester: call.requester,
            app: call.app.name.clone(),
            collection: Collection::Broadcasts,
            search,
            kind,
            filters: Filters::default(),
            wanted,
            stage: Stage::Looking { after: None, matched: 0, page, ranks },
        }
    }

    /// Makes a scan that searches nothing, and only writes the page of the broadcasts with these ids.
    pub(super) fn of_ids(call: &Call<'_>, offset: usize, ids: VecDeque<Arc<str>>) -> Self {
        let wanted = Wanted::Page { order: None, offset, size: ids.len() };
        let list = ShownList::of(call.requester);
        Self { stage: Stage::Showing { ids, list }, ..Self::new(call, String::new(), String::new(), wanted) }
    }

    /// Restricts the scan to broadcasts that these filters take.
    pub(super) fn filtered(self, filters: Filters) -> Self {
        Self { filters, ..self }
    }

    /// Restricts the scan to rooms, shown as rooms.
    pub(super) fn of_rooms(self) -> Self {
        Self { collection: Collection::Rooms, ..self }
    }

    /// Makes the scan list files instead of broadcasts.
    pub(super) fn of_files(self) -> Self {
        Self { collection: Collection::Files, ..self }
    }

    /// Lists users, by e-mail.
    pub(super) fn of_users(requester: Requester, offset: usize, size: usize) -> Self {
        let (page, ranks) = (VecDeque::new(), Ranks::default());
        Self {
            requester,
            app: Arc::from(""),
            collection: Collection::Users,
            search: String::new(),
            kind: String::new(),
            filters: Filters::default(),
            wanted: Wanted::Page { order: None, offset, size },
            stage: Stage::Looking { after: None, matched: 0, page, ranks },
        }
    }

    fn is_match(&self, row: Row<'_>, now: Now) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        match row {
            Row::Broadcast(record) => {
                (self.collection != Collection::Rooms || record.is_virtual)
                    && is(&self.kind, &record.kind)
                    && self.filters.take(record, now)
                    && (self.search.is_empty()
                        || contains(&record.stream_id, &self.search)
                        || record.name.as_deref().is_some_and(|name| contains(name, &self.search)))
            }
            Row::File(vod) => {
                is(&self.kind, vod.stream_id.as_deref().unwrap_or_default())
                    && (self.search.is_empty() || vod.matches(&self.search))
            }
            Row::User(_) => true,
        }
    }

    /// Takes a matching record; returns true if further records cannot matter.
    fn take(&mut self, id: &Arc<str>, row: Row<'_>, now: Now) -> bool {
        let Stage::Looking { matched, page, ranks, .. } = &mut self.stage else { return true };
        *matched = matched.saturating_add(1);
        match self.wanted {
            Wanted::Count => false,
            Wanted::Page { order: None, offset, size } => {
                if *matched > offset && page.len() < size {
                    page.push_back(id.clone());
                }
                page.len() >= size
            }
            Wanted::Page { order: Some(order), offset, size } => {
                let count = offset.saturating_sub(ranks.passed).saturating_add(size).min(RANKS_MAX);
                ranks.take(order.rank(id, row, now), order.descending, count);
                false
            }
        }
    }

    /// Ends the examination: returns the ids of the page, or `None` if another round is needed.
    fn looked(&mut self) -> Option<VecDeque<Arc<str>>> {
        let Stage::Looking { after, page, ranks, .. } = &mut self.stage else { return None };
        *after = None;
        match self.wanted {
            Wanted::Page { order: Some(order), offset, size } => ranks.page(order.descending, offset, size),
            Wanted::Page { order: None, .. } | Wanted::Count => Some(std::mem::take(page)),
        }
    }

    /// True if the scan examines texts of the records.
    fn reads_texts(&self) -> bool {
        let is_by_name =
            matches!(self.wanted, Wanted::Page { order: Some(Order { key: Key::Name, .. }), .. });
        !self.search.is_empty() || is_by_name
    }

    /// Discards the ranks that the first slice of a sorted list found, so that a waiting scan holds none.
    fn begin_again(&mut self) {
        let is_ordered = matches!(self.wanted, Wanted::Page { order: Some(_), .. });
        if let Stage::Looking { after, matched, ranks, .. } = &mut self.stage
            && is_ordered
        {
            (*after, *matched, *ranks) = (None, 0, Ranks::default());
        }
    }

    /// True if the first slice of a scan may run immediately, ahead of the scans that wait: this slice completes the
    /// scan, or the scan holds little memory between slices.
    const fn may_begin(&self, records: usize) -> bool {
        let is_ordered = matches!(self.wanted, Wanted::Page { order: Some(_), .. });
        records <= SLICE || !is_ordered || matches!(self.stage, Stage::Showing { .. })
    }

    /// Advances a scan; returns true when complete.
    fn slice(&mut self, now: Now, records: &Records) -> bool {
        match &mut self.stage {
            Stage::Looking { .. } => self.look(now, records),
            Stage::Showing { .. } => self.show(now, records),
        }
    }

    /// Examines more records; returns true when the scan is complete.
    fn look(&mut self, now: Now, records: &Records) -> bool {
        let Stage::Looking { after, .. } = &mut self.stage else { return true };
        let (app, from) = (self.app.clone(), after.take());
        let reads_texts = self.reads_texts();
        let (mut seen, mut text_bytes, mut last) = (0_usize, 0_usize, None);
        let mut has_more = false;
        for (id, row) in records.rows(self.collection, &app, from.as_deref()) {
            if seen >= SLICE || text_bytes >= TEXT_BYTES {
                has_more = true;
                break;
            }
            seen = seen.saturating_add(1);
            if reads_texts {
                text_bytes = text_bytes.saturating_add(row.map_or(0, Row::text_bytes));
            }
            last = Some(id);
            if let Some(row) = row.filter(|row| self.is_match(*row, now))
                && self.take(id, row, now)
            {
                break;
            }
        }
        if has_more {
            if let Stage::Looking { after, .. } = &mut self.stage {
                *after = last.cloned();
            }
            return false;
        }
        if matches!(self.wanted, Wanted::Count) {
            return true;
        }
        if let Some(ids) = self.looked() {
            self.stage = Stage::Showing { ids, list: ShownList::of(self.requester) };
        }
        false
    }

    /// Writes more records of the page; returns true when complete.
    fn show(&mut self, now: Now, records: &Records) -> bool {
        let Stage::Showing { ids, list } = &mut self.stage else { return true };
        let (mut ids, mut list) =
            (std::mem::take(ids), std::mem::replace(list, ShownList::of(self.requester)));
        let budget = if self.requester.is_masked() { MASKED_BYTES } else { SHOWN_BYTES };
        let (began, mut json) = (list.bytes(), Vec::with_capacity(2048));
        while list.bytes().saturating_sub(began) < budget
            && let Some(id) = ids.front()
        {
            json.clear();
            match (records.row(self, id), self.collection) {
                (Some(Row::Broadcast(record)), Collection::Rooms) => conference::write(record, &mut json),
                (Some(Row::Broadcast(record)), _) => record.write_json(now, &mut json),
                (Some(Row::File(vod)), _) => json = serde_json::to_vec(vod).unwrap_or_default(),
                (Some(Row::User(user)), _) => json = serde_json::to_vec(&user.shown()).unwrap_or_default(),
                (None, _) => {}
            }
            if list.items() > 0 && list.bytes().saturating_add(json.len()) > LIST_BYTES_MAX {
                list.is_cut = true;
                break;
            }
            list.push(&json);
            ids.pop_front();
        }
        let is_over = ids.is_empty() || list.is_cut;
        self.stage = Stage::Showing { ids, list };
        is_over
    }
}

/// True if `text` contains `search`, ignoring case; `search` is in lower case. Takes time proportional to the length of
/// `text`.
fn contains(text: &str, search: &str) -> bool {
    if text.len() > SHORT || !text.is_ascii() {
        return text.to_lowercase().contains(search);
    }
    let (text, search) = (text.as_bytes(), search.as_bytes());
    text.windows(search.len()).any(|window| window.eq_ignore_ascii_case(search))
}

impl Records {
    /// Returns the records of a collection with an id greater than the given one, sorted by id.
    fn rows<'a>(
        &'a self,
        collection: Collection,
        app: &'a Arc<str>,
        after: Option<&'a str>,
    ) -> Box<dyn Iterator<Item = (&'a Arc<str>, Option<Row<'a>>)> + 'a> {
        match collection {
            Collection::Broadcasts | Collection::Rooms => {
                let all = self.behind(app, after);
                Box::new(all.map(|(id, record)| (id, Some(Row::Broadcast(record)))))
            }
            Collection::Files => Box::new(
                side_rows(&self.auxiliary, Kind::Vod, app, after).map(|(id, record)| (id, file_of(record))),
            ),
            Collection::Users => Box::new(
                side_rows(&self.auxiliary, Kind::User, app, after).map(|(id, record)| (id, user_of(record))),
            ),
        }
    }

    fn row(&self, scan: &Scan, id: &Arc<str>) -> Option<Row<'_>> {
        match scan.collection {
            Collection::Broadcasts | Collection::Rooms => {
                let key = StreamKey { app: scan.app.clone(), id: id.clone() };
                self.get(&key).map(Row::Broadcast)
            }
            Collection::Files => self.auxiliary.get(&Vod::key(&scan.app, id)).and_then(file_of),
            Collection::Users => self.auxiliary.get(&store::Key::new(Kind::User, "", id)).and_then(user_of),
        }
    }
}

impl Scans {
    /// True if one more scan may wait. An application may not have more waiting scans than there are free places.
    fn has_room(&self, scan: &Scan) -> bool {
        let of_app = self.waiting.iter().filter(|one| one.app == scan.app).count();
        of_app < SCANS_MAX.saturating_sub(self.waiting.len())
    }

    /// Returns the queue position of a new scan, so that applications take turns: the first scan of an application is
    /// placed before the second scans of all others, the second before the third ones, and so on, but always behind the
    /// active scans.
    fn place_of(&self, scan: &Scan) -> usize {
        let own = self.waiting.iter().filter(|one| one.app == scan.app).count();
        let mut ahead: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, one) in self.waiting.iter().enumerate() {
            let of_app = ahead.entry(&one.app).or_default();
            if place >= ACTIVE_MAX && *of_app > own {
                return place;
            }
            *of_app = of_app.saturating_add(1);
        }
        self.waiting.len()
    }
}

impl Walks {
    /// Runs the first slice immediately, which completes most scans.
    pub(super) fn scan(&mut self, cx: &mut Context, records: &Records, now: Now, mut scan: Scan) -> Reply {
        let held = match scan.collection {
            Collection::Broadcasts | Collection::Rooms => records.count(&scan.app),
            Collection::Files => records.auxiliary.count(Kind::Vod, &scan.app),
            Collection::Users => records.auxiliary.count(Kind::User, &scan.app),
        };
        if let (Wanted::Page { offset, .. }, Stage::Looking { .. }) = (scan.wanted, &scan.stage)
            && offset >= held
        {
            return Reply::Now(Response::json(200, "[]"));
        }
        if scan.may_begin(held) {
            let is_looking = matches!(scan.stage, Stage::Looking { .. });
            let mut is_over = scan.slice(now, records);
            if !is_over && is_looking && matches!(scan.stage, Stage::Showing { .. }) {
                is_over = scan.slice(now, records);
            }
            if is_over {
                cx.scanned(scan);
                return Reply::Later;
            }
            scan.begin_again();
        }
        if !self.scans.has_room(&scan) {
            return Reply::Now(Response::error(503, "Too many lists at once").header("Retry-After", "1"));
        }
        let place = self.scans.place_of(&scan);
        self.scans.waiting.insert(place, scan);
        self.scans.due = self.scans.due.or_else(|| now.mono.checked_add(PAUSE));
        Reply::Later
    }

    /// Runs one slice of the next scan.
    pub(in crate::control) fn fire_scans(&mut self, cx: &mut Context, records: &Records, now: Now) {
        if self.scans.due.is_none_or(|due| due > now.mono) {
            return;
        }
        let mut scans = std::mem::take(&mut self.scans);
        let active = scans.waiting.len().min(ACTIVE_MAX);
        let turn = scans.turn.checked_rem(active).unwrap_or(0);
        scans.turn = turn.saturating_add(1);
        let is_over = scans.waiting.get_mut(turn).is_some_and(|scan| scan.slice(now, records));
        if is_over && let Some(scan) = scans.waiting.remove(turn) {
            scans.turn = turn;
            cx.scanned(scan);
        }
        scans.due = if scans.waiting.is_empty() { None } else { now.mono.checked_add(PAUSE) };
        self.scans = scans;
    }
}

impl Context {
    /// Answers a completed scan.
    fn scanned(&mut self, scan: Scan) {
        let session = scan.requester.session();
        let shown = match scan.stage {
            Stage::Looking { matched, .. } => {
                scan.requester.shown(json(200, &SimpleStat { number: matched }))
            }
            Stage::Showing { list, .. } => {
                let Wanted::Page { offset, .. } = scan.wanted else { return };
                let next = offset.saturating_add(list.items()).to_string();
                let field = list.is_cut.then_some((NEXT_OFFSET, next));
                list.finish(field)
            }
        };
        self.answer_shown(session, shown);
    }
}

/// Returns the auxiliary records of a kind with an id greater than the given one, sorted by id.
fn side_rows<'a>(
    records: &'a AuxiliaryRecords,
    kind: Kind,
    app: &'a Arc<str>,
    after: Option<&'a str>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Auxiliary)> {
    let after = after.unwrap_or_default();
    let behind = records.of(kind, app, after);
    let behind = behind.skip_while(move |(key, _)| *key.id == *after && !after.is_empty());
    behind.map(|(key, record)| (&key.id, record))
}

/// Returns a file's record in the form in which lists handle it; `None` if the file is not playable.
fn file_of(record: &Auxiliary) -> Option<Row<'_>> {
    match record {
        Auxiliary::Vod(vod) if !vod.unfinished => Some(Row::File(vod)),
        Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_) => None,
    }
}

fn user_of(record: &Auxiliary) -> Option<Row<'_>> {
    match record {
        Auxiliary::User(user) => Some(Row::User(user)),
        Auxiliary::Vod(_) | Auxiliary::Token(_) | Auxiliary::Subscriber(_) => None,
    }
}

/// Makes a list in one step, not in slices, from the items starting at `offset`. If the list would be too long, it is
/// cut, and the answer has the offset of the next item.
pub(in crate::control) fn list_from<T: Serialize>(offset: usize, items: impl Iterator<Item = T>) -> Response {
    let (mut json, mut next) = (vec![b'['], offset);
    for item in items {
        let Ok(item) = serde_json::to_vec(&item) else { continue };
        if next > offset && json.len().saturating_add(item.len()) > LIST_BYTES_MAX {
            json.push(b']');
            return Response::json(200, json).header(NEXT_OFFSET, next.to_string());
        }
        if next > offset {
            json.push(b',');
        }
        json.extend_from_slice(&item);
        next = next.saturating_add(1);
    }
    json.push(b']');
    Response::json(200, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages through `count` ranks in rounds, as a scan does. Returns the page and the maximum number of ranks kept.
    fn page(count: usize, descending: bool, offset: usize, size: usize) -> (Vec<usize>, usize) {
        let (mut ranks, mut most) = (Ranks::default(), 0);
        for _ in 0..100 {
            for n in 0..count {
                // The dates come in mixed order.
                let date = i64::try_from(n * 7919 % count).unwrap();
                let rank = Rank { date, text: "".into(), id: date.to_string().into() };
                let wanted = offset.saturating_sub(ranks.passed).saturating_add(size).min(RANKS_MAX);
                ranks.take(rank, descending, wanted);
                most = most.max(ranks.best.len());
            }
            if let Some(ids) = ranks.page(descending, offset, size) {
                return (ids.iter().map(|id| id.parse().unwrap()).collect(), most);
            }
        }
        panic!("no page after 100 rounds");
    }

    #[test]
    fn texts_of_any_length_are_searched_and_names_are_sorted_by_their_beginnings() {
        for long in ["", "x", &"x".repeat(1000)] {
            for (text, search, found) in [
                ("Caf\u{c9} One", "caf\u{e9} o", true),
                ("My Stream", "stream", true),
                ("My Stream", "streams", false),
                ("abc", "abcd", false),
            ] {
                assert_eq!(contains(&format!("{long}{text}"), search), found, "{text} {search}");
            }
        }
        assert_eq!(rank_text(Some(&"X".repeat(1000))), "x".repeat(RANK_BYTES));
        assert_eq!(rank_text(Some(&"\u{20ac}".repeat(1000))).chars().count(), RANK_BYTES / 3);
        assert_eq!(rank_text(None), "");
    }

    #[test]
    fn r_57_a_page_far_behind_takes_rounds_and_no_more_memory() {
        for count in [1, 250, RANKS_MAX, RANKS_MAX + 1, 20_011] {
            for offset in [0, 1, 200, RANKS_MAX - 100, RANKS_MAX, RANKS_MAX + 3, 19_900, 20_011] {
                for (descending, size) in [(false, 50), (true, 250), (true, 0)] {
                    let mut all: Vec<usize> = (0..count).collect();
                    if descending {
                        all.reverse();
                    }
                    let wanted: Vec<usize> = all.into_iter().skip(offset).take(size).collect();
                    let (found, most) = page(count, descending, offset, size);
                    assert_eq!(found, wanted, "{count} {offset} {size} {descending}");
                    assert!(most <= RANKS_MAX);
                }
            }
        }
    }
}
