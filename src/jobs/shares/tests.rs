//! Fifty applications in virtual time, one of which misbehaves. The times for which the other applications wait for
//! threads are compared with a run without misbehaviour.

use crypto::Seed;

use super::*;

const APPS: usize = 50;
const THREADS: usize = 16;
/// Duration of an answered job.
const FAST_MS: u64 = 50;
/// Duration of a job whose target is silent: the time after which the requester gives up.
const SILENT_MS: u64 = 5000;
const RUN_MS: u64 = 40_000;
/// Average interval between the jobs of an application.
const PERIOD_MS: u64 = 1000;

/// A way to use more than a fair share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misuse {
    Nothing,
    /// A single target that is silent.
    SilentTarget,
    /// Sixty targets that are silent.
    SilentTargets,
    /// A new silent target with each job.
    EndlessTargets,
    /// Unlimited jobs, which are answered.
    Flood,
    /// Unlimited jobs with silent targets.
    SilentFlood,
}

fn app(n: usize) -> Option<Arc<str>> {
    Some(format!("app{n}").into())
}

/// Returns the sorted waiting times, in milliseconds, of the jobs of the other applications, and those of the
/// misbehaving application's jobs for its own healthy target. Without shares, all jobs count as the server's own
/// and are run in the order of submission.
fn run(misuse: Misuse, with_shares: bool) -> (Vec<u64>, Vec<u64>) {
    let payer = |app: Option<&Arc<str>>, target: &str| {
        if with_shares { Payer::new(app, target) } else { Payer::default() }
    };
    let mut random = Seed::from_number(7).derive("shares", 0).random();
    let (mut threads, mut lines) = (Threads::new(THREADS), Lines::default());
    let mut running: Vec<(u64, u64, Turn)> = Vec::new();
    let (mut waits, mut own_waits, mut made) = (Vec::new(), Vec::new(), 0_u64);
    for now in 0..RUN_MS {
        for n in 0..APPS {
            // Each run draws the same random numbers.
            let due = random.below(PERIOD_MS) == 0;
            if due {
                lines.push(&payer(app(n).as_ref(), "healthy.example"), (now, n, FAST_MS));
            }
        }
        let bad = app(0);
        let mut silent = |target: &str, service| {
            lines.push(&payer(bad.as_ref(), target), (now, usize::MAX, service));
        };
        made += 1;
        match misuse {
            Misuse::Nothing => {}
            Misuse::SilentTarget if now % 100 == 0 => silent("silent.example", SILENT_MS),
            Misuse::SilentTargets if now % 100 == 0 => silent(&format!("{}.example", made % 60), SILENT_MS),
            Misuse::EndlessTargets if now % 100 == 0 => silent(&format!("{made}.example"), SILENT_MS),
            Misuse::Flood => silent("busy.example", FAST_MS),
            Misuse::SilentFlood => silent(&format!("{}.example", made % 7), SILENT_MS),
            Misuse::SilentTarget | Misuse::SilentTargets | Misuse::EndlessTargets => {}
        }
        let (over, going): (Vec<_>, Vec<_>) = running.into_iter().partition(|(ends, ..)| *ends <= now);
        running = going;
        for (ends, began, turn) in over {
            threads.end(turn, Duration::from_millis(ends - began));
        }
        while let Some(((since, of, service), turn)) = lines.next(&mut threads) {
            match of {
                0 => own_waits.push(now - since),
                usize::MAX => {}
                _ => waits.push(now - since),
            }
            running.push((now + service, now, turn));
        }
        assert!(running.len() <= THREADS && threads.running() == running.len());
    }
    waits.sort_unstable();
    own_waits.sort_unstable();
    (waits, own_waits)
}

fn p99(sorted: &[u64]) -> u64 {
    sorted[sorted.len() * 99 / 100]
}

#[test]
fn q_16_one_of_fifty_that_misuses_threads_slows_no_other_down() {
    let (alone, _) = run(Misuse::Nothing, true);
    let base = p99(&alone) + FAST_MS;
    for misuse in [
        Misuse::SilentTarget,
        Misuse::SilentTargets,
        Misuse::EndlessTargets,
        Misuse::Flood,
        Misuse::SilentFlood,
    ] {
        let (waits, own) = run(misuse, true);
        assert_eq!(waits.len(), alone.len(), "{misuse:?}: jobs of others were not begun");
        let there = p99(&waits) + FAST_MS;
        let (begun, _) = run(misuse, false);
        let without = p99(&begun) + FAST_MS;
        println!("| {misuse:?} | {base} ms | {there} ms | {without} ms, {} begun |", begun.len());
        assert!(there * 4 <= base * 5, "{misuse:?}: {there} ms beside {base} ms");
        // Without shares, the misuse must harm the other applications. Otherwise the simulation would prove
        // nothing.
        assert!(without * 4 > base * 5 || begun.len() < alone.len(), "{misuse:?}: {without} ms");
        assert!(!own.is_empty(), "{misuse:?}: its own healthy target had no turn");
    }
}

#[test]
fn q_16_a_silent_target_leaves_the_others_of_its_application_alone() {
    for misuse in [Misuse::SilentTarget, Misuse::SilentTargets] {
        let (_, own) = run(misuse, true);
        // At first, it is unknown which targets are silent, so a job may wait until a job for a silent target has timed
        // out.
        assert!(p99(&own) <= SILENT_MS, "{misuse:?}: {} ms", p99(&own));
        let median = own[own.len() / 2];
        assert!(median <= FAST_MS, "{misuse:?}: {median} ms");
    }
}

#[test]
fn a_slow_target_that_has_become_fast_has_its_part_again() {
    let mut threads = Threads::new(16);
    let payer = Payer::new(app(1).as_ref(), "a");
    let turn = threads.begin(payer.clone());
    threads.end(turn, SLOW);
    let turns: Vec<Turn> = (0..threads.of_slow_max()).map(|_| threads.begin(payer.clone())).collect();
    assert!(!threads.may_begin(&payer));
    assert!(threads.may_begin(&Payer::new(app(1).as_ref(), "b")));
    turns.into_iter().for_each(|turn| threads.end(turn, Duration::ZERO));
    let turns: Vec<Turn> = (0..threads.of_slow_max()).map(|_| threads.begin(payer.clone())).collect();
    assert!(threads.may_begin(&payer));
    turns.into_iter().for_each(|turn| threads.end(turn, SLOW));
    assert!(threads.apps.is_empty() && threads.targets.is_empty());
    assert_eq!((threads.running, threads.slow_running), (0, 0));
}

#[test]
fn slow_targets_are_forgotten_when_there_are_too_many() {
    let mut threads = Threads::new(2);
    for n in 0..KNOWN_MAX + 100 {
        let turn = threads.begin(Payer::new(app(1).as_ref(), &n.to_string()));
        threads.end(turn, SLOW);
    }
    assert_eq!((threads.known.len(), threads.order.len()), (KNOWN_MAX, KNOWN_MAX));
    assert_eq!(threads.slow_of.values().sum::<usize>(), KNOWN_MAX);
    // The targets become fast one after another, until none is suspected to be slow.
    for n in 100..KNOWN_MAX + 100 {
        let turn = threads.begin(Payer::new(app(1).as_ref(), &n.to_string()));
        threads.end(turn, Duration::ZERO);
    }
    assert!(threads.slow_of.is_empty() && threads.known.len() == KNOWN_MAX);
}

#[test]
fn the_server_itself_goes_first_and_has_every_thread() {
    let (mut threads, mut lines) = (Threads::new(4), Lines::default());
    (0..9).for_each(|n| lines.push(&Payer::new(app(1).as_ref(), ""), n));
    (10..13).for_each(|n| lines.push(&Payer::default(), n));
    let begun: Vec<i32> = std::iter::from_fn(|| lines.next(&mut threads)).map(|(item, _)| item).collect();
    assert_eq!(begun, [10, 11, 12, 0]);
    assert_eq!(lines.len(), 8);
}

/// Fills the limit: first one application takes as many places as it can get, then each of the others does.
fn fill(limit: usize, apps: usize) -> Vec<usize> {
    let mut held = vec![0; apps];
    for n in 0..apps {
        loop {
            let others = held.iter().enumerate().filter(|(other, _)| *other != n).map(|(_, held)| *held);
            if !Room::new(limit, held[n], others).is_there() {
                break;
            }
            held[n] += 1;
        }
    }
    assert!(held.iter().sum::<usize>() <= limit, "{held:?}");
    held
}

#[test]
fn q_17_who_comes_later_finds_room() {
    assert_eq!(fill(1000, 1), [1000], "alone it has everything");
    let two = fill(1000, 2);
    assert!(two[0] >= 800 && two[1] >= 120, "{two:?}");
    let fifty = fill(100_000, 50);
    assert!(fifty[0] >= 80_000 && fifty.iter().all(|held| *held >= 1), "{fifty:?}");
    assert_eq!(fill(2, 1), [2]);
    assert_eq!(fill(2, 2), [2, 0], "a limit of two is no more than two");
}

#[test]
fn q_17_who_is_there_keeps_a_part_of_what_is_left() {
    // Fifty applications hold a few items each. One of them then takes as many as it can get.
    let (limit, mut held) = (100_000, vec![10_usize; 50]);
    let others = |held: &[usize]| held[1..].to_vec();
    while Room::new(limit, held[0], others(&held).into_iter()).is_there() {
        held[0] += 1;
    }
    assert!(held[0] <= limit * 52 / 100, "{}", held[0]);
    for n in 1..50 {
        let mut rest = held.clone();
        let own = rest.remove(n);
        for more in 0..limit / 100 - 10 {
            assert!(Room::new(limit, own + more, rest.iter().copied()).is_there(), "{n}: {more}");
            held[n] = own + more + 1;
        }
    }
}
