//! A stream under random operations. The output of each viewer is checked unit by unit.

use bytes::Bytes;
use crypto::{Random, Seed};
use media::codec::vp8;
use media::{AccessUnit, CodecConfig, Timescale, Track};

use super::super::packager::tests::{PLAIN, Plain};
use super::*;
use crate::stats::ForwardingTable;
use crate::types::{ConnId, Handle};

/// Maximum time that a viewer may lag, in milliseconds.
const LAG_MS: i64 = 1000;
const VIEWERS_MAX: usize = 6;

/// A unit that was pushed.
#[derive(Debug, Clone, Copy)]
struct Known {
    dts_ms: i64,
    key: bool,
    epoch: u32,
}

struct Viewer {
    id: SubscriptionId,
    subscriber: Subscriber,
    /// The text that was sent to the viewer.
    text: String,
    /// True if the viewer was ever paused. Units that it missed during a pause do not count.
    was_paused: bool,
}

struct Model {
    stream: Stream,
    now: Instant,
    random: Random,
    tracks: Arc<Tracks>,
    known: Vec<Known>,
    viewers: Vec<Viewer>,
    subscribed: u32,
    forwarding: ForwardingIndex,
    /// True if a format was made to panic at a unit.
    left_out: bool,
}

fn tracks(epoch: u32) -> Arc<Tracks> {
    let config = CodecConfig::Vp8(vp8::Config::default());
    let track = Track { epoch, ..Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS) };
    Arc::new(Tracks::new(epoch, [track]))
}

impl Model {
    fn new(seed: u64) -> Self {
        let settings = AppSettings::with("live", &[("maxLatencyMs", "1000")]).unwrap();
        let key = StreamKey::new("live", "s");
        Self {
            stream: Stream::new(StreamId(1), key, WorkerId(0), Ingest::PULL, Arc::new(settings)),
            now: Instant::now(),
            random: Seed::from_number(seed).random(),
            tracks: tracks(1),
            known: Vec::new(),
            viewers: Vec::new(),
            subscribed: 0,
            forwarding: ForwardingTable::default().index(Ingest::PULL, "plain"),
            left_out: seed % 2 == 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap()
    }

    fn step(&mut self) {
        match self.below(20) {
            0..=7 => {
                let (key, pause_ms) = (self.below(12) == 0, if self.below(60) == 0 { 1500 } else { 33 });
                self.push(key, pause_ms);
            }
            8..=10 => self.stream.flush(),
            11..=15 => {
                let room = self.below(60);
                if let Some(index) = self.one() {
                    self.write(index, room);
                }
            }
            16 => self.subscribe(),
            17 => {
                if let Some(index) = self.one().filter(|_| self.below(3) == 0) {
                    self.unsubscribe(index);
                }
            }
            18 if self.left_out && self.below(2) == 0 => self.leave_out(),
            18 => self.pause_or_resume(),
            _ => self.trim(),
        }
    }

    fn one(&mut self) -> Option<usize> {
        let count = self.viewers.len();
        (count > 0).then(|| self.below(count))
    }

    fn push(&mut self, key: bool, after_ms: i64) {
        // Parameters change only at a key frame.
        if key && self.below(3) == 0 {
            self.tracks = tracks(self.tracks.epoch + 1);
        }
        let dts_ms = self.known.last().map_or(0, |last| last.dts_ms + after_ms);
        let epoch = self.tracks.epoch;
        self.known.push(Known { dts_ms, key, epoch });
        let (track, payload) = (TrackId::VIDEO, Bytes::from_static(b"x"));
        let unit =
            AccessUnit { track, dts: dts_ms, pts: dts_ms, key_frame: key, config_epoch: epoch, payload };
        let pushed = self.stream.push(self.now, Entry::new(self.now, 0, unit, Arc::clone(&self.tracks)));
        assert!(!key || pushed.trim, "with a key frame there is something to forget");
    }

    /// Simulates a format that panics at a unit with new parameters, after other formats have packaged the unit.
    fn leave_out(&mut self) {
        let dts_ms = self.known.last().map_or(0, |last| last.dts_ms + 1);
        let mut entry = super::super::ring::tests::entry(dts_ms, true, 1);
        entry.tracks = tracks(self.tracks.epoch + 1000);
        for packager in self.stream.formats.iter_mut() {
            packager.push(&entry);
        }
        self.stream.leave_out();
    }

    fn subscribe(&mut self) {
        if self.viewers.len() >= VIEWERS_MAX {
            return;
        }
        self.subscribed += 1;
        let conn = ConnId { slot: self.subscribed, generation: 0 };
        let id = SubscriptionId { conn, handle: Handle::ONLY };
        let package = || -> Option<Box<dyn Package>> { Some(Box::new(Plain)) };
        let subscriber =
            self.stream.subscribe(id, (PLAIN, FormatLimit::Plain), self.forwarding, package).unwrap();
        self.viewers.push(Viewer { id, subscriber, text: String::new(), was_paused: false });
    }

    fn unsubscribe(&mut self, index: usize) {
        let viewer = self.viewers.swap_remove(index);
        self.check(&viewer);
        self.stream.unsubscribe(viewer.id, &viewer.subscriber);
        assert!(!self.stream.subscribers.contains(&viewer.id));
        assert_eq!(self.stream.formats.iter().count(), usize::from(!self.viewers.is_empty()));
        assert!(self.stream.formats.slots() <= 1, "a slot that is free is used again");
    }

    fn pause_or_resume(&mut self) {
        let Some(index) = self.one() else { return };
        let viewer = &mut self.viewers[index];
        if viewer.subscriber.paused {
            self.stream.resume(&mut viewer.subscriber);
        } else {
            viewer.subscriber.paused = true;
            viewer.was_paused = true;
        }
    }

    /// Trims the ring as a worker does.
    fn trim(&mut self) {
        let (before, mut slowest) = (self.stream.ring.base(), None);
        for viewer in &mut self.viewers {
            self.stream.prepare(&mut viewer.subscriber);
            let next = viewer.subscriber.cursor.next();
            slowest = Some(slowest.map_or(next, |slowest: u64| slowest.min(next)));
        }
        self.stream.trim(slowest);
        let ring = &self.stream.ring;
        let start = ring.start().unwrap_or_else(|| ring.head());
        let needed = slowest.map_or(start, |slowest| slowest.min(start));
        assert_eq!(ring.base(), needed.max(before), "neither more nor less is retained than is needed");
    }

    /// Writes to a viewer once, at most `room` bytes.
    fn write(&mut self, index: usize, room: usize) {
        let viewer = &mut self.viewers[index];
        let subscriber = &mut viewer.subscriber;
        self.stream.prepare(subscriber);
        let next = subscriber.cursor.next();
        let ring = &self.stream.ring;
        if let (Some(entry), Some(key)) = (ring.get(next), ring.newest_key(TrackId::VIDEO)) {
            let behind_ms = ring.head_ms().unwrap() - entry.dts_ms;
            assert!(behind_ms <= LAG_MS || key <= next, "{behind_ms} ms behind, with a newer key frame");
        }
        let sent: Vec<u8> = {
            let mut gather = Gather::new(1 << 20);
            let _ = subscriber.cursor.gather_rest(&mut gather) && self.stream.gather(subscriber, &mut gather);
            gather.slices().iter().flat_map(|slice| slice.to_vec()).take(room).collect()
        };
        let left = subscriber.cursor.rest_sent(sent.len(), |_| ());
        assert_eq!(self.stream.sent(subscriber, left, |_| ()), 0, "more was sent than was named");
        viewer.text.push_str(std::str::from_utf8(&sent).unwrap());
    }

    /// Checks that a viewer was sent whole units in order, beginning with a key frame, and each after the parameters
    /// that it needs. Also checks that each gap was counted and that a key frame follows it.
    fn check(&self, viewer: &Viewer) {
        let (mut last, mut epoch) = (None::<usize>, None);
        let (mut prelude, mut numbers) = (None::<u32>, None);
        let (mut gaps, mut missing) = (0, 0);
        let whole = viewer.text.rfind([']', '>']).map_or("", |end| &viewer.text[..=end]);
        for token in whole.split_inclusive([']', '>']) {
            let inner = &token[1..token.len() - 1];
            if token.starts_with('<') {
                let (of, dts_ms) = inner.split_once('@').unwrap();
                assert!(dts_ms.parse::<i64>().is_ok() && prelude.is_none(), "{}", viewer.text);
                prelude = Some(of.parse::<u32>().unwrap());
                continue;
            }
            let dts_ms: i64 = inner.parse().unwrap();
            let index = self.known.binary_search_by_key(&dts_ms, |unit| unit.dts_ms).unwrap();
            let unit = self.known[index];
            // After a unit that was left out, the parameters are sent again, because they changed and then changed
            // back.
            let is_needed = epoch != Some(unit.epoch);
            assert!(prelude.is_some() == is_needed || self.left_out, "{}", viewer.text);
            assert!(prelude.is_some() || !is_needed, "{}", viewer.text);
            if let Some(number) = prelude.take() {
                assert!(numbers.replace(number) != Some(number), "{}", viewer.text);
            }
            epoch = Some(unit.epoch);
            let step = last.map_or(1, |last| index - last);
            assert!(step >= 1, "{}", viewer.text);
            assert!((last.is_some() && step == 1) || unit.key, "no key frame: {}", viewer.text);
            if step > 1 {
                gaps += 1;
                missing += step as u64 - 1;
            }
            last = Some(index);
        }
        let Subscriber { jumps, skipped, .. } = viewer.subscriber;
        assert!(viewer.was_paused || (gaps <= jumps && missing <= skipped), "{gaps} gaps, {jumps} jumps");
    }

    /// Checks that in the end every viewer has the last unit.
    fn end(mut self) {
        self.push(true, 33);
        self.stream.flush();
        for index in 0..self.viewers.len() {
            if self.viewers[index].subscriber.paused {
                self.stream.resume(&mut self.viewers[index].subscriber);
            }
            for _ in 0..self.known.len() {
                if self.stream.has_more(&self.viewers[index].subscriber) {
                    self.write(index, usize::MAX);
                }
            }
            let viewer = &self.viewers[index];
            let last = format!("[{}]", self.known.last().unwrap().dts_ms);
            assert!(viewer.text.ends_with(&last) && !viewer.subscriber.cursor.has_rest(), "{}", viewer.text);
        }
        self.trim();
        // All viewers are at the head; the newest GOP is retained for the next viewer.
        assert_eq!(self.stream.ring.head() - self.stream.ring.base(), 1);
        while !self.viewers.is_empty() {
            self.unsubscribe(0);
        }
    }
}

#[test]
fn every_viewer_has_whole_units_from_key_frames_on_whatever_happens() {
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(300) {
        let mut model = Model::new(seed);
        (0..800).for_each(|_| model.step());
        model.end();
    }
}

#[test]
fn sound_rides_with_the_next_frame_no_longer_than_its_time() {
    let settings = AppSettings::with("live", &[("coalesceMs", "40"), ("mergeWriteMs", "0")]).unwrap();
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let unit = |kind| {
        let mut entry = super::super::ring::tests::entry(0, false, 1);
        entry.kind = Some(kind);
        entry
    };
    let (video, sound) = (unit(TrackKind::Video), unit(TrackKind::Audio));
    let mut flush = FlushState::default();
    // Without video there is no frame to wait for.
    assert_eq!(flush.push(at(0), &sound, &settings), Flush::Now);
    assert_eq!(flush.push(at(0), &video, &settings), Flush::Now);
    assert_eq!(flush.push(at(10), &sound, &settings), Flush::By(at(50)));
    assert_eq!(flush.push(at(30), &sound, &settings), Flush::By(at(50)), "what joins does not delay it");
    assert_eq!(flush.due(), Some(at(50)));
    flush.flush(3);
    assert_eq!((flush.until(), flush.due()), (3, None));
    assert_eq!(flush.push(at(60), &sound, &settings), Flush::By(at(100)));
    // Half a second after the last frame audio no longer waits for another frame.
    assert_eq!(flush.push(at(499), &sound, &settings), Flush::By(at(100)));
    flush.flush(5);
    assert_eq!(flush.push(at(500), &sound, &settings), Flush::Now);
    // Releasing units early for a new subscriber never moves the flush position back.
    flush.advance(4);
    assert_eq!(flush.until(), 5);
    flush.advance(9);
    assert_eq!(flush.until(), 9);
}

#[test]
fn a_deadline_is_armed_once_and_a_stream_queued_once() {
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let mut flush = FlushState::default();
    assert!(flush.arm(at(50)) && !flush.arm(at(50)) && !flush.arm(at(60)));
    assert!(flush.arm(at(40)), "an earlier one is armed besides");
    flush.disarm(at(50));
    assert!(!flush.arm(at(45)), "the one that fired was another");
    flush.disarm(at(40));
    assert!(flush.arm(at(60)));
    assert!(flush.queue() && !flush.queue());
    flush.flush(1);
    assert!(flush.queue());
}

#[test]
fn writes_that_are_merged_wait_for_their_time_video_too() {
    let settings = AppSettings::with("live", &[("coalesceMs", "10"), ("mergeWriteMs", "30")]).unwrap();
    let now = Instant::now();
    let wait = now + Duration::from_millis(30);
    let mut flush = FlushState::default();
    let video = super::super::ring::tests::entry(0, true, 1);
    assert_eq!(flush.push(now, &video, &settings), Flush::By(wait));
    let sound = Entry { kind: Some(TrackKind::Audio), ..super::super::ring::tests::entry(1, false, 1) };
    let mut flush = FlushState::default();
    assert_eq!(flush.push(now, &sound, &settings), Flush::By(wait));
    flush.flush(1);
    flush.push(now, &video, &settings);
    flush.flush(2);
    assert_eq!(flush.push(now, &sound, &settings), Flush::By(wait), "the longer of the two");
}
