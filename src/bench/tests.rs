//! Runs the state machines of the load generator against those of the server, without sockets.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test that meets the unexpected stops")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::{TagHead, TagKind};
use rtmp::{Event, MediaKind, MediaMessage};
use wire::{Datagrams, SendQueue};

use super::*;

const STEP: Duration = Duration::from_millis(5);

fn target(url: &str) -> Target {
    Target::parse(url, 0).unwrap()
}

fn tally() -> Tally {
    Tally::new(Duration::from_millis(100))
}

#[test]
fn a_later_time_is_as_much_later_on_both_clocks() {
    let began = Clock::new().now();
    let later = began.later(began.mono + Duration::from_millis(1500));
    assert_eq!((later.mono - began.mono, later.unix_nanos), (Duration::from_millis(1500), 1_001_500_000_000));
    assert_eq!(later.at(began.mono).unix_nanos, began.unix_nanos);
    assert_eq!(later.later(began.mono).unix_nanos, later.unix_nanos, "and never less");
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

/// Publishes for `time` to a server machine that accepts everything. Returns the received media.
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

/// Returns the messages as an HTTP-FLV response.
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
        // All units were read at the end, when the first was two seconds old.
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
    // All units were made before the player requested the stream, so they count as backlog and give no latency.
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
    assert_eq!(why(&mut no_flv), "the body is neither FLV nor MPEG-TS nor MP4");
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

// ---- WebRTC

/// The server's end of a session, and the address from which it sends datagrams.
struct Rtc {
    peer: webrtc::Peer,
    address: SocketAddr,
}

impl Rtc {
    fn new(clock: &Clock) -> Self {
        let address = "192.0.2.1:8000".parse().unwrap();
        let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(7)).unwrap());
        let ice = webrtc::IceMode::Lite { config: Arc::default(), addresses: vec![address] };
        let anchor = rtp::NtpAnchor::new(clock.0, Duration::from_secs(1_790_000_000));
        let config = Arc::new(webrtc::Config::new(ice, identity));
        Self { peer: webrtc::Peer::new(clock.0, config, anchor, Seed::from_number(8)).unwrap(), address }
    }

    /// Answers a peer's request with an SDP answer that accepts only video, in this direction.
    fn answer(&mut self, clock: &Clock, request: &[u8], direction: sdp::Direction) -> Vec<u8> {
        let text = std::str::from_utf8(request).unwrap();
        let (head, offer) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Content-Type: application/sdp\r\n"), "{head}");
        let offer = sdp::Description::read(offer.as_bytes()).unwrap();
        let formats = webrtc::offered_formats(media::codec::Codec::H264, 96);
        let wanted = webrtc::MediaPreference { direction, formats, msid: None };
        let video = |media: &sdp::Media| media.kind == sdp::MediaKind::Video;
        let answer = self.peer.handle_offer(clock.0, &offer, |_, media| video(media).then(|| wanted.clone()));
        let body = answer.unwrap().write();
        format!(
            "HTTP/1.1 201 Created\r\nLocation: http://h/live/session\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Delivers datagrams both ways until neither side has any. Returns the received frames.
    fn carry(&mut self, clock: &Clock, peer: &mut dyn Peer, track: Option<&webrtc::Track>) -> Vec<Bytes> {
        let (mut tally, mut frames) = (tally(), Vec::new());
        loop {
            let mut out = Datagrams::new();
            let to = peer.datagrams().unwrap().poll_datagrams(clock.now(), &mut out);
            assert!(out.is_empty() || to.remote.map(|remote| remote.peer) == Some(self.address));
            let path = ice::Path::udp(self.address, local());
            (0..out.len()).for_each(|n| self.peer.handle_datagram(clock.0, path, &mut out.get(n).to_vec()));
            let mut back = Datagrams::new();
            while self.peer.poll_transmit(clock.0, |_| Some(track?.log()), &mut back).is_some() {
                for n in 0..back.len() {
                    let mut datagram = back.get(n).to_vec();
                    let datagrams = peer.datagrams().unwrap();
                    let path = PathId::default();
                    datagrams.handle_datagram(clock.now(), path, self.address, &mut datagram, &mut tally);
                }
                back.clear();
                if out.is_empty() {
                    out.push(&[0], &[]);
                }
            }
            while let Some(event) = self.peer.poll_event() {
                if let webrtc::Event::Frame { frame, .. } = event {
                    frames.push(frame.payload);
                }
            }
            if out.is_empty() {
                return frames;
            }
        }
    }
}

fn local() -> SocketAddr {
    "203.0.113.9:5000".parse().unwrap()
}

/// Opens a peer's session. Returns its first request.
fn opened(clock: &Clock, peer: &mut dyn Peer, rtc: &mut Rtc, direction: sdp::Direction) -> String {
    peer.datagrams().unwrap().handle_local(clock.now(), PathId::default(), Some(local()), &mut tally());
    let request = sent(peer);
    let answer = rtc.answer(clock, &request, direction);
    for piece in answer.chunks(100) {
        peer.byte_stream().unwrap().handle_bytes(clock.now(), piece, &mut tally());
    }
    // The server closes the connection after its answer, which does no harm.
    peer.handle_hangup(clock.now(), None);
    String::from_utf8(request).unwrap()
}

#[test]
fn a_publisher_of_whip_offers_what_is_carried_and_sends_it_stamped() {
    let mut clock = Clock::new();
    let clip = Arc::new(Clip::read(SAMPLE).unwrap().padded(1_000_000).unwrap());
    let options = PublisherOptions {
        target: target("http://h/live/whip/s?key=k"),
        clip,
        phase: Duration::ZERO,
        timeout: Duration::from_secs(5),
    };
    let mut publisher = Publisher::new(clock.now(), &options, Seed::from_number(2));
    let mut rtc = Rtc::new(&clock);
    let request = opened(&clock, &mut publisher, &mut rtc, sdp::Direction::RecvOnly);
    assert!(request.starts_with("POST /live/whip/s?key=k HTTP/1.1\r\nHost: h\r\n"), "{request}");
    assert!(request.contains("m=video") && !request.contains("m=audio"), "no AAC in WebRTC: {request}");
    assert!(request.contains("203.0.113.9 5000 typ host"), "{request}");

    let (mut frames, until) = (Vec::new(), clock.0 + Duration::from_secs(3));
    while clock.0 < until {
        publisher.handle_timeout(clock.now(), &mut tally());
        rtc.peer.handle_timeout(clock.0);
        frames.extend(rtc.carry(&clock, &mut publisher, None));
        clock.advance(STEP);
    }
    assert_eq!(publisher.poll_event(), Some(PeerEvent::Ready));
    let Score::Made([pictures, sounds]) = publisher.score() else { panic!() };
    assert!((80..=92).contains(&pictures) && sounds == 0, "{pictures} {sounds}");
    let numbers: Vec<u64> = frames.iter().map(|frame| Stamp::in_nals(frame).unwrap().sequence).collect();
    assert!(numbers.iter().copied().eq(0..pictures), "{numbers:?} of {pictures}");
    let bytes: usize = frames.iter().map(Bytes::len).sum();
    assert!((250_000..450_000).contains(&bytes), "what pads goes along: {bytes}");

    publisher.close(clock.now());
    assert_eq!(publisher.poll_event(), Some(PeerEvent::Reconnect));
    assert!(sent(&mut publisher).starts_with(b"DELETE /live/session HTTP/1.1\r\n"));
}

#[test]
fn a_player_of_whep_counts_frames_and_deletes_its_session() {
    let mut clock = Clock::new();
    let mut player = player(&clock, "http://h/live/whep/s");
    let mut rtc = Rtc::new(&clock);
    opened(&clock, &mut player, &mut rtc, sdp::Direction::SendOnly);
    let settled = clock.0 + Duration::from_secs(1);
    let mut counted = tally();
    while clock.0 < settled {
        player.handle_timeout(clock.now(), &mut counted);
        rtc.peer.handle_timeout(clock.0);
        rtc.carry(&clock, &mut player, None);
        clock.advance(STEP);
    }
    assert_eq!(player.poll_event(), Some(PeerEvent::Ready));

    let mut source = Source::new(Arc::new(Clip::read(SAMPLE).unwrap())).carrying(true, false);
    let head = source.clip().heads().iter().find(|(kind, _)| *kind == TagKind::Video).unwrap().1.clone();
    let record = media::codec::h264::Config::read(head.slice(5..)).unwrap();
    let config = media::codec::CodecConfig::H264(record);
    let mut track = webrtc::Track::new(media::codec::Codec::H264, 1100).unwrap();
    let section = rtc.peer.sections().iter().find(|own| own.direction.sends()).unwrap().id;
    for n in 0..40u32 {
        let unit = source.next_unit(clock.1).unwrap();
        let cut = track.push(clock.0, &config, unit.key_frame, n * 3000, &unit.body[5..]).unwrap();
        // One packet is left out.
        if n != 20 {
            rtc.peer.send(section, &cut, clock.0);
        }
        clock.advance(Duration::from_millis(7));
        let mut out = Datagrams::new();
        while rtc.peer.poll_transmit(clock.0, |_| Some(track.log()), &mut out).is_some() {
            for index in 0..out.len() {
                let mut datagram = out.get(index).to_vec();
                player.handle_datagram(
                    clock.now(),
                    PathId::default(),
                    rtc.address,
                    &mut datagram,
                    &mut counted,
                );
            }
            out.clear();
        }
        clock.advance(Duration::from_millis(26));
    }
    assert_eq!((counted.video, counted.audio, counted.first_frame.total()), (39, 0, 1));
    let Score::Got([video, _]) = player.score() else { panic!() };
    assert_eq!((video.lost, video.repeated), (1, 0));
    assert!(counted.latency_video.max() < Duration::from_millis(8), "7 ms on the way");

    player.close(clock.now());
    assert_eq!(player.poll_event(), Some(PeerEvent::Reconnect));
    assert!(sent(&mut player).starts_with(b"DELETE /live/session HTTP/1.1\r\n"));
}

#[test]
fn refusals_of_whep_have_a_reason() {
    let (clock, mut counted) = (Clock::new(), tally());
    let asked = || {
        let mut player = player(&clock, "http://h/live/whep/s");
        player.handle_local(clock.now(), PathId::default(), Some(local()), &mut tally());
        player
    };
    for (answer, reason) in [
        (&b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..], "HTTP 404 Not Found"),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nv=0", "the answer: "),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 300\r\n\r\nv=0", "closed the connection during"),
        (b"", "closed the connection during"),
    ] {
        let mut refused = asked();
        refused.handle_bytes(clock.now(), answer, &mut counted);
        refused.handle_hangup(clock.now(), None);
        let Some(PeerEvent::Closed(why)) = refused.poll_event() else { panic!("{reason}") };
        assert!(why.contains(reason), "{why}");
    }
}
