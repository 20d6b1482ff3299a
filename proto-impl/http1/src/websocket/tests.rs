//! The rows of docs/robustness.md for WebSocket, in virtual time. Also tests that the meaning of a stream does
//! not depend on how it is split into pieces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use proptest::prelude::*;
use wire::SendQueue;

use super::frame::apply_mask;
use super::*;

/// A server with its shell, and the bytes that the peer has received.
struct Rig {
    now: Instant,
    socket: WebSocket,
    received: Vec<u8>,
    events: Vec<Event>,
}

impl Rig {
    fn new() -> Self {
        let now = netsim::Clock::new().now();
        let socket = WebSocket::server(now, Arc::new(Limits::default()), b"");
        Self { now, socket, received: Vec::new(), events: Vec::new() }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.socket.handle_bytes(self.now, bytes);
        self.deliver();
    }

    fn deliver(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.socket.poll_event()));
        let mut out = SendQueue::new();
        self.socket.poll_transmit(&mut out);
        let bytes = out.take_all();
        self.received.extend_from_slice(&bytes);
        self.socket.handle_sent(self.now, bytes.len());
    }

    /// Returns the code of the close frame, which must be the last frame received.
    fn close_code(&self) -> Option<u16> {
        let mut rest = &self.received[..];
        while let Ok(Some((head, head_bytes))) = FrameHead::read(rest) {
            let end = head_bytes + usize::try_from(head.length).unwrap();
            let payload = &rest[head_bytes..end];
            rest = &rest[end..];
            if head.opcode == Opcode::Close {
                assert!(rest.is_empty(), "something follows the close frame");
                return payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            }
        }
        None
    }
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let opcode = Opcode::Binary;
    let mask = Some([7, 1, 9, 3]);
    let head = FrameHead { is_final: true, opcode, length: payload.len() as u64, mask };
    let mut bytes = head.write().to_vec();
    bytes[0] = first;
    let mut masked = payload.to_vec();
    apply_mask(&mut masked, [7, 1, 9, 3]);
    bytes.extend(masked);
    bytes
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// Feeds `bytes` as a whole, byte by byte, and in pieces of seven. The close code must be `code`, and later
/// input must be ignored.
fn check_closed(bytes: &[u8], code: u16) {
    for split in [usize::MAX, 1, 7] {
        let mut rig = Rig::new();
        let mut input = bytes.to_vec();
        input.extend(frame(TEXT, b"canary"));
        input.chunks(split.min(input.len())).for_each(|piece| rig.feed(piece));
        let shown = &bytes[..bytes.len().min(20)];
        assert_eq!(rig.close_code(), Some(code), "{shown:x?}");
        assert!(rig.socket.is_closing() && matches!(rig.events.last(), Some(Event::Closed(_))), "{shown:x?}");
        assert!(!rig.events.contains(&Event::Text("canary".into())), "{shown:x?}");
    }
}

#[test]
fn messages_come_whole_in_any_split() {
    let mut input = frame(TEXT, "grüß".as_bytes());
    input.extend(frame(0x01, "g\u{20ac}".split_at(1).0.as_bytes()));
    input.extend(frame(PING, b"between"));
    input.extend(frame(0x00, &"\u{20ac}".as_bytes()[..1]));
    input.extend(frame(0x80, &"\u{20ac}".as_bytes()[1..]));
    input.extend(frame(BINARY, &[0; 300]));
    for split in 1..input.len() {
        let mut rig = Rig::new();
        input.chunks(split).for_each(|piece| rig.feed(piece));
        let want =
            [Event::Text("grüß".into()), Event::Text("g€".into()), Event::Binary(Bytes::from(vec![0; 300]))];
        assert_eq!(rig.events, want);
        assert_eq!(rig.received, b"\x8a\x07between");
    }
}

#[test]
fn w_01_masks_reserved_bits_and_opcodes() {
    check_closed(b"\x81\x01a", 1002);
    for first in [0xc1, 0xa1, 0x91, 0xf1, 0x83, 0x87, 0x8b, 0x8f] {
        check_closed(&frame(first, b"x"), 1002);
    }
    check_closed(&frame(0x80, b"nothing to go on with"), 1002);
    check_closed(&[frame(0x01, b"a"), frame(TEXT, b"b")].concat(), 1002);
}

#[test]
fn w_02_lengths_that_lie_are_refused_and_make_no_room() {
    check_closed(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04", 1009);
    check_closed(b"\x82\xff\x80\0\0\0\0\0\0\0\x01\x02\x03\x04", 1002);
    check_closed(b"\x82\xff\0\0\0\0\0\0\0\x0a\x01\x02\x03\x040123456789", 1002);
    check_closed(b"\x82\xfe\0\x0a\x01\x02\x03\x040123456789", 1002);
    let mut rig = Rig::new();
    // The head announces 128 KiB; only 4 bytes are sent.
    rig.feed(b"\x82\xff\0\0\0\0\0\x02\0\0\x01\x02\x03\x04abcd");
    assert!(!rig.socket.is_closing() && rig.socket.stats().held_bytes < 64);
    assert!(rig.socket.held_capacity() < 1024);
}

#[test]
fn w_03_control_frames_are_short_and_whole() {
    check_closed(&frame(PING, &[0; 126]), 1002);
    check_closed(&frame(0x09, b"x"), 1002);
    check_closed(&frame(0x08, b"\x03\xe8"), 1002);
    check_closed(&frame(CLOSE, b"\x03"), 1002);
}

#[test]
fn w_04_a_message_over_the_limit_is_refused_in_one_frame_and_in_many() {
    check_closed(&frame(BINARY, &vec![0; 128 * 1024 + 1]), 1009);
    let mut rig = Rig::new();
    rig.feed(&frame(0x02, &[0; 16]));
    let mut fragments = 1;
    while !rig.socket.is_closing() {
        rig.feed(&frame(0x00, &[0; 16]));
        fragments += 1;
        assert!(rig.socket.stats().held_bytes <= 128 * 1024);
    }
    assert_eq!((fragments, rig.close_code()), (8193, Some(1009)));
    let mut rig = Rig::new();
    rig.feed(&frame(BINARY, &vec![1; 128 * 1024]));
    assert_eq!(rig.events.len(), 1, "the limit itself is fine");
}

#[test]
fn w_05_text_is_utf_8() {
    check_closed(&frame(TEXT, b"\xff"), 1007);
    check_closed(&frame(TEXT, b"\xed\xa0\x80"), 1007);
    check_closed(&[frame(0x01, b"\xe2"), frame(0x00, b"\x28")].concat(), 1007);
    check_closed(&[frame(0x01, b"\xe2"), frame(0x80, b"\x82")].concat(), 1007);
    check_closed(&frame(CLOSE, b"\x03\xe8\xff"), 1007);
}

#[test]
fn w_06_a_flood_of_pings_is_answered_with_the_newest() {
    let mut rig = Rig::new();
    let flood: Vec<u8> = (0..10_000u32).flat_map(|n| frame(PING, &n.to_be_bytes())).collect();
    rig.feed(&flood);
    let newest = (9984..10_000u32).flat_map(|n| [&[0x8a, 4][..], &n.to_be_bytes()].concat());
    assert_eq!(rig.received, newest.collect::<Vec<u8>>());
    // A peer that reads nothing gets no more pongs.
    for n in 0..100_000u32 {
        rig.socket.handle_bytes(rig.now, &frame(PING, &n.to_be_bytes()));
        rig.socket.poll_transmit(&mut SendQueue::new());
    }
    assert!(rig.socket.stats().unsent_bytes <= 8192, "{:?}", rig.socket.stats());
}

#[test]
fn w_08_a_peer_that_takes_nothing_is_given_up_by_size_and_by_time() {
    let mut rig = Rig::new();
    let block = Bytes::from(vec![0; 64 * 1024]);
    let sent = (0..100).take_while(|_| rig.socket.send_binary(rig.now, block.clone()).is_ok()).count();
    assert_eq!(sent, 15);
    assert!(rig.socket.is_closing());

    let mut rig = Rig::new();
    rig.socket.send_text(rig.now, "hello").unwrap();
    assert_eq!(rig.socket.poll_timeout(), Some(rig.now + Duration::from_secs(10)));
    rig.socket.handle_sent(rig.now + Duration::from_secs(9), 3);
    assert_eq!(rig.socket.poll_timeout(), Some(rig.now + Duration::from_secs(19)));
    assert_eq!(rig.socket.handle_timeout(rig.now + Duration::from_secs(19)), Err(Error::WriteStalled));
    assert_eq!(rig.socket.poll_event(), Some(Event::Closed(CloseReason::Error(Error::WriteStalled))));
}

#[test]
fn a_quiet_peer_is_pinged_and_given_up_without_an_answer() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.now = rig.socket.poll_timeout().unwrap();
        rig.socket.handle_timeout(rig.now).unwrap();
        rig.deliver();
        assert_eq!(rig.received.split_off(0)[..2], [0x89, 8]);
        rig.now += Duration::from_secs(1);
        rig.feed(&frame(PONG, b""));
        assert_eq!(rig.socket.poll_timeout(), Some(rig.now + Duration::from_secs(30)));
    }
    rig.now += Duration::from_secs(30);
    rig.socket.handle_timeout(rig.now).unwrap();
    rig.deliver();
    rig.now += Duration::from_secs(10);
    assert_eq!(rig.socket.handle_timeout(rig.now), Err(Error::NoPong));
}

#[test]
fn a_pinged_peer_may_finish_a_large_frame_first() {
    for is_whole_in_time in [true, false] {
        let mut rig = Rig::new();
        let large = frame(BINARY, &[7; 100_000]);
        let (begin, rest) = large.split_at(50_000);
        // The ping falls into the frame.
        rig.now += Duration::from_secs(29);
        rig.feed(begin);
        rig.now = rig.socket.poll_timeout().unwrap();
        rig.socket.handle_timeout(rig.now).unwrap();
        rig.deliver();
        // A pong is due after ten seconds, the frame 35 seconds after its beginning: four bytes a millisecond.
        let whole_by = rig.socket.poll_timeout().unwrap();
        rig.now += Duration::from_secs(10);
        assert_eq!(rig.socket.handle_timeout(rig.now), Ok(()));
        rig.now = whole_by;
        if is_whole_in_time {
            rig.feed(rest);
        }
        let outcome = rig.socket.handle_timeout(rig.now);
        assert_eq!(outcome, if is_whole_in_time { Ok(()) } else { Err(Error::NoPong) });
    }
}

#[test]
fn goodbyes_are_answered_in_kind() {
    for (payload, answer, reason) in [
        (&b"\x03\xe8bye"[..], Some(1000), 1000),
        (b"", None, 1005),
        (b"\x03\xed", Some(1002), 1002),
        (b"\x07\xd0", Some(1002), 1002),
        (b"\x0f\xa0", Some(4000), 4000),
    ] {
        let mut rig = Rig::new();
        rig.feed(&frame(CLOSE, payload));
        assert_eq!(
            (rig.close_code(), rig.events.last()),
            (answer, Some(&Event::Closed(CloseReason::Peer(reason))))
        );
    }
    let mut rig = Rig::new();
    rig.socket.close(rig.now, code::NORMAL, &"x".repeat(500));
    rig.deliver();
    assert_eq!((rig.close_code(), rig.received.len()), (Some(1000), 127));
    rig.socket.handle_eof(rig.now);
    rig.deliver();
    assert_eq!(rig.events, [Event::Closed(CloseReason::Requested)]);
}

#[test]
fn messages_that_are_not_polled_stop_the_reading_and_are_not_lost() {
    let mut rig = Rig::new();
    let many: Vec<u8> = (0..1000u32).flat_map(|n| frame(TEXT, n.to_string().as_bytes())).collect();
    rig.socket.handle_bytes(rig.now, &many);
    assert!(!rig.socket.wants_bytes());
    let got: Vec<_> = std::iter::from_fn(|| rig.socket.poll_event()).collect();
    let want: Vec<_> = (0..1000u32).map(|n| Event::Text(n.to_string())).collect();
    assert_eq!(got, want);
    assert!(rig.socket.wants_bytes());
}

#[test]
fn a_client_and_a_server_talk() {
    let now = netsim::Clock::new().now();
    let limits = Arc::new(Limits::default());
    let mut server = WebSocket::server(now, limits.clone(), b"");
    let mut client = WebSocket::client(now, limits.clone(), b"", &Seed::from_number(1));
    let carry = |from: &mut WebSocket, to: &mut WebSocket| {
        let mut out = SendQueue::new();
        from.poll_transmit(&mut out);
        let bytes = out.take_all();
        from.handle_sent(now, bytes.len());
        to.handle_bytes(now, &bytes);
        bytes
    };
    client.send_text(now, "from the client").unwrap();
    server.send_binary(now, Bytes::from_static(b"from the server")).unwrap();
    let masked = carry(&mut client, &mut server);
    assert!(!masked.windows(6).any(|part| part == b"client"), "masked");
    carry(&mut server, &mut client);
    assert_eq!(server.poll_event(), Some(Event::Text("from the client".into())));
    assert_eq!(client.poll_event(), Some(Event::Binary(Bytes::from_static(b"from the server"))));
    server.close(now, code::NORMAL, "");
    carry(&mut server, &mut client);
    assert_eq!(client.poll_event(), Some(Event::Closed(CloseReason::Peer(1000))));
    // Frames that a server may not send.
    let mut client = WebSocket::client(now, limits, &frame(TEXT, b"masked"), &Seed::from_number(1));
    assert_eq!(
        client.poll_event(),
        Some(Event::Closed(CloseReason::Error(Error::Protocol("masked frame of a server"))))
    );
}

proptest! {
    #[test]
    fn any_split_means_the_same(bytes in prop::collection::vec(any::<u8>(), 0..400), split in 1usize..50) {
        let run = |split: usize| {
            let mut rig = Rig::new();
            bytes.chunks(split).for_each(|piece| rig.feed(piece));
            let code = rig.close_code();
            (rig.events, rig.socket.is_closing(), code)
        };
        prop_assert_eq!(run(split), run(bytes.len().max(1)));
    }
}
