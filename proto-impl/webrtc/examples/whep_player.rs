//! Plays a stream over WHEP and writes its H.264 to standard output with start codes:
//!
//! ```text
//! cargo run -p millstream-webrtc --example whep_player -- http://127.0.0.1:5080/live/whep/first 10 > out.264
//! ```
//!
//! The number is the time to play in seconds. The example supports plain HTTP only.

#![allow(
    clippy::disallowed_types,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the sockets and the clock, and leaves out what it has no use for"
)]

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use webrtc::dtls::Identity;
use webrtc::ice::Path;
use webrtc::media::codec::Codec;
use webrtc::media::nal;
use webrtc::rtp::NtpAnchor;
use webrtc::sdp::{Description, Direction, MediaKind};
use webrtc::{Config, Datagrams, Event, IceMode, MediaPreference, Peer, Seed, offered_formats};

type Failure = Box<dyn Error>;

/// Maximum size of an answer to a request.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Address of a resource: `HOST:PORT` and the path.
struct Resource {
    host: String,
    path: String,
}

impl Resource {
    fn read(url: &str) -> Option<Self> {
        let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
        Some(Self { host: host.to_owned(), path: format!("/{path}") })
    }

    /// Sends a request, and returns the value of `Location` and the body of its answer.
    fn request(&self, method: &str, body: &str) -> Result<(Option<String>, String), Failure> {
        let mut socket = TcpStream::connect(&self.host)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let (host, path, length) = (&self.host, &self.path, body.len());
        let fields = format!("Host: {host}\r\nContent-Type: application/sdp\r\nContent-Length: {length}");
        write!(socket, "{method} {path} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n{body}")?;
        let mut answer = String::new();
        socket.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            return Err(format!("{method} was answered with {status}: {body}").into());
        }
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        let location = fields.find(|(name, _)| name.eq_ignore_ascii_case("location"));
        Ok((location.map(|(_, value)| value.trim().to_owned()), body.to_owned()))
    }

    /// The resource that `Location` refers to: a URL, an absolute path, or a path relative to this one (RFC
    /// 3986 §4.2).
    fn at(&self, location: &str) -> Self {
        let folder = match self.path.rfind('/') {
            Some(end) if !location.starts_with('/') => self.path.get(..=end).unwrap_or_default(),
            _ => "",
        };
        let of_path = || Self { host: self.host.clone(), path: format!("{folder}{location}") };
        Self::read(location).unwrap_or_else(of_path)
    }
}

/// Returns the preference to receive media of this kind with this codec.
fn receive(kind: MediaKind, codec: Codec, first: u8) -> (MediaKind, MediaPreference) {
    let formats = offered_formats(codec, first);
    (kind, MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

struct Player {
    peer: Peer,
    socket: UdpSocket,
    local: SocketAddr,
    out: Datagrams,
    /// Video frames written, and audio frames ignored.
    frames: (u64, u64),
    is_over: bool,
}

impl Player {
    fn new(now: Instant, host: &str) -> Result<Self, Failure> {
        // Finds the local address with which this machine reaches the server.
        let probe = UdpSocket::bind("0.0.0.0:0")?;
        probe.connect(host)?;
        let socket = UdpSocket::bind((probe.local_addr()?.ip(), 0))?;
        let (local, seed) = (socket.local_addr()?, Seed::from_os()?);
        let identity = Identity::self_signed(&seed.derive("identity", 0))?;
        let config = Config::new(IceMode::Full(Arc::default()), Arc::new(identity));
        let anchor = NtpAnchor::new(now, SystemTime::now().duration_since(UNIX_EPOCH)?);
        let mut peer = Peer::new(now, Arc::new(config), anchor, seed.derive("peer", 0))?;
        peer.add_local(now, local)?;
        Ok(Self { peer, socket, local, out: Datagrams::new(), frames: (0, 0), is_over: false })
    }

    fn drain(&mut self, now: Instant) -> Result<(), Failure> {
        if self.peer.poll_timeout().is_some_and(|at| at <= now) {
            self.peer.handle_timeout(now);
        }
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => eprintln!("connected"),
                Event::Frame { section, frame, .. } => {
                    let of = |one: &&webrtc::Section| one.id == section;
                    let section = self.peer.sections().iter().find(of);
                    if section.is_some_and(|section| section.kind == MediaKind::Video) {
                        self.frames.0 += 1;
                        std::io::stdout().write_all(&nal::to_annex_b(&frame.payload)?)?;
                    } else {
                        self.frames.1 += 1;
                    }
                }
                Event::PictureLost { section, layer } => {
                    self.peer.request_key_frame(now, section, layer);
                }
                Event::Closed(reason) => {
                    let (video, audio) = self.frames;
                    eprintln!("closed: {reason:?}; {video} frames of video, {audio} of sound");
                    self.is_over = true;
                }
                _ => {}
            }
        }
        while let Some(path) = self.peer.poll_transmit(now, |_| None, &mut self.out) {
            for datagram in self.out.iter() {
                // Packets that the network stack refuses are treated as lost on the path.
                let _ = self.socket.send_to(datagram, path.remote);
            }
            self.out.clear();
        }
        Ok(())
    }

    /// Waits for a datagram, at most until the next deadline.
    fn receive(&mut self, buffer: &mut [u8], until: Instant) -> Result<(), Failure> {
        let deadline = self.peer.poll_timeout().map_or(until, |at| at.min(until));
        let wait = deadline.saturating_duration_since(Instant::now());
        self.socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        match self.socket.recv_from(buffer) {
            Ok((length, from)) => {
                let datagram = buffer.get_mut(..length).unwrap_or_default();
                self.peer.handle_datagram(Instant::now(), Path::udp(self.local, from), datagram);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: whep_player http://HOST:PORT/PATH [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let (stream, now) = (Resource::read(&url).ok_or("that is no URL of HTTP")?, Instant::now());
    let mut player = Player::new(now, &stream.host)?;
    let sections = [receive(MediaKind::Video, Codec::H264, 96), receive(MediaKind::Audio, Codec::Opus, 111)];
    let offer = player.peer.offer(&sections)?.write();
    let (session, answer) = stream.request("POST", &offer)?;
    player.peer.handle_answer(now, &Description::read(answer.as_bytes())?)?;
    let (mut buffer, until) = ([0; 2048], now + Duration::from_secs(seconds));
    while Instant::now() < until {
        player.drain(Instant::now())?;
        if player.is_over {
            return Ok(());
        }
        player.receive(&mut buffer, until)?;
    }
    if let Some(session) = session {
        stream.at(&session).request("DELETE", "")?;
    }
    player.peer.close(Instant::now());
    player.drain(Instant::now())
}
