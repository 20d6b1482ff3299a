//! Several videos of one stream with low latency and DASH.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hls::Playlist;
use hls::playlist::{MediaPlaylist, SpliceKind};
use media::{AccessUnit, CodecConfig, Timescale, TrackId, Tracks, scte35};

use super::*;
use crate::jobs::JobDone;
use crate::mail::StreamDetails;
use crate::protocol::{Event, OrderEvent, SubscriptionEvent, schema};
use crate::types::{StreamId, StreamKey};

mod captions;
mod going_back;
mod kept;
mod several_sounds;
mod silence;
mod subtitles;
mod window;

/// A sink, and the blobs published so far.
struct Rig {
    sink: Cmaf,
    begun: Instant,
    /// The wall clock at that time.
    wall_ms: u64,
    chosen: Chosen,
    blobs: BTreeMap<String, Bytes>,
    /// Names of blobs that are dropped last when memory is short.
    needed: BTreeSet<String>,
    /// Time from decoding to presentation of pictures.
    lag_ms: i64,
    /// NAL units before the slice of each picture.
    before: Bytes,
    /// Files on the disk, by folder and name; and endings of the names of files that cannot be written.
    disk: BTreeMap<(String, String), Bytes>,
    unwritable: Vec<String>,
    settings: Arc<AppSettings>,
    /// Number of requests for key frames of the first video.
    asked: u32,
}

fn video(n: u8) -> Track {
    let config = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let config = CodecConfig::read(Codec::H264, config).unwrap().unwrap();
    Track::new(TrackId::nth(TrackKind::Video, n).unwrap(), config, Timescale::MILLISECONDS)
}

fn audio() -> Track {
    Track { label: Some("Deutsch".into()), ..sound(0, "deu") }
}

fn sound(n: u8, language: &str) -> Track {
    let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
    let id = TrackId::nth(TrackKind::Audio, n).unwrap();
    Track { language: Some(language.into()), ..Track::new(id, config, Timescale::MILLISECONDS) }
}

impl Rig {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(more: &[(&str, &str)]) -> Self {
        Self::begun_at(1_795_806_797_674, more)
    }

    fn begun_at(wall_ms: u64, more: &[(&str, &str)]) -> Self {
        Self::laid_out(Layout::Apart, wall_ms, more)
    }

    fn laid_out(layout: Layout, wall_ms: u64, more: &[(&str, &str)]) -> Self {
        let settings = [&[("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")], more].concat();
        let order = SinkOrder {
            stream: StreamId(1),
            kind: "cmaf",
            key: StreamKey::new("live", "cam"),
            settings: Arc::new(AppSettings::of(schema(), "live", &settings).unwrap()),
            details: StreamDetails::default(),
            recording: None,
        };
        let begun = Instant::now();
        let now = Now { mono: begun, wall_ms };
        let sink = Cmaf::new(now, &order, layout, Seed::from_number(1));
        Self {
            sink,
            begun,
            wall_ms,
            chosen: Chosen::default(),
            blobs: BTreeMap::new(),
            needed: BTreeSet::new(),
            lag_ms: 0,
            before: Bytes::new(),
            disk: BTreeMap::new(),
            unwritable: Vec::new(),
            settings: order.settings,
            asked: 0,
        }
    }

    /// Sends splice information at stream time `dts`, for a splice at `pts`.
    fn cue(&mut self, section: Bytes, dts: i64, pts: i64) {
        let unit = AccessUnit {
            track: TrackId::CUES,
            dts,
            pts,
            key_frame: false,
            config_epoch: 0,
            payload: section,
        };
        let list = Arc::new(Tracks::new(1, []));
        self.sink.take_data(&Entry::new(self.begun, self.wall_ms, unit, list));
    }

    /// Passes units of these tracks in a time range. Each track is given with the time in milliseconds of its first
    /// unit; key frames come every second.
    fn pass(&mut self, tracks: &[(Track, i64)], epoch: u32, times: std::ops::Range<i64>) {
        let list = Arc::new(Tracks::new(epoch, tracks.iter().map(|(track, _)| track.clone())));
        let selection = Selection { data: Pick::None, ..Selection::ALL };
        self.chosen.update(selection, &list, &|_| Fit::Well);
        for dts in times.step_by(40) {
            let ms = dts.unsigned_abs();
            let now = Now { mono: self.begun + Duration::from_millis(ms), wall_ms: self.wall_ms + ms };
            for (track, _) in tracks.iter().filter(|(_, first_ms)| dts >= *first_ms) {
                let key_frame = dts % 1000 == 0 || track.kind() == TrackKind::Audio;
                let slice: &[u8] = &[0, 0, 0, 1, 9];
                let is_video = track.kind() == TrackKind::Video;
                let payload = if is_video { [&self.before, slice].concat() } else { slice.to_vec() };
                let payload = Bytes::from(payload);
                let unit = AccessUnit {
                    track: track.id,
                    dts,
                    pts: dts + if track.kind() == TrackKind::Video { self.lag_ms } else { 0 },
                    key_frame,
                    config_epoch: 1,
                    payload,
                };
                let entry = Entry::new(now.mono, now.wall_ms, unit, Arc::clone(&list));
                self.sink.take_media(now, &entry, &self.chosen);
            }
            self.drain(now);
        }
    }

    /// Takes the blobs of the sink, and does its jobs.
    fn drain(&mut self, now: Now) {
        while let Some(event) = self.sink.publishing.poll(now) {
            if let Event::Order(OrderEvent::Blob(blob)) = event {
                blob.obsolete.forgets.iter().for_each(|name| drop(self.blobs.remove(name)));
                self.needed.extend(blob.is_needed.then(|| blob.name.to_string()));
                self.blobs.insert(blob.name.to_string(), blob.bytes);
            } else if let Event::Job(job) = event {
                let outcome = going_back::outcome(&mut self.disk, &self.unwritable, job.work);
                self.sink.publishing.job_done(now, JobDone { id: job.id, outcome });
            } else if let Event::Subscription(_, SubscriptionEvent::KeyFrameNeeded(Some(TrackId::VIDEO))) =
                event
            {
                self.asked += 1;
            }
        }
    }

    /// Ends the stream at this time in milliseconds.
    fn end(&mut self, ms: u64) {
        let now = Now { mono: self.begun + Duration::from_millis(ms), wall_ms: self.wall_ms + ms };
        self.sink.end(now, StreamEnd::Unpublished);
        self.sink.publishing.finish(now, "the stream is over");
        self.drain(now);
    }

    fn text(&self, name: &str) -> &str {
        std::str::from_utf8(&self.blobs[name]).unwrap()
    }

    fn media(&self, base: &str) -> MediaPlaylist {
        let text = self.text(&format!("ll-hls/cam/{base}{ENDING}"));
        let Ok(Playlist::Media(playlist)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
        playlist
    }

    /// Returns the date and the length of each segment of a rendition, by segment number.
    fn segments(&self, base: &str) -> BTreeMap<u64, (i64, u128)> {
        let playlist = self.media(base);
        let numbered = (playlist.media_sequence..).zip(&playlist.segments);
        numbered
            .map(|(number, one)| (number, (one.program_date_time.unwrap(), one.duration.as_millis())))
            .collect()
    }
}

#[test]
fn videos_of_a_stream_have_the_same_segments_whenever_they_begin() {
    // The second video begins with the first, within one of its segments, or at the end of one; or the first begins
    // later.
    for (first_ms, second_ms) in [(0, 0), (0, 1000), (0, 2000), (0, 3000), (0, 7000), (1000, 0), (2000, 0)] {
        let mut rig = Rig::new();
        let tracks = [(video(0), first_ms), (video(1), second_ms), (audio(), 0)];
        rig.pass(&tracks, 1, 0..25_000);
        let [high, low] = ["cam__video0", "cam__video1"].map(|base| rig.segments(base));
        let places = |of: &BTreeMap<u64, (i64, u128)>| of.values().rev().take(5).copied().collect::<Vec<_>>();
        assert_eq!(places(&high), places(&low), "{first_ms} {second_ms}");
        if first_ms <= second_ms {
            let common: Vec<_> = low.keys().filter(|number| high.contains_key(number)).collect();
            assert!(common.len() >= 5, "{high:?} {low:?}");
            let same = common.iter().rev().take(5).all(|number| high[number] == low[number]);
            assert!(same, "{first_ms} {second_ms}: {high:?} {low:?}");
        }
        let [high, low, sound] = ["cam__video0", "cam__video1", "cam__audio"].map(|base| rig.media(base));
        assert_eq!(high.target_duration, low.target_duration, "RFC 8216 6.2.4");
        for (playlist, others) in [
            (&high, ["cam__video1.m3u8", "cam__audio.m3u8"]),
            (&low, ["cam__video0.m3u8", "cam__audio.m3u8"]),
            (&sound, ["cam__video0.m3u8", "cam__video1.m3u8"]),
        ] {
            let reports = &playlist.low_latency.as_ref().unwrap().reports;
            let told: Vec<_> = reports.iter().map(|report| report.uri.as_str()).collect();
            assert_eq!(told, others);
        }
    }
}

#[test]
fn a_report_has_the_last_part_of_a_segment_that_has_just_ended() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..20_040);
    let [video, sound] = ["cam__video", "cam__audio"].map(|base| rig.media(base));
    assert!(video.low_latency.as_ref().unwrap().open.parts.is_empty());
    let next = video.media_sequence + u64::try_from(video.segments.len()).unwrap();
    let report = &sound.low_latency.as_ref().unwrap().reports[0];
    let parts = u64::try_from(video.segments.last().unwrap().parts.len()).unwrap();
    assert_eq!((report.last_segment, report.last_part), (next - 1, Some(parts - 1)), "{sound}");
}

#[test]
fn several_videos_are_variants_with_one_group_of_sound_and_alternatives_of_one_set() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (video(1), 0), (audio(), 0)], 1, 0..15_000);
    let text = rig.text("ll-hls/cam/cam__master.m3u8");
    let Ok(Playlist::Multivariant(list)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
    assert_eq!((list.variants.len(), list.renditions.len()), (2, 1), "one group of sound: {text}");
    assert!(list.variants.iter().all(|one| one.audio.as_deref() == Some(sounds::AUDIO)));
    let sound = &list.renditions[0];
    assert_eq!((sound.language.as_deref(), sound.name.as_str()), (Some("de"), "Deutsch"));
    let text = rig.text("cam/cam.mpd");
    assert_eq!(text.matches("contentType=\"video\"").count(), 1, "{text}");
    assert_eq!(text.matches("<Representation ").count(), 3, "{text}");
    assert_eq!(text.matches("segmentAlignment=\"true\"").count(), 2, "{text}");
}

#[test]
fn the_multivariant_playlist_and_init_segments_are_dropped_last() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (audio(), 0)], 1, 0..15_000);
    let (lists, rest): (Vec<&String>, Vec<&String>) =
        rig.needed.iter().partition(|name| name.ends_with(ENDING));
    assert_eq!(lists, ["ll-hls/cam/cam__master.m3u8"]);
    assert!(rest.len() == 2 && rest.iter().all(|name| name.ends_with("_init.mp4")), "{rest:?}");
}

/// Returns kind, date and section time of each tag in a playlist.
fn tags(playlist: &MediaPlaylist) -> Vec<(SpliceKind, i64, Option<u64>)> {
    let tags = playlist.segments.iter().flat_map(|segment| &segment.date_ranges);
    tags.map(|tag| {
        let (kind, section) = tag.splice.as_ref().unwrap();
        (*kind, tag.start_ms, scte35::Splice::read(section).unwrap().pts)
    })
    .collect()
}

#[test]
fn a_splice_on_a_key_frame_has_the_date_and_the_time_of_its_segment() {
    let mut rig = Rig::new();
    rig.lag_ms = 80;
    let tracks = [(video(0), 0), (audio(), 0)];
    rig.pass(&tracks, 1, 0..9000);
    // The splice is at the presentation time of the picture whose DTS is twelve seconds.
    rig.cue(scte35::insert(7, scte35::Kind::Out, None), 9000, 12_080);
    rig.pass(&tracks, 1, 9000..16_000);
    for base in ["cam__video", "cam__audio"] {
        let playlist = rig.media(base);
        // The first unit of the stream has the time of one second in the segments, so the splice has 13.08 seconds.
        let expected = (SpliceKind::Out, 1_795_806_797_674 + 12_000, Some(13_080 * 90));
        assert_eq!(tags(&playlist), [expected], "{base}");
        let begins = |segment: &&hls::playlist::Segment| segment.program_date_time == Some(expected.1);
        assert!(playlist.segments.iter().any(|segment| begins(&segment)), "{base}: {playlist}");
    }
}

#[test]
fn a_break_ends_also_where_its_tracks_are_away() {
    let mut rig = Rig::new();
    let both = [(video(0), 0), (audio(), 0)];
    rig.pass(&both, 1, 0..9000);
    rig.cue(scte35::insert(7, scte35::Kind::Out, None), 9000, 9000);
    rig.pass(&both, 1, 9000..13_000);
    rig.pass(&both[..1], 2, 13_000..15_000);
    rig.cue(scte35::insert(7, scte35::Kind::In, None), 15_000, 15_000);
    rig.pass(&both[..1], 2, 15_000..20_000);
    for base in ["cam__video", "cam__audio"] {
        let kinds: Vec<SpliceKind> = tags(&rig.media(base)).into_iter().map(|(kind, ..)| kind).collect();
        assert_eq!(kinds.last(), Some(&SpliceKind::In), "{base}: {kinds:?}");
    }
}
