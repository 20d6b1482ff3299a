//! Losses that no later packet reveals: those of the last packets before a pause (RFC 8985 §7 solves this for
//! TCP).
//!
//! A receiver requests packets that are missing between two others. Nothing follows the last picture before a
//! pause (slides, or a publisher that was cut off), so its loss would only be noticed with the next picture.
//! Therefore packets that feedback does not confirm are sent again if nothing has followed for a while.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rtp::SequenceNumber;

/// Time to wait after the last packet, in addition to two round trips: receivers send feedback every 50 to 250
/// ms.
const WAIT: Duration = Duration::from_millis(250);
/// Maximum number of times that packets are sent again.
const TIMES_MAX: u8 = 2;
/// Maximum number of packets that are sent again: a medium-sized picture. Of a larger one, the last packets
/// are enough: receivers that evaluate retransmissions then notice the gap and request the rest.
const PACKETS_MAX: usize = 16;

/// A sent packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    number: SequenceNumber,
    /// Transport-wide sequence number; `None` if packets are not numbered, so that their arrival is not
    /// reported.
    transport: Option<u16>,
}

/// The last packets of a source.
#[derive(Debug, Default)]
pub(super) struct Tail {
    packets: VecDeque<Sent>,
    due: Option<Instant>,
    times: u8,
}

impl Tail {
    /// Records a packet that leaves for the first time.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        number: SequenceNumber,
        transport: Option<u16>,
        round_trip: Duration,
    ) {
        // Without transport-wide numbers, arrivals are not reported, and most packets sent again would have
        // arrived already. So only the newest packet is kept: it reveals the loss of earlier ones.
        let kept = if transport.is_some() { PACKETS_MAX - 1 } else { 0 };
        while self.packets.len() > kept {
            self.packets.pop_front();
        }
        self.packets.push_back(Sent { number, transport });
        self.times = 0;
        self.due = now.checked_add(wait(round_trip));
    }

    /// The time at which packets may have to be sent again.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the packets to send again now: those that are not known to have arrived.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        round_trip: Duration,
        has_arrived: impl Fn(u16) -> bool,
    ) -> impl Iterator<Item = SequenceNumber> {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.packets.retain(|packet| !packet.transport.is_some_and(&has_arrived));
            self.times += 1;
            let again = now.checked_add(wait(round_trip) * u32::from(self.times));
            self.due = again.filter(|_| self.times < TIMES_MAX && !self.packets.is_empty());
        }
        self.packets.iter().filter(move |_| is_due).map(|packet| packet.number)
    }
}

fn wait(round_trip: Duration) -> Duration {
    WAIT.saturating_add(round_trip.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    fn numbers(tail: &mut Tail, now: Instant, arrived: &[u16]) -> Vec<u16> {
        tail.take_due(now, ROUND_TRIP, |number| arrived.contains(&number)).map(|number| number.0).collect()
    }

    #[test]
    fn what_has_not_arrived_is_sent_again_twice_behind_a_pause() {
        let start = netsim::Clock::new().now();
        let mut tail = Tail::default();
        assert_eq!(tail.poll_timeout(), None);
        for n in 0..20 {
            tail.sent(start, SequenceNumber(100 + n), Some(n), ROUND_TRIP);
        }
        assert!(numbers(&mut tail, start + Duration::from_millis(349), &[]).is_empty(), "too early");
        let first = tail.poll_timeout().unwrap();
        assert_eq!(first - start, Duration::from_millis(350));
        assert_eq!(
            numbers(&mut tail, first, &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19]),
            [116, 117, 118]
        );
        let second = tail.poll_timeout().unwrap();
        assert_eq!(numbers(&mut tail, second, &[17]), [116, 118]);
        assert_eq!(tail.poll_timeout(), None, "two times are enough");
        // The next packet starts a new cycle.
        tail.sent(second, SequenceNumber(120), Some(20), ROUND_TRIP);
        let next = tail.poll_timeout().unwrap();
        assert!(numbers(&mut tail, next, &[16, 17, 18, 20]).is_empty());
        assert_eq!(tail.poll_timeout(), None, "all have arrived");
    }

    #[test]
    fn of_packets_without_numbers_the_last_is_sent_again() {
        let start = netsim::Clock::new().now();
        let mut tail = Tail::default();
        (0..5).for_each(|n| tail.sent(start, SequenceNumber(n), None, ROUND_TRIP));
        let due = tail.poll_timeout().unwrap();
        assert_eq!(numbers(&mut tail, due, &[]), [4]);
    }
}
