//! The units of a view: those of one stream after another, on one clock and in one list of tracks.
//!
//! The view's clock is arrival time: a stream begins at the arrival of its first shown unit, and keeps its own
//! intervals from there on. Times never go back, so units that overlap are left out. The stream's script data and
//! timed metadata pass with it. The shown tracks have the same two ids for every stream; a change of stream is a
//! change of their configuration.

use std::sync::Arc;
use std::time::Instant;

use media::{AccessUnit, Origin, Timescale, Track, TrackId, TrackKind, Tracks, scte35};

use crate::hub::{Chosen, Entry};
use crate::mail::Grant;

/// The output of a view.
#[derive(Debug)]
pub(super) struct Output {
    /// Time in milliseconds, on the view's clock, at which the view begins or continues.
    base_ms: i64,
    /// Time of arrival of the unit at `base_ms`.
    base_at: Option<Instant>,
    /// Milliseconds to add to a time of the shown stream to get the time on the view's clock.
    shift_ms: i64,
    /// Time in milliseconds, on the view's clock, at which the shown stream begins.
    begins_ms: i64,
    video: Lane,
    audio: Lane,
    tracks: Arc<Tracks>,
}

/// The state of a kind of track.
#[derive(Debug, Clone, Copy)]
struct Lane {
    /// The track of the shown stream and its epoch; `None` until it is described.
    source: Option<(TrackId, u32)>,
    /// Time of the newest unit, in milliseconds.
    last_ms: i64,
    /// Time up to which units of the shown stream are left out, because units of former streams already cover it.
    had_ms: i64,
    /// True if a decoder can take the next unit of the shown stream.
    has_begun: bool,
}

impl Lane {
    const fn new(base_ms: i64) -> Self {
        let had_ms = base_ms.saturating_sub(1);
        Self { source: None, last_ms: had_ms, had_ms, has_begun: false }
    }

    /// Prepares for the track of another stream.
    const fn cut(&mut self) {
        *self = Self { source: None, had_ms: self.last_ms, has_begun: false, ..*self };
    }
}

impl Output {
    pub(super) fn new(grant: &Grant) -> Self {
        let position = grant.position;
        let base_ms = if position.started { position.dts_ms.saturating_add(1) } else { 0 };
        Self {
            base_ms,
            base_at: None,
            shift_ms: 0,
            begins_ms: base_ms,
            video: Lane::new(base_ms),
            audio: Lane::new(base_ms),
            tracks: Arc::new(Tracks::new(grant.epoch, [])),
        }
    }

    /// Shows another stream, which begins with this unit.
    pub(super) fn cut(&mut self, entry: &Entry) {
        let base_at = *self.base_at.get_or_insert(entry.received);
        let passed = entry.received.saturating_duration_since(base_at).as_millis();
        let arrives_ms = self.base_ms.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        let last_ms = self.video.last_ms.max(self.audio.last_ms);
        let begins_ms = arrives_ms.max(last_ms.saturating_add(1));
        self.shift_ms = begins_ms.saturating_sub(entry.dts_ms);
        self.begins_ms = begins_ms;
        self.video.cut();
        self.audio.cut();
    }

    /// Converts a unit of the stream that is shown. `None` if it is left out.
    pub(super) fn convert(&mut self, entry: &Entry, chosen: &Chosen) -> Option<(AccessUnit, Arc<Tracks>)> {
        if entry.unit.track.is_data() {
            return self.convert_data(entry);
        }
        let track = entry.tracks.get(entry.unit.track)?;
        let kind = track.kind();
        let dts_ms = entry.dts_ms.saturating_add(self.shift_ms);
        let lane = self.lane(kind)?;
        let is_cut_in = kind == TrackKind::Video && !lane.has_begun && !entry.unit.key_frame;
        if dts_ms <= lane.had_ms || is_cut_in {
            return None;
        }
        lane.has_begun = true;
        lane.last_ms = lane.last_ms.max(dts_ms);
        if lane.source != Some((track.id, track.epoch)) {
            self.describe(track, chosen);
        }
        let shift = Timescale::MILLISECONDS.convert(self.shift_ms, track.timescale);
        let shown = self.tracks.get(id_of(kind)?)?;
        let unit = AccessUnit {
            track: shown.id,
            dts: entry.unit.dts.saturating_add(shift),
            pts: entry.unit.pts.saturating_add(shift),
            config_epoch: shown.epoch,
            ..entry.unit.clone()
        };
        Some((unit, Arc::clone(&self.tracks)))
    }

    /// Converts script data or timed metadata, for which no track is described and whose times are in milliseconds.
    fn convert_data(&self, entry: &Entry) -> Option<(AccessUnit, Arc<Tracks>)> {
        let dts = entry.dts_ms.saturating_add(self.shift_ms);
        // Splice information arrives before the time of the splice, which is its PTS.
        let pts = entry.unit.pts.saturating_add(self.shift_ms).max(dts);
        let mut unit = AccessUnit { dts, pts, ..entry.unit.clone() };
        if unit.track == TrackId::CUES {
            unit.payload = scte35::moved_along(&unit.payload, self.shift_ms);
        }
        (dts >= self.begins_ms && !self.tracks.is_empty()).then(|| (unit, Arc::clone(&self.tracks)))
    }

    const fn lane(&mut self, kind: TrackKind) -> Option<&mut Lane> {
        match kind {
            TrackKind::Video => Some(&mut self.video),
            TrackKind::Audio => Some(&mut self.audio),
            TrackKind::Data => None,
        }
    }

    /// Describes the tracks anew, because `track` is new or has changed.
    fn describe(&mut self, track: &Track, chosen: &Chosen) {
        let epoch = self.tracks.epoch.saturating_add(1);
        let mut list = Vec::new();
        for kind in [TrackKind::Video, TrackKind::Audio] {
            let other = || chosen.of_kind(kind).next();
            let of_kind = Some(track).filter(|track| track.kind() == kind).or_else(other);
            let (Some(source), Some(id)) = (of_kind, id_of(kind)) else { continue };
            let before = self.tracks.get(id).map(|track| track.epoch);
            let Some(lane) = self.lane(kind) else { continue };
            let is_same = lane.source.replace((source.id, source.epoch)) == Some((source.id, source.epoch));
            let epoch = before.filter(|_| is_same).unwrap_or(epoch);
            list.push(Track { id, epoch, rendition: None, origin: Origin::Published, ..source.clone() });
        }
        self.tracks = Arc::new(Tracks::new(epoch, list));
    }
}

/// Returns the id of the view's track of a kind.
const fn id_of(kind: TrackKind) -> Option<TrackId> {
    match kind {
        TrackKind::Video => Some(TrackId::VIDEO),
        TrackKind::Audio => Some(TrackId::AUDIO),
        TrackKind::Data => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use media::codec::{g711, vp8};
    use media::{CodecConfig, Position};

    use super::*;
    use crate::config::AppSettings;
    use crate::hub::{Fit, Selection};
    use crate::types::StreamId;

    /// A stream of the room: the second video track of its list, and audio.
    struct Member {
        tracks: Arc<Tracks>,
        chosen: Chosen,
        video: TrackId,
    }

    impl Member {
        fn new(epoch: u32) -> Self {
            let video = TrackId::nth(TrackKind::Video, 1).unwrap();
            let picture = CodecConfig::Vp8(vp8::Config::default());
            let sound = CodecConfig::G711(g711::Config { law: g711::Law::A, channels: 1 });
            let list = [
                Track { epoch, ..Track::new(video, picture, Timescale::new(90_000)) },
                Track { epoch, ..Track::new(TrackId::AUDIO, sound, Timescale::MILLISECONDS) },
            ];
            let tracks = Arc::new(Tracks::new(epoch, list));
            let mut chosen = Chosen::default();
            chosen.update(Selection::DEFAULT, &tracks, &|_| Fit::Well);
            Self { tracks, chosen, video }
        }

        fn unit(&self, at: Instant, track: TrackId, ms: i64, key_frame: bool) -> Entry {
            let scale = self.tracks.get(track).unwrap().timescale;
            let dts = Timescale::MILLISECONDS.convert(ms, scale);
            let config_epoch = self.tracks.epoch;
            let payload = Bytes::from_static(b"unit");
            let unit = AccessUnit { track, dts, pts: dts + 1, key_frame, config_epoch, payload };
            Entry::new(at, 0, unit, Arc::clone(&self.tracks))
        }
    }

    fn output(position: Position, epoch: u32) -> Output {
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        Output::new(&Grant { stream: StreamId(1), position, epoch, zero_ms: 0, settings, standby: false })
    }

    /// Converts a unit. Returns its track, its time in milliseconds and the epoch of its configuration.
    fn shown(output: &mut Output, of: &Member, entry: &Entry) -> Option<(TrackId, i64, u32)> {
        let (unit, tracks) = output.convert(entry, &of.chosen)?;
        let track = tracks.get(unit.track).unwrap();
        assert_eq!((unit.config_epoch, unit.pts), (track.epoch, unit.dts + 1));
        Some((unit.track, track.timescale.to_ms(unit.dts), unit.config_epoch))
    }

    #[test]
    fn streams_follow_each_other_on_one_clock() {
        let (start, mut output) = (Instant::now(), output(Position::default(), 0));
        let at = |ms| start + Duration::from_millis(ms);
        let (ann, ben) = (Member::new(3), Member::new(9));
        let first = ann.unit(at(0), ann.video, 70_000, true);
        output.cut(&first);
        assert_eq!(shown(&mut output, &ann, &first), Some((TrackId::VIDEO, 0, 1)));
        let sound = ann.unit(at(1), TrackId::AUDIO, 70_010, false);
        assert_eq!(shown(&mut output, &ann, &sound), Some((TrackId::AUDIO, 10, 1)));
        let before = ann.unit(at(1), TrackId::AUDIO, 69_990, false);
        assert_eq!(shown(&mut output, &ann, &before), None, "the view begins at zero");
        let picture = ann.unit(at(40), ann.video, 70_040, false);
        assert_eq!(shown(&mut output, &ann, &picture), Some((TrackId::VIDEO, 40, 1)));
        // The next stream is shown from a key frame on, and its own clock does not matter.
        let cut = ben.unit(at(1000), ben.video, 5, true);
        output.cut(&cut);
        let early = ben.unit(at(1000), ben.video, 5, false);
        assert_eq!(shown(&mut output, &ben, &early), None, "not before a key frame");
        assert_eq!(shown(&mut output, &ben, &cut), Some((TrackId::VIDEO, 1000, 2)));
        let sound = ben.unit(at(1001), TrackId::AUDIO, 0, false);
        assert_eq!(shown(&mut output, &ben, &sound), Some((TrackId::AUDIO, 995, 2)));
    }

    #[test]
    fn times_do_not_go_back_where_streams_overlap() {
        let (start, mut output) = (Instant::now(), output(Position::default(), 0));
        let (ann, ben) = (Member::new(1), Member::new(1));
        let first = ann.unit(start, ann.video, 0, true);
        output.cut(&first);
        shown(&mut output, &ann, &first);
        // Audio that was sent ahead of the video.
        let ahead = ann.unit(start, TrackId::AUDIO, 300, false);
        assert_eq!(shown(&mut output, &ann, &ahead), Some((TrackId::AUDIO, 300, 1)));
        let cut = ben.unit(start + Duration::from_millis(100), ben.video, 1000, true);
        output.cut(&cut);
        assert_eq!(shown(&mut output, &ben, &cut), Some((TrackId::VIDEO, 301, 2)));
        let (late, next) =
            (ben.unit(start, TrackId::AUDIO, 999, false), ben.unit(start, TrackId::AUDIO, 1000, false));
        assert_eq!(shown(&mut output, &ben, &late), None);
        assert_eq!(shown(&mut output, &ben, &next), Some((TrackId::AUDIO, 301, 2)));
    }

    #[test]
    fn script_data_and_timed_metadata_of_the_shown_stream_keep_their_places() {
        let (start, mut output) = (Instant::now(), output(Position::default(), 0));
        let (ann, ben) = (Member::new(1), Member::new(1));
        let data = |of: &Member, track, ms| {
            let payload = Bytes::from_static(b"tag");
            let unit = AccessUnit { track, dts: ms, pts: ms, key_frame: false, config_epoch: 0, payload };
            Entry::new(start, 0, unit, Arc::clone(&of.tracks))
        };
        let moved = |output: &mut Output, of: &Member, track, ms| {
            let (unit, _) = output.convert(&data(of, track, ms), &of.chosen)?;
            assert_eq!((unit.track, unit.pts, &unit.payload[..]), (track, unit.dts, &b"tag"[..]));
            Some(unit.dts)
        };
        assert_eq!(moved(&mut output, &ann, TrackId::METADATA, 70_000), None, "nothing is shown");
        let first = ann.unit(start, ann.video, 70_000, true);
        output.cut(&first);
        shown(&mut output, &ann, &first);
        assert_eq!(moved(&mut output, &ann, TrackId::METADATA, 70_020), Some(20));
        assert_eq!(moved(&mut output, &ann, TrackId::DATA, 70_020), Some(20));
        // Splice information arrives before the time of the splice. That time is moved by as much as the unit's.
        let section = scte35::moved_to(&scte35::insert(7, scte35::Kind::Out, None), 72_000 * 90).unwrap();
        let mut splice = data(&ann, TrackId::CUES, 70_020);
        (splice.unit.pts, splice.unit.payload) = (72_000, section);
        let (unit, _) = output.convert(&splice, &ann.chosen).unwrap();
        let pts = scte35::Splice::read(&unit.payload).unwrap().pts;
        assert_eq!((unit.dts, unit.pts, pts), (20, 2000, Some(2000 * 90)));
        let cut = ben.unit(start + Duration::from_secs(1), ben.video, 5, true);
        output.cut(&cut);
        shown(&mut output, &ben, &cut);
        assert_eq!(moved(&mut output, &ben, TrackId::METADATA, 4), None, "before it was shown");
        assert_eq!(moved(&mut output, &ben, TrackId::METADATA, 25), Some(1_020));
    }

    #[test]
    fn a_view_that_is_begun_anew_goes_on_where_it_was() {
        let mut output = output(Position { dts_ms: 5_000, started: true }, 7);
        let ann = Member::new(1);
        let first = ann.unit(Instant::now(), ann.video, 0, true);
        output.cut(&first);
        assert_eq!(shown(&mut output, &ann, &first), Some((TrackId::VIDEO, 5_001, 8)));
    }

    #[test]
    fn a_changed_track_has_a_new_epoch_and_the_other_keeps_its_own() {
        let (now, mut output) = (Instant::now(), output(Position::default(), 0));
        let mut ann = Member::new(1);
        let first = ann.unit(now, ann.video, 0, true);
        output.cut(&first);
        shown(&mut output, &ann, &first);
        let mut tracks = Tracks::clone(&ann.tracks);
        tracks.get_mut(ann.video).unwrap().epoch = 2;
        tracks.epoch = 2;
        ann.tracks = Arc::new(tracks);
        ann.chosen.update(Selection::DEFAULT, &ann.tracks, &|_| Fit::Well);
        let (picture, sound) = (ann.unit(now, ann.video, 40, true), ann.unit(now, TrackId::AUDIO, 40, false));
        assert_eq!(shown(&mut output, &ann, &picture), Some((TrackId::VIDEO, 40, 2)));
        assert_eq!(shown(&mut output, &ann, &sound), Some((TrackId::AUDIO, 40, 1)));
    }
}
