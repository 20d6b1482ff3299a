//! Tests of loss, duplication and reordering during a handshake; exhaustive for the first datagrams.

use super::*;
use crate::handshake::{FragmentHead, MessageType};

/// Both ends and the datagrams in flight, in order.
struct Wire {
    ends: Ends,
    /// Number of datagrams so far, in both directions.
    number: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    Lost,
    Doubled,
    /// Delivered after everything in flight.
    Late,
}

impl Wire {
    fn new(versions: Versions, client_first: bool, mtu: usize) -> Self {
        let with = |number| Config { mtu, versions, ..config(number) };
        let mut ends = Ends::new(with(1), with(2));
        // The server starts later; before that, nobody answers the client.
        if client_first {
            ends.client.start(ends.clock.now());
            ends.clock.advance(ms(20));
            ends.server.start(ends.clock.now());
        } else {
            ends.server.start(ends.clock.now());
            ends.clock.advance(ms(20));
            ends.client.start(ends.clock.now());
        }
        Self { ends, number: 0 }
    }

    /// Sends the datagrams of both ends and applies a fate to each. Returns false if there were none.
    fn exchange(&mut self, fate: &mut impl FnMut(u32) -> Fate) -> bool {
        let now = self.ends.clock.now();
        let mut any = false;
        for from_client in [true, false] {
            let (from, to) = if from_client {
                (&mut self.ends.client, &mut self.ends.server)
            } else {
                (&mut self.ends.server, &mut self.ends.client)
            };
            let (mut arriving, mut late) = (Vec::new(), Vec::new());
            for datagram in sent(from, now) {
                any = true;
                match fate(self.number) {
                    Fate::Arrives => arriving.push(datagram),
                    Fate::Lost => {}
                    Fate::Doubled => arriving.extend([datagram.clone(), datagram]),
                    Fate::Late => late.push(datagram),
                }
                self.number += 1;
            }
            arriving.extend(late);
            deliver(to, now, &arriving);
            assert!(from.held_bytes() <= 80 * 1024);
        }
        any
    }

    /// Checks that soon after both ends are connected, no timeouts remain, and data arrives.
    #[track_caller]
    fn settle(&mut self, case: &str) {
        for _ in 0..10 {
            while self.exchange(&mut |_| Fate::Arrives) {}
            let next =
                self.ends.client.poll_timeout().into_iter().chain(self.ends.server.poll_timeout()).min();
            let Some(at) = next else { break };
            self.ends.clock.advance_to(at);
            self.ends.client.handle_timeout(at);
            self.ends.server.handle_timeout(at);
        }
        let ends = &mut self.ends;
        assert_eq!((ends.client.poll_timeout(), ends.server.poll_timeout()), (None, None), "{case}");
        for end in [&mut ends.client, &mut ends.server] {
            assert!(matches!(end.poll_event(), Some(Event::Connected(_))), "{case}");
            end.send(b"data").unwrap();
        }
        ends.run();
        for end in [&mut ends.client, &mut ends.server] {
            assert_eq!(end.poll_event(), Some(Event::Data("data".into())), "{case}");
        }
    }

    /// Runs until both ends are connected, and returns true; returns false if an end timed out.
    fn run(&mut self, mut fate: impl FnMut(u32) -> Fate) -> bool {
        for _ in 0..1000 {
            while self.exchange(&mut fate) {}
            let (client, server) = (&mut self.ends.client, &mut self.ends.server);
            if client.is_connected() && server.is_connected() {
                return true;
            }
            let Some(at) = client.poll_timeout().into_iter().chain(server.poll_timeout()).min() else {
                return false;
            };
            assert!(at > self.ends.clock.now(), "a deadline stays in the past");
            self.ends.clock.advance_to(at);
            for end in [client, server] {
                if end.poll_timeout().is_some_and(|at| at <= self.ends.clock.now()) {
                    end.handle_timeout(self.ends.clock.now());
                }
            }
        }
        panic!("neither connected nor over");
    }
}

#[test]
fn d_11_all_patterns_of_loss_of_the_first_eight_datagrams() {
    for (versions, mtu) in SPOKEN.into_iter().flat_map(|versions| [(versions, 1200), (versions, 300)]) {
        for client_first in [true, false] {
            for pattern in 0..256u32 {
                let mut wire = Wire::new(versions, client_first, mtu);
                let lost = |number| number < 8 && pattern >> number & 1 == 1;
                let connected = wire.run(|number| if lost(number) { Fate::Lost } else { Fate::Arrives });
                let case = format!("{versions:?} {mtu} {client_first} {pattern:08b}");
                assert!(wire.ends.clock.elapsed() <= secs(11), "{case}");
                // With eight consecutive losses, the ninth try would come too late.
                assert_eq!(connected, pattern != 0xff, "{case}");
                if connected {
                    wire.settle(&case);
                }
            }
        }
    }
}

#[test]
fn d_11_all_patterns_of_doubling_and_reordering_of_the_first_eight_datagrams() {
    for (versions, mtu) in SPOKEN.into_iter().flat_map(|versions| [(versions, 1200), (versions, 300)]) {
        for pattern in 0..256u32 {
            for fate in [Fate::Doubled, Fate::Late] {
                let mut wire = Wire::new(versions, true, mtu);
                let hit = |number| number < 8 && pattern >> number & 1 == 1;
                let case = format!("{versions:?} {mtu} {fate:?} {pattern:08b}");
                assert!(wire.run(|number| if hit(number) { fate } else { Fate::Arrives }), "{case}");
                assert!(wire.ends.clock.elapsed() <= secs(1), "{case}");
                wire.settle(&case);
            }
        }
    }
}

/// Checks that a client whose peer never answers tries eight times, and ends ten seconds after the start.
#[test]
fn d_11_silence_ends_after_ten_seconds() {
    for versions in SPOKEN {
        let mut wire = Wire::new(versions, true, 1200);
        assert!(!wire.run(|_| Fate::Lost));
        assert_eq!(wire.number, 8);
        assert_eq!(wire.ends.clock.elapsed(), ms(10_020));
        assert_eq!(reason(&mut wire.ends.client), CloseReason::Timeout);
        assert_eq!(reason(&mut wire.ends.server), CloseReason::Timeout);
    }
}

/// Checks that a lost last flight is replaced: the client repeats Finished, and the server answers with its
/// stored flight.
#[test]
fn d_11_a_lost_last_flight_is_retransmitted() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let now = ends.clock.now();
    let hello = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &hello);
    let flight = sent(&mut ends.server, now);
    deliver(&mut ends.client, now, &flight);
    let flight = sent(&mut ends.client, now);
    deliver(&mut ends.server, now, &flight);
    assert!(ends.server.is_connected());
    for round in 1..=3 {
        assert_eq!(sent(&mut ends.server, now).len(), 1, "{round}");
        // The same datagram again is a replay, and is dropped; only a new datagram is answered.
        deliver(&mut ends.server, now, &flight);
        assert_eq!(sent(&mut ends.server, now).len(), 0);
        ends.clock.advance(secs(1));
        ends.client.handle_timeout(ends.clock.now());
        let again = sent(&mut ends.client, now);
        deliver(&mut ends.server, now, &again);
    }
    ends.run();
    assert!(ends.client.is_connected());
}

/// Checks that a client that missed the server's last flight, and repeats its own flight in fragments, gets
/// one answer, not one per fragment.
#[test]
fn d_11_a_late_finished_in_fragments_is_one_question() {
    let (mut ends, _) = server_before_its_last_flight();
    let now = ends.clock.now();
    assert_eq!(sent(&mut ends.server, now).len(), 1);
    for round in 1..=3 {
        // Twelve bytes fit into any datagram, so the client's Finished is divided by hand.
        let mut fragments = Vec::new();
        for offset in [4, 8, 0, 4, 8] {
            let head =
                FragmentHead { kind: MessageType::FINISHED, length: 12, sequence: 4, offset, fragment: 4 };
            let mut clear = Vec::new();
            head.write(&mut clear);
            clear.extend_from_slice(&[0; 4]);
            let mut datagram = Vec::new();
            let records = &mut ends.client.records;
            records.write(true, ContentType::HANDSHAKE, VERSION_1_2, &clear, &mut datagram).unwrap();
            fragments.push(datagram);
        }
        let answers: usize = fragments
            .iter()
            .map(|fragment| {
                deliver(&mut ends.server, now, std::slice::from_ref(fragment));
                sent(&mut ends.server, now).len()
            })
            .sum();
        assert_eq!((answers, ends.server.stats().retransmits), (1, round));
    }
}

/// Checks that a peer that keeps repeating its flight gets one answer per half of the timeout.
#[test]
fn d_11_a_peer_that_repeats_itself_is_answered_within_a_rate() {
    let mut ends = Ends::new(config(1), config(2)).start();
    let hello = sent(&mut ends.client, ends.clock.now());
    deliver(&mut ends.server, ends.clock.now(), &hello);
    let flight = sent(&mut ends.server, ends.clock.now());
    deliver(&mut ends.client, ends.clock.now(), &flight);
    let own = sent(&mut ends.client, ends.clock.now()).len();
    let mut answers = 0;
    // The first timeout is 50 ms; the client's deadlines are not handled, so it only reacts to repetitions.
    for _ in 0..100 {
        ends.clock.advance(ms(1));
        deliver(&mut ends.client, ends.clock.now(), &flight);
        answers += sent(&mut ends.client, ends.clock.now()).len();
    }
    assert_eq!((answers, ends.client.stats().retransmits), (4 * own, 4));
}
