//! The bare loop: what sending costs when nothing else is done. It passes a publisher's bytes on as they are, with
//! one write per viewer and video frame (audio rides along), or one per viewer and message.
//!
//! A viewer is let in with the whole RTMP dialogue and the GOP so far, then only written to: a socket that has
//! carried a dialogue acknowledges otherwise than a fresh one, and on loopback the sender pays for that.
//! A publisher begins with [`hello`] and sends records: a kind byte, a length, the chunks of one message.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use wire::SendQueue;

use super::media::Due;

const LISTENER: Token = Token(usize::MAX);
/// RTMP begins with its version, 3.
const PUBLISHER: u8 = b'P';
const AUDIO: u8 = b'a';
const VIDEO: u8 = b'v';
const KEY_FRAME: u8 = b'k';
/// Kind and length.
const RECORD_HEAD: usize = 5;

/// The first bytes of a publisher.
pub fn hello(stream: usize) -> [u8; 5] {
    let [a, b, c, d] = u32::try_from(stream).unwrap_or(u32::MAX).to_be_bytes();
    [PUBLISHER, a, b, c, d]
}

/// Puts the head of a record before the message that begins at `at` in `out`.
pub fn seal_record(out: &mut Vec<u8>, at: usize, due: Due) {
    let length = u32::try_from(out.len() - at).unwrap_or(0).to_be_bytes();
    let kind = match (due.is_video, due.key_frame) {
        (false, _) => AUDIO,
        (true, false) => VIDEO,
        (true, true) => KEY_FRAME,
    };
    out.splice(at..at, [kind].into_iter().chain(length));
}

/// Runs until its process is ended; the address goes to standard output.
pub fn run(per_message: bool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let mut floor =
        Floor { per_message, publishers: Vec::new(), streams: Vec::new(), buffer: vec![0; 256 * 1024] };
    let mut events = Events::with_capacity(1024);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                floor.accept(&listener, &poll)?;
            } else {
                floor.read(event.token().0)?;
            }
        }
    }
}

struct Publisher {
    socket: TcpStream,
    stream: usize,
    pending: Vec<u8>,
    /// What the viewers get with the next video frame.
    riding: Vec<u8>,
}

/// A stream's viewers. Blocking: a loop that does nothing but send waits for whoever is slow.
#[derive(Default)]
struct Stream {
    viewers: Vec<net::TcpStream>,
    gop: Vec<u8>,
}

struct Floor {
    per_message: bool,
    publishers: Vec<Publisher>,
    streams: Vec<Stream>,
    buffer: Vec<u8>,
}

impl Floor {
    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        loop {
            let mut socket = match listener.accept() {
                Ok((socket, _)) => net::TcpStream::from(socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            let mut first = [0; 1];
            socket.read_exact(&mut first)?;
            if first == [PUBLISHER] {
                self.begin_publisher(socket, poll)?;
                continue;
            }
            let index = let_in(&mut socket, first)?;
            if let Some(stream) = self.streams.get_mut(index) {
                socket.write_all(&stream.gop)?;
                stream.viewers.push(socket);
            }
        }
    }

    fn begin_publisher(&mut self, mut socket: net::TcpStream, poll: &Poll) -> io::Result<()> {
        let mut stream = [0; 4];
        socket.read_exact(&mut stream)?;
        let stream = usize::try_from(u32::from_be_bytes(stream)).unwrap_or(0);
        if self.streams.len() <= stream {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        poll.registry().register(&mut socket, Token(self.publishers.len()), Interest::READABLE)?;
        self.publishers.push(Publisher { socket, stream, pending: Vec::new(), riding: Vec::new() });
        Ok(())
    }

    fn read(&mut self, index: usize) -> io::Result<()> {
        let Some(publisher) = self.publishers.get_mut(index) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(publisher.stream) else { return Ok(()) };
        loop {
            match publisher.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    publisher.pending.extend_from_slice(self.buffer.get(..count).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            publisher.pass_on(self.per_message, stream);
        }
    }
}

impl Publisher {
    fn pass_on(&mut self, per_message: bool, stream: &mut Stream) {
        let mut rest = self.pending.as_slice();
        while let Some(([kind, length @ ..], bytes)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some((message, behind)) = bytes.split_at_checked(length) else { break };
            rest = behind;
            self.riding.extend_from_slice(message);
            if *kind == KEY_FRAME {
                stream.gop.clear();
            }
            if per_message || *kind != AUDIO {
                stream.send(&self.riding);
                self.riding.clear();
            }
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
    }
}

impl Stream {
    fn send(&mut self, bytes: &[u8]) {
        self.gop.extend_from_slice(bytes);
        // A vectored write as the server's, so that the same counter of the kernel counts both.
        let slices = [io::IoSlice::new(bytes)];
        self.viewers.retain_mut(|viewer| match viewer.write_vectored(&slices) {
            Ok(count) => viewer.write_all(bytes.get(count..).unwrap_or_default()).is_ok(),
            Err(_) => false,
        });
    }
}

/// The dialogue up to an accepted play; the number of the stream that is wanted.
fn let_in(socket: &mut net::TcpStream, first: [u8; 1]) -> io::Result<usize> {
    let now = Instant::now();
    let mut machine = rtmp::Server::new(now, Arc::default(), Seed::from_number(0));
    let mut buffer = [0; 4096];
    let tracks = rtmp::PlayTracks { audio: true, video: true };
    let mut bytes: &[u8] = &first;
    loop {
        machine.handle_bytes(now, bytes).map_err(io::Error::other)?;
        let mut wanted = None;
        while let Some(event) = machine.poll_event() {
            match event {
                rtmp::Event::Connect(_) => machine.accept_connect(now),
                rtmp::Event::Play(request) => {
                    machine.accept_play(now, request.message_stream, tracks);
                    wanted = Some(stream_number(&request.target.stream));
                }
                rtmp::Event::Closed(reason) => return Err(io::Error::other(format!("{reason:?}"))),
                rtmp::Event::Publish(_)
                | rtmp::Event::Media(_)
                | rtmp::Event::PublishEnded { .. }
                | rtmp::Event::PlayEnded { .. }
                | rtmp::Event::PlayPaused { .. }
                | rtmp::Event::ReceiveMedia { .. } => {}
            }
        }
        let mut queue = SendQueue::new();
        if machine.poll_transmit(&mut queue) {
            socket.write_all(&queue.take_all())?;
        }
        if let Some(stream) = wanted {
            return Ok(stream);
        }
        let count = socket.read(&mut buffer)?;
        bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(ErrorKind::UnexpectedEof)?;
    }
}

fn stream_number(name: &str) -> usize {
    name.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}
