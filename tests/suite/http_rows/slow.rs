//! H-20, H-21: peers that are slow.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::super::support::{Bystander, Server, ms, secs};
use super::connect;

/// Sends a byte every half second until the server ends the connection. Returns the answer, and the number of bytes
/// sent.
fn drip(mut stream: TcpStream, begin: &str, drops: &[u8]) -> (String, usize) {
    stream.set_read_timeout(Some(ms(500))).unwrap();
    stream.write_all(begin.as_bytes()).unwrap();
    let began = Instant::now();
    let mut answer = Vec::new();
    let mut sent = 0;
    for byte in drops {
        assert!(began.elapsed() < secs(60), "still open after 60 s");
        // If the server has closed the connection, the write may fail.
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    (String::from_utf8_lossy(&answer).into_owned(), sent)
}

#[test]
fn h_20_h_21_slow_heads_and_bodies_are_given_up() {
    let mut server = Server::start(&[]);
    let bystander = Bystander::start(&server);
    let body = "POST /live/rest/v2/broadcasts/create HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let attacks: [(&str, String, Vec<u8>); 4] = [
        ("H-20 from the first byte", String::new(), b"G".repeat(1000)),
        ("H-20 one header after the other", "GET / HTTP/1.1\r\n".to_owned(), b"X: y\r\n".repeat(1000)),
        ("H-21 a body with a length", format!("{body}Content-Length: 100000\r\n\r\n"), b" ".repeat(1000)),
        (
            "H-21 a chunked body",
            format!("{body}Transfer-Encoding: chunked\r\n\r\n"),
            b"1\r\n \r\n".repeat(1000),
        ),
    ];
    let address = server.http;
    let peers: Vec<_> = attacks
        .into_iter()
        .map(|(name, begin, drops)| {
            let peer = std::thread::spawn(move || drip(connect(address), &begin, &drops));
            (name, peer)
        })
        .collect();
    // A silent peer is disconnected, too.
    let mut silent = connect(address);
    silent.set_read_timeout(Some(secs(60))).unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    for (name, peer) in peers {
        let (answer, sent) = peer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{name}: {answer:?} after {sent} bytes");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer:?}");
    }
    bystander.finish(&mut server);
}
