//! RTMP: handshake, chunks and the server's state machine. The meaning of a stream does not depend on how it is cut.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use crypto::Seed;
use rtmp::chunk::{Limits, Message, MessageHead, Reader, write_message};
use rtmp::{Client, ClientConfig, Config, Event, PlayTracks, Rejection, Server, handshake};
use wire::SendQueue;

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

/// C0, C1 and C2 of a peer without a digest.
const HANDSHAKE_BYTES: usize = 1 + 1536 + 1536;

/// Runs either side of the handshake, whole and in pieces. The lowest bit of the first byte chooses the side.
pub fn rtmp_handshake(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let run = |pieces: &[&[u8]]| if seed & 1 == 0 { serve(pieces) } else { connect(seed & 2 != 0, pieces) };
    assert_eq!(run(&[stream]), run(&pieces(seed, stream)), "the cuts changed the meaning");
}

type Shaken = (Result<bool, rtmp::Violation>, Vec<u8>, Bytes);

fn serve(pieces: &[&[u8]]) -> Shaken {
    let mut server = handshake::Server::new(Seed::from_number(1).random());
    shake(SendQueue::new(), pieces, |input, out| server.read(input, out))
}

fn connect(digest: bool, pieces: &[&[u8]]) -> Shaken {
    let mut out = SendQueue::new();
    let mut client = handshake::Client::new(Seed::from_number(1).random(), digest, &mut out);
    shake(out, pieces, |input, out| client.read(input, out))
}

fn shake(
    mut out: SendQueue,
    pieces: &[&[u8]],
    mut read: impl FnMut(&mut &[u8], &mut SendQueue) -> Result<bool, rtmp::Violation>,
) -> Shaken {
    let (mut result, mut behind) = (Ok(false), Vec::new());
    for piece in pieces {
        let mut input = *piece;
        if result == Ok(false) {
            result = read(&mut input, &mut out);
            assert!(result != Ok(false) || input.is_empty(), "bytes left behind");
        }
        if result == Ok(true) {
            behind.extend_from_slice(input);
        }
    }
    (result, behind, out.take_all())
}

/// Runs the chunk reader and the server's state machine. Flags of the first byte: 1 leaves the handshake to the input;
/// 2 refuses connects; 4 refuses publishes; 8 plays instead of publishing. The whole byte seeds the cuts.
pub fn rtmp_chunk(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    chunks(seed, stream);
    let mut bytes = Vec::new();
    if seed & 1 == 0 {
        bytes.resize(HANDSHAKE_BYTES, 0);
        bytes[0] = 3;
    }
    bytes.extend_from_slice(stream);
    let (whole, cut) = (machine(seed, &[&bytes]), machine(seed, &pieces(seed | 4, &bytes)));
    assert_eq!(whole.0, cut.0, "the cuts changed the meaning");
    assert!(whole.1 == cut.1, "the cuts changed the answer");
}

/// Removes the offsets from an error text, because they depend on how the bytes were cut.
fn without_offset(text: &str) -> String {
    let mut parts = text.split("at: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "at: _" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn chunks(seed: u8, stream: &[u8]) {
    let whole = messages(&[stream]);
    assert_eq!(whole, messages(&pieces(seed, stream)), "the cuts changed the meaning");
    let mut scratch = BytesMut::new();
    let mut parts = Vec::new();
    for message in &whole.0 {
        let Message { chunk_stream, timestamp, kind, message_stream, ref payload } = *message;
        let head = MessageHead { chunk_stream, timestamp, kind, message_stream };
        write_message(&mut scratch, &head, &[], payload, 128, &mut parts);
    }
    let again = messages(&[&parts.concat()]);
    assert_eq!((again.0, again.1), (whole.0, None), "own chunks do not read");
}

fn messages(pieces: &[&[u8]]) -> (Vec<Message>, Option<String>) {
    let limits = Limits {
        media_bytes_max: 8192,
        command_bytes_max: 8192,
        pending_bytes_max: 32 * 1024,
        pending_bytes_max_granted: 32 * 1024,
        chunk_streams_max: 64,
    };
    let mut reader = Reader::new(limits);
    let mut messages = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        loop {
            match reader.read(&mut input) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(without_offset(&format!("{error:?}")))),
            }
            assert!(reader.pending_bytes() <= limits.pending_bytes_max, "{}", reader.pending_bytes());
        }
        assert!(input.is_empty(), "bytes left behind");
    }
    (messages, None)
}

/// Returns the events as text, because numbers may be NaN, and the sent bytes.
fn machine(seed: u8, pieces: &[&[u8]]) -> (Vec<String>, Bytes) {
    let now = epoch();
    let mut server = Server::new(now, Arc::new(Config::default()), Seed::from_number(1));
    let (mut events, mut out) = (Vec::new(), SendQueue::new());
    for piece in pieces {
        let failed = server.handle_bytes(now, piece).is_err();
        drain(&mut server, seed, &mut events);
        server.poll_transmit(&mut out);
        if failed {
            assert!(events.last().is_some_and(|e| e.starts_with("Closed")), "an error without an end");
            break;
        }
    }
    for _ in 0..8 {
        let Some(at) = server.poll_timeout() else { break };
        server.handle_timeout(at);
        drain(&mut server, seed, &mut events);
        server.poll_transmit(&mut out);
        assert!(server.poll_timeout().is_none_or(|next| next > at), "a deadline that stays");
    }
    let ends = events.iter().filter(|e| e.starts_with("Closed")).count();
    assert!(ends <= 1 && (ends == 0 || events.last().is_some_and(|e| e.starts_with("Closed"))), "{events:?}");
    (events, out.take_all())
}

fn drain(server: &mut Server, seed: u8, events: &mut Vec<String>) {
    let now = epoch();
    let rejection = Rejection { code: "NetStream.Failed".into(), description: "no".to_owned(), close: false };
    while let Some(event) = server.poll_event() {
        events.push(without_offset(&format!("{event:?}")));
        match event {
            Event::Connect(_) if seed & 2 != 0 => {
                server.reject_connect(now, "NetConnection.Connect.Rejected", "no")
            }
            Event::Connect(_) => server.accept_connect(now),
            Event::Publish(request) if seed & 4 != 0 => {
                server.reject_publish(now, request.message_stream, rejection.clone())
            }
            Event::Publish(request) => server.accept_publish(now, request.message_stream),
            Event::Play(request) if seed & 8 != 0 => {
                server.accept_play(now, request.message_stream, PlayTracks { audio: true, video: true });
            }
            Event::Play(request) => server.reject_play(now, request.message_stream, rejection.clone()),
            Event::Refused { .. }
            | Event::Media(_)
            | Event::PublishEnded { .. }
            | Event::PlayEnded { .. }
            | Event::PlayPaused { .. }
            | Event::ReceiveMedia { .. }
            | Event::Closed(_) => {}
        }
    }
}

/// Feeds a server's answers to a push or a pull. Flags of the first byte: 1 leaves the handshake to the input, 2 plays,
/// 4 asks for the digest. The whole byte seeds the cuts.
pub fn rtmp_client(data: &[u8]) {
    let Some((seed, stream)) = head(data) else { return };
    let mut bytes = Vec::new();
    if seed & 1 == 0 && seed & 4 == 0 {
        bytes.resize(HANDSHAKE_BYTES, 0);
        bytes[0] = 3;
    }
    bytes.extend_from_slice(stream);
    let (whole, cut) = (client(seed, &[&bytes]), client(seed, &pieces(seed | 8, &bytes)));
    assert_eq!(whole.0, cut.0, "the cuts changed the meaning");
    assert!(whole.1 == cut.1, "the cuts changed the answer");
}

fn client(seed: u8, pieces: &[&[u8]]) -> (Vec<String>, Bytes) {
    let now = epoch();
    let config = Arc::new(ClientConfig {
        app: "live".to_owned(),
        tc_url: "rtmp://a/live".to_owned(),
        stream: "s".to_owned(),
        digest: seed & 4 != 0,
        ..ClientConfig::default()
    });
    let begin = if seed & 2 == 0 { Client::publish } else { Client::play };
    let mut client = begin(now, config, Seed::from_number(1));
    let (mut events, mut out) = (Vec::new(), SendQueue::new());
    let mut drain = |client: &mut Client, out: &mut SendQueue| {
        while let Some(event) = client.poll_event() {
            events.push(without_offset(&format!("{event:?}")));
        }
        client.poll_transmit(out);
    };
    for piece in pieces {
        let failed = client.handle_bytes(now, piece).is_err();
        drain(&mut client, &mut out);
        assert!(!failed || !client.wants_bytes(), "an error is the end");
        if failed {
            break;
        }
    }
    for _ in 0..8 {
        let Some(at) = client.poll_timeout() else { break };
        client.handle_timeout(at);
        drain(&mut client, &mut out);
        assert!(client.poll_timeout().is_none_or(|next| next > at), "a deadline that stays");
    }
    let ends = events.iter().filter(|event| event.starts_with("Closed")).count();
    let is_last = events.last().is_some_and(|event| event.starts_with("Closed"));
    assert!(ends <= 1 && (ends == 0 || is_last), "{events:?}");
    (events, out.take_all())
}
