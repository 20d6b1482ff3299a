//! Measurements from transport-wide feedback, and from its absence.

use std::time::{Duration, Instant};

use super::control::{Batch, RateControl, tried};
use super::delay::{DelayDetector, Usage};
use super::loss::Losses;
use super::micros_since;
use super::pairs::Pairs;
use super::queue::Queue;
use super::rate::{self, RateMeter};
use super::sent::{SentLog, SentPacket};
use crate::rtcp::TransportFeedback;

/// Maximum number of packets read from one feedback packet: more than any sender has in flight.
pub const FEEDBACK_SPAN_MAX: usize = 2048;
/// Minimum number of received packets for a probe to count.
const PROBE_PACKETS_MIN: u32 = 8;
/// Time without feedback, beyond two round trips, that counts as silence while packets are being sent; in microseconds.
/// Seven times the interval at which receivers send feedback, so that a few lost feedback packets do not count as
/// silence.
const SILENCE: i64 = 700_000;
/// Time that counts as silence before the first feedback, when the round trip is unknown.
const SILENCE_FIRST: i64 = 2_000_000;
/// Factor by which the rate is reduced in each step of a silence.
const SILENCE_FACTOR: f64 = 0.8;
/// Length of a step of a silence in microseconds.
const SILENCE_STEP: f64 = 500_000.0;
/// Maximum number of steps of a silence: after eight seconds, a thirtieth of the rate is left to test whether
/// the path is back.
const SILENCE_STEPS_MAX: f64 = 16.0;
/// Longest round trip accepted from feedback.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(32);
/// Time in seconds for which the highest sent rate is remembered.
const LEAVING_FOR: f64 = 5.0;

/// Rate at which to probe a path that may have become wider: a multiple of the highest rate that it once
/// carried, with a minimum and a maximum as multiples of the known rate.
const HINT: (f64, f64, f64) = (1.25, 2.0, 5.0);
/// Time, in seconds, in which the remembered highest rate of the path decays to half.
const CARRIED_HALVES: f64 = 60.0;

/// A probe that awaits feedback: its packets and their results.
#[derive(Debug, Clone, Copy)]
struct Probe {
    first: u64,
    /// Number after the last packet of the probe; `None` while it is being sent.
    end: Option<u64>,
    packets: u32,
    /// Bytes of all packets except the first, with whose arrival the measurement begins.
    bytes: u64,
    first_at: i64,
    last_at: i64,
    /// Earliest departure of the packets that arrived, in microseconds since the epoch.
    first_left: i64,
    /// Latest departure of the packets that arrived, in microseconds since the epoch.
    last_left: i64,
}

/// The search for a higher rate.
#[derive(Debug, Default)]
struct Probing {
    probe: Option<Probe>,
    pairs: Pairs,
    /// Highest rate at which packets arrived without a queue, in bits per second; decays slowly.
    carried: f64,
}

/// Estimate from transport-wide feedback, described in the module.
#[derive(Debug)]
pub(super) struct Feedback {
    epoch: Instant,
    sent: SentLog,
    delay: DelayDetector,
    queue: Queue,
    /// Rate at which packets are sent.
    leaving: RateMeter,
    /// Rate at which packets arrive at the receiver.
    delivered: RateMeter,
    /// Rate of packets without a transport-wide number on the same path.
    apart: RateMeter,
    /// Highest recently sent rate, in bits per second.
    leaving_most: f64,
    control: RateControl,
    /// Time of the last feedback, or of a receiver report used instead.
    heard: Option<Instant>,
    /// Departure time of the first packet sent after the last feedback, in microseconds since the epoch.
    unheard: Option<i64>,
    /// Departure time of the last packet, in microseconds since the epoch.
    left: i64,
    has_feedback: bool,
    /// True once an estimate is available.
    is_known: bool,
    /// Shortest recent time from departure to feedback.
    round_trip: Duration,
    probing: Probing,
}

impl Feedback {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            sent: SentLog::default(),
            delay: DelayDetector::new(),
            queue: Queue::default(),
            leaving: RateMeter::default(),
            delivered: RateMeter::default(),
            apart: RateMeter::default(),
            leaving_most: 0.0,
            control: RateControl::new(),
            heard: None,
            unheard: None,
            left: 0,
            has_feedback: false,
            is_known: false,
            round_trip: Duration::ZERO,
            probing: Probing::default(),
        }
    }

    pub(super) fn packet_sent(&mut self, now: Instant, bytes: usize) -> u16 {
        let micros = micros_since(self.epoch, now);
        self.leaving.add(micros, u64::try_from(bytes).unwrap_or(u64::MAX));
        let paused = micros.saturating_sub(self.left) > SILENCE;
        if paused || self.unheard.is_none() {
            self.unheard = Some(micros);
        }
        self.left = micros;
        self.sent.push(micros, bytes)
    }

    /// Counts a packet without a transport-wide number, which feedback will not cover.
    pub(super) fn packet_apart(&mut self, now: Instant, bytes: usize) {
        let (micros, bytes) = (micros_since(self.epoch, now), u64::try_from(bytes).unwrap_or(u64::MAX));
        self.leaving.add(micros, bytes);
        self.apart.add(micros, bytes);
    }

    /// Returns the estimated rate of the path in bits per second; limited to the tested rate while little is
    /// known of the path, and reduced during a silence. `None` before any feedback or report.
    pub(super) fn estimate(&self) -> Option<f64> {
        let rate = self.control.rate();
        let rate = if self.control.begins() { rate.min(tried(self.leaving_most)) } else { rate };
        self.is_known.then(|| rate * self.silence())
    }

    /// Returns the rate that may be sent now; `None` while the path imposes no limit.
    pub(super) fn target(&self, now: Instant) -> Option<f64> {
        let silence = self.silence();
        (self.control.is_bounded() || silence < 1.0).then(|| self.allowed(now) * silence)
    }

    /// Returns the assumed rate of the path; `None` once the rate is known.
    pub(super) fn first(&self, now: Instant) -> Option<f64> {
        self.control.begins().then(|| self.allowed(now) * self.silence())
    }

    /// Returns the rate that may be sent, reduced while a queue drains. Once feedback has covered every packet sent, no
    /// more feedback arrives, so the queue is assumed to be empty after the time that it takes to drain.
    fn allowed(&self, now: Instant) -> f64 {
        let waited = Duration::from_micros(u64::try_from(self.queue.micros()).unwrap_or(0));
        let is_over = self.heard.is_some_and(|at| now.saturating_duration_since(at) > waited);
        if self.sent.all_told() && is_over { self.control.rate() } else { self.control.target() }
    }

    /// True if a packet is known to have arrived.
    pub(super) fn has_arrived(&self, number: u16) -> bool {
        self.sent.has_arrived(number)
    }

    /// Highest recently sent rate, in bits per second.
    pub(super) const fn leaving(&self) -> f64 {
        self.leaving_most
    }

    pub(super) const fn has_feedback(&self) -> bool {
        self.has_feedback
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silence() < 1.0
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.sent.held_bytes()
    }

    /// Returns the factor by which the rate is reduced during a silence; 1 otherwise. Time in which no
    /// packets are sent does not count as silence.
    fn silence(&self) -> f64 {
        let Some(unheard) = self.unheard else { return 1.0 };
        let round_trip = i64::try_from(self.round_trip.as_micros()).unwrap_or(i64::MAX);
        let patience = SILENCE.saturating_add(round_trip.saturating_mul(2));
        let patience = if self.heard.is_some() { patience } else { SILENCE_FIRST };
        let silent = self.left.saturating_sub(unheard).saturating_sub(patience);
        if silent <= 0 {
            return 1.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "times of hours")]
        let steps = (silent as f64 / SILENCE_STEP).ceil().min(SILENCE_STEPS_MAX);
        SILENCE_FACTOR.powf(steps)
    }

    /// Ends a silence: the reduced rate becomes the current rate.
    fn hears(&mut self, now: Instant, losses: &mut Losses) {
        let silence = self.silence();
        if silence < 1.0 {
            // Feedback about packets sent during the silence says nothing about packets sent now.
            self.control.was_silent(now, silence, self.sent.next());
            losses.begin(self.sent.next());
        }
        (self.heard, self.unheard) = (Some(now), None);
    }

    /// Applies a receiver report instead of missing feedback. Returns true if it was used.
    ///
    /// Reports are ignored until the first feedback is overdue: after a join, only few packets were sent, and
    /// many of them seem lost if they overtake each other.
    pub(super) fn handle_report(&mut self, now: Instant, loss: u16, losses: &mut Losses) -> bool {
        let has_feedback = self.has_feedback && !self.is_silent();
        let Some(unheard) = self.unheard.filter(|_| !has_feedback) else { return false };
        if self.heard.is_none() && micros_since(self.epoch, now).saturating_sub(unheard) < SILENCE_FIRST {
            return false;
        }
        self.leave_most(now);
        self.hears(now, losses);
        self.control.reported(now, loss, self.leaving_most);
        self.is_known = true;
        true
    }

    /// Applies feedback. Returns true if it indicates congestion.
    pub(super) fn handle(&mut self, now: Instant, told: &TransportFeedback<'_>, losses: &mut Losses) -> bool {
        let (mut newest, mut newest_sent) = (None, 0);
        let (mut usage, mut arrived_any) = (None, false);
        for arrival in told.arrivals().take(FEEDBACK_SPAN_MAX) {
            let Some(packet) = self.sent.take(arrival.number.value(), arrival.at_micros.is_some()) else {
                continue;
            };
            newest = newest.max(Some(packet.number));
            newest_sent = packet.sent.max(newest_sent);
            let Some(arrived) = arrival.at_micros else { continue };
            arrived_any = true;
            let bytes = u64::from(packet.bytes);
            self.delivered.add(arrived, bytes);
            self.note_probe(&packet, arrived);
            if !self.queue.packet(packet.sent, arrived, bytes) {
                (self.delay, self.delivered) = (DelayDetector::new(), RateMeter::default());
            }
            self.probing.pairs.packet(&packet, arrived, self.control.rate());
            // A single sign of a queue counts, even if later packets show none.
            let seen = self.delay.packet(packet.sent, arrived);
            usage = usage.filter(|usage| *usage == Usage::Over).or(seen).or(usage);
        }
        let Some(newest) = newest else { return false };
        self.sent.settle(newest_sent, |number, is_lost| losses.packet(number, is_lost));
        self.queue.set_overtaken(self.sent.overtaken());
        self.leave_most(now);
        self.remember_carried(now);
        self.hears(now, losses);
        self.has_feedback = true;
        self.measure_round_trip(now, newest_sent);
        let at = micros_since(self.epoch, now);
        let apart = self.apart.bits_at(at);
        let batch = Batch {
            usage,
            newest,
            next: self.sent.next(),
            delivered: self.delivered.bits().filter(|_| arrived_any).map(|bits| bits + apart),
            drains: self.queue.drains().map(|bits| bits + apart),
            leaving: self.leaving_most,
            leaving_now: self.leaving.bits_at(at),
            round_trip: self.round_trip,
        };
        let is_congested = self.control.update(now, &batch, (&mut self.queue, losses), at);
        self.is_known |= self.delivered.bits().is_some() || self.control.is_bounded();
        self.end_probe(told.base.plus(told.count).value());
        is_congested
    }

    /// Updates the shortest time from departure to feedback, which increases only slowly.
    fn measure_round_trip(&mut self, now: Instant, sent: i64) {
        let micros = micros_since(self.epoch, now).saturating_sub(sent);
        let seen = Duration::from_micros(u64::try_from(micros).unwrap_or(0)).min(ROUND_TRIP_MAX);
        let longer = self.round_trip.saturating_add(seen.saturating_sub(self.round_trip) / 16);
        self.round_trip =
            if self.round_trip.is_zero() { seen } else { longer.min(seen.max(self.round_trip / 2)) };
    }

    fn leave_most(&mut self, now: Instant) {
        let passed = self.heard.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let kept = self.leaving_most * (1.0 - (passed / LEAVING_FOR).min(1.0));
        self.leaving_most = self.leaving.bits().unwrap_or(0.0).max(kept);
    }

    /// Updates the highest rate that the path once carried.
    fn remember_carried(&mut self, now: Instant) {
        let passed = self.heard.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let kept = self.probing.carried * 0.5_f64.powf(passed / CARRIED_HALVES);
        let delivered = self.delivered.bits().filter(|_| self.queue.micros() == 0);
        self.probing.carried = delivered.unwrap_or(0.0).max(kept);
    }

    /// Returns the rate in bits per second at which to probe a path that seems to have become wider.
    pub(super) fn hint(&self) -> Option<f64> {
        let rate = self.control.rate();
        let is_steady = self.queue.is_steady(rate) && self.sent.overtaken() == 0 && !self.is_silent();
        let hint = self.probing.pairs.hint().filter(|_| is_steady)?;
        let (of_carried, least, most) = HINT;
        Some(hint.min((of_carried * self.probing.carried).clamp(least * rate, most * rate)))
    }

    pub(super) fn begin_probe(&mut self) {
        let first = self.sent.next();
        self.probing.pairs.clear();
        self.probing.probe = Some(Probe {
            first,
            end: None,
            packets: 0,
            bytes: 0,
            first_at: 0,
            last_at: 0,
            first_left: 0,
            last_left: 0,
        });
    }

    pub(super) fn close_probe(&mut self) {
        let end = self.sent.next();
        if let Some(probe) = &mut self.probing.probe {
            probe.end.get_or_insert(end);
        }
    }

    fn note_probe(&mut self, packet: &SentPacket, arrived: i64) {
        let Some(probe) = self.probing.probe.as_mut().filter(|probe| packet.number >= probe.first) else {
            return;
        };
        if probe.end.is_some_and(|end| packet.number >= end) {
            return;
        }
        if probe.packets == 0 {
            (probe.first_at, probe.last_at) = (arrived, arrived);
            (probe.first_left, probe.last_left) = (packet.sent, packet.sent);
        } else {
            probe.bytes = probe.bytes.saturating_add(packet.bytes.into());
            probe.last_at = probe.last_at.max(arrived);
            // The receiver may report packets in any order.
            probe.first_left = probe.first_left.min(packet.sent);
            probe.last_left = probe.last_left.max(packet.sent);
        }
        probe.packets = probe.packets.saturating_add(1);
    }

    /// Handles feedback about packets before number `behind`. If it covers the whole probe, the probe is
    /// evaluated.
    fn end_probe(&mut self, behind: u16) {
        let Some(probe) = self.probing.probe else { return };
        let Some(end) = probe.end.filter(|end| self.sent.widen(behind) >= *end) else { return };
        self.probing.probe = None;
        let sent = u32::try_from(end.saturating_sub(probe.first)).unwrap_or(u32::MAX);
        // Packets that arrived faster than they left were held up together on the path, or the report is false. In both
        // cases, the time between their departures counts.
        let left = probe.last_left.saturating_sub(probe.first_left);
        let took = probe.last_at.saturating_sub(probe.first_at).max(left);
        // A fifth may be lost; more means that the path could not carry the probe.
        let is_whole =
            probe.packets >= PROBE_PACKETS_MIN && probe.packets.saturating_mul(5) >= sent.saturating_mul(4);
        if is_whole && took > 0 && self.queue.micros() == 0 {
            self.control.probed(0.95 * rate::bits_per_second(probe.bytes, took));
        }
    }
}
