//! Shakes hands over a real UDP socket, exchanges one record of data in each direction, and prints the result:
//!
//! ```text
//! peer server|client ADDRESS [--version 1.2|1.3] [--identity CERTIFICATE KEY]
//! ```
//!
//! A server prints its address first, so that port 0 can be used. The identity is a certificate and a PKCS#8 key in
//! DER; without it, the program makes one. Any certificate is accepted: each end prints the fingerprints of both, for
//! its user to compare.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "an example is the shell around the machine: it has the socket and the clock"
)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dtls::{Config, Connection, Datagrams, Event, Identity, PeerCheck, Seed, Versions};

/// Data that each end sends.
const DATA: &[u8] = b"data in a record";
/// Shortest and longest time that the socket waits for a datagram.
const WAIT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(15));

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let is_server = match arguments.next().as_deref() {
        Some("server") => true,
        Some("client") => false,
        _ => return Err("server or client?".into()),
    };
    let address: SocketAddr = arguments.next().ok_or("an address is missing")?.parse()?;
    let (mut versions, mut identity) = (Versions::Only12, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--version" => versions = if value()? == "1.3" { Versions::Only13 } else { Versions::Only12 },
            "--identity" => {
                let (certificate, key) = (std::fs::read(value()?)?, std::fs::read(value()?)?);
                identity = Some(Identity::new(&certificate, &key)?);
            }
            _ => return Err(format!("{argument}?").into()),
        }
    }
    let seed = Seed::from_os()?;
    let identity = match identity {
        Some(identity) => identity,
        None => Identity::self_signed(&seed.derive("identity", 0))?,
    };
    println!("own {}", hex(identity.fingerprint().digest()));
    let config = Arc::new(Config {
        identity: Some(Arc::new(identity)),
        versions,
        check: PeerCheck::AnyCertificate,
        receives_data: true,
        ..Config::default()
    });
    let socket = UdpSocket::bind(if is_server { address } else { "127.0.0.1:0".parse()? })?;
    let connection = if is_server {
        println!("address {}", socket.local_addr()?);
        Connection::server(config, seed.derive("connection", 0))
    } else {
        socket.connect(address)?;
        Connection::client(config, seed.derive("connection", 0))
    };
    run(connection, &socket, is_server)
}

/// Runs the connection until it has sent and received data.
fn run(mut connection: Connection, socket: &UdpSocket, is_server: bool) -> Result<(), Box<dyn Error>> {
    let (mut buffer, mut out, mut is_bound) = ([0; 2048], Datagrams::new(), !is_server);
    connection.start(Instant::now());
    loop {
        let mut is_done = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Connected(connected) => {
                    println!("suite {:?}", connected.suite);
                    println!("peer {}", hex(&connected.peer_sha256.ok_or("no certificate")?));
                    let (profile, keys) = connected.srtp.ok_or("no profile of SRTP")?;
                    println!("srtp {profile:?} {}", hex(keys.as_bytes()));
                    if !is_server {
                        connection.send(DATA)?;
                    }
                }
                Event::Data(data) => {
                    println!("data {}", String::from_utf8_lossy(&data));
                    if is_server {
                        connection.send(&data)?;
                    }
                    is_done = true;
                }
                Event::Closed(reason) => return Err(format!("closed: {reason:?}").into()),
            }
        }
        while connection.poll_transmit(Instant::now(), &mut out) {
            for datagram in out.iter() {
                socket.send(datagram)?;
            }
            out.clear();
        }
        if is_done {
            return Ok(());
        }
        let wait = connection.poll_timeout().map_or(WAIT.1, |at| at.duration_since(Instant::now()));
        socket.set_read_timeout(Some(wait.clamp(WAIT.0, WAIT.1)))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                // A server speaks with the first client only.
                if !is_bound {
                    socket.connect(from)?;
                    is_bound = true;
                }
                let datagram = buffer.get_mut(..length).ok_or("too long")?;
                connection.handle_datagram(Instant::now(), datagram);
            }
            Err(_) if connection.poll_timeout().is_some() => connection.handle_timeout(Instant::now()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
