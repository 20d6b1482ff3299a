//! H-27: damaged requests, read by our parser, by h11, by Node, and by nginx as a proxy. Our parser must never see more
//! requests than another parser, or another body, because request smuggling is based on such differences. It may see
//! fewer requests: RFC 9112, and not h11, decides what must be refused. nginx refuses some requests that the standard
//! permits (methods in lower case, `OPTIONS *`, invalid hosts). Up to such a request, both must have seen the same.
//!
//! `MILLSTREAM_REQUESTS` sets the number of requests.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use crypto::{Random, Seed};
use millstream::http::{Connection, Event, Limits, Response};
use serde::Deserialize;

/// Result of a parser: method and body of each request. Bodies are in base64.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Sight {
    seen: Vec<(String, String)>,
    error: bool,
}

const SEEDS: [&str; 14] = [
    "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /a?b=c HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PUT /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nDELETE /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nZ\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 44\r\n\r\nGET /inner HTTP/1.1\r\nHost: localhost\r\nX: 123456\r\n\r\n\r\n\r\n",
    "HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /a HTTP/1.0\r\nHost: localhost\r\n\r\nGET /b HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "GET /a HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "\r\nPATCH http://h/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\nGET /b HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: localhost\r\nX: y\r\n z\r\nContent-Length:0\r\n\r\nPOST /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
];

const PIECES: [&str; 42] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    " ",
    "\t",
    "\0",
    "\x0b",
    "\x7f",
    "\u{e9}",
    ":",
    ";",
    ",",
    "+",
    "-",
    "0x",
    "_",
    "0",
    "00",
    "5",
    "A",
    "ffffffffffffffff",
    "10000000000000005",
    "chunked",
    "identity",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding : chunked\r\n",
    " Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding:\x0bchunked\r\n",
    "Host: i\r\n",
    "Connection: close\r\n",
    "Connection: content-length\r\n",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/1.2",
    "0\r\n\r\n",
    "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "Upgrade: h2c\r\n",
];

fn spoilt(number: u64) -> Vec<u8> {
    let mut random = Seed::from_number(number).derive("differential", 0).random();
    let pick = |random: &mut Random, below: usize| usize::try_from(random.below(below as u64)).unwrap();
    let mut input = SEEDS[pick(&mut random, SEEDS.len())].as_bytes().to_vec();
    for _ in 0..1 + pick(&mut random, 3) {
        let at = pick(&mut random, input.len() + 1);
        let end = (at + 1 + pick(&mut random, 6)).min(input.len());
        let piece = PIECES[pick(&mut random, PIECES.len())].as_bytes();
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 => drop(input.drain(at.min(end)..end)),
            2 => {
                let again = input[at.min(end)..end].to_vec();
                input.splice(at..at, again);
            }
            // Inserts a piece at the beginning of a line.
            3 | 4 => {
                let lines: Vec<usize> =
                    input.windows(2).enumerate().filter(|(_, w)| w == b"\r\n").map(|(n, _)| n + 2).collect();
                if !lines.is_empty() {
                    let at = lines[pick(&mut random, lines.len())];
                    input.splice(at..at, piece.iter().copied());
                }
            }
            5 => drop(input.splice(at.min(end)..end, piece.iter().copied())),
            _ => drop(input.splice(at..at, piece.iter().copied())),
        }
    }
    input
}

fn ours(input: &[u8]) -> Sight {
    let now = Instant::now();
    let mut connection = Connection::new(now, Arc::new(Limits::default()));
    let mut sight = Sight { seen: Vec::new(), error: false };
    let _ = connection.handle_bytes(now, input);
    loop {
        match connection.poll_event() {
            Some(Event::Request(request)) => {
                sight.seen.push((request.method.to_string(), base64(&request.body)));
                connection.respond(now, 0, Response::empty(200));
            }
            Some(Event::Closed(reason)) => {
                sight.error = matches!(reason, millstream::http::CloseReason::Error(_));
                return sight;
            }
            None => connection.handle_eof(now),
        }
    }
}

/// Another parser in its own process: takes a line of base64, and answers with a line of JSON.
struct Peer(&'static str, Child, BufReader<std::process::ChildStdout>);

impl Peer {
    fn start(name: &'static str, command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(name, child, out)
    }

    fn see(&mut self, input: &[u8]) -> Sight {
        let stdin = self.1.stdin.as_mut().unwrap();
        writeln!(stdin, "{}", base64(input)).unwrap();
        let mut line = String::new();
        self.2.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}: {line:?}", self.0))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process ends when its input ends. The nginx process must be waited for, because it stops its nginx first.
        drop(self.1.stdin.take());
        let _ = self.1.wait();
    }
}

/// Reason for which h11 may refuse an input that RFC 9112 permits. Applies only if Node reads the input as our parser
/// does.
fn excuse(input: &[u8], ours: &Sight, h11: &Sight, node: &Sight) -> Option<&'static str> {
    let agreed = h11.error && ours.seen.starts_with(&h11.seen) && node.seen.starts_with(&ours.seen);
    match agreed {
        true if input.starts_with(b"\r\n") || has(input, "\r\n\r\n\r\n") => {
            Some("an empty line before a request (§2.2)")
        }
        true if has(input, "HTTP/1.0") && has(input, "keep-alive") => {
            Some("HTTP/1.0 that stays open (§C.2.2)")
        }
        true | false => None,
    }
}

/// True if nginx has seen fewer requests because it has closed the connection: after a request that it refused, or
/// after one with `close` in its `Connection` field, even as a part of another word.
fn nginx_ended(input: &[u8], ours: &Sight, nginx: &Sight) -> bool {
    ours.seen.starts_with(&nginx.seen) && (nginx.error || has(input, "close"))
}

fn has(input: &[u8], part: &str) -> bool {
    input.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

#[test]
fn h_27_no_parser_sees_less_than_ours_or_another_body() {
    let count: u64 = std::env::var("MILLSTREAM_REQUESTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let mut peers = [
        Peer::start("h11", Command::new(crate::support::python()).arg(folder.join("h11_peer.py"))),
        Peer::start("node", Command::new("node").arg(folder.join("node_peer.js"))),
        Peer::start("nginx", Command::new("python3").arg(folder.join("nginx_peer.py"))),
    ];
    let mut bad = Vec::new();
    let (mut requests, mut refused, mut alike) = (0, 0, [0; 3]);
    let mut excuses = std::collections::BTreeMap::<&str, u32>::new();
    for number in 0..count {
        let input = spoilt(number);
        let ours = ours(&input);
        requests += ours.seen.len();
        refused += u32::from(ours.error);
        let [h11, node, nginx] = peers.each_mut().map(|peer| (peer.0, peer.see(&input)));
        let excused = excuse(&input, &ours, &h11.1, &node.1).filter(|_| !h11.1.seen.starts_with(&ours.seen));
        if let Some(why) = excused {
            *excuses.entry(why).or_default() += 1;
        }
        for (index, (name, theirs)) in [h11, node, nginx].into_iter().enumerate() {
            alike[index] += usize::from(theirs.seen == ours.seen && !ours.seen.is_empty());
            let excused = match name {
                "h11" => excused.is_some(),
                "nginx" => nginx_ended(&input, &ours, &theirs),
                _ => false,
            };
            if !theirs.seen.starts_with(&ours.seen) && !excused {
                bad.push((number, name, String::from_utf8_lossy(&input).into_owned(), ours.clone(), theirs));
            }
        }
    }
    println!(
        "{count} inputs: ours saw {requests} requests and refused {refused}; h11, Node and nginx saw the same of {alike:?}; \
         h11 excused: {excuses:?}"
    );
    for (number, peer, input, ours, theirs) in bad.iter().take(40) {
        println!("{number} {peer}: {input:?}\n  ours {ours:?}\n  theirs {theirs:?}");
    }
    assert!(bad.is_empty(), "{} of {count}", bad.len());
    // A parser that sees no requests would never disagree, so each must agree on enough requests.
    assert!(alike.iter().all(|alike| *alike as u64 > count / 5), "{alike:?}");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4 {
            let known = digit <= group.len();
            out.push(if known { char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]) } else { '=' });
        }
    }
    out
}
