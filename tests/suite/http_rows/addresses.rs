//! H-23, Q-05: limits for unauthenticated peers, and the release of their permits.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use super::super::support::{Bystander, Knock, Server, connect_from, induction, secs, wait_for};
use super::{connect, finish_sending, reset};

/// True if the server has closed a connection, without waiting.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Returns the status of a request from an address; `None` if the server closed the connection without an answer.
fn status_from(from: &str, to: SocketAddr) -> Option<u16> {
    let mut stream = connect_from(from, to);
    stream.set_read_timeout(Some(secs(8))).unwrap();
    let request = "GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_whitespace().nth(1)?.parse().ok()
}

/// Number of connections still open once the server has closed those over the limit.
fn held(peers: &[TcpStream], expected: usize) -> usize {
    let open = || peers.iter().filter(|peer| !is_closed(peer)).count();
    wait_for("the connections over the limit to be closed", secs(8), || open() <= expected);
    // Counts again, because the server must not close further connections.
    open()
}

#[test]
fn h_23_over_the_limit_of_an_address_is_closed_at_once_and_others_are_served() {
    let mut server = Server::start(&[
        "limits.exempt_loopback=false",
        "limits.connections_per_address=20",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
        "app.remoteAllowedCIDR=127.0.0.0/8",
    ]);
    let bystander = Bystander::start(&server);
    for port in [server.http, server.rtmp] {
        let mut peers: Vec<_> = (0..2500).map(|_| connect_from("127.0.5.1", port)).collect();
        // An answered connection of the previous round may still be open, and take the place of one of these.
        assert!((19..=20).contains(&held(&peers, 20)));
        assert_eq!(status_from("127.0.5.2", server.http), Some(200), "another address");
        wait_for("the same address to be refused", secs(8), || {
            peers.push(connect_from("127.0.5.1", port));
            status_from("127.0.5.1", server.http) != Some(200)
        });
        assert!(held(&peers, 20) <= 20);
        drop(peers);
        wait_for("the permits to be released", secs(8), || {
            status_from("127.0.5.1", server.http) == Some(200)
        });
    }
    // An answer does not authenticate a peer, so its connection still counts towards the limit of its address.
    let mut answered: Vec<_> = (0..40).map(|_| connect_from("127.0.5.3", server.http)).take(15).collect();
    for stream in &mut answered {
        stream.set_read_timeout(Some(secs(8))).unwrap();
        stream.write_all(b"GET /live/rest/v2/version HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(super::read_answer(stream, false).0, 200);
    }
    let more: Vec<_> = (0..30).map(|_| connect_from("127.0.5.3", server.http)).collect();
    assert_eq!(held(&more, 5), 5);
    assert!(answered.iter().all(|stream| !is_closed(stream)));
    drop((answered, more));
    bystander.finish(&mut server);
}

/// Opens 20 000 silent connections from a hundred addresses, which fill the table. A peer from another address is still
/// served, and so is a stream that was live before.
#[test]
fn h_23_twenty_thousand_idle_connections_of_a_hundred_addresses_keep_nobody_out() {
    let mut server = Server::start(&[
        "limits.exempt_loopback=false",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
        "app.remoteAllowedCIDR=127.0.0.0/8",
    ]);
    let bystander = Bystander::start(&server).leaving(16 * 1024);
    let before = server.open_sockets();
    let mut crowd = Vec::new();
    for n in 0..20_000u32 {
        crowd.push(connect_from(&format!("127.0.20.{}", n % 100 + 1), server.http));
        // The test may not be allowed as many open files as the server, so it drops closed connections.
        if crowd.len() == 6000 {
            wait_for("a thousand to give way", secs(30), || {
                crowd.retain(|stream| !is_closed(stream));
                crowd.len() < 5000
            });
        }
        if n % 5000 == 4999 {
            assert_eq!(status_from("127.0.21.1", server.http), Some(200), "after {n}");
        }
    }
    // At most 4096 unauthenticated peers are allowed. From half of this number on, the oldest ones are closed.
    wait_for("the limit to hold", secs(30), || server.open_sockets() <= before + 4096);
    drop(crowd);
    bystander.finish(&mut server);
}

#[test]
fn h_23_new_connections_are_paced_and_unauthenticated_peers_dropped_early() {
    let mut server = Server::start(&[
        "limits.exempt_loopback=false",
        "limits.unauthenticated=100",
        "limits.new_connections_per_second=1",
        "limits.new_connections_burst=10",
        "app.remoteAllowedCIDR=127.0.0.0/8",
    ]);
    let bystander = Bystander::start(&server);
    // The burst is accepted, and perhaps one more connection for each second that this takes.
    let peers: Vec<_> = (0..100).map(|_| connect_from("127.0.6.1", server.http)).collect();
    let open = held(&peers, 20);
    assert!((10..=20).contains(&open), "{open}");
    assert_eq!(status_from("127.0.6.2", server.http), Some(200));
    drop(peers);
    // Opens connections from 300 addresses, one from each. From half of the limit on, the oldest ones are closed. A new
    // peer is served as soon as the worker has closed some of them.
    let crowd: Vec<_> = (0..300u32)
        .map(|n| connect_from(&format!("127.0.{}.{}", 7 + n / 200, n % 200 + 1), server.http))
        .collect();
    let mut newcomers = 1..=250;
    wait_for("a newcomer to be served", secs(8), || {
        newcomers.next().is_some_and(|n| status_from(&format!("127.0.9.{n}"), server.http) == Some(200))
    });
    let open = held(&crowd, 100);
    assert!((40..=100).contains(&open), "{open}");
    drop(crowd);
    wait_for("unauthenticated peers to be admitted again", secs(8), || {
        status_from("127.0.10.1", server.http) == Some(200) || {
            // The first address may be refused at random or by the rate limit, so another one is tried.
            status_from("127.0.10.2", server.http) == Some(200)
        }
    });
    bystander.finish(&mut server);
}

/// Addresses of the server's ports, to which failing peers connect.
#[derive(Debug, Clone, Copy)]
struct Doors {
    http: SocketAddr,
    rtmp: SocketAddr,
    https: SocketAddr,
    rtsp: SocketAddr,
    srt: SocketAddr,
}

/// Opens a connection whose handshake fails. `kind` selects how it fails and how the connection ends.
fn fail(doors: Doors, kind: usize) {
    let Doors { http: server_http, rtmp: server_rtmp, https, rtsp, srt } = doors;
    // SRT: a handshake for a stream that does not exist, and a handshake that is never completed.
    if kind % 16 == 14 {
        let _ = Knock::new("#!::r=live/nothing,m=request").connect(srt);
        return;
    }
    if kind % 16 == 15 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _ = socket.send_to(&induction(), srt);
        return;
    }
    let (address, bytes): (_, &[u8]) = match kind % 16 {
        0 | 1 => (server_http, b""),
        2 | 3 => (server_http, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: y"),
        4 => (server_http, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        5 => (
            server_http,
            b"POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        ),
        6 => (server_rtmp, b""),
        7 => (server_rtmp, b"\x06junk"),
        8 => (server_rtmp, b"\x03\0\0\0\0\0\0\0\0half of C1"),
        // At the TLS port: bytes that are not TLS, and a ClientHello that is never completed.
        9 => (https, b"GET / HTTP/1.1\r\n\r\n"),
        10 => (https, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        11 => (rtsp, b"DESCRIBE rtsp://x/live/nothing RTSP/1.0\r\nCSeq: 1\r\n\r\n"),
        // WebSockets: a handshake without a key, and a valid handshake followed by an invalid frame.
        12 => (
            server_http,
            b"GET /live/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        ),
        13 => (
            server_http,
            b"GET /live/websocket?target=origin HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
              Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\xff\xff\xff\xff",
        ),
        _ => (server_rtmp, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    };
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    match kind % 3 {
        0 => reset(stream),
        1 => drop(stream),
        _ => {
            finish_sending(&stream);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        }
    }
}

#[test]
fn q_05_failed_handshakes_of_each_kind_give_everything_back() {
    // Sixteen kinds of failures, each with three ways to end the connection.
    const KINDS: usize = 48;
    // `SUITE_HANDSHAKES=1000000` takes a night.
    let tries = std::env::var("SUITE_HANDSHAKES").map_or(4800, |tries| tries.parse().unwrap());
    let rounds: usize = tries / KINDS / 4;
    // Limits far below the number of tries: permits that are not released would run out.
    let mut server = Server::start(&[
        "limits.exempt_loopback=false",
        "limits.connections=600",
        "limits.connections_per_address=300",
        "limits.unauthenticated=600",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
    ]);
    let bystander = Bystander::start(&server);
    let doors = Doors {
        http: server.http,
        rtmp: server.rtmp,
        https: server.https.unwrap(),
        rtsp: server.rtsp.unwrap(),
        srt: server.srt.unwrap(),
    };
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                for round in 0..rounds {
                    (0..KINDS).for_each(|kind| fail(doors, kind + thread + round));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    wait_for("a good client to be served", secs(8), || {
        server.api().try_call("GET", "/live/rest/v2/version", None).is_some_and(|reply| reply.status == 200)
    });
    // Descriptors, threads and the bystander's frames are checked here.
    bystander.finish(&mut server);
    // Every permit is free again: as many unauthenticated peers as the limit allows are held at the same time.
    let peers: Vec<_> = (0..290).map(|_| connect(server.http)).collect();
    server.api().get("/live/rest/v2/version");
    assert!(peers.iter().all(|peer| !is_closed(peer)), "permits were lost");
}
