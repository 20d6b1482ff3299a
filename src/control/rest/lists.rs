//! Lists, counts and statistics.

use super::call::{Call, Reply};
use super::scan::{Filters, Order, Scan, Wanted};
use crate::control::answer::{Outcome, SimpleStat, json};
use crate::control::broadcast::status;
use crate::control::cluster::Cluster;
use crate::control::connections::Asked;
use crate::control::context::Context;
use crate::control::history::Minutes;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::stats::Figures;
use crate::control::viewer_counts::Viewers;
use crate::control::{Control, Now, Walks};
use crate::http::Response;
use crate::protocol;

/// Maximum number of items of one list.
const ITEMS_MAX: usize = 250;
/// Maximum number of entries of one list of clients.
const CLIENTS_MAX: usize = 50;

/// Parses the requested page of a list; `None` if a parameter is not a number.
pub(super) fn page_of(offset: &str, size: &str) -> Option<(usize, usize)> {
    let (offset, size) = (offset.parse::<i32>().ok()?, size.parse::<i32>().ok()?);
    Some((usize::try_from(offset).unwrap_or(0), usize::try_from(size).unwrap_or(0).min(ITEMS_MAX)))
}

/// Parses the offset of a list from the query; `None` if not a number.
pub(super) fn offset_of(text: &str) -> Option<usize> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

/// Answers a removal of all records of a kind. A request removes at most `at_once`, and fails if any are left.
pub(super) fn removed(at_once: usize, left: usize) -> Response {
    let text = format!("{at_once} are removed, and {left} are left: repeat the request");
    let outcome = if left == 0 { Outcome::success() } else { Outcome::failure(&text) };
    outcome.response(200)
}

/// `GET /broadcasts/list/{offset}/{size}`.
pub(super) fn list(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [offset, size, ..] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let (search, kind) = (call.query("search").to_lowercase(), call.query("type_by").to_owned());
    let order = Order::from_call(call);
    let filters = Filters::from_call(call);
    if order.is_none() && search.is_empty() && kind.is_empty() && filters == Filters::default() {
        let page = lists.records.at_place(&call.app.name, offset).take(size);
        let ids = page.map(|record| record.stream_id.as_str().into()).collect();
        return lists.scan(now, Scan::of_ids(call, offset, ids));
    }
    let wanted = Wanted::Page { order, offset, size };
    lists.scan(now, Scan::new(call, search, kind, wanted).filtered(filters))
}

/// `GET /broadcasts/filter-list/{offset}/{size}/{type}` of Ant Media Server before 3.0.
pub(super) fn filter_list(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [offset, size, kind, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let wanted = Wanted::Page { order: None, offset, size };
    lists.scan(now, Scan::new(call, String::new(), kind.to_owned(), wanted))
}

/// `GET /broadcasts/count` and `GET /broadcasts/count/{search}`.
pub(super) fn count(lists: Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let [search, ..] = call.params;
    let search = if search.is_empty() { call.query("search") } else { search };
    let filters = Filters::from_call(call);
    if search.is_empty() && filters == Filters::default() {
        let number = lists.records.count(&call.app.name);
        return Reply::Now(json(200, &SimpleStat { number }));
    }
    let scan = Scan::new(call, search.to_lowercase(), String::new(), Wanted::Count);
    lists.scan(now, scan.filtered(filters))
}

/// `GET /broadcasts/active-live-stream-count`.
pub(super) fn active(lists: &Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    Reply::Now(json(200, &SimpleStat { number: live_count(lists, now, call) }))
}

/// The parts of control from which lists are made: live streams here and at other nodes, and scans over many records.
pub(super) struct Lists<'a> {
    cx: &'a mut Context,
    walks: &'a mut Walks,
    pub(super) records: &'a Records,
    pub(super) registry: &'a Registry,
    cluster: &'a Cluster,
}

impl Lists<'_> {
    /// Begins a scan, which answers the call when complete.
    pub(super) fn scan(self, now: Now, scan: Scan) -> Reply {
        self.walks.scan(self.cx, self.records, now, scan)
    }
}

impl Control {
    /// Borrows the parts that lists are made from.
    pub(super) const fn lists(&mut self) -> Lists<'_> {
        Lists {
            cx: &mut self.cx,
            walks: &mut self.walks,
            records: &self.records,
            registry: &self.registry,
            cluster: &self.registry.cluster,
        }
    }
}

/// Counts the application's streams that are live at any node and that their records show as broadcasting.
fn live_count(Lists { records, registry, cluster, .. }: &Lists<'_>, now: Now, call: &Call<'_>) -> usize {
    let of_app = registry.of_app(&call.app.name);
    // Copies are left out, because their origins count the same streams.
    let here = of_app.filter(|(_, live)| !live.is_copy()).map(|(_, live)| &live.key);
    let shown = here.chain(cluster.live_elsewhere(&call.app.name)).filter_map(|key| records.get(key));
    shown.filter(|record| record.effective_status(now) == status::BROADCASTING).count()
}

/// `GET /broadcasts/{id}/broadcast-statistics`.
pub(super) fn statistics(Lists { records, registry, cluster, .. }: &Lists<'_>, call: &Call<'_>) -> Reply {
    let key = call.key();
    let live = registry.is_live(&key) || cluster.elsewhere(&key).is_some();
    let viewers = records.get(&key).map_or(Viewers::UNKNOWN, |record| Viewers::of(record, live));
    Reply::Now(json(200, &viewers))
}

/// `GET /broadcasts/{id}/metrics-history`: the last hour of a live stream, by minute. The figures of encoders are zero,
/// since this server does not encode video.
pub(super) fn metrics_history(records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    let key = call.key();
    if records.get(&key).is_none() {
        return Reply::Now(Response::error(404, "Not Found"));
    }
    let none = Minutes::default();
    let live = registry.find(&key).and_then(|stream| registry.get(&stream));
    let minutes = live.map_or(&none, |live| &live.received.minutes);
    let answer = serde_json::json!({
        "bitrate": minutes.column(|sample| sample.bitrate),
        "viewers": minutes.column(|sample| sample.viewers),
        "speed": minutes.column(|sample| sample.speed),
        "encoderQueueSize": minutes.column(|_| 0),
        "droppedPackets": minutes.column(|sample| sample.dropped),
        "droppedFrames": minutes.column(|_| 0),
        "packetLostRatio": minutes.column(|sample| sample.lost_ratio),
    });
    Reply::Now(json(200, &answer))
}

/// `GET /broadcasts/{id}/srt-stats` (not in Ant Media Server), and its equivalents for other protocols: a list, which
/// is empty unless the stream is live.
pub(super) fn connection_statistics(
    cx: &mut Context,
    records: &Records,
    registry: &Registry,
    figures: &mut Figures,
    call: &Call<'_>,
) -> Reply {
    let key = call.key();
    let wanted = call.request.path.rsplit('/').next().unwrap_or_default().trim_end_matches("-stats");
    let Some(catalogue) = protocol::catalogues().find(|catalogue| catalogue.name == wanted) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    if records.get(&key).is_none() {
        return Reply::Now(Response::error(404, "Not Found"));
    }
    match registry.find(&key) {
        Some(stream) => figures.ask_connections(
            cx,
            call.requester,
            (&call.app.name, stream),
            Asked::Statistics(catalogue.name),
        ),
        None => Reply::Now(Response::json(200, "[]")),
    }
}

/// `GET /broadcasts/{id}/webrtc-client-stats/{offset}/{size}`: a list, empty unless the stream exists and is live.
pub(super) fn clients(
    cx: &mut Context,
    registry: &Registry,
    figures: &mut Figures,
    call: &Call<'_>,
) -> Reply {
    let [_, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let asked = Asked::Clients { offset, size: size.min(CLIENTS_MAX) };
    match registry.find(&call.key()) {
        Some(stream) => figures.ask_connections(cx, call.requester, (&call.app.name, stream), asked),
        None => Reply::Now(Response::json(200, "[]")),
    }
}

/// `GET /broadcasts/{id}/viewers/list/{offset}/{size}` (not in Ant Media Server): viewers of every protocol that have a
/// connection of their own. Viewers of HLS and DASH have no such connection, and are not listed.
pub(super) fn viewers(
    cx: &mut Context,
    registry: &Registry,
    figures: &mut Figures,
    call: &Call<'_>,
) -> Reply {
    let [_, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    match registry.find(&call.key()) {
        Some(stream) => figures.ask_connections(
            cx,
            call.requester,
            (&call.app.name, stream),
            Asked::Viewers { offset, size },
        ),
        None => Reply::Now(Response::json(200, "[]")),
    }
}

/// `POST /broadcasts/{id}/viewers/{viewer}/stop` (not in Ant Media Server): ends playback for a viewer of the stream.
pub(super) fn stop_viewer(
    cx: &mut Context,
    registry: &Registry,
    figures: &mut Figures,
    call: &Call<'_>,
) -> Reply {
    let [_, viewer, ..] = call.params;
    match registry.find(&call.key()) {
        Some(stream) => figures.ask_connections(
            cx,
            call.requester,
            (&call.app.name, stream),
            Asked::End(viewer.to_owned()),
        ),
        None => Reply::Now(Outcome::failure("The stream is not live").response(200)),
    }
}

/// `GET /broadcasts/total-broadcast-statistics`. As in Ant Media Server, the number of RTMP viewers is not available.
pub(super) fn total_statistics(lists: &Lists<'_>, now: Now, call: &Call<'_>) -> Reply {
    let live = live_count(lists, now, call);
    Reply::Now(json(200, &Viewers::of_all(live)))
}
