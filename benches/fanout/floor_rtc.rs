//! The bare loop over WebRTC. Viewers are admitted with the whole dialogue of WHEP, ICE and DTLS; from the next
//! key frame on, the loop only writes to them. A frame is cut into packets once. Each viewer's packets are sealed
//! with its keys, and runs of packets of equal length are sent in one call, or each packet alone. Reports and
//! requests of viewers are not read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::{LiteAgent, LiteConfig, Path};
use media::codec::{Codec, CodecConfig, h264};
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rtp::payload::{Packetizer, Payloads};
use rtp::{Csrcs, Header, PayloadType, SequenceNumber, Ssrc};
use sdp::{Description, Direction, MediaKind};
use srtp::{MasterKey, Outbound, Profile};
use webrtc::{IceMode, MediaPreference, Peer, offered_formats};
use wire::Datagrams;

use super::floor::{KEY_FRAME, RECORD_HEAD, VIDEO};

/// Interval between two checks for new viewers.
const LOOK_PERIOD: Duration = Duration::from_millis(1);
/// Payload bytes of a packet, the same as in the server.
const PAYLOAD_BYTES: usize = 1200 - 54;
/// Ticks of video in a millisecond.
const TICKS_PER_MS: u32 = 90;
/// Size of a record's time, which precedes an FLV body; then the bytes in that body before the NAL units.
const TIME_BYTES: usize = 4;
const AVC_HEAD_BYTES: usize = 5;
/// An AVC sequence header (FLV 10.1 §E.4.3.1).
const AVC_CONFIG: [u8; 2] = [0x17, 0];

/// Runs until the process is killed. Writes two addresses to standard output: for publishers and for viewers.
pub fn run(per_packet: bool) -> io::Result<()> {
    let publishers = TcpListener::bind("127.0.0.1:0")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{} {}", publishers.local_addr()?, listener.local_addr()?)?;
    let (mut publisher, _) = publishers.accept()?;
    // The number of the stream is ignored, because there is only one stream.
    publisher.read_exact(&mut [0; 5])?;
    publisher.set_nonblocking(true)?;
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let mut floor = Floor::new(socket, per_packet)?;
    let mut pending = Vec::new();
    loop {
        floor.let_in(&listener)?;
        floor.receive()?;
        floor.pass_on(&mut publisher, &mut pending)?;
        std::thread::sleep(LOOK_PERIOD);
    }
}

/// A viewer, with the machines of a session. The server's `Peer` is not used, because it would number packets and
/// repair losses.
struct Viewer {
    agent: LiteAgent,
    dtls: dtls::Connection,
    path: Option<Path>,
    keys: Option<Outbound>,
    payload_type: PayloadType,
    ssrc: Ssrc,
    next: SequenceNumber,
    begun: bool,
}

struct Floor {
    socket: UdpSocket,
    local: SocketAddr,
    state: UdpSocketState,
    segments: usize,
    config: Arc<webrtc::Config>,
    secured: Arc<dtls::Config>,
    demux: ice::Demux<usize>,
    viewers: Vec<Viewer>,
    packetizer: Option<Packetizer>,
    video: Option<CodecConfig>,
    payloads: Payloads,
    out: Datagrams,
}

impl Floor {
    fn new(socket: UdpSocket, per_packet: bool) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?;
        let identity = dtls::Identity::self_signed(&Seed::from_number(1)).map_err(io::Error::other)?;
        let lite = IceMode::Lite { config: Arc::new(LiteConfig::default()), addresses: vec![local] };
        let config = webrtc::Config::new(lite, Arc::new(identity));
        let secured =
            dtls::Config { check: dtls::PeerCheck::AnyCertificate, ..dtls::Config::clone(&config.dtls) };
        Ok(Self {
            socket,
            local,
            segments: if per_packet { 1 } else { state.max_gso_segments() },
            state,
            config: Arc::new(config),
            secured: Arc::new(secured),
            demux: ice::Demux::new(),
            viewers: Vec::new(),
            packetizer: Packetizer::new(Codec::H264, PAYLOAD_BYTES),
            video: None,
            payloads: Payloads::new(),
            out: Datagrams::new(),
        })
    }

    /// Answers the offers that have arrived.
    fn let_in(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(false)?;
            let offer = read_offer(&mut stream)?;
            let answer = self.answer(&offer)?;
            let head = "HTTP/1.1 201 Created\r\nLocation: /session\r\nConnection: close\r\n";
            write!(stream, "{head}Content-Length: {}\r\n\r\n{answer}", answer.len())?;
        }
    }

    fn answer(&mut self, offer: &Description) -> io::Result<String> {
        let (now, number) = (Instant::now(), u64::try_from(self.viewers.len()).unwrap_or(0));
        let seed = Seed::from_number(number + 1000);
        let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_800_000_000));
        let mut peer =
            Peer::new(now, Arc::clone(&self.config), anchor, seed.clone()).map_err(io::Error::other)?;
        let formats = offered_formats(Codec::H264, 96);
        let wanted = MediaPreference { direction: Direction::SendOnly, formats, msid: None };
        let video = |media: &sdp::Media| (media.kind == MediaKind::Video).then(|| wanted.clone());
        let answer = peer.handle_offer(now, offer, |_, media| video(media)).map_err(io::Error::other)?;
        let section = peer.sections().first();
        let source = section.and_then(|section| section.local_source);
        let format = section.and_then(|section| section.formats.first());
        let (Some(source), Some(format)) = (source, format) else {
            return Err(io::Error::other("no video"));
        };
        // Makes the ICE agent for the credentials that the viewer has announced.
        let mut agent = LiteAgent::new(now, Arc::new(LiteConfig::default()), &seed.derive("ice", 0));
        let described = offer.media.first().map(|media| offer.transport(media));
        let (ufrag, password) = described
            .and_then(|of| Some((of.ufrag?, of.pwd?)))
            .ok_or_else(|| io::Error::other("no credentials"))?;
        agent.set_remote(now, ice::Credentials::new(ufrag, password).map_err(io::Error::other)?);
        let mut dtls = dtls::Connection::server(Arc::clone(&self.secured), seed.derive("floor", 0));
        dtls.start(now);
        self.demux.insert(agent.local().ufrag(), self.viewers.len());
        self.viewers.push(Viewer {
            agent,
            dtls,
            path: None,
            keys: None,
            payload_type: format.payload_type(),
            ssrc: Ssrc(source.ssrc),
            next: SequenceNumber(0),
            begun: false,
        });
        Ok(answer.write())
    }

    /// Handles connectivity checks and handshakes; other datagrams are ignored.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        loop {
            let (count, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let (now, path) = (Instant::now(), Path::udp(self.local, from));
            let datagram = buffer.get_mut(..count).unwrap_or_default();
            let index = match self.demux.route(&path, datagram) {
                ice::Route::Stun(index) => {
                    let Some(viewer) = self.viewers.get_mut(index) else { continue };
                    viewer.agent.handle_datagram(now, path, datagram);
                    index
                }
                ice::Route::Dtls(index) => {
                    let Some(viewer) = self.viewers.get_mut(index) else { continue };
                    viewer.dtls.handle_datagram(now, datagram);
                    index
                }
                ice::Route::Rtp(_) | ice::Route::Drop(_) => continue,
            };
            self.drain(now, index)?;
        }
    }

    fn drain(&mut self, now: Instant, index: usize) -> io::Result<()> {
        let Some(viewer) = self.viewers.get_mut(index) else { return Ok(()) };
        while let Some(event) = viewer.agent.poll_event() {
            if let ice::Event::Validated(path) | ice::Event::Heard(path) = event {
                self.demux.open(path, index);
            }
        }
        viewer.path = viewer.agent.selected();
        while let Some(event) = viewer.dtls.poll_event() {
            if let dtls::Event::Connected(connected) = event {
                viewer.keys = connected.srtp.as_ref().and_then(|(profile, keys)| {
                    let profile = Profile::from_id(profile.number())?;
                    let (_, server) = MasterKey::of_dtls(profile, keys.as_bytes())?;
                    Outbound::new(&server)
                });
            }
        }
        let mut check = Vec::new();
        while let Some(transmit) = viewer.agent.poll_transmit(now, &mut check) {
            self.socket.send_to(&check, transmit.path.remote)?;
            check.clear();
        }
        let Some(path) = viewer.path else { return Ok(()) };
        let mut flight = Datagrams::new();
        while viewer.dtls.poll_transmit(now, &mut flight) {
            (0..flight.len()).try_for_each(|n| self.socket.send_to(flight.get(n), path.remote).map(drop))?;
            flight.clear();
        }
        Ok(())
    }

    fn pass_on(&mut self, publisher: &mut TcpStream, pending: &mut Vec<u8>) -> io::Result<()> {
        let mut buffer = [0; 65_536];
        loop {
            match publisher.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => pending.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut rest = pending.as_slice();
        while let Some(([kind, length @ ..], bytes)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some((record, behind)) = bytes.split_at_checked(length) else { break };
            rest = behind;
            let Some((time, body)) = record.split_first_chunk::<TIME_BYTES>() else { continue };
            let unit = body.get(AVC_HEAD_BYTES..).unwrap_or_default();
            if body.starts_with(&AVC_CONFIG) {
                self.video = h264::Config::read(Bytes::copy_from_slice(unit)).ok().map(CodecConfig::H264);
            } else if *kind == KEY_FRAME || *kind == VIDEO {
                let timestamp = u32::from_be_bytes(*time).wrapping_mul(TICKS_PER_MS);
                self.send(unit, *kind == KEY_FRAME, timestamp);
            }
        }
        let used = pending.len() - rest.len();
        pending.drain(..used);
        Ok(())
    }

    fn send(&mut self, unit: &[u8], key_frame: bool, timestamp: u32) {
        let (Some(packetizer), Some(config)) = (&mut self.packetizer, &self.video) else { return };
        if packetizer.packetize(config, key_frame, unit, &mut self.payloads).is_err() {
            return;
        }
        let payloads: Vec<Bytes> = self.payloads.take().collect();
        let last = payloads.len().saturating_sub(1);
        for viewer in &mut self.viewers {
            viewer.begun |= key_frame;
            let (Some(path), Some(keys)) = (viewer.path, &mut viewer.keys) else { continue };
            if !viewer.begun {
                continue;
            }
            for (n, payload) in payloads.iter().enumerate() {
                if !self.out.has_room(payload.len() + 64) {
                    send_all(&self.socket, &self.state, self.segments, path.remote, &mut self.out);
                }
                let header = Header {
                    marker: n == last,
                    payload_type: viewer.payload_type,
                    sequence_number: viewer.next,
                    timestamp,
                    ssrc: viewer.ssrc,
                    csrcs: Csrcs::default(),
                    extension: None,
                };
                let _ = keys.seal(&header, payload, &mut self.out);
                viewer.next = viewer.next.next();
            }
            send_all(&self.socket, &self.state, self.segments, path.remote, &mut self.out);
        }
    }
}

/// Sends each run of datagrams of equal length in one call, at most `segments` of them at a time.
fn send_all(
    socket: &UdpSocket,
    state: &UdpSocketState,
    segments: usize,
    destination: SocketAddr,
    out: &mut Datagrams,
) {
    let mut from = 0;
    while let Some(run) = out.run(from, segments) {
        let segment_size = (run.segment < run.bytes.len()).then_some(run.segment);
        let transmit = Transmit { destination, ecn: None, contents: run.bytes, segment_size, src_ip: None };
        let _ = state.try_send(UdpSockRef::from(socket), &transmit);
        from = run.next;
    }
    out.clear();
}

/// Reads the body of a POST as an offer.
fn read_offer(stream: &mut TcpStream) -> io::Result<Description> {
    let (mut request, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let count = stream.read(&mut buffer)?;
        request
            .extend(buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or(ErrorKind::UnexpectedEof)?);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Description::read(body.as_bytes()).map_err(io::Error::other);
        }
    }
}
