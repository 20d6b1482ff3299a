//! The rows of docs/robustness.md for HTTP/1.1, in virtual time. Also tests that the meaning of a stream does not
//! depend on how it is split into pieces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use wire::SendQueue;

use super::*;

/// A connection with its shell: the time, and the bytes that the peer has received.
struct Rig {
    now: Instant,
    connection: Connection,
    out: SendQueue,
    received: Vec<u8>,
    closed: Option<CloseReason>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let now = netsim::Clock::new().now();
        let connection = Connection::new(now, Arc::new(limits));
        Self { now, connection, out: SendQueue::new(), received: Vec::new(), closed: None }
    }

    fn feed(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.handle_bytes(self.now, bytes.as_ref()).unwrap();
        self.deliver();
    }

    /// Delivers queued data to the peer.
    fn deliver(&mut self) {
        self.connection.poll_transmit(&mut self.out);
        let bytes = self.out.take_all();
        self.received.extend_from_slice(&bytes);
        self.connection.handle_sent(self.now, bytes.len());
    }

    fn event(&mut self) -> Option<Request> {
        match self.connection.poll_event()? {
            Event::Request(request) => Some(request),
            Event::Closed(reason) => {
                assert_eq!(self.closed.replace(reason), None, "closed twice");
                None
            }
        }
    }

    fn respond(&mut self, response: Response) {
        self.connection.respond(self.now, 0, response);
        self.deliver();
    }

    /// Answers all requests that arrive, and returns them.
    fn serve(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        while let Some(request) = self.event() {
            requests.push(request);
            self.respond(Response::text(200, "ok"));
        }
        requests
    }

    /// Lets `time` pass, in steps that hit each deadline.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100 {
            match self.connection.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    let before = self.connection.poll_timeout();
                    let failed = self.connection.handle_timeout(self.now).is_err();
                    self.deliver();
                    assert!(failed || self.connection.poll_timeout() != before, "livelock");
                }
                Some(_) | None => break,
            }
        }
        self.now = end;
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// Feeds `input` and after it another request. The response must have `status`, the connection must close, and the
/// other request must not be handled.
fn check_refused(input: &[u8], status: u16) {
    for split in [usize::MAX, 1, 7] {
        let mut rig = Rig::new();
        let mut bytes = input.to_vec();
        bytes.extend_from_slice(b"DELETE /canary HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut requests = Vec::new();
        for piece in bytes.chunks(split.min(bytes.len())) {
            rig.feed(piece);
            requests.extend(rig.serve());
        }
        let shown = String::from_utf8_lossy(&input[..input.len().min(200)]).into_owned();
        assert!(requests.is_empty(), "{shown:?} gave {requests:?}");
        assert!(rig.text().starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?} gave {}", rig.text());
        assert!(rig.text().contains("Connection: close\r\n") && rig.connection.is_closing(), "{shown:?}");
        assert!(matches!(rig.closed, Some(CloseReason::Error(e)) if e.status() == Some(status)), "{shown:?}");
    }
}

fn check_all_refused(inputs: &[&str], status: u16) {
    for input in inputs {
        check_refused(input.as_bytes(), status);
    }
}

/// Makes a POST with these header lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn a_request_is_seen_whole_and_answered() {
    let mut rig = Rig::new();
    rig.feed("PUT //a%20b/c?x=1 HTTP/1.1\r\nHost: h:5080\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    let request = rig.event().unwrap();
    assert_eq!(
        (request.method, request.path.as_str(), request.query_value("x")),
        (Method::Put, "/a b/c", Some("1"))
    );
    assert_eq!(
        (request.target.as_str(), request.header("content-TYPE")),
        ("//a%20b/c?x=1", Some("application/json"))
    );
    assert_eq!((&request.body[..], request.version), (&b"{}"[..], Version::Http11));
    assert!(rig.event().is_none());
    rig.respond(Response::json(200, "[]"));
    assert!(rig.text().ends_with("\r\n\r\n[]") && !rig.connection.is_closing());
}

#[test]
fn h_01_a_length_and_a_coding_together_are_refused_and_nothing_behind_them_runs() {
    check_refused(post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n").as_bytes(), 400);
    check_refused(post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n").as_bytes(), 400);
    check_refused(
        (post("Transfer-Encoding: chunked\r\nContent-length: 5\r\n") + "0\r\n\r\n").as_bytes(),
        400,
    );
}

#[test]
fn h_02_a_length_has_one_spelling() {
    let digits = "9".repeat(40);
    for value in [
        "+5",
        "-1",
        "0x5",
        "5,5",
        "5, 5",
        " 5\t",
        "  5",
        "5 ",
        "\t5",
        "",
        "18446744073709551616",
        &digits,
        "5 5",
        "5.0",
    ] {
        check_refused(post(&format!("Content-Length: {value}\r\n")).as_bytes(), 400);
    }
    check_refused(post("Content-Length: 5\r\nContent-Length: 6\r\n").as_bytes(), 400);
    check_refused(post("Content-Length: 5\r\ncontent-length: 5\r\n").as_bytes(), 400);
    for value in ["2", "002"] {
        let mut rig = Rig::new();
        rig.feed(post(&format!("Content-Length:{value}\r\n")) + "hi");
        assert_eq!(rig.serve().len(), 1, "{value}");
    }
}

#[test]
fn h_03_chunked_is_the_only_coding_and_only_in_1_1() {
    for value in [
        "chunked, chunked",
        "chunked, identity",
        "xchunked",
        "\x0bchunked",
        "chunked;q=1",
        "",
        "chunked,",
        "identity",
    ] {
        check_refused(post(&format!("Transfer-Encoding: {value}\r\n")).as_bytes(), 400);
    }
    for value in ["identity, chunked", "gzip, chunked", "gzip,CHUNKED"] {
        check_refused(post(&format!("Transfer-Encoding: {value}\r\n")).as_bytes(), 501);
    }
    check_refused(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n").as_bytes(), 400);
    check_refused(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n").as_bytes(), 400);
    check_refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#[test]
fn h_04_a_chunk_size_has_one_spelling() {
    for size in ["+5", "0x5", "5 ", "1_0", "10000000000000005", "fffffffffffffffff", "", " 5", "-0"] {
        check_refused(
            (post("Transfer-Encoding: chunked\r\n") + size + "\r\nhello\r\n0\r\n\r\n").as_bytes(),
            400,
        );
    }
    check_refused((post("Transfer-Encoding: chunked\r\n") + "ffffffffffffffff\r\n").as_bytes(), 413);
}

#[test]
fn h_05_line_ends_and_controls_are_strict() {
    let chunked = post("Transfer-Encoding: chunked\r\n");
    for tail in [
        "0\n\r\n",
        "0\r\n\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "0\r\r\n\r\n",
        "0\r\nX: a\rb\r\n\r\n",
    ] {
        check_refused((chunked.clone() + tail).as_bytes(), 400);
    }
    check_all_refused(
        &[
            "GET / HTTP/1.1\nHost: h\n\n",
            "GET / HTTP/1.1\r\nHost: h\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\rX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: a\x1bb\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: a\x7fb\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n z\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\tz\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nX(: y\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
            "GET /\tx HTTP/1.1\r\nHost: h\r\n\r\n",
            " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01",
            "GET /\r\n\r\n",
        ],
        400,
    );
    check_refused(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    let mut rig = Rig::new();
    rig.feed(format!("\r\n{GET}\r\n{GET}"));
    assert_eq!(rig.serve().len(), 2, "one empty line before a request is tolerated");
}

#[test]
fn h_06_extensions_and_trailers_are_bounded() {
    let chunked = post("Transfer-Encoding: chunked\r\n");
    check_refused(format!("{chunked}1;{}\r\na\r\n0\r\n\r\n", "x".repeat(256)).as_bytes(), 400);
    check_refused(format!("{chunked}0\r\n{}\r\n", "X: yyyyyyyyyy\r\n".repeat(800)).as_bytes(), 431);
    let mut rig = Rig::new();
    rig.feed(format!("{chunked}1;x=\"y\"\r\na\r\n0\r\nX: y\r\n\r\n"));
    assert_eq!(rig.serve()[0].body, Bytes::from_static(b"a"));
}

#[test]
fn h_07_hosts_versions_and_forms() {
    check_all_refused(
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n",
            "GET http://other/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1\r\nHost: h\r\n\r\n",
            "GET / http/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.10\r\nHost: h\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
            "G<T / HTTP/1.1\r\nHost: h\r\n\r\n",
        ],
        400,
    );
    for version in ["1.2", "2.0", "0.9", "3.0"] {
        check_refused(format!("GET / HTTP/{version}\r\nHost: h\r\n\r\n").as_bytes(), 505);
    }
    check_refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    check_refused(b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", 405);
    check_refused(b"TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", 405);
    check_refused(b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501);
    check_refused(b"get / HTTP/1.1\r\nHost: h\r\n\r\n", 501);
    let mut rig = Rig::new();
    rig.feed("GET http://H:80/a HTTP/1.1\r\nHost: h:80\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(rig.serve().iter().map(|r| r.path.as_str()).collect::<Vec<_>>(), ["/a", "/"]);
}

#[test]
fn h_08_heads_are_bounded() {
    let head = |lines: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    check_refused(head(&"X: y\r\n".repeat(100)).as_bytes(), 431);
    let padded = |total: usize| {
        let plain = head("X: \r\n").len();
        head(&format!("X: {}\r\n", "y".repeat(total - plain)))
    };
    check_refused(padded(16 * 1024 + 1).as_bytes(), 431);
    let target = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(n - 1));
    check_refused(target(8 * 1024 + 1).as_bytes(), 414);
    check_refused(target(15 * 1024).as_bytes(), 414);
    check_refused(target(100 * 1024).as_bytes(), 414);
    for fits in [head(&"X: y\r\n".repeat(99)), padded(16 * 1024), target(8 * 1024)] {
        let mut rig = Rig::new();
        rig.feed(&fits);
        assert_eq!((rig.serve().len(), rig.closed), (1, None));
    }
}

#[test]
fn h_09_a_body_over_the_limit_is_not_invited() {
    check_refused(post("Expect: 100-continue\r\nContent-Length: 262145\r\n").as_bytes(), 413);
    check_refused(post("Expect: 200-ok\r\nContent-Length: 2\r\n").as_bytes(), 417);
    let mut rig = Rig::new();
    rig.feed(post("Expect: 100-Continue\r\nContent-Length: 2\r\n"));
    assert_eq!(rig.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    rig.feed("hi");
    assert_eq!(rig.serve()[0].body, Bytes::from_static(b"hi"));
    let mut rig = Rig::new();
    rig.feed(post("Expect: 100-continue\r\nContent-Length: 2\r\n") + "hi");
    rig.serve();
    assert!(rig.text().starts_with("HTTP/1.1 200 "), "a body that is there is not invited");
}

#[test]
fn h_10_no_more_than_the_limit_is_ever_held() {
    check_refused(post("Content-Length: 1099511627776\r\n").as_bytes(), 413);
    let mut rig = Rig::new();
    rig.feed(post("Transfer-Encoding: chunked\r\n"));
    let chunk = format!("1000\r\n{}\r\n", "a".repeat(4096)).repeat(16);
    for _ in 0..100 {
        rig.feed(&chunk);
        assert!(rig.connection.stats().held_bytes <= 256 * 1024 + 64 * 1024);
    }
    assert!(rig.event().is_none() && rig.text().starts_with("HTTP/1.1 413 "));
    let one_call = post("Transfer-Encoding: chunked\r\n") + &chunk.repeat(100);
    check_refused(one_call.as_bytes(), 413);
}

#[test]
fn h_11_a_peer_that_only_asks_is_stopped_and_then_closed() {
    let mut rig = Rig::new();
    let all = GET.repeat(10_000);
    let mut answered = 0;
    for piece in all.as_bytes().chunks(1000) {
        if !rig.connection.wants_bytes() {
            break;
        }
        rig.connection.handle_bytes(rig.now, piece).unwrap();
        while let Some(Event::Request(_)) = rig.connection.poll_event() {
            answered += 1;
            rig.connection.respond(rig.now, 0, Response::text(200, vec![b'x'; 4000]));
            rig.connection.poll_transmit(&mut rig.out);
        }
    }
    assert!(!rig.connection.wants_bytes() && (50..100).contains(&answered), "{answered}");
    let stats = rig.connection.stats();
    assert!(stats.unsent_bytes <= 256 * 1024 + 8192 && stats.held_bytes <= 64 * 1024, "{stats:?}");
    rig.now += Duration::from_secs(30);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
    assert_eq!(rig.connection.poll_event(), Some(Event::Closed(CloseReason::Error(Error::WriteStalled))));
    assert_eq!((rig.connection.poll_event(), rig.connection.poll_timeout()), (None, None));
}

#[test]
fn h_11_an_unanswered_request_stops_the_reading_and_an_overrun_ends_it() {
    let mut rig = Rig::new();
    rig.feed(GET.repeat(3000));
    assert!(rig.event().is_some());
    assert!(!rig.connection.wants_bytes());
    let flood = vec![b'G'; 2 * 1024 * 1024];
    assert_eq!(rig.connection.handle_bytes(rig.now, &flood), Err(Error::Overrun));
    assert!(rig.connection.stats().held_bytes == 0);
}

#[test]
fn h_12_one_byte_chunks_cost_their_length() {
    let mut rig = Rig::with(Limits { body_bytes: 1024 * 1024, ..Limits::default() });
    let head = post("Transfer-Encoding: chunked\r\n");
    let chunks = "1\r\na\r\n".repeat(1024 * 1024) + "0\r\n\r\n";
    rig.feed(&head);
    for piece in chunks.as_bytes().chunks(1460) {
        rig.feed(piece);
    }
    assert_eq!(rig.event().unwrap().body.len(), 1024 * 1024);
    let scanned = rig.connection.stats().scanned_bytes;
    assert_eq!(scanned, (head.len() + chunks.len() - 1024 * 1024) as u64, "each framing byte once");
}

#[test]
fn h_14_answers_without_a_body_keep_the_framing_right() {
    let mut rig = Rig::new();
    rig.feed(GET.replace("GET", "HEAD") + GET + GET + &GET.replace("GET", "HEAD") + GET);
    rig.event().unwrap();
    rig.respond(Response::text(200, "hello"));
    rig.event().unwrap();
    rig.respond(Response::text(204, "never"));
    rig.event().unwrap();
    rig.respond(Response::text(304, "never"));
    rig.event().unwrap();
    rig.respond(Response { head_length: Some(10_000_000), ..Response::empty(200) });
    rig.event().unwrap();
    rig.respond(Response::error(404, "nothing here"));
    let text = rig.text();
    assert!(!text.contains("never") && !text.contains("hello") && !rig.connection.is_closing());
    assert_eq!(
        (text.matches("Content-Length: 5\r\n").count(), text.matches("Content-Length: 10000000\r\n").count()),
        (1, 1)
    );
    assert_eq!(text.matches("Content-Length").count(), 3, "none with 204 and 304");
    rig.feed(GET);
    assert_eq!(rig.serve().len(), 1, "kept alive after an error of the application");
}

#[test]
fn h_20_a_slow_head_is_timed_out() {
    let mut rig = Rig::new();
    for byte in GET.as_bytes() {
        rig.feed([*byte]);
        rig.pass(Duration::from_secs(5));
        if rig.connection.is_closing() {
            break;
        }
    }
    assert!(rig.text().starts_with("HTTP/1.1 408 "));
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Error(Error::Timeout))));

    let mut rig = Rig::new();
    assert_eq!(rig.connection.poll_timeout(), Some(rig.now + Duration::from_secs(10)));
    rig.pass(Duration::from_secs(10));
    assert_eq!((rig.event(), rig.closed, rig.text().len()), (None, Some(CloseReason::Idle), 0));
}

#[test]
fn h_20_a_later_head_has_its_own_time_and_idling_more() {
    let mut rig = Rig::new();
    rig.feed(GET);
    rig.serve();
    rig.pass(Duration::from_secs(74));
    rig.feed("GET / ");
    rig.pass(Duration::from_millis(9_999));
    assert!(!rig.connection.is_closing());
    rig.feed(GET.strip_prefix("GET / ").unwrap());
    assert_eq!(rig.serve().len(), 1);
    rig.pass(Duration::from_millis(74_999));
    assert!(!rig.connection.is_closing());
    rig.pass(Duration::from_millis(1));
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Idle)));
}

#[test]
fn h_21_a_slow_body_is_timed_out_by_its_rate_and_by_its_time() {
    let mut rig = Rig::new();
    rig.feed(post("Content-Length: 100\r\n"));
    for _ in 0..2 {
        rig.feed("a");
        rig.pass(Duration::from_secs(10));
    }
    assert!(rig.text().starts_with("HTTP/1.1 408 "));

    for (per_second, seconds) in [(499, 10), (600, 30)] {
        let mut rig = Rig::new();
        let start = rig.now;
        rig.feed(post("Content-Length: 200000\r\n"));
        while !rig.connection.is_closing() {
            rig.feed("a".repeat(per_second));
            rig.pass(Duration::from_secs(1));
        }
        assert_eq!((rig.now - start).as_secs(), seconds, "{per_second} B/s");
    }
}

#[test]
fn h_22_a_stalled_write_ends_the_connection_and_progress_renews_it() {
    let mut rig = Rig::new();
    rig.connection.handle_bytes(rig.now, GET.as_bytes()).unwrap();
    rig.event().unwrap();
    rig.connection.respond(rig.now, 0, Response::text(200, vec![b'x'; 100_000]));
    for _ in 0..10 {
        rig.now += Duration::from_secs(29);
        rig.connection.handle_timeout(rig.now).unwrap();
        rig.connection.handle_sent(rig.now, 100);
    }
    rig.now += Duration::from_secs(30);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
    assert!(!rig.connection.poll_transmit(&mut rig.out));
}

#[test]
fn h_24_a_head_in_single_bytes_is_scanned_once() {
    let mut rig = Rig::new();
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "y".repeat(15 * 1024));
    for byte in head.as_bytes() {
        rig.feed([*byte]);
    }
    assert_eq!(rig.serve().len(), 1);
    assert_eq!(rig.connection.stats().scanned_bytes, head.len() as u64);
}

#[test]
fn the_last_request_of_a_connection_says_so() {
    let mut rig = Rig::with(Limits { requests: 3, ..Limits::default() });
    rig.feed(GET.repeat(5));
    assert_eq!((rig.serve().len(), rig.closed), (3, Some(CloseReason::Complete)));
    assert_eq!(rig.text().matches("Connection: close").count(), 1);
}

#[test]
fn connection_options_and_1_0_are_obeyed() {
    for (head, stays) in [
        ("GET / HTTP/1.1\r\nHost: h\r\nConnection: foo, Close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        (GET, true),
    ] {
        let mut rig = Rig::new();
        rig.feed(head);
        rig.serve();
        assert_eq!(rig.connection.is_closing(), !stays, "{head}");
        assert_eq!(rig.text().contains("Connection: close"), !stays, "{head}");
    }
    let mut rig = Rig::new();
    rig.feed(GET.repeat(2));
    rig.event().unwrap();
    rig.respond(Response::empty(200).close());
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Complete)));
}

#[test]
fn the_peers_end_still_gets_its_answers() {
    let mut rig = Rig::new();
    rig.feed(GET.repeat(2));
    rig.connection.handle_eof(rig.now);
    assert!(!rig.connection.wants_bytes());
    assert_eq!((rig.serve().len(), rig.closed), (2, Some(CloseReason::Complete)));
    for partial in ["", "GET /", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na"] {
        let mut rig = Rig::new();
        rig.feed(partial);
        rig.connection.handle_eof(rig.now);
        assert_eq!(
            (rig.event(), rig.closed, rig.text().len()),
            (None, Some(CloseReason::PeerClosed), 0),
            "{partial}"
        );
    }
}

#[test]
fn shutdown_finishes_the_request_in_hand() {
    let mut rig = Rig::new();
    rig.feed(GET);
    rig.event().unwrap();
    rig.connection.close(rig.now);
    assert!(!rig.connection.is_closing());
    rig.respond(Response::empty(200));
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Shutdown)));
    let mut rig = Rig::new();
    rig.connection.close(rig.now);
    assert_eq!((rig.event(), rig.closed), (None, Some(CloseReason::Shutdown)));
    rig.feed(GET);
    rig.respond(Response::empty(200));
    assert_eq!((rig.event(), rig.text().len()), (None, 0), "nothing follows the end");
}

fn request_bytes() -> impl Strategy<Value = Vec<u8>> {
    let path = "/[a-z]{0,12}(\\?[a-z]=[a-z0-9+]{0,5})?";
    let lines = prop::collection::vec("[A-Za-z][A-Za-z-]{0,8}x: [ -~]{0,20}\r\n", 0..4);
    let body = prop::option::of((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200), 1usize..60));
    (path, lines, body).prop_map(|(path, lines, body)| {
        let lines = lines.concat();
        let Some((chunked, body, size)) = body else {
            return format!("GET {path} HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
        };
        let coding = if chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {}", body.len())
        };
        let mut bytes = format!("POST {path} HTTP/1.1\r\n{lines}Host: h\r\n{coding}\r\n\r\n").into_bytes();
        if !chunked {
            bytes.extend(body);
            return bytes;
        }
        for chunk in body.chunks(size) {
            bytes.extend(format!("{:x};e\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nT: v\r\n\r\n");
        bytes
    })
}

proptest! {
    #[test]
    fn any_split_of_a_stream_means_the_same(stream in prop::collection::vec(request_bytes(), 1..6), cuts in prop::collection::vec(1usize..80, 1..20)) {
        let bytes = stream.concat();
        let mut whole = Rig::new();
        whole.feed(&bytes);
        let want = whole.serve();
        prop_assert_eq!(want.len(), stream.len());

        let mut split = Rig::new();
        let mut got = Vec::new();
        let (mut rest, mut cut) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(rest.len().min(*cut.next().unwrap()));
            split.feed(piece);
            got.extend(split.serve());
            rest = tail;
        }
        prop_assert_eq!(&got, &want);
        prop_assert_eq!(split.received, whole.received);
        prop_assert!(split.connection.stats().scanned_bytes <= bytes.len() as u64);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 1usize..50) {
        let mut rig = Rig::new();
        for piece in bytes.chunks(cut) {
            rig.feed(piece);
            rig.serve();
        }
    }
}

/// Makes a connection with one request that awaits its response.
fn asked(request: &str) -> Rig {
    let mut rig = Rig::new();
    rig.feed(request);
    rig.event().unwrap();
    rig
}

#[test]
fn a_body_in_blocks_has_the_length_that_was_told_and_the_connection_goes_on() {
    let mut rig = asked(&GET.repeat(2));
    assert!(rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(7)));
    assert!(rig.connection.wants_body() && rig.event().is_none());
    for block in ["abc", "def", "ghi"] {
        rig.connection.body(rig.now, Bytes::from(block));
        rig.deliver();
    }
    rig.connection.end_body(rig.now);
    rig.deliver();
    assert!(rig.text().ends_with("Content-Length: 7\r\nX-Content-Type-Options: nosniff\r\n\r\nabcdefg"));
    assert!(rig.event().is_some(), "the second request");
    // A body shorter than announced ends the connection, because the peer counts the bytes.
    assert!(rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(7)));
    rig.connection.body(rig.now, Bytes::from("abc"));
    rig.connection.end_body(rig.now);
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Truncated));
}

#[test]
fn h_14_no_body_is_begun_for_head_and_not_modified() {
    for (request, status) in [("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", 200), (GET, 304), (GET, 204)] {
        let mut rig = asked(request);
        assert!(!rig.connection.begin(rig.now, 0, &Response::empty(status), BodyLength::Known(99)));
        rig.connection.body(rig.now, Bytes::from("nothing"));
        rig.deliver();
        assert!(rig.text().ends_with("\r\n\r\n") && !rig.connection.is_closing(), "{}", rig.text());
        assert_eq!(rig.text().contains("Content-Length: 99"), status == 200);
        rig.feed(GET);
        assert!(rig.event().is_some());
    }
}

#[test]
fn a_body_until_the_end_ignores_what_the_peer_says_but_not_for_ever() {
    let begin = || {
        let mut rig = asked(&GET.repeat(2));
        assert!(rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::UntilClose));
        rig.deliver();
        rig
    };
    let mut rig = begin();
    assert!(rig.connection.wants_bytes() && rig.event().is_none());
    rig.feed("noise");
    rig.feed(vec![0; 64 * 1024]);
    assert!(rig.connection.is_closing());
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Error(Error::Overrun)));
    let mut rig = begin();
    rig.connection.handle_eof(rig.now);
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::PeerClosed));
    let mut rig = begin();
    rig.pass(Duration::from_secs(3600));
    assert!(!rig.connection.is_closing(), "a viewer may watch as long as it likes");
    rig.connection.end_body(rig.now);
    assert!(rig.event().is_none() && rig.closed == Some(CloseReason::Complete));
}

#[test]
fn h_22_blocks_are_fetched_as_the_peer_takes_them_and_a_stalled_one_ends_it() {
    let mut rig = asked(GET);
    rig.connection.begin(rig.now, 0, &Response::empty(200), BodyLength::Known(1 << 20));
    let mut blocks = 0;
    while rig.connection.wants_body() {
        rig.connection.body(rig.now, Bytes::from(vec![0; 64 * 1024]));
        blocks += 1;
    }
    assert_eq!(blocks, 1, "one with the peer");
    rig.connection.handle_sent(rig.now, 32 * 1024);
    assert!(rig.connection.wants_body());
    rig.now += Duration::from_secs(30);
    assert_eq!(rig.connection.handle_timeout(rig.now), Err(Error::WriteStalled));
}

#[test]
fn an_upgrade_hands_over_what_was_read_beyond_the_request() {
    let mut rig = asked(&format!("{GET}frames"));
    let head = Response::empty(101).header("Upgrade", "websocket").header("Connection", "Upgrade");
    assert_eq!(rig.connection.upgrade(rig.now, 0, &head), Some(Bytes::from_static(b"frames")));
    rig.deliver();
    assert!(rig.text().starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{}", rig.text());
    assert_eq!((rig.text().matches("Upgrade").count(), rig.text().matches("Connection").count()), (2, 1));
    assert!(!rig.text().contains("Content-Length") && rig.text().ends_with("\r\n\r\n"));
    assert_eq!((rig.connection.upgrade(rig.now, 0, &head), rig.connection.poll_timeout()), (None, None));
    assert!(!rig.connection.wants_bytes() && !rig.connection.is_closing());
}

mod bounds;
mod streamed;
