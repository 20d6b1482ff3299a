//! Rare cases of the clock. The generator of publishers reaches each of them only with one seed in thousands, so
//! each has a test of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use netsim::publisher::{Fault, Of, Publisher, Unit};

use super::lips;
use super::publishers::{Timed, began, track_id};
use crate::timeline::*;
use crate::{Timescale, TrackId};

/// Two RTP sources with a unit each every 40 ms. A tick is a millisecond.
struct Sources {
    timeline: Timeline,
    began: Instant,
}

impl Sources {
    fn new() -> Self {
        Self { timeline: Timeline::of_sources(Timescale::MILLISECONDS, Position::default()), began: began() }
    }

    /// Returns the place of a unit of `track` that arrives at `at` with the timestamp `own`, sampled at
    /// `sampled` according to reports.
    fn place(&mut self, track: TrackId, at: i64, own: i64, sampled: Option<i64>) -> i64 {
        self.timeline.arrive(self.began + Duration::from_millis(at.cast_unsigned()));
        self.timeline.place_frame(track, own, sampled)
    }
}

fn leads(units: &[Unit], track: usize, from: i64, to: i64) -> impl Iterator<Item = i64> {
    let of = units.iter().filter(move |unit| unit.track == track && (from..to).contains(&unit.sampled));
    of.map(|unit| unit.out - unit.sampled)
}

#[test]
fn reports_hold_a_source_that_a_slow_path_delays() {
    let mut sources = Sources::new();
    let delay = |n| if n > 500 { 200 } else { 0 };
    let of = |track, late: bool| {
        (0..1_500).map(move |n| (n * 40 + if late { delay(n) } else { 0 }, track, n * 40))
    };
    let mut arrivals: Vec<_> = of(TrackId::AUDIO, false).chain(of(TrackId::VIDEO, true)).collect();
    arrivals.sort_by_key(|(at, ..)| *at);
    for (at, track, own) in arrivals {
        let out = sources.place(track, at, own, Some(own));
        assert_eq!(out, own, "{track:?} at {at}");
    }
    assert_eq!(sources.timeline.faults().total(), 0);
}

#[test]
fn the_first_report_moves_a_source_on_at_once() {
    let mut sources = Sources::new();
    let mut distances = Vec::new();
    for n in 0..60 {
        let at = n * 40;
        let told = n > 25;
        let picture = sources.place(TrackId::VIDEO, at, 90_000 + at, told.then_some(at));
        let sound = sources.place(TrackId::AUDIO, at, 7_000 + at, told.then_some(at + 600));
        distances.push(sound - picture);
    }
    assert_eq!((distances[25], distances[27]), (0, 600));
}

#[test]
fn a_source_that_reports_have_moved_resumes_behind_a_mute_where_they_have_it() {
    let mut sources = Sources::new();
    for n in 0..1_400 {
        let at = n * 40;
        // The reports change by 300 ms at this unit.
        let ahead = if n < 300 { 600 } else { 900 };
        let stood = if n >= 1_000 { 4_000 } else { 0 };
        let told = n < 900;
        let picture = sources.place(TrackId::VIDEO, at, 90_000 + at, told.then_some(at));
        if !(900..1_000).contains(&n) {
            let sound = sources.place(TrackId::AUDIO, at, 7_000 + at - stood, told.then_some(at + ahead));
            let off = sound - picture - ahead;
            assert!(n < 50 || (300..700).contains(&n) || off.abs() <= 8, "{n}: {off}");
        }
    }
    assert_eq!(sources.timeline.faults().of(ClockFault::Pause), 1);
}

/// Checks a network delay that shrinks by 900 ms while the audio is silent: the audio's first unit then
/// arrives earlier than its last ones did.
#[test]
fn a_silent_track_takes_part_in_a_change_of_the_path() {
    let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
    let began = began();
    for n in 0..1_500i64 {
        let at = n * 40;
        let delay = if n < 600 { 900 } else { 0 };
        timeline.arrive(began + Duration::from_millis((at + delay).cast_unsigned()));
        let own = at.cast_unsigned();
        assert_eq!(timeline.map(TrackId::VIDEO, own), at);
        if !(500..750).contains(&n) {
            assert_eq!(timeline.map(TrackId::AUDIO, own), at, "{n}");
        }
    }
    assert_eq!(timeline.faults().total(), 0);
}

#[test]
fn a_clock_that_drifts_and_stands_still_keeps_its_lips() {
    let drift = |at| Fault::Drift { of: Of::All, at, ppm: 8_000 };
    let still = |at, ms| Fault::Frozen { of: Of::One(0), at, ms };
    let two = Publisher {
        seed: 7_012,
        bits: 31,
        start: 334_632,
        tracks: vec![40_000, 24_000],
        offsets: vec![0, 1_017],
        delays: vec![69, 108],
        jitter: 20,
        faults: vec![drift(8_986), still(41_234, 2_725), still(79_543, 1_340)],
        seconds: 130,
        ..Publisher::clean()
    };
    let three = Publisher {
        seed: 3_291,
        bits: 24,
        start: 16_726_779,
        tracks: vec![40_000, 33_333, 21_333],
        offsets: vec![0, 2_329, 2_175],
        delays: vec![99, 78, 89],
        jitter: 8,
        faults: vec![drift(8_003), still(40_899, 4_573)],
        seconds: 130,
        ..Publisher::clean()
    };
    two.check().unwrap();
    three.check().unwrap();
}

#[test]
fn parts_of_a_picture_share_its_timestamp() {
    let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
    let began = began();
    for n in 0..1_000i64 {
        for part in 0..3 {
            timeline.arrive(began + Duration::from_millis((n * 40 + part * 5).cast_unsigned()));
            assert_eq!(timeline.map(TrackId::VIDEO, (n * 40).cast_unsigned()), n * 40);
        }
    }
    assert_eq!(timeline.faults().total(), 0);
}

#[test]
fn a_step_that_is_made_up_for_is_not_taken_for_drift() {
    let publisher = Publisher::with(&[Fault::Mute { of: Of::One(1), at: 20_000, ms: 900, stands: true }]);
    let (units, _) = publisher.run();
    let most = leads(&units, 1, 21_000, 60_000).max().unwrap();
    assert!(most <= 80, "it overshoots by {most} ms");
    assert!(lips(&units, 30_000, 60_000) <= 30, "{}", lips(&units, 30_000, 60_000));
}

#[test]
fn timestamps_in_another_unit_are_replaced_by_arrival() {
    let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
    let began = began();
    for n in 0..3_000i64 {
        timeline.arrive(began + Duration::from_millis((n * 40).cast_unsigned()));
        // The timestamps count ticks of 90 kHz, but the timeline expects milliseconds.
        let out = timeline.map(TrackId::VIDEO, (n * 3_600).cast_unsigned());
        assert!((out - n * 40).abs() <= 200, "{n}: {out}");
    }
}

#[test]
fn uneven_arrival_is_no_drift() {
    for seed in 0..40 {
        let publisher = Publisher { seed, jitter: 200, seconds: 120, ..Publisher::clean() };
        let (units, timeline) = publisher.run();
        let moved = units.iter().filter(|unit| unit.out != unit.sampled).count();
        assert_eq!((moved, timeline.faults().total()), (0, 0), "{seed}: {:?}", timeline.faults());
    }
}

#[test]
fn a_clock_that_was_corrected_is_left_alone_again() {
    let publisher = Publisher {
        seconds: 90,
        ..Publisher::with(&[Fault::Mute { of: Of::One(1), at: 20_000, ms: 900, stands: true }])
    };
    let (units, _) = publisher.run();
    let settled: Vec<i64> = leads(&units, 1, 50_000, 90_000).collect();
    assert!(settled.iter().all(|lead| *lead == settled[0]), "{settled:?}");
}

#[test]
fn a_drift_is_met_before_lips_part() {
    for (ppm, most) in [(-150_000, 260), (150_000, 200), (-50_000, 120), (50_000, 120), (8_000, 80)] {
        let (units, _) = Publisher::with(&[Fault::Drift { of: Of::One(1), at: 10_000, ppm }]).run();
        assert!(lips(&units, 10_000, 60_000) <= most, "{ppm}: {}", lips(&units, 10_000, 60_000));
    }
}

/// Checks a drift from the first moment on, which affects all measurements of the track. The track must
/// return to its position at the start.
#[test]
fn a_drift_from_the_first_moment_keeps_no_distance() {
    for ppm in [-50_000, -20_000, 20_000, 50_000] {
        let (units, _) = Publisher::with(&[Fault::Drift { of: Of::One(1), at: 0, ppm }]).run();
        let (early, late) = (lips(&units, 5_000, 10_000), lips(&units, 15_000, 60_000));
        assert!(early <= 100 && late <= 30, "{ppm}: {early}, {late}");
    }
    // A burst at the beginning is not taken for a drift.
    for seed in 0..40 {
        let burst = Publisher { seed, faults: vec![Fault::Stall { at: 0, ms: 1_500 }], ..Publisher::clean() };
        let (units, timeline) = burst.run();
        assert!(units.iter().all(|unit| unit.out == unit.sampled), "{seed}");
        assert_eq!(timeline.faults().total(), 0, "{seed}");
    }
}

/// Checks a clock that becomes faster and faster and then runs at the right speed: the correction
/// that was learnt in the meantime must end.
#[test]
fn a_clock_that_races_is_let_go_when_it_is_right_again() {
    let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
    let began = began();
    let mut ahead = 0;
    for n in 0..2_000i64 {
        let at = n * 40;
        ahead += if (500..700).contains(&n) { (n - 500) / 12 * 2 } else { 0 };
        timeline.arrive(began + Duration::from_millis(at.cast_unsigned()));
        let picture = timeline.map(TrackId::VIDEO, at.cast_unsigned());
        let sound = timeline.map(TrackId::AUDIO, (at + ahead).cast_unsigned());
        assert!((sound - picture).abs() <= 450, "{n}: {sound} {picture}");
        assert!(n < 1_000 || (sound - picture).abs() <= 60, "{n}: {sound} {picture}");
    }
}

/// Returns the media time by which the publisher's own clocks advanced in a minute: the advance of the stream's
/// clock, less the time that the timeline reports as made up.
fn came(faults: &[Fault]) -> i64 {
    let publisher = Publisher::with(faults);
    let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
    let (began, mut made_up) = (began(), 0);
    for unit in publisher.units() {
        timeline.arrive(began + Duration::from_millis(unit.arrives.cast_unsigned()));
        timeline.map(track_id(unit.track), unit.raw);
        while let Some(news) = timeline.take_clock_news() {
            match news {
                ClockNews::MadeUp(ms) => made_up = ms,
                ClockNews::Fault(_) => {}
            }
        }
    }
    timeline.position().dts_ms - made_up
}

#[test]
fn news_tell_how_much_media_came_before_its_clock_was_corrected() {
    let drift = |of, ppm| Fault::Drift { of, at: 10_000, ppm };
    let jump = |by| Fault::Jump { of: Of::All, at: 20_000, by };
    let still = |of| Fault::Frozen { of, at: 20_000, ms: 30_000 };
    let table = [
        (vec![], 60_000),
        (vec![drift(Of::All, 100_000)], 65_000),
        (vec![drift(Of::All, -100_000)], 55_000),
        // If the clock of only one track is wrong, the pace of the stream is that of the other track.
        (vec![drift(Of::One(1), 100_000)], 60_000),
        (vec![still(Of::One(0))], 60_000),
        (vec![still(Of::All)], 30_000),
        // Jumps do not count as a change of pace.
        (vec![jump(30_000)], 60_000),
        (vec![jump(-15_000)], 60_000),
    ];
    for (faults, expected) in table {
        let came = came(&faults);
        assert!((came - expected).abs() <= 700, "{faults:?}: {came}, not {expected}");
    }
}

/// Checks that jitter is not taken for drift, although successive errors caused by jitter
/// occasionally lie on a line.
#[test]
fn uneven_arrival_at_the_beginning_is_no_drift() {
    for seed in 0..600u64 {
        let jitter = 25 * (seed % 5).cast_signed();
        let publisher = Publisher { seed, jitter, seconds: 6, ..Publisher::clean() };
        let (units, timeline) = publisher.run();
        let moved = units.iter().filter(|unit| unit.out != unit.sampled).count();
        assert_eq!((moved, timeline.faults().total()), (0, 0), "{seed}: {:?}", timeline.faults());
    }
}

/// Checks encoders whose timestamps are always 0, over a network that holds back units and delivers
/// several together.
#[test]
fn pictures_that_come_at_once_without_a_clock_are_spread_over_the_time_before() {
    for (lump, ms) in [(1_i64, 40_i64), (3, 100), (10, 400), (25, 1_000)] {
        let mut timeline = Timeline::new(32, Timescale::MILLISECONDS, Position::default());
        let (began, mut last) = (began(), None);
        for n in 0..(60_000 / ms) {
            let at = n * ms;
            timeline.arrive(began + Duration::from_millis(at.cast_unsigned()));
            for _ in 0..lump {
                let out = timeline.map(TrackId::VIDEO, 0);
                if let Some(last) = last.filter(|_| at > 2_500) {
                    let (least, most) = (ms / lump - 2, ms / lump + 2);
                    assert!(
                        (least..=most).contains(&(out - last)),
                        "{lump} in {ms} ms: {last}, {out} at {at}"
                    );
                    assert!((at - ms - 2..=at + lump + 2).contains(&out), "{lump} in {ms} ms: {out} at {at}");
                }
                last = Some(out);
            }
        }
        assert_eq!(timeline.faults().of(ClockFault::Frozen), 1);
    }
}

/// Checks timestamps that were converted to ticks of 90 kHz twice, so that they advance 90 times too fast. Again
/// and again they come near a value that a wrap of 24 bits would explain.
#[test]
fn a_clock_in_another_unit_is_not_taken_for_one_that_wraps() {
    let mut timeline = Timeline::new(33, Timescale::new(90_000), Position::default());
    let began = began();
    let of = |track, interval: i64, every: i64| {
        (0..60_000_000 / interval)
            .map(move |n| (n * interval / 1000 + n * every % 16, track, n * interval / 1000))
    };
    let mut units: Vec<_> = of(TrackId::VIDEO, 40_000, 7).chain(of(TrackId::AUDIO, 21_333, 5)).collect();
    units.sort_unstable();
    for (at, track, ms) in units {
        timeline.arrive(began + Duration::from_millis(at.cast_unsigned()));
        let out = timeline.map(track, (ms * 90 * 90).cast_unsigned()) / 90;
        assert!((out - at).abs() <= 250, "{track:?} at {at}: {out}");
    }
}

/// Checks RTP sources on a narrow path that delays pictures more than audio, the first ones most: the sender's reports
/// decide on lip sync, not the arrival.
#[test]
fn reports_keep_lips_while_a_path_delays_pictures() {
    // Delay of the first picture, the range of later delays, and the time after which lips are in sync.
    for (first, least, most, synced) in
        [(700, 150, 400, 3_500), (300, 100, 600, 3_000), (1_600, 100, 300, 7_500)]
    {
        let mut timeline = Timeline::of_sources(Timescale::MILLISECONDS, Position::default());
        let began = began();
        let jitter = |n: i64| n * 7_919 % 97;
        let delayed = |at: i64| {
            let falling = first - at / 2;
            // The delay rises and falls within nine seconds.
            let phase = (at % 9_000 - 4_500).abs();
            falling.max(least + (most - least) * phase / 4_500)
        };
        // The receiver has put the packets in order, so no unit arrives before an earlier one.
        let ordered = |track, interval: i64, delay: &dyn Fn(i64) -> i64| {
            let mut newest = 0;
            let mut arrive = |n: i64| {
                newest = newest.max(n * interval + delay(n * interval) + jitter(n));
                (newest, track, n * interval)
            };
            (0..30_000 / interval).map(&mut arrive).collect::<Vec<_>>()
        };
        let mut units = ordered(TrackId::AUDIO, 20, &|_| 0);
        units.extend(ordered(TrackId::VIDEO, 40, &delayed));
        units.sort_unstable();
        let mut last = HashMap::new();
        for (arrives, track, own) in units {
            timeline.arrive(began + Duration::from_millis(arrives.cast_unsigned()));
            let sampled = (arrives > 900).then_some(5_000 + own);
            let out = timeline.map_frame(track, 1_000_000 + own, sampled);
            let of_other = |id| last.get(&id).copied().unwrap_or((0, 0));
            if own > synced {
                let ((own_a, out_a), (own_v, out_v)) = (of_other(TrackId::AUDIO), of_other(TrackId::VIDEO));
                let apart: i64 = (out_v - own_v) - (out_a - own_a);
                assert!(apart.abs() <= 20, "{apart} ms apart at {own} ms, first delay {first} ms");
            }
            let (own_before, out_before) = last.insert(track, (own, out)).unwrap_or((own, out));
            let speed = 100 * (out - out_before) / (own - own_before).max(1);
            assert!(own < 4_000 || (40..=160).contains(&speed), "{track:?} runs at {speed} % at {own} ms");
        }
    }
}

/// Checks that movements towards reports keep the order of pictures, whatever the order in which they arrive and
/// their interval.
#[test]
fn reports_keep_the_order_of_pictures() {
    // Pictures in the decoding order of a pyramid of B-pictures; pictures in order of presentation with an interval
    // that changes between 40 and 200 ms; and one picture in two seconds.
    let pyramid = |n: i64| (n / 8 * 8 + [0, 4, 2, 1, 3, 8, 6, 5][usize::try_from(n % 8).unwrap()]) * 40;
    let pyramid = |n: i64| if n % 8 == 0 && n > 0 { pyramid(n) - 40 } else { pyramid(n) };
    let even = |n: i64| n / 75 * 75 * 40 + if n % 150 < 75 { n % 75 * 40 } else { n % 75 / 5 * 200 };
    let slow = |n: i64| n / 50 * 2_000;
    for (name, shown) in [("pyramid", &pyramid as &dyn Fn(i64) -> i64), ("even", &even), ("slow", &slow)] {
        for off in [-2_500, -800, -500, 500, 800, 2_500] {
            let mut sources = Sources::new();
            let mut places = Vec::new();
            for n in 0..1_500 {
                let at = n * 40;
                let told = at > 1_000;
                sources.place(TrackId::AUDIO, at, 7_000 + at, told.then_some(at));
                let own = shown(n);
                if places.iter().all(|(before, _)| *before != own) {
                    let out = sources.place(TrackId::VIDEO, at, own, told.then_some(own - off));
                    places.push((own, out));
                }
            }
            places.sort_unstable();
            for pair in places.windows(2) {
                assert!(pair[0].1 < pair[1].1, "{name}, {off}: {pair:?}");
            }
            let (own, out) = *places.last().unwrap();
            let moved = out - own - (places[0].1 - places[0].0);
            let expected = if off.abs() > 1_000 { 0 } else { -off };
            assert!((moved - expected).abs() <= 60, "{name}, {off}: {moved}");
        }
    }
}

/// Checks reports whose noise hides a drift of the sound's clock.
#[test]
fn noisy_reports_hide_no_drift() {
    for noise in [0, 40, 60, 90, 300] {
        for ppm in [-200, 200] {
            let mut sources = Sources::new();
            let mut worst = 0;
            for n in 0..90_000 {
                let at = n * 40;
                let picture = sources.place(TrackId::VIDEO, at, 90_000 + at, Some(at));
                let own = 7_000 + at + at * ppm / 1_000_000;
                let told = at + if n / 50 % 2 == 0 { noise } else { -noise };
                let sound = sources.place(TrackId::AUDIO, at, own, Some(told));
                // At the beginning, the place of the track is off by the noise of the very first report.
                if at > 60_000 {
                    worst = (sound - picture).abs().max(worst);
                }
            }
            let most = if noise > 100 { 450 } else { 150 };
            assert!(worst <= most, "noise {noise}, {ppm} ppm: {worst}");
        }
    }
}

/// Checks that a track whose own reports are wrong is corrected by arrival, although another track follows its reports.
#[test]
fn a_track_with_wrong_reports_follows_arrival() {
    let mut sources = Sources::new();
    for n in 0..90_000 {
        let at = n * 40;
        let picture = sources.place(TrackId::VIDEO, at, 90_000 + at, Some(at));
        sources.place(TrackId::AUDIO, at, 7_000 + at, Some(at));
        let other = sources.place(TrackId::DATA, at, 500 + at + at * 200 / 1_000_000, Some(at + 20_000));
        assert!((other - picture).abs() <= 100, "{at}: {}", other - picture);
    }
}

/// Checks a source that restarts with other timestamps: its former reports do not apply to them.
#[test]
fn a_restart_of_a_source_ends_its_reports() {
    let mut sources = Sources::new();
    let mut distance = 0;
    for n in 0..500 {
        let at = n * 40;
        let picture = sources.place(TrackId::VIDEO, at, 90_000 + at, Some(at));
        let own = if n < 100 { 7_000 + at } else { 2_000_000 + at };
        // The first report after the restart shows another distance than the last before it.
        let ahead = if n < 100 { 200 } else { 500 };
        let sound = sources.place(TrackId::AUDIO, at, own, (!(100..125).contains(&n)).then_some(at + ahead));
        distance = sound - picture;
        assert!(n < 127 || distance == 500, "{n}: {distance}");
    }
    assert_eq!(distance, 500);
}
