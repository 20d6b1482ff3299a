//! Local side of the interoperability tests: a connection on a UDP socket, with the real clock.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use dtls::{
    Checked, CloseReason, Config, Connected, Connection, CookieVerifier, Event, Fingerprint, Identity,
    SrtpProfile, Versions,
};
use wire::Datagrams;

use crate::peers::{Certificate, PATIENCE, Peer, certificate};

/// Result of a handshake on our side.
pub(crate) struct Ours {
    pub(crate) connected: Connected,
    /// Exported keying material of 60 bytes, regardless of the profile.
    pub(crate) exported: [u8; 60],
}

pub(crate) struct Listener {
    socket: UdpSocket,
    config: Arc<Config>,
    verifier: Option<CookieVerifier>,
}

fn seed() -> Seed {
    Seed::from_os().unwrap()
}

fn config(own: Certificate, srtp_profiles: &[SrtpProfile], mtu: usize) -> Arc<Config> {
    let files = certificate(own);
    let identity = Arc::new(Identity::new(&files.der, &files.pkcs8).unwrap());
    // A busy machine is slow, and a child process may have to start first.
    let handshake_timeout = PATIENCE;
    let srtp_profiles = srtp_profiles.to_vec();
    // The other programs do not support DTLS 1.3, so this also tests the fallback.
    let (identity, versions) = (Some(identity), Versions::Both);
    Arc::new(Config { identity, versions, srtp_profiles, mtu, handshake_timeout, ..Config::default() })
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    socket
}

/// Returns the next datagram, or `None` if there was none within the read timeout. A closed port counts as no datagram.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(buffer) {
        Ok(received) => Some(received),
        Err(error) => {
            let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::ConnectionRefused];
            assert!(kinds.contains(&error.kind()), "{error}");
            None
        }
    }
}

/// Runs until the connection reports its result, then sends the remaining datagrams.
fn run(socket: &UdpSocket, peer: SocketAddr, connection: &mut Connection) -> Result<Connected, CloseReason> {
    let end = Instant::now() + PATIENCE;
    let mut out = Datagrams::new();
    let mut buffer = [0; 4096];
    loop {
        let event = connection.poll_event();
        while connection.poll_transmit(Instant::now(), &mut out) {
            for n in 0..out.len() {
                assert!(out.get(n).len() <= 1200);
                let _ = socket.send_to(out.get(n), peer);
            }
            out.clear();
        }
        match event {
            Some(Event::Connected(connected)) => return Ok(*connected),
            Some(Event::Closed(reason)) => return Err(reason),
            Some(Event::Data(_)) | None => {}
        }
        assert!(Instant::now() < end, "{connection:?}");
        if let Some((length, from)) = receive(socket, &mut buffer)
            && from == peer
        {
            connection.handle_datagram(Instant::now(), &mut buffer[..length]);
        }
        if connection.poll_timeout().is_some_and(|at| at <= Instant::now()) {
            connection.handle_timeout(Instant::now());
        }
    }
}

impl Ours {
    fn of(connected: Connected, connection: &Connection) -> Self {
        let mut exported = [0; 60];
        connection.export("EXTRACTOR-dtls_srtp", None, &mut exported).unwrap();
        Self { connected, exported }
    }

    /// Connects our client to the server of the peer.
    pub(crate) fn client(peer: &Peer, profiles: &[SrtpProfile], mtu: usize) -> Self {
        let socket = socket();
        let mut connection = Connection::client(config(Certificate::P256, profiles, mtu), seed());
        connection.set_remote_fingerprints(Instant::now(), vec![Fingerprint::sha256(peer.der())]);
        connection.start(Instant::now());
        let address = SocketAddr::from(([127, 0, 0, 1], peer.port));
        let connected = run(&socket, address, &mut connection).unwrap();
        Self::of(connected, &connection)
    }

    /// Runs our client with the fingerprint of another certificate and returns the close reason.
    pub(crate) fn refuse(peer: &Peer, expected: &[u8]) -> CloseReason {
        let socket = socket();
        let config = config(Certificate::P256, &[SrtpProfile::AeadAes128Gcm], 1200);
        let mut connection = Connection::client(config, seed());
        connection.set_remote_fingerprints(Instant::now(), vec![Fingerprint::sha256(expected)]);
        connection.start(Instant::now());
        run(&socket, SocketAddr::from(([127, 0, 0, 1], peer.port)), &mut connection).unwrap_err()
    }

    pub(crate) fn listen(own: Certificate, profiles: &[SrtpProfile], mtu: usize, cookie: bool) -> Listener {
        let verifier = cookie.then(|| CookieVerifier::new(&seed(), Versions::Both));
        Listener { socket: socket(), config: config(own, profiles, mtu), verifier }
    }
}

impl Listener {
    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    /// Accepts the client of the peer at our server.
    pub(crate) fn accept(&self, peer: &Peer) -> Ours {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 4096];
        let (length, from) = loop {
            assert!(Instant::now() < end, "nobody came");
            let Some((length, from)) = receive(&self.socket, &mut buffer) else { continue };
            let Some(verifier) = &self.verifier else { break (length, from) };
            let mut reply = Vec::new();
            match verifier.check(from, &buffer[..length], &mut reply) {
                Checked::Pass => break (length, from),
                Checked::Reply => drop(self.socket.send_to(&reply, from).unwrap()),
                Checked::Drop => {}
            }
        };
        let config = Arc::clone(&self.config);
        let mut connection = if self.verifier.is_some() {
            Connection::server_with_cookie(config, seed())
        } else {
            Connection::server(config, seed())
        };
        connection.set_remote_fingerprints(Instant::now(), vec![Fingerprint::sha256(peer.der())]);
        connection.start(Instant::now());
        connection.handle_datagram(Instant::now(), &mut buffer[..length]);
        let connected = run(&self.socket, from, &mut connection).unwrap();
        Ours::of(connected, &connection)
    }
}
