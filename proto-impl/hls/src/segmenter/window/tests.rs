//! Tests of windows of segments.

use super::*;

const START: Start = Start { number: 1, discontinuities: 0 };

fn window() -> Window {
    Window::new(&Rules::DEFAULT, 3, START)
}

/// Feeds a unit and ends the segment where it should end. The unit belongs to the leading track if `leads`.
fn feed(window: &mut Window, dts_ms: i64, key: bool, leads: bool) {
    let unit = Unit { dts_ms, date_ms: dts_ms, begins: key && leads, epoch: 1, leads };
    let end = window.ends_before(&unit, 1);
    if let Some(end) = end {
        let open = window.open_segment(None, &[]);
        assert!(window.close(end.at_ms, "segment", 1, open));
        window.settle();
    }
    window.note(&unit, end);
}

fn lengths(window: &Window) -> Vec<u128> {
    window.playlist().segments.iter().map(|segment| segment.duration.as_millis()).collect()
}

#[test]
fn key_frames_that_are_further_apart_than_the_target_end_all_segments() {
    // Key frames 10.4, 12 and 20 s apart, at 24 frames per second.
    for (frames, target) in [(250, 11), (288, 12), (480, 20)] {
        let mut window = window();
        (0..frames * 6).for_each(|n| feed(&mut window, n * 1000 / 24, n % frames == 0, true));
        let playlist = window.playlist();
        assert_eq!((playlist.target_duration.as_secs(), playlist.segments.len()), (target, 5));
        assert!(playlist.independent_segments, "{:?}", lengths(&window));
        assert!(playlist.segments.iter().all(|one| !one.discontinuity));
    }
}

#[test]
fn key_frames_beyond_the_cap_leave_segments_that_are_not_said_to_begin_with_one() {
    let mut window = window();
    (0..24 * 70).for_each(|n| feed(&mut window, n * 1000 / 24, n % (24 * 30) == 0, true));
    let playlist = window.playlist();
    assert_eq!((playlist.target_duration.as_secs(), playlist.independent_segments), (20, false));
    assert!(lengths(&window).iter().all(|ms| *ms < 20_500), "{:?}", lengths(&window));
}

#[test]
fn lengths_are_those_of_the_leading_track_however_far_others_are_apart() {
    for apart_ms in [-3000, -2000, -700, 700, 900] {
        let mut window = window();
        for ms in 0..60_000i64 {
            if ms % 40 == 0 {
                feed(&mut window, ms, ms % 2000 == 0, true);
            }
            if ms % 23 == 0 {
                feed(&mut window, ms + apart_ms, false, false);
            }
        }
        assert_eq!(lengths(&window), vec![2000; 15], "{apart_ms} ms");
        assert!(window.playlist().independent_segments);
    }
}

#[test]
fn a_leading_track_that_pauses_leaves_lengths_to_the_others() {
    let mut window = window();
    for ms in 0..60_000i64 {
        if ms % 40 == 0 && !(20_500..30_700).contains(&ms) {
            feed(&mut window, ms, ms % 2000 == 0, true);
        }
        if ms % 23 == 0 {
            feed(&mut window, ms, false, false);
        }
    }
    let lengths = lengths(&window);
    assert!(lengths.iter().all(|ms| (100..2500).contains(ms)), "{lengths:?}");
}

#[test]
fn no_time_is_missing_between_segments_that_end_between_two_units() {
    let mut window = window();
    for ms in 0..60_000i64 {
        if ms % 40 == 0 && !(20_500..40_700).contains(&ms) {
            feed(&mut window, ms, ms % 2000 == 0, true);
        }
        // Sound arrives in bursts, and a segment must end between two of them.
        if ms % 20 == 0 && ms % 300 < 60 {
            feed(&mut window, ms, false, false);
        }
        let segments = &window.playlist().segments;
        for pair in segments.windows(2).filter(|pair| !pair[1].discontinuity) {
            let [before_ms, date_ms] = [0, 1].map(|at| pair[at].program_date_time.unwrap());
            let length_ms = i64::try_from(pair[0].duration.as_millis()).unwrap();
            assert_eq!(before_ms + length_ms, date_ms, "{segments:?}");
        }
    }
}

/// Feeds pictures and audio until a time. Pictures due while `held` is true are delayed, and then arrive
/// together.
fn run(window: &mut Window, until: i64, held: impl Fn(i64) -> bool) {
    let mut next = 0;
    for ms in (0..until).step_by(20) {
        while next <= ms && !held(ms) {
            feed(window, next, next % 2000 == 0, true);
            next += 40;
        }
        feed(window, ms, false, false);
    }
}

#[test]
fn a_key_frame_that_is_late_is_no_pause_where_the_one_before_was_late_too() {
    let mut window = window();
    // Every other key frame arrives a second late, together with the frames after it.
    let held = |ms: i64| (ms + 20) / 2000 % 2 == 1 && (ms + 20) % 2000 < 980;
    run(&mut window, 60_000, held);
    assert_eq!(lengths(&window), vec![2000; 15]);
}

#[test]
fn pictures_in_bursts_end_where_they_do_and_not_where_the_sound_does() {
    let mut window = window();
    run(&mut window, 10_480, |ms| ms % 600 != 0);
    assert_eq!(window.end_ms(), 10_240, "with the last picture, 280 ms before the sound");
    let mut window = self::window();
    run(&mut window, 10_780, |ms| ms % 600 != 0);
    assert_eq!(window.end_ms(), 10_240, "further behind than without bursts");
}

#[test]
fn a_short_list_keeps_three_target_durations_of_media() {
    // Segments of 1.6 s with a target duration of 2 s: three of them would be too few (RFC 8216 §6.2.2).
    let mut window = Window::new(&Rules { list_size: 3, segment_ms: 1500, ..Rules::DEFAULT }, 3, START);
    (0..600).for_each(|n| feed(&mut window, n * 100, n % 16 == 0, true));
    assert_eq!((window.playlist().target_duration.as_secs(), lengths(&window)), (2, vec![1600; 4]));
}

#[test]
fn a_gap_whose_date_does_not_follow_from_the_last_segment_is_a_discontinuity() {
    let mut window = window();
    (0..61).for_each(|n| feed(&mut window, n * 100, n % 20 == 0, true));
    let open = window.open_segment(None, &[]);
    assert!(window.close(6100, "segment", 1, open));
    for (end_ms, later_ms) in [(8100, 0), (10_100, 4000), (12_100, 4000)] {
        assert!(window.add_gap(end_ms, |dts_ms| dts_ms + later_ms, ("gap", None)));
    }
    let gaps: Vec<bool> =
        window.playlist().segments.iter().filter(|one| one.gap).map(|one| one.discontinuity).collect();
    assert_eq!(gaps, [false, true, false]);
}

#[test]
fn what_has_left_stays_for_its_own_length_and_that_of_the_longest_playlist() {
    let mut window = Window::new(&Rules { list_size: 4, ..Rules::DEFAULT }, 3, START);
    let (mut left, mut gone) = (Vec::new(), Vec::new());
    for n in 0..600i64 {
        let unit = Unit { dts_ms: n * 100, date_ms: 0, begins: n % 20 == 0, epoch: 1, leads: true };
        if let Some(end) = window.ends_before(&unit, 1) {
            let open = window.open_segment(None, &[]);
            let number = window.number();
            assert!(window.close(end.at_ms, &number.to_string(), 1, open));
            left.extend(window.take_left().into_iter().map(|name| (number, name)));
            gone.extend(window.take_gone().into_iter().map(|name| (number, name)));
        }
        window.note(&unit, None);
    }
    // Segments of 2 s, four of them listed: a removed segment stays for 10 s, that is, for five more
    // segments.
    let number = |name: &String| name.parse::<u64>().unwrap();
    assert!(left.iter().all(|(at, name)| *at == number(name) + 4), "{left:?}");
    assert!(gone.len() > 10 && gone.iter().all(|(at, name)| *at == number(name) + 9), "{gone:?}");
}

#[test]
fn numbers_of_discontinuities_are_small_and_differ_between_runs() {
    // The beginning of 2026, a day in 2026, and the end of 2033.
    for now_ms in [NUMBERS_FROM_MS, 1_795_806_797_674, 2_019_600_000_000] {
        let runs: Vec<Start> = (0..4).map(|n| Start::at_unix_ms(now_ms + n * NUMBER_MS)).collect();
        assert!(runs.iter().all(|run| run.discontinuities < 65_536), "{runs:?}");
        for pair in runs.windows(2) {
            assert!(pair[0].number < pair[1].number, "{pair:?}");
            assert_ne!(pair[0].discontinuities, pair[1].discontinuities, "{pair:?}");
        }
    }
}
