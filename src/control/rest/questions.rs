//! Answers to questions from signalling sockets ([`Question`]). If viewers are checked, a socket without access to a
//! stream or its main track sees only the [`PUBLIC`] members of the stream's record.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use super::subtracks::of_role;
use crate::auth::network;
use crate::control::Control;
use crate::control::access::Access;
use crate::control::broadcast::Broadcast;
use crate::control::questions::SocketQuestion;
use crate::http::Response;
use crate::mail::Question;
use crate::types::{Now, StreamKey};

/// Members of a record that are shown even without access to a stream whose viewers are checked.
const PUBLIC: [&str; 19] = [
    "streamId",
    "status",
    "type",
    "name",
    "date",
    "plannedStartDate",
    "plannedEndDate",
    "startTime",
    "updateTime",
    "absoluteStartTimeMs",
    "duration",
    "hlsViewerCount",
    "dashViewerCount",
    "webRTCViewerCount",
    "rtmpViewerCount",
    "hlsViewerLimit",
    "dashViewerLimit",
    "webRTCViewerLimit",
    "subtracksLimit",
];
/// Maximum number of records in one answer, so that publishers do not wait long while control makes the answer.
const RECORDS_MAX: usize = 50;
/// Maximum number of streams of a room in one answer.
const STREAMS_MAX: usize = 500;

impl Access {
    /// Returns the question if it may be answered now; otherwise queues it.
    pub(in crate::control) fn question_asked(
        &mut self,
        at: Now,
        peer: SocketAddr,
        asked: SocketQuestion,
    ) -> Option<SocketQuestion> {
        if self.questions.may_answer(at.mono, &asked) {
            return Some(asked);
        }
        self.questions.queue(at.mono, network(peer.ip()), asked);
        None
    }
}

/// Answers a question from a session.
pub(in crate::control) fn answer(control: &Control, at: Now, asked: &SocketQuestion) -> Response {
    let SocketQuestion { key, let_in, question, .. } = asked;
    if asked.is_refused {
        return Response::error(503, "Too many questions").header("Retry-After", "1");
    }
    let asker = Asker { control, at, key, let_in };
    match question {
        Question::Record => match control.records.find(&key.app, &key.id) {
            Some(record) => Response::json(200, asker.shown(record).to_string()),
            None => Response::error(404, "Not Found"),
        },
        Question::Subtracks { role, offset, size } => {
            let records = of_role((&control.records, &control.registry), key, role, true)
                .skip(*offset)
                .take(RECORDS_MAX.min(*size));
            let records = records.map(|record| asker.shown(record)).collect();
            Response::json(200, Value::Array(records).to_string())
        }
        Question::SubtrackCount(role) => {
            count(of_role((&control.records, &control.registry), key, role, true).count())
        }
        Question::Subscribers { offset, size } => {
            let ids = control.access.presences.subscribers_of(key).filter(|_| asker.sees(key));
            let ids = ids.skip(*offset).take(RECORDS_MAX.min(*size));
            let subscribers = ids.map(|id| json!({"subscriberId": id, "streamId": &*key.id})).collect();
            Response::json(200, Value::Array(subscribers).to_string())
        }
        Question::SubscriberCount => {
            let viewers = control.access.presences.viewers_of("webrtc", key);
            count(usize::try_from(viewers).unwrap_or(usize::MAX))
        }
        Question::Room => asker.room(),
        Question::Media => asker.media(),
    }
}

fn count(count: usize) -> Response {
    Response::json(200, json!({"count": count}).to_string())
}

/// The session that asks the question, and the stream.
#[derive(Clone, Copy)]
struct Asker<'a> {
    control: &'a Control,
    at: Now,
    key: &'a StreamKey,
    let_in: &'a [String],
}

impl Asker<'_> {
    /// True if viewers are not checked, or the session has access to the stream.
    fn sees(&self, key: &StreamKey) -> bool {
        let is_checked = self.control.cx.apps.get(&key.app).is_none_or(|app| app.security.play.any());
        !is_checked || self.let_in.iter().any(|id| **id == *key.id)
    }

    /// Returns the members of a record that the session may see.
    fn shown(&self, record: &Broadcast) -> Value {
        let main = record.main_track_stream_id.as_deref();
        let is_let_in = self.let_in.iter().any(|id| *id == record.stream_id || Some(id.as_str()) == main);
        let is_checked = self.control.cx.apps.get(&self.key.app).is_none_or(|app| app.security.play.any());
        let mut members: Map<String, Value> =
            serde_json::from_slice(&record.to_json(self.at)).unwrap_or_default();
        if is_checked && !is_let_in {
            members.retain(|name, _| PUBLIC.contains(&name.as_str()));
        }
        Value::Object(members)
    }

    fn room(&self) -> Response {
        let (mut ids, mut list) = (Vec::new(), Vec::new());
        for record in
            of_role((&self.control.records, &self.control.registry), self.key, "", true).take(STREAMS_MAX)
        {
            let shown = |text: &Option<String>| match self.sees(self.key) {
                true => Value::from(text.clone().unwrap_or_default()),
                false => Value::from(""),
            };
            ids.push(Value::from(record.stream_id.as_str()));
            list.push(json!({
                "streamId": record.stream_id,
                "streamName": record.name.as_deref().unwrap_or_default(),
                "metaData": shown(&record.meta_data),
            }));
        }
        Response::json(200, json!({"streams": ids, "streamList": list}).to_string())
    }

    fn media(&self) -> Response {
        let live = self.control.registry.find(self.key).and_then(|stream| self.control.registry.get(&stream));
        let Some(live) = live else { return Response::error(404, "Not Found") };
        let figures = live.received.figures.as_ref();
        let codec = figures.and_then(|figures| figures.video_codec).map(|codec| codec.to_string());
        let rate = self.control.records.get(self.key).map_or(0, |record| record.bitrate);
        let (width, height) = figures.map_or((0, 0), |figures| figures.size);
        let shown = json!({
            "width": width,
            "height": height,
            "videoBitrate": rate,
            "videoCodec": codec.unwrap_or_default(),
        });
        Response::json(200, shown.to_string())
    }
}
