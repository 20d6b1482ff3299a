//! Rows of clocks: timestamps of real publishers, over every protocol.

use netsim::MediaSource;
use netsim::publisher::{Fault, Of, Publisher, Reports};

use super::units::Unit;
use super::{ALL, EXACT, Gets, Oddity, Row};
use crate::support::world::Over;

const EVERY: &[Over] = &[Over::Rtmp, Over::Srt, Over::Rtsp];
/// Publishers of rows in which only the units themselves are odd. WHIP is in no other rows of clocks, because its
/// client always has a right clock, bridges gaps, and announces audio and video.
const LIVE: &[Over] = &[Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc];
/// Time at which a fault begins, in milliseconds.
const AT: i64 = 8_000;
const HOUR: i64 = 3_600_000;
const VIDEO: Of = Of::One(0);
const SOUND: Of = Of::One(1);

const fn clock(name: &'static str, change: fn(&mut Publisher), gets: Gets) -> Row {
    Row { name, over: EVERY, oddity: Oddity::Clock(change), gets }
}

const fn live(name: &'static str, change: fn(&mut Publisher), gets: Gets) -> Row {
    clock_of(name, LIVE, change, gets)
}

const fn clock_of(name: &'static str, over: &'static [Over], change: fn(&mut Publisher), gets: Gets) -> Row {
    Row { name, over, oddity: Oddity::Clock(change), gets }
}

const fn report(name: &'static str, change: fn(&mut Publisher), gets: Gets) -> Row {
    clock_of(name, &[Over::Rtsp], change, gets)
}

const fn media(name: &'static str, change: fn(&mut Vec<Unit>), gets: Gets) -> Row {
    Row { name, over: EVERY, oddity: Oddity::Units(change), gets }
}

const fn source(name: &'static str, change: fn(MediaSource) -> MediaSource, gets: Gets) -> Row {
    Row { name, over: LIVE, oddity: Oddity::Source(change), gets }
}

const fn odd(name: &'static str, change: fn(MediaSource) -> MediaSource, gets: Gets) -> Row {
    Row { name, over: EVERY, oddity: Oddity::Source(change), gets }
}

const APART: Gets = ALL.told(&["apart"]).told_by_rtp(&[]);
const JUMP: Gets = ALL.told(&["jump"]);
const OUTLIER: Gets = ALL.told(&["outlier"]);
const DRIFT: Gets = ALL.told(&["drift"]);
const PAUSE: Gets = ALL.told(&["pause"]);
const FROZEN: Gets = ALL.told(&["frozen"]);
const REPORT: Gets = ALL.told(&["report"]);

/// Makes the clock step by `by` milliseconds. The clock starts high enough for a step back.
fn jump(p: &mut Publisher, of: Of, by: i64) {
    (p.start, p.faults) = (2 * HOUR, vec![Fault::Jump { of, at: AT, by }]);
}

fn outlier(p: &mut Publisher, of: Of, by: i64) {
    (p.start, p.faults) = (2 * HOUR, vec![Fault::Outlier { of, at: AT, by }]);
}

fn drift(p: &mut Publisher, of: Of, ppm: i64) {
    (p.seconds, p.faults) = (30, vec![Fault::Drift { of, at: 4_000, ppm }]);
}

fn mute(p: &mut Publisher, of: Of, ms: i64, stands: bool) {
    p.faults = vec![Fault::Mute { of, at: AT, ms, stands }];
}

fn frozen(p: &mut Publisher, of: Of, at: i64, ms: i64) {
    p.faults = vec![Fault::Frozen { of, at, ms }];
}

/// Shifts the timestamps of the audio by `ms` milliseconds against those of the video.
fn apart(p: &mut Publisher, ms: i64) {
    (p.start, p.offsets[1]) = (2 * HOUR, ms);
}

fn slow_and_apart(p: &mut Publisher) {
    apart(p, -4_000);
    p.tracks[0] = 200_000;
}

/// All rows of clocks.
pub const ROWS: &[Row] = &[
    live("a clean publisher", |_| {}, EXACT),
    clock("sound lies 500 ms ahead", |p| apart(p, 500), ALL),
    clock("sound lies 500 ms behind", |p| apart(p, -500), ALL),
    clock("sound lies 2.5 s ahead", |p| apart(p, 2_500), ALL),
    clock("sound lies 4 s ahead", |p| apart(p, 4_000), APART),
    clock("sound lies 4 s behind", |p| apart(p, -4_000), APART),
    clock("sound lies 4 s behind five pictures a second", slow_and_apart, APART),
    clock("sound lies 10 s ahead", |p| apart(p, 10_000), APART),
    clock("sound lies an hour ahead", |p| apart(p, HOUR), APART),
    clock("sound lies an hour behind", |p| apart(p, -HOUR), APART),
    clock("all tracks step back 1.5 s", |p| jump(p, Of::All, -1_500), JUMP),
    clock("all tracks step on 1.5 s", |p| jump(p, Of::All, 1_500), JUMP),
    clock("all tracks step back 4 s", |p| jump(p, Of::All, -4_000), JUMP),
    clock("all tracks step on 4 s", |p| jump(p, Of::All, 4_000), JUMP),
    clock("all tracks step back 30 s", |p| jump(p, Of::All, -30_000), JUMP),
    clock("all tracks step on 30 s", |p| jump(p, Of::All, 30_000), JUMP),
    clock("all tracks step back an hour", |p| jump(p, Of::All, -HOUR), JUMP),
    clock("all tracks step on an hour", |p| jump(p, Of::All, HOUR), JUMP),
    clock("sound steps back 1.5 s", |p| jump(p, SOUND, -1_500), JUMP),
    clock("sound steps on 1.5 s", |p| jump(p, SOUND, 1_500), JUMP),
    clock("sound steps back 4 s", |p| jump(p, SOUND, -4_000), JUMP),
    clock("sound steps on 4 s", |p| jump(p, SOUND, 4_000), JUMP),
    clock("sound steps on 30 s", |p| jump(p, SOUND, 30_000), JUMP),
    clock("video steps back 4 s", |p| jump(p, VIDEO, -4_000), JUMP),
    clock("video steps on 4 s", |p| jump(p, VIDEO, 4_000), JUMP),
    clock("video steps on an hour", |p| jump(p, VIDEO, HOUR), JUMP),
    clock("a picture is stamped 5 s ahead", |p| outlier(p, VIDEO, 5_000), OUTLIER),
    clock("a picture is stamped 4 s back", |p| outlier(p, VIDEO, -4_000), OUTLIER),
    clock("a sound is stamped 5 s ahead", |p| outlier(p, SOUND, 5_000), OUTLIER),
    clock("a picture is stamped an hour ahead", |p| outlier(p, VIDEO, HOUR), OUTLIER),
    clock("a picture in two seconds is stamped 5 s ahead", many_outliers, OUTLIER),
    clock("sound is 0.8 % too fast", |p| drift(p, SOUND, 8_000), DRIFT),
    clock("sound is 5 % too slow", |p| drift(p, SOUND, -50_000), DRIFT),
    clock("sound is 15 % too fast", |p| drift(p, SOUND, 150_000), DRIFT),
    clock("all tracks are 5 % too fast", |p| drift(p, Of::All, 50_000), DRIFT),
    clock("all tracks are 5 % too slow", |p| drift(p, Of::All, -50_000), DRIFT),
    clock("sound is mute for 0.3 s and its clock stands", |p| mute(p, SOUND, 300, true), DRIFT),
    clock("sound is mute for 3 s and its clock stands", |p| mute(p, SOUND, 3_000, true), PAUSE),
    clock("sound is mute for 6 s and its clock stands", |p| mute(p, SOUND, 6_000, true), PAUSE),
    clock("sound is mute for 3 s and its clock goes on", |p| mute(p, SOUND, 3_000, false), EXACT),
    clock("sound is mute for 6 s and its clock goes on", |p| mute(p, SOUND, 6_000, false), EXACT),
    clock("video stops for 3 s and its clock stands", |p| mute(p, VIDEO, 3_000, true), PAUSE),
    clock("video stops for 3 s and its clock goes on", |p| mute(p, VIDEO, 3_000, false), EXACT),
    clock("all tracks pause for 5 s and their clock goes on", |p| mute(p, Of::All, 5_000, false), EXACT),
    clock("all tracks pause for 5 s and their clock stands", |p| mute(p, Of::All, 5_000, true), ALL),
    clock(
        "sound begins 5 s late",
        |p| p.faults = vec![Fault::Mute { of: SOUND, at: 0, ms: 5_000, stands: false }],
        EXACT.soundless(&[Over::Rtsp]),
    ),
    live("a line holds everything for 3 s", |p| p.faults = vec![Fault::Stall { at: AT, ms: 3_000 }], EXACT),
    live("a line holds everything for 0.5 s again and again", many_stalls, EXACT),
    clock("arrival is uneven by 150 ms", |p| p.jitter = 150, EXACT),
    clock(
        "sound arrives 700 ms behind the video",
        |p| (p.delays[1], p.reports) = (700, Reports::Agreeing),
        ALL,
    ),
    clock("timestamps stand still for 3 s", |p| frozen(p, Of::All, AT, 3_000), FROZEN),
    clock("timestamps of the sound stand still for 3 s", |p| frozen(p, SOUND, AT, 3_000), FROZEN),
    clock("all timestamps are equal for ever", |p| frozen(p, Of::All, -1, 60_000), FROZEN),
    clock("the clock starts at an hour", |p| p.start = HOUR, EXACT),
    clock("the clock starts at 40 days", |p| p.start = 40 * 24 * HOUR, EXACT),
    clock(
        "the clock restarts at zero",
        |p| (p.start, p.faults) = (HOUR, vec![Fault::Jump { of: Of::All, at: AT, by: -HOUR - AT }]),
        JUMP,
    ),
    clock_of(
        "the clock has 24 bits and wraps",
        &[Over::Rtmp],
        |p| (p.bits, p.start) = (24, (1 << 24) - AT),
        EXACT,
    ),
    clock_of(
        "the clock has 31 bits and wraps",
        &[Over::Rtmp],
        |p| (p.bits, p.start) = (31, (1 << 31) - AT),
        EXACT,
    ),
    clock_of("the clock has 32 bits and wraps", &[Over::Rtmp], |p| p.start = (1 << 32) - AT, EXACT),
    clock_of("the clock has 33 bits and wraps", &[Over::Srt], |p| p.start = (1 << 33) / 90 - AT, EXACT),
    clock_of("timestamps of RTP wrap", &[Over::Rtsp], |p| p.start = (1 << 32) / 90 - AT, EXACT),
    report("reports agree with arrival", |p| p.reports = Reports::Agreeing, ALL),
    report(
        "reports of the sound are off by 4 s",
        |p| p.reports = Reports::Disagreeing { of: 1, by: 4_000 },
        REPORT,
    ),
    report(
        "reports of the sound are off by an hour",
        |p| p.reports = Reports::Disagreeing { of: 1, by: HOUR },
        REPORT,
    ),
    report("the wall clock is set back 1.5 s", |p| p.reports = Reports::Set { at: AT, by: -1_500 }, ALL),
    report("the wall clock is set back 30 s", |p| p.reports = Reports::Set { at: AT, by: -30_000 }, ALL),
    report("the wall clock is set back an hour", |p| p.reports = Reports::Set { at: AT, by: -HOUR }, ALL),
    report("the wall clock is set on an hour", |p| p.reports = Reports::Set { at: AT, by: HOUR }, ALL),
    report("only the video has reports", |p| p.reports = Reports::Only(0), ALL),
    report("only the sound has reports", |p| p.reports = Reports::Only(1), ALL),
    report("the first report is sent again and again", |p| p.reports = Reports::Frozen, ALL),
    odd("pictures are shown in another order", |s| s.reordering(true), ALL.exactly(150).reorders()),
    source("every picture is a key frame", |s| s.gop(1), EXACT),
    source("there is one key frame", |s| s.gop(10_000), EXACT),
    source("60 pictures a second", |s| s.fps(60), EXACT),
    source("one picture a second", |s| s.fps(1).gop(2), EXACT),
    odd("pictures of 60 KB", |s| s.sizes(20_000, 60), EXACT),
    odd("no picture comes, though video is announced", |s| s.sizes(0, 60), EXACT.without(0, 160).untimed()),
    odd("there is no sound", |s| s.sizes(300, 0), EXACT),
    media(
        "two pictures have one time",
        |units| each(units, 10, |unit, before| unit.raw = before.raw),
        ALL.exactly(60),
    ),
    media(
        "every tenth picture falls behind the one before",
        |units| each(units, 10, |unit, before| unit.raw = before.raw - 20),
        ALL.exactly(90).reorders(),
    ),
    media("pictures are sampled unevenly", |units| uneven(units), EXACT),
    media("one picture in two seconds", slides, EXACT),
    media("silence has a packet of comfort noise in 400 ms", comfort_noise, EXACT),
    media(
        "timestamps are seconds",
        |units| units.iter_mut().for_each(|unit| unit.raw /= 1000),
        FROZEN.paced(),
    ),
    media(
        "timestamps are ticks of 90 kHz",
        |units| units.iter_mut().for_each(|unit| unit.raw *= 90),
        ALL.told(&["*"]).paced(),
    ),
    media(
        "composition times are 70 s",
        |units| pictures(units).for_each(|unit| unit.cts = 70_000),
        ALL.untimed(),
    ),
];

/// Makes several faults, each of which is an outlier.
fn many_outliers(p: &mut Publisher) {
    p.start = 2 * HOUR;
    p.faults = (2..9).map(|n| Fault::Outlier { of: VIDEO, at: n * 2_000, by: 5_000 }).collect();
}

fn many_stalls(p: &mut Publisher) {
    p.faults = (2..9).map(|n| Fault::Stall { at: n * 2_000, ms: 500 }).collect();
}

fn pictures(units: &mut [Unit]) -> impl Iterator<Item = &mut Unit> {
    units.iter_mut().filter(|unit| unit.is_video)
}

/// Changes every `every`-th picture. `change` also gets the picture before it.
fn each(units: &mut [Unit], every: usize, change: fn(&mut Unit, &Unit)) {
    let mut before: Option<Unit> = None;
    for (n, unit) in pictures(units).enumerate() {
        if let Some(before) = before.filter(|_| n % every == every - 1) {
            change(unit, &before);
        }
        before = Some(unit.clone());
    }
}

/// Moves the sampling times of pictures by up to 15 ms, and their timestamps by the same amounts.
fn uneven(units: &mut [Unit]) {
    for (n, unit) in pictures(units).enumerate().filter(|(n, _)| *n > 0) {
        let by = [0, 9, -12, 15, -7][n % 5];
        unit.sampled += by;
        unit.raw = unit.raw.saturating_add_signed(by);
    }
}

/// Drops most of the audio for six seconds, as browsers do while nobody speaks (DTX).
fn comfort_noise(units: &mut Vec<Unit>) {
    let mut silent = 0;
    units.retain(|unit| {
        silent += usize::from(!unit.is_video && (AT..AT + 6_000).contains(&unit.sampled));
        unit.is_video || silent % 19 <= 1 || !(AT..AT + 6_000).contains(&unit.sampled)
    });
}

fn slides(units: &mut Vec<Unit>) {
    let mut n = 0;
    units.retain(|unit| {
        n += usize::from(unit.is_video);
        !unit.is_video || (n - 1) % 50 == 0
    });
}
