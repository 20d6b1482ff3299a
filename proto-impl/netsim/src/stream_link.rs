//! A direction of a TCP connection: ordered bytes, split anywhere, through a window.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use crypto::{Random, Seed};

use crate::link::transmission_time;

/// Positions at which the stream is split for the reader, whatever the sizes of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Everything that has arrived is delivered at once.
    Never,
    /// The stream is split after this many bytes. 1 is the hardest case.
    Every(usize),
    /// The stream is split into pieces of random length, from 1 to this many bytes.
    Random(usize),
}

/// Delivery to the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamDelivery {
    /// The next bytes.
    Bytes(Bytes),
    /// The end of the stream.
    Fin,
    /// The connection was reset. All bytes in flight are lost.
    Reset,
}

/// A direction of a connection, without faults by default.
#[derive(Debug)]
pub struct StreamLink {
    random: Random,
    latency: Duration,
    bits_per_second: Option<u64>,
    /// Another rate, which applies between two times.
    between: Option<(Instant, Instant, u64)>,
    window: usize,
    cut: Cut,
    reset_at: Option<Instant>,
    dark_from: Option<Instant>,
    in_flight: VecDeque<(Instant, Bytes)>,
    in_flight_bytes: usize,
    busy_until: Option<Instant>,
    fin: Option<Instant>,
    ended: bool,
    delivered: u64,
}

impl StreamLink {
    /// Creates a direction without delay and without splits, with a window of 64 KiB.
    #[must_use]
    pub fn new(seed: &Seed) -> Self {
        Self {
            random: seed.derive("netsim stream link", 0).random(),
            latency: Duration::ZERO,
            bits_per_second: None,
            between: None,
            window: 64 * 1024,
            cut: Cut::Never,
            reset_at: None,
            dark_from: None,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            busy_until: None,
            fin: None,
            ended: false,
            delivered: 0,
        }
    }

    /// Sets the one-way delay.
    #[must_use]
    pub const fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Sets the rate in bits per second.
    #[must_use]
    pub const fn rate(mut self, bits_per_second: u64) -> Self {
        self.bits_per_second = Some(bits_per_second);
        self
    }

    /// Sets another rate for bytes that leave between `from` and just before `to`.
    #[must_use]
    pub const fn rate_between(mut self, from: Instant, to: Instant, bits_per_second: u64) -> Self {
        self.between = Some((from, to, bits_per_second));
        self
    }

    /// Sets the maximum number of bytes that were written but not read: the size of the buffers of both ends
    /// together.
    #[must_use]
    pub const fn window(mut self, bytes: usize) -> Self {
        self.window = bytes;
        self
    }

    /// Sets how the stream is split for the reader.
    #[must_use]
    pub const fn cut(mut self, cut: Cut) -> Self {
        self.cut = cut;
        self
    }

    /// Sets the time at which the connection is reset.
    pub const fn reset_at(&mut self, at: Instant) {
        self.reset_at = Some(at);
    }

    /// From this time on, nothing is delivered and the end is not signalled either, as with a half-open connection.
    pub const fn dark_from(&mut self, at: Instant) {
        self.dark_from = Some(at);
    }

    /// Number of bytes that [`StreamLink::send`] would accept.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.window.saturating_sub(self.in_flight_bytes)
    }

    /// Accepts bytes from the front of `bytes`, as many as the window allows. Returns their number.
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if self.fin.is_some() || self.ended {
            return 0;
        }
        let taken = bytes.get(..self.room().min(bytes.len())).unwrap_or_default();
        if taken.is_empty() {
            return 0;
        }
        let starts = self.busy_until.map_or(now, |at| at.max(now));
        let is_between = |(from, to, _): &(Instant, Instant, u64)| (*from..*to).contains(&starts);
        let rate = self.between.filter(is_between).map(|(_, _, rate)| rate).or(self.bits_per_second);
        let leaves = rate.map_or(starts, |rate| starts + transmission_time(taken.len(), rate));
        self.busy_until = Some(leaves);
        self.in_flight.push_back((leaves + self.latency, Bytes::copy_from_slice(taken)));
        self.in_flight_bytes = self.in_flight_bytes.saturating_add(taken.len());
        taken.len()
    }

    /// Closes the direction of the writer.
    pub fn finish(&mut self, now: Instant) {
        if self.fin.is_none() {
            self.fin = Some(self.busy_until.map_or(now, |at| at.max(now)) + self.latency);
        }
    }

    /// Returns the next bytes that have arrived by `now`. If the reader does not call this, the window fills up.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<StreamDelivery> {
        if self.ended {
            return None;
        }
        if self.reset_at.is_some_and(|at| now >= at) {
            self.ended = true;
            self.in_flight.clear();
            self.in_flight_bytes = 0;
            return Some(StreamDelivery::Reset);
        }
        if let Some(bytes) = self.take_arrived(now) {
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes.len());
            self.delivered += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Some(StreamDelivery::Bytes(bytes));
        }
        if self.in_flight.is_empty() && self.fin.is_some_and(|at| self.has_arrived(at, now)) {
            self.ended = true;
            return Some(StreamDelivery::Fin);
        }
        None
    }

    /// Returns the time of the next delivery.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        let arrival = self.in_flight.front().map(|(at, _)| *at).or(self.fin);
        let arrival = arrival.filter(|at| self.dark_from.is_none_or(|dark| *at < dark));
        match (arrival, self.reset_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Like [`StreamLink::next_at`], for a reader that may not accept bytes now. To a reader that accepts none,
    /// only a reset is delivered.
    #[must_use]
    pub fn next_wanted(&self, wants_bytes: bool) -> Option<Instant> {
        if wants_bytes { self.next_at() } else { self.reset_at.filter(|_| !self.ended) }
    }

    /// True if a reset must be delivered now.
    #[must_use]
    pub fn is_reset_by(&self, now: Instant) -> bool {
        !self.ended && self.reset_at.is_some_and(|at| now >= at)
    }

    /// Number of delivered bytes.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// True if the FIN or the reset was delivered.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    fn has_arrived(&self, at: Instant, now: Instant) -> bool {
        at <= now && self.dark_from.is_none_or(|dark| at < dark)
    }

    /// Takes the next piece. Bytes that have arrived together are joined and then split according to `cut`.
    fn take_arrived(&mut self, now: Instant) -> Option<Bytes> {
        let (at, _) = self.in_flight.front()?;
        if !self.has_arrived(*at, now) {
            return None;
        }
        let most = match self.cut {
            Cut::Never => usize::MAX,
            Cut::Every(n) => n.max(1),
            Cut::Random(n) => {
                let n = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
                usize::try_from(self.random.below(n)).unwrap_or(0).saturating_add(1)
            }
        };
        let mut piece = Vec::new();
        while piece.len() < most {
            let dark = self.dark_from;
            let Some((at, front)) = self.in_flight.front_mut() else {
                break;
            };
            if *at > now || dark.is_some_and(|dark| *at >= dark) {
                break;
            }
            let n = front.len().min(most.saturating_sub(piece.len()));
            piece.extend_from_slice(front.get(..n).unwrap_or_default());
            front.advance(n);
            if front.is_empty() {
                self.in_flight.pop_front();
            }
        }
        Some(Bytes::from(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ms};

    fn link() -> StreamLink {
        StreamLink::new(&Seed::from_number(1))
    }

    fn pieces(link: &mut StreamLink, now: Instant) -> Vec<StreamDelivery> {
        std::iter::from_fn(|| link.poll_delivery(now)).collect()
    }

    fn bytes(pieces: &[StreamDelivery]) -> Vec<u8> {
        let one = |d: &StreamDelivery| match d {
            StreamDelivery::Bytes(b) => b.to_vec(),
            StreamDelivery::Fin | StreamDelivery::Reset => Vec::new(),
        };
        pieces.iter().flat_map(one).collect()
    }

    #[test]
    fn any_cut_gives_the_same_bytes() {
        let clock = Clock::new();
        for (cut, count) in
            [(Cut::Never, 1..=1), (Cut::Every(1), 10..=10), (Cut::Every(4), 3..=3), (Cut::Random(3), 4..=10)]
        {
            let mut link = link().cut(cut);
            assert_eq!(link.send(clock.now(), b"hello") + link.send(clock.now(), b"world"), 10);
            let got = pieces(&mut link, clock.now());
            assert_eq!(bytes(&got), b"helloworld", "{cut:?}");
            assert!(count.contains(&got.len()), "{cut:?}: {}", got.len());
        }
    }

    #[test]
    fn the_window_fills_until_it_is_read() {
        let clock = Clock::new();
        let mut link = link().window(8);
        assert_eq!((link.send(clock.now(), &[1; 10]), link.send(clock.now(), &[1])), (8, 0));
        pieces(&mut link, clock.now());
        assert_eq!(link.room(), 8);
    }

    #[test]
    fn rate_and_latency_say_when() {
        let clock = Clock::new();
        let mut link = link().latency(ms(40)).rate(8_000);
        link.send(clock.now(), &[0; 10]);
        link.finish(clock.now());
        assert_eq!(link.next_at(), Some(clock.at(ms(50))));
        assert_eq!(link.poll_delivery(clock.at(ms(49))), None);
        assert_eq!(pieces(&mut link, clock.at(ms(50))).last(), Some(&StreamDelivery::Fin));
        assert_eq!((link.next_at(), link.has_ended(), link.delivered()), (None, true, 10));
    }

    #[test]
    fn another_rate_holds_between_two_times() {
        let clock = Clock::new();
        let mut link = link().rate(8_000).rate_between(clock.at(ms(10)), clock.at(ms(20)), 80_000);
        for (at, leaves) in [(0, 10), (10, 11), (20, 30)] {
            link.send(clock.at(ms(at)), &[0; 10]);
            assert_eq!(link.next_at(), Some(clock.at(ms(leaves))), "{at}");
            pieces(&mut link, clock.at(ms(leaves)));
        }
    }

    #[test]
    fn a_reset_takes_what_is_on_its_way_and_darkness_says_nothing() {
        let clock = Clock::new();
        let mut reset = link().latency(ms(10));
        reset.send(clock.now(), b"lost");
        reset.reset_at(clock.at(ms(5)));
        assert_eq!(reset.next_at(), Some(clock.at(ms(5))));
        assert_eq!(pieces(&mut reset, clock.at(ms(20))), [StreamDelivery::Reset]);
        assert_eq!(reset.send(clock.at(ms(21)), b"x"), 0);

        let mut dark = link().latency(ms(10));
        dark.dark_from(clock.at(ms(15)));
        dark.send(clock.now(), b"seen");
        dark.send(clock.at(ms(6)), b"lost");
        dark.finish(clock.at(ms(6)));
        assert_eq!(bytes(&pieces(&mut dark, clock.at(ms(100)))), b"seen");
        assert_eq!((dark.next_at(), dark.poll_delivery(clock.at(ms(999)))), (None, None));
    }
}
