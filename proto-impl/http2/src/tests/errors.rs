//! Tests of protocol violations and the response to each (RFC 9113 §5.4).

use super::*;

/// Response to a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// GOAWAY and the end of the connection.
    Connection(Code),
    /// RST_STREAM of stream 1, after which the connection continues.
    Stream(Code),
    /// No response.
    Ignored,
}
use Answer::{Connection as Fatal, Ignored, Stream};

/// Opens stream 1 with `open`, feeds bytes to the connection, and returns the response.
fn answer(open: fn(&mut Rig), bytes: &[u8]) -> Answer {
    let mut rig = Rig::new();
    open(&mut rig);
    rig.events();
    rig.sent();
    match rig.feed(bytes) {
        Err(error) => {
            let sent = rig.sent();
            let Some(Sent::GoAway(_, code)) = sent.last() else { panic!("{sent:?}") };
            assert_eq!(rig.events(), [closed(CloseReason::Error(error))]);
            assert_eq!(rig.feed(bytes), Ok(()), "nothing is read any more");
            assert_eq!((rig.events(), rig.sent()), (vec![], vec![]));
            Fatal(*code)
        }
        Ok(()) => {
            let sent = rig.sent();
            rig.ask(101, &GET, true);
            let asked = |event: &Event| matches!(event, Event::Request { stream: StreamId(101), .. });
            assert!(rig.events().iter().any(asked), "the connection goes on");
            match &sent[..] {
                [Sent::Reset(1, code)] => Stream(*code),
                [] => Ignored,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn idle(_: &mut Rig) {}

fn open(rig: &mut Rig) {
    rig.ask(1, &POST, false);
}

fn half_closed(rig: &mut Rig) {
    rig.ask(1, &GET, true);
}

fn complete(rig: &mut Rig) {
    rig.ask(1, &GET, true);
    rig.server.respond(rig.now, ONE, 200, &[], true);
}

fn reset_by_peer(rig: &mut Rig) {
    rig.ask(1, &POST, false);
    rig.feed(&reset(1)).unwrap();
}

fn reset_by_us(rig: &mut Rig) {
    rig.ask(1, &POST, false);
    rig.server.reset(rig.now, ONE, Code::CANCEL);
}

fn length_of_3(rig: &mut Rig) {
    rig.ask(1, &[&POST[..], &[("content-length", "3")]].concat(), false);
}

const PROTOCOL: Code = Code::PROTOCOL_ERROR;
const SIZE: Code = Code::FRAME_SIZE_ERROR;
const FLOW: Code = Code::FLOW_CONTROL_ERROR;
const CLOSED: Code = Code::STREAM_CLOSED;

type Row = (&'static str, fn(&mut Rig), Vec<u8>, Answer);

fn check(rows: Vec<Row>) {
    for (name, state, bytes, want) in rows {
        assert_eq!(answer(state, &bytes), want, "{name}");
    }
}

#[test]
fn h_31_frames_for_the_connection() {
    let head = |kind, length, stream| Header { length, kind, flags: 0, stream }.write().to_vec();
    check(vec![
        ("a frame over the limit", idle, head(Kind::Unknown, 16_385, 0), Fatal(SIZE)),
        ("an unknown frame", idle, frame(Kind::Unknown, 0xff, 7, &[1]), Ignored),
        ("SETTINGS of a stream", idle, frame(Kind::Settings, 0, 1, &[]), Fatal(PROTOCOL)),
        ("SETTINGS cut short", idle, frame(Kind::Settings, 0, 0, &[0; 5]), Fatal(SIZE)),
        ("ACK with settings", idle, frame(Kind::Settings, flag::ACK, 0, &[0; 6]), Fatal(SIZE)),
        ("push 2", idle, settings(&[(2, 2)]), Fatal(PROTOCOL)),
        ("window 2^31", idle, settings(&[(4, 1 << 31)]), Fatal(FLOW)),
        ("frames too small", idle, settings(&[(5, 16_383)]), Fatal(PROTOCOL)),
        ("frames too large", idle, settings(&[(5, 1 << 24)]), Fatal(PROTOCOL)),
        ("PING of a stream", idle, frame(Kind::Ping, 0, 1, &[0; 8]), Fatal(PROTOCOL)),
        ("PING of 7", idle, frame(Kind::Ping, 0, 0, &[0; 7]), Fatal(SIZE)),
        ("GOAWAY of a stream", idle, frame(Kind::GoAway, 0, 1, &[0; 8]), Fatal(PROTOCOL)),
        ("GOAWAY of 7", idle, frame(Kind::GoAway, 0, 0, &[0; 7]), Fatal(SIZE)),
        ("PUSH_PROMISE", idle, frame(Kind::PushPromise, 4, 1, &[0; 4]), Fatal(PROTOCOL)),
        ("WINDOW_UPDATE by 0", idle, update(0, 0), Fatal(PROTOCOL)),
        ("WINDOW_UPDATE of 3", idle, frame(Kind::WindowUpdate, 0, 0, &[0; 3]), Fatal(SIZE)),
        ("the connection's window", idle, update(0, 0x7fff_ffff), Fatal(FLOW)),
    ]);
}

#[test]
fn h_31_frames_for_streams() {
    let data = |flags: u8, payload: &[u8]| frame(Kind::Data, flags, 1, payload);
    let priority = |stream, payload: &[u8]| frame(Kind::Priority, 0, stream, payload);
    let windows = [update(1, 0x7fff_0000), update(1, 0x7fff_0000)].concat();
    let settings_over = [update(1, 0x7fff_0000), settings(&[(4, 0x7fff_ffff)])].concat();
    check(vec![
        ("DATA without a stream", idle, frame(Kind::Data, 0, 0, &[]), Fatal(PROTOCOL)),
        ("DATA of an idle stream", idle, data(0, b"x"), Fatal(PROTOCOL)),
        ("DATA of an even stream", open, frame(Kind::Data, 0, 2, b"x"), Fatal(PROTOCOL)),
        ("DATA behind the request", half_closed, data(0, b"x"), Stream(CLOSED)),
        ("DATA of a complete stream", complete, data(0, b"x"), Stream(CLOSED)),
        ("DATA after RST_STREAM", reset_by_peer, data(0, b"x"), Stream(CLOSED)),
        ("DATA that crossed our reset", reset_by_us, data(0, b"x"), Ignored),
        ("padding over the frame", open, data(flag::PADDED, &[2, 0]), Fatal(PROTOCOL)),
        ("more than announced", length_of_3, data(0, b"four"), Stream(PROTOCOL)),
        ("less than announced", length_of_3, data(flag::END_STREAM, b"2 "), Stream(PROTOCOL)),
        ("RST_STREAM of an idle stream", idle, reset(1), Fatal(PROTOCOL)),
        ("RST_STREAM without a stream", idle, reset(0), Fatal(PROTOCOL)),
        ("RST_STREAM of 3", open, frame(Kind::RstStream, 0, 1, &[0; 3]), Fatal(SIZE)),
        ("RST_STREAM twice", reset_by_peer, reset(1), Ignored),
        ("PRIORITY without a stream", idle, priority(0, &[0; 5]), Fatal(PROTOCOL)),
        ("PRIORITY of 4", open, priority(1, &[0; 4]), Stream(SIZE)),
        ("PRIORITY of 4, idle", idle, priority(1, &[0; 4]), Fatal(SIZE)),
        ("PRIORITY", idle, priority(9, &[0; 5]), Ignored),
        ("WINDOW_UPDATE of an idle stream", idle, update(1, 1), Fatal(PROTOCOL)),
        ("WINDOW_UPDATE of a complete stream", complete, update(1, 1), Ignored),
        ("WINDOW_UPDATE by nothing", open, update(1, 0), Stream(PROTOCOL)),
        ("a stream's window", open, windows, Stream(FLOW)),
        ("a stream's window by settings", open, settings_over, Fatal(FLOW)),
    ]);
}

#[test]
fn h_31_header_blocks() {
    let get = Rig::new().headers(1, &GET, true);
    let block = &get[HEADER_BYTES..];
    let head = |flags, stream, payload: &[u8]| frame(Kind::Headers, flags, stream, payload);
    let whole = flag::END_HEADERS | flag::END_STREAM;
    let begun = head(flag::END_STREAM, 1, &block[..1]);
    let cont = |flags, stream, payload: &[u8]| frame(Kind::Continuation, flags, stream, payload);
    let padded = [&[200][..], block].concat();
    check(vec![
        ("HEADERS without a stream", idle, head(whole, 0, block), Fatal(PROTOCOL)),
        ("HEADERS of an even stream", idle, head(whole, 2, block), Fatal(PROTOCOL)),
        ("padding over the block", idle, head(whole | flag::PADDED, 1, &padded), Fatal(PROTOCOL)),
        ("PRIORITY cut short", idle, head(whole | flag::PRIORITY, 1, &[0; 4]), Fatal(SIZE)),
        (
            "a block that cannot be decoded",
            idle,
            head(whole, 1, &[0xff, 0xff]),
            Fatal(Code::COMPRESSION_ERROR),
        ),
        ("CONTINUATION without HEADERS", open, cont(0, 1, &[]), Fatal(PROTOCOL)),
        ("a block of another stream", idle, [&begun[..], &cont(4, 3, &block[1..])].concat(), Fatal(PROTOCOL)),
        (
            "a block interrupted",
            idle,
            [&begun[..], &frame(Kind::Ping, 0, 0, &[0; 8])].concat(),
            Fatal(PROTOCOL),
        ),
        (
            "by an unknown frame",
            idle,
            [&begun[..], &frame(Kind::Unknown, 0, 0, &[])].concat(),
            Fatal(PROTOCOL),
        ),
        ("HEADERS of a complete stream", complete, get.clone(), Fatal(CLOSED)),
        ("HEADERS after RST_STREAM", reset_by_peer, get.clone(), Fatal(CLOSED)),
        ("HEADERS that crossed our reset", reset_by_us, get.clone(), Ignored),
        ("HEADERS behind the request", half_closed, get.clone(), Stream(CLOSED)),
        ("trailers that do not end", open, head(flag::END_HEADERS, 1, &[]), Stream(PROTOCOL)),
        ("trailers with pseudo-header fields", open, get.clone(), Stream(PROTOCOL)),
        ("trailers before the length", length_of_3, head(whole, 1, &[]), Stream(PROTOCOL)),
        ("no fields", idle, head(whole, 1, &[]), Stream(PROTOCOL)),
    ]);
}

#[test]
fn streams_are_opened_in_order() {
    let mut rig = Rig::new();
    rig.ask(5, &GET, true);
    let late = rig.headers(3, &GET, true);
    assert!(matches!(rig.feed(&late), Err(Error::Peer { code: PROTOCOL, .. })));
}

#[test]
fn a_request_that_announces_a_body_has_one() {
    let mut rig = Rig::new();
    rig.ask(1, &[&GET[..], &[("content-length", "3")]].concat(), true);
    rig.ask(3, &[&GET[..], &[("content-length", "0")]].concat(), true);
    assert_eq!(rig.sent(), [Sent::Reset(1, PROTOCOL)]);
    assert_eq!(rig.events().len(), 2);
}

#[test]
fn the_preface_is_exact_and_settings_follow() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[PREFACE, &frame(Kind::Ping, 0, 0, &[0; 8])].concat()] {
        let mut rig = Rig::silent(Config::default());
        assert!(matches!(rig.feed(bytes), Err(Error::Peer { code: PROTOCOL, .. })), "{bytes:?}");
        assert!(matches!(rig.sent().last(), Some(Sent::GoAway(0, PROTOCOL))));
    }
}
