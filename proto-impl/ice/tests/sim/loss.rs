//! Simulations of lossy links with many seeds.

use ice::Role;
use netsim::{Clock, ms, secs};

use crate::harness::{CONNECT, End, address, connect, ends, pair, signal};

fn seeds() -> u64 {
    std::env::var("MILLSTREAM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn others(clock: &Clock, seed: u64) -> End {
    if seed.is_multiple_of(2) {
        End::lite(clock, seed + 100_000, &[address(2, 2)])
    } else {
        let role = if seed % 4 == 1 { Role::Controlled } else { Role::Controlling };
        End::full(clock, role, seed + 100_000, &[address(2, 2)])
    }
}

#[test]
fn ten_percent_of_loss_keep_nobody_apart() {
    let mut times = Vec::new();
    for seed in 0..seeds() {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, seed, &[address(1, 1)]);
        let b = others(&clock, seed);
        let mut pair = pair(seed, clock, a, b).links(|link| link.loss(0.1).jitter(ms(10)).reorder(0.02));
        signal(&mut pair);
        times.push(connect(&mut pair, CONNECT).unwrap_or_else(|stuck| panic!("{stuck}")));
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("median {:?}, 99 % {:?}, worst {:?}", at(50), at(99), at(100));
    assert!(at(50) <= ms(300));
}

#[test]
fn a_third_of_loss_each_way_keeps_one_of_two_hundred_apart_at_most() {
    let mut apart = Vec::new();
    for seed in 0..seeds() {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, seed, &[address(1, 1)]);
        let b = End::lite(&clock, seed + 100_000, &[address(2, 2)]);
        let mut pair = pair(seed, clock, a, b).links(|link| link.loss(0.35));
        signal(&mut pair);
        if connect(&mut pair, CONNECT).is_err() {
            apart.push(seed);
        }
    }
    assert!(apart.len() as u64 * 200 <= seeds(), "{apart:?}");
}

#[test]
fn i_06_consent_survives_loss() {
    for seed in 0..seeds().min(60) {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, seed, &[address(1, 1)]);
        let b = others(&clock, seed);
        let mut pair = pair(seed, clock, a, b).links(|link| link.loss(0.2).jitter(ms(10)));
        signal(&mut pair);
        pair.run_for(secs(600)).unwrap();
        assert_eq!(ends(&pair), [None, None], "seed {seed}");
    }
}
