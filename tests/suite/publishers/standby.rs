//! A standby takes a stream over before viewers that check timestamps, and before a strict player of HLS, low-latency
//! HLS and DASH.

use crypto::Seed;
use netsim::{MediaSource, ms};

use super::playing::{self, Player};
use super::units::{self, Unit};
use super::viewers::{Got, Shared};
use super::{Oddity, STREAM, ask, publish, watch};
use crate::support::World;
use crate::support::world::{Id, Over};

/// The first unit numbers of the two publishers.
const FIRST: u64 = 1_000_000;
const SECOND: u64 = 2_000_000;
/// A day, by which the wall clock is ahead of 2026: presentations begin with that year.
const DAY_MS: i64 = 86_400_000;
/// Length of a publisher's media, in seconds.
const SECONDS: i64 = 60;
/// Duration of a GOP in milliseconds.
const GOP_MS: i64 = (units::GOP * 1000 / units::FPS).cast_signed();
/// `standbyAfterMs`.
const SILENCE_MS: i64 = 1000;

/// The end of the first publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Loss of its connection.
    Lost,
    /// Silence, while it stays connected.
    Silent,
    /// The standby is made the publisher over the API.
    Switched,
}

const SETTINGS: [(&str, &str); 5] = [
    ("hlsTime", "2"),
    ("hlsListSize", "15"),
    ("hlsSegmentType", "fmp4"),
    ("hlsEnableLowLatency", "true"),
    ("dashMuxingEnabled", "true"),
];

/// Starts a publisher whose clock is `offset_ms` ahead.
fn begin(world: &mut World, over: Over, first: u64, offset_ms: i64) -> (Id, Vec<Unit>) {
    let publisher =
        netsim::publisher::Publisher { seconds: SECONDS, offsets: vec![offset_ms; 2], ..units::clean() };
    let source = MediaSource::new(&Seed::from_number(36)).fps(units::FPS).gop(units::GOP).sizes(300, 60);
    let sent = units::units(&publisher, &mut source.numbered_from(first));
    let (id, _) = publish(world, over, Oddity::Units(|_| {}), &publisher, &sent);
    for _ in 0..400 {
        if !world.is_ready(id) {
            world.run_for(ms(10));
        }
    }
    assert!(world.is_ready(id), "{over:?}: {:?}", world.rejection(id));
    (id, sent)
}

const fn as_played(unit: &Unit) -> playing::Unit {
    playing::Unit {
        is_video: unit.is_video,
        number: unit.number,
        dts: unit.sampled,
        pts: unit.sampled + unit.cts,
        duration: None,
    }
}

/// Checks that a viewer got both publishers on one clock, the second from a key frame on.
fn check_viewer(name: &str, got: &[Got]) {
    for is_video in [true, false] {
        let of = || got.iter().filter(|got| got.is_video == is_video);
        let times: Vec<i64> = of().map(|got| got.dts).collect();
        assert!(times.is_sorted_by(|a, b| a < b), "{name}: video {is_video}: {times:?}");
        let numbers: Vec<u64> = of().map(|got| got.seen.expect("a whole unit").counter).collect();
        let at = numbers.iter().position(|number| *number >= SECOND).expect("units of the standby");
        for part in [&numbers[..at], &numbers[at..]] {
            assert!(part.is_sorted_by(|a, b| a + 1 == *b), "{name}: video {is_video}: units are missing");
            assert!(part.len() > 100, "{name}: video {is_video}: {}", part.len());
        }
        let (last, first) = (of().nth(at - 1).unwrap(), of().nth(at).unwrap());
        // The standby's first unit follows within a GOP of media, counted from the end of the first publisher.
        let gap = first.dts - last.dts;
        assert!((1..=GOP_MS + SILENCE_MS).contains(&gap), "{name}: video {is_video}: a gap of {gap} ms");
        if is_video {
            assert!(first.seen.unwrap().key_frame, "{name}: the standby begins with a key frame");
            // Both send the same at the same time. Pictures that were shown already are needed for decoding, but none is
            // missing.
            let (before, after) = (numbers[at - 1] - FIRST, numbers[at] - SECOND);
            assert!(after <= before + 1 + units::FPS, "{name}: {before} is followed by {after}");
        }
    }
    // Long after the takeover, the stream's clock runs with the arrival.
    let tail: Vec<&Got> = got.iter().filter(|got| got.is_video).rev().take(100).collect();
    let (last, early) = (tail[0], tail[99]);
    let passed = i64::try_from((last.at - early.at).as_millis()).unwrap();
    assert!((last.dts - early.dts - passed).abs() < 300, "{name}: {} in {passed}", last.dts - early.dts);
}

/// Runs a takeover, and returns the rules that the playlists broke.
fn take_over(first: Over, second: Over, end: End, offset_ms: i64) {
    let name = format!("{first:?} {second:?} {end:?}");
    let mut world = World::new(7, 2, &SETTINGS);
    world.shift_wall(DAY_MS);
    let body = format!(r#"{{"streamId":"{STREAM}","standbyEnabled":true}}"#);
    world.request("POST /live/rest/v2/broadcasts/create", &body);
    world.run_for(ms(200));
    let (one, sent_by_one) = begin(&mut world, first, FIRST, 0);
    world.run_for(ms(700));
    let (two, sent_by_two) = begin(&mut world, second, SECOND, offset_ms);
    let viewers = [Over::Rtmp, Over::Srt].map(|over| {
        let log = Shared::default();
        (over, watch(&mut world, over, log.clone()), log)
    });
    let mut player = Player::new(true, true);
    let keys = sent_by_one.iter().chain(&sent_by_two).filter(|unit| unit.key);
    player.sent.keys.extend(keys.map(|unit| unit.number));
    player.publisher_began();
    player.leniency.has_faults = true;
    player.watch(&mut world, 10_000);
    player.leniency.has_faults = false;
    player.watch(&mut world, 7_300);
    // The segments of the takeover are timed by two publishers.
    player.leniency.has_faults = true;
    match end {
        End::Lost => world.reset(one),
        End::Silent => world.go_dark(one),
        End::Switched => {
            let answer = ask(&mut world, &format!("POST /live/rest/v2/broadcasts/{STREAM}/standby/switch"));
            assert!(answer.contains("true"), "{name}: {answer}");
        }
    }
    player.watch(&mut world, 10_000);
    player.leniency.has_faults = false;
    player.watch(&mut world, 10_000);
    let record = ask(&mut world, &format!("GET /live/rest/v2/broadcasts/{STREAM}"));
    assert!(record.contains(r#""status":"broadcasting""#), "{name}: {record}");
    let publishers = ask(&mut world, &format!("GET /live/rest/v2/broadcasts/{STREAM}/publishers"));
    let count = publishers.matches(r#""active""#).count();
    assert_eq!(count, if end == End::Switched { 2 } else { 1 }, "{name}: {publishers}");
    for (over, viewer, log) in &viewers {
        assert!(world.is_ready(*viewer) && !world.is_closed(*viewer), "{name}: {over:?}");
        check_viewer(&format!("{name}: {over:?}"), &log.lock().got);
    }
    player.check_whole(&sent_by_two.iter().map(as_played).collect::<Vec<_>>());
    assert!(
        player.notes.broken.is_empty() && player.notes.fetched > 20,
        "{name}: {:#?}",
        player.notes.broken
    );
    world.close(two);
    world.run_for(ms(500));
}

#[test]
fn a_standby_follows_a_lost_publisher() {
    take_over(Over::Rtmp, Over::Rtmp, End::Lost, 0);
    take_over(Over::Rtmp, Over::Srt, End::Lost, 7_200_000);
}

#[test]
fn a_standby_follows_a_silent_publisher() {
    take_over(Over::Rtmp, Over::Rtmp, End::Silent, 3_600_000);
    take_over(Over::Srt, Over::Rtmp, End::Silent, 0);
}

#[test]
fn a_standby_is_made_the_publisher_over_the_api() {
    take_over(Over::Rtmp, Over::Rtmp, End::Switched, 0);
}

#[test]
fn nothing_is_left_of_publishers_that_have_gone() {
    let mut world = World::new(8, 2, &[("publisherGraceMs", "1000")]);
    let body = format!(r#"{{"streamId":"{STREAM}","standbyEnabled":true}}"#);
    world.request("POST /live/rest/v2/broadcasts/create", &body);
    world.run_for(ms(200));
    let (one, _) = begin(&mut world, Over::Rtmp, FIRST, 0);
    let (two, _) = begin(&mut world, Over::Rtmp, SECOND, 0);
    world.run_for(ms(3000));
    let standbys = |world: &World| world.held().iter().filter(|(name, _)| name.contains("standby")).count();
    assert!(world.retained_bytes() > 0 && standbys(&world) > 0, "{:?}", world.held());
    world.reset(one);
    world.reset(two);
    world.run_for(ms(5000));
    assert_eq!(world.retained_bytes(), 0);
    assert_eq!(standbys(&world), 0, "{:?}", world.held());
}
