//! Accepts publishers over WHIP (RFC 9725), prints their events, and writes the H.264 of the first one to standard
//! output with start codes:
//!
//! ```text
//! cargo run -p millstream-webrtc --example whip_server -- 127.0.0.1:8080 | ffplay -
//! ffmpeg -re -i file.mp4 -c:v copy -c:a libopus -f whip http://127.0.0.1:8080/whip
//! ```
//!
//! See the example `whip` for a relay from a publisher to viewers.

#![allow(
    clippy::disallowed_types,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example is the shell around the machine: it has the sockets and the clock, and leaves out what it has no use for"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use webrtc::dtls::Identity;
use webrtc::ice::{Demux, Path, Route};
use webrtc::media::codec::Codec;
use webrtc::media::nal;
use webrtc::rtp::NtpAnchor;
use webrtc::rtp::payload::codec_of_description;
use webrtc::sdp::{Description, Direction, Media};
use webrtc::{Config, Datagrams, Event, IceMode, MediaPreference, Peer, Section, Seed, offered_formats};

type Failure = Box<dyn Error>;

struct Server {
    config: Arc<Config>,
    seed: Seed,
    anchor: NtpAnchor,
    socket: UdpSocket,
    local: SocketAddr,
    /// Demultiplexer of the port, which all publishers share.
    demux: Demux<u64>,
    /// Publishers with their frame counts.
    peers: BTreeMap<u64, (Peer, u64)>,
    out: Datagrams,
}

/// Preference for a section: the first supported codec.
fn take(media: &Media) -> Option<MediaPreference> {
    let known = |format| codec_of_description(&format).map(|codec| offered_formats(codec, 96));
    let formats = media.rtp_formats().filter_map(known).find(|formats| !formats.is_empty())?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

impl Server {
    fn new(address: SocketAddr) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((address.ip(), 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        let (local, seed) = (socket.local_addr()?, Seed::from_os()?);
        let identity = Identity::self_signed(&seed.derive("identity", 0))?;
        let ice = IceMode::Lite { config: Arc::default(), addresses: vec![local] };
        let anchor = NtpAnchor::new(Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
        let config = Arc::new(Config::new(ice, Arc::new(identity)));
        let (demux, peers, out) = (Demux::new(), BTreeMap::new(), Datagrams::new());
        Ok(Self { config, seed, anchor, socket, local, demux, peers, out })
    }

    /// Creates a session and an answer from an offer.
    fn publish(&mut self, now: Instant, offer: &[u8]) -> Result<(u64, String), Failure> {
        let id = self.peers.last_key_value().map_or(1, |(id, _)| id + 1);
        let seed = self.seed.derive(&format!("{now:?}"), id);
        let mut peer = Peer::new(now, Arc::clone(&self.config), self.anchor, seed)?;
        let answer = peer.handle_offer(now, &Description::read(offer)?, |_, media| take(media))?;
        self.demux.insert(peer.local_fragment(), id);
        self.peers.insert(id, (peer, 0));
        Ok((id, answer.write()))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        let (length, from) = match self.socket.recv_from(buffer) {
            Ok(came) => came,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (datagram, path) = (buffer.get_mut(..length).unwrap_or_default(), Path::udp(self.local, from));
        if let Route::Stun(id) | Route::Dtls(id) | Route::Rtp(id) = self.demux.route(&path, datagram)
            && let Some((peer, _)) = self.peers.get_mut(&id)
        {
            peer.handle_datagram(Instant::now(), path, datagram);
        }
        Ok(())
    }

    /// Handles the deadlines, events and datagrams of all sessions. A real server would keep a heap of
    /// deadlines; for a few publishers, a loop is enough.
    fn drain(&mut self) -> Result<(), Failure> {
        let (now, mut over) = (Instant::now(), Vec::new());
        for (id, (peer, frames)) in &mut self.peers {
            if peer.poll_timeout().is_some_and(|at| at <= now) {
                peer.handle_timeout(now);
            }
            while let Some(event) = peer.poll_event() {
                match event {
                    Event::PathOpened(path) => drop(self.demux.open(path, *id)),
                    Event::PathClosed(path) => self.demux.close(&path, *id),
                    Event::Connected => eprintln!("{id} is connected"),
                    Event::Frame { section, layer: 0, frame, .. } => {
                        *frames += 1;
                        let of = |one: &&Section| one.id == section;
                        let format =
                            peer.sections().iter().find(of).and_then(|section| section.formats.first());
                        let codec = format.and_then(|format| codec_of_description(&format.remote));
                        if *id == 1 && codec == Some(Codec::H264) {
                            std::io::stdout().write_all(&nal::to_annex_b(&frame.payload)?)?;
                        }
                    }
                    Event::Closed(reason) => {
                        eprintln!("{id} has ended after {frames} frames: {reason:?}");
                        over.push(*id);
                    }
                    _ => {}
                }
            }
            while let Some(path) = peer.poll_transmit(now, |_| None, &mut self.out) {
                for datagram in self.out.iter() {
                    // Packets that the network stack refuses are treated as lost on the path.
                    let _ = self.socket.send_to(datagram, path.remote);
                }
                self.out.clear();
            }
        }
        for id in over {
            self.demux.remove(id);
            self.peers.remove(&id);
        }
        Ok(())
    }

    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (&'static str, String, String) {
        let now = Instant::now();
        let session = path.strip_prefix("/session/").and_then(|id| id.parse::<u64>().ok());
        match (method, session.and_then(|id| self.peers.get_mut(&id))) {
            ("POST", _) => match self.publish(now, body) {
                Ok((id, answer)) => ("201 Created", format!("Location: /session/{id}\r\n"), answer),
                Err(error) => ("422 Unprocessable Content", String::new(), error.to_string()),
            },
            ("DELETE", Some((peer, _))) => {
                peer.close(now);
                ("200 OK", String::new(), String::new())
            }
            _ => ("404 Not Found", String::new(), String::new()),
        }
    }

    /// Serves a minimal HTTP request for WHIP. Blocks until its client has sent the request; a real server
    /// would use threads or an event loop.
    fn serve(&mut self, mut client: TcpStream) -> Result<(), Failure> {
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(Duration::from_secs(2)))?;
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let length = client.read(&mut piece)?;
            bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n").filter(|_| bytes.len() < 64 * 1024) else {
                if length == 0 || bytes.len() >= 64 * 1024 {
                    return Err("no request".into());
                }
                continue;
            };
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            let wanted = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            if length > 0 && body.len() < wanted.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
            {
                continue;
            }
            let mut words = head.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (status, location, answer) = self.answer(method, path, body.as_bytes());
            let length = answer.len();
            let fields = format!("{location}Content-Type: application/sdp\r\nContent-Length: {length}\r\n");
            write!(client, "HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n{answer}")?;
            return Ok(());
        }
    }
}

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned()).parse()?;
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    eprintln!("http://{}/whip", listener.local_addr()?);
    let (mut server, mut buffer) = (Server::new(address)?, [0; 2048]);
    loop {
        server.receive(&mut buffer)?;
        if let Ok((client, _)) = listener.accept()
            && let Err(error) = server.serve(client)
        {
            eprintln!("{error}");
        }
        server.drain()?;
    }
}
