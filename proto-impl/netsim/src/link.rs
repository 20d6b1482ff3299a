//! A direction of a simulated datagram network.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};

use crate::Scheduler;

/// Mean length of a loss burst in packets, as with a congested queue or a fading radio.
const BURST_PACKETS: f64 = 5.0;
/// Maximum delay of a reordered packet.
const REORDER_MAX: Duration = Duration::from_millis(20);
/// Maximum queue of a bottleneck, as the time needed to send the queued datagrams. Further datagrams are
/// dropped.
const QUEUE_MAX: Duration = Duration::from_millis(500);

/// Counters of a link. `sent + duplicated` equals `delivered`, plus the datagrams in flight, plus all losses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Datagrams handed to the link.
    pub sent: u64,
    /// Datagrams delivered at the receiving end of the link.
    pub delivered: u64,
    /// Datagrams lost by chance, alone or in bursts.
    pub lost: u64,
    /// Datagrams sent during a blackout of the link.
    pub dark: u64,
    /// Datagrams dropped because they were larger than the MTU.
    pub too_big: u64,
    /// Datagrams dropped at a bottleneck with a full queue.
    pub overflowed: u64,
    /// Datagrams lost during a fade of the path.
    pub faded: u64,
    /// Extra copies of datagrams.
    pub duplicated: u64,
    /// Datagrams held back so that later ones overtake them.
    pub reordered: u64,
}

/// Byte counters of the bottleneck of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BottleneckBytes {
    /// Bytes of the datagrams that reached the bottleneck, without those lost before it.
    pub offered: u64,
    /// Bytes of the offered datagrams that were dropped at the bottleneck.
    pub overflowed: u64,
}

/// Fate of a datagram. It is drawn before anything that depends on time, so that the n-th datagram of a link always has
/// the same fate.
#[derive(Debug)]
struct Fate {
    lost: bool,
    doubled: Option<Flight>,
    flight: Flight,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    jitter: Duration,
    held_back: Option<Duration>,
}

/// Fading of a path: periods without loss alternate with periods of total loss. The length of each period is random.
#[derive(Debug)]
struct Fading {
    random: Random,
    every: Duration,
    length: Duration,
    /// Begin and end of the current fade, or of the next one.
    next: Option<(Instant, Instant)>,
}

/// Queue of a bottleneck, limited in bytes. Datagrams that do not fit are dropped.
#[derive(Debug)]
struct DropTail {
    bytes_max: usize,
    bytes: usize,
    /// Departure time and length of each queued datagram.
    waiting: VecDeque<(Instant, usize)>,
}

impl DropTail {
    fn takes(&mut self, now: Instant, bytes: usize) -> bool {
        while let Some(&(_, left)) = self.waiting.front().filter(|(at, _)| *at <= now) {
            self.bytes = self.bytes.saturating_sub(left);
            self.waiting.pop_front();
        }
        self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    fn add(&mut self, leaves: Instant, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.waiting.push_back((leaves, bytes));
    }
}

/// Probabilities with which datagrams are lost, held back or duplicated.
#[derive(Debug)]
struct Chance {
    random: Random,
    loss: f64,
    burst_loss: f64,
    in_burst: bool,
    reorder: f64,
    duplicate: f64,
}

/// Random additional delay of each datagram, up to `most`. With `overtaking`, datagrams may overtake each other.
#[derive(Debug)]
struct Jitter {
    most: Duration,
    overtaking: bool,
}

/// A direction of a path, perfect by default. All randomness comes from the seed: the n-th datagram always has
/// the same fate, regardless of its time and length, and of the other datagrams.
#[derive(Debug)]
pub struct Link {
    seed: Seed,
    chance: Chance,
    latency: Duration,
    jitter: Jitter,
    fading: Option<Fading>,
    bits_per_second: Option<u64>,
    rates: Vec<(Instant, Instant, u64)>,
    queue: Option<DropTail>,
    mtu: usize,
    blackouts: Vec<(Instant, Instant)>,
    busy_until: Option<Instant>,
    last_arrival: Option<Instant>,
    in_flight: Scheduler<Bytes>,
    stats: LinkStats,
    bottleneck: BottleneckBytes,
}

impl Link {
    /// Creates a link without delay or loss.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            chance: Chance {
                random: seed.derive("netsim link", 0).random(),
                loss: 0.0,
                burst_loss: 0.0,
                in_burst: false,
                reorder: 0.0,
                duplicate: 0.0,
            },
            latency: Duration::ZERO,
            jitter: Jitter { most: Duration::ZERO, overtaking: false },
            fading: None,
            bits_per_second: None,
            rates: Vec::new(),
            queue: None,
            mtu: usize::MAX,
            blackouts: Vec::new(),
            busy_until: None,
            last_arrival: None,
            in_flight: Scheduler::new(),
            stats: LinkStats::default(),
            bottleneck: BottleneckBytes::default(),
        }
    }

    /// Sets the one-way delay.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Sets an additional delay, evenly distributed up to `jitter`. Datagrams stay in order.
    #[must_use]
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter.most = jitter;
        self
    }

    /// Lets datagrams overtake each other because of their jitter, as on a path with several routes.
    #[must_use]
    pub const fn overtaking(mut self) -> Self {
        self.jitter.overtaking = true;
        self
    }

    /// Sets the probability with which each datagram is lost, independent of the others.
    #[must_use]
    pub const fn loss(mut self, probability: f64) -> Self {
        self.chance.loss = probability;
        self
    }

    /// Sets the average share of lost datagrams. They are lost in bursts of five on average (Gilbert model; in its bad
    /// state, all datagrams are lost).
    #[must_use]
    pub const fn burst_loss(mut self, probability: f64) -> Self {
        self.chance.burst_loss = probability;
        self
    }

    /// Sets the probability with which a datagram is held back for up to 20 ms.
    #[must_use]
    pub const fn reorder(mut self, probability: f64) -> Self {
        self.chance.reorder = probability;
        self
    }

    /// Sets the probability with which a datagram is duplicated.
    #[must_use]
    pub const fn duplicate(mut self, probability: f64) -> Self {
        self.chance.duplicate = probability;
        self
    }

    /// Sets fades: about once in `every`, all datagrams are lost for about `length` (Gilbert model with times instead
    /// of packets). Each pause and each fade lasts between half and one and a half times its nominal length.
    #[must_use]
    pub fn fading(mut self, every: Duration, length: Duration) -> Self {
        let random = self.seed.derive("netsim fading", 0).random();
        self.fading = Some(Fading { random, every, length, next: None });
        self
    }

    /// Limits the link to this many bits per second, with a queue of half a second.
    #[must_use]
    pub const fn rate(mut self, bits_per_second: u64) -> Self {
        self.bits_per_second = Some(bits_per_second);
        self
    }

    /// Limits the link to another rate from `from` until just before `to`; it replaces the rate of [`Self::rate`].
    #[must_use]
    pub fn rate_between(mut self, from: Instant, to: Instant, bits_per_second: u64) -> Self {
        self.rates.push((from, to, bits_per_second));
        self
    }

    /// Limits the queue of the bottleneck to this many bytes instead of half a second. When the rate changes, datagrams
    /// in the queue leave at the new rate.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue = Some(DropTail { bytes_max: bytes, bytes: 0, waiting: VecDeque::new() });
        self
    }

    /// Sets the MTU. Larger datagrams are dropped.
    #[must_use]
    pub const fn mtu(mut self, bytes: usize) -> Self {
        self.mtu = bytes;
        self
    }

    /// Sets a blackout from `from` until just before `to`. All datagrams sent in this time are lost.
    #[must_use]
    pub fn blackout(mut self, from: Instant, to: Instant) -> Self {
        self.blackouts.push((from, to));
        self
    }

    /// Sends a datagram over the link.
    pub fn send(&mut self, now: Instant, datagram: Bytes) {
        let bytes = datagram.len();
        self.send_sized(now, datagram, bytes);
    }

    /// Sends a datagram that uses as much of the link's rate and queue as a datagram of `bytes` bytes would. Use this
    /// for datagrams whose length differs from run to run, such as those with an ECDSA signature: their actual length
    /// would change the times of all later datagrams.
    pub fn send_sized(&mut self, now: Instant, datagram: Bytes, bytes: usize) {
        self.stats.sent += 1;
        let fate = self.draw_fate();
        if datagram.len() > self.mtu {
            self.stats.too_big += 1;
            return;
        }
        if self.blackouts.iter().any(|(from, to)| (*from..*to).contains(&now)) {
            self.stats.dark += 1;
            return;
        }
        if self.fading.as_mut().is_some_and(|fading| fading.is_faded(now)) {
            self.stats.faded += 1;
            return;
        }
        if fate.lost {
            self.stats.lost += 1;
            return;
        }
        let counted = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bottleneck.offered += counted;
        let Some(leaves) = self.pass_bottleneck(now, bytes) else {
            self.stats.overflowed += 1;
            self.bottleneck.overflowed += counted;
            return;
        };
        if let Some(second) = fate.doubled {
            self.fly(leaves, fate.flight, datagram.clone());
            self.stats.duplicated += 1;
            self.fly(leaves, second, datagram);
        } else {
            self.fly(leaves, fate.flight, datagram);
        }
    }

    /// Returns the next datagram that has arrived by `now`, if any.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<Bytes> {
        let due = self.in_flight.pop(now)?;
        self.stats.delivered += 1;
        Some(due.payload)
    }

    /// Arrival time of the next datagram.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.in_flight.next_at()
    }

    /// Returns the time that the bottleneck needs to send the datagrams in its queue.
    #[must_use]
    pub fn backlog(&self, now: Instant) -> Duration {
        self.busy_until.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Counters of the bytes that reached the bottleneck, and of those that it dropped.
    #[must_use]
    pub const fn bottleneck_bytes(&self) -> BottleneckBytes {
        self.bottleneck
    }

    /// Counters of the link.
    #[must_use]
    pub const fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Draws the fate of a datagram. The number of random draws depends only on the settings of the link.
    fn draw_fate(&mut self) -> Fate {
        let lost = self.draw_loss();
        let doubled = self.chance.random.chance(self.chance.duplicate);
        let flight = self.draw_flight();
        let second = (self.chance.duplicate > 0.0).then(|| self.draw_flight());
        Fate { lost, doubled: second.filter(|_| doubled), flight }
    }

    fn draw_loss(&mut self) -> bool {
        if self.chance.burst_loss > 0.0 {
            let leave = 1.0 / BURST_PACKETS;
            // With this probability of entering the bad state, the share of time spent in it is `burst_loss`.
            let enter = leave * self.chance.burst_loss / (1.0 - self.chance.burst_loss).max(f64::EPSILON);
            self.chance.in_burst = if self.chance.in_burst {
                !self.chance.random.chance(leave)
            } else {
                self.chance.random.chance(enter)
            };
        }
        self.chance.random.chance(self.chance.loss) || self.chance.in_burst
    }

    fn draw_flight(&mut self) -> Flight {
        let jitter = draw_up_to(&mut self.chance.random, self.jitter.most);
        if self.chance.reorder <= 0.0 {
            return Flight { jitter, held_back: None };
        }
        let held_back = self.chance.random.chance(self.chance.reorder);
        let by = Duration::from_micros(1) + draw_up_to(&mut self.chance.random, REORDER_MAX);
        Flight { jitter, held_back: held_back.then_some(by) }
    }

    fn pass_bottleneck(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let starts = self.busy_until.map_or(now, |at| at.max(now));
        let Some(rate) = self.rate_at(if self.queue.is_some() { starts } else { now }) else {
            return Some(starts);
        };
        let is_full = match &mut self.queue {
            Some(queue) => !queue.takes(now, bytes),
            None => starts.saturating_duration_since(now) > QUEUE_MAX,
        };
        if is_full {
            return None;
        }
        let leaves = starts + transmission_time(bytes, rate);
        self.busy_until = Some(leaves);
        if let Some(queue) = &mut self.queue {
            queue.add(leaves, bytes);
        }
        Some(leaves)
    }

    fn rate_at(&self, at: Instant) -> Option<u64> {
        let special = self.rates.iter().rev().find(|(from, to, _)| (*from..*to).contains(&at));
        special.map(|(_, _, rate)| *rate).or(self.bits_per_second)
    }

    fn fly(&mut self, leaves: Instant, flight: Flight, datagram: Bytes) {
        let mut arrives = leaves + self.latency + flight.jitter;
        if let Some(by) = flight.held_back {
            self.stats.reordered += 1;
            arrives += by;
        } else if !self.jitter.overtaking {
            arrives = self.last_arrival.map_or(arrives, |at| at.max(arrives));
            self.last_arrival = Some(arrives);
        }
        self.in_flight.schedule(arrives, 0, datagram);
    }
}

impl Fading {
    fn is_faded(&mut self, now: Instant) -> bool {
        let mut fade = self.next.unwrap_or_else(|| self.after(now));
        while fade.1 <= now {
            fade = self.after(fade.1);
        }
        self.next = Some(fade);
        fade.0 <= now
    }

    fn after(&mut self, end: Instant) -> (Instant, Instant) {
        // The pause lasts at least a microsecond, so that time passes with any settings.
        let pause = self.every.saturating_sub(self.length).max(Duration::from_micros(1));
        let from = end + pause / 2 + draw_up_to(&mut self.random, pause);
        (from, from + self.length / 2 + draw_up_to(&mut self.random, self.length))
    }
}

fn draw_up_to(random: &mut Random, most: Duration) -> Duration {
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(random.below(micros.saturating_add(1)))
}

/// Computes the time to send `bytes` at `bits_per_second`, to the nanosecond.
pub(crate) fn transmission_time(bytes: usize, bits_per_second: u64) -> Duration {
    let bits = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8);
    let nanos = bits.saturating_mul(1_000_000_000).checked_div(bits_per_second);
    Duration::from_nanos(nanos.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ms, secs};

    /// Sends `count` numbered datagrams, one per millisecond. Returns their numbers in the order of arrival.
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
    fn jitter_reorders_where_datagrams_may_overtake() {
        let all: Vec<u32> = (0..1000).collect();
        let (mut numbers, stats) = run(seeded(1).latency(ms(40)).jitter(ms(30)).overtaking(), 1000);
        assert!(numbers.windows(2).filter(|w| w[1] < w[0]).count() > 100, "{numbers:?}");
        // Only the delay decides the order: no datagram arrives later than its latency plus the maximum
        // jitter.
        assert!(numbers.iter().zip(0..).all(|(number, place)| place <= *number + 30), "{numbers:?}");
        numbers.sort_unstable();
        assert_eq!((numbers, stats.lost), (all, 0));
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
    }

    #[test]
    fn a_bottleneck_queues_half_a_second_and_may_come_and_go() {
        let clock = Clock::new();
        let mut link = seeded(7).rate(1_000_000);
        for _ in 0..100 {
            link.send(clock.now(), Bytes::from_static(&[0; 1250]));
        }
        // Each datagram takes 10 ms to send. The queue holds half a second of them.
        assert_eq!((link.next_at(), link.stats().overflowed), (Some(clock.at(ms(10))), 49));
    }

    #[test]
    fn a_queue_of_bytes_drops_its_tail_and_leaves_at_the_rate_of_the_moment() {
        let clock = Clock::new();
        let datagram = || Bytes::from_static(&[0; 1250]);
        let mut link = seeded(7).rate(10_000_000).queue_bytes(10_000).rate_between(
            clock.at(ms(2)),
            clock.at(ms(1000)),
            1_000_000,
        );
        (0..10).for_each(|_| link.send(clock.now(), datagram()));
        assert_eq!(link.bottleneck_bytes(), BottleneckBytes { offered: 12_500, overflowed: 2_500 });
        // The first two datagrams take a millisecond each, the other six take ten.
        assert_eq!(link.backlog(clock.now()), ms(62));
        assert_eq!(link.backlog(clock.at(ms(60))), ms(2));
        // A datagram has left the queue, so there is room for another.
        (0..2).for_each(|_| link.send(clock.at(ms(1)), datagram()));
        assert_eq!((link.stats().overflowed, link.backlog(clock.at(ms(1)))), (3, ms(71)));
    }

    #[test]
    fn a_datagram_may_count_as_a_longer_one() {
        let clock = Clock::new();
        let mut link = seeded(7).rate(1_000_000);
        link.send_sized(clock.now(), Bytes::from_static(&[0; 70]), 1250);
        assert_eq!((link.next_at(), link.bottleneck_bytes().offered), (Some(clock.at(ms(10))), 1250));
    }

    #[test]
    fn a_rate_that_is_cut_for_a_while_comes_back() {
        let clock = Clock::new();
        let datagram = || Bytes::from_static(&[0; 1250]);
        let mut link =
            seeded(7).rate(10_000_000).rate_between(clock.at(ms(100)), clock.at(ms(200)), 1_000_000);
        let mut arrivals = Vec::new();
        for at in [0, 100, 150, 200] {
            link.send(clock.at(ms(at)), datagram());
            arrivals.push(link.next_at().map(|at| clock.offset(at)));
            assert!(link.poll_delivery(clock.at(secs(1))).is_some());
        }
        assert_eq!(arrivals, [1, 110, 160, 201].map(|at| Some(ms(at))));
        // Datagrams queued at a bottleneck are not overtaken by those sent after the bottleneck has ended.
        let mut link = seeded(7).rate_between(clock.at(ms(0)), clock.at(ms(10)), 1_000_000);
        for at in [0, 0, 0, 10] {
            link.send(clock.at(ms(at)), datagram());
        }
        assert!(std::iter::from_fn(|| link.poll_delivery(clock.at(ms(29)))).count() == 2);
        assert_eq!(link.next_at(), Some(clock.at(ms(30))));
    }

    #[test]
    fn fading_takes_its_share_in_long_pieces() {
        let (numbers, stats) = run(seeded(8).fading(secs(5), ms(200)), 100_000);
        assert!((2000..6000).contains(&stats.faded), "{stats:?}");
        let gaps: Vec<u32> = numbers.windows(2).map(|w| w[1] - w[0] - 1).filter(|gap| *gap > 0).collect();
        assert!(
            (15..25).contains(&gaps.len()) && gaps.iter().all(|gap| (99..=301).contains(gap)),
            "{gaps:?}"
        );
    }

    /// Applies `change` to a link. Returns which of the datagrams `0..500` were lost by chance or dropped for another
    /// reason, and how many of them were lost by chance.
    fn losses(change: impl Fn(Link) -> Link, bytes: usize) -> (Vec<u32>, u64) {
        let link = change(seeded(9).loss(0.1).duplicate(0.1).jitter(ms(3)).reorder(0.1));
        let (mut clock, mut link, mut lost) = (Clock::new(), link, Vec::new());
        for number in 0..500 {
            let before = link.stats();
            link.send(clock.now(), Bytes::from(vec![0; bytes]));
            let after = link.stats();
            // Packets dropped for another reason count as lost too.
            let elsewhere = |s: LinkStats| s.dark + s.too_big + s.faded + s.overflowed;
            if after.lost > before.lost || elsewhere(after) > elsewhere(before) {
                lost.push(number);
            }
            clock.advance(ms(1));
        }
        (lost, link.stats().lost)
    }

    #[test]
    fn the_nth_datagram_has_one_fate_whatever_else_happens() {
        let (alone, count) = losses(|link| link, 100);
        assert!((30..80).contains(&count));
        let from = Clock::new();
        for (name, (others, by_chance)) in [
            ("fading", losses(|link| link.fading(ms(100), ms(20)), 100)),
            ("dark", losses(|link| link.blackout(from.now(), from.at(ms(250))), 100)),
            ("narrow", losses(|link| link.rate(100_000), 100)),
            ("larger", losses(|link| link, 1400)),
        ] {
            assert!(by_chance <= count, "{name}");
            assert!(alone.iter().all(|number| others.contains(number)), "{name}");
        }
        assert_eq!(losses(|link| link, 1400).0, alone);
    }
}
