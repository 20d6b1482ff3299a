//! The relay: sessions on a single port, with the publisher's media sent to all viewers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use crypto::{Random, Seed};
use dtls::{Identity, SrtpProfile};
use ice::{Demux, Path, Route};
use media::TrackKind;
use media::codec::{Codec, CodecConfig, h264, vp8};
use media::nal::Nals;
use rtp::payload::{Frame, codec_of_description};
use rtp::{NtpAnchor, NtpTime};
use sctp::{ChannelId, Kind};
use sdp::{Description, Direction, Media, MediaKind, Msid};
use webrtc::{Config, Event, IceMode, MediaPreference, Peer, Section, SectionId, Track, offered_formats};
use wire::Datagrams;

use crate::http::{Request, Response};

/// Maximum time for which the loop waits for a datagram before it checks deadlines and requests.
const PATIENCE: Duration = Duration::from_millis(5);

/// Options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) address: SocketAddr,
    /// The only SRTP profile to offer; `None` for all.
    pub(crate) profile: Option<SrtpProfile>,
    pub(crate) dtls_client: bool,
    /// Share of datagrams dropped in each direction, to observe the repairs.
    pub(crate) loss: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, 0).into(), profile: None, dtls_client: false, loss: 0.0 }
    }
}

/// Session of a publisher or a viewer.
struct Session {
    peer: Peer,
    role: Role,
    closed: bool,
    /// Video and audio frames in the current second.
    frames: [u32; 2],
}

enum Role {
    Publisher,
    /// Viewer, with the following for each section: its id, the index of its track, and whether it waits for a
    /// key frame.
    Viewer(Vec<(SectionId, usize, bool)>),
}

/// Stream of the publisher.
struct Stream {
    publisher: u64,
    tracks: Vec<Live>,
    /// Time of the publisher's clock according to its reports, and the corresponding local time.
    clock: Option<(NtpTime, Instant)>,
}

struct Live {
    section: SectionId,
    codec: Codec,
    /// Last parameter sets received in band.
    config: CodecConfig,
    track: Track,
    begun: bool,
}

/// Relay of a publisher's media to all viewers.
pub(crate) struct Relay<L> {
    config: Arc<Config>,
    socket: UdpSocket,
    local: SocketAddr,
    anchor: NtpAnchor,
    seed: Seed,
    demux: Demux<u64>,
    sessions: BTreeMap<u64, Session>,
    stream: Option<Stream>,
    next: u64,
    loss: f64,
    random: Random,
    out: Datagrams,
    log: L,
}

impl<L: FnMut(String)> Relay<L> {
    /// Creates a relay on its own UDP port. `log` receives a line for each event.
    pub(crate) fn new(options: &Options, log: L) -> io::Result<Self> {
        let seed = Seed::from_os().map_err(io::Error::other)?;
        let socket = UdpSocket::bind((options.address.ip(), 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let local = socket.local_addr()?;
        let identity = Identity::self_signed(&seed.derive("identity", 0))
            .map_err(|error| io::Error::other(error.to_string()))?;
        let ice = IceMode::Lite { config: Arc::default(), addresses: vec![local] };
        let mut config = Config { dtls_client: options.dtls_client, ..Config::new(ice, Arc::new(identity)) };
        if let Some(profile) = options.profile {
            let dtls = dtls::Config { srtp_profiles: vec![profile], ..(*config.dtls).clone() };
            config.dtls = Arc::new(dtls);
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            config: Arc::new(config),
            socket,
            local,
            anchor: NtpAnchor::new(Instant::now(), wall),
            loss: options.loss,
            random: seed.derive("loss", 0).random(),
            seed,
            demux: Demux::new(),
            sessions: BTreeMap::new(),
            stream: None,
            next: 1,
            out: Datagrams::new(),
            log,
        })
    }

    /// Address for media.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Runs until `stop` is set.
    pub(crate) fn run(mut self, requests: &Receiver<Request>, stop: &AtomicBool) -> io::Result<()> {
        let mut buffer = [0; 2048];
        let mut second = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let came = self.socket.recv_from(&mut buffer);
            let now = Instant::now();
            let mut touched = BTreeSet::new();
            match came {
                Ok(_) if self.random.chance(self.loss) => {}
                Ok((length, from)) => {
                    let datagram = buffer.get_mut(..length).unwrap_or_default();
                    touched.extend(self.handle_datagram(now, Path::udp(self.local, from), datagram));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
            while let Ok(request) = requests.try_recv() {
                let response = self.handle_request(now, &request, &mut touched);
                let _ = request.reply.send(response);
            }
            // For a few sessions, checking every deadline is enough. A server would keep a heap of deadlines.
            for (id, session) in &mut self.sessions {
                if session.peer.poll_timeout().is_some_and(|deadline| deadline <= now) {
                    session.peer.handle_timeout(now);
                    touched.insert(*id);
                }
            }
            while let Some(id) = touched.pop_first() {
                self.drain(now, id, &mut touched);
            }
            if now.duration_since(second) >= Duration::from_secs(1) {
                second = now;
                self.tell_rates();
            }
        }
        Ok(())
    }

    /// Handles a datagram and returns the id of its session.
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) -> Option<u64> {
        let (Route::Stun(id) | Route::Dtls(id) | Route::Rtp(id)) = self.demux.route(&path, datagram) else {
            return None;
        };
        self.sessions.get_mut(&id)?.peer.handle_datagram(now, path, datagram);
        Some(id)
    }

    /// Handles all events of a session, then sends all its datagrams. Sessions with new work are added to `touched`.
    fn drain(&mut self, now: Instant, id: u64, touched: &mut BTreeSet<u64>) {
        while let Some(event) = self.sessions.get_mut(&id).and_then(|session| session.peer.poll_event()) {
            self.handle_event(now, id, event, touched);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (stream, role) = (&self.stream, &session.role);
        let log = |section| {
            let Role::Viewer(outputs) = role else { return None };
            let (_, track, _) = outputs.iter().find(|(of, ..)| *of == section)?;
            Some(stream.as_ref()?.tracks.get(*track)?.track.log())
        };
        while let Some(path) = session.peer.poll_transmit(now, log, &mut self.out) {
            for n in (0..self.out.len()).filter(|_| !self.random.chance(self.loss)) {
                // Packets that the network stack refuses are treated as lost on the path.
                let _ = self.socket.send_to(self.out.get(n), path.remote);
            }
            self.out.clear();
        }
        if session.closed {
            self.demux.remove(id);
            self.sessions.remove(&id);
        }
    }

    fn handle_event(&mut self, now: Instant, id: u64, event: Event, touched: &mut BTreeSet<u64>) {
        match event {
            Event::PathOpened(path) => drop(self.demux.open(path, id)),
            Event::PathClosed(path) => self.demux.close(&path, id),
            Event::Connected => {
                self.tell_connected(id);
                self.want_key_frame(now, touched);
            }
            Event::Frame { section, layer: 0, frame, sampled } => {
                self.handle_frame(now, id, section, &frame, sampled, touched);
            }
            Event::PictureLost { section, layer: 0 } => {
                (self.log)(format!("session {id} frame lost"));
                self.hold_viewers(section);
            }
            Event::KeyFrameWanted { .. } => {
                (self.log)(format!("session {id} wants a key frame"));
                self.want_key_frame(now, touched);
            }
            Event::DataConnected => self.greet(now, id),
            Event::Message { channel, kind, payload } => self.echo(now, id, (channel, kind), payload),
            Event::Closed(reason) => {
                (self.log)(format!("session {id} closed {reason:?}"));
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.closed = true;
                    (self.log)(format!("session {id} {:?}", session.peer.stats().transport));
                }
                if self.stream.as_ref().is_some_and(|stream| stream.publisher == id) {
                    self.end_stream(now, touched);
                }
            }
            // Events that need no action. A lite agent has no candidates to signal, and a publisher
            // sends the only format in the answer.
            other @ (Event::Candidate(_) | Event::Format { .. } | _) => {
                (self.log)(format!("session {id} {other:?}"))
            }
        }
    }

    /// Opens a data channel to the peer and sends a greeting.
    fn greet(&mut self, now: Instant, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Ok(channel) = session.peer.open_channel(now, "relay", "", sctp::Options::default()) {
            let greeted = session.peer.send_data(now, channel, Kind::Text, "hello".into());
            (self.log)(format!("session {id} greeted {greeted:?}"));
        }
    }

    /// Echoes a message of a data channel.
    fn echo(&mut self, now: Instant, id: u64, (channel, kind): (ChannelId, Kind), payload: Bytes) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let length = payload.len();
        let sent = session.peer.send_data(now, channel, kind, payload);
        (self.log)(format!("session {id} echoes {length} bytes of {kind:?}: {sent:?}"));
    }

    /// Sends a frame of the publisher to every viewer that has started with a key frame, or starts with this one.
    fn handle_frame(
        &mut self,
        now: Instant,
        id: u64,
        section: SectionId,
        frame: &Frame,
        sampled: Option<NtpTime>,
        touched: &mut BTreeSet<u64>,
    ) {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.publisher == id) else { return };
        let Some(index) = stream.tracks.iter().position(|live| live.section == section) else { return };
        let Some(live) = stream.tracks.get_mut(index) else { return };
        let is_video = live.codec.kind() == TrackKind::Video;
        if let Some(publisher) = self.sessions.get_mut(&id) {
            publisher.count(is_video);
        }
        if !std::mem::replace(&mut live.begun, true) {
            let (codec, bytes) = (live.codec, frame.payload.len());
            (self.log)(format!("session {id} first frame {codec} {bytes} bytes, key {}", frame.key_frame));
        }
        live.learn(frame);
        // Audio and video stay in sync because both are timed by the publisher's clock, known from its reports.
        let at = sampled.map_or(now, |time| {
            let (base, instant) = *stream.clock.get_or_insert((time, now));
            time.since(base).map_or(instant, |passed| instant + passed)
        });
        let pushed = live.track.push(now, &live.config, frame.key_frame, frame.timestamp, &frame.payload);
        let Ok(unit) = pushed else {
            return (self.log)(format!("session {id} bad unit of {}", live.codec));
        };
        for (viewer, session) in &mut self.sessions {
            let Role::Viewer(outputs) = &mut session.role else { continue };
            let Some((section, _, waits)) = outputs.iter_mut().find(|(_, track, _)| *track == index) else {
                continue;
            };
            *waits &= is_video && !frame.key_frame;
            if !*waits && session.peer.media_path().is_some() {
                session.peer.send(*section, &unit, at);
                session.count(is_video);
                touched.insert(*viewer);
            }
        }
    }

    /// Makes all viewers wait for the next key frame, because nothing can be decoded until then.
    fn hold_viewers(&mut self, lost: SectionId) {
        let Some(stream) = &self.stream else { return };
        let index = stream.tracks.iter().position(|live| live.section == lost);
        for session in self.sessions.values_mut() {
            let Role::Viewer(outputs) = &mut session.role else { continue };
            let affected = outputs.iter_mut().filter(|(_, track, _)| Some(*track) == index);
            affected.for_each(|(_, _, waits)| *waits = true);
        }
    }

    /// Requests a key frame from the publisher. The peer limits the rate of requests.
    fn want_key_frame(&mut self, now: Instant, touched: &mut BTreeSet<u64>) {
        let Some(stream) = &self.stream else { return };
        let Some(publisher) = self.sessions.get_mut(&stream.publisher) else { return };
        for live in &stream.tracks {
            publisher.peer.request_key_frame(now, live.section, 0);
        }
        touched.insert(stream.publisher);
    }

    fn end_stream(&mut self, now: Instant, touched: &mut BTreeSet<u64>) {
        self.stream = None;
        for (id, session) in &mut self.sessions {
            if matches!(session.role, Role::Viewer(_)) {
                session.peer.close(now);
                touched.insert(*id);
            }
        }
    }

    fn handle_request(&mut self, now: Instant, request: &Request, touched: &mut BTreeSet<u64>) -> Response {
        let of_session = || request.path.strip_prefix("/session/").and_then(|id| id.parse::<u64>().ok());
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/whip" | "/whep") => {
                let publishes = request.path == "/whip";
                self.start(now, publishes, &request.body, touched).unwrap_or_else(|(status, why)| {
                    (self.log)(format!("refused: {why}"));
                    Response { body: why, ..Response::of_status(status) }
                })
            }
            // A lite agent does not need the peer's candidates: the peer's checks reveal its addresses.
            ("PATCH", _) => Response::of_status("204 No Content"),
            ("DELETE", _) => match of_session().and_then(|id| Some((id, self.sessions.get_mut(&id)?))) {
                Some((id, session)) => {
                    session.peer.close(now);
                    touched.insert(id);
                    Response::of_status("200 OK")
                }
                None => Response::of_status("404 Not Found"),
            },
            _ => Response::of_status("404 Not Found"),
        }
    }

    /// Starts a session from an offer.
    fn start(
        &mut self,
        now: Instant,
        publishes: bool,
        offer: &[u8],
        touched: &mut BTreeSet<u64>,
    ) -> Result<Response, (&'static str, String)> {
        let refuse = |error: &dyn std::fmt::Display| ("422 Unprocessable Content", error.to_string());
        let offer = Description::read(offer).map_err(|error| refuse(&error))?;
        if !publishes && self.stream.is_none() {
            return Err(("404 Not Found", "nobody publishes".to_owned()));
        }
        let id = self.next;
        self.next += 1;
        let seed = self.seed.derive("session", id);
        let mut peer =
            Peer::new(now, Arc::clone(&self.config), self.anchor, seed).map_err(|error| refuse(&error))?;
        peer.take_data();
        let stream = &self.stream;
        let preference =
            |_, media: &Media| if publishes { take(media) } else { give(media, stream.as_ref()?) };
        let answer = peer.handle_offer(now, &offer, preference).map_err(|error| refuse(&error))?;
        if publishes {
            if let Some(old) = self.stream.as_ref().map(|stream| stream.publisher)
                && let Some(old_session) = self.sessions.get_mut(&old)
            {
                old_session.peer.close(now);
                touched.insert(old);
                self.end_stream(now, touched);
            }
            let tracks =
                peer.sections().iter().filter_map(|section| Live::new(section, &self.config)).collect();
            self.stream = Some(Stream { publisher: id, tracks, clock: None });
        }
        let role = if publishes { Role::Publisher } else { self.viewer(&peer) };
        self.demux.insert(peer.local_fragment(), id);
        let codecs: Vec<String> =
            peer.sections().iter().filter_map(codec_of).map(|codec| codec.to_string()).collect();
        let verb = if publishes { "publishes" } else { "plays" };
        (self.log)(format!("session {id} {verb} {}", codecs.join(" ")));
        self.sessions.insert(id, Session { peer, role, closed: false, frames: [0; 2] });
        touched.insert(id);
        let location = Some(format!("/session/{id}"));
        Ok(Response { status: "201 Created", location, body: answer.write() })
    }

    fn viewer(&self, peer: &Peer) -> Role {
        let tracks = self.stream.as_ref().map_or(&[][..], |stream| &stream.tracks);
        let track_of =
            |section: &Section| tracks.iter().position(|live| Some(live.codec) == codec_of(section));
        let outputs =
            peer.sections().iter().filter_map(|section| Some((section.id, track_of(section)?, true)));
        Role::Viewer(outputs.collect())
    }

    fn tell_connected(&mut self, id: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (stats, path) = (session.peer.stats(), session.peer.media_path());
        let remote = path.map(|path| path.remote.to_string()).unwrap_or_default();
        let profile = stats.profile.map(|profile| format!("{profile:?}")).unwrap_or_default();
        let handshake = stats.handshake.map(|(role, suite)| format!("DTLS {role:?} {suite:?}"));
        (self.log)(format!("session {id} connected {profile} {} {remote}", handshake.unwrap_or_default()));
    }

    fn tell_rates(&mut self) {
        for (id, session) in &mut self.sessions {
            let [video, audio] = std::mem::take(&mut session.frames);
            if video + audio > 0 {
                let resent: u64 = session.peer.stats().resent.iter().map(|(_, stats)| stats.resent).sum();
                (self.log)(format!(
                    "session {id} frames/s: {video} video, {audio} audio, {resent} packets resent so far"
                ));
            }
        }
    }
}

impl Session {
    fn count(&mut self, is_video: bool) {
        let [video, audio] = &mut self.frames;
        *(if is_video { video } else { audio }) += 1;
    }
}

impl Live {
    fn new(section: &Section, config: &Config) -> Option<Self> {
        let codec = codec_of(section)?;
        // Placeholder: only the configuration of H.264 is used, for parameter sets that a key frame may lack.
        let none = CodecConfig::Vp8(vp8::Config::default());
        let track = Track::new(codec, Peer::payload_bytes_max(config))?;
        Some(Self { section: section.id, codec, config: none, track, begun: false })
    }

    /// Keeps the parameter sets of H.264, because some publishers send them only once.
    fn learn(&mut self, frame: &Frame) {
        if self.codec == Codec::H264 && frame.key_frame {
            let of_type = |kind| {
                let nals = Nals::new(&frame.payload, 4).flatten();
                nals.filter(|nal| h264::nal_type(nal) == kind).collect::<Vec<_>>()
            };
            if let Ok(config) = h264::Config::of_sets(&of_type(h264::NAL_SPS), &of_type(h264::NAL_PPS)) {
                self.config = CodecConfig::H264(config);
            }
        }
    }
}

fn codec_of(section: &Section) -> Option<Codec> {
    section.formats.first().and_then(|format| codec_of_description(&format.remote))
}

/// Preference for a publisher: the first supported codec of each kind.
fn take(media: &Media) -> Option<MediaPreference> {
    let known = |format| codec_of_description(&format).map(|codec| offered_formats(codec, 96));
    let formats = media.rtp_formats().filter_map(known).find(|formats| !formats.is_empty())?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

/// Preference for a viewer: the publisher's codec of this kind.
fn give(media: &Media, stream: &Stream) -> Option<MediaPreference> {
    let kind = if media.kind == MediaKind::Video { TrackKind::Video } else { TrackKind::Audio };
    let of_kind = |live: &&Live| live.codec.kind() == kind;
    let live = stream.tracks.iter().find(of_kind)?;
    let msid = Msid { stream: "relay".to_owned(), track: Some(live.codec.to_string()) };
    let formats = offered_formats(live.codec, 96);
    Some(MediaPreference { direction: Direction::SendOnly, formats, msid: Some(msid) })
}
