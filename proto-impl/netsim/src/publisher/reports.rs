//! Sender reports of RTP (RFC 3550 §6.4.1): correct, wrong or absent.

use super::Publisher;

/// Sender reports of a publisher, by their fault. All times are in milliseconds of true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reports {
    /// No reports are sent.
    Absent,
    /// The reports agree with the sampling times.
    Agreeing,
    /// The reports of a track are off by `by`.
    Disagreeing {
        /// Index of the track.
        of: usize,
        /// Offset of the reported wall clock in milliseconds; positive if it is ahead of the true time.
        by: i64,
    },
    /// The wall clock is set at this time.
    Set {
        /// Time of the change.
        at: i64,
        /// New offset of the wall clock in milliseconds; positive if it is ahead of the true time.
        by: i64,
    },
    /// Only this track sends reports.
    Only(usize),
    /// The first report is sent again and again.
    Frozen,
}

/// Sender report: the wall clock and the clock of the track at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Wall clock in milliseconds since the beginning.
    pub wall: i64,
    /// Timestamp of the track.
    pub raw: u64,
}

impl Publisher {
    /// Returns the report that a track sends at the true time `now`.
    #[must_use]
    pub fn report(&self, track: usize, now: i64) -> Option<Report> {
        let (at, off) = match self.reports {
            Reports::Absent => return None,
            Reports::Only(one) if one != track => return None,
            Reports::Agreeing | Reports::Only(_) => (now, 0),
            Reports::Disagreeing { of, by } => (now, if of == track { by } else { 0 }),
            Reports::Set { at, by } => (now, if now >= at { by } else { 0 }),
            Reports::Frozen => (0, 0),
        };
        Some(Report { wall: at + off, raw: self.stamp(track, at, at).0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_say_what_they_should() {
        let report = |reports, track, now| {
            let publisher = Publisher { reports, start: 500, ..Publisher::clean() };
            publisher.report(track, now).map(|report| (report.wall, report.raw))
        };
        assert_eq!(report(Reports::Absent, 0, 1_000), None);
        assert_eq!(report(Reports::Agreeing, 1, 1_000), Some((1_000, 1_500)));
        assert_eq!(report(Reports::Disagreeing { of: 1, by: 4_000 }, 0, 1_000), Some((1_000, 1_500)));
        assert_eq!(report(Reports::Disagreeing { of: 1, by: 4_000 }, 1, 1_000), Some((5_000, 1_500)));
        assert_eq!(report(Reports::Set { at: 900, by: -1_500 }, 1, 800), Some((800, 1_300)));
        assert_eq!(report(Reports::Set { at: 900, by: -1_500 }, 1, 1_000), Some((-500, 1_500)));
        assert_eq!((report(Reports::Only(1), 0, 1), report(Reports::Only(1), 1, 1)), (None, Some((1, 501))));
        assert_eq!(report(Reports::Frozen, 0, 1_000), Some((0, 500)));
    }
}
