//! Tests with a source that follows the limit, a line with a queue, and a receiver that sends reports.

use crypto::Random;

use super::*;

const STREAM: u64 = 2_000_000;
const PACKET: u64 = 1200;
const SSRC: Ssrc = Ssrc(7);

struct Line {
    start: Instant,
    now_ms: u64,
    rate: u64,
    queue_ms: u64,
    /// Share of packets lost by chance before the queue, in thousandths.
    loss: u64,
    /// Interval of reports.
    report_ms: u64,
    random: Random,
    /// Time from which on the line is idle, in microseconds.
    free: u64,
    /// Credit for sending, in thousandths of a bit.
    credit: u64,
    path: ReportedPath,
    number: u16,
    sent: u64,
    lost: u64,
    /// True if the receiver counts cycles of the sequence numbers.
    counts_cycles: bool,
}

impl Line {
    fn new(rate: u64) -> Self {
        let path = ReportedPath::new();
        Self {
            start: netsim::Clock::new().now(),
            now_ms: 0,
            rate,
            queue_ms: 250,
            loss: 0,
            report_ms: 5_000,
            random: crypto::Seed::from_number(3).random(),
            free: 0,
            credit: 0,
            path,
            number: 65_000,
            sent: 0,
            lost: 0,
            counts_cycles: true,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn report(&self) -> ReportBlock {
        // Numbers start at 65 000, so the first cycle ends after 536 packets.
        let highest = u32::try_from(64_999 + self.sent).unwrap();
        let highest = if self.counts_cycles { highest } else { highest & 0xffff };
        ReportBlock {
            ssrc: SSRC,
            fraction_lost: 0,
            cumulative_lost: i32::try_from(self.lost).unwrap(),
            highest_sequence: highest,
            jitter: 0,
            last_sender_report: 0,
            delay_since_report: 0,
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 1000 {
            self.now_ms += 1;
            self.credit += STREAM.min(self.path.limit().unwrap_or(u64::MAX)) / 1000;
            while self.credit >= PACKET * 8 {
                self.credit -= PACKET * 8;
                let (now, number) = (self.at(self.now_ms), SequenceNumber(self.number));
                self.path.packet_sent(now, SSRC, number, usize::try_from(PACKET).unwrap());
                (self.sent, self.number) = (self.sent + 1, self.number.wrapping_add(1));
                let (now, free) = (self.now_ms * 1000, self.free.max(self.now_ms * 1000));
                if free - now > self.queue_ms * 1000 || self.random.below(1000) < self.loss {
                    self.lost += 1;
                } else {
                    self.free = free + PACKET * 8_000_000 / self.rate;
                }
            }
            if self.now_ms.is_multiple_of(self.report_ms) && self.sent > 0 {
                let (now, report) = (self.at(self.now_ms), self.report());
                self.path.handle_report(now, &report);
            }
        }
    }

    /// Returns the loss in thousandths, and the use of the line in percent, over the next `seconds`.
    fn judged(&mut self, seconds: u64) -> (u64, u64) {
        let (sent, lost) = (self.sent, self.lost);
        self.run(seconds);
        let (sent, lost) = (self.sent - sent, self.lost - lost);
        (lost * 1000 / sent, (sent - lost) * PACKET * 8 * 100 / seconds / self.rate)
    }
}

#[test]
fn a_path_that_carries_the_stream_has_no_limit() {
    for report_ms in [30, 1_000, 5_000] {
        let mut line = Line::new(STREAM * 11 / 10);
        line.report_ms = report_ms;
        line.run(120);
        assert_eq!((line.path.limit(), line.lost), (None, 0), "{report_ms}");
    }
}

#[test]
fn a_narrow_path_is_used_and_loses_little() {
    for report_ms in [30, 1_000, 5_000] {
        for percent in [30, 60, 90] {
            let mut line = Line::new(STREAM * percent / 100);
            line.report_ms = report_ms;
            line.run(40);
            let limit = line.path.limit().unwrap();
            let name = format!("{percent} % with reports each {report_ms} ms: {limit}");
            assert!((line.rate * 80 / 100..=line.rate * 112 / 100).contains(&limit), "{name}");
            let (lost, used) = line.judged(300);
            assert!(lost <= 12 && used >= 88, "{name}: {lost} lost in a thousand, {used} % used");
        }
    }
}

#[test]
fn random_loss_is_no_reason_to_send_less() {
    for report_ms in [30, 1_000, 5_000] {
        for loss in [10, 50, 250] {
            let mut line = Line::new(STREAM * 2);
            (line.report_ms, line.loss) = (report_ms, loss);
            line.run(60);
            let sent = line.sent;
            line.run(300);
            let share = (line.sent - sent) * PACKET * 8 * 100 / (STREAM * 300);
            assert!(share >= 93, "{loss} lost in a thousand, reports each {report_ms} ms: {share} % sent");
        }
    }
}

#[test]
fn a_narrow_path_that_loses_at_random_carries_what_arrives() {
    let mut line = Line::new(STREAM * 60 / 100);
    (line.report_ms, line.loss) = (1_000, 50);
    line.run(60);
    let (lost, used) = line.judged(300);
    assert!((40..=80).contains(&lost) && used >= 85, "{lost} lost in a thousand, {used} % used");
}

#[test]
fn random_loss_that_begins_later_is_no_spiral() {
    for loss in [50, 300] {
        let mut line = Line::new(STREAM * 60 / 100);
        line.report_ms = 1_000;
        line.run(60);
        line.loss = loss;
        line.run(60);
        let sent = line.sent;
        line.run(240);
        let rate = (line.sent - sent) * PACKET * 8 / 240;
        assert!(rate >= STREAM * 50 / 100, "{loss}: {rate}");
    }
}

#[test]
fn a_path_that_widens_is_tried_and_less_often_when_that_fails() {
    for (report_ms, within) in [(1_000, 90), (5_000, 110)] {
        let mut line = Line::new(STREAM * 40 / 100);
        line.report_ms = report_ms;
        line.run(40);
        assert!(line.path.limit().unwrap() < STREAM / 2);
        line.rate = STREAM * 2;
        line.run(within);
        assert!(line.path.limit().is_none_or(|limit| limit >= STREAM), "{:?}", line.path.limit());
    }
    let mut line = Line::new(STREAM * 60 / 100);
    line.report_ms = 1_000;
    line.run(60);
    let mut lost_in = |seconds| {
        let lost = line.lost;
        line.run(seconds);
        line.lost - lost
    };
    let (first, later) = (lost_in(600), lost_in(600));
    assert!(first > 0 && later < first, "{first} {later}");
}

/// Checks that a path on which nothing arrives for a while is assumed to have its former capacity afterwards.
#[test]
fn a_path_that_was_away_is_not_narrow() {
    for (report_ms, away) in [(1_000, 5), (1_000, 30), (5_000, 2), (5_000, 30)] {
        let mut line = Line::new(STREAM * 2);
        line.report_ms = report_ms;
        line.run(60);
        line.loss = 1_000;
        line.run(away);
        line.loss = 0;
        line.run(25);
        let limit = line.path.limit();
        assert!(limit.is_none_or(|limit| limit >= STREAM), "{report_ms} {away}: {limit:?}");
        // If a path becomes narrow, this is detected, although higher rates are tried.
        line.rate = STREAM / 2;
        line.run(60);
        let (lost, used) = line.judged(120);
        assert!(lost <= 15 && used >= 80, "{report_ms} {away}: {lost} lost in a thousand, {used} % used");
    }
}

/// Checks a receiver that reports only 16 bits of the highest number.
#[test]
fn a_receiver_that_counts_no_cycles_is_heard_again() {
    let mut line = Line::new(STREAM * 60 / 100);
    line.report_ms = 1_000;
    line.counts_cycles = false;
    line.run(120);
    let (lost, used) = line.judged(300);
    assert!(lost <= 40 && used >= 80, "{lost} lost in a thousand, {used} % used");
}

/// Checks that losses after a pause are not judged by the rate during the pause.
#[test]
fn a_pause_is_no_low_rate() {
    for narrow in [false, true] {
        let mut line = Line::new(if narrow { STREAM * 60 / 100 } else { STREAM * 2 });
        line.report_ms = 1_000;
        line.run(60);
        let before = line.path.limit();
        assert_eq!(before.is_some(), narrow);
        line.now_ms += 120_000;
        line.credit = 0;
        line.loss = 30;
        line.run(2);
        line.loss = 0;
        line.run(8);
        let limit = line.path.limit();
        assert!(limit.is_none_or(|limit| limit >= before.unwrap_or(STREAM) * 8 / 10), "{before:?} {limit:?}");
    }
}

#[test]
fn reports_that_tell_nothing_new_or_of_others_count_for_nothing() {
    let mut line = Line::new(STREAM);
    line.run(4);
    let (now, report) = (line.at(line.now_ms), line.report());
    let lies = ReportBlock { cumulative_lost: 0x7f_ffff, ..report };
    assert!(!line.path.handle_report(now, &ReportBlock { ssrc: Ssrc(8), ..lies }));
    assert!(!line.path.handle_report(now, &report));
    for old in [report.highest_sequence, report.highest_sequence - 100] {
        assert!(!line.path.handle_report(now, &ReportBlock { highest_sequence: old, ..lies }));
    }
    assert_eq!(line.path.limit(), None);
}

#[test]
fn x_13_whatever_reports_say_the_limit_has_bounds() {
    let mut line = Line::new(STREAM * 60 / 100);
    for n in 0..20_000u32 {
        let ssrc = if n % 3 == 0 { SSRC } else { Ssrc(n - n % 97) };
        line.path.packet_sent(line.at(u64::from(n) * 20), ssrc, SequenceNumber(5), 1200);
        let block = ReportBlock {
            ssrc,
            cumulative_lost: i32::try_from(line.random.below(1 << 24)).unwrap() - (1 << 23),
            highest_sequence: u32::try_from(line.random.below(1 << 32)).unwrap(),
            ..line.report()
        };
        line.path.handle_report(line.at(u64::from(n) * 20), &block);
        assert!(line.path.limit().is_none_or(|limit| (LIMIT_MIN..=STREAM).contains(&limit)));
        assert!(line.path.sources.len() <= SOURCES_MAX);
    }
}
