use std::sync::Arc;

use flv::amf0::Value;
use proptest::prelude::*;

use super::*;
use crate::testing::*;
use crate::{Event, Limit, MediaKind, Violation};

fn config() -> Arc<ClientConfig> {
    Arc::new(ClientConfig {
        app: "live".to_owned(),
        tc_url: "rtmp://10.0.0.1/live".to_owned(),
        stream: "s1?token=secret".to_owned(),
        via: vec!["node-a".to_owned(), "node-b".to_owned()],
        ..ClientConfig::default()
    })
}

fn digest() -> Arc<ClientConfig> {
    Arc::new(ClientConfig { digest: true, ..(*config()).clone() })
}

fn pusher(config: Arc<ClientConfig>) -> Client {
    Client::publish(start(), config, Seed::from_number(3))
}

fn puller() -> Client {
    Client::play(start(), config(), Seed::from_number(4))
}

/// Feeds the output of a server to the client: a handshake, then `bytes`.
fn fed(mut client: Client, bytes: &[u8]) -> (Client, Vec<ClientEvent>) {
    let now = start();
    let _ = client.handle_bytes(now, &shake());
    let _ = client.handle_bytes(now, bytes);
    let mut events = Vec::new();
    while let Some(event) = client.poll_event() {
        events.push(event);
    }
    (client, events)
}

/// Makes all answers of a server up to the point at which media may follow.
fn consent() -> Vec<u8> {
    let information = Value::object([("code", text("NetStream.Play.Start")), ("level", text("status"))]);
    [
        invoke(0, "_result", 1.0, &[Value::Null, Value::Null]),
        invoke(0, "_result", 4.0, &[Value::Null, Value::Number(1.0)]),
        invoke(1, "onStatus", 0.0, &[Value::Null, information]),
    ]
    .concat()
}

#[test]
fn a_push_reaches_the_server_through_any_cut_of_the_stream() {
    for (cut, config) in
        (1..40).chain([127, 128, 129, 1536, 1537, 4096]).flat_map(|cut| [(cut, config()), (cut, digest())])
    {
        let mut pump = Pump::new(pusher(config), cut);
        pump.run();
        assert_eq!(pump.client_events, [ClientEvent::Ready { message_stream: 1 }], "cut {cut}");
        let Some(Event::Connect(request)) = pump.rig.events.first() else { panic!("{:?}", pump.rig.events) };
        assert_eq!(
            (request.app(), request.via.as_slice()),
            (Ok("live"), ["node-a", "node-b"].map(str::to_owned).as_slice())
        );
        let Some(Event::Publish(request)) = pump.rig.events.get(1) else { panic!("{:?}", pump.rig.events) };
        let target = request.target().unwrap();
        assert_eq!((target.stream.as_str(), target.param("token")), ("s1", Some("secret")));
        let sent = [media(MediaKind::Video, u32::MAX, &[7; 70_000]), media(MediaKind::Audio, 5, b"\xaf\x01")];
        for message in &sent {
            pump.client.send(pump.rig.now, message);
        }
        pump.run();
        assert_eq!(pump.rig.media(), sent);
        pump.client.close(pump.rig.now, CloseReason::Requested);
        pump.run();
        assert_eq!(pump.rig.events.last(), Some(&Event::PublishEnded { message_stream: 1, clean: true }));
        assert_eq!(pump.client_events.last(), Some(&ClientEvent::Closed(CloseReason::Requested)));
    }
}

#[test]
fn a_pull_receives_what_the_server_sends() {
    for cut in [1, 2, 3, 100, 4096] {
        let mut pump = Pump::new(puller(), cut);
        pump.run();
        assert!(
            matches!(pump.rig.events.get(1), Some(Event::Play(request)) if request.target().unwrap().stream == "s1")
        );
        assert_eq!(pump.client_events.first(), Some(&ClientEvent::Ready { message_stream: 1 }));
        let sent = media(MediaKind::Video, 0x0100_0000, &[7; 200_000]);
        pump.rig.server.send(pump.rig.now, &sent);
        pump.run();
        assert_eq!(pump.client_events.last(), Some(&ClientEvent::Media(sent)));
        let now = pump.rig.now;
        pump.rig.server.end_play(now, 1);
        pump.run();
        assert_eq!(pump.client_events.last(), Some(&ClientEvent::Closed(CloseReason::PeerClosed)));
    }
}

#[test]
fn a_refusal_is_reported_with_its_reason() {
    let refuse = |level: &str| {
        let information = crate::command::information(level, "NetStream.Publish.BadName", "taken");
        invoke(1, "onStatus", 0.0, &[Value::Null, information])
    };
    let error = invoke(0, "_error", 1.0, &[Value::Null, crate::command::information("error", "a", "b")]);
    let rejected = |code: &str, description: &str| ClientEvent::Rejected {
        code: code.to_owned(),
        description: description.to_owned(),
    };
    let closed = ClientEvent::Closed(CloseReason::Rejected);
    let (_, events) = fed(pusher(config()), &refuse("error"));
    assert_eq!(events, [rejected("NetStream.Publish.BadName", "taken"), closed.clone()]);
    let (_, events) = fed(pusher(config()), &error);
    assert_eq!(events, [rejected("a", "b"), closed]);
    let (client, events) = fed(pusher(config()), &[refuse("status"), invoke(0, "_error", 2.0, &[])].concat());
    assert!(events.is_empty() && client.wants_bytes(), "{events:?}");
    assert!(!format!("{client:?} {:?}", config()).contains("secret"));
}

#[test]
fn a_stream_id_that_is_none_is_a_refusal() {
    for id in
        [Value::Number(f64::NAN), Value::Number(-1.0), Value::Number(1.5), Value::Number(1e18), Value::Null]
    {
        let bytes = [invoke(0, "_result", 1.0, &[]), invoke(0, "_result", 4.0, &[Value::Null, id])].concat();
        let (_, events) = fed(puller(), &bytes);
        assert_eq!(events.last(), Some(&ClientEvent::Closed(CloseReason::Rejected)));
    }
}

#[test]
fn a_silent_server_is_left() {
    let now = start();
    let mut client = pusher(config());
    client.handle_timeout(now + secs(6));
    assert_eq!(client.poll_event(), Some(ClientEvent::Closed(CloseReason::Timeout(Timer::Handshake))));

    let (mut client, _) = fed(puller(), &[]);
    client.handle_timeout(start() + secs(11));
    assert_eq!(client.poll_event(), Some(ClientEvent::Closed(CloseReason::Timeout(Timer::Command))));

    let (mut client, events) = fed(puller(), &[consent(), video(1, 0, b"x")].concat());
    assert_eq!(events.len(), 2);
    client.handle_timeout(start() + secs(5));
    assert_eq!(client.poll_event(), Some(ClientEvent::Closed(CloseReason::Timeout(Timer::Player))));
    assert_eq!((client.poll_event(), client.poll_timeout()), (None, None));
}

#[test]
fn u_20_a_hostile_server_hits_the_same_limits() {
    let failed = |bytes: &[u8]| {
        let (client, events) = fed(puller(), &[consent(), bytes.to_vec()].concat());
        assert!(!client.wants_bytes());
        match events.last() {
            Some(ClientEvent::Closed(CloseReason::Failed(error))) => error.clone(),
            other => panic!("{other:?}"),
        }
    };
    let violation = |bytes: &[u8]| match failed(bytes) {
        Error::Violation { violation, .. } => violation,
        Error::Limit { limit, .. } => panic!("{limit}"),
    };
    let limit = |bytes: &[u8]| match failed(bytes) {
        Error::Limit { limit, .. } => limit,
        Error::Violation { violation, .. } => panic!("{violation}"),
    };
    // M-04 (docs/robustness/rtmp.md): a chunk size of 0, or with bit 31 set, ends the connection.
    assert_eq!(violation(&control(1, &[0; 4])), Violation::ChunkSize(0));
    assert_eq!(violation(&control(1, &[0x80, 0, 0, 1])), Violation::ChunkSize(0x8000_0001));
    // M-05: too many chunk streams. M-06: a chunk stream that begins with a header that refers to an earlier one.
    let streams: Vec<u8> = (100..200).flat_map(|id| raw(id, 9, 1, 0, &[1; 10])).collect();
    assert_eq!(limit(&streams), Limit::ChunkStreams);
    assert_eq!(
        violation(&[&[0x89][..], &[0; 9]].concat()),
        Violation::FirstHeader { chunk_stream: 9, format: 2 }
    );
    // M-09: too many unknown messages. M-10: too many pings or commands.
    assert_eq!(limit(&raw(7, 99, 0, 0, b"?").repeat(1001)), Limit::BadMessages);
    assert_eq!(limit(&control(4, &[0, 6, 0, 0, 0, 1]).repeat(101)), Limit::CommandRate);
    assert_eq!(limit(&invoke(0, "onBWDone", 0.0, &[]).repeat(101)), Limit::CommandRate);
    // M-12: AMF objects that are nested too deeply.
    let deep = [b"\x02\0\x08onStatus\0\0\0\0\0\0\0\0\0".to_vec(), b"\x03\0\x01a".repeat(10_000)].concat();
    assert!(matches!(violation(&raw(3, 20, 0, 0, &deep)), Violation::Amf(flv::Error::TooDeep { .. })));
    // Strange but valid messages do not end the connection: the largest chunk size, which is reduced (M-04); absurd
    // windows and acknowledgements (M-08); an Abort of an unknown chunk stream.
    let odd = [
        control(1, &[0x7f, 0xff, 0xff, 0xff]),
        control(5, &[0xff; 4]),
        control(3, &[0xff; 4]),
        control(2, &[0, 0, 0, 99]),
        video(1, 7, b"\x17"),
    ];
    let (client, events) = fed(puller(), &[consent(), odd.concat()].concat());
    assert!(client.wants_bytes());
    assert!(matches!(events.last(), Some(ClientEvent::Media(media)) if media.timestamp == 7));
}

#[test]
fn u_20_what_is_no_rtmp_server_is_left_at_once() {
    let mut client = pusher(config());
    assert!(client.handle_bytes(start(), b"HTTP/1.1 400 Bad Request\r\n").is_err());
    assert!(matches!(client.poll_event(), Some(ClientEvent::Closed(CloseReason::Failed(_)))));
    assert_eq!(client.poll_event(), None);
    assert!(client.handle_bytes(start(), b"more").is_ok());
}

proptest! {
    #[test]
    fn u_20_random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..1500), ready in any::<bool>()) {
        let begun = if ready { consent() } else { Vec::new() };
        let _ = fed(puller(), &[begun.clone(), bytes.clone()].concat());
        let _ = fed(pusher(digest()), &[begun, bytes].concat());
    }
}
