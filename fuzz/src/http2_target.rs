//! HTTP/2: the meaning of a stream of frames does not depend on how it is cut, and its cost is bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http2::{Code, Config, Connection, Error, Event, Field, PREFACE, StreamId};
use wire::SendQueue;

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

/// The results of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    sent: Bytes,
    error: Option<Error>,
}

/// Runs a connection twice, with the bytes whole and in pieces. The first byte seeds the cuts. Unless its highest
/// bit is set, a preface and empty settings are put before the input. The number of a stream determines what the
/// application does with it.
pub fn http2(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    // Limits are small, so that small inputs reach them.
    let config = Config {
        streams: 4,
        fields: 8,
        header_list_bytes: 400,
        stream_window: 500,
        connection_window: 65_535,
        send_ahead_bytes: 3000,
        sent_step_bytes: 100,
        ..Config::default()
    };
    let config = Arc::new(config);
    let begun = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], stream].concat();
    let bytes = if seed & 0x80 == 0 { &begun[..] } else { stream };
    // Answers are given at the end of the input, because their order would otherwise depend on the cuts.
    let whole = run(&config, &[bytes]);
    assert_eq!(whole, run(&config, &pieces(seed & 0x7f, bytes)), "the cuts changed the meaning");
    converse(&config, &pieces(seed & 0x7f, bytes));
}

fn run(config: &Arc<Config>, pieces: &[&[u8]]) -> Outcome {
    let now = epoch();
    let mut connection = Connection::new(now, config.clone());
    let mut outcome = Outcome { events: Vec::new(), sent: Bytes::new(), error: None };
    for piece in pieces {
        let result = connection.handle_bytes(now, piece);
        outcome.error = outcome.error.or_else(|| result.err());
    }
    check(&connection, config);
    while let Some(event) = connection.poll_event() {
        outcome.events.push(event);
    }
    let mut out = SendQueue::new();
    connection.poll_transmit(now, &mut out);
    outcome.sent = out.take_all();
    outcome
}

fn check(connection: &Connection, config: &Config) {
    let stats = connection.stats();
    assert!(stats.held_bytes <= 16_384 + 9 + 32 * 1024, "held too much: {stats:?}");
    assert!(stats.streams <= config.streams as usize, "too many streams: {stats:?}");
}

/// Answers requests as they arrive, while time passes.
fn converse(config: &Arc<Config>, pieces: &[&[u8]]) {
    let mut now = epoch();
    let mut connection = Connection::new(now, config.clone());
    let mut out = SendQueue::new();
    let (mut closed, mut unreleased) = (0, 0);
    for piece in pieces {
        let _ = connection.handle_bytes(now, piece);
        while let Some(event) = connection.poll_event() {
            assert_eq!(closed, 0, "an event behind the end");
            match event {
                Event::Request { stream, .. } => answer(&mut connection, now, stream),
                Event::Body { stream, bytes } => {
                    unreleased += bytes.len();
                    assert!(unreleased <= 65_535 + 16_384, "more than the window");
                    connection.release(now, stream, bytes.len());
                    unreleased -= bytes.len();
                }
                Event::Sent { stream, bytes } => {
                    assert!(bytes > 0, "nothing was sent");
                    connection.send_body(now, stream, Bytes::from_static(&[1; 50]));
                }
                Event::BodyEnd { stream, .. } if stream.0 % 3 == 0 => connection.end_body(stream, vec![]),
                Event::BodyEnd { .. } | Event::Reset { .. } => {}
                Event::Closed(_) => closed += 1,
            }
        }
        check(&connection, config);
        connection.poll_transmit(now, &mut out);
        if out.len().is_multiple_of(2) {
            connection.handle_sent(now, out.len());
            out = SendQueue::new();
        }
        now += Duration::from_millis(100);
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            let _ = connection.handle_timeout(now);
            let later = connection.poll_timeout().is_none_or(|at| at > now);
            assert!(later || connection.poll_transmit(now, &mut out), "a deadline stays in the past");
        }
    }
    connection.handle_eof(now);
    while let Some(event) = connection.poll_event() {
        assert!(matches!(event, Event::Closed(_)), "only the end is left");
        closed += 1;
    }
    assert_eq!(closed, 1, "the end comes once");
}

fn answer(connection: &mut Connection, now: std::time::Instant, stream: StreamId) {
    match stream.0 % 7 {
        0 => connection.reset(now, stream, Code::CANCEL),
        1 | 2 => {
            connection.respond(now, stream, 200, &[Field::new("x", "y")], false);
            connection.send_body(now, stream, Bytes::from_static(&[0; 200]));
            connection.end_body(stream, vec![Field::new("sum", "1")]);
        }
        3 | 4 => {
            connection.respond(now, stream, 200, &[], false);
            connection.send_body(now, stream, Bytes::from_static(&[0; 2000]));
        }
        _ => {
            connection.respond(now, stream, 404, &[], true);
        }
    }
}
