//! Limits that must be exact to the byte, and time limits that must be measured from the
//! right moment.

use super::*;

#[test]
fn h_11_exactly_as_much_as_may_wait_for_the_peer_stops_nothing_and_a_byte_more_does() {
    let answered = |limits: Limits| {
        let mut rig = Rig::with(limits);
        rig.connection.handle_bytes(rig.now, GET.repeat(2).as_bytes()).unwrap();
        rig.event().unwrap();
        rig.connection.respond(rig.now, 0, Response::text(200, "ok"));
        rig
    };
    let size = answered(Limits::default()).connection.stats().unsent_bytes;
    for (queued_bytes, goes_on) in [(size, true), (size - 1, false)] {
        let mut rig = answered(Limits { queued_bytes, ..Limits::default() });
        assert_eq!((rig.event().is_some(), rig.connection.wants_bytes()), (goes_on, goes_on));
    }
}

#[test]
fn what_is_held_and_what_waits_is_counted_to_the_byte() {
    let mut rig = Rig::new();
    rig.connection.handle_bytes(rig.now, format!("{GET}GET /").as_bytes()).unwrap();
    rig.event().unwrap();
    assert_eq!(rig.connection.stats().held_bytes, 5);
    rig.connection.respond(rig.now, 0, Response::text(200, "ok"));
    rig.connection.poll_transmit(&mut rig.out);
    let (queued, stats) = (rig.out.len(), rig.connection.stats());
    assert_eq!((stats.unsent_bytes, stats.bytes_out), (queued, queued as u64));
    assert_eq!((stats.requests, stats.bytes_in), (1, GET.len() as u64 + 5));
    rig.connection.handle_sent(rig.now, 10);
    assert_eq!(rig.connection.stats().unsent_bytes, queued - 10);
    let mut rig = Rig::new();
    rig.feed(post("Content-Length: 5\r\n") + "abc");
    assert_eq!(rig.connection.stats().held_bytes, 3, "of a body, too");
}

#[test]
fn what_was_looked_at_counts_before_it_is_complete() {
    let mut rig = Rig::new();
    let head = post("Transfer-Encoding: chunked\r\n");
    rig.feed(&head[..8]);
    assert_eq!(rig.connection.stats().scanned_bytes, 8);
    rig.feed(format!("{}5\r\nab", &head[8..]));
    assert_eq!(rig.connection.stats().scanned_bytes, head.len() as u64 + 3);
    rig.connection.close(rig.now);
    assert_eq!(rig.connection.stats().scanned_bytes, head.len() as u64 + 3, "nor is it forgotten at the end");
}

#[test]
fn h_20_the_first_head_has_its_time_from_the_accept_on() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_secs(5));
    rig.feed("GET");
    rig.pass(Duration::from_millis(4_999));
    assert!(!rig.connection.is_closing());
    rig.pass(Duration::from_millis(1));
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Error(Error::Timeout))));
}

#[test]
fn h_22_a_stall_counts_from_the_first_byte_that_waits_and_more_of_them_are_no_progress() {
    let mut rig = asked(GET);
    rig.now += Duration::from_secs(25);
    rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(9));
    rig.now += Duration::from_secs(20);
    rig.connection.handle_timeout(rig.now).unwrap();
    rig.connection.body(rig.now, Bytes::from("some"));
    rig.now += Duration::from_secs(9);
    rig.connection.handle_timeout(rig.now).unwrap();
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
}

#[test]
fn h_22_who_has_not_its_whole_answer_yet_is_not_idle_however_short_the_rest_may_be() {
    let mut rig = Rig::with(Limits { idle: Duration::from_secs(5), ..Limits::default() });
    rig.connection.handle_bytes(rig.now, GET.as_bytes()).unwrap();
    rig.event().unwrap();
    rig.connection.respond(rig.now, 0, Response::text(200, "ok"));
    rig.now += Duration::from_secs(29);
    rig.connection.handle_timeout(rig.now).unwrap();
    assert!(!rig.connection.is_closing());
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
}

#[test]
fn who_uses_a_method_that_is_not_allowed_is_told_which_are_and_nobody_else() {
    for (method, told) in [("TRACE", true), ("BREW", false), ("G<T", false)] {
        let mut rig = Rig::new();
        rig.feed(GET.replace("GET", method));
        assert_eq!(rig.text().contains("\r\nAllow: GET, "), told, "{method}: {}", rig.text());
    }
}
