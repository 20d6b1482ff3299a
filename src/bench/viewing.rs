//! Measurements common to players of all protocols: units, stamps, the time to the first frame.

use super::room::RoomView;
use super::{Now, Participant, Score, Sequence, Stamp, Tally};

/// The measurements of one player.
#[derive(Debug)]
pub(super) struct Viewing {
    asked: Now,
    first_frame: FirstFrame,
    video: Sequence,
    audio: Sequence,
    /// Measurements of a participant of a room.
    room: Option<Box<RoomView>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstFrame {
    /// Neither video nor audio has arrived.
    Awaited,
    /// The first audio arrived after this time in nanoseconds; video may follow.
    Audio(u64),
    Seen,
}

impl Viewing {
    pub(super) fn new(asked: Now) -> Self {
        let (video, audio) = (Sequence::default(), Sequence::default());
        Self { asked, first_frame: FirstFrame::Awaited, video, audio, room: None }
    }

    /// Also measures what a participant of a room sees.
    pub(super) fn in_room(&mut self, participant: Participant) {
        self.room = Some(Box::new(RoomView::new(participant)));
    }

    /// Counts a complete unit received in a place of the room, with its stamp if found.
    pub(super) fn unit(
        &mut self,
        now: Now,
        (is_video, place): (bool, u8),
        stamp: Option<Stamp>,
        tally: &mut Tally,
    ) {
        tally.count(is_video);
        self.see_first_frame(now, is_video, tally);
        let Some(stamp) = stamp else { return };
        match &mut self.room {
            Some(room) => room.picture(now, place, stamp, tally),
            None if is_video => self.video.take(stamp),
            None => self.audio.take(stamp),
        }
        tally.take(now, self.asked.unix_nanos, is_video, stamp);
    }

    /// Counts a complete segment or part with its number; `made` is the time at which its last media was made.
    pub(super) fn piece(
        &mut self,
        now: Now,
        is_video: bool,
        number: u64,
        made: Option<u64>,
        tally: &mut Tally,
    ) {
        tally.count(is_video);
        self.see_first_frame(now, is_video, tally);
        let stamp = |unix_nanos| Stamp { sequence: number, unix_nanos };
        let sequence = if is_video { &mut self.video } else { &mut self.audio };
        sequence.take(stamp(made.unwrap_or(now.unix_nanos)));
        if let Some(made) = made {
            tally.take(now, self.asked.unix_nanos, is_video, stamp(made));
        }
    }

    pub(super) fn score(&self) -> Score {
        self.room.as_ref().map_or(Score::Got([self.video, self.audio]), |room| room.score())
    }

    fn see_first_frame(&mut self, now: Now, is_video: bool, tally: &mut Tally) {
        let waited = now.mono.saturating_duration_since(self.asked.mono).as_nanos();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        self.first_frame = match (self.first_frame, is_video) {
            (FirstFrame::Awaited | FirstFrame::Audio(_), true) => {
                tally.first_frame.record(waited);
                FirstFrame::Seen
            }
            (FirstFrame::Awaited, false) => FirstFrame::Audio(waited),
            // A stream that has audio but no video for a second counts as one without video.
            (FirstFrame::Audio(first), false) if waited > first.saturating_add(1_000_000_000) => {
                tally.first_frame.record(first);
                FirstFrame::Seen
            }
            (state @ (FirstFrame::Audio(_) | FirstFrame::Seen), _) => state,
        };
    }
}
