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
            dates: Dates::new(),
            folder,
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
        if chosen.epoch() != self.chosen_epoch {
            self.chosen_epoch = chosen.epoch();
            self.segmenter.set_tracks(chosen.iter().cloned().collect(), chosen.epoch());
        }
        self.lag.note(entry, chosen);
        let moved_ms = self.dates.note(arrival(entry), chosen.epoch());
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
    use hls::playlist::SpliceKind;
    use media::{AccessUnit, CodecConfig, Timescale, TrackId, Tracks, scte35};

    use super::*;
    use crate::mail::StreamDetails;
    use crate::protocol::{Event, OrderEvent, schema};
    use crate::types::{StreamId, StreamKey};

    const WALL_MS: u64 = 1_795_806_797_674;

    #[test]
    fn a_splice_on_a_key_frame_has_the_date_and_the_time_of_its_segment() {
        let order = SinkOrder {
            stream: StreamId(1),
            kind: "hls",
            key: StreamKey::new("live", "cam"),
            settings: Arc::new(AppSettings::of(schema(), "live", &[]).unwrap()),
            details: StreamDetails::default(),
            recording: None,
        };
        let begun = Instant::now();
        let now = |ms: u64| Now { mono: begun + Duration::from_millis(ms), wall_ms: WALL_MS + ms };
        let mut sink = TsPlaylist::new(now(0), &order, Seed::from_number(1));
        let config = Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
        let config = CodecConfig::read(Codec::H264, config).unwrap().unwrap();
        let tracks = Arc::new(Tracks::new(1, [Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS)]));
        let chosen = Chosen::all_of(&tracks);
        let apps = [("live".into(), Arc::clone(&order.settings))].into();
        let (server, blobs) = (crate::mail::SessionSettings::default(), crate::hub::Blobs::new());
        let mut text = Bytes::new();
        for dts in (0..14_000_i64).step_by(40) {
            let now = now(dts.unsigned_abs());
            let entry = |unit| Entry::new(now.mono, now.wall_ms, unit, Arc::clone(&tracks));
            let unit = AccessUnit {
                track: TrackId::VIDEO,
                dts,
                pts: dts + 80,
                key_frame: dts % 1000 == 0,
                config_epoch: 1,
                payload: Bytes::from_static(&[0, 0, 0, 1, 9]),
            };
            let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
            sink.take(&ctx, &entry(unit.clone()), &chosen);
            if dts == 7000 {
                // The cue names the presentation time of the picture whose DTS is ten seconds.
                let payload = scte35::insert(7, scte35::Kind::Out, None);
                let cue = AccessUnit { track: TrackId::CUES, pts: 10_080, payload, key_frame: false, ..unit };
                sink.take_data(&entry(cue));
            }
            while let Some(event) = sink.publishing.poll(now) {
                if let Event::Order(OrderEvent::Blob(blob)) = event
                    && blob.name.ends_with(ENDING)
                {
                    text = blob.bytes;
                }
            }
        }
        let Ok(Playlist::Media(playlist)) = Playlist::read(&text) else { panic!("{text:?}") };
        let tag = playlist.segments.iter().find_map(|segment| segment.date_ranges.first()).unwrap();
        let (kind, section) = tag.splice.as_ref().unwrap();
        let pts = scte35::Splice::read(section).unwrap().pts;
        let date_ms = i64::try_from(WALL_MS).unwrap() + 10_000;
        assert_eq!((*kind, tag.start_ms, pts), (SpliceKind::Out, date_ms, Some((10_080 + 1400) * 90)));
        assert!(playlist.segments.iter().any(|segment| segment.program_date_time == Some(date_ms)));
    }
}
