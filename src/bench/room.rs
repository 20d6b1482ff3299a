//! Participants of a room: who speaks at which time, and how soon the others see the speaker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Now, Score, Sequence, Stamp, Tally};

/// If the last picture of a participant is at most this old when its turn begins, the participant counts as seen
/// before the turn.
const SEEN_BEFORE: Duration = Duration::from_secs(1);

/// The turns of a room's participants, who speak one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    began: Instant,
    every: Duration,
    participants: usize,
}

impl Turns {
    /// Makes turns of this length, which must not be zero; participant 0 begins.
    #[must_use]
    pub const fn new(began: Instant, every: Duration, participants: usize) -> Self {
        Self { began, every, participants }
    }

    /// Returns the participant that speaks, and the beginning of its turn.
    #[must_use]
    pub fn at(&self, now: Instant) -> (usize, Instant) {
        let since = now.saturating_duration_since(self.began).as_nanos();
        let turn = since.checked_div(self.every.as_nanos()).unwrap_or(0);
        let turn = u32::try_from(turn).unwrap_or(u32::MAX);
        let speaker = usize::try_from(turn).unwrap_or(0).checked_rem(self.participants).unwrap_or(0);
        (speaker, self.began + self.every.saturating_mul(turn))
    }
}

/// A participant, as its two connections know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// The participant's number, from 0.
    pub number: usize,
    /// The turns of all participants; `None` if nobody speaks.
    pub turns: Option<Turns>,
}

impl Participant {
    /// True if the participant speaks.
    pub(super) fn speaks(&self, now: Instant) -> bool {
        self.turns.is_some_and(|turns| turns.at(now).0 == self.number)
    }
}

/// The measurements of a participant that plays the room.
#[derive(Debug)]
pub(super) struct RoomView {
    turns: Option<Turns>,
    /// For each place, the participant that is shown there, and the unit numbers received from that participant.
    places: BTreeMap<u8, (usize, Sequence)>,
    /// Time of the last picture of each participant.
    seen: BTreeMap<usize, Instant>,
    /// Units that were lost or repeated in a place while it showed another participant than now.
    before: Sequence,
}

impl RoomView {
    pub(super) fn new(participant: Participant) -> Self {
        let (places, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { turns: participant.turns, places, seen, before: Sequence::default() }
    }

    /// Counts a picture. If a place changes to another participant, the skipped unit numbers do not count as lost.
    pub(super) fn picture(&mut self, now: Now, place: u8, stamp: Stamp, tally: &mut Tally) {
        let source = stamp.source();
        let (shown, sequence) = self.places.entry(place).or_insert_with(|| (source, Sequence::default()));
        if *shown != source {
            self.before = self.before.plus(sequence);
            (*shown, *sequence) = (source, Sequence::default());
        }
        sequence.take(stamp);
        let last = self.seen.insert(source, now.mono);
        let Some((speaker, since)) = self.turns.map(|turns| turns.at(now.mono)) else { return };
        if source != speaker || last.is_some_and(|last| last >= since) {
            return;
        }
        if last.is_some_and(|last| since.saturating_duration_since(last) < SEEN_BEFORE) {
            tally.turns.seen_before += 1;
        } else {
            let waited = now.mono.saturating_duration_since(since).as_nanos();
            tally.turns.switch.record(u64::try_from(waited).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn score(&self) -> Score {
        let places = self.places.values().map(|(_, sequence)| sequence);
        Score::Got([places.fold(self.before, Sequence::plus), Sequence::default()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_speak_one_after_the_other() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let turns = Turns::new(began, Duration::from_secs(3), 2);
        for (ms, speaker, since) in [(0, 0, 0), (2999, 0, 0), (3000, 1, 3000), (6001, 0, 6000)] {
            assert_eq!(turns.at(at(ms)), (speaker, at(since)), "{ms}");
            let speaks = |number| Participant { number, turns: Some(turns) }.speaks(at(ms));
            assert!(speaks(speaker) && !speaks(1 - speaker));
        }
        assert_eq!(Turns::new(began, Duration::ZERO, 0).at(at(5)), (0, began));
        assert!(!Participant { number: 0, turns: None }.speaks(began));
    }

    #[test]
    fn a_speaker_is_new_to_a_viewer_or_was_seen_before() {
        let began = Now { mono: Instant::now(), unix_nanos: 0 };
        let turns = Some(Turns::new(began.mono, Duration::from_secs(3), 2));
        let mut view = RoomView::new(Participant { number: 7, turns });
        let mut tally = Tally::new(Duration::from_secs(1));
        let mut picture = |ms: u64, place, source, n| {
            let now = began.later(began.mono + Duration::from_millis(ms));
            let stamp = Stamp { sequence: Stamp::first_of(source) + n, unix_nanos: n };
            view.picture(now, place, stamp, &mut tally);
        };
        // Participant 0 speaks and is seen after 400 ms. The turn of participant 1 begins at 3 s, but it has a
        // place from 2.5 s on.
        picture(400, 0, 0, 10);
        picture(500, 0, 0, 11);
        picture(2500, 1, 1, 5);
        picture(3010, 1, 1, 8);
        // Participant 0 speaks again, and replaces participant 1 in its place: a switch that counts no loss.
        picture(6200, 1, 0, 90);
        picture(6300, 1, 0, 90);
        assert_eq!((tally.turns.seen_before, tally.turns.switch.total()), (1, 2));
        assert!(tally.turns.switch.max() >= Duration::from_millis(390));
        let Score::Got([video, _]) = view.score() else { panic!() };
        assert_eq!((video.lost, video.repeated), (2, 1));
    }

    #[test]
    fn foreign_stamps_do_not_overflow_the_counts() {
        let now = Now { mono: Instant::now(), unix_nanos: 0 };
        let mut view = RoomView::new(Participant { number: 0, turns: None });
        let mut tally = Tally::new(Duration::from_secs(1));
        let mut nanos = 0;
        for place in 0..3 {
            for source in 0..3 {
                for n in [0, u64::from(u32::MAX), 1, u64::from(u32::MAX)] {
                    nanos += 1;
                    let sequence = Stamp::first_of(source) + n;
                    view.picture(now, place, Stamp { sequence, unix_nanos: nanos }, &mut tally);
                }
            }
        }
        view.before.lost = u64::MAX - 1;
        let stamp = |source| Stamp { sequence: Stamp::first_of(source), unix_nanos: u64::MAX };
        (3..6).for_each(|source| view.picture(now, 0, stamp(source), &mut tally));
        let Score::Got([video, _]) = view.score() else { panic!() };
        assert_eq!(video.lost, u64::MAX);
    }
}
