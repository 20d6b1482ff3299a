//! The secured path of a session: ICE, on it DTLS, and SRTP with its keys.
//!
//! ```text
//! 1  checks                  ICE: a path is validated, DTLS may begin
//! 2  handshake               DTLS: the peer has the certificate that it announced
//! 3  keys                    SRTP: packets are opened, and sealed
//! ```
//!
//! Nothing but STUN is looked at before its path is validated, and no packet is opened before the peer has proved who it
//! is. It knows nothing of media.
//!
//! The exception is media from another port of the peer's address once there are keys: some of those packets are opened, for a translator
//! of addresses may have given the peer that port. An authentic one makes the path valid, and a lite agent checks it ([`ice::LiteAgent::follow_media`]).

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

/// Packets by paths that are not valid that are opened in each [`STRAYS_INTERVAL`]: forged ones cost no more than so many tags.
const STRAYS_MAX: u8 = 20;
/// See [`STRAYS_MAX`].
const STRAYS_INTERVAL: Duration = Duration::from_millis(100);

/// Either kind of agent.
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

    /// Whether media by a path that is not valid may be the peer's.
    fn may_follow(&self, path: &Path) -> bool {
        match self {
            Self::Lite(agent) => agent.may_follow(path),
            Self::Full(_) => false,
        }
    }

    /// Authentic media came by `path`. Full agents check their paths themselves, and ignore it.
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

    /// Adds a candidate of the peer. A lite agent ignores it; an unusable one is counted.
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

/// The allowance for opening packets that came by paths that are not valid.
#[derive(Debug, Default)]
struct Strays {
    /// Packets in the present interval, and its beginning.
    count: u8,
    since: Option<Instant>,
}

impl Strays {
    /// Whether another one may be opened.
    fn take(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| since + STRAYS_INTERVAL <= now) {
            (self.since, self.count) = (Some(now), 0);
        }
        let is_left = self.count < STRAYS_MAX;
        self.count += u8::from(is_left);
        is_left
    }
}

/// The content of a datagram.
#[derive(Debug)]
pub(crate) enum Opened<'a> {
    Rtp(&'a [u8]),
    Rtcp(&'a [u8]),
    /// Not media.
    Nothing,
}

/// The keys of both directions.
#[derive(Debug)]
struct Keys {
    inbound: Inbound,
    outbound: Outbound,
    strays: Strays,
    /// Application data that has come; its owner takes it after each datagram.
    data: VecDeque<Bytes>,
}

/// The answers of ICE and DTLS for as long as nothing happens to them. They are asked with every frame, and looking at them
/// costs more than what they say.
#[derive(Debug, Clone, Copy)]
struct Settled {
    path: Option<Path>,
    deadline: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Transport {
    agent: Agent,
    dtls_config: Arc<dtls::Config>,
    seed: Seed,
    /// Our DTLS role and the expected fingerprints; known with the descriptions.
    expected: Option<(bool, Vec<dtls::Fingerprint>)>,
    /// Created with the first validated path.
    dtls: Option<Box<dtls::Connection>>,
    /// ICE has a path: the handshake may begin.
    has_path: bool,
    keys: Option<Box<Keys>>,
    /// The cipher suite of the handshake.
    suite: Option<dtls::CipherSuite>,
    /// The path for a final `close_notify` when ICE has ended.
    last_path: Option<Path>,
    /// The last RTCP, sealed: the keys are gone when it is sent.
    farewell: Option<Vec<u8>>,
    events: VecDeque<Event>,
    closed: bool,
    /// The answers of ICE and DTLS while neither has anything to send; `None` once anything has happened.
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
            farewell: None,
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

    /// The agent, to have something happen to it.
    pub(crate) const fn agent_mut(&mut self) -> &mut Agent {
        self.settled = None;
        &mut self.agent
    }

    /// Applies the result of the descriptions.
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

    /// Whether the DTLS association is opened by us, once that is agreed on.
    pub(crate) fn opens_association(&self) -> Option<bool> {
        self.expected.as_ref().map(|(client, _)| *client)
    }

    /// Whether descriptions agree on the roles and certificates that the association has (RFC 8842 §3.1).
    pub(crate) fn keeps_association(&self, negotiated: &Negotiated) -> bool {
        self.expected.as_ref().is_none_or(|(client, known)| {
            let new = &negotiated.fingerprints;
            *client == negotiated.dtls_client
                && new.iter().all(|print| known.contains(print))
                && known.iter().all(|print| new.contains(print))
        })
    }

    /// A datagram that came by `path`, opened in place.
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

    /// A datagram that came by a path that is not valid.
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
        // Which of them failed, and how, SRTP counts.
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

    /// RTCP to be sent before `close_notify`.
    pub(crate) fn set_farewell(&mut self, mut packet: Vec<u8>) {
        let sealed = self.outbound().is_some_and(|keys| keys.protect_rtcp(&mut packet).is_ok());
        self.farewell = sealed.then_some(packet);
    }

    /// Ends the transport; a connected peer is sent `close_notify`.
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

    /// The next datagrams of ICE or DTLS, all of them for one path.
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
            if let Some(packet) = self.farewell.take() {
                out.push(&[], &packet);
                return Some(to);
            }
            if self.dtls.as_mut().is_some_and(|dtls| dtls.poll_transmit(now, out)) {
                return Some(to);
            }
        }
        self.settled = Some(Settled { path, deadline: self.deadline() });
        None
    }

    /// Whether [`Transport::poll_transmit`] has nothing to give.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled.is_some()
    }

    /// The path that media takes, once it can be protected.
    pub(crate) fn media_path(&self) -> Option<Path> {
        let selected = self.settled.map_or_else(|| self.agent.selected(), |settled| settled.path);
        selected.filter(|_| self.keys.is_some())
    }

    /// Whether application data can be sent.
    pub(crate) const fn takes_data(&self) -> bool {
        self.keys.is_some()
    }

    /// Application data that has come.
    pub(crate) fn take_data(&mut self) -> Option<Bytes> {
        self.keys.as_mut()?.data.pop_front()
    }

    /// Sends application data, in one record. Without room it is lost, as on the path.
    pub(crate) fn send_data(&mut self, data: &[u8]) {
        if let Some(dtls) = &mut self.dtls {
            let _ = dtls.send(data);
            self.settled = None;
        }
    }

    /// The SRTP context for sending, once there are keys.
    pub(crate) fn outbound(&mut self) -> Option<&mut Outbound> {
        self.keys.as_mut().map(|keys| &mut keys.outbound)
    }

    /// The SRTP profile.
    pub(crate) fn profile(&self) -> Option<Profile> {
        self.keys.as_ref().map(|keys| keys.outbound.profile())
    }

    /// Our DTLS role and the cipher suite.
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

    /// Bytes that are held, as far as they can be seen.
    pub(crate) fn held_bytes(&self) -> usize {
        let dtls = self.dtls.as_ref().map_or(0, |dtls| dtls.held_bytes());
        size_of::<Self>().saturating_add(dtls).saturating_add(self.scratch.capacity())
    }

    /// Carries what the machines say from one to the next.
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
                // Media asks for the selected path each time.
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

    /// The handshake begins when there is a path, and somebody to expect.
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
            // The configuration has a profile that SRTP has not.
            None => self.close(now, CloseReason::Handshake(dtls::CloseReason::Local)),
        }
    }

    /// Paths that were opened are closed with the session; the owner's table forgets it as a whole.
    fn drain_paths(&mut self) {
        while self.agent.poll_event().is_some() {}
    }
}
