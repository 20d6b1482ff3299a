//! Decides when units are sent: audio may wait for the next video frame, and writes may be merged.

use std::time::{Duration, Instant};

use super::Entry;
use crate::config::AppSettings;
use media::TrackKind;

/// If the last video unit is no older than this, audio may wait for the next video unit.
const VIDEO_FLOWS: Duration = Duration::from_millis(500);

/// The time at which an appended unit is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The unit is sent to all subscribers at the end of the turn.
    Now,
    /// The unit may wait for the next video unit, but only until this time.
    By(Instant),
}

/// The position up to which units have been released for sending, and the time of the next release.
#[derive(Debug, Default)]
pub struct FlushState {
    /// Number of the first unit that is not released for sending yet.
    until: u64,
    /// Time by which waiting units must be sent.
    due: Option<Instant>,
    /// The deadline that the worker has armed for the next release.
    armed: Option<Instant>,
    /// True if the stream is in the worker's list of streams to flush.
    queued: bool,
    last_video: Option<Instant>,
}

impl FlushState {
    /// Registers an appended unit, and decides when it is sent.
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
        // A release that is already planned is not postponed: further units must not delay it.
        let at = self.due.map_or(now + wait, |at| at.min(now + wait));
        self.due = Some(at);
        Flush::By(at)
    }

    /// Releases all units before `head` for sending. Nothing waits for a later release any more.
    pub(super) const fn flush(&mut self, head: u64) {
        self.until = head;
        self.due = None;
        self.queued = false;
    }

    /// Releases all units before `head` for sending, even if they are not due yet. A planned release still follows.
    pub(super) fn advance(&mut self, head: u64) {
        self.until = self.until.max(head);
    }

    /// Number of the first unit that is not released for sending yet.
    #[must_use]
    pub const fn until(&self) -> u64 {
        self.until
    }

    /// Time by which waiting units must be sent.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns true if a deadline at `at` must be armed, because no earlier one is armed. The deadline then counts
    /// as armed.
    pub fn arm(&mut self, at: Instant) -> bool {
        let earlier = self.armed.is_none_or(|armed| at < armed);
        if earlier {
            self.armed = Some(at);
        }
        earlier
    }

    /// Registers that the deadline armed at `at` has fired.
    pub fn disarm(&mut self, at: Instant) {
        self.armed = self.armed.filter(|armed| *armed != at);
    }

    /// Notes that the stream is in the list of streams to flush. Returns false if it already was.
    pub const fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }
}
