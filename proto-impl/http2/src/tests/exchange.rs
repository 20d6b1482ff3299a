//! Tests of requests, responses, windows and ends.

use std::time::Duration;

use super::*;

#[test]
fn the_servers_preface_says_what_it_takes() {
    let mut rig = Rig::silent(Config::default());
    let sent = rig.sent();
    let [Sent::Settings(list), Sent::Update(0, more)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(*more, 1024 * 1024 - 65_535);
    let has = |id: u16, value: u32| {
        list.chunks(6).any(|entry| entry == [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
    };
    assert!(has(3, 100) && has(4, 256 * 1024) && has(6, 16 * 1024) && has(8, 1) && has(9, 1), "{list:?}");
}

#[test]
fn a_request_is_answered_with_head_body_and_trailers() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    let events = rig.events();
    let [Event::Request { stream: ONE, request, has_body: false }, Event::BodyEnd { .. }] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((&request.method[..], &request.path[..]), (&b"GET"[..], &b"/"[..]));
    assert!(rig.server.respond(rig.now, ONE, 103, &[], false), "an informational response");
    assert!(rig.server.respond(rig.now, ONE, 200, &[Field::new("x", "y")], false));
    assert!(!rig.server.respond(rig.now, ONE, 200, &[], true), "a second one");
    rig.server.send_body(rig.now, ONE, Bytes::from_static(b"ab"));
    rig.server.send_body(rig.now, ONE, Bytes::from_static(b"c"));
    rig.server.end_body(ONE, vec![Field::new("sum", "1")]);
    rig.server.send_body(rig.now, ONE, Bytes::from_static(b"late"));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        rig.sent(),
        [
            Sent::Headers(1, vec![pair(":status", "103")], false),
            Sent::Headers(1, vec![pair(":status", "200"), pair("x", "y")], false),
            Sent::Data(1, b"abc".to_vec(), false),
            Sent::Headers(1, vec![pair("sum", "1")], true),
        ]
    );
    assert_eq!((rig.events(), rig.server.stats().streams), (vec![], 0));
}

#[test]
fn a_body_without_bytes_ends_with_an_empty_frame() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    rig.server.respond(rig.now, ONE, 200, &[], false);
    rig.server.end_body(ONE, vec![]);
    assert!(matches!(&rig.sent()[1..], [Sent::Data(1, data, true)] if data.is_empty()));
    rig.ask(3, &GET, true);
    rig.server.respond(rig.now, StreamId(3), 204, &[], true);
    assert!(matches!(&rig.sent()[..], [Sent::Headers(3, _, true)]));
    assert_eq!(rig.server.stats().streams, 0);
}

#[test]
fn a_body_comes_in_parts_with_padding_and_trailers_and_its_window_is_given_back() {
    let config = Config { stream_window: 100, connection_window: 65_535, ..Config::default() };
    let mut rig = Rig::with(config);
    rig.ask(1, &POST, false);
    rig.feed(&frame(Kind::Data, flag::PADDED, 1, &[3, b'a', b'b', 0, 0, 0])).unwrap();
    rig.feed(&frame(Kind::Data, 0, 1, &[b'c'; 60])).unwrap();
    let trailers = rig.headers(1, &[("sum", "1")], true);
    let events = rig.events();
    let [Event::Request { has_body: true, .. }, Event::Body { bytes: first, .. }, Event::Body { bytes, .. }] =
        &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((&first[..], bytes.len()), (&b"ab"[..], 60));
    assert_eq!(rig.sent(), []);
    rig.server.release(rig.now, ONE, 2);
    assert_eq!(rig.sent(), [], "not half of it yet");
    rig.server.release(rig.now, ONE, 999);
    assert_eq!(rig.sent(), [Sent::Update(1, 66)]);
    rig.feed(&trailers).unwrap();
    assert!(matches!(&rig.events()[..], [Event::BodyEnd { trailers, .. }] if trailers.len() == 1));
}

#[test]
fn the_windows_of_stream_and_connection_bound_what_is_sent() {
    let mut rig = Rig::new();
    for id in [1, 3] {
        rig.ask(id, &GET, true);
        rig.server.respond(rig.now, StreamId(id), 200, &[], false);
        rig.server.send_body(rig.now, StreamId(id), Bytes::from(vec![0; 100_000]));
        rig.server.end_body(StreamId(id), vec![]);
    }
    let sent = rig.sent();
    let mut turns = Vec::new();
    for sent in &sent {
        if let Sent::Data(id, data, _) = sent {
            turns.push((*id, data.len()));
        }
    }
    assert_eq!(
        turns,
        [(1, 16375), (3, 16375), (1, 16375), (3, 16375), (1, 35)],
        "each in turn, 65 535 in all"
    );
    rig.feed(&update(0, 1_000_000)).unwrap();
    assert_eq!(rig.body(1), 65_535 - 2 * 16_375 - 35, "the rest of the stream's window");
    rig.feed(&update(1, 1_000_000)).unwrap();
    let sent = rig.sent();
    assert!(matches!(sent.last(), Some(Sent::Data(1, _, true))), "{sent:?}");
    rig.feed(&settings(&[(4, 70_000)])).unwrap();
    assert_eq!(rig.body(3), 70_000 - 65_535, "a larger window of settings counts for open streams");
    rig.feed(&settings(&[(4, 0)])).unwrap();
    rig.feed(&update(3, 69_999)).unwrap();
    assert_eq!(rig.body(3), 0, "and a smaller one may make it negative");
    rig.feed(&update(3, 30_001)).unwrap();
    assert_eq!((rig.body(3), rig.server.stats().streams), (30_000, 0));
}

#[test]
fn the_transport_bounds_what_is_made_and_its_progress_is_reported() {
    let config = Config { send_ahead_bytes: 40_000, sent_step_bytes: 20_000, ..Config::default() };
    let mut rig = Rig::with(config);
    rig.feed(&settings(&[(4, 1 << 30)])).unwrap();
    rig.feed(&update(0, 1 << 30)).unwrap();
    rig.sent();
    rig.ask(1, &GET, true);
    rig.events();
    rig.server.respond(rig.now, ONE, 200, &[], false);
    rig.server.send_body(rig.now, ONE, Bytes::from(vec![0; 60_000]));
    let mut out = SendQueue::new();
    assert!(rig.server.poll_transmit(rig.now, &mut out));
    assert!((40_000..57_000).contains(&out.len()), "{}", out.len());
    assert!(!rig.server.poll_transmit(rig.now, &mut out));
    assert_eq!(rig.server.queued(ONE), 60_000 - 3 * 16_375);
    assert_eq!(rig.events(), [Event::Sent { stream: ONE, bytes: 2 * 16_375 }]);
    rig.server.handle_sent(rig.now, out.len());
    assert!(rig.server.poll_transmit(rig.now, &mut out));
    assert_eq!(rig.events(), [Event::Sent { stream: ONE, bytes: 60_000 - 2 * 16_375 }]);
}

#[test]
fn an_answer_before_the_end_of_its_request_ends_it_too() {
    let mut rig = Rig::new();
    rig.ask(1, &POST, false);
    rig.events();
    rig.server.respond(rig.now, ONE, 413, &[], true);
    let sent = rig.sent();
    assert!(matches!(&sent[..], [Sent::Headers(1, _, true), Sent::Reset(1, Code::NO_ERROR)]), "{sent:?}");
    rig.feed(&frame(Kind::Data, 0, 1, &[0; 100])).unwrap();
    assert_eq!((rig.events(), rig.sent()), (vec![], vec![]), "what was under way is passed over");
}

#[test]
fn streams_beyond_the_limit_are_refused_and_their_blocks_still_count() {
    let mut rig = Rig::with(Config { streams: 1, ..Config::default() });
    rig.ask(1, &GET, true);
    rig.ask(3, &[&GET[..], &[("custom", "one")]].concat(), true);
    assert_eq!(rig.sent(), [Sent::Reset(3, Code::REFUSED_STREAM)]);
    rig.events();
    rig.server.respond(rig.now, ONE, 200, &[], true);
    rig.ask(5, &[&GET[..], &[("custom", "one")]].concat(), true);
    let events = rig.events();
    let Some(Event::Request { request, .. }) = events.first() else { panic!("{events:?}") };
    assert_eq!(request.fields, [Field::new("custom", "one")], "by an index into the table");
}

#[test]
fn h_34_a_header_list_over_the_limit_is_answered_with_431() {
    for config in
        [Config { fields: 3, ..Config::default() }, Config { header_list_bytes: 100, ..Config::default() }]
    {
        let mut rig = Rig::with(config);
        rig.ask(1, &GET, true);
        rig.ask(3, &POST, false);
        let sent = rig.sent();
        let status = |id, is_last| Sent::Headers(id, vec![(":status".into(), "431".into())], is_last);
        assert_eq!(sent, [status(1, true), status(3, true), Sent::Reset(3, Code::NO_ERROR)]);
        assert_eq!((rig.events(), rig.server.stats().streams), (vec![], 0));
    }
}

#[test]
fn a_block_in_several_frames_is_one() {
    let mut rig = Rig::new();
    let whole = rig.headers(1, &GET, true);
    let block = &whole[HEADER_BYTES..];
    rig.feed(&frame(Kind::Headers, flag::END_STREAM, 1, &block[..2])).unwrap();
    rig.feed(&frame(Kind::Continuation, 0, 1, &[])).unwrap();
    assert_eq!(rig.events(), []);
    rig.feed(&frame(Kind::Continuation, flag::END_HEADERS, 1, &block[2..])).unwrap();
    assert_eq!(rig.events().len(), 2);
}

#[test]
fn a_head_larger_than_a_frame_goes_on_in_continuations() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    let long: String = "\u{7f}".repeat(40_000);
    rig.server.respond(rig.now, ONE, 200, &[Field::new("x", long.clone())], true);
    let sent = rig.sent();
    let [Sent::Headers(1, list, true)] = &sent[..] else { panic!() };
    assert_eq!(list[1].1, long);
}

#[test]
fn a_websocket_begins_with_an_extended_connect() {
    let mut rig = Rig::new();
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/ws"),
        (":authority", "h"),
    ];
    rig.ask(1, &connect, false);
    let events = rig.events();
    let [Event::Request { request, has_body: true, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(request.protocol.as_deref(), Some(&b"websocket"[..]));
    rig.server.respond(rig.now, ONE, 200, &[], false);
    rig.feed(&frame(Kind::Data, 0, 1, b"to")).unwrap();
    rig.server.send_body(rig.now, ONE, Bytes::from_static(b"fro"));
    assert_eq!(rig.events(), [Event::Body { stream: ONE, bytes: Bytes::from_static(b"to") }]);
    assert_eq!(rig.body(1), 3);
}

#[test]
fn pings_and_settings_are_answered() {
    let mut rig = Rig::new();
    rig.feed(&frame(Kind::Ping, 0, 0, b"12345678")).unwrap();
    rig.feed(&frame(Kind::Ping, flag::ACK, 0, b"12345678")).unwrap();
    rig.feed(&settings(&[(1, 100), (0x77, 1), (5, 20_000)])).unwrap();
    rig.feed(&frame(Kind::Settings, flag::ACK, 0, &[])).unwrap();
    assert_eq!(rig.sent(), [Sent::Pong(*b"12345678"), Sent::SettingsAck]);
}

#[test]
fn a_shutdown_waits_for_what_is_under_way() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    rig.events();
    rig.server.close(rig.now);
    rig.server.close(rig.now);
    assert_eq!(rig.sent(), [Sent::GoAway(1, Code::NO_ERROR)]);
    rig.ask(3, &GET, true);
    assert_eq!((rig.sent(), rig.events()), (vec![Sent::Reset(3, Code::REFUSED_STREAM)], vec![]));
    assert!(rig.server.wants_bytes());
    rig.server.respond(rig.now, ONE, 200, &[], true);
    assert_eq!(rig.events(), [closed(CloseReason::Shutdown)]);
    assert!(matches!(&rig.sent()[..], [Sent::Headers(1, ..), Sent::GoAway(3, Code::NO_ERROR)]));
    assert!(rig.server.is_closing() && !rig.server.wants_bytes());
    rig.server.handle_eof(rig.now);
    assert_eq!(rig.events(), [], "the last event comes once");
}

#[test]
fn a_peer_that_leaves_gets_what_it_has_asked_for() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    rig.feed(&frame(Kind::GoAway, 0, 0, &[0; 8])).unwrap();
    rig.events();
    rig.server.respond(rig.now, ONE, 200, &[], true);
    assert_eq!(rig.events(), [closed(CloseReason::PeerClosed)]);
}

#[test]
fn a_peer_that_is_gone_ends_all_streams_with_one_event() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, false);
    rig.server.handle_eof(rig.now);
    assert_eq!(rig.events(), [closed(CloseReason::PeerClosed)]);
    rig.server.send_body(rig.now, ONE, Bytes::from_static(b"x"));
    rig.server.release(rig.now, ONE, 1);
    rig.server.reset(rig.now, ONE, Code::CANCEL);
    assert_eq!((rig.events(), rig.server.poll_timeout()), (vec![], None));
}

#[test]
fn what_a_reset_stream_held_of_the_connections_window_is_given_back() {
    let config = Config { stream_window: 50_000, connection_window: 65_535, ..Config::default() };
    let mut rig = Rig::with(config);
    for id in [1, 3, 5, 7] {
        rig.ask(id, &POST, false);
        for _ in 0..3 {
            rig.feed(&frame(Kind::Data, 0, id, &[0; 16_000])).unwrap();
        }
        rig.server.reset(rig.now, StreamId(id), Code::CANCEL);
    }
    let updates: u32 =
        rig.sent().iter().map(|sent| if let Sent::Update(0, by) = sent { *by } else { 0 }).sum();
    assert!(updates >= 4 * 48_000 - 32_768, "{updates}");
}

#[test]
fn deadlines_end_what_does_not_go_on() {
    let secs = Duration::from_secs;
    let whole = [PREFACE, &frame(Kind::Settings, 0, 0, &[])].concat();
    let cut_data = [&whole[..], &frame(Kind::Data, 0, 1, &[0; 5000])[..20]].concat();
    let block = [&whole[..], &frame(Kind::Headers, 0, 1, &[0x82])].concat();
    let table: [(&[u8], u64, CloseReason); 5] = [
        (b"", 10, CloseReason::Error(Error::Timeout)),
        (&PREFACE[..9], 10, CloseReason::Error(Error::Timeout)),
        (&whole, 10, CloseReason::Idle),
        (&cut_data, 10, CloseReason::Idle),
        (&block, 10, CloseReason::Error(Error::Timeout)),
    ];
    for (bytes, after, reason) in table {
        let mut rig = Rig::silent(Config::default());
        rig.feed(bytes).unwrap();
        rig.sent();
        let deadline = rig.server.poll_timeout().unwrap();
        assert_eq!(deadline, rig.now + secs(after), "{reason}");
        assert_eq!(rig.server.handle_timeout(deadline - Duration::from_millis(1)), Ok(()));
        assert_eq!(rig.events(), []);
        let _ = rig.server.handle_timeout(deadline);
        assert_eq!(rig.events(), [closed(reason)]);
        assert!(matches!(rig.sent()[..], [Sent::GoAway(_, Code::NO_ERROR)]));
    }
}

#[test]
fn a_frame_in_a_body_has_the_time_that_its_length_earns() {
    let mut rig = Rig::new();
    rig.ask(1, &POST, false);
    rig.feed(&frame(Kind::Data, 0, 1, &[0; 5000])[..20]).unwrap();
    rig.sent();
    let deadline = rig.server.poll_timeout().unwrap();
    assert_eq!(deadline, rig.now + Duration::from_secs(20));
    assert_eq!(rig.server.handle_timeout(deadline), Err(Error::Timeout));
}

#[test]
fn an_idle_connection_ends_and_a_busy_one_does_not() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    rig.events();
    rig.sent();
    assert_eq!(rig.server.poll_timeout(), None, "the application may take its time");
    rig.now += Duration::from_secs(1000);
    rig.server.respond(rig.now, ONE, 200, &[], true);
    rig.sent();
    assert_eq!(rig.server.poll_timeout(), Some(rig.now + Duration::from_secs(75)));
    rig.now += Duration::from_secs(75);
    rig.server.handle_timeout(rig.now).unwrap();
    assert_eq!(rig.events(), [closed(CloseReason::Idle)]);
}

#[test]
fn h_35_a_stream_without_progress_is_reset_and_another_goes_on() {
    let mut rig = Rig::new();
    rig.feed(&settings(&[(4, 10)])).unwrap();
    for id in [1, 3] {
        rig.ask(id, &GET, true);
        rig.server.respond(rig.now, StreamId(id), 200, &[], false);
        rig.server.send_body(rig.now, StreamId(id), Bytes::from_static(&[0; 1000]));
    }
    rig.events();
    rig.sent();
    rig.now += Duration::from_secs(20);
    rig.feed(&update(3, 1)).unwrap();
    rig.sent();
    rig.now += Duration::from_secs(10);
    assert!(rig.server.poll_timeout().is_some_and(|at| at <= rig.now));
    rig.server.handle_timeout(rig.now).unwrap();
    assert_eq!(rig.events(), [Event::Reset { stream: ONE, code: Code::CANCEL }]);
    assert_eq!(rig.sent(), [Sent::Reset(1, Code::CANCEL)]);
    assert_eq!(rig.server.poll_timeout(), Some(rig.now + Duration::from_secs(20)));
}

#[test]
fn h_35_a_peer_that_reads_nothing_is_dropped() {
    let mut rig = Rig::silent(Config::default());
    rig.feed(PREFACE).unwrap();
    rig.feed(&frame(Kind::Settings, 0, 0, &[])).unwrap();
    rig.ask(1, &GET, true);
    rig.events();
    let deadline = rig.now + Duration::from_secs(30);
    assert_eq!(rig.server.poll_timeout(), Some(deadline));
    assert_eq!(rig.server.handle_timeout(deadline), Err(Error::WriteStalled));
    assert_eq!(rig.events(), [closed(CloseReason::Error(Error::WriteStalled))]);
    assert!(rig.bytes().is_empty());
}
