//! H-01 to H-10, H-14: ambiguous requests are refused, and bytes after such a request are not executed.

use std::io::Write;

use super::super::support::{Bystander, Server};
use super::{
    assert_canary_lives, connect, plant_canary, read_answer, read_to_close, send_and_wait, smuggled,
};

/// Returns a POST with these header lines and this body.
fn post(lines: &str, body: &str) -> String {
    format!(
        "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         {lines}\r\n{body}"
    )
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn get(lines: &str) -> String {
    format!("GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

/// A row of docs/robustness.md, the error in the request, the bytes, and the permitted statuses of the answer.
type Case = (&'static str, &'static str, String, &'static [u16]);

/// Sends each case, with a smuggled DELETE in the same segment. The server must send one answer with a permitted
/// status, and close the connection.
fn check(server: &Server, cases: Vec<Case>) {
    for (row, what, mut bytes, statuses) in cases {
        bytes.push_str(&smuggled());
        let answer = send_and_wait(server.http, bytes.as_bytes());
        assert!(statuses.contains(&answer.status()), "{row} {what}: {answer:?}");
        assert_eq!(answer.count(), 1, "{row} {what}: {answer:?}");
        assert!(answer.closed, "{row} {what}: the connection stayed open");
        assert!(answer.text.contains("Connection: close\r\n"), "{row} {what}: {answer:?}");
        assert_canary_lives(server, what);
    }
}

#[test]
fn h_01_content_length_with_transfer_encoding_runs_no_second_request() {
    let mut server = Server::start(&[]);
    plant_canary(&server);
    let bystander = Bystander::start(&server);
    let length = smuggled().len();
    let hidden = format!("0\r\n\r\n{}", smuggled());
    let all = 5 + length;
    let cases = [
        ("the length covers the end of the chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("the other order", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        ("the length is zero", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        ("in capitals", "CONTENT-LENGTH: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n"),
        ("identity", "Content-Length: 5\r\nTransfer-Encoding: identity\r\n"),
        ("an empty coding", "Content-Length: 5\r\nTransfer-Encoding:\r\n"),
    ];
    let mut table: Vec<Case> = Vec::new();
    for (what, lines) in cases {
        table.push(("H-01", what, post(lines, "0\r\n\r\n"), &[400]));
        table.push(("H-01", what, get(lines) + "0\r\n\r\n", &[400]));
    }
    let covering = format!("Content-Length: {all}\r\nTransfer-Encoding: chunked\r\n");
    table.push(("H-01", "the length covers the smuggled request", post(&covering, &hidden), &[400]));
    check(&server, table);
    bystander.finish(&mut server);
}

fn lengths() -> Vec<Case> {
    let values: [(&str, &str); 13] = [
        ("a plus", "Content-Length: +5\r\n"),
        ("negative", "Content-Length: -1\r\n"),
        ("hexadecimal", "Content-Length: 0x5\r\n"),
        ("a list", "Content-Length: 5,5\r\n"),
        ("a list with a blank", "Content-Length: 5, 5\r\n"),
        ("blanks", "Content-Length:  5\t\r\n"),
        ("empty", "Content-Length:\r\n"),
        ("blank", "Content-Length: \r\n"),
        ("2^64", "Content-Length: 18446744073709551616\r\n"),
        ("40 digits", "Content-Length: 0000000000000000000000000000000000000005\r\n"),
        ("two that differ", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        ("two that agree", "Content-Length: 5\r\nContent-Length: 5\r\n"),
        ("words", "Content-Length: five\r\n"),
    ];
    values.into_iter().map(|(what, lines)| ("H-02", what, post(lines, "hello"), &[400u16][..])).collect()
}

fn codings() -> Vec<Case> {
    let values: [(&str, &str); 9] = [
        ("twice in one line", "Transfer-Encoding: chunked, chunked\r\n"),
        ("identity before", "Transfer-Encoding: identity, chunked\r\n"),
        ("an unknown name", "Transfer-Encoding: xchunked\r\n"),
        ("a control", "Transfer-Encoding: \x0bchunked\r\n"),
        ("two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("two lines, the second other", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
        ("chunked is not last", "Transfer-Encoding: chunked, gzip\r\n"),
        ("gzip", "Transfer-Encoding: gzip, chunked\r\n"),
        ("a parameter", "Transfer-Encoding: chunked;q=1\r\n"),
    ];
    let mut cases: Vec<Case> = values
        .into_iter()
        .map(|(what, lines)| ("H-03", what, post(lines, "0\r\n\r\n"), &[400u16, 501][..]))
        .collect();
    let old = chunked("0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0");
    cases.push(("H-03", "HTTP/1.0", old, &[400, 501]));
    cases
}

fn chunks() -> Vec<Case> {
    let long_extension = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(256));
    let many_extensions = format!("1;{}\r\na\r\n", "x".repeat(200)).repeat(60);
    let long_trailer = format!("0\r\nX: {}\r\n\r\n", "y".repeat(8 * 1024));
    let many_trailers = format!("0\r\n{}\r\n", "X: yyyyyyyy\r\n".repeat(2000));
    let mut cases: Vec<Case> = [
        ("a plus", "+5\r\nhello\r\n0\r\n\r\n"),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("a blank behind", "5 \r\nhello\r\n0\r\n\r\n"),
        ("an underscore", "1_0\r\nhello\r\n0\r\n\r\n"),
        ("wraps 64 bits", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("17 digits", "00000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("empty", "\r\nhello\r\n0\r\n\r\n"),
        ("negative", "-5\r\nhello\r\n0\r\n\r\n"),
        ("no digits", ";x\r\nhello\r\n0\r\n\r\n"),
        ("too short for its data", "4\r\nhello\r\n0\r\n\r\n"),
    ]
    .into_iter()
    .map(|(what, body)| ("H-04", what, chunked(body), &[400u16][..]))
    .collect();
    cases.extend(
        [
            ("a bare LF behind the size", "5\nhello\r\n0\r\n\r\n"),
            ("a bare LF behind the last chunk", "5\r\nhello\r\n0\n\r\n"),
            ("a bare LF at the end", "5\r\nhello\r\n0\r\n\n"),
            ("a bare LF behind the data", "5\r\nhello\n0\r\n\r\n"),
            ("a bare CR behind the size", "5\rhello\r\n0\r\n\r\n"),
            ("a bare CR in an extension", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
            ("a NUL in a trailer", "0\r\nX: \0\r\n\r\n"),
            ("a folded trailer", "0\r\nX: y\r\n z\r\n\r\n"),
        ]
        .into_iter()
        .map(|(what, body)| ("H-05", what, chunked(body), &[400u16][..])),
    );
    for (what, body) in [
        ("an extension of 257 bytes", long_extension),
        ("many extensions", many_extensions),
        ("a trailer over 8 KiB", long_trailer),
        ("many trailers", many_trailers),
    ] {
        cases.push(("H-06", what, chunked(&body), &[400, 431]));
    }
    cases
}

fn lines() -> Vec<Case> {
    let values: [(&str, &str); 12] = [
        ("a bare CR", "X: a\rb\r\n"),
        ("a bare LF", "X: a\nY: b\r\n"),
        ("a NUL", "X: a\0b\r\n"),
        ("a bell", "X: a\x07b\r\n"),
        ("DEL", "X: a\x7fb\r\n"),
        ("a blank before the colon", "X : a\r\n"),
        ("a fold", "X: a\r\n b\r\n"),
        ("a fold by tab", "X: a\r\n\tb\r\n"),
        ("no name", ": a\r\n"),
        ("no colon", "X\r\n"),
        ("a name with a slash", "X/Y: a\r\n"),
        ("a blank before the name", " X: a\r\n"),
    ];
    let mut cases: Vec<Case> =
        values.into_iter().map(|(what, lines)| ("H-05", what, get(lines), &[400u16][..])).collect();
    cases.push(("H-05", "lines end in LF", get("").replace("\r\n", "\n"), &[400]));
    cases.push(("H-05", "two blank lines before", format!("\r\n\r\n{}", get("")), &[400]));
    cases.push(("H-05", "two spaces", get("").replacen(' ', "  ", 1), &[400]));
    cases.push(("H-05", "a tab", get("").replacen(' ', "\t", 1), &[400]));
    cases
}

fn requests() -> Vec<Case> {
    let line = |line: &str, host: &str| format!("{line}\r\n{host}\r\n");
    let path = "/live/rest/v2/version";
    let host = "Host: localhost\r\n";
    let mut cases: Vec<Case> = vec![
        ("H-07", "no Host", line(&format!("GET {path} HTTP/1.1"), ""), &[400]),
        (
            "H-07",
            "two Hosts",
            line(&format!("GET {path} HTTP/1.1"), "Host: localhost\r\nHost: localhost\r\n"),
            &[400],
        ),
        (
            "H-07",
            "two other Hosts",
            line(&format!("GET {path} HTTP/1.1"), "Host: localhost\r\nHost: g\r\n"),
            &[400],
        ),
        ("H-07", "an empty Host", line(&format!("GET {path} HTTP/1.1"), "Host:\r\n"), &[400]),
        ("H-07", "a Host with a path", line(&format!("GET {path} HTTP/1.1"), "Host: h/x\r\n"), &[400]),
        ("H-07", "HTTP/1.2", line(&format!("GET {path} HTTP/1.2"), host), &[505]),
        ("H-07", "HTTP/2.0", line(&format!("GET {path} HTTP/2.0"), host), &[505]),
        ("H-07", "HTTP/0.9", line(&format!("GET {path}"), host), &[400]),
        ("H-07", "http/1.1", line(&format!("GET {path} http/1.1"), host), &[400]),
        ("H-07", "HTTP/1.10", line(&format!("GET {path} HTTP/1.10"), host), &[400]),
        ("H-07", "another host", line(&format!("GET http://g{path} HTTP/1.1"), host), &[400]),
        ("H-07", "user information", line(&format!("GET http://h@g{path} HTTP/1.1"), host), &[400]),
        ("H-07", "CONNECT", line("CONNECT h:443 HTTP/1.1", host), &[405]),
        ("H-07", "TRACE", line(&format!("TRACE {path} HTTP/1.1"), host), &[405]),
        ("H-07", "an unknown method", line(&format!("BREW {path} HTTP/1.1"), host), &[501]),
        ("H-07", "a method in small letters", line(&format!("get {path} HTTP/1.1"), host), &[501]),
        ("H-07", "no method", line(&format!(" {path} HTTP/1.1"), host), &[400]),
    ];
    let many: String = (0..100).map(|n| format!("X-{n}: y\r\n")).collect();
    cases.push(("H-08", "101 headers", get(&many), &[431]));
    let large = format!("X: {}\r\n", "y".repeat(16 * 1024));
    cases.push(("H-08", "a header block over 16 KiB", get(&large), &[431]));
    let in_pieces: String = (0..17).map(|n| format!("X-{n}: {}\r\n", "y".repeat(1000))).collect();
    cases.push(("H-08", "many headers over 16 KiB", get(&in_pieces), &[431]));
    let long = format!("/{}", "x".repeat(8 * 1024));
    cases.push(("H-08", "a target of 8 KiB + 1", line(&format!("GET {long} HTTP/1.1"), host), &[414]));
    cases.push(("H-08", "a target without end", format!("GET /{}", "x".repeat(100_000)), &[414]));
    cases
}

#[test]
fn h_02_to_h_08_what_breaks_the_grammar_is_refused_and_closed() {
    let mut server = Server::start(&[]);
    plant_canary(&server);
    let bystander = Bystander::start(&server);
    for cases in [lengths(), codings(), chunks(), lines(), requests()] {
        check(&server, cases);
    }
    bystander.finish(&mut server);
}

/// Checks that correct requests up to the limits are served, and that the requests after them are executed.
#[test]
fn h_04_h_06_h_08_what_is_just_within_the_limits_is_served() {
    let server = Server::start(&[]);
    let extension = format!("1;{}\r\n \r\n0\r\nX: y\r\n\r\n", "x".repeat(255));
    let head_lines: String = (0..99).map(|n| format!("X-{n}: y\r\n")).collect();
    let target = format!("/{}", "x".repeat(8 * 1024 - 1));
    let requests = [
        (chunked("2\r\n{}\r\n0\r\n\r\n"), 200),
        (chunked("00000000000000A\r\n          \r\n0\r\n\r\n"), 200),
        (chunked(&extension), 200),
        (post("Content-Length: 2\r\n", "{}"), 200),
        (post("content-length:2\r\n", "{}"), 200),
        (get(&head_lines), 200),
        (get(&format!("X: {}\r\n", "y".repeat(16_000))), 200),
        (format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404),
        ("\r\nGET http://localhost/live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 200),
    ];
    let mut stream = connect(server.http);
    let all: String = requests.iter().map(|(request, _)| request.as_str()).collect();
    stream.write_all(all.as_bytes()).unwrap();
    for (request, status) in &requests {
        let answer = read_answer(&mut stream, false);
        assert_eq!(answer.0, *status, "{} {answer:?}", &request[..request.len().min(200)]);
    }
}

#[test]
fn h_09_h_10_a_body_over_the_limit_is_refused_before_it_is_held() {
    let mut server = Server::start(&[]);
    plant_canary(&server);
    let bystander = Bystander::start(&server);

    for length in ["262145", "1099511627776", "9223372036854775807"] {
        let lines = format!("Content-Length: {length}\r\nExpect: 100-continue\r\n");
        let answer = send_and_wait(server.http, post(&lines, "").as_bytes());
        assert_eq!((answer.status(), answer.count(), answer.closed), (413, 1, true), "{answer:?}");
        assert!(!answer.text.contains("100 Continue"), "{answer:?}");
        let lines = format!("Content-Length: {length}\r\n");
        let answer = send_and_wait(server.http, post(&lines, &smuggled()).as_bytes());
        assert_eq!((answer.status(), answer.count(), answer.closed), (413, 1, true), "{answer:?}");
    }
    // If the server will read the body, it answers 100 Continue.
    let mut stream = connect(server.http);
    stream.write_all(post("Content-Length: 2\r\nExpect: 100-continue\r\n", "").as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream, false).0, 100);
    stream.write_all(b"{}").unwrap();
    assert_eq!(read_answer(&mut stream, false).0, 200);
    drop(stream);

    endless_chunks(&server);
    assert_canary_lives(&server, "behind a large body");
    bystander.finish(&mut server);
}

/// Checks 48 peers that send chunks without end: the memory for each is bounded, and each gets a 413.
fn endless_chunks(server: &Server) {
    const PEERS: u64 = 48;
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    let before = server.rss_kb();
    let mut peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let mut stream = connect(server.http);
            stream.write_all(chunked("").as_bytes()).unwrap();
            for _ in 0..60 {
                stream.write_all(chunk.as_bytes()).unwrap();
            }
            stream
        })
        .collect();
    // When this request of a later connection is answered, the server has read all earlier bytes.
    server.api().get("/live/rest/v2/version");
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown <= PEERS * (256 + 64) + 8192, "{grown} KiB for {PEERS} bodies below the limit");
    // Each peer is answered when its body exceeds the limit.
    for stream in &mut peers {
        for _ in 60..65 {
            stream.write_all(chunk.as_bytes()).unwrap();
        }
        let answer = read_to_close(stream);
        assert_eq!((answer.status(), answer.count(), answer.closed), (413, 1, true), "{answer:?}");
    }
    // A client that continues to send is disconnected. A TCP reset may then overtake the answer.
    let mut stream = connect(server.http);
    stream.write_all(chunked("").as_bytes()).unwrap();
    let taken = (0..100_000).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    let answer = read_to_close(&mut stream);
    assert!(taken < 100_000 && answer.closed, "the body was taken: {taken} chunks");
    assert!(matches!(answer.status(), 413 | 0), "{answer:?}");
}

#[test]
fn h_14_answers_without_a_body_keep_the_framing() {
    let server = Server::start(&[]);
    plant_canary(&server);
    let request = |method: &str, path: &str, body: &str| {
        format!(
            "{method} /live/rest/v2/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let exchanges = [
        ("HEAD", "broadcasts/canary", "", 200),
        ("GET", "broadcasts/canary", "", 200),
        ("HEAD", "broadcasts/nobody", "", 404),
        ("GET", "broadcasts/nobody", "", 404),
        // After an answer with an error of the API, the connection stays open.
        ("POST", "broadcasts/create", "{", 400),
        ("POST", "version", "", 405),
        ("HEAD", "broadcasts/list/0/10", "", 200),
        ("PUT", "broadcasts/canary", r#"{"name":"new"}"#, 200),
        ("GET", "version", "", 200),
    ];
    // The requests are sent separately, then all in a single segment.
    for pipelined in [false, true] {
        let mut stream = connect(server.http);
        let texts: Vec<String> = exchanges.iter().map(|e| request(e.0, e.1, e.2)).collect();
        if pipelined {
            stream.write_all(texts.concat().as_bytes()).unwrap();
        }
        let mut told = 0;
        for (exchange, text) in exchanges.iter().zip(&texts) {
            if !pipelined {
                stream.write_all(text.as_bytes()).unwrap();
            }
            let head_only = exchange.0 == "HEAD";
            let (status, head, body) = read_answer(&mut stream, head_only);
            assert_eq!(status, exchange.3, "{exchange:?} {head}");
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map(|length| length.parse::<usize>().unwrap());
            if head_only {
                told = length.unwrap();
            } else {
                assert_eq!(length, Some(body.len()));
                if exchange.1 == "broadcasts/canary" && exchange.0 == "GET" {
                    assert_eq!(told, body.len(), "HEAD tells the length of GET");
                }
            }
        }
    }
}

/// Checks that peers without permission are answered before they send their body: the server neither requests nor reads
/// the body.
#[test]
fn h_37_who_is_not_allowed_is_answered_before_its_body() {
    let server = Server::start(&["app.remoteAllowedCIDR=10.0.0.0/8"]);
    let user = |lines: &str| post(lines, "").replace("/live/rest/v2/broadcasts/create", "/rest/v2/users");
    for (bytes, why) in [
        (post("Content-Length: 200000\r\n", "{"), "Not allowed IP"),
        (post("Content-Length: 200000\r\nExpect: 100-continue\r\n", ""), "Not allowed IP"),
        (post("Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"), "Not allowed IP"),
        (user("Content-Length: 200000\r\n"), "Not authenticated user"),
        (user("Content-Length: 200000\r\nExpect: 100-continue\r\n"), "Not authenticated user"),
        (user("Transfer-Encoding: chunked\r\n"), "Not authenticated user"),
    ] {
        let answer = send_and_wait(server.http, bytes.as_bytes());
        assert_eq!((answer.status(), answer.count(), answer.closed), (403, 1, true), "{answer:?}");
        assert!(answer.text.contains(why) && answer.text.contains("Connection: close\r\n"), "{answer:?}");
    }
    // If the body arrives together with the head, the connection stays open.
    let mut stream = connect(server.http);
    for _ in 0..2 {
        stream.write_all(post("Content-Length: 2\r\n", "{}").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream, false).0, 403);
    }
}
