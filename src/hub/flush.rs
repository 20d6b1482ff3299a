//! The times at which units are sent: audio may ride with the next video frame, and writes may be merged.

use std::time::{Duration, Instant};

use super::Entry;
use crate::config::AppSettings;
use media::TrackKind;

/// Video counts as flowing for this long after a video unit; meanwhile audio may wait for the next one.
const VIDEO_FLOWS: Duration = Duration::from_millis(500);

/// The time at which an appended unit is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// To all subscribers at the end of the turn.
    Now,
    /// May ride with the next video unit, but not longer than until then.
    By(Instant),
}

/// The point up to which a stream has been flushed, and the time of its next flush.
#[derive(Debug, Default)]
pub struct FlushState {
    /// Subscribers are sent the units before this one.
    until: u64,
    /// The time by which the units that wait must be sent.
    due: Option<Instant>,
    /// The deadline that its owner keeps for it.
    armed: Option<Instant>,
    /// Whether its owner has it in the list of streams to flush.
    queued: bool,
    last_video: Option<Instant>,
}

impl FlushState {
    /// A unit was appended.
    pub(super) fn push(&mut self, now: Instant, entry: &Entry, settings: &AppSettings) -> Flush {
        let video = entry.kind == Some(TrackKind::Video);
        if video {
            self.last_video = Some(now);
        }
        let flowing = self.last_video.is_some_and(|at| now.saturating_duration_since(at) < VIDEO_FLOWS);
        let wait = match (video, flowing) {
            (true, _) | (false, false) => settings.merge_write,
            (false, true) => settings.coalesce.max(settings.merge_write),
        };
        if wait.is_zero() {
            return Flush::Now;
        }
        // A flush that is due keeps its time: what joins it must not delay it.
        let at = self.due.map_or(now + wait, |at| at.min(now + wait));
        self.due = Some(at);
        Flush::By(at)
    }

    /// Everything before `head` is to be sent.
    pub(super) const fn flush(&mut self, head: u64) {
        self.until = head;
        self.due = None;
        self.queued = false;
    }

    /// Lets everything before `head` be sent, also if it was not due yet.
    pub(super) fn advance(&mut self, head: u64) {
        self.until = self.until.max(head);
    }

    /// Subscribers are sent the units before this one.
    #[must_use]
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// The time by which the units that wait must be sent.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a deadline at `at` is to be armed: there is no earlier one. It is, from then on.
    pub fn arm(&mut self, at: Instant) -> bool {
        let earlier = self.armed.is_none_or(|armed| at < armed);
        if earlier {
            self.armed = Some(at);
        }
        earlier
    }

    /// The deadline armed at `at` has fired.
    pub fn disarm(&mut self, at: Instant) {
        self.armed = self.armed.filter(|armed| *armed != at);
    }

    /// Enters it into the list of streams to flush. False when it is there already.
    pub const fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }
}
