//! In virtual time: a stream of two video and two audio tracks, viewers with four selections on two workers, and
//! changes of selection while the stream plays. Each run has a seed.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for some kinds of output")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use crypto::Random;
use flv::file::TagKind;
use flv::tag::{AudioBody, AudioPacket, FrameType, VideoBody, VideoPacket};
use media::codec::{aac, vp8};
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, TrackKind, Tracks};

use super::tests::{Actor, STREAM, deliver};
use super::*;
use crate::config::AppSettings;
use crate::hub::{Pick, Selection};
use crate::mail::StreamDetails;
use crate::protocol::{Event, Format, PlayAsk, PublicationEvent, SubscriptionEvent};
use crate::types::{Handle, Ingest, StreamKey};

/// Content of a unit's payload: its track, and its number within the track.
type Mark = (u8, u32);

/// A unit that a viewer has read from an FLV tag: its kind, its track id on the wire, its mark, and whether it is a key
/// frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    kind: TrackKind,
    wire: u8,
    mark: Mark,
    key: bool,
}

fn id(kind: TrackKind, n: u8) -> TrackId {
    TrackId::nth(kind, n).unwrap()
}

fn tracks() -> std::sync::Arc<Tracks> {
    let track = |kind, n| {
        let config = match kind {
            TrackKind::Video => CodecConfig::Vp8(vp8::Config::default()),
            _ => CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap()),
        };
        Track { epoch: 1, ..Track::new(id(kind, n), config, Timescale::MILLISECONDS) }
    };
    let all = [TrackKind::Video, TrackKind::Audio].into_iter().flat_map(|kind| [(kind, 0), (kind, 1)]);
    std::sync::Arc::new(Tracks::new(1, all.map(|(kind, n)| track(kind, n))))
}

/// The selections of the four viewers: the first video and audio track, another video track, another audio track, or
/// all.
fn selections() -> [Selection; 4] {
    let (video, audio) = (Pick::Only(id(TrackKind::Video, 1)), Pick::Only(id(TrackKind::Audio, 1)));
    [
        Selection::DEFAULT,
        Selection { video, ..Selection::DEFAULT },
        Selection { audio, ..Selection::DEFAULT },
        Selection::ALL,
    ]
}

struct Viewer {
    worker: usize,
    conn: ConnId,
    actor: Actor,
    file: flv::file::Reader,
    seen: Vec<Seen>,
}

struct Scene {
    now: Now,
    random: Random,
    workers: [Worker; 2],
    mail: [VecDeque<Result<ToWorker, MirroredUnit>>; 2],
    viewers: Vec<Viewer>,
    publisher: (ConnId, Actor),
    tracks: std::sync::Arc<Tracks>,
    /// By track: the number of the next unit, and the number of units until the next key frame.
    next: BTreeMap<TrackId, (u32, u64)>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        let workers = [0, 1].map(|index| {
            let mut worker =
                Worker::new(WorkerId(index), now, Seed::from_number(seed), &Seed::from_number(0));
            worker.handle_mail(now, ToWorker::App(std::sync::Arc::clone(&settings)));
            let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(0), Ingest::PULL);
            let settings = std::sync::Arc::clone(&settings);
            let up = ToWorker::StreamUp {
                stream: STREAM,
                key,
                source,
                ingest,
                details: StreamDetails::default(),
                settings,
            };
            worker.handle_mail(now, up);
            worker
        });
        let mut scene = Self {
            now,
            random: Seed::from_number(seed).random(),
            workers,
            mail: [VecDeque::new(), VecDeque::new()],
            viewers: Vec::new(),
            publisher: (ConnId { slot: 0, generation: 0 }, Actor::default()),
            tracks: tracks(),
            next: tracks().iter().map(|track| (track.id, (0, 0))).collect(),
        };
        scene.publisher = deliver(&mut scene.workers[0], now);
        scene
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn join(&mut self, worker: usize, selection: Selection) {
        let actor = Actor::default();
        let conn = Conn::new(([192, 0, 2, 1], 1).into(), Box::new(actor.clone()), self.now.mono);
        let conn = self.workers[worker].conns.insert(conn).unwrap();
        let mut file = flv::file::Reader::new(1 << 16);
        file.push(&flv::file::Header { audio: true, video: true }.write());
        self.viewers.push(Viewer { worker, conn, actor, file, seen: Vec::new() });
        let format = Format::find("flv", 0).unwrap().select(selection);
        let (key, params, origin) = (StreamKey::new("live", "s"), Vec::new(), String::new());
        let ask = PlayAsk { key, format, params, origin, via: Vec::new(), takes_subtracks: false };
        self.say(
            self.viewers.len() - 1,
            Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask)),
        );
    }

    fn say(&mut self, viewer: usize, event: Event) {
        let viewer = &self.viewers[viewer];
        viewer.actor.say(event);
        self.workers[viewer.worker].conns.touch(&mut self.workers[viewer.worker].turn, viewer.conn);
        let worker = viewer.worker;
        self.settle(worker);
    }

    /// Publishes a unit of a random track.
    fn publish(&mut self) {
        let all: Vec<TrackId> = self.next.keys().copied().collect();
        let track = all[usize::try_from(self.below(4)).unwrap()];
        let is_video = self.tracks.get(track).unwrap().kind() == TrackKind::Video;
        let gop = 5 + self.below(20);
        let (number, to_key) = self.next.get_mut(&track).unwrap();
        let key_frame = is_video && *to_key == 0;
        *to_key = if key_frame { gop } else { to_key.saturating_sub(1) };
        let mut payload = vec![u8::from(is_video) * 16 + track.index()];
        payload.extend(number.to_be_bytes());
        *number += 1;
        self.now.mono += Duration::from_millis(7);
        let dts = i64::try_from(self.now.mono.duration_since(self.workers[0].turn.meter.began).as_millis())
            .unwrap();
        let payload = Bytes::from(payload);
        let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
        let tracks = std::sync::Arc::clone(&self.tracks);
        let (conn, actor) = (self.publisher.0, &self.publisher.1);
        actor.say(Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks }));
        self.workers[0].turn.now = self.now;
        self.workers[0].conns.touch(&mut self.workers[0].turn, conn);
        self.settle(0);
    }

    /// Finishes the turn of a worker. Each socket accepts a random number of bytes.
    fn settle(&mut self, index: usize) {
        let now = self.now;
        self.workers[index].handle_timeout(now);
        self.workers[index].finish_turn();
        while let Some((conn, _)) = self.workers[index].next_write(Writers::All) {
            let bytes: Vec<u8> = {
                let mut scratch = [0; wire::SCRATCH_BYTES];
                let mut gather = wire::Gather::with_scratch(1 << 16, &mut scratch);
                self.workers[index].gather(conn, &mut gather);
                gather.slices().iter().flat_map(|slice| slice.to_vec()).collect()
            };
            let offered = bytes.len();
            let taken = if self.below(3) == 0 { self.below(offered as u64 + 1) } else { offered as u64 };
            let taken = usize::try_from(taken).unwrap();
            self.workers[index].sent(now.mono, conn, taken, offered);
            if let Some(viewer) = self.viewers.iter_mut().find(|v| (v.worker, v.conn) == (index, conn)) {
                viewer.file.push(&bytes[..taken]);
            }
        }
        while let Some(output) = self.workers[index].poll_output() {
            match output {
                Output::Worker(to, mail) => self.mail[usize::from(to.0)].push_back(Ok(mail)),
                Output::Mirrored(to, unit) => self.mail[usize::from(to.0)].push_back(Err(unit)),
                _ => {}
            }
        }
    }

    /// Delivers up to `items` mails to a worker, and lets its sockets accept bytes again.
    fn drive(&mut self, index: usize, items: u64) {
        for _ in 0..items {
            match self.mail[index].pop_front() {
                Some(Ok(mail)) => self.workers[index].handle_mail(self.now, mail),
                Some(Err(unit)) => self.workers[index].handle_mirrored(self.now, unit),
                None => break,
            }
        }
        for viewer in self.viewers.iter().filter(|viewer| viewer.worker == index) {
            self.workers[index].handle_writable(self.now, viewer.conn);
        }
        self.settle(index);
    }

    fn run(&mut self, units: usize) {
        for _ in 0..units {
            self.publish();
            for index in [0, 1] {
                let items = self.below(4);
                self.drive(index, items);
            }
        }
    }

    /// Runs until all viewers have all units.
    fn drain(&mut self) {
        for _ in 0..200 {
            self.now.mono += Duration::from_millis(50);
            [0, 1].into_iter().for_each(|index| self.drive(index, 1000));
        }
        for viewer in &mut self.viewers {
            while let Some(tag) = viewer.file.poll_tag().unwrap() {
                viewer.seen.extend(seen(tag.kind, &tag.body));
            }
        }
    }

    fn last(&self, track: TrackId) -> u32 {
        self.next[&track].0 - 1
    }
}

/// Returns the units in an FLV tag; a multitrack tag may contain several.
fn seen(kind: TagKind, body: &Bytes) -> Vec<Seen> {
    let mark = |payload: &[u8]| (payload[0], u32::from_be_bytes(payload[1..5].try_into().unwrap()));
    match kind {
        TagKind::Video => {
            let packets = match VideoBody::read(body).unwrap() {
                VideoBody::Tag(tag) => vec![(0, tag)],
                VideoBody::Multitrack(packets) => {
                    packets.into_iter().map(|packet| (packet.id, packet.tag.unwrap())).collect()
                }
                VideoBody::Command(_) => Vec::new(),
            };
            let frames = packets.into_iter().filter(|(_, tag)| tag.packet == VideoPacket::Frame);
            let of = |(wire, tag): (u8, flv::VideoTag)| {
                let key = tag.frame_type == FrameType::Key;
                Seen { kind: TrackKind::Video, wire, mark: mark(&tag.payload), key }
            };
            frames.map(of).collect()
        }
        TagKind::Audio => {
            let packets = match AudioBody::read(body).unwrap() {
                AudioBody::Tag(tag) => vec![(0, tag)],
                AudioBody::Multitrack(packets) => {
                    packets.into_iter().map(|packet| (packet.id, packet.tag.unwrap())).collect()
                }
            };
            let frames = packets.into_iter().filter(|(_, tag)| tag.packet == AudioPacket::Frame);
            let of = |(wire, tag): (u8, flv::AudioTag)| Seen {
                kind: TrackKind::Audio,
                wire,
                mark: mark(&tag.payload),
                key: false,
            };
            frames.map(of).collect()
        }
        TagKind::Data | TagKind::Other(_) => Vec::new(),
    }
}

/// Checks the units of one track: they are contiguous up to the last one and, for video, begin with a key frame.
fn check_track(scene: &Scene, viewer: &Viewer, kind: TrackKind, n: u8, wire: u8, to_the_end: bool) {
    let of_video = u8::from(kind == TrackKind::Video) * 16;
    let units: Vec<&Seen> = viewer.seen.iter().filter(|seen| seen.mark.0 == of_video + n).collect();
    assert!(!units.is_empty(), "{kind:?} {n}: nothing came");
    assert!(units.iter().all(|seen| seen.kind == kind && seen.wire == wire), "{kind:?} {n}");
    assert!(kind != TrackKind::Video || units[0].key, "{kind:?} {n} begins with {:?}", units[0]);
    for pair in units.windows(2) {
        assert_eq!(pair[1].mark.1, pair[0].mark.1 + 1, "{kind:?} {n}: a unit is missing or there twice");
    }
    if to_the_end {
        assert_eq!(units[units.len() - 1].mark.1, scene.last(id(kind, n)), "{kind:?} {n} ends early");
    }
}

fn has(viewer: &Viewer, kind: TrackKind, n: u8) -> bool {
    viewer.seen.iter().any(|seen| seen.mark.0 == u8::from(kind == TrackKind::Video) * 16 + n)
}

/// Seeds that a test tries: 60, or as many as `MILLSTREAM_SEEDS` says. `make seeds` sets that variable.
fn seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var("MILLSTREAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    0..seeds.unwrap_or(60)
}

#[test]
fn four_selections_on_two_workers_get_their_tracks_whole() {
    use TrackKind::{Audio, Video};
    for seed in seeds() {
        let mut scene = Scene::new(seed);
        let before = scene.below(60);
        scene.run(usize::try_from(before).unwrap());
        for (worker, selection) in [0, 1].into_iter().flat_map(|worker| selections().map(|one| (worker, one)))
        {
            scene.join(worker, selection);
            let between = scene.below(30);
            scene.run(usize::try_from(between).unwrap());
        }
        scene.run(150);
        scene.drain();
        for (viewer, which) in scene.viewers.iter().zip((0..4).cycle()) {
            let check = |kind, n, wire| check_track(&scene, viewer, kind, n, wire, true);
            // On the wire, the first chosen track of each kind has the id 0, as if it were the only one of its kind.
            let (video, audio) = match which {
                0 => (0, 0),
                1 => (1, 0),
                2 => (0, 1),
                _ => {
                    check(Video, 1, 1);
                    check(Audio, 1, 1);
                    check(Video, 0, 0);
                    check(Audio, 0, 0);
                    continue;
                }
            };
            check(Video, video, 0);
            check(Audio, audio, 0);
            assert!(!has(viewer, Video, 1 - video) && !has(viewer, Audio, 1 - audio), "seed {seed}");
        }
    }
}

#[test]
fn a_switch_in_mid_stream_happens_at_a_key_frame_and_loses_no_audio() {
    use TrackKind::{Audio, Video};
    for seed in seeds() {
        let mut scene = Scene::new(seed);
        scene.run(40);
        for worker in [0, 1] {
            scene.join(worker, Selection::DEFAULT);
        }
        let before = scene.below(80) + 40;
        scene.run(usize::try_from(before).unwrap());
        let other = Selection { video: Pick::Only(id(Video, 1)), ..Selection::DEFAULT };
        for viewer in [0, 1] {
            scene.say(viewer, Event::Subscription(Handle::ONLY, SubscriptionEvent::Select(other)));
        }
        scene.run(250);
        scene.drain();
        for viewer in &scene.viewers {
            check_track(&scene, viewer, Video, 0, 0, false);
            check_track(&scene, viewer, Video, 1, 0, true);
            check_track(&scene, viewer, Audio, 0, 0, true);
            let switch = viewer.seen.iter().position(|seen| seen.mark.0 == 17).unwrap();
            assert!(viewer.seen[switch].key, "seed {seed}");
            assert!(viewer.seen[switch..].iter().all(|seen| seen.mark.0 != 16), "seed {seed}: both at once");
            assert!(viewer.seen[..switch].iter().any(|seen| seen.mark.0 == 16), "seed {seed}: none before");
        }
    }
}

#[test]
fn who_comes_where_others_are_sent_pictures_alone_has_the_sound_behind_its_key_frame() {
    use TrackKind::{Audio, Video};
    for seed in seeds() {
        let mut scene = Scene::new(seed);
        scene.run(20);
        scene.join(1, Selection { audio: Pick::None, ..Selection::DEFAULT });
        scene.join(1, Selection::DEFAULT);
        scene.run(40);
        // Some of this GOP's audio has arrived when the only viewer with audio leaves.
        scene.say(1, Event::Closed("gone".to_owned()));
        let between = scene.below(20);
        scene.run(usize::try_from(between).unwrap());
        scene.join(1, Selection::DEFAULT);
        scene.run(60);
        scene.drain();
        let viewer = &scene.viewers[2];
        check_track(&scene, viewer, Video, 0, 0, true);
        check_track(&scene, viewer, Audio, 0, 0, true);
        assert!(!has(&scene.viewers[0], Audio, 0), "seed {seed}");
    }
}

#[test]
fn what_nobody_on_a_worker_selects_does_not_cross_to_it_but_sound() {
    let mut scene = Scene::new(7);
    scene.run(20);
    scene.join(1, Selection { audio: Pick::None, ..Selection::DEFAULT });
    scene.drive(0, 10);
    // The first unit, of any track, carries the list of tracks. The mirror answers with the tracks that it wants.
    scene.publish();
    scene.drive(1, 100);
    scene.drive(0, 100);
    let mut crossed = BTreeSet::new();
    for _ in 0..100 {
        scene.publish();
        for item in &scene.mail[1] {
            if let Err(unit) = item {
                crossed.insert(unit.entry.unit.track);
            }
        }
        scene.drive(1, 100);
        scene.drive(0, 100);
    }
    let sound = [0, 1].map(|n| id(TrackKind::Audio, n));
    assert_eq!(crossed, BTreeSet::from([TrackId::VIDEO, sound[0], sound[1]]));
}
