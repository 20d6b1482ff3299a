//! Runs an SRT connection of this crate over a real UDP socket, for tests with other implementations:
//!
//! ```text
//! live send|recv --mode caller|listener ADDRESS [--streamid S] [--passphrase P] [--pbkeylen 16|24|32] [--latency MS] \
//!     [--packetfilter off|any|fec,cols:10,rows:5,...]
//! ```
//!
//! `send` reads standard input and sends messages of 1316 bytes; `recv` writes received payload to standard output. The
//! program ends after one connection. The connection's statistics are written to standard error.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the socket, the clock and the thread"
)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use srt::{
    Bytes, CloseReason, Config, Connection, Datagrams, Endpoint, Event, KeyLength, PAYLOAD_BYTES, Passphrase,
    Route, Seed, SocketId,
};

struct Arguments {
    sends: bool,
    listens: bool,
    address: SocketAddr,
    stream_id: String,
    config: Config,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let sends = match args.next().as_deref() {
        Some("send") => true,
        Some("recv") => false,
        _ => return Err("send or recv?".into()),
    };
    let (mut listens, mut address, mut stream_id, mut config) =
        (false, None, String::new(), Config::default());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or("a value is missing");
        match arg.as_str() {
            "--mode" => listens = value()? == "listener",
            "--streamid" => stream_id = value()?,
            "--passphrase" => config.passphrase = Some(Passphrase::new(&value()?)?),
            "--pbkeylen" => {
                config.key_length = KeyLength::from_bytes(value()?.parse()?).ok_or("16, 24 or 32")?;
            }
            "--latency" => {
                config.latency = Duration::from_millis(value()?.parse()?);
                config.peer_latency = config.latency;
            }
            "--refresh" => {
                config.key_refresh_packets = value()?.parse()?;
                config.key_announce_packets = config.key_refresh_packets / 4;
            }
            "--packetfilter" => config.packet_filter = value()?.parse()?,
            "--overhead" => config.overhead_percent = value()?.parse()?,
            text => address = Some(text.parse()?),
        }
    }
    Ok(Arguments { sends, listens, address: address.ok_or("an address?")?, stream_id, config })
}

/// Reads standard input in messages, on a thread because reading blocks.
fn messages() -> Receiver<Bytes> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut message = Vec::new();
            let most = u64::try_from(PAYLOAD_BYTES).unwrap_or(1316);
            match input.by_ref().take(most).read_to_end(&mut message) {
                Ok(length) if length > 0 => {
                    if sender.send(message.into()).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    receiver
}

struct Shell {
    socket: UdpSocket,
    config: Arc<Config>,
    seed: Seed,
    endpoint: Option<Endpoint<()>>,
    connection: Option<Connection>,
    peer: Option<SocketAddr>,
    out: Datagrams,
    over: bool,
}

impl Shell {
    fn open(arguments: &Arguments) -> Result<Self, Box<dyn Error>> {
        let any = if arguments.address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = match arguments.listens {
            true => UdpSocket::bind(arguments.address)?,
            false => UdpSocket::bind(any)?,
        };
        let (seed, now, config) = (Seed::from_os()?, Instant::now(), Arc::new(arguments.config.clone()));
        let mut shell = Self {
            socket,
            endpoint: arguments.listens.then(|| Endpoint::new(now, &seed)),
            connection: None,
            peer: None,
            out: Datagrams::new(),
            over: false,
            config,
            seed,
        };
        if !arguments.listens {
            let (config, local) = (Arc::clone(&shell.config), SocketId::random(&shell.seed));
            shell.peer = Some(arguments.address);
            shell.connection =
                Some(Connection::caller(now, config, local, &arguments.stream_id, &shell.seed));
        }
        Ok(shell)
    }

    fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> std::io::Result<()> {
        let Some(endpoint) = &mut self.endpoint else {
            if let Some(connection) = self.connection.as_mut().filter(|_| self.peer == Some(from)) {
                connection.handle_datagram(now, datagram);
            }
            return Ok(());
        };
        let mut reply = Vec::new();
        match endpoint.route(now, from, datagram, &mut reply) {
            Route::Session(()) => {
                if let Some(connection) = &mut self.connection {
                    connection.handle_datagram(now, datagram);
                }
            }
            Route::New(incoming) if self.connection.is_none() => {
                eprintln!("caller {from}, stream id {:?}", incoming.stream_id());
                let connection = endpoint.accept(now, *incoming, Arc::clone(&self.config), (), &self.seed);
                (self.connection, self.peer) = (Some(connection), Some(from));
            }
            Route::New(_) | Route::Reply | Route::Drop(_) => {}
        }
        if !reply.is_empty() {
            self.socket.send_to(&reply, from)?;
        }
        Ok(())
    }

    /// Writes payload to standard output and datagrams to the socket.
    fn drain(&mut self, now: Instant) -> std::io::Result<()> {
        let (Some(connection), Some(peer)) = (&mut self.connection, self.peer) else { return Ok(()) };
        let mut output = std::io::stdout().lock();
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Payload(payload) => output.write_all(&payload)?,
                Event::Skipped(packets) => eprintln!("skipped {packets}"),
                other @ (Event::Connected(_) | Event::Closed(_)) => {
                    eprintln!("{other:?}");
                    self.over |= matches!(other, Event::Closed(_));
                }
            }
        }
        output.flush()?;
        while connection.poll_transmit(now, &mut self.out) {
            for index in 0..self.out.len() {
                // A full socket buffer or an unreachable port counts as ordinary loss.
                let _ = self.socket.send_to(self.out.get(index), peer);
            }
            self.out.clear();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mut shell = Shell::open(&arguments)?;
    let input = arguments.sends.then(messages);
    let mut waiting: Option<Bytes> = None;
    let mut ends_at: Option<Instant> = None;
    let mut buffer = vec![0; 2048];
    while !shell.over {
        let now = Instant::now();
        let deadline = shell.connection.as_ref().and_then(Connection::poll_timeout);
        let mut wait = deadline.map_or(Duration::from_millis(50), |at| at.saturating_duration_since(now));
        if arguments.sends {
            wait = wait.min(Duration::from_millis(1));
        }
        shell.socket.set_read_timeout(Some(wait.max(Duration::from_micros(50))))?;
        if let Ok((length, from)) = shell.socket.recv_from(&mut buffer) {
            shell.handle(Instant::now(), from, buffer.get(..length).unwrap_or_default())?;
        }
        let now = Instant::now();
        if let Some(connection) = &mut shell.connection {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            if let Some(input) = input.as_ref().filter(|_| connection.is_connected()) {
                while ends_at.is_none() {
                    let message = match waiting.take().map_or_else(|| input.try_recv(), Ok) {
                        Ok(message) => message,
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => {
                            // Packets in flight may still have to be retransmitted.
                            let latency = connection.latencies().map_or(Duration::ZERO, |(_, send)| send);
                            ends_at = Some(now + latency + Duration::from_millis(500));
                            break;
                        }
                    };
                    if connection.send_room() < message.len() {
                        waiting = Some(message);
                        break;
                    }
                    connection.send(now, message)?;
                }
            }
            if ends_at.is_some_and(|at| at <= now) {
                connection.close(now, CloseReason::Local);
            }
        }
        shell.drain(now)?;
    }
    shell.drain(Instant::now())?;
    if let Some(connection) = &shell.connection {
        eprintln!("{:#?}", connection.stats());
    }
    Ok(())
}
