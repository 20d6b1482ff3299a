//! Operations for features that this server lacks, or of which it only stores the settings. Each answers like an Ant
//! Media Server that does not have the feature (docs/rest.md).

use std::sync::Arc;

use media::Codec;
use serde::Serialize;
use serde_json::{Value, json};

use super::call::{Call, Reply};
use super::subtracks::of_role;
use crate::auth::jwt;
use crate::control::Now;
use crate::control::answer::{Outcome, SimpleStat, json as object};
use crate::control::broadcast::is_stream_id;
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::records::auxiliary::Subscriber;
use crate::http::Response;
use crate::mail::{DataSender, Message, StreamData, ToWorker};
use crate::types::{ConnId, SessionRef, WorkerId};

/// Longest message for data channels, in bytes: the size that every player accepts (RFC 8841 §6.1).
const DATA_BYTES_MAX: usize = 65_536;

fn refused(message: &str) -> Reply {
    Reply::Now(Outcome::failure(message).response(200))
}

fn refused_with_null(message: Option<&str>) -> Reply {
    Reply::Now(Outcome::failure("").message(message).no_data_id().response(200))
}

fn empty_list() -> Reply {
    Reply::Now(object(200, &[0_u8; 0]))
}

/// A rendition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StreamInfo {
    video_height: i32,
    video_width: i32,
    video_bitrate: i64,
    audio_bitrate: i64,
    video_codec: Option<&'static str>,
}

/// Ant Media Server's name of a codec.
const fn codec_name(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::H264 => Some("H264"),
        Codec::H265 => Some("H265"),
        Codec::Av1 => Some("AV1"),
        Codec::Vp9 => Some("VP9"),
        Codec::Vp8 => Some("VP8"),
        Codec::Aac | Codec::Opus | Codec::Mp3 | Codec::Ac3 | Codec::Eac3 | Codec::Flac | Codec::G711(_) => {
            None
        }
    }
}

/// `GET /broadcasts/{id}/stream-info`: the published stream is the only rendition. The bit rate is that of video and
/// audio together.
pub(super) fn stream_info(records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    let key = call.key();
    let live = registry.find(&key).and_then(|stream| registry.get(&stream));
    let (Some(live), Some(record)) = (live, records.get(&key)) else { return empty_list() };
    let info = StreamInfo {
        video_height: record.height,
        video_width: record.width,
        video_bitrate: record.bitrate,
        audio_bitrate: 0,
        video_codec: live
            .received
            .figures
            .as_ref()
            .and_then(|figures| figures.video_codec)
            .and_then(codec_name),
    };
    Reply::Now(object(200, &[info]))
}

/// `GET /broadcasts/onvif-devices`.
pub(super) fn no_cameras() -> Reply {
    empty_list()
}

/// `GET /broadcasts/webrtc-viewers/list/{offset}/{size}` of Ant Media Server before 3.0: always empty.
pub(super) fn no_webrtc_viewers(call: &Call<'_>) -> Reply {
    let [offset, size, ..] = call.params;
    empty_page(offset, size)
}

/// `POST /broadcasts/webrtc-viewers/{viewer}/stop` of Ant Media Server before 3.0: refused, as for an unknown id.
pub(super) fn stop_webrtc_viewer() -> Reply {
    refused("")
}

/// `GET /broadcasts/{id}/detections/{offset}/{size}` of Ant Media Server before 3.0: always empty, since pictures are
/// not analysed.
pub(super) fn no_detections(call: &Call<'_>) -> Reply {
    let [_, offset, size, _] = call.params;
    empty_page(offset, size)
}

/// `GET /broadcasts/{id}/detections/count` of Ant Media Server before 3.0: nothing is detected here, so the count is 0.
pub(super) fn no_detection_count() -> Reply {
    Reply::Now(object(200, &SimpleStat { number: 0 }))
}

fn empty_page(offset: &str, size: &str) -> Reply {
    let is_number = |text: &str| text.parse::<i32>().is_ok();
    if is_number(offset) && is_number(size) {
        empty_list()
    } else {
        Reply::Now(Response::error(404, "Not Found"))
    }
}

/// `POST /broadcasts/{id}/data`: sends the body as text to the data channels of the stream's publisher and viewers.
pub(super) fn data(cx: &mut Context, records: &Records, registry: &Registry, call: &Call<'_>) -> Reply {
    if !call.app.values.boolean("dataChannelEnabled").unwrap_or(false) {
        return refused("Data channels are not enabled");
    }
    let key = call.key();
    let is_room = || of_role((records, registry), &key, "", true).next().is_some();
    if registry.find(&key).is_none() && !is_room() {
        return refused("Requested WebRTC stream does not exist");
    }
    let is_text = std::str::from_utf8(&call.request.body).is_ok();
    if call.request.body.len() > DATA_BYTES_MAX {
        return refused("Operation not completed");
    }
    let (stream, payload) = (Arc::clone(&key.id), call.request.body.clone());
    let data = StreamData { sender: DataSender::Api, stream, is_text, payload };
    // No session has this reference, so no session is left out as the sender.
    let from = SessionRef::new(WorkerId(u16::MAX), ConnId { slot: u32::MAX, generation: u32::MAX });
    cx.post_all(&ToWorker::TellStream { from, stream: key, message: Message::new(data) });
    Reply::Now(Outcome::success().response(200))
}

/// `GET /broadcasts/webrtc-send-low-level-stats`.
pub(super) fn webrtc_send_stats() -> Reply {
    let members =
        |names: &[&str]| Value::Object(names.iter().map(|name| ((*name).to_owned(), json!(0))).collect());
    let audio = members(&[
        "audioPacketsSent",
        "audioBytesSent",
        "audioPacketsPerSecond",
        "audioBytesSentPerSecond",
        "timeMs",
    ]);
    let video = members(&[
        "videoFirCount",
        "videoPliCount",
        "videoNackCount",
        "videoPacketsSent",
        "videoFramesEncoded",
        "videoBytesSent",
        "videoPacketsSentPerSecond",
        "videoBytesSentPerSecond",
        "videoFramesEncodedPerSecond",
        "timeMs",
    ]);
    Reply::Now(object(200, &json!({ "audioSendStats": audio, "videoSendStats": video })))
}

/// `GET /broadcasts/webrtc-receive-low-level-stats`.
pub(super) fn webrtc_receive_stats() -> Reply {
    // Ant Media Server returns jitter and lost fractions as numbers with a decimal point.
    let is_ratio = |name: &str| name.ends_with("itter") || name.ends_with("FractionLost");
    let zero = |name: &str| if is_ratio(name) { json!(0.0) } else { json!(0) };
    let members =
        |names: &[&str]| Value::Object(names.iter().map(|name| ((*name).to_owned(), zero(name))).collect());
    let audio = members(&[
        "audioPacketsReceived",
        "audioBytesReceived",
        "audioPacketsLost",
        "audioJitter",
        "audioFractionLost",
        "audioPacketsReceivedPerSecond",
        "audioBytesReceivedPerSecond",
    ]);
    let video = members(&[
        "videoFirCount",
        "videoPliCount",
        "videoNackCount",
        "videoPacketsReceived",
        "videoPacketsLost",
        "videoFractionLost",
        "videoFrameReceived",
        "videoBytesReceived",
        "videoPacketsReceivedPerSecond",
        "videoBytesReceivedPerSecond",
        "videoFrameReceivedPerSecond",
        "jitter",
    ]);
    Reply::Now(object(200, &json!({ "audioReceiveStats": audio, "videoReceiveStats": video })))
}

/// `GET /broadcasts/duration?url=`: the duration of media at a URL, refused because this server does not read files of
/// other servers. Ant Media Server uses error -2 for a URL that cannot be opened.
pub(super) fn duration(call: &Call<'_>) -> Reply {
    if call.query("url").trim().is_empty() {
        return refused("");
    }
    Reply::Now(Outcome::failure("Reading the duration of media is not available").error_id(-2).response(200))
}

/// `GET /broadcasts/{id}/ip-camera/device-profiles`.
pub(super) fn camera_profiles() -> Reply {
    Reply::Now(Response::empty(204))
}

/// `POST /broadcasts/{id}/ip-camera/move`.
pub(super) fn camera_move(call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    let movement = call.query("movement");
    for value in ["valueX", "valueY", "valueZ"] {
        if let Err(refusal) = call.number::<f32>(value) {
            return refusal;
        }
    }
    if !is_stream_id(id) {
        return refused("Stream id not valid");
    }
    if !["", "relative", "continuous", "absolute"].contains(&movement) {
        let shown: String = movement.chars().filter(|c| !c.is_control()).take(64).collect();
        return refused(&format!(
            "Movement type is not supported. Supported types are continous, relative and absolute but was {shown}"
        ));
    }
    refused("")
}

/// `POST /broadcasts/{id}/ip-camera/stop-move`.
pub(super) fn camera_stop(call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    refused(if is_stream_id(id) { "Camera not found" } else { "Stream id not valid" })
}

/// `GET /broadcasts/{id}/ip-camera-error`.
pub(super) fn camera_error(call: &Call<'_>) -> Reply {
    let [id, ..] = call.params;
    refused(&format!("Camera is not found with streamId: {id}"))
}

/// `POST /broadcasts/{id}/sei`: refused, because frames are not changed.
pub(super) fn sei(registry: &Registry, call: &Call<'_>) -> Reply {
    if registry.is_live(&call.key()) {
        refused("")
    } else {
        refused_with_null(Some("Stream is not available"))
    }
}

/// `POST /broadcasts/{file}/hls-to-mp4`.
pub(super) fn hls_to_mp4() -> Reply {
    refused("HLS to MP4 conversion has failed")
}

/// Answer to push notifications, which this server does not send.
const NO_PUSH: &str =
    "Push Notification Service is not available community edition. Please use enterprise edition";

/// True if the text is a JSON object, which every notification must be.
fn is_object(text: &[u8]) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|value| value.is_object())
}

/// Default validity of a subscriber's token, in seconds.
const TOKEN_HOLDS_S: i64 = 3600;

/// `GET /push-notification/subscriber-auth-token`: a token signed with `subscriberAuthenticationKey`, not stored.
pub(super) fn push_token(now: Now, call: &Call<'_>) -> Reply {
    let subscriber = call.query("subscriberId");
    let holds_s = match call.number::<i32>("timeoutSeconds") {
        Ok(given) => given.map(i64::from).filter(|given| *given > 0).unwrap_or(TOKEN_HOLDS_S),
        Err(refusal) => return refusal,
    };
    if subscriber.trim().is_empty() {
        return refused("subscriberId is blank. Please give subscriberId as query parameter");
    }
    if subscriber.len() > Subscriber::ID_BYTES_MAX {
        return refused("subscriberId is too long");
    }
    let secret = call.app.values.text("subscriberAuthenticationKey").as_bytes();
    if secret.len() < jwt::SECRET_BYTES_MIN {
        return refused("subscriberAuthenticationKey is not set or its length is less than 32");
    }
    let now_s = i64::try_from(now.wall_ms / 1000).unwrap_or(i64::MAX);
    let mut claims = jwt::Claims::new();
    claims.insert("exp".to_owned(), now_s.saturating_add(holds_s).into());
    claims.insert("subscriberId".to_owned(), subscriber.into());
    let token = jwt::sign(&claims, secret);
    let outcome = Outcome::success().message(Some("Token is available in dataId field")).data_id(&token);
    Reply::Now(outcome.response(200))
}

/// `POST /push-notification/subscribers`.
pub(super) fn push_to_subscribers(call: &Call<'_>) -> Reply {
    let body: Value = serde_json::from_slice(&call.request.body).unwrap_or_default();
    let message = body.get("jsonMessage").and_then(Value::as_str).unwrap_or_default();
    if !is_object(message.as_bytes()) {
        return refused("JSON content cannot be parsed. Make sure JSON content is in correct format");
    }
    refused(NO_PUSH)
}

/// `POST /push-notification/topics/{topic}`.
pub(super) fn push_to_topic(call: &Call<'_>) -> Reply {
    refused(if is_object(&call.request.body) { NO_PUSH } else { "JSON content cannot be parsed" })
}
