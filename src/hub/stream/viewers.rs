//! Tests of a stream: changes of selection, mirrors, demand and memory.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use media::codec::dependency::Dependency;
use media::codec::{Codec, g711, vp8};
use media::{AccessUnit, CodecConfig, Origin, Timescale, Track, TrackKind};
use rtp::history::{LoggedUnit, PacketLog};

use super::super::packager::tests::{PLAIN, Plain};
use super::super::{Fit, Item, Packets, Parts, Pick, Selection};
use super::tests::{stream, subscription};
use super::*;
use crate::stats::ForwardingTable;

const SOME_NETWORK: FormatLimit = FormatLimit::Network(IpAddr::V4(Ipv4Addr::LOCALHOST));

const V0: TrackId = TrackId::VIDEO;
const A0: TrackId = TrackId::AUDIO;
/// Both renditions of the video, without sound.
const VIDEOS: Selection = Selection { video: Pick::All, audio: Pick::None, data: Pick::None, silence: false };

fn nth(kind: TrackKind, n: u8) -> TrackId {
    TrackId::nth(kind, n).unwrap()
}

fn v1() -> TrackId {
    nth(TrackKind::Video, 1)
}

fn a1() -> TrackId {
    nth(TrackKind::Audio, 1)
}

fn track(id: TrackId, is_video: bool) -> Track {
    let sound = g711::Config { law: g711::Law::A, channels: 1 };
    let config = if is_video { CodecConfig::Vp8(vp8::Config::default()) } else { CodecConfig::G711(sound) };
    Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
}

/// Makes this many video and audio tracks.
fn tracks(videos: u8, audios: u8) -> Arc<Tracks> {
    let videos = (0..videos).map(|n| track(nth(TrackKind::Video, n), true));
    let audios = (0..audios).map(|n| track(nth(TrackKind::Audio, n), false));
    Arc::new(Tracks::new(1, videos.chain(audios)))
}

fn derived() -> Track {
    Track { origin: Origin::Derived { from: A0 }, ..track(TrackId::DERIVED, false) }
}

/// A stream, the tracks that its next units have, and the number of its next viewer.
struct Scene {
    stream: Stream,
    tracks: Arc<Tracks>,
    now: Instant,
    viewers: u32,
}

impl Scene {
    fn new(tracks: Arc<Tracks>) -> Self {
        Self { stream: stream(), tracks, now: Instant::now(), viewers: 0 }
    }

    /// Appends a unit and flushes it. The unit's DTS identifies it in the text that a viewer is sent.
    fn push(&mut self, track: TrackId, dts_ms: i64, key_frame: bool) -> Pushed {
        let payload = Bytes::from_static(b"0123456789");
        let unit = AccessUnit { track, dts: dts_ms, pts: dts_ms, key_frame, config_epoch: 1, payload };
        let at = self.now + Duration::from_millis(dts_ms.unsigned_abs());
        let pushed = self.stream.push(at, Entry::new(at, 0, unit, Arc::clone(&self.tracks)));
        self.stream.flush();
        pushed
    }

    fn join(&mut self, selection: Selection) -> (SubscriptionId, Subscriber) {
        self.viewers += 1;
        let (id, key) = (subscription(self.viewers), FormatKey { selection, ..PLAIN });
        let forwarding = ForwardingTable::default().index(Ingest::PULL, "plain");
        let subscriber = self
            .stream
            .subscribe(id, (key, FormatLimit::None), forwarding, || Some(Box::new(Plain)))
            .unwrap();
        (id, subscriber)
    }

    /// Subscribes to a format of its own.
    fn join_format(&mut self, name: &'static str, package: impl Package + 'static) -> Subscriber {
        let forwarding = ForwardingTable::default().index(Ingest::PULL, "plain");
        let key = (FormatKey::new(name, 0), FormatLimit::None);
        self.stream.subscribe(subscription(1), key, forwarding, || Some(Box::new(package))).unwrap()
    }

    fn select(&mut self, subscriber: &mut Subscriber, selection: Selection) -> bool {
        let key = FormatKey { selection, ..PLAIN };
        self.stream.select(subscriber, (key, SOME_NETWORK), || Some(Box::new(Plain)))
    }

    /// Writes once, as much as is available.
    fn write(&mut self, subscriber: &mut Subscriber) -> String {
        self.stream.prepare(subscriber);
        let bytes: Vec<u8> = {
            let mut gather = Gather::new(1 << 20);
            assert!(self.stream.gather(subscriber, &mut gather));
            gather.slices().iter().flat_map(|slice| slice.to_vec()).collect()
        };
        assert_eq!(self.stream.sent(subscriber, bytes.len(), |_| ()), 0);
        String::from_utf8(bytes).unwrap()
    }

    /// Writes until nothing is left, including the units after a change of selection.
    fn read(&mut self, subscriber: &mut Subscriber) -> String {
        let before = self.write(subscriber);
        if self.stream.switches_at(subscriber) { before + &self.write(subscriber) } else { before }
    }

    fn formats(&self) -> usize {
        self.stream.formats.iter().count()
    }
}

fn only(id: TrackId) -> Selection {
    let is_video = [V0, v1()].contains(&id);
    Selection::only(if is_video { TrackKind::Video } else { TrackKind::Audio }, id)
}

#[test]
fn another_video_track_begins_with_its_key_frame_and_the_former_one_goes_on_until_then() {
    let mut scene = Scene::new(tracks(2, 0));
    scene.push(V0, 0, true);
    scene.push(v1(), 1, true);
    let (id, mut viewer) = scene.join(only(V0));
    assert_eq!(scene.read(&mut viewer), "<1@0>[0]");
    assert!(scene.select(&mut viewer, only(v1())));
    assert_eq!((scene.stream.keys_needed(&viewer), scene.formats()), (TrackSet::of(v1()), 2));
    scene.push(v1(), 11, false);
    scene.push(V0, 10, false);
    assert_eq!(scene.read(&mut viewer), "[10]");
    scene.push(V0, 20, true);
    scene.push(v1(), 21, true);
    scene.push(V0, 30, false);
    scene.push(v1(), 31, false);
    assert_eq!(scene.write(&mut viewer), "[20]");
    assert!(scene.stream.switches_at(&viewer) && scene.stream.has_more(&viewer));
    assert_eq!(scene.write(&mut viewer), "<1@21>[21][31]");
    assert!(!scene.stream.switches_at(&viewer) && !scene.stream.has_more(&viewer));
    assert_eq!((scene.formats(), scene.stream.keys_needed(&viewer)), (1, TrackSet::EMPTY));
    assert_eq!(scene.stream.chosen(viewer.format).map(Chosen::set), Some(TrackSet::of(v1())));
    scene.stream.unsubscribe(id, &viewer);
    assert!(scene.stream.chosen(viewer.format).is_none());
    assert_eq!((scene.formats(), scene.stream.subscribers.len()), (0, 0));
}

#[test]
fn a_change_happens_at_the_next_key_frame_for_a_viewer_that_is_behind() {
    let mut scene = Scene::new(tracks(2, 0));
    let (_, mut viewer) = scene.join(only(V0));
    scene.push(V0, 0, true);
    scene.push(v1(), 1, true);
    scene.push(V0, 10, false);
    scene.push(v1(), 11, true);
    assert!(scene.select(&mut viewer, only(v1())));
    assert_eq!(scene.stream.keys_needed(&viewer), TrackSet::EMPTY, "the key frame to change at is there");
    assert_eq!(scene.read(&mut viewer), "<2@0>[0]<1@1>[1][11]");
    // The viewer was too slow and has skipped the key frame at which it should have switched. It
    // switches at the next key frame.
    assert!(scene.select(&mut viewer, only(V0)));
    scene.push(V0, 20, true);
    assert_eq!(scene.read(&mut viewer), "<1@20>[20]");
    scene.push(V0, 25, false);
    scene.push(v1(), 30, true);
    assert!(scene.select(&mut viewer, only(v1())));
    scene.push(V0, 20_000, true);
    scene.push(v1(), 20_001, true);
    scene.push(v1(), 20_002, false);
    let sent = scene.read(&mut viewer) + &scene.read(&mut viewer);
    assert_eq!(sent, "[20000]<1@20001>[20001][20002]");
}

#[test]
fn a_change_before_which_nothing_is_to_be_sent_happens_with_the_first_write() {
    let mut scene = Scene::new(tracks(2, 0));
    scene.push(V0, 0, true);
    let (_, mut viewer) = scene.join(only(V0));
    // The second viewer has not begun, because its track has sent no key frame yet.
    let (_, mut waiting) = scene.join(only(v1()));
    assert_eq!([&mut viewer, &mut waiting].map(|who| scene.write(who)), ["<1@0>[0]", ""]);
    assert!(scene.select(&mut waiting, only(V0)));
    scene.push(v1(), 10, false);
    scene.push(V0, 15, true);
    assert_eq!([&mut viewer, &mut waiting].map(|who| scene.write(who)), ["[15]", "<1@15>[15]"]);
    assert!(scene.select(&mut viewer, only(v1())));
    scene.push(v1(), 20, false);
    scene.push(v1(), 30, true);
    assert_eq!(scene.write(&mut viewer), "<1@30>[30]");
    assert!(!scene.stream.has_more(&viewer));
}

#[test]
fn other_sound_is_sent_at_once_and_the_video_goes_on() {
    let mut scene = Scene::new(tracks(1, 2));
    scene.push(V0, 0, true);
    scene.push(A0, 1, false);
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    assert_eq!(scene.read(&mut viewer), "<1@0>[0][1]");
    let other = Selection { audio: Pick::Only(a1()), ..Selection::DEFAULT };
    assert!(scene.select(&mut viewer, other));
    assert_eq!(scene.formats(), 1);
    for (track, dts_ms) in [(V0, 10), (A0, 11), (a1(), 12)] {
        scene.push(track, dts_ms, false);
    }
    assert_eq!(scene.read(&mut viewer), "<1@0>[10][12]");
    // The video track that has had no key frame so far still waits for one.
    assert!(scene.select(&mut viewer, Selection { audio: Pick::None, ..VIDEOS }));
    scene.tracks = tracks(2, 2);
    scene.push(v1(), 20, false);
    scene.push(V0, 21, false);
    assert_eq!(scene.read(&mut viewer), "<2@20>[21]");
    assert!(scene.select(&mut viewer, Selection { video: Pick::All, ..Selection::DEFAULT }));
    scene.push(v1(), 30, false);
    scene.push(v1(), 31, true);
    scene.push(v1(), 32, false);
    assert_eq!(scene.read(&mut viewer), "<3@31>[31][32]");
}

#[test]
fn a_late_viewer_of_several_videos_needs_a_key_frame_of_each() {
    let mut scene = Scene::new(tracks(3, 0));
    let v2 = nth(TrackKind::Video, 2);
    for (track, dts_ms) in [(v1(), 0), (V0, 10), (v2, 20)] {
        scene.push(track, dts_ms, true);
    }
    // The key frame of the third video follows that of the first one, but the second video's has passed.
    let (_, mut viewer) = scene.join(VIDEOS);
    assert_eq!(scene.stream.keys_needed(&viewer), TrackSet::of(v1()));
    scene.push(v1(), 30, false);
    assert_eq!(scene.read(&mut viewer), "<1@10>[10][20]");
    scene.push(v1(), 40, true);
    assert_eq!(scene.read(&mut viewer), "[40]");
    assert_eq!(scene.stream.keys_needed(&viewer), TrackSet::EMPTY);
    // A jump ahead leads to the key frame of the first video; that of the second one was passed over.
    scene.push(V0, 50, false);
    scene.push(V0, 60_000, true);
    scene.push(V0, 60_010, false);
    scene.stream.prepare(&mut viewer);
    assert_eq!(scene.stream.take_keys_lost(), [v1(), v2].into_iter().collect());
    assert_eq!(scene.stream.take_keys_lost(), TrackSet::EMPTY);
    // The first video has stopped, and its key frame is no longer retained: all others are needed at once.
    let mut frozen = Scene::new(tracks(3, 0));
    frozen.push(v1(), 0, false);
    let (_, mut viewer) = frozen.join(VIDEOS);
    frozen.push(v1(), 3_500, false);
    assert_eq!(frozen.read(&mut viewer), "");
    assert_eq!(frozen.stream.keys_needed(&viewer), [V0, v1(), v2].into_iter().collect());
}

#[test]
fn who_has_had_no_key_frame_waits_for_one_whatever_sound_it_selects() {
    let mut scene = Scene::new(tracks(1, 2));
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    scene.push(V0, 0, false);
    assert_eq!(scene.read(&mut viewer), "");
    assert!(scene.select(&mut viewer, Selection { audio: Pick::Only(a1()), ..Selection::DEFAULT }));
    scene.push(V0, 10, false);
    assert_eq!(
        (scene.read(&mut viewer), scene.stream.keys_needed(&viewer)),
        (String::new(), TrackSet::of(V0))
    );
    scene.push(V0, 20, true);
    assert_eq!(scene.read(&mut viewer), "<1@20>[20]");
}

#[test]
fn a_selection_that_is_changed_again_or_taken_back_leaves_no_format_behind() {
    let mut scene = Scene::new(tracks(3, 0));
    scene.push(V0, 0, true);
    let (id, mut viewer) = scene.join(only(V0));
    let v2 = Selection::only(TrackKind::Video, nth(TrackKind::Video, 2));
    assert!(scene.select(&mut viewer, only(v1())) && scene.select(&mut viewer, v2));
    assert_eq!(scene.formats(), 2);
    assert!(scene.select(&mut viewer, only(V0)));
    assert_eq!((scene.formats(), scene.stream.keys_needed(&viewer)), (1, TrackSet::EMPTY));
    assert_eq!(scene.read(&mut viewer), "<1@0>[0]");
    // A viewer leaves in the middle of a switch.
    assert!(scene.select(&mut viewer, v2));
    scene.stream.unsubscribe(id, &viewer);
    assert_eq!(scene.formats(), 0);
    // A free slot is reused, and the other formats keep their slots.
    let (first, one) = scene.join(only(V0));
    let (_, mut other) = scene.join(only(v1()));
    let slots = scene.stream.formats.slots();
    scene.stream.unsubscribe(first, &one);
    let (_, third) = scene.join(v2);
    assert_eq!((third.format, scene.stream.formats.slots()), (one.format, slots));
    scene.push(v1(), 10, true);
    assert_eq!(scene.read(&mut other), "<1@10>[10]");
}

#[test]
fn a_selection_is_refused_when_there_are_too_many_formats_and_nothing_changes() {
    let mut scene = Scene::new(tracks(2, 0));
    scene.push(V0, 0, true);
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    for variant in 1..u64::MAX {
        let key = FormatKey::new("other", 1 | variant << 32);
        let forwarding = viewer.forwarding;
        if scene
            .stream
            .subscribe(subscription(9), (key, SOME_NETWORK), forwarding, || Some(Box::new(Plain)))
            .is_none()
        {
            break;
        }
    }
    assert!(!scene.select(&mut viewer, only(v1())));
    assert_eq!(scene.read(&mut viewer), "<1@0>[0]");
}

#[test]
fn sound_is_sent_when_the_video_that_was_waited_for_goes() {
    let mut scene = Scene::new(tracks(1, 1));
    scene.push(V0, 0, false);
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    scene.push(A0, 1, false);
    assert_eq!(scene.read(&mut viewer), "");
    scene.tracks = tracks(0, 1);
    scene.push(A0, 11, false);
    assert_eq!(scene.read(&mut viewer), "<2@11>[11]");
}

#[test]
fn a_paused_viewer_is_sent_nothing_and_the_rest_of_its_unit_all_the_same() {
    let mut scene = Scene::new(tracks(1, 0));
    scene.push(V0, 0, true);
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    scene.stream.prepare(&mut viewer);
    assert_eq!(scene.stream.sent(&mut viewer, 3, |_| ()), 0);
    viewer.paused = true;
    scene.push(V0, 10, false);
    assert!(scene.stream.has_more(&viewer), "the rest");
    let named: usize = {
        let mut gather = Gather::new(1 << 20);
        assert!(viewer.cursor.gather_rest(&mut gather) && scene.stream.gather(&viewer, &mut gather));
        gather.slices().iter().map(|slice| slice.len()).sum()
    };
    assert_eq!(named, "<1@0>[0]".len() - 3);
    assert_eq!(viewer.cursor.rest_sent(5, |_| ()), 0);
    assert!(!scene.stream.has_more(&viewer) && scene.stream.next_unit(&mut viewer).is_none());
    assert_eq!(scene.stream.sent(&mut viewer, 7, |_| ()), 7, "it is nobody's");
    scene.stream.resume(&mut viewer);
    assert!(scene.stream.has_more(&viewer));
    assert_eq!(scene.read(&mut viewer), "[10]");
}

#[test]
fn a_new_viewer_has_the_backlog_at_once_and_the_others_when_it_is_flushed() {
    let mut scene = Scene::new(tracks(1, 0));
    let (_, mut early) = scene.join(Selection::DEFAULT);
    let unit = |dts: i64| AccessUnit {
        track: V0,
        dts,
        pts: dts,
        key_frame: dts == 0,
        config_epoch: 1,
        payload: Bytes::from_static(b"x"),
    };
    for dts_ms in [0, 10] {
        scene.stream.push(scene.now, Entry::new(scene.now, 0, unit(dts_ms), Arc::clone(&scene.tracks)));
    }
    assert_eq!((scene.read(&mut early), scene.stream.has_more(&early)), (String::new(), false));
    let (_, mut late) = scene.join(Selection::DEFAULT);
    assert_eq!(scene.read(&mut late), "<2@0>[0][10]");
}

#[test]
fn a_producer_begins_where_new_viewers_begin_though_it_takes_sound_alone() {
    let mut scene = Scene::new(tracks(1, 1));
    for (track, dts_ms) in [(V0, 0), (A0, 1), (V0, 10), (A0, 11)] {
        scene.push(track, dts_ms, dts_ms == 10);
    }
    let (_, mut producer) = scene.join(only(A0));
    assert_eq!(scene.read(&mut producer), "", "at the head");
    scene.stream.begin_with_backlog(&mut producer);
    assert_eq!(scene.read(&mut producer), "<1@1>[11]");
}

#[test]
fn a_mirror_begins_at_the_newest_gop_or_behind_what_it_has() {
    let mut scene = Scene::new(tracks(1, 0));
    for n in 0..6 {
        scene.push(V0, n * 10, n == 0 || n == 3);
    }
    let mut requests = 0;
    let mut fed = |stream: &mut Stream, after_ms: Option<i64>| {
        requests += 1;
        let after = after_ms.map(|ms| (V0, ms)).into_iter().collect();
        stream.add_mirror((WorkerId(1), requests), TrackSet::of(V0), after);
        let mut sent = Vec::new();
        stream.feed_mirrors(|asker, entry, _| sent.push((asker, entry.dts_ms)));
        assert!(sent.iter().all(|(asker, _)| *asker == (WorkerId(1), requests)), "{sent:?}");
        sent.into_iter().map(|(_, dts_ms)| dts_ms).collect::<Vec<_>>()
    };
    assert_eq!(fed(&mut scene.stream, None), [30, 40, 50]);
    assert_eq!(fed(&mut scene.stream, Some(40)), [50], "it has the others from a former source");
    assert_eq!(fed(&mut scene.stream, Some(10)), [30, 40, 50], "of what it lacks, what begins a GOP");
    assert!(fed(&mut scene.stream, Some(50)).is_empty());
    assert_eq!(scene.stream.mirrors.len(), 1);
    // Without video the mirror begins at the head.
    let mut scene = Scene::new(tracks(0, 1));
    scene.push(A0, 0, true);
    scene.stream.add_mirror((WorkerId(1), 1), TrackSet::of(A0), Vec::new());
    scene.push(A0, 20, false);
    let mut sent = Vec::new();
    scene.stream.feed_mirrors(|_, entry, _| sent.push(entry.dts_ms));
    assert_eq!(sent, [20]);
}

#[test]
fn a_mirror_holds_what_it_was_not_sent_and_missed_units_are_told_once() {
    let mut scene = Scene::new(tracks(1, 0));
    scene.push(V0, 0, true);
    scene.stream.add_mirror((WorkerId(1), 1), TrackSet::of(V0), Vec::new());
    for n in 1..10 {
        scene.push(V0, n * 10, n == 5);
    }
    scene.stream.trim(None);
    assert_eq!(scene.stream.ring.base(), 0, "the mirror was sent nothing yet");
    scene.stream.shrink(50);
    assert_eq!(scene.stream.ring.base(), 5);
    assert_eq!((scene.stream.feed_mirrors(|_, _, _| ()), scene.stream.feed_mirrors(|_, _, _| ())), (5, 0));
    scene.stream.remove_mirror(WorkerId(2));
    assert!(scene.stream.is_watched());
    scene.stream.remove_mirror(WorkerId(1));
    assert!(!scene.stream.is_watched());
}

#[test]
fn what_somebody_is_sent_is_wanted_here_or_by_way_of_another_worker() {
    let mut scene = Scene::new(tracks(2, 2));
    assert!(!scene.stream.demand_is_known());
    assert_eq!(scene.stream.wanted_of_source(), TrackSet::EMPTY);
    scene.push(V0, 0, true);
    let data = TrackSet::of(TrackId::DATA).with(TrackId::MESSAGES);
    let both = TrackSet::of(V0).with(A0);
    assert_eq!(scene.stream.wanted_anew(), None);
    let (id, mut viewer) = scene.join(Selection::DEFAULT);
    assert_eq!(scene.stream.wanted_anew(), Some(both.or(data)));
    assert_eq!(scene.stream.wanted_anew(), None, "it was told");
    scene.stream.forget_demand();
    assert_eq!(scene.stream.wanted_anew(), Some(both.or(data)));
    assert_eq!(scene.stream.wanted_of_source(), both.or(data), "to another source, whatever was told before");
    scene.stream.add_mirror((WorkerId(3), 1), TrackSet::of(a1()), Vec::new());
    assert_eq!(scene.stream.wanted_anew(), Some(both.or(data).with(a1())));
    scene.stream.mirror_wants(WorkerId(3), TrackSet::of(v1()));
    scene.stream.mirror_wants(WorkerId(4), TrackSet::of(a1()));
    assert_eq!(scene.stream.wanted_anew(), Some(both.or(data).with(v1())));
    // A pending switch wants the tracks of both selections.
    scene.stream.remove_mirrors();
    assert!(scene.select(&mut viewer, only(v1())));
    assert_eq!(scene.stream.wanted(), both.or(data).with(v1()));
    scene.stream.unsubscribe(id, &viewer);
    assert_eq!(scene.stream.wanted_anew(), Some(TrackSet::EMPTY));
}

#[test]
fn a_mirror_takes_what_it_asked_for_and_begins_nobody_at_other_key_frames() {
    let mut scene = Scene::new(tracks(2, 0));
    assert!(!scene.stream.takes_mirrored(0, V0), "it is no mirror");
    let (request, _) = scene.stream.ask_source();
    assert!(scene.stream.takes_mirrored(request, v1()), "whatever brings the tracks");
    assert!(!scene.stream.takes_mirrored(request - 1, v1()), "what answers an earlier request");
    scene.push(V0, 0, true);
    scene.push(v1(), 1, true);
    scene.push(V0, 10, false);
    let (_, _viewer) = scene.join(only(v1()));
    assert_eq!(scene.stream.wanted_of_source(), TrackSet::of(v1()));
    assert!(scene.stream.takes_mirrored(request, v1()) && !scene.stream.takes_mirrored(request, V0));
    // The demand is now `v1` only, so no more units of `V0` arrive here, and a new viewer of `V0` must wait for a key
    // frame.
    let (_, mut other) = scene.join(only(V0));
    assert_eq!((scene.read(&mut other), scene.stream.keys_needed(&other)), (String::new(), TrackSet::of(V0)));
    assert_eq!(scene.stream.newest_key(V0), None);
    assert_eq!(scene.stream.newest_key(v1()), Some(scene.now + Duration::from_millis(1)));
}

#[test]
fn a_source_keeps_the_key_frames_of_tracks_that_nobody_is_sent() {
    let mut scene = Scene::new(tracks(2, 0));
    scene.push(V0, 0, true);
    scene.push(v1(), 1, true);
    let (_, _viewer) = scene.join(only(v1()));
    assert_eq!(scene.stream.wanted_anew(), Some(TrackSet::of(v1())));
    let (_, mut other) = scene.join(only(V0));
    assert_eq!(scene.read(&mut other), "<1@0>[0]");
}

#[test]
fn requests_for_key_frames_are_merged_for_half_a_second_for_each_track() {
    let mut scene = Scene::new(tracks(2, 0));
    let at = |ms| scene.now + Duration::from_millis(ms);
    let asked = [(0, V0), (0, V0), (100, v1()), (499, V0), (500, V0), (599, v1()), (600, v1()), (999, V0)];
    let passed: Vec<_> =
        asked.into_iter().map(|(ms, track)| scene.stream.may_ask_key_frame(at(ms), track)).collect();
    assert_eq!(passed, [true, false, true, false, true, false, true, false]);
}

#[test]
fn derived_tracks_are_offered_but_for_a_while_those_that_were_left_out() {
    let mut scene = Scene::new(tracks(1, 1));
    let (now, published) = (scene.now, Arc::clone(&scene.tracks));
    // Tracks are completed at this second, with this answer about room. Returns whether room was asked for, whether the
    // tracks were computed, and the number of derived tracks.
    let offers = |scene: &mut Scene, second: u64, has_room: bool, published: &Arc<Tracks>| {
        let (mut asked, mut looked) = (false, false);
        let at = (now + Duration::from_secs(second), Duration::from_secs(5));
        let room = |app: &str| {
            asked = app == "live";
            has_room
        };
        let offered = scene.stream.with_derived(at, room, Arc::clone(published), |published, _| {
            looked = true;
            let mut all: Vec<Track> = published.iter().cloned().collect();
            all.extend([derived(), Track { id: TrackId::derived(1).unwrap(), ..derived() }]);
            Arc::new(Tracks::new(published.epoch, all))
        });
        (asked, looked, offered.iter().filter(|track| track.id.is_derived()).count())
    };
    assert_eq!(offers(&mut scene, 0, false, &published), (false, true, 2));
    assert_eq!(offers(&mut scene, 0, false, &published), (false, false, 2), "they are the same as before");
    assert_eq!(offers(&mut scene, 0, false, &tracks(1, 1)), (false, true, 2));
    let later = now + Duration::from_secs(10);
    scene.stream.leave_out_track(TrackId::DERIVED, later);
    assert_eq!(offers(&mut scene, 0, true, &published), (false, true, 1));
    scene.stream.leave_out_track(TrackId::derived(1).unwrap(), later);
    assert_eq!(offers(&mut scene, 9, true, &published), (false, true, 0));
    assert_eq!(offers(&mut scene, 10, false, &published), (true, false, 0), "there is no room to try again");
    for second in 10..15 {
        assert_eq!(
            offers(&mut scene, second, true, &published),
            (false, false, 0),
            "asked once for each pause"
        );
    }
    assert_eq!(offers(&mut scene, 15, true, &published), (true, true, 2));
    assert_eq!(offers(&mut scene, 15, true, &published), (false, false, 2));
    // Each has its own time.
    scene.stream.leave_out_track(TrackId::DERIVED, now + Duration::from_secs(30));
    scene.stream.leave_out_track(TrackId::derived(1).unwrap(), now + Duration::from_secs(20));
    assert_eq!(offers(&mut scene, 20, true, &published), (true, true, 1));
    assert_eq!(offers(&mut scene, 30, true, &published), (true, true, 2));
}

#[test]
fn the_subscribers_of_derived_tracks_are_counted() {
    let mut list: Vec<Track> = tracks(1, 1).iter().cloned().collect();
    list.push(derived());
    let mut scene = Scene::new(Arc::new(Tracks::new(1, list)));
    scene.push(V0, 0, true);
    let (_, _viewer) = scene.join(Selection::DEFAULT);
    assert!(scene.stream.derived_subscribers().is_empty());
    let sound = Selection::only(TrackKind::Audio, TrackId::DERIVED);
    let (id, viewer) = scene.join(sound);
    let (_, _other) = scene.join(sound);
    let (_, _third) = scene.join(Selection { video: Pick::Default, ..sound });
    assert_eq!(scene.stream.derived_subscribers(), BTreeMap::from([(TrackId::DERIVED, 3)]));
    scene.stream.unsubscribe(id, &viewer);
    assert_eq!(scene.stream.derived_subscribers(), BTreeMap::from([(TrackId::DERIVED, 2)]));
}

#[test]
fn what_follows_from_a_unit_is_told() {
    let mut scene = Scene::new(tracks(1, 0));
    let (_, _viewer) = scene.join(Selection::DEFAULT);
    assert_eq!((scene.push(V0, 0, true).rechosen, scene.push(V0, 1, false).rechosen), (true, false));
    scene.stream.trim(None);
    // Without key frames the ring is trimmed each time that [`TRIM_UNITS`] units were appended.
    let told = (0..200).filter(|n| {
        let trim = scene.push(V0, 2 + n, false).trim;
        if trim {
            scene.stream.trim(None);
        }
        trim
    });
    assert_eq!(told.count(), 200 / usize::try_from(TRIM_UNITS).unwrap());
}

#[test]
fn a_gop_is_kept_for_new_viewers_where_the_application_says_so_and_there_is_video() {
    let kept = |gop_cache: &str, tracks: Arc<Tracks>, id| {
        let mut scene = Scene::new(tracks);
        scene.stream.settings = Arc::new(AppSettings::with("live", &[("gopCache", gop_cache)]).unwrap());
        for n in 0..5 {
            scene.push(id, n, n == 2);
        }
        scene.stream.trim(None);
        (scene.stream.ring.base(), scene.stream.retained_bytes() > 0)
    };
    assert_eq!(kept("true", tracks(1, 0), V0), (2, true));
    assert_eq!(kept("false", tracks(1, 0), V0), (5, false));
    assert_eq!(kept("true", tracks(0, 1), A0), (5, false));
}

#[test]
fn a_ring_that_is_shrunk_keeps_what_somebody_is_being_sent_and_else_nothing_without_a_key_frame() {
    let mut scene = Scene::new(tracks(1, 0));
    for n in 0..10 {
        scene.push(V0, n * 100, n == 0);
    }
    assert_eq!((scene.stream.ring.head_ms(), scene.stream.bytes_per_second() > 100), (Some(900), true));
    scene.stream.shrink(usize::MAX);
    assert_eq!(scene.stream.ring.base(), 0, "it holds no more than that");
    let (id, mut viewer) = scene.join(Selection::DEFAULT);
    assert_eq!(scene.read(&mut viewer).len(), "<1@0>[0]".len() + 9 * "[100]".len());
    scene.push(V0, 1000, false);
    scene.stream.shrink(1);
    assert_eq!((scene.stream.ring.base(), scene.read(&mut viewer).as_str()), (10, "[1000]"));
    scene.stream.unsubscribe(id, &viewer);
    scene.stream.shrink(usize::MAX);
    assert_eq!((scene.stream.ring.base(), scene.stream.retained_bytes()), (11, 0));
    // The ring still has the key frame pushed here, at which a new viewer could begin, so it is not cleared.
    scene.push(V0, 1100, true);
    scene.push(V0, 1200, false);
    scene.stream.shrink(usize::MAX);
    assert_eq!(scene.stream.ring.base(), 11);
}

#[test]
fn a_stream_that_is_cleared_sends_nothing_old_and_goes_on_with_the_next_key_frame() {
    let mut scene = Scene::new(tracks(1, 0));
    scene.push(V0, 0, true);
    let (_, mut viewer) = scene.join(Selection::DEFAULT);
    scene.stream.clear();
    assert_eq!((scene.stream.ring.head_ms(), scene.stream.retained_bytes()), (None, 0));
    assert_eq!((scene.stream.bytes_per_second(), scene.read(&mut viewer)), (0, String::new()));
    scene.push(V0, 10, false);
    scene.push(V0, 20, true);
    assert_eq!(scene.read(&mut viewer), "<1@20>[20]");
}

/// A format of packets. For every track, [`PacketLogs::edge`] returns the number in this struct as the RTP timestamp.
#[derive(Debug)]
struct Numbered(u32);

impl Package for Numbered {
    fn fit(&self, _track: &Track) -> Fit {
        Fit::Well
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let (first, timestamp) = (PacketLog::new().next_id(), u32::try_from(entry.dts_ms).unwrap());
        let unit = LoggedUnit { packets: first..first, timestamp, bytes: 0 };
        Item::Packets(Packets { unit, needs: Dependency::START })
    }

    fn logs(&self) -> Option<&dyn PacketLogs> {
        Some(self)
    }
}

impl PacketLogs for Numbered {
    fn log(&self, _track: TrackId) -> Option<&PacketLog> {
        None
    }

    fn edge(&self, _track: TrackId) -> Option<(Codec, u32)> {
        Some((Codec::Vp8, self.0))
    }

    fn take_left_out(&self) -> Option<u64> {
        None
    }
}

#[test]
fn the_logs_of_a_format_of_packets_come_with_the_stream_and_with_each_unit() {
    let mut scene = Scene::new(tracks(1, 0));
    scene.push(V0, 0, true);
    let mut viewer = scene.join_format("numbered", Numbered(7));
    let number = |logs: Option<&dyn PacketLogs>| logs.unwrap().edge(V0).unwrap().1;
    assert_eq!(number(scene.stream.logs(&viewer)), 7);
    scene.stream.prepare(&mut viewer);
    let delivery = scene.stream.next_unit(&mut viewer).unwrap();
    assert_eq!((number(delivery.logs), delivery.entry.dts_ms), (7, 0));
    assert_eq!(delivery.packets().map(|packets| packets.unit.timestamp), Some(0));
    assert_eq!(delivery.slices().count(), 0);
    let (_, plain) = scene.join(Selection::DEFAULT);
    assert!(scene.stream.logs(&plain).is_none());
}

/// A format that packages every unit as nothing, so that its viewers are sent nothing.
#[derive(Debug)]
struct Nothing;

impl Package for Nothing {
    fn fit(&self, _track: &Track) -> Fit {
        Fit::Well
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, _entry: &Entry, _chosen: &Chosen) -> Item {
        Item::default()
    }
}

#[test]
fn a_viewer_that_nothing_is_sent_of_is_not_behind() {
    let mut scene = Scene::new(tracks(1, 0));
    scene.push(V0, 0, true);
    scene.push(V0, 10, false);
    let mut viewer = scene.join_format("nothing", Nothing);
    assert!(scene.stream.has_more(&viewer));
    scene.stream.prepare(&mut viewer);
    assert!(!scene.stream.has_more(&viewer));
}

/// A format that sends each unit together with the next one.
#[derive(Debug, Default)]
struct OneLate(Option<i64>);

impl Package for OneLate {
    fn fit(&self, _track: &Track) -> Fit {
        Fit::Well
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let before = self.0.replace(entry.dts_ms);
        before.map(|ms| Parts::new([Bytes::from(ms.to_string())]).into()).unwrap_or_default()
    }

    fn finish(&mut self) -> Parts {
        self.0.take().map(|ms| Parts::new([Bytes::from(ms.to_string())])).unwrap_or_default()
    }
}

#[test]
fn what_a_format_holds_back_follows_the_last_unit_of_a_stream_once() {
    let mut scene = Scene::new(tracks(0, 1));
    let mut viewer = scene.join_format("one late", OneLate::default());
    let (_, mut plain) = scene.join(Selection::DEFAULT);
    for ms in [0, 10, 20] {
        scene.push(A0, ms, false);
    }
    scene.stream.flush();
    let text = |parts: &Parts| String::from_utf8(parts.slices().concat()).unwrap();
    let take = |stream: &mut Stream, viewer: &mut Subscriber| {
        stream.prepare(viewer);
        let delivery = stream.next_unit(viewer)?;
        Some(delivery.parts().map(text).collect::<String>())
    };
    assert_eq!(take(&mut scene.stream, &mut viewer), Some("0".into()));
    assert!(scene.stream.tail(&mut viewer).is_none(), "the stream goes on");
    scene.stream.finish(scene.now + Duration::from_secs(2));
    assert!(scene.stream.formats.iter().all(|format| format.tail().is_none()), "too old");
    scene.stream.finish(scene.now);
    assert!(scene.stream.tail(&mut viewer).is_none(), "a unit comes first");
    assert_eq!(take(&mut scene.stream, &mut viewer), Some("10".into()));
    assert_eq!(take(&mut scene.stream, &mut viewer), None);
    assert_eq!(scene.stream.tail(&mut viewer).map(text), Some("20".into()));
    assert!(scene.stream.tail(&mut viewer).is_none(), "once");
    while take(&mut scene.stream, &mut plain).is_some() {}
    assert!(scene.stream.tail(&mut plain).is_none());
}

#[test]
fn what_a_format_holds_back_is_not_sent_behind_a_pause_with_what_a_publisher_brings_who_has_come_back() {
    for (pause_ms, sent) in [(900, "0 10 20 920 "), (1100, "0 10 1120 ")] {
        let mut scene = Scene::new(tracks(0, 1));
        let mut viewer = scene.join_format("one late", OneLate::default());
        for ms in [0, 10, 20, 20 + pause_ms, 30 + pause_ms] {
            if ms == 20 + pause_ms {
                let mut later = Tracks::clone(&scene.tracks);
                later.epoch += 1;
                scene.tracks = Arc::new(later);
            }
            scene.push(A0, ms, false);
        }
        let mut text = String::new();
        while scene.stream.has_more(&viewer) {
            scene.stream.prepare(&mut viewer);
            let Some(delivery) = scene.stream.next_unit(&mut viewer) else { break };
            let bytes = delivery.parts().flat_map(|parts| parts.slices().concat()).collect();
            text.push_str(&format!("{} ", String::from_utf8(bytes).unwrap()));
        }
        assert_eq!(text, sent, "a pause of {pause_ms} ms");
    }
}
