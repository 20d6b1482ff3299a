//! Simulations of agents that connect.

use ice::{Candidate, CandidateKind, CloseReason, Config, Event, Path, Role, TcpType, Transport};
use netsim::{Clock, ms, secs};

use crate::harness::{CONNECT, End, Nat, address, connect, ends, pair, signal, signal_credentials};

const ROLES: [[Role; 2]; 4] = [
    [Role::Controlling, Role::Controlled],
    [Role::Controlled, Role::Controlling],
    [Role::Controlling, Role::Controlling],
    [Role::Controlled, Role::Controlled],
];

#[test]
fn i_07_two_full_agents_agree_whatever_roles_they_begin_with() {
    for seed in 0..20 {
        for [role_a, role_b] in ROLES {
            let clock = Clock::new();
            let a = End::full(&clock, role_a, seed, &[address(1, 1)]);
            let b = End::full(&clock, role_b, seed + 1000, &[address(2, 2)]);
            let mut pair = pair(seed, clock, a, b);
            signal(&mut pair);
            let took = connect(&mut pair, CONNECT).unwrap();
            assert!(took <= ms(400), "{role_a:?} {role_b:?} {took:?}");
            let [a, b] = [pair.a.agent().role(), pair.b.agent().role()];
            assert_eq!(a, b.other());
            let switches = pair.a.stats().role_switches + pair.b.stats().role_switches;
            assert_eq!(switches > 0, role_a == role_b, "{role_a:?} {role_b:?}");
            let connected = pair.a.events.iter().filter(|event| **event == Event::Connected).count();
            assert_eq!(connected, 1);
        }
    }
}

#[test]
fn a_full_agent_and_a_lite_one() {
    for role in [Role::Controlling, Role::Controlled] {
        let clock = Clock::new();
        let a = End::full(&clock, role, 1, &[address(1, 1)]);
        let b = End::lite(&clock, 2, &[address(2, 2)]);
        let mut pair = pair(1, clock, a, b);
        signal(&mut pair);
        assert!(connect(&mut pair, CONNECT).unwrap() <= ms(100));
        assert_eq!(pair.a.agent().role(), Role::Controlling);
        pair.run_for(secs(120)).unwrap();
        assert_eq!(ends(&pair), [None, None]);
        // Only an initial check, a nomination, and a consent check every five seconds are sent.
        let checks = pair.a.stats().checks_sent;
        assert!((20..=32).contains(&checks), "{checks}");
    }
}

#[test]
fn of_several_addresses_the_best_that_works_is_nominated() {
    let clock = Clock::new();
    let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1), address(1, 2), address(1, 3)]);
    let mut b = End::full(&clock, Role::Controlled, 2, &[address(2, 1), address(2, 2), address(2, 3)]);
    b.unreachable = vec![address(2, 1)];
    let mut pair = pair(1, clock, a, b);
    pair.a.unreachable = vec![address(1, 1)];
    signal(&mut pair);
    connect(&mut pair, CONNECT).unwrap();
    let best = Path::udp(address(1, 2), address(2, 2));
    assert_eq!(pair.a.selected(), Some(best));
    assert!(pair.a.agent().pairs() >= 9);
}

#[test]
fn candidates_may_come_late_and_in_any_order() {
    for order in 0..4 {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
        let b = End::full(&clock, Role::Controlled, 2, &[address(2, 2)]);
        let mut pair = pair(1, clock, a, b);
        let (of_a, of_b) = (pair.a.candidates.clone(), pair.b.candidates.clone());
        let steps: [u8; 3] = [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]][order];
        for step in steps {
            let now = pair.clock.now();
            match step {
                0 => signal_credentials(&mut pair),
                1 => pair.a.learn_candidates(now, &of_b),
                _ => pair.b.learn_candidates(now, &of_a),
            }
            pair.run_for(secs(2)).unwrap();
        }
        connect(&mut pair, CONNECT).unwrap();
    }
}

#[test]
fn a_peer_without_candidates_is_learnt_from_its_checks() {
    for role in [Role::Controlling, Role::Controlled] {
        let clock = Clock::new();
        let a = End::full(&clock, role, 1, &[address(1, 1)]);
        let b = End::full(&clock, role.other(), 2, &[address(2, 2)]);
        let mut pair = pair(1, clock, a, b);
        signal_credentials(&mut pair);
        // B can use none of the candidates it receives: host names, and a browser's TCP candidate with port 9.
        let now = pair.clock.now();
        pair.b.agent().ignore_remote();
        let useless = Candidate::host(Transport::Tcp(TcpType::Active), address(1, 9), 1);
        assert!(pair.b.agent().add_remote(now, &useless).is_err());
        let of_b = pair.b.candidates.clone();
        pair.a.learn_candidates(now, &of_b);
        connect(&mut pair, CONNECT).unwrap();
        assert_eq!(pair.b.stats().candidates_ignored, 2);
        assert_eq!(pair.b.agent().remote_candidates(), 1);
    }
}

#[test]
fn both_behind_translators_meet_by_what_a_server_saw() {
    let clock = Clock::new();
    let nat = Nat { inside: address(1, 1), outside: address(100, 4000) };
    // First, the agent has only the STUN server.
    let mut a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
    a.nat = Some(nat);
    a.agent().gather(clock.now(), address(1, 1), address(50, 3478)).unwrap();
    a.drain(clock.now());
    let mut with_server = pair(1, clock, a, End::server(address(50, 3478)));
    with_server.run_until(secs(1), |a, _| a.candidates.len() == 2).unwrap();
    let seen = with_server.a.candidates[1];
    assert_eq!((seen.address, seen.kind), (nat.outside, CandidateKind::ServerReflexive));
    assert_eq!(seen.base, Some(nat.inside));
    // Then the agent has a peer, which is only given the reflexive candidate.
    let clock = with_server.clock;
    let b = End::full(&clock, Role::Controlled, 2, &[address(2, 2)]);
    let mut pair = pair(1, clock, with_server.a, b);
    signal(&mut pair);
    connect(&mut pair, CONNECT).unwrap();
    assert_eq!(pair.b.selected(), Some(Path::udp(address(2, 2), nat.outside)));
}

#[test]
fn a_server_that_sees_what_is_known_or_is_silent_tells_nothing() {
    let clock = Clock::new();
    let mut a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
    assert!(a.agent().gather(clock.now(), address(9, 9), address(50, 3478)).is_err());
    a.agent().gather(clock.now(), address(1, 1), address(50, 3478)).unwrap();
    a.agent().gather(clock.now(), address(1, 1), address(51, 3478)).unwrap();
    a.drain(clock.now());
    let mut pair = pair(1, clock, a, End::server(address(50, 3478)));
    pair.run_for(secs(14)).unwrap();
    assert_eq!(pair.a.candidates.len(), 1);
    assert_eq!((pair.a.stats().succeeded, pair.a.stats().failed), (1, 1));
}

#[test]
fn nobody_answers_and_the_wait_ends() {
    let clock = Clock::new();
    let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
    let b = End::full(&clock, Role::Controlled, 2, &[address(2, 2)]);
    let mut pair = pair(1, clock, a, b);
    (pair.a.unreachable, pair.b.unreachable) = (vec![address(1, 1)], vec![address(2, 2)]);
    signal(&mut pair);
    pair.run_for(secs(16)).unwrap();
    assert_eq!(ends(&pair), [Some(CloseReason::ConnectTimeout); 2]);
    // The agent sends one check immediately, one after half a second, and then one per second.
    assert_eq!(pair.a.stats().checks_sent, 15);
}

#[test]
fn checks_are_paced() {
    let clock = Clock::new();
    let addresses: Vec<_> = (1..=10).map(|port| address(1, port)).collect();
    let others: Vec<_> = (1..=10).map(|port| address(2, port)).collect();
    let config = Config { nominate_after: secs(60), ..Config::default() };
    let mut a = End::configured(&clock, config, 1, &addresses);
    let mut b = End::full(&clock, Role::Controlled, 2, &others);
    (a.unreachable, b.unreachable) = (addresses, others);
    let mut pair = pair(1, clock, a, b);
    signal(&mut pair);
    assert_eq!(pair.a.agent().pairs(), 100);
    let mut before = 0;
    for _ in 0..40 {
        pair.run_for(ms(50)).unwrap();
        let stats = pair.a.stats();
        let new = stats.checks_sent - stats.retransmitted;
        assert!(new - before <= 1 + u64::from(before == 0), "{new} {before}");
        before = new;
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, seed, &[address(1, 1), address(1, 2)]);
        let b = End::full(&clock, Role::Controlling, seed + 7, &[address(2, 2), address(2, 3)]);
        let mut pair = pair(seed, clock, a, b).links(|link| link.loss(0.1).jitter(ms(10)).duplicate(0.1));
        signal(&mut pair);
        pair.run_for(secs(60)).unwrap();
        (pair.trace(), pair.a.events.clone(), pair.a.stats())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0.hash(), run(2).0.hash());
}
