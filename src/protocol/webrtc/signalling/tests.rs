use serde_json::Value;

use super::*;
use crate::mail::{CallEvent, CallNews};
use crate::protocol::webrtc::info::Bitrates;
use crate::types::{ConnId, WorkerId};

fn socket() -> Socket {
    Socket {
        app: "live".to_owned(),
        user_agent: String::new(),
        origin: String::new(),
        of_foreign_page: false,
        secret: 1,
        joined: Joined::new(0x0123_4567_89ab_cdef),
        streams: Vec::new(),
        next: 0,
        calls: Vec::new(),
        questions: VecDeque::new(),
        events: VecDeque::new(),
        actions: VecDeque::new(),
        granted: false,
        was_let_in: false,
        ice: IceClient { host: "live.example".to_owned(), user: 1, is_waiting: false },
    }
}

fn session(slot: u32) -> SessionRef {
    SessionRef::new(WorkerId(0), ConnId { slot, generation: 0 })
}

fn say(socket: &mut Socket, text: &str) {
    let command = Command::read(text).unwrap();
    socket.about_a_stream_or_not(&command);
}

impl Socket {
    /// Handles a command that needs no context.
    fn about_a_stream_or_not(&mut self, command: &Command) {
        self.within(|socket, ctx| socket.command(ctx, command));
    }

    /// Acts within an application that has a relay (TURN) server.
    fn within(&mut self, act: impl FnOnce(&mut Self, &Context<'_>)) {
        let turn = [
            ("stunServerURI", "turn:turn.example"),
            ("turnServerUsername", "user"),
            ("turnServerCredential", "CANARY"),
        ];
        let app = crate::config::AppSettings::of(crate::protocol::schema(), "live", &turn).unwrap();
        let apps = crate::protocol::Apps::from([("live".into(), std::sync::Arc::new(app))]);
        let server = crate::mail::SessionSettings::default();
        let blobs = crate::hub::Blobs::default();
        let now = crate::types::Now { mono: Instant::now(), wall_ms: 0 };
        act(self, &Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false });
    }

    fn hear(&mut self, from: SessionRef, said: &FromSession) {
        self.within(|socket, ctx| socket.heard(ctx, from, said));
    }

    fn said(&mut self) -> Vec<Value> {
        let text = |action| if let Action::Send(text) = action { Some(text) } else { None };
        self.actions.drain(..).filter_map(text).map(|text| serde_json::from_str(&text).unwrap()).collect()
    }

    fn told(&mut self) -> Vec<ToSession> {
        let told = |event| {
            let Event::Family(FamilyEvent::Tell { message, .. }) = event else { return None };
            message.content::<ToSession>().cloned()
        };
        self.events.drain(..).filter_map(told).collect()
    }
}

#[test]
fn commands_without_a_good_stream_id_are_errors_and_a_ping_needs_none() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"ping"}"#);
    say(&mut socket, r#"{"command":"publish"}"#);
    say(&mut socket, r#"{"command":"play","streamId":"a/b"}"#);
    say(&mut socket, r#"{"command":"dance","streamId":"a"}"#);
    let said = socket.said();
    assert_eq!(said.len(), 4);
    assert_eq!(
        (&said[0]["command"], &said[1]["definition"]),
        (&"pong".into(), &"noStreamNameSpecified".into())
    );
    assert_eq!((&said[2]["definition"], &said[2]["streamId"]), (&"invalidStreamName".into(), &"a/b".into()));
    assert_eq!((&said[3]["definition"], &said[3]["streamId"]), (&"notImplemented".into(), &"a".into()));
}

/// Answers the questions that control was asked.
fn answer_all(socket: &mut Socket, body: &str) {
    let asks = |event: &Event| matches!(event, Event::Request(RequestEvent::Ask { .. }));
    let count = socket.events.iter().filter(|event| asks(event)).count();
    socket.events.retain(|event| !asks(event));
    for _ in 0..count {
        socket.answered(&crate::http::Response::json(200, body.to_owned()));
    }
}

#[test]
fn w_09_every_command_of_the_sdk_has_its_answer() {
    const ROOM: &str = r#"{"streams":["a","b"],"streamList":[{"streamId":"a","streamName":"A","metaData":""},{"streamId":"b","streamName":"B","metaData":"m"}]}"#;
    for (command, body, answer) in [
        (
            r#"{"command":"getStreamInfo","streamId":"a"}"#,
            r#"{"width":640,"height":360,"videoBitrate":9,"videoCodec":"H264"}"#,
            r#"{"command":"streamInformation","streamId":"a","streamInfo":[{"streamWidth":640,"streamHeight":360,"videoBitrate":9,"audioBitrate":0,"videoCodec":"H264"}]}"#,
        ),
        (
            r#"{"command":"getTrackList","streamId":"a","token":""}"#,
            r#"{"streams":[],"streamList":[]}"#,
            r#"{"command":"trackList","streamId":"a","trackList":["a"]}"#,
        ),
        (
            r#"{"command":"getTrackList","streamId":"r"}"#,
            ROOM,
            r#"{"command":"trackList","streamId":"r","trackList":["a","b"]}"#,
        ),
        (
            r#"{"command":"getBroadcastObject","streamId":"a"}"#,
            r#"{"x":1}"#,
            r#"{"command":"notification","definition":"broadcastObject","streamId":"a","broadcast":"{\"x\":1}"}"#,
        ),
        (
            r#"{"command":"getSubtracks","streamId":"r","role":"","offset":0,"size":5}"#,
            r#"[{"x":1}]"#,
            r#"{"command":"notification","definition":"subtrackList","streamId":"r","subtrackList":["{\"x\":1}"]}"#,
        ),
        (
            r#"{"command":"getSubtracksCount","streamId":"r"}"#,
            r#"{"count":3}"#,
            r#"{"command":"notification","definition":"subtrackCount","streamId":"r","count":3}"#,
        ),
        (
            r#"{"command":"getSubscribers","streamId":"r"}"#,
            r#"[]"#,
            r#"{"command":"notification","definition":"subscriberList","streamId":"r","subscriberList":[]}"#,
        ),
        (
            r#"{"command":"getSubscriberCount","streamId":"r"}"#,
            r#"{"count":0}"#,
            r#"{"command":"notification","definition":"subscriberCount","streamId":"r","count":0}"#,
        ),
        (
            r#"{"command":"joinRoom","room":"r","mainTrack":"r","streamId":"b","mode":"multitrack"}"#,
            ROOM,
            r#"{"command":"notification","definition":"joinedTheRoom","streamId":"b","streams":["a"],"streamList":[{"streamId":"a","streamName":"A","metaData":""}],"ATTR_ROOM_NAME":"r","room":"r","maxTrackCount":-1}"#,
        ),
        (
            r#"{"command":"getRoomInfo","room":"r"}"#,
            ROOM,
            r#"{"command":"roomInformation","streams":["a","b"],"streamList":[{"streamId":"a","streamName":"A","metaData":""},{"streamId":"b","streamName":"B","metaData":"m"}],"ATTR_ROOM_NAME":"r","room":"r"}"#,
        ),
        (
            r#"{"command":"getRoomInfo","room":"r","streamId":"b"}"#,
            r#"{"streams":[],"streamList":[]}"#,
            r#"{"command":"error","definition":"no_active_streams_in_room","room":"r"}"#,
        ),
        (r#"{"command":"getRoomInfo"}"#, "", r#"{"command":"error","definition":"no_room_specified"}"#),
        (
            r#"{"command":"joinRoom","room":"a/b"}"#,
            "",
            r#"{"command":"error","definition":"invalidStreamName","streamId":"a/b"}"#,
        ),
        (
            r#"{"command":"leaveFromRoom","room":"r","streamId":"b"}"#,
            "",
            r#"{"command":"notification","definition":"leavedFromRoom","streamId":"b","ATTR_ROOM_NAME":"r","room":"r"}"#,
        ),
        (
            r#"{"command":"updateStreamMetaData","streamId":"a","metaData":"x"}"#,
            "",
            r#"{"command":"error","definition":"unauthorized_access","streamId":"a"}"#,
        ),
        (
            r#"{"command":"peerMessageCommand","streamId":"a"}"#,
            "",
            r#"{"command":"error","definition":"no_peer_associated_before","streamId":"a"}"#,
        ),
        (
            r#"{"command":"setMaxVideoTrackCountCommand","streamId":"a","maxTrackCount":3}"#,
            "",
            r#"{"command":"error","definition":"no_stream_exist","streamId":"a","error_code":"404","information":"stream_not_exist_or_not_streaming"}"#,
        ),
        (
            r#"{"command":"dance","streamId":"a"}"#,
            "",
            r#"{"command":"error","definition":"notImplemented","streamId":"a"}"#,
        ),
        (
            r#"{"command":"sendPushNotification","subscriberId":"a"}"#,
            "",
            r#"{"command":"error","definition":"notImplemented"}"#,
        ),
    ] {
        let mut socket = socket();
        say(&mut socket, command);
        answer_all(&mut socket, body);
        let wanted: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(socket.said(), [wanted], "{command}");
    }
}

#[test]
fn a_page_without_an_id_is_given_one_in_its_room_and_no_two_the_same() {
    let mut socket = socket();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..5 {
        say(&mut socket, r#"{"command":"joinRoom","room":"r"}"#);
        answer_all(&mut socket, r#"{"streams":[],"streamList":[]}"#);
        ids.insert(socket.said()[0]["streamId"].as_str().unwrap().to_owned());
    }
    assert!(ids.len() == 5 && ids.iter().all(|id| is_stream_id(id)), "{ids:?}");
}

#[test]
fn who_has_joined_a_room_publishes_into_it() {
    let main_of = |socket: &Socket, text: &str| {
        let command = Command::read(text).unwrap();
        let params = socket.params_of(&command, command.text("streamId"), command.name() == "publish");
        params.into_iter().find(|(name, _)| name == "mainTrack").map(|(_, main)| main)
    };
    let mut socket = socket();
    let publish = r#"{"command":"publish","streamId":"a"}"#;
    assert_eq!(main_of(&socket, publish), None);
    say(&mut socket, r#"{"command":"joinRoom","room":"r","streamId":"a"}"#);
    assert_eq!(main_of(&socket, publish).as_deref(), Some("r"));
    assert_eq!(main_of(&socket, r#"{"command":"play","streamId":"a"}"#), None);
    assert_eq!(main_of(&socket, r#"{"command":"publish","streamId":"b"}"#), None, "another stream");
    let named = r#"{"command":"publish","streamId":"a","mainTrack":"other"}"#;
    assert_eq!(main_of(&socket, named).as_deref(), Some("other"));
    say(&mut socket, r#"{"command":"joinRoom","room":"r2","streamId":"a"}"#);
    assert_eq!(main_of(&socket, publish).as_deref(), Some("r2"), "the last one that was joined");
    socket.actions.clear();
    say(&mut socket, r#"{"command":"leaveFromRoom","room":"r2"}"#);
    assert_eq!(socket.said()[0]["streamId"], "a");
    assert_eq!(main_of(&socket, publish), None);
    // A socket remembers only as many joined rooms as it may have streams, and a stream is never its own room.
    for n in 0..200 {
        say(&mut socket, &format!(r#"{{"command":"joinRoom","room":"r","streamId":"s{n}"}}"#));
    }
    assert_eq!(main_of(&socket, r#"{"command":"publish","streamId":"s0"}"#), None);
    assert_eq!(main_of(&socket, r#"{"command":"publish","streamId":"s199"}"#).as_deref(), Some("r"));
    say(&mut socket, r#"{"command":"joinRoom","room":"self","streamId":"self"}"#);
    assert_eq!(main_of(&socket, r#"{"command":"publish","streamId":"self"}"#), None);
}

#[test]
fn a_socket_has_so_many_questions_at_a_time() {
    let mut socket = socket();
    (0..20).for_each(|_| say(&mut socket, r#"{"command":"getSubtracksCount","streamId":"r"}"#));
    let said = socket.said();
    assert_eq!((said.len(), &said[0]["definition"]), (4, &"highResourceUsage".into()));
    answer_all(&mut socket, r#"{"count":1}"#);
    assert_eq!(socket.said().len(), 16);
}

#[test]
fn what_two_of_a_call_say_goes_to_the_other_alone() {
    let mut socket = socket();
    let call = |news| (StreamKey::new("live", "c"), news);
    say(&mut socket, r#"{"command":"join","streamId":"c","multiPeer":false,"mode":"both"}"#);
    assert!(matches!(
        socket.events.pop_front(),
        Some(Event::Request(RequestEvent::Call(CallEvent::Join { .. })))
    ));
    let offer = r#"{"command":"takeConfiguration","streamId":"c","type":"offer","sdp":"v=0"}"#;
    say(&mut socket, offer);
    let (key, news) = call(CallNews::Joined);
    socket.call_news(&key, news);
    let (key, news) = call(CallNews::Paired { with: session(7), begins: true });
    socket.call_news(&key, news);
    let said: Vec<Value> = socket.said();
    assert_eq!(said[0]["definition"], "no_peer_associated_before");
    assert_eq!((&said[1]["definition"], &said[2]["command"]), (&"joined".into(), &"start".into()));
    say(&mut socket, offer);
    say(&mut socket, r#"{"command":"takeCandidate","streamId":"c","label":0,"id":"0","candidate":"x"}"#);
    let relayed = |event| {
        let Event::Family(FamilyEvent::Tell { to, message }) = event else { return None };
        (to == session(7)).then(|| message.content::<Relayed>().unwrap().text.clone())
    };
    let relayed: Vec<String> = socket.events.drain(..).filter_map(relayed).collect();
    assert_eq!(relayed.len(), 2);
    assert_eq!(
        serde_json::from_str::<Value>(&relayed[0]).unwrap(),
        serde_json::from_str::<Value>(offer).unwrap()
    );
    // Messages of other sessions are ignored, and so are those of the other party after it has
    // left.
    let from_other = Relayed { id: "c".to_owned(), text: "{}".to_owned() };
    socket.relayed(session(8), &from_other);
    assert!(socket.said().is_empty());
    socket.relayed(session(7), &from_other);
    assert_eq!(socket.said().len(), 1);
    let (key, news) = call(CallNews::Alone);
    socket.call_news(&key, news);
    socket.relayed(session(7), &from_other);
    assert_eq!(socket.said()[0]["command"], "stop");
    say(&mut socket, r#"{"command":"leave","streamId":"c"}"#);
    assert_eq!(socket.said()[0]["definition"], "leaved");
    assert!(matches!(&socket.events[0], Event::Request(RequestEvent::Call(CallEvent::Leave(_)))));
}

#[test]
fn an_id_is_published_or_played_once_and_is_free_after_a_stop() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"publish","streamId":"a"}"#);
    assert!(matches!(
        socket.events.pop_front(),
        Some(Event::Family(FamilyEvent::SpawnAt { outlives: false, .. }))
    ));
    socket.spawned(Handle(0), Some(session(5)));
    say(&mut socket, r#"{"command":"publish","streamId":"a"}"#);
    assert_eq!(socket.said()[0]["definition"], "already_publishing");
    socket.hear(session(5), &FromSession::Granted);
    socket.hear(session(6), &FromSession::Granted);
    let said = socket.said();
    assert_eq!((said.len(), &said[0]["command"], &said[0]["streamId"]), (1, &"start".into(), &"a".into()));
    socket.hear(session(5), &FromSession::OfferRefused);
    assert_eq!(socket.said()[0]["definition"], "notSetRemoteDescription");
    assert_eq!(socket.streams.len(), 1, "the stream continues");
    say(&mut socket, r#"{"command":"stop","streamId":"a"}"#);
    assert_eq!(socket.said()[0]["definition"], "publish_finished");
    assert!(matches!(socket.told()[..], [ToSession::End]));
    // Late messages of the old session do not affect the new one.
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.hear(session(5), &FromSession::Ended);
    assert!(socket.said().is_empty() && socket.streams.len() == 1);
}

#[test]
fn a_viewer_of_a_stream_that_is_not_there_hears_when_it_begins() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.spawned(Handle(0), Some(session(1)));
    socket.events.clear();
    socket.hear(session(1), &FromSession::Refused(Refused::Play(NoSubscription::NotFound)));
    let said = socket.said();
    assert_eq!(said[0]["definition"], "no_stream_exist");
    assert_eq!(said[0]["information"], "stream_not_exist_or_not_streaming");
    assert_eq!(said[0]["error_code"], "404");
    assert!(
        matches!(socket.events.pop_front(), Some(Event::Request(RequestEvent::Await(key))) if &*key.id == "a")
    );
    assert!(socket.streams.is_empty());
}

#[test]
fn w_11_a_socket_has_so_many_streams() {
    let mut socket = socket();
    for n in 0..=STREAMS_MAX {
        say(&mut socket, &format!(r#"{{"command":"play","streamId":"s{n}"}}"#));
    }
    assert_eq!(socket.streams.len(), STREAMS_MAX);
    assert_eq!(socket.said()[0]["definition"], "highResourceUsage");
}

#[test]
fn a_session_that_could_not_be_made_is_an_error_and_one_that_is_late_ends() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.spawned(Handle(0), None);
    assert_eq!(socket.said()[0]["definition"], "highResourceUsage");
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    say(&mut socket, r#"{"command":"stop","streamId":"a"}"#);
    socket.events.clear();
    socket.spawned(Handle(1), Some(session(2)));
    assert!(matches!(socket.told()[..], [ToSession::End]));
}

#[test]
fn viewers_choose_kinds_and_ask_what_there_is() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    // A command that comes before the session exists is told to it later.
    say(&mut socket, r#"{"command":"toggleVideo","streamId":"a","trackId":"a","enabled":false}"#);
    socket.events.clear();
    socket.spawned(Handle(0), Some(session(1)));
    say(&mut socket, r#"{"command":"toggleAudio","streamId":"a","enabled":"false"}"#);
    let told = socket.told();
    assert!(
        matches!(&told[0], ToSession::Want { name, video: Some(false), audio: None } if name == "a"),
        "{told:?}"
    );
    assert!(
        matches!(&told[1], ToSession::Want { name, video: None, audio: Some(false) } if name == "a"),
        "{told:?}"
    );
    for _ in 0..2 * UNSAID_MAX {
        say(&mut socket, r#"{"command":"play","streamId":"b"}"#);
        say(&mut socket, r#"{"command":"enableTrack","streamId":"b","trackId":"b","enabled":true}"#);
    }
    assert_eq!(socket.stream("b").unwrap().unsaid.len(), UNSAID_MAX);
    socket.events.clear();
    socket.actions.clear();
    say(&mut socket, r#"{"command":"forceStreamQuality","streamId":"a","streamHeight":"480"}"#);
    say(&mut socket, r#"{"command":"forceStreamQuality","streamId":"a","streamHeight":"auto"}"#);
    assert!(matches!(socket.told()[..], [ToSession::Force(Some(480)), ToSession::Force(None)]));
    let bitrates = Bitrates { target: 900_000, video: 700_000, audio: 64_000 };
    socket.hear(session(1), &FromSession::Bitrates(bitrates));
    socket.hear(session(1), &FromSession::Resolution(360));
    let said = socket.said();
    assert_eq!(
        (&said[0]["definition"], &said[0]["targetBitrate"]),
        (&"bitrateMeasurement".into(), &900_000.into())
    );
    assert_eq!((&said[0]["videoBitrate"], &said[0]["audioBitrate"]), (&700_000.into(), &64_000.into()));
    assert_eq!(
        (&said[1]["definition"], &said[1]["streamHeight"]),
        (&"resolutionChangeInfo".into(), &360.into())
    );
    socket.hear(session(1), &FromSession::Info(Vec::new()));
    assert_eq!(socket.said()[0]["streamInfo"].as_array().unwrap().len(), 1);
}

#[test]
fn pages_hear_that_a_stream_is_being_started_and_that_theirs_goes_on() {
    let mut socket = socket();
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.spawned(Handle(0), Some(session(1)));
    socket.hear(session(1), &FromSession::Soon);
    let said = socket.said();
    assert_eq!(
        (&said[0]["definition"], &said[0]["streamId"]),
        (&"streaming_starts_soon".into(), &"a".into())
    );
    say(&mut socket, r#"{"command":"publish","streamId":"b"}"#);
    socket.spawned(Handle(1), Some(session(2)));
    socket.hear(session(2), &FromSession::Restored);
    assert!(socket.said().is_empty(), "its media has to come first");
    (0..2).for_each(|_| socket.hear(session(2), &FromSession::Started));
    let said: Vec<Value> = socket.said().into_iter().map(|one| one["definition"].clone()).collect();
    assert_eq!(said, ["publish_started", "session_restored", "publish_started"]);
}

#[test]
fn r_51_credentials_of_a_relay_are_for_who_was_let_in() {
    const ASK: &str = r#"{"command":"getIceServerConfig"}"#;
    let mut socket = socket();
    say(&mut socket, ASK);
    let said = socket.said();
    assert_eq!((&said[0]["command"], &said[0]["stunServerUri"]), (&"iceServerConfig".into(), &"".into()));
    assert!(!said[0].to_string().contains("CANARY") && said[0]["turnServerUsername"] == "");
    // If a session is refused, the client still gets no credentials of ICE servers.
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.spawned(Handle(0), Some(session(1)));
    socket.hear(session(1), &FromSession::Refused(Refused::Play(NoSubscription::NotFound)));
    assert!(!socket.said().iter().any(|said| said.to_string().contains("CANARY")));
    // The client of an admitted session gets the ICE credentials before the command that needs them.
    say(&mut socket, r#"{"command":"publish","streamId":"b"}"#);
    socket.spawned(Handle(1), Some(session(2)));
    socket.hear(session(2), &FromSession::Granted);
    let said = socket.said();
    assert!(said[0].get("iceServers").is_none(), "the members of Ant Media Server, and no more");
    assert_eq!((&said[0]["turnServerCredential"], &said[1]["command"]), (&"CANARY".into(), &"start".into()));
    assert_eq!(said[0]["stunServerUri"], "turn:turn.example");
    say(&mut socket, ASK);
    assert_eq!(socket.said()[0]["turnServerCredential"], "CANARY");
    // A question for a record names the streams that the session was admitted to.
    socket.events.clear();
    say(&mut socket, r#"{"command":"getBroadcastObject","streamId":"c"}"#);
    assert!(
        matches!(&socket.events[0], Event::Request(RequestEvent::Ask { let_in, .. }) if *let_in == ["b"])
    );
}

#[test]
fn numbers_that_begin_anew_pass_over_the_streams_that_have_one() {
    let mut socket = socket();
    let play = |id: &str| format!(r#"{{"command":"play","streamId":"{id}"}}"#);
    say(&mut socket, &play("first"));
    socket.next = u16::MAX;
    ["second", "third"].into_iter().for_each(|id| say(&mut socket, &play(id)));
    assert_eq!(socket.streams.iter().map(|stream| stream.child.0).collect::<Vec<_>>(), [0, u16::MAX, 1]);
}
