//! HTTP/1.1: the meaning of a stream does not depend on how it is cut (RFC 9112).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::BytesMut;
use http1::{BodyDecoder, CloseReason, Connection, Error, Event, Framing, Limits, Request, Response};
use wire::SendQueue;

use crate::splits::{head, pieces};

/// A fixed instant shared by all runs: results must not depend on the time of a run.
pub(crate) fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

#[derive(Debug, PartialEq)]
struct Outcome {
    requests: Vec<Request>,
    answers: String,
    closed: Option<CloseReason>,
}

/// Reads pipelined requests, whole and in pieces. The first byte seeds the cuts.
pub fn http_request(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    // Limits are small, so that small inputs reach them.
    let limits = Limits {
        head_bytes: 1024,
        headers: 16,
        target_bytes: 256,
        body_bytes: 2048,
        trailer_bytes: 256,
        chunk_extension_bytes: 32,
        ..Limits::default()
    };
    let limits = Arc::new(limits);
    let whole = run(&limits, &[stream]);
    let cut = run(&limits, &pieces(seed, stream));
    assert_eq!(whole, cut, "the cuts changed the meaning");
}

fn run(limits: &Arc<Limits>, pieces: &[&[u8]]) -> Outcome {
    let now = epoch();
    let mut connection = Connection::new(now, limits.clone());
    let mut outcome = Outcome { requests: Vec::new(), answers: String::new(), closed: None };
    for piece in pieces {
        assert_eq!(connection.handle_bytes(now, piece), Ok(()));
        drain(&mut connection, &mut outcome);
    }
    let stats = connection.stats();
    assert!(stats.scanned_bytes <= stats.bytes_in, "scanned twice: {stats:?}");
    assert!(stats.held_bytes <= limits.head_bytes + limits.body_bytes + 1024, "held too much: {stats:?}");
    connection.handle_eof(now);
    drain(&mut connection, &mut outcome);
    assert!(outcome.closed.is_some() && connection.is_closing(), "open after the peer's end");
    outcome
}

fn drain(connection: &mut Connection, outcome: &mut Outcome) {
    let now = epoch();
    loop {
        match connection.poll_event() {
            Some(Event::Request(request)) => {
                assert!(outcome.closed.is_none(), "a request after the end");
                check(&request);
                outcome.requests.push(request);
                connection.respond(now, 0, Response::text(200, "ok"));
            }
            Some(Event::Closed(reason)) => assert_eq!(outcome.closed.replace(reason), None, "closed twice"),
            None => break,
        }
        transmit(connection, outcome);
    }
    transmit(connection, outcome);
}

/// Takes the output without `100 Continue`, which depends on how much has arrived (RFC 9110 §10.1.1).
fn transmit(connection: &mut Connection, outcome: &mut Outcome) {
    let mut out = SendQueue::new();
    connection.poll_transmit(&mut out);
    let bytes = out.take_all();
    connection.handle_sent(epoch(), bytes.len());
    outcome.answers += &String::from_utf8_lossy(&bytes).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
}

/// Checks what the application may rely on in a request.
fn check(request: &Request) {
    let path = &request.path;
    assert!(path == "*" || path.starts_with('/'), "{path:?}");
    assert!(
        !path.contains("//") && !path.contains(['\\', '\0']) && !path.chars().any(|c| c.is_ascii_control())
    );
    assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{path:?}");
    for (name, value) in request.headers.iter() {
        assert!(!name.is_empty() && !name.contains([' ', ':']), "{name:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
    }
    let framed = request.headers.count("content-length") + request.headers.count("transfer-encoding");
    assert!(framed <= 1 && (framed == 1 || request.body.is_empty()));
}

/// Reads a chunked body, whole and in pieces. A body that is accepted reads the same after it is chunked again.
pub fn http_chunked(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let whole = decode(&[stream]);
    assert_eq!(whole, decode(&pieces(seed, stream)), "the cuts changed the meaning");
    let Ok(Some((body, _))) = whole else { return };
    let mut again = Vec::new();
    for chunk in body.chunks(usize::from(seed) + 1) {
        again.extend(format!("{:x}\r\n", chunk.len()).bytes());
        again.extend(chunk);
        again.extend(b"\r\n");
    }
    again.extend(b"0\r\n\r\nbehind");
    assert_eq!(decode(&[&again]), Ok(Some((body, b"behind".to_vec()))));
}

/// The body and the bytes after it; `None` if the body is incomplete.
type Decoded = Option<(Vec<u8>, Vec<u8>)>;

fn decode(pieces: &[&[u8]]) -> Result<Decoded, Error> {
    let limits = Limits { body_bytes: 4096, ..Limits::default() };
    let mut decoder = BodyDecoder::new(Framing::Chunked, &limits);
    let mut input = BytesMut::new();
    let mut done = false;
    for piece in pieces {
        input.extend_from_slice(piece);
        done = decoder.decode(&mut input)?;
        assert!(done || input.is_empty(), "bytes left behind");
        assert!(decoder.len() <= limits.body_bytes);
    }
    Ok(done.then(|| (decoder.into_body().to_vec(), input.to_vec())))
}
