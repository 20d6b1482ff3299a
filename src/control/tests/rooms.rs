//! Subtracks, and operations of features that are stored only or absent.

use super::*;

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
    // Moved away while live.
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
fn join(rig: &mut Rig, id: &str, main: &str) -> Result<(SessionRef, StreamId), Refusal> {
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
    // Itself is no main track, nor is a stream that is live on its own.
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
fn recording_switches_are_kept_while_offline_and_refused_while_live() {
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
    let body = put(&mut rig, "s/recording/true").1;
    assert_eq!(
        body,
        r#"{"success":false,"message":"mp4 recording couldn't be started","dataId":null,"errorId":0}"#
    );
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
    let text =
        "Operation not supported in the Community Edition. Check the Enterprise version for more features.";
    assert_eq!(rig.post(&format!("{BASE}/s/data"), "x").1, failure(text));
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
