mod publishers;

mod corners;

use std::collections::HashMap;
use std::time::Duration;

use netsim::publisher::{Fault, Of, Publisher, Unit};

use self::publishers::{Timed, began};
use super::*;

fn map_all(timeline: &mut Timeline, raws: &[u64]) -> Vec<i64> {
    raws.iter().map(|&raw| timeline.map(TrackId::VIDEO, raw)).collect()
}

fn milliseconds() -> Timeline {
    Timeline::new(32, Timescale::MILLISECONDS, Position::default())
}

/// Seeds of a run; `MILLSTREAM_SEEDS` sets a larger number.
fn seeds() -> u64 {
    std::env::var("MILLSTREAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200)
}

#[test]
fn publishers_of_many_seeds_keep_order_speed_and_lips() {
    let failed: Vec<String> = (0..seeds())
        .filter_map(|seed| {
            let publisher = Publisher::of_seed(seed);
            let why = publisher.check().err()?;
            Some(format!("seed {seed}: {why}\n  {publisher:?}"))
        })
        .collect();
    let shown = failed.iter().take(3).cloned().collect::<Vec<_>>().join("\n");
    assert!(failed.is_empty(), "{} of {}:\n{shown}", failed.len(), seeds());
}

#[test]
fn a_clean_publisher_passes_to_the_millisecond() {
    for (start, bits) in
        [(0, 32), ((1 << 24) - 9_000, 24), ((1 << 31) - 9_000, 31), ((1i64 << 32) - 9_000, 32)]
    {
        let publisher = Publisher { start, bits, ..Publisher::clean() };
        let (units, timeline) = publisher.run();
        assert!(units.iter().all(|unit| unit.out == unit.sampled), "{bits} bits");
        assert_eq!(timeline.faults().total(), 0, "{bits} bits");
    }
    // Nothing changes if a network holds back everything for five seconds and then delivers it at once.
    let (units, timeline) = Publisher::with(&[Fault::Stall { at: 20_000, ms: 5_000 }]).run();
    assert!(units.iter().all(|unit| unit.out == unit.sampled));
    assert_eq!(timeline.faults().total(), 0);
}

#[test]
fn a_time_far_ahead_has_its_place_and_moves_nothing() {
    let mut timeline = milliseconds();
    assert_eq!(timeline.place_of(900_000), None);
    map_all(&mut timeline, &[900_000, 900_033]);
    let before = timeline.position();
    assert_eq!(
        [899_000, 900_033, 1_900_000].map(|raw| timeline.place_of(raw)),
        [Some(-1_000), Some(33), Some(1_000_000)]
    );
    assert_eq!(timeline.position(), before);
}

#[test]
fn a_clock_that_starts_near_zero_is_unchanged_and_one_that_starts_high_begins_at_zero() {
    assert_eq!(map_all(&mut milliseconds(), &[23, 56, 90]), [23, 56, 90]);
    assert_eq!(map_all(&mut milliseconds(), &[900_000, 900_033]), [0, 33]);
}

#[test]
fn m_07_jumps_are_repaired_and_counted_and_the_wrap_is_no_jump() {
    let mut t = milliseconds();
    let raws = [0, 33, 3_000_000, 3_000_033, 100, 133, 0xffff_fff0, 0x10];
    let out = map_all(&mut t, &raws);
    assert!(out.windows(2).all(|w| matches!(w, [a, b] if b >= a && b - a <= 73)), "{out:?}");
    assert_eq!(t.faults().of(ClockFault::Jump), 3);
}

#[test]
fn tracks_share_the_offset_and_each_never_falls() {
    let mut t = milliseconds();
    assert_eq!(t.map(TrackId::VIDEO, 100), 100);
    assert_eq!(t.map(TrackId::AUDIO, 90), 90);
    assert_eq!(t.map(TrackId::AUDIO, 80), 90);
    assert_eq!(t.map(TrackId::VIDEO, 133), 133);
}

#[test]
fn metadata_stamped_zero_moves_nothing() {
    let mut t = milliseconds();
    map_all(&mut t, &[5000, 5033]);
    assert_eq!(t.map_beside(0), 5033);
    assert_eq!(t.map_beside(5040), 5040);
    assert_eq!((map_all(&mut t, &[5066]), t.faults().total()), (vec![5066], 0));
}

#[test]
fn a_returning_publisher_continues_behind_the_first() {
    let position = Position { dts_ms: 5000, started: true };
    let mut t = Timeline::new(32, Timescale::MILLISECONDS, position);
    assert_eq!(map_all(&mut t, &[0, 33]), [5040, 5073]);
    // The clock of the next publisher starts at another value.
    let mut t = Timeline::new(33, Timescale::new(90_000), t.position());
    assert_eq!(map_all(&mut t, &[7_000_000]), [5113 * 90]);
}

#[test]
fn no_track_of_a_returning_publisher_begins_behind_its_predecessor() {
    const POSITION: Position = Position { dts_ms: 5000, started: true };
    let ticks = Timescale::new(90_000);
    // The audio of an encoder precedes its video by 200 ms.
    let mut t = Timeline::new(33, ticks, POSITION);
    assert_eq!(t.map(TrackId::VIDEO, 1_000_000), 5040 * 90);
    let sound: Vec<i64> = (0..20).map(|n| t.map(TrackId::AUDIO, 982_000 + n * 1920)).collect();
    let behind = |place: i64| place < 5001 * 90;
    for (n, dts) in (0..).zip(sound) {
        let place = 5040 * 90 - 18_000 + n * 1920;
        assert_eq!(
            dts,
            if behind(place) { 5001 * 90 } else { place },
            "behind the position alone it is moved"
        );
    }
    // The same by sender reports, which place the audio 500 ms before the video.
    let mut t = Timeline::of_sources(ticks, POSITION);
    let start = began();
    t.arrive(start);
    assert_eq!(t.map_frame(TrackId::VIDEO, 7_000, Some(45_000)), 5040 * 90);
    assert_eq!(t.map_frame(TrackId::AUDIO, 3_000, Some(0)), 5001 * 90);
    t.arrive(start + Duration::from_secs(1));
    assert_eq!(t.map_frame(TrackId::AUDIO, 3_000 + 90_000, Some(90_000)), 5540 * 90);
    // Metadata.
    let mut t = Timeline::new(33, ticks, POSITION);
    t.map(TrackId::VIDEO, 1_000_000);
    assert_eq!(t.map_beside(982_000), 5001 * 90);
    assert_eq!((Position::default().floor(ticks), POSITION.floor(Timescale::MILLISECONDS)), (0, 5001));
}

#[test]
fn t_07_ticks_of_90_khz_stay_to_the_tick_over_the_wrap() {
    let ticks = Timescale::new(90_000);
    let mut t = Timeline::new(33, ticks, Position::default());
    assert_eq!(map_all(&mut t, &[1, 3004, 6007]), [1, 3004, 6007]);
    // The end of 33 bits, after 26.5 hours: the clock starts at a high value. Its wrap is not a jump.
    let mut t = Timeline::new(33, ticks, Position::default());
    let end = 1u64 << 33;
    assert_eq!(map_all(&mut t, &[end - 3003, 0, 3003, 6006]), [0, 3003, 6006, 9009]);
    assert_eq!(t.faults().total(), 0);
}

#[test]
fn a_file_keeps_its_pauses_and_loses_its_jumps() {
    // Nine seconds are a pause. The first unit after it is placed early; those after it have the times that
    // the file states.
    let file = || {
        let mut t = milliseconds();
        map_all(&mut t, &(0..10).map(|n| n * 33).collect::<Vec<_>>());
        t
    };
    let mut t = file();
    assert_eq!(map_all(&mut t, &[9_330, 9_363]), [330, 9_363]);
    assert_eq!(t.faults().total(), 0);
    let mut t = file();
    assert_eq!(map_all(&mut t, &[60_000, 60_033, 60_066]), [330, 363, 396]);
    assert_eq!(t.faults().of(ClockFault::Jump), 1);
    // A picture every nine seconds is not a jump.
    let slides: Vec<u64> = (0..20).map(|n| n * 9_000).collect();
    let mut t = milliseconds();
    assert!(map_all(&mut t, &slides).iter().zip(&slides).all(|(out, raw)| *out == raw.cast_signed()));
}

#[test]
fn one_unit_that_is_off_moves_nothing() {
    for by in [-40_000_000, -4_000, -700, 700, 5_000, 3_600_000] {
        let (units, timeline) = Publisher::with(&[Fault::Outlier { of: Of::One(0), at: 20_000, by }]).run();
        let moved: Vec<&Unit> =
            units.iter().filter(|unit| !unit.is_outlier && unit.out != unit.sampled).collect();
        assert!(moved.is_empty(), "{by}: {moved:?}");
        let outlier = units.iter().find(|unit| unit.is_outlier).unwrap();
        assert!((outlier.out - outlier.sampled).abs() <= 5, "{by}: {outlier:?}");
        assert_eq!((timeline.faults().of(ClockFault::Outlier), timeline.faults().total()), (1, 1), "{by}");
        let Some(ClockNews::Fault(told)) = timeline.clone().take_clock_news() else { panic!("nothing told") };
        assert!((told.off_ms - by).abs() <= 5 && told.track == TrackId::VIDEO, "{told:?}");
    }
}

#[test]
fn a_step_of_all_tracks_keeps_their_distance_exactly() {
    for by in [-3_600_000, -30_000, -2_000, 2_000, 30_000, 40_000_000] {
        let publisher =
            Publisher { start: 4_000_000, ..Publisher::with(&[Fault::Jump { of: Of::All, at: 20_000, by }]) };
        let (units, timeline) = publisher.run();
        let lead = |track: usize| {
            let last = units.iter().rev().find(|unit| unit.track == track).unwrap();
            last.out - last.sampled
        };
        assert_eq!(lead(0), lead(1), "{by}");
        assert!(lead(0).abs() <= 10, "{by}: {}", lead(0));
        assert_eq!(timeline.faults().of(ClockFault::Jump), 1, "{by}");
    }
}

#[test]
fn a_muted_track_resumes_where_it_is_due_with_its_first_unit() {
    let publisher = Publisher::with(&[Fault::Mute { of: Of::One(1), at: 20_000, ms: 4_000, stands: true }]);
    let (units, timeline) = publisher.run();
    let first = units.iter().find(|unit| unit.track == 1 && unit.sampled >= 24_000).unwrap();
    assert!((first.out - first.sampled).abs() <= 30, "{first:?}");
    assert!(units.iter().filter(|unit| unit.track == 0).all(|unit| unit.out == unit.sampled));
    assert_eq!((timeline.faults().of(ClockFault::Pause), timeline.faults().total()), (1, 1));
}

#[test]
fn tracks_keep_their_own_distance_up_to_3_s_and_take_that_of_arrival_beyond() {
    for (own, expected) in
        [(-900, -900), (2_900, 2_900), (3_200, 0), (10_000, 0), (7_200_000, 0), (-60_000, 0)]
    {
        let publisher = Publisher { offsets: vec![0, own], start: 90_000, ..Publisher::clean() };
        let (units, timeline) = publisher.run();
        let lead = |track: usize| {
            let last = units.iter().rev().find(|unit| unit.track == track).unwrap();
            last.out - last.sampled
        };
        assert!((lead(1) - lead(0) - expected).abs() <= 40, "{own}: {}", lead(1) - lead(0));
        assert_eq!(timeline.faults().of(ClockFault::Apart), u64::from(expected != own), "{own}");
    }
}

#[test]
fn a_file_sent_faster_than_real_time_keeps_its_times() {
    let mut t = milliseconds();
    let began = began();
    for n in 0..3_000u64 {
        // The stream arrives forty times faster than real time.
        t.arrive(began + Duration::from_millis(n));
        assert_eq!(t.map(TrackId::VIDEO, n * 40), i64::try_from(n * 40).unwrap());
        assert_eq!(t.map(TrackId::AUDIO, n * 40 + 7), i64::try_from(n * 40 + 7).unwrap());
    }
    assert_eq!(t.faults().total(), 0);
}

#[test]
fn timestamps_that_stand_still_are_replaced_by_arrival() {
    let (units, timeline) = Publisher::with(&[Fault::Frozen { of: Of::All, at: 0, ms: 60_000 }]).run();
    let late = units.iter().filter(|unit| unit.sampled > 2_000 && (unit.out - unit.sampled).abs() > 100);
    assert_eq!(late.count(), 0);
    assert_eq!(timeline.faults().of(ClockFault::Frozen), 2);
}

/// Maps two sources with sender reports. Their units arrive at the same time, but according to the
/// reports the second source's units were sampled `told` ms later. Returns the distance of the
/// sources in the stream, in milliseconds, and the number of disagreements counted.
fn reported(told: i64, seconds: i64) -> (i64, u64) {
    let ticks = Timescale::new(90_000);
    let mut t = Timeline::of_sources(ticks, Position::default());
    let began = began();
    let mut distance = 0;
    for n in 0..seconds * 25 {
        let at = n * 3_600;
        t.arrive(began + Duration::from_millis(u64::try_from(n * 40).unwrap()));
        let reports = n > 25;
        let first = t.place_frame(TrackId::VIDEO, 77_000 + at, reports.then_some(at));
        let second = t.place_frame(TrackId::AUDIO, 5_000_000 + at, reports.then_some(at + told * 90));
        distance = (second - first) / 90;
    }
    (distance, t.faults().of(ClockFault::Report))
}

#[test]
fn reports_align_sources_while_they_agree_with_arrival() {
    for (told, expected, faults) in
        [(0, 0, 0), (80, 80, 0), (-80, -80, 0), (900, 900, 0), (4_000, 0, 1), (-3_600_000, 0, 1)]
    {
        let (distance, doubted) = reported(told, 30);
        assert!((distance - expected).abs() <= 1, "{told}: {distance}");
        assert_eq!(doubted, faults, "{told}");
    }
}

#[test]
fn a_wall_clock_that_is_set_moves_no_source() {
    for step in [-3_600_000, -30_000, -1_500, -700, 700, 30_000] {
        let mut t = Timeline::of_sources(Timescale::new(90_000), Position::default());
        let began = began();
        for n in 0..2_000i64 {
            t.arrive(began + Duration::from_millis(u64::try_from(n * 40).unwrap()));
            // The sender's wall clock is set. The reports of the second source show that step 3 s
            // after those of the first.
            let sampled = |since: i64| n * 3_600 + if n >= since { step * 90 } else { 0 };
            let first = t.place_frame(TrackId::VIDEO, n * 3_600, Some(sampled(500)));
            let second = t.place_frame(TrackId::AUDIO, 9_000 + n * 3_600, Some(sampled(575)));
            assert_eq!((first, second), (n * 3_600, n * 3_600), "{step} at {n}");
        }
    }
}

/// Returns the largest error in lip sync, in milliseconds: the offset of the second track against
/// the first, among units sampled in this interval of milliseconds.
fn lips(units: &[Unit], from: i64, to: i64) -> i64 {
    let leads = |track: usize| {
        let of = units.iter().filter(move |unit| unit.track == track && (from..to).contains(&unit.sampled));
        of.map(|unit| unit.out - unit.sampled)
    };
    let first = leads(0).max().unwrap();
    leads(1).map(|lead| (lead - first).abs()).max().unwrap()
}

#[test]
fn a_steady_drift_is_followed_within_30_ms() {
    for ppm in [-150_000, -50_000, -6_000, 6_000, 50_000, 150_000] {
        let (units, timeline) = Publisher::with(&[Fault::Drift { of: Of::One(1), at: 10_000, ppm }]).run();
        // The slowest drift is only noticed after 12 s, so the error counts from 30 s after the drift began.
        assert!(lips(&units, 40_000, 60_000) <= 30, "{ppm}: {}", lips(&units, 40_000, 60_000));
        assert!(timeline.faults().of(ClockFault::Drift) >= 1, "{ppm}");
    }
}

#[test]
fn a_track_that_is_far_behind_is_stepped_and_not_slewed() {
    // The mute is so short that it cannot be distinguished from packets that arrive in bursts.
    let publisher = Publisher::with(&[Fault::Mute { of: Of::One(1), at: 20_000, ms: 1_400, stands: true }]);
    let (units, timeline) = publisher.run();
    assert!(lips(&units, 23_500, 60_000) <= 60, "{}", lips(&units, 23_500, 60_000));
    assert_eq!(timeline.faults().of(ClockFault::Apart), 1);
}

/// Maps five pictures per second, each of which is passed on when the next one begins, and audio whose
/// timestamps are 4 s earlier. Returns the largest error of their distance, compared with arrival, and the
/// number of jumps and outliers.
fn lead_of_sound_beside_held_pictures(map: impl Fn(&mut Timeline, u64, Instant) -> i64) -> (i64, u64) {
    const BEHIND: u64 = 4_000;
    let (began, mut t) = (netsim::Clock::new().now(), milliseconds());
    let mut worst = 0;
    let mut pictures = HashMap::new();
    for now in (5_000..20_000).step_by(20) {
        let at = |ms: u64| began + Duration::from_millis(ms);
        t.arrive(at(now));
        if now % 200 == 0 && now > 5_000 {
            pictures.insert(now - 200, map(&mut t, now - 200, at(now - 200)));
        }
        let sound = t.map(TrackId::AUDIO, now - BEHIND);
        // The newest complete picture, and the audio that arrives now.
        let (before, out) = (now / 200 * 200 - 200, sound);
        if let Some(picture) = pictures.get(&before) {
            let apart = out - picture - i64::try_from(now - before).unwrap();
            worst = if apart.abs() > worst { apart.abs() } else { worst };
        }
    }
    (worst, t.faults().of(ClockFault::Jump) + t.faults().of(ClockFault::Outlier))
}

#[test]
fn a_picture_that_was_whole_only_when_the_next_one_began_lies_where_it_came() {
    let held = lead_of_sound_beside_held_pictures(|t, raw, came| t.map_held(TrackId::VIDEO, raw, came));
    assert!(held.0 <= 20 && held.1 == 0, "{held:?}");
    let late = lead_of_sound_beside_held_pictures(|t, raw, _| t.map(TrackId::VIDEO, raw));
    assert!(late.0 >= 180, "the test shows nothing: {late:?}");
    // A unit cannot have been held for a minute, so this time of arrival is not believed, and the unit is placed near
    // the present.
    let (began, mut t) = (netsim::Clock::new().now(), milliseconds());
    t.arrive(began);
    t.map(TrackId::AUDIO, 0);
    t.arrive(began + Duration::from_secs(60));
    t.map(TrackId::AUDIO, 60_000);
    assert!(t.map_held(TrackId::VIDEO, 0, began) >= 55_000);
    // The units of a file have no arrival times.
    let mut file = milliseconds();
    assert_eq!([file.map_held(TrackId::VIDEO, 7, began), file.map_held(TrackId::VIDEO, 47, began)], [7, 47]);
}

/// Maps audio every 20 ms and pictures every 40 ms. They come over a network that is throttled from the tenth
/// second on: its delay grows to `late_ms` within `within_ms`, then drops to zero. The encoder makes no
/// pictures for the last `pause_ms` of that time. Returns the largest movement of a unit, and the number of
/// faults.
fn over_a_cut_line((late_ms, within_ms, pause_ms): (i64, i64, i64), has_reports: bool) -> (i64, u64) {
    const CUT: i64 = 10_000;
    let ends = CUT + within_ms + 3_000;
    let delay = |made: i64| match made {
        _ if made < CUT || made >= ends => 0,
        _ => ((made - CUT) * late_ms / within_ms).min(late_ms).min(ends - made),
    };
    let made = |track, step: i64| (0..30_000 / step).map(move |n| (track, n * step));
    let mut units: Vec<(TrackId, i64)> = made(TrackId::AUDIO, 20).chain(made(TrackId::VIDEO, 40)).collect();
    units.retain(|(track, at)| *track == TrackId::AUDIO || !(ends - pause_ms..ends).contains(at));
    // A network keeps the order of its packets.
    units.sort_by_key(|(track, at)| (*at + delay(*at), *at, *track == TrackId::VIDEO));
    let mut timeline = Timeline::of_sources(Timescale::MILLISECONDS, Position::default());
    let start = began();
    let mut moved = 0;
    for (track, at) in units {
        let arrives = u64::try_from(at + delay(at) + 1000).unwrap();
        timeline.arrive(start + Duration::from_millis(arrives));
        let own = at + if track == TrackId::AUDIO { 70_000 } else { 5_000_000 };
        let sampled = has_reports.then_some(at + 1_000_000);
        let place = timeline.map_frame(track, own, sampled);
        moved = moved.max((place - at).abs());
    }
    (moved, timeline.faults().total())
}

#[test]
fn a_line_that_is_late_and_then_on_time_again_moves_nothing() {
    for late_ms in [300, 700, 1000, 2000, 4000] {
        for within_ms in [500, 1000, 2000] {
            for pause_ms in [0, 600, 1200, 2500] {
                for has_reports in [true, false] {
                    let cut = (late_ms, within_ms, pause_ms);
                    assert!(
                        matches!(over_a_cut_line(cut, has_reports), (0..=1, 0)),
                        "{cut:?}, reports: {has_reports}"
                    );
                }
            }
        }
    }
}
