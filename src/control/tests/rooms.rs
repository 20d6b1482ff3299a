//! Subtracks, and operations for features that this server lacks, or of which it only stores the settings.

use super::*;
use crate::mail::{CallEvent, CallNews, NoSubscription};

const BASE: &str = "/live/rest/v2/broadcasts";

fn ids(list: &str) -> Vec<String> {
    let list: Vec<serde_json::Value> = serde_json::from_str(list).unwrap();
    list.iter().map(|record| record["streamId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn subtracks_are_added_listed_and_removed() {
    let mut rig = Rig::new();
    for id in ["room", "a", "b", "c"] {
        rig.create(id);
    }
    for id in ["b", "a"] {
        assert_eq!(rig.post(&format!("{BASE}/room/subtrack?id={id}"), "").1, PLAIN);
    }
    assert_eq!(rig.record("room")["subTrackStreamIds"], serde_json::json!(["a", "b"]));
    assert_eq!(rig.record("a")["mainTrackStreamId"], "room");
    let text = "There is no stream with id:x as subtrack or room as mainTrack";
    assert_eq!(rig.post(&format!("{BASE}/room/subtrack?id=x"), "").1, failure(text));
    assert_eq!(ids(&rig.get(&format!("{BASE}/room/subtracks/0/50")).1), ["a", "b"]);
    assert_eq!(ids(&rig.get(&format!("{BASE}/room/subtracks/1/50")).1), ["b"]);
    rig.call(Method::Put, &format!("{BASE}/b"), r#"{"role":"guest"}"#);
    assert_eq!(ids(&rig.get(&format!("{BASE}/room/subtracks/0/50?role=guest")).1), ["b"]);
    let missing = rig.get(&format!("{BASE}/none/subtracks/0/50"));
    assert_eq!(missing, (404, failure("Broadcast not found with id: none")));

    rig.publish("a", 0);
    assert_eq!(ids(&rig.get(&format!("{BASE}/room/active-subtracks/0/50")).1), ["a"]);
    assert_eq!(rig.get(&format!("{BASE}/room/active-subtracks-count")).1, r#"{"number":1}"#);
    rig.call(Method::Put, &format!("{BASE}/room"), r#"{"subtracksLimit":1}"#);
    let text = "Subtrack limit is reached for the main track:room";
    assert_eq!(rig.post(&format!("{BASE}/room/subtrack?id=c"), "").1, failure(text));

    let text = "Main track of the stream c which is room cannot be updated";
    assert_eq!(rig.call(Method::Delete, &format!("{BASE}/room/subtrack?id=c"), "").1, failure(text));
    assert_eq!(rig.call(Method::Delete, &format!("{BASE}/room/subtrack?id=b"), "").1, PLAIN);
    assert_eq!(rig.record("room")["subTrackStreamIds"], serde_json::json!(["a"]));
}

#[test]
fn a_room_is_live_while_a_subtrack_is() {
    let mut rig = Rig::new();
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"room","virtual":true}"#);
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"a","mainTrackStreamId":"room"}"#);
    let (session, stream) = rig.publish("a", 0);
    assert_eq!(rig.record("room")["status"], "broadcasting");
    rig.run_for(secs(60));
    assert_eq!(rig.record("room")["status"], "broadcasting", "nobody reports on a room");
    rig.gone(session, stream, Departure::Clean, 0);
    assert_eq!(rig.record("room")["status"], "finished");
    // A live subtrack is removed from the room.
    rig.publish("a", 0);
    assert_eq!(rig.record("room")["status"], "broadcasting");
    rig.call(Method::Delete, &format!("{BASE}/room/subtrack?id=a"), "");
    assert_eq!(rig.record("room")["status"], "finished");
}

#[test]
fn adding_a_subtrack_makes_a_main_track_virtual() {
    let mut rig = Rig::new();
    for id in ["room", "a"] {
        rig.create(id);
    }
    rig.publish("a", 0);
    assert_eq!(rig.post(&format!("{BASE}/room/subtrack?id=a"), "").1, PLAIN);
    let room = rig.record("room");
    assert_eq!((&room["virtual"], &room["status"]), (&true.into(), &"broadcasting".into()));
}

/// Publishes with `mainTrack`.
pub(super) fn join(rig: &mut Rig, id: &str, main: &str) -> Result<(SessionRef, StreamId), Refusal> {
    let params = vec![("mainTrack".to_owned(), main.to_owned())];
    let request = PublishRequest { params, ..rig.request(id, 0) };
    let session = request.session;
    rig.ask(request).map(|grant| (session, grant.stream))
}

#[test]
fn a_publisher_joins_the_main_track_that_it_names() {
    let mut rig = Rig::new();
    let (a, stream_a) = join(&mut rig, "a", "room").unwrap();
    let room = rig.record("room");
    assert_eq!(
        (&room["virtual"], &room["zombi"], &room["status"]),
        (&true.into(), &true.into(), &"broadcasting".into())
    );
    assert_eq!(rig.record("a")["mainTrackStreamId"], "room");
    rig.create("b");
    let (b, stream_b) = join(&mut rig, "b", "room").unwrap();
    assert_eq!(ids(&rig.get(&format!("{BASE}/room/active-subtracks/0/50")).1), ["a", "b"]);
    rig.gone(a, stream_a, Departure::Clean, 0);
    assert_eq!(rig.record("room")["status"], "broadcasting");
    rig.gone(b, stream_b, Departure::Clean, 0);
    assert_eq!(rig.get(&format!("{BASE}/room")).0, 404, "it ends with its last subtrack");
    assert_eq!(rig.record("b")["mainTrackStreamId"], "room");
}

#[test]
fn main_tracks_keep_their_limit_and_names_are_checked() {
    let mut rig = Rig::new();
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"room","subtracksLimit":1}"#);
    assert!(matches!(join(&mut rig, "x", "../room"), Err(Refusal::NotAllowed(_))));
    let (a, stream) = join(&mut rig, "a", "room").unwrap();
    assert_eq!(rig.record("room")["virtual"], true);
    assert!(matches!(join(&mut rig, "b", "room"), Err(Refusal::NotAllowed(_))));
    rig.gone(a, stream, Departure::Clean, 0);
    assert_eq!(rig.record("room")["status"], "finished", "one that was created stays");
    // A stream cannot be its own main track, and a stream with its own publisher does not become a virtual main
    // track.
    join(&mut rig, "c", "c").unwrap();
    assert_eq!(rig.record("c")["mainTrackStreamId"], serde_json::Value::Null);
    join(&mut rig, "d", "c").unwrap();
    assert_eq!((&rig.record("c")["virtual"], &rig.record("c")["zombi"]), (&false.into(), &true.into()));

    let mut known_only =
        Rig::start(config(&[], &[("acceptOnlyRoomsInDataStore", "true")]), Default::default());
    assert!(matches!(join(&mut known_only, "a", "room"), Err(Refusal::NotAllowed(_))));
    known_only.create("room");
    assert!(join(&mut known_only, "a", "room").is_ok());
}

#[test]
fn stop_and_delete_take_the_subtracks_along_unless_told_otherwise() {
    let mut rig = Rig::new();
    rig.create("room");
    for id in ["a", "b"] {
        rig.post(&format!("{BASE}/create"), &format!(r#"{{"streamId":"{id}","mainTrackStreamId":"room"}}"#));
        rig.publish(id, 0);
    }
    assert_eq!(rig.post(&format!("{BASE}/room/stop?stopSubtracks=false"), "").1, FAILED);
    assert_eq!(rig.record("a")["status"], "broadcasting");
    assert_eq!(rig.post(&format!("{BASE}/room/stop"), "").1, PLAIN);
    assert_eq!(
        (&rig.record("a")["status"], &rig.record("b")["status"]),
        (&"finished".into(), &"finished".into())
    );
    rig.call(Method::Delete, &format!("{BASE}/room?deleteSubtracks=false"), "");
    assert_eq!(rig.record("a")["mainTrackStreamId"], "room");
    rig.create("room");
    assert_eq!(rig.record("room")["subTrackStreamIds"], serde_json::json!(["a", "b"]));
    rig.call(Method::Delete, &format!("{BASE}/room"), "");
    assert_eq!((rig.get(&format!("{BASE}/a")).0, rig.get(&format!("{BASE}/b")).0), (404, 404));
}

#[test]
fn subtracks_are_known_after_a_start() {
    let mut rig = Rig::new();
    rig.create("room");
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"a","mainTrackStreamId":"room"}"#);
    let mut again = Rig::start(config(&[], &[]), rig.store);
    assert_eq!(again.record("room")["subTrackStreamIds"], serde_json::json!(["a"]));
}

#[test]
fn recording_switches_are_kept_while_offline_and_act_at_once_while_live() {
    let mut rig = Rig::new();
    rig.create("s");
    let nulls = r#"{"success":true,"message":null,"dataId":null,"errorId":0}"#;
    let put = |rig: &mut Rig, rest: &str| rig.call(Method::Put, &format!("{BASE}/{rest}"), "");
    assert_eq!(put(&mut rig, "s/recording/true"), (200, nulls.to_owned()));
    assert_eq!(put(&mut rig, "s/recording/false?recordType=webm"), (200, nulls.to_owned()));
    let record = rig.record("s");
    assert_eq!((&record["mp4Enabled"], &record["webMEnabled"]), (&1.into(), &(-1).into()));
    let text = "No stream for this id: s or unexpected record type. Record type is null";
    let wrong = failure(text).replace(r#""dataId":"""#, r#""dataId":null"#);
    for kind in ["avi", ""] {
        assert_eq!(put(&mut rig, &format!("s/recording/true?recordType={kind}")).1, wrong);
    }
    assert_eq!(put(&mut rig, "s/recording/true?resolutionHeight=x").0, 404);
    let unknown = r#"{"success":false,"message":null,"dataId":null,"errorId":0}"#;
    assert_eq!(put(&mut rig, "none/recording/true").1, unknown);
    rig.publish("s", 0);
    let webm = put(&mut rig, "s/recording/true?recordType=webm").1;
    assert_eq!(
        webm,
        r#"{"success":false,"message":"webm recording couldn't be started","dataId":null,"errorId":0}"#
    );
    let answer = |rig: &mut Rig, rest: &str| -> serde_json::Value {
        serde_json::from_str(&put(rig, &format!("s/recording/{rest}")).1).unwrap()
    };
    assert_eq!(answer(&mut rig, "true")["message"], "0", "it is recorded since it began");
    assert_eq!(answer(&mut rig, "false")["success"], true);
    assert_eq!(answer(&mut rig, "false")["message"], "mp4 recording couldn't be stopped");
    let begun = answer(&mut rig, "true");
    assert_eq!((&begun["success"], begun["dataId"].as_str().unwrap().len()), (&true.into(), 24));
    assert_eq!(answer(&mut rig, "false"), begun, "its end names what has ended");
}

#[test]
fn stream_info_tells_of_what_the_publisher_sends() {
    let mut rig = Rig::new();
    rig.create("s");
    assert_eq!(rig.get(&format!("{BASE}/s/stream-info")).1, "[]");
    let (_, stream) = rig.publish("s", 0);
    rig.run_for(secs(1));
    rig.report(0, stream, 250_000, 0, 1);
    let body = rig.get(&format!("{BASE}/s/stream-info")).1;
    let info: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&info[0]["videoHeight"], &info[0]["videoCodec"]), (&720.into(), &"H264".into()));
}

#[test]
fn absent_features_answer_as_the_reference_without_them() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"p","type":"playlist"}"#);
    for (path, body) in [
        ("s/webrtc-client-stats/0/10", "[]"),
        ("onvif-devices", "[]"),
        ("duration", FAILED),
        ("s/ip-camera-error", &failure("Camera is not found with streamId: s")),
    ] {
        assert_eq!(rig.get(&format!("{BASE}/{path}")), (200, body.to_owned()), "{path}");
    }
    let next = |rig: &mut Rig, id: &str| rig.post(&format!("{BASE}/playlists/{id}/next"), "").1;
    assert_eq!(next(&mut rig, "x"), failure("There is no playlist found. Please check Stream id again"));
    assert_eq!(next(&mut rig, "p"), failure("No active playlist for id:p. Start the playlist first"));
    let seek = rig.call(Method::Put, &format!("{BASE}/s/seek-time/500"), "").1;
    assert!(seek.contains("Not active stream source found with this id: s "));
    assert_eq!(rig.get("/live/rest/v2/vods/count").1, r#"{"number":0}"#);
    assert_eq!(rig.get("/live/rest/v2/vods/list/0/10").1, "[]");
    assert!(rig.get("/live/rest/v2/vods/x").1.starts_with(r#"{"streamName":null,"vodName":null,"#));
    assert_eq!(rig.get(&format!("{BASE}/s/ip-camera/device-profiles")).0, 204);
}

const ROOMS: &str = "/live/rest/v2/broadcasts/conference-rooms";

fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_conference_room_is_a_virtual_main_track_and_outlives_a_restart() {
    let mut rig = Rig::new();
    let start = i64::try_from(START_MS / 1000).unwrap();
    let (status, made) = rig.post(ROOMS, r#"{"roomId":"room"}"#);
    let expected = format!(
        r#"{{"roomId":"room","startDate":{start},"endDate":{},"roomStreamList":[],"mode":"legacy","originAdress":"#,
        start + 3600
    );
    assert!(status == 200 && made.starts_with(&expected), "{made}");
    let record = rig.record("room");
    assert_eq!((&record["virtual"], &record["conferenceMode"]), (&true.into(), &"legacy".into()));
    // Refused: a room whose id is taken or invalid, and a body that is not an object.
    let refused = (400, failure("Operation not completed"));
    for body in [r#"{"roomId":"room"}"#, r#"{"roomId":".."}"#, "null", ""] {
        assert_eq!(rig.post(ROOMS, body), refused, "{body}");
    }
    assert_eq!(rig.post(ROOMS, "{").0, 400);
    // A room created without an id gets an id.
    let named = value(&rig.post(ROOMS, r#"{"mode":"mcu","startDate":5,"endDate":6}"#).1);
    let id = named["roomId"].as_str().unwrap();
    assert_eq!(value(&rig.get(&format!("{ROOMS}/{id}")).1), named);
    assert_eq!(
        (&named["startDate"], &named["endDate"], &named["mode"]),
        (&5.into(), &6.into(), &"mcu".into())
    );

    let (status, changed) =
        rig.call(Method::Put, &format!("{ROOMS}/room"), r#"{"mode":"multitrack","endDate":9}"#);
    let changed = value(&changed);
    assert_eq!((status, &changed["mode"], &changed["endDate"]), (200, &"multitrack".into(), &9.into()));
    assert_eq!(changed["startDate"], start);
    assert_eq!(rig.call(Method::Put, &format!("{ROOMS}/none"), "{}"), refused);

    let Rig { store, .. } = rig;
    let mut rig = Rig::start(config(&[], &[]), store);
    assert_eq!(value(&rig.get(&format!("{ROOMS}/room")).1), changed);
    let text = "broadcast is deleted but could not stopped ";
    let deleted = format!(r#"{{"success":true,"message":"{text}","dataId":"","errorId":0}}"#);
    assert_eq!(rig.call(Method::Delete, &format!("{ROOMS}/room"), "").1, deleted);
    assert_eq!(rig.call(Method::Delete, &format!("{ROOMS}/room"), "").1, FAILED);
    assert_eq!(rig.get(&format!("{ROOMS}/room")).0, 404);
}

#[test]
fn streams_join_and_leave_a_conference_room() {
    let mut rig = Rig::new();
    for id in ["a", "b", "c"] {
        rig.create(id);
    }
    let room = value(&rig.post(ROOMS, r#"{"roomId":"room","roomStreamList":["a","none"]}"#).1);
    assert_eq!(room["roomStreamList"], serde_json::json!(["a"]));
    let put = |rig: &mut Rig, path: &str| rig.call(Method::Put, &format!("{ROOMS}/room/{path}"), "").1;
    assert_eq!(put(&mut rig, "b"), PLAIN);
    assert_eq!(put(&mut rig, "add?streamId=c"), PLAIN);
    let text = "There is no stream with id:x as subtrack or room as mainTrack";
    assert_eq!(put(&mut rig, "x"), failure(text));
    assert_eq!(rig.record("room")["subTrackStreamIds"], serde_json::json!(["a", "b", "c"]));
    assert_eq!(put(&mut rig, "delete?streamId=c"), PLAIN);
    assert_eq!(rig.call(Method::Delete, &format!("{ROOMS}/room/b"), "").1, PLAIN);
    assert_eq!(value(&rig.get(&format!("{ROOMS}/room")).1)["roomStreamList"], serde_json::json!(["a"]));
    // A list of streams replaces the previous list; the room's own id in the list is ignored.
    rig.call(Method::Put, &format!("{ROOMS}/room"), r#"{"roomStreamList":["b","c","room"]}"#);
    assert_eq!(value(&rig.get(&format!("{ROOMS}/room")).1)["roomStreamList"], serde_json::json!(["b", "c"]));
    assert_eq!(rig.record("a")["mainTrackStreamId"], "");
    rig.call(Method::Put, &format!("{ROOMS}/room"), r#"{"mode":"mcu"}"#);
    assert_eq!(rig.record("room")["subTrackStreamIds"], serde_json::json!(["b", "c"]));

    // All live participants except the one that asks are listed.
    rig.call(Method::Put, &format!("{BASE}/b"), r#"{"name":"Bee"}"#);
    for id in ["a", "b", "c"] {
        rig.publish(id, 0);
    }
    let info = value(&rig.get(&format!("{ROOMS}/room/room-info?streamId=c")).1);
    assert_eq!(
        (&info["streamDetailsMap"]["b"], &info["streamList"]),
        (&"Bee".into(), &serde_json::json!(["b"]))
    );
    let none = value(&rig.get(&format!("{ROOMS}/none/room-info")).1);
    assert_eq!((&none["streamDetailsMap"], &none["startDate"]), (&serde_json::Value::Null, &0.into()));
    // The streams remain when their room is deleted.
    rig.call(Method::Delete, &format!("{ROOMS}/room"), "");
    rig.record("b");
}

#[test]
fn rooms_are_listed_without_other_broadcasts() {
    let mut rig = Rig::new();
    rig.create("plain");
    for id in ["r2", "r1", "q3"] {
        rig.post(ROOMS, &format!(r#"{{"roomId":"{id}"}}"#));
    }
    let rooms = |rig: &mut Rig, query: &str| -> Vec<String> {
        let list = value(&rig.get(&format!("{ROOMS}/list/{query}")).1);
        let ids = list.as_array().unwrap().iter().map(|room| room["roomId"].as_str().unwrap().to_owned());
        ids.collect()
    };
    assert_eq!(rooms(&mut rig, "0/50"), ["q3", "r1", "r2"]);
    assert_eq!(rooms(&mut rig, "1/1"), ["r1"]);
    assert_eq!(rooms(&mut rig, "0/50?search=R&sort_by=name&order_by=desc"), ["r2", "r1"]);
    assert_eq!(rig.get(&format!("{ROOMS}/list/x/50")).0, 404);
}

#[test]
fn the_other_paths_of_servers_before_3_0_are_there() {
    let mut rig = Rig::with(&[], &[("subscriberAuthenticationKey", "0123456789abcdef0123456789abcdef")]);
    for id in ["a", "b", "c"] {
        rig.create(id);
    }
    let bulk = |rig: &mut Rig, body: &str| rig.call(Method::Delete, &format!("{BASE}/bulk"), body);
    assert_eq!(bulk(&mut rig, "[]").1, FAILED);
    assert_eq!(bulk(&mut rig, r#"{"a":1}"#).0, 400);
    assert!(bulk(&mut rig, r#"["a","b"]"#).1.contains("true"));
    assert_eq!(bulk(&mut rig, r#"["c","none"]"#).1, FAILED);
    assert_eq!(rig.get(&format!("{BASE}/count")).1, r#"{"number":0}"#, "up to the one that is not there");
    assert_eq!(rig.get(&format!("{BASE}/a/detections/0/10")), (200, "[]".to_owned()));
    assert_eq!(rig.get(&format!("{BASE}/a/detections/count")).1, r#"{"number":0}"#);
    assert_eq!(rig.post(&format!("{BASE}/webrtc-viewers/x/stop"), "").1, FAILED);
    assert_eq!(rig.post(&format!("{BASE}/a/subscribers"), r#"{"subscriberId":"bobby"}"#).1, PLAIN);
    let stats = r#"[{"streamId":"a","subscriberId":"bobby","connectionEvents":[],"avgVideoBitrate":0,"avgAudioBitrate":0}]"#;
    assert_eq!(rig.get(&format!("{BASE}/a/subscriber-stats/list/0/10")).1, stats);
    assert_eq!(rig.get(&format!("{BASE}/a/subscriber-stats/list/1/10")).1, "[]");

    const PUSH: &str = "/live/rest/v2/push-notification/subscriber-auth-token";
    let blank = "subscriberId is blank. Please give subscriberId as query parameter";
    assert_eq!(rig.get(PUSH).1, failure(blank));
    assert_eq!(rig.get(&format!("{PUSH}?subscriberId=bob&timeoutSeconds=x")).0, 404);
    for (query, holds) in [("", 3600), ("&timeoutSeconds=5", 5), ("&timeoutSeconds=-5", 3600)] {
        let answer = value(&rig.get(&format!("{PUSH}?subscriberId=bob{query}")).1);
        assert_eq!(answer["message"], "Token is available in dataId field");
        let token = answer["dataId"].as_str().unwrap();
        let claims = crate::auth::jwt::verify(token, b"0123456789abcdef0123456789abcdef", START_MS).unwrap();
        let exp = i64::try_from(START_MS / 1000).unwrap() + holds;
        assert_eq!((&claims["subscriberId"], &claims["exp"]), (&"bob".into(), &exp.into()));
    }
    let tagged = Rig::with(&[], &[("id3TagEnabled", "true")]).post(&format!("{BASE}/a/id3"), "{}").1;
    assert!(tagged.contains("Stream is not available"), "{tagged}");
    let splice = |rig: &mut Rig, body: &str| rig.post(&format!("{BASE}/a/scte35"), body).1;
    assert!(splice(&mut rig, r#"{"event":"out"}"#).contains("Stream is not available"));
    assert!(splice(&mut rig, r#"{"event":"off"}"#).contains("event is out, in or cancel"));
    let mut told = Rig::with(&[], &[("hls.subtitles", "en")]);
    let said = told.post(&format!("{BASE}/a/subtitles"), r#"{"text":"x"}"#).1;
    assert!(said.contains("Stream is not available"), "{said}");
    // WebVTT must be declared as such. The media types that a page's form can send, and all others, are refused.
    let mut typed = |media: &str| {
        let path = format!("{BASE}/a/subtitles");
        let mut request = request(Method::Post, &path, "WEBVTT\n\n00:00.000 --> 00:01.000\nx\n");
        request.headers.push("Content-Type", media);
        let session = told.send_request("127.0.0.1:9", request);
        told.answer(session).unwrap()
    };
    for media in ["text/vtt", "text/vtt; charset=utf-8", "application/json"] {
        assert!(typed(media).1.contains("Stream is not available"), "{media}: {:?}", typed(media));
    }
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"] {
        assert_eq!(typed(media).0, 415, "{media}");
    }
    let mut rig = Rig::new();
    assert!(rig.post(&format!("{BASE}/a/id3"), "{}").1.contains("ID3 tag is not enabled"));
    let said = rig.post(&format!("{BASE}/a/subtitles"), r#"{"text":"x"}"#).1;
    assert!(said.contains("Subtitles are not enabled"), "{said}");
    let text = "subscriberAuthenticationKey is not set or its length is less than 32";
    assert_eq!(rig.get(&format!("{PUSH}?subscriberId=bob")).1, failure(text));
}

impl Rig {
    /// Returns the news about calls that a socket has received since this function was last called.
    fn call_news(&mut self, session: SessionRef) -> Vec<CallNews> {
        let is_own = |mail: &ToWorker| matches!(mail, ToWorker::Call { conn, .. } if *conn == session.conn);
        let (own, others): (Vec<_>, Vec<_>) = self.posted.drain(..).partition(|(_, mail)| is_own(mail));
        self.posted = others;
        let news = |mail| if let ToWorker::Call { news, .. } = mail { Some(news) } else { None };
        own.into_iter().filter_map(|(_, mail)| news(mail)).collect()
    }

    /// Publishes into a main track.
    fn publish_into(&mut self, id: &str, main: &str, more: &[(&str, &str)]) -> (SessionRef, StreamId) {
        let main = [("mainTrack", main)];
        let params = main.iter().chain(more);
        let params = params.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = PublishRequest { params, ..self.request(id, 0) };
        let session = request.session;
        (session, self.ask(request).unwrap().stream)
    }

    fn ask_of(&mut self, id: &str, question: Question) -> (u16, serde_json::Value) {
        let (session, key) = (self.session(0), StreamKey::new("live", id));
        let peer = "198.51.100.7:4000".parse().unwrap();
        self.mail(ToControl::Ask { session, peer, key, let_in: Vec::new(), question });
        self.run_for(Duration::from_micros(100));
        let (status, body) = self.answer(session).unwrap();
        (status, serde_json::from_str(&body).unwrap_or_default())
    }
}

#[test]
fn what_a_publisher_says_of_its_stream_is_in_the_record_that_it_makes() {
    let mut rig = Rig::new();
    let said = [("streamName", "Ann"), ("metaData", "{\"a\":1}"), ("role", "guest")];
    rig.publish_into("ann", "room", &said);
    let record = rig.record("ann");
    assert_eq!(
        (&record["name"], &record["metaData"], &record["role"]),
        (&"Ann".into(), &"{\"a\":1}".into(), &"guest".into())
    );
    rig.mail(ToControl::Describe { key: StreamKey::new("live", "ann"), meta_data: "other".to_owned() });
    rig.run_for(secs(1));
    assert_eq!(rig.record("ann")["metaData"], "other");
    // A record made by the operator keeps its own description. A description that is too long is ignored.
    rig.post(&format!("{BASE}/create"), r#"{"streamId":"ben","name":"Ben"}"#);
    rig.publish_into("ben", "room", &said);
    assert_eq!(
        (&rig.record("ben")["name"], &rig.record("ben")["metaData"]),
        (&"Ben".into(), &serde_json::Value::Null)
    );
    rig.publish_into("cat", "room", &[("metaData", &"x".repeat(9000))]);
    assert_eq!(rig.record("cat")["metaData"], serde_json::Value::Null);
    // The description of a stream that is not published is ignored.
    rig.mail(ToControl::Describe { key: StreamKey::new("live", "none"), meta_data: "x".to_owned() });
    assert_eq!(rig.get(&format!("{BASE}/none")).0, 404);
}

#[test]
fn w_09_a_publisher_that_describes_its_stream_all_the_time_causes_few_commits() {
    let mut rig = Rig::new();
    rig.create("ann");
    rig.publish("ann", 0);
    rig.run_for(secs(2));
    rig.hold = true;
    let mut commits = 0;
    for n in 0..250 {
        rig.mail(ToControl::Describe { key: StreamKey::new("live", "ann"), meta_data: format!("text {n}") });
        rig.run_for(ms(10));
        commits += rig.held.len();
        rig.release();
        rig.hold = true;
    }
    assert_eq!(rig.record("ann")["metaData"], "text 249");
    assert!((1..=3).contains(&commits), "{commits} commits in 2.5 seconds");
    // The last text is written, too, and then nothing more.
    rig.run_for(secs(2));
    assert_eq!(rig.held.len(), 1);
    rig.release();
    rig.hold = true;
    rig.mail(ToControl::Describe { key: StreamKey::new("live", "ann"), meta_data: "text 249".to_owned() });
    rig.run_for(secs(2));
    assert!(rig.held.is_empty());
}

/// Workers know the role of a participant, from the beginning and after each change.
#[test]
fn workers_know_the_role_of_a_participant() {
    let mut rig = Rig::new();
    let roles = |rig: &mut Rig| -> Vec<String> {
        let mail = rig.take().into_iter().filter_map(|(_, mail)| match mail {
            ToWorker::StreamUp { details, .. } => Some(details.role.to_string()),
            _ => None,
        });
        let mut roles: Vec<String> = mail.collect();
        roles.dedup();
        roles
    };
    rig.take();
    rig.publish_into("ann", "room", &[("role", "attendee")]);
    assert_eq!(roles(&mut rig), ["attendee"]);
    assert_eq!(rig.call(Method::Put, &format!("{BASE}/ann"), r#"{"role":"active_attendee"}"#).0, 200);
    assert_eq!(roles(&mut rig), ["active_attendee"]);
    assert_eq!(rig.call(Method::Put, &format!("{BASE}/ann"), r#"{"name":"Ann"}"#).0, 200);
    assert!(roles(&mut rig).is_empty());
}

#[test]
fn a_room_is_asked_who_is_there() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask_of("room", Question::Room).1["streams"], serde_json::json!([]));
    for (id, role) in [("ann", "speaker"), ("ben", "guest"), ("cat", "guest")] {
        rig.publish_into(id, "room", &[("role", role), ("streamName", id)]);
    }
    let (_, room) = rig.ask_of("room", Question::Room);
    assert_eq!(room["streams"], serde_json::json!(["ann", "ben", "cat"]));
    assert_eq!(room["streamList"][1]["streamName"], "ben");
    let subtracks = |role: &str, offset, size| Question::Subtracks { role: role.to_owned(), offset, size };
    let ids = |rig: &mut Rig, question| {
        let (_, list) = rig.ask_of("room", question);
        list.as_array()
            .unwrap()
            .iter()
            .map(|one| one["streamId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut rig, subtracks("", 0, 50)), ["ann", "ben", "cat"]);
    assert_eq!(ids(&mut rig, subtracks("guest", 1, 50)), ["cat"]);
    assert_eq!(ids(&mut rig, subtracks("", 0, 2)), ["ann", "ben"]);
    assert_eq!(rig.ask_of("room", Question::SubtrackCount("guest".to_owned())).1["count"], 2);
    assert_eq!(rig.ask_of("room", Question::SubscriberCount).1["count"], 0);
    assert_eq!(rig.ask_of("ann", Question::Media).0, 200);
    assert_eq!(rig.ask_of("room", Question::Media).0, 404);
}

#[test]
fn a_main_track_is_played_by_its_own_checks_while_a_subtrack_is_live() {
    let mut rig = Rig::new();
    assert_eq!(rig.play_with("room", &[]), Err(NoSubscription::NotFound));
    let (session, stream) = rig.publish_into("ann", "room", &[]);
    assert_eq!(rig.play_with("room", &[]), Ok(()));
    rig.gone(session, stream, Departure::Clean, 0);
    assert_eq!(rig.play_with("room", &[]), Err(NoSubscription::NotFound));
}

#[test]
fn calls_need_what_viewers_need() {
    let join = |rig: &mut Rig| {
        let session = rig.session(0);
        let key = StreamKey::new("live", "call");
        let event = CallEvent::Join { key, params: Vec::new(), origin: String::new() };
        rig.mail(ToControl::Call { session, peer: "192.0.2.9:1".parse().unwrap(), event });
        (session, rig.call_news(session))
    };
    let mut open = Rig::new();
    let (first, news) = join(&mut open);
    assert_eq!(news, [CallNews::Joined]);
    let (second, news) = join(&mut open);
    assert_eq!(news, [CallNews::Joined, CallNews::Paired { with: first, begins: false }]);
    assert_eq!(open.call_news(first), [CallNews::Paired { with: second, begins: true }]);
    assert_eq!(join(&mut open).1, [CallNews::Full]);
    open.mail(ToControl::Call {
        session: first,
        peer: "192.0.2.9:1".parse().unwrap(),
        event: CallEvent::Gone,
    });
    assert_eq!(open.call_news(second), [CallNews::Alone]);
    const SECRET: (&str, &str) = ("jwtStreamSecretKey", "0123456789abcdef0123456789abcdef");
    for setting in [
        ("playTokenControlEnabled", "true"),
        ("playJwtControlEnabled", "true"),
        ("webhookPlayAuthUrl", "http://192.0.2.1/hook"),
    ] {
        let mut checked = Rig::with(&[], &[setting, SECRET]);
        let (_, news) = join(&mut checked);
        assert!(matches!(news[..], [CallNews::Refused(NoSubscription::Denied(_))]), "{setting:?}: {news:?}");
    }
}

/// Returns how many streams and records searches for live subtracks examine while a main track is deleted with this
/// number of subtracks.
fn examined_by_delete(number: usize) -> usize {
    let mut rig = Rig::with(&[("limits.publishers_per_address", "1000")], &[]);
    let main = StreamKey::new("live", "m");
    for n in 0..=number {
        let key = if n == number { main.clone() } else { StreamKey::new("live", &format!("s{n:05}")) };
        let main_track_stream_id = (n < number).then(|| "m".to_owned());
        let mut record = Broadcast { main_track_stream_id, is_virtual: n == number, ..Broadcast::default() };
        rig.control.cx.complete(rig.now, &key, &mut record);
        rig.control.records.insert(key, record);
    }
    for n in 0..10 {
        rig.publish(&format!("other{n}"), 0);
    }
    let shown = |rig: &Rig| rig.control.records.get(&main).map(|record| record.sub_track_stream_ids.clone());
    let first: Vec<String> = (0..number.min(500)).map(|n| format!("s{n:05}")).collect();
    assert_eq!(shown(&rig), Some(first));
    // The list in the record moves on as subtracks leave and come.
    let moved = StreamKey::new("live", "s00003");
    let record = rig.control.records.remove(&moved).unwrap();
    let without: Vec<String> =
        (0..number).filter(|n| *n != 3).take(500).map(|n| format!("s{n:05}")).collect();
    assert_eq!(shown(&rig), Some(without));
    rig.control.records.insert(moved, record);
    assert_eq!(shown(&rig).unwrap().len(), number.min(500));
    rig.control.registry.examined.set(0);
    let (status, answer) = rig.call(Method::Delete, &format!("{BASE}/m"), "");
    assert!(status == 200 && answer.contains("deleted"), "{answer}");
    assert_eq!(rig.control.records.count("live"), 10);
    rig.control.registry.examined.get()
}

#[test]
fn q_17_a_delete_examines_no_subtrack_for_each_subtrack() {
    let (few, many) = (examined_by_delete(400), examined_by_delete(3200));
    assert!(many <= 8 * few.max(100), "{few} for 400, {many} for 3200");
}

#[test]
fn a_play_of_a_main_track_examines_no_more_than_the_live_streams() {
    let mut rig = Rig::new();
    for n in 0..1000 {
        let key = StreamKey::new("live", &format!("s{n}"));
        let mut record = Broadcast { main_track_stream_id: Some("m".to_owned()), ..Broadcast::default() };
        rig.control.cx.complete(rig.now, &key, &mut record);
        rig.control.records.insert(key, record);
    }
    for n in 0..3 {
        rig.publish(&format!("other{n}"), 0);
    }
    let main = StreamKey::new("live", "m");
    rig.control.registry.examined.set(0);
    assert!(!rig.control.registry.has_active_subtrack(&rig.control.records, &main));
    assert_eq!(rig.control.registry.examined.get(), 3);
    rig.publish("s7", 0);
    assert!(rig.control.registry.has_active_subtrack(&rig.control.records, &main));
    assert_eq!(rig.control.registry.active_subtracks(&rig.control.records, &main), 1);
}
