//! Simulation of two state machines that exchange datagrams, with a link in each direction and a clock.

use std::time::{Duration, Instant};

use crypto::Seed;

use crate::{Clock, Input, Link, Peer, Trace};

/// Maximum number of rounds at one instant of virtual time. A transfer over links without latency may need many.
pub(crate) const ROUNDS_MAX: u32 = 100_000;
/// Maximum number of consecutive timeouts that neither change the deadline nor send anything.
pub(crate) const FRUITLESS_MAX: u32 = 100;

/// Error of a simulation whose condition did not become true. The trace contains the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// The condition did not become true in time.
    #[error("not reached within {limit:?} ({trace})")]
    TimeLimit {
        /// The time limit.
        limit: Duration,
        /// Trace up to the stop.
        trace: Trace,
    },
    /// Nothing is in flight and no deadline is set, so the condition can no longer become true.
    #[error("nothing will ever happen again at {at:?} ({trace})")]
    Quiet {
        /// Time since the start.
        at: Duration,
        /// Trace up to the stop.
        trace: Trace,
    },
    /// The state machines do something all the time without time passing, or a deadline stays in the past.
    #[error("livelock at {at:?} ({trace})")]
    Livelock {
        /// Time since the start.
        at: Duration,
        /// Trace up to the stop.
        trace: Trace,
    },
}

/// Simulation of the state machines `a` and `b` with each other.
#[derive(Debug)]
pub struct Pair<A, B> {
    /// Virtual time.
    pub clock: Clock,
    /// The first state machine.
    pub a: A,
    /// The second state machine.
    pub b: B,
    /// The link from `a` to `b`.
    pub a_to_b: Link,
    /// The link from `b` to `a`.
    pub b_to_a: Link,
    trace: Trace,
    rounds: u32,
    fruitless: u32,
}

impl<A: Peer, B: Peer> Pair<A, B> {
    /// Connects both state machines over perfect links. They must have been created with the current time of `clock`.
    pub fn new(seed: u64, clock: Clock, a: A, b: B) -> Self {
        let seeds = Seed::from_number(seed);
        let (a_to_b, b_to_a) = (Link::new(&seeds.derive("a to b", 0)), Link::new(&seeds.derive("b to a", 0)));
        Self { clock, a, b, a_to_b, b_to_a, trace: Trace::new(seed), rounds: 0, fruitless: 0 }
    }

    /// Changes the settings of both links. Each keeps its own random generator.
    #[must_use]
    pub fn links(mut self, change: impl Fn(Link) -> Link) -> Self {
        self.a_to_b = change(self.a_to_b);
        self.b_to_a = change(self.b_to_a);
        self
    }

    /// Runs until `reached` returns true, but no longer than `limit`. Returns the time that it took.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut reached: impl FnMut(&A, &B) -> bool,
    ) -> Result<Duration, Stuck> {
        let start = self.clock.elapsed();
        let end = self.clock.now() + limit;
        while !reached(&self.a, &self.b) {
            if self.round() {
                self.check_progress()?;
                continue;
            }
            match self.next_at() {
                Some(at) if at <= end => self.advance_to(at),
                Some(_) => return Err(Stuck::TimeLimit { limit, trace: self.trace }),
                None => return Err(Stuck::Quiet { at: self.clock.elapsed(), trace: self.trace }),
            }
        }
        Ok(self.clock.elapsed().saturating_sub(start))
    }

    /// Runs for `time`, whatever happens.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Stuck> {
        let end = self.clock.now() + time;
        loop {
            if self.round() {
                self.check_progress()?;
                continue;
            }
            match self.next_at() {
                Some(at) if at <= end => self.advance_to(at),
                Some(_) | None => break,
            }
        }
        self.advance_to(end);
        Ok(())
    }

    /// Trace of the deliveries so far.
    #[must_use]
    pub const fn trace(&self) -> Trace {
        self.trace
    }

    /// Lets both state machines send, receive and handle deadlines at the current instant. Returns false if there was
    /// nothing to do.
    fn round(&mut self) -> bool {
        let (now, at) = (self.clock.now(), self.clock.elapsed());
        let sent =
            transmit(&mut self.a, &mut self.a_to_b, now) | transmit(&mut self.b, &mut self.b_to_a, now);
        let to_b = deliver(&mut self.a_to_b, &mut self.b, now, |bytes| self.trace.record(at, 0, bytes));
        let to_a = deliver(&mut self.b_to_a, &mut self.a, now, |bytes| self.trace.record(at, 1, bytes));
        let fired = fire(&mut self.a, now) | fire(&mut self.b, now);
        self.fruitless = if fired && !sent && !to_a && !to_b { self.fruitless + 1 } else { 0 };
        self.rounds += 1;
        sent || to_a || to_b || fired
    }

    fn check_progress(&self) -> Result<(), Stuck> {
        if self.rounds > ROUNDS_MAX || self.fruitless > FRUITLESS_MAX {
            return Err(Stuck::Livelock { at: self.clock.elapsed(), trace: self.trace });
        }
        Ok(())
    }

    fn next_at(&self) -> Option<Instant> {
        let deadlines =
            [self.a_to_b.next_at(), self.b_to_a.next_at(), self.a.poll_timeout(), self.b.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    fn advance_to(&mut self, at: Instant) {
        self.clock.advance_to(at);
        self.rounds = 0;
        self.fruitless = 0;
    }
}

fn transmit(from: &mut impl Peer, link: &mut Link, now: Instant) -> bool {
    let mut any = false;
    for _ in 0..ROUNDS_MAX {
        let Some(datagram) = from.poll_transmit(now) else {
            break;
        };
        any = true;
        link.send(now, datagram);
    }
    any
}

fn deliver(link: &mut Link, to: &mut impl Peer, now: Instant, mut record: impl FnMut(&[u8])) -> bool {
    let mut any = false;
    while let Some(datagram) = link.poll_delivery(now) {
        any = true;
        record(&datagram);
        to.handle(now, Input::Datagram(datagram));
    }
    any
}

fn fire(peer: &mut impl Peer, now: Instant) -> bool {
    let due = peer.poll_timeout().is_some_and(|at| at <= now);
    if due {
        peer.handle(now, Input::Timeout);
    }
    due
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{ms, secs};

    /// A state machine that sends a counter repeatedly, by a timer, until the counter is echoed.
    struct Pinger {
        next: u32,
        send: bool,
        deadline: Option<Instant>,
    }

    impl Peer for Pinger {
        fn handle(&mut self, _now: Instant, input: Input) {
            match input {
                Input::Datagram(d) if d[..] == self.next.to_be_bytes() => {
                    self.next += 1;
                    self.send = true;
                }
                Input::Datagram(_) => {}
                Input::Timeout => {
                    self.deadline = None;
                    self.send = true;
                }
            }
        }

        fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
            std::mem::take(&mut self.send).then(|| {
                self.deadline = Some(now + ms(100));
                Bytes::copy_from_slice(&self.next.to_be_bytes())
            })
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.deadline
        }
    }

    #[derive(Default)]
    struct Echo(Option<Bytes>);

    impl Peer for Echo {
        fn handle(&mut self, _now: Instant, input: Input) {
            if let Input::Datagram(d) = input {
                self.0 = Some(d);
            }
        }

        fn poll_transmit(&mut self, _now: Instant) -> Option<Bytes> {
            self.0.take()
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
    }

    fn pair(seed: u64) -> Pair<Pinger, Echo> {
        let pinger = Pinger { next: 0, send: true, deadline: None };
        Pair::new(seed, Clock::new(), pinger, Echo::default())
    }

    #[test]
    fn virtual_minutes_pass_at_once_and_the_seed_decides() {
        let run = |seed| {
            let mut pair = pair(seed).links(|l| l.latency(ms(20)).jitter(ms(5)).loss(0.2).duplicate(0.1));
            let took = pair.run_until(secs(60), |a, _| a.next == 200).unwrap();
            pair.run_for(secs(30)).unwrap();
            (took, pair.trace())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7).1.hash(), run(8).1.hash());
        assert!(run(7).0 > secs(8));
    }

    #[test]
    fn what_cannot_go_on_is_told() {
        let mut dark = pair(1).links(|l| l.loss(1.0));
        assert!(matches!(dark.run_until(secs(5), |a, _| a.next == 1), Err(Stuck::TimeLimit { .. })));
        let message = dark.run_until(secs(5), |a, _| a.next == 1).unwrap_err().to_string();
        assert!(message.contains("seed 1,"), "{message}");

        let mut endless = pair(1);
        assert!(
            matches!(endless.run_for(secs(1)), Err(Stuck::Livelock { .. })),
            "no latency: echoes for ever at one instant"
        );

        let mut quiet = Pair::new(1, Clock::new(), Echo::default(), Echo::default());
        assert!(matches!(quiet.run_until(secs(1), |_, _| false), Err(Stuck::Quiet { .. })));
    }

    #[test]
    fn a_deadline_that_stays_in_the_past_is_a_livelock() {
        struct Stubborn(Instant);
        impl Peer for Stubborn {
            fn handle(&mut self, _now: Instant, _input: Input) {}
            fn poll_transmit(&mut self, _now: Instant) -> Option<Bytes> {
                None
            }
            fn poll_timeout(&self) -> Option<Instant> {
                Some(self.0)
            }
        }
        let clock = Clock::new();
        let mut pair = Pair::new(1, clock, Stubborn(clock.now()), Echo::default());
        assert!(matches!(pair.run_for(secs(1)), Err(Stuck::Livelock { .. })));
    }
}
