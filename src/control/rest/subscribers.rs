//! Subscribers of streams (docs/security.md).

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::call::{Call, Reply, bad_request};
use super::lists::{page_of, removed};
use super::scan::list_from;
use crate::auth::access::Direction;
use crate::auth::time_code;
use crate::control::access::{Access, ConnectionEvent, code_key};
use crate::control::answer::{Outcome, json};
use crate::control::broadcast::{BodyError, is_stream_id, parse_json};
use crate::control::cluster::Cluster;
use crate::control::context::Context;
use crate::control::from_json::loose;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryWrite, Subscriber};
use crate::control::{Now, wall};
use crate::http::Response;
use crate::store::Kind;

/// Maximum number of subscribers of one application.
const SUBSCRIBERS_MAX: usize = 100_000;
/// Maximum number of subscribers of one bulk delete.
const BULK_MAX: usize = 10_000;
/// Maximum length of a subscriber's name, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Maximum number of events of one subscriber in a list of several subscribers; the newest are kept. The
/// list of connection events has all.
const STATS_EVENTS_MAX: usize = 1000;
/// Shortest period after which a time code changes, in seconds.
const PERIOD_MIN: i64 = 10;

const MISSING: &str = "Missing parameter: Make sure you set subscriber object correctly and make subscriberId's length at \
                       least 3";
const BAD_SECRET: &str = "Secret code is not multiple of 8 bytes length. Use b32Secret which is a string and its lenght is \
                          multiple of 8 bytes and allowed characters A-Z, 2-7";
const BAD_PERIOD: &str = "Custom TOTP expiry period must be between 10 and 2147483647";
const NO_PATH: &str =
    "subscriberId must not contain / or \\, nor % before two hexadecimal digits: no path can name it";
const BLANK: &str = "streamId or subscriberId is blank";
const NO_SECRET: &str = "Secret is not set in AppSettings. Please set timetokensecret publish or play in Application \
                         settings";

/// The body of a request to add a subscriber. Members that the server sets itself are ignored.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SubscriberBody {
    #[serde(deserialize_with = "loose")]
    subscriber_id: Option<String>,
    subscriber_name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    b32_secret: Option<String>,
    concurrent_connections_limit: Option<i32>,
    blocked_type: Option<String>,
    blocked_until_unit_time_stamp_ms: Option<i64>,
    totp_expiry_period_seconds: Option<i64>,
}

fn failure(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

impl Records {
    /// Stores a subscriber, and answers after the commit.
    fn put_subscriber(&mut self, now: Now, call: &Call<'_>, subscriber: Subscriber) -> Reply {
        let key = Subscriber::key(&call.app.name, &subscriber.stream_id, &subscriber.subscriber_id);
        let changes = vec![(key, Some(Auxiliary::Subscriber(subscriber)))];
        let answer = Outcome::success().response(200);
        self.write_auxiliary(
            now,
            AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((call.requester, answer)) },
        );
        Reply::Later
    }
}

/// `POST /broadcasts/{id}/subscribers`. Replaces an existing subscriber.
pub(super) fn add(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let body: Result<Option<Option<SubscriberBody>>, BodyError> = parse_json(&call.request.body);
    let given = match body {
        Ok(body) => body.flatten().unwrap_or_default(),
        Err(error) => return bad_request(&error.to_string()),
    };
    let [stream, ..] = call.params;
    let id = given.subscriber_id.unwrap_or_default();
    let name = given.subscriber_name;
    let fits = Subscriber::is_id(&id) && name.as_ref().is_none_or(|name| name.len() <= NAME_BYTES_MAX);
    if !is_stream_id(stream) || !fits {
        return failure(MISSING);
    }
    if !Subscriber::is_in_paths(&id) {
        return failure(NO_PATH);
    }
    let secret = given.b32_secret.filter(|secret| !secret.trim().is_empty());
    if secret.as_deref().is_some_and(|secret| time_code::key_of_secret(secret).is_none()) {
        return failure(BAD_SECRET);
    }
    let period = match given.totp_expiry_period_seconds.map(|period| (period, i32::try_from(period))) {
        None => None,
        Some((period, Ok(fits))) if period >= PERIOD_MIN => Some(fits),
        Some(_) => return failure(BAD_PERIOD),
    };
    let known = Subscriber::key(&call.app.name, stream, &id);
    if records.auxiliary.pending(&known).is_none()
        && records.auxiliary.count(Kind::Subscriber, &call.app.name) >= SUBSCRIBERS_MAX
    {
        return failure("");
    }
    let is_kind =
        |kind: &String| [Direction::Publish.word(), Direction::Play.word()].contains(&kind.as_str());
    let subscriber = Subscriber {
        subscriber_id: id,
        subscriber_name: name,
        stream_id: stream.to_owned(),
        kind: given.kind.filter(is_kind),
        concurrent_connections_limit: given.concurrent_connections_limit.unwrap_or(1),
        blocked_type: given.blocked_type.filter(|kind| Subscriber::is_block(kind)),
        blocked_until_unit_time_stamp_ms: given.blocked_until_unit_time_stamp_ms.unwrap_or(0),
        totp_expiry_period_seconds: period,
        b32_secret: secret,
    };
    records.put_subscriber(now, call, subscriber)
}

/// `GET /broadcasts/{id}/subscribers/list/{offset}/{size}`.
pub(super) fn list(
    cx: &Context,
    records: &Records,
    access: &Access,
    cluster: &Cluster,
    call: &Call<'_>,
) -> Reply {
    let [id, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let key = call.key();
    let all = records.auxiliary.of_stream(Kind::Subscriber, &call.app.name, id);
    let subscribers = all.filter_map(|record| match record {
        Auxiliary::Subscriber(subscriber) => Some(subscriber),
        Auxiliary::Token(_) | Auxiliary::User(_) | Auxiliary::Vod(_) => None,
    });
    let page = subscribers.skip(offset).take(size);
    let shown: Vec<_> =
        page.map(|subscriber| access.shown_subscriber(cx, cluster, &key, subscriber)).collect();
    Reply::Now(json(200, &shown))
}

/// The events of a subscriber, as Ant Media Server before 3.0 shows them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SubscriberStats<'a> {
    stream_id: &'a str,
    subscriber_id: &'a str,
    connection_events: VecDeque<&'a ConnectionEvent>,
    avg_video_bitrate: i64,
    avg_audio_bitrate: i64,
}

/// `GET /broadcasts/{id}/subscriber-stats/list/{offset}/{size}` of Ant Media Server before 3.0.
pub(super) fn stats(records: &Records, access: &Access, call: &Call<'_>) -> Reply {
    let [id, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let all = records.auxiliary.of_stream(Kind::Subscriber, &call.app.name, id);
    let all = all.filter_map(|record| match record {
        Auxiliary::Subscriber(subscriber) => Some(subscriber.subscriber_id.as_str()),
        Auxiliary::Token(_) | Auxiliary::User(_) | Auxiliary::Vod(_) => None,
    });
    let mut page: BTreeMap<&str, VecDeque<&ConnectionEvent>> =
        all.skip(offset).take(size).map(|subscriber| (subscriber, VecDeque::new())).collect();
    // A single pass over the events serves any page.
    for event in access.presences.events(&call.app.name).filter(|event| event.stream_id == id) {
        if let Some(events) = page.get_mut(event.subscriber_id.as_str()) {
            if events.len() >= STATS_EVENTS_MAX {
                events.pop_front();
            }
            events.push_back(event);
        }
    }
    let shown = page.into_iter().map(|(subscriber_id, connection_events)| SubscriberStats {
        stream_id: id,
        subscriber_id,
        connection_events,
        avg_video_bitrate: 0,
        avg_audio_bitrate: 0,
    });
    Reply::Now(list_from(offset, shown))
}

/// `DELETE /broadcasts/{id}/subscribers/{sid}`.
pub(super) fn delete(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let [stream, id, ..] = call.params;
    let key = Subscriber::key(&call.app.name, stream, id);
    if records.auxiliary.pending(&key).is_none() {
        return failure("");
    }
    let waiter = Some((call.requester, Outcome::success().response(200)));
    records.write_auxiliary(now, AuxiliaryWrite { changes: vec![(key, None)], files: Vec::new(), waiter });
    Reply::Later
}

/// `DELETE /broadcasts/{id}/subscribers`. Removes at most [`BULK_MAX`], and fails if any are left.
pub(super) fn delete_all(records: &mut Records, now: Now, call: &Call<'_>) -> Reply {
    let [stream, ..] = call.params;
    let mut keys = records.auxiliary.keys_of(Kind::Subscriber, &call.app.name, stream, SUBSCRIBERS_MAX);
    if keys.is_empty() {
        return failure("");
    }
    let left = keys.len().saturating_sub(BULK_MAX);
    keys.truncate(BULK_MAX);
    let changes = keys.into_iter().map(|key| (key, None)).collect();
    let waiter = Some((call.requester, removed(BULK_MAX, left)));
    records.write_auxiliary(now, AuxiliaryWrite { changes, files: Vec::new(), waiter });
    Reply::Later
}

/// `GET /broadcasts/{id}/subscribers/{sid}/totp`: the current code.
pub(super) fn totp(records: &Records, now: Now, call: &Call<'_>) -> Reply {
    let [stream, id, ..] = call.params;
    if stream.trim().is_empty() || id.trim().is_empty() {
        return failure(BLANK);
    }
    let key = call.key();
    let record = records.auxiliary.subscriber(&key, id);
    let secrets = &call.app.security.secrets;
    let period = record.and_then(Subscriber::period).unwrap_or(secrets.time_code_period);
    match code_key(call.app, call.query("type"), &key, id, record) {
        Some(known) => {
            let code = time_code::code(&known, period, now.wall_ms);
            Reply::Now(Outcome::success().data_id(&code).response(200))
        }
        None => failure(NO_SECRET),
    }
}

/// `PUT /broadcasts/{id}/subscribers/{sid}/block/{seconds}/{type}`: disconnects the subscriber immediately.
pub(super) fn block(
    cx: &mut Context,
    records: &mut Records,
    registry: &mut Registry,
    access: &mut Access,
    now: Now,
    call: &Call<'_>,
) -> Reply {
    let [stream, id, seconds, kind] = call.params;
    let Ok(seconds) = seconds.parse::<i32>() else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    if stream.trim().is_empty() || id.trim().is_empty() {
        return failure(BLANK);
    }
    if !is_stream_id(stream) || !Subscriber::is_block(kind) || id.chars().any(char::is_control) {
        return failure("");
    }
    let key = call.key();
    let known = records.auxiliary.subscriber(&key, id).cloned();
    if known.is_none() && records.auxiliary.count(Kind::Subscriber, &call.app.name) >= SUBSCRIBERS_MAX {
        return failure("");
    }
    let until = wall(now).saturating_add(i64::from(seconds).saturating_mul(1000));
    let subscriber = Subscriber {
        subscriber_id: id.to_owned(),
        stream_id: stream.to_owned(),
        blocked_type: Some(kind.to_owned()),
        blocked_until_unit_time_stamp_ms: until,
        ..known.unwrap_or_default()
    };
    let reply = records.put_subscriber(now, call, subscriber);
    // A pending block already applies, so the subscriber is disconnected before the write is done.
    access.drop_subscriber(cx, records, registry, now, &key, id);
    reply
}

/// `GET /broadcasts/{id}/connection-events/{offset}/{size}`.
pub(super) fn events(access: &Access, call: &Call<'_>) -> Reply {
    let [stream, offset, size, _] = call.params;
    let Some((offset, size)) = page_of(offset, size) else {
        return Reply::Now(Response::error(404, "Not Found"));
    };
    let wanted = call.query("subscriberId");
    let events = access
        .presences
        .events(&call.app.name)
        .filter(|event| event.stream_id == stream && (wanted.is_empty() || event.subscriber_id == wanted));
    Reply::Now(json(200, &events.skip(offset).take(size).collect::<Vec<_>>()))
}
