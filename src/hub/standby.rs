//! The standby: a second publisher of a stream, which waits to take the stream over.
//!
//! While it waits, its units are sent to nobody. A [`Standby`] retains those of its newest GOP. When it takes over, a
//! [`Splice`] maps its clock and its tracks to those of the stream:
//!
//! - A unit is due at the time at which it arrived, on the stream's clock. The clock neither steps back nor runs ahead.
//! - Retained pictures that were due before the end of the former publisher are needed by decoders, but their time has
//!   passed. They are played fast, within a quarter of the time that they cover. Audio and data of that time are
//!   dropped.
//! - A track that equals the former publisher's keeps its epoch, so that players continue with it. Any other track
//!   begins a new epoch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{AccessUnit, Origin, Position, Timescale, Track, TrackId, TrackKind, TrackSet, Tracks, scte35};

use super::{Pauses, RingLimits};
use crate::mail::Seam;

/// Gap between the last unit of the former publisher and the first one of its successor, in milliseconds. The same as
/// that of a publisher that returns.
const GAP_MS: i64 = 40;
/// Pictures whose time has passed are played within this part of the time that they cover.
const FAST: i64 = 4;
/// Maximum silence of the former publisher that is kept as a gap in the stream, in milliseconds.
const SILENCE_MS_MAX: i64 = 10_000;
/// Age of a GOP from which on a newer key frame is requested.
const GOP_AGE_MAX: Duration = Duration::from_secs(4);
/// Minimum interval between two requests for a key frame.
const KEY_FRAME_INTERVAL: Duration = Duration::from_secs(1);

/// A retained unit.
#[derive(Debug, Clone)]
pub struct Held {
    /// The unit, with times of the standby's own clock.
    pub unit: AccessUnit,
    /// The standby's own tracks.
    pub tracks: Arc<Tracks>,
    /// Time at which the unit arrived.
    pub came: Instant,
}

/// A publisher that waits. Retains at most one GOP, and no more than a ring may.
#[derive(Debug)]
pub struct Standby {
    gop: VecDeque<Held>,
    bytes: usize,
    limits: RingLimits,
    key_asked: Option<Instant>,
    received_bytes: u64,
    last_unit: Instant,
    pauses: Pauses,
}

impl Standby {
    /// Makes a standby without units at the time `now`. `pauses` are its pauses before, if it was the publisher.
    #[must_use]
    pub const fn new(now: Instant, pauses: Pauses) -> Self {
        Self {
            gop: VecDeque::new(),
            bytes: 0,
            limits: RingLimits::with_lag_ms(0),
            key_asked: None,
            received_bytes: 0,
            last_unit: now,
            pauses,
        }
    }

    /// Takes a unit. It is retained if it belongs to the newest GOP. Without video nothing is retained, because any unit
    /// is a beginning. Returns the video track of which a key frame should be requested, if any.
    pub fn hold(&mut self, now: Instant, unit: AccessUnit, tracks: Arc<Tracks>) -> Option<TrackId> {
        let bytes = unit.payload.len();
        self.received_bytes = self.received_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if !unit.track.is_data() {
            self.last_unit = now;
            self.pauses.note(now);
        }
        let lead = tracks.video()?.id;
        if unit.track == lead && unit.key_frame {
            self.clear();
        } else if self.gop.is_empty() {
            return self.ask_key_frame(now, lead);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.gop.push_back(Held { unit, tracks, came: now });
        if self.bytes > self.limits.bytes || self.gop.len() > self.limits.units {
            self.clear();
        }
        let is_old = |first: &Held| now.saturating_duration_since(first.came) > GOP_AGE_MAX;
        if self.gop.front().is_none_or(is_old) { self.ask_key_frame(now, lead) } else { None }
    }

    fn ask_key_frame(&mut self, now: Instant, track: TrackId) -> Option<TrackId> {
        if self.key_asked.is_some_and(|at| now.saturating_duration_since(at) < KEY_FRAME_INTERVAL) {
            return None;
        }
        self.key_asked = Some(now);
        Some(track)
    }

    /// Forgets the retained units.
    pub fn clear(&mut self) {
        self.gop.clear();
        self.bytes = 0;
    }

    /// Removes and returns the retained units, in order. The first is a key frame.
    pub fn take(&mut self) -> VecDeque<Held> {
        self.bytes = 0;
        std::mem::take(&mut self.gop)
    }

    /// Bytes of payload that are retained.
    #[must_use]
    pub const fn retained_bytes(&self) -> usize {
        self.bytes
    }

    /// True if a key frame is retained, with which the standby can begin at once.
    #[must_use]
    pub fn has_key_frame(&self) -> bool {
        !self.gop.is_empty()
    }

    /// Bytes received since the standby began to wait.
    #[must_use]
    pub const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Time of the last unit of audio or video, or of the beginning.
    #[must_use]
    pub const fn last_unit(&self) -> Instant {
        self.last_unit
    }

    /// The pauses between its units.
    #[must_use]
    pub const fn pauses(&self) -> Pauses {
        self.pauses
    }

    /// Time from which the standby counts as silent if it sends nothing until then; `floor` is the shortest silence.
    #[must_use]
    pub fn silent_at(&self, floor: Duration) -> Option<Instant> {
        self.last_unit.checked_add(self.pauses.silence(floor))
    }
}

/// Times that are played fast: those of `from_ms..until_ms` take place in `at_ms..until_ms`.
#[derive(Debug, Clone, Copy)]
struct Fast {
    from_ms: i64,
    at_ms: i64,
    until_ms: i64,
}

/// The mapping of a publisher that has taken over: its clock and tracks to those of the stream.
#[derive(Debug)]
pub struct Splice {
    began: Instant,
    /// Stream time at `began`.
    due_ms: i64,
    /// First stream time of this publisher.
    floor_ms: i64,
    /// Difference between the stream's clock and the publisher's own; `None` until its first unit.
    shift_ms: Option<i64>,
    fast: Option<Fast>,
    /// Video tracks that have begun with a key frame.
    begun: TrackSet,
    /// Tracks of the former publisher that may continue.
    former: Tracks,
    epoch: u32,
    /// The publisher's own tracks, and the same tracks with epochs of the stream.
    rebased: Option<(Arc<Tracks>, Arc<Tracks>)>,
}

impl Splice {
    /// Makes the mapping of a publisher that takes over at the time `now`.
    #[must_use]
    pub fn new(now: Instant, seam: &Seam) -> Self {
        let Position { dts_ms, started } = seam.position;
        let silent = i64::try_from(seam.silent.as_millis()).unwrap_or(i64::MAX).min(SILENCE_MS_MAX);
        let mut former = Tracks::clone(&seam.tracks);
        former.retain(|track| track.origin == Origin::Published);
        Self {
            began: now,
            due_ms: if started { dts_ms.saturating_add(silent) } else { 0 },
            floor_ms: if started { dts_ms.saturating_add(GAP_MS) } else { 0 },
            shift_ms: None,
            fast: None,
            begun: TrackSet::EMPTY,
            epoch: former.epoch,
            former,
            rebased: None,
        }
    }

    /// Maps a unit that arrived at `came`. `None` if it cannot be used: a picture before the first key frame of its
    /// track, or audio and data of a time that has passed.
    pub fn map(&mut self, held: Held) -> Option<(AccessUnit, Arc<Tracks>)> {
        let Held { mut unit, tracks, came } = held;
        let track = tracks.get(unit.track);
        let (scale, kind) =
            track.map_or((Timescale::MILLISECONDS, TrackKind::Data), |track| (track.timescale, track.kind()));
        let is_video = kind == TrackKind::Video;
        if is_video && !unit.key_frame && !self.begun.contains(unit.track) {
            return None;
        }
        let own_ms = scale.to_ms(unit.dts);
        let shift_ms = match self.shift_ms {
            Some(shift_ms) => shift_ms,
            None => self.begin(own_ms, came),
        };
        let shift = Timescale::MILLISECONDS.convert(shift_ms, scale);
        (unit.dts, unit.pts) = (unit.dts.saturating_add(shift), unit.pts.saturating_add(shift));
        if is_video {
            self.begun = self.begun.with(unit.track);
            (unit.dts, unit.pts) = (self.hurried(unit.dts, scale), self.hurried(unit.pts, scale));
        } else if own_ms.saturating_add(shift_ms) < self.floor_ms {
            return None;
        }
        if unit.track == TrackId::CUES {
            unit.payload = scte35::moved_along(&unit.payload, shift_ms);
        }
        let tracks = self.rebase(&tracks);
        if unit.config_epoch != 0 {
            unit.config_epoch = tracks.get(unit.track).map_or(unit.config_epoch, |track| track.epoch);
        }
        Some((unit, tracks))
    }

    /// True if no picture of the track has been passed on yet.
    #[must_use]
    pub const fn awaits_key_frame(&self, track: TrackId) -> bool {
        !self.begun.contains(track)
    }

    /// Places the first unit. Returns the difference of the clocks.
    fn begin(&mut self, own_ms: i64, came: Instant) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let before = ms(self.began.saturating_duration_since(came));
        let after = ms(came.saturating_duration_since(self.began));
        let due = self.due_ms.saturating_sub(before).saturating_add(after);
        // The first publisher of a stream begins at zero, and there is nothing to hurry for.
        let at = if self.floor_ms == 0 { due.max(0) } else { due };
        if at < self.floor_ms {
            let passed = self.floor_ms.saturating_sub(at);
            let until_ms = self.floor_ms.saturating_add(passed / FAST).saturating_add(GAP_MS);
            self.fast = Some(Fast { from_ms: at, at_ms: self.floor_ms, until_ms });
        }
        let shift_ms = at.saturating_sub(own_ms);
        self.shift_ms = Some(shift_ms);
        shift_ms
    }

    /// Returns the time at which a picture is played; `ticks` is the time at which it was due.
    fn hurried(&self, ticks: i64, scale: Timescale) -> i64 {
        let Some(Fast { from_ms, at_ms, until_ms }) = self.fast else { return ticks };
        let of = |ms| Timescale::MILLISECONDS.convert(ms, scale);
        let (from, at, until) = (of(from_ms), of(at_ms), of(until_ms));
        if ticks >= until {
            return ticks;
        }
        let (long, short) = (until.saturating_sub(from).max(1), until.saturating_sub(at));
        let passed = i128::from(ticks.saturating_sub(from).max(0));
        let placed = passed.saturating_mul(i128::from(short)).div_euclid(i128::from(long));
        at.saturating_add(i64::try_from(placed).unwrap_or(short))
    }

    /// Returns the publisher's tracks with epochs of the stream. A track that equals the former publisher's keeps its
    /// epoch until it changes.
    fn rebase(&mut self, own: &Arc<Tracks>) -> Arc<Tracks> {
        if let Some((before, rebased)) = &self.rebased
            && Arc::ptr_eq(before, own)
        {
            return Arc::clone(rebased);
        }
        let equal = |track: &Track| {
            let before = self.former.get(track.id)?;
            (Track { epoch: before.epoch, ..track.clone() } == *before).then_some(before.epoch)
        };
        let kept: TrackSet =
            own.iter().filter(|track| equal(track).is_some()).map(|track| track.id).collect();
        let all: TrackSet = own.iter().chain(self.former.iter()).map(|track| track.id).collect();
        let epoch = if kept == all { self.epoch } else { self.epoch.wrapping_add(own.epoch.max(1)) };
        let list: Vec<Track> = own
            .iter()
            .map(|track| {
                let epoch = equal(track).unwrap_or_else(|| self.epoch.wrapping_add(track.epoch.max(1)));
                Track { epoch, ..track.clone() }
            })
            .collect();
        let mut tracks = Tracks::new(epoch, list);
        tracks.metadata.clone_from(&own.metadata);
        // A track that has changed once never returns to its former epoch. Tracks that were not described yet may.
        self.former.retain(|track| kept.contains(track.id) || own.get(track.id).is_none());
        let tracks = Arc::new(tracks);
        self.rebased = Some((Arc::clone(own), Arc::clone(&tracks)));
        tracks
    }
}

#[cfg(test)]
mod tests;
