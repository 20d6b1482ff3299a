//! Access to streams: the order of checks, races, deadlines.

use super::*;
use crate::auth::access::{Denial, Direction, Secret, hash_token};
use crate::auth::time_code;
use crate::jobs::Receiver;
use crate::mail::{NoSubscription, PlayRequest};

const JWT: &str = "0123456789abcdef0123456789abcdef";
const EXPIRES: u64 = START_MS / 1000 + 100;

pub(super) fn token_of(rig: &mut Rig, id: &str, kind: &str) -> String {
    let path = format!("/live/rest/v2/broadcasts/{id}/token?expireDate={EXPIRES}&type={kind}");
    let (status, body) = rig.get(&path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<serde_json::Value>(&body).unwrap()["tokenId"].as_str().unwrap().to_owned()
}

pub(super) fn params(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Rig {
    fn request_with(&mut self, id: &str, pairs: &[(&str, &str)]) -> PublishRequest {
        PublishRequest { params: params(pairs), ..self.request(id, 0) }
    }

    fn publish_with(&mut self, id: &str, pairs: &[(&str, &str)]) -> Result<Grant, Refusal> {
        let request = self.request_with(id, pairs);
        self.ask(request)
    }

    pub(super) fn play_request(&mut self, id: &str, pairs: &[(&str, &str)]) -> PlayRequest {
        PlayRequest {
            session: self.session(1),
            key: StreamKey::new("live", id),
            egress: "flv",
            peer: "198.51.100.9:4000".parse().unwrap(),
            params: params(pairs),
            origin: "http://page.example".into(),
            polled: None,
        }
    }

    pub(super) fn ask_play(&mut self, request: PlayRequest) -> Option<Result<(), NoSubscription>> {
        let session = request.session;
        self.mail(ToControl::Play(Box::new(request)));
        self.play_verdict(session)
    }

    fn play_verdict(&mut self, session: SessionRef) -> Option<Result<(), NoSubscription>> {
        let at = self.posted.iter().position(
            |(_, mail)| matches!(mail, ToWorker::PlayVerdict { conn, .. } if *conn == session.conn),
        )?;
        let (_, ToWorker::PlayVerdict { verdict, .. }) = self.posted.remove(at) else { return None };
        Some(verdict)
    }

    pub(super) fn play_with(&mut self, id: &str, pairs: &[(&str, &str)]) -> Result<(), NoSubscription> {
        let request = self.play_request(id, pairs);
        self.ask_play(request).expect("a verdict in the same turn")
    }

    fn verdict(&mut self, session: SessionRef) -> Option<Result<Grant, Refusal>> {
        let at = self
            .posted
            .iter()
            .position(|(_, mail)| matches!(mail, ToWorker::Verdict { conn, .. } if *conn == session.conn))?;
        let (_, ToWorker::Verdict { verdict, .. }) = self.posted.remove(at) else { return None };
        Some(verdict.map(|grant| *grant))
    }

    fn put_at(&mut self, target: &str) -> (u16, String) {
        self.call(Method::Put, target, "")
    }

    fn answer_hook(&mut self, request: &Posted, result: Result<u16, String>) {
        self.done(request.id, Outcome::Posted(result));
    }

    fn asked(&mut self) -> Vec<Posted> {
        let (asks, hooks) =
            std::mem::take(&mut self.hooks).into_iter().partition(|r| r.receiver == Receiver::Admission);
        self.hooks = hooks;
        asks
    }
}

fn denied(denial: Denial) -> Refusal {
    Refusal::Denied(denial)
}

pub(super) fn no(denial: Denial) -> NoSubscription {
    NoSubscription::Denied(denial)
}

#[test]
fn a_one_time_token_is_good_once_for_one_stream_one_way_and_in_time() {
    let mut rig = Rig::with(&[], &[("publishTokenControlEnabled", "true")]);
    let token = token_of(&mut rig, "s", "publish");
    let play = token_of(&mut rig, "s", "play");
    let other = token_of(&mut rig, "other", "publish");
    for wrong in [&[][..], &[("token", "")], &[("token", "x")], &[("token", &play)], &[("token", &other)]] {
        assert_eq!(rig.publish_with("s", wrong).unwrap_err(), denied(Denial::Token), "{wrong:?}");
    }
    let grant = rig.publish_with("s", &[("token", &token)]).unwrap();
    rig.end_stream(grant.stream);
    assert_eq!(rig.publish_with("s", &[("token", &token)]).unwrap_err(), denied(Denial::Token));
    rig.set(rig.now.mono + secs(100));
    assert_eq!(rig.publish_with("other", &[("token", &other)]).unwrap_err(), denied(Denial::Token));
    // The token is gone from the disk, too.
    rig.run_for(ms(10));
    let mut again = Rig::start(config(&[], &[("publishTokenControlEnabled", "true")]), rig.store);
    assert_eq!(again.publish_with("s", &[("token", &token)]).unwrap_err(), denied(Denial::Token));
}

#[test]
fn a_token_is_burnt_on_success_only() {
    let mut rig = Rig::with(&[], &[("publishTokenControlEnabled", "true"), ("ingestingStreamLimit", "1")]);
    let (one, two) = (token_of(&mut rig, "a", "publish"), token_of(&mut rig, "b", "publish"));
    let grant = rig.publish_with("a", &[("token", &one)]).unwrap();
    // The limit is checked before the token, which is therefore not used up.
    assert!(matches!(rig.publish_with("b", &[("token", &two)]).unwrap_err(), Refusal::NotAllowed(_)));
    let again = token_of(&mut rig, "a", "publish");
    assert_eq!(rig.publish_with("a", &[("token", &again)]).unwrap_err(), Refusal::InUse);
    rig.end_stream(grant.stream);
    assert!(rig.publish_with("b", &[("token", &two)]).is_ok());
}

#[test]
fn of_two_with_one_token_one_gets_in_however_slow_the_disk_is() {
    let mut rig = Rig::with(&[], &[("playTokenControlEnabled", "true")]);
    rig.publish("s", 0);
    let token = token_of(&mut rig, "s", "play");
    rig.hold = true;
    assert_eq!(rig.play_with("s", &[("token", &token)]), Ok(()));
    assert_eq!(rig.play_with("s", &[("token", &token)]), Err(no(Denial::Token)));
    rig.run_for(ms(10));
    assert_eq!(rig.play_with("s", &[("token", &token)]), Err(no(Denial::Token)));
    rig.release();
    assert_eq!(rig.play_with("s", &[("token", &token)]), Err(no(Denial::Token)));
}

#[test]
fn while_the_disk_fails_no_token_is_taken() {
    let faults = Faults::default();
    let store = Memory::with_faults(faults.clone());
    let mut rig = Rig::start(config(&[], &[("playTokenControlEnabled", "true")]), store);
    rig.publish("s", 0);
    let tokens = [token_of(&mut rig, "s", "play"), token_of(&mut rig, "s", "play")];
    faults.fail(1, 1);
    assert_eq!(rig.play_with("s", &[("token", &tokens[0])]), Ok(()));
    rig.run_for(ms(10));
    assert_eq!(rig.play_with("s", &[("token", &tokens[1])]), Err(no(Denial::Token)));
    // The store's new file is written from memory, which no longer has the first token.
    rig.run_for(secs(2));
    assert_eq!(rig.play_with("s", &[("token", &tokens[0])]), Err(no(Denial::Token)));
    assert_eq!(rig.play_with("s", &[("token", &tokens[1])]), Ok(()));
}

#[test]
fn a_token_is_not_used_up_for_a_stream_that_is_not_there() {
    let mut rig = Rig::with(&[], &[("playTokenControlEnabled", "true")]);
    let token = token_of(&mut rig, "s", "play");
    assert_eq!(rig.play_with("s", &[("token", &token)]), Err(NoSubscription::NotFound));
    // A viewer without access does not learn which streams are live.
    assert_eq!(rig.play_with("s", &[]), Err(no(Denial::Token)));
    rig.publish("s", 0);
    assert_eq!(rig.play_with("s", &[("token", &token)]), Ok(()));
}

#[test]
fn tokens_past_their_time_go_some_day() {
    let mut rig = Rig::new();
    for _ in 0..600 {
        token_of(&mut rig, "s", "play");
    }
    let list = |rig: &mut Rig| rig.get("/live/rest/v2/broadcasts/s/tokens/list/0/50").1;
    assert_eq!(list(&mut rig).matches("tokenId").count(), 50);
    rig.run_for(secs(200));
    assert_eq!(list(&mut rig), "[]");
    assert_eq!(rig.store.load().unwrap().len(), 0);
    assert_eq!(rig.control.poll_timeout(), None, "nothing to look for any more");
}

#[test]
fn hashes_and_signed_tokens() {
    let mut rig = Rig::with(
        &[],
        &[
            ("hashControlPublishEnabled", "true"),
            ("tokenHashSecret", "pepper"),
            ("playJwtControlEnabled", "true"),
            ("jwtStreamSecretKey", JWT),
        ],
    );
    let hash = |direction| hash_token("s", direction, &Secret::new("pepper"));
    assert_eq!(
        rig.publish_with("s", &[("token", &hash(Direction::Play))]).unwrap_err(),
        denied(Denial::Hash)
    );
    assert!(rig.publish_with("s", &[("token", &hash(Direction::Publish))]).is_ok());
    let (status, body) =
        rig.get(&format!("/live/rest/v2/broadcasts/s/jwt-token?expireDate={EXPIRES}&type=play"));
    assert_eq!(status, 200, "{body}");
    let token: serde_json::Value = serde_json::from_str(&body).unwrap();
    let jwt = token["tokenId"].as_str().unwrap().to_owned();
    assert_eq!(rig.play_with("s", &[]), Err(no(Denial::Jwt)));
    assert_eq!(rig.play_with("s", &[("token", &jwt)]), Ok(()));
    assert_eq!(
        rig.play_with("s", &[("token", &jwt)]),
        Ok(()),
        "a signed token is good as often as one likes"
    );
    rig.set(rig.now.mono + secs(100));
    assert_eq!(rig.play_with("s", &[("token", &jwt)]), Err(no(Denial::Jwt)));
}

#[test]
fn time_codes_of_subscribers_stored_and_not() {
    let settings = [("enableTimeTokenForPlay", "true"), ("timeTokenSecretForPlay", "pepper")];
    let mut rig = Rig::with(&[], &settings);
    rig.publish("s", 0);
    let totp = |rig: &mut Rig, id: &str, kind: &str| {
        let (_, body) = rig.get(&format!("/live/rest/v2/broadcasts/s/subscribers/{id}/totp?type={kind}"));
        serde_json::from_str::<serde_json::Value>(&body).unwrap()["dataId"].as_str().unwrap().to_owned()
    };
    let code = totp(&mut rig, "alice", "play");
    assert_eq!(code, time_code::code(b"pepperalicesplay", 60, START_MS));
    assert_eq!(rig.play_with("s", &[("subscriberId", "alice"), ("subscriberCode", &code)]), Ok(()));
    for wrong in [
        &[][..],
        &[("subscriberId", "alice")],
        &[("subscriberCode", &code)],
        &[("subscriberId", "bobby"), ("subscriberCode", &code)],
    ] {
        assert_eq!(rig.play_with("s", wrong), Err(no(Denial::TimeCode)), "{wrong:?}");
    }
    // The subscriber's own secret and period replace the application's.
    let body = r#"{"subscriberId":"carol","b32Secret":"GEZDGNBVGY3TQOJQ","type":"play","totpExpiryPeriodSeconds":10,"concurrentConnectionsLimit":-1}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/subscribers", body), (200, PLAIN.into()));
    let code = totp(&mut rig, "carol", "publish");
    assert_eq!(code, time_code::code(b"1234567890", 10, START_MS));
    let carol = [("subscriberId", "carol"), ("subscriberCode", code.as_str())];
    assert_eq!(rig.play_with("s", &carol), Ok(()));
    rig.set(rig.now.mono + secs(20));
    assert_eq!(rig.play_with("s", &carol), Err(no(Denial::TimeCode)));
    // A subscriber who may only publish cannot play with its code.
    let body = body.replace("\"play\"", "\"publish\"").replace("carol", "david");
    rig.post("/live/rest/v2/broadcasts/s/subscribers", &body);
    let code = totp(&mut rig, "david", "play");
    assert_eq!(
        rig.play_with("s", &[("subscriberId", "david"), ("subscriberCode", &code)]),
        Err(no(Denial::TimeCode))
    );
}

#[test]
fn codes_of_keys_set_apart_and_of_stored_subscribers_only() {
    let settings = [
        ("enableTimeTokenForPlay", "true"),
        ("timeTokenSecretForPlay", "pepper"),
        ("timeTokenSeparators", "true"),
        ("timeTokenStoredSubscribersOnly", "true"),
    ];
    let mut rig = Rig::with(&[], &settings);
    rig.publish("s", 0);
    let code = time_code::code(&time_code::derived_key("pepper", "alice", "s", "play", "/"), 60, START_MS);
    let alice = [("subscriberId", "alice"), ("subscriberCode", code.as_str())];
    let totp = "/live/rest/v2/broadcasts/s/subscribers/alice/totp?type=play";
    assert_eq!(rig.play_with("s", &alice), Err(no(Denial::TimeCode)));
    assert!(rig.get(totp).1.contains(r#""success":false"#));
    let body = r#"{"subscriberId":"alice","type":"play","concurrentConnectionsLimit":-1}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/subscribers", body), (200, PLAIN.into()));
    assert!(rig.get(totp).1.contains(&code));
    assert_eq!(rig.play_with("s", &alice), Ok(()));
}

#[test]
fn codes_are_not_guessed_for_long_and_nobody_is_kept_out_by_others() {
    let settings = [("enableTimeTokenForPublish", "true"), ("timeTokenSecretForPublish", "pepper")];
    let mut rig = Rig::with(&[], &settings);
    let code = time_code::code(b"pepperalicespublishXXXXX", 60, START_MS);
    let right = [("subscriberId", "alice"), ("subscriberCode", code.as_str())];
    for _ in 0..10 {
        let wrong = [("subscriberId", "alice"), ("subscriberCode", "no code")];
        assert_eq!(rig.publish_with("s", &wrong).unwrap_err(), denied(Denial::TimeCode));
    }
    assert_eq!(rig.publish_with("s", &right).unwrap_err(), denied(Denial::TimeCode));
    let elsewhere =
        PublishRequest { peer: "203.0.113.5:1".parse().unwrap(), ..rig.request_with("s", &right) };
    let stream = rig.ask(elsewhere).unwrap().stream;
    rig.end_stream(stream);
    rig.set(rig.now.mono + secs(60));
    assert!(rig.publish_with("s", &right).is_ok());
}

#[test]
fn viewers_that_are_counted_apart_have_limits_of_their_stream_and_of_their_application() {
    let mut rig = Rig::with(&[], &[("webRTCViewerLimit", "3")]);
    for id in ["s", "t"] {
        rig.post("/live/rest/v2/broadcasts/create", &format!(r#"{{"streamId":"{id}"}}"#));
        rig.publish(id, 0);
    }
    assert_eq!(rig.call(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"webRTCViewerLimit":1}"#).0, 200);
    let play = |rig: &mut Rig, id: &str, egress: &'static str| {
        let request = PlayRequest { egress, ..rig.play_request(id, &[]) };
        (request.session, rig.ask_play(request).expect("a verdict in the same turn"))
    };
    let full = Err(no(Denial::Viewers));
    let (first, verdict) = play(&mut rig, "s", "webrtc");
    assert_eq!(verdict, Ok(()));
    assert_eq!(play(&mut rig, "s", "webrtc").1, full, "of the stream");
    assert_eq!(play(&mut rig, "s", "flv").1, Ok(()), "others have none");
    assert_eq!(play(&mut rig, "t", "webrtc").1, Ok(()));
    assert_eq!(play(&mut rig, "t", "webrtc").1, Ok(()));
    assert_eq!(play(&mut rig, "t", "webrtc").1, full, "of the application");
    rig.mail(ToControl::PlayEnded(first));
    assert_eq!(play(&mut rig, "s", "webrtc").1, Ok(()));
}

#[test]
fn a_subscriber_is_there_as_often_as_its_limit_says() {
    let mut rig = Rig::new();
    rig.publish("s", 0);
    let add = |rig: &mut Rig, body: &str| {
        assert_eq!(rig.post("/live/rest/v2/broadcasts/s/subscribers", body), (200, PLAIN.into()));
    };
    add(&mut rig, r#"{"subscriberId":"alice","concurrentConnectionsLimit":2}"#);
    let alice = [("subscriberId", "alice")];
    let first = rig.play_request("s", &alice);
    let session = first.session;
    assert_eq!(rig.ask_play(first), Some(Ok(())));
    assert_eq!(rig.play_with("s", &alice), Ok(()));
    assert_eq!(rig.play_with("s", &alice), Err(no(Denial::Connections)));
    assert_eq!(rig.play_with("s", &[("subscriberId", "nobody stored")]), Ok(()));
    rig.mail(ToControl::PlayStarted { session, request: None });
    let list = rig.get("/live/rest/v2/broadcasts/s/subscribers/list/0/10").1;
    assert!(list.contains(r#""connected":true,"currentConcurrentConnections":2"#), "{list}");
    rig.mail(ToControl::PlayEnded(session));
    assert_eq!(rig.play_with("s", &alice), Ok(()));
    // The publisher's former connection does not count against the subscriber's limit when the publisher
    // returns.
    add(&mut rig, r#"{"subscriberId":"camera"}"#);
    let camera = [("subscriberId", "camera")];
    let grant = rig.publish_with("c", &camera).unwrap();
    rig.report(0, grant.stream, 1000, 3999, 0);
    assert_eq!(rig.publish_with("c", &camera).unwrap().stream, grant.stream);
}

#[test]
fn a_blocked_subscriber_goes_at_once_and_stays_out_for_its_time() {
    let mut rig = Rig::new();
    let camera = [("subscriberId", "camera")];
    let grant = rig.publish_with("s", &camera).unwrap();
    let alice = [("subscriberId", "alice")];
    let viewer = rig.play_request("s", &alice);
    let session = viewer.session;
    assert_eq!(rig.ask_play(viewer), Some(Ok(())));
    rig.mail(ToControl::PlayStarted { session, request: None });
    let block = |id: &str, kind: &str| format!("/live/rest/v2/broadcasts/s/subscribers/{id}/block/60/{kind}");
    // A subscriber blocked from publishing may continue to watch.
    assert_eq!(rig.put_at(&block("alice", "publish")), (200, PLAIN.into()));
    assert!(!rig.take().iter().any(|(_, mail)| matches!(mail, ToWorker::DropViewer { .. })));
    assert_eq!(rig.put_at(&block("alice", "play")), (200, PLAIN.into()));
    let dropped = |(worker, mail): &(WorkerId, ToWorker)| {
        matches!(mail, ToWorker::DropViewer { conn, .. } if *conn == session.conn)
            && *worker == session.worker
    };
    assert!(rig.take().iter().any(dropped));
    assert_eq!(rig.play_with("s", &alice), Err(no(Denial::Blocked("alice".into()))));
    assert_eq!(rig.put_at(&block("camera", "publish_play")), (200, PLAIN.into()));
    assert_eq!(rig.control.stats().live, 0, "{grant:?}");
    assert_eq!(rig.publish_with("s", &camera).unwrap_err(), denied(Denial::Blocked("camera".into())));
    rig.run_for(secs(60));
    assert!(rig.publish_with("s", &camera).is_ok());
    assert_eq!(rig.put_at(&block("alice", "everything")), (200, FAILED.into()));
    assert_eq!(rig.put_at("/live/rest/v2/broadcasts/s/subscribers/alice/block/soon/play").0, 404);
}

const HOOK: (&str, &str) = ("webhookAuthenticateURL", "http://auth.example/admit");
const PLAY_HOOK: (&str, &str) = ("webhookPlayAuthUrl", "http://auth.example/play");

#[test]
fn a_receiver_is_asked_and_only_200_admits() {
    let mut rig = Rig::with(&[], &[HOOK]);
    let mut outcome = |result: Result<u16, String>| {
        let request = rig.request_with("s", &[("token", "t"), ("x", "y")]);
        let session = request.session;
        rig.mail(ToControl::Publish(request));
        assert!(rig.verdict(session).is_none(), "it waits");
        let asked = rig.asked();
        assert_eq!(
            std::str::from_utf8(&asked[0].body).unwrap(),
            r#"{"appName":"live","name":"s","streamId":"s","mode":"live","token":"t","queryParams":"{token=t, x=y}"}"#
        );
        rig.answer_hook(&asked[0], result);
        let verdict = rig.verdict(session).expect("a verdict");
        if let Ok(grant) = &verdict {
            rig.end_stream(grant.stream);
        }
        verdict.map(|_| ())
    };
    assert_eq!(outcome(Ok(200)), Ok(()));
    for status in [201, 204, 302, 403, 500] {
        assert_eq!(outcome(Ok(status)), Err(denied(Denial::Hook)), "{status}");
    }
    assert_eq!(outcome(Err("refused".into())), Err(denied(Denial::HookSilent)));
}

#[test]
fn a_receiver_that_does_not_answer_within_8_s_denies() {
    let mut rig = Rig::with(&[], &[HOOK]);
    let request = rig.request("s", 0);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    let asked = rig.asked();
    rig.run_for(ms(7999));
    assert!(rig.verdict(session).is_none());
    rig.run_for(ms(1));
    assert_eq!(rig.verdict(session).unwrap().unwrap_err(), denied(Denial::HookSilent));
    // The receiver's late answer is ignored.
    rig.answer_hook(&asked[0], Ok(200));
    assert!(rig.verdict(session).is_none());
    assert_eq!(rig.control.stats().live, 0);
}

#[test]
fn of_two_that_are_asked_about_the_first_yes_gets_the_id() {
    let mut rig = Rig::with(&[], &[HOOK, ("publishTokenControlEnabled", "true")]);
    let tokens = [token_of(&mut rig, "s", "publish"), token_of(&mut rig, "s", "publish")];
    let requests = [0, 1].map(|n| rig.request_with("s", &[("token", &tokens[n])]));
    let sessions = [requests[0].session, requests[1].session];
    for request in requests {
        rig.mail(ToControl::Publish(request));
    }
    let asked = rig.asked();
    assert_eq!(asked.len(), 2);
    rig.answer_hook(&asked[1], Ok(200));
    let grant = rig.verdict(sessions[1]).unwrap().unwrap();
    rig.answer_hook(&asked[0], Ok(200));
    assert_eq!(rig.verdict(sessions[0]).unwrap().unwrap_err(), Refusal::InUse);
    // The token of the request that came too late for the id is not used up.
    rig.end_stream(grant.stream);
    let request = rig.request_with("s", &[("token", &tokens[0])]);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    let asked = rig.asked();
    rig.answer_hook(&asked[0], Ok(200));
    assert!(rig.verdict(session).unwrap().is_ok());
}

#[test]
fn r_46_a_slow_receiver_and_one_loud_address_keep_nobody_waiting() {
    // The receiver takes a second for each question; the loud address sends a hundred requests per second.
    let served = |loud: u32| {
        let mut rig = Rig::with(&[], &[PLAY_HOOK]);
        rig.publish("s", 0);
        let mut running: Vec<(Instant, Posted)> = Vec::new();
        let (mut honest, mut served) = (Vec::new(), 0);
        for step in 0..900u32 {
            for _ in 0..loud {
                let request = rig.play_request("s", &[]);
                rig.ask_play(request);
            }
            if step % 25 == 0 && honest.len() < 28 {
                let peer = format!("203.0.113.{}:1", honest.len() + 1).parse().unwrap();
                let request = PlayRequest { peer, ..rig.play_request("s", &[]) };
                honest.push((rig.now.mono, request.session));
                rig.ask_play(request);
            }
            let begun = rig.now.mono;
            running.extend(rig.asked().into_iter().map(|asked| (begun, asked)));
            rig.run_for(ms(10));
            while running.first().is_some_and(|(at, _)| rig.now.mono >= *at + secs(1)) {
                let (_, asked) = running.remove(0);
                rig.answer_hook(&asked, Ok(200));
            }
            // A viewer answered after more than two seconds counts as lost.
            for (at, session) in &honest {
                if rig.play_verdict(*session) == Some(Ok(())) && rig.now.mono < *at + secs(2) {
                    served += 1;
                }
            }
        }
        served
    };
    let (during, without) = (served(1), served(0));
    println!("one address at 100 questions a second: served in time {during}, without it {without}, of 28");
    assert_eq!((during, without), (28, 28));
}

#[test]
fn r_46_publishers_are_asked_about_first_and_a_full_queue_takes_from_who_has_most() {
    let mut rig = Rig::with(&[], &[PLAY_HOOK, HOOK]);
    let publisher = rig.request_with("s", &[]);
    let first = publisher.session;
    rig.mail(ToControl::Publish(publisher));
    let asked = rig.asked();
    rig.answer_hook(&asked[0], Ok(200));
    assert!(rig.verdict(first).unwrap().is_ok());
    let from = |n: usize| format!("203.0.113.{n}:1").parse().unwrap();
    for n in 0..1000 {
        let request = PlayRequest { peer: from(n % 2), ..rig.play_request("s", &[]) };
        assert_eq!(rig.ask_play(request), None);
    }
    let busy = rig.asked();
    assert_eq!(busy.len(), 16);
    let viewer = PlayRequest { peer: from(7), ..rig.play_request("s", &[]) };
    let publisher = PublishRequest { peer: from(8), ..rig.request_with("other", &[]) };
    assert_eq!(rig.ask_play(viewer), None, "another gives way");
    rig.mail(ToControl::Publish(publisher));
    assert_eq!(rig.control.stats().asks_waiting, 1000);
    rig.answer_hook(&busy[0], Ok(200));
    let next = rig.asked();
    assert!(String::from_utf8_lossy(&next[0].body).contains("\"other\""), "the publisher");
    rig.answer_hook(&busy[1], Ok(200));
    let next = rig.asked();
    assert!(String::from_utf8_lossy(&next[0].body).contains("203.0.113.7"), "then the quiet address");
}

#[test]
fn r_47_the_name_of_an_unknown_subscriber_is_bounded() {
    let mut rig = Rig::new();
    rig.publish("s", 0);
    let name = |bytes: usize| "x".repeat(bytes);
    assert_eq!(rig.play_with("s", &[("subscriberId", &name(256))]), Ok(()));
    assert_eq!(rig.play_with("s", &[("subscriberId", &name(257))]), Err(no(Denial::LongName)));
    assert_eq!(rig.publish_with("p", &[("subscriberId", &name(257))]).unwrap_err(), denied(Denial::LongName));
}

#[test]
fn one_token_shown_twice_while_a_receiver_thinks_is_good_once() {
    let mut rig = Rig::with(&[], &[PLAY_HOOK, ("playTokenControlEnabled", "true")]);
    rig.publish("s", 0);
    let token = token_of(&mut rig, "s", "play");
    let requests = [0, 1].map(|_| rig.play_request("s", &[("token", &token)]));
    let sessions = [requests[0].session, requests[1].session];
    for request in requests {
        assert_eq!(rig.ask_play(request), None);
    }
    for asked in rig.asked() {
        rig.answer_hook(&asked, Ok(200));
    }
    assert_eq!(rig.play_verdict(sessions[0]), Some(Ok(())));
    assert_eq!(rig.play_verdict(sessions[1]), Some(Err(no(Denial::Token))));
}

#[test]
fn a_refused_hook_burns_no_token_and_a_bad_token_asks_nobody() {
    let mut rig = Rig::with(&[], &[HOOK, ("publishTokenControlEnabled", "true")]);
    let token = token_of(&mut rig, "s", "publish");
    assert_eq!(rig.publish_with("s", &[("token", "wrong")]).unwrap_err(), denied(Denial::Token));
    assert!(rig.asked().is_empty());
    for (answer, admitted) in [(403, false), (200, true)] {
        let request = rig.request_with("s", &[("token", &token)]);
        let session = request.session;
        rig.mail(ToControl::Publish(request));
        let asked = rig.asked();
        rig.answer_hook(&asked[0], Ok(answer));
        assert_eq!(rig.verdict(session).unwrap().is_ok(), admitted);
    }
}

#[test]
fn who_leaves_while_a_receiver_thinks_leaves_nothing() {
    let mut rig = Rig::with(&[], &[HOOK, PLAY_HOOK, ("publishTokenControlEnabled", "true")]);
    let token = token_of(&mut rig, "s", "publish");
    let request = rig.request_with("s", &[("token", &token)]);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    let asked = rig.asked();
    rig.mail(ToControl::PublishAbandoned(session));
    rig.answer_hook(&asked[0], Ok(200));
    assert!(rig.verdict(session).is_none());
    assert_eq!((rig.control.stats().live, rig.control.stats().asks_waiting), (0, 0));
    // The publisher left before it was admitted, so its token is not used up.
    let request = rig.request_with("s", &[("token", &token)]);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    let asked = rig.asked();
    rig.answer_hook(&asked[0], Ok(200));
    assert!(rig.verdict(session).unwrap().is_ok());
    // The answer about a viewer that has left is ignored, too.
    let viewer = rig.play_request("s", &[]);
    let session = viewer.session;
    assert_eq!(rig.ask_play(viewer), None);
    let asked = rig.asked();
    rig.mail(ToControl::PlayEnded(session));
    rig.answer_hook(&asked[0], Ok(200));
    assert_eq!(rig.play_verdict(session), None);
}

#[test]
fn what_changed_while_a_receiver_thought_counts() {
    let mut rig = Rig::with(&[], &[HOOK]);
    let request = rig.request_with("s", &[("subscriberId", "camera")]);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    let asked = rig.asked();
    rig.put_at("/live/rest/v2/broadcasts/s/subscribers/camera/block/60/publish");
    rig.answer_hook(&asked[0], Ok(200));
    assert_eq!(rig.verdict(session).unwrap().unwrap_err(), denied(Denial::Blocked("camera".into())));
    // The shutdown of the server also ends the wait.
    let request = rig.request("t", 0);
    let session = request.session;
    rig.mail(ToControl::Publish(request));
    rig.control.drain(rig.now);
    rig.drain();
    assert_eq!(rig.verdict(session).unwrap().unwrap_err(), Refusal::Draining);
}

#[test]
fn viewers_are_asked_about_with_what_they_show() {
    let mut rig = Rig::with(&[], &[PLAY_HOOK]);
    rig.publish("s", 0);
    let viewer = rig.play_request("s", &[("token", "t")]);
    let session = viewer.session;
    assert_eq!(rig.ask_play(viewer), None);
    let asked = rig.asked();
    assert_eq!(
        std::str::from_utf8(&asked[0].body).unwrap(),
        r#"{"streamId":"s","mode":"play","appName":"live","origin":"http://page.example","token":"t","subscriberId":null,"subscriberCode":null,"metaData":null,"ipAddress":"198.51.100.9"}"#
    );
    rig.answer_hook(&asked[0], Ok(403));
    assert_eq!(rig.play_verdict(session), Some(Err(no(Denial::Hook))));
    // The receiver is not asked about a stream that does not exist.
    assert_eq!(rig.play_with("nothing", &[]), Err(NoSubscription::NotFound));
    assert!(rig.asked().is_empty());
}

#[test]
fn a_receiver_that_hangs_does_not_keep_others_from_being_asked() {
    let mut rig = Rig::with(&[], &[HOOK]);
    for n in 0..30 {
        let peer = format!("203.0.113.{n}:1").parse().unwrap();
        let request = PublishRequest { peer, ..rig.request(&format!("s{n}"), 0) };
        rig.mail(ToControl::Publish(request));
    }
    // At most half of the threads wait for this receiver.
    let asked = rig.asked();
    assert_eq!(asked.len(), 16);
    rig.answer_hook(&asked[0], Ok(200));
    assert_eq!(rig.asked().len(), 1);
    rig.run_for(secs(8));
    assert_eq!(rig.control.stats().asks_waiting, 0);
    // The admissions have timed out, but a thread counts as busy until the receiver answers.
    let request = rig.request("late", 0);
    rig.mail(ToControl::Publish(request));
    assert!(rig.asked().is_empty());
    rig.answer_hook(&asked[1], Err("timed out".into()));
    assert_eq!(rig.asked().len(), 1);
}

#[test]
fn the_token_rows_of_the_api() {
    let mut rig = Rig::with(&[], &[("jwtStreamSecretKey", "short")]);
    let at = |tail: &str| format!("/live/rest/v2/broadcasts/{tail}");
    let incomplete = failure("Define Stream ID, Token Type and Expire Date (unix time)");
    for query in ["", "?type=play", "?expireDate=1700000100", "?type=play&expireDate=0"] {
        assert_eq!(rig.get(&at(&format!("s/token{query}"))), (400, incomplete.clone()), "{query}");
        assert_eq!(rig.get(&at(&format!("s/jwt-token{query}"))).0, 400);
    }
    assert_eq!(
        rig.get(&at("s/token?type=watch&expireDate=1700000100")),
        (400, failure("Invalid token type. Supported types are 'play' and 'publish'"))
    );
    assert_eq!(rig.get(&at("s/token?type=play&expireDate=soon")).0, 404);
    assert_eq!(rig.get(&at("../token?type=play&expireDate=1700000100")).0, 400);
    let (status, body) = rig.get(&at("s/jwt-token?type=play&expireDate=1700000100"));
    assert!(
        status == 400 && body.contains("Cannot create JWT token. The problem can be ->  this is"),
        "{body}"
    );
    let (status, body) = rig.get(&at("s/token?type=play&expireDate=1700000100&roomId=r"));
    assert!(
        status == 200
            && body.ends_with(r#""streamId":"s","expireDate":1700000100,"type":"play","roomId":"r"}"#),
        "{body}"
    );
    let room: serde_json::Value = serde_json::from_str(&body).unwrap();
    let room = room["tokenId"].as_str().unwrap().to_owned();
    let token = token_of(&mut rig, "s", "publish");
    let validate = |rig: &mut Rig, token: &str, stream: &str, kind: &str, room: &str| {
        let body = format!(r#"{{"tokenId":"{token}","streamId":"{stream}","type":"{kind}"{room}}}"#);
        rig.post("/live/rest/v2/broadcasts/validate-token", &body).1
    };
    assert_eq!(validate(&mut rig, &token, "other", "publish", ""), FAILED);
    assert_eq!(validate(&mut rig, &token, "s", "play", ""), FAILED);
    assert_eq!(validate(&mut rig, &token, "s", "publish", ""), PLAIN);
    assert_eq!(validate(&mut rig, &token, "s", "publish", ""), FAILED, "used up");
    // For a room token the stream does not matter, and the token is not used up.
    let of_room = r#","roomId":"r""#;
    assert_eq!(validate(&mut rig, &room, "any", "play", of_room), PLAIN);
    assert_eq!(validate(&mut rig, &room, "any", "play", of_room), PLAIN);
    assert_eq!(validate(&mut rig, &room, "any", "play", r#","roomId":"q""#), FAILED);
    assert_eq!(validate(&mut rig, &room, "any", "play", ""), FAILED);
    assert_eq!(rig.get(&at("s/tokens/list/0/10")).1.matches("tokenId").count(), 1);
    assert_eq!(rig.get(&at("s/tokens/list/0/x")).0, 404);
    assert_eq!(rig.call(Method::Delete, &at("s/tokens"), ""), (200, PLAIN.into()));
    assert_eq!(rig.call(Method::Delete, &at("s/tokens"), ""), (200, FAILED.into()));
}

#[test]
fn the_subscriber_rows_of_the_api() {
    let mut rig = Rig::with(&[], &[("writeSubscriberEventsToDatastore", "true")]);
    let at = "/live/rest/v2/broadcasts/s/subscribers";
    let (_, missing) = rig.post(at, r#"{"subscriberId":"abc"}"#);
    assert!(missing.contains("make subscriberId's length at least 3"), "{missing}");
    assert!(rig.post(at, "").1.contains("Missing parameter"));
    let (_, secret) = rig.post(at, r#"{"subscriberId":"abcd","b32Secret":"GEZDGNB"}"#);
    assert!(secret.contains("Secret code is not multiple of 8 bytes length"), "{secret}");
    for period in ["9", "-1", "2147483648"] {
        let body = format!(r#"{{"subscriberId":"abcd","totpExpiryPeriodSeconds":{period}}}"#);
        assert!(rig.post(at, &body).1.contains("Custom TOTP expiry period"), "{period}");
    }
    let body = r#"{"subscriberId":"a@b.c","subscriberName":"A","b32Secret":"GEZDGNBV","type":"watch","connected":true}"#;
    assert_eq!(rig.post(at, body), (200, PLAIN.into()));
    assert_eq!(
        rig.get(&format!("{at}/list/0/10")).1,
        concat!(
            r#"[{"subscriberId":"a@b.c","subscriberName":"A","streamId":"s","type":null,"connected":false,"#,
            r#""currentConcurrentConnections":0,"concurrentConnectionsLimit":1,"blockedType":null,"#,
            r#""blockedUntilUnitTimeStampMs":0,"registeredNodeIp":null,"avgVideoBitrate":0,"avgAudioBitrate":0,"#,
            r#""totpExpiryPeriodSeconds":60}]"#
        )
    );
    let (_, unset) = rig.get(&format!("{at}/nobody/totp?type=play"));
    assert!(unset.contains("Secret is not set in AppSettings."), "{unset}");
    // The connection events of a subscriber that came and left.
    rig.publish("s", 0);
    let viewer = rig.play_request("s", &[("subscriberId", "a@b.c")]);
    let session = viewer.session;
    assert_eq!(rig.ask_play(viewer), Some(Ok(())));
    rig.mail(ToControl::PlayStarted { session, request: None });
    rig.mail(ToControl::PlayEnded(session));
    let events = "/live/rest/v2/broadcasts/s/connection-events/0/10?subscriberId=a@b.c";
    let (_, events) = rig.get(events);
    let one = |kind: &str| {
        format!(
            r#"{{"timestamp":{START_MS},"eventType":"{kind}","instanceIP":"192.0.2.1","type":"play","eventProtocol":"flv","streamId":"s","subscriberId":"a@b.c"}}"#
        )
    };
    let times = |text: &str| text.matches("timestamp").count();
    assert_eq!(times(&events), 2, "{events}");
    let at_start = |event: &str| event.split_once(',').unwrap().1.to_owned();
    assert!(
        events.contains(&at_start(&one("connected"))) && events.contains(&at_start(&one("disconnected")))
    );
    assert_eq!(rig.get("/live/rest/v2/broadcasts/other/connection-events/0/10").1, "[]");
    assert_eq!(rig.call(Method::Delete, &format!("{at}/a@b.c"), ""), (200, PLAIN.into()));
    assert_eq!(rig.call(Method::Delete, &format!("{at}/a@b.c"), ""), (200, FAILED.into()));
    assert_eq!(rig.call(Method::Delete, at, ""), (200, FAILED.into()));
}

#[test]
fn r_01_the_api_of_an_application_needs_its_token_and_its_address() {
    let mut rig = Rig::with(&[], &[("jwtControlEnabled", "true"), ("jwtSecretKey", JWT)]);
    let sign = |claims: &str| crate::auth::jwt::sign(&serde_json::from_str(claims).unwrap(), JWT.as_bytes());
    let ask = |rig: &mut Rig, peer: &str, values: &[&str]| {
        let mut request = request(Method::Get, "/live/rest/v2/version", "");
        values.iter().for_each(|value| request.headers.push("Authorization", *value));
        let session = rig.send_request(peer, request);
        rig.answer(session).unwrap()
    };
    let token = sign("{}");
    for good in [token.clone(), format!("Bearer {token}"), format!("bearer {token}"), sign(r#"{"any":1}"#)] {
        assert_eq!(ask(&mut rig, "127.0.0.1:1", &[&good]).0, 200, "{good}");
    }
    let expired = sign(&format!(r#"{{"exp":{}}}"#, START_MS / 1000));
    let other = crate::auth::jwt::sign(&Default::default(), b"another secret of 32 characters!");
    let cut = &token[..token.len() - 1];
    for bad in [&[][..], &[""], &["Bearer "], &[&expired], &[&other], &[cut], &[&token, &token], &["Basic x"]]
    {
        let (status, body) = ask(&mut rig, "127.0.0.1:1", bad);
        assert!(status == 403 && body.contains("Invalid App JWT Token"), "{bad:?} {status}");
    }
    // A valid token does not replace the address filter.
    let (status, body) = ask(&mut rig, "127.0.0.2:1", &[&token]);
    assert!(status == 403 && body.contains("Not allowed IP"), "{body}");
}

#[test]
fn u_30_hooks_of_a_record_go_where_something_can_answer() {
    let mut rig = Rig::new();
    for url in ["file:///etc/passwd", "gopher://h/", "http://169.254.169.254/", "http://127.0.0.1:5080/", "x"]
    {
        let body = format!(r#"{{"streamId":"s","listenerHookURL":"{url}"}}"#);
        let (status, text) = rig.post("/live/rest/v2/broadcasts/create", &body);
        assert!(status == 400 && text.contains("Hook url is not valid."), "{url} {text}");
    }
    rig.create("s");
    let update = |rig: &mut Rig, url: &str| {
        let body = format!(r#"{{"listenerHookURL":"{url}"}}"#);
        rig.call(Method::Put, "/live/rest/v2/broadcasts/s", &body).1
    };
    assert!(update(&mut rig, "data:text").contains("Hook url is not valid."));
    assert_eq!(update(&mut rig, "https://hook.example/x"), PLAIN);
}
