//! Connections that linger after they were closed: queued bytes are sent, and further input is read and discarded. If a
//! socket with unread bytes is closed, the kernel resets the connection, and the peer may lose the closing message.
//!
//! Queued bytes are those that TLS holds because the kernel has not accepted them yet: up to 64 KiB, for which a slow
//! peer needs time. Bytes that the kernel has accepted are sent by the kernel.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::budget::Permit;
use super::tls::Transport;
use crate::worker::CLOSE_STALL;

/// Time for which a connection lingers after all bytes are sent.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit for sending all bytes, even if the peer reads steadily.
const FLUSH_MAX: Duration = Duration::from_secs(30);
/// The interval at which lingering connections are checked.
const PERIOD: Duration = Duration::from_millis(20);
/// Maximum number of lingering connections. Further connections are closed without lingering.
const CONNECTIONS_MAX: usize = 1024;

#[derive(Debug)]
struct Lingering {
    transport: Transport,
    /// Time at which the connection is given up. It is moved to a later time while the peer accepts bytes.
    until: Instant,
    /// The latest time to which `until` is moved.
    flush_until: Instant,
    /// Number of bytes flushed when `until` was last moved.
    flushed: u64,
    /// True if this side of the connection was closed.
    shut: bool,
    _permit: Option<Permit>,
}

impl Lingering {
    /// Closes this side of the connection once all bytes are sent. Returns false if the connection is broken.
    fn shut(&mut self, now: Instant) -> bool {
        if self.shut {
            return true;
        }
        match self.transport.flush() {
            Ok(true) => {
                self.shut = true;
                self.until = now + LINGER;
                self.transport.stream().shutdown(Shutdown::Write).is_ok()
            }
            Ok(false) => {
                let flushed = self.transport.flushed();
                if std::mem::replace(&mut self.flushed, flushed) < flushed {
                    self.until = self.flush_until.min(now + CLOSE_STALL);
                }
                true
            }
            Err(_) => false,
        }
    }
}

/// The lingering connections of a worker.
#[derive(Debug)]
pub(super) struct Lingerers {
    connections: VecDeque<Lingering>,
    due: Instant,
}

impl Lingerers {
    pub(super) const fn new(now: Instant) -> Self {
        Self { connections: VecDeque::new(), due: now }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the interval of checks; `None` if no connections linger.
    pub(super) fn period(&self) -> Option<Duration> {
        (!self.connections.is_empty()).then_some(PERIOD)
    }

    /// Adds a connection. `ended` is true if the peer has closed its side and nothing is left to read.
    pub(super) fn add(
        &mut self,
        now: Instant,
        mut transport: Transport,
        permit: Option<Permit>,
        ended: bool,
    ) {
        transport.begin_close();
        let mut lingering = Lingering {
            flushed: transport.flushed(),
            transport,
            until: now + CLOSE_STALL,
            flush_until: now + FLUSH_MAX,
            shut: false,
            _permit: permit,
        };
        let whole = lingering.shut(now);
        if whole && !(ended && lingering.shut) && self.connections.len() < CONNECTIONS_MAX {
            self.connections.push_back(lingering);
        }
    }

    /// Shortens all deadlines, because the server is shutting down.
    pub(super) fn hurry(&mut self, now: Instant) {
        for lingering in &mut self.connections {
            lingering.flush_until = lingering.flush_until.min(now + CLOSE_STALL);
            lingering.until = lingering.until.min(lingering.flush_until);
        }
    }

    /// Sends queued bytes, discards input, and drops connections that need not linger any longer.
    pub(super) fn turn(&mut self, now: Instant, buffer: &mut [u8]) {
        if self.connections.is_empty() || now < self.due {
            return;
        }
        self.due = now + PERIOD;
        self.connections.retain_mut(|lingering| {
            now < lingering.until
                && lingering.shut(now)
                && match lingering.transport.stream_mut().read(buffer) {
                    // The peer has closed its side; this side may still be open.
                    Ok(0) => !lingering.shut,
                    Ok(_) => true,
                    Err(error) => {
                        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
                    }
                }
        });
    }
}

#[cfg(test)]
mod tests {
    use rustls::ClientConnection;
    use socket2::{Domain, Socket, Type};
    use std::io::IoSlice;

    use crate::tests::TempFolder;

    use super::super::tls::{CertificateFiles, load_client};
    use super::*;
    use crate::io::blob_files::BlobFiles;

    /// Makes a server's transport that holds more bytes than the kernel accepts. Returns it with its client, the
    /// client's socket, and the number of bytes that are on their way.
    fn stuck() -> (Transport, ClientConnection, std::net::TcpStream, usize) {
        let folder = TempFolder::new();
        let [certificate, chain, key] = ["c.pem", "chain.pem", "k.pem"].map(|name| folder.join(name));
        let files = CertificateFiles { certificate, chain, key };
        files.make_missing(vec!["localhost".into()]).unwrap();
        let configs = files.load().unwrap();

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let mut stream = std::net::TcpStream::from(socket);
        let (accepted, _) = listener.accept().unwrap();
        socket2::SockRef::from(&accepted).set_send_buffer_size(4096).unwrap();
        stream.set_nonblocking(true).unwrap();
        accepted.set_nonblocking(true).unwrap();
        let mut server = Transport::server(mio::net::TcpStream::from_std(accepted), &configs.http);
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(load_client(true).unwrap(), name).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let _ = client.write_tls(&mut stream);
            let _ = server.read(&mut [0; 1024]);
            let _ = client.read_tls(&mut stream);
            client.process_new_packets().unwrap();
        }
        let answer = vec![7; 1 << 20];
        let mut taken = 0;
        while let Ok(count) = server.write(&[IoSlice::new(&answer)], answer.len(), &BlobFiles::default()) {
            taken += count;
        }
        assert!(!server.flush().unwrap(), "all is with the kernel");
        (server, client, stream, taken)
    }

    /// Discards received data. Returns true when the peer has closed its side.
    fn read(client: &mut ClientConnection, stream: &mut std::net::TcpStream, got: &mut usize) -> bool {
        let _ = client.read_tls(stream);
        client.process_new_packets().unwrap();
        let mut plain = [0; 16 * 1024];
        loop {
            match client.reader().read(&mut plain) {
                Ok(0) => return true,
                Ok(count) => *got += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => panic!("cut off after {got} bytes: {error}"),
            }
        }
    }

    #[test]
    fn a_slow_peer_gets_all_that_tls_holds() {
        let (transport, mut client, mut stream, sent) = stuck();
        let mut now = Instant::now();
        let mut lingerers = Lingerers::new(now);
        lingerers.add(now, transport, None, false);
        let (mut buffer, mut got) = ([0; 1024], 0);
        now += Duration::from_secs(3);
        lingerers.turn(now, &mut buffer);
        while !read(&mut client, &mut stream, &mut got) {
            now += PERIOD;
            lingerers.turn(now, &mut buffer);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(got, sent);
        lingerers.turn(now + LINGER, &mut buffer);
        assert!(lingerers.is_empty());
    }

    #[test]
    fn a_peer_that_takes_nothing_is_given_up() {
        for hurry in [false, true] {
            let (transport, _client, _stream, _) = stuck();
            let began = Instant::now();
            let mut lingerers = Lingerers::new(began);
            lingerers.add(began, transport, None, false);
            if hurry {
                lingerers.hurry(began);
            }
            lingerers.turn(began + CLOSE_STALL - PERIOD, &mut [0; 1024]);
            assert!(!lingerers.is_empty());
            lingerers.turn(began + CLOSE_STALL + PERIOD, &mut [0; 1024]);
            assert!(lingerers.is_empty());
        }
    }

    #[test]
    fn a_peer_that_takes_a_little_at_a_time_is_not_waited_for_for_ever() {
        let (transport, _client, mut stream, sent) = stuck();
        let began = Instant::now();
        let mut now = began;
        let mut lingerers = Lingerers::new(now);
        lingerers.add(now, transport, None, false);
        let (mut read, mut given_up) = (0, None);
        while now < began + FLUSH_MAX + PERIOD {
            read += stream.read(&mut [0; 32]).unwrap_or(0);
            now += PERIOD;
            lingerers.turn(now, &mut [0; 1024]);
            if lingerers.is_empty() {
                given_up.get_or_insert(now - began);
            }
        }
        let given_up = given_up.expect("the connection lingers on");
        assert!(given_up > CLOSE_STALL + PERIOD, "the progress was not seen: given up after {given_up:?}");
        assert!(
            given_up >= FLUSH_MAX - CLOSE_STALL && read < sent,
            "given up after {given_up:?}, {read} of {sent} bytes"
        );
    }
}
