//! Ladders of streams with several audio tracks.

use super::*;

const APART: [(&str, &str); 2] = [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")];

impl Rig {
    fn all(&self) -> MultivariantPlaylist {
        let name = match self.layout {
            Layout::Together => "cam_adaptive.m3u8",
            Layout::Apart => "ll-hls/cam/cam__master_adaptive.m3u8",
        };
        let Some(Playlist::Multivariant(list)) = self.read(name) else { panic!("{name} is not there") };
        list
    }

    /// Language and playlist of each rendition.
    fn sounds(&self) -> Vec<(String, Option<String>)> {
        self.all().renditions.into_iter().map(|one| (one.language.unwrap_or_default(), one.uri)).collect()
    }

    fn folder(&self) -> &'static str {
        if self.layout == Layout::Apart { "ll-hls/cam/" } else { "" }
    }

    /// Returns the date and length of each segment of a playlist, by number. Checks that all segments except gaps
    /// exist.
    fn places(&self, uri: &str) -> BTreeMap<u64, (i64, u128)> {
        let playlist = self.media(&format!("{}{uri}", self.folder())).unwrap_or_else(|| panic!("no {uri}"));
        for segment in playlist.segments.iter().filter(|segment| !segment.gap) {
            let name = format!("{}{}", self.folder(), segment.uri);
            assert!(self.blobs.get("live", &name).is_some(), "{name} cannot be fetched");
        }
        let place = |one: &hls::playlist::Segment| (one.program_date_time.unwrap(), one.duration.as_millis());
        (playlist.media_sequence..).zip(playlist.segments.iter().map(place)).collect()
    }

    /// Checks that the newest `count` segments of two playlists have the same numbers, and boundaries that differ
    /// by one frame at most.
    fn assert_places(&self, uri: &str, other: &str, count: usize) {
        let (first, second) = (self.places(uri), self.places(other));
        let common: Vec<u64> = first.keys().filter(|number| second.contains_key(number)).copied().collect();
        assert!(common.len() >= count, "{first:?} {second:?}");
        for number in common.iter().rev().take(count) {
            let ((date, length), (own_date, own_length)) = (first[number], second[number]);
            assert!(
                (date - own_date).abs() <= 45 && length.abs_diff(own_length) <= 45,
                "{first:?} {second:?}"
            );
        }
    }

    /// Changes the publisher's audio tracks.
    fn set_sounds(&mut self, id: &str, languages: &[&str]) {
        let member = self.members.get_mut(id).unwrap();
        let videos: Vec<Track> = member.tracks.of_kind(TrackKind::Video).cloned().collect();
        let sounds = (0..).zip(languages).map(|(n, language)| sound(n, language));
        member.tracks = Arc::new(Tracks::new(member.tracks.epoch + 1, videos.into_iter().chain(sounds)));
    }
}

fn told(all: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    all.iter().map(|(language, uri)| ((*language).to_owned(), uri.map(str::to_owned))).collect()
}

#[test]
fn one_video_has_its_first_sound_within_and_others_beside_it() {
    for form in ["mpegts", "fmp4"] {
        let mut rig = Rig::new(&[("hlsSegmentType", form)]);
        rig.languages = &["deu", "eng", "fra"];
        rig.begin("cam", &[720], 0, 3000);
        rig.pass(24_000);
        let [english, french] = ["cam__adaptive_audio1.m3u8", "cam__adaptive_audio2.m3u8"];
        assert_eq!(
            rig.sounds(),
            told(&[("de", None), ("en", Some(english)), ("fr", Some(french))]),
            "{form}"
        );
        let list = rig.all();
        let [variant] = &list.variants[..] else { panic!("{list:?}") };
        let codecs = variant.codecs.as_deref();
        assert_eq!((variant.audio.as_deref(), codecs), (Some("audio"), Some("avc1.64001F,mp4a.40.2")));
        assert!(variant.bandwidth > 250_000, "the sound counts: {variant:?}");
        for uri in [english, french] {
            rig.assert_places(&variant.uri, uri, 4);
            let [own, other] = [&variant.uri, uri].map(|uri| rig.media(uri).unwrap());
            assert_eq!(own.target_duration, other.target_duration, "6.2.4");
        }
    }
}

#[test]
fn one_sound_is_no_rendition() {
    let mut rig = Rig::new(&[]);
    rig.begin("cam", &[720, 360], 0, 2000);
    rig.pass(15_000);
    let list = rig.all();
    assert!(list.renditions.is_empty() && list.variants.iter().all(|one| one.audio.is_none()), "{list:?}");
}

#[test]
fn many_sounds_leave_no_video_out() {
    for (layout, settings) in [(Layout::Together, &[][..]), (Layout::Apart, &APART)] {
        let mut rig = Rig::with(layout, settings);
        rig.languages = &["deu", "eng", "fra", "ita", "spa", "por", "pol", "swe"];
        for (id, height) in [("cam_high", 1080), ("cam_mid", 720), ("cam_low", 360)] {
            rig.begin(id, &[height], 0, 2000);
        }
        rig.pass(30_000);
        let list = rig.all();
        let heights: Vec<u32> = list.variants.iter().filter_map(|one| Some(one.resolution?.height)).collect();
        assert_eq!((heights, rig.sounds().len()), (vec![1080, 720, 360], 8), "{layout:?}: {list:?}");
    }
}

#[test]
fn all_renditions_share_the_sounds_of_the_stream_that_leads() {
    let mut rig = Rig::with(Layout::Apart, &APART);
    rig.languages = &["deu", "eng"];
    rig.begin("cam_high", &[1080], 0, 2000);
    rig.pass(3000);
    rig.begin("cam_low", &[360], 35, 2000);
    rig.pass(25_000);
    let [german, english] = ["cam__adaptive_audio.m3u8", "cam__adaptive_audio1.m3u8"];
    let both = told(&[("de", Some(german)), ("en", Some(english))]);
    assert_eq!(rig.sounds(), both);
    let list = rig.all();
    assert_eq!(list.variants.len(), 2);
    for variant in &list.variants {
        assert_eq!(variant.audio.as_deref(), Some("audio"));
        for uri in [german, english] {
            rig.assert_places(&variant.uri, uri, 4);
        }
        let low = rig.media(&format!("ll-hls/cam/{}", variant.uri)).unwrap().low_latency.unwrap();
        let told: Vec<_> = low.reports.iter().map(|report| report.uri.as_str()).collect();
        assert!([german, english].iter().all(|uri| told.contains(uri)), "{told:?}");
    }
    let manifest =
        || std::str::from_utf8(&rig.blobs.get("live", "cam/cam_adaptive.mpd").unwrap().bytes).unwrap();
    let text = manifest();
    let newest = text.rsplit("<Period ").next().unwrap();
    let sets = newest.matches("contentType=\"audio\" lang=\"de\"").count();
    let others = newest.matches("contentType=\"audio\" lang=\"en\"").count();
    assert_eq!((sets, others), (1, 1), "{text}");
    // The next stream continues all audio playlists, under the same names.
    let before = [german, english].map(|uri| rig.places(uri));
    rig.end("cam_high");
    rig.pass(8000);
    assert_eq!(rig.sounds(), both);
    for (uri, before) in [german, english].iter().zip(before) {
        let after = rig.places(uri);
        assert!(before.iter().all(|(number, place)| after.get(number).is_none_or(|other| other == place)));
        assert!(after.keys().last() > before.keys().last(), "{uri}");
    }
}

#[test]
fn a_sound_that_leaves_has_gaps_and_no_place_in_the_list() {
    for layout in [Layout::Together, Layout::Apart] {
        let mut rig = Rig::with(layout, &APART);
        rig.languages = &["deu", "eng"];
        rig.begin("cam", &[720], 0, 2000);
        rig.pass(16_000);
        let english = "cam__adaptive_audio1.m3u8";
        let video = rig.all().variants[0].uri.clone();
        let sequence = |rig: &Rig, uri: &str| {
            let playlist = rig.media(&format!("{}{uri}", rig.folder())).unwrap();
            let shown = playlist.segments.iter().filter(|segment| segment.discontinuity).count() as u64;
            playlist.discontinuity_sequence + shown
        };
        rig.set_sounds("cam", &["deu"]);
        rig.pass(6000);
        assert_eq!(rig.sounds().len(), usize::from(layout == Layout::Apart), "{layout:?}");
        let playlist = rig.media(&format!("{}{english}", rig.folder())).unwrap();
        assert!(playlist.segments.last().unwrap().gap && !playlist.ended, "{playlist}");
        rig.set_sounds("cam", &["deu", "eng"]);
        rig.pass(12_000);
        assert_eq!(rig.sounds().len(), 2, "{layout:?}");
        rig.assert_places(&video, english, 3);
        assert_eq!(sequence(&rig, &video), sequence(&rig, english), "{layout:?}");
    }
}

#[test]
fn captions_of_any_rendition_are_declared_for_all() {
    let sei = &[
        0, 0, 0, 18, 6, 4, 14, 0xb5, 0, 0x31, b'G', b'A', b'9', b'4', 3, 0x41, 0xff, 0xfc, 0x94, 0x20, 0xff,
        0x80,
    ];
    for layout in [Layout::Together, Layout::Apart] {
        let mut rig = Rig::with(layout, &APART);
        rig.before = sei;
        rig.begin("cam", &[720, 360], 0, 2000);
        rig.pass(15_000);
        let list = rig.all();
        let captions = list.renditions.iter().filter_map(|one| one.instream_id.as_deref());
        assert_eq!(captions.collect::<Vec<_>>(), ["CC1"], "{layout:?}");
        let group = Some(hls::playlist::ClosedCaptions::Group("captions".to_owned()));
        assert!(list.variants.iter().all(|one| one.closed_captions == group), "{list:?}");
        if layout == Layout::Apart {
            let blob = rig.blobs.get("live", "cam/cam_adaptive.mpd").unwrap();
            let text = std::str::from_utf8(&blob.bytes).unwrap();
            assert_eq!(text.matches("cea-608:2015\" value=\"CC1=und\"").count(), 1, "{text}");
        }
    }
}
