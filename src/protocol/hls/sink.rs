//! A live stream as HLS: the sink that makes its segments and its playlist, and publishes them as blobs. The sink
//! begins with the first request for the playlist, and continues until the stream ends.
//!
//! ```text
//! streams/{id}.m3u8   streams/{id}000000001.ts   streams/{id}000000002.ts ...
//! ```

use crypto::Seed;
use hls::segmenter::{Cut, Dates, GivenKey, Sealer, TsSegmenter};
use media::{Codec, Track};

use super::live::{LiveSink, Presenter};
use super::metadata::{Lag, Metadata, Place};
use super::publishing::Publishing;
use super::settings::{Ends, HlsSettings};
use super::silence::{News, Silence};
use super::{ENDING, NAME, arrival, file_of, forgets, kept_at, progress, start, stream_of, tailor, timed};
use crate::config::AppSettings;
use crate::hub::{Chosen, Entry, Fit, Item, Package, Parts, Selection};
use crate::mail::StreamEnd;
use crate::protocol::sinks::{SinkKind, SinkOrder};
use crate::protocol::ts;
use crate::protocol::{Context, Format, FormatKind};
use crate::types::Now;

/// See [`crate::protocol::sinks`].
pub(super) static KIND: SinkKind = SinkKind {
    name: NAME,
    is_enabled: |app| is_enabled(app) && !HlsSettings::of(app).fragmented,
    stream_of: |_, name| stream_of(name),
    root: None,
    file_of,
    kept_at,
    forgets,
    begins_with_stream: HlsSettings::begins_with_stream,
    is_outdated: HlsSettings::are_sealed_otherwise,
    part_of: |_, _| None,
    ladder: None,
    is_glance: false,
    viewers: |_| NAME,
    params: tailor::PARAMS,
    begin: |now, order, seed| Box::new(LiveSink::new(TsPlaylist::new(now, order, seed))),
};

/// Format of the units from which the sink makes MPEG-TS segments.
pub(super) static FORMAT: FormatKind = FormatKind {
    name: NAME,
    counted_as: None,
    is_enabled,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(Segmented)),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

fn is_enabled(app: &AppSettings) -> bool {
    HlsSettings::of(app).enabled
}

/// MPEG-TS for HLS players. Few of them support Opus in it, so AAC is preferred. Units are not packaged, because the
/// sink writes whole segments.
#[derive(Debug)]
struct Segmented;

impl Package for Segmented {
    fn fit(&self, track: &Track) -> Fit {
        fit(track)
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        let track = entry.tracks.get(entry.unit.track);
        if entry.unit.track.is_data() || track.is_some_and(|track| ts::fit(track) != Fit::No) {
            Parts::new([entry.unit.payload.clone()]).into()
        } else {
            Item::default()
        }
    }
}

/// Judges how well players of HLS take a track in MPEG-TS.
pub(super) fn fit(track: &Track) -> Fit {
    let fit = ts::fit(track);
    if track.config.codec() == Codec::Opus { fit.min(Fit::Rarely) } else { fit }
}

/// Applies the settings for encryption and metadata to a segmenter.
pub(super) fn segmenter(
    settings: &HlsSettings,
    segmenter: TsSegmenter,
    sealer: Option<Sealer>,
) -> TsSegmenter {
    let segmenter = segmenter.sealed_by(sealer);
    if settings.metadata.has_tags { segmenter.with_metadata() } else { segmenter }
}

#[derive(Debug)]
struct TsPlaylist {
    /// The folder of the playlist, with a slash at the end.
    folder: String,
    playlist: String,
    ends: Ends,
    segmenter: TsSegmenter,
    metadata: Metadata,
    lag: Lag,
    /// The [`Chosen::epoch`] of the tracks in use.
    chosen_epoch: u32,
    /// Number of changes of the tracks in segments, each of which is a discontinuity.
    shown_epoch: u32,
    silence: Silence,
    dates: Dates,
    publishing: Publishing,
}

impl TsPlaylist {
    fn new(now: Now, order: &SinkOrder, seed: Seed) -> Self {
        let (id, folder) = (&order.key.id, order.details.folder.clone());
        let playlist = format!("{folder}{id}{ENDING}");
        let settings = HlsSettings::of_stream(&order.settings, &order.details);
        let publishing = Publishing::copied(now, order, seed, &playlist);
        let sealer = publishing.sealer(&settings.sealing, id);
        Self {
            ends: settings.ends,
            publishing,
            playlist,
            segmenter: segmenter(&settings, TsSegmenter::new(id, &settings.rules, start(now)), sealer),
            metadata: settings.metadata,
            lag: Lag::default(),
            chosen_epoch: 0,
            shown_epoch: 0,
            silence: Silence::default(),
            dates: Dates::new(),
            folder,
        }
    }

    /// Notes a unit. If the tracks have changed, segments go on with those that are not silent. Only the video may fall
    /// silent, because no other track holds the others back.
    fn note(&mut self, entry: &Entry, chosen: &Chosen) {
        let has_other = chosen.epoch() != self.chosen_epoch;
        if has_other {
            self.chosen_epoch = chosen.epoch();
            self.silence = Silence::of(chosen.iter().filter(|track| Some(track.id) == chosen.lead()));
        }
        let news = self.silence.note(entry);
        if let Some(News::KeyFrameNeeded(track)) = news {
            self.publishing.need_key_frame(track);
        } else if news.is_some() || has_other {
            self.shown_epoch = self.shown_epoch.saturating_add(1);
            let tracks = chosen.iter().filter(|track| !self.silence.is_silent(track.id));
            self.segmenter.set_tracks(tracks.cloned().collect(), self.shown_epoch);
        }
    }

    /// Publishes a segment, then the playlist, so that the playlist never names a missing file.
    fn publish_cut(&mut self, cut: Option<Cut>) {
        if let Some(Cut { uri, bytes, key }) = cut {
            if let Some((name, key)) = key {
                self.publishing.init(&format!("{}{name}", self.folder), key);
            }
            self.publishing.resource(&format!("{}{uri}", self.folder), bytes);
        }
        if let Some(playlist) = self.segmenter.playlist() {
            self.dates.settle();
            let progress = progress(self.segmenter.window());
            self.publishing.media_playlist(&self.playlist, playlist, progress);
        }
        let folder = &self.folder;
        let (left, gone) = (self.segmenter.take_left(), self.segmenter.take_gone());
        self.publishing.leave(left.into_iter().map(|name| format!("{folder}{name}")));
        self.publishing.forget(gone.into_iter().map(|name| format!("{folder}{name}")));
    }
}

impl Presenter for TsPlaylist {
    fn format(&self) -> Format {
        let selection = Selection { data: self.metadata.pick(), ..Selection::DEFAULT };
        Format::new(&FORMAT, 0).select(selection)
    }

    fn publishing(&self) -> &Publishing {
        &self.publishing
    }

    fn publishing_mut(&mut self) -> &mut Publishing {
        &mut self.publishing
    }

    fn take(&mut self, _ctx: &Context<'_>, entry: &Entry, chosen: &Chosen) {
        self.note(entry, chosen);
        if self.silence.is_silent(entry.unit.track) {
            return;
        }
        self.lag.note(entry, chosen);
        let moved_ms = self.dates.note(arrival(entry), self.shown_epoch);
        self.segmenter.move_dates(moved_ms);
        let mut at = timed(entry, self.dates.date_ms(entry.dts_ms));
        if self.dates.is_due() && self.segmenter.end_before(&at).is_some() {
            self.dates.jump(entry.dts_ms);
            at.date_ms = self.dates.date_ms(entry.dts_ms);
        }
        if let Some(cut) = self.segmenter.unit(&at) {
            self.publish_cut(Some(cut));
        }
    }

    fn take_data(&mut self, entry: &Entry) {
        let tags = self.metadata.tags(entry);
        tags.iter().for_each(|tags| self.segmenter.metadata(entry.dts_ms, tags));
        let (at_ms, date_ms) = (entry.unit.pts, self.dates.date_ms(self.lag.dts_ms(entry.unit.pts)));
        let place = Place { at_ms, date_ms, zero_ms: Place::ts_zero_ms() };
        let cue = self.metadata.cue(entry, place).filter(|_| self.dates.reading().is_some());
        cue.iter().for_each(|cue| self.segmenter.cue(cue));
    }

    fn set_key(&mut self, key: GivenKey) {
        self.segmenter.set_key(key);
    }

    fn finish(&mut self, _ctx: &Context<'_>, end: StreamEnd) {
        let cut = self.segmenter.finish(self.ends.with(end));
        self.publish_cut(cut);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use hls::Playlist;
    use hls::playlist::{MediaPlaylist, Segment, SpliceKind};
    use media::{AccessUnit, CodecConfig, Timescale, TrackId, Tracks, scte35};

    use super::*;
    use crate::mail::StreamDetails;
    use crate::protocol::{Event, OrderEvent, schema};
    use crate::types::{StreamId, StreamKey};

    const WALL_MS: u64 = 1_795_806_797_674;

    /// A sink, its clock, and the newest playlist.
    struct Rig {
        sink: TsPlaylist,
        settings: Arc<AppSettings>,
        begun: Instant,
        text: Bytes,
    }

    fn video() -> Track {
        let config = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
        let config = CodecConfig::read(Codec::H264, config).unwrap().unwrap();
        Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS)
    }

    fn audio() -> Track {
        let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
        Track::new(TrackId::AUDIO, config, Timescale::MILLISECONDS)
    }

    impl Rig {
        fn new() -> Self {
            let order = SinkOrder {
                stream: StreamId(1),
                kind: "hls",
                key: StreamKey::new("live", "cam"),
                settings: Arc::new(AppSettings::of(schema(), "live", &[]).unwrap()),
                details: StreamDetails::default(),
                recording: None,
            };
            let begun = Instant::now();
            let now = Now { mono: begun, wall_ms: WALL_MS };
            let sink = TsPlaylist::new(now, &order, Seed::from_number(1));
            Self { sink, settings: order.settings, begun, text: Bytes::new() }
        }

        /// Passes the unit of a track at this time. Key frames come every second.
        fn unit(&mut self, tracks: &Arc<Tracks>, track: TrackId, dts: i64) {
            let ms = dts.unsigned_abs();
            let now = Now { mono: self.begun + Duration::from_millis(ms), wall_ms: WALL_MS + ms };
            let is_video = track == TrackId::VIDEO;
            let unit = AccessUnit {
                track,
                dts,
                pts: if is_video { dts + 80 } else { dts },
                key_frame: !is_video || dts % 1000 == 0,
                config_epoch: 1,
                payload: Bytes::from_static(&[0, 0, 0, 1, 9]),
            };
            let entry = Entry::new(now.mono, now.wall_ms, unit, Arc::clone(tracks));
            let apps = [("live".into(), Arc::clone(&self.settings))].into();
            let (server, blobs) = (crate::mail::SessionSettings::default(), crate::hub::Blobs::new());
            let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
            self.sink.take(&ctx, &entry, &Chosen::all_of(tracks));
            while let Some(event) = self.sink.publishing.poll(now) {
                if let Event::Order(OrderEvent::Blob(blob)) = event
                    && blob.name.ends_with(ENDING)
                {
                    self.text = blob.bytes;
                }
            }
        }

        /// Sends splice information at stream time `dts`, for a splice at `pts`.
        fn cue(&mut self, tracks: &Arc<Tracks>, payload: Bytes, (dts, pts): (i64, i64)) {
            let track = TrackId::CUES;
            let unit = AccessUnit { track, dts, pts, key_frame: false, config_epoch: 1, payload };
            self.sink.take_data(&Entry::new(self.begun, WALL_MS, unit, Arc::clone(tracks)));
        }

        fn playlist(&self) -> MediaPlaylist {
            let Ok(Playlist::Media(playlist)) = Playlist::read(&self.text) else { panic!("{:?}", self.text) };
            playlist
        }
    }

    #[test]
    fn a_splice_on_a_key_frame_has_the_date_and_the_time_of_its_segment() {
        let mut rig = Rig::new();
        let tracks = Arc::new(Tracks::new(1, [video()]));
        for dts in (0..14_000_i64).step_by(40) {
            rig.unit(&tracks, TrackId::VIDEO, dts);
            if dts == 7000 {
                // The cue names the presentation time of the picture whose DTS is ten seconds.
                rig.cue(&tracks, scte35::insert(7, scte35::Kind::Out, None), (dts, 10_080));
            }
        }
        let playlist = rig.playlist();
        let tag = playlist.segments.iter().find_map(|segment| segment.date_ranges.first()).unwrap();
        let (kind, section) = tag.splice.as_ref().unwrap();
        let pts = scte35::Splice::read(section).unwrap().pts;
        let date_ms = i64::try_from(WALL_MS).unwrap() + 10_000;
        assert_eq!((*kind, tag.start_ms, pts), (SpliceKind::Out, date_ms, Some((10_080 + 1400) * 90)));
        assert!(playlist.segments.iter().any(|segment| segment.program_date_time == Some(date_ms)));
    }

    #[test]
    fn video_that_sends_nothing_does_not_hold_sound_back() {
        // The video never comes, or stops; both times it begins with a key frame at 31 s.
        for stops_ms in [0, 10_000] {
            let mut rig = Rig::new();
            let tracks = Arc::new(Tracks::new(1, [video(), audio()]));
            let passes = |rig: &mut Rig, times: std::ops::Range<i64>| {
                for dts in times.step_by(40) {
                    if dts < stops_ms || dts > 30_500 {
                        rig.unit(&tracks, TrackId::VIDEO, dts);
                    }
                    rig.unit(&tracks, TrackId::AUDIO, dts);
                }
            };
            passes(&mut rig, 0..30_000);
            let playlist = rig.playlist();
            let longest = playlist.segments.iter().map(|one| one.duration.as_millis()).max().unwrap();
            // Sound alone ends its segments wherever they are long enough; it was held back for five seconds at most.
            assert!(longest < if stops_ms > 0 { 2600 } else { 5600 }, "{stops_ms}: {playlist}");
            passes(&mut rig, 30_000..45_000);
            let playlist = rig.playlist();
            let with_pictures: Vec<_> =
                playlist.segments.iter().skip_while(|one| !is_at(one, 31_000)).collect();
            assert!(with_pictures.len() > 5 && with_pictures[0].discontinuity, "{stops_ms}: {playlist}");
            assert!(with_pictures.iter().skip(1).all(|one| one.duration.as_millis() == 2000), "{playlist}");
        }
    }

    fn is_at(segment: &Segment, ms: i64) -> bool {
        segment.program_date_time == Some(i64::try_from(WALL_MS).unwrap() + ms)
    }
}
