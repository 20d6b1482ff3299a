//! The secure transport of a session: ICE, DTLS over the selected path, and SRTP with the keys from DTLS.
//!
//! ```text
//! 1  checks                  ICE: a path is validated, so DTLS may begin
//! 2  handshake               DTLS: the peer proves to have the announced certificate
//! 3  keys                    SRTP: packets are decrypted and encrypted
//! ```
//!
//! On an unvalidated path, only STUN is processed, and no packet is decrypted before the peer is authenticated.
//! The transport does not interpret media.
//!
//! There is one exception, once there are keys: media from another port of the peer's address, since a NAT may
//! have assigned that port to the peer. A few of these packets are decrypted. An authentic packet validates the
//! path, and a lite agent then checks it ([`ice::LiteAgent::follow_media`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::{Kind, Path};
use srtp::{Inbound, MasterKey, Outbound, Profile};
use wire::Datagrams;

use crate::event::{CloseReason, Event};
use crate::negotiate::Negotiated;
use crate::stats::TransportStats;

/// Maximum number of packets from unvalidated paths that are decrypted per [`STRAYS_INTERVAL`]; limits the cost
/// of forged packets.
const STRAYS_MAX: u8 = 20;
/// Interval for [`STRAYS_MAX`].
const STRAYS_INTERVAL: Duration = Duration::from_millis(100);

/// ICE agent: lite or full.
#[derive(Debug)]
pub(crate) enum Agent {
    Lite(Box<ice::LiteAgent>),
    Full(Box<ice::Agent>),
}

impl Agent {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        match self {
            Self::Lite(agent) => agent.handle_datagram(now, path, datagram),
            Self::Full(agent) => agent.handle_datagram(now, path, datagram),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Lite(agent) => agent.handle_timeout(now),
            Self::Full(agent) => agent.handle_timeout(now),
        }
    }

    fn close(&mut self, now: Instant) {
        match self {
            Self::Lite(agent) => agent.close(now),
            Self::Full(agent) => agent.close(now),
        }
    }

    fn poll_event(&mut self) -> Option<ice::Event> {
        match self {
            Self::Lite(agent) => agent.poll_event(),
            Self::Full(agent) => agent.poll_event(),
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<ice::Transmit> {
        match self {
            Self::Lite(agent) => agent.poll_transmit(now, out),
            Self::Full(agent) => agent.poll_transmit(now, out),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Lite(agent) => agent.poll_timeout(),
            Self::Full(agent) => agent.poll_timeout(),
        }
    }

    /// Holds a lite agent's wait for a path. The checks of a full agent begin by themselves.
    pub(crate) fn hold_wait(&mut self) {
        if let Self::Lite(agent) = self {
            agent.hold_wait();
        }
    }

    /// Begins a lite agent's wait for a path.
    pub(crate) fn begin_wait(&mut self, now: Instant) {
        if let Self::Lite(agent) = self {
            agent.begin_wait(now);
        }
    }

    /// True if media on an unvalidated path may come from the peer.
    fn may_follow(&self, path: &Path) -> bool {
        match self {
            Self::Lite(agent) => agent.may_follow(path),
            Self::Full(_) => false,
        }
    }

    /// Reports authentic media on `path`. A full agent ignores the report, because it checks its paths
    /// itself.
    fn follow_media(&mut self, now: Instant, path: Path) {
        if let Self::Lite(agent) = self {
            agent.follow_media(now, path);
        }
    }

    fn is_valid(&self, path: &Path) -> bool {
        match self {
            Self::Lite(agent) => agent.is_valid(path),
            Self::Full(agent) => agent.is_valid(path),
        }
    }

    fn selected(&self) -> Option<Path> {
        match self {
            Self::Lite(agent) => agent.selected(),
            Self::Full(agent) => agent.selected(),
        }
    }

    pub(crate) fn local(&self) -> &ice::Credentials {
        match self {
            Self::Lite(agent) => agent.local(),
            Self::Full(agent) => agent.local(),
        }
    }

    pub(crate) fn set_remote(&mut self, now: Instant, remote: &ice::Credentials, is_lite: bool) {
        match self {
            Self::Lite(agent) => agent.set_remote(now, remote.clone()),
            Self::Full(agent) => agent.set_remote(now, remote.clone(), is_lite),
        }
    }

    /// Adds a candidate of the peer. A lite agent ignores candidates; a full agent counts unusable ones.
    pub(crate) fn add_remote(&mut self, now: Instant, candidate: &ice::Candidate) {
        if let Self::Full(agent) = self {
            let _ = agent.add_remote(now, candidate);
        }
    }

    pub(crate) fn restart(&mut self, now: Instant, seed: &Seed) {
        match self {
            Self::Lite(agent) => agent.restart(seed),
            Self::Full(agent) => agent.restart(now, seed),
        };
    }
}

/// Allowance for decrypting packets from unvalidated paths.
#[derive(Debug, Default)]
struct Strays {
    /// Packets decrypted in the current interval.
    count: u8,
    /// Start of the current interval.
    since: Option<Instant>,
}

impl Strays {
    /// Takes one packet from the allowance. Returns false if the allowance is used up.
    fn take(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| since + STRAYS_INTERVAL <= now) {
            (self.since, self.count) = (Some(now), 0);
        }
        let is_left = self.count < STRAYS_MAX;
        self.count += u8::from(is_left);
        is_left
    }
}

/// Content of a datagram, passed to the session.
#[derive(Debug)]
pub(crate) enum Opened<'a> {
    Rtp(&'a [u8]),
    Rtcp(&'a [u8]),
    /// Nothing for the session: the transport has handled or dropped the datagram.
    Nothing,
}

/// SRTP contexts for both directions, and received application data.
#[derive(Debug)]
struct Keys {
    inbound: Inbound,
    outbound: Outbound,
    strays: Strays,
    /// Received application data; the owner takes it after each datagram.
    data: VecDeque<Bytes>,
}

/// Cached results of ICE and DTLS, valid while neither changes. They are needed for each frame, and querying
/// them costs more than using them.
#[derive(Debug, Clone, Copy)]
struct Settled {
    path: Option<Path>,
    deadline: Option<Instant>,
}

/// Secure transport of a session, described in the module.
#[derive(Debug)]
pub(crate) struct Transport {
    agent: Agent,
    dtls_config: Arc<dtls::Config>,
    seed: Seed,
    /// DTLS role (true if we are the client) and the peer's expected fingerprints. `None` before the
    /// descriptions are applied.
    expected: Option<(bool, Vec<dtls::Fingerprint>)>,
    /// DTLS connection, created with the first validated path.
    dtls: Option<Box<dtls::Connection>>,
    /// True once ICE has a path, so that the handshake may start.
    has_path: bool,
    keys: Option<Box<Keys>>,
    /// The cipher suite of the handshake.
    suite: Option<dtls::CipherSuite>,
    /// Path for a final `close_notify` after ICE has ended.
    last_path: Option<Path>,
    /// Final RTCP packets. They are already encrypted, because the keys are discarded before they are sent.
    farewell: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    closed: bool,
    /// Cached results while neither ICE nor DTLS has anything to send; `None` after any change.
    settled: Option<Settled>,
    stats: TransportStats,
    scratch: Vec<u8>,
}

impl Transport {
    pub(crate) const fn new(agent: Agent, dtls_config: Arc<dtls::Config>, seed: Seed) -> Self {
        Self {
            agent,
            dtls_config,
            seed,
            expected: None,
            dtls: None,
            has_path: false,
            keys: None,
            suite: None,
            last_path: None,
            farewell: VecDeque::new(),
            events: VecDeque::new(),
            closed: false,
            settled: None,
            stats: TransportStats::new(),
            scratch: Vec::new(),
        }
    }

    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the agent in order to change it, and invalidates the cached results.
    pub(crate) const fn agent_mut(&mut self) -> &mut Agent {
        self.settled = None;
        &mut self.agent
    }

    /// Applies the negotiated descriptions.
    pub(crate) fn set_negotiated(&mut self, now: Instant, negotiated: &Negotiated) {
        self.settled = None;
        self.agent.set_remote(now, &negotiated.remote, negotiated.remote_is_lite);
        for candidate in &negotiated.candidates {
            self.agent.add_remote(now, candidate);
        }
        if self.expected.is_none() {
            self.expected = Some((negotiated.dtls_client, negotiated.fingerprints.clone()));
        }
        self.pump(now);
    }

    /// True if we are the DTLS client; `None` before that is negotiated.
    pub(crate) fn opens_association(&self) -> Option<bool> {
        self.expected.as_ref().map(|(client, _)| *client)
    }

    /// True if descriptions match the roles and certificates of the current association (RFC 8842 §3.1).
    pub(crate) fn keeps_association(&self, negotiated: &Negotiated) -> bool {
        self.expected.as_ref().is_none_or(|(client, known)| {
            let new = &negotiated.fingerprints;
            *client == negotiated.dtls_client
                && new.iter().all(|print| known.contains(print))
                && known.iter().all(|print| new.contains(print))
        })
    }

    /// Handles a datagram received on `path`, and decrypts it in place.
    pub(crate) fn handle_datagram<'a>(
        &mut self,
        now: Instant,
        path: Path,
        datagram: &'a mut [u8],
    ) -> Opened<'a> {
        let kind = ice::classify(datagram);
        if self.closed {
            return Opened::Nothing;
        }
        if kind != Kind::Stun && !self.agent.is_valid(&path) {
            return self.open_stray(now, path, kind, datagram);
        }
        match kind {
            Kind::Rtp => return self.open(datagram),
            Kind::Stun => self.agent.handle_datagram(now, path, datagram),
            Kind::Dtls => {
                if let Some(dtls) = &mut self.dtls {
                    dtls.handle_datagram(now, datagram);
                }
            }
            Kind::Other => self.stats.unknown += 1,
        }
        self.settled = None;
        self.pump(now);
        Opened::Nothing
    }

    /// Handles a datagram from an unvalidated path.
    fn open_stray<'a>(&mut self, now: Instant, path: Path, kind: Kind, datagram: &'a mut [u8]) -> Opened<'a> {
        let may_be_theirs = kind == Kind::Rtp && self.agent.may_follow(&path);
        let keys = self.keys.as_mut().filter(|_| may_be_theirs);
        let is_tried = keys.is_some_and(|keys| keys.strays.take(now));
        let opened = if is_tried { self.open(datagram) } else { Opened::Nothing };
        if matches!(opened, Opened::Nothing) {
            self.stats.not_valid += 1;
        } else {
            self.settled = None;
            self.agent.follow_media(now, path);
            self.pump(now);
        }
        opened
    }

    fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Opened<'a> {
        let Some(keys) = &mut self.keys else {
            self.stats.before_keys += 1;
            return Opened::Nothing;
        };
        let is_rtcp = rtp::is_rtcp(datagram);
        let opened =
            if is_rtcp { keys.inbound.unprotect_rtcp(datagram) } else { keys.inbound.unprotect(datagram) };
        // A packet that could not be decrypted is not counted here, because SRTP counts such packets, by reason.
        match opened.ok().and_then(|length| datagram.get(..length)) {
            Some(clear) if is_rtcp => Opened::Rtcp(clear),
            Some(clear) => Opened::Rtp(clear),
            None => Opened::Nothing,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.settled = None;
        self.agent.handle_timeout(now);
        if let Some(dtls) = &mut self.dtls {
            dtls.handle_timeout(now);
        }
        self.pump(now);
    }

    /// Adds an RTCP packet to send before `close_notify`.
    pub(crate) fn add_farewell(&mut self, mut packet: Vec<u8>) {
        if self.outbound().is_some_and(|keys| keys.protect_rtcp(&mut packet).is_ok()) {
            self.farewell.push_back(packet);
        }
    }

    /// Ends the transport. A connected peer is sent `close_notify`.
    pub(crate) fn close(&mut self, now: Instant, reason: CloseReason) {
        if self.closed {
            return;
        }
        self.settled = None;
        self.last_path = self.agent.selected();
        if let Some(dtls) = &mut self.dtls {
            dtls.close(now);
        }
        self.agent.close(now);
        self.closed = true;
        self.stats = self.stats();
        self.keys = None;
        self.drain_paths();
        self.events.push_back(Event::Closed(reason));
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        self.settled.map_or_else(|| self.deadline(), |settled| settled.deadline)
    }

    fn deadline(&self) -> Option<Instant> {
        let dtls = self.dtls.as_ref().and_then(|dtls| dtls.poll_timeout());
        [self.agent.poll_timeout(), dtls].into_iter().flatten().min()
    }

    /// Writes the next datagrams of ICE or DTLS, all for the returned path.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Datagrams) -> Option<Path> {
        if self.settled.is_some() {
            return None;
        }
        self.scratch.clear();
        if let Some(transmit) = self.agent.poll_transmit(now, &mut self.scratch) {
            out.push(&[], &self.scratch);
            return Some(transmit.path);
        }
        let path = self.agent.selected();
        if let Some(to) = path.or(self.last_path) {
            if let Some(packet) = self.farewell.pop_front() {
                out.push(&[], &packet);
                return Some(to);
            }
            if self.dtls.as_mut().is_some_and(|dtls| dtls.poll_transmit(now, out)) {
                if self.closed {
                    repeat(out);
                }
                return Some(to);
            }
        }
        self.settled = Some(Settled { path, deadline: self.deadline() });
        None
    }

    /// True if [`Transport::poll_transmit`] has nothing to send.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// Returns the path that media takes; `None` until there are keys.
    pub(crate) fn media_path(&self) -> Option<Path> {
        let selected = self.settled.map_or_else(|| self.agent.selected(), |settled| settled.path);
        selected.filter(|_| self.keys.is_some())
    }

    /// True if application data can be sent.
    pub(crate) const fn takes_data(&self) -> bool {
        self.keys.is_some()
    }

    /// Takes the next received application data.
    pub(crate) fn take_data(&mut self) -> Option<Bytes> {
        self.keys.as_mut()?.data.pop_front()
    }

    /// Sends application data in one DTLS record. If there is no room, the data is dropped, like a packet lost
    /// on the path.
    pub(crate) fn send_data(&mut self, data: &[u8]) {
        if let Some(dtls) = &mut self.dtls {
            let _ = dtls.send(data);
            self.settled = None;
        }
    }

    /// SRTP context for sending; `None` until there are keys.
    pub(crate) fn outbound(&mut self) -> Option<&mut Outbound> {
        self.keys.as_mut().map(|keys| &mut keys.outbound)
    }

    /// SRTP profile; `None` until there are keys.
    pub(crate) fn profile(&self) -> Option<Profile> {
        self.keys.as_ref().map(|keys| keys.outbound.profile())
    }

    /// Our DTLS role and the cipher suite; `None` before the handshake is complete.
    pub(crate) fn handshake(&self) -> Option<(dtls::Role, dtls::CipherSuite)> {
        Some((self.dtls.as_ref()?.role(), self.suite?))
    }

    pub(crate) fn stats(&self) -> TransportStats {
        let srtp = self.keys.as_ref().map(|keys| keys.inbound.stats());
        TransportStats { srtp: srtp.or(self.stats.srtp), ..self.stats }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Bytes of memory held, as far as known.
    pub(crate) fn held_bytes(&self) -> usize {
        let dtls = self.dtls.as_ref().map_or(0, |dtls| dtls.held_bytes());
        size_of::<Self>().saturating_add(dtls).saturating_add(self.scratch.capacity())
    }

    /// Passes events of ICE to DTLS, and events of both to the owner.
    fn pump(&mut self, now: Instant) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                ice::Event::Candidate(candidate) => self.events.push_back(Event::Candidate(candidate)),
                ice::Event::Validated(path) | ice::Event::Heard(path) => {
                    self.events.push_back(Event::PathOpened(path))
                }
                ice::Event::Expired(path) => self.events.push_back(Event::PathClosed(path)),
                ice::Event::Connected => self.has_path = true,
                ice::Event::Closed(reason) => {
                    let reason = match reason {
                        ice::CloseReason::ConsentExpired => CloseReason::ConsentExpired,
                        ice::CloseReason::ConnectTimeout => CloseReason::ConnectTimeout,
                        ice::CloseReason::Local | _ => CloseReason::Local,
                    };
                    return self.close(now, reason);
                }
                // Nothing to do: `media_path` queries the agent for the selected path.
                ice::Event::Selected(_) | _ => {}
            }
        }
        self.start_dtls(now);
        while let Some(event) = self.dtls.as_mut().and_then(|dtls| dtls.poll_event()) {
            match event {
                dtls::Event::Connected(connected) => self.take_keys(now, &connected),
                dtls::Event::Data(data) => {
                    if let Some(keys) = &mut self.keys {
                        keys.data.push_back(data);
                    }
                }
                dtls::Event::Closed(dtls::CloseReason::Peer) if self.keys.is_some() => {
                    return self.close(now, CloseReason::Peer);
                }
                dtls::Event::Closed(reason) => return self.close(now, CloseReason::Handshake(reason)),
            }
        }
    }

    /// Starts the handshake once there is a path and the peer's fingerprints are known.
    fn start_dtls(&mut self, now: Instant) {
        let Some((client, fingerprints)) =
            self.expected.as_ref().filter(|_| self.dtls.is_none() && self.has_path)
        else {
            return;
        };
        let (config, seed) = (Arc::clone(&self.dtls_config), self.seed.derive("dtls", 0));
        let mut dtls = if *client {
            dtls::Connection::client(config, seed)
        } else {
            dtls::Connection::server(config, seed)
        };
        dtls.set_remote_fingerprints(now, fingerprints.clone());
        dtls.start(now);
        self.dtls = Some(Box::new(dtls));
    }

    fn take_keys(&mut self, now: Instant, connected: &dtls::Connected) {
        self.suite = Some(connected.suite);
        let keys = connected.srtp.as_ref().and_then(|(profile, keys)| {
            let profile = Profile::from_id(profile.number())?;
            let (client, server) = MasterKey::of_dtls(profile, keys.as_bytes())?;
            let is_client = self.dtls.as_ref()?.role() == dtls::Role::Client;
            let (ours, theirs) = if is_client { (client, server) } else { (server, client) };
            let (inbound, outbound) = (Inbound::new(&theirs)?, Outbound::new(&ours)?);
            Some(Keys { inbound, outbound, strays: Strays::default(), data: VecDeque::new() })
        });
        match keys {
            Some(keys) => {
                self.keys = Some(Box::new(keys));
                self.events.push_back(Event::Connected);
            }
            // The configuration contains a profile that SRTP does not support.
            None => self.close(now, CloseReason::Handshake(dtls::CloseReason::Local)),
        }
    }

    /// Discards the events of paths that are closed with the session, because the owner's table forgets the
    /// session as a whole.
    fn drain_paths(&mut self) {
        while self.agent.poll_event().is_some() {}
    }
}

/// Sends each datagram twice. A `close_notify` is neither answered nor retransmitted, and a peer that misses it
/// waits until its checks time out. A peer that receives both copies drops the second as a replay.
fn repeat(out: &mut Datagrams) {
    for n in 0..out.len() {
        let datagram = out.get(n).to_vec();
        out.push(&[], &datagram);
    }
}
