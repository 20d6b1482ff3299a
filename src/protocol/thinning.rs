//! Leaves out pictures for a viewer whose path cannot carry all of them: fewer pictures, but always some, never
//! late.
//!
//! The measure is the queue time: how long the path needs for everything that waits. As it grows, pictures are
//! left out in this order:
//!
//! | queue time, beyond that of a key frame | left out |
//! |---|---|
//! | 200 ms | pictures to which no other refers; once begun, for at least three seconds, so that the pace stays even |
//! | 350 ms | pictures of upper temporal layers |
//! | 500 ms, or the time until the next key frame is due | all others, and what refers to them: the rest of the GOP |
//! | 500 ms, when a key frame arrives | waiting pictures that have not begun to leave; if that fails, the whole GOP |
//!
//! The limits are raised by the time that the key frame itself takes, because no picture can arrive before it. For
//! the first two rows, this allowance falls to zero by the middle of the GOP, so that the queue is short when the
//! next key frame arrives. For the third row, the allowance is the longest time of the last key frames: after a
//! small key frame there is room for more pictures before the next. Nothing is left out while the path is not
//! known to be narrow. A viewer whose picture stands still requests a key frame once the path is free, because its
//! publisher may send none by itself.

use std::time::{Duration, Instant};

use media::codec::dependency::{Dependency, Received};

/// Queue times from which pictures are left out: unreferenced ones, those of upper layers, and all.
const FREE_AT: Duration = Duration::from_millis(200);
const LAYERS_AT: Duration = Duration::from_millis(350);
const ALL_AT: Duration = Duration::from_millis(500);
/// Maximum queue time when the next key frame arrives.
const LEFT_AT_KEY: Duration = Duration::from_millis(120);
/// Number of recent key frames among which the one that took longest counts.
const KEYS: usize = 3;
/// Maximum time counted for a key frame.
const KEY_TIME_MAX: Duration = Duration::from_secs(4);
/// Minimum time for which unreferenced pictures are left out; doubled if it was too short.
const SPARSE: Duration = Duration::from_secs(3);
const SPARSE_MAX: Duration = Duration::from_secs(48);
/// Maximum queue time at which all pictures are sent again, as a trial. If the queue grows within the time `TRIAL`, the
/// trial has failed.
const CALM_AT: Duration = Duration::from_millis(50);
const TRIAL: Duration = Duration::from_secs(8);
/// Time from the first referenced picture left out until a key frame is requested; doubled each time, because a key
/// frame goes to all viewers.
const KEY_AFTER: Duration = Duration::from_secs(2);
const KEY_AFTER_MAX: Duration = Duration::from_secs(8);
/// Time for which the queue must be empty, while pictures are left out, before the path is probed: it may carry more
/// than is known.
const IDLE: Duration = Duration::from_millis(350);
/// Wait between two probes of an idle path; doubled after each unsuccessful probe.
const PROBE_AFTER: Duration = Duration::from_secs(1);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(32);
/// Rate of a probe as a multiple of the known rate. A probe has succeeded if the known rate then rises by at least one
/// part in `RISES_BY`: a fifth.
const PROBE_TIMES: u64 = 2;
const RISES_BY: u64 = 5;
/// Time for which a viewer counts as thinned after the last picture was left out.
const RECENTLY: Duration = Duration::from_secs(10);
/// Time without a key frame request after which the wait begins with [`KEY_AFTER`] again.
const KEY_FORGIVEN: Duration = Duration::from_secs(30);

/// The load on a viewer's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Time until everything queued has been sent.
    pub(super) queued: Duration,
    /// Bit rate for video in bits per second; `None` while the path is not known to be narrow.
    pub(super) budget: Option<u64>,
    /// Bit rate that the path seems to carry, and that is worth a probe; `None` without such a hint.
    pub(super) hint: Option<u64>,
}

/// A picture to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picture {
    pub(super) needs: Dependency,
    pub(super) is_key: bool,
    pub(super) bytes: usize,
}

/// The state of leaving out pictures for one viewer.
#[derive(Debug)]
pub(super) struct Thinning {
    received: Received,
    /// Time that the last key frame took on the path.
    key_time: Duration,
    /// Times that the last key frames took on the path. `key_at` is the instant of the last key frame, and `gop` its
    /// interval from the one before.
    key_times: [Duration; KEYS],
    key_at: Option<Instant>,
    gop: Option<Duration>,
    /// Time from which unreferenced pictures are left out, until the queue has been short for `sparse_for`.
    sparse: Option<Instant>,
    sparse_for: Duration,
    busy_at: Option<Instant>,
    /// Time at which all pictures were last sent again as a trial.
    tried: Option<Instant>,
    /// Time at which the first referenced picture after the last key frame was left out; the viewer's picture stands
    /// still from then on.
    stands: Option<Instant>,
    /// Time of the last key frame request, and the wait before it.
    asked: Option<(Instant, Duration)>,
    probing: Probing,
    left_out: u64,
    /// Time at which the last picture was left out.
    left_out_at: Option<Instant>,
}

impl Default for Thinning {
    fn default() -> Self {
        Self {
            received: Received::default(),
            key_time: Duration::ZERO,
            key_times: [Duration::ZERO; KEYS],
            key_at: None,
            gop: None,
            sparse: None,
            sparse_for: SPARSE,
            busy_at: None,
            tried: None,
            stands: None,
            asked: None,
            probing: Probing::default(),
            left_out: 0,
            left_out_at: None,
        }
    }
}

impl Thinning {
    /// True if queued pictures should be dropped before a key frame is queued, because the key frame makes them
    /// useless.
    pub(super) fn is_full(load: Load) -> bool {
        load.budget.is_some() && load.queued > ALL_AT
    }

    /// Returns true if the next picture should be sent.
    pub(super) fn passes(&mut self, now: Instant, picture: Picture, load: Load) -> bool {
        let passes = if picture.is_key {
            self.passes_key(now, picture, load)
        } else {
            self.passes_other(now, picture, load)
        };
        if passes {
            self.received.sent(picture.needs);
            if picture.is_key {
                self.stands = None;
            }
        } else {
            self.dropped(now, 1);
            self.received.left_out(picture.needs);
            if !picture.needs.is_free() {
                self.stands.get_or_insert(now);
            }
        }
        passes
    }

    /// Counts pictures that were dropped after they had passed.
    pub(super) const fn dropped(&mut self, now: Instant, pictures: u64) {
        if pictures > 0 {
            self.left_out = self.left_out.saturating_add(pictures);
            self.left_out_at = Some(now);
        }
    }

    /// True if a picture was left out within the last [`RECENTLY`].
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        self.left_out_at.is_some_and(|at| now.saturating_duration_since(at) < RECENTLY)
    }

    /// Number of pictures left out.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Notes that pictures of another track follow, from a key frame on.
    pub(super) const fn switch(&mut self) {
        (self.key_at, self.gop) = (None, None);
    }

    fn passes_key(&mut self, now: Instant, picture: Picture, load: Load) -> bool {
        self.gop = self.key_at.replace(now).map(|before| now.saturating_duration_since(before));
        if let Some(budget) = load.budget {
            self.key_time = time_of(picture.bytes, budget).min(KEY_TIME_MAX);
            self.key_times.rotate_right(1);
            self.key_times[0] = self.key_time;
        }
        !Self::is_full(load)
    }

    fn passes_other(&mut self, now: Instant, picture: Picture, load: Load) -> bool {
        let is_decodable = self.received.can_decode(picture.needs);
        let Some(budget) = load.budget else {
            self.sparse = None;
            return is_decodable;
        };
        let allowance = self.allowance(now);
        self.look(now, load.queued.saturating_sub(allowance));
        let queued = load.queued.saturating_add(time_of(picture.bytes, budget));
        let is_late = if picture.needs.layer() > 0 {
            queued.saturating_sub(allowance) > LAYERS_AT
        } else {
            queued > self.limit(now)
        };
        let is_spared = picture.needs.is_free() && self.sparse.is_some();
        is_decodable && !is_late && !is_spared
    }

    /// Returns the queue time from which all pictures are left out.
    fn limit(&self, now: Instant) -> Duration {
        let longest = self.key_times.iter().copied().max().unwrap_or_default();
        let limit = ALL_AT.saturating_add(longest);
        let next = self.key_at.zip(self.gop).and_then(|(at, gop)| at.checked_add(gop));
        let until_next = next.map(|next| next.saturating_duration_since(now)).filter(|left| !left.is_zero());
        until_next.map_or(limit, |left| limit.min(left.saturating_add(LEFT_AT_KEY)))
    }

    /// Returns the queue time allowed for the last key frame, which falls to zero by the middle of the GOP.
    fn allowance(&self, now: Instant) -> Duration {
        let (Some(at), Some(gop)) = (self.key_at, self.gop) else { return self.key_time };
        let half = u64::try_from(gop.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        let since = u64::try_from(now.saturating_duration_since(at).as_micros()).unwrap_or(u64::MAX);
        let micros = u64::try_from(self.key_time.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros.saturating_mul(half.saturating_sub(since)) / half)
    }

    /// Updates whether unreferenced pictures are left out.
    fn look(&mut self, now: Instant, waits: Duration) {
        if waits > CALM_AT {
            self.busy_at = Some(now);
        }
        let Some(since) = self.sparse else {
            if waits > FREE_AT {
                let failed = self.tried.is_some_and(|at| now.saturating_duration_since(at) < TRIAL);
                self.sparse_for =
                    if failed { self.sparse_for.saturating_mul(2).min(SPARSE_MAX) } else { SPARSE };
                self.sparse = Some(now);
            }
            return;
        };
        let calm_since = self.busy_at.map_or(since, |busy| busy.max(since));
        if now.saturating_duration_since(calm_since) >= self.sparse_for {
            (self.sparse, self.tried) = (None, Some(now));
        }
    }

    /// Probes the path if pictures are left out or wait although the path is idle, or if the path seems to have
    /// become wider. `begin` takes bits per second and returns true if a probe begins.
    pub(super) fn probe(&mut self, now: Instant, load: Load, begin: impl FnOnce(u64) -> bool) {
        let Some(budget) = load.budget.filter(|_| self.stands.is_some() || load.queued > FREE_AT) else {
            self.probing.idle = None;
            return;
        };
        let idle = if load.queued.is_zero() { Some(*self.probing.idle.get_or_insert(now)) } else { None };
        self.probing.idle = idle;
        if let Some(bits) = load.hint.filter(|_| !self.probing.of_hints.is_soon(now, budget)) {
            if begin(bits) {
                self.probing.of_hints.note(now, budget);
            }
            return;
        }
        let is_idle = idle.is_some_and(|since| now.saturating_duration_since(since) >= IDLE);
        if is_idle && !self.probing.of_idle.is_soon(now, budget) && begin(budget.saturating_mul(PROBE_TIMES))
        {
            self.probing.of_idle.note(now, budget);
        }
    }

    /// Returns true if a key frame should be requested now: the viewer's picture stands still, and the path has room.
    pub(super) fn needs_key(&mut self, now: Instant, load: Load) -> bool {
        let Some(stands) = self.stands.filter(|_| load.queued <= CALM_AT) else { return false };
        let wait = self.asked.map_or(KEY_AFTER, |(at, waited)| {
            let is_forgiven = now.saturating_duration_since(at) >= KEY_FORGIVEN;
            if is_forgiven { KEY_AFTER } else { waited.saturating_mul(2).min(KEY_AFTER_MAX) }
        });
        let since = self.asked.map_or(stands, |(at, _)| at.max(stands));
        let asks = now.saturating_duration_since(since) >= wait;
        if asks {
            self.asked = Some((now, wait));
        }
        asks
    }
}

/// Probes of a viewer's path.
#[derive(Debug, Default)]
struct Probing {
    /// Time since which nothing waits although pictures are left out.
    idle: Option<Instant>,
    /// Probes of an idle path.
    of_idle: Probes,
    /// Probes of a path that seems to have become wider.
    of_hints: Probes,
}

/// Probes for one reason: the time of the last one, the wait after it, and the known rate before it.
#[derive(Debug, Default)]
struct Probes(Option<(Instant, Duration, u64)>);

impl Probes {
    /// True if another probe would be too soon. `budget` is the rate that the path is now known to carry.
    fn is_soon(&self, now: Instant, budget: u64) -> bool {
        self.0.is_some_and(|(at, ..)| now.saturating_duration_since(at) < self.wait(budget))
    }

    /// Notes that the path is probed.
    fn note(&mut self, now: Instant, budget: u64) {
        self.0 = Some((now, self.wait(budget), budget));
    }

    /// Returns the time between the last probe and the next one.
    fn wait(&self, budget: u64) -> Duration {
        self.0.map_or(PROBE_AFTER, |(_, wait, before)| {
            let has_risen = budget >= before.saturating_add(before / RISES_BY);
            if has_risen { PROBE_AFTER } else { wait.saturating_mul(2).min(PROBE_AFTER_MAX) }
        })
    }
}

/// Returns the time in which a path of this bit rate carries `bytes`.
pub(super) fn time_of(bytes: usize, bits_per_second: u64) -> Duration {
    let micros = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8_000_000) / bits_per_second.max(1);
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests;
