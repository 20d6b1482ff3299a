//! Tests WebRTC media over TCP: clients whose UDP is blocked, and connections that belong to no session.

use std::io::{Read, Write};
use std::net::TcpStream;

use ice::stun::{Class, MessageWriter, TransactionId};
use ice::tcp::write_frame;

use crate::support::{Bystander, Over, Player, RtcClient, Server, connect_from, secs};

/// Waits for the end of a connection, and returns whether the server has closed it without sending anything. The limit
/// only detects hangs.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(secs(8))).unwrap();
    matches!(stream.read(&mut [0; 64]), Ok(0))
        || stream.peek(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Returns whether a connection is open at this moment.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_client_without_udp_publishes_and_one_plays() {
    let mut server = Server::start(&["server.workers=2"]);
    let mut publisher = RtcClient::publish(&server, "t", Over::Tcp);
    let lines: Vec<&str> = publisher.answer.lines().filter(|line| line.starts_with("a=candidate:")).collect();
    let priority = |line: &str| line.split(' ').nth(3).unwrap().parse::<u32>().unwrap();
    assert!(lines.len() == 2 && lines[1].ends_with("typ host tcptype passive"), "{lines:?}");
    assert!(priority(lines[0]) > priority(lines[1]), "{lines:?}");
    publisher.run_until("the publisher's keys", secs(10), |client| client.connected);
    let name = "t";
    publisher.run_until("the stream", secs(10), |_| server.api().broadcast("live", name).is_some());
    let player = Player::start(server.rtmp, "live", name);
    publisher.run_until("pictures", secs(10), |_| player.units() > 0);
    let mut viewer = RtcClient::play(&server, name, Over::Tcp);
    publisher.run_until("pictures at both viewers", secs(20), |_| {
        viewer.step();
        viewer.frames >= 60 && player.units() >= 60
    });
    assert_eq!((viewer.cut, publisher.cut), (false, false));
    // When the sessions end, the server closes their connections.
    assert_eq!(server.api().delete(&viewer.path_of_session()).status, 200);
    viewer.run_until("the end of the viewer's connection", secs(8), |client| client.cut);
    assert_eq!(server.api().delete(&publisher.path_of_session()).status, 200);
    publisher.run_until("the end of the publisher's connection", secs(8), |client| client.cut);
    assert!(server.is_alive());
}

/// Returns a binding request with this user name fragment, and a wrong key.
fn check_of(fragment: &str) -> Vec<u8> {
    let mut out = Vec::new();
    MessageWriter::new(&mut out, Class::Request, TransactionId([7; 12]))
        .username(fragment, "peer")
        .finish(b"key");
    out
}

fn framed(datagram: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(datagram, &mut out).unwrap();
    out
}

#[test]
fn i_11_what_is_no_check_of_a_session_is_closed_at_once_over_tcp() {
    let mut server = Server::start(&["server.workers=1"]);
    let bystander = Bystander::start(&server);
    let port = server.webrtc[0];
    let publisher = RtcClient::publish(&server, "x", Over::Udp);
    let fragment = publisher.answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let unknown = framed(&check_of("nobody"));
    let known = framed(&check_of(fragment));
    let hello = framed(&[&[22, 254, 253][..], &[0; 60]].concat());
    let attempts: [(&str, Vec<u8>); 8] = [
        ("another protocol", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()),
        ("a TLS hello", vec![22, 3, 1, 2, 0, 1, 0, 1, 252]),
        ("a frame of 65535 bytes", vec![255, 255]),
        ("the same, and silence behind it", [&[255, 255][..], &[0, 1, 0, 0]].concat()),
        ("empty frames, then no check", [&[0; 2000][..], b"\0\x14garbage of 20 bytes."].concat()),
        ("a DTLS hello first", hello.clone()),
        ("a check of nobody", unknown.clone()),
        ("a check that is not authentic, then a hello", [known, hello].concat()),
    ];
    for (what, bytes) in attempts {
        let mut stream = TcpStream::connect(port).unwrap();
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream), "{what}");
    }
    // The connection is also closed if the request arrives a byte at a time.
    let mut stream = TcpStream::connect(port).unwrap();
    stream.set_nodelay(true).unwrap();
    assert!(unknown.iter().all(|byte| stream.write_all(&[*byte]).is_ok()));
    assert!(is_closed(&mut stream));
    drop(publisher);
    bystander.finish(&mut server);
}

#[test]
fn i_11_a_thousand_connections_of_nobody_keep_no_session_out() {
    let strict = [
        "limits.exempt_loopback=false",
        "limits.new_connections_per_second=1000000",
        "limits.new_connections_burst=1000000",
        "app.remoteAllowedCIDR=127.0.0.0/8",
        "limits.connections_per_address=100",
        "server.workers=2",
    ];
    let mut server = Server::start(&strict);
    let bystander = Bystander::start(&server);
    let mut flood = Vec::new();
    let mut publisher = RtcClient::publish_after(&server, "f", Over::Tcp, |port| {
        flood.extend((0..1000).map(|n| connect_from(&format!("127.0.7.{}", 1 + n % 2), port)));
        port
    });
    publisher.run_until("the publisher's keys", secs(10), |client| client.connected);
    let open = flood.iter().filter(|stream| is_open(stream)).count();
    assert!(open <= 200, "two addresses keep {open} connections of nobody");
    drop((flood, publisher));
    bystander.finish(&mut server);
}

/// Checks that connections are passed to the worker of their session. All workers accept connections at the port.
#[test]
fn a_connection_comes_to_the_worker_of_its_session() {
    let server = Server::start(&["server.workers=2"]);
    let mut others = Vec::new();
    let mut publisher = RtcClient::publish(&server, "w", Over::Udp);
    let fragment = publisher.answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let check = framed(&check_of(fragment));
    for _ in 0..60 {
        let mut stream = TcpStream::connect(publisher.port()).unwrap();
        stream.write_all(&check).unwrap();
        others.push(stream);
    }
    publisher.run_until("the publisher's keys", secs(10), |client| client.connected);
    // The other worker does not know the fragment, and would have closed these connections.
    let open = others.iter().filter(|stream| is_open(stream)).count();
    assert_eq!(open, others.len());
}

/// Checks that a connection is passed to another worker only once. Each handover restarts the time in which a session
/// must claim the connection, so it could otherwise stay open forever.
#[test]
fn i_13_a_connection_is_handed_over_once() {
    let server = Server::start(&["server.workers=2"]);
    let mut fragments: Vec<String> = Vec::new();
    let mut publishers = Vec::new();
    while fragments.len() < 2 {
        assert!(publishers.len() < 40, "all sessions are at one worker");
        let publisher = RtcClient::publish(&server, &format!("w{}", publishers.len()), Over::Udp);
        let fragment = publisher.answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
        // The first two characters of a fragment identify the worker.
        if fragments.iter().all(|known| known[..2] != fragment[..2]) {
            fragments.push(fragment.to_owned());
        }
        publishers.push(publisher);
    }
    let [one, other] = [0, 1].map(|n| framed(&check_of(&fragments[n])));
    for _ in 0..10 {
        let mut stream = TcpStream::connect(publishers[0].port()).unwrap();
        stream.write_all(&[&one[..], &other, &one].concat()).unwrap();
        assert!(is_closed(&mut stream));
    }
}
