//! Simulations of paths that change, end and restart.

use crypto::Seed;
use ice::{CloseReason, Event, Path, Role};
use netsim::{Clock, Pair, ms, secs};

use crate::harness::{
    CONNECT, End, Nat, address, assert_mirrored, connect, ends, pair, signal, signal_credentials,
};

fn streaming(a: End, b: End, clock: Clock) -> Pair<End, End> {
    let mut pair = pair(1, clock, a, b);
    for end in [&mut pair.a, &mut pair.b] {
        end.media_interval = Some(ms(20));
    }
    signal(&mut pair);
    connect(&mut pair, CONNECT).unwrap();
    pair.run_for(secs(3)).unwrap();
    assert!(pair.a.media_in > 100 && pair.b.media_in > 100);
    pair
}

#[test]
fn i_06_darkness_ends_both_sides_within_the_consent_timeout() {
    for lite in [false, true] {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
        let b = if lite {
            End::lite(&clock, 2, &[address(2, 2)])
        } else {
            End::full(&clock, Role::Controlled, 2, &[address(2, 2)])
        };
        let mut pair = streaming(a, b, clock);
        let dark = pair.clock.now();
        let end = dark + secs(600);
        pair = pair.links(|link| link.blackout(dark, end));
        pair.run_for(ms(30_100)).unwrap();
        assert_eq!(ends(&pair), [Some(CloseReason::ConsentExpired); 2], "lite {lite}");
        for end in [&pair.a, &pair.b] {
            assert!(end.closed.unwrap().1 - dark <= ms(30_020), "{:?}", end.closed.unwrap().1 - dark);
            assert_eq!(end.selected(), None);
        }
    }
}

#[test]
fn darkness_that_ends_in_time_is_survived() {
    let clock = Clock::new();
    let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
    let b = End::full(&clock, Role::Controlled, 2, &[address(2, 2)]);
    let mut pair = streaming(a, b, clock);
    let dark = pair.clock.now();
    let end = dark + secs(20);
    pair = pair.links(|link| link.blackout(dark, end));
    pair.run_for(secs(120)).unwrap();
    assert_eq!(ends(&pair), [None, None]);
}

#[test]
fn a_translator_that_forgets_is_followed() {
    // The role of the side behind the NAT, whether the other is lite, and the longest pause of media in
    // seconds.
    for (role, lite, most) in
        [(Role::Controlling, true, 7), (Role::Controlling, false, 7), (Role::Controlled, false, 16)]
    {
        let clock = Clock::new();
        let mut a = End::full(&clock, role, 1, &[address(1, 1)]);
        a.nat = Some(Nat { inside: address(1, 1), outside: address(100, 4000) });
        let b = if lite {
            End::lite(&clock, 2, &[address(2, 2)])
        } else {
            End::full(&clock, role.other(), 2, &[address(2, 2)])
        };
        let mut pair = streaming(a, b, clock);
        pair.run_for(secs(20)).unwrap();
        let moved = Nat { inside: address(1, 1), outside: address(100, 4001) };
        pair.a.nat = Some(moved);
        pair.run_for(secs(40)).unwrap();
        assert_eq!(pair.b.selected(), Some(Path::udp(address(2, 2), moved.outside)), "{role:?} {lite}");
        assert_mirrored(&pair);
        assert!(pair.a.media_gap < secs(most), "{role:?} {lite} {:?}", pair.a.media_gap);
        assert_eq!(ends(&pair), [None, None]);
        // The former path is forgotten.
        pair.run_for(secs(40)).unwrap();
        assert!(pair.b.events.contains(&Event::Expired(Path::udp(address(2, 2), address(100, 4000)))));
    }
}

#[test]
fn an_address_that_dies_is_left_for_another_that_works() {
    for lite in [false, true] {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1), address(1, 2)]);
        let b = if lite {
            End::lite(&clock, 2, &[address(2, 2)])
        } else {
            End::full(&clock, Role::Controlled, 2, &[address(2, 2)])
        };
        let mut pair = streaming(a, b, clock);
        let before = pair.a.selected().unwrap();
        pair.a.unreachable = vec![before.local];
        pair.run_for(secs(60)).unwrap();
        assert_eq!(ends(&pair), [None, None]);
        assert_ne!(pair.a.selected().unwrap().local, before.local);
        assert_mirrored(&pair);
        assert!(pair.a.media_gap < secs(16), "{lite} {:?}", pair.a.media_gap);
    }
}

#[test]
fn a_restart_moves_to_new_credentials_while_media_goes_on() {
    for (lite, new_address) in [(false, false), (false, true), (true, false), (true, true)] {
        let clock = Clock::new();
        let a = End::full(&clock, Role::Controlling, 1, &[address(1, 1)]);
        let b = if lite {
            End::lite(&clock, 2, &[address(2, 2)])
        } else {
            End::full(&clock, Role::Controlled, 2, &[address(2, 2)])
        };
        let mut pair = streaming(a, b, clock);
        let now = pair.clock.now();
        let before = pair.a.local();
        pair.a.agent().restart(now, &Seed::from_number(11));
        pair.a.drain(now);
        // While the offer is in flight, media and consent continue with the current credentials.
        pair.run_for(secs(12)).unwrap();
        let now = pair.clock.now();
        if lite {
            pair.b.lite_agent().restart(&Seed::from_number(12));
        } else {
            pair.b.agent().restart(now, &Seed::from_number(12));
        }
        if new_address {
            let candidate = pair.a.agent().add_local(now, address(1, 5)).unwrap();
            pair.a.candidates = vec![candidate];
            pair.a.addresses.push(address(1, 5));
            pair.a.unreachable.push(address(1, 1));
        }
        signal_credentials(&mut pair);
        let (of_a, of_b) = (pair.a.candidates.clone(), pair.b.candidates.clone());
        pair.a.learn_candidates(now, &of_b);
        pair.b.learn_candidates(now, &of_a);
        assert_ne!(pair.a.local(), before);
        pair.run_for(secs(60)).unwrap();
        assert!(pair.a.is_nominated() && pair.b.is_nominated());
        assert_mirrored(&pair);
        assert_eq!(pair.a.selected().unwrap().local.port(), if new_address { 5 } else { 1 });
        assert_eq!(ends(&pair), [None, None]);
        let gap = pair.a.media_gap.max(pair.b.media_gap);
        assert!(gap <= if new_address { ms(1500) } else { ms(100) }, "{lite} {new_address} {gap:?}");
        assert_eq!(pair.a.media_refused + pair.b.media_refused, 0);
    }
}
