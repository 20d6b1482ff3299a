//! Tracks that send nothing while others of their stream go on: they are announced and never come, or have stopped.
//!
//! A silent track would hold back the others, whose segments end with those of the first video. So it counts as having
//! left the stream until its next unit, or until the next key frame of video.

use std::time::{Duration, Instant};

use media::{Track, TrackId, TrackKind};

use crate::hub::Entry;

/// Time of the other tracks after which a video without units is silent. After as long a pause, segments follow a
/// discontinuity anyway.
const SILENT: Duration = Duration::from_secs(5);
/// Like [`SILENT`], for audio. It is longer because audio that returns is left out until the next segment.
const SILENT_AUDIO: Duration = Duration::from_secs(8);
/// A longer time between two arrivals counts as this long, because then all tracks have paused.
const STEP_MAX: Duration = Duration::from_millis(500);
/// Pause between two requests for a key frame.
const REQUEST_PAUSE: Duration = Duration::from_secs(1);

/// The reason for which the renditions of a stream change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// The stream has other tracks.
    Tracks,
    /// Tracks have fallen silent.
    Silence,
    /// A silent audio track sends again.
    Sound,
    /// A silent video sends again.
    Pictures,
    /// A silent video sends pictures that nobody can decode yet. Nothing changes before its next key frame, which the
    /// publisher should send soon.
    KeyFrameNeeded(TrackId),
}

/// State of a track.
#[derive(Debug)]
struct Lane {
    track: TrackId,
    /// The time of the last unit, or that at which the tracks changed.
    last: Duration,
    /// Time without units after which the track is silent.
    patience: Duration,
    is_silent: bool,
    /// The time of the last request for a key frame since the track fell silent.
    requested: Option<Duration>,
}

/// The tracks of a stream, and when each has sent its last unit.
#[derive(Debug, Default)]
pub(super) struct Silence {
    lanes: Vec<Lane>,
    /// Time so far in which units have arrived.
    elapsed: Duration,
    /// The last arrival.
    arrival: Option<Instant>,
}

impl Silence {
    /// Creates the state of tracks that have just been announced. None of them is silent yet.
    pub(super) fn of<'t>(tracks: impl Iterator<Item = &'t Track>) -> Self {
        let lane = |track: &Track| {
            let patience = if track.kind() == TrackKind::Audio { SILENT_AUDIO } else { SILENT };
            Lane { track: track.id, last: Duration::ZERO, patience, is_silent: false, requested: None }
        };
        Self { lanes: tracks.map(lane).collect(), ..Self::default() }
    }

    /// Notes a unit. Returns the news if a track has fallen silent or sends again.
    pub(super) fn note(&mut self, entry: &Entry) -> Option<News> {
        let arrival = self.arrival.map_or(entry.received, |last| last.max(entry.received));
        let step = self.arrival.replace(arrival).map_or(Duration::ZERO, |last| arrival - last);
        self.elapsed = self.elapsed.saturating_add(step.min(STEP_MAX));
        let now = self.elapsed;
        let is_video = entry.kind == Some(TrackKind::Video);
        if let Some(own) = self.lanes.iter_mut().find(|lane| lane.track == entry.unit.track) {
            own.last = now;
            if own.is_silent && (entry.unit.key_frame || !is_video) {
                (own.is_silent, own.requested) = (false, None);
                return Some(if is_video { News::Pictures } else { News::Sound });
            }
            let is_due = own.requested.is_none_or(|at| now.saturating_sub(at) >= REQUEST_PAUSE);
            if own.is_silent && is_due {
                own.requested = Some(now);
                return Some(News::KeyFrameNeeded(own.track));
            }
        }
        let is_overdue = |lane: &&mut Lane| !lane.is_silent && now.saturating_sub(lane.last) > lane.patience;
        let count = self.lanes.iter_mut().filter(is_overdue).map(|lane| lane.is_silent = true).count();
        (count > 0).then_some(News::Silence)
    }

    pub(super) fn is_silent(&self, track: TrackId) -> bool {
        self.lanes.iter().any(|lane| lane.track == track && lane.is_silent)
    }
}
