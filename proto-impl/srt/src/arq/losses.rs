//! The receiver's loss list, and when it is reported (draft-sharabayko-srt-01 §4.8.2).
//!
//! A gap is reported at once, and again a quarter of a round trip later in case the report was lost; the sender answers
//! only one of the two. If the packet has not arrived after a round trip, both reports are sent again. (libsrt reports
//! its whole list every half round trip; the number of reports is the same, but here their times follow from each
//! loss.)

use std::collections::VecDeque;

use crate::arq::rtt::Rtt;
use crate::packet::write_loss;
use crate::seq::Seq;

/// Maximum number of separate gaps remembered. Packets missing in further gaps are not requested.
pub(crate) const RANGES_MAX: usize = 4096;
/// Largest body of one loss report, in bytes.
const REPORT_BYTES_MAX: usize = 1400;
/// Minimum length of a cycle: the time in which a gap is reported twice, and after which it is reported again if its
/// packets have not arrived (libsrt: the shortest NAK interval of live mode).
const CYCLE_MIN_US: u32 = 20_000;
/// Time added to the round trip and its measured variation before a packet counts as lost again.
const SLACK_US: u32 = 3_000;

#[derive(Debug, Clone, Copy)]
struct Range {
    first: Seq,
    last: Seq,
    report_at: i64,
    reports: u32,
}

/// The gaps, in sequence order.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    ranges: VecDeque<Range>,
    /// Earliest time at which the next report may be due.
    next_at: Option<i64>,
}

impl Losses {
    /// Appends a gap that is to be reported from `report_at` on. Returns false if the list is full.
    pub(crate) fn push(&mut self, report_at: i64, first: Seq, last: Seq) -> bool {
        if self.ranges.len() >= RANGES_MAX {
            return false;
        }
        self.ranges.push_back(Range { first, last, report_at, reports: 0 });
        self.report_by(report_at);
        true
    }

    fn report_by(&mut self, at: i64) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    /// Puts the packets from `first` to `last`, which are all missing, into the next loss report.
    pub(crate) fn report_now(&mut self, now_us: i64, base: Seq, (first, last): (Seq, Seq)) {
        let Some(from) = first.ahead_of(base) else { return };
        // If the list is full, these packets are not reported now; gaps that are already in the list are reported when
        // they are due.
        if self.ranges.len() >= RANGES_MAX {
            return;
        }
        self.remove_range(base, first, last);
        let index =
            self.ranges.partition_point(|range| range.last.ahead_of(base).is_some_and(|end| end < from));
        self.ranges.insert(index, Range { first, last, report_at: now_us, reports: 0 });
        self.report_by(now_us);
    }

    /// Removes a packet that was received.
    pub(crate) fn remove(&mut self, base: Seq, seq: Seq) {
        self.remove_range(base, seq, seq);
    }

    /// Removes the packets from `first` to `last` from the list: they are not waited for any more.
    pub(crate) fn remove_range(&mut self, base: Seq, first: Seq, last: Seq) {
        let at = |seq: Seq| seq.ahead_of(base);
        let (Some(from), Some(to)) = (at(first), at(last)) else { return };
        let mut index = self.ranges.partition_point(|range| at(range.last).is_some_and(|end| end < from));
        while let Some(range) = self.ranges.get_mut(index) {
            let (Some(begin), Some(end)) = (at(range.first), at(range.last)) else { break };
            if begin > to {
                break;
            }
            match (begin < from, end > to) {
                (false, false) => {
                    self.ranges.remove(index);
                    continue;
                }
                (true, false) => range.last = first.previous(),
                (false, true) => range.first = last.next(),
                (true, true) => {
                    let behind = Range { first: last.next(), ..*range };
                    range.last = first.previous();
                    if self.ranges.len() < RANGES_MAX {
                        self.ranges.insert(index.saturating_add(1), behind);
                    }
                    break;
                }
            }
            index = index.saturating_add(1);
        }
        self.tidy();
    }

    /// Removes everything before `seq` from the list.
    pub(crate) fn remove_before(&mut self, seq: Seq) {
        while let Some(range) = self.ranges.front_mut() {
            if range.first.ahead_of(seq).is_some() {
                break;
            }
            if range.last.ahead_of(seq).is_some() {
                range.first = seq;
                break;
            }
            self.ranges.pop_front();
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.ranges.is_empty() {
            self.next_at = None;
            if self.ranges.capacity() > 64 {
                self.ranges = VecDeque::new();
            }
        }
    }

    /// Returns the time of the next report.
    pub(crate) const fn next_at(&self) -> Option<i64> {
        self.next_at
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Writes a loss report: appends to `body` the gaps whose report time has come. The body grows to at most
    /// [`REPORT_BYTES_MAX`]; the remaining gaps are left for the next report.
    pub(crate) fn report(&mut self, now_us: i64, rtt: Rtt, body: &mut Vec<u8>) {
        if self.next_at.is_none_or(|at| at > now_us) {
            return;
        }
        let cycle = rtt.us().saturating_add(rtt.var_us()).saturating_add(SLACK_US).max(CYCLE_MIN_US);
        let backup = cycle / 4;
        let mut next_at = None::<i64>;
        for range in &mut self.ranges {
            if range.report_at <= now_us && body.len().saturating_add(8) <= REPORT_BYTES_MAX {
                write_loss(range.first, range.last, body);
                let pause = if range.reports.is_multiple_of(2) { backup } else { cycle - backup };
                range.report_at = now_us.saturating_add(i64::from(pause));
                range.reports = range.reports.saturating_add(1);
            }
            next_at = Some(next_at.map_or(range.report_at, |at| at.min(range.report_at)));
        }
        self.next_at = next_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::losses;

    fn report(list: &mut Losses, now_us: i64) -> Vec<(u32, u32)> {
        let mut body = Vec::new();
        let mut rtt = Rtt::new();
        (0..100).for_each(|_| rtt.update(100_000));
        list.report(now_us, rtt, &mut body);
        losses(&body).map(|(first, last)| (first.value(), last.value())).collect()
    }

    fn list(ranges: &[(u32, u32)]) -> Losses {
        let mut list = Losses::default();
        ranges.iter().for_each(|(a, b)| assert!(list.push(0, Seq::new(*a), Seq::new(*b))));
        list
    }

    #[test]
    fn a_gap_is_told_at_once_a_quarter_later_and_after_the_round_trip() {
        let mut gaps = list(&[(5, 7)]);
        let times: Vec<i64> =
            (0..300).map(|ms| ms * 1000).filter(|at| !report(&mut gaps, *at).is_empty()).collect();
        assert_eq!(times, [0, 26_000, 103_000 + 1000, 130_000, 208_000, 234_000]);
    }

    #[test]
    fn gaps_may_wait_and_parts_of_them_be_reported_before() {
        let mut gaps = Losses::default();
        let base = Seq::new(0);
        assert!(gaps.push(500, Seq::new(10), Seq::new(20)) && gaps.push(300, Seq::new(30), Seq::new(30)));
        assert_eq!((gaps.next_at(), report(&mut gaps, 299)), (Some(300), vec![]));
        gaps.report_now(200, base, (Seq::new(14), Seq::new(15)));
        gaps.report_now(200, base, (Seq::new(5), Seq::new(5)));
        assert_eq!(report(&mut gaps, 200), [(5, 5), (14, 15)]);
        assert_eq!(report(&mut gaps, 300), [(30, 30)]);
        assert_eq!(report(&mut gaps, 500), [(10, 13), (16, 20)]);
    }

    #[test]
    fn what_came_is_taken_out_wherever_it_is() {
        let base = Seq::new(0x7fff_fff0);
        let at = |n: u32| base.plus(n);
        let mut gaps = Losses::default();
        gaps.push(0, at(10), at(20));
        gaps.push(0, at(30), at(30));
        gaps.push(0, at(40), at(49));
        gaps.remove(base, at(15));
        gaps.remove(base, at(10));
        gaps.remove(base, at(20));
        gaps.remove(base, at(30));
        gaps.remove(base, at(35));
        gaps.remove_before(at(12));
        gaps.remove_range(base, at(44), at(45));
        let wanted = [(12, 14), (16, 19), (40, 43), (46, 49)].map(|(a, b)| (at(a).value(), at(b).value()));
        assert_eq!(report(&mut gaps, 0), wanted);
        gaps.remove_range(base, at(14), at(47));
        assert_eq!(report(&mut gaps, 200_000).len(), 2);
        gaps.remove_range(base, at(0), at(100));
        assert_eq!((gaps.len(), gaps.next_at()), (0, None));
    }

    #[test]
    fn s_08_every_second_packet_missing_fills_the_list_and_no_more() {
        let mut gaps = Losses::default();
        let taken = (0..20_000).filter(|n| gaps.push(0, Seq::new(n * 2), Seq::new(n * 2))).count();
        assert_eq!((taken, gaps.len()), (RANGES_MAX, RANGES_MAX));
        let first = report(&mut gaps, 0);
        assert!(first.len() < 400);
        // Further reports at the same time contain the rest.
        assert_eq!(report(&mut gaps, 0)[0].0, first.last().unwrap().0 + 2);
    }
}
