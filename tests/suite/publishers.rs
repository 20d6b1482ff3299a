//! Unusual publishers: a table of oddities that real encoders, cameras and browsers have, and of the media that every
//! viewer must get nevertheless.
//!
//! The same generator makes all media ([`units`]). The oddity of a row changes the clocks, the units, or the messages,
//! packets and bytes of a protocol. Each row runs over each of its protocols in the simulation of the whole server,
//! beside a clean stream on the same worker that must not suffer. Rows about clocks run over every protocol.

mod clocks;
mod judge;
mod late;
mod playing;
mod playlists;
mod random;
mod rtmp;
mod rtmp_rows;
mod rtsp;
mod rtsp_rows;
mod sender;
mod standby;
mod ts;
mod ts_rows;
mod units;
mod viewers;
mod whip;

use std::collections::BTreeSet;
use std::time::Instant;

use netsim::publisher::{Publisher, Reports};
use netsim::{MediaSource, ms, secs};

use self::judge::{Kind, Outcome, View};
use self::sender::Said;
use self::units::Unit;
use self::viewers::{Log, Shared};
use crate::support::World;
use crate::support::world::{Id, Over, url};

/// The change to a clean publisher.
#[derive(Debug, Clone, Copy)]
pub enum Oddity {
    Clock(fn(&mut Publisher)),
    Source(fn(MediaSource) -> MediaSource),
    Units(fn(&mut Vec<Unit>)),
    Rtmp(fn(&mut rtmp::Plan)),
    Ts(fn(&mut ts::Plan)),
    Rtsp(fn(&mut rtsp::Plan)),
}

/// A row of the table: an oddity, the protocols to which it applies, and the expected results.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub over: &'static [Over],
    pub oddity: Oddity,
    pub gets: Gets,
}

/// Checks to make of the viewers' timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// Order, speed and lip sync.
    Lips,
    /// Order and speed.
    Pace,
    Not,
}

/// Reads the segments of a stream that has ended.
type Player = fn(&mut World) -> Result<Log, String>;
/// An additional check of an outcome.
pub type Check = fn(&Outcome) -> Result<(), String>;

/// Expected results of a row.
#[derive(Debug, Clone, Copy)]
pub struct Gets {
    /// Numbers of pictures and of audio units that a viewer may miss.
    pub lost: [usize; 2],
    /// True if pictures are shown in another order than they are sent. Browsers do not support this, so WebRTC viewers
    /// may miss pictures.
    pub reorders: bool,
    /// Viewers that may miss all audio, because the audio begins after they have selected their tracks.
    pub soundless: &'static [Over],
    /// Kinds of clock faults that the server must count; it must count no others. `*` allows any kind.
    pub told: &'static [&'static str],
    /// Replaces `told` for RTP without a common clock of all tracks.
    pub told_by_rtp: Option<&'static [&'static str]>,
    /// Maximum error of timestamps in milliseconds, or `None` for no limit.
    pub exact: Option<i64>,
    /// Text with which the publisher must be refused or ended.
    pub refused: Option<&'static str>,
    pub timed: Timed,
    /// Additional check.
    pub check: Option<Check>,
}

/// Viewers get all units, with regular timestamps.
pub const ALL: Gets = Gets {
    lost: [0, 0],
    reorders: false,
    soundless: &[],
    told: &[],
    told_by_rtp: None,
    exact: None,
    refused: None,
    timed: Timed::Lips,
    check: None,
};

/// Viewers get all units, and timestamps have only rounding errors.
pub const EXACT: Gets = Gets { exact: Some(5), ..ALL };

impl Gets {
    pub const fn without(self, pictures: usize, sounds: usize) -> Self {
        Self { lost: [pictures, sounds], ..self }
    }

    pub const fn told(self, told: &'static [&'static str]) -> Self {
        Self { told, ..self }
    }

    pub const fn told_by_rtp(self, told: &'static [&'static str]) -> Self {
        Self { told_by_rtp: Some(told), ..self }
    }

    pub const fn reorders(self) -> Self {
        Self { reorders: true, ..self }
    }

    pub const fn soundless(self, viewers: &'static [Over]) -> Self {
        Self { soundless: viewers, ..self }
    }

    /// Sets the maximum error of timestamps, in milliseconds.
    pub const fn exactly(self, ms: i64) -> Self {
        Self { exact: Some(ms), ..self }
    }

    pub const fn untimed(self) -> Self {
        Self { timed: Timed::Not, ..self }
    }

    /// Judges only the order and the speed of timestamps.
    pub const fn paced(self) -> Self {
        Self { timed: Timed::Pace, ..self }
    }

    pub const fn checked(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }
}

/// Expects that the publisher is refused with this text.
pub const fn refused(why: &'static str) -> Gets {
    Gets { refused: Some(why), ..ALL }
}

/// Rows and protocols that are known to fail, with the reason.
const OPEN: &[(&str, Over, &str)] = &[];

/// The name of the stream of a row.
const STREAM: &str = "odd";
/// Time for which the publisher is live before the viewers come.
const JOIN_MS: u64 = 1_000;
/// Kinds of viewers that record timestamps.
const TIMED: [Over; 3] = [Over::Rtmp, Over::Srt, Over::Rtsp];
/// Players of segments.
const PLAYERS: [(Kind, Player); 2] =
    [(Kind::Hls, playlists::of_transport_stream), (Kind::LowLatency, playlists::of_renditions)];
/// Kinds of viewers for which units are only counted.
const COUNTED: [Over; 2] = [Over::Flv, Over::WebRtc];

/// Settings with which playlists hold the whole stream of a row.
const SEGMENTS: [(&str, &str); 2] = [("hlsEnableLowLatency", "true"), ("hlsListSize", "40")];

/// A publisher without oddities on the same worker, and its viewer.
struct Bystander {
    publisher: Id,
    viewer: Id,
}

impl Bystander {
    fn start(world: &mut World) -> Self {
        let source = MediaSource::new(&crypto::Seed::from_number(5)).sizes(200, 40);
        let publisher = world.publish("live", "bystander", source);
        world.run_until("the bystander", secs(5), |world| world.is_ready(publisher));
        let viewer = world.play("live", "bystander");
        world.run_until("its viewer", secs(5), |world| world.is_ready(viewer));
        Self { publisher, viewer }
    }

    fn check(&self, world: &World) -> Result<(), String> {
        let (seen, falls) = world.seen(self.viewer);
        let sent = world.sent(self.publisher).iter().filter(|unit| unit.seen.is_video).count() as u64;
        let has_all = seen.video().received + 10 > sent;
        let is_right = seen.is_clean() && falls == 0 && has_all && !world.is_closed(self.viewer);
        if is_right { Ok(()) } else { Err(format!("the bystander suffered: {sent} sent, {seen:?}")) }
    }
}

/// Runs a row over a protocol.
fn run(row: &Row, over: Over) -> Result<(), String> {
    let mut publisher = units::clean();
    let mut source = units::source();
    if let Oddity::Clock(change) = row.oddity {
        change(&mut publisher);
    }
    if let Oddity::Source(change) = row.oddity {
        source = change(source);
    }
    let mut sent = units::units(&publisher, &mut source);
    if let Oddity::Units(change) = row.oddity {
        change(&mut sent);
    }
    if matches!(over, Over::Rtsp | Over::WebRtc) && publisher.reports == Reports::Absent {
        // Without a common clock, only the arrival times show how the tracks relate to each other.
        publisher.offsets = vec![0; 2];
    }
    let mut world = World::new(1, 1, &SEGMENTS);
    let bystander = Bystander::start(&mut world);
    let (id, said) = publish(&mut world, over, row.oddity, &publisher, &sent);
    let mut outcome =
        Outcome { publisher, sent, views: Vec::new(), broadcast: String::new(), metrics: String::new() };
    if let Some(why) = row.gets.refused {
        // A publisher of which nothing can be played has 15 s.
        world.run_for(secs(18));
        bystander.check(&world)?;
        let said = said.lock().unwrap();
        return if said.contains(why) {
            Ok(())
        } else {
            Err(format!("was told {:?}", &said[..said.len().min(300)]))
        };
    }
    for _ in 0..200 {
        if !world.is_ready(id) && world.rejection(id).is_none() {
            world.run_for(ms(10));
        }
    }
    if !world.is_ready(id) {
        return Err(format!("was not let in: {:?}", world.rejection(id)));
    }
    let began = world.story(id).ready.unwrap();
    world.run_for((began + ms(JOIN_MS)).saturating_duration_since(world.instant()));
    let viewers: Vec<(Over, Id, Shared)> = TIMED
        .into_iter()
        .map(|over| {
            let log = Shared::default();
            (over, watch(&mut world, over, log.clone()), log)
        })
        .collect();
    for name in playlists::NAMES {
        world.request(&format!("GET /live/streams/{name}"), "");
    }
    let counted = COUNTED.map(|over| (over, world.watch_over(over, "live", STREAM)));
    let last = outcome.sent.iter().map(|unit| unit.at).max().unwrap_or(0);
    let end = began + ms(last.unsigned_abs() + 500);
    world.run_for(end.saturating_duration_since(world.instant()));
    outcome.broadcast = ask(&mut world, &format!("GET /live/rest/v2/broadcasts/{STREAM}"));
    outcome.metrics = ask(&mut world, "GET /metrics");
    let closed = world.is_closed(id);
    world.close(id);
    world.run_for(secs(3));
    if closed {
        return Err(format!("the publisher was thrown out: {:?}", world.rejection(id)));
    }
    for (over, viewer, log) in &viewers {
        if !world.is_ready(*viewer) {
            return Err(format!("{over:?}: {:?}", world.rejection(*viewer)));
        }
        if !world.is_closed(*viewer) {
            return Err(format!("{over:?}: was not told of the end"));
        }
        let log = std::mem::take(&mut *log.lock());
        let kind = Kind::Live(*over);
        outcome.views.push(View { kind, began, joined: joined(&world, *viewer, began), log });
    }
    for (over, viewer) in counted {
        if !world.is_ready(viewer) {
            return Err(format!("{over:?}: {:?}", world.rejection(viewer)));
        }
        let log = Log::of_units(world.got(viewer));
        let kind = Kind::Live(over);
        outcome.views.push(View { kind, began, joined: joined(&world, viewer, began), log });
    }
    for (kind, player) in PLAYERS {
        let log = player(&mut world).map_err(|why| format!("{kind:?} viewer: {why}"))?;
        outcome.views.push(View { kind, began, joined: 0, log });
    }
    outcome.judge(over, &row.gets)?;
    bystander.check(&world)
}

/// Returns the milliseconds from the publisher's acceptance to the viewer's.
fn joined(world: &World, viewer: Id, began: Instant) -> i64 {
    let ready = world.story(viewer).ready.unwrap_or(began);
    i64::try_from(ready.saturating_duration_since(began).as_millis()).unwrap()
}

/// Adds the publisher of a row.
fn publish(
    world: &mut World,
    over: Over,
    oddity: Oddity,
    publisher: &Publisher,
    sent: &[Unit],
) -> (Id, Said) {
    let (now, seed) = (world.instant(), world.client_seed());
    match over {
        Over::Srt => {
            let mut plan = ts::Plan::new(sent);
            if let Oddity::Ts(change) = oddity {
                change(&mut plan);
            }
            let stream_id = format!("#!::r=live/{STREAM},m=publish");
            let machine = sender::SrtSender::new(now, &seed, &stream_id, plan.into_pieces());
            let said = machine.said();
            (world.publish_by(over, Box::new(machine)), said)
        }
        Over::WebRtc => {
            let url = url(over, "live", STREAM, "publish");
            let machine = whip::WhipSender::new(now, &url, seed, sent);
            (world.publish_by(over, Box::new(machine)), Said::default())
        }
        Over::Rtsp => {
            let mut plan = rtsp::Plan::new(publisher, sent);
            if let Oddity::Rtsp(change) = oddity {
                change(&mut plan);
            }
            let machine = plan.into_sender(STREAM);
            let said = machine.said();
            (world.publish_by(over, Box::new(machine)), said)
        }
        _ => {
            let mut plan = rtmp::Plan::new(STREAM, sent);
            if let Oddity::Rtmp(change) = oddity {
                change(&mut plan);
            }
            let machine = plan.into_sender();
            let said = machine.said();
            (world.publish_by(over, Box::new(machine)), said)
        }
    }
}

/// Adds a viewer that records timestamps.
fn watch(world: &mut World, over: Over, log: Shared) -> Id {
    let (now, seed) = (world.instant(), world.client_seed());
    match over {
        Over::Rtmp => world.watch_by(over, Box::new(viewers::RtmpViewer::new(now, STREAM, seed, log))),
        Over::Srt => world.watch_by(over, Box::new(viewers::SrtViewer::new(now, STREAM, &seed, log))),
        _ => world.watch_by(over, Box::new(viewers::RtspViewer::new(now, STREAM, seed, log))),
    }
}

/// Sends a request, and returns the body of the answer.
fn ask(world: &mut World, head: &str) -> String {
    let id = world.request(head, "");
    world.run_until("an answer", secs(2), |world| world.answer(id).is_some());
    let answer = world.answer(id).unwrap();
    answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned())
}

/// Runs the rows of a protocol; if `MILLSTREAM_ROW` is set, only those whose names contain it. Panics with a list of
/// all rows that fail.
fn run_all(rows: &[Row], over: Over) {
    let only = std::env::var("MILLSTREAM_ROW").unwrap_or_default();
    let (mut ran, mut failed) = (0, Vec::new());
    for row in rows.iter().filter(|row| row.over.contains(&over) && row.name.contains(&only)) {
        ran += 1;
        let open = OPEN.iter().find(|(name, of, _)| (*name, *of) == (row.name, over));
        match (run(row, over), open) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => failed.push(format!("{} over {over:?} is mended: it is not OPEN", row.name)),
            (Err(found), Some((_, _, why))) => println!("{} over {over:?} is open: {why}: {found}", row.name),
            (Err(why), None) => failed.push(format!("{} over {over:?}: {why}", row.name)),
        }
    }
    println!("{ran} rows over {over:?}");
    failed.iter().for_each(|why| println!("FAIL {why}"));
    assert!(failed.is_empty(), "{} of {ran}:\n{}", failed.len(), failed.join("\n"));
}

/// The protocols that rows run over.
const PROTOCOLS: [Over; 4] = [Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc];
/// The whole table. Each part has tests below.
const TABLE: [&[Row]; 4] = [clocks::ROWS, rtmp_rows::ROWS, ts_rows::ROWS, rtsp_rows::ROWS];

#[test]
fn the_table_has_120_distinct_oddities_or_more() {
    let rows: Vec<&Row> = TABLE.iter().copied().flatten().collect();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    assert!(names.len() >= 120, "{}", names.len());
    assert!(
        rows.iter().all(|row| row.over.iter().any(|over| PROTOCOLS.contains(over))),
        "a row runs nowhere"
    );
    let is_row = |(name, over, _): &(&str, Over, &str)| {
        rows.iter().any(|row| row.name == *name && row.over.contains(over))
    };
    assert!(OPEN.iter().all(is_row), "an open row is none");
    let runs: usize = rows.iter().map(|row| row.over.len()).sum();
    println!("{} oddities, {runs} runs", names.len());
}

#[test]
fn odd_clocks_over_rtmp() {
    run_all(clocks::ROWS, Over::Rtmp);
}

#[test]
fn odd_clocks_over_srt() {
    run_all(clocks::ROWS, Over::Srt);
}

#[test]
fn odd_clocks_over_rtsp() {
    run_all(clocks::ROWS, Over::Rtsp);
}

#[test]
fn odd_media_over_whip() {
    run_all(clocks::ROWS, Over::WebRtc);
}

#[test]
fn oddities_of_rtmp() {
    run_all(rtmp_rows::ROWS, Over::Rtmp);
}

#[test]
fn oddities_of_mpeg_ts() {
    run_all(ts_rows::ROWS, Over::Srt);
}

#[test]
fn oddities_of_rtsp_and_rtp() {
    run_all(rtsp_rows::ROWS, Over::Rtsp);
}
