//! Hooks: their bodies, their order, and their receivers' answers.

use super::*;
use crate::mail::{LeaseNews, PlayRequest};

const URL: (&str, &str) = ("listenerHookURL", "http://hook.example/in?key=1");

/// Allows any number of streams from one address.
const MANY: (&str, &str) = ("limits.publishers_per_address", "1000000");

impl Rig {
    /// Takes the hooks being sent, and answers them.
    fn take_hooks(&mut self) -> Vec<serde_json::Value> {
        let mut told = Vec::new();
        for _ in 0..10_000 {
            let requests = std::mem::take(&mut self.hooks);
            if requests.is_empty() {
                break;
            }
            for request in requests {
                told.push(serde_json::from_slice(&request.body).unwrap());
                self.hook_result(request.id, Ok(200));
            }
        }
        told
    }

    fn hook_result(&mut self, id: JobId, result: Result<u16, String>) {
        self.done(id, Outcome::Posted(result));
    }

    fn actions(&mut self) -> Vec<String> {
        let name = |hook: &serde_json::Value| {
            format!("{} {}", hook["action"].as_str().unwrap(), hook["id"].as_str().unwrap())
        };
        self.take_hooks().iter().map(name).collect()
    }

    fn go_live(&mut self, id: &str, params: &[(&str, &str)]) -> (SessionRef, StreamId) {
        let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let request = PublishRequest { params, ..self.request(id, 0) };
        let session = request.session;
        let stream = self.ask(request).unwrap().stream;
        self.mail(ToControl::SourceStarted(stream));
        (session, stream)
    }
}

#[test]
fn a_stream_s_life_is_told_with_the_members_of_its_record() {
    let mut rig = Rig::with(&[], &[URL]);
    let body = r#"{"streamId":"s","name":"My stream","category":"news","metaData":"{\"a\":1}"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/create", body).0, 200);
    let (session, stream) = rig
        .go_live("s", &[("token", "t"), ("subscriberId", "cam"), ("action", "liveStreamEnded"), ("id", "x")]);
    let expected = serde_json::json!({
        "id": "s",
        "action": "liveStreamStarted",
        "app": "live",
        "timestamp": (START_MS + 5).to_string(),
        "streamName": "My stream",
        "category": "news",
        "metadata": {"a": 1},
        "token": "t",
        "subscriberId": "cam",
    });
    assert_eq!(rig.take_hooks(), [expected]);
    rig.gone(session, stream, Departure::Clean, 10);
    assert_eq!(rig.actions(), ["liveStreamEnded s"]);
}

#[test]
fn nothing_is_told_before_media_and_nothing_during_the_grace() {
    let mut rig = Rig::with(&[], &[URL]);
    let (session, stream) = rig.publish("s", 0);
    assert!(rig.actions().is_empty());
    rig.mail(ToControl::SourceStarted(stream));
    assert_eq!(rig.actions(), ["liveStreamStarted s"]);
    rig.gone(session, stream, Departure::Lost, 10);
    rig.run_for(secs(4));
    let (session, _) = rig.go_live("s", &[]);
    assert!(rig.actions().is_empty(), "the same life");
    rig.gone(session, stream, Departure::Lost, 20);
    rig.run_for(ms(4999));
    assert!(rig.actions().is_empty());
    rig.run_for(ms(1));
    assert_eq!(rig.actions(), ["liveStreamEnded s"]);
    // A publisher that leaves before its first unit was never live, so no hook is called. If the connection of such a
    // publisher is lost instead, the hook is `publishTimeoutError`.
    let (session, stream) = rig.publish("s", 0);
    rig.gone(session, stream, Departure::Clean, 0);
    assert!(rig.actions().is_empty());
    let request =
        PublishRequest { params: vec![("subscriberId".into(), "cam".into())], ..rig.request("s", 0) };
    let session = request.session;
    let stream = rig.ask(request).unwrap().stream;
    rig.gone(session, stream, Departure::Lost, 0);
    rig.run_for(secs(5));
    let told = rig.take_hooks();
    assert_eq!(
        (told.len(), &told[0]["action"], &told[0]["metadata"]),
        (1, &"publishTimeoutError".into(), &serde_json::json!({"subscriberId": "cam"}))
    );
}

#[test]
fn the_record_s_receiver_goes_before_the_application_s() {
    let mut rig = Rig::with(&[], &[URL]);
    rig.post(
        "/live/rest/v2/broadcasts/create",
        r#"{"streamId":"s","listenerHookURL":"http://own.example/"}"#,
    );
    rig.go_live("s", &[]);
    rig.go_live("zombi", &[]);
    let urls: Vec<_> = rig.hooks.iter().map(|request| request.url.as_str().to_owned()).collect();
    assert_eq!(urls, ["http://own.example/", URL.1]);
    rig.take_hooks();
    // When a live stream's record is deleted, the end is reported with that record's contents.
    assert_eq!(rig.call(Method::Delete, "/live/rest/v2/broadcasts/s", "").0, 200);
    assert_eq!(rig.hooks[0].url.as_str(), "http://own.example/");
    assert_eq!(rig.actions(), ["liveStreamEnded s"]);
    let mut plain = Rig::new();
    plain.go_live("s", &[]);
    assert!(plain.hooks.is_empty());
}

#[test]
fn metadata_is_an_object_where_it_is_one() {
    for (text, expected) in [
        (r#"{\"a\":1}"#, serde_json::json!({"a": 1})),
        ("[1]", serde_json::json!("[1]")),
        ("plain", serde_json::json!("plain")),
        (" ", serde_json::Value::Null),
    ] {
        let mut rig = Rig::with(&[], &[URL]);
        let body = format!(r#"{{"streamId":"s","metaData":"{text}"}}"#);
        rig.post("/live/rest/v2/broadcasts/create", &body);
        rig.go_live("s", &[]);
        assert_eq!(rig.take_hooks()[0]["metadata"], expected, "{text}");
    }
}

#[test]
fn a_form_has_the_same_members() {
    let mut rig = Rig::with(&[], &[URL, ("webhookContentType", "application/x-www-form-urlencoded")]);
    let body = r#"{"streamId":"s","name":"a & b","metaData":"{\"a\":1}"}"#;
    rig.post("/live/rest/v2/broadcasts/create", body);
    rig.go_live("s", &[]);
    let request = rig.hooks.remove(0);
    assert_eq!(request.body_type, crate::jobs::BodyType::Form);
    let pairs: Vec<_> = url::form_urlencoded::parse(&request.body).into_owned().collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        pairs,
        [
            pair("id", "s"),
            pair("action", "liveStreamStarted"),
            pair("app", "live"),
            pair("timestamp", &(START_MS + 5).to_string()),
            pair("streamName", "a & b"),
            pair("metadata", r#"{"a":1}"#),
        ]
    );
}

#[test]
fn hooks_of_a_stream_wait_for_each_other_and_for_no_other_stream() {
    let mut rig = Rig::with(&[], &[URL, ("webhookRetryCount", "2"), ("webhookRetryAttemptDelay", "500")]);
    let (session, stream) = rig.go_live("a", &[]);
    rig.gone(session, stream, Departure::Clean, 1);
    rig.go_live("b", &[]);
    let action = |request: &Posted| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        format!("{} {}", body["action"].as_str().unwrap(), body["id"].as_str().unwrap())
    };
    let sent = |rig: &mut Rig| std::mem::take(&mut rig.hooks);
    let first = sent(&mut rig);
    assert_eq!(first.iter().map(action).collect::<Vec<_>>(), ["liveStreamStarted a", "liveStreamStarted b"]);
    // A failed hook is retried before later hooks of the stream are sent.
    let mut id = first[0].id;
    for (try_number, result) in [(0, Ok(500)), (1, Err("timed out".to_owned())), (2, Ok(302))] {
        rig.hook_result(id, result);
        rig.run_for(ms(499));
        if try_number < 2 {
            assert!(rig.hooks.is_empty());
            rig.run_for(ms(1));
            let again = sent(&mut rig);
            assert_eq!(again.iter().map(action).collect::<Vec<_>>(), ["liveStreamStarted a"]);
            id = again[0].id;
        }
    }
    assert_eq!(sent(&mut rig).iter().map(action).collect::<Vec<_>>(), ["liveStreamEnded a"]);
    let counts = rig.control.stats().hooks;
    assert_eq!((counts.sent, counts.failed, counts.dropped), (0, 1, 0));
}

#[test]
fn u_36_a_thousand_wait_and_then_the_oldest_go() {
    let mut rig = Rig::with(&[MANY], &[URL]);
    for n in 0..1010 {
        rig.go_live(&format!("s{n:04}"), &[]);
    }
    // A receiver may occupy half of its application's threads.
    assert_eq!(rig.hooks.len(), 5);
    assert_eq!((rig.control.stats().hooks_waiting, rig.control.stats().hooks.dropped), (1005, 5));
    let told = rig.actions();
    assert_eq!(told.len(), 1005);
    assert_eq!(&told[4..6], ["liveStreamStarted s0004", "liveStreamStarted s0010"]);
    assert_eq!(rig.control.stats().hooks_waiting, 0);
}

#[test]
fn u_36_what_waits_for_its_next_try_can_be_dropped_too() {
    let mut rig =
        Rig::with(&[MANY], &[URL, ("webhookRetryCount", "100"), ("webhookRetryAttemptDelay", "1000")]);
    for n in 0..1200 {
        rig.go_live(&format!("s{n:04}"), &[]);
        for request in std::mem::take(&mut rig.hooks) {
            rig.hook_result(request.id, Err("refused".into()));
        }
    }
    let stats = rig.control.stats();
    assert!(stats.hooks_waiting <= 1001 && stats.hooks.dropped >= 199, "{stats:?}");
    rig.run_for(secs(1));
    while rig.control.stats().hooks_waiting > 0 {
        rig.take_hooks();
        rig.run_for(secs(1));
    }
    assert_eq!(rig.control.stats().hooks.sent + rig.control.stats().hooks.dropped, 1200);
}

#[test]
fn viewers_are_told_where_there_is_somebody_to_tell() {
    let mut rig = Rig::with(&[], &[URL]);
    let told = |rig: &mut Rig| {
        let up = rig.take().into_iter().find_map(|(_, mail)| match mail {
            ToWorker::StreamUp { details, .. } => Some(details.tell_viewers),
            _ => None,
        });
        up.unwrap()
    };
    rig.take();
    rig.go_live("s", &[]);
    assert!(told(&mut rig));
    rig.take_hooks();
    let session = rig.session(1);
    let request = PlayRequest {
        session,
        key: StreamKey::new("live", "s"),
        egress: "rtmp",
        peer: "198.51.100.9:4000".parse().unwrap(),
        params: vec![("subscriberId".into(), "alice".into())],
        origin: String::new(),
        polled: None,
    };
    rig.mail(ToControl::PlayStarted { session, request: Some(Box::new(request)) });
    rig.mail(ToControl::PlayEnded(session));
    rig.mail(ToControl::PlayEnded(session));
    let hooks = rig.take_hooks();
    let actions: Vec<_> = hooks.iter().map(|hook| hook["action"].as_str().unwrap()).collect();
    assert_eq!((actions, &hooks[0]["subscriberId"]), (vec!["playStarted", "playStopped"], &"alice".into()));
    for came in [true, false] {
        let (key, params) = (StreamKey::new("live", "s"), vec![("token".into(), "t".into())]);
        rig.mail(ToControl::Leased(Box::new(LeaseNews { key, came, params })));
    }
    let hooks = rig.take_hooks();
    let members =
        |hook: &serde_json::Value| (hook["action"].clone(), hook["id"].clone(), hook["token"].clone());
    let [came, gone] = [&hooks[0], &hooks[1]].map(members);
    assert_eq!(came, ("playStarted".into(), "s".into(), "t".into()));
    assert_eq!(gone, ("playStopped".into(), "s".into(), "t".into()));
    // Without a receiver, workers do not report viewers.
    let mut rig = Rig::new();
    rig.create("s");
    rig.go_live("s", &[]);
    assert!(!told(&mut rig));
    rig.call(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"listenerHookURL":"http://h.example/"}"#);
    assert!(told(&mut rig));
}

#[test]
fn an_endpoint_that_fails_again_and_again_is_told_once_and_tried_on() {
    let mut rig = Rig::with(&[], &[URL]);
    let url = "rtmp://198.51.100.1/app/secret";
    rig.create("s");
    rig.post("/live/rest/v2/broadcasts/s/endpoint", &format!(r#"{{"endpointUrl":"{url}"}}"#));
    rig.go_live("s", &[]);
    rig.take_hooks();
    let push = rig.orders().remove(0).1.push;
    let fail = |rig: &mut Rig, attempt: u64| {
        rig.mail(ToControl::Push { push, attempt, state: PushState::Failed("refused".into()) });
        rig.run_for(secs(25));
    };
    for attempt in 1..=3 {
        fail(&mut rig, attempt);
        assert!(rig.actions().is_empty(), "{attempt}");
    }
    fail(&mut rig, 4);
    let told = rig.take_hooks();
    assert_eq!((told.len(), &told[0]["metadata"]), (1, &serde_json::json!({"rtmp-url": url})));
    for attempt in 5..=8 {
        fail(&mut rig, attempt);
        assert!(rig.actions().is_empty());
    }
    // Attempts continue. After a connection has held for a while, the next series of failures is reported again.
    rig.mail(ToControl::Push { push, attempt: 9, state: PushState::Broadcasting });
    rig.run_for(secs(3));
    for attempt in 9..=12 {
        fail(&mut rig, attempt);
    }
    assert_eq!(rig.actions(), ["endpointFailed s"]);
}

#[test]
fn the_status_comes_in_its_period_while_the_publisher_is_there() {
    let mut rig = Rig::with(&[], &[URL, ("webhookStreamStatusUpdatePeriodMs", "2000")]);
    let (session, stream) = rig.go_live("s", &[]);
    rig.take_hooks();
    rig.run_for(secs(1));
    rig.report(0, stream, 125_000, 0, 0);
    rig.run_for(secs(1));
    let told = rig.take_hooks();
    let expected = serde_json::json!({
        "id": "s", "action": "liveStreamStatus", "width": 1280, "height": 720, "totalByteReceived": 125_000,
        "inputQueueSize": 0, "speed": 1.0, "timestamp": START_MS + 2000, "encodingQueueSize": 0,
        "dropFrameCountInEncoding": 0, "dropPacketCountInIngestion": 0,
    });
    assert_eq!(told, [expected]);
    // Status hooks for a slow receiver do not pile up.
    rig.run_for(secs(6));
    assert_eq!(rig.control.stats().hooks_waiting, 1);
    rig.take_hooks();
    rig.gone(session, stream, Departure::Lost, 1);
    rig.run_for(ms(4500));
    assert!(rig.actions().is_empty());
    rig.run_for(secs(10));
    assert_eq!(rig.actions(), ["liveStreamEnded s"]);
}

#[test]
fn a_stream_that_does_not_come_back_is_told_after_its_idle_time() {
    let mut rig = Rig::with(&[], &[URL]);
    rig.post(
        "/live/rest/v2/broadcasts/create",
        r#"{"streamId":"s","maxIdleTime":30,"mainTrackStreamId":"room"}"#,
    );
    let end = |rig: &mut Rig| {
        let (session, stream) = rig.go_live("s", &[]);
        rig.gone(session, stream, Departure::Clean, 1);
        rig.take_hooks();
    };
    end(&mut rig);
    rig.run_for(secs(29));
    end(&mut rig);
    rig.run_for(secs(29));
    assert!(rig.actions().is_empty());
    rig.run_for(secs(1));
    let told = rig.take_hooks();
    assert_eq!(
        (told.len(), &told[0]["action"], &told[0]["mainTrackId"], &told[0]["roomId"]),
        (1, &"idleTimeIsExpired".into(), &"room".into(), &"room".into())
    );
    end(&mut rig);
    rig.call(Method::Delete, "/live/rest/v2/broadcasts/s", "");
    rig.run_for(secs(60));
    assert!(rig.actions().is_empty());
}

#[test]
fn the_first_and_the_last_of_a_room_are_told() {
    let mut rig = Rig::with(&[], &[URL]);
    rig.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"room","virtual":true}"#);
    for id in ["a", "b"] {
        let body = format!(r#"{{"streamId":"{id}","mainTrackStreamId":"room"}}"#);
        rig.post("/live/rest/v2/broadcasts/create", &body);
    }
    let a = rig.go_live("a", &[]);
    assert_eq!(rig.actions(), ["liveStreamStarted a", "firstActiveTrackAddedInMainTrack a"]);
    let b = rig.go_live("b", &[]);
    assert_eq!(rig.actions(), ["liveStreamStarted b"]);
    rig.gone(a.0, a.1, Departure::Clean, 1);
    assert_eq!(rig.actions(), ["liveStreamEnded a"]);
    rig.gone(b.0, b.1, Departure::Clean, 1);
    let mut told = rig.actions();
    told.sort();
    assert_eq!(told, ["liveStreamEnded b", "noActiveSubtracksLeftInMainTrack room"]);
}

#[test]
fn subtracks_that_end_together_are_told_once_to_be_the_last() {
    let mut rig = Rig::with(&[], &[URL]);
    rig.post("/live/rest/v2/broadcasts/create", r#"{"streamId":"room","virtual":true}"#);
    for id in ["a", "b", "c"] {
        let body = format!(r#"{{"streamId":"{id}","mainTrackStreamId":"room"}}"#);
        rig.post("/live/rest/v2/broadcasts/create", &body);
        rig.go_live(id, &[]);
    }
    rig.actions();
    rig.post("/live/rest/v2/broadcasts/room/stop", "");
    let mut told = rig.actions();
    told.sort();
    let last = "noActiveSubtracksLeftInMainTrack room";
    assert_eq!(told, ["liveStreamEnded a", "liveStreamEnded b", "liveStreamEnded c", last]);
}

#[test]
fn a_drain_tells_of_the_end_and_waits_a_little_for_the_receivers() {
    let drained = |answer: bool| {
        let mut rig = Rig::with(&[], &[URL]);
        rig.go_live("s", &[]);
        rig.take_hooks();
        rig.control.drain(rig.now);
        rig.drain();
        rig.mail(ToControl::Drained(WorkerId(0)));
        rig.mail(ToControl::Drained(WorkerId(1)));
        assert!(!rig.exited);
        if answer {
            assert_eq!(rig.actions(), ["liveStreamEnded s"]);
        } else {
            rig.run_for(ms(2999));
            assert!(!rig.exited);
            rig.run_for(ms(1));
        }
        rig.exited
    };
    assert!(drained(true) && drained(false));
}

#[test]
fn a_server_that_is_short_of_resources_tells_once() {
    let mut rig = Rig::with(&[("server.statusWebHookURL", "http://ops.example/status")], &[]);
    let report = |rig: &mut Rig, memory: u8| {
        rig.control.handle_host(
            rig.now,
            HostFigures { memory_percent: memory, ..HostFigures::default() },
            Vec::new(),
        );
        rig.mail(ToControl::Report(WorkerId(0), Report::default()));
    };
    for memory in [50, 90, 91] {
        report(&mut rig, memory);
    }
    let told = rig.take_hooks();
    assert_eq!(
        (told.len(), &told[0]["action"], &told[0]["host"]),
        (1, &"highResourceUsage".into(), &"192.0.2.1".into())
    );
    let resources: serde_json::Value =
        serde_json::from_str(told[0]["resourceInfo"].as_str().unwrap()).unwrap();
    assert!(resources["cpuUsage"].is_object());
    report(&mut rig, 50);
    report(&mut rig, 90);
    assert_eq!(rig.take_hooks().len(), 1);
}

/// The session of a page that sends messages.
fn page(slot: u32) -> SessionRef {
    SessionRef::new(WorkerId(0), ConnId { slot, generation: 0 })
}

/// Messages of data channels go to their own receiver. A flood of them delays neither the server nor its other hooks.
#[test]
fn messages_of_data_channels_go_to_their_receiver_as_many_as_it_takes() {
    let mut rig = Rig::with(&[], &[URL, ("dataChannelWebHookURL", "http://chat.example/in")]);
    let send = |rig: &mut Rig, payload: Vec<u8>| {
        let key = StreamKey::new("live", "s");
        rig.mail(ToControl::Data { sender: page(1), key, payload: payload.into() });
    };
    send(&mut rig, b"hello".to_vec());
    let first = std::mem::take(&mut rig.hooks);
    let [request] = &first[..] else { panic!("one request") };
    assert_eq!((&request.body[..], request.url.as_str()), (&b"hello"[..], "http://chat.example/in"));
    // A thousand messages that arrive while the first one is being sent do not delay the stream's own hooks.
    for _ in 0..1000 {
        send(&mut rig, vec![7; 1000]);
    }
    rig.go_live("s", &[]);
    let told: Vec<Vec<u8>> =
        std::mem::take(&mut rig.hooks).iter().map(|request| request.body.to_vec()).collect();
    assert_eq!(told.len(), 1, "the stream's own hook does not wait for them");
    assert!(told[0].starts_with(b"{"));
    rig.hook_result(request.id, Ok(500));
    let mut taken = 0;
    while let Some(request) = rig.hooks.pop() {
        taken += 1;
        rig.hook_result(request.id, Ok(200));
    }
    assert_eq!(taken, 64);
    // Dropped hooks free their places and their bytes.
    for _ in 0..40 {
        send(&mut rig, vec![7; 256 << 10]);
    }
    let mut bytes = 0;
    while let Some(request) = rig.hooks.pop() {
        bytes += request.body.len();
        rig.hook_result(request.id, Ok(200));
    }
    assert_eq!(bytes, 8 << 20);
    // Messages of another application take the place of the oldest ones.
    for _ in 0..40 {
        send(&mut rig, vec![7; 256 << 10]);
    }
    for _ in 0..4 {
        let key = StreamKey::new("LiveApp", "s");
        rig.mail(ToControl::Data { sender: page(2), key, payload: vec![8; 256 << 10].into() });
    }
    let mut of_other = 0;
    while let Some(request) = rig.hooks.pop() {
        of_other += usize::from(request.body[0] == 8);
        rig.hook_result(request.id, Ok(200));
    }
    assert_eq!(of_other, 4);
    let mut without = Rig::with(&[], &[URL]);
    send(&mut without, b"hello".to_vec());
    assert!(without.hooks.is_empty());
}

/// A flood of one page costs neither the publisher nor other viewers their messages.
#[test]
fn u_36_a_flood_of_one_sender_of_data_displaces_its_own_messages_alone() {
    let mut rig = Rig::with(&[], &[URL, ("dataChannelWebHookURL", "http://chat.example/in")]);
    let send = |rig: &mut Rig, slot: u32, text: String| {
        let key = StreamKey::new("live", "s");
        rig.mail(ToControl::Data { sender: page(slot), key, payload: text.into() });
    };
    for round in 0..10 {
        (0..100).for_each(|n| send(&mut rig, 1, format!("flood {round} {n}")));
        send(&mut rig, 2, format!("publisher {round}"));
        send(&mut rig, 3, format!("viewer {round}"));
    }
    let mut taken: Vec<String> = Vec::new();
    while let Some(request) = rig.hooks.pop() {
        taken.push(String::from_utf8(request.body.to_vec()).unwrap());
        rig.hook_result(request.id, Ok(200));
    }
    for sender in ["publisher", "viewer"] {
        let all: Vec<String> = (0..10).map(|round| format!("{sender} {round}")).collect();
        let own: Vec<&String> = taken.iter().filter(|text| text.starts_with(sender)).collect();
        assert!(own.into_iter().eq(&all), "each one, in their order: {taken:?}");
    }
    assert_eq!(taken.len(), 65, "one is sent while 64 wait");
    assert_eq!(rig.control.hooks.waiting(), 0);
}
