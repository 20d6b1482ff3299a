//! Sinks, derived tracks, demand, and sessions that create and address sessions.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of output")]

mod formats;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use media::codec::{g711, vp8};
use media::{AccessUnit, Codec, CodecConfig, Timescale, Track, TrackId, TrackKind, Tracks};

use super::conn::{CHILDREN_MAX, ROLES_MAX};
use super::demand::LINGER;
use super::tests::{Actor, STREAM, deliver};
use super::*;
use crate::config::AppSettings;
use crate::hub::{Pick, Selection};
use crate::jobs::{AppendError, AppendFile, AppendTo, Appended, JobDone, Outcome, Work};
use crate::mail::{Blob, Message, StreamDetails, StreamEnd};
use crate::protocol::{Event, FamilyEvent, Format, PlayAsk, PublicationEvent, SubscriptionEvent};
use crate::types::{Handle, Ingest, SessionRef, StreamKey};

mod keys;

/// A file in memory.
#[derive(Debug, Default)]
struct Memory(Mutex<Vec<u8>>);

impl AppendFile for Memory {
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError> {
        let mut bytes = self.0.lock().unwrap();
        data.iter().for_each(|part| bytes.extend_from_slice(part));
        Ok(bytes.len() as u64)
    }

    fn sync(&self) -> Result<(), AppendError> {
        Ok(())
    }
}

struct Rig {
    now: Now,
    worker: Worker,
    publisher: (ConnId, Actor),
    disk: Arc<Memory>,
    /// Submitted jobs that are not done.
    jobs: VecDeque<(ConnId, Job)>,
    /// Mail to other workers.
    mail: Vec<ToWorker>,
}

impl Rig {
    /// Makes a worker with a stream that is published on this worker (`source` is 0) or on worker 1.
    fn new(source: u16) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 1_700_000_000_000 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(source), Ingest::PULL);
        let up = ToWorker::StreamUp {
            stream: STREAM,
            key,
            source,
            ingest,
            details: StreamDetails::default(),
            settings,
        };
        worker.handle_mail(now, up);
        let publisher = deliver(&mut worker, now);
        if source != WorkerId(0) {
            worker.live.sources.clear();
        }
        let (disk, jobs, mail) = (Arc::default(), VecDeque::new(), Vec::new());
        Self { now, worker, publisher, disk, jobs, mail }
    }

    fn publish(&mut self, track: TrackId, key_frame: bool, payload: &'static [u8], tracks: &Arc<Tracks>) {
        self.now.mono += Duration::from_millis(20);
        self.now.wall_ms += 20;
        let dts =
            i64::try_from(self.now.mono.duration_since(self.worker.turn.meter.began).as_millis()).unwrap();
        let payload = Bytes::from_static(payload);
        let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
        let tracks = Arc::clone(tracks);
        self.publisher.1.say(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        self.worker.turn.now = self.now;
        self.worker.conns.touch(&mut self.worker.turn, self.publisher.0);
        self.turn();
    }

    /// Runs a turn of the worker, without jobs.
    fn turn(&mut self) {
        self.worker.handle_timeout(self.now);
        loop {
            self.worker.finish_turn();
            while self.worker.next_write(Writers::All).is_some() {}
            // Units that sinks have taken may cause events, jobs and output: drain the sinks again.
            self.worker.finish_turn();
            let mut any = self.worker.has_writes(Writers::All);
            while let Some(output) = self.worker.poll_output() {
                any = true;
                match output {
                    Output::Job { conn, job } => self.jobs.push_back((conn, job)),
                    Output::Worker(_, mail) | Output::Others(mail) => self.mail.push(mail),
                    _ => {}
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Runs the submitted jobs, as the job threads would.
    fn do_jobs(&mut self) {
        while let Some((conn, job)) = self.jobs.pop_front() {
            let outcome = match job.work {
                Work::Compute(compute) => {
                    Outcome::Computed(std::thread::spawn(|| compute.run()).join().unwrap())
                }
                Work::FileAppend { to, data } => {
                    let file: Arc<dyn AppendFile> = match to {
                        AppendTo::Path { path } => {
                            assert_eq!(path, ["live", "s.units"]);
                            Arc::<Memory>::clone(&self.disk)
                        }
                        AppendTo::Open(file) => file,
                        AppendTo::New { .. } | AppendTo::Recording { .. } => {
                            panic!("the sink continues a file")
                        }
                    };
                    let length = file.append(&data).unwrap();
                    Outcome::Appended(Ok(Appended { file, length, name: None }))
                }
                other => panic!("{other:?}"),
            };
            self.worker.handle_mail(self.now, ToWorker::Job { conn, done: JobDone { id: job.id, outcome } });
            self.turn();
        }
    }

    /// A session on a byte stream.
    fn connect(&mut self) -> (ConnId, Actor) {
        let actor = Actor::default();
        let conn = Conn::new(([192, 0, 2, 1], 1).into(), Box::new(actor.clone()), self.now.mono);
        (self.worker.conns.insert(conn).unwrap(), actor)
    }

    fn say(&mut self, (id, actor): &(ConnId, Actor), event: Event) {
        actor.say(event);
        self.worker.turn.now = self.now;
        self.worker.conns.touch(&mut self.worker.turn, *id);
        self.turn();
    }

    fn play(&mut self, viewer: &(ConnId, Actor), subscription: Handle, selection: Selection) {
        let format = Format::find("flv", 0).unwrap().select(selection);
        let (key, params, origin) = (StreamKey::new("live", "s"), Vec::new(), String::new());
        let ask = PlayAsk { key, format, params, origin, via: Vec::new(), takes_subtracks: false };
        self.say(viewer, Event::Subscription(subscription, SubscriptionEvent::Subscribe(ask)));
    }

    /// Returns the payloads in the file, each with its track.
    fn written(&self) -> Vec<(u8, Vec<u8>)> {
        let bytes = self.disk.0.lock().unwrap().clone();
        let mut rest = &bytes[..];
        let mut units = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[18..22].try_into().unwrap()) as usize;
            assert!(u64::from_be_bytes(rest[10..18].try_into().unwrap()) >= 1_700_000_000_000);
            units.push((rest[0], rest[22..22 + length].to_vec()));
            rest = &rest[22 + length..];
        }
        units
    }
}

fn video(n: u8) -> Track {
    let config = CodecConfig::Vp8(vp8::Config::default());
    let id = TrackId::nth(TrackKind::Video, n).unwrap();
    Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
}

fn a_law() -> Track {
    let config = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
    Track { epoch: 1, ..Track::new(TrackId::AUDIO, config, Timescale::MILLISECONDS) }
}

fn start_file_sink(rig: &mut Rig) {
    rig.worker.handle_mail(rig.now, ToWorker::StartSink { kind: "file", stream: STREAM });
    rig.turn();
}

#[test]
fn a_file_sink_writes_every_track_and_ends_with_its_stream() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), a_law()]));
    start_file_sink(&mut rig);
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    rig.publish(TrackId::AUDIO, false, b"audio", &tracks);
    rig.publish(TrackId::VIDEO, false, b"next", &tracks);
    rig.do_jobs();
    // Before the sink ends, it writes all units that it still has, including audio that waits for a
    // video frame.
    rig.publish(TrackId::VIDEO, false, b"last", &tracks);
    rig.publish(TrackId::AUDIO, false, b"sound", &tracks);
    let sessions = rig.worker.connections();
    let end = StreamEnd::Unpublished;
    rig.worker.handle_mail(rig.now, ToWorker::StreamDown { stream: STREAM, end });
    rig.turn();
    rig.do_jobs();
    assert_eq!(rig.worker.connections(), sessions - 1);
    let payloads: Vec<Vec<u8>> = rig.written().into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, [&b"key"[..], b"audio", b"next", b"last", b"sound"]);
}

#[test]
fn a_disk_that_stalls_makes_its_sink_lag_and_jump_to_a_key_frame() {
    static LARGE: [u8; 8192] = [7; 8192];
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0)]));
    start_file_sink(&mut rig);
    // Ten seconds of frames, with a key frame each second. The disk accepts nothing during this time.
    for n in 0..500 {
        rig.publish(TrackId::VIDEO, n % 50 == 0, &LARGE, &tracks);
        assert!(rig.jobs.len() <= 1, "one append at a time");
    }
    assert!(rig.worker.turn.meter.stats.units_skipped > 200, "{}", rig.worker.turn.meter.stats.units_skipped);
    assert!(rig.worker.retained_bytes() < 360 * LARGE.len(), "the ring is bounded by the lag");
    rig.do_jobs();
    let count = rig.written().len();
    assert!((250..=320).contains(&count), "{count}: what was gathered, and 5 s from a key frame on");
    // The sink continues normally.
    rig.publish(TrackId::VIDEO, false, b"fresh", &tracks);
    rig.do_jobs();
    assert_eq!(rig.written().last().unwrap().1, b"fresh");
}

/// Selects an audio track that only exists as a derived track.
fn derived_only() -> Selection {
    Selection { audio: Pick::Only(TrackId::DERIVED), ..Selection::DEFAULT }
}

/// 20 ms of A-law.
static AUDIO: [u8; 160] = [0xd5; 160];

#[test]
fn a_derived_track_is_made_while_it_is_selected_and_a_little_longer() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [a_law()]));
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    let stream = |rig: &Rig| Arc::clone(rig.worker.live.streams[&STREAM].tracks());
    assert!(stream(&rig).get(TrackId::DERIVED).is_some(), "it is offered");
    let plain = rig.connect();
    rig.play(&plain, Handle::ONLY, Selection::DEFAULT);
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    assert!(
        rig.jobs.is_empty() && rig.worker.live.producers.is_empty(),
        "nobody pays for what nobody selects"
    );

    let [one, two] = [rig.connect(), rig.connect()];
    rig.play(&one, Handle::ONLY, derived_only());
    rig.play(&two, Handle::ONLY, derived_only());
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    assert_eq!((rig.worker.live.producers.len(), rig.jobs.len()), (1, 1), "once for all");
    let newest = |rig: &Rig| rig.worker.live.streams[&STREAM].newest().unwrap().clone();
    for _ in 0..10 {
        rig.do_jobs();
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
        assert_eq!(rig.jobs.len(), 1, "one job at a time");
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
        assert_eq!(rig.jobs.len(), 1, "what comes meanwhile is held");
    }
    let published = newest(&rig).dts_ms;
    rig.do_jobs();
    let made = newest(&rig);
    assert_eq!(made.unit.track, TrackId::DERIVED);
    assert_eq!(media::codec::opus::packet_samples(&made.unit.payload), Some(960));
    assert!((published - 60..=published).contains(&made.dts_ms), "{} of {published}", made.dts_ms);

    rig.say(&one, Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
    rig.say(&two, Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
    rig.now.mono += LINGER / 2;
    rig.turn();
    assert_eq!(rig.worker.live.producers.len(), 1, "viewers come back");
    rig.play(&one, Handle::ONLY, derived_only());
    rig.now.mono += LINGER;
    rig.turn();
    assert_eq!(rig.worker.live.producers.len(), 1, "somebody has come back");
    rig.say(&one, Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe));
    rig.now.mono += LINGER;
    rig.turn();
    assert!(rig.worker.live.producers.is_empty());
    rig.jobs.clear();
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    assert!(rig.jobs.is_empty());
}

#[test]
fn the_backlog_that_a_viewer_begins_with_has_its_derived_track_too() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), a_law()]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    for _ in 0..30 {
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    }
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, derived_only());
    let before = rig.worker.turn.meter.stats.units;
    rig.do_jobs();
    let made = rig.worker.turn.meter.stats.units - before;
    assert!((25..=30).contains(&made), "{made} packets of 30");
}

#[test]
fn a_transcoder_that_does_not_come_back_is_followed_by_another() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [a_law()]));
    rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, derived_only());
    let derived = |rig: &Rig| {
        let newest = rig.worker.live.streams[&STREAM].newest().unwrap();
        (newest.unit.track == TrackId::DERIVED).then_some(newest.unit.pts)
    };
    let mut last = None;
    for outcome in [None, Some(Outcome::Busy), None, Some(Outcome::Failed), None] {
        if let Some(outcome) = outcome {
            rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
            let (conn, job) = rig.jobs.pop_front().unwrap();
            let done = JobDone { id: job.id, outcome };
            rig.worker.handle_mail(rig.now, ToWorker::Job { conn, done });
            rig.turn();
        }
        for _ in 0..10 {
            rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
            rig.do_jobs();
        }
        let newest = derived(&rig);
        assert!(newest > last, "{newest:?} after {last:?}");
        last = newest;
    }
    assert_eq!(rig.worker.live.producers.len(), 1);
}

#[test]
#[cfg_attr(not(feature = "fdk-aac"), ignore = "Opus is converted to AAC")]
fn beyond_their_limit_tracks_are_left_out_until_there_is_room() {
    let mut rig = Rig::new(0);
    let budget = Arc::new(TranscoderBudget::new(0));
    rig.worker.live.transcoders = budget;
    let opus = CodecConfig::Opus(media::codec::opus::Config::of_channels(2).unwrap());
    let opus = Track { epoch: 1, ..Track::new(TrackId::AUDIO, opus, Timescale::MILLISECONDS) };
    let tracks = Arc::new(Tracks::new(1, [video(0), opus]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let aac = TrackId::derived(1).unwrap();
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    rig.publish(TrackId::AUDIO, false, b"\xfcaudio", &tracks);
    let wanted = |rig: &Rig| rig.worker.live.streams[&STREAM].wanted();
    assert_eq!(rig.worker.turn.meter.stats.transcoders_refused, 1);
    assert!(rig.worker.live.producers.is_empty() && !wanted(&rig).contains(aac));
    assert!(wanted(&rig).contains(TrackId::AUDIO), "rather what few know than nothing");
    let left_out = |rig: &Rig| rig.worker.live.streams[&STREAM].left_out().iter().count();
    assert_eq!(left_out(&rig), 1);
    // The track is offered again only after a second, and only if another transcoder may run.
    for (limit, wait_ms, runs) in [(1, 900, 0), (0, 20_000, 0), (1, 900, 0), (1, 100, 1)] {
        rig.worker.live.transcoders = Arc::new(TranscoderBudget::new(limit));
        rig.now.mono += Duration::from_millis(wait_ms);
        rig.publish(TrackId::VIDEO, true, b"key", &tracks);
        rig.publish(TrackId::VIDEO, true, b"key", &tracks);
        assert_eq!(rig.worker.live.producers.len(), runs, "{limit} after {wait_ms} ms");
        assert_eq!(left_out(&rig), 1 - runs);
    }
    assert_eq!(rig.worker.turn.meter.stats.transcoders_refused, 1, "none was refused in vain");
    assert!(wanted(&rig).contains(aac));
}

#[test]
fn silence_is_made_for_who_asks_in_step_with_the_video() {
    let mut rig = Rig::new(0);
    let mute = Arc::new(Tracks::new(1, [video(0)]));
    rig.publish(TrackId::VIDEO, true, b"key", &mute);
    let silent = TrackId::derived(2).unwrap();
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    rig.publish(TrackId::VIDEO, false, b"next", &mute);
    assert!(rig.worker.live.producers.is_empty(), "a viewer needs none");
    rig.play(&viewer, Handle::ONLY, Selection { silence: true, ..Selection::DEFAULT });
    let newest = |rig: &Rig| rig.worker.live.streams[&STREAM].newest().unwrap().clone();
    for _ in 0..40 {
        rig.publish(TrackId::VIDEO, false, b"next", &mute);
        assert_eq!(newest(&rig).unit.track, TrackId::VIDEO, "audio may still come");
    }
    for _ in 0..40 {
        rig.publish(TrackId::VIDEO, false, b"next", &mute);
    }
    assert!(rig.jobs.is_empty(), "it is no work");
    let entry = newest(&rig);
    let made = if entry.unit.track == silent {
        entry
    } else {
        rig.publish(TrackId::VIDEO, false, b"next", &mute);
        newest(&rig)
    };
    assert_eq!(made.unit.track, silent);
    // The publisher now sends audio too.
    let both = Arc::new(Tracks::new(2, [video(0), a_law()]));
    rig.publish(TrackId::AUDIO, false, &AUDIO, &both);
    rig.publish(TrackId::VIDEO, false, b"next", &both);
    assert_eq!(newest(&rig).unit.track, TrackId::VIDEO);
    assert!(!rig.worker.live.streams[&STREAM].wanted().contains(silent));
}

#[test]
fn a_producer_ends_with_its_stream_and_with_its_source() {
    for moves in [false, true] {
        let mut rig = Rig::new(0);
        let tracks = Arc::new(Tracks::new(1, [a_law()]));
        rig.publish(TrackId::AUDIO, false, &AUDIO, &tracks);
        let viewer = rig.connect();
        rig.play(&viewer, Handle::ONLY, derived_only());
        assert_eq!(rig.worker.live.producers.len(), 1);
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let (key, ingest) = (StreamKey::new("live", "s"), Ingest::PULL);
        let source = WorkerId(1);
        let mail = if moves {
            ToWorker::StreamUp {
                stream: STREAM,
                key,
                source,
                ingest,
                details: StreamDetails::default(),
                settings,
            }
        } else {
            ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped }
        };
        rig.worker.handle_mail(rig.now, mail);
        rig.turn();
        assert!(rig.worker.live.producers.is_empty(), "moves: {moves}");
        // The worker that now has the publisher gets the demand of this worker.
        let wanted = |mail: &ToWorker| matches!(mail, ToWorker::Mirror { wanted, .. } if wanted.contains(TrackId::DERIVED));
        assert_eq!(rig.mail.iter().any(wanted), moves);
    }
}

#[test]
fn demand_crosses_to_the_worker_of_the_publisher() {
    let mut rig = Rig::new(1);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    let entry = |track, key_frame, tracks: &Arc<Tracks>| {
        let payload = Bytes::from_static(b"x");
        let unit = AccessUnit { track, dts: 0, pts: 0, key_frame, config_epoch: 1, payload };
        crate::hub::Entry::new(Instant::now(), 0, unit, Arc::clone(tracks))
    };
    let tracks = Arc::new(Tracks::new(1, [video(0), video(1)]));
    let mirrored =
        |entry| MirroredUnit { stream: STREAM, request: 1, entry, credit: crate::hub::Credit::default() };
    rig.worker.handle_mirrored(rig.now, mirrored(entry(TrackId::VIDEO, true, &tracks)));
    rig.turn();
    let second = TrackId::nth(TrackKind::Video, 1).unwrap();
    let selection = Selection { video: Pick::Only(second), ..Selection::DEFAULT };
    rig.mail.clear();
    rig.say(&viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(selection)));
    let wants = |mail: &ToWorker| {
        // The tracks of both selections are wanted until the switch has happened.
        matches!(mail, ToWorker::MirrorWants { wanted, .. } if wanted.contains(second) && wanted.contains(TrackId::VIDEO))
    };
    assert!(rig.mail.iter().any(wants), "{:?}", rig.mail);
    let needs = |mail: &&ToWorker| matches!(mail, ToWorker::KeyFrameNeeded { track, .. } if *track == second);
    assert_eq!(rig.mail.iter().filter(needs).count(), 1);
    // On the worker that has the publisher, the request reaches the publisher.
    let mut source = Rig::new(0);
    source.worker.handle_mail(source.now, ToWorker::KeyFrameNeeded { stream: STREAM, track: second });
    assert!(source.publisher.1.replies().iter().any(|reply| reply.contains("KeyFrameNeeded")));
}

#[test]
fn a_publisher_hears_which_of_its_tracks_are_wanted() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0), video(1)]));
    rig.publish(TrackId::VIDEO, true, b"key", &tracks);
    let wanted = |rig: &Rig| {
        let replies = rig.publisher.1.replies();
        replies.into_iter().filter(|reply| reply.contains("Wanted")).collect::<Vec<_>>()
    };
    wanted(&rig);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    assert_eq!(wanted(&rig).len(), 1);
    let other = rig.connect();
    rig.play(&other, Handle::ONLY, Selection::DEFAULT);
    assert_eq!(wanted(&rig), [""; 0], "the same tracks again");
}

#[test]
fn m_26_a_session_plays_many_streams_up_to_a_cap() {
    let mut rig = Rig::new(0);
    let viewer = rig.connect();
    let cap = u16::try_from(ROLES_MAX).unwrap();
    for n in 0..=cap {
        rig.play(&viewer, Handle(n), Selection::DEFAULT);
    }
    let replies = viewer.1.replies();
    let granted = replies.iter().filter(|reply| reply.contains("Verdict(Ok")).count();
    assert_eq!((granted, rig.worker.live.streams[&STREAM].subscribers.len()), (ROLES_MAX, ROLES_MAX));
    assert!(replies.last().unwrap().contains("Resources"), "{replies:?}");
    rig.say(&viewer, Event::Subscription(Handle(3), SubscriptionEvent::Unsubscribe));
    assert_eq!(rig.worker.live.streams[&STREAM].subscribers.len(), ROLES_MAX - 1);
    rig.play(&viewer, Handle(cap), Selection::DEFAULT);
    assert!(viewer.1.replies().last().unwrap().contains("Verdict(Ok"));
}

#[test]
fn several_streams_of_one_byte_stream_never_cut_into_each_others_units() {
    let mut rig = Rig::new(0);
    let tracks = Arc::new(Tracks::new(1, [video(0)]));
    let viewer = rig.connect();
    [Handle(1), Handle(2)].into_iter().for_each(|handle| rig.play(&viewer, handle, Selection::DEFAULT));
    let mut received = Vec::new();
    for n in 0..30 {
        rig.now.mono += Duration::from_millis(20);
        let payload = Bytes::from_static(b"0123456789abcdef");
        let unit = AccessUnit {
            track: TrackId::VIDEO,
            dts: n,
            pts: n,
            key_frame: n % 10 == 0,
            config_epoch: 1,
            payload,
        };
        let entry = crate::hub::Entry::new(rig.now.mono, 0, unit, Arc::clone(&tracks));
        rig.worker
            .live
            .append(&mut rig.worker.turn, &mut rig.worker.conns, &mut rig.worker.memory, STREAM, entry)
            .unwrap();
        rig.worker.finish_turn();
        while let Some((id, _)) = rig.worker.next_write(Writers::All) {
            let mut scratch = [0; wire::SCRATCH_BYTES];
            let bytes: Vec<u8> = {
                let mut gather = wire::Gather::with_scratch(1 << 16, &mut scratch);
                rig.worker.gather(id, &mut gather);
                gather.slices().iter().flat_map(|slice| slice.to_vec()).collect()
            };
            // The socket accepts a prime number of bytes at a time.
            let taken = bytes.len().min(23);
            rig.worker.sent(rig.now.mono, id, taken, bytes.len());
            received.extend_from_slice(&bytes[..taken]);
            rig.worker.handle_writable(rig.now, id);
        }
    }
    let mut file = flv::file::Reader::new(1 << 16);
    file.push(&flv::file::Header { audio: true, video: true }.write());
    file.push(&received);
    let mut frames = 0;
    while let Some(tag) = file.poll_tag().unwrap() {
        frames += usize::from(tag.body.ends_with(b"0123456789abcdef"));
    }
    assert_eq!(frames, 60, "each of two subscriptions has had each unit whole");
}

#[test]
fn m_26_sessions_create_sessions_up_to_a_cap_and_end_with_their_parent() {
    let mut rig = Rig::new(0);
    let parent = rig.connect();
    let children: Vec<Actor> = (0..=CHILDREN_MAX).map(|_| Actor::default()).collect();
    for (child, n) in children.iter().zip(0..) {
        let session = Box::new(child.clone());
        rig.say(&parent, Event::Family(FamilyEvent::Spawn { child: Handle(n), session }));
    }
    let replies = parent.1.replies();
    let spawned = replies.iter().filter(|reply| reply.contains("session: Some")).count();
    assert_eq!((spawned, replies.len()), (CHILDREN_MAX, CHILDREN_MAX + 1));
    // The end of a child is reported to its parent, and makes room for another child.
    let before = rig.worker.connections();
    children[0].say(Event::Closed("done".to_owned()));
    let first = rig.worker.conns.get(parent.0).unwrap().family.as_ref().unwrap().children[0];
    rig.worker.conns.touch(&mut rig.worker.turn, first);
    rig.turn();
    assert_eq!(rig.worker.connections(), before - 1);
    assert!(parent.1.replies()[0].starts_with("Family(Ended"));
    rig.worker.handle_path(rig.now, parent.0, PathId::default(), PathEvent::Broken("reset"));
    rig.turn();
    let told = children.iter().filter(|child| child.replies().iter().any(|told| told.starts_with("close")));
    assert_eq!(told.count(), CHILDREN_MAX - 1);
}

#[test]
fn a_message_to_a_stream_reaches_its_sessions_on_every_worker_and_nobody_else() {
    let mut rig = Rig::new(0);
    let (sender, viewer, stranger) = (rig.connect(), rig.connect(), rig.connect());
    for (viewer, handle) in [(&sender, 0), (&viewer, 0), (&viewer, 1)] {
        rig.play(viewer, Handle(handle), Selection::DEFAULT);
    }
    let publisher = rig.publisher.clone();
    let heard = |of: &(ConnId, Actor)| {
        of.1.replies().iter().filter(|reply| reply.starts_with("Family(Message")).count()
    };
    let all = |_: &Rig| [&publisher, &sender, &viewer, &stranger].map(heard);
    all(&rig);
    rig.mail.clear();
    let tell = |id: &str| {
        let (stream, message) = (StreamKey::new("live", id), Message::new("hello".to_owned()));
        Event::Family(FamilyEvent::TellStream { stream, message })
    };
    rig.say(&sender, tell("s"));
    assert_eq!(all(&rig), [1, 0, 1, 0], "once to each, though one plays it twice");
    let Some(ToWorker::TellStream { from, stream, message }) = rig.mail.pop() else {
        panic!("no other worker was told")
    };
    assert_eq!((from, &*stream.id), (SessionRef::new(WorkerId(0), sender.0), "s"));
    // The message comes from a session of another worker. That session has the same id as one of this
    // worker.
    let from = SessionRef { worker: WorkerId(1), ..from };
    rig.worker.handle_mail(rig.now, ToWorker::TellStream { from, stream, message: message.clone() });
    rig.turn();
    assert_eq!((all(&rig), rig.mail.len()), ([1, 1, 1, 0], 0), "and it goes no further");
    rig.say(&sender, tell("nothing"));
    assert_eq!((all(&rig), rig.mail.len()), ([0; 4], 0));
}

#[test]
fn sessions_speak_to_each_other_here_and_on_other_workers() {
    let mut rig = Rig::new(0);
    let (one, two) = (rig.connect(), rig.connect());
    let message = || Message::new("hello".to_owned());
    let to = SessionRef::new(WorkerId(0), two.0);
    rig.say(&one, Event::Family(FamilyEvent::Tell { to, message: message() }));
    assert!(two.1.replies()[0].starts_with("Family(Message"));
    // A message to another worker is sent as mail, and a message from another worker arrives as mail.
    let far = SessionRef::new(WorkerId(1), one.0);
    rig.say(&one, Event::Family(FamilyEvent::Tell { to: far, message: message() }));
    assert!(matches!(rig.mail.pop(), Some(ToWorker::Tell { to, .. }) if to == far));
    let from = SessionRef::new(WorkerId(1), two.0);
    rig.worker.handle_mail(rig.now, ToWorker::Tell { from, to, message: message() });
    assert!(two.1.replies()[0].starts_with("Family(Message"));
    // If the recipient does not exist, the sender is notified, on whichever worker it is.
    let gone = SessionRef::new(WorkerId(0), ConnId { slot: 99, generation: 0 });
    rig.say(&one, Event::Family(FamilyEvent::Tell { to: gone, message: message() }));
    assert!(one.1.replies()[0].starts_with("Family(Ended"));
    rig.worker.handle_mail(rig.now, ToWorker::Tell { from, to: gone, message: message() });
    rig.turn();
    assert!(matches!(rig.mail.pop(), Some(ToWorker::SessionEnded { teller, .. }) if teller == from));
}

/// Prepares a stream with H.264 whose segments are numbered by the clock.
fn segmented(rig: &mut Rig) -> (&'static str, Arc<Tracks>) {
    rig.now.wall_ms += 200_000_000_000;
    let config = CodecConfig::read(Codec::H264, vec![1, 0x64, 0, 0x1f, 0xff, 0xe0, 0].into()).unwrap();
    let track = Track::new(TrackId::VIDEO, config.unwrap(), Timescale::MILLISECONDS);
    let kind = crate::protocol::sinks::maker_of(&rig.worker.turn.apps["live"], "s.m3u8").unwrap().0.name;
    rig.worker.handle_mail(rig.now, ToWorker::StartSink { kind, stream: STREAM });
    (kind, Arc::new(Tracks::new(1, [track])))
}

fn publish_eight_seconds(rig: &mut Rig, tracks: &Arc<Tracks>) {
    for n in 0..400 {
        rig.publish(TrackId::VIDEO, n % 50 == 0, &[0, 0, 0, 2, 0x65, 0x88], tracks);
    }
}

fn change_settings(rig: &mut Rig, settings: &[(&str, &str)]) {
    let app = AppSettings::of(crate::protocol::schema(), "live", settings).unwrap();
    rig.worker.handle_mail(rig.now, ToWorker::App(Arc::new(app)));
}

#[test]
fn t_15_a_sink_that_its_settings_make_outdated_is_heard_no_more_and_another_one_goes_on() {
    let mut rig = Rig::new(0);
    let (kind, tracks) = segmented(&mut rig);
    publish_eight_seconds(&mut rig, &tracks);
    let is_clear =
        |blob: &Blob| blob.name.ends_with(".ts") && blob.bytes.chunks(188).all(|packet| packet[0] == 0x47);
    let blobs = |mail: &[ToWorker]| -> Vec<Arc<Blob>> {
        let blob = |mail: &ToWorker| match mail {
            ToWorker::Blob(mail) => Some(Arc::clone(&mail.blob)),
            _ => None,
        };
        mail.iter().filter_map(blob).collect()
    };
    let former = blobs(&rig.mail);
    assert!(former.iter().any(|blob| is_clear(blob)));
    rig.mail.clear();
    change_settings(&mut rig, &[("hls.encryption", "aes-128")]);
    rig.turn();
    let is_withdrawn = |mail: &ToWorker| matches!(mail, ToWorker::Withdrawn { stream: STREAM, makers } if makers.contains(&kind));
    assert!(matches!(&rig.mail[..], [mail] if is_withdrawn(mail)), "{:?}", rig.mail);
    let has = |rig: &Rig, blob: &Blob| rig.worker.turn.blobs.get("live", &blob.name).is_some();
    assert!(!former.iter().any(|blob| has(&rig, blob)));
    publish_eight_seconds(&mut rig, &tracks);
    let new = blobs(&rig.mail);
    assert!(!new.is_empty() && !new.iter().any(|blob| is_clear(blob)));
    let names = |blobs: &[Arc<Blob>]| blobs.iter().map(|blob| blob.name.clone()).collect::<BTreeSet<_>>();
    let both: Vec<_> = names(&former).intersection(&names(&new)).cloned().collect();
    assert_eq!(both, [Arc::<str>::from("s.m3u8")], "no segment's name has two contents");
    assert_eq!(rig.worker.polled.held_sinks(), 1);
    // Changes of other settings do not end a sink.
    rig.mail.clear();
    change_settings(&mut rig, &[("hls.encryption", "aes-128"), ("hlsTime", "4")]);
    rig.turn();
    assert!(rig.mail.is_empty(), "{:?}", rig.mail);
}

#[test]
fn t_15_a_sink_is_renewed_where_it_is_when_its_publisher_has_moved_and_ended_streams_are_withdrawn() {
    let mut rig = Rig::new(0);
    let (kind, tracks) = segmented(&mut rig);
    publish_eight_seconds(&mut rig, &tracks);
    let settings = Arc::clone(&rig.worker.turn.apps["live"]);
    let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(1), Ingest::PULL);
    let details = StreamDetails::default();
    let up = ToWorker::StreamUp { stream: STREAM, key, source, ingest, details, settings };
    rig.worker.handle_mail(rig.now, up);
    rig.turn();
    rig.mail.clear();
    assert!(rig.worker.turn.blobs.get("live", "s.m3u8").is_some());
    change_settings(&mut rig, &[("hls.encryption", "aes-128")]);
    rig.turn();
    assert!(
        rig.mail
            .iter()
            .any(|mail| matches!(mail, ToWorker::Withdrawn { makers, .. } if makers.contains(&kind)))
    );
    assert!(rig.worker.turn.blobs.get("live", "s.m3u8").is_none());
    assert_eq!(rig.worker.polled.held_sinks(), 1, "it goes on here");

    let mut rig = Rig::new(0);
    let (_, tracks) = segmented(&mut rig);
    publish_eight_seconds(&mut rig, &tracks);
    rig.worker.handle_mail(rig.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
    rig.turn();
    assert!(rig.worker.turn.blobs.get("live", "s.m3u8").is_some(), "viewers lag behind");
    change_settings(&mut rig, &[("hls.encryption", "aes-128")]);
    assert!(rig.worker.turn.blobs.get("live", "s.m3u8").is_none());
}

#[test]
fn metadata_of_the_api_waits_for_no_media_and_tells_nobody_of_tracks() {
    let mut rig = Rig::new(0);
    let viewer = rig.connect();
    rig.play(&viewer, Handle::ONLY, Selection::DEFAULT);
    let tags = media::id3::text("", "a text").unwrap();
    let track = TrackId::METADATA;
    let data = ToWorker::TimedData { stream: STREAM, track, data: tags, ahead_ms: 0 };
    rig.worker.handle_mail(rig.now, data);
    rig.turn();
    assert!(!rig.worker.live.streams[&STREAM].tracks().iter().any(|_| true));
    assert_eq!(rig.worker.turn.meter.stats.units, 0, "there is nothing that it could stand beside");
}
