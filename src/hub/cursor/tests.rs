//! The units that a cursor sends, and the position at which it continues.

use std::sync::Arc;

use super::super::packager::tests::{PLAIN, Plain, plain};
use super::super::ring::tests::{entry, vp8_tracks};
use super::super::{Entry, Fit, FormatKey, Item, Package, Packager, Pick, Ring, RingLimits, Selection};
use super::*;
use media::{Track, TrackId, Tracks};
use proptest::prelude::*;

struct Line {
    ring: Ring,
    packager: Packager,
}

impl Line {
    fn new() -> Self {
        Self { ring: Ring::new(RingLimits::with_lag_ms(5000)), packager: plain(0) }
    }

    fn of(selection: Selection, tracks: Arc<Tracks>) -> Self {
        let key = FormatKey { selection, ..PLAIN };
        Self { packager: Packager::new(key, Some(Box::new(Plain)), &tracks, 0), ..Self::new() }
    }

    fn push(&mut self, dts_ms: i64, key: bool) {
        self.push_entry(entry(dts_ms, key, 1));
    }

    fn push_entry(&mut self, entry: Entry) {
        self.packager.push(&entry);
        self.ring.push(entry);
        self.packager.trim(self.ring.base());
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(&self.ring, self.packager.chosen())
    }

    /// Returns the number of tracks whose key frame a cursor waits for.
    fn awaited(&self, cursor: &Cursor) -> u32 {
        cursor.keys_awaited(&self.ring, self.packager.chosen()).len()
    }

    /// Performs one write of at most `room` bytes.
    fn write(&self, cursor: &mut Cursor, room: usize) -> Vec<u8> {
        cursor.skip_undecodable(&self.ring, self.packager.chosen(), self.ring.head());
        let bytes: Vec<u8> = {
            let mut gather = Gather::new(1 << 20);
            let _ = cursor.gather_rest(&mut gather)
                && cursor.gather_units(&self.packager, self.ring.head(), &mut gather);
            gather.slices().iter().flat_map(|s| s.to_vec()).take(room).collect()
        };
        let left = cursor.rest_sent(bytes.len(), |_| ());
        cursor.units_sent(&self.packager, self.ring.head(), left, |_| ());
        bytes
    }
}

#[test]
fn units_that_are_taken_whole_are_those_that_a_write_would_name() {
    let mut line = Line::new();
    (0..5).for_each(|n| line.push(n * 33, n == 0 || n == 3));
    let mut cursor = line.cursor();
    cursor.skip_undecodable(&line.ring, line.packager.chosen(), line.ring.head());
    let mut taken = Vec::new();
    while let Some(delivery) = cursor.take_unit(&line.ring, &line.packager, line.ring.head()) {
        taken.extend(delivery.parts().map(|parts| parts.slices().concat()));
    }
    assert_eq!(taken.concat(), b"<1@99>[99][132]");
    assert!(!cursor.has_rest() && cursor.next() == 5);
}

#[test]
fn a_new_cursor_starts_at_the_newest_key_frame_with_a_prelude() {
    let mut line = Line::new();
    (0..5).for_each(|n| line.push(n * 33, n == 0 || n == 3));
    let mut cursor = line.cursor();
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@99>[99][132]");
    assert!(line.write(&mut cursor, usize::MAX).is_empty());
}

/// Leaves out all units except key frames, like a format that cannot carry a track.
#[derive(Debug)]
struct Keys;

impl Package for Keys {
    fn fit(&self, _track: &Track) -> Fit {
        Fit::Well
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, chosen: &Chosen) -> Item {
        if entry.unit.key_frame { Plain.unit(entry, chosen) } else { Item::default() }
    }
}

#[test]
fn units_that_the_format_leaves_out_are_passed_over() {
    let mut line = Line::new();
    line.packager = Packager::new(PLAIN, Some(Box::new(Keys)), &vp8_tracks(1), 0);
    let mut cursor = line.cursor();
    line.push(0, false);
    cursor.skip_empty(&line.packager, 1);
    assert_eq!(cursor.next(), 0, "it waits for a key frame");
    cursor.start_without_video(&line.ring, &Chosen::default());
    cursor.skip_empty(&line.packager, 0);
    assert_eq!(cursor.next(), 0, "not further than it is to be sent");
    cursor.skip_empty(&line.packager, 1);
    assert_eq!((cursor.next(), cursor.zero_ms), (1, None));
    assert!(line.write(&mut cursor, usize::MAX).is_empty());
    line.push(33, true);
    line.push(66, false);
    line.push(99, true);
    // Skipping units without bytes does not skip a unit that has bytes but was not sent yet.
    cursor.skip_empty(&line.packager, line.ring.head());
    assert_eq!(cursor.next(), 1);
    assert_eq!(line.write(&mut cursor, 6), b"[33][9");
    assert_eq!(line.write(&mut cursor, usize::MAX), b"9]");
    assert_eq!((cursor.next(), cursor.zero_ms), (4, Some(33)));
}

#[test]
fn without_a_key_frame_it_waits_for_one() {
    let mut line = Line::new();
    line.push(0, false);
    let mut cursor = line.cursor();
    line.push(33, false);
    assert!(line.write(&mut cursor, usize::MAX).is_empty());
    line.push(66, true);
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@66>[66]");
}

#[test]
fn a_video_without_pictures_is_waited_for_for_three_seconds() {
    let mut line = Line::of(Selection::ALL, vp8_tracks(1));
    let beside = |dts_ms| {
        let mut entry = Entry { kind: Some(TrackKind::Data), ..entry(dts_ms, false, 1) };
        entry.unit.track = TrackId::DATA;
        entry
    };
    let write = |line: &Line, cursor: &mut Cursor| {
        cursor.start_without_video(&line.ring, line.packager.chosen());
        String::from_utf8(line.write(cursor, usize::MAX)).unwrap()
    };
    line.push_entry(beside(0));
    let mut cursor = line.cursor();
    line.push_entry(beside(2_999));
    assert_eq!(write(&line, &mut cursor), "");
    line.push_entry(beside(3_000));
    assert_eq!(write(&line, &mut cursor), "<1@2999>[3000]");
    assert!(line.awaited(&cursor) == 1, "a key frame is asked for still");
    // Frames that cannot be decoded are not sent. Video begins with the next key frame.
    line.push(3_010, false);
    line.push(3_020, true);
    line.push(3_030, false);
    assert_eq!(write(&line, &mut cursor), "[3020][3030]");
    // A later subscriber waits for a key frame again, until the track has had no picture for another three seconds.
    line.ring.trim(false, None);
    let mut late = line.cursor();
    line.push_entry(beside(6_029));
    assert_eq!(write(&line, &mut late), "");
    line.push_entry(beside(6_030));
    assert_eq!(write(&line, &mut late), "<1@6029>[6030]");
}

/// A unit of a stream that has no video.
fn sound(dts_ms: i64) -> Entry {
    let mut entry = Entry { tracks: Arc::default(), ..entry(dts_ms, false, 1) };
    entry.unit.track = TrackId::DATA;
    entry
}

#[test]
fn sound_alone_starts_at_once() {
    let mut line = Line::of(Selection { video: Pick::None, ..Selection::DEFAULT }, Arc::default());
    line.push_entry(sound(0));
    let mut cursor = line.cursor();
    line.push_entry(sound(23));
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@0>[23]");
}

#[test]
fn m_23_over_the_lag_it_jumps_to_the_newest_key_frame_and_finishes_the_unit_begun() {
    let mut line = Line::new();
    (0..3).for_each(|n| line.push(n * 33, n == 0));
    let mut cursor = line.cursor();
    assert_eq!(line.write(&mut cursor, 8), b"<1@0>[0]");
    assert_eq!(line.write(&mut cursor, 2), b"[3");
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::None);
    (3..200).for_each(|n| line.push(n * 33, n % 30 == 0));
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::Skipped(178));
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 5000), Jump::None);
    let sent = String::from_utf8(line.write(&mut cursor, usize::MAX)).unwrap();
    assert!(sent.starts_with("3][5940][5973]"), "{sent}");
}

#[test]
fn a_pause_within_a_gop_goes_on_where_it_was_and_a_longer_one_at_the_newest_key_frame() {
    let mut line = Line::new();
    (0..3).for_each(|n| line.push(n * 33, n == 0));
    let mut cursor = line.cursor();
    line.write(&mut cursor, usize::MAX);
    line.push(99, false);
    cursor.resume(&line.ring, line.packager.chosen());
    assert_eq!(line.write(&mut cursor, usize::MAX), b"[99]");
    (4..8).for_each(|n| line.push(n * 33, n == 6));
    cursor.resume(&line.ring, line.packager.chosen());
    assert_eq!(line.write(&mut cursor, usize::MAX), b"[198][231]");
}

#[test]
fn a_further_video_track_is_sent_from_its_own_key_frame_on() {
    let second = TrackId::nth(TrackKind::Video, 1).unwrap();
    let mut line = Line::of(Selection::ALL, vp8_tracks(2));
    let other = |dts_ms, key| {
        let mut entry = Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) };
        entry.unit.track = second;
        entry
    };
    line.push_entry(other(0, true));
    let push = |line: &mut Line, dts_ms, key| {
        line.push_entry(Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) });
    };
    push(&mut line, 10, true);
    line.push_entry(other(20, false));
    push(&mut line, 30, false);
    // The GOP of this unit began before the first video frame that the viewer was sent, so the viewer
    // could not decode it.
    let mut cursor = line.cursor();
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@10>[10][30]");
    line.push_entry(other(40, true));
    line.push_entry(other(50, false));
    push(&mut line, 60, false);
    assert_eq!(line.write(&mut cursor, 6), b"[40][5");
    assert_eq!(line.write(&mut cursor, usize::MAX), b"0][60]");
}

#[test]
fn what_came_during_a_pause_has_no_latency() {
    let mut line = Line::new();
    line.push(0, true);
    let mut cursor = line.cursor();
    line.write(&mut cursor, usize::MAX);
    line.push(33, false);
    cursor.resume(&line.ring, line.packager.chosen());
    line.push(66, false);
    line.push(99, false);
    let mut whole = line.cursor();
    whole.fresh_from = cursor.fresh_from;
    let taken = std::iter::from_fn(|| {
        whole.take_unit(&line.ring, &line.packager, 4).map(|one| one.forwarded.is_some())
    });
    assert_eq!(taken.collect::<Vec<_>>(), [false, false, true, true]);
    let mut counted = 0;
    cursor.units_sent(&line.packager, 4, usize::MAX, |_| counted += 1);
    assert_eq!((cursor.next(), counted), (4, 2));
}

#[test]
fn a_unit_is_forwarded_with_its_last_byte() {
    let mut line = Line::new();
    let mut cursor = line.cursor();
    (0..3).for_each(|n| line.push(n, n == 0));
    cursor.skip_undecodable(&line.ring, line.packager.chosen(), 3);
    let mut counted = 0;
    let first = "<1@0>[0]".len();
    assert_eq!(cursor.units_sent(&line.packager, 3, first - 1, |_| counted += 1), 0);
    assert_eq!((cursor.rest_sent(1, |_| counted += 10), counted, cursor.has_rest()), (0, 10, false));
    assert_eq!(cursor.units_sent(&line.packager, 3, "[1]".len(), |_| counted += 1), 0);
    assert_eq!((counted, cursor.next(), cursor.has_rest()), (11, 2, false));
    // The number of bytes left over for units after these is returned.
    assert_eq!(cursor.units_sent(&line.packager, 3, 5, |_| counted += 1), 2);
    assert_eq!((counted, cursor.next()), (12, 3));
}

#[test]
fn the_rest_of_a_unit_begun_can_be_taken_out() {
    let mut line = Line::new();
    line.push(0, true);
    let mut cursor = line.cursor();
    assert_eq!(line.write(&mut cursor, 6), b"<1@0>[");
    assert_eq!(Vec::from(cursor.take_rest()).concat(), b"0]");
    assert!(!cursor.has_rest() && cursor.take_rest().is_empty());
}

#[test]
fn units_are_taken_up_to_where_they_are_to_be_sent_and_none_that_is_left_out() {
    let mut line = Line::new();
    line.packager = Packager::new(PLAIN, Some(Box::new(Keys)), &vp8_tracks(1), 0);
    line.push(0, false);
    let mut cursor = line.cursor();
    (1..6).for_each(|n| line.push(n, n % 2 == 0));
    let take = |cursor: &mut Cursor, until| {
        cursor.take_unit(&line.ring, &line.packager, until).map(|delivery| delivery.entry.dts_ms)
    };
    assert_eq!(take(&mut cursor, 6), None, "it has not begun");
    cursor.skip_undecodable(&line.ring, line.packager.chosen(), 6);
    assert_eq!((take(&mut cursor, 2), cursor.next()), (None, 2));
    assert_eq!((take(&mut cursor, 4), cursor.next()), (Some(2), 3));
    assert_eq!((take(&mut cursor, 4), cursor.next()), (None, 4));
    assert_eq!((take(&mut cursor, 6), take(&mut cursor, 6)), (Some(4), None));
}

#[test]
fn who_takes_units_as_they_are_is_given_the_chosen_ones_and_of_each_track_from_its_key_frame_on() {
    let selection = Selection { video: Pick::All, audio: Pick::None, data: Pick::None, silence: false };
    let mut line = Line::new();
    line.packager = Packager::new(FormatKey { selection, ..PLAIN }, None, &vp8_tracks(2), 0);
    line.push_entry(of_two(0, 0, true));
    let mut cursor = line.cursor();
    let mut sound = Entry { tracks: vp8_tracks(2), ..entry(1, false, 1) };
    sound.unit.track = TrackId::AUDIO;
    line.push_entry(sound);
    for (n, dts_ms, key) in [(1, 2, false), (0, 3, false), (1, 4, true), (1, 5, false)] {
        line.push_entry(of_two(n, dts_ms, key));
    }
    let mut taken = Vec::new();
    while let Some(delivery) = cursor.take_unit(&line.ring, &line.packager, line.ring.head()) {
        assert_eq!(delivery.parts().count(), 0);
        taken.push(delivery.entry.dts_ms);
    }
    assert_eq!(taken, [0, 3, 4, 5]);
}

#[test]
fn a_cursor_that_the_ring_has_passed_goes_on_at_a_key_frame() {
    let mut line = Line::new();
    line.push(0, true);
    let mut cursor = line.cursor();
    (1..6000).for_each(|n| line.push(n, false));
    assert!(matches!(cursor.check_lag(&line.ring, line.packager.chosen(), i64::MAX), Jump::Skipped(_)));
    // The ring has dropped units that the cursor had not sent. Later units refer to them, so nothing is sent before the
    // next key frame.
    line.push(6000, false);
    assert!(line.write(&mut cursor, usize::MAX).is_empty());
    line.push(6001, true);
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@6001>[6001]");
}

fn nth_video(n: u8) -> TrackId {
    TrackId::nth(TrackKind::Video, n).unwrap()
}

/// A unit of one of two video tracks.
fn of_two(n: u8, dts_ms: i64, key: bool) -> Entry {
    let mut entry = Entry { tracks: vp8_tracks(2), ..entry(dts_ms, key, 1) };
    entry.unit.track = nth_video(n);
    entry
}

#[test]
fn a_viewer_may_be_behind_by_the_whole_lag_and_stays_where_no_newer_key_frame_is() {
    let mut line = Line::new();
    line.push(0, true);
    let mut cursor = line.cursor();
    line.push(100, true);
    line.push(500, false);
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::None);
    line.push(501, false);
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::Skipped(1));
    assert!(line.awaited(&cursor) == 0, "it stands at one");
    (0..20).for_each(|n| line.push(600 + n, false));
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::None);
    assert_eq!(line.write(&mut cursor, 15), b"<1@100>[100][50");
}

#[test]
fn sound_that_is_late_goes_on_at_the_head() {
    let mut line = Line::of(Selection { video: Pick::None, ..Selection::DEFAULT }, Arc::default());
    line.push_entry(sound(0));
    let mut cursor = line.cursor();
    (0..4).for_each(|n| line.push_entry(sound(n * 1000)));
    assert_eq!(cursor.check_lag(&line.ring, line.packager.chosen(), 500), Jump::Skipped(4));
    line.push_entry(sound(4023));
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<1@4023>[4023]");
}

#[test]
fn a_key_frame_is_waited_for_until_it_was_sent() {
    let mut line = Line::new();
    line.push(0, false);
    let mut cursor = line.cursor();
    assert!(line.awaited(&cursor) == 1);
    line.push(33, true);
    line.write(&mut cursor, usize::MAX);
    assert!(line.awaited(&cursor) == 0);
    // While the tracks are unknown, the cursor does not wait for a key frame.
    let mut line = Line::of(Selection::DEFAULT, Arc::default());
    let mut cursor = line.cursor();
    assert!(line.awaited(&cursor) == 0);
    line.push(0, false);
    cursor.learn(line.packager.chosen());
    assert!(line.awaited(&cursor) == 1);
    assert!(line.write(&mut cursor, usize::MAX).is_empty());
    line.push(33, true);
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<2@33>[33]");
    assert!(line.awaited(&cursor) == 0);
}

#[test]
fn video_that_is_added_begins_with_its_key_frame_and_stops_nothing() {
    let mut line = Line::of(Selection::ALL, vp8_tracks(1));
    line.push(0, true);
    let mut cursor = line.cursor();
    line.write(&mut cursor, usize::MAX);
    line.push_entry(of_two(0, 10, false));
    line.push_entry(of_two(1, 11, false));
    cursor.learn(line.packager.chosen());
    assert_eq!(line.awaited(&cursor), 1, "its lead goes on");
    assert_eq!(line.write(&mut cursor, usize::MAX), b"<2@10>[10]");
    line.push_entry(of_two(1, 20, true));
    cursor.learn(line.packager.chosen());
    line.push_entry(of_two(1, 21, false));
    assert_eq!(line.write(&mut cursor, usize::MAX), b"[20][21]");
}

#[test]
fn a_pause_that_lost_nothing_interrupts_no_track() {
    // The cursor resumes at the next key frame of the lead track, in the middle of another track's GOP.
    let mut line = Line::of(Selection::ALL, vp8_tracks(2));
    line.push_entry(of_two(0, 0, true));
    line.push_entry(of_two(1, 1, true));
    let mut cursor = line.cursor();
    line.write(&mut cursor, usize::MAX);
    line.push_entry(of_two(0, 10, true));
    line.push_entry(of_two(1, 11, false));
    cursor.resume(&line.ring, line.packager.chosen());
    assert_eq!(line.write(&mut cursor, usize::MAX), b"[10][11]");
    // The cursor resumes at the oldest retained unit. The key frame of that unit's GOP is no longer
    // retained.
    let mut line = Line::new();
    (0..3).for_each(|n| line.push(n, n == 0));
    let mut cursor = line.cursor();
    line.write(&mut cursor, usize::MAX);
    line.push(3, false);
    line.ring.trim(false, Some(3));
    cursor.resume(&line.ring, line.packager.chosen());
    assert_eq!(line.write(&mut cursor, usize::MAX), b"[3]");
    // A cursor that lost units waits for a key frame.
    line.push(4, false);
    line.push(5, false);
    line.ring.trim(false, Some(5));
    cursor.resume(&line.ring, line.packager.chosen());
    assert!(cursor.next() == 6 && line.awaited(&cursor) == 1);
}

#[test]
fn what_is_forwarded_is_counted_as_video_or_sound_and_data_not_at_all() {
    let of = |kind| Forwarded::of(&Entry { kind, ..entry(0, true, 1) }).map(|forwarded| forwarded.video);
    assert_eq!(of(Some(TrackKind::Video)), Some(true));
    assert_eq!(of(Some(TrackKind::Audio)), Some(false));
    assert_eq!((of(Some(TrackKind::Data)), of(None)), (None, None));
}

proptest! {
    #[test]
    fn any_short_writes_deliver_the_same_bytes(rooms in prop::collection::vec(1usize..40, 1..80)) {
        let mut line = Line::new();
        (0..30).for_each(|n| line.push(n * 33, n == 0));
        let mut whole = line.cursor();
        let want = line.write(&mut whole, usize::MAX);
        let mut cursor = line.cursor();
        let mut got = Vec::new();
        for room in rooms.iter().chain(std::iter::repeat_n(&usize::MAX, 1)) {
            got.extend(line.write(&mut cursor, *room));
        }
        prop_assert_eq!(got, want);
        prop_assert!(!cursor.has_rest());
    }
}
