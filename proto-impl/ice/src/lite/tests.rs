use std::net::SocketAddr;

use netsim::{Clock, ms, secs};

use super::*;
use crate::stun::{AttributeType, ErrorCode, MessageWriter};

const PEER: &str = "peer";

fn path(port: u16) -> Path {
    Path::udp(SocketAddr::from(([192, 0, 2, 1], 8000)), SocketAddr::from(([203, 0, 113, 7], port)))
}

/// Credentials of the peer.
fn peer(ufrag: &str) -> Credentials {
    Credentials::new(ufrag, "the-password-of-the-peer").unwrap()
}

/// Parts of a request.
#[derive(Clone)]
struct Request<'a> {
    ufrag: &'a str,
    peer: &'a str,
    password: &'a str,
    nominates: bool,
    controlled: bool,
    id: u32,
    extra: Option<(AttributeType, &'a [u8])>,
}

impl Request<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut id = [7; 12];
        *id.last_chunk_mut().unwrap() = self.id.to_be_bytes();
        let mut writer = MessageWriter::new(&mut out, Class::Request, TransactionId(id))
            .username(self.ufrag, self.peer)
            .priority(1)
            .use_candidate(self.nominates);
        if let Some((kind, value)) = self.extra {
            writer = writer.attribute(kind, value);
        }
        let role = if self.controlled { RoleAttribute::Controlled(1) } else { RoleAttribute::Controlling(1) };
        writer.role(role).finish(self.password.as_bytes());
        out
    }
}

struct Server {
    clock: Clock,
    agent: LiteAgent,
    local: Credentials,
    next_id: u32,
}

impl Server {
    fn new() -> Self {
        Self::with(LiteConfig::default())
    }

    fn with(config: LiteConfig) -> Self {
        let clock = Clock::new();
        let mut agent = LiteAgent::new(clock.now(), Arc::new(config), &Seed::from_number(1));
        agent.set_remote(clock.now(), peer(PEER));
        Self { local: agent.local().clone(), clock, agent, next_id: 0 }
    }

    fn request(&mut self) -> Request<'_> {
        self.next_id = self.next_id.wrapping_add(1);
        Request {
            ufrag: self.local.ufrag(),
            peer: PEER,
            password: self.local.password(),
            nominates: false,
            controlled: false,
            id: self.next_id,
            extra: None,
        }
    }

    /// Delivers a datagram to the agent, and returns the agent's answer.
    fn deliver(&mut self, port: u16, bytes: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.now();
        self.agent.handle_datagram(now, path(port), bytes);
        let mut out = Vec::new();
        let transmit = self.agent.poll_transmit(now, &mut out);
        assert!(transmit.is_none_or(|transmit| transmit.path == path(port) && transmit.length == out.len()));
        assert!(out.len() <= bytes.len() * 2, "{} for {}", out.len(), bytes.len());
        assert!(self.agent.poll_transmit(now, &mut out).is_none());
        transmit.map(|_| out)
    }

    fn check(&mut self, port: u16, nominates: bool) -> bool {
        let bytes = Request { nominates, ..self.request() }.bytes();
        let answer = self.deliver(port, &bytes);
        answer.is_some_and(|answer| Message::read(&answer).unwrap().class() == Class::Success)
    }

    /// Returns the events, without those that report checks on validated paths.
    fn events(&mut self) -> Vec<Event> {
        let all = std::iter::from_fn(|| self.agent.poll_event());
        all.filter(|event| !matches!(event, Event::Heard(_))).collect()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while let Some(at) = self.agent.poll_timeout().filter(|at| *at <= end) {
            self.clock.advance_to(at);
            self.agent.handle_timeout(at);
            assert!(self.agent.poll_timeout().is_none_or(|next| next > at));
        }
        self.clock.advance_to(end);
    }

    fn selected(&self) -> Option<Path> {
        self.agent.selected()
    }
}

#[test]
fn an_authentic_check_is_answered_and_opens_its_path() {
    let mut server = Server::new();
    let bytes = server.request().bytes();
    let answer = server.deliver(1, &bytes).unwrap();
    let message = Message::read(&answer).unwrap();
    assert!(message.is_authentic(server.local.password().as_bytes()) && message.has_fingerprint());
    assert_eq!(message.mapped_address(), Some(path(1).remote));
    assert_eq!(server.events(), [Event::Validated(path(1)), Event::Connected, Event::Selected(path(1))]);
    assert!(server.agent.is_valid(&path(1)));
    // A retransmitted request is answered again, without any other effect.
    assert_eq!(server.deliver(1, &bytes), Some(answer));
    assert_eq!(server.events(), []);
}

#[test]
fn i_01_what_is_not_authentic_is_dropped_and_harms_nobody() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    server.events();
    let foreign = Credentials::random(&Seed::from_number(9));
    let good = Request { nominates: true, ..server.request() };
    let mut no_integrity = Vec::new();
    let open = MessageWriter::new(&mut no_integrity, Class::Request, TransactionId([7; 12]));
    open.username(good.ufrag, PEER).use_candidate(true).finish_open();
    let mut no_username = Vec::new();
    let open = MessageWriter::new(&mut no_username, Class::Request, TransactionId([7; 12]));
    open.use_candidate(true).finish(good.password.as_bytes());
    let mut wrong_fingerprint = good.bytes();
    *wrong_fingerprint.last_mut().unwrap() ^= 1;
    let mut wrong_integrity = good.bytes();
    let at = wrong_integrity.len() - 12;
    wrong_integrity[at] ^= 1;
    let cases: [(&str, Vec<u8>); 8] = [
        ("no integrity", no_integrity),
        ("no user name", no_username),
        ("unknown fragment", Request { ufrag: foreign.ufrag(), ..good.clone() }.bytes()),
        ("unknown peer", Request { peer: "somebody", ..good.clone() }.bytes()),
        ("a prefix of the fragment", Request { ufrag: &good.ufrag[..7], ..good.clone() }.bytes()),
        ("wrong password", Request { password: foreign.password(), ..good.clone() }.bytes()),
        ("wrong fingerprint", wrong_fingerprint),
        ("wrong integrity", wrong_integrity),
    ];
    for (name, bytes) in cases {
        assert_eq!(server.deliver(2, &bytes), None, "{name}");
        assert_eq!(server.events(), [], "{name}");
        assert_eq!((server.selected(), server.agent.valid_paths()), (Some(path(1)), 1), "{name}");
    }
    let stats = server.agent.stats();
    assert_eq!((stats.unknown_user, stats.unauthenticated, stats.malformed), (4, 2, 2));
}

#[test]
fn i_02_a_request_without_use_candidate_moves_nothing() {
    let mut server = Server::new();
    assert!(server.check(1, true) && server.check(2, false));
    assert_eq!(server.selected(), Some(path(1)));
    assert!(server.agent.is_valid(&path(2)));
    assert!(!server.events().contains(&Event::Selected(path(2))));
}

#[test]
fn i_03_use_candidate_moves_media_and_nothing_before_it() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    let bytes = Request { nominates: true, password: "a password of another..", ..server.request() }.bytes();
    assert_eq!(server.deliver(2, &bytes), None);
    assert_eq!(server.selected(), Some(path(1)));
    assert!(server.check(2, true));
    assert_eq!(server.selected(), Some(path(2)));
    assert_eq!(server.events().last(), Some(&Event::Selected(path(2))));
    // The former path expires with its consent.
    server.pass(secs(29));
    assert!(server.check(2, false));
    server.pass(secs(2));
    assert_eq!(server.events(), [Event::Expired(path(1))]);
    assert!(!server.agent.is_valid(&path(1)) && server.agent.is_valid(&path(2)));
}

#[test]
fn i_03_a_copied_request_does_not_draw_media_to_the_copyist() {
    let mut server = Server::new();
    assert!(server.check(2, true));
    let nomination = Request { nominates: true, ..server.request() }.bytes();
    assert!(server.deliver(1, &nomination).is_some());
    assert_eq!(server.deliver(3, &nomination), None);
    assert_eq!((server.selected(), server.agent.stats().replayed), (Some(path(1)), 1));
    assert!(!server.agent.is_valid(&path(3)));
}

/// Checks copied requests: an eavesdropper's late copy neither overrides later nominations by the peer nor
/// gives consent.
#[test]
fn i_03_a_request_that_is_copied_late_is_worth_nothing() {
    let mut server = Server::new();
    let nomination = Request { nominates: true, ..server.request() }.bytes();
    assert!(server.deliver(1, &nomination).is_some());
    assert!(server.check(2, true));
    for _ in 2..REQUESTS_KEPT {
        assert!(server.check(2, false));
        server.events();
    }
    assert_eq!(server.deliver(3, &nomination), None);
    assert!(server.deliver(1, &nomination).is_some(), "the path is its own");
    assert_eq!((server.selected(), server.events()), (Some(path(2)), vec![]));
    assert_eq!((server.agent.stats().replayed, server.agent.requests.0.len()), (1, REQUESTS_KEPT));
    server.pass(secs(20));
    assert!(server.deliver(1, &nomination).is_some());
    assert!(server.deliver(2, &nomination).is_some());
    server.pass(secs(11));
    let end = [Event::Expired(path(1)), Event::Expired(path(2)), Event::Closed(CloseReason::ConsentExpired)];
    assert_eq!(server.events(), end);
}

#[test]
fn i_04_who_comes_first_without_credentials_gets_nothing() {
    let mut server = Server::new();
    for n in 0..10 {
        let mut out = Vec::new();
        let id = TransactionId([n; 12]);
        let writer = MessageWriter::new(&mut out, Class::Request, id).username(server.local.ufrag(), PEER);
        if n % 2 == 0 {
            writer.use_candidate(true).finish_open()
        } else {
            writer.finish(b"guessed")
        };
        assert_eq!(server.deliver(1, &out), None);
        server.pass(secs(1));
        assert!(server.selected().is_none() && !server.agent.is_valid(&path(1)));
    }
    assert!(server.check(2, true));
    assert_eq!(server.selected(), Some(path(2)));
    assert!(!server.agent.is_valid(&path(1)));
}

#[test]
fn i_05_only_validated_paths_carry_more_than_stun() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    let Path { local, remote, .. } = path(1);
    let other: SocketAddr = "198.51.100.1:1".parse().unwrap();
    for (path, valid) in [
        (Path::udp(local, remote), true),
        (Path::tcp(local, remote), false),
        (Path::udp(other, remote), false),
        (Path::udp(local, other), false),
        (Path::udp(remote, local), false),
        (Path::udp(local, SocketAddr::new(remote.ip(), 2)), false),
    ] {
        assert_eq!(server.agent.is_valid(&path), valid, "{path:?}");
    }
}

#[test]
fn i_06_silence_ends_the_session_within_the_consent_timeout() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    server.pass(secs(20));
    assert!(server.check(1, false));
    server.events();
    server.pass(secs(29));
    assert_eq!(server.selected(), Some(path(1)));
    server.pass(secs(1));
    assert_eq!(server.selected(), None);
    assert_eq!(server.events(), [Event::Expired(path(1)), Event::Closed(CloseReason::ConsentExpired)]);
    assert!(!server.check(1, true) && server.agent.poll_timeout().is_none() && server.events().is_empty());
}

#[test]
fn i_06_what_is_not_authentic_is_no_consent() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    let mut indication = Vec::new();
    MessageWriter::new(&mut indication, Class::Indication, TransactionId([1; 12])).finish_open();
    let wrong = Request { password: "wrong", ..server.request() }.bytes();
    for _ in 0..30 {
        server.pass(secs(1));
        assert_eq!(server.deliver(1, &indication), None);
        assert_eq!(server.deliver(1, &wrong), None);
    }
    assert!(server.agent.is_closed());
}

#[test]
fn i_06_another_path_that_speaks_takes_over() {
    for selection in [Selection::FirstValid, Selection::Nominated] {
        let mut server = Server::with(LiteConfig { selection, ..LiteConfig::default() });
        assert!(server.check(1, true) && server.check(2, false));
        server.pass(secs(20));
        assert!(server.check(2, false));
        server.pass(secs(10));
        let takes_over = selection == Selection::FirstValid;
        assert_eq!(server.selected(), takes_over.then_some(path(2)));
        assert_eq!(server.agent.is_closed(), !takes_over);
    }
}

/// Checks a peer whose address was changed by a NAT. Its checks come from the new address, but do not nominate
/// again.
#[test]
fn i_06_a_dead_path_is_left_after_ten_seconds_for_one_that_is_checked() {
    for (selection, nominated) in
        [(Selection::FirstValid, false), (Selection::FirstValid, true), (Selection::Nominated, true)]
    {
        let mut server = Server::with(LiteConfig { selection, ..LiteConfig::default() });
        if nominated {
            // The path was nominated once, long ago.
            assert!(server.check(2, true));
        }
        assert!(server.check(1, true));
        server.pass(secs(2));
        assert!(server.check(1, false));
        server.events();
        for _ in 0..4 {
            server.pass(secs(2));
            assert!(server.check(2, false));
        }
        server.pass(ms(1_999));
        assert_eq!(server.selected(), Some(path(1)));
        server.pass(ms(1));
        assert_eq!(server.selected(), Some(path(2)), "{selection:?} {nominated}");
        assert_eq!(server.events().last(), Some(&Event::Selected(path(2))));
        // Traffic on the old path does not select it again without a nomination.
        assert!(server.check(1, false) && server.check(2, false));
        assert_eq!(server.selected(), Some(path(2)));
        assert!(server.check(1, true));
        assert_eq!(server.selected(), Some(path(1)));
    }
}

#[test]
fn i_06_a_path_is_left_only_for_one_that_lives_and_may_carry_media() {
    // Checks of the other path before the silence, or early in it, do not show that the other path is alive.
    let mut server = Server::new();
    assert!(server.check(1, true));
    server.pass(ms(4_999));
    assert!(server.check(2, false));
    server.pass(secs(15));
    assert_eq!((server.selected(), server.agent.valid_paths()), (Some(path(1)), 2));
    // As soon as a check arrives on the other path, that path is selected.
    assert!(server.check(2, false));
    assert_eq!(server.selected(), Some(path(2)));

    // A path on which checks resume in time is kept.
    let mut server = Server::new();
    assert!(server.check(1, true));
    for _ in 0..10 {
        server.pass(ms(9_999));
        assert!(server.check(2, false) && server.check(1, false));
        assert_eq!(server.selected(), Some(path(1)));
    }

    // With `Selection::Nominated`, a path without a nomination is never selected.
    let mut server = Server::with(LiteConfig { selection: Selection::Nominated, ..LiteConfig::default() });
    assert!(server.check(1, true));
    for _ in 0..14 {
        server.pass(secs(2));
        assert!(server.check(2, false));
        assert_eq!(server.selected(), Some(path(1)));
    }
}

#[test]
fn a_wait_that_is_held_begins_when_the_description_is_sent() {
    let mut server = Server::new();
    server.agent.hold_wait();
    server.agent.set_remote(server.clock.now(), peer(PEER));
    assert_eq!(server.agent.poll_timeout(), None);
    server.pass(secs(100));
    assert!(!server.agent.is_closed());
    server.agent.begin_wait(server.clock.now());
    server.pass(secs(10));
    // The wait that has begun is not begun again.
    server.agent.begin_wait(server.clock.now());
    server.pass(ms(4999));
    assert!(!server.agent.is_closed());
    server.pass(ms(1));
    assert_eq!(server.events(), [Event::Closed(CloseReason::ConnectTimeout)]);
}

#[test]
fn nobody_comes_and_the_wait_ends() {
    let mut server = Server::new();
    server.pass(secs(10));
    server.agent.set_remote(server.clock.now(), peer(PEER));
    server.pass(ms(14_999));
    assert!(!server.agent.is_closed());
    server.pass(ms(1));
    assert_eq!(server.events(), [Event::Closed(CloseReason::ConnectTimeout)]);
    server.agent.close(server.clock.now());
    assert_eq!(server.events(), []);
}

#[test]
fn with_nominated_selection_nothing_is_sent_before_it() {
    let mut server = Server::with(LiteConfig { selection: Selection::Nominated, ..LiteConfig::default() });
    assert!(server.check(1, false));
    assert_eq!((server.selected(), server.events()), (None, vec![Event::Validated(path(1))]));
    assert!(server.check(1, true));
    assert_eq!(server.events(), [Event::Connected, Event::Selected(path(1))]);
}

#[test]
fn i_07_a_peer_that_is_controlled_too_is_told_so() {
    let mut server = Server::new();
    let bytes = Request { controlled: true, ..server.request() }.bytes();
    let answer = server.deliver(1, &bytes).unwrap();
    let message = Message::read(&answer).unwrap();
    assert_eq!((message.class(), message.error_code()), (Class::Error, Some(ErrorCode::ROLE_CONFLICT)));
    assert!(message.is_authentic(server.local.password().as_bytes()));
    assert!(!server.agent.is_valid(&path(1)) && server.events().is_empty());
}

#[test]
fn i_09_no_answer_is_more_than_twice_its_request() {
    // `deliver` checks the size of each answer. These requests could have the largest answers for their size:
    // IPv6, many unknown attributes, no optional attributes.
    let mut server = Server::new();
    let Path { local, .. } = path(1);
    let long = Path::udp(local, "[2001:db8::1]:5".parse().unwrap());
    for unknown in 0..9 {
        let mut out = Vec::new();
        let mut writer = MessageWriter::new(&mut out, Class::Request, TransactionId([unknown; 12]))
            .username(server.local.ufrag(), PEER);
        for kind in 0..unknown {
            writer = writer.attribute(AttributeType(0x0050 + u16::from(kind)), &[]);
        }
        writer.finish(server.local.password().as_bytes());
        server.agent.handle_datagram(server.clock.now(), long, &out);
        let mut answer = Vec::new();
        server.agent.poll_transmit(server.clock.now(), &mut answer).unwrap();
        assert!(answer.len() <= out.len() * 2, "{unknown}: {} for {}", answer.len(), out.len());
    }
    // A peer that is not authenticated (here its user name is unknown) gets no answer at all, whatever kind of message
    // it sends.
    for kind in [0x0001_u16, 0x0011, 0x0101, 0x0111, 0x0002, 0x0003] {
        let mut out = Vec::new();
        MessageWriter::new(&mut out, Class::Request, TransactionId([1; 12]))
            .username("who?", PEER)
            .finish(server.local.password().as_bytes());
        out[..2].copy_from_slice(&kind.to_be_bytes());
        assert_eq!(server.deliver(1, &out), None);
    }
}

#[test]
fn i_10_unknown_attributes_are_refused_and_indications_ignored() {
    let mut server = Server::new();
    let bytes =
        Request { extra: Some((AttributeType(0x0002), &[])), nominates: true, ..server.request() }.bytes();
    let answer = server.deliver(1, &bytes).unwrap();
    let message = Message::read(&answer).unwrap();
    assert_eq!(message.error_code(), Some(ErrorCode::UNKNOWN_ATTRIBUTE));
    let named = message.attributes().find(|a| a.kind == AttributeType::UNKNOWN_ATTRIBUTES).unwrap();
    assert_eq!(named.value, [0, 2]);
    assert!(server.selected().is_none());
    // An unknown comprehension-optional attribute is no reason to refuse.
    let extra = Some((AttributeType(0xc057), &[0, 1, 0, 10][..]));
    let bytes = Request { extra, ..server.request() }.bytes();
    assert!(Message::read(&server.deliver(1, &bytes).unwrap()).unwrap().class() == Class::Success);

    for class in [Class::Indication, Class::Success, Class::Error] {
        let mut out = Vec::new();
        let writer = MessageWriter::new(&mut out, class, TransactionId([5; 12]));
        writer
            .username(server.local.ufrag(), PEER)
            .use_candidate(true)
            .finish(server.local.password().as_bytes());
        assert_eq!(server.deliver(2, &out), None);
    }
    assert_eq!(server.agent.stats().unexpected, 3);
}

#[test]
fn i_10_damaged_requests_change_nothing() {
    let mut server = Server::new();
    let whole = Request { nominates: true, ..server.request() }.bytes();
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    for at in 0..whole.len() - 8 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        damaged.push(bytes);
    }
    damaged.extend((0..600).map(|length| vec![0; length]));
    for bytes in damaged {
        assert_eq!(server.deliver(1, &bytes), None, "{bytes:?}");
    }
    assert!(server.selected().is_none() && server.events().is_empty());
    assert!(server.deliver(1, &whole).is_some());
}

#[test]
fn i_11_a_request_for_nobody_costs_no_hmac() {
    let mut server = Server::new();
    for n in 0..1000_u32 {
        let ufrag = format!("u{n}");
        let bytes = Request { ufrag: &ufrag, ..server.request() }.bytes();
        assert_eq!(server.deliver(1, &bytes), None);
    }
    let stats = server.agent.stats();
    assert_eq!((stats.unknown_user, stats.integrity_checks), (1000, 0));
}

#[test]
fn pairs_are_capped_and_the_selected_one_stays() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    for port in 2..100 {
        server.pass(ms(1));
        assert!(server.check(port, false));
        assert!(server.agent.valid_paths() <= PAIRS_MAX);
        assert!(server.agent.is_valid(&path(port)) && server.agent.is_valid(&path(1)));
        // Once eight paths are valid, each new one makes an earlier one expire. The path of port 1 stays, because it is
        // selected.
        let gone = server.events().iter().filter(|event| matches!(event, Event::Expired(_))).count();
        assert_eq!(gone, usize::from(port > 8));
    }
    assert_eq!((server.selected(), server.agent.stats().evicted), (Some(path(1)), 91));
}

#[test]
fn events_that_nobody_takes_stop_the_agent_and_not_its_memory() {
    let mut server = Server::new();
    for port in 1..1000 {
        server.check(port, true);
    }
    assert!(server.agent.stats().no_room > 0 && server.events().len() <= EVENTS_MAX);
    assert!(server.check(2000, true));
}

#[test]
fn a_restart_keeps_the_old_credentials_until_the_first_check_with_the_new_ones() {
    let mut server = Server::new();
    assert!(server.check(1, true));
    let old = server.local.clone();
    let new = server.agent.restart(&Seed::from_number(2)).clone();
    assert_ne!(old, new);
    server.agent.set_remote(server.clock.now(), peer("peer2"));
    // The old credentials are still valid, and may even select a path.
    assert!(server.check(1, false) && server.check(2, true));
    assert_eq!(server.selected(), Some(path(2)));
    // The old peer's user-name fragment is not valid with the new credentials.
    server.local = new.clone();
    assert!(!server.check(3, true));
    let bytes = Request { peer: "peer2", ..server.request() }.bytes();
    assert!(server.deliver(3, &bytes).is_some());
    assert_eq!(server.selected(), Some(path(2)), "media stays until it is nominated anew");
    server.local = old;
    assert!(!server.check(2, true));
    server.local = new;
    let bytes = Request { peer: "peer2", nominates: true, ..server.request() }.bytes();
    assert!(server.deliver(3, &bytes).is_some());
    assert_eq!(server.selected(), Some(path(3)));
}

#[test]
fn a_check_before_the_peer_is_known_is_answered() {
    let clock = Clock::new();
    let agent = LiteAgent::new(clock.now(), Arc::new(LiteConfig::default()), &Seed::from_number(1));
    let mut server = Server { local: agent.local().clone(), clock, agent, next_id: 0 };
    assert!(server.check(1, true));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = |seed| {
        let clock = Clock::new();
        let agent = LiteAgent::new(clock.now(), Arc::new(LiteConfig::default()), &Seed::from_number(seed));
        let mut server = Server { local: agent.local().clone(), clock, agent, next_id: 0 };
        let bytes = server.request().bytes();
        (server.local.ufrag().to_owned(), server.deliver(1, &bytes))
    };
    assert!(run(1) == run(1) && run(1) != run(2));
}

/// Returns a server whose peer nominated port 1 and then sent media from port 2, and the server's first
/// probe.
fn followed() -> (Server, Vec<u8>) {
    let mut server = Server::new();
    assert!(server.check(1, true));
    server.events();
    server.agent.follow_media(server.clock.now(), path(2));
    assert_eq!(server.events(), [Event::Validated(path(2))]);
    let probe = server.probe().unwrap();
    (server, probe)
}

impl Server {
    /// Returns the server's next datagram, which must go to port 2.
    fn probe(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let transmit = self.agent.poll_transmit(self.clock.now(), &mut out)?;
        assert_eq!(transmit.path, path(2));
        Some(out)
    }
}

/// Returns the answer to a request, authenticated with this password.
fn answer(request: &[u8], class: Class, password: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let id = Message::read(request).unwrap().transaction_id();
    MessageWriter::new(&mut out, class, id).finish(password);
    out
}

#[test]
fn i_12_media_by_another_path_moves_to_it_with_the_answer_to_a_check() {
    let (mut server, probe) = followed();
    let request = Message::read(&probe).unwrap();
    assert!(request.is_authentic(peer(PEER).key()) && request.class() == Class::Request);
    assert!(matches!(request.role(), Some(RoleAttribute::Controlled(_))) && !request.use_candidate());
    let username = format!("{PEER}:{}", server.local.ufrag());
    assert_eq!(request.username(), Some(username.as_bytes()));
    assert!(server.agent.is_valid(&path(2)));
    assert_eq!(server.selected(), Some(path(1)));

    let success = answer(&probe, Class::Success, peer(PEER).key());
    // An answer on another path, to another request, or with our own password is ignored.
    assert!(server.deliver(1, &success).is_none());
    let mut other = Vec::new();
    MessageWriter::new(&mut other, Class::Success, TransactionId([1; 12])).finish(peer(PEER).key());
    assert!(server.deliver(2, &other).is_none());
    let own = server.local.clone();
    assert!(server.deliver(2, &answer(&probe, Class::Success, own.key())).is_none());
    assert_eq!((server.selected(), server.events()), (Some(path(1)), vec![]));

    assert!(server.deliver(2, &success).is_none());
    assert_eq!((server.selected(), server.events()), (Some(path(2)), vec![Event::Selected(path(2))]));
    assert_eq!((server.agent.stats().checks_sent, server.agent.stats().succeeded), (1, 1));
    // A repeated answer is ignored, and the peer's next check has its usual effect.
    server.deliver(2, &success);
    assert_eq!(server.agent.stats().succeeded, 1);
    assert!(server.check(2, true) && server.events().is_empty());
}

#[test]
fn i_12_a_probe_is_repeated_and_given_up_and_its_path_carries_nothing() {
    let (mut server, probe) = followed();
    let begin = server.clock.now();
    let mut sent = vec![(ms(0), probe)];
    // The peer keeps checking its old path: only a copy of its media arrived on the other path.
    while server.clock.now() < begin + secs(40) {
        server.pass(ms(100));
        let at = server.clock.now() - begin;
        sent.extend(std::iter::from_fn(|| server.probe()).map(|probe| (at, probe)));
        if at.as_millis() % 2500 == 0 {
            assert!(server.check(1, false));
        }
    }
    let times: Vec<u128> = sent.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [0, 100, 300, 700, 1500]);
    assert!(sent.iter().all(|(_, bytes)| *bytes == sent[0].1), "one transaction");
    assert_eq!((server.agent.stats().checks_sent, server.agent.stats().failed), (5, 1));
    assert_eq!((server.selected(), server.events()), (Some(path(1)), vec![Event::Expired(path(2))]));
}

#[test]
fn i_12_media_by_an_unchecked_path_is_no_consent() {
    let (mut server, _) = followed();
    // From now on, only media arrives, on the other path; the agent ends when the consent on the first path
    // expires.
    for _ in 0..300 {
        server.pass(ms(100));
        server.agent.follow_media(server.clock.now(), path(2));
        assert_ne!(server.selected(), Some(path(2)));
    }
    assert!(server.events().contains(&Event::Closed(CloseReason::ConsentExpired)));
}

#[test]
fn i_12_many_paths_of_media_hold_no_more_than_the_limit() {
    let (mut server, _) = followed();
    for port in 3..60 {
        // A second path within the same quarter of a second is not followed.
        server.pass(ms(250));
        for port in [port, port + 1000] {
            server.agent.follow_media(server.clock.now(), path(port));
            assert_eq!(server.agent.is_valid(&path(port)), port < 1000);
        }
        server.events();
        let mut out = Vec::new();
        while server.agent.poll_transmit(server.clock.now(), &mut out).is_some() {}
        assert!(server.agent.valid_paths() <= PAIRS_MAX);
        assert_eq!(server.selected(), Some(path(1)));
    }
    assert!(server.agent.stats().no_room == 0 && server.agent.stats().evicted > 0);
}

#[test]
fn i_12_nothing_is_followed_before_a_check_over_tcp_from_elsewhere_and_behind_the_end() {
    let mut server = Server::new();
    server.agent.follow_media(server.clock.now(), path(2));
    assert!(server.events().is_empty() && !server.agent.is_valid(&path(2)));
    assert!(server.check(1, true));
    server.events();
    let tcp = Path::tcp(path(2).local, path(2).remote);
    let elsewhere = Path::udp(path(2).local, SocketAddr::from(([203, 0, 113, 8], 2)));
    for other in [tcp, elsewhere] {
        server.agent.follow_media(server.clock.now(), other);
        assert!(server.events().is_empty() && !server.agent.is_valid(&other));
    }
    server.agent.close(server.clock.now());
    server.agent.follow_media(server.clock.now(), path(2));
    assert_eq!(server.events(), [Event::Closed(CloseReason::Local)]);
    assert!(server.probe().is_none() && server.agent.poll_timeout().is_none());
}

#[test]
fn i_12_a_nomination_in_the_meantime_counts_more_than_the_answer_to_a_check() {
    let (mut server, probe) = followed();
    let elsewhere = Path::udp(path(3).local, SocketAddr::from(([203, 0, 113, 8], 3)));
    let bytes = Request { nominates: true, ..server.request() }.bytes();
    server.agent.handle_datagram(server.clock.now(), elsewhere, &bytes);
    assert_eq!(server.selected(), Some(elsewhere));
    server.agent.handle_datagram(
        server.clock.now(),
        path(2),
        &answer(&probe, Class::Success, peer(PEER).key()),
    );
    assert_eq!((server.selected(), server.agent.stats().succeeded), (Some(elsewhere), 0));
}
