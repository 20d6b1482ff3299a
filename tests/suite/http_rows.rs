//! HTTP and the API against hostile peers: raw bytes over loopback (docs/robustness.md H and R rows, Q-05).
//!
//! A stream with a viewer runs beside each group of attacks and must lose nothing.

mod addresses;
mod cost;
mod framing;
mod json;
mod slow;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::support::{Server, secs};

/// The broadcast that smuggled requests try to delete.
const CANARY: &str = "canary";

/// A request that must not run: it deletes the canary.
fn smuggled() -> String {
    format!("DELETE /live/rest/v2/broadcasts/{CANARY} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// The answers that a peer has received until the server closed the connection.
#[derive(Debug)]
struct Answer {
    /// All text that was received.
    text: String,
    /// True if the server closed the connection.
    closed: bool,
}

impl Answer {
    /// Status of the first answer; 0 if there is none.
    fn status(&self) -> u16 {
        self.text.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// Number of answers.
    fn count(&self) -> usize {
        self.text.matches("HTTP/1.1 ").count()
    }
}

/// Sends, keeps its own side open, and reads until the server closes. The time limit only detects a server that does
/// not close.
fn send_and_wait(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // The server may answer and close before everything is written.
    let _ = stream.write_all(bytes);
    read_to_close(&mut stream)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(secs(8))).unwrap();
    stream
}

fn read_to_close(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let closed = match stream.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    Answer { text: String::from_utf8_lossy(&bytes).into_owned(), closed }
}

/// Reads an answer on a connection that stays open: the head, and as much body as it announces (none for HEAD).
fn read_answer(stream: &mut TcpStream, head_only: bool) -> (u16, String, Vec<u8>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 "), "{head:?}");
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
        .map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; if head_only { 0 } else { length }];
    stream.read_exact(&mut body).unwrap();
    (status, head, body)
}

/// Creates the canary broadcast.
fn plant_canary(server: &Server) {
    let body = format!(r#"{{"streamId":"{CANARY}","name":"alive"}}"#);
    assert_eq!(server.api().post("/live/rest/v2/broadcasts/create", &body).status, 200);
}

fn assert_canary_lives(server: &Server, what: &str) {
    assert!(server.api().broadcast("live", CANARY).is_some(), "a smuggled request ran: {what}");
}

/// Ends a connection with a reset.
fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(socket);
}

/// Ends the sending side only.
fn finish_sending(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
}
