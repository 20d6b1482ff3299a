//! The clock of one track: derives the places of its units on the stream's clock from their
//! timestamps, and compares these places with the arrival of the units.

use core::ops::RangeInclusive;

use super::bend::Bend;
use super::limits::Limits;
use super::slew::Slew;
use crate::TrackId;

/// Minimum number of units with the same timestamp after which the clock may be considered to stand still.
const FROZEN_UNITS: u32 = 8;
/// After this many successive units without a plausible timestamp, places are determined by arrival alone.
const SUSPECTS_MAX: u8 = 8;
/// Number of windows at the start of a track after which its delay is known. Only the last two of them are
/// used, because the first units may arrive in a burst.
const WARM_UP_WINDOWS: u8 = 4;
/// A track may have drifted since its start only if the drift is found after a number of windows in
/// this range.
const FROM_START_WINDOWS: RangeInclusive<u8> = 2..=24;
/// If a lead changes by at most the length of a window divided by this, the change may be jitter of the network.
const UNEVEN_DIVISOR: i64 = 100;
/// Number of windows needed to distinguish a drift since the start from jitter.
const LINE_WINDOWS: u8 = 4;
/// Number of units after which their interval is known.
const YOUNG_UNITS: u8 = 8;
/// Divisor for the weight of the newest interval in the average.
const STEP_DIVISOR: i64 = 8;
/// The average interval is kept in this many parts of a tick.
const STEP_PARTS: i64 = 64;
/// A track's error against its sender reports is corrected gradually: each unit whose timestamp is greater
/// than all before it corrects the error divided by this.
const NUDGE_DIVISOR: i64 = 8;
/// Maximum network delay that is expected to end suddenly, in windows: five seconds.
const TAKEN_WINDOWS: i64 = 10;
/// Marks a window without a measurement.
const NONE: i64 = i64::MIN;

/// A unit whose timestamp does not follow from the ones before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspect {
    pub(super) raw: i64,
    pub(super) out: i64,
}

/// A sender's reports about one source.
#[derive(Debug, Clone, Copy)]
struct Reports {
    /// Sender time minus the source's timestamp, according to the last report.
    told: i64,
    /// Distance from the reference track that the reports have last shown.
    seen: i64,
    /// Time since which the reports have shown this distance.
    since: i64,
    /// Sum of the movements that were made to follow the reports.
    moved: i64,
    /// True if the last report was believed.
    believed: bool,
    /// True if the track was moved to its position according to the reports.
    aligned: bool,
    /// True if the owner was informed that the reports disagree with arrival.
    doubted: bool,
    /// Distance by which the track is ahead of its position in the reports.
    off: i64,
    /// Movement that the next unit makes.
    due: i64,
    /// True after the reports have shown a large distance, until the track has been moved by that distance.
    stepped: bool,
    /// Time at which the reports last agreed with the track's position.
    agreed: i64,
    noise: Noise,
}

/// Variation of sender reports that are not stable, measured in periods of [`Limits::noisy`].
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Start of the current period.
    since: i64,
    /// Smallest and greatest distance that the reports have shown in this period.
    least: i64,
    most: i64,
    /// Movement that is left to bring the track to the middle of the last period's distances.
    left: i64,
}

impl Noise {
    const fn new(off: i64, now: i64) -> Self {
        Self { since: now, least: off, most: off, left: 0 }
    }

    /// Handles the distance that the reports show now. Returns true at the end of a period in which the
    /// reports varied little enough to be followed; `left` is then the movement to the middle of their
    /// distances.
    fn note(&mut self, off: i64, now: i64, limits: &Limits) -> bool {
        (self.least, self.most) = (self.least.min(off), self.most.max(off));
        if now.saturating_sub(self.since) < limits.noisy() {
            return false;
        }
        let is_narrow = self.most.saturating_sub(self.least) <= limits.noise();
        let middle = self.least.saturating_add(self.most) / 2;
        let is_off = middle.saturating_abs() > limits.agree / 2;
        *self = Self::new(off, now);
        if is_narrow && is_off {
            self.left = middle.saturating_neg();
        }
        is_narrow
    }

    /// Adjusts the measured distances after the track was moved by `ticks`.
    const fn carry(&mut self, ticks: i64) {
        self.least = self.least.saturating_add(ticks);
        self.most = self.most.saturating_add(ticks);
    }
}

/// The position of a track on its sender's clock, to which other tracks are aligned.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportBase {
    /// Stream time minus sender time.
    offset: i64,
    /// Greatest recent lead of the units: place minus arrival.
    lead: i64,
}

/// The effect of a sender report on a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alignment {
    /// Nothing to report: no movement, or one within the limits.
    Fine,
    /// Sender reports disagree with arrival by this much. Returned only once.
    Doubted(i64),
}

impl Reports {
    /// True if the next unit moves the track forward by the whole distance.
    const fn is_whole(&self) -> bool {
        !self.aligned && self.due > 0 && self.due == self.off.saturating_neg()
    }

    const fn new(told: i64, now: i64) -> Self {
        Self {
            told,
            seen: 0,
            since: now,
            moved: 0,
            believed: false,
            aligned: false,
            doubted: false,
            off: 0,
            due: 0,
            stepped: false,
            agreed: now,
            noise: Noise::new(0, now),
        }
    }
}

/// Ordinary lead of a track (place minus arrival of its units), and the measurement that it is based on.
#[derive(Debug, Clone, Copy)]
struct Reference {
    lead: Option<i64>,
    /// Lead in the first window.
    first: i64,
    /// Number of measurement windows that were used to find `lead`.
    warm_up: u8,
    /// Number of measurement windows since `lead` was found.
    measured: u8,
    /// Part of `lead` that was lost by a delay of the network; zero or negative. When the delay ends, units
    /// arrive with the lead `lead - taken` again.
    taken: i64,
}

/// Successive units with the same timestamp.
#[derive(Debug, Clone, Copy)]
struct Still {
    /// Number of the units.
    units: u32,
    /// Arrival of the first of them.
    since: i64,
    /// Interval used for units that arrive together while the clock stands still; `None` while the clock
    /// runs.
    interval: Option<i64>,
}

impl Still {
    const fn new(now: i64) -> Self {
        Self { units: 0, since: now, interval: None }
    }
}

/// The clock of a track. For files, times of arrival are zero.
#[derive(Debug, Clone)]
pub(super) struct TrackClock {
    pub(super) id: TrackId,
    /// Last timestamp that was believed.
    pub(super) raw: i64,
    /// Offset that is added to timestamps.
    pub(super) offset: i64,
    /// The part of the offset that compensates for the pace of the clock.
    pub(super) made_up: i64,
    /// Latest place that was assigned to a unit.
    pub(super) top: i64,
    /// Average interval of units, in ticks times `STEP_PARTS`.
    typical: i64,
    /// Number of units from which the interval was learnt, counted up to `YOUNG_UNITS`.
    learnt: u8,
    /// Arrival of the last unit.
    pub(super) arrived: i64,
    /// Time since which units have arrived without a gap.
    pub(super) flows_since: i64,
    pub(super) suspect: Option<Suspect>,
    /// Number of successive units that were placed without using their timestamps.
    suspects: u8,
    still: Still,
    /// The DTS that was returned last.
    last: i64,
    /// Greatest `place - arrival` of the units in this measurement window.
    window: i64,
    /// Greatest `place - arrival` in the last measurement window that had units.
    previous: i64,
    /// The track's ordinary lead. The leads of later windows are compared with it.
    reference: Reference,
    /// Lead minus the ordinary lead, in the last measurement window; `None` if it had no measurement.
    pub(super) error: Option<i64>,
    /// Lead minus the ordinary lead, in the last window that had a measurement.
    last_error: i64,
    /// Change of the lead since the previous window that had a measurement; `None` if this window
    /// had none.
    pub(super) change: Option<i64>,
    pub(super) far_windows: u8,
    pub(super) slew: Slew,
    reports: Option<Reports>,
    bend: Bend,
}

impl TrackClock {
    /// Creates the clock of a track whose first unit arrived at `now`.
    pub(super) const fn new(id: TrackId, raw: i64, offset: i64, now: i64, step: i64) -> Self {
        let top = raw.saturating_add(offset);
        Self {
            id,
            raw,
            offset,
            made_up: 0,
            top,
            typical: step.saturating_mul(STEP_PARTS),
            learnt: 0,
            arrived: now,
            flows_since: now,
            suspect: None,
            suspects: 0,
            still: Still::new(now),
            last: 0,
            window: top.saturating_sub(now),
            previous: NONE,
            reference: Reference { lead: None, first: 0, warm_up: 0, measured: 0, taken: 0 },
            error: None,
            last_error: 0,
            change: None,
            far_windows: 0,
            slew: Slew::NEW,
            reports: None,
            bend: Bend::new(raw),
        }
    }

    /// Greatest recent lead of the units: place minus arrival.
    pub(super) fn peak(&self) -> i64 {
        self.window.max(self.previous)
    }

    /// Recent lead minus the ordinary lead. Negative if the track is late.
    pub(super) fn lateness(&self) -> Option<i64> {
        Some(self.peak().saturating_sub(self.reference.lead?))
    }

    /// The place of a unit that arrives now, assuming that all tracks have this `lateness` (negative if late,
    /// as in [`Self::lateness`]).
    pub(super) fn due(&self, now: i64, lateness: i64) -> i64 {
        let lead = self.reference.lead.map_or_else(|| self.peak(), |lead| lead.saturating_add(lateness));
        now.saturating_add(lead)
    }

    /// Average interval of the units.
    pub(super) const fn typical(&self) -> i64 {
        self.typical.saturating_add(STEP_PARTS / 2) / STEP_PARTS
    }

    /// True if too few units have arrived to know their interval.
    pub(super) const fn is_young(&self) -> bool {
        self.learnt < YOUNG_UNITS
    }

    /// True if timestamps have been implausible for so long that only arrival is used.
    pub(super) const fn is_lost(&self) -> bool {
        self.suspects >= SUSPECTS_MAX
    }

    /// Returns the expected place of the next unit, from the interval of the units before it and from its
    /// arrival.
    pub(super) fn predicted(&self, now: Option<i64>, limits: &Limits) -> i64 {
        let next = self.top.saturating_add(self.typical());
        let Some(now) = now else { return next };
        let due = now.saturating_add(self.peak());
        let elapsed = now.saturating_sub(self.arrived);
        if elapsed > self.typical().saturating_mul(2).saturating_add(limits.near) || self.is_lost() {
            due.max(self.top)
        } else {
            next.min(due.saturating_add(limits.slack)).max(self.top)
        }
    }

    /// Moves the track by `ticks` from now on.
    pub(super) const fn shift(&mut self, ticks: i64) {
        self.offset = self.offset.saturating_add(ticks);
    }

    /// Moves the track by media time that its timestamps lack, or, if `ticks` is negative, by media time that
    /// they have in excess.
    pub(super) const fn make_up(&mut self, ticks: i64) {
        self.shift(ticks);
        self.made_up = self.made_up.saturating_add(ticks);
    }

    /// Adds `ticks` to the expected lead from now on, because the network or the publisher's pace has changed
    /// for all tracks.
    pub(super) fn absorb(&mut self, ticks: i64, limits: &Limits) {
        self.move_reference(ticks);
        // A network cannot delay units faster than time passes. If more lead was lost, the clock stood still while
        // nothing arrived, and such a delay does not end.
        if ticks >= limits.window.saturating_mul(-2) {
            let taken = self.reference.taken.saturating_add(ticks);
            self.reference.taken = taken.clamp(limits.window.saturating_mul(-TAKEN_WINDOWS), 0);
        }
    }

    /// Adds `ticks` to the ordinary lead as if it had been that large since the track's first moment, so that the
    /// change does not count as an error.
    pub(super) fn move_reference(&mut self, ticks: i64) {
        self.rebase(ticks);
        self.last_error = self.last_error.saturating_sub(ticks);
        self.error = self.error.map(|error| error.saturating_sub(ticks));
    }

    /// Moves the track together with its expected and measured leads.
    fn carry(&mut self, ticks: i64) {
        self.shift(ticks);
        self.rebase(ticks);
        for lead in [&mut self.window, &mut self.previous] {
            if *lead != NONE {
                *lead = lead.saturating_add(ticks);
            }
        }
    }

    fn rebase(&mut self, ticks: i64) {
        self.reference.lead = self.reference.lead.map(|lead| lead.saturating_add(ticks));
    }

    /// Handles a window in which the track was silent. Its next units are expected to be as late as those of
    /// the other tracks.
    pub(super) fn expect(&mut self, lateness: i64) {
        if let Some(lead) = self.reference.lead.filter(|_| self.reference.warm_up == WARM_UP_WINDOWS) {
            self.previous = lead.saturating_add(lateness);
        }
    }

    /// Returns the DTS of a unit that plainly follows the previous one, on a clock without corrections. For
    /// any other unit, returns `None` and changes nothing.
    pub(super) fn follow(&mut self, raw: i64, common: i64, now: i64, limits: &Limits) -> Option<i64> {
        // A value that wraps here cannot lie within the limits below.
        let out = raw.wrapping_add(self.offset).wrapping_add(common);
        let advance = out.wrapping_sub(self.top);
        let is_plain = self.suspect.is_none()
            && self.still.units == 0
            && !self.slew.is_active()
            && (1..=limits.step_max).contains(&advance)
            && now.wrapping_sub(self.arrived) < limits.gap;
        if !is_plain || out > self.latest(now, limits) {
            return None;
        }
        self.learn(advance);
        (self.raw, self.top, self.arrived) = (raw, out, now);
        self.window = self.window.max(out.saturating_sub(now));
        Some(self.monotone(out))
    }

    /// Returns the greatest lead that the next unit can have: the recent lead, or the ordinary one if the
    /// network was late and may be on time again.
    fn lead(&self) -> i64 {
        let Reference { lead, warm_up, taken, .. } = self.reference;
        let on_time = lead.filter(|_| warm_up == WARM_UP_WINDOWS).map(|lead| lead.saturating_sub(taken));
        on_time.map_or_else(|| self.peak(), |lead| lead.max(self.peak()))
    }

    /// Returns the latest place at which a unit that arrives now can be.
    pub(super) fn latest(&self, now: i64, limits: &Limits) -> i64 {
        let next = self.top.saturating_add(self.typical());
        next.max(now.saturating_add(self.lead())).saturating_add(limits.slack)
    }

    /// Updates the average interval of units with a new, plausible interval.
    const fn learn(&mut self, advance: i64) {
        let error = advance.saturating_mul(STEP_PARTS).saturating_sub(self.typical);
        let weight = if self.learnt == 0 { 1 } else { STEP_DIVISOR };
        self.typical = self.typical.saturating_add(error / weight);
        if self.learnt < YOUNG_UNITS {
            self.learnt += 1;
        }
    }

    /// Records a unit whose timestamp was believed.
    pub(super) fn accept(&mut self, raw: i64, out: i64, now: i64, limits: &Limits) {
        let advance = out.saturating_sub(self.top);
        if (1..=limits.step_max).contains(&advance) {
            self.learn(advance);
        }
        if now.saturating_sub(self.arrived) > limits.gap {
            self.flows_since = now;
        }
        self.suspects = 0;
        self.raw = raw;
        self.bend.accept(raw, limits.back);
        self.top = self.top.max(out);
        self.arrived = now;
        self.window = self.window.max(out.saturating_sub(now));
    }

    /// Records a unit that was placed without using its timestamp.
    pub(super) fn place_suspect(&mut self, suspect: Suspect, now: i64) {
        self.suspect = Some(suspect);
        self.suspects = self.suspects.saturating_add(1);
        self.top = self.top.max(suspect.out);
        self.arrived = now;
    }

    /// Handles the timestamp of one more unit. The first result is true if timestamps have stood still for
    /// too long. The second is true if this was not known before this unit.
    pub(super) fn is_frozen(&mut self, raw: i64, now: i64, limits: &Limits) -> (bool, bool) {
        if raw != self.raw {
            self.still = Still::new(now);
            return (false, false);
        }
        self.still.units = self.still.units.saturating_add(1);
        let is_frozen =
            self.still.units >= FROZEN_UNITS && now.saturating_sub(self.still.since) >= limits.frozen;
        let is_new = is_frozen && self.still.interval.is_none();
        if is_new {
            self.still.interval = Some(0);
        }
        (is_frozen, is_new)
    }

    /// Returns the place of a unit that arrived together with others while the clock stands still. The last
    /// of these units is due at `due`; they are spread over the time since the units before them. Their
    /// number is estimated from the average rate of arrival.
    pub(super) fn spread(&mut self, now: i64, due: i64) -> i64 {
        let passed = now.saturating_sub(self.arrived);
        if passed > 0 {
            let span = now.saturating_sub(self.still.since).max(1);
            let came = passed.saturating_mul(i64::from(self.still.units)).saturating_add(span / 2) / span;
            self.still.interval = Some(due.saturating_sub(self.top) / came.max(1));
        }
        self.top.saturating_add(self.still.interval.unwrap_or(0)).min(due).max(self.top.saturating_add(1))
    }

    /// Ends a measurement window.
    pub(super) fn close_window(&mut self) {
        let measured = core::mem::replace(&mut self.window, NONE);
        (self.error, self.change) = (None, None);
        if measured == NONE {
            return;
        }
        self.previous = measured;
        let reference = &mut self.reference;
        if reference.warm_up < WARM_UP_WINDOWS {
            if reference.warm_up == 0 {
                reference.first = measured;
            }
            reference.warm_up += 1;
            let before = reference.lead.filter(|_| reference.warm_up == WARM_UP_WINDOWS);
            reference.lead = Some(before.map_or(measured, |lead| lead.max(measured)));
        } else {
            let error = measured.saturating_sub(reference.lead.unwrap_or(measured));
            reference.measured = reference.measured.saturating_add(1);
            self.change = Some(error.saturating_sub(core::mem::replace(&mut self.last_error, error)));
            self.error = Some(error);
        }
    }

    /// Returns the change of the lead from the first window to the window in which the ordinary lead was measured.
    pub(super) fn warmed(&self) -> Option<i64> {
        Some(self.reference.lead?.saturating_sub(self.reference.first))
    }

    /// Returns by how much the ordinary lead itself is wrong because the track has drifted since its first moment. The
    /// pace of that drift is the pace at which `error` has grown since the ordinary lead was measured; `warmed` is the
    /// track's drift before that, relative to the other tracks. `None` if `warmed` does not match the pace: the track
    /// has not drifted from the start.
    pub(super) fn drifted_before(&self, error: i64, warmed: i64, limits: &Limits) -> Option<i64> {
        let pace = error / i64::from(self.reference.measured.max(1));
        // The greatest lead of a window counts. If the lead falls, that is the lead at the window's beginning.
        let windows = if pace > 0 { i64::from(WARM_UP_WINDOWS) - 1 } else { i64::from(WARM_UP_WINDOWS) - 2 };
        let expected = pace.saturating_mul(windows);
        let unlike = warmed.saturating_sub(expected).saturating_abs();
        let is_like = unlike <= expected.saturating_abs() / 2 + limits.window / UNEVEN_DIVISOR;
        let is_early = FROM_START_WINDOWS.contains(&self.reference.measured);
        (is_early && is_like).then(|| expected.saturating_add(pace.max(0)))
    }

    /// True if there are enough measurements to tell a drift from jitter, and arrival is even:
    /// errors that then grow steadily do so because of a drift.
    pub(super) const fn draws_a_line(&self) -> bool {
        self.reference.measured >= LINE_WINDOWS && self.slew.is_quiet()
    }

    /// Returns `dts`, or the last DTS if that is greater.
    pub(super) const fn monotone(&mut self, dts: i64) -> i64 {
        if dts > self.last {
            self.last = dts;
        }
        self.last
    }

    /// Returns the position of the track on its sender's clock, if there are reports.
    pub(super) fn report_base(&self) -> Option<ReportBase> {
        Some(ReportBase { offset: self.offset.saturating_sub(self.reports?.told), lead: self.peak() })
    }

    /// True if the reports about the track determine its distance from another track: they are believed, and
    /// have recently agreed with its position.
    pub(super) fn follows_reports(&self, now: i64, limits: &Limits) -> bool {
        self.reports.is_some_and(|reports| {
            let is_recent = now.saturating_sub(reports.agreed) < limits.noisy();
            reports.believed && (!reports.aligned || is_recent)
        })
    }

    /// True if there are sender reports about the track.
    pub(super) const fn has_reports(&self) -> bool {
        self.reports.is_some()
    }

    /// Forgets the reports, because the source has restarted.
    pub(super) const fn forget_reports(&mut self) {
        self.reports = None;
    }

    /// Returns two movements. The first is the movement towards the reports that begins with this unit; it
    /// is zero unless the unit is shown after all units before it, and at most half of the time between
    /// them, so that places keep the order of timestamps. The second is the sum of the movements that were
    /// made after this timestamp, which do not apply to the unit.
    pub(super) fn bent(&self, raw: i64, limits: &Limits) -> (i64, i64) {
        let advance = self.bend.advance(raw);
        let Some(reports) = self.reports.filter(|_| advance >= 1) else {
            return (0, self.bend.after(raw));
        };
        let most =
            if reports.is_whole() { reports.due.saturating_abs() } else { advance.min(limits.step_max) / 2 };
        (reports.due.clamp(most.saturating_neg(), most), 0)
    }

    /// Moves the track towards its position according to reports, from the unit with this timestamp on.
    pub(super) fn make_bend(&mut self, raw: i64, ticks: i64) {
        let Some(reports) = self.reports.as_mut().filter(|_| ticks != 0) else { return };
        // If the distance grew slowly from zero, the clock drifts. The movement then restores the lead that
        // the track had before, so the expected lead stays.
        let is_drift = reports.aligned && !reports.stepped;
        reports.aligned |= ticks == reports.off.saturating_neg();
        reports.seen = reports.seen.saturating_add(ticks);
        reports.moved = reports.moved.saturating_add(ticks);
        if reports.noise.left != 0 {
            reports.noise.left = reports.noise.left.saturating_sub(ticks);
        }
        reports.noise.carry(ticks);
        reports.due = 0;
        self.carry(ticks);
        if is_drift {
            self.rebase(ticks.saturating_neg());
        }
        self.bend.push(raw, ticks);
    }

    /// Places the track's very first unit according to reports, relative to another track with reports whose
    /// base is `base`.
    pub(super) fn align_first(&mut self, told: i64, base: Option<ReportBase>, now: i64, limits: &Limits) {
        let mut reports = Reports::new(told, now);
        if let Some(base) = base {
            let shift = base.offset.saturating_add(told).saturating_sub(self.offset);
            reports.seen = shift.saturating_neg();
            if shift.saturating_abs() <= limits.believed {
                self.carry(shift);
                self.top = self.top.saturating_add(shift);
                (reports.seen, reports.moved) = (0, shift);
                (reports.believed, reports.aligned) = (true, true);
            }
        }
        self.reports = Some(reports);
    }

    /// Decides how the next unit moves the track towards its position according to sender reports. At the
    /// first report the unit moves the track by the whole distance if that is forward. Later movements are
    /// gradual, and are made only while the reports are stable and agree with arrival: with the arrival of
    /// the first units, or, if these were delayed more than later ones, of recent units. If the reports
    /// vary but stay within [`Limits::noise`], the track is moved to the middle of the distances that they
    /// have shown in a period.
    pub(super) fn align(
        &mut self,
        told: i64,
        base: Option<ReportBase>,
        now: i64,
        limits: &Limits,
    ) -> Alignment {
        let is_first = self.reports.is_none();
        let lead = self.peak();
        let reports = self.reports.get_or_insert_with(|| Reports::new(told, now));
        reports.told = told;
        reports.due = 0;
        let Some(base) = base else { return Alignment::Fine };
        let off = self.offset.saturating_sub(told).saturating_sub(base.offset);
        reports.off = off;
        if is_first || off.saturating_sub(reports.seen).saturating_abs() > limits.agree {
            (reports.seen, reports.since) = (off, now);
        }
        let is_settled = now.saturating_sub(reports.since) >= limits.settled;
        let total = reports.moved.saturating_sub(off);
        let is_believed = |distance: i64| distance.saturating_abs() <= limits.believed;
        let is_recent = is_believed(lead.saturating_sub(off).saturating_sub(base.lead));
        reports.believed =
            (is_believed(off) && is_believed(total)) || (is_recent && off.saturating_abs() <= limits.apart);
        if !reports.believed {
            let is_told = !is_settled || core::mem::replace(&mut reports.doubted, true);
            return if is_told { Alignment::Fine } else { Alignment::Doubted(off) };
        }
        reports.doubted = false;
        let little = (off / NUDGE_DIVISOR).saturating_neg();
        if is_settled || !reports.aligned {
            reports.agreed = now;
            reports.noise = Noise::new(off, now);
            reports.due = if !reports.aligned && off < 0 { off.saturating_neg() } else { little };
            reports.stepped =
                if reports.stepped { little != 0 } else { off.saturating_abs() > limits.strayed() };
            // The remaining distance is too small for another movement.
            reports.aligned |= little == 0;
            return Alignment::Fine;
        }
        let is_narrow = reports.noise.note(off, now, limits);
        if is_narrow || off.saturating_abs() <= limits.strayed() {
            reports.agreed = now;
        }
        reports.stepped = false;
        reports.due = reports.noise.left / NUDGE_DIVISOR;
        Alignment::Fine
    }
}
