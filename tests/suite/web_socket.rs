//! Tests WebSocket with hostile peers on the endpoint WS-FLV (docs/robustness.md, W rows). The tests of signalling
//! contain the rows about signalling: W-09, and publishing in W-11.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use millstream::http;
use millstream::http::websocket::{self, FrameHead, Limits, Opcode, WebSocket};

use crate::support::{Bystander, Server, connect_from, ms, raw_exchange, run, secs, wait_for};

const HANDSHAKE: &str = "GET /live/bystander.flv HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Opens a connection with an accepted handshake.
fn open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(secs(8))).unwrap();
    stream.write_all(HANDSHAKE.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    stream
}

/// Returns a masked frame with this first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead {
        is_final: true,
        opcode: Opcode::Binary,
        length: payload.len() as u64,
        mask: Some([0; 4]),
    };
    let mut bytes = head.write().to_vec();
    bytes[0] = first;
    bytes.extend(payload);
    bytes
}

/// Reads frames until the connection ends, and returns the code of the server's close frame.
fn close_code(stream: &mut TcpStream) -> Option<u16> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let mut rest = &bytes[..];
    let mut code = None;
    while let Ok(Some((head, head_bytes))) = FrameHead::read(rest) {
        let end = head_bytes + usize::try_from(head.length).unwrap();
        assert_eq!(code, None, "a frame behind the close frame");
        let payload = rest.get(head_bytes..end)?;
        if head.opcode == Opcode::Close {
            code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
        }
        rest = &rest[end..];
    }
    code
}

#[test]
fn w_01_to_w_05_what_breaks_the_protocol_is_closed_with_its_code() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let many: Vec<u8> = [frame(0x02, &[0; 16])]
        .into_iter()
        .chain((0..10_000).map(|_| frame(0, &[0; 16])))
        .flatten()
        .collect();
    for (name, bytes, code) in [
        ("W-01 unmasked", b"\x81\x02hi".to_vec(), 1002),
        ("W-01 reserved bit", frame(0xc1, b"x"), 1002),
        ("W-01 reserved opcode", frame(0x83, b"x"), 1002),
        ("W-01 reserved control", frame(0x8b, b"x"), 1002),
        ("W-02 2^63-1", b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0".to_vec(), 1009),
        ("W-02 2^63", b"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0".to_vec(), 1002),
        ("W-02 not minimal", b"\x82\xff\0\0\0\0\0\0\0\x0a\0\0\0\x000123456789".to_vec(), 1002),
        ("W-03 long control", frame(0x89, &[0; 126]), 1002),
        ("W-03 fragmented control", frame(0x09, b"x"), 1002),
        ("W-04 one frame", frame(0x82, &vec![0; 128 * 1024 + 1]), 1009),
        ("W-04 continuations", many, 1009),
        ("W-05 text", frame(0x81, b"\xff\xfe"), 1007),
        ("W-05 across frames", [frame(0x01, b"\xe2"), frame(0x80, b"\x28\xa1")].concat(), 1007),
    ] {
        let mut peer = open(server.http);
        let rss = server.rss_kb();
        let _ = peer.write_all(&bytes);
        assert_eq!(close_code(&mut peer), Some(code), "{name}");
        assert!(server.rss_kb() < rss + 4096, "{name}: {} after {rss}", server.rss_kb());
    }
    bystander.finish(&mut server);
}

#[test]
fn w_06_a_flood_of_pings_costs_little_and_is_not_echoed() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let rss = server.rss_kb();
    let mut peer = open(server.http);
    let flood: Vec<u8> = (0..1000u32).flat_map(|n| frame(0x89, &n.to_be_bytes())).collect();
    let mut reader = peer.try_clone().unwrap();
    let pongs = std::thread::spawn(move || {
        let (mut pongs, mut held) = (0, Vec::new());
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            held.extend_from_slice(&buffer[..count]);
            while let Ok(Some((head, head_bytes))) = FrameHead::read(&held) {
                let end = head_bytes + usize::try_from(head.length).unwrap();
                if held.len() < end {
                    break;
                }
                pongs += usize::from(head.opcode == Opcode::Pong);
                held.drain(..end);
            }
        }
        pongs
    });
    let cpu = server.cpu();
    (0..100).for_each(|_| peer.write_all(&flood).unwrap());
    std::thread::sleep(ms(500));
    let cost = server.cpu() - cpu;
    peer.shutdown(std::net::Shutdown::Both).unwrap();
    let pongs = pongs.join().unwrap();
    assert!((1..10_000).contains(&pongs), "{pongs} pongs for 100000 pings");
    assert!(cost < secs(6), "{cost:?}");
    assert!(server.rss_kb() < rss + 4096);
    bystander.finish(&mut server);
}

#[test]
fn w_07_bad_handshakes_have_their_status_and_the_connection_its_framing() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    for (from, to, status) in [
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Key: c2hvcnQ=", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400),
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", 426),
        ("Connection: Upgrade\r\n", "", 400),
        ("Host: localhost\r\n", "Host: localhost\r\nOrigin: not an origin\r\n", 403),
        ("GET", "POST", 405),
        ("bystander", "offline", 404),
    ] {
        let request = HANDSHAKE.replace(from, to);
        let follow = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = raw_exchange(server.http, format!("{request}{follow}").as_bytes());
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{to}: {answer}");
        assert_eq!(status == 426, answer.contains("Sec-WebSocket-Version: 13\r\n"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    }
    bystander.finish(&mut server);
}

#[test]
fn w_08_a_peer_that_never_reads_holds_nothing_and_is_closed() {
    let mut server = Server::start(&["app.maxLatencyMs=2000"]);
    let bystander = Bystander::start(&server);
    let files = server.open_files();
    let rss = server.rss_kb();
    let peers: Vec<TcpStream> = (0..20)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(1).unwrap();
            socket.connect(&server.http.into()).unwrap();
            let mut stream = TcpStream::from(socket);
            stream.write_all(HANDSHAKE.as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_for("the peers", secs(10), || server.open_files() >= files + 20);
    // Media stays in the stream's ring and is not queued for these peers. They are closed after 30 s without progress,
    // or 40 s without a pong.
    wait_for("the peers to be closed", secs(80), || server.open_files() <= files);
    assert!(server.rss_kb() < rss + 20 * 1024, "{} after {rss}", server.rss_kb());
    drop(peers);
    bystander.finish(&mut server);
}

#[test]
fn w_11_many_sockets_of_one_address_are_limited_like_all_unauthenticated_peers() {
    let mut server = Server::start(&["limits.exempt_loopback=false", "limits.connections_per_address=50"]);
    let bystander = Bystander::start(&server);
    let refused = HANDSHAKE.replace("bystander", "offline");
    let peers: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect_from("127.0.0.7", server.http);
            let _ = stream.write_all(refused.as_bytes());
            stream
        })
        .collect();
    let open = || {
        let is_open = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let mut rest = [0; 4096];
            loop {
                match { *stream }.read(&mut rest) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
        };
        peers.iter().filter(is_open).count()
    };
    wait_for("those over the limit to be closed", secs(8), || open() <= 50);
    drop(peers);
    bystander.finish(&mut server);
}

#[test]
fn python_websockets_takes_what_comes_and_is_answered() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let python = crate::support::python();
    let script = "import sys\nfrom websockets.sync.client import connect\n\
        with connect(sys.argv[1], max_size=None, compression='deflate') as ws:\n\
        \x20 first = ws.recv()\n  assert first[:3] == b'FLV', first\n\
        \x20 tags = [ws.recv() for _ in range(60)]\n\
        \x20 assert all(int.from_bytes(t[-4:], 'big') == len(t) - 4 for t in tags)\n\
        \x20 ws.ping(b'are you there').wait(5)\n\
        print('fine')\n";
    let url = format!("ws://{}/live/bystander.flv", server.http);
    let (status, out, err) = run(Command::new(python).args(["-c", script, &url]));
    assert!(status.success() && out.trim() == "fine", "{out}{err}");
    bystander.finish(&mut server);
}

/// Starts an echo server with our WebSocket machines. It ends with the process.
fn echo_server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || echo(stream.unwrap()));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let now = std::time::Instant::now();
    let mut buffer = vec![0; 65536];
    let mut connection = http::Connection::new(now, Default::default());
    let request = loop {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        connection.handle_bytes(now, &buffer[..count]).unwrap();
        if let Some(http::Event::Request(request)) = connection.poll_event() {
            break request;
        }
    };
    let Ok(accepted) = websocket::accept(&request, |_| true) else { return };
    let held = connection.upgrade(now, 0, &accepted).unwrap();
    // Some cases send messages of 4 MiB.
    let limits = Limits { message_bytes: 16 << 20, queued_bytes: 64 << 20, ..Limits::default() };
    let mut socket = WebSocket::server(now, limits.into(), &held);
    let mut out = wire::SendQueue::new();
    connection.poll_transmit(&mut out);
    loop {
        while let Some(event) = socket.poll_event() {
            let sent = match event {
                websocket::Event::Text(text) => socket.send_text(now, &text),
                websocket::Event::Binary(bytes) => socket.send_binary(now, bytes),
                websocket::Event::Closed(_) => Ok(()),
            };
            sent.unwrap();
        }
        socket.poll_transmit(&mut out);
        let bytes = out.take_all();
        if stream.write_all(&bytes).is_err() {
            return;
        }
        socket.handle_sent(now, bytes.len());
        if socket.is_closing() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
            return;
        }
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        socket.handle_bytes(now, &buffer[..count]);
    }
}

/// Tests cases of all sections of Autobahn, which itself needs Python 2. The script writes the frames itself, and
/// judges the answers by RFC 6455. The `websockets` package is tested with the same server.
#[test]
fn w_10_every_section_of_autobahn_has_its_cases() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/ws_cases.py");
    let url = format!("ws://{}", echo_server());
    let (status, out, err) = run(Command::new(crate::support::python()).arg(script).arg(url));
    println!("{out}");
    assert!(status.success() && out.contains(" cases, 0 failed"), "{out}{err}");
}
