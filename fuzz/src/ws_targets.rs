//! WebSocket (RFC 6455): the meaning of a stream does not depend on how it is cut, and memory stays bounded.

use std::sync::Arc;

use crypto::Seed;
use http1::websocket::{Event, FrameHead, Limits, WebSocket};
use http1::{Range, parse_range};
use wire::SendQueue;

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

/// Reads a frame head. It must be written back to the same bytes, and fewer bytes must not suffice to read it.
pub fn ws_frame(data: &[u8]) {
    let Ok(Some((head, bytes))) = FrameHead::read(data) else { return };
    assert!(bytes <= data.len() && bytes <= 14);
    assert_eq!(&head.write()[..], &data[..bytes], "another spelling");
    assert!(head.length <= u64::MAX / 2 && (!head.opcode.is_control() || head.length <= 125));
    for cut in 0..bytes {
        assert_eq!(FrameHead::read(&data[..cut]), Ok(None), "complete too early");
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    closing: bool,
}

/// Reads a stream of frames, whole and in pieces. The first byte seeds the cuts; with its highest bit set, the
/// reader is a client.
pub fn ws_stream(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    // Limits are small, so that small inputs reach them.
    let limits = Arc::new(Limits { message_bytes: 512, ..Limits::default() });
    let client = seed & 0x80 != 0;
    let whole = run(&limits, client, &[stream]);
    assert_eq!(whole, run(&limits, client, &pieces(seed & 0x7f, stream)), "the cuts changed the meaning");
}

fn run(limits: &Arc<Limits>, client: bool, pieces: &[&[u8]]) -> Outcome {
    let now = epoch();
    let mut socket = if client {
        WebSocket::client(now, limits.clone(), b"", &Seed::from_number(1))
    } else {
        WebSocket::server(now, limits.clone(), b"")
    };
    let mut outcome = Outcome { events: Vec::new(), closing: false };
    for piece in pieces {
        socket.handle_bytes(now, piece);
        while let Some(event) = socket.poll_event() {
            match &event {
                Event::Text(text) => assert!(text.len() <= limits.message_bytes),
                Event::Binary(bytes) => assert!(bytes.len() <= limits.message_bytes),
                Event::Closed(_) => assert!(!outcome.closing, "closed twice"),
            }
            assert!(!outcome.closing, "an event after the end");
            outcome.closing = matches!(event, Event::Closed(_));
            outcome.events.push(event);
        }
        let stats = socket.stats();
        assert!(stats.held_bytes <= limits.message_bytes + 14 + 125, "held too much: {stats:?}");
        let mut out = SendQueue::new();
        socket.poll_transmit(&mut out);
        let sent = out.take_all();
        assert!(sent.len() <= 17 * (14 + 125), "one goodbye and some pongs at most: {}", sent.len());
        socket.handle_sent(now, sent.len());
        assert_eq!(socket.is_closing(), outcome.closing);
    }
    outcome
}

/// Reads a Range field, which must never select more than the file. The first two bytes are the length of the
/// file.
pub fn range_header(data: &[u8]) {
    let Some((length, field)) = data.split_first_chunk::<2>() else { return };
    let Ok(field) = std::str::from_utf8(field) else { return };
    for length in [u64::from(u16::from_be_bytes(*length)), 0, 1, u64::MAX] {
        if let Range::Part(part) = parse_range(field, length) {
            assert!(part.start < part.end && part.end <= length, "{part:?} of {length}");
            assert!(!field.contains(','), "several ranges");
        }
    }
}
