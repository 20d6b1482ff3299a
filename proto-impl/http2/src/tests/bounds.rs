//! Tests of peers that try to exceed the limits (table in README.md).

use std::time::Duration;

use super::*;

/// Feeds `copies` outputs of `next`, or fewer if the connection ends. If it ends, returns the number of
/// outputs fed before the last one, and the number of bytes then waiting for the peer.
fn flood(
    rig: &mut Rig,
    copies: usize,
    mut next: impl FnMut(&mut Rig, usize) -> Vec<u8>,
) -> Option<(usize, usize)> {
    (0..copies).find_map(|n| {
        let bytes = next(rig, n);
        let result = rig.feed(&bytes);
        let unsent = rig.server.stats().unsent_bytes;
        result.is_err().then_some((n, unsent))
    })
}

#[test]
fn h_33_cheap_frames_are_counted() {
    let rows: [(&str, Vec<u8>); 8] = [
        ("PING", frame(Kind::Ping, 0, 0, &[0; 8])),
        ("PING with ACK", frame(Kind::Ping, flag::ACK, 0, &[0; 8])),
        ("SETTINGS", settings(&[(4, 1)])),
        ("SETTINGS with ACK", frame(Kind::Settings, flag::ACK, 0, &[])),
        ("PRIORITY", frame(Kind::Priority, 0, 9, &[0; 5])),
        ("unknown", frame(Kind::Unknown, 0, 0, &[])),
        ("empty DATA", frame(Kind::Data, 0, 1, &[])),
        ("WINDOW_UPDATE", update(0, 1)),
    ];
    for (name, bytes) in rows {
        let mut rig = Rig::new();
        rig.ask(1, &POST, false);
        let (taken, unsent) = flood(&mut rig, 5000, |_, _| bytes.clone()).expect(name);
        assert!((990..=1000).contains(&taken) && unsent < 32 * 1024, "{name}: {taken}, {unsent} bytes");
        assert!(matches!(rig.sent().last(), Some(Sent::GoAway(_, Code::ENHANCE_YOUR_CALM))), "{name}");
    }
}

#[test]
fn h_33_a_slow_rate_of_cheap_frames_goes_on() {
    let mut rig = Rig::new();
    rig.ask(1, &POST, false);
    let flooded = flood(&mut rig, 5000, |rig, _| {
        rig.now += Duration::from_millis(20);
        rig.bytes();
        frame(Kind::Ping, 0, 0, &[0; 8])
    });
    assert_eq!(flooded, None);
}

#[test]
fn h_32_rapid_resets_end_the_connection_and_leave_no_streams() {
    let mut rig = Rig::new();
    let (taken, _) = flood(&mut rig, 5000, |rig, n| {
        let id = u32::try_from(2 * n + 1).unwrap();
        [rig.headers(id, &GET, true), reset(id)].concat()
    })
    .unwrap();
    assert_eq!((taken, rig.server.stats().streams), (200, 0));
}

#[test]
fn h_32_requests_that_are_malformed_or_refused_are_counted() {
    for list in [&[("x", "y")][..], &GET] {
        let mut rig = Rig::with(Config { streams: 1, ..Config::default() });
        rig.ask(1, &GET, true);
        let (taken, _) = flood(&mut rig, 5000, |rig, n| {
            let id = u32::try_from(2 * n + 3).unwrap();
            rig.headers(id, list, true)
        })
        .unwrap();
        assert!(taken <= 200, "{taken}");
    }
}

#[test]
fn window_updates_are_earned_by_bodies() {
    let mut rig = Rig::new();
    rig.feed(&settings(&[(4, 1 << 30)])).unwrap();
    rig.ask(1, &GET, true);
    rig.server.respond(rig.now, ONE, 200, &[], false);
    let flooded = flood(&mut rig, 5000, |rig, _| {
        rig.server.send_body(rig.now, ONE, Bytes::from_static(&[0; 2048]));
        rig.bytes();
        update(0, 2048)
    });
    assert_eq!(flooded, None);
}

#[test]
fn h_33_a_window_of_one_byte_is_served_and_not_for_long() {
    let mut rig = Rig::new();
    rig.feed(&settings(&[(4, 1)])).unwrap();
    rig.ask(1, &GET, true);
    rig.server.respond(rig.now, ONE, 200, &[], false);
    rig.server.send_body(rig.now, ONE, Bytes::from_static(&[0; 60_000]));
    let (taken, _) = flood(&mut rig, 5000, |rig, n| {
        assert_eq!(rig.body(1), 1, "{n}");
        update(1, 1)
    })
    .unwrap();
    assert!((1000..1010).contains(&taken), "{taken}");
}

#[test]
fn h_34_header_blocks_are_bounded_in_frames_and_bytes() {
    let begin = frame(Kind::Headers, 0, 1, &[]);
    for (payload, most) in [(vec![], 17), (vec![0x20; 16_000], 3)] {
        let mut rig = Rig::new();
        rig.feed(&begin).unwrap();
        let (taken, _) = flood(&mut rig, 100, |_, _| frame(Kind::Continuation, 0, 1, &payload)).unwrap();
        assert!(taken < most, "{taken} of {}", payload.len());
        assert!(rig.server.stats().held_bytes == 0);
    }
}

#[test]
fn h_34_a_header_bomb_ends_the_connection() {
    let mut bomb = vec![0x82, 0x40, 0x01, b'x', 0x7f, 0xb9, 0x16];
    bomb.extend([b'a'; 3000]);
    bomb.extend([0xbe; 10_000]);
    let mut rig = Rig::new();
    let error = rig.feed(&frame(Kind::Headers, 5, 1, &bomb)).unwrap_err();
    assert_eq!(error.code(), Some(Code::COMPRESSION_ERROR));
}

#[test]
fn h_35_bodies_that_nobody_takes_stay_within_their_windows() {
    let mut rig = Rig::with(Config { stream_window: 30_000, connection_window: 65_535, ..Config::default() });
    rig.ask(1, &POST, false);
    rig.feed(&frame(Kind::Data, 0, 1, &[0; 16_384])).unwrap();
    rig.feed(&frame(Kind::Data, 0, 1, &[0; 16_384])).unwrap();
    assert_eq!(rig.sent(), [Sent::Reset(1, Code::FLOW_CONTROL_ERROR), Sent::Update(0, 32_768)]);
    for id in [3, 5, 7] {
        rig.ask(id, &POST, false);
        let result = rig.feed(&frame(Kind::Data, 0, id, &[0; 16_384])).and_then(|()| {
            let rest = frame(Kind::Data, 0, id, &[0; 13_000]);
            rig.feed(&rest)
        });
        if id == 7 {
            assert!(matches!(result, Err(Error::Peer { code: Code::FLOW_CONTROL_ERROR, .. })), "{result:?}");
        } else {
            assert_eq!(result, Ok(()));
        }
    }
}

#[test]
fn h_35_a_peer_that_does_not_read_is_not_read() {
    let mut rig = Rig::new();
    rig.ask(1, &GET, true);
    let mut out = SendQueue::new();
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    let mut steps = 0;
    while rig.server.wants_bytes() {
        rig.now += Duration::from_millis(10);
        rig.feed(&ping).unwrap();
        rig.server.poll_transmit(rig.now, &mut out);
        steps += 1;
        assert!(steps < 100_000, "never");
    }
    assert!(rig.server.stats().unsent_bytes < 330 * 1024);
    rig.server.handle_sent(rig.now, out.len());
    assert!(rig.server.wants_bytes());
}
