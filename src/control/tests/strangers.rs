//! Limits of rights: a user with a right to one thing may not change or see another.

use super::access::{params, token_of};
use super::*;
use crate::mail::{PlayRequest, PolledRequest};

impl Rig {
    fn record_as_seen(&mut self, id: &str, let_in: &[&str]) -> serde_json::Value {
        let session = self.session(0);
        let let_in = let_in.iter().map(|id| (*id).to_owned()).collect();
        let (key, question) = (StreamKey::new("live", id), Question::Record);
        let peer = "198.51.100.7:4000".parse().unwrap();
        self.mail(ToControl::Ask { session, peer, key, let_in, question });
        self.run_for(Duration::from_micros(100));
        let (status, body) = self.answer(session).unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn publish_to(&mut self, id: &str, main: &str, token: &str) -> Result<(SessionRef, StreamId), Refusal> {
        let params = params(&[("token", token), ("mainTrack", main)]);
        let request = PublishRequest { params, ..self.request(id, 0) };
        let session = request.session;
        self.ask(request).map(|grant| (session, grant.stream))
    }
}

#[test]
fn r_51_who_may_not_play_sees_no_more_of_a_record_than_what_all_may() {
    let checked = [("playTokenControlEnabled", "true")];
    for (settings, let_in, whole) in [
        (&checked[..], &[][..], false),
        (&checked, &["other"], false),
        (&checked, &["s"], true),
        (&checked, &["room"], true),
        (&[], &[], true),
    ] {
        let mut rig = Rig::with(&[], settings);
        let body = r#"{"streamId":"s","name":"n","metaData":"m","description":"d","username":"u","mainTrackStreamId":"room"}"#;
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create", body).0, 200);
        let seen = rig.record_as_seen("s", let_in);
        assert_eq!((&seen["streamId"], &seen["name"]), (&"s".into(), &"n".into()));
        assert!(seen["status"] == "created" && seen["hlsViewerCount"] == 0 && seen["date"].is_number());
        for member in ["metaData", "description", "username", "rtmpURL", "remoteIp", "originAdress"] {
            assert_eq!(seen.get(member).is_some(), whole, "{member} for {let_in:?}: {seen}");
        }
    }
}

#[test]
fn r_53_a_publisher_changes_no_record_of_others() {
    let mut rig = Rig::with(&[], &[("publishTokenControlEnabled", "true"), ("publisherGraceMs", "0")]);
    for body in [
        r#"{"streamId":"vip"}"#,
        r#"{"streamId":"room","virtual":true}"#,
        r#"{"streamId":"x"}"#,
        r#"{"streamId":"mine","mainTrackStreamId":"vip"}"#,
    ] {
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create", body).0, 200);
    }
    let before = rig.record("vip");
    let token = token_of(&mut rig, "x", "publish");
    assert!(matches!(rig.publish_to("x", "vip", &token), Err(Refusal::NotAllowed(_))));
    assert_eq!(rig.record("vip"), before);
    // The refusal above did not use up the token. `room` is virtual, so any publisher may join it.
    let (session, stream) = rig.publish_to("x", "room", &token).unwrap();
    assert_eq!(rig.record("room")["status"], "broadcasting");
    rig.gone(session, stream, Departure::Clean, 0);
    assert_eq!(
        (&rig.record("room")["status"], &rig.record("room")["virtual"]),
        (&"finished".into(), &true.into())
    );
    // A publisher whose record or token names the room may join it.
    let token = token_of(&mut rig, "mine", "publish");
    let (mine, stream) = rig.publish_to("mine", "vip", &token).unwrap();
    assert_eq!(
        (&rig.record("vip")["status"], &rig.record("vip")["virtual"]),
        (&"broadcasting".into(), &true.into())
    );
    let path = format!(
        "/live/rest/v2/broadcasts/y/token?expireDate={}&type=publish&roomId=vip",
        START_MS / 1000 + 100
    );
    let token: serde_json::Value = serde_json::from_str(&rig.get(&path).1).unwrap();
    let (guest, other) = rig.publish_to("y", "vip", token["tokenId"].as_str().unwrap()).unwrap();
    // The record is a room only while its participants are live, and publishers without such a
    // record or token may not join it.
    let token = token_of(&mut rig, "z", "publish");
    assert!(matches!(rig.publish_to("z", "vip", &token), Err(Refusal::NotAllowed(_))));
    rig.gone(mine, stream, Departure::Clean, 0);
    assert_eq!(rig.record("vip")["virtual"], true, "one is still there");
    rig.gone(guest, other, Departure::Clean, 0);
    assert_eq!(
        (&rig.record("vip")["status"], &rig.record("vip")["virtual"]),
        (&"finished".into(), &false.into())
    );
    assert!(rig.control.records.joined.is_empty());
}

#[test]
fn where_nobody_is_checked_every_record_may_be_joined() {
    let mut rig = Rig::new();
    rig.create("vip");
    assert!(rig.publish_to("x", "vip", "").is_ok());
    assert_eq!(rig.record("vip")["virtual"], true);
}

#[test]
fn r_54_workers_hear_of_a_block_before_it_is_answered() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.posted.clear();
    let path = "/live/rest/v2/broadcasts/s/subscribers/alice/block/600/play";
    let session = rig.send(Method::Put, path, "");
    let told = |rig: &Rig| {
        let ended = |(_, mail): &&(WorkerId, ToWorker)| matches!(mail, ToWorker::PassesEnded { app, subscriber } if &**app == "live" && subscriber == "alice");
        rig.posted.iter().filter(ended).count()
    };
    assert_eq!((told(&rig), rig.answer(session)), (usize::from(WORKERS), None));
    rig.run_for(ms(5));
    assert_eq!(rig.answer(session), Some((200, PLAIN.into())));
}

#[test]
fn t_10_a_name_that_nobody_checks_takes_no_place_of_a_viewer_s_pass() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.post("/live/rest/v2/broadcasts/s/subscribers", r#"{"subscriberId":"alice"}"#);
    rig.publish("s", 0);
    let key = StreamKey::new("live", "s");
    for (name, passes) in [("stranger", 0), ("another", 0), ("alice", 1)] {
        let polled =
            PolledRequest { who: name.to_owned(), former: None, file: "s.m3u8".to_owned(), found: true };
        let request = rig.play_request("s", &[("subscriberId", name)]);
        let request = PlayRequest { egress: "hls", polled: Some(polled), ..request };
        rig.take();
        rig.mail(ToControl::Play(Box::new(request)));
        let is_let_in =
            |mail: &(WorkerId, ToWorker)| matches!(mail.1, ToWorker::Pass { verdict: Ok(()), .. });
        assert!(rig.take().iter().any(is_let_in), "{name}");
        assert_eq!(rig.control.access.passes(&key, "hls"), passes, "{name}");
    }
}
