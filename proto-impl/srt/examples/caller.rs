//! Sends standard input, a transport stream in real time, to a listening port:
//!
//! ```text
//! ffmpeg -re -i file.ts -c copy -f mpegts - | cargo run -p millstream-srt --example caller -- 127.0.0.1:9000 live/first
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the socket, the clock and the thread"
)]

use std::error::Error;
use std::io::Read;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use srt::{Bytes, CloseReason, Config, Connection, Datagrams, Event, PAYLOAD_BYTES, Seed, SocketId};

/// Reads standard input in messages, on a thread because reading blocks.
fn messages() -> Receiver<Bytes> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut message = Vec::with_capacity(PAYLOAD_BYTES);
            let most = u64::try_from(PAYLOAD_BYTES).unwrap_or(1316);
            match input.by_ref().take(most).read_to_end(&mut message) {
                Ok(length) if length > 0 && sender.send(message.into()).is_ok() => {}
                _ => return,
            }
        }
    });
    receiver
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(stream_id)) = (arguments.next(), arguments.next()) else {
        return Err("usage: caller ADDRESS:PORT STREAMID".into());
    };
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    let seed = Seed::from_os()?;
    let (config, id) = (Arc::new(Config::default()), SocketId::random(&seed));
    let mut connection = Connection::caller(Instant::now(), config, id, &stream_id, &seed);
    let (input, mut held, mut ends_at) = (messages(), None, None);
    let (mut buffer, mut out) = ([0; 2048], Datagrams::new());
    while !connection.is_over() {
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        let came = socket.recv(&mut buffer);
        let now = Instant::now();
        if let Ok(length) = came {
            connection.handle_datagram(now, buffer.get(..length).unwrap_or_default());
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while connection.is_connected() && ends_at.is_none() {
            match held.take().map_or_else(|| input.try_recv(), Ok) {
                Ok(message) if connection.send_room() < message.len() => {
                    held = Some(message);
                    break;
                }
                Ok(message) => connection.send(now, message)?,
                Err(TryRecvError::Empty) => break,
                // Packets in flight may still have to be retransmitted.
                Err(TryRecvError::Disconnected) => ends_at = Some(now + Duration::from_secs(1)),
            }
        }
        if ends_at.is_some_and(|at| at <= now) {
            connection.close(now, CloseReason::Local);
        }
        while let Some(event) = connection.poll_event() {
            if let Event::Connected(_) | Event::Closed(_) = event {
                eprintln!("{event:?}");
            }
        }
        while connection.poll_transmit(now, &mut out) {
            for datagram in out.iter() {
                // Packets that do not fit into the socket's buffer are lost, as they may be on the network.
                let _ = socket.send(datagram);
            }
            out.clear();
        }
    }
    eprintln!("{} packets sent, {} again", connection.stats().pkt_sent, connection.stats().pkt_retrans);
    Ok(())
}
