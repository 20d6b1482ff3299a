//! The events reported by hooks, and their members (docs/hooks.md).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::auth::HookUrl;
use crate::auth::access::Params;
use crate::control::broadcast::Broadcast;
use crate::control::context::Context;
use crate::control::hooks::Hooks;
use crate::control::live::{Ended, Live, Registry};
use crate::control::records::Records;
use crate::control::records::auxiliary::Vod;
use crate::control::stats::Figures;
use crate::control::{Outbound, wall};
use crate::jobs::Work;
use crate::mail::StreamEnd;
use crate::types::{Now, SessionRef, StreamId, StreamKey};

/// Members that a peer's parameters may not replace.
const OWN_MEMBERS: [&str; 4] = ["id", "action", "app", "timestamp"];

/// The members of a hook being built.
#[derive(Debug)]
struct Members(Map<String, Value>);

impl Members {
    /// Makes the members that every hook has.
    fn new(now: Now, key: &StreamKey, action: &str) -> Self {
        let mut members = Self(Map::new());
        members.put("id", Some(&key.id));
        members.put("action", Some(action));
        members.put("app", Some(&key.app));
        members.put("timestamp", Some(&now.wall_ms.to_string()));
        members
    }

    /// Adds a text, unless it is blank.
    fn put(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    fn record(&mut self, record: &Broadcast) {
        self.put("streamName", record.name.as_deref());
        self.put("category", record.category.as_deref());
        self.put("mainTrackId", record.main_track_stream_id.as_deref());
        self.put("roomId", record.main_track_stream_id.as_deref());
    }

    /// Adds metadata: as an object if the text is a JSON object, otherwise as text.
    fn metadata(&mut self, text: Option<&str>) {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return };
        let value = match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Value::Object(object),
            Ok(_) | Err(_) => text.into(),
        };
        self.0.insert("metadata".to_owned(), value);
    }

    /// Adds the parameters given by the peer. They do not replace the members that identify the stream and the event.
    fn params(&mut self, params: &Params) {
        for (name, value) in params {
            if !OWN_MEMBERS.contains(&name.as_str()) {
                self.0.insert(name.clone(), value.as_str().into());
            }
        }
    }

    fn text(self, form: bool) -> Bytes {
        if !form {
            return Value::Object(self.0).to_string().into();
        }
        let mut out = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.0 {
            match value.as_str() {
                Some(text) => out.append_pair(name, text),
                None => out.append_pair(name, &value.to_string()),
            };
        }
        out.finish().into()
    }
}

/// An event of a stream to report by a hook. Besides the members that come from the stream's record, the hook has these
/// members.
#[derive(Debug, Clone, Copy)]
pub(in crate::control) struct Notice<'a> {
    action: &'static str,
    /// Metadata that is sent instead of the record's metadata.
    metadata: Option<&'a str>,
    /// Parameters of the publisher or viewer.
    params: Option<&'a Params>,
}

impl<'a> Notice<'a> {
    pub(in crate::control) const fn of(action: &'static str) -> Self {
        Self { action, metadata: None, params: None }
    }

    const fn metadata(self, metadata: &'a str) -> Self {
        Self { metadata: Some(metadata), ..self }
    }

    pub(in crate::control) const fn params(self, params: &'a Params) -> Self {
        Self { params: Some(params), ..self }
    }
}

impl Hooks {
    /// Cancels the hook `idleTimeIsExpired` of an ended stream.
    pub(in crate::control) fn forget_idle(&mut self, key: &StreamKey) {
        self.idles.forget(key);
    }

    /// Queues a hook for a receiver.
    fn post_hook(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: &StreamKey,
        url: &HookUrl,
        action: &'static str,
        body: Bytes,
    ) {
        let settings = cx.apps.get(&key.app).map(|app| app.hooks.clone()).unwrap_or_default();
        self.tell(key, url, action, body, &settings);
        self.send_hooks(cx, now);
    }

    /// Submits waiting hooks while threads are free.
    fn send_hooks(&mut self, cx: &mut Context, now: Now) {
        while let Some((number, app, post)) = self.poll_post(now) {
            // The job class cannot be full: no more hooks are in progress than the class has threads.
            cx.submit_of(app, Work::Post(post), move |control, now, outcome| {
                control.hooks.handle_answer(now, number, &outcome.posted());
                control.outbound.tell_lost_hooks(&mut control.hooks, now);
                control.hooks.send_hooks(&mut control.cx, now);
            });
        }
    }

    /// Handles deadlines of hooks.
    pub(in crate::control) fn fire_hooks(&mut self, cx: &mut Context, outbound: &mut Outbound, now: Now) {
        self.handle_timeout(now);
        outbound.tell_lost_hooks(self, now);
        self.send_hooks(cx, now);
    }

    /// Sends a message of a data channel to the application's receiver.
    pub(in crate::control) fn hook_data(
        &mut self,
        cx: &mut Context,
        now: Now,
        (key, sender): (&StreamKey, SessionRef),
        payload: Bytes,
    ) {
        let Some(app) = cx.apps.get(&key.app) else { return };
        if let Some(url) = &app.hooks.data_url {
            self.tell_data((key, sender), url, payload, &app.hooks);
            self.send_hooks(cx, now);
        }
    }

    fn arm_status(&mut self, cx: &Context, registry: &Registry, now: Now, stream: StreamId) {
        let Some(live) = registry.get(&stream) else { return };
        let period = cx.apps.get(&live.key.app).and_then(|app| app.hooks.status_period);
        if let Some(at) = period.and_then(|period| now.mono.checked_add(period)) {
            self.idles.arm_status(at, stream);
        }
    }

    /// Sends the figures of a stream, unless its publisher is absent or older hooks of the stream wait.
    fn hook_status(
        &mut self,
        cx: &mut Context,
        records: &Records,
        registry: &Registry,
        now: Now,
        stream: StreamId,
    ) {
        let Some(key) = registry.get(&stream).map(|live| live.key.clone()) else { return };
        if registry.publisher_of(&key).is_none() || self.has_line(&key) {
            return;
        }
        let (Some(url), Some(record)) = (records.hook_url(cx, &key), records.get(&key)) else { return };
        let members = serde_json::json!({
            "id": &*key.id,
            "action": "liveStreamStatus",
            "width": record.width,
            "height": record.height,
            "totalByteReceived": record.received_bytes,
            "inputQueueSize": record.pending_packet_size,
            "speed": record.speed,
            "timestamp": wall(now),
            "streamName": record.name,
            "encodingQueueSize": record.encoder_queue_size,
            "dropFrameCountInEncoding": record.drop_frame_count_in_encoding,
            "dropPacketCountInIngestion": record.drop_packet_count_in_ingestion,
        });
        let Value::Object(mut members) = members else { return };
        members.retain(|_, value| !value.is_null());
        let body = Members(members).text(cx.is_form(&key));
        self.post_hook(cx, now, &key, &url, "liveStreamStatus", body);
    }

    /// Calls `server.statusWebHookURL` when the load has become so high that new publishers are refused.
    pub(in crate::control) fn watch_load(
        &mut self,
        cx: &mut Context,
        registry: &Registry,
        figures: &Figures,
        now: Now,
    ) {
        let high = cx.load.is_high(now, &cx.config.server);
        if std::mem::replace(&mut self.load_high, high) || !high {
            return;
        }
        let Some(url) = cx.config.server.status_hook.clone() else { return };
        let body = serde_json::json!({
            "action": "highResourceUsage",
            "host": cx.config.host_address,
            "resourceInfo": registry.resource_report(cx, figures, now).to_string(),
        });
        // The hook belongs to no application: it is sent as JSON and not retried.
        self.post_hook(cx, now, &StreamKey::new("", ""), &url, "highResourceUsage", body.to_string().into());
    }

    /// Reports that a recording can be played.
    pub(in crate::control) fn hook_vod_ready(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        key: &StreamKey,
        vod: &Vod,
    ) {
        let Some(url) = records.hook_url(cx, key) else { return };
        let mut members = Members::new(now, key, "vodReady");
        let name = vod.vod_name.as_deref().unwrap_or_default();
        members.put("vodName", Some(name.rsplit_once('.').map_or(name, |(stem, _)| stem)));
        members.put("vodId", vod.vod_id.as_deref());
        members.put("duration", Some(&vod.duration.to_string()));
        members.metadata(vod.metadata.as_deref());
        let body = members.text(cx.is_form(key));
        self.post_hook(cx, now, key, &url, "vodReady", body);
    }
}

impl Records {
    /// The hook URL of a stream: the URL in its record or, without one there, that of its application.
    pub(in crate::control) fn hook_url(&self, cx: &Context, key: &StreamKey) -> Option<HookUrl> {
        let own = self.get(key).and_then(|record| record.listener_hook_url.as_deref());
        match own.filter(|url| !url.trim().is_empty()) {
            Some(url) => HookUrl::parse(url).ok(),
            None => cx.apps.get(&key.app).and_then(|app| app.hooks.url.clone()),
        }
    }
}

impl Registry {
    /// Counts the live subtracks of a main track that hooks have reported as live.
    fn announced_subtracks(&self, records: &Records, main: &StreamKey) -> usize {
        let stream = |id: &Arc<str>| self.find(&StreamKey { app: main.app.clone(), id: id.clone() });
        let live = records.subtracks(main).filter_map(stream);
        live.filter(|stream| self.get(stream).is_some_and(|live| live.told.announced)).count()
    }

    /// True if the last announced subtrack of a main track has ended: no announced subtrack is live, and none is among
    /// the ended streams that still have to be reported.
    fn was_last_subtrack(&self, records: &Records, main: &StreamKey) -> bool {
        let is_of_it = |ended: &Ended| {
            ended.live.told.announced && records.main_track_of(&ended.live.key).as_ref() == Some(main)
        };
        self.announced_subtracks(records, main) == 0 && !self.ended.iter().any(is_of_it)
    }
}

impl Context {
    fn is_form(&self, key: &StreamKey) -> bool {
        self.apps.get(&key.app).is_some_and(|app| app.hooks.form)
    }
}

impl Hooks {
    /// Sends a hook about a stream, if it has a receiver.
    fn hook(&mut self, cx: &mut Context, records: &Records, now: Now, key: &StreamKey, notice: Notice<'_>) {
        if let Some(url) = records.hook_url(cx, key) {
            self.hook_to(cx, records, now, key, &url, notice);
        }
    }

    /// Sends a hook about a stream, with the members of its record.
    pub(in crate::control) fn hook_to(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        key: &StreamKey,
        url: &HookUrl,
        notice: Notice<'_>,
    ) {
        let Notice { action, metadata, params } = notice;
        let mut members = Members::new(now, key, action);
        let record = records.get(key);
        if let Some(record) = record {
            members.record(record);
        }
        members.metadata(metadata.or_else(|| record.and_then(|record| record.meta_data.as_deref())));
        if let Some(params) = params {
            members.params(params);
        }
        let body = members.text(cx.is_form(key));
        self.post_hook(cx, now, key, url, action, body);
    }

    /// Reports a stream as live at the first unit of a publisher. A stream is reported once between its beginning and
    /// its end, even if it is published again after an outage.
    pub(in crate::control) fn source_started(
        &mut self,
        cx: &mut Context,
        records: &Records,
        registry: &mut Registry,
        now: Now,
        stream: StreamId,
    ) {
        let Some(live) = registry.get_mut(&stream).filter(|live| !live.is_copy()) else { return };
        if std::mem::replace(&mut live.told.announced, true) {
            return;
        }
        let (key, params) = (live.key.clone(), live.params.clone());
        self.hook(cx, records, now, &key, Notice::of("liveStreamStarted").params(&params));
        if let Some(main) = records.main_track_of(&key)
            && registry.announced_subtracks(records, &main) == 1
        {
            self.hook(cx, records, now, &key, Notice::of("firstActiveTrackAddedInMainTrack"));
        }
        self.arm_status(cx, registry, now, stream);
    }

    /// Reports that a stream has ended, while its record still exists.
    pub(in crate::control) fn stream_ended(
        &mut self,
        cx: &mut Context,
        records: &Records,
        registry: &Registry,
        now: Now,
        (stream, live): (StreamId, &Live),
        end: StreamEnd,
    ) {
        self.idles.forget_status(stream);
        let key = &live.key;
        if live.told.announced {
            self.hook(cx, records, now, key, Notice::of("liveStreamEnded").params(&live.params));
            if let Some(main) = records.main_track_of(key)
                && registry.was_last_subtrack(records, &main)
            {
                self.hook(cx, records, now, &main, Notice::of("noActiveSubtracksLeftInMainTrack"));
            }
        } else if end == StreamEnd::GraceOver {
            let subscriber = live.params.iter().find(|(name, _)| name == "subscriberId");
            let subscriber = subscriber.map_or(Value::Null, |(_, id)| id.as_str().into());
            let metadata = serde_json::json!({ "subscriberId": subscriber }).to_string();
            self.hook(cx, records, now, key, Notice::of("publishTimeoutError").metadata(&metadata));
        }
        let Some(record) = records.get(key).filter(|record| !record.zombi) else { return };
        let seconds = u64::try_from(record.max_idle_time).unwrap_or(0);
        if seconds > 0 && end != StreamEnd::Deleted && end != StreamEnd::Drain {
            let at = now.mono.checked_add(Duration::from_secs(seconds)).unwrap_or(now.mono);
            self.idles.forget(key);
            self.idles.of.insert(key.clone(), at);
            self.idles.due.insert((at, key.clone()));
        }
    }

    pub(in crate::control) fn fire_idles(
        &mut self,
        cx: &mut Context,
        records: &Records,
        registry: &Registry,
        now: Now,
    ) {
        while let Some((at, key)) = self.idles.due.first().cloned() {
            if at > now.mono {
                break;
            }
            self.idles.forget(&key);
            self.hook(cx, records, now, &key, Notice::of("idleTimeIsExpired"));
        }
        while let Some(stream) = self.idles.next_status(now.mono) {
            self.hook_status(cx, records, registry, now, stream);
            self.arm_status(cx, registry, now, stream);
        }
    }

    /// Reports that a recording of a live stream has failed.
    pub(in crate::control) fn hook_recording_failed(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        key: &StreamKey,
        reason: &str,
    ) {
        let metadata = serde_json::json!({ "reason": reason }).to_string();
        self.hook(cx, records, now, key, Notice::of("recordingFailed").metadata(&metadata));
    }

    /// Reports an endpoint whose attempts have failed several times in a row.
    pub(in crate::control) fn hook_endpoint_failed(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        key: &StreamKey,
        url: &str,
    ) {
        let metadata = serde_json::json!({ "rtmp-url": url }).to_string();
        self.hook(cx, records, now, key, Notice::of("endpointFailed").metadata(&metadata));
    }
}
