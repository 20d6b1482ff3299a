//! Pacing of units that are old for a peer, because they came before it joined or because it has fallen behind.
//!
//! A viewer begins with the newest key frame, which may be ten seconds old. Sent in one burst, this backlog would
//! overflow any queue on the path, and retransmissions would arrive too late. Old units are therefore sent at [`SPEED`]
//! times their arrival speed while data is acknowledged in little more than a round trip, else at [`SPEED_MIN`]. No
//! unit is queued here; they stay in the ring.

use std::time::{Duration, Instant};

use ::srt::Stats;

/// Age up to which a unit counts as new and is sent without pacing. Units may wait this long to be sent together.
const NEW: Duration = Duration::from_millis(100);
/// Speed on a path without queues, in percent of the units' arrival speed.
const SPEED: u32 = 400;
/// Speed on any other path.
const SPEED_MIN: u32 = 110;
/// Maximum interval between two units that the pacing counts in full; a longer one counts as this much, because
/// the seconds of a publisher's absence have no data for the path. Units at longer intervals are therefore sent
/// faster than [`SPEED`] and [`SPEED_MIN`].
const GAP_MAX: Duration = Duration::from_millis(250);
/// Time by which units may be sent early, so that several go out together.
const BURST: Duration = Duration::from_millis(10);
/// Margin over the minimum round trip for an acknowledgement: the acknowledgement interval (10 ms) and a queue.
const QUEUE: Duration = Duration::from_millis(50);

/// The state of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    rtt: Duration,
    /// Age of the oldest unacknowledged packet.
    unacknowledged: Duration,
}

impl From<Stats> for Line {
    fn from(stats: Stats) -> Self {
        let rtt = Duration::try_from_secs_f64(stats.ms_rtt / 1000.0).unwrap_or_default();
        Self { rtt, unacknowledged: Duration::from_millis(stats.ms_snd_buf.into()) }
    }
}

/// The pacing of one peer.
#[derive(Debug)]
pub(super) struct Pace {
    /// Arrival time of the last old unit; `None` while the peer is up to date.
    last: Option<Instant>,
    /// Time at which the next unit may be sent; if past, some allowance is unused.
    due: Option<Instant>,
    /// True if the next unit must wait until `due`.
    waits: bool,
    /// Time at which the next unit is sent even if the path has queues.
    latest: Option<Instant>,
    /// The minimum round trip so far.
    rtt: Duration,
    /// True once the pacing has ended, so that all units are sent without delay.
    is_over: bool,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { last: None, due: None, waits: false, latest: None, rtt: Duration::MAX, is_over: false }
    }

    /// True if the next unit must wait.
    pub(super) fn holds(&self, line: impl FnOnce() -> Line) -> bool {
        let is_full = || line().unacknowledged > self.rtt.saturating_add(QUEUE);
        self.waits || (self.latest.is_some() && is_full())
    }

    /// The time at which [`Self::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.waits { self.due } else { self.latest }
    }

    /// Lets the next unit be sent if its time has come.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.waits = self.waits && self.due.is_some_and(|due| now < due);
        self.latest = self.latest.filter(|latest| now < *latest);
    }

    const fn rest(&mut self) {
        (self.last, self.due, self.waits, self.latest) = (None, None, false, None);
    }

    /// Notes that a unit received at `received` is being sent.
    pub(super) fn sent(&mut self, now: Instant, received: Instant, line: impl FnOnce() -> Line) {
        if self.is_over || now.saturating_duration_since(received) < NEW {
            return self.rest();
        }
        self.rtt = self.rtt.min(line().rtt);
        // The interval between the last two arrivals predicts the next one.
        let since = |last| received.saturating_duration_since(last).min(GAP_MAX);
        let came_in = self.last.map_or(Duration::ZERO, since);
        let due = self.due.map_or(now, |due| due.max(now)) + came_in * 100 / SPEED;
        self.last = Some(received);
        self.due = Some(due);
        self.waits = now + BURST < due;
        self.latest = Some(now + came_in * 100 / SPEED_MIN);
    }
}

impl crate::protocol::Paced for Pace {
    fn end(&mut self) {
        self.is_over = true;
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use netsim::{Clock, ms, secs};

    use super::*;
    use crate::protocol::Paced;

    /// Sends a backlog of the last `seconds`, one unit every 20 ms, until it is empty. Returns the times of sending.
    fn leave(pace: &mut Pace, seconds: u64, line: impl Fn() -> Line) -> Vec<Duration> {
        let mut clock = Clock::new();
        clock.advance(secs(seconds));
        let began = clock.now();
        let mut left = Vec::new();
        while clock.now() < began + secs(100) {
            let received = began - secs(seconds) + ms(20) * u32::try_from(left.len()).unwrap();
            if received > clock.now() {
                return left;
            }
            pace.handle_timeout(clock.now());
            if pace.holds(&line) {
                assert!(pace.poll_timeout().is_some_and(|at| at > clock.now()), "it is not woken");
                clock.advance(ms(1));
                continue;
            }
            pace.sent(clock.now(), received, &line);
            left.push(clock.now() - began);
        }
        left
    }

    const QUIET: Line = Line { rtt: ms(30), unacknowledged: ms(40) };

    fn in_a_second(left: &[Duration]) -> usize {
        left.iter().filter(|at| (ms(500)..ms(1500)).contains(*at)).count()
    }

    #[test]
    fn what_is_old_leaves_at_four_times_its_speed_until_nothing_is() {
        let mut pace = Pace::new();
        let left = leave(&mut pace, 6, || QUIET);
        // Six seconds of backlog, and the units that arrived meanwhile, take two seconds at four times their speed.
        let last = *left.last().unwrap();
        assert!(last > ms(1900) && last <= ms(2010), "{last:?}");
        assert!((190..=210).contains(&in_a_second(&left)), "{}", in_a_second(&left));
        let most = (0..1900).map(|n| left.iter().filter(|at| (ms(n)..ms(n + 5)).contains(*at)).count()).max();
        assert!(most.unwrap() <= 4, "{most:?} leave together");
        assert!(!pace.holds(|| QUIET) && pace.poll_timeout().is_none());
    }

    #[test]
    fn a_line_with_a_queue_gets_them_hardly_faster_than_they_came() {
        let mut pace = Pace::new();
        leave(&mut pace, 1, || QUIET);
        let queue = Line { rtt: ms(60), unacknowledged: ms(81) };
        let left = leave(&mut pace, 3, || queue);
        assert!((52..=58).contains(&in_a_second(&left)), "{}", in_a_second(&left));
        // On a path whose minimum round trip is 30 ms, a packet without acknowledgement for 81 ms means a queue. On
        // this path the minimum round trip is 60 ms, so 81 ms are normal, and units are sent at full speed.
        let left = leave(&mut Pace::new(), 6, || queue);
        assert!((190..=210).contains(&in_a_second(&left)), "{}", in_a_second(&left));
    }

    #[test]
    fn what_is_new_leaves_at_once() {
        let (mut pace, mut clock) = (Pace::new(), Clock::new());
        clock.advance(secs(1));
        for age in [99, 0, 50, 99] {
            pace.sent(clock.now(), clock.now() - ms(age), || QUIET);
            assert!(!pace.holds(|| Line { unacknowledged: secs(1), ..QUIET }));
        }
    }

    #[test]
    fn a_time_without_a_publisher_is_not_waited_for_again() {
        let (mut pace, mut clock) = (Pace::new(), Clock::new());
        clock.advance(secs(60));
        pace.sent(clock.now(), clock.now() - secs(50), || QUIET);
        pace.sent(clock.now(), clock.now() - secs(5), || QUIET);
        assert!(pace.poll_timeout().is_some_and(|at| at < clock.now() + ms(100)));
        clock.advance(ms(300));
        pace.handle_timeout(clock.now());
        assert!(!pace.holds(|| Line { unacknowledged: secs(1), ..QUIET }), "whatever is in the line");
    }

    #[test]
    fn nothing_waits_behind_the_end() {
        let (mut pace, mut clock) = (Pace::new(), Clock::new());
        clock.advance(secs(10));
        pace.sent(clock.now(), clock.now() - secs(9), || QUIET);
        pace.sent(clock.now(), clock.now() - ms(8800), || QUIET);
        assert_eq!(pace.poll_timeout(), Some(clock.now() + ms(50)));
        for _ in 0..2 {
            pace.end();
            assert!(!pace.holds(|| QUIET) && pace.poll_timeout().is_none());
            pace.sent(clock.now(), clock.now() - secs(7), || QUIET);
        }
    }
}
