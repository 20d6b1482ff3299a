//! Runs the agents over real sockets, with both ends in this process or in separate ones:
//!
//! ```text
//! connect                       a lite agent and a full agent on 127.0.0.1; prints their events and times
//! connect serve                 a lite agent on 127.0.0.1; prints its credentials and accepts any peer that
//! has them
//! connect call ADDRESS UFRAG PASSWORD controlling|controlled
//!                               a full agent that connects to another agent; prints its own credentials first
//! connect flood [COUNT]         cost of an unaddressed datagram on a shared port, and of a check for an agent
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "an example is the shell around the machine: it has the sockets and the clock"
)]

use std::error::Error;
use std::hint::black_box;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::stun::{Class, MessageWriter, TransactionId};
use ice::{
    Agent, Candidate, Config, Credentials, Demux, DropReason, Event, Kind, LiteAgent, LiteConfig, Path, Role,
    Route, Transport, classify,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        None => connect(),
        Some("serve") => serve(),
        Some("call") => call(&args.collect::<Vec<_>>()),
        Some("flood") => {
            flood(args.next().map_or(Ok(200_000), |count| count.parse())?);
            Ok(())
        }
        Some(_) => Err("nothing, serve, call or flood".into()),
    }
}

/// Receives all pending datagrams of a socket.
fn receive(socket: &UdpSocket, local: SocketAddr, mut take: impl FnMut(Path, &[u8])) {
    let mut buffer = [0; 2048];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        take(Path::udp(local, from), buffer.get(..length).unwrap_or_default());
    }
}

fn connect() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let [server, client] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    let [server_at, client_at] = [server.local_addr()?, client.local_addr()?];
    server.set_nonblocking(true)?;
    client.set_nonblocking(true)?;

    // In production, seeds come from the operating system.
    let mut lite = LiteAgent::new(start, Arc::new(LiteConfig::default()), &Seed::from_number(1));
    let mut agent = Agent::new(start, Arc::new(Config::default()), &Seed::from_number(2));
    let mut port = Demux::new();
    port.insert(lite.local().ufrag(), 'A');

    // Values that an offer and an answer would contain.
    let candidate = agent.add_local(start, client_at)?;
    println!("client {candidate:?}");
    lite.set_remote(start, agent.local().clone());
    agent.set_remote(start, lite.local().clone(), true);
    agent.add_remote(start, &Candidate::host(Transport::Udp, server_at, 65535))?;

    let mut out = Vec::new();
    while !agent.is_nominated() {
        let now = Instant::now();
        receive(&server, server_at, |path, bytes| match port.route(&path, bytes) {
            Route::Stun('A') => lite.handle_datagram(now, path, bytes),
            other => println!("server {other:?}"),
        });
        receive(&client, client_at, |path, bytes| agent.handle_datagram(now, path, bytes));
        lite.handle_timeout(now);
        agent.handle_timeout(now);
        while let Some(event) = lite.poll_event() {
            println!("{:>9.3?} server {event:?}", start.elapsed());
            match event {
                Event::Validated(path) | Event::Heard(path) => drop(port.open(path, 'A')),
                Event::Expired(path) => port.close(&path, 'A'),
                Event::Closed(_) => port.remove('A'),
                _ => {}
            }
        }
        while let Some(event) = agent.poll_event() {
            println!("{:>9.3?} client {event:?}", start.elapsed());
        }
        while let Some(transmit) = lite.poll_transmit(now, &mut out) {
            server.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
        while let Some(transmit) = agent.poll_transmit(now, &mut out) {
            client.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{:>9.3?} nominated: {:?}", start.elapsed(), agent.selected());
    Ok(())
}

/// Maximum duration of a run with another implementation.
const STAY: Duration = Duration::from_secs(20);

fn serve() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let local = socket.local_addr()?;
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut lite = LiteAgent::new(start, Arc::new(LiteConfig::default()), &Seed::from_number(1));
    println!("{local} {} {}", lite.local().ufrag(), lite.local().password());
    let mut out = Vec::new();
    while start.elapsed() < STAY && !lite.is_closed() {
        let now = Instant::now();
        receive(&socket, local, |path, bytes| match classify(bytes) {
            Kind::Stun => lite.handle_datagram(now, path, bytes),
            // Other datagrams from a valid path are echoed.
            _ if lite.is_valid(&path) => drop(socket.send_to(bytes, path.remote)),
            _ => println!("refused {} bytes of {}", bytes.len(), path.remote),
        });
        lite.handle_timeout(now);
        while let Some(event) = lite.poll_event() {
            println!("{:>9.3?} {event:?}", start.elapsed());
        }
        while let Some(transmit) = lite.poll_transmit(now, &mut out) {
            socket.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
    }
    println!("{:?}", lite.stats());
    Ok(())
}

fn call(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [address, ufrag, password, role] = args else {
        return Err("call ADDRESS UFRAG PASSWORD ROLE".into());
    };
    let start = Instant::now();
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let local = socket.local_addr()?;
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let role = if role == "controlled" { Role::Controlled } else { Role::Controlling };
    let config = Arc::new(Config { role, ..Config::default() });
    let mut agent = Agent::new(start, config, &Seed::from_number(2));
    agent.add_local(start, local)?;
    println!("{local} {} {}", agent.local().ufrag(), agent.local().password());
    agent.set_remote(start, Credentials::new(ufrag, password)?, false);
    agent.add_remote(start, &Candidate::host(Transport::Udp, address.parse()?, 65535))?;
    let mut out = Vec::new();
    while start.elapsed() < STAY && !agent.is_closed() {
        let now = Instant::now();
        receive(&socket, local, |path, bytes| match classify(bytes) {
            Kind::Stun => agent.handle_datagram(now, path, bytes),
            _ if agent.is_valid(&path) => drop(socket.send_to(bytes, path.remote)),
            _ => println!("refused {} bytes of {}", bytes.len(), path.remote),
        });
        agent.handle_timeout(now);
        while let Some(event) = agent.poll_event() {
            println!("{:>9.3?} {event:?}", start.elapsed());
        }
        while let Some(transmit) = agent.poll_transmit(now, &mut out) {
            socket.send_to(&out, transmit.path.remote)?;
            out.clear();
        }
    }
    println!("{:?} nominated {} {:?}", agent.role(), agent.is_nominated(), agent.stats());
    Ok(())
}

fn flood(count: u32) {
    let now = Instant::now();
    let path = Path::udp(([192, 0, 2, 1], 8000).into(), ([203, 0, 113, 7], 5000).into());
    let mut lite = LiteAgent::new(now, Arc::new(LiteConfig::default()), &Seed::from_number(1));
    let mut port = Demux::new();
    for session in 0..10_000 {
        port.insert(&format!("{session:08x}"), session);
    }
    let request = |ufrag: &str, key: &[u8]| {
        let mut out = Vec::new();
        MessageWriter::new(&mut out, Class::Request, TransactionId([1; 12]))
            .username(ufrag, "peer")
            .priority(1)
            .finish(key);
        out
    };
    let unknown_ufrag = request("nobody-1", b"a guess");
    let each = |name: &str, mut step: Box<dyn FnMut() + '_>| {
        let start = Instant::now();
        (0..count).for_each(|_| step());
        println!("{name}: {:?} each", start.elapsed() / count.max(1));
    };
    let unknown = Route::Drop(DropReason::UnknownFragment);
    each(
        "routed to nobody, 10 000 sessions",
        Box::new(|| assert_eq!(port.route(&path, black_box(&unknown_ufrag)), unknown)),
    );
    let local = lite.local().clone();
    let guess = request(local.ufrag(), b"a guess");
    each("a wrong integrity", Box::new(|| lite.handle_datagram(now, path, black_box(&guess))));
    let good = request(local.ufrag(), local.password().as_bytes());
    let mut out = Vec::new();
    each(
        "a check answered",
        Box::new(|| {
            lite.handle_datagram(now, path, black_box(&good));
            lite.poll_transmit(now, &mut out);
            out.clear();
        }),
    );
}
