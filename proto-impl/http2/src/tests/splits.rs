//! Property tests: the split of a byte stream does not affect its meaning, and no bytes cause a panic.

use proptest::prelude::*;

use super::*;

/// The result of a run: all events, the bytes sent, and the error.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<Event>,
    sent: Bytes,
    error: Option<Error>,
}

/// Feeds `pieces` to a new server, and answers each request as it arrives.
fn run(pieces: &[&[u8]]) -> Outcome {
    let config = Config { header_list_bytes: 400, fields: 8, streams: 3, ..Config::default() };
    let mut rig = Rig::silent(config);
    // Only the results are compared, not the calls in which they were produced.
    let mut outcome = Outcome { events: Vec::new(), sent: Bytes::new(), error: None };
    for piece in pieces {
        let result = rig.feed(piece);
        outcome.error = outcome.error.or_else(|| result.err());
    }
    while let Some(event) = rig.server.poll_event() {
        if let Event::Request { stream, .. } = &event {
            rig.server.respond(rig.now, *stream, 200, &[Field::new("x", "y")], false);
            rig.server.send_body(rig.now, *stream, Bytes::from_static(b"body"));
            rig.server.end_body(*stream, vec![]);
        }
        outcome.events.push(event);
    }
    outcome.sent = rig.bytes();
    let ends = outcome.events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
    assert!(ends <= 1 && (ends == 0 || matches!(outcome.events.last(), Some(Event::Closed(_)))));
    assert!(ends == 1 || outcome.error.is_none());
    assert!(rig.server.stats().held_bytes <= 16_384 + 9 + 32 * 1024);
    outcome
}

/// Generates frames, mostly valid, in any order.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![Just(0u32), Just(1), Just(3), Just(5), Just(7)];
    let kind = prop_oneof![
        3 => Just(Kind::Headers),
        3 => Just(Kind::Data),
        1 => Just(Kind::Continuation),
        1 => Just(Kind::RstStream),
        1 => Just(Kind::Settings),
        1 => Just(Kind::Ping),
        2 => Just(Kind::WindowUpdate),
        1 => Just(Kind::Priority),
        1 => Just(Kind::Unknown),
    ];
    let block = Rig::new().headers(1, &GET, true)[HEADER_BYTES..].to_vec();
    let payload = prop_oneof![
        3 => Just(block),
        2 => Just(vec![0, 0, 0, 100]),
        1 => Just(vec![0; 8]),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    let flags = prop_oneof![Just(0u8), Just(4), Just(5), Just(1), any::<u8>()];
    let one = (kind, flags, stream, payload).prop_map(|(k, f, s, p)| frame(k, f, s, &p));
    prop::collection::vec(one, 0..30).prop_map(|frames| {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(Kind::Settings, 0, 0, &[]));
        bytes.extend(frames.concat());
        bytes
    })
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(bytes in frames(), cuts in prop::collection::vec(1usize..50, 1..60)) {
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        prop_assert_eq!(run(&[&bytes]), run(&pieces));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        run(&[&bytes]);
        run(&[PREFACE, &bytes]);
    }
}
