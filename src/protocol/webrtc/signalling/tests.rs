use serde_json::Value;

use super::*;
use crate::protocol::webrtc::info::Bitrates;
use crate::types::{ConnId, WorkerId};

fn socket() -> Socket {
    Socket {
        app: "live".to_owned(),
        user_agent: String::new(),
        origin: String::new(),
        of_foreign_page: false,
        secret: 1,
        streams: Vec::new(),
        next: 0,
        records: VecDeque::new(),
        events: VecDeque::new(),
        actions: VecDeque::new(),
        granted: false,
        was_let_in: false,
        awaits_ice_servers: false,
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
    /// Commands that need no context.
    fn about_a_stream_or_not(&mut self, command: &Command) {
        self.within(|socket, ctx| socket.command(ctx, command));
    }

    /// Acts beside an application that has a server which relays.
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
    assert_eq!(said.len(), 3);
    assert_eq!(
        (&said[0]["command"], &said[1]["definition"]),
        (&"pong".into(), &"noStreamNameSpecified".into())
    );
    assert_eq!((&said[2]["definition"], &said[2]["streamId"]), (&"invalidStreamName".into(), &"a/b".into()));
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
    say(&mut socket, r#"{"command":"stop","streamId":"a"}"#);
    assert_eq!(socket.said()[0]["definition"], "publish_finished");
    assert!(matches!(socket.told()[..], [ToSession::End]));
    // What the old session still says is not the new one's.
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
    socket.spawned(Handle(0), Some(session(1)));
    socket.events.clear();
    say(&mut socket, r#"{"command":"toggleVideo","streamId":"a","trackId":"a","enabled":false}"#);
    say(&mut socket, r#"{"command":"toggleAudio","streamId":"a","trackId":"a","enabled":"false"}"#);
    let told = socket.told();
    assert!(matches!(told[0], ToSession::Want { video: false, audio: true }), "{told:?}");
    assert!(matches!(told[1], ToSession::Want { video: false, audio: false }), "{told:?}");
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
    // Being refused changes nothing.
    say(&mut socket, r#"{"command":"play","streamId":"a"}"#);
    socket.spawned(Handle(0), Some(session(1)));
    socket.hear(session(1), &FromSession::Refused(Refused::Play(NoSubscription::NotFound)));
    assert!(!socket.said().iter().any(|said| said.to_string().contains("CANARY")));
    // Who is let in is told before what needs it.
    say(&mut socket, r#"{"command":"publish","streamId":"b"}"#);
    socket.spawned(Handle(1), Some(session(2)));
    socket.hear(session(2), &FromSession::Granted);
    let said = socket.said();
    assert_eq!((&said[0]["turnServerCredential"], &said[1]["command"]), (&"CANARY".into(), &"start".into()));
    assert_eq!(said[0]["stunServerUri"], "turn:turn.example");
    say(&mut socket, ASK);
    assert_eq!(socket.said()[0]["turnServerCredential"], "CANARY");
    // Those streams that it was let in to are said when a record is asked for.
    socket.events.clear();
    say(&mut socket, r#"{"command":"getBroadcastObject","streamId":"c"}"#);
    assert!(
        matches!(&socket.events[0], Event::Request(RequestEvent::Record { let_in, .. }) if *let_in == ["b"])
    );
}
