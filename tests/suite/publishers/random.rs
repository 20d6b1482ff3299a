//! Random publishers before a strict player of HLS, low-latency HLS and DASH: random settings, frame rates, key frames
//! and clocks, tracks that come and go, and publishers that leave and return.
//!
//! `MILLSTREAM_SEEDS=500` runs more seeds, `MILLSTREAM_SEED=7` only this one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crypto::{Random, Seed};
use netsim::publisher::{Fault, Of, Publisher};
use netsim::{MediaSource, ms, secs};

use super::playing::{self, Player};
use super::units::{self, Unit};
use super::{Oddity, publish};
use crate::support::World;
use crate::support::world::{Id, Over};

/// Distance between the first unit numbers of two successive episodes, so that each unit of a case has a number of its
/// own.
const NUMBERS: u64 = 1_000_000;

/// Time after which the segments of a new publisher have begun, in milliseconds.
const SETTLING_MS: u64 = 10_000;

/// Length of a publisher's media after which there must be a playlist, in milliseconds.
const PLAYED_MS: u64 = 20_000;

/// A day, by which the wall clock is ahead of 2026: presentations begin with that year.
const DAY_MS: i64 = 86_400_000;

/// The settings of the application.
#[derive(Debug, Clone)]
struct Settings {
    pairs: Vec<(&'static str, String)>,
    has_low_latency: bool,
    has_manifest: bool,
    grace_ms: u64,
    endlist: &'static str,
}

/// Tracks that a publisher sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tracks {
    Both,
    Video,
    Audio,
}

/// The way in which a publisher leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Goodbye,
    Lost,
}

/// A publisher, and the time until the next one.
#[derive(Debug, Clone)]
struct Episode {
    over: Over,
    tracks: Tracks,
    fps: u64,
    gop: u64,
    reorders: bool,
    faults: Vec<Fault>,
    seconds: u64,
    leaves: Leaves,
    pause_ms: u64,
}

/// A run: settings, and publishers of one stream, one after the other.
#[derive(Debug, Clone)]
struct Case {
    settings: Settings,
    episodes: Vec<Episode>,
}

fn one_of<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[usize::try_from(random.below(values.len() as u64)).unwrap()]
}

fn between(random: &mut Random, low: i64, high: i64) -> i64 {
    low + random.below((high - low + 1).cast_unsigned()).cast_signed()
}

impl Settings {
    fn draw(random: &mut Random) -> Self {
        let has_low_latency = random.chance(0.6);
        let has_manifest = random.chance(0.5);
        let grace_ms = one_of(random, &[0, 2_000, 6_000]);
        let endlist = one_of(random, &["clean", "grace", "never"]);
        let mut pairs = vec![
            ("hlsTime", one_of(random, &["1", "2", "2", "4", "6"]).to_owned()),
            ("hlsListSize", one_of(random, &["3", "5", "8", "15", "40"]).to_owned()),
            ("hlsSegmentType", one_of(random, &["mpegts", "fmp4"]).to_owned()),
            ("hls.part_ms", one_of(random, &["100", "200", "300", "500", "1000"]).to_owned()),
            ("hls.begin", one_of(random, &["request", "stream"]).to_owned()),
            ("hls.endlist", endlist.to_owned()),
            ("publisherGraceMs", grace_ms.to_string()),
        ];
        pairs.extend(has_low_latency.then(|| ("hlsEnableLowLatency", "true".to_owned())));
        pairs.extend(has_manifest.then(|| ("dashMuxingEnabled", "true".to_owned())));
        Self { pairs, has_low_latency, has_manifest, grace_ms, endlist }
    }
}

impl Episode {
    fn draw(random: &mut Random, has_faults: bool) -> Self {
        let fps = one_of(random, &[5, 10, 15, 24, 25, 30, 50, 60]);
        let tenths = one_of(random, &[5, 10, 20, 20, 20, 40, 60]);
        let seconds = between(random, 8, 26).cast_unsigned();
        let faults = if has_faults { draw_faults(random, seconds.cast_signed() * 1000) } else { Vec::new() };
        let over = one_of(random, &[Over::Rtmp, Over::Srt, Over::Rtsp]);
        // A publisher over datagrams always says goodbye: if it just fell silent, the server would notice only after
        // some seconds, and the next publisher would be refused until then.
        let leaves = if over.is_datagrams() {
            Leaves::Goodbye
        } else {
            one_of(random, &[Leaves::Goodbye, Leaves::Lost])
        };
        let tracks =
            one_of(random, &[Tracks::Both, Tracks::Both, Tracks::Both, Tracks::Video, Tracks::Audio]);
        Self {
            over,
            tracks,
            fps,
            gop: (fps * tenths / 10).max(1),
            // RTP packets have no decode times, so publishers over RTSP do not reorder pictures.
            reorders: over != Over::Rtsp && random.chance(0.3),
            faults,
            seconds,
            leaves,
            pause_ms: one_of(random, &[300, 1_500, 5_000, 12_000]),
        }
    }

    /// Returns the publisher's clocks and units. Numbers begin at `first`.
    fn media(&self, seed: u64, first: u64) -> (Publisher, Vec<Unit>) {
        let seconds = self.seconds.cast_signed();
        let publisher = Publisher { seconds, faults: self.faults.clone(), ..units::clean() };
        let mut source = MediaSource::new(&Seed::from_number(seed))
            .fps(self.fps)
            .gop(self.gop)
            .sizes(300, 60)
            .reordering(self.reorders)
            .numbered_from(first);
        let mut sent = units::units(&publisher, &mut source);
        sent.retain(|unit| match self.tracks {
            Tracks::Both => true,
            Tracks::Video => unit.is_video,
            Tracks::Audio => !unit.is_video,
        });
        (publisher, sent)
    }

    /// The change that leaves out the parameter sets of a track without units.
    fn oddity(&self) -> Oddity {
        const VIDEO: u8 = 9;
        const AUDIO: u8 = 8;
        match self.tracks {
            Tracks::Both => Oddity::Units(|_| {}),
            Tracks::Video => Oddity::Rtmp(|plan| plan.messages.retain(|message| message.kind != AUDIO)),
            Tracks::Audio => Oddity::Rtmp(|plan| plan.messages.retain(|message| message.kind != VIDEO)),
        }
    }
}

fn draw_faults(random: &mut Random, length: i64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut at = between(random, 3_000, 9_000);
    while at < length {
        let of = one_of(random, &[Of::All, Of::One(0), Of::One(1)]);
        let far = between(random, -20_000, 20_000);
        let near = between(random, 100, 4_000);
        faults.push(match random.below(6) {
            0 => Fault::Jump { of, at, by: far },
            1 => Fault::Outlier { of, at, by: far },
            2 => Fault::Drift { of, at, ppm: between(random, -2_000, 2_000) },
            3 => Fault::Mute { of, at, ms: near, stands: random.chance(0.5) },
            4 => Fault::Stall { at, ms: near },
            _ => Fault::Frozen { of, at, ms: near },
        });
        at += between(random, 4_000, 12_000);
    }
    faults
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut random = Seed::from_number(seed).derive("playlists", 0).random();
        let settings = Settings::draw(&mut random);
        let has_faults = random.chance(0.4);
        let count = 1 + random.below(3);
        let episodes = (0..count).map(|_| Episode::draw(&mut random, has_faults)).collect();
        Self { settings, episodes }
    }

    /// Runs the case, and returns the rules that were broken.
    fn run(&self, seed: u64) -> Vec<String> {
        let pairs: Vec<(&str, &str)> =
            self.settings.pairs.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let mut world = World::new(seed, 1, &pairs);
        world.shift_wall(DAY_MS);
        let mut player = Player::new(self.settings.has_low_latency, self.settings.has_manifest);
        for (at, episode) in self.episodes.iter().enumerate() {
            self.run_episode(&mut world, &mut player, episode, (seed, at as u64));
        }
        player.notes.broken
    }

    fn run_episode(&self, world: &mut World, player: &mut Player, episode: &Episode, (seed, at): (u64, u64)) {
        let (publisher, sent) = episode.media(seed, (at + 1) * NUMBERS);
        player.sent.keys.extend(sent.iter().filter(|unit| unit.key).map(|unit| unit.number));
        let (id, _) = publish(world, episode.over, episode.oddity(), &publisher, &sent);
        if !is_accepted(world, id) {
            player.notes.broken(format!("a publisher was refused: {:?}", world.rejection(id)));
            return;
        }
        player.publisher_began();
        // The first segments may wait for a key frame, and for the tracks.
        let length_ms = episode.seconds * 1000 - 500;
        let settling_ms = length_ms.min(SETTLING_MS);
        player.leniency.has_faults = true;
        player.watch(world, settling_ms);
        player.leniency.has_faults = !episode.faults.is_empty();
        player.watch(world, length_ms - settling_ms);
        if episode.faults.is_empty() && world.is_closed(id) {
            player.notes.broken(format!("a publisher was thrown out: {:?}", world.rejection(id)));
        }
        if episode.seconds * 1000 >= PLAYED_MS && episode.faults.is_empty() && player.has_ended().is_none() {
            player.notes.broken(format!("no playlist within {} s", episode.seconds));
        }
        // While there is no publisher, no segments are made.
        player.leniency.has_faults = true;
        match episode.leaves {
            Leaves::Goodbye => world.close(id),
            Leaves::Lost => world.reset(id),
        }
        let is_last = at + 1 == self.episodes.len() as u64;
        let pause_ms = if is_last { self.settings.grace_ms + 8_000 } else { episode.pause_ms };
        player.watch(world, pause_ms);
        if is_last {
            self.check_end(player, episode);
        }
        if episode.faults.is_empty() {
            let sent: Vec<playing::Unit> = sent.iter().map(as_played).collect();
            player.check_whole(&sent);
        }
    }

    /// Checks that the playlists announce the end of the stream if they should.
    fn check_end(&self, player: &mut Player, last: &Episode) {
        let should = match self.settings.endlist {
            "never" => false,
            "clean" => last.leaves == Leaves::Goodbye,
            _ => true,
        };
        if player.has_ended().is_some_and(|has_ended| has_ended != should) {
            player.notes.broken(format!("the playlists' end is {}, not {should}", !should));
        }
    }
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

fn is_accepted(world: &mut World, id: Id) -> bool {
    for _ in 0..400 {
        if world.is_ready(id) {
            return true;
        }
        if world.rejection(id).is_some() {
            return false;
        }
        world.run_for(ms(10));
    }
    world.run_for(secs(1));
    world.is_ready(id)
}

#[test]
fn playlists_of_random_publishers_follow_all_rules() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MILLSTREAM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MILLSTREAM_SEEDS").unwrap_or(24),
    };
    let (mut failed, count) = (Vec::new(), seeds.end - seeds.start);
    for seed in seeds {
        let case = Case::draw(seed);
        let broken = catch_unwind(AssertUnwindSafe(|| case.run(seed)))
            .unwrap_or_else(|_| vec!["the run panicked".to_owned()]);
        if !broken.is_empty() {
            println!("seed {seed}: {case:?}");
            broken.iter().for_each(|rule| println!("  BROKEN {rule}"));
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} of {count} publishers: seeds {failed:?}", failed.len());
}
