//! Ladders of several streams, whose publishers begin, lag and end at different times.

mod apart;
mod several_sounds;
mod subtitles;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::{DateRange, MediaPlaylist, MultivariantPlaylist, SpliceKind};
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, TrackKind, Tracks, scte35};
use mpegts::{Demuxer, Event as TsEvent};

use super::*;
use crate::config::AppSettings;
use crate::hub::{Fit, Pick};
use crate::mail::{MainTrack, SessionSettings, StreamDetails};
use crate::protocol::{Apps, Event, OrderEvent, schema};

const WALL_MS: u64 = 1_795_806_797_674;
const FRAME_MS: i64 = 40;

/// A publisher and the sink of its stream.
struct Member {
    sink: Ladder,
    stream: StreamId,
    tracks: Arc<Tracks>,
    chosen: Chosen,
    /// Time at which the publisher begins; delay of its media; distance of its key frames.
    began_ms: i64,
    late_ms: i64,
    key_ms: i64,
}

/// Streams of one ladder on a worker.
struct Rig {
    layout: Layout,
    now: Now,
    begun: Instant,
    /// The wall clock at the beginning.
    begun_ms: u64,
    apps: Apps,
    server: SessionSettings,
    blobs: Blobs,
    members: BTreeMap<&'static str, Member>,
    lives: u64,
    at_ms: i64,
    /// NAL units before the slice of each picture.
    before: &'static [u8],
    /// Languages of the publishers' audio tracks.
    languages: &'static [&'static str],
    /// Time from decoding to presentation of pictures.
    lag_ms: i64,
}

fn video(n: u8, height: u32) -> Track {
    let config = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let config = CodecConfig::read(Codec::H264, config).unwrap().unwrap();
    let id = TrackId::nth(TrackKind::Video, n).unwrap();
    let rendition = Some(media::Rendition { group: 0, width: height * 2, height, bit_rate: 0 });
    Track { rendition, ..Track::new(id, config, Timescale::new(90_000)) }
}

fn sound(n: u8, language: &str) -> Track {
    let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
    let id = TrackId::nth(TrackKind::Audio, n).unwrap();
    Track { language: Some(language.into()), ..Track::new(id, config, Timescale::new(48_000)) }
}

impl Rig {
    fn new(settings: &[(&str, &str)]) -> Self {
        Self::with(Layout::Together, settings)
    }

    fn with(layout: Layout, settings: &[(&str, &str)]) -> Self {
        let app = AppSettings::of(schema(), "live", settings).unwrap();
        let begun = Instant::now();
        Self {
            layout,
            now: Now { mono: begun, wall_ms: WALL_MS },
            begun,
            begun_ms: WALL_MS,
            apps: [("live".into(), Arc::new(app))].into(),
            server: SessionSettings::default(),
            blobs: Blobs::new(),
            members: BTreeMap::new(),
            lives: 0,
            at_ms: 0,
            before: &[],
            languages: &["deu"],
            lag_ms: 0,
        }
    }

    /// Begins a publisher with pictures of these heights. Its media is late by `late_ms`, and its key frames are
    /// `key_ms` apart.
    fn begin(&mut self, id: &'static str, heights: &[u32], late_ms: i64, key_ms: i64) {
        self.lives += 1;
        let main = MainTrack { key: StreamKey::new("live", "cam"), folder: String::new() };
        let main = (id != "cam").then_some(main);
        let order = SinkOrder {
            stream: StreamId(self.lives),
            kind: "ladder",
            key: StreamKey::new("live", id),
            settings: Arc::clone(&self.apps["live"]),
            details: StreamDetails { main, ..StreamDetails::default() },
            recording: None,
        };
        let videos = (0..).zip(heights).map(|(n, height)| video(n, *height));
        let sounds = (0..).zip(self.languages).map(|(n, language)| sound(n, language));
        let tracks = Arc::new(Tracks::new(1, videos.chain(sounds)));
        let (sink, began_ms) =
            (Ladder::new(self.now, &order, self.layout, Seed::from_number(self.lives)), self.at_ms);
        let (stream, chosen) = (order.stream, Chosen::default());
        self.members.insert(id, Member { sink, stream, tracks, chosen, began_ms, late_ms, key_ms });
    }

    fn publish(&mut self, id: &str) {
        let Some(member) = self.members.get_mut(id) else { return };
        while let Some(event) = member.sink.publishing.poll(self.now) {
            if let Event::Order(OrderEvent::Blob(blob)) = event {
                assert_eq!(self.blobs.publish(Arc::new(*blob)), crate::hub::Published::Stored);
            }
        }
    }

    /// Runs the publishers for `ms`. The same `at_ms` means the same media in all streams, though it arrives later
    /// in some of them.
    fn pass(&mut self, ms: i64) {
        let end_ms = self.at_ms + ms;
        while self.at_ms < end_ms {
            let at = self.begun + Duration::from_millis(self.at_ms.unsigned_abs());
            self.now = Now { mono: at, wall_ms: self.begun_ms.saturating_add_signed(self.at_ms) };
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                self.frame(id);
                self.publish(id);
            }
            self.at_ms += FRAME_MS;
        }
    }

    /// Passes the frames of the current time, delayed by the delay of the stream; key frames are delayed a little
    /// more.
    fn frame(&mut self, id: &str) {
        let Some(member) = self.members.get_mut(id) else { return };
        let content_ms = self.at_ms - member.late_ms.div_euclid(FRAME_MS) * FRAME_MS;
        let dts_ms = content_ms - member.began_ms;
        if dts_ms < 0 {
            return;
        }
        let key_frame = content_ms % member.key_ms == 0;
        let late_ms = member.late_ms.rem_euclid(FRAME_MS) + if key_frame { 30 } else { 0 };
        let received = self.now.mono + Duration::from_millis(late_ms.unsigned_abs());
        let wall_ms = self.now.wall_ms.saturating_add_signed(late_ms);
        let selection = Selection { data: Pick::None, ..Selection::ALL };
        member.chosen.update(selection, &member.tracks, &|_| Fit::Well);
        let chosen = member.chosen.clone();
        let ctx = Context {
            now: self.now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.blobs,
            draining: false,
        };
        for track in Arc::clone(&member.tracks).iter() {
            let dts = Timescale::MILLISECONDS.convert(dts_ms, track.timescale);
            let is_video = track.kind() == TrackKind::Video;
            let lag = Timescale::MILLISECONDS.convert(self.lag_ms, track.timescale);
            let height = track.rendition.as_ref().map_or(0, |rendition| rendition.height);
            let length = if is_video { usize::try_from(height).unwrap() * 5 } else { 100 };
            let mut payload = vec![0; length];
            payload.splice(..5, [0, 0, 0, 1, 9]);
            if is_video {
                payload.splice(..0, self.before.iter().copied());
            }
            let unit = AccessUnit {
                track: track.id,
                dts,
                pts: dts.saturating_add(if is_video { lag } else { 0 }),
                key_frame: key_frame || !is_video,
                config_epoch: 1,
                payload: payload.into(),
            };
            let entry = Entry::new(received, wall_ms, unit, Arc::clone(&member.tracks));
            member.sink.take(&ctx, &entry, &chosen);
        }
    }

    /// Sends splice information for a time `ahead_ms` after the newest frames.
    fn cue(&mut self, id: &str, section: Bytes, ahead_ms: i64) {
        let member = self.members.get_mut(id).unwrap();
        let dts = self.at_ms - FRAME_MS - member.late_ms - member.began_ms;
        let pts = dts + ahead_ms;
        let unit = AccessUnit {
            track: TrackId::CUES,
            dts,
            pts,
            key_frame: false,
            config_epoch: 0,
            payload: section,
        };
        let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&member.tracks));
        member.sink.take_data(&entry);
        self.publish(id);
    }

    fn end(&mut self, id: &str) {
        let ctx = Context {
            now: self.now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.blobs,
            draining: false,
        };
        let sink = &mut self.members.get_mut(id).unwrap().sink;
        sink.finish(&ctx, StreamEnd::Unpublished);
        sink.publishing_mut().finish(self.now, "the stream ended");
        self.publish(id);
        let member = self.members.remove(id).unwrap();
        self.blobs.retire(member.stream);
    }

    fn read(&self, name: &str) -> Option<Playlist> {
        Some(Playlist::read(&self.blobs.get("live", name)?.bytes).unwrap())
    }

    fn master(&self) -> Option<MultivariantPlaylist> {
        assert!(self.blobs.get("live", "cam_adaptive.m3u8")?.is_needed, "it is dropped last");
        match self.read("cam_adaptive.m3u8")? {
            Playlist::Multivariant(master) => Some(master),
            Playlist::Media(_) => panic!("a media playlist"),
        }
    }

    /// The URIs of the renditions, the one with the highest rate first.
    fn uris(&self) -> Vec<String> {
        self.master()
            .map_or_else(Vec::new, |master| master.variants.into_iter().map(|variant| variant.uri).collect())
    }

    fn media(&self, uri: &str) -> Option<MediaPlaylist> {
        match self.read(uri)? {
            Playlist::Media(playlist) => Some(playlist),
            Playlist::Multivariant(_) => panic!("a multivariant playlist"),
        }
    }

    /// Returns the date and the length of each segment, for each rendition.
    fn segments(&self) -> Vec<BTreeMap<u64, (i64, u128)>> {
        let of = |uri: &String| {
            let playlist = self.media(uri).unwrap();
            let numbered = (playlist.media_sequence..).zip(playlist.segments);
            numbered
                .map(|(number, one)| {
                    assert!(self.blobs.get("live", &one.uri).is_some(), "{} cannot be fetched", one.uri);
                    (number, (one.program_date_time.unwrap(), one.duration.as_millis()))
                })
                .collect()
        };
        self.uris().iter().map(of).collect()
    }

    /// Checks that the newest `count` segments that all renditions list have the same dates and lengths in each.
    fn assert_aligned(&self, count: usize) {
        let all = self.segments();
        let (first, others) = all.split_first().unwrap();
        for other in others {
            let common: Vec<u64> =
                first.keys().filter(|number| other.contains_key(number)).copied().collect();
            assert!(common.len() >= count, "{all:?}");
            for number in common.iter().rev().take(count) {
                assert_eq!(first[number], other[number], "{number} {all:?}");
            }
        }
        let targets: Vec<_> =
            self.uris().iter().map(|uri| self.media(uri).unwrap().target_duration).collect();
        assert!(targets.iter().all(|target| *target == targets[0]), "6.2.4: {targets:?}");
        let discontinuities: Vec<_> =
            self.uris().iter().map(|uri| self.media(uri).unwrap().discontinuity_sequence).collect();
        assert!(discontinuities.iter().all(|one| *one == discontinuities[0]), "{discontinuities:?}");
    }
}

/// The first timestamp of a segment.
fn timestamp(segment: &[u8]) -> u64 {
    let mut demuxer = Demuxer::new();
    let mut input = segment;
    let pes = |event| if let TsEvent::Pes(pes) = event { pes.dts.or(pes.pts) } else { None };
    std::iter::from_fn(|| demuxer.read(&mut input)).find_map(pes).unwrap()
}

#[test]
fn renditions_of_one_encoder_have_the_same_segments_and_timestamps() {
    for kind in ["mpegts", "fmp4"] {
        let mut rig = Rig::new(&[("hlsSegmentType", kind)]);
        rig.begin("cam_1080", &[1080], 150, 2000);
        rig.pass(3000);
        rig.begin("cam_720", &[720], 35, 2000);
        rig.begin("cam_360", &[360], 90, 2000);
        rig.pass(20_000);
        let uris = rig.uris();
        assert_eq!(uris.len(), 3, "{kind} {uris:?}");
        for (uri, height) in uris.iter().zip([1080, 720, 360]) {
            assert!(uri.starts_with(&format!("cam_{height}p")) && uri.ends_with("kbps.m3u8"), "{uri}");
        }
        rig.assert_aligned(5);
        if kind == "mpegts" {
            let newest: Vec<u64> = uris
                .iter()
                .map(|uri| {
                    let segments = rig.media(uri).unwrap().segments;
                    let name = &segments[segments.len() - 2].uri;
                    timestamp(&rig.blobs.get("live", name).unwrap().bytes)
                })
                .collect();
            let apart = newest.iter().max().unwrap() - newest.iter().min().unwrap();
            assert!(apart <= 90, "{newest:?}");
        }
        let master = rig.master().unwrap();
        let sizes: Vec<_> = master.variants.iter().map(|one| one.resolution.unwrap().height).collect();
        assert_eq!((sizes, master.independent_segments), (vec![1080, 720, 360], true));
        assert!(master.variants.iter().all(|one| one.codecs.as_deref() == Some("avc1.64001F,mp4a.40.2")));
    }
}

#[test]
fn who_joins_within_a_segment_of_the_others_ends_its_own_with_theirs() {
    for began_ms in [5000, 6000, 7000, 9000] {
        let mut rig = Rig::new(&[("hlsTime", "4")]);
        rig.begin("cam_1080", &[1080], 0, 1000);
        rig.pass(began_ms);
        rig.begin("cam_720", &[720], 60, 1000);
        rig.pass(30_000);
        assert_eq!(rig.uris().len(), 2);
        rig.assert_aligned(3);
    }
}

#[test]
fn a_rendition_that_ends_is_gone_at_once_and_comes_back_under_its_name() {
    let mut rig = Rig::new(&[]);
    rig.begin("cam", &[1080], 0, 2000);
    rig.pass(500);
    rig.begin("cam_720", &[720], 60, 2000);
    rig.pass(15_000);
    let uris = rig.uris();
    let [high, low] = &uris[..] else { panic!("{uris:?}") };
    let before = rig.media(low).unwrap();
    rig.end("cam_720");
    assert!(rig.media(low).is_none(), "a player goes to another one");
    assert!(before.segments.iter().all(|one| rig.blobs.get("live", &one.uri).is_some()));
    rig.pass(4000);
    assert_eq!(rig.uris(), std::slice::from_ref(high));
    assert!(!rig.media(high).unwrap().ended);
    rig.begin("cam_720", &[720], 60, 2000);
    rig.pass(15_000);
    assert_eq!(rig.uris(), uris);
    assert!(rig.media(low).unwrap().media_sequence > before.media_sequence);
    rig.assert_aligned(3);
    // The ladder ends with its last stream.
    rig.end("cam_720");
    rig.end("cam");
    assert!(rig.media(high).unwrap().ended && rig.media(low).is_none());
}

#[test]
fn the_first_list_waits_for_a_rendition_that_has_just_begun() {
    let mut rig = Rig::new(&[]);
    rig.begin("cam", &[1080], 0, 2000);
    rig.pass(3000);
    rig.begin("cam_720", &[720], 60, 2000);
    let mut lists = Vec::new();
    for _ in 0..15 {
        rig.pass(1000);
        lists.push(rig.uris().len());
    }
    lists.dedup();
    assert_eq!(lists, [0, 2], "none of one rendition");
    // A rendition without segments delays the multivariant playlist by at most [`WAIT`].
    let mut rig = Rig::new(&[]);
    rig.begin("cam", &[1080], 0, 2000);
    rig.begin("cam_720", &[720], 0, 18_000);
    rig.pass(12_000);
    assert!(rig.master().is_none());
    rig.pass(5000);
    assert_eq!(rig.uris().len(), 1);
}

#[test]
fn when_the_one_that_leads_ends_another_lists_all() {
    let mut rig = Rig::new(&[]);
    for (id, height) in [("cam_1080", 1080), ("cam_720", 720), ("cam_360", 360)] {
        rig.begin(id, &[height], 0, 2000);
        rig.pass(200);
    }
    rig.pass(12_000);
    let uris = rig.uris();
    rig.end("cam_1080");
    rig.pass(4000);
    assert_eq!(rig.uris(), uris[1..]);
    rig.begin("cam_1080", &[1080], 0, 2000);
    rig.pass(12_000);
    assert_eq!(rig.uris(), uris);
    rig.assert_aligned(3);
}

#[test]
fn videos_of_one_stream_are_renditions_too() {
    for kind in ["mpegts", "fmp4"] {
        let mut rig = Rig::new(&[("hlsSegmentType", kind)]);
        rig.begin("cam", &[720, 360, 180], 0, 2000);
        rig.pass(12_000);
        let uris = rig.uris();
        assert_eq!(uris.len(), 3, "{kind} {uris:?}");
        rig.assert_aligned(3);
        rig.end("cam");
        assert!(uris.iter().all(|uri| rig.media(uri).unwrap().ended));
    }
}

#[test]
fn key_frames_that_are_not_the_same_leave_each_its_own_segments() {
    let mut rig = Rig::new(&[]);
    rig.begin("cam_1080", &[1080], 0, 2000);
    rig.pass(1000);
    rig.begin("cam_720", &[720], 0, 3000);
    rig.pass(24_000);
    let segments = rig.segments();
    assert_eq!(segments.len(), 2);
    assert!(segments[0].values().rev().take(3).all(|(_, ms)| *ms == 2000), "{segments:?}");
    assert!(segments[1].values().rev().take(3).all(|(_, ms)| *ms == 3000), "{segments:?}");
}

#[test]
fn names_of_renditions_are_free() {
    let namer = |id: &str, former: Option<&str>, taken: &[&str]| Namer {
        main: "cam".into(),
        id: id.into(),
        fixed: None,
        former: former.map(str::to_owned),
        taken: taken.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(namer("x", None, &[]).name(720, 1180), "cam_720p1200kbps");
    assert_eq!(namer("x", None, &[]).name(0, 0), "cam_0p50kbps");
    assert_eq!(namer("cam_720p1200kbps", None, &[]).name(720, 1180), "cam_720p1201kbps");
    let taken = ["cam_720p1200kbps.m3u8", "cam_720p1201kbps.m3u8"];
    assert_eq!(namer("x", None, &taken).name(720, 1180), "cam_720p1202kbps");
    assert_eq!(namer("x", Some("cam_720p900kbps.m3u8"), &taken).name(720, 1180), "cam_720p900kbps");
    assert_eq!(namer("x", Some("cam_720p1200kbps.m3u8"), &taken).name(720, 1180), "cam_720p1202kbps");
}

#[test]
fn only_the_playlist_of_all_begins_a_ladder() {
    for (name, main) in [
        ("cam_adaptive.m3u8", Some("cam")),
        ("a/b/cam_adaptive.m3u8", Some("cam")),
        ("_adaptive.m3u8", None),
        ("cam.m3u8", None),
        ("ll-hls/cam/cam_adaptive.m3u8", None),
        ("cam_720p800kbps.m3u8", None),
    ] {
        assert_eq!(of_master(name), main, "{name}");
    }
}

/// The tags of a playlist.
fn tags(playlist: &MediaPlaylist) -> Vec<DateRange> {
    playlist.segments.iter().flat_map(|segment| segment.date_ranges.clone()).collect()
}

#[test]
fn a_break_is_the_same_in_all_renditions_and_has_their_times() {
    for fragmented in [false, true] {
        let form = if fragmented { "fmp4" } else { "mpegts" };
        let mut rig = Rig::new(&[("hlsSegmentType", form)]);
        rig.lag_ms = 80;
        rig.begin("cam", &[720, 360], 0, 1000);
        rig.pass(9000);
        rig.cue("cam", scte35::insert(7, scte35::Kind::Out, Some(900_000)), 3080);
        rig.pass(5000);
        rig.cue("cam", scte35::insert(7, scte35::Kind::In, None), 0);
        rig.pass(4000);
        let uris = rig.uris();
        assert_eq!(uris.len(), 2);
        let all: Vec<_> = uris.iter().map(|uri| tags(&rig.media(uri).unwrap())).collect();
        assert_eq!(all[0], all[1]);
        let kinds: Vec<_> = all[0].iter().map(|tag| tag.splice.as_ref().unwrap().0).collect();
        assert_eq!(kinds, [SpliceKind::Out, SpliceKind::In], "{form}");
        // Times in segments count from the beginning of 2026 by the wall clock.
        let out = &all[0][0];
        let zero_ms = if fragmented { 0 } else { 1400 };
        let at_ms = out.start_ms - i64::try_from(hls::segmenter::NUMBERS_FROM_MS).unwrap() + 80 + zero_ms;
        let section = &out.splice.as_ref().unwrap().1;
        let pts = i64::try_from(scte35::Splice::read(section).unwrap().pts.unwrap()).unwrap();
        assert_eq!(pts, at_ms * 90 % (1 << 33), "{form}");
        assert_eq!(out.start_ms, i64::try_from(WALL_MS).unwrap() + 9000 - FRAME_MS + 3000, "{form}");
        assert!(out.id.starts_with("7-"));
    }
}
