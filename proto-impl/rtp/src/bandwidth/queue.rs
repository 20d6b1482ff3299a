//! The queue on the path: delays of packets beyond the delay of the empty path.
//!
//! The clocks of sender and receiver differ, so only differences between delays are meaningful. The base is the
//! shortest delay seen. A queue caused by this sender never raises the base: while there is a queue, less is
//! sent, so the queue drains. Only a delay that persists although less is sent is attributed to the path, and
//! becomes the base.

/// Length of a window in microseconds; the recent shortest delay is taken over one to two windows.
const RECENT_MICROS: i64 = 150_000;
/// Delay beyond the base that does not count as a queue, in microseconds.
const ALLOWANCE: i64 = 10_000;
/// Multiple of the jitter added to [`ALLOWANCE`].
const ALLOWANCE_JITTER: i64 = 4;
/// The allowance for jitter is at least the overtaking time divided by this. The whole time would be too much, because
/// the shortest delays vary less.
const ALLOWANCE_OVERTAKEN: i64 = 2;
/// Overtaking time in microseconds above which distances between arrivals say nothing about a bottleneck.
const OVERTAKEN_MIN: i64 = 5_000;
/// Maximum allowance for jitter, in microseconds.
const ALLOWANCE_JITTER_MAX: i64 = 150_000;
/// Distances between arrivals indicate the bottleneck only if the time between two packets is at least this
/// many times the jitter. `PACKET_BYTES` is the assumed size of these packets.
const JITTER_STEADY: f64 = 3.0;
const PACKET_BYTES: u64 = 1_200;
/// At the end of each window, the base rises by the jitter divided by this.
const CREEP_WINDOWS: i64 = 8;
/// At the end of each window, the jitter moves towards the new value by the difference divided by this.
const JITTER_WINDOWS: i64 = 8;
/// A queue must drain within one and a half times its own length plus this time, in microseconds. A queue that remains
/// longer counts as delay of the path.
const DRAINED_MORE: i64 = 100_000;
/// If the sender obeys the rate, but a queue has not shrunk by an eighth within this time, in microseconds, the queue
/// counts as delay of the path.
const STANDS_MICROS: i64 = 3_000_000;
/// Clocks drift, so the base rises by the elapsed time divided by this: about the drift of a poor crystal.
const DRIFT_PARTS: i64 = 10_000;
/// Jump of the receiver's clock, in microseconds, after which measuring restarts.
const LEAP_MICROS: i64 = 30_000_000;
/// Total time in which packets waited in the queue, in microseconds, beyond which the measurement is halved, so that
/// newer packets count more.
const BUSY_WINDOW: i64 = 400_000;
/// Minimum total time in which packets waited, in microseconds, before a rate is computed.
const BUSY_MIN: i64 = 20_000;
/// Two waiting packets that arrive further apart than this are not measured; in microseconds.
const BUSY_PAUSE: i64 = 1_000_000;

/// The rate at which a queue drains: bytes of packets that waited, divided by the time between their arrivals. The
/// result is the rate of the bottleneck, even if little is sent.
#[derive(Debug, Clone, Copy, Default)]
struct BusyRate {
    /// Arrival of the last packet that had waited.
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

/// A queue under observation, in microseconds: its maximum length, the amount that must have drained since the maximum,
/// and its minimum length since then with the time of the minimum.
#[derive(Debug, Clone, Copy)]
struct Standing {
    most: i64,
    drained: i64,
    least: i64,
    since: i64,
}

/// Estimated queue on the path, described in the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    base: Option<i64>,
    drifted: i64,
    /// Delay of the last packet, in microseconds.
    delay: i64,
    /// Smoothed increase of the shortest delay from one window to the next. A queue makes the delay increase or
    /// decrease steadily; jitter makes it alternate.
    rises: i64,
    /// Smoothed decrease of the shortest delay from one window to the next.
    falls: i64,
    /// End of the current window, as an arrival time.
    ends: i64,
    /// Shortest delay in the current window.
    current: i64,
    /// Shortest delay in the previous window.
    before: i64,
    standing: Option<Standing>,
    busy: BusyRate,
    /// Time by which later packets overtake earlier ones on the path, in microseconds.
    overtaken: i64,
}

impl Queue {
    /// Adds a packet with its departure and arrival times, in microseconds on two clocks. Returns false if the
    /// receiver's clock has jumped, which restarts the measurement.
    pub(super) fn packet(&mut self, sent: i64, arrived: i64, bytes: u64) -> bool {
        let delay = arrived.saturating_sub(sent);
        if self.base.is_some() && delay.saturating_sub(self.delay).saturating_abs() > LEAP_MICROS {
            *self = Self { overtaken: self.overtaken, ..Self::default() };
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

    /// Ends a window.
    fn turn(&mut self, arrived: i64, delay: i64) {
        let change = self.current.saturating_sub(self.before);
        let follow =
            |known: i64, seen: i64| known.saturating_add(seen.saturating_sub(known) / JITTER_WINDOWS);
        self.rises = follow(self.rises, change.max(0));
        self.falls = follow(self.falls, change.saturating_neg().max(0));
        // If delays vary, the fastest packet is an exception, so the base moves towards the usual delays.
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

    /// Sets the time by which later packets overtake earlier ones on the path, in microseconds. Delays vary by that
    /// time even without a queue.
    pub(super) const fn set_overtaken(&mut self, micros: i64) {
        self.overtaken = micros;
    }

    /// Returns the part of a delay that exceeds the base and the expected jitter.
    fn beyond(&self, delay: i64) -> i64 {
        let jitter = self.jitter().saturating_mul(ALLOWANCE_JITTER);
        let jitter = jitter.max(self.overtaken / ALLOWANCE_OVERTAKEN);
        let allowed = ALLOWANCE.saturating_add(jitter.min(ALLOWANCE_JITTER_MAX));
        self.base.map_or(0, |base| delay.saturating_sub(base).saturating_sub(allowed).max(0))
    }

    /// Returns the current queue in microseconds: the time that even the fastest recent packet had to wait.
    pub(super) fn micros(&self) -> i64 {
        self.beyond(self.current.min(self.before))
    }

    /// True if there is no queue, and delays vary by less than the time between two packets at `rate`, in
    /// bits per second. Only then do distances between arrivals reflect the bottleneck.
    pub(super) fn is_steady(&self, rate: f64) -> bool {
        let jitter = super::rate::bits_per_second(PACKET_BYTES, self.jitter());
        self.micros() == 0 && jitter > JITTER_STEADY * rate
    }

    /// Returns the rate of the bottleneck in bits per second; `None` if no packets have waited in its queue,
    /// or if packets overtake each other.
    pub(super) fn drains(&self) -> Option<f64> {
        self.busy.bits().filter(|_| self.overtaken < OVERTAKEN_MIN)
    }

    /// Observes how the queue changes. `now` is on the sender's clock. `drained` is how much of the queue must
    /// have drained since the last call, in microseconds, because less was sent than the path carries. `obeys`
    /// is true if no more was sent than allowed.
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
            // The remaining delay is attributed to the path.
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

/// Change of a queue since the last observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trend {
    /// There is no queue.
    Empty,
    /// The queue is shorter than at any time since it was first observed.
    Drains,
    /// The queue is neither shorter than before nor much longer.
    Stands,
    /// The queue is longer than its former maximum, by more than a quarter.
    Grows,
    /// The path's delay has increased; the excess is not a queue.
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a packet every 10 ms, starting with number `from`, with these delays in milliseconds. Returns the
    /// trend after every tenth of a second.
    fn run(queue: &mut Queue, from: i64, count: i64, delay: impl Fn(i64) -> i64) -> Vec<Trend> {
        let mut seen = Vec::new();
        for n in from..from + count {
            let sent = n * 10_000;
            queue.packet(sent, sent + 7_000_000 + delay(n) * 1000, 1250);
            if n % 10 == 9 {
                // A fifth less is sent than the path carries.
                seen.push(queue.watch(sent, 20_000, true));
            }
        }
        seen
    }

    #[test]
    fn what_waits_is_told_and_what_stays_is_the_path() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 100, |_| 30);
        assert_eq!((queue.micros(), queue.is_steady(1_000_000.0)), (0, true));
        let grows = run(&mut queue, 100, 50, |n| 30 + (n - 100) * 4);
        assert!(grows.contains(&Trend::Grows), "{grows:?}");
        assert!((120_000..200_000).contains(&queue.micros()), "{}", queue.micros());
        // A draining queue counts as a queue until it is empty, however fast it drains.
        let drains = run(&mut queue, 150, 90, |n| 30 + (240 - n) * 2);
        assert!(!drains.contains(&Trend::Path), "{drains:?}");
        run(&mut queue, 240, 310, |_| 30);
        // A longer path: at first, the delay may be a queue of 190 ms, which would drain within a second.
        let stays = run(&mut queue, 550, 400, |_| 230);
        let at = stays.iter().position(|trend| *trend == Trend::Path).unwrap();
        assert!((12..23).contains(&at), "{at}");
        assert_eq!(queue.micros(), 0);
        // A shorter path is recognized immediately. Afterwards, the delay of the longer path counts as a
        // queue again.
        run(&mut queue, 950, 100, |_| 30);
        assert_eq!(queue.micros(), 0);
        run(&mut queue, 1050, 100, |_| 230);
        assert!(queue.micros() > 150_000);
    }

    /// A queue kept up by a sender that ignores the rate is never attributed to the path.
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
                // Packets do not overtake each other.
                last = (n * 10 + 30 + (n * 7919) % (jitter + 1)).max(last);
                queue.packet(n * 10_000, last * 1000, 1250);
                waits.push(queue.micros());
                queue.watch(n * 10_000, 2_000, true);
            }
            let long = waits.iter().skip(300).filter(|waits| **waits > 25_000).count();
            assert!(long * 25 < waits.len(), "{jitter}: {long}");
        }
    }

    /// In every second interval of 300 ms, the shortest delay is longer by 60 ms.
    #[test]
    fn where_delays_vary_by_the_distance_of_packets_that_says_nothing_of_the_path() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 660, |n| if n / 30 % 2 == 0 { 30 } else { 90 });
        assert_eq!(queue.micros(), 0);
        assert!(!queue.is_steady(1_000_000.0) && queue.is_steady(100_000.0));
    }

    /// A queue drains, whatever is sent, at the rate of the path; if no packets wait, that rate is unknown.
    #[test]
    fn the_bottleneck_is_measured_by_what_waits() {
        let mut queue = Queue::default();
        run(&mut queue, 0, 100, |_| 30);
        assert_eq!(queue.drains(), None);
        // Forty packets are sent at once every second, over a path of 1 Mb/s, where each takes 10 ms.
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
        // A clock that is slow by 50 parts per million does not look like a queue.
        let mut queue = Queue::default();
        for n in 0..60_000i64 {
            queue.packet(n * 10_000, n * 10_000 + n / 2, 1000);
            assert_eq!(queue.micros(), 0, "{n}");
        }
    }
}
