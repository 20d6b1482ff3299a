//! Finds the public address of this machine, as a STUN server sees it (RFC 8489, a Binding request over
//! UDP).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ice::Seed;
use ice::stun::{Class, Message, MessageWriter, TransactionId};

use super::names;

/// Times to wait for an answer, one for each request sent. If the last one passes, the server counts as
/// silent.
const WAITS: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(1)];
/// Maximum length of an answer that is read.
const ANSWER_BYTES_MAX: usize = 1500;

/// Returns the addresses of this machine: one for each IP version over which the server answers.
pub(super) fn seen(server: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let servers = names::resolve(server, port)?;
    let (mut found, mut failure) = (Vec::new(), "the server has no address".to_owned());
    for of_family in [SocketAddr::is_ipv4, SocketAddr::is_ipv6] {
        match servers.iter().find(|server| of_family(server)).map(|server| ask(*server, &WAITS)) {
            Some(Ok(address)) => found.push(address),
            Some(Err(error)) => failure = error.to_string(),
            None => {}
        }
    }
    if found.is_empty() { Err(failure) } else { Ok(found) }
}

fn ask(server: SocketAddr, waits: &[Duration]) -> io::Result<SocketAddr> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local)?;
    socket.connect(server)?;
    let mut id = [0; 12];
    Seed::from_os().map_err(io::Error::other)?.random().fill(&mut id);
    let id = TransactionId(id);
    let mut request = Vec::new();
    MessageWriter::new(&mut request, Class::Request, id).finish_open();
    let mut buffer = [0; ANSWER_BYTES_MAX];
    for wait in waits {
        socket.send(&request)?;
        let until = Instant::now() + *wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    if let Some(address) = buffer.get(..length).and_then(|answer| read(answer, id)) {
                        return Ok(address);
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"))
}

/// Returns the mapped address in a success response to the request with this id.
fn read(answer: &[u8], id: TransactionId) -> Option<SocketAddr> {
    let message = Message::read(answer).ok()?;
    let is_ours = message.class() == Class::Success && message.transaction_id() == id;
    message.mapped_address().filter(|address| is_ours && !address.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that answers each request with datagrams computed from its transaction id.
    fn server(answers: fn(TransactionId) -> Vec<Vec<u8>>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let request = Message::read(&buffer[..length]).unwrap();
                assert_eq!(request.class(), Class::Request);
                for answer in answers(request.transaction_id()) {
                    socket.send_to(&answer, from).unwrap();
                }
            }
        });
        address
    }

    fn answer(class: Class, id: TransactionId, address: &str) -> Vec<u8> {
        let mut out = Vec::new();
        MessageWriter::new(&mut out, class, id).mapped_address(address.parse().unwrap()).finish_open();
        out
    }

    #[test]
    fn the_address_is_that_of_the_answer_to_the_request() {
        let honest = server(|id| vec![answer(Class::Success, id, "203.0.113.9:40000")]);
        assert_eq!(seen("127.0.0.1", honest.port()), Ok(vec!["203.0.113.9:40000".parse().unwrap()]));
        // Answers to other requests, errors and noise arrive first.
        let noisy = server(|id| {
            vec![
                b"noise".to_vec(),
                answer(Class::Success, TransactionId([7; 12]), "198.51.100.1:1"),
                answer(Class::Error, id, "198.51.100.2:1"),
                answer(Class::Success, id, "0.0.0.0:1"),
                answer(Class::Success, id, "203.0.113.10:40000"),
            ]
        });
        assert_eq!(ask(noisy, &WAITS).unwrap(), "203.0.113.10:40000".parse().unwrap());
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let silent = server(|_| Vec::new());
        let waits = [Duration::from_millis(5); 2];
        assert_eq!(ask(silent, &waits).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(seen("name.invalid", 3478).is_err());
    }
}
