//! The queue on the path: delays of packets beyond the delay that the path has without queues.
//!
//! The two clocks are not the same, so only differences of delays mean something. The base is the shortest delay that was
//! seen. A queue that this sender has made itself never raises it, for while a queue stands less is sent and the queue
//! drains; only a delay that stays although less is sent is the path's own, and becomes the base.

/// The shortest delay of late is that of the last one or two of such times, in microseconds.
const RECENT_MICROS: i64 = 150_000;
/// Delays this far beyond the base are no queue, in microseconds, and four times the jitter, up to the last figure.
const ALLOWANCE: i64 = 10_000;
const ALLOWANCE_JITTER: i64 = 4;
const ALLOWANCE_JITTER_MAX: i64 = 150_000;
/// The base rises by one in so many of the jitter with each window.
const CREEP_WINDOWS: i64 = 8;
/// Weight of a window in the jitter: one in so many.
const JITTER_WINDOWS: i64 = 8;
/// A queue that is there still when so much more than all of it must have drained, in microseconds, is none.
const DRAINED_MORE: i64 = 100_000;
/// A queue that has not got shorter by an eighth within this time, though no more is sent than may, is none either.
const STANDS_MICROS: i64 = 3_000_000;
/// The base rises by one part in so many of the time, since clocks drift: about the drift of a bad crystal.
const DRIFT_PARTS: i64 = 10_000;
/// A leap of the other clock, in microseconds: nothing is known any more.
const LEAP_MICROS: i64 = 30_000_000;
/// Busy time, in microseconds, beyond which half of the measurement is forgotten.
const BUSY_WINDOW: i64 = 400_000;
/// With less busy time there is no rate.
const BUSY_MIN: i64 = 20_000;
/// A busy time ends with a pause of this length.
const BUSY_PAUSE: i64 = 1_000_000;

/// The rate at which a queue drains: arrivals of packets that waited, over the time between them. It is the rate of the
/// bottleneck, however little is sent.
#[derive(Debug, Clone, Copy, Default)]
struct BusyRate {
    /// Arrival of the last packet that waited.
    last: Option<i64>,
    bytes: u64,
    micros: i64,
}

impl BusyRate {
    fn packet(&mut self, arrived: i64, bytes: u64, waited: bool) {
        if !waited {
            self.last = None;
            return;
        }
        let Some(took) = self.last.replace(arrived).map(|last| arrived.saturating_sub(last)) else { return };
        if !(0..BUSY_PAUSE).contains(&took) {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.micros = self.micros.saturating_add(took);
        if self.micros > BUSY_WINDOW {
            (self.bytes, self.micros) = (self.bytes / 2, self.micros / 2);
        }
    }

    fn bits(&self) -> Option<f64> {
        (self.micros >= BUSY_MIN).then(|| super::rate::bits_per_second(self.bytes, self.micros))
    }
}

/// A queue that is being watched: the most that there was of it, how much must have drained since, and the shortest since with
/// its time; in microseconds.
#[derive(Debug, Clone, Copy)]
struct Standing {
    most: i64,
    drained: i64,
    least: i64,
    since: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    base: Option<i64>,
    drifted: i64,
    /// The delay of the last packet, in microseconds.
    delay: i64,
    /// By how much the shortest delay rises, and falls, from one window to the next: a queue does one of both for long, jitter
    /// does both.
    rises: i64,
    falls: i64,
    /// The shortest delay of this window, which ends at a time of arrival, and of the one before.
    ends: i64,
    current: i64,
    before: i64,
    standing: Option<Standing>,
    busy: BusyRate,
}

impl Queue {
    /// A packet left and arrived, in microseconds on two clocks. False: the other clock has leapt, and all begins anew.
    pub(super) fn packet(&mut self, sent: i64, arrived: i64, bytes: u64) -> bool {
        let delay = arrived.saturating_sub(sent);
        if self.base.is_some() && delay.saturating_sub(self.delay).saturating_abs() > LEAP_MICROS {
            *self = Self::default();
            self.begin(sent, arrived, delay);
            return false;
        }
        if self.base.is_none() {
            self.begin(sent, arrived, delay);
        }
        self.delay = delay;
        if arrived >= self.ends {
            self.turn(arrived, delay);
        }
        self.current = self.current.min(delay);
        self.drift(sent);
        self.base = self.base.map(|base| base.min(delay));
        let waited = self.beyond(delay) > 0;
        self.busy.packet(arrived, bytes, waited);
        true
    }

    fn begin(&mut self, sent: i64, arrived: i64, delay: i64) {
        self.base = Some(delay);
        (self.drifted, self.delay, self.current, self.before) = (sent, delay, delay, delay);
        self.ends = arrived.saturating_add(RECENT_MICROS);
    }

    /// A window is over.
    fn turn(&mut self, arrived: i64, delay: i64) {
        let change = self.current.saturating_sub(self.before);
        let follow =
            |known: i64, seen: i64| known.saturating_add(seen.saturating_sub(known) / JITTER_WINDOWS);
        self.rises = follow(self.rises, change.max(0));
        self.falls = follow(self.falls, change.saturating_neg().max(0));
        // The fastest packet of all is a rare one where delays vary: the base follows the usual ones.
        let creep = self.jitter() / CREEP_WINDOWS;
        self.base = self.base.map(|base| base.saturating_add(creep));
        let is_next = arrived < self.ends.saturating_add(RECENT_MICROS);
        self.before = if is_next { self.current } else { delay };
        (self.current, self.ends) = (delay, arrived.saturating_add(RECENT_MICROS));
    }

    fn drift(&mut self, sent: i64) {
        let rise = sent.saturating_sub(self.drifted) / DRIFT_PARTS;
        if rise > 0 {
            self.drifted = sent;
            self.base = self.base.map(|base| base.saturating_add(rise));
        }
    }

    const fn jitter(&self) -> i64 {
        if self.rises < self.falls { self.rises } else { self.falls }
    }

    /// The amount by which a delay is beyond the base and what jitter explains.
    fn beyond(&self, delay: i64) -> i64 {
        let jitter = self.jitter().saturating_mul(ALLOWANCE_JITTER);
        let allowed = ALLOWANCE.saturating_add(jitter.min(ALLOWANCE_JITTER_MAX));
        self.base.map_or(0, |base| delay.saturating_sub(base).saturating_sub(allowed).max(0))
    }

    /// The queue of late, in microseconds: what even the fastest packet waited.
    pub(super) fn micros(&self) -> i64 {
        self.beyond(self.current.min(self.before))
    }

    /// Bits per second of the bottleneck, where packets have waited before it.
    pub(super) fn drains(&self) -> Option<f64> {
        self.busy.bits()
    }

    /// Looks at how the queue changes; `now` is on the clock of the sender. Since the last look so many microseconds of it must
    /// have drained, as less was sent than the path carries; `obeys`: no more was sent than may.
    pub(super) fn watch(&mut self, now: i64, drained: i64, obeys: bool) -> Trend {
        let micros = self.micros();
        if micros == 0 {
            self.standing = None;
            return Trend::Empty;
        }
        let first = Standing { most: micros, drained: 0, least: micros, since: now };
        let known = self.standing.unwrap_or(first);
        let drained = known.drained.saturating_add(drained);
        let since = if obeys { known.since } else { now };
        let is_over = drained > known.most.saturating_add(known.most / 2).saturating_add(DRAINED_MORE);
        if is_over || now.saturating_sub(since) > STANDS_MICROS.max(known.least.saturating_mul(4)) {
            // What stays is the path.
            self.base = Some(self.current.min(self.before));
            (self.standing, self.busy) = (None, BusyRate::default());
            return Trend::Path;
        }
        if micros > known.most.saturating_add(known.most / 4) {
            self.standing = Some(first);
            return Trend::Grows;
        }
        let is_shorter = micros < known.least / 8 * 7;
        let (least, since) = if is_shorter { (micros, now) } else { (known.least, since) };
        self.standing = Some(Standing { most: known.most, drained, least, since });
        if micros < known.least { Trend::Drains } else { Trend::Stands }
    }
}

/// Change of a queue from one look to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trend {
    /// There is none.
    Empty,
    /// Shorter than ever since it was seen.
    Drains,
    /// Neither shorter nor much longer.
    Stands,
    /// Longer by a quarter or more.
    Grows,
    /// The path has got longer: there is no queue.
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets each 10 ms from this one on, with these delays in milliseconds; what the queue does at the end of each tenth of
    /// a second.
    fn run(queue: &mut Queue, from: i64, count: i64, delay: impl Fn(i64) -> i64) -> Vec<Trend> {
        let mut seen = Vec::new();
        for n in from..from + count {
            let sent = n * 10_000;
            queue.packet(sent, sent + 7_000_000 + delay(n) * 1000, 1250);
            if n % 10 == 9 {
                // A fifth less is sent than drains.
                seen.push(queue.watch(sent, 20_000, true));
            }
        }
        seen
    }

    #[test]
    fn what_waits_is_told_and_what_stays_is_the_path() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 100, |_| 30);
        assert_eq!(queue.micros(), 0);
        let grows = run(&mut queue, 100, 50, |n| 30 + (n - 100) * 4);
        assert!(grows.contains(&Trend::Grows), "{grows:?}");
        assert!((120_000..200_000).contains(&queue.micros()), "{}", queue.micros());
        // One that drains at any pace is a queue to its end.
        let drains = run(&mut queue, 150, 90, |n| 30 + (240 - n) * 2);
        assert!(!drains.contains(&Trend::Path), "{drains:?}");
        run(&mut queue, 240, 310, |_| 30);
        // A longer way: for a while it may be a queue of 190 ms, which a second would drain.
        let stays = run(&mut queue, 550, 400, |_| 230);
        let at = stays.iter().position(|trend| *trend == Trend::Path).unwrap();
        assert!((12..23).contains(&at), "{at}");
        assert_eq!(queue.micros(), 0);
        // A shorter one is known at once, and the longer one was.
        run(&mut queue, 950, 100, |_| 30);
        assert_eq!(queue.micros(), 0);
        run(&mut queue, 1050, 100, |_| 230);
        assert!(queue.micros() > 150_000);
    }

    /// A sender that sends all the same never makes a path of the queue.
    #[test]
    fn a_queue_that_is_fed_is_no_path() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 100, |_| 30);
        for n in 100..6_000 {
            let sent = n * 10_000;
            queue.packet(sent, sent + 7_500_000, 1250);
            assert_ne!(queue.watch(sent, 0, false), Trend::Path);
        }
        assert!(queue.micros() > 400_000);
    }

    #[test]
    fn jitter_is_no_queue() {
        for jitter in [5, 40, 150, 200] {
            let mut queue = Queue::default();
            let mut last = 0;
            let mut waits = Vec::new();
            for n in 0..3_000i64 {
                // Order is kept.
                last = (n * 10 + 30 + (n * 7919) % (jitter + 1)).max(last);
                queue.packet(n * 10_000, last * 1000, 1250);
                waits.push(queue.micros());
                queue.watch(n * 10_000, 2_000, true);
            }
            let long = waits.iter().skip(300).filter(|waits| **waits > 25_000).count();
            assert!(long * 25 < waits.len(), "{jitter}: {long}");
        }
    }

    /// However little is sent, a queue drains at the rate of the path; where nothing waits, nothing is known.
    #[test]
    fn the_bottleneck_is_measured_by_what_waits() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 100, |_| 30);
        assert_eq!(queue.drains(), None);
        // Forty packets at once each second, through a path of 1 Mb/s: 10 ms each.
        for second in 1..5 {
            for n in 0..40 {
                let sent = second * 1_000_000;
                queue.packet(sent, sent + 7_030_000 + (n + 1) * 10_000, 1250);
            }
        }
        let drains = queue.drains().unwrap();
        assert!((950_000.0..1_050_000.0).contains(&drains), "{drains}");
    }

    #[test]
    fn times_that_leap_begin_anew() {
        let mut queue = Queue::default();
        assert!(queue.packet(0, 5_000_000, 1000) && queue.packet(1000, 5_001_000, 1000));
        assert!(!queue.packet(2000, 5_002_000 - (1 << 30), 1000));
        assert_eq!((queue.micros(), queue.drains()), (0, None));
        for n in 0..1000i64 {
            let wild = [i64::MIN, 0, i64::MAX, n * 3_000_000, -n][usize::try_from(n % 5).unwrap()];
            queue.packet(wild, wild.wrapping_mul(7), u64::MAX);
            queue.watch(wild, wild.wrapping_neg(), n % 2 == 0);
        }
        // A clock that is slow by one in ten thousand makes no queue.
        let mut queue = Queue::default();
        for n in 0..60_000i64 {
            queue.packet(n * 10_000, n * 10_000 + n / 2, 1000);
            assert_eq!(queue.micros(), 0, "{n}");
        }
    }
}
