//! The first windows of a track: a clock that drifts from its first moment on.
//!
//! The first measured lead of such a clock has drifted already. The leads of its windows lie on a line
//! through the first one, while another track's stay where they are; network and jitter draw no such lines.

use super::limits::Limits;

/// Windows from the first one on that are looked at.
const WINDOWS_MAX: usize = 9;
/// Windows that make a line.
const WINDOWS_MIN: usize = 3;
/// Leads may lie off the line by this share of its rise.
const UNEVEN_DIVISOR: i64 = 16;
/// Fastest drift; what is faster is a start that comes at once.
const DRIFT_MAX_PPM: i64 = 200_000;
const MILLION: i64 = 1_000_000;

/// A drift that has lasted from the first moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlyDrift {
    /// Its speed in millionths.
    pub(super) ppm: i64,
    /// The lead of the first moment.
    pub(super) lead: i64,
}

/// A lead that has changed by this since the first window, and evenly, is a drift's: 40 ms.
const fn parting(limits: &Limits) -> i64 {
    limits.window * 2 / 25
}

/// A lead stays where it is, and a line is even, within this: 4 ms.
pub(super) const fn level(limits: &Limits) -> i64 {
    limits.window / 125
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Start {
    began: i64,
    /// The first window began then.
    opened: i64,
    /// The end of each window, and its lead.
    leads: [(i64, i64); WINDOWS_MAX],
    count: usize,
    over: bool,
    /// Windows that have taught the lead when all is well.
    pub(super) warm_up: u8,
}

impl Start {
    /// Of a track whose first unit arrived at `began`.
    pub(super) const fn new(began: i64) -> Self {
        Self { began, opened: began, leads: [(0, 0); WINDOWS_MAX], count: 0, over: false, warm_up: 0 }
    }

    /// A window has ended; `None`: it had no units.
    pub(super) fn note(&mut self, closed: i64, lead: Option<i64>, limits: &Limits) {
        if self.over {
            return;
        }
        let opened = closed.saturating_sub(limits.window);
        if self.count == 0 {
            // Part of a window is none.
            if self.began > opened.saturating_add(limits.window / 4) {
                return;
            }
            self.opened = opened.max(self.began);
        }
        match (self.leads.get_mut(self.count), lead) {
            (Some(slot), Some(lead)) => {
                *slot = (closed, lead);
                self.count += 1;
            }
            (Some(_), None) | (None, _) => self.over = true,
        }
    }

    /// Leads are to be expected so much greater.
    pub(super) fn rebase(&mut self, ticks: i64) {
        self.leads.iter_mut().for_each(|(_, lead)| *lead = lead.saturating_add(ticks));
    }

    /// The track is corrected from here on.
    pub(super) const fn end(&mut self) {
        self.over = true;
    }

    /// Whether its first windows are over.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    fn seen(&self) -> &[(i64, i64)] {
        if self.over { &[] } else { self.leads.get(..self.count).unwrap_or_default() }
    }

    /// Whether the track's lead has stayed where it was.
    pub(super) fn is_level(&self, limits: &Limits) -> bool {
        let seen = self.seen();
        let is_near = |first: i64, lead: i64| lead.saturating_sub(first).saturating_abs() <= level(limits);
        seen.len() >= WINDOWS_MIN
            && seen.first().is_some_and(|(_, first)| seen.iter().all(|(_, lead)| is_near(*first, *lead)))
    }

    /// The drift that the leads show.
    pub(super) fn drift(&self, limits: &Limits) -> Option<EarlyDrift> {
        let seen = self.seen();
        let (&(opened, first), &(closed, last)) = (seen.first()?, seen.last()?);
        let (rise, span) = (last.saturating_sub(first), closed.saturating_sub(opened));
        if seen.len() < WINDOWS_MIN || rise.saturating_abs() < parting(limits) || span <= 0 {
            return None;
        }
        let uneven = level(limits).saturating_add(rise.saturating_abs() / UNEVEN_DIVISOR);
        let on_line = |&(at, lead): &(i64, i64)| {
            let risen = rise.saturating_mul(at.saturating_sub(opened)) / span;
            lead.saturating_sub(first).saturating_sub(risen).saturating_abs() <= uneven
        };
        let ppm = rise.saturating_mul(MILLION) / span;
        if ppm.saturating_abs() > DRIFT_MAX_PPM || !seen.iter().all(on_line) {
            return None;
        }
        // The greatest lead in a window is its last where leads rise, and its first where they fall.
        let at = if rise > 0 { opened } else { self.opened };
        let drifted = ppm.saturating_mul(at.saturating_sub(self.began)) / MILLION;
        Some(EarlyDrift { ppm, lead: first.saturating_sub(drifted) })
    }
}
