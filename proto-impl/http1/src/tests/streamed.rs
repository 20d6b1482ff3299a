//! Bodies that the application reads as they arrive.

use super::*;

const WINDOW: usize = 256 * 1024;

#[derive(Debug)]
struct Everything;

impl BodyLimits for Everything {
    fn body_bytes_max(&self, _: &str) -> Option<usize> {
        None
    }

    fn intake(&self, method: Method, _: &str, _: &[(String, String)]) -> Intake {
        match method {
            Method::Post => Intake::Streamed,
            Method::Put => Intake::AfterHead,
            Method::Get | Method::Head | Method::Delete | Method::Options | Method::Patch => Intake::Whole,
        }
    }
}

/// Makes a connection with a request whose body must be accepted first.
fn asked(head: &str) -> Rig {
    let mut rig = Rig::new();
    rig.connection = Connection::new(rig.now, Arc::default()).with_bodies(&Everything);
    rig.feed(post(head));
    let request = rig.event().unwrap();
    assert!(request.body.is_empty() && rig.connection.has_incoming_body());
    assert_eq!(request.body_waits, !head.starts_with("Content-Length: 0"));
    rig
}

#[test]
fn a_body_without_bytes_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.connection = Connection::new(rig.now, Arc::default()).with_bodies(&Everything);
    rig.feed(post("Content-Length: 0\r\n"));
    assert!(!rig.event().unwrap().body_waits);
}

fn take(rig: &mut Rig, bytes_max: u64) {
    rig.connection.take_body(rig.now, bytes_max);
    rig.deliver();
}

fn came(rig: &mut Rig) -> usize {
    std::iter::from_fn(|| rig.connection.poll_body(rig.now)).map(|block| block.len()).sum()
}

#[test]
fn r_45_no_more_than_a_window_is_held_and_the_connection_goes_on() {
    for chunked in [false, true] {
        let total = 4 * WINDOW;
        let mut rig = asked(&if chunked {
            "Transfer-Encoding: chunked\r\n".to_owned()
        } else {
            format!("Content-Length: {total}\r\n")
        });
        take(&mut rig, total as u64);
        let mut left = if chunked {
            let chunk = [b"4000\r\n".as_slice(), &[7; 0x4000], b"\r\n"].concat();
            [chunk.repeat(total / 0x4000).as_slice(), b"0\r\n\r\n"].concat()
        } else {
            vec![7; total]
        };
        left.extend_from_slice(GET.as_bytes());
        let (mut got, mut fed) = (0, 0);
        while !rig.connection.is_body_complete() {
            while rig.connection.wants_bytes() && fed < left.len() {
                let end = left.len().min(fed + 20_000);
                rig.feed(&left[fed..end]);
                fed = end;
            }
            let held = rig.connection.stats().held_bytes;
            assert!(held <= WINDOW + 40_000, "{held}");
            got += came(&mut rig);
        }
        assert_eq!(got, total);
        rig.respond(Response::text(200, "ok"));
        if fed < left.len() {
            rig.feed(&left[fed..]);
        }
        assert_eq!(rig.serve().len(), 1, "the next request");
        assert!(rig.closed.is_none());
    }
}

#[test]
fn r_45_a_body_is_invited_only_when_it_is_taken() {
    let mut rig = asked("Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_eq!(rig.text(), "");
    take(&mut rig, 5);
    assert!(!rig.connection.has_incoming_body(), "it is taken");
    assert_eq!(rig.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    rig.feed("hello");
    assert_eq!((came(&mut rig), rig.connection.is_body_complete()), (5, true));
    // If a response is sent before the body is accepted, the connection closes after the response.
    let mut rig = asked("Expect: 100-continue\r\nContent-Length: 5\r\n");
    rig.respond(Response::error(403, "no"));
    assert!(rig.text().starts_with("HTTP/1.1 403 ") && rig.text().contains("Connection: close"));
    assert!(rig.connection.is_closing());
}

#[test]
fn r_45_a_body_has_its_limit_whether_it_is_told_or_not() {
    let mut rig = asked("Content-Length: 6\r\n");
    take(&mut rig, 5);
    assert!(rig.text().starts_with("HTTP/1.1 413 ") && rig.connection.is_closing());
    let mut rig = asked("Transfer-Encoding: chunked\r\n");
    take(&mut rig, 5);
    rig.feed("3\r\nabc\r\n");
    assert_eq!(came(&mut rig), 3);
    rig.feed("3\r\nabc\r\n");
    assert!(rig.text().starts_with("HTTP/1.1 413 ") && rig.connection.is_closing());
    assert_eq!(came(&mut rig), 0);
}

#[test]
fn r_45_a_slow_body_is_given_up_and_one_that_must_wait_is_not() {
    let mut rig = asked("Content-Length: 100000000\r\n");
    take(&mut rig, u64::MAX);
    // A fast start does not make up for a slow part later.
    for _ in 0..10 {
        rig.feed(vec![0; 100_000]);
        came(&mut rig);
    }
    rig.pass(Duration::from_secs(9));
    rig.feed(vec![0; 10_000]);
    rig.pass(Duration::from_secs(9));
    assert!(!rig.connection.is_closing());
    rig.pass(Duration::from_secs(11));
    assert!(rig.text().starts_with("HTTP/1.1 408 "), "{}", rig.text());
    // The peer is not to blame for this pause, because the window is full.
    let mut rig = asked("Content-Length: 100000000\r\n");
    take(&mut rig, u64::MAX);
    while rig.connection.wants_bytes() {
        rig.feed(vec![0; 16_000]);
    }
    rig.pass(Duration::from_secs(1000));
    assert!(!rig.connection.is_closing());
    came(&mut rig);
    rig.pass(Duration::from_secs(9));
    assert!(!rig.connection.is_closing());
    // If the peer closes its side, the connection ends; the incomplete body does not count as complete.
    rig.connection.handle_eof(rig.now);
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::PeerClosed));
}

#[test]
fn h_22_an_answer_that_is_taken_slowly_is_no_idling_and_the_rest_begins_with_its_last_byte() {
    for in_blocks in [false, true] {
        let mut rig = super::asked(GET);
        if in_blocks {
            assert!(rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(100_000)));
            rig.connection.body(rig.now, Bytes::from(vec![b'x'; 100_000]));
            rig.connection.end_body(rig.now);
        } else {
            rig.connection.respond(rig.now, 0, Response::text(200, vec![b'x'; 100_000]));
        }
        rig.connection.poll_transmit(&mut rig.out);
        let mut left = rig.out.take_all().len();
        // Nearly seven minutes, with steady progress.
        for _ in 0..20 {
            rig.now += Duration::from_secs(20);
            rig.connection.handle_timeout(rig.now).unwrap();
            rig.connection.handle_sent(rig.now, 5000);
            left -= 5000;
            assert!(!rig.connection.is_closing(), "with {left} bytes to go");
        }
        rig.connection.handle_sent(rig.now, left);
        rig.pass(Duration::from_secs(74));
        assert!(!rig.connection.is_closing());
        rig.pass(Duration::from_secs(1));
        assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Idle));
    }
}

#[test]
fn h_22_a_write_of_nothing_is_no_progress() {
    let mut rig = super::asked(GET);
    rig.connection.respond(rig.now, 0, Response::text(200, vec![b'x'; 100_000]));
    rig.now += Duration::from_secs(29);
    rig.connection.handle_sent(rig.now, 0);
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
}

#[test]
fn h_20_a_head_that_comes_slowly_is_not_given_more_time_by_the_answer_before_it() {
    let mut rig = super::asked(GET);
    rig.connection.respond(rig.now, 0, Response::text(200, vec![b'x'; 100_000]));
    rig.connection.handle_bytes(rig.now, b"GET /slow").unwrap();
    rig.now += Duration::from_secs(9);
    rig.deliver();
    rig.pass(Duration::from_secs(1));
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Error(Error::Timeout)));
}

#[test]
fn h_11_what_comes_behind_a_request_is_held_and_what_comes_to_an_endless_answer_ignored_up_to_a_limit() {
    let limits = Limits::default();
    let most = limits.held_bytes + 1024 * 1024;
    let mut rig = super::asked(GET);
    rig.connection.handle_bytes(rig.now, &vec![b'x'; most]).unwrap();
    assert_eq!(rig.connection.handle_bytes(rig.now, b"x"), Err(Error::Overrun));
    let mut rig = super::asked(GET);
    rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::UntilClose);
    rig.connection.handle_bytes(rig.now, &vec![b'x'; limits.held_bytes]).unwrap();
    assert!(!rig.connection.is_closing());
    rig.connection.handle_bytes(rig.now, b"x").unwrap();
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Error(Error::Overrun)));
}

#[test]
fn r_45_a_body_that_is_exactly_as_fast_as_it_has_to_be_goes_on() {
    let rate = |bytes: usize| {
        let mut rig = asked("Content-Length: 1000000\r\n");
        take(&mut rig, 1_000_000);
        for _ in 0..5 {
            rig.feed("x".repeat(bytes));
            came(&mut rig);
            rig.pass(Duration::from_secs(10));
        }
        !rig.connection.is_closing()
    };
    assert!(rate(5000) && !rate(4999));
}

#[test]
fn r_45_a_body_that_is_not_taken_yet_is_not_read_and_has_no_deadline() {
    let mut rig = asked("Content-Length: 100000000\r\n");
    assert!(rig.connection.wants_bytes());
    rig.feed([0]);
    assert!(!rig.connection.wants_bytes());
    // The transport had read these bytes before reading was stopped.
    let most = 64 * 1024;
    rig.feed(vec![0; most]);
    assert_eq!(rig.connection.stats().held_bytes, most + 1);
    rig.pass(Duration::from_secs(1000));
    assert!(!rig.connection.is_closing());
    take(&mut rig, u64::MAX);
    assert_eq!(came(&mut rig), most + 1);
}

#[test]
fn r_45_a_window_is_full_beyond_its_last_byte_and_only_then_the_peer_has_more_time() {
    for is_full in [false, true] {
        let mut rig = asked("Content-Length: 100000000\r\n");
        take(&mut rig, u64::MAX);
        rig.feed(vec![0; WINDOW + usize::from(is_full)]);
        assert_eq!(rig.connection.wants_bytes(), !is_full);
        // The peer was fast for ten seconds and has been silent since.
        rig.pass(Duration::from_secs(15));
        came(&mut rig);
        rig.pass(Duration::from_secs(5));
        assert_eq!(rig.connection.is_closing(), !is_full);
        rig.pass(Duration::from_secs(5));
        assert!(rig.text().starts_with("HTTP/1.1 408 "), "{}", rig.text());
    }
}

#[test]
fn r_45_a_body_without_bytes_is_complete_when_it_is_taken() {
    let mut rig = asked("Content-Length: 0\r\n");
    assert!(!rig.connection.is_body_complete());
    take(&mut rig, 5);
    assert!(rig.connection.is_body_complete());
}

#[test]
fn r_45_who_ends_its_side_behind_a_body_gets_its_answer() {
    for total in [5, 2 * WINDOW] {
        let mut rig = asked(&format!("Content-Length: {total}\r\n"));
        take(&mut rig, total as u64);
        rig.feed(vec![0; total]);
        rig.connection.handle_eof(rig.now);
        assert_eq!(came(&mut rig), total, "also what was beyond the window");
        assert!(rig.connection.is_body_complete());
        rig.respond(Response::text(200, "ok"));
        assert!(rig.text().starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn r_45_a_body_that_is_complete_has_no_deadline_and_requests_behind_it_are_held_up_to_the_limit() {
    let mut rig = asked("Content-Length: 5\r\n");
    take(&mut rig, 5);
    rig.feed("hello");
    assert_eq!(came(&mut rig), 5);
    rig.pass(Duration::from_secs(1000));
    assert!(!rig.connection.is_closing());
    rig.feed(vec![b'x'; Limits::default().held_bytes]);
    assert!(rig.connection.wants_bytes());
    rig.feed("x");
    assert!(!rig.connection.wants_bytes());
}

#[test]
fn r_45_of_a_body_that_is_answered_before_its_end_no_more_is_held_than_what_came_at_once() {
    let mut rig = asked("Content-Length: 100000000\r\n");
    take(&mut rig, u64::MAX);
    rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(9));
    assert!(rig.connection.wants_bytes());
    rig.feed([0]);
    assert!(!rig.connection.wants_bytes());
}

/// Sends a PUT with the header lines `lines` and the beginning `begun` of its body. Returns the connection and
/// the request.
fn put(lines: &str, begun: &str) -> (Rig, Option<Request>) {
    let mut rig = Rig::new();
    rig.connection = Connection::new(rig.now, Arc::default()).with_bodies(&Everything);
    rig.feed(post(lines).replacen("POST", "PUT", 1) + begun);
    let request = rig.event();
    (rig, request)
}

#[test]
fn h_37_the_head_comes_before_a_body_that_is_not_there_yet() {
    let chunk = "10000\r\n".to_owned() + &"x".repeat(0x10000) + "\r\n";
    for (lines, begun, more) in [
        ("Content-Length: 200000\r\n", "ab".to_owned(), "y".repeat(65_536)),
        ("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n".to_owned(), chunk),
    ] {
        let (mut rig, request) = put(lines, &begun);
        let request = request.unwrap();
        assert!(request.body_waits && request.body.is_empty(), "{lines}");
        assert!(!rig.connection.wants_bytes(), "nothing more is read");
        // Bytes that the transport has already read are not parsed.
        rig.feed(&more);
        assert!(rig.connection.stats().held_bytes <= more.len() + 2, "{lines}");
        rig.respond(Response::error(403, "no"));
        assert!(rig.text().contains("Connection: close") && rig.connection.is_closing(), "{lines}");
        assert_eq!(rig.connection.stats().held_bytes, 0);
    }
}

#[test]
fn h_37_a_body_that_came_with_its_head_is_part_of_the_request() {
    for (lines, body) in [
        ("Content-Length: 5\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("Content-Length: 0\r\n", ""),
    ] {
        let (mut rig, request) = put(lines, body);
        let request = request.unwrap();
        assert_eq!((request.body.len(), request.body_waits), (if body.is_empty() { 0 } else { 5 }, false));
        rig.respond(Response::error(403, "no"));
        assert!(!rig.connection.is_closing(), "nothing is left unread");
    }
}

#[test]
fn h_37_a_body_that_is_let_in_comes_whole_and_the_connection_goes_on() {
    for (lines, begun, more) in [
        ("Expect: 100-continue\r\nContent-Length: 5\r\n", "", "hello"),
        ("Content-Length: 5\r\n", "he", "llo"),
        ("Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3", "\r\nllo\r\n0\r\n\r\n"),
    ] {
        let (mut rig, request) = put(lines, begun);
        assert!(request.unwrap().body_waits);
        assert_eq!(rig.text(), "", "no 100 before the verdict");
        take(&mut rig, 5);
        let invited = rig.text();
        assert_eq!(invited.starts_with("HTTP/1.1 100 "), begun.is_empty(), "{invited}");
        rig.feed(more);
        assert_eq!(came(&mut rig), 5);
        assert!(rig.connection.is_body_complete());
        rig.respond(Response::text(200, "ok"));
        rig.feed(GET);
        assert_eq!(rig.serve().len(), 1, "the next request");
    }
}

#[test]
fn h_37_the_limit_of_bodies_holds_for_those_that_wait() {
    let (rig, request) = put("Expect: 100-continue\r\nContent-Length: 262145\r\n", "");
    assert!(request.is_none() && rig.text().starts_with("HTTP/1.1 413 "));
    let (mut rig, request) = put("Transfer-Encoding: chunked\r\n", "1\r\na\r\n");
    assert!(request.unwrap().body_waits);
    take(&mut rig, 5);
    rig.feed("5\r\nhello\r\n");
    assert!(rig.text().starts_with("HTTP/1.1 413 ") && rig.connection.is_closing());
}
