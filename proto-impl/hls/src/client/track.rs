//! A media playlist that is being followed: its contents, the segments still to fetch, and the time of its next
//! reload (RFC 8216 §6.3).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Rendition;
use crate::limits::{RELOAD_MIN, SEGMENT_DURATION_MAX, STALL_MIN, TARGET_DURATION_MAX};
use crate::playlist::{Kind, Map, MediaPlaylist, Segment};
use crate::uri::Url;

/// If the sequence number decreases by at most this much, the playlist is an older copy; if it decreases by
/// more, the stream has restarted.
const STALE_MAX: u64 = 5;

/// A segment that is being fetched.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) segment: Segment,
    /// True if an attempt to fetch the segment has failed.
    pub(super) failed: bool,
    /// Earliest time at which the segment may be requested.
    pub(super) at: Instant,
    /// Number of the segment's bytes passed to the owner.
    pub(super) delivered: u64,
    /// True if the owner has received the segment's `Begin` event.
    pub(super) begun: bool,
}

/// A rendition.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) rendition: Rendition,
    /// URL at which the playlist is requested.
    pub(super) url: Url,
    /// URL to which redirections of the playlist led. References in the playlist are relative to it.
    pub(super) base: Url,
    pub(super) pending: VecDeque<(u64, Segment)>,
    pub(super) current: Option<Current>,
    pub(super) ended: bool,
    pub(super) reload_at: Instant,
    /// Number of consecutive failures of the playlist.
    pub(super) failures: u32,
    /// True if the next segment does not continue the last one: a discontinuity, or segments in between are
    /// missing.
    pub(super) discontinuity: bool,
    /// The last initialization section that was read.
    pub(super) map: Option<Arc<Map>>,
    /// Bytes of the initialization section in `map`, until they are passed to the owner.
    pub(super) init: Option<Bytes>,
    /// Media time of the segments begun so far.
    pub(super) progress: Duration,
    /// Position at which a recording continues after a change to another variant.
    pub(super) resume: Duration,
    /// True if the first playlist read already had its end: the stream is a recording.
    pub(super) recorded: bool,
    listing: Option<Listing>,
}

/// Summary of the last playlist, used to detect changes.
#[derive(Debug, Clone, Copy)]
struct Listing {
    first: u64,
    /// Sequence number after that of the last segment.
    end: u64,
    discontinuities: u64,
    renewed: Instant,
    unchanged: u32,
}

/// The changes that a playlist brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loaded {
    /// True if segments were missed.
    pub(super) lost: bool,
    /// True if the playlist has not gained a segment for too long.
    pub(super) stalled: bool,
}

impl Track {
    pub(super) fn new(rendition: Rendition, url: Url, now: Instant) -> Self {
        Self {
            rendition,
            base: url.clone(),
            url,
            pending: VecDeque::new(),
            current: None,
            ended: false,
            reload_at: now,
            failures: 0,
            discontinuity: false,
            map: None,
            init: None,
            progress: Duration::ZERO,
            resume: Duration::ZERO,
            recorded: false,
            listing: None,
        }
    }

    /// Handles a playlist; `asked` is the time at which it was requested.
    pub(super) fn load(&mut self, playlist: MediaPlaylist, asked: Instant, now: Instant) -> Loaded {
        let target = playlist.target_duration.min(TARGET_DURATION_MAX);
        let end = count(playlist.segments.len()).saturating_add(playlist.media_sequence);
        let mut listing = Listing {
            first: playlist.media_sequence,
            end,
            discontinuities: playlist.discontinuity_sequence,
            renewed: now,
            unchanged: 0,
        };
        self.failures = 0;
        self.ended = playlist.ended;
        let before = self.listing.filter(|before| before.end > before.first);
        let (lost, is_new) = match before {
            None => {
                self.recorded = playlist.ended;
                self.begin(playlist, target);
                (false, !self.pending.is_empty())
            }
            Some(before) if restarted(before, listing) => {
                let lost = !self.pending.is_empty();
                self.begin(playlist, target);
                self.discontinuity = true;
                (lost, true)
            }
            Some(before) if listing.end > before.end => (self.go_on(playlist, before, target), true),
            Some(before) => {
                let lost = self.forget_before(listing.first);
                // An older copy of the playlist does not change the state that the newer copy has set.
                listing = Listing { first: before.first.max(listing.first), end: before.end, ..listing };
                (lost, false)
            }
        };
        if let Some(before) = self.listing.filter(|_| !is_new) {
            listing.renewed = before.renewed;
            listing.unchanged = before.unchanged.saturating_add(1);
        }
        self.listing = Some(listing);
        let pause = if is_new { target } else { target / 2 };
        self.reload_at = later(asked, pause.max(RELOAD_MIN));
        let silent = now.saturating_duration_since(listing.renewed);
        let stalled =
            !self.ended && listing.unchanged >= 2 && silent >= STALL_MIN.max(target.saturating_mul(3));
        Loaded { lost, stalled }
    }

    /// Begins a live stream near its end. Begins a recording at its first segment, or at the position that an
    /// earlier variant had reached.
    fn begin(&mut self, playlist: MediaPlaylist, target: Duration) {
        let is_live = !playlist.ended && playlist.kind != Some(Kind::Vod);
        let resume = std::mem::take(&mut self.resume);
        let skipped =
            if is_live { playlist.live_start(target) } else { self.skip(&playlist.segments, resume) };
        let first = playlist.media_sequence;
        self.pending = numbered(first, playlist.segments).skip(skipped).collect();
    }

    /// Returns the number of a recording's segments before `resume`, and adds their duration to `progress`.
    fn skip(&mut self, segments: &[Segment], resume: Duration) -> usize {
        let mut skipped = 0;
        for segment in segments.iter().take_while(|_| !resume.is_zero()) {
            let end = self.progress.saturating_add(media_time(segment));
            if end > resume {
                break;
            }
            self.progress = end;
            skipped += 1;
        }
        skipped
    }

    /// Handles a playlist with new segments. Returns true if segments were missed.
    fn go_on(&mut self, playlist: MediaPlaylist, before: Listing, target: Duration) -> bool {
        let next = self.pending.front().map_or(before.end, |(number, _)| *number);
        let lost = playlist.media_sequence > next;
        if lost && playlist.discontinuity_sequence > before.discontinuities {
            self.discontinuity = true;
        }
        if playlist.media_sequence > before.end {
            self.begin(playlist, target);
        } else {
            let first = playlist.media_sequence;
            self.pending = numbered(first, playlist.segments).filter(|(number, _)| *number >= next).collect();
        }
        lost
    }

    /// Drops pending segments that are no longer in the playlist. Returns true if there were any.
    fn forget_before(&mut self, first: u64) -> bool {
        let before = self.pending.len();
        while let Some((_, gone)) = self.pending.pop_front_if(|(number, _)| *number < first) {
            self.discontinuity |= gone.discontinuity;
        }
        self.pending.len() < before
    }

    /// True if there is nothing left to fetch.
    pub(super) fn is_done(&self) -> bool {
        self.ended && self.pending.is_empty() && self.current.is_none()
    }
}

/// Duration of a segment, limited to a credible maximum.
pub(super) fn media_time(segment: &Segment) -> Duration {
    segment.duration.min(SEGMENT_DURATION_MAX)
}

fn restarted(before: Listing, now: Listing) -> bool {
    now.first.saturating_add(STALE_MAX) < before.first || now.end.saturating_add(STALE_MAX) < before.end
}

fn numbered(first: u64, segments: Vec<Segment>) -> impl Iterator<Item = (u64, Segment)> {
    segments.into_iter().zip(0u64..).map(move |(segment, at)| (first.saturating_add(at), segment))
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Adds a pause to `at`; returns `at` if the sum cannot be represented.
pub(super) fn later(at: Instant, pause: Duration) -> Instant {
    at.checked_add(pause).unwrap_or(at)
}
