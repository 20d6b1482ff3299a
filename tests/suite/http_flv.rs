//! HTTP-FLV and WS-FLV: viewers get the published stream unchanged until its end, with times from zero for each viewer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crypto::Seed;
use millstream::http::websocket::{ClientHandshake, CloseReason, Event, Limits, WebSocket};
use wire::SendQueue;

use crate::publish_play::{assert_equal_from_first_key_frame, is_broadcasting};
use crate::support::{Program, Publisher, Server, frame_md5, media_file, ms, secs, source_packets, wait_for};

/// A WebSocket client over a blocking socket, with our own state machine.
pub(super) struct WsPeer {
    stream: TcpStream,
    pub(super) socket: WebSocket,
}

impl WsPeer {
    pub(super) fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(secs(10))).unwrap();
        let seed = Seed::from_number(9);
        let (request, mut handshake) =
            ClientHandshake::begin(&address.to_string(), path, None, &mut seed.random());
        stream.write_all(&request).unwrap();
        let mut buffer = [0; 4096];
        loop {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed before the answer");
            if let Some(rest) = handshake.handle_bytes(&buffer[..count]).unwrap() {
                let limits = Limits { message_bytes: 16 << 20, ..Limits::default() };
                let socket = WebSocket::client(Instant::now(), limits.into(), &rest, &seed);
                return Self { stream, socket };
            }
        }
    }

    /// Returns the next message, or the end of the connection; `None` if nothing arrives in time.
    pub(super) fn next(&mut self) -> Option<Event> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(event) = self.socket.poll_event() {
                self.flush();
                return Some(event);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => self.socket.handle_eof(Instant::now()),
                Ok(count) => self.socket.handle_bytes(Instant::now(), &buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => self.socket.handle_eof(Instant::now()),
            }
            self.flush();
        }
    }

    fn flush(&mut self) {
        let mut out = SendQueue::new();
        self.socket.poll_transmit(&mut out);
        let bytes = out.take_all();
        let _ = self.stream.write_all(&bytes);
        self.socket.handle_sent(Instant::now(), bytes.len());
    }
}

fn url(server: &Server, path: &str) -> String {
    format!("http://{}/{path}", server.http)
}

fn starts_at_zero(packets: &[crate::support::Packet]) {
    let first = packets.iter().map(|packet| packet.1).min().unwrap();
    assert!((0..=40).contains(&first), "the first packet is at {first} ms");
}

#[test]
fn ffmpeg_plays_http_flv_as_it_was_published() {
    for bframes in [false, true] {
        let file = media_file(bframes, 12);
        let server = Server::start(&[]);
        let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/whole"));
        wait_for("the stream", secs(20), || is_broadcasting(&server, "whole"));
        let played = frame_md5(&url(&server, "live/whole.flv"), Some(5));
        assert_equal_from_first_key_frame(&source_packets(&file), &played);
        starts_at_zero(&played);
    }
}

#[test]
fn each_viewer_starts_at_zero_whenever_it_joins_and_on_any_worker() {
    let file = media_file(false, 30);
    let server = Server::start(&["server.workers=3"]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/late"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "late"));
    let source = source_packets(&file);
    let viewers: Vec<_> = (0..6)
        .map(|n| {
            let url = url(&server, "live/late.flv");
            std::thread::spawn(move || {
                std::thread::sleep(ms(400 * n));
                frame_md5(&url, Some(3))
            })
        })
        .collect();
    for viewer in viewers {
        let played = viewer.join().unwrap();
        assert_equal_from_first_key_frame(&source, &played);
        starts_at_zero(&played);
    }
}

#[test]
fn ws_flv_is_one_tag_per_message_and_plays_as_it_was_published() {
    let file = media_file(true, 12);
    let server = Server::start(&[]);
    let _publisher = Program::ffmpeg_publish(&file, &server.rtmp_url("live/ws"));
    wait_for("the stream", secs(20), || is_broadcasting(&server, "ws"));
    let mut peer = WsPeer::open(server.http, "/live/ws.flv");
    let mut copy = Vec::new();
    let began = Instant::now();
    while began.elapsed() < secs(5) {
        let Some(Event::Binary(message)) = peer.next() else { panic!("no message") };
        if copy.is_empty() {
            assert_eq!(&message[..], b"FLV\x01\x05\0\0\0\x09\0\0\0\0");
        } else {
            // The previous-tag-size at the end shows that the message is exactly one tag.
            let size = message.last_chunk::<4>().map(|size| u32::from_be_bytes(*size)).unwrap();
            assert_eq!(size as usize + 4, message.len(), "one tag a message");
        }
        copy.extend_from_slice(&message);
    }
    let path = server.home().join("ws.flv");
    std::fs::write(&path, copy).unwrap();
    let played = source_packets(&path);
    assert_equal_from_first_key_frame(&source_packets(&file), &played);
    starts_at_zero(&played);
}

#[test]
fn the_end_of_a_stream_is_a_fin_and_a_goodbye() {
    let server = Server::start(&[]);
    let publisher = Publisher::start(server.rtmp, "live", "ends");
    let mut viewer = TcpStream::connect(server.http).unwrap();
    viewer.set_read_timeout(Some(secs(10))).unwrap();
    viewer.write_all(b"GET /live/ends.flv HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut peer = WsPeer::open(server.http, "/live/ends.flv");
    assert!(matches!(peer.next(), Some(Event::Binary(_))));
    wait_for("both to be counted", secs(5), || {
        server.api().broadcast("live", "ends").unwrap()["rtmpViewerCount"] == 2
    });
    publisher.stop();
    let mut answer = Vec::new();
    viewer.read_to_end(&mut answer).expect("a FIN, no reset");
    let head_end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(answer[..head_end].to_vec()).unwrap();
    assert!(
        head.contains("Content-Type: video/x-flv\r\n") && head.contains("Connection: close\r\n"),
        "{head}"
    );
    assert!(!head.contains("Content-Length") && !head.contains("Transfer-Encoding"), "{head}");
    // The answer ends with a complete tag.
    let mut reader = flv::file::Reader::new(1 << 24);
    reader.push(&answer[head_end..]);
    let mut bytes = 13;
    while let Some(tag) = reader.poll_tag().unwrap() {
        bytes += 11 + tag.body.len() + 4;
    }
    assert_eq!(bytes, answer.len() - head_end);
    let end = std::iter::from_fn(|| peer.next()).find(|event| matches!(event, Event::Closed(_)));
    assert_eq!(end, Some(Event::Closed(CloseReason::Peer(1000))));
}

#[test]
fn refusals_have_their_status() {
    let server = Server::start(&[]);
    let _publisher = Publisher::start(server.rtmp, "live", "on");
    let status = |server: &Server, method: &str, path: &str| server.api().call(method, path, None).status;
    for (method, path, want) in [
        ("HEAD", "/live/on.flv", 200),
        ("OPTIONS", "/live/on.flv", 200),
        ("POST", "/live/on.flv", 405),
        ("GET", "/live/off.flv", 404),
        ("HEAD", "/live/off.flv", 404),
        ("GET", "/nowhere/on.flv", 404),
        ("GET", "/LiveApp/on.flv", 404),
        ("GET", "/live/sub/on.flv", 404),
        ("GET", "/live/.flv", 404),
    ] {
        assert_eq!(status(&server, method, path), want, "{method} {path}");
    }
    let request = "HEAD /live/on.flv HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.example\r\n\r\n";
    let answer = crate::support::raw_exchange(server.http, request.as_bytes());
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("Access-Control-Allow-Origin: *\r\n"), "{answer}");
    assert!(answer.contains("Cache-Control: no-store\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    for (setting, want) in [("app.httpFlvEnabled=false", 404), ("app.playTokenControlEnabled=true", 403)] {
        let server = Server::start(&[setting]);
        let _publisher = Publisher::start(server.rtmp, "live", "on");
        assert_eq!(status(&server, "GET", "/live/on.flv"), want, "{setting}");
    }
}

#[test]
fn a_viewer_that_talks_is_not_listened_to_for_ever_and_one_that_leaves_is_gone() {
    let mut server = Server::start(&[]);
    let bystander = crate::support::Bystander::start(&server);
    let open = || {
        let mut viewer = TcpStream::connect(server.http).unwrap();
        viewer.write_all(b"GET /live/bystander.flv HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        viewer.set_read_timeout(Some(ms(200))).unwrap();
        viewer
    };
    let viewers = |count: u32| {
        wait_for("the viewers to be counted", secs(6), || {
            server.api().broadcast("live", "bystander").unwrap()["rtmpViewerCount"] == count
        });
    };
    let mut talker = open();
    viewers(2);
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    loop {
        assert!(began.elapsed() < Duration::from_secs(10), "still listened to");
        if talker.write_all(&[b'x'; 4096]).is_err() {
            break;
        }
        if matches!(talker.read(&mut buffer), Ok(0)) {
            break;
        }
    }
    viewers(1);
    let half = open();
    viewers(2);
    half.shutdown(std::net::Shutdown::Write).unwrap();
    viewers(1);
    let mut gone = WsPeer::open(server.http, "/live/bystander.flv");
    assert!(gone.next().is_some());
    viewers(2);
    drop(gone);
    viewers(1);
    bystander.finish(&mut server);
}
