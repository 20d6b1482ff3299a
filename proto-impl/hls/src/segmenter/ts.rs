//! Segments of MPEG-TS. A [`Window`] decides where they are cut.
//!
//! Each segment can be played on its own: it begins with the tables, and contains every audio frame of its time
//! span.

use bytes::{Bytes, BytesMut};
use media::{Track, TrackId, TrackKind};
use mpegts::{Packing, Program};

use super::cues::Cue;
use super::seal::{GivenKey, Sealed, Sealer};
use super::window::{End, GAPS_AT_ONCE_MAX, SEGMENT_BYTES_MAX, Start, Unit, Window};
use super::{EVENTS_MAX, Rules, Suffix, Timed};
use crate::playlist::MediaPlaylist;

/// A complete segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// URI of the segment, relative to the playlist.
    pub uri: String,
    /// Content of the segment.
    pub bytes: Bytes,
    /// Name and content of the segment's key, if no earlier segment was encrypted with that key.
    pub key: Option<(String, Bytes)>,
}

/// Cuts one stream into segments of MPEG-TS, and keeps their playlist.
#[derive(Debug)]
pub struct TsSegmenter {
    /// Prefix of the segments' URIs.
    name: String,
    suffix: Suffix,
    window: Window,
    program: Program,
    tracks: Vec<Track>,
    epoch: u32,
    /// Number of ID3 tags since the last unit.
    tags: usize,
    /// True if [`TsSegmenter::set_tracks`] was called and no unit has arrived since. Data that still waits in
    /// the program then belongs to the segment before the change.
    has_new_tracks: bool,
    bytes: BytesMut,
    /// Size of the last segment. The same capacity is reserved for the next one.
    last_bytes: usize,
    /// True if the segmenter determines its target duration itself, because it is not one of several
    /// renditions.
    settles: bool,
    sealer: Option<Sealer>,
}

impl TsSegmenter {
    /// Creates the segmenter of a stream. The segments' names begin with `name`.
    #[must_use]
    pub fn new(name: &str, rules: &Rules, start: Start) -> Self {
        Self {
            name: name.to_owned(),
            suffix: rules.suffix.clone(),
            window: Window::new(rules, 3, start),
            program: Program::with_packing(Packing::SEGMENT),
            tracks: Vec::new(),
            epoch: 0,
            tags: 0,
            has_new_tracks: false,
            bytes: BytesMut::new(),
            last_bytes: 0,
            settles: true,
            sealer: None,
        }
    }

    /// Declares a stream of timed metadata in the tables of all segments.
    #[must_use]
    pub fn with_metadata(self) -> Self {
        Self { program: self.program.with_metadata(), ..self }
    }

    /// Encrypts the segments if there is a sealer.
    #[must_use]
    pub fn sealed_by(self, sealer: Option<Sealer>) -> Self {
        Self { sealer, ..self }
    }

    /// Gives the sealer a key, used from the next segment on.
    pub fn set_key(&mut self, key: GivenKey) {
        if let Some(sealer) = &mut self.sealer {
            sealer.set_key(key);
        }
    }

    /// Creates the segmenter of one of several renditions. Before the first segment ends, the owner must set
    /// the rendition's name ([`Self::set_name`]), its first numbers ([`Window::begin_at`]) and its target
    /// duration ([`Window::adopt`]).
    #[must_use]
    pub fn of_ladder(rules: &Rules, start: Start) -> Self {
        Self { settles: false, ..Self::new("", rules, start) }
    }

    /// Sets the prefix of URIs from the next segment on.
    pub fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// The window, from which the playlist and its statistics can be read.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The window, to set values that must be the same for several renditions.
    #[must_use]
    pub const fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Sets the tracks from the next unit on: video first, each kind by ascending id. Segments end at key
    /// frames of the first video track; without video, they may end at any unit. A changed `epoch` makes a
    /// discontinuity.
    pub fn set_tracks(&mut self, tracks: Vec<Track>, epoch: u32) {
        self.tracks = tracks;
        self.epoch = epoch;
        self.has_new_tracks = true;
    }

    /// End of the growing segment, in milliseconds of DTS, if it ends before this unit.
    #[must_use]
    pub fn end_before(&self, timed: &Timed<'_>) -> Option<i64> {
        self.window.ends_before(&self.unit_of(timed), self.bytes.len()).map(|end| end.at_ms)
    }

    /// Adds `by_ms` to all dates. Must only be called before the playlist is first shown, because
    /// dates that players know must not change.
    pub fn move_dates(&mut self, by_ms: i64) {
        self.window.move_dates(by_ms);
    }

    /// Handles a unit. Returns the segment that ends before it, if any.
    pub fn unit(&mut self, timed: &Timed<'_>) -> Option<Cut> {
        let unit = self.unit_of(timed);
        let (end, cut) = self.close_before(&unit);
        self.take(timed, &unit, end);
        cut
    }

    /// Handles an audio unit of a rendition that follows another one, whose last segment ended at
    /// `boundary_ms`. This rendition's segments end at the same times; they end earlier only if they would
    /// become too long. Returns the segment that ends before the unit, if any.
    pub fn follow(&mut self, timed: &Timed<'_>, boundary_ms: Option<i64>) -> Option<Cut> {
        let unit = self.unit_of(timed);
        let is_behind = boundary_ms
            .is_some_and(|at| unit.dts_ms >= at && self.window.begin_ms().is_some_and(|begin| begin < at));
        let own = self.window.must_end_before(&unit, self.bytes.len());
        let end = own.or_else(|| is_behind.then_some(End { at_ms: unit.dts_ms, changed: false }));
        let cut = end.and_then(|end| self.close(end.at_ms));
        self.take(timed, &unit, end);
        cut
    }

    /// Ends the growing segment if it ends before this unit.
    fn close_before(&mut self, unit: &Unit) -> (Option<End>, Option<Cut>) {
        let end = self.window.ends_before(unit, self.bytes.len());
        (end, end.and_then(|end| self.close(end.at_ms)))
    }

    fn take(&mut self, timed: &Timed<'_>, unit: &Unit, end: Option<End>) {
        if std::mem::replace(&mut self.has_new_tracks, false) {
            self.program.set_tracks(&self.tracks);
        }
        let track = self.tracks.iter().find(|track| track.id == timed.unit.track);
        let packets = track.and_then(|track| self.program.write(timed.unit, track)).unwrap_or_default();
        self.add(unit, end, &packets);
    }

    /// Must be called when the rendition's tracks have left the stream, perhaps temporarily. Until they return,
    /// the playlist continues with gaps. Returns the segment that was growing.
    pub fn pause(&mut self) -> Option<Cut> {
        self.close(self.window.end_ms())
    }

    /// Lists gaps up to `end_ms`, where a segment of another rendition has ended. To be called if this
    /// rendition has received nothing since its own last segment. `dated` returns the date of a DTS. Returns
    /// true if the playlist has changed.
    pub fn pass(&mut self, end_ms: i64, dated: impl Fn(i64) -> i64) -> bool {
        let mut has_passed = false;
        for _ in 0..GAPS_AT_ONCE_MAX {
            let uri = format!("{}{}.ts", self.name, self.suffix.of(self.window.number()));
            if !self.window.add_gap(end_ms, &dated, (&uri, None)) {
                break;
            }
            has_passed = true;
        }
        has_passed
    }

    /// Adds ID3 tags for this time in milliseconds to the growing segment. Drops them if no segment is growing,
    /// if the segmenter was created without [`Self::with_metadata`], if no unit has arrived since
    /// [`Self::set_tracks`], if 64 tags were added since the last unit, or if the segment has reached its
    /// maximum size.
    pub fn metadata(&mut self, at_ms: i64, tags: &[u8]) {
        let is_full = self.tags >= EVENTS_MAX || self.bytes.len() >= SEGMENT_BYTES_MAX;
        if self.window.begin_ms().is_none() || self.has_new_tracks || is_full {
            return;
        }
        self.tags = self.tags.saturating_add(1);
        let packets = self.program.write_metadata(at_ms, tags);
        self.append(&packets);
    }

    /// Handles splice information. If it is new, its tags precede the growing segment in the playlist.
    pub fn cue(&mut self, cue: &Cue) {
        self.window.cue(cue);
    }

    fn unit_of(&self, timed: &Timed<'_>) -> Unit {
        let lead = self.lead();
        let leads = lead.is_none_or(|lead| lead == timed.unit.track);
        Unit {
            dts_ms: timed.dts_ms,
            date_ms: timed.date_ms,
            begins: leads && (lead.is_none() || timed.unit.key_frame),
            epoch: self.epoch,
            leads,
        }
    }

    /// The track whose key frames end segments; `None` without video.
    fn lead(&self) -> Option<TrackId> {
        self.tracks.iter().find(|track| track.kind() == TrackKind::Video).map(|track| track.id)
    }

    /// Ends the stream and returns its last segment. If `is_told`, the playlist tells players that the stream
    /// has ended.
    pub fn finish(&mut self, is_told: bool) -> Option<Cut> {
        let cut = self.close(self.window.end_ms());
        self.window.finish(is_told);
        if self.settles {
            self.window.settle();
        }
        cut
    }

    /// Adds a unit's packets to the segment. If `end` is set, the unit is the first one after that end.
    fn add(&mut self, unit: &Unit, end: Option<End>, packets: &[u8]) {
        self.window.note(unit, end);
        self.tags = 0;
        if self.bytes.is_empty() {
            self.bytes.reserve(self.last_bytes);
        }
        self.append(packets);
    }

    fn append(&mut self, packets: &[u8]) {
        self.bytes.extend_from_slice(packets);
        if let Some(sealer) = &mut self.sealer {
            sealer.seal(&mut self.bytes);
        }
    }

    /// The playlist; `None` while it has too few segments to be shown.
    #[must_use]
    pub fn playlist(&self) -> Option<&MediaPlaylist> {
        self.window.is_enough().then(|| self.window.playlist())
    }

    /// Takes the names of files that the playlist no longer lists and that players no longer fetch.
    pub fn take_gone(&mut self) -> Vec<String> {
        self.window.take_gone()
    }

    /// Takes the names of files that the playlist has stopped listing since the last call.
    pub fn take_left(&mut self) -> Vec<String> {
        self.window.take_left()
    }

    fn close(&mut self, end_ms: i64) -> Option<Cut> {
        let rest = self.program.flush();
        self.bytes.extend_from_slice(&rest);
        self.program.begin();
        let uri = format!("{}{}.ts", self.name, self.suffix.of(self.window.number()));
        let mut segment = self.window.open_segment(None, &[]);
        let mut key = None;
        if let Some(sealer) = self.sealer.as_mut().filter(|_| self.window.begin_ms().is_some()) {
            let sealed = sealer.finish(&mut self.bytes, &self.name, self.window.number());
            let Some(Sealed { tag, new }) = sealed else {
                // Encryption failed. The segment must not be passed on in the clear.
                self.bytes.clear();
                return None;
            };
            (segment.key, key) = (Some(tag), new);
        }
        if !self.window.close(end_ms, &uri, self.bytes.len(), segment) {
            return None;
        }
        if self.settles {
            self.window.settle();
        }
        let first = self.window.playlist().media_sequence;
        for name in self.sealer.as_mut().map(|sealer| sealer.take_left(first)).unwrap_or_default() {
            self.window.leave(name);
        }
        self.last_bytes = self.bytes.len();
        Some(Cut { uri, bytes: std::mem::take(&mut self.bytes).freeze(), key })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use media::codec::{aac, h264, mp3};
    use media::{AccessUnit, CodecConfig, Timescale};
    use mpegts::{
        AUDIO_PID, Demuxer, Event, METADATA_PID, PACKET_BYTES, PMT_PID, Packet, Pes, Pid, VIDEO_PID,
    };

    use super::super::window::{PLAYLIST_BYTES_MAX, SILENT_MS};
    use super::*;
    use crate::Playlist;

    /// A segmenter and all its output. The output is checked as it is produced.
    struct Rig {
        segmenter: TsSegmenter,
        /// The bytes of the segments by URI.
        segments: Vec<(String, Vec<u8>)>,
        last: MediaPlaylist,
    }

    fn segmenter(rules: &Rules) -> TsSegmenter {
        TsSegmenter::new("cam", rules, Start { number: 1, discontinuities: 0 })
    }

    impl Rig {
        fn new(rules: &Rules) -> Self {
            let (segments, last) = (Vec::new(), MediaPlaylist::default());
            Self { segmenter: segmenter(rules), segments, last }
        }

        fn unit(&mut self, dts_ms: i64, begins: bool, epoch: u32, bytes: &[u8]) {
            self.dated(dts_ms, dts_ms + 1_700_000_000_000, begins, epoch, bytes);
        }

        fn dated(&mut self, dts_ms: i64, date_ms: i64, begins: bool, epoch: u32, bytes: &[u8]) {
            let unit = Unit { dts_ms, date_ms, begins, epoch, leads: true };
            let (end, cut) = self.segmenter.close_before(&unit);
            self.segmenter.add(&unit, end, bytes);
            self.take(cut);
        }

        fn finish(&mut self) {
            let cut = self.segmenter.finish(true);
            self.take(cut);
        }

        /// Feeds frames that are 40 ms apart; `is_key` returns true for key frames.
        fn frames(&mut self, from: i64, count: i64, is_key: impl Fn(i64) -> bool) {
            (from..from + count).for_each(|n| self.unit(n * 40, is_key(n), 1, b"x"));
        }

        /// Feeds a unit of a track other than the leading one.
        fn sound(&mut self, dts_ms: i64) {
            let date_ms = dts_ms + 1_700_000_000_000;
            let unit = Unit { dts_ms, date_ms, begins: false, epoch: 1, leads: false };
            let (end, cut) = self.segmenter.close_before(&unit);
            self.segmenter.add(&unit, end, b"s");
            self.take(cut);
        }

        fn take(&mut self, cut: Option<Cut>) {
            let Some(cut) = cut else { return };
            assert!(cut.bytes.len() <= SEGMENT_BYTES_MAX + 1_000_000);
            self.segments.push((cut.uri, cut.bytes.to_vec()));
            let Some(text) = self.segmenter.playlist().map(MediaPlaylist::to_string) else { return };
            let Playlist::Media(read) = Playlist::read(text.as_bytes()).unwrap() else { panic!("{text}") };
            self.check(&read, &text);
            self.last = read;
        }

        /// Checks a playlist against the rules of the RFC, and against its predecessor.
        fn check(&self, now: &MediaPlaylist, text: &str) {
            let before = &self.last;
            for segment in &now.segments {
                let is_there = self.segments.iter().any(|(uri, _)| *uri == segment.uri);
                assert!(is_there, "6.2.1: {} cannot be fetched", segment.uri);
                let rounded = (segment.duration + Duration::from_millis(500)).as_secs();
                assert!(rounded <= now.target_duration.as_secs(), "4.3.3.1: {text}");
            }
            if before.segments.is_empty() {
                return assert!(now.media_sequence >= 1);
            }
            assert_eq!(now.target_duration, before.target_duration, "6.2.1");
            let gone = usize::try_from(now.media_sequence - before.media_sequence).unwrap();
            let (left, stays) = before.segments.split_at(gone);
            assert_eq!(
                stays,
                &now.segments[..stays.len()],
                "6.2.1: only added at the end, removed at the beginning"
            );
            let discontinuities = left.iter().filter(|segment| segment.discontinuity).count() as u64;
            assert_eq!(now.discontinuity_sequence, before.discontinuity_sequence + discontinuities, "6.2.2");
            assert!(!before.ended, "6.2.1: nothing is added behind the end");
        }

        fn durations(&self) -> Vec<u128> {
            self.last.segments.iter().map(|segment| segment.duration.as_millis()).collect()
        }
    }

    #[test]
    fn metadata_is_in_the_segment_of_its_time_and_in_none_that_does_not_announce_it() {
        let config = h264::Config::read(Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0])).unwrap();
        let track = Track::new(TrackId::VIDEO, CodecConfig::H264(config), Timescale::MILLISECONDS);
        let tags = |n: i64| media::id3::text("n", &n.to_string()).unwrap();
        for has_metadata in [true, false] {
            let mut segmenter = segmenter(&Rules::DEFAULT);
            if has_metadata {
                segmenter = segmenter.with_metadata();
            }
            segmenter.set_tracks(vec![track.clone()], 1);
            segmenter.metadata(0, &tags(0));
            let mut found = Vec::new();
            for n in 0..200 {
                let payload = Bytes::from_static(&[0, 0, 0, 2, 0x65, 0x88]);
                let (track, dts, pts) = (TrackId::VIDEO, n * 40, n * 40);
                let unit = AccessUnit { track, dts, pts, key_frame: n % 25 == 0, config_epoch: 1, payload };
                let cut = segmenter.unit(&Timed { unit: &unit, dts_ms: dts, date_ms: dts });
                if let Some(cut) = cut {
                    let (mut demuxer, mut input) = (Demuxer::new(), &cut.bytes[..]);
                    while let Some(event) = demuxer.read(&mut input) {
                        let Event::Pes(Pes { payload, pts: Some(pts), stream, .. }) = event else { continue };
                        if stream.pid == METADATA_PID {
                            let text = media::id3::texts(&payload)[0].1.to_owned();
                            found.push((cut.uri.clone(), pts - mpegts::ZERO, text));
                        }
                    }
                }
                if n % 60 == 59 {
                    segmenter.metadata(dts, &tags(n));
                }
            }
            let expected = [("cam2.ts", 59), ("cam3.ts", 119), ("cam4.ts", 179)]
                .map(|(uri, n)| (uri.replace("cam", "cam00000000"), n * 3600, n.to_string()));
            // The last segment was not ended.
            assert_eq!(found, expected[..if has_metadata { 2 } else { 0 }]);
        }
    }

    #[test]
    fn a_flood_of_metadata_leaves_a_segment_bounded() {
        let config = h264::Config::read(Bytes::from_static(&[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0])).unwrap();
        let track = Track::new(TrackId::VIDEO, CodecConfig::H264(config), Timescale::MILLISECONDS);
        let mut segmenter = segmenter(&Rules { segment_ms: 60_000, ..Rules::DEFAULT }).with_metadata();
        segmenter.set_tracks(vec![track], 1);
        let tags = media::id3::text("n", &"x".repeat(30_000)).unwrap();
        for n in 0..100 {
            let payload = Bytes::from_static(&[0, 0, 0, 2, 0x65, 0x88]);
            let (track, dts, pts) = (TrackId::VIDEO, n * 40, n * 40);
            let unit = AccessUnit { track, dts, pts, key_frame: n == 0, config_epoch: 1, payload };
            segmenter.unit(&Timed { unit: &unit, dts_ms: dts, date_ms: dts });
            let before = segmenter.bytes.len();
            (0..10_000).for_each(|_| segmenter.metadata(dts, &tags));
            assert!(segmenter.bytes.len() - before < (EVENTS_MAX + 1) * 32_000, "between two units");
            assert!(segmenter.bytes.len() < SEGMENT_BYTES_MAX + 100_000, "{n}");
        }
    }

    #[test]
    fn no_time_is_missing_where_the_pictures_pause_and_the_sound_goes_on() {
        for (begins, lasts) in (8_000..14_000).step_by(40).flat_map(|ms| [(ms, 3_000), (ms, 7_000)]) {
            let mut rig = Rig::new(&Rules { list_size: 40, ..Rules::DEFAULT });
            for ms in (0..24_000).step_by(20) {
                let paused = (begins..begins + lasts).contains(&ms);
                if ms % 40 == 0 && !paused {
                    rig.unit(ms, ms % 2_000 == 0, 1, b"v");
                }
                rig.sound(ms);
            }
            rig.finish();
            let listed: Duration = rig.last.segments.iter().map(|segment| segment.duration).sum();
            let listed = i64::try_from(listed.as_millis()).unwrap();
            let jumps = rig.last.segments.iter().filter(|segment| segment.discontinuity).count();
            assert!((24_000 - listed).abs() <= SILENT_MS && jumps == 0, "{begins}: {listed} ms, {jumps}");
        }
    }

    #[test]
    fn pictures_that_come_in_bursts_have_not_paused() {
        let phases = |period: i64| (0..period).step_by(20).map(move |phase| (period, phase));
        for (period, phase) in (80..=1_000).step_by(40).flat_map(phases) {
            let mut rig = Rig::new(&Rules { list_size: 40, ..Rules::DEFAULT });
            let mut shown = 0;
            for ms in (0..30_000).step_by(20) {
                if (ms + phase) % period == 0 {
                    (shown..=ms).step_by(40).for_each(|ms| rig.unit(ms, ms % 2_000 == 0, 1, b"v"));
                    shown = (ms / 40 + 1) * 40;
                }
                rig.sound(ms);
            }
            let lengths: Vec<_> =
                rig.last.segments.iter().map(|segment| segment.duration.as_millis()).collect();
            assert!(
                lengths.iter().all(|ms| *ms == 2_000) && rig.last.independent_segments,
                "{period} {phase}: {lengths:?}"
            );
        }
    }

    #[test]
    fn sound_that_comes_first_behind_a_silence_of_all_begins_anew() {
        let mut rig = Rig::new(&Rules { list_size: 40, ..Rules::DEFAULT });
        rig.frames(0, 100, |n| n % 50 == 0);
        (14_000..16_000).step_by(20).for_each(|ms| rig.sound(ms));
        rig.finish();
        let jumps: Vec<_> = rig.last.segments.iter().map(|segment| segment.discontinuity).collect();
        assert!(jumps.iter().filter(|jump| **jump).count() == 1, "{jumps:?}");
    }

    #[test]
    fn a_segment_ends_at_the_first_key_frame_after_its_time() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 25 * 9, |n| n % 25 == 0);
        assert_eq!(rig.durations(), [2000; 4]);
        assert_eq!(rig.last.target_duration, Duration::from_secs(2));
        let uris: Vec<&str> = rig.last.segments.iter().map(|segment| segment.uri.as_str()).collect();
        assert_eq!(uris, ["cam000000001.ts", "cam000000002.ts", "cam000000003.ts", "cam000000004.ts"]);
        let times: Vec<_> =
            rig.last.segments.iter().map(|segment| segment.program_date_time.unwrap()).collect();
        assert_eq!(times, [0, 2000, 4000, 6000].map(|ms| 1_700_000_000_000 + ms));
        assert!(rig.segments.iter().all(|(_, bytes)| bytes.len() == 50), "every unit is in one");
        rig.finish();
        assert!(rig.last.ended);
        assert_eq!(rig.durations(), [2000, 2000, 2000, 2000, 1000]);
    }

    #[test]
    fn the_list_is_as_long_as_asked_and_has_few_of_a_high_rate() {
        let mut rig = Rig::new(&Rules { list_size: 5, segment_ms: 1000, ..Rules::DEFAULT });
        rig.frames(0, 25 * 20, |n| n % 25 == 0);
        assert_eq!((rig.last.segments.len(), rig.last.media_sequence), (5, 15));
        let mut rig = Rig::new(&Rules::DEFAULT);
        let megabyte = vec![7; 1_000_000];
        (0..400).for_each(|n| rig.unit(n * 40, n % 50 == 0, 1, &megabyte));
        let named = |uri: &str| rig.last.segments.iter().any(|segment| segment.uri == uri);
        let kept: usize =
            rig.segments.iter().filter(|(uri, _)| named(uri)).map(|(_, bytes)| bytes.len()).sum();
        assert!(kept <= PLAYLIST_BYTES_MAX && rig.last.segments.len() > 1, "{kept}");
        assert!(rig.durations().iter().all(|ms| *ms < 1000), "cut by size: {:?}", rig.durations());
    }

    #[test]
    fn the_first_playlist_has_what_players_begin_with() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 25 * 6, |n| n % 25 == 0);
        assert_eq!((rig.segments.len(), rig.segmenter.playlist()), (2, None));
        rig.frames(25 * 6, 1, |_| true);
        assert_eq!(rig.durations(), [2000; 3]);
        // An ended stream lists all its segments; a single long segment is enough to be shown.
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 10, |n| n == 0);
        rig.finish();
        assert_eq!((rig.durations(), rig.last.ended), (vec![400], true));
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 25 * 7, |n| n % 150 == 0);
        assert_eq!(rig.durations(), [6000]);
    }

    #[test]
    fn without_a_key_frame_in_time_it_is_cut_where_it_must_be() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 25 * 60, |n| n == 0);
        assert_eq!(rig.last.target_duration, Duration::from_secs(20));
        assert_eq!(rig.durations().first(), Some(&20_360));
        assert!(!rig.last.independent_segments);
        // Irregular key frames: the segments of the first playlist determine the target duration.
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 25 * 60, |n| n % 250 == 0 || n == 60);
        assert_eq!(rig.last.target_duration, Duration::from_secs(8));
        assert_eq!(rig.durations()[..2], [2400, 7600]);
    }

    #[test]
    fn an_end_that_is_not_told_leaves_the_playlist_as_it_is() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        rig.frames(0, 60, |n| n % 50 == 0);
        let cut = rig.segmenter.finish(false);
        rig.take(cut);
        assert_eq!((rig.durations(), rig.last.ended), (vec![2000, 400], false), "it is shown, however short");
        assert_eq!(rig.segmenter.window().number(), 3, "what comes next is another stream's");
    }

    #[test]
    fn sound_alone_is_cut_anywhere() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        (0..1000).for_each(|n| rig.unit(n * 23, true, 1, b"s"));
        assert!(rig.durations().iter().all(|ms| (2000..2023).contains(ms)), "{:?}", rig.durations());
    }

    #[test]
    fn other_tracks_and_missing_time_are_discontinuities() {
        let mut rig = Rig::new(&Rules { list_size: 3, ..Rules::DEFAULT });
        rig.frames(0, 60, |n| n % 50 == 0);
        // The tracks change in the middle of a segment; four seconds are missing.
        (160..300).for_each(|n| rig.unit(n * 40, n % 50 == 10, 2, b"y"));
        let marks: Vec<bool> = rig.last.segments.iter().map(|segment| segment.discontinuity).collect();
        // Without the first segment, the list would be shorter than three target durations.
        assert_eq!(rig.durations(), [2000, 400, 2000, 2000]);
        assert_eq!(marks, [false, false, true, false]);
        assert!(rig.segments[1].1.iter().all(|b| *b == b'x'));
        // A minute is missing, and the tracks are the same.
        (1800..2000).for_each(|n| rig.unit(n * 40, n % 50 == 0, 2, b"z"));
        assert!(rig.segments.iter().all(|(_, bytes)| bytes.windows(2).all(|pair| pair[0] == pair[1])));
        assert_eq!(rig.last.discontinuity_sequence, 1);
        rig.finish();
        assert_eq!(rig.last.discontinuity_sequence, 2);
    }

    #[test]
    fn a_date_that_jumps_is_a_discontinuity_and_one_that_was_not_shown_is_corrected() {
        let mut rig = Rig::new(&Rules::DEFAULT);
        let dates = |rig: &Rig| -> Vec<(i64, bool)> {
            let segments = rig.last.segments.iter();
            segments.map(|one| (one.program_date_time.unwrap(), one.discontinuity)).collect()
        };
        for n in 0..500 {
            if n == 20 {
                rig.segmenter.move_dates(-700);
            }
            // The jump of the dates takes effect at the beginning of a segment.
            let date = n * 40 + if n < 20 { 1000 } else { 300 } + if n < 170 { 0 } else { 3_600_000 };
            rig.dated(n * 40, date, n % 50 == 0, 1, b"x");
        }
        let later = |ms: i64| 3_600_300 + ms;
        assert_eq!(dates(&rig)[..4], [(300, false), (2300, false), (4300, false), (6300, false)]);
        assert_eq!(dates(&rig)[4..6], [(later(8000), true), (later(10_000), false)]);
        assert_eq!(rig.durations()[..6], [2000; 6]);
    }

    #[test]
    fn t_09_a_playlist_names_what_is_there() {
        for seed in 0..300u64 {
            let mut random = crypto::Seed::from_number(seed).random();
            let segment_ms = if seed % 2 == 0 { 2000 } else { 1000 };
            let mut rig = Rig::new(&Rules { segment_ms, list_size: 4, ..Rules::DEFAULT });
            let (mut dts_ms, mut epoch) = (random.below(1 << 40) as i64 - (1 << 39), 1);
            for _ in 0..400 {
                dts_ms += match random.below(50) {
                    0 => random.below(20_000) as i64,
                    1 => random.below(2000) as i64,
                    _ => random.below(100) as i64,
                };
                epoch += u32::from(random.below(90) == 0);
                let begins = random.below(1 + seed % 60) == 0;
                rig.unit(dts_ms, begins, epoch, b"unit");
            }
            rig.finish();
            let bytes: usize = rig.segments.iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!((bytes, rig.last.ended), (1600, true), "seed {seed}");
        }
    }

    /// Segments a stream of 25 pictures and 46.9 audio frames per second. Returns the segments and the number
    /// of frames.
    fn cut(video: bool, seconds: i64) -> (Vec<Bytes>, usize) {
        let video = video.then(|| {
            let sps = [0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03];
            let config = h264::Config::of_sets(&[&sps], &[&[0x68, 0xcb, 0x83, 0xcb, 0x20]]).unwrap();
            Track::new(TrackId::VIDEO, CodecConfig::H264(config), Timescale::new(90_000))
        });
        let aac = aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap();
        let audio = Track::new(TrackId::AUDIO, CodecConfig::Aac(aac), Timescale::new(90_000));
        let has_video = video.is_some();
        let tracks: Vec<Track> = video.into_iter().chain([audio]).collect();
        let mut units = Vec::new();
        for dts in (0..seconds * 90_000).filter(|dts| dts % 1920 == 0 || has_video && dts % 3600 == 0) {
            if has_video && dts % 3600 == 0 {
                units.push((
                    TrackId::VIDEO,
                    dts,
                    dts % 90_000 == 0,
                    Bytes::from_static(&[0, 0, 0, 4, 0x65, 1, 2, 3]),
                ));
            }
            if dts % 1920 == 0 {
                units.push((TrackId::AUDIO, dts, false, Bytes::from_static(&[0x21; 170])));
            }
        }
        let frames = units.len();
        let mut segmenter = segmenter(&Rules::DEFAULT);
        segmenter.set_tracks(tracks, 1);
        let mut segments = Vec::new();
        for (track, dts, key_frame, payload) in units {
            let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
            let timed = Timed { unit: &unit, dts_ms: Timescale::new(90_000).to_ms(dts), date_ms: 0 };
            segments.extend(segmenter.unit(&timed).map(|cut| cut.bytes));
        }
        segments.extend(segmenter.finish(true).map(|cut| cut.bytes));
        (segments, frames)
    }

    #[test]
    fn each_segment_begins_with_its_tables_and_has_all_its_sound() {
        for video in [true, false] {
            let (segments, frames) = cut(video, 9);
            assert_eq!(segments.len(), 5);
            let mut last = std::collections::BTreeMap::new();
            let (mut came, mut ends) = (0, None::<u64>);
            for segment in &segments {
                let packets =
                    || segment.chunks(PACKET_BYTES).map(|one| Packet::read(one.try_into().unwrap()).unwrap());
                let pids: Vec<Pid> = packets().map(|packet| packet.pid).take(3).collect();
                assert_eq!(pids[..2], [Pid::PAT, PMT_PID]);
                assert_eq!(pids[2], if video { VIDEO_PID } else { AUDIO_PID });
                let tables = packets().filter(|packet| packet.pid == Pid::PAT).count();
                assert_eq!(tables, if video { packets().filter(is_key_frame).count() } else { 1 });
                for packet in packets() {
                    let step = u8::from(packet.payload.is_some_and(|payload| !payload.is_empty()));
                    if let Some(before) = last.insert(packet.pid, packet.continuity) {
                        assert_eq!((before + step) & 0x0f, packet.continuity, "over the segments");
                    }
                }
                // Each segment can be read without the others.
                let mut demuxer = Demuxer::new();
                let mut input = &segment[..];
                let pes = |event| if let Event::Pes(pes) = event { Some(pes) } else { None };
                let mut all: Vec<Pes> =
                    std::iter::from_fn(|| demuxer.read(&mut input)).filter_map(pes).collect();
                demuxer.finish();
                all.extend(std::iter::from_fn(|| demuxer.read(&mut &[][..])).filter_map(pes));
                let first = all.iter().map(|pes| pes.dts.or(pes.pts).unwrap()).min();
                assert!(first >= ends, "sound of the segment before");
                ends = all.iter().map(|pes| pes.dts.or(pes.pts).unwrap()).max();
                came += all
                    .iter()
                    .map(|pes| if pes.stream.kind.is_video() { 1 } else { pes.payload.len() / 177 })
                    .sum::<usize>();
            }
            assert_eq!(came, frames);
        }
    }

    /// The payload bytes of all PES packets of a segment.
    fn payload_bytes(segment: &Bytes) -> usize {
        let (mut demuxer, mut input, mut bytes) = (Demuxer::new(), &segment[..], 0);
        let mut take = |event| {
            if let Event::Pes(pes) = event {
                bytes += pes.payload.len()
            }
        };
        while let Some(event) = demuxer.read(&mut input) {
            take(event);
        }
        demuxer.finish();
        while let Some(event) = demuxer.read(&mut &[][..]) {
            take(event);
        }
        bytes
    }

    #[test]
    fn frames_that_wait_when_the_tracks_change_are_of_the_segment_before() {
        let aac = CodecConfig::Aac(aac::Config::read(Bytes::from_static(&[0x11, 0x90])).unwrap());
        let mp3 = CodecConfig::Mp3(mp3::Config { sample_rate: 48_000, channels: 2 });
        let track =
            |config: &CodecConfig| Track::new(TrackId::AUDIO, config.clone(), Timescale::MILLISECONDS);
        let mut segmenter = segmenter(&Rules::DEFAULT);
        let mut cuts = Vec::new();
        for n in 0..6i64 {
            match n {
                0 => segmenter.set_tracks(vec![track(&aac)], 1),
                3 => segmenter.set_tracks(vec![track(&mp3)], 2),
                _ => {}
            }
            let payload = Bytes::from_static(&[0x21; 100]);
            let (dts, key_frame) = (n * 21, false);
            let unit =
                AccessUnit { track: TrackId::AUDIO, dts, pts: dts, key_frame, config_epoch: 1, payload };
            cuts.extend(segmenter.unit(&Timed { unit: &unit, dts_ms: dts, date_ms: dts }));
        }
        cuts.extend(segmenter.finish(true));
        // Each AAC frame has an ADTS header.
        let bytes: Vec<usize> = cuts.iter().map(|cut| payload_bytes(&cut.bytes)).collect();
        assert_eq!(bytes, [3 * 107, 3 * 100]);
        let marks: Vec<bool> =
            segmenter.playlist().unwrap().segments.iter().map(|one| one.discontinuity).collect();
        assert_eq!(marks, [false, true]);
    }

    fn is_key_frame(packet: &Packet<'_>) -> bool {
        packet.pid == VIDEO_PID
            && packet.unit_start
            && packet.adaptation.is_some_and(|field| field.random_access)
    }
}
