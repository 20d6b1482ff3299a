//! The machines against the server's, without sockets.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test that meets the unexpected stops")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use flv::file::{TagHead, TagKind};
use rtmp::{Event, MediaKind, MediaMessage};
use wire::SendQueue;

use super::*;

const STEP: Duration = Duration::from_millis(5);

fn target(url: &str) -> Target {
    Target::parse(url, 0).unwrap()
}

fn tally() -> Tally {
    Tally::new(Duration::from_millis(100))
}

/// A clock for both sides.
struct Clock(Instant, u64);

impl Clock {
    fn new() -> Self {
        Self(Instant::now(), 1_000_000_000_000)
    }

    fn now(&self) -> Now {
        Now { mono: self.0, unix_nanos: self.1 }
    }

    fn advance(&mut self, time: Duration) {
        self.0 += time;
        self.1 += u64::try_from(time.as_nanos()).unwrap();
    }
}

/// Bytes that a peer wants to send.
fn sent(peer: &mut dyn Peer) -> Vec<u8> {
    let mut queue = SendQueue::new();
    peer.byte_stream().unwrap().poll_transmit(&mut queue);
    queue.take_all().to_vec()
}

/// Publishes for `time` to a server machine that accepts everything; what it got.
fn published(publisher: &mut Publisher, clock: &mut Clock, time: Duration, cut: usize) -> Vec<MediaMessage> {
    let mut server = rtmp::Server::new(clock.now().mono, Arc::default(), Seed::from_number(1));
    let (mut got, mut tally, until) = (Vec::new(), tally(), clock.0 + time);
    while clock.0 < until {
        publisher.handle_timeout(clock.now(), &mut tally);
        for piece in sent(publisher).chunks(cut) {
            server.handle_bytes(clock.0, piece).unwrap();
            while let Some(event) = server.poll_event() {
                match event {
                    Event::Connect(_) => server.accept_connect(clock.0),
                    Event::Publish(request) => server.accept_publish(clock.0, request.message_stream),
                    Event::Media(message) => got.push(message),
                    other => panic!("{other:?}"),
                }
            }
            let mut queue = SendQueue::new();
            server.poll_transmit(&mut queue);
            for piece in queue.take_all().chunks(cut) {
                publisher.handle_bytes(clock.now(), piece, &mut tally);
            }
        }
        clock.advance(STEP);
    }
    got
}

fn publisher(clock: &Clock, phase: Duration) -> Publisher {
    let clip = Arc::new(Clip::read(SAMPLE).unwrap());
    let target = target("rtmp://h/live/s");
    let options = PublisherOptions { target, clip, phase, timeout: Duration::from_secs(5) };
    Publisher::new(clock.now(), &options, Seed::from_number(2))
}

/// As an HTTP-FLV response.
fn response(messages: &[MediaMessage]) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
    bytes.extend(flv::file::Header { audio: true, video: true }.write());
    for message in messages {
        let kind = match message.kind {
            MediaKind::Audio => TagKind::Audio,
            MediaKind::Video => TagKind::Video,
            MediaKind::Data => TagKind::Data,
        };
        let size = u32::try_from(message.payload.len()).unwrap();
        let head = TagHead { kind, size, timestamp: message.timestamp };
        bytes.extend(head.write());
        bytes.extend_from_slice(&message.payload);
        bytes.extend(head.trailer());
    }
    bytes
}

fn player(clock: &Clock, url: &str) -> Player {
    let options = PlayerOptions { target: target(url), timeout: Duration::from_secs(5), stalled: false };
    Player::new(clock.now(), &options, Seed::from_number(3))
}

#[test]
fn what_a_publisher_sends_a_player_reads_back_through_any_cut() {
    for cut in [1, 7, 128, 100_000] {
        let mut clock = Clock::new();
        let before = Clock(clock.0, clock.1);
        let mut publisher = publisher(&clock, Duration::ZERO);
        let messages = published(&mut publisher, &mut clock, Duration::from_secs(2), cut);
        assert_eq!(publisher.poll_event(), Some(PeerEvent::Ready));
        let Score::Made([pictures, sounds]) = publisher.score() else { panic!() };
        assert!((58..=62).contains(&pictures) && (90..=96).contains(&sounds), "{pictures} {sounds}");

        let mut player = player(&before, "http://h/live/s.flv");
        assert!(sent(&mut player).starts_with(b"GET /live/s.flv HTTP/1.1\r\nHost: h\r\n"));
        let mut tally = tally();
        for piece in response(&messages).chunks(cut) {
            player.handle_bytes(clock.now(), piece, &mut tally);
        }
        assert_eq!(player.poll_event(), Some(PeerEvent::Ready));
        assert_eq!((tally.video, tally.audio, tally.stamped), (pictures, sounds, pictures + sounds));
        assert_eq!(tally.first_frame.total(), 1);
        let Score::Got([video, audio]) = player.score() else { panic!() };
        assert_eq!((video.missing(pictures), audio.missing(sounds)), (0, 0));
        // All came at the end; the first was two seconds old.
        assert!(tally.latency_video.max() > Duration::from_millis(1900));
    }
}

#[test]
fn a_lost_unit_is_counted() {
    let mut clock = Clock::new();
    let mut publisher = publisher(&clock, Duration::ZERO);
    let mut messages = published(&mut publisher, &mut clock, Duration::from_secs(1), 4096);
    let is_picture = |message: &MediaMessage| message.kind == MediaKind::Video;
    let third = messages.iter().enumerate().filter(|(_, message)| is_picture(message)).nth(3).unwrap().0;
    messages.remove(third);
    let mut player = player(&clock, "http://h/live/s.flv");
    let mut tally = tally();
    player.handle_bytes(clock.now(), &response(&messages), &mut tally);
    let Score::Got([video, audio]) = player.score() else { panic!() };
    assert_eq!((video.lost, audio.lost), (1, 0));
    // It asked after all of them were made.
    assert_eq!((tally.backlog, tally.latency_video.total()), (tally.stamped, 0));
}

#[test]
fn the_phase_moves_the_first_unit_and_finish_stops_behind_a_picture() {
    let mut clock = Clock::new();
    let mut publisher = publisher(&clock, Duration::from_millis(500));
    published(&mut publisher, &mut clock, Duration::from_millis(450), 4096);
    assert_eq!(publisher.score(), Score::Made([0, 0]));
    let mut tally = tally();
    clock.advance(Duration::from_millis(200));
    publisher.handle_timeout(clock.now(), &mut tally);
    publisher.finish();
    clock.advance(Duration::from_secs(1));
    publisher.handle_timeout(clock.now(), &mut tally);
    let made = publisher.score();
    clock.advance(Duration::from_secs(1));
    publisher.handle_timeout(clock.now(), &mut tally);
    assert_eq!(publisher.score(), made);
    assert!(tally.behind.max() > Duration::from_millis(500), "the load itself was late, and says so");
}

#[test]
fn refusals_and_silence_have_a_reason() {
    let why = |player: &mut Player| match player.poll_event() {
        Some(PeerEvent::Closed(why)) => why,
        other => panic!("{other:?}"),
    };
    let (mut clock, mut tally) = (Clock::new(), tally());
    let mut refused = player(&clock, "http://h/live/s.flv");
    refused.handle_bytes(clock.now(), b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &mut tally);
    assert_eq!(why(&mut refused), "HTTP 404 Not Found");
    let mut no_flv = player(&clock, "http://h/live/s.flv");
    no_flv.handle_bytes(clock.now(), b"HTTP/1.1 200 OK\r\n\r\n<html><body>hello</body></html>", &mut tally);
    assert_eq!(no_flv.poll_event(), Some(PeerEvent::Ready));
    assert_eq!(why(&mut no_flv), flv::Error::NotFlv.to_string());
    let mut no_socket = player(&clock, "ws://h/live/s.flv");
    no_socket.handle_bytes(clock.now(), b"HTTP/1.1 200 OK\r\n\r\n", &mut tally);
    assert!(why(&mut no_socket).contains("200"));
    let mut silent = player(&clock, "http://h/live/s.flv");
    clock.advance(Duration::from_secs(6));
    assert!(silent.poll_timeout().unwrap() <= clock.0);
    silent.handle_timeout(clock.now(), &mut tally);
    assert_eq!(why(&mut silent), "no answer to the request");
    let mut ended = player(&clock, "http://h/live/s.flv");
    ended.handle_bytes(clock.now(), b"HTTP/1.1 200 OK\r\n\r\n", &mut tally);
    ended.handle_hangup(clock.now(), None);
    assert_eq!(ended.poll_event(), Some(PeerEvent::Ready));
    assert_eq!(why(&mut ended), "the server ended the stream");
}
