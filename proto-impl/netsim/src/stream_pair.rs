//! Simulation of two state machines that exchange byte streams, with the connection between them.

use std::time::{Duration, Instant};

use crypto::Seed;
use wire::{Gather, SendQueue};

use crate::pair::{FRUITLESS_MAX, ROUNDS_MAX};
use crate::{Clock, StreamDelivery, StreamInput, StreamLink, StreamPeer, Stuck, Trace};

/// Maximum number of pieces delivered to a state machine before it may answer. Real event loops read in batches, too.
const BATCH: usize = 64;

/// Simulation of `a` and `b` over a connection of two [`StreamLink`]s.
#[derive(Debug)]
pub struct StreamPair<A, B> {
    /// Virtual time.
    pub clock: Clock,
    /// The first state machine.
    pub a: A,
    /// The second state machine.
    pub b: B,
    /// The link from `a` to `b`.
    pub a_to_b: StreamLink,
    /// The link from `b` to `a`.
    pub b_to_a: StreamLink,
    queue_a: SendQueue,
    queue_b: SendQueue,
    trace: Trace,
    rounds: u32,
    fruitless: u32,
}

impl<A: StreamPeer, B: StreamPeer> StreamPair<A, B> {
    /// Connects both state machines over a perfect connection. They must have been created with the current time of
    /// `clock`.
    pub fn new(seed: u64, clock: Clock, a: A, b: B) -> Self {
        let seeds = Seed::from_number(seed);
        Self {
            clock,
            a,
            b,
            a_to_b: StreamLink::new(&seeds.derive("a to b", 0)),
            b_to_a: StreamLink::new(&seeds.derive("b to a", 0)),
            queue_a: SendQueue::new(),
            queue_b: SendQueue::new(),
            trace: Trace::new(seed),
            rounds: 0,
            fruitless: 0,
        }
    }

    /// Changes the settings of both directions. Each keeps its own random generator.
    #[must_use]
    pub fn links(mut self, change: impl Fn(StreamLink) -> StreamLink) -> Self {
        self.a_to_b = change(self.a_to_b);
        self.b_to_a = change(self.b_to_a);
        self
    }

    /// Resets the connection for both sides after `delay`.
    pub fn reset_in(&mut self, delay: Duration) {
        let at = self.clock.now() + delay;
        self.a_to_b.reset_at(at);
        self.b_to_a.reset_at(at);
    }

    /// Stops all deliveries in both directions after `delay`.
    pub fn dark_in(&mut self, delay: Duration) {
        let at = self.clock.now() + delay;
        self.a_to_b.dark_from(at);
        self.b_to_a.dark_from(at);
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

    /// Number of bytes from `a` and `b` that the connection has not accepted yet.
    #[must_use]
    pub const fn queued(&self) -> (usize, usize) {
        (self.queue_a.len(), self.queue_b.len())
    }

    fn round(&mut self) -> bool {
        let (now, at) = (self.clock.now(), self.clock.elapsed());
        let sent = write(&mut self.a, &mut self.queue_a, &mut self.a_to_b, now)
            | write(&mut self.b, &mut self.queue_b, &mut self.b_to_a, now);
        let to_b = read(&mut self.a_to_b, &mut self.b, now, |bytes| self.trace.record(at, 0, bytes));
        let to_a = read(&mut self.b_to_a, &mut self.a, now, |bytes| self.trace.record(at, 1, bytes));
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
        let deadlines = [
            self.a_to_b.next_wanted(self.b.wants_bytes()),
            self.b_to_a.next_wanted(self.a.wants_bytes()),
            self.a.poll_timeout(),
            self.b.poll_timeout(),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn advance_to(&mut self, at: Instant) {
        self.clock.advance_to(at);
        self.rounds = 0;
        self.fruitless = 0;
    }
}

/// Moves bytes from the state machine into the connection as far as the window allows. If the state machine is closing,
/// the FIN follows.
fn write(from: &mut impl StreamPeer, queue: &mut SendQueue, link: &mut StreamLink, now: Instant) -> bool {
    from.poll_transmit(now, queue);
    let mut taken = 0;
    while link.room() > 0 && !queue.is_empty() {
        let mut gather = Gather::new(link.room());
        queue.gather(&mut gather);
        let n: usize = gather.slices().iter().map(|slice| link.send(now, slice)).sum();
        if n == 0 {
            // This direction has ended, so it accepts no more bytes.
            queue.advance(usize::MAX);
            break;
        }
        queue.advance(n);
        taken += n;
    }
    if taken > 0 {
        from.handle(now, StreamInput::Sent(taken));
    }
    if from.is_closing() && queue.is_empty() {
        link.finish(now);
    }
    taken > 0
}

fn read(
    link: &mut StreamLink,
    to: &mut impl StreamPeer,
    now: Instant,
    mut record: impl FnMut(&[u8]),
) -> bool {
    let mut any = false;
    for _ in 0..BATCH {
        if !to.wants_bytes() && !link.is_reset_by(now) {
            break;
        }
        let input = match link.poll_delivery(now) {
            Some(StreamDelivery::Bytes(bytes)) => {
                record(&bytes);
                StreamInput::Bytes(bytes)
            }
            Some(StreamDelivery::Fin) => {
                record(b"fin");
                StreamInput::Fin
            }
            Some(StreamDelivery::Reset) => {
                record(b"reset");
                StreamInput::Reset
            }
            None => break,
        };
        any = true;
        to.handle(now, input);
    }
    any
}

fn fire(peer: &mut impl StreamPeer, now: Instant) -> bool {
    let due = peer.poll_timeout().is_some_and(|at| at <= now);
    if due {
        peer.handle(now, StreamInput::Timeout);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cut, ms, secs};

    /// A state machine that sends `give` and then closes. It receives bytes until it has `stop_at` of them, if
    /// that is set.
    #[derive(Default)]
    struct Copier {
        give: Vec<u8>,
        given: bool,
        sent: usize,
        got: Vec<u8>,
        stop_at: Option<usize>,
        fin: bool,
        reset: bool,
    }

    impl StreamPeer for Copier {
        fn handle(&mut self, _now: Instant, input: StreamInput) {
            match input {
                StreamInput::Bytes(bytes) => self.got.extend_from_slice(&bytes),
                StreamInput::Sent(n) => self.sent += n,
                StreamInput::Fin => self.fin = true,
                StreamInput::Reset => self.reset = true,
                StreamInput::Timeout => {}
            }
        }

        fn poll_transmit(&mut self, _now: Instant, out: &mut SendQueue) {
            out.push(std::mem::take(&mut self.give).into());
            self.given = true;
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn wants_bytes(&self) -> bool {
            self.stop_at.is_none_or(|at| self.got.len() < at)
        }

        fn is_closing(&self) -> bool {
            self.given && self.sent > 0
        }
    }

    fn body() -> Vec<u8> {
        (0..100_000u32).flat_map(u32::to_be_bytes).collect()
    }

    fn pair(seed: u64) -> StreamPair<Copier, Copier> {
        StreamPair::new(seed, Clock::new(), Copier { give: body(), ..Copier::default() }, Copier::default())
    }

    #[test]
    fn bytes_arrive_in_order_whatever_the_cuts_and_then_the_end() {
        for cut in [Cut::Never, Cut::Random(1400), Cut::Every(1)] {
            let mut pair = pair(3).links(|l| l.latency(ms(20)).rate(80_000_000).cut(cut));
            let took = pair.run_until(secs(60), |_, b| b.fin).unwrap();
            assert!(pair.b.got == body() && pair.a.sent == body().len(), "{cut:?}");
            // At this rate alone, the transfer takes 40 ms. Each window of 64 KiB is read as soon as it has arrived,
            // so it adds the latency once.
            assert!((ms(60)..ms(200)).contains(&took), "{cut:?}: {took:?}");
        }
    }

    #[test]
    fn a_reader_that_stops_stops_the_writer() {
        let mut pair = pair(4).links(|l| l.latency(ms(1)).cut(Cut::Every(1000)));
        pair.b.stop_at = Some(10_000);
        pair.run_for(secs(10)).unwrap();
        assert_eq!((pair.b.got.len(), pair.a.sent, pair.b.fin), (10_000, 10_000 + 65_536, false));
        assert_eq!(pair.queued().0, body().len() - pair.a.sent);
    }

    #[test]
    fn resets_and_darkness_come_when_told_and_runs_repeat() {
        let run = || {
            let mut pair = pair(5).links(|l| l.latency(ms(5)).rate(8_000_000).cut(Cut::Random(900)));
            pair.reset_in(ms(50));
            pair.run_until(secs(1), |a, b| a.reset && b.reset).unwrap();
            (pair.clock.elapsed(), pair.trace())
        };
        assert_eq!(run(), run());
        assert_eq!(run().0, ms(50));
        let mut dark = pair(5).links(|l| l.latency(ms(5)).rate(8_000_000));
        dark.dark_in(ms(50));
        assert!(matches!(dark.run_until(secs(99), |_, b| b.fin || b.reset), Err(Stuck::Quiet { .. })));
    }
}
