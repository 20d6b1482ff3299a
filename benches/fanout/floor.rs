//! The bare loop measures the cost of sending alone. It passes on a publisher's bytes unchanged, with one write
//! per viewer and video frame (including the audio since the last one), or one write per viewer and message.
//!
//! A viewer is admitted with the whole dialogue of its protocol and the GOP so far; afterwards the loop only
//! writes to it. A socket that has carried a dialogue acknowledges differently from a fresh one, and on loopback
//! the sender pays for that. A publisher begins with [`hello`] and sends records: a kind byte, a length, and a
//! unit in the form of the viewers' protocol (RTMP chunks, an FLV tag, an FLV tag in a WebSocket frame, or
//! interleaved RTSP frames). With TLS, the copy for each viewer is encrypted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use millstream::http::websocket::media_frame_head;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{CipherSuite, ServerConfig, ServerConnection};
use tungstenite::handshake::derive_accept_key;
use wire::SendQueue;

use super::options::Class;

const LISTENER: Token = Token(usize::MAX);
/// First byte of a publisher. Viewers begin with another byte: RTMP with its version, 3; HTTP with a G; TLS with a
/// record of type 22.
const PUBLISHER: u8 = b'P';
/// Kinds of records.
pub const AUDIO: u8 = b'a';
pub const VIDEO: u8 = b'v';
pub const KEY_FRAME: u8 = b'k';
/// The SDP description of a stream, for RTSP viewers.
pub const DESCRIPTION: u8 = b'd';
/// Bytes of a record's head: kind and length.
pub const RECORD_HEAD: usize = 5;

/// The first bytes that a publisher sends: its greeting and the stream's number.
pub fn hello(stream: usize) -> [u8; 5] {
    let [a, b, c, d] = u32::try_from(stream).unwrap_or(u32::MAX).to_be_bytes();
    [PUBLISHER, a, b, c, d]
}

/// Returns the head of a record whose length is filled in later.
pub const fn record_head(kind: u8) -> [u8; RECORD_HEAD] {
    [kind, 0, 0, 0, 0]
}

/// Writes the length of the record that begins at `at` in `out`.
pub fn seal_record(out: &mut [u8], at: usize) {
    let length = u32::try_from(out.len() - at - RECORD_HEAD).unwrap_or(0).to_be_bytes();
    if let Some(field) = out.get_mut(at + 1..at + RECORD_HEAD) {
        field.copy_from_slice(&length);
    }
}

/// Runs until the process is killed. Writes its address to standard output.
pub fn run(per_message: bool, class: Class) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let tls = if class.is_tls() { Some(tls_config()?) } else { None };
    let (publishers, streams, buffer) = (Vec::new(), Vec::new(), vec![0; 256 * 1024]);
    let mut floor = Floor { per_message, class, tls, publishers, streams, buffer };
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

/// Returns a configuration with TLS 1.3 and AES-128-GCM only.
fn tls_config() -> io::Result<Arc<ServerConfig>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(vec![own.cert.into()], key.into())
        });
    config.map(Arc::new).map_err(io::Error::other)
}

/// A viewer: its socket, and the TLS connection if there is one.
struct Viewer {
    socket: net::TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl Viewer {
    /// Sends all bytes in one write; with TLS, in one write per batch of records. More writes follow if the kernel
    /// accepts only a part.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            None => {
                // A vectored write, as in the server, so that the same kernel counter counts the writes of both.
                let count = self.socket.write_vectored(&[io::IoSlice::new(bytes)])?;
                self.socket.write_all(bytes.get(count..).unwrap_or_default())
            }
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                while tls.wants_write() {
                    tls.write_tls(&mut self.socket)?;
                }
                Ok(())
            }
        }
    }

    /// Reads some bytes, decrypted if the connection uses TLS.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    tls.complete_io(&mut self.socket)?;
                }
                outcome => return outcome,
            }
        }
    }
}

struct Publisher {
    socket: TcpStream,
    stream: usize,
    pending: Vec<u8>,
    /// Audio messages that wait to be sent together with the next video frame.
    riding: Vec<u8>,
}

/// A stream's viewers. Sends block, so a slow viewer delays the whole loop, which has nothing else to do.
#[derive(Default)]
struct Stream {
    viewers: Vec<Viewer>,
    gop: Vec<u8>,
    description: String,
}

struct Floor {
    per_message: bool,
    class: Class,
    tls: Option<Arc<ServerConfig>>,
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
            // Only a publisher's first byte is consumed, because a TLS record must stay whole.
            if socket.peek(&mut first)? == 1 && first == [PUBLISHER] {
                socket.read_exact(&mut first)?;
                self.begin_publisher(socket, poll)?;
                continue;
            }
            let tls = self.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config))).transpose();
            let mut tls = tls.map_err(io::Error::other)?.map(Box::new);
            if let Some(tls) = &mut tls {
                tls.set_buffer_limit(None);
            }
            let mut viewer = Viewer { socket, tls };
            let index = match self.class {
                Class::Rtmp => let_in(&mut viewer)?,
                Class::Flv | Class::Flvs | Class::Ws => let_in_http(&mut viewer, self.class)?,
                Class::Rtsp => let_in_rtsp(&mut viewer, &self.streams)?,
                Class::Srt | Class::SrtAes | Class::Whep => return Err(ErrorKind::Unsupported.into()),
            };
            if let Some(stream) = self.streams.get_mut(index) {
                viewer.send(&stream.gop)?;
                stream.viewers.push(viewer);
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
            if *kind == DESCRIPTION {
                stream.description = String::from_utf8_lossy(message).into_owned();
                continue;
            }
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
        self.viewers.retain_mut(|viewer| viewer.send(bytes).is_ok());
    }
}

/// Runs the RTMP dialogue until a play is accepted. Returns the number of the requested stream.
fn let_in(viewer: &mut Viewer) -> io::Result<usize> {
    let now = Instant::now();
    let mut machine = rtmp::Server::new(now, Arc::default(), Seed::from_number(0));
    let mut buffer = [0; 4096];
    let tracks = rtmp::PlayTracks { audio: true, video: true };
    let mut bytes: &[u8] = &[];
    loop {
        machine.handle_bytes(now, bytes).map_err(io::Error::other)?;
        let mut wanted = None;
        while let Some(event) = machine.poll_event() {
            match event {
                rtmp::Event::Connect(_) => machine.accept_connect(now),
                rtmp::Event::Play(request) => {
                    machine.accept_play(now, request.message_stream, tracks);
                    wanted = request.target().ok().map(|target| stream_number(&target.stream));
                }
                rtmp::Event::Closed(reason) => return Err(io::Error::other(format!("{reason:?}"))),
                rtmp::Event::Refused { .. }
                | rtmp::Event::Publish(_)
                | rtmp::Event::Media(_)
                | rtmp::Event::PublishEnded { .. }
                | rtmp::Event::PlayEnded { .. }
                | rtmp::Event::PlayPaused { .. }
                | rtmp::Event::ReceiveMedia { .. } => {}
            }
        }
        let mut queue = SendQueue::new();
        if machine.poll_transmit(&mut queue) {
            viewer.send(&queue.take_all())?;
        }
        if let Some(stream) = wanted {
            return Ok(stream);
        }
        let count = viewer.receive(&mut buffer)?;
        bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(ErrorKind::UnexpectedEof)?;
    }
}

/// Runs the RTSP dialogue until `PLAY` is accepted, with each track on the channels for which its packets are cut.
/// Returns the number of the requested stream.
fn let_in_rtsp(viewer: &mut Viewer, streams: &[Stream]) -> io::Result<usize> {
    let now = Instant::now();
    let mut machine = rtsp::Server::new(now, Arc::default(), Seed::from_number(0));
    let mut buffer = [0; 4096];
    let mut bytes: &[u8] = &[];
    let mut wanted = 0;
    loop {
        machine.handle_bytes(now, bytes).map_err(io::Error::other)?;
        let mut plays = false;
        while let Some(event) = machine.poll_event() {
            match event {
                rtsp::Event::Describe(request) => {
                    wanted = stream_number(&request.target.path);
                    let stream = streams.get(wanted).ok_or(ErrorKind::NotFound)?;
                    machine.accept_describe(now, &stream.description);
                }
                rtsp::Event::Setup(request) => {
                    let channels = u8::try_from(request.track * 2).ok().and_then(rtsp::Channels::from_rtp);
                    machine.accept_setup(now, rtsp::Transport::tcp(channels.ok_or(ErrorKind::InvalidInput)?));
                }
                rtsp::Event::Play => {
                    machine.accept_play(now, &[]);
                    plays = true;
                }
                rtsp::Event::Closed(reason) => return Err(io::Error::other(reason.to_string())),
                rtsp::Event::Announce(_)
                | rtsp::Event::Record
                | rtsp::Event::Pause
                | rtsp::Event::Teardown
                | rtsp::Event::Interleaved(_) => {}
            }
        }
        let mut queue = SendQueue::new();
        if machine.poll_transmit(&mut queue) {
            viewer.send(&queue.take_all())?;
        }
        if plays {
            return Ok(wanted);
        }
        let count = viewer.receive(&mut buffer)?;
        bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(ErrorKind::UnexpectedEof)?;
    }
}

/// Reads the request, and writes the answer and the head of an FLV file. Returns the number of the requested
/// stream.
fn let_in_http(viewer: &mut Viewer, class: Class) -> io::Result<usize> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"\r\n\r\n") {
        let count = viewer.receive(&mut buffer)?;
        request
            .extend(buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(ErrorKind::UnexpectedEof)?);
    }
    let request = String::from_utf8_lossy(&request);
    let header = flv::file::Header { audio: true, video: true }.write();
    let mut answer = Vec::new();
    if class == Class::Ws {
        let key =
            request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap_or_default();
        answer.extend(
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n\r\n",
                derive_accept_key(key.as_bytes())
            )
            .into_bytes(),
        );
        answer.extend_from_slice(&media_frame_head(header.len()));
    } else {
        answer
            .extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: video/x-flv\r\nConnection: close\r\n\r\n");
    }
    answer.extend_from_slice(&header);
    viewer.send(&answer)?;
    Ok(stream_number(request.split_whitespace().nth(1).unwrap_or_default().trim_end_matches(".flv")))
}

fn stream_number(name: &str) -> usize {
    name.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}
