//! Answers for polling: about the server, the broadcasts of a page, or one broadcast. Each answer has one JSON object
//! per line. The same line always has the same subject, so that a client can tell which lines have changed. If
//! requested as server-sent events, the connection sends the changed lines (docs/rest.md).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call::{Reply, RootCall};
use crate::control::broadcast::Broadcast;
use crate::control::context::Context;
use crate::control::live::{Live, Registry};
use crate::control::records::Records;
use crate::control::standby::Standby;
use crate::control::{Control, Files, Now, Outbound, wall};
use crate::http::Response;
use crate::mail::SourceFigures;
use crate::protocol::Container;
use crate::types::{StreamKey, WorkerId, build};

/// Maximum number of broadcasts in one answer, as in the longest list.
const BROADCASTS_MAX: usize = 250;
/// Maximum number of recordings in one answer.
const RECORDINGS_MAX: usize = 250;
/// Media type of the answers.
pub(in crate::control) const LINES: &str = "application/x-ndjson";

/// Makes an answer of these lines.
fn lines(lines: impl IntoIterator<Item = Vec<u8>>) -> Reply {
    let mut body = Vec::new();
    for line in lines {
        body.extend_from_slice(&line);
        body.push(b'\n');
    }
    Reply::Now(Response::with_body(200, LINES, body))
}

fn line(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

/// `GET /live`: the machine, and the applications.
pub(super) fn server(control: &mut Control, now: Now, _: &RootCall<'_>) -> Reply {
    let host = &control.figures.host;
    let load = &control.cx.load;
    let busy = (0..load.workers()).map(|worker| load.latest_permille(now, WorkerId(worker)));
    let stats = control.stats();
    let addresses = control.cx.config.addresses.iter();
    let ports: Map<String, Value> =
        addresses.map(|(name, address)| (name.to_owned(), address.port().into())).collect();
    let server = json!({ "server": {
        "version": build::VERSION,
        "buildNumber": build::NUMBER,
        "startTime": wall(control.figures.began),
        "liveStreams": stats.live,
        "viewers": stats.viewers,
        "pushes": stats.pushes_broadcasting,
        "pulls": stats.pulls_broadcasting,
        "processors": host.processors,
        "systemCpuPercent": host.system_cpu_percent,
        "processCpuPercent": host.process_cpu_percent,
        "workersBusyPermille": busy.collect::<Vec<_>>(),
        "memory": { "total": host.memory_total, "available": host.memory_available, "process": host.process_memory },
        "disk": { "total": host.disk.total, "free": host.disk.free },
        "certificateExpires": host.certificate_expires_ms,
        "ports": ports,
    }});
    let under_way = control.files.recordings.counts();
    let app = |name: &Arc<str>| {
        let (live, all) = (control.registry.count(name), control.records.count(name));
        let recordings = under_way.get(name).copied().unwrap_or(0);
        json!({ "name": &**name, "liveStreams": live, "broadcasts": all, "recordings": recordings })
    };
    let apps: Vec<Value> = control.cx.apps.keys().map(app).collect();
    lines([line(&server), line(&json!({ "applications": apps }))])
}

/// A line about a broadcast.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    stream_id: &'a str,
    name: Option<&'a str>,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    /// `None` if there is no such broadcast.
    status: Option<&'a str>,
    bitrate: i64,
    speed: f64,
    rtmp_viewer_count: i32,
    #[serde(rename = "webRTCViewerCount")]
    webrtc_viewer_count: i32,
    hls_viewer_count: i32,
    dash_viewer_count: i32,
    /// `None` unless the broadcast is live.
    live: Option<LiveRow<'a>>,
}

/// Figures of the publisher.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LiveRow<'a> {
    publish_type: Option<&'a str>,
    start_time: i64,
    width: i32,
    height: i32,
    video_codec: Option<String>,
    audio_codec: Option<String>,
    /// Time without media, in milliseconds.
    silent_ms: u64,
    packet_lost_ratio: f64,
    is_recorded: bool,
}

impl<'a> LiveRow<'a> {
    fn of(record: &'a Broadcast, live: &Live, is_recorded: bool) -> Self {
        let figures = live.received.figures.as_ref();
        Self {
            publish_type: record.publish_type.as_deref(),
            start_time: record.start_time,
            width: record.width,
            height: record.height,
            video_codec: figures.and_then(|figures| figures.video_codec).map(|codec| codec.to_string()),
            audio_codec: figures.and_then(|figures| figures.audio_codec).map(|codec| codec.to_string()),
            silent_ms: figures.map_or(0, |figures| figures.silent_ms),
            packet_lost_ratio: record.packet_lost_ratio,
            is_recorded,
        }
    }
}

impl<'a> Row<'a> {
    fn of(id: &'a str, record: Option<&'a Broadcast>, live: Option<LiveRow<'a>>, now: Now) -> Self {
        let gone = Self {
            stream_id: id,
            name: None,
            kind: None,
            status: None,
            bitrate: 0,
            speed: 0.0,
            rtmp_viewer_count: 0,
            webrtc_viewer_count: 0,
            hls_viewer_count: 0,
            dash_viewer_count: 0,
            live: None,
        };
        record.map_or(gone, |record| Self {
            stream_id: id,
            name: record.name.as_deref(),
            kind: Some(&record.kind),
            status: Some(record.effective_status(now)),
            bitrate: record.bitrate,
            speed: record.speed,
            rtmp_viewer_count: record.rtmp_viewer_count,
            webrtc_viewer_count: record.webrtc_viewer_count,
            hls_viewer_count: record.hls_viewer_count,
            dash_viewer_count: record.dash_viewer_count,
            live,
        })
    }
}

/// Lists recordings under way, as JSON.
fn recordings<'a>(list: impl Iterator<Item = (&'a StreamKey, Container, i64)>) -> Vec<Value> {
    list.map(|(key, container, began)| {
        json!({ "streamId": &*key.id, "container": container.name(), "startTime": began })
    })
    .collect()
}

/// `GET /live/{app}?ids=`: the application, and its broadcasts with these ids.
pub(super) fn application(
    cx: &Context,
    records: &Records,
    registry: &Registry,
    files: &Files,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let [name, ..] = call.params;
    if !cx.apps.contains_key(name) {
        return Reply::Now(Response::error(404, "Not Found"));
    }
    let (live, all) = (registry.count(name), records.count(name));
    let under_way = || files.recordings.under_way(name);
    let head = json!({ "application": {
        "name": name,
        "liveStreams": live,
        "broadcasts": all,
        "recordings": recordings(under_way().take(RECORDINGS_MAX)),
    }});
    let recorded: BTreeSet<&str> = under_way().map(|(key, ..)| &*key.id).collect();
    let ids = call.query("ids").split(',').filter(|id| !id.is_empty()).take(BROADCASTS_MAX);
    let row = |id: &str| {
        let record = records.find(name, id);
        let live = record.zip(self::live(registry, name, id));
        let live = live.map(|(record, live)| LiveRow::of(record, live, recorded.contains(id)));
        let row = Row::of(id, record, live, now);
        serde_json::to_vec(&json!({ "broadcast": row })).unwrap_or_default()
    };
    lines(std::iter::once(line(&head)).chain(ids.map(row)))
}

/// `GET /live/{app}/{id}`: the broadcast as `GET /broadcasts/{id}` shows it, the figures of its publisher, the
/// connection attempts of its endpoints, and its recordings under way.
pub(super) fn broadcast(
    records: &Records,
    registry: &Registry,
    outbound: &Outbound,
    files: &Files,
    now: Now,
    call: &RootCall<'_>,
) -> Reply {
    let [app, id, ..] = call.params;
    let Some(record) = records.find(app, id) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let shown = [br#"{"broadcast":"#.as_slice(), &record.to_json(now), b"}"].concat();
    let endpoints = line(&json!({ "endpoints": endpoints(registry, outbound, app, id) }));
    let of_stream = files.recordings.under_way(app).filter(|(key, ..)| *key.id == *id);
    let recordings = line(&json!({ "recordings": recordings(of_stream) }));
    lines([shown, line(&json!({ "source": source(registry, app, id) })), endpoints, recordings])
}

/// Returns the counts of the publisher's clock faults by kind, without zeros.
fn clock_faults(figures: &SourceFigures) -> Value {
    let seen = figures.clock.faults.iter().filter(|(_, count)| *count > 0);
    Value::Object(seen.map(|(fault, count)| (fault.name().to_owned(), Value::from(count))).collect())
}

fn live<'a>(registry: &'a Registry, app: &str, id: &str) -> Option<&'a Live> {
    registry.get(&registry.find(&StreamKey::new(app, id))?)
}

/// Returns the histories of a live stream's endpoints, oldest entry first.
fn endpoints(registry: &Registry, outbound: &Outbound, app: &str, id: &str) -> Vec<Value> {
    let histories = live(registry, app, id).into_iter().flat_map(|live| outbound.pushes.histories(live));
    histories.map(|(url, history)| json!({ "endpointUrl": url, "history": history })).collect()
}

/// Returns the publisher's figures; null if the stream is not live.
fn source(registry: &Registry, app: &str, id: &str) -> Value {
    let figures = live(registry, app, id).and_then(|live| Some((live, live.received.figures.as_ref()?)));
    figures.map_or(Value::Null, |(live, figures)| {
        json!({
            "receivedBytes": live.received.bytes_before.saturating_add(figures.received_bytes),
            "pictures": figures.pictures,
            "videoCodec": figures.video_codec.map(|codec| codec.to_string()),
            "audioCodec": figures.audio_codec.map(|codec| codec.to_string()),
            "silentMs": figures.silent_ms,
            "clockFaults": clock_faults(figures),
            "tracksLeftOut": figures.left_out,
            "packets": figures.reception.expected,
            "packetsLost": figures.reception.lost,
            "rttMs": figures.reception.rtt_ms,
            "jitterMs": figures.reception.jitter_ms,
            "standby": live.standby().map(standby),
        })
    })
}

/// Returns the publisher that waits to take over.
fn standby(standby: &Standby) -> Value {
    json!({
        "publishType": standby.source.ingest.publish_type,
        "userAgent": standby.agent,
        "remoteIp": standby.address,
        "sends": standby.sends(),
    })
}
