//! Detects that a pulled live stream has stopped, or that its video has stopped while audio continues.

use std::time::{Duration, Instant};

/// Maximum time between two units of a live stream.
const MEDIA_WITHIN: Duration = Duration::from_secs(4);
/// Maximum time between two pictures of a video that has proved to be continuous.
const VIDEO_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time between two pictures until enough have arrived to know their usual distance.
const VIDEO_WITHIN_AT_FIRST: Duration = Duration::from_secs(60);
const PICTURES_KNOWN: u32 = 10;
/// Video counts as stopped after this many times the longest distance between two pictures so far, which allows
/// for slide shows.
const SLIDES_FACTOR: u32 = 3;

/// Statistics of the video so far.
#[derive(Debug, Clone, Copy)]
struct Video {
    last: Instant,
    longest: Duration,
    pictures: u32,
}

impl Video {
    fn within(self) -> Duration {
        let known = self.longest.saturating_mul(SLIDES_FACTOR).max(VIDEO_WITHIN);
        if self.pictures < PICTURES_KNOWN { known.max(VIDEO_WITHIN_AT_FIRST) } else { known }
    }
}

/// The stall detection of one stream.
#[derive(Debug)]
pub(super) struct Stall {
    due: Instant,
    video: Option<Video>,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now + MEDIA_WITHIN, video: None }
    }

    /// Notes that media has arrived.
    pub(super) fn renew(&mut self, now: Instant) {
        self.due = now + MEDIA_WITHIN;
    }

    /// Notes that a picture has arrived.
    pub(super) fn picture(&mut self, now: Instant) {
        let video = self.video.get_or_insert(Video { last: now, longest: Duration::ZERO, pictures: 0 });
        video.longest = video.longest.max(now.saturating_duration_since(video.last));
        video.last = now;
        video.pictures = video.pictures.saturating_add(1);
    }

    /// Returns the deadline for the next media.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Returns the reason if media has stopped.
    pub(super) fn frozen(&self, now: Instant) -> Option<String> {
        (self.due <= now).then(|| format!("frozen: no media for {} s", MEDIA_WITHIN.as_secs()))
    }

    /// Returns the reason if audio arrives but video has stopped.
    pub(super) fn without_video(&self, now: Instant) -> Option<String> {
        let video = self.video?;
        let within = video.within();
        let has_stopped = now.saturating_duration_since(video.last) >= within;
        has_stopped.then(|| format!("no video for {} s while audio went on", within.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the second at which a video of this many pictures, this far apart, counts as stopped.
    fn stopped_at(pictures: u64, apart_ms: u64) -> Option<u64> {
        let began = Instant::now();
        let mut stall = Stall::new(began);
        (0..pictures).for_each(|n| stall.picture(began + Duration::from_millis(n * apart_ms)));
        let last = began + Duration::from_millis((pictures - 1) * apart_ms);
        (0..200).find(|&second| stall.without_video(last + Duration::from_secs(second)).is_some())
    }

    #[test]
    fn video_has_stopped_after_10_s_slides_later() {
        let table = [(250, 40, 10), (20, 3_000, 10), (20, 15_000, 45), (1, 0, 60), (5, 30_000, 90)];
        for (pictures, apart_ms, at) in table {
            assert_eq!(stopped_at(pictures, apart_ms), Some(at), "{pictures} pictures, {apart_ms} ms apart");
        }
        let stall = Stall::new(Instant::now());
        assert_eq!(stall.without_video(stall.due() + Duration::from_secs(900)), None, "sound alone");
    }
}
