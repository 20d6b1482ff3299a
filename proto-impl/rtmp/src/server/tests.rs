use std::sync::Arc;

use bytes::Bytes;
use crypto::Seed;
use flv::amf0::Value;
use proptest::prelude::*;
use wire::SendQueue;

use super::*;
use crate::testing::*;
use crate::{PlayTracks, PublishMode, Rejection, Violation};

mod idle;
mod refused;

const DELETE_STREAM: &str = "deleteStream";

fn number(number: f64) -> Value {
    Value::Number(number)
}

fn delete_stream(id: f64) -> Vec<u8> {
    invoke(0, DELETE_STREAM, 0.0, &[Value::Null, number(id)])
}

fn rejection(code: &'static str, close: bool) -> Rejection {
    Rejection { code: code.into(), description: "no".to_owned(), close }
}

#[track_caller]
fn closes_with(rig: &Rig, want: &Violation) {
    assert!(rig.failed);
    assert!(
        matches!(rig.error(), Some(Error::Violation { violation, .. }) if violation == *want),
        "{:?}",
        rig.closed()
    );
}

#[track_caller]
fn hits(rig: &Rig, want: Limit) {
    assert!(matches!(rig.error(), Some(Error::Limit { limit, .. }) if limit == want), "{:?}", rig.closed());
}

/// Checks the messages of ffmpeg 5.1: it sends three commands without waiting for answers, `publish` on chunk stream 8,
/// and onMetaData wrapped in `@setDataFrame`.
#[test]
fn a_publish_as_ffmpeg_sends_it() {
    let mut rig = Rig::new();
    rig.feed(&[shake(), connect("live")].concat());
    let Some(Event::Connect(request)) = rig.events.first() else { panic!("{:?}", rig.events) };
    assert_eq!((request.app(), request.object_encoding), (Ok("live"), 0.0));
    let kinds: Vec<u8> = rig.messages().iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [5, 6, 1, 4, 20]);
    assert_eq!(rig.statuses(), ["status NetConnection.Connect.Success"]);

    let name = "s1?token=abc";
    rig.feed(
        &[
            invoke(0, "releaseStream", 2.0, &[Value::Null, text(name)]),
            invoke(0, "FCPublish", 3.0, &[Value::Null, text(name)]),
            create_stream(),
        ]
        .concat(),
    );
    let replies: Vec<(String, f64)> =
        rig.replies().into_iter().skip(1).map(|r| (r.name, r.transaction)).collect();
    let want = [("_result", 2.0), ("_result", 3.0), ("onFCPublish", 0.0), ("_result", 4.0)];
    assert_eq!(replies, want.map(|(name, id)| (name.to_owned(), id)));
    assert_eq!(rig.last_reply().values, [Value::Null, number(1.0)]);

    rig.accept = false;
    let body = crate::command::body("publish", 5.0, &[Value::Null, text(name), text("live")]);
    rig.feed(&raw(8, 20, 1, 0, &body));
    assert!(!rig.server.wants_bytes());
    let Some(Event::Publish(request)) = rig.events.last().cloned() else { panic!("{:?}", rig.events) };
    let target = request.target().unwrap();
    assert_eq!((target.stream.as_str(), target.param("token")), ("s1", Some("abc")));
    assert!(!format!("{request:?}").contains("abc"), "a name may have credentials");
    assert_eq!((request.message_stream, request.mode), (1, PublishMode::Live));
    let sent = rig.sent.len();
    rig.drain();
    assert_eq!(rig.sent.len(), sent, "nothing before the verdict");
    rig.server.accept_publish(rig.now, 1);
    rig.drain();
    assert_eq!(rig.last_reply().status().as_deref(), Some("status NetStream.Publish.Start"));
    assert_eq!(rig.last_reply().message_stream, 1);

    let metadata = [text("@setDataFrame"), text("onMetaData"), Value::EcmaArray(vec![])];
    rig.feed(
        &[data(1, &metadata), video(1, 0, b"\x17\0\0\0\0cfg"), raw(4, 8, 1, 0, b"\xaf\0\x12\x10")].concat(),
    );
    rig.feed(&[video(1, 40, &[0x27; 5000]), raw(4, 8, 1, 23, b"\xaf\x01aac")].concat());
    let got: Vec<(MediaKind, u32, usize)> =
        rig.media().iter().map(|media| (media.kind, media.timestamp, media.payload.len())).collect();
    assert_eq!(got.len(), 5);
    assert_eq!(got[3..], [(MediaKind::Video, 40, 5000), (MediaKind::Audio, 23, 5)]);

    rig.feed(&[invoke(0, "FCUnpublish", 6.0, &[Value::Null, text(name)]), delete_stream(1.0)].concat());
    let ended = Event::PublishEnded { message_stream: 1, clean: true };
    assert_eq!(rig.events.iter().filter(|event| **event == ended).count(), 1);
    assert!(rig.statuses().contains(&"status NetStream.Unpublish.Success".to_owned()));
    assert_eq!(rig.closed(), None);
}

/// Checks the messages of GStreamer's rtmp2sink: a window first, transaction 0 everywhere, deleteStream with the name.
#[test]
fn a_publish_as_gstreamer_sends_it() {
    let mut rig = Rig::new();
    rig.feed(&[shake(), connect("live"), control(5, &2_500_000u32.to_be_bytes())].concat());
    let before = rig.replies().len();
    rig.feed(&invoke(0, "releaseStream", 0.0, &[Value::Null, text("s1")]));
    assert_eq!(rig.replies().len(), before, "nothing is expected");
    rig.feed(&invoke(0, "FCPublish", 0.0, &[Value::Null, text("s1")]));
    assert_eq!(rig.last_reply().name, "onFCPublish");
    rig.feed(
        &[create_stream(), invoke(1, "publish", 0.0, &[Value::Null, text("s1"), text("live")])].concat(),
    );
    assert_eq!(rig.last_reply().status().as_deref(), Some("status NetStream.Publish.Start"));
    rig.feed(&[control(1, &128u32.to_be_bytes()), raw(5, 8, 1, 0, b"\xaf\x01x")].concat());
    assert_eq!(rig.media().len(), 1);
    rig.feed(&invoke(0, DELETE_STREAM, 0.0, &[Value::Null, text("s1")]));
    assert_eq!(rig.events.last(), Some(&Event::PublishEnded { message_stream: 1, clean: true }));
    rig.feed(
        &[create_stream(), publish(1, "s2"), invoke(0, "FCUnpublish", 0.0, &[Value::Null, text("s2")])]
            .concat(),
    );
    rig.feed(&invoke(0, DELETE_STREAM, 0.0, &[Value::Null, text("s2")]));
    assert_eq!(rig.server.stats().bad_messages, 0);
}

#[test]
fn a_play_gets_the_replies_that_players_wait_for() {
    let mut rig = Rig::playing();
    let Some(Event::Play(request)) = rig.events.last() else { panic!("{:?}", rig.events) };
    assert_eq!((request.start, request.duration, request.reset), (-2000.0, -1.0, true));
    let messages = rig.messages();
    let tail: Vec<(u8, u32)> =
        messages[messages.len() - 5..].iter().map(|m| (m.kind, m.message_stream)).collect();
    assert_eq!(tail, [(4, 0), (20, 1), (20, 1), (18, 1), (20, 1)]);
    let start = ["status NetStream.Play.Reset", "status NetStream.Play.Start", "status NetStream.Data.Start"];
    assert_eq!(rig.statuses()[1..], start);
    assert!(messages[messages.len() - 2].payload.starts_with(b"\x02\0\x11|RtmpSampleAccess\x01\x01\x01\x01"));

    rig.server.send(rig.now, &media(MediaKind::Video, 7, b"\x17\x01"));
    rig.drain();
    let sent = rig.messages().pop().unwrap();
    assert_eq!((sent.kind, sent.timestamp, sent.chunk_stream), (9, 7, 6));

    rig.feed(&invoke(1, "pause", 0.0, &[Value::Null, Value::Boolean(true), number(0.0)]));
    rig.feed(&invoke(1, "receiveAudio", 0.0, &[Value::Null, Value::Boolean(false)]));
    rig.feed(&invoke(1, "seek", 0.0, &[Value::Null, number(9.0)]));
    let n = rig.events.len();
    assert_eq!(rig.events[n - 2], Event::PlayPaused { message_stream: 1, paused: true });
    assert_eq!(rig.events[n - 1], Event::ReceiveMedia { message_stream: 1, audio: false, video: true });

    rig.server.end_play(rig.now, 1);
    rig.drain();
    let statuses = rig.statuses();
    let end = ["status NetStream.Play.UnpublishNotify", "status NetStream.Play.Stop"];
    assert_eq!(statuses[statuses.len() - 2..], end);
    assert_eq!(rig.closed(), None);
    rig.feed(&invoke(1, "closeStream", 0.0, &[Value::Null]));
    assert!(!rig.events.contains(&Event::PlayEnded { message_stream: 1 }), "the owner ended it");
}

#[test]
fn play2_names_the_stream_in_an_object() {
    let mut rig = Rig::connected();
    let object = Value::object([("streamName", text("s2")), ("transition", text("switch"))]);
    rig.feed(&[create_stream(), invoke(1, "play2", 0.0, &[Value::Null, object])].concat());
    assert!(
        matches!(rig.events.last(), Some(Event::Play(request)) if request.target().unwrap().stream == "s2")
    );
    rig.feed(&invoke(1, "closeStream", 0.0, &[Value::Null]));
    assert_eq!(rig.events.last(), Some(&Event::PlayEnded { message_stream: 1 }));
}

#[test]
fn a_refusal_is_an_error_status_before_the_end() {
    let mut rig = Rig::connected();
    rig.accept = false;
    rig.feed(&[create_stream(), publish(1, "s1")].concat());
    rig.server.reject_publish(rig.now, 1, rejection("NetStream.Publish.BadName", true));
    rig.drain();
    assert_eq!(rig.last_reply().status().as_deref(), Some("error NetStream.Publish.BadName"));
    assert_eq!(rig.closed(), Some(CloseReason::Rejected));
    // A decision that comes too late has no effect.
    rig.server.accept_publish(rig.now, 1);
    assert!(!rig.server.poll_transmit(&mut SendQueue::new()));

    let mut rig = Rig::connected();
    rig.accept = false;
    rig.feed(&[create_stream(), play(1, "s1")].concat());
    rig.server.reject_play(rig.now, 1, rejection("NetStream.Play.StreamNotFound", false));
    rig.drain();
    assert_eq!(rig.last_reply().status().as_deref(), Some("error NetStream.Play.StreamNotFound"));
    assert_eq!(rig.closed(), None);
    rig.accept = true;
    rig.feed(&play(1, "s2"));
    assert_eq!(rig.last_reply().status().as_deref(), Some("status NetStream.Data.Start"));

    let mut rig = Rig::new();
    rig.accept = false;
    rig.feed(&[shake(), connect("none")].concat());
    rig.server.reject_connect(rig.now, "NetConnection.Connect.InvalidApp", "No scope 'none' on this server.");
    rig.drain();
    assert_eq!((rig.last_reply().name.as_str(), rig.last_reply().transaction), ("_error", 1.0));
    assert_eq!(rig.last_reply().status().as_deref(), Some("error NetConnection.Connect.InvalidApp"));
    assert_eq!(rig.closed(), Some(CloseReason::Rejected));
}

#[test]
fn a_publish_that_the_owner_ends_gets_a_status_and_may_stay() {
    let mut rig = Rig::publishing();
    rig.server.end_publish(rig.now, 1, rejection("NetStream.Unpublish.Success", false));
    rig.drain();
    assert_eq!(rig.last_reply().status().as_deref(), Some("error NetStream.Unpublish.Success"));
    rig.feed(&video(1, 0, b"late"));
    assert!(rig.media().is_empty() && rig.closed().is_none());
    rig.feed(&publish(1, "s1"));
    assert_eq!(rig.last_reply().status().as_deref(), Some("status NetStream.Publish.Start"));
}

#[test]
fn bytes_wait_for_the_verdict_and_no_more_than_64_kib_of_them() {
    let mut rig = Rig::new();
    rig.accept = false;
    rig.feed(&[shake(), connect("live"), create_stream(), publish(1, "s1"), video(1, 0, b"first")].concat());
    assert_eq!(rig.events.len(), 1);
    rig.feed(&video(1, 1, b"second"));
    rig.server.accept_connect(rig.now);
    rig.drain();
    assert!(matches!(rig.events.last(), Some(Event::Publish(_))));
    rig.server.accept_publish(rig.now, 1);
    rig.drain();
    assert_eq!(rig.media().len(), 2);

    let mut rig = Rig::connected();
    rig.accept = false;
    rig.feed(&[create_stream(), publish(1, "s1")].concat());
    rig.feed(&[0; 65_536]);
    assert_eq!(rig.closed(), None);
    rig.feed(&[0]);
    hits(&rig, Limit::HeldBytes);
}

#[test]
fn held_bytes_that_are_wrong_end_the_connection_after_the_verdict() {
    let mut rig = Rig::connected();
    rig.accept = false;
    rig.feed(&[create_stream(), publish(1, "s1"), control(1, &[0; 4])].concat());
    assert!(!rig.failed);
    rig.server.accept_publish(rig.now, 1);
    rig.drain();
    assert!(matches!(rig.closed(), Some(CloseReason::Failed(_))));
}

#[test]
fn m_01_what_is_no_rtmp_closes_at_once() {
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"\x16\x03\x01\x02\x00\x01", &[0x42; 3000]] {
        let mut rig = Rig::new();
        rig.feed(bytes);
        closes_with(&rig, &Violation::Version(bytes[0]));
        assert!(rig.sent.is_empty());
        // The server sends nothing further.
        rig.feed(bytes);
        assert_eq!(rig.events.len(), 1);
    }
}

#[test]
fn m_03_one_byte_segments_give_the_same_events() {
    let script = [
        shake(),
        connect("live"),
        create_stream(),
        publish(1, "s1?token=abc"),
        video(1, 0x0100_0000, &[1; 3000]),
        raw(4, 8, 1, 7, b"\xaf\x01"),
        delete_stream(1.0),
    ]
    .concat();
    let mut whole = Rig::new();
    whole.feed(&script);
    let mut cut = Rig::new();
    for byte in &script {
        cut.feed(std::slice::from_ref(byte));
    }
    assert_eq!(whole.events, cut.events);
    assert_eq!(whole.sent, cut.sent);
    assert_eq!(whole.events.len(), 5);
    for at in 3000..script.len() {
        let mut halves = Rig::new();
        halves.feed(&script[..at]).feed(&script[at..]);
        assert_eq!(halves.events, whole.events, "cut at {at}");
        assert_eq!(halves.sent, whole.sent, "cut at {at}");
    }
}

#[test]
fn m_04_set_chunk_size_0_and_bit_31_close() {
    for size in [0u32, 0x8000_0000, 0x8000_0001, u32::MAX] {
        let mut rig = Rig::publishing();
        rig.feed(&control(1, &size.to_be_bytes()));
        closes_with(&rig, &Violation::ChunkSize(size));
    }
    let mut rig = Rig::publishing();
    rig.feed(&control(1, &0x7fff_ffffu32.to_be_bytes()));
    rig.feed(&control(1, &1u32.to_be_bytes()));
    assert_eq!(rig.closed(), None);
    let mut rig = Rig::publishing();
    rig.feed(&control(1, &[0, 0, 1]));
    closes_with(&rig, &Violation::Malformed { kind: 1 });
}

#[test]
fn m_05_pending_bytes_before_and_after_the_grant() {
    let mut rig = Rig::connected();
    rig.feed(&control(1, &0x00ff_ffffu32.to_be_bytes()));
    let frame = raw(6, 9, 1, 0, &vec![1; 1 << 20]);
    let mut one_chunk = frame[..12].to_vec();
    one_chunk.extend(vec![1; 200_000]);
    rig.feed(&one_chunk);
    hits(&rig, Limit::PendingBytes);
    let mut rig = Rig::publishing();
    rig.feed(&control(1, &0x00ff_ffffu32.to_be_bytes()));
    rig.feed(&one_chunk);
    assert_eq!(rig.closed(), None);
}

#[test]
fn m_06_a_header_without_a_past_closes() {
    for first in [0x46u8, 0x86, 0xc6] {
        let mut rig = Rig::connected();
        rig.feed(&[&[first][..], &[0; 20]].concat());
        closes_with(&rig, &Violation::FirstHeader { chunk_stream: 6, format: first >> 6 });
    }
    let mut rig = Rig::publishing();
    rig.feed(&[control(2, &77u32.to_be_bytes()), video(1, 0, b"x")].concat());
    assert_eq!(rig.media().len(), 1);
}

#[test]
fn m_07_any_timestamp_reaches_the_owner_as_it_was_sent() {
    let times = [0, 40, u32::MAX, 0, 0x7fff_ffff, 0xff_ffff, 0x8000_0000, 3, 2_147_483_648, 4_294_967_295];
    let mut rig = Rig::publishing();
    for time in times {
        rig.feed(&video(1, time, &[7; 300]));
    }
    let got: Vec<u32> = rig.media().iter().map(|media| media.timestamp).collect();
    assert_eq!(got, times);
}

#[test]
fn m_08_windows_and_acknowledgements_may_be_absurd() {
    let mut rig = Rig::publishing();
    for window in [0, u32::MAX, 1, 0x7fff_ffff] {
        rig.feed(&control(5, &window.to_be_bytes()));
        rig.feed(&[control(3, &u32::MAX.to_be_bytes()), control(3, &[0; 4])].concat());
        rig.feed(&video(1, 0, &[1; 1000]));
    }
    assert_eq!((rig.media().len(), rig.closed()), (4, None));
    // A window of 1 byte is treated as one of 16 KiB, so acknowledgements do not flood the peer.
    rig.feed(&control(5, &1u32.to_be_bytes()));
    let acks = |rig: &Rig| rig.messages().iter().filter(|message| message.kind == 3).count();
    let before = acks(&rig);
    for _ in 0..100 {
        rig.feed(&video(1, 0, &[1; 1000]));
    }
    let sent = acks(&rig) - before;
    assert!((6..=7).contains(&sent), "{sent}");
    let last = rig.messages().into_iter().rfind(|message| message.kind == 3).unwrap();
    let told = u32::from_be_bytes(*last.payload.first_chunk().unwrap());
    assert!(u64::from(told) <= rig.server.stats().bytes_received);
}

#[test]
fn m_09_unknown_messages_are_counted_and_then_close() {
    let mut rig = Rig::publishing();
    for kind in (0..1000u32).map(|n| [0, 7, 10, 16, 19, 99, 255][usize::try_from(n % 7).unwrap()]) {
        rig.feed(&raw(7, kind, 0, 0, b"?"));
    }
    assert_eq!((rig.closed(), rig.server.stats().bad_messages), (None, 1000));
    rig.feed(&raw(7, 99, 0, 0, b"?"));
    hits(&rig, Limit::BadMessages);

    let mut rig = Rig::publishing();
    for _ in 0..1001 {
        rig.server.bad_media(rig.now);
        rig.drain();
    }
    hits(&rig, Limit::BadMessages);
}

#[test]
fn m_10_floods_of_commands_and_pings_close() {
    let ping = control(4, &[0, 6, 0, 0, 0, 1]);
    let release = invoke(0, "releaseStream", 2.0, &[Value::Null, text("s1")]);
    for flood in [ping, create_stream(), release, invoke(1, "seek", 0.0, &[])] {
        let mut rig = Rig::connected();
        for _ in 0..100 {
            rig.feed(&flood);
        }
        hits(&rig, Limit::CommandRate);
        let mut rig = Rig::connected();
        for _ in 0..90 {
            rig.feed(&flood);
        }
        rig.pass(secs(1));
        rig.feed(&flood);
        assert_eq!(rig.closed(), None);
    }
}

#[test]
fn m_10_eight_message_streams_and_no_more() {
    let mut rig = Rig::connected();
    for id in 1..=8 {
        rig.feed(&create_stream());
        assert_eq!(rig.last_reply().values, [Value::Null, number(f64::from(id))]);
    }
    rig.feed(&create_stream());
    assert_eq!(rig.last_reply().name, "_error");
    rig.feed(&[delete_stream(3.0), create_stream()].concat());
    assert_eq!(rig.last_reply().values, [Value::Null, number(3.0)]);
}

#[test]
fn a_ping_is_answered_with_its_own_value() {
    let mut rig = Rig::connected();
    rig.feed(&control(4, &[0, 6, 1, 2, 3, 4]));
    let pong = rig.messages().pop().unwrap();
    assert_eq!((pong.kind, pong.payload), (4, Bytes::from_static(&[0, 7, 1, 2, 3, 4])));
    rig.feed(&[control(4, &[0, 3, 0, 0, 0, 1, 0, 0, 1, 44]), control(4, &[0]), control(6, &[0; 5])].concat());
    assert_eq!((rig.messages().pop().unwrap().kind, rig.closed()), (5, None));
}

#[test]
fn m_11_what_is_live_is_unaffected_by_a_second_request() {
    let mut rig = Rig::publishing();
    let requests = [
        (publish(1, "s2"), "error NetStream.Publish.BadName"),
        (play(1, "s1"), "error NetStream.Play.Failed"),
        (publish(5, "s2"), "error NetStream.Failed"),
        (play(0, "s2"), "error NetStream.Failed"),
        (delete_stream(5.0), "error NetStream.Failed"),
        (delete_stream(f64::NAN), "error NetStream.Failed"),
        (delete_stream(-1.0), "error NetStream.Failed"),
        (delete_stream(1e300), "error NetStream.Failed"),
    ];
    for (request, status) in requests {
        let before = rig.events.len();
        rig.feed(&request);
        assert_eq!(rig.last_reply().status().as_deref(), Some(status));
        let new = rig.events.get(before..).unwrap();
        assert!(new.iter().all(|event| matches!(event, Event::Refused { .. })), "{new:?}");
    }
    rig.feed(&invoke(5, "closeStream", 0.0, &[Value::Null]));
    rig.feed(&invoke(0, "FCUnpublish", 0.0, &[Value::Null, text("other")]));
    rig.feed(&video(1, 0, b"on"));
    assert_eq!((rig.media().len(), rig.closed()), (1, None));
}

#[test]
fn m_11_media_before_publish_is_dropped() {
    let mut rig = Rig::connected();
    rig.feed(
        &[create_stream(), video(1, 0, b"x"), video(0, 0, b"x"), data(0, &[text("onMetaData")])].concat(),
    );
    assert!(rig.media().is_empty());
    assert_eq!(rig.server.stats().bad_messages, 3);
    // Metadata on message stream 0 belongs to the only publisher.
    rig.feed(&[publish(1, "s1"), data(0, &[text("onMetaData")])].concat());
    assert_eq!(
        rig.media().first().map(|media| (media.message_stream, media.kind)),
        Some((1, MediaKind::Data))
    );
}

#[test]
fn m_12_hostile_values_close_in_a_small_stack() {
    let run = || {
        let depth = |n| [b"\x03\0\x01a".repeat(n), vec![5]].concat();
        let strings = b"\x02\0\x07publish\0\0\0\0\0\0\0\0\0".as_slice();
        let tails: [&[u8]; 7] = [
            &depth(64),
            &depth(65),
            &depth(10_000),
            b"\x0a\xff\xff\xff\xff",
            b"\x0c\xff\xff\xff\xff",
            b"\x07\0\0",
            b"\x11\x0a",
        ];
        for tail in tails {
            let mut rig = Rig::connected();
            rig.feed(&raw(3, 20, 1, 0, &[strings, tail].concat()));
            assert!(matches!(rig.error(), Some(Error::Violation { violation: Violation::Amf(_), .. })));
        }
        let mut rig = Rig::connected();
        rig.feed(&raw(3, 20, 0, 0, &[7; 50]));
        assert!(rig.failed);
    };
    #[allow(clippy::disallowed_methods, reason = "the row asks for a thread with a small stack")]
    std::thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
fn m_12_missing_end_markers_and_odd_transactions_are_tolerated() {
    let mut rig = Rig::new();
    let whole = crate::command::body("connect", f64::NAN, &[Value::object([("app", text("live"))])]);
    rig.feed(&[shake(), raw(3, 20, 0, 0, &whole[..whole.len() - 3])].concat());
    assert_eq!(rig.statuses(), ["status NetConnection.Connect.Success"]);
    assert!(rig.last_reply().transaction.is_nan());
    for odd in [f64::INFINITY, f64::NEG_INFINITY, -0.0] {
        rig.feed(&invoke(0, "createStream", odd, &[]));
        assert_eq!(rig.last_reply().transaction.to_bits(), odd.to_bits());
    }
}

#[test]
fn m_13_connect_without_an_app_is_refused() {
    let member = |pairs: Value| invoke(0, "connect", 1.0, &[pairs]);
    let long = "a".repeat(60_000);
    let cases = [
        member(Value::object([])),
        member(Value::Null),
        member(Value::object([("app", text(""))])),
        member(Value::object([("app", number(1.0))])),
        member(Value::object([("app", text(&long))])),
        invoke(0, "connect", 1.0, &[]),
    ];
    for case in cases {
        let mut rig = Rig::new();
        rig.feed(&[shake(), case].concat());
        assert_eq!(rig.statuses(), ["error NetConnection.Connect.InvalidApp"]);
        assert_eq!((rig.last_reply().name.as_str(), rig.closed()), ("_error", Some(CloseReason::Rejected)));
    }
    // A value over 64 KiB makes the message an invalid command.
    let mut rig = Rig::new();
    rig.feed(&[shake(), member(Value::object([("app", text(&"a".repeat(65_536)))]))].concat());
    assert!(rig.failed);
    // The server does not parse `tcUrl`; it only passes the text to its owner.
    let mut rig = Rig::new();
    rig.feed(
        &[shake(), member(Value::object([("app", text("live?q=1")), ("tcUrl", text("\0://\u{fffd}"))]))]
            .concat(),
    );
    let Some(Event::Connect(request)) = rig.events.first() else { panic!() };
    assert_eq!((request.app(), request.path.as_str(), request.query.as_str()), (Ok("live"), "live", "q=1"));
    assert!(!format!("{request:?}").contains("q=1"));
}

#[test]
fn m_13_a_command_before_connect_closes() {
    for command in [create_stream(), publish(1, "s1"), play(1, "s1"), invoke(0, "ping", 0.0, &[])] {
        let mut rig = Rig::new();
        rig.feed(&[shake(), command].concat());
        closes_with(&rig, &Violation::NotConnected);
    }
}

#[test]
fn m_14_names_that_are_no_ids_get_an_error_status_and_the_end() {
    let long = "x".repeat(60_000);
    for name in ["../../tmp/x", "%2e%2e", "a\0", "a\r\nb", "", ".", long.as_str()] {
        for request in [publish(1, name), play(1, name)] {
            let mut rig = Rig::connected();
            rig.feed(&[create_stream(), request].concat());
            assert_eq!(rig.last_reply().status().as_deref(), Some("error NetStream.Failed"));
            let text = "stream name is invalid. Don't use special characters. stream name: ";
            assert!(rig.last_reply().description().starts_with(text));
            assert_eq!(rig.closed(), Some(CloseReason::Rejected));
        }
    }
    let mut rig = Rig::connected();
    rig.feed(&[create_stream(), publish(1, &format!("s1?{}", "a&".repeat(33)))].concat());
    assert_eq!(rig.last_reply().status().as_deref(), Some("error NetStream.InvalidArg"));
    assert_eq!(rig.last_reply().description(), "Failed to publish (stream id: 1)");
    for app in ["../x", "%2e%2e", "a\r\nb"] {
        let mut rig = Rig::new();
        rig.feed(&[shake(), connect(app)].concat());
        assert_eq!(rig.closed(), Some(CloseReason::Rejected));
    }
}

#[test]
fn m_24_interleaved_chunks_give_the_same_media_per_kind() {
    let parts = |chunk_stream, kind, payload: &[u8]| -> Vec<Vec<u8>> {
        let bytes = raw(chunk_stream, kind, 1, 40, payload);
        let (head, rest) = bytes.split_at(12 + 128);
        std::iter::once(head.to_vec()).chain(rest.chunks(129).map(<[u8]>::to_vec)).collect()
    };
    for seed in 0..30 {
        let mut random = Seed::from_number(seed).random();
        let mut lanes = [parts(6, 9, &[1; 2000]), parts(4, 8, &[2; 900]), parts(7, 18, &[2; 500])];
        let mut rig = Rig::publishing();
        while lanes.iter().any(|lane| !lane.is_empty()) {
            let lane = &mut lanes[usize::try_from(random.below(3)).unwrap()];
            if !lane.is_empty() {
                rig.feed(&lane.remove(0));
            }
        }
        let mut got: Vec<(u8, usize)> =
            rig.media().iter().map(|media| (media.kind.message_type(), media.payload.len())).collect();
        got.sort_unstable();
        assert_eq!(got, [(8, 900), (9, 2000), (18, 500)], "seed {seed}");
    }
}

#[test]
fn aggregates_and_amf3_messages_are_unwrapped() {
    let mut rig = Rig::publishing();
    let head = flv::file::TagHead { kind: flv::file::TagKind::Video, size: 3, timestamp: 90 };
    let part = [&head.write()[..], b"abc", &head.trailer()].concat();
    rig.feed(&raw(6, 22, 1, 1000, &[part.clone(), part].concat()));
    let got: Vec<(u32, Bytes)> =
        rig.media().into_iter().map(|media| (media.timestamp, media.payload)).collect();
    assert_eq!(got, [(1000, Bytes::from_static(b"abc")), (1000, Bytes::from_static(b"abc"))]);
    let wrapped = |body: &[u8]| [&[0], body].concat();
    rig.feed(&raw(4, 15, 1, 0, &wrapped(b"\x02\0\x02hi")));
    assert_eq!(rig.media().pop().map(|media| media.payload), Some(Bytes::from_static(b"\x02\0\x02hi")));
    let body = crate::command::body("createStream", 9.0, &[Value::Null]);
    rig.feed(&raw(3, 17, 0, 0, &wrapped(&body)));
    assert_eq!(rig.last_reply().transaction, 9.0);
}

#[test]
fn the_owner_closes_once_and_late_timeouts_are_harmless() {
    let mut rig = Rig::publishing();
    rig.server.close(rig.now, CloseReason::Requested);
    rig.server.close(rig.now, CloseReason::Shutdown);
    rig.pass(secs(100)).feed(&video(1, 0, b"x"));
    rig.server.handle_timeout(rig.now);
    rig.drain();
    assert_eq!(rig.closed(), Some(CloseReason::Requested));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = |seed| {
        let mut server = Server::new(start(), Arc::new(Config::default()), Seed::from_number(seed));
        server.handle_bytes(start(), &shake()).unwrap();
        let mut out = SendQueue::new();
        assert!(server.poll_transmit(&mut out));
        out.take_all()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn verbs_without_a_request_change_nothing() {
    let mut rig = Rig::connected();
    let sent = rig.sent.len();
    let (now, tracks) = (rig.now, PlayTracks { audio: true, video: true });
    rig.server.accept_connect(now);
    rig.server.accept_publish(now, 1);
    rig.server.accept_play(now, 1, tracks);
    rig.server.reject_connect(now, "x", "y");
    rig.server.reject_publish(now, 1, rejection("x", true));
    rig.server.reject_play(now, 1, rejection("x", true));
    rig.server.end_publish(now, 1, rejection("x", true));
    rig.server.end_play(now, 1);
    rig.server.media_progress(now);
    rig.server.send(now, &media(MediaKind::Audio, 0, b""));
    rig.drain();
    assert_eq!((rig.sent.len(), rig.closed()), (sent, None));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..1500), cut in 1usize..200, begun in 0u8..4) {
        let mut rig = [Rig::new, Rig::connected, Rig::publishing, Rig::playing][usize::from(begun)]();
        for piece in bytes.chunks(cut) {
            rig.feed(piece);
        }
        let _ = rig.closed();
    }

    #[test]
    fn random_messages_never_panic(messages in prop::collection::vec((2u32..9, 0u8..24, 0u32..4, any::<u32>(), prop::collection::vec(any::<u8>(), 0..80)), 0..30)) {
        let mut rig = Rig::publishing();
        for (chunk_stream, kind, message_stream, timestamp, payload) in messages {
            rig.feed(&raw(chunk_stream, kind, message_stream, timestamp, &payload));
        }
        let _ = rig.closed();
    }
}
