//! The program clock: the values and the times of PCRs (§2.4.3.5, §2.7.2).
//!
//! A PCR states the time by which all preceding data has arrived. No unit that should have been decoded before that
//! time may follow it, so the clock follows the stream that lags most: [`Clock::target`] subtracts the lead from the
//! unit's DTS, and stays below every DTS that another stream may still send. A stream that has sent nothing for
//! [`LATE_MAX`] is not waited for.

use alloc::vec::Vec;

use crate::packet::Pcr;
use crate::{CLOCK_BITS, CLOCK_MASK};

/// Minimum time by which the clock is behind the DTS of a unit when the unit is sent: 200 ms.
pub const PCR_LEAD: u64 = 18_000;
/// Maximum lag of a stream behind the stream that carries the clock: 1 s. If the lag exceeds [`PCR_LEAD`], it is used
/// as the lead instead.
pub const LATE_MAX: u64 = 90_000;
/// Longest interval between PCRs: 100 ms (§2.7.2).
pub(super) const PCR_INTERVAL_MAX: u64 = 9_000;
/// After this interval, the PCR is written with the current unit instead of the next one. The margin below the limit
/// allows for unevenly spaced frames.
const PCR_INTERVAL: u64 = 8_100;
/// Maximum number of PCR-only packets that fill a pause; longer pauses are not filled.
const PCR_FILL_MAX: u64 = 20;
/// If DTS steps back by more than this, the clock gets a new time base: 3 s, more than any lag plus lead.
const CLOCK_BACK_MAX: u64 = 270_000;

/// State of the program clock.
#[derive(Debug)]
pub(super) struct Clock {
    /// Latest PCR written.
    last: Option<u64>,
    lead: u64,
    /// DTS of the last unit in the stream that carries the clock, and its distance from the previous DTS.
    beat: Option<(u64, u64)>,
}

/// A PCR to write, and PCRs that fill the time before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tick {
    /// PCRs of packets without payload, written first.
    pub(super) fill: Vec<Pcr>,
    /// PCR in the packet of the unit.
    pub(super) pcr: Option<Pcr>,
    /// True if the PCR starts a new time base.
    pub(super) discontinuity: bool,
}

/// Timing of a PES packet that is about to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    /// DTS of the packet's first unit.
    pub(super) dts: u64,
    /// Media time until the next packet of the stream; 0 if unknown.
    pub(super) span: u64,
    /// A DTS below which no other stream will send a PES packet.
    pub(super) floor: Option<u64>,
    /// True if the packet's stream carries the clock.
    pub(super) is_clock: bool,
    /// True if a receiver may start at the packet.
    pub(super) is_start: bool,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { last: None, lead: PCR_LEAD, beat: None }
    }

    /// Returns the PCRs for a packet: one in the packet itself if its stream carries the clock, otherwise PCRs in
    /// separate packets before it.
    pub(super) fn tick(&mut self, beat: &Beat) -> Tick {
        let (before, dts) = (self.beat, beat.dts);
        let lag = before.map_or(0, |(clock, _)| signed(dts, clock));
        if beat.is_clock {
            let step = before.and_then(|(before, _)| u64::try_from(signed(before, dts)).ok());
            self.beat = Some((dts, step.unwrap_or(0)));
        } else if let Ok(lag) = u64::try_from(lag)
            && lag <= LATE_MAX
        {
            self.lead = self.lead.max(lag);
        }
        let raw = dts.wrapping_sub(self.lead) & CLOCK_MASK;
        let now = self.target(dts, beat.floor);
        let Some(last) = self.last else {
            return self.write(now, Vec::new(), false);
        };
        if u64::try_from(signed(raw, last)).is_ok_and(|back| back > CLOCK_BACK_MAX) {
            return self.write(now, Vec::new(), true);
        }
        // A unit that is earlier than the clock must not move the clock back.
        let Ok(step) = u64::try_from(signed(last, now)) else { return Tick::default() };
        if step == 0 || !self.is_due(beat, step) {
            return Tick::default();
        }
        let mut fill = Vec::new();
        if step > PCR_INTERVAL_MAX && step <= PCR_INTERVAL_MAX * PCR_FILL_MAX {
            let gaps = step.div_ceil(PCR_INTERVAL_MAX);
            fill.extend((1..gaps).map(|n| pcr(last.wrapping_add(step * n / gaps))));
        }
        self.write(now, fill, false)
    }

    /// Returns PCRs within a PES packet that lasts longer than the PCR interval, each with the index of its transport
    /// packet. The PES packet has at least `packets` transport packets.
    pub(super) fn within(&mut self, beat: &Beat, packets: usize) -> Vec<(usize, Pcr)> {
        let (Some(last), true) = (self.last, beat.is_clock && beat.span > PCR_INTERVAL_MAX) else {
            return Vec::new();
        };
        let mut marks = Vec::new();
        let packets = u64::try_from(packets).unwrap_or(u64::MAX);
        let parts = beat.span.div_ceil(PCR_INTERVAL_MAX).min(PCR_FILL_MAX).min(packets);
        for n in 1..parts {
            let now = last.wrapping_add(beat.span * n / parts) & CLOCK_MASK;
            let is_early = beat.floor.is_some_and(|floor| signed(floor, now) > 0);
            let is_ours =
                signed(now, beat.dts.wrapping_add(beat.span)) >= i64::try_from(self.lead).unwrap_or(0);
            if is_early || !is_ours {
                break;
            }
            self.last = Some(now);
            marks.push((usize::try_from(packets.saturating_mul(n) / parts).unwrap_or(usize::MAX), pcr(now)));
        }
        marks
    }

    /// Returns the largest PCR allowed before a unit: the unit's DTS minus the lead, but at most `floor`.
    fn target(&self, dts: u64, floor: Option<u64>) -> u64 {
        let led = dts.wrapping_sub(self.lead) & CLOCK_MASK;
        floor.filter(|floor| signed(*floor, led) > 0).unwrap_or(led)
    }

    /// True if the next PCR, which is `step` later than the last one, must be written now.
    fn is_due(&self, beat: &Beat, step: u64) -> bool {
        if beat.is_clock {
            let next = beat.span.max(self.beat.map_or(0, |(_, step)| step));
            return beat.is_start || step.saturating_add(next) > PCR_INTERVAL;
        }
        // PCRs in separate packets are only needed if the stream that carries the clock is slow or has stopped.
        let is_slow = self.beat.is_none_or(|(at, between)| {
            let silent = u64::try_from(signed(at, beat.dts)).unwrap_or(0);
            between > PCR_INTERVAL_MAX || silent > PCR_LEAD.saturating_add(between.saturating_mul(2))
        });
        is_slow && step.saturating_add(beat.span) > PCR_INTERVAL
    }

    fn write(&mut self, now: u64, fill: Vec<Pcr>, discontinuity: bool) -> Tick {
        self.last = Some(now);
        Tick { fill, pcr: Some(pcr(now)), discontinuity }
    }
}

const fn pcr(base: u64) -> Pcr {
    Pcr { base: base & CLOCK_MASK, extension: 0 }
}

/// Returns the ticks from `from` to `to`, also if the clock has wrapped in between. Negative if `to` is earlier.
pub(super) const fn signed(from: u64, to: u64) -> i64 {
    let ahead = to.wrapping_sub(from) & CLOCK_MASK;
    if ahead < 1 << (CLOCK_BITS - 1) { ahead.cast_signed() } else { ahead.cast_signed() - (1 << CLOCK_BITS) }
}
