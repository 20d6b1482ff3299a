//! One direction of a datagram network.

use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};

use crate::Scheduler;

/// Mean length of a loss burst, in packets: what a congested queue or a fading radio takes at once.
const BURST_PACKETS: f64 = 5.0;
/// A reordered packet comes so much later than it should, at most.
const REORDER_MAX: Duration = Duration::from_millis(20);
/// A bottleneck queues so much time's worth before it drops.
const QUEUE_MAX: Duration = Duration::from_millis(500);

/// What became of the datagrams. `sent + duplicated == delivered + in flight +` all the losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Given to the link.
    pub sent: u64,
    /// Taken from the link.
    pub delivered: u64,
    /// Lost by chance, single or in bursts.
    pub lost: u64,
    /// Sent while the link was dark.
    pub dark: u64,
    /// Larger than the MTU.
    pub too_big: u64,
    /// Dropped before a full bottleneck.
    pub overflowed: u64,
    /// Extra copies.
    pub duplicated: u64,
    /// Held back so that later ones overtake them.
    pub reordered: u64,
}

/// One direction of a path, perfect until told otherwise. All chance comes from the seed.
#[derive(Debug)]
pub struct Link {
    random: Random,
    latency: Duration,
    jitter: Duration,
    loss: f64,
    burst_loss: f64,
    in_burst: bool,
    reorder: f64,
    duplicate: f64,
    bits_per_second: Option<u64>,
    mtu: usize,
    blackouts: Vec<(Instant, Instant)>,
    busy_until: Option<Instant>,
    last_arrival: Option<Instant>,
    in_flight: Scheduler<Bytes>,
    stats: LinkStats,
}

impl Link {
    /// Immediate and lossless.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self {
            random: seed.derive("netsim link", 0).random(),
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst_loss: 0.0,
            in_burst: false,
            reorder: 0.0,
            duplicate: 0.0,
            bits_per_second: None,
            mtu: usize::MAX,
            blackouts: Vec::new(),
            busy_until: None,
            last_arrival: None,
            in_flight: Scheduler::new(),
            stats: LinkStats::default(),
        }
    }

    /// One-way delay.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Up to so much more delay, evenly; order is kept.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Each datagram is lost with this probability, independent of the others.
    #[must_use]
    pub const fn loss(mut self, probability: f64) -> Self {
        self.loss = probability;
        self
    }

    /// So much is lost in the mean, in bursts of five (the model of Gilbert: a bad state loses all).
    #[must_use]
    pub const fn burst_loss(mut self, probability: f64) -> Self {
        self.burst_loss = probability;
        self
    }

    /// Each datagram is held back with this probability, up to 20 ms.
    #[must_use]
    pub const fn reorder(mut self, probability: f64) -> Self {
        self.reorder = probability;
        self
    }

    /// Each datagram is doubled with this probability.
    #[must_use]
    pub const fn duplicate(mut self, probability: f64) -> Self {
        self.duplicate = probability;
        self
    }

    /// A bottleneck in bits per second, with half a second of queue before it.
    #[must_use]
    pub const fn rate(mut self, bits_per_second: u64) -> Self {
        self.bits_per_second = Some(bits_per_second);
        self
    }

    /// Larger datagrams disappear.
    #[must_use]
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.mtu = bytes;
        self
    }

    /// Dark from `from` until before `to`: what is sent then is lost.
    #[must_use]
    pub fn blackout(mut self, from: Instant, to: Instant) -> Self {
        self.blackouts.push((from, to));
        self
    }

    /// A datagram enters.
    pub fn send(&mut self, now: Instant, datagram: Bytes) {
        self.stats.sent += 1;
        if datagram.len() > self.mtu {
            self.stats.too_big += 1;
            return;
        }
        if self.blackouts.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            self.stats.dark += 1;
            return;
        }
        // Chance is drawn for every datagram, so that one more decision does not shift those that follow.
        let (lost, doubled) = (self.draw_loss(), self.random.chance(self.duplicate));
        if lost {
            self.stats.lost += 1;
            return;
        }
        let Some(leaves) = self.pass_bottleneck(now, datagram.len()) else {
            self.stats.overflowed += 1;
            return;
        };
        self.fly(leaves, datagram.clone());
        if doubled {
            self.stats.duplicated += 1;
            self.fly(leaves, datagram);
        }
    }

    /// The next datagram that has arrived by `now`.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<Bytes> {
        let due = self.in_flight.pop(now)?;
        self.stats.delivered += 1;
        Some(due.payload)
    }

    /// When the next datagram arrives.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.in_flight.next_at()
    }

    /// Counters so far.
    #[must_use]
    pub const fn stats(&self) -> LinkStats {
        self.stats
    }

    fn draw_loss(&mut self) -> bool {
        if self.burst_loss > 0.0 {
            let leave = 1.0 / BURST_PACKETS;
            // The stationary share of the bad state is then `burst_loss`.
            let enter = leave * self.burst_loss / (1.0 - self.burst_loss).max(f64::EPSILON);
            self.in_burst =
                if self.in_burst { !self.random.chance(leave) } else { self.random.chance(enter) };
        }
        self.random.chance(self.loss) || self.in_burst
    }

    fn pass_bottleneck(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate) = self.bits_per_second else {
            return Some(now);
        };
        let starts = self.busy_until.map_or(now, |at| at.max(now));
        if starts.saturating_duration_since(now) > QUEUE_MAX {
            return None;
        }
        let leaves = starts + transmission_time(bytes, rate);
        self.busy_until = Some(leaves);
        Some(leaves)
    }

    fn fly(&mut self, leaves: Instant, datagram: Bytes) {
        let mut arrives = leaves + self.latency + self.draw_up_to(self.jitter);
        if self.random.chance(self.reorder) {
            self.stats.reordered += 1;
            arrives += Duration::from_micros(1) + self.draw_up_to(REORDER_MAX);
        } else {
            arrives = self.last_arrival.map_or(arrives, |at| at.max(arrives));
            self.last_arrival = Some(arrives);
        }
        self.in_flight.schedule(arrives, 0, datagram);
    }

    fn draw_up_to(&mut self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.random.below(micros.saturating_add(1)))
    }
}

/// How long `bytes` take at `bits_per_second`, to the nanosecond.
pub(crate) fn transmission_time(bytes: usize, bits_per_second: u64) -> Duration {
    let bits = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8);
    let nanos = bits.saturating_mul(1_000_000_000).checked_div(bits_per_second);
    Duration::from_nanos(nanos.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ms, secs};

    /// Sends `count` numbered datagrams, one a millisecond, and gives their numbers as they arrive.
    fn run(mut link: Link, count: u32) -> (Vec<u32>, LinkStats) {
        let mut clock = Clock::new();
        let mut arrived = Vec::new();
        for number in 0..count {
            link.send(clock.now(), Bytes::copy_from_slice(&number.to_be_bytes()));
            clock.advance(ms(1));
            arrived.extend(std::iter::from_fn(|| link.poll_delivery(clock.now())));
        }
        clock.advance(secs(10));
        arrived.extend(std::iter::from_fn(|| link.poll_delivery(clock.now())));
        let numbers = arrived.iter().map(|d| u32::from_be_bytes(d[..].try_into().unwrap())).collect();
        (numbers, link.stats())
    }

    fn seeded(seed: u64) -> Link {
        Link::new(&Seed::from_number(seed))
    }

    #[test]
    fn a_perfect_link_is_perfect_and_jitter_keeps_the_order() {
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(run(seeded(1), 1000).0, all);
        assert_eq!(run(seeded(1).latency(ms(40)).jitter(ms(30)), 1000).0, all);
    }

    #[test]
    fn the_seed_decides() {
        let link =
            |seed| seeded(seed).latency(ms(5)).jitter(ms(9)).burst_loss(0.1).reorder(0.05).duplicate(0.05);
        assert_eq!(run(link(3), 2000), run(link(3), 2000));
        assert_ne!(run(link(3), 2000).0, run(link(4), 2000).0);
    }

    #[test]
    fn losses_have_the_mean_that_was_asked_and_bursts_are_bursts() {
        for link in [seeded(5).loss(0.1), seeded(5).burst_loss(0.1)] {
            let (_, stats) = run(link, 20_000);
            assert!((1500..2500).contains(&stats.lost), "{stats:?}");
            assert_eq!(stats.delivered + stats.lost, stats.sent);
        }
        let runs = |numbers: &[u32]| numbers.windows(2).filter(|w| w[1] - w[0] > 1).count();
        let (single, burst) = (run(seeded(5).loss(0.1), 20_000).0, run(seeded(5).burst_loss(0.1), 20_000).0);
        assert!(runs(&burst) * 3 < runs(&single), "{} {}", runs(&burst), runs(&single));
    }

    #[test]
    fn reordering_and_doubles_are_counted_and_lose_nothing() {
        let (mut numbers, stats) = run(seeded(6).latency(ms(10)).reorder(0.05).duplicate(0.02), 5000);
        assert!(numbers.windows(2).any(|w| w[1] < w[0]));
        assert!(stats.reordered > 100 && stats.duplicated > 50, "{stats:?}");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 5000);
    }

    #[test]
    fn dark_small_and_narrow_links_lose_what_they_must() {
        let clock = Clock::new();
        let (numbers, stats) = run(seeded(7), 100);
        assert_eq!((numbers.len(), stats.dark), (100, 0));
        let mut link = seeded(7).mtu(1200).blackout(clock.at(ms(10)), clock.at(ms(20)));
        for at in [9, 10, 19, 20] {
            link.send(clock.at(ms(at)), Bytes::from_static(&[0; 1200]));
        }
        link.send(clock.at(ms(30)), Bytes::from_static(&[0; 1201]));
        assert_eq!((link.stats().dark, link.stats().too_big), (2, 1));

        let mut link = seeded(7).rate(1_000_000);
        for _ in 0..100 {
            link.send(clock.now(), Bytes::from_static(&[0; 1250]));
        }
        // 10 ms each, and half a second of them queues.
        assert_eq!((link.next_at(), link.stats().overflowed), (Some(clock.at(ms(10))), 49));
    }
}
