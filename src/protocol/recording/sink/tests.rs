#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of event")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use crypto::{Random, Seed};
use fmp4::{Event as FileEvent, Limits, Reader};
use media::codec::{CodecConfig, vp8};
use media::{AccessUnit, Codec, Timescale, Track, TrackId, Tracks};
use netsim::MediaSource;

use super::*;
use crate::hub::Blobs;
use crate::jobs::Appended;
use crate::mail::SessionSettings;
use crate::protocol::Apps;

const VIDEO: TrackId = TrackId::VIDEO;
const AUDIO: TrackId = TrackId::AUDIO;

/// A file in memory: its bytes, and how many of them were synced.
#[derive(Debug, Default)]
struct Memory(Mutex<(Vec<u8>, usize)>);

impl AppendFile for Memory {
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError> {
        let (bytes, synced) = &mut *self.0.lock().unwrap();
        assert!(bytes.len() - *synced < UNSYNCED_BYTES_MAX, "{} {synced}", bytes.len());
        data.iter().for_each(|part| bytes.extend_from_slice(part));
        Ok(bytes.len() as u64)
    }

    fn sync(&self) -> Result<(), AppendError> {
        let (bytes, synced) = &mut *self.0.lock().unwrap();
        *synced = bytes.len();
        Ok(())
    }
}

/// A track and the payload of one of its units.
type Unit = (TrackId, Bytes);

struct Rig {
    sink: RecordingSink,
    now: Now,
    tracks: Arc<Tracks>,
    chosen: Chosen,
    files: Vec<Arc<Memory>>,
    /// True if no job on the disk ends.
    stalls: bool,
    /// True if no sync ends.
    syncs_stall: bool,
    /// The jobs that wait for the disk.
    held: Vec<Job>,
    /// Outcomes that replace those of the jobs, once `faults_after` jobs were done.
    faults: VecDeque<Outcome>,
    faults_after: usize,
    jobs: usize,
    /// The reports that control received.
    told: Vec<String>,
    sent: Vec<Unit>,
}

impl Rig {
    fn new(tracks: &[Track], order: RecordingOrder) -> Self {
        Self::of(Container::Mp4, tracks, order)
    }

    fn of(container: Container, tracks: &[Track], order: RecordingOrder) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 1_700_000_000_000 };
        let order = RecordingOrder { stem: "s".to_owned(), folder: vec!["live".to_owned()], ..order };
        let mut rig = Self {
            sink: RecordingSink::of(container, order),
            now,
            tracks: Arc::default(),
            chosen: Chosen::default(),
            files: Vec::new(),
            stalls: false,
            syncs_stall: false,
            held: Vec::new(),
            faults: VecDeque::new(),
            faults_after: 0,
            jobs: 0,
            told: Vec::new(),
            sent: Vec::new(),
        };
        rig.set_tracks(tracks);
        rig
    }

    fn set_tracks(&mut self, tracks: &[Track]) {
        self.tracks = Arc::new(Tracks::new(self.tracks.epoch + 1, tracks.iter().cloned()));
        let selection = Selection { data: Pick::None, ..Selection::ALL };
        self.chosen.update(selection, &self.tracks, &|track| self.sink.container.fit(track));
    }

    fn call<T>(&mut self, act: impl FnOnce(&mut RecordingSink, &Context<'_>) -> T) -> T {
        let (apps, server, blobs) = (Apps::default(), SessionSettings::default(), Blobs::default());
        act(
            &mut self.sink,
            &Context { now: self.now, apps: &apps, server: &server, blobs: &blobs, draining: false },
        )
    }

    fn drain(&mut self) {
        while let Some(event) = self.call(|sink, ctx| sink.poll_event(ctx)) {
            match event {
                Event::Job(job) if self.stalls || self.syncs_stall && job.id == SYNC => {
                    assert!(self.held.iter().all(|held| held.id != job.id), "one at a time");
                    self.held.push(job);
                }
                Event::Job(job) => self.work(job),
                Event::Order(OrderEvent::Recording(RecordingNews::Begun { path, .. })) => {
                    self.told.push(format!("begun {}", path.join("/")));
                }
                Event::Order(OrderEvent::Recording(RecordingNews::Ended { path })) => {
                    self.told.push(format!("ended {}", path.join("/")));
                }
                Event::Closed(reason) => self.told.push(format!("closed: {reason}")),
                _ => {}
            }
        }
    }

    fn work(&mut self, job: Job) {
        self.jobs += 1;
        let fault = if self.jobs > self.faults_after { self.faults.pop_front() } else { None };
        let outcome = fault.unwrap_or_else(|| match job.work {
            Work::FileAppend { to: AppendTo::Recording { path, from }, data } => {
                let ending = self.sink.container.name();
                assert!(data.is_empty() && path == ["live".to_owned(), format!("s.{ending}")]);
                // Each file is named after the one before it.
                let after = if self.files.is_empty() { 0 } else { self.files.len() as u64 + 1 };
                assert_eq!(from, after);
                let file = Arc::new(Memory::default());
                self.files.push(Arc::clone(&file));
                let name = Some(format!("s_{}.{ending}", self.files.len()));
                Outcome::Appended(Ok(Appended { file, length: 0, name }))
            }
            Work::FileAppend { to: AppendTo::Open(file), data } => {
                let length = file.append(&data).unwrap();
                Outcome::Appended(Ok(Appended { file, length, name: None }))
            }
            Work::FileSync { file } => Outcome::Synced(file.sync()),
            other => panic!("{other:?}"),
        });
        let done = JobDone { id: job.id, outcome };
        self.call(|sink, ctx| sink.handle_reply(ctx, Reply::Job(done)));
    }

    fn disk_works_again(&mut self) {
        (self.stalls, self.syncs_stall) = (false, false);
        for job in std::mem::take(&mut self.held) {
            self.work(job);
        }
        self.drain();
    }

    /// Passes a unit, with its time in milliseconds. Returns false if the sink has no room for it.
    fn unit(&mut self, track: TrackId, dts_ms: i64, key_frame: bool, payload: Bytes) -> bool {
        let Some(known) = self.tracks.get(track) else { return false };
        let dts = Timescale::new(1000).convert(dts_ms, known.timescale);
        let (config_epoch, payload) = (known.epoch, payload);
        let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch, payload: payload.clone() };
        let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&self.tracks));
        if !self.sink.has_room() {
            return false;
        }
        self.sink.take_unit(&entry, &self.chosen);
        self.sent.push((track, payload));
        self.drain();
        true
    }

    fn video(&mut self, dts_ms: i64, key_frame: bool) -> bool {
        let payload = Bytes::from(format!("\0\0\0\x20picture at {dts_ms:>20} ms"));
        self.unit(VIDEO, dts_ms, key_frame, payload)
    }

    fn audio(&mut self, dts_ms: i64) -> bool {
        self.unit(AUDIO, dts_ms, true, Bytes::from(format!("sound at {dts_ms}")))
    }

    /// Passes frames 40 ms apart with audio, and a key frame each second.
    fn stream(&mut self, from_ms: i64, to_ms: i64) {
        for ms in (from_ms..to_ms).step_by(40) {
            self.video(ms, ms % 1000 == 0);
            self.audio(ms);
        }
    }

    fn close(&mut self) {
        self.call(|sink, ctx| sink.close(ctx, "the stream ended"));
        self.drain();
    }

    /// Returns the samples of a file: track, decode time and end time in milliseconds, payload.
    fn samples(&self, file: usize) -> Vec<(TrackId, i64, i64, Bytes)> {
        let bytes = self.files.get(file).unwrap().0.lock().unwrap().0.clone();
        let mut reader = Reader::new(Limits::default());
        let (mut input, mut samples, mut tracks) = (&bytes[..], Vec::new(), BTreeMap::new());
        while let Some(event) = reader.read(&mut input).unwrap() {
            match event {
                FileEvent::Tracks { tracks: new, .. } => {
                    tracks = new.iter().map(|track| (track.id, track.clone())).collect();
                }
                FileEvent::Sample(sample) => {
                    let track = &tracks[&sample.track];
                    let id = if track.config.codec() == Codec::H264 { VIDEO } else { AUDIO };
                    let end = sample.dts + i64::from(sample.duration);
                    let ms = |ticks| track.timescale.to_ms(ticks);
                    samples.push((id, ms(sample.dts), ms(end), sample.payload));
                }
            }
        }
        reader.finish().unwrap();
        samples
    }

    /// Checks that all files together contain the units sent, once and in order.
    fn assert_whole(&self, sent: &[Unit]) {
        for track in [VIDEO, AUDIO] {
            let of_track = |units: &[Unit]| -> Vec<Bytes> {
                units.iter().filter(|unit| unit.0 == track).map(|unit| unit.1.clone()).collect()
            };
            let all: Vec<Unit> = (0..self.files.len())
                .flat_map(|file| self.samples(file))
                .map(|(track, _, _, payload)| (track, payload))
                .collect();
            assert!(of_track(&all) == of_track(sent), "{track:?}");
        }
    }

    /// Checks that this number of files has ended, but the sink has not.
    fn assert_ended_but_live(&self, files: usize) {
        let ended = self.told.iter().filter(|told| told.starts_with("ended")).count();
        assert_eq!((ended, self.files.len()), (files, files), "{:?}", self.told);
    }

    fn assert_ended(&self, files: usize) {
        let begun = self.told.iter().filter(|told| told.starts_with("begun")).count();
        let ended = self.told.iter().filter(|told| told.starts_with("ended")).count();
        assert_eq!((begun, ended, self.files.len()), (files, files, files), "{:?}", self.told);
        assert!(self.told.last().is_some_and(|told| told.starts_with("closed")), "the end is told last");
    }
}

fn video() -> Track {
    let config = CodecConfig::read(Codec::H264, MediaSource::video_config()).unwrap().unwrap();
    Track::new(VIDEO, config, Timescale::new(90_000))
}

fn audio() -> Track {
    let config = CodecConfig::read(Codec::Aac, MediaSource::audio_config()).unwrap().unwrap();
    Track::new(AUDIO, config, Timescale::new(48_000))
}

fn both(order: RecordingOrder) -> Rig {
    Rig::new(&[video(), audio()], order)
}

#[test]
fn every_unit_is_in_the_file_at_its_time() {
    let mut rig = both(RecordingOrder::default());
    rig.audio(980);
    rig.stream(1000, 11_000);
    let sent = rig.sent.split_off(1);
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
    let samples = rig.samples(0);
    for (n, (_, dts, _, payload)) in samples.iter().filter(|sample| sample.0 == VIDEO).enumerate() {
        assert_eq!(*dts, n as i64 * 40, "{payload:?}");
    }
    let end = samples.iter().map(|sample| sample.2).max();
    assert_eq!(end, Some(10_000), "the last one lasts as long as the one before it");
    // Two jobs per half second, an append and a sync, after the longer first fragment; and one job that begins the
    // file.
    assert!((38..=42).contains(&rig.jobs), "{}", rig.jobs);
}

#[test]
fn a_sync_that_takes_long_holds_up_no_append_but_only_so_many() {
    let mut rig = both(RecordingOrder::default());
    rig.stream(0, 2000);
    rig.syncs_stall = true;
    rig.stream(2000, 6000);
    let end = rig.samples(0).iter().map(|sample| sample.2).max();
    assert!(end.is_some_and(|end| end >= 5000), "a crash takes half a second and a fragment: {end:?}");
    let large = Bytes::from(vec![1; 1 << 20]);
    for n in 0..40_i64 {
        rig.unit(VIDEO, 6000 + n * 500, true, large.clone());
    }
    let written = rig.files[0].0.lock().unwrap().0.len();
    assert!(written < UNSYNCED_BYTES_MAX + (3 << 20), "{written}");
    assert!(!rig.sink.has_room(), "it lags now, like a viewer");
    rig.disk_works_again();
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
}

#[test]
fn sound_alone_and_video_alone() {
    let mut rig =
        Rig::new(&[audio()], RecordingOrder { file_ms_max: Some(2000), ..RecordingOrder::default() });
    (0..200).for_each(|n| assert!(rig.audio(n * 20)));
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(2);
    rig.assert_whole(&sent);
    let mut rig = Rig::new(&[video()], RecordingOrder::default());
    rig.video(0, false);
    (1..100).for_each(|n| assert!(rig.video(n * 40, n % 25 == 1)));
    let sent = rig.sent.split_off(1);
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
}

#[test]
fn a_file_begins_with_a_key_frame_and_goes_on_without_one_for_minutes() {
    let mut rig = both(RecordingOrder { file_ms_max: Some(10_000), ..RecordingOrder::default() });
    for ms in (0..60_000).step_by(40) {
        rig.video(ms, false);
        rig.audio(ms);
    }
    assert!(rig.files.is_empty() && rig.told.is_empty(), "nothing could be played");
    rig.sent.clear();
    rig.video(60_000, true);
    for ms in (60_040..300_000).step_by(40) {
        rig.video(ms, false);
        rig.audio(ms);
        assert!(rig.sink.held_bytes < 100_000);
    }
    assert_eq!(rig.files.len(), 1, "a full file goes on to the next key frame");
    rig.video(300_000, true);
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(2);
    rig.assert_whole(&sent);
}

#[test]
fn files_end_at_their_length_and_size_and_nothing_is_lost_between_them() {
    for (order, files) in [
        (RecordingOrder { file_ms_max: Some(3000), ..RecordingOrder::default() }, 4),
        (RecordingOrder { file_bytes_max: Some(6000), ..RecordingOrder::default() }, 4),
        (
            RecordingOrder {
                file_ms_max: Some(2500),
                file_bytes_max: Some(1 << 30),
                ..RecordingOrder::default()
            },
            4,
        ),
    ] {
        let mut rig = both(order);
        rig.stream(0, 12_000);
        let sent = std::mem::take(&mut rig.sent);
        rig.close();
        assert!(rig.files.len().abs_diff(files) <= 1, "{}", rig.files.len());
        rig.assert_ended(rig.files.len());
        rig.assert_whole(&sent);
        for file in 0..rig.files.len() {
            let samples = rig.samples(file);
            assert_eq!(
                samples.iter().filter(|sample| sample.0 == VIDEO).map(|sample| sample.1).min(),
                Some(0)
            );
        }
    }
    // A file lasts a day at most, even if the application allows more.
    let mut rig = both(RecordingOrder { file_ms_max: Some(u64::MAX), ..RecordingOrder::default() });
    rig.video(0, true);
    rig.video(1000, true);
    rig.video(FILE_MS_MAX as i64 - 1, true);
    assert_eq!(rig.files.len(), 1);
    rig.video(FILE_MS_MAX as i64, true);
    assert_eq!(rig.files.len(), 2);
}

#[test]
fn other_tracks_begin_another_file() {
    let mut rig = both(RecordingOrder::default());
    rig.stream(0, 5000);
    // The encoder changes its picture size at its next key frame.
    let changed = Track { epoch: 2, ..video() };
    rig.set_tracks(&[changed.clone(), audio()]);
    rig.stream(5000, 10_000);
    // One track is removed, and later added again.
    rig.set_tracks(std::slice::from_ref(&changed));
    (250..300).for_each(|n| assert!(rig.video(n * 40, n % 25 == 0)));
    rig.set_tracks(&[changed, audio()]);
    rig.stream(12_000, 15_000);
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(4);
    rig.assert_whole(&sent);
}

#[test]
fn q_14_tracks_that_change_with_every_key_frame_do_not_fill_the_disk_with_files() {
    let mut rig = Rig::new(&[video()], RecordingOrder::default());
    let mut at = 0;
    let mut play = |rig: &mut Rig, key_frames: i64, changes: bool| {
        for _ in 0..key_frames {
            if changes {
                let epoch = rig.tracks.epoch + 1;
                rig.set_tracks(&[Track { epoch, ..video() }]);
            }
            rig.now.mono += Duration::from_millis(100);
            at += 100;
            rig.video(at, true);
        }
        rig.drain();
        rig.files.len()
    };
    assert_eq!(play(&mut rig, 20, false), 1);
    let files = play(&mut rig, 600, true);
    assert!((8..=1 + 8 + 6).contains(&files), "{files} files in a minute");
    // A stream that becomes stable is recorded again, within a period, in one file.
    let files = play(&mut rig, 110, false);
    assert_eq!(play(&mut rig, 600, false), files);
    let recorded = rig.samples(files - 1).len();
    assert!(recorded >= 600, "{recorded} pictures");
}

#[test]
fn tracks_that_are_announced_within_the_first_second_are_in_the_same_file() {
    let mut rig = Rig::new(&[video()], RecordingOrder::default());
    (0..10).for_each(|n| assert!(rig.video(n * 40, n == 0)));
    rig.set_tracks(&[video(), audio()]);
    rig.stream(400, 3000);
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
    let first = rig.samples(0).iter().filter(|sample| sample.0 == AUDIO).map(|sample| sample.1).min();
    assert_eq!(first, Some(400), "where it belongs");
}

#[test]
fn a_clock_that_jumps_leaves_a_gap_and_no_damage() {
    for jump_ms in [2000, 3_600_000, 100_000_000_000] {
        let mut rig = both(RecordingOrder::default());
        rig.stream(0, 3000);
        rig.stream(3000 + jump_ms, 6000 + jump_ms);
        let sent = std::mem::take(&mut rig.sent);
        rig.close();
        rig.assert_ended(rig.files.len());
        rig.assert_whole(&sent);
        let last = rig.samples(rig.files.len() - 1);
        let times: Vec<i64> = last.iter().filter(|sample| sample.0 == VIDEO).map(|sample| sample.1).collect();
        assert!(times.is_sorted(), "{jump_ms}");
    }
}

#[test]
fn a_disk_that_stalls_is_waited_for_up_to_a_number_of_bytes() {
    let mut rig = both(RecordingOrder::default());
    rig.stream(0, 3000);
    rig.stalls = true;
    // Five seconds of a usual stream wait in memory, and nothing is lost.
    rig.stream(3000, 8000);
    assert!(!rig.held.is_empty() && rig.sink.held_bytes > 0);
    rig.disk_works_again();
    assert_eq!(rig.sink.held_bytes, 0);
    rig.stream(8000, 10_000);
    // The disk hangs: the sink takes no more than it may hold, and its cursor lags.
    rig.stalls = true;
    let large = Bytes::from(vec![7; 1 << 20]);
    let taken = (0..100).take_while(|n| rig.unit(VIDEO, 10_000 + n * 500, *n == 0, large.clone())).count();
    assert!((8..=12).contains(&taken), "{taken}");
    assert!(rig.sink.held_bytes < HELD_BYTES_MAX + FRAGMENT_ROOM);
    rig.disk_works_again();
    assert!(rig.sink.has_room());
    // The recording continues at a key frame, in the same file.
    rig.stream(90_000, 93_000);
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
}

/// Maximum bytes by which gathered units exceed the limit at which the sink takes no more: those of one fragment.
const FRAGMENT_ROOM: usize = 6 << 20;

#[test]
fn jobs_that_there_is_no_room_for_are_submitted_again_in_order() {
    let mut rig = both(RecordingOrder::default());
    for seed in 0..20 {
        let mut random: Random = Seed::from_number(seed).random();
        for ms in (0..4000).step_by(40) {
            let ms = ms + 4000 * i64::try_from(seed).unwrap();
            if random.below(3) == 0 {
                rig.faults.push_back(Outcome::Busy);
            }
            rig.video(ms, ms % 1000 == 0);
            rig.audio(ms);
            rig.faults.clear();
            rig.now.mono += Duration::from_millis(random.below(400));
            rig.call(|sink, ctx| sink.handle_timeout(ctx));
            rig.drain();
        }
    }
    let sent = std::mem::take(&mut rig.sent);
    rig.now.mono += RETRY;
    rig.call(|sink, ctx| sink.handle_timeout(ctx));
    rig.close();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
}

#[test]
fn a_fault_of_the_disk_ends_the_recording_and_what_was_synced_stays() {
    let full = || Outcome::Appended(Err(AppendError::Full));
    for (skipped, fault, reason) in [
        (0, full(), "the disk is full"),
        (0, Outcome::Appended(Err(AppendError::Path)), "the path leads to something that is no file"),
        (0, Outcome::Appended(Err(AppendError::Exists)), "there are too many files of that name"),
        (3, full(), "the disk is full"),
        (4, Outcome::Synced(Err(AppendError::Failed)), "the file cannot be written"),
        (5, Outcome::Failed, "the file cannot be written"),
    ] {
        let mut rig = both(RecordingOrder::default());
        (rig.faults_after, rig.faults) = (skipped, [fault].into());
        rig.stream(0, 10_000);
        let files = rig.files.len();
        rig.assert_ended(files);
        assert_eq!(files, usize::from(skipped > 0));
        assert_eq!(rig.told.last(), Some(&format!("closed: {reason}")), "{skipped}");
        for file in 0..files {
            assert!(rig.samples(file).iter().any(|sample| sample.0 == VIDEO), "what was written before");
        }
        assert!(rig.sink.has_room() && rig.sink.held_bytes == 0, "it takes units, and forgets them");
    }
}

#[test]
fn the_end_of_a_file_waits_for_the_job_under_way() {
    let mut rig = both(RecordingOrder::default());
    rig.stream(0, 2000);
    rig.stalls = true;
    rig.stream(2000, 3000);
    rig.close();
    assert_eq!(rig.told, ["begun live/s_1.mp4"], "something still comes into it");
    let sent = std::mem::take(&mut rig.sent);
    rig.disk_works_again();
    rig.assert_ended(1);
    rig.assert_whole(&sent);
    // The end of the file also waits if the sink gives up while bytes wait for the disk.
    let mut rig = both(RecordingOrder::default());
    rig.stream(0, 2000);
    rig.stalls = true;
    rig.stream(2000, 3000);
    rig.call(|sink, _| sink.fail("no more".to_owned()));
    rig.drain();
    assert_eq!(rig.told, ["begun live/s_1.mp4"]);
    rig.disk_works_again();
    rig.assert_ended(1);
}

// ---- WebM

fn opus(id: TrackId) -> Track {
    let config = CodecConfig::read(Codec::Opus, Bytes::from_static(OPUS_HEAD)).unwrap().unwrap();
    Track::new(id, config, Timescale::new(48_000))
}

const OPUS_HEAD: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\0\0\0\0\0";
/// Duration in whole milliseconds of the 312 samples at the beginning that an Opus decoder discards.
const OPUS_DELAY_MS: i64 = 7;

fn vp8() -> Track {
    Track::new(VIDEO, CodecConfig::Vp8(vp8::Config::default()), Timescale::new(90_000))
}

/// A VP8 picture. If it is a key frame, it contains the picture size.
fn picture(ms: i64, key_frame: bool) -> Bytes {
    let head: &[u8] = if key_frame { &[0x10, 2, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0] } else { &[0x11, 2, 0] };
    [head, format!("picture at {ms}").as_bytes()].concat().into()
}

/// The blocks of a WebM file: number of the track, time, whether it is a key frame, payload.
fn webm_blocks(file: &[u8]) -> Vec<(u8, i64, bool, Bytes)> {
    let (mut at, mut cluster_ms, mut found) = (0, 0, Vec::new());
    while at < file.len() {
        let head = webm::Head::read(&file[at..]).unwrap();
        let from = at + head.bytes;
        at = from;
        if matches!(head.id, webm::id::SEGMENT | webm::id::CLUSTER) {
            continue;
        }
        at += usize::try_from(head.size.unwrap()).unwrap();
        let body = &file[from..at];
        match head.id {
            webm::id::TIMESTAMP => cluster_ms = body.iter().fold(0, |ms, byte| ms << 8 | i64::from(*byte)),
            webm::id::SIMPLE_BLOCK => {
                let ms = cluster_ms + i64::from(i16::from_be_bytes([body[1], body[2]]));
                found.push((body[0] & 0x7f, ms, body[3] & 0x80 != 0, Bytes::copy_from_slice(&body[4..])));
            }
            _ => {}
        }
    }
    found
}

impl Rig {
    fn webm(tracks: &[Track]) -> Self {
        Self::of(Container::WebM, tracks, RecordingOrder::default())
    }

    /// Passes frames 40 ms apart with audio, and a key frame each second.
    fn vp8_stream(&mut self, from_ms: i64, to_ms: i64) {
        for ms in (from_ms..to_ms).step_by(40) {
            self.unit(VIDEO, ms, ms % 1000 == 0, picture(ms, ms % 1000 == 0));
            self.audio(ms);
        }
    }

    fn blocks(&self, file: usize) -> Vec<(u8, i64, bool, Bytes)> {
        webm_blocks(&self.files[file].0.lock().unwrap().0)
    }
}

#[test]
fn every_unit_is_in_the_webm_file_at_its_time() {
    let mut rig = Rig::webm(&[vp8(), opus(AUDIO)]);
    rig.vp8_stream(5000, 15_000);
    // A crash before the end loses half a second.
    let end = rig.blocks(0).iter().map(|block| block.1).max();
    assert!(end.is_some_and(|end| end >= 9400), "{end:?}");
    let sent = std::mem::take(&mut rig.sent);
    rig.close();
    rig.assert_ended(1);
    assert_eq!(rig.told[0], "begun live/s_1.webm");
    let blocks = rig.blocks(0);
    assert_eq!(blocks.len(), sent.len());
    for (n, ((track, ms, key_frame, payload), unit)) in blocks.iter().zip(&sent).enumerate() {
        let at = n as i64 / 2 * 40;
        let expected = if n % 2 == 0 { (1, at, at % 1000 == 0) } else { (2, at + OPUS_DELAY_MS, true) };
        assert_eq!(((*track, *ms, *key_frame), payload), (expected, &unit.1), "{n}");
    }
}

#[test]
fn pictures_of_one_millisecond_follow_each_other_in_the_webm_file() {
    let mut rig = Rig::webm(&[vp8(), opus(AUDIO)]);
    rig.vp8_stream(0, 1000);
    (0..3).for_each(|_| assert!(rig.unit(VIDEO, 1000, false, picture(1000, false))));
    rig.vp8_stream(1040, 3000);
    rig.close();
    rig.assert_ended(1);
    let of_video = rig.blocks(0).into_iter().filter(|block| block.0 == 1).map(|block| block.1);
    let times: Vec<i64> = of_video.collect();
    assert_eq!(times[24..30], [960, 1000, 1001, 1002, 1040, 1080]);
}

#[test]
fn sound_that_is_a_little_older_than_its_picture_is_kept() {
    let mut rig = Rig::webm(&[vp8(), opus(AUDIO)]);
    rig.unit(VIDEO, 1000, true, picture(1000, true));
    rig.audio(960);
    rig.audio(980);
    rig.vp8_stream(1040, 3000);
    rig.close();
    let blocks = rig.blocks(0);
    assert_eq!((blocks[0].1, blocks[1].1, blocks[2].1), (40, OPUS_DELAY_MS, 20 + OPUS_DELAY_MS));
}

#[test]
fn webm_has_what_it_has_a_place_for() {
    // The audio is derived from another track, beside the video.
    let derived = Track { origin: media::Origin::Derived { from: AUDIO }, ..opus(TrackId::DERIVED) };
    let mut rig = Rig::webm(&[vp8(), audio(), derived.clone()]);
    for ms in (0..3000).step_by(40) {
        rig.unit(VIDEO, ms, ms % 1000 == 0, picture(ms, ms % 1000 == 0));
        rig.unit(TrackId::DERIVED, ms, true, Bytes::from_static(b"made"));
    }
    rig.close();
    rig.assert_ended(1);
    assert_eq!(rig.blocks(0).iter().filter(|block| &block.3[..] == b"made").count(), 75);
    // The container cannot carry the video, so nothing is written, not even the audio.
    let mut rig = Rig::webm(&[video(), audio(), derived]);
    for ms in (0..3000).step_by(20) {
        rig.unit(TrackId::DERIVED, ms, true, Bytes::from_static(b"made"));
    }
    rig.close();
    assert!(rig.files.is_empty());
}

#[test]
fn a_webm_file_ends_where_the_stream_becomes_another() {
    let mut rig = Rig::webm(&[vp8(), opus(AUDIO)]);
    rig.vp8_stream(0, 3000);
    let h264 = Track { epoch: 2, ..video() };
    rig.set_tracks(&[h264, opus(AUDIO)]);
    (0..100).for_each(|n| assert!(rig.audio(3000 + n * 20)));
    rig.assert_ended_but_live(1);
    rig.set_tracks(&[Track { epoch: 3, ..vp8() }, opus(AUDIO)]);
    rig.vp8_stream(6000, 8000);
    rig.close();
    rig.assert_ended(2);
    assert_eq!((rig.blocks(0).len(), rig.blocks(1).len()), (150, 100));
    // WebM cannot hold H.264, and a stream with video is recorded only with its video. So once the H.264 track has
    // joined, no more audio is recorded, and the file that had begun for the audio stays empty.
    let mut rig = Rig::webm(&[opus(AUDIO)]);
    (0..10).for_each(|n| assert!(rig.audio(n * 20)));
    rig.set_tracks(&[video(), opus(AUDIO)]);
    (10..300).for_each(|n| assert!(rig.audio(n * 20)));
    rig.close();
    rig.assert_ended(1);
    assert!(rig.files[0].0.lock().unwrap().0.is_empty(), "nothing was recorded");
}

#[test]
fn each_period_takes_one_change_off_the_count_however_often_it_is_asked() {
    let (start, mut changes) = (Instant::now(), Changes::default());
    let mut begun = 0u32;
    // The tracks change every 6 s for an hour: the first eight times a file begins at once, then once for each period.
    for n in 0..600 {
        changes.note();
        begun += u32::from(changes.may_begin(start + Duration::from_secs(6) * n));
    }
    assert!((365..=370).contains(&begun), "{begun}");
}
