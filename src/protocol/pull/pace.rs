//! Pacing of files: each unit is emitted when its DTS is due, as by an encoder.
//!
//! A piece of a file contains many units. They wait here, and nothing further is read while any waits. The stream
//! keeps a reserve ahead of real time, against slow disks and pauses between two files; at the start, the reserve is
//! emitted immediately. When it is used up, everything that follows is delayed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::depackager::Output;

/// Maximum time by which a unit is emitted early, so that one wake-up emits all units that are due within this time.
const EARLY: Duration = Duration::from_millis(2);

/// The pacing of one file.
#[derive(Debug)]
pub(super) struct Pace {
    waiting: VecDeque<Output>,
    /// The reason for the end of the file, reported after the waiting outputs.
    ended: Option<String>,
    /// Time by which the stream should be ahead of real time.
    reserve: Duration,
    /// Time by which the stream was ahead before this attempt.
    lead: Duration,
    /// An instant, and the media time in milliseconds that is due at that instant.
    base: Option<(Instant, i64)>,
    /// The latest media time emitted.
    latest: i64,
}

impl Pace {
    pub(super) const fn new(reserve: Duration, lead: Duration) -> Self {
        Self { waiting: VecDeque::new(), ended: None, reserve, lead, base: None, latest: 0 }
    }

    /// Queues an output of a piece of the file.
    pub(super) fn push(&mut self, output: Output) {
        self.waiting.push_back(output);
    }

    /// Notes that the file has ended.
    pub(super) fn end(&mut self, reason: String) {
        self.ended.get_or_insert(reason);
    }

    /// Takes the reason for the end of the file. Called when no output waits.
    pub(super) const fn take_end(&mut self) -> Option<String> {
        self.ended.take()
    }

    /// True if no output waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the next output that is due at `now`.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Output> {
        let Some(ms) = time_of(self.waiting.front()?) else { return self.waiting.pop_front() };
        let lead = i64::try_from(self.lead.as_millis()).unwrap_or(0);
        let (since, from) = *self.base.get_or_insert_with(|| (now, ms.saturating_sub(lead)));
        let seen = moment(since, from, ms);
        if seen > now + self.reserve + EARLY {
            return None;
        }
        if seen < now && ms >= self.latest {
            self.base = Some((now, ms));
        }
        self.latest = self.latest.max(ms);
        let output = self.waiting.pop_front();
        if self.waiting.is_empty() {
            // Memory for a burst is not kept.
            self.waiting.shrink_to(16);
        }
        output
    }

    /// Returns the time at which the next output is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let ms = time_of(self.waiting.front()?);
        let (since, from) = self.base?;
        let seen = moment(since, from, ms.unwrap_or(from));
        Some(seen.checked_sub(self.reserve).unwrap_or(seen))
    }

    /// Returns the stream's lead over real time.
    pub(super) fn ahead_at(&self, now: Instant) -> Duration {
        let Some((since, from)) = self.base else { return Duration::ZERO };
        ahead(since, from, self.latest, now)
    }
}

/// Returns the lead of media over real time.
pub(super) fn ahead(since: Instant, from: i64, ms: i64, now: Instant) -> Duration {
    moment(since, from, ms).saturating_duration_since(now)
}

/// Returns the instant at which media of the time `ms` is played.
fn moment(since: Instant, from: i64, ms: i64) -> Instant {
    let media = Duration::from_millis(u64::try_from(ms.saturating_sub(from)).unwrap_or(0));
    since.checked_add(media).unwrap_or(since)
}

const fn time_of(output: &Output) -> Option<i64> {
    match output {
        Output::Unit { ms, .. } => *ms,
        Output::Dropped { .. }
        | Output::Clock(_)
        | Output::Bad
        | Output::Unsupported(_)
        | Output::LeftOut(_) => None,
    }
}
