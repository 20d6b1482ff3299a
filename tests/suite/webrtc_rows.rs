//! Hostile peers of WebRTC's signalling and media ports (docs/robustness.md: W, I and D rows).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use crypto::{Random, Seed};
use millstream::http::websocket::{FrameHead, Opcode};
use serde_json::{Value, json};

use crate::support::{Bystander, Program, Server, media_file, secs, wait_for};

/// A client of the signalling socket that says what it likes.
struct Socket {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Socket {
    fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(secs(8))).unwrap();
        let handshake = "GET /live/websocket?target=origin HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
                         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(handshake.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"));
        Self { stream, held: Vec::new() }
    }

    /// False when the server has closed it.
    fn say(&mut self, text: &str) -> bool {
        let (opcode, length) = (Opcode::Text, text.len() as u64);
        let head = FrameHead { is_final: true, opcode, length, mask: Some([0; 4]) };
        let mut bytes = head.write().to_vec();
        bytes.extend(text.as_bytes());
        self.stream.write_all(&bytes).is_ok()
    }

    /// The next message; `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        loop {
            if let Ok(Some((head, head_bytes))) = FrameHead::read(&self.held) {
                let end = head_bytes + usize::try_from(head.length).unwrap();
                if self.held.len() >= end {
                    let frame: Vec<u8> = self.held.drain(..end).collect();
                    if head.opcode != Opcode::Text {
                        return None;
                    }
                    return Some(serde_json::from_slice(&frame[head_bytes..]).unwrap());
                }
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.held.extend(&buffer[..count]),
            }
        }
    }

    fn answers_a_ping(&mut self) -> bool {
        self.say(r#"{"command":"ping"}"#) && {
            while let Some(message) = self.hear() {
                if message["command"] == "pong" {
                    return true;
                }
            }
            false
        }
    }
}

#[test]
fn w_09_messages_that_are_none_are_answered_or_ignored() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let mut socket = Socket::open(server.http);
    let deep = "[".repeat(10_000);
    let sdp = format!("v=0\r\n{}", "a=x\r\n".repeat(10_000));
    let long =
        json!({"command": "takeConfiguration", "streamId": "x", "type": "offer", "sdp": sdp}).to_string();
    for text in [
        "",
        "{",
        "null",
        deep.as_str(),
        r#"{"command":7}"#,
        r#"{"command":"dance","streamId":"a"}"#,
        r#"{"command":"play"}"#,
        r#"{"command":"play","streamId":"../../etc"}"#,
        r#"{"command":"takeConfiguration","streamId":"nobody","type":"offer","sdp":"v=0"}"#,
        long.as_str(),
    ] {
        assert!(socket.say(text) && socket.answers_a_ping(), "{}", &text[..text.len().min(60)]);
    }
    let candidate = r#"{"command":"takeCandidate","streamId":"a","label":0,"id":"0","candidate":"candidate:1 1 udp 1 192.0.2.1 1 typ host"}"#;
    assert!((0..10_000).all(|_| socket.say(candidate)) && socket.answers_a_ping());
    // A megabyte in one message is more than any may have.
    let huge = json!({"command": "publish", "streamId": "a", "metaData": "x".repeat(1 << 20)}).to_string();
    let _ = socket.say(&huge);
    assert!(!socket.answers_a_ping());
    drop(socket);
    bystander.finish(&mut server);
}

#[test]
fn w_11_one_client_has_so_many_sessions_and_the_first_publisher_of_an_id_keeps_it() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let publisher = Program::ffmpeg_publish(&media_file(false, 60), &server.rtmp_url("live/taken"));
    wait_for("the stream", secs(20), || server.api().broadcast("live", "taken").is_some());
    let mut sockets: Vec<Socket> = (0..20).map(|_| Socket::open(server.http)).collect();
    for socket in &mut sockets {
        socket.say(r#"{"command":"publish","streamId":"taken"}"#);
        assert_eq!(socket.hear().unwrap()["definition"], "streamIdInUse");
    }
    let (mut granted, mut refused) = (0, 0);
    for (n, socket) in sockets.iter_mut().enumerate() {
        for m in 0..500 {
            assert!(socket.say(&json!({"command": "publish", "streamId": format!("s{n}-{m}")}).to_string()));
        }
    }
    for socket in &mut sockets {
        for _ in 0..500 {
            let message = socket.hear().unwrap();
            granted += usize::from(message["command"] == "start");
            refused += usize::from(message["definition"] == "highResourceUsage");
        }
        assert!(socket.answers_a_ping());
    }
    assert_eq!((granted, refused), (20 * 64, 20 * (500 - 64)));
    assert_eq!(server.api().broadcast("live", "taken").unwrap()["status"], "broadcasting");
    drop((sockets, publisher));
    bystander.finish(&mut server);
}

/// I-05, I-11, D-01, D-03: what comes to a media port without a session behind it costs a look into a table.
#[test]
fn i_11_d_01_floods_of_the_media_port_harm_nobody() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let (port, before) = (server.webrtc[0], server.rss_kb());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let noise: Vec<u8> = {
        let mut random: Random = Seed::from_number(7).random();
        (0..4096).flat_map(|_| random.u64().to_le_bytes()).collect()
    };
    let began = Instant::now();
    let mut sent = 0usize;
    while began.elapsed() < secs(3) {
        let at = (sent * 61) % 30_000;
        let mut datagram = noise[at..at + 60 + sent % 1000].to_vec();
        match sent % 4 {
            // A binding request for a user that nobody is.
            0 => {
                datagram.truncate(60);
                datagram[..8].copy_from_slice(&[0, 1, 0, 40, 0x21, 0x12, 0xa4, 0x42]);
                datagram[20..24].copy_from_slice(&[0, 6, 0, 9]);
            }
            // A ClientHello, media, and anything.
            1 => datagram[..3].copy_from_slice(&[22, 254, 253]),
            2 => datagram[0] = 0x80,
            _ => {}
        }
        sent += usize::from(socket.send_to(&datagram, port).is_ok());
    }
    assert!(sent > 10_000, "{sent}");
    // Nobody is answered.
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    assert!(socket.recv(&mut [0; 2048]).is_err());
    bystander.finish(&mut server);
    let grown = server.rss_kb().saturating_sub(before);
    assert!(grown < 30_000, "{grown} kB more");
}
