//! A worker and a client of HTTP/2. Each HTTP/2 stream is a session of its own, besides that of the connection.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http2::hpack::{Decoder, Encoder, Field};

use super::*;
use crate::config::AppSettings;
use crate::http::Response;
use crate::mail::{Blob, Obsolete, Packed, Progress, StreamDetails, ToControl};
use crate::protocol::{PathEvent, PathId};
use crate::types::{Ingest, StreamKey};

const STREAM: StreamId = StreamId(7);
const GET: u8 = 0x5;
const OPEN: u8 = 0x4;

/// A client, its worker, and the bytes received by the client.
struct Client {
    worker: Worker,
    now: Now,
    id: ConnId,
    encoder: Encoder,
    decoder: Decoder,
    held: Vec<u8>,
    heads: BTreeMap<u32, Vec<String>>,
    bodies: BTreeMap<u32, Vec<u8>>,
    ended: BTreeSet<u32>,
    resets: BTreeMap<u32, u32>,
    /// Sessions whose requests were passed to control for a decision.
    asked: Vec<ConnId>,
    authenticated: Vec<ConnId>,
    is_closed: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Client {
    fn new() -> Self {
        let mut client = Self::silent();
        client.send(http2::PREFACE);
        client.send(&frame(4, 0, 0, &[]));
        client
    }

    fn silent() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(9));
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        worker.handle_mail(now, ToWorker::App(std::sync::Arc::clone(&settings)));
        let (key, source, ingest) = (StreamKey::new("live", "cam"), WorkerId(0), Ingest::PULL);
        let details = StreamDetails::default();
        worker
            .handle_mail(now, ToWorker::StreamUp { stream: STREAM, key, source, ingest, details, settings });
        let https = Listener::named("https").unwrap();
        let id = worker.accept(now, https, ([192, 0, 2, 1], 4000).into()).unwrap();
        worker.handle_path(now, id, PathId::default(), PathEvent::Negotiated("h2"));
        Self {
            worker,
            now,
            id,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            held: Vec::new(),
            heads: BTreeMap::new(),
            bodies: BTreeMap::new(),
            ended: BTreeSet::new(),
            resets: BTreeMap::new(),
            asked: Vec::new(),
            authenticated: Vec::new(),
            is_closed: false,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.worker.handle_bytes(self.now, self.id, bytes);
        self.drain();
    }

    /// Sends HEADERS of a request. The fields in `more` follow `:scheme` and `:authority`.
    fn ask(&mut self, stream: u32, method: &str, path: &str, flags: u8, more: &[(&str, &str)]) {
        let first = [(":method", method), (":scheme", "https"), (":path", path), (":authority", "h")];
        let text = |text: &str| text.to_owned();
        let fields = first.iter().chain(more).map(|(name, value)| Field::new(text(name), text(value)));
        let block = self.encoder.encode(&fields.collect::<Vec<_>>());
        self.send(&frame(1, flags, stream, &block));
    }

    fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) {
        self.send(&frame(0, u8::from(is_last), stream, bytes));
    }

    fn widen(&mut self, stream: u32) {
        let update = |stream| frame(8, 0, stream, &1_000_000u32.to_be_bytes());
        self.send(&[update(0), update(stream)].concat());
    }

    fn drain(&mut self) {
        loop {
            self.worker.finish_turn();
            while let Some(output) = self.worker.poll_output() {
                if let Output::Control(ToControl::Rest { session, .. }) = output {
                    self.asked.push(session.conn);
                } else if let Output::Authenticated { conn, .. } = output {
                    self.authenticated.push(conn);
                } else if let Output::Close { conn, .. } = output {
                    self.is_closed |= conn == self.id;
                }
            }
            let Some((id, _)) = self.worker.next_write(Writers::All) else { break };
            let mut gather = wire::Gather::new(1 << 20);
            self.worker.gather(id, &mut gather);
            let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            self.worker.sent(self.now.mono, id, bytes.len(), bytes.len());
            assert_eq!(id, self.id, "only the connection has a socket");
            self.held.extend(bytes);
        }
        self.read();
    }

    fn read(&mut self) {
        while let Some(head) = self.held.get(..9) {
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags, stream) = (head[3], head[4], u32::from(head[7]) << 8 | u32::from(head[8]));
            let payload: Vec<u8> = self.held.drain(..9 + length).skip(9).collect();
            match kind {
                0 => self.bodies.entry(stream).or_default().extend(payload),
                1 => {
                    let list = self.decoder.decode(&payload, (100, 1 << 20), 1 << 20).unwrap();
                    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                    let line = |field: &Field| format!("{}: {}", text(&field.name), text(&field.value));
                    self.heads.insert(stream, list.fields.iter().map(line).collect());
                }
                3 => drop(self.resets.insert(stream, u32::from(payload[3]))),
                _ => continue,
            }
            if kind < 2 && flags & 1 != 0 {
                self.ended.insert(stream);
            }
        }
    }

    /// Makes control accept the head of a request, so that the request's body is taken.
    fn let_body_come(&mut self, conn: ConnId) {
        self.worker.handle_mail(self.now, ToWorker::TakeBody(conn));
        self.drain();
    }

    fn status(&self, stream: u32) -> &str {
        self.heads.get(&stream).map_or("none", |head| head[0].strip_prefix(":status: ").unwrap())
    }

    fn body(&self, stream: u32) -> &[u8] {
        self.bodies.get(&stream).map_or(&[], Vec::as_slice)
    }

    fn publish(&mut self, name: &str, bytes: Bytes) {
        let blob = Blob {
            stream: STREAM,
            app: "live".into(),
            name: name.into(),
            version: 1,
            content_type: "video/mp2t",
            viewers: Some("hls"),
            progress: Progress::default(),
            maker: "hls",
            obsolete: Obsolete::default(),
            calendar: None,
            fresh_until: None,
            bytes,
            is_needed: false,
            packed: Packed::default(),
            ladder: None,
        };
        self.worker.publish_blob(self.now, blob);
        self.drain();
    }

    /// Number of sessions other than the connection's own.
    fn children(&self) -> usize {
        self.worker.conns.len() - 1
    }
}

#[test]
fn a_request_that_waits_holds_up_no_other() {
    let mut client = Client::new();
    client.ask(1, "GET", "/live/streams/cam.m3u8", GET, &[]);
    assert_eq!((client.status(1), client.children()), ("none", 1));
    client.publish("cam1.ts", Bytes::from_static(b"segment"));
    client.ask(3, "GET", "/live/streams/cam1.ts", GET, &[("range", "bytes=1-3")]);
    assert_eq!((client.status(3), client.body(3)), ("206", &b"egm"[..]));
    let head = &client.heads[&3];
    for field in ["content-length: 3", "x-content-type-options: nosniff", "content-range: bytes 1-3/7"] {
        assert!(head.iter().any(|line| line == field), "{field}: {head:?}");
    }
    assert!(!head.iter().any(|line| line.starts_with("connection")), "{head:?}");
    client.publish("cam.m3u8", Bytes::from_static(b"#EXTM3U"));
    assert_eq!((client.status(1), client.body(1)), ("200", &b"#EXTM3U"[..]));
    client.ask(5, "HEAD", "/live/streams/cam1.ts", GET, &[]);
    assert_eq!((client.status(5), client.body(5)), ("200", &b""[..]));
    assert_eq!((client.ended.len(), client.resets.len(), client.children()), (3, 0, 0));
    assert!(client.authenticated.contains(&client.id), "its viewer counts for the connection");
}

#[test]
fn a_long_answer_waits_for_the_windows_of_its_client() {
    let mut client = Client::new();
    let segment: Bytes = (0..3_000_000u32).map(|i| i.to_le_bytes()[1]).collect::<Vec<u8>>().into();
    client.publish("cam1.ts", segment.clone());
    client.ask(1, "GET", "/live/streams/cam1.ts", GET, &[]);
    assert_eq!((client.body(1).len(), client.children()), (65_535, 1));
    for _ in 0..3 {
        client.widen(1);
    }
    assert!(client.body(1) == segment && client.ended.contains(&1));
    assert_eq!(client.children(), 0);
}

#[test]
fn control_answers_each_stream_and_hears_no_more_of_one_that_was_reset() {
    let mut client = Client::new();
    client.ask(1, "POST", "/live/rest/v2/broadcasts/create", OPEN, &[("content-type", "application/json")]);
    let [first] = client.asked[..] else { panic!("its head, without its body: {:?}", client.asked) };
    client.data(1, b"{\"name\":", false);
    client.let_body_come(first);
    assert_eq!(client.asked.len(), 1, "its body is not whole");
    client.data(1, b"\"x\"}", true);
    client.ask(3, "GET", "/rest/v2/version", GET, &[]);
    let [_, whole, second] = client.asked[..] else { panic!("{:?}", client.asked) };
    assert_eq!(first, whole);
    assert!(first != second && first != client.id);
    client.send(&frame(3, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(client.children(), 1);
    for conn in [second, first] {
        let response = Box::new(Response::json(200, "{}"));
        client.worker.handle_mail(client.now, ToWorker::RestReply { conn, response });
    }
    client.drain();
    assert_eq!((client.status(1), client.status(3), client.body(3)), ("none", "200", &b"{}"[..]));
    assert_eq!(client.children(), 0);
}

#[test]
fn h_36_requests_are_held_to_the_rules_of_any_other() {
    let mut client = Client::new();
    let long = format!("/{}", "x".repeat(9000));
    for (stream, method, path, status) in [
        (1, "TRACE", "/", "405"),
        (3, "BREW", "/", "501"),
        (5, "GET", "/../etc", "400"),
        (7, "DELETE", "/live/streams/x.ts", "405"),
        (9, "GET", &long, "414"),
    ] {
        client.ask(stream, method, path, GET, &[]);
        assert_eq!(client.status(stream), status, "{method} {path:.20}");
    }
    client.ask(11, "POST", "/rest/v2/x", OPEN, &[("content-length", "99999999")]);
    assert_eq!((client.status(11), client.resets.get(&11)), ("413", Some(&0)), "before the body");
    client.ask(13, "POST", "/rest/v2/x", OPEN, &[]);
    client.let_body_come(client.asked[0]);
    for _ in 0..20 {
        client.data(13, &[0; 16_000], false);
    }
    assert_eq!(client.status(13), "413", "and when it is too long");
    client.ask(15, "POST", "/rest/v2/x", OPEN, &[("expect", "100-continue")]);
    assert_eq!(client.status(15), "none", "no invitation before the verdict");
    client.let_body_come(client.asked[1]);
    assert_eq!(client.status(15), "100");
    client.data(15, b"1", false);
    client.now.mono += Duration::from_secs(11);
    client.worker.handle_timeout(client.now);
    client.drain();
    assert_eq!(client.status(15), "408", "a body that does not come");
    assert_eq!(client.children(), 0);
}

#[test]
fn h_37_a_body_is_not_waited_for_when_its_head_is_refused() {
    let mut client = Client::new();
    client.ask(1, "POST", "/live/rest/v2/broadcasts/create", OPEN, &[("content-length", "200000")]);
    client.data(1, &[0; 10_000], false);
    let conn = client.asked[0];
    let response = Box::new(Response::error(403, "Not allowed IP"));
    client.worker.handle_mail(client.now, ToWorker::RestReply { conn, response });
    client.drain();
    assert_eq!((client.status(1), client.resets.get(&1)), ("403", Some(&0)), "NO_ERROR");
    assert_eq!((client.children(), client.is_closed), (0, false));
    // The worker enlarges the connection's flow-control window as it takes data: together, the following streams send
    // more than the initial window allows.
    for stream in (3..).step_by(2).take(12) {
        client.ask(stream, "POST", "/live/rest/v2/broadcasts/create", OPEN, &[]);
        client.let_body_come(*client.asked.last().unwrap());
        for _ in 0..10 {
            client.data(stream, &[0; 16_000], false);
        }
        client.data(stream, b"", true);
        let conn = *client.asked.last().unwrap();
        let response = Box::new(Response::json(200, "{}"));
        client.worker.handle_mail(client.now, ToWorker::RestReply { conn, response });
        client.drain();
        assert_eq!(client.status(stream), "200", "{stream}");
    }
}

#[test]
fn a_websocket_is_a_stream_beside_others() {
    let mut client = Client::new();
    let connect = [(":protocol", "websocket"), ("sec-websocket-version", "13"), ("origin", "https://h")];
    client.ask(1, "CONNECT", "/live/websocket", OPEN, &connect[..2]);
    assert_eq!((client.status(1), client.ended.len()), ("200", 0));
    // A masked text message. Its key is all zeros, which leaves the text unchanged.
    let text = br#"{"command":"ping"}"#;
    let message = [&[0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0], &text[..]].concat();
    client.data(1, &message[..4], false);
    client.data(1, &message[4..], false);
    let answer = String::from_utf8_lossy(client.body(1)).into_owned();
    assert!(answer.contains("pong"), "{answer:?}");
    client.ask(3, "GET", "/rest/v2/version", GET, &[]);
    assert_eq!((client.asked.len(), client.children()), (1, 2));
    // A close frame with code 1000.
    client.data(1, &[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8], false);
    assert!(client.ended.contains(&1) && client.body(1).ends_with(&[0x88, 2, 3, 0xe8]));
    client.ask(5, "CONNECT", "/live/websocket", OPEN, &connect[..1]);
    assert_eq!(client.status(5), "400", "a version is needed");
    client.ask(7, "CONNECT", "/live/websocket", OPEN, &[(":protocol", "webtransport")]);
    assert_eq!(client.status(7), "501");
}

#[test]
fn h_36_a_connection_that_ends_takes_its_streams_along() {
    for ending in 0..3 {
        let mut client = Client::new();
        client.ask(1, "GET", "/live/streams/cam.m3u8", GET, &[]);
        client.ask(3, "GET", "/rest/v2/version", GET, &[]);
        client.ask(5, "POST", "/rest/v2/version", OPEN, &[]);
        assert_eq!(client.children(), 3);
        let event = match ending {
            0 => PathEvent::PeerClosed,
            1 => PathEvent::Broken("reset"),
            _ => {
                client.send(&frame(6, 0, 0, b"no"));
                PathEvent::PeerClosed
            }
        };
        client.worker.handle_path(client.now, client.id, PathId::default(), event);
        client.drain();
        assert!(
            client.is_closed && client.worker.conns.is_empty(),
            "{ending}: {}",
            client.worker.conns.len()
        );
        assert_eq!(client.worker.polled.waiting_requests(), 0);
    }
}

#[test]
fn a_server_that_goes_down_answers_what_is_under_way() {
    let mut client = Client::new();
    client.ask(1, "GET", "/rest/v2/version", GET, &[]);
    client.worker.handle_mail(client.now, ToWorker::Drain);
    client.drain();
    let conn = client.asked[0];
    let response = Box::new(Response::json(200, "{}"));
    client.worker.handle_mail(client.now, ToWorker::RestReply { conn, response });
    client.drain();
    assert_eq!((client.status(1), client.is_closed), ("200", true));
}

#[test]
fn a_client_that_breaks_its_promise_is_told_so() {
    let mut client = Client::silent();
    client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.is_closed && client.heads.is_empty(), "no answer of HTTP/1.1");
}
