//! Simulations of an attacker on the path.

use std::sync::Arc;

use crypto::{Random, Seed};
use ice::stun::{Class, Message, MessageWriter, TransactionId};
use ice::{Agent, Candidate, Config, Credentials, Event, Path, Role, Transport, limits};
use netsim::{Clock, ms, secs};

use crate::harness::{CONNECT, End, address, connect, pair, signal};

fn full(clock: &Clock, role: Role, seed: u64) -> Agent {
    let config = Config { role, ..Config::default() };
    let mut agent = Agent::new(clock.now(), Arc::new(config), &Seed::from_number(seed));
    agent.add_local(clock.now(), address(1, 1)).unwrap();
    agent
}

fn drained(agent: &mut Agent, clock: &Clock) -> Vec<(Path, Vec<u8>)> {
    while agent.poll_event().is_some() {}
    let mut all = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = agent.poll_transmit(clock.now(), &mut out) {
        all.push((transmit.path, std::mem::take(&mut out)));
    }
    all
}

#[test]
fn i_01_a_full_agent_answers_nobody_without_credentials() {
    let clock = Clock::new();
    let mut agent = full(&clock, Role::Controlled, 1);
    let peer = Credentials::random(&Seed::from_number(2));
    agent.set_remote(clock.now(), peer.clone(), false);
    let local = agent.local().clone();
    let path = Path::udp(address(1, 1), address(9, 9));
    let request = |receiver: &str, key: Option<&str>| {
        let mut out = Vec::new();
        let writer = MessageWriter::new(&mut out, Class::Request, TransactionId([1; 12]))
            .username(receiver, peer.ufrag())
            .use_candidate(true);
        match key {
            Some(key) => writer.finish(key.as_bytes()),
            None => writer.finish_open(),
        };
        out
    };
    let mut random = Seed::from_number(3).random();
    let mut noise = request(local.ufrag(), Some(local.password()));
    for bytes in [
        request(local.ufrag(), None),
        request(local.ufrag(), Some(peer.password())),
        request("nobody", Some(local.password())),
    ] {
        agent.handle_datagram(clock.now(), path, &bytes);
    }
    for _ in 0..2000 {
        // Flips a bit before the FINGERPRINT, which then no longer matches.
        let (at, bit) = (random.below(noise.len() as u64 - 8) as usize, random.below(8));
        noise[at] ^= 1 << bit;
        agent.handle_datagram(clock.now(), path, &noise);
        noise[at] ^= 1 << bit;
    }
    assert_eq!(drained(&mut agent, &clock), []);
    assert!(!agent.is_valid(&path) && agent.pairs() == 0 && agent.remote_candidates() == 0);
}

#[test]
fn i_04_unauthenticated_answers_validate_nothing() {
    let clock = Clock::new();
    let mut agent = full(&clock, Role::Controlling, 1);
    let peer = Credentials::random(&Seed::from_number(2));
    agent.set_remote(clock.now(), peer.clone(), false);
    agent.add_remote(clock.now(), &Candidate::host(Transport::Udp, address(9, 9), 1)).unwrap();
    let sent = drained(&mut agent, &clock);
    let (path, request) = &sent[0];
    let id = Message::read(request).unwrap().transaction_id();
    let answer = |id, key: Option<&str>| {
        let mut out = Vec::new();
        let writer = MessageWriter::new(&mut out, Class::Success, id).mapped_address(address(1, 1));
        match key {
            Some(key) => writer.finish(key.as_bytes()),
            None => writer.finish_open(),
        };
        out
    };
    let now = clock.now();
    agent.handle_datagram(now, *path, &answer(id, None));
    agent.handle_datagram(now, *path, &answer(id, Some("wrong")));
    agent.handle_datagram(now, *path, &answer(TransactionId([0; 12]), Some(peer.password())));
    assert!(agent.selected().is_none() && !agent.is_valid(path));
    assert_eq!(agent.stats().integrity_checks, 1, "unknown answers cost no HMAC");
    agent.handle_datagram(now, *path, &answer(id, Some(peer.password())));
    assert_eq!(agent.selected(), Some(*path));
}

#[test]
fn i_04_an_answer_by_another_way_fails_the_pair() {
    let clock = Clock::new();
    let mut agent = full(&clock, Role::Controlling, 1);
    let peer = Credentials::random(&Seed::from_number(2));
    agent.set_remote(clock.now(), peer.clone(), false);
    agent.add_remote(clock.now(), &Candidate::host(Transport::Udp, address(9, 9), 1)).unwrap();
    let (_, request) = drained(&mut agent, &clock).remove(0);
    let mut out = Vec::new();
    MessageWriter::new(&mut out, Class::Success, Message::read(&request).unwrap().transaction_id())
        .mapped_address(address(1, 1))
        .finish(peer.password().as_bytes());
    agent.handle_datagram(clock.now(), Path::udp(address(1, 1), address(9, 8)), &out);
    assert_eq!((agent.selected(), agent.stats().failed), (None, 1));
}

#[test]
fn i_05_media_is_taken_from_validated_paths_only() {
    let clock = Clock::new();
    let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
    let b = End::lite(&clock, 2, &[address(2, 2)]);
    let mut pair = pair(1, clock, a, b);
    pair.a.media_interval = Some(ms(20));
    signal(&mut pair);
    connect(&mut pair, CONNECT).unwrap();
    pair.run_for(secs(5)).unwrap();
    assert!(pair.b.media_in > 200 && pair.b.media_refused == 0);
    for path in [
        Path::udp(address(2, 2), address(1, 2)),
        Path::udp(address(2, 2), address(3, 1)),
        Path::udp(address(2, 3), address(1, 1)),
        Path::tcp(address(2, 2), address(1, 1)),
    ] {
        assert!(!pair.b.lite_agent().is_valid(&path) && !pair.a.agent().is_valid(&path));
    }
}

/// Checks an attacker that knows the credentials and abuses them.
#[test]
fn i_10_caps_hold_against_an_authentic_flood() {
    let mut clock = Clock::new();
    for role in [Role::Controlling, Role::Controlled] {
        let mut agent = full(&clock, role, 1);
        let peer = Credentials::random(&Seed::from_number(2));
        agent.set_remote(clock.now(), peer.clone(), false);
        let local = agent.local().clone();
        let mut random: Random = Seed::from_number(4).random();
        for n in 0..3000_u64 {
            let mut out = Vec::new();
            let mut id = TransactionId([0; 12]);
            random.fill(&mut id.0);
            MessageWriter::new(&mut out, Class::Request, id)
                .username(local.ufrag(), peer.ufrag())
                .priority(random.below(u64::from(u32::MAX)) as u32)
                .use_candidate(n % 3 == 0)
                .finish(local.password().as_bytes());
            let from = address(9, 1 + random.below(60_000) as u16);
            agent.handle_datagram(clock.now(), Path::udp(address(1, 1), from), &out);
            if n % 50 == 0 {
                clock.advance(ms(random.below(300)));
                agent.handle_timeout(clock.now());
                drained(&mut agent, &clock);
            }
            assert!(agent.remote_candidates() <= limits::CANDIDATES_MAX);
            assert!(agent.pairs() <= limits::CHECK_LIST_MAX);
            assert!(agent.transactions() <= limits::TRANSACTIONS_MAX);
        }
    }
}

#[test]
fn i_09_a_full_agents_answers_are_short_too() {
    let clock = Clock::new();
    let mut agent = full(&clock, Role::Controlled, 1);
    let local = agent.local().clone();
    for unknown in 0..9_u16 {
        let mut out = Vec::new();
        let mut writer = MessageWriter::new(&mut out, Class::Request, TransactionId([2; 12]))
            .username(local.ufrag(), "peer");
        for kind in 0..unknown {
            writer = writer.attribute(ice::stun::AttributeType(0x0050 + kind), &[]);
        }
        writer.finish(local.password().as_bytes());
        agent.handle_datagram(clock.now(), Path::udp(address(1, 1), address(9, 9)), &out);
        let answers = drained(&mut agent, &clock);
        assert!(answers.len() == 1 && answers[0].1.len() <= out.len() * 2);
    }
}

#[test]
fn closing_is_last_and_silent() {
    let clock = Clock::new();
    let mut agent = full(&clock, Role::Controlling, 1);
    agent.close(clock.now());
    agent.close(clock.now());
    let events: Vec<Event> = std::iter::from_fn(|| agent.poll_event()).collect();
    assert_eq!(events.len(), 1);
    agent.handle_timeout(clock.now() + secs(60));
    assert!(agent.poll_timeout().is_none() && agent.poll_event().is_none());
    assert!(agent.add_local(clock.now(), address(1, 2)).is_err());
    agent.set_remote(clock.now(), Credentials::random(&Seed::from_number(2)), true);
    agent.restart(clock.now(), &Seed::from_number(3));
    assert_eq!(drained(&mut agent, &clock), []);
}
