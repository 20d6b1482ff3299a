use netsim::{Clock, ms};

use super::*;
use crate::stun::{Class, ErrorCode, Message, MessageWriter, RoleAttribute, TransactionId};

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 5000))
}

/// Creates two agents with each other's credentials; `a` is host 1.
fn two(roles: [Role; 2]) -> (Clock, [Agent; 2]) {
    let clock = Clock::new();
    let now = clock.now();
    let make = |host: u8| {
        let config = Config { role: roles[usize::from(host) - 1], ..Config::default() };
        let mut agent = Agent::new(now, Arc::new(config), &Seed::from_number(u64::from(host)));
        agent.add_local(now, address(host)).unwrap();
        agent
    };
    let mut agents = [make(1), make(2)];
    let [of_a, of_b] = [0, 1].map(|index: usize| agents[index].local().clone());
    agents[0].set_remote(now, of_b, false);
    agents[1].set_remote(now, of_a, false);
    (clock, agents)
}

fn sent(agent: &mut Agent, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = Vec::new();
    while agent.poll_transmit(now, &mut out).is_some() {
        all.push(std::mem::take(&mut out));
    }
    all
}

/// Delivers datagrams until there are none, then advances the time.
fn run(clock: &mut Clock, agents: &mut [Agent; 2], time: std::time::Duration) {
    let end = clock.now() + time;
    loop {
        let now = clock.now();
        let mut quiet = true;
        for from in 0..2 {
            for datagram in sent(&mut agents[from], now) {
                quiet = false;
                let path = if from == 0 { [2, 1] } else { [1, 2] }.map(address);
                let path = Path::udp(path[0], path[1]);
                agents[1 - from].handle_datagram(now, path, &datagram);
            }
        }
        if quiet {
            let next = agents.iter().filter_map(Agent::poll_timeout).min().filter(|at| *at <= end);
            let Some(at) = next else { break };
            clock.advance_to(at);
            agents.iter_mut().for_each(|agent| agent.handle_timeout(at));
        }
    }
}

#[test]
fn i_07_the_larger_tie_breaker_controls_and_equal_ones_are_told() {
    use Role::{Controlled, Controlling};
    // Columns: our role; the peer's role; how the peer's tie-breaker compares with ours; whether the peer is
    // notified of the conflict; our role afterwards.
    let cases = [
        (Controlling, Controlled, 0, false, Controlling),
        (Controlled, Controlling, 0, false, Controlled),
        (Controlling, Controlling, -1, true, Controlling),
        (Controlling, Controlling, 0, true, Controlling),
        (Controlling, Controlling, 1, false, Controlled),
        (Controlled, Controlled, -1, false, Controlling),
        (Controlled, Controlled, 0, false, Controlling),
        (Controlled, Controlled, 1, true, Controlled),
    ];
    for (ours, theirs, compares, told, then) in cases {
        let (clock, [mut agent, peer]) = two([ours, theirs]);
        let tie_breaker = agent.tie_breaker.saturating_add_signed(compares);
        let mut out = Vec::new();
        MessageWriter::new(&mut out, Class::Request, TransactionId([1; 12]))
            .username(agent.local().ufrag(), peer.local().ufrag())
            .role(match theirs {
                Controlling => RoleAttribute::Controlling(tie_breaker),
                Controlled => RoleAttribute::Controlled(tie_breaker),
            })
            .finish(agent.local().key());
        agent.handle_datagram(clock.now(), Path::udp(address(1), address(2)), &out);
        let answers = sent(&mut agent, clock.now());
        let answer = Message::read(&answers[0]).unwrap();
        let code = told.then_some(ErrorCode::ROLE_CONFLICT);
        assert_eq!((answer.error_code(), agent.role()), (code, then), "{ours:?} {theirs:?} {compares}");
        assert_eq!(agent.is_valid(&Path::udp(address(1), address(2))), !told);
    }
}

#[test]
fn i_07_equal_tie_breakers_come_to_an_end() {
    for role in [Role::Controlling, Role::Controlled] {
        let (mut clock, mut agents) = two([role, role]);
        agents[1].tie_breaker = agents[0].tie_breaker;
        for (from, to) in [(0_usize, 1_usize), (1, 0)] {
            let candidate = *agents[from].local_candidates().next().unwrap();
            agents[to].add_remote(clock.now(), &candidate).unwrap();
        }
        run(&mut clock, &mut agents, ms(2000));
        assert_eq!(agents[0].role(), agents[1].role().other());
        assert!(agents.iter().all(Agent::is_nominated));
    }
}

#[test]
fn i_07_a_conflict_that_was_settled_meanwhile_changes_nothing() {
    let (clock, [mut agent, peer]) = two([Role::Controlling, Role::Controlled]);
    let now = clock.now();
    agent.add_remote(now, &Candidate::host(Transport::Udp, address(2), 1)).unwrap();
    let request = sent(&mut agent, now).remove(0);
    agent.switch_role();
    let mut out = Vec::new();
    MessageWriter::new(&mut out, Class::Error, Message::read(&request).unwrap().transaction_id())
        .error_code(ErrorCode::ROLE_CONFLICT)
        .finish(peer.local().key());
    agent.handle_datagram(now, Path::udp(address(1), address(2)), &out);
    assert_eq!((agent.role(), agent.stats().role_switches), (Role::Controlled, 1));
}

#[test]
fn local_addresses_are_capped_and_known_ones_are_the_same() {
    let (clock, [mut agent, _]) = two([Role::Controlling, Role::Controlled]);
    let now = clock.now();
    let first = agent.add_local(now, address(1)).unwrap();
    assert_eq!(agent.local_candidates().collect::<Vec<_>>(), [&first]);
    let added = (10..100).filter(|host| agent.add_local(now, address(*host)).is_ok()).count();
    assert_eq!(added, LOCALS_MAX - 1);
    assert_eq!(agent.add_local(now, address(200)), Err(Error::TooManyCandidates));
    let (_, [mut agent, _]) = two([Role::Controlling, Role::Controlled]);
    assert_eq!(agent.add_local(now, "0.0.0.0:1".parse().unwrap()), Err(Error::UnusableCandidate));
}

#[test]
fn remote_candidates_are_capped_and_families_do_not_mix() {
    let (clock, [mut agent, _]) = two([Role::Controlling, Role::Controlled]);
    let now = clock.now();
    let v6 = |port| SocketAddr::new("2001:db8::1".parse().unwrap(), port);
    for port in 1..100 {
        let added = agent.add_remote(now, &Candidate::host(Transport::Udp, v6(port), 1));
        assert_eq!(added.is_ok(), usize::from(port) <= CANDIDATES_MAX);
    }
    assert_eq!((agent.remote_candidates(), agent.pairs()), (CANDIDATES_MAX, 0));
    agent.add_local(now, v6(5000)).unwrap();
    assert_eq!(agent.pairs(), CANDIDATES_MAX);
}

#[test]
fn early_late_and_double_timeouts_are_harmless() {
    let (mut clock, mut agents) = two([Role::Controlling, Role::Controlled]);
    let candidate = *agents[1].local_candidates().next().unwrap();
    agents[0].add_remote(clock.now(), &candidate).unwrap();
    for _ in 0..200 {
        run(&mut clock, &mut agents, ms(37));
        clock.advance(ms(37));
        for agent in &mut agents {
            agent.handle_timeout(clock.now());
            agent.handle_timeout(clock.now());
            assert!(agent.poll_timeout().is_some_and(|at| at > clock.now()));
        }
    }
    assert!(agents.iter().all(Agent::is_nominated));
}
