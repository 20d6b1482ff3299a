//! Figures of a thread's peers in the measured time, and of each peer over its life.

use std::time::{Duration, Instant};

use super::{Histogram, Now, Stamp};

/// Figures of players of a room about the participants that speak.
#[derive(Debug, Clone, Default)]
pub struct TurnTally {
    /// Number of turns for which the player had seen the speaker shortly before the turn began.
    pub seen_before: u64,
    /// Times from the beginning of a turn to the first picture of the speaker, if the player had not seen that
    /// speaker shortly before.
    pub switch: Histogram,
}

/// Figures of one thread; [`Tally::merge`] adds the figures of another thread.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Bytes sent or received on the sockets.
    pub bytes: u64,
    /// Packets of media received, for protocols that have packets.
    pub packets: u64,
    /// Number of video units.
    pub video: u64,
    /// Number of audio units.
    pub audio: u64,
    /// Number of units with a stamp.
    pub stamped: u64,
    /// Number of stamped units published before the player connected.
    pub backlog: u64,
    /// Number of late units.
    pub late: u64,
    /// Delays of units at the publishers: the time of sending less the due time.
    pub behind: Histogram,
    /// Times of players from connecting to the first video frame, including those before the measured time.
    pub first_frame: Histogram,
    /// Response times of HLS playlists.
    pub playlist: Histogram,
    /// Latencies of video units.
    pub latency_video: Histogram,
    /// Latencies of audio units.
    pub latency_audio: Histogram,
    /// Figures about the turns in a room.
    pub turns: TurnTally,
    late_bound: Duration,
}

impl Tally {
    /// Creates empty figures; units delayed more than `late_bound` are late.
    #[must_use]
    pub fn new(late_bound: Duration) -> Self {
        Self {
            bytes: 0,
            packets: 0,
            video: 0,
            audio: 0,
            stamped: 0,
            backlog: 0,
            late: 0,
            behind: Histogram::new(),
            first_frame: Histogram::new(),
            playlist: Histogram::new(),
            latency_video: Histogram::new(),
            latency_audio: Histogram::new(),
            turns: TurnTally::default(),
            late_bound,
        }
    }

    /// Resets the figures at the start of the measured time.
    pub fn clear(&mut self) {
        let fresh = Self::new(self.late_bound);
        *self = Self { first_frame: std::mem::take(&mut self.first_frame), ..fresh };
    }

    /// Adds the figures of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.video += other.video;
        self.audio += other.audio;
        self.stamped += other.stamped;
        self.backlog += other.backlog;
        self.late += other.late;
        self.behind.merge(&other.behind);
        self.first_frame.merge(&other.first_frame);
        self.playlist.merge(&other.playlist);
        self.latency_video.merge(&other.latency_video);
        self.latency_audio.merge(&other.latency_audio);
        self.turns.seen_before += other.turns.seen_before;
        self.turns.switch.merge(&other.turns.switch);
    }

    /// Returns the number of video and audio units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.video + self.audio
    }

    /// Counts a unit received or sent.
    pub const fn count(&mut self, is_video: bool) {
        if is_video {
            self.video += 1;
        } else {
            self.audio += 1;
        }
    }

    /// Counts a stamp at a player that connected at `asked_nanos`.
    pub fn take(&mut self, now: Now, asked_nanos: u64, is_video: bool, stamp: Stamp) {
        self.stamped += 1;
        if stamp.unix_nanos < asked_nanos {
            self.backlog += 1;
            return;
        }
        let took = now.unix_nanos.saturating_sub(stamp.unix_nanos);
        self.late += u64::from(u128::from(took) > self.late_bound.as_nanos());
        let histogram = if is_video { &mut self.latency_video } else { &mut self.latency_audio };
        histogram.record(took);
    }

    /// Counts a playlist requested at this time. A blocking request counts only from the time at which the newest media
    /// in the playlist ended.
    pub fn take_playlist(&mut self, now: Now, asked: Instant, made_nanos: Option<u64>) {
        let waited = now.mono.saturating_duration_since(asked).as_nanos();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        let old = made_nanos.map_or(u64::MAX, |made| now.unix_nanos.saturating_sub(made));
        self.playlist.record(waited.min(old));
    }
}

/// Unit numbers of one kind at one player.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Expected next number; `None` before the first.
    pub(super) next: Option<u64>,
    pub(super) newest_nanos: u64,
    /// Count of skipped numbers.
    pub lost: u64,
    /// Count of repeated numbers.
    pub repeated: u64,
}

impl Sequence {
    /// Counts a stamp.
    pub fn take(&mut self, stamp: Stamp) {
        let expected = self.next.unwrap_or(stamp.sequence);
        if stamp.sequence >= expected {
            self.lost = self.lost.saturating_add(stamp.sequence - expected);
        } else if stamp.unix_nanos <= self.newest_nanos {
            self.repeated = self.repeated.saturating_add(1);
            return;
        }
        // A number that is smaller but has a newer time shows that the publisher restarted.
        self.newest_nanos = stamp.unix_nanos;
        self.next = Some(stamp.sequence.saturating_add(1));
    }

    /// Returns the sums of the lost and of the repeated numbers of two sequences.
    pub(super) const fn plus(self, other: &Self) -> Self {
        let lost = self.lost.saturating_add(other.lost);
        let repeated = self.repeated.saturating_add(other.repeated);
        Self { next: None, newest_nanos: 0, lost, repeated }
    }

    /// Returns the count of missing numbers, given that the publisher made `made` units.
    #[must_use]
    pub fn missing(&self, made: u64) -> u64 {
        self.lost.saturating_add(self.next.map_or(made, |next| made.saturating_sub(next)))
    }
}

/// The counts of a peer, with video separate from audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// Numbers of published units: video, audio.
    Made([u64; 2]),
    /// Sequences of received units: video, audio.
    Got([Sequence; 2]),
    /// The peer has no media.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(stamps: &[(u64, u64)]) -> (u64, u64) {
        let mut sequence = Sequence::default();
        for &(sequence_number, unix_nanos) in stamps {
            sequence.take(Stamp { sequence: sequence_number, unix_nanos });
        }
        (sequence.lost, sequence.repeated)
    }

    #[test]
    fn gaps_are_losses_and_a_new_publisher_is_none() {
        assert_eq!(took(&[(5, 1), (6, 2), (7, 3)]), (0, 0));
        assert_eq!(took(&[(5, 1), (9, 2), (10, 3)]), (3, 0));
        assert_eq!(took(&[(5, 1), (6, 2), (6, 2), (7, 3)]), (0, 1));
        assert_eq!(took(&[(500, 1), (0, 9), (1, 10)]), (0, 0));
    }

    #[test]
    fn what_never_came_is_missing() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.missing(3), 3);
        sequence.take(Stamp { sequence: 0, unix_nanos: 1 });
        sequence.take(Stamp { sequence: 2, unix_nanos: 2 });
        assert_eq!(sequence.missing(5), 1 + 2);
    }

    #[test]
    fn a_playlist_that_was_waited_for_took_no_longer_than_since_it_was_made() {
        let asked = Instant::now();
        let now = Now { mono: asked + Duration::from_secs(1), unix_nanos: 2_000_000_000 };
        for (made_nanos, took_ms) in [(None, 1000), (Some(1_990_000_000), 10), (Some(5), 1000)] {
            let mut tally = Tally::new(Duration::from_millis(100));
            tally.take_playlist(now, asked, made_nanos);
            assert_eq!(tally.playlist.max(), Duration::from_millis(took_ms));
        }
    }

    #[test]
    fn the_backlog_has_no_latency() {
        let now = Now { mono: Instant::now(), unix_nanos: 2_000_000_000 };
        let mut tally = Tally::new(Duration::from_millis(100));
        tally.take(now, 1_000_000_000, true, Stamp { sequence: 0, unix_nanos: 5 });
        assert_eq!((tally.backlog, tally.late, tally.latency_video.total()), (1, 0, 0));
        tally.take(now, 1_000_000_000, true, Stamp { sequence: 1, unix_nanos: 1_999_000_000 });
        tally.take(now, 1_000_000_000, false, Stamp { sequence: 1, unix_nanos: 1_500_000_000 });
        assert_eq!((tally.stamped, tally.late), (3, 1));
        assert_eq!((tally.latency_video.total(), tally.latency_audio.total()), (1, 1));
        // A segment has a number and the time of its end, and counts like a unit.
        let mut viewing = crate::bench::viewing::Viewing::new(now);
        viewing.piece(now, true, 0, Some(2_000_000_000), &mut tally);
        viewing.piece(now, true, 2, None, &mut tally);
        assert_eq!((tally.stamped, tally.video, tally.latency_video.total()), (4, 2, 2));
        assert!(matches!(viewing.score(), Score::Got([Sequence { lost: 1, .. }, _])));
        tally.first_frame.record(7);
        tally.clear();
        assert_eq!((tally.stamped, tally.first_frame.total()), (0, 2));
    }
}
