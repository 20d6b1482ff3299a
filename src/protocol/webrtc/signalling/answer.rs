//! Messages to the client. The SDK's pages depend on the members and their order.

use serde_json::{Value, json};

use super::super::ice_servers::For;
use super::super::info::{Bitrates, TrackInfo};
use super::super::messages::Described;
use super::super::settings::RtcAppSettings;
use crate::auth::access::Denial;
use crate::protocol::ice_servers::IceServer;

pub(super) fn pong() -> String {
    json!({"command": "pong"}).to_string()
}

/// Returns the message with the ICE servers. Ant Media's members have room for one server only: the application's relay,
/// or else preferably a relay over TCP, because clients that can use UDP need no relay. `iceServers` lists all servers
/// in the format of browsers.
pub(super) fn ice_servers(settings: &RtcAppSettings, servers: &[IceServer], whom: For) -> String {
    if !servers.iter().all(|server| server.uri == settings.stun) {
        return all_ice_servers(settings, servers);
    }

    let relays = settings.stun.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("turn"));
    let is_told = whom == For::Client;
    let (user, credential) = match is_told {
        true => (settings.turn_user.as_str(), settings.turn_credential.as_str()),
        false => ("", ""),
    };
    json!({
        "command": "iceServerConfig",
        "stunServerUri": if relays && !is_told { "" } else { settings.stun.as_str() },
        "turnServerUsername": user,
        "turnServerCredential": credential,
    })
    .to_string()
}

fn all_ice_servers(settings: &RtcAppSettings, servers: &[IceServer]) -> String {
    let relays = |server: &&IceServer| server.uri.starts_with("turn:");
    let own = servers.iter().find(|server| server.uri == settings.stun);
    let by_tcp = servers.iter().filter(relays).find(|server| server.uri.ends_with("transport=tcp"));
    let of_others = || by_tcp.or_else(|| servers.iter().find(relays));
    let single = own.filter(relays).or_else(of_others).or(own).or_else(|| servers.first());
    let (user, credential) = single.and_then(|server| server.credentials.clone()).unwrap_or_default();
    let each = servers.iter().map(|server| match &server.credentials {
        Some((user, credential)) => json!({"urls": server.uri, "username": user, "credential": credential}),
        None => json!({"urls": server.uri}),
    });
    json!({
        "command": "iceServerConfig",
        "stunServerUri": single.map_or("", |server| server.uri.as_str()),
        "turnServerUsername": user,
        "turnServerCredential": credential,
        "iceServers": each.collect::<Vec<_>>(),
    })
    .to_string()
}

pub(super) fn start(id: &str) -> String {
    json!({"command": "start", "streamId": id, "subscriberId": ""}).to_string()
}

/// Returns the message with an answer to a publisher's offer, or with our offer to a viewer and the tracks' names by
/// `mid`.
pub(super) fn configuration(id: &str, is_answer: bool, described: &Described) -> String {
    let kind = if is_answer { "answer" } else { "offer" };
    let mut message =
        json!({"command": "takeConfiguration", "streamId": id, "type": kind, "sdp": described.sdp});
    if !is_answer {
        let names = described.names.iter().map(|(mid, name)| (mid.clone(), Value::from(name.as_str())));
        if let Value::Object(members) = &mut message {
            members.insert("idMapping".to_owned(), Value::Object(names.collect()));
        }
    }
    message.to_string()
}

fn notification(definition: &str, id: &str) -> String {
    json!({"command": "notification", "definition": definition, "streamId": id, "subscriberId": ""})
        .to_string()
}

pub(super) fn started(id: &str, publishes: bool) -> String {
    notification(if publishes { "publish_started" } else { "play_started" }, id)
}

pub(super) fn finished(id: &str, publishes: bool) -> String {
    notification(if publishes { "publish_finished" } else { "play_finished" }, id)
}

/// Returns the message with a viewer's rate and its path's rate in bits per second; pages warn if the path's is lower.
pub(super) fn bitrates(id: &str, bitrates: &Bitrates) -> String {
    json!({
        "command": "notification",
        "definition": "bitrateMeasurement",
        "streamId": id,
        "targetBitrate": bitrates.target,
        "videoBitrate": bitrates.video,
        "audioBitrate": bitrates.audio,
    })
    .to_string()
}

/// Returns the message that announces a viewer's new rendition by its height.
pub(super) fn resolution(id: &str, height: u32) -> String {
    json!({
        "command": "notification",
        "definition": "resolutionChangeInfo",
        "streamId": id,
        "streamHeight": height,
    })
    .to_string()
}

/// Returns the message that a stream is being started for this viewer.
pub(super) fn starts_soon(id: &str) -> String {
    json!({"command": "notification", "definition": "streaming_starts_soon", "streamId": id}).to_string()
}

/// Returns the message that a publisher has returned to its stream.
pub(super) fn session_restored(id: &str) -> String {
    json!({"command": "notification", "definition": "session_restored", "streamId": id}).to_string()
}

pub(super) fn streaming_started(id: &str) -> String {
    json!({"command": "notification", "definition": "streaming_started", "streamId": id}).to_string()
}

pub(super) fn server_will_stop() -> String {
    json!({"command": "notification", "definition": "server_will_stop"}).to_string()
}

pub(super) fn error(definition: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => json!({"command": "error", "definition": definition, "streamId": id}).to_string(),
        None => json!({"command": "error", "definition": definition}).to_string(),
    }
}

/// Returns the error message for a stream that is not live; pages then wait for [`streaming_started`].
pub(super) fn not_there(id: &str) -> String {
    no_stream(id, "stream_not_exist_or_not_streaming")
}

/// Returns the error message for an application in which WebRTC is disabled.
pub(super) fn not_enabled(id: &str) -> String {
    no_stream(id, "webrtc_not_enabled")
}

fn no_stream(id: &str, information: &str) -> String {
    json!({
        "command": "error",
        "definition": "no_stream_exist",
        "streamId": id,
        "error_code": "404",
        "information": information,
    })
    .to_string()
}

pub(super) const fn denial(denial: &Denial) -> &'static str {
    match denial {
        Denial::Blocked(_) => "user_blocked",
        Denial::Viewers => "viewerLimitReached",
        Denial::Token
        | Denial::Jwt
        | Denial::Hash
        | Denial::TimeCode
        | Denial::LongName
        | Denial::Connections
        | Denial::Hook
        | Denial::HookSilent
        | Denial::PublishKey
        | Denial::Ended
        | Denial::Withdrawn => "unauthorized_access",
    }
}

/// Returns the message with an entry for each available resolution.
pub(super) fn stream_information(id: &str, tracks: &[TrackInfo]) -> String {
    let audio: u64 = tracks.iter().filter(|track| !track.is_video).map(|track| track.bit_rate).sum();
    let entry = |track: &TrackInfo| {
        let (width, height) = track.size.unwrap_or_default();
        json!({
            "streamWidth": width,
            "streamHeight": height,
            "videoBitrate": track.bit_rate,
            "audioBitrate": audio,
            "videoCodec": track.codec,
        })
    };
    let mut entries: Vec<Value> = tracks.iter().filter(|track| track.is_video).map(entry).collect();
    if entries.is_empty() {
        // The player's page fails if the list has no entry.
        entries.push(json!({
            "streamWidth": 0, "streamHeight": 0, "videoBitrate": 0, "audioBitrate": audio, "videoCodec": "",
        }));
    }
    json!({"command": "streamInformation", "streamId": id, "streamInfo": entries}).to_string()
}

/// Returns the resolution and rates of a live stream that this socket does not play.
pub(super) fn stream_media(id: &str, media: &Value) -> String {
    json!({
        "command": "streamInformation",
        "streamId": id,
        "streamInfo": [{
            "streamWidth": media["width"],
            "streamHeight": media["height"],
            "videoBitrate": media["videoBitrate"],
            "audioBitrate": 0,
            "videoCodec": media["videoCodec"],
        }],
    })
    .to_string()
}

/// Returns the tracks of a main track, i.e. its live streams; for any other stream, the stream itself.
pub(super) fn track_list(id: &str, room: &Value) -> String {
    let none = room["streams"].as_array().is_none_or(Vec::is_empty);
    let list = if none { json!([id]) } else { room["streams"].clone() };
    json!({"command": "trackList", "streamId": id, "trackList": list}).to_string()
}

/// Returns the message with a list of records. Each record is a string that contains JSON, which pages parse
/// separately.
pub(super) fn records(definition: &str, id: &str, records: &Value) -> String {
    let texts = records.as_array().into_iter().flatten().map(|record| Value::from(record.to_string()));
    let mut message = json!({"command": "notification", "definition": definition, "streamId": id});
    if let Value::Object(members) = &mut message {
        members.insert(definition.to_owned(), texts.collect());
    }
    message.to_string()
}

pub(super) fn count(definition: &str, id: &str, counted: &Value) -> String {
    json!({
        "command": "notification",
        "definition": definition,
        "streamId": id,
        "count": counted["count"],
    })
    .to_string()
}

/// Returns the streams of a room, for the page that joined it under this id.
pub(super) fn joined_room(room: &str, id: &str, streams: &Value) -> String {
    let others = |list: &Value, name: fn(&Value) -> &Value| -> Value {
        let others = list.as_array().into_iter().flatten().filter(|one| *name(one) != id);
        others.cloned().collect()
    };
    json!({
        "command": "notification",
        "definition": "joinedTheRoom",
        "streamId": id,
        "streams": others(&streams["streams"], |one| one),
        "streamList": others(&streams["streamList"], |one| &one["streamId"]),
        "ATTR_ROOM_NAME": room,
        "room": room,
        "maxTrackCount": -1,
    })
    .to_string()
}

pub(super) fn left_room(room: &str, id: &str) -> String {
    json!({
        "command": "notification",
        "definition": "leavedFromRoom",
        "streamId": id,
        "ATTR_ROOM_NAME": room,
        "room": room,
    })
    .to_string()
}

/// Returns the live streams of a room; if there are none, the error that pages expect.
pub(super) fn room(room: &str, streams: &Value) -> String {
    if streams["streams"].as_array().is_none_or(Vec::is_empty) {
        return json!({"command": "error", "definition": "no_active_streams_in_room", "room": room})
            .to_string();
    }
    json!({
        "command": "roomInformation",
        "streams": streams["streams"],
        "streamList": streams["streamList"],
        "ATTR_ROOM_NAME": room,
        "room": room,
    })
    .to_string()
}

pub(super) fn joined_call(id: &str) -> String {
    json!({"command": "notification", "definition": "joined", "streamId": id}).to_string()
}

pub(super) fn left_call(id: &str) -> String {
    json!({"command": "notification", "definition": "leaved", "streamId": id}).to_string()
}

/// Returns the message that the other party of a call has left, so that the page closes the connection.
pub(super) fn stop(id: &str) -> String {
    json!({"command": "stop", "streamId": id}).to_string()
}

/// Returns the `broadcastObject` notification. It contains the record as a string of JSON, which the page parses in
/// a second step.
pub(super) fn broadcast_object(id: &str, record: &str) -> String {
    json!({"command": "notification", "definition": "broadcastObject", "streamId": id, "broadcast": record})
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;
    use crate::protocol::schema;

    fn server(uri: &str) -> IceServer {
        let credentials = uri.starts_with("turn").then(|| ("user".to_owned(), "CANARY".to_owned()));
        IceServer { uri: uri.to_owned(), credentials }
    }

    #[test]
    fn pages_that_take_one_server_get_one_that_relays_and_others_get_all() {
        let (stun, udp, tcp) = ("stun:app", "turn:own:1?transport=udp", "turn:own:1?transport=tcp");
        for (of_app, others, single) in [
            (stun, &[udp, tcp, "turns:own:2?transport=tcp"][..], tcp),
            (stun, &[udp], udp),
            (stun, &["turns:own:2?transport=tcp"], stun),
            (stun, &["stun:other"], stun),
            ("turn:app", &[udp, tcp], "turn:app"),
            ("", &[udp, tcp], tcp),
        ] {
            let settings = AppSettings::of(schema(), "live", &[("stunServerURI", of_app)]).unwrap();
            let uris: Vec<&str> =
                [of_app].into_iter().filter(|uri| !uri.is_empty()).chain(others.iter().copied()).collect();
            let servers: Vec<IceServer> = uris.iter().map(|uri| server(uri)).collect();
            let said: Value =
                serde_json::from_str(&ice_servers(RtcAppSettings::of(&settings), &servers, For::Client))
                    .unwrap();
            assert_eq!(said["stunServerUri"], single);
            let password = if single.starts_with("turn") { "CANARY" } else { "" };
            assert_eq!(said["turnServerCredential"], password, "{single}");
            let all: Vec<&str> = said["iceServers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["urls"].as_str().unwrap())
                .collect();
            assert_eq!(all, uris);
            assert!(said["iceServers"].as_array().unwrap().iter().all(|one| {
                one["urls"].as_str().unwrap().starts_with("turn") == (one["credential"] == "CANARY")
            }));
        }
    }
}
