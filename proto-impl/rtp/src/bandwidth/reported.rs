//! Estimates the rate of a path whose receiver reports only losses to its sender (receiver reports, RFC 3550
//! §6.4), as RTSP players do.
//!
//! Loss has two causes. A path that is too narrow loses fewer packets when less is sent; a path that loses
//! packets at random does not. Therefore each reduction of the limit is a trial, judged by reports about
//! packets that were sent after it:
//!
//! | loss after the trial | verdict | action |
//! |---|---|---|
//! | at most half (of little loss, a quarter) | the path is narrow | the limit stays, and grows while no more is lost |
//! | more, for the first time | unknown | the limit is reduced once more, since earlier packets may have been counted |
//! | more, for the second time | the path loses at random | the former limit returns; this loss is the path's own |
//! | over three in five, for the second time | the path is interrupted | the trial continues until something arrives |
//!
//! After a loss of a quarter or more, the rate that the path carried before is tried again immediately: the
//! path may only have been interrupted.
//!
//! If a path without a limit loses little, the same amount is first sent at an even pace, because bursts alone
//! may overflow its queue.
//!
//! A receiver that reports falsely only lowers its own rate, not below [`LIMIT_MIN`], or is sent data that it
//! does not receive.

use alloc::vec::Vec;
use std::time::{Duration, Instant};

use crate::number::{SequenceNumber, Ssrc};
use crate::rtcp::ReportBlock;

/// Minimum limit, in bits per second.
const LIMIT_MIN: u64 = 50_000;
/// If the highest number in a report is lower than before by more than this, the report is not an old one: the receiver
/// does not count cycles of the sequence numbers.
const CYCLE_HALF: i32 = 1 << 15;
/// Maximum number of sources; beyond it, the oldest is forgotten.
const SOURCES_MAX: usize = 16;
/// Loss beyond the path's own that starts a trial: in thousandths, in packets, and in standard deviations of
/// the path's own loss. The values are small, because each lost packet spoils the pictures up to the next key
/// frame.
const EXCESS: u64 = 2;
const EXCESS_PACKETS: u64 = 3;
const EXCESS_DEVIATIONS: u64 = 4;
/// Minimum duration and minimum number of packets judged together. If the loss exceeds the path's own by
/// `BAD_FROM` thousandths, the shorter `WINDOW_BAD` suffices, since chance then matters little.
const WINDOW: Duration = Duration::from_secs(5);
const WINDOW_PACKETS: u64 = 40;
const WINDOW_BAD: Duration = Duration::from_secs(1);
const BAD_FROM: u64 = 50;
/// The window that decides a trial contains enough packets for this many losses, if the loss has not changed since the
/// trial began.
const EVIDENCE: u64 = 16;
/// Maximum duration of a window, even if it contains too few packets.
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// Time without packets after which measuring restarts.
const PAUSE: Duration = Duration::from_secs(2);
/// Time after a change of the limit during which reports mostly cover packets sent before the change.
const SETTLES: Duration = Duration::from_secs(1);
/// If the previous report arrived at the change of the limit, and the next report arrives at least this much later, the
/// next report counts completely: few of its packets were sent before the change.
const SETTLED: Duration = Duration::from_secs(3);
/// A trial reduces the limit to this percentage of what arrived.
const LOWERED: u64 = 92;
/// Loss in thousandths up to which bursts may be the cause.
const BURSTS_MAX: u64 = 150;
/// Limit that spreads bursts, in percent of the rate sent.
const SPREAD: u64 = 125;
/// Time after the first packet in which a new receiver may be sent media published earlier. Losses in this
/// time are not judged.
const JOINS: Duration = Duration::from_millis(500);
/// If at most this loss, in thousandths, remains after bursts were spread, no lower limit is tried: the loss counts as
/// the path's own.
const LITTLE: u64 = 20;
/// Maximum number of reductions before the loss counts as random.
const LOWERINGS_MAX: u8 = 2;
/// Growth of the limit near the rate that was too high, in percent: per second, and the maximum per step.
const GROWTH_NEAR: (u64, u64) = (2, 4);
/// Growth of the limit elsewhere, in percent: per second, and the maximum per step.
const GROWTH: (u64, u64) = (8, 20);
/// Range around the rate that was too high, in percent of that rate, in which growth is slow. Until the hold
/// is over, the limit rises only to the middle value.
const NEAR: (u64, u64, u64) = (80, 92, 115);
/// Time for which the rate that was too high is not tried again; doubled each time that rate proves too high
/// again.
const HOLD: Duration = Duration::from_secs(20);
/// [`HOLD`] is doubled up to this time.
const HOLD_MAX: Duration = Duration::from_secs(300);
/// Loss in thousandths above which the path may have been interrupted for part of the time.
const AWAY_MIN: u64 = 250;
/// Loss in thousandths above which a path counts as interrupted, not as losing packets at random.
const RANDOM_MAX: u64 = 600;
/// Time without trials after loss was found to be random; doubled each time.
const RANDOM_FOR: Duration = Duration::from_secs(10);
/// [`RANDOM_FOR`] is doubled up to this time.
const RANDOM_FOR_MAX: Duration = Duration::from_secs(160);
/// Maximum limit, in percent of the rate sent.
const HEADROOM: u64 = 130;

/// A source about which the receiver reports.
#[derive(Debug, Clone, Copy)]
struct Source {
    ssrc: Ssrc,
    /// Extended number of the last packet sent.
    sent: u32,
    /// Extended number of the last packet sent before the last change of the limit.
    sent_before: u32,
    /// Highest sequence number in the last report.
    highest: u32,
    /// Cumulative number of lost packets in the last report.
    lost: i32,
    /// Time of the last report.
    at: Option<Instant>,
    /// Number of changes of the limit up to the latest report of this source.
    change: u32,
}

/// A window: reports that are judged together.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    /// Bytes sent before the window.
    sent: u64,
    expected: u64,
    lost: u64,
}

/// Result of a window.
#[derive(Debug, Clone, Copy)]
struct Seen {
    took: Duration,
    /// Bits per second sent.
    sent: u64,
    /// Bits per second that arrived.
    arrived: u64,
    /// Share of all packets that were lost, in thousandths.
    loss_of_all: u64,
    /// Number of packets judged.
    expected: u64,
    /// Number of judged packets that were lost.
    lost: u64,
}

impl Seen {
    /// Returns the share of judged packets that were lost, in thousandths.
    const fn loss(&self) -> u64 {
        self.lost.saturating_mul(1000) / if self.expected == 0 { 1 } else { self.expected }
    }

    /// True if the loss is higher than expected by chance on a path that loses `own` thousandths.
    const fn is_excess(&self, own: u64) -> bool {
        let mean = self.expected.saturating_mul(own) / 1000;
        let margin = self.expected.saturating_mul(EXCESS) / 1000;
        let margin = if margin < EXCESS_PACKETS { EXCESS_PACKETS } else { margin };
        self.lost > mean.saturating_add(margin).saturating_add(EXCESS_DEVIATIONS * mean.isqrt())
    }
}

/// A reduction of the limit that is not judged yet.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Loss before the trial, in thousandths.
    loss: u64,
    /// Limit before the trial.
    limit: Option<u64>,
    /// Bits per second that arrived before the trial. If the trial shows that the path is narrow, this is the rate that
    /// was too high.
    arrived: u64,
    lowerings: u8,
}

/// Estimates a path from receiver reports alone, as described in the module.
#[derive(Debug, Default)]
pub struct ReportedPath {
    sources: Vec<Source>,
    /// Bytes sent so far.
    sent: u64,
    /// Time of the last packet.
    last: Option<Instant>,
    /// Time of the first packet, and number of packets whose losses are not judged, because they were sent while the
    /// receiver joined.
    joined: Option<(Instant, u64)>,
    window: Option<Window>,
    /// Number of changes of the limit.
    change: u32,
    /// Window that begins with the last change of the limit.
    changed: Option<Window>,
    /// Share of all packets lost before the last change of the limit, in thousandths.
    loss_of_all: u64,
    limit: Option<u64>,
    trial: Option<Trial>,
    /// The path's own loss, in thousandths.
    own: u64,
    /// Highest rate of a stream that arrived completely; reset once that rate has proved too high.
    carried: u64,
    /// The rate that was too high.
    capacity: Option<u64>,
    /// Wait before the rate that was too high is tried again.
    hold: Wait,
    /// Wait before the next trial, after loss was found to be random.
    random: Wait,
}

/// A wait whose length is doubled on repetition.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    length: Duration,
    until: Option<Instant>,
}

impl Wait {
    const fn of(length: Duration) -> Self {
        Self { length, until: None }
    }

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Starts the wait now.
    fn begin(&mut self, now: Instant) {
        self.until = now.checked_add(self.length);
    }

    fn double(&mut self, most: Duration) {
        self.length = self.length.saturating_mul(2).min(most);
    }
}

impl ReportedPath {
    /// Creates the state for an unknown path.
    #[must_use]
    pub fn new() -> Self {
        Self { hold: Wait::of(HOLD), random: Wait::of(RANDOM_FOR), ..Self::default() }
    }

    /// Returns the maximum rate in bits per second, RTP headers included; `None` unless the path is known to be
    /// narrow.
    #[must_use]
    pub const fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Counts a packet that is sent. The numbers of a source must have no gaps. Reports about sources that
    /// never sent are ignored.
    pub fn packet_sent(&mut self, now: Instant, ssrc: Ssrc, number: SequenceNumber, bytes: usize) {
        if self.window.is_none() && self.changed.is_none() {
            self.open(now);
        }
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.saturating_duration_since(last) >= PAUSE) {
            self.set(now, self.limit);
        }
        self.sent = self.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let (first, packets) = self.joined.get_or_insert((now, 0));
        if now.saturating_duration_since(*first) < JOINS {
            *packets = packets.saturating_add(1);
        }
        if let Some(source) = self.sources.iter_mut().find(|source| source.ssrc == ssrc) {
            source.sent = source.sent.wrapping_add(1);
            return;
        }
        if self.sources.len() >= SOURCES_MAX {
            self.sources.remove(0);
        }
        let sent = u32::from(number.0);
        let (highest, change) = (sent.wrapping_sub(1), self.change);
        self.sources.push(Source { ssrc, sent, sent_before: highest, highest, lost: 0, at: None, change });
    }

    /// Applies a report. Returns true if the limit has changed.
    pub fn handle_report(&mut self, now: Instant, block: &ReportBlock) -> bool {
        let Some(source) = self.sources.iter_mut().find(|source| source.ssrc == block.ssrc) else {
            return false;
        };
        let came = block.highest_sequence.wrapping_sub(source.highest).cast_signed();
        if came < -CYCLE_HALF {
            // The highest number has restarted, because the receiver does not count cycles.
            (source.highest, source.lost) = (block.highest_sequence, block.cumulative_lost);
            return false;
        }
        // Ignores a repeated report, and a report older than the last one.
        let Some(expected) = u64::try_from(came).ok().filter(|expected| *expected > 0) else { return false };
        let lost = i64::from(block.cumulative_lost) - i64::from(source.lost);
        let lost = u64::try_from(lost).unwrap_or(0).min(expected);
        let unreported = u64::from(source.sent_before.wrapping_sub(source.highest)).min(expected);
        (source.highest, source.lost) = (block.highest_sequence, block.cumulative_lost);
        let before = source.at.replace(now);
        let mut old = 0;
        let since = self.changed.map(|changed| changed.since);
        if since.is_some_and(|since| now.saturating_duration_since(since) < SETTLES) {
            return false;
        }
        if core::mem::replace(&mut source.change, self.change) != self.change {
            let is_whole = since.is_some_and(|since| {
                before == Some(since) && now.saturating_duration_since(since) >= SETTLED
            });
            if self.window.is_none() {
                self.open(now);
                self.window = self.changed.filter(|_| is_whole).or(self.window);
            }
            if !is_whole {
                // Some packets of this report were sent before the limit changed, so the report is not judged.
                return false;
            }
            old = unreported;
        }
        let Some(window) = &mut self.window else { return false };
        // Assumes the former loss for packets sent before the change.
        let (expected, lost) =
            (expected - old, lost.saturating_sub(old.saturating_mul(self.loss_of_all) / 1000));
        window.expected = window.expected.saturating_add(expected);
        window.lost = window.lost.saturating_add(lost.min(expected));
        let before = self.limit;
        if let Some(seen) = self.close(now) {
            self.judge(now, seen);
        }
        self.limit != before
    }

    /// Starts a window.
    const fn open(&mut self, now: Instant) {
        self.window = Some(Window { since: now, sent: self.sent, expected: 0, lost: 0 });
    }

    /// Ends the window if it is long enough, and starts the next one.
    fn close(&mut self, now: Instant) -> Option<Seen> {
        let window = self.window?;
        let took = now.saturating_duration_since(window.since);
        let own = window.expected.saturating_mul(self.own.saturating_mul(2).saturating_add(BAD_FROM));
        let is_bad = window.lost.saturating_mul(1000) >= own;
        let least = if is_bad || self.trial.is_some() { WINDOW_BAD } else { WINDOW };
        // A window must contain so many packets that chance does not decide a trial.
        let packets =
            self.trial.map_or(WINDOW_PACKETS, |trial| EVIDENCE.saturating_mul(1000) / trial.loss.max(1));
        let is_whole = took >= least && window.expected >= packets || took >= WINDOW_MAX;
        if !is_whole {
            return None;
        }
        self.open(now);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let sent = self.sent.saturating_sub(window.sent).saturating_mul(8_000_000) / micros;
        let (expected, lost) = (window.expected.max(1), window.lost);
        let arrived = sent.saturating_mul(expected.saturating_sub(lost)) / expected;
        let loss_of_all = lost.saturating_mul(1000) / expected;
        // Media published before the receiver joined is sent in a burst, so its loss says little about the path.
        let joined = self.joined.as_mut().map_or(0, |(_, packets)| core::mem::take(packets));
        let (expected, lost) = (expected.saturating_sub(joined), lost.saturating_sub(joined));
        Some(Seen { took, sent, arrived, loss_of_all, expected, lost })
    }

    fn judge(&mut self, now: Instant, seen: Seen) {
        self.loss_of_all = seen.loss_of_all;
        let Some(trial) = self.trial.take() else {
            if seen.is_excess(self.own) {
                self.suspect(now, seen);
            } else {
                // Random loss is only assumed after a trial has shown it.
                self.own = if self.own > 0 { (self.own * 7 + seen.loss()) / 8 } else { 0 };
                if self.limit.is_none_or(|limit| seen.sent < limit / 10 * 9) {
                    self.carried = self.carried.max(seen.sent);
                }
                self.grow(now, seen);
            }
            return;
        };
        let part = if trial.loss > LITTLE { 2 } else { 4 };
        if seen.loss().saturating_mul(part) <= trial.loss {
            self.own = self.own.min(seen.loss());
            if trial.loss >= AWAY_MIN && self.limit.is_some_and(|limit| self.carried > limit) {
                // The path may have been interrupted only briefly, so its former rate is tried again once.
                let carried = core::mem::take(&mut self.carried);
                return self.set(now, Some(carried.saturating_mul(SPREAD) / 100));
            }
            if self.capacity.is_some_and(|before| trial.arrived >= before * NEAR.0 / 100) {
                self.hold.double(HOLD_MAX);
            } else {
                self.hold.length = HOLD;
            }
            self.capacity = Some(trial.arrived);
            self.hold.begin(now);
            self.random.length = RANDOM_FOR;
        } else if trial.lowerings < LOWERINGS_MAX && (trial.lowerings > 0 || seen.loss() > LITTLE) {
            let (lowerings, loss) = (trial.lowerings + 1, trial.loss.max(seen.loss()));
            self.lower(now, seen, Trial { lowerings, loss, arrived: seen.arrived, ..trial });
        } else if seen.loss() > RANDOM_MAX {
            // If nothing arrives at any rate, the path cannot be judged, so the trial continues.
            self.trial = Some(trial);
            self.set(now, self.limit);
        } else {
            self.own = seen.loss();
            self.random.begin(now);
            self.random.double(RANDOM_FOR_MAX);
            self.set(now, trial.limit);
        }
    }

    /// Starts a trial, unless loss was recently found to be random.
    fn suspect(&mut self, now: Instant, seen: Seen) {
        if self.random.is_on(now) {
            return;
        }
        let trial = Trial { loss: seen.loss(), limit: self.limit, arrived: seen.arrived, lowerings: 0 };
        if self.limit.is_none() && seen.loss() <= BURSTS_MAX {
            self.trial = Some(trial);
            return self.set(now, Some((seen.sent.saturating_mul(SPREAD) / 100).max(LIMIT_MIN)));
        }
        self.lower(now, seen, Trial { lowerings: 1, ..trial });
    }

    fn lower(&mut self, now: Instant, seen: Seen, trial: Trial) {
        // Packets that the path loses by itself do not use its capacity.
        let share = 1000u64.saturating_sub(self.own.min(500));
        let fits = seen.arrived.saturating_mul(1000) / share;
        self.trial = Some(trial);
        self.set(now, Some((fits.saturating_mul(LOWERED) / 100).max(LIMIT_MIN)));
    }

    fn grow(&mut self, now: Instant, seen: Seen) {
        let Some(limit) = self.limit else { return };
        let is_beyond = self.capacity.is_some_and(|capacity| limit > capacity * NEAR.2 / 100);
        if is_beyond {
            (self.capacity, self.hold.length) = (None, HOLD);
        }
        let near = self.capacity.filter(|capacity| limit >= capacity * NEAR.0 / 100);
        let (per_second, most) = if near.is_some() { GROWTH_NEAR } else { GROWTH };
        let percent = per_second.saturating_mul(seen.took.as_secs().max(1)).min(most);
        let grown = limit.saturating_mul(100 + percent) / 100;
        let ceiling = self.capacity.filter(|_| self.hold.is_on(now)).map(|capacity| capacity * NEAR.1 / 100);
        let most = (seen.sent.saturating_mul(HEADROOM) / 100).min(ceiling.unwrap_or(u64::MAX));
        // The limit grows in small steps, so measuring is not restarted: reports about packets sent under the former
        // limit count too.
        self.limit = Some(grown.min(most).max(limit));
    }

    fn set(&mut self, now: Instant, limit: Option<u64>) {
        self.limit = limit;
        self.change = self.change.wrapping_add(1);
        self.changed = Some(Window { since: now, sent: self.sent, expected: 0, lost: 0 });
        self.window = None;
        self.sources.iter_mut().for_each(|source| source.sent_before = source.sent);
    }
}

#[cfg(test)]
mod tests;
