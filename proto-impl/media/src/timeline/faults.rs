//! Faults of a publisher's clocks: their kinds, their counts, and the newest ones, to be logged.

use crate::TrackId;

/// Smallest change of [`ClockNews::MadeUp`] that is reported, in milliseconds.
const PACE_STEP_MS: i64 = 100;

/// A kind of fault of a publisher's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockFault {
    /// A track's clock continued from another value.
    Jump,
    /// Single units had timestamps that were far off. Afterwards the clock continued as before.
    Outlier,
    /// A track's clock stood still while the track was silent and other tracks continued.
    Pause,
    /// The distance between a track's timestamps and those of the other tracks differed too much from the distance at
    /// arrival.
    Apart,
    /// A track's clock runs faster or slower than real time.
    Drift,
    /// Units arrived whose timestamps did not advance.
    Frozen,
    /// Sender reports disagree with the arrival of the media that they describe.
    Report,
}

impl ClockFault {
    /// All kinds, in the order in which they are counted.
    pub const ALL: [Self; 7] =
        [Self::Jump, Self::Outlier, Self::Pause, Self::Apart, Self::Drift, Self::Frozen, Self::Report];

    /// Returns the name used in statistics and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jump => "jump",
            Self::Outlier => "outlier",
            Self::Pause => "pause",
            Self::Apart => "apart",
            Self::Drift => "drift",
            Self::Frozen => "frozen",
            Self::Report => "report",
        }
    }

    /// Returns a description of the correction that was made, for the log.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Jump => "the track continues where it was",
            Self::Outlier => "the units were placed between their neighbours",
            Self::Pause => "the track resumes at its time of arrival",
            Self::Apart => "the track was moved to its time of arrival",
            Self::Drift => "the track is gradually adjusted to real time",
            Self::Frozen => "arrival times replace the timestamps",
            Self::Report => "the reports are ignored; arrival times align the tracks",
        }
    }
}

/// A fault as reported to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultNews {
    /// Kind of the fault.
    pub fault: ClockFault,
    /// The track whose clock has the fault.
    pub track: TrackId,
    /// Error of the clock in milliseconds; positive if it is ahead of where it should be.
    pub off_ms: i64,
    /// Number of faults of this kind since the last report of the kind.
    pub count: u64,
}

/// A report about a publisher's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockNews {
    /// A fault was corrected.
    Fault(FaultNews),
    /// Number of milliseconds by which the stream has advanced more than its timestamps; negative if
    /// the timestamps ran too fast. Jumps are not counted.
    MadeUp(i64),
}

/// Counts of faults by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; ClockFault::ALL.len()]);

impl FaultCounts {
    /// Returns the number of faults of this kind.
    #[must_use]
    pub fn of(&self, fault: ClockFault) -> u64 {
        self.0.get(fault as usize).copied().unwrap_or(0)
    }

    /// Iterates over the kinds, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (ClockFault, u64)> {
        ClockFault::ALL.into_iter().zip(self.0)
    }

    /// Number of faults of all kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds `more` faults of a kind.
    pub fn add(&mut self, fault: ClockFault, more: u64) {
        if let Some(count) = self.0.get_mut(fault as usize) {
            *count = count.saturating_add(more);
        }
    }
}

/// The faults of one timeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub(super) counts: FaultCounts,
    /// The newest unreported fault of each kind.
    news: [Option<FaultNews>; ClockFault::ALL.len()],
    has_news: bool,
    /// Value of [`ClockNews::MadeUp`] that was last reported.
    pace_told: i64,
    /// Current value for [`ClockNews::MadeUp`].
    pace: i64,
}

impl Faults {
    pub(super) fn note(&mut self, fault: ClockFault, track: TrackId, off_ms: i64) {
        self.counts.add(fault, 1);
        if let Some(news) = self.news.get_mut(fault as usize) {
            let before = news.map_or(0, |news| news.count);
            *news = Some(FaultNews { fault, track, off_ms, count: before.saturating_add(1) });
            self.has_news = true;
        }
    }

    pub(super) fn note_pace(&mut self, made_up_ms: i64) {
        self.pace = made_up_ms;
        self.has_news |= made_up_ms.saturating_sub(self.pace_told).saturating_abs() >= PACE_STEP_MS;
    }

    pub(super) fn take(&mut self) -> Option<ClockNews> {
        if !self.has_news {
            return None;
        }
        if let Some(fault) = self.news.iter_mut().find_map(Option::take) {
            return Some(ClockNews::Fault(fault));
        }
        self.has_news = false;
        let told = core::mem::replace(&mut self.pace_told, self.pace);
        (told != self.pace).then_some(ClockNews::MadeUp(self.pace))
    }
}
