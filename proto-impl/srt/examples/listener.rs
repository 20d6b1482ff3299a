//! Listens on a port for streams, and writes the payload of the first caller to standard output:
//!
//! ```text
//! cargo run -p millstream-srt --example listener -- 127.0.0.1:9000 > out.ts
//! ffmpeg -re -i file.ts -c copy -f mpegts 'srt://127.0.0.1:9000?streamid=live/first'
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the socket and the clock"
)]

use std::error::Error;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use srt::{Config, Connection, Datagrams, Endpoint, Event, RejectReason, Route, Seed};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let socket = UdpSocket::bind(address)?;
    eprintln!("srt://{}", socket.local_addr()?);
    let (config, seed) = (Arc::new(Config::default()), Seed::from_os()?);
    let mut port: Endpoint<()> = Endpoint::new(Instant::now(), &seed);
    // The connection, and its peer's address.
    let mut caller: Option<(Connection, std::net::SocketAddr)> = None;
    let (mut buffer, mut out) = ([0; 2048], Datagrams::new());
    loop {
        let deadline = caller.as_ref().and_then(|(connection, _)| connection.poll_timeout());
        let wait = deadline.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(Instant::now()));
        socket.set_read_timeout(Some(wait.max(Duration::from_micros(100))))?;
        let came = socket.recv_from(&mut buffer);
        let now = Instant::now();
        if let Ok((length, from)) = came {
            let (datagram, mut reply) = (buffer.get(..length).unwrap_or_default(), Vec::new());
            match (port.route(now, from, datagram, &mut reply), &mut caller) {
                (Route::Session(()), Some((connection, _))) => connection.handle_datagram(now, datagram),
                (Route::New(incoming), None) => {
                    eprintln!("{from} sends {:?}", incoming.stream_id());
                    caller = Some((port.accept(now, *incoming, Arc::clone(&config), (), &seed), from));
                }
                (Route::New(incoming), Some(_)) => incoming.reject(now, RejectReason::RESOURCE, &mut reply),
                (Route::Session(()) | Route::Reply | Route::Drop(_), _) => {}
            }
            if !reply.is_empty() {
                socket.send_to(&reply, from)?;
            }
        }
        let Some((connection, peer)) = &mut caller else { continue };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Payload(payload) => std::io::stdout().write_all(&payload)?,
                Event::Connected(_) => eprintln!("connected"),
                Event::Skipped(packets) => eprintln!("{packets} packets came too late"),
                Event::Closed(reason) => eprintln!("closed: {reason:?}"),
            }
        }
        while connection.poll_transmit(now, &mut out) {
            for datagram in out.iter() {
                // Packets that do not fit into the socket's buffer are lost, as they may be on the
                // network.
                let _ = socket.send_to(datagram, *peer);
            }
            out.clear();
        }
        if connection.is_over() {
            return Ok(std::io::stdout().flush()?);
        }
    }
}
