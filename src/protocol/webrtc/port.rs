//! The UDP port of a worker's WebRTC peers.
//!
//! A datagram never admits a peer: a session is made for a request that was admitted over HTTP or a signalling socket
//! ([`SessionsOnRequest::create`]). The port's table finds the session by the ICE ufrag of our description; datagrams
//! on a path that the session has validated are routed to it.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Config, IceMode};
use crypto::Seed;
use dtls::Identity;
use rtp::NtpAnchor;

use super::candidates::{self, Known};
use super::messages::{Ask, FromSession, Later, ToSession};
use super::session::RtcSession;
use super::settings::{RtcAppSettings, RtcSettings};
use super::sharing::Sharing;
use super::way::path_of;
use crate::auth::network;
use crate::config::AppSettings;
use crate::mail::{Message, SessionSettings};
use crate::protocol::ice_servers::MediaAddress;
use crate::protocol::row::PortContext;
use crate::protocol::{
    Binding, Claim, Context, Demux, PathChange, PathNews, Remote, Route, Session, SessionsOnRequest, Wanted,
};
use crate::types::{ConnId, Now, WorkerId};

/// Maximum sessions of one worker.
const SESSIONS_MAX: usize = 20_000;
/// Maximum sessions of one address (/64) without a validated path. Loopback is exempt, as from all limits per address.
const WAITING_MAX: u32 = 256;
/// Time within which a peer must have a validated path.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of ended sessions that requests may still name: browsers close their peer before they send DELETE.
const PAST_MAX: usize = 1024;
/// Time for which ended sessions are remembered.
const PAST_KEPT: Duration = Duration::from_secs(30);

/// The demultiplexer of the port.
#[derive(Debug)]
pub(super) struct RtcPort {
    sessions: ice::Demux<ConnId>,
    identity: Option<Arc<Identity>>,
    anchor: NtpAnchor,
    /// The address that the port is bound to, once it is.
    bound: Option<SocketAddr>,
    /// The addresses of the machine.
    hosts: Vec<IpAddr>,
    /// The configuration of sessions, and the settings and addresses from which it was made.
    config: Option<(RtcSettings, Vec<SocketAddr>, Arc<Config>)>,
    /// For each network, the number of its sessions without a validated path; and for each such session, its network.
    waiting: HashMap<IpAddr, u32>,
    waits: HashMap<ConnId, IpAddr>,
    /// Paths of other workers, if all share the port.
    sharing: Sharing,
    worker: WorkerId,
    /// Ended sessions with their secrets, and until when they are remembered; oldest first.
    past: VecDeque<(ConnId, u64, Instant)>,
}

impl RtcPort {
    pub(super) fn new(ctx: &PortContext<'_>) -> Self {
        let identity = Identity::self_signed(&ctx.worker_seed("WebRTC identity"))
            .inspect_err(|error| tracing::error!(%error, "WebRTC certificate not created"));
        Self {
            sessions: ice::Demux::new(),
            identity: identity.ok().map(Arc::new),
            anchor: NtpAnchor::new(ctx.now.mono, Duration::from_millis(ctx.now.wall_ms)),
            bound: None,
            hosts: Vec::new(),
            config: None,
            waiting: HashMap::new(),
            waits: HashMap::new(),
            sharing: Sharing::default(),
            worker: ctx.worker,
            past: VecDeque::new(),
        }
    }

    fn config(&mut self, server: &SessionSettings) -> Option<Arc<Config>> {
        let settings = RtcSettings::of(server);
        let known = Known { hosts: &self.hosts, found: &server.site.found };
        let addresses = candidates::addresses(self.bound?, &settings.candidates, known);
        if let Some((of, told, config)) = &self.config
            && of == settings
            && *told == addresses
        {
            return Some(Arc::clone(config));
        }
        let identity = self.identity.clone()?;
        let (connect_timeout, tag) = (CONNECT_TIMEOUT, self.sharing.tag());
        let ice = ice::LiteConfig { connect_timeout, tag, ..ice::LiteConfig::default() };
        let config =
            Config::new(IceMode::Lite { config: Arc::new(ice), addresses: addresses.clone() }, identity);
        let config = Arc::new(Config {
            tcp: settings.tcp,
            playout_delay: settings.playout_delay,
            spatial_layers: true,
            ..config
        });
        self.config = Some((settings.clone(), addresses, Arc::clone(&config)));
        Some(config)
    }

    /// Counts a session that has no validated path yet. Returns false if its network has too many such sessions.
    fn begin_wait(&mut self, conn: ConnId, peer: IpAddr) -> bool {
        self.end_wait(conn);
        if peer.is_loopback() {
            return true;
        }
        let network = network(peer);
        let waiting = self.waiting.entry(network).or_default();
        if *waiting >= WAITING_MAX {
            return false;
        }
        *waiting += 1;
        self.waits.insert(conn, network);
        true
    }

    fn end_wait(&mut self, conn: ConnId) {
        let Some(network) = self.waits.remove(&conn) else { return };
        if let Some(waiting) = self.waiting.get_mut(&network) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                self.waiting.remove(&network);
            }
        }
    }

    /// Routes a datagram for which no session was found. Media from an unknown path is passed to one of the sessions at
    /// the same address, here or at another worker, which tries to decrypt the datagram, because a NAT may have given
    /// the session's peer another port. DTLS from an unknown path is passed to the other workers, because the first
    /// flight may arrive before this worker is notified of the path.
    fn route_stray(
        &mut self,
        now: Instant,
        from: Remote,
        path: &ice::Path,
        reason: ice::DropReason,
        datagram: &[u8],
    ) -> Route {
        if let Some(elsewhere) = self.sharing.find(from, path, reason, datagram) {
            return Route::Elsewhere(elsewhere);
        }
        let kind = ice::classify(datagram);
        let is_media = kind == ice::Kind::Rtp;
        if reason != ice::DropReason::UnknownPath || !is_media && kind != ice::Kind::Dtls {
            return Route::Drop;
        }
        let may_pass = self.sharing.may_try_others(now, from);
        if is_media
            && !(may_pass && self.sharing.is_turn_of_others())
            && let Some(session) = self.sessions.next_of_host(path)
        {
            return Route::Session(session);
        }
        if may_pass { self.sharing.try_others() } else { Route::Drop }
    }

    fn path(&self, remote: Remote) -> Option<ice::Path> {
        Some(path_of(remote, self.bound?))
    }
}

impl Demux for RtcPort {
    fn route(&mut self, ctx: &Context<'_>, from: Remote, datagram: &[u8], _reply: &mut Vec<u8>) -> Route {
        let Some(path) = self.path(from) else { return Route::Drop };
        match self.sessions.route(&path, datagram) {
            ice::Route::Stun(conn) | ice::Route::Dtls(conn) | ice::Route::Rtp(conn) => Route::Session(conn),
            ice::Route::Drop(reason) if ctx.server.leaves_strays => {
                self.sharing.find(from, &path, reason, datagram).map_or(Route::Drop, Route::Elsewhere)
            }
            ice::Route::Drop(reason) => self.route_stray(ctx.now.mono, from, &path, reason, datagram),
        }
    }

    fn begin(&mut self, _: &Context<'_>, _: ConnId, _: SocketAddr, _: Seed) -> Option<Box<dyn Session>> {
        None
    }

    fn forget(&mut self, conn: ConnId) {
        self.sessions.remove(conn);
        self.sharing.forget(conn);
        self.end_wait(conn);
    }

    fn sessions(&self) -> usize {
        self.sessions.len().max(self.waits.len())
    }

    fn on_request(&mut self) -> Option<&mut dyn SessionsOnRequest> {
        Some(self)
    }
}

impl SessionsOnRequest for RtcPort {
    fn bound(&mut self, Binding { address, hosts, workers }: Binding<'_>) {
        (self.bound, self.hosts, self.config) = (Some(address), hosts.to_vec(), None);
        self.sharing.among(self.worker, workers);
    }

    fn create(
        &mut self,
        ctx: &Context<'_>,
        conn: ConnId,
        wanted: Wanted,
        seed: Seed,
    ) -> Option<Box<dyn Session>> {
        let mut config = self.config(ctx.server)?;
        let ask = wanted.what.downcast::<Ask>().ok()?;
        if let Some(app) = ctx.apps.get(&ask.key.app) {
            config = of_app(config, app);
        }
        if self.waits.len() + self.sessions.len() >= SESSIONS_MAX || !self.begin_wait(conn, wanted.peer.ip())
        {
            tracing::debug!(peer = %wanted.peer, "too many WebRTC sessions");
            return None;
        }
        let session = RtcSession::new(ctx, (config, self.anchor, self.bound?), wanted.parent, *ask, seed);
        if session.is_none() {
            self.end_wait(conn);
        }
        Some(Box::new(session?))
    }

    fn claim(&mut self, now: Now, conn: ConnId, claim: &Claim) {
        match claim {
            Claim::Name(name) => {
                self.sessions.insert(name, conn);
            }
            Claim::Open(remote) => {
                if let Some(path) = self.path(*remote)
                    && self.sessions.open(path, conn)
                {
                    self.sharing.open(conn, path, *remote);
                    self.end_wait(conn);
                }
            }
            Claim::Close(remote) => {
                if let Some(path) = self.path(*remote) {
                    self.sessions.close(&path, conn);
                    self.sharing.close(conn, &path);
                }
            }
            Claim::Past(secret) => {
                while self.past.len() >= PAST_MAX || self.past.front().is_some_and(|one| one.2 <= now.mono) {
                    self.past.pop_front();
                }
                self.past.push_back((conn, *secret, now.mono + PAST_KEPT));
            }
        }
    }

    fn answer_for_past(&mut self, now: Now, conn: ConnId, message: &Message) -> Option<Message> {
        let Some(ToSession::Request { secret, request: Later::Delete }) = message.content() else {
            return None;
        };
        let is_named =
            |(of, known, until): &(ConnId, u64, Instant)| *of == conn && known == secret && *until > now.mono;
        let at = self.past.iter().position(is_named)?;
        self.past.remove(at);
        Some(Message::new(FromSession::Answered(200, None, String::new())))
    }

    fn hear(&mut self, news: &PathNews) {
        let Some(path) = self.path(news.remote) else { return };
        if news.is_open {
            self.sessions.vacate(&path);
        }
        self.sharing.hear(path, news.owner, news.is_open);
    }

    fn poll_change(&mut self) -> Option<PathChange> {
        self.sharing.poll_change()
    }
}

/// Returns the configuration for one application, which may disable media over TCP or set another time to connect.
fn of_app(config: Arc<Config>, app: &AppSettings) -> Arc<Config> {
    let settings = RtcAppSettings::of(app);
    let tcp = config.tcp && settings.tcp;
    if tcp == config.tcp && settings.connect_timeout == CONNECT_TIMEOUT {
        return config;
    }
    let mut own = Config { tcp, ..(*config).clone() };
    if let IceMode::Lite { config, .. } = &mut own.ice {
        *config = Arc::new(ice::LiteConfig { connect_timeout: settings.connect_timeout, ..**config });
    }
    Arc::new(own)
}

/// Returns the media addresses of all workers, each in two forms: as candidates announce it, and as this machine itself
/// reaches it, because a machine behind NAT may not reach itself by its public address.
pub(super) fn media_addresses(server: &SessionSettings) -> Vec<MediaAddress> {
    let settings = RtcSettings::of(server);
    let bound = server.site.bound.iter().filter(|(name, _)| *name == super::PORT);
    let of_worker = |bound: SocketAddr| {
        let known = Known { hosts: &server.site.hosts, found: &server.site.found };
        let told = candidates::addresses(bound, &settings.candidates, known);
        told.into_iter()
            .map(move |told| MediaAddress { told, own: own_address(told, bound, &server.site.hosts) })
    };
    bound.flat_map(|(_, bound)| of_worker(*bound)).collect()
}

fn own_address(told: SocketAddr, bound: SocketAddr, hosts: &[IpAddr]) -> SocketAddr {
    if !bound.ip().is_unspecified() {
        return bound;
    }
    let loopback: IpAddr = match told {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if hosts.contains(&told.ip()) { told } else { SocketAddr::new(loopback, bound.port()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSettings;
    use crate::protocol::schema;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    fn port_at(now: Now) -> RtcPort {
        RtcPort::new(&PortContext::new(now, WorkerId(0), &Seed::from_number(1)))
    }

    #[test]
    fn media_is_reached_by_an_address_of_this_machine() {
        let hosts = ips(&["127.0.0.1", "192.0.2.2", "fd00::2"]);
        let own = |told: &str, bound: &str| {
            own_address(told.parse().unwrap(), bound.parse().unwrap(), &hosts).to_string()
        };
        assert_eq!(own("192.0.2.2:5", "[::]:5"), "192.0.2.2:5");
        assert_eq!(own("[fd00::2]:5", "[::]:5"), "[fd00::2]:5");
        assert_eq!(own("203.0.113.7:5", "0.0.0.0:5"), "127.0.0.1:5", "behind a translator");
        assert_eq!(own("[2001:db8::7]:5", "[::]:5"), "[::1]:5");
        assert_eq!(own("203.0.113.7:5", "192.0.2.2:5"), "192.0.2.2:5");
        let server = ServerSettings::of(schema(), &[("webrtc.candidates", "203.0.113.7")]).unwrap();
        let bound = |n: u8| ("webrtc", SocketAddr::from(([0, 0, 0, 0], 5000 + u16::from(n))));
        let site = crate::mail::Site {
            bound: vec![("http", bound(9).1), bound(0), bound(1)],
            hosts,
            ..Default::default()
        };
        let server = SessionSettings::of(&server, "node", Arc::new(site));
        let found: Vec<String> =
            media_addresses(&server).iter().map(|media| format!("{} {}", media.told, media.own)).collect();
        assert_eq!(found, ["203.0.113.7:5000 127.0.0.1:5000", "203.0.113.7:5001 127.0.0.1:5001"]);
    }

    #[test]
    fn an_application_may_have_no_media_over_tcp() {
        let mut port = port_at(Now { mono: Instant::now(), wall_ms: 0 });
        port.bound(Binding { address: "192.0.2.1:5".parse().unwrap(), hosts: &[], workers: 1 });
        for (tcp, settings, wanted) in [
            ("true", &[][..], true),
            ("true", &[("webRTCTcpCandidatesEnabled", "true")], true),
            ("true", &[("webRTCTcpCandidatesEnabled", "false")], false),
            ("false", &[("webRTCTcpCandidatesEnabled", "true")], false),
        ] {
            let server = ServerSettings::of(schema(), &[("webrtc.tcp", tcp)]).unwrap();
            let app = AppSettings::of(schema(), "live", settings).unwrap();
            let config = port.config(&SessionSettings::of(&server, "node", Arc::default())).unwrap();
            assert_eq!(of_app(config, &app).tcp, wanted, "webrtc.tcp={tcp}, {settings:?}");
        }
    }

    #[test]
    fn an_application_may_give_its_clients_another_time_to_connect() {
        let mut port = port_at(Now { mono: Instant::now(), wall_ms: 0 });
        port.bound(Binding { address: "192.0.2.1:5".parse().unwrap(), hosts: &[], workers: 1 });
        let server = ServerSettings::of(schema(), &[]).unwrap();
        for (settings, ms) in [(&[][..], 10_000), (&[("webRTCClientStartTimeoutMs", "3000")], 3000)] {
            let app = AppSettings::of(schema(), "live", settings).unwrap();
            let config = port.config(&SessionSettings::of(&server, "node", Arc::default())).unwrap();
            let IceMode::Lite { config, .. } = &of_app(config, &app).ice else { panic!("not a server's") };
            assert_eq!(config.connect_timeout, Duration::from_millis(ms));
        }
    }

    #[test]
    fn a_session_that_is_over_is_deleted_once_by_who_knows_its_secret() {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut port = port_at(now);
        let conn = |slot| ConnId { slot, generation: 0 };
        let delete = |secret| Message::new(ToSession::Request { secret, request: Later::Delete });
        port.claim(now, conn(1), &Claim::Past(7));
        assert!(port.answer_for_past(now, conn(1), &delete(8)).is_none(), "another secret");
        assert!(port.answer_for_past(now, conn(2), &delete(7)).is_none(), "another session");
        let answer = port.answer_for_past(now, conn(1), &delete(7)).unwrap();
        assert!(matches!(answer.content(), Some(FromSession::Answered(200, None, _))));
        assert!(port.answer_for_past(now, conn(1), &delete(7)).is_none(), "once");
        port.claim(now, conn(1), &Claim::Past(7));
        let later = Now { mono: now.mono + PAST_KEPT, ..now };
        assert!(port.answer_for_past(later, conn(1), &delete(7)).is_none(), "for a while");
        (0..5000).for_each(|slot| port.claim(later, conn(slot), &Claim::Past(7)));
        assert_eq!(port.past.len(), PAST_MAX);
    }

    #[test]
    fn w_11_a_network_has_so_many_sessions_that_wait() {
        let mut port = port_at(Now { mono: Instant::now(), wall_ms: 0 });
        let conn = |slot| ConnId { slot, generation: 0 };
        let of = |n: u32| ips(&[&format!("2001:db8::{n:x}")])[0];
        assert!((0..WAITING_MAX).all(|n| port.begin_wait(conn(n), of(n))));
        assert!(!port.begin_wait(conn(9000), of(9000)));
        assert!(port.begin_wait(conn(9000), ips(&["2001:db8:1::1"])[0]), "another network");
        assert!((0..1000).all(|n| port.begin_wait(conn(10_000 + n), ips(&["127.0.0.1"])[0])));
        port.forget(conn(0));
        assert!(port.begin_wait(conn(0), of(0)));
        assert!(port.begin_wait(conn(0), of(0)), "a session is counted once");
        (0..=9000).for_each(|n| port.forget(conn(n)));
        assert!(port.waiting.is_empty() && port.waits.is_empty());
    }
}
