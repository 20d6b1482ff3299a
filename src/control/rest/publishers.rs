//! Calls about the publishers of a stream: the one that sends it, and its standby.

use serde_json::json;

use super::call::{Call, Reply};
use crate::control::answer::{Outcome, json as answer};
use crate::control::context::Context;
use crate::control::live::{Live, Registry, State};
use crate::control::records::Records;
use crate::http::Response;

/// `GET /broadcasts/{id}/publishers`: the publisher of a live stream and its standby. Empty if the stream is not live.
pub(super) fn list(records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    let key = call.key();
    let Some(record) = records.get(&key) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let live = registry.find(&key).and_then(|stream| registry.get(&stream));
    let is_present = |live: &&Live| matches!(live.source().state, State::Live(_));
    let active = live.filter(is_present).map(|live| {
        json!({
            "active": true,
            "publishType": live.source().ingest.publish_type,
            "userAgent": record.user_agent,
            "remoteIp": record.remote_ip,
            "receivedBytes": live.received.figures.as_ref().map_or(0, |figures| figures.received_bytes),
            "silentMs": live.silent_ms,
        })
    });
    let standby = live.and_then(Live::standby).map(|standby| {
        let figures = standby.figures;
        json!({
            "active": false,
            "publishType": standby.source.ingest.publish_type,
            "userAgent": standby.agent,
            "remoteIp": standby.address,
            "receivedBytes": figures.map_or(0, |figures| figures.received_bytes),
            "silentMs": figures.map_or(0, |figures| figures.silent_ms),
            "sends": standby.sends(),
            "hasKeyFrame": figures.is_some_and(|figures| figures.has_key_frame),
        })
    });
    let all: Vec<_> = active.into_iter().chain(standby).collect();
    Reply::Now(answer(200, &all))
}

/// `POST /broadcasts/{id}/standby/switch`: the standby takes over, and the publisher waits.
pub(super) fn switch(cx: &mut Context, registry: &Registry, call: &Call<'_>) -> Reply {
    let outcome = if registry.switch_to_standby(cx, &call.key()) {
        Outcome::success()
    } else {
        Outcome::failure("The stream has no standby")
    };
    Reply::Now(outcome.response(200))
}
