//! Restreaming endpoints and their supervisor.

use super::*;
use crate::mail::Transport;
use crate::protocol::outbound::request_text;

const ENDPOINT: &str = "/live/rest/v2/broadcasts/s/endpoint";

fn body(url: &str) -> String {
    format!(r#"{{"endpointUrl":"{url}"}}"#)
}

impl Rig {
    /// Adds an endpoint to `s` and returns its id.
    fn add(&mut self, url: &str) -> String {
        let (status, text) = self.post(ENDPOINT, &body(url));
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(status == 200 && answer["success"] == true && answer["message"].is_null(), "{text}");
        answer["dataId"].as_str().unwrap().to_owned()
    }

    fn status(&mut self) -> String {
        self.record("s")["endPointList"][0]["status"].as_str().unwrap().to_owned()
    }

    fn remove(&mut self, id: &str) -> (u16, String) {
        self.call(Method::Delete, &format!("{ENDPOINT}?endpointServiceId={id}"), "")
    }

    fn news(&mut self, push: PushId, attempt: u64, state: PushState) {
        self.mail(ToControl::Push { push, attempt, state });
    }

    fn resolve(&mut self, id: JobId, addresses: &[&str]) {
        let result = Ok(addresses.iter().map(|a| a.parse().unwrap()).collect());
        self.done(id, Outcome::Resolved(result));
    }

    fn one_order(&mut self) -> (WorkerId, PushOrder) {
        let mut orders = self.orders();
        assert_eq!(orders.len(), 1);
        orders.remove(0)
    }
}

#[test]
fn endpoints_are_stored_and_removed() {
    let mut rig = Rig::new();
    assert_eq!(rig.post(ENDPOINT, &body("rtmp://h/a/b")), (200, failure("Stream does not exist with Id: s")));
    rig.create("s");
    assert_eq!(rig.post(ENDPOINT, ""), (200, failure("Missing Endpoint url")));
    let id = rig.add("rtmp://h/a/b");
    assert!(id.starts_with("custom") && id.len() == 12);
    let text = "Endpoint is not added to datastore for stream s. It is already added ->rtmp://h/a/b";
    assert_eq!(rig.post(ENDPOINT, &body("rtmp://h/a/b")), (200, failure(text)));
    let expected = format!(
        r#""endPointList":[{{"status":"created","type":"generic","endpointUrl":"rtmp://h/a/b","endpointServiceId":"{id}","rtmpUrl":"rtmp://h/a/b"}}]"#
    );
    assert!(rig.get("/live/rest/v2/broadcasts/s").1.contains(&expected));
    assert_eq!(rig.remove("nope"), (200, FAILED.into()));
    assert_eq!(rig.remove(&id), (200, PLAIN.into()));
    assert!(rig.get("/live/rest/v2/broadcasts/s").1.contains(r#""endPointList":[]"#));
    let old = rig.post("/live/rest/v2/broadcasts/s/rtmp-endpoint", r#"{"rtmpUrl":"rtmp://h/a/b"}"#);
    assert!(old.1.starts_with(r#"{"success":true,"message":null,"dataId":"custom"#));
}

#[test]
fn r_15_the_number_of_endpoints_is_bounded() {
    let mut rig = Rig::new();
    rig.create("s");
    // All endpoints are requested before the first is on disk: endpoints that are not yet stored
    // count towards the limit.
    rig.hold = true;
    let asked: Vec<_> =
        (0..100).map(|n| rig.send(Method::Post, ENDPOINT, &body(&format!("rtmp://h/a/b{n}")))).collect();
    rig.run_for(ms(5));
    rig.release();
    rig.run_for(ms(50));
    let answers: Vec<_> = asked.into_iter().map(|s| rig.answer(s).unwrap().1).collect();
    assert_eq!(answers.iter().filter(|a| a.contains(r#""success":true"#)).count(), 16);
    assert_eq!(answers[99], failure("Endpoint is not added to stream: s"));
    assert_eq!(rig.record("s")["endPointList"].as_array().unwrap().len(), 16);
}

#[test]
fn u_30_u_31_urls_that_are_refused() {
    let mut rig = Rig::new();
    rig.create("s");
    for url in [
        "file:///etc/passwd",
        "RTMP://h/a/b",
        " rtmp://h/a/b",
        "http://h/a",
        "rtmp://169.254.169.254/a/b",
        "rtmp://[fe80::1]/a/b",
        "rtmp://0.0.0.0/a/b",
        "rtmp://224.0.0.1/a/b",
        "rtmp://127.0.0.1:5080/a/b",
        "rtmp://[::ffff:7f00:1]:5443/a/b",
        "rtmp://u:p@h/a/b",
    ] {
        let (status, text) = rig.post(ENDPOINT, &body(url));
        let refused = r#"{"success":false,"message":"Endpoint is not added to stream: s","dataId":"custom"#;
        assert!(status == 200 && text.starts_with(refused), "{url} {text}");
    }
    assert!(rig.record("s")["endPointList"].is_null());
}

#[test]
fn u_34_a_push_into_itself_is_refused_and_one_to_another_application_is_not() {
    let mut rig = Rig::new();
    rig.create("s");
    for host in ["127.0.0.1", "localhost", "192.0.2.1", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1:1935"] {
        let (_, text) = rig.post(ENDPOINT, &body(&format!("rtmp://{host}/live/s?x=1")));
        assert!(text.contains(r#""success":false"#), "{host}");
    }
    rig.add("rtmp://127.0.0.1/LiveApp/s");
    rig.add("rtmp://127.0.0.1/live/t");
    rig.add("rtmp://127.0.0.1:1936/live/s");
}

#[test]
fn tracks_that_a_target_cannot_be_sent_are_in_its_endpoint_and_once_in_the_log() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.add("srt://198.51.100.1:4200?streamid=secret-key");
    rig.publish("s", 0);
    let (_, order) = rig.one_order();
    let endpoint = |rig: &mut Rig| rig.record("s")["endPointList"][0].clone();
    let log = logged(|| {
        rig.news(order.push, 1, PushState::Preparing);
        rig.news(order.push, 1, PushState::Broadcasting);
        assert!(endpoint(&mut rig).get("leftOut").is_none());
        rig.news(order.push, 1, PushState::LeavesOut(vec![media::Codec::Vp9]));
        assert_eq!(endpoint(&mut rig)["leftOut"], serde_json::json!(["VP9"]));
        assert_eq!(endpoint(&mut rig)["status"], "broadcasting");
        // The next attempt leaves out the same tracks, and does not log them again.
        rig.news(order.push, 1, PushState::Error("gone".into()));
        rig.run_for(secs(30));
        let attempt = rig.orders().pop().unwrap().1.attempt;
        rig.news(order.push, attempt, PushState::Preparing);
        assert!(endpoint(&mut rig).get("leftOut").is_none());
        rig.news(order.push, attempt, PushState::LeavesOut(vec![media::Codec::Vp9]));
        rig.news(order.push, attempt, PushState::LeavesOut(Vec::new()));
        assert!(endpoint(&mut rig).get("leftOut").is_none(), "the track is gone");
    });
    assert_eq!(log.matches("push leaves out tracks").count(), 1, "{log}");
    assert!(log.contains("codecs=\"VP9\"") && !log.contains("secret-key"), "{log}");
}

#[test]
fn a_push_starts_with_the_stream_on_the_worker_of_its_source() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.add("rtmp://198.51.100.1/app/key?t=1");
    let mut request = rig.request("s", 1);
    request.via = vec!["far/live/s".into()];
    rig.ask(request).unwrap();
    let (worker, order) = rig.one_order();
    assert_eq!(
        (worker, order.attempt, order.address),
        (WorkerId(1), 1, "198.51.100.1:1935".parse().unwrap())
    );
    let asked = request_text(&order.target);
    let parts = r#"app: "app", tc_url: "rtmp://198.51.100.1/app", name: "key?t=1""#;
    assert!(asked.contains(parts), "{asked}");
    assert_eq!(order.via, ["far/live/s", "node1/live/s"]);
    rig.news(order.push, 1, PushState::Preparing);
    assert_eq!(rig.status(), "preparing");
    rig.news(order.push, 1, PushState::Broadcasting);
    assert_eq!(rig.status(), "broadcasting");
    assert_eq!(rig.control.stats().pushes_broadcasting, 1);
    rig.post("/live/rest/v2/broadcasts/s/stop", "");
    assert_eq!(rig.status(), "finished");
    assert_eq!(rig.control.stats().pushes, 0);
}

#[test]
fn u_01_failures_are_retried_for_ever_with_growing_pauses() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.add("rtmp://198.51.100.1/app/key");
    let mut pauses = Vec::new();
    let (_, mut order) = rig.one_order();
    for _ in 0..40 {
        rig.news(order.push, order.attempt, PushState::Failed("refused".into()));
        assert_eq!(rig.status(), "failed");
        let began = rig.now.mono;
        rig.take();
        while !rig.posted.iter().any(|(_, mail)| matches!(mail, ToWorker::StartPush(_))) {
            let next = rig.control.poll_timeout().expect("a next attempt");
            rig.run_for(next - rig.now.mono);
        }
        let (_, next) = rig.one_order();
        assert_eq!(next.attempt, order.attempt + 1);
        order = next;
        pauses.push((rig.now.mono - began).as_millis());
    }
    let full = [1000, 1000, 2000, 2000, 4000, 4000, 4000, 4000, 8000, 16_000];
    for (at, pause) in pauses.iter().enumerate() {
        let full = full.get(at).copied().unwrap_or(25_000);
        assert!((full * 8 / 10..=full).contains(pause), "pause {at}: {pause}");
    }
    // After eleven seconds of broadcasting, the pauses start over.
    rig.news(order.push, order.attempt, PushState::Broadcasting);
    rig.run_for(secs(11));
    rig.news(order.push, order.attempt, PushState::Error("reset".into()));
    assert_eq!(rig.status(), "error");
    rig.run_for(secs(1));
    assert_eq!(rig.one_order().1.attempt, order.attempt + 1);
}

#[test]
fn u_01_only_an_explicit_limit_ends_the_attempts() {
    let mut rig = Rig::with(&[], &[("endpointRepublishLimit", "2")]);
    rig.create("s");
    let (session, stream) = rig.publish("s", 0);
    rig.take();
    rig.add("rtmp://198.51.100.1/app/key");
    let mut attempts = 0;
    for _ in 0..10 {
        let Some((_, order)) = rig.orders().pop() else { break };
        attempts += 1;
        rig.news(order.push, order.attempt, PushState::Failed("refused".into()));
        rig.run_for(secs(30));
    }
    assert_eq!((attempts, rig.status().as_str()), (3, "failed"));
    rig.gone(session, stream, Departure::Clean, 0);
    rig.publish("s", 0);
    assert_eq!(rig.orders().len(), 1, "tried again at the next publish");
}

#[test]
fn u_01_another_limit_counts_for_endpoints_that_were_given_up_and_for_those_that_wait() {
    let mut rig = Rig::with(&[], &[("endpointRepublishLimit", "1")]);
    let limit = |rig: &mut Rig, limit: &str| {
        let settings = AppSettings::of(schema(), "live", &[("endpointRepublishLimit", limit)]).unwrap();
        rig.control.install_app(rig.now, settings);
        rig.drain();
    };
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.add("rtmp://198.51.100.1/app/key");
    // Counts the consecutive failed attempts, until no further attempt follows.
    let attempts = |rig: &mut Rig| {
        let mut count = 0;
        while let Some((_, order)) = rig.orders().pop().filter(|_| count < 9) {
            count += 1;
            rig.news(order.push, order.attempt, PushState::Failed("refused".into()));
            rig.run_for(secs(30));
        }
        count
    };
    assert_eq!(attempts(&mut rig), 2);
    limit(&mut rig, "1");
    rig.run_for(secs(30));
    assert_eq!(attempts(&mut rig), 0, "nothing has changed");
    limit(&mut rig, "4");
    rig.run_for(secs(2));
    assert_eq!(attempts(&mut rig), 3);
    limit(&mut rig, "-1");
    rig.run_for(secs(2));
    let (_, order) = rig.one_order();
    rig.news(order.push, order.attempt, PushState::Failed("refused".into()));
    // While the push waits for its next attempt, a limit below its number of failures is set.
    limit(&mut rig, "3");
    rig.run_for(secs(60));
    assert_eq!((attempts(&mut rig), rig.status().as_str()), (0, "failed"));
    // A working push is left alone, however often it failed before.
    limit(&mut rig, "-1");
    rig.run_for(secs(2));
    let (_, order) = rig.one_order();
    rig.news(order.push, order.attempt, PushState::Broadcasting);
    limit(&mut rig, "0");
    rig.run_for(secs(5));
    assert_eq!((rig.orders().len(), rig.status().as_str()), (0, "broadcasting"));
    // If a working push starts again without a failure, it is not given up for its earlier
    // failures.
    rig.news(order.push, order.attempt, PushState::Again("sound has begun".into()));
    limit(&mut rig, "0");
    rig.run_for(secs(2));
    assert_eq!(rig.orders().len(), 1);
}

#[test]
fn u_01_a_push_that_begins_anew_for_further_tracks_has_not_failed() {
    let mut rig = Rig::with(&[], &[("endpointRepublishLimit", "0")]);
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.add("rtsp://198.51.100.1/app/key");
    for attempt in 1..=5 {
        let (_, order) = rig.one_order();
        assert_eq!(order.attempt, attempt);
        rig.news(order.push, attempt, PushState::Broadcasting);
        rig.news(order.push, attempt, PushState::Again("sound has begun".into()));
        assert_eq!((rig.status().as_str(), rig.orders().len()), ("broadcasting", 0));
        rig.run_for(secs(1));
    }
    assert_eq!(rig.one_order().1.attempt, 6);
}

#[test]
fn each_attempt_resolves_anew_and_checks_the_address() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.add("rtmp://target.example/app/key");
    let ask = rig.resolves.pop().unwrap();
    assert_eq!((ask.host.as_str(), ask.port), ("target.example", 1935));
    rig.resolve(ask.id, &["169.254.169.254:1935", "169.254.1.1:1935"]);
    assert!(rig.orders().is_empty());
    assert_eq!(rig.status(), "failed");
    rig.run_for(secs(1));
    let ask = rig.resolves.pop().unwrap();
    rig.resolve(ask.id, &["169.254.169.254:1935", "198.51.100.9:1935"]);
    assert!(rig.orders().is_empty(), "the attempt had what was known; the next one has the answer");
    rig.run_for(secs(1));
    assert_eq!(rig.one_order().1.address, "198.51.100.9:1935".parse().unwrap());
}

#[test]
fn u_05_a_silent_resolver_is_a_failure_and_is_not_asked_again_before_it_answers() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.add("rtmp://target.example/app/key");
    let first = rig.resolves.pop().unwrap();
    rig.run_for(secs(120));
    assert_eq!(rig.status(), "failed");
    assert!(rig.resolves.is_empty(), "one request in the queue of the resolvers");
    rig.done(first.id, Outcome::Resolved(Err("NXDOMAIN".into())));
    assert_eq!(rig.status(), "failed");
    rig.run_for(secs(19));
    assert!(rig.resolves.is_empty(), "the pause is that after as many failures");
    rig.run_for(secs(21));
    let second = rig.resolves.pop().unwrap();
    rig.take();
    rig.resolve(first.id, &["198.51.100.9:1935"]);
    assert!(rig.orders().is_empty(), "an answer to an older attempt");
    rig.run_for(secs(15));
    rig.resolve(second.id, &["198.51.100.9:1935"]);
    assert_eq!(rig.one_order().1.address, "198.51.100.9:1935".parse().unwrap(), "a late answer counts");
}

#[test]
fn u_04_removed_at_any_moment_nothing_is_left() {
    // The endpoint is removed while its host name is being resolved.
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    let id = rig.add("rtmp://target.example/app/key");
    let ask = rig.resolves.pop().unwrap();
    rig.remove(&id);
    rig.take();
    rig.resolve(ask.id, &["198.51.100.9:1935"]);
    assert!(rig.take().is_empty() && rig.control.stats().pushes == 0);
    // The endpoint is removed while the push is connecting: the push is stopped immediately, and its late news is
    // ignored.
    let id = rig.add("rtmp://198.51.100.1/app/key");
    let (_, order) = rig.one_order();
    rig.remove(&id);
    assert_eq!(kinds(&rig.take()), ["0: stop push"]);
    rig.news(order.push, 1, PushState::Broadcasting);
    rig.news(order.push, 1, PushState::Failed("x".into()));
    // The endpoint is removed while the push waits for its next attempt.
    let id = rig.add("rtmp://198.51.100.1/app/key");
    let (_, order) = rig.one_order();
    rig.news(order.push, 1, PushState::Failed("x".into()));
    rig.remove(&id);
    rig.take();
    rig.run_for(secs(60));
    assert!(rig.orders().is_empty());
    assert_eq!(rig.control.stats().pushes, 0);
}

#[test]
fn news_of_an_older_attempt_is_dropped() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.add("rtmp://198.51.100.1/app/key");
    let (_, first) = rig.one_order();
    rig.news(first.push, 1, PushState::Failed("x".into()));
    rig.run_for(secs(1));
    let (_, second) = rig.one_order();
    assert_eq!((second.push, second.attempt), (first.push, 2));
    rig.news(second.push, 2, PushState::Broadcasting);
    rig.news(first.push, 1, PushState::Error("late".into()));
    assert_eq!(rig.status(), "broadcasting");
}

#[test]
fn a_push_over_srt_asks_for_what_the_url_says() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.add(
        "srt://198.51.100.1?streamid=%23!::r=a/b,m=publish&passphrase=0123456789&latency=200&pbkeylen=32",
    );
    let (_, order) = rig.one_order();
    assert_eq!(order.address, "198.51.100.1:4200".parse().unwrap());
    let asked = request_text(&order.target);
    assert!(asked.contains(r##"stream_id: "#!::r=a/b,m=publish""##), "{asked}");
    assert!(asked.contains("passphrase: Some(") && !asked.contains("0123456789"), "{asked}");
    assert!(asked.contains("key_bytes: Some(32), latency: Some(200ms)"), "{asked}");
    assert!(asked.contains("packet_filter: None, listens: false"), "{asked}");
    assert_eq!((order.target.transport, order.via), (Transport::Udp, vec!["node1/live/s".to_owned()]));
    assert!(!rig.record("s").to_string().contains("0.0.0.0"));
}

#[test]
fn u_34_a_push_into_itself_is_seen_over_srt_too() {
    let mut rig = Rig::new();
    rig.create("s");
    for id in ["live/s", "live/s,token=x", "%23!::r=live/s,m=publish"] {
        let (_, text) = rig.post(ENDPOINT, &body(&format!("srt://127.0.0.1:4200?streamid={id}")));
        assert!(text.contains(r#""success":false"#), "{id}");
    }
    rig.add("srt://127.0.0.1?streamid=LiveApp/s");
    rig.add("srt://127.0.0.1:4201?streamid=live/s");
}

#[test]
fn u_31_a_push_waits_for_its_peer_at_addresses_of_this_machine_only() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.add("srt://:9000?mode=listener");
    let (_, order) = rig.one_order();
    assert_eq!(order.address, "0.0.0.0:9000".parse().unwrap());
    rig.add("srt://198.51.100.1:9000?mode=listener");
    assert!(rig.orders().is_empty());
}

#[test]
fn endpoints_in_a_body_replace_the_list() {
    let mut rig = Rig::new();
    let list = r#"{"streamId":"s","endPointList":[{"endpointUrl":"rtmp://198.51.100.1/a/b"},{"rtmpUrl":"rtmp://198.51.100.2/a/b"}]}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/create", list).0, 200);
    rig.publish("s", 0);
    assert_eq!(rig.orders().len(), 2);
    let put = |rig: &mut Rig, body: &str| rig.call(Method::Put, "/live/rest/v2/broadcasts/s", body).1;
    assert_eq!(put(&mut rig, r#"{"endPointList":[]}"#), PLAIN);
    assert_eq!(kinds(&rig.take()), ["0: stop push", "0: stop push"]);
    assert!(put(&mut rig, r#"{"endPointList":[{"endpointUrl":"file:///x"}]}"#).contains("false"));
}

/// Clients that know URLs alone send the same list again with each update.
#[test]
fn an_update_that_lists_the_same_urls_leaves_pushes_and_ids_as_they_are() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    let id = rig.add("rtmp://198.51.100.1/a/b");
    let (_, order) = rig.one_order();
    rig.news(order.push, order.attempt, PushState::Broadcasting);
    let list = r#"{"name":"n","endPointList":[{"endpointUrl":"rtmp://198.51.100.1/a/b"},{"rtmpUrl":"rtmp://198.51.100.2/a/b"}]}"#;
    assert_eq!(rig.call(Method::Put, "/live/rest/v2/broadcasts/s", list).1, PLAIN);
    let kinds = kinds(&rig.take());
    assert!(!kinds.iter().any(|kind| kind == "0: stop push"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| kind.contains("push")).count(), 1, "only the new one: {kinds:?}");
    assert_eq!(rig.status(), "broadcasting");
    assert_eq!(rig.record("s")["endPointList"][0]["endpointServiceId"], id);
    assert_eq!(rig.remove(&id), (200, PLAIN.into()));
}

#[test]
fn r_15_endpoints_of_an_update_count_for_the_size_of_the_record() {
    let mut rig = Rig::new();
    rig.create("s");
    let url = |n: usize| format!(r#"{{"endpointUrl":"rtmp://198.51.100.1/a/{n}{}"}}"#, "x".repeat(3000));
    let put = |rig: &mut Rig, count: usize| {
        let urls: Vec<String> = (0..count).map(url).collect();
        let body = format!(r#"{{"endPointList":[{}]}}"#, urls.join(","));
        rig.call(Method::Put, "/live/rest/v2/broadcasts/s", &body)
    };
    assert_eq!(put(&mut rig, 4), (200, PLAIN.into()));
    let (status, text) = put(&mut rig, 8);
    assert!(status == 400 && text.contains("32 KiB"), "{status} {text}");
    assert_eq!(rig.record("s")["endPointList"].as_array().unwrap().len(), 4);
    assert_eq!(put(&mut rig, 0), (200, PLAIN.into()));
}
