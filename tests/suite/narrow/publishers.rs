//! Publishers on slow and bad paths, judged by the pictures that a viewer on a path without limits gets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use netsim::{MediaSource, secs};

use super::clients::{Encoder, Log, SrtEncoder};
use super::{FPS, GOP, PICTURE, Row, STREAM, WATCHED, cut, loss, path, queue, round_trip, row};
use crate::support::world::{Got, Over, World};

/// Time after the start, and after the end of a cut, in which a publisher may settle.
const SETTLES: Duration = secs(3);
/// Times at which a cut begins and ends.
const CUT: (Duration, Duration) = (secs(10), secs(18));
/// Time from the end of a cut until four fifths of the full rate must be reached again.
const RISES: Duration = secs(9);

const WHIP: &[Over] = &[Over::WebRtc];
const SRT: &[Over] = &[Over::Srt];
const TCP: &[Over] = &[Over::Rtmp, Over::Rtsp];

/// Paths of publishers, each with its bounds: minimum of pictures shown in percent, longest freeze, longest delay.
const ROWS: &[Row] = &[
    row("twice the rate", path(200), 99, 450, 500).over(WHIP),
    row("75 %", path(75), 99, 700, 850).over(WHIP),
    row("50 %", path(50), 99, 700, 850).over(WHIP),
    row("30 %", path(30), 99, 700, 900).over(WHIP),
    row("twice the rate, 5 % lost", loss(path(200), 0.05), 99, 450, 500).over(WHIP),
    row("twice the rate, 15 % lost", loss(path(200), 0.15), 99, 450, 650).over(WHIP),
    row("60 %, 50 ms of jitter", round_trip(path(60), 20, 50), 99, 700, 850).over(WHIP),
    row("60 %, 300 ms there and back", round_trip(path(60), 150, 0), 99, 700, 950).over(WHIP),
    row("twice the rate, cut to 40 %", cut(path(200), 40), 99, 700, 850).over(WHIP),
    row("twice the rate", queue(path(200), 200_000), 100, 150, 800).over(SRT),
    row("twice the rate, 2 % lost", queue(loss(path(200), 0.02), 200_000), 100, 150, 800).over(SRT),
    row("twice the rate, 10 % lost", queue(loss(path(200), 0.1), 200_000), 99, 150, 800).over(SRT),
    row("twice the rate, 50 ms of jitter", queue(round_trip(path(200), 20, 50), 200_000), 100, 150, 850)
        .over(SRT),
    row(
        "2 % lost, 120 ms there and back",
        queue(loss(round_trip(path(200), 60, 0), 0.02), 200_000),
        99,
        150,
        850,
    )
    .over(SRT),
    row("twice the rate", path(200), 100, 400, 450).over(TCP),
    row("120 %", path(120), 100, 600, 700).over(TCP),
    row("300 ms there and back", round_trip(queue(path(200), 300_000), 150, 0), 100, 400, 550).over(TCP),
    // Over TCP, all pictures made during the cut arrive, as fast as the path permits.
    row("twice the rate, cut to 50 %", cut(path(200), 50), 100, 1100, 5000).over(TCP),
];

/// The result of a publisher.
#[derive(Debug)]
struct Seen {
    shown: usize,
    of: usize,
    freeze: Duration,
    late: Duration,
    /// Time from the end of a cut until the encoder makes four fifths of the full rate.
    rises: Option<Duration>,
    /// Rate of sent bytes, in thousandths of the path's rate.
    load: u64,
}

/// Judges the pictures that a viewer got. `made` contains the times at which the pictures were made, by number.
fn judge(made: &BTreeMap<u64, Instant>, got: &[Got], is_judged: impl Fn(Instant) -> bool) -> Seen {
    let (mut chain, mut shown) = (None, Vec::new());
    for got in got.iter().filter(|got| got.is_video) {
        let seen = got.seen.unwrap();
        if seen.key_frame || chain == Some(seen.counter.wrapping_sub(1)) {
            chain = Some(seen.counter);
            shown.push((made[&seen.counter], got.at));
        }
    }
    let of = made.values().filter(|at| is_judged(**at)).count();
    let is_between = |pair: &&[(Instant, Instant)]| {
        let [(from, _), (to, _)] = [pair[0], pair[1]];
        is_judged(from) && is_judged(from + (to - from) / 2) && is_judged(to)
    };
    let freeze = shown.windows(2).filter(is_between).map(|pair| pair[1].1 - pair[0].1).max();
    let freeze = freeze.unwrap_or(WATCHED);
    shown.retain(|(made, _)| is_judged(*made));
    let late = shown.iter().map(|(made, at)| *at - *made).max().unwrap_or(WATCHED);
    Seen { shown: shown.len(), of, freeze, late, rises: None, load: 0 }
}

fn run(row: &Row, over: Over, seed: u64) -> Seen {
    let mut world = World::new(seed, 1, &[]);
    let log = Log::default();
    let publisher = if over == Over::WebRtc {
        let machine = Encoder::new(world.instant(), "one", world.client_seed(), Log::clone(&log));
        world.publish_by(over, Box::new(machine))
    } else {
        let source = MediaSource::new(&crypto::Seed::from_number(seed)).fps(FPS).gop(GOP).sizes(PICTURE, 170);
        if over == Over::Srt {
            let machine = SrtEncoder::new(world.instant(), "one", &world.client_seed(), &source);
            world.publish_from(over, Box::new(machine), source)
        } else {
            world.publish_over(over, "live", "one", source)
        }
    };
    world.narrow_publisher(publisher, row.path);
    let began = world.instant();
    world.run_until("the publisher", secs(5), |world| world.is_ready(publisher));
    let viewer = world.watch_over(Over::Flv, "live", "one");
    world.run_for(began + SETTLES - world.instant());
    let before = if over.is_datagrams() { world.published_bytes(publisher) } else { 0 };
    world.run_for(began + WATCHED - world.instant());
    let sent = if over.is_datagrams() { world.published_bytes(publisher) - before } else { 0 };
    // Runs on until the last units, which are still in flight, have arrived.
    world.run_for(secs(2));
    let log = log.lock().unwrap();
    let made: BTreeMap<u64, Instant> = if over == Over::WebRtc {
        log.iter().map(|made| (made.counter, made.at)).collect()
    } else {
        let video = world.sent(publisher).iter().filter(|sent| sent.seen.is_video);
        video.map(|sent| (sent.seen.counter, sent.at)).collect()
    };
    let is_cut = row.path.cut.is_some();
    let is_settled = |at: Instant| {
        let passed = at.saturating_duration_since(began);
        // Over TCP all pictures arrive, so the pictures right after the beginning and the end of a cut are judged, too.
        let settles = |from: Duration| passed >= from && passed < from + SETTLES && over.is_datagrams();
        passed >= SETTLES && passed < WATCHED && !(is_cut && (settles(CUT.0) || settles(CUT.1)))
    };
    let mut seen = judge(&made, world.got(viewer), is_settled);
    let is_full = |made: &&super::clients::Made| made.at >= began + CUT.1 && made.bits >= STREAM / 5 * 4;
    seen.rises = log.iter().find(is_full).map(|made| made.at - began - CUT.1).filter(|_| is_cut);
    let cut = row.path.cut.map_or(0, |(_, _, rate)| (row.path.rate - rate) * (CUT.1 - CUT.0).as_secs());
    seen.load = sent * 8000 / (row.path.rate * (WATCHED - SETTLES).as_secs() - cut);
    seen
}

fn faults(row: &Row, over: Over, seen: &Seen) -> Vec<&'static str> {
    let checks = [
        (seen.shown * 100 >= seen.of * row.pictures, "too few pictures"),
        (seen.freeze <= row.freeze, "a freeze"),
        (seen.late <= row.late, "late"),
        (seen.load <= 1050, "more is sent than the path carries"),
        (
            row.path.cut.is_none() || over != Over::WebRtc || seen.rises.is_some_and(|took| took <= RISES),
            "slow to rise",
        ),
    ];
    checks.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect()
}

#[test]
fn publishers_on_narrow_and_bad_paths_settle_within_three_seconds_and_rise_again() {
    let only = std::env::var("MILLSTREAM_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(|row| row.name.contains(&only)) {
        for over in row.over {
            for seed in 1..=super::seeds() {
                let seen = run(row, *over, seed);
                println!("{} over {over:?}: {seen:?}", row.name);
                let wrong = faults(row, *over, &seen);
                if !wrong.is_empty() {
                    failed.push(format!("{} over {over:?}: {}: {seen:?}", row.name, wrong.join(", ")));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
