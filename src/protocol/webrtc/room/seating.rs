//! Seats for the video or audio of a room, if a viewer has fewer seats than there are streams. A stream that speaks
//! takes the seat of the stream that has been silent longest. A stream that spoke less than [`HOLD`] ago keeps its
//! seat, so that two people in conversation do not displace each other, and a pinned stream always keeps its seat.

use std::time::{Duration, Instant};

use crate::types::Handle;

/// Maximum number of seats of a kind for one viewer.
pub(in crate::protocol::webrtc) const SEATS_MAX: usize = 30;
/// Time for which a seat is kept after its stream spoke.
pub(super) const HOLD: Duration = Duration::from_secs(2);

/// A seat, which a stream may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seat {
    holder: Option<Handle>,
    is_pinned: bool,
}

/// The seats of one kind.
#[derive(Debug, Default)]
pub(super) struct Seating {
    seats: Vec<Seat>,
}

impl Seating {
    /// Makes `count` free seats.
    pub(super) fn new(count: usize) -> Self {
        Self { seats: vec![Seat::default(); count.min(SEATS_MAX)] }
    }

    /// The number of seats.
    pub(super) const fn count(&self) -> usize {
        self.seats.len()
    }

    /// Returns the stream in a seat.
    pub(super) fn holder(&self, seat: usize) -> Option<Handle> {
        self.seats.get(seat)?.holder
    }

    /// Returns the streams in all seats, in order.
    pub(super) fn holders(&self) -> impl Iterator<Item = Option<Handle>> + '_ {
        self.seats.iter().map(|seat| seat.holder)
    }

    /// True if a stream has a seat.
    pub(super) fn seats(&self, stream: Handle) -> bool {
        self.seat_of(stream).is_some()
    }

    /// True if a seat is free.
    pub(super) fn has_free(&self) -> bool {
        self.seats.iter().any(|seat| seat.holder.is_none())
    }

    fn seat_of(&self, stream: Handle) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.holder == Some(stream))
    }

    /// Gives a free seat to a stream. Returns false if no seat is free, or the stream has a seat already.
    pub(super) fn take_free(&mut self, stream: Handle) -> bool {
        if self.seats(stream) {
            return false;
        }
        let free = self.seats.iter_mut().find(|seat| seat.holder.is_none());
        free.map(|seat| seat.holder = Some(stream)).is_some()
    }

    /// Gives a seat to a stream that speaks. Returns `Some` with the stream that lost the seat (`Some(None)` if the
    /// seat was free); `None` if the speaking stream has a seat already, or no seat may be taken. `spoke` returns the
    /// time at which a stream last spoke.
    pub(super) fn take_for_speaker(
        &mut self,
        now: Instant,
        stream: Handle,
        spoke: impl Fn(Handle) -> Option<Instant>,
    ) -> Option<Option<Handle>> {
        if self.seats(stream) {
            return None;
        }
        if self.take_free(stream) {
            return Some(None);
        }
        let is_silent = |at: Option<Instant>| at.is_none_or(|at| now.saturating_duration_since(at) >= HOLD);
        let movable = self.seats.iter_mut().filter(|seat| !seat.is_pinned);
        let last = |seat: &&mut Seat| seat.holder.and_then(&spoke);
        let longest = movable.min_by_key(last).filter(|seat| is_silent(seat.holder.and_then(&spoke)))?;
        Some(longest.holder.replace(stream))
    }

    /// Frees the seat of a stream. Returns false if it has none.
    pub(super) fn leave(&mut self, stream: Handle) -> bool {
        let seat = self.seats.iter_mut().find(|seat| seat.holder == Some(stream));
        seat.map(|seat| *seat = Seat::default()).is_some()
    }

    /// Pins exactly these streams, as far as there are seats. Streams without a seat take free seats; if there are
    /// none, they take the seats of other streams, beginning with the last seat. Returns the streams that lose their
    /// seat.
    pub(super) fn pin(&mut self, streams: &[Handle]) -> Vec<Handle> {
        let streams = streams.get(..self.count().min(streams.len())).unwrap_or_default();
        for seat in &mut self.seats {
            seat.is_pinned = seat.holder.is_some_and(|holder| streams.contains(&holder));
        }
        let mut out = Vec::new();
        for stream in streams {
            if self.seats(*stream) {
                continue;
            }
            let free = self.seats.iter().position(|seat| seat.holder.is_none());
            let Some(at) = free.or_else(|| self.seats.iter().rposition(|seat| !seat.is_pinned)) else {
                break;
            };
            if let Some(seat) = self.seats.get_mut(at) {
                out.extend(seat.holder);
                *seat = Seat { holder: Some(*stream), is_pinned: true };
            }
        }
        out
    }

    /// Returns the pinned streams.
    pub(super) fn pinned(&self) -> Vec<Handle> {
        self.seats.iter().filter(|seat| seat.is_pinned).filter_map(|seat| seat.holder).collect()
    }

    /// Changes the number of seats and removes all pins. Streams in removed seats move to free ones. Returns the
    /// streams for which there is no free seat.
    pub(super) fn resize(&mut self, count: usize) -> Vec<Handle> {
        let count = count.min(SEATS_MAX);
        let gone = self.seats.split_off(count.min(self.count()));
        self.seats.resize(count, Seat::default());
        self.seats.iter_mut().for_each(|seat| seat.is_pinned = false);
        gone.into_iter().filter_map(|seat| seat.holder).filter(|stream| !self.take_free(*stream)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn ids(numbers: &[u16]) -> Vec<Handle> {
        numbers.iter().map(|number| Handle(*number)).collect()
    }

    fn held(seating: &Seating) -> Vec<u16> {
        seating.holders().map(|holder| holder.map_or(0, |holder| holder.0)).collect()
    }

    #[test]
    fn a_speaker_takes_the_seat_of_who_was_silent_longest_and_keeps_it_for_a_while() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut seating = Seating::new(2);
        let mut spoke = BTreeMap::new();
        let mut speaks = |seating: &mut Seating, ms, stream: u16| {
            spoke.insert(Handle(stream), at(ms));
            seating.take_for_speaker(at(ms), Handle(stream), |stream| spoke.get(&stream).copied())
        };
        assert!(seating.take_free(Handle(1)) && !seating.take_free(Handle(1)));
        assert_eq!(speaks(&mut seating, 0, 2), Some(None));
        // Participant 1 has not spoken.
        assert_eq!(speaks(&mut seating, 100, 3), Some(Some(Handle(1))));
        assert_eq!(held(&seating), [3, 2]);
        // Participants 3 and 2, who have the seats, spoke less than two seconds ago, so 4 must wait. Then 3 speaks
        // again and 2 does not, so 4 takes the seat of 2.
        assert_eq!(speaks(&mut seating, 1900, 4), None);
        assert_eq!(speaks(&mut seating, 1950, 3), None);
        assert_eq!(speaks(&mut seating, 2000, 4), Some(Some(Handle(2))));
        assert_eq!(held(&seating), [3, 4]);
    }

    #[test]
    fn pins_stay_and_a_page_keeps_those_who_are_on_it() {
        let mut seating = Seating::new(3);
        ids(&[1, 2, 3]).into_iter().for_each(|stream| assert!(seating.take_free(stream)));
        assert_eq!(seating.pin(&ids(&[2, 4])), ids(&[3]));
        assert_eq!((held(&seating), seating.pinned()), (vec![1, 2, 4], ids(&[2, 4])));
        let now = Instant::now();
        assert_eq!(seating.take_for_speaker(now, Handle(5), |_| None), Some(Some(Handle(1))));
        assert_eq!(seating.pin(&ids(&[6, 7, 8, 9])).len(), 3);
        assert_eq!(seating.take_for_speaker(now, Handle(1), |_| None), None);
        assert_eq!(seating.pin(&[]), []);
        assert!(seating.take_for_speaker(now, Handle(1), |_| None).is_some());
    }

    #[test]
    fn fewer_seats_are_left_to_those_in_front() {
        let mut seating = Seating::new(4);
        ids(&[1, 2, 3, 4]).into_iter().for_each(|stream| assert!(seating.take_free(stream)));
        assert!(seating.leave(Handle(1)) && !seating.leave(Handle(1)));
        assert_eq!(seating.resize(2), ids(&[4]));
        assert_eq!(held(&seating), [3, 2]);
        assert_eq!(seating.resize(1000), []);
        assert_eq!((seating.count(), seating.has_free()), (SEATS_MAX, true));
        assert_eq!(Seating::new(0).take_for_speaker(Instant::now(), Handle(1), |_| None), None);
    }

    proptest! {
        /// In any order of events, no stream has two seats, pins are kept, and each stream that lost a seat is
        /// reported.
        #[test]
        fn everybody_has_one_seat_or_none(acts in prop::collection::vec((0u8..6, 1u16..9, 0usize..6), 1..80)) {
            let (mut now, mut spoke) = (Instant::now(), BTreeMap::<Handle, Instant>::new());
            let mut seating = Seating::new(3);
            for (act, stream, count) in acts {
                now += Duration::from_millis(300);
                let before: Vec<Handle> = seating.holders().flatten().collect();
                let stream = Handle(stream);
                let lost: Vec<Handle> = match act {
                    0 => {
                        spoke.insert(stream, now);
                        let pinned = seating.pinned();
                        let taken = seating.take_for_speaker(now, stream, |one| spoke.get(&one).copied());
                        prop_assert_eq!(&seating.pinned(), &pinned);
                        taken.flatten().into_iter().collect()
                    }
                    1 => seating.leave(stream).then_some(stream).into_iter().collect(),
                    2 => seating.pin(&ids(&[stream.0, stream.0 % 8 + 1])),
                    3 => seating.resize(count),
                    4 => seating.pin(&[]),
                    _ => {
                        seating.take_free(stream);
                        Vec::new()
                    }
                };
                let after: Vec<Handle> = seating.holders().flatten().collect();
                let mut once = after.clone();
                once.sort();
                once.dedup();
                prop_assert_eq!(once.len(), after.len());
                prop_assert!(after.len() <= seating.count());
                for one in before.iter().filter(|one| !after.contains(one)) {
                    prop_assert!(lost.contains(one), "{:?} of {:?}", one, before);
                }
            }
        }
    }
}
