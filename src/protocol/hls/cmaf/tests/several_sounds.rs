//! Several audio tracks of one stream with low latency and DASH.

use hls::playlist::MultivariantPlaylist;

use super::*;

impl Rig {
    fn list(&self) -> MultivariantPlaylist {
        let text = self.text("ll-hls/cam/cam__master.m3u8");
        let Ok(Playlist::Multivariant(list)) = Playlist::read(text.as_bytes()) else { panic!("{text}") };
        list
    }

    /// Name, language and playlist of each audio rendition.
    fn sounds(&self) -> Vec<(String, Option<String>, String)> {
        let all = self.list().renditions;
        all.into_iter().map(|one| (one.name, one.language, one.uri.unwrap())).collect()
    }

    /// Returns the languages of the adaptation sets, for each period of the manifest.
    fn periods(&self) -> Vec<Vec<String>> {
        let languages = |period: &str| {
            let sets = period.split(" lang=\"").skip(1);
            sets.map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect()
        };
        self.text("cam/cam.mpd").split("<Period ").skip(1).map(languages).collect()
    }

    /// Checks that the segments of the second audio track have the numbers and boundaries of the video's segments,
    /// that those of the video have not changed since `before`, and that no rendition has a discontinuity.
    fn assert_beside(&self, before: &BTreeMap<u64, (i64, u128)>) {
        let [video, sound] = ["cam__video", "cam__audio1"].map(|base| self.segments(base));
        let is_same =
            |(number, place): (&u64, &(i64, u128))| video.get(number).is_none_or(|now| now == place);
        assert!(before.iter().all(is_same), "{before:?} {video:?}");
        assert_eq!(video.keys().last(), sound.keys().last(), "numbers go along with each other");
        assert!(sound.iter().all(|(number, place)| video[number] == *place), "{video:?} {sound:?}");
        assert_eq!(BASES.map(|base| self.discontinuities(base).1), [0; 3]);
        let first = self.discontinuities("cam__video").0;
        assert_eq!(BASES.map(|base| self.discontinuities(base).0), [first; 3]);
    }

    fn discontinuities(&self, base: &str) -> (u64, usize) {
        let playlist = self.media(base);
        let shown = playlist.segments.iter().filter(|segment| segment.discontinuity).count();
        (playlist.discontinuity_sequence, shown)
    }
}

fn told(all: &[(&str, &str, &str)]) -> Vec<(String, Option<String>, String)> {
    all.iter().map(|(name, tag, uri)| ((*name).into(), Some((*tag).into()), (*uri).into())).collect()
}

const BASES: [&str; 3] = ["cam__video", "cam__audio", "cam__audio1"];

#[test]
fn each_sound_is_a_rendition_with_a_language_and_the_segments_of_the_others() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (sound(0, "deu"), 0), (sound(1, "eng"), 0)], 1, 0..16_000);
    let all = [("deu", "de", "cam__audio.m3u8"), ("eng", "en", "cam__audio1.m3u8")];
    assert_eq!(rig.sounds(), told(&all));
    let list = rig.list();
    let chosen: Vec<_> = list.renditions.iter().map(|one| (one.default, one.autoselect)).collect();
    assert_eq!(chosen, [(true, true), (false, true)]);
    assert!(list.renditions.iter().all(|one| one.channels.as_deref() == Some("2")));
    let [variant] = &list.variants[..] else { panic!("{list:?}") };
    assert_eq!(variant.codecs.as_deref(), Some("avc1.64001F,mp4a.40.2"));
    let places = |base| rig.segments(base).into_iter().rev().take(4).collect::<Vec<_>>();
    assert!(BASES.iter().all(|base| places(base) == places("cam__video")), "{:?}", BASES.map(places));
    let [first, second] = ["cam__audio", "cam__audio1"].map(|base| rig.media(base).low_latency.unwrap());
    let reports = |low: &hls::playlist::LowLatency| low.reports.iter().map(|one| one.uri.clone()).collect();
    let [of_first, of_second]: [Vec<String>; 2] = [reports(&first), reports(&second)];
    assert_eq!(of_first, ["cam__video.m3u8", "cam__audio1.m3u8"]);
    assert_eq!(of_second, ["cam__video.m3u8", "cam__audio.m3u8"]);
    assert_eq!(rig.periods(), [["de", "en"]]);
    let text = rig.text("cam/cam.mpd");
    assert_eq!(text.matches("<AdaptationSet ").count(), 3, "{text}");
    let roles: Vec<_> = text.split("urn:mpeg:dash:role:2011\" value=\"").skip(1).collect();
    let roles: Vec<_> = roles.iter().map(|rest| rest.split_once('"').unwrap().0).collect();
    assert_eq!(roles, ["main", "alternate"], "{text}");
}

#[test]
fn a_sound_without_a_frame_holds_nothing_up_and_is_listed_when_it_has_enough() {
    let mut rig = Rig::new();
    let tracks = |first_ms| [(video(0), 0), (sound(0, "deu"), 0), (sound(1, "eng"), first_ms)];
    rig.pass(&tracks(20_000), 1, 0..8000);
    assert_eq!(rig.sounds(), told(&[("deu", "de", "cam__audio.m3u8")]), "three segments are enough");
    assert_eq!(rig.periods(), [["de"]]);
    rig.pass(&tracks(20_000), 1, 8000..40_000);
    assert_eq!(rig.sounds().len(), 2);
    assert_eq!(rig.periods(), [vec!["de"], vec!["de", "en"]], "none is added to a period");
    rig.assert_beside(&BTreeMap::new());
}

#[test]
fn the_first_sound_holds_the_others_up_no_more() {
    let mut rig = Rig::new();
    rig.pass(&[(video(0), 0), (sound(0, "deu"), 99_000), (sound(1, "eng"), 0)], 1, 0..8000);
    assert_eq!(rig.sounds(), told(&[("eng", "en", "cam__audio1.m3u8")]));
    assert!(rig.list().renditions[0].default);
}

#[test]
fn a_sound_comes_and_goes_without_a_discontinuity_of_the_others() {
    // The second audio track begins within a segment of the video, at its end, or one frame before its end.
    for came_ms in [9000, 10_000, 9960] {
        let mut rig = Rig::new();
        let both = [(video(0), 0), (sound(0, "deu"), 0)];
        let all = [both[0].clone(), both[1].clone(), (sound(1, "eng"), 0)];
        rig.pass(&both, 1, 0..came_ms);
        let before = rig.segments("cam__video");
        rig.pass(&all, 2, came_ms..20_000);
        assert_eq!(rig.sounds().len(), 2);
        rig.assert_beside(&before);
        assert_eq!(rig.periods(), [vec!["de"], vec!["de", "en"]]);
        // The second audio track leaves, and its playlist continues with gaps.
        rig.pass(&both, 3, 20_000..20_000 + came_ms / 2);
        assert_eq!(rig.sounds().len(), 1);
        let gaps = rig.media("cam__audio1");
        assert!(gaps.segments.last().unwrap().gap && !gaps.ended, "{gaps}");
        assert!(rig.media("cam__video").independent_segments);
        assert_eq!(rig.periods(), [vec!["de"], vec!["de", "en"], vec!["de"]]);
        // The second audio track returns.
        rig.pass(&all, 4, 20_000 + came_ms / 2..36_000);
        assert_eq!(rig.sounds().len(), 2);
        rig.assert_beside(&before);
        let periods = rig.periods();
        assert_eq!(periods[periods.len() - 2..], [vec!["de"], vec!["de", "en"]]);
    }
}

#[test]
fn sounds_that_return_in_the_same_segment_begin_together_with_the_next_one() {
    let mut rig = Rig::new();
    let tracks = |from: [i64; 2]| [(video(0), 0), (sound(0, "deu"), from[0]), (sound(1, "eng"), from[1])];
    rig.pass(&tracks([0, 0]), 1, 0..10_000);
    rig.pass(&tracks([i64::MAX, i64::MAX]), 1, 10_000..20_000);
    rig.pass(&tracks([20_400, 20_800]), 1, 20_000..32_000);
    let places = |base| rig.segments(base).into_iter().rev().take(5).collect::<Vec<_>>();
    for base in ["cam__audio", "cam__audio1"] {
        assert_eq!(places(base), places("cam__video"), "{base}");
        let gaps: Vec<bool> = rig.media(base).segments.iter().rev().take(5).map(|one| one.gap).collect();
        assert_eq!(gaps, [false, false, false, false, true], "{base}");
    }
}

#[test]
fn other_pictures_are_a_discontinuity_of_every_sound() {
    let mut rig = Rig::new();
    let tracks = |epoch| {
        let video = Track { epoch, ..video(0) };
        [(video, 0), (sound(0, "deu"), 0), (sound(1, "eng"), 0)]
    };
    rig.pass(&tracks(1), 1, 0..9000);
    rig.pass(&tracks(2), 2, 9000..16_000);
    assert_eq!(BASES.map(|base| rig.discontinuities(base).1), [1; 3]);
    assert_eq!(rig.periods(), [vec!["de", "en"], vec!["de", "en"]]);
}

#[test]
fn more_sounds_than_viewers_can_use_are_left_out() {
    let mut rig = Rig::new();
    let sounds = (0..12).map(|n| (sound(n, "deu"), 0));
    rig.pass(&std::iter::once((video(0), 0)).chain(sounds).collect::<Vec<_>>(), 1, 0..8000);
    assert_eq!(rig.sounds().len(), sounds::SOUNDS_MAX);
}

#[test]
fn sounds_alone_are_variants_of_their_group() {
    let mut rig = Rig::new();
    rig.pass(&[(sound(0, "deu"), 0), (sound(1, "eng"), 0)], 1, 0..9000);
    let list = rig.list();
    let uris: Vec<_> = list.variants.iter().map(|one| (one.uri.as_str(), one.audio.as_deref())).collect();
    assert_eq!(uris, [("cam__audio.m3u8", Some("audio"))]);
    assert_eq!(rig.sounds().len(), 2);
}
