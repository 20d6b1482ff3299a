//! The wall clock is set while a stream is live: durations stay right, and dates jump only at discontinuities.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hls::Playlist;
use netsim::{ms, secs};

use super::source;
use crate::support::{SimId, World};

const HOUR_MS: i64 = 3_600_000;
const SETTINGS: [(&str, &str); 4] = [
    ("dashMuxingEnabled", "true"),
    ("hlsEnableLowLatency", "true"),
    ("hlsListSize", "40"),
    ("publisherGraceMs", "10000"),
];
const TS: &str = "s.m3u8";
const VIDEO: &str = "ll-hls/s/s__video.m3u8";
const AUDIO: &str = "ll-hls/s/s__audio.m3u8";

/// A segment as a playlist has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    date_ms: i64,
    duration_ms: i64,
    discontinuity: bool,
}

/// Returns whether a record counts a viewer of HLS, and of DASH. The count may be one or two, because each worker
/// that an address asks counts the viewer.
fn viewers(record: &serde_json::Value) -> [bool; 2] {
    ["hlsViewerCount", "dashViewerCount"].map(|name| (1..=2).contains(&record[name].as_i64().unwrap()))
}

/// Returns the value of an XML attribute.
fn value<'t>(text: &'t str, name: &str) -> &'t str {
    text.split_once(name).unwrap().1.split_once('"').unwrap().0
}

/// Returns an XML duration in milliseconds.
fn seconds(text: &str, name: &str) -> i64 {
    let number = value(text, name).strip_prefix("PT").unwrap().strip_suffix('S').unwrap();
    number.replace('.', "").parse().unwrap()
}

/// Returns an XML date in milliseconds. Playlists use the same form, so the playlist parser reads it.
fn date(text: &str, name: &str) -> i64 {
    let date = value(text, name);
    let list =
        format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PROGRAM-DATE-TIME:{date}\n#EXTINF:2,\na.ts\n");
    let Ok(Playlist::Media(read)) = Playlist::read(list.as_bytes()) else { panic!("{date}") };
    read.segments[0].program_date_time.unwrap()
}

/// A live stream, and everything that its playlists and manifests have shown.
struct Run {
    world: World,
    publisher: SimId,
    began: Instant,
    shown: BTreeMap<&'static str, BTreeMap<u64, Shown>>,
    /// For each manifest, the start of the presentation, and the difference between the time in it and the
    /// expected time.
    manifests: Vec<(i64, i64)>,
    bit_rates: Vec<i64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed, 2, &SETTINGS);
        let publisher = world.publish("live", "s", source(seed));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        let mut run = Self::of(world, publisher);
        run.look();
        run
    }

    /// Creates a run of a publisher that was just accepted.
    fn of(world: World, publisher: SimId) -> Self {
        let began = world.instant();
        let (shown, manifests, bit_rates) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { world, publisher, began, shown, manifests, bit_rates }
    }

    fn get(&mut self, path: &str) -> String {
        let asked = self.world.request(&format!("GET /live/{path}"), "");
        self.world.run_until("an answer", secs(16), |world| world.answer(asked).is_some());
        let answer = self.world.answer(asked).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        body.to_owned()
    }

    fn record(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.get("rest/v2/broadcasts/s")).unwrap()
    }

    /// Reads and checks all playlists and manifests once.
    fn look(&mut self) {
        for name in [TS, VIDEO, AUDIO] {
            self.look_at_playlist(name);
        }
        self.look_at_manifest();
        self.look_at_record();
    }

    fn look_at_playlist(&mut self, name: &'static str) {
        let text = self.get(&format!("streams/{name}"));
        let Ok(Playlist::Media(playlist)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
        let shown = self.shown.entry(name).or_default();
        for (number, segment) in (playlist.media_sequence..).zip(&playlist.segments) {
            let segment = Shown {
                date_ms: segment.program_date_time.unwrap(),
                duration_ms: i64::try_from(segment.duration.as_millis()).unwrap(),
                discontinuity: segment.discontinuity,
            };
            let before = *shown.entry(number).or_insert(segment);
            assert_eq!(before, segment, "{name}: segment {number} has changed");
        }
    }

    fn look_at_manifest(&mut self) {
        let text = self.get("streams/s/s.mpd");
        let (zero_ms, now_ms) =
            (date(&text, "availabilityStartTime=\""), date(&text, "direct:2014\" value=\""));
        let made_ms = date(&text, "publishTime=\"");
        assert!((now_ms - 3000..=now_ms).contains(&made_ms), "made {made_ms}, asked for {now_ms}");
        // The newest segment, just made, is in the last period.
        let (_, period) = text.rsplit_once("<Period ").unwrap();
        let scale: i64 = value(period, "timescale=\"").parse().unwrap();
        let offset: i64 = value(period, "presentationTimeOffset=\"").parse().unwrap();
        let (_, newest) = period.split_once("</SegmentTimeline>").unwrap().0.rsplit_once("<S t=\"").unwrap();
        let (begin, ticks): (i64, i64) =
            (newest.split_once('"').unwrap().0.parse().unwrap(), value(newest, "d=\"").parse().unwrap());
        let end_ms = zero_ms + seconds(period, " start=\"") + (begin + ticks - offset) * 1000 / scale;
        assert!((now_ms - 5000..=now_ms).contains(&end_ms), "{end_ms} ends the newest at {now_ms}");
        let passed = i64::try_from((self.world.instant() - self.began).as_millis()).unwrap();
        self.manifests.push((zero_ms, now_ms - passed));
    }

    fn look_at_record(&mut self) {
        let record = self.record();
        let passed = i64::try_from((self.world.instant() - self.began).as_millis()).unwrap();
        assert_eq!(record["status"], "broadcasting");
        let duration = record["duration"].as_i64().unwrap();
        assert!((passed - 1500..passed + 200).contains(&duration), "{duration} of {passed} ms");
        if passed > 16_000 {
            assert_eq!(viewers(&record), [true, true], "behind {passed} ms");
            let speed = record["speed"].as_f64().unwrap();
            assert!((0.7..1.1).contains(&speed), "{speed}");
            self.bit_rates.push(record["bitrate"].as_i64().unwrap());
        }
    }

    /// Runs for `seconds`, and looks at everything every two seconds.
    fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(2) {
            self.world.run_for(secs(2));
            self.look();
        }
    }

    /// Returns the jumps of the dates in a playlist at discontinuities. Elsewhere dates must advance by the durations.
    fn jumps(&self, name: &str) -> Vec<i64> {
        let shown: Vec<(u64, Shown)> = self.shown[name].iter().map(|(number, one)| (*number, *one)).collect();
        let mut jumps = Vec::new();
        for pair in shown.windows(2) {
            let [(number, before), (next, after)] = pair else { unreachable!() };
            assert_eq!(number + 1, *next, "{name}: a segment was not seen");
            let jump = after.date_ms - before.date_ms - before.duration_ms;
            if after.discontinuity {
                jumps.push(jump);
            } else {
                assert_eq!(jump, 0, "{name}: the date of segment {next} jumps: {before:?} {after:?}");
            }
        }
        jumps
    }

    fn check_manifests(&self) {
        let (zero_ms, now_ms) = self.manifests[0];
        for (zero, now) in &self.manifests {
            assert_eq!(*zero, zero_ms, "the beginning of a presentation never changes");
            assert!((now - now_ms).abs() < 300, "the time of manifests jumps: {now} {now_ms}");
        }
    }

    /// Checks what must hold however the clock is set.
    fn check(&self) {
        self.check_manifests();
        let (least, most) = (self.bit_rates.iter().min().unwrap(), self.bit_rates.iter().max().unwrap());
        assert!(most - least < most / 3, "{:?}", self.bit_rates);
    }
}

#[test]
fn q_04_a_wall_clock_that_is_set_for_a_while_or_a_little_moves_no_date() {
    let flips: [i64; 8] = [HOUR_MS, -HOUR_MS, 1500, -1500, -HOUR_MS, HOUR_MS, -1500, 1500];
    let cases: [Vec<(u64, i64)>; 5] = [
        vec![(10, 1500)],
        vec![(10, -1500)],
        vec![(9, HOUR_MS), (12, -HOUR_MS)],
        vec![(9, -HOUR_MS), (12, HOUR_MS)],
        flips.map(|by| (7, by)).to_vec(),
    ];
    for (seed, steps) in (0..).zip(cases) {
        let mut run = Run::new(seed);
        for &(after, by_ms) in &steps {
            run.run_for(after);
            run.world.shift_wall(by_ms);
        }
        run.run_for(44);
        for name in [TS, VIDEO, AUDIO] {
            assert_eq!(run.jumps(name), [0; 0], "{name}, {steps:?}");
        }
        run.check();
    }
}

#[test]
fn a_wall_clock_that_stays_set_makes_dates_jump_once_at_a_discontinuity() {
    for (seed, by_ms) in [(0, HOUR_MS), (1, -HOUR_MS), (2, 86_400_000)] {
        let mut run = Run::new(seed);
        run.run_for(11);
        run.world.shift_wall(by_ms);
        run.run_for(50);
        for name in [TS, VIDEO, AUDIO] {
            let jumps = run.jumps(name);
            assert!(matches!(jumps[..], [jump] if (jump - by_ms).abs() <= 1), "{name}, {by_ms}: {jumps:?}");
        }
        // Both renditions jump at the same segment.
        let place = |name: &str| run.shown[name].iter().position(|(_, one)| one.discontinuity);
        assert_eq!(place(VIDEO), place(AUDIO));
        // The dates agree with the clock again.
        let newest = run.shown[TS].values().last().unwrap().date_ms;
        assert!((run.world.wall_ms() - newest).abs() < 10_000, "{newest}");
        run.check();
        assert!(run.manifests.len() > 25);
    }
}

#[test]
fn q_04_a_wall_clock_that_is_set_ends_no_wait_early_or_late() {
    for (seed, by_ms) in [(0, HOUR_MS), (1, -HOUR_MS), (2, 1500), (3, -1500)] {
        let mut run = Run::new(seed);
        run.run_for(9);
        // A viewer that asks for nothing more is counted for ten seconds.
        let after = |run: &mut Run, time: Duration| {
            run.world.run_for(time);
            viewers(&run.record())
        };
        run.world.shift_wall(by_ms);
        assert_eq!(after(&mut run, secs(6)), [true, true], "{by_ms}");
        run.world.shift_wall(by_ms);
        assert_eq!(after(&mut run, secs(7)), [false, false], "{by_ms}");
        // The stream waits for its publisher for as long as the application's settings say.
        for (away, is_there) in [(secs(8), true), (secs(14), false)] {
            let rest = run.world.source_of(run.publisher);
            let publisher = run.publisher;
            run.world.reset(publisher);
            run.world.run_for(ms(500));
            run.world.shift_wall(by_ms);
            run.world.run_for(away);
            let record = run.world.request("GET /live/rest/v2/broadcasts/s", "");
            run.world.run_until("an answer", secs(2), |world| world.answer(record).is_some());
            let answer = run.world.answer(record).unwrap();
            assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_there, "{by_ms}: {answer}");
            run.publisher = run.world.publish("live", "s", rest);
            let publisher = run.publisher;
            run.world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        }
    }
}

/// Returns the newest period of a manifest, and how many milliseconds later it lies in the presentation than the
/// timestamps of its segments say.
fn newest_period(manifest: &str) -> (&str, i64) {
    let (_, period) = manifest.rsplit_once("<Period ").unwrap();
    let number = |name: &str| value(period, name).parse::<i64>().unwrap();
    let begin_ms = number("presentationTimeOffset=\"") * 1000 / number("timescale=\"");
    (value(period, "id=\""), seconds(period, " start=\"") - begin_ms)
}

#[test]
fn a_publisher_that_returns_is_dated_by_its_arrival() {
    let mut run = Run::new(5);
    run.run_for(11);
    let before = run.get("streams/s/s.mpd");
    let rest = run.world.source_of(run.publisher);
    let publisher = run.publisher;
    run.world.reset(publisher);
    run.world.shift_wall(HOUR_MS);
    run.world.run_for(secs(6));
    run.world.shift_wall(-HOUR_MS);
    run.publisher = run.world.publish("live", "s", rest);
    let (first, first_ms) = newest_period(&before);
    let next = (first.parse::<u64>().unwrap() + 1).to_string();
    for _ in 0..40 {
        run.world.run_for(ms(250));
        // The manifest shows the old period until the first segment after the discontinuity is complete.
        let text = run.get("streams/s/s.mpd");
        let (id, delay_ms) = newest_period(&text);
        assert_eq!(id == first, delay_ms == first_ms, "{text}");
        assert_eq!(value(&text, "<Period id=\""), first, "the former one stays: {text}");
        assert_eq!(seconds(&text, " start=\""), first_ms, "and is where it was: {text}");
    }
    for name in [TS, VIDEO, AUDIO] {
        run.look_at_playlist(name);
        let jumps = run.jumps(name);
        assert!(matches!(jumps[..], [jump] if (5000..8000).contains(&jump)), "{name}: {jumps:?}");
    }
    let newest = run.shown[TS].values().last().unwrap().date_ms;
    assert!((run.world.wall_ms() - newest).abs() < 10_000, "{newest}");
    run.look_at_manifest();
    run.check_manifests();
    let text = run.get("streams/s/s.mpd");
    let (id, delay_ms) = newest_period(&text);
    assert!(id == next && (5000..8000).contains(&(delay_ms - first_ms)), "{text}");
    // At the end, the presentation has kept its length, including the time without a publisher.
    let publisher = run.publisher;
    run.world.close(publisher);
    run.world.run_for(secs(1));
    let text = run.get("streams/s/s.mpd");
    let ended_ms = run.manifests[0].0 + seconds(&text, "mediaPresentationDuration=\"");
    assert!((run.world.wall_ms() - ended_ms).abs() < 3000, "{text}");
}

#[test]
fn a_burst_at_the_beginning_dates_nothing_late() {
    for seed in 0..3 {
        let mut world = World::new(seed, 2, &SETTINGS);
        let publisher = world.publish("live", "s", source(seed).gop(90));
        world.run_until("the grant", secs(2), |world| world.is_ready(publisher));
        // The workers pause, so the units sent from the first key frame on arrive together after the pause.
        (0..2).for_each(|worker| world.pause(worker, ms(2500)));
        let mut run = Run::of(world, publisher);
        run.look();
        let mut ends = 0;
        for _ in 0..100 {
            run.world.run_for(ms(100));
            let before = run.shown[TS].len();
            run.look_at_playlist(TS);
            let newest = *run.shown[TS].values().last().unwrap();
            if run.shown[TS].len() > before {
                let ago = run.world.wall_ms() - newest.date_ms - newest.duration_ms;
                assert!((-50..600).contains(&ago), "{seed}: the newest ended {ago} ms ago");
                ends += 1;
            }
        }
        for name in [TS, VIDEO, AUDIO] {
            run.look_at_playlist(name);
            assert_eq!(run.jumps(name), [0; 0], "{name}");
        }
        assert!(ends >= 3);
    }
}
