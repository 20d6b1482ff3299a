//! A WebRTC viewer that has keys but follows no rules. It uses ICE, DTLS and SRTP directly, so that a test can
//! choose its feedback freely. Shared by the simulations of this crate and of the whole server.

mod lies;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::{Agent, Kind, Path, classify};
use media::codec::Codec;
use rtp::extension::{Extension, ExtensionMap};
use rtp::{NtpAnchor, Packet, SequenceNumber, Ssrc};
use sdp::{Description, Direction, MediaKind};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use webrtc::{Config, IceMode, MediaPreference, Peer, offered_formats};
use wire::Datagrams;

pub(crate) use lies::Lie;

/// Interval between false feedback packets.
const EVERY: Duration = Duration::from_millis(20);
/// Maximum number of transport-wide numbers remembered.
const NUMBERS_MAX: usize = 4096;
/// The first dynamic payload type of each codec.
const FORMATS: [(MediaKind, Codec, u8); 2] =
    [(MediaKind::Audio, Codec::Opus, 111), (MediaKind::Video, Codec::H264, 96)];

/// Received packets, as far as needed for false feedback.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Transport-wide numbers without feedback so far.
    numbers: VecDeque<u16>,
    /// Media sources of the server, audio before video.
    sources: Vec<Ssrc>,
    /// Newest sequence number of each media source.
    newest: Vec<SequenceNumber>,
    /// Number of RTP packets of audio and of video.
    pub(crate) packets: [u64; 2],
    /// Number of false feedback rounds so far.
    told: u32,
}

/// The viewer; see the module.
#[derive(Debug)]
pub(crate) struct Liar {
    lie: Lie,
    local: SocketAddr,
    path: Option<Path>,
    agent: Agent,
    dtls: dtls::Connection,
    identity: Arc<dtls::Identity>,
    seed: Seed,
    keys: Option<(Inbound, Outbound)>,
    extensions: ExtensionMap,
    pub(crate) seen: Seen,
    due: Option<Instant>,
    out: VecDeque<Bytes>,
}

impl Liar {
    pub(crate) fn new(now: Instant, lie: Lie, local: SocketAddr, seed: Seed) -> Self {
        let identity = Arc::new(dtls::Identity::self_signed(&seed).unwrap());
        let config = dtls::Config { identity: Some(Arc::clone(&identity)), ..dtls::Config::default() };
        let dtls = dtls::Connection::client(Arc::new(config), seed.derive("dtls", 0));
        Self {
            lie,
            local,
            path: None,
            agent: Agent::new(now, Arc::default(), &seed),
            dtls,
            identity,
            seed,
            keys: None,
            extensions: ExtensionMap::new(),
            seen: Seen::default(),
            due: None,
            out: VecDeque::new(),
        }
    }

    /// Returns an offer to receive audio and video.
    pub(crate) fn offer(&self, now: Instant) -> String {
        let config = Arc::new(Config::new(IceMode::Full(Arc::default()), Arc::clone(&self.identity)));
        let anchor = NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
        let mut peer = Peer::new(now, config, anchor, self.seed.derive("offer", 0)).unwrap();
        let sections = FORMATS.map(|(kind, codec, first)| {
            let formats = offered_formats(codec, first);
            (kind, MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
        });
        let offer = peer.offer(&sections).unwrap().write();
        let line = |line: &str| match line.split_once(':').map_or(line, |(name, _)| name) {
            "a=ice-ufrag" => format!("a=ice-ufrag:{}\r\n", self.agent.local().ufrag()),
            "a=ice-pwd" => format!("a=ice-pwd:{}\r\n", self.agent.local().password()),
            _ => format!("{line}\r\n"),
        };
        offer.lines().map(line).collect()
    }

    /// Handles the answer of a server at this address.
    pub(crate) fn answered(&mut self, now: Instant, answer: &str, server: SocketAddr) {
        let answer = Description::read(answer.as_bytes()).unwrap();
        let of = answer.transport(&answer.media[0]);
        self.agent.set_remote(now, ice::Credentials::new(of.ufrag.unwrap(), of.pwd.unwrap()).unwrap(), true);
        self.agent.add_local(now, self.local).unwrap();
        self.agent.add_remote(now, &ice::Candidate::host(ice::Transport::Udp, server, 65_535)).unwrap();
        let print = &of.fingerprints[0];
        let expected = dtls::Fingerprint::new(print.hash().name(), print.value()).unwrap();
        self.dtls.set_remote_fingerprints(now, vec![expected]);
        // The first source of a section is for media, the second for retransmissions.
        let sources = answer.media.iter().map(|media| Ssrc(media.attributes.ssrcs().next().unwrap().ssrc));
        self.seen.sources = sources.collect();
        self.seen.newest = vec![SequenceNumber(0); self.seen.sources.len()];
        self.extensions = ExtensionMap::of(answer.media[1].attributes.extmaps());
        assert!(self.extensions.id(Extension::TransportCc).is_some(), "video is numbered");
        self.path = Some(Path::udp(self.local, server));
        self.turn(now);
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.keys.is_some()
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        let Some(path) = self.path else { return };
        match classify(datagram) {
            Kind::Stun => self.agent.handle_datagram(now, path, datagram),
            Kind::Dtls => self.dtls.handle_datagram(now, datagram),
            Kind::Rtp if !rtp::is_rtcp(datagram) => self.take(datagram),
            Kind::Rtp | Kind::Other => {}
        }
        self.turn(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.agent.handle_timeout(now);
        self.dtls.handle_timeout(now);
        self.turn(now);
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.agent.poll_timeout(), self.dtls.poll_timeout(), self.due].into_iter().flatten().min()
    }

    fn take(&mut self, datagram: &mut [u8]) {
        let Some((inbound, _)) = &mut self.keys else { return };
        let Ok(length) = inbound.unprotect(datagram) else { return };
        let packet = Packet::read(&datagram[..length]).unwrap();
        if let Some(number) = self.extensions.read(packet.header.extension).transport_sequence {
            self.seen.numbers.push_back(number);
            self.seen.numbers.truncate(NUMBERS_MAX);
        }
        let source = self.seen.sources.iter().position(|source| *source == packet.header.ssrc);
        if let Some(source) = source {
            self.seen.newest[source] = packet.header.sequence_number;
            self.seen.packets[source] += 1;
        }
    }

    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.agent.poll_event() {
            if event == ice::Event::Connected {
                self.dtls.start(now);
            }
        }
        while let Some(event) = self.dtls.poll_event() {
            if let dtls::Event::Connected(connected) = event {
                let (profile, keys) = connected.srtp.unwrap();
                let profile = Profile::from_id(profile.number()).unwrap();
                let (client, server) = MasterKey::of_dtls(profile, keys.as_bytes()).unwrap();
                self.keys = Some((Inbound::new(&server).unwrap(), Outbound::new(&client).unwrap()));
                self.due = Some(now + EVERY);
            }
        }
        if let Some((_, outbound)) = self.keys.as_mut().filter(|_| self.due.is_some_and(|due| due <= now)) {
            self.due = Some(now + EVERY);
            for mut compound in self.lie.tell(&mut self.seen) {
                outbound.protect_rtcp(&mut compound).unwrap();
                self.out.push_back(compound.into());
            }
        }
        let mut out = Vec::new();
        while self.agent.poll_transmit(now, &mut out).is_some() {
            self.out.push_back(std::mem::take(&mut out).into());
        }
        let mut datagrams = Datagrams::new();
        while self.dtls.poll_transmit(now, &mut datagrams) {
            let all = (0..datagrams.len()).map(|n| Bytes::copy_from_slice(datagrams.get(n)));
            self.out.extend(all);
            datagrams.clear();
        }
    }
}
