//! The example `server` with tokio: a task for each connection, and a channel for each stream.
//!
//! ```text
//! cargo run -p millstream-rtmp --example tokio_server -- 127.0.0.1:1935
//! ffmpeg -re -i file.mp4 -c copy -f flv rtmp://127.0.0.1/live/first
//! ffplay rtmp://127.0.0.1/live/first
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the sockets and the clock"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rtmp::flv::tag::{AudioPacket, FrameType, VideoPacket};
use rtmp::flv::{AudioTag, VideoTag, data};
use rtmp::{Config, Event, MediaKind, MediaMessage, PlayTracks, Rejection, Seed, SendQueue, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, error::RecvError};

/// Maximum number of messages by which a player may fall behind. A slower player continues with the next
/// key frame.
const LAG_MESSAGES_MAX: usize = 1024;
/// Maximum time for which a player may accept no bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A live stream: metadata and parameter sets, which a player receives first, and the channel of its
/// messages.
struct Stream {
    heads: Vec<MediaMessage>,
    feed: broadcast::Sender<MediaMessage>,
}

type Streams = Arc<Mutex<BTreeMap<String, Stream>>>;

/// Player's feed, its message stream id, and whether it has received a key frame.
struct Player {
    feed: broadcast::Receiver<MediaMessage>,
    message_stream: u32,
    is_begun: bool,
}

struct Session {
    machine: Server,
    streams: Streams,
    published: Option<String>,
    player: Option<Player>,
    is_over: bool,
}

impl Session {
    fn with_streams<T>(&self, run: impl FnOnce(&mut BTreeMap<String, Stream>) -> T) -> T {
        run(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Connect(_) => self.machine.accept_connect(now),
                Event::Publish(request) => {
                    let name = request.target().map(|target| target.stream).ok();
                    let name = name.filter(|name| self.with_streams(|streams| publish(streams, name)));
                    if let Some(name) = name {
                        eprintln!("{name} is published");
                        self.machine.accept_publish(now, request.message_stream);
                        self.published = Some(name);
                    } else {
                        let refusal = refusal("NetStream.Publish.BadName");
                        self.machine.reject_publish(now, request.message_stream, refusal);
                    }
                }
                Event::Play(request) => {
                    let name = request.target().map(|target| target.stream).unwrap_or_default();
                    let found = self.with_streams(|streams| {
                        streams.get(&name).map(|stream| (stream.heads.clone(), stream.feed.subscribe()))
                    });
                    if let Some((heads, feed)) = found {
                        let both = PlayTracks { audio: true, video: true };
                        self.machine.accept_play(now, request.message_stream, both);
                        let message_stream = request.message_stream;
                        self.player = Some(Player { feed, message_stream, is_begun: false });
                        heads.into_iter().for_each(|head| self.send(now, head));
                    } else {
                        let refusal = refusal("NetStream.Play.StreamNotFound");
                        self.machine.reject_play(now, request.message_stream, refusal);
                    }
                }
                Event::Media(message) => self.forward(message),
                Event::PublishEnded { .. } => self.end(),
                Event::PlayEnded { .. } => self.player = None,
                Event::Closed(reason) => {
                    eprintln!("a connection has ended: {reason}");
                    self.is_over = true;
                }
                Event::Refused { .. } | Event::PlayPaused { .. } | Event::ReceiveMedia { .. } => {}
            }
        }
    }

    /// Passes a publisher's message on to its players.
    fn forward(&self, mut message: MediaMessage) {
        if message.kind == MediaKind::Data {
            message.payload = data::unwrap(&message.payload);
        }
        let Some(name) = &self.published else { return };
        self.with_streams(|streams| {
            let Some(stream) = streams.get_mut(name) else { return };
            if is_head(&message) {
                stream.heads.retain(|head| head.kind != message.kind);
                stream.heads.push(message.clone());
            }
            // Fails if the stream has no players, which is harmless.
            let _ = stream.feed.send(message);
        });
    }

    fn send(&mut self, now: Instant, message: MediaMessage) {
        let Some(player) = &mut self.player else { return };
        player.is_begun |= begins(&message);
        if player.is_begun || is_head(&message) {
            self.machine.send(now, &MediaMessage { message_stream: player.message_stream, ..message });
        }
    }

    /// Handles the next message of the stream that is played, or its end.
    fn play(&mut self, now: Instant, message: Result<MediaMessage, RecvError>) {
        match (message, &mut self.player) {
            (Ok(message), _) => self.send(now, message),
            (Err(RecvError::Lagged(_)), Some(player)) => player.is_begun = false,
            (Err(RecvError::Closed), Some(player)) => {
                self.machine.end_play(now, player.message_stream);
                self.player = None;
            }
            (Err(_), None) => {}
        }
    }

    /// Ends the published stream. Its players see the end of their feeds.
    fn end(&mut self) {
        if let Some(name) = self.published.take() {
            eprintln!("{name} has ended");
            self.with_streams(|streams| streams.remove(&name));
        }
    }
}

/// Reserves the name of a stream. Returns false if another publisher has it.
fn publish(streams: &mut BTreeMap<String, Stream>, name: &str) -> bool {
    let is_free = !streams.contains_key(name);
    if is_free {
        let stream = Stream { heads: Vec::new(), feed: broadcast::Sender::new(LAG_MESSAGES_MAX) };
        streams.insert(name.to_owned(), stream);
    }
    is_free
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

/// Waits for the next message of a player's feed. If there is no player, waits for ever.
async fn next(player: &mut Option<Player>) -> Result<MediaMessage, RecvError> {
    match player {
        Some(player) => player.feed.recv().await,
        None => std::future::pending().await,
    }
}

async fn serve(session: &mut Session, mut socket: TcpStream) -> std::io::Result<()> {
    let (mut out, mut buffer) = (SendQueue::new(), vec![0; 64 * 1024]);
    loop {
        session.drain(Instant::now());
        if session.machine.poll_transmit(&mut out) {
            tokio::time::timeout(WRITE_TIMEOUT, socket.write_all(&out.take_all())).await??;
        }
        if session.is_over {
            return Ok(());
        }
        let idle = Instant::now() + Duration::from_secs(3600);
        let deadline = session.machine.poll_timeout().unwrap_or(idle);
        tokio::select! {
            length = socket.read(&mut buffer) => match length? {
                0 => return Ok(()),
                // After an error, the state machine reports `Closed`, which is handled above.
                length => drop(session.machine.handle_bytes(Instant::now(), buffer.get(..length).unwrap_or_default())),
            },
            message = next(&mut session.player) => session.play(Instant::now(), message),
            () = tokio::time::sleep_until(deadline.into()) => session.machine.handle_timeout(Instant::now()),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:1935".to_owned());
    let listener = TcpListener::bind(address).await?;
    eprintln!("rtmp://{}/live", listener.local_addr()?);
    let (config, seed, streams) = (Arc::new(Config::default()), Seed::from_os()?, Streams::default());
    for number in 1_u64.. {
        let (socket, _) = listener.accept().await?;
        let machine = Server::new(Instant::now(), Arc::clone(&config), seed.derive("connection", number));
        let streams = Arc::clone(&streams);
        tokio::spawn(async move {
            let mut session = Session { machine, streams, published: None, player: None, is_over: false };
            if let Err(error) = serve(&mut session, socket).await {
                eprintln!("connection {number}: {error}");
            }
            session.end();
        });
    }
    Ok(())
}
