//! Recordings of rooms: one file per participant, on one clock.

use serde_json::{Value, json};

use super::recordings::finished;
use super::rooms::join;
use super::*;
use crate::mail::RecordingOrder;

const ROOM: &str = "/live/rest/v2/broadcasts/room";

impl Rig {
    fn switch(&mut self, on: bool) {
        let (status, _) = self.call(Method::Put, &format!("{ROOM}/recording/{on}"), "");
        assert_eq!(status, 200);
        self.run_for(ms(10));
    }

    /// Returns the orders to begin recordings, and the number of recordings that workers were asked to end.
    fn ordered(&mut self) -> (Vec<RecordingOrder>, usize) {
        let (begun, ended) = self.recordings();
        (begun.into_iter().map(|(_, order)| order).collect(), ended.len())
    }

    fn manifests(&mut self) -> Vec<Value> {
        let (status, body) = self.get(&format!("{ROOM}/room-recordings/0/50"));
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    }
}

fn file(of: &RecordingOrder) -> String {
    format!("live/streams/{}.mp4", of.stem)
}

/// Returns the streams of a manifest, with their beginnings and ends.
fn files(manifest: &Value) -> Vec<(String, Value, Value)> {
    let file = |one: &Value| {
        (one["streamId"].as_str().unwrap().to_owned(), one["start"].clone(), one["end"].clone())
    };
    manifest["files"].as_array().unwrap().iter().map(file).collect()
}

#[test]
fn a_recording_of_a_room_has_a_file_of_each_participant_on_one_clock() {
    let mut rig = Rig::new();
    rig.create("room");
    let (ann, stream) = join(&mut rig, "ann", "room").unwrap();
    join(&mut rig, "ben", "room").unwrap();
    assert_eq!(rig.ordered().0.len(), 0);
    let zero_ms = rig.now.wall_ms;
    rig.switch(true);
    let (orders, _) = rig.ordered();
    assert_eq!(orders.len(), 2, "who is there");
    orders.iter().for_each(|order| rig.begun(order.recording, &file(order)));
    rig.run_for(secs(7));
    rig.take();
    join(&mut rig, "cat", "room").unwrap();
    let (late, _) = rig.ordered();
    assert_eq!(late.len(), 1, "who comes later");
    rig.begun(late[0].recording, &file(&late[0]));
    // A participant's file ends when the participant leaves.
    rig.gone(ann, stream, Departure::Clean, 0);
    rig.ended(orders[0].recording, &file(&orders[0]));
    rig.over(orders[0].recording, "the stream ended");
    rig.finish(finished(1));
    let manifests = rig.manifests();
    assert_eq!((manifests.len(), manifests[0]["room"].as_str()), (1, Some("room")));
    let began = manifests[0]["startTime"].as_u64().unwrap();
    assert!((zero_ms..zero_ms + 100).contains(&began), "{began} of {zero_ms}");
    let list = files(&manifests[0]);
    let ids: Vec<&str> = list.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["ann", "ben", "cat"]);
    let start = |at: usize| list[at].1.as_i64().unwrap();
    assert!(start(0) < 100 && start(1) < 100 && (7_000..7_100).contains(&start(2)), "{list:?}");
    assert_eq!(list[0].2.as_i64(), Some(start(0) + 4_000), "as long as its file");
    assert_eq!((&list[1].2, &list[2].2), (&json!(null), &json!(null)), "they are written");
    // The room's recording is stopped for all participants.
    rig.take();
    rig.switch(false);
    assert_eq!(rig.ordered().1, 2);
    for order in [&orders[1], &late[0]] {
        rig.ended(order.recording, &file(order));
        rig.over(order.recording, "recording stopped");
        rig.finish(finished(1));
    }
    assert!(files(&rig.manifests()[0]).iter().all(|(.., end)| end.is_i64()));
    // The next recording has its own clock. A participant that leaves the room is no longer recorded.
    rig.take();
    rig.switch(true);
    let (orders, _) = rig.ordered();
    assert_eq!(orders.len(), 2);
    rig.begun(orders[0].recording, &file(&orders[0]));
    let manifests = rig.manifests();
    assert_eq!((manifests.len(), files(&manifests[0]).len()), (2, 1), "the newest first");
    assert_ne!(manifests[0]["recording"], manifests[1]["recording"]);
    rig.take();
    rig.call(Method::Delete, &format!("{ROOM}/subtrack?id=cat"), "");
    assert_eq!(rig.ordered().1, 1);
}

#[test]
fn who_is_recorded_anyway_is_in_the_recording_of_its_room_and_who_will_not_be_is_not() {
    let mut rig = Rig::start(config(&[], &[("mp4MuxingEnabled", "true")]), Default::default());
    rig.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"ben","mp4Enabled":-1}"#);
    join(&mut rig, "ann", "room").unwrap();
    let (orders, _) = rig.ordered();
    assert_eq!(orders.len(), 1);
    join(&mut rig, "ben", "room").unwrap();
    assert_eq!(rig.ordered().0.len(), 0);
    rig.begun(orders[0].recording, &file(&orders[0]));
    assert_eq!(files(&rig.manifests()[0])[0].0, "ann");
    // Renditions of one programme are not a room.
    let settings = [("mp4MuxingEnabled", "true"), ("hls.group", "renditions")];
    let mut rig = Rig::start(config(&[], &settings), Default::default());
    join(&mut rig, "ann", "room").unwrap();
    let (orders, _) = rig.ordered();
    rig.begun(orders[0].recording, &file(&orders[0]));
    assert!(rig.manifests().is_empty());
}

#[test]
fn who_publishes_under_the_name_of_the_room_is_in_its_recording() {
    let mut rig = Rig::new();
    rig.create("room");
    rig.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"ann","mainTrackStreamId":"room"}"#);
    rig.publish("room", 0);
    rig.publish("ann", 0);
    rig.switch(true);
    let (orders, _) = rig.ordered();
    assert_eq!(orders.len(), 2);
    orders.iter().for_each(|order| rig.begun(order.recording, &file(order)));
    let manifests = rig.manifests();
    assert_eq!(manifests.len(), 1);
    let mut ids: Vec<String> = files(&manifests[0]).into_iter().map(|(id, ..)| id).collect();
    ids.sort();
    assert_eq!(ids, ["ann", "room"]);
    // Without subtracks, the stream is not a room.
    let mut rig = Rig::new();
    rig.create("room");
    rig.publish("room", 0);
    rig.switch(true);
    let (orders, _) = rig.ordered();
    rig.begun(orders[0].recording, &file(&orders[0]));
    assert!(rig.manifests().is_empty());
}
