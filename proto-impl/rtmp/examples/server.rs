//! A live server: sends each stream published at `rtmp://HOST/live/NAME` to all its players. A single thread runs a
//! mio event loop.
//!
//! ```text
//! cargo run -p millstream-rtmp --example server -- 127.0.0.1:1935
//! ffmpeg -re -i file.mp4 -c copy -f flv rtmp://127.0.0.1/live/first
//! ffplay rtmp://127.0.0.1/live/first
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the sockets and the clock"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rtmp::flv::tag::{AudioPacket, FrameType, VideoPacket};
use rtmp::flv::{AudioTag, VideoTag, data};
use rtmp::{Config, Event, Gather, MediaKind, MediaMessage, PlayTracks, Rejection, Seed, SendQueue, Server};

const LISTENER: Token = Token(0);
/// Maximum number of bytes that wait to be sent to a player. A slower player is disconnected.
const UNSENT_BYTES_MAX: usize = 8 << 20;

enum Role {
    Guest,
    Publisher(String),
    /// Player with its stream, its message stream id, and whether it has received a key frame.
    Player(String, u32, bool),
}

struct Connection {
    socket: TcpStream,
    machine: Server,
    out: SendQueue,
    role: Role,
    is_over: bool,
}

#[derive(Default)]
struct App {
    connections: BTreeMap<usize, Connection>,
    /// Metadata and parameter sets of each live stream. A player receives them before any media.
    streams: BTreeMap<String, Vec<MediaMessage>>,
}

impl Connection {
    fn send(&mut self, now: Instant, message: &MediaMessage) {
        let Role::Player(_, message_stream, is_begun) = &mut self.role else { return };
        if *is_begun || is_head(message) || begins(message) {
            *is_begun |= begins(message);
            self.machine.send(now, &MediaMessage { message_stream: *message_stream, ..message.clone() });
        }
    }

    /// Sends as much as the socket accepts.
    fn flush(&mut self) {
        self.machine.poll_transmit(&mut self.out);
        while !self.out.is_empty() {
            let mut gather = Gather::new(usize::MAX);
            self.out.gather(&mut gather);
            match self.socket.write_vectored(gather.slices()) {
                Ok(written) => self.out.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.is_over = true,
            }
        }
        self.is_over |= self.out.len() > UNSENT_BYTES_MAX;
    }
}

impl App {
    /// Reads until the socket has no more data, because mio reports each readiness only once.
    fn read(&mut self, now: Instant, id: usize) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Some(connection) = self.connections.get_mut(&id).filter(|one| !one.is_over) else { return };
            let bytes = match connection.socket.read(&mut buffer) {
                Ok(0) => return connection.is_over = true,
                Ok(length) => buffer.get(..length).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return connection.is_over = true,
            };
            // After an error, the state machine reports `Closed`, which is handled below.
            let _ = connection.machine.handle_bytes(now, bytes);
            self.drain(now, id);
        }
    }

    fn drain(&mut self, now: Instant, id: usize) {
        while let Some(connection) = self.connections.get_mut(&id) {
            let Some(event) = connection.machine.poll_event() else { break };
            let machine = &mut connection.machine;
            match event {
                Event::Connect(_) => machine.accept_connect(now),
                Event::Publish(request) => match request.target() {
                    Ok(target) if !self.streams.contains_key(&target.stream) => {
                        eprintln!("{} is published", target.stream);
                        machine.accept_publish(now, request.message_stream);
                        self.streams.insert(target.stream.clone(), Vec::new());
                        connection.role = Role::Publisher(target.stream);
                    }
                    Ok(_) | Err(_) => {
                        let refusal = refusal("NetStream.Publish.BadName");
                        machine.reject_publish(now, request.message_stream, refusal);
                    }
                },
                Event::Play(request) => {
                    match request.target().ok().and_then(|target| self.streams.get_key_value(&target.stream))
                    {
                        Some((name, heads)) => {
                            let both = PlayTracks { audio: true, video: true };
                            machine.accept_play(now, request.message_stream, both);
                            connection.role = Role::Player(name.clone(), request.message_stream, false);
                            heads.iter().for_each(|head| connection.send(now, head));
                        }
                        None => {
                            let refusal = refusal("NetStream.Play.StreamNotFound");
                            machine.reject_play(now, request.message_stream, refusal);
                        }
                    }
                }
                Event::Media(message) => self.publish(now, id, message),
                Event::PublishEnded { .. } => self.end(now, id),
                Event::Closed(reason) => {
                    eprintln!("connection {id}: {reason}");
                    connection.is_over = true;
                }
                Event::Refused { .. }
                | Event::PlayEnded { .. }
                | Event::PlayPaused { .. }
                | Event::ReceiveMedia { .. } => {}
            }
        }
    }

    fn publish(&mut self, now: Instant, id: usize, mut message: MediaMessage) {
        let Some(Role::Publisher(name)) = self.connections.get(&id).map(|connection| &connection.role) else {
            return;
        };
        let name = name.clone();
        if message.kind == MediaKind::Data {
            message.payload = data::unwrap(&message.payload);
        }
        if let Some(heads) = self.streams.get_mut(&name).filter(|_| is_head(&message)) {
            heads.retain(|head| head.kind != message.kind);
            heads.push(message.clone());
        }
        for player in self.connections.values_mut() {
            if matches!(&player.role, Role::Player(of, ..) if *of == name) {
                player.send(now, &message);
                player.flush();
            }
        }
    }

    /// Ends the stream of a publisher that has gone.
    fn end(&mut self, now: Instant, id: usize) {
        let role = self.connections.get_mut(&id).map(|one| std::mem::replace(&mut one.role, Role::Guest));
        let Some(Role::Publisher(name)) = role else { return };
        eprintln!("{name} has ended");
        self.streams.remove(&name);
        for player in self.connections.values_mut() {
            if let Role::Player(of, message_stream, _) = &player.role
                && *of == name
            {
                player.machine.end_play(now, *message_stream);
                player.flush();
            }
        }
    }
}

/// Returns whether the message contains metadata or parameter sets.
fn is_head(message: &MediaMessage) -> bool {
    let body = &message.payload;
    match message.kind {
        MediaKind::Audio => AudioTag::read(body).is_ok_and(|tag| tag.packet == AudioPacket::SequenceHeader),
        MediaKind::Video => VideoTag::read(body).is_ok_and(|tag| tag.packet == VideoPacket::SequenceHeader),
        MediaKind::Data => true,
    }
}

fn begins(message: &MediaMessage) -> bool {
    let is_key = |tag: VideoTag| tag.frame_type == FrameType::Key && tag.packet == VideoPacket::Frame;
    message.kind == MediaKind::Video && VideoTag::read(&message.payload).is_ok_and(is_key)
}

fn refusal(code: &'static str) -> Rejection {
    Rejection { code: code.into(), description: "not here".to_owned(), close: true }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1935".to_owned());
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(256));
    let mut listener = TcpListener::bind(address.parse()?)?;
    eprintln!("rtmp://{}/live", listener.local_addr()?);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (config, seed, mut app, mut next) =
        (Arc::new(Config::default()), Seed::from_os()?, App::default(), 1);
    loop {
        let deadline = app.connections.values().filter_map(|one| one.machine.poll_timeout()).min();
        poll.poll(&mut events, deadline.map(|at| at.saturating_duration_since(Instant::now())))?;
        let now = Instant::now();
        for event in &events {
            let id = event.token().0;
            if event.token() != LISTENER {
                app.read(now, id);
                continue;
            }
            while let Ok((mut socket, _)) = listener.accept() {
                let both = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut socket, Token(next), both)?;
                let machine = Server::new(now, Arc::clone(&config), seed.derive("connection", next as u64));
                let (out, role) = (SendQueue::new(), Role::Guest);
                app.connections.insert(next, Connection { socket, machine, out, role, is_over: false });
                next += 1;
            }
        }
        // A real server would keep a heap of deadlines. For a few connections, looking at each of them is enough.
        for id in app.connections.keys().copied().collect::<Vec<_>>() {
            let Some(connection) = app.connections.get_mut(&id) else { continue };
            if connection.machine.poll_timeout().is_some_and(|at| at <= now) {
                connection.machine.handle_timeout(now);
            }
            app.drain(now, id);
            let Some(connection) = app.connections.get_mut(&id) else { continue };
            connection.flush();
            if connection.is_over {
                app.end(now, id);
                app.connections.remove(&id);
            }
        }
    }
}
