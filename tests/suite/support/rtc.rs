//! A WebRTC client by the project's own crate, over UDP or TCP. It offers by WHIP or WHEP, and the test's thread runs
//! it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crypto::Seed;
use ice::Path;
use ice::tcp::{FrameReader, write_frame};
use media::TrackKind;
use media::codec::{Codec, CodecConfig, h264};
use netsim::{MediaSource, SyntheticUnit, Verifier};
use sctp::{ChannelId, Kind};
use sdp::{Description, Direction, MediaKind};
use webrtc::{CloseReason, Config, Event, IceMode, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

use super::{Reply, Server, secs};

/// The only section of the client's offer.
pub const VIDEO: SectionId = SectionId(0);
/// Maximum time to wait for data of a socket in one round.
const STEP: Duration = Duration::from_millis(1);

/// A TCP connection to a media port, read and written in frames (RFC 4571).
#[derive(Debug)]
pub struct Framed {
    pub stream: TcpStream,
    reader: FrameReader,
}

impl Framed {
    /// Connects to a media port.
    pub fn connect(to: SocketAddr) -> Self {
        Self::of(TcpStream::connect(to).unwrap())
    }

    /// Uses a connection that is already open.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(STEP)).unwrap();
        Self { stream, reader: FrameReader::default() }
    }

    /// Returns the frames that have arrived; `None` if the connection has ended.
    pub fn receive(&mut self) -> Option<Vec<BytesMut>> {
        let mut buffer = [0; 65_536];
        let count = match self.stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => 0,
            Err(_) => return None,
        };
        let mut input = BytesMut::from(buffer.get(..count)?);
        let mut frames = Vec::new();
        while let Some(frame) = self.reader.next(&mut input).unwrap() {
            frames.push(frame);
        }
        Some(frames)
    }

    /// Sends one frame. Returns false if the connection has ended.
    pub fn send(&mut self, datagram: &[u8]) -> bool {
        let mut frame = Vec::new();
        write_frame(datagram, &mut frame).unwrap();
        self.stream.write_all(&frame).is_ok()
    }
}

#[derive(Debug)]
enum Net {
    Udp(UdpSocket),
    Tcp(Framed),
}

/// Kind of the server's candidate that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Udp,
    Tcp,
}

/// Media of a publisher: H.264 at 30 frames a second.
#[derive(Debug)]
struct Studio {
    media: MediaSource,
    next: SyntheticUnit,
    track: Track,
    config: CodecConfig,
    start: Instant,
}

/// The data channel of a client that has one: it opens the channel itself.
#[derive(Debug, Default)]
pub struct Talk {
    is_wanted: bool,
    channel: Option<ChannelId>,
    /// The messages that came, each with true for text.
    pub messages: Vec<(bool, Bytes)>,
}

impl Talk {
    fn take(&mut self, peer: &mut Peer, event: Event) {
        match event {
            Event::DataConnected if self.is_wanted => {
                self.channel = peer.open_channel(Instant::now(), "mine", "", sctp::Options::default()).ok();
            }
            Event::Message { kind, payload, .. } => self.messages.push((kind == Kind::Text, payload)),
            _ => {}
        }
    }
}

/// A WebRTC client; see the module.
#[derive(Debug)]
pub struct RtcClient {
    pub peer: Peer,
    net: Net,
    path: Path,
    studio: Option<Studio>,
    pub location: String,
    pub answer: String,
    pub connected: bool,
    /// Number of frames received completely.
    pub frames: usize,
    /// Frames with their sections, of a client made by [`Self::hear`], which verifies them elsewhere; `None` for
    /// other clients.
    heard: Option<Vec<(SectionId, Bytes)>>,
    pub verifier: Verifier,
    pub key_frames_wanted: usize,
    pub closed: Option<CloseReason>,
    /// True if the connection has ended.
    pub cut: bool,
    pub talk: Talk,
}

/// Makes a peer that has not offered yet.
pub fn rtc_peer() -> Peer {
    peer_of(ice::Config::default())
}

/// Makes a peer whose path is checked when it connects, and not again for an hour.
pub fn rtc_peer_that_checks_once() -> Peer {
    peer_of(ice::Config {
        consent_interval: secs(3600),
        consent_timeout: secs(7200),
        ..ice::Config::default()
    })
}

fn peer_of(ice: ice::Config) -> Peer {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let seed = COUNT.fetch_add(1, Ordering::Relaxed);
    let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(seed)).unwrap());
    let config = Arc::new(Config::new(IceMode::Full(Arc::new(ice)), identity));
    let now = Instant::now();
    let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_790_000_000));
    Peer::new(now, config, anchor, Seed::from_number(seed)).unwrap()
}

/// Returns a section of H.264.
pub fn h264_section(direction: Direction) -> [(MediaKind, MediaPreference); 1] {
    let formats = offered_formats(Codec::H264, 96);
    [(MediaKind::Video, MediaPreference { direction, formats, msid: None })]
}

impl RtcClient {
    /// Makes a player that has the server's answer.
    pub fn play(server: &Server, name: &str, over: Over) -> Self {
        Self::play_after(server, name, over, |port| port)
    }

    /// Makes a player as [`Self::play`] does; `before` is as in [`Self::publish_after`].
    pub fn play_after(
        server: &Server,
        name: &str,
        over: Over,
        before: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Self {
        let sections = h264_section(Direction::RecvOnly);
        Self::begin(rtc_peer(), server, &format!("/live/whep/{name}"), &sections, (over, before))
    }

    /// Makes a publisher and a player from the two peers; `before` is called for each, as in
    /// [`Self::publish_after`].
    pub fn both_of(
        server: &Server,
        name: &str,
        [publisher, player]: [Peer; 2],
        before: &mut dyn FnMut(SocketAddr) -> SocketAddr,
    ) -> [Self; 2] {
        let path = format!("/live/whip/{name}");
        let sections = h264_section(Direction::SendOnly);
        let mut publisher =
            Self::begin(publisher, server, &path, &sections, (Over::Udp, &mut *before)).with_studio();
        publisher.run_until("the keys", secs(20), |publisher| publisher.connected);
        let received = || server.api().broadcast("live", name).and_then(|one| one["receivedBytes"].as_u64());
        publisher.run_until("pictures at the server", secs(30), |_| received().unwrap_or(0) > 0);
        let (path, sections) = (format!("/live/whep/{name}"), h264_section(Direction::RecvOnly));
        [publisher, Self::begin(player, server, &path, &sections, (Over::Udp, before))]
    }

    /// Plays a section of each codec until it has `count` frames of each, and returns their payloads.
    pub fn hear(server: &Server, name: &str, codecs: &[Codec], count: usize) -> Vec<Vec<Bytes>> {
        let section = |(codec, first): (&Codec, u8)| {
            let kind = if codec.kind() == TrackKind::Video { MediaKind::Video } else { MediaKind::Audio };
            let formats = offered_formats(*codec, first);
            (kind, MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
        };
        let sections: Vec<_> = codecs.iter().zip((96..).step_by(8)).map(section).collect();
        let mut client = Self::begin(
            rtc_peer(),
            server,
            &format!("/live/whep/{name}"),
            &sections,
            (Over::Udp, |port| port),
        );
        client.heard = Some(Vec::new());
        let of = |client: &Self, index: usize| {
            let is_of = |(of, _): &&(SectionId, Bytes)| *of == SectionId(u8::try_from(index).unwrap());
            let heard = client.heard.iter().flatten().filter(is_of);
            heard.map(|(_, payload)| payload.clone()).collect::<Vec<_>>()
        };
        client.run_until("frames of each section", secs(30), |client| {
            (0..codecs.len()).all(|index| of(client, index).len() >= count)
        });
        (0..codecs.len()).map(|index| of(&client, index)).collect()
    }

    /// Makes a publisher that has the server's answer.
    pub fn publish(server: &Server, name: &str, over: Over) -> Self {
        Self::publish_after(server, name, over, |port| port)
    }

    /// Makes a publisher as [`Self::publish`] does. Once the server's port is known, `before` returns the address
    /// to connect to instead.
    pub fn publish_after(
        server: &Server,
        name: &str,
        over: Over,
        before: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Self {
        let path = format!("/live/whip/{name}");
        let sections = h264_section(Direction::SendOnly);
        Self::begin(rtc_peer(), server, &path, &sections, (over, before)).with_studio()
    }

    /// Makes a publisher with a data channel.
    pub fn publish_with_data(server: &Server, name: &str) -> Self {
        let (path, sections) = (format!("/live/whip/{name}"), h264_section(Direction::SendOnly));
        Self::begin_with_data(server, &path, &sections).with_studio()
    }

    /// Makes a player with a data channel.
    pub fn play_with_data(server: &Server, name: &str) -> Self {
        let (path, sections) = (format!("/live/whep/{name}"), h264_section(Direction::RecvOnly));
        Self::begin_with_data(server, &path, &sections)
    }

    fn begin_with_data(server: &Server, path: &str, sections: &[(MediaKind, MediaPreference)]) -> Self {
        let mut peer = rtc_peer();
        peer.take_data();
        let mut client = Self::begin(peer, server, path, sections, (Over::Udp, |port| port));
        client.talk.is_wanted = true;
        client
    }

    /// True if the data channel can be used.
    pub const fn is_open(&self) -> bool {
        self.talk.channel.is_some()
    }

    /// Sends a message. Returns false if the channel is not open, or has no room.
    pub fn say(&mut self, is_text: bool, message: &[u8]) -> bool {
        let kind = if is_text { Kind::Text } else { Kind::Binary };
        let Some(channel) = self.talk.channel else { return false };
        self.peer.send_data(Instant::now(), channel, kind, Bytes::copy_from_slice(message)).is_ok()
    }

    /// Makes a publisher whose descriptions were exchanged by other means.
    pub fn publish_answered(mut peer: Peer, answer: &str) -> Self {
        let (text, port) = candidates_of(answer, Over::Udp);
        peer.handle_answer(Instant::now(), &Description::read(text.as_bytes()).unwrap()).unwrap();
        let reply = Reply { status: 201, head: String::new(), body: answer.to_owned() };
        Self::connect(peer, &reply, port, Over::Udp).with_studio()
    }

    fn with_studio(mut self) -> Self {
        let mut media = MediaSource::new(&Seed::from_number(9)).gop(30).sizes(4000, 160);
        self.studio = Some(Studio {
            next: media.next_unit(),
            media,
            track: Track::new(Codec::H264, 1100).unwrap(),
            config: CodecConfig::H264(h264::Config::read(MediaSource::video_config()).unwrap()),
            start: Instant::now(),
        });
        self
    }

    fn begin(
        mut peer: Peer,
        server: &Server,
        path: &str,
        sections: &[(MediaKind, MediaPreference)],
        (over, before): (Over, impl FnOnce(SocketAddr) -> SocketAddr),
    ) -> Self {
        let offer = peer.offer(sections).unwrap().write();
        let reply = offer_to(server, path, &offer);
        assert_eq!(reply.status, 201, "{}", reply.body);
        let (text, port) = candidates_of(&reply.body, over);
        let to = before(port);
        let place = |address: SocketAddr| format!(" {} {} typ ", address.ip(), address.port());
        let text = text.replace(&place(port), &place(to));
        peer.handle_answer(Instant::now(), &Description::read(text.as_bytes()).unwrap()).unwrap();
        Self::connect(peer, &reply, to, over)
    }

    /// Makes a player that lets the server make the offer, and answers with a second request.
    pub fn play_countered(server: &Server, reply: &Reply) -> Self {
        let mut peer = rtc_peer();
        let (text, port) = candidates_of(&reply.body, Over::Udp);
        let offer = Description::read(text.as_bytes()).unwrap();
        let [(kind, takes)] = h264_section(Direction::RecvOnly);
        let answer =
            peer.handle_offer(Instant::now(), &offer, |_, media| (media.kind == kind).then(|| takes.clone()));
        let client = Self::connect(peer, reply, port, Over::Udp);
        let path = client.path_of_session();
        let fields = [("Content-Type", "application/sdp")];
        let taken = server.api().call_with("PATCH", &path, &fields, Some(&answer.unwrap().write()));
        assert_eq!((taken.status, taken.body.as_str()), (204, ""));
        client
    }

    fn connect(mut peer: Peer, reply: &Reply, port: SocketAddr, over: Over) -> Self {
        let (net, local) = match over {
            Over::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                let local = socket.local_addr().unwrap();
                (Net::Udp(socket), local)
            }
            Over::Tcp => {
                let framed = Framed::connect(port);
                let local = framed.stream.local_addr().unwrap();
                (Net::Tcp(framed), local)
            }
        };
        // The machine knows UDP candidates only, so a TCP connection is presented to it as one.
        peer.add_local(Instant::now(), local).unwrap();
        Self {
            peer,
            net,
            path: Path::udp(local, port),
            studio: None,
            location: header(reply, "Location"),
            answer: reply.body.clone(),
            connected: false,
            frames: 0,
            heard: None,
            verifier: Verifier::new(),
            key_frames_wanted: 0,
            closed: None,
            cut: false,
            talk: Talk::default(),
        }
    }

    /// Returns the path of the session's URL, which is relative to that of its endpoint.
    pub fn path_of_session(&self) -> String {
        let folder = if self.studio.is_some() { "whip" } else { "whep" };
        format!("/live/{folder}/{}", self.location)
    }

    /// Closes the peer, as a browser does when its page is left.
    pub fn close(&mut self) {
        self.peer.close(Instant::now());
        self.step();
    }

    /// Returns the milliseconds of the stream that a publisher has made so far.
    pub fn made_ms(&self) -> u64 {
        self.studio.as_ref().map_or(0, |studio| studio.next.dts_ms)
    }

    /// Returns the server's address and port.
    pub const fn port(&self) -> SocketAddr {
        self.path.remote
    }

    /// Runs the client until `done` returns true; the limit only detects hangs.
    pub fn run_until(&mut self, what: &str, limit: Duration, mut done: impl FnMut(&Self) -> bool) {
        let (began, limit) = (Instant::now(), limit.max(super::PATIENCE));
        while !done(self) {
            assert!(began.elapsed() < limit, "waited {limit:?} for {what}: {:?}", self.peer.stats());
            self.step();
        }
    }

    /// Runs a round: handles received data and timeouts, and sends what is due.
    pub fn step(&mut self) {
        self.receive();
        let now = Instant::now();
        self.peer.handle_timeout(now);
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => self.connected = true,
                Event::Frame { section, frame, .. } => {
                    self.frames += 1;
                    match &mut self.heard {
                        Some(heard) => heard.push((section, frame.payload)),
                        None => _ = self.verifier.feed(&frame.payload).unwrap(),
                    }
                }
                Event::KeyFrameWanted { .. } => self.key_frames_wanted += 1,
                Event::Closed(reason) => self.closed = Some(reason),
                other => self.talk.take(&mut self.peer, other),
            }
        }
        if let Some(studio) = self.studio.as_mut().filter(|_| self.connected && self.closed.is_none()) {
            studio.run(now, &mut self.peer);
        }
        self.send(now);
    }

    fn receive(&mut self) {
        let now = Instant::now();
        match &mut self.net {
            Net::Udp(socket) => {
                let mut buffer = [0; 2048];
                let mut any = false;
                while let Ok(count) = socket.recv(&mut buffer) {
                    self.peer.handle_datagram(now, self.path, &mut buffer[..count]);
                    any = true;
                }
                if !any {
                    std::thread::sleep(STEP);
                }
            }
            Net::Tcp(framed) => match framed.receive() {
                Some(frames) => {
                    for mut frame in frames {
                        self.peer.handle_datagram(now, self.path, &mut frame);
                    }
                }
                None => self.cut = true,
            },
        }
    }

    fn send(&mut self, now: Instant) {
        let mut out = Datagrams::new();
        let studio = &self.studio;
        while self.peer.poll_transmit(now, |_| Some(studio.as_ref()?.track.log()), &mut out).is_some() {
            for datagram in (0..out.len()).map(|n| out.get(n)) {
                match &mut self.net {
                    Net::Udp(socket) => {
                        let _ = socket.send_to(datagram, self.path.remote);
                    }
                    Net::Tcp(framed) => self.cut |= !framed.send(datagram),
                }
            }
            out.clear();
        }
    }
}

impl RtcClient {
    /// Sends a datagram directly, without the protocol machine.
    pub fn send_raw(&mut self, datagram: &[u8]) {
        match &mut self.net {
            Net::Udp(socket) => drop(socket.send_to(datagram, self.path.remote)),
            Net::Tcp(framed) => self.cut |= !framed.send(datagram),
        }
    }

    /// Receives a datagram directly, without the protocol machine; `None` if there is none.
    pub fn receive_raw(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 2048];
        let Net::Udp(socket) = &self.net else { return None };
        socket.recv(&mut buffer).ok().map(|count| buffer[..count].to_vec())
    }
}

impl Studio {
    fn run(&mut self, now: Instant, peer: &mut Peer) {
        while self.start + Duration::from_millis(self.next.dts_ms) <= now {
            let unit = std::mem::replace(&mut self.next, self.media.next_unit());
            if !unit.is_video {
                continue;
            }
            let timestamp = u32::try_from(unit.dts_ms * 90).unwrap();
            let sent = self.track.push(now, &self.config, unit.key_frame, timestamp, &unit.payload).unwrap();
            assert!(peer.send(VIDEO, &sent, now));
        }
    }
}

/// Posts an offer.
pub fn offer_to(server: &Server, path: &str, offer: &str) -> Reply {
    server.api().call_with("POST", path, &[("Content-Type", "application/sdp")], Some(offer))
}

/// Returns the value of a reply's header field, which is empty if there is none.
pub fn header(reply: &Reply, name: &str) -> String {
    let found = reply.head.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    });
    found.unwrap_or_default()
}

/// Returns a description with the candidates of one transport only, and the address of the last of them. TCP
/// candidates are rewritten as UDP.
pub fn candidates_of(text: &str, over: Over) -> (String, SocketAddr) {
    let (mut out, mut address) = (String::new(), None);
    for line in text.lines() {
        let candidate = line.starts_with("a=candidate:");
        let kept = match over {
            _ if !candidate => line.to_owned(),
            Over::Udp if line.contains(" udp ") => line.to_owned(),
            Over::Tcp if line.ends_with(" tcptype passive") => {
                line.trim_end_matches(" tcptype passive").replace(" tcp ", " udp ")
            }
            Over::Udp | Over::Tcp => continue,
        };
        if candidate {
            let words: Vec<&str> = kept.split(' ').collect();
            address = format!("{}:{}", words[4], words[5]).parse().ok();
        }
        out += &format!("{kept}\r\n");
    }
    (out, address.unwrap())
}
