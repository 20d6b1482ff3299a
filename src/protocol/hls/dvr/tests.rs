//! A stream's segments on a disk that fails, is slow or full, and viewers who rewind.

mod again;

use std::sync::Arc;
use std::time::Duration;

use crypto::Seed;
use hls::Playlist;
use hls::playlist::{DateRange, Map};

use super::list::{Choice, select};
use super::*;

const BEGUN_MS: i64 = 1_795_806_797_674;
const LIST_SIZE: usize = 5;
const SEGMENT: Duration = Duration::from_secs(2);
const LEAVING_SEGMENTS: u64 = LEAVING_MS.unsigned_abs() / 2000;

/// A stream, its disk, and its segments in memory.
struct Rig {
    dvr: Dvr,
    now: Instant,
    disk: BTreeMap<String, Bytes>,
    memory: BTreeMap<String, Bytes>,
    live: MediaPlaylist,
    job: Option<DvrWork>,
    /// The initialization section of following segments; 0 for none.
    map: u32,
    /// Number of segments so far; and the largest number of bytes that were on the disk.
    number: u64,
    most: u64,
    settings: DvrSettings,
    /// URIs of segments by number, as they were first listed to viewers.
    seen: BTreeMap<u64, String>,
}

fn settings(window: u64, max_bytes: u64) -> DvrSettings {
    DvrSettings { window: Duration::from_secs(window), max_bytes }
}

fn read(text: &[u8]) -> MediaPlaylist {
    match Playlist::read(text).unwrap() {
        Playlist::Media(playlist) => playlist,
        Playlist::Multivariant(_) => panic!("{text:?}"),
    }
}

impl Rig {
    fn new(settings: DvrSettings, first: u64, disk: BTreeMap<String, Bytes>) -> Self {
        let live = MediaPlaylist {
            version: 6,
            target_duration: SEGMENT,
            media_sequence: first,
            discontinuity_sequence: first % 7,
            independent_segments: true,
            ..MediaPlaylist::default()
        };
        let mut rig = Self {
            dvr: Dvr::new(settings, "live", "a/cam.m3u8"),
            now: Instant::now(),
            disk,
            memory: BTreeMap::new(),
            live,
            job: None,
            map: 0,
            number: first,
            most: 0,
            settings,
            seen: BTreeMap::new(),
        };
        assert!(rig.hand_out());
        rig
    }

    fn publish(&mut self, name: &str, bytes: usize) {
        let bytes = Bytes::from(vec![7; bytes]);
        self.memory.insert(name.to_owned(), bytes.clone());
        self.dvr.add(&format!("a/{name}"), bytes);
    }

    /// Cuts a segment.
    fn segment(&mut self, bytes: usize, discontinuity: bool) {
        if discontinuity && self.map > 0 {
            self.map += 1;
            self.publish(&format!("cam_{}_init.mp4", self.map), 10);
        }
        let uri = format!("cam{:09}.m4s", self.number);
        self.publish(&uri, bytes);
        let map = (self.map > 0).then(|| {
            Arc::new(Map { uri: format!("cam_{}_init.mp4", self.map), byte_range: None, key: None })
        });
        self.live.segments.push(Segment {
            uri,
            duration: SEGMENT,
            program_date_time: Some(BEGUN_MS + i64::try_from(self.number).unwrap() * 2000),
            discontinuity,
            map,
            ..Segment::default()
        });
        self.number += 1;
        let mut gone = Vec::new();
        while self.live.segments.len() > LIST_SIZE {
            let first = self.live.segments.remove(0);
            gone.push(format!("a/{}", first.uri));
            self.live.media_sequence += 1;
            self.live.discontinuity_sequence += u64::from(first.discontinuity);
        }
        self.dvr.note(&self.live);
        for name in self.dvr.release(gone) {
            self.memory.remove(name.strip_prefix("a/").unwrap());
        }
        self.check();
    }

    fn hand_out(&mut self) -> bool {
        if self.job.is_none() {
            self.job = self.dvr.next_job(self.now).map(|work| {
                let Work::Archive(ArchiveWork::Dvr(work)) = work else { panic!("{work:?}") };
                work
            });
        }
        self.job.is_some()
    }

    fn bytes(&self) -> u64 {
        self.disk.values().map(|bytes| u64::try_from(bytes.len()).unwrap()).sum()
    }

    /// Ends the job with the result of the disk, or with `other`.
    fn done(&mut self, other: Option<Outcome>) {
        let work = self.job.take().unwrap();
        let outcome = other.unwrap_or_else(|| {
            let mut lists = Vec::new();
            let mut result = Ok(());
            match work {
                DvrWork::Put { folder, name, data, cap, .. } => {
                    assert_eq!(folder, ["live", ".dvr", "a%2Fcam"].map(str::to_owned));
                    let replaced =
                        self.disk.get(&name).map_or(0, |bytes| u64::try_from(bytes.len()).unwrap());
                    if self.bytes() - replaced + u64::try_from(data.len()).unwrap() > cap {
                        result = Err(AppendError::Full);
                    } else {
                        let old = self.disk.insert(name.clone(), data.clone());
                        assert!(name.ends_with(LIST) || old.is_none_or(|old| old == data), "{name} twice");
                    }
                }
                DvrWork::Drop { names, .. } => names.iter().for_each(|name| drop(self.disk.remove(name))),
                DvrWork::Clear { .. } => self.disk.clear(),
                DvrWork::Sweep { .. } | DvrWork::ClearAll { .. } => panic!("the server does that"),
                DvrWork::Resume { .. } => {
                    lists.extend(
                        self.disk
                            .iter()
                            .filter(|(name, _)| name.ends_with(LIST))
                            .map(|(_, list)| list.clone()),
                    );
                }
            }
            let done = DvrDone {
                lists,
                app_bytes: self.bytes(),
                streams: 1,
                stream_bytes: self.bytes(),
                is_taken: false,
            };
            Outcome::Dvr(result.map(|()| done))
        });
        self.most = self.most.max(self.bytes());
        self.dvr.job_done(self.now, outcome);
        if self.dvr.stage.is_ready && !self.disk.is_empty() {
            self.check();
        }
    }

    fn settle(&mut self) {
        while self.hand_out() {
            self.done(None);
        }
    }

    /// A viewer's playlist.
    fn shown(&self, choice: Choice) -> Option<MediaPlaylist> {
        let text = Bytes::from(self.dvr.text(&self.live)?);
        Some(read(&select(&text, choice).unwrap().concat()))
    }

    /// Checks that every listed segment exists, and that segments seen before have not changed.
    fn check(&mut self) {
        assert!(self.most <= self.settings.max_bytes, "{} bytes", self.most);
        let Some(all) = self.shown(Choice::default()) else { return };
        for (segment, number) in all.segments.iter().zip(all.media_sequence..) {
            let seen = self.seen.entry(number).or_insert_with(|| segment.uri.clone());
            assert_eq!(*seen, segment.uri, "number {number}");
            let names = [Some(&segment.uri), segment.map.as_ref().map(|map| &map.uri)];
            for name in names.into_iter().flatten().filter(|_| !segment.gap) {
                assert!(self.disk.contains_key(name) || self.memory.contains_key(name), "{name}");
            }
        }
        let last = self.live.segments.last().map(|segment| segment.uri.clone());
        assert!(
            !self.dvr.stage.is_ready
                || all.segments.last().map(|segment| segment.uri.clone()) == last
                || self.dvr.next < self.number
        );
    }
}

#[test]
fn a_window_is_on_the_disk_and_slides() {
    for map in [0, 1] {
        let mut rig = Rig::new(settings(120, 1 << 30), 100, BTreeMap::new());
        rig.map = map;
        rig.publish("cam_1_init.mp4", 10);
        for number in 0..400_u64 {
            rig.segment(1000, number % 50 == 33);
            rig.settle();
        }
        let all = rig.shown(Choice::default()).unwrap();
        let count = u64::try_from(all.segments.len()).unwrap();
        let chunk = u64::try_from(CHUNK).unwrap();
        assert!((60..60 + 2 * chunk).contains(&count), "{count}");
        assert_eq!(all.media_sequence + count, rig.number);
        assert_eq!(all.discontinuity_sequence, 100 % 7 + 7, "those of 100 to 400 that have left");
        assert!(rig.memory.len() <= LIST_SIZE + 10, "{:?}", rig.memory.keys());
        // Segments stay for a while after they have left the playlist.
        let segments = rig.disk.keys().filter(|name| name.ends_with(".m4s")).count();
        assert!(u64::try_from(segments).unwrap() <= count + LEAVING_SEGMENTS + chunk, "{segments}");
        assert!(rig.disk.len() < segments + 20, "{:?}", rig.disk.keys());
        assert!(rig.dvr.files.sizes.is_empty() || rig.dvr.files.sizes.len() == usize::from(map == 0));
    }
}

#[test]
fn a_beginning_an_end_and_a_change_are_those_of_the_whole() {
    let mut rig = Rig::new(settings(300, 1 << 30), 7, BTreeMap::new());
    rig.map = 1;
    rig.publish("cam_1_init.mp4", 10);
    for number in 0..200_u64 {
        rig.segment(10, number % 13 == 12);
        rig.settle();
    }
    let before = rig.shown(Choice::default()).unwrap();
    rig.segment(10, false);
    let all = rig.shown(Choice::default()).unwrap();
    let dates = |list: &MediaPlaylist| list.segments.iter().filter_map(|one| one.program_date_time).count();
    assert!(dates(&all) < all.segments.len(), "not each has a date");
    let begin_ms = |at: usize| {
        let number = all.media_sequence + u64::try_from(at).unwrap();
        BEGUN_MS + i64::try_from(number).unwrap() * 2000
    };
    for (at, wanted) in all.segments.iter().enumerate() {
        for ms in [0, 1, 1999] {
            let choice = Choice { start_ms: Some(begin_ms(at) + ms), ..Choice::default() };
            let text = Bytes::from(rig.dvr.text(&rig.live).unwrap());
            let parts = select(&text, choice).unwrap().concat();
            let list = read(&parts);
            assert_eq!(list.media_sequence, all.media_sequence + u64::try_from(at).unwrap());
            let passed = all.segments[..at].iter().filter(|segment| segment.discontinuity).count();
            assert_eq!(
                list.discontinuity_sequence,
                all.discontinuity_sequence + u64::try_from(passed).unwrap()
            );
            assert_eq!(list.segments.len(), all.segments.len() - at);
            let first = &list.segments[0];
            assert_eq!((&first.uri, &first.map), (&wanted.uri, &wanted.map));
            assert_eq!(first.program_date_time, Some(begin_ms(at)));
            let start = format!("#EXT-X-START:TIME-OFFSET={}.{:03}", ms / 1000, ms % 1000);
            assert!(String::from_utf8(parts).unwrap().contains(&start), "{start}");
            // With a delta update, a player that has the previous playlist gets the same segments.
            let delta = rig.shown(Choice { has_rest: true, ..choice }).unwrap();
            assert_eq!(delta.media_sequence, list.media_sequence);
            let skipped = usize::try_from(delta.skipped).unwrap();
            let uris =
                |list: &MediaPlaylist| list.segments.iter().map(|one| one.uri.clone()).collect::<Vec<_>>();
            assert_eq!(uris(&delta), uris(&list)[skipped..]);
            assert!(skipped == 0 || delta.segments.len() < 6 + 2 * CHUNK && delta.version == 9, "{skipped}");
            assert!(skipped <= before.segments.len());
        }
        for until in [at, at + 1, at + 20, all.segments.len() + 9] {
            let choice =
                Choice { end_ms: Some(begin_ms(until)), start_ms: Some(begin_ms(at)), ..Choice::default() };
            let list = rig.shown(choice).unwrap();
            assert!(list.ended && list.kind == Some(hls::playlist::Kind::Vod));
            assert_eq!(list.segments.len(), until.min(all.segments.len()) - at, "{at} to {until}");
        }
    }
    // The beginning of the playlist advances with the clock. No line of a segment changes between reloads, and
    // `EXT-X-START` always points to the chosen time.
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for ms in (begin_ms(0)..begin_ms(all.segments.len())).step_by(700) {
        let choice = Choice { start_ms: Some(ms), is_sliding: true, ..Choice::default() };
        let text = String::from_utf8(
            select(&Bytes::from(rig.dvr.text(&rig.live).unwrap()), choice).unwrap().concat(),
        )
        .unwrap();
        let (_, start) = text.split_once("#EXT-X-START:TIME-OFFSET=").unwrap();
        let (offset, rest) = start.split_once(",PRECISE=YES\n").unwrap();
        let first = read(text.as_bytes()).segments[0].program_date_time.unwrap();
        let offset_ms: i64 = offset.replace('.', "").parse().unwrap();
        assert_eq!(first + offset_ms, ms);
        let mut of_segment = String::new();
        for line in rest.lines().filter(|line| !line.starts_with("#MILLSTREAM")) {
            of_segment.push_str(line);
            if !line.starts_with('#') {
                let before = lines.entry(line.to_owned()).or_insert_with(|| of_segment.clone());
                assert_eq!(*before, of_segment);
                of_segment.clear();
            }
        }
    }
    // A beginning before the first segment, and one after the last.
    let first = rig.shown(Choice { start_ms: Some(0), ..Choice::default() }).unwrap();
    assert_eq!(first.segments.len(), all.segments.len());
    let last = rig.shown(Choice { start_ms: Some(i64::MAX), ..Choice::default() }).unwrap();
    assert_eq!(last.segments.len(), 1);
    rig.live.ended = true;
    rig.dvr.note(&rig.live);
    assert!(rig.shown(Choice { start_ms: Some(begin_ms(3)), ..Choice::default() }).unwrap().ended);
}

#[test]
fn a_beginning_within_a_range_of_dates_has_it() {
    let mut rig = Rig::new(settings(600, 1 << 30), 0, BTreeMap::new());
    rig.done(None);
    for number in 0..60_i64 {
        rig.segment(10, false);
        if number == 10 || number == 20 {
            // The date range belongs to a segment that is not listed yet. The rig lists each segment immediately,
            // so the test adds the range by hand.
            let range = DateRange {
                id: format!("range-{number}"),
                start_ms: BEGUN_MS + number * 2000,
                duration: None,
                planned: Some(Duration::from_secs(if number == 10 { 4 } else { 40 })),
                splice: None,
                parts_before: 0,
            };
            rig.dvr.reach.recent().back_mut().unwrap().segment.date_ranges.push(range);
        }
        rig.settle();
    }
    let ids = |number: i64, is_sliding| {
        let start_ms = Some(BEGUN_MS + number * 2000);
        let list = rig.shown(Choice { start_ms, is_sliding, ..Choice::default() }).unwrap();
        let ids: Vec<String> =
            list.segments.iter().flat_map(|one| &one.date_ranges).map(|range| range.id.clone()).collect();
        (list.segments[0].date_ranges.len(), ids.join(" "))
    };
    assert_eq!(ids(5, false), (0, "range-10 range-20".to_owned()));
    assert_eq!(ids(11, false), (1, "range-10 range-20".to_owned()));
    assert_eq!(ids(15, false), (0, "range-20".to_owned()));
    assert_eq!(ids(33, false), (1, "range-20".to_owned()));
    assert_eq!(ids(34, true).0, 1, "it begins with the chunk of 32");
    assert_eq!(ids(50, false), (0, String::new()));
    let delta = Choice { start_ms: Some(BEGUN_MS), has_rest: true, ..Choice::default() };
    let delta = rig.shown(delta).unwrap();
    assert!(delta.skipped > 20 && delta.segments[0].date_ranges.len() == 2, "all are in a delta update");
}

#[test]
fn a_beginning_behind_many_ranges_of_dates_has_the_one_that_is_open() {
    let mut rig = Rig::new(settings(600, 1 << 30), 0, BTreeMap::new());
    rig.done(None);
    for number in 0..60_i64 {
        rig.segment(10, false);
        // Three hundred short ranges precede the long one.
        let ranges = if number < 30 { 0..10 } else { 0..i64::from(number == 35) };
        for n in ranges {
            let range = DateRange {
                id: format!("range-{number}-{n}"),
                start_ms: BEGUN_MS + number * 2000,
                duration: None,
                planned: Some(Duration::from_secs(if number == 35 { 40 } else { 1 })),
                splice: None,
                parts_before: 0,
            };
            rig.dvr.reach.recent().back_mut().unwrap().segment.date_ranges.push(range);
        }
        rig.settle();
    }
    let list = rig.shown(Choice { start_ms: Some(BEGUN_MS + 45 * 2000), ..Choice::default() }).unwrap();
    let ids: Vec<&str> = list.segments[0].date_ranges.iter().map(|range| range.id.as_str()).collect();
    assert_eq!(ids, ["range-35-0"]);
}

#[test]
fn t_19_whatever_the_disk_does_viewers_can_fetch_what_is_listed() {
    for seed in 0..200 {
        let mut random = Seed::from_number(seed).random();
        let cap = if random.below(3) == 0 { 60_000 } else { 1 << 30 };
        let mut rig = Rig::new(settings(100, cap), 1000, BTreeMap::new());
        rig.map = u32::try_from(random.below(2)).unwrap();
        rig.publish("cam_1_init.mp4", 10);
        let mut bad = 0;
        for _ in 0..150 {
            rig.segment(usize::try_from(random.below(4000)).unwrap(), random.below(20) == 0);
            for _ in 0..random.below(6) {
                if !rig.hand_out() {
                    rig.now += Duration::from_millis(250);
                    rig.dvr.handle_timeout(rig.now);
                    continue;
                }
                bad = match bad {
                    0 if random.below(20) == 0 => 1 + random.below(8),
                    0 => 0,
                    more => more - 1,
                };
                rig.done(match (bad, random.below(4)) {
                    (0, _) => None,
                    (_, 0) => Some(Outcome::Busy),
                    (_, 1) => Some(Outcome::Failed),
                    (_, 2) => Some(Outcome::Dvr(Err(AppendError::Full))),
                    (_, _) => Some(Outcome::Dvr(Err(AppendError::Failed))),
                });
            }
        }
        rig.live.ended = true;
        rig.dvr.note(&rig.live);
        rig.dvr.finish();
        for _ in 0..50 {
            rig.now += Duration::from_millis(250);
            rig.dvr.handle_timeout(rig.now);
            rig.settle();
        }
        assert!(rig.dvr.is_settled() && rig.shown(Choice::default()).unwrap().ended, "{seed}");
        // The next run of the stream continues with exactly the segments of this run.
        let ended = rig.shown(Choice::default()).unwrap();
        let (disk, seen, number) = (rig.disk, rig.seen, rig.number);
        let mut next = Rig::new(settings(100, cap), number + 3, disk);
        next.seen = seen;
        next.done(None);
        let resumed = next.shown(Choice::default()).unwrap();
        // Segments older than the window may still be on the disk.
        let older = uris(&resumed).len() - uris(&ended).len();
        assert!(uris(&resumed).ends_with(&uris(&ended)) && older <= 2 * CHUNK, "{seed}");
        assert!(
            resumed.version >= GAP_VERSION || resumed.segments.iter().all(|segment| !segment.gap),
            "{seed}"
        );
        next.map = u32::from(rig.map > 0) * 90;
        next.publish("cam_90_init.mp4", 10);
        next.segment(100, false);
        next.settle();
        let list = next.shown(Choice::default()).unwrap();
        let at =
            list.segments.iter().position(|segment| segment.uri.ends_with(&format!("{:09}.m4s", number + 3)));
        assert!(at.is_some_and(|at| at > 0 && list.segments[at].discontinuity), "{seed}");
    }
}

#[test]
fn a_full_disk_shortens_the_window_and_one_that_stays_full_leaves_gaps() {
    let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
    for _ in 0..60 {
        rig.segment(1000, false);
        rig.settle();
    }
    let all = rig.shown(Choice::default()).unwrap();
    assert_eq!(all.segments.len(), 60);
    // The disk is full. Whenever a segment does not fit, a chunk is removed and the segment is tried again. Once
    // there is no chunk to remove, the segment becomes a gap.
    for _ in 0..20 {
        rig.segment(1000, false);
        while rig.hand_out() {
            let is_put = matches!(&rig.job, Some(DvrWork::Put { .. }));
            rig.done(is_put.then_some(Outcome::Dvr(Err(AppendError::Full))));
        }
    }
    let full = rig.shown(Choice::default()).unwrap();
    assert!(full.media_sequence > all.media_sequence && full.version >= GAP_VERSION);
    assert!(full.segments.iter().any(|segment| segment.gap));
    let newest = &full.segments[full.segments.len() - LIST_SIZE..];
    assert!(newest.iter().all(|segment| !segment.gap), "memory has them");
    // The disk has room again.
    for _ in 0..40 {
        rig.segment(1000, false);
        rig.settle();
    }
    let after = rig.shown(Choice::default()).unwrap();
    assert!(after.segments[after.segments.len() - 30..].iter().all(|segment| !segment.gap));
}

#[test]
fn a_disk_that_hangs_costs_no_more_than_the_cap() {
    for is_ready in [true, false] {
        let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
        if is_ready {
            rig.done(None);
            rig.segment(1 << 20, false);
            assert!(rig.hand_out());
        }
        for _ in 0..100 {
            rig.segment(1 << 20, false);
        }
        let held: usize = rig.memory.values().map(Bytes::len).sum();
        assert!(held <= HELD_BYTES_MAX + LIST_SIZE * (1 << 20), "{held}");
        let gaps = |rig: &Rig| {
            let shown = rig.shown(Choice::default());
            shown.map(|list| list.segments.iter().filter(|segment| segment.gap).count())
        };
        assert_eq!(gaps(&rig), is_ready.then_some(101 - 32 - LIST_SIZE));
        // The stream continues as if nothing had happened.
        rig.done(None);
        rig.segment(10, false);
        rig.settle();
        rig.segment(10, false);
        assert_eq!(
            rig.shown(Choice::default()).unwrap().segments.last().unwrap().uri,
            format!("cam{:09}.m4s", rig.number - 1)
        );
    }
}

#[test]
fn a_disk_that_hangs_for_longer_than_the_window_leaves_no_more_than_the_window() {
    for is_ready in [true, false] {
        let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
        if is_ready {
            rig.done(None);
            rig.segment(1 << 20, false);
            assert!(rig.hand_out());
        }
        (0..300).for_each(|_| rig.segment(1 << 20, false));
        let listed = rig.dvr.reach.recent().len();
        assert!(listed <= 30 + CHUNK && rig.dvr.files.lost.len() <= listed + LIST_SIZE, "{listed}");
        assert!(rig.dvr.files.sizes.len() <= LIST_SIZE + 1);
    }
}

#[test]
fn a_stream_with_more_than_its_share_gives_up_its_oldest() {
    let mut rig = Rig::new(settings(3600, 100_000), 1, BTreeMap::new());
    rig.done(None);
    for _ in 0..60 {
        rig.segment(1000, false);
        rig.settle();
    }
    assert_eq!(rig.shown(Choice::default()).unwrap().segments.len(), 60);
    // Another stream has begun, and the two use nearly all bytes of `dvr.max_bytes`. This stream has more than its
    // share, so it removes segments.
    let usage =
        DvrDone { lists: Vec::new(), app_bytes: 95_000, streams: 2, stream_bytes: 62_000, is_taken: false };
    rig.segment(1000, false);
    assert!(rig.hand_out());
    rig.disk.insert("cam000000061.m4s".into(), Bytes::from(vec![7; 1000]));
    rig.done(Some(Outcome::Dvr(Ok(usage))));
    let bytes = rig.dvr.reach.bytes();
    assert!(bytes <= 100_000 / 8 * 7 / 2 && bytes > 20_000, "{bytes}");
    rig.settle();
    assert!(rig.bytes() < 60_000);
}

#[test]
fn a_stream_that_comes_back_in_another_form_begins_anew() {
    let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
    for _ in 0..40 {
        rig.segment(1000, false);
        rig.settle();
    }
    rig.dvr.finish();
    rig.settle();
    for (is_same, target) in [(true, 2), (false, 3)] {
        let mut next = Rig::new(settings(3600, 1 << 30), 500, rig.disk.clone());
        next.live.target_duration = Duration::from_secs(target);
        next.done(None);
        for _ in 0..3 {
            next.segment(1000, false);
            next.settle();
        }
        let list = next.shown(Choice::default()).unwrap();
        assert_eq!(list.segments.len(), if is_same { 43 } else { 3 });
        assert_eq!(list.media_sequence + u64::try_from(list.segments.len()).unwrap(), 44, "numbers go on");
        let old = next.disk.contains_key("cam000000001.m4s");
        assert_eq!(old, is_same);
    }
}

#[test]
fn what_a_deleted_stream_had_goes_with_it() {
    let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
    for _ in 0..40 {
        rig.segment(1000, false);
        rig.settle();
    }
    rig.segment(1000, false);
    rig.dvr.finish();
    rig.dvr.clear();
    rig.settle();
    assert!(rig.disk.is_empty() && rig.dvr.is_settled(), "{:?}", rig.disk.keys());
}

fn uris(list: &MediaPlaylist) -> Vec<String> {
    list.segments.iter().map(|segment| segment.uri.clone()).collect()
}

#[test]
fn a_day_of_segments_costs_text_alone_and_a_beginning_is_found_in_it() {
    let mut rig = Rig::new(settings(86_400, 1 << 40), 1, BTreeMap::new());
    rig.done(None);
    let mut reach = Reach::new(Duration::from_secs(86_400));
    let segments = 43_200_usize;
    for number in 0..segments {
        let segment = Segment {
            uri: format!("camera-of-the-hall{number:09}.ts"),
            duration: SEGMENT,
            program_date_time: Some(BEGUN_MS + i64::try_from(number).unwrap() * 2000),
            ..Segment::default()
        };
        reach.push(Listed { segment, bytes: 1_000_000, piece: None }, (SEGMENT, 3));
        if (number + 1) % CHUNK == 0 {
            reach.seal(CHUNK);
        }
    }
    let began = Instant::now();
    let text = Bytes::from(reach.text(false, None));
    println!("{} bytes of text in {:?}", text.len(), began.elapsed());
    assert!(text.len() < segments * 60, "{} bytes", text.len());
    let start = BEGUN_MS + i64::try_from(segments).unwrap() * 2000 - 30_000;
    let choice = Choice { start_ms: Some(start), ..Choice::default() };
    let began = Instant::now();
    (0..1000).for_each(|_| drop(select(&text, choice)));
    let parts = select(&text, choice).unwrap();
    println!("found in {:?}", began.elapsed() / 1001);
    assert!(parts.iter().map(Bytes::len).sum::<usize>() < 2000);
    let shared = text.as_ptr_range();
    assert!(shared.contains(&parts[1].as_ptr()), "no copy of it");
}
