//! A copy of a stream on a disk that fails, is slow or full, and viewers that fetch the files named by
//! playlists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use hls::Playlist;
use hls::limits::PLAYLIST_BYTES_MAX;
use hls::playlist::{DateRange, Kind, Map, MediaPlaylist, Segment};

use super::copy::{HlsCopy, Plan};
use crate::config::AppSettings;
use crate::jobs::{AppendError, ArchiveWork, Outcome, Work};
use crate::mail::StreamDetails;
use crate::protocol::schema;
use crate::protocol::sinks::SinkOrder;
use crate::types::{StreamId, StreamKey};

const BEGUN_MS: i64 = 1_700_000_000_000;
const LIST_SIZE: usize = 3;

/// A copy, its disk, and the stream's segments in memory.
struct Rig {
    copy: HlsCopy,
    now: Instant,
    disk: BTreeMap<String, Bytes>,
    memory: BTreeMap<String, Bytes>,
    live: MediaPlaylist,
    /// The playlist that live viewers get.
    shown: MediaPlaylist,
    job: Option<ArchiveWork>,
    fragmented: bool,
    /// Digits of a segment's name.
    digits: usize,
    /// Date ranges before the next segment.
    ranges: Vec<DateRange>,
}

fn order(settings: &[(&str, &str)]) -> SinkOrder {
    let app = AppSettings::of(schema(), "live", settings).unwrap();
    SinkOrder {
        stream: StreamId::default(),
        kind: "hls",
        key: StreamKey::new("live", "cam"),
        settings: Arc::new(app),
        details: StreamDetails::default(),
        recording: None,
    }
}

fn copies(settings: &[(&str, &str)]) -> Vec<HlsCopy> {
    Plan::of(&order(settings)).copies("a/cam.m3u8")
}

fn read(text: &[u8]) -> MediaPlaylist {
    match Playlist::read(text).unwrap() {
        Playlist::Media(playlist) => playlist,
        Playlist::Multivariant(_) => panic!("{text:?}"),
    }
}

fn path(name: &str) -> Vec<String> {
    ["live", "streams", "a", name].map(str::to_owned).to_vec()
}

impl Rig {
    fn new(kind: &str, more: &[(&str, &str)], fragmented: bool) -> Self {
        let settings = [&[("hlsPlayListType", kind), ("hlsListSize", "3")], more].concat();
        let version = if fragmented { 6 } else { 3 };
        let target_duration = Duration::from_secs(2);
        let live = MediaPlaylist { version, target_duration, media_sequence: 1, ..MediaPlaylist::default() };
        Self {
            copy: copies(&settings).remove(0),
            now: Instant::now(),
            disk: BTreeMap::new(),
            memory: BTreeMap::new(),
            live,
            shown: MediaPlaylist::default(),
            job: None,
            fragmented,
            digits: 9,
            ranges: Vec::new(),
        }
    }

    fn publish(&mut self, name: &str, bytes: Bytes) {
        self.memory.insert(format!("a/{name}"), bytes.clone());
        self.copy.add(&format!("a/{name}"), bytes);
    }

    /// Cuts a segment.
    fn segment(&mut self, number: u64, bytes: usize) {
        let map = self
            .fragmented
            .then(|| Arc::new(Map { uri: "cam_init.mp4".into(), byte_range: None, key: None }));
        if self.fragmented && number == 1 {
            self.publish("cam_init.mp4", Bytes::from_static(b"init"));
        }
        let uri = format!("cam{number:0digits$}.ts", digits = self.digits);
        self.publish(&uri, Bytes::from(vec![7; bytes]));
        self.live.segments.push(Segment {
            uri,
            duration: Duration::from_secs(2),
            program_date_time: Some(BEGUN_MS + i64::try_from(number).unwrap() * 2000),
            map,
            date_ranges: std::mem::take(&mut self.ranges),
            ..Segment::default()
        });
        let mut gone = Vec::new();
        while self.live.segments.len() > LIST_SIZE {
            let first = self.live.segments.remove(0);
            // A date range that is still open moves to the first remaining segment.
            self.live.segments[0].date_ranges.splice(..0, first.date_ranges);
            gone.push(format!("a/{}", first.uri));
            self.live.media_sequence += 1;
        }
        for name in self.copy.release(gone) {
            self.memory.remove(&name);
        }
        self.show();
    }

    fn show(&mut self) {
        self.copy.note(&self.live);
        let text = self.copy.text().unwrap_or_else(|| self.live.to_string());
        self.shown = read(text.as_bytes());
        self.check();
    }

    fn end(&mut self) {
        self.live.ended = true;
        self.show();
        self.copy.finish(self.now);
    }

    /// Takes the next job of the copy, if none is under way.
    fn hand_out(&mut self) -> bool {
        if self.job.is_none() {
            self.job = self.copy.next_job(self.now).map(|work| {
                let Work::Archive(work) = work else { panic!("{work:?}") };
                work
            });
        }
        self.job.is_some()
    }

    fn done(&mut self, outcome: Outcome) {
        let work = self.job.take().unwrap();
        if matches!(outcome, Outcome::Archived(Ok(()))) {
            match work.clone() {
                ArchiveWork::Put { path: at, data } => {
                    assert_eq!(at, path(at.last().unwrap()));
                    self.disk.insert(at.last().unwrap().clone(), data);
                }
                ArchiveWork::Remove { path: at, begun_ms } => self.remove(&at, begun_ms),
                ArchiveWork::Withdraw { .. } | ArchiveWork::Clear { .. } | ArchiveWork::Dvr(_) => {
                    panic!("{work:?}")
                }
            }
        }
        self.copy.job_done(self.now, outcome);
        self.check();
    }

    fn remove(&mut self, at: &[String], begun_ms: Option<i64>) {
        assert_eq!(at, path("cam.m3u8"));
        let Some(list) = self.list() else { return };
        if begun_ms.is_none() || begun_ms == list.segments[0].program_date_time {
            self.disk.clear();
        }
    }

    /// Does all pending jobs, all of which succeed.
    fn settle(&mut self) {
        while self.hand_out() {
            self.done(Outcome::Archived(Ok(())));
        }
    }

    /// The playlist on the disk.
    fn list(&self) -> Option<MediaPlaylist> {
        self.disk.get("cam.m3u8").map(|text| read(text))
    }

    /// Checks that no file named by a playlist is missing.
    fn check(&self) {
        let names = |segment: &Segment| {
            let map = segment.map.as_ref().map(|map| map.uri.clone());
            [Some(segment.uri.clone()), map].into_iter().flatten().collect::<Vec<_>>()
        };
        for segment in self.list().iter().flat_map(|list| &list.segments).filter(|segment| !segment.gap) {
            for name in names(segment) {
                assert!(self.disk.contains_key(&name), "{name} is not on the disk");
            }
        }
        for segment in self.shown.segments.iter().filter(|segment| !segment.gap) {
            for name in names(segment) {
                let is_there =
                    self.disk.contains_key(&name) || self.memory.contains_key(&format!("a/{name}"));
                assert!(is_there, "{name} cannot be fetched");
            }
        }
    }
}

#[test]
fn an_event_names_everything_on_the_disk_and_to_viewers() {
    for fragmented in [false, true] {
        let mut rig = Rig::new("event", &[("deleteHLSFilesOnEnded", "false")], fragmented);
        rig.disk.insert("cam.m3u8".into(), Bytes::from_static(b"#EXTM3U\n#EXTINF:2,\nold.ts\n"));
        rig.disk.insert("old.ts".into(), Bytes::new());
        for number in 1..=20 {
            rig.segment(number, 1000);
            rig.settle();
        }
        assert!(!rig.disk.contains_key("old.ts"), "what was there before is gone");
        for list in [rig.list().unwrap(), rig.shown.clone()] {
            assert_eq!((list.segments.len(), list.kind, list.ended), (20, Some(Kind::Event), false));
            assert_eq!((list.media_sequence, list.segments.iter().any(|segment| segment.gap)), (1, false));
        }
        assert!(rig.memory.len() <= LIST_SIZE + 1, "{:?}", rig.memory.keys());
        assert!(!rig.copy.is_settled());
        rig.end();
        rig.settle();
        assert!(rig.copy.is_settled() && rig.list().unwrap().ended && rig.shown.ended);
        assert_eq!((rig.copy.poll_timeout(), rig.disk.len()), (None, 21 + usize::from(fragmented)));
    }
}

#[test]
fn a_vod_is_one_at_the_end_and_live_viewers_have_the_newest_segments() {
    let mut rig = Rig::new("vod", &[("deleteHLSFilesOnEnded", "false")], false);
    for number in 1..=10 {
        rig.segment(number, 1000);
        rig.settle();
        assert_eq!(rig.list().unwrap().kind, Some(Kind::Event), "a crash leaves what can be played");
        assert!(rig.shown.segments.len() <= LIST_SIZE && rig.shown.kind.is_none());
    }
    rig.end();
    rig.settle();
    let list = rig.list().unwrap();
    assert_eq!((list.segments.len(), list.kind, list.ended), (10, Some(Kind::Vod), true));
}

#[test]
fn t_09_whatever_the_disk_does_no_playlist_names_what_is_missing() {
    for seed in 0..300 {
        let mut random = Seed::from_number(seed).random();
        let kind = if random.below(2) == 0 { "event" } else { "vod" };
        let mut rig = Rig::new(kind, &[("deleteHLSFilesOnEnded", "false")], random.below(2) == 0);
        let (segments, mut lost, mut bad) = (30, false, 0);
        for number in 1..=segments {
            rig.segment(number, usize::try_from(random.below(4 << 20)).unwrap());
            for _ in 0..random.below(5) {
                if !rig.hand_out() {
                    rig.now += Duration::from_millis(250);
                    rig.copy.handle_timeout(rig.now);
                    continue;
                }
                // Several jobs in a row fail.
                bad = if bad > 0 {
                    bad - 1
                } else if random.below(20) == 0 {
                    1 + random.below(8)
                } else {
                    0
                };
                lost |= bad > 0;
                let outcome = match (bad, random.below(4)) {
                    (0, _) => Outcome::Archived(Ok(())),
                    (_, 0) => Outcome::Busy,
                    (_, 1) => Outcome::Failed,
                    (_, 2) => Outcome::Archived(Err(AppendError::Full)),
                    (_, _) => Outcome::Archived(Err(AppendError::Failed)),
                };
                rig.done(outcome);
            }
        }
        rig.end();
        for _ in 0..200 {
            rig.now += Duration::from_millis(250);
            rig.copy.handle_timeout(rig.now);
            rig.settle();
        }
        let list = rig.list().unwrap();
        assert!(rig.copy.is_settled() && list.ended, "{seed}");
        assert_eq!(list.segments.len(), usize::try_from(segments).unwrap(), "{seed}: gaps count");
        let gaps = list.segments.iter().filter(|segment| segment.gap).count();
        assert!(lost || gaps == 0 || rig.disk.len() < 31, "{seed}: {gaps} gaps");
        assert_eq!(list.version >= 8, gaps > 0, "{seed}");
    }
}

#[test]
fn a_disk_that_hangs_costs_no_more_than_the_cap() {
    let mut rig = Rig::new("event", &[], false);
    assert!(rig.hand_out());
    for number in 1..=100 {
        rig.segment(number, 1 << 20);
    }
    let held: usize = rig.memory.values().map(Bytes::len).sum();
    assert!(held <= (32 << 20) + LIST_SIZE * (1 << 20), "{held}");
    assert_eq!(rig.shown.segments.iter().filter(|segment| segment.gap).count(), 100 - 32 - LIST_SIZE);
}

#[test]
fn files_go_when_the_last_viewers_have_had_their_time() {
    let mut rig = Rig::new("event", &[], false);
    (1..=5).for_each(|number| rig.segment(number, 10));
    rig.settle();
    rig.end();
    rig.settle();
    let at = rig.copy.poll_timeout().unwrap();
    assert_eq!(at - rig.now, Duration::from_secs(6), "hlsTime times hlsListSize");
    rig.now = at - Duration::from_millis(1);
    assert!(!rig.hand_out() && !rig.copy.is_settled());
    rig.now = at;
    assert!(rig.hand_out());
    rig.done(Outcome::Busy);
    assert!(!rig.copy.is_settled() && !rig.hand_out());
    rig.now += Duration::from_secs(1);
    rig.copy.handle_timeout(rig.now);
    rig.settle();
    assert!(rig.copy.is_settled() && rig.disk.is_empty());
    // If the server shuts down, the files are removed immediately, but never those of a later stream of the same name.
    let mut rig = Rig::new("event", &[], false);
    (1..=5).for_each(|number| rig.segment(number, 10));
    rig.end();
    rig.settle();
    rig.copy.hurry(rig.now);
    let newer = "#EXTM3U\n#EXT-X-PROGRAM-DATE-TIME:2026-11-25T03:00:00.000+00:00\n#EXTINF:2,\ncam0001.ts\n";
    rig.disk.insert("cam.m3u8".into(), Bytes::from_static(newer.as_bytes()));
    rig.disk.insert("cam0001.ts".into(), Bytes::new());
    rig.settle();
    assert!(rig.copy.is_settled() && rig.disk.contains_key("cam0001.ts"));
}

#[test]
fn a_playlist_is_full_at_its_bound_and_live_viewers_go_on() {
    for (kind, is_of_track) in [("event", false), ("vod", false), ("event", true), ("vod", true)] {
        let mut rig = Rig::new(kind, &[], false);
        if is_of_track {
            let settings = [("hlsPlayListType", kind), ("hlsListSize", "3")];
            rig.copy = Plan::of(&order(&settings)).of_track("a/cam.m3u8").unwrap();
        }
        rig.digits = 2000;
        let mut number = 0;
        while rig.list().is_none_or(|list| !list.ended) {
            assert!(number < 1000, "{kind}, of a track: {is_of_track}");
            for _ in 0..64 {
                number += 1;
                rig.segment(number, 1);
            }
            rig.settle();
        }
        let list = rig.list().unwrap();
        assert!(list.segments.len() > 400, "{}", list.segments.len());
        assert!(rig.disk["cam.m3u8"].len() < PLAYLIST_BYTES_MAX, "what is longer is never read");
        rig.segment(number + 1, 1);
        rig.settle();
        assert_eq!(rig.shown.segments.len(), LIST_SIZE);
        assert!(!rig.hand_out());
    }
}

#[test]
fn without_the_setting_there_is_none() {
    assert!(copies(&[]).is_empty());
    assert!(!copies(&[("hlsPlayListType", "EVENT")]).is_empty());
}

/// A server that accepts files, and lists those that it has.
#[derive(Default)]
struct Remote {
    files: BTreeMap<String, Bytes>,
    tries: usize,
}

impl Remote {
    fn serve(&mut self, rig: &mut Rig, fails: impl Fn(&str) -> bool) {
        for _ in 0..100 {
            let Some(work) = rig.copy.next_job(rig.now) else {
                let Some(at) = rig.copy.poll_timeout() else { break };
                rig.now = at;
                rig.copy.handle_timeout(at);
                continue;
            };
            let Work::Relay(work) = work else { panic!("{work:?}") };
            assert_eq!(work.url.as_str(), "http://origin.example/live?key=1");
            self.tries += 1;
            let outcome = if fails(&work.name) {
                Err("503".to_owned())
            } else if let Some(data) = work.data {
                self.files.insert(work.name, data);
                Ok(())
            } else {
                self.files.remove(&work.name);
                Ok(())
            };
            rig.copy.job_done(rig.now, Outcome::Relayed(outcome));
            self.check();
        }
    }

    fn list(&self) -> MediaPlaylist {
        read(&self.files["cam.m3u8"])
    }

    fn check(&self) {
        let Some(text) = self.files.get("cam.m3u8") else { return };
        let list = read(text);
        for segment in list.segments.iter().filter(|segment| !segment.gap) {
            assert!(self.files.contains_key(&segment.uri), "{}", segment.uri);
        }
    }
}

fn pushed() -> Rig {
    let mut rig = Rig::new("event", &[], false);
    let url = ("hlsHttpEndpoint", "http://origin.example/live?key=1");
    rig.copy = copies(&[url, ("hlsListSize", "3")]).remove(0);
    rig
}

#[test]
fn a_server_has_what_memory_has() {
    let (mut rig, mut remote) = (pushed(), Remote::default());
    for number in 1..=20_u32 {
        rig.segment(number.into(), 100);
        remote.serve(&mut rig, |_| false);
        let list = remote.list();
        assert_eq!((list.segments.len(), list.kind), (LIST_SIZE.min(usize::try_from(number).unwrap()), None));
        assert_eq!((list.media_sequence, list.ended), (rig.live.media_sequence, false));
    }
    assert_eq!(remote.files.len(), LIST_SIZE + 1, "{:?}", remote.files.keys());
    rig.end();
    remote.serve(&mut rig, |_| false);
    assert!(remote.list().ended && rig.copy.is_settled());
}

#[test]
fn a_range_that_goes_on_is_at_the_first_segment_that_a_server_has() {
    let (mut rig, mut remote) = (pushed(), Remote::default());
    for number in 1..=12 {
        if number == 2 {
            let range = DateRange {
                id: "7-4000".to_owned(),
                start_ms: BEGUN_MS + 4000,
                duration: None,
                planned: None,
                splice: None,
                parts_before: 0,
            };
            rig.ranges = vec![range];
        }
        rig.segment(number, 100);
        remote.serve(&mut rig, |_| false);
        let ranges = |list: &MediaPlaylist| -> Vec<usize> {
            list.segments.iter().map(|segment| segment.date_ranges.len()).collect()
        };
        assert_eq!(ranges(&remote.list()), ranges(&rig.live), "{number}");
        assert_eq!(ranges(&remote.list()).iter().sum::<usize>(), usize::from(number > 1));
    }
}

#[test]
fn what_a_server_does_not_take_is_tried_again_and_then_a_gap() {
    let (mut rig, mut remote) = (pushed(), Remote::default());
    (1..=2).for_each(|number| rig.segment(number, 100));
    remote.serve(&mut rig, |name| name == "cam000000002.ts");
    assert_eq!((remote.tries, remote.list().segments[1].gap), (2 + 3 + 1, true));
    // The server is down for a long time, and returns.
    (3..=12).for_each(|number| {
        rig.segment(number, 100);
        remote.serve(&mut rig, |_| true);
    });
    rig.segment(13, 100);
    remote.serve(&mut rig, |_| false);
    let list = remote.list();
    assert_eq!((list.media_sequence, list.segments.len()), (11, LIST_SIZE));
    assert_eq!(list.segments.iter().map(|segment| segment.gap).collect::<Vec<_>>(), [true, true, false]);
    rig.end();
    remote.serve(&mut rig, |_| true);
    assert!(rig.copy.is_settled(), "the session ends all the same");
}

#[test]
fn a_server_that_hangs_costs_no_more_than_the_cap() {
    let mut rig = pushed();
    assert!(rig.copy.next_job(rig.now).is_none());
    (1..=100).for_each(|number| rig.segment(number, 1 << 20));
    assert!(rig.copy.next_job(rig.now).is_some());
    assert!(rig.memory.len() <= LIST_SIZE, "memory does not wait for it");
}

#[test]
fn what_waits_for_a_server_is_given_up_when_this_one_goes_down() {
    let (mut rig, mut remote) = (pushed(), Remote::default());
    (1..=3).for_each(|number| rig.segment(number, 100));
    remote.serve(&mut rig, |_| false);
    (4..=6).for_each(|number| rig.segment(number, 100));
    assert!(rig.copy.next_job(rig.now).is_some(), "one is on its way");
    rig.end();
    rig.copy.hurry(rig.now);
    let tries = remote.tries;
    rig.copy.job_done(rig.now, Outcome::Relayed(Err("timed out".to_owned())));
    remote.serve(&mut rig, |_| false);
    assert_eq!(remote.tries, tries + 1, "the playlist alone");
    let list = remote.list();
    assert!(list.ended && list.segments.iter().all(|segment| segment.gap) && rig.copy.is_settled());
}
