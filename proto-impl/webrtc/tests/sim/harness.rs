//! Test harness with one end of a session: a peer with its tracks, received frames and events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use dtls::Identity;
use ice::Path;
use media::codec::{Codec, CodecConfig, h264, opus};
use netsim::{Clock, Input, Link, MediaSource, Pair, Peer as Machine, SyntheticUnit, Verifier, ms};
use rtp::NtpAnchor;
use sdp::{Direction, MediaKind};
use webrtc::{CloseReason, Config, Event, IceMode, MediaPreference, Peer, SectionId, Track, offered_formats};
use wire::Datagrams;

pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 8000);
pub(crate) const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7)), 5000);
pub(crate) const AUDIO: SectionId = SectionId(0);
pub(crate) const VIDEO: SectionId = SectionId(1);
/// Unix time in seconds at which every simulation begins.
const WALL: Duration = Duration::from_secs(1_770_000_000);

/// Identities of both ends. All seeds share them, because creating keys is expensive.
static IDENTITIES: LazyLock<[Arc<Identity>; 2]> =
    LazyLock::new(|| [1, 2].map(|n| Arc::new(Identity::self_signed(&Seed::from_number(n)).unwrap())));

/// Returns the seeds for a test: `few` of them, or as many as the variable `MILLSTREAM_SEEDS` says.
pub(crate) fn seeds(few: u64) -> std::ops::Range<u64> {
    0..std::env::var("MILLSTREAM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

pub(crate) fn server_config() -> Config {
    let ice = IceMode::Lite { config: Arc::default(), addresses: vec![SERVER] };
    Config::new(ice, Arc::clone(&IDENTITIES[0]))
}

pub(crate) fn client_config() -> Config {
    // ICE checks are sent every 20 ms, since a simulation has no other traffic to consider.
    let ice = ice::Config { ta: ms(20), rto: ms(250), ..ice::Config::default() };
    Config::new(IceMode::Full(Arc::new(ice)), Arc::clone(&IDENTITIES[1]))
}

/// An owner's reaction to a picture that exceeds the budget for video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Sends all pictures nonetheless.
    SendsAll,
    /// Drops any pictures except key frames, like an encoder with layers.
    LeavesOutAny,
    /// Drops the rest of the group of pictures, because each picture refers to the previous one.
    LeavesOutTail,
}

/// Backlog above which a picture is dropped.
const BACKLOG_MAX: Duration = Duration::from_millis(200);
/// Backlog above which a key frame is dropped.
const KEY_BACKLOG_MAX: Duration = Duration::from_millis(600);
/// Backlog above which the rest of a group is dropped. The backlog of a key frame alone must not end its group.
const TAIL_BACKLOG_MAX: Duration = Duration::from_millis(900);

/// A media source that makes each unit at its time, and packetizes it.
pub(crate) struct Studio {
    media: MediaSource,
    next: Option<SyntheticUnit>,
    start: Instant,
    end: Instant,
    tracks: [Track; 2],
    configs: [CodecConfig; 2],
    pub(crate) made: [u64; 2],
    manner: Manner,
    /// True if pictures are dropped until the next key frame.
    broken: bool,
    pub(crate) left_out: u64,
}

impl Studio {
    pub(crate) fn new(start: Instant, length: Duration, seed: u64) -> Self {
        Self::with_gop(start, length, seed, 30)
    }

    /// Creates a source with a key frame every `gop` video frames.
    pub(crate) fn with_gop(start: Instant, length: Duration, seed: u64, gop: u64) -> Self {
        Self::of(MediaSource::new(&Seed::from_number(seed)).gop(gop).sizes(5000, 160), start, length)
    }

    /// Creates a source of 2.5 Mb/s: 30 pictures per second, a key frame of eight times their size every 2 s,
    /// and audio at 64 kb/s.
    pub(crate) fn of_rendition(start: Instant, length: Duration, seed: u64, manner: Manner) -> Self {
        let media = MediaSource::new(&Seed::from_number(seed)).gop(60).sizes(9000, 110);
        Self { manner, ..Self::of(media, start, length) }
    }

    fn of(mut media: MediaSource, start: Instant, length: Duration) -> Self {
        let max = Peer::payload_bytes_max(&server_config());
        let video = h264::Config::read(MediaSource::video_config()).unwrap();
        Self {
            next: Some(media.next_unit()),
            media,
            start,
            end: start + length,
            tracks: [Codec::Opus, Codec::H264].map(|codec| Track::new(codec, max).unwrap()),
            configs: [CodecConfig::Opus(opus::Config::of_channels(2).unwrap()), CodecConfig::H264(video)],
            made: [0; 2],
            manner: Manner::SendsAll,
            broken: false,
            left_out: 0,
        }
    }

    /// Returns true if a picture must be dropped.
    fn leaves_out(&mut self, now: Instant, key_frame: bool, peer: &Peer) -> bool {
        let Some(budget) = peer.video_budget(now).filter(|_| self.manner != Manner::SendsAll) else {
            return std::mem::take(&mut self.broken) && !key_frame;
        };
        let most = match (self.manner, key_frame) {
            (Manner::LeavesOutTail, false) => TAIL_BACKLOG_MAX,
            (Manner::LeavesOutTail, true) => BACKLOG_MAX,
            (Manner::LeavesOutAny | Manner::SendsAll, false) => BACKLOG_MAX,
            (Manner::LeavesOutAny | Manner::SendsAll, true) => KEY_BACKLOG_MAX,
        };
        let no_room = budget == 0 || peer.queued(now).time > most;
        if self.manner == Manner::LeavesOutAny {
            return no_room;
        }
        self.broken = no_room || (self.broken && !key_frame);
        self.broken
    }

    fn next_at(&self) -> Option<Instant> {
        let at = self.start + Duration::from_millis(self.next.as_ref()?.dts_ms);
        (at < self.end).then_some(at)
    }

    /// Sends all units that are due.
    fn run(&mut self, now: Instant, peer: &mut Peer) {
        while let Some(at) = self.next_at().filter(|at| *at <= now) {
            let Some(unit) = self.next.replace(self.media.next_unit()) else { return };
            let (index, section, rate) = if unit.is_video { (1, VIDEO, 90) } else { (0, AUDIO, 48) };
            let timestamp = (unit.dts_ms * rate) as u32;
            let key_frame = unit.is_video && unit.key_frame;
            if unit.is_video && self.leaves_out(now, key_frame, peer) {
                self.left_out += 1;
                continue;
            }
            let packets = self.tracks[index]
                .push(now, &self.configs[index], key_frame, timestamp, &unit.payload)
                .unwrap();
            self.made[index] += 1;
            assert!(peer.send(section, &packets, at));
        }
    }
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) section: SectionId,
    pub(crate) key_frame: bool,
    pub(crate) at: Instant,
    pub(crate) timestamp: u32,
    pub(crate) sampled: Option<rtp::NtpTime>,
}

pub(crate) struct End {
    pub(crate) peer: Peer,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) studio: Option<Studio>,
    pub(crate) verifier: Verifier,
    pub(crate) came: Vec<Came>,
    pub(crate) connected: bool,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) pictures_lost: u64,
    pub(crate) key_frames_wanted: u64,
    /// Events of data channels.
    pub(crate) data: Vec<Event>,
    pub(crate) held_most: usize,
    pub(crate) sent: u64,
    /// Returns true for a datagram to drop. Called with true for STUN, and with the datagram's number among
    /// the STUN datagrams or among the others.
    pub(crate) swallow: Option<Box<dyn Fn(bool, u64) -> bool>>,
    /// Counts of sent datagrams, STUN and others.
    kinds: [u64; 2],
    /// Record of all sent datagrams with their paths, if enabled.
    pub(crate) wire: Option<Vec<(Path, Bytes)>>,
    queue: VecDeque<Bytes>,
    out: Datagrams,
}

impl End {
    pub(crate) fn new(
        clock: &Clock,
        config: Config,
        local: SocketAddr,
        remote: SocketAddr,
        seed: u64,
    ) -> Self {
        let anchor = NtpAnchor::new(clock.now(), WALL);
        let seed = Seed::from_number(seed).derive("peer", u64::from(local.port()));
        Self {
            peer: Peer::new(clock.now(), Arc::new(config), anchor, seed).unwrap(),
            local,
            remote,
            studio: None,
            verifier: Verifier::new(),
            came: Vec::new(),
            connected: false,
            closed: None,
            pictures_lost: 0,
            key_frames_wanted: 0,
            data: Vec::new(),
            held_most: 0,
            sent: 0,
            swallow: None,
            kinds: [0; 2],
            wire: None,
            queue: VecDeque::new(),
            out: Datagrams::new(),
        }
    }

    pub(crate) fn path(&self) -> Path {
        Path::udp(self.local, self.remote)
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.peer.close(now);
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.peer.poll_event() {
            assert_eq!(self.closed, None, "nothing follows the end: {event:?}");
            match event {
                Event::Connected => self.connected = true,
                Event::Closed(reason) => self.closed = Some(reason),
                Event::PictureLost { .. } => self.pictures_lost += 1,
                Event::KeyFrameWanted { .. } => self.key_frames_wanted += 1,
                Event::Frame { section, layer: 0, frame, sampled } => {
                    self.verifier.feed(&frame.payload).unwrap();
                    let (key_frame, timestamp) = (frame.key_frame, frame.timestamp);
                    self.came.push(Came { section, key_frame, at: now, timestamp, sampled });
                }
                Event::Format { .. } | Event::Frame { .. } | Event::Candidate(_) => {}
                Event::PathOpened(_) | Event::PathClosed(_) => {}
                data => self.data.push(data),
            }
        }
        self.held_most = self.held_most.max(self.peer.held_bytes());
    }
}

impl Machine for End {
    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram(datagram) => {
                let path = self.path();
                self.peer.handle_datagram(now, path, &mut datagram.to_vec());
            }
            Input::Timeout => self.peer.handle_timeout(now),
        }
        self.drain(now);
        if let Some(studio) = self.studio.as_mut().filter(|_| self.connected && self.closed.is_none()) {
            studio.run(now, &mut self.peer);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
        while self.queue.is_empty() {
            self.out.clear();
            let studio = &self.studio;
            let log = |section: SectionId| Some(studio.as_ref()?.tracks[usize::from(section.0)].log());
            let nothing = self.peer.has_nothing_to_send();
            let path = self.peer.poll_transmit(now, log, &mut self.out)?;
            assert!(!nothing, "it said that there was nothing");
            for n in 0..self.out.len() {
                self.sent += 1;
                let datagram = Bytes::copy_from_slice(self.out.get(n));
                if let Some(wire) = &mut self.wire {
                    wire.push((path, datagram.clone()));
                }
                let is_stun = datagram[0] < 4;
                let place = &mut self.kinds[usize::from(is_stun)];
                let swallowed = self.swallow.as_ref().is_some_and(|swallow| swallow(is_stun, *place));
                *place += 1;
                // Datagrams to any address but the peer's current one are lost.
                if !swallowed && path.remote == self.remote {
                    self.queue.push_back(datagram);
                }
            }
        }
        self.queue.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let studio = self.studio.as_ref().filter(|_| self.connected && self.closed.is_none());
        [self.peer.poll_timeout(), studio.and_then(Studio::next_at)].into_iter().flatten().min()
    }
}

/// Preferences for a client's offer: audio, then video.
pub(crate) fn preferences(direction: Direction) -> [(MediaKind, MediaPreference); 2] {
    [(MediaKind::Audio, Codec::Opus), (MediaKind::Video, Codec::H264)].map(|(kind, codec)| {
        let first = if codec == Codec::Opus { 111 } else { 96 };
        (kind, MediaPreference { direction, formats: offered_formats(codec, first), msid: None })
    })
}

/// Creates a client `a` that offers and a server `b` that answers, and exchanges their descriptions.
pub(crate) fn session(seed: u64, direction: Direction) -> Pair<End, End> {
    session_of(seed, direction, client_config(), server_config())
}

pub(crate) fn session_of(seed: u64, direction: Direction, client: Config, server: Config) -> Pair<End, End> {
    let clock = Clock::new();
    let mut client = End::new(&clock, client, CLIENT, SERVER, seed);
    let mut server = End::new(&clock, server, SERVER, CLIENT, seed);
    exchange(&clock, &mut client, &mut server, direction);
    Pair::new(seed, clock, client, server).links(|link: Link| link.latency(ms(20)))
}

/// Exchanges offer and answer as text and returns the offer.
pub(crate) fn exchange(clock: &Clock, client: &mut End, server: &mut End, direction: Direction) -> String {
    let now = clock.now();
    client.peer.add_local(now, client.local).unwrap();
    let text = client.peer.offer(&preferences(direction)).unwrap().write();
    let offer = sdp::Description::read(text.as_bytes()).unwrap();
    let answer = server
        .peer
        .handle_offer(now, &offer, |_, media| {
            let codec = if media.kind == MediaKind::Audio { Codec::Opus } else { Codec::H264 };
            let direction = direction.reverse();
            Some(MediaPreference { direction, formats: offered_formats(codec, 96), msid: None })
        })
        .unwrap();
    let answer = sdp::Description::read(answer.write().as_bytes()).unwrap();
    client.peer.handle_answer(now, &answer).unwrap();
    text
}

pub(crate) fn both_connected(a: &End, b: &End) -> bool {
    a.connected && b.connected
}
