//! The wait for the tracks of a stream that has just begun. The description is sent only once, and tracks that are
//! missing from it never reach the player.

use std::time::{Duration, Instant};

use media::{Origin, TrackKind, Tracks};

use super::viewer::after;
use crate::hub::{Pick, Selection};

/// Maximum wait for the tracks of a stream that has none yet.
const TRACKS_WITHIN: Duration = Duration::from_secs(10);
/// Maximum wait for the audio of a stream with only video, or for the video of a stream with only audio.
const BOTH_WITHIN: Duration = Duration::from_secs(3);

/// True if the stream's tracks so far lack a selected kind.
fn lacks(tracks: &Tracks, selection: Selection) -> bool {
    [(TrackKind::Video, selection.video), (TrackKind::Audio, selection.audio)].into_iter().any(
        |(kind, pick)| {
            let is_there = tracks.of_kind(kind).any(|track| track.origin == Origin::Published);
            pick != Pick::None && !is_there
        },
    )
}

/// The wait for the tracks of a stream that has just begun.
#[derive(Debug)]
pub(super) struct Awaited {
    until: Instant,
    /// True if the stream has been live for so long that further tracks are not expected.
    is_seasoned: bool,
    /// The tracks known so far, while others are awaited.
    tracks: Option<Tracks>,
}

impl Awaited {
    /// Begins to wait.
    pub(super) fn new(now: Instant) -> Self {
        Self { until: after(now, TRACKS_WITHIN), is_seasoned: false, tracks: None }
    }

    /// Notes that the stream has been live for so long that no further tracks are expected.
    pub(super) const fn season(&mut self) {
        self.is_seasoned = true;
    }

    /// Takes the stream's current tracks. Returns true if no others are awaited.
    pub(super) fn take(&mut self, now: Instant, tracks: &Tracks, selection: Selection) -> bool {
        if tracks.is_empty() {
            return false;
        }
        if self.is_seasoned || !lacks(tracks, selection) {
            return true;
        }
        if self.tracks.is_none() {
            self.until = self.until.min(after(now, BOTH_WITHIN));
        }
        self.tracks = Some(tracks.clone());
        false
    }

    /// The end of the wait.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// Takes the tracks that were found in time; `None` if none were found.
    pub(super) fn tracks(&mut self) -> Option<Tracks> {
        self.tracks.take()
    }
}

#[cfg(test)]
mod tests {
    use media::codec::{opus, vp8};
    use media::{CodecConfig, Timescale, Track, TrackId};

    use super::*;

    fn tracks(ids: &[TrackId]) -> Tracks {
        let config = |id| match id {
            TrackId::VIDEO => CodecConfig::Vp8(vp8::Config::default()),
            _ => CodecConfig::Opus(opus::Config::of_channels(2).unwrap()),
        };
        Tracks::new(1, ids.iter().map(|id| Track::new(*id, config(*id), Timescale::MILLISECONDS)))
    }

    #[test]
    fn sound_and_video_are_waited_for_but_no_longer_than_three_seconds() {
        let now = Instant::now();
        let (both, video) = (tracks(&[TrackId::VIDEO, TrackId::AUDIO]), tracks(&[TrackId::VIDEO]));
        let mut awaited = Awaited::new(now);
        assert!(!awaited.take(now, &Tracks::default(), Selection::DEFAULT));
        assert_eq!((awaited.until(), awaited.tracks()), (now + TRACKS_WITHIN, None));
        assert!(!awaited.take(now + BOTH_WITHIN, &video, Selection::DEFAULT));
        assert_eq!(awaited.until(), now + 2 * BOTH_WITHIN);
        assert!(!awaited.take(now + 2 * BOTH_WITHIN, &video, Selection::DEFAULT));
        assert_eq!(awaited.until(), now + 2 * BOTH_WITHIN, "the first counts");
        assert!(awaited.take(now + BOTH_WITHIN, &both, Selection::DEFAULT));
        assert_eq!(awaited.tracks(), Some(video));
        // The wait is not extended for a stream whose first track begins late.
        assert!(!Awaited::new(now).take(now, &tracks(&[TrackId::AUDIO]), Selection::DEFAULT));
        let mut late = Awaited::new(now);
        late.take(now + TRACKS_WITHIN, &tracks(&[TrackId::AUDIO]), Selection::DEFAULT);
        assert_eq!(late.until(), now + TRACKS_WITHIN);
    }

    #[test]
    fn nobody_waits_for_what_is_not_asked_for_or_not_expected() {
        let (now, video) = (Instant::now(), tracks(&[TrackId::VIDEO]));
        let mut awaited = Awaited::new(now);
        awaited.season();
        assert!(awaited.take(now, &video, Selection::DEFAULT));
        let mute = Selection { audio: Pick::None, ..Selection::DEFAULT };
        assert!(Awaited::new(now).take(now, &video, mute));
        let blind = Selection { video: Pick::None, ..Selection::DEFAULT };
        assert!(Awaited::new(now).take(now, &tracks(&[TrackId::AUDIO]), blind));
    }
}
