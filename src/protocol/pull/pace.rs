//! Pacing of files: each unit leaves when its DTS is due, as from an encoder.
//!
//! A piece of a file makes many units. They wait here, and nothing further is read while any waits. The stream keeps a reserve
//! ahead of real time, given out at once at its start, for slow disks and for the pause between two files. When the reserve is
//! used up, all that follows moves on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::depackager::Output;

/// A unit is given out up to this much before it is due, so that one wake serves the units of a moment.
const EARLY: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    waiting: VecDeque<Output>,
    /// The reason of the end behind them.
    ended: Option<String>,
    /// The time by which the stream is to be ahead of real time.
    reserve: Duration,
    /// The time by which it was ahead before this attempt.
    lead: Duration,
    /// A moment, and the media time in milliseconds that is due then.
    base: Option<(Instant, i64)>,
    /// The latest media time given out.
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

    /// The file has ended.
    pub(super) fn end(&mut self, reason: String) {
        self.ended.get_or_insert(reason);
    }

    /// The reason of the end; asked for when nothing waits.
    pub(super) const fn take_end(&mut self) -> Option<String> {
        self.ended.take()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next output that is due at `now`.
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
            // A burst leaves no memory behind.
            self.waiting.shrink_to(16);
        }
        output
    }

    /// Time at which the next output is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let ms = time_of(self.waiting.front()?);
        let (since, from) = self.base?;
        let seen = moment(since, from, ms.unwrap_or(from));
        Some(seen.checked_sub(self.reserve).unwrap_or(seen))
    }

    /// The time by which the stream is ahead of real time.
    pub(super) fn ahead_at(&self, now: Instant) -> Duration {
        let Some((since, from)) = self.base else { return Duration::ZERO };
        ahead(since, from, self.latest, now)
    }
}

/// The time by which media are ahead of real time.
pub(super) fn ahead(since: Instant, from: i64, ms: i64, now: Instant) -> Duration {
    moment(since, from, ms).saturating_duration_since(now)
}

/// The moment at which a media time is to be seen.
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
